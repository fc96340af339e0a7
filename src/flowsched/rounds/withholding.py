"""Starts that wait for runs to stop: the last step of a round, see `flowsched.cluster.stopping`."""

from __future__ import annotations

from collections.abc import Collection, Hashable

from flowsched.builder.quotas import QuotaAccounts
from flowsched.cluster.records import TaskRecord
from flowsched.cluster.stopping import Stop
from flowsched.rounds.admission import AdmissionCheck

__all__ = ["withhold"]


def withhold(check: AdmissionCheck, graceful: bool) -> Collection[Hashable]:
    """Take back the starts that have no room before runs have stopped; return their tasks.

    A gang starts whole or not at all.  `graceful` is that of `PreemptionCost`.
    """
    cluster, transaction = check.cluster, check.transaction
    held: dict[int, list[Stop]] = {}
    for stop in cluster.stopping.values():
        held.setdefault(stop.row, []).append(stop)
    taken: set[Hashable] = set()
    if graceful:
        for task, before in list(transaction.before.items()):
            if before.place is not None and (task.row < 0 or task.turn != before.turn):
                held.setdefault(before.place.row, []).append(cluster.stop_of(task, before.place))
                if task.row >= 0:  # it would migrate
                    transaction.stop(task)
                    taken.add(task.id)
    for row, stops in held.items():
        starts = [task for task in cluster.by_row[row].tasks if _starts(check, task)]
        for task in sorted(starts, reverse=True):
            if not cluster.overlaps(row, stops):
                break
            if task.row >= 0:  # its gang may be gone
                taken.update(_take_back(check, task))
    if graceful and check.quotas is not None:
        _keep_quotas(check, check.quotas, taken)
    return taken


def _keep_quotas(check: AdmissionCheck, quotas: QuotaAccounts, taken: set[Hashable]) -> None:
    """Take back the starts that need the quota of the round's victims, the last ones first."""
    quotas.look()
    if all(before.place is None or task.row >= 0 for task, before in check.transaction.before.items()):
        return
    for task in sorted((task for task in check.transaction.before if _starts(check, task)), reverse=True):
        if task.row >= 0 and quotas.overdrawn(task.group, check.transaction.before):
            taken.update(_take_back(check, task))
            quotas.look()


def _starts(check: AdmissionCheck, task: TaskRecord) -> bool:
    before = check.transaction.before.get(task)
    return before is not None and before.place is None and task.row >= 0


def _take_back(check: AdmissionCheck, task: TaskRecord) -> list[Hashable]:
    """Take back the start of a task, or those of its gang; return the tasks."""
    job = task.group.job
    together = [task] if job.job.gang is None else [one for one in job.tasks if _starts(check, one)]
    for one in together:
        check.transaction.restore(one)
    return [one.id for one in together]
