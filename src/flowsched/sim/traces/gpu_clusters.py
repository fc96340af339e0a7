"""Traces of GPU clusters: Philly (Microsoft), PAI (Alibaba, 2020), and the traces that Gavel schedules.

Their definitions: README.md of https://github.com/msr-fiddle/philly-traces; cluster-trace-gpu-v2020/README.md of
https://github.com/alibaba/clusterdata; parse_trace in scheduler/utils.py of https://github.com/stanford-futuredata/gavel.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from flowsched.boundary.validate import quoted
from flowsched.cluster.events import JobSubmitted
from flowsched.cluster.model import GPU_MODEL, MOST_DEVICES, Machine, Task
from flowsched.exceptions import TraceError
from flowsched.sim.tables import Row, cells_of, head, json_records, plain_or_gzipped, positional_rows
from flowsched.sim.traces.formats import TraceFormat, TraceOptions, TraceSource
from flowsched.sim.workload import LATEST, Arrival, Trace

MOST_TASKS = 2**20
"""Largest number of tasks of a job that a cell of a trace may request."""


def _job(
    id: str,
    time: float,
    tasks: Sequence[tuple[Mapping[str, float], float]],
    user: str | None = None,
    kind: str | None = None,
) -> Arrival:
    """Return a job that needs all its tasks at once; each is a demand and a duration."""
    made = tuple(Task(f"{id}-{i}", demand, kind=kind) for i, (demand, _) in enumerate(tasks))
    gang = len(made) if len(made) > 1 else None
    return Arrival(time, JobSubmitted(id, made, user=user, gang=gang), tuple(d for _, d in tasks))


def _left_out(count: Counter[str]) -> tuple[str, ...]:
    return tuple(f"{n} {what}" for what, n in count.items() if n)


def _philly_recognises(source: TraceSource) -> bool:
    return any(name.startswith("cluster_job_log") for name in source.names) or "attempts" in source.record


@dataclass(slots=True)
class _Attempt:
    """An attempt of a Philly job: times in seconds, and the GPUs that it had on each server."""

    start: float | None
    end: float | None
    gpus: list[int]


def _table(source: TraceSource, name: str) -> Path:
    """Return the file itself, or the file of a directory whose name starts with `name`; it may be missing."""
    if not source.path.is_dir():
        return source.path
    return source.path / next((one for one in source.names if one.startswith(name)), name)


def _philly(source: TraceSource, options: TraceOptions) -> Trace:
    path = _table(source, "cluster_job_log")
    jobs = [_philly_job(path, line, record) for line, record in json_records(path, options.limit)]
    first = min((submitted for _, submitted, _ in jobs), default=0.0)
    last = max((t for _, _, tries in jobs for a in tries for t in (a.start, a.end) if t), default=0.0)
    arrivals: list[Arrival] = []
    count: Counter[str] = Counter()
    seen: set[str] = set()
    for row, submitted, tries in jobs:
        name = row.name("jobid", "job", seen)
        seen.add(name)
        ran = [(a.start, last if a.end is None else a.end, a.gpus) for a in tries if a.start is not None and a.gpus]
        if not ran:
            count["jobs have no attempt with a start and GPUs; they are left out"] += 1
            continue
        count["jobs have an attempt without end; it ends with the trace"] += any(a.end is None for a in tries)
        count["jobs have an attempt that ends before it begins; it lasts no time"] += any(
            end < start for start, end, _ in ran
        )
        seconds = sum(max(end - start, 0.0) for start, end, _ in ran)
        parts = [({"gpu": gpus}, seconds) for gpus in ran[-1][2]]
        arrivals.append(_job(name, submitted - first, parts, row.text("user") or None))
    if not arrivals:
        raise TraceError(f"{path}: no job that ran")
    lists = sorted(path.parent.glob("cluster_machine_list*")) if options.machines is None else []
    return Trace(
        "Philly",
        arrivals,
        [machine for file in lists[:1] for machine in _philly_machines(file, options.limit)],
        resources=("gpu",),
        units={"gpu": "GPUs"},
        facts={"source": str(path)},
        notes=_left_out(count),
    )


def _philly_job(path: Path, line: int, record: dict[str, Any]) -> tuple[Row, float, list[_Attempt]]:
    """Return a job: its plain columns, when it was submitted, its attempts."""
    row = cells_of(path, line, {k: v for k, v in record.items() if k != "attempts"})
    if not row.text("jobid"):
        raise row.error("jobid", "it is missing")
    submitted = _moment(row, "submitted_time", record.get("submitted_time"))
    if submitted is None:
        raise row.error("submitted_time", "it is missing")
    attempts = record.get("attempts")
    if not isinstance(attempts, list):
        raise row.error("attempts", f"a list expected, got {quoted(attempts)}")
    return row, submitted, [_attempt(row, f"attempts[{i}]", attempt) for i, attempt in enumerate(attempts)]


def _attempt(row: Row, me: str, attempt: Any) -> _Attempt:
    detail = (attempt.get("detail") or []) if isinstance(attempt, dict) else None
    if not isinstance(detail, list) or not all(isinstance(s, dict) and isinstance(s.get("gpus"), list) for s in detail):
        raise row.error(me, "an object with a list 'detail' of objects with lists 'gpus' expected")
    gpus = [len(server["gpus"]) for server in detail if server["gpus"]]
    start, end = (_moment(row, f"{me}.{which}", attempt.get(which)) for which in ("start_time", "end_time"))
    return _Attempt(start, end, gpus)


def _moment(row: Row, column: str, value: Any) -> float | None:
    """Return a time of day as seconds; None where there is none."""
    if value in (None, "", "None"):
        return None
    try:
        return (datetime.fromisoformat(value) - datetime(1970, 1, 1)).total_seconds()
    except (TypeError, ValueError):
        raise row.error(column, f"a time such as 2017-10-07 01:12:09 expected, got {quoted(value)}") from None


def _philly_machines(path: Path, limit: int) -> Iterator[Machine]:
    headed = not head(path).split(",")[1:2] or not head(path).split(",")[1].strip().isdecimal()
    seen: set[str] = set()
    for row in positional_rows(path, ("machineId", "GPUs", "GPU memory"), 2, limit, headed=headed):
        name, memory = row.name("machineId", "machine", seen), row.text("GPU memory")
        seen.add(name)
        labels = {"gpu_memory": memory} if memory else {}
        yield Machine(name, {"gpu": row.integer("GPUs", most=MOST_DEVICES)}, labels=labels)


PHILLY = TraceFormat("philly", "a Philly trace", _philly_recognises, _philly)

_PAI_TASKS = (
    "job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu", "gpu_type",
)  # fmt: skip
_PAI_JOBS = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
_PAI_MACHINES = ("machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu")
_PAI_STATUS = ("Running", "Terminated", "Failed", "Waiting")


def _pai_recognises(source: TraceSource) -> bool:
    if source.names:
        return any(name.startswith("pai_task_table.csv") for name in source.names)
    return tuple(source.header) == _PAI_TASKS or (len(source.header) == 10 and source.header[3] in _PAI_STATUS)


def _pai(source: TraceSource, options: TraceOptions) -> Trace:
    path = _table(source, "pai_task_table.csv")
    jobs = {
        row.text("job_name"): (row.text("user") or None, row.number("start_time", 0.0, LATEST))
        for row in _pai_table(path.parent, "pai_job_table.csv", _PAI_JOBS, options.limit)
    }
    count: Counter[str] = Counter()
    parts: dict[str, list[tuple[Mapping[str, float], float]]] = {}
    begun: dict[str, float] = {}
    seen: set[tuple[str, str]] = set()
    for row in _pai_table(path.parent, path.name, _PAI_TASKS, options.limit):
        job, task = row.text("job_name"), row.text("task_name")
        start, end = (row.number(c, 0.0, LATEST) for c in ("start_time", "end_time"))
        instances = row.integer("inst_num", default=1, most=MOST_TASKS)
        gpus = row.number("plan_gpu", 0.0) / 100
        if gpus > 1 and gpus != int(gpus):
            count["tasks ask for parts of more than one GPU; they get whole ones"] += 1
            gpus = math.ceil(gpus)
        if not start or not end:
            count["tasks have no start or no end; they are left out"] += 1
            continue
        if end < start:
            count["tasks end before they start; they are left out"] += 1
            continue
        if not job:
            count["tasks have no job name; each is a job of its own"] += 1
            job = f"line {row.line}"
        count["tasks have the job and the name of an earlier one; both run"] += (job, task) in seen
        seen.add((job, task))
        demand = {"cpu": row.number("plan_cpu", 0.0) / 100, "mem": row.number("plan_mem", 0.0) * 1024, "gpu": gpus}
        parts.setdefault(job, []).extend([(demand, end - start)] * instances)
        begun[job] = min(start, begun.get(job, start))
    arrivals = []
    for job, tasks in parts.items():
        user, submitted = jobs.get(job, (None, 0.0))
        arrivals.append(_job(job, min(submitted or begun[job], begun[job]), tasks, user))
        count["jobs are not in pai_job_table; they arrive when their first task began"] += job not in jobs
    if not arrivals:
        raise TraceError(f"{path}: no task that ran")
    first = min(arrival.time for arrival in arrivals)
    return Trace(
        "Alibaba PAI",
        [Arrival(a.time - first, a.job, a.durations) for a in arrivals],
        [] if options.machines is not None else _pai_machines(path.parent, options.limit),
        facts={"source": str(path)},
        notes=_left_out(count),
    )


def _pai_table(directory: Path, name: str, columns: Sequence[str], limit: int) -> Iterator[Row]:
    """Yield the rows of a table; the published files have no header.  None if there is no such file."""
    path = plain_or_gzipped(directory / name)
    if path is not None:
        headed = head(path).startswith(columns[0] + ",")
        yield from positional_rows(path, columns, len(columns), limit, headed=headed)


def _pai_machines(directory: Path, limit: int) -> list[Machine]:
    machines: dict[str, Machine] = {}
    for row in _pai_table(directory, "pai_machine_spec.csv", _PAI_MACHINES, limit):
        name, model = row.name("machine", "machine", machines), row.text("gpu_type")
        gpus = row.integer("cap_gpu", default=0, most=MOST_DEVICES)
        capacity = {"cpu": row.number("cap_cpu", 0.0), "mem": row.number("cap_mem", 0.0) * 1024, "gpu": gpus}
        machines[name] = Machine(name, capacity, labels={GPU_MODEL: model} if gpus and model else {})
    return list(machines.values())


PAI = TraceFormat("pai", "an Alibaba PAI trace", _pai_recognises, _pai)

_GAVEL = ("job_type", "command", "num_steps_arg", "needs_data_dir", "total_steps")
_GAVEL_COLUMNS = {
    7: (*_GAVEL, "arrival_time", "scale_factor"),
    9: (*_GAVEL, "scale_factor", "priority_weight", "SLO", "arrival_time"),
}
"""Columns of the two forms, by their number: of the traces of the Philly subset, and of those of Gavel's simulator."""

