"""Figure 9: completion of batch jobs under HRM, offers of Mesos by DRF, and YARN's Capacity and Fair schedulers.

The source's cluster: 8 machines of 16 cores and 32 GB.  The systems differ in the messages between a free place and a
running container; the result is the time that these take.  Every message of the four systems has the same interval, `BEAT`.

YARN     A job's application master is a container of its own.  A machine's heartbeat reports the ended containers, and gets
         new ones by the scheduler's order.  The master receives them with its own next heartbeat, and launches them.
         Fair is here twice: a heartbeat gives all that fits, or one container, its default (``assignmultiple`` is off).
Mesos    Machines report ended containers at once.  The master offers free resources at intervals, and when a framework
         arrives, to the one with the least dominant share; every job is a framework.  Drivers run outside of the cluster.
HRM      Six schedulers claim optimistically.  A machine's heartbeat reports the ended containers; by then, containers from
         the queue of its unit have taken their places.

Mesos here offers container by container, which is finer than its whole machines.  The orders are those of `flowsched.sim`.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.hrm.hybrid import BatchJob, HybridSimulation
from bench.rows import Row
from flowsched.cluster import Task
from flowsched.cluster.events import JobRemoved, JobSubmitted, MachineAdded, TaskCompleted, TaskSubmitted
from flowsched.hrm import Container, ResourceUnit
from flowsched.sim.baselines import Greedy, Room, emptiest
from flowsched.sim.orders import Order, capacity, drf, fair

__all__ = ["BEAT", "PROGRAMS", "Offers", "Times", "Yarn", "frameworks", "jobs_of_programs"]

Floats = NDArray[np.float64]

BEAT = 1.0
"""Seconds: the default of YARN's machines and of MapReduce's masters, and of the offers of Mesos."""

MACHINES, CORES, MEMORY = 8, 16, 32.0

PROGRAMS = {
    "WordCount": (100, (4.0, 8.0)),
    "Sort": (60, (6.0, 12.0)),
    "TPC-H, 20 executors": (20, (2.0, 6.0)),
    "TPC-H, 80 executors": (80, (2.0, 6.0)),
}
"""Containers of a core and 2 GB, and the range of their seconds: inputs, alike for all.  The source's TPC-H queries 9, 10 and 21
are those with many executors."""

_ONE = "YARN Fair, one container a heartbeat"

_LENGTH = 2
"""Places of a unit's queue: the source's best."""


@dataclass
class Times:
    """By job: seconds from arrival until its last container ran, and until the last one ended."""

    running: Floats
    completion: Floats


def jobs_of_programs(count: int, load: float, seed: int) -> list[tuple[str, float, list[float]]]:
    """Draw jobs: program, time of arrival, and seconds of the containers; they keep this part of the cores busy."""
    rng = np.random.default_rng(seed)
    jobs, at = [], 0.0
    for i in range(count):
        program = list(PROGRAMS)[i % len(PROGRAMS)]
        size, seconds = PROGRAMS[program]
        took = rng.uniform(*seconds, size)
        jobs.append((program, at, took.tolist()))
        at += float(rng.exponential(took.sum() / (load * MACHINES * CORES)))
    return jobs


def _container(task: Any) -> tuple[int, int]:
    """Return the job and the number of a task; -1 is its master."""
    job, number = task
    return job, number


class _Heartbeats:
    """Common part of both comparators: a greedy scheduler's books, and a queue of timed actions."""

    def __init__(self, jobs: Sequence[tuple[str, float, list[float]]], order: Order, choice: Any = emptiest) -> None:
        self.jobs = jobs
        self.greedy = Greedy(order, ("cpu", "mem"), choice)
        self.greedy.apply(
            *(MachineAdded(m, {"cpu": CORES, "mem": MEMORY}, time=0.0) for m in range(MACHINES))
        )  # every machine's row is its number
        self._due: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._serial = 0
        self.now = 0.0
        self.left = [len(seconds) for _, _, seconds in jobs]
        self.times = Times(np.zeros(len(jobs)), np.full(len(jobs), np.nan))
        for j, (_, at, _) in enumerate(jobs):
            self.at(at, self.arrive, j)

    def at(self, time: float, do: Callable[[Any], None], what: Any) -> None:
        """Do something at a time."""
        heapq.heappush(self._due, (time, self._serial, do, what))
        self._serial += 1

    def run(self) -> Times:
        """Run until the last job has ended."""
        while np.isnan(self.times.completion).any():
            self.now, _, do, what = heapq.heappop(self._due)
            do(what)
        return self.times

    def tasks(self, j: int) -> list[Task]:
        """Return the containers of a job."""
        return [Task((j, i), {"cpu": 1, "mem": MEMORY / CORES}) for i in range(len(self.jobs[j][2]))]

    def launch(self, container: tuple[int, int]) -> None:
        """Start a container that has been given a place."""
        j, i = container
        self.times.running[j] = self.now - self.jobs[j][1]
        self.at(self.now + self.jobs[j][2][i], self.end, container)

    def ended(self, j: int) -> bool:
        """Count a container's end; return True for the job's last one."""
        self.left[j] -= 1
        if not self.left[j]:
            self.times.completion[j] = self.now - self.jobs[j][1]
        return not self.left[j]

    def arrive(self, j: int) -> None:
        """Take a new job."""
        raise NotImplementedError

    def end(self, container: tuple[int, int]) -> None:
        """Take a container's end."""
        raise NotImplementedError


