"""Trial moves of tasks, which can be taken back without a trace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from flowsched.cluster.records import remember, start_rows, try_start, undo
from flowsched.cluster.records import Before, TaskRecord
from flowsched.cluster.state import Cluster

__all__ = ["Transaction", "without"]


class Transaction:
    """Moves in a cluster, kept unless `rollback` takes them back.

    Attributes
    ----------
    before : dict of TaskRecord to Before
        State of each moved task before its first move, in the order of these moves.
    """

    def __init__(self, cluster: Cluster, now: float) -> None:
        self.cluster = cluster
        self.now = now
        self.before: dict[TaskRecord, Before] = {}

    @property
    def moving(self) -> bool:
        """True in the middle of one move: after an exception there, the moves cannot be taken back."""
        return self.cluster.moving

    def start(self, tasks: list[TaskRecord], row: int, devices: Sequence[int]) -> None:
        """Start waiting tasks of one group, each on these devices."""
        try_start(self.before, self.cluster, tasks, row, tuple(devices), self.now)

    def start_rows(self, tasks: list[TaskRecord], done: int, rows: list[tuple[int, int]], full: int) -> tuple[int, int]:
        """Start waiting tasks of one class on a series of machines, where slots and resources are the only limits.

        Parameters
        ----------
        tasks : list of TaskRecord
        done : int
            Number of tasks that have started.
        rows : list of (int, int)
            Machines, and the number of tasks for each.
        full : int
            Number of machines that have taken all of theirs.

        Returns
        -------
        done, full : int
            New values, up to the first machine with too little room, or the first task that is in `before`.
        """
        return start_rows(self.before, self.cluster, tasks, done, rows, full, self.now)

    def stop(self, task: TaskRecord) -> None:
        """Stop a running task, which waits again."""
        remember(self.before, [task])
        self.cluster.moving = True
        self.cluster.stop(task, self.now)
        self.cluster.moving = False

    def restore(self, task: TaskRecord) -> None:
        """Restore one task to its state before the trial."""
        self.cluster.moving = True
        self.cluster.restore([task], [self.before[task]])
        self.cluster.moving = False

    def rollback(self) -> None:
        """Restore all tasks to their states before the trial; after an exception within a move, do nothing."""
        if self.cluster.moving:
            return
        self.cluster.moving = True
        undo(self.before, self.cluster)
        self.before.clear()
        self.cluster.moving = False


@contextmanager
def without(cluster: Cluster, tasks: Iterable[TaskRecord]) -> Iterator[None]:
    """Take running tasks off their machines within the context, and restore them afterwards."""
    transaction = Transaction(cluster, 0.0)
    try:
        for task in tasks:
            transaction.stop(task)
        yield
    finally:
        transaction.rollback()
