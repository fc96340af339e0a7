"""Reservations: machines kept free for tasks that have waited long, so that none starves.

While small tasks take all room as it becomes free, a large one never finds a whole machine, at any cost of its
waiting: costs choose between tasks that fit.  Therefore a class whose oldest task has reached the age bucket
`WaitCost.reserve` gets a machine of its own, the one where least is lacking.  Tasks of equal or worse priority no
longer start there, running ones go on, and after their end the class fits.  A hold ends after the time that the task
had waited when the hold was made.  The next hold is on another machine and lasts twice as long, so that some hold
outlasts any run.

Where run times are estimated (`Task.duration`), the class need not wait for that.  The first tasks in line, by priority
and arrival, that find no room get the machines that will have room for them first, at a known time.  Until then others
may *overtake* them there, if they leave in time or leave enough room (`flowsched.rounds.backfill`):
backfilling as in EASY (Lifka, "The ANL/IBM SP Scheduling System", JSSPP 1995; Mu'alem and Feitelson, IEEE TPDS 12(6),
2001).  A run that outlasts its estimate is expected to double its present age.  If there is still no room at the
expected time, another machine is chosen.

A gang stands in the same line.  It gets the amounts of its tasks on several machines at the earliest time at which all
of them fit (`flowsched.builder.forecast`).  Each round works its reservation out again, and replaces it if the gang can
have room earlier.  Several gangs may have amounts on one machine; a gang takes a machine from classes behind it.  A gang
that can start now, or by evictions, is left to the flow, and gets a reservation after it has fallen short.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from flowsched.builder._arcs import ReservationFields
from flowsched.builder.class_arcs import ClassArcs
from flowsched.builder.forecast import Forecast, Plan, amounts, classes_of, ends, take_devices, together
from flowsched.cluster import Cluster
from flowsched.cluster.columns import Columns, column
from flowsched.cluster.limits import SLOTS
from flowsched.cluster.records import Group, JobRecord, TaskClass

__all__ = ["GangReservation", "RememberedGang", "Reservation", "Reservations", "Terms", "Window"]

Ints = NDArray[np.int64]

_GANGS = 100
"""Largest number of gangs with a reservation."""

_MACHINES_PER_HOLD = 500
"""Number of machines for each machine that is kept free after the first."""


@dataclass(slots=True)
class Reservation:
    """Machine reserved for a class (row -1 for none yet), end of the reservation, and rows tried before."""

    row: int
    until: float
    tried: dict[int, None] = field(default_factory=dict)


@dataclass(slots=True)
class GangReservation:
    """Room kept for tasks of a gang, and the end of the reservation.

    If `timed`, the gang is expected to start at that end; if not, `tried` has the rows kept before.
    """

    until: float
    timed: bool
    rows: Plan
    tried: dict[int, None] = field(default_factory=dict)


RememberedGang = tuple[JobRecord, bool, tuple[int, int] | None, float | None, GangReservation | None]
"""Gang, True if it waited at the end of the last round, entitlement, end of its pause (see `vain`), and reservation."""

Terms = list[tuple[TaskClass | JobRecord, tuple[int, ...], float]]
"""Class or gang, its reserved rows, and the end of the reservation."""

Standing = tuple[int, int]
"""Priority and turn; lower values come first."""


@dataclass(slots=True)
class Window:
    """Limits for other tasks on a machine until a time at which it is kept for a class or a gang of this standing.

    Such a task ends until then, or fits into `beside` and leaves the requested devices.

    Parameters
    ----------
    row : int
    standing : (int, int)
    until : float
    beside : ndarray of int64
        Amounts and slots that remain next to the reserved tasks.
    devices : ndarray of int64, optional
        Free part of each device at that time; None if no devices are requested.
    asks : dict of int to int
        Requested shares of devices, each with its number of requests.
    """

    row: int
    standing: Standing
    until: float
    beside: Ints
    devices: Ints | None = None
    asks: dict[int, int] = field(default_factory=dict)

    def latest(self, demand: Ints) -> float:
        """Return the latest expected end with which a task of these amounts may start, devices apart."""
        return inf if (demand <= self.beside).all() else self.until

    def spares(self, end: float, share: int, picked: Sequence[int]) -> bool:
        """Return True if a task that takes such a share of these devices leaves the requested ones."""
        if self.devices is None or end <= self.until or not picked:
            return True
        left = self.devices.copy()
        left[list(picked)] -= share
        return all(take_devices(left, ask, count) for ask, count in sorted(self.asks.items(), reverse=True))

    def book(self, end: float, demand: Ints, share: int, picked: Sequence[int], sign: int = 1) -> None:
        """Subtract a task's amounts from the room at that time, or (sign -1) add them."""
        if end > self.until:
            self.beside -= sign * demand
            if self.devices is not None:
                self.devices[list(picked)] -= sign * share


