"""The lines of an export, one by one: numbered, checked against their checksum, and refused by number.

See `flowsched.journal.export` for the format.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO, NoReturn
from zlib import crc32

from flowsched.exceptions import CorruptJournalError, FlowschedError, JournalError, JournalMismatchError
from flowsched.journal.engine import Line
from flowsched.journal.export import DIGITS, FORMAT
from flowsched.journal.records import Header

__all__ = ["LineReader", "opened"]

_HUGE = re.compile(rb"[0-9]{%d}" % DIGITS)

_NONSENSE = (
    TypeError, ValueError, LookupError, AttributeError, ArithmeticError, AssertionError, RecursionError, MemoryError,
)  # fmt: skip
"""What comes of values that agree with their checksum and still make no sense."""


@contextmanager
def opened(source: bytes | str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file with a state, or its contents, compressed by gzip or not, for reading line by line."""
    with io.BytesIO(source) if isinstance(source, bytes) else open(source, "rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        if packed:
            with gzip.open(raw) as file:
                yield file  # type: ignore[misc]
        else:
            yield raw


class LineReader:
    """Lines of JSON with their numbers, and a checksum.

    Parameters
    ----------
    lines : iterable of bytes
        Each ends with a line feed.
    path : str
    offset : int or None
        Where the lines begin in a journal; path and offset are for error messages.

    Attributes
    ----------
    number : int
        Of the present line, from 1.
    head : Line
        The first line.
    """

    def __init__(self, lines: Iterable[bytes], path: str, offset: int | None) -> None:
        self.path, self.offset = path, offset
        self.number = 0
        self.head: Line = {}
        self._lines = iter(lines)
        self._chain = 0
        self._minor = 0
        self._said: JournalError | None = None

    def refuse(self, message: str, kind: type[JournalError] = JournalMismatchError) -> NoReturn:
        """Raise an error that names the present line."""
        self._said = kind(f"line {self.number}: {message}", self.path, self.offset)
        raise self._said from None

    @contextmanager
    def checked(self) -> Iterator[None]:
        """Turn every error meanwhile into one that names the present line."""
        try:
            yield
        except FlowschedError as error:
            if error is self._said:
                raise
            self.refuse(str(error.args[0] if isinstance(error, JournalError) else error))
        except KeyError as error:
            self.refuse(f"{error} is missing")
        except _NONSENSE as error:
            self.refuse(f"a value that does not belong there: {type(error).__name__}: {error}")

    def read_head(self) -> Header:
        """Read the first line."""
        head = next(self._objects(), None)
        if head is None or head.get("is") != "flowsched":
            self.refuse('a state begins with a line that is "flowsched"')
        version = head.get("format")
        if (
            not isinstance(version, list)
            or len(version) != 2
            or any(type(part) is not int or part < 0 for part in version)
        ):
            self.refuse(f"format: two numbers expected, got {version!r}")
        if version[0] != FORMAT[0]:
            self.refuse(f"a state of format {version[0]}.{version[1]}; format {FORMAT[0]} is read here")
        self.head, self._minor = head, version[1]
        with self.checked():
            resources = head["resources"]
            if not isinstance(resources, list):
                self.refuse(f"resources: names expected, got {resources!r}")
            header = Header(
                str(head.get("version", "")), tuple(resources), head.get("device"), head.get("seed", 0), head["policy"],
                head.get("adapter"),
            )  # fmt: skip
            _ = header.cluster_resources, header.of
        return header

    def rows(self, known: Mapping[str, Any]) -> Iterator[Line]:
        """Yield the lines between the first and the last, as far as they are of a known kind."""
        for line in self._objects():
            kind = line.get("is")
            if kind == "end":
                if line.get("lines") != self.number - 1:
                    self.refuse(f"{line.get('lines')!r} lines were written before this one", CorruptJournalError)
                if line.get("crc") is not None and line["crc"] != self._before:
                    self.refuse(
                        "the lines before this one are not those that were written: wrong checksum", CorruptJournalError
                    )
                if next(self._objects(), None) is not None:
                    self.refuse("a line after the last one", CorruptJournalError)
                return
            if isinstance(kind, str) and kind in known:
                yield line
            elif self._minor <= FORMAT[1]:
                self.refuse(f"nothing is a {kind!r}")
        self.number += 1
        self.refuse("the file ends before its last line", CorruptJournalError)

    def _objects(self) -> Iterator[Line]:
        while True:
            try:
                text = next(self._lines, None)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                self.number += 1
                self.refuse(f"the compressed file is damaged: {error}", CorruptJournalError)
            if text is None:
                return
            self.number += 1
            if not text.endswith(b"\n"):
                self.refuse("the file ends within a line", CorruptJournalError)
            try:
                line = json.loads(text.decode("utf-8"), parse_int=_whole if _HUGE.search(text) else None)
            except (ValueError, RecursionError) as error:
                self.refuse(f"no JSON: {error}", CorruptJournalError)
            if not isinstance(line, dict):
                self.refuse(f"a JSON object expected, got a {type(line).__name__}")
            self._before, self._chain = self._chain, crc32(text, self._chain)
            yield line


def _whole(digits: str) -> int:
    """Read a whole number no larger than floats are."""
    if len(digits) > DIGITS:
        raise ValueError(f"a whole number of {len(digits)} digits")
    return int(digits)
