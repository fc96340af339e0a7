"""Waiting tasks by class, kept so that the cost of a read depends on the changes.

The groups of a class stand in *slots*, in the order of `Cluster.waiting`; a group that comes takes a new slot at the end, and
a slot that a group has left stays empty until half of them are.  Data of all groups is kept by slot, in columns or in
blocks of slots; a block is made again after one of its groups has changed.  A round handles single groups only if they
have changed since the last `refresh`.

The module is compiled; its types are in ``queues.pxd``.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterator
from heapq import merge
from itertools import chain, islice
from math import inf

import numpy as np
from numpy.typing import NDArray

from flowsched.builder.groups import GroupNode, GroupNodes
from flowsched.cluster.records import Group, TaskClass, ids_of
from flowsched.cluster.state import Cluster

__all__ = ["ClassQueue", "Head", "QueuedTasks", "Queues"]

Ints = NDArray[np.int64]

_BLOCK = 128
"""Number of slots in a block."""


class QueuedTasks:
    """Tasks of a queue, for readers that keep them after the queue changes.

    Attributes
    ----------
    cls : TaskClass
    count : int
    blocks : tuple of tuple of tuple of hashable
        Tasks of each slot, in blocks of slots.
    units : array of int64
        Number of tasks by slot.
    """

    def __init__(
        self, cls: TaskClass, count: int, blocks: tuple[tuple[tuple[Hashable, ...], ...], ...], units: array[int]
    ) -> None:
        self.cls, self.count, self.blocks, self.units = cls, count, blocks, units

    @property
    def ids(self) -> tuple[Hashable, ...]:
        """Ids of the tasks."""
        return tuple(chain.from_iterable(chain.from_iterable(self.blocks)))

    @property
    def sizes(self) -> list[int]:
        """Number of tasks of each group."""
        return [units for units in self.units if units]


class Head:
    """First tasks of a class whose groups are all plain.

    Attributes
    ----------
    group : Group
        Group of the first task by turn.
    since, eldest : float
        Times since when that task waits, and the task that has waited longest.
    serial : int
        Serial of the first task's job.
    ahead : int
        Number of the group's tasks known to be before all others of the class.
    """

    def __init__(self, group: Group, since: float, eldest: float, serial: int, ahead: int) -> None:
        self.group, self.since, self.eldest, self.serial, self.ahead = group, since, eldest, serial, ahead


class ClassQueue:
    """Waiting tasks of one class.

    Parameters
    ----------
    cls : TaskClass
        Has waiting tasks.
    cluster : Cluster
    nodes : GroupNodes

    Attributes
    ----------
    changed : dict of Group to bool
        See `World.queues`; all other attributes are as of the last `refresh`.
    plain : bool
        True if all groups are plain, see `Group.plain`.
    cached : QueuedTasks or None
        Result of `tasks` since the last `refresh`.
    """

    def __init__(self, cls: TaskClass, cluster: Cluster, nodes: GroupNodes) -> None:
        self.cls = cls
        self.changed: dict[Group, bool] = dict.fromkeys(cluster.waiting[cls], True)
        self._nodes: dict[Group, GroupNode] = nodes.nodes
        self._slots: list[Group | None] = []
        self._slot_of: dict[Group, int] = {}
        self._sizes, self._turns, self._arcs = array("q"), array("q"), array("q")
        """By slot: number of waiting tasks, 0 for an empty slot; turn of the first task; the two arcs of the group's node."""
        self._since = array("d")
        """By slot: time at which the first task began to wait, infinite for an empty slot."""
        self._ids: list[tuple[Hashable, ...]] = []
        """Tasks by slot; out of date for slots in `_stale`."""
        self._stale: dict[int, None] = {}
        self._blocks: list[tuple[tuple[Hashable, ...], ...] | None] = []
        """Tasks by block; None if a group of the block has changed."""
        self.plain = True
        self._odd: dict[Group, None] = {}
        """Groups that are not plain."""
        self._order: list[int] | None = None
        """Slots by the turn of their group's first task."""
        self._head: Head | None = None
        self.cached: QueuedTasks | None = None

    def refresh(self) -> None:
        """Apply the changed groups."""
        for group, entered in self.changed.items():
            slot = self._slot_of.get(group)
            if slot is not None and (entered or not group.waiting):
                self._leave(group, slot)
                slot = None
            if group.waiting:
                slot = self._enter(group) if slot is None else slot
                node = self._nodes[group]
                first = group.waiting[0]
                self._sizes[slot], self._turns[slot] = len(group.waiting), first.turn
                self._since[slot] = inf if first.since is None else first.since  # a round sets dates first
                self._arcs[2 * slot], self._arcs[2 * slot + 1] = node.run, node.wait
                self._stale[slot] = self._blocks[slot // _BLOCK] = None
        if len(self._slots) > 2 * len(self._slot_of) + _BLOCK:
            self._close_ranks()
        self._order = self._head = self.cached = None
        self.changed.clear()

    def _enter(self, group: Group) -> int:
        slot = self._slot_of[group] = len(self._slots)
        self._slots.append(group)
        self._sizes.append(0)
        self._turns.append(0)
        self._since.append(inf)
        self._arcs.extend((0, 0))
        self._ids.append(())
        if slot == len(self._blocks) * _BLOCK:
            self._blocks.append(None)
        if not group.plain():
            self._odd[group] = None
            self.plain = False
        return slot

    def _leave(self, group: Group, slot: int) -> None:
        del self._slot_of[group]
        self._slots[slot] = self._stale[slot] = self._blocks[slot // _BLOCK] = None
        self._sizes[slot], self._since[slot] = 0, inf
        self._odd.pop(group, None)
        self.plain = not self._odd

    def _freshen(self) -> None:
        for slot in self._stale:
            group = self._slots[slot]
            self._ids[slot] = () if group is None else ids_of((group,))
        self._stale.clear()

    def _close_ranks(self) -> None:
        """Remove the empty slots."""
        self._freshen()
        full = self._full()
        sizes, turns, arcs = self._columns()
        columns = (array("q", column[full].tobytes()) for column in (sizes, turns, arcs))
        self._slots = list(self.groups)
        self._slot_of = {group: slot for slot, group in enumerate(self._slots) if group is not None}
        self._ids = list(filter(None, self._ids))
        self._blocks = [None] * -(-len(self._slots) // _BLOCK)
        self._sizes, self._turns, self._arcs = columns
        self._since = array("d", [since for since in self._since if since < inf])

    def _columns(self) -> tuple[Ints, Ints, Ints]:
        """Return sizes, turns and arcs by slot, to be read at once: a new slot moves the arrays."""
        sizes, turns, arcs = (np.frombuffer(column, np.int64) for column in (self._sizes, self._turns, self._arcs))
        return sizes, turns, arcs.reshape(-1, 2)

    def _full(self) -> Ints | slice:
        """Return the slots in use."""
        if len(self._slot_of) == len(self._slots):
            return slice(None)
        return np.flatnonzero(np.frombuffer(self._sizes, np.int64))

    @property
    def groups(self) -> list[Group]:
        """The groups, in the order of `Cluster.waiting`."""
        return [group for group in self._slots if group is not None]

    @property
    def tasks(self) -> QueuedTasks:
        """The tasks."""
        if self.cached is None:
            self._freshen()
            for i, block in enumerate(self._blocks):
                if block is None:
                    self._blocks[i] = tuple(self._ids[i * _BLOCK : (i + 1) * _BLOCK])
            self.cached = QueuedTasks(self.cls, sum(self._sizes), tuple(self._blocks), self._sizes[:])  # type: ignore[arg-type]
        return self.cached

    @property
    def arcs(self) -> array[int]:
        """Arcs by which tasks of each slot run and wait, in turns."""
        return self._arcs

    def _in_line(self) -> list[int]:
        """Return the slots of groups in order of the turn of their first task."""
        if self._order is None:
            self._order = sorted(self._slot_of.values(), key=self._turns.__getitem__)
        return self._order

    def head(self) -> Head | None:
        """Return the first task; None if a group is not plain."""
        if self._head is None and self.plain:
            self._head = self._find_head()
        return self._head

    def _find_head(self) -> Head:
        turns = self._turns
        first = second = -1
        for slot in self._slot_of.values():
            if first < 0 or turns[slot] < turns[first]:
                first, second = slot, first
            elif second < 0 or turns[slot] < turns[second]:
                second = slot
        group = self._slots[first]
        assert group is not None
        whole = second < 0 or group.waiting[-1].turn < turns[second]
        ahead = len(group.waiting) if whole else 1
        return Head(group, self._since[first], min(self._since), group.job.serial, ahead)

    def _by_turn(self) -> Iterator[Group]:
        """Yield the plain groups of which tasks may start, in order of arrival of their first tasks."""
        for slot in self._in_line():
            group = self._slots[slot]
            if group is not None and group not in self._odd and self._nodes[group].waiting:
                yield group

    def oldest(self, count: int) -> list[tuple[Group, int]]:
        """Return the oldest `count` tasks of plain groups that may start; they are in the `count` groups with the oldest first tasks."""
        if not count:
            return []
        head = self.head()
        if head is not None and count <= head.ahead and self._nodes[head.group].waiting:
            return [(head.group, count)]
        by_turn = self._by_turn()
        first = next(by_turn)
        if count == 1:
            return [(first, 1)]
        second = next(by_turn, None)
        if second is None:
            return [(first, min(count, len(first.waiting)))]
        if count <= len(first.waiting) and first.waiting[count - 1].turn < second.waiting[0].turn:
            return [(first, count)]
        heads = [first, second, *islice(by_turn, count - 2)]
        if next(by_turn, None) is None and count == sum(len(group.waiting) for group in heads):
            return [(group, len(group.waiting)) for group in heads]
        chosen: dict[Group, int] = {}
        for task in islice(merge(*(group.waiting for group in heads)), count):
            chosen[task.group] = chosen.get(task.group, 0) + 1
        return list(chosen.items())


class Queues:
    """Queues of all classes with waiting tasks.

    Parameters
    ----------
    cluster : Cluster
    nodes : GroupNodes
    """

    def __init__(self, cluster: Cluster, nodes: GroupNodes) -> None:
        self.cluster = cluster
        self.nodes = nodes
        cluster.queues.clear()

    def of(self, cls: TaskClass) -> ClassQueue:
        """Return the queue of a class that has waiting tasks, as it is now."""
        queue: ClassQueue | None = self.cluster.queues.get(cls)
        if queue is None:
            queue = self.cluster.queues[cls] = ClassQueue(cls, self.cluster, self.nodes)
        if queue.changed:
            queue.refresh()
        return queue

    def all(self) -> list[ClassQueue]:
        """Return the queues of all classes."""
        known, of = self.cluster.queues.get, self.of
        return [queue if (queue := known(cls)) and not queue.changed else of(cls) for cls in self.cluster.waiting]
