"""Reservations for gangs: a gang starts no later than EASY would start it, and holds nothing that it cannot use."""

from __future__ import annotations

import heapq
from pathlib import Path
from typing import Any

import pytest
from effort import effort
from gang_lives import live

import flowsched as fs
from flowsched.rounds import backfill

MODES = pytest.mark.parametrize("backfill", ["easy", "conservative"])


def cluster(*sizes: float, backfill: str | None = "easy", **policy: Any) -> fs.Scheduler:
    policy = {"preemption": None, **policy}
    sched = fs.Scheduler(fs.Policy(backfill=backfill, **policy), resources=("cpu", "gpu"))  # type: ignore[arg-type]
    sched.apply(*(fs.MachineAdded(f"m{i}", {"cpu": size, "gpu": 4}) for i, size in enumerate(sizes)))
    return sched


def runs(sched: fs.Scheduler, name: str, machine: str, cpu: float, end: float | None) -> None:
    sched.apply(
        fs.JobSubmitted(name, [fs.Task(name, {"cpu": cpu}, duration=end)]), fs.TaskStarted(name, machine, time=0.0)
    )


def gang(sched: fs.Scheduler, name: str, count: int, cpu: float, duration: float | None = 10.0, **more: Any) -> None:
    size, each = more.pop("size", count), {"cpu": cpu, "gpu": more.pop("gpu", 0)}
    tasks = [fs.Task((name, i), each, duration=duration, apart=more.get("apart")) for i in range(count)]
    more.pop("apart", None)
    sched.apply(fs.JobSubmitted(name, tasks, gang=size, **more))


def single(sched: fs.Scheduler, name: str, cpu: float, duration: float | None, **more: Any) -> None:
    sched.apply(fs.JobSubmitted(name, [fs.Task(name, {"cpu": cpu}, duration=duration)], **more))


def started(sched: fs.Scheduler, now: float) -> set[Any]:
    rnd = sched.schedule(now)
    assert not sched.commit(rnd).conflicts
    return {task[0] if isinstance(task, tuple) else task for task in rnd.placements}


@pytest.mark.parametrize("seed", range(effort(8, 1000)))
def test_every_gang_starts_within_the_bound_of_easy(seed: int) -> None:
    life = live(seed)
    assert not life.late and not life.half
    assert life.gangs