class Reservations(Columns, ReservationFields):
    """Machines kept for classes, as a limit in `Inventory.room`.

    Parameters
    ----------
    cluster : Cluster
    classes : ClassArcs
    """

    held: Ints = column("rows", fill=-1)
    """Class that the row is kept for, and may enter; -1 without one.  For a gang whose class has other tasks, -2 - class:
    no task of its priority or a worse one may enter except by `grants`."""

    def __init__(self, cluster: Cluster, classes: ClassArcs) -> None:
        super().__init__()
        self.cluster = cluster
        self.classes = classes
        self._holds: dict[TaskClass, Reservation] = {}
        self.holding = 0
        self._granted: dict[int, None] = {}
        self._now = -inf
        self._rooms: dict[JobRecord, GangReservation] = {}
        self.short: dict[JobRecord, None] = {}
        """Gangs that waited at the end of the last round."""
        self.vain: dict[JobRecord, float] = {}
        """Gangs that failed to start where they seemed to fit, each with the end of the pause before the next try."""
        self.entitled: dict[JobRecord, tuple[int, int]] = {}
        """Bounds (see `Shares.bounds`) of gangs that fell short under shares, as of the time when they last claimed."""

    # -- the limit ----------------------------------------------------------------------------------------------

    def against(self, classes: Ints, rows: Ints) -> NDArray[np.bool_]:
        """Return True where the row is kept for another class that is not of worse priority, shape (classes, rows)."""
        self.grow(rows=self.cluster.inventory.rows)
        priority = self.cluster.inventory.priority
        held, cls = self.held[rows][None, :], classes[:, None]
        of = np.where(held < -1, -2 - held, held)
        against: NDArray[np.bool_] = (held != -1) & (held != cls) & (priority[cls] >= priority[of])
        return against

    def forbids(self, row: int, class_id: int) -> bool:
        """Return `against` for one row and one class."""
        return self.holding > 0 and bool(self.against(np.array([class_id]), np.array([row]))[0, 0])

    def grants(self, turn: int) -> bool:
        """Return True if the last round lets the task of this turn overtake."""
        return turn in self._granted

    def _hold(self, row: int, cls: int) -> None:
        """Keep the row for a class and those of better priority, or for none (-1); mark the row as changed."""
        self.forget_machines([row])
        if cls >= 0:
            self.held[row] = cls
            self.holding += 1
        self.cluster.inventory.touch(row)

    def forget_machines(self, rows: Iterable[int]) -> None:
        """Drop the reservations of these rows, whose machines are gone."""
        self.grow(rows=self.cluster.inventory.rows)
        rows = list(rows)
        for job in [job for job, room in self._rooms.items() if not room.rows.keys().isdisjoint(rows)]:
            self._lift(self._rooms.pop(job))
        for row in rows:
            self.holding -= int(self.held[row] != -1)
            self.held[row] = -1

    def check(self) -> None:
        """Refuse an image that names unknown machines or classes.

        Raises
        ------
        ValueError
        """
        live, count = [-1, *self.cluster.by_class], self.cluster.inventory.rows
        of = np.where(self.held < -1, -2 - self.held, self.held)
        known = bool(np.isin(of, live).all()) and bool((of[count:] == -1).all())
        if not known or self.holding != int((of >= 0).sum()):
            raise ValueError("a machine is held for no class")

    def room(self, classes: Sequence[int], rows: Ints) -> Ints:
        """Return the number of tasks of each class that fit on each machine now, reservations apart; shape (classes, rows)."""
        inventory = self.cluster.inventory
        holding, self.holding = self.holding, 0
        try:
            fits, why = inventory.room(np.array(classes, np.int64), rows)
        finally:
            self.holding = holding
        fits[why & SLOTS > 0] = 0
        room: Ints = np.minimum(fits, np.maximum(inventory.slots[rows] - inventory.running[rows], 0))
        return room

    # -- machines and classes -----------------------------------------------------------------------------------

    def time_tells(self, now: float) -> bool:
        """Return True if a reservation has ended."""
        return any(now >= until for until in self._times())

    def terms(self) -> Terms:
        """Return the reservations; all ends in the past are alike for a gang."""
        now = self._now
        found: Terms = []
        found += [(cls, (hold.row,), hold.until) for cls, hold in self._holds.items()]
        found += [
            (job, tuple(room.rows), room.until if room.until > now else -inf) for job, room in self._rooms.items()
        ]
        return found

    def due(self, now: float) -> float:
        """Return the next end of a reservation after now."""
        return min((until for until in self._times() if until > now), default=inf)

    def _times(self) -> Iterator[float]:
        """Yield the ends of all reservations."""
        for hold in self._holds.values():
            yield hold.until
        for room in self._rooms.values():
            yield room.until

    def remember(self) -> Iterator[tuple[TaskClass, int, float, list[int]]]:
        """Yield class, row kept for it (-1 without one), end of the reservation, and rows tried, for `resume`."""
        self.grow(rows=self.cluster.inventory.rows)
        for cls, hold in self._holds.items():
            if cls.tasks:
                kept = hold.row in self.cluster.by_row and self.held[hold.row] == cls.index
                yield cls, hold.row if kept else -1, hold.until, list(hold.tried)

    def resume(self, holds: Iterable[tuple[TaskClass, int, float, Sequence[int]]]) -> None:
        """Keep these machines for these classes."""
        for cls, row, until, tried in holds:
            self._holds[cls] = Reservation(row, until, dict.fromkeys(tried))
            if row >= 0:
                self._hold(row, cls.index)

    def remember_gangs(self) -> Iterator[RememberedGang]:
        """Yield the state of gangs, for `resume_gangs`."""
        for job in dict.fromkeys((*self.short, *self.entitled, *self._rooms)):
            if self.cluster.jobs.get(job.job.id) is job and job.lacks:
                yield job, job in self.short, self.entitled.get(job), self.vain.get(job), self._rooms.get(job)

    def resume_gangs(self, gangs: Iterable[RememberedGang]) -> None:
        """Take over the result of `remember_gangs` of another builder."""
        self.grow(rows=self.cluster.inventory.rows)
        for job, short, entitled, vain, room in gangs:
            if vain is not None:
                self.vain[job] = vain
            if short:
                self.short[job] = None
            if entitled is not None:
                self.entitled[job] = entitled
            if room is not None:
                self._rooms[job] = room
                self._close(job, room.rows)
        self.holding = int((self.held != -1).sum())

    def update(
        self,
        patient: Collection[Group],
        now: float,
        backfill: Literal["easy", "conservative"] | None = None,
        withheld: Collection[Group] = (),
        gangs: Sequence[JobRecord] = (),
        may_reserve: Callable[[JobRecord], bool] = lambda job: True,
    ) -> None:
        """Give back machines that are no longer needed, and reserve others.

        Parameters
        ----------
        patient : collection of Group
            Groups with a task that has waited for long.
        now : float
        backfill : "easy", "conservative" or None
            See `Policy.backfill`.
        withheld : collection of Group
            Groups of which no task may start, without those of gangs.
        gangs : sequence of JobRecord
            Gangs with waiting tasks.
        may_reserve : callable
            Returns False for a gang that more room does not help at present.
        """
        if self._granted:
            self._granted.clear()
        self._now = now
        inventory = self.cluster.inventory
        estimates = backfill is not None and (inventory.tasks.estimated > 0 or gangs) and inventory.rule is None
        if patient or self._holds or self._rooms or estimates:
            self._revise(patient, now, backfill if estimates else None, withheld, gangs, may_reserve)

    def _revise(
        self,
        patient: Collection[Group],
        now: float,
        backfill: Literal["easy", "conservative"] | None,
        withheld: Collection[Group],
        gangs: Sequence[JobRecord],
        may_reserve: Callable[[JobRecord], bool],
    ) -> None:
        """Do the work of `update`; without `backfill`, for patient groups alone."""
        inventory = self.cluster.inventory
        line_up = _GangLine(self, now, may_reserve) if gangs and inventory.rule is None else None
        lacking = {job for job in gangs if job.lacks} if line_up is not None else set()
        groups = [group for group in patient if group.waiting]
        most = 1 + len(self.cluster.machines) // _MACHINES_PER_HOLD
        oldest: dict[TaskClass | JobRecord, float] = {}
        for group in groups:
            since = group.waiting[0].since
            if since is not None:
                unit = group.job if group.job in lacking else group.cls
                oldest[unit] = min(oldest.get(unit, since), since)
        aged = [unit for unit in oldest if isinstance(unit, TaskClass)]
        roomy = set(self.classes.with_room([cls.index for cls in aged]))  # these wait for another reason
        due: list[TaskClass | JobRecord] = [cls for cls in aged if cls.index not in roomy]
        due += [job for job in lacking.intersection(oldest) if job in self.short]
        self.grow(rows=inventory.rows)
        before = self.held[: inventory.rows].copy() if self._rooms or lacking else None
        rooms, self._rooms = self._rooms, {}
        for room in rooms.values():
            self._lift(room)
        line = self._line(withheld, lacking) if backfill is not None else []
        self._give_back({unit for unit in (*due, *line) if isinstance(unit, TaskClass)}, now)
        left = most if backfill == "easy" else len(line)
        for unit in line:
            if not left:
                break
            if isinstance(unit, TaskClass):
                if self._has_room(unit):
                    continue
                if unit not in self._holds or self._holds[unit].row < 0:
                    self._keep_earliest(unit, now)
                if line_up is not None and unit in self._holds:
                    line_up.pass_by(self._holds[unit].row)
                left -= 1
            elif line_up is not None and len(self._rooms) < _GANGS:
                left -= line_up.reserve(unit, rooms.get(unit))
        if len(due) > most:  # only the first few are compared by size
            last = sorted((_priority(unit), oldest[unit]) for unit in due)[most - 1]
            due = [unit for unit in due if (_priority(unit), oldest[unit]) <= last]
        due.sort(key=lambda unit: (_priority(unit), oldest[unit], *self._size(unit)))
        for unit in due[:most]:
            if isinstance(unit, JobRecord):
                if line_up is not None and unit not in self._rooms:
                    line_up.keep(unit, rooms.get(unit), 2 * now - oldest[unit])
                continue
            hold = self._holds.get(unit)
            if hold is None or hold.row < 0:
                self._keep(unit, hold or Reservation(-1, now), 2 * now - oldest[unit])
        if before is not None:
            for row in np.flatnonzero(before != self.held[: inventory.rows]).tolist():
                inventory.touch(row)

    def _size(self, unit: TaskClass | JobRecord) -> tuple[Any, ...]:
        """Return the sort key of classes and gangs of one age."""
        if isinstance(unit, JobRecord):
            return 0.0, 0, unit.serial
        return -self.cluster.inventory.size(unit.index), 1, unit.rank

    def _lift(self, room: GangReservation) -> None:
        """Drop the reservation of a gang's rows."""
        rows = [row for row in room.rows if self.kept_for(row) is None]
        self.holding -= int((self.held[rows] != -1).sum())
        self.held[rows] = -1

    def kept_for(self, row: int) -> TaskClass | None:
        """Return the class for which a row is kept, None for a row kept for gangs."""
        for cls, hold in self._holds.items():
            if hold.row == row and self.held[row] == cls.index:
                return cls
        return None

    def _close(self, job: JobRecord, rows: Iterable[int]) -> None:
        """Keep rows for a gang, unless a better gang keeps them."""
        classes = [group.cls for group in job.each_group() if group.waiting]
        alone = len(classes) == 1 and all(group.job is job for group in self.cluster.waiting.get(classes[0], ()))
        held = classes[0].index if alone else -2 - classes[0].index
        for row in rows:
            if self.held[row] == -1:
                self.held[row] = held
                self.holding += 1
            elif self.held[row] >= 0:
                self.held[row] = -2 - self.held[row]  # kept for several classes

    def _line(self, withheld: Collection[Group], gangs: Collection[JobRecord]) -> list[TaskClass | JobRecord]:
        """Return the waiting line by priority and arrival: gangs, and classes without room at the last update by their first task."""
        inventory = self.cluster.inventory
        waiting = [cls for cls in self.cluster.waiting if not inventory.affinity.restricts(cls.index)]
        known = [cls.index for cls in waiting if cls.index < self.classes.known]
        roomy = set(self.classes.with_room(known))
        first: dict[TaskClass | JobRecord, Standing] = {}
        for cls in waiting:
            if cls.index not in roomy:
                heads = (
                    g.waiting[0].turn
                    for g in self.cluster.waiting[cls]
                    if (g.job.job.gang is None or g.job not in gangs) and g not in withheld
                )
                turn = min(heads, default=None)
                if turn is not None:
                    first[cls] = cls.priority, turn
        for job in gangs:
            first[job] = standing(job)
        return sorted(first, key=first.__getitem__)

    def _has_room(self, cls: TaskClass) -> bool:
        """Return True if some machine has room for a task of the class now."""
        inventory = self.cluster.inventory
        rows = np.flatnonzero(
            inventory.usable[: inventory.rows] & (inventory.running < inventory.slots)[: inventory.rows]
        )
        return bool(inventory.room(np.array([cls.index]), rows)[0].any())

    def _keep_earliest(self, cls: TaskClass, now: float) -> None:
        """Keep the machine that will have room for the class first, if such a time is known."""
        inventory = self.cluster.inventory
        able = inventory.usable[: inventory.rows] & (self.held[: inventory.rows] == -1)
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
        """Return the machine that first has room for the class as these running tasks end, and the time; infinity if unknown."""
        inventory = self.cluster.inventory
        if not len(task):
            return -1, inf
        end, row = ends(self.cluster, task, now), inventory.tasks.row[task]
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

    # -- overtaking ---------------------------------------------------------------------------------------------

    def keeps(self, job: JobRecord) -> bool:
        """Return True if room is kept for a gang."""
        return job in self._rooms

    def give_up(self, job: JobRecord, now: float) -> None:
        """Pause reservations for a gang until its waiting time has doubled: it cannot start where it seems to fit."""
        since = min((task.since for task in job.tasks if task.row < 0 and task.since is not None), default=now)
        self.vain[job] = 2 * now - since

    def windows(self, now: float) -> list[Window]:
        """Return the windows of all kept rows, by standing; a window without a known time admits no task."""
        found: list[Window] = []
        for cls, hold in self._holds.items():
            row = hold.row
            if row >= 0 and self.held[row] == cls.index:
                _, when = self._earliest(cls, self._running_on(row), now)
                found.append(self._window(row, (cls.priority, -1), when if now < when < inf else -inf, {cls: 1}, now))
        kept: dict[int, Counter[TaskClass]] = {}
        for job in sorted((job for job in self._rooms if job.lacks), key=standing):
            room = self._rooms[job]
            place, until = (standing(job), room.until) if room.timed else ((job.job.priority, -1), -inf)
            for row, tasks in room.rows.items():
                kept.setdefault(row, Counter()).update(tasks)
                found.append(self._window(row, place, until, kept[row], now))
        return sorted(found, key=lambda window: window.standing)

    def _window(self, row: int, place: Standing, until: float, tasks: Mapping[TaskClass, int], now: float) -> Window:
        """Return the window of a row that is kept for these tasks until then."""
        inventory = self.cluster.inventory
        beside = np.append(inventory.free[row], inventory.slots[row] - inventory.running[row])
        if until == -inf:
            return Window(row, place, until, np.full_like(beside, -1))
        here = list(self.cluster.by_row[row].tasks)
        over = ends(self.cluster, np.array([task.index for task in here], np.int64), now) <= until
        gone = [here[i] for i in np.flatnonzero(over).tolist()]
        beside += amounts(Counter(task.group.cls for task in gone)) - amounts(tasks)
        window = Window(row, place, until, beside)
        for cls, count in tasks.items():
            share = inventory.device_share(cls.index)
            if share:
                window.asks[share] = window.asks.get(share, 0) + inventory.num_asked(cls.index) * count
        if window.asks:
            window.devices = inventory.rooms(row).copy()
            for task in gone:
                window.devices[list(task.devices)] += inventory.device_share(task.group.cls.index)
        return window

    def turns(self, row: int, durations: Collection[float], now: float) -> float:
        """Return the next time at which time alone lets tasks of these durations overtake on a kept row, or changes its forecast.

        A run of age a beyond its estimate is expected to end at age 2 a.  So a task of duration d may end before it from
        a = d on.  A run that is expected to end at e ends before it from the middle between its start and e on.
        """
        tasks, here = self.cluster.inventory.tasks, self._running_on(row)
        late = tasks.end[here] <= now
        since, end = tasks.since[here[late]], tasks.end[here[~late]]
        turns = np.concatenate(
            [end, np.add.outer(since, np.array(list(durations), float)).ravel(), np.add.outer(since, end).ravel() / 2]
        )
        return float(turns[turns > now].min(initial=inf))

    def grant(self, turn: int) -> None:
        """Allow the task of this turn to overtake."""
        self._granted[turn] = None

    def _give_back(self, due: set[TaskClass], now: float) -> None:
        inventory = self.cluster.inventory
        for cls, hold in list(self._holds.items()):
            if hold.row >= 0 and self.held[hold.row] != cls.index:  # the machine is gone
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
        """Keep the machine that lacks least, among those not tried yet."""
        inventory = self.cluster.inventory
        rows = np.arange(inventory.rows)
        rows = rows[inventory.usable[rows] & (self.held[rows] == -1)]
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


