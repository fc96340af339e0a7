"""Liveness of schedulers and machines by heartbeats, and release of the tasks of lost ones.

A heartbeat adds one to its sender's counter; no time is written, and no two clocks are compared, see `clocks`.
It is written only if the last one that this process wrote is older than an eighth of the ttl, by its own clock; so most
heartbeats only read.
A process declares a sender lost after its counter has stood still for the ttl, while this process watched and the store was
there, and only if the counter is still the same then.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import sqlalchemy as sa

from flowsched.exceptions import UnknownIdError
from flowsched.hrm.clocks import Clock, Watch
from flowsched.hrm.ids import name as name_of
from flowsched.hrm.state.claims import ExpiredError, Status
from flowsched.hrm.state.schema import JS, LQ, MS, RS, RT, SC, UNITS_CHANGED
from flowsched.hrm.state.store import Store, among, packed
from flowsched.hrm.state.unit_rows import UnitRows


class HeartbeatCounters:
    """Counters of heartbeats in one table: some written by this process, all watched.

    Parameters
    ----------
    store : Store
    key : Column
        The key of SC or MS.
    ttl : float
        Seconds.
    monotonic : callable
        This process's own time.
    """

    def __init__(self, store: Store, key: sa.Column[str], ttl: float, monotonic: Clock) -> None:
        self.store, self.key, self.ttl, self.monotonic = store, key, ttl, monotonic
        self._watch = Watch(ttl, monotonic)
        self._outages = store.outages
        self._written: dict[str, float] = {}  # by sender: the begin of the last heartbeat that this process wrote

    def is_due(self, name: str) -> bool:
        """Return True if a heartbeat should be written."""
        written = self._written.get(name)
        return written is None or self.monotonic() - written > self.ttl / 8

    def note(self, name: str, count: float, begin: float) -> None:
        """Note a heartbeat that was written, in a transaction that began at `begin`."""
        self._written[name] = begin
        self._watch.note(name, count)

    def silent(self) -> dict[str, float]:
        """Return the senders that count as alive but have been silent for too long, with their counters."""
        rows = self.key.table.c
        found = self.store.look(sa.select(self.key, rows.beats).where(rows.alive == 1).order_by(self.key))
        if self.store.outages != self._outages:
            # No heartbeat could arrive while the store was away.
            self._outages = self.store.outages
            self._watch.restart()
        counts = {row[0]: row.beats for row in found}
        self._watch.keep(counts)
        return {name: count for name, count in counts.items() if self._watch.is_silent(name, count)}


class SchedulerHeartbeats:
    """Heartbeats of schedulers; the parameters are the negotiator's."""

    def __init__(self, store: Store, ttl: float, clock: Clock, monotonic: Clock) -> None:
        self.store, self.ttl, self.clock = store, ttl, clock
        self.beats = HeartbeatCounters(store, SC.c.scheduler, ttl, monotonic)

    def join(self, name: str) -> None:
        """Add a scheduler, or let it come back."""
        begin = self.beats.monotonic()

        def work(db: sa.Connection) -> float:
            back = sa.update(SC).where(SC.c.scheduler == name).values(beats=SC.c.beats + 1, alive=1)
            count = db.execute(back.returning(SC.c.beats)).scalar()
            if count is None:
                db.execute(sa.insert(SC).values(scheduler=name, beats=0, alive=1))
            return count or 0

        self.beats.note(name, self.store.transact(work, twice=True), begin)

    def hear(self, name: str) -> list[str]:
        """Take a heartbeat; return the tasks that were granted to the scheduler and that it has not launched.

        Raises
        ------
        UnknownIdError, ExpiredError
            It never was, or no longer is, one of the schedulers.
        """
        rows = self.store.look(_BEAT, name=name_of("scheduler", name))
        self._check(name, rows[0].alive if rows else None)
        if self.beats.is_due(name):
            self.renew(name)
        return sorted(row.task_id for row in rows if row.task_id is not None)

    def renew(self, name: str) -> None:
        """Write a heartbeat."""
        begin = self.beats.monotonic()
        beat = sa.update(SC).where(SC.c.scheduler == name, SC.c.alive == 1).values(beats=SC.c.beats + 1)
        count = self.store.transact(lambda db: db.execute(beat.returning(SC.c.beats)).scalar(), twice=True)
        if count is None:
            self._check(name, 0)
        else:
            self.beats.note(name, count, begin)

    def hold(self, db: sa.Connection, name: str) -> bool:
        """Hold the scheduler's row, so that it cannot be declared lost in this transaction; return True if it should `renew`."""
        alive = db.execute(self.store.lock_rows(_SCHEDULER, shared=True), {"name": name_of("scheduler", name)}).scalar()
        self._check(name, alive)
        return self.beats.is_due(name)

    def hold_those_alive(self, db: sa.Connection, names: set[str]) -> set[str]:
        """Hold the rows of those of the schedulers that are alive; return their names."""
        query = self.store.lock_rows(_those_alive(self.store.dialect), shared=True)
        return set(db.execute(query, {"ids": packed(names)}).scalars()) if names else set()

    def _check(self, name: str, alive: int | None) -> None:
        if alive is None:
            raise UnknownIdError(f"unknown scheduler {name!r}")
        if not alive:
            raise ExpiredError(f"scheduler {name!r}: not heard of for {self.ttl:g} s; add it again")


