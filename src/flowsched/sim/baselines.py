"""Schedulers to compare with: one task after the other, in an order, onto the emptiest machine where it fits.

They decide by requests, as the FIFO, Capacity and Fair schedulers of YARN and DRF do; under `flowsched.fgm.FineGrained`
they are Algorithm 1 of FGM, its greedy form.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster import Cluster, Resources
from flowsched.cluster.events import EndedRun, Event
from flowsched.cluster.records import Group, TaskRecord
from flowsched.cluster.transaction import Transaction
from flowsched.exceptions import InputError
from flowsched.rounds.reasons import Waiting, judge
from flowsched.rounds.values import Commit, Place, ReasonCode, Round, RoundStats
from flowsched.scheduler import Scheduler

__all__ = ["Greedy", "Order", "Queue", "Shares", "capacity", "drf", "fair", "fifo", "sjf"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Shares:
    """Allocations of jobs and users, as fractions of the cluster by resource.

    Attributes
    ----------
    resources : tuple of str
    """

    def __init__(self, cluster: Cluster) -> None:
        self.resources = cluster.resources.names
        inventory = cluster.inventory
        total = (
            inventory.capacity[: inventory.rows][inventory.suitability.of[: inventory.rows] >= 0]
            .sum(axis=0)
            .astype(np.float64)
        )
        self._scale: Floats = np.divide(1.0, total, out=np.zeros(len(total)), where=total > 0)
        self._job: dict[Hashable, Floats] = {}
        self._user: dict[Hashable, Floats] = {}
        for job in cluster.jobs.values():
            for group in job.groups.values():
                self.add(group, group.tasks - len(group.waiting))

    def add(self, group: Group, tasks: int = 1) -> None:
        """Count further running tasks of a group."""
        job = group.job.job
        part = group.cls.demand * self._scale * tasks
        for owners, owner in ((self._job, job.id), (self._user, job.user)):
            owners[owner] = owners[owner] + part if owner in owners else part

    def job(self, group: Group) -> Floats:
        """Return the fractions that the group's job has."""
        return self._job[group.job.job.id]

    def user(self, group: Group) -> Floats:
        """Return the fractions that the user of the group's job has."""
        return self._user[group.job.job.user]

    def of_user(self, user: Hashable) -> Floats:
        """Return the fractions that a user has."""
        return self._user.get(user, np.zeros(len(self._scale)))


Order = Callable[[Group, Shares], tuple[float, ...]]
"""Order of groups: the least key is next.  Called again after each placement; it must not change anything."""


def fifo(group: Group, shares: Shares) -> tuple[float, ...]:
    """Order by arrival of the job."""
    return (group.job.serial,)


def sjf(group: Group, shares: Shares) -> tuple[float, ...]:
    """Order by the estimated run time of the next task (`Task.duration`), then by arrival of the job."""
    return (group.waiting[0].duration, group.job.serial)


def fair(group: Group, shares: Shares) -> tuple[float, ...]:
    """Order by the fraction of memory (or the last resource) of the user, then of the job, as in YARN's default."""
    return (shares.user(group)[_main(shares)], shares.job(group)[_main(shares)], group.job.serial)


def drf(group: Group, shares: Shares) -> tuple[float, ...]:
    """Order by the dominant share of the user, then of the job (DRF)."""
    return (shares.user(group).max(), shares.job(group).max(), group.job.serial)


@dataclass(frozen=True)
class capacity:
    """Order by the used fraction of the queue's part, then by arrival of the job.

    Parameters
    ----------
    queue_of : mapping of user to queue
        A user without an entry is a queue of its own.
    parts : mapping of queue to float
        1 for a queue without an entry.
    """

    queue_of: Mapping[Hashable, Hashable]
    parts: Mapping[Hashable, float]

    def __call__(self, group: Group, shares: Shares) -> tuple[float, ...]:
        """See `Order`."""
        user = group.job.job.user
        queue = self.queue_of.get(user, user)
        members = [u for u, q in self.queue_of.items() if q == queue] or [user]
        used = sum(float(shares.of_user(u)[_main(shares)]) for u in members)
        return (used / self.parts.get(queue, 1.0), group.job.serial)


