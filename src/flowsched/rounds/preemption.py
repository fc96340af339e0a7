"""Victims of preemption for a better task: exactly for one machine, as a vectorised estimate for many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flowsched.builder.scope import RoundScope
from flowsched.cluster import MICRO, Cluster
from flowsched.cluster.inventory import Inventory
from flowsched.cluster.records import TaskClass, TaskRecord, Transaction

__all__ = ["candidates", "least_victims", "victims", "worst_first"]

Ints = NDArray[np.int64]


@dataclass(slots=True)
class _Scratch:
    """Free room of a machine, for trial evictions."""

    row: int
    gone: dict[TaskRecord, None]
    free: list[int]
    devices: list[int]
    seats: int

    def move(self, inventory: Inventory, task: TaskRecord, sign: int) -> None:
        """Free the task's room, or take it again (``sign=-1``)."""
        cls, place = task.group.cls, task.place
        assert place is not None
        self.free = [free + sign * need for free, need in zip(self.free, cls.demand.tolist(), strict=True)]
        share = inventory.device_share(cls.index)
        for device in place.devices:
            self.devices[device] += sign * share
        self.seats += sign
        if sign > 0:
            self.gone[task] = None
        else:
            del self.gone[task]

    def fits(self, inventory: Inventory, cls: TaskClass) -> bool:
        """Return True if a task of the class has room."""
        if self.seats < 1 or min(self.devices, default=0) < 0 or not self._suffices(inventory, cls):
            return False
        share = inventory.device_share(cls.index)
        if not share:
            return True
        count = max(1, int(cls.demand[inventory.resources.device_index]) // MICRO)
        return sum(free >= share for free in self.devices) >= count

    def _suffices(self, inventory: Inventory, cls: TaskClass) -> bool:
        if not inventory.affinity.admits(self.row, cls.index, [task.group.cls.index for task in self.gone]):
            return False
        if inventory.rule is not None:
            return inventory.rule.admits(self.row, cls.index, tuple(self.gone))
        return all(free >= need for free, need in zip(self.free, cls.demand.tolist(), strict=True))


def victims(cluster: Cluster, scope: RoundScope, cls: TaskClass, row: int) -> list[TaskRecord] | None:
    """Return running tasks of a machine that must stop so that one task of the class fits; none of them in vain.

    Only tasks of strictly worse priority are taken, the worst first, and of equals the one started last.  Then those that
    are not needed are spared, the best first.

    Returns
    -------
    list of TaskRecord or None
        None if all of them together do not make enough room.
    """
    worst = cluster.inventory.worst_running()
    preemption = scope.policy.preemption
    if preemption is None or worst is None or worst <= cls.priority:
        return None
    worse = (
        task for task in cluster.by_row[row].tasks if task.group.cls.priority > cls.priority and not scope.spares(task)
    )
    return least_victims(cluster, cls, row, worst_first(worse))


def worst_first(tasks: Iterable[TaskRecord]) -> list[TaskRecord]:
    """Sort running tasks: the worst priority first, of equals the one started last."""
    return sorted(tasks, key=lambda task: (-task.group.cls.priority, -task.turn))


def least_victims(cluster: Cluster, cls: TaskClass, row: int, worse: list[TaskRecord]) -> list[TaskRecord] | None:
    """Return the first of these tasks of a machine that make room for one task of the class, without unneeded ones."""
    inventory = cluster.inventory

    def fits() -> bool:
        if not room.fits(inventory, cls):
            return False
        if not inventory.constraints:
            return True
        with _without(cluster, tuple(room.gone)):
            return inventory.permits(row, cls.index)

    room = _Scratch(
        row,
        {},
        inventory.free[row].tolist(),
        inventory.rooms(row).tolist(),
        int(inventory.slots[row] - inventory.running[row]),
    )
    chosen: list[TaskRecord] = []
    for task in worse:
        if fits():
            break
        room.move(inventory, task, 1)
        chosen.append(task)
    if not fits():
        return None
    for task in reversed(tuple(chosen)):
        room.move(inventory, task, -1)
        if fits():
            chosen.remove(task)
        else:
            room.move(inventory, task, 1)
    return chosen


def candidates(
    cluster: Cluster, scope: RoundScope, cls: TaskClass, rows: Ints, wait: Ints, among: Ints | None = None
) -> tuple[Ints, Ints, Ints]:
    """Estimate the machines where evicting worse tasks may make room for one task of the class, and the costs.

    The estimate adds up devices, so it may name a machine in vain but misses none.  Costs include all victims up to the
    last one needed.

    Parameters
    ----------
    rows : ndarray of int64
        Machines to examine.
    wait : ndarray of int64, shape (classes,)
        Cost of waiting for a victim, by class.
    among : ndarray of int64, optional
        Running tasks, by index, that may have to stop; all by default.

    Returns
    -------
    rows, cost, paid : ndarray of int64, shape (n,)
        `paid` is the part of the cost that the flow charges itself, if a task must leave its running arc for lack of a
        slot.
    """
    inventory = cluster.inventory
    asked = np.zeros(inventory.rows, np.bool_)
    one = np.array([cls.index])
    asked[rows] = inventory.usable[rows] & inventory.can_ever(one, rows)[0] & ~inventory.held_against(one, rows)[0]
    task = np.flatnonzero(inventory.tasks.row >= 0) if among is None else among
    task = task[asked[inventory.tasks.row[task]] & (inventory.priority[inventory.tasks.class_id[task]] > cls.priority)]
    if not len(task):
        return task, task, task
    kind = inventory.tasks.class_id[task]
    order = np.lexsort((-inventory.tasks.turn[task], -inventory.priority[kind], inventory.tasks.row[task]))
    kind, row, since = kind[order], inventory.tasks.row[task][order], inventory.tasks.since[task][order]
    waiting = scope.policy.waiting
    buckets = waiting.buckets_of(scope.now - since)
    scope.wake = min(scope.wake, waiting.first_due(since, buckets))
    costs = wait[kind] + scope.policy.stays(buckets)
    first = np.flatnonzero(np.r_[True, row[1:] != row[:-1]])
    segment = np.repeat(first, np.diff(np.r_[first, len(row)]))
    freed, price = np.cumsum(inventory.demand[kind], axis=0), np.cumsum(costs)
    freed -= freed[segment] - inventory.demand[kind[segment]]
    price -= price[segment] - costs[segment]
    enough = (freed + inventory.free[row] >= cls.demand).all(axis=1)
    enough &= np.arange(1, len(row) + 1) - segment > inventory.running[row] - inventory.slots[row]
    hits = np.flatnonzero(enough)
    found, at = np.unique(row[hits], return_index=True)
    at = hits[at]
    full = inventory.running[found] >= inventory.slots[found]
    return found, price[at], np.where(full, costs[segment[at]], 0)


@contextmanager
def _without(cluster: Cluster, tasks: Iterable[TaskRecord]) -> Iterator[None]:
    """Take running tasks off their machines within the context, and restore them afterwards."""
    transaction = Transaction(cluster, 0.0)
    try:
        for task in tasks:
            transaction.stop(task)
        yield
    finally:
        transaction.rollback()
