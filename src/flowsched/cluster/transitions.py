"""Moves of tasks: they start, stop, and are taken back to earlier states.

A mirror of the cluster (the network) learns of moves by `Changes`, and so pays for changes only.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Any

from flowsched.cluster._records import again, ids_of, restore, start, unsettle
from flowsched.cluster.inventory import Inventory
from flowsched.cluster.records import Before, Group, MachineRecord, TaskClass, TaskRecord

__all__ = ["Changes", "Transitions"]


class Changes:
    """Changes since the last look; rows of machines that merely filled or emptied are told by `Inventory.version`.

    Attributes
    ----------
    groups : dict of Group to dict of int
        Groups with other numbers of tasks, each with the rows where its number of running tasks changed.
    removed : list of Group
        Groups without tasks.
    machines : dict of int
        Rows of new machines and of machines whose rack changed.
    gone : list of int
        Rows of machines removed; they may be handed out again from now on.
    classes : list of int
        Indices of classes forgotten; likewise.
    """

    def __init__(self) -> None:
        self.groups: dict[Group, dict[int, None]] = {}
        self.removed: list[Group] = []
        self.machines: dict[int, None] = {}
        self.gone: list[int] = []
        self.classes: list[int] = []


class Transitions:
    """Tasks that wait, and those that run, machine by machine.

    Attributes
    ----------
    inventory : Inventory
        Capacities and demands in arrays.
    by_row : dict of int to MachineRecord
    waiting : dict of TaskClass to dict of Group
        Classes with waiting tasks, and their groups that have some.
    queues : dict of TaskClass
        What a reader keeps of the waiting tasks of a class.  Its dict `changed` gets each group of which tasks start, stop,
        come or go, with True if the group has come to stand at the end of `waiting` since, wherever it stood.
    moving : bool
        In the middle of one move: an exception there leaves what cannot be taken back.
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
        """The largest turn given so far."""
        return self._turn

    @property
    def touched(self) -> Collection[Group]:
        """Groups with other numbers of tasks since the last look at changes."""
        return self._changes.groups

    @property
    def news(self) -> Changes:
        """What changed since the last look at changes; it is not forgotten."""
        return self._changes

    def date(self, now: float) -> None:
        """Tasks submitted at no stated time wait since now."""
        for task in self._timeless:
            task.since = now if task.since is None else task.since
        self._timeless.clear()

    def waiting_ids(self, cls: TaskClass) -> tuple[Hashable, ...]:
        """The waiting tasks of a class, group by group."""
        ids = self._waiting_ids.get(cls)
        if ids is None:
            ids = self._waiting_ids[cls] = ids_of(self.waiting[cls])
        return ids

    def start(self, tasks: list[TaskRecord], row: int, devices: tuple[int, ...], now: float) -> None:
        """Waiting tasks of one group run, each on these devices; the caller has checked that they may."""
        start(self, tasks, row, devices, now)

    def stop(self, task: TaskRecord, now: float | None) -> None:
        """A running task waits again."""
        unsettle(self, [task])
        again(self, task, now)

    def restore(self, tasks: list[TaskRecord], before: list[Before]) -> None:
        """Take tasks back to earlier states of their own, as if nothing had happened to them since.

        They are of one group, are together at one place or wait, and were so before.
        """
        restore(self, tasks, before)
