"""The model of run time on 20 machines: programs, loads of jobs, and one simulated run of a load.

20 machines in two racks, 24 cores each; those of rack 1 have a GPU.  No machine has more tasks than cores.  The speed of a
program without its GPU is an assumption; the places and the waits of tasks are results.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster import Machine, Task
from flowsched.cluster.events import JobSubmitted
from flowsched.cluster.records import Group
from flowsched.policy import LoadCost, Policy, Utilities
from flowsched.scheduler import Scheduler
from flowsched.sim import Arrival, Simulation, Workload
from flowsched.sim.execution import Execution
from flowsched.sim.orders import Shares

__all__ = [
    "CORES",
    "NAME",
    "RESOURCES",
    "Floats",
    "Kind",
    "Load",
    "Run",
    "cores",
    "oldest_first",
    "simulate",
    "sirius",
    "utilities",
]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

NAME = "sirius"
RESOURCES = ("cpu",)
CORES = 24
"""Cores of a machine."""


@dataclass(frozen=True)
class Kind:
    """A program: the range of its tasks' seconds, and its speed on a machine without a GPU."""

    name: str
    seconds: tuple[float, float]
    off_gpu: float = 1.0

    def speed(self, rack: str) -> float:
        """Speed on a machine of a rack; the machines of rack 1 have the GPUs."""
        return 1.0 if rack == "rack1" else self.off_gpu


def _machines(slots: Callable[[str], int | None]) -> list[Machine]:
    racks = [f"rack{1 + i // 10}" for i in range(20)]
    return [
        Machine(f"m{i:02}", {"cpu": CORES}, rack, labels={"rack": rack}, slots=slots(rack))
        for i, rack in enumerate(racks)
    ]


def utilities(kinds: Iterable[Kind]) -> Utilities:
    """Placement constraints: the utility of a place is the speed of the program there."""
    racks = ("rack1", "rack2")
    return Utilities([(kind, {"rack": (rack,)}, kind.speed(rack)) for kind in dict.fromkeys(kinds) for rack in racks])


@dataclass(frozen=True)
class Load:
    """Jobs that arrive: time, program, durations of the tasks, and priority."""

    name: str
    jobs: Sequence[tuple[float, Kind, Floats, int]]

    def workload(self, machines: Sequence[Machine]) -> tuple[Workload, Execution]:
        """Workload and execution for the simulator."""
        arrivals = []
        kinds: dict[Hashable, Kind] = {}
        for j, (at, kind, seconds, priority) in enumerate(self.jobs):
            ids = [(j, i) for i in range(len(seconds))]
            kinds.update(dict.fromkeys(ids, kind))
            tasks = [Task(task, {"cpu": 1}, kind=kind) for task in ids]
            arrivals.append(Arrival(at, JobSubmitted(j, tasks, user=kind.name, priority=priority), seconds.tolist()))
        racks = {machine.id: str(machine.rack) for machine in machines}
        execution = Execution(speed=lambda task, machine: kinds[task].speed(racks[machine]))
        return Workload(self.name, arrivals, machines, resources=RESOURCES, units={"cpu": "cores"}), execution


@dataclass(frozen=True)
class Run:
    """Result of a run: waits and ends by task, in the order of arrival."""

    load: Load
    waits: Floats
    ends: Floats

    @property
    def _job(self) -> Ints:
        return np.repeat(np.arange(len(self.load.jobs)), [len(seconds) for _, _, seconds, _ in self.load.jobs])

    @property
    def spent(self) -> Floats:
        """Seconds of each task from arrival to end."""
        arrived = np.array([at for at, _, _, _ in self.load.jobs])
        spent: Floats = self.ends - arrived[self._job]
        return spent

    def full_speed(self) -> float:
        """The part of the tasks that ran where their program is at full speed."""
        alone = np.concatenate([seconds for _, _, seconds, _ in self.load.jobs])
        return float((self.spent - self.waits < 1.01 * alone).mean())

    def of(self, name: str, values: Floats) -> float:
        """Mean over the tasks of a program."""
        mine = np.array([kind.name == name for _, kind, _, _ in self.load.jobs])
        return float(values[mine[self._job]].mean())


def simulate(load: Load, scheduler: Any, slots: Callable[[str], int | None]) -> Run:
    """Run a load to its end; `slots` gives the slots of the machines of a rack."""
    machines = _machines(slots)
    workload, execution = load.workload(machines)
    metrics = Simulation(scheduler, workload, execution=execution).run()
    if metrics.tasks["completed"] != workload.n_tasks:
        raise AssertionError(f"{load.name}: {metrics.tasks['completed']} of {workload.n_tasks} tasks were completed")
    return Run(load, metrics.waits, metrics.ends)


def cores(rack: str) -> int | None:
    """One slot for each core."""
    return CORES


def sirius(load: Load, **given: Any) -> Scheduler:
    """A scheduler with the source's costs for a load: utility, load and waiting; `given` are other parts of the policy."""
    wishes = utilities(kind for _, kind, _, _ in load.jobs)
    return Scheduler(Policy(placement=(wishes, LoadCost("spread", 0.2)), **given), resources=RESOURCES)


def oldest_first(group: Group, shares: Shares) -> tuple[float, ...]:
    """Order of a queue by priority, then by time waited, as Borg's and Kubernetes' are."""
    return group.cls.priority, group.waiting[0].turn
