"""Giving up machines and schedulers that are not heard of any more."""

from __future__ import annotations

import sqlalchemy as sa

from flowsched.hrm.claims import Status
from flowsched.hrm.ledger import Books
from flowsched.hrm.store import JS, LQ, MS, RS, RT, SC, Store

__all__ = ["lost_machine", "lost_scheduler"]


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
    return opened


def _open_again(books: Books, tasks: list[str], alive: int | None = None) -> None:
    for id in tasks:
        books.queues[books.task(id).queue_id].remove(id, books.now)
    for id in tasks:
        books.leave(id, Status.OPEN)
    books.save(alive=alive)
