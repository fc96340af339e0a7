"""The Standard Workload Format of the Parallel Workloads Archive, version 2.2.

Its definition: https://www.cs.huji.ac.il/labs/parallel/workload/swf.html.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from flowsched.boundary.validate import quoted
from flowsched.cluster.events import JobSubmitted
from flowsched.cluster.model import Machine, Task
from flowsched.exceptions import TraceError
from flowsched.sim.tables import Row, text_lines
from flowsched.sim.traces.formats import TraceFormat, TraceOptions, TraceSource
from flowsched.sim.workload import LATEST, Arrival, Trace

COLUMNS = (
    "job", "submit", "wait", "run", "allocated_processors", "average_cpu", "used_memory", "requested_processors",
    "requested_time", "requested_memory", "status", "user", "group", "executable", "queue", "partition",
    "preceding_job", "think_time",
)  # fmt: skip
_PARTIAL = (2, 3, 4)
"""Status of lines that describe a part of a job, between two checkpoints; another line describes the whole job."""

_DIRECTIVES = ("MaxNodes", "MaxProcs", "UnixStartTime")


def _recognises(source: TraceSource) -> bool:
    if source.line.startswith(";"):
        return True
    cells = source.line.split()
    return len(cells) > 4 and all(cell.lstrip("-").replace(".", "", 1).isdigit() for cell in cells)


def _read(source: TraceSource, options: TraceOptions) -> Trace:
    path, pool = source.path, options.variant == "pool"
    with_memory = any(isinstance(m.capacity, Mapping) and "mem" in m.capacity for m in options.machines or ())
    found: dict[str, int] = {}
    arrivals: list[Arrival] = []
    seen: set[str] = set()
    left_out: Counter[str] = Counter()
    for number, line in text_lines(path, options.limit):
        if line.startswith(";"):
            name, _, value = line.lstrip("; \t").partition(":")
            if name.strip() in _DIRECTIVES:
                found |= _directive(Row(path, number, {name.strip(): (value.split() or [""])[0]}), name.strip())
            continue
        cells = line.split()
        if len(cells) != len(COLUMNS):
            gone = f"no column {COLUMNS[len(cells)]!r}; " if len(cells) < len(COLUMNS) else ""
            raise TraceError(f"{path}, line {number}: {gone}{len(COLUMNS)} columns expected, got {len(cells)}")
        row = Row(path, number, dict(zip(COLUMNS, cells, strict=True)))
        values = {column: row.number(column, least=-1) for column in COLUMNS}
        job = str(row.integer("job"))
        processors = next(
            (n for c in ("requested_processors", "allocated_processors") if (n := row.integer(c, least=-1)) > 0), 0
        )
        if values["status"] in _PARTIAL:
            left_out["lines tell of parts of jobs"] += 1
        elif values["run"] < 0:
            left_out["jobs have no run time"] += 1
        elif not processors:
            left_out["jobs have no number of processors"] += 1
        elif job in seen:
            raise row.error("job", f"job {quoted(job)} occurs twice")
        else:
            seen.add(job)
            left_out["jobs wait for others in the trace, which is not modelled"] += values["preceding_job"] > 0
            arrivals.append(_arrival(row, job, values, processors, pool, with_memory))
    if not arrivals:
        raise TraceError(f"{path}: no job that ran")
    return Trace(
        path.name,
        arrivals,
        _machines(found, pool),
        resources=("cpu", "mem") if with_memory else ("cpu",),
        units={"cpu": "processors", "mem": "MiB"},
        facts={"source": str(path)} | ({"unix_start": found["UnixStartTime"]} if "UnixStartTime" in found else {}),
        notes=tuple(
            f"{n} {what}" + ("" if what.startswith("jobs wait") else "; they are left out")
            for what, n in left_out.items()
            if n
        ),
    )


def _directive(row: Row, name: str) -> dict[str, int]:
    value = row.integer(name, least=-1)
    return {name: value} if value > 0 else {}


def _arrival(row: Row, job: str, values: dict[str, float], processors: int, pool: bool, with_memory: bool) -> Arrival:
    count, each = (1, processors) if pool else (processors, 1)
    demand: dict[str, float] = {"cpu": each}
    if with_memory:
        kilobytes = next((values[c] for c in ("requested_memory", "used_memory") if values[c] > 0), 0.0)
        demand["mem"] = kilobytes / 1024 * each
    estimate = values["requested_time"] if values["requested_time"] > 0 else None
    tasks = tuple(Task(f"{job}-{i}", demand, duration=estimate) for i in range(count))
    user = row.text("user") if values["user"] >= 0 else None
    submit = row.number("submit", most=LATEST)
    return Arrival(
        submit, JobSubmitted(job, tasks, user=user, gang=count if count > 1 else None), (values["run"],) * count
    )


def _machines(found: dict[str, int], pool: bool) -> list[Machine]:
    """Return the nodes of the header, which share the processors evenly; none where it names neither."""
    processors = found.get("MaxProcs", found.get("MaxNodes", 0))
    nodes = min(1 if pool else found.get("MaxNodes", processors), processors)
    if not nodes:
        return []
    each, more = divmod(processors, nodes)
    return [Machine(f"n{i}", {"cpu": each + (i < more)}) for i in range(nodes)]


SWF = TraceFormat("swf", "SWF (Parallel Workloads Archive)", _recognises, _read, ("nodes", "pool"))
