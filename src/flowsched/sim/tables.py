"""Tables of text: CSV, columns between blanks, JSON.  Every error names file, line and column.

Files are not trusted: they are read line by line, no further than a limit after decompression and no line beyond
`LONGEST`; a number that passes is one that a cluster can count with; and an error quotes at most some 80 characters.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import re
import zlib
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from flowsched.boundary import units
from flowsched.boundary.validate import quoted
from flowsched.cluster.model import LARGEST
from flowsched.exceptions import TraceError

LIMIT = 2**32
"""Characters of a file that are read, after decompression, by default."""

HEAD = 2**16
"""Characters of a file by which its format is recognised."""

LONGEST = 2**17
"""Most characters of a line, and so of a field."""


NESTED = "\0"
"""Cell, or part of one, in the place of a JSON value that nests too deep for a row."""

_SPARE = 2**20
"""Lines that any file may have, empty or not; otherwise a small archive could take hours to read."""


_FORMS: dict[Callable[[str], float], str] = {
    units.seconds: "a number of seconds, or a time span such as 90s, 15m or 1:30:00,",
    units.moment: "a number of seconds, or a date such as 2026-01-31T12:00:00,",
    units.mebibytes: "a number of MiB, or an amount such as 64G,",
    units.cores: "a number of cores, or of thousandths such as 500m,",
}
"""Forms of text that functions read, for messages."""


class Row:
    """One line of a table: columns by name, and errors that name the place."""

    def __init__(
        self, path: Path | str, line: int, cells: Mapping[str, str], header: int | None = None, kind: str = "line"
    ) -> None:
        self.path, self.line, self._cells, self.kind = path, line, cells, kind
        self.header = line if header is None else header  # the line that names the columns
        self._given: Mapping[str, str] = {}

    def renamed(self, columns: Mapping[str, str], known: Callable[[str], bool]) -> Row:
        """Return the row with columns by other names; those left that are not known are dropped."""
        used = {*columns.values()}
        cells = {name: text for name, text in self._cells.items() if name not in used and known(name)}
        row = Row(
            self.path, self.line, cells | {to: self.text(name) for to, name in columns.items()}, self.header, self.kind
        )
        row._given = columns
        return row

    def part(self, columns: Sequence[str]) -> Row:
        """Return a row of these columns alone."""
        row = Row(self.path, self.line, {name: self.text(name) for name in columns}, self.header, self.kind)
        row._given = self._given
        return row

    def error(self, column: str, message: str) -> TraceError:
        name = self._given.get(column, column)
        return TraceError(f"{self.path}, {self.kind} {self.line}, column {name!r}: {message}")

    def text(self, column: str) -> str:
        """Return a cell; "" also for a column that the table does not have."""
        return self._cells.get(column, "")

    def name(self, column: str, what: str, known: Container[str]) -> str:
        """Return the name of a new thing, a `what`."""
        name = self.text(column)
        if name in known:
            raise self.error(column, f"{what} {quoted(name)} occurs twice")
        return name

    def has(self, column: str) -> bool:
        """Return True if the table has this column."""
        return column in self._cells

    def names(self) -> Iterator[str]:
        """Yield the names of all columns."""
        return iter(self._cells)

    def filled(self) -> Iterator[str]:
        """Yield the names of the columns that are not empty here."""
        return (name for name, text in self._cells.items() if text)

    def number(
        self,
        column: str,
        default: float | None = None,
        most: float = LARGEST,
        least: float = 0,
        endless: bool = False,
        read: Callable[[str], float] = float,
    ) -> float:
        """Return a number from `least` to `most`; if `endless`, also infinity.  `read` makes a number of text."""
        text = self.text(column)
        if not text and default is not None:
            return default
        try:
            value = read(text)
        except (ValueError, OverflowError):
            raise self.error(column, f"{_FORMS.get(read, 'a number')} expected, got {quoted(text)}") from None
        if endless and value == math.inf:
            return value
        if not (math.isfinite(value) and value >= least):
            raise self.error(column, f"a finite number >= {least} expected, got {quoted(text)}")
        if value > most:
            raise self.error(column, f"at most {most} expected, got {quoted(text)}")
        return value

    def integer(self, column: str, default: int | None = None, most: int = LARGEST, least: int = 0) -> int:
        """Return a whole number from `least` to `most`; ``1.0`` is one."""
        text = self.text(column)
        if not text and default is not None:
            return default
        try:
            value = int(text.removesuffix(".0"))
        except ValueError:
            raise self.error(column, f"a whole number expected, got {quoted(text)}") from None
        if value < least:
            raise self.error(column, f"a whole number >= {least} expected, got {quoted(text)}")
        if value > most:
            raise self.error(column, f"at most {most} expected, got {quoted(text)}")
        return value


@contextmanager
def _opened(path: Path, what: str) -> Iterator[io.TextIOWrapper]:
    """Open a file, gzipped or not; every error within becomes a TraceError."""
    try:
        with (
            gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as raw,
            io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as text,
        ):
            yield text
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"{path}: {error}") from None
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}{_undecodable(path)}: not a {what} file ({error.reason})") from None


def _undecodable(path: Path) -> str:
    """Return the line and column of the first byte of a file that is not UTF-8, in words; "" if it is not reached."""
    with suppress(OSError, EOFError, zlib.error), gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as raw:
        for number, line in enumerate(iter(partial(raw.readline, 4 * LONGEST), b""), 1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                return f", line {number}, column {len(line[: error.start].decode()) + 1}"
    return ""


def head(path: Path, most: int = HEAD) -> str:
    """Return the first characters of a file, decompressed; "" if it is not text, see `not_text`."""
    try:
        with _opened(path, "text") as text:
            return text.read(most)
    except TraceError as error:
        if isinstance(error.__context__, UnicodeDecodeError):
            return ""
        raise


def not_text(path: Path) -> str:
    """Return the place of the first byte of a file that is not UTF-8, and a remedy, in words; "" for text and directories."""
    try:
        place = "" if path.is_dir() or head(path) else _undecodable(path)
    except TraceError:
        return ""
    return place and f"{place}: neither text in UTF-8 nor Parquet; a table can be saved as CSV in UTF-8"


def text_lines(path: Path, limit: int = LIMIT) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file with their numbers; blank lines are skipped."""
    with _opened(path, "text") as text:
        for number, line in enumerate(_bounded(path, text, limit), 1):
            if stripped := line.strip():
                yield number, stripped


