"""Preemption that takes time: rooms, starts and answers, against workers that stop when they please."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st
from lives import flow_of, world_of
from portable_files import check_books, text

import flowsched as fs

GRACEFUL = fs.Policy(preemption=fs.PreemptionCost(graceful=True))


def preempted(machines: str = "a") -> tuple[fs.Scheduler, fs.Commit]:
    """Return a scheduler where task "low" stops for "high"."""
    sched = fs.Scheduler(GRACEFUL, resources=("cpu",))
    sched.apply(
        *(fs.MachineAdded(name, {"cpu": 2}) for name in machines),
        fs.JobSubmitted("j", [fs.Task("low", {"cpu": 2})], priority=5),
    )
    assert sched.commit(sched.schedule(0.0)).runs == {"low": 1}
    others = [name for name in machines if name != sched.cluster.placement("low")]
    sched.apply(*map(fs.MachineDrained, others), fs.JobSubmitted("k", [fs.Task("high", {"cpu": 1})], priority=0))
    rnd = sched.schedule(1.0)
    assert [type(delta) for delta in rnd.deltas] == [fs.Preempt]
    assert rnd.waiting["high"].code is fs.ReasonCode.STOPPING
    return sched, sched.commit(rnd)


def test_room_is_held_until_the_run_has_stopped() -> None:
    sched, done = preempted()
    assert done.ended == (fs.EndedRun("low", 1, "a", "Preempt"),)
    assert sched.cluster.free("a") == {"cpu": 0.0}
    for now in (2.0, 3.0):
        rnd = sched.schedule(now)
        assert not rnd.deltas
        assert {task: rnd.waiting[task].code for task in rnd.waiting} == dict.fromkeys(
            ("low", "high"), fs.ReasonCode.STOPPING
        )
        assert "TaskStopped" in rnd.waiting["high"].unblocked_by
        sched.commit(rnd)
    assert sched.explain("low").code is fs.ReasonCode.STOPPING
    sched.apply(fs.TaskStopped("low", run=1))
    assert sched.cluster.free("a") == {"cpu": 2.0}
    rnd = sched.schedule(4.0)
    assert dict(rnd.placements) == {"high": "a"} and rnd.waiting["low"].code is fs.ReasonCode.OUTBID


@pytest.mark.parametrize(
    "answer", [fs.TaskStopped("low"), fs.TaskFailed("low", run=1), fs.TaskFailed("low"), fs.MachineFailed("a")]
)
def test_what_ends_the_stop_lets_the_task_wait(answer: fs.Event) -> None:
    sched, _ = preempted()
    sched.apply(answer)
    assert not (sched.cluster.stopping or sched.cluster.resting)
    if isinstance(answer, fs.MachineFailed):
        sched.apply(fs.MachineAdded("a", {"cpu": 2}))
    assert dict(sched.schedule(4.0).placements) == {"high": "a"}


def test_a_run_that_is_done_before_it_is_stopped_is_done() -> None:
    for answer in (fs.TaskCompleted("low", run=1), fs.TaskCompleted("low")):
        sched, _ = preempted()
        sched.apply(answer)
        assert set(sched.cluster.tasks) == {"high"} and not sched.cluster.stopping
        sched.apply(fs.TaskStopped("low", run=1))
        assert sched.cluster.stale_events == 1


def test_a_task_that_leaves_holds_its_room_until_its_run_has_stopped() -> None:
    sched, _ = preempted()
    sched.apply(fs.TaskRemoved("low"), fs.JobSubmitted("l", [fs.Task("low", {"cpu": 2})], priority=9))
    assert not sched.schedule(2.0).deltas
    sched.apply(fs.TaskStopped("low", run=1))
    assert dict(sched.schedule(3.0).placements) == {"high": "a"}
    with pytest.raises(fs.InputError, match="it has no stopping run"):
        sched.apply(fs.TaskStopped("low"))
    with pytest.raises(fs.UnknownTaskError):
        sched.apply(fs.TaskStopped("nobody"))


def test_no_second_task_is_stopped_for_the_same_one() -> None:
    sched = fs.Scheduler(GRACEFUL, resources=("cpu",))
    sched.apply(
        *(fs.MachineAdded(name, {"cpu": 2}) for name in "abc"),
        fs.JobSubmitted("j", [fs.Task(f"low{i}", {"cpu": 2}) for i in range(3)], priority=5),
    )
    sched.commit(sched.schedule(0.0))
    sched.apply(fs.JobSubmitted("k", [fs.Task("high", {"cpu": 2})]))
    for now in range(1, 6):
        sched.commit(sched.schedule(float(now)))
        assert len(sched.cluster.stopping) == 1


def test_a_gang_waits_for_the_last_of_its_places() -> None:
    sched = fs.Scheduler(GRACEFUL, resources=("cpu",))
    sched.apply(
        *(fs.MachineAdded(name, {"cpu": 2}) for name in "ab"),
        fs.JobSubmitted("j", [fs.Task("low", {"cpu": 2})], priority=5),
    )
    sched.commit(sched.schedule(0.0))
    sched.apply(fs.JobSubmitted("k", [fs.Task(f"high{i}", {"cpu": 2}) for i in range(2)], gang=2))
    rnd = sched.schedule(1.0)
    assert not rnd.placements and set(rnd.preemptions) == {"low"}
    sched.commit(rnd)
    assert not sched.schedule(2.0).deltas
    sched.apply(fs.TaskStopped("low"))
    assert set(sched.schedule(3.0).placements) == {"high0", "high1"}


MAKERS = [
    lambda: GRACEFUL,
    lambda: fs.Policy(preemption=fs.PreemptionCost(0.5, 3.0, graceful=True), waiting=fs.WaitCost(2.0, buckets=4, reserve=1)),
    lambda: fs.Policy(preemption=fs.PreemptionCost(graceful=True), fairness=fs.Fairness(over="user", mode="hard", reclaim=True)),
]  # fmt: skip


@settings(max_examples=effort(10, 3000))
@given(st.integers(0, 2**32), st.sampled_from(MAKERS), st.booleans())
def test_no_room_is_used_twice(tmp_path_factory: pytest.TempPathFactory, seed: int, maker, kept: bool) -> None:
    random = Random(seed)
    path: Path | None = tmp_path_factory.mktemp("stopping") / "journal" if kept else None
    sched = fs.Scheduler(maker(), resources=("cpu", "gpu"), journal=path)
    workers: dict[int, tuple[str, str, float, tuple[int, ...]]] = {}
    """Runs that really hold room: task, machine, cpu, devices."""
    cpu: dict[str, float] = {}
    demands: dict[str, dict[str, float]] = {}
    now = 0.0
    for step in range(40):
        now += random.choice([0.0, 1.0, 5.0])
        stopping = sched.cluster.stopping
        match random.randrange(8):
            case 0:
                cpu[f"m{step}"] = random.randint(1, 4)
                sched.apply(fs.MachineAdded(f"m{step}", {"cpu": cpu[f"m{step}"], "gpu": 2}))
            case 1 | 2 | 3:
                demand = {"cpu": random.choice([0.5, 1, 2]), "gpu": random.choice([0, 0, 0.5, 1])}
                tasks = [
                    fs.Task(f"t{step}.{i}", demand, retries=random.choice([None, 1]))
                    for i in range(random.randint(1, 4))
                ]
                demands |= {task.id: demand for task in tasks}
                gang = random.choice([None, None, len(tasks)])
                user = random.choice(["ann", "bob"])
                sched.apply(fs.JobSubmitted(f"j{step}", tasks, user, random.randrange(3), gang, time=now))
            case 4 | 5 if workers:
                for run in random.sample(list(workers), random.randint(1, len(workers))):
                    task = workers[run][0]
                    if run in stopping:
                        sched.apply(
                            random.choice([fs.TaskStopped, fs.TaskStopped, fs.TaskCompleted, fs.TaskFailed])(
                                task, run=run
                            )
                        )
                    else:
                        sched.apply(random.choice([fs.TaskCompleted, fs.TaskFailed])(task, run=run))
                    del workers[run]
            case 6 if len(cpu) > 1:
                lost = random.choice(list(cpu))
                sched.apply(random.choice([fs.MachineFailed, fs.MachineRemoved])(lost))
                del cpu[lost]
                workers = {run: at for run, at in workers.items() if at[1] != lost}
            case 7 if sched.cluster.tasks:
                task = random.choice(list(sched.cluster.tasks))
                if sched.cluster.placement(task) is None:
                    sched.apply(fs.TaskRemoved(task))
        rnd = sched.schedule(now)
        assert set(rnd.waiting) == {
            id for id in sched.cluster.tasks if sched.cluster.placement(id) is None and id not in rnd.placements
        } | set(rnd.preemptions)
        assert not rnd.migrations and len(rnd.waiting) == len(list(rnd.waiting))
        done = sched.commit(rnd, random.choice([None, None, list(rnd.placements)[::2]]))
        for delta in done.accepted:
            if isinstance(delta, fs.Place):
                assert all(at[0] != delta.task for at in workers.values())
                workers[done.runs[delta.task]] = delta.task, delta.machine, demands[delta.task]["cpu"], delta.devices
        for machine, amount in cpu.items():
            assert sum(at[2] for at in workers.values() if at[1] == machine) <= amount
            used = [d for at in workers.values() if at[1] == machine for d in at[3] if demands[at[0]]["gpu"] == 1]
            halves = [d for at in workers.values() if at[1] == machine for d in at[3] if demands[at[0]]["gpu"] == 0.5]
            assert all(2 * used.count(d) + halves.count(d) <= 2 for d in (0, 1))
            held = sum(at[2] for at in workers.values() if at[1] == machine)
            assert sched.cluster.free(machine)["cpu"] == amount - held
        running = {run for run, at in workers.items() if run not in sched.cluster.stopping}
        assert running == {task.run for task in sched.cluster.tasks.values() if task.place}
        assert set(sched.cluster.stopping) <= set(workers)
        check_books(sched)
    read = fs.Scheduler.import_state(text(sched))
    assert text(read) == text(sched)
    others = [fs.Scheduler.restore(sched.snapshot()), sched.copy()]
    if path is not None:
        sched.journal.close()
        others.append(fs.Scheduler.restore(path))
    for again in others:
        assert world_of(again) == world_of(sched) and flow_of(again) == flow_of(sched)
        assert again.cluster.stopping == sched.cluster.stopping


@pytest.mark.parametrize("kind", [fs.TaskStopped, fs.TaskCompleted, fs.TaskFailed])
@pytest.mark.parametrize("run", [None, 1])
def test_what_has_no_hash_is_no_task(kind: type, run: int | None) -> None:
    sched, _ = preempted()
    for task in ([], np.zeros(2)):
        with pytest.raises(fs.UnknownTaskError):
            sched.apply(kind(task, run=run))
    assert list(sched.cluster.stopping) == [1] and not sched.cluster.stale_events
