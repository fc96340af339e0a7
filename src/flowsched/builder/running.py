"""Running arcs: from groups to the machines where their tasks run, at a discount for staying there.

::

    g -- -stay(age of the run) --> M        capacity: tasks of g that run on M

They are Firmament's running arcs ("Firmament: Fast, Centralized Cluster Scheduling at Scale", Gog et al., 2016).
Their number is about that of running tasks, so they are kept in arrays.  An update handles touched arcs and those whose
age bucket has ended: the ends of buckets are in a heap, each with its arc.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

import flowsched.builder._running as _running
from flowsched.builder.batch import KeptArcs, NetworkBatch
from flowsched.builder.groups import GroupNodes
from flowsched.builder.machines import MachineArcs
from flowsched.cluster.columns import Columns, IdPool, column, view
from flowsched.cluster.records import Group
from flowsched.cluster.state import Cluster
from flowsched.policy import Policy

__all__ = ["RunningArcs"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class RunningArcs(Columns, typed=_running.RunningArcsColumns):
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
    """Capacity of the arc: running tasks of the group there."""
    _since: Floats = column("arcs", dtype=np.float64)
    """Start of the youngest of these tasks; `inf` on a machine with unlimited slots, where it has no effect."""
    _bucket: Ints = column("arcs")
    """Age bucket of the arc's cost; -1 if the cost is out of date."""
    _due: Floats = column("arcs", dtype=np.float64, fill=inf)
    """End of that bucket; `inf` at an unused index."""
    _end: Floats = column("ends", dtype=np.float64)
    """4-ary heap of ends of buckets: no entry is later than its children, at 4 * i + 1 to 4 * i + 4."""
    _ending: Ints = column("ends")
    """Arc index of each heap entry; the entry is valid while it equals the `_due` of the arc."""
    _arc_view: memoryview = view("_arc")
    _due_view: Any = view("_due")
    _end_view: Any = view("_end")
    _ending_view: memoryview = view("_ending")

    def __init__(self, cluster: Cluster, batch: NetworkBatch, machines: MachineArcs, groups: GroupNodes) -> None:
        super().__init__()
        self.cluster = cluster
        self.batch = batch
        self.machines = machines
        self.groups = groups
        self._of: dict[Group, dict[int, int]] = {}
        """Indices of the arcs by group and row, for groups with tasks that have run."""
        self._indices = IdPool()
        self._ends = 0
        """Length of the heap."""

    def _begin_ends(self, more: int = 0) -> None:
        """Build the heap from the valid ends, with spare room for `more` ends and one per arc, so that it seldom grows."""
        index = np.flatnonzero(self._due < inf)
        index = index[np.argsort(self._due[index], kind="stable")]
        self._ends = len(index)
        self.grow(ends=self._ends + len(self._due) + more)
        self._end[: self._ends], self._ending[: self._ends] = self._due[index], index

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state["_end"], state["_ending"], state["_ends"] = np.zeros(0), np.zeros(0, np.int64), 0
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._begin_ends()

    def forget(self, group: Group) -> None:
        """Forget a group and its arcs, which the removal of its node removes."""
        at = self._of.pop(group, None)
        if at:
            self._free([*at.values()])

    def forget_machines(self, group: Group, rows: Iterable[int]) -> None:
        """Forget the group's arcs to removed machines, whose removal removes the arcs."""
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
        self._bucket[known], self._due[known] = -1, -inf
        self._begin_ends()

    @property
    def due(self) -> float:
        """Time at which the next age bucket ends."""
        end: float = self._end_view[0] if self._ends else inf  # valid: an update leaves no invalid entry on top
        return end

    def time_tells(self, now: float) -> bool:
        """Return True if an age bucket has ended."""
        return now >= self.due

    def update(self, touched: dict[Group, dict[int, None]], policy: Policy, now: float) -> None:
        """Bring the arcs of these groups to these machines up to date, and those whose age bucket has ended."""
        old, aged, new, tails, heads, counts, starts = _running.find_running(self, touched)
        if old:
            self.batch.remove_arcs(list(map(self._arc_view.__getitem__, old)))
            self._free(old)
        if self._ends + len(aged) + len(new) > len(self._end_view):
            self._begin_ends(len(aged) + len(new))
        end = self.due
        if aged or now >= end or (end < inf and end != self._due_view[self._ending_view[0]]):
            _running.age_running(self, aged, policy, now)
        if new:
            if self._indices.count > len(self._arc):
                self.grow(arcs=self._indices.count)
            costs = _running.begin_running(self, new, counts, starts, policy, now)
            arcs = self._arc_view
            for index, arc in zip(new, self.batch.new_arcs(tails, heads, counts, costs), strict=True):
                arcs[index] = arc

    @staticmethod
    def age(since: float, policy: Policy, now: float) -> tuple[int, float, int]:
        """Return the age bucket of a run, its end, and the cost of a place there; one endless bucket if age has no price there."""
        bucket, due = policy.waiting.bucket_and_due(since, now) if policy.scale.price else (0, inf)
        return bucket, due, -policy.scale.stay(bucket)

    def kept_arcs(self) -> Iterator[KeptArcs]:
        """Yield the arcs kept by this part, with their ends."""
        nodes = self.groups.nodes
        known = [(index, nodes[group].node, row) for group, at in self._of.items() for row, index in at.items()]
        index, node, row = np.array(known, np.int64).reshape(-1, 3).T
        yield self._arc[index], node, self.machines.node[row]
