"""Workflows in WfFormat, the JSON of WfCommons and WfInstances, versions 1.0 to 1.6.

Its fields: https://github.com/wfcommons/wfformat.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flowsched.boundary.validate import quoted
from flowsched.cluster.events import JobSubmitted
from flowsched.cluster.model import Machine, Task
from flowsched.exceptions import InputError, TraceError
from flowsched.sim.tables import Row, cells_of, json_document
from flowsched.sim.traces.formats import TraceFormat, TraceOptions, TraceSource
from flowsched.sim.workload import LATEST, Arrival, Trace

_RUNTIMES = "runtimeInSeconds", "runtime"
_CORES = "coreCount", "cores"
_MEMORY = {"memoryInBytes": 2**20, "memory": 2**10}
"""Names of a memory in files of several versions, and its units in a MiB."""


def _recognises(source: TraceSource) -> bool:
    return source.text.lstrip().startswith("{") and all(
        f'"{name}"' in source.text for name in ("workflow", "schemaVersion")
    )


def _read(source: TraceSource, options: TraceOptions) -> Trace:
    path, document = source.path, json_document(source.path, options.limit)
    workflow = _object(path, "workflow", document.get("workflow"))
    given, run = workflow, workflow
    if "specification" in workflow:  # since version 1.5 the run is apart
        given = _object(path, "workflow.specification", workflow["specification"])
        run = _object(path, "workflow.execution", workflow.get("execution"))
    tasks = list(_rows(path, given.get("tasks", given.get("jobs")), "task"))
    records = {_name(row): row for row in _rows(path, run.get("tasks", run.get("jobs")), "record")}
    machines = [_machine(row) for row in _rows(path, run.get("machines") or [], "machine")]
    each = machines if options.machines is None else options.machines
    memory = bool(each) and all("mem" in machine.capacity for machine in each)
    known = {row.text("name"): _name(row) for row in tasks} | {_name(row): _name(row) for row in tasks}
    job, arrivals, ids = str(document.get("name") or path.name), [], set[str]()
    for row in tasks:
        id = row.text("id") or row.name("name", "task", ids)
        if id in ids:
            raise row.error("id", f"task {quoted(id)} occurs twice")
        ids.add(id)
        record = records.get(id)
        if record is None:
            raise row.error("id", f"the execution has no record of task {quoted(id)}")
        demand = {"cpu": record.number(_column(record, *_CORES), 1.0) or 1.0}
        column = _column(record, *_MEMORY)
        if memory and record.text(column):
            demand["mem"] = record.number(column) / _MEMORY[column]
        parents = list(filter(None, row.text("parents").split("|")))
        for parent in parents:
            if parent not in known:  # by id, or by name before version 1.4
                raise row.error("parents", f"there is no task {quoted(parent)}")
        task = Task(id, demand, kind=row.text("name") or None)
        duration = record.number(_column(record, *_RUNTIMES), most=LATEST)
        arrivals.append(Arrival(0.0, JobSubmitted(job, (task,)), (duration,), [known[parent] for parent in parents]))
    notes = ["a task arrives when its parents have completed; files have no effect"]
    if machines and options.machines is None:
        notes.append(f"{len(machines):,} machines on which the workflow was run")
    try:
        return Trace(
            path.name.removesuffix(".json"), arrivals, machines, resources=("cpu", *(["mem"] if memory else [])),
            units={"cpu": "cores", **({"mem": "MiB"} if memory else {})}, facts={"source": str(path)}, notes=notes,
        )  # fmt: skip
    except InputError as error:  # of parents
        raise TraceError(f"{path}: {error}") from None


def _object(path: Any, name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TraceError(f"{path}: {name}: an object expected, got {quoted(value)}")
    return value


def _rows(path: Any, things: Any, kind: str) -> Iterator[Row]:
    """Yield objects of a list as rows, by their plain values."""
    if not isinstance(things, list) or not (things or kind == "machine"):
        raise TraceError(f"{path}: a list of objects expected for each {kind}, got {quoted(things)}")
    for i, thing in enumerate(things):
        if not isinstance(thing, dict):
            raise TraceError(f"{path}, {kind} {i}: an object expected, got {quoted(thing)}")
        flat = cells_of(path, i, thing)
        yield Row(path, i, {name: flat.text(name) for name in flat.names()}, kind=kind)


def _name(row: Row) -> str:
    name = row.text("id") or row.text("name")
    if not name:
        raise row.error("id", "it is missing")
    return name


def _column(row: Row, *names: str) -> str:
    """Return the first of these columns that has a value, or the first."""
    return next((name for name in names if row.text(name)), names[0])


def _machine(row: Row) -> Machine:
    name = row.text("nodeName")
    if not name:
        raise row.error("nodeName", "it is missing")
    capacity = {"cpu": row.number(_column(row, "cpu.coreCount", "cpu.count"), 1.0) or 1.0}
    column = _column(row, *_MEMORY)
    if row.text(column):
        capacity["mem"] = row.number(column) / _MEMORY[column]
    return Machine(name, capacity)


WFCOMMONS = TraceFormat("wfcommons", "WfFormat, the JSON of WfCommons", _recognises, _read)
