"""Schedulers with one line of tasks: first come first served, alone or with backfilling: EASY, AccaSim's, conservative.

The line is in the order in which tasks began to wait.  Tasks that must start together stand in it as one unit.  Estimates of
run times are `Task.duration`; a task without one is taken to run for ever.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable
from dataclasses import dataclass
from operator import itemgetter
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster import Cluster, Resources
from flowsched.cluster.records import JobRecord, TaskClass, TaskRecord
from flowsched.exceptions import InputError
from flowsched.sim.baselines import Choice, Greedy, Plan, Room, emptiest, lacking
from flowsched.sim.orders import fifo

Ints = NDArray[np.int64]


_DEPTH = 100
"""Units with a reservation under conservative backfilling."""

_MANY = 2**40
"""More tasks than any machine holds."""


@dataclass(slots=True, eq=False)
class _Unit:
    """Tasks that start together, the longest of their estimated run times, and their number by class."""

    tasks: list[TaskRecord]
    duration: float

    @property
    def cls(self) -> TaskClass:
        return self.tasks[0].group.cls

    @property
    def counts(self) -> list[tuple[TaskClass, int]]:
        return list(Counter(task.group.cls for task in self.tasks).items())


class Queue(Greedy):
    """First come, first served: the first unit that finds no room keeps all later ones from starting.

    With backfilling, later units start where, by the estimates, they delay no earlier one that has a reservation:

    * ``"easy"``: the first unit without room has one (Lifka, "The ANL/IBM SP Scheduling System", JSSPP 1995).  It gets the
      first machines that will have room for it.  Others start there only if they end in time, or fit next to it.
    * ``"conservative"``: every unit has one, in the order of the line (Mu'alem and Feitelson, IEEE TPDS 12(6), 2001).  They
      are computed again in every round, for the first 100 units that wait; the others do not start.
    * ``"easy-held"``: the rule of AccaSim 1.1.3.  The first unit without room gets a time, once, and is held until then, even
      if it fits before; it starts in the first round from that time on that has room for it.  Nothing is kept free for it:
      all others start where they fit, in the order of the line.  Where nothing runs any more, nothing is held.

    Reservations go by amounts of resources, not by single devices.

    Parameters
    ----------
    backfill : {False, True, "easy", "conservative", "easy-held"}
        True is ``"easy"``.
    resources : sequence of str or Resources
    choice : Choice
    """

    def __init__(
        self,
        backfill: bool | Literal["easy", "conservative", "easy-held"],
        resources: Resources | Collection[str] = ("cpu", "mem", "gpu"),
        choice: Choice = emptiest,
    ) -> None:
        if backfill not in (False, True, "easy", "conservative", "easy-held"):
            raise InputError(f"backfill: False, True, 'easy', 'conservative' or 'easy-held' expected, got {backfill!r}")
        super().__init__(fifo, resources, choice)
        self.backfill = backfill
        self._held: tuple[Hashable, float] | None = None  # under "easy-held": first task of the unit, and its time

    def _place(self, plan: Plan, room: Room) -> None:
        if self.backfill == "easy-held":
            self._hold(_line(self.cluster), plan, room)
            return
        if not room.fits.any():
            return
        line = _line(self.cluster)
        at = 0
        while at < len(line) and self._start(line[at].tasks, plan, room):
            at += 1
        if at == len(line) or not self.backfill:
            return
        fill = self._conservative if self.backfill == "conservative" else self._easy
        fill(line[at:], plan, room)

    def _easy(self, line: list[_Unit], plan: Plan, room: Room) -> None:
        """Reserve for the first unit, and start others that do not delay it."""
        now, classes = plan.transaction.now, list(room.line)
        shadow, at = None, 0
        while shadow is None and at < len(line):  # a unit without an estimated start delays no other
            if not self._start(line[at].tasks, plan, room):
                shadow = _Shadow.of(line[at], self.cluster, room, now)
            at += 1
        line = line[at:]
        if shadow is None:
            return
        sizes = np.array([len(unit.tasks) for unit in line])
        of = np.array([room.line[unit.cls] for unit in line], np.int64)
        in_time = now + np.array([unit.duration for unit in line]) <= shadow.until
        left = np.ones(len(line), bool)
        while True:
            beside = [np.minimum(room.of(cls), _fits(cls, shadow.beside)).sum() for cls in classes]
            fits = np.where(in_time, room.fits.sum(axis=1)[of], np.array(beside)[of])
            possible = np.flatnonzero(left & (sizes <= fits))
            if not len(possible):
                return
            at = int(possible[0])
            left[: at + 1] = False
            unit = line[at]
            most = None if in_time[at] else _fits(unit.cls, shadow.beside)
            if self._start(unit.tasks, plan, room, most) and not in_time[at]:
                for task in unit.tasks:
                    shadow.beside[room.column[task.row]] -= task.group.cls.demand

    def _hold(self, line: list[_Unit], plan: Plan, room: Room) -> None:
        """Hold the first unit until its time, and start others in the meantime."""
        now, at = plan.transaction.now, 0
        first, until = self._held if self._held is not None else (None, now)
        mine = bool(line) and line[0].tasks[0].id == first
        if not (mine and now < until and self.cluster.inventory.running.any()):
            while at < len(line) and self._start(line[at].tasks, plan, room):
                at += 1
            if at < len(line) and not (mine and at == 0):
                shadow = _Shadow.of(line[at], self.cluster, room, now)
                self._held = None if shadow is None else (line[at].tasks[0].id, shadow.until)
        for unit in line[at + 1 :]:
            if not room.fits.any():
                return
            self._start(unit.tasks, plan, room)

    def _conservative(self, line: list[_Unit], plan: Plan, room: Room) -> None:
        """Start each unit, or reserve the earliest time from which it fits for its run time, in the order of the line."""
        held = _Profile(self.cluster, room, plan.transaction.now)
        sizes = np.array([len(unit.tasks) for unit in line])
        of = np.array([room.line[unit.cls] for unit in line])
        for at, unit in enumerate(line[:_DEPTH]):
            # If none of the rest finds room now, the further reservations have no effect.
            if not (sizes[at:] <= room.fits.sum(axis=1)[of[at:]]).any():
                return
            found = held.earliest(unit, room)
            if found is None:
                continue
            begin, where = found
            if begin == 0:
                self._start(unit.tasks, plan, room, where.sum(axis=0))
            held.take(unit, begin, where)


def _line(cluster: Cluster) -> list[_Unit]:
    """Return the waiting units, in the order in which they began to wait; a gang that lacks tasks is left out."""
    single: list[TaskRecord] = []
    jobs: dict[JobRecord, None] = {}
    for members in cluster.waiting.values():
        for group in members:
            if group.job.gang_size > 1:
                jobs[group.job] = None
            else:
                single += group.waiting
    units = [_Unit([task], task.duration) for task in single]
    for job in jobs:
        lack = lacking(job)
        tasks = sorted(task for group in job.each_group() for task in group.waiting)
        if len(tasks) >= lack:
            units.append(_Unit(tasks[:lack], max(task.duration for task in tasks[:lack])))
            units += [_Unit([task], task.duration) for task in tasks[lack:]]
    return sorted(units, key=lambda unit: unit.tasks[0])


def _fits(cls: TaskClass, free: Ints) -> Ints:
    """Return the number of tasks of a class that fit into the amounts `free`, in its shape without the last axis."""
    asks = np.flatnonzero(cls.demand > 0)
    if not len(asks):
        return np.full(free.shape[:-1], _MANY)
    fits: Ints = np.maximum((free[..., asks] // cls.demand[asks]).min(axis=-1), 0)
    return fits


def _spread(unit: _Unit, free: Ints, most: Ints, now: Ints | None = None) -> Ints | None:
    """Return the number of a unit's tasks for each machine, shape (classes, machines); None if not all fit.

    `most`, of the same shape, bounds them.  The room beyond `now` is taken first: that leaves more for others to start in.
    """
    where = np.zeros_like(most)
    for i, (cls, count) in enumerate(unit.counts):
        fits = np.minimum(_fits(cls, free), most[i])
        if now is not None:
            where[i] = _filled(count, np.maximum(fits - now[i], 0))
        where[i] += _filled(count - int(where[i].sum()), fits - where[i])
        if where[i].sum() < count:
            return None
        if len(unit.counts) > 1:
            free = free - where[i][:, None] * cls.demand
    return where


def _filled(count: int, room: Ints) -> Ints:
    """Distribute `count` tasks over machines in order, each filled to its room; return the number on each machine."""
    filled: Ints = np.clip(count - (np.cumsum(room) - room), 0, room)
    return filled


def _ends(cluster: Cluster, room: Room, now: float) -> list[tuple[float, list[tuple[int, Ints]]]]:
    """Return the estimated ends of running tasks, and the amounts that become free then, by column of `room`.

    A task that has run longer than its estimate ends at once.
    """
    found: dict[float, list[tuple[int, Ints]]] = {}
    for column, row in enumerate(room.rows.tolist()):
        for task in cluster.by_row[row].tasks:
            end = max(task.began + task.duration, now)
            if end < math.inf:
                found.setdefault(end, []).append((column, task.group.cls.demand))
    return sorted(found.items(), key=itemgetter(0))


def _able(unit: _Unit, cluster: Cluster, room: Room) -> NDArray[np.bool_]:
    """Mark the machines that could ever run the tasks of each class of a unit, shape (classes, machines)."""
    return cluster.inventory.can_ever(np.array([cls.index for cls, _ in unit.counts]), room.rows)


@dataclass(slots=True, eq=False)
class _Shadow:
    """Estimated start of the first unit in line.

    `beside`, shape (machines, resources), is the free amounts then, in addition to those of the unit.
    """

    until: float
    beside: Ints

    @classmethod
    def of(cls, unit: _Unit, cluster: Cluster, room: Room, now: float) -> _Shadow | None:
        """Return the shadow of a unit; None where its start cannot be estimated."""
        free = cluster.inventory.free[room.rows].copy()
        able = _able(unit, cluster, room)
        now_fit = np.array([room.of(kind) for kind, _ in unit.counts])
        most = now_fit.copy()  # by devices and slots, until a task ends there
        for end, given in _ends(cluster, room, now):
            for column, demand in given:
                free[column] += demand
                most[:, column] = np.where(able[:, column], _MANY, 0)
            where = _spread(unit, free, most, now_fit)
            if where is not None:
                demands = np.array([kind.demand for kind, _ in unit.counts])
                return cls(end, free - where.T @ demands)
        return None


class _Profile:
    """Free amounts, shape (times, machines, resources), from each time until the next, by the estimates."""

    def __init__(self, cluster: Cluster, room: Room, now: float) -> None:
        ends = _ends(cluster, room, now)
        self._cluster = cluster
        # A task that has run longer than its estimate is assumed to end just after now.
        self.times = np.array([now, *(max(end, math.nextafter(now, math.inf)) for end, _ in ends)])
        self.free = np.repeat(cluster.inventory.free[room.rows][None], len(self.times), axis=0)
        for i, (_, given) in enumerate(ends, 1):
            for column, demand in given:
                self.free[i:, column] += demand

    def earliest(self, unit: _Unit, room: Room) -> tuple[int, Ints] | None:
        """Return the index of the first time from which a unit fits for its duration, and its machines; None without one."""
        able = np.where(_able(unit, self._cluster, room), _MANY, 0)
        enough = np.ones(len(self.times), bool)
        for i, (cls, count) in enumerate(unit.counts):
            enough &= np.minimum(_fits(cls, self.free), able[i]).sum(axis=1) >= count
        ends = np.maximum(np.searchsorted(self.times, self.times + unit.duration), np.arange(1, len(self.times) + 1))
        short = np.where(enough, len(self.times), np.arange(len(self.times)))
        until = np.minimum.accumulate(short[::-1])[::-1]  # the first time from each on at which there is too little
        for begin in np.flatnonzero(until >= ends).tolist():
            most = np.minimum(able, [room.of(cls) for cls, _ in unit.counts]) if begin == 0 else able
            where = _spread(unit, self.free[begin : ends[begin]].min(axis=0), most)
            if where is not None:
                return begin, where
        return None

    def take(self, unit: _Unit, begin: int, where: Ints) -> None:
        """Reserve for a unit from time number `begin` on, tasks of each class on each machine as in `where`."""
        until = self.times[begin] + unit.duration
        end = int(np.searchsorted(self.times, until))
        if until < math.inf and (end == len(self.times) or self.times[end] != until):
            self.times = np.insert(self.times, end, until)
            self.free = np.insert(self.free, end, self.free[end - 1], axis=0)
        self.free[begin:end] -= where.T @ np.array([cls.demand for cls, _ in unit.counts])
