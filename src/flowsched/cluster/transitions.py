"""Moves of tasks: starts, stops, and returns to earlier states.

`Changes` records moves, so that the cost of updating a mirror of the cluster (the network) depends on the changes.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Any

from flowsched.cluster._records import again, ids_of, restore, start, unsettle
from flowsched.cluster.inventory import Inventory
from flowsched.cluster.records import Before, Group, MachineRecord, TaskClass, TaskRecord

__all__ = ["Changes", "Transitions"]


class Changes:
    """Changes since the last call of `Cluster.changes`; `Inventory.version` has the rows that only filled or emptied.

    Attributes
    ----------
    groups : dict of Group to dict of int
        Groups whose numbers of tasks changed, each with the rows where its number of running tasks changed.
    removed : list of Group
        Groups without tasks.
    machines : dict of int
        Rows of new machines and of machines whose rack changed.
    gone : list of int
        Rows of removed machines; they may be assigned again from now on.
    classes : list of int
        Indices of forgotten classes; likewise.
    """

    def __init__(self) -> None:
        self.groups: dict[Group, dict[int, None]] = {}
        self.removed: list[Group] = []
        self.machines: dict[int, None] = {}
        self.gone: list[int] = []
        self.classes: list[int] = []


class Transitions:
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

    def __init__(self, inventory: Inventory) -> None:
        self.inventory = inventory
        self.by_row: dict[int, MachineRecord] = {}
        self.waiting: dict[TaskClass, dict[Group, None]] = {}
        self.queues: dict[TaskClass, Any] = {}
        self._waiting_ids: dict[TaskClass, tuple[Hashable, ...]] = {}
        self._changes = Changes()
        self.moving = False
        self._turn = 0
        self._timeless: list[TaskRecord] = []

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
