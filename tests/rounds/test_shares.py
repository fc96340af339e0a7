"""Fair shares through the scheduler: bounds, ladders, users above jobs, and switching while it runs."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import pytest
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st
from lives import POLICIES, operations

import flowsched as fs
from flowsched import (
    JobRemoved,
    JobSubmitted,
    MachineAdded,
    MachineRemoved,
    Policy,
    PreemptionCost,
    Round,
    Scheduler,
    Task,
    TaskCompleted,
    TaskSubmitted,
    UserAdded,
    UserUpdated,
)
from flowsched.builder.shares import RoundShares
from flowsched.policy import (
    DRF,
    Fairness,
    Limits,
    LoadCost,
    MaxMin,
    SequenceShare,
    StaticQuotas,
    WaitCost,
    WeightedMaxMin,
)
from flowsched.policy.fairness import RUNGS


def job(name: str, count: int, user: str | None = None, priority: int = 0, **demand: float) -> JobSubmitted:
    tasks = [Task(f"{name}{i}", demand or {"cpu": 1}) for i in range(count)]
    return JobSubmitted(name, tasks, user=user, priority=priority)


def slots(count: int, each: int = 1) -> list[MachineAdded]:
    return [MachineAdded(f"m{i}", {"cpu": each}, slots=each) for i in range(count)]


def fair(*events: object, **settings: object) -> Scheduler:
    sched = Scheduler(Policy(fairness=Fairness(**settings)), resources=("cpu", "mem"))  # type: ignore[arg-type]
    sched.apply(*events)  # type: ignore[arg-type]
    return sched


def running(rnd: Round) -> dict[Hashable, int]:
    return {who: share.running for who, share in rnd.shares.items()}


def codes(rnd: Round) -> set[str]:
    return {reason.code.value for reason in rnd.waiting.values()}


def test_the_bounds_of_sirius() -> None:
    """Two jobs of 3 and 4 tasks, four machines of one slot: U_1 -> S is [1, 1], U_2 -> S is [2, 2], and each runs 2."""
    sched = fair(*slots(4), job("a", 3), job("b", 4))
    rnd = sched.schedule(0.0)
    assert running(rnd) == {"a": 2, "b": 2}
    assert sorted(task[0] for task in rnd.placements) == ["a", "a", "b", "b"]
    network = sched.network
    bases, slacks = sched.builder.shares.arcs()
    assert network.lower(bases).tolist() == [1, 2]
    assert network.flow(bases).tolist() == [1, 2]
    assert (slacks == -1).all(), "the upper bound is the lower one: nothing more may wait for free"
    assert codes(rnd) == {"SHARE"}
    waiting = next(iter(rnd.waiting))
    assert sched.explain(waiting).code.value == "SHARE"
    network.certify()


def test_a_share_that_cannot_be_met_is_a_shortfall() -> None:
    """Six slots, but b's tasks fit on one machine only: a keeps its share, b falls short, and nothing raises."""
    machines = [
        MachineAdded("big", {"cpu": 8}, slots=1),
        *(MachineAdded(f"m{i}", {"cpu": 1}, slots=1) for i in range(5)),
    ]
    sched = fair(*machines, job("a", 9), job("b", 9, cpu=8))
    sched.policy = Policy(fairness=Fairness(StaticQuotas({"a": 3, "b": 3})))
    rnd = sched.schedule(0.0)
    assert rnd.shares["a"].running == 3
    share = rnd.shares["b"]
    assert (share.entitled, share.running, share.shortfall) == (3, 1, 2)
    assert {rnd.waiting[f"a{i}"].code.value for i in range(9) if f"a{i}" in rnd.waiting} == {"SHARE"}
    assert rnd.placements["b0"] == "big"
    assert {rnd.waiting[f"b{i}"].code.value for i in range(1, 9)} == {"OUTBID"}, "their only machine is b0's"


def test_priority_does_not_break_a_hard_share_but_a_soft_one() -> None:
    for mode, expected in (("hard", {"a": 2, "b": 2}), ("soft", {"a": 3, "b": 1})):
        sched = fair(*slots(4), job("a", 4, priority=0), job("b", 4, priority=5), mode=mode, slack=0.0)
        assert running(sched.schedule(0.0)) == expected, mode


