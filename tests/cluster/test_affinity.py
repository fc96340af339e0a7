"""Spread and anti-affinity: limits of tasks of one kind on a machine, and kinds that do not share one."""

from __future__ import annotations

import numpy as np
import pytest
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st

from flowsched import InputError, ReasonCode, Scheduler
from flowsched.cluster import Task
from flowsched.cluster.events import JobRemoved, JobSubmitted, MachineAdded, MachineFailed, TaskCompleted, TaskStarted
from flowsched.policy import LoadCost, Policy

PACK = Policy(placement=[LoadCost("pack")])


def machines(n: int = 3, policy: Policy = PACK, **given: object) -> Scheduler:
    sched = Scheduler(policy, resources=("cpu",))
    sched.apply(*(MachineAdded(f"m{i}", {"cpu": 8}, **given) for i in range(n)))  # type: ignore[arg-type]
    return sched


def step(sched: Scheduler, now: float = 0.0) -> dict:  # type: ignore[type-arg]
    rnd = sched.schedule(now)
    assert not sched.commit(rnd).conflicts
    return dict(rnd.placements)


@pytest.mark.parametrize("kind", ["db", None])
def test_each_on_a_machine_of_its_own(kind: str | None) -> None:
    sched = machines()
    sched.apply(JobSubmitted("j", [Task(i, {"cpu": 1}, kind=kind, apart=1) for i in range(4)]))
    rnd = sched.schedule(0.0)
    assert sorted(rnd.placements.values()) == ["m0", "m1", "m2"]
    (late,) = rnd.waiting
    sched.commit(rnd)
    reason = sched.schedule(1.0).waiting[late]
    assert reason.code is ReasonCode.NO_FIT and reason.detail == {"8 cpu": {"affinity": 3}}
    assert sched.explain(late, "m1").detail == {"8 cpu": {"affinity": 1}}
    sched.apply(TaskCompleted(next(iter(rnd.placements))))
    assert len(step(sched, 2.0)) == 1


def test_at_most_two_of_a_kind_whatever_they_ask_for() -> None:
    """Two classes and two jobs of one kind count together."""
    sched = machines(2)
    sched.apply(JobSubmitted("a", [Task(("a", i), {"cpu": 1}, kind="web", apart=2) for i in range(3)]))
    sched.apply(JobSubmitted("b", [Task(("b", i), {"cpu": 2}, kind="web", apart=2) for i in range(3)]))
    placed = list(step(sched).values())
    assert sorted(placed) == ["m0", "m0", "m1", "m1"]
    assert not step(sched, 1.0)


def test_kinds_that_do_not_share_a_machine_in_either_order() -> None:
    for first, second in (("quiet", "loud"), ("loud", "quiet")):
        sched = machines(2)
        avoids = {"quiet": ("loud",), "loud": ()}
        for kind in (first, second):
            sched.apply(
                JobSubmitted(kind, [Task((kind, i), {"cpu": 1}, kind=kind, avoids=avoids[kind]) for i in range(3)])
            )
            step(sched)
        where = {task: sched.cluster.placement(task) for task in sched.cluster.tasks}
        assert None not in where.values(), "pack leaves the other machine free"
        assert not {m for t, m in where.items() if t[0] == "quiet"} & {m for t, m in where.items() if t[0] == "loud"}


def test_jobs_of_one_round_that_avoid_each_other() -> None:
    sched = machines(2, Policy(placement=()))
    for me, other in (("a", "b"), ("b", "a")):
        sched.apply(JobSubmitted(me, [Task((me, i), {"cpu": 1}, kind=me, avoids=[other]) for i in range(6)]))
    step(sched)
    step(sched, 1.0)
    on = {m: {t[0] for t in sched.cluster.tasks if sched.cluster.placement(t) == m} for m in ("m0", "m1")}
    assert all(len(kinds) <= 1 for kinds in on.values())
    assert sum(sched.cluster.placement(t) is not None for t in sched.cluster.tasks) >= 8, "8 fit on one machine, 6 come"


