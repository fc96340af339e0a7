"""Waiting tasks by class, kept so that the cost of a read depends on the changes.

The groups of a class stand in *slots*, in the order of `Cluster.waiting`; a group that comes takes a new slot at the end, and
a slot that a group has left stays empty until half of them are.  Data of all groups is kept by slot, in columns or in
blocks of slots; a block is made again after one of its groups has changed.  A round handles single groups only if they
have changed since the last `refresh`.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import merge
from itertools import chain, islice
from math import inf
from typing import cast

import numpy as np
from numpy.typing import NDArray

from flowsched.builder.groups import GroupNodes
from flowsched.cluster.columns import Columns, column
from flowsched.cluster.records import Group, TaskClass, ids_of
from flowsched.cluster.state import Cluster
from flowsched.policy import WaitCost

__all__ = ["ClassQueue", "Heads", "QueuedTasks", "Queues"]

Ints = NDArray[np.int64]

_BLOCK = 128
"""Number of slots in a block."""


@dataclass(frozen=True, slots=True, eq=False)
class QueuedTasks:
    """Tasks of a queue, for readers that keep them after the queue changes.

    Attributes
    ----------
    cls : TaskClass
    count : int
    blocks : tuple of tuple of tuple of hashable
        Tasks of each group, in blocks of groups.
    sizes : ndarray of int64, shape (groups,)
    """

    cls: TaskClass
    count: int
    blocks: tuple[tuple[tuple[Hashable, ...], ...], ...]
    sizes: Ints

    @property
    def ids(self) -> tuple[Hashable, ...]:
        """Ids of the tasks."""
        return tuple(chain.from_iterable(chain.from_iterable(self.blocks)))


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
        self._nodes = nodes.nodes
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
        self._ahead = 0, -1
        """Slot of the first task's group, and the number of its tasks known to be before all others; -1 if unknown."""
        self.cached: QueuedTasks | None = None
        self._arcs_cached: Ints | None = None

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
        self._order = self.cached = self._arcs_cached = None
        self._ahead = 0, -1
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
            sizes = np.array(self._sizes)[self._full()]
            self.cached = QueuedTasks(
                self.cls,
                sum(self._sizes),
                cast("tuple[tuple[tuple[Hashable, ...], ...], ...]", tuple(self._blocks)),
                sizes,
            )
        return self.cached

    @property
    def arcs(self) -> Ints:
        """Arcs by which tasks of each group run and wait, in turns; shape (2 * groups,)."""
        if self._arcs_cached is None:
            self._arcs_cached = np.array(self._arcs).reshape(-1, 2)[self._full()].ravel()
        return self._arcs_cached

    def _in_line(self) -> list[int]:
        """Return the slots of groups in order of the turn of their first task."""
        if self._order is None:
            self._order = order = sorted(self._slot_of.values(), key=self._turns.__getitem__)
            if self.plain:
                first, *others = [group.waiting for slot in order[:2] if (group := self._slots[slot]) is not None]
                whole = not others or first[-1].turn < others[0][0].turn
                self._ahead = order[0], len(first) if whole else 1
        return self._order

    @property
    def first(self) -> tuple[Group, int]:
        """The first group by turn, if all are plain, and the number of its tasks known to be before all others."""
        self._in_line()
        slot, ahead = self._ahead
        group = self._slots[slot]
        assert group is not None
        return group, ahead

    @property
    def eldest(self) -> float:
        """Time at which the first task of any group began to wait."""
        return min(self._since)

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
        slot, ahead = self._ahead
        if count <= ahead and (group := self._slots[slot]) is not None and self._nodes[group].waiting:
            return [(group, count)]
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


class Heads(Columns):
    """First tasks of classes in columns, so that many classes are compared with a few operations.

    An entry is made on request, and is valid until a group of its class changes.

    Parameters
    ----------
    queues : Queues
    waiting : WaitCost

    Attributes
    ----------
    ends : ndarray of float64
        Ends of the age buckets.
    used : bool
        True once an entry was made.
    """

    times: NDArray[np.float64] = column("classes", "two", dtype=np.float64)
    """Waiting since: of the first task by turn, and of the task of the class that has waited longest."""
    line: Ints = column("classes", "two")
    """Serial of the first task's job, and the number of tasks of its group known to be before all others of the class.

    The second number is 0 for an invalid entry.
    """

    def __init__(self, queues: Queues, waiting: WaitCost) -> None:
        super().__init__(two=2)
        self.ends = np.array(waiting.ends, np.float64)
        self._queues = queues
        self.used = False

    def stir(self, touched: Iterable[Group], removed: Iterable[Group]) -> None:
        """Invalidate the entries of classes after a change of these groups."""
        classes = np.array([group.cls.index for group in chain(touched, removed)], np.int64)
        self.line[classes[classes < len(self.line)], 1] = 0

    def look(self, index: Ints, classes: Mapping[int, TaskClass]) -> bool:
        """Bring the entries of classes up to date; return False if a class has a group that is not plain.

        Parameters
        ----------
        index : ndarray of int64
            Classes with waiting tasks.
        classes : mapping of int to TaskClass
            Classes by index, at least the above.
        """
        self.used = True
        self.grow(classes=int(index.max()) + 1)
        for class_id in index[self.line[index, 1] == 0].tolist():
            queue = self._queues.of(classes[class_id])
            if not queue.plain:
                return False
            group, ahead = queue.first
            self.times[class_id] = group.waiting[0].since, queue.eldest
            self.line[class_id] = group.job.serial, ahead
        return True