_SCHEDULER = sa.select(SC.c.alive).where(SC.c.scheduler == sa.bindparam("name"))

_NOT_LAUNCHED = sa.and_(RT.c.scheduler == SC.c.scheduler, RT.c.launched == 0, RT.c.queue_id.is_not(None))

_BEAT = (
    sa.select(SC.c.alive, RT.c.task_id)
    .join_from(SC, RT, _NOT_LAUNCHED, isouter=True)
    .where(SC.c.scheduler == sa.bindparam("name"))
)


@cache
def _those_alive(dialect: str) -> sa.Select[Any]:
    return sa.select(SC.c.scheduler).where(among(dialect, SC.c.scheduler), SC.c.alive == 1).order_by(SC.c.scheduler)


def lost_scheduler(store: Store, db: sa.Connection, *, name: str, count: float, now: float) -> list[str]:
    """Open the tasks that a scheduler claimed and did not launch; return them.

    Nothing happens if its counter has moved on from `count`.
    """
    if not db.execute(
        sa.update(SC).where(SC.c.scheduler == name, SC.c.alive == 1, SC.c.beats == count).values(alive=0)
    ).rowcount:
        return []
    half = [RT.c.scheduler == name, RT.c.launched == 0, RT.c.queue_id.is_not(None)]
    units = set(db.execute(sa.select(RT.c.queue_id).where(*half)).scalars())
    unit_rows = UnitRows(store, db, units, now)
    # Read again: the rows are held only now.
    opened = list(db.execute(sa.select(RT.c.task_id).where(*half).order_by(RT.c.task_id)).scalars())
    open_again(unit_rows, opened)
    db.execute(sa.update(JS).where(JS.c.scheduler == name).values(scheduler=None))
    db.execute(sa.delete(LQ).where(LQ.c.owner == name))
    return opened


def lost_machine(store: Store, db: sa.Connection, *, name: str, count: float, now: float) -> list[str]:
    """Open all tasks of a machine, and close its units until it is back; return the tasks.

    Nothing happens if its counter has moved on from `count`.
    """
    if not db.execute(
        sa.update(MS).where(MS.c.machine_id == name, MS.c.alive == 1, MS.c.beats == count).values(alive=0)
    ).rowcount:
        return []
    units = list(db.execute(sa.select(RS.c.ru_id).where(RS.c.machine_id == name)).scalars())
    unit_rows = UnitRows(store, db, units, now)
    opened = sorted(task for unit in units for task in unit_rows.tasks(unit))
    open_again(unit_rows, opened, alive=0)
    store.count_up(db, UNITS_CHANGED)
    return opened


def open_again(unit_rows: UnitRows, tasks: list[str], alive: int | None = None) -> None:
    """Take tasks out of their queues: they are open again."""
    for id in tasks:
        unit_rows.queues[unit_rows.task(id).queue_id].remove(id, unit_rows.now)
    for id in tasks:
        unit_rows.leave(id, Status.OPEN)
    unit_rows.save(alive=alive)
