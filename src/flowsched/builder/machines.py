"""Nodes of machines, and their arcs to the sink.

::

    M --0--> S        capacity: the machine's slots, or its running tasks if they are more
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from flowsched.builder._running import MachineArcsColumns
from flowsched.builder.batch import KeptArcs, NetworkBatch
from flowsched.cluster.columns import Columns, column, view
from flowsched.cluster.model import UNLIMITED
from flowsched.cluster.state import Cluster
from flowsched.network.results import INF

__all__ = ["MachineArcs"]

Ints = NDArray[np.int64]


class MachineArcs(Columns, typed=MachineArcsColumns):
    """Machines in a network.

    Parameters
    ----------
    cluster : Cluster
    batch : NetworkBatch

    Attributes
    ----------
    sink : int
        The node that absorbs every task.
    seen : int
        Value of `Inventory.clock` at the last update.
    """

    node: Ints = column("rows", fill=-1)
    """Node of each machine, -1 for a row without one."""
    node_view: memoryview = view("node")
    _arc: Ints = column("rows", fill=-1)
    """Arc from that node to the sink, -1 exactly where there is no node."""
    _capacity: Ints = column("rows")
    """Capacity of that arc."""

    def __init__(self, cluster: Cluster, batch: NetworkBatch) -> None:
        super().__init__()
        self.cluster = cluster
        self.batch = batch
        (self.sink,) = batch.new_nodes(1)
        self.seen = 0

    @property
    def room(self) -> int:
        """Number of rows for which the arrays have room."""
        return len(self.node)

    def knows(self, row: int) -> bool:
        """Return True if the row has a node."""
        return row < len(self.node) and bool(self.node[row] >= 0)

    def add(self, rows: Ints) -> None:
        """Add nodes for new machines."""
        if len(rows):
            self.node[rows] = self.batch.add_nodes(len(rows))
            inventory = self.cluster.inventory
            self._capacity[rows] = _limits(np.maximum(inventory.slots[rows], inventory.running[rows]))
            sinks = np.full(len(rows), self.sink)
            self._arc[rows] = self.batch.add_arcs(self.node[rows], sinks, self._capacity[rows], 0)

    def forget(self, rows: Sequence[int]) -> list[int]:
        """Forget machines; return their nodes, for removal."""
        nodes: list[int] = self.node[rows].tolist()
        self.node[rows] = self._arc[rows] = -1
        return nodes

    def forget_costs(self) -> None:
        """Check every machine in the next update."""
        self.seen = 0

    def update(self, one_more: bool) -> None:
        """Send changed slots of machines: all of them, or one more than are taken."""
        inventory = self.cluster.inventory
        rows = inventory.changed_since(self.seen)
        self.seen = inventory.clock
        limits = _limits(np.maximum(inventory.slots[rows], inventory.running[rows]))
        if one_more:
            limits = np.minimum(limits, inventory.running[rows] + 1)
        other = limits != self._capacity[rows]
        if other.any():
            self._capacity[rows[other]] = limits[other]
            self.batch.set_capacities(self._arc[rows[other]], limits[other])

    def kept_arcs(self) -> Iterator[KeptArcs]:
        """Yield the arcs kept by this part, with their ends."""
        rows = np.flatnonzero(self._arc >= 0)
        yield self._arc[rows], self.node[rows], np.full(len(rows), self.sink)


def _limits(slots: Ints) -> Ints:
    return np.where(slots < UNLIMITED, slots, INF)
