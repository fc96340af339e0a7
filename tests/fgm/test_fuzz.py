"""FGM where estimates are wrong, priorities differ, gangs wait, machines fail and others use them: nothing breaks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from effort import effort

import flowsched as fs
from flowsched.cluster.events import Event, MachineAdded, MachineDrained, MachineFailed, MachineUpdated
from flowsched.cluster.model import Machine
from flowsched.fgm import DemandEstimator, FineGrained, Stages, StageShare
from flowsched.sim import Arrival, Execution, ForeignLoad, Simulation, Workload
from flowsched.sim.baselines import Greedy
from flowsched.sim.orders import drf


def draw(rng: np.random.Generator) -> tuple[Workload, Execution]:
    names = ("cpu", "mem", "gpu") if rng.random() < 0.4 else ("cpu", "mem")
    kinds = []
    for _ in range(3):
        count = int(rng.integers(1, 4))
        demand = np.zeros((count, len(names)))
        demand[:, :2] = rng.uniform(0.1, 2, (count, 2)).round(1)
        kinds.append(Stages(rng.integers(1, 10, count), demand))
    arrivals, true = [], {}
    for j in range(int(rng.integers(1, 8))):
        kind, size = int(rng.integers(3)), int(rng.integers(1, 6))
        peak = kinds[kind].peak
        request = {"cpu": abs(float(peak[0] + rng.uniform(-0.2, 1))), "mem": float(peak[1] + 0.3)}
        if "gpu" in names:
            request["gpu"] = (0, 0.5, 1)[int(rng.integers(3))]
        tasks = [fs.Task(f"j{j}.{i}", request, kind=kind if rng.random() < 0.8 else None) for i in range(size)]
        for task in tasks:
            true[task.id] = Stages(
                kinds[kind].seconds * rng.uniform(0.5, 2), kinds[kind].demand * rng.uniform(0.7, 1.4)
            )
        job = fs.JobSubmitted(
            f"j{j}", tasks, user=f"u{rng.integers(2)}", priority=int(rng.integers(3)),
            gang=int(rng.integers(1, size + 1)) if rng.random() < 0.3 else None,
            deadline=float(rng.integers(5, 60)) if rng.random() < 0.3 else None,
        )  # fmt: skip
        arrivals.append(Arrival(float(rng.integers(0, 30)), job, [5.0] * size))
    capacity = {name: 2.0 if name == "gpu" else 4.0 for name in names}
    machines = [
        Machine(f"m{i}", capacity, slots=None if rng.random() < 0.7 else 3) for i in range(int(rng.integers(1, 4)))
    ]
    events: list[Event] = []
    if rng.random() < 0.4:
        events += [MachineFailed("m0", time=8.0), MachineAdded("m0", capacity, time=12.0)]
    if rng.random() < 0.2:
        events.append(MachineUpdated("m0", {**capacity, "cpu": 3}, time=20.0))
    if rng.random() < 0.2:
        events.append(MachineDrained("m0", time=25.0))
    loads = [
        ForeignLoad(time, "m0", {"cpu": float(rng.uniform(0, 3)), "mem": float(rng.uniform(0, 1))})
        for time in (3.0, 9.0, 20.0)
    ]  # fmt: skip
    execution = Execution(
        true, contention=0.5, foreign=loads if rng.random() < 0.5 else (), noise=0.05,
        sample=1.0 if rng.random() < 0.8 else None,
    )  # fmt: skip
    return Workload("drawn", arrivals, machines, events, resources=names), execution


@dataclass
class Period:
    """A time in which a machine takes tasks; afterwards, what runs there may go on."""

    capacity: Mapping[str, float]
    start: float = 0.0
    stop: float = math.inf
    goes_on: bool = True


def periods(work: Workload, machine: Machine) -> list[Period]:
    found = [Period(machine.capacity)]
    for event in work.machine_events:
        if getattr(event, "id", None) != machine.id:
            continue
        now = event.time or 0.0
        if found[-1].stop > now:
            found[-1].stop, found[-1].goes_on = now, isinstance(event, MachineDrained)
        if isinstance(event, MachineAdded | MachineUpdated):
            found.append(Period(event.capacity, now))
    return found


def somebody_can_start(work: Workload, execution: Execution, seconds: float, last: bool) -> bool:
    """Whether a task that starts alone has room for so long, by its request, on a machine without others.

    A quarter more than what others use there is left to them, since samples of it err, and a twentieth idle.  With
    `last`, only times are looked at after which what runs there goes on to its end.
    """
    for arrival, machine in product(work.arrivals, work.machines):
        for period in periods(work, machine):
            begin = max(arrival.time, period.start)
            if begin + seconds > period.stop or (last and not period.goes_on) or (arrival.job.gang or 1) > 1:
                continue
            loads = [load for load in execution.foreign if load.machine == machine.id and load.time < period.stop]
            loads = [load for i, load in enumerate(loads) if i + 1 == len(loads) or loads[i + 1].time > begin]
            for task in arrival.job.tasks:
                if all(
                    need + 1.25 * max((load.usage.get(name, 0.0) for load in loads), default=0.0)
                    <= 0.95 * period.capacity[name]
                    for name, need in task.demand.items()
                ):
                    return True
    return False


@pytest.mark.parametrize("seed", range(effort(4, 3000)))
def test_nothing_breaks(seed: int) -> None:
    """Devices, slots and labels are audited by the simulation; a round that never ends would hang.

    Somebody starts and ends if a machine has room for a task for long enough: a second suffices to start while nobody has
    ever run there, 8 where samples may have told the machine to stop, which they do for 5 seconds.
    """
    rng = np.random.default_rng(seed)
    work, execution = draw(rng)
    base: Any = fs.Scheduler(resources=work.resources) if rng.random() < 0.8 else Greedy(drf, work.resources)
    fine = FineGrained(
        base,
        contention=0.5,
        estimator=DemandEstimator(work.resources, cold=1),
        idle=0.05 if rng.random() < 0.3 else 0.0,
    )
    if isinstance(base, fs.Scheduler) and rng.random() < 0.4:
        fairness = fs.Fairness(StageShare(fine), over="user", within=fs.MaxMin())
        base.policy = replace(base.policy, fairness=fairness)
    metrics = Simulation(
        fine, work, execution=execution, preempted="resume" if rng.random() < 0.5 else "restart",
        charge_solver=0.3 if rng.random() < 0.3 else False,
    ).run(until=300)  # fmt: skip
    assert sum(metrics.account().values()) == work.n_tasks
    assert metrics.placed or not somebody_can_start(work, execution, 1.0, last=False)
    assert not np.isnan(metrics.ends).all() or not somebody_can_start(work, execution, 8.0, last=True)
