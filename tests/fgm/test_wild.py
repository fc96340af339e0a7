"""Events in any order, of any time or none, refused or not: FGM stands it, and keeps nothing of what is gone."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest
from effort import effort

import flowsched as fs
from flowsched.exceptions import FlowschedError
from flowsched.fgm import DemandEstimator, FineGrained, Level, StageShare
from flowsched.sim.baselines import Greedy
from flowsched.sim.orders import drf

NAMES = ("cpu", "mem", "gpu", "disk")
MACHINES = ["m0", "m1", "m2", "m3"]


def adapter(rng: random.Random) -> FineGrained:
    scheduler: Any = Greedy(drf, NAMES) if rng.random() < 0.3 else fs.Scheduler(resources=NAMES)
    estimator = DemandEstimator(
        NAMES, cold=rng.choice([1, 2]), kinds=rng.choice([2, 4096]), pending=rng.choice([3, 1000]),
        tolerance=rng.choice([0, 0.2]), safety={"mem": rng.choice([0, 2])},
    )  # fmt: skip
    fine = FineGrained(
        scheduler, estimator=estimator, contention=rng.choice([0, 0.5]), idle=rng.choice([0, 0.05]),
        min_length=rng.choice([0, 0.05, 1]), threshold=rng.choice([0, 0.2, math.inf]), highest=rng.choice([*Level][1:]),
    )  # fmt: skip
    if isinstance(scheduler, fs.Scheduler) and rng.random() < 0.3:
        fine.policy = replace(fine.policy, fairness=fs.Fairness(StageShare(fine), over="user"))
    return fine


def draw(rng: random.Random, fine: FineGrained, now: float, serial: int) -> fs.Event:
    """An event that may be impossible."""
    tasks: list[Any] = list(fine.cluster.tasks) or ["nobody"]
    task, machine = rng.choice(tasks), rng.choice(MACHINES)
    time = None if rng.random() < 0.2 else now + rng.choice([0, 0, 0.5, -3, 5])
    capacity = {"cpu": rng.choice([0, 4, 8]), "mem": 8, "gpu": rng.choice([0, 2]), "disk": rng.choice([0, 100])}
    usage = {name: rng.choice([0, 0.3, 1, 5]) for name in NAMES if rng.random() < 0.9}
    demand = {
        "cpu": rng.choice([0, 0.5, 2, 4]), "mem": rng.choice([0, 1, 3]), "gpu": rng.choice([0, 0, 0.5, 1]), "disk": 30,
    }  # fmt: skip
    kind = rng.choice([None, "a", "b", ("c", rng.choice([1.0, 1.1, 5]))])
    job = fs.JobSubmitted(
        serial, [fs.Task((serial, i), demand, kind=kind) for i in range(rng.randint(1, 5))], priority=rng.randint(0, 2),
        user=rng.choice("xyz"), gang=rng.choice([None, None, 1, 2]), deadline=rng.choice([None, now + 20]), time=time,
    )  # fmt: skip
    weighted: list[tuple[int, fs.Event]] = [
        (15, fs.MachineAdded(machine, capacity, slots=rng.choice([None, 3]), time=time)),
        (15, job),
        (20, fs.UsageSampled(task, usage, rng.choice([None, None, 0, 0.3, 0.9, 1]), time=time)),
        (15, fs.MachineSampled(machine, usage, time=time)),
        (15, fs.TaskCompleted(task, time=time)),
        (3, fs.TaskFailed(task, retry=rng.random() < 0.5, time=time)),
        (2, fs.TaskRemoved(task, time=time)),
        (2, fs.JobRemoved(rng.randint(1, serial), time=time)),
        (2, fs.MachineFailed(machine, time=time)),
        (1, fs.MachineRemoved(machine, time=time)),
        (3, fs.MachineUpdated(machine, {**capacity, "gpu": 2}, time=time)),
        (1, fs.MachineDrained(machine, time=time)),
        (6, fs.TaskStarted(task, machine, time=time)),
    ]
    weights, events = zip(*weighted, strict=True)
    event: fs.Event = rng.choices(events, weights)[0]
    return event


@pytest.mark.parametrize("seed", range(effort(3, 500)))
def test_whatever_happens(seed: int) -> None:
    rng = random.Random(seed)
    fine = adapter(rng)
    now, refused = rng.choice([0.0, 1e9]), 0
    for step in range(120):
        events = [draw(rng, fine, now, 4 * step + i + 1) for i in range(rng.choice([1, 1, 2, 4]))]
        try:
            fine.apply(*events)
        except FlowschedError:
            refused += 1
        if rng.random() < 0.5:
            now += rng.choice([0, 0.3, 2, 8, -1])
            decided = fine.schedule(now)
            if rng.random() < 0.9:
                assert fine.commit(decided).accepted == decided.deltas
    assert 0 < refused < 120
    fine.apply(*(fs.JobRemoved(job, time=now) for job in list(fine.cluster.jobs)))
    fine.commit(fine.schedule(now + 1))
    fine.schedule(now + 2)
    assert not any(fine.forecast._members.values())
    assert not fine.forecast.undated
    assert not fine.learner._traces
    inventory = fine.cluster.inventory
    for machine in fine.cluster.machines.values():
        assert machine.failed or (inventory.free[machine.row] == inventory.capacity[machine.row]).all()
