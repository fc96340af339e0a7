"""Victims of preemption for a better task: exactly for one machine, as a vectorised estimate for many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import ge

import numpy as np
from numpy.typing import NDArray

from flowsched.builder.scope import RoundScope
from flowsched.cluster import MICRO, Cluster
from flowsched.cluster.inventory import Inventory
from flowsched.cluster.records import TaskClass, TaskRecord, Transaction
from flowsched.rounds import _victims

__all__ = ["candidates", "least_victims", "victims", "worst_first"]

Ints = NDArray[np.int64]


@dataclass(slots=True)
class _Scratch:
    """Free room of a machine, for trial evictions, and the demand of the task that is to start there."""

    row: int
    gone: dict[TaskRecord, None]
    need: list[int]
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
        if inventory.rule is None and not all(map(ge, self.free, self.need)):
            return False
        if not inventory.affinity.admits(self.row, cls.index, [task.group.cls.index for task in self.gone]):
            return False
        return inventory.rule is None or inventory.rule.admits(self.row, cls.index, tuple(self.gone))


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
        cls.demand.tolist(),
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
    cluster: Cluster, scope: RoundScope, cls: TaskClass, rows: Ints, wait: Ints, among: set[int] | None = None
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
    among : set of int, optional
        Running tasks, by index, that may have to stop; all by default.

    Returns
    -------
    rows, cost, paid : ndarray of int64, shape (n,)
        `paid` is the part of the cost that the flow charges itself, if a task must leave its running arc for lack of a
        slot.
    """
    if cluster.inventory.shunned.in_use:
        rows = rows[cluster.inventory.can_ever(np.array([cls.index]), rows)[0]]
    waiting, stays = scope.policy.waiting, scope.policy.stays(np.arange(scope.policy.waiting.buckets))
    *found, due = _victims.candidates(
        cluster.inventory, cluster.by_row, cls.index, rows, wait, stays, waiting.ends, scope.now, among
    )
    scope.wake = min(scope.wake, due)
    at, cost, paid = (np.array(numbers, np.int64) for numbers in found)
    return at, cost, paid


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
