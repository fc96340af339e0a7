"""Samples: the use of running tasks until they end, the load of others, and how far estimates hold."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.records import TaskRecord
from flowsched.fgm.adjust import Adjustment, Level, conformity, time_weighted_mean
from flowsched.fgm.estimate import by_progress

__all__ = ["MachineWatch", "TaskTrace"]

Floats = NDArray[np.float64]

MOST = 512
"""Most samples that are kept of a task; beyond, every other one is dropped."""


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

        Returns
        -------
        used : ndarray of float64, shape (points, resources + 1)
            The compression is in the last column.
        seconds : ndarray of float64, shape (points,)
            By the task's own progress if every sample has it, else as if it had proceeded evenly.
        """
        columns = np.column_stack([self.usage, self.compression])
        # The clock of the samples may not be quite that of the events.
        times = np.clip(self.times, 0, duration)
        told = np.array([math.nan if p is None else p for p in self.progress])
        if np.isnan(told).any():
            return by_progress(times, columns, duration, points), np.full(points, duration / points)
        told = np.maximum.accumulate(told)
        ends = np.interp(np.linspace(0, 1, points + 1), [0, *told, 1], [0, *times, duration])
        return by_progress(told, columns, 1.0, points), np.diff(ends)


class MachineWatch:
    """Samples of one machine.

    Parameters
    ----------
    adjustment : Adjustment

    Attributes
    ----------
    level : Level
        Level at which the machine is to be matched.
    used : ndarray of float64, shape (resources,)
        Use of the whole machine: the mean (14) of the last samples.
    foreign : ndarray of float64, shape (resources,)
        Load of others: the mean (14) of the last samples, or the last one if that is more.
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
        """Add a sample of the whole machine; one at the time of the last replaces it, an earlier one is dropped.

        Parameters
        ----------
        time : float
        total : ndarray of float64, shape (resources,)
            Capacity.
        used : ndarray of float64, shape (resources,)
            Use of the whole machine.
        ours : ndarray of float64, shape (resources,)
            The part of the scheduler's tasks in it.
        estimated : ndarray of float64, shape (resources,)
            Estimated use of the whole machine.

        Returns
        -------
        ndarray of float64, shape (resources,)
            `foreign`
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


def trace_of(traces: dict[TaskRecord, TaskTrace], task: TaskRecord) -> TaskTrace:
    """Return the trace of a task's present run; make one if there is none."""
    trace = traces.get(task)
    if trace is None or trace.turn != task.turn:
        trace = traces[task] = TaskTrace(task.turn)
    return trace
