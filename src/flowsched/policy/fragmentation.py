"""Expected fragmentation: place a task where it leaves most of the devices (GPUs) usable for tasks still to come.

The waste of a machine is the free part of its devices that a random task of the workload cannot use::

    waste = sum over kinds m of p_m * lost_m        p_m: part of the workload's tasks of kind m

    lost_m = all free devices                       if no task of kind m fits (CPU, memory, constraints)
           = devices too small for one of m         otherwise, the devices with less free than m needs      ("one more")
           = free - total of tasks of kind m alone  until some resource runs out                            ("many more")

"One more" is the measure of FGD (Weng et al., "Beware of Fragmentation", USENIX ATC 2023, section 3), except for tasks
that need no device: in FGD they lose all that is free, here nothing while they fit.  "Many more" considers more tasks:
a machine with CPUs for one more task but not for all its devices counts as wasted already.  `repeat` mixes
the two; on that paper's trace at saturation 0 allocates 95.1 % of the GPUs, 1 95.5 %, and 0.5 95.7 %.

The cost of a placement is the waste x that it adds to its machine, in devices, mapped from (-inf, inf) to (0, 1) by
``0.5 + 0.5 * x / (1 + |x|)``: 0.5 without a change, less if it fills room that few others could use.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from flowsched.boundary.validate import instance, number, ordered, quoted
from flowsched.cluster import MICRO, Cluster, Resources, Task
from flowsched.cluster.columns import grown
from flowsched.cluster.inventory import Inventory
from flowsched.cluster.shapes import Shapes, unsuited
from flowsched.exceptions import InputError
from flowsched.policy.placement import become_weight, check_weight

__all__ = ["FragmentationCost"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_BLOCK = 4096
"""Number of machine states that are evaluated at once: a few MB for a workload of hundreds of kinds."""

_SMALL = 1 << 16
"""Number of device positions, all machines counted like the largest, up to which machines are evaluated together."""

_ALIKE = 256
"""Number of machines from which on a search for equal states saves time."""


@dataclass(frozen=True)
class FragmentationCost:
    """Cost of the devices that a placement makes unusable for the workload.

    Parameters
    ----------
    workload : sequence of (Task, float)
        Expected kinds of task, each with its frequency; ids do not matter.  `of` counts tasks.
    repeat : float
        From 0 (a device is usable if one more task can use it, as in FGD) to 1 (if many can).
    weight : float
        Weight relative to other placement costs.
    """

    workload: Sequence[tuple[Task, float]]
    repeat: float = 0.5
    weight: float = 1.0
    _ledgers: WeakKeyDictionary[Cluster, _Ledger] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "workload", ordered("FragmentationCost: workload", self.workload))
        if not self.workload:
            raise InputError("FragmentationCost: workload is empty; at least one kind of task expected")
        for i, kind in enumerate(self.workload):
            if not isinstance(kind, tuple) or len(kind) != 2:
                raise InputError(f"FragmentationCost: workload[{i}] must be (Task, number), got {quoted(kind)}")
            task, times = kind
            instance(f"FragmentationCost: workload[{i}]", task, Task)
            check_weight(f"FragmentationCost: workload[{i}]", times)
        object.__setattr__(self, "repeat", number("FragmentationCost: repeat", self.repeat, 0, 1))
        become_weight(self)

    @classmethod
    def of(cls, tasks: Iterable[Task], repeat: float = 0.5, weight: float = 1.0) -> FragmentationCost:
        """Return the cost for a workload like these tasks.

        Parameters
        ----------
        tasks : iterable of Task
            A sample of the workload, for instance the tasks of a trace.
        repeat, weight : float
            See the class.
        """
        counts: dict[Any, list[Any]] = {}
        for i, task in enumerate(ordered("FragmentationCost: tasks", tasks)):
            instance(f"FragmentationCost: tasks[{i}]", task, Task)
            demand = task.demand
            amounts = tuple(sorted(demand.items())) if isinstance(demand, Mapping) else tuple(demand)
            counts.setdefault((amounts, tuple(task.constraints.items()), task.tolerations), [task, 0])[1] += 1
        return cls([(task, float(count)) for task, count in counts.values()], repeat, weight)

    def __reduce__(self) -> tuple[Any, ...]:
        kinds = [
            (task.id, _plain(task.demand), dict(task.constraints), task.tolerations, times)
            for task, times in self.workload
        ]
        return _rebuilt, (kinds, self.repeat, self.weight)

    def waste(self, cluster: Cluster, rows: Ints) -> Floats:
        """Return the expected waste of machines in their present state, in devices, shape (rows,)."""
        return self._ledger(cluster).now(cluster.inventory, rows)

    def __call__(self, cluster: Cluster, classes: Ints, rows: Ints) -> Floats:
        """Return the cost in (0, 1), shape (classes, rows); 0.5 where the class does not fit now."""
        added = self.added(cluster, classes, rows)
        return 0.5 + 0.5 * added / (1.0 + np.abs(added))

    def added(self, cluster: Cluster, classes: Ints, rows: Ints) -> Floats:
        """Return the expected waste that a task of a class adds to a machine, in devices, shape (classes, rows); 0 where it does not fit now."""
        if cluster.resources.device_index < 0:
            return np.zeros((len(classes), len(rows)))
        return self._ledger(cluster).added(cluster.inventory, classes, rows)

    def added_by_device(self, cluster: Cluster, cls: int, rows: Ints) -> Floats:
        """Return the expected waste that a task of a class with a share of a device adds on each, shape (rows, devices); nan without room."""
        return self._ledger(cluster).added_by_device(cluster.inventory, cls, rows)

    def _ledger(self, cluster: Cluster) -> _Ledger:
        ledger = self._ledgers.get(cluster)
        if ledger is None:
            ledger = self._ledgers[cluster] = _Ledger(_Kinds(cluster.resources, self.workload, self.repeat))
        return ledger


def _plain(demand: Mapping[str, float] | Sequence[float]) -> dict[str, float] | tuple[float, ...]:
    return dict(demand) if isinstance(demand, Mapping) else tuple(demand)


def _rebuilt(kinds: Sequence[tuple[Any, Any, Any, Any, float]], repeat: float, weight: float) -> FragmentationCost:
    """Return the cost from plain data, since tasks and ledgers cannot be pickled."""
    tasks = [
        (Task(name, demand, wants, tolerations=tolerated), times) for name, demand, wants, tolerated, times in kinds
    ]
    return FragmentationCost(tasks, repeat, weight)


class _Kinds:
    """A workload in arrays: kinds of demand as columns, and their frequency on machines of each shape.

    Tasks that differ only in their constraints are one column: the constraints are in the shapes' weights.
    """

    def __init__(self, resources: Resources, workload: Sequence[tuple[Task, float]], repeat: float) -> None:
        self.repeat = repeat
        self.device = resources.device_index
        demands = [resources.demand(f"workload[{i}]: demand", task.demand) for i, (task, _) in enumerate(workload)]
        demand, column = np.unique(np.array(demands), axis=0, return_inverse=True)
        self.column: Ints = column.reshape(-1)
        self.wants = [(task.constraints, tuple(task.tolerations)) for task, _ in workload]
        times = np.array([times for _, times in workload], np.float64)
        self.part: Floats = times / times.sum()
        # A resource that is not needed never runs out.
        self.demand: Floats = np.where(demand > 0, demand, np.nan)
        devices = demand[:, self.device] if self.device >= 0 else np.zeros(len(demand), np.int64)
        self.asks: Floats = devices / MICRO
        self.whole: Floats = np.maximum(devices // MICRO, 1).astype(np.float64)
        self.shares, self.share_of = np.unique(np.minimum(devices, MICRO), return_inverse=True)
        self._shapes: Shapes | None = None
        self._weights: Floats = np.zeros((0, 0))

    def weights(self, shapes: Shapes) -> Floats:
        """Return the part of the workload by shape of machine and kind of demand, shape (shapes, kinds)."""
        if shapes is not self._shapes:
            self._weights = np.zeros((max(shapes.keys, default=-1) + 1, len(self.demand)))
            for shape, key in shapes.keys.items():
                suits = [not any(unsuited(key, *wants)) for wants in self.wants]
                np.add.at(self._weights[shape], self.column[suits], self.part[suits])
            self._shapes = shapes
        return self._weights

    def waste(self, free: Ints, devices: Ints, weights: Floats) -> Floats:
        """Return the expected waste of machines in some states, shape (n,).

        `free` has shape (n, D), `devices`, the free part of each device, (n, G), and `weights`, those of the machine's
        shape, (n, kinds).
        """
        shares = np.maximum(self.shares, 1)
        of_share = (devices[:, :, None] // shares).sum(axis=1)
        tasks = of_share[:, self.share_of] / self.whole
        tasks[:, self.asks == 0] = math.inf
        for d in range(free.shape[1]):
            if d != self.device:
                np.fmin(tasks, free[:, d, None] / self.demand[:, d], out=tasks)
        tasks = np.floor(tasks)
        left = devices.sum(axis=1)[:, None] / MICRO
        crumbs = np.where(devices[:, :, None] < shares, devices[:, :, None], 0).sum(axis=1)[:, self.share_of] / MICRO
        filled = np.where(self.asks > 0, tasks, 0.0) * self.asks
        many = np.where(self.asks > 0, left - filled, 0.0)
        lost = np.where(
            tasks >= 1, self.repeat * many + (1.0 - self.repeat) * np.where(self.asks > 0, crumbs, 0.0), left
        )
        total: Floats = left[:, 0] + ((lost - left) * weights).sum(axis=1)
        return total


class _Ledger:
    """Waste of every machine of a cluster, worked out again only after changes."""

    def __init__(self, kinds: _Kinds) -> None:
        self.kinds = kinds
        self._waste: Floats = np.zeros(8)
        self._version: Ints = np.full(8, -1, np.int64)

    def now(self, inventory: Inventory, rows: Ints) -> Floats:
        """Return the waste of machines in their present state."""
        top = int(rows.max(initial=-1)) + 1
        self._waste, self._version = grown(self._waste, top), grown(self._version, top, fill=-1)
        stale = rows[self._version[rows] != inventory.version[rows]]
        if len(stale):
            for part in _parts(inventory, stale):
                some = stale[part]
                self._waste[some] = self._weigh(inventory, inventory.free[some], inventory.rooms_of(some), some)
            self._version[stale] = inventory.version[stale]
        waste: Floats = self._waste[rows]
        return waste

    def added(self, inventory: Inventory, classes: Ints, rows: Ints) -> Floats:
        """Return the growth of each machine's waste by one more task of each class, 0 where it does not fit."""
        before = self.now(inventory, rows)
        added = np.zeros((len(classes), len(rows)))
        for part in _parts(inventory, rows):
            added[:, part] = self._added(inventory, classes, rows[part], before[part])
        return added

    def _added(self, inventory: Inventory, classes: Ints, rows: Ints, before: Floats) -> Floats:
        """Return `added` for machines with known waste."""
        added = np.zeros((len(classes), len(rows)))
        kinds, same = _alike(inventory, rows) if len(rows) >= _ALIKE else (np.arange(len(rows)), None)
        for i, cls in enumerate(classes.tolist()):
            fits, free, devices = _placed(inventory, cls, rows[kinds])
            into = np.zeros(len(kinds))
            at = kinds[fits]
            into[fits] = self._weigh(inventory, free, devices, rows[at]) - before[at]
            added[i] = into if same is None else into[same]
        return added

    def added_by_device(self, inventory: Inventory, cls: int, rows: Ints) -> Floats:
        """Return the growth of each machine's waste by one more task on each of its devices, nan without room there."""
        share, devices = inventory.device_share(cls), inventory.rooms_of(rows)
        fits = (inventory.free[rows] >= inventory.demand[cls]).all(axis=1)
        at, on = np.nonzero(fits[:, None] & (devices >= share))
        after = devices[at]
        after[np.arange(len(at)), on] -= share
        added = np.full(devices.shape, math.nan)
        added[at, on] = self._weigh(inventory, inventory.free[rows[at]] - inventory.demand[cls], after, rows[at])
        return added - self.now(inventory, rows)[:, None]

    def _weigh(self, inventory: Inventory, free: Ints, devices: Ints, rows: Ints) -> Floats:
        weights = self.kinds.weights(inventory.shapes())
        waste = np.zeros(len(rows))
        for part in _blocks(len(rows)):
            left = np.maximum(free[part], 0), np.maximum(devices[part], 0)
            waste[part] = self.kinds.waste(*left, weights[inventory.suitability.of[rows[part]]])
        return waste


