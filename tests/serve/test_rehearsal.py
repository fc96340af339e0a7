"""The check before a request agrees with the cluster: same verdict, same event."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from effort import effort

import flowsched as fs
from flowsched.cluster import events as ev
from flowsched.exceptions import FlowschedError
from flowsched.serve.rehearsal import check_events

ODD: list[Any] = [None, -1, 2.5, "x", [], True, 10**30]


def event(rng: np.random.Generator, sched: fs.Scheduler) -> ev.Event:
    def one(*of: Any) -> Any:
        return of[int(rng.integers(len(of)))]

    machine, job, user = f"m{rng.integers(3)}", f"j{rng.integers(3)}", f"u{rng.integers(2)}"
    task = f"t{rng.integers(6)}"
    record = sched.cluster.tasks.get(task)
    run = one(None, 0, 1 if record is None else record.run, 99, *([one(*ODD)] if rng.random() < 0.1 else []))
    odd = one(*ODD) if rng.random() < 0.08 else None
    capacity = {"cpu": 3} if odd is None else {"cpu": odd}
    demand = {"cpu": 1} if odd is None else {"cpu": odd}

    def tasks(count: int) -> list[fs.Task]:
        return [fs.Task(f"t{rng.integers(6)}", demand, retries=one(None, 0, 1)) for _ in range(count)]

    return one(
        lambda: ev.MachineAdded(machine, capacity),
        lambda: ev.MachineUpdated(machine, {"cpu": int(rng.integers(3))}),
        lambda: ev.MachineDrained(machine),
        lambda: ev.MachineFailed(machine, time=one(None, 1.0, "x") if odd is not None else None),
        lambda: ev.MachineRemoved(machine),
        lambda: ev.JobSubmitted(job, tasks(int(rng.integers(3))), user=one(None, user), closed=bool(rng.random() < 0.4)),
        lambda: ev.JobSubmitted(job, tasks(1), priority=0 if odd is None else odd, closed=True),
        lambda: ev.TaskSubmitted(job, tasks(1)[0]),
        lambda: ev.TaskStarted(task, machine, run=run),
        lambda: ev.TaskCompleted(task, run),
        lambda: ev.TaskFailed(task, one(True, False) if odd is None else odd, run),
        lambda: ev.TaskRemoved(task),
        lambda: ev.JobRemoved(job),
        lambda: ev.UserAdded(user, 1.0 if odd is None else odd),
        lambda: ev.UserUpdated(user, 2.0 if odd is None else odd),
        lambda: ev.UserRemoved(user),
        lambda: ev.UsageSampled(task, {"cpu": 0.5} if odd is None else {"disk": 1}, progress=odd, run=run),
        lambda: ev.MachineSampled(machine, {"cpu": 0.5} if odd is None else {"cpu": odd}),
    )()  # fmt: skip


def takes(sched: fs.Scheduler, told: ev.Event) -> bool:
    try:
        sched.apply(told)
    except FlowschedError:
        return False
    return True


def request(rng: np.random.Generator, sched: fs.Scheduler) -> tuple[list[ev.Event], int | None]:
    """Events of which each can happen after those before, but for the last one, of which they often change that.

    With them comes the index of the one that cannot.
    """
    copy, events = sched.copy(), list[ev.Event]()
    drawn = [event(rng, sched) for _ in range(60)]
    alone = ev.TaskStarted, ev.MachineUpdated, ev.UserRemoved
    drawn = [one for one in drawn if not isinstance(one, alone) or getattr(one, "run", None) is not None]
    for one in drawn[:12]:
        if takes(copy, one):
            events.append(one)
    for last in drawn[12:]:
        now = takes(copy.copy(), last)
        if now != takes(sched.copy(), last):
            return [*events, last], None if now else len(events)
    return events, None


@pytest.mark.parametrize("seed", range(effort(3, 500)))
def test_a_request_is_refused_at_the_event_that_the_cluster_refuses(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sched = fs.Scheduler(resources=("cpu",))
    verdicts = set()
    for step in range(25):
        events, refused = request(rng, sched)
        told = check_events(sched.cluster, events)
        if len(events) > 1:
            assert (None if told is None else told[0]) == refused, (events, told)
            verdicts.add(refused)
        if refused is None and rng.random() < 0.7:
            sched.apply(*events)
        if rng.random() < 0.8:
            sched.commit(sched.schedule(float(step)))
    assert None in verdicts and len(verdicts) > 1


def test_what_needs_more_than_ids_comes_alone() -> None:
    sched = fs.Scheduler(resources=("cpu",))
    sched.apply(fs.MachineAdded("m", {"cpu": 1}))
    update = fs.MachineUpdated("m", {"cpu": 2})
    assert check_events(sched.cluster, [update]) is None
    found = check_events(sched.cluster, [fs.MachineDrained("m"), update])
    assert found is not None and found[0] == 1 and "only event" in str(found[1])


def test_the_end_of_a_run_that_stops_comes_alone() -> None:
    sched = fs.Scheduler(fs.Policy(preemption=fs.PreemptionCost(graceful=True)), resources=("cpu",))
    sched.apply(ev.MachineAdded("m", {"cpu": 1}), ev.JobSubmitted("j", [fs.Task("low", {"cpu": 1})], priority=1))
    sched.commit(sched.schedule(0.0))
    sched.apply(ev.JobSubmitted("k", [fs.Task("high", {"cpu": 1})]))
    sched.commit(sched.schedule(1.0))
    for end in (ev.TaskCompleted("low", 1), ev.TaskFailed("low"), ev.TaskStopped("low")):
        found = check_events(sched.cluster, [ev.MachineDrained("m"), end])
        assert found is not None and found[0] == 1 and "only event" in str(found[1])
        assert check_events(sched.cluster, [end]) is None
