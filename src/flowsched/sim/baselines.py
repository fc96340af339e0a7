"""Schedulers to compare with: one task after the other, in an order, onto the machine that a choice prefers.

They decide by requests, as the FIFO, Capacity and Fair schedulers of YARN and DRF do; under `flowsched.fgm.FineGrained`
they are Algorithm 1 of FGM, its greedy form.  The tasks of a gang start together or not at all.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter
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
from flowsched.sim.delay import DelayScheduling
from flowsched.sim.room import Choice, Plan, Room, emptiest, together

__all__ = ["Greedy", "Order", "Shares", "capacity", "drf", "fair", "fifo", "sjf"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Shares:
    """Allocations of jobs and users, as fractions of the cluster by resource; counted when first asked for.

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
        self._cluster = cluster
        self._counted = False
        self._nothing: Floats = np.zeros(len(total))
        self._nothing.flags.writeable = False
        self._job: dict[Hashable, Floats] = {}
        self._user: dict[Hashable, Floats] = {}

    def add(self, group: Group, tasks: int = 1) -> None:
        """Count further running tasks of a group."""
        if self._counted:
            self._add(group, tasks)

    def _count(self) -> None:
        """Count what runs, once."""
        if not self._counted:
            self._counted = True
            for job in self._cluster.jobs.values():
                for group in job.groups.values():
                    if running := group.tasks - len(group.waiting):
                        self._add(group, running)

    def _add(self, group: Group, tasks: int) -> None:
        job = group.job.job
        part = group.cls.demand * self._scale * tasks
        for owners, owner in ((self._job, job.id), (self._user, job.user)):
            owners[owner] = owners[owner] + part if owner in owners else part

    def job(self, group: Group) -> Floats:
        """Return the fractions that the group's job has."""
        self._count()
        return self._job.get(group.job.job.id, self._nothing)

    def user(self, group: Group) -> Floats:
        """Return the fractions that the user of the group's job has."""
        self._count()
        return self._user.get(group.job.job.user, self._nothing)

    def of_user(self, user: Hashable) -> Floats:
        """Return the fractions that a user has."""
        self._count()
        return self._user.get(user, self._nothing)


Order = Callable[[Group, Shares], tuple[float, ...]]
"""Order of groups: the least key is next.

Called again after each placement; it must not change anything.  The start of a task must not lower the key of another group.
"""


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
    """Starts tasks in an order, each on the machine that a choice prefers of those with room; running tasks stay.

    Parameters
    ----------
    order : Order
    resources : sequence of str or Resources
    choice : Choice
        The emptiest machine by default.
    delay : DelayScheduling, optional
        Tasks with data wait for a near machine, see there; without it, data do not matter.

    Attributes
    ----------
    cluster : Cluster
    """

    def __init__(
        self,
        order: Order,
        resources: Resources | Collection[str] = ("cpu", "mem", "gpu"),
        choice: Choice = emptiest,
        delay: DelayScheduling | None = None,
    ) -> None:
        for name, given in (("order", order), ("choice", choice)):
            if not callable(given):
                raise InputError(f"{name}: a callable expected, got {given!r}")
        self.order = order
        self.choice = choice
        self.delay = delay
        self._now = 0.0  # of the round
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
        self._now = now
        self.cluster.changes(now)
        transaction = Transaction(self.cluster, now)
        plan = Plan(transaction)
        try:
            if self.cluster.waiting and self.cluster.by_row:
                self._place(plan, Room(self.cluster))
            waiting = self._waiting()
            turns = {task.id: before.turn for task, before in transaction.before.items()}
        finally:
            transaction.rollback()
        stats = RoundStats(0, 0, 0, 1, 0.0, 0.0, time.perf_counter() - begin)
        placements = {delta.task: delta.machine for delta in plan.deltas}
        devices = {delta.task: delta.devices for delta in plan.deltas}
        deltas = tuple(plan.deltas)
        return Round(now, placements, {}, {}, devices, waiting, deltas, stats, turns=turns, gangs=plan.gangs)

    def _place(self, plan: Plan, room: Room) -> None:
        """Start tasks of the group with the least key until none that waits has room.

        The heap holds a key of each group that is no larger than its present one, so one that is up to date is the least.
        """
        shares = Shares(self.cluster)
        open_: NDArray[np.bool_] = np.any(room.fits, axis=1)
        waiting = self.cluster.waiting
        groups = [group for cls, members in waiting.items() if open_[room.line(cls)] for group in members]
        heap = [(self.order(group, shares), i) for i, group in enumerate(groups) if group.waiting]
        heapq.heapify(heap)
        short: set[int] = set()
        while heap:
            key, i = heap[0]
            group = groups[i]
            if not group.waiting or group.job.serial in short or not room.of(group.cls).any():
                heapq.heappop(heap)
                continue
            present = self.order(group, shares)
            if present != key:
                heapq.heapreplace(heap, (present, i))
                continue
            tasks = together(group)
            if tasks is not None and self._start(tasks, plan, room):
                for task in tasks:
                    shares.add(task.group)
                continue
            heapq.heappop(heap)
            if tasks is None or len(tasks) > 1:
                short.add(group.job.serial)

    def _start(self, tasks: list[TaskRecord], plan: Plan, room: Room, most: Ints | None = None) -> bool:
        """Start tasks together, or none of them and return False.

        `most` bounds how many start on each machine, shape (machines,).
        """
        for cls, count in Counter(task.group.cls for task in tasks).items() if len(tasks) > 1 else ():
            if (room.of(cls) if most is None else np.minimum(room.of(cls), most)).sum() < count:
                return False
        began, left = len(plan.deltas), None if most is None else most.copy()
        for task in tasks:
            fits = room.of(task.group.cls) if left is None else np.minimum(room.of(task.group.cls), left)
            column = self._start_one(task, np.flatnonzero(fits > 0), plan, room)
            if column is None:
                self._take_back(tasks, plan, room, began)
                return False
            if left is not None:
                left[column] -= 1
        if len(tasks) > 1:
            number = len(plan.gangs)
            plan.gangs.update((task.id, number) for task in tasks)
        return True

    def _start_one(self, task: TaskRecord, columns: Ints, plan: Plan, room: Room) -> int | None:
        """Start a task on one of these machines, and return which; None where none of them takes it."""
        cls = task.group.cls
        if self.delay is not None:
            columns = columns[self.delay.nearest(self.cluster, task, room.rows[columns], self._now)]
        while len(columns):
            column = int(columns[self.choice(room, cls, columns).argmin()])
            row = int(room.rows[column])
            devices = self.cluster.inventory.pick(row, cls.index)
            if devices is not None:
                plan.transaction.start([task], row, devices)
                plan.deltas.append(Place(task.id, self.cluster.by_row[row].id, devices))
            room.refresh(row)
            if devices is not None:
                return column
            columns = columns[columns != column]
        return None

    def _take_back(self, tasks: list[TaskRecord], plan: Plan, room: Room, began: int) -> None:
        """Take back the deltas from the one of this number on, which are those of the first tasks."""
        for task in tasks[: len(plan.deltas) - began]:
            row = task.row
            plan.transaction.restore(task)
            room.refresh(row)
        del plan.deltas[began:]

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
        done = self._inner.commit(round, only)
        if self.delay is not None:
            placed = (delta.task for delta in done.accepted if isinstance(delta, Place))
            self.delay.started(self.cluster, placed, round.now)
        return done
