"""Racks in the network: to each class a rack is a node of its own, on the way from the class's aggregator to its machines."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from flowsched.builder.batch import NetworkBatch
from flowsched.cluster.columns import IdPool, grown
from flowsched.cluster.state import Cluster
from flowsched.network.results import INF

__all__ = ["ANONYMOUS_RACK", "RackArcs"]

Ints = NDArray[np.int64]

ANONYMOUS_RACK = 64
"""Machines of no rack share unnamed ones of so many."""


class RackArcs:
    """Which machine is in which rack, and the racks' nodes.

    Parameters
    ----------
    cluster : Cluster
    edits : Edits
        Way into the network.
    aggregators : mapping of int to int
        Node of each class's aggregator.

    Attributes
    ----------
    of : ndarray of int64, shape (rows,)
        Rack of each machine, a dense index, -1 for a row without one.
    """

    def __init__(self, cluster: Cluster, edits: NetworkBatch, aggregators: Mapping[int, int]) -> None:
        self.cluster = cluster
        self.edits = edits
        self.of: Ints = np.full(8, -1, np.int64)
        self._aggregators = aggregators
        self._rows: dict[int, dict[int, None]] = {}
        self._named: dict[Hashable, int] = {}
        self._names: dict[int, Hashable] = {}
        self._open: dict[int, None] = {}
        self._indices = IdPool()
        # By class and rack: the node, and the arc that leads there, with its capacity.
        self._node: Ints = np.full((8, 8), -1, np.int64)
        self._arc: Ints = np.full((8, 8), -1, np.int64)
        self._capacity: Ints = np.zeros((8, 8), np.int64)

    # -- machines -----------------------------------------------------------------------------------------------

    def join(self, row: int, name: Hashable | None) -> None:
        """The machine is in the rack of that name from now on."""
        rack = self._named.get(name) if name is not None else next(iter(self._open), None)
        if rack is None:
            rack = self._indices.take()
            self._node, self._arc = (grown(a, 0, rack + 1, fill=-1) for a in (self._node, self._arc))
            self._capacity = grown(self._capacity, 0, rack + 1)
            self._rows[rack] = {}
            if name is None:
                self._open[rack] = None
            else:
                self._named[name], self._names[rack] = rack, name
        self._rows[rack][row] = None
        if len(self._rows[rack]) >= ANONYMOUS_RACK:
            self._open.pop(rack, None)
        self.of = grown(self.of, row + 1, fill=-1)
        self.of[row] = rack

    def leave(self, row: int) -> list[int]:
        """The machine is in no rack any more; nodes that go with it, where it was the last one there."""
        rack = int(self.of[row])
        self.of[row] = -1
        del self._rows[rack][row]
        if self._rows[rack]:
            if rack not in self._names:
                self._open[rack] = None
            return []
        del self._rows[rack]
        self._open.pop(rack, None)
        if rack in self._names:
            del self._named[self._names.pop(rack)]
        self._indices.give(rack)
        nodes: list[int] = self._node[:, rack][self._node[:, rack] >= 0].tolist()
        self._node[:, rack] = self._arc[:, rack] = -1
        return nodes

    # -- classes ------------------------------------------------------------------------------------------------

    def add_classes(self, top: int) -> None:
        """There are classes up to that index."""
        self._node, self._arc = (grown(a, top, fill=-1) for a in (self._node, self._arc))
        self._capacity = grown(self._capacity, top)

    def forget_class(self, cls: int) -> list[int]:
        """A class goes; its nodes, for removal."""
        nodes: list[int] = self._node[cls][self._node[cls] >= 0].tolist()
        self._node[cls] = self._arc[cls] = -1
        return nodes

    def nodes(self, classes: Ints, racks: Ints) -> Ints:
        """Nodes that stand for a rack to a class, where needed new ones."""
        missing = self._node[classes, racks] < 0
        if missing.any():
            c, r = np.unique(np.stack([classes[missing], racks[missing]]), axis=1)
            nodes = self.edits.add_nodes(len(c))
            tails = np.array([self._aggregators[cls] for cls in c.tolist()], np.int64)
            self._node[c, r] = nodes
            self._capacity[c, r] = [self._most(*pair) for pair in zip(c.tolist(), r.tolist(), strict=True)]
            self._arc[c, r] = self.edits.add_arcs(tails, nodes, self._capacity[c, r], 0)
        found: Ints = self._node[classes, racks]
        return found

    def spread(self, cls: int, rows: Ints) -> None:
        """No more of the class enter the racks of these machines than these bear."""
        racks = np.unique(self.of[rows])
        for rack in racks[racks >= 0].tolist():
            most = self._most(cls, rack)
            if self._arc[cls, rack] >= 0 and most != self._capacity[cls, rack]:
                self._capacity[cls, rack] = self.edits.capacity[int(self._arc[cls, rack])] = most

    def _most(self, cls: int, rack: int) -> int:
        """How many more tasks of the class a rack bears, as far as its arc can tell."""
        name, affinity = self._names.get(rack), self.cluster.inventory.affinity
        return INF if name is None or not affinity.spreads(cls) else affinity.room_in_rack(cls, name)

    # -- flow ---------------------------------------------------------------------------------------------------

    def entered(self, classes: Sequence[int], more: Sequence[tuple[int, int]]) -> tuple[Ints, Ints]:
        """Classes and machines in racks that the flow enters from the class's aggregator, or otherwise (`more`)."""
        index = np.array(classes, np.int64)
        c, r = np.nonzero(self._arc[index] >= 0)
        used = self.edits.network.flow(self._arc[index[c], r]) > 0
        if more:
            others = np.zeros(self._arc.shape, np.bool_)
            others[tuple(np.array(more).T)] = True
            used |= others[index[c], r]
        members = [list(self._rows[rack]) for rack in r[used].tolist()]
        rows = np.array([row for rack in members for row in rack], np.int64)
        return np.repeat(index[c[used]], [len(rack) for rack in members]), rows
