"""Trying moves of tasks out: everything can be taken back as if it had not happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flowsched.cluster.records import Placement, TaskRecord
from flowsched.cluster.state import Cluster

__all__ = ["Before", "Trial"]


@dataclass(frozen=True, slots=True)
class Before:
    """A task as it was before the trial."""

    place: Placement | None
    turn: int
    since: float | None


class Trial:
    """Moves in a cluster, kept only if nobody calls `undo`.

    Attributes
    ----------
    before : dict of TaskRecord to Before
        What was touched, in the order of the first touch.
    """

    def __init__(self, cluster: Cluster, now: float) -> None:
        self.cluster = cluster
        self.now = now
        self.before: dict[TaskRecord, Before] = {}

    def start(self, task: TaskRecord, row: int, devices: Sequence[int]) -> None:
        """A waiting task runs."""
        self._remember(task)
        self.cluster.start(task, row, tuple(devices), self.now)

    def stop(self, task: TaskRecord) -> None:
        """A running task waits."""
        self._remember(task)
        self.cluster.stop(task, self.now)

    def put_back(self, task: TaskRecord) -> None:
        """One task is as before the trial again."""
        before = self.before[task]
        self.cluster.restore(task, before.place, before.turn, before.since)

    def undo(self) -> None:
        """All tasks are as before the trial again."""
        for task in reversed(self.before):
            self.put_back(task)
        self.before.clear()

    def _remember(self, task: TaskRecord) -> None:
        if task not in self.before:
            self.before[task] = Before(task.place, task.turn, task.since)
