"""Reservations: machines kept free for tasks that have waited long, so that none starves.

While small tasks take every bit of room that becomes free, a large one never finds a whole machine, however much more
its waiting costs: costs choose between tasks that fit.  So a class whose oldest task has reached the age bucket
`WaitCost.reserve` gets a machine to itself, the one where least is lacking.  Tasks of equal or worse priority start there
no more, those that run there go on, and when they have gone, the class fits.  A hold is given up after as long as the
task had waited when it was made, for another machine and for twice as long; so it outlasts any run at last.

Where run times are estimated (`Task.duration`), the class need not wait for that.  The first tasks in line, by priority
and arrival, that find no room get the machines that will have room for them first, and the time of that is known.  Until
then others may *overtake* them there, if they leave in time or leave enough beside them (`flowsched.rounds.backfill`):
backfilling as in EASY (Lifka, "The ANL/IBM SP Scheduling System", JSSPP 1995; Mu'alem and Feitelson, IEEE TPDS 12(6),
2001).  A run that outlasts its estimate is expected to take as long again as it has taken.  After the time that was
expected, another machine is chosen if there is still no room.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from flowsched.builder.class_arcs import ClassArcs
from flowsched.cluster import Cluster
from flowsched.cluster.columns import Columns, column
from flowsched.cluster.records import Group, TaskClass

__all__ = ["Reservation", "Reservations"]

Ints = NDArray[np.int64]

_MACHINES_PER_HOLD = 500
"""So small a part of the cluster stands aside: one machine, and one more for every so many."""


@dataclass(slots=True)
class Reservation:
    """The machine reserved for a class (row -1 for none yet), until when, and the rows that were tried before."""

    row: int
    until: float
    tried: dict[int, None] = field(default_factory=dict)


class Reservations(Columns):
    """Machines kept for classes, as a limit that `Inventory.room` asks.

    Parameters
    ----------
    cluster : Cluster
    classes : ClassArcs
    """

    held: Ints = column("rows", fill=-1)
    """The class that the row is kept for, -1 without one."""

    def __init__(self, cluster: Cluster, classes: ClassArcs) -> None:
        super().__init__()
        self.cluster = cluster
        self.classes = classes
        self._holds: dict[TaskClass, Reservation] = {}
        self.holding = 0
        self._granted: dict[int, None] = {}

    # -- the limit ----------------------------------------------------------------------------------------------

    def against(self, classes: Ints, rows: Ints) -> NDArray[np.bool_]:
        """Return whether the row is kept for another class that is not of worse priority, shape (classes, rows)."""
        self.grow(rows=self.cluster.inventory.rows)
        priority = self.cluster.inventory.priority
        held, cls = self.held[rows][None, :], classes[:, None]
        against: NDArray[np.bool_] = (held >= 0) & (held != cls) & (priority[cls] >= priority[held])
        return against

    def forbids(self, row: int, class_id: int) -> bool:
        """Return `against` for one row and one class."""
        return self.holding > 0 and bool(self.against(np.array([class_id]), np.array([row]))[0, 0])

    def grants(self, turn: int) -> bool:
        """Return whether the task of this turn may overtake, by the last round."""
        return turn in self._granted

    def _hold(self, row: int, cls: int) -> None:
        """Keep the row for a class and those of better priority, with -1 for none; the row counts as changed."""
        self.forget_machines([row])
        if cls >= 0:
            self.held[row] = cls
            self.holding += 1
        self.cluster.inventory.touch(row)

    def forget_machines(self, rows: Iterable[int]) -> None:
        """Keep these rows for no class, of machines that are gone."""
        self.grow(rows=self.cluster.inventory.rows)
        for row in rows:
            self.holding -= int(self.held[row] >= 0)
            self.held[row] = -1

    def check(self) -> None:
        """Refuse what an image says of machines that are none, or of classes that are none.

        Raises
        ------
        ValueError
        """
        live, count = [-1, *self.cluster.by_class], self.cluster.inventory.rows
        known = bool(np.isin(self.held, live).all()) and bool((self.held[count:] == -1).all())
        if not known or self.holding != int((self.held >= 0).sum()):
            raise ValueError("a machine is held for no class")

    # -- machines and classes -----------------------------------------------------------------------------------

    def time_tells(self, now: float) -> bool:
        """Return whether a machine has been kept for long enough."""
        return any(now >= hold.until for hold in self._holds.values())

    def terms(self) -> list[tuple[TaskClass, int, float]]:
        """Return what is kept: class, row and until when."""
        return [(cls, hold.row, hold.until) for cls, hold in self._holds.items()] if self._holds else []

    def due(self, now: float) -> float:
        """Return when a machine will have been kept for long enough, of those for which that is to come."""
        return min((hold.until for hold in self._holds.values() if hold.until > now), default=inf)

    def remember(self) -> Iterator[tuple[TaskClass, int, float, list[int]]]:
        """Class, row that is kept for it (-1 without one), until when, and rows tried, for `resume`."""
        self.grow(rows=self.cluster.inventory.rows)
        for cls, hold in self._holds.items():
            if cls.tasks:
                kept = hold.row in self.cluster.by_row and self.held[hold.row] == cls.index
                yield cls, hold.row if kept else -1, hold.until, list(hold.tried)

    def resume(self, holds: Iterable[tuple[TaskClass, int, float, Sequence[int]]]) -> None:
        """Keep these machines."""
        for cls, row, until, tried in holds:
            self._holds[cls] = Reservation(row, until, dict.fromkeys(tried))
            if row >= 0:
                self._hold(row, cls.index)

    def update(
        self,
        patient: Collection[Group],
        now: float,
        backfill: Literal["easy", "conservative"] | None = None,
        withheld: Collection[Group] = (),
    ) -> None:
        """Give machines back that are needed no more, and keep others.

        Parameters
        ----------
        patient : collection of Group
            Groups with a task that has waited for long.
        now : float
        backfill : "easy", "conservative" or None
            See `Policy.backfill`.
        withheld : collection of Group
            Groups of which no task may start.
        """
        if self._granted:
            self._granted.clear()
        inventory = self.cluster.inventory
        estimates = backfill is not None and inventory.tasks.estimated > 0 and inventory.rule is None
        if patient or self._holds or estimates:
            self._revise(patient, now, backfill if estimates else None, withheld)

    def _revise(
        self,
        patient: Collection[Group],
        now: float,
        backfill: Literal["easy", "conservative"] | None,
        withheld: Collection[Group],
    ) -> None:
        """See `update`; without `backfill` for patient groups alone."""
        inventory = self.cluster.inventory
        groups = [group for group in patient if group.waiting]
        most = 1 + len(self.cluster.machines) // _MACHINES_PER_HOLD
        oldest: dict[TaskClass, float] = {}
        for group in groups:
            since = group.waiting[0].since
            if since is not None:
                oldest[group.cls] = min(oldest.get(group.cls, since), since)
        roomy = set(self.classes.with_room([cls.index for cls in oldest]))  # what keeps these waiting is not room
        due = [cls for cls in oldest if cls.index not in roomy]
        self.grow(rows=inventory.rows)
        line = self._line(withheld) if backfill is not None else []
        self._give_back({*due, *line}, now)
        for cls in islice((cls for cls in line if not self._has_room(cls)), most if backfill == "easy" else None):
            if cls not in self._holds or self._holds[cls].row < 0:
                self._keep_earliest(cls, now)
        if len(due) > most:  # the sizes of few decide
            last = sorted((cls.priority, oldest[cls]) for cls in due)[most - 1]
            due = [cls for cls in due if (cls.priority, oldest[cls]) <= last]
        due.sort(key=lambda cls: (cls.priority, oldest[cls], -inventory.size(cls.index), cls.rank))
        for cls in due[:most]:
            hold = self._holds.get(cls)
            if hold is None or hold.row < 0:
                self._keep(cls, hold or Reservation(-1, now), 2 * now - oldest[cls])

    def _line(self, withheld: Collection[Group]) -> list[TaskClass]:
        """Return the classes that had no room at the last update: by priority, then by arrival of their first task."""
        inventory = self.cluster.inventory
        waiting = [cls for cls in self.cluster.waiting if not inventory.affinity.restricts(cls.index)]
        known = [cls.index for cls in waiting if cls.index < self.classes.known]
        roomy = set(self.classes.with_room(known))
        first: dict[TaskClass, int] = {}
        for cls in waiting:
            if cls.index not in roomy:
                heads = (
                    g.waiting[0].turn for g in self.cluster.waiting[cls] if g.job.job.gang is None and g not in withheld
                )
                turn = min(heads, default=None)
                if turn is not None:
                    first[cls] = turn
        return sorted(first, key=lambda cls: (cls.priority, first[cls]))

    def _has_room(self, cls: TaskClass) -> bool:
        """Return True if a task of the class may start somewhere now."""
        inventory = self.cluster.inventory
        rows = np.flatnonzero(
            inventory.usable[: inventory.rows] & (inventory.running < inventory.slots)[: inventory.rows]
        )
        return bool(inventory.room(np.array([cls.index]), rows)[0].any())

    def _keep_earliest(self, cls: TaskClass, now: float) -> None:
        """Keep the machine that will have room for the class first, if the time of that is known anywhere."""
        inventory = self.cluster.inventory
        able = inventory.usable[: inventory.rows] & (self.held[: inventory.rows] < 0)
        rows = np.flatnonzero(able)
        rows = rows[inventory.can_ever(np.array([cls.index]), rows)[0]]
        asked = np.zeros(inventory.rows, np.bool_)
        asked[rows] = True
        running = np.flatnonzero(inventory.tasks.row >= 0)
        row, when = self._earliest(cls, running[asked[inventory.tasks.row[running]]], now)
        if when < inf:
            self._holds[cls] = Reservation(row, when)
            self._hold(row, cls.index)

    def _earliest(self, cls: TaskClass, task: Ints, now: float) -> tuple[int, float]:
        """Return which machine has room for the class first as these running tasks end, and when; infinity if unknown."""
        inventory = self.cluster.inventory
        if not len(task):
            return -1, inf
        end, row = self._ends(task, now), inventory.tasks.row[task]
        order = np.lexsort((inventory.tasks.turn[task], end, row))
        end, row, kind = end[order], row[order], inventory.tasks.class_id[task[order]]
        first = np.flatnonzero(np.r_[True, row[1:] != row[:-1]])
        segment = np.repeat(first, np.diff(np.r_[first, len(row)]))
        freed = np.cumsum(inventory.demand[kind], axis=0)
        freed -= freed[segment] - inventory.demand[kind[segment]]
        enough = (freed + inventory.free[row] >= cls.demand).all(axis=1)
        enough &= np.arange(1, len(row) + 1) - segment > inventory.running[row] - inventory.slots[row]
        hits = np.flatnonzero(enough)
        if not len(hits):
            return -1, inf
        best = hits[np.lexsort((row[hits], end[hits]))[0]]
        return int(row[best]), float(end[best])

    def _running_on(self, row: int) -> Ints:
        """Return the indices of the tasks that run on a row."""
        return np.array([task.index for task in self.cluster.by_row[row].tasks], np.int64)

    def _ends(self, tasks: Ints, now: float) -> NDArray[np.float64]:
        """Return when running tasks are expected to end; one beyond its estimate takes as long again as it has taken."""
        end, since = self.cluster.inventory.tasks.end[tasks], self.cluster.inventory.tasks.since[tasks]
        expected: NDArray[np.float64] = np.where(end <= now, 2 * now - since, end)
        return expected

    # -- overtaking ---------------------------------------------------------------------------------------------

    def kept(self) -> list[tuple[int, TaskClass]]:
        """Return the rows that are kept, and for which class."""
        return [
            (hold.row, cls) for cls, hold in self._holds.items() if hold.row >= 0 and self.held[hold.row] == cls.index
        ]

    def leeway(self, row: int, cls: TaskClass, now: float) -> tuple[float, Ints]:
        """Return when a kept row will have room for its class, and what else is free then; infinity if it is unknown."""
        inventory = self.cluster.inventory
        task = self._running_on(row)
        _, when = self._earliest(cls, task, now)
        gone = task[self._ends(task, now) <= when]
        beside: Ints = inventory.free[row] + inventory.demand[inventory.tasks.class_id[gone]].sum(axis=0) - cls.demand
        return when, beside

    def turns(self, row: int, durations: Collection[float], now: float) -> float:
        """Return when time alone next lets tasks of these durations overtake on a kept row, or changes what is expected there.

        A run of age a that has outlasted its estimate is expected to go on for a.  So a task of duration d may be gone before
        it as of a = d, and a run that is expected to end at e ends before it as of the middle of its start and e.
        """
        tasks, here = self.cluster.inventory.tasks, self._running_on(row)
        late = tasks.end[here] <= now
        since, end = tasks.since[here[late]], tasks.end[here[~late]]
        turns = np.concatenate(
            [end, np.add.outer(since, np.array(list(durations), float)).ravel(), np.add.outer(since, end).ravel() / 2]
        )
        return float(turns[turns > now].min(initial=inf))

    def grant(self, turn: int) -> None:
        """Let the task of this turn overtake."""
        self._granted[turn] = None

    def _give_back(self, due: set[TaskClass], now: float) -> None:
        inventory = self.cluster.inventory
        for cls, hold in list(self._holds.items()):
            if hold.row >= 0 and self.held[hold.row] != cls.index:  # the machine has gone
                hold.row = -1
            over = cls not in due or (now >= hold.until and not (hold.row >= 0 and self._free_for(hold.row, cls)))
            if hold.row >= 0 and (over or not inventory.can_take(hold.row, cls.index)):
                self._hold(hold.row, -1)
                hold.row = -1
            if cls not in due:
                del self._holds[cls]

    def _free_for(self, row: int, cls: TaskClass) -> bool:
        """Return True if a task of the class has room on the row now."""
        return bool(self.cluster.inventory.room(np.array([cls.index]), np.array([row]))[0].any())

    def _keep(self, cls: TaskClass, hold: Reservation, until: float) -> None:
        """Keep the machine that lacks least, of those not tried yet."""
        inventory = self.cluster.inventory
        rows = np.arange(inventory.rows)
        rows = rows[inventory.usable[rows] & (self.held[rows] < 0)]
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
        self._hold(row, cls.index)
