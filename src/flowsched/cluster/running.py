"""Running tasks in arrays, by index of the task."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.columns import Columns, column, view

__all__ = ["RunningTasks"]

Ints = NDArray[np.int64]


class RunningTasks(Columns):
    """Row, class, turn, start and expected end of every task that runs; kept in step with `TaskRecord.place`.

    Attributes
    ----------
    estimated : int
        Running tasks with an estimate.
    """

    row: Ints = column("tasks", fill=-1)
    """The row where the task runs, -1 if it does not; the other arrays hold only where it does."""
    class_id: Ints = column("tasks", fill=-1)
    turn: Ints = column("tasks", fill=-1)
    since: NDArray[np.float64] = column("tasks", dtype=np.float64, fill=-1)
    end: NDArray[np.float64] = column("tasks", dtype=np.float64, fill=inf)
    """`since` and the estimate of the run time, infinite without one."""

    _row: memoryview = view("row")
    _class: memoryview = view("class_id")
    _turn: memoryview = view("turn")
    _since: Any = view("since")
    _end: Any = view("end")

    def __init__(self) -> None:
        super().__init__()
        self.estimated = 0

    def start(self, task: int, row: int, class_id: int, turn: int, since: float, end: float) -> None:
        """Note that a task runs."""
        if task >= len(self.row):
            self.grow(tasks=task + 1)
        self._row[task], self._class[task], self._turn[task], self._since[task] = row, class_id, turn, since
        self._end[task] = end
        self.estimated += end < inf

    def stop(self, task: int) -> None:
        """Note that a task runs no more."""
        self._row[task] = -1
        self.estimated -= self._end[task] < inf
