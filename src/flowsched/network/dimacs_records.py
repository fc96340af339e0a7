"""Records of DIMACS files and streams, checked one by one; every error names the line.

``number`` is the line's, from 1; ``fields`` are its tokens, the record's letter first.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from flowsched.boundary.validate import quoted
from flowsched.exceptions import DimacsError

__all__ = [
    "MOST_NODES",
    "arc_line",
    "check_bounds",
    "check_node",
    "integer",
    "malformed",
    "problem_line",
    "quoted_token",
    "read_numbers",
]

MOST_NODES: Final = 2**31 - 1
"""Most nodes of a file or stream; a larger count is a slip of the pen, not a network that fits in memory."""

_INT64: Final = np.iinfo(np.int64)


def integer(token: bytes) -> int:
    """Read an integer as DIMACS spells it: as Python, without underscores."""
    if b"_" in token:
        raise ValueError
    return int(token)


def problem_line(number: int, fields: list[bytes], most: int = MOST_NODES) -> tuple[int, int]:
    """Return the numbers of nodes and arcs; no more than `most` nodes."""
    if len(fields) > 1 and fields[1] != b"min":
        raise malformed(number, f"problem type {quoted_token(fields[1])}, expected min")
    nodes, arcs = read_numbers(
        number, fields[:1] + fields[2:], ("number of nodes", "number of arcs"), "p min NODES ARCS"
    )
    if nodes < 0 or arcs < 0:
        raise malformed(number, f"a negative number of {'nodes' if nodes < 0 else 'arcs'}: {min(nodes, arcs)}")
    if nodes > MOST_NODES:
        raise malformed(number, f"{nodes} nodes are more than the {MOST_NODES} that are supported")
    if nodes > most:
        raise malformed(number, f"{nodes} nodes are more than a file of this size can connect, at most {most}")
    return nodes, arcs


def arc_line(number: int, fields: list[bytes], nodes: int) -> list[int]:
    """Return tail, head, lower bound, capacity and cost, checked."""
    row = read_numbers(number, fields, ("tail", "head", "lower bound", "capacity", "cost"))
    tail, head, lower, capacity, _ = row
    check_node(number, "tail", tail, nodes)
    check_node(number, "head", head, nodes)
    check_bounds(number, lower, capacity)
    return row


def check_bounds(number: int, lower: int, capacity: int) -> None:
    """Refuse bounds of an arc unless 0 <= lower <= capacity."""
    if capacity < 0:
        raise malformed(number, f"capacity {capacity} is negative")
    if lower < 0:
        raise malformed(number, f"lower bound {lower} is negative")
    if lower > capacity:
        raise malformed(number, f"lower bound {lower} above capacity {capacity}")


def read_numbers(number: int, fields: list[bytes], names: tuple[str, ...], form: str = "") -> list[int]:
    """Return the integers that follow a record's letter, one for each name."""
    if len(fields) - 1 != len(names):
        kind = fields[0].decode()
        form = form or f"{kind} {' '.join(name.upper().split()[0] for name in names)}"
        raise malformed(number, f"expected {form}, got {len(fields) - 1} fields after {kind!r}")
    values = []
    for name, field in zip(names, fields[1:], strict=True):
        try:
            value = integer(field)
        except ValueError:
            raise malformed(number, f"{name} {quoted_token(field)} is not an integer") from None
        if not _INT64.min <= value <= _INT64.max:
            raise malformed(number, f"{name} {quoted(value)} does not fit in 64 bits")
        values.append(value)
    return values


def check_node(number: int, name: str, node: int, nodes: int) -> None:
    """Refuse a node that is not one of 1 to `nodes`."""
    if not 1 <= node <= nodes:
        raise malformed(number, f"{name} {node} is not one of the nodes 1 to {nodes}")


def quoted_token(token: bytes) -> str:
    """Quote a token, at most some 80 characters of it."""
    return quoted(token[:400].decode(errors="replace"))


def malformed(number: int, what: str) -> DimacsError:
    """Return the error for a line, to be raised."""
    return DimacsError(f"line {number}: {what}", number)
