"""Explaining one task of many: what it says, and that it looks at little."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import flowsched as fs
from flowsched.cluster.inventory import Inventory
from flowsched.rounds.reasons import judge


def crowded(machines: int, waiting: int) -> fs.Scheduler:
    """A full cluster of a few shapes, and tasks of a few classes that wait."""
    sched = fs.Scheduler(resources=("cpu", "gpu"))
    sched.apply(
        *(
            fs.MachineAdded(i, {"cpu": 8, "gpu": i % 3}, labels={"gpu_model": ("T4", "P100")[i % 2]}, slots=4)
            for i in range(machines)
        )
    )
    sched.apply(fs.JobSubmitted("full", [fs.Task(("full", i), {"cpu": 2}) for i in range(4 * machines)]))
    sched.commit(sched.schedule(0.0))
    demands: list[tuple[dict[str, float], dict[str, Any]]] = [
        ({"cpu": 3}, {}),
        ({"cpu": 9}, {}),
        ({"gpu": 0.5}, {"gpu_model": ("T4",)}),
        ({"gpu": 1}, {"gpu_model": ("V100",)}),
    ]
    for j in range(waiting // 10):
        demand, constraints = demands[j % 4]
        sched.apply(fs.JobSubmitted(j, [fs.Task((j, i), demand, constraints) for i in range(10)]))
    return sched


def test_after_a_round_one_of_20000_is_explained_without_a_look_at_machines_or_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sched = crowded(500, 20_000)
    rnd = sched.schedule(1.0)
    assert len(rnd.waiting) == 20_000
    seen: list[int] = []
    room = Inventory.room

    def spy(inventory: Inventory, classes: np.ndarray, rows: np.ndarray) -> Any:
        seen.append(len(classes) * len(rows))
        return room(inventory, classes, rows)

    monkeypatch.setattr(Inventory, "room", spy)
    for name in ("flow", "reduced_cost", "potential", "arcs", "nodes", "tail", "head", "capacity", "cost", "solve"):
        monkeypatch.setattr(fs.FlowNetwork, name, lambda *_, **__: pytest.fail("the network was touched"))
    reasons = [sched.explain((j, 7)) for j in range(8)]
    assert sum(seen) == 0, "no machine has changed since the round"
    assert [r.code.value for r in reasons] == ["NO_FIT", "NEVER_FITS", "NO_SLOT", "FILTERED"] * 2
    assert [rnd.waiting[j, 7].detail for j in range(8)] == [r.detail for r in reasons]
    sched.apply(fs.TaskCompleted(("full", 0)))
    assert sched.explain((0, 7)).code.value == "NO_FIT"
    assert sum(seen) == 1, "the machine that has changed"
    seen.clear()
    assert sched.explain((2, 0), 5).code.value == "FILTERED"
    assert sum(seen) == 1


@pytest.mark.parametrize("seed", range(4))
def test_an_explanation_agrees_with_a_check_of_every_machine(seed: int) -> None:
    rng = random.Random(seed)
    sched = fs.Scheduler(resources=("cpu", "gpu"))
    sched.apply(*(fs.MachineAdded(i, {"cpu": 4, "gpu": i % 2}, slots=rng.choice([None, 2])) for i in range(4)))
    for now in range(30):
        demand = {"cpu": rng.randrange(1, 6), "gpu": rng.choice([0, 0.5, 1])}
        sched.apply(fs.JobSubmitted(now, [fs.Task((now, i), demand) for i in range(3)]))
        if rng.random() < 0.7:
            sched.commit(sched.schedule(float(now)))
        kind, machine = rng.randrange(4), rng.choice(sched.cluster.machine_ids())
        if kind == 0:
            sched.apply(fs.MachineAdded(100 + now, {"cpu": 2}))
        elif kind == 1 and len(sched.cluster.machines) > 2:
            sched.apply(rng.choice([fs.MachineRemoved, fs.MachineDrained])(machine))
        running = [task for task in sched.cluster.tasks if sched.cluster.placement(task)]
        if running and rng.random() < 0.5:
            sched.apply(fs.TaskCompleted(rng.choice(running)))
        inventory = sched.cluster.inventory
        live = np.flatnonzero(inventory.shapes().of_row >= 0)
        for name, task in sched.cluster.tasks.items():
            if task.place is None:
                why = np.zeros(inventory.rows, np.uint32)
                why[live] = inventory.room(np.array([task.group.cls.index]), live)[1][0]
                assert sched.explain(name).detail == judge(inventory, task.group.cls, why).reason().detail


def test_looking_one_up_and_looking_all_up_is_the_same() -> None:
    sched = crowded(4, 200)
    rnd = sched.schedule(1.0)
    one_by_one = {task: rnd.waiting[task].code for task in list(rnd.waiting)}
    assert one_by_one == {task: reason.code for task, reason in sched.schedule(1.0).waiting.items()}
    for _ in range(6):
        with pytest.raises(KeyError):
            rnd.waiting["nobody"]
    with pytest.raises(KeyError):
        sched.schedule(1.0).waiting["nobody"]


def test_room_on_a_machine_that_has_just_come_is_known_to_those_who_waited_already() -> None:
    sched = fs.Scheduler(resources=("cpu",))
    sched.apply(fs.MachineAdded("small", {"cpu": 4}), fs.JobSubmitted("j", [fs.Task("large", {"cpu": 8})], priority=1))
    assert sched.schedule(0.0).waiting["large"].code is fs.ReasonCode.NEVER_FITS
    sched.apply(fs.MachineAdded("new", {"cpu": 8}), fs.JobSubmitted("k", [fs.Task("better", {"cpu": 5})], priority=0))
    rnd = sched.schedule(1.0)
    assert rnd.placements == {"better": "new"} and rnd.waiting["large"].code is fs.ReasonCode.OUTBID


@pytest.mark.parametrize("machines", [1, 7, 30])
def test_a_machine_that_went_before_any_round_saw_it_offers_no_room(machines: int) -> None:
    sched = fs.Scheduler(resources=("cpu",))
    sched.apply(fs.MachineAdded("m", {"cpu": 4}))
    sched.schedule(0.0)
    sched.apply(*(fs.MachineAdded(i, {"cpu": 9}) for i in range(machines)), *map(fs.MachineRemoved, range(machines)))
    sched.apply(fs.JobSubmitted("a", [fs.Task("a", {"cpu": 4})]))
    sched.apply(fs.JobSubmitted("b", [fs.Task("b", {"cpu": 4})], priority=1))
    rnd = sched.schedule(1.0)
    assert rnd.placements == {"a": "m"} and rnd.waiting["b"].code is fs.ReasonCode.OUTBID
    sched.commit(rnd)
    assert sched.explain("b").code is fs.ReasonCode.NO_FIT
    assert sched.schedule(2.0).waiting["b"].code is fs.ReasonCode.NO_FIT