class Yarn(_Heartbeats):
    """Containers by machines' heartbeats, launched by application masters' heartbeats.

    Parameters
    ----------
    jobs : sequence of (program, time, seconds of the containers)
    order : Order
    most : int, optional
        Containers that one heartbeat may give.
    """

    def __init__(self, jobs: Sequence[tuple[str, float, list[float]]], order: Order, most: int | None = None) -> None:
        super().__init__(jobs, order, self._here)
        self._most = most
        self._machine = 0  # whose heartbeat it is
        self._gone: list[list[Any]] = [[] for _ in range(MACHINES)]  # tasks that ended since the last heartbeat
        self._where: dict[Any, int] = {}
        self._master: dict[int, float] = {}  # by job: start of its application master
        for machine in range(MACHINES):
            self.at(BEAT * machine / MACHINES, self._heartbeat, machine)

    def _here(self, room: Room, cls: Any, columns: NDArray[np.int64]) -> Floats:
        rows: Floats = (room.rows[columns] != self.greedy.cluster.machine(self._machine).row).astype(np.float64)
        return rows

    def arrive(self, j: int) -> None:
        """Ask for the application master's container."""
        master = Task((j, -1), {"cpu": 1, "mem": MEMORY / CORES})
        self.greedy.apply(JobSubmitted(j, [master], user=self.jobs[j][0], time=self.now))

    def _heartbeat(self, machine: int) -> None:
        self.at(self.now + BEAT, self._heartbeat, machine)
        self.greedy.apply(*(TaskCompleted(task, time=self.now) for task in self._gone[machine]))
        self._gone[machine].clear()
        if not self.greedy.cluster.waiting:
            return
        self._machine = machine
        decided = self.greedy.schedule(self.now)
        mine = [task for task, where in decided.placements.items() if where == machine][: self._most]
        self.greedy.commit(decided, mine)
        for task in mine:
            j, i = _container(task)
            self._where[task] = machine
            if i < 0:
                self._master[j] = self.now
                self.greedy.apply(*(TaskSubmitted(j, one, time=self.now) for one in self.tasks(j)))
            else:
                turns = math.floor((self.now - self._master[j]) / BEAT + 1e-9) + 1
                self.at(self._master[j] + turns * BEAT, self.launch, (j, i))

    def end(self, container: tuple[int, int]) -> None:
        """Note an end for the machine's heartbeat; the master ends with the last container."""
        self._gone[self._where.pop(container)].append(container)
        if self.ended(container[0]):
            master = (container[0], -1)
            self._gone[self._where.pop(master)].append(master)


