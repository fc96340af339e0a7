"""DIMACS minimum-cost flow files (``.min``, also gzipped).

The format, one record a line::

    c   comment
    p   min NODES ARCS
    n   ID SUPPLY                        nodes that have no such line have supply 0
    a   TAIL HEAD LOWER CAPACITY COST

Nodes are numbered from 1 in a file and from 0 in a :class:`FlowProblem`.  A file is parsed twice at most.  The bulk parser
detects errors without their position; only then the line parser finds the line and the reason.

Files are not trusted.  Memory grows with the contents of a file, and not with the sizes that it declares:

* at most a limit is read (`LIMIT` by default), counted after decompression;
* a file of s bytes has at most 2**20 + s nodes, and 2**20 + s / 4 lines;
* an error quotes at most some 80 characters.

References
----------
.. [1] DIMACS, "The First DIMACS International Algorithm Implementation Challenge: Problem Definitions and
       Specifications", 1990.
"""

from __future__ import annotations

import gzip
import io
import os
import zlib
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np

from flowsched.boundary.files import replace
from flowsched.boundary.validate import quoted
from flowsched.exceptions import DimacsError, InputError
from flowsched.network.flow_network import FlowNetwork
from flowsched.network.problem import FlowProblem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = [
    "LIMIT",
    "MOST_NODES",
    "check_bounds",
    "malformed",
    "problem_line",
    "quoted_token",
    "read_dimacs",
    "read_numbers",
    "write_dimacs",
]

LIMIT = 2**30
"""Bytes of a file that are read by default, after decompression."""

_PIECE = 1 << 22
_SPARE = 2**20  # nodes and lines that any file may have
_GZIP_MAGIC = b"\x1f\x8b"

MOST_NODES: Final = 2**31 - 1
"""Largest number of nodes of a file or stream; a larger count is a typing error, not a network that fits in memory."""

_INT64: Final = np.iinfo(np.int64)


def read_dimacs(path_or_file: str | os.PathLike[str] | IO[Any], *, limit: int = LIMIT) -> FlowProblem:
    """Read a DIMACS minimum-cost flow problem.

    Parameters
    ----------
    path_or_file : path or file object
        A file, plain or gzipped (recognised by its first bytes, not by its name).
    limit : int, optional
        Largest size of the file in bytes after decompression.  Reading takes some ten times as much memory.

    Returns
    -------
    FlowProblem
        The arcs in the order of the file.

    Raises
    ------
    DimacsError
        If the file is malformed, larger than `limit`, or declares more nodes than its arcs could connect; the message and
        the attribute ``line`` give the line number.
    OSError
        If the file cannot be read.
    """
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise InputError(f"limit: a whole number of bytes >= 1 expected, got {quoted(limit)}")
    if isinstance(path_or_file, (str, os.PathLike)):
        with open(path_or_file, "rb") as file:
            data = _read(file, limit)
    elif not hasattr(path_or_file, "read"):
        raise InputError(f"path_or_file: a path or an open file expected, got {quoted(path_or_file)}")
    else:
        data = _read(path_or_file, limit)
    if data.startswith(_GZIP_MAGIC):
        data = _decompress(data, limit)
    lines = 1 + data.count(b"\n")
    if lines > _SPARE + len(data) // 4:
        raise malformed(lines, f"{lines} lines in {len(data)} bytes: most of them are empty")
    return _parse(data)


def _parse(data: bytes) -> FlowProblem:
    lines = data.split(b"\n")
    most = _most_nodes(len(data))
    return _parse_bulk(lines, most) or _parse_lines(lines, most)


def _most_nodes(size: int) -> int:
    """Return the limit on nodes of a file of `size` bytes: an arc that connects a node takes more than ten bytes."""
    return min(MOST_NODES, _SPARE + size)


