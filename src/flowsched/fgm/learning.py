"""Learning from samples: needs of kinds of tasks, foreign load, and accuracy of estimates."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster import MICRO, Cluster
from flowsched.cluster.model import LARGEST
from flowsched.cluster.records import TaskClass, TaskRecord
from flowsched.fgm.adjust import Adjustment, Level, conformity, time_weighted_mean
from flowsched.fgm.estimate import DemandEstimator, by_progress
from flowsched.fgm.stages import Stages, divide_stages

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST = 512
"""Largest number of samples kept of a task; at the limit, every other one is dropped."""


class Learner:
    """Samples of running tasks and of machines, and estimates from them.

    `threshold`, `min_length` and `highest` are described in `FineGrained`.  `suspects` has the rows of machines whose
    level fell to STOP since the last round; each round reads and clears it.
    """

    def __init__(
        self,
        cluster: Cluster,
        estimator: DemandEstimator,
        adjustment: Adjustment,
        threshold: float,
        min_length: float,
        highest: Level,
    ) -> None:
        self.estimator = estimator
        self.adjustment = adjustment
        self.suspects: dict[int, None] = {}
        self._cluster = cluster
        self._threshold, self._min_length, self._highest = threshold, min_length, highest
        self._traces: dict[TaskRecord, TaskTrace] = {}
        self._watches: dict[int, MachineWatch] = {}
        self._divided: dict[Hashable, int] = {}

    # -- tasks --------------------------------------------------------------------------------------------------

    def sampled(self, task: TaskRecord, age: float, usage: Floats, compression: float, progress: float | None) -> None:
        """Record the usage of a running task at this age, NaN where not measured, and its progress, if given."""
        trace = self._traces.get(task)
        if trace is None or trace.turn != task.turn:
            trace = self._traces[task] = TaskTrace(task.turn)
        trace.add(age, usage, compression, progress)

    def ended(self, task: TaskRecord, turn: int, duration: float | None) -> None:
        """End a run of a task after a duration, None for one that was not completed.

        The amounts of resources that were never measured are assumed to be those that the task requests.
        """
        trace, kind = self._traces.pop(task, None), task.group.cls.kind
        if trace is None or duration is None or trace.turn != turn or kind is None or not trace.times or duration <= 0:
            return
        used, seconds = trace.by_point(duration, self.estimator.points)
        demand = np.where(np.isnan(used[:, :-1]), task.group.cls.demand / MICRO, used[:, :-1])
        self.estimator.queue(kind, demand, seconds, used[:, -1])

    def learn(self, most: int | None) -> list[Hashable]:
        """Take in observations; return the kinds whose number of samples has grown enough to divide their stages again."""
        stale: dict[Hashable, None] = {}
        for kind in self.estimator.take_in(most):
            profile = self.estimator.profile(kind)
            seen, before = (0 if profile is None else profile.samples), self._divided.get(kind, 0)
            if seen and seen - before >= min(max(before // 4, 1), 20):
                self._divided[kind] = seen
                stale[kind] = None
        if len(self._divided) > 2 * len(self.estimator) + 64:
            self._divided = {k: n for k, n in self._divided.items() if self.estimator.profile(k) is not None}
        return list(stale)

    def estimate(self, cls: TaskClass) -> Stages | None:
        """Return the stages of a class, None where too little is known."""
        if cls.kind is None or self._highest <= Level.REQUEST:
            return None
        return self.stages(cls.kind, cls.demand)

    def stages(self, kind: Hashable, request: Ints) -> Stages | None:
        """Return the stages of tasks of a kind with this request, in micro-units; None where too little is known.

        The margin for safety does not take a need beyond the request, so what fits by its request goes on to fit.
        """
        bound = np.where(request > 0, request / MICRO, math.inf)
        profile = self.estimator.profile(kind, self._together(request), bound)
        if profile is None:
            return None
        demand = np.minimum(profile.demand, LARGEST, out=profile.demand)
        if self._cluster.resources.device_index >= 0:
            demand[:, self._cluster.resources.device_index] = 0
        peak = demand.max(axis=0)
        thresholds = np.multiply(self._threshold, peak, out=np.full(len(peak), math.inf), where=peak > 0)
        stages = divide_stages(profile, thresholds=thresholds, min_length=self._min_length)
        return stages if stages.duration > 0 else None

    def _together(self, request: Ints) -> Floats:
        """Return by resource the number of tasks with this request that a typical machine holds."""
        inventory = self._cluster.inventory
        capacity = inventory.capacity[: inventory.rows][inventory.usable[: inventory.rows]]
        typical = np.median(capacity, axis=0) if len(capacity) else request
        together: Floats = np.maximum(typical // np.maximum(request, 1), 1.0)
        return together

    # -- machines -----------------------------------------------------------------------------------------------

    def machine_sampled(
        self, row: int, now: float, total: Floats, used: Floats, estimated: Floats, foreign: Floats
    ) -> tuple[Floats, Level]:
        """Take in a sample of a whole machine; return the load of others, and the level.

        All are of shape (resources,): capacity, sampled use (where it is NaN, the estimate is assumed), estimated use,
        and the part of this that was attributed to others.
        """
        watch = self._watches.setdefault(row, MachineWatch(self.adjustment))
        tasks = self._cluster.by_row[row].tasks
        measured = [t for task in tasks if (t := self._traces.get(task)) is not None and t.turn == task.turn]
        expected = np.maximum(estimated - foreign, 0.0)
        if len(measured) == len(tasks):
            ours = np.sum([t.usage[-1] for t in measured], axis=0) if measured else np.zeros(len(total))
        else:
            ours = expected
        ours = np.where(np.isnan(ours) | np.isnan(used), expected, ours)
        used = np.where(np.isnan(used), estimated, used)
        others = watch.add(now, total, used, ours, estimated)
        self.suspects.pop(row, None)
        if watch.level == Level.STOP:
            self.suspects[row] = None
        return others, watch.level

    def idle(self, row: int) -> Floats | None:
        """Return the amounts idle on a machine in its last samples, None where it was not sampled."""
        watch = self._watches.get(row)
        return None if watch is None else self._cluster.inventory.capacity[row] / MICRO - watch.used

    def forget(self, row: int) -> None:
        """Forget the samples of a machine that is gone, for the next one in its row."""
        self._watches.pop(row, None)
        self.suspects.pop(row, None)


@dataclass(slots=True, eq=False)
class TaskTrace:
    """Samples of one run of a task."""

    turn: int
    times: list[float] = field(default_factory=list)
    usage: list[Floats] = field(default_factory=list)
    compression: list[float] = field(default_factory=list)
    progress: list[float | None] = field(default_factory=list)

    def add(self, time: float, usage: Floats, compression: float, progress: float | None) -> None:
        """Add a sample; one at the time of the last replaces it, an earlier one is dropped."""
        if self.times and time < self.times[-1]:
            return
        if self.times and time == self.times[-1]:
            self.usage[-1], self.compression[-1], self.progress[-1] = usage, compression, progress
            return
        self.times.append(time)
        self.usage.append(usage)
        self.compression.append(compression)
        self.progress.append(progress)
        if len(self.times) > MOST:
            for samples in (self.times, self.usage, self.compression, self.progress):
                del samples[1::2]

    def by_point(self, duration: float, points: int) -> tuple[Floats, Floats]:
        """Turn the samples of a run of this duration into amounts and seconds by point of progress.

        The amounts have shape (points, resources + 1), with the compression in the last column.  The seconds are by the
        task's own progress if every sample has it, else as if it had proceeded evenly.
        """
        columns = np.column_stack([self.usage, self.compression])
        # The clock of the samples may differ a little from that of the events.
        times = np.clip(self.times, 0, duration)
        progress = np.array([math.nan if p is None else p for p in self.progress])
        if np.isnan(progress).any():
            return by_progress(times, columns, duration, points), np.full(points, duration / points)
        progress = np.maximum.accumulate(progress)
        ends = np.interp(np.linspace(0, 1, points + 1), [0, *progress, 1], [0, *times, duration])
        return by_progress(progress, columns, 1.0, points), np.diff(ends)


class MachineWatch:
    """Samples of one machine.

    `level` is the level at which the machine is to be matched.  By resource, `used` is the use of the whole machine,
    the mean (14) of the last samples; `foreign` is the load of others, the mean (14) of the last samples, or the last
    one if that is more.
    """

    def __init__(self, adjustment: Adjustment) -> None:
        self.level = Level.COMPRESSED
        self.used: Floats = np.zeros(0)
        self.foreign: Floats = np.zeros(0)
        self._adjustment = adjustment
        self._last: float | None = None
        self._conformities: deque[Floats] = deque(maxlen=adjustment.keep)
        # Use of the whole machine and load of others, shape (2, resources), with the seconds that they held.
        self._samples: deque[tuple[Floats, float]] = deque(maxlen=adjustment.keep)

    def add(self, time: float, total: Floats, used: Floats, ours: Floats, estimated: Floats) -> Floats:
        """Add a sample; one at the time of the last replaces it, an earlier one is dropped.

        All are of shape (resources,): capacity, use of the whole machine, the part of the scheduler's tasks in it, and
        the estimated use of the whole machine.  Returns `foreign`.
        """
        if self._last is None:
            seconds = 1.0
        elif time < self._last:
            return self.foreign
        elif time == self._last:
            seconds = self._samples.pop()[1]
            self._conformities.pop()
        else:
            seconds = time - self._last
        self._last = time
        adjust = self._adjustment
        others = np.maximum(used - ours, 0.0)
        self._samples.append((np.array([used, others]), seconds))
        values, lengths = zip(*self._samples, strict=True)
        self.used, mean = time_weighted_mean(values, lengths)
        self.foreign = np.maximum(others, mean)
        over = conformity(
            used[None], estimated[None], [seconds], idle=total - self.used, total=total, threshold=adjust.idle
        )
        self._conformities.append(np.divide(over, total, out=np.zeros(len(total)), where=total > 0))
        self.level = adjust.level(list(self._conformities))
        return self.foreign
