"""The source's workload, as far as it is stated: jobs of the Facebook sizes, of applications whose needs change in stages.

Told are the cluster (23 machines of 32 hardware threads and 32 GB), the volumes (50 to 400 GB), the distribution of job
sizes, all jobs at once or at Poisson times, and that in the "cloud" other applications run beside.  What the
applications need is not told.  Here there are six, whose tasks read a block of 64 MB each; they ask for their peak, rounded
up to whole threads and half gigabytes, as people do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowsched.cluster.events import JobSubmitted
from flowsched.cluster.model import Machine, Task
from flowsched.fgm.stages import Stages
from flowsched.sim.execution import Execution, ForeignLoad
from flowsched.sim.workload import Arrival, Workload

__all__ = ["CONTENTION", "RESOURCES", "Case", "make"]

RESOURCES = ("cpu", "mem")

CONTENTION = 0.5
"""Loss of speed beyond sharing, per unit of compression."""

MACHINES, THREADS, MEMORY = 23, 32, 32.0

BLOCK = 0.0625
"""Input of a task in GB."""

USERS = 8

FACEBOOK = (
    (1, 1, 39),
    (2, 2, 16),
    (3, 20, 14),
    (21, 60, 9),
    (61, 150, 6),
    (151, 300, 6),
    (301, 500, 4),
    (501, 1500, 4),
)
"""Tasks from, to, and percent of the jobs; the 3 % of jobs of more than 1500 tasks exceed the volume and are left out."""

APPLICATIONS = {
    "wordcount": (((6, 1.0, 0.7), (16, 1.9, 1.1), (6, 0.8, 1.2)), (2, 1.5)),
    "grep": (((4, 0.5, 0.4), (12, 1.0, 0.5)), (1, 1.0)),
    "sort": (((8, 0.6, 0.8), (10, 1.3, 1.6), (16, 0.5, 1.9)), (2, 2.0)),
    "join": (((10, 0.7, 0.9), (12, 1.8, 1.4), (12, 0.9, 1.8)), (2, 2.0)),
    "kmeans": (((6, 0.6, 1.0), (24, 1.0, 1.1), (5, 0.4, 0.9)), (1, 1.5)),
    "pagerank": (((8, 0.7, 1.1), (8, 1.7, 1.4), (8, 0.8, 1.4), (8, 1.7, 1.4), (5, 0.5, 0.8)), (2, 1.5)),
}
"""Stages (seconds, threads, GB), and demand (threads, GB)."""


@dataclass(frozen=True, slots=True)
class Case:
    """One workload.

    Parameters
    ----------
    volume : float
        Input of all jobs in GB.
    online : bool
        Jobs arrive at Poisson times, not all at once.
    cloud : bool
        Others use the machines too.
    asks : float
        Tasks ask for so many times their peak, rounded up.
    alike : bool
        As many jobs, but all of the same size.
    """

    volume: float
    online: bool = False
    cloud: bool = False
    asks: float = 1.0
    alike: bool = False

    @property
    def name(self) -> str:
        """Name in tables."""
        name = f"{'online' if self.online else 'offline'}, {'cloud' if self.cloud else 'dedicated'}, {self.volume:g} GB"
        name += ", jobs alike" if self.alike else ""
        return name if self.asks == 1 else f"{name}, asking {self.asks:g} times as much"


def make(case: Case, seed: int) -> tuple[Workload, Execution]:
    """Return the jobs, and the true needs of their tasks."""
    rng = np.random.default_rng([seed, round(case.volume)])
    sizes = _sizes(round(case.volume / BLOCK), rng)
    if case.alike:
        sizes = [(sum(sizes) + i) // len(sizes) for i in range(len(sizes))]
    # At the rate of 400 GB in 300 s, requests exceed the cluster, so that queues grow with the volume.
    window = case.volume / 400 * 300
    times = np.sort(rng.uniform(0, window, len(sizes))) if case.online else np.zeros(len(sizes))
    arrivals, stages = [], {}
    names = list(APPLICATIONS)
    for j, (size, when) in enumerate(zip(sizes, times, strict=True)):
        name = names[int(rng.integers(len(names)))]
        course, (cpu, mem) = APPLICATIONS[name]
        pace, hunger = rng.lognormal(0, 0.1, size), 1 + 0.04 * rng.standard_normal((size, 2)).clip(-2.5, 2.5)
        request = {"cpu": cpu * case.asks, "mem": mem * case.asks}
        tasks = [Task(f"j{j}.{i}", request, kind=(name, BLOCK)) for i in range(size)]
        seconds, needs = np.array([s for s, *_ in course]), np.array([need for _, *need in course])
        for i, task in enumerate(tasks):
            stages[task.id] = Stages(seconds * pace[i], needs * hunger[i])
        job = JobSubmitted(f"j{j}", tasks, user=f"u{int(rng.integers(USERS))}")
        arrivals.append(Arrival(round(float(when), 3), job, [stages[task.id].duration for task in tasks]))
    machines = [Machine(f"m{i:02d}", {"cpu": THREADS, "mem": MEMORY}) for i in range(MACHINES)]
    units = {"cpu": "threads", "mem": "GB"}
    foreign = _foreign(rng) if case.cloud else []
    execution = Execution(stages, ("cpu",), CONTENTION, foreign, sample=2.0, noise=0.02, progress=True, seed=seed)
    return Workload(case.name, arrivals, machines, resources=RESOURCES, units=units), execution


def _sizes(tasks: int, rng: np.random.Generator) -> list[int]:
    """Draw sizes of jobs, `tasks` in all; the last one is cut."""
    low, high, part = np.array(FACEBOOK).T
    sizes: list[int] = []
    while tasks > 0:
        kind = rng.choice(len(part), p=part / part.sum())
        size = min(int(rng.integers(low[kind], high[kind], endpoint=True)), tasks)
        sizes.append(size)
        tasks -= size
    return sizes


def _foreign(rng: np.random.Generator) -> list[ForeignLoad]:
    """Draw the foreign load: 24 threads and 14 GB on every machine, half of the time, for two minutes on average."""
    loads = []
    for i in range(MACHINES):
        time, busy = 0.0, bool(rng.integers(2))
        while time < 7200:
            loads.append(ForeignLoad(time, f"m{i:02d}", {"cpu": 24, "mem": 14.0} if busy else {}))
            time, busy = time + float(rng.exponential(120)), not busy
    return loads
