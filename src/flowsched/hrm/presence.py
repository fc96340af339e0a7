"""Who is there: schedulers and machines that are heard of, and giving up those that are not.

A heartbeat is written only when the last one that was written is an eighth of the time old after which its sender
counts as lost; so most of them only look.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa

from flowsched.cluster.checks import text
from flowsched.exceptions import UnknownIdError
from flowsched.hrm.claims import ExpiredError, Status
from flowsched.hrm.ledger import Books
from flowsched.hrm.store import Store, among, packed
from flowsched.hrm.tables import JS, LQ, MS, RS, RT, SC, UNITS_CHANGED

__all__ = ["Schedulers", "lost_machine", "lost_scheduler", "silent"]


class Schedulers:
    """Heartbeats of schedulers; the parameters are the negotiator's."""

    def __init__(self, store: Store, ttl: float, clock: Callable[[], float]) -> None:
        self.store, self.ttl, self.clock = store, ttl, clock

    def hear(self, name: str) -> list[str]:
        """A heartbeat; tasks that are on units for it and that it has not launched.

        Raises
        ------
        UnknownIdError, ExpiredError
            It never was, or no longer is, one of the schedulers.
        """
        rows = self.store.look(_BEAT, name=text("scheduler", name))
        self._check(name, rows[0].alive if rows else None)
        if rows[0].seen < self.clock() - self.ttl / 8:
            self.renew(name)
        return sorted(row.task_id for row in rows if row.task_id is not None)

    def renew(self, name: str) -> None:
        """Write a heartbeat."""
        beat = sa.update(SC).where(SC.c.scheduler == name, SC.c.alive == 1).values(seen=self.clock())
        if not self.store.transact(lambda db: db.execute(beat).rowcount):
            self._check(name, 0)

    def hold(self, db: sa.Connection, name: str) -> bool:
        """Hold the scheduler's row: it cannot be given up before this transaction ends; whether it should `renew`."""
        row = db.execute(self.store.lock_rows(_SCHEDULER, shared=True), {"name": text("scheduler", name)}).one_or_none()
        self._check(name, row.alive if row else None)
        return bool(row and row.seen < self.clock() - self.ttl / 8)

    def hold_those_alive(self, db: sa.Connection, names: set[str]) -> set[str]:
        """Hold the rows of those of some schedulers that are there; who they are."""
        query = self.store.lock_rows(_those_alive(self.store.dialect), shared=True)
        return set(db.execute(query, {"ids": packed(names)}).scalars()) if names else set()

    def _check(self, name: str, alive: int | None) -> None:
        if alive is None:
            raise UnknownIdError(f"unknown scheduler {name!r}")
        if not alive:
            raise ExpiredError(f"scheduler {name!r}: not heard of for {self.ttl:g} s; add it again")


_SCHEDULER = sa.select(SC.c.alive, SC.c.seen).where(SC.c.scheduler == sa.bindparam("name"))

_NOT_LAUNCHED = sa.and_(RT.c.scheduler == SC.c.scheduler, RT.c.launched == 0, RT.c.queue_id.is_not(None))

_BEAT = (
    sa.select(SC.c.alive, SC.c.seen, RT.c.task_id)
    .join_from(SC, RT, _NOT_LAUNCHED, isouter=True)
    .where(SC.c.scheduler == sa.bindparam("name"))
)


@cache
def _those_alive(dialect: str) -> sa.Select[Any]:
    return sa.select(SC.c.scheduler).where(among(dialect, SC.c.scheduler), SC.c.alive == 1).order_by(SC.c.scheduler)


def silent(store: Store, name: sa.Column[str], late: float) -> Sequence[str]:
    """Those of SC or MS that were not heard of since `late`."""
    rows = name.table.c
    return [row[0] for row in store.look(sa.select(name).where(rows.alive == 1, rows.seen < late).order_by(name))]


def lost_scheduler(store: Store, db: sa.Connection, *, name: str, late: float, now: float) -> list[str]:
    """Take back what a scheduler claimed and did not launch; the tasks that are open again.

    Nothing happens if it has been heard of since `late`.
    """
    if not db.execute(
        sa.update(SC).where(SC.c.scheduler == name, SC.c.alive == 1, SC.c.seen < late).values(alive=0)
    ).rowcount:
        return []
    half = [RT.c.scheduler == name, RT.c.launched == 0, RT.c.queue_id.is_not(None)]
    units = set(db.execute(sa.select(RT.c.queue_id).where(*half)).scalars())
    books = Books(store, db, units, now)
    # Read again: the rows are held only now.
    opened = list(db.execute(sa.select(RT.c.task_id).where(*half).order_by(RT.c.task_id)).scalars())
    _open_again(books, opened)
    db.execute(sa.update(JS).where(JS.c.scheduler == name).values(scheduler=None))
    db.execute(sa.delete(LQ).where(LQ.c.owner == name))
    return opened


def lost_machine(store: Store, db: sa.Connection, *, name: str, late: float, now: float) -> list[str]:
    """Open all tasks of a machine again, and give its units to nobody until it is back; the tasks.

    Nothing happens if it has been heard of since `late`.
    """
    if not db.execute(
        sa.update(MS).where(MS.c.machine_id == name, MS.c.alive == 1, MS.c.seen < late).values(alive=0)
    ).rowcount:
        return []
    units = list(db.execute(sa.select(RS.c.ru_id).where(RS.c.machine_id == name)).scalars())
    books = Books(store, db, units, now)
    opened = sorted(task for unit in units for task in books.tasks(unit))
    _open_again(books, opened, alive=0)
    store.count_up(db, UNITS_CHANGED)
    return opened


def _open_again(books: Books, tasks: list[str], alive: int | None = None) -> None:
    for id in tasks:
        books.queues[books.task(id).queue_id].remove(id, books.now)
    for id in tasks:
        books.leave(id, Status.OPEN)
    books.save(alive=alive)
