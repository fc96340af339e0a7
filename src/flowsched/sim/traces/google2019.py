"""The Google 2019 cluster traces: tables of instance events and machine events, as JSON lines or CSV.

Their columns: https://github.com/google/cluster-data, clusterdata_trace_format_v3.proto.  Events are read as those of the
trace of 2011, whose codes they extend.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from flowsched.exceptions import TraceError
from flowsched.sim.tables import Row, cells_of, head, json_records, named_rows
from flowsched.sim.traces.formats import TraceFormat, TraceOptions, TraceSource
from flowsched.sim.traces.google2011 import event_files, of_events
from flowsched.sim.workload import Trace

_KINDS = (".json", ".json.gz", ".jsonl", ".jsonl.gz", ".csv", ".csv.gz")

_EVENTS = {
    "SUBMIT": 0, "QUEUE": 7, "ENABLE": 7, "SCHEDULE": 1, "EVICT": 2, "FAIL": 3, "FINISH": 4, "KILL": 5, "LOST": 6,
    "UPDATE_PENDING": 7, "UPDATE_RUNNING": 8,
}  # fmt: skip
"""Events of instances, in the order of their numbers in 2019 -> their numbers of 2011; 7 and 8 change nothing."""

_MACHINE_EVENTS = {"EVENT_TYPE_UNKNOWN": 3, "ADD": 0, "REMOVE": 1, "UPDATE": 2}
_COLLECTIONS = {"JOB": 0, "ALLOC_SET": 1}

_TIERS = (360, 120, 116, 100)
"""Lowest priorities of the tiers monitoring, production, mid and batch; what is below is the free tier."""

_BEST_2011 = 11

_NAMES = {
    "event": "type", "job": "collection_id", "index": "instance_index", "machine": "machine_id",
    "cpu": "resource_request.cpus", "memory": "resource_request.memory",
}  # fmt: skip
_MACHINE_NAMES = {
    "event": "type", "machine": "machine_id", "platform": "platform_id", "rack": "switch_id", "cpu": "capacity.cpus",
    "memory": "capacity.memory",
}  # fmt: skip


class _Row2011(Row):
    """A row of 2019 under the names of 2011; errors say the names of 2019."""

    def __init__(self, row: Row, names: Mapping[str, str], **cells: Any) -> None:
        self._names = names
        mine = {old: row.text(new) or row.text(new.replace(".", "_")) for old, new in names.items()}
        super().__init__(row.path, row.line, {"time": row.text("time"), **mine, **cells})

    def error(self, column: str, message: str) -> TraceError:
        return super().error(self._names.get(column, column), message)


def _recognises(source: TraceSource) -> bool:
    if source.names:
        return any(name.startswith("instance_events") for name in source.names)
    return {"collection_id", "instance_index"} <= ({*source.record} or {*source.header})


def _read(source: TraceSource, options: TraceOptions) -> Trace:
    path = source.path
    directory = path if path.is_dir() else path.parent
    instances = event_files(path, "instance", _KINDS) if path.is_dir() else [path]
    machines = [] if options.machines is not None else event_files(directory, "machine", _KINDS)
    if not machines and options.machines is None:
        raise TraceError(f"{directory}: no machine_events (.json or .csv); they must be there, or machines be given")
    users = {
        row.text("collection_id"): row.text("user")
        for row in _rows(event_files(directory, "collection", _KINDS), ("collection_id",), options.limit)
    }
    notes: list[str] = []
    return of_events(
        "Google 2019",
        path,
        machines,
        machine_rows(machines, options.limit),
        instances,
        _tasks(_rows(instances, ("time", "type", "collection_id", "instance_index"), options.limit), users, notes),
        notes,
    )


def machine_rows(files: Iterable[Path], limit: int) -> Iterator[Row]:
    """Yield the events of machines under the names of 2011."""
    for row in _rows(files, ("time", "machine_id", "type"), limit):
        yield _Row2011(row, _MACHINE_NAMES, event=_code(row, "type", _MACHINE_EVENTS))


def _rows(files: Iterable[Path], columns: tuple[str, ...], limit: int) -> Iterator[Row]:
    for file in files:
        text = head(file, 64).lstrip()
        if text and text[0] not in "{[":
            yield from named_rows(file, columns, limit)
        else:
            for line, record in json_records(file, limit):
                row = cells_of(file, line, record)
                if missing := next((c for c in columns if not row.text(c)), None):
                    raise row.error(missing, "it is missing")
                yield row


def _tasks(rows: Iterable[Row], users: Mapping[str, str], notes: list[str]) -> Iterator[Row]:
    """Yield the events of tasks; those of alloc sets are left out."""
    count: Counter[str] = Counter()
    for row in rows:
        if int(_code(row, "collection_type", _COLLECTIONS, "0")):
            count["alloc"] += 1
            continue
        priority = row.integer("priority", default=0)
        tier = next((i for i, least in enumerate(_TIERS) if priority >= least), len(_TIERS))
        yield _Row2011(
            row,
            _NAMES,
            event=_code(row, "type", _EVENTS),
            priority=str(_BEST_2011 - tier),
            user=users.get(row.text("collection_id"), ""),
        )
    if count["alloc"]:
        notes.append(f"{count['alloc']} events concern alloc sets, which are left out; their tasks are not")


def _code(row: Row, column: str, codes: Mapping[str, int], default: str = "") -> str:
    """Return the number of 2011 of an event that is given by its name or its number of 2019."""
    text = row.text(column).upper() or default
    if text.isdecimal() and int(text) < len(codes):
        text = list(codes)[int(text)]
    if text not in codes:
        raise row.error(column, f"0 to {len(codes) - 1}, or one of {', '.join(codes)} expected, got {text!r:.80}")
    return str(codes[text])


GOOGLE_2019 = TraceFormat("google2019", "a Google 2019 trace", _recognises, _read)