def _main(shares: Shares) -> int:
    return shares.resources.index("mem") if "mem" in shares.resources else len(shares.resources) - 1


class Greedy:
    """Starts tasks in an order, each on the emptiest machine that has room; running tasks stay.

    Parameters
    ----------
    order : Order
    resources : sequence of str or Resources

    Attributes
    ----------
    cluster : Cluster
    """

    def __init__(self, order: Order, resources: Resources | Collection[str] = ("cpu", "mem", "gpu")) -> None:
        if not callable(order):
            raise InputError(f"order: a callable expected, got {order!r}")
        self.order = order
        self._inner = Scheduler(resources=resources if isinstance(resources, Resources) else tuple(resources))
        self.cluster = self._inner.cluster

    def apply(self, *events: Event) -> tuple[EndedRun, ...]:
        """Apply events."""
        return self.cluster.apply(*events)

    def invalidate(self, classes: Collection[int]) -> None:
        """Do nothing: every round looks at every machine."""

    def schedule(self, now: float, time_limit: float | None = None) -> Round:
        """Decide; see `Scheduler.schedule`.  The time limit is not needed."""
        begin = time.perf_counter()
        self.cluster.changes(now)
        transaction = Transaction(self.cluster, now)
        placements: dict[Hashable, Hashable] = {}
        deltas: list[Place] = []
        try:
            self._place(transaction, placements, deltas)
            waiting = self._waiting()
            turns = {task.id: before.turn for task, before in transaction.before.items()}
        finally:
            transaction.rollback()
        stats = RoundStats(0, 0, 0, 1, 0.0, 0.0, time.perf_counter() - begin)
        devices = {delta.task: delta.devices for delta in deltas}
        return Round(now, placements, {}, {}, devices, waiting, tuple(deltas), stats, turns=turns)

    def _place(self, transaction: Transaction, placements: dict[Hashable, Hashable], deltas: list[Place]) -> None:
        cluster, inventory = self.cluster, self.cluster.inventory
        classes = np.array([cls.index for cls in cluster.waiting], np.int64)
        rows = np.array(list(cluster.by_row), np.int64)
        if not len(classes) or not len(rows):
            return
        where = {cls: i for i, cls in enumerate(cluster.waiting)}
        column = {row: i for i, row in enumerate(rows.tolist())}
        fits = self._fits(classes, rows)
        load = self._load(rows)
        shares = Shares(cluster)
        groups = [group for members in cluster.waiting.values() for group in members]
        while True:
            open_: NDArray[np.bool_] = np.any(fits, axis=1)
            groups = [group for group in groups if group.waiting and open_[where[group.cls]]]
            if not groups:
                return
            group = min(groups, key=lambda g: self.order(g, shares))
            choice = np.flatnonzero(fits[where[group.cls]])
            row = int(rows[choice[load[choice].argmin()]])
            devices = inventory.pick(row, group.cls.index)
            if devices is not None:
                self._start(group.waiting[0], row, devices, transaction, placements, deltas)
                shares.add(group)
            one = np.array([row])
            fits[:, column[row]] = self._fits(classes, one)[:, 0]
            load[column[row]] = self._load(one)[0]

    def _start(
        self,
        task: TaskRecord,
        row: int,
        devices: tuple[int, ...],
        transaction: Transaction,
        placements: dict[Hashable, Hashable],
        deltas: list[Place],
    ) -> None:
        machine = self.cluster.by_row[row].id
        transaction.start([task], row, devices)
        placements[task.id] = machine
        deltas.append(Place(task.id, machine, devices))

    def _fits(self, classes: Ints, rows: Ints) -> NDArray[np.bool_]:
        inventory = self.cluster.inventory
        room: NDArray[np.bool_] = inventory.room(classes, rows)[0] > 0
        return room & (inventory.running[rows] < inventory.slots[rows])

    def _load(self, rows: Ints) -> Floats:
        """Return the requested fraction of each machine, as a mean over its resources, shape (rows,)."""
        inventory = self.cluster.inventory
        total = inventory.capacity[rows].astype(np.float64)
        has = total > 0
        used = np.divide(total - inventory.free[rows], total, out=np.zeros_like(total), where=has).sum(axis=1)
        mean: Floats = used / np.maximum(has.sum(axis=1), 1)
        return mean

    def _waiting(self) -> Waiting:
        inventory, groups = self.cluster.inventory, []
        every = np.flatnonzero(inventory.shapes().of_row >= 0)
        for cls in self.cluster.waiting:
            why = np.zeros(inventory.rows, np.uint32)
            why[every] = inventory.room(np.array([cls.index]), every)[1][0]
            code = ReasonCode.PENDING if (why[every] == 0).any() else None
            groups.append((self.cluster.waiting_ids(cls), judge(inventory, cls, why, code), None))
        return Waiting(groups)

    def commit(self, round: Round, only: Collection[Hashable] | None = None) -> Commit:
        """Commit a round; see `Scheduler.commit`."""
        return self._inner.commit(round, only)