def write_dimacs(problem: FlowProblem | FlowNetwork, path_or_file: str | os.PathLike[str] | IO[Any]) -> None:
    """Write a problem as a DIMACS file.

    Parameters
    ----------
    problem : FlowProblem or FlowNetwork
        Its arcs are written in order (of a network as `FlowNetwork.to_problem` numbers them); nodes of supply 0 get no line.
    path_or_file : path or file object
        A path that ends in ``.gz`` is gzipped (without a time stamp: equal problems make equal files).  A file object
        may take text or bytes.

    Raises
    ------
    InputError
        If an arc's end is not a node of the problem, or its bounds could not be read back.
    """
    if isinstance(problem, FlowNetwork):
        problem = problem.to_problem()
    if not isinstance(problem, FlowProblem):
        raise InputError(f"problem: a FlowProblem or FlowNetwork expected, got {quoted(problem)}")
    _check_writable(problem)
    senders = np.flatnonzero(problem.supply)
    arcs = np.column_stack([problem.tail + 1, problem.head + 1, problem.lower, problem.capacity, problem.cost])
    parts = [f"p min {len(problem.supply)} {len(problem.tail)}"]
    parts += ["n %d %d" % row for row in zip((senders + 1).tolist(), problem.supply[senders].tolist(), strict=True)]  # noqa: UP031  # takes a row whole
    parts += ["a %d %d %d %d %d" % tuple(row) for row in arcs.tolist()]  # noqa: UP031  # takes a row whole
    text = "\n".join(parts) + "\n"
    if len(problem.supply) > _most_nodes(len(text)):
        raise InputError(
            f"supply: {len(problem.supply)} nodes are more than the file could connect, at most {_most_nodes(len(text))}"
        )
    if isinstance(path_or_file, (str, os.PathLike)):
        path = Path(path_or_file)
        data = text.encode()
        replace(path, gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
        return
    try:
        path_or_file.write(text)
    except TypeError:
        path_or_file.write(text.encode())


def _check_writable(problem: FlowProblem) -> None:
    """Refuse what :func:`read_dimacs` would refuse to read back."""
    nodes = len(problem.supply)
    for name, ends in (("tail", problem.tail), ("head", problem.head)):
        outside = np.flatnonzero((ends < 0) | (ends >= nodes))
        if len(outside):
            raise InputError(f"{name}[{outside[0]}] = {ends[outside[0]]} is not a node: there are {nodes}")
    for name, wrong in (
        ("capacity", problem.capacity < 0),
        ("lower", problem.lower < 0),
        ("lower", problem.lower > problem.capacity),
    ):
        if wrong.any():
            arc = int(wrong.argmax())
            raise InputError(
                f"{name}[{arc}]: lower {problem.lower[arc]}, capacity {problem.capacity[arc]}: "
                "0 <= lower <= capacity does not hold"
            )


def _read(file: IO[Any], limit: int) -> bytes:
    """Read a file of text or bytes to its end, but no more than allowed."""
    pieces: list[bytes] = []
    size = 0
    while piece := file.read(min(_PIECE, limit + 1)):
        pieces.append(piece.encode() if isinstance(piece, str) else bytes(piece))
        size += len(pieces[-1])
        if size > limit:
            raise _too_large(pieces, limit)
    return b"".join(pieces)


def _decompress(data: bytes, limit: int) -> bytes:
    """Unzip; a damaged archive is reported at the line that its readable part ends in."""
    pieces: list[bytes] = []
    size = 0
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
        try:
            while piece := stream.read(_PIECE):
                pieces.append(piece)
                size += len(piece)
                if size > limit:
                    raise _too_large(pieces, limit)
        except (EOFError, OSError, zlib.error) as error:
            line = 1 + sum(piece.count(b"\n") for piece in pieces)
            raise DimacsError(f"line {line}: the compressed data are damaged here: {error}", line) from error
    return b"".join(pieces)


def _too_large(pieces: list[bytes], limit: int) -> DimacsError:
    line = 1 + sum(piece.count(b"\n") for piece in pieces)
    return malformed(line, f"the file is larger than the limit of {limit} bytes (limit)")


def _parse_bulk(lines: Sequence[bytes], most: int = MOST_NODES) -> FlowProblem | None:
    """Parse a file without errors or unusual syntax; return None for any other, which is left to `_parse_lines`."""
    kinds = [line[:1] for line in lines]
    try:
        at_problem = kinds.index(b"p")
        _, kind, *counts = lines[at_problem].split()
        nodes, arcs = map(integer, counts)
        table_n = _table(b"n", 3, [line for line in lines[at_problem:] if line[:1] == b"n"])
        table_a = _table(b"a", 6, [line for line in lines[at_problem:] if line[:1] == b"a"])
    except (ValueError, OverflowError):
        return None
    ids, supplies = table_n
    tail, head, lower, capacity, cost = table_a
    usual = (
        lines[at_problem].split()[0] == b"p"
        and kind == b"min"
        and 0 <= nodes <= most
        and set(kinds) <= {b"p", b"n", b"a", b"c", b""}
        and kinds.count(b"p") == 1
        and kinds.count(b"n") == len(ids)  # none of them before the problem line
        and kinds.count(b"a") == len(tail) == arcs
        and len(np.unique(ids)) == len(ids)
        and all(not len(v) or (v.min() >= 1 and v.max() <= nodes) for v in (ids, tail, head))
        and bool(np.all((lower >= 0) & (lower <= capacity)))
    )
    if not usual:
        return None
    supply = np.zeros(nodes, np.int64)
    supply[ids - 1] = supplies
    return FlowProblem(tail - 1, head - 1, capacity, cost, supply, lower)


def _table(kind: bytes, width: int, lines: list[bytes]) -> NDArray[np.int64]:
    """Return the numbers of records of one kind, a row for each column; ValueError if one of them is malformed.

    If the tokens at the multiples of ``width`` are the kind's letter and all others are numbers, then no record can be
    shorter or longer than ``width``, for each record starts with the letter.
    """
    text = b" ".join(lines)
    tokens = text.split()
    if b"_" in text or len(tokens) != width * len(lines) or tokens[::width].count(kind) != len(lines):
        raise ValueError
    del tokens[::width]
    numbers = np.array(list(map(int, tokens)), dtype=np.int64)
    return np.ascontiguousarray(numbers.reshape(len(lines), width - 1).T)


def _parse_lines(lines: Sequence[bytes], most: int = MOST_NODES) -> FlowProblem:
    """Parse line by line, for unusual files and for the errors of malformed ones."""
    nodes = arcs = -1
    supply: dict[int, int] = {}
    rows: list[list[int]] = []
    last = len(lines) if lines and lines[-1].strip() else max(1, len(lines) - 1)
    for number, raw in enumerate(lines, start=1):
        fields = raw.split()
        kind = fields[0] if fields else b"c"
        if kind.startswith(b"c"):
            continue
        if kind == b"p":
            if nodes >= 0:
                raise malformed(number, "a second problem line")
            nodes, arcs = problem_line(number, fields, most)
        elif kind not in (b"n", b"a"):
            raise malformed(number, f"unknown record {quoted_token(kind)}, expected c, p, n or a")
        elif nodes < 0:
            raise malformed(number, f"{quoted_token(kind)} record before the problem line")
        elif kind == b"n":
            node, value = read_numbers(number, fields, ("id", "supply"))
            check_node(number, "node", node, nodes)
            if node in supply:
                raise malformed(number, f"a second record of node {node}")
            supply[node] = value
        else:
            if len(rows) == arcs:
                raise malformed(number, f"more arcs than the {arcs} of the problem line")
            rows.append(arc_line(number, fields, nodes))
    if nodes < 0:
        raise malformed(last, "no problem line (p min NODES ARCS)")
    if len(rows) < arcs:
        raise malformed(last, f"the file ends after {len(rows)} of {arcs} arcs")
    tail, head, lower, capacity, cost = np.array(rows, dtype=np.int64).reshape(-1, 5).T.copy()
    sent = np.zeros(nodes, np.int64)
    sent[np.array(list(supply), dtype=np.int64) - 1] = list(supply.values())
    return FlowProblem(tail - 1, head - 1, capacity, cost, sent, lower)


# -- records: `number` is the line's, from 1; `fields` are its tokens, the record's letter first ---------------------------


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
