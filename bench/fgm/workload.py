"""The source's workload, as far as it is stated: jobs of the Facebook sizes, of applications whose needs change in stages.

The source states the cluster (23 machines of 32 hardware threads and 32 GB), the volumes (50 to 400 GB), the distribution
of job sizes, all jobs at once or at Poisson times, and that in the "cloud" scientific applications share the machines.
The rest is chosen here, once for all figures:

=============================  ==================================  =====================================================
parameter                      value                               reason
=============================  ==================================  =====================================================
applications                   six of two to five stages           MapReduce and Spark; their needs are not stated
input of a task                64 MB                               a block of their file system
CPU request of a task          its peak, in whole threads          as users do, since YARN counts virtual cores
memory request of a task       0.5 or 1 GB, about 1.4 times the    a thread of these machines has 1 GB; the source compresses
                               need                                CPU, so CPU has to be the scarce resource
contention g                   1                                   Figure 4: beyond full use the performance "drops by
                                                                   much".  At twice the capacity half of it is lost.
memory beyond the capacity     slows tasks as CPU does             Linux swaps before it kills
FIFO, Capacity, Fair           look at memory alone                YARN's default calculator; DRF looks at both
load of others in the cloud    28 threads, 4 GB, on and off for    scientific computing on all cores but some, in runs of
                               ten minutes on average              minutes
=============================  ==================================  =====================================================
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
FOUR = (*RESOURCES, "disk", "net")

CONTENTION = 1.0
"""Loss of speed beyond sharing, per unit of compression."""

MACHINES, THREADS, MEMORY = 23, 32, 32.0
DISK, NET = 400.0, 1000.0
"""MB per second of a machine, where four resources count."""

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
    "wordcount": (((6, 1.0, 0.35), (16, 1.9, 0.55), (6, 0.8, 0.6)), (2, 0.75)),
    "grep": (((4, 0.5, 0.2), (12, 1.0, 0.25)), (1, 0.5)),
    "sort": (((8, 0.6, 0.4), (10, 1.3, 0.8), (16, 0.5, 0.95)), (2, 1.0)),
    "join": (((10, 0.7, 0.45), (12, 1.8, 0.7), (12, 0.9, 0.9)), (2, 1.0)),
    "kmeans": (((6, 0.6, 0.5), (24, 1.0, 0.55), (5, 0.4, 0.45)), (1, 0.75)),
    "pagerank": (((8, 0.7, 0.55), (8, 1.7, 0.7), (8, 0.8, 0.7), (8, 1.7, 0.7), (5, 0.5, 0.4)), (2, 0.75)),
}
"""Stages (seconds, threads, GB), and demand (threads, GB)."""

MARKED = {
    "extract": (((12, 0.3, 0.3), (6, 3.0, 0.5)), (3, 0.5)),
    "train": (((8, 2.8, 0.4), (16, 0.4, 0.6)), (3, 1.0)),
    "merge": (((6, 0.4, 0.3), (6, 2.5, 0.4), (12, 0.3, 0.9)), (3, 1.0)),
    "score": (((4, 1.0, 0.4), (10, 1.2, 0.5)), (2, 0.5)),
}
"""Applications of which most need six to ten times as much CPU in one stage as in the others."""

IDLE = {"fetch": (((20, 0.0, 0.25), (10, 1.0, 0.25)), (1, 0.375))}
"""An application that waits for data or for a reply, without CPU, and then computes."""


LOAD = {"load": (((10, 0.1, 0.3, 0, 60), (10, 1.0, 0.5, 0, 0), (8, 0.2, 0.4, 40, 0)), (1, 0.7, 40, 60))}
"""An application that fetches, computes and stores: in each stage it needs another resource; threads, GB, MB/s of disk and net."""


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
    alike : bool
        All jobs have the same size; their number stays.
    marked : bool
        Applications with marked stages.
    idle : bool
        The application that is idle and then busy.
    four : bool
        The application that needs four resources, one after the other.
    contention : float
    memory : float
        Factor on the requested and the needed memory of tasks.
    both : bool
        All baselines look at CPU and memory.
    """

    volume: float
    online: bool = False
    cloud: bool = False
    alike: bool = False
    marked: bool = False
    idle: bool = False
    four: bool = False
    contention: float = CONTENTION
    memory: float = 1.0
    both: bool = False

    @property
    def resources(self) -> tuple[str, ...]:
        """Names of the resources."""
        return FOUR if self.four else RESOURCES

    @property
    def name(self) -> str:
        """Name in tables."""
        words = [
            "online" if self.online else "offline",
            "cloud" if self.cloud else "dedicated",
            f"{self.volume:g} GB",
            "jobs alike" if self.alike else "",
            "marked stages" if self.marked else "",
            "idle, then busy" if self.idle else "",
            "four resources" if self.four else "",
            f"contention {self.contention:g}" if self.contention != CONTENTION else "",
            f"memory x{self.memory:g}" if self.memory != 1 else "",
            "baselines look at both" if self.both else "",
        ]
        return ", ".join(filter(None, words))


