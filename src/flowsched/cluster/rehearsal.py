"""A small cluster in which events are tried first, so that all of them happen or none.

The refusal of an event depends on the things that it names, and on few others.  `take_part` copies just these into an
empty cluster.  The same checks then refuse the same events there as in the whole cluster.

The small cluster has these parts of the whole one:

* machines, tasks, jobs and users of every name that occurs in the events; stopping runs of these tasks and on these
  machines;
* all tasks of a machine where a task is adopted;
* the jobs of all these tasks, each with one more task if there is one, so that the job is not over;
* one more job with tasks, if there is one, for a user that leaves.

Other machines on which some of these tasks run have no capacity, but the total of all capacities is the same.
Ages, rests and orders have no effect.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from math import inf
from typing import Any, TypeVar

from flowsched.boundary.validate import ordered
from flowsched.cluster import events as ev
from flowsched.cluster.model import Task
from flowsched.cluster.records import Group, JobRecord, MachineRecord, TaskRecord, add_tasks, found_group
from flowsched.cluster.task_events import TaskEvents
from flowsched.exceptions import InputError

__all__ = ["take_part"]

_Thing = TypeVar("_Thing")

Names = dict[Hashable, None]


def take_part(small: TaskEvents, whole: TaskEvents, events: Sequence[ev.Event]) -> None:
    """Copy the part of a cluster that decides on these events into an empty one.

    Raises
    ------
    InputError
        A part of an event is an iterator, which can be read only once.
    """
    names = _names(events)
    named = _known(whole.machines, names)
    asked = _asked(whole, events)
    tasks = dict.fromkeys(_known(whole.tasks, names))
    for machine in asked:
        tasks.update(dict.fromkeys(machine.tasks))
    jobs = dict.fromkeys([*_known(whole.jobs, names), *(task.group.job for task in tasks)])
    for user in [event.id for event in events if isinstance(event, ev.UserRemoved)]:
        more = (job for job in whole.jobs.values() if job.job.user == user and job.tasks and job not in jobs)
        jobs.update(dict.fromkeys([job for job, _ in zip(more, "1", strict=False)]))
    counts = Counter(task.group.job for task in tasks)
    for job in jobs:
        tasks.update(dict.fromkeys([task for task in job.tasks[: counts[job] + 1] if task not in tasks][:1]))

    small.runs = whole.runs
    small.users.update((user.id, user) for user in _known(whole.users, names))
    rows = _add_machines(small, whole, dict.fromkeys([*named, *asked]), tasks)
    _add_jobs(small, whole, jobs, tasks, rows)
    small.inventory.total[:] = whole.inventory.total
    for run, stop in whole.stopping.items():
        if stop.task in names or stop.row in rows:
            small.stopping[run] = stop._replace(row=rows.get(stop.row, -1))


def _names(events: Iterable[ev.Event]) -> Names:
    """Return all names that occur in events."""
    names: Names = {}
    for index, event in enumerate(events):
        for name in ("capacity", "devices", "taints", "tasks"):
            if hasattr(getattr(event, name, None), "__next__"):
                error = InputError(f"{type(event).__name__}: {name}: a sequence expected, not an iterator")
                error.index = index
                raise error
        for name in ("id", "job", "machine", "task", "user"):
            _note(names, getattr(event, name, None))
        for task in _new_tasks(event):
            _note(names, task.id)
    return names


def _new_tasks(event: ev.Event) -> list[Task]:
    told: Any = event.tasks if isinstance(event, ev.JobSubmitted) else (getattr(event, "task", None),)
    try:
        return [task for task in ordered("tasks", told) if isinstance(task, Task)]
    except InputError:  # the event will be refused, and no later event will happen
        return []


def _note(names: Names, name: Any) -> None:
    try:
        names[name] = None
    except TypeError:  # unhashable, so it is no name
        pass


def _known(things: Mapping[Hashable, _Thing], names: Names) -> list[_Thing]:
    return [things[name] for name in names if name in things]


def _asked(whole: TaskEvents, events: Sequence[ev.Event]) -> list[MachineRecord]:
    """Return the machines where tasks are adopted."""
    names: Names = {}
    for event in events:
        if isinstance(event, ev.TaskStarted) and event.run is None:
            _note(names, event.machine)
    return _known(whole.machines, names)


def _add_machines(
    small: TaskEvents, whole: TaskEvents, named: Iterable[MachineRecord], tasks: Iterable[TaskRecord]
) -> dict[int, int]:
    """Add these machines, and those where the tasks run; return the new rows by the old ones."""
    rows: dict[int, int] = {}
    for old in [*named, *(whole.by_row[task.row] for task in tasks if task.row >= 0)]:
        if old.row not in rows:
            rows[old.row] = row = small.inventory.add_machine()
            small.by_row[row] = MachineRecord(old.machine, row)
            small.inventory.affinity.settle(row, None)
    for old in named:
        new = small.machines[old.id] = small.by_row[rows[old.row]]
        small._describe(new, old.machine, whole.inventory.capacity[old.row], new=True)
        new.failed, new.drained = old.failed, old.drained
    return rows


def _add_jobs(
    small: TaskEvents,
    whole: TaskEvents,
    jobs: Iterable[JobRecord],
    tasks: Iterable[TaskRecord],
    rows: Mapping[int, int],
) -> None:
    """Add these jobs and tasks, with the running ones in their new rows."""
    small.jobs.update((job.job.id, JobRecord(job.job, job.serial)) for job in jobs)
    groups: dict[Group, list[TaskRecord]] = {}
    for task in tasks:
        groups.setdefault(task.group, []).append(task)
    for old, those in groups.items():
        job, cls = small.jobs[old.job.job.id], small._class_like(old.cls, old.cls.key)
        group = job.group_of(cls) or found_group(small, Group(job, cls, 0))
        for task, new in zip(those, add_tasks(small, group, [task.id for task in those], None, inf), strict=True):
            new.run = task.run
            if task.id in whole.attempts:
                small.attempts[task.id] = whole.attempts[task.id]
            if task.row >= 0:
                row = rows[task.row]
                devices = task.devices if small.by_row[row].id in small.machines else ()
                small.inventory.reach_device(row, devices)
                small.start([new], row, devices, 0.0)
