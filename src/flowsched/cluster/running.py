"""Running tasks in arrays, by index of the task."""

from __future__ import annotations

from math import inf

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.columns import Columns, column
from flowsched.cluster.records import RunningTasksColumns

__all__ = ["RunningTasks"]

Ints = NDArray[np.int64]


class RunningTasks(Columns, typed=RunningTasksColumns):
    """Row, class, turn, start and expected end of every running task, in step with the records.

    Attributes
    ----------
    estimated : int
        Number of running tasks with an estimate.
    """

    row: Ints = column("tasks", fill=-1)
    """Row where the task runs, -1 if it does not; the other arrays are valid only where it does."""
    class_id: Ints = column("tasks", fill=-1)
    turn: Ints = column("tasks", fill=-1)
    since: NDArray[np.float64] = column("tasks", dtype=np.float64, fill=-1)
    end: NDArray[np.float64] = column("tasks", dtype=np.float64, fill=inf)
    """Sum of `since` and the estimate of the run time, infinite without an estimate."""

    def __init__(self) -> None:
        super().__init__()
        self.estimated = 0
