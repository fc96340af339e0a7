"""Workloads: arrivals of tasks, machines and their events; the input of a simulation.

Times are seconds from the start of the workload.  Resources are ``cpu`` in cores, ``mem`` in MiB and ``gpu`` in GPUs
where the workload has real units; a trace with normalised amounts (Google 2011) keeps its own.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from flowsched.boundary.validate import number, ordered, quoted, whole
from flowsched.cluster.events import Event, JobSubmitted, MachineAdded
from flowsched.cluster.model import GPU_MODEL, MICRO, Machine, Resources, Task
from flowsched.exceptions import InputError
from flowsched.sim import openb_model

__all__ = ["LATEST", "QOS_PRIORITY", "SHORTEST", "Arrival", "Load", "Trace", "Workload"]

QOS_PRIORITY: Mapping[str, int] = MappingProxyType({"Guaranteed": 0, "LS": 0, "Burstable": 1, "BE": 2})
"""Quality of service -> priority (lower is better): latency-sensitive before burstable before best effort."""


LATEST = 1e15
"""Latest time of a simulation, in seconds, so that sums of times and amounts stay far from overflow."""

SHORTEST = 1e-6
"""Shortest interval of a repetition, in seconds: with a shorter one time would not advance."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """Tasks that arrive together.

    Parameters
    ----------
    time : float
    job : JobSubmitted
        The job and the tasks that arrive now.  A job that has arrived before gets them as further tasks.
    durations : sequence of float
        How long each of ``job.tasks`` runs once it has started; ``math.inf`` for one that never ends.
    """

    time: float
    job: JobSubmitted
    durations: Sequence[float]

    def __post_init__(self) -> None:
        if not isinstance(self.job, JobSubmitted):
            raise InputError(f"arrival: job must be a JobSubmitted, got {self.job!r}")
        me = f"arrival of job {self.job.id!r}"
        number(f"{me}: time", self.time, 0, LATEST)
        durations, tasks = ordered(f"{me}: durations", self.durations), ordered(f"{me}: tasks", self.job.tasks)
        if len(durations) != len(tasks):
            raise InputError(f"{me}: one duration per task expected, got {len(durations)} for {len(tasks)} tasks")
        for task, duration in zip(tasks, durations, strict=True):
            number(f"task {task.id!r}: the duration", duration, 0, LATEST, finite=False)


@dataclass(frozen=True, slots=True)
class Load:
    """Demand of a workload for one resource, if every task started at its arrival.

    Attributes
    ----------
    capacity : float
        Of all machines together.
    mean, peak : float
        Fraction of the capacity in use: mean between the first and the last arrival, and at the worst moment.
    """

    capacity: float
    mean: float
    peak: float


@dataclass(frozen=True, repr=False)
class Workload:
    """Arrivals and machines.

    Parameters
    ----------
    name : str
        How reports call it.
    arrivals : sequence of Arrival
        Sorted by time here; what arrives at the same time keeps its order.
    machines : sequence of Machine
        Present from the start.
    machine_events : sequence of Event
        Machines that come, change, fail or go; each event has its ``time``.
    resources : tuple of str
        The names that demands and capacities use.
    units : mapping of str to str
        What one of each resource is called, for reports.
    horizon : float or None
        When a simulation ends unless told otherwise; None for when nothing is left to happen.
    facts : mapping of str to Any
        For the report: where it comes from, how it was scaled.
    run_times : mapping of task to mapping of str to float
        Seconds that a task runs on machines of a GPU model (label ``gpu_model``), in place of its duration.  A model that is
        not named takes the duration, which is finite and above 0 for these tasks.

    Raises
    ------
    InputError
        A task id occurs twice, a machine event has no time, a run time is not above 0.
    """

    name: str
    arrivals: Sequence[Arrival]
    machines: Sequence[Machine]
    machine_events: Sequence[Event] = ()
    resources: tuple[str, ...] = ("cpu", "mem", "gpu")
    units: Mapping[str, str] = field(default_factory=lambda: {"cpu": "cores", "mem": "MiB", "gpu": "GPUs"})
    horizon: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    run_times: Mapping[Hashable, Mapping[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, kind in (("arrivals", Arrival), ("machines", Machine), ("machine_events", Event)):
            object.__setattr__(self, name, ordered(name, getattr(self, name)))
            for i, thing in enumerate(getattr(self, name)):
                if not isinstance(thing, kind):
                    raise InputError(f"{name}[{i}]: {kind.__name__} expected, got {thing!r}")
        object.__setattr__(self, "arrivals", tuple(sorted(self.arrivals, key=lambda a: a.time)))
        for i, event in enumerate(self.machine_events):
            number(f"machine_events[{i}]: time", event.time, 0, LATEST)
        object.__setattr__(self, "machine_events", tuple(sorted(self.machine_events, key=lambda e: e.time or 0.0)))
        object.__setattr__(self, "facts", MappingProxyType(dict(self.facts)))
        seen: set[Hashable] = set()
        for arrival in self.arrivals:
            for task, duration in zip(arrival.job.tasks, arrival.durations, strict=True):
                if task.id in seen:
                    raise InputError(f"workload {self.name!r}: task {task.id!r} arrives twice")
                seen.add(task.id)
                for model, seconds in self.run_times.get(task.id, {}).items():
                    if not number(f"run_times[{task.id!r}][{model!r}]", seconds, 0, LATEST) > 0:
                        raise InputError(f"run_times[{task.id!r}][{model!r}]: a number > 0 expected, got {seconds!r}")
                    if not 0 < duration < math.inf:
                        raise InputError(
                            f"run_times[{task.id!r}]: the duration must be above 0 and finite, got {duration!r}"
                        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}: {self.n_tasks} tasks, {len(self.machines)} machines>"

    @property
    def n_tasks(self) -> int:
        """Number of tasks."""
        return sum(len(a.durations) for a in self.arrivals)

    def compress(self, factor: float) -> Self:
        """Return the same tasks arriving `factor` times as fast; their durations and the machines' events stay.

        Raises
        ------
        InputError
            `factor` is not a finite number > 0.
        """
        if not number("compress: factor", factor, most=1e15) >= 1e-15:
            raise InputError(f"compress: a finite factor > 0 expected, got {quoted(factor)}")
        if not self.arrivals:
            return self
        first = self.arrivals[0].time
        return replace(
            self,
            arrivals=[replace(a, time=first + (a.time - first) / factor) for a in self.arrivals],
            horizon=None if self.horizon is None else first + (self.horizon - first) / factor,
            facts={**self.facts, "compress": float(self.facts.get("compress", 1.0)) * factor},
        )

    def head(self, tasks: int) -> Self:
        """Return only the arrivals that hold the first `tasks` tasks; a simulation of them ends as one of all would.

        Raises
        ------
        InputError
            `tasks` is negative.
        """
        whole("limit: tasks", tasks, 0)
        kept: list[Arrival] = []
        left = tasks
        for arrival in self.arrivals:
            if left <= 0:
                break
            n = min(left, len(arrival.durations))
            kept.append(
                replace(
                    arrival,
                    job=replace(arrival.job, tasks=tuple(arrival.job.tasks[:n])),
                    durations=arrival.durations[:n],
                )
            )
            left -= n
        return replace(self, arrivals=kept)

    def hold(self) -> Self:
        """Return the same arrivals with tasks that never end, so that the cluster fills up."""
        return replace(
            self,
            arrivals=[replace(a, durations=(math.inf,) * len(a.durations)) for a in self.arrivals],
            run_times={},
            facts={**self.facts, "hold": True},
        )

    def load(self) -> dict[str, Load]:
        """Return the load that the workload offers, by resource.

        Machines count from the start, or from the first `MachineAdded`; that they fail is left out.
        """
        resources = Resources(self.resources)
        capacity = sum(
            (
                resources.capacity(f"machine {m.id!r}", m.capacity)
                for m in _all_machines(self.machines, self.machine_events)
            ),
            np.zeros(len(resources.names), np.int64),
        )
        start = np.array([a.time for a in self.arrivals for _ in a.durations])
        length = np.array([d for a in self.arrivals for d in a.durations])
        demand = np.array([resources.demand(f"task {t.id!r}", t.demand) for a in self.arrivals for t in a.job.tasks])
        demand = demand.reshape(-1, len(resources.names))
        mean = _mean_in_use(start, length, demand)
        peak = _peak_in_use(start, length, demand)
        share = np.divide(1.0, capacity, out=np.zeros(len(capacity)), where=capacity > 0)
        return {
            name: Load(float(capacity[i]) / MICRO, float(mean[i] * share[i]), float(peak[i] * share[i]))
            for i, name in enumerate(resources.names)
        }

    @classmethod
    def model(cls, *, tasks: int = 3000, load: float = 0.95, scale: float = 0.25, seed: int = 0) -> Self:
        """Make a synthetic workload with the figures of the openb production GPU cluster (`flowsched.sim.openb_model`).

        It starts in the steady state: the tasks that a cluster under this load would already run arrive at time 0
        with what is left of their durations (at most half of `tasks`), the others one by one.  It ends with the last
        arrival.

        Parameters
        ----------
        tasks : int
            How many tasks arrive, those of the start included.
        load : float
            Demand for the scarcest resource as a fraction of the capacity; sets how fast tasks arrive.
        scale : float
            Size of the cluster; 1 is 1,523 machines with 6,212 GPUs.
        seed : int
            Same seed, same workload.

        Raises
        ------
        InputError
            An argument out of range.
        """
        whole("tasks", tasks, 1)
        whole("seed", seed, 0, 2**128 - 1)
        for what, value, most in (("load", load, 1e6), ("scale", scale, 1e4)):
            if not number(what, value, most=most) > 0:
                raise InputError(f"{what}: a finite number > 0 expected, got {quoted(value)}")
        if load < 1e-6:
            raise InputError(f"load: at least 1e-6 expected, got {quoted(load)}")
        rng = np.random.default_rng(seed)
        machines = _model_machines(scale)
        arrivals = _model_arrivals(machines, tasks, load, rng)
        return cls(
            name="model of openb",
            arrivals=arrivals,
            machines=machines,
            horizon=arrivals[-1].time,
            facts={"scale": scale, "load": load, "tasks": tasks, "seed": seed},
        )


@dataclass(frozen=True, repr=False)
class Trace(Workload):
    """A recorded workload.

    Parameters
    ----------
    different_machine : frozenset
        Jobs of which the trace says that no two tasks may share a machine (Google 2011); recorded, not enforced.
    notes : sequence of str
        What had to be assumed where the trace is silent, with counts.
    """

    different_machine: frozenset[Hashable] = frozenset()
    notes: Sequence[str] = field(default=())


def _all_machines(machines: Sequence[Machine], events: Sequence[Event]) -> Iterable[Machine]:
    """All machines that are ever there, as they were first added."""
    known = {m.id for m in machines}
    yield from machines
    for event in events:
        if isinstance(event, MachineAdded) and event.id not in known:
            known.add(event.id)
            yield Machine(event.id, event.capacity, event.rack, event.labels, event.slots, event.taints)


def _mean_in_use(start: NDArray[Any], length: NDArray[Any], demand: NDArray[Any]) -> NDArray[np.float64]:
    if not len(start) or start[-1] == start[0]:
        return np.zeros(demand.shape[1])
    inside = np.minimum(start + length, start[-1]) - start
    return np.asarray(inside @ demand.astype(np.float64) / (start[-1] - start[0]))


def _peak_in_use(start: NDArray[Any], length: NDArray[Any], demand: NDArray[Any]) -> NDArray[np.float64]:
    end = start + length
    # What ends at an instant has left before what starts at it.
    order = np.lexsort((np.r_[np.ones(len(start)), np.zeros(len(end))], np.r_[start, end]))
    steps = np.r_[demand, -demand][order]
    return np.asarray(np.cumsum(steps, axis=0).max(axis=0, initial=0), np.float64)


def _model_machines(scale: float) -> list[Machine]:
    counts = np.array([row[0] for row in openb_model.SHAPES])
    machines: list[Machine] = []
    for (_, cpu, mem, gpus, model), n in zip(openb_model.SHAPES, _apportion(counts, scale), strict=True):
        labels = {GPU_MODEL: model} if model else {}
        for _ in range(n):
            machines.append(
                Machine(f"m{len(machines):04d}", {"cpu": cpu / 1000, "mem": mem, "gpu": gpus}, labels=labels)
            )
    return machines


def _apportion(counts: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
    """Return `counts` times `scale` in whole numbers of the right sum (largest remainders), at least one in all."""
    exact = counts * scale
    whole: NDArray[np.int64] = np.floor(exact).astype(np.int64)
    left = max(round(float(exact.sum())), 1) - int(whole.sum())
    whole[np.argsort(whole - exact, kind="stable")[:left]] += 1
    return whole


def _model_arrivals(machines: Sequence[Machine], tasks: int, load: float, rng: np.random.Generator) -> list[Arrival]:
    count, cpu, mem, gpus, milli = np.array(openb_model.CLASSES).T
    kinds = [openb_model.kind(int(g), int(s)) for g, s in zip(gpus, milli, strict=True)]
    demand = np.column_stack([cpu / 1000, mem, np.where(gpus == 1, milli / 1000, gpus)])
    resources = Resources(("cpu", "mem", "gpu"))
    capacity = np.sum([resources.capacity("machine", m.capacity) for m in machines], axis=0) / MICRO

    # Little's law: tasks at work = arrival rate x mean duration.
    weight = count / count.sum()
    mean = np.array([_quantile_mean(openb_model.DURATIONS[k]) for k in kinds])
    work = (weight * mean) @ demand
    rate = load / float(np.max(work[capacity > 0] / capacity[capacity > 0]))
    resident = min(round(rate * float(weight @ mean)), tasks // 2)

    # At a random moment the running tasks are drawn in proportion to their length, each at a uniform point of it.
    at_work = weight * mean / (weight @ mean)
    picks = np.r_[rng.choice(len(count), resident, p=at_work), rng.choice(len(count), tasks - resident, p=weight)]
    level = rng.random(tasks)
    durations = np.empty(tasks)
    for kind, quantiles in openb_model.DURATIONS.items():
        mine = np.array([kinds[c] == kind for c in picks], bool)
        old = mine & (np.arange(tasks) < resident)
        new = mine & ~old
        durations[new] = _draw(quantiles, level[new])
        pool = _draw(quantiles, (np.arange(4096) + 0.5) / 4096)
        durations[old] = rng.choice(pool, int(old.sum()), p=pool / pool.sum()) * rng.random(int(old.sum()))

    gaps = _draw(openb_model.GAPS, rng.random(tasks - resident)) / (_quantile_mean(openb_model.GAPS) * rate)
    times = np.r_[np.zeros(resident), np.cumsum(gaps)]
    qos = [tuple(openb_model.QOS[k]) for k in kinds]
    odds = {k: np.cumsum(list(q.values())) / sum(q.values()) for k, q in openb_model.QOS.items()}
    luck = rng.random(tasks)
    arrivals = []
    for i, c in enumerate(picks):
        name = qos[c][int(np.searchsorted(odds[kinds[c]], luck[i], side="right"))]
        amounts = {"cpu": float(demand[c, 0]), "mem": float(demand[c, 1]), "gpu": float(demand[c, 2])}
        task = Task(f"t{i:06d}", amounts)
        job = JobSubmitted(f"j{i:06d}", (task,), priority=QOS_PRIORITY[name])
        # Whole microseconds, so that no platform's last digit decides which of two events is first.
        arrivals.append(Arrival(round(float(times[i]), 6), job, (round(float(durations[i]), 6),)))
    return arrivals


def _draw(quantiles: Sequence[float], level: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the values at `level` (0 to 1, uniform) of the distribution below its last quantile; linear in log(1 + value)."""
    known = np.log1p(np.asarray(quantiles, np.float64))
    return np.expm1(np.interp(level * openb_model.LEVELS[-1], openb_model.LEVELS, known))


def _quantile_mean(quantiles: Sequence[float]) -> float:
    """Return the mean of `_draw`."""
    return float(_draw(quantiles, (np.arange(4096) + 0.5) / 4096).mean())
