"""Nobody starves: machines kept free for those who have waited long.

While small tasks take every bit of room that becomes free, a large one never finds a whole machine, however much more
its waiting costs: costs choose between those who fit.  So a class whose oldest task has reached the age bucket
`WaitCost.reserve` gets a machine to itself, the one where least is lacking.  Tasks of equal or worse priority start there
no more, those that run there go on, and when they have gone, the class fits.  A hold is given up after as long as the
task had waited when it was made, for another machine and for twice as long; so it outlasts any run at last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from flowsched.builder.class_arcs import ClassArcs
from flowsched.cluster import Cluster
from flowsched.cluster.records import Group, TaskClass

__all__ = ["Reservations"]

_MACHINES_PER_HOLD = 500
"""So small a part of the cluster stands aside: one machine, and one more for every so many."""


@dataclass(slots=True)
class _Reservation:
    row: int
    until: float
    tried: dict[int, None] = field(default_factory=dict)


class Reservations:
    """Which machine is kept for which class.

    Parameters
    ----------
    cluster : Cluster
    classes : ClassArcs
    """

    def __init__(self, cluster: Cluster, classes: ClassArcs) -> None:
        self.cluster = cluster
        self.classes = classes
        self._holds: dict[TaskClass, _Reservation] = {}

    def time_tells(self, now: float) -> bool:
        """Whether a machine has been kept for long enough."""
        return any(now >= hold.until for hold in self._holds.values())

    def remember(self) -> Iterator[tuple[TaskClass, int, float, list[int]]]:
        """Class, row that is kept for it (-1 without one), until when, and rows tried, for `resume`."""
        held, by_row = self.cluster.inventory.held, self.cluster.by_row
        for cls, hold in self._holds.items():
            if cls.tasks:
                kept = hold.row in by_row and held[hold.row] == cls.index
                yield cls, hold.row if kept else -1, hold.until, list(hold.tried)

    def resume(self, holds: Iterable[tuple[TaskClass, int, float, Sequence[int]]]) -> None:
        """Keep these machines."""
        for cls, row, until, tried in holds:
            self._holds[cls] = _Reservation(row, until, dict.fromkeys(tried))
            if row >= 0:
                self.cluster.inventory.hold(row, cls.index)

    def update(self, patient: Iterable[Group], now: float) -> None:
        """Give machines back that are needed no more, and keep others.

        Parameters
        ----------
        patient : iterable of Group
            Those whose oldest task has waited for long.
        """
        groups = [group for group in patient if group.waiting]
        if not groups and not self._holds:
            return
        oldest: dict[TaskClass, float] = {}
        for group in groups:
            since = group.waiting[0].since
            if since is not None:
                oldest[group.cls] = min(oldest.get(group.cls, since), since)
        roomy = set(self.classes.with_room([cls.index for cls in oldest]))  # what keeps these waiting is not room
        due = [cls for cls in oldest if cls.index not in roomy]
        self._give_back(set(due), now)
        inventory = self.cluster.inventory
        due.sort(key=lambda cls: (cls.priority, oldest[cls], -inventory.size(cls.index), cls.rank))
        for cls in due[: 1 + len(self.cluster.machines) // _MACHINES_PER_HOLD]:
            hold = self._holds.get(cls)
            if hold is None or hold.row < 0:
                self._keep(cls, hold or _Reservation(-1, now), 2 * now - oldest[cls])

    def _give_back(self, due: set[TaskClass], now: float) -> None:
        inventory = self.cluster.inventory
        for cls, hold in list(self._holds.items()):
            if hold.row >= 0 and inventory.held[hold.row] != cls.index:  # the machine has gone
                hold.row = -1
            over = cls not in due or now >= hold.until
            if hold.row >= 0 and (over or not inventory.can_take(hold.row, cls.index)):
                inventory.hold(hold.row, -1)
                hold.row = -1
            if cls not in due:
                del self._holds[cls]

    def _keep(self, cls: TaskClass, hold: _Reservation, until: float) -> None:
        """Keep the machine that lacks least, of those not tried yet."""
        inventory = self.cluster.inventory
        rows = np.arange(inventory.rows)
        rows = rows[inventory.usable[rows] & (inventory.held[rows] < 0)]
        rows = rows[inventory.can_ever(np.array([cls.index]), rows)[0]]
        untried = rows[~np.isin(rows, list(hold.tried))]
        if not len(untried):
            hold.tried.clear()
            untried = rows
        if not len(untried):
            return
        lacking = np.maximum(cls.demand - inventory.free[untried], 0) / np.maximum(cls.demand, 1)
        row = int(untried[np.argmin(lacking.sum(axis=1))])
        hold.row, hold.until, hold.tried[row] = row, until, None
        self._holds[cls] = hold
        inventory.hold(row, cls.index)