@pytest.mark.parametrize("seed", range(8, 8 + effort(8, 200)))
def test_one_reading_of_the_line_gives_the_starts_of_a_reading_for_each_machine(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule, read, rounds = fs.Scheduler.schedule, backfill._Line._of, list[dict[Any, Any]]()

    def noted(sched: fs.Scheduler, now: float) -> fs.Round:
        rnd = schedule(sched, now)
        rounds.append(dict(rnd.placements))
        return rnd

    def fresh(line: backfill._Line, cls: Any) -> Any:
        line._tasks.pop(cls, None)
        return read(line, cls)

    monkeypatch.setattr(fs.Scheduler, "schedule", noted)
    live(seed)
    once = rounds.copy()
    rounds.clear()
    monkeypatch.setattr(backfill._Line, "_of", fresh)
    live(seed)
    assert once == rounds


@MODES
def test_others_start_on_the_room_of_a_gang_only_if_they_end_in_time_or_fit_next_to_it(backfill: str) -> None:
    sched = cluster(4, 4, backfill=backfill)
    runs(sched, "a", "m0", 3, 10.0)
    runs(sched, "b", "m1", 3, 20.0)
    gang(sched, "wide", 2, 3)
    assert started(sched, 1.0) == set()
    for name in ("long", "unknown", "third"):
        single(sched, name, 1, {"long": 30.0, "third": 25.0}.get(name))
    assert len(started(sched, 1.0)) == 2, "one core of each machine is left next to the gang"
    sched.apply(fs.TaskCompleted("a"))
    single(sched, "brief", 2, 10.0)
    assert started(sched, 2.0) == {"brief"}, "it ends at 12"
    sched.apply(fs.TaskCompleted("brief"), fs.TaskCompleted("b"))
    assert started(sched, 20.0) == {"wide"}


@MODES
def test_a_gang_overtakes_another_if_it_ends_in_time(backfill: str) -> None:
    sched = cluster(4, 4, backfill=backfill)
    runs(sched, "a", "m0", 4, 10.0)
    gang(sched, "wide", 2, 4)
    started(sched, 0.0)
    gang(sched, "longer", 2, 1, 11.0)
    gang(sched, "brief", 2, 1, 9.0)
    assert started(sched, 1.0) == {"brief"}
    sched.apply(fs.TaskCompleted("a"), fs.TaskCompleted(("brief", 0)), fs.TaskCompleted(("brief", 1)))
    assert "wide" in started(sched, 10.0)


def test_the_gang_of_better_priority_has_the_room() -> None:
    sched = cluster(4, 4)
    runs(sched, "a", "m0", 4, 10.0)
    gang(sched, "first", 2, 4, priority=5)
    started(sched, 0.0)
    gang(sched, "better", 2, 4, priority=1)
    started(sched, 1.0)
    sched.apply(fs.TaskCompleted("a"))
    assert started(sched, 10.0) == {"better"}


def test_a_class_behind_the_last_gang_with_a_reservation_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flowsched.builder.reservations._GANGS", 1)
    sched = cluster(4, 4, 4, 4, 8, backfill="conservative")
    for i, end in enumerate((10.0, 10.0, 20.0, 20.0, 30.0)):
        runs(sched, f"r{i}", f"m{i}", 4, end)
    for name in ("first", "second"):
        gang(sched, name, 2, 4)
    single(sched, "large", 8, 10.0)
    started(sched, 0.0)
    started(sched, 1.0)
    assert (sched.builder.reservations.held != -1)[:5].tolist() == [True, True, False, False, True]


def test_one_task_is_no_gang() -> None:
    waits = []
    for size in (None, 1):
        sched = cluster(4, 4)
        runs(sched, "a", "m0", 3, 10.0)
        runs(sched, "b", "m1", 3, 20.0)
        gang(sched, "large", 1, 4, size=size)
        assert sched.cluster.jobs["large"].job.gang is None
        started(sched, 1.0)
        single(sched, "small", 1, 30.0)
        waits.append((dict(sched.schedule(1.0).placements), sched.builder.reservations.held.tolist()))
    assert waits[0] == waits[1] and waits[0][0] == {"small": "m1"}


def test_an_elastic_gang_waits_for_its_least_size_alone() -> None:
    sched = cluster(4, 4, 4)
    runs(sched, "a", "m0", 4, 10.0)
    runs(sched, "b", "m1", 4, 90.0)
    gang(sched, "elastic", 3, 4, size=2)
    started(sched, 0.0)
    single(sched, "small", 1, 30.0)
    assert started(sched, 1.0) == set()
    sched.apply(fs.TaskCompleted("a"))
    assert started(sched, 10.0) == {"elastic"}


def test_devices_stay_whole_for_a_gang() -> None:
    sched = cluster(8)
    for i, end in enumerate((50.0, 10.0, 10.0, 10.0)):
        sched.apply(fs.JobSubmitted(f"g{i}", [fs.Task(f"g{i}", {"cpu": 1, "gpu": 1}, duration=end)]))
    started(sched, 0.0)
    gang(sched, "whole", 3, 1, gpu=1.0)
    sched.apply(fs.TaskCompleted("g1"))
    started(sched, 1.0)
    sched.apply(fs.JobSubmitted("share", [fs.Task("share", {"cpu": 1, "gpu": 0.5}, duration=100.0)]))
    assert started(sched, 2.0) == set()
    sched.apply(fs.TaskCompleted("g2"), fs.TaskCompleted("g3"))
    assert "whole" in started(sched, 10.0)


@MODES
@pytest.mark.parametrize("event", [fs.MachineFailed, fs.MachineDrained, fs.MachineRemoved])
def test_room_on_a_machine_that_is_lost_is_kept_on_another(backfill: str, event: type) -> None:
    sched = cluster(4, 4, 4, backfill=backfill)
    for i, end in enumerate((10.0, 20.0, 30.0)):
        runs(sched, f"r{i}", f"m{i}", 4, end)
    gang(sched, "wide", 2, 4)
    started(sched, 0.0)
    assert (sched.builder.reservations.held[:3] != -1).tolist() == [True, True, False]
    sched.apply(fs.TaskCompleted("r0"), event("m0"))
    started(sched, 10.0)
    held = sched.builder.reservations.held
    assert [held[sched.cluster.machine(name).row] != -1 for name in ("m1", "m2")] == [True, True]
    sched.apply(fs.TaskCompleted("r1"))
    single(sched, "small", 1, 30.0)
    assert started(sched, 20.0) == set()
    sched.apply(fs.TaskCompleted("r2"))
    assert "wide" in started(sched, 30.0)


def test_a_gang_that_its_quota_its_share_or_the_cluster_does_not_allow_holds_nothing() -> None:
    quota = cluster(4, 4, quotas={"ann": {"cpu": 4}})
    share = cluster(4, 4, fairness=fs.Fairness(over="user"))
    never = cluster(4, 4)
    for sched, count in ((quota, 2), (share, 2), (never, 3)):
        sched.apply(
            fs.JobSubmitted("a", [fs.Task("a", {"cpu": 4}, duration=10.0)], user="bob"), fs.TaskStarted("a", "m0")
        )
        gang(sched, "wide", count, 4, user="ann")
        started(sched, 0.0)
        single(sched, "other", 4, 50.0, user="bob")
        assert started(sched, 1.0) == {"other"}
        assert not sched.builder.reservations.holding


def test_tasks_of_a_gang_that_avoid_each_other_hold_no_machine_that_cannot_run_them() -> None:
    sched = cluster(4)
    x = fs.Task("x", {"cpu": 1}, kind="x", avoids=("y",), duration=5.0)
    sched.apply(fs.JobSubmitted("g", [x, fs.Task("y", {"cpu": 1}, kind="y", duration=5.0)], gang=2))
    for now in (0.0, 1.0, 2.0):
        assert started(sched, now) == set()
    assert sched.schedule(3.0).again_at > 3.0 and not sched.builder.reservations.holding
    single(sched, "other", 4, 50.0)
    assert started(sched, 3.0) == {"other"}


def test_a_gang_without_estimates_has_machines_that_empty() -> None:
    """None of its machines takes others once it has waited for as long as `WaitCost.reserve` says."""
    waiting = fs.WaitCost(first=10.0, reserve=1)
    sched = cluster(4, 4, waiting=waiting)
    ends: list[tuple[float, str]] = []
    made, now = 0, 0.0
    for i in range(8):
        runs(sched, f"r{i}", f"m{i % 2}", 1, None)
        heapq.heappush(ends, (1.0 + i, f"r{i}"))
    gang(sched, "wide", 2, 4, None)
    while now < 60:
        now += 1
        while ends and ends[0][0] <= now:
            sched.apply(fs.TaskCompleted(heapq.heappop(ends)[1]))
        for _ in range(3):
            single(sched, f"s{made}", 1, None)
            made += 1
        names = started(sched, now)
        if "wide" in names:
            return
        for name in names:
            heapq.heappush(ends, (now + 5 + made % 3, name))
    raise AssertionError("the gang has starved")


def test_a_restored_scheduler_keeps_the_same_room(tmp_path: Path) -> None:
    sched = cluster(4, 4, 4)
    for i, end in enumerate((10.0, 20.0, 30.0)):
        runs(sched, f"r{i}", f"m{i}", 4, end)
    gang(sched, "wide", 2, 4)
    started(sched, 0.0)
    sched.export(tmp_path / "state.jsonl")
    copy = fs.Scheduler.import_state(tmp_path / "state.jsonl")
    for one in (sched, copy):
        one.apply(fs.TaskCompleted("r0"))
        single(one, "small", 1, 30.0)
    first, second = sched.schedule(12.0), copy.schedule(12.0)
    assert dict(first.placements) == dict(second.placements) == {}
    assert first.again_at == second.again_at == 20.0
    assert next(iter(sched.builder.reservations.remember_gangs()))[-1].rows.keys() == {0, 1}  # type: ignore[union-attr]