class Queue(Greedy):
    """First come, first served: the first task that finds no room keeps all later ones from starting.

    With `backfill` these may start where they do not delay it: EASY (Lifka, "The ANL/IBM SP Scheduling System", JSSPP
    1995), for tasks that each need a part of one machine.  The first task gets the machine that will have room for it first
    by the estimates of run times (`Task.duration`).  Others start there only if they end in time, or fit beside it.

    Parameters
    ----------
    backfill : bool
    resources : sequence of str or Resources
    """

    def __init__(self, backfill: bool, resources: Resources | Collection[str] = ("cpu", "mem", "gpu")) -> None:
        super().__init__(fifo, resources)
        self.backfill = backfill

    def _place(self, transaction: Transaction, placements: dict[Hashable, Hashable], deltas: list[Place]) -> None:
        cluster, inventory = self.cluster, self.cluster.inventory
        rows = np.array(list(cluster.by_row), np.int64)
        groups = [group for members in cluster.waiting.values() for group in members]
        line = sorted(task for group in groups for task in group.waiting)
        kept, until, beside = -1, math.inf, np.zeros(len(inventory.total), np.int64)
        full: set[int] = set()
        for task in line if len(rows) else ():
            cls = task.group.cls
            if cls.index in full:
                continue
            choice = rows[self._fits(np.array([cls.index]), rows)[0]]
            if not len(choice) and kept < 0:
                if not self.backfill:
                    return
                kept, until, beside = self._reserve(task, rows, transaction.now)
            if not len(choice):
                full.add(cls.index)
                continue
            if kept >= 0 and transaction.now + task.duration > until and not (cls.demand <= beside).all():
                choice = choice[choice != kept]
            choice = choice[np.argsort(self._load(choice), kind="stable")]
            for row in choice.tolist():
                devices = inventory.pick(row, cls.index)
                if devices is not None:
                    if row == kept and transaction.now + task.duration > until:
                        beside = beside - cls.demand
                    self._start(task, row, devices, transaction, placements, deltas)
                    break

    def _reserve(self, task: TaskRecord, rows: Ints, now: float) -> tuple[int, float, Ints]:
        """Return the machine that has room for a task first, when, and what else is free then; no machine if unknown."""
        inventory, best = self.cluster.inventory, (math.inf, -1)
        after: Ints = np.zeros(len(inventory.total), np.int64)
        able = rows[inventory.can_ever(np.array([task.group.cls.index]), rows)[0]]
        for row in able.tolist():
            free = inventory.free[row].copy()
            ends = [(t.place.since + t.duration, t) for t in self.cluster.by_row[row].tasks if t.place is not None]
            for end, other in sorted(ends):
                free += other.group.cls.demand
                if (free >= task.group.cls.demand).all():
                    if (max(end, now), row) < best:
                        best, after = (max(end, now), row), free - task.group.cls.demand
                    break
        return (best[1], best[0], after) if best[0] < math.inf else (-1, math.inf, after)
