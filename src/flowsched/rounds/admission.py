"""Admission: starts that the flow proposes are tried on the cluster, machine by machine.

Several resources and affinity limit a machine, but a single number limits an arc.  So a flow may propose more tasks
than fit together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter, is_not

import numpy as np
from numpy.typing import NDArray

from flowsched.builder.builder import Builder
from flowsched.builder.ladder import LadderPosition
from flowsched.builder.proposals import ClassFlow
from flowsched.builder.quotas import QuotaAccounts
from flowsched.builder.scope import RoundScope
from flowsched.cluster import Cluster
from flowsched.cluster.records import Group, JobRecord, Placement, Starts, TaskRecord, Transaction, untouched, untried
from flowsched.policy import OMEGA
from flowsched.rounds.contest import Contest, contest
from flowsched.rounds.fair_order import Route, progressive_fill
from flowsched.rounds.packing import Refuse, fill
from flowsched.rounds.preemption import candidates, victims

__all__ = ["AdmissionCheck"]

Ints = NDArray[np.int64]

_NOWHERE = np.zeros(0, np.int64)

_WIDTH = 16
"""Smallest number of machines that are tried at a time for making room."""


class AdmissionCheck:
    """Check of one round.

    Parameters
    ----------
    builder : Builder
    scope : RoundScope
    transaction : Transaction
        Holds the accepted starts.

    Attributes
    ----------
    starts : Starts or None
        Starts of the round where no trial is needed, see `places_all`.
    evicted_for : dict of TaskRecord to TaskRecord
        Victims, each with the task for which it left the machine where it ran before the round.  A victim that is back
        there keeps its entry, since it may have to leave again.
    """

    def __init__(self, builder: Builder, scope: RoundScope, transaction: Transaction) -> None:
        self.builder = builder
        self.scope = scope
        self.transaction = transaction
        self.cluster: Cluster = builder.cluster
        self.evicted_for: dict[TaskRecord, TaskRecord] = {}
        self.quotas = builder.quotas
        if self.quotas is not None:
            self.quotas.look()
        self._contest: Contest | None = None
        self.starts: Starts | None = None

    def places_all(self, proposals: Sequence[ClassFlow]) -> bool:
        """Set `starts` if they are all that a round has to find, and need no trial; return False otherwise.

        Nothing has been tried then, the proposal is for all waiting tasks, these are alike, and no quota, share, gang or
        stopping run is in use.
        """
        builder, cluster = self.builder, self.cluster
        if self.transaction.before or len(proposals) != 1 or len(cluster.waiting) != 1 or cluster.resting:
            return False
        first = proposals[0]
        if len(first.groups) != 1 or first.near or first.displacing or builder.gang_groups or builder.left_out:
            return False
        if self.quotas is not None or cluster.stopping:
            return False
        policy, shares = builder.policy, builder.shares
        if policy.fairness is not None or policy.step < 1 or shares.fairness is not None or shares.limit:
            return False
        group, _ = first.groups[0]
        if len(cluster.waiting[first.cls]) == 1 and group.plain():
            self.starts = untried(cluster, group, first.rows)
        return self.starts is not None

    def among(self, sent: dict[int, list[tuple[int, int]]]) -> list[int]:
        """Return the classes, of those whose tasks the flow sends to machines, that `admit` needs; see `Contest`."""
        policy = self.builder.policy
        if policy.fairness is None and self.quotas is None and policy.step >= 1 and not self.evicted_for:
            self._contest = contest(self.builder, self.scope, sent, self._preempts)
        return list(sent) if self._contest is None else self._contest.kept

    def admit(self, proposals: Sequence[ClassFlow]) -> bool:
        """Start the tasks that fit, with victims where others make room; return True if the flow must be read again."""
        policy = self.builder.policy
        step, fairness = policy.step, policy.fairness
        if not proposals and fairness is None:
            return False
        positions = None if fairness is None else self.builder.shares.positions()
        attempt = _Attempt(self)
        again = step < 1 and bool(proposals)
        if self.quotas is not None:
            within = list(map(partial(_within, self.quotas, self.builder.classes.cost), proposals))
            again |= any(map(is_not, within, proposals))
            proposals = [proposal for proposal in within if proposal is not None]
        if self._contest is not None:
            found, self._contest = self._contest, None
            attempt.fill(proposals, None, attempt.refuse)
            if found.dropped:
                attempt.refuse(found.dropped, found.row)
            return attempt.again
        if step < 1:
            proposals = self._cheapest(proposals, step, positions)
        first = proposals[0] if len(proposals) == 1 else None
        if positions is not None and len(proposals) > 1:
            offers = self.builder.offers(np.array([p.cls.index for p in proposals]))
            progressive_fill(proposals, offers.sum(axis=1).tolist(), positions, attempt.start)
        elif first is not None and not first.near:  # no machine is contested
            tasks, rows = first.in_line()
            attempt.start_rows(tasks, rows, 0)
        else:
            for alike in self._together(proposals):
                refuse = None if self.evicted_for else attempt.refuse  # a victim may find room on its former machine
                preempts = partial(self._preempts, alike[0].cls.priority)
                attempt.fill(alike, preempts, refuse)
        return (fairness is not None and self.keep_shares(attempt.started)) or again or attempt.again

    def _preempts(self, priority: int) -> bool:
        worst = self.cluster.inventory.worst_running()
        return self.builder.policy.preemption is not None and worst is not None and worst > priority

    def _together(self, proposals: Sequence[ClassFlow]) -> Iterator[Sequence[ClassFlow]]:
        """Yield the proposals that are tried together: those of one standing, or one by one where jobs have shares.

        A share fixes the number of tasks that start.  So each must find room, and the largest, which find room in few places,
        go first.
        """
        if self.builder.policy.fairness is not None:
            yield from ([proposal] for proposal in proposals)
            return
        for _, alike in groupby(proposals, attrgetter("standing")):
            yield list(alike)

    def keep_shares(self, started: Sequence[TaskRecord], restored: Iterable[TaskRecord] = ()) -> bool:
        """Stop the worst tasks of claimants that exceed their share, for their better ones; return True if any must stop.

        A claimant may exceed its share with tasks that ran before the round.

        Parameters
        ----------
        started : sequence of TaskRecord
            Tasks that this pass has started, including tasks that are back on their machine from before the round, since the
            flow would propose these again.
        restored : iterable of TaskRecord
            Tasks that stay on their machine.
        """
        if self.builder.policy.fairness is None:
            return False
        jobs, fresh = dict.fromkeys(task.group.job for task in (*started, *restored)), dict.fromkeys(started)
        again = False
        while self._shrink(self.builder.shares.excess(jobs), fresh):
            jobs = dict.fromkeys(task.group.job for task in self.transaction.before)  # victims may be back as well
            again = True
        return again

    def _shrink(self, excess: Iterable[tuple[list[JobRecord], int]], fresh: Mapping[TaskRecord, None]) -> bool:
        """Stop tasks of the first claimant with tasks that this round may stop; return False if there is none."""
        for members, count in excess:
            running = [task for job in members for task in job.tasks if task.place is not None]
            running.sort(key=lambda task: (task.group.cls.priority, task.turn))
            newcomers = [task for task in running if task in fresh]
            if newcomers:
                running = [task for task in running if task not in fresh]
            else:  # victims have come back after starts of the claimant's other tasks
                newcomers, running = [task for task in running if self._moved(task)], []
            if not newcomers:
                continue
            for _ in range(min(count, len(newcomers))):
                if running and self._gives_way(running[-1], newcomers[0]):
                    victim, task = running.pop(), newcomers.pop(0)
                    cause = task if self._moved(task) else self.evicted_for[task]
                    self.evict(victim, cause)
                    self._reassign([victim], cause)
                else:
                    self._withdraw(newcomers.pop())
            return True
        return False

    def _moved(self, task: TaskRecord) -> bool:
        """Return True if the task's machine is not the one from before the round."""
        before = self.transaction.before.get(task)
        return before is not None and before.turn != task.turn

    def _gives_way(self, victim: TaskRecord, task: TaskRecord) -> bool:
        preemption = self.builder.policy.preemption
        return (
            preemption is not None
            and victim.group.cls.priority > task.group.cls.priority
            and not self.scope.spares(victim)
        )

    def _withdraw(self, task: TaskRecord) -> None:
        """Take a start back, restore the victims, and keep other tasks of the group from starting in this round."""
        if self.transaction.before[task].place is None:
            self.transaction.restore(task)
        else:
            self.transaction.stop(task)
        self.scope.withhold_for_share(task.group)
        self._restore_victims(task)

    def _cheapest(
        self, proposals: Sequence[ClassFlow], step: float, positions: LadderPosition | None
    ) -> list[ClassFlow]:
        """Return the proposals of best standing, the cheapest first, with at most one task per machine."""
        cost_of = self.builder.classes.cost
        if positions is not None and proposals:
            proposals = positions.lowest([p for p in proposals if p.cls.priority == proposals[0].cls.priority])
        best = [p for p in proposals if p.standing == proposals[0].standing]
        offers: list[tuple[int, int, int, Group | None]] = []
        for i, p in enumerate(best):
            offers += [(cost_of(p.cls.index, row), i, row, None) for row, _ in p.rows]
            offers += [(cost_of(p.cls.index, row) + cost, i, row, group) for group, row, _, cost in p.near]
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
        chosen = (p.replace(rows=rows[i], near=near[i]) for i, p in enumerate(best))
        return [p for p in chosen if p.rows or p.near or p.displacing]

    def start_some(self, tasks: Sequence[TaskRecord], row: int) -> tuple[int, bool]:
        """Start tasks of one class on a machine, up to the first that is refused.

        Returns
        -------
        done : int
            Tasks that started.
        again : bool
            True if the flow must be read again.
        """
        done, again, spare = 0, False, self.cluster.inventory.spare
        while done < len(tasks):
            room = spare(row, tasks[done].group.cls.index, len(tasks) - done)
            alike = untouched(tasks, done, room, self.transaction.before) if room else None
            if alike:
                self.transaction.start(alike, row, ())
                done += len(alike)
                continue
            outcome = self._start(tasks[done], row)
            if outcome is None:
                self.scope.evictions.refuse(tasks[done].group.cls.index, row)
                return done, True
            done += 1
            again |= outcome
        return done, again

    def _start(self, task: TaskRecord, row: int) -> bool | None:
        """Try one task on one machine: return None for a refusal, else True if others had to stop."""
        before = self.transaction.before.get(task)
        cls = task.group.cls
        inventory = self.cluster.inventory
        if before is not None and before.place is not None and self._may_return(task, before.place):
            self.transaction.restore(task)  # a victim need not leave after all
            return True
        devices = inventory.pick(row, cls.index)
        if devices is not None:
            self.transaction.start([task], row, devices)
            return False
        chosen = None if self.scope.filling else victims(self.cluster, self.scope, cls, row)
        if chosen is None:
            return None
        self.replace(task, row, chosen)
        return True

    # -- victims ------------------------------------------------------------------------------------------------

    def replace(self, task: TaskRecord, row: int, chosen: Sequence[TaskRecord]) -> None:
        """Stop victims, and start the task on a machine."""
        for victim in chosen:
            self.evict(victim, task)
        devices = self.cluster.inventory.pick(row, task.group.cls.index)
        assert devices is not None, "the task fits after its victims have left"
        self.transaction.start([task], row, devices)
        self._reassign(chosen, task)

    def evict(self, victim: TaskRecord, task: TaskRecord) -> None:
        """Stop a task for another one; record this if the victim is on its machine from before the round."""
        if not self._moved(victim):
            self.evicted_for[victim] = task
        self.transaction.stop(victim)
        if self.quotas is not None:
            self.quotas.give_back(victim.group)

    def _reassign(self, stopped: Iterable[TaskRecord], newcomer: TaskRecord) -> None:
        """Restore the victims of tasks that stop before they ran; those in the way become victims of the newcomer instead."""
        for task in stopped:
            for victim in self._restore_victims(task):
                self.evicted_for[victim] = newcomer

    def restore_unneeded(self) -> None:
        """At the end, restore victims of tasks that do not start after all, where no other task is in the way."""
        if self.quotas is not None:
            self.quotas.look()
        if not self.evicted_for:
            return
        noted = list(self.evicted_for)
        for task in dict.fromkeys(self.evicted_for.values()):
            if task.place is None or not self._moved(task):
                self._restore_victims(task)
        self.keep_shares((), noted)

    def _restore_victims(self, task: TaskRecord) -> list[TaskRecord]:
        """Restore the victims of a task where no other task is in the way; return the others."""
        others = []
        for victim in [victim for victim, cause in self.evicted_for.items() if cause is task]:
            place = self.transaction.before[victim].place
            assert place is not None
            if (
                victim.place is None
                and self._may_return(victim, place)
                and (self.quotas is None or self.quotas.take(victim.group, 1))
            ):
                self.transaction.restore(victim)
                del self.evicted_for[victim]
            else:
                others.append(victim)
        return others

    def _may_return(self, task: TaskRecord, place: Placement) -> bool:
        """Return True if a stopped task may run again on its machine from before the round.

        A machine that was over capacity has no room for it, but without new tasks there the state is as before.
        """
        inventory, cls = self.cluster.inventory, task.group.cls.index
        if inventory.admits(place.row, cls, place.devices):
            return True
        others = self.cluster.by_row[place.row].tasks
        return (
            inventory.rule is None
            and not any(map(self._moved, others))
            and inventory.affinity.admits(place.row, cls)
            and (not inventory.constraints or inventory.permits(place.row, cls))
        )

    def take_back(self) -> None:
        """Undo all trial moves of the round."""
        self.transaction.rollback()
        self.evicted_for.clear()
        self.scope.restart()

    def blocked(self, group: Group) -> bool:
        """Return True if no more tasks of the group may start, whatever the room."""
        return group in self.scope.withheld or not (self.quotas is None or self.quotas.most(group))

    def make_room(self) -> bool:
        """Open arcs where evicting worse tasks may make room for waiting classes; return True if there are any."""
        if not self.cluster.waiting or self.builder.policy.preemption is None:
            return False
        builder, policy, evictions = self.builder, self.builder.policy, self.scope.evictions
        worst = self.cluster.inventory.worst_running()
        waiting = sorted(self.cluster.waiting, key=attrgetter("rank"))
        better = [
            cls
            for cls in waiting
            if worst is not None and cls.priority < worst and not all(map(self.blocked, self.cluster.waiting[cls]))
        ]
        if not better:
            return False
        opened = False
        hopeful = evictions.worth_asking([cls.index for cls in better], policy)
        for cls in better:
            rows = hopeful.get(cls.index, _NOWHERE)
            if len(rows):
                wait = builder.groups.wait_costs(policy)
                rows, cost, paid = candidates(self.cluster, self.scope, cls, rows, wait)
            if not len(rows):
                builder.classes.give_up(cls.index)
                continue
            index = np.array([cls.index])
            cost = cost + policy.place(self.cluster, index, rows)[0]
            tasks = sum(len(group.waiting) for group in self.cluster.waiting[cls])
            few = np.argsort(cost, kind="stable")[: max(_WIDTH, 2 * tasks)]
            cost, paid = cost[few], paid[few]
            if policy.priority.strict:
                cost = _at_most(cost, builder.groups.bearable_cost(cls, policy))
            evictions.offer(cls.index, rows[few], cost - paid)
            opened = True
        return opened


