"""Waiting tasks by class, kept as long as none of them starts, stops, comes or goes."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cached_property
from heapq import merge
from itertools import accumulate, islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowsched.builder.groups import GroupNodes
from flowsched.cluster.records import Group, TaskClass
from flowsched.cluster.state import Cluster

__all__ = ["ClassQueue", "QueuedTasks", "Queues", "is_plain"]

Ints = NDArray[np.int64]


_SPARE = 64
"""Queues that are kept although none of their tasks waits any more."""


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
    ids : tuple of hashable
        See `Transitions.waiting_ids`.
    groups : tuple of Group
    nodes : GroupNodes

    Attributes
    ----------
    tasks : QueuedTasks
    plain : bool
        True if all groups are, see `is_plain`.
    """

    def __init__(self, cls: TaskClass, ids: tuple[Hashable, ...], groups: tuple[Group, ...], nodes: GroupNodes) -> None:
        self.cls = cls
        self.tasks = QueuedTasks(cls, ids, tuple(accumulate((len(group.waiting) for group in groups), initial=0)))
        self.groups = groups
        self.plain = all(map(is_plain, groups))
        self._nodes = nodes

    @cached_property
    def arcs(self) -> Ints:
        """See `GroupNodes.price_arcs`; shape (2 * groups,)."""
        return self._nodes.price_arcs(self.groups)

    @cached_property
    def by_turn(self) -> list[Group]:
        """Plain groups, by arrival of their first tasks."""
        return sorted(filter(is_plain, self.groups), key=_first_turn)

    def oldest(self, count: int) -> list[tuple[Group, int]]:
        """Return so many of the oldest tasks of plain groups that may start; they are among the heads of so many groups."""
        if not count:
            return []
        nodes = self._nodes.nodes
        if count >= len(self.by_turn):
            every = [(group, len(group.waiting)) for group in self.by_turn if nodes[group].waiting]
            if count == sum(units for _, units in every):
                return every
        heads = list(islice((group for group in self.by_turn if nodes[group].waiting), count))
        first = heads[0]
        if len(heads) == 1 or (
            count <= len(first.waiting) and first.waiting[count - 1].turn < heads[1].waiting[0].turn
        ):
            return [(first, min(count, len(first.waiting)))]
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
        self._known: dict[TaskClass, ClassQueue] = {}

    def of(self, cls: TaskClass) -> ClassQueue:
        """Return the queue of a class that has waiting tasks."""
        queue, ids = self._known.get(cls), self.cluster.waiting_ids(cls)
        if queue is None or queue.tasks.ids is not ids:
            queue = self._known[cls] = ClassQueue(cls, ids, tuple(self.cluster.waiting[cls]), self.nodes)
        return queue

    def all(self) -> list[ClassQueue]:
        """Return the queues of all classes."""
        if len(self._known) > 2 * len(self.cluster.waiting) + _SPARE:
            self._known = {cls: queue for cls, queue in self._known.items() if cls in self.cluster.waiting}
        known, ids_of = self._known, self.cluster.waiting_ids
        queues: list[ClassQueue] = []
        for cls in self.cluster.waiting:
            queue = known.get(cls)
            if queue is None or queue.tasks.ids is not ids_of(cls):
                queue = self.of(cls)
            queues.append(queue)
        return queues


def is_plain(group: Group) -> bool:
    """Return True for a group without data and gang: its tasks cost the flow the same as others of its class and age."""
    return not group.data and group.job.job.gang is None


def _first_turn(group: Group) -> int:
    return group.waiting[0].turn
