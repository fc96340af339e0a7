"""A check of all events of a request before the first one happens, so that a request happens as a whole or not at all.

`Cluster.apply` refuses an event whole, and lets those before it stand.  So a single event needs no check here.  For
several the question is what the ids will stand for once the events before have happened: a `Rehearsal` follows the ids,
and keeps nothing of resources and places.  What an event says about itself is checked by an empty cluster, to which it
happens by itself.

Events whose check needs more than that (adopting a run, shrinking a machine) have to come alone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, cast

from flowsched.boundary.validate import number, quoted, truth, whole
from flowsched.cluster import Cluster, Task
from flowsched.cluster import events as ev
from flowsched.cluster.records import JobRecord
from flowsched.exceptions import (
    DuplicateIdError,
    FlowschedError,
    InputError,
    UnknownIdError,
    UnknownMachineError,
    UnknownTaskError,
)

__all__ = ["check_events"]


def check_events(cluster: Cluster, events: Sequence[ev.Event]) -> tuple[int, FlowschedError] | None:
    """Return the index of the first of several events that would be refused, and its error; None for none."""
    if len(events) > 1:
        rehearsal = Rehearsal(cluster)
        for index, event in enumerate(events):
            try:
                rehearsal.step(event)
            except FlowschedError as error:
                return index, error
    return None


class Rehearsal:
    """What ids will stand for after some events.

    Invariants: a machine, job, task or user that is in a dictionary here is as said there, None for one that is not there
    (any more).  All others are as in the cluster, but for tasks of `left` and of machines in `down`.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._empty = cluster, Cluster(cluster.resources)
        self._machines: dict[Hashable, bool | None] = {}
        """True for one that is up."""
        self._jobs: dict[Hashable, list[Any] | None] = {}
        """Its tasks' number, and whether it is closed."""
        self._tasks: dict[Hashable, tuple[Hashable, bool] | None] = {}
        """Its job, and whether it runs."""
        self._users: dict[Hashable, bool | None] = {}
        self._left: set[JobRecord] = set()
        self._down: set[int] = set()
        """Rows of machines that failed or left."""

    def step(self, event: ev.Event) -> None:
        """Let an event happen; raise the error of one that would be refused."""
        follow = _FOLLOW.get(type(event))
        if event.time is not None:
            number(f"{type(event).__name__}: time", event.time)
        if follow is None:
            raise InputError(f"a {type(event).__name__} has to be the only event of its request")
        follow(self, event)

    # -- what there will be --------------------------------------------------------------------------------------

    def _machine(self, id: Hashable) -> bool | None:
        _hashed(id, "machine", UnknownMachineError)
        if id in self._machines:
            return self._machines[id]
        record = self._cluster.machines.get(id)
        return None if record is None else not record.failed

    def _known_machine(self, id: Hashable) -> None:
        if self._machine(id) is None:
            raise UnknownMachineError(f"unknown machine {quoted(id)}")

    def _job(self, id: Hashable) -> list[Any] | None:
        _hashed(id, "job", UnknownIdError)
        if id not in self._jobs:
            record = self._cluster.jobs.get(id)
            self._jobs[id] = None if record is None else [len(record.tasks), record.job.closed]
        return self._jobs[id]

    def _task(self, id: Hashable) -> tuple[Hashable, bool] | None:
        _hashed(id, "task", UnknownTaskError)
        if id in self._tasks:
            return self._tasks[id]
        record = self._cluster.tasks.get(id)
        if record is None or record.group.job in self._left:
            return None
        return record.group.job.job.id, record.row >= 0 and record.row not in self._down

    def _known_task(self, id: Hashable) -> tuple[Hashable, bool]:
        found = self._task(id)
        if found is None:
            raise UnknownTaskError(f"unknown task {quoted(id)}")
        return found

    def _stale(self, event: Any) -> bool:
        if event.run is None:
            return False
        whole(f"{type(event).__name__}: run", event.run, 0)
        _hashed(event.task, "task", UnknownTaskError)
        found = self._task(event.task)
        return found is None or not found[1] or self._cluster.is_stale(event)

    def _own(self, *events: ev.Event) -> None:
        """Check what events say about themselves; nothing of them is left behind."""
        try:
            self._empty.apply(*events)
        finally:
            for job in list(self._empty.jobs):
                self._empty.apply(ev.JobRemoved(job))
            for machine in list(self._empty.machines):
                self._empty.apply(ev.MachineRemoved(machine))
            self._empty.users.clear()

    # -- what happens --------------------------------------------------------------------------------------------

    def machine_added(self, event: ev.MachineAdded) -> None:
        self._own(event)
        if self._machine(event.id):
            raise DuplicateIdError(f"machine {event.id!r} is already there")
        self._machines[event.id] = True

    def machine_named(self, event: ev.MachineDrained | ev.MachineSampled) -> None:
        self._known_machine(event.id)
        if isinstance(event, ev.MachineSampled):
            self._own(ev.MachineAdded(event.id, {}), event)

    def machine_gone(self, event: ev.MachineFailed | ev.MachineRemoved) -> None:
        self._known_machine(event.id)
        self._machines[event.id] = None if isinstance(event, ev.MachineRemoved) else False
        record = self._cluster.machines.get(event.id)
        if record is not None:
            self._down.add(record.row)  # what runs there from now on is in `_tasks`

    def job_submitted(self, event: ev.JobSubmitted) -> None:
        self._own(event)
        old = self._job(event.id)
        if old is not None and old[0]:
            raise DuplicateIdError(f"job {event.id!r} is already there")
        self._new_tasks(event.id, event.tasks)
        self._jobs[event.id] = [len(event.tasks), event.closed]
        if event.user is not None:
            self._users[event.user] = True

    def task_submitted(self, event: ev.TaskSubmitted) -> None:
        job = self._job(event.job)
        if job is None:
            raise UnknownIdError(f"unknown job {quoted(event.job)}")
        if job[1]:
            raise InputError(f"job {event.job!r} is closed: it takes no more tasks")
        self._own(ev.JobSubmitted(event.job, (event.task,)))
        self._new_tasks(event.job, (event.task,))
        job[0] += 1

    def _new_tasks(self, job: Hashable, tasks: Sequence[Task]) -> None:
        for task in tasks:
            if self._task(task.id) is not None:
                raise DuplicateIdError(f"task {task.id!r} is already there")
        self._tasks.update(dict.fromkeys((task.id for task in tasks), (job, False)))

    def task_ended(self, event: ev.TaskCompleted | ev.TaskFailed) -> None:
        if any(stop.task == event.task for stop in self._cluster.stopping.values()):
            raise InputError(
                f"task {event.task!r} has a run that stops: its end has to be the only event of its request"
            )
        if self._stale(event):
            return
        job, runs = self._known_task(event.task)
        if not runs:
            raise InputError(f"task {event.task!r} waits, it does not run")
        attempts = self._cluster.attempts.get(event.task)
        again = attempts is None or attempts.left > 0
        if isinstance(event, ev.TaskFailed) and truth(f"task {event.task!r}: retry", event.retry) and again:
            self._tasks[event.task] = job, False
        else:
            self._remove(event.task, job)

    def task_removed(self, event: ev.TaskRemoved) -> None:
        self._remove(event.task, self._known_task(event.task)[0])

    def _remove(self, task: Hashable, job: Hashable) -> None:
        self._tasks[task] = None
        counts = cast(list[Any], self._job(job))
        counts[0] -= 1
        if counts[1] and not counts[0]:
            self._jobs[job] = None

    def task_started(self, event: ev.TaskStarted) -> None:
        if event.run is None:
            raise InputError("a TaskStarted without a run has to be the only event of its request")
        if self._stale(event):
            return
        record, machine = self._cluster.task(event.task), self._cluster.machine(event.machine)
        if record.row != machine.row or event.devices is not None:
            raise InputError("a TaskStarted with devices or another machine has to be the only event of its request")

    def usage_sampled(self, event: ev.UsageSampled) -> None:
        if not self._stale(event):
            self._known_task(event.task)
            self._own(ev.JobSubmitted("", [Task(event.task)]), replace(event, run=None))

    def job_removed(self, event: ev.JobRemoved) -> None:
        if self._job(event.job) is None:
            raise UnknownIdError(f"unknown job {quoted(event.job)}")
        self._jobs[event.job] = None
        record = self._cluster.jobs.get(event.job)
        if record is not None:
            self._left.add(record)
        for task, found in self._tasks.items():
            if found is not None and found[0] == event.job:
                self._tasks[task] = None

    def user_added(self, event: ev.UserAdded) -> None:
        self._own(event)
        if self._user(event.id):
            raise DuplicateIdError(f"user {event.id!r} is already there")
        self._users[event.id] = True

    def user_updated(self, event: ev.UserUpdated) -> None:
        if not self._user(event.id):
            raise UnknownIdError(f"unknown user {quoted(event.id)}")
        self._own(ev.UserAdded(event.id), event)

    def _user(self, id: Hashable) -> bool | None:
        _hashed(id, "user", UnknownIdError)
        return self._users.get(id, id in self._cluster.users)


def _hashed(id: Any, kind: str, error: type[UnknownIdError]) -> None:
    try:
        hash(id)
    except TypeError:
        raise error(f"unknown {kind} {quoted(id)}") from None


_FOLLOW: dict[type[ev.Event], Callable[[Rehearsal, Any], None]] = {
    ev.MachineAdded: Rehearsal.machine_added,
    ev.MachineDrained: Rehearsal.machine_named,
    ev.MachineSampled: Rehearsal.machine_named,
    ev.MachineFailed: Rehearsal.machine_gone,
    ev.MachineRemoved: Rehearsal.machine_gone,
    ev.JobSubmitted: Rehearsal.job_submitted,
    ev.TaskSubmitted: Rehearsal.task_submitted,
    ev.TaskCompleted: Rehearsal.task_ended,
    ev.TaskFailed: Rehearsal.task_ended,
    ev.TaskRemoved: Rehearsal.task_removed,
    ev.TaskStarted: Rehearsal.task_started,
    ev.UsageSampled: Rehearsal.usage_sampled,
    ev.JobRemoved: Rehearsal.job_removed,
    ev.UserAdded: Rehearsal.user_added,
    ev.UserUpdated: Rehearsal.user_updated,
}
