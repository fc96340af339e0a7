"""Schedulers to compare with: one task after the other, in an order, onto the machine that a choice prefers.

They decide by requests, as the FIFO, Capacity and Fair schedulers of YARN and DRF do; under `flowsched.fgm.FineGrained`
they are Algorithm 1 of FGM, its greedy form.  The tasks of a gang start together or not at all.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Hashable

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster import Resources
from flowsched.cluster.events import EndedRun, Event
from flowsched.cluster.records import Group, TaskRecord
from flowsched.cluster.transaction import Transaction
from flowsched.exceptions import InputError
from flowsched.rounds.reasons import Waiting, judge
from flowsched.rounds.values import Commit, Place, ReasonCode, Round, RoundStats
from flowsched.scheduler import Scheduler
from flowsched.sim.delay import DelayScheduling
from flowsched.sim.orders import Order, Shares, Turns, capacity, drf, fair, fifo, sjf
from flowsched.sim.room import Choice, Pick, Plan, Room, emptiest, together

__all__ = ["Greedy", "Order", "Shares", "capacity", "drf", "fair", "fifo", "sjf"]

Ints = NDArray[np.int64]


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
    pick : Pick, optional
        Devices that a task takes; without it, the fullest one that has room for a share, and the first free ones.

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
        pick: Pick | None = None,
    ) -> None:
        for name, given in (("order", order), ("choice", choice)):
            if not callable(given):
                raise InputError(f"{name}: a callable expected, got {given!r}")
        self.order = order
        self.choice = choice
        self.delay = delay
        self.pick = pick
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
        """Start tasks of the group with the least key until none that waits has room."""
        shares = Shares(self.cluster)
        full = {cls for cls, some in zip(room.classes, np.any(room.fits, axis=1), strict=True) if not some}
        groups = [
            group
            for cls, members in self.cluster.waiting.items()
            if cls not in full
            for group in members
            if group.waiting
        ]
        kinds = len(room.classes)
        turns = Turns(self.order, groups, shares)
        short: set[int] = set()

        def over(group: Group) -> bool:
            if group.cls not in full and not room.of(group.cls).any():
                full.add(group.cls)
            return group.cls in full or not group.waiting or group.job.serial in short

        def done() -> bool:
            return len(full) == kinds

        while (group := turns.next(over, done)) is not None:
            tasks = together(group)
            if tasks is not None and self._start(tasks, plan, room):
                for task in tasks:
                    shares.add(task.group)
                continue
            turns.leave()
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
            if devices and self.pick is not None:
                devices = self.pick(room, cls, row)
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
