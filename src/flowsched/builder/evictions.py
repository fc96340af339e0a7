"""Arcs of one round by which a class enters machines where other tasks must stop first.

::

    X_c --load + price--> M        capacity: one task
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from flowsched.builder.batch import KeptArcs, NetworkBatch
from flowsched.builder.class_arcs import ClassArcs
from flowsched.policy import Policy

__all__ = ["EvictionArcs"]

Ints = NDArray[np.int64]


class EvictionArcs:
    """Offers to make room, and the machines that refuse to.

    Parameters
    ----------
    batch : NetworkBatch
    classes : ClassArcs

    Attributes
    ----------
    offers : dict of (int, int) to int
        Arcs by class and row.
    refused : dict of int to dict of int
        Rows where no task makes room in this round, by class.
    """

    def __init__(self, batch: NetworkBatch, classes: ClassArcs) -> None:
        self.batch = batch
        self.classes = classes
        self.refused: dict[int, dict[int, None]] = {}
        self.offers: dict[tuple[int, int], int] = {}

    def worth_asking(self, classes: list[int], policy: Policy) -> dict[int, Ints]:
        """Return machines without room that have not refused, by class; see `ClassArcs.worth_asking`."""
        return self.classes.worth_asking(classes, policy, self.refused)

    def offer(self, class_id: int, rows: Ints, cost: Ints) -> None:
        """Offer one task of the class each of these machines at that cost, while others make room."""
        tail = self.classes.racks.aggregator(class_id)
        assert tail is not None
        heads = self.classes.machines.node[rows]
        arcs = self.batch.add_arcs(np.full(len(rows), tail), heads, 1, cost)
        self.offers.update(zip(((class_id, row) for row in rows.tolist()), arcs.tolist(), strict=True))

    def withdraw(self) -> None:
        """Remove all offers; at least one exists."""
        self.batch.remove_arcs(list(self.offers.values()))
        self.offers.clear()

    def refuse_all(self, classes: Iterable[int], row: int) -> None:
        """Refuse several classes at one machine."""
        if self.offers or self.classes.cluster.inventory.limits(row):
            for class_id in classes:
                self.refuse(class_id, row)
            return
        for class_id in classes:  # without a limit of slots no arc is closed
            self.refused.setdefault(class_id, {})[row] = None

    def refuse(self, class_id: int, row: int) -> None:
        """Exclude the machine from making room for the class in this round."""
        self.refused.setdefault(class_id, {})[row] = None
        arc = self.offers.pop((class_id, row), None)
        if arc is not None:
            self.batch.remove_arcs([arc])
        self.classes.close_to_victims(class_id, row)

    def restart(self) -> None:
        """Remove all offers, and forget refusals."""
        if self.offers:
            self.withdraw()
        limits = self.classes.cluster.inventory.limits
        for class_id, rows in self.refused.items():
            if any(map(limits, rows)):
                self.classes.reset(class_id)
        self.refused.clear()

    def flows(self) -> dict[int, list[int]]:
        """Return the rows where the flow takes an offer, by class."""
        taken: dict[int, list[int]] = {}
        flow = self.batch.flow(np.array(list(self.offers.values()), np.int64))
        for (class_id, row), units in zip(self.offers, flow.tolist(), strict=True):
            if units:
                taken.setdefault(class_id, []).append(row)
        return taken

    def kept_arcs(self) -> Iterator[KeptArcs]:
        """Yield the arcs kept by this part, with their ends."""
        offers = np.array(list(self.offers), np.int64).reshape(-1, 2)
        tails = [self.classes.racks.aggregator(class_id) for class_id in offers[:, 0].tolist()]
        heads = self.classes.machines.node[offers[:, 1]]
        yield np.array(list(self.offers.values()), np.int64), np.array(tails, np.int64), heads
