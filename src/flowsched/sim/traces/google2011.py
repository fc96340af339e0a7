"""The Google 2011 cluster trace: tables of machine events and task events."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from flowsched.boundary.validate import quoted
from flowsched.cluster.events import Event, JobSubmitted, MachineAdded, MachineFailed, MachineUpdated
from flowsched.cluster.model import Machine, Task
from flowsched.exceptions import TraceError
from flowsched.sim.tables import Row, positional_rows
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
