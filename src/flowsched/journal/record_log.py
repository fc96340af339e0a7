"""A file of checksummed records, only ever appended to, that may be cut off at any byte.

Rules of a log that is open for appending:

* File, size and checksum chain advance together, or the log is *failed*.  It counts as failed from before the first
  write of `Log.append` until the last of the three has moved, whatever exception ends the call.  A failed log takes
  nothing more.
* The process that opened it writes, and no other: a forked child has it closed.
* The file is the one that the path named when it was opened.  Before the next record a log notices that its file was
  moved, removed, replaced or altered by others, and fails.

::

    file    = MAGIC record record ...
    record  = length u32 | checksum u32 | guard u32 | body       (little endian)

    checksum = CRC-32 of the body, continued from the checksum of the record before (from 0 for the first one)
    guard    = CRC-32 of length and checksum

A writer that is killed leaves a prefix of its last write.  A machine that loses power may leave sectors that were
never written, full of zeros, at the end.  Both are a *torn tail*: it was not acknowledged, and is cut.  Any other
record that does not agree with its checksums was written and is damaged: `CorruptJournalError`, also for the last one.
The guard makes the difference: a damaged length is not taken for a record that was cut off.
"""

from __future__ import annotations

import os
import stat
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NoReturn
from weakref import WeakSet
from zlib import crc32

from flowsched.boundary import private
from flowsched.exceptions import CorruptJournalError, InputError, JournalError, JournalMismatchError

MAGIC = b"flowsched log 2\n"
_OLDER = b"flowsched log 1\n"

Body = bytes | Sequence[bytes | memoryview]
"""A record's, or pieces of one: a state is large, and is copied once."""

_PAIR = struct.Struct("<II")
_HEAD = struct.Struct("<III")
_SECTOR = 512
_LONGEST = 2**32 - 1
_PIECE = 2**20
_TORN = (
    "a record was being written when an exception ended it, so the scheduler is ahead of it; "
    "start again from the journal"
)


def framed(bodies: Iterable[Body], chain: int = 0, front: bytes = b"") -> tuple[bytes, int]:
    """Return `front` and records with these bodies, and the checksum of the last one; `chain` is that of the record before."""
    parts: list[bytes | memoryview] = [front]
    for body in bodies:
        if isinstance(body, bytes):
            length, chain = len(body), crc32(body, chain)
        else:
            length = sum(map(len, body))
            for piece in body:
                chain = crc32(piece, chain)
        if length > _LONGEST:
            raise JournalError(f"a record of {length} bytes is too long; the limit is {_LONGEST}")
        pair = _PAIR.pack(length, chain)
        parts += (pair, crc32(pair).to_bytes(4, "little"))
        if isinstance(body, bytes):
            parts.append(body)
        else:
            parts += body
    return b"".join(parts), chain


