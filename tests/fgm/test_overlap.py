"""Stages overlap in the flow's form as in the greedy one: a task starts as soon as Algorithm 2 lets it."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from effort import effort
from fgm_worlds import NAMES, known
from hypothesis import given, settings
from hypothesis import strategies as st

import flowsched as fs
from flowsched.cluster.model import MICRO
from flowsched.fgm import DemandEstimator, FineGrained, Level, Stages, Timelines
from flowsched.fgm.timeline import Classes
from flowsched.sim.baselines import Greedy
from flowsched.sim.orders import fifo

IDLE_THEN_BUSY = Stages([20, 10], [[0.0, 1.0], [1.0, 1.0]])


# -- the kernel ----------------------------------------------------------------------------------------------------


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Timelines, Classes]:
    """A machine of whole amounts and times, and a class of one or more stages."""
    lines = Timelines(2, slots=8)
    lines.grow(1)
    count = draw(st.integers(1, 7))
    lines.ends[0, : count - 1] = np.cumsum(draw(st.lists(st.integers(1, 5), min_size=count - 1, max_size=count - 1)))
    lines.reach[0, :count] = np.array(
        draw(st.lists(st.tuples(*2 * [st.integers(-1, 4)]), min_size=count, max_size=count))
    )
    lines.reach *= MICRO
    parts = draw(st.lists(st.tuples(st.integers(0, 5), *2 * [st.integers(0, 3)]), min_size=1, max_size=4))
    return lines, Classes([Stages([s for s, *_ in parts], [want for _, *want in parts])], 2)


@settings(max_examples=effort(15, 20_000))
@given(pairs(), st.integers(0, 9))
def test_an_opening_is_the_first_time_at_which_more_fit(pair: tuple[Timelines, Classes], now: int) -> None:
    """All times are whole, so that `fits` at whole times tells."""
    (lines, one), row = pair, np.zeros(1, np.int64)
    count, _ = lines.fits(one, row, float(now))
    due = np.full(len(lines.ends), math.inf)
    lines.openings(one, row, float(now), count, np.ones((1, 1), np.bool_), due)
    first = next((t for t in range(now + 1, 60) if lines.fits(one, row, float(t))[0][0, 0] > count[0, 0]), math.inf)
    assert due[0] == first


# -- the network's form against the greedy one -----------------------------------------------------------------------


@dataclass
class World:
    """Machines, kinds of tasks and jobs, drawn; tasks run as long as predicted, or not."""

    seed: int
    overdue: bool
    kinds: dict[str, Stages] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = rng = random.Random(self.seed)
        for k in range(rng.randint(1, 4)):
            parts = [rng.randint(1, 6) for _ in range(rng.randint(1, 3))]
            wants = [(rng.choice([0, 0, 0.5, 1, 1.5, 2]), rng.choice([0.5, 1, 2])) for _ in parts]
            self.kinds[f"k{k}"] = Stages(parts, wants)
        amounts = [{"cpu": rng.choice([1, 2, 4]), "mem": rng.choice([2, 4, 8])} for _ in range(rng.randint(1, 4))]
        self.machines = [fs.MachineAdded(f"m{i}", has, time=0.0) for i, has in enumerate(amounts)]
        self.jobs = [self._job(j) for j in range(rng.randint(1, 6))]
        self.seconds: dict[str, float] = {}
        for _, job in self.jobs:
            for task in job.tasks:
                length = rng.randint(2, 12) if task.kind is None else self.kinds[str(task.kind)].duration
                self.seconds[str(task.id)] = length * (rng.choice([1, 1, 0.8, 1.3]) if self.overdue else 1)
        self.options: dict[str, Any] = {
            "highest": rng.choice([Level.COMPRESSED, Level.COMPRESSED, Level.FINE, Level.COARSE]),
            "contention": rng.choice([0, 0, 1.0]),
            "compressible": {"cpu": 0.1},
            "threshold": 0.0,
            "min_length": 0.0,
        }

    def _job(self, j: int) -> tuple[float, fs.JobSubmitted]:
        rng, kind = self.rng, self.rng.choice([*self.kinds, *self.kinds, None])
        peak = [1.0, 1.0] if kind is None else (self.kinds[kind].peak + 0.1).tolist()
        count, when = rng.randint(1, 4), float(rng.choice([0, 0, 0, rng.randint(0, 15)]))
        tasks = [fs.Task(f"j{j}.{i}", dict(zip(NAMES, peak, strict=True)), kind=kind) for i in range(count)]
        gang = count if count > 1 and rng.random() < 0.15 else None
        slack = rng.choice([1.05, 1.5, 3]) if kind is not None and rng.random() < 0.2 else None
        deadline = None if slack is None or kind is None else when + slack * self.kinds[kind].duration
        return when, fs.JobSubmitted(f"j{j}", tasks, gang=gang, deadline=deadline)

    def fine(self, inner: fs.Scheduler | Greedy) -> FineGrained:
        estimator = DemandEstimator(NAMES, points=36, cold=1)
        for kind, stages in self.kinds.items():
            each = 36 // len(stages)
            estimator.observe(kind, np.repeat(stages.demand, each, axis=0), np.repeat(stages.seconds / each, each))
        estimator.update()
        made = FineGrained(inner, estimator=estimator, **self.options)
        made.apply(*self.machines)
        return made


def live(world: World) -> int:
    """Let both forms decide at many times of the life of a world, which follows the network's; return its starts."""
    flow = world.fine(fs.Scheduler(fs.Policy(preemption=None), NAMES))
    greedy = world.fine(Greedy(fifo, NAMES))
    rng, step = world.rng, world.rng.choice([0.25, 0.5, 1.0])
    to_come, running, starts, again = world.jobs, dict[str, float](), 0, -math.inf
    for i in range(int(45 / step)):
        now = i * step + (rng.random() * step * 0.9 if rng.random() < 0.2 else 0.0)
        events: list[fs.Event] = [replace(job, time=now) for when, job in to_come if when <= now]
        to_come = [(when, job) for when, job in to_come if when > now]
        for task in [task for task, since in running.items() if since + world.seconds[task] <= now + 1e-9]:
            del running[task]
            events.append(fs.TaskCompleted(task, time=now))
        for one in (flow, greedy):
            one.apply(*events)
        could, decided = greedy.schedule(now), flow.schedule(now)
        assert decided.placements or not could.placements, (now, could.placements)
        assert not decided.placements or events or now >= again - 1e-6, (now, again)
        again = decided.again_at
        started = [delta for delta in flow.commit(decided).accepted if isinstance(delta, fs.Place)]
        greedy.apply(*(fs.TaskStarted(delta.task, delta.machine, (), time=now) for delta in started))
        running.update((str(delta.task), now) for delta in started)
        starts += len(started)
        if not (to_come or running or flow.cluster.waiting):
            break
    return starts


