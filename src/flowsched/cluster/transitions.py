"""Moves of tasks: starts, stops, and returns to earlier states.

`Changes` records moves, so that the cost of updating a mirror of the cluster (the network) depends on the changes.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable

from flowsched.cluster.records import Changes, World, again, ids_of, restore, start, unsettle
from flowsched.cluster.records import Before, Group, TaskClass, TaskRecord

__all__ = ["Changes", "Transitions"]


class Transitions(World):
    """Waiting tasks, and running ones by machine.

    Attributes
    ----------
    inventory : Inventory
        Capacities and demands in arrays.
    by_row : dict of int to MachineRecord
    waiting : dict of TaskClass to dict of Group
        Classes with waiting tasks, and their groups with waiting tasks.
    queues : dict of TaskClass
        Data that a reader keeps for the waiting tasks of a class.  Its dict `changed` gets each group whose tasks start,
        stop, come or go, with True if the group has moved to the end of `waiting` since.
    moving : bool
        True in the middle of one move: after an exception there, the moves cannot be taken back.
    """

    @property
    def turn(self) -> int:
        """Largest turn given so far."""
        return self._turn

    @property
    def touched(self) -> Collection[Group]:
        """Groups whose numbers of tasks changed since the last call of `Cluster.changes`."""
        return self._changes.groups

    @property
    def news(self) -> Changes:
        """Changes since the last call of `Cluster.changes`; they are kept."""
        return self._changes

    def date(self, now: float) -> None:
        """Set the start of waiting to `now` for tasks without one."""
        for task in self._timeless:
            task.since = now if task.since is None else task.since
        self._timeless.clear()

    def waiting_ids(self, cls: TaskClass) -> tuple[Hashable, ...]:
        """Return the waiting tasks of a class, group by group."""
        ids = self._waiting_ids.get(cls)
        if ids is None:
            ids = self._waiting_ids[cls] = ids_of(self.waiting[cls])
        return ids

    def start(self, tasks: list[TaskRecord], row: int, devices: tuple[int, ...], now: float) -> None:
        """Start waiting tasks of one group, each on these devices; the caller has checked their room."""
        start(self, tasks, row, devices, now)

    def stop(self, task: TaskRecord, now: float | None) -> None:
        """Stop a running task, which waits again."""
        unsettle(self, [task])
        again(self, task, now)

    def restore(self, tasks: list[TaskRecord], before: list[Before]) -> None:
        """Restore tasks to earlier states without a trace of later moves.

        They are of one group, and at one place or waiting, both now and in those states.
        """
        restore(self, tasks, before)
