"""Schedulers to compare with: one task after the other, in an order, onto the machine that a choice prefers.

They decide by requests, as the FIFO, Capacity and Fair schedulers of YARN and DRF do; under `flowsched.fgm.FineGrained`
they are Algorithm 1 of FGM, its greedy form.  The tasks of a gang start together or not at all.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.boundary.validate import number
from flowsched.cluster import MICRO, Cluster, Resources, Task
from flowsched.cluster.events import EndedRun, Event
from flowsched.cluster.model import GPU_MODEL, MOST_DEVICES
from flowsched.cluster.records import Group, JobRecord, TaskClass, TaskRecord, Transaction
from flowsched.exceptions import InputError
from flowsched.policy.fragmentation import FragmentationCost
from flowsched.rounds.reasons import Waiting, judge
from flowsched.rounds.values import Commit, Place, ReasonCode, Round, RoundStats
from flowsched.scheduler import Scheduler
from flowsched.sim.orders import Order, Shares, Turns, fifo

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


_TYPICAL = 0.95
"""Part of the tasks whose kinds are expected."""


@dataclass
class Plan:
    """Tasks that a round starts: a trial, and the deltas that it amounts to.

    `gangs` numbers the gangs of the tasks that start together.
    """

    transaction: Transaction
    deltas: list[Place] = field(default_factory=list)
    gangs: dict[Hashable, int] = field(default_factory=dict)


class Room:
    """Number of further tasks of each waiting class that each machine can take, and its load, as tasks start.

    `rows` are the machines' rows in the inventory, in the order of the columns.  `fits` has shape (classes, machines);
    `line` and `column` are the places there of a class and of a machine's row.  `load` is the requested fraction of each
    machine, as a mean over its resources.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.rows: Ints = np.array(list(cluster.by_row), np.int64)
        self._classes: Ints = np.array([cls.index for cls in cluster.waiting], np.int64)
        self.line = {cls: i for i, cls in enumerate(cluster.waiting)}  # also of those of which all tasks start
        self.column = {row: i for i, row in enumerate(self.rows.tolist())}
        self.fits = self._fits(self.rows)
        self.load = self._load(self.rows)

    def of(self, cls: TaskClass) -> Ints:
        """Return the number of further tasks of a class that each machine can take, shape (machines,)."""
        line: Ints = self.fits[self.line[cls]]
        return line

    def refresh(self, row: int) -> None:
        """Look at a machine again."""
        one = np.array([row])
        self.fits[:, self.column[row]] = self._fits(one)[:, 0]
        self.load[self.column[row]] = self._load(one)[0]

    def _fits(self, rows: Ints) -> Ints:
        inventory = self.cluster.inventory
        if not len(rows) or not len(self._classes):
            return np.zeros((len(self._classes), len(rows)), np.int64)
        slots = np.maximum(inventory.slots[rows] - inventory.running[rows], 0)
        fits: Ints = np.minimum(inventory.room(self._classes, rows)[0], slots)
        return fits

    def _load(self, rows: Ints) -> Floats:
        inventory = self.cluster.inventory
        total = inventory.capacity[rows].astype(np.float64)
        has = total > 0
        used = np.divide(total - inventory.free[rows], total, out=np.zeros_like(total), where=has).sum(axis=1)
        mean: Floats = used / np.maximum(has.sum(axis=1), 1)
        return mean


Choice = Callable[[Room, TaskClass, Ints], Floats]
"""Scores of machines (columns of a `Room`) for a task of a class: it starts on the first of the least score."""


Pick = Callable[[Room, TaskClass, int], tuple[int, ...] | None]
"""Devices for a task of a class on a machine (a row), where it has room by all else; None for no room."""


def emptiest(room: Room, cls: TaskClass, columns: Ints) -> Floats:
    """Prefer the machine with the least load."""
    load: Floats = room.load[columns]
    return load


def first(room: Room, cls: TaskClass, columns: Ints) -> Floats:
    """Prefer the machine that came first."""
    return columns.astype(np.float64)


def lacking(job: JobRecord) -> int:
    """Return the number of tasks of a job that must start together: 1, or the number that its gang lacks."""
    return max(job.lacks, 1)


