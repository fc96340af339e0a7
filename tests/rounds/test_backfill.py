"""Reservations by estimates of run times, and tasks that overtake without making others wait."""

from __future__ import annotations

import heapq
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flowsched as fs


def full(*ends: tuple[str, float], backfill: str | None = "easy", cores: int = 4) -> fs.Scheduler:
    """Machines that each run one task of 3 of 4 cores, expected to end then."""
    sched = fs.Scheduler(fs.Policy(backfill=backfill), resources=("cpu",))  # type: ignore[arg-type]
    for name, end in ends:
        sched.apply(fs.MachineAdded(name, {"cpu": cores}))
        sched.apply(fs.JobSubmitted(f"on {name}", [fs.Task(f"on {name}", {"cpu": 3}, duration=end)]))
        sched.apply(fs.TaskStarted(f"on {name}", name, time=0.0))
    sched.schedule(0.0)
    return sched


def submit(sched: fs.Scheduler, name: str, cpu: float, duration: float | None, **more: object) -> None:
    sched.apply(fs.JobSubmitted(name, [fs.Task(name, {"cpu": cpu}, duration=duration)], **more))  # type: ignore[arg-type]


def test_others_start_on_a_reserved_machine_only_if_they_end_in_time() -> None:
    sched = full(("a", 10.0), ("b", 20.0))
    submit(sched, "large", 4, 5.0)
    sched.commit(sched.schedule(1.0))
    submit(sched, "long", 1, 30.0)
    submit(sched, "unknown", 1, None)
    rnd = sched.schedule(1.0)
    assert dict(rnd.placements) == {"long": "b"}, "a is reserved from 10 on"
    assert rnd.waiting["unknown"].code in (fs.ReasonCode.HELD, fs.ReasonCode.OUTBID)
    submit(sched, "short", 1, 9.0)
    rnd = sched.schedule(1.0)
    assert dict(rnd.placements) == {"long": "b", "short": "a"}
    assert not sched.commit(rnd).conflicts


def test_a_task_that_fits_next_to_the_reserved_one_may_stay() -> None:
    sched = full(("a", 10.0), cores=6)
    submit(sched, "large", 5, 5.0)
    sched.commit(sched.schedule(1.0))
    submit(sched, "two", 2, 30.0)
    submit(sched, "one", 1, 30.0)
    assert dict(sched.schedule(1.0).placements) == {"one": "a"}


def test_without_backfill_a_task_that_fits_starts() -> None:
    sched = full(("a", 10.0), backfill=None)
    submit(sched, "large", 4, 5.0)
    sched.commit(sched.schedule(1.0))
    submit(sched, "long", 1, 30.0)
    assert dict(sched.schedule(1.0).placements) == {"long": "a"}


def test_easy_reserves_for_the_first_in_line_and_conservative_for_each_kind() -> None:
    reserved = {}
    for backfill in ("easy", "conservative"):
        sched = full(("a", 10.0), ("b", 20.0), backfill=backfill)
        submit(sched, "first", 4, 5.0)
        submit(sched, "second", 3.5, 5.0)
        sched.commit(sched.schedule(1.0))
        submit(sched, "long", 1, 30.0)
        reserved[backfill] = dict(sched.schedule(1.0).placements)
    assert reserved == {"easy": {"long": "b"}, "conservative": {}}


def test_a_task_far_behind_in_line_overtakes_where_many_machines_are_kept() -> None:
    sched = full(*((f"m{i}", 100.0) for i in range(30)), backfill="conservative")
    for i in range(30):
        submit(sched, f"large {i}", 4 - i / 100, 5.0)
    sched.commit(sched.schedule(1.0))
    assert (sched.builder.reservations.held >= 0).sum() == 30
    for i in range(200):
        submit(sched, f"long {i}", 1, 1000.0)
    submit(sched, "short", 1, 9.0)
    assert set(sched.schedule(1.0).placements) == {"short"}