_WORKERS = ("v100", "p100", "k80")
_THROUGHPUTS = "simulation_throughputs.json"


def _gavel_recognises(source: TraceSource) -> bool:
    cells = source.line.split("\t")
    return len(cells) > 4 and cells[3] in ("0", "1") and cells[2].startswith("-")


def _gavel(source: TraceSource, options: TraceOptions) -> Trace:
    path, worker = source.path, options.variant or _WORKERS[0]
    known = _throughputs(path.parent, worker, options.limit)
    speeds = known[worker]
    models = [name for name in _WORKERS if name in known] if options.variant is None else []
    cells = len(source.line.split("\t"))
    columns = _GAVEL_COLUMNS.get(cells)
    if columns is None:
        raise TraceError(f"{path}, line 1: 7 or 9 columns between tabs expected, got {cells}")
    arrivals: list[Arrival] = []
    run_times: dict[Hashable, dict[str, float]] = {}
    count: Counter[str] = Counter()
    for row in positional_rows(path, columns, len(columns), options.limit, "\t", headed=False):
        gpus = row.integer("scale_factor", most=MOST_TASKS, least=1)
        kind, steps = row.text("job_type"), row.integer("total_steps")
        when = row.number("arrival_time", most=LATEST)
        if f"({kind!r}, 1)" not in speeds:
            raise row.error("job_type", f"{_THROUGHPUTS} does not know {quoted(kind)}")
        if (speed := speeds.get(f"({kind!r}, {gpus})", 0.0)) > 0:
            arrival = _job(f"j{row.line}", when, [({"gpu": 1}, steps / speed)] * gpus, kind=kind)
            arrivals.append(arrival)
            times = {
                model: steps / each for model in models if (each := known[model].get(f"({kind!r}, {gpus})", 0.0)) > 0
            }
            if steps:
                run_times |= {task.id: times for task in arrival.job.tasks}
        else:
            count[f"jobs have no throughput with so many GPUs on {worker}; they are left out"] += 1
    if not arrivals:
        raise TraceError(f"{path}: no job with a throughput")
    return Trace(
        f"{path.stem} (Gavel, {worker})",
        arrivals,
        [],
        resources=("gpu",),
        units={"gpu": "GPUs"},
        facts={"source": str(path), "worker": worker},
        notes=_left_out(count),
        run_times=run_times if len(models) > 1 else {},
    )


def _throughputs(directory: Path, worker: str, limit: int) -> dict[str, dict[str, float]]:
    """Return the steps a second of each type of job, alone on each worker; one of them is needed."""
    path = plain_or_gzipped(directory / _THROUGHPUTS)
    if path is None:
        raise TraceError(
            f"{directory / _THROUGHPUTS}: no such file; how long jobs run follows from it, so it must be beside them"
        )
    try:
        known = json.loads(head(path, limit))
        needed = {worker, *(name for name in _WORKERS if name in known)}
        return {name: {kind: float(speeds["null"]) for kind, speeds in known[name].items()} for name in needed}
    except json.JSONDecodeError as error:
        raise TraceError(f"{path}, line {error.lineno}, column {error.colno}: not JSON ({error.msg})") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise TraceError(f"{path}: no throughputs of {worker} ({type(error).__name__}: {error})") from None


GAVEL = TraceFormat("gavel", "a trace of Gavel", _gavel_recognises, _gavel, _WORKERS)
