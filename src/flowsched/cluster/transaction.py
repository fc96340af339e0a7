"""Trial moves of tasks: everything can be taken back as if it had not happened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from flowsched.cluster._records import remember, start_rows, try_start, undo
from flowsched.cluster.records import Before, TaskRecord
from flowsched.cluster.state import Cluster

__all__ = ["Transaction", "without"]


class Transaction:
    """Moves in a cluster, kept unless `rollback` takes them back.

    Attributes
    ----------
    before : dict of TaskRecord to Before
        What was touched, in the order of the first touch.
    """

    def __init__(self, cluster: Cluster, now: float) -> None:
        self.cluster = cluster
        self.now = now
        self.before: dict[TaskRecord, Before] = {}

    @property
    def moving(self) -> bool:
        """In the middle of one move: an exception there leaves what cannot be taken back."""
        return self.cluster.moving

    def start(self, tasks: list[TaskRecord], row: int, devices: Sequence[int]) -> None:
        """Waiting tasks of one group run, each on these devices."""
        try_start(self.before, self.cluster, tasks, row, tuple(devices), self.now)

    def start_rows(self, tasks: list[TaskRecord], done: int, rows: list[tuple[int, int]], full: int) -> tuple[int, int]:
        """Start waiting tasks of one class, on machine after machine, for which slots and resources are the only limits.

        Parameters
        ----------
        tasks : list of TaskRecord
        done : int
            So many of them have started.
        rows : list of (int, int)
            Machines, and how many of the tasks each is to take.
        full : int
            So many of them have taken theirs.

        Returns
        -------
        done, full : int
            As they are now: up to the first machine with too little room, or the first task that is in `before`.
        """
        return start_rows(self.before, self.cluster, tasks, done, rows, full, self.now)

    def stop(self, task: TaskRecord) -> None:
        """A running task waits."""
        remember(self.before, [task])
        self.cluster.moving = True
        self.cluster.stop(task, self.now)
        self.cluster.moving = False

    def restore(self, task: TaskRecord) -> None:
        """One task is as before the trial again."""
        self.cluster.moving = True
        self.cluster.restore([task], [self.before[task]])
        self.cluster.moving = False

    def rollback(self) -> None:
        """All tasks are as before the trial again; nothing is done where that cannot be."""
        if self.cluster.moving:
            return
        self.cluster.moving = True
        undo(self.before, self.cluster)
        self.before.clear()
        self.cluster.moving = False


@contextmanager
def without(cluster: Cluster, tasks: Iterable[TaskRecord]) -> Iterator[None]:
    """Take running tasks off their machines while a question is asked; all is as before afterwards."""
    transaction = Transaction(cluster, 0.0)
    try:
        for task in tasks:
            transaction.stop(task)
        yield
    finally:
        transaction.rollback()
