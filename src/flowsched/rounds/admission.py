"""Flow proposes, the check disposes: what the flow would start is tried out on the cluster, machine by machine."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, islice, takewhile
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from flowsched.builder.builder import Builder
from flowsched.builder.ladder import LadderPosition
from flowsched.builder.proposals import ClassFlow
from flowsched.cluster import Cluster
from flowsched.cluster.records import Group, TaskRecord
from flowsched.cluster.transaction import Transaction
from flowsched.policy import OMEGA
from flowsched.rounds.fair_order import Way, progressive_fill, way_of
from flowsched.rounds.preemption import candidates, victims

__all__ = ["AdmissionCheck"]

Ints = NDArray[np.int64]

_NOWHERE = np.zeros(0, np.int64)

_WIDTH = 16
"""At least so many machines at a time are tried for making room."""


class AdmissionCheck:
    """The check of one round.

    Parameters
    ----------
    builder : Builder
    trial : Trial
        Where accepted proposals are tried out.

    Attributes
    ----------
    by : dict of TaskRecord to TaskRecord
        Who made whom leave the machine where it ran before the round.
    """

    def __init__(self, builder: Builder, transaction: Transaction) -> None:
        self.builder = builder
        self.transaction = transaction
        self.cluster: Cluster = builder.cluster
        self.by: dict[TaskRecord, TaskRecord] = {}

    def admit(self, proposals: Sequence[ClassFlow]) -> bool:
        """Start what fits, evicting where somebody makes room; True if the flow must be looked at again."""
        step, climb = self.builder.policy.step, self.builder.shares.climb()
        again = step < 1 and bool(proposals)
        started: list[TaskRecord] = []

        def start(queue: Sequence[TaskRecord], way: Way) -> int:
            nonlocal again
            at = 0
            while at < len(queue) and way:
                row, units = way.popleft()
                some = queue[at : at + units]
                done, told = self._start_some(some, row)
                if done == len(some) < units:
                    way.appendleft((row, units - done))
                at += done
                again |= told
            started.extend(queue[:at])
            return at

        if step < 1:
            proposals = self._cheapest(proposals, step, climb)
        if climb is not None and len(proposals) > 1:
            offers = self.builder.places.offers(np.array([p.cls.index for p in proposals]))
            progressive_fill(proposals, offers.sum(axis=1).tolist(), climb, start)
        else:
            for proposal in proposals:
                for group, row, units, _ in proposal.near:
                    start(group.waiting[:units], deque([(row, units)]))
                queue = chain.from_iterable(islice(group.waiting, units) for group, units in proposal.groups)
                start(sorted(queue, key=attrgetter("turn")), way_of(proposal))
        return self._keep_shares(started) or again

    def _keep_shares(self, started: Sequence[TaskRecord]) -> bool:
        """Where more of a claimant's tasks run than may, its worst ones stop for its better ones; True if any must."""
        jobs = dict.fromkeys(task.group.job for task in started)
        again = False
        while excess := self.builder.shares.excess(jobs):
            members, count = excess[0]
            mine = dict.fromkeys(members)
            newcomers = [task for task in started if task.place is not None and task.group.job in mine]
            newcomers.sort(key=lambda task: (task.group.cls.priority, task.turn))
            new = dict.fromkeys(newcomers)
            running = [task for job in members for task in job.tasks if task.place is not None and task not in new]
            running.sort(key=lambda task: (task.group.cls.priority, task.turn))
            for _ in range(count):
                again = True
                if running and self._gives_way(running[-1], newcomers[0]):
                    victim, task = running.pop(), newcomers.pop(0)
                    self.transaction.stop(victim)
                    jobs[victim.group.job] = None
                    if self.transaction.before[victim].place is not None:
                        self.by.setdefault(victim, task)
                    self._absolve([victim], task)
                else:
                    self._withdraw(newcomers.pop())
        return again

    def _gives_way(self, victim: TaskRecord, task: TaskRecord) -> bool:
        preemption = self.builder.policy.preemption
        return (
            preemption is not None
            and victim.group.cls.priority > task.group.cls.priority
            and (not preemption.window or victim.preempted <= self.transaction.now - preemption.window)
        )

    def _withdraw(self, task: TaskRecord) -> None:
        """A task does not start after all, nor does any other of its group in this round; who stopped for it comes back."""
        if self.transaction.before[task].place is None:
            self.transaction.restore(task)
        else:
            self.transaction.stop(task)
        self.builder.withhold(task.group)
        self._let_back(task)

    def _cheapest(self, proposals: Sequence[ClassFlow], step: float, climb: LadderPosition | None) -> list[ClassFlow]:
        """Some of what is proposed for the best standing, the cheapest first and at most one task per machine."""
        places, rank = self.builder.places, self.builder.rank
        if climb is not None and proposals:
            proposals = climb.lowest([p for p in proposals if p.cls.priority == proposals[0].cls.priority])
        best = [p for p in proposals if rank(p) == rank(proposals[0])]
        offers: list[tuple[int, int, int, Group | None]] = []
        for i, p in enumerate(best):
            offers += [(places.cost(p.cls.index, row), i, row, None) for row, _ in p.rows]
            offers += [(places.cost(p.cls.index, row) + cost, i, row, group) for group, row, _, cost in p.near]
        offers.sort(key=lambda offer: offer[:3])
        taken: dict[int, None] = {}
        rows: list[list[tuple[int, int]]] = [[] for _ in best]
        near: list[list[tuple[Group, int, int, int]]] = [[] for _ in best]
        for _, i, row, group in offers:
            if row not in taken and len(taken) < step * len(offers):
                taken[row] = None
                if group is None:
                    rows[i].append((row, 1))
                else:
                    near[i].append((group, row, 1, 0))
        chosen = (replace(p, rows=rows[i], near=near[i]) for i, p in enumerate(best))
        return [p for p in chosen if p.rows or p.near or p.displacing]

    def _start_some(self, tasks: Sequence[TaskRecord], row: int) -> tuple[int, bool]:
        """Start tasks of one class on a machine up to one that is refused: how many, and the result as for `admit`."""
        done, again = 0, False
        while done < len(tasks):
            alike = self._start_alike(tasks, done, row)
            outcome = False if alike else self._start(tasks[done], row)
            if outcome is None:
                self.builder.places.cut(tasks[done].group.cls.index, row)
                return done, True
            done += alike or 1
            again |= outcome
        return done, again

    def _start_alike(self, tasks: Sequence[TaskRecord], first: int, row: int) -> int:
        """Start those at the front that can be taken together; how many."""
        group = tasks[first].group
        room = self.cluster.inventory.spare(row, group.cls.index, len(tasks) - first)
        alike = list(
            takewhile(lambda t: t.group is group and t not in self.transaction.before, tasks[first : first + room])
        )
        if alike:
            self.transaction.start(alike, row, ())
        return len(alike)

    def _start(self, task: TaskRecord, row: int) -> bool | None:
        """Try one task on one machine: None if refused, else whether others had to stop."""
        before = self.transaction.before.get(task)
        cls = task.group.cls
        inventory = self.cluster.inventory
        if (
            before is not None
            and before.place is not None
            and inventory.admits(before.place.row, cls.index, before.place.devices)
        ):
            self.transaction.restore(task)  # a victim need not go after all
            del self.by[task]
            return True
        devices = inventory.pick(row, cls.index)
        if devices is not None:
            self.transaction.start([task], row, devices)
            return False
        chosen = victims(self.cluster, self.builder.policy, cls, row, self.transaction.now)
        if chosen is None:
            return None
        self.replace(task, row, chosen)
        return True

    def replace(self, task: TaskRecord, row: int, chosen: Sequence[TaskRecord]) -> None:
        """These stop for the task, which starts on their machine."""
        for victim in chosen:
            self.transaction.stop(victim)
            if self.transaction.before[victim].place is not None:
                self.by.setdefault(victim, task)
        devices = self.cluster.inventory.pick(row, task.group.cls.index)
        assert devices is not None, "victims are chosen so that the task fits"
        self.transaction.start([task], row, devices)
        self._absolve(chosen, task)

    def _absolve(self, stopped: Iterable[TaskRecord], newcomer: TaskRecord) -> None:
        """Who was about to start but has to stop evicts nobody: its victims come back, or go for the newcomer instead."""
        for task in stopped:
            for victim in self._let_back(task):
                self.by[victim] = newcomer

    def spare(self) -> None:
        """At the end: who stopped for a task that does not start after all comes back where nobody is in the way."""
        for task in dict.fromkeys(self.by.values()):
            before = self.transaction.before.get(task)
            if task.place is None or before is None or task.turn == before.turn:
                self._let_back(task)

    def _let_back(self, task: TaskRecord) -> list[TaskRecord]:
        """Who stopped for the task comes back where nobody is in the way; the others."""
        others = []
        for victim in [victim for victim, by in self.by.items() if by is task]:
            place = self.transaction.before[victim].place
            assert place is not None
            if victim.place is None and self.cluster.inventory.admits(place.row, victim.group.cls.index, place.devices):
                self.transaction.restore(victim)
                del self.by[victim]
            else:
                others.append(victim)
        return others

    def make_room(self) -> bool:
        """Open arcs where evicting worse tasks could make room for classes that still wait; True if there are any."""
        builder, policy = self.builder, self.builder.policy
        if policy.preemption is None:
            return False
        worst = self.cluster.inventory.worst_running()
        waiting = sorted(self.cluster.waiting, key=attrgetter("rank"))
        better = [
            cls
            for cls in waiting
            if worst is not None
            and cls.priority < worst
            and not all(builder.withheld(group) for group in self.cluster.waiting[cls])
        ]
        if not better:
            return False
        opened = False
        hopeful = builder.places.hopeful([cls.index for cls in better], policy)
        for cls in better:
            rows = hopeful.get(cls.index, _NOWHERE)
            if len(rows):
                rows, cost, paid = candidates(
                    self.cluster, policy, cls, rows, self.transaction.now, builder.wait_costs()
                )
            if not len(rows):
                builder.places.give_up(cls.index)
                continue
            index = np.array([cls.index])
            cost = cost + policy.place(self.cluster, index, rows)[0]
            few = np.argsort(cost, kind="stable")[: max(_WIDTH, 2 * len(self.cluster.waiting_ids(cls)))]
            cost, paid = cost[few], paid[few]
            if policy.priority.strict:
                cost = _at_most(cost, builder.bearable_cost(cls))
            builder.places.displace(cls.index, rows[few], cost - paid)
            opened = True
        return opened


def _at_most(cost: Ints, limit: int) -> Ints:
    """Ascending costs within a limit: those above come close below it, one apart, so that they keep their order."""
    lowered: Ints = np.minimum(cost, limit - np.minimum(np.arange(len(cost))[::-1], OMEGA))
    return lowered
