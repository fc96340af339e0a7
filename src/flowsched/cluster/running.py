"""Running tasks in arrays, by index of the task."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.columns import Columns, column, view

__all__ = ["RunningTasks"]

Ints = NDArray[np.int64]


class RunningTasks(Columns):
    """Row, class, turn and start of every task that runs; kept in step with `TaskRecord.place`."""

    row: Ints = column("tasks", fill=-1)
    """The row where the task runs, -1 if it does not; the other arrays hold only where it does."""
    class_id: Ints = column("tasks", fill=-1)
    turn: Ints = column("tasks", fill=-1)
    since: NDArray[np.float64] = column("tasks", dtype=np.float64, fill=-1)

    _row: memoryview = view("row")
    _class: memoryview = view("class_id")
    _turn: memoryview = view("turn")
    _since: Any = view("since")

    def start(self, task: int, row: int, class_id: int, turn: int, since: float) -> None:
        """Note that a task runs."""
        if task >= len(self.row):
            self.grow(tasks=task + 1)
        self._row[task], self._class[task], self._turn[task], self._since[task] = row, class_id, turn, since

    def stop(self, task: int) -> None:
        """Note that a task runs no more."""
        self._row[task] = -1
