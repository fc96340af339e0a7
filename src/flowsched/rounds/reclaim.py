"""Reclaim: tasks of claimants that run more than their share stop for tasks of claimants that run less than theirs.

Only with `Fairness.reclaim`.  A claimant that loses a task has more than its share before and no less than it
afterwards, so this ends, and nothing is taken back and forth.  No task stops for one of worse priority, and gangs
neither gain nor lose here.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flowsched.cluster.records import Group, JobRecord, TaskRecord
from flowsched.rounds.admission import AdmissionCheck
from flowsched.rounds.preemption import least_victims

__all__ = ["reclaim"]


def reclaim(check: AdmissionCheck) -> bool:
    """Start tasks of claimants below their share where tasks of others beyond theirs stop; return True if any did."""
    policy = check.builder.policy
    if policy.fairness is None or not policy.fairness.reclaim or policy.preemption is None:
        return False
    touched = dict.fromkeys(task.group.job for task in check.transaction.before)
    short, owner, surplus = check.builder.shares.imbalance(touched)
    if not short or not surplus:
        return False
    rows = _rows(check, owner)
    moved, quotas = False, check.quotas
    if quotas is not None:
        quotas.look()
    for members, missing in short:
        for group in _groups(members):
            while missing > 0 and group.waiting and not check.blocked(group):
                found = _place(check, group, rows, owner, surplus)
                if found is None:
                    break
                row, chosen = found
                task = group.waiting[0]
                if quotas is not None:
                    quotas.take(group, 1)
                check.replace(task, row, chosen)
                for victim in chosen:
                    surplus[owner[victim.group.job]] -= 1
                missing -= 1
                moved = True
    return moved


def _rows(check: AdmissionCheck, owner: dict[JobRecord, int]) -> list[int]:
    """Return machines with tasks beyond a share: where one started last comes first, since least work is lost."""
    latest: dict[int, int] = {}
    for job in owner:
        for task in job.tasks:
            if task.place is not None:
                latest[task.place.row] = max(latest.get(task.place.row, 0), task.turn)
    return sorted(latest, key=lambda row: -latest[row])


def _groups(members: list[JobRecord]) -> Iterator[Group]:
    """Yield groups that wait: the best priority first, then the oldest."""
    groups = [group for job in members if job.job.gang is None for group in job.each_group() if group.waiting]
    yield from sorted(groups, key=lambda group: (group.cls.priority, group.waiting[0].turn))


def _place(
    check: AdmissionCheck, group: Group, rows: list[int], owner: dict[JobRecord, int], surplus: dict[int, int]
) -> tuple[int, list[TaskRecord]] | None:
    """Return the first machine where few enough tasks make room for one of the group, with these tasks."""
    cluster, cls = check.cluster, group.cls
    one = np.array([cls.index])
    index = np.array(rows, np.int64)
    able = (
        cluster.inventory.usable[index]
        & cluster.inventory.can_ever(one, index)[0]
        & ~cluster.inventory.held_against(one, index)[0]
    )
    for row in index[able].tolist():
        pool = [
            task
            for task in cluster.by_row[row].tasks
            if surplus.get(owner.get(task.group.job, -1), 0) > 0
            and task.group.cls.priority >= cls.priority
            and task.group.job.job.gang is None
            and not check.scope.spares(task)
        ]
        pool.sort(key=lambda task: (-task.group.cls.priority, -task.turn))
        chosen = least_victims(cluster, cls, row, pool)
        if not chosen:
            continue
        need: dict[int, int] = {}
        for task in chosen:
            need[owner[task.group.job]] = need.get(owner[task.group.job], 0) + 1
        if all(count <= surplus[claimant] for claimant, count in need.items()):
            return row, chosen
    return None
