"""Shares where machines are limited by more than slots: the flow proposes too much, and the lowest claimant is tried first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import pytest
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st

import flowsched as fs

RESOURCES = ("cpu", "mem")
Amounts = Mapping[str, float]


def ladder(machines: Mapping[Any, Amounts], fairness: fs.Fairness | None = None, **settings: Any) -> fs.Scheduler:
    fairness = fairness or fs.Fairness(over="user", mode="ladder")
    sched = fs.Scheduler(fs.Policy(fairness=fairness, preemption=None, **settings), RESOURCES)
    sched.apply(*(fs.MachineAdded(machine, amounts) for machine, amounts in machines.items()))
    return sched


def submit(
    sched: fs.Scheduler, user: str, count: int, demand: Amounts, data: Mapping[Hashable, float] | None = None
) -> None:
    tasks = [fs.Task((user, i), demand, data=data or {}) for i in range(count)]
    sched.apply(fs.JobSubmitted(user, tasks, user=user))


def running(rnd: fs.Round) -> dict[Hashable, int]:
    return {who: share.running for who, share in rnd.shares.items()}


@pytest.mark.parametrize("cpu", [1.0, 0.9, 0.5])
@pytest.mark.parametrize("step", [1.0, 0.3])
def test_tasks_of_different_sizes_are_shared_alike(cpu: float, step: float) -> None:
    sched = ladder({i: {"cpu": 10} for i in range(3)}, step=step)
    submit(sched, "a", 100, {"cpu": 1})
    submit(sched, "b", 100, {"cpu": cpu})
    found = running(sched.schedule(0.0))
    assert abs(found["a"] - found["b"]) <= 1 and found["a"] + cpu * found["b"] > 28


def test_who_was_behind_is_tried_first_in_later_rounds() -> None:
    sched = ladder({"m": {"cpu": 12}})
    submit(sched, "a", 20, {"cpu": 1})
    first = sched.schedule(0.0)
    sched.commit(first)
    submit(sched, "b", 20, {"cpu": 0.9})
    sched.apply(*(fs.TaskCompleted(task) for task in list(first.placements)[:4]))
    found = running(sched.schedule(1.0))
    assert found == {"a": 8, "b": 4}


def test_tasks_near_their_data_take_turns_too() -> None:
    sched = ladder({"m": {"cpu": 8}, "n": {"cpu": 8}}, locality=fs.Locality())
    submit(sched, "a", 30, {"cpu": 1}, {"m": 10.0})
    submit(sched, "b", 30, {"cpu": 0.8}, {"m": 10.0})
    found = running(sched.schedule(0.0))
    assert abs(found["a"] - found["b"]) <= 1


@pytest.mark.parametrize("mode", ["soft", "hard", "ladder"])
@pytest.mark.parametrize("users", ["abc", "cba"])
def test_a_guarantee_and_the_least_of_a_share_come_first(mode: Any, users: str) -> None:
    limits = {"a": fs.Limits(guarantee=12), "b": fs.Limits(maximum=9)}
    sched = ladder({i: {"cpu": 8} for i in range(4)}, fs.Fairness(over="user", mode=mode, limits=limits, slack=0.0))
    sizes = {"a": 1.0, "b": 0.5, "c": 2.0}
    for user in users:
        submit(sched, user, 50, {"cpu": sizes[user]})
    rnd = sched.schedule(0.0)
    found = running(rnd)
    assert found["a"] >= 12 and found["b"] >= 6 and found["c"] >= 6
    if mode == "soft":
        assert all(share.running >= share.entitled - 1 for share in rnd.shares.values())


amounts = st.fixed_dictionaries({"cpu": st.integers(1, 3), "mem": st.integers(1, 3)})
totals = st.fixed_dictionaries({"cpu": st.integers(3, 16), "mem": st.integers(3, 16)})
shapes = st.lists(totals, min_size=1, max_size=5)
claimed = st.lists(st.tuples(st.integers(1, 24), amounts), min_size=2, max_size=4)


def in_the_way(
    sched: fs.Scheduler, machines: list[Amounts], claims: list[tuple[int, Amounts]], rung: Callable[[str, int], int]
) -> None:
    """Without what others started on a higher rung, what waits on the lowest would still not fit."""
    for user, (count, demand) in zip("abcd", claims, strict=False):
        submit(sched, user, count, demand)
    rnd = sched.schedule(0.0)
    demands = {user: demand for user, (_, demand) in zip("abcd", claims, strict=False)}
    free = [dict(total) for total in machines]
    started: Counter[str] = Counter()
    stands: list[tuple[str, int, int]] = []
    for delta in rnd.deltas:
        user, machine = delta.task[0], delta.machine  # type: ignore[index]
        started[user] += 1
        stands.append((user, machine, rung(user, started[user])))  # type: ignore[arg-type]
        for name in RESOURCES:
            free[machine][name] -= demands[user][name]  # type: ignore[index, call-overload]
    for user in {task[0] for task in rnd.waiting}:  # type: ignore[index]
        mine = rung(user, started[user] + 1)
        for other, machine, height in stands if mine < TOP else ():
            given_back = demands[other] if height > mine else dict.fromkeys(RESOURCES, 0)
            assert any(free[machine][name] + given_back[name] < demands[user][name] for name in RESOURCES)


TOP = 1_000


@settings(max_examples=effort(15, 1500))
@given(shapes, claimed)
def test_no_job_climbs_past_one_that_could_have_run_instead(
    machines: list[Amounts], claims: list[tuple[int, Amounts]]
) -> None:
    in_the_way(ladder(dict(enumerate(machines))), machines, claims, lambda user, count: count)


@settings(max_examples=effort(15, 1500))
@given(shapes, claimed, st.sampled_from(["hard", "soft", "ladder"]), st.integers(1, 9))
def test_no_job_starts_before_a_guarantee(
    machines: list[Amounts], claims: list[tuple[int, Amounts]], mode: Any, guarantee: int
) -> None:
    fairness = fs.Fairness(over="user", mode=mode, limits={"b": fs.Limits(guarantee=guarantee)})
    sched = ladder(dict(enumerate(machines)), fairness)
    in_the_way(sched, machines, claims, lambda user, count: 0 if user == "b" and count <= guarantee else TOP)
