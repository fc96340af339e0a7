"""Starts of a round with more waiting tasks than room: order of arrival, packing, and no room left unused."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowsched as fs

NAMES = ("cpu", "mem")


def backlog(
    seed: int, tasks: int = 300, machines: int = 15, **policy: object
) -> tuple[fs.Scheduler, dict[int, fs.Task]]:
    rng = random.Random(seed)
    sched = fs.Scheduler(fs.Policy(**policy), resources=NAMES)  # type: ignore[arg-type]
    sched.apply(*(fs.MachineAdded(i, {"cpu": 4, "mem": 8}) for i in range(machines)))
    made = {i: fs.Task(i, {"cpu": rng.choice([1, 1, 2, 4]), "mem": rng.randint(1, 8)}) for i in range(tasks)}
    sched.apply(*(fs.JobSubmitted(i, [task]) for i, task in made.items()))
    return sched, made


def first_fit(sched: fs.Scheduler, tasks: dict[int, fs.Task]) -> int:
    """The tasks that start first come, first fit, each on the emptiest machine."""
    free = np.array([[4.0, 8.0]] * len(sched.cluster.machines))
    started = 0
    for task in tasks.values():
        assert isinstance(task.demand, dict | type(task.demand))
        need = np.array([task.demand["cpu"], task.demand["mem"]])  # type: ignore[call-overload]
        able = np.flatnonzero((free >= need).all(axis=1))
        if len(able):
            free[able[(free[able] / [4, 8]).sum(axis=1).argmax()]] -= need
            started += 1
    return started


def test_a_backlog_starts_as_many_tasks_as_first_fit() -> None:
    ours = theirs = 0
    for seed in range(8):
        sched, tasks = backlog(seed)
        ours += len(sched.schedule(0.0).placements)
        theirs += first_fit(sched, tasks)
    assert ours >= theirs


@given(st.data())
def test_no_task_waits_while_a_machine_has_room_for_it(data: st.DataObject) -> None:
    """A round is work conserving, beyond what reservations keep."""
    seed = data.draw(st.integers(0, 10**6))
    rng = random.Random(seed)
    policy = fs.Policy(
        placement=[fs.LoadCost(rng.choice(["spread", "pack"]))],  # type: ignore[arg-type]
        backfill=rng.choice(["easy", "conservative", None]),  # type: ignore[arg-type]
    )
    sched = fs.Scheduler(policy, resources=(*NAMES, "gpu"))
    for i in range(data.draw(st.integers(1, 6))):
        slots = rng.choice([None, 1, 3])
        sched.apply(
            fs.MachineAdded(
                i, {"cpu": rng.randint(1, 8), "mem": rng.randint(1, 8), "gpu": rng.randint(0, 2)}, slots=slots
            )
        )
    for now in range(4):
        for j in range(rng.randint(0, 8)):
            demand = {"cpu": rng.randint(0, 4), "mem": rng.randint(1, 4), "gpu": rng.choice([0, 0, 0.3, 0.5, 1])}
            some = [
                fs.Task((now, j, k), demand, duration=rng.choice([None, 1, 2, 9])) for k in range(rng.randint(1, 4))
            ]
            sched.apply(fs.JobSubmitted((now, j), some, priority=rng.randint(0, 1)))
        running = [t.id for t in sched.cluster.tasks.values() if t.place is not None]
        for task in rng.sample(running, rng.randint(0, len(running))):
            sched.apply(fs.TaskCompleted(task))
        rnd = sched.schedule(float(now))
        assert not sched.commit(rnd).conflicts
        for task in rnd.waiting:
            if sched.cluster.placement(task) is None:
                assert not np.any(sched.cluster.fits(task)), (seed, task)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=30), st.integers(1, 10), st.integers(0, 10**6))
def test_of_equal_tasks_the_one_that_came_first_starts_first(kinds: list[int], cores: int, seed: int) -> None:
    sched = fs.Scheduler(resources=("cpu",))
    sched.apply(fs.MachineAdded("m", {"cpu": cores}))
    for i, kind in enumerate(kinds):
        sched.apply(fs.JobSubmitted(i, [fs.Task(i, {"cpu": 1 + kind})], time=float(i) / 1000))
    started: list[int] = []
    for now in range(1, 60):
        rnd = sched.schedule(float(now))
        sched.commit(rnd)
        for kind in set(kinds):
            mine = sorted(task for task in rnd.placements if kinds[task] == kind)  # type: ignore[call-overload]
            left = [task for task in rnd.waiting if kinds[task] == kind]  # type: ignore[call-overload]
            assert not mine or not left or mine[-1] < min(left)  # type: ignore[type-var]
        started += list(rnd.placements)  # type: ignore[arg-type]
        running = sorted(t.id for t in sched.cluster.tasks.values() if t.place is not None)  # type: ignore[type-var]
        if running:
            sched.apply(fs.TaskCompleted(random.Random(seed + now).choice(running)))


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(2, 60))
def test_machines_are_filled_within_capacity_and_in_order_of_arrival(seed: int, machines: int, tasks: int) -> None:
    """All starts fit; of equal tasks the oldest start; no waiting task fits; the first in line starts."""
    rng = random.Random(seed)
    sched = fs.Scheduler(resources=NAMES)
    sched.apply(*(fs.MachineAdded(i, {"cpu": rng.randint(4, 8), "mem": rng.randint(6, 9)}) for i in range(machines)))
    need = {i: (rng.randint(1, 4), rng.randint(1, 6)) for i in range(tasks)}
    for i, (cpu, mem) in need.items():
        sched.apply(fs.JobSubmitted(i, [fs.Task(i, {"cpu": cpu, "mem": mem})], time=float(i // 4) / 1000))
    rnd = sched.schedule(1.0)
    assert not sched.commit(rnd).conflicts
    used = dict.fromkeys(range(machines), (0, 0))
    for task, machine in rnd.placements.items():
        used[machine] = tuple(map(sum, zip(used[machine], need[task], strict=True)))  # type: ignore[index, assignment]
    for machine, amounts in used.items():
        capacity = sched.cluster.machines[machine].capacity
        assert amounts[0] <= capacity["cpu"] and amounts[1] <= capacity["mem"]
    for demand in set(need.values()):
        alike = [i for i in need if need[i] == demand]
        started = [i in rnd.placements for i in alike]
        assert started == sorted(started, reverse=True)
    assert not any(np.any(sched.cluster.fits(task)) for task in rnd.waiting)
    if rnd.waiting:
        assert 0 in rnd.placements


def test_the_first_in_line_takes_the_machine_where_it_leaves_most() -> None:
    """The large machine is the one with most of the resource that becomes scarce, not the one with most in sum."""
    sched = fs.Scheduler(resources=NAMES)
    sched.apply(fs.MachineAdded("cores", {"cpu": 16, "mem": 6}), fs.MachineAdded("even", {"cpu": 4, "mem": 8}))
    for i in range(8):
        sched.apply(fs.JobSubmitted(i, [fs.Task(i, {"cpu": 1 + i % 2, "mem": 4})], time=float(i)))
    rnd = sched.schedule(9.0)
    assert rnd.placements[0] == "even"


def test_the_oldest_goes_first_where_not_all_fit() -> None:
    sched = fs.Scheduler(resources=("cpu",))
    sched.apply(fs.MachineAdded("m", {"cpu": 4}))
    sched.apply(fs.JobSubmitted("small", [fs.Task("s", {"cpu": 1})], time=0.0))
    sched.apply(fs.JobSubmitted("large", [fs.Task("l", {"cpu": 4})], time=1.0))
    assert dict(sched.schedule(2.0).placements) == {"s": "m"}


def test_the_largest_goes_first_where_all_fit() -> None:
    """The small one finds room on either machine, the large one on one."""
    for order in (("s", 2), ("l", 9)), (("l", 9), ("s", 2)):
        sched = fs.Scheduler(resources=("cpu",))
        sched.apply(fs.MachineAdded("a", {"cpu": 9}), fs.MachineAdded("b", {"cpu": 2}))
        sched.apply(*(fs.JobSubmitted(name, [fs.Task(name, {"cpu": cpu})]) for name, cpu in order))
        assert dict(sched.schedule(0.0).placements) == {"l": "a", "s": "b"}


def test_a_machine_is_filled_with_the_tasks_that_suit_its_room() -> None:
    """After the oldest, which takes most of the memory, comes the one that asks for little of it, not the next."""
    sched = fs.Scheduler(resources=NAMES)
    sched.apply(fs.MachineAdded("m", {"cpu": 4, "mem": 8}))
    demands = {"first": (1, 6), "second": (1, 2), "third": (3, 1)}
    for now, (name, (cpu, mem)) in enumerate(demands.items()):
        sched.apply(fs.JobSubmitted(name, [fs.Task(name, {"cpu": cpu, "mem": mem})], time=float(now)))
    assert set(sched.schedule(5.0).placements) == {"first", "third"}


def test_the_resource_of_which_least_is_left_decides_not_the_one_in_abundance() -> None:
    """The second leaves even room and few cores.  The small ones leave more cores, so more of them start."""
    sched = fs.Scheduler(resources=NAMES)
    sched.apply(fs.MachineAdded("m", {"cpu": 4, "mem": 100}))
    demands = [(1, 10), (2, 60), (1, 4), (1, 3), (1, 2)]
    for i, (cpu, mem) in enumerate(demands):
        sched.apply(fs.JobSubmitted(i, [fs.Task(i, {"cpu": cpu, "mem": mem})], time=float(i)))
    assert set(sched.schedule(9.0).placements) == {0, 2, 3, 4}


@pytest.mark.parametrize("better", [0, 2])
def test_priority_and_age_come_before_arrival_and_packing(better: int) -> None:
    sched = fs.Scheduler(fs.Policy(preemption=None), resources=("cpu",))
    sched.apply(fs.MachineAdded("m", {"cpu": 4}))
    sched.apply(fs.JobSubmitted("old", [fs.Task("old", {"cpu": 3})], time=0.0, priority=2 - better))
    sched.apply(fs.JobSubmitted("new", [fs.Task("new", {"cpu": 4})], time=500.0, priority=better))
    assert dict(sched.schedule(501.0).placements) == {("new" if better == 0 else "old"): "m"}


def test_a_machine_that_came_and_went_between_two_rounds_is_no_machine() -> None:
    """Its row counts as used, and no round has heard of it: arrays that were made for exactly 19 rows are one too short."""
    sched = fs.Scheduler(resources=("cpu", "mem"))
    sched.apply(*(fs.MachineAdded(i, {"cpu": 4, "mem": 4}, labels={"zone": "ab"[i > 3]}) for i in range(19)))
    sched.apply(*(fs.JobSubmitted((0, cpu), _alike((0, cpu), 20, cpu)) for cpu in (2, 3)))
    sched.schedule(0.0)
    sched.apply(fs.MachineAdded("late", {"cpu": 4, "mem": 4}), fs.MachineRemoved("late"))
    placed = sched.commit(sched.schedule(1.0)).accepted
    assert len(placed) >= 4


def _alike(job: object, count: int, cpu: int) -> list[fs.Task]:
    return [fs.Task((job, i), {"cpu": cpu, "mem": 5 - cpu}, {"zone": ("a",)}) for i in range(count)]
