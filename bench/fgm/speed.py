"""Time of matching, and cost of FGM in a round of a large cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import flowsched as fs
from bench.rows import Outcome, Row, shown
from flowsched.cluster.events import Event
from flowsched.fgm import DemandEstimator, FineGrained, Stages, Timelines
from flowsched.fgm.timeline import Classes

__all__ = ["measure_matching", "measure_rounds"]

_NAMES = ("cpu", "mem")
_MICRO = 1_000_000


def measure_matching(outcome: Outcome, *, quick: bool, seed: int) -> None:
    """Measure 150 classes against 10,000 machines, all and 1 % of them, with 8 stages each; CPU time of several calls."""
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
        repeats = 5 if quick else 15
        for metric, which in (("matching, all machines", every), ("matching, 1 % of the machines", few)):
            least, median, mean = _spent(partial(lines.fits, tasks, which, 0.0), repeats)
            note = f"least of {repeats}; median {shown(median, 's')}, mean {shown(mean, 's')}; {1e9 * least / (classes * len(which)):.0f} ns a pair"
            outcome.rows.append(Row("fgm", setting, metric, least, unit="s", note=note))


def measure_rounds(outcome: Outcome, *, quick: bool, seed: int, say: Callable[[str], None]) -> None:
    """Measure a round after changes of 1 % of the machines, with and without FGM, in turns; medians and means."""
    machines, rounds = (2_000, 8) if quick else (10_000, 24)
    pair = []
    for fine in (False, True):
        say(f"{machines:,} machines, {'with' if fine else 'without'} FGM")
        pair.append(_Course(machines, fine, seed))
    spent = np.array([[course.round() for course in pair] for _ in range(rounds + 2)])[2:]
    for average, suffix in ((np.median, ""), (np.mean, ", mean")):
        without, with_ = average(spent, axis=0)
        for metric, phases in (("events", [0]), ("decision", [1]), ("commit", [2]), ("all of it", [0, 1, 2])):
            mine, theirs = float(with_[phases].sum()), float(without[phases].sum())
            outcome.rows.append(
                Row(
                    "fgm", f"{machines:,} machines, 40 kinds, 1 % change", f"a round with FGM: {metric}{suffix}", mine, theirs,
                    theirs / mine, unit="s", note=f"baseline: without FGM; {mine / theirs:.2f} times as long",
                )
            )  # fmt: skip


class _Course:
    """A full cluster in which 1 % of the tasks end in each round, and as many arrive."""

    def __init__(self, machines: int, fine: bool, seed: int) -> None:
        self._rng = rng = np.random.default_rng(seed)
        self._machines = machines
        self._kinds = [f"k{i}" for i in range(40)]
        self._requests = {}
        self._jobs, self._now = 0, 0.0
        estimator = DemandEstimator(_NAMES, cold=1)
        for kind in self._kinds:
            parts = rng.uniform(0.3, 1.0, (8, 2)) * rng.uniform((0.5, 1.0), (4.0, 8.0))
            estimator.observe(kind, np.repeat(parts, 13, axis=0)[:100], float(rng.uniform(200, 2000)))
            self._requests[kind] = dict(zip(_NAMES, np.ceil(parts.max(axis=0)).tolist(), strict=True))
        estimator.update()
        scheduler = fs.Scheduler(fs.Policy(preemption=None), _NAMES)
        self._sched: Any = FineGrained(scheduler, estimator=estimator) if fine else scheduler
        self._sched.apply(*(fs.MachineAdded(i, {"cpu": 32, "mem": 64}, rack=i // 40) for i in range(machines)))
        self._sched.apply(*(self._job(100) for _ in range(machines * 8 // 100)))
        self._sched.commit(self._sched.schedule(self._now))

    def _job(self, count: int) -> Event:
        self._jobs += 1
        kind = self._kinds[int(self._rng.integers(len(self._kinds)))]
        tasks = [fs.Task((self._jobs, i), self._requests[kind], kind=kind) for i in range(count)]
        return fs.JobSubmitted(self._jobs, tasks, time=self._now)

    def round(self) -> tuple[float, float, float]:
        """CPU seconds of the events, the decision and the commit."""
        self._now += 5.0
        running = [task.id for record in list(self._sched.cluster.by_row.values()) for task in record.tasks]
        ended = self._rng.choice(len(running), self._machines // 100, replace=False)
        events: list[Event] = [fs.TaskCompleted(running[i], time=self._now) for i in ended.tolist()]
        events += [self._job(10) for _ in range(self._machines // 1000)]
        times = [time.thread_time()]
        self._sched.apply(*events)
        times.append(time.thread_time())
        decided = self._sched.schedule(self._now)
        times.append(time.thread_time())
        self._sched.commit(decided)
        times.append(time.thread_time())
        event, decision, commit = np.diff(times).tolist()
        return event, decision, commit


def _spent(call: Callable[[], object], repeats: int) -> tuple[float, float, float]:
    """Return the least, the median and the mean CPU seconds."""
    spent = []
    for _ in range(repeats):
        begin = time.thread_time()
        call()
        spent.append(time.thread_time() - begin)
    return min(spent), float(np.median(spent)), float(np.mean(spent))
