"""The database of a scheduler: an SQLite file with one row for each call, in a chain of checksums.

The table ``calls`` is only ever appended to, and one transaction has all rows of one call.  Its columns:

=======  ===========================================================================================================
n        1, 2, 3 ...: the *record* that errors name
kind     of the call; see `flowsched.journal.journal`
time     of a round and of its commit, in the unit of the events
body     the call as JSON
extra    its effects as JSON: the runs that began or ended, or the reasons for waiting
request  key, digest, number of events before it, and in it, of a request to the service
image    accounts of share providers
chain    CRC-32 of the row, continued from the row before; a checkpoint begins a chain
=======  ===========================================================================================================

The table ``checkpoints`` has the state at the last row of kind ``state``, in parts.  Rows before that one are history:
recovery does not read them.  Views name the contents for queries; see `flowsched.journal.views`.

Rules of a store that is open for appending:

* Database, number and chain advance together, or the store is *failed*.  It counts as failed from before a transaction
  until after its end, whatever exception ends the call.  A failed store takes nothing more.
* The process that opened it writes, and no other.  A forked child has it closed, and never runs SQLite's code on it.
* The files are those that the paths named when it was opened.  Before the next call a store notices that a file was
  moved, removed, replaced or cut by others, and fails.
* No plain file is opened on a database: closing it would drop SQLite's locks.  The lock of the store is another file.

The write-ahead log (WAL) is emptied by each checkpoint of SQLite, so only a part that was never acknowledged is
incomplete there.  SQLite takes the rest of a WAL from the first damaged frame on for such a part.  So `check_wal` reads
it first, and distinguishes damage from an unfinished write.  The table ``written`` has the number of the last row in the database
itself, without the WAL: fewer rows are damage, too.
"""

from __future__ import annotations

import ctypes
import os
import re
import sqlite3
import stat
import struct
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn
from urllib.parse import quote
from weakref import WeakSet
from zlib import crc32

import numpy as np

from flowsched.boundary import private
from flowsched.boundary.lock import Lock
from flowsched.exceptions import CorruptJournalError, InputError, JournalError, JournalMismatchError
from flowsched.journal.tables import Damaged, about_of, is_file
from flowsched.journal.views import views

FORMAT = 4
_APPLICATION = 0x666C7363
_LOG = b"flowsched log "
_TABLES = {
    "calls": "CREATE TABLE calls (n INTEGER PRIMARY KEY, kind TEXT NOT NULL, time REAL, body TEXT NOT NULL,"
    " extra TEXT, request TEXT, image BLOB, chain INTEGER NOT NULL)",
    "checkpoints": "CREATE TABLE checkpoints (part INTEGER PRIMARY KEY, data BLOB NOT NULL)",
    "written": "CREATE TABLE written (last INTEGER NOT NULL)",
    "requests": "CREATE INDEX requests ON calls (n) WHERE request IS NOT NULL",
}
_INSERT = "INSERT INTO calls VALUES (?,?,?,?,?,?,?,?)"
_WRITTEN = "UPDATE written SET last = ?"
_INSERT_TWO = f"{_INSERT},(?,?,?,?,?,?,?,?)"
_SELECT = "SELECT n, kind, time, body, extra, request, image, chain FROM calls WHERE n >= ? ORDER BY n"
_TYPES = (str, float | None, str, str | None, str | None, bytes | None)
_PART = 1 << 24
_PAGE = 2048
"""Bytes of a page: a small one costs less of the WAL for each call."""
_WAL_LIMIT = 4 << 20
_PATIENCE = 5.0
_FORKED = "belongs to the process that this one was forked from"
_TORN = (
    "a call was being written when an exception ended it, so the scheduler is ahead of it; start again from the journal"
)


class Row(NamedTuple):
    """A call, without its number and checksum."""

    kind: str
    body: str
    time: float | None = None
    extra: str | None = None
    request: str | None = None
    image: bytes | None = None


