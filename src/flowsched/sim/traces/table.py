"""Traces in columns: the CSV and JSON lines that flowsched reads and writes (`flowsched.sim.traces.table`); `COLUMNS` and `MACHINE_COLUMNS` list them.

A task is a row.  In CSV the machines are another table in the same directory: ``x.machines.csv`` of ``x.csv``.  In JSON
lines they are lines among the others, objects may nest (``{"demand": {"cpu": 1}}`` is the column ``demand.cpu``), and a list
is the same as its values joined by ``|``.  A fact about the whole trace is a line ``# KEY: VALUE`` before the header of a CSV
file; in JSON lines the first line is ``{"trace": ...}``.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from flowsched.boundary.files import replace
from flowsched.boundary.units import cores, date, mebibytes, moment, seconds
from flowsched.boundary.validate import nearest, quoted
from flowsched.cluster.events import (
    Event,
    JobSubmitted,
    MachineAdded,
    MachineDrained,
    MachineFailed,
    MachineRemoved,
    MachineUpdated,
)
from flowsched.cluster.model import LARGEST, MOST_DEVICES, Machine, Task
from flowsched.exceptions import InputError, TraceError
from flowsched.sim.metrics import parquet_modules
from flowsched.sim.tables import LIMIT, NESTED, Row, cells_of, delimiter_of, json_records, named_rows, plain_or_gzipped
from flowsched.sim.traces.formats import TraceFormat, TraceOptions, TraceSource
from flowsched.sim.workload import LATEST, Arrival, Trace, Workload, in_order

COLUMNS = (
    "task", "job", "arrival", "duration", "user", "priority", "gang", "deadline", "estimate", "kind", "apart", "after",
)  # fmt: skip
"""Columns of tasks other than amounts (``cpu``, ``mem``, ``gpu``, ``demand.NAME``), labels (``constraint.NAME``), run times by
GPU model (``duration.MODEL``) and input by machine (``data.MACHINE``)."""

MACHINE_COLUMNS = ("machine", "time", "event", "until", "rack", "slots")
"""Columns of machines other than amounts (``cpu``, ``mem``, ``gpu``, ``capacity.NAME``) and labels (``label.NAME``)."""

AMOUNTS = ("cpu", "mem", "gpu")
EVENTS = {
    "add": MachineAdded, "update": MachineUpdated, "drain": MachineDrained, "fail": MachineFailed, "remove": MachineRemoved,
}  # fmt: skip
_ENDING = ("drain", "fail", "remove")
"""Events that may have an end: the machine takes tasks again, or comes back."""

_UNITS = {"cpu": "cores", "mem": "MiB", "gpu": "GPUs"}
_SHARED = ("user", "priority", "gang", "deadline")
"""Columns that are the same for all tasks of a job."""

_WORST = 2**31


def is_column(name: str) -> bool:
    """Return True for a column of tasks."""
    kind, _, rest = name.partition(".")
    return name in COLUMNS or name in AMOUNTS or (bool(rest) and kind in ("demand", "constraint", "duration", "data"))


class Reader:
    """Rows of tasks and machines, as they come, and the trace that they make.

    `known` are machines that are there from the start, in addition to those of the rows, and `resources` the only ones
    that rows may name; None for any.
    """

    _units: ClassVar[dict[str, Callable[[str], float]]] = {"cpu": cores, "mem": mebibytes}

    def __init__(
        self,
        path: Path | str,
        known: Collection[Hashable] = (),
        resources: Collection[str] | None = None,
        options: TraceOptions | None = None,
    ) -> None:
        self.path = path
        self.options = options or TraceOptions()
        self.resources: dict[str, None] = {}
        self.machines: list[Machine] = []
        self.facts: dict[str, Any] = {}
        self.run_times: dict[Hashable, dict[str, float]] = {}
        self._jobs: dict[tuple[float, str, str], _Job] = {}
        """By arrival, job, and the tasks that have to complete before."""
        self._dated = False  # arrivals and deadlines are dates
        self._unused: dict[str, None] = {}
        self.bad: list[str] = []
        self._lines: dict[str, int] = {}
        self._known = {*known}
        self._allowed = resources
        self._events: list[tuple[Row, Event]] = []

    def take(self, row: Row) -> None:
        """Take a row of a task by the options: with columns of other names, or skipped if it is bad."""
        if self.options.columns:
            given = {*self.options.columns.values()}
            self._unused |= dict.fromkeys(name for name in row.names() if name not in given and not is_column(name))
            row = row.renamed(self.options.columns, is_column)
        try:
            self.task(row)
        except TraceError as error:
            if not self.options.skip_bad:
                raise
            self.bad.append(str(error))

    def task(self, row: Row) -> None:
        """Take a row of a task."""
        name = row.text("task") or f"t{len(self._lines)}"
        if name in self._lines:
            raise row.error("task", f"task {quoted(name)} occurs twice, first in line {self._lines[name]}")
        run_times: dict[str, float] = {}
        models = [column for column in row.filled() if column.startswith("duration.")]
        sources = [column for column in row.filled() if column.startswith("data.")]
        demand, constraints = self._columns(row, (*COLUMNS, *models, *sources), "demand", "constraint")
        duration = row.number("duration", most=LATEST, endless=not models, read=seconds)
        if models:
            for column in ("duration", *models):
                if not row.number(column, most=LATEST, read=seconds) > 0:
                    raise row.error(column, "a number > 0 expected where run times depend on the GPU model")
            run_times = {c.partition(".")[2]: row.number(c, most=LATEST, read=seconds) for c in models}
        details: dict[str, Any] = {}
        if constraints:
            details["constraints"] = {label: values.split("|") for label, values in constraints.items()}
        if row.text("kind"):
            details["kind"] = row.text("kind")
        if sources:
            details["data"] = {column.partition(".")[2]: row.number(column) for column in sources}
        if row.text("apart"):
            details["apart"] = row.integer("apart", least=1)
        if row.text("estimate"):
            details["duration"] = row.number("estimate", most=LATEST, read=seconds)
        task = Task(name, demand, **details)
        key = self._time(row, "arrival"), row.text("job") or name, row.text("after")
        job = self._jobs.get(key)
        if job is None:
            job = _Job(row)
        for column in _SHARED:
            if (text := job.row.text(column)) != row.text(column):
                raise row.error(
                    column,
                    f"job {quoted(key[1])} has {quoted(text)} in {row.kind} {job.row.line}, got {quoted(row.text(column))}",
                )
        self._jobs[key] = job
        if run_times:
            self.run_times[name] = run_times
        self._lines[name] = row.line
        self.resources |= dict.fromkeys(demand)
        job.tasks.append(task)
        job.durations.append(duration)

    def _time(self, row: Row, column: str) -> float:
        """Return a time in seconds; all of a trace are numbers, or all are dates."""
        try:
            float(row.text(column))
            dated = False
        except ValueError:
            dated = True
        if not self._lines and column == "arrival":
            self._dated = dated
        elif dated != self._dated:
            raise row.error(
                column,
                f"{('a number of seconds', 'a date')[not dated]} expected as in the first row, got {quoted(row.text(column))}",
            )
        return (
            row.number(column, most=math.inf, least=-math.inf, read=moment)
            if dated
            else row.number(column, most=LATEST)
        )

    def machine(self, row: Row) -> None:
        """Take a row of a machine."""
        name, kind = row.text("machine"), row.text("event") or "add"
        if not name:
            raise row.error("machine", "it is missing")
        if kind not in EVENTS:
            raise row.error("event", f"{', '.join(EVENTS)} expected, got {quoted(kind)}")
        capacity, labels = self._columns(row, MACHINE_COLUMNS, "capacity", "label")
        self.resources |= dict.fromkeys(capacity)
        slots = row.integer("slots") if row.text("slots") else None
        rack, when = row.text("rack") or None, row.number("time", most=LATEST) if row.text("time") else None
        until = row.number("until", most=LATEST) if row.text("until") else None
        if until is not None and (kind not in _ENDING or when is None or until <= when):
            raise row.error("until", f"a later time of a row with a time and {', '.join(_ENDING)} expected")
        if when is None:
            if kind != "add":
                raise row.error("time", f"a time expected, since the event is {kind!r}")
            if name in self._known:
                raise row.error("machine", f"machine {quoted(name)} occurs twice")
            self._known.add(name)
            self.machines.append(Machine(name, capacity, rack, labels, slots))
            return
        if kind == "add":
            event: Event = MachineAdded(name, capacity, rack, labels, slots, time=when)
        elif kind == "update":
            event = MachineUpdated(name, capacity or None, rack, labels or None, slots, time=when)
        else:
            event = EVENTS[kind](name, time=when)
        self._events.append((row, event))
        if until is not None:
            back = MachineUpdated(name, time=until) if kind == "drain" else MachineAdded(name, {}, time=until)
            self._events.append((row, back))

    def events(self, machines: Sequence[Machine] = (), others: Sequence[Event] = ()) -> list[Event]:
        """Return the events of machines in the order of time: those of the rows, of `machines` and of `others`."""

        def error(i: int, message: str) -> TraceError:
            at = i - len(others)
            return self._events[at][0].error("machine", message) if at >= 0 else TraceError(f"{self.path}: {message}")

        return in_order([*machines, *self.machines], [*others, *(event for _, event in self._events)], error)

    def fact(self, row: Row, key: str, text: str) -> None:
        """Take a fact about the whole trace."""
        if key == "trace":
            self.facts["name"] = text
        elif key == "note":
            self.facts.setdefault("notes", []).append(text)
        elif key == "horizon":
            self.facts["horizon"] = row.number(key, most=LATEST)
        elif key == "resources":
            self.facts[key] = text.split("|")
        elif key.startswith("unit."):
            self.facts.setdefault("units", {})[key.removeprefix("unit.")] = text

    def trace(self) -> Trace:
        """Return the trace of all rows."""
        if not self._jobs:
            raise TraceError(f"{self.path}: no task")
        if not self.resources:
            line = min(self._lines.values())
            raise TraceError(
                f"{self.path}, line {line}: no column of an amount, such as cpu, mem, gpu or demand.NAME, here or below"
            )
        declared = self.facts.get("resources")
        first = declared or [name for name in AMOUNTS if name in self.resources]
        resources = tuple(dict.fromkeys([*first, *self.resources]))
        origin = min(self._jobs)[0] if self._dated else 0.0
        for job in self._jobs.values():
            for task in job.after:
                if task not in self._lines:
                    raise job.row.error("after", f"there is no task {quoted(task)}")
        arrivals = [
            job.arrival(time - origin, name, lambda row: self._time(row, "deadline") - origin)
            for (time, name, _), job in self._jobs.items()
        ]
        units = self.facts.get("units", {} if declared else {n: _UNITS[n] for n in resources if n in _UNITS})
        return Trace(
            self.facts.get("name", Path(self.path).name.split(".")[0]),
            arrivals,
            self.machines,
            self.events(),
            resources=resources,
            units=units,
            horizon=self.facts.get("horizon"),
            facts={"source": str(self.path)},
            notes=(*self.facts.get("notes", ()), *self._remarks()),
            run_times=self.run_times,
        )

    def _remarks(self) -> Iterator[str]:
        """Yield what the reader assumed and left out."""
        if self._dated:
            yield f"times are counted from the first arrival, {date(min(self._jobs)[0])}"
        if self._unused:
            yield f"columns that are not used: {', '.join(self._unused)}"
        if self.bad:
            yield f"{len(self.bad):,} rows are skipped; the first: {self.bad[0]}"

    def _columns(
        self, row: Row, known: tuple[str, ...], amount: str, label: str
    ) -> tuple[dict[str, float], dict[str, str]]:
        """Return the amounts and the labels of a row; every other column must be known."""
        amounts: dict[str, float] = {}
        labels: dict[str, str] = {}
        for column in row.filled():
            kind, dot, name = column.partition(".")
            if NESTED in row.text(column):
                raise row.error(column, "a value, or a list of plain values expected")
            if column in AMOUNTS or (dot and name and kind == amount):
                name = name or column
                if self._allowed is not None and name not in self._allowed:
                    raise row.error(column, f"the workload's resources are {', '.join(self._allowed)}")
                devices = name == "gpu" and amount == "capacity"
                read = self._units.get(name, float)
                amounts[name] = row.number(column, most=MOST_DEVICES if devices else LARGEST, read=read)
                if name == "gpu" and amounts[name] % 1 and (amount == "capacity" or amounts[name] > 1):
                    share = "" if amount == "capacity" else "a share of one GPU or "
                    raise row.error(column, f"{share}a whole number of GPUs expected, got {amounts[name]:g}")
            elif dot and name and kind == label:
                labels[name] = row.text(column)
            elif column not in known:
                names = (*known, *AMOUNTS)
                raise Row(row.path, row.header, {}, kind=row.kind).error(
                    column,
                    f"unknown; known are {', '.join(names)}, {amount}.NAME and {label}.NAME{nearest(column, names)}",
                )
        return amounts, labels


class _Job:
    """Tasks of a job that arrive at one time, and the properties of the job in their rows."""

    __slots__ = ("after", "durations", "priority", "row", "tasks")

    def __init__(self, row: Row) -> None:
        self.row = row.part(_SHARED)
        self.after = tuple(filter(None, row.text("after").split("|")))
        self.priority = row.integer("priority", default=0, most=_WORST, least=-_WORST)
        self.tasks: list[Task] = []
        self.durations: list[float] = []

    def arrival(self, time: float, job: str, date: Callable[[Row], float]) -> Arrival:
        row = self.row
        gang = row.integer("gang", most=len(self.tasks), least=1) if row.text("gang") else None
        deadline = date(row) if row.text("deadline") else None
        submitted = JobSubmitted(job, tuple(self.tasks), row.text("user") or None, self.priority, gang, deadline)
        return Arrival(time, submitted, tuple(self.durations), self.after)


def _csv_recognises(source: TraceSource) -> bool:
    return len({"task", "arrival", "duration"} & {*source.header}) > 1


def _read_csv(source: TraceSource, options: TraceOptions) -> Trace:
    path, reader = source.path, Reader(source.path, options=options)
    remarks: list[str] = []
    beside = plain_or_gzipped(path.with_name(path.name.split(".csv")[0] + ".machines.csv"))
    if beside is not None and options.machines is None:
        for row in named_rows(beside, ("machine",), options.limit):
            reader.machine(row)
    needed = [options.columns.get(name, name) for name in ("arrival", "duration")]
    needed += [name for name in options.columns.values() if name not in needed]
    skipped = reader.bad if options.skip_bad else None
    for row in named_rows(path, needed, options.limit, remarks, delimiter_of(source.line), skipped):
        reader.take(row)
    for i, remark in enumerate(remarks, 1):
        key, _, text = (part.strip() for part in remark.partition(":"))
        reader.fact(Row(path, i, {key: text}), key, text)
    return reader.trace()


def _jsonl_recognises(source: TraceSource) -> bool:
    return source.line.startswith("{") and bool({"task", "arrival", "machine", "trace"} & {*source.record})


def _read_jsonl(source: TraceSource, options: TraceOptions) -> Trace:
    reader = Reader(source.path, options=options)
    for line, record in json_records(source.path, options.limit):
        row = cells_of(source.path, line, record)
        if "machine" in record and "task" not in record:
            if options.machines is None:
                reader.machine(row)
        elif "trace" in record:
            for key in row.filled():
                for text in row.text(key).split("|") if key == "note" else (row.text(key),):
                    reader.fact(row, key, text)
        else:
            reader.take(row)
    return reader.trace()


def read_frame(frame: Any, name: str, options: TraceOptions) -> Trace:
    """Return the trace of a table in memory: a pandas, polars or Arrow one, or a mapping of columns."""
    names = (
        list(frame)
        if isinstance(frame, Mapping)
        else list(getattr(frame, "column_names", getattr(frame, "columns", ())))
    )
    if not names:
        raise InputError("frame: a table with columns expected: pandas, polars, Arrow, or a mapping of sequences")
    columns = [_values(frame[one]) for one in names]
    if len({len(column) for column in columns}) > 1:
        raise InputError("frame: columns of one length expected")
    texts, reader = [str(one) for one in names], Reader(name, options=options)
    for given, wanted in ((options.columns.get(one, one), one) for one in ("arrival", "duration", *options.columns)):
        if given not in texts:
            raise InputError(f"frame: no column {given!r} for {wanted}; the columns are {', '.join(texts)}")
    for i, values in enumerate(zip(*columns, strict=True)):
        reader.take(Row(name, i, dict(zip(texts, map(_text_of, values), strict=True)), kind="row"))
    return reader.trace()


def _values(column: Any) -> Sequence[Any]:
    method = next((m for m in ("to_pylist", "to_list", "tolist") if hasattr(column, m)), None)
    return list(getattr(column, method)()) if method else list(column)


_MISSING = ("nan", "NaT", "<NA>")
"""Missing values of pandas and NumPy, as text: one of them cannot be compared with itself."""


def _text_of(value: Any) -> str:
    """Return a value of a table as a cell of CSV."""
    if isinstance(value, str):
        return value.strip()
    if value is None or str(value) in _MISSING:
        return ""
    if isinstance(value, list | tuple):
        return "|".join(map(_text_of, value))
    if hasattr(value, "total_seconds"):
        return repr(value.total_seconds())
    return str(value.isoformat() if hasattr(value, "isoformat") else value).strip()


def _parquet_recognises(source: TraceSource) -> bool:
    if not source.path.is_file():
        return False
    with source.path.open("rb") as file:
        return file.read(4) == b"PAR1"


def _read_parquet(source: TraceSource, options: TraceOptions) -> Trace:
    arrow, parquet = parquet_modules()
    try:
        table = parquet.read_table(source.path)
    except arrow.ArrowInvalid as error:
        raise TraceError(f"{source.path}: not a Parquet file ({error})") from None
    return read_frame(table, str(source.path), options)


PARQUET = TraceFormat("parquet", "Parquet, with the columns of CSV", _parquet_recognises, _read_parquet)
CSV = TraceFormat("csv", "CSV", _csv_recognises, _read_csv)
JSONL = TraceFormat("jsonl", "JSON lines", _jsonl_recognises, _read_jsonl)


def start_machines(path: Path, limit: int = LIMIT) -> list[Machine]:
    """Read a table of machines; those with a time are refused."""
    reader = Reader(path)
    for row in named_rows(path, ("machine",), limit):
        reader.machine(row)
        if row.text("time"):
            raise row.error("time", "machines that are there from the start expected")
    return reader.machines


def write_trace(workload: Workload, path: str | Path) -> None:
    """Write a workload as CSV or JSON lines; reading the files gives a workload that simulates the same.

    Parameters
    ----------
    path : str or Path
        ``.csv`` writes the machines to ``.machines.csv`` next to it; ``.jsonl`` writes one file.  With the suffix ``.gz``
        the files are compressed.  Each file is written whole or not at all.

    Raises
    ------
    InputError
        Another suffix; an id that is not text; a property of tasks or machines that the columns do not have.
    OSError
        A file cannot be written.
    """
    path = Path(path)
    packed, name = path.suffix == ".gz", path.name.removesuffix(".gz")
    if not name.endswith((".csv", ".jsonl")):
        raise InputError(f"{path}: the name must end with .csv, .jsonl, .csv.gz or .jsonl.gz")
    about: dict[str, Any] = {"trace": _line(workload.name), "resources": list(workload.resources)}
    if workload.horizon is not None:
        about["horizon"] = workload.horizon
    about |= {f"unit.{name}": unit for name, unit in workload.units.items()}
    notes = [_line(note) for note in getattr(workload, "notes", ())]
    machines, tasks = list(_machine_rows(workload)), list(_task_rows(workload))
    if name.endswith(".jsonl"):
        first = about | ({"note": notes} if notes else {})
        lines = [json.dumps(row, ensure_ascii=False) for row in (first, *machines, *tasks)]
        _write(path, "\n".join(lines) + "\n", packed)
        return
    about["resources"] = "|".join(workload.resources)
    remarks = [f"# {key}: {value}\n" for key, value in about.items()] + [f"# note: {note}\n" for note in notes]
    if machines:
        beside = path.with_name(name.removesuffix(".csv") + ".machines.csv" + ".gz" * packed)
        _write(beside, _table(machines, MACHINE_COLUMNS), packed)
    _write(path, "".join(remarks) + _table(tasks, COLUMNS), packed)


def _write(path: Path, text: str, packed: bool) -> None:
    replace(path, gzip.compress(text.encode(), 6, mtime=0) if packed else text)


def _table(rows: Iterable[Mapping[str, Any]], first: tuple[str, ...]) -> str:
    """Return rows as CSV, with the columns that any has."""
    rows = list(rows)
    found = dict.fromkeys(column for row in rows for column in row)
    columns = [c for c in first if c in found] + [c for c in found if c not in first]
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _machine_rows(workload: Workload) -> Iterator[dict[str, Any]]:
    """Yield the machines and their events as rows."""
    kinds = {kind: name for name, kind in EVENTS.items()}
    for machine in workload.machines:
        yield {"machine": _id("machine", machine.id), **_properties(machine, workload.resources)}
    for event in workload.machine_events:
        if type(event) not in kinds:
            raise InputError(f"{event!r}: an event of a machine expected")
        assert isinstance(event, MachineAdded | MachineUpdated | MachineDrained | MachineFailed | MachineRemoved)
        row = {"machine": _id("machine", event.id), "time": event.time, "event": kinds[type(event)]}
        yield row | (_properties(event, workload.resources) if isinstance(event, MachineAdded | MachineUpdated) else {})


def _properties(thing: Machine | MachineAdded | MachineUpdated, resources: tuple[str, ...]) -> dict[str, Any]:
    if thing.taints:
        raise InputError(f"machine {thing.id!r}: taints have no column")
    row: dict[str, Any] = {} if thing.rack is None else {"rack": _id("rack", thing.rack)}
    row |= {} if thing.slots is None else {"slots": thing.slots}
    row |= _amounts("capacity", thing.capacity, resources)
    return row | {f"label.{name}": _text("label", value) for name, value in (thing.labels or {}).items()}


def _amounts(kind: str, amounts: Any, resources: tuple[str, ...]) -> dict[str, float]:
    if amounts is None:
        return {}
    pairs = amounts.items() if isinstance(amounts, Mapping) else zip(resources, amounts, strict=True)
    return {name if name in AMOUNTS else f"{kind}.{name}": float(value) for name, value in pairs}


def _task_rows(workload: Workload) -> Iterator[dict[str, Any]]:
    plain = Task("")
    for arrival in workload.arrivals:
        job = arrival.job
        about = {
            "job": _id("job", job.id), "arrival": arrival.time, "user": None if job.user is None else _id("user", job.user),
            "priority": job.priority or None, "gang": job.gang, "deadline": job.deadline,
            "after": "|".join(_listed(f"after of job {job.id!r}", task) for task in arrival.after) or None,
        }  # fmt: skip
        for task, duration in zip(job.tasks, arrival.durations, strict=True):
            for name in ("prefers", "avoids", "apart_in_rack", "tolerations"):
                if getattr(task, name) != getattr(plain, name):
                    raise InputError(f"task {task.id!r}: {name} has no column")
            row = {
                "task": _id("task", task.id), **about, "duration": "inf" if math.isinf(duration) else duration,
                "estimate": task.duration, "kind": None if task.kind is None else _id("kind", task.kind), "apart": task.apart,
            }  # fmt: skip
            row |= {f"duration.{_text('GPU model', m)}": t for m, t in workload.run_times.get(task.id, {}).items()}
            row |= {f"data.{_id('machine', source)}": float(amount) for source, amount in dict(task.data).items()}
            row |= _amounts("demand", task.demand, workload.resources)
            for label, values in task.constraints.items():
                if not isinstance(values, tuple | list) or not all(isinstance(v, str) and "|" not in v for v in values):
                    raise InputError(f"task {task.id!r}: constraints[{label!r}] is no list of texts without '|'")
                row[f"constraint.{label}"] = "|".join(values)
            yield {column: value for column, value in row.items() if value is not None}


def _listed(what: str, value: Hashable) -> str:
    """Return an id in a list of them."""
    name = _id(what, value)
    if "|" in name:
        raise InputError(f"{what}: an id without '|' expected, got {quoted(name)}")
    return name


def _id(what: str, value: Hashable) -> str:
    return _text(f"{what} {value!r}", value)


def _text(what: str, value: Any) -> str:
    if not isinstance(value, str) or not value or value != value.strip():
        raise InputError(
            f"{what}: a text expected that neither is empty nor begins or ends with a blank, got {quoted(value)}"
        )
    return value


def _line(text: str) -> str:
    return " ".join(text.split()).replace("|", "/")