def test_a_better_task_displaces_who_must_not_be_near() -> None:
    sched = machines(1)
    sched.apply(JobSubmitted("w", [Task("w0", {"cpu": 1}, kind="w"), Task("x", {"cpu": 1})], priority=5))
    step(sched)
    sched.apply(JobSubmitted("b", [Task("b", {"cpu": 1}, avoids=["w"])], priority=1))
    rnd = sched.schedule(1.0)
    assert dict(rnd.placements) == {"b": "m0"}
    assert set(rnd.preemptions) == {"w0"}, "x may stay"
    assert not sched.commit(rnd).conflicts


def test_a_running_task_is_adopted_in_whatever_company() -> None:
    sched = machines(1)
    sched.apply(JobSubmitted("j", [Task(i, {"cpu": 1}, apart=1) for i in range(3)]))
    sched.apply(TaskStarted(0, "m0"), TaskStarted(1, "m0"))
    for left in (1, 0):
        assert not step(sched)
        sched.apply(TaskCompleted(left))
    assert set(step(sched)) == {2}


def test_nothing_is_kept_free_for_whom_room_does_not_help() -> None:
    sched = machines(2)
    sched.apply(JobSubmitted("j", [Task(i, {"cpu": 1}, apart=1) for i in range(3)], time=0.0))
    for now in (0.0, 1e4, 1e8):
        step(sched, now)
    sched.apply(JobSubmitted("k", [Task(("k", i), {"cpu": 7}) for i in range(2)]))
    assert len(step(sched, 1e8 + 1)) == 2


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Task("t", apart=0), "apart"),
        (lambda: Task("t", apart=True), "apart"),
        (lambda: Task("t", avoids="ab"), "avoids"),
    ],
)
def test_nonsense_is_refused_by_name(make, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=rf"task 't': {words}"):
        make()


@settings(max_examples=effort(10, 200), deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_random_histories_keep_the_peace(seed: int) -> None:
    """Against a count from scratch: no task breaks a limit, and none waits that may start somewhere."""
    rng = np.random.default_rng(seed)
    sched = machines(4, Policy(), slots=5)
    kinds = ["a", "b", "c", None]
    jobs, wishes = 0, {}
    for now in range(8):
        for _ in range(int(rng.integers(1, 4))):
            kind = kinds[rng.integers(0, 4)]
            apart = [None, 1, 2][rng.integers(0, 3)]
            avoids = [k for k in ("a", "b", "c") if k != kind and rng.random() < 0.2]
            tasks = [Task((jobs, i), {"cpu": int(rng.integers(1, 3))}, kind=kind, apart=apart, avoids=avoids) for i in range(rng.integers(1, 4))]  # fmt: skip
            wishes.update((task.id, task) for task in tasks)
            sched.apply(JobSubmitted(jobs, tasks, priority=int(rng.integers(0, 3))))
            jobs += 1
        if rng.random() < 0.3:
            machine = f"m{rng.integers(0, 4)}"
            sched.apply(MachineFailed(machine), MachineAdded(machine, {"cpu": 8}, slots=5))
        if rng.random() < 0.3 and jobs > 3:
            job = int(rng.integers(0, jobs))
            if job in sched.cluster.jobs:
                sched.apply(JobRemoved(job))
        step(sched, float(now))
        running = {t: sched.cluster.placement(t) for t in sched.cluster.tasks if sched.cluster.placement(t) is not None}
        for task in [t for t in running if rng.random() < 0.2]:
            sched.apply(TaskCompleted(task))
            del running[task]

        def same(one: object, other: object) -> bool:
            mine, its = wishes[one], wishes[other]
            if mine.kind is None:
                ask = (mine.demand, mine.apart, set(mine.avoids), sched.cluster.task(one).group.cls)
                return its.kind is None and ask == (
                    its.demand,
                    its.apart,
                    set(its.avoids),
                    sched.cluster.task(other).group.cls,
                )
            return its.kind == mine.kind

        for task, machine in running.items():
            beside = [t for t, m in running.items() if m == machine and t != task]
            for other in beside:
                assert wishes[other].kind is None or wishes[other].kind not in wishes[task].avoids
            equals = [t for t in beside if same(task, t)]
            assert 1 + len(equals) <= (wishes[task].apart or 99), "the strictest of those who are there holds"
        rnd = sched.schedule(now + 0.5)
        assert not sched.commit(rnd).conflicts
        for task in rnd.waiting:
            assert not sched.cluster.fits(task).any()
