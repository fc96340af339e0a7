"""Running arcs: from groups to the machines where their tasks run, at a discount for staying there.

::

    g -- -stay(age of the run) --> M        capacity: tasks of g that run on M

They are Firmament's running arcs ("Firmament: Fast, Centralized Cluster Scheduling at Scale", Gog et al., 2016).
There are about as many as running tasks, so they are kept in arrays.  An update looks at those that were touched and
at those whose age bucket has ended: the ends of buckets are in a heap, each with the arcs of that bucket.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

import flowsched._pairs as _pairs
from flowsched.builder.batch import KeptArcs, NetworkBatch
from flowsched.builder.groups import GroupNode, GroupNodes
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
    groups : GroupNodes
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
    _since_view: Any = view("_since")
    _bucket_view: memoryview = view("_bucket")
    _due_view: Any = view("_due")

    def __init__(self, cluster: Cluster, batch: NetworkBatch, machines: MachineArcs, groups: GroupNodes) -> None:
        super().__init__()
        self.cluster = cluster
        self.batch = batch
        self.machines = machines
        self.groups = groups
        self._of: dict[Group, dict[int, int]] = {}
        """Indices of the arcs of each group of which a task has run, by row."""
        self._indices = IdPool()
        self._next = inf
        """No later than the least of `_due`."""
        self._begin_ends()

    def _begin_ends(self) -> None:
        self._ends: list[float] = []
        """Heap of ends of age buckets: the keys of `_ending`."""
        self._ending: dict[float, list[int]] = {}
        """By end of a bucket, arcs that it is the `_due` of, and others that it was."""

    def ending_at(self, due: float) -> list[int]:
        """Return the list of arcs whose age bucket ends then, to append to."""
        there = self._ending.get(due)
        if there is None:
            there = []
            if due < inf:
                self._ending[due] = there
                heappush(self._ends, due)
                if due < self._next:
                    self._next = due
        return there

    def _note_end(self, index: int, due: float) -> None:
        self._due_view[index] = due
        self.ending_at(due).append(index)

    def _ended(self, now: float) -> list[int]:
        """Return the arcs whose age bucket has ended, in ascending order; `_next` is the least of the other `_due`."""
        due = self._due_view
        found: set[int] = set()
        while self._ends:
            end = self._ends[0]
            current = (index for index in self._ending[end] if due[index] == end)
            if end <= now:
                found.update(current)
            elif next(current, None) is not None:
                break
            del self._ending[heappop(self._ends)]
        self._next = self._ends[0] if self._ends else inf
        return sorted(found)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        del state["_ends"], state["_ending"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._begin_ends()
        for index in np.flatnonzero(self._due < inf).tolist():
            self._note_end(index, self._due_view[index])

    def forget(self, group: Group) -> None:
        """Forget a group, and its arcs, which go with its node."""
        at = self._of.pop(group, None)
        if at:
            self._free([*at.values()])

    def forget_machines(self, group: Group, rows: Iterable[int]) -> None:
        """Forget the group's arcs to machines that go, which go with these."""
        at = self._of.get(group, {})
        self._free([at.pop(row) for row in rows if row in at])

    def _free(self, indices: list[int]) -> None:
        due = self._due_view
        for index in indices:
            due[index] = inf
        self._indices.give_some(indices)

    def forget_costs(self) -> None:
        """Send all costs again in the next update."""
        known = [index for at in self._of.values() for index in at.values()]
        self._bucket[known] = -1
        for index in known:
            self._note_end(index, -inf)
        self._next = -inf

    @property
    def due(self) -> float:
        """Time at which the next age bucket ends."""
        return self._next

    def time_tells(self, now: float) -> bool:
        """Return True if an age bucket has ended."""
        return now >= self._next

    def update(self, touched: dict[Group, dict[int, None]], policy: Policy, now: float) -> None:
        """Bring the arcs of these groups to these machines up to date, and those whose age bucket has ended."""
        old, aged, new, tails, heads, counts, starts = _pairs.find_running(self, touched)
        if old:
            self.batch.remove_arcs(list(map(self._arc_view.__getitem__, old)))
            self._free(old)
        if now >= self._next:
            aged = sorted({*aged, *self._ended(now)})
        if aged:
            self._age(aged, policy, now)
        if new:
            if self._indices.count > len(self._arc):
                self.grow(arcs=self._indices.count)
            costs = _pairs.begin_running(self, new, counts, starts, policy, now)
            arcs = self._arc_view
            for index, arc in zip(new, self.batch.new_arcs(tails, heads, counts, costs), strict=True):
                arcs[index] = arc

    def _age(self, indices: Sequence[int], policy: Policy, now: float) -> None:
        """Bring the costs of arcs up to date with their ages."""
        arcs, costs = [], []
        for index in indices:
            bucket, due, cost = self.age(self._since_view[index], policy, now)
            if bucket != self._bucket_view[index]:
                self._bucket_view[index] = bucket
                arcs.append(self._arc_view[index])
                costs.append(cost)
            self._note_end(index, due)
        self.batch.set_costs(arcs, costs)

    @staticmethod
    def age(since: float, policy: Policy, now: float) -> tuple[int, float, int]:
        """Return the age bucket of a run, when it ends, and the cost of a place there."""
        bucket, due = policy.waiting.bucket_and_due(since, now)
        return bucket, due, -policy.scale.stay(bucket)

    def kept_arcs(self) -> Iterator[KeptArcs]:
        """Yield the arcs that are kept here, with their ends."""
        nodes = self.groups.nodes
        known = [(index, nodes[group].node, row) for group, at in self._of.items() for row, index in at.items()]
        index, node, row = np.array(known, np.int64).reshape(-1, 3).T
        yield self._arc[index], node, self.machines.node[row]


_pairs.learn(Group, GroupNode)