def _blocks(count: int) -> Iterator[slice]:
    return (slice(start, min(start + _BLOCK, count)) for start in range(0, count, _BLOCK))


def _parts(inventory: Inventory, rows: Ints) -> list[Any]:
    """Return the positions of machines with similar numbers of devices: together unless much memory would be empty."""
    count = inventory.num_devices[rows]
    if count.max(initial=0) * len(rows) <= max(4 * count.sum(), _SMALL):
        return [slice(None)]
    wide = np.frexp(count)[1]
    return [np.flatnonzero(wide == one) for one in np.unique(wide)]


def _alike(inventory: Inventory, rows: Ints) -> tuple[Ints, Ints]:
    """Return the position of one machine of each state, and the state of each row as an index of these."""
    state = np.concatenate(
        [inventory.suitability.of[rows, None], inventory.free[rows], np.sort(inventory.rooms_of(rows), axis=1)], axis=1
    )
    _, first, same = np.unique(state, axis=0, return_index=True, return_inverse=True)
    return first, same.reshape(-1)


def _placed(inventory: Inventory, cls: int, rows: Ints) -> tuple[NDArray[np.bool_], Ints, Ints]:
    """Return True where a task of the class fits by resources, and the room there after its start (on the devices of `Inventory.pick`)."""
    demand, devices = inventory.demand[cls], inventory.rooms_of(rows)
    share = inventory.device_share(cls)
    fits = (inventory.free[rows] >= demand).all(axis=1)
    if share == MICRO:
        whole = devices == MICRO
        count = int(demand[inventory.resources.device_index]) // MICRO
        fits &= whole.sum(axis=1) >= count
        devices = np.where(whole & (whole.cumsum(axis=1) <= count), 0, devices)[fits]
    elif share:
        room = np.where(devices >= share, devices, 2 * MICRO)
        fits &= (room <= MICRO).any(axis=1)
        devices, room = devices[fits], room[fits]
        devices[np.arange(len(devices)), room.argmin(axis=1)] -= share
    else:
        devices = devices[fits]
    return fits, inventory.free[rows][fits] - demand, devices
