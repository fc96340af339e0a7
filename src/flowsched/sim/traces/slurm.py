"""Accounting records of Slurm: the output of ``sacct --allocations --parsable2`` with a header.

Its fields: https://slurm.schedmd.com/sacct.html.
"""

from __future__ import annotations

import math
from collections import Counter

from flowsched.boundary.units import date, mebibytes, moment, seconds
from flowsched.cluster.events import JobSubmitted
from flowsched.cluster.model import Task
from flowsched.exceptions import TraceError
from flowsched.sim.tables import Row, delimiter_of, named_rows
from flowsched.sim.traces.formats import TraceFormat, TraceOptions, TraceSource
from flowsched.sim.workload import Arrival, Trace

_ABSENT = ("", "Unknown", "None", "UNLIMITED", "Partition_Limit", "INVALID")
_IDS = ("JobID", "JobIDRaw")
_DEMANDS = {"cpu": ("ReqCPUS", "AllocCPUS", "NCPUS"), "node": ("ReqNodes", "NNodes", "AllocNodes")}


def _recognises(source: TraceSource) -> bool:
    names = {*source.header}
    return (
        bool(names & {*_IDS})
        and "Submit" in names
        and (bool(names & {"Elapsed", "ElapsedRaw"}) or {"Start", "End"} <= names)
    )


def _read(source: TraceSource, options: TraceOptions) -> Trace:
    jobs: dict[str, tuple[float, Row, float, int, dict[str, float]]] = {}
    left_out: Counter[str] = Counter()
    names: dict[str, None] = {}
    for row in named_rows(source.path, ("Submit",), options.limit, delimiter=delimiter_of(source.line)):
        job = _text(row, *_IDS)
        if "." in job:
            left_out["steps of jobs"] += 1
            continue
        elapsed = _elapsed(row)
        if elapsed is None:
            left_out["jobs that have not started or not ended"] += 1
            continue
        if job in jobs:
            left_out["earlier records of jobs that were requeued"] += 1
        nodes, demand = _demand(row)
        names |= dict.fromkeys(demand)
        jobs[job] = row.number("Submit", most=math.inf, least=-math.inf, read=_time), row, elapsed, nodes, demand
    if not jobs:
        raise TraceError(f"{source.path}: no job that ran to its end")
    origin = min(time for time, *_ in jobs.values())
    notes = [f"times are counted from the first submission, {date(origin)}"]
    notes.append("partitions, reservations, dependencies and QOS are not modelled; a node of a job is a task of a gang")
    return Trace(
        source.path.name,
        [
            _arrival(time - origin, job, row, elapsed, nodes, demand)
            for job, (time, row, elapsed, nodes, demand) in jobs.items()
        ],
        (),
        resources=tuple(name for name in ("cpu", "mem", "gpu") if name in names),
        units={"cpu": "cores", "mem": "MiB", "gpu": "GPUs"},
        facts={"source": str(source.path)},
        notes=(*notes, *(f"left out: {what} ({n:,})" for what, n in left_out.items())),
    )


def _text(row: Row, *columns: str) -> str:
    """Return the first cell of these columns that has a value."""
    return next((text for column in columns if (text := row.text(column)) not in _ABSENT), "")


def _time(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return moment(text)


def _elapsed(row: Row) -> float | None:
    """Return the run time of a job that has ended, or None."""
    if (row.has("Start") and not _text(row, "Start")) or (row.has("End") and not _text(row, "End")):
        return None
    if row.has("Start") and row.has("End"):
        start, end = (row.number(c, most=math.inf, least=-math.inf, read=_time) for c in ("Start", "End"))
        return max(end - start, 0.0)
    column = next(c for c in ("ElapsedRaw", "Elapsed") if row.has(c))
    if not _text(row, column) or row.text("State").startswith(("PENDING", "RUNNING")):
        return None
    return row.number(column, read=seconds)


def _demand(row: Row) -> tuple[int, dict[str, float]]:
    """Return the nodes of a job, and the demand on each."""
    pairs = (pair.partition("=") for pair in _text(row, "ReqTRES", "AllocTRES").split(","))
    whole = {name.removeprefix("gres/"): text for name, _, text in pairs if text}
    for name, columns in _DEMANDS.items():
        whole.setdefault(name, _text(row, *columns))
    cells = Row(row.path, row.line, whole, row.header)
    nodes = cells.integer("node", 1) or 1
    demand = {"cpu": cells.number("cpu", 1.0) / nodes}
    typed = (name for name in whole if name.startswith("gpu:"))  # counted in gres/gpu as well, where that is recorded
    if gpus := cells.number("gpu", 0.0) or sum(map(cells.number, typed)):
        demand["gpu"] = float(math.ceil(gpus / nodes))
    if whole.get("mem"):
        demand["mem"] = cells.number("mem", read=mebibytes) / nodes
    elif memory := _text(row, "ReqMem"):
        each = {"c": demand["cpu"], "n": 1.0}.get(memory[-1], 1 / nodes)  # of a core, of a node, or of the job
        demand["mem"] = Row(row.path, row.line, {"ReqMem": memory.rstrip("cn")}).number("ReqMem", read=mebibytes) * each
    return nodes, demand


def _arrival(time: float, job: str, row: Row, elapsed: float, nodes: int, demand: dict[str, float]) -> Arrival:
    limit = row.number("Timelimit", read=seconds) if _text(row, "Timelimit") else None
    tasks = tuple(Task(f"{job}-{i}", demand, duration=limit) for i in range(nodes))
    submitted = JobSubmitted(job, tasks, _text(row, "User") or None, gang=nodes if nodes > 1 else None)
    return Arrival(time, submitted, (elapsed,) * nodes)


SACCT = TraceFormat("sacct", "Slurm's sacct --allocations --parsable2", _recognises, _read)
