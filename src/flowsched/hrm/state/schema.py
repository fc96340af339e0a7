"""The relations of the shared state.

Two are the source's (HRM, section 4.1): RS has a row for every resource unit, RT one for every task.  Beside them are
the jobs, the machines and schedulers with their last heartbeats, the tickets of the lock for stream jobs, and counters.
Amounts are micro-units (`units.AMOUNTS`), times seconds of whatever clock the negotiator is given, ids as `ids` has them.
Who is there is told by counters of heartbeats and by no time, see `clocks`.

Invariants, which every transaction keeps:

* RS.free_x = capacity - what tasks RUNNING there take - for memory and GPU memory, what PAUSED ones take;
* RS.stream_x = capacity - what stream tasks RUNNING there take;  RS.waiting, RS.paused: tasks in that state there;
* a task is on a unit (RT.queue_id) if and only if it is RUNNING, PAUSED or WAITING, and then RT.scheduler put it there;
* JS.open, JS.held and JS.done count the job's tasks that are OPEN, on a unit, and DONE.

The row of RS is also the lock of the tasks that are on the unit: who moves them holds it.  Who takes an OPEN task holds
its own row, and that of the scheduler that it is for, so a scheduler that is given up has got all that it will get.
Rows are taken in the order MS, SC, RT (open ones), RS, RT (those on units), JS, LK, each sorted, so nobody waits in a
circle.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

__all__ = ["AMOUNT_NAMES", "JS", "LK", "LQ", "MS", "RS", "RT", "SC", "TABLES", "UNITS_CHANGED"]

TABLES = sa.MetaData()

AMOUNT_NAMES = ("vcore", "mem", "gmem", "places")
"""Of the four amounts, as columns; with ``free_`` and ``stream_`` before them, too."""


def _amounts(prefix: str) -> list[sa.Column[Any]]:
    return [sa.Column(prefix + name, sa.BigInteger, nullable=False) for name in AMOUNT_NAMES]


def _heard_of(table: str, key: str) -> sa.Table:
    """Those that send heartbeats: how many were written, and whether they count as there."""
    return sa.Table(
        table,
        TABLES,
        sa.Column(key, sa.String, primary_key=True),
        sa.Column("seen", sa.Float, key="beats", nullable=False),
        sa.Column("alive", sa.Integer, nullable=False),
    )


RS = sa.Table(
    "hrm_rs",
    TABLES,
    sa.Column("ru_id", sa.String, primary_key=True),
    sa.Column("machine_id", sa.String, nullable=False, index=True),
    sa.Column("type", sa.String, nullable=False),
    *_amounts(""),
    *_amounts("free_"),
    *_amounts("stream_"),
    sa.Column("length", sa.BigInteger, nullable=False),
    sa.Column("waiting", sa.BigInteger, nullable=False),
    sa.Column("paused", sa.BigInteger, nullable=False),
    sa.Column("wtime", sa.Float, nullable=False),
    sa.Column("alive", sa.Integer, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
)
"""Resource units: what they have, what is free, and when one more in the batch queue would start."""

RT = sa.Table(
    "hrm_rt",
    TABLES,
    sa.Column("task_id", sa.String, primary_key=True),
    sa.Column("job_id", sa.String, nullable=False),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("vcore", sa.BigInteger, nullable=False),
    sa.Column("mem", sa.BigInteger, nullable=False),
    sa.Column("gmem", sa.BigInteger, nullable=False),
    sa.Column("gpu", sa.Integer, nullable=False),
    sa.Column("time", sa.Float, nullable=False),
    sa.Column("status", sa.String, nullable=False),
    sa.Column("queue_id", sa.String, index=True),
    sa.Column("scheduler", sa.String),
    sa.Column("launched", sa.Integer, nullable=False),
    sa.Column("since", sa.Float, nullable=False),  # of a PAUSED one: how long it has run
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("wish", sa.String, index=True),
    sa.Index("hrm_rt_job", "job_id", "status"),
    sa.Index("hrm_rt_scheduler", "scheduler", "launched"),
)
"""Tasks: demand, expected run time, status, where they are, and the unit that refused an open one."""

JS = sa.Table(
    "hrm_js",
    TABLES,
    sa.Column("job_id", sa.String, primary_key=True),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("scheduler", sa.String),
    sa.Column("start", sa.Float, nullable=False),
    sa.Column("stages", sa.Integer, nullable=False),
    sa.Column("tasks", sa.Integer, nullable=False),
    sa.Column("gpus", sa.Integer, nullable=False),  # of the tasks, those that take GPU memory
    sa.Column("open", sa.Integer, nullable=False),
    sa.Column("held", sa.Integer, nullable=False),
    sa.Column("done", sa.Integer, nullable=False),
)
"""Jobs: whose they are, and how many of their tasks are where."""

MS = _heard_of("hrm_ms", "machine_id")
"""Machines and their heartbeats."""

SC = _heard_of("hrm_sc", "scheduler")
"""Schedulers and their heartbeats."""

LK = sa.Table(
    "hrm_lk",
    TABLES,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("next", sa.BigInteger, nullable=False),
)
"""Counters: the lock's ticket machine, and how often units have come or gone."""

UNITS_CHANGED = "units"
"""The name of the second."""

LQ = sa.Table(
    "hrm_lq",
    TABLES,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("ticket", sa.BigInteger, primary_key=True),
    sa.Column("owner", sa.String, nullable=False),
    sa.Column("until", sa.Float, key="beats", nullable=False),  # the column's name is that of older files
)
"""Who holds or awaits the lock: the smallest ticket; who is silent for too long loses it to those that see that."""
