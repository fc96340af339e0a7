"""`Round.again_at`: until then a round changes nothing, so that the caller may sleep."""

from __future__ import annotations

from math import inf
from random import Random

import pytest
from effort import effort
from lives import POLICIES, Life

import flowsched as fs
from flowsched import fgm
from flowsched.policy.priority import reached
from flowsched.rounds.loop import again_at

TIMES = fs.WaitCost(first=2.0, buckets=5, reserve=2)
MAKERS = [
    *POLICIES,
    lambda: fs.Policy(backfill="easy", waiting=TIMES),
    lambda: fs.Policy(backfill="conservative", waiting=TIMES),
    lambda: fs.Policy(waiting=TIMES, preemption=fs.PreemptionCost(0.5, 7.0)),
    lambda: fs.Policy(backfill="easy", preemption=fs.PreemptionCost(0.5, 3.0)),
    lambda: fs.Policy(waiting=fs.WaitCost(first=3.0, patience=0.2)),
]
SEEDS = effort(1, 100)


def gain(rnd: fs.Round) -> tuple[int, ...]:
    """How good a round is: two of the same gain differ in the choice among equally good flows alone."""
    return rnd.stats.cost, len(rnd.placements), len(rnd.preemptions), len(rnd.migrations)


def live(maker, seed: int, steps: int = 30) -> tuple[int, int]:
    """Run one scheduler every second, and one after events and at `again_at`; return their numbers of rounds."""
    life, often, seldom = Life(seed), fs.Scheduler(maker()), fs.Scheduler(maker())
    every = some = now = 0
    again = -inf
    for _ in range(steps):
        events = life.events(often)
        often.apply(*events)
        seldom.apply(*events)
        again = -inf if events else again
        end = int(life.later())
        while now <= end:
            rnd = often.schedule(now)
            often.commit(rnd)
            every += 1
            assert rnd.again_at >= now
            if again <= now:
                other = seldom.schedule(now)
                seldom.commit(other)
                again = other.again_at
                some += 1
                if other.deltas != rnd.deltas:  # an idle round of the other may have led to another of the best flows
                    assert gain(other) == gain(rnd), now
                    seldom, again = often.copy(), rnd.again_at
            else:
                assert not rnd.deltas, (now, again)
            now += 1
        life.now = float(now - 1)
    return every, some


@pytest.mark.long
@pytest.mark.parametrize("which", range(len(MAKERS)))
def test_rounds_before_again_at_change_nothing(which: int) -> None:
    calls = [live(MAKERS[which], seed) for seed in range(SEEDS)]
    assert sum(some for _, some in calls) < 0.6 * sum(every for every, _ in calls)


@pytest.mark.long
def test_a_round_under_shares_that_moves_nothing_may_prepare_the_next() -> None:
    live(MAKERS[4], 5)


# -- what ends a sleep ---------------------------------------------------------------------------------------------


def settled(sched: fs.Scheduler | fgm.FineGrained, now: float) -> fs.Round:
    """Return the first round after which only time may change a decision."""
    for _ in range(5):
        rnd = sched.schedule(now)
        sched.commit(rnd)
        if rnd.again_at > now:
            return rnd
    return rnd


def machine(cpu: float, policy: fs.Policy, *tasks: fs.Task, **job) -> fs.Scheduler:
    sched = fs.Scheduler(policy, resources=("cpu",))
    sched.apply(fs.MachineAdded("m", {"cpu": cpu}, time=0.0), fs.JobSubmitted("j", tasks, time=0.0, **job))
    return sched


def test_time_changes_nothing_where_nothing_waits() -> None:
    sched = machine(2, fs.Policy(), fs.Task("a", {"cpu": 1}))
    first = sched.schedule(0.0)
    assert (len(first.placements), first.again_at) == (1, inf)
    assert fs.Scheduler().schedule(5.0).again_at == inf


def test_a_round_that_moves_tasks_while_others_wait_asks_for_another() -> None:
    sched = machine(1, fs.Policy(), fs.Task("a", {"cpu": 1}), fs.Task("b", {"cpu": 1}))
    first = sched.schedule(3.0)
    assert (len(first.deltas), first.again_at) == (1, 3.0)


