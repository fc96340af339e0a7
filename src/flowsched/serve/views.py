"""Views of a scheduler's state in responses; each function is called between two calls on the scheduler."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster import Cluster
from flowsched.cluster.model import MICRO
from flowsched.cluster.records import MachineRecord, TaskRecord
from flowsched.rounds.values import Round
from flowsched.scheduler import Scheduler
from flowsched.serve import wire
from flowsched.serve.wire import Row

__all__ = ["overview", "state"]

_EMPTY: dict[Hashable, Any] = {}


def state(scheduler: Scheduler) -> Row:
    """Return all machines, jobs, users and tasks, with the numbers of the runs."""
    cluster = scheduler.cluster
    return {
        "events": cluster.events,
        "resources": cluster.resources.names,
        "machines": list(_machines(cluster, None)),
        "users": [{"id": user.id, "quota": user.quota} for user in cluster.users.values()],
        "jobs": [
            {"id": r.job.id, "user": r.job.user, "priority": r.job.priority, "gang": r.job.gang, "closed": r.job.closed,
             "tasks": len(r.tasks)}
            for r in cluster.jobs.values()
        ],
        "tasks": [_task(cluster, task) for task in cluster.tasks.values()],
    }  # fmt: skip


def _task(cluster: Cluster, task: TaskRecord) -> Row:
    row = {"id": task.id, "job": task.group.job.job.id}
    if task.row < 0:
        return {**row, "since": task.since}
    since = {"since": task.began, "machine": cluster.by_row[task.row].id, "run": task.run}
    return {**row, **since, **({"devices": task.devices} if task.devices else {})}


def _machines(cluster: Cluster, most: int | None) -> Iterator[Row]:
    inventory = cluster.inventory
    for record in islice(cluster.machines.values(), most):
        capacity, free = inventory.capacity[record.row] / MICRO, inventory.free[record.row] / MICRO
        yield {"id": record.id, "rack": record.rack, "state": _condition(record), "tasks": len(record.tasks),
               "capacity": capacity.tolist(), "used": (capacity - free).tolist()}  # fmt: skip


def _condition(record: MachineRecord) -> str:
    return "failed" if record.failed else "drained" if record.drained else "up"


def overview(scheduler: Scheduler, last: Round | None, first: int, tasks: int, machines: int) -> Row:
    """Return the data of the live page: machines, waiting tasks from position `first` on, users and counts."""
    cluster = scheduler.cluster
    waiting = _EMPTY if last is None else last.waiting
    metrics = scheduler.metrics()
    return {
        "events": cluster.events,
        "resources": cluster.resources.names,
        "machines": list(_machines(cluster, machines)),
        "all_machines": len(cluster.machines),
        "waiting": list(_queue(cluster, waiting, first, tasks)),
        "all_waiting": metrics["tasks_waiting"],
        "codes": {code: count for code, count in metrics["waiting_by_reason"].items() if count},  # type: ignore[union-attr]
        "users": _users(cluster, _EMPTY if last is None else last.shares),
        **{name: metrics[name] for name in ("tasks_running", "rounds_total", "placements_total", "preemptions_total")},
    }


def _queue(cluster: Cluster, waiting: Any, first: int, most: int) -> Iterator[Row]:
    """Yield waiting tasks with their reasons, in the order of the round."""
    for id in islice(waiting, first, first + most):
        task = cluster.tasks.get(id)
        if task is not None and task.row < 0:
            group, why = task.group, waiting[id]
            demand = dict(zip(cluster.resources.names, (group.cls.demand / MICRO).tolist(), strict=True))
            yield {"id": id, "job": group.job.job.id, "user": group.job.job.user, "since": task.since,
                   "priority": group.job.job.priority, "demand": {name: amount for name, amount in demand.items() if amount},
                   **wire.reason(why)}  # fmt: skip


def _users(cluster: Cluster, shares: Any) -> list[Row]:
    """Return users: tasks, the part of each resource of the working machines, and the entitlement if it is known."""
    amounts: dict[Hashable, NDArray[np.int64]] = {}
    counts: dict[Hashable, list[int]] = {}
    for job in cluster.jobs.values():
        if job.tasks:
            user = job.job.user
            used = amounts.setdefault(user, np.zeros(len(cluster.resources.names), np.int64))
            count = counts.setdefault(user, [0, 0])
            for group in job.each_group():
                running = group.tasks - len(group.waiting)
                used += running * group.cls.demand
                count[0] += running
                count[1] += len(group.waiting)
    rows = [record.row for record in cluster.machines.values() if not record.failed]
    whole = np.maximum(cluster.inventory.capacity[rows].sum(axis=0), 1)
    return [
        {"user": user, "running": counts[user][0], "waiting": counts[user][1], "share": (used / whole).tolist(),
         **({"entitled": shares[user].entitled} if user in shares else {})}
        for user, used in amounts.items()
    ]  # fmt: skip
