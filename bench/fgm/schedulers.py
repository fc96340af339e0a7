"""The schedulers of the comparison, and the measurements of a run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.fgm.workload import USERS, Case, make
from flowsched.cluster.events import Event
from flowsched.fgm import Adjustment, DemandEstimator, FineGrained, Level, StageShare
from flowsched.fgm.protocols import Plans
from flowsched.policy import Fairness, LoadCost, MaxMin, Policy
from flowsched.rounds.values import Commit, Migrate, Place, Round
from flowsched.scheduler import Scheduler
from flowsched.sim.baselines import Greedy
from flowsched.sim.engine import Simulation
from flowsched.sim.orders import Shares, capacity, drf, fair, fifo

__all__ = ["ABLATIONS", "BASELINES", "FLOW", "GREEDY", "Run", "run_case"]

BASELINES = ("FIFO", "Capacity", "Fair", "DRF")
BY_MEMORY = ("FIFO", "Capacity", "Fair")
"""Baselines that look at memory alone."""

FLOW, GREEDY = "FGM flow", "FGM greedy"

ABLATIONS: Mapping[str, Level] = {
    "without compression": Level.FINE,
    "without compression and stages": Level.COARSE,
    "without compression, stages and estimates": Level.REQUEST,
}
"""The finest level of matching without each part of FGM."""

Floats = NDArray[np.float64]

_QUEUES: Mapping[Hashable, Hashable] = {f"u{i}": f"q{i % 3}" for i in range(USERS)}
_PARTS: Mapping[Hashable, float] = {"q0": 0.5, "q1": 0.3, "q2": 0.2}


def _fine(scheduler: Plans, resources: tuple[str, ...], contention: float, highest: Level) -> FineGrained:
    estimator = DemandEstimator(resources, safety={"mem": 2.0})
    return FineGrained(
        scheduler,
        compressible={name: 0.1 for name in resources if name != "mem"},
        contention=contention,
        estimator=estimator,
        adjustment=Adjustment(),
        highest=highest,
    )


def _flow(resources: tuple[str, ...], contention: float, highest: Level) -> FineGrained:
    scheduler = Scheduler(Policy(placement=(LoadCost("spread"),), preemption=None), resources)
    fine = _fine(scheduler, resources, contention, highest)
    fairness = Fairness(StageShare(fine), over="user", within=MaxMin())
    scheduler.policy = replace(scheduler.policy, fairness=fairness)
    return fine


_GREEDY: Mapping[str, Callable[[tuple[str, ...]], Greedy]] = {
    "FIFO": lambda resources: Greedy(fifo, resources),
    "Capacity": lambda resources: Greedy(capacity(_QUEUES, _PARTS), resources),
    "Fair": lambda resources: Greedy(fair, resources),
    "DRF": lambda resources: Greedy(drf, resources),
}


def _made(scheduler: str, resources: tuple[str, ...], contention: float) -> Any:
    """Return a scheduler by its name: a baseline, or a form of FGM, perhaps with the name of an ablation."""
    if scheduler in BASELINES:
        return _GREEDY[scheduler](resources)
    form, _, less = scheduler.partition(" ")[2].partition(", ")
    highest = ABLATIONS.get(less, Level.COMPRESSED)
    if form == "flow":
        return _flow(resources, contention, highest)
    return _fine(Greedy(drf, resources), resources, contention, highest)


class _Watched:
    """A scheduler that measures its cost, the last starts of tasks, and Jain's index of the users' dominant shares after every commit."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.started: dict[Hashable, float] = {}
        self.spent: list[float] = []
        self._fairness: list[tuple[float, float]] = []

    def apply(self, *events: Event) -> None:
        self.scheduler.apply(*events)

    def schedule(self, now: float, time_limit: float | None = None) -> Round:
        begin = time.thread_time()
        decided: Round = self.scheduler.schedule(now, time_limit)
        self.spent.append(time.thread_time() - begin)
        return decided

    def commit(self, round: Round) -> Commit:
        done: Commit = self.scheduler.commit(round)
        self.started.update((d.task, round.now) for d in done.accepted if isinstance(d, Place | Migrate))
        cluster = self.scheduler.cluster
        # Only users with unmet demand can be treated unfairly.
        users = dict.fromkeys(group.job.job.user for members in cluster.waiting.values() for group in members)
        if len(users) > 1:
            shares = Shares(cluster)
            parts = np.array([shares.of_user(user).max() for user in users])
            self._fairness.append(
                (round.now, float(parts.sum() ** 2 / (len(parts) * (parts**2).sum())) if parts.any() else 1.0)
            )
        else:
            self._fairness.append((round.now, math.nan))
        return done

    def fairness(self) -> float:
        """Return the mean of Jain's index over the time in which several users waited."""
        times, values = np.array(self._fairness).T
        held = np.diff(times, append=times[-1])
        known = np.isfinite(values)
        return float(np.average(values[known], weights=held[known])) if held[known].any() else math.nan


@dataclass(frozen=True)
class Run:
    """Result of one case under one scheduler; times in seconds.

    Attributes
    ----------
    jobs : ndarray, shape (jobs,)
        From submission to completion.
    small, large, every : float
        Mean run time of the tasks of jobs of at most 20 tasks, of the others, and of all.
    makespan, fairness, response, decision : float
        The whole; Jain's index; mean from submission to start of a task; mean CPU time of a round.
    failures : int
        Tasks that failed because memory was short.
    """

    jobs: Floats
    small: float
    large: float
    every: float
    makespan: float
    fairness: float
    response: float
    decision: float
    failures: int
    wrong: tuple[str, ...]


def run_case(case: Case, scheduler: str, seed: int) -> Run:
    """Simulate a case under a scheduler: of `BASELINES`, or a form of FGM, optionally with ", " and one of `ABLATIONS`."""
    workload, execution = make(case, seed, by_memory=scheduler in BY_MEMORY and not case.both)
    if scheduler in BASELINES:
        execution = replace(execution, sample=None)  # they would not listen
    watched = _Watched(_made(scheduler, case.resources, case.contention))
    metrics = Simulation(watched, workload, interval=1.0, on_events=False, execution=execution).run()
    tasks = [task.id for arrival in workload.arrivals for task in arrival.job.tasks]
    wrong = []
    if metrics.tasks["completed"] != len(tasks):
        wrong.append(f"{case.name}: {scheduler}: {len(tasks) - metrics.tasks['completed']} tasks are not done")
    ends = dict(zip(tasks, metrics.ends.tolist(), strict=True))
    jobs: list[float] = []
    small: list[float] = []
    large: list[float] = []
    for arrival in workload.arrivals:
        done = [ends[task.id] for task in arrival.job.tasks]
        jobs.append(max(done) - arrival.time)
        spans = [ends[task.id] - watched.started[task.id] for task in arrival.job.tasks]
        (small if len(spans) <= 20 else large).extend(spans)
    return Run(
        jobs=np.array(jobs),
        small=float(np.mean(small)) if small else math.nan,
        large=float(np.mean(large)) if large else math.nan,
        every=float(np.mean([*small, *large])),
        makespan=max(ends.values()) - workload.arrivals[0].time,
        fairness=watched.fairness(),
        response=metrics.wait().mean,
        decision=float(np.mean(watched.spent)),
        failures=int(metrics.counts["task_failures"]),
        wrong=tuple(wrong),
    )