def test_a_better_priority_overtakes_whatever_its_run_time() -> None:
    sched = full(("a", 10.0))
    submit(sched, "large", 4, 5.0, priority=1)
    sched.commit(sched.schedule(1.0))
    submit(sched, "urgent", 1, None, priority=0)
    assert "urgent" in sched.schedule(1.0).placements


def test_after_a_run_beyond_its_estimate_another_machine_is_reserved() -> None:
    sched = full(("a", 10.0), ("b", 20.0))
    submit(sched, "large", 4, 5.0)
    sched.commit(sched.schedule(1.0))
    held = sched.builder.reservations.held
    rows = [sched.cluster.machine(name).row for name in "ab"]
    assert (held[rows] >= 0).tolist() == [True, False]
    sched.schedule(15.0)
    assert (sched.builder.reservations.held[rows] >= 0).tolist() == [False, True], "a may take until 30"


def test_a_start_ahead_of_the_reserved_task_is_a_conflict_once_another_round_was_made() -> None:
    sched = full(("a", 10.0))
    submit(sched, "large", 4, 5.0)
    sched.commit(sched.schedule(1.0))
    submit(sched, "short", 1, 5.0)
    stale = sched.schedule(2.0)
    sched.schedule(8.0)
    assert "short" in stale.placements and "short" in sched.commit(stale).conflicts


@pytest.mark.parametrize("duration", [0, -1.0, float("nan"), float("inf"), "5"])
def test_estimates_are_numbers(duration: object) -> None:
    if duration == 0:
        assert fs.Task("t", {}, duration=0).duration == 0
        return
    with pytest.raises(fs.InputError, match="duration"):
        fs.Task("t", {}, duration=duration)  # type: ignore[arg-type]


def test_the_setting_is_one_of_three() -> None:
    with pytest.raises(fs.InputError, match="backfill"):
        fs.Policy(backfill="lazy")  # type: ignore[arg-type]


@settings(deadline=None)
@given(st.integers(1, 4), st.floats(1.0, 8.0), st.booleans(), st.integers(0, 10**6))
def test_a_task_of_a_whole_machine_starts_within_the_bound(
    machines: int, longest: float, known: bool, seed: int
) -> None:
    """In a stream of small tasks that run for `longest` at most, and would never leave a machine empty.

    With estimates the bound is `longest`; without them it is the age of the bucket `reserve`, and `longest`.
    """
    rng = random.Random(seed)
    waiting = fs.WaitCost(first=4.0, reserve=2)
    sched = fs.Scheduler(fs.Policy(waiting=waiting), resources=("cpu",))
    sched.apply(*(fs.MachineAdded(i, {"cpu": 4}) for i in range(machines)))
    bound = longest + (0.0 if known else waiting.end(1))
    ends: list[tuple[float, str]] = []
    made = 0

    def small(now: float, count: int) -> None:
        nonlocal made
        for _ in range(count):
            submit(sched, f"s{made}", 1, run_time(f"s{made}") if known else None, time=now)
            made += 1

    def run_time(name: str) -> float:
        return longest * random.Random(f"{name} {seed}").uniform(0.3, 1.0)

    def decide(now: float) -> bool:
        rnd = sched.schedule(now)
        assert not sched.commit(rnd).conflicts
        for task in rnd.placements:
            if task != "large":
                heapq.heappush(ends, (now + run_time(str(task)), str(task)))
        return "large" in rnd.placements

    small(0.0, 4 * machines)
    decide(0.0)
    submit(sched, "large", 4, longest if known else None, time=0.0)
    small(0.0, rng.randint(0, 9))
    now = 0.0
    while not decide(now):
        step = min(ends[0][0], waiting.end(1) if now < waiting.end(1) else ends[0][0])
        now = step
        assert now <= bound + 1e-9, "it has waited for too long"
        while ends and ends[0][0] <= now:
            sched.apply(fs.TaskCompleted(heapq.heappop(ends)[1]))
            small(now, rng.randint(1, 2))
