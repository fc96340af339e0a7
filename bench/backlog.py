"""Backlogs, when more tasks wait than run: flowsched compared with first come, first fit, EASY, SJF and DRF.

Mixes of tasks that differ in two resources are run to their end in the simulator.  None needs recorded inputs.  With the
openb or a Google 2011 trace, the first of its tasks also run on a part of its machines.  EASY, SJF and the
schedulers named so know run times in advance.

The bounded slowdown is the time from arrival to end by the run time, of at least 10 s (Feitelson, JSSPP 2001).  The
largest tasks are those that take the largest part of a machine.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import numpy as np

import flowsched as fs
from bench.drawing import chart, write
from bench.rows import Keep, Outcome, Row, forget
from flowsched.sim import Arrival, Metrics, Schedules, Simulation, Workload
from flowsched.sim.baselines import Greedy
from flowsched.sim.lines import Queue
from flowsched.sim.orders import drf, fifo, sjf
from flowsched.sim.traces.load import load_trace
from flowsched.sim.workload import estimated

__all__ = ["TITLE", "plot", "run"]

TITLE = "backlogs: tasks started, waits and makespan, compared with FIFO, first fit, EASY, SJF and DRF"

_NAME = "backlog"
_SHORTEST = 10.0
_MEASURES = (
    ("tasks started in the first round", ""), ("wait, mean", "s"), ("wait, p99", "s"), ("bounded slowdown, mean", ""),
    ("makespan", "s"), ("longest wait of the largest tasks", "s"),
)  # fmt: skip

Figures = tuple[float, ...]
"""One number for each of `_MEASURES`."""


@dataclass(frozen=True)
class _Kind:
    """A scheduler; `informed` is True if it knows run times in advance."""

    make: Callable[[tuple[str, ...]], Schedules]
    informed: bool = False


_KINDS: dict[str, _Kind] = {
    "flowsched": _Kind(lambda resources: fs.Scheduler(resources=resources)),
    "flowsched, run times known": _Kind(lambda resources: fs.Scheduler(resources=resources), informed=True),
    "flowsched, conservative": _Kind(
        lambda resources: fs.Scheduler(fs.Policy(backfill="conservative"), resources=resources), informed=True
    ),
    "FIFO": _Kind(lambda resources: Queue(False, resources)),
    "first fit": _Kind(lambda resources: Greedy(fifo, resources)),
    "EASY": _Kind(lambda resources: Queue(True, resources), informed=True),
    "SJF": _Kind(lambda resources: Greedy(sjf, resources), informed=True),
    "DRF": _Kind(lambda resources: Greedy(drf, resources)),
}


def run(
    *, quick: bool, seed: int = 0, say: Callable[[str], None], data: Path | None = None, keep: Keep = forget
) -> Outcome:
    """Run every mix under every scheduler.

    ``quick`` takes two seeds instead of five, and a quarter of the tasks.  ``data`` has ``openb/`` and ``google2011/``; the rows of a
    trace that is not there are left out.
    """
    outcome = Outcome()
    keep(lambda: outcome)
    seeds, part = range(seed, seed + (2 if quick else 5)), 4 if quick else 1
    for name, mix in _MIXES.items():
        _compare(outcome, name, [mix(random.Random(each), part) for each in seeds], say)
    for title, (folder, origin) in _TRACES.items():
        if data is not None and (data / folder).is_dir():
            work = _first(load_trace(data / folder), 3000 // part)
            title = f"{title}, the first {work.n_tasks:,} tasks at once on {len(work.machines)} machines"
            _compare(outcome, title, [work], say)
        else:
            outcome.notes.append(
                f"no --data: the rows of the {title} trace are left out. They need DIR/{folder}, {origin}"
            )
    outcome.notes.append("Ratio: first fit's figure by the scheduler's, so above 1 is better, except of tasks started.")
    return outcome


def _compare(outcome: Outcome, name: str, works: list[Workload], say: Callable[[str], None]) -> None:
    """Run workloads under each scheduler, and add the means."""
    found: dict[str, Figures] = {}
    for kind, scheduler in _KINDS.items():
        each = [_figures(outcome, name, work, scheduler) for work in works]
        found[kind] = tuple(fmean(column) for column in zip(*each, strict=True))
        started, wait = found[kind][:2]
        say(f"{name}, {kind}: {started:.0f} started at first, mean wait {wait:.0f} s")
    for kind, figures in found.items():
        for (metric, unit), value, base in zip(_MEASURES, figures, found["first fit"], strict=True):
            ratio = base / value if unit and value else None
            outcome.rows.append(
                Row(_NAME, f"{name}: {kind}", metric, round(value, 2), round(base, 2), ratio, None, unit)
            )


def _figures(outcome: Outcome, name: str, work: Workload, kind: _Kind) -> Figures:
    work = estimated(work) if kind.informed else work
    metrics = Simulation(kind.make(work.resources), work).run()
    if metrics.tasks["completed"] != work.n_tasks:
        outcome.wrong.append(f"{name}: {metrics.tasks['completed']} of {work.n_tasks} tasks completed")
        return (math.nan,) * len(_MEASURES)
    return _measured(metrics, work)


def _measured(metrics: Metrics, work: Workload) -> Figures:
    durations = np.array([d for arrival in work.arrivals for d in arrival.durations])
    waits = metrics.waits
    slowdown = np.maximum((waits + durations) / np.maximum(durations, _SHORTEST), 1.0)
    size = _sizes(work)
    placed = metrics.rounds["placed"]
    return (
        float(placed[0]), float(waits.mean()), float(np.percentile(waits, 99)), float(slowdown.mean()),
        float(np.max(metrics.ends)), float(waits[size >= size.max() - 1e-9].max()),
    )  # fmt: skip


def _sizes(work: Workload) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the largest part of a machine's resource that each task takes, in order of arrival."""
    known = fs.Resources(work.resources)
    whole = np.maximum(np.max([known.demand("machine", m.capacity) for m in work.machines], axis=0), 1)
    tasks = [task for arrival in work.arrivals for task in arrival.job.tasks]
    return np.array([(known.demand("task", task.demand) / whole).max() for task in tasks])


