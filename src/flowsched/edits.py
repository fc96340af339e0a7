"""Changes of a flow network, collected so that each kind is one call, and counted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from flowsched.network import FlowNetwork

__all__ = ["Edits"]

Ints = NDArray[np.int64]


class _Pending:
    """Values to be set, single ones and whole arrays; the last one for an id counts."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.values: list[int] = []

    def add(self, ids: int | Ints, values: int | Ints) -> None:
        if isinstance(ids, np.ndarray):
            self.ids += ids.tolist()
            self.values += np.broadcast_to(values, ids.shape).tolist()
        else:
            self.ids.append(ids)
            self.values.append(int(values))

    def take(self) -> tuple[Ints, Ints]:
        last = dict(zip(self.ids, self.values, strict=True))
        self.ids, self.values = [], []
        return np.fromiter(last.keys(), np.int64, len(last)), np.fromiter(last.values(), np.int64, len(last))


class Edits:
    """Alters a network: nodes and arcs come and go at once, their numbers wait for `flush`.

    Attributes
    ----------
    count : int
        Nodes and arcs added, removed and altered so far.
    """

    def __init__(self, network: FlowNetwork) -> None:
        self.network = network
        self.count = 0
        self._supply, self._capacity, self._cost = _Pending(), _Pending(), _Pending()

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

    def supply(self, nodes: int | Ints, supply: int | Ints) -> None:
        """Set supplies."""
        self._supply.add(nodes, supply)

    def capacity(self, arcs: int | Ints, capacity: int | Ints) -> None:
        """Set capacities."""
        self._capacity.add(arcs, capacity)

    def cost(self, arcs: int | Ints, cost: int | Ints) -> None:
        """Set costs."""
        self._cost.add(arcs, cost)

    def flush(self) -> None:
        """Send what waits."""
        for pending, send in (
            (self._supply, self.network.set_supply),
            (self._capacity, self.network.set_capacity),
            (self._cost, self.network.set_cost),
        ):
            if pending.ids:
                ids, values = pending.take()
                self.count += len(ids)
                send(ids, values)
