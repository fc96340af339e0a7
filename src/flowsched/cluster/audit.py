"""Does a cluster hold together?  For one that was read from a file, before anything goes by it.

The records are compared with each other, and the inventory with one that is made anew from the records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import inf
from typing import Any

import numpy as np

from flowsched.boundary.validate import number
from flowsched.cluster.columns import IdPool
from flowsched.cluster.inventory import Inventory
from flowsched.cluster.membership import PLAIN, Attempts
from flowsched.cluster.model import MICRO, UNLIMITED, Job
from flowsched.cluster.records import Group, JobRecord, MachineRecord, TaskClass, TaskRecord
from flowsched.cluster.state import Cluster
from flowsched.cluster.stopping import Stop
from flowsched.exceptions import InputError

__all__ = ["audit"]


def audit(cluster: Cluster) -> None:
    """Refuse a cluster that contradicts itself.

    Parameters
    ----------
    cluster : Cluster
        Its attributes are of the right types; nothing else is taken for granted.

    Raises
    ------
    InputError
        What contradicts what.
    """
    if cluster.midway:
        raise InputError("cluster: in the middle of a change")
    _machines(cluster)
    _classes(cluster)
    _tasks(cluster)
    _retries(cluster)
    _groups(cluster)
    _changes(cluster)
    _inventory(cluster)


def _must(holds: Any, what: str) -> None:
    if not holds:
        raise InputError(f"cluster: {what}")


def _indices(indices: IdPool, used: Iterable[int], what: str) -> None:
    """Every index below the count is in use or free, and just once."""
    seen = Counter([*used])
    seen.update(indices._free)
    most = max(seen.values(), default=1)
    whole = all(type(index) is int and 0 <= index < indices.count for index in seen)
    _must(whole and len(seen) == indices.count and most == 1, f"numbers of {what} are given twice, lost or unknown")


def _machines(cluster: Cluster) -> None:
    records, inventory = cluster.machines, cluster.inventory
    _must(all(type(r) is MachineRecord and r.id == id for id, r in records.items()), "a machine under another id")
    rows = {record.row: record for record in records.values()}
    _must(rows == cluster.by_row and len(rows) == len(records), "machines and their rows differ")
    gone = cluster._changes.gone
    _indices(inventory._rows, [*rows, *gone], "rows")
    count = inventory.rows
    for name in ("capacity", "free", "devices", "slots", "running", "usable", "version", "running_at"):
        _must(len(getattr(inventory, name)) >= count, f"inventory.{name} is too short")
    width = len(cluster.resources.names)
    _must(inventory.resources is cluster.resources, "the inventory has other resources")
    for array in (inventory.capacity, inventory.free, inventory.demand):
        _must(array.shape[1] == width, "the inventory has other resources")
    _must(inventory.total.shape == (width,), "the inventory has other resources")
    _must(len(inventory.suitability.of) >= count or not rows, "shapes of rows are missing")


def _classes(cluster: Cluster) -> None:
    inventory = cluster.inventory
    by_class, by_key = cluster.by_class, cluster._classes
    _must(all(type(c) is TaskClass and c.index == i for i, c in by_class.items()), "a class under another number")
    _must(all(type(key) is tuple and cls.key == key for key, cls in by_key.items()), "a class under another key")
    _must({id(c) for c in by_key.values()} == {id(c) for c in by_class.values()}, "classes by key and by number differ")
    _indices(inventory._classes, [*by_class, *cluster._changes.classes], "classes")
    for name in ("demand", "priority", "level"):
        _must(len(getattr(inventory, name)) >= inventory._classes.count, f"inventory.{name} is too short")
    _must(all(type(level) is int for level in inventory.levels), "a priority that is no number")
    _must(
        len(set(inventory.levels)) == len(inventory.levels) == len(inventory._running_by_level),
        "priorities are told twice",
    )
    _must(inventory.running_at.shape[1] >= len(inventory.levels), "inventory.running_at is too narrow")
    width = len(cluster.resources.names)
    for cls in by_class.values():
        _must(cls.demand.shape == (width,) and (cls.demand >= 0).all(), "a demand for other resources")
        _must(cls.priority in inventory.levels, "a class of unknown priority")
        _must(all(type(label) is str for label in cls.constraints), "a constraint on no label")
        known = cls.demand.tobytes(), tuple(cls.constraints.items()), cls.priority, cls.kind, tuple(cls.prefers.items())
        _must(
            cls.key[:6] == (*known, cls.tolerations) and len(cls.key) in (PLAIN, PLAIN + 1), "a class under another key"
        )
        _must(all(type(shuns) is frozenset and shuns for shuns in cls.key[PLAIN:]), "a class under another key")
    _must(cluster._idle.keys() == {c.key for c in by_class.values() if not c.tasks}, "idle classes differ")


def _tasks(cluster: Cluster) -> None:
    inventory, tasks = cluster.inventory, cluster.tasks
    _must(all(type(t) is TaskRecord and t.id == id for id, t in tasks.items()), "a task under another id")
    known = {record.index: record for record in tasks.values()}
    _indices(cluster._indices, known, "tasks")
    there = {i: record for i, record in enumerate(cluster.by_index) if record is not None}
    _must(known == there, "tasks and their numbers differ")
    turns = {record.turn for record in known.values()}
    _must(len(turns) == len(known) and max(turns, default=0) <= cluster._turn, "turns of tasks are not in order")
    runs = [record.run for record in known.values() if record.run]
    _must(len(set(runs)) == len(runs) and all(0 < run <= cluster.runs for run in runs), "runs are numbered twice")
    width = inventory.devices.shape[1]
    running: dict[int, list[TaskRecord]] = {}
    for record in known.values():
        _must(not record.gone, "a task that has left is still there")
        number("task: preempted", record.preempted, finite=False)
        number("task: duration", record.duration, 0, finite=False)
        number("task: since", 0.0 if record.since is None else record.since)
        row, devices, since = record.row, record.devices, record.began
        if row >= 0:
            _must(type(row) is int and type(devices) is tuple and isinstance(since, float | int), "a task runs nowhere")
            _must(row in cluster.by_row, "a task runs on no machine")
            _must(record.run, "a run without a number")
            _must(all(type(d) is int and 0 <= d < width for d in devices), "a task runs on no device")
            running.setdefault(row, []).append(record)
    for row, machine in cluster.by_row.items():
        on = running.get(row, [])
        _must(set(machine.tasks) == set(on), "a machine and its tasks differ")
    size = len(inventory.tasks.row)
    for name in ("class_id", "turn", "since", "end"):
        _must(len(getattr(inventory.tasks, name)) == size, f"inventory.tasks.{name} has another length")
    rows = np.full(size, -1, np.int64)
    for row, on in running.items():
        for record in on:
            i, since = record.index, float(record.began)
            _must(i < size, "a running task is not in the inventory")
            rows[i] = row
            here = int(inventory.tasks.class_id[i]), int(inventory.tasks.turn[i]), float(inventory.tasks.since[i])
            _must(here == (record.group.cls.index, record.turn, since), "the inventory tells other tasks")
            end = since + record.duration
            _must(float(inventory.tasks.end[i]) == end, "the inventory tells other expected ends")
    _must(np.array_equal(rows, inventory.tasks.row), "the inventory has tasks elsewhere")
    estimated = int((inventory.tasks.end[rows >= 0] < np.inf).sum())
    _must(inventory.tasks.estimated == estimated, "the inventory counts other estimates")


def _retries(cluster: Cluster) -> None:
    attempts, resting = cluster.attempts, cluster.resting
    _must(
        attempts.keys() <= cluster.tasks.keys() and resting.keys() <= cluster.tasks.keys(), "retries of an unknown task"
    )
    for told in attempts.values():
        kept = type(told) is Attempts and type(told.left) is int and told.left >= 0 and type(told.failed_on) is tuple
        _must(kept, "retries that cannot be")
        number("retries: backoff", told.backoff, 0)
    width = len(cluster.resources.names)
    for run, stop in cluster.stopping.items():
        _must(type(run) is int and 0 < run <= cluster.runs and type(stop) is Stop, "a run that cannot stop")
        _must(stop.row in cluster.by_row and not cluster.by_row[stop.row].failed, "a run stops on no machine")
        amounts = (*stop.demand, stop.share, *stop.devices)
        whole = len(stop.demand) == width and all(type(n) is int and 0 <= n < 1 << 60 for n in amounts)
        _must(whole and stop.share <= MICRO, "a run that cannot stop")
        _must(type(stop.owner) is tuple and len(stop.owner) in (0, 2), "a run that stops for nobody")
    for id, due in resting.items():
        number("task: rests", 0.0 if due is None else due, finite=False)
        task = cluster.tasks[id]
        last = cluster.stopping.get(task.run)
        _must((due == inf) == (last is not None and last.task == id), "a task that rests without an end")
        _must(due == inf or (id in attempts and attempts[id].failed_on), "a task that rests and has not failed")
        group, job = task.group, cluster.jobs.get(task.group.job.job.id)
        alone = type(group) is Group and not (group.tasks or group.on or group.waiting or group.serial)
        _must(alone and group.job is job and task.row < 0, "a task that does not rest")
        _must(group.cls.priority == group.job.job.priority, "a task that rests in a class of another priority")
    for record in cluster.tasks.values():
        failed_on = attempts[record.id].failed_on if record.id in attempts else ()
        _must(frozenset(*record.group.cls.key[PLAIN:]) == frozenset(failed_on), "a class that shuns other machines")


def _groups(cluster: Cluster) -> None:
    members: dict[Group, list[TaskRecord]] = {}
    count: Counter[TaskClass] = Counter()
    resting: dict[JobRecord, set[TaskRecord]] = {}
    for record in cluster.tasks.values():
        if record.id in cluster.resting:
            _must(cluster.by_class.get(record.group.cls.index) is record.group.cls, "a group of an unknown class")
            resting.setdefault(record.group.job, set()).add(record)
            count[record.group.cls] += 1
            continue
        members.setdefault(record.group, []).append(record)
    _must(all(type(j) is JobRecord and j.job.id == id for id, j in cluster.jobs.items()), "a job under another id")
    groups: dict[Group, None] = {}
    for job in cluster.jobs.values():
        told = job.job
        made = type(told) is Job and Job(told.id, told.user, told.priority, told.gang, told.deadline, told.closed)
        _must(made == told and (job.tasks or not told.closed), "a job that cannot be")
        for group in job.each_group():
            same = type(group) is Group and group.job is job and type(group.cls) is TaskClass
            _must(same and job.group_of(group.key) is group and group not in groups, "a group under another key")
            groups[group] = None
        mine = {t for group in job.each_group() for t in members.get(group, ())} | resting.get(job, set())
        _must(mine == set(job.tasks) and job.most >= len(mine), "a job and its tasks differ")
        _must(job.job.user is None or job.job.user in cluster.users, "a job of an unknown user")
    _must(members.keys() == groups.keys(), "groups and tasks differ")
    serials = [group.serial for group in groups] + [job.serial for job in cluster.jobs.values()]
    _must(len(set(serials)) == len(serials) and max(serials, default=0) <= cluster._serial, "serials are not in order")
    waiting: dict[TaskClass, dict[Group, None]] = {}
    for group, tasks in members.items():
        _must(cluster.by_class.get(group.cls.index) is group.cls, "a group of an unknown class")
        count[group.cls] += len(tasks)
        queue = sorted((t for t in tasks if t.row < 0), key=lambda t: t.turn)
        _must(group.tasks == len(tasks) and list(group.waiting) == queue, "a group and its tasks differ")
        on: dict[int, list[float]] = {}
        for task in tasks:
            if task.row >= 0:
                on.setdefault(task.row, []).append(task.began)
        known = {row: sorted(since) for row, since in group.on.items()}
        _must(known == {row: sorted(since) for row, since in on.items()}, "a group runs elsewhere")
        if queue:
            waiting.setdefault(group.cls, {})[group] = None
    _must(cluster.waiting == waiting, "what waits differs")
    _must(all(cls.tasks == count[cls] for cls in cluster.by_class.values()), "a class and its tasks differ")
    for cls, ids in cluster._waiting_ids.items():
        of = [task.id for group in cluster.waiting.get(cls, ()) for task in group.waiting]
        _must(list(ids) == of, "what waits differs")
    _must(all(type(t) is TaskRecord for t in cluster._timeless), "what waits since no time is no task")
    _must(all(user.id == id for id, user in cluster.users.items()), "a user under another id")


def _changes(cluster: Cluster) -> None:
    changes = cluster._changes
    rows = range(cluster.inventory.rows)
    for group, touched in changes.groups.items():
        _must(type(group) is Group and group.tasks > 0 and all(row in rows for row in touched), "a change of no group")
    _must(all(type(group) is Group and not group.tasks for group in changes.removed), "a group that is not gone")
    _must(all(row in cluster.by_row for row in changes.machines), "a change of no machine")


def _inventory(cluster: Cluster) -> None:
    """Made anew from the records, they must be the same."""
    inventory, fresh = cluster.inventory, Inventory(cluster.resources)
    for priority in inventory.levels:  # numbered in the order in which they were met
        fresh._classes._free = [0]
        fresh.add_class(np.zeros(len(cluster.resources.names), np.int64), {}, priority)
        fresh.drop_class(0)
    for index, cls in cluster.by_class.items():
        fresh._classes._free, fresh._classes.count = [index], max(fresh._classes.count, index + 1)
        fresh.add_class(cls.demand, cls.constraints, cls.priority, cls.tolerations)
        kind, spread, avoids = _wishes(cls)
        fresh.affinity.add_class(index, kind, spread, avoids)
    fresh._rows.count = inventory.rows
    for row, record in cluster.by_row.items():
        fresh._rows._free = [row]
        fresh.add_machine()
        capacity = cluster.resources.capacity("capacity", record.capacity)
        fresh.describe(row, capacity, record.machine)
        fresh.usable[row] = not (record.failed or record.drained)
        for task in record.tasks:
            fresh.take(row, task.group.cls.index, task.devices)
    rows = list(cluster.by_row)
    for name in ("capacity", "free", "slots", "running", "usable"):
        _must(
            np.array_equal(getattr(inventory, name)[rows], getattr(fresh, name)[rows]),
            f"inventory.{name} is not what the records tell",
        )
    wide = min(inventory.devices.shape[1], fresh.devices.shape[1])
    same = np.array_equal(inventory.devices[rows, :wide], fresh.devices[rows, :wide])
    _must(same and not inventory.devices[rows, wide:].any(), "inventory.devices is not what the records tell")
    levels = len(inventory.levels)
    _must(
        np.array_equal(inventory.running_at[rows, :levels], fresh.running_at[rows, :levels]),
        "inventory.running_at differs",
    )
    _must(
        inventory._running_by_level == fresh._running_by_level and inventory.levels == fresh.levels,
        "running tasks by priority differ",
    )
    live = list(cluster.by_class)
    for name in ("demand", "priority", "level"):
        _must(np.array_equal(getattr(inventory, name)[live], getattr(fresh, name)[live]), f"inventory.{name} differs")
    _must(all(inventory._asks.get(i) == fresh._asks[i] for i in live), "what classes ask for differs")
    _must(0 <= inventory.arranged <= inventory.clock, "machines changed after now")
    _must(bool((inventory.version[: inventory.rows] <= inventory.clock).all()), "a row changed after now")
    _must((inventory.slots[rows] >= 0).all() and (inventory.slots[rows] <= UNLIMITED).all(), "slots beyond all bounds")
    for index in live:
        for shuns in cluster.by_class[index].key[PLAIN:]:
            fresh.shunned.add_class(index, shuns)
    fresh.review({id: record.row for id, record in cluster.machines.items()})
    mine, made = inventory.shunned, fresh.shunned
    same = mine.ids == made.ids and mine._rows.keys() == made._rows.keys()
    same = same and all(
        type(mine._rows[i]) is np.ndarray and np.array_equal(mine._rows[i], made._rows[i])
        for i in live
        if i in made.ids
    )
    _must(same, "what classes shun is not what the records tell")
    _affinity(inventory, fresh, set(live), bool(cluster._changes.gone))
    _shapes(inventory, fresh, rows, live)


def _wishes(cls: TaskClass) -> tuple[Any, tuple[int | None, int | None], frozenset[Any]]:
    """Return kind, limits and avoided kinds of a class, from its key."""
    _, _, _, kind, _, _, spread, _, avoids = cls.key[:PLAIN]
    return kind, spread, avoids


def _affinity(inventory: Inventory, fresh: Inventory, live: set[int], leaving: bool) -> None:
    mine, made = inventory.affinity, fresh.affinity
    _must({c: k for c, k in mine._classes.items() if c in live} == made._classes, "kinds of classes differ")
    if mine._classes.keys() <= live and not leaving:
        for name in ("_on", "_in", "_rack", "_rows", "_spread", "_avoided", "fussy"):
            _must(getattr(mine, name) == getattr(made, name), f"affinity{name} is not what the records tell")
    _must(type(mine._top) is int and made._top <= mine._top <= inventory.rows, "affinity has too few or too many rows")


def _shapes(inventory: Inventory, fresh: Inventory, rows: list[int], live: list[int]) -> None:
    mine, made = inventory.suitability, fresh.suitability
    _indices(mine._indices, mine._keys, "shapes")
    _must(all(mine._shapes.get(key) == shape for shape, key in mine._keys.items()), "a shape under another key")
    _must(len(mine._shapes) == len(mine._keys) and mine._users.keys() == mine._keys.keys(), "shapes differ")
    _must(all(int(mine.of[row]) in mine._keys for row in rows), "a machine of no shape")
    users = Counter(mine.of[mine.of >= 0].tolist())
    _must(users == Counter(mine._users), "shapes and machines differ")
    for row in rows:
        _must(mine._keys[int(mine.of[row])] == made._keys[int(made.of[row])], "a machine of another shape")
    size = mine._indices.count
    big = (
        max(live, default=-1) < len(mine._suits)
        and mine._suits.shape == mine._holds.shape
        and mine._suits.shape[1] >= size
    )
    _must(big, "what suits classes is missing")
    _must(all(mine._wants.get(cls) == made._wants[cls] for cls in live), "what classes want differs")
    for shape, key in mine._keys.items():
        other = made._shapes.get(key)
        if other is not None:
            same = (mine._suits[live, shape] == made._suits[live, other]) & (
                mine._holds[live, shape] == made._holds[live, other]
            )
            _must(same.all(), "what suits classes differs")
    _must(mine.device == made.device, "devices differ")
