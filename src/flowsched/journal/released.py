"""Journals of the last release, read once: a log of checksummed records becomes a database.

::

    file    = MAGIC record record ...
    record  = length u32 | checksum u32 | guard u32 | body       (little endian)

    checksum = CRC-32 of the body, continued from the checksum of the record before (from 0 for the first one)
    guard    = CRC-32 of length and checksum

A record that the file's end cuts off was never acknowledged, and neither was a tail of zeros.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from zlib import crc32

from flowsched.exceptions import CorruptJournalError, JournalMismatchError
from flowsched.journal.codec import decode
from flowsched.journal.graph_tables import Piece
from flowsched.journal.records import Checkpoint, Header
from flowsched.journal.store import Row, opened_plain, serialized

MAGIC = b"flowsched log 2\n"
_HEAD = struct.Struct("<III")
_KINDS = {"E": "events", "R": "round", "C": "commit", "P": "policy", "A": "adapter"}


def converted(path: str | os.PathLike[str]) -> bytes:
    """Return the database with the calls of an old journal.

    Raises
    ------
    JournalError
        It is no such journal, or damaged; the message names the byte.
    """
    name = os.fspath(path)
    with opened_plain(path) as file:
        data = file.read()
    bodies = _bodies(data, name)
    front, _, accounts = next(bodies, b"").partition(b"\n")
    if front[:1] != b"H":
        raise JournalMismatchError("nothing is in it", name, 0)
    header = Header.read(front[1:].decode("ascii"), name, 0)
    rows = [Row("begin", header.body(), image=accounts or None)]
    pieces: list[Piece] = []
    for body in bodies:
        front, _, rest = body.partition(b"\n")
        kind, text = front[:1].decode("latin-1"), front[1:].decode("ascii", "replace")
        if kind == "S":
            form, policy, length = decode(text, name, 1)
            state = Checkpoint(form, policy, rest[:length], [rest[length:]])
            rows, pieces = [state.row(header, 0)], state.pieces
        elif kind == "C":
            rows.append(Row("commit", f"{text[:-1]},null]"))
        elif kind in _KINDS:
            rows.append(Row(_KINDS[kind], text, _time(kind, text, name), image=rest or None))
        else:
            raise JournalMismatchError(f"a record of unknown kind {kind!r}", name)
    return serialized(header.resources, rows, pieces)


def _time(kind: str, text: str, name: str) -> float | None:
    return float(decode(text, name, 0)[1]) + 0.0 if kind == "R" else None


def _bodies(data: bytes, name: str) -> Iterator[bytes]:
    if not data.startswith(MAGIC):
        raise JournalMismatchError("not a journal of the last release", name)
    at, chain = len(MAGIC), 0
    while at < len(data):
        head = data[at : at + _HEAD.size]
        if len(head) < _HEAD.size or not any(data[at:]):
            return
        length, checksum, guard = _HEAD.unpack(head)
        if crc32(head[:8]) != guard:
            raise CorruptJournalError(f"byte {at}: the record does not agree with its checksum", name)
        body = data[at + _HEAD.size : at + _HEAD.size + length]
        if len(body) < length:
            return
        chain = crc32(body, chain)
        if chain != checksum:
            raise CorruptJournalError(f"byte {at}: the record does not agree with its checksum", name)
        yield body
        at += _HEAD.size + length
