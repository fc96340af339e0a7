"""The builder's only access to the flow network: changes are collected, sent in one call per kind, and counted.

Ids of nodes and arcs are recycled last-in-first-out (see `flowsched.network.flow_network`).  An id that outlives its
arc therefore addresses another arc, and the network cannot detect that.  Four rules keep ids safe:

1. Each arc has one owner: the part of the builder that added it and alone keeps its id.  `kept_arcs` of that part lists
   them, with both ends.
2. An owner that removes a node or an arc forgets the id in the same call, before anything is added.
3. A node takes its arcs with it.  Therefore the part that removes a node (`Builder` for the nodes of groups, jobs and
   classes, `MachineArcs` for those of machines) first asks the owners of the arcs there to forget them.
4. Pending numbers are sent before anything is removed, so none of them waits for an id that is assigned again.

`Builder.check_ids` compares the arcs that the owners keep with those of the network; tests call it after every round.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from flowsched.network._edits import NetworkEdits
from flowsched.network.flow_network import FlowNetwork

__all__ = ["KeptArcs", "NetworkBatch"]

Ints = NDArray[np.int64]

KeptArcs = tuple[Ints, Ints, Ints]
"""Arcs, their tails and their heads, as recorded by their owner."""

_NOTHING: Ints = np.zeros(0, np.int64)
"""Lower bounds that are all 0."""


class NetworkBatch(NetworkEdits):
    """Changes and reads of a network.

    Nodes, arcs and arrays of numbers are sent at once.  Single numbers wait for `flush`.

    Attributes
    ----------
    count : int
        Nodes and arcs added, removed and changed so far.
    """

    _network: FlowNetwork

    def add_nodes(self, count: int) -> Ints:
        """Add nodes without supply; `new_nodes` is faster for a few."""
        self.count += count
        return self._network._target.add_nodes(np.zeros(count, np.int64))

    def add_arcs(self, tail: Ints, head: Ints, capacity: int | Ints, cost: int | Ints) -> Ints:
        """Add arcs; `new_arcs` is faster for a few."""
        k = len(tail)
        self.count += k
        if isinstance(capacity, int):
            capacity = np.full(k, capacity, np.int64)
        if isinstance(cost, int):
            cost = np.full(k, cost, np.int64)
        return self._network._target.add_arcs(tail, head, capacity, cost, _NOTHING)

    def set_lower_bounds(self, arcs: Ints, lower: Ints) -> None:
        """Set lower bounds without delay."""
        self.count += len(arcs)
        self._network.set_lower(arcs, lower)

    def price_differences(self, arcs: list[array[int]], sizes: list[array[int]]) -> Ints:
        """Return the reduced cost of one arc less that of another from the same node, in the last solution.

        Parameters
        ----------
        arcs : list of array of int64
            Pairs of arcs.
        sizes : list of array of int64
            A number for each pair; pairs with a 0 are left out.
        """
        return self._network._core.price_differences(arcs, sizes)

    # -- for tests ----------------------------------------------------------------------------------------------

    def check(self, kept: Sequence[KeptArcs], unkept: int) -> None:
        """Compare the arcs that owners keep with those of the network.

        Parameters
        ----------
        kept : sequence of KeptArcs
        unkept : int
            Number of arcs that no owner keeps because they never change.

        Raises
        ------
        AssertionError
            An arc has two owners or none, or its ends differ from its owner's record.
        """
        arcs, tails, heads = (np.concatenate([part[i] for part in kept]) for i in range(3))
        assert len(np.unique(arcs)) == len(arcs), "an arc has two owners"
        assert np.isin(arcs, self._network.arcs()).all(), "the id of an arc outlives the arc"
        assert np.array_equal(self._network.tail(arcs), tails), "an arc has another tail than its owner records"
        assert np.array_equal(self._network.head(arcs), heads), "an arc has another head than its owner records"
        assert len(arcs) + unkept == self._network.num_arcs, "an arc has no owner"
