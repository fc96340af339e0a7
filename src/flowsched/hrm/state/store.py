"""The store of the shared state: in this process, in an SQLite file, or in PostgreSQL; see `schema` for its tables.

The cost of a transaction is its round trips and one wait for the disk.  So a change of many rows is one statement, with the
rows in one parameter (JSON, which both databases take apart): see `given`.

An exception of a driver becomes `StoreError`, with the name of the operation; no other error of a database reaches a caller.
A transaction that conflicts with others, or whose connection is lost, is tried again for `Store.patience` seconds, if it is
certain that nothing of it was done, or harmless to do it twice.  After a connection that was lost during the commit itself this
is not known, and the error says so.
A thread inside a transaction cannot begin another one, because it might wait for itself.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError

from flowsched.boundary import private
from flowsched.boundary.validate import masked, number, quoted
from flowsched.exceptions import ConcurrentUseError, FlowschedError, InputError, StoreError
from flowsched.hrm.address import address
from flowsched.hrm.state.schema import ADDED, LK, TABLES, UNITS_CHANGED

T = TypeVar("T")

_BUSY = {"40001", "40P01", "55P03"}
"""PostgreSQL: serialization failure, deadlock, lock not available."""

_LOST = {"57P01", "57P02", "57P03", "53300"}
"""PostgreSQL: the server shuts down, has crashed, is not up yet, or has too many connections (for a moment, after that)."""

_CREATION = 0x666C6F77
"""The advisory lock under which tables are made: `create_all` looks first, so two may want to make them."""


class _Attempt:
    """One try of a transaction; `committing` is True once its commit was sent."""

    committing = False


class _Named:
    """Scope that names the operation of this thread; the outermost name counts."""

    def __init__(self, thread: threading.local, operation: str) -> None:
        self._thread, self._operation = thread, operation

    def __enter__(self) -> None:
        self._outer = getattr(self._thread, "operation", None)
        self._thread.operation = self._outer or self._operation

    def __exit__(self, *_: object) -> None:
        self._thread.operation = self._outer


class Store:
    """The shared state's tables, and transactions on them; any number of threads may use one.

    Parameters
    ----------
    url : str
        ``"sqlite://"`` keeps them in this process; ``"sqlite:///state.db"`` in a file that processes of this machine
        share; ``"postgresql://user@host:port/name"`` on a server that machines share.
    patience : float
        Seconds for which a transaction that conflicts with others, or whose connection is lost, is tried again.  The first
        connection is not: a wrong address or password is an error at once.

    Attributes
    ----------
    dialect : {"sqlite", "postgresql"}
    outages : int
        Number of times that the connection was lost.

    Raises
    ------
    InputError
        The URL is neither.
    StoreError
        The database cannot be opened.
    """

    def __init__(self, url: str = "sqlite://", patience: float = 60.0) -> None:
        number("patience", patience, 0, finite=False)
        address("url", url)
        try:
            parsed = sa.make_url(url)
        except (sa.exc.ArgumentError, ValueError):
            raise InputError(f"url: an address of a database expected, got {quoted(url)}") from None
        self.url = url
        self.patience = patience
        self.outages = 0
        self._name = masked(url)
        self._thread = threading.local()
        self.dialect = parsed.get_backend_name()
        # A database in memory has one connection, so threads take turns.
        self._guard: AbstractContextManager[Any] = nullcontext()
        self._memory = self.dialect == "sqlite" and parsed.database in (None, "", ":memory:")
        if self.dialect == "sqlite":
            # While SQLite waits for the lock it sleeps longer and longer, up to a tenth of a second in which the file
            # may be free.  After `timeout` it gives up, and `_retry` begins with short sleeps again.
            arguments = {"timeout": 0.03, "check_same_thread": False}
            if self._memory:
                self.engine = sa.create_engine(parsed, poolclass=sa.pool.StaticPool, connect_args=arguments)
                self._guard = threading.RLock()
            else:
                _make_file(str(parsed.database))
                self.engine = sa.create_engine(parsed, connect_args=arguments, pool_timeout=patience)
            sa.event.listen(self.engine, "connect", _prepare_sqlite)
            self._single = self._several = self.engine
        elif self.dialect == "postgresql":
            self.engine = sa.create_engine(parsed.set(drivername="postgresql+psycopg"), pool_timeout=patience)
            self._single = self.engine.execution_options(isolation_level="AUTOCOMMIT")
            self._several = self.engine.execution_options(isolation_level="REPEATABLE READ")
        else:
            raise InputError(f"url: sqlite or postgresql expected, got {parsed.drivername!r}")
        with self.named("Store"):
            self._retry(lambda once: self._once(self.engine, self._create, "BEGIN IMMEDIATE", once), first=True)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._memory:
            raise InputError("a store in this process cannot be sent to another: use a file or a server")
        return Store, (self.url, self.patience)

    @property
    def address(self) -> str | None:
        """The URL without a password; None for a store in this process."""
        return None if self._memory else self._name

    def _create(self, db: sa.Connection) -> None:
        if self.dialect == "postgresql":
            db.execute(sa.select(sa.func.pg_advisory_xact_lock(_CREATION)))
        TABLES.create_all(db)
        for column in ADDED:
            table = column.table.name
            if column.name not in {known["name"] for known in sa.inspect(db).get_columns(table)}:
                kind = column.type.compile(self.engine.dialect)
                db.exec_driver_sql(f"ALTER TABLE {table} ADD COLUMN {column.name} {kind}")

    # -- transactions -------------------------------------------------------------------------------------------

    def named(self, operation: str) -> AbstractContextManager[None]:
        """Name the operation in errors that are raised within."""
        return _Named(self._thread, operation)

    def transact(self, work: Callable[[sa.Connection], T], *, twice: bool = False) -> T:
        """Do work in one transaction that may write: all of it happens or nothing.

        Parameters
        ----------
        work : callable
            Called with the connection; again after a deadlock, while the database is locked, or when the connection was
            lost, so it should change nothing else.
        twice : bool
            It may be done twice: then it is tried again also if the commit may have happened.

        Raises
        ------
        StoreError
            The database failed, or could not be reached within `patience`.
        ConcurrentUseError
            This thread is inside a transaction on this store.
        """
        # SQLite refuses a reader that becomes a writer while others write, so the transaction begins as a writer.
        return self._retry(lambda once: self._once(self.engine, work, "BEGIN IMMEDIATE", once), twice=twice)

    def read(self, work: Callable[[sa.Connection], T]) -> T:
        """Do work that only reads, on one consistent state."""
        return self._retry(lambda once: self._once(self._several, work, "BEGIN", once), twice=True)

    def look(self, query: sa.Select[Any], **parameters: Any) -> Sequence[sa.Row[Any]]:
        """Return the rows of a single query, which is consistent in itself."""

        def ask(_: _Attempt) -> Sequence[sa.Row[Any]]:
            with self._guard, self._single.connect() as db:
                return db.execute(query, parameters).all()

        return self._retry(ask, twice=True)

    def _once(self, engine: sa.Engine, work: Callable[[sa.Connection], T], begin: str, attempt: _Attempt) -> T:
        with self._guard, engine.connect() as db:
            if self.dialect == "sqlite":
                db.exec_driver_sql(begin)
            result = work(db)
            attempt.committing = True
            db.commit()
            return result

    def _retry(self, once: Callable[[_Attempt], T], *, twice: bool = False, first: bool = False) -> T:
        if getattr(self._thread, "inside", False):
            raise ConcurrentUseError("Store: used while this thread is inside a transaction on it")
        try:
            self._thread.inside = True
            deadline, pause = time.monotonic() + self.patience, 0.02
            while True:
                attempt = _Attempt()
                try:
                    return once(attempt)
                except FlowschedError:
                    raise
                except (SQLAlchemyError, self.engine.dialect.loaded_dbapi.Error, OverflowError, UnicodeError) as error:
                    cause = getattr(error, "orig", None) or error
                    lost, busy = self._is_lost(error, cause), self._is_busy(cause)
                    self.outages += lost
                    unknown = lost and attempt.committing and not twice
                    if unknown or not (busy or (lost and not first)) or time.monotonic() > deadline:
                        raise self._error(cause, unknown) from error
                if lost:
                    time.sleep(random.uniform(pause / 2, pause))
                    pause = min(2 * pause, 0.5)
                else:
                    time.sleep(random.uniform(0.0, 0.002))
        finally:
            self._thread.inside = False

    def _is_lost(self, error: Exception, cause: object) -> bool:
        """Return True if there is no connection: none could be made, or it broke."""
        if self.dialect == "sqlite":
            return False
        state = getattr(cause, "sqlstate", None)
        broken = bool(getattr(error, "connection_invalidated", False))
        # A connection that was not made has no state, because no server has spoken.
        return broken or state in _LOST or (state is None and isinstance(error, sa.exc.OperationalError))

    def _is_busy(self, cause: object) -> bool:
        return getattr(cause, "sqlstate", None) in _BUSY or "database is locked" in str(cause)

    def _error(self, cause: BaseException, unknown: bool) -> StoreError:
        lines = str(cause).strip().splitlines()
        why = lines[0] if lines else type(cause).__name__
        operation = getattr(self._thread, "operation", None) or "a transaction"
        after = "; it may have been done, because the connection was lost during its commit" if unknown else ""
        return StoreError(f"{operation}: {self._name}: {masked(why)}{after}", unknown)

    # -- within a transaction -----------------------------------------------------------------------------------

    def lock_rows(self, query: sa.Select[Any], *, skip: bool = False, shared: bool = False) -> sa.Select[Any]:
        """Lock the rows of a query against other transactions; SQLite's are exclusive anyway."""
        return query.with_for_update(skip_locked=skip, read=shared) if self.dialect == "postgresql" else query

    def change(
        self, db: sa.Connection, statement: sa.Update, rows: Sequence[Mapping[str, Any]], key: sa.Column[Any] | None
    ) -> Sequence[sa.Row[Any]]:
        """Execute a statement on rows that are `given`; return its rows.

        Parameters
        ----------
        key : Column or None
            The statement's key, by which the rows are locked first, in order; None if they already are.
        """
        if not rows:
            return ()
        if key is not None and len(rows) > 1 and self.dialect == "postgresql":
            db.execute(_locking(key), {"ids": packed(row["id"] for row in rows)})
        found = db.execute(statement, {"rows": packed(rows)})
        return found.all() if found.returns_rows else ()

    def count_up(self, db: sa.Connection, name: str) -> int:
        """Return the next number of a counter, from 1; the counter is locked until the transaction ends."""
        return int(db.execute(_counting(self.dialect), {"name": name}).scalar_one())

    # -- the whole ----------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Delete everything but the counters, so that later versions and tickets differ from earlier ones."""

        def work(db: sa.Connection) -> None:
            for table in TABLES.tables.values():
                if table is not LK:
                    db.execute(sa.delete(table))
            self.count_up(db, UNITS_CHANGED)

        with self.named("Store.clear"):
            self.transact(work)

    def close(self) -> None:
        """Close the connections."""
        self.engine.dispose()


