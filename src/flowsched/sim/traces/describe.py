"""What is in a workload, as tables of text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.events import MachineAdded
from flowsched.cluster.model import MICRO, Resources
from flowsched.sim.summary import Table, amount, duration, resource_label
from flowsched.sim.workload import Workload

_MOST = 12
"""Rows of a table of machines; the rest is one row."""


def describe(workload: Workload) -> list[Table]:
    """Return tables of a workload's jobs, times, demands and machines."""
    return [_contents(workload), _times(workload), _demands(workload), *_machines(workload)]


def _contents(workload: Workload) -> Table:
    arrivals = workload.arrivals
    tasks = [task for arrival in arrivals for task in arrival.job.tasks]
    gangs = [a.job.gang for a in arrivals if a.job.gang]
    priorities = Counter(arrival.job.priority for arrival in arrivals)
    users = Counter(arrival.job.user for arrival in arrivals if arrival.job.user is not None)
    constraints = Counter(label for task in tasks for label in task.constraints)
    rows = [
        ("jobs", f"{len({arrival.job.id for arrival in arrivals}):,}"),
        ("tasks", f"{len(tasks):,}"),
        ("span of arrivals", duration(arrivals[-1].time - arrivals[0].time) if arrivals else "-"),
        ("users", f"{len(users):,}" + (f"; the busiest has {max(users.values()):,} jobs" if users else "")),
        ("gangs", f"{len(gangs):,}" + (f"; the largest has {max(gangs):,} tasks" if gangs else "")),
        ("priorities", ", ".join(f"{level}: {n:,} jobs" for level, n in sorted(priorities.items())[:_MOST])),
        ("constraints", ", ".join(f"{label}: {n:,} tasks" for label, n in constraints.most_common(4)) or "none"),
        ("estimates of run time", f"{sum(task.duration is not None for task in tasks):,} tasks"),
        *_by_model(workload),
        ("machines", f"{len(workload.machines):,}" if workload.machines else "none in the trace; give --machines"),
    ]
    added = sum(isinstance(event, MachineAdded) for event in workload.machine_events)
    if workload.machine_events:
        rows.append(("events of machines", f"{len(workload.machine_events):,}; {added:,} add one"))
    return Table("Contents", ("", ""), rows)


def _by_model(workload: Workload) -> list[tuple[str, str]]:
    if not workload.run_times:
        return []
    models = sorted({model for times in workload.run_times.values() for model in times})
    return [("run times by GPU model", f"{len(workload.run_times):,} tasks; {', '.join(models)}")]


_POINTS = ("least", "p50", "p90", "p99", "most", "mean")


def _points(values: NDArray[np.float64]) -> list[float]:
    if not len(values):
        return [math.nan] * len(_POINTS)
    # Of infinite values the percentiles lie on given ones, since the distance between two is not a number.
    points = np.percentile(values, (0, 50, 90, 99, 100), method="nearest" if np.isinf(values).any() else "linear")
    return [*points.tolist(), float(values.mean())]


def _times(workload: Workload) -> Table:
    gaps = np.diff([arrival.time for arrival in workload.arrivals])
    lengths = np.array([d for arrival in workload.arrivals for d in arrival.durations])
    rows = [(name, *map(duration, _points(v))) for name, v in (("run time", lengths), ("between arrivals", gaps))]
    return Table("Times", ("", *_POINTS), rows)


def _demands(workload: Workload) -> Table:
    """Return the demands of the tasks that ask for a resource at all."""
    resources = Resources(workload.resources)
    found = Counter(
        tuple(resources.demand("demand", task.demand).tolist()) for a in workload.arrivals for task in a.job.tasks
    )
    demands = np.array(list(found), np.float64).reshape(-1, len(workload.resources)) / MICRO
    count = np.fromiter(found.values(), np.int64, len(found))
    load = workload.load() if workload.machines or workload.machine_events else None
    rows = []
    for i, name in enumerate(workload.resources):
        asking = demands[:, i] > 0
        values = _points(np.repeat(demands[asking, i], count[asking]))
        unit = workload.units.get(name, "")
        cells = [amount(v, unit if unit == "MiB" else "") if not math.isnan(v) else "-" for v in values]
        offered = [f"{100 * load[name].mean:.3g} %", f"{100 * load[name].peak:.3g} %"] if load else []
        label = resource_label(name) + (f", {unit}" if unit not in ("", "MiB") else "")
        rows.append((label, f"{int(count[asking].sum()):,}", *cells, *offered))
    loads = ("load, mean", "peak") if load else ()
    return Table("Demands of the tasks that ask for it", ("", "tasks", *_POINTS, *loads), rows)


def _machines(workload: Workload) -> list[Table]:
    if not workload.machines:
        return []
    shapes: Counter[tuple[tuple[float, ...], tuple[tuple[str, str], ...]]] = Counter()
    for machine in workload.machines:
        shapes[_vector(machine.capacity, workload.resources), tuple(sorted(machine.labels.items()))] += 1
    rows = [
        (
            f"{n:,} machines",
            *(amount(c, workload.units.get(r, "")) for c, r in zip(capacity, workload.resources, strict=True)),
            ", ".join(f"{label} {value}" for label, value in labels),
        )
        for (capacity, labels), n in shapes.most_common(_MOST)
    ]
    if more := len(shapes) - len(rows):
        rest = sum(n for _, n in shapes.most_common()[_MOST:])
        rows.append((f"{rest:,} machines", *[""] * len(workload.resources), f"of {more:,} further shapes"))
    columns = ("", *map(resource_label, workload.resources), "")
    return [Table("Machines, and what each has", columns, rows, notes=True)]


def _vector(amounts: Mapping[str, float] | Sequence[float], resources: Sequence[str]) -> tuple[float, ...]:
    if isinstance(amounts, Mapping):
        return tuple(float(amounts.get(name, 0.0)) for name in resources)
    return tuple(map(float, amounts))