# -- mixes ------------------------------------------------------------------------------------------------------------


def _backlog(rng: random.Random, part: int, duration: Callable[[random.Random], float]) -> Workload:
    """Return mixed tasks, 1,000 or a part of them, that wait at once for 50 machines of 4 cores and 8 GB."""
    arrivals = []
    for i in range(1000 // part):
        demand = {"cpu": rng.choice([1, 1, 2, 4]), "mem": rng.choice(range(500, 8500, 500))}
        arrivals.append(_arrival(0.0, i, demand, duration(rng)))
    return _workload("backlog", arrivals, 50 // part)


def _stream(rng: random.Random, part: int) -> Workload:
    """Return small tasks that keep 20 machines busy, and every 50th takes a whole one."""
    arrivals, now = [], 0.0
    for i in range(4000 // part):
        now += rng.expovariate(1.0)
        large = i % 50 == 25
        demand = {"cpu": 4 if large else 1, "mem": 8000 if large else rng.choice(range(500, 3500, 500))}
        arrivals.append(_arrival(now, i, demand, 120.0 if large else rng.uniform(10, 130)))
    return _workload("stream", arrivals, 20)


def _arrival(time: float, i: int, demand: Mapping[str, float], duration: float) -> Arrival:
    return Arrival(time, fs.JobSubmitted(i, [fs.Task(i, demand)], user=i % 5), (duration,))


def _workload(name: str, arrivals: list[Arrival], machines: int) -> Workload:
    return Workload(
        name, arrivals, [fs.Machine(i, {"cpu": 4, "mem": 8000}) for i in range(machines)], resources=("cpu", "mem")
    )


_MIXES: dict[str, Callable[[random.Random, int], Workload]] = {
    "all at once, 60 s each": lambda rng, part: _backlog(rng, part, lambda _: 60.0),
    "all at once, exponential, 60 s": lambda rng, part: _backlog(rng, part, lambda r: r.expovariate(1 / 60)),
    "small ones, every 50th a whole machine": _stream,
}


_TRACES = {
    "openb": (
        "openb", "the folder data/csv of https://github.com/hkust-adsl/kubernetes-scheduler-simulator",
    ),
    "Google 2011": (
        "google2011",
        "with machine_events and task_events of https://github.com/google/cluster-data (ClusterData2011_2)",
    ),
}  # fmt: skip
"""By name of the trace, its folder, and its source."""

_MACHINES = 75
"""About as many machines of a trace are kept."""


def _first(trace: Workload, tasks: int) -> Workload:
    """Return the first tasks of a trace that fit on a part of its machines, all at once and of one priority.

    The other schedulers do not have priorities.
    """
    machines = trace.machines[:: max(1, len(trace.machines) // _MACHINES)]
    known = fs.Resources(trace.resources)
    able = [(known.demand("machine", m.capacity), dict(m.labels)) for m in machines]

    def fits(task: fs.Task) -> bool:
        need = known.demand("task", task.demand)
        return any(
            (need <= have).all() and all(labels.get(k) in wanted for k, wanted in task.constraints.items())
            for have, labels in able
        )

    kept: list[Arrival] = []
    for a in trace.arrivals:
        if all(map(fits, a.job.tasks)) and max(a.durations) < math.inf:
            tasks -= len(a.job.tasks)
            if tasks < 0:
                break
            kept.append(replace(a, time=0.0, job=replace(a.job, priority=0)))
    return replace(trace, arrivals=kept, machines=machines, machine_events=(), horizon=None)


def plot(outcome: Outcome, folder: Path) -> list[Path]:
    """Plot the mean wait and that of the largest tasks, one panel per mix."""
    mixes: dict[str, dict[str, dict[str, float]]] = {}
    for row in outcome.rows:
        mix, _, kind = row.setting.partition(": ")
        assert isinstance(row.value, float | int)
        mixes.setdefault(mix, {}).setdefault(kind, {})[row.metric] = float(row.value)
    figure, panels = chart("Waits while a backlog is worked off", 2.7, len(mixes))
    for axes, (mix, kinds) in zip(panels, mixes.items(), strict=True):
        at = np.arange(len(kinds))
        for shift, (metric, label) in enumerate(
            ((_MEASURES[1][0], "mean"), (_MEASURES[5][0], "largest tasks, longest"))
        ):
            axes.barh(at + 0.4 * shift, [figures[metric] for figures in kinds.values()], 0.38, label=label)
        axes.set_yticks(at + 0.2, list(kinds), fontsize=7.5)
        axes.invert_yaxis()
        axes.set_xlabel("wait, s")
        axes.set_title(mix)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return [write(figure, folder, "backlog")]
