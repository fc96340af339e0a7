"""Arcs from classes, by racks, to the machines where their tasks fit.

::

    X_c --0--> R_c,r --load--> M           capacity: tasks of c that fit on M
                  |              ^
                  `--0--> N_c,M -'         load, capacity as above; only where groups come near their data (`locality`)

Arrays by class and machine row mirror the network.  A class is brought up to date only on request, from the rows
that changed since its last update (`Inventory.version` against the class's cursor).

The arcs of a class stay when its last task starts, since the next one often comes soon.  A class is *idle* if it was not
updated between two sweeps.  Between these, as many changes come as there are machines and more, so its next update would
look at every machine in any case.  `sweep` removes the arcs of idle classes once they outnumber all others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

import flowsched.builder._arcs as _arcs
from flowsched.builder.batch import KeptArcs, NetworkBatch
from flowsched.builder.machines import MachineArcs
from flowsched.builder.racks import RackArcs
from flowsched.cluster.columns import Columns, column
from flowsched.cluster.limits import DOWN
from flowsched.cluster.state import Cluster
from flowsched.network.results import INF
from flowsched.policy import Policy

__all__ = ["ClassArcs"]

Ints = NDArray[np.int64]

_IDLE = 2
"""Number of changes per machine from one sweep to the next."""

_FEW = 1 << 14
"""Number of arcs below which none are removed."""

_RATIO = 1.0
"""Number of arcs of idle classes for each other arc up to which none are removed."""

Refused = dict[int, dict[int, None]]
"""Rows where no task makes room in this round, by class (see `evictions`)."""


class ClassArcs(Columns, _arcs.ClassFields, typed=_arcs.ClassArcsColumns):
    """Arcs between classes and machines, and the blockers of one more task there.

    Parameters
    ----------
    cluster : Cluster
    batch : NetworkBatch
    machines : MachineArcs
    racks : RackArcs
    """

    _arc: Ints = column("classes", "rows", fill=-1)
    """Arc to the machine, from the gate or, without a gate, from the rack's node; -1 without an arc."""
    _gate: Ints = column("classes", "rows", fill=-1)
    """Node right before the machine, -1 without one."""
    _capacity: Ints = column("classes", "rows")
    """Capacity of the arc, 0 where there is none."""
    _cost: Ints = column("classes", "rows")
    """Cost of the arc when it was last open."""
    _why: NDArray[np.uint32] = column("classes", "rows", dtype=np.uint32, fill=DOWN)
    """Blockers of one more task as of the cursor (see `Inventory.room`), `DOWN` for a row without a machine."""
    _roomy: NDArray[np.bool_] = column("classes", dtype=np.bool_)
    """True exactly if the class has no blocker on some machine."""
    _open: Ints = column("classes")
    """Number of machines where the class has no blocker: the number of zeros in `_why`."""
    _cursor: Ints = column("classes")
    """Value of `Inventory.clock` up to which the class is up to date."""
    _swept: Ints = column("classes")
    """Value of `_cursor` at the last `sweep`."""
    _refused_at: Ints = column("classes")
    """Value of `Inventory.clock` at which no machine was able to make room for the class."""

    def __init__(self, cluster: Cluster, batch: NetworkBatch, machines: MachineArcs, racks: RackArcs) -> None:
        super().__init__()
        self.cluster = cluster
        self.batch = batch
        self.machines = machines
        self.racks = racks
        self._why_copy = {}
        self.next_sweep = 0
        """Value of `Inventory.clock` after which another `sweep` is due."""
        self.looks = 0
        """Number of times when blockers may have changed without a change of a machine."""

    # -- machines and classes come and go -----------------------------------------------------------------------

    def forget_machines(self, rows: Sequence[int]) -> list[int]:
        """Forget machines, which `MachineArcs` has forgotten already; return their gates, for removal."""
        gates = self._gate[:, rows]
        nodes: list[int] = gates[gates >= 0].tolist()
        self._arc[:, rows] = self._gate[:, rows] = -1
        self._capacity[:, rows] = 0
        restored = self._roomy & (self._open == 0)  # set by `had_room`, without the machines
        self._open -= (self._why[:, rows] == 0).sum(axis=1)
        self._why[:, rows] = DOWN
        self._why_copy.clear()
        self._roomy[:] = (self._open > 0) | restored
        return nodes

    def leave_rack(self, row: int) -> list[int]:
        """Remove all arcs to a machine, until new ones are needed; return its gates, for removal."""
        arcs = self._arc[:, row]
        self.batch.remove_arcs(arcs[arcs >= 0])
        arcs[:] = -1
        self._capacity[:, row] = 0
        gates = self._gate[:, row]
        nodes: list[int] = gates[gates >= 0].tolist()
        gates[:] = -1
        return nodes

    def forget_class(self, class_id: int) -> list[int]:
        """Forget a class; return its gates, for removal."""
        nodes: list[int] = self._gate[class_id][self._gate[class_id] >= 0].tolist()
        self._arc[class_id] = self._gate[class_id] = -1
        self._capacity[class_id] = self._cursor[class_id] = self._refused_at[class_id] = self._open[class_id] = 0
        self._why[class_id] = DOWN
        self._why_copy.pop(class_id, None)
        return nodes

    def sweep(self, needed: Collection[int]) -> list[int]:
        """Remove the arcs of idle classes if they are many; return their nodes, for removal.

        Parameters
        ----------
        needed : collection of int
            Classes that are not idle.
        """
        idle = self._cursor == self._swept
        idle[list(needed)] = False
        inventory = self.cluster.inventory
        self._swept[:], self.next_sweep = self._cursor, inventory.clock + _IDLE * inventory.rows
        classes = np.flatnonzero(idle)
        arcs = int((self._arc[classes] >= 0).sum())
        nodes: list[int] = []
        if arcs < _FEW or arcs <= _RATIO * (self.batch.sizes()[1] - arcs):
            return nodes
        for class_id in classes.tolist():
            nodes += self.racks.release(class_id)
            nodes += self._gate[class_id][self._gate[class_id] >= 0].tolist()
        self._arc[classes] = self._gate[classes] = -1
        self._capacity[classes] = self._cursor[classes] = 0
        return nodes

    # -- world -> arcs ------------------------------------------------------------------------------------------

    def forget_costs(self) -> None:
        """Check all machines for every class in the next `refresh`."""
        self.looks += 1
        self._cursor[:] = self._refused_at[:] = 0

    def invalidate(self, classes: Sequence[int]) -> None:
        """Check all machines for these classes in the next `refresh`, since fits have changed."""
        self.looks += 1
        known = [class_id for class_id in classes if self.racks.aggregator(class_id) is not None]
        self._cursor[known] = self._refused_at[known] = 0

    def reset(self, class_id: int) -> None:
        """Check all machines for a class in the next `refresh`, since some of its capacities were lowered for a round."""
        self._cursor[class_id] = 0

    def _connect(self, c: Ints, r: Ints) -> None:
        """Add arcs of these classes to these machines."""
        tails = self.racks.nodes(c, self.racks.of[r])
        heads = self.machines.node[r]
        self._arc[c, r] = self.batch.add_arcs(tails, heads, self._capacity[c, r], self._cost[c, r])

    def _pull(self, classes: list[int], cursor: int, policy: Policy, refused: Refused, plain: bool) -> None:
        """Bring classes up to date where Python determines room, if not `plain`, or costs."""
        inventory, recipe, displacing = self.cluster.inventory, policy.recipe, policy.preemption is not None
        fits = why = prices = None
        index, rows = np.array(classes, np.int64), inventory.changed_since(cursor)
        if not len(rows):
            return
        if not plain:
            fits, why = inventory.room(index, rows)
        if recipe is None:
            prices = policy.place(self.cluster, index, rows)
        new = _arcs.refresh(self, classes, cursor, recipe, prices, displacing, refused, rows, fits, why)
        if new is not None:
            self._connect(*new)
        if inventory.affinity.fussy:
            for class_id in classes:
                if inventory.affinity.spreads(class_id):
                    self.racks.spread(class_id, rows)

    def gates(self, classes: Ints, rows: Ints) -> Ints:
        """Return the gates of machines, through which all ways of a class lead there; missing ones are added."""
        missing = self._gate[classes, rows] < 0
        if missing.any():
            c, r = np.unique(np.stack([classes[missing], rows[missing]]), axis=1)
            racks = self.racks.nodes(c, self.racks.of[r])
            old = self._arc[c, r]
            self.batch.remove_arcs(old[old >= 0])
            nodes = self.batch.add_nodes(len(c))
            self.batch.add_arcs(racks, nodes, INF, 0)
            self._gate[c, r] = nodes
            heads = self.machines.node[r]
            self._arc[c, r] = self.batch.add_arcs(nodes, heads, self._capacity[c, r], self._cost[c, r])
        found: Ints = self._gate[classes, rows]
        return found

    def close_to_victims(self, class_id: int, row: int) -> None:
        """Lower the capacity of an arc to the free slots, without room that tasks there would make."""
        inventory = self.cluster.inventory
        seats = max(int(inventory.slots[row] - inventory.running[row]), 0)
        limit = min(int(self._capacity[class_id, row]), seats)
        if limit != self._capacity[class_id, row]:
            self._capacity[class_id, row] = limit
            self.batch.set_capacity(int(self._arc[class_id, row]), limit)

    # -- making room --------------------------------------------------------------------------------------------

    def worth_asking(self, classes: Sequence[int], policy: Policy, refused: Refused) -> dict[int, Ints]:
        """Return usable machines without room now that have not refused, by class; classes without any are left out."""
        inventory = self.cluster.inventory
        window = policy.preemption is not None and policy.preemption.window > 0  # time alone may then make room
        alike: dict[tuple[int, int], list[int]] = {}
        for class_id in classes:
            since = 0 if window else int(self._refused_at[class_id])
            alike.setdefault((since, int(self._cursor[class_id])), []).append(class_id)
        found: dict[int, Ints] = {}
        for (since, cursor), members in alike.items():
            rows = inventory.changed_since(since)
            rows = rows[inventory.usable[rows]]
            if not len(rows):
                continue
            index = np.array(members, np.int64)
            capacity = self._capacity[np.ix_(index, rows)]
            later = inventory.newer(rows, cursor)
            newer = rows[later]
            if len(newer):
                seats = _arcs.seats(inventory, index, newer, policy.preemption is not None, refused)
                now = np.minimum(inventory.room(index, newer)[0], seats)
                capacity[:, later] = now
            for class_id, some in zip(members, capacity == 0, strict=True):
                mine = rows[some]
                if class_id in refused:
                    mine = mine[~np.isin(mine, list(refused[class_id]))]
                if len(mine):
                    found[class_id] = mine
        return found

    def give_up(self, class_id: int) -> None:
        """Record that no machine can make room for the class in the present state."""
        self._refused_at[class_id] = self.cluster.inventory.clock

    # -- flow and room ------------------------------------------------------------------------------------------

    def cost(self, class_id: int, row: int) -> int:
        """Return the cost of a placement, as of the last `refresh`."""
        return int(self._cost[class_id, row])

    def with_room(self, classes: Sequence[int]) -> list[int]:
        """Return the classes for which some machine had room without victims, as of the last `refresh`."""
        return _arcs.with_room(self, list(classes))

    def with_room_now(self, classes: Sequence[int]) -> list[int]:
        """Return those of `with_room` for which some machine has room now; classes without room then are not checked again."""
        known = self.with_room(classes)
        if not known:
            return known
        index = np.array(known, np.int64)
        rows = self.cluster.inventory.changed_since(int(self._cursor[index].min()))
        rows = rows[rows < self.room]
        has = self._open[index] > (self._why[np.ix_(index, rows)] == 0).sum(axis=1)
        unsure = np.flatnonzero(~has)
        if len(unsure) and len(rows):
            has[unsure] = (self.cluster.inventory.room(index[unsure], rows)[1] == 0).any(axis=1)
        found: list[int] = index[has].tolist()
        return found

    @property
    def room(self) -> int:
        """Number of rows for which the arrays have room."""
        return int(self._arc.shape[1])

    @property
    def known(self) -> int:
        """Number of classes for which the arrays have room."""
        return len(self._roomy)

    def roomy(self) -> list[int]:
        """Return all classes of `with_room`, without regard to machines that have been removed since."""
        node = self.machines.node
        there = np.zeros(len(node), np.bool_)
        there[[row for row in self.cluster.by_row if row < len(there)]] = True
        alike = bool((there | (node < 0)).all())
        roomy = self._roomy if alike else ((self._why == 0) & (node >= 0) & there).any(axis=1)
        found: list[int] = np.flatnonzero(roomy).tolist()
        return found

    def had_room(self, classes: Sequence[int]) -> None:
        """Take over the result of `roomy` of another builder, before the first `refresh`."""
        self.grow(classes=max(classes, default=-1) + 1)
        self._roomy[list(classes)] = True

    def offers(self, classes: Ints) -> Ints:
        """Return the largest number of tasks of each class that the flow may send to each machine, shape (classes, rows).

        Without victims, as of the last `refresh`.
        """
        capacity: Ints = self._capacity[classes, : self.cluster.inventory.rows]
        return capacity

    def roomy_rows(self, classes: Ints) -> NDArray[np.bool_]:
        """Return the rows to which the flow may send tasks of any of these classes; see `offers`."""
        found = np.zeros(self.cluster.inventory.rows, np.bool_)
        for class_id in classes.tolist():  # faster than a copy of all their lines
            found |= self._capacity[class_id, : len(found)] != 0
        return found

    def why(self, class_id: int) -> NDArray[np.uint32]:
        """Return the blockers of one more task of a class by row, as of the last `refresh` (see `Inventory.room`).

        The array is the same object until a blocker changes.
        """
        rows = self.cluster.inventory.rows
        if self.racks.aggregator(class_id) is None:
            return np.full(rows, DOWN, np.uint32)
        copy = self._why_copy.get(class_id)
        if copy is None or len(copy) != rows:
            copy = self._why_copy[class_id] = np.full(rows, DOWN, np.uint32)
            known = self._why[class_id, :rows]
            copy[: len(known)] = known
        return copy

    def blockers_now(self, classes: Sequence[int]) -> list[NDArray[np.uint32]]:
        """Return `why` of each class at the present time; no stored state changes."""
        if not classes:
            return []
        known = [self.racks.aggregator(class_id) is not None for class_id in classes]
        seen = min(int(self._cursor[class_id]) if has else 0 for class_id, has in zip(classes, known, strict=True))
        rows = self.cluster.inventory.changed_since(seen)
        _, now = self.cluster.inventory.room(np.array(classes, np.int64), rows)
        whys = []
        for class_id, part in zip(classes, now, strict=True):
            why = self.why(class_id).copy()
            why[rows] = part
            whys.append(why)
        return whys

    def cursors(self, classes: Ints) -> Ints:
        """Return the value of `Inventory.clock` up to which each class is up to date, 0 before its first refresh."""
        cursors: Ints = self._cursor[classes]
        return cursors

    # -- for tests ----------------------------------------------------------------------------------------------

    def kept_arcs(self) -> Iterator[KeptArcs]:
        """Yield the arcs kept by this part, with their ends."""
        c, r = np.nonzero(self._arc >= 0)
        gates = self._gate[c, r]
        tails = np.where(gates >= 0, gates, self.racks.nodes(c, self.racks.of[r]))
        yield self._arc[c, r], tails, self.machines.node[r]

    @property
    def num_gates(self) -> int:
        """Number of gates; each has an arc from its rack that no part keeps, since it never changes."""
        return int((self._gate >= 0).sum())
