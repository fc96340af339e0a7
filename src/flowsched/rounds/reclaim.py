"""Stops for other claimants' shares, which the flow cannot propose since it does not see the tasks of machines.

* At its bound, or where its quota is full, a user's better task takes the place of worse ones of its own.
* With `Fairness.reclaim`, tasks of claimants above their share stop for those of claimants below theirs: the worst tasks
  first, of equals the one started last.  A claimant that loses a task is above its share before and not below it
  afterwards, so this ends, and no task is moved back and forth.  No task stops for one of worse priority, and gangs
  neither gain nor lose here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import inf

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.records import Group, JobRecord, TaskClass, TaskRecord
from flowsched.rounds import _victims
from flowsched.rounds.admission import AdmissionCheck
from flowsched.rounds.preemption import candidates, least_victims, worst_first

__all__ = ["exchange", "make_way"]


def make_way(check: AdmissionCheck) -> bool:
    """Find tasks that may stop for others; return True if the flow must be read again."""
    if check.scope.filling:
        return False
    return check.make_room() | _reclaim(check)


# -- within one user ------------------------------------------------------------------------------------------------


def exchange(check: AdmissionCheck) -> bool:
    """Start better tasks of claimants at their bounds in place of their own worse ones; return True if any started."""
    policy, cluster, quotas = check.builder.policy, check.cluster, check.quotas
    if policy.preemption is None or (policy.fairness is None and quotas is None) or check.scope.filling:
        return False
    worst = cluster.inventory.worst_running()
    if worst is None or not cluster.waiting or min(cls.priority for cls in cluster.waiting) >= worst:
        return False
    moved = False
    if quotas is not None:
        quotas.look()
    if policy.fairness is not None:
        for starters, members in check.builder.shares.bounded():
            moved |= _replace(check, _groups(starters, gangs=True), members, by_quota=False)
    if quotas is not None:
        for better, members in list(quotas.contested()):
            if _replace(check, _best_first(better), members, by_quota=True):
                moved = check.scope.round_shares.stale = True  # more of its tasks may fit now
    return moved


def _replace(check: AdmissionCheck, groups: Iterable[Group], members: Iterable[JobRecord], by_quota: bool) -> bool:
    """Start tasks of a claimant's groups where worse ones of its jobs stop; return True if any started.

    Parameters
    ----------
    check : AdmissionCheck
    groups : iterable of Group
        Waiting groups, the best first.
    members : iterable of JobRecord
    by_quota : bool
        True if its bound is its quota: the flow handles tasks for which the rest of the quota suffices.
    """
    own, quotas, moved = [task for job in members for task in job.tasks if task.place is not None], check.quotas, False
    for group in groups:
        if group.cls.priority >= max((task.group.cls.priority for task in own), default=-inf):
            break
        while group.waiting and group not in check.scope.withheld and _below_own_bound(check, group.job):
            if by_quota == (quotas is None or quotas.most(group) > 0):
                break
            found = _cheapest(check, group, own)
            if found is None:
                break
            row, chosen = found
            if quotas is not None:
                quotas.charge(group)
            own = [task for task in own if task not in chosen]
            own.append(group.waiting[0])
            check.replace(group.waiting[0], row, chosen)
            moved = True
    return moved


def _below_own_bound(check: AdmissionCheck, job: JobRecord) -> bool:
    """Return True if the job's own bound lets it run more; its user's bound is kept, since another task stops."""
    fairness = check.builder.policy.fairness
    if fairness is None:
        return True
    claimant, own = check.builder.shares.bounds(job)
    return job.running < (claimant if fairness.over == "job" else own)


def _cheapest(check: AdmissionCheck, group: Group, own: Sequence[TaskRecord]) -> tuple[int, list[TaskRecord]] | None:
    """Return the cheapest machine for one task of the group in place of worse ones of these tasks, and these.

    They make room there, and, if its quota is full, free enough of it, wherever they run.
    """
    cls, policy = group.cls, check.builder.policy
    worse = worst_first(task for task in own if task.group.cls.priority > cls.priority and not check.scope.spares(task))
    first = _with_quota(check, group, [], worse)
    if not worse or first is None:
        return None
    wait, there = check.builder.groups.wait_costs(policy), np.array(sorted({task.row for task in worse}), np.int64)
    rows, cost, _ = candidates(check.cluster, check.scope, cls, there, wait, {task.index for task in worse})
    order = rows[np.argsort(cost, kind="stable")].tolist()
    if first:  # it may run anywhere
        with_first = [row for row in dict.fromkeys(task.row for task in first) if row in order]
        order = [*_free_rows(check, group), *with_first, *order]
    for row in order:
        chosen = least_victims(check.cluster, cls, row, [task for task in worse if task.row == row])
        chosen = None if chosen is None else _with_quota(check, group, chosen, worse)
        if chosen and (policy.priority.strict or _price(check, chosen, wait) < wait[cls.index]):
            return row, chosen
    return None


def _with_quota(
    check: AdmissionCheck, group: Group, chosen: list[TaskRecord], worse: Sequence[TaskRecord]
) -> list[TaskRecord] | None:
    """Return these tasks and enough of the worse ones to free the group's quota; None if all are not enough."""
    quotas = check.quotas

    def enough(tasks: Sequence[TaskRecord]) -> bool:
        return quotas is None or quotas.most(group, Counter(task.group for task in tasks)) > 0

    more: list[TaskRecord] = []
    for task in worse:
        if enough([*chosen, *more]):
            break
        if task not in chosen:
            more.append(task)
    if not enough([*chosen, *more]):
        return None
    for task in reversed(tuple(more)):
        less = [other for other in more if other is not task]
        if enough([*chosen, *less]):
            more = less
    return [*chosen, *more]


