"""Formats of traces: recognition and reading.

A reader makes a `Trace` of a file or directory.  A `TraceError` names file, line and column of data that it does not
understand.  The trace's notes count the omissions and assumptions.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from flowsched.cluster.model import Machine
from flowsched.sim.tables import LIMIT, delimiter_of, head
from flowsched.sim.workload import QOS_PRIORITY, Trace


@dataclass(frozen=True)
class TraceSource:
    """A file or directory that may hold a trace.

    Parameters
    ----------
    path : Path
        It exists.

    Attributes
    ----------
    names : list of str
        Names of the files in a directory, sorted; empty for a file.
    text : str
        The first 65,536 characters of a file, decompressed; "" for a directory, and for a file that is not UTF-8 text.
    header : list of str
        Cells of the first line that is neither blank nor begins with ``#``, as of a CSV file.
    record : dict
        The first JSON object of a file of JSON lines, or of an array; {} where there is none.
    """

    path: Path

    @cached_property
    def names(self) -> list[str]:
        return sorted(entry.name for entry in self.path.iterdir()) if self.path.is_dir() else []

    @cached_property
    def text(self) -> str:
        return "" if self.path.is_dir() else head(self.path)

    @cached_property
    def line(self) -> str:
        """The first line that is neither blank nor begins with ``#``."""
        lines = (line.strip() for line in self.text.splitlines())
        return next((line for line in lines if line and not line.startswith("#")), "")

    @cached_property
    def header(self) -> list[str]:
        try:
            return [cell.strip() for cell in next(csv.reader([self.line], delimiter=delimiter_of(self.line)), [])]
        except csv.Error:
            return []

    @cached_property
    def record(self) -> dict[str, Any]:
        text = self.text.lstrip().removeprefix("[").lstrip()
        if not text.startswith("{"):
            return {}
        try:
            return dict(json.JSONDecoder().raw_decode(text)[0])
        except (ValueError, RecursionError):
            return {}


@dataclass(frozen=True)
class TraceOptions:
    """Options of `load_trace`: its arguments other than the path.

    Attributes
    ----------
    variant : str or None
        One of the format's variants; None for its default.
    qos_priority : mapping of str to int
        Priority of each quality-of-service class of an openb trace.
    limit : int
        Largest number of characters of a file, after decompression.
    machines : sequence of Machine or None
        Replacement for the trace's machines, after it has been read.
    columns : mapping of str to str
        Names of columns in a table, by those that flowsched uses.
    skip_bad : bool
        Skip rows that cannot be read, with a note, instead of raising TraceError.
    """

    variant: str | None = None
    qos_priority: Mapping[str, int] = field(default_factory=lambda: QOS_PRIORITY)
    limit: int = LIMIT
    machines: Sequence[Machine] | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    skip_bad: bool = False


@dataclass(frozen=True)
class TraceFormat:
    """A format of traces: the entry of a reader in `TRACE_FORMATS`.

    Parameters
    ----------
    name : str
        Name of the format, as in the `format` of `load_trace`.
    title : str
        Name in messages.
    recognises : callable
        True for a `TraceSource` that looks like one of this format, by contents, not by names of files.
    read : callable
        Returns the `Trace` of a `TraceSource`, given the `TraceOptions`.
    variants : sequence of str or None
        Known variants; None if they depend on the trace.
    """

    name: str
    title: str
    recognises: Callable[[TraceSource], bool]
    read: Callable[[TraceSource, TraceOptions], Trace]
    variants: Sequence[str] | None = ()