def test_what_one_leaves_another_borrows() -> None:
    sched = fair(*slots(6), job("a", 1, user="u"), job("b", 9, user="v"), over="user", share=WeightedMaxMin())
    rnd = sched.schedule(0.0)
    assert rnd.shares["u"] == (type(rnd.shares["u"]))(entitled=1, running=1, shortfall=0, lent=2, borrowed=0)
    assert rnd.shares["v"] == (type(rnd.shares["u"]))(entitled=5, running=5, shortfall=0, lent=0, borrowed=2)
    strict = fair(
        *slots(6), job("a", 1, user="u"), job("b", 9, user="v"), over="user", limits={"v": Limits(borrow=False)}
    )
    assert running(strict.schedule(0.0)) == {"u": 1, "v": 3}
    capped = fair(
        *slots(6),
        job("a", 1, user="u"),
        job("b", 9, user="v"),
        over="user",
        mode="ladder",
        limits={"v": Limits(maximum=4)},
    )
    rnd = capped.schedule(0.0)
    assert running(rnd) == {"u": 1, "v": 4}
    assert codes(rnd) == {"SHARE"}


def test_users_above_jobs() -> None:
    """Quotas 2:1 over users; within one, its jobs share alike."""
    events = [
        *slots(9), UserAdded("u", quota=2.0), UserAdded("v", quota=1.0),
        job("a", 9, user="u"), job("b", 9, user="u"), job("c", 9, user="v"),
    ]  # fmt: skip
    sched = fair(*events, over="user", share=WeightedMaxMin(), within=MaxMin())
    rnd = sched.schedule(0.0)
    assert running(rnd) == {"u": 6, "v": 3}
    assert sorted(task[0] for task in rnd.placements) == ["a"] * 3 + ["b"] * 3 + ["c"] * 3
    sched.commit(rnd)
    sched.apply(UserUpdated("v", quota=4.0), *(TaskCompleted(task) for task in rnd.placements))
    assert running(sched.schedule(1.0)) == {"u": 3, "v": 6}


@settings(max_examples=effort(15, 600))
@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 4)), min_size=1, max_size=5),
    st.integers(1, 20),
    st.sampled_from(["hard", "ladder"]),
)
def test_the_network_finds_weighted_max_min(users: list[tuple[int, int]], count: int, mode: str) -> None:
    """Slots alone: a ladder finds in the solve what the provider works out beforehand, to a rung of each."""
    events: list[object] = [*slots(1, count)]
    for i, (tasks, weight) in enumerate(users):
        events += [UserAdded(f"u{i}", quota=float(weight)), job(f"j{i}-", tasks, user=f"u{i}")]
    sched = fair(*events, over="user", share=WeightedMaxMin(), mode=mode)
    rnd = sched.schedule(0.0)
    found = np.array([rnd.shares[f"u{i}"].running for i in range(len(users))])
    wanted = np.array([rnd.shares[f"u{i}"].entitled for i in range(len(users))])
    assert found.sum() == wanted.sum() == min(count, sum(tasks for tasks, _ in users))
    pace = np.array([weight for _, weight in users]) / min(weight for _, weight in users)
    assert found.tolist() == wanted.tolist() if mode == "hard" else (abs(found - wanted) <= np.ceil(pace)).all()
    sched.network.certify()


def test_a_ladder_shares_the_tasks_that_machines_can_really_run() -> None:
    """b cannot use most machines: with a ladder a takes them, with hard shares they stay empty."""
    machines = [*(MachineAdded(f"s{i}", {"cpu": 1}, slots=1) for i in range(6)), MachineAdded("l", {"cpu": 2}, slots=2)]
    for mode, expected in (("hard", {"a": 4, "b": 1}), ("ladder", {"a": 6, "b": 1})):
        sched = fair(*machines, job("a", 9), job("b", 9, cpu=2), mode=mode)
        sched.policy = Policy(fairness=Fairness(StaticQuotas({"a": 4, "b": 4}), mode=mode))  # type: ignore[arg-type]
        assert running(sched.schedule(0.0)) == expected, mode


def test_drf_in_the_scheduler() -> None:
    """The paper's example: 9 CPUs and 18 GB; tasks of <1, 4> and <3, 1>."""
    sched = fair(
        MachineAdded("m", {"cpu": 9, "mem": 18}), job("a", 9, cpu=1, mem=4), job("b", 9, cpu=3, mem=1), share=DRF()
    )
    rnd = sched.schedule(0.0)
    assert running(rnd) == {"a": 3, "b": 2}


