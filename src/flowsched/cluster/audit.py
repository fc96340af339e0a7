"""Consistency check of a cluster that was read from a file, before its first use.

The records are compared with each other, and the inventory with one that is rebuilt from the records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import compress, pairwise
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.boundary.validate import number
from flowsched.cluster.columns import IdPool
from flowsched.cluster.inventory import Inventory
from flowsched.cluster.membership import PLAIN, Attempts
from flowsched.cluster.model import MICRO, MOST_DEVICES, UNLIMITED, Job
from flowsched.cluster.records import Group, JobRecord, MachineRecord, TaskClass, TaskRecord, misplaced
from flowsched.cluster.state import Cluster
from flowsched.cluster.stopping import Stop
from flowsched.exceptions import InputError

__all__ = ["audit"]

_Columns = dict[str, Any]
"""Columns of `TaskRecord.__columns__` for some tasks, with the records, the indices of their classes, and group numbers."""


def audit(cluster: Cluster) -> None:
    """Refuse a cluster that contradicts itself.

    Parameters
    ----------
    cluster : Cluster
        Its attributes have the right types; nothing else is assumed.

    Raises
    ------
    InputError
        Names the contradiction.
    """
    if cluster.midway:
        raise InputError("cluster: in the middle of a change")
    _machines(cluster)
    _classes(cluster)
    columns, running, groups = _tasks(cluster)
    _retries(cluster, groups)
    _jobs(cluster)
    _groups(cluster, columns, running, groups)
    _changes(cluster)
    _inventory(cluster, running)


def _must(holds: Any, what: str) -> None:
    if not holds:
        raise InputError(f"cluster: {what}")


def _indices(indices: IdPool, used: Iterable[int], what: str) -> None:
    """Require that every index below the count is either in use or free, exactly once."""
    given = [*used, *indices._free]
    whole = {*map(type, given)} <= {int} and len(given) == indices.count
    _must(whole and sorted(given) == [*range(indices.count)], f"numbers of {what} are given twice, lost or unknown")


def _distinct(numbers: NDArray[np.int64]) -> bool:
    return bool((np.diff(np.sort(numbers)) > 0).all())


def _numbers(what: str, values: Any, least: float = -inf, *, finite: bool = True) -> None:
    """Raise the errors of `number`."""
    if isinstance(values, np.ndarray):
        values = values[~(np.isfinite(values) if finite else values >= least)].tolist()
    for value in values:
        number(what, value, least, finite=finite)


def _machines(cluster: Cluster) -> None:
    records, inventory = cluster.machines, cluster.inventory
    _must(all(type(r) is MachineRecord and r.id == id for id, r in records.items()), "a machine under another id")
    rows = {record.row: record for record in records.values()}
    _must(rows == cluster.by_row and len(rows) == len(records), "machines and their rows differ")
    gone = cluster._changes.gone
    _indices(inventory._rows, [*rows, *gone], "rows")
    count = inventory.rows
    for name in (
        "capacity",
        "free",
        "first_device",
        "num_devices",
        "slots",
        "running",
        "usable",
        "over",
        "version",
        "running_at",
    ):
        _must(len(getattr(inventory, name)) >= count, f"inventory.{name} is too short")
    width = len(cluster.resources.names)
    _must(inventory.resources is cluster.resources, "the inventory has other resources")
    for array in (inventory.capacity, inventory.free, inventory.demand):
        _must(array.shape[1] == width, "the inventory has other resources")
    _must(inventory.total.shape == (width,), "the inventory has other resources")
    first, cells = inventory.first_device, inventory.num_devices
    whose = np.flatnonzero(cells)
    whose = whose[np.argsort(first[whose], kind="stable")]
    ends = np.minimum(first[whose], 1 << 60) + cells[whose]
    apart = bool((first[whose] >= np.r_[0, ends[:-1]]).all()) if len(whose) else True
    within = 0 <= inventory._cells <= len(inventory.devices) and max(ends.tolist(), default=0) <= inventory._cells
    known = (cells >= 0).all() and (cells <= MOST_DEVICES).all() and inventory._cells_in_use == cells.sum()
    _must(apart and within and known, "devices of machines overlap, or are nowhere")
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
        "a priority occurs twice",
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


def _tasks(cluster: Cluster) -> tuple[_Columns, _Columns, dict[Group, int]]:
    """Return the columns of all tasks, those of the running tasks, and a number for each group."""
    wrong = misplaced(cluster.tasks, cluster.by_index, cluster.by_row, MOST_DEVICES)
    _must(not wrong, wrong or "")
    records, numbered = list(cluster.tasks.values()), cluster.by_index
    columns: _Columns = {**TaskRecord.__columns__(records), "record": records}
    known = len(numbered) - numbered.count(None) == len(records) and len(numbered) >= cluster._indices.count
    _must(known, "tasks and their numbers differ")
    _indices(cluster._indices, columns["index"].tolist(), "tasks")
    turn, run, row = columns["turn"], columns["run"], columns["row"]
    _must(_distinct(turn) and turn.max(initial=0) <= cluster._turn, "turns of tasks are not in order")
    begun = run[run != 0]
    within = begun.min(initial=1) > 0 and begun.max(initial=0) <= cluster.runs
    _must(within and _distinct(begun), "runs are numbered twice")
    _numbers("task: preempted", columns["preempted"], finite=False)
    _numbers("task: duration", columns["duration"], 0, finite=False)
    since = columns["since"]
    plain = isinstance(since, np.ndarray)
    _numbers("task: since", since[since == since] if plain else [one for one in since if one is not None])
    # A record is in at most one chain, so equal totals mean that each chain has exactly its tasks.
    of_jobs, of_machines = (sum(len(one.tasks) for one in some.values()) for some in (cluster.jobs, cluster.machines))
    _must(of_jobs == len(records) and of_machines == (row >= 0).sum(), "a job or a machine and its tasks differ")
    groups = {group: number for number, group in enumerate(dict.fromkeys(columns["group"]))}
    classes = [group.cls.index for group in groups]
    columns["number"] = np.fromiter(map(groups.__getitem__, columns["group"]), np.intp, len(records))
    columns["class"] = np.array(classes, np.int64)[columns["number"]]
    there = row >= 0
    running = {name: columns[name][there] for name in ("row", "index", "turn", "class", "number")}
    running |= {name: np.array(columns[name], np.float64)[there] for name in ("began", "duration")}
    running["devices"] = [*compress(columns["devices"], there.tolist())]
    _running(cluster, running)
    return columns, running, groups


def _running(cluster: Cluster, columns: _Columns) -> None:
    inventory, row, since = cluster.inventory, columns["row"], columns["began"]
    mine, index = inventory.tasks, columns["index"]
    for name in ("class_id", "turn", "since", "end"):
        _must(len(getattr(mine, name)) == len(mine.row), f"inventory.tasks.{name} has another length")
    _must(index.max(initial=-1) < len(mine.row), "a running task is not in the inventory")
    rows = np.full(len(mine.row), -1, np.int64)
    rows[index] = row
    for name, right in (("class_id", columns["class"]), ("turn", columns["turn"]), ("since", since)):
        _must(np.array_equal(getattr(mine, name)[index], right), "the inventory has other tasks")
    _must(np.array_equal(mine.end[index], since + columns["duration"]), "the inventory has other expected ends")
    _must(np.array_equal(rows, mine.row), "the inventory has tasks elsewhere")
    estimated = int((mine.end[rows >= 0] < np.inf).sum())
    _must(mine.estimated == estimated, "the inventory counts other estimates")


def _retries(cluster: Cluster, groups: Iterable[Group]) -> None:
    attempts, resting = cluster.attempts, cluster.resting
    _must(
        attempts.keys() <= cluster.tasks.keys() and resting.keys() <= cluster.tasks.keys(), "retries of an unknown task"
    )
    for tries in attempts.values():
        kept = (
            type(tries) is Attempts and type(tries.left) is int and tries.left >= 0 and type(tries.failed_on) is tuple
        )
        _must(kept, "retries that cannot be")
        number("retries: backoff", tries.backoff, 0)
    width = len(cluster.resources.names)
    for run, stop in cluster.stopping.items():
        _must(type(run) is int and 0 < run <= cluster.runs and type(stop) is Stop, "a run that cannot stop")
        _must(stop.row in cluster.by_row and not cluster.by_row[stop.row].failed, "a run stops on no machine")
        amounts = (*stop.demand, stop.share, *stop.devices)
        whole = len(stop.demand) == width and all(type(n) is int and 0 <= n < 1 << 60 for n in amounts)
        _must(whole and stop.share <= MICRO, "a run that cannot stop")
        _must(type(stop.owner) is tuple and len(stop.owner) in (0, 2), "a stopping run without an owner")
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
    shuns: dict[Group, frozenset[Any]] = {group: frozenset(*group.cls.key[PLAIN:]) for group in groups}
    # Without attempts, and without a class that shuns machines, nothing can differ.
    for record in cluster.tasks.values() if any(shuns.values()) else map(cluster.tasks.__getitem__, attempts):
        failed_on = attempts[record.id].failed_on if record.id in attempts else ()
        _must(shuns[record.group] == frozenset(failed_on), "a class that shuns other machines")


def _jobs(cluster: Cluster) -> None:
    _must(all(type(j) is JobRecord and j.job.id == id for id, j in cluster.jobs.items()), "a job under another id")
    groups: set[Group] = set()
    for job in cluster.jobs.values():
        said = job.job
        made = type(said) is Job and Job(said.id, said.user, said.priority, said.gang, said.deadline, said.closed)
        _must(made == said and (job.tasks or not said.closed), "a job that cannot be")
        for group in job.each_group():
            same = type(group) is Group and group.job is job and type(group.cls) is TaskClass
            _must(same and job.group_of(group.key) is group and group not in groups, "a group under another key")
            groups.add(group)
        _must(job.most >= len(job.tasks), "a job and its tasks differ")
        _must(said.user is None or said.user in cluster.users, "a job of an unknown user")
    serials = [group.serial for group in groups] + [job.serial for job in cluster.jobs.values()]
    _must(len(set(serials)) == len(serials) and max(serials, default=0) <= cluster._serial, "serials are not in order")


def _places(running: _Columns) -> dict[tuple[int, int], list[float]]:
    """Return the start times of the tasks of a group on a machine, by the number of the group and the row."""
    order = np.lexsort((running["row"], running["number"]))
    number, row = running["number"][order], running["row"][order]
    first = np.flatnonzero((np.diff(number, prepend=-1) != 0) | (np.diff(row, prepend=-1) != 0))
    since = running["began"][order].tolist()
    ranges = pairwise([*first.tolist(), len(since)])
    keys = zip(number[first].tolist(), row[first].tolist(), strict=True)
    return {key: sorted(since[start:end]) for key, (start, end) in zip(keys, ranges, strict=True)}


def _groups(cluster: Cluster, columns: _Columns, running: _Columns, groups: dict[Group, int]) -> None:
    members = dict(zip(groups, np.bincount(columns["number"], minlength=len(groups)).tolist(), strict=True))
    for id in cluster.resting:
        members[cluster.tasks[id].group] -= 1
    members = {group: tasks for group, tasks in members.items() if tasks}
    of_jobs = {group for job in cluster.jobs.values() for group in job.each_group()}
    _must(members.keys() == of_jobs, "groups and tasks differ")
    count = Counter(cluster.tasks[id].group.cls for id in cluster.resting)
    _must(all(cluster.by_class.get(cls.index) is cls for cls in count), "a group of an unknown class")
    queues: dict[Group, list[TaskRecord]] = {}
    for record in compress(columns["record"], (columns["row"] < 0).tolist()):
        if record.id not in cluster.resting:
            queues.setdefault(record.group, []).append(record)
    on = _places(running)
    waiting: dict[TaskClass, dict[Group, None]] = {}
    for group, tasks in members.items():
        _must(cluster.by_class.get(group.cls.index) is group.cls, "a group of an unknown class")
        count[group.cls] += tasks
        queue = sorted(queues.get(group, ()))
        _must(group.tasks == tasks and list(group.waiting) == queue, "a group and its tasks differ")
        for row, since in group.on.items():
            there = on.pop((groups[group], row), None)
            _must(there is not None and sorted(map(float, since)) == there, "a group runs elsewhere")
        if queue:
            waiting.setdefault(group.cls, {})[group] = None
    _must(not on, "a group runs elsewhere")
    _must(cluster.waiting == waiting, "waiting tasks differ")
    _must(all(cls.tasks == count[cls] for cls in cluster.by_class.values()), "a class and its tasks differ")
    for cls, ids in cluster._waiting_ids.items():
        of = [task.id for group in cluster.waiting.get(cls, ()) for task in group.waiting]
        _must(list(ids) == of, "waiting tasks differ")
    _must(all(type(t) is TaskRecord for t in cluster._timeless), "a task to be dated is no task")
    dated = set(cluster._timeless)
    undated = (one for group in members for one in group.waiting if one.since is None)
    _must(all(one in dated for one in undated), "a waiting task without a time is not to be dated")
    _must(all(user.id == id for id, user in cluster.users.items()), "a user under another id")


def _changes(cluster: Cluster) -> None:
    changes = cluster._changes
    rows = range(cluster.inventory.rows)
    for group, touched in changes.groups.items():
        _must(type(group) is Group and group.tasks > 0 and all(row in rows for row in touched), "a change of no group")
    _must(all(type(group) is Group and not group.tasks for group in changes.removed), "a group that is not gone")
    _must(all(row in cluster.by_row for row in changes.machines), "a change of no machine")


def _inventory(cluster: Cluster, running: _Columns) -> None:
    """Compare the inventory with one that is rebuilt from the records."""
    inventory, fresh = cluster.inventory, Inventory(cluster.resources)
    fresh.rule = inventory.rule
    for priority in inventory.levels:  # numbered in order of appearance
        fresh._classes._free = [0]
        fresh.add_class(np.zeros(len(cluster.resources.names), np.int64), {}, priority)
        fresh.drop_class(0)
    for index, cls in cluster.by_class.items():
        fresh._classes._free, fresh._classes.count = [index], max(fresh._classes.count, index + 1)
        fresh.add_class(cls.demand, cls.constraints, cls.priority, cls.tolerations)
        kind, spread, avoids = _wishes(cls)
        fresh.affinity.add_class(index, kind, spread, avoids)
    fresh._rows.count = inventory.rows
    alike: dict[tuple[int, int, int, int], list[MachineRecord]] = {}
    for record in cluster.by_row.values():
        parts = id(record.capacity), id(record.labels), id(record.slots), id(record.taints)
        alike.setdefault(parts, []).append(record)
    for some in alike.values():
        fresh._rows._free = [record.row for record in reversed(some)]
        capacity = cluster.resources.capacity("capacity", some[0].capacity)
        fresh.add_machines(capacity, some[0].machine, [record.rack for record in some])
    for row, record in cluster.by_row.items():
        fresh.usable[row] = not (record.failed or record.drained)
    takes = Counter(zip(running["row"].tolist(), running["class"].tolist(), running["devices"], strict=True))
    for (row, cls, devices), count in takes.items():
        fresh.reach_device(row, devices)
        fresh.take(row, cls, devices, count)
    rows = list(cluster.by_row)
    for name in ("capacity", "free", "slots", "running", "usable", "over"):
        _must(
            np.array_equal(getattr(inventory, name)[rows], getattr(fresh, name)[rows]),
            f"inventory.{name} contradicts the records",
        )
    # Former tasks on devices that the machine no longer has may have left positions behind.
    at = np.array(rows, np.int64)
    longer = inventory.num_devices[at] - fresh.num_devices[at]
    same = np.array_equal(inventory.rooms_in_line(at[longer == 0]), fresh.rooms_in_line(at[longer == 0]))
    same = same and bool((longer >= 0).all())
    for row in at[longer > 0].tolist() if same else ():
        same = same and np.array_equal(np.trim_zeros(inventory.rooms(row), "b"), np.trim_zeros(fresh.rooms(row), "b"))
    _must(same, "inventory.devices contradicts the records")
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
    _must(all(inventory._asks.get(i) == fresh._asks[i] for i in live), "demands of classes differ")
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
    _must(same, "the machines that classes shun contradict the records")
    _affinity(inventory, fresh, set(live), bool(cluster._changes.gone))
    _shapes(inventory, fresh, rows, live)


def _wishes(cls: TaskClass) -> tuple[Any, tuple[int | None, int | None], frozenset[Any]]:
    """Return kind, limits and avoided kinds of a class, from its key."""
    _, _, _, kind, _, _, spread, _, avoids = cls.key[:PLAIN]
    return kind, spread, avoids


def _affinity(inventory: Inventory, fresh: Inventory, live: set[int], leaving: bool) -> None:
    mine, made = inventory.affinity, fresh.affinity
    _must({c: k for c, k in mine._classes.items() if c in live} == made._classes, "kinds of classes differ")
    _must(all(type(rows) is dict for rows in mine._rows.values()), "a rack that is no mapping")
    _must({row: rack for rack, rows in mine._rows.items() for row in rows} == mine._rack, "racks and machines differ")
    _must(sum(map(len, mine._rows.values())) == len(mine._rack), "a machine in two racks")
    _must(all(mine._rack.get(row) == rack for row, rack in made._rack.items()), "a machine of another rack")
    if mine._classes.keys() <= live and not leaving:
        for name in ("_on", "_in", "_rack", "_rows", "_spread", "_avoided", "fussy"):
            _must(getattr(mine, name) == getattr(made, name), f"affinity{name} contradicts the records")
    _must(type(mine._top) is int and made._top <= mine._top <= inventory.rows, "affinity has too few or too many rows")


def _shapes(inventory: Inventory, fresh: Inventory, rows: list[int], live: list[int]) -> None:
    mine, made = inventory.suitability, fresh.suitability
    _indices(mine._indices, mine._keys, "shapes")
    _must(all(mine._shapes.get(key) == shape for shape, key in mine._keys.items()), "a shape under another key")
    _must(len(mine._shapes) == len(mine._keys) and mine._users.keys() == mine._keys.keys(), "shapes differ")
    _must({*mine.of[rows].tolist()} <= mine._keys.keys(), "a machine of no shape")
    users = Counter(mine.of[mine.of >= 0].tolist())
    _must(users == Counter(mine._users), "shapes and machines differ")
    for his, its in {*zip(mine.of[rows].tolist(), made.of[rows].tolist(), strict=True)}:
        _must(mine._keys[his] == made._keys[its], "a machine of another shape")
    size = mine._indices.count
    big = (
        max(live, default=-1) < len(mine._suits)
        and mine._suits.shape == mine._holds.shape
        and mine._suits.shape[1] >= size
    )
    _must(big, "suitability of classes is missing")
    _must(all(mine._wants.get(cls) == made._wants[cls] for cls in live), "requirements of classes differ")
    for shape, key in mine._keys.items():
        other = made._shapes.get(key)
        if other is not None:
            same = (mine._suits[live, shape] == made._suits[live, other]) & (
                mine._holds[live, shape] == made._holds[live, other]
            )
            _must(same.all(), "suitability of classes differs")
    _must(mine.device == made.device, "devices differ")
