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
from flowsched.cluster.columns import Columns, IdPool, column
from flowsched.cluster.records import Group
from flowsched.cluster.state import Cluster

__all__ = ["RunningArcs"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class RunningArcs(Columns, _running.RunningFields, typed=_running.RunningArcsColumns):
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

    def __init__(self, cluster: Cluster, batch: NetworkBatch, machines: MachineArcs, groups: GroupNodes) -> None:
        super().__init__()
        self.cluster = cluster
        self.batch = batch
        self.machines = machines
        self.groups = groups
        self._of = {}
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

    def forget_machines(self, group: Group, rows: Iterable[int]) -> None:
        """Forget the group's arcs to removed machines, whose removal removes the arcs."""
        at = self._of.get(group, {})
        _running.free_running(self, [at.pop(row) for row in rows if row in at])

    def forget_costs(self) -> None:
        """Send all costs again in the next update."""
        known = [index for at in self._of.values() for index in at.values()]
        self._bucket[known], self._due[known] = -1, -inf
        self._begin_ends()

    @property
    def due(self) -> float:
        """Time at which the next age bucket ends."""
        end: float = self.typed.end[0] if self._ends else inf  # valid: an update leaves no invalid entry on top
        return end

    def time_tells(self, now: float) -> bool:
        """Return True if an age bucket has ended."""
        return now >= self.due

    def kept_arcs(self) -> Iterator[KeptArcs]:
        """Yield the arcs kept by this part, with their ends."""
        nodes = self.groups.nodes
        known = [(index, nodes[group].node, row) for group, at in self._of.items() for row, index in at.items()]
        index, node, row = np.array(known, np.int64).reshape(-1, 3).T
        yield self._arc[index], node, self.machines.node[row]
