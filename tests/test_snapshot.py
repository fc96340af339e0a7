"""Copies, snapshots and questions: a scheduler restored anywhere in its life goes on as if nothing had happened."""

from __future__ import annotations

import pytest
from effort import FUZZ
from hypothesis import given, settings
from hypothesis import strategies as st
from lives import POLICIES, Life, flow_of, said, world_of

import flowsched as fs


def live(life: Life, sched: fs.Scheduler, others: tuple[fs.Scheduler, ...], steps: int, makers: list) -> None:
    """Let all live the same life, and compare all that they say."""
    for _ in range(steps):
        events = life.events(sched)
        for one in (sched, *others):
            one.apply(*events)
        if life.random.random() < 0.05:
            maker = life.random.choice(makers)
            for one in (sched, *others):
                one.policy = maker()
        if life.random.random() < 0.6:
            now = life.later()
            rounds = [one.schedule(now) for one in (sched, *others)]
            for rnd in rounds[1:]:
                assert said(rnd) == said(rounds[0])
            only, lost = life.only(rounds[0]), life.events(sched) if life.random.random() < 0.1 else []
            for one, rnd in zip((sched, *others), rounds, strict=True):
                one.apply(*lost)
                one.commit(rnd, only)
    for one in others:
        assert flow_of(one) == flow_of(sched)
        assert world_of(one) == world_of(sched)


@settings(max_examples=600 if FUZZ else 8)
@given(seed=st.integers(0, 2**32), maker=st.sampled_from(POLICIES), before=st.integers(0, 30))
def test_a_restored_scheduler_makes_the_same_rounds(seed: int, maker, before: int) -> None:
    life, sched = Life(seed), fs.Scheduler(maker())
    live(life, sched, (), before, POLICIES)
    snapshot = sched.snapshot()
    restored, copied = fs.Scheduler.restore(snapshot), sched.copy()
    assert world_of(restored) == world_of(sched)
    assert flow_of(restored) == flow_of(sched)
    live(life, sched, (restored, copied), 15, POLICIES)


@settings(max_examples=400 if FUZZ else 12)
@given(seed=st.integers(0, 2**32), maker=st.sampled_from(POLICIES), before=st.integers(0, 30))
def test_a_question_gets_the_later_round_and_leaves_no_trace(seed: int, maker, before: int) -> None:
    life, sched = Life(seed), fs.Scheduler(maker())
    live(life, sched, (), before, POLICIES)
    untouched, image = sched.copy(), sched.snapshot()
    events, now = life.events(sched), life.later()
    answer = sched.what_if(*events, now=now)
    assert sched.snapshot() == image
    sched.apply(*events)
    rnd = sched.schedule(now)
    assert said(answer) == said(rnd)
    with pytest.raises(fs.InputError, match="aborted"):
        sched.commit(answer)
    untouched.apply(*events)
    assert said(untouched.schedule(now)) == said(rnd)
    assert flow_of(untouched) == flow_of(sched)