class _Attempt:
    """Starts of tasks in one pass of the check.

    Attributes
    ----------
    started : list of TaskRecord
    again : bool
        True if the flow must be read again: a machine refused, or a task had to stop.
    """

    def __init__(self, check: AdmissionCheck) -> None:
        self.check = check
        self.started: list[TaskRecord] = []
        self.again = False

    def start_here(self, tasks: Sequence[TaskRecord], row: int) -> int:
        """Start tasks on a machine in their order; return the number of starts."""
        done, again = self.check.start_some(tasks, row)
        self.again |= again
        self.started.extend(tasks[:done])
        return done

    def fill(self, proposals: Sequence[ClassFlow], preempts: Callable[[], bool] | None, refuse: Refuse | None) -> None:
        """Start the tasks of proposals of one priority and age; see `packing.fill`."""
        fill(
            proposals, self.check.builder.classes, self.start_here, self.start_rows, self.start_apart, preempts, refuse
        )

    def start_apart(self, tasks: list[TaskRecord], rows: list[tuple[int, int]]) -> None:
        """Start the given number of tasks on each machine in their order; a task that one refuses goes to no other."""
        transaction, inventory, done, at = self.check.transaction, self.check.cluster.inventory, 0, 0
        simple = inventory.rule is None and not inventory.constraints and not inventory.affinity.fussy
        while at < len(rows):
            if simple:
                first = done
                done, at = transaction.start_rows(tasks, done, rows, at)
                self.started += tasks[first:done]
                if at == len(rows):
                    return
            row, units = rows[at]
            self.start_here(tasks[done : done + units], row)
            done += units
            at += 1

    def start_rows(self, tasks: list[TaskRecord], rows: list[tuple[int, int]], done: int) -> int:
        """Start tasks of one class on machine after machine; return the position of the first remaining task."""
        transaction, inventory, at = self.check.transaction, self.check.cluster.inventory, 0
        if done == len(tasks):
            return done
        simple = inventory.rule is None and not inventory.constraints
        if inventory.affinity.fussy:
            simple = simple and not inventory.affinity.heeds(tasks[done].group.cls.index)
        while True:
            if simple:
                first = done
                done, at = transaction.start_rows(tasks, done, rows, at)
                self.started += tasks[first:done]
            if at == len(rows) or done == len(tasks):
                return done
            row, units = rows[at]
            done += self.start_here(tasks[done : done + units], row)
            at += 1

    def refuse(self, classes: Sequence[int], row: int) -> None:
        """Refuse tasks of classes at a machine."""
        check = self.check
        if check.builder.policy.preemption is not None or check.cluster.inventory.limits(row):
            check.scope.evictions.refuse_all(classes, row)  # there are no other requests
        self.again = True

    def start(self, tasks: Sequence[TaskRecord], route: Route) -> int:
        """Start tasks along a route in their order; return the number of starts."""
        at = 0
        while at < len(tasks) and route:
            row, units = route.popleft()
            some = tasks[at : at + units]
            done, again = self.check.start_some(some, row)
            if done == len(some) < units:
                route.appendleft((row, units - done))
            at += done
            self.again |= again
        self.started.extend(tasks[:at])
        return at


def _within(quotas: QuotaAccounts, cost_of: Callable[[int, int], int], proposal: ClassFlow) -> ClassFlow | None:
    """Charge the quotas for a proposal; return it with the tasks that they allow, the same object if all."""
    near, groups = [], []
    for group, row, units, cost in proposal.near:
        if some := quotas.take(group, units):
            near.append((group, row, some, cost))
    for group, units in proposal.groups:
        if some := quotas.take(group, units):
            groups.append((group, some))
    if (near, groups) == (proposal.near, proposal.groups):
        return proposal
    if not (near or groups):
        return None
    left, rows = sum(units for _, units in groups), []
    for row, units in sorted(proposal.rows, key=lambda sent: cost_of(proposal.cls.index, sent[0])):
        if left:
            rows.append((row, min(units, left)))
            left -= rows[-1][1]
    return proposal.replace(groups=groups, near=near, rows=rows, displacing=proposal.displacing[:left])


def _at_most(cost: Ints, limit: int) -> Ints:
    """Limit ascending costs: values above the limit are placed close below it, one apart, in their order."""
    lowered: Ints = np.minimum(cost, limit - np.minimum(np.arange(len(cost))[::-1], OMEGA))
    return lowered