def _linked(n: int, row: Row, chain: int) -> int:
    """Return the checksum of a row after that of the row before."""
    text = f"{n}\0{row.kind}\0{row.time!r}\0{row.body}\0{row.extra}\0{row.request}"
    chain = crc32(text.encode("ascii", "backslashreplace"), 0 if row.kind == "state" else chain)
    return chain if row.image is None else crc32(row.image, chain)


# -- reading --------------------------------------------------------------------------------------------------------


class Records:
    """The rows of a database from its last checkpoint on; iterating checks and gives numbers and rows.

    `n` and `chain` are those of the last row read, 0 before the first one.
    """

    def __init__(self, connection: sqlite3.Connection, path: str, *, whole: bool = False) -> None:
        self._connection, self._path, self._whole = connection, path, whole
        self.n = self.chain = 0

    def __iter__(self) -> Iterator[tuple[int, Row]]:
        self.n = self.chain = 0
        with reported(self._path, self):
            found = self._connection.execute("SELECT n FROM calls WHERE kind = 'state' ORDER BY n DESC LIMIT 1")
            first = None if self._whole else found.fetchone()
            expected = None if first is None else first[0]
            for n, kind, time, body, extra, request, image, chain in self._connection.execute(
                _SELECT, (expected or 0,)
            ):
                row = Row(kind, body, time, extra, request, image)
                right = all(
                    isinstance(value, type)
                    for value, type in zip((kind, time, body, extra, request, image), _TYPES, strict=True)
                )
                begins = not self.n and (kind == "state" or n == 1)
                dropped = not self.n and not begins and self._whole  # history before it, and with that its checksum
                if not right or not (begins or dropped or (self.n and n == self.n + 1)):
                    self._damaged("the call after it is missing or is no call")
                follows = kind != "state" or not self.n or body.endswith(f",{self.chain}]")
                if not dropped and (not follows or _linked(n, row, self.chain) != chain):
                    self._damaged("the call does not agree with its checksum", n)
                self.n, self.chain = n, chain
                yield n, row
            written = self._connection.execute("SELECT last FROM written").fetchall()
            if len(written) != 1 or type(written[0][0]) is not int or written[0][0] > self.n:
                self._damaged("calls after it are missing")

    def _damaged(self, what: str, n: int | None = None) -> NoReturn:
        raise CorruptJournalError(what, self._path, self.n if n is None else n)

    def checkpoint(self) -> bytes:
        """Return the state that the last checkpoint wrote."""
        with reported(self._path, self):
            parts = [part for (part,) in self._connection.execute("SELECT data FROM checkpoints ORDER BY part")]
        if not all(isinstance(part, bytes) for part in parts):
            self._damaged("the checkpoint is damaged")
        return parts[0] if len(parts) == 1 else b"".join(parts)


@contextmanager
def reported(path: str, records: Records | None = None) -> Iterator[None]:
    """Report an error of SQLite as one of the file."""
    try:
        yield
    except _ERRORS as error:
        at = 0 if records is None else records.n
        outside = isinstance(error, sqlite3.OperationalError) and any(word in str(error) for word in _OUTSIDE)
        raise (JournalError if outside else CorruptJournalError)(f"cannot be read: {error}", path, at) from error


_OUTSIDE = "locked", "unable to open", "I/O", "readonly", "full"
"""Words of errors that are none of the contents."""


class Snapshot:
    """The one row of a snapshot, which is a checkpoint alone."""

    n = 0
    chain = 0

    def __init__(self, data: bytes | memoryview, path: str) -> None:
        self._data, self._path = memoryview(data), path

    def __iter__(self) -> Iterator[tuple[int, Row]]:
        try:
            body = about_of(self._data)["row"]
        except Damaged as error:
            raise CorruptJournalError(str(error), self._path, 0) from None
        except (LookupError, TypeError, ValueError, RecursionError) as error:
            raise JournalMismatchError(f"no snapshot: {error!r}", self._path, 0) from None
        self.n = 1
        yield 1, Row("state", str(body))

    def checkpoint(self) -> memoryview:
        """Return the state."""
        return self._data


