"""Workloads: arrivals of tasks, machines and their events; the input of a simulation.

Times are seconds from the start of the workload.  Resources are ``cpu`` in cores, ``mem`` in MiB and ``gpu`` in GPUs
where the workload has real units; a trace with normalised amounts (Google 2011) keeps its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from flowsched.boundary.validate import instance, number, ordered, quoted, whole
from flowsched.cluster.events import (
    Event,
    JobSubmitted,
    MachineAdded,
    MachineDrained,
    MachineFailed,
    MachineRemoved,
    MachineUpdated,
)
from flowsched.cluster.model import GPU_MODEL, MICRO, Machine, Resources, Task
from flowsched.exceptions import InputError

QOS_PRIORITY: Mapping[str, int] = MappingProxyType({"Guaranteed": 0, "LS": 0, "Burstable": 1, "BE": 2})
"""Quality of service -> priority (lower is better): latency-sensitive before burstable before best effort."""


LATEST = 1e15
"""Latest time of a simulation, in seconds, so that sums of times and amounts stay far from overflow."""

SHORTEST = 1e-6
"""Shortest interval of a repetition, in seconds: with a shorter one time would not advance."""

# The openb model: counts and quantiles, derived from the openb trace (cluster-trace-gpu-v2023 of Alibaba, published with
# the kubernetes-scheduler-simulator of HKUST under Apache-2.0).  These are summaries; no row of the trace is here.  Pods
# fall into four kinds by their GPUs: ``cpu`` (none), ``share`` (a share of one), ``one`` (one whole), ``several``.

SHAPES: tuple[tuple[int, int, int, int, str], ...] = (
    (549, 96000, 393216, 8, "G2"), (387, 104000, 524288, 2, "T4"), (129, 32000, 262144, 0, ""),
    (107, 16000, 122880, 2, "P100"), (59, 96000, 524288, 0, ""), (39, 128000, 786432, 8, "G3"),
    (30, 96000, 393216, 0, ""), (28, 32000, 131072, 4, "V100M16"), (23, 32000, 131072, 0, ""),
    (22, 64000, 262144, 2, "P100"), (22, 64000, 524288, 0, ""), (21, 96000, 786432, 8, "V100M32"),
    (20, 104000, 524288, 0, ""), (19, 8000, 32768, 1, "V100M16"), (17, 96000, 393216, 4, "T4"),
    (10, 32000, 65536, 0, ""), (9, 48000, 376832, 4, "V100M32"), (8, 64000, 262144, 0, ""),
    (7, 64000, 262144, 8, "V100M16"), (4, 64000, 131072, 0, ""), (3, 8000, 61440, 1, "P100"),
    (3, 104000, 786432, 0, ""), (2, 8000, 61440, 2, "P100"), (2, 128000, 1048576, 1, "A10"),
    (1, 82000, 344064, 8, "V100M16"), (1, 96000, 786432, 0, ""), (1, 104000, 196608, 0, ""),
)  # fmt: skip
"""Machine shapes: machines, cpu in 1/1000 core, memory in MiB, GPUs, GPU model."""

CLASSES: tuple[tuple[int, int, int, int, int], ...] = (
    (1047, 3152, 5600, 1, 810), (857, 11300, 49152, 1, 1000), (534, 11400, 48128, 1, 1000), (470, 3152, 5600, 1, 1000),
    (388, 11908, 47104, 1, 470), (364, 12500, 57344, 0, 0), (360, 8000, 30517, 1, 470), (284, 32000, 49152, 0, 0),
    (255, 18708, 64512, 1, 1000), (237, 11908, 47104, 1, 650), (195, 9810, 41560, 1, 1000), (163, 8000, 30517, 0, 0),
    (158, 12000, 24576, 1, 1000), (158, 15700, 58368, 1, 1000), (153, 11908, 47104, 1, 1000), (120, 15400, 51200, 0, 0),
    (111, 4000, 22888, 1, 320), (108, 16000, 32768, 1, 1000), (104, 4000, 24576, 1, 1000), (104, 8000, 16384, 1, 1000),
    (99, 12000, 16384, 1, 1000), (95, 16500, 51200, 0, 0), (93, 14200, 58368, 1, 1000), (84, 4000, 30517, 1, 230),
    (84, 24200, 93184, 1, 1000), (78, 4000, 15258, 1, 320), (75, 3152, 5600, 1, 590), (72, 4152, 10600, 1, 550),
    (72, 8000, 30517, 1, 320), (65, 11400, 77824, 1, 1000), (55, 8000, 32768, 1, 1000), (53, 4000, 15258, 1, 160),
    (51, 6000, 6144, 1, 460), (51, 11900, 77824, 1, 1000), (45, 4152, 10600, 1, 370), (44, 12000, 15360, 1, 1000),
    (43, 4000, 30517, 1, 320), (41, 8200, 33792, 1, 1000), (40, 4000, 31250, 1, 1000), (36, 15200, 80896, 1, 1000),
    (33, 16000, 65536, 1, 1000), (31, 4152, 10600, 1, 810), (29, 6000, 12288, 1, 460), (27, 16400, 125952, 1, 1000),
    (26, 4000, 22888, 1, 230), (24, 4000, 15258, 1, 220), (22, 1000, 2048, 1, 320), (20, 6000, 22888, 1, 160),
    (19, 8000, 30517, 1, 220), (18, 4000, 22888, 1, 480), (18, 6000, 18432, 1, 460), (18, 8000, 30517, 1, 230),
    (18, 64200, 263168, 8, 1000), (18, 88000, 327680, 8, 1000), (16, 11300, 37888, 1, 1000), (15, 1000, 6144, 1, 1000),
    (12, 4000, 15258, 1, 230), (12, 8000, 30517, 1, 650), (11, 4000, 22888, 1, 220), (11, 7000, 30000, 1, 1000),
    (11, 8000, 15625, 0, 0), (11, 11400, 57344, 0, 0), (9, 4000, 22888, 1, 110), (9, 6000, 8192, 1, 460),
    (9, 15400, 90112, 1, 1000), (9, 32200, 132096, 4, 1000), (8, 4000, 15258, 1, 110), (8, 4000, 16384, 1, 1000),
    (8, 4000, 30517, 1, 220), (8, 12000, 32768, 1, 1000), (8, 12000, 47104, 1, 1000), (8, 14900, 73728, 1, 1000),
    (8, 16000, 31250, 0, 0), (7, 4000, 22888, 1, 330), (7, 6000, 16384, 1, 460), (7, 16200, 66560, 2, 1000),
    (6, 4000, 22888, 1, 350), (6, 6000, 23552, 1, 460), (6, 6000, 32768, 1, 1000), (6, 9400, 52224, 1, 1000),
    (6, 12000, 18432, 1, 460), (5, 2000, 16384, 1, 1000), (5, 4000, 32768, 1, 1000), (5, 8000, 31250, 0, 0),
    (4, 4152, 10600, 1, 270), (4, 6000, 22888, 1, 50), (4, 6000, 22888, 1, 110), (4, 11900, 43008, 1, 1000),
    (4, 12000, 24576, 0, 0), (4, 12000, 49152, 1, 1000), (3, 2000, 8192, 1, 1000), (3, 4000, 15258, 1, 50),
    (3, 6000, 65536, 2, 1000), (3, 16000, 31250, 1, 1000), (3, 16000, 49152, 1, 1000), (3, 30200, 160768, 2, 1000),
    (3, 32000, 62500, 0, 0), (3, 32000, 131072, 4, 1000), (3, 60200, 320512, 4, 1000), (3, 64000, 262144, 8, 1000),
    (3, 120000, 737280, 8, 1000), (2, 1000, 2048, 1, 650), (2, 2000, 8192, 1, 370), (2, 4000, 15258, 1, 470),
    (2, 4000, 15258, 1, 650), (2, 6000, 30517, 1, 320), (2, 8000, 8192, 0, 0), (2, 8000, 16000, 1, 460),
    (2, 8000, 16384, 0, 0), (2, 8000, 30517, 1, 110), (2, 8000, 30517, 1, 440), (2, 8000, 65536, 1, 1000),
    (2, 12000, 16000, 1, 1000), (2, 12000, 23552, 1, 1000), (2, 12500, 65536, 0, 0), (2, 16000, 16384, 1, 1000),
    (2, 16000, 32768, 0, 0), (2, 16400, 84992, 1, 1000), (2, 17400, 43008, 2, 1000), (2, 20000, 65536, 0, 0),
    (2, 32000, 32768, 0, 0), (2, 120200, 640000, 8, 1000), (1, 1000, 2048, 1, 140), (1, 1000, 2048, 1, 290),
    (1, 4000, 4096, 1, 1000), (1, 4000, 8192, 1, 1000), (1, 4000, 22888, 1, 160), (1, 4000, 30517, 1, 110),
    (1, 5000, 10240, 1, 1000), (1, 6000, 8192, 1, 1000), (1, 6000, 16384, 1, 1000), (1, 8000, 8192, 1, 1000),
    (1, 8000, 15625, 1, 1000), (1, 8000, 24576, 1, 1000), (1, 8000, 30517, 1, 480), (1, 8000, 61035, 0, 0),
    (1, 8000, 62500, 0, 0), (1, 8710, 41560, 1, 1000), (1, 10000, 48828, 0, 0), (1, 11300, 23552, 1, 1000),
    (1, 11800, 78848, 1, 1000), (1, 12000, 12288, 1, 1000), (1, 14000, 0, 1, 1000), (1, 14000, 60000, 2, 1000),
    (1, 15900, 90112, 1, 1000), (1, 16000, 15625, 0, 0), (1, 16000, 16384, 0, 0), (1, 16000, 24576, 1, 1000),
    (1, 16000, 62500, 0, 0), (1, 16000, 65536, 0, 0), (1, 32000, 65536, 0, 0),
)  # fmt: skip
"""Request classes: pods, cpu in 1/1000 core, memory in MiB, GPUs, 1/1000 of each GPU."""

QOS: Mapping[str, Mapping[str, int]] = {
    "cpu": {"Guaranteed": 1, "LS": 636, "Burstable": 1, "BE": 450},
    "share": {"LS": 759, "BE": 2319},
    "one": {"Guaranteed": 6, "LS": 3200, "Burstable": 76, "BE": 629},
    "several": {"LS": 52, "Burstable": 23},
}
"""Pods of each quality-of-service class, by kind."""

LEVELS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)
"""The levels of the quantiles below.  Durations and gaps above the last level (up to 145 days) are left out."""

DURATIONS: Mapping[str, tuple[int, ...]] = {
    "cpu": (10, 77, 122, 146, 167, 237, 445, 773, 1398, 2512, 12849, 19471, 25093, 28363),
    "share": (0, 26, 46, 81, 133, 210, 356, 630, 1022, 2108, 7095, 16536, 41246, 74631),
    "one": (1, 49, 67, 128, 202, 313, 587, 1011, 1677, 3057, 5394, 12182, 50071, 169836),
    "several": (22, 36, 46, 139, 256, 491, 573, 1617, 3592, 15173, 66774, 185558, 946286, 1069632),
}
"""Quantiles of the run time of a pod, in seconds, by kind."""

GAPS = (0, 1, 6, 32, 59, 103, 160, 236, 354, 541, 938, 1423, 2165, 3000)
"""Quantiles of the time between two arrivals, in seconds, in the last quarter of the trace (nearly all its pods)."""

_CHANGES = MachineAdded | MachineUpdated | MachineDrained | MachineFailed | MachineRemoved
_PROPERTIES = ("capacity", "rack", "labels", "slots", "taints")


@dataclass(frozen=True, slots=True)
class Arrival:
    """Tasks that arrive together.

    Parameters
    ----------
    time : float
    job : JobSubmitted
        The job and the tasks that arrive now.  A job that has arrived before gets them as further tasks.
    durations : sequence of float
        Run time of each of ``job.tasks`` in seconds; ``math.inf`` for one that never ends.
    after : sequence of hashable
        Tasks of the workload that have to complete before: these arrive at `time`, or when the last of those completes.
    """

    time: float
    job: JobSubmitted
    durations: Sequence[float]
    after: Sequence[Hashable] = ()

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
        object.__setattr__(self, "after", tuple(dict.fromkeys(ordered(f"{me}: after", self.after))))


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
        Name in reports.
    arrivals : sequence of Arrival
        Sorted by time here; arrivals of the same time keep their order.
    machines : sequence of Machine
        Present from the start.
    machine_events : sequence of Event
        Machines that come, change, fail or go; each event has its ``time``.
    resources : tuple of str
        The names that demands and capacities use.
    units : mapping of str to str
        Unit of each resource, for reports.
    horizon : float or None
        Default end of a simulation; None to end when no event is left.
    facts : mapping of str to Any
        For the report: source, scaling.
    run_times : mapping of task to mapping of str to float
        Seconds that a task runs on machines of a GPU model (label ``gpu_model``), in place of its duration.  A model that is
        not named takes the duration, which is finite and above 0 for these tasks.

    Raises
    ------
    InputError
        A task id occurs twice, a machine event has no time, a run time is not above 0, tasks wait for one that the workload
        does not have, or for each other in a circle.
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
    from_frame: ClassVar[Callable[..., Trace]]
    """The workload of a table in memory: `flowsched.sim.from_frame`."""

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

        self._check_order(seen)

    def _check_order(self, tasks: Collection[Hashable]) -> None:
        """Raise InputError unless all arrivals can come, one after the other."""
        if not any(arrival.after for arrival in self.arrivals):
            return
        made = {task.id: i for i, arrival in enumerate(self.arrivals) for task in arrival.job.tasks}
        for arrival in self.arrivals:
            for task in arrival.after:
                if task not in tasks:
                    raise InputError(f"arrival of job {arrival.job.id!r}: after: there is no task {task!r}")
        before = {i: {made[task] for task in arrival.after} for i, arrival in enumerate(self.arrivals)}
        try:
            TopologicalSorter(before).prepare()
        except CycleError as error:
            jobs = dict.fromkeys(self.arrivals[i].job.tasks[0].id for i in error.args[1] if self.arrivals[i].job.tasks)
            raise InputError(f"after: tasks wait for each other: {', '.join(map(repr, jobs))}") from None

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
        ids = {task.id for arrival in kept for task in arrival.job.tasks}
        kept = [replace(a, after=[task for task in a.after if task in ids]) if a.after else a for a in kept]
        return replace(self, arrivals=kept)

    def hold(self) -> Self:
        """Return the same arrivals with tasks that never end, so that the cluster fills up; none waits for another."""
        return replace(
            self,
            arrivals=[replace(a, durations=(math.inf,) * len(a.durations), after=()) for a in self.arrivals],
            run_times={},
            facts={**self.facts, "hold": True},
        )

    def load(self) -> dict[str, Load]:
        """Return the load that the workload offers, by resource.

        Machines count from the start, or from the first `MachineAdded`; failures are ignored.
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
        """Make a synthetic workload with the figures of the openb production GPU cluster (`flowsched.sim.workload`).

        It starts in the steady state: the tasks that a cluster under this load would already run arrive at time 0
        with the rest of their durations (at most half of `tasks`), the others one by one.  It ends with the last arrival.

        Parameters
        ----------
        tasks : int
            Number of tasks that arrive, those of the start included.
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
        Jobs whose tasks may not share a machine by the trace (Google 2011); recorded, not enforced.
    notes : sequence of str
        Assumptions where the trace states nothing, with counts.
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
    # Tasks that end at an instant leave before others start at it.
    order = np.lexsort((np.r_[np.ones(len(start)), np.zeros(len(end))], np.r_[start, end]))
    steps = np.r_[demand, -demand][order]
    return np.asarray(np.cumsum(steps, axis=0).max(axis=0, initial=0), np.float64)


def _model_machines(scale: float) -> list[Machine]:
    counts = np.array([row[0] for row in SHAPES])
    machines: list[Machine] = []
    for (_, cpu, mem, gpus, model), n in zip(SHAPES, _apportion(counts, scale), strict=True):
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
    count, cpu, mem, gpus, milli = np.array(CLASSES).T
    kinds = [gpu_kind(int(g), int(s)) for g, s in zip(gpus, milli, strict=True)]
    demand = np.column_stack([cpu / 1000, mem, np.where(gpus == 1, milli / 1000, gpus)])
    resources = Resources(("cpu", "mem", "gpu"))
    capacity = np.sum([resources.capacity("machine", m.capacity) for m in machines], axis=0) / MICRO

    # Little's law: tasks at work = arrival rate x mean duration.
    weight = count / count.sum()
    mean = np.array([_quantile_mean(DURATIONS[k]) for k in kinds])
    work = (weight * mean) @ demand
    rate = load / float(np.max(work[capacity > 0] / capacity[capacity > 0]))
    resident = min(round(rate * float(weight @ mean)), tasks // 2)

    # At a random moment the running tasks are drawn in proportion to their length, each at a uniform point of it.
    at_work = weight * mean / (weight @ mean)
    picks = np.r_[rng.choice(len(count), resident, p=at_work), rng.choice(len(count), tasks - resident, p=weight)]
    level = rng.random(tasks)
    durations = np.empty(tasks)
    for kind, quantiles in DURATIONS.items():
        mine = np.array([kinds[c] == kind for c in picks], bool)
        old = mine & (np.arange(tasks) < resident)
        new = mine & ~old
        durations[new] = _draw(quantiles, level[new])
        pool = _draw(quantiles, (np.arange(4096) + 0.5) / 4096)
        durations[old] = rng.choice(pool, int(old.sum()), p=pool / pool.sum()) * rng.random(int(old.sum()))

    gaps = _draw(GAPS, rng.random(tasks - resident)) / (_quantile_mean(GAPS) * rate)
    times = np.r_[np.zeros(resident), np.cumsum(gaps)]
    qos = [tuple(QOS[k]) for k in kinds]
    odds = {k: np.cumsum(list(q.values())) / sum(q.values()) for k, q in QOS.items()}
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
    return np.expm1(np.interp(level * LEVELS[-1], LEVELS, known))


def _quantile_mean(quantiles: Sequence[float]) -> float:
    """Return the mean of `_draw`."""
    return float(_draw(quantiles, (np.arange(4096) + 0.5) / 4096).mean())


def estimated(workload: Workload, most: float = 1.0, *, seed: int = 0) -> Workload:
    """Return a workload with estimates of run times, in place of those that it has.

    Parameters
    ----------
    most : float
        The estimates of a job are its run times multiplied by a factor, uniform from 1 to `most`; with 1 they are exact.
        This is the "f-model" (Mu'alem and Feitelson, IEEE TPDS 12(6), 2001).
    seed : int
        Same seed, same factors.

    Raises
    ------
    InputError
        An argument out of range.

    Examples
    --------
    >>> work = estimated(Workload.model(tasks=100, scale=0.02), 3.0)
    >>> work.facts["estimates"]
    3.0
    """
    instance("workload", workload, Workload)
    number("most", most, 1, 1e6)
    whole("seed", seed, 0, 2**128 - 1)
    factors = np.random.default_rng(seed).uniform(1.0, most, len(workload.arrivals)).tolist()
    arrivals = []
    for arrival, factor in zip(workload.arrivals, factors, strict=True):
        scale = factor if most > 1 else 1.0
        tasks = tuple(
            replace(task, duration=duration * scale if math.isfinite(duration) else None)  # some never end
            for task, duration in zip(arrival.job.tasks, arrival.durations, strict=True)
        )
        arrivals.append(replace(arrival, job=replace(arrival.job, tasks=tasks)))
    return replace(workload, arrivals=arrivals, facts={**workload.facts, "estimates": most})


def gpu_kind(gpus: int, gpu_milli: int) -> str:
    """Return the kind of a request."""
    if gpus == 0:
        return "cpu"
    if gpus > 1:
        return "several"
    return "share" if gpu_milli < 1000 else "one"


def in_order(
    machines: Iterable[Machine], events: Sequence[Event], error: Callable[[int, str], Exception]
) -> list[Event]:
    """Return events of machines in the order of time, those of one time as they are given.

    A machine that comes back without a capacity has its former one, and its former properties where none are given.
    `machines` are those that are there from the start.  `error` makes the exception of an event, given its number and a
    message: the event is of no machine, of one that is not there at its time, or adds one that is.
    """
    up = {machine.id: machine for machine in machines}
    known: dict[Hashable, Machine] = dict(up)
    found: list[Event] = []
    for i in sorted(range(len(events)), key=lambda i: events[i].time or 0.0):
        event = events[i]
        if not isinstance(event, _CHANGES):
            raise error(i, f"a machine's event expected, got {quoted(event)}")
        name, added = event.id, isinstance(event, MachineAdded)
        if (name in up) is added:
            there = "is there already" if added else "is not there"
            raise error(i, f"machine {quoted(name)} {there} at {event.time:g} s")
        if isinstance(event, MachineAdded):
            old = known.get(name)
            if old is not None and not len(event.capacity):
                given = {key: getattr(event, key) or getattr(old, key) for key in _PROPERTIES}
                event = replace(event, **given)
            up[name] = known[name] = Machine(name, *(getattr(event, key) for key in _PROPERTIES))
        elif isinstance(event, MachineUpdated):
            given = {key: value for key in _PROPERTIES if (value := getattr(event, key)) is not None}
            up[name] = known[name] = replace(up[name], **given)
        elif not isinstance(event, MachineDrained):
            del up[name]
        found.append(event)
    return found
