"""Retries, back-off, and machines on which tasks failed, against a model that sees events and commits alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from random import Random

import pytest
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st
from lives import flow_of, world_of
from portable_files import check_books, text

import flowsched as fs
from flowsched.fgm import FineGrained


def cluster(machines: str = "abc", **task: object) -> fs.Scheduler:
    """Machines with room for one task each, and task "t"."""
    sched = fs.Scheduler(resources=("cpu",))
    added = (fs.MachineAdded(name, {"cpu": 1}) for name in machines)
    sched.apply(*added, fs.JobSubmitted("j", [fs.Task("t", {"cpu": 1}, **task)]))  # type: ignore[arg-type]
    return sched


def start(sched: fs.Scheduler, now: float, task: str = "t") -> object:
    """Decide and commit; return where the task runs."""
    sched.commit(sched.schedule(now))
    return sched.cluster.placement(task)


def test_a_task_rests_longer_after_each_failure_and_leaves_with_the_last() -> None:
    sched = cluster(retries=8, backoff=3.0)
    now, rests = 0.0, []
    while "t" in sched.cluster.tasks:
        assert start(sched, now) is not None
        sched.apply(fs.TaskFailed("t", time=now))
        if "t" in sched.cluster.tasks:
            rnd = sched.schedule(now)
            assert rnd.waiting["t"].code is fs.ReasonCode.BACKOFF and sched.explain("t").code is fs.ReasonCode.BACKOFF
            assert rnd.again_at == sched.cluster.resting["t"] and sched.cluster.task_state("t") == "waiting"
            rests.append(rnd.again_at - now)
            assert start(sched, rnd.again_at - 1e-6) is None
            now = rnd.again_at
    assert rests == [3.0, 6.0, 12.0, 24.0, 48.0, 96.0, 96.0, 96.0]
    assert not (sched.cluster.resting or sched.cluster.attempts)


def test_no_machine_comes_twice_while_another_one_could_hold_the_task() -> None:
    sched = cluster("abcd", retries=9)
    seen = []
    for now in range(9):
        seen.append(start(sched, float(now)))
        sched.apply(fs.TaskFailed("t"))
    assert set(seen[:4]) == set("abcd")


def test_a_task_waits_for_another_machine_and_says_so() -> None:
    sched = cluster("ab", retries=3)
    there = start(sched, 0.0)
    other = "b" if there == "a" else "a"
    sched.apply(fs.JobSubmitted("k", [fs.Task("u", {"cpu": 1})]))
    assert start(sched, 1.0, "u") == other
    sched.apply(fs.TaskFailed("t", time=2.0))
    rnd = sched.schedule(3.0)
    sched.commit(rnd)
    assert rnd.waiting["t"].code is fs.ReasonCode.FAILED_THERE
    assert rnd.waiting["t"].detail == {"1 cpu": {"failed there": 1, "cpu": 1}}
    assert sched.explain("t", there).code is fs.ReasonCode.FAILED_THERE
    assert sched.explain("t", other).code is fs.ReasonCode.NO_FIT
    sched.apply(fs.MachineDrained(other))  # now there is no choice
    assert start(sched, 4.0) == there


@pytest.mark.parametrize("lost", [fs.MachineDrained, fs.MachineFailed, fs.MachineRemoved])
def test_a_choice_comes_and_goes_with_the_machines(lost: type) -> None:
    sched = cluster("ab", retries=5)
    there = start(sched, 0.0)
    other = "b" if there == "a" else "a"
    sched.apply(lost(other), fs.TaskFailed("t"))
    assert start(sched, 1.0) == there
    sched.apply(fs.TaskFailed("t"))
    if lost is fs.MachineDrained:
        sched.apply(fs.MachineUpdated(other))
    else:
        sched.apply(fs.MachineAdded(other, {"cpu": 1}))
    assert start(sched, 2.0) == other
    sched.apply(fs.MachineRemoved(there), fs.MachineAdded(there, {"cpu": 1}), fs.TaskFailed("t"))
    assert start(sched, 3.0) in "ab"


def test_no_task_is_stopped_on_a_machine_that_is_shunned() -> None:
    sched = cluster("ab", retries=3)
    sched.policy = fs.Policy(preemption=fs.PreemptionCost(1.0))
    there = start(sched, 0.0)
    other = "b" if there == "a" else "a"
    sched.apply(fs.TaskFailed("t"), fs.JobSubmitted("k", [fs.Task(i, {"cpu": 1}) for i in "uv"], priority=3))
    sched.commit(sched.schedule(1.0))
    victim = next(i for i in "tuv" if sched.cluster.placement(i) == other)
    if victim != "t":
        assert start(sched, 2.0) == other
    assert sched.cluster.placement("t") == other


def test_a_failure_of_the_machine_costs_no_retry() -> None:
    sched = cluster("ab", retries=0)
    there = start(sched, 0.0)
    sched.apply(fs.MachineFailed(there))
    assert start(sched, 1.0) not in (None, there)
    sched.apply(fs.TaskFailed("t"))
    assert not sched.cluster.tasks


def test_a_gang_left_out_for_want_of_tasks_is_looked_at_again_when_a_rest_ends() -> None:
    sched = fs.Scheduler(resources=("cpu",))
    gang = [fs.Task(id, {"cpu": 1}, retries=1, backoff=5.0) for id in "tu"]
    sched.apply(fs.MachineAdded("a", {"cpu": 2}), fs.MachineAdded("b", {"cpu": 2}), fs.JobSubmitted("j", gang, gang=2))
    assert start(sched, 0.0) is not None
    sched.apply(fs.TaskFailed("t", time=0.0), fs.TaskFailed("u", lost=True, time=0.0))
    for now in (1.0, 2.0):
        rnd = sched.schedule(now)
        assert (rnd.placements, rnd.again_at) == ({}, 5.0)
    assert start(sched, 5.0) is not None and sched.cluster.placement("u") is not None


def test_a_run_that_is_lost_costs_no_retry_no_rest_and_no_machine() -> None:
    sched = cluster("a", retries=1, backoff=5.0)
    for now in range(3):
        assert start(sched, float(now)) == "a"
        sched.apply(fs.TaskFailed("t", lost=True, time=float(now)))
        assert not sched.cluster.resting and sched.schedule(float(now)).waiting == {}
    assert start(sched, 4.0) == "a"
    sched.apply(fs.TaskFailed("t", time=4.0), fs.MachineAdded("b", {"cpu": 1}))
    assert start(sched, 9.0) == "b"
    sched.apply(fs.TaskFailed("t", lost=True, time=9.0), fs.MachineAdded("c", {"cpu": 1}))
    assert start(sched, 9.0) in "bc"  # "a" is shunned on and on
    sched.apply(fs.TaskFailed("t", retry=False, lost=True))
    assert not sched.cluster.tasks


def test_what_is_no_truth_is_refused() -> None:
    sched = cluster(retries=1)
    start(sched, 0.0)
    with pytest.raises(fs.InputError, match="task 't': lost"):
        sched.apply(fs.TaskFailed("t", lost="yes"))  # type: ignore[arg-type]
    assert sched.cluster.placement("t") is not None


def test_a_closed_job_leaves_with_a_task_that_has_no_retries_left() -> None:
    sched = fs.Scheduler(resources=("cpu",))
    sched.apply(
        fs.MachineAdded("a", {"cpu": 1}), fs.JobSubmitted("j", [fs.Task("t", {"cpu": 1}, retries=0)], closed=True)
    )
    start(sched, 0.0)
    sched.apply(fs.TaskFailed("t"))
    assert not (sched.cluster.jobs or sched.cluster.tasks)


@pytest.mark.parametrize("time", [None, 1.0])
def test_a_task_that_rests_can_be_removed_adopted_and_counted(time: float | None) -> None:
    for event in (fs.TaskRemoved("t"), fs.JobRemoved("j"), fs.TaskStarted("t", "b", time=time)):
        sched = cluster(retries=3, backoff=5.0)
        start(sched, 0.0)
        sched.apply(fs.TaskFailed("t", time=time))
        for refused in (
            fs.TaskCompleted("t"),
            fs.TaskFailed("t"),
            fs.TaskSubmitted("j", fs.Task("t")),
            fs.UserRemoved("j"),
        ):
            with pytest.raises(fs.FlowschedError):
                sched.apply(refused)
        sched.apply(event)
        check_books(sched)
        assert not sched.cluster.resting
        rnd = sched.schedule(2.0)
        assert not rnd.deltas and not rnd.waiting and rnd.again_at == inf
        again = fs.Scheduler.restore(sched.snapshot())
        assert world_of(again) == world_of(sched) and flow_of(again) == flow_of(sched)


@pytest.mark.parametrize(
    "wrong", [{"retries": -1}, {"retries": 1.5}, {"retries": "2"}, {"retries": True}, {"backoff": 1.0}, {"retries": 1, "backoff": -1.0},
              {"retries": 1, "backoff": inf}, {"retries": 1, "backoff": "soon"}],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_name(wrong: dict) -> None:
    with pytest.raises(fs.InputError, match="task 't': (retries|backoff)"):
        fs.Task("t", {"cpu": 1}, **wrong)


@dataclass
class Model:
    """State of each task by events and commits: where it failed, how often, and the end of its rest."""

    failed_on: dict[str, list[str]] = field(default_factory=dict)
    due: dict[str, float] = field(default_factory=dict)

    def failed(self, sched: fs.Scheduler | FineGrained, id: str, spec: fs.Task, time: float, lost: bool) -> None:
        """A run has failed there, or was lost."""
        machine = sched.cluster.placement(id)
        sched.apply(fs.TaskFailed(id, lost=lost, time=time))
        if lost:
            assert id in sched.cluster.tasks and id not in sched.cluster.resting
            return
        mine = self.failed_on.setdefault(id, [])
        if spec.retries is not None and len(mine) == spec.retries:
            assert id not in sched.cluster.tasks
            return
        assert id in sched.cluster.tasks
        mine.append(machine)
        self.due[id] = time + spec.backoff * 2 ** min(len(mine) - 1, 5) if spec.retries is not None else time

    def check(self, sched: fs.Scheduler, rnd: fs.Round, specs: dict[str, fs.Task]) -> None:
        """No task starts too early, or on a machine where it failed while another one could hold it."""
        able = {m: r.machine.capacity["cpu"] for m, r in sched.cluster.machines.items() if not (r.failed or r.drained)}
        for id, machine in {**rnd.placements, **{t: to for t, (_, to) in rnd.migrations.items()}}.items():
            assert self.due.get(id, -inf) <= rnd.now
            spec = specs[id]
            if spec.retries is not None and machine in self.failed_on.get(id, ()):
                others = [m for m, cpu in able.items() if cpu >= spec.demand["cpu"] and m not in self.failed_on[id]]
                assert not others
        soonest = min((self.due[id] for id in sched.cluster.resting), default=inf)
        assert soonest == sched.cluster.back_at and (rnd.again_at <= soonest)


POLICIES = [
    fs.Policy(),
    fs.Policy(preemption=fs.PreemptionCost(1.0), waiting=fs.WaitCost(first=2.0, buckets=4, reserve=1)),
    fs.Policy(fairness=fs.Fairness(over="user", mode="hard", reclaim=True)),
]


@pytest.mark.long
@settings(max_examples=effort(10, 3000))
@given(st.integers(0, 2**32), st.sampled_from(POLICIES), st.sampled_from(["plain", "fgm", "journal"]))
def test_lives_with_failures(tmp_path_factory: pytest.TempPathFactory, seed: int, policy: fs.Policy, kind: str) -> None:
    random, model, specs = Random(seed), Model(), {}
    sched = fs.Scheduler(policy, resources=("cpu",))
    whole: fs.Scheduler | FineGrained = sched
    path: Path | None = None
    if kind == "fgm":
        sched = fs.Scheduler(policy, resources=("cpu",))
        whole = FineGrained(sched)
    elif kind == "journal":
        path = tmp_path_factory.mktemp("retries") / "journal"
        whole = sched = fs.Scheduler(policy, resources=("cpu",), journal=path)
    now = 0.0
    for names in range(40):
        now += random.choice([0.0, 1.0, 2.0, 9.0])
        state = sched.cluster
        running = [id for id in state.tasks if state.placement(id) is not None]
        match random.randrange(9):
            case 0:
                whole.apply(fs.MachineAdded(f"m{names}", {"cpu": random.randint(1, 3)}, random.choice([None, "r"])))
            case 1 | 2 | 3:
                how = {"retries": random.choice([None, 0, 1, 3]), "duration": random.choice([None, 5.0])}
                if how["retries"] is not None:
                    how["backoff"] = random.choice([0.0, 1.0, 7.0])
                tasks = [
                    fs.Task(f"t{names}.{i}", {"cpu": random.choice([1, 2])}, **how) for i in range(random.randint(1, 3))
                ]
                specs.update((task.id, task) for task in tasks)
                gang = random.choice([None, None, len(tasks)])
                whole.apply(
                    fs.JobSubmitted(
                        f"j{names}", tasks, random.choice(["ann", "bob"]), random.randrange(2), gang, time=now
                    )
                )
            case 4 | 5 if running:
                for id in random.sample(running, random.randint(1, len(running))):
                    model.failed(whole, id, specs[id], now, random.random() < 0.3)
            case 6 if running:
                whole.apply(fs.TaskCompleted(random.choice(running)))
            case 7 if len(state.machines) > 1:
                what = random.choice([fs.MachineDrained, fs.MachineFailed, fs.MachineRemoved])
                whole.apply(what(random.choice(list(state.machines)), time=now))
            case 8 if state.tasks:
                id = random.choice(list(state.tasks))
                whole.apply(fs.TaskRemoved(id))
        rnd = whole.schedule(now)
        model.check(sched, rnd, specs)
        assert set(rnd.waiting) == {
            id for id in sched.cluster.tasks if sched.cluster.placement(id) is None and id not in rnd.placements
        } | set(rnd.preemptions)
        whole.commit(rnd)
        check_books(sched)
    if kind != "fgm":
        read = fs.Scheduler.import_state(text(sched))
        assert text(read) == text(sched)
        others = [fs.Scheduler.restore(sched.snapshot()), sched.copy()]
        if path is not None:
            sched.journal.close()
            others.append(fs.Scheduler.restore(path))
        for again in others:
            assert world_of(again) == world_of(sched) and flow_of(again) == flow_of(sched)
            check_books(again)
