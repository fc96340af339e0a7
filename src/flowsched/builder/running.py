"""Running arcs: from groups to the machines where their tasks run, at a discount for staying there.

::

    g -- -stay(age of the run) --> M        capacity: tasks of g that run on M

They are Firmament's running arcs ("Firmament: Fast, Centralized Cluster Scheduling at Scale", Gog et al., 2016).
There are about as many as running tasks, so they are kept in arrays.  An update looks at those that were touched and
at those whose age bucket has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf

import numpy as np
from numpy.typing import NDArray

from flowsched.builder.batch import KeptArcs, NetworkBatch
from flowsched.builder.machines import MachineArcs
from flowsched.cluster.columns import Columns, IdPool, column, view
from flowsched.cluster.records import Group
from flowsched.cluster.state import Cluster
from flowsched.policy import Policy

__all__ = ["RunningArcs"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class RunningArcs(Columns):
    """One arc for each group and machine where some of its tasks run.

    Parameters
    ----------
    cluster : Cluster
    batch : NetworkBatch
    machines : MachineArcs
    """

    _arc: Ints = column("arcs")
    """Id of the arc."""
    _running: Ints = column("arcs")
    """Capacity of the arc: tasks of the group that run there."""
    _since: Floats = column("arcs", dtype=np.float64)
    """Start of the youngest of them; `inf` on a machine whose slots never run out, where nothing hangs on it."""
    _bucket: Ints = column("arcs")
    """Age bucket that the cost of the arc is of; -1 if the cost is out of date."""
    _due: Floats = column("arcs", dtype=np.float64, fill=inf)
    """End of that bucket; `inf` at an index that is not in use."""
    _arc_view: memoryview = view("_arc")
    _running_view: memoryview = view("_running")

    def __init__(self, cluster: Cluster, batch: NetworkBatch, machines: MachineArcs) -> None:
        super().__init__()
        self.cluster = cluster
        self.batch = batch
        self.machines = machines
        self._of: dict[Group, tuple[int, dict[int, int]]] = {}
        """Node of each group, and the indices of its arcs by row."""
        self._indices = IdPool()
        self._next = inf
        """No later than the least of `_due`."""

    def add(self, groups: Sequence[Group], nodes: Sequence[int]) -> None:
        """Add new groups, with their nodes."""
        self._of.update((group, (node, {})) for group, node in zip(groups, nodes, strict=True))

    def forget(self, group: Group) -> None:
        """Forget a group, and its arcs, which go with its node."""
        self._free(list(self._of.pop(group)[1].values()))

    def forget_machines(self, group: Group, rows: Iterable[int]) -> None:
        """Forget the group's arcs to machines that go, which go with these."""
        at = self._of[group][1] if group in self._of else {}
        self._free([at.pop(row) for row in rows if row in at])

    def _free(self, indices: list[int]) -> None:
        if indices:
            self._due[indices] = inf
            for index in indices:
                self._indices.give(index)

    def forget_costs(self) -> None:
        """Send all costs again in the next update."""
        known = [index for _, at in self._of.values() for index in at.values()]
        self._bucket[known], self._due[known] = -1, -inf
        self._next = -inf

    @property
    def due(self) -> float:
        """Time at which the next age bucket ends."""
        return self._next

    def time_tells(self, now: float) -> bool:
        """Return True if an age bucket has ended."""
        return now >= self._next

    def update(self, touched: Mapping[Group, Iterable[int]], policy: Policy, now: float) -> None:
        """Bring the arcs of these groups to these machines up to date, and those whose age bucket has ended."""
        limits, set_capacity = self.cluster.inventory.limits, self.batch.set_capacity
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
                if self._running_view[index] != len(began):
                    self._running_view[index] = len(began)
                    set_capacity(self._arc_view[index], len(began))
                if self._since[index] != since:
                    self._since[index] = since
                    aged.append(index)
        if old:
            self.batch.remove_arcs(self._arc[old])
            self._free(old)
        if now >= self._next:
            aged = np.union1d(aged, np.flatnonzero(self._due <= now)).astype(np.int64).tolist()
            self._next = float(self._due[self._due > now].min(initial=inf))
        if aged:
            self._age(np.array(aged, np.int64), policy, now)
        if new:
            self._add(new, policy, now)

    def _age(self, index: Ints, policy: Policy, now: float) -> None:
        """Bring the costs of arcs up to date with their ages."""
        bucket, due = self._ages(self._since[index], policy, now)
        other = bucket != self._bucket[index]
        self.batch.set_costs(self._arc[index[other]], -policy.stays(bucket[other]))
        self._bucket[index], self._due[index] = bucket, due
        self._next = min(self._next, float(due.min()))

    def _ages(self, since: Floats, policy: Policy, now: float) -> tuple[Ints, Floats]:
        bucket = policy.waiting.buckets_of(now - since)
        return bucket, since + policy.waiting.ends_of(bucket)

    def _add(self, new: Sequence[tuple[int, int, int, int, float]], policy: Policy, now: float) -> None:
        """Add arcs, each given as its index, the group's node, the machine's row, running tasks, and their start."""
        at, tails, rows, running, since = (np.array(column) for column in zip(*new, strict=True))
        self.grow(arcs=self._indices.count)
        bucket, due = self._ages(since, policy, now)
        self._arc[at] = self.batch.add_arcs(tails, self.machines.node[rows], running, -policy.stays(bucket))
        self._running[at], self._since[at], self._bucket[at], self._due[at] = running, since, bucket, due
        self._next = min(self._next, float(due.min()))

    def kept_arcs(self) -> Iterator[KeptArcs]:
        """Yield the arcs that are kept here, with their ends."""
        known = [(index, node, row) for node, at in self._of.values() for row, index in at.items()]
        index, node, row = np.array(known, np.int64).reshape(-1, 3).T
        yield self._arc[index], node, self.machines.node[row]