def _lines(
    path: Path, limit: int, delimiter: str = ",", remarks: list[str] | None = None
) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a CSV file, gzipped or not, with their line numbers; blank lines are skipped."""
    with _opened(path, "CSV") as text:
        lines = _bounded(path, text, limit)
        reader = csv.reader(
            lines if remarks is None else _without_remarks(lines, remarks),
            delimiter=delimiter,
            quoting=csv.QUOTE_MINIMAL if delimiter in ",;" else csv.QUOTE_NONE,
            strict=True,
        )
        while True:
            begin = reader.line_num + 1
            try:
                cells = next(reader, None)
            except csv.Error as error:
                raise TraceError(f"{path}, line {begin}: not a row of a CSV file ({error})") from None
            if cells is None:
                return
            if any(cells):
                yield reader.line_num, [cell.strip() for cell in cells]


def _without_remarks(lines: Iterator[str], remarks: list[str]) -> Iterator[str]:
    """Yield lines, with blank ones in place of those before the header that start with ``#``."""
    for line in lines:
        if not line.startswith("#"):
            yield line
            break
        remarks.append(line[1:].strip())
        yield "\n"
    yield from lines


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


def delimiter_of(line: str) -> str:
    """Return the character between the columns of a header: a comma, semicolon, tab or bar."""
    return max(",;\t|", key=line.count)


def named_rows(
    path: Path,
    columns: Sequence[str],
    limit: int = LIMIT,
    remarks: list[str] | None = None,
    delimiter: str = ",",
    skipped: list[str] | None = None,
) -> Iterator[Row]:
    """Yield the rows of a table with a header; lines before it that start with ``#`` go to `remarks`, if that is given.

    Messages about rows of another length go to `skipped`, if that is given.
    """
    lines = _lines(path, limit, delimiter, remarks)
    top, header = next(lines, (1, []))
    if not header:
        raise TraceError(f"{path}: the file is empty")
    missing = [c for c in columns if c not in header]
    if missing:
        raise TraceError(
            f"{path}, line {top}: no column {missing[0]!r}; the columns are {quoted(', '.join(header), 300)[1:-1]}"
        )
    if twice := next((c for i, c in enumerate(header) if c in header[:i]), None):
        raise TraceError(f"{path}, line {top}: column {quoted(twice)} occurs twice")
    for number, cells in lines:
        if len(cells) != len(header):
            wrong = f"{path}, line {number}: {len(header)} columns expected as in the header, got {len(cells)}"
            if skipped is None:
                raise TraceError(wrong)
            skipped.append(wrong)
            continue
        yield Row(path, number, dict(zip(header, cells, strict=True)), top)


