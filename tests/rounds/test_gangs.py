"""Gangs: at least a given number of tasks at the same time, or none."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import step

import flowsched as fs


def world(machines: int, cpu: float = 4, policy: fs.Policy | None = None) -> fs.Scheduler:
    sched = fs.Scheduler(policy, resources=("cpu",))
    sched.apply(*(fs.MachineAdded(f"m{i}", {"cpu": cpu}) for i in range(machines)))
    return sched


def submit(sched: fs.Scheduler, job: Any, n: int, cpu: float, **given: Any) -> list[Any]:
    ids = [(job, i) for i in range(n)]
    sched.apply(fs.JobSubmitted(job, [fs.Task(i, {"cpu": cpu}) for i in ids], **given))
    return ids


def running(sched: fs.Scheduler) -> Counter[Any]:
    return Counter(task.group.job.job.id for task in sched.cluster.tasks.values() if task.place)


def test_a_gang_that_does_not_fit_leaves_the_room_to_others_in_the_same_round() -> None:
    sched = world(2)
    gang = submit(sched, "gang", 3, 3, gang=3, priority=0)
    submit(sched, "single", 2, 3, priority=5)
    rnd = step(sched)
    assert running(sched) == {"single": 2}
    assert {rnd.waiting[task].code for task in gang} == {fs.ReasonCode.GANG_SHORT}
    sched.apply(*(fs.MachineAdded(f"n{i}", {"cpu": 4}) for i in range(2)))
    assert running(sched) + Counter() == {"single": 2}
    step(sched)
    assert running(sched)["gang"] == 3, "it displaces a worse one, since now that suffices"


def test_no_task_is_evicted_for_a_gang_that_does_not_start() -> None:
    sched = world(2)
    submit(sched, "worse", 2, 4, priority=5)
    step(sched)
    submit(sched, "gang", 3, 4, gang=3, priority=0)
    rnd = step(sched, 1.0)
    assert not rnd.deltas and running(sched) == {"worse": 2}
    sched.apply(fs.MachineAdded("m2", {"cpu": 4}))
    rnd = step(sched, 2.0)
    assert running(sched) == {"gang": 3} and len(rnd.preemptions) == 2


def test_at_least_k_of_n() -> None:
    sched = world(3)
    submit(sched, "gang", 5, 4, gang=2)
    assert len(step(sched).placements) == 3
    sched.apply(fs.MachineAdded("m3", {"cpu": 4}))
    assert len(step(sched).placements) == 1, "more may join one by one"


def test_of_two_gangs_in_each_other_s_way_one_starts() -> None:
    sched = world(4)
    submit(sched, "a", 4, 4, gang=4)
    submit(sched, "b", 4, 4, gang=4)
    submit(sched, "c", 4, 4, gang=4, priority=-1)
    step(sched)
    assert running(sched) == {"c": 4}
    sched.apply(fs.JobRemoved("c"))
    step(sched)
    assert running(sched) == {"a": 4}, "the older one"


@given(gangs=st.lists(st.tuples(st.integers(2, 4), st.sampled_from([3, 3.5, 4])), min_size=1, max_size=6))
def test_of_gangs_that_would_fit_alone_at_least_one_starts(gangs: list[tuple[int, float]]) -> None:
    sched = world(4)
    for i, (n, cpu) in enumerate(gangs):
        submit(sched, i, n, cpu, gang=n)
    step(sched)
    assert running(sched)


def test_a_gang_is_urged_before_single_tasks_of_its_priority() -> None:
    """The flow alone would let older single tasks take part of the room; then the gang would never start."""
    sched = world(3)
    submit(sched, "single", 2, 4)
    submit(sched, "gang", 3, 4, gang=3)
    step(sched, 100.0)
    assert running(sched) == {"gang": 3}


def test_a_gang_pushed_below_its_size_stops_as_a_whole() -> None:
    sched = world(3)
    gang = submit(sched, "gang", 3, 4, gang=3, priority=5)
    step(sched)
    submit(sched, "better", 1, 4, priority=1)
    submit(sched, "small", 2, 2, priority=7)
    rnd = step(sched, 1.0)
    assert set(rnd.preemptions) == set(gang)
    assert {gone.by for gone in rnd.preemptions.values()} == {("better", 0)}
    assert running(sched) == {"better": 1, "small": 2}


def test_tasks_that_end_do_not_break_a_gang() -> None:
    sched = world(4)
    gang = submit(sched, "gang", 4, 4, gang=4)
    step(sched)
    sched.apply(fs.TaskCompleted(gang[0]), fs.TaskFailed(gang[1]))
    assert list(step(sched).placements) == [gang[1]], "three are left, and three run"


def test_a_gang_waits_for_tasks_not_yet_submitted() -> None:
    sched = world(4)
    submit(sched, "gang", 2, 1, gang=3)
    rnd = step(sched)
    assert {reason.code for reason in rnd.waiting.values()} == {fs.ReasonCode.GANG_SHORT}
    assert "TaskSubmitted" in rnd.waiting["gang", 0].unblocked_by
    sched.apply(fs.TaskSubmitted("gang", fs.Task("third", {"cpu": 1})))
    assert len(step(sched).placements) == 3


def test_a_commit_takes_a_gang_whole_or_not() -> None:
    sched = world(3)
    gang = submit(sched, "gang", 3, 4, gang=3)
    rnd = sched.schedule(0.0)
    assert not sched.commit(rnd, only=gang[:2]).accepted
    sched.apply(fs.TaskRemoved(gang[2]))
    done = sched.commit(rnd)
    assert not done.accepted and set(done.conflicts) == set(gang)
    assert step(sched).placements.keys() == set(gang[:2]), "two are left of it"


def test_a_round_without_time_starts_no_half_gang() -> None:
    sched = world(30)
    submit(sched, "gang", 40, 4, gang=40)
    submit(sched, "single", 5, 4)
    rnd = sched.schedule(0.0, time_limit=1e-9)
    assert not {task for task in rnd.placements if task[0] == "gang"}
    sched.abort(rnd)
    step(sched)
    assert running(sched) == {"single": 5}


@pytest.mark.parametrize("priority", [0, 5])
def test_an_idle_round_with_a_waiting_gang_changes_nothing_in_the_network(priority: int) -> None:
    """Cases: too little room, or worse tasks that could make some, but not enough."""
    sched = world(2)
    submit(sched, "worse", 2, 4, priority=3)
    step(sched)
    gang = submit(sched, "gang", 3, 4, gang=3, priority=priority)
    step(sched, 1.0)
    step(sched, 1.0)
    for now in (1.0, 1.5, 2.0):
        rnd = step(sched, now)
        assert not rnd.deltas and rnd.stats.changes == 0 and rnd.stats.solves == 1
        assert {rnd.waiting[task].code for task in gang} <= {fs.ReasonCode.GANG_SHORT, fs.ReasonCode.NO_FIT}
        assert [sched.explain(task).code for task in gang] == [rnd.waiting[task].code for task in gang]
    sched.apply(fs.MachineAdded("m2", {"cpu": 4}), fs.JobRemoved("worse"))
    assert set(step(sched, 2.0).placements) == set(gang), "the change is noticed"


AT_MOST_2 = fs.Policy(fairness=fs.Fairness(limits={"gang": fs.Limits(maximum=2)}))


@pytest.mark.parametrize(
    ("machines", "policy", "news"),
    [
        (3, fs.Policy(), lambda s: s.apply(fs.MachineAdded("m3", {"cpu": 4}))),
        (3, fs.Policy(), lambda s: s.apply(fs.TaskRemoved(("gang", 3)))),
        (3, fs.Policy(), lambda s: s.apply(fs.MachineUpdated("m0", capacity={"cpu": 8}))),
        (4, AT_MOST_2, lambda s: setattr(s, "policy", fs.Policy())),
    ],
)
def test_a_gang_that_was_left_out_is_tried_again_after_a_change(machines: int, policy: fs.Policy, news: Any) -> None:
    sched = world(machines, policy=policy)
    submit(sched, "gang", 4, 4, gang=4)
    for now in range(4):
        assert not step(sched, float(now)).placements
    news(sched)
    assert len(step(sched, 4.0).placements) >= 3


def test_a_gang_that_stood_aside_for_one_that_cannot_start_comes_back() -> None:
    """The better one takes a machine that both need, though its other tasks fit nowhere."""
    sched = fs.Scheduler(resources=("cpu",))
    sched.apply(*(fs.MachineAdded(i, {"cpu": 4}, labels={"at": str(i)}) for i in range(2)))
    better = [
        fs.Task("at 0", {"cpu": 4}, {"at": ("0",)}),
        fs.Task("large", {"cpu": 9}),
        fs.Task("large too", {"cpu": 9}),
    ]
    sched.apply(fs.JobSubmitted("better", better, gang=3, priority=0))
    submit(sched, "gang", 2, 4, gang=2, priority=1)
    step(sched)
    assert running(sched) == {"gang": 2}


@pytest.mark.parametrize("gang", [0, -1, 1.5, True, "all"])
def test_nonsense_is_refused(gang: Any) -> None:
    sched = world(1)
    with pytest.raises(fs.InputError, match="'j': gang"):
        submit(sched, "j", 2, 1, gang=gang)
    assert not sched.cluster.jobs and not sched.cluster.tasks


def test_gangs_that_can_never_start_slow_no_round_down_and_start_once_they_can() -> None:
    sched = fs.Scheduler(resources=("cpu", "gpu"))
    sched.apply(*(fs.MachineAdded(i, {"cpu": 8, "gpu": 1}) for i in range(4)))
    for g in range(30):
        sched.apply(
            fs.JobSubmitted(("short", g), [fs.Task(("short", g, i), {"cpu": 1}) for i in range(2)], gang=3),
            fs.JobSubmitted(("huge", g), [fs.Task(("huge", g, i), {"cpu": 9 if i else 1}) for i in range(2)], gang=2),
            fs.JobSubmitted(("wide", g), [fs.Task(("wide", g, i), {"gpu": 0.4}) for i in range(9)], gang=9),
        )
    rnd = sched.schedule(0.0)
    assert not rnd.placements and rnd.stats.solves == 1
    assert {rnd.waiting["short", 0, 0].code, rnd.waiting["wide", 0, 0].code} == {fs.ReasonCode.GANG_SHORT}
    sched.apply(fs.TaskSubmitted(("short", 7), fs.Task("third", {"cpu": 1})), fs.MachineAdded("more", {"gpu": 1}))
    rnd = sched.schedule(1.0)
    assert {task if task == "third" else task[:2] for task in rnd.placements} == {"third", ("short", 7), ("wide", 0)}
    sched.commit(rnd)
    assert sched.schedule(2.0).stats.solves <= 2  # one may have been tried


@pytest.mark.parametrize("over", ["user", "job"])
@pytest.mark.parametrize("mode", ["hard", "soft"])
def test_a_gang_that_does_not_fit_claims_no_share(over: Any, mode: Any) -> None:
    """Its part of the machine is not kept idle for it, in this round or in later ones."""
    sched = fs.Scheduler(fs.Policy(fairness=fs.Fairness(over=over, mode=mode)), ("cpu",))
    sched.apply(fs.MachineAdded("m", {"cpu": 4}))
    sched.apply(fs.JobSubmitted("gang", [fs.Task(f"g{i}", {"cpu": 1}) for i in range(5)], user="a", gang=5))
    sched.apply(fs.JobSubmitted("rest", [fs.Task(f"r{i}", {"cpu": 1}) for i in range(6)], user="b"))
    rnd = sched.schedule(0.0)
    assert sorted(rnd.placements) == ["r0", "r1", "r2", "r3"]
    assert rnd.shares["a" if over == "user" else "gang"].entitled == 0
    sched.commit(rnd)
    sched.apply(fs.TaskCompleted("r0"), fs.MachineAdded("another", {"cpu": 8}))
    rnd = sched.schedule(1.0)
    assert sum(task.startswith("g") for task in rnd.placements) == 5, "now it fits, and claims its share again"


@pytest.mark.parametrize("spare", [1, 4])
@pytest.mark.parametrize(
    "policy", [fs.Policy(), fs.Policy(preemption=None), fs.Policy(placement=[fs.LoadCost("pack")])]
)
def test_a_gang_that_falls_short_next_to_an_older_one_does_not_overtake_it(policy: fs.Policy, spare: int) -> None:
    sched = world(5 + spare, 2, policy)
    size, order, now = 10 + spare, [], 0.0
    for job in range(6):
        submit(sched, job, size, 1, gang=size, time=now)
    for job in range(6, 14):
        now += 30.0
        order += list(dict.fromkeys(task[0] for task in step(sched, now).placements))
        assert not sched.schedule(now).deltas
        sched.apply(*(fs.TaskCompleted((order[-1], i)) for i in range(size)))
        submit(sched, job, size, 1, gang=size, time=now)
    assert order == list(range(8))