def packed(values: Iterable[Any]) -> str:
    """Return rows for `given`, or ids for `among`, as their parameter."""
    return json.dumps(list(values))


@cache
def given(dialect: str, key: sa.Column[Any], **columns: type[sa.types.TypeEngine[Any]]) -> tuple[Any, list[Any]]:
    """Return the rows that a statement takes as its parameter ``rows``, packed, and the conditions of their join.

    They are joined to the table of this key, which each row has as ``id``; `columns` are SQLAlchemy types by name.
    """
    types: dict[str, Any] = {"id": sa.String, **columns}
    text = sa.bindparam("rows", type_=sa.Text)
    if dialect == "sqlite":
        each = sa.func.json_each(text).table_valued("value")
        parts = [
            sa.func.json_extract(each.c.value, f"$.{name}", type_=kind).label(name) for name, kind in types.items()
        ]
        rows: Any = sa.select(*parts).subquery("given")
        return rows, [key == rows.c.id]
    document = sa.cast(text, sa.JSON)
    told = [sa.column(name, kind) for name, kind in types.items()]
    rows = sa.func.json_to_recordset(document).table_valued(*told, name="given").render_derived(with_types=True)
    # The condition stands twice, because the server would overestimate these rows and read the whole table.
    ids = sa.func.json_to_recordset(document).table_valued(sa.column("id", sa.String), name="ids")
    few = sa.select(ids.render_derived(with_types=True).c.id).scalar_subquery()
    return rows, [key == rows.c.id, key == sa.any_(sa.func.array(few))]


