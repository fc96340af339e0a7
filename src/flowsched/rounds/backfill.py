"""Backfilling: tasks start on machines that are reserved for others, where they do not make these wait for longer.

A task may *overtake* the one that a machine is kept for if it is expected to end before that one will have room, or if
both have room then.  The flow sees kept machines as closed to all others.  So this comes last in a round, when flow and
check agree, for the few machines that are kept, and in the order of the line: by priority, then by arrival.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from itertools import islice
from math import inf

from flowsched.cluster.records import TaskClass, TaskRecord
from flowsched.rounds.admission import AdmissionCheck

__all__ = ["overtake"]

_DEPTH = 1000
"""Tasks that are looked at for one machine, the first in line."""


def overtake(check: AdmissionCheck) -> None:
    """Start tasks on kept machines, as long as those for which they are kept need not wait for it."""
    if not check.cluster.inventory.tasks.estimated:
        return  # no kept machine is known to have room at any time
    reservations, quotas = check.builder.reservations, check.quotas
    if quotas is not None:
        quotas.look()
    started: list[TaskRecord] = []
    for row, cls in reservations.kept():
        now = check.transaction.now
        when, beside = reservations.leeway(row, cls, now)
        if not now < when < inf:
            continue
        stay: set[float] = set()
        for task in islice(_line(check, row, cls), _DEPTH):
            demand = task.group.cls.demand
            leaves = now + task.duration <= when
            if not (leaves or (demand <= beside).all()):
                stay.add(task.duration)
                continue
            # One that has just been stopped for another one waits for its turn.
            if task in check.transaction.before or check.cluster.inventory.pick(row, task.group.cls.index) is None:
                continue
            if quotas is not None and not quotas.take(task.group, 1):
                continue
            reservations.grant(task.turn)
            check.start_some([task], row)
            started.append(task)
            if not leaves:
                beside = beside - demand
        if stay:
            check.scope.wake = min(check.scope.wake, reservations.turns(row, stay, now))
    if started:
        check.keep_shares(started)


def _line(check: AdmissionCheck, row: int, kept_for: TaskClass) -> Iterator[TaskRecord]:
    """Yield waiting tasks that the machine could run, by priority and arrival."""
    inventory, shares = check.cluster.inventory, check.builder.shares
    free = inventory.free[row]
    levels: dict[int, list[list[TaskRecord]]] = {}
    for cls, groups in check.cluster.waiting.items():
        if cls.priority < kept_for.priority or cls is kept_for or not (cls.demand <= free).all():
            continue
        if not inventory.can_take(row, cls.index):
            continue
        for group in groups:
            if group.job.job.gang is None and not check.blocked(group) and not shares.full(group.job):
                levels.setdefault(cls.priority, []).append(group.waiting[:_DEPTH])
    for priority in sorted(levels):
        yield from merge(*levels[priority])
