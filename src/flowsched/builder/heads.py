"""First tasks in line of each class, in columns: many classes are compared by a look at few numbers.

An entry is made when it is asked for, and holds until a group of its class changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

import numpy as np
from numpy.typing import NDArray

from flowsched.builder.groups import GroupNodes
from flowsched.builder.queues import Queues
from flowsched.cluster.columns import Columns, column
from flowsched.cluster.records import Group, TaskClass
from flowsched.policy import WaitCost

__all__ = ["Heads"]

Ints = NDArray[np.int64]


class Heads(Columns):
    """First tasks of classes.

    Parameters
    ----------
    queues : Queues
    groups : GroupNodes
    """

    since: NDArray[np.float64] = column("classes", dtype=np.float64)
    """When the first task began to wait."""
    job: Ints = column("classes")
    """Serial of its job."""
    turn: Ints = column("classes")
    """Its turn."""
    _ahead: Ints = column("classes")
    """Tasks of its group known to be in front of all others of the class; 0 for an entry that does not hold."""

    def __init__(self, queues: Queues, groups: GroupNodes) -> None:
        super().__init__()
        self._queues = queues
        self._groups = groups
        self._used = False
        self._latest = -inf

    def stir(self, groups: Iterable[Group]) -> None:
        """Let the entries of classes hold no longer: these groups of theirs have changed."""
        if self._used:
            known = len(self._ahead)
            self._ahead[[group.cls.index for group in groups if group.cls.index < known]] = 0

    def ages(
        self, index: Ints, units: Ints, classes: Mapping[int, TaskClass], waiting: WaitCost, now: float
    ) -> Ints | None:
        """Bring entries up to date; return the greatest age bucket among the groups of the first tasks of each class.

        None where a class has other groups than plain ones (see `queues.is_plain`), or a later time was told before.

        Parameters
        ----------
        index : ndarray of int64, shape (n,)
            Classes of which tasks wait.
        units : ndarray of int64, shape (n,)
            How many tasks of each.
        classes : mapping of int to TaskClass
            These and others by index.
        waiting : WaitCost
        now : float
        """
        if now < self._latest:  # groups may have a bucket as of that time
            return None
        self._used, self._latest = True, now
        self.grow(classes=int(index.max()) + 1)
        for class_id in index[self._ahead[index] == 0].tolist():
            queue = self._queues.of(classes[class_id])
            if not queue.plain:
                return None
            group, self._ahead[class_id] = queue.first
            task = group.waiting[0]
            self.since[class_id], self.job[class_id], self.turn[class_id] = task.since, group.job.serial, task.turn
        ages = waiting.buckets_of(now - self.since[index])
        for i in np.flatnonzero(units > self._ahead[index]).tolist():
            groups = self._queues.of(classes[int(index[i])]).oldest(int(units[i]))
            ages[i] = max(self._groups.nodes[group].bucket for group, _ in groups)
        return ages
