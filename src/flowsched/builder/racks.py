"""Aggregators of classes, and racks between them and the machines.

::

    X_c --load--> R_c,r     capacity: unlimited, or the rack's limit for a class that is spread over racks

Each class has its own node for each rack.  Machines without a rack share anonymous ones.  `Policy.rack_load` sets the
cost of a rack's load, by default none.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.builder._arcs import RackArcsColumns, RackFields
from flowsched.builder.batch import KeptArcs, NetworkBatch
from flowsched.cluster.columns import Columns, IdPool, column
from flowsched.cluster.state import Cluster
from flowsched.network.results import INF
from flowsched.policy import Policy

__all__ = ["ANONYMOUS_RACK", "RackArcs"]

Ints = NDArray[np.int64]

_RACK = (1 << 32) - 1

ANONYMOUS_RACK = 64
"""Largest number of machines in an anonymous rack."""


class RackArcs(Columns, RackFields, typed=RackArcsColumns):
    """Racks of the machines, aggregators of the classes, and the arcs from aggregators to racks.

    Parameters
    ----------
    cluster : Cluster
    batch : NetworkBatch
    """

    of: Ints = column("rows", fill=-1)
    """Rack of each machine, a dense index; -1 for a row without a machine."""
    _node: Ints = column("classes", "racks", fill=-1)
    """Node of the rack to the class, -1 without one."""
    _arc: Ints = column("classes", "racks", fill=-1)
    """Arc from the class's aggregator to that node, -1 without a node."""
    _capacity: Ints = column("classes", "racks")
    """Capacity of that arc."""
    _cost: Ints = column("classes", "racks")
    """Cost of that arc."""
    _pair: Ints = column("arcs", fill=-1)
    """``class << 32 | rack`` of each present or former arc of `_arc`; -1 for others."""

    def __init__(self, cluster: Cluster, batch: NetworkBatch) -> None:
        super().__init__()
        self.cluster = cluster
        self.batch = batch
        self.aggregators = {}
        """Node of each class in use."""
        self._rows: dict[int, dict[int, None]] = {}
        """Machines of each rack; none is empty."""
        self._named: dict[Hashable, int] = {}
        """Racks by name."""
        self._names: dict[int, Hashable] = {}
        """Names by rack: the inverse of `_named`."""
        self._open: dict[int, None] = {}
        """Anonymous racks of fewer than `ANONYMOUS_RACK` machines."""
        self._indices = IdPool()
        self.weighed = False
        """False only if all costs are 0."""
        self._used = None
        """Arcs that had flow when it was last read, ascending; None before that, and in images."""
        self._listed = {}
        """Results of `members` by rack; empty in images."""

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_used": None, "_listed": {}}

    # -- machines -----------------------------------------------------------------------------------------------

    def join(self, rows: Sequence[int], names: Sequence[Hashable | None]) -> None:
        """Put machines into the racks of these names, or into anonymous ones."""
        members, found = self._rows, []
        for row, name in zip(rows, names, strict=True):
            rack = self._named.get(name) if name is not None else next(iter(self._open), None)
            if rack is None:
                rack = self._indices.take()
                self.grow(racks=rack + 1)
                members[rack] = {}
                if name is None:
                    self._open[rack] = None
                else:
                    self._named[name], self._names[rack] = rack, name
            members[rack][row] = None
            if len(members[rack]) >= ANONYMOUS_RACK:
                self._open.pop(rack, None)
            found.append(rack)
        for rack in set(found):
            self._listed.pop(rack, None)
        self.grow(rows=max(rows) + 1)
        self.of[list(rows)] = found

    def leave(self, row: int) -> list[int]:
        """Take a machine out of its rack; return the rack's nodes, for removal, if the rack is now empty."""
        rack = int(self.of[row])
        self.of[row] = -1
        del self._rows[rack][row]
        self._listed.pop(rack, None)
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

    def add_classes(self, classes: Sequence[int], nodes: Sequence[int]) -> None:
        """Make these nodes the aggregators of classes."""
        self.aggregators.update(zip(classes, nodes, strict=True))
        self.grow(classes=max(classes, default=-1) + 1)

    def aggregator(self, class_id: int) -> int | None:
        """Return the node of the class's aggregator, None without one."""
        return self.aggregators.get(class_id)

    def aggregator_of(self, class_id: int) -> int:
        """Return the node of the aggregator of a class that has one."""
        return self.aggregators[class_id]

    def forget_class(self, class_id: int) -> list[int]:
        """Forget a class that has an aggregator; return its nodes, for removal."""
        return [self.aggregators.pop(class_id), *self.release(class_id)]

    def release(self, class_id: int) -> list[int]:
        """Forget the racks of a class, until new ones are needed; return their nodes, for removal."""
        nodes: list[int] = self._node[class_id][self._node[class_id] >= 0].tolist()
        self._node[class_id] = self._arc[class_id] = -1
        return nodes

    def nodes(self, classes: Ints, racks: Ints) -> Ints:
        """Return the nodes of racks for classes; missing ones are added."""
        missing = self._node[classes, racks] < 0
        if missing.any():
            pairs = np.unique(classes[missing] << 32 | racks[missing])
            c, r = pairs >> 32, pairs & _RACK
            nodes = self.batch.add_nodes(len(c))
            tails = np.array([self.aggregators[class_id] for class_id in c.tolist()], np.int64)
            self._node[c, r] = nodes
            self._capacity[c, r] = [self._room(*pair) for pair in zip(c.tolist(), r.tolist(), strict=True)]
            arcs = self._arc[c, r] = self.batch.add_arcs(tails, nodes, self._capacity[c, r], 0)
            self._cost[c, r] = 0
            self.grow(arcs=int(arcs.max()) + 1)
            self._pair[arcs] = pairs
        found: Ints = self._node[classes, racks]
        return found

    def spread(self, class_id: int, rows: Ints) -> None:
        """Bring the capacities of a class that is spread over racks up to date, in the racks of these machines."""
        racks = np.unique(self.of[rows])
        for rack in racks[racks >= 0].tolist():
            room, arc = self._room(class_id, rack), int(self._arc[class_id, rack])
            if arc >= 0 and room != self._capacity[class_id, rack]:
                self._capacity[class_id, rack] = room
                self.batch.set_capacity(arc, room)

    def weigh(self, policy: Policy) -> None:
        """Bring the costs up to date with the load of each rack."""
        self.weighed = policy.rack_load > 0
        c, r = np.nonzero(self._arc >= 0)
        cost = policy.crowding(self.loads())[r]
        other = cost != self._cost[c, r]
        c, r, cost = c[other], r[other], cost[other]
        self._cost[c, r] = cost
        self.batch.set_costs(self._arc[c, r], cost)

    def loads(self) -> NDArray[np.float64]:
        """Return the load of each rack without a new task: the mean of its machines' loads, see `LoadCost`."""
        rows, inventory = np.flatnonzero(self.of >= 0), self.cluster.inventory
        capacity, slots = inventory.capacity[rows], np.maximum(inventory.slots[rows], 1)
        has = capacity > 0
        used = np.zeros(capacity.shape)
        np.divide(capacity - inventory.free[rows], capacity, out=used, where=has)
        count = has.sum(axis=1)
        load = np.where(count, used.sum(axis=1) / np.maximum(count, 1), inventory.running[rows] / slots)
        racks = self.of[rows]
        size = self._arc.shape[1]
        mean = np.bincount(racks, load, size) / np.maximum(np.bincount(racks, minlength=size), 1)
        return np.clip(mean, 0.0, 1.0)

    def _room(self, class_id: int, rack: int) -> int:
        """Return the number of further tasks of the class that a rack takes, within the range of its arc's capacity."""
        name, affinity = self._names.get(rack), self.cluster.inventory.affinity
        return INF if name is None or not affinity.spreads(class_id) else affinity.room_in_rack(class_id, name)

    # -- flow ---------------------------------------------------------------------------------------------------

    def all_arcs(self) -> array[int]:
        """Return the arcs of `_arc`, ascending; for `_arcs.sent`."""
        return array("q", np.sort(self._arc[self._arc >= 0]).tobytes())

    def members(self, rack: int) -> array[int]:
        """Return the machines of a rack."""
        members = self._listed.get(rack)
        if members is None:
            members = self._listed[rack] = array("q", self._rows[rack])
        return members

    def kept_arcs(self) -> Iterator[KeptArcs]:
        """Yield the arcs kept by this part, with their ends."""
        c, r = np.nonzero(self._arc >= 0)
        tails = np.array([self.aggregators[class_id] for class_id in c.tolist()], np.int64)
        yield self._arc[c, r], tails, self._node[c, r]