def make(case: Case, seed: int, by_memory: bool = False) -> tuple[Workload, Execution]:
    """Return the jobs, and the true needs of their tasks.

    Parameters
    ----------
    case : Case
    seed : int
    by_memory : bool
        Tasks request memory only.
    """
    rng = np.random.default_rng([seed, round(case.volume)])
    sizes = _sizes(round(case.volume / BLOCK), rng)
    if case.alike:
        sizes = [(sum(sizes) + i) // len(sizes) for i in range(len(sizes))]
    # At the rate of 400 GB in 300 s, requests exceed the cluster, so that queues grow with the volume.
    window = case.volume / 400 * 300
    times = np.sort(rng.uniform(0, window, len(sizes))) if case.online else np.zeros(len(sizes))
    arrivals, stages = [], {}
    applications = LOAD if case.four else IDLE if case.idle else MARKED if case.marked else APPLICATIONS
    names = list(applications)
    for j, (size, when) in enumerate(zip(sizes, times, strict=True)):
        name = names[int(rng.integers(len(names)))]
        course, peak = applications[name]
        noise = rng.standard_normal((size, len(peak))).clip(-2.5, 2.5)
        pace, hunger = rng.lognormal(0, 0.1, size), 1 + 0.04 * noise
        request = dict(zip(case.resources, peak, strict=True)) | {"mem": peak[1] * case.memory}
        if by_memory:
            request["cpu"] = 0.0
        tasks = [Task(f"j{j}.{i}", request, kind=(name, BLOCK)) for i in range(size)]
        seconds, needs = np.array([s for s, *_ in course]), np.array([need for _, *need in course])
        needs[:, 1] *= case.memory
        for i, task in enumerate(tasks):
            stages[task.id] = Stages(seconds * pace[i], needs * hunger[i])
        job = JobSubmitted(f"j{j}", tasks, user=f"u{int(rng.integers(USERS))}")
        arrivals.append(Arrival(round(float(when), 3), job, [stages[task.id].duration for task in tasks]))
    capacity = dict(zip(case.resources, (THREADS, MEMORY, DISK, NET), strict=False))
    machines = [Machine(f"m{i:02d}", capacity) for i in range(MACHINES)]
    units = {"cpu": "threads", "mem": "GB", "disk": "MB/s", "net": "MB/s"}
    units = {name: units[name] for name in case.resources}
    foreign = _foreign(rng) if case.cloud else []
    execution = Execution(
        stages, case.resources, case.contention, foreign, sample=2.0, noise=0.02, progress=True, seed=seed
    )
    return Workload(case.name, arrivals, machines, resources=case.resources, units=units), execution


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
    """Draw the foreign load: 28 threads and 4 GB on every machine, half of the time, for ten minutes on average."""
    loads = []
    for i in range(MACHINES):
        time, busy = 0.0, bool(rng.integers(2))
        while time < 20_000:
            loads.append(ForeignLoad(time, f"m{i:02d}", {"cpu": 28, "mem": 4.0} if busy else {}))
            time, busy = time + float(rng.exponential(600)), not busy
    return loads