def _free_rows(check: AdmissionCheck, group: Group) -> list[int]:
    """Return the machines with room for a task of the group, the cheapest first."""
    cluster, one = check.cluster, np.array([group.cls.index])
    rows = np.array([machine.row for machine in cluster.machines.values()], np.int64)
    rows = rows[(cluster.fits(group.waiting[0].id) > 0) & ~cluster.inventory.held_against(one, rows)[0]]
    cost = check.builder.policy.place(cluster, one, rows)[0]
    order: list[int] = rows[np.argsort(cost, kind="stable")].tolist()
    return order


def _price(check: AdmissionCheck, chosen: Iterable[TaskRecord], wait: NDArray[np.int64]) -> int:
    """Return the cost of stopping these tasks."""
    waiting, inventory = check.builder.policy.waiting, check.cluster.inventory
    index = np.array([task.index for task in chosen], np.int64)
    stays = check.builder.policy.stays(waiting.buckets_of(check.scope.now - inventory.tasks.since[index]))
    return int((wait[inventory.tasks.class_id[index]] + stays).sum())


# -- between claimants ----------------------------------------------------------------------------------------------


def _reclaim(check: AdmissionCheck) -> bool:
    """Start tasks of claimants below their share where tasks of others above theirs stop; return True if any started."""
    policy = check.builder.policy
    if policy.fairness is None or not policy.fairness.reclaim or policy.preemption is None:
        return False
    touched = dict.fromkeys(task.group.job for task in check.transaction.before)
    short, owner, surplus = check.builder.shares.imbalance(touched)
    rows: _Rows | None = None
    moved, quotas = False, check.quotas
    nowhere: set[int] = set()  # classes, by index, without a machine since the last start
    if quotas is not None and short:
        quotas.look()
    for members, missing in short:
        for group in _groups(members):
            while missing > 0 and group.waiting and not check.blocked(group):
                rows = rows or _Rows(check, owner, surplus)
                found = None if group.cls.index in nowhere else rows.place(group.cls)
                if found is None:
                    nowhere.add(group.cls.index)
                    break
                nowhere.clear()
                row, chosen = found
                task = group.waiting[0]
                if quotas is not None:
                    quotas.take(group, 1)
                check.replace(task, row, chosen)
                for victim in chosen:
                    surplus[owner[victim.group.job]] -= 1
                rows.look(row)
                missing -= 1
                moved = True
    return moved


def _groups(members: list[JobRecord], gangs: bool = False) -> Iterator[Group]:
    """Yield waiting groups: the best priority first, then the oldest."""
    jobs = members if gangs else [job for job in members if job.job.gang is None]
    yield from _best_first(group for job in jobs for group in job.each_group() if group.waiting)


def _best_first(groups: Iterable[Group]) -> list[Group]:
    waiting = [group for group in groups if group.waiting]  # others may have started for another claimant
    return sorted(waiting, key=lambda group: (group.cls.priority, group.waiting[0].turn))


class _Rows:
    """Machines with tasks of claimants above their share.

    Parameters
    ----------
    check : AdmissionCheck
    owner : dict of JobRecord to int
        Numbers of the claimants above their share.
    surplus : dict of int to int
        Tasks above it, by number.
    """

    def __init__(self, check: AdmissionCheck, owner: dict[JobRecord, int], surplus: dict[int, int]) -> None:
        self.check, self.owner, self.surplus = check, owner, surplus
        self._first: dict[int, tuple[int, int]] = _victims.worst_by_row(owner)
        """Priority and turn of the first task to stop, by row."""
        self._line: list[int] | None = None

    def look(self, row: int) -> None:
        """Update the entry of a machine."""
        pool = self._pool(row, -inf)
        del self._first[row]
        if pool:
            self._first[row] = pool[0].group.cls.priority, pool[0].turn
        self._line = None

    def _pool(self, row: int, priority: float) -> list[TaskRecord]:
        """Return the tasks there that may stop for one of a priority, the worst first, of equals the one started last."""
        return worst_first(
            task
            for task in self.check.cluster.by_row[row].tasks
            if self.surplus.get(self.owner.get(task.group.job, -1), 0) > 0
            and task.group.cls.priority >= priority
            and task.group.job.job.gang is None
            and not self.check.scope.spares(task)
        )

    def place(self, cls: TaskClass) -> tuple[int, list[TaskRecord]] | None:
        """Return a machine where few enough tasks make room for one of the class, and these tasks.

        The best priority among them is as bad as possible; of equal machines, the one where a task started last is returned.
        """
        cluster, inventory, preemption = (
            self.check.cluster,
            self.check.cluster.inventory,
            self.check.builder.policy.preemption,
        )
        if self._line is None:
            self._line = sorted(self._first, key=self._first.__getitem__, reverse=True)
        line = self._line
        if inventory.shunned.in_use:
            line = [row for row in line if not inventory.shunned.forbids(row, cls.index)]
        # A rule decides on amounts itself; with a window, a look at a task records the time at which it may stop.
        loose = inventory.rule is not None or (preemption is not None and preemption.window > 0)
        best: tuple[int, int, list[TaskRecord]] | None = None
        for row in _victims.reclaimable(inventory, cluster.by_row, cls.index, line, self.owner, self.surplus, loose):
            if best is not None and best[0] >= self._first[row][0]:
                break
            chosen = least_victims(cluster, cls, row, self._pool(row, cls.priority))
            if not chosen:
                continue
            need = Counter(self.owner[task.group.job] for task in chosen)
            if any(count > self.surplus[claimant] for claimant, count in need.items()):
                continue
            worst = min(task.group.cls.priority for task in chosen)
            if best is None or worst > best[0]:
                best = worst, row, chosen
        return None if best is None else best[1:]