def positional_rows(
    path: Path, columns: Sequence[str], least: int, limit: int = LIMIT, delimiter: str = ",", headed: bool | None = None
) -> Iterator[Row]:
    """Yield the rows of a table with columns known by their place.

    A first line that starts like a header, with a letter, is skipped; `headed`, if given, states that there is one or not.
    """
    for number, cells in _lines(path, limit, delimiter):
        if number == 1 and (not cells[0].isdigit() and any(map(str.isalpha, cells[0])) if headed is None else headed):
            continue
        if len(cells) < least:
            raise TraceError(
                f"{path}, line {number}: no column {columns[len(cells)]!r} ({least} columns expected, got {len(cells)})"
            )
        cells += [""] * (len(columns) - len(cells))
        yield Row(path, number, dict(zip(columns, cells, strict=False)))


def json_records(path: Path, limit: int = LIMIT) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a file of JSON lines, or of one JSON array, with the line on which each begins."""
    if not head(path).lstrip().startswith("["):
        for number, line in text_lines(path, limit):
            record, end = _decoded(path, number, line, 0)
            if end < len(line):
                raise TraceError(f"{path}, line {number}, column {end + 1}: the end of the line expected")
            yield number, _object(path, number, record)
        return
    with _opened(path, "JSON") as file:
        text = file.read(limit + 1)
    if len(text) > limit:
        raise TraceError(f"{path}: the file is larger than the limit of {limit} characters (limit)")
    number, at = 1, text.index("[")
    while True:
        begin = _BLANKS.match(text, at + 1).end()  # type: ignore[union-attr]  # it always matches
        number += text.count("\n", at, begin)
        if text[begin : begin + 1] == "]":
            return
        record, at = _decoded(path, number, text, begin)
        yield number, _object(path, number, record)
        end = _BLANKS.match(text, at).end()  # type: ignore[union-attr]
        number += text.count("\n", begin, end)
        if text[end : end + 1] != ",":
            if text[end : end + 1] == "]":
                return
            raise TraceError(f"{path}, line {number}: ',' or ']' expected after an object of the array")
        at = end


def json_document(path: Path, limit: int = LIMIT) -> dict[str, Any]:
    """Return the object that a file is."""
    with _opened(path, "JSON") as file:
        text = file.read(limit + 1)
    if len(text) > limit:
        raise TraceError(f"{path}: the file is larger than the limit of {limit} characters (limit)")
    return _object(path, 1, _decoded(path, 1, text, len(text) - len(text.lstrip()))[0])


def is_json(text: str) -> bool:
    """Return True if a text, or the `head` of a longer one, is one JSON document."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return len(text) == HEAD and (error.pos > HEAD - 256 or error.msg.startswith("Unterminated"))
    except (RecursionError, ValueError):
        return False
    return True


def _decoded(path: Path, number: int, text: str, at: int) -> tuple[Any, int]:
    """Return the JSON value at a place, and the place after it; errors count lines from `number`."""
    try:
        return _JSON.raw_decode(text, at)
    except json.JSONDecodeError as error:
        line = number + text.count("\n", at, error.pos)
        raise TraceError(f"{path}, line {line}, column {error.colno}: not JSON ({error.msg})") from None
    except (RecursionError, ValueError) as error:
        raise TraceError(f"{path}, line {number}: not JSON ({error})") from None


def _object(path: Path, number: int, record: Any) -> dict[str, Any]:
    if not isinstance(record, dict):
        raise TraceError(f"{path}, line {number}: a JSON object expected, got {quoted(record)}")
    return record


def cells_of(path: Path, line: int, record: Mapping[str, Any]) -> Row:
    """Return an object as a row: ``{"demand": {"cpu": 1}}`` has the column ``demand.cpu``, a list is joined by ``|``."""
    cells: dict[str, str] = {}
    for key, value in record.items():
        if isinstance(value, dict):
            cells |= {f"{key}.{name}": _cell(inner) for name, inner in value.items()}
        else:
            cells[key] = _cell(value)
    return Row(path, line, cells)


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return "|".join(NESTED if isinstance(one, list) else _cell(one) for one in value)
    if isinstance(value, dict):
        return NESTED
    return "" if value is None else str(value).strip()


_JSON, _BLANKS = json.JSONDecoder(), re.compile(r"\s*")


def plain_or_gzipped(path: Path) -> Path | None:
    """Return the file, or its gzipped form."""
    for candidate in (path, path.with_name(path.name + ".gz")):
        if candidate.is_file():
            return candidate
    return None