def together(group: Group) -> list[TaskRecord] | None:
    """Return the next waiting task of a group, with those that must start with it; None where its gang lacks tasks."""
    lack = lacking(group.job)
    if lack == 1:
        return [group.waiting[0]]
    tasks = sorted(task for g in group.job.each_group() for task in g.waiting)[:lack]
    return tasks if len(tasks) == lack else None


class Greedy:
    """Starts tasks in an order, each on the machine that a choice prefers of those with room; running tasks stay.

    The choice is by default the emptiest machine.  With a `delay`, tasks with data wait for a near machine, see there;
    without it, data do not matter.  `pick` selects the devices that a task takes; without it, the fullest one that has
    room for a share, and the first free ones.
    """

    def __init__(
        self,
        order: Order,
        resources: Resources | Collection[str] = ("cpu", "mem", "gpu"),
        choice: Choice = emptiest,
        delay: DelayScheduling | None = None,
        pick: Pick | None = None,
    ) -> None:
        for name, given in (("order", order), ("choice", choice)):
            if not callable(given):
                raise InputError(f"{name}: a callable expected, got {given!r}")
        self.order = order
        self.choice = choice
        self.delay = delay
        self.pick = pick
        self._now = 0.0  # of the round
        self._inner = Scheduler(resources=resources if isinstance(resources, Resources) else tuple(resources))
        self.cluster = self._inner.cluster

    def apply(self, *events: Event) -> tuple[EndedRun, ...]:
        """Apply events."""
        return self.cluster.apply(*events)

    def invalidate(self, classes: Collection[int]) -> None:
        """Do nothing: every round looks at every machine."""

    def schedule(self, now: float, time_limit: float | None = None) -> Round:
        """Decide; see `Scheduler.schedule`.  The time limit is not needed."""
        begin = time.perf_counter()
        self._now = now
        self.cluster.changes(now)
        transaction = Transaction(self.cluster, now)
        plan = Plan(transaction)
        try:
            if self.cluster.waiting and self.cluster.by_row:
                self._place(plan, Room(self.cluster))
            waiting = self._waiting()
            turns = {task.id: before.turn for task, before in transaction.before.items()}
        finally:
            transaction.rollback()
        stats = RoundStats(0, 0, 0, 1, 0.0, 0.0, time.perf_counter() - begin)
        placements = {delta.task: delta.machine for delta in plan.deltas}
        devices = {delta.task: delta.devices for delta in plan.deltas}
        deltas = tuple(plan.deltas)
        return Round(now, placements, {}, {}, devices, waiting, deltas, stats, turns=turns, gangs=plan.gangs)

    def _place(self, plan: Plan, room: Room) -> None:
        """Start tasks of the group with the least key until none that waits has room."""
        shares = Shares(self.cluster)
        full = {cls for cls, some in zip(room.line, np.any(room.fits, axis=1), strict=True) if not some}
        groups = [
            group
            for cls, members in self.cluster.waiting.items()
            if cls not in full
            for group in members
            if group.waiting
        ]
        kinds = len(room.line)
        turns = Turns(self.order, groups, shares)
        short: set[int] = set()

        def over(group: Group) -> bool:
            if group.cls not in full and not room.of(group.cls).any():
                full.add(group.cls)
            return group.cls in full or not group.waiting or group.job.serial in short

        def done() -> bool:
            return len(full) == kinds

        while (group := turns.next(over, done)) is not None:
            tasks = together(group)
            if tasks is not None and self._start(tasks, plan, room):
                for task in tasks:
                    shares.add(task.group)
                continue
            turns.leave()
            if tasks is None or len(tasks) > 1:
                short.add(group.job.serial)

    def _start(self, tasks: list[TaskRecord], plan: Plan, room: Room, most: Ints | None = None) -> bool:
        """Start tasks together, or none of them and return False.

        `most` bounds the number of starts on each machine, shape (machines,).
        """
        for cls, count in Counter(task.group.cls for task in tasks).items() if len(tasks) > 1 else ():
            if (room.of(cls) if most is None else np.minimum(room.of(cls), most)).sum() < count:
                return False
        began, left = len(plan.deltas), None if most is None else most.copy()
        for task in tasks:
            fits = room.of(task.group.cls) if left is None else np.minimum(room.of(task.group.cls), left)
            column = self._start_one(task, np.flatnonzero(fits > 0), plan, room)
            if column is None:
                self._take_back(tasks, plan, room, began)
                return False
            if left is not None:
                left[column] -= 1
        if len(tasks) > 1:
            number = len(plan.gangs)
            plan.gangs.update((task.id, number) for task in tasks)
        return True

    def _start_one(self, task: TaskRecord, columns: Ints, plan: Plan, room: Room) -> int | None:
        """Start a task on one of these machines; return its column, None if no machine takes the task."""
        cls = task.group.cls
        if self.delay is not None:
            columns = columns[self.delay.nearest(self.cluster, task, room.rows[columns], self._now)]
        while len(columns):
            column = int(columns[self.choice(room, cls, columns).argmin()])
            row = int(room.rows[column])
            devices = self.cluster.inventory.pick(row, cls.index)
            if devices and self.pick is not None:
                devices = self.pick(room, cls, row)
            if devices is not None:
                plan.transaction.start([task], row, devices)
                plan.deltas.append(Place(task.id, self.cluster.by_row[row].id, devices))
            room.refresh(row)
            if devices is not None:
                return column
            columns = columns[columns != column]
        return None

    def _take_back(self, tasks: list[TaskRecord], plan: Plan, room: Room, began: int) -> None:
        """Undo the deltas from index `began` on, which are those of the first tasks."""
        for task in tasks[: len(plan.deltas) - began]:
            row = task.row
            plan.transaction.restore(task)
            room.refresh(row)
        del plan.deltas[began:]

    def _waiting(self) -> Waiting:
        inventory, groups = self.cluster.inventory, []
        every = np.flatnonzero(inventory.shapes().of_row >= 0)
        for cls in self.cluster.waiting:
            why = np.zeros(inventory.rows, np.uint32)
            why[every] = inventory.room(np.array([cls.index]), every)[1][0]
            code = ReasonCode.PENDING if (why[every] == 0).any() else None
            groups.append((self.cluster.waiting_ids(cls), judge(inventory, cls, why, code), None))
        return Waiting(groups)

    def commit(self, round: Round, only: Collection[Hashable] | None = None) -> Commit:
        """Commit a round; see `Scheduler.commit`."""
        done = self._inner.commit(round, only)
        if self.delay is not None:
            placed = (delta.task for delta in done.accepted if isinstance(delta, Place))
            self.delay.started(self.cluster, placed, round.now)
        return done


