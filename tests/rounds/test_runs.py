"""Runs: every start has a number of its own, which no later one shares."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st
from lives import POLICIES, Life
from portable_files import check_books, text

import flowsched as fs
from flowsched.journal.released import converted

DATA = Path(__file__).parents[1] / "data"


def small(journal: Path | None = None) -> fs.Scheduler:
    sched = fs.Scheduler(resources=("cpu",), journal=journal)
    sched.apply(fs.MachineAdded("a", {"cpu": 2}), fs.MachineAdded("b", {"cpu": 2}))
    sched.apply(fs.JobSubmitted("j", [fs.Task(f"t{i}", {"cpu": 1}) for i in range(3)]))
    return sched


def numbers(sched: fs.Scheduler) -> dict:
    return {task: record.run for task, record in sched.cluster.tasks.items()}


def test_a_commit_tells_the_runs_that_it_begins() -> None:
    sched = small()
    assert set(numbers(sched).values()) == {0}
    done = sched.commit(sched.schedule(0.0))
    assert done.runs == {"t0": 1, "t1": 2, "t2": 3} == numbers(sched)
    sched.apply(fs.TaskFailed("t1"), fs.TaskCompleted("t0"))
    assert sched.cluster.task("t1").run == 2, "the last one, while it waits"
    assert sched.schedule(1.0).placements and sched.cluster.runs == 3, "a round begins nothing"
    assert sched.commit(sched.schedule(1.0)).runs == {"t1": 4}
    assert sched.commit(sched.schedule(2.0)).runs == {}


def test_an_adopted_task_has_a_run_too() -> None:
    sched = small()
    sched.apply(fs.TaskStarted("t2", "b"))
    assert sched.cluster.task("t2").run == sched.cluster.runs == 1
    sched.apply(fs.TaskStarted("t2", "b"))
    assert sched.cluster.runs == 1, "reported again"


def test_conflicts_take_no_number_and_leave_no_gap() -> None:
    sched = small()
    first, second = sched.schedule(0.0), sched.schedule(0.0)
    assert sched.commit(first, only=["t1"]).runs == {"t1": 1}
    done = sched.commit(second)
    assert set(done.conflicts) == {"t1"} and done.runs == {"t0": 2, "t2": 3}


def test_a_task_that_moves_begins_a_run_and_one_that_stops_keeps_its_last() -> None:
    sched = fs.Scheduler(resources=("cpu",))
    sched.apply(fs.MachineAdded("a", {"cpu": 2}), fs.JobSubmitted("low", [fs.Task("x", {"cpu": 2})], priority=5))
    sched.commit(sched.schedule(0.0))
    sched.apply(fs.JobSubmitted("high", [fs.Task("y", {"cpu": 2})], priority=0))
    done = sched.commit(sched.schedule(1e6))
    assert [type(delta) for delta in done.accepted] == [fs.Preempt, fs.Place]
    assert done.runs == {"y": 2} and numbers(sched) == {"x": 1, "y": 2}
    assert done.ended == (("x", 1, "a", "Preempt"),)
    moved = fs.Commit((fs.Migrate("x", "a", "b", (), "y"), fs.Place("y", "a", ())), {}, 7)
    assert moved.runs == {"x": 7, "y": 8}


@settings(max_examples=effort(8, 200))
@given(seed=st.integers(0, 2**32), maker=st.sampled_from(POLICIES))
def test_no_two_starts_share_a_run(seed: int, maker) -> None:
    """Over a history with occasional copies, and restarts from a snapshot, a journal or an export."""
    life, sched = Life(seed), fs.Scheduler(maker())
    seen: set[int] = set()
    for _ in range(25):
        before = numbers(sched)
        sched.apply(*life.events(sched))
        begun = {task: run for task, run in numbers(sched).items() if before.get(task, 0) != run}
        rnd = sched.schedule(life.later())
        sched.apply(*life.events(sched))
        done = sched.commit(rnd, life.only(rnd))
        for task, run in done.runs.items():
            assert sched.cluster.task(task).run == run and sched.cluster.placement(task) is not None
        new = [*begun.values(), *done.runs.values()]
        assert len(set(new)) == len(new) and seen.isdisjoint(new) and all(run > max(seen, default=0) for run in new)
        seen.update(new)
        assert sched.cluster.runs == max(seen, default=0)
        known = numbers(sched)
        match life.random.randrange(6):
            case 0:
                sched = fs.Scheduler.restore(sched.snapshot())
            case 1:
                sched = fs.Scheduler.restore(sched.journal_bytes())
            case 2:
                sched = sched.copy()
            case 3:
                sched = fs.Scheduler.import_state(text(sched), sched.policy)
        assert numbers(sched) == known
    check_books(sched)


def test_an_export_keeps_runs_and_an_older_one_gets_some() -> None:
    sched = small()
    sched.commit(sched.schedule(0.0))
    sched.apply(fs.TaskFailed("t1"), fs.TaskCompleted("t2"))
    again = fs.Scheduler.import_state(text(sched))
    assert numbers(again) == numbers(sched) and again.cluster.runs == 3
    assert again.commit(again.schedule(1.0)).runs == {"t1": 4}
    old = fs.Scheduler.import_state((DATA / "state-1.0.jsonl").read_bytes())
    running = [record for record in old.cluster.tasks.values() if record.place]
    assert sorted(record.run for record in running) == list(range(1, len(running) + 1))
    assert old.cluster.runs == len(running)


def test_a_recovery_numbers_as_before_where_a_round_comes_out_otherwise(tmp_path: Path) -> None:
    """The record's word holds, so that the same tasks start in the same order, whatever is tried meanwhile."""
    costs = [0.0, 1.0]

    def fickle(cluster, classes, rows):
        return np.tile(np.array(costs)[rows], (len(classes), 1))

    policy = fs.Policy(placement=(fs.CustomCost(fickle),))
    sched = fs.Scheduler(policy, ("cpu",), journal=tmp_path / "journal")
    sched.apply(fs.MachineAdded("a", {"cpu": 2}), fs.MachineAdded("b", {"cpu": 2}))
    sched.apply(fs.JobSubmitted("low", [fs.Task(f"x{i}", {"cpu": 1}) for i in range(4)], priority=5))
    rounds = [sched.schedule(0.0), sched.schedule(0.0)]
    sched.commit(rounds[0], only=["x2"])
    sched.commit(rounds[1])
    sched.apply(fs.JobSubmitted("high", [fs.Task(f"y{i}", {"cpu": 2}) for i in range(2)], priority=0))
    done = sched.commit(sched.schedule(1e6))
    assert len(done.accepted) > 2, "some stop, some start"
    sched.apply(fs.TaskCompleted("y0"), fs.JobSubmitted("more", [fs.Task("z", {"cpu": 1})]))
    sched.commit(sched.schedule(2e6))
    sched.journal.close()
    costs.reverse()
    again = fs.Scheduler(policy, ("cpu",), journal=tmp_path / "journal")
    assert again.recovery.differences
    assert numbers(again) == numbers(sched) and again.cluster.runs == sched.cluster.runs


def test_a_journal_from_before_there_were_runs_reads_for_ever() -> None:
    """It begins with a compacted state; all that ran there, and all that starts behind it, gets numbers."""
    sched = fs.Scheduler.restore(converted(DATA / "before-runs.journal"))
    check_books(sched)
    assert numbers(sched) == {"t0": 1, "t1": 2, "t3": 4, "t4": 0, "t5": 5, "x": 6}
    assert {task for task in sched.cluster.tasks if sched.cluster.placement(task)} == {"t3", "t5", "x"}
    assert (sched.cluster.runs, sched.cluster.stale_events) == (6, 0)
    assert sched.apply(fs.TaskCompleted("x", 1), fs.TaskCompleted("x", 6)) == (("x", 6, "a", "TaskCompleted"),)
