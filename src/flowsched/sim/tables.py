"""CSV tables; every error names file, line and column.

Files are not trusted: they are read line by line, no further than a limit after decompression and no line beyond
`LONGEST`; a number that passes is one that a cluster can count with; and an error quotes at most some 80 characters.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from flowsched.boundary.validate import quoted
from flowsched.cluster.model import LARGEST
from flowsched.exceptions import TraceError

__all__ = ["LIMIT", "LONGEST", "Row", "named_rows", "plain_or_gzipped", "positional_rows"]


LIMIT = 2**32
"""Characters of a file that are read, after decompression, by default."""

LONGEST = 2**17
"""Most characters of a line, and so of a field."""


_SPARE = 2**20
"""Lines that any file may have, empty or not; otherwise a small archive could take hours to read."""


class Row:
    """One line of a table: columns by name, and errors that name the place."""

    def __init__(self, path: Path, line: int, cells: Mapping[str, str]) -> None:
        self.path, self.line, self._cells = path, line, cells

    def error(self, column: str, message: str) -> TraceError:
        return TraceError(f"{self.path}, line {self.line}, column {column!r}: {message}")

    def text(self, column: str) -> str:
        return self._cells[column]

    def number(self, column: str, default: float | None = None, most: float = LARGEST) -> float:
        text = self._cells[column]
        if not text and default is not None:
            return default
        try:
            value = float(text)
        except ValueError:
            raise self.error(column, f"a number expected, got {quoted(text)}") from None
        if not (math.isfinite(value) and value >= 0):
            raise self.error(column, f"a finite number >= 0 expected, got {quoted(text)}")
        if value > most:
            raise self.error(column, f"at most {most} expected, got {quoted(text)}")
        return value

    def integer(self, column: str, default: int | None = None, most: int = LARGEST) -> int:
        text = self._cells[column]
        if not text and default is not None:
            return default
        try:
            value = int(text)
        except ValueError:
            raise self.error(column, f"a whole number expected, got {quoted(text)}") from None
        if value < 0:
            raise self.error(column, f"a whole number >= 0 expected, got {quoted(text)}")
        if value > most:
            raise self.error(column, f"at most {most} expected, got {quoted(text)}")
        return value


def _lines(path: Path, limit: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a CSV file, gzipped or not, with their line numbers; blank lines are skipped."""
    try:
        with (
            gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as raw,
            io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as text,
        ):
            reader = csv.reader(_bounded(path, text, limit))
            for cells in reader:
                if any(cells):
                    yield reader.line_num, [cell.strip() for cell in cells]
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"{path}: {error}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"{path}: not a CSV file ({error})") from None


def _bounded(path: Path, text: io.TextIOWrapper, limit: int) -> Iterator[str]:
    """Yield the lines of a file; TraceError if one of them, or all together, are too long."""
    size = 0
    number = 0
    while line := text.readline(LONGEST + 1):
        number += 1
        size += len(line)
        if len(line) > LONGEST:
            raise TraceError(f"{path}, line {number}: the line is longer than {LONGEST} characters")
        if number > _SPARE + size // 4:
            raise TraceError(f"{path}, line {number}: most lines of the file are empty")
        if size > limit:
            raise TraceError(f"{path}, line {number}: the file is larger than the limit of {limit} characters (limit)")
        yield line


def named_rows(path: Path, columns: Sequence[str], limit: int = LIMIT) -> Iterator[Row]:
    """Yield the rows of a table with a header."""
    lines = _lines(path, limit)
    number, header = next(lines, (1, []))
    if not header:
        raise TraceError(f"{path}: the file is empty")
    missing = [c for c in columns if c not in header]
    if missing:
        raise TraceError(
            f"{path}, line {number}: no column {missing[0]!r}; the columns are {quoted(', '.join(header), 300)[1:-1]}"
        )
    for number, cells in lines:
        if len(cells) != len(header):
            raise TraceError(
                f"{path}, line {number}: {len(header)} columns expected as in the header, got {len(cells)}"
            )
        yield Row(path, number, dict(zip(header, cells, strict=True)))


def positional_rows(path: Path, columns: Sequence[str], least: int, limit: int = LIMIT) -> Iterator[Row]:
    """Yield the rows of a table with columns known by their place; a first line that starts like a header is skipped."""
    for number, cells in _lines(path, limit):
        if number == 1 and not cells[0].isdigit() and any(c.isalpha() for c in cells[0]):
            continue
        if len(cells) < least:
            raise TraceError(
                f"{path}, line {number}: no column {columns[len(cells)]!r} ({least} columns expected, got {len(cells)})"
            )
        cells += [""] * (len(columns) - len(cells))
        yield Row(path, number, dict(zip(columns, cells, strict=False)))


def plain_or_gzipped(path: Path) -> Path | None:
    """Return the file, or its gzipped form."""
    for candidate in (path, path.with_name(path.name + ".gz")):
        if candidate.is_file():
            return candidate
    return None