class DelayScheduling:
    """Delay scheduling: a job waits for a machine with its data (`Task.data`), then for one in such a machine's rack.

    Algorithm 1 of FGM requires it before it matches a task with a machine.  Source: Zaharia et al., "Delay Scheduling",
    EuroSys 2010, algorithm 2.  A job's wait begins when it is first passed over, and again when it starts a task on a
    machine with its data.  For `machine` seconds it takes only machines with its task's data, for `rack` seconds after
    that also machines of their racks; then any.
    """

    def __init__(self, machine: float, rack: float = 0.0) -> None:
        self.machine = number("machine", machine, 0, finite=False)
        self.rack = number("rack", rack, 0, finite=False)
        self._since: dict[Hashable, float] = {}  # by job: when its wait began

    def nearest(self, cluster: Cluster, task: TaskRecord, rows: Ints, now: float) -> Ints:
        """Return positions of the rows that a task may take now: nearest to its data; all, if no machine has them."""
        known = (cluster.machines.get(id) for id, amount in task.group.data if amount > 0)
        here = [record for record in known if record is not None and cluster.inventory.usable[record.row]]
        every = np.arange(len(rows))
        if not here:
            return every
        near = np.flatnonzero(np.isin(rows, [record.row for record in here]))
        if len(near):
            return near
        waited = now - self._since.setdefault(task.group.job.job.id, now)
        racks = {record.rack for record in here if record.rack is not None}
        in_rack = np.array([cluster.by_row[row].rack in racks for row in rows.tolist()], np.bool_)
        if waited >= self.machine and in_rack.any():
            return np.flatnonzero(in_rack)
        return every if waited >= self.machine + self.rack else every[:0]

    def started(self, cluster: Cluster, tasks: Iterable[Hashable], now: float) -> None:
        """Note the tasks that a commit started: a job whose task runs on a machine with its data starts to wait again."""
        for id in tasks:
            task = cluster.tasks[id]
            if any(machine == cluster.by_row[task.row].id for machine, _ in task.group.data):
                self._since[task.group.job.job.id] = now
        for job in self._since.keys() - cluster.jobs.keys():
            del self._since[job]


