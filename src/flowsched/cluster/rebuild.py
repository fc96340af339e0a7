"""A cluster from plain rows, as `flowsched.journal.export` reads them.

Every row is checked against those before it, and refused by an error of the package's own.  The rebuilder keeps the cluster
until `finish` returns it, and never returns an inconsistent one: a task waits or runs on one machine that has not failed, on
the requested number of devices; turns and serials occur once.  Capacities, slots, labels, spreads and racks are not
checked, since they may have changed under a running task.

Numbers that only order records (rows, indices of classes and tasks) are assigned again in the same order.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any, TypeVar, cast

import numpy as np

from flowsched.boundary.validate import check_id, number, ordered, quoted, truth, whole
from flowsched.cluster.inventory import MOST_IN_ALL
from flowsched.cluster.membership import PLAIN, Attempts
from flowsched.cluster.model import LARGEST, MICRO, MOST_DEVICES, MOST_USED, Job, Machine, Task, User
from flowsched.cluster.records import (
    Group,
    JobRecord,
    MachineRecord,
    Placement,
    TaskClass,
    TaskRecord,
    group_for,
    settle,
)
from flowsched.cluster.state import Cluster
from flowsched.cluster.stopping import Stop
from flowsched.exceptions import DuplicateIdError, InputError, UnknownIdError

__all__ = ["Rebuild"]

_Thing = TypeVar("_Thing")

_LAST = (1 << 62) - 1
"""Largest turn and serial."""


class Rebuild:
    """Construction of a cluster from users, machines, classes, jobs, groups, tasks and runs, in this order.

    Parameters
    ----------
    cluster : Cluster
        Empty.
    events, turn, serial, runs, stale : int
        Number of past events, the last turn and serial, the number of past runs, and the number of stale events.

    Attributes
    ----------
    groups : dict of int to Group
        By serial.
    classes : dict of int to ClassRecord
        By the number in the rows.
    """

    def __init__(self, cluster: Cluster, events: int, turn: int, serial: int, runs: int = 0, stale: int = 0) -> None:
        if cluster.events or cluster.tasks or cluster.machines:
            raise InputError("cluster: an empty one expected")
        self.cluster = cluster
        self.groups: dict[int, Group] = {}
        self.classes: dict[int, TaskClass] = {}
        self._events = whole("events", events, 0, _LAST)
        self._turn = whole("turn", turn, 0, _LAST)
        self._serial = whole("serial", serial, 0, _LAST)
        self._runs = whole("runs", runs, 0, _LAST)
        self._stale = whole("stale", stale, 0, self._events)
        self._numbers: set[int] = set()
        self._turns: set[int] = set()
        self._serials: set[int] = set()
        self._specs: dict[Hashable, tuple[int, Machine, Any, bool, bool]] = {}
        self._seated = False
        self._templates: dict[int, tuple[Task, Any, Hashable | None, frozenset[Hashable]]] = {}
        self._order: list[tuple[int, Group]] = []
        self._devices = 0

    # -- users and machines -------------------------------------------------------------------------------------

    def user(self, user: User) -> None:
        """Add a user."""
        if user.id in self.cluster.users:
            raise DuplicateIdError(f"user {user.id!r} is there twice")
        self.cluster.users[user.id] = user

    def machine(self, machine: Machine, row: int, failed: bool, drained: bool) -> None:
        """Add a machine, in the order of joining; `row` orders machines that are equally good."""
        if self._seated:
            raise InputError("a machine after the classes: machines come before them")
        if machine.id in self._specs:
            raise DuplicateIdError(f"machine {machine.id!r} is there twice")
        what = f"machine {machine.id!r}"
        capacity = self.cluster.resources.capacity(f"{what}: capacity", machine.capacity)
        self._devices += self.cluster.resources.num_devices(capacity)
        if self._devices > MOST_IN_ALL:
            raise InputError(f"{what}: more than {MOST_IN_ALL} devices on all machines")
        whole(f"{what}: row", row, 0)
        self._specs[machine.id] = (
            row,
            machine,
            capacity,
            truth(f"{what}: failed", failed),
            truth(f"{what}: drained", drained),
        )

    def _seat(self) -> None:
        """Assign rows to all machines, since no more follow."""
        self._seated = True
        cluster, inventory = self.cluster, self.cluster.inventory
        if len({row for row, *_ in self._specs.values()}) < len(self._specs):
            raise InputError("two machines of one row")
        seats: dict[Hashable, MachineRecord] = {}
        for _, machine, capacity, failed, drained in sorted(self._specs.values(), key=lambda spec: spec[0]):
            record = seats[machine.id] = MachineRecord(machine, inventory.add_machine())
            cluster.by_row[record.row] = record
            cluster._describe(record, machine, capacity, new=True)
            record.failed, record.drained = failed, drained
            inventory.usable[record.row] = not (failed or drained)
        cluster.machines.update((id, seats[id]) for id in self._specs)
        self._specs.clear()

    # -- tasks --------------------------------------------------------------------------------------------------

    def task_class(
        self,
        name: int,
        demand: Sequence[int],
        priority: int,
        like: Task,
        only: tuple[Hashable, ...],
        shuns: Sequence[Hashable] = (),
    ) -> TaskClass:
        """Add a class of tasks, in the order of their indices.

        Parameters
        ----------
        name : int
            Number of the class in the rows.
        demand : sequence of int
            In micro-units, in the order of the resources.
        priority : int
        like : Task
            Example of its tasks; id, demand and data are ignored.
        only : tuple of hashable
            The only job of the class, if it has one.
        shuns : sequence of hashable
            Machines on which its tasks failed.
        """
        if not self._seated:
            self._seat()
        name = whole("class", name, 0, _LAST)
        if name in self.classes:
            raise DuplicateIdError(f"class {name} is there twice")
        vector = self._demand(f"class {name}", demand)
        known = len(self.cluster.by_class)
        job = JobRecord(Job(only[0] if only else None, priority=priority), 0)
        for id in ordered(f"class {name}: failed_on", shuns):
            check_id(f"class {name}: failed_on", id)
        cls = group_for(self.cluster, job, like, vector, frozenset(shuns)).cls
        if len(self.cluster.by_class) == known:
            raise DuplicateIdError(f"class {name} is the same as another one")
        self.classes[name] = cls
        self._templates[name] = like, vector, job.job.id, frozenset(shuns)
        return cls

    def _demand(self, what: str, demand: Sequence[int]) -> Any:
        resources = self.cluster.resources
        amounts = [whole(f"{what}: demand", amount, 0, LARGEST * MICRO) for amount in ordered("demand", demand)]
        if len(amounts) != len(resources.names):
            raise InputError(f"{what}: demand: {len(resources.names)} amounts expected, got {len(amounts)}")
        g = resources.device_index
        if g >= 0 and amounts[g] > MICRO and amounts[g] % MICRO:
            raise InputError(f"{what}: demand: a share of one device or whole devices expected, got {amounts[g]}")
        vector = np.array(amounts, np.int64)
        vector.flags.writeable = False
        return vector

    def job(self, job: Job, serial: int, most: int) -> None:
        """Add a job, in order of arrival; `most` is the largest number of tasks that it has had at a time."""
        if job.id in self.cluster.jobs:
            raise DuplicateIdError(f"job {job.id!r} is there twice")
        what = f"job {job.id!r}"
        record = JobRecord(job, self._unused(f"{what}: serial", serial), most=whole(f"{what}: most", most, 0, _LAST))
        self.cluster.jobs[job.id] = record

    def group(self, serial: int, job: Hashable, name: int, data: Any, waits: int | None) -> None:
        """Add the tasks of one job and class with the same data, in order of serials; `waits` orders the waiting groups."""
        record = found(self.cluster.jobs, job, "job")
        cls = found(self.classes, name, "class")
        serial = self._unused("group", serial)
        like, vector, only, shuns = self._templates[name]
        groups = len(record.each_group())
        group = group_for(self.cluster, record, replace(like, data=data) if data else like, vector, shuns)
        if group.cls is not cls:
            raise InputError(
                f"group {serial}: job {job!r} is of another priority than class {name}, or it belongs to job {only!r}"
            )
        if len(record.each_group()) == groups:
            raise DuplicateIdError(f"group {serial} is the same as group {group.serial}")
        group.serial = serial
        self.groups[serial] = group
        if waits is not None:
            self._order.append((whole(f"group {serial}: waits", waits, 0), group))

    def rest(self, job: Hashable, name: int, data: Any) -> Group:
        """Return a separate group for a resting task."""
        record = found(self.cluster.jobs, job, "job")
        cls = found(self.classes, name, "class")
        like, _, only, _ = self._templates[name]
        if record.job.priority != cls.priority or cls.key[7] not in (None, job):
            raise InputError(f"job {job!r} is of another priority than class {name}, or it belongs to job {only!r}")
        pairs = cast(tuple[tuple[Hashable, float], ...], replace(like, data=data).data)
        return Group(record, cls, 0, pairs)

    def _unused(self, what: str, serial: int) -> int:
        serial = whole(what, serial, 1, self._serial)
        if serial in self._serials:
            raise DuplicateIdError(f"{what}: serial {serial} is there twice")
        self._serials.add(serial)
        return serial

    def task(
        self,
        id: Hashable,
        group: Group,
        turn: int,
        since: float | None,
        preempted: float | None,
        duration: float | None,
        run: int = 0,
    ) -> TaskRecord:
        """Add a task, in order of arrival; it waits, unless `run` or `rests` follows."""
        check_id("task", id)
        cluster = self.cluster
        if id in cluster.tasks:
            raise DuplicateIdError(f"task {id!r} is there twice")
        if type(turn) is not int or not 0 < turn <= self._turn or turn in self._turns:
            raise InputError(f"task {id!r}: turn: a number of its own from 1 to {self._turn} expected, got {turn!r}")
        self._turns.add(turn)
        index = cluster._indices.take()
        record = TaskRecord(id, group, index, turn, None if since is None else time("since", since))
        if preempted is not None:
            record.preempted = time("preempted", preempted)
        if duration is not None:
            record.duration = number(f"task {id!r}: duration", duration, 0)
        record.run = whole(f"task {id!r}: run", run, 0, self._runs)
        if record.run and record.run in self._numbers:
            raise InputError(f"task {id!r}: run {record.run} is there twice")
        self._numbers.add(record.run)
        cluster.by_index.append(record)
        cluster.tasks[id] = record
        job = group.job
        job.tasks.extend([record])
        group.tasks += 1
        group.cls.tasks += 1
        group.waiting.extend([record])
        return record

    def retries(self, task: TaskRecord, left: int, backoff: float, failed_on: Sequence[Hashable]) -> None:
        """Set the retries that a task has left."""
        what = f"task {task.id!r}"
        for id in ordered(f"{what}: failed_on", failed_on):
            check_id(f"{what}: failed_on", id)
        left, backoff = whole(f"{what}: retries", left, 0, _LAST), number(f"{what}: backoff", backoff, 0)
        self.cluster.attempts[task.id] = Attempts(left, backoff, tuple(failed_on))

    def rests(self, task: TaskRecord, due: float | None) -> None:
        """Put a task to rest."""
        attempts = self.cluster.attempts.get(task.id)
        stops = type(due) is float and due == inf
        if not stops and (attempts is None or not attempts.failed_on):
            raise InputError(f"task {task.id!r} rests and has not failed")
        self.cluster.resting[task.id] = due if due is None or stops else time(f"task {task.id!r}: rests", due)
        task.group.waiting.remove([task])
        task.group.tasks = 0

    # -- runs ---------------------------------------------------------------------------------------------------

    def run(self, machine: Hashable, runs: Sequence[Sequence[Any]]) -> None:
        """Run tasks on a machine, in this order; each is given with its start time, and its devices if it has any."""
        record = found(self.cluster.machines, machine, "machine")
        if record.failed or record.tasks:
            raise InputError(
                f"machine {machine!r} " + ("has failed: nothing runs there" if record.failed else "is there twice")
            )
        batch: list[TaskRecord] = []
        at: Placement | None = None
        taken: dict[TaskRecord, Placement] = {}
        for run in ordered("runs", runs):
            if not isinstance(run, list | tuple) or not 2 <= len(run) <= 3:
                raise InputError(f"machine {machine!r}: a task, since when and on which devices expected, got {run!r}")
            task = found(self.cluster.tasks, run[0], "task")
            if task.place is not None or task in taken or task.id in self.cluster.resting:
                raise InputError(f"task {task.id!r} runs twice, or rests and runs")
            devices = tuple(run[2]) if len(run) == 3 and isinstance(run[2], list | tuple) else ()
            if len(run) == 3 and not devices:
                raise InputError(f"task {task.id!r}: devices expected, got {run[2]!r}")
            since = time(f"task {task.id!r}", run[1])
            if batch and (batch[0].group is not task.group or at is None or at.devices != devices or at.since != since):
                self._place(batch, record, at)
                batch, at = [], None
            batch.append(task)
            at = at or Placement(record.row, devices, since)
            taken[task] = at
        if batch:
            self._place(batch, record, at)

    def _place(self, tasks: list[TaskRecord], machine: MachineRecord, place: Placement | None) -> None:
        """Run tasks of one group on the same devices since the same time."""
        assert place is not None
        cluster, inventory, row, cls = self.cluster, self.cluster.inventory, place.row, tasks[0].group.cls.index
        what = f"machine {machine.id!r}"
        demand: list[int] = tasks[0].group.cls.demand.tolist()
        wanted = inventory.num_asked(cls)
        if len(place.devices) != wanted or len(set(place.devices)) != wanted:
            raise InputError(f"task {tasks[0].id!r}: {wanted} devices expected, got {list(place.devices)}")
        for device in place.devices:
            if type(device) is not int or not 0 <= device < MOST_DEVICES:
                raise InputError(f"task {tasks[0].id!r}: {what} has no device {device!r}")
        for name, used, each in zip(cluster.resources.names, inventory.used(row), demand, strict=True):
            if used + len(tasks) * each > MOST_USED:
                raise InputError(f"{what}: its tasks take more of {name!r} than can be counted")
        inventory.reach_device(row, place.devices)
        tasks[0].group.waiting.remove(tasks)
        settle(cluster, tasks, *place)

    def stop(
        self,
        run: int,
        task: Hashable,
        machine: Hashable,
        demand: Sequence[int],
        devices: Sequence[int],
        share: int,
        owner: Sequence[Hashable],
    ) -> None:
        """Add a stopping run, on a machine that has not failed."""
        what, record = f"stopping run {run!r}", found(self.cluster.machines, machine, "machine")
        check_id(what, task)
        if record.failed or whole(what, run, 1, self._runs) in self.cluster.stopping:
            raise InputError(f"{what}: twice, or on a machine that has failed")
        owner = tuple(ordered(f"{what}: owner", owner))
        if len(owner) not in (0, 2):
            raise InputError(f"{what}: owner must be a job and a user, got {quoted(owner)}")
        for one in owner:
            check_id(what, one)
        held = [whole(f"{what}: devices", device, 0, MOST_DEVICES) for device in ordered(f"{what}: devices", devices)]
        amounts = tuple(self._demand(what, demand).tolist())
        self.cluster.stopping[run] = Stop(
            task, record.row, amounts, tuple(held), whole(f"{what}: share", share, 0, MICRO), owner
        )

    # -- the end ------------------------------------------------------------------------------------------------

    def finish(self) -> Cluster:
        """Return the cluster, with everything marked as changed."""
        if not self._seated:
            self._seat()
        cluster = self.cluster
        for serial, group in self.groups.items():
            if not group.tasks:
                raise InputError(f"group {serial} has no tasks")
            group.waiting.sort()
        for job in cluster.jobs.values():
            job.most = max(job.most, len(job.tasks))
            if job.job.closed and not job.tasks:
                raise InputError(f"job {job.job.id!r} is closed and has no tasks")
        for task in cluster.tasks.values():
            attempts = cluster.attempts.get(task.id)
            shuns = frozenset(attempts.failed_on) if attempts else frozenset()
            if shuns != frozenset(*task.group.cls.key[PLAIN:]):
                raise InputError(f"task {task.id!r}: its class shuns other machines")
        for id, due in cluster.resting.items():
            stop = cluster.stopping.get(cluster.tasks[id].run)
            if (due == inf) != (stop is not None and stop.task == id):
                raise InputError(f"task {id!r} rests without an end, or has a run that stops and does not rest")
        ranked = [group for _, group in sorted(self._order, key=lambda one: one[0])]
        for group in dict.fromkeys([*ranked, *self.groups.values()]):
            cluster._changes.groups.setdefault(group, {})
            if group.waiting:
                cluster.waiting.setdefault(group.cls, {})[group] = None
        for key, cls in cluster._classes.items():
            if not cls.tasks:
                cluster._idle[key] = None
        cluster._timeless += [task for task in cluster.tasks.values() if task.since is None]
        cluster.events, cluster._turn, cluster._serial = self._events, self._turn, self._serial
        cluster.runs, cluster.stale_events = self._runs, self._stale
        for task in sorted(task for task in cluster.tasks.values() if task.row >= 0 and not task.run):
            cluster.runs += 1  # for a file that does not number runs
            task.run = cluster.runs
        return cluster


def found(things: Mapping[Any, _Thing], id: Any, kind: str) -> _Thing:
    """Return the record of this id."""
    try:
        return things[id]
    except (KeyError, TypeError):
        raise UnknownIdError(f"unknown {kind} {id!r}") from None


def time(what: str, value: Any) -> float:
    """Return a finite time that an array can hold."""
    if type(value) is int and abs(value) > 1 << 1000:
        raise InputError(f"{what} must be a finite number, got one of {value.bit_length()} bits")
    return number(what, value)
