"""The machines' side of the network: class aggregators, racks, machines, sink.

::

    X_c --0--> R_c,r --load--> M --0--> S        X_c --load + price--> M   (only while somebody might make room)

The arc to a rack has a capacity where a class is to be spread over racks.

Arrays by class and machine row mirror what the network holds.  A class is brought up to date only when asked, from
the rows that changed since it last was (`Inventory.version` against the class's cursor).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from flowsched.builder.batch import NetworkBatch
from flowsched.builder.racks import RackArcs
from flowsched.cluster.columns import grown
from flowsched.cluster.limits import DOWN
from flowsched.cluster.model import UNLIMITED
from flowsched.cluster.state import Cluster
from flowsched.network.flow_network import INF
from flowsched.policy import Policy

__all__ = ["MachineArcs"]

Ints = NDArray[np.int64]


class MachineArcs:
    """Aggregators and machines in a network.

    Parameters
    ----------
    cluster : Cluster
    edits : Edits
        Way into the network.

    Attributes
    ----------
    sink : int
        The node that absorbs every task.
    node : ndarray of int64, shape (rows,)
        Node of each machine, -1 for a row without one.
    """

    def __init__(self, cluster: Cluster, edits: NetworkBatch) -> None:
        self.cluster = cluster
        self.edits = edits
        self.sink = int(edits.add_nodes(1)[0])
        self.node: Ints = np.full(8, -1, np.int64)
        self._out: Ints = np.full(8, -1, np.int64)
        self._out_capacity: Ints = np.zeros(8, np.int64)
        self._seen = 0
        self._aggregator: dict[int, int] = {}
        self._racks = RackArcs(cluster, edits, self._aggregator)
        self._cursor: Ints = np.zeros(8, np.int64)
        self._hopeless: Ints = np.zeros(8, np.int64)
        self._arc: Ints = np.full((8, 8), -1, np.int64)
        self._capacity: Ints = np.zeros((8, 8), np.int64)
        self._cost: Ints = np.zeros((8, 8), np.int64)
        self._why: NDArray[np.uint32] = np.full((8, 8), DOWN, np.uint32)
        self._why_copy: dict[int, NDArray[np.uint32]] = {}
        self._roomy: NDArray[np.bool_] = np.zeros(8, np.bool_)
        self._gate: Ints = np.full((8, 8), -1, np.int64)
        self._displacing: dict[tuple[int, int], int] = {}
        self._cuts: dict[int, dict[int, None]] = {}

    # -- machines -----------------------------------------------------------------------------------------------

    def forget_machines(self, rows: Sequence[int]) -> None:
        """Machines are gone, with all arcs at them."""
        rows = [row for row in rows if row < len(self.node) and self.node[row] >= 0]
        if not rows:
            return
        nodes = self.node[rows].tolist()
        for row in rows:
            nodes += self._racks.leave(row)
        gates = self._gate[:, rows]
        nodes += gates[gates >= 0].tolist()
        self.node[rows] = self._out[rows] = -1
        self._arc[:, rows] = self._gate[:, rows] = -1
        self._capacity[:, rows] = 0
        self._why[:, rows] = DOWN
        self._why_copy.clear()
        self._roomy = ((self._why == 0) & (self.node >= 0)).any(axis=1)
        self.edits.remove_nodes(nodes)

    def add_machines(self, rows: Sequence[int]) -> None:
        """Machines are new, or moved to another rack."""
        if not rows:
            return
        top = max(rows) + 1
        self.node, self._out = (grown(a, top, fill=-1) for a in (self.node, self._out))
        self._out_capacity = grown(self._out_capacity, top)
        self._arc, self._gate = (grown(a, 0, top, fill=-1) for a in (self._arc, self._gate))
        self._capacity, self._cost = (grown(a, 0, top) for a in (self._capacity, self._cost))
        self._why = grown(self._why, 0, top, fill=DOWN)
        for row in rows:
            if self.node[row] >= 0:
                self._leave_rack(row)
            self._racks.join(row, self.cluster.by_row[row].machine.rack)
        new = np.array([row for row in rows if self.node[row] < 0], np.int64)
        if len(new):
            self.node[new] = self.edits.add_nodes(len(new))
            self._out_capacity[new] = _limits(self.cluster.inventory.slots[new])
            self._out[new] = self.edits.add_arcs(
                self.node[new], np.full(len(new), self.sink), self._out_capacity[new], 0
            )

    def _leave_rack(self, row: int) -> None:
        """All arcs from the old rack to the machine go; those from the new one come when next needed."""
        arcs = self._arc[:, row]
        self.edits.remove_arcs(arcs[arcs >= 0])
        arcs[:] = -1
        self._capacity[:, row] = 0
        gates = self._gate[:, row]
        nodes: list[int] = gates[gates >= 0].tolist()
        gates[:] = -1
        nodes += self._racks.leave(row)
        self.edits.remove_nodes(nodes)

    def update_slots(self, one_more: bool) -> None:
        """Send the slots of machines where they changed: all of them, or one more than are taken."""
        inventory = self.cluster.inventory
        rows = inventory.changed_since(self._seen)
        self._seen = inventory.clock
        limits = _limits(inventory.slots[rows])
        if one_more:
            limits = np.minimum(limits, inventory.running[rows] + 1)
        other = limits != self._out_capacity[rows]
        if other.any():
            self._out_capacity[rows[other]] = limits[other]
            self.edits.set_capacity(self._out[rows[other]], limits[other])

    # -- classes ------------------------------------------------------------------------------------------------

    def add_classes(self, classes: Sequence[int], nodes: Sequence[int]) -> None:
        """Classes get these nodes as aggregators."""
        self._aggregator.update(zip(classes, nodes, strict=True))
        top = max(classes, default=-1) + 1
        self._racks.add_classes(top)
        self._arc, self._gate = (grown(a, top, fill=-1) for a in (self._arc, self._gate))
        self._capacity, self._cost = (grown(a, top) for a in (self._capacity, self._cost))
        self._why = grown(self._why, top, fill=DOWN)
        self._cursor, self._hopeless, self._roomy = (grown(a, top) for a in (self._cursor, self._hopeless, self._roomy))

    def aggregator(self, cls: int) -> int | None:
        """Node of the class's aggregator, if it has one."""
        return self._aggregator.get(cls)

    def forget_classes(self, classes: Sequence[int]) -> None:
        """Classes go, with their racks and all arcs between."""
        nodes: list[int] = []
        for cls in classes:
            if cls in self._aggregator:
                nodes.append(self._aggregator.pop(cls))
                nodes += self._racks.forget_class(cls)
                nodes += self._gate[cls][self._gate[cls] >= 0].tolist()
                self._arc[cls] = self._gate[cls] = -1
                self._capacity[cls] = self._cursor[cls] = self._hopeless[cls] = 0
                self._why_copy.pop(cls, None)
        self.edits.remove_nodes(nodes)

    def forget_costs(self) -> None:
        """Everything is to be looked at again."""
        self._seen = 0
        self._cursor[:] = self._hopeless[:] = 0

    def invalidate(self, classes: Sequence[int]) -> None:
        """Every machine is to be looked at again for these classes: what fits there has changed."""
        known = [cls for cls in classes if cls in self._aggregator]
        self._cursor[known] = self._hopeless[known] = 0

    def refresh(self, classes: Sequence[int], policy: Policy) -> None:
        """Bring classes up to date with the machines."""
        clock = self.cluster.inventory.clock
        behind: dict[int, list[int]] = {}
        for cls, cursor in zip(classes, self._cursor[list(classes)].tolist(), strict=True):
            if cursor < clock:
                behind.setdefault(cursor, []).append(cls)
        for cursor, group in behind.items():
            rows = self.cluster.inventory.changed_since(cursor)
            if len(rows):
                self._pull(np.array(group, np.int64), rows, policy)
            self._cursor[group] = clock

    def _pull(self, classes: Ints, rows: Ints, policy: Policy) -> None:
        inventory = self.cluster.inventory
        grid = np.ix_(classes, rows)
        fits, why = inventory.room(classes, rows)
        capacity = np.minimum(fits, self._seats(classes, rows, policy))
        cost = policy.place(self.cluster, classes, rows)
        arc = self._arc[grid]
        self._note_why(classes, grid, why)
        new = (arc < 0) & (capacity > 0)
        moved = (arc >= 0) & (capacity != self._capacity[grid])
        # The cost of a closed arc does not matter: it is sent when the arc opens.
        dearer = (arc >= 0) & (capacity > 0) & (cost != self._cost[grid])
        if moved.any():
            self.edits.set_capacity(arc[moved], capacity[moved])
        if dearer.any():
            self.edits.set_cost(arc[dearer], cost[dearer])
        self._capacity[grid] = capacity
        self._cost[grid] = np.where(dearer | new, cost, self._cost[grid])
        if new.any():
            c, r = np.nonzero(new)
            self._add_arcs(classes[c], rows[r], capacity[new], cost[new])
        for cls in classes.tolist():
            if inventory.affinity.spreads(cls):
                self._racks.spread(cls, rows)

    def _seats(self, classes: Ints, rows: Ints, policy: Policy) -> Ints:
        """Slots open to each class: free ones, and those of tasks that it may displace."""
        inventory = self.cluster.inventory
        free = inventory.slots[rows] - inventory.running[rows]
        seats = np.broadcast_to(free, (len(classes), len(rows)))
        worst = inventory.worst_running()
        if policy.preemption is None or worst is None or (inventory.priority[classes] >= worst).all():
            return seats
        if (inventory.slots[rows] < UNLIMITED).any():
            seats = seats + inventory.worse_running(classes, rows)
            for i, cls in enumerate(classes.tolist()):
                shut = np.isin(rows, list(self._cuts.get(cls, ())))
                seats[i, shut] = free[shut]
        return seats

    def _note_why(self, classes: Ints, grid: tuple[Ints, ...], why: NDArray[np.uint32]) -> None:
        other = classes[(why != self._why[grid]).any(axis=1) | (self._cursor[classes] == 0)]
        if len(other):
            self._why[grid] = why
            self._roomy[other] = ((self._why[other] == 0) & (self.node >= 0)).any(axis=1)
            for cls in other.tolist():
                self._why_copy.pop(cls, None)

    def _add_arcs(self, classes: Ints, rows: Ints, capacity: Ints, cost: Ints) -> None:
        tails = self._racks.nodes(classes, self._racks.of[rows])
        self._arc[classes, rows] = self.edits.add_arcs(tails, self.node[rows], capacity, cost)

    def rack(self, row: int) -> int:
        """The rack that a machine is in."""
        return int(self._racks.of[row])

    def rack_nodes(self, classes: Ints, racks: Ints) -> Ints:
        """Nodes that stand for a rack to a class, where needed new ones."""
        return self._racks.nodes(classes, racks)

    def gates(self, classes: Ints, rows: Ints) -> Ints:
        """Nodes right before machines, through which a class then comes there whatever the way, where needed new ones."""
        missing = self._gate[classes, rows] < 0
        if missing.any():
            c, r = np.unique(np.stack([classes[missing], rows[missing]]), axis=1)
            racks = self._racks.nodes(c, self._racks.of[r])
            old = self._arc[c, r]
            self.edits.remove_arcs(old[old >= 0])
            nodes = self.edits.add_nodes(len(c))
            self.edits.add_arcs(racks, nodes, INF, 0)
            self._gate[c, r] = nodes
            self._arc[c, r] = self.edits.add_arcs(nodes, self.node[r], self._capacity[c, r], self._cost[c, r])
        found: Ints = self._gate[classes, rows]
        return found

    def cost(self, cls: int, row: int) -> int:
        """What a placement costs, as of the last `refresh`."""
        return int(self._cost[cls, row])

    # -- making room --------------------------------------------------------------------------------------------

    def displace(self, cls: int, rows: Ints, cost: Ints) -> None:
        """Let one task of the class onto each of these machines at that cost, others making room."""
        ids = self.edits.add_arcs(np.full(len(rows), self._aggregator[cls]), self.node[rows], 1, cost)
        self._displacing.update({(cls, row): arc for row, arc in zip(rows.tolist(), ids.tolist(), strict=True)})

    def stop_displacing(self) -> None:
        """Nobody makes room any more."""
        self.edits.remove_arcs(list(self._displacing.values()))
        self._displacing.clear()

    def cut(self, cls: int, row: int) -> None:
        """In this round, nobody makes room for the class on that machine."""
        self._cuts.setdefault(cls, {})[row] = None
        arc = self._displacing.pop((cls, row), None)
        if arc is not None:
            self.edits.remove_arcs([arc])
        inventory = self.cluster.inventory
        limit = min(int(self._capacity[cls, row]), int(inventory.slots[row] - inventory.running[row]))
        if limit != self._capacity[cls, row]:
            self._capacity[cls, row] = limit
            self.edits.capacity[int(self._arc[cls, row])] = limit

    def hopeful(self, classes: Sequence[int], policy: Policy) -> dict[int, Ints]:
        """Machines without room now, where it is worth asking whether somebody could make some; by class, if any."""
        inventory = self.cluster.inventory
        window = policy.preemption is not None and policy.preemption.window > 0  # with it, time alone gives hope
        alike: dict[tuple[int, int], list[int]] = {}
        for cls in classes:
            alike.setdefault((0 if window else int(self._hopeless[cls]), int(self._cursor[cls])), []).append(cls)
        found: dict[int, Ints] = {}
        for (infeasible, cursor), members in alike.items():
            rows = inventory.changed_since(infeasible)
            rows = rows[inventory.usable[rows]]
            if not len(rows):
                continue
            index = np.array(members, np.int64)
            capacity = self._capacity[np.ix_(index, rows)]
            later = inventory.newer(rows, cursor)
            newer = rows[later]
            if len(newer):
                now = np.minimum(inventory.room(index, newer)[0], self._seats(index, newer, policy))
                capacity[:, later] = now
            hope = (capacity == 0) & inventory.can_ever(index, rows) & (inventory.worse_running(index, rows) > 0)
            for cls, some in zip(members, hope, strict=True):
                mine = rows[some]
                mine = mine[~np.isin(mine, list(self._cuts.get(cls, ())))] if cls in self._cuts else mine
                if len(mine):
                    found[cls] = mine
        return found

    def give_up(self, cls: int) -> None:
        """Nobody can make room for the class on any of the `hopeful` machines, as they are now."""
        self._hopeless[cls] = self.cluster.inventory.clock

    def end_round(self) -> None:
        """Forget what held for one round only."""
        self.stop_displacing()
        for cls, rows in self._cuts.items():
            if (self.cluster.inventory.slots[list(rows)] < UNLIMITED).any():
                self._cursor[cls] = 0
        self._cuts.clear()

    # -- flow ---------------------------------------------------------------------------------------------------

    def flows(
        self, classes: Sequence[int], more: Sequence[tuple[int, int]] = ()
    ) -> dict[int, tuple[list[tuple[int, int]], list[int]]]:
        """Where the flow sends new tasks: by class, ``[(row, how many), ...]`` and rows where somebody must make room.

        Parameters
        ----------
        classes : sequence of int
        more : sequence of (int, int)
            Classes and racks that flow enters otherwise than by the class's aggregator.
        """
        found: dict[int, tuple[list[tuple[int, int]], list[int]]] = {}
        cls, rows = self._racks.entered(classes, more)
        if len(rows):
            arcs = self._arc[cls, rows]
            cls, rows, arcs = cls[arcs >= 0], rows[arcs >= 0], arcs[arcs >= 0]
            flow = self.edits.network.flow(arcs)
            order = np.lexsort((rows, cls))
            for i in order[flow[order] > 0].tolist():
                found.setdefault(int(cls[i]), ([], []))[0].append((int(rows[i]), int(flow[i])))
        if self._displacing:
            flow = self.edits.network.flow(np.array(list(self._displacing.values()), np.int64))
            for (cls_, row), units in zip(self._displacing, flow.tolist(), strict=True):
                if units:
                    found.setdefault(cls_, ([], []))[1].append(row)
        return found

    def with_room(self, classes: Sequence[int]) -> list[int]:
        """Those of the classes for which some machine had room, nobody leaving, as of the last `refresh`."""
        index = np.array(classes, np.int64)
        return index[self._roomy[index]].tolist()  # type: ignore[no-any-return]

    def roomy(self) -> list[int]:
        """The classes of `with_room`, but for the sake of machines that have been removed since."""
        there = np.zeros(len(self.node), np.bool_)
        there[[row for row in self.cluster.by_row if row < len(there)]] = True
        alike = bool((there | (self.node < 0)).all())
        roomy = self._roomy if alike else ((self._why == 0) & (self.node >= 0) & there).any(axis=1)
        found: list[int] = np.flatnonzero(roomy).tolist()
        return found

    def had_room(self, classes: Sequence[int]) -> None:
        """Before the first `refresh`: for these classes `roomy` told so elsewhere."""
        self._roomy = grown(self._roomy, max(classes, default=-1) + 1)
        self._roomy[list(classes)] = True

    def offers(self, classes: Ints) -> Ints:
        """How many of each class go to each machine at most, nobody leaving, as of the last `refresh`; (classes, rows)."""
        capacity: Ints = self._capacity[classes, : self.cluster.inventory.rows]
        return capacity

    def blockers_now(self, classes: Sequence[int]) -> list[NDArray[np.uint32]]:
        """As `why` for each class, but as of now; the network is not told."""
        if not classes:
            return []
        seen = min(int(self._cursor[cls]) if cls in self._aggregator else 0 for cls in classes)
        rows = self.cluster.inventory.changed_since(seen)
        _, now = self.cluster.inventory.room(np.array(classes, np.int64), rows)
        whys = []
        for cls, part in zip(classes, now, strict=True):
            why = self.why(cls).copy()
            why[rows] = part
            whys.append(why)
        return whys

    def why(self, cls: int) -> NDArray[np.uint32]:
        """What stands against one more task of the class, by row, as of the last `refresh` (see `Inventory.room`)."""
        rows = self.cluster.inventory.rows
        if cls not in self._aggregator:
            return np.full(rows, DOWN, np.uint32)
        copy = self._why_copy.get(cls)
        if copy is None or len(copy) != rows:
            copy = self._why_copy[cls] = np.full(rows, DOWN, np.uint32)
            known = self._why[cls, :rows]
            copy[: len(known)] = known
        return copy


def _limits(slots: Ints) -> Ints:
    return np.where(slots < UNLIMITED, slots, INF)
