"""Waiting tasks by class, kept as long as none of them starts, stops, comes or goes."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cached_property
from heapq import merge
from itertools import accumulate, islice
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from flowsched.builder.groups import GroupNodes
from flowsched.cluster.records import Group, TaskClass
from flowsched.cluster.state import Cluster

__all__ = ["ClassQueue", "QueuedTasks", "Queues", "is_plain"]

Ints = NDArray[np.int64]


class QueuedTasks(NamedTuple):
    """Tasks of a queue, for those who outlast it.

    Attributes
    ----------
    cls : TaskClass
    ids : tuple of hashable
        Tasks, group by group; see `Transitions.waiting_ids`.
    bounds : tuple of int
        Tasks of group i are ``ids[bounds[i]:bounds[i + 1]]``.
    """

    cls: TaskClass
    ids: tuple[Hashable, ...]
    bounds: tuple[int, ...]


class ClassQueue:
    """Waiting tasks of one class, while it has just these.

    Parameters
    ----------
    cls : TaskClass
    cluster : Cluster
    nodes : GroupNodes

    Attributes
    ----------
    groups : tuple of Group
    plain : bool
        True if all groups are, see `is_plain`.
    """

    def __init__(self, cls: TaskClass, cluster: Cluster, nodes: GroupNodes) -> None:
        self.cls = cls
        self.groups = tuple(cluster.waiting[cls])
        self.plain = all(map(is_plain, self.groups))
        self._cluster = cluster
        self._nodes = nodes
        self._arcs: Ints | None = None
        self._by_turn: list[Group] | None = None

    @cached_property
    def tasks(self) -> QueuedTasks:
        """The tasks; the same object for as long as the queue is."""
        bounds = tuple(accumulate((len(group.waiting) for group in self.groups), initial=0))
        return QueuedTasks(self.cls, self._cluster.waiting_ids(self.cls), bounds)

    @property
    def arcs(self) -> Ints:
        """See `GroupNodes.price_arcs`; shape (2 * groups,)."""
        if self._arcs is None:
            self._arcs = self._nodes.price_arcs(self.groups)
        return self._arcs

    @property
    def by_turn(self) -> list[Group]:
        """Plain groups, by arrival of their first tasks."""
        if self._by_turn is None:
            groups = list(self.groups) if self.plain else list(filter(is_plain, self.groups))
            self._by_turn = sorted(groups, key=_first_turn) if len(groups) > 1 else groups
        return self._by_turn

    def oldest(self, count: int) -> list[tuple[Group, int]]:
        """Return so many of the oldest tasks of plain groups that may start; they are among the heads of so many groups."""
        if not count:
            return []
        nodes, by_turn = self._nodes.nodes, self.by_turn
        if count == 1:
            return [(next(group for group in by_turn if nodes[group].waiting), 1)]
        first = second = None
        for group in by_turn:
            if nodes[group].waiting:
                if first is not None:
                    second = group
                    break
                first = group
        assert first is not None
        if second is None:
            return [(first, min(count, len(first.waiting)))]
        if count <= len(first.waiting) and first.waiting[count - 1].turn < second.waiting[0].turn:
            return [(first, count)]
        if count >= len(by_turn):
            every = [(group, len(group.waiting)) for group in by_turn if nodes[group].waiting]
            if count == sum(units for _, units in every):
                return every
        heads = list(islice((group for group in by_turn if nodes[group].waiting), count))
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
        """Return the queue of a class that has waiting tasks."""
        queue: ClassQueue | None = self.cluster.queues.get(cls)
        if queue is None:
            queue = self.cluster.queues[cls] = ClassQueue(cls, self.cluster, self.nodes)
        return queue

    def all(self) -> list[ClassQueue]:
        """Return the queues of all classes."""
        waiting = self.cluster.waiting
        found: list[ClassQueue | None] = list(map(self.cluster.queues.get, waiting))
        if None in found:
            classes = list(waiting)
            while None in found:  # few are
                i = found.index(None)
                found[i] = self.of(classes[i])
        return cast(list[ClassQueue], found)


def is_plain(group: Group) -> bool:
    """Return True for a group without data and gang: its tasks cost the flow the same as others of its class and age."""
    return not group.data and group.job.job.gang is None


def _first_turn(group: Group) -> int:
    return group.waiting[0].turn
