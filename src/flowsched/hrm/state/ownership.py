"""Jobs and tasks that change their owner: jobs adopted by a scheduler, tasks launched on their machines.

The caller holds the scheduler's row.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from flowsched.hrm.state.schema import JS, RT
from flowsched.hrm.state.store import Store, among, packed

__all__ = ["adopt", "has_free_jobs", "launch"]

_FREE = sa.select(JS.c.job_id).where(JS.c.scheduler.is_(None), JS.c.open + JS.c.held > 0)


def has_free_jobs(store: Store, kinds: Sequence[str]) -> bool:
    """Return True if there are jobs of these kinds without a scheduler."""
    return bool(store.look(_FREE.where(JS.c.kind.in_(kinds)).limit(1)))


def adopt(store: Store, db: sa.Connection, scheduler: str, most: int, kinds: Sequence[str]) -> list[str]:
    """Give at most so many jobs of these kinds without a scheduler to this one; return their ids."""
    free = _FREE.where(JS.c.kind.in_(kinds)).order_by(JS.c.job_id).limit(most)
    found = list(db.execute(store.lock_rows(free, skip=True)).scalars())
    db.execute(sa.update(JS).where(JS.c.job_id.in_(found)).values(scheduler=scheduler))
    return found


def launch(store: Store, db: sa.Connection, scheduler: str, tasks: Sequence[str]) -> list[str]:
    """Hand those of the tasks over to their machines that the scheduler was granted and has not launched; return them."""
    chosen = among(store.dialect, RT.c.task_id)
    ready = sa.select(RT.c.task_id).where(
        chosen, RT.c.scheduler == scheduler, RT.c.queue_id.is_not(None), RT.c.launched == 0
    )
    # In the order of their ids, in which all transactions take rows.
    found = list(db.execute(store.lock_rows(ready.order_by(RT.c.task_id)), {"ids": packed(tasks)}).scalars())
    db.execute(sa.update(RT).where(chosen).values(launched=1), {"ids": packed(found)})
    return found
