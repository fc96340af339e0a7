"""Deciding in steps, and patience: placement costs that change with every task, and places that are not worth taking yet."""

from __future__ import annotations

import pytest

from flowsched import ReasonCode, Scheduler
from flowsched.cluster import Task
from flowsched.cluster.events import JobSubmitted, MachineAdded
from flowsched.policy import FragmentationCost, LoadCost, Policy, WaitCost


def gpu_cluster(**more: object) -> Scheduler:
    """Two machines of one GPU; the workload comes as 0.6 and 0.4 in equal parts, so these belong together."""
    cost = FragmentationCost.of([Task("s", {"gpu": 0.4}), Task("l", {"gpu": 0.6})], repeat=0)
    sched = Scheduler(Policy(placement=[cost], **more), resources=("cpu", "gpu"))  # type: ignore[arg-type]
    sched.apply(MachineAdded("a", {"gpu": 1}), MachineAdded("b", {"gpu": 1}))
    return sched


@pytest.mark.parametrize("step", [0.01, 0.5])
def test_small_steps_see_the_room_that_earlier_placements_left(step: float) -> None:
    sched = gpu_cluster(step=step)
    sched.apply(
        JobSubmitted(
            "j", [Task(("s", i), {"gpu": 0.4}) for i in range(2)] + [Task(("l", i), {"gpu": 0.6}) for i in range(2)]
        )
    )
    rnd = sched.schedule(0.0)
    assert len(rnd.placements) == 4, "each machine takes one of 0.6 and one of 0.4"
    assert rnd.stats.solves > 3
    assert len(sched.commit(rnd).accepted) == 4
    assert sched.schedule(1.0).deltas == ()


@pytest.mark.parametrize("step", [1.0, 0.1])
def test_in_steps_too_the_better_priority_goes_first_whatever_it_costs(step: float) -> None:
    sched = Scheduler(Policy(placement=[LoadCost("pack")], step=step, preemption=None), resources=("cpu",))
    sched.apply(MachineAdded("m", {"cpu": 4}))
    sched.apply(
        JobSubmitted("worse", [Task("w", {"cpu": 4})], priority=2),
        JobSubmitted("better", [Task("b", {"cpu": 1})], priority=1),
    )
    rnd = sched.schedule(0.0)
    assert dict(rnd.placements) == {"b": "m"}
    assert rnd.waiting["w"].code is ReasonCode.OUTBID


def test_the_patient_wait_for_a_cheaper_place_for_a_while() -> None:
    sched = Scheduler(Policy(waiting=WaitCost(first=60, patience=0.5), step=0.5), resources=("cpu",))
    sched.apply(MachineAdded("m", {"cpu": 4}), JobSubmitted("j", [Task("half", {"cpu": 2}), Task("most", {"cpu": 1})]))
    first = sched.schedule(0.0)
    assert len(first.placements) == 1, "next to the other, each would load the machine by 3/4"
    (late,) = first.waiting
    assert first.waiting[late].code is ReasonCode.WAIT_CHEAPER
    sched.commit(first)
    assert not sched.schedule(59.0).placements
    assert set(sched.schedule(60.0).placements) == {late}
