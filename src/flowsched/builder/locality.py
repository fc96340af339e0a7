"""Near their data: arcs from groups of tasks to the machines and racks that hold their input (Quincy's preference arcs).

::

                             far
        g --0--> E_g -------------------> X_c --0--> R_c,r --load--> M
                  | \\      in the rack                  ^  \\           ^
                  |  `---------------------------------'    0         | load
                  |         on the machine                   v        |
                  `------------------------------------->  N_c,M -----'

A group whose tasks have data enters by a node of its own (capacity: how many wait).  The arc to the class's aggregator
costs what holds anywhere, and so do the arcs to a rack and to a machine: the worst case below them.  There are arcs only
to what holds a fair part of the data, so a group has a few whatever the size of the cluster.  N_c,M stands before a
machine that somebody of the class prefers, so that the load, and the limit to how many fit, hold for those who come by
the rack as well.  Everything here is fixed until a machine that holds data comes, goes or moves.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flowsched.builder.batch import NetworkBatch
from flowsched.builder.machines import MachineArcs
from flowsched.cluster import Cluster
from flowsched.cluster.records import Group
from flowsched.network.results import INF
from flowsched.policy import Policy

__all__ = ["LocalityArcs", "Near"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Near:
    """What the flow sends from a group with data: so many anywhere; to racks, and to machines by row, at which cost."""

    anywhere: int
    racks: list[tuple[int, int, int]]
    rows: list[tuple[int, int, int]]


@dataclass(slots=True)
class _Entry:
    """A group's entry: its node, the arc to X, and the arcs to racks and machines (by row), with their costs."""

    node: int
    far: int
    arcs: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    racks: list[tuple[int, int]] = field(default_factory=list)
    rows: list[tuple[int, int]] = field(default_factory=list)