class LeastFragmentation:
    """The choice of FGD (Weng et al., "Beware of Fragmentation", USENIX ATC 2023), given the tasks to be expected.

    It is the least fragmentation for tasks like these, as in the authors' simulator: a score is the descent of a
    machine's fragmentation, drawn to (0, 1) by the logistic function, in whole percent.  A task with a share of a GPU
    takes the GPU with the best score, and this is the score of the machine.  Of equal GPUs or machines the first is
    taken; there are many.  Memory does not count, a task without GPUs cannot use any, and the rarest kinds of tasks, 5
    % of all, are left out.
    """

    def __init__(self, tasks: Iterable[Task], names: Sequence[str]) -> None:
        self._cost = FragmentationCost(_typical(tasks, Resources(tuple(names))), repeat=0.0)
        self._known: dict[int, tuple[TaskClass, Ints, Floats]] = {}  # of each class: versions of machines, and scores

    def __call__(self, room: Room, cls: TaskClass, columns: Ints) -> Floats:
        """Return scores of machines, less is better; those of machines that have not changed are known."""
        inventory, rows = room.cluster.inventory, room.rows[columns]
        known = self._known.get(cls.index)
        if known is None or known[0] is not cls or len(known[1]) < len(inventory.version):
            known = cls, np.full(len(inventory.version), -1, np.int64), np.zeros(len(inventory.version))
            self._known[cls.index] = known
        _, version, scores = known
        stale = rows[version[rows] != inventory.version[rows]]
        if len(stale):
            scores[stale] = self._scores(room, cls, stale).max(axis=1)
            version[stale] = inventory.version[stale]
        return -scores[rows]

    def pick(self, room: Room, cls: TaskClass, row: int) -> tuple[int, ...] | None:
        """Return the devices that a task takes."""
        if room.cluster.inventory.device_share(cls.index) == MICRO:
            return room.cluster.inventory.pick(row, cls.index)
        return (int(self._scores(room, cls, np.array([row])).argmax()),)

    def _scores(self, room: Room, cls: TaskClass, rows: Ints) -> Floats:
        """Return the scores of machines with room, shape (rows, 1), or of their devices for a share, -1 where it has no room."""
        cluster = room.cluster
        if 0 < cluster.inventory.device_share(cls.index) < MICRO:
            added = self._cost.added_by_device(cluster, cls.index, rows)
        else:
            added = self._cost.added(cluster, np.array([cls.index]), rows)[0][:, None]
        return np.where(np.isnan(added), -1.0, np.floor(100.0 / (1.0 + np.exp(added))))


def _typical(tasks: Iterable[Task], resources: Resources) -> list[tuple[Task, float]]:
    """Return the kinds of tasks that FGD weighs machines with; one without GPUs fits nowhere, so all GPUs are lost to it.

    Of kinds that are equally frequent at the end of the list, the ones with the largest requests are kept, as in the source.
    """
    plain = []
    for task in tasks:
        amounts = resources.demand(f"task {task.id!r}", task.demand) / MICRO
        demand = {name: float(v) for name, v in zip(resources.names, amounts, strict=True) if name != "mem"}
        plain.append(Task(task.id, demand, task.constraints, tolerations=task.tolerations))
    kinds = sorted(
        FragmentationCost.of(plain).workload, key=lambda kind: _frequency(kind[0], kind[1], resources), reverse=True
    )
    before = np.cumsum([0.0, *(times for _, times in kinds)])
    typical = [kind for kind, count in zip(kinds, before, strict=False) if count < _TYPICAL * before[-1]]
    if resources.device is None:
        return typical
    nowhere = Task("no GPU", {resources.device: 2 * MOST_DEVICES})
    return [(task if task.demand[resources.device] else nowhere, times) for task, times in typical]  # type: ignore[call-overload]


