"""Changes of a flow network, collected so that each kind is one call, and counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from flowsched.network.flow_network import FlowNetwork

__all__ = ["NetworkBatch"]

Ints = NDArray[np.int64]


class NetworkBatch:
    """Alters a network: nodes and arcs come and go at once, single numbers wait for `flush`.

    Attributes
    ----------
    count : int
        Nodes and arcs added, removed and altered so far.
    supply, capacity, cost : dict of int to int
        Numbers that wait, by node or arc: whoever has one to set puts it there.
    """

    def __init__(self, network: FlowNetwork) -> None:
        self.network = network
        self.count = 0
        self.supply: dict[int, int] = {}
        self.capacity: dict[int, int] = {}
        self.cost: dict[int, int] = {}

    def add_nodes(self, count: int) -> Ints:
        """New nodes without supply."""
        self.count += count
        return self.network.add_nodes(np.zeros(count, np.int64))

    def add_arcs(self, tail: Ints, head: Ints, capacity: int | Ints, cost: int | Ints) -> Ints:
        """New arcs."""
        self.count += len(tail)
        return self.network.add_arcs(tail, head, capacity, cost)

    def remove_nodes(self, nodes: Sequence[int]) -> None:
        """Remove nodes with their arcs."""
        if nodes:
            self.count += len(nodes)
            self.flush()
            self.network.remove_nodes(np.array(nodes, np.int64))

    def remove_arcs(self, arcs: Sequence[int] | Ints) -> None:
        """Remove arcs."""
        if len(arcs):
            self.count += len(arcs)
            self.flush()
            self.network.remove_arcs(np.asarray(arcs, np.int64))

    def set_capacity(self, arcs: Ints, capacity: Ints) -> None:
        """Set many capacities at once."""
        self.count += _send(self.capacity, self.network.set_capacity) + len(arcs)
        self.network.set_capacity(arcs, capacity)

    def set_cost(self, arcs: Ints, cost: Ints) -> None:
        """Set many costs at once."""
        self.count += _send(self.cost, self.network.set_cost) + len(arcs)
        self.network.set_cost(arcs, cost)

    def flush(self) -> None:
        """Send what waits."""
        self.count += _send(self.supply, self.network.set_supply)
        self.count += _send(self.capacity, self.network.set_capacity)
        self.count += _send(self.cost, self.network.set_cost)


def _send(pending: dict[int, int], send: Callable[[Ints, Ints], None]) -> int:
    """Sorted by id, so that the order in which tasks were named does not show in the flow."""
    count = len(pending)
    if count:
        ids = np.fromiter(pending.keys(), np.int64, count)
        order = np.argsort(ids)
        send(ids[order], np.fromiter(pending.values(), np.int64, count)[order])
        pending.clear()
    return count