class _GangLine:
    """Reservations for gangs in one round, in the order of the line."""

    def __init__(self, reservations: Reservations, now: float, may_reserve: Callable[[JobRecord], bool]) -> None:
        self._of, self._now, self._may_reserve = reservations, now, may_reserve
        self._forecast: Forecast | None = None
        self._passed: dict[int, None] = {}
        """Rows kept for classes earlier in the line."""

    @property
    def forecast(self) -> Forecast:
        if self._forecast is None:
            self._forecast = Forecast(self._of.cluster, self._now)
            self._forecast.close(self._passed)
        return self._forecast

    def pass_by(self, row: int) -> None:
        """Exclude a row that is kept for a class earlier in the line."""
        if row >= 0:
            self._passed[row] = None
            if self._forecast is not None:
                self._forecast.close([row])

    def _wants(self, job: JobRecord) -> tuple[list[tuple[TaskClass, int]], Ints] | None:
        """Return the number of tasks of each class that the gang starts together, and their room; None if it needs no reservation."""
        tasks = together(job)
        if not tasks or self._now < self._of.vain.get(job, -inf) or not self._may_reserve(job):
            return None
        wanted = [(cls, len(some)) for cls, some in classes_of(tasks)]
        room = self._of.room([cls.index for cls, _ in wanted], np.arange(self._of.cluster.inventory.rows))
        return wanted, room * self.forecast.able

    def reserve(self, job: JobRecord, old: GangReservation | None) -> bool:
        """Keep room for a gang at the earliest known time at which it fits; return True if a reservation was made."""
        wants = self._wants(job)
        if wants is None:
            return False
        short = job in self._of.short
        if not short and self.forecast.fits(*wants):
            return False
        found = self.forecast.earliest(*wants)
        if found is None:
            return False
        until, rows = found
        if (
            old is not None
            and old.timed
            and self._now < old.until <= until
            and _total(old.rows) == dict(wants[0])
            and self.forecast.still(old.rows, old.until)
        ):
            until, rows = old.until, old.rows
        self._take(job, GangReservation(until, True, rows))
        return True

    def keep(self, job: JobRecord, old: GangReservation | None, until: float) -> None:
        """Keep machines until they are empty, for a gang that has waited for long."""
        wants = self._wants(job)
        if wants is None or self.forecast.fits(*wants):
            return
        if (
            old is not None
            and not old.timed
            and self._now < old.until
            and all(map(self.forecast.able.__getitem__, old.rows))
        ):
            self._take(job, old)
            return
        tried = {} if old is None else old.tried
        able = np.flatnonzero(self.forecast.able)
        kept = [room.rows for room in self._of._rooms.values()]
        for rows in (able[~np.isin(able, list(tried))], able):
            plan = self.forecast.when_empty(wants[0], kept, rows)
            if plan is not None:
                tried = {**(tried if len(rows) < len(able) else {}), **dict.fromkeys(plan)}
                self._take(job, GangReservation(until, False, plan, tried))
                return

    def _take(self, job: JobRecord, room: GangReservation) -> None:
        of = self._of
        for row in room.rows:
            behind = of.kept_for(row)
            if behind is not None:
                of._holds[behind].row = -1
                of.forget_machines([row])
        of._rooms[job] = room
        of._close(job, room.rows)
        self.forecast.take(room.rows)


def standing(job: JobRecord) -> Standing:
    """Return the place of a gang in the line: its priority and the turn of its first waiting task."""
    return job.job.priority, min(group.waiting[0].turn for group in job.each_group() if group.waiting)


def _total(plan: Plan) -> Counter[TaskClass]:
    total: Counter[TaskClass] = Counter()
    for tasks in plan.values():
        total.update(tasks)
    return total


def _priority(unit: TaskClass | JobRecord) -> int:
    return unit.priority if isinstance(unit, TaskClass) else unit.job.priority
