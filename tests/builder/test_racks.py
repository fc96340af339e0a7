"""Spread over racks: a limit of tasks of one kind in a rack, by brute force on small clusters."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import numpy as np
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import step

import flowsched as fs

NO_COST = fs.Policy(placement=())


def cluster(racks: list[str | None], policy: fs.Policy = NO_COST, **given: Any) -> fs.Scheduler:
    sched = fs.Scheduler(policy, resources=("cpu",))
    sched.apply(*(fs.MachineAdded(i, {"cpu": 8}, rack=rack, **given) for i, rack in enumerate(racks)))
    return sched


def job(name: Any, count: int, most: int | None, priority: int = 0, **given: Any) -> fs.JobSubmitted:
    tasks = [fs.Task((name, i), {"cpu": 1}, apart_in_rack=most, **given) for i in range(count)]
    return fs.JobSubmitted(name, tasks, priority=priority)


def in_racks(sched: fs.Scheduler) -> Counter[tuple[Any, Any]]:
    """Number of running tasks by job and rack; a machine without a rack counts alone."""
    found: Counter[tuple[Any, Any]] = Counter()
    for task in sched.cluster.tasks.values():
        if task.place is not None:
            machine = sched.cluster.by_row[task.place.row].machine
            found[task.group.job.job.id, machine.id if machine.rack is None else machine.rack] += 1
    return found


def test_at_most_two_in_a_rack_and_why_the_others_wait() -> None:
    sched = cluster(["r", "r", "r", "s", "s"])
    sched.apply(job("j", 6, 2))
    rnd = step(sched)
    assert in_racks(sched) == {("j", "r"): 2, ("j", "s"): 2}
    assert rnd.stats.solves == 1, "the flow knows the limit"
    for reason in (*rnd.waiting.values(), *sched.schedule(1.0).waiting.values(), sched.explain(("j", 5))):
        assert reason.code is fs.ReasonCode.SPREAD and reason.detail == {"8 cpu": {"rack": 5}}
        assert "TaskCompleted" in reason.unblocked_by
    sched.apply(fs.MachineAdded("new", {"cpu": 8}, rack="t"))
    assert len(step(sched, 2.0).placements) == 2


def test_machines_of_no_rack_are_racks_of_their_own() -> None:
    sched = cluster([None] * 3)
    sched.apply(job("j", 5, 1))
    step(sched)
    assert in_racks(sched) == {("j", 0): 1, ("j", 1): 1, ("j", 2): 1}


def test_jobs_without_a_kind_count_each_for_itself_and_those_of_one_kind_together() -> None:
    sched = cluster(["r", "s"])
    sched.apply(job("a", 2, 1), job("b", 2, 1))
    step(sched)
    assert set(in_racks(sched).values()) == {1} and len(in_racks(sched)) == 4
    sched.apply(job("c", 2, 1, kind="web"), job("d", 2, None, kind="web"))
    assert len(step(sched, 1.0).placements) == 2, "the strictest limit among the tasks there holds for all of the kind"


def test_who_ends_or_moves_makes_room_in_the_rack() -> None:
    sched = cluster(["r", "r", "s"])
    sched.apply(job("j", 3, 1))
    first = step(sched)
    (at_r,) = [task for task, machine in first.placements.items() if machine != 2]
    sched.apply(fs.TaskCompleted(at_r))
    (machine,) = step(sched, 1.0).placements.values()
    assert machine != 2
    sched.apply(
        fs.MachineUpdated(machine, rack="t"),
        job("k", 1, 1),
        fs.TaskSubmitted("j", fs.Task("more", {"cpu": 1}, apart_in_rack=1)),
    )
    assert step(sched, 2.0).placements["more"] == 1 - machine, "its rack is left to itself"


def test_data_draws_no_more_into_a_rack_than_it_bears() -> None:
    sched = cluster(["r", "r", "s", "t"], fs.Policy(locality=fs.Locality()))
    sched.apply(job("j", 4, 1, data={0: 5.0, 1: 1.0}))
    step(sched)
    assert sorted(in_racks(sched).values()) == [1, 1, 1]


def test_a_running_task_is_adopted_whatever_the_rack_bears() -> None:
    sched = cluster(["r", "r"])
    sched.apply(job("j", 3, 1), fs.TaskStarted(("j", 0), 0), fs.TaskStarted(("j", 1), 1))
    assert not sched.schedule(0.0).placements
    sched.apply(fs.TaskCompleted(("j", 0)), fs.TaskCompleted(("j", 1)))
    assert len(sched.schedule(1.0).placements) == 1


@settings(max_examples=30, deadline=None)
@given(
    racks=st.lists(st.sampled_from(["r", "s", None]), min_size=1, max_size=3),
    slots=st.integers(1, 2),
    jobs=st.lists(st.tuples(st.integers(1, 3), st.sampled_from([None, 1, 2])), min_size=1, max_size=2),
)
def test_as_many_run_as_brute_force_finds(
    racks: list[str | None], slots: int, jobs: list[tuple[int, int | None]]
) -> None:
    """Each task on each machine or nowhere, everything tried."""
    sched = cluster(racks, slots=slots)
    tasks = []
    for i, (count, most) in enumerate(jobs):
        sched.apply(job(i, count, most))
        tasks += [(i, most)] * count
    best = 0
    names = [rack or i for i, rack in enumerate(racks)]
    for choice in product(range(-1, len(racks)), repeat=len(tasks)):
        per_machine = Counter(m for m in choice if m >= 0)
        per_rack = Counter((j, most, names[m]) for (j, most), m in zip(tasks, choice, strict=True) if m >= 0)
        if max(per_machine.values(), default=0) <= slots and all(
            n <= (most or 9) for (_, most, _), n in per_rack.items()
        ):
            best = max(best, sum(per_machine.values()))
    assert len(step(sched).placements) == best


@settings(max_examples=effort(10, 200), deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_random_histories_keep_to_the_limits(seed: int) -> None:
    """Counted from scratch: no rack has too many, and no task waits that may start somewhere."""
    rng = np.random.default_rng(seed)
    sched = cluster(["r", "r", "s", None], fs.Policy(), slots=4)
    limits: dict[Any, int | None] = {}
    for now in range(8):
        for _ in range(int(rng.integers(1, 3))):
            name, kind = len(limits), [None, "a", "b"][rng.integers(0, 3)]
            limits[name] = [None, 1, 2][rng.integers(0, 3)]
            sched.apply(job(name, int(rng.integers(1, 5)), limits[name], int(rng.integers(0, 3)), kind=kind))
        action, machine = rng.integers(0, 4), int(rng.integers(0, 4))
        if action == 0:
            sched.apply(fs.MachineFailed(machine), fs.MachineAdded(machine, {"cpu": 8}, rack="s", slots=4))
        rnd = step(sched, float(now))
        if action == 1:
            sched.apply(*(fs.TaskCompleted(task) for task in list(rnd.placements)[::2]))
        by_kind: dict[Any, list[int]] = {}
        for task in sched.cluster.tasks.values():
            if task.place is not None:
                at = sched.cluster.by_row[task.place.row].machine
                name = task.group.job.job.id
                kind = name if task.group.cls.kind is None else task.group.cls.kind
                by_kind.setdefault((kind, at.id if at.rack is None else at.rack), []).append(limits[name] or 99)
        assert all(len(there) <= min(there) for there in by_kind.values())
        rnd = sched.schedule(now + 0.5)
        assert not sched.commit(rnd).conflicts
        for task_id in rnd.waiting:
            assert not sched.cluster.fits(task_id).any()


# -- load of racks ----------------------------------------------------------------------------------------------


def rack_costs(sched: fs.Scheduler) -> dict[Any, int]:
    """Costs of the arcs from a class to racks, by the name of the rack."""
    racks, found = sched.builder.racks, {}
    for class_id, rack in zip(*np.nonzero(racks._arc >= 0), strict=True):
        name = racks._names.get(int(rack))
        cost = int(sched.network.cost(racks._arc[class_id, rack : rack + 1])[0])
        assert found.setdefault(name, cost) == cost, "a rack costs all classes the same"
        assert cost == racks._cost[class_id, rack]
    return found


def test_the_load_of_a_rack_is_the_mean_of_its_machines() -> None:
    """Rack r: 6 and 0 of 8 in use; s: 1 and 1 of 8.  By machines alone the idle one is best, with racks those of s."""
    for rack_load, best in ((0.0, {1}), (3.0, {2, 3})):
        policy = fs.Policy(placement=[fs.LoadCost()], rack_load=rack_load)
        sched = cluster(["r", "r", "s", "s"], policy)
        sched.apply(
            fs.JobSubmitted("w", [fs.Task("w", {"cpu": 6}), fs.Task("a", {"cpu": 1}), fs.Task("b", {"cpu": 1})])
        )
        sched.apply(fs.TaskStarted("w", 0), fs.TaskStarted("a", 2), fs.TaskStarted("b", 3))
        sched.apply(job("j", 1, None))
        assert set(sched.schedule(0.0).placements.values()) <= best
        assert rack_costs(sched) == ({"r": 281, "s": 93} if rack_load else {"r": 0, "s": 0})  # 3/4 of 3/8 and of 1/8
        sched.builder.check_ids()
    sched.policy = fs.Policy()
    sched.schedule(0.0)
    assert set(rack_costs(sched).values()) == {0}


def test_a_rack_that_comes_back_costs_its_load_again() -> None:
    sched = cluster(["r", "s"], fs.Policy(placement=(), rack_load=1.0))
    sched.apply(fs.JobSubmitted("w", [fs.Task("w", {"cpu": 2}), fs.Task("v", {"cpu": 8})]), fs.TaskStarted("w", 1))
    sched.apply(fs.TaskStarted("v", 0), job("j", 9, None))
    costs = []
    for rack in ("s", "r", "s"):
        sched.apply(fs.MachineUpdated(1, rack=rack))
        sched.schedule(0.0)
        costs.append(rack_costs(sched).get(rack))
    assert costs == [250, 625, 250]


def test_machines_without_resources_are_loaded_by_slots() -> None:
    policy = fs.Policy(placement=(), rack_load=1.0)
    sched = fs.Scheduler(policy, resources=("cpu",))
    sched.apply(*(fs.MachineAdded(i, {}, rack="rs"[i // 2], slots=4) for i in range(4)))
    sched.apply(fs.JobSubmitted("w", [fs.Task("w")]), fs.TaskStarted("w", 0), fs.JobSubmitted("j", [fs.Task("t")]))
    assert sched.schedule(0.0).placements["t"] in (2, 3)
    assert rack_costs(sched) == {"r": 125, "s": 0}


@settings(max_examples=effort(10, 200), deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_costs_of_racks_follow_whatever_happens(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sched = cluster(["r", "r", "s", "t", None], fs.Policy(placement=[fs.LoadCost(weight=3.0)], rack_load=2.0))
    for now in range(6):
        sched.apply(job(now, int(rng.integers(1, 9)), None, int(rng.integers(0, 2))))
        if rng.random() < 0.5:
            row = int(rng.integers(0, 5))
            sched.apply(fs.MachineUpdated(row, rack=[None, "r", "s", "u"][int(rng.integers(0, 4))]))
        running = [task for task in sched.cluster.tasks if sched.cluster.task_state(task) == "running"]
        sched.apply(*(fs.TaskCompleted(task) for task in running if rng.random() < 0.3))
        rnd = sched.schedule(float(now))
        sched.builder.check_ids()
        sched.commit(rnd)
        sched.policy = sched.policy if rng.random() < 0.8 else fs.Policy(rack_load=float(rng.integers(0, 3)))
        sched.schedule(float(now))  # all that waits has found no room
        weight = sched.policy.rack_load / (sched.policy.rack_load + sum(c.weight for c in sched.policy.placement))
        loads: dict[Any, list[float]] = {}
        for record in sched.cluster.machines.values():
            name = sched.builder.racks._names.get(int(sched.builder.racks.of[record.row]))
            free, capacity = (
                x[record.row, 0] for x in (sched.cluster.inventory.free, sched.cluster.inventory.capacity)
            )
            loads.setdefault(name, []).append(1 - free / capacity)
        for name, cost in rack_costs(sched).items():
            assert abs(cost - 1000 * weight * np.mean(loads[name])) <= 1 + 1e-6