class Reader:
    """The records of a log, in order: iterating gives their offsets and bodies.

    The file is at its beginning.  `end` and `chain` are the end of the last record read and its checksum, `torn` the
    number of bytes after the last record, once all are read.

    Raise JournalMismatchError if it is no log, or one of another format, and CorruptJournalError if a record is
    damaged.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file, self._name = file, name
        self.end = self.chain = self.torn = 0
        self._size = file.seek(0, os.SEEK_END)
        file.seek(0)

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        magic = self._file.read(len(MAGIC))
        if magic != MAGIC:
            # As a writer that was killed, or a machine that lost power, leaves it: no record was ever acknowledged.
            if MAGIC.startswith(magic) or (not magic.strip(b"\0") and not self._written()):
                self.torn = self._size
                return
            if magic == _OLDER:
                raise JournalMismatchError("in format 1, which only the version that wrote it reads", self._name, 0)
            raise JournalMismatchError("not a journal or snapshot, or one in another format", self._name, 0)
        self.end = len(MAGIC)
        while head := self._file.read(_HEAD.size):
            if len(head) < _HEAD.size:
                self.torn = len(head)
                return
            length, checksum, guard = _HEAD.unpack(head)
            if crc32(head[: _PAIR.size]) != guard:
                return self._damaged(len(head))
            if self.end + len(head) + length > self._size:  # before memory is taken for it
                self.torn = self._size - self.end
                return
            body = self._file.read(length)
            if crc32(body, self.chain) != checksum:
                return self._damaged(len(head) + length)
            yield self.end, body
            self.end += _HEAD.size + length
            self.chain = checksum

    def _damaged(self, length: int) -> None:
        """Take the rest for a torn tail, if nothing of the file was ever written from a sector on within the record."""
        self._file.seek(self.end)
        written = self._written()
        first = _SECTOR - self.end % _SECTOR
        sector = first + -(-max(written - first, 0) // _SECTOR) * _SECTOR
        if written and sector >= length:
            raise CorruptJournalError("the record does not agree with its checksum", self._name, self.end)
        self.torn = self._size - self.end

    def _written(self) -> int:
        """Return the length of the rest of the file without the zeros at its end; read piece by piece."""
        written = length = 0
        while piece := self._file.read(_PIECE):
            if kept := len(piece.rstrip(b"\0")):
                written = length + kept
            length += len(piece)
        return written


@contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a regular file for reading; others are refused, since they may be endless, or wait for ever."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise JournalError("not a regular file", os.fspath(path))
        file = open(path, "rb")  # noqa: SIM115, since the caller's own errors are none of opening it
    except (OSError, ValueError) as error:
        raise JournalError(f"cannot be opened: {_why(error)}", os.fspath(path)) from error
    with file:
        yield file


class Log:
    """A log open for appending, by one process at a time.

    It is created if absent; a symbolic link is followed once, here.
    """

    def __init__(self, path: Path) -> None:
        self._fd, self._failed = -1, ""
        self.path = _real(path)
        self._name = str(self.path)
        self.size = self._chain = 0
        new = not self.path.exists()
        self._fd = self._opened(self.path)
        self._file = _identity(self._fd)
        self._process = os.getpid()
        _LOGS.add(self)
        if new:
            _sync_folder(self.path)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise InputError(
            "a journal cannot be copied: it is the file's only writer (Scheduler.copy gives a copy without one)"
        )

    @property
    def closed(self) -> bool:
        """True once another process may have it."""
        return self._fd < 0

    def reader(self, file: BinaryIO) -> Reader:
        """Return a reader of this log, from a file of its own."""
        return Reader(file, str(self.path))

    def go_on(self, reader: Reader) -> None:
        """Append from now on after the records read; a torn tail is cut off, and a log without records is begun."""
        if reader.torn:
            os.ftruncate(self._fd, reader.end)
        os.lseek(self._fd, reader.end, os.SEEK_SET)
        self.size, self._chain = reader.end, reader.chain
        if not self.size:
            self._write(MAGIC, 0)
        if reader.torn:
            self.sync()

    def check(self) -> None:
        """Refuse to go on where a record could not be written, or would be lost; for before anything is changed.

        Raise JournalError if the log is closed, failed or of another process, or its file has been changed or replaced.
        """
        self._check_open()
        try:
            there = os.stat(self._name)
            known = (there.st_dev, there.st_ino) == self._file
        except OSError:
            known = False
        if not known or there.st_size != self.size:
            what = "was altered by others" if known else "was moved, removed or replaced"
            self._failed = f"{what} while it was in use; what is written from here on would be lost"
            raise JournalError(self._failed, str(self.path), self.size)

    def _check_open(self) -> None:
        if self._process != os.getpid():
            raise JournalError(_FORKED, str(self.path))
        if self._fd < 0:
            raise JournalError("is closed", str(self.path))
        if self._failed:
            raise JournalError(self._failed, str(self.path), self.size)

    def append(self, *bodies: bytes, sync: bool = False) -> None:
        """Write records at once; they survive the end of the process. Callers `check` before they act.

        Raise JournalError if they could not be written; nothing more can be from now on.
        """
        data, chain = framed(bodies, self._chain)
        if self._fd < 0 or self._failed:  # closed meanwhile, as a fork does
            self._check_open()
        self._write(data, chain)
        if sync:
            self._wait()

    def sync(self) -> None:
        """Wait until the written records are on disk, where they survive a crash of the machine, too."""
        self._check_open()
        self._wait()

    def _wait(self) -> None:
        try:
            _sync(self._fd)
        except OSError as error:
            self._fail("synced", error)

    def restart(self, *bodies: Body) -> None:
        """Replace all records by these, as a whole or not at all."""
        self.check()
        data, chain = framed(bodies, front=MAGIC)
        beside = self.path.with_name(self.path.name + ".new")
        beside.unlink(missing_ok=True)
        fd = self._opened(beside)
        try:
            identity = _identity(fd)
            if hasattr(os, "fchmod"):
                os.fchmod(fd, stat.S_IMODE(os.fstat(self._fd).st_mode))
            _write(fd, data)
            _sync(fd)
            self._failed = _TORN
            os.replace(beside, self.path)
            old, self._fd = self._fd, fd
            self._file, self._chain, self.size = identity, chain, len(data)
            self._failed = ""
        except BaseException as error:
            if self._failed and not self._replaced(fd):
                self._failed = ""
            if self._fd != fd:  # else its lock would outlive this log
                os.close(fd)
            with suppress(OSError):
                beside.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise JournalError(f"could not be started anew: {_why(error)}", str(self.path)) from error
            raise
        os.close(old)
        _sync_folder(self.path)

    def _replaced(self, fd: int) -> bool:
        """True if the path names the new file already."""
        return os.path.samestat(os.fstat(fd), os.stat(self.path))

    def close(self) -> None:
        """Release the file for another process."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def __del__(self) -> None:
        self.close()

    def _opened(self, path: Path) -> int:
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
        try:
            if path.exists() and not path.is_file():
                raise JournalError("not a regular file", str(path))
            private.check_place("journal", path)
            fd = private.opener(os.fspath(path), flags)
        except InputError as error:
            raise JournalError(str(error), str(path)) from None
        except (OSError, ValueError) as error:
            raise JournalError(f"cannot be opened: {_why(error)}", str(path)) from error
        if sys.platform != "win32":
            import fcntl

            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                current = os.path.samestat(os.fstat(fd), os.stat(path))  # else it was replaced meanwhile
            except OSError:
                current = False
            if not current:
                os.close(fd)
                raise JournalError("in use by another scheduler", str(path))
        return fd

    def _write(self, data: bytes, chain: int) -> None:
        self._failed = _TORN
        try:
            _write(self._fd, data)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._fd, self.size)  # else the written part of it is a torn tail
            self._fail("written", error)
        self._chain, self.size, self._failed = chain, self.size + len(data), ""

    def _fail(self, what: str, error: OSError) -> NoReturn:
        self._failed = (
            f"could not be {what} ({error.strerror}), so the scheduler is ahead of it; start again from the journal"
        )
        raise JournalError(self._failed, str(self.path), self.size) from error


_FORKED = "belongs to the process that this one was forked from"
_LOGS: WeakSet[Log] = WeakSet()
"""All that are open in this process."""


def _close_in_child() -> None:
    """Close all logs: a descriptor that lived on in a child would keep the lock when the parent is gone."""
    for log in list(_LOGS):
        log.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


def _real(path: Path) -> Path:
    try:
        return Path(os.path.realpath(path))
    except (OSError, ValueError) as error:
        raise JournalError(f"cannot be opened: {_why(error)}", str(path)) from error


def _identity(fd: int) -> tuple[int, int]:
    """Return the device and inode of a file, which no other file has while this one is open."""
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _write(fd: int, data: bytes) -> None:
    done = os.write(fd, data)
    while done < len(data):
        done += os.write(fd, memoryview(data)[done:])


def _sync(fd: int) -> None:
    getattr(os, "fdatasync", os.fsync)(fd)


def _sync_folder(path: Path) -> None:
    """Wait until the file's name is on the disk."""
    if sys.platform != "win32":
        fd = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
