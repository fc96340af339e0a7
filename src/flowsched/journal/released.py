"""Journals of the last release, read once: a log of checksummed records becomes a database.

::

    file    = MAGIC record record ...
    record  = length u32 | checksum u32 | guard u32 | body       (little endian)

    checksum = CRC-32 of the body, continued from the checksum of the record before (from 0 for the first one)
    guard    = CRC-32 of length and checksum

A record that the file's end cuts off was never acknowledged, and neither was a tail of zeros.

Accounts were a graph of objects: each value had a *code*, ``index << 8 | kind``, of a place in the table of a kind.
"""

from __future__ import annotations

import json
import os
import struct
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from math import prod
from types import MappingProxyType
from typing import Any
from zlib import crc32

import numpy as np

from flowsched.exceptions import CorruptJournalError, JournalMismatchError
from flowsched.journal.codec import decode
from flowsched.journal.records import Checkpoint, Header
from flowsched.journal.store import Row, opened_plain, serialized
from flowsched.journal.tables import DTYPES, bounded, check_name, made, set_state

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
    pieces: list[bytes] = []
    for body in bodies:
        front, _, rest = body.partition(b"\n")
        kind, text = front[:1].decode("latin-1"), front[1:].decode("ascii", "replace")
        if kind == "S":
            _, policy, length = decode(text, name, 1)
            rows, pieces = [Checkpoint(0, policy, rest[:length], []).row(header, 0)], [rest[:length]]
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


# -- accounts -------------------------------------------------------------------------------------------------------

_STR, _INT, _FLOAT, _BYTES, _ARRAY, _GIVEN, _FROZEN, _LIST, _DICT, _SET, _DEQUE, _ORDERED, _SMALL = (
    1,
    2,
    3,
    4,
    5,
    6,
    *range(8, 15),
)
_FIRST_CLASS = 16
_MAKERS: dict[int, Callable[[], Any]] = {_LIST: list, _DICT: dict, _SET: set, _DEQUE: deque, _ORDERED: OrderedDict}


def objects(image: bytes, classes: Mapping[Any, type], given: Mapping[str, Any]) -> tuple[dict[type, list[Any]], Any]:
    """Return the objects of a graph by class, and its root; `classes` by the names that it uses.

    For nonsense raise errors as `tables.Objects`.
    """
    size = int.from_bytes(image[:8], "little")
    head = json.loads(image[8 : 8 + size])
    arrays, at = [], 8 + size
    for dtype, *shape in head["arrays"]:
        of = np.dtype("?" if dtype == "b1" else "<" + dtype)
        if of not in DTYPES:
            raise ValueError("an array of another kind")
        arrays.append(np.frombuffer(image, of, prod(bounded(n, len(image)) for n in shape), at).reshape(shape).copy())
        at += arrays[-1].nbytes
    own = bounded(head["own"], len(arrays))
    rest = iter(arrays[own:])
    tables: dict[int, Any] = {
        0: [None, False, True], _STR: head["strings"], _INT: head["integers"], _FLOAT: next(rest).tolist(), _ARRAY: arrays[:own],
        _BYTES: [bytes.fromhex(chunk) for chunk in head["chunks"]], _GIVEN: [given[name] for name in head["given"]], _FROZEN: [],
        _SMALL: range(1 << 54),
    }  # fmt: skip
    frozen = _cut(next(rest), next(rest))
    mutable = {kind: [*_cut(next(rest), next(rest))] for kind in _MAKERS}
    for kind, rows in mutable.items():
        tables[kind] = [_MAKERS[kind]() for _ in rows]
    tables[_DEQUE] = [deque(maxlen=None if most == -1 else most) for most in head["bounds"]]
    told = [(classes[name], names) for name, names in zip(head["classes"], head["names"], strict=True)]
    columns = []
    for i, (cls, names) in enumerate(told):
        columns.append([next(rest).tolist() for _ in range(1 if names is None else len(names) + (not names))])
        tables[_FIRST_CLASS + i] = made(cls, len(columns[-1][0]))

    def value(code: int) -> Any:
        return tables[code & 255][bounded(code >> 8, 1 << 54)]

    for tag, codes in zip(head["frozen"], frozen, strict=True):
        parts = [*map(value, codes)]
        if isinstance(tag, int):
            tables[_FROZEN].append((tuple, frozenset, lambda one: MappingProxyType(*one))[bounded(tag, 2)](parts))
        else:
            cls = classes[tag[0]]
            tables[_FROZEN].append(tuple.__new__(cls, parts) if issubclass(cls, tuple) else cls(*parts))
    for i, (cls, names) in enumerate(told):
        for name, column in zip(names or (), columns[i], strict=False):
            check_name(cls, name)
            for thing, code in zip(tables[_FIRST_CLASS + i], column, strict=True):
                object.__setattr__(thing, name, value(code))
    for kind, rows in mutable.items():
        for thing, codes in zip(tables[kind], rows, strict=True):
            parts = [*map(value, codes)]
            fill = thing.extend if kind in (_LIST, _DEQUE) else thing.update
            fill(zip(parts[::2], parts[1::2], strict=True) if kind in (_DICT, _ORDERED) else parts)
    for i, (_, names) in enumerate(told):
        if names is None:
            for thing, code in zip(tables[_FIRST_CLASS + i], columns[i][0], strict=True):
                set_state(thing, value(code))
    return {cls: tables[_FIRST_CLASS + i] for i, (cls, _) in enumerate(told)}, value(head["root"])


def _cut(lengths: Any, codes: Any) -> Iterator[list[int]]:
    if len(codes) != lengths.sum() or lengths.min(initial=0) < 0:
        raise ValueError("the lengths of a table do not add up")
    items = iter(codes.tolist())
    return ([*islice(items, length)] for length in lengths.tolist())
