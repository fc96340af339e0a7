"""Data locality: arcs from groups of tasks to the machines and racks that hold their input.

They are the preference arcs of "Quincy: Fair Scheduling for Distributed Computing Clusters" (Isard et al., 2009)::

                             far
        g --0--> E_g -------------------> X_c --0--> R_c,r --load--> M
                  | \\      in the rack                  ^  \\           ^
                  |  `---------------------------------'    0         | load
                  |         on the machine                   v        |
                  `------------------------------------->  N_c,M -----'

A group whose tasks have data enters by a node of its own, E_g (capacity: its waiting tasks).  The arc to the class's
aggregator has the cost of an arbitrary machine.  The arcs to a rack and to a machine have the worst cost below them.
Only racks and machines with a considerable part of the data get arcs, so a group has a few whatever the size of the
cluster.  The gate N_c,M stands before a machine that some group of the class prefers.  Therefore the load, and the
limit of tasks that fit, also apply to tasks that come through the rack.  Everything here is fixed until a machine that
holds data comes, goes or
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flowsched.builder.batch import KeptArcs, NetworkBatch
from flowsched.builder.class_arcs import ClassArcs
from flowsched.builder.racks import RackArcs
from flowsched.cluster import Cluster
from flowsched.cluster.records import Group
from flowsched.network.results import INF
from flowsched.policy import Policy

__all__ = ["Entry", "LocalityArcs", "Near"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Near:
    """Flow from a group with data.

    Attributes
    ----------
    anywhere : int
        Tasks that go to the class's aggregator.
    racks, rows : list of (int, int, int)
        Rack or row, cost of the distance, and tasks that go there.
    """

    anywhere: int
    racks: list[tuple[int, int, int]]
    rows: list[tuple[int, int, int]]


@dataclass(slots=True)
class Entry:
    """Entry of a group.

    Attributes
    ----------
    node : int
    far : int
        Arc to the class's aggregator.
    arcs : ndarray of int64
        Arcs to the racks, then those to the machines.
    heads : ndarray of int64
        Nodes where the arcs end.
    racks, rows : list of (int, int)
        Rack or row, and cost, in the order of `arcs`.
    """

    node: int
    far: int
    arcs: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    heads: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    racks: list[tuple[int, int]] = field(default_factory=list)
    rows: list[tuple[int, int]] = field(default_factory=list)


class LocalityArcs:
    """Entries of the groups that have data.

    Parameters
    ----------
    cluster : Cluster
    batch : NetworkBatch
    racks : RackArcs
    classes : ClassArcs
    """

    def __init__(self, cluster: Cluster, batch: NetworkBatch, racks: RackArcs, classes: ClassArcs) -> None:
        self.cluster = cluster
        self.batch = batch
        self.racks = racks
        self.classes = classes
        self.entries: dict[Group, Entry] = {}
        """Entries by group; has exactly the groups with data."""
        self._holding: dict[Hashable, dict[Group, None]] = {}
        """Groups by machine that holds some of their data, even if the machine is not in the cluster."""
        self._at: dict[int, Hashable] = {}
        """Machine by row, for machines that hold data; kept after the machine has gone."""
        self.stale: dict[Group, None] = {}
        """Groups whose arcs the next update renews."""

    def add(self, groups: Sequence[Group]) -> None:
        """Add entries for new groups that have data, whose classes have aggregators already."""
        aggregators = [self.racks.aggregator_of(group.cls.index) for group in groups]
        nodes = self.batch.new_nodes(len(groups))
        far = self.batch.new_arcs(nodes, aggregators, INF, 0)
        for group, node, arc in zip(groups, nodes, far, strict=True):
            self.entries[group] = Entry(node, arc)
            self.stale[group] = None
            for machine, _ in group.data:
                self._holding.setdefault(machine, {})[group] = None

    def forget(self, group: Group) -> list[int]:
        """Forget a group; return its nodes, for removal."""
        entry = self.entries.pop(group, None)
        if entry is None:
            return []
        self.stale.pop(group, None)
        for machine, _ in group.data:
            self._holding[machine].pop(group, None)
            if not self._holding[machine]:
                del self._holding[machine]
        return [entry.node]

    def machines_change(self, gone: Iterable[int], new: Iterable[int]) -> None:
        """Remove the arcs at machines that go, come or change their rack, before `ClassArcs` is updated."""
        if not self.entries:
            return
        machines = [self._at.pop(row) for row in gone if row in self._at]
        machines += [self.cluster.by_row[row].id for row in new]
        touched = dict.fromkeys(group for machine in machines for group in self._holding.get(machine, ()))
        self._cut_off(touched)
        self.stale.update(touched)

    def forget_costs(self) -> None:
        """Renew all arcs in the next update."""
        self.stale.update(dict.fromkeys(self.entries))

    def update(self, policy: Policy) -> None:
        """Renew the arcs of new groups and of groups whose data moved."""
        stale, self.stale = list(self.stale), {}
        self._cut_off(stale)
        for group in stale:
            self.batch.set_cost(self.entries[group].far, policy.distance(0.0, 0.0, _total(group)))
        if policy.locality is None:
            return
        to_racks: list[tuple[Group, int, int]] = []
        to_rows: list[tuple[Group, int, int]] = []
        for group in stale:
            rows, racks = self._parts(group)
            least, total = policy.locality.threshold, _total(group)
            to_racks += [(group, r, policy.distance(0.0, part, total)) for r, part in racks.items() if part >= least]
            for row, part in rows.items():
                if part >= least:
                    rack = int(self.racks.of[row])
                    to_rows.append((group, row, policy.distance(part, racks[rack], total)))
                    self._at[row] = self.cluster.by_row[row].id
        self._lead(to_racks, to_rows)

    def _parts(self, group: Group) -> tuple[dict[int, float], dict[int, float]]:
        """Return the parts of the group's data by row and by rack."""
        total = _total(group)
        rows: dict[int, float] = {}
        racks: dict[int, float] = {}
        for machine, amount in group.data:
            record = self.cluster.machines.get(machine)
            if record is not None and amount:
                rack = int(self.racks.of[record.row])
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
        gates = self.classes.gates(classes[k:], where[k:])
        heads = np.concatenate([self.racks.nodes(classes[:k], where[:k]), gates])
        tails = np.array([self.entries[group].node for group, _, _ in both], np.int64)
        arcs = self.batch.add_arcs(tails, heads, INF, np.array([cost for _, _, cost in both], np.int64))
        mine: dict[Group, list[int]] = {}
        for i, (group, place, cost) in enumerate(both):
            entry = self.entries[group]
            (entry.racks if i < k else entry.rows).append((place, cost))
            mine.setdefault(group, []).append(i)
        for group, at in mine.items():
            self.entries[group].arcs, self.entries[group].heads = arcs[at], heads[at]

    def _cut_off(self, groups: Iterable[Group]) -> None:
        """Remove all arcs to racks and machines."""
        entries = [self.entries[group] for group in groups]
        arcs = [entry.arcs for entry in entries if len(entry.arcs)]
        if arcs:
            self.batch.remove_arcs(np.concatenate(arcs))
        for entry in entries:
            entry.arcs, entry.heads, entry.racks, entry.rows = np.zeros(0, np.int64), np.zeros(0, np.int64), [], []

    def entry(self, group: Group) -> int | None:
        """Return the group's entry node, None for a group without data."""
        return self.entries[group].node if group in self.entries else None

    def flows(self) -> dict[Group, Near]:
        """Return the flow from the groups that have data and waiting tasks."""
        waiting, entries = self.cluster.waiting, self.entries
        if sum(map(len, waiting.values())) < len(entries):  # the usual case: most groups with data run
            mine = [(group, entries[group]) for groups in waiting.values() for group in groups if group in entries]
        else:
            mine = [(group, entry) for group, entry in entries.items() if group.waiting]
        if not mine:
            return {}
        arcs = [arc for _, entry in mine for arc in (np.array([entry.far]), entry.arcs)]
        flow = self.batch.flow(np.concatenate(arcs)).tolist()
        found, at = {}, 0
        for group, entry in mine:
            near = flow[at + 1 : at + 1 + len(entry.arcs)]
            racks = [(*to, units) for to, units in zip(entry.racks, near, strict=False) if units]
            rows = [(*to, units) for to, units in zip(entry.rows, near[len(entry.racks) :], strict=True) if units]
            found[group] = Near(flow[at], racks, rows)
            at += 1 + len(entry.arcs)
        return found

    def kept_arcs(self) -> Iterator[KeptArcs]:
        """Yield the arcs kept by this part, with their ends."""
        for group, entry in self.entries.items():
            heads = np.array([self.racks.aggregator(group.cls.index), *entry.heads.tolist()], np.int64)
            arcs = np.array([entry.far, *entry.arcs.tolist()], np.int64)
            yield arcs, np.full(len(arcs), entry.node), heads


def _total(group: Group) -> float:
    """Return the amount of the group's data."""
    return sum(amount for _, amount in group.data)
