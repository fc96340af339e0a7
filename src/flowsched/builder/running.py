"""Arcs from groups to the machines where their tasks run already: they may stay there, at a discount.

::

    g -- -stay(age of the run) --> M        capacity: how many run there

There are about as many as running tasks, so they are kept in arrays, and an update looks at those that were touched and
at those whose age bucket has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf

import numpy as np
from numpy.typing import NDArray

from flowsched.builder.batch import NetworkBatch
from flowsched.builder.machines import MachineArcs
from flowsched.cluster.columns import IdPool, Viewed, grown
from flowsched.cluster.records import Group
from flowsched.cluster.state import Cluster
from flowsched.policy import Policy

__all__ = ["RunningArcs"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class RunningArcs(Viewed):
    """Keeps one arc for each group and machine where some of its tasks run.

    Parameters
    ----------
    cluster : Cluster
    edits : Edits
        Way into the network.
    places : Places
        Where the arcs lead.
    """

    def __init__(self, cluster: Cluster, edits: NetworkBatch, places: MachineArcs) -> None:
        self.cluster = cluster
        self.edits = edits
        self.places = places
        self._of: dict[Group, tuple[int, dict[int, int]]] = {}
        self._indices = IdPool()
        # By index: the arc, how many run, since when the youngest does (`inf` where slots never run out, so that nothing
        # hangs on it), in which age bucket it is, and when that ends.
        self._arc: Ints = np.zeros(8, np.int64)
        self._running: Ints = np.zeros(8, np.int64)
        self._since = np.zeros(8)
        self._bucket: Ints = np.zeros(8, np.int64)
        self._due = np.full(8, inf)
        self._next = inf
        self._view()

    def _view(self) -> None:
        """Single numbers are read and written through views: several times as fast as through NumPy."""
        self._arcs, self._counts = self._arc.data, self._running.data

    def add(self, groups: Sequence[Group], nodes: Sequence[int]) -> None:
        """Groups are new, with their nodes."""
        self._of.update((group, (node, {})) for group, node in zip(groups, nodes, strict=True))

    def forget(self, group: Group) -> None:
        """A group goes, and its arcs with its node."""
        self._free(list(self._of.pop(group)[1].values()))

    def forget_machines(self, group: Group, rows: Iterable[int]) -> None:
        """Machines go, and the group's arcs to them with their nodes."""
        at = self._of[group][1] if group in self._of else {}
        self._free([at.pop(row) for row in rows if row in at])

    def _free(self, indices: list[int]) -> None:
        if indices:
            self._due[indices] = inf
            for index in indices:
                self._indices.give(index)

    def forget_costs(self) -> None:
        """Everything costs something else."""
        known = [index for _, at in self._of.values() for index in at.values()]
        self._bucket[known], self._due[known] = -1, -inf
        self._next = -inf

    @property
    def due(self) -> float:
        """When the next age bucket ends."""
        return self._next

    def time_tells(self, now: float) -> bool:
        """Whether an age bucket has ended."""
        return now >= self._next

    def update(self, touched: Mapping[Group, Iterable[int]], policy: Policy, now: float) -> None:
        """Bring the arcs of these groups to these machines up to date, and those whose age bucket has ended."""
        limits, capacity = self.cluster.inventory.limits, self.edits.capacity
        new: list[tuple[int, int, int, int, float]] = []
        old: list[int] = []
        aged: list[int] = []
        for group, rows in touched.items():
            node, at = self._of[group]
            for row in rows:
                began, index = group.on.get(row), at.get(row)
                if began is None:
                    if index is not None:
                        old.append(at.pop(row))
                    continue
                since = max(began) if limits(row) else inf
                if index is None:
                    index = at[row] = self._indices.take()
                    new.append((index, node, row, len(began), since))
                    continue
                if self._counts[index] != len(began):
                    self._counts[index] = capacity[self._arcs[index]] = len(began)
                if self._since[index] != since:
                    self._since[index] = since
                    aged.append(index)
        if old:
            self.edits.remove_arcs(self._arc[old])
            self._free(old)
        if now >= self._next:
            aged = np.union1d(aged, np.flatnonzero(self._due <= now)).astype(np.int64).tolist()
            self._next = float(self._due[self._due > now].min(initial=inf))
        if aged:
            self._age(np.array(aged, np.int64), policy, now)
        if new:
            self._add(new, policy, now)

    def _age(self, index: Ints, policy: Policy, now: float) -> None:
        """The ages of some must be looked at."""
        bucket, due = self._ages(self._since[index], policy, now)
        other = bucket != self._bucket[index]
        self.edits.set_cost(self._arc[index[other]], -policy.stays(bucket[other]))
        self._bucket[index], self._due[index] = bucket, due
        self._next = min(self._next, float(due.min()))

    def _ages(self, since: Floats, policy: Policy, now: float) -> tuple[Ints, Floats]:
        bucket = policy.waiting.buckets_of(now - since)
        return bucket, since + policy.waiting.ends_of(bucket)

    def _add(self, new: Sequence[tuple[int, int, int, int, float]], policy: Policy, now: float) -> None:
        """New arcs, each given as its index, the group's node, the machine's row, how many run, and since when."""
        at, tails, rows, running, since = (np.array(column) for column in zip(*new, strict=True))
        if self._indices.count > len(self._arc):
            for name in ("_arc", "_running", "_since", "_bucket"):
                setattr(self, name, grown(getattr(self, name), self._indices.count))
            self._due = grown(self._due, self._indices.count, fill=inf)
            self._view()
        bucket, due = self._ages(since, policy, now)
        self._arc[at] = self.edits.add_arcs(tails, self.places.node[rows], running, -policy.stays(bucket))
        self._running[at], self._since[at], self._bucket[at], self._due[at] = running, since, bucket, due
        self._next = min(self._next, float(due.min()))
