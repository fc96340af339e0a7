"""The relations of the shared state.

Two are the source's (HRM, section 4.1): RS has a row for every resource unit, RT one for every task.  The others hold the
jobs, the machines and schedulers with their last heartbeats, the tickets of the lock for stream jobs, and counters.
Amounts are micro-units (`units.AMOUNTS`), times are seconds of the negotiator's clock, ids are as in `ids`.
Liveness follows from counters of heartbeats and from no stored time, see `clocks`.

Invariants, which every transaction keeps:

* RS.free_x = capacity - needs of tasks RUNNING there - for memory and GPU memory, needs of PAUSED ones;
* RS.stream_x = capacity - needs of stream tasks RUNNING there;
* cores of a unit with shared cores: the needs of tasks on all such units of the machine count, in both;
* RS.waiting, RS.paused: tasks in that state there;
* a task is on a unit (RT.queue_id) if and only if it is RUNNING, PAUSED or WAITING, and then RT.scheduler put it there;
* JS.open, JS.held and JS.done count the job's tasks that are OPEN, on a unit, and DONE.

The row of RS is also the lock of the tasks on the unit: a transaction that moves them holds it, and those of all units that share
its cores.  A transaction that takes an
OPEN task holds the task's own row and that of its scheduler, so a scheduler that is declared lost receives no more tasks.
Rows are taken in the order MS, SC, RT (open ones), RS, RT (those on units), JS, HT, LK, each sorted, so there are no deadlocks.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

TABLES = sa.MetaData()

AMOUNT_NAMES = ("vcore", "mem", "gmem", "places")
"""Columns of the four amounts; also with the prefixes ``free_`` and ``stream_``."""


def _amounts(prefix: str) -> list[sa.Column[Any]]:
    return [sa.Column(prefix + name, sa.BigInteger, nullable=False) for name in AMOUNT_NAMES]


def _heard_of(table: str, key: str) -> sa.Table:
    """Make a table of senders of heartbeats: number of heartbeats written, and 1 while the sender counts as alive."""
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
"""Resource units: capacity, free amounts, and the predicted start of one more task in the batch queue."""

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
    sa.Column("since", sa.Float, nullable=False),  # of a PAUSED task: seconds that it has run
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("wish", sa.String, index=True),
    sa.Column("exit_status", sa.Integer),  # null: as far as is known, 0
    sa.Index("hrm_rt_job", "job_id", "status"),
    sa.Index("hrm_rt_scheduler", "scheduler", "launched"),
)
"""Tasks: demand, expected run time, status, unit, and the unit that refused an open task."""

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
    sa.Column("name", sa.String),
    sa.Column("work", sa.Text),
)
"""Jobs: scheduler, counts of their tasks by state, the name under which they recur (null: the job's id), and their work."""

HT = sa.Table(
    "hrm_ht", TABLES, sa.Column("name", sa.String, primary_key=True), sa.Column("seconds", sa.Float, nullable=False)
)
"""History: moving mean of the run times by name of the job."""

ADDED = (JS.c.name, JS.c.work, RT.c.exit_status)
"""Columns that stores of older builds lack: they may be null, and are added when such a store is opened."""

MS = _heard_of("hrm_ms", "machine_id")
"""Machines and their heartbeats."""

SC = _heard_of("hrm_sc", "scheduler")
"""Schedulers and their heartbeats."""

LK = sa.Table(
    "hrm_lk", TABLES, sa.Column("name", sa.String, primary_key=True), sa.Column("next", sa.BigInteger, nullable=False)
)
"""Counters: the lock's ticket machine, and the changes of units."""

SHARED = "shared"
"""RS.type of a GPU unit with shared cores; the other types are those of `ResourceUnit`."""

UNITS_CHANGED = "units"
"""Name of the counter of changes of units."""

LQ = sa.Table(
    "hrm_lq",
    TABLES,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("ticket", sa.BigInteger, primary_key=True),
    sa.Column("owner", sa.String, nullable=False),
    sa.Column("until", sa.Float, key="beats", nullable=False),  # the column's name is that of older files
)
"""Tickets of locks: the smallest holds the lock; one that is silent for too long is deleted by a process that has watched."""
