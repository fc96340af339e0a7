"""The loop of a round when something ends it early: the cluster is as before, or known to be lost."""

from __future__ import annotations

import pytest
from lives import said, world_of

import flowsched as fs
from flowsched.cluster.records import TaskRecord
from flowsched.rounds import loop
from flowsched.rounds.admission import AdmissionCheck


def small() -> fs.Scheduler:
    sched = fs.Scheduler(fs.Policy(preemption=fs.PreemptionCost(1.0)))
    sched.apply(fs.MachineAdded("m", {"cpu": 2}), fs.JobSubmitted("a", [fs.Task("a", {"cpu": 2})], priority=5))
    sched.commit(sched.schedule(0.0))
    sched.apply(fs.JobSubmitted("b", [fs.Task("b", {"cpu": 2})], priority=1, time=0.5))
    return sched


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("at", ["interruptible", "exchange", "stops_of", "ShareReport", "frozen"])
def test_a_round_that_fails_leaves_the_cluster_as_it_was(
    monkeypatch: pytest.MonkeyPatch, at: str, error: type[BaseException]
) -> None:
    sched, other = small(), small()
    for one in (sched, other):
        one.policy = fs.Policy(preemption=fs.PreemptionCost(1.0), fairness=fs.Fairness(mode="ladder"))
    before = world_of(sched)
    real = getattr(loop, at)

    def fails(*args: object, **given: object) -> None:
        real(*args, **given)
        raise error(at)

    with monkeypatch.context() as patch, pytest.raises(error, match=at):
        patch.setattr(loop, at, fails)
        sched.schedule(1.0)
    assert world_of(sched) == before
    again, expected = sched.schedule(1.0), other.schedule(1.0)
    assert said(again)[:-1] == said(expected)[:-1], "all but the counts of a network that was built again"
    assert list(again.preemptions) == ["a"]


def test_what_was_tried_and_not_undone_makes_the_cluster_unusable(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception in the middle of the undoing: the cluster says that it is lost, instead of going on from a dream."""
    sched, real = small(), loop.stops_of

    def spoiled(check: AdmissionCheck, tasks: list[TaskRecord]) -> object:
        found = real(check, tasks)
        check.transaction.before[next(iter(check.transaction.before))] = "no state"
        return found

    with monkeypatch.context() as patch, pytest.raises(TypeError):
        patch.setattr(loop, "stops_of", spoiled)
        sched.schedule(1.0)
    with pytest.raises(fs.TornStateError):
        sched.schedule(1.0)