def test_the_sequence_over_rounds() -> None:
    """Table 1 of the sequence's source: A and B own 5:3, five slots come free in each round."""
    sched = fair(
        *slots(5), UserAdded("A", quota=5.0), UserAdded("B", quota=3.0), job("a", 60, user="A"), job("b", 60, user="B"),
        over="user", share=SequenceShare(),
    )  # fmt: skip
    total = {"a": 0, "b": 0}
    seen = []
    for now in range(8):
        thrown = sched.schedule(float(now))
        rnd = sched.schedule(float(now))
        assert dict(thrown.placements) == dict(rnd.placements), "a round that is not committed leaves no trace"
        done = sched.commit(rnd)
        for delta in done.accepted:
            total[str(delta.task)[0]] += 1
        seen.append((total["a"], total["b"]))
        sched.apply(*(TaskCompleted(task) for task in rnd.placements))
    assert seen == [(3, 2), (6, 4), (9, 6), (13, 7), (16, 9), (19, 11), (22, 13), (25, 15)]


def test_the_sequence_lends_and_gets_back() -> None:
    sched = fair(
        *slots(4), UserAdded("A", quota=1.0), UserAdded("B", quota=1.0), job("b", 60, user="B"), job("a", 1, user="A"),
        over="user", share=SequenceShare(),
    )  # fmt: skip

    def turn(now: float) -> Round:
        rnd = sched.schedule(now)
        sched.commit(rnd)
        sched.apply(*(TaskCompleted(task) for task in rnd.placements))
        return rnd

    assert running(turn(0.0)) == {"B": 3, "A": 1}
    sched.apply(JobSubmitted("more", [Task(f"more{i}", {"cpu": 1}) for i in range(60)], user="A"))
    rnd = turn(1.0)
    assert running(rnd) == {"B": 1, "A": 3}, "B pays back what it borrowed"
    assert (rnd.shares["A"].lent, rnd.shares["B"].borrowed) == (1, 1)
    assert running(turn(2.0)) == {"B": 2, "A": 2}


def test_switching_while_it_runs() -> None:
    """Each policy holds in the next round; the network is not rebuilt: nodes stay, and the changes are those of the bounds."""
    sched = Scheduler(resources=("cpu", "mem"))
    sched.apply(*slots(40), UserAdded("u", quota=3.0), UserAdded("v", quota=1.0))
    for i in range(6):
        sched.apply(job(f"j{i}-", 20, user="u" if i < 3 else "v", priority=i % 2))
    sched.schedule(0.0)
    nodes = set(sched.network.nodes().tolist())
    network = sched.network

    def switch(fairness: Fairness | None) -> Round:
        sched.policy = Policy(fairness=fairness)
        rnd = sched.schedule(0.0)
        assert sched.network is network
        assert nodes <= set(network.nodes().tolist())
        network.certify()
        return rnd

    jobs = switch(Fairness(MaxMin()))
    assert sorted(running(jobs).values()) == [6, 6, 7, 7, 7, 7]
    users = switch(Fairness(WeightedMaxMin(), over="user"))
    assert running(users) == {"u": 30, "v": 10}
    ladder = switch(Fairness(WeightedMaxMin(), over="user", mode="ladder"))
    assert sum(running(ladder).values()) == 40
    static = switch(Fairness(StaticQuotas({"j0-": 5}, default=1)))
    assert sorted(running(static).values()) == [1, 1, 1, 1, 1, 5]
    free = switch(None)
    assert not free.shares
    assert len(free.placements) == 40
    assert {str(task)[1] for task in free.placements} <= {"0", "2", "4"}, "priorities alone decide again"
    again = switch(Fairness(MaxMin()))
    assert running(again) == running(jobs)
    # A counter: what a switch of fairness alone changes in the network is bounds, prices and rungs of six jobs.
    builder = sched.builder
    before = builder.batch.count
    other = Policy(fairness=Fairness(StaticQuotas({}, default=2)))
    builder.shares.update((), other, builder.classes.with_room, RoundShares())
    assert 0 < builder.batch.count - before <= 4 * 6


def test_nothing_changes_when_nothing_happens() -> None:
    sched = fair(*slots(4), job("a", 3), job("b", 4), mode="ladder")
    sched.commit(sched.schedule(0.0))
    sched.schedule(1.0)
    rnd = sched.schedule(2.0)
    assert not rnd.deltas
    assert rnd.stats.changes == 0


