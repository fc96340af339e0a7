"""How long matching takes, and what FGM adds to a round of a large cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np

import flowsched as fs
from flowsched.cluster.events import Event
from flowsched.experiments.rows import Outcome, Row
from flowsched.fgm import DemandEstimator, FineGrained, Stages, Timelines
from flowsched.fgm.timeline import Classes

__all__ = ["measure_matching", "measure_rounds"]

_NAMES = ("cpu", "mem")
_MICRO = 1_000_000


def measure_matching(outcome: Outcome, *, quick: bool, seed: int) -> None:
    """150 classes against 10,000 machines, all and 1 % of them, with 8 stages each; least CPU time of several calls."""
    rng = np.random.default_rng(seed)
    classes, rows, stages = 150, 10_000, 8
    tasks = Classes([Stages(rng.uniform(1, 20, stages), rng.uniform(0.1, 4.0, (stages, 2))) for _ in range(classes)], 2)
    for share in (0.05, 0.5, 1.0):
        lines = Timelines(2, slots=stages)
        lines.grow(rows)
        lines.ends[:] = np.cumsum(rng.uniform(1, 20, (rows, stages)), axis=1)
        lines.ends[:, -1] = np.inf
        # Machines with more or less room, so that few, half or all of the pairs match.
        room = {0.05: 2.0, 0.5: 3.3, 1.0: 4.0}[share]
        lines.reach[:] = rng.uniform(room, room + 2, (rows, stages, 2)) * _MICRO
        every, few = np.arange(rows), np.sort(rng.choice(rows, rows // 100, replace=False))
        count, _ = lines.fits(tasks, every, 0.0)
        setting = f"{classes} classes x {rows:,} machines x {stages} stages, {100 * (count > 0).mean():.0f} % match"
        repeats = 3 if quick else 10
        for metric, which in (("matching, all machines", every), ("matching, 1 % of the machines", few)):
            seconds = _least(partial(lines.fits, tasks, which, 0.0), repeats)
            pair = seconds / (classes * len(which))
            outcome.rows.append(Row("fgm", setting, metric, seconds, unit="s", note=f"{1e9 * pair:.0f} ns a pair"))


def measure_rounds(outcome: Outcome, *, quick: bool, seed: int, say: Callable[[str], None]) -> None:
    """The decision when 1 % of the machines change between rounds, with and without FGM."""
    machines, rounds = (2_000, 8) if quick else (10_000, 12)
    seconds = {}
    for fine in (False, True):
        say(f"rounds of {machines:,} machines, {'with' if fine else 'without'} FGM")
        seconds[fine] = _rounds(machines, rounds, fine, seed)
    ratio = seconds[True] / seconds[False]
    outcome.rows.append(
        Row(
            "fgm", f"{machines:,} machines, 40 kinds, 1 % change", "decision with FGM", seconds[True], seconds[False],
            seconds[False] / seconds[True], unit="s", note=f"baseline: without FGM; {ratio:.2f} times as long",
        )
    )  # fmt: skip


def _rounds(machines: int, rounds: int, fine: bool, seed: int) -> float:
    """Median CPU seconds of a round: 1 % of the tasks end, as many come, everything is decided and committed."""
    rng = np.random.default_rng(seed)
    kinds = [f"k{i}" for i in range(40)]
    estimator = DemandEstimator(_NAMES, cold=1)
    requests = {}
    for kind in kinds:
        parts = rng.uniform(0.3, 1.0, (8, 2)) * rng.uniform((0.5, 1.0), (4.0, 8.0))
        estimator.observe(kind, np.repeat(parts, 13, axis=0)[:100], float(rng.uniform(200, 2000)))
        requests[kind] = dict(zip(_NAMES, np.ceil(parts.max(axis=0)).tolist(), strict=True))
    estimator.update()
    policy = fs.Policy(preemption=None)
    scheduler = fs.Scheduler(policy, _NAMES)
    sched = FineGrained(scheduler, estimator=estimator) if fine else scheduler
    sched.apply(*(fs.MachineAdded(i, {"cpu": 32, "mem": 64}, rack=i // 40) for i in range(machines)))
    number = 0

    def job(count: int) -> Event:
        nonlocal number
        number += 1
        kind = kinds[int(rng.integers(len(kinds)))]
        tasks = [fs.Task((number, i), requests[kind], kind=kind) for i in range(count)]
        return fs.JobSubmitted(number, tasks, time=now)

    now = 0.0
    sched.apply(*(job(100) for _ in range(machines * 8 // 100)))
    sched.commit(sched.schedule(now))
    spent = []
    for _ in range(rounds):
        now += 5.0
        running = [task.id for record in list(sched.cluster.by_row.values()) for task in record.tasks]
        ended = rng.choice(len(running), machines // 100, replace=False)
        events: list[Event] = [fs.TaskCompleted(running[i], time=now) for i in ended.tolist()]
        events += [job(10) for _ in range(machines // 1000)]
        sched.apply(*events)
        begin = time.thread_time()
        decided = sched.schedule(now)
        spent.append(time.thread_time() - begin)
        sched.commit(decided)
    return float(np.median(spent[2:]))


def _least(call: Callable[[], object], repeats: int) -> float:
    best = np.inf
    for _ in range(repeats):
        begin = time.thread_time()
        call()
        best = min(best, time.thread_time() - begin)
    return float(best)
