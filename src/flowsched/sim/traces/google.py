"""The Google cluster traces of 2011 and 2019: tables of machine events and task events.

The columns of 2019: https://github.com/google/cluster-data, clusterdata_trace_format_v3.proto.  Its events are read as
those of the trace of 2011, whose codes they extend.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from flowsched.boundary.validate import quoted
from flowsched.cluster.events import Event, JobSubmitted, MachineAdded, MachineFailed, MachineUpdated
from flowsched.cluster.model import Machine, Task
from flowsched.exceptions import TraceError
from flowsched.sim.tables import Row, cells_of, head, json_records, named_rows, positional_rows
from flowsched.sim.traces.formats import TraceFormat, TraceOptions, TraceSource
from flowsched.sim.workload import Arrival, Trace

MACHINE_COLUMNS = ("time", "machine", "event", "platform", "cpu", "memory")
_TASK_COLUMNS = (
    "time", "missing", "job", "index", "machine", "event", "user",
    "class", "priority", "cpu", "memory", "disk", "different_machine",
)  # fmt: skip
_ADD, _REMOVE, _UPDATE = 0, 1, 2
_SUBMIT, _SCHEDULE, _EVICT, _FAIL, _FINISH, _KILL, _LOST = range(7)
_ENDS = (_FAIL, _FINISH, _KILL, _LOST)
_LAST_EVENT = 8
_BEST_PRIORITY = 11
_AFTER_THE_TRACE = 2**63 - 1
_KINDS = (".json", ".json.gz", ".jsonl", ".jsonl.gz", ".csv", ".csv.gz")

_EVENTS = {
    "SUBMIT": 0, "QUEUE": 7, "ENABLE": 7, "SCHEDULE": 1, "EVICT": 2, "FAIL": 3, "FINISH": 4, "KILL": 5, "LOST": 6,
    "UPDATE_PENDING": 7, "UPDATE_RUNNING": 8,
}  # fmt: skip
"""Events of instances, in the order of their numbers in 2019 -> their numbers of 2011; 7 and 8 change nothing."""

_MACHINE_EVENTS = {"EVENT_TYPE_UNKNOWN": 3, "ADD": 0, "REMOVE": 1, "UPDATE": 2}
_COLLECTIONS = {"JOB": 0, "ALLOC_SET": 1}

_TIERS = (360, 120, 116, 100)
"""Lowest priorities of the tiers monitoring, production, mid and batch; lower ones are the free tier."""

_BEST_2011 = 11

_NAMES = {
    "event": "type", "job": "collection_id", "index": "instance_index", "machine": "machine_id",
    "cpu": "resource_request.cpus", "memory": "resource_request.memory",
}  # fmt: skip
_MACHINE_NAMES = {
    "event": "type", "machine": "machine_id", "platform": "platform_id", "rack": "switch_id", "cpu": "capacity.cpus",
    "memory": "capacity.memory",
}  # fmt: skip


@dataclass(slots=True)
class _GoogleTask:
    """One task of the Google trace; times in microseconds, demand as first submitted."""

    user: str
    priority: int
    cpu: float
    memory: float
    submitted: int
    begun: int | None = None
    ended: int | None = None


def event_files(directory: Path, table: str, kinds: tuple[str, ...] = (".csv", ".csv.gz")) -> list[Path]:
    """Return the files of a table: ``task_events.csv``, ``task-events-sample-1.csv``, ``task_events/part-00000.csv.gz``."""
    found = []
    for entry in sorted(directory.iterdir()):
        if not entry.name.replace("-", "_").startswith(f"{table}_events"):
            continue
        files = sorted(entry.iterdir()) if entry.is_dir() else [entry]
        found += [f for f in files if f.name.endswith(kinds)]
    return found


def _recognises(source: TraceSource) -> bool:
    return any(name.replace("-", "_").startswith("task_events") for name in source.names)


def _read(source: TraceSource, options: TraceOptions) -> Trace:
    directory = source.path
    tables = {table: event_files(directory, table) for table in ("machine", "task")}
    if options.machines is not None:
        tables["machine"] = []
    for table, files in tables.items():
        if not files and (table == "task" or options.machines is None):
            raise TraceError(f"{directory}: no {table}_events (.csv or .csv.gz)")
    machines = (r for f in tables["machine"] for r in positional_rows(f, MACHINE_COLUMNS, 3, options.limit))
    tasks = (r for f in tables["task"] for r in positional_rows(f, _TASK_COLUMNS, 6, options.limit))
    return of_events("Google 2011", source.path, tables["machine"], machines, tables["task"], tasks)


def of_events(
    name: str,
    path: Path,
    machine_files: list[Path],
    machine_rows: Iterable[Row],
    task_files: list[Path],
    task_rows: Iterable[Row],
    notes: list[str] | None = None,
) -> Trace:
    """Return the trace of a cell's events, in the columns and codes of 2011; `notes` may grow while rows are read."""
    machines, events, _ = machines_of(machine_rows)
    tasks, different, horizon = _google_tasks(task_rows)
    if machine_files and not machines and not any(isinstance(e, MachineAdded) for e in events):
        raise TraceError(f"{machine_files[0]}: no machine is ever added")
    if not tasks:
        raise TraceError(f"{task_files[0]}: no task is ever submitted")
    rank = {job: i for i, job in enumerate(dict.fromkeys(job for job, _ in tasks))}
    order = sorted(tasks, key=lambda key: (tasks[key].submitted, rank[key[0]], key[1]))
    arrivals = []
    for (submitted, job), keys in groupby(order, key=lambda key: (tasks[key].submitted, key[0])):
        group = list(keys)
        first = tasks[group[0]]
        arrivals.append(
            Arrival(
                submitted / 1e6,
                JobSubmitted(
                    job,
                    tuple(Task(f"{job}-{key[1]}", {"cpu": tasks[key].cpu, "mem": tasks[key].memory}) for key in group),
                    user=first.user or None,
                    priority=_BEST_PRIORITY - first.priority,
                ),
                tuple(_google_duration(tasks[key], horizon) for key in group),
            )
        )
    endless = sum(t.ended is None for t in tasks.values())
    unscheduled = sum(t.begun is None for t in tasks.values())
    notes = [] if notes is None else notes
    if endless:
        notes.append(f"{endless} tasks have no end in the trace; they run as long as they did until its end")
    if unscheduled:
        notes.append(
            f"{unscheduled} tasks were never scheduled in the original cluster; they run from submission to end here"
        )
    if different:
        notes.append(f"{len(different)} jobs want their tasks on different machines; this is recorded, not enforced")
    return Trace(
        name,
        arrivals,
        machines,
        events,
        resources=("cpu", "mem"),
        units={},
        facts={"source": str(path)},
        different_machine=frozenset(different),
        notes=tuple(notes),
    )