@pytest.mark.parametrize("overdue", [False, True])
def test_the_flow_starts_a_task_whenever_the_greedy_form_could(overdue: bool) -> None:
    """And no round before `Round.again_at` starts one where nothing has happened."""
    draws = effort(15, 2000)
    assert sum(live(World(seed, overdue)) for seed in range(draws)) > 3 * draws


# -- as often as needed -----------------------------------------------------------------------------------------------


def test_idle_stages_run_under_busy_ones_and_rounds_are_few() -> None:
    """160 tasks on 4 machines of 4 threads; the scheduler is asked after events and at `Round.again_at`.

    10 s of computing for each of 160 on 16 threads, the first after 20 s, are 120 s.
    """
    fine = FineGrained(fs.Scheduler(fs.Policy(preemption=None), NAMES), estimator=known({"k": IDLE_THEN_BUSY}))
    machines = [fs.MachineAdded(i, {"cpu": 4, "mem": 1000}, time=0.0) for i in range(4)]
    tasks = [fs.Task(i, {"cpu": 1, "mem": 1}, kind="k") for i in range(160)]
    fine.apply(*machines, fs.JobSubmitted("j", tasks, time=0.0))
    now, rounds, ends = 0.0, 0, dict[object, float]()
    while True:
        decided = fine.schedule(now)
        rounds += 1
        fine.commit(decided)
        ends.update((delta.task, now + 30.0) for delta in decided.deltas)
        left = [end for end in ends.values() if end > now]
        if not left and not fine.cluster.waiting:
            break
        now = min([*left, max(decided.again_at, math.nextafter(now, math.inf))])
        fine.apply(*(fs.TaskCompleted(task, time=now) for task, end in ends.items() if end == now))
    assert now == pytest.approx(120, abs=1e-6)
    assert rounds == 22  # two where a group of 16 starts, one where a group ends only


def test_a_machine_that_is_idle_again_is_looked_at() -> None:
    """Algorithm 1, line 1, keeps a machine closed that its samples show to be busy, until they show it idle."""
    fine = FineGrained(fs.Scheduler(resources=NAMES), idle=0.5)
    fine.apply(fs.MachineAdded("m", {"cpu": 4, "mem": 8}), fs.JobSubmitted("j", [fs.Task("a", {"cpu": 1, "mem": 1})]))
    fine.commit(fine.schedule(0.0))
    for now, used, count in ((1.0, 3.0, 0), (2.0, 1.0, 1)):
        fine.apply(fs.UsageSampled("a", {"cpu": used, "mem": 1}, time=now))
        fine.apply(fs.MachineSampled("m", {"cpu": used, "mem": 1}, time=now))
        if now == 1.0:
            fine.apply(fs.JobSubmitted("k", [fs.Task("b", {"cpu": 1, "mem": 1})], time=now))
        assert len(fine.schedule(now).placements) == count
