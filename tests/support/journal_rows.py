"""Rows of a journal as bytes that tests alter, and databases made of them: checksums are right, whatever is in them.

A row is a letter, its body, and after a line feed its image, or the state of a checkpoint.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Sequence
from zlib import crc32

from flowsched.journal.released import MAGIC
from flowsched.journal.store import Row, reading, serialized

LETTERS = {
    "begin": "H", "events": "E", "round": "R", "commit": "C", "policy": "P", "adapter": "A", "service": "N",
}  # fmt: skip
_KINDS = {letter: kind for kind, letter in LETTERS.items()}


def records(source: bytes | str | os.PathLike[str]) -> list[bytes]:
    """All from the last checkpoint on; its header and its state are two."""
    found = []
    with reading(source) as rows:
        for _, row in rows:
            if row.kind == "state":
                header, form, policy, length, *_ = json.loads(row.body)
                found.append(b"H" + json.dumps(header).encode())
                found.append(b"S" + json.dumps([form, policy, length]).encode() + b"\n" + bytes(rows.checkpoint()))
            else:
                rest = b"" if row.image is None else b"\n" + row.image
                found.append(LETTERS[row.kind].encode() + row.body.encode() + rest)
    return found


def journal_of(bodies: Sequence[bytes], resources: Sequence[str] = ("cpu",)) -> bytes:
    """The database of such rows, whose checksums are right."""
    rows, state = list[Row](), b""
    for i, body in enumerate(bodies):
        front, mark, rest = body.partition(b"\n")
        kind, text = front[:1].decode("latin-1"), front[1:].decode("utf-8", "replace")
        if kind == "S":
            state = rest
            header = bodies[0].partition(b"\n")[0][1:].decode("utf-8", "replace") if i else "null"
            if i == 1:
                rows.clear()
            try:
                told = json.loads(text)
            except ValueError:  # altered
                told = None
            told = told[-1] if isinstance(told, list) and told else 0
            text = f"[{header},{text.strip()[1:-1]},{crc32(state[:told]) if isinstance(told, int) else 0},0]"
            rows.append(Row("state", text))
        else:
            rows.append(Row(_KINDS.get(kind, "?"), text, image=rest if mark else None))
    return serialized(resources, rows, [state])


def released(bodies: Sequence[bytes]) -> bytes:
    """The same as a file of the release before databases."""
    chain, parts = 0, [MAGIC]
    for body in bodies:
        if body[:1] == b"C":
            body = body[: body.rindex(b",")] + b"]"  # without numbers of runs
        chain = crc32(body, chain)
        pair = struct.pack("<II", len(body), chain)
        parts += [pair, crc32(pair).to_bytes(4, "little"), body]
    return b"".join(parts)
