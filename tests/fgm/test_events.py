"""Events that FGM passes on: refused ones leave no trace, and what happens at one time may come in one call."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from effort import effort
from fgm_worlds import NAMES, known, submit

import flowsched as fs
from flowsched.exceptions import FlowschedError
from flowsched.fgm import DemandEstimator, FineGrained, Stages
from flowsched.sim.baselines import Greedy
from flowsched.sim.orders import drf

FALLS, EVEN = Stages([6, 6], [[3.0, 1.0], [0.5, 1.0]]), Stages([4], [[1.0, 2.0]])


def world(scheduler: Any = None) -> FineGrained:
    """Two machines, on each a task of either kind since time 0; t4 and t5 wait."""
    scheduler = fs.Scheduler(resources=NAMES) if scheduler is None else scheduler
    fine = FineGrained(scheduler, estimator=known({"falls": FALLS, "even": EVEN}))
    tasks = [fs.Task(f"t{i}", {"cpu": 2, "mem": 2}, kind=("falls", "even")[i % 2]) for i in range(6)]
    fine.apply(*(fs.MachineAdded(m, {"cpu": 4, "mem": 8}) for m in "mn"), fs.JobSubmitted("j", tasks))
    fine.apply(*(fs.TaskStarted(f"t{i}", "mmnn"[i], time=0.0) for i in range(4)))
    fine.commit(fine.schedule(0.0), only=())
    return fine


def told(fine: FineGrained) -> tuple[Any, ...]:
    """All that is known of what runs and what becomes of it."""
    forecast, rows = fine.forecast, np.arange(fine.cluster.inventory.rows)
    fine.look(rows)
    lines = forecast.timelines
    return (
        {task: fine.cluster.placement(task) for task in fine.cluster.tasks},
        *(array[rows].tolist() for array in (lines.ends, lines.available, forecast.foreign)),
        *(array.tolist() for array in (forecast._time, forecast._stage, forecast._left, forecast._begun)),
        {row: list(members) for row, members in forecast._members.items()},
        {task.id: list(trace.times) for task, trace in fine.learner._traces.items()},
        {machine: fine.level(machine) for machine in fine.cluster.machines},
    )


NONE: Any = []
REFUSED: list[Any] = [
    fs.TaskCompleted("nobody", time=1.0), fs.TaskCompleted("t4", time=1.0), fs.TaskCompleted("t0", time=math.nan),
    fs.TaskCompleted("t0", time="x"), fs.TaskCompleted(NONE, time=1.0), fs.TaskFailed("t4"), fs.TaskRemoved("nobody"),  # type: ignore[arg-type]
    fs.TaskStarted("t0", "n", time=1e9), fs.TaskStarted("nobody", "n"), fs.TaskStarted("t4", NONE), fs.JobRemoved(NONE),
    fs.JobSubmitted("j", [fs.Task("t9", {"cpu": 1})]), fs.MachineAdded("m", {"cpu": 1}), fs.MachineFailed("nowhere"),
    fs.MachineFailed("m", time=math.inf), fs.MachineFailed(NONE), fs.MachineUpdated("m", {"cpu": -0.1, "mem": 0.1}),
    fs.UsageSampled("nobody", {"cpu": 1}, time=1.0), fs.UsageSampled(NONE, {"cpu": 1}), fs.UsageSampled("t0", {"disk": 1}),
    fs.UsageSampled("t0", {"cpu": math.nan}, time=1.0), fs.UsageSampled("t0", {"cpu": -1}), fs.UsageSampled("t0", NONE),
    fs.UsageSampled("t0", {"cpu": 1}, 2.0, time=1.0), fs.UsageSampled("t0", {"cpu": 1}, time=math.inf),
    fs.MachineSampled("nowhere", {"cpu": 1}), fs.MachineSampled("m", {"cpu": math.inf}), fs.MachineSampled(NONE, {}),
    fs.MachineSampled("m", {"cpu": 1}, time=math.nan), 3, None,
]  # fmt: skip


@pytest.mark.parametrize("wrong", REFUSED, ids=str)
def test_a_refused_event_does_nothing(wrong: Any) -> None:
    fine = world()
    before = told(fine)
    with pytest.raises(FlowschedError):
        fine.apply(wrong)
    assert told(fine) == before


@pytest.mark.parametrize("wrong", REFUSED, ids=str)
@pytest.mark.parametrize("greedy", [False, True])
def test_what_came_before_a_refused_event_stands_and_what_comes_after_did_not_happen(wrong: Any, greedy: bool) -> None:
    fine, other = (world(Greedy(drf, NAMES) if greedy else None) for _ in range(2))
    first, last = fs.TaskCompleted("t2", time=0.0), fs.TaskCompleted("t1", time=0.0)
    with pytest.raises(FlowschedError):
        fine.apply(first, wrong, last)
    other.apply(first)
    assert told(fine) == told(other)


def test_a_task_may_be_adopted_in_one_call_with_its_machine() -> None:
    fine = FineGrained(fs.Scheduler(resources=NAMES), estimator=known({"k": FALLS}))
    task = fs.Task("t", {"cpu": 3, "mem": 1}, kind="k")
    fine.apply(
        fs.MachineAdded("m", {"cpu": 4, "mem": 8}, time=100.0),
        fs.JobSubmitted("j", [task, fs.Task("next", {"cpu": 3, "mem": 1}, kind="k")], time=100.0),
        fs.TaskStarted("t", "m", time=100.0),
    )
    assert not fine.schedule(103.0).placements
    fine.look(np.zeros(1, np.int64))
    assert fine.forecast.timelines.ends[0, :2].tolist() == pytest.approx([106, 112])
    assert fine.schedule(106.0).placements == {"next": "m"}


@pytest.mark.parametrize(
    "then",
    [
        fs.MachineUpdated("m", {"cpu": 8, "mem": 8}),
        fs.MachineFailed("m"),
        fs.MachineRemoved("m"),
        fs.MachineDrained("m"),
    ],
)
def test_a_machine_may_come_and_change_in_one_call(then: fs.Event) -> None:
    fine = FineGrained(fs.Scheduler(resources=NAMES))
    fine.apply(fs.MachineAdded("m", {"cpu": 4, "mem": 8}), then)
    submitted = fs.JobSubmitted("j", [fs.Task("t", {"cpu": 6, "mem": 1})])
    fine.apply(submitted)
    assert bool(fine.schedule(0.0).placements) == isinstance(then, fs.MachineUpdated)


@pytest.mark.parametrize("now", [0.0, 1.7e9])
def test_events_without_a_time_are_of_the_next_round(now: float) -> None:
    """Also before the first one, whatever the clock."""
    fine = FineGrained(fs.Scheduler(resources=NAMES), estimator=DemandEstimator(NAMES, cold=1))
    submit(fine, 3)
    fine.apply(fs.TaskStarted("t0", "m"))
    fine.commit(fine.schedule(now))
    fine.schedule(now + 5)
    fine.apply(fs.UsageSampled("t0", {"cpu": 1.0, "mem": 1.0}), fs.TaskCompleted("t0"))
    fine.commit(fine.schedule(now + 10))
    profile = fine.estimator.profile("k")
    assert profile is not None or now  # since TaskStarted without a time says 0, not when
    if profile is not None:
        assert profile.seconds.sum() == pytest.approx(10)


@pytest.mark.parametrize("now", [0.0, 1.7e9])
def test_what_was_adopted_at_no_stated_time_starts_with_the_first_round(now: float) -> None:
    fine = FineGrained(fs.Scheduler(resources=NAMES), estimator=known({"k": FALLS}))
    submit(fine, 2, cpu=3.0)
    fine.apply(fs.TaskStarted("t0", "m"))
    assert not fine.schedule(now).placements
    assert not fine.schedule(now + 5).placements
    fine.look(np.zeros(1, np.int64))
    assert fine.forecast.timelines.ends[0, :2].tolist() == pytest.approx([now + 6, now + 12])


# -- samples ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("time", [-5.0, 2.0, 50.0])
def test_samples_may_be_of_any_time(time: float) -> None:
    """Of a clock that is not quite that of the events: before the task began, late, after it has ended."""
    fine = FineGrained(fs.Scheduler(resources=NAMES), estimator=DemandEstimator(NAMES, cold=1))
    submit(fine, 1)
    fine.commit(fine.schedule(0.0))
    fine.apply(fs.UsageSampled("t0", {"cpu": 1.0, "mem": 1.0}, 0.3, time=3.0))
    fine.apply(fs.UsageSampled("t0", {"cpu": 1.0, "mem": 1.0}, 0.5, time=time))
    fine.apply(fs.TaskCompleted("t0", time=10.0))
    fine.learn()
    profile = fine.estimator.profile("k")
    assert profile is not None
    assert profile.seconds.sum() == pytest.approx(10)


def test_a_sample_that_comes_late_does_not_displace_a_newer_one() -> None:
    fine = FineGrained(fs.Scheduler(resources=NAMES), estimator=DemandEstimator(NAMES, points=2, cold=1))
    submit(fine, 1)
    fine.commit(fine.schedule(0.0))
    for second, cpu in ((2.0, 1.0), (8.0, 2.0), (1.0, 9.0), (8.0, 3.0)):
        fine.apply(fs.UsageSampled("t0", {"cpu": cpu, "mem": 1.0}, time=second))
        fine.apply(fs.MachineSampled("m", {"cpu": cpu, "mem": 1.0}, time=second))
    assert fine.forecast.foreign[0].tolist() == [0, 0]
    fine.apply(fs.TaskCompleted("t0", time=10.0))
    fine.learn()
    profile = fine.estimator.profile("k")
    assert profile is not None
    assert profile.demand[:, 0].tolist() == [1.0, 3.0]


def test_a_task_of_which_nothing_is_known_may_tell_that_it_is_done() -> None:
    fine = FineGrained(fs.Scheduler(resources=NAMES))
    submit(fine, 1)
    fine.commit(fine.schedule(0.0))
    fine.apply(fs.UsageSampled("t0", {"cpu": 1.0, "mem": 1.0}, 1.0, time=3.0))
    assert fine.cluster.placement("t0") == "m"


def test_a_machine_that_has_failed_is_not_measured() -> None:
    fine = world()
    fine.apply(fs.MachineFailed("m", time=1.0), fs.MachineSampled("m", {"cpu": 4.0, "mem": 8.0}, time=2.0))
    fine.apply(fs.MachineAdded("m", {"cpu": 4, "mem": 8}, time=3.0))
    assert fine.forecast.foreign[0].tolist() == [0, 0]
    assert fine.schedule(3.0).placements


def test_a_policy_may_be_replaced_through_the_adapter() -> None:
    scheduler = fs.Scheduler(resources=NAMES)
    fine = FineGrained(scheduler)
    policy = fs.Policy(preemption=None)
    fine.policy = policy
    assert scheduler.policy is fine.policy is policy


@pytest.mark.parametrize("seed", range(effort(3, 100)))
def test_starts_that_were_refused_are_in_the_journal(seed: int, tmp_path: Path) -> None:
    """The adapter remembers what it refused; one that is recovered must, too, or it decides otherwise."""
    rng = random.Random(seed)
    estimator = known({"falls": FALLS, "even": EVEN, "rises": Stages([3, 9], [[0.4, 1.0], [1.2, 3.0]])})
    fine = FineGrained(fs.Scheduler(resources=NAMES), estimator=estimator, journal=tmp_path / "journal")
    fine.apply(*(fs.MachineAdded(f"m{i}", {"cpu": 4, "mem": 8}, time=0.0) for i in range(3)))
    now, refused = 0.0, 0
    for step in range(60):
        now += rng.choice([0, 0.3, 1, 2])
        tasks = list(fine.cluster.tasks)
        running = [task for task in tasks if fine.cluster.placement(task)]
        kind, late = rng.choice(["falls", "even", "rises"]), now + rng.choice([0, 0, 5, 1e6])
        new = [fs.Task(f"{step}.{i}", {"cpu": 2, "mem": 3}, kind=kind) for i in range(rng.randint(1, 4))]
        events: list[fs.Event] = [
            fs.JobSubmitted(step, new, time=now),
            fs.TaskCompleted(rng.choice(running or ["nobody"]), time=now),
            fs.TaskStarted(rng.choice(tasks or ["nobody"]), f"m{rng.randrange(3)}", time=late),
        ]
        try:
            fine.apply(rng.choices(events, [4, 2, 3])[0], *rng.choices(events[1:], k=rng.randrange(2)))
        except FlowschedError:
            refused += 1
        if rng.random() < 0.5:
            fine.commit(fine.schedule(now))
    assert refused > 5
    fine.schedule(now)
    assert fine.journal is not None
    fine.journal.close()
    again = FineGrained.restore(tmp_path / "journal")
    assert again.recovery is not None
    assert not again.recovery.differences


LATE = [
    fs.TaskCompleted("t0", 9), fs.TaskFailed("t1", run=9), fs.TaskStarted("t4", "m", run=9), fs.TaskStarted("gone", "m", run=9),
    fs.UsageSampled("t0", {"cpu": 3}, run=9), fs.UsageSampled("gone", {"cpu": 3}, run=9), fs.TaskCompleted("t4", 0),
]  # fmt: skip


@pytest.mark.parametrize("time", [None, 5.0])
def test_stale_answers_are_not_learnt_from(time: float | None) -> None:
    fine, beside = world(), world()
    assert fine.apply(*(replace(event, time=time) for event in LATE)) == ()
    assert fine.cluster.stale_events == len(LATE)
    assert told(fine) == told(beside) and fine.now == beside.now


@pytest.mark.parametrize("time", [None, 5.0])
def test_what_becomes_stale_at_the_same_time_is_stale(time: float | None) -> None:
    """Its run ends in the same call, so that only the events before it tell."""
    fine, beside = world(), world()
    ends = [fs.TaskCompleted("t0", 1, time=time), fs.TaskFailed("t1", run=2, time=time)]
    late = [
        fs.TaskStarted("t0", "m", run=1, time=time),
        fs.TaskCompleted("t1", 2, time=time),
        fs.UsageSampled("t1", {"cpu": 1}, run=2, time=time),
    ]
    assert (
        fine.apply(*ends, *late)
        == beside.apply(*ends)
        == (("t0", 1, "m", "TaskCompleted"), ("t1", 2, "m", "TaskFailed"))
    )
    assert fine.cluster.stale_events == 3 and told(fine) == told(beside)
