"""Copies, snapshots and questions: a scheduler restored anywhere in its life goes on as if nothing had happened."""

from __future__ import annotations

import pytest
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st
from lives import POLICIES, Life, flow_of, live_alike, said, world_of

import flowsched as fs

MAKERS = [lambda _, make=make: make() for make in POLICIES]


@settings(max_examples=effort(8, 600))
@given(seed=st.integers(0, 2**32), maker=st.sampled_from(POLICIES), before=st.integers(0, 30))
def test_a_restored_scheduler_makes_the_same_rounds(seed: int, maker, before: int) -> None:
    life, sched = Life(seed), fs.Scheduler(maker())
    live_alike(life, sched, (), before, MAKERS)
    snapshot = sched.snapshot()
    restored, copied = fs.Scheduler.restore(snapshot), sched.copy()
    assert restored.recovery.warm
    assert world_of(restored) == world_of(sched)
    assert flow_of(restored) == flow_of(sched)
    live_alike(life, sched, (restored, copied), 15, MAKERS)


@settings(max_examples=effort(12, 400))
@given(seed=st.integers(0, 2**32), maker=st.sampled_from(POLICIES), before=st.integers(0, 30))
def test_a_question_gets_the_later_round_and_leaves_no_trace(seed: int, maker, before: int) -> None:
    life, sched = Life(seed), fs.Scheduler(maker())
    live_alike(life, sched, (), before, MAKERS)
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


def test_a_snapshot_of_many_objects_is_the_one_of_what_it_restores() -> None:
    sched = fs.Scheduler(resources=("cpu",))
    sched.apply(*(fs.MachineAdded(("m", i), {"cpu": 8}, rack=("r", i // 7)) for i in range(300)))
    jobs = [[fs.Task((j, i), {"cpu": 1 + j % 3}) for i in range(1 + j % 9)] for j in range(900)]
    sched.apply(*(fs.JobSubmitted(("j", j), tasks, user=f"u{j % 5}") for j, tasks in enumerate(jobs)))
    sched.commit(sched.schedule(0.0))
    image = sched.snapshot()
    assert fs.Scheduler.restore(image).snapshot() == image
    assert sched.copy().snapshot() == image == sched.snapshot()
