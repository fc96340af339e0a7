"""The one owner of what is: `Cluster.apply(event)`.

An event is checked whole before anything moves, so a refused event leaves the cluster as it was.  The cluster also
remembers what changed, so that a mirror of it (the network) pays for changes only: see `Cluster.changes`.

Rule: `Cluster.midway` is true from before the first change of an event, commit or trial until after its last one.  An
exception that nothing could foresee (out of memory) leaves it true, and later calls are refused: `TornStateError`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.boundary.validate import number, ordered, quoted, truth, whole
from flowsched.cluster import events as ev
from flowsched.cluster._records import added, alike, enqueue
from flowsched.cluster.columns import IdPool
from flowsched.cluster.images import become, kept
from flowsched.cluster.inventory import Inventory
from flowsched.cluster.joining import joins
from flowsched.cluster.membership import Attempts, Membership
from flowsched.cluster.model import DESCRIPTION, MICRO, Job, Machine, Resources, Task, User
from flowsched.cluster.records import JobRecord, MachineRecord, TaskRecord
from flowsched.cluster.transitions import Changes
from flowsched.cluster.views import found
from flowsched.exceptions import (
    DuplicateIdError,
    FlowschedError,
    InputError,
    TornStateError,
    UnknownIdError,
)

__all__ = ["Cluster"]

IDLE_CLASSES = 64
"""So many classes without tasks are kept for the next task of their kind, the others forgotten."""


class Cluster(Membership):
    """Machines, jobs, tasks and users, and what runs where.

    Parameters
    ----------
    resources : Resources or sequence of str
        What machines have and tasks take; a resource called "gpu" is counted device by device.

    Attributes
    ----------
    inventory, by_row, waiting, machines, tasks
        See `Views`.
    jobs, by_class, attempts, resting, midway
        See `Membership`.
    events : int
        How many have happened.
    runs : int
        How many runs have begun, so the number of the last one (`TaskRecord.run`).  Every start that happens begins one:
        that of a delta of a commit, or of `TaskStarted`.  What is tried and taken back begins none.
    stale_events : int
        How many of the events told of a run that was over, and so changed nothing.
    """

    def __init__(self, resources: Resources | Sequence[str] = ("cpu", "mem", "gpu")) -> None:
        self.resources = resources if isinstance(resources, Resources) else Resources(ordered("resources", resources))
        super().__init__(Inventory(self.resources))
        self.users: dict[Hashable, User] = {}
        self.by_index: list[TaskRecord | None] = []
        self._indices = IdPool()
        self.events = self.runs = self.stale_events = 0

    # -- images -------------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """Return what an image keeps of it."""
        return kept(vars(self))

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Become the cluster that `__getstate__` told of."""
        become(vars(self), state)
        if any(hasattr(Cluster, name) for name in vars(self)):
            raise ValueError("an attribute that hides what a cluster does")

    # -- what changed --------------------------------------------------------------------------------------------

    def changes(self, now: float | None = None) -> Changes:
        """Return what changed since the last call, and forget it; tasks submitted at no stated time wait since `now`."""
        if now is not None:
            self.date(now)
        changes, self._changes = self._changes, Changes()
        while len(self._idle) > IDLE_CLASSES:
            key = next(iter(self._idle))
            del self._idle[key]
            changes.classes.append(self._classes.pop(key).index)
        for cls in changes.classes:
            self.inventory.drop_class(cls)
            del self.by_class[cls]
        for row in changes.gone:
            self.inventory.drop_machine(row)
        return changes

    def forget_tries(self, turn: int) -> None:
        """After moves that were all taken back: every order is as if nothing had been tried, and all counts as changed.

        Parameters
        ----------
        turn : int
            The largest turn given before.
        """
        self._turn = turn
        for record in self.machines.values():
            record.tasks.sort()
        for job in self.jobs.values():
            for group in job.groups.values():
                group.on = {row: tuple(sorted(group.on[row])) for row in sorted(group.on)}
        queues = sorted(self.waiting.items(), key=lambda queue: queue[0].index)
        self.waiting = {cls: dict.fromkeys(sorted(groups, key=attrgetter("serial"))) for cls, groups in queues}
        self._waiting_ids.clear()
        self.queues.clear()
        self.everything()  # now, since it gives back the rows of machines that are gone

    @property
    def serial(self) -> int:
        """The largest serial of a job or group given so far."""
        return self._serial

    def everything(self) -> None:
        """Let all that is count as changed, for a mirror that begins with nothing."""
        self.changes()
        groups = {group: dict.fromkeys(group.on) for job in self.jobs.values() for group in job.groups.values()}
        self._changes = Changes(groups, machines=dict.fromkeys(self.by_row))

    # -- events -------------------------------------------------------------------------------------------------

    def apply(self, *events: ev.Event) -> tuple[ev.EndedRun, ...]:
        """Let events happen, one after the other.

        Returns
        -------
        tuple of EndedRun
            The runs that they ended, in that order.

        Raises
        ------
        FlowschedError
            An event names something unknown, a duplicate, or something impossible.  It then did nothing; the events
            before it stand, those after it did not happen.  ``error.ended`` are the runs that those before it ended.
        """
        self.check_whole()
        ended: list[ev.EndedRun] = []
        try:
            self._apply(events, ended)
        except FlowschedError as error:
            error.ended = tuple(ended)
            raise
        return tuple(ended)

    def _apply(self, events: Sequence[ev.Event], ended: list[ev.EndedRun]) -> None:
        """Let events happen; note the runs that they end."""
        rest = 0  # events before it have happened together
        for position, event in enumerate(events):
            if position < rest:
                continue
            if type(event) is ev.MachineAdded and event.time is None and position + 1 < len(events):
                run = joins(events, position, self.machines, self.resources)
                if run is not None:
                    self._machines_added(*run)
                    rest = position + len(run[-1])
                    continue
            handler = _HANDLERS.get(type(event))
            if handler is None:
                raise InputError(f"event: an event expected, got {quoted(event)}")
            if event.time is not None:
                time = number(f"{type(event).__name__}: time", event.time)
                if time is not event.time:  # one of NumPy's, which may overflow where it meets others
                    event = replace(event, time=time)
            self.midway = True
            try:
                over = handler(self, event)
            except FlowschedError:
                self.midway = False  # it was refused, and had not changed anything
                raise
            self.events += 1  # before the mark goes: the journal counts by it
            self.midway = False
            if over is not None:
                ended += over

    def _stale(self, event: ev.TaskStarted | ev.TaskCompleted | ev.TaskFailed | ev.UsageSampled) -> bool:
        """Count an event that is stale."""
        if event.run is None:
            return False
        whole(f"{type(event).__name__}: run", event.run, 0)
        stale = self.is_stale(event)
        self.stale_events += stale
        return stale

    def check_whole(self) -> None:
        """Refuse to go on after a change that did not come to its end."""
        if self.midway:
            raise TornStateError(
                "an exception ended an earlier call in the middle of a change; go on from a journal, snapshot or export"
            )

    def _machine_added(self, event: ev.MachineAdded) -> None:
        machine = Machine(event.id, event.capacity, event.rack, event.labels, event.slots, event.taints)
        record = self.machines.get(event.id)
        if record is not None and not record.failed:
            raise DuplicateIdError(f"machine {event.id!r} is already there")
        capacity = self.resources.capacity(f"machine {event.id!r}: capacity", machine.capacity)
        if record is None:
            record = self.machines[event.id] = MachineRecord(machine, self.inventory.add_machine())
            self.by_row[record.row] = record
        self._describe(record, machine, capacity, new=True)

    def _machines_added(
        self, machine: Machine, capacity: NDArray[np.int64], racks: Mapping[Hashable, Hashable]
    ) -> None:
        """Add machines that differ from the one given in ids and racks alone."""
        self.midway = True
        rows = self.inventory.add_machines(capacity, machine, list(racks.values()))
        for row, (id, rack) in zip(rows, racks.items(), strict=True):
            record = self.machines[id] = self.by_row[row] = MachineRecord(machine, row)
            record.id, record.rack = id, rack
        self._changes.machines.update(dict.fromkeys(rows))
        self._review()
        self.events += len(racks)
        self.midway = False

    def _machine_updated(self, event: ev.MachineUpdated) -> None:
        record = self.machine(event.id)
        changed = ("capacity", "rack", "labels", "slots", "taints")
        given = {k: v for k in changed if (v := getattr(event, k)) is not None}
        machine = replace(record.machine, **given)
        capacity = self.resources.capacity(f"machine {event.id!r}: capacity", machine.capacity)
        self._check_shrink(record, machine, capacity)
        failed = record.failed
        self._describe(record, machine, capacity, new=machine.rack != record.rack)
        if failed:
            record.failed = True
            self._unusable(record)

    def _check_shrink(self, record: MachineRecord, machine: Machine, capacity: NDArray[np.int64]) -> None:
        """Capacity may not go below what runs there."""
        inventory, row, running = self.inventory, record.row, len(record.tasks)
        # Under a fit rule tasks may ask for more than there is: what does not shrink is let be.
        short = np.flatnonzero(
            capacity < np.minimum(inventory.capacity[row] - inventory.free[row], inventory.capacity[row])
        )
        what = f"machine {machine.id!r}: {running} running tasks take more than the new"
        if len(short):
            raise InputError(f"{what} capacity of {self.resources.names[short[0]]!r}; drain or fail the machine first")
        if machine.slots is not None and machine.slots < running:
            raise InputError(f"{what} slots ({machine.slots}); drain or fail the machine first")
        g = self.resources.device_index
        count = int(capacity[g]) // MICRO if g >= 0 else 0
        if any(device >= count for task in record.tasks for device in task.devices):
            raise InputError(
                f"machine {machine.id!r}: a device beyond the new count of {count} is in use; drain or fail the machine first"
            )

    def _describe(self, record: MachineRecord, machine: Machine, capacity: NDArray[np.int64], new: bool) -> None:
        record.machine, record.failed, record.drained = machine, False, False
        self.inventory.describe(record.row, capacity, machine)
        self.inventory.usable[record.row] = True
        if new:
            self._changes.machines[record.row] = None
        for task in record.tasks:
            self._changes.groups.setdefault(task.group, {})[record.row] = None
        self._review()

    def _machine_drained(self, event: ev.MachineDrained) -> None:
        record = self.machine(event.id)
        record.drained = True
        self._unusable(record)

    def _machine_failed(self, event: ev.MachineFailed | ev.MachineRemoved) -> list[ev.EndedRun]:
        record = self.machine(event.id)
        over = self.runs_of(record.tasks, event)
        for task in record.tasks:
            self.stop(task, event.time)
        record.failed = True
        self._unusable(record)
        return over

    def _unusable(self, record: MachineRecord) -> None:
        self.inventory.usable[record.row] = False
        self.inventory.touch(record.row)
        self._review()

    def _machine_removed(self, event: ev.MachineRemoved) -> list[ev.EndedRun]:
        over = self._machine_failed(event)
        record = self.machines.pop(event.id)
        del self.by_row[record.row]
        self._changes.machines.pop(record.row, None)
        self._changes.gone.append(record.row)
        self.inventory.suitability.unsettle(record.row)  # at once: gangs for which it was needed have no hope
        self.inventory.arranged = self.inventory.clock
        self._review()
        return over

    def _job_submitted(self, event: ev.JobSubmitted) -> None:
        described = Job(event.id, event.user, event.priority, event.gang, event.deadline, event.closed)
        old = self.jobs.get(event.id)
        if old is not None and old.tasks:
            raise DuplicateIdError(f"job {event.id!r} is already there")
        tasks = ordered(f"job {event.id!r}: tasks", event.tasks)
        if described.closed and not tasks:
            raise InputError(f"job {event.id!r}: a closed job needs tasks: it leaves with the last one")
        runs = self._runs(event.id, tasks)
        self._serial += 1
        job = self.jobs[event.id] = JobRecord(described, self._serial)
        if event.user is not None:
            self.users.setdefault(event.user, User(event.user))
        for run, demand in runs:
            self._add_tasks(job, run, demand, event.time)

    def _task_submitted(self, event: ev.TaskSubmitted) -> None:
        job = found(self.jobs, event.job, UnknownIdError, "job")
        if job.job.closed:
            raise InputError(f"job {event.job!r} is closed: it takes no more tasks")
        for run, demand in self._runs(event.job, (event.task,)):
            self._add_tasks(job, run, demand, event.time)

    def _runs(self, job: Hashable, tasks: tuple[Task, ...]) -> list[tuple[tuple[Task, ...], NDArray[np.int64]]]:
        """Check new tasks; return the runs of those that differ in their ids alone, each with its demand."""
        for i, task in enumerate(tasks):
            if not isinstance(task, Task):
                raise InputError(f"job {job!r}: tasks[{i}]: a Task expected, got {quoted(task)}")
        ids = [task.id for task in tasks]
        if len(set(ids)) < len(ids) or not self.tasks.keys().isdisjoint(ids):
            seen = set(self.tasks)
            for id in ids:
                if id in seen:
                    raise DuplicateIdError(f"task {id!r} is already there")
                seen.add(id)
        runs = [tasks[first:end] for first, end in pairwise((0, *alike(tasks, DESCRIPTION)))]
        return [(run, self.resources.demand(f"task {run[0].id!r}: demand", run[0].demand)) for run in runs]

    def _add_tasks(
        self, job: JobRecord, tasks: tuple[Task, ...], demand: NDArray[np.int64], time: float | None
    ) -> None:
        """Add tasks that differ in their ids alone."""
        group = self._group(job, tasks[0], demand)
        duration = inf if tasks[0].duration is None else tasks[0].duration
        ids, indices = [task.id for task in tasks], self._indices.take_some(len(tasks))
        records = added(ids, group, indices, self._turn, time, duration)
        self._turn += len(records)
        self.by_index += [None] * (self._indices.count - len(self.by_index))
        for index, record in zip(indices, records, strict=True):
            self.by_index[index] = record
        self.tasks.update(zip(ids, records, strict=True))
        job.tasks.extend(records)
        job.most = max(job.most, len(job.tasks))
        group.tasks += len(records)
        group.cls.tasks += len(records)
        if tasks[0].retries is not None:
            attempts = Attempts(tasks[0].retries, tasks[0].backoff)
            self.attempts.update(dict.fromkeys(ids, attempts))
        enqueue(self, records)

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
        cls = task.group.cls.index
        # It has started, whatever the constraints of the policy say.
        devices = self.inventory.devices_for(machine.row, cls) if given is None else given
        if devices is None or not self.inventory.has_room(machine.row, cls, devices):
            raise InputError(f"task {event.task!r} does not fit on machine {event.machine!r} beside what runs there")
        if task.id in self.resting:
            self._come_back([task], event.time)
        self.start([task], machine.row, devices, 0.0 if event.time is None else event.time)
        self.runs += 1
        task.run = self.runs

    def _running(self, task: Hashable) -> TaskRecord:
        record = self.task(task)
        if record.row < 0:
            raise InputError(f"task {task!r} waits, it does not run")
        return record

    def _task_completed(self, event: ev.TaskCompleted) -> list[ev.EndedRun]:
        if self._stale(event):
            return []
        record = self._running(event.task)
        over = self.runs_of((record,), event)
        self._remove(record)
        return over

    def _task_failed(self, event: ev.TaskFailed) -> list[ev.EndedRun]:
        if self._stale(event):
            return []
        record = self._running(event.task)
        retry = truth(f"task {event.task!r}: retry", event.retry)
        over = self.runs_of((record,), event)
        self.stop(record, event.time)
        if not (retry and self._retry(record, over[0].machine, event.time)):
            self._remove(record)
        return over

    def _task_removed(self, event: ev.TaskRemoved) -> list[ev.EndedRun]:
        record = self.task(event.task)
        over = self.runs_of((record,), event)
        self._remove(record)
        return over

    def _job_removed(self, event: ev.JobRemoved) -> list[ev.EndedRun]:
        tasks = found(self.jobs, event.job, UnknownIdError, "job").tasks
        over = self.runs_of(tasks, event)
        for task in tasks:
            self._remove(task)
        self.jobs.pop(event.job, None)  # a closed one has left with its last task
        return over

    def _user_added(self, event: ev.UserAdded) -> None:
        user = User(event.id, event.quota)
        if event.id in self.users:
            raise DuplicateIdError(f"user {event.id!r} is already there")
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

    def _machine_sampled(self, event: ev.MachineSampled) -> None:
        self.machine(event.id)
        self.resources.usage(f"machine {event.id!r}: usage", event.usage)

    def _remove(self, task: TaskRecord) -> None:
        self._leave(task)
        task.gone = True
        job = task.group.job
        del self.tasks[task.id]
        self.attempts.pop(task.id, None)
        job.tasks.remove([task])
        self.by_index[task.index] = None
        self._indices.give(task.index)
        if job.job.closed and not job.tasks:
            del self.jobs[job.job.id]


_HANDLERS: dict[type[ev.Event], Callable[[Cluster, Any], list[ev.EndedRun] | None]] = {
    ev.MachineAdded: Cluster._machine_added,
    ev.MachineUpdated: Cluster._machine_updated,
    ev.MachineDrained: Cluster._machine_drained,
    ev.MachineFailed: Cluster._machine_failed,
    ev.MachineRemoved: Cluster._machine_removed,
    ev.JobSubmitted: Cluster._job_submitted,
    ev.TaskSubmitted: Cluster._task_submitted,
    ev.TaskStarted: Cluster._task_started,
    ev.TaskCompleted: Cluster._task_completed,
    ev.TaskFailed: Cluster._task_failed,
    ev.TaskRemoved: Cluster._task_removed,
    ev.JobRemoved: Cluster._job_removed,
    ev.UserAdded: Cluster._user_added,
    ev.UserUpdated: Cluster._user_updated,
    ev.UserRemoved: Cluster._user_removed,
    ev.UsageSampled: Cluster._usage_sampled,
    ev.MachineSampled: Cluster._machine_sampled,
}
