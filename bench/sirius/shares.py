"""The effect of the bounds on fairness: how far jobs are below their max-min share, with bounds [N - A, N - A] and without.

Jobs of 12 to 72 one-core tasks arrive at 120 % of the capacity of 20 machines of 24 cores.  No running task is stopped, so a
share can be reached only as fast as tasks end.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from bench.rows import Outcome, Row
from bench.sirius.fairness import BATCH, jobs_of_load
from bench.sirius.model import CORES, NAME
from flowsched.cluster.events import JobSubmitted, MachineAdded, TaskCompleted
from flowsched.cluster.model import Task
from flowsched.policy import Fairness, MaxMin, Policy, WaitCost
from flowsched.scheduler import Scheduler

__all__ = ["max_min", "measure_shares"]

_MACHINES = 20


def max_min(wanted: NDArray[np.float64], capacity: float) -> NDArray[np.float64]:
    """Return the max-min shares of `capacity`: none is larger than wanted, and the least shares are as large as can be."""
    share = np.zeros(len(wanted))
    open_ = wanted > 0
    while open_.any() and capacity > 1e-9:
        part = min(capacity / open_.sum(), float((wanted - share)[open_].min()))
        share[open_] += part
        capacity -= part * open_.sum()
        open_ = share < wanted - 1e-9
    return share


def _distance(bounds: bool, count: int, seed: int) -> float | None:
    """Return the mean of the worst job's distance below its share, in percent, over the seconds in which tasks wait; None if none do."""
    jobs = jobs_of_load(BATCH, count, 1.2, seed, 0.0)
    policy = Policy(fairness=Fairness(MaxMin()) if bounds else None, waiting=WaitCost(reserve=None), preemption=None)
    scheduler = Scheduler(policy, resources=("cpu",))
    scheduler.apply(*(MachineAdded(m, {"cpu": CORES}, f"r{m // 10}", slots=CORES) for m in range(_MACHINES)))
    ending: list[tuple[float, tuple[int, int]]] = []
    left = [len(job.seconds) for job in jobs]
    running: Counter[int] = Counter()
    worst, arrived, now = [], 0, 0.0
    while arrived < len(jobs) or ending:
        events: list[TaskCompleted | JobSubmitted] = []
        while ending and ending[0][0] <= now:
            _, task = heapq.heappop(ending)
            running[task[0]] -= 1
            left[task[0]] -= 1
            events.append(TaskCompleted(task, time=now))
        while arrived < len(jobs) and jobs[arrived].time <= now:
            tasks = [Task((arrived, i), {"cpu": 1}) for i in range(left[arrived])]
            events.append(JobSubmitted(arrived, tasks, time=now, closed=True))
            arrived += 1
        scheduler.apply(*events)
        round_ = scheduler.schedule(now)
        scheduler.commit(round_)
        task_id: Hashable
        for task_id in round_.placements:
            assert isinstance(task_id, tuple)
            j, i = task_id
            running[j] += 1
            heapq.heappush(ending, (now + float(jobs[j].seconds[i]), (j, i)))
        wanted = np.array(left[:arrived], float)
        if wanted.sum() > _MACHINES * CORES:
            share = max_min(wanted, _MACHINES * CORES)
            has = np.array([running[j] for j in range(arrived)], float)
            of = share >= 1
            worst.append(float(np.maximum(1 - has[of] / share[of], 0.0).max()))
        now += 1.0
    return 100 * float(np.mean(worst)) if worst else None


def measure_shares(outcome: Outcome, seed: int, count: int = 40) -> None:
    """Add a row of the mean distance with bounds and without."""
    with_, without = (_distance(bounds, count, seed) for bounds in (True, False))
    if with_ is None or without is None:
        outcome.notes.append(f"7: no task waits in the load of {count} jobs: the row of shares is left out")
        return
    outcome.rows.append(Row(
        NAME, "7: shares, batch load of 120%", "largest distance from the max-min share", with_, without, without / max(with_, 1e-9), unit="%",
        note="the job that is furthest below its share, mean over the seconds in which tasks wait; compared: Sirius without bounds", better="less",
    ))  # fmt: skip
