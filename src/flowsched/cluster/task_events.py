"""Events of jobs, tasks and users: they come and go, tasks start and end."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import suppress
from itertools import pairwise
from math import inf, isfinite
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from flowsched.boundary._values import plain_id
from flowsched.boundary.validate import number, ordered, quoted, truth, whole
from flowsched.cluster import events as ev
from flowsched.cluster.inventory import Inventory
from flowsched.cluster.machine_events import MachineEvents
from flowsched.cluster.membership import Attempts
from flowsched.cluster.model import DESCRIPTION, MOST_DEVICES, MOST_PRIORITY, MOST_USED, VECTORS, Job, Task, Tasks, User
from flowsched.cluster.records import (
    JobRecord,
    TaskRecord,
    add_tasks,
    alike,
    complete,
    group_for,
    new_job,
    remove_task,
)
from flowsched.cluster.views import found
from flowsched.exceptions import DuplicateIdError, InputError, UnknownIdError, UnknownTaskError

__all__ = ["TaskEvents", "job_submitted", "task_completed"]

_TASK, _ID, _identity = {Task}, attrgetter("id"), id


class TaskEvents(MachineEvents):
    """Part of a cluster that handles events of jobs, tasks and users.

    Attributes
    ----------
    users : dict of user id to User
    by_index : list of TaskRecord or None
        Tasks by their indices.
    runs : int
        See `Cluster`.
    """

    def __init__(self, inventory: Inventory) -> None:
        super().__init__(inventory)
        self.users: dict[Hashable, User] = {}
        self.runs = 0

    def _task_submitted(self, event: ev.TaskSubmitted) -> None:
        job = found(self.jobs, event.job, UnknownIdError, "job")
        if job.job.closed:
            raise InputError(f"job {event.job!r} is closed: it takes no more tasks")
        for like, ids, demand in _runs(self, event.job, (event.task,)):
            _add_tasks(self, job, like, ids, demand, event.time)

    def _task_started(self, event: ev.TaskStarted) -> None:
        if self._stale(event):
            return
        task, machine = self.task(event.task), self.machine(event.machine)
        what = f"task {event.task!r}: devices"
        given = None if event.devices is None else tuple(whole(what, i, 0) for i in ordered(what, event.devices))
        if task.row >= 0:
            if task.row == machine.row and given in (None, task.devices):
                return
            raise InputError(f"task {event.task!r} already runs on {self.placement(event.task)!r}")
        if machine.failed:
            raise InputError(f"task {event.task!r}: machine {event.machine!r} has failed")
        # It has started, whatever the room and the constraints of the policy are.
        cls, row, inventory = task.group.cls.index, machine.row, self.inventory
        count, used = inventory.num_asked(cls), inventory.used(row)
        if count > MOST_DEVICES or any(
            have + amount > MOST_USED for have, amount in zip(used, task.group.cls.demand.tolist(), strict=True)
        ):
            raise InputError(
                f"task {event.task!r}: no machine can hold it, or not together with the tasks on {event.machine!r}"
            )
        if given is None:
            devices = inventory.devices_for(row, cls)
            devices = inventory.devices_beyond(row, cls) if devices is None else devices
        elif len(set(given)) == len(given) == count and max(given, default=0) < MOST_DEVICES:
            devices = given
        else:
            raise InputError(f"{what}: {count} different ones below {MOST_DEVICES} expected, got {quoted(given)}")
        inventory.reach_device(row, devices)
        if task.id in self.resting:
            self._come_back([task], event.time)
        self.start([task], row, devices, 0.0 if event.time is None else event.time)
        self.runs += 1
        task.run = self.runs

    def _running(self, task: Hashable) -> TaskRecord:
        record = found(self.tasks, task, UnknownTaskError, "task")
        if record.row < 0:
            raise InputError(f"task {task!r} waits and does not run")
        return record

    def _done(self, events: Sequence[ev.Event]) -> list[TaskRecord]:
        """Return the tasks of the leading events that are plain completions of present runs."""
        done: dict[TaskRecord, None] = {}
        with suppress(Exception):  # for an invalid id; its event is refused in its turn
            for event in events:
                if type(event) is not ev.TaskCompleted:
                    break
                if event.time is not None and not (type(event.time) is float and isfinite(event.time)):
                    break
                record = self.tasks.get(event.task)
                if record is None or record.row < 0 or record in done:
                    break
                if event.run is not None and (self.stopping or type(event.run) is not int or event.run != record.run):
                    break
                done[record] = None
        return list(done)

    def _task_failed(self, event: ev.TaskFailed) -> list[ev.EndedRun]:
        if self._stale(event):
            return []
        retry = truth(f"task {event.task!r}: retry", event.retry)
        lost = truth(f"task {event.task!r}: lost", event.lost)
        stopped = self._stopping_run(event)
        if stopped is not None:
            self._let_go([stopped], event.time)
            return []
        record = self._running(event.task)
        over = self.runs_of((record,), event)
        self.stop(record, event.time)
        if not (retry and (lost or self._retry(record, over[0].machine, event.time))):
            remove_task(self, record)
        return over

    def _task_removed(self, event: ev.TaskRemoved) -> list[ev.EndedRun]:
        record = self.task(event.task)
        over = self.runs_of((record,), event)
        remove_task(self, record)
        return over

    def _job_removed(self, event: ev.JobRemoved) -> list[ev.EndedRun]:
        tasks = found(self.jobs, event.job, UnknownIdError, "job").tasks
        over = self.runs_of(tasks, event)
        for task in tasks:
            remove_task(self, task)
        self.jobs.pop(event.job, None)  # a closed job has left with its last task
        return over

    def _user_added(self, event: ev.UserAdded) -> None:
        user = User(event.id, event.quota)
        if event.id in self.users:
            raise DuplicateIdError(f"user {event.id!r} already exists")
        self.users[event.id] = user

    def _user_updated(self, event: ev.UserUpdated) -> None:
        found(self.users, event.id, UnknownIdError, "user")
        self.users[event.id] = User(event.id, event.quota)

    def _user_removed(self, event: ev.UserRemoved) -> None:
        found(self.users, event.id, UnknownIdError, "user")
        for job in self.jobs.values():
            if job.job.user == event.id and job.tasks:
                raise InputError(f"user {event.id!r} still has job {job.job.id!r}")
        del self.users[event.id]

    def _usage_sampled(self, event: ev.UsageSampled) -> None:
        if self._stale(event):
            return
        self.task(event.task)
        self.resources.usage(f"task {event.task!r}: usage", event.usage)
        what = f"task {event.task!r}: progress"
        if event.progress is not None and not 0 <= number(what, event.progress) <= 1:
            raise InputError(
                f"task {event.task!r}: progress: a number from 0 to 1 expected, got {quoted(event.progress)}"
            )


def job_submitted(cluster: TaskEvents, event: ev.JobSubmitted) -> None:
    """Add a job and its tasks."""
    id, given, priority, durations, described = event.id, event.tasks, event.priority, None, None
    user, gang, deadline, closed = event.user, event.gang, event.deadline, event.closed
    usual = user is None and gang is None and deadline is None and closed is False
    if not (usual and type(priority) is int and -MOST_PRIORITY <= priority <= MOST_PRIORITY and plain_id(id)):
        described = Job(id, user, priority, gang, deadline, closed)
    old = cluster.jobs.get(id)
    if old is not None and old.tasks:
        raise DuplicateIdError(f"job {id!r} already exists")
    tasks: tuple[Task, ...] | Tasks
    if type(given) is Tasks:
        tasks, durations = given, given.durations
    else:
        tasks = tuple(given) if type(given) is list else ordered(f"job {id!r}: tasks", given)
    if described is not None and described.closed and not tasks:
        raise InputError(f"job {id!r}: a closed job needs tasks: it leaves with the last one")
    runs = _runs(cluster, id, tasks)
    job = new_job(cluster, id, priority, described)
    if described is not None and described.user is not None:
        cluster.users.setdefault(described.user, User(described.user))
    first = 0
    for like, ids, demand in runs:
        added = _add_tasks(cluster, job, like, ids, demand, event.time)
        if durations is not None:
            for record, duration in zip(added, durations[first : first + len(ids)], strict=True):
                record.duration = duration
        first += len(ids)


def task_completed(cluster: TaskEvents, event: ev.TaskCompleted) -> list[ev.EndedRun]:
    """Remove a task that has ended, and return its run."""
    id = event.task
    if event.run is not None and cluster._stale(event):
        return []
    stopped = cluster._stopping_run(event) if cluster.stopping else None
    if stopped is not None:  # it completed before it was stopped
        cluster._let_go([stopped], event.time)
        if id in cluster.tasks and cluster.tasks[id].run == stopped:
            remove_task(cluster, cluster.tasks[id])
        return []
    try:
        record = cluster.tasks.get(id)
    except TypeError:  # unhashable, so it is no id
        record = None
    return complete(cluster, [record if record is not None and record.row >= 0 else cluster._running(id)], ev.EndedRun)


def _runs(
    cluster: TaskEvents, job: Hashable, tasks: tuple[Task, ...] | Tasks
) -> list[tuple[Task, list[Hashable], NDArray[np.int64]]]:
    """Check new tasks; return the series of tasks that differ only in their ids: the first task, all ids, and the demand."""
    known, resources = cluster.tasks, cluster.resources
    ids: list[Hashable]
    if type(tasks) is Tasks:
        ids = tasks.ids
    else:
        only = tasks[0] if len(tasks) == 1 else None
        if type(only) is Task and only.id not in known:  # the most frequent case
            vector = VECTORS.get((_identity(resources), _identity(only.demand)))
            return [(only, [only.id], resources.demand_of(only) if vector is None else vector[2])]
        if not _TASK.issuperset(map(type, tasks)):
            for i, task in enumerate(tasks):
                if not isinstance(task, Task):
                    raise InputError(f"job {job!r}: tasks[{i}]: a Task expected, got {quoted(task)}")
        ids = list(map(_ID, tasks))
    if len(set(ids)) < len(ids) or not known.keys().isdisjoint(ids):
        seen = set(known)
        for id in ids:
            if id in seen:
                raise DuplicateIdError(f"task {id!r} already exists")
            seen.add(id)
    runs = (
        tasks.runs
        if type(tasks) is Tasks
        else [(end, tasks[first]) for first, end in pairwise((0, *alike(tasks, DESCRIPTION)))]
    )
    found, first = [], 0
    for end, like in runs:
        found.append((like, ids[first:end], resources.demand_of(like)))
        first = end
    return found


def _add_tasks(
    cluster: TaskEvents,
    job: JobRecord,
    like: Task,
    ids: list[Hashable],
    demand: NDArray[np.int64],
    time: float | None,
) -> list[TaskRecord]:
    """Add tasks that differ from this one only in their ids."""
    group = group_for(cluster, job, like, demand)
    if like.retries is not None:
        cluster.attempts.update(dict.fromkeys(ids, Attempts(like.retries, like.backoff)))
    return add_tasks(cluster, group, ids, time, inf if like.duration is None else like.duration)