class Offers(_Heartbeats):
    """Containers by offers to the framework with the least dominant share."""

    def __init__(self, jobs: Sequence[tuple[str, float, list[float]]]) -> None:
        super().__init__(jobs, drf)
        self.at(0.0, self._offer, True)

    def arrive(self, j: int) -> None:
        """Register a framework, to which an offer is made at once."""
        self.greedy.apply(JobSubmitted(j, self.tasks(j), user=j, time=self.now))
        self._offer(False)

    def _offer(self, again: bool) -> None:
        if again:
            self.at(self.now + BEAT, self._offer, True)
        if self.greedy.cluster.waiting:
            decided = self.greedy.schedule(self.now)
            self.greedy.commit(decided)
            for task in decided.placements:
                self.launch(_container(task))

    def end(self, container: tuple[int, int]) -> None:
        """Take back the resources of a container; they are in the next offer."""
        self.greedy.apply(TaskCompleted(container, time=self.now))
        if self.ended(container[0]):
            self.greedy.apply(JobRemoved(container[0], time=self.now))


def _hrm(jobs: Sequence[tuple[str, float, list[float]]]) -> Times:
    units = [ResourceUnit(f"u{m}", f"m{m}", vcore=CORES, mem=1024 * MEMORY) for m in range(MACHINES)]
    batch = [
        BatchJob(
            f"j{j}", at, tuple(
                Container(f"j{j}-{i}", f"j{j}", vcore=1, mem=1024 * MEMORY / CORES, duration=d) for i, d in enumerate(seconds)
            )
        )
        for j, (_, at, seconds) in enumerate(jobs)
    ]  # fmt: skip
    found = HybridSimulation(units, batch, schedulers=6, length=_LENGTH, heartbeat=BEAT, in_turn=True).run()
    return Times(found.start, found.completion)


def frameworks(quick: bool, seed: int) -> list[Row]:
    """Return the rows of each program: HRM compared with the others, the mean of some runs."""
    rows: list[Row] = []
    runs: dict[str, Callable[[list[tuple[str, float, list[float]]]], Times]] = {
        "HRM": _hrm,
        "Mesos, DRF offers": lambda jobs: Offers(jobs).run(),
        "YARN Capacity": lambda jobs: Yarn(jobs, capacity({}, {})).run(),
        "YARN Fair": lambda jobs: Yarn(jobs, fair).run(),
        _ONE: lambda jobs: Yarn(jobs, fair, 1).run(),
    }
    source = {_ONE: None, "Mesos, DRF offers": "about equal", "YARN Capacity": "HRM less", "YARN Fair": "HRM less"}
    for load in (0.3, 0.8):
        by_name: dict[str, list[Times]] = {name: [] for name in runs}
        for k in range(1 if quick else 3):
            jobs = jobs_of_programs(16 if quick else 40, load, seed + 1000 * k)
            for name, simulate in runs.items():
                by_name[name].append(simulate(jobs))
        for p, program in enumerate(PROGRAMS):
            mine = slice(p, None, len(PROGRAMS))
            for metric, of in (("delay until all run", "running"), ("completion", "completion")):
                mean = {
                    name: float(np.mean([getattr(times, of)[mine].mean() for times in some]))
                    for name, some in by_name.items()
                }
                for other, published in source.items():
                    if other == _ONE and of == "running":
                        continue
                    rows.append(Row(
                        "hrm", f"9: {program}, load of {load:.0%}", f"{metric}, mean", mean["HRM"], mean[other],
                        mean[other] / mean["HRM"], published if of == "completion" else None, "s", note=f"baseline: {other}",
                    ))  # fmt: skip
    return rows