@cache
def among(dialect: str, key: sa.Column[Any]) -> sa.ColumnElement[bool]:
    """Return the condition that a column is one of the ids in the statement's parameter ``ids``, packed."""
    text = sa.bindparam("ids", type_=sa.Text)
    if dialect == "sqlite":
        return key.in_(sa.select(sa.func.json_each(text).table_valued("value").c.value))
    ids = sa.func.json_array_elements_text(sa.cast(text, sa.JSON)).table_valued("value").c.value
    return key == sa.any_(sa.func.array(sa.select(ids).scalar_subquery()))


@cache
def _locking(key: sa.Column[Any]) -> sa.Select[Any]:
    return sa.select(key).where(among("postgresql", key)).order_by(key).with_for_update()


@cache
def _counting(dialect: str) -> Any:
    new = (sqlite if dialect == "sqlite" else postgresql).insert(LK).values(name=sa.bindparam("name"), next=1)
    return new.on_conflict_do_update(index_elements=[LK.c.name], set_={"next": LK.c.next + 1}).returning(LK.c.next)


def _make_file(name: str) -> None:
    """Make the file of a database, for its owner alone; the database's other files get its permissions."""
    path = Path(name)
    if not name.startswith("file:"):
        private.check_place("url", path)
        with suppress(OSError):  # it is there, and an open descriptor would end locks; or the database says why not
            os.close(private.opener(name, os.O_RDWR | os.O_CREAT | os.O_EXCL))


def _prepare_sqlite(connection: Any, _: Any) -> None:
    # Transactions begin in `Store._once`, not where the driver would begin them.
    connection.isolation_level = None
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
