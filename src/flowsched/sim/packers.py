"""Schedulers that pack: Tetris, the fragmentation gradient of FGD, and placement at random."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster import MICRO, Resources, Task
from flowsched.cluster.model import GPU_MODEL, MOST_DEVICES
from flowsched.cluster.records import Group, TaskClass
from flowsched.policy.fragmentation import FragmentationCost
from flowsched.sim.baselines import Greedy, Order, Shares, fifo
from flowsched.sim.room import Choice, Pick, Plan, Room, together

__all__ = ["LeastFragmentation", "Tetris", "at_random"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


_TYPICAL = 0.95
"""Part of the tasks whose kinds are expected."""


class LeastFragmentation:
    """The choice of FGD (Weng et al., "Beware of Fragmentation", USENIX ATC 2023): where least is spoiled for tasks like these.

    It is that of the authors' simulator: a score is the descent of a machine's fragmentation, drawn to (0, 1) by the
    logistic function, in whole percent.  A task with a share of a GPU takes the GPU with the best score, and this is
    the score of the machine.  Of equal GPUs or machines the first is taken; there are many.  Memory does not count, a
    task without GPUs has no use of any, and the rarest kinds of tasks, 5 % of all, are left out.

    Parameters
    ----------
    tasks : iterable of Task
        The tasks to be expected.
    names : sequence of str
        The resources.
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

    Of kinds that are equally frequent at the end of the list those that ask for most are kept, as in the source.
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
    """Return how frequent a kind is, then CPUs (or all but GPUs), the share of each GPU, how many, and which models."""
    demand = dict(task.demand)  # type: ignore[arg-type]
    gpus = demand.pop(resources.device or "", 0.0)
    return times, *demand.values(), min(gpus, 1.0), gpus, "|".join(map(str, task.constraints.get(GPU_MODEL, ())))


def at_random(seed: int) -> tuple[Order, Choice, Pick]:
    """Return an order of groups, a choice of machines and one of devices that are drawn at random.

    The place of a group is drawn when it is first asked for.
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
    """Starts the task that is best aligned with what a machine has left, then the next best.

    The alignment is the scalar product of demand and free amounts, as parts of the largest machine (Grandl et al.,
    "Multi-Resource Packing for Cluster Schedulers", SIGCOMM 2014, section 3.2).  Its preference for short jobs is left out.

    Parameters
    ----------
    resources : sequence of str or Resources
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
                at = np.array([room.column(task.row)])
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