class LocalityArcs:
    """Entries of the groups that have data.

    Parameters
    ----------
    cluster : Cluster
    edits : Edits
        Way into the network.
    places : Places
        Where the arcs lead.
    """

    def __init__(self, cluster: Cluster, edits: NetworkBatch, places: MachineArcs) -> None:
        self.cluster = cluster
        self.edits = edits
        self.places = places
        self._entries: dict[Group, _Entry] = {}
        self._holding: dict[Hashable, dict[Group, None]] = {}
        self._at: dict[int, Hashable] = {}
        self._stale: dict[Group, None] = {}

    def add(self, groups: Sequence[Group]) -> list[int]:
        """Entry nodes for new groups that have data, whose classes have aggregators already."""
        aggregators = [self.places.aggregator(group.cls.index) for group in groups]
        nodes: list[int] = self.edits.add_nodes(len(groups)).tolist()
        far = self.edits.add_arcs(np.array(nodes, np.int64), np.array(aggregators, np.int64), INF, 0).tolist()
        for group, node, arc in zip(groups, nodes, far, strict=True):
            self._entries[group] = _Entry(node, arc)
            self._stale[group] = None
            for machine, _ in group.data:
                self._holding.setdefault(machine, {})[group] = None
        return nodes

    def forget(self, group: Group) -> list[int]:
        """A group goes; its nodes, for removal."""
        entry = self._entries.pop(group, None)
        if entry is None:
            return []
        self._stale.pop(group, None)
        for machine, _ in group.data:
            self._holding[machine].pop(group, None)
            if not self._holding[machine]:
                del self._holding[machine]
        return [entry.node]

    def machines_change(self, gone: Iterable[int], new: Iterable[int]) -> None:
        """Machines go, come or change their rack: before the places hear of it, take away the arcs that hang on them."""
        if not self._entries:
            return
        machines = [self._at.pop(row) for row in gone if row in self._at]
        machines += [self.cluster.by_row[row].machine.id for row in new]
        touched = dict.fromkeys(group for machine in machines for group in self._holding.get(machine, ()))
        self._cut_off(touched)
        self._stale.update(touched)

    def forget_costs(self) -> None:
        """Everything costs something else."""
        self._stale.update(dict.fromkeys(self._entries))

    def update(self, policy: Policy) -> None:
        """New arcs for groups that are new or whose data moved."""
        stale, self._stale = list(self._stale), {}
        if not stale:
            return
        self._cut_off(stale)
        for group in stale:
            self.edits.cost[self._entries[group].far] = policy.distance(0.0, 0.0)
        if policy.locality is None:
            return
        to_racks: list[tuple[Group, int, int]] = []
        to_rows: list[tuple[Group, int, int]] = []
        for group in stale:
            rows, racks = self._shares(group)
            least = policy.locality.threshold
            to_racks += [(group, r, policy.distance(0.0, part)) for r, part in racks.items() if part >= least]
            for row, part in rows.items():
                if part >= least:
                    rack = self.places.rack(row)
                    to_rows.append((group, row, policy.distance(part, racks[rack])))
                    self._at[row] = self.cluster.by_row[row].machine.id
        self._lead(to_racks, to_rows)

    def _shares(self, group: Group) -> tuple[dict[int, float], dict[int, float]]:
        """Which part of the group's data is on which machine, by row, and in which rack."""
        total = sum(amount for _, amount in group.data)
        rows: dict[int, float] = {}
        racks: dict[int, float] = {}
        for machine, amount in group.data:
            record = self.cluster.machines.get(machine)
            if record is not None and amount:
                rack = self.places.rack(record.row)
                rows[record.row] = amount / total
                racks[rack] = racks.get(rack, 0.0) + amount / total
                self._at[record.row] = machine
        return rows, racks

    def _lead(self, to_racks: list[tuple[Group, int, int]], to_rows: list[tuple[Group, int, int]]) -> None:
        both = to_racks + to_rows
        if not both:
            return
        classes = np.array([group.cls.index for group, _, _ in both], np.int64)
        where = np.array([place for _, place, _ in both], np.int64)
        k = len(to_racks)
        gates = self.places.gates(classes[k:], where[k:])
        heads = np.concatenate([self.places.rack_nodes(classes[:k], where[:k]), gates])
        tails = np.array([self._entries[group].node for group, _, _ in both], np.int64)
        arcs = self.edits.add_arcs(tails, heads, INF, np.array([cost for _, _, cost in both], np.int64))
        mine: dict[Group, list[int]] = {}
        for i, (group, place, cost) in enumerate(both):
            entry = self._entries[group]
            (entry.racks if i < k else entry.rows).append((place, cost))
            mine.setdefault(group, []).append(i)
        for group, at in mine.items():
            self._entries[group].arcs = arcs[at]

    def _cut_off(self, groups: Iterable[Group]) -> None:
        """Take away all arcs to racks and machines."""
        entries = [self._entries[group] for group in groups]
        arcs = [entry.arcs for entry in entries if len(entry.arcs)]
        if arcs:
            self.edits.remove_arcs(np.concatenate(arcs))
        for entry in entries:
            entry.arcs, entry.racks, entry.rows = np.zeros(0, np.int64), [], []

    def flows(self, groups: Iterable[Group]) -> dict[Group, Near]:
        """What the flow sends from those of the groups that have data."""
        mine = [(group, self._entries[group]) for group in groups if group in self._entries]
        if not mine:
            return {}
        arcs = [arc for _, entry in mine for arc in (np.array([entry.far]), entry.arcs)]
        flow = self.edits.network.flow(np.concatenate(arcs)).tolist()
        found, at = {}, 0
        for group, entry in mine:
            near = flow[at + 1 : at + 1 + len(entry.arcs)]
            racks = [(*to, units) for to, units in zip(entry.racks, near, strict=False) if units]
            rows = [(*to, units) for to, units in zip(entry.rows, near[len(entry.racks) :], strict=True) if units]
            found[group] = Near(flow[at], racks, rows)
            at += 1 + len(entry.arcs)
        return found
