"""Where the shared state lies: in this process, in an SQLite file, or in PostgreSQL.

Two relations are the source's (HRM, section 4.1): RS has a row for every resource unit, RT one for every task.  Beside
them are the jobs, the machines and schedulers with their last heartbeats, and the tickets of the lock for stream jobs.
Amounts are micro-units (`units.AMOUNTS`), times seconds of whatever clock the negotiator is given, ids strings.

Invariants, which every transaction keeps:

* RS.free_x = capacity - what tasks RUNNING there take - for memory and GPU memory, what PAUSED ones take;
* RS.stream_x = capacity - what stream tasks RUNNING there take;  RS.waiting, RS.paused: tasks in that state there;
* a task is on a unit (RT.queue_id) if and only if it is RUNNING, PAUSED or WAITING, and then RT.scheduler put it there;
* JS.open, JS.held and JS.done count the job's tasks that are OPEN, on a unit, and DONE.

The row of RS is also the lock of the tasks that are on the unit: who moves them holds it.  Who takes an OPEN task holds
its own row.  Rows are taken in the order SC, RT (open ones), RS, JS, each sorted, so nobody waits in a circle.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from flowsched.exceptions import InputError

try:
    import sqlalchemy as sa
    from sqlalchemy.exc import DBAPIError
except ImportError as missing:
    raise ImportError("the shared state needs SQLAlchemy: pip install 'flowsched[sql]'", name="sqlalchemy") from missing

__all__ = ["JS", "LK", "LQ", "MS", "RS", "RT", "SC", "Store"]

T = TypeVar("T")

_TABLES = sa.MetaData()


def _amounts(prefix: str) -> list[sa.Column[Any]]:
    return [sa.Column(prefix + name, sa.BigInteger, nullable=False) for name in ("vcore", "mem", "gmem", "places")]


RS = sa.Table(
    "hrm_rs",
    _TABLES,
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
    _TABLES,
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
    _TABLES,
    sa.Column("job_id", sa.String, primary_key=True),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("scheduler", sa.String),
    sa.Column("start", sa.Float, nullable=False),
    sa.Column("stages", sa.Integer, nullable=False),
    sa.Column("tasks", sa.Integer, nullable=False),
    sa.Column("open", sa.Integer, nullable=False),
    sa.Column("held", sa.Integer, nullable=False),
    sa.Column("done", sa.Integer, nullable=False),
)
"""Jobs: whose they are, and how many of their tasks are where."""

MS = sa.Table(
    "hrm_ms",
    _TABLES,
    sa.Column("machine_id", sa.String, primary_key=True),
    sa.Column("seen", sa.Float, nullable=False),
    sa.Column("alive", sa.Integer, nullable=False),
)
"""Machines and their last heartbeats."""

SC = sa.Table(
    "hrm_sc",
    _TABLES,
    sa.Column("scheduler", sa.String, primary_key=True),
    sa.Column("seen", sa.Float, nullable=False),
    sa.Column("alive", sa.Integer, nullable=False),
)
"""Schedulers and their last heartbeats."""

LK = sa.Table(
    "hrm_lk",
    _TABLES,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("next", sa.BigInteger, nullable=False),
)
"""The lock's ticket machine."""

LQ = sa.Table(
    "hrm_lq",
    _TABLES,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("ticket", sa.BigInteger, primary_key=True),
    sa.Column("owner", sa.String, nullable=False),
    sa.Column("until", sa.Float, nullable=False),
)
"""Who holds or awaits the lock: the smallest ticket that has not expired."""

_TRANSIENT = {"40001", "40P01", "55P03"}
"""PostgreSQL: serialization failure, deadlock, lock not available."""


class Store:
    """The shared state's tables, and transactions on them.

    Parameters
    ----------
    url : str
        ``"sqlite://"`` keeps them in this process; ``"sqlite:///state.db"`` in a file that processes of this machine
        share; ``"postgresql://user@host:port/name"`` on a server that machines share.
    patience : float
        Seconds for which a transaction that others are in the way of is tried again.

    Raises
    ------
    InputError
        The URL is neither.
    """

    def __init__(self, url: str = "sqlite://", patience: float = 60.0) -> None:
        try:
            parsed = sa.make_url(url)
        except sa.exc.ArgumentError:
            raise InputError(f"url: sqlite://, sqlite:///FILE or postgresql://... expected, got {url!r}") from None
        self.url = url
        self.patience = patience
        self.dialect = parsed.get_backend_name()
        # One connection is all there is to a database in memory, so threads take turns.
        self._guard: AbstractContextManager[Any] = nullcontext()
        if self.dialect == "sqlite":
            self._memory = parsed.database in (None, "", ":memory:")
            self.engine = sa.create_engine(
                parsed,
                poolclass=sa.pool.StaticPool if self._memory else sa.pool.NullPool,
                connect_args={"timeout": patience, "check_same_thread": False},
            )
            if self._memory:
                self._guard = threading.RLock()
            sa.event.listen(self.engine, "connect", _prepare_sqlite)
        elif self.dialect == "postgresql":
            self._memory = False
            self.engine = sa.create_engine(parsed.set(drivername="postgresql+psycopg"), pool_size=2)
        else:
            raise InputError(f"url: sqlite or postgresql expected, got {parsed.drivername!r}")
        self.transact(lambda db: _TABLES.create_all(db))

    def __reduce__(self) -> tuple[Any, ...]:
        if self._memory:
            raise InputError("a store in this process cannot be sent to another: use a file or a server")
        return Store, (self.url, self.patience)

    def transact(self, work: Callable[[sa.Connection], T]) -> T:
        """Do something in one transaction that may write: all of it happens or nothing.

        Parameters
        ----------
        work : callable
            Called with the connection; again after a deadlock or while the database is locked, so it should change
            nothing else.
        """
        deadline = time.monotonic() + self.patience
        while True:
            try:
                return self._once(work, "BEGIN IMMEDIATE")
            except DBAPIError as error:
                if time.monotonic() > deadline or not self._transient(error):
                    raise
            time.sleep(random.uniform(0.001, 0.02))

    def read(self, work: Callable[[sa.Connection], T]) -> T:
        """Look at one consistent state."""
        return self._once(work, "BEGIN")

    def _once(self, work: Callable[[sa.Connection], T], begin: str) -> T:
        with self._guard, self.engine.connect() as db:
            if self.dialect == "sqlite":
                # A reader that turns writer would be refused at once where others write: say so from the start.
                db.exec_driver_sql(begin)
            elif begin == "BEGIN":
                db = db.execution_options(isolation_level="REPEATABLE READ")
            result = work(db)
            db.commit()
            return result

    def _transient(self, error: DBAPIError) -> bool:
        state = getattr(error.orig, "sqlstate", None)
        return state in _TRANSIENT or "database is locked" in str(error.orig)

    def lock_rows(self, query: sa.Select[Any], skip: bool = False) -> sa.Select[Any]:
        """A query whose rows nobody else may change; SQLite's transactions are alone as it is."""
        return query.with_for_update(skip_locked=skip) if self.dialect == "postgresql" else query

    def clear(self) -> None:
        """Forget everything."""
        self.transact(lambda db: [db.execute(sa.delete(table)) for table in _TABLES.tables.values()])

    def close(self) -> None:
        """Close the connections."""
        self.engine.dispose()


def _prepare_sqlite(connection: Any, _: Any) -> None:
    # Transactions begin where `Store._once` says, not where the driver guesses.
    connection.isolation_level = None
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