def _google_duration(task: _GoogleTask, horizon: int) -> float:
    begun = task.submitted if task.begun is None else task.begun
    return max((horizon if task.ended is None else task.ended) - begun, 0) / 1e6


def machines_of(rows: Iterable[Row]) -> tuple[list[Machine], list[Event], list[Row]]:
    """Return the machines that are there from the start, the later events of machines, and the rows of both."""
    rows = sorted(rows, key=lambda row: row.integer("time", most=_AFTER_THE_TRACE))
    machines: dict[str, Machine] = {}
    events: list[Event] = []
    started: dict[str, Row] = {}
    later: list[Row] = []
    capacity: dict[str, dict[str, float]] = {}
    up: set[str] = set()
    for row in rows:
        name, when, kind = row.text("machine"), row.integer("time", most=_AFTER_THE_TRACE), row.integer("event")
        if kind not in (_ADD, _REMOVE, _UPDATE):
            raise row.error("event", f"0 (ADD), 1 (REMOVE) or 2 (UPDATE) expected, got {kind}")
        if kind != _ADD and name not in up:
            raise row.error("machine", f"machine {quoted(name)} is removed or updated, but not there")
        if kind == _REMOVE:
            up.discard(name)
            later.append(row)
            events.append(MachineFailed(name, time=when / 1e6))
            continue
        known = capacity.get(name, {"cpu": 0.0, "mem": 0.0})
        capacity[name] = {"cpu": row.number("cpu", known["cpu"]), "mem": row.number("memory", known["mem"])}
        labels = {"platform": row.text("platform")} if row.text("platform") else {}
        rack = row.text("rack") or None
        if when == 0 and name not in machines:
            machines[name], started[name] = Machine(name, capacity[name], rack, labels), row
        else:
            later.append(row)
            if name in up:
                events.append(MachineUpdated(name, capacity[name], time=when / 1e6))
            else:
                events.append(MachineAdded(name, capacity[name], rack, labels, time=when / 1e6))
        up.add(name)
    return list(machines.values()), events, [*started.values(), *later]


def _google_tasks(rows: Iterable[Row]) -> tuple[dict[tuple[str, int], _GoogleTask], set[Hashable], int]:
    """Return tasks by job and index, jobs with the different-machine constraint, and the last time stamp."""
    tasks: dict[tuple[str, int], _GoogleTask] = {}
    different: set[Hashable] = set()
    horizon = 0
    for row in rows:
        when, kind = row.integer("time", most=_AFTER_THE_TRACE), row.integer("event")
        if kind > _LAST_EVENT:
            raise row.error("event", f"0 to {_LAST_EVENT} expected, got {kind}")
        if when >= _AFTER_THE_TRACE:
            continue
        horizon = max(horizon, when)
        key = row.text("job"), row.integer("index")
        if key not in tasks:
            priority = row.integer("priority", default=0)
            if priority > _BEST_PRIORITY:
                raise row.error("priority", f"0 to {_BEST_PRIORITY} expected, got {priority}")
            cpu, memory = row.number("cpu", default=0.0), row.number("memory", default=0.0)
            tasks[key] = _GoogleTask(row.text("user"), priority, cpu, memory, when)
        task = tasks[key]
        if row.integer("different_machine", default=0):
            different.add(key[0])
        if kind == _SCHEDULE:
            task.begun, task.ended = when, None
        elif kind in _ENDS:
            task.ended = when
        elif kind == _SUBMIT:
            task.ended = None
    return tasks, different, horizon


GOOGLE_2011 = TraceFormat("google2011", "a Google 2011 trace", _recognises, _read)


class _Row2011(Row):
    """A row of 2019 under the names of 2011; errors say the names of 2019."""

    def __init__(self, row: Row, names: Mapping[str, str], **cells: Any) -> None:
        self._names = names
        mine = {old: row.text(new) or row.text(new.replace(".", "_")) for old, new in names.items()}
        super().__init__(row.path, row.line, {"time": row.text("time"), **mine, **cells})

    def error(self, column: str, message: str) -> TraceError:
        return super().error(self._names.get(column, column), message)


def _recognises_2019(source: TraceSource) -> bool:
    if source.names:
        return any(name.startswith("instance_events") for name in source.names)
    return {"collection_id", "instance_index"} <= ({*source.record} or {*source.header})


def _read_2019(source: TraceSource, options: TraceOptions) -> Trace:
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


GOOGLE_2019 = TraceFormat("google2019", "a Google 2019 trace", _recognises_2019, _read_2019)
