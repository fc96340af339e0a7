"""CSV tables whose every complaint says where: file, line and column."""

from __future__ import annotations

import csv
import gzip
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from flowsched.exceptions import TraceError

__all__ = ["Row", "named_rows", "plain_or_gzipped", "positional_rows"]


class Row:
    """One line of a table: columns by name, and errors that say where."""

    def __init__(self, path: Path, line: int, cells: Mapping[str, str]) -> None:
        self.path, self.line, self._cells = path, line, cells

    def error(self, column: str, message: str) -> TraceError:
        return TraceError(f"{self.path}, line {self.line}, column {column!r}: {message}")

    def text(self, column: str) -> str:
        return self._cells[column]

    def number(self, column: str, default: float | None = None) -> float:
        text = self._cells[column]
        if not text and default is not None:
            return default
        try:
            value = float(text)
        except ValueError:
            raise self.error(column, f"a number expected, got {text!r}") from None
        if not (math.isfinite(value) and value >= 0):
            raise self.error(column, f"a finite number >= 0 expected, got {text!r}")
        return value

    def integer(self, column: str, default: int | None = None) -> int:
        text = self._cells[column]
        if not text and default is not None:
            return default
        try:
            value = int(text)
        except ValueError:
            raise self.error(column, f"a whole number expected, got {text!r}") from None
        if value < 0:
            raise self.error(column, f"a whole number >= 0 expected, got {text!r}")
        return value


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV file, gzipped or not, with their line numbers; blank lines are skipped."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as raw:
            reader = csv.reader(io.TextIOWrapper(raw, encoding="utf-8-sig", newline=""))
            for cells in reader:
                if any(cells):
                    yield reader.line_num, [cell.strip() for cell in cells]
    except (OSError, EOFError) as error:
        raise TraceError(f"{path}: {error}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"{path}: not a CSV file ({error})") from None


def named_rows(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    """Rows of a table with a header."""
    lines = _lines(path)
    number, header = next(lines, (1, []))
    if not header:
        raise TraceError(f"{path}: the file is empty")
    missing = [c for c in columns if c not in header]
    if missing:
        raise TraceError(f"{path}, line {number}: no column {missing[0]!r}; the columns are {', '.join(header)}")
    for number, cells in lines:
        if len(cells) != len(header):
            raise TraceError(
                f"{path}, line {number}: {len(header)} columns expected as in the header, got {len(cells)}"
            )
        yield Row(path, number, dict(zip(header, cells, strict=True)))


def positional_rows(path: Path, columns: Sequence[str], least: int) -> Iterator[Row]:
    """Rows of a table whose columns are known by their place; a first line that starts like a header is skipped."""
    for number, cells in _lines(path):
        if number == 1 and not cells[0].isdigit() and any(c.isalpha() for c in cells[0]):
            continue
        if len(cells) < least:
            raise TraceError(
                f"{path}, line {number}: no column {columns[len(cells)]!r} ({least} columns expected, got {len(cells)})"
            )
        cells += [""] * (len(columns) - len(cells))
        yield Row(path, number, dict(zip(columns, cells, strict=False)))


def plain_or_gzipped(path: Path) -> Path | None:
    """The file, or the same gzipped."""
    for candidate in (path, path.with_name(path.name + ".gz")):
        if candidate.is_file():
            return candidate
    return None
