"""The loop of a round when something ends it early: the cluster is as before, or known to be lost; and rounds without a trial."""

from __future__ import annotations

from random import Random

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


@pytest.mark.parametrize("seed", range(6))
def test_starts_that_need_no_trial_are_those_of_a_trial(seed: int) -> None:
    """A quota of a user without jobs limits nothing, but every round then tries its starts."""
    random, count, untried = Random(seed), 0, 0
    both = [fs.Scheduler(fs.Policy(quotas=quotas)) for quotas in (None, fs.Quotas({"nobody": {"cpu": 1}}))]
    machines = [
        fs.MachineAdded(i, {"cpu": 8, "mem": 16}, rack=i // 3, slots=random.choice([None, 3])) for i in range(9)
    ]
    for sched in both:
        sched.apply(*machines)
    for step in range(80):
        events: list[fs.Event] = []
        for _ in range(random.choice([0, 1, 1, 1, 2])):
            count += 1
            tasks = [fs.Task((count, i), {"cpu": random.choice([1, 1, 3])}) for i in range(random.choice([1, 1, 3]))]
            events.append(fs.JobSubmitted(count, tasks, time=step / 10))
        running = [task for task, record in both[0].cluster.tasks.items() if record.place]
        events += map(fs.TaskCompleted, random.sample(running, min(len(running), random.choice([0, 1, 1, 2]))))
        only, kept = random.random(), random.random() < 0.8
        rounds = []
        for sched in both:
            sched.apply(*events)
            before = world_of(sched)
            rounds.append(sched.schedule(step / 10))
            assert world_of(sched) == before
        one, other = rounds
        untried += bool(one.placements) and not one.waiting
        assert said(one) == said(other)
        assert (one.turns, one.devices, one.deltas) == (other.turns, other.devices, other.deltas)
        some = None if kept else [task for task in one.placements if random.random() < only]
        done = [sched.commit(rnd, some) for sched, rnd in zip(both, rounds, strict=True)]
        assert done[0] == done[1] and done[0].runs == done[1].runs
        assert world_of(both[0]) == world_of(both[1])
    assert untried > 20