@settings(max_examples=effort(15, 600), deadline=None)
@given(st.data())
def test_any_history_keeps_the_bounds(data: st.DataObject) -> None:
    """Random events and policies: never an exception, never a task beyond a hard share, and the flow is optimal."""
    sched = Scheduler(resources=("cpu", "mem"))
    fairness = st.one_of(
        st.none(),
        st.builds(
            Fairness,
            share=st.sampled_from(
                [MaxMin(), WeightedMaxMin(), DRF(), StaticQuotas({"j1": 2}, default=3), SequenceShare()]
            ),
            over=st.sampled_from(["job", "user"]),
            mode=st.sampled_from(["hard", "soft", "ladder"]),
            limits=st.sampled_from(
                [
                    {},
                    {"u0": Limits(guarantee=2, maximum=3), "j1": Limits(maximum=1)},
                    {"u1": Limits(lend=False, borrow=False)},
                ]
            ),
        ),
    )
    numbers = iter(range(1000))
    for step in range(data.draw(st.integers(3, 12))):
        what = data.draw(st.sampled_from(["machine", "job", "task", "done", "gone", "policy"]))
        n = next(numbers)
        if what == "machine":
            sched.apply(
                MachineAdded(
                    f"m{n}", {"cpu": data.draw(st.integers(1, 6))}, slots=data.draw(st.sampled_from([None, 2, 4]))
                )
            )
        elif what == "job":
            count, cpu = data.draw(st.integers(0, 6)), data.draw(st.integers(1, 3))
            user = data.draw(st.sampled_from([None, "u0", "u1"]))
            sched.apply(job(f"j{n}", count, user=user, priority=data.draw(st.integers(0, 1)), cpu=cpu))
        elif what == "task" and sched.cluster.jobs:
            owner = data.draw(st.sampled_from(list(sched.cluster.jobs)))
            sched.apply(TaskSubmitted(owner, Task(f"t{n}", {"cpu": 1})))
        elif what == "done":
            live = [task for task in sched.cluster.tasks if sched.cluster.task_state(task) == "running"]
            sched.apply(*(TaskCompleted(task) for task in live[::2]))
        elif what == "gone" and sched.cluster.machines:
            sched.apply(MachineRemoved(next(iter(sched.cluster.machines))))
        elif what == "policy":
            sched.policy = Policy(fairness=data.draw(fairness))
        at_start = {who: share.running for who, share in sched.schedule(float(step)).shares.items()}
        rnd = sched.schedule(float(step))
        sched.network.certify()
        assert running(rnd) == at_start
        policy = sched.policy.fairness
        if policy is not None and policy.mode == "hard":
            owned: dict[Hashable, int] = {}
            for record in sched.cluster.tasks.values():
                who = record.group.job.job.user if policy.over == "user" else record.group.job.job.id
                owned[who] = owned.get(who, 0) + (record.place is not None)
            assert all(share.running <= max(share.entitled, owned[who]) for who, share in rnd.shares.items())
        assert all(share.shortfall == max(0, share.entitled - share.running) for share in rnd.shares.values())
        assert sum(s.lent for s in rnd.shares.values()) <= sum(s.borrowed for s in rnd.shares.values()) or isinstance(
            policy and policy.share, SequenceShare
        )
        sched.commit(rnd)


def test_a_ladder_has_a_fixed_number_of_rungs() -> None:
    sched = fair(*slots(1, 500), job("a", 400), job("b", 400), mode="ladder")
    rnd = sched.schedule(0.0)
    assert abs(rnd.shares["a"].running - 250) <= 4, "a rung is four tasks high"
    assert rnd.stats.arcs < 2 * RUNGS + 20


def test_age_does_not_outweigh_a_share() -> None:
    sched = Scheduler(
        Policy(fairness=Fairness(mode="soft", slack=0.0), waiting=WaitCost(first=1.0), placement=(LoadCost("pack"),)),
        resources=("cpu",),
    )
    sched.apply(*slots(1, 4), job("old", 8))
    sched.schedule(0.0)
    sched.apply(job("new", 8))
    rnd = sched.schedule(1e9)
    assert abs(rnd.shares["old"].running - rnd.shares["new"].running) <= 2


@pytest.mark.parametrize("preemption", [PreemptionCost(), None])
def test_a_better_task_takes_the_place_of_a_worse_one_of_its_own(preemption: PreemptionCost | None) -> None:
    """At its share, elsewhere room: a better task of the user runs only if a worse one of the same user stops."""
    sched = Scheduler(Policy(fairness=Fairness(StaticQuotas({}, default=3), over="user"), preemption=preemption))
    sched.apply(*(MachineAdded(f"m{i}", {"cpu": 1}) for i in range(4)), job("bad", 3, user="u", priority=1))
    assert len(sched.commit(sched.schedule(0.0)).accepted) == 3
    sched.apply(job("good", 2, user="u", priority=0))
    rnd = sched.schedule(1.0)
    assert rnd.shares["u"].running == 3
    if preemption is None:
        assert not rnd.deltas
        assert codes(rnd) == {"SHARE"}
    else:
        assert sorted(rnd.placements) == ["good0", "good1"]
        assert len(rnd.preemptions) == 2
        assert {by.by for by in rnd.preemptions.values()} == {"good0", "good1"}
        assert not sched.commit(rnd).conflicts
    sched.network.certify()