def test_a_waiting_task_grows_older() -> None:
    sched = machine(1, fs.Policy(waiting=fs.WaitCost(first=10.0, buckets=4, reserve=None)), fs.Task("a", {"cpu": 2}))
    ends = []
    now = 1.0
    while now < inf:
        now = settled(sched, now).again_at
        ends.append(now)
    assert ends == [10.0, 20.0, 40.0, inf]


def test_a_run_grows_older() -> None:
    policy = fs.Policy(waiting=fs.WaitCost(first=10.0, buckets=2, reserve=None))
    sched = fs.Scheduler(policy, resources=("cpu",))
    tasks = fs.Task("runs", {"cpu": 1}), fs.Task("waits", {"cpu": 3})
    sched.apply(fs.MachineAdded("m", {"cpu": 2}, slots=2), fs.JobSubmitted("j", tasks, time=0.0))
    assert settled(sched, 4.0).again_at == 10.0
    assert settled(sched, 10.0).again_at == 14.0  # it has run since 4
    assert settled(sched, 14.0).again_at == inf


def test_a_run_that_may_have_to_go_grows_older() -> None:
    """Without slots it has no cost in the flow, but as a victim."""
    policy = fs.Policy(waiting=fs.WaitCost(first=10.0, buckets=2, reserve=None), priority=fs.WeightedPriority(1e-6))
    sched = fs.Scheduler(policy, resources=("cpu",))
    low, high = (fs.JobSubmitted(p, [fs.Task(p, {"cpu": 1})], priority=p, time=-50.0) for p in (5, 4))
    sched.apply(fs.MachineAdded("m", {"cpu": 1}), low)
    settled(sched, 7.0)
    sched.apply(high)
    assert (settled(sched, 8.0).again_at, len(sched.cluster.waiting)) == (17.0, 1)


def test_a_task_that_was_stopped_may_be_stopped_again() -> None:
    policy = fs.Policy(waiting=fs.WaitCost(buckets=1, reserve=None), preemption=fs.PreemptionCost(0.1, 50.0))
    sched = machine(1, policy, fs.Task("low", {"cpu": 1}), priority=5)
    settled(sched, 0.0)
    sched.apply(fs.JobSubmitted("h", [fs.Task("high", {"cpu": 1})], priority=1, time=1.0))
    assert list(sched.schedule(1.0).preemptions) == ["low"]
    settled(sched, 1.0)
    sched.apply(fs.TaskCompleted("high", time=2.0))
    settled(sched, 2.0)
    sched.apply(fs.JobSubmitted("h2", [fs.Task("higher", {"cpu": 1})], priority=1, time=3.0))
    rnd = settled(sched, 3.0)
    assert (dict(rnd.placements), rnd.again_at) == ({}, 51.0)
    assert not sched.schedule(50.9).deltas
    assert list(sched.schedule(51.0).preemptions) == ["low"]


def test_a_reservation_ends() -> None:
    policy = fs.Policy(waiting=fs.WaitCost(first=4.0, buckets=2, reserve=1))
    sched = machine(2, policy, fs.Task("small", {"cpu": 1}))
    sched.apply(fs.MachineAdded("n", {"cpu": 2}, time=0.0))
    settled(sched, 0.0)
    sched.apply(fs.JobSubmitted("k", [fs.Task("beside", {"cpu": 2})], time=0.0))
    settled(sched, 0.0)
    sched.apply(fs.JobSubmitted("l", [fs.Task("large", {"cpu": 2})], time=1.0))
    assert settled(sched, 1.0).again_at == 4.0  # the runs are older, then the task
    assert settled(sched, 4.0).again_at == 5.0
    made = sched.schedule(5.0)
    assert (made.deltas, made.again_at) == ((), 5.0)  # the next round goes by the machine that is kept
    assert settled(sched, 5.0).again_at == 9.0  # it had waited for 4
    assert settled(sched, 9.0).again_at == 17.0  # it had waited for 8, and another machine is kept


