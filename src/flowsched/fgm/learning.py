"""Learning from samples: needs of kinds of tasks, load of others, and how far estimates hold."""

from __future__ import annotations

import math
from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster import MICRO, Cluster
from flowsched.cluster.model import LARGEST
from flowsched.cluster.records import TaskClass, TaskRecord
from flowsched.fgm.adjust import Adjustment, Level
from flowsched.fgm.estimate import DemandEstimator
from flowsched.fgm.monitor import MachineWatch, TaskTrace, trace_of
from flowsched.fgm.stages import Stages, divide_stages

__all__ = ["Learner"]

Floats = NDArray[np.float64]


class Learner:
    """Samples of running tasks and of machines, and estimates from them.

    Parameters
    ----------
    cluster : Cluster
    estimator : DemandEstimator
    adjustment : Adjustment
    threshold, min_length, highest
        See `FineGrained`.

    Attributes
    ----------
    suspects : dict of int
        Rows of machines whose level fell to STOP since the last round; read and cleared by each round.
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
        """Note what a running task uses at this age, NaN for what was not measured, and its progress, if given."""
        trace_of(self._traces, task).add(age, usage, compression, progress)

    def ended(self, task: TaskRecord, turn: int, duration: float | None) -> None:
        """End a run of a task after a duration, None for one that was not completed.

        Resources that were never measured are taken to be what the task asks for.
        """
        trace, kind = self._traces.pop(task, None), task.group.cls.kind
        if trace is None or duration is None or trace.turn != turn or kind is None or not trace.times or duration <= 0:
            return
        used, seconds = trace.by_point(duration, self.estimator.points)
        demand = np.where(np.isnan(used[:, :-1]), task.group.cls.demand / MICRO, used[:, :-1])
        self.estimator.queue(kind, demand, seconds, used[:, -1])

    def learn(self, most: int | None) -> list[Hashable]:
        """Take in observations; return the kinds with so many more samples that their stages are divided again."""
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
        profile = self.estimator.profile(cls.kind, self._together(cls))
        if profile is None:
            return None
        demand = np.minimum(profile.demand, LARGEST, out=profile.demand)
        if self._cluster.resources.device_index >= 0:
            demand[:, self._cluster.resources.device_index] = 0
        peak = demand.max(axis=0)
        thresholds = np.multiply(self._threshold, peak, out=np.full(len(peak), math.inf), where=peak > 0)
        stages = divide_stages(profile, thresholds=thresholds, min_length=self._min_length)
        return stages if stages.duration > 0 else None

    def _together(self, cls: TaskClass) -> Floats:
        """Return by resource the number of tasks of a class that a typical machine holds by their requests."""
        inventory = self._cluster.inventory
        capacity = inventory.capacity[: inventory.rows][inventory.usable[: inventory.rows]]
        typical = np.median(capacity, axis=0) if len(capacity) else cls.demand
        together: Floats = np.maximum(typical // np.maximum(cls.demand, 1), 1.0)
        return together

    # -- machines -----------------------------------------------------------------------------------------------

    def machine_sampled(
        self, row: int, now: float, total: Floats, used: Floats, estimated: Floats, foreign: Floats
    ) -> tuple[Floats, Level]:
        """Take in a sample of a whole machine; return the load of others, and the level.

        Parameters
        ----------
        row : int
        now : float
        total, used, estimated, foreign : ndarray of float64, shape (resources,)
            Capacity, sampled use, estimated use, and the part of this that was thought to be load of others.  Where
            `used` is NaN, it is taken to be as estimated.
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