@contextmanager
def reading(source: bytes | str | os.PathLike[str], *, whole: bool = False) -> Iterator[Records | Snapshot]:
    """Open a database or a snapshot, or the bytes of one, for reading only; with all of its history if `whole`."""
    path = "" if isinstance(source, bytes) else os.fspath(source)
    if isinstance(source, bytes) and is_file(source[:_FRONT]):
        yield Snapshot(source, path)
        return
    connection = _in_memory(source) if isinstance(source, bytes) else _read_only(Path(source), path)
    if isinstance(connection, bytes):
        yield Snapshot(connection, path)
        return
    try:
        if not _prepared(connection, path):
            raise JournalMismatchError("nothing is in it", path, 0)
        with reported(path):
            connection.execute("BEGIN")  # one state of it, whatever is written meanwhile
        yield Records(connection, path, whole=whole)
    finally:
        connection.close()


@contextmanager
def opened_plain(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a regular file that is no database; others may be endless, or wait for ever."""
    name = os.fspath(path)
    try:
        _check_regular(Path(path), name)
        file = open(path, "rb")  # noqa: SIM115, since the caller's own errors are none of opening it
    except (OSError, ValueError) as error:
        raise JournalError(f"cannot be opened: {_why(error)}", name) from error
    with file:
        yield file


def is_database(path: Path) -> bool:
    """Return True if SQLite takes a file for a database; no lock of it is lost."""
    connection = sqlite3.connect(f"file:{quote(os.path.realpath(path))}?mode=ro&immutable=1", uri=True)
    try:
        connection.execute("PRAGMA schema_version").fetchone()
    except sqlite3.Error as error:
        return "not a database" not in str(error)
    finally:
        connection.close()
    return True


def _in_memory(data: bytes) -> sqlite3.Connection:
    if not data:
        raise JournalMismatchError("nothing is in it", "", 0)
    _check_front(data[:_FRONT], "")
    connection = _connected(":memory:")
    try:
        with reported(""):
            connection.deserialize(data[:18] + b"\1\1" + data[20:])  # in memory there is no WAL
    except BaseException:
        connection.close()
        raise
    return connection


_SQLITE = b"SQLite format 3\0"
_FRONT = 256
"""Bytes that distinguish all formats."""
_OLD = b"flowsched snapshot "


def _check_front(front: bytes, path: str) -> None:
    if front.startswith(_LOG):
        raise JournalMismatchError(
            "a journal of an earlier release; `flowsched journal import` makes a database of it", path, 0
        )
    if front.startswith(_OLD):
        version = re.search(rb'"version": ?"([\w.]+)"', front)
        raise JournalMismatchError(
            f"a snapshot that only flowsched {version[1].decode() if version else 'of that time'} reads, as it was then; "
            "its `export` writes a state for all later ones", path, 0,
        )  # fmt: skip
    if not front[: len(_SQLITE)] or not _SQLITE.startswith(front[: len(_SQLITE)]):
        raise JournalMismatchError("not a journal or snapshot, or one in another format", path, 0)


def _read_only(path: Path, name: str) -> sqlite3.Connection | bytes:
    """Open a database, or return the bytes of a snapshot."""
    real = _real(path)
    try:
        _check_regular(real, name)
    except FileNotFoundError as error:
        raise JournalError(f"cannot be opened: {_why(error)}", name) from error
    try:
        check_wal(real, name)
    except CorruptJournalError:
        with _locked(real):  # refused while the store is open: then it was written in the meantime
            check_wal(real, name)
    if not any(os.path.exists(f"{real}{end}") and os.path.getsize(f"{real}{end}") for end in ("", "-wal")):
        raise JournalMismatchError("nothing is in it", name, 0)
    modes = ["mode=ro"] if os.path.exists(f"{real}-wal") else ["mode=ro", "immutable=1"]
    for mode in modes:  # the second where no file can be made next to it
        try:
            return _connected(f"file:{quote(str(real))}?{mode}")
        except _ERRORS as error:
            failed = error
    if "not a database" in str(failed):
        with opened_plain(real) as file:  # SQLite has no lock on what is no database
            if is_file(file.read(_FRONT)):
                file.seek(0)
                return file.read()
    raise _refusal(failed, real, name)


def _refusal(error: Exception, path: Path, name: str) -> JournalError:
    """Return the error for a file that SQLite does not open."""
    if "not a database" in str(error):
        with open(path, "rb") as file:  # SQLite has no lock on what is no database
            _check_front(file.read(_FRONT), name)
    outside = isinstance(error, sqlite3.OperationalError)
    kind = JournalError if outside else CorruptJournalError
    return kind(f"cannot be opened: {error}", name, 0)


def _connected(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        uri, timeout=_PATIENCE, isolation_level=None, check_same_thread=False, uri=uri.startswith("file:")
    )
    try:
        for setting in ("trusted_schema=OFF", "cell_size_check=ON", "mmap_size=0", "synchronous=NORMAL"):
            connection.execute(f"PRAGMA {setting}")
        if uri.startswith("file:"):
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


_ERRORS = sqlite3.Error, OverflowError, UnicodeError
"""Errors of SQLite; a damaged name in a message is no text."""


def _prepared(connection: sqlite3.Connection, path: str) -> bool:
    """Check that a database is a journal in this format; return False if it is empty."""
    with reported(path):
        known = connection.execute("SELECT name, type, CAST(sql AS BLOB) FROM sqlite_master").fetchall()
        ((application,),) = connection.execute("PRAGMA application_id")
        ((version,),) = connection.execute("PRAGMA user_version")
    if not known and not application and not version:
        return False
    if application != _APPLICATION:
        raise JournalMismatchError("a database of another program", path, 0)
    if version != FORMAT:
        raise JournalMismatchError(f"in format {version}, which another version of flowsched reads", path, 0)
    there = {name: sql for name, _, sql in known}
    if any(there.get(name) != sql.encode() for name, sql in _TABLES.items()) or any(
        kind == "trigger" for _, kind, _ in known
    ):
        raise CorruptJournalError("its tables are not those of a journal", path, 0)
    return True


def _made(connection: sqlite3.Connection, resources: Sequence[str]) -> None:
    """Make the tables and views, within a transaction."""
    for sql in _TABLES.values():
        connection.execute(sql)
    _make_views(connection, resources)
    connection.execute(f"PRAGMA application_id={_APPLICATION}")
    connection.execute(f"PRAGMA user_version={FORMAT}")
    connection.execute("INSERT INTO written VALUES (0)")


def _make_views(connection: sqlite3.Connection, resources: Sequence[str]) -> None:
    """Make the views that are missing, damaged or of another version."""
    there = dict(connection.execute("SELECT name, CAST(sql AS BLOB) FROM sqlite_master").fetchall())
    for name, sql in views(resources).items():
        if there.get(name) != sql.encode():
            connection.execute(f"DROP VIEW IF EXISTS {name}")
            connection.execute(sql)


# -- the write-ahead log --------------------------------------------------------------------------------------------

_WAL_HEAD, _FRAME_HEAD = struct.Struct(">8I"), struct.Struct(">6I")
_MAGIC = 0x377F0682


def check_wal(path: Path, name: str) -> None:
    """Raise CorruptJournalError if SQLite would leave out acknowledged frames of a WAL, since they are damaged.

    A frame that does not agree with its checksum is an unfinished write if the file ends within it, if a part of it
    is all zeros that was to be written (power failed before that), or if older frames follow; but never if one bit
    explains the difference.
    """
    try:
        _check_regular(Path(f"{path}-wal"), name)
        file = open(f"{path}-wal", "rb")  # noqa: SIM115, closed below; SQLite holds no lock on a WAL
    except (FileNotFoundError, JournalError):
        return
    with file:
        front = file.read(_WAL_HEAD.size)
        if len(front) < _WAL_HEAD.size or not any(front):
            return
        magic, _, size, _, salt1, salt2, *stored = _WAL_HEAD.unpack(front)
        order = ">u4" if magic & 1 else "<u4"
        ((d0, d1),) = _sums(np.frombuffer(front[:24], order)[None], _powers(3))
        if [d0, d1] != stored or magic | 1 != _MAGIC | 1 or not 512 <= size <= 65536:
            raise CorruptJournalError("the head of the write-ahead log is damaged", name, 0)
        powers, frame, at = _powers((size + 8) // 8), _FRAME_HEAD.size + size, _WAL_HEAD.size
        (a, b), (c, d) = powers[0].tolist()
        s0, s1 = d0, d1
        while data := file.read(frame * max(_WAL_LIMIT // frame, 1)):
            whole = len(data) // frame
            raw = np.frombuffer(data, np.uint8, whole * frame).reshape(whole, frame)
            words = np.concatenate((raw[:, :8], raw[:, 24:]), axis=1).view(order)
            for i, (d0, d1) in enumerate(_sums(words, powers)):
                s0, s1 = (a * s0 + b * s1 + d0) % 2**32, (c * s0 + d * s1 + d1) % 2**32
                _, _, *known = _FRAME_HEAD.unpack_from(data, i * frame)
                if known != [salt1, salt2, s0, s1]:
                    there = data[i * frame : (i + 1) * frame]
                    flipped = _is_flip(np.subtract(known, [salt1, salt2, s0, s1]), powers)
                    old = (known[0] != salt1 and known[1] != salt2) or _is_old(data[(i + 1) * frame :], salt1, salt2)
                    border = -(at + i * frame) % 4096  # of a page of the file
                    head = _FRAME_HEAD.size  # is written on its own
                    parts = [part for part in (there[:border], there[border:], there[:head], there[head:]) if part]
                    unfinished = old or not all(map(any, parts))
                    if flipped or not unfinished:
                        raise CorruptJournalError(f"byte {at + i * frame} of the write-ahead log is damaged", name, 0)
                    return
            at += whole * frame


def _powers(count: int) -> Any:
    """Return the powers of a step of SQLite's checksum, the matrix [[1, 1], [1, 2]]; the highest first."""
    found, power = [], np.eye(2, dtype=np.uint32)
    for _ in range(count + 1):
        found.append(power)
        power = power @ np.array([[1, 1], [1, 2]], np.uint32)
    return np.array(found[::-1])


def _sums(words: Any, powers: Any) -> list[list[int]]:
    """Return the checksums of rows of words, each as if it were the first."""
    pairs = words.astype(np.uint32).reshape(len(words), words.shape[1] // 2, 2)
    steps = pairs.cumsum(axis=2, dtype=np.uint32)  # a pair x, y adds x and x + y
    sums: list[list[int]] = np.einsum("ijk,jlk->il", steps, powers[1:]).tolist()
    return sums


def _is_flip(difference: Any, powers: Any) -> bool:
    """Return True if one bit explains the difference of salts and checksums."""
    salt1, salt2, s0, s1 = (int(one) % 2**32 for one in difference)
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    signed = np.concatenate((bits, -bits))
    if salt1 or salt2 or not s0 or not s1:
        return sum(one != 0 for one in (salt1, salt2, s0, s1)) == 1 and bool(
            (signed == (salt1 or salt2 or s0 or s1)).any()
        )
    for effect in (
        powers[1:].sum(axis=2, dtype=np.uint32),
        powers[1:, :, 1],
    ):  # of the first word of a pair, the second
        moved = effect[:, :, None] * signed
        if ((moved[:, 0] == s0) & (moved[:, 1] == s1)).any():
            return True
    return False


def _is_old(rest: bytes, salt1: int, salt2: int) -> bool:
    """Return True if frames begin with those of an earlier WAL."""
    if len(rest) < _FRAME_HEAD.size:
        return False
    _, _, one, two, *_ = _FRAME_HEAD.unpack_from(rest)
    return bool(one != salt1 and two != salt2)


# -- writing --------------------------------------------------------------------------------------------------------


def serialized(resources: Sequence[str], rows: Iterable[Row], state: Sequence[bytes | memoryview] = ()) -> bytes:
    """Return the bytes of a new database with these rows, and a checkpoint in pieces."""
    connection = _connected(":memory:")
    try:
        with reported(""):
            connection.execute("BEGIN")
            _made(connection, resources)
            chain = 0
            for n, row in enumerate(rows, 1):
                chain = _linked(n, row, chain)
                connection.execute(_INSERT, _values(n, row, chain))
                connection.execute(_WRITTEN, (n,))
            _insert_checkpoint(connection, state)
            connection.execute("COMMIT")
            return connection.serialize()
    finally:
        connection.close()


def _values(n: int, row: Row, chain: int) -> tuple[Any, ...]:
    return n, row.kind, row.time, row.body, row.extra, row.request, row.image, chain


def _insert_checkpoint(connection: sqlite3.Connection, state: Sequence[bytes | memoryview]) -> None:
    whole = b"".join(state)
    view = memoryview(whole)
    for part, at in enumerate(range(0, len(view), _PART)):
        connection.execute("INSERT INTO checkpoints VALUES (?,?)", (part, view[at : at + _PART]))


class Store:
    """A database open for appending, by one process at a time.

    It is created if absent; a symbolic link is followed once, here.  A standby waits while another process has it open.
    """

    def __init__(self, path: Path, standby: bool = False) -> None:
        self._connection: sqlite3.Connection | None = None
        self._wal, self._failed, self._lost = -1, "", ""
        self.path = _real(path)
        self._name = str(self.path)
        self._n = self._chain = 0
        self._written = self._synced = 0
        self._turn = threading.Lock()
        self._process = os.getpid()
        self._wal_size = self._length = 0
        _check_place(self.path)
        self._lock = _locked(self.path, standby)
        _STORES.add(self)
        try:
            new = not self.path.exists()
            if not new:
                check_wal(self.path, self._name)
            self._connection = self._opened()
            if new:
                _sync_folder(self.path)
        except BaseException:
            self.close()
            raise

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise InputError(
            "a journal cannot be copied: it is the file's only writer (Scheduler.copy gives a copy without one)"
        )

    def _opened(self) -> sqlite3.Connection:
        if not self.path.exists():  # else this process may have a lock of SQLite on it, as a reader
            try:
                os.close(private.opener(self._name, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)))
            except OSError as error:
                raise JournalError(f"cannot be opened: {_why(error)}", self._name) from error
        try:
            connection = _connected(f"file:{quote(self._name)}?mode=rw")
        except _ERRORS as error:
            raise _refusal(error, self.path, self._name) from error
        try:
            self.new = not _prepared(connection, self._name)
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def closed(self) -> bool:
        """True once another process may have it."""
        return self._connection is None

    @property
    def size(self) -> int:
        """Length in bytes, with the write-ahead log."""
        size = 0
        for end in ("", "-wal"):
            with suppress(OSError):
                size += os.stat(self._name + end).st_size
        return size

    @property
    def failed(self) -> bool:
        """True if it takes nothing more."""
        return bool(self._failed)

    @property
    def n(self) -> int:
        """Number of the last row written."""
        return self._n

    @property
    def chain(self) -> int:
        """Checksum of the last row written."""
        return self._chain

    @property
    def connection(self) -> sqlite3.Connection:
        """The open connection."""
        self.check_open()
        assert self._connection is not None
        return self._connection

    def records(self) -> Records:
        """Return the rows from the last checkpoint on."""
        return Records(self.connection, self._name)

    def query(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with reported(self._name):
            return self.connection.execute(sql, values).fetchall()

    def begin(self, resources: Sequence[str], row: Row) -> None:
        """Make the tables of a new database, with views of these resources, and its first row.

        This does not go into a WAL, so no frame of a WAL is an empty page: see `check_wal`.
        """
        connection, chain = self.connection, _linked(1, row, 0)
        with reported(self._name):
            connection.execute(f"PRAGMA page_size={_PAGE}")
            connection.execute("BEGIN EXCLUSIVE")
            _made(connection, resources)
            connection.execute(_INSERT, _values(1, row, chain))
            connection.execute(_WRITTEN, (1,))
            connection.execute("COMMIT")
        self._n, self._chain = 1, chain
        self._start()

    def go_on(self, records: Records, resources: Sequence[str]) -> None:
        """Append from now on after the rows read."""
        self._n, self._chain = records.n, records.chain
        with reported(self._name, records):
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self.connection.execute("BEGIN IMMEDIATE")
            _make_views(self.connection, resources)
            self.connection.execute("COMMIT")
        self._start()

    def _start(self) -> None:
        with reported(self._name):
            ((mode,),) = self.connection.execute("PRAGMA journal_mode=WAL")
            if mode != "wal":
                raise JournalError(f"SQLite keeps no write-ahead log there ({mode})", self._name)
            for setting in ("wal_autocheckpoint=0", "journal_size_limit=0"):
                self.connection.execute(f"PRAGMA {setting}")
            self.connection.execute("SELECT n FROM calls LIMIT 1").fetchone()  # which makes the WAL
        self._wal = os.open(f"{self._name}-wal", os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
        self._files = _identity(os.stat(self._name)), _identity(os.fstat(self._wal))
        self._length = os.stat(self._name).st_size
        _sync_folder(self.path)

    def check(self) -> None:
        """Refuse to go on where a call could not be written, or would be lost; for before anything is changed.

        Raise JournalError if the store is closed, failed or of another process, or a file has been changed or replaced.
        """
        self.check_open()
        try:
            there, wal = os.stat(self._name), os.stat(self._name + "-wal")
            known = ((there.st_dev, there.st_ino), (wal.st_dev, wal.st_ino)) == self._files
        except OSError:
            known = False
        if not known or there.st_size < self._length:
            what = "was altered by others" if known else "was moved, removed or replaced"
            self._failed = f"{what} while it was in use; what is written from here on would be lost"
            raise JournalError(self._failed, self._name, self._n)
        self._wal_size = wal.st_size

    def check_open(self) -> None:
        """Refuse what `check` refuses, except for changed files."""
        if self._process != os.getpid():
            raise JournalError(_FORKED, self._name)
        if self._connection is None:
            raise JournalError("is closed", self._name)
        if self._failed:
            raise JournalError(self._failed, self._name, self._n)

    def append(self, rows: Sequence[Row]) -> None:
        """Write the rows of a call in one transaction; they survive the end of the process.  Callers `check` first.

        Raise JournalError if they could not be written; nothing more can be from now on.
        """
        connection = self.connection
        n, chain, values = self._n, self._chain, list[tuple[Any, ...]]()
        for row in rows:
            n += 1
            chain = _linked(n, row, chain)
            values.append(_values(n, row, chain))
        self._failed = _TORN
        try:
            if len(values) == 1:
                connection.execute(_INSERT, values[0])
            elif len(values) == 2:
                connection.execute(_INSERT_TWO, values[0] + values[1])
            else:
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany(_INSERT, values)
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._fail("written", error)
        self._n, self._chain, self._failed = n, chain, self._lost
        self._written += 1
        if self._wal_size > _WAL_LIMIT:
            self._empty_wal()

    def _empty_wal(self) -> None:
        """Move the WAL into the database; a reader may prevent that for now."""
        connection, self._wal_size = self.connection, 0
        self._failed = _TORN
        try:
            connection.execute(_WRITTEN, (self._n,))
            connection.execute("PRAGMA busy_timeout=0")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            connection.execute(f"PRAGMA busy_timeout={_PATIENCE * 1000:.0f}")
            self._length = os.stat(self._name).st_size
        except (sqlite3.Error, OSError) as error:
            self._fail("written", error)
        self._failed = self._lost

    def sync(self) -> None:
        """Wait until the rows written so far are on disk; calls of several threads share one wait.

        They survive a crash of the machine then.  Another thread may append meanwhile.
        """
        written = self._written
        with self._turn:
            if self._synced >= written:
                return
            if self._wal < 0 or self._lost:
                raise JournalError(self._lost or "is closed", self._name, self._n)
            written = self._written
            try:
                getattr(os, "fdatasync", os.fsync)(self._wal)
            except OSError as error:  # of which rows, is not known: another wait would not fail
                self._lost = self._failed = _failure("synced", error)
                raise JournalError(self._lost, self._name, self._n) from error
            self._synced = written

    def checkpoint(self, row: Row, state: Sequence[bytes | memoryview], since: float | None = None) -> None:
        """Begin a new chain with a state, as a whole or not at all; drop the history before the time `since`."""
        self.check()
        connection, n = self.connection, self._n + 1
        chain = _linked(n, row, 0)
        self._failed = _TORN
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("DELETE FROM checkpoints")
            _insert_checkpoint(connection, state)
            connection.execute(_INSERT, _values(n, row, chain))
            connection.execute(_WRITTEN, (n,))
            if since is not None:
                newer = "SELECT n FROM calls WHERE kind = 'round' AND time >= ? ORDER BY n LIMIT 1"
                first = connection.execute(newer, (since,)).fetchone()
                connection.execute("DELETE FROM calls WHERE n < ?", (n if first is None else first[0],))
            connection.execute("COMMIT")
        except BaseException as error:
            with suppress(sqlite3.Error):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                self._failed = self._lost
            if isinstance(error, sqlite3.Error):
                raise JournalError(f"could not be started anew: {error}", self._name) from error
            raise
        self._n, self._chain, self._failed = n, chain, self._lost
        self._written += 1
        self._empty_wal()

    def close(self) -> None:
        """Release the database for another process."""
        if self._wal >= 0 and not self._failed:
            with suppress(JournalError):
                self._empty_wal()
        with self._turn:
            wal, self._wal = self._wal, -1
            if wal >= 0:
                os.close(wal)
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        self._lock.close()

    def _abandon(self) -> None:
        """Leave the database to the parent process."""
        if self._connection is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))  # so that it is never closed
            self._connection = None
        self._turn = threading.Lock()
        self._lock.leave()
        wal, self._wal = self._wal, -1
        if wal >= 0:
            os.close(wal)

    def __del__(self) -> None:
        if hasattr(self, "_lock"):
            self.close()

    def _fail(self, what: str, error: sqlite3.Error | OSError) -> NoReturn:
        self._failed = _failure(what, error)
        raise JournalError(self._failed, self._name, self._n) from error


def _failure(what: str, error: Exception) -> str:
    return f"could not be {what} ({_why(error)}), so the scheduler is ahead of it; start again from the journal"


def _locked(path: Path, wait: bool = False) -> Lock:
    """Return the lock of a database: a file next to it, there while the database is open for appending."""
    try:
        return Lock(f"{path}-lock", wait)
    except BlockingIOError:
        raise JournalError("in use by another scheduler", str(path)) from None
    except OSError as error:
        raise JournalError(f"cannot be opened: {_why(error)}", str(path)) from error


_STORES: WeakSet[Store] = WeakSet()
"""All that are open in this process."""


def _close_in_child() -> None:
    """Close all stores in a forked child, without SQLite, which would take the parent's locks for its own."""
    for store in list(_STORES):
        store._abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


def _real(path: Path) -> Path:
    try:
        return Path(os.path.realpath(path))
    except (OSError, ValueError) as error:
        raise JournalError(f"cannot be opened: {_why(error)}", str(path)) from error


def _check_regular(path: Path, name: str) -> None:
    """Refuse what is no regular file: it may be endless, or wait for ever."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise JournalError("not a regular file", name)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise JournalError(f"cannot be opened: {_why(error)}", name) from error


def _check_place(path: Path) -> None:
    for end in ("", "-wal", "-shm", "-lock", "-journal"):
        with suppress(FileNotFoundError):
            _check_regular(Path(f"{path}{end}"), str(path))
        try:
            private.check_place("journal", Path(f"{path}{end}"))
        except InputError as error:
            raise JournalError(str(error), str(path)) from None


def _identity(status: os.stat_result) -> tuple[int, int]:
    """Return the device and inode of a file, which no other file has while this one is open."""
    return status.st_dev, status.st_ino


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _sync_folder(path: Path) -> None:
    """Wait until the names of the files are on the disk."""
    if sys.platform != "win32":
        fd = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