def test_a_run_that_outlasts_its_estimate_lets_others_overtake() -> None:
    """It is expected to run as long again as it has run, so a task of 30 may overtake as of 30."""
    policy = fs.Policy(waiting=fs.WaitCost(buckets=1, reserve=None), backfill="easy", preemption=None)
    sched = machine(4, policy, fs.Task("long", {"cpu": 3}, duration=10.0))
    settled(sched, 0.0)
    sched.apply(fs.JobSubmitted("k", [fs.Task("first", {"cpu": 4}, duration=5.0)], time=1.0))
    settled(sched, 1.0)
    sched.apply(fs.JobSubmitted("l", [fs.Task("short", {"cpu": 1}, duration=30.0)], time=2.0))
    now, woken, placed = 2.0, [], {}
    while not placed and now < inf:
        now = settled(sched, now).again_at
        woken.append(now)
        placed = dict(sched.schedule(now).placements)
    assert placed == {"short": "m"} and now == 30.0
    assert len(woken) <= 4


def test_a_round_cut_short_is_made_again_at_once() -> None:
    tasks = [fs.Task(i, {"cpu": 1 + i % 3}) for i in range(3000)]
    sched = machine(1500, fs.Policy(), *tasks)
    assert sched.schedule(2.0, time_limit=1e-9).again_at == 2.0
    settled(sched, 2.0)
    with sched.builder.round(3.0) as scope:
        of = sched.builder, scope
        cut, whole = (again_at(*of, cut=cut, waiting=1, terms=[], altered=False) for cut in (True, False))
        assert cut == 3.0 < whole


def test_by_stages_the_next_round_is_when_a_task_fits() -> None:
    """Tasks wait for 10 s and compute for 4; the second may compute when the first one ends."""
    estimator = fgm.DemandEstimator(("cpu",), points=14, cold=1)
    estimator.observe("k", [[0.0]] * 10 + [[1.0]] * 4, seconds=14)
    estimator.update()
    fine = fgm.FineGrained(fs.Scheduler(resources=("cpu",)), estimator=estimator)
    tasks = [fs.Task(name, {"cpu": 1}, kind="k") for name in "abc"]
    fine.apply(fs.MachineAdded("m", {"cpu": 1}, time=0.0), fs.JobSubmitted("j", tasks, time=0.0))
    assert settled(fine, 0.0).again_at == 4.0
    assert settled(fine, 3.0).again_at == 4.0
    assert settled(fine, 4.0).again_at == 8.0
    assert fine.schedule(8.0).placements == {"c": "m"}
    fine.commit(fine.schedule(8.0))
    assert settled(fine, 9.0).again_at == inf


def test_a_scheduler_that_does_not_tell_is_called_at_any_time() -> None:
    assert fs.Round(1.0, {}, {}, {}, {}, {}, (), fs.RoundStats(0, 0, 0, 1, 0.0, 0.0, 0.0)).again_at == -inf
    pytest.importorskip("simpy")
    from flowsched.sim.lines import Queue

    assert Queue(backfill=False).schedule(0.0).again_at == -inf


# -- ends that rounding would hide ---------------------------------------------------------------------------------


def test_a_time_is_late_enough_whatever_its_rounding() -> None:
    random, hidden = Random(1), 0
    for _ in range(20_000):
        start = random.choice([random.uniform(-1e6, 1e6), random.uniform(0, 1), random.uniform(0, 1e15)])
        span = random.choice([60.0, 0.1, 1e-9, random.uniform(0, 1e7)])
        time = reached(start, span)
        assert time - start >= span
        hidden += start + span - start < span
    assert hidden > 100
    assert (reached(5.0, inf), reached(-1e308, 1e308)) == (inf, 0.0)


def test_a_round_at_the_very_end_of_an_age_bucket_sees_it() -> None:
    """The sum of start and length may lie a rounding below the end; a look at that time must not be the last one."""
    waiting, random = fs.WaitCost(first=60.0, buckets=3, reserve=None), Random(2)
    for _ in range(40):
        since = random.uniform(0, 1000)
        if since + 60.0 - since >= 60.0:
            continue
        sched = fs.Scheduler(fs.Policy(waiting=waiting), resources=("cpu",))
        sched.apply(fs.MachineAdded("m", {"cpu": 1}), fs.JobSubmitted("j", [fs.Task("a", {"cpu": 2})], time=since))
        for now in (since, since + 60.0, 5000.0):
            sched.schedule(now)
        (group,) = sched.builder.groups.nodes
        assert sched.builder.groups.nodes[group].bucket == 2
        return
    raise AssertionError("no such time was drawn")
