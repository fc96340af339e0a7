"""The builder's only way into the flow network: changes are collected, so that each kind is one call, and counted.

Ids of nodes and arcs are recycled last-in-first-out (see `flowsched.network.flow_network`).  An id that outlives its
arc therefore addresses another arc, and the network cannot tell.  Four rules keep ids safe:

1. Each arc has one owner: the part of the builder that added it and alone keeps its id.  `kept_arcs` of that part lists
   them, with both ends.
2. An owner that removes a node or an arc forgets the id in the same call, before anything is added.
3. A node takes its arcs with it.  Therefore the part that removes a node (`Builder` for the nodes of groups, jobs and
   classes, `MachineArcs` for those of machines) first asks the owners of the arcs there to forget them.
4. Numbers that wait are sent before anything is removed, so none waits for an id that is dealt anew.

`Builder.check_ids` compares what the owners keep with what the network has; tests call it after every round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

import flowsched._pairs as _pairs
from flowsched.network.flow_network import FlowNetwork

__all__ = ["KeptArcs", "NetworkBatch"]

Ints = NDArray[np.int64]

KeptArcs = tuple[Ints, Ints, Ints]
"""Arcs with their tails and heads, as their owner knows them."""

_NOTHING: Ints = np.zeros(0, np.int64)
"""Lower bounds that are all 0."""


class NetworkBatch:
    """Changes and reads a network.

    Nodes and arcs come and go at once, and so do arrays of numbers.  Single numbers wait for `flush`.

    Attributes
    ----------
    count : int
        Nodes and arcs added, removed and changed so far.
    """

    def __init__(self, network: FlowNetwork) -> None:
        self.count = 0
        self._network = network
        self._supply: dict[int, int] = {}
        self._capacity: dict[int, int] = {}
        self._cost: dict[int, int] = {}

    # -- nodes and arcs -----------------------------------------------------------------------------------------

    def add_nodes(self, count: int) -> Ints:
        """Add nodes without supply."""
        self.count += count
        return self._network._target.add_nodes(np.zeros(count, np.int64))

    def add_arcs(self, tail: Ints, head: Ints, capacity: int | Ints, cost: int | Ints) -> Ints:
        """Add arcs."""
        k = len(tail)
        self.count += k
        if isinstance(capacity, int):
            capacity = np.full(k, capacity, np.int64)
        if isinstance(cost, int):
            cost = np.full(k, cost, np.int64) if cost else np.zeros(k, np.int64)
        return self._network._target.add_arcs(tail, head, capacity, cost, _NOTHING)

    def remove_nodes(self, nodes: Sequence[int]) -> None:
        """Remove nodes with their arcs."""
        if nodes:
            self.count += len(nodes)
            self.flush()
            self._network.remove_nodes(np.array(nodes, np.int64))

    def remove_arcs(self, arcs: Sequence[int] | Ints) -> None:
        """Remove arcs."""
        if len(arcs):
            self.count += len(arcs)
            self.flush()
            self._network.remove_arcs(np.asarray(arcs, np.int64))

    # -- numbers that wait --------------------------------------------------------------------------------------

    def set_supply(self, node: int, supply: int) -> None:
        """Set the supply of a node in the next `flush`."""
        self._supply[node] = supply

    def set_capacity(self, arc: int, capacity: int) -> None:
        """Set the capacity of an arc in the next `flush`."""
        self._capacity[arc] = capacity

    def set_cost(self, arc: int, cost: int) -> None:
        """Set the cost of an arc in the next `flush`."""
        self._cost[arc] = cost

    def flush(self) -> None:
        """Send the numbers that wait."""
        target = self._network._target
        self._send(target.set_supply, self._supply)
        self._send(target.set_capacity, self._capacity)
        self._send(target.set_cost, self._cost)

    # -- arrays of numbers --------------------------------------------------------------------------------------

    def set_capacities(self, arcs: Ints, capacity: Ints) -> None:
        """Set capacities at once, after those that wait."""
        self._send(self._network._target.set_capacity, self._capacity, arcs, capacity)

    def set_costs(self, arcs: Ints, cost: Ints) -> None:
        """Set costs at once, after those that wait."""
        self._send(self._network._target.set_cost, self._cost, arcs, cost)

    def set_lower_bounds(self, arcs: Ints, lower: Ints) -> None:
        """Set lower bounds at once."""
        self.count += len(arcs)
        self._network.set_lower(arcs, lower)

    def _send(
        self,
        send: Callable[[Ints, Ints], None],
        waiting: dict[int, int],
        ids: Ints = _NOTHING,
        values: Ints = _NOTHING,
    ) -> None:
        """Send numbers that wait, and others after them.

        Those that wait go in the order of their ids, so that the order in which tasks were named does not show in the flow.
        """
        if waiting:
            ids, values = _pairs.in_order(waiting, ids, values)
        if len(ids):
            self.count += len(ids)
            send(ids, values)
            waiting.clear()

    # -- the last solution --------------------------------------------------------------------------------------

    def flow(self, arcs: Ints) -> Ints:
        """Return the flow on arcs."""
        return self._network._core.flow(arcs)

    def reduced_cost(self, arcs: Ints) -> Ints:
        """Return the reduced costs of arcs."""
        return self._network.reduced_cost(arcs)

    def sizes(self) -> tuple[int, int]:
        """Return the numbers of nodes and arcs."""
        return self._network._core.sizes()

    # -- for tests ----------------------------------------------------------------------------------------------

    def check(self, kept: Sequence[KeptArcs], unkept: int) -> None:
        """Compare the arcs that owners keep with those of the network.

        Parameters
        ----------
        kept : sequence of KeptArcs
        unkept : int
            Arcs that no owner keeps, since nothing of them ever changes.

        Raises
        ------
        AssertionError
            An arc has two owners or none, or other ends than its owner knows.
        """
        arcs, tails, heads = (np.concatenate([part[i] for part in kept]) for i in range(3))
        assert len(np.unique(arcs)) == len(arcs), "an arc has two owners"
        assert np.isin(arcs, self._network.arcs()).all(), "the id of an arc has outlived it"
        assert np.array_equal(self._network.tail(arcs), tails), "an arc has another tail than its owner knows"
        assert np.array_equal(self._network.head(arcs), heads), "an arc has another head than its owner knows"
        assert len(arcs) + unkept == self._network.num_arcs, "an arc has no owner"
