"""A file of checksummed records, only ever appended to, that may be cut off at any byte.

::

    file    = MAGIC record record ...
    record  = length u32 | checksum u32 | guard u32 | body       (little endian)

    checksum = CRC-32 of the body, continued from the checksum of the record before (from 0 for the first one)
    guard    = CRC-32 of length and checksum

A writer that is killed leaves a prefix of what it was writing, and a machine that loses power may leave sectors that were
never written, full of zeros, at the end.  Both are a *torn tail*: it was not acknowledged, and is cut.  Anything else
that does not agree with its checksums was written and is damaged: `CorruptJournalError`, wherever it is, the last record
not excepted.  The guard makes the difference: a damaged length is not taken for a record that was cut off.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NoReturn
from zlib import crc32

from flowsched.exceptions import CorruptJournalError, JournalError, JournalMismatchError

__all__ = ["MAGIC", "Log", "Reader", "framed"]

MAGIC = b"flowsched log 1\n"

_PAIR = struct.Struct("<II")
_HEAD = struct.Struct("<III")
_SECTOR = 512
_LONGEST = 2**32 - 1


def framed(bodies: Iterable[bytes], chain: int = 0) -> tuple[bytes, int]:
    """Records with these bodies, and the checksum of the last one; `chain` is that of the record before."""
    parts: list[bytes] = []
    for body in bodies:
        if len(body) > _LONGEST:
            raise JournalError(f"a record of {len(body)} bytes is too long; the limit is {_LONGEST}")
        chain = crc32(body, chain)
        pair = _PAIR.pack(len(body), chain)
        parts += (pair, crc32(pair).to_bytes(4, "little"), body)
    return b"".join(parts), chain


class Reader:
    """The records of a log, in order: iterating gives their offsets and bodies.

    Parameters
    ----------
    file : binary file
        At its beginning.
    name : str
        For error messages.

    Attributes
    ----------
    end, chain : int
        Where the last record read ends, and its checksum.
    torn : int
        Bytes after the last record, once all are read.

    Raises
    ------
    JournalMismatchError
        It is no log, or one of another format.
    CorruptJournalError
        A record is damaged.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file, self._name = file, name
        self.end = self.chain = self.torn = 0

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        magic = self._file.read(len(MAGIC))
        if magic != MAGIC:
            if MAGIC.startswith(magic) or not magic.strip(b"\0"):
                self.torn = len(magic) + len(self._file.read())
                return
            raise JournalMismatchError("not a journal or snapshot, or one in another format", self._name, 0)
        self.end = len(MAGIC)
        while head := self._file.read(_HEAD.size):
            if len(head) < _HEAD.size:
                self.torn = len(head)
                return
            length, checksum, guard = _HEAD.unpack(head)
            if crc32(head[: _PAIR.size]) != guard:
                return self._damaged(head)
            body = self._file.read(length)
            if len(body) < length:
                self.torn = len(head) + len(body)
                return
            if crc32(body, self.chain) != checksum:
                return self._damaged(head + body)
            yield self.end, body
            self.end += _HEAD.size + length
            self.chain = checksum

    def _damaged(self, record: bytes) -> None:
        """Torn after all, if from a sector on within the record nothing of the file was ever written."""
        rest = record + self._file.read()
        written = len(rest.rstrip(b"\0"))
        first = _SECTOR - self.end % _SECTOR
        sector = first + -(-max(written - first, 0) // _SECTOR) * _SECTOR
        if written and sector >= len(record):
            raise CorruptJournalError("the record does not agree with its checksum", self._name, self.end)
        self.torn = len(rest)


class Log:
    """A log open for appending, by one process at a time.

    Parameters
    ----------
    path : Path
        Created if absent.

    Attributes
    ----------
    path : Path
    size : int
        Bytes.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd, self._failed = -1, ""
        new = not path.exists()
        self._fd = self._opened(path)
        if new:
            _sync_folder(path)
        self.size = self._chain = 0

    @property
    def closed(self) -> bool:
        """Whether another process may have it."""
        return self._fd < 0

    def reader(self, file: BinaryIO) -> Reader:
        """A reader of this log, from a file of its own."""
        return Reader(file, str(self.path))

    def go_on(self, reader: Reader) -> None:
        """Append after what was read; what is torn is cut off.  A log without records is begun."""
        if reader.torn:
            os.ftruncate(self._fd, reader.end)
        os.lseek(self._fd, reader.end, os.SEEK_SET)
        self.size, self._chain = reader.end, reader.chain
        if not self.size:
            self._write(MAGIC)
        if reader.torn:
            self.sync()

    def append(self, *bodies: bytes) -> None:
        """Write records at once; they survive the end of the process.

        Raises
        ------
        JournalError
            They could not be written; nothing more can be from now on.
        """
        data, chain = framed(bodies, self._chain)
        self._write(data)
        self._chain = chain

    def sync(self) -> None:
        """What has been written survives the end of the machine, too."""
        self._check()
        try:
            _sync(self._fd)
        except OSError as error:
            self._fail("synced", error)

    def restart(self, *bodies: bytes) -> None:
        """Replace everything by these records, as a whole or not at all."""
        self._check()
        data, chain = framed(bodies)
        beside = self.path.with_name(self.path.name + ".new")
        beside.unlink(missing_ok=True)
        fd = self._opened(beside)
        try:
            _write(fd, MAGIC + data)
            _sync(fd)
            os.replace(beside, self.path)
        except OSError as error:
            os.close(fd)
            raise JournalError(f"could not be started anew: {error.strerror}", str(self.path)) from error
        os.close(self._fd)
        self._fd, self._chain, self.size = fd, chain, len(MAGIC) + len(data)
        _sync_folder(self.path)

    def close(self) -> None:
        """Let another process have it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()

    def _opened(self, path: Path) -> int:
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
        try:
            fd = os.open(path, flags, 0o644)
        except OSError as error:
            raise JournalError(f"cannot be opened: {error.strerror}", str(path)) from error
        if sys.platform != "win32":
            import fcntl

            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                current = os.path.samestat(os.fstat(fd), os.stat(path))  # else it has been started anew meanwhile
            except OSError:
                current = False
            if not current:
                os.close(fd)
                raise JournalError("in use by another scheduler", str(path))
        return fd

    def _write(self, data: bytes) -> None:
        self._check()
        try:
            _write(self._fd, data)
        except OSError as error:
            try:
                os.ftruncate(self._fd, self.size)
            except OSError:
                pass  # what was written of it is a torn tail
            self._fail("written", error)
        self.size += len(data)

    def _check(self) -> None:
        if self._fd < 0:
            raise JournalError("is closed", str(self.path))
        if self._failed:
            raise JournalError(self._failed, str(self.path), self.size)

    def _fail(self, what: str, error: OSError) -> NoReturn:
        self._failed = (
            f"could not be {what} ({error.strerror}), so the scheduler is ahead of it; start again from the journal"
        )
        raise JournalError(self._failed, str(self.path), self.size) from error


def _write(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]


def _sync(fd: int) -> None:
    getattr(os, "fdatasync", os.fsync)(fd)


def _sync_folder(path: Path) -> None:
    """The file's name survives as well."""
    if sys.platform != "win32":
        fd = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