def _frequency(task: Task, times: float, resources: Resources) -> tuple[Any, ...]:
    """Return a kind's frequency, CPUs (or all resources but GPUs), share of each GPU, number of GPUs, and models."""
    demand = dict(task.demand)  # type: ignore[arg-type]
    gpus = demand.pop(resources.device or "", 0.0)
    return times, *demand.values(), min(gpus, 1.0), gpus, "|".join(map(str, task.constraints.get(GPU_MODEL, ())))


def at_random(seed: int) -> tuple[Order, Choice, Pick]:
    """Return an order of groups, a choice of machines and one of devices that are drawn at random.

    The place of a group is drawn at its first use.
    """
    rng = np.random.default_rng(seed)
    places: dict[int, float] = {}

    def order(group: Group, shares: Shares) -> tuple[float, ...]:
        place = places.get(group.serial)
        if place is None:
            place = places[group.serial] = rng.random()
        return (place,)

    def choice(room: Room, cls: TaskClass, columns: Ints) -> Floats:
        scores: Floats = rng.random(len(columns))
        return scores

    def pick(room: Room, cls: TaskClass, row: int) -> tuple[int, ...] | None:
        inventory = room.cluster.inventory
        share = inventory.device_share(cls.index)
        if share == MICRO:
            return inventory.pick(row, cls.index)
        return (int(rng.choice(np.flatnonzero(inventory.rooms(row) >= share))),)

    return order, choice, pick


class Tetris(Greedy):
    """Starts the task that is best aligned with the free amounts of a machine, then the next best.

    The alignment is the scalar product of demand and free amounts, as parts of the largest machine (Grandl et al.,
    "Multi-Resource Packing for Cluster Schedulers", SIGCOMM 2014, section 3.2).  Its preference for short jobs is left
    out.
    """

    def __init__(self, resources: Resources | Collection[str] = ("cpu", "mem", "gpu")) -> None:
        super().__init__(fifo, resources, self._misaligned)

    def _place(self, plan: Plan, room: Room) -> None:
        queues = [[g for g in members if g.waiting] for members in self.cluster.waiting.values()]
        for members in queues:
            members.sort(key=lambda group: -group.job.serial)
        demand, free = self._parts(room, list(self.cluster.waiting), np.arange(len(room.rows)))
        score = np.where(room.fits > 0, demand @ free.T, -1.0)
        while True:
            line, column = np.unravel_index(score.argmax(), score.shape)
            if score[line, column] < 0:
                return
            members = queues[line]
            tasks = together(members[-1]) if members and members[-1].waiting else None
            if tasks is None or not self._start(tasks, plan, room):
                if members:
                    members.pop()
                if not members:
                    score[line] = -1.0
                continue
            for task in tasks:
                at = np.array([room.column[task.row]])
                free = self._parts(room, [], at)[1]
                score[:, at] = np.where(room.fits[:, at] > 0, demand @ free.T, -1.0)

    def _misaligned(self, room: Room, cls: TaskClass, columns: Ints) -> Floats:
        demand, free = self._parts(room, [cls], columns)
        scores: Floats = -(free @ demand[0])
        return scores

    def _parts(self, room: Room, classes: Collection[TaskClass], columns: Ints) -> tuple[Floats, Floats]:
        """Return demands and free amounts as parts of the largest machine, shapes (classes, k) and (columns, k)."""
        inventory = self.cluster.inventory
        scale = 1.0 / np.maximum(inventory.capacity[room.rows].max(axis=0), 1)
        demand = np.array([cls.demand for cls in classes]).reshape(len(classes), len(scale)) * scale
        return demand, inventory.free[room.rows[columns]] * scale
