"""What a simple scheduler decides with: room by class and machine, a trial, choices of machines, and gangs."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster import Cluster
from flowsched.cluster.records import Group, JobRecord, TaskClass, TaskRecord
from flowsched.cluster.transaction import Transaction
from flowsched.rounds.values import Place

__all__ = ["Choice", "Pick", "Plan", "Room", "emptiest", "first", "lacking", "together"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass
class Plan:
    """What a round starts: a trial, and the deltas that it amounts to.

    `gangs` numbers the gangs of the tasks that start together.
    """

    transaction: Transaction
    deltas: list[Place] = field(default_factory=list)
    gangs: dict[Hashable, int] = field(default_factory=dict)


class Room:
    """How many more tasks of each waiting class each machine can take, and its load, as tasks start.

    Attributes
    ----------
    rows : ndarray of int64, shape (machines,)
        Their rows in the inventory; the columns below are in this order.
    fits : ndarray of int64, shape (classes, machines)
    load : ndarray of float64, shape (machines,)
        Requested fraction of each machine, as a mean over its resources.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.rows: Ints = np.array(list(cluster.by_row), np.int64)
        self._classes: Ints = np.array([cls.index for cls in cluster.waiting], np.int64)
        self._line = {cls: i for i, cls in enumerate(cluster.waiting)}  # also of those of which all tasks start
        self._column = {row: i for i, row in enumerate(self.rows.tolist())}
        self.fits = self._fits(self.rows)
        self.load = self._load(self.rows)

    def of(self, cls: TaskClass) -> Ints:
        """Return how many more tasks of a class each machine can take, shape (machines,)."""
        line: Ints = self.fits[self._line[cls]]
        return line

    @property
    def classes(self) -> list[TaskClass]:
        """The classes of tasks that waited when the round began."""
        return list(self._line)

    def line(self, cls: TaskClass) -> int:
        """Return the line of a class in `fits`."""
        return self._line[cls]

    def column(self, row: int) -> int:
        """Return the column of a machine's row."""
        return self._column[row]

    def refresh(self, row: int) -> None:
        """Look at a machine again."""
        one = np.array([row])
        self.fits[:, self._column[row]] = self._fits(one)[:, 0]
        self.load[self._column[row]] = self._load(one)[0]

    def _fits(self, rows: Ints) -> Ints:
        inventory = self.cluster.inventory
        if not len(rows) or not len(self._classes):
            return np.zeros((len(self._classes), len(rows)), np.int64)
        slots = np.maximum(inventory.slots[rows] - inventory.running[rows], 0)
        fits: Ints = np.minimum(inventory.room(self._classes, rows)[0], slots)
        return fits

    def _load(self, rows: Ints) -> Floats:
        inventory = self.cluster.inventory
        total = inventory.capacity[rows].astype(np.float64)
        has = total > 0
        used = np.divide(total - inventory.free[rows], total, out=np.zeros_like(total), where=has).sum(axis=1)
        mean: Floats = used / np.maximum(has.sum(axis=1), 1)
        return mean


Choice = Callable[[Room, TaskClass, Ints], Floats]
"""Scores of machines (columns of a `Room`) for a task of a class: it starts on the first of the least score."""


Pick = Callable[[Room, TaskClass, int], tuple[int, ...] | None]
"""Devices for a task of a class on a machine (a row), where it has room by all else; None for no room."""


def emptiest(room: Room, cls: TaskClass, columns: Ints) -> Floats:
    """Prefer the machine with the least load."""
    load: Floats = room.load[columns]
    return load


def first(room: Room, cls: TaskClass, columns: Ints) -> Floats:
    """Prefer the machine that came first."""
    return columns.astype(np.float64)


def lacking(job: JobRecord) -> int:
    """Return how many tasks of a job must start together: 1, or those that its gang lacks."""
    return max(job.lacks, 1)


def together(group: Group) -> list[TaskRecord] | None:
    """Return the next waiting task of a group, with those that must start with it; None where its gang lacks tasks."""
    lack = lacking(group.job)
    if lack == 1:
        return [group.waiting[0]]
    tasks = sorted(task for g in group.job.each_group() for task in g.waiting)[:lack]
    return tasks if len(tasks) == lack else None
