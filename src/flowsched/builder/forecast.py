"""Times at which tasks that must start together have room, from the expected ends of running tasks.

Amounts have one column for each resource and a last one for slots.  Devices are checked one by one.  The answers of
limits other than resources are known for the present only: they count for a machine until a task ends there.  After
that, labels, the size of the machine and the limits of the class itself (`Task.apart`, `Task.apart_in_rack`) count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster import Cluster
from flowsched.cluster.affinity import MANY
from flowsched.cluster.devices import pick_devices
from flowsched.cluster.model import MICRO
from flowsched.cluster.records import JobRecord, TaskClass, TaskRecord

__all__ = ["Forecast", "Plan", "amounts", "asked", "classes_of", "ends", "fits_in", "take_devices", "together"]

Ints = NDArray[np.int64]
Plan = dict[int, dict[TaskClass, int]]
"""Number of tasks by row and class."""


def together(job: JobRecord) -> list[TaskRecord]:
    """Return the waiting tasks of a gang that start together with the next one; none where it has too few."""
    need = job.lacks
    waiting = sorted(task for group in job.each_group() for task in group.waiting)
    return waiting[:need] if len(waiting) >= need else []


def classes_of(tasks: Sequence[TaskRecord]) -> list[tuple[TaskClass, list[TaskRecord]]]:
    """Return the tasks of each class, the classes with the largest tasks first."""
    found: dict[TaskClass, list[TaskRecord]] = {}
    for task in tasks:
        found.setdefault(task.group.cls, []).append(task)
    return sorted(found.items(), key=lambda of: -int(of[0].demand.max(initial=0)))


def asked(cls: TaskClass) -> Ints:
    """Return the amounts that a task of the class takes."""
    return np.append(cls.demand, 1)


def amounts(tasks: Mapping[TaskClass, int]) -> Ints:
    """Return the sum of the amounts of these numbers of tasks."""
    total: Ints = sum((count * asked(cls) for cls, count in tasks.items()), np.zeros(1, np.int64))
    return total


def fits_in(demand: Ints, free: Ints) -> Ints:
    """Return the number of times that a demand fits into amounts; shape of `free` without its last axis."""
    asks = np.flatnonzero(demand > 0)
    fits: Ints = np.maximum((free[..., asks] // demand[asks]).min(axis=-1), 0)
    return fits


def ends(cluster: Cluster, tasks: Ints, now: float) -> NDArray[np.float64]:
    """Return the expected ends of running tasks (by index); past its estimate, a run is expected to double its present age."""
    end, since = cluster.inventory.tasks.end[tasks], cluster.inventory.tasks.since[tasks]
    expected: NDArray[np.float64] = np.where(end <= now, 2 * now - since, end)
    return expected


class Forecast:
    """Free amounts of the machines, now and at the ends of running tasks.

    Parameters
    ----------
    cluster : Cluster
    now : float
    """

    def __init__(self, cluster: Cluster, now: float) -> None:
        inventory = cluster.inventory
        self.cluster, self.now = cluster, now
        rows = inventory.rows
        self.free = np.column_stack([inventory.free[:rows], inventory.slots[:rows] - inventory.running[:rows]])
        self.able = inventory.usable[:rows] & (inventory.over[:rows] == 0)
        task = np.flatnonzero(inventory.tasks.row >= 0)
        end = ends(cluster, task, now)
        task, end = task[end < inf], end[end < inf]
        late = inventory.tasks.end[task] <= now
        order = np.lexsort((inventory.tasks.turn[task], end))
        self._end, self._late, task = end[order], late[order], task[order]
        self._row = inventory.tasks.row[task]
        kind = inventory.tasks.class_id[task]
        self._gives = np.column_stack([inventory.demand[kind], np.ones(len(task), np.int64)])
        self._devices: tuple[NDArray[np.float64], Ints, Ints, Ints] | None = None

    def close(self, rows: Iterable[int]) -> None:
        """Exclude these machines."""
        self.able[list(rows)] = False

    def take(self, plan: Plan) -> None:
        """Subtract the amounts kept for others."""
        for row, tasks in plan.items():
            self.free[row] -= amounts(tasks)

    def still(self, plan: Plan, until: float) -> bool:
        """Return True if the plan will have room by then, devices apart, if runs past their estimates end in time."""
        free, gone = self.free.copy(), (self._end <= until) | self._late
        np.add.at(free, self._row[gone], self._gives[gone])
        return all(self.able[row] and (free[row] >= amounts(tasks)).all() for row, tasks in plan.items())

    def fits(self, wanted: Sequence[tuple[TaskClass, int]], room: Ints) -> bool:
        """Return True if these numbers of tasks fit together now; `room` has the numbers of each class that fit alone."""
        return self._spread(wanted, room, 0) is not None

    def earliest(self, wanted: Sequence[tuple[TaskClass, int]], room: Ints) -> tuple[float, Plan] | None:
        """Return the first time at which these numbers of tasks fit, and their places; None if that is unknown.

        Parameters
        ----------
        wanted : sequence of (TaskClass, int)
        room : ndarray of int64, shape (classes, rows)
            Number of tasks of each class that each machine can take now, see `Reservations.room`.
        """
        found = self._spread(wanted, room, 0)
        if found is not None:
            return self.now, found
        times = np.unique(self._end)
        gone = np.searchsorted(self._end, times, side="right")
        low, high = 0, len(times) - 1
        if high < 0 or (found := self._spread(wanted, room, int(gone[high]))) is None:
            return None
        while low < high:
            middle = (low + high) // 2
            some = self._spread(wanted, room, int(gone[middle]))
            if some is None:
                low = middle + 1
            else:
                high, found = middle, some
        return float(times[high]), found

    def when_empty(self, wanted: Sequence[tuple[TaskClass, int]], kept: Iterable[Plan], rows: Ints) -> Plan | None:
        """Return places for these numbers of tasks if no other task runs, on the machines that lack least first.

        Parameters
        ----------
        wanted : sequence of (TaskClass, int)
        kept : iterable of Plan
            Tasks for which room is kept.
        rows : ndarray of int64
            The machines.
        """
        inventory = self.cluster.inventory
        whole = np.column_stack([inventory.capacity[: inventory.rows], inventory.slots[: inventory.rows]])
        for plan in kept:
            for row, tasks in plan.items():
                whole[row] -= amounts(tasks)
        able = np.zeros(inventory.rows, np.bool_)
        able[rows] = self.able[rows]
        g = inventory.resources.device_index
        have = whole[:, g] // MICRO if g >= 0 else np.zeros(len(whole), np.int64)
        devices = MICRO * (np.arange(have.max(initial=1)) < have[:, None])
        need = sum(count * asked(cls) for cls, count in wanted)
        lacks = np.maximum(need - self.free, 0) / np.maximum(need, 1)
        order = np.argsort(lacks.sum(axis=1), kind="stable")
        taken: Plan = {}
        for cls, count in wanted:
            fits = self._beside(cls, self._by_amounts(cls, whole, devices, able), taken)[order]
            sent = np.zeros_like(fits)
            sent[order] = _filled(count, fits)
            if sent.sum() < count:
                return None
            self._book(cls, sent, whole, devices, taken)
        return taken

    # -- where tasks go -----------------------------------------------------------------------------------------

    def _spread(self, wanted: Sequence[tuple[TaskClass, int]], room: Ints, gone: int) -> Plan | None:
        """Return places for tasks after the first `gone` ends of running tasks; None if they do not fit.

        Future room is taken first, which leaves more present room for others.
        """
        free = self.free.copy()
        np.add.at(free, self._row[:gone], self._gives[:gone])
        changed = np.zeros(len(free), np.bool_)
        changed[self._row[:gone]] = True
        devices = self._devices_free(gone) if any(self._share(cls) for cls, _ in wanted) else None
        taken: Plan = {}
        for i, (cls, count) in enumerate(wanted):
            fits = self._by_amounts(cls, free, devices, self.able)
            fits = self._beside(cls, np.where(changed, fits, np.minimum(fits, room[i])), taken)
            later = np.maximum(fits - room[i], 0)
            sent = _filled(count, self._in_racks(cls, later))
            sent += _filled(count - int(sent.sum()), self._in_racks(cls, fits - sent, sent))
            if sent.sum() < count:
                return None
            self._book(cls, sent, free, devices, taken)
        return taken

    def _share(self, cls: TaskClass) -> int:
        g = self.cluster.inventory.resources.device_index
        return int(cls.demand[g]) if g >= 0 else 0

    def _by_amounts(self, cls: TaskClass, free: Ints, devices: Ints | None, able: NDArray[np.bool_]) -> Ints:
        """Return the number of tasks of a class that fit by amounts, devices, labels and the limits of the class itself."""
        inventory = self.cluster.inventory
        fits = fits_in(asked(cls), free)
        share = self._share(cls)
        if share and devices is not None:
            each = (
                (np.maximum(devices, 0) // share).sum(axis=1)
                if share < MICRO
                else (devices == MICRO).sum(axis=1) // (share // MICRO)
            )
            fits = np.minimum(fits, each)
        fits[~able] = 0
        rows = np.flatnonzero(fits)
        fits[rows] *= inventory.can_ever(np.array([cls.index]), rows)[0]
        on_machine, in_rack = inventory.affinity.limits_of(cls.index)
        return np.minimum(fits, min(on_machine, in_rack)) if min(on_machine, in_rack) < MANY else fits

    def _beside(self, cls: TaskClass, fits: Ints, taken: Plan) -> Ints:
        """Return the number of tasks of a class that fit next to tasks of other classes that start with them."""
        affinity = self.cluster.inventory.affinity
        for row, tasks in taken.items() if affinity.heeds(cls.index) else ():
            for other, count in tasks.items():
                fits[row] = min(int(fits[row]), affinity.most_beside(cls.index, other.index, count))
        return fits

    def _in_racks(self, cls: TaskClass, fits: Ints, sent: Ints | None = None) -> Ints:
        """Return the number of tasks of a class that fit by its limit per rack, after those already sent."""
        affinity = self.cluster.inventory.affinity
        _, in_rack = affinity.limits_of(cls.index)
        if in_rack == MANY:
            return fits
        fits, left = fits.copy(), {}
        for row in np.flatnonzero(fits).tolist():
            around = tuple(affinity.rack_rows(row))
            if around not in left:
                left[around] = in_rack - (0 if sent is None else int(sent[list(around)].sum()))
            fits[row] = min(int(fits[row]), max(left[around], 0))
            left[around] -= int(fits[row])
        return fits

    def _book(self, cls: TaskClass, sent: Ints, free: Ints, devices: Ints | None, taken: Plan) -> None:
        demand, share = asked(cls), self._share(cls)
        for row in np.flatnonzero(sent).tolist():
            count = int(sent[row])
            taken.setdefault(row, {})[cls] = count
            free[row] -= count * demand
            if share and devices is not None:
                take_devices(devices[row], share, count)

    def _devices_free(self, gone: int) -> Ints:
        """Return the free part of each device after the first `gone` ends of running tasks."""
        inventory = self.cluster.inventory
        if self._devices is None:
            found = [
                (row, device, min(self._share(task.group.cls), MICRO), task.index)
                for row in np.unique(self._row).tolist()
                for task in self.cluster.by_row[row].tasks
                for device in task.devices
            ]
            end = ends(self.cluster, np.array([one[3] for one in found], np.int64), self.now)
            row, device, share = (np.array([one[i] for one in found], np.int64) for i in (0, 1, 2))
            self._devices = end, row, device, share
        end, row, device, share = self._devices
        devices = inventory.rooms_of(np.arange(inventory.rows))
        over = end <= self._end[gone - 1] if gone else np.zeros(len(end), np.bool_)
        np.add.at(devices, (row[over], device[over]), share[over])
        return devices


def _filled(count: int, room: Ints) -> Ints:
    """Return the number of `count` tasks that go to each machine if the first machines are filled first."""
    filled: Ints = np.clip(count - (np.cumsum(room) - room), 0, room)
    return filled


def take_devices(free: Ints, share: int, count: int) -> bool:
    """Take devices of one machine for `count` tasks, one after the other; return True if all tasks get theirs."""
    each = 1
    if share >= MICRO:  # whole devices are taken together
        share, each, count = MICRO, count * (share // MICRO), 1
    for _ in range(count):
        picked = pick_devices(free.tolist(), share, each)
        if picked is None:
            return False
        free[list(picked)] -= share
    return True
