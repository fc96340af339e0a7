"""Data locality: tasks run where their data is, else in its rack, and all the rest holds as before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import step

from flowsched import CostRangeError, InputError, Scheduler
from flowsched.cluster import Task
from flowsched.cluster.events import (
    JobRemoved,
    JobSubmitted,
    MachineAdded,
    MachineFailed,
    MachineRemoved,
    MachineUpdated,
    TaskCompleted,
    from_dict,
    to_dict,
)
from flowsched.policy import LoadCost, Locality, Policy

NEAR = Policy(placement=(), locality=Locality())


def racks(policy: Policy = NEAR, slots: int = 2, racks: int = 3, size: int = 4) -> Scheduler:
    """Machines (rack, i)."""
    sched = Scheduler(policy, resources=("cpu",))
    sched.apply(*(MachineAdded((r, i), {"cpu": 8}, rack=r, slots=slots) for r in range(racks) for i in range(size)))
    return sched


def placements(sched: Scheduler, now: float = 0.0) -> dict:  # type: ignore[type-arg]
    rnd = step(sched, now)
    assert not sched.schedule(now).deltas, "decided once is decided"
    return dict(rnd.placements)


def test_on_the_machine_else_in_the_rack_else_anywhere() -> None:
    sched = racks()
    sched.apply(JobSubmitted("j", [Task(i, {"cpu": 1}, data={(1, 2): 100}) for i in range(9)]))
    where = list(placements(sched).values())
    assert where.count((1, 2)) == 2, "as many as its slots"
    assert sum(rack == 1 for rack, _ in where) == 8, "and the rack full"
    assert len(where) == 9


def test_each_job_goes_to_its_own_data() -> None:
    sched = racks()
    for r in range(3):
        for i in range(4):
            sched.apply(JobSubmitted((r, i), [Task((r, i, k), {"cpu": 1}, data={(r, i): 10 + k}) for k in range(2)]))
    assert all(machine == task[:2] for task, machine in placements(sched).items())


def test_data_in_two_places_and_a_few_bytes_elsewhere() -> None:
    """Half of it in rack 0, a third in rack 2, a crumb in rack 1 that is below the threshold."""
    sched = racks(slots=1)
    sched.apply(JobSubmitted("j", [Task(i, {"cpu": 1}, data={(0, 0): 50, (2, 1): 40, (1, 0): 5}) for i in range(6)]))
    where = list(placements(sched).values())
    # Racks 0 and 2 have four machines each; the two machines with data come first, and rack 0 before rack 2.
    assert {(0, 0), (2, 1)} <= set(where)
    assert [sum(rack == r for rack, _ in where) for r in range(3)] == [4, 0, 2]


def test_costs_are_quincys() -> None:
    near = Locality(rack=0.25)
    assert near.cost(1.0, 1.0) == 0.0
    assert near.cost(0.0, 1.0) == 0.25
    assert near.cost(0.0, 0.0) == 1.0
    assert near.cost(0.5, 0.75) == pytest.approx(0.25 + 0.25 * 0.25)
    policy = Policy(placement=[LoadCost(weight=1.0)], locality=Locality(weight=3.0))
    assert policy.distance(0, 0) == 750
    assert policy.distance(1, 1) == 0
    assert Policy().distance(0, 0) == 0


def test_load_still_counts_next_to_locality() -> None:
    """Weights decide: with much more on load, the loaded machine with the data is left."""
    for weight, there in ((0.05, False), (20.0, True)):
        sched = racks(Policy(locality=Locality(weight=weight)), slots=8)
        sched.apply(JobSubmitted("load", [Task("x", {"cpu": 4}, data={(1, 1): 1})]))
        placements(sched)
        assert (sched.cluster.placement("x") == (1, 1)) is True
        sched.apply(JobSubmitted("j", [Task("y", {"cpu": 1}, data={(1, 1): 1})]))
        placements(sched)
        assert (sched.cluster.placement("y") == (1, 1)) is there


def test_without_locality_data_does_not_matter_and_it_can_be_switched() -> None:
    sched = racks(Policy())
    sched.apply(JobSubmitted("j", [Task(0, {"cpu": 1}, data={(2, 3): 1})]))
    assert sched.schedule(0.0).placements
    nodes = sched.network.num_nodes
    sched.policy = NEAR
    assert dict(sched.schedule(0.0).placements) == {0: (2, 3)}
    assert nodes < sched.network.num_nodes <= nodes + 2, "one machine's gate, perhaps its rack; not a new network"
    sched.policy = Policy()
    assert sched.schedule(0.0).placements


def test_machines_with_data_come_go_and_move() -> None:
    sched = racks()
    sched.apply(JobSubmitted("j", [Task(i, {"cpu": 1}, data={"late": 1}) for i in range(2)]))
    assert "late" not in sched.schedule(0.0).placements.values()
    sched.apply(MachineAdded("late", {"cpu": 8}, rack=1, slots=1))
    first = dict(sched.schedule(0.0).placements)
    assert sorted(map(str, first.values()))[-1] == "late"
    assert all(machine == "late" or machine[0] == 1 for machine in first.values()), "the other in its rack"
    sched.apply(MachineUpdated("late", rack=2))
    moved = dict(sched.schedule(0.0).placements)
    assert all(machine == "late" or machine[0] == 2 for machine in moved.values())
    sched.apply(MachineRemoved("late"))
    assert len(placements(sched)) == 2


def test_the_room_for_a_class_is_shared_by_all_ways_to_a_machine() -> None:
    """Some come for their data, some anyhow; cpu, which the flow cannot see together, still holds."""
    sched = racks(slots=8, racks=1, size=2)
    sched.apply(JobSubmitted("near", [Task(("n", i), {"cpu": 3}, data={(0, 0): 1}) for i in range(4)]))
    sched.apply(JobSubmitted("any", [Task(("a", i), {"cpu": 3}) for i in range(4)]))
    placed = placements(sched)
    assert len(placed) == 4, "two of 3 cpus on each machine of 8"
    assert sum(machine == (0, 0) for machine in placed.values()) == 2


def test_tasks_of_one_job_with_different_data_are_distinguished() -> None:
    sched = racks()
    sched.apply(JobSubmitted("j", [Task(0, {"cpu": 1}, data={(0, 0): 1}), Task(1, {"cpu": 1}, data={(2, 0): 1})]))
    assert placements(sched) == {0: (0, 0), 1: (2, 0)}
    sched.apply(TaskCompleted(0), TaskCompleted(1), JobRemoved("j"))
    assert not sched.schedule(1.0).deltas


def test_small_steps_go_to_the_data_too() -> None:
    sched = racks(Policy(locality=Locality(weight=9.0), step=0.2))
    sched.apply(JobSubmitted("j", [Task(i, {"cpu": 1}, data={(1, 2): 1, (0, 0): 1}) for i in range(4)]))
    assert sorted(placements(sched).values()) == [(0, 0), (0, 0), (1, 2), (1, 2)]


def test_data_survives_json() -> None:
    event = JobSubmitted("j", [Task(0, {"cpu": 1}, data={(1, 2): 5, "m": 2.5})])
    again = from_dict(json.loads(json.dumps(to_dict(event))))
    assert again.tasks[0].data == (((1, 2), 5), ("m", 2.5))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Task("t", data={"m": -1}), r"task 't': data\['m'\]"),
        (lambda: Task("t", data={"m": float("nan")}), "data"),
        (lambda: Locality(weight=0), "weight"),
        (lambda: Locality(rack=2), "rack"),
        (lambda: Locality(threshold=0), "threshold"),
        (lambda: Locality(amount=0), "amount"),
        (lambda: Locality(amount=float("inf")), "amount"),
        (lambda: Policy(locality=1.0), "locality"),
    ],
)
def test_nonsense_is_refused_by_name(make, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=words):
        make()


@settings(max_examples=effort(10, 200), deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1.0, 0.3]))
def test_random_histories(seed: int, part: float) -> None:
    """Whatever comes and goes: a certified optimum, never over capacity, nothing twice, everything placed that fits."""
    rng = np.random.default_rng(seed)
    sched = racks(Policy(locality=Locality(weight=2.0), step=part), slots=3)
    machines, jobs, running = [(r, i) for r in range(3) for i in range(4)], 0, []
    for now in range(8):
        for _ in range(int(rng.integers(1, 4))):
            tasks = []
            for k in range(int(rng.integers(1, 6))):
                holders = [machines[i] for i in rng.integers(0, len(machines), int(rng.integers(0, 4)))]
                data = {machine: int(rng.integers(0, 9)) for machine in holders}
                tasks.append(Task((jobs, k), {"cpu": int(rng.integers(1, 4))}, data=data))
            sched.apply(JobSubmitted(jobs, tasks, priority=int(rng.integers(0, 2))))
            jobs += 1
        for task in [task for task in running if rng.random() < 0.4]:
            if sched.cluster.task_state(task) == "running":
                sched.apply(TaskCompleted(task))
                running.remove(task)
        dice, machine = rng.random(), machines[int(rng.integers(0, len(machines)))]
        if dice < 0.2:
            sched.apply(MachineFailed(machine), MachineAdded(machine, {"cpu": 8}, rack=machine[0], slots=3))
        elif dice < 0.4:
            sched.apply(
                MachineRemoved(machine), MachineAdded(machine, {"cpu": 8}, rack=int(rng.integers(0, 4)), slots=3)
            )
        elif dice < 0.6:
            sched.apply(MachineUpdated(machine, rack=int(rng.integers(0, 4))))
        rnd = sched.schedule(float(now))
        sched.builder.check_ids()
        assert not sched.commit(rnd).conflicts
        running = [task for task in sched.cluster.tasks if sched.cluster.placement(task) is not None]
        net = sched.network
        assert (sched.cluster.inventory.free[: sched.cluster.inventory.rows] >= 0).all()
        arcs = net.arcs()
        flow, cost, capacity = net.flow(arcs), net.cost(arcs), net.capacity(arcs)
        assert (flow <= capacity).all()
        reduced = cost + net.potential(net.tail(arcs)) - net.potential(net.head(arcs))
        assert (reduced[flow < capacity] >= 0).all() and (reduced[flow > net.lower(arcs)] <= 0).all()
        for task in rnd.waiting:
            assert not sched.cluster.fits(task).any(), "there is room, and it waits"


# -- by amount ------------------------------------------------------------------------------------------------


def two_tasks(locality: Locality, **given: Any) -> Scheduler:
    """A small and a large task want the one slot of the machine that has their data; another rack has room, too."""
    sched = Scheduler(Policy(placement=(), locality=locality, **given), resources=("cpu",))
    sched.apply(MachineAdded("near", {"cpu": 8}, rack=0, slots=1), MachineAdded("far", {"cpu": 8}, rack=1, slots=1))
    sched.apply(JobSubmitted("small", [Task("small", {"cpu": 1}, data={"near": 1e6})]))
    sched.apply(JobSubmitted("large", [Task("large", {"cpu": 1}, data={"near": 1e11})]))
    return sched


def test_the_task_with_more_bytes_is_nearer() -> None:
    assert placements(two_tasks(Locality(amount=1e11))) == {"large": "near", "small": "far"}
    by_part = two_tasks(Locality())
    for task in ("small", "large"):
        assert entry_costs(by_part, task) == (1000, [0, 500]), "by part, both are alike"
    assert entry_costs(two_tasks(Locality(amount=1e11)), "large") == (1000, [0, 500])
    assert entry_costs(two_tasks(Locality(amount=1e11)), "small") == (0, [0, 0]), "a megabyte is below the resolution"


def entry_costs(sched: Scheduler, task: str) -> tuple[int, list[int]]:
    """Costs of the arcs of a task with data: anywhere, and to machines and racks."""
    sched.schedule(0.0)
    entry = sched.builder.locality.entries[sched.cluster.task(task).group]
    return int(sched.network.cost(np.array([entry.far]))[0]), sorted(sched.network.cost(entry.arcs).tolist())


def test_costs_by_amount_are_as_computed_by_hand() -> None:
    """60 on a, 20 on b, both of rack 0; 20 on c, of rack 1; 40 elsewhere cost a whole load.  Each unit costs 25 levels, 10 in the rack."""
    sched = Scheduler(
        Policy(placement=(), locality=Locality(rack=0.4, amount=40.0), resolution=1000), resources=("cpu",)
    )
    sched.apply(*(MachineAdded(m, {"cpu": 1}, rack=rack) for m, rack in (("a", 0), ("b", 0), ("c", 1))))
    sched.apply(JobSubmitted("j", [Task("t", {"cpu": 1}, data={"a": 60, "b": 20, "c": 20})]))
    far, near = entry_costs(sched, "t")
    assert far == 100 * 25
    in_rack_0, in_rack_1 = 20 * 25 + 80 * 10, 80 * 25 + 20 * 10
    on_a, on_b, on_c = 20 * 25 + 20 * 10, 20 * 25 + 60 * 10, 80 * 25
    assert near == sorted([in_rack_0, in_rack_1, on_a, on_b, on_c])
    locality = sched.policy.locality
    assert locality == Locality(weight=4.0, rack=0.4, amount=160.0) and sched.policy.resolution == 4000
    assert dict(sched.schedule(0.0).placements) == {"t": "a"}


@settings(deadline=None, max_examples=effort(15, 500))
@given(st.lists(st.integers(1, 60), min_size=2, max_size=7), st.integers(0, 4))
def test_the_bytes_over_the_core_are_as_few_as_can_be(amounts: list[int], slots: int) -> None:
    """All data on one machine with few slots: those with the most data run there."""
    sched = Scheduler(Policy(placement=(), locality=Locality(rack=1.0, amount=7.0)), resources=("cpu",))
    sched.apply(MachineAdded("near", {"cpu": 99}, rack=0, slots=slots))
    sched.apply(MachineAdded("far", {"cpu": 99}, rack=1, slots=99))
    sched.apply(*(JobSubmitted(i, [Task(i, {"cpu": 1}, data={"near": n})]) for i, n in enumerate(amounts)))
    there = placements(sched)
    moved = sum(n for i, n in enumerate(amounts) if there[i] == "far")
    assert moved == sum(sorted(amounts)[: max(len(amounts) - slots, 0)])


def test_a_wider_range_leaves_all_costs_of_places_as_they_are() -> None:
    """Load and data are weighed as before, whatever else has come."""
    policy = Policy(placement=[LoadCost(weight=2.0)], locality=Locality(weight=0.5, amount=10.0), resolution=10_000)
    wide = policy._holding(75.0)
    assert wide.locality == Locality(weight=4.0, amount=80.0) and wide.resolution == 24_000
    assert [wide.distance(0, 0, n) for n in range(11)] == [policy.distance(0, 0, n) for n in range(11)]
    sched = racks(policy)
    sched.apply(JobSubmitted("j", [Task("t", {"cpu": 2})]))
    sched.schedule(0.0)
    classes, rows = np.array([sched.cluster.task("t").group.cls.index]), np.arange(12)
    assert (wide.place(sched.cluster, classes, rows) == policy.place(sched.cluster, classes, rows)).all()


def test_more_data_than_any_scale_holds_is_named() -> None:
    sched = two_tasks(Locality(amount=1e-100))
    with pytest.raises(CostRangeError, match="data of 1e\\+06 is too much.*a larger amount than 1e-100"):
        sched.schedule(0.0)
    sched.policy = Policy(placement=(), locality=Locality(amount=1e11))
    assert placements(sched) == {"large": "near", "small": "far"}


def test_a_grown_range_is_in_the_journal(tmp_path: Path) -> None:
    policy = Policy(placement=(), locality=Locality(amount=5.0))
    sched = Scheduler(policy, resources=("cpu",), journal=tmp_path / "journal")
    sched.apply(MachineAdded("m", {"cpu": 1}), JobSubmitted("j", [Task("t", {"cpu": 1}, data={"m": 12.0})]))
    sched.commit(sched.schedule(0.0))
    assert sched.journal is not None and sched.policy.locality == Locality(weight=4.0, amount=20.0)
    sched.journal.close()
    again = Scheduler(policy, resources=("cpu",), journal=tmp_path / "journal")
    assert again.recovery is not None and not again.recovery.differences and again.policy == sched.policy