def borrowed(*, reclaim: bool, priority: int = 0) -> Scheduler:
    """One user runs on all four slots, then another one comes."""
    sched = fair(*slots(4), job("x", 8, user="old"), over="user", reclaim=reclaim)
    sched.commit(sched.schedule(0.0))
    sched.apply(job("y", 3, user="new", priority=priority))
    return sched


def test_a_share_is_taken_back_from_who_runs_more() -> None:
    patient = borrowed(reclaim=False).schedule(1.0)
    assert not patient.deltas
    assert (patient.shares["new"].shortfall, patient.shares["old"].borrowed) == (2, 2)
    sched = borrowed(reclaim=True)
    rnd = sched.schedule(1.0)
    assert sorted(rnd.placements) == ["y0", "y1"]
    assert sorted(by.by for by in rnd.preemptions.values()) == ["y0", "y1"]
    assert running(rnd) == {"old": 2, "new": 2}
    assert not sched.commit(rnd).conflicts
    for now in (2.0, 3.0):
        assert not sched.schedule(now).deltas, "nothing is taken back and forth"


def test_no_share_is_taken_back_for_a_worse_task() -> None:
    assert not borrowed(reclaim=True, priority=1).schedule(1.0).deltas


def test_what_is_taken_back_makes_room_in_all_dimensions() -> None:
    """Three small tasks go for a large one on one machine, and none on the other."""
    sched = fair(
        MachineAdded("a", {"cpu": 4}), MachineAdded("b", {"cpu": 4}), job("x", 8, user="old"),
        over="user", share=StaticQuotas({"old": 5, "new": 2}), reclaim=True,
    )  # fmt: skip
    sched.policy = Policy(fairness=Fairness(over="user"))
    sched.commit(sched.schedule(0.0))
    sched.policy = Policy(fairness=Fairness(StaticQuotas({"old": 5, "new": 2}), over="user", reclaim=True))
    sched.apply(job("y", 2, user="new", cpu=3))
    rnd = sched.schedule(1.0)
    assert len(rnd.placements) == 1
    assert len(rnd.preemptions) == 3
    assert len({gone.machine for gone in rnd.preemptions.values()}) == 1
    assert running(rnd) == {"old": 5, "new": 1}, "a claimant that lends does not fall below its own share"
    assert rnd.shares["new"].shortfall == 1


def test_a_switch_to_shares_of_users_in_an_empty_cluster() -> None:
    sched = Scheduler(Policy(fairness=Fairness()), resources=("cpu",))
    sched.apply(MachineAdded("m", {"cpu": 1}), JobSubmitted("j", [Task("t", {"cpu": 1})]))
    sched.commit(sched.schedule(0.0))
    sched.apply(JobRemoved("j"))
    sched.policy = Policy(fairness=Fairness(over="user"))
    assert not sched.schedule(1.0).shares
    sched.apply(JobSubmitted("k", [Task("u", {"cpu": 1})], user="ann"))
    assert sched.schedule(2.0).shares["ann"].running == 1


def test_on_a_ladder_users_without_quota_use_room_that_others_leave() -> None:
    users = [UserAdded("a", 0), UserAdded("b", 0)]
    sched = fair(*slots(4), *users, job("a", 3, "a"), job("b", 3, "b"), over="user", mode="ladder")
    rnd = sched.schedule(0.0)
    assert sum(running(rnd).values()) == 4
    sched.commit(rnd)
    sched.apply(UserAdded("c", 2), job("c", 3, "c"), *slots(6)[4:])
    assert running(sched.schedule(1.0))["c"] == 2


@pytest.mark.parametrize("share", [SequenceShare(), SequenceShare(resolution=1_000_000), WeightedMaxMin(), DRF()])
def test_no_quota_is_so_large_or_small_that_it_stops_all_rounds(share: object) -> None:
    for quota in (1e-300, 1e12, 1e300):
        sched = fair(*slots(4), UserAdded("a", quota), job("a", 3, "a"), job("b", 3, "b"), over="user", share=share)
        assert sum(running(sched.schedule(0.0)).values()) == 4


@pytest.mark.parametrize("seed", [23, *range(100, 100 + effort(0, 60))])
def test_victims_that_come_back_count_in_the_share(seed: int) -> None:
    """The flow sends a victim back to where it ran, its share is used up by then, and it has to leave again."""
    sched = fs.Scheduler(POLICIES[4]())
    assert len(list(operations(seed, sched, 330, [POLICIES[4]]))) == 330
    sched.network.certify()
