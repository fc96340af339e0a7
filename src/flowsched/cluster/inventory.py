"""The numbers of the world in arrays: what every machine has, what is free of it, and what fits into that.

Rows are machines, columns resources (int64 micro-units).  Two kinds of dense index meet here, each handed out from a
free list so that equal histories give equal indices: *rows* (machines) and *classes* (tasks of the same demand,
constraints and priority).  What a class can ever run on is in `shapes`, who may run beside whom in `affinity`.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.affinity import Affinity
from flowsched.cluster.columns import IdPool, Viewed, grown
from flowsched.cluster.model import MICRO, UNLIMITED, Resources
from flowsched.cluster.shapes import Shapes, Suitability

__all__ = [
    "COMPANY",
    "DOWN",
    "LABEL",
    "RESOURCE",
    "SLOTS",
    "SPREAD",
    "UNLIMITED",
    "FitRule",
    "Inventory",
]

Ints = NDArray[np.int64]

DOWN, LABEL, SLOTS, HELD, RESOURCE = 1, 2, 4, 8, 16
"""Bits that say what keeps a class off a machine: `RESOURCE << d` for resource d."""

SPREAD, COMPANY = 1 << 30, 1 << 31
"""Bits for who runs there: too many tasks of the same kind in the rack; on the machine, or of a kind that must not be near."""


class FitRule(Protocol):
    """Decides, instead of the sum of what tasks ask for, whether resources suffice; devices stay with the books.

    Both are asked between changes of the world only, and must agree: where `room` says that a task fits, `admits` may
    still refuse, but must then `Inventory.touch` the row, and `room` must not say so again before something has changed.
    """

    def room(self, classes: Ints, rows: Ints) -> tuple[Ints, NDArray[np.uint32]]:
        """As `Inventory.room`, as far as resources other than devices go."""
        ...

    def admits(self, row: int, cls: int, without: Sequence[Any] = ()) -> bool:
        """Whether one more task of the class fits beside what runs there, but for the task records in `without`."""
        ...

    def spare(self, row: int, cls: int, most: int) -> int:
        """How many tasks of the class, up to `most`, fit there together, each of which `admits` would let in; or 0."""
        ...


@dataclass(frozen=True, slots=True)
class _Asks:
    """A class in Python's own numbers: amounts that are not 0 by resource, share of each of so many devices, level."""

    amounts: tuple[tuple[int, int], ...]
    share: int
    devices: int
    level: int


class Inventory(Viewed):
    """Capacity, free room and running tasks of all machines; demands of all classes.

    Attributes
    ----------
    capacity, free : ndarray of int64, shape (rows, D)
        The device column of `free` is the sum of the row's `devices`.
    total : ndarray of int64, shape (D,)
        Capacity of all machines together.
    devices : ndarray of int64, shape (rows, G)
        What is free of each device; 0 for devices that the machine does not have.
    slots, running : ndarray of int64, shape (rows,)
        Most tasks at once (`UNLIMITED` without a limit), and tasks now.
    usable : ndarray of bool, shape (rows,)
        Takes new tasks: neither failed nor drained.
    held : ndarray of int64, shape (rows,)
        The class that the row is kept for, -1 without one.
    version : ndarray of int64, shape (rows,)
        Value of `clock` when the row last changed.
    running_at : ndarray of int64, shape (rows, levels)
        Running tasks by priority; column l is priority ``levels[l]``.
    demand : ndarray of int64, shape (classes, D)
    priority : ndarray of int64, shape (classes,)
    task_row, task_class, task_turn : ndarray of int64, shape (tasks,)
        By index of the task: where it runs (-1 if it does not), and if so, its class and its turn.
    task_since : ndarray of float64, shape (tasks,)
        Since when it runs, if it does.
    makes : Suitability
        Which class can ever run on which machine.
    rule : FitRule or None
        Who decides whether resources suffice; None for "what tasks ask for must not exceed the capacity".
    """

    def __init__(self, resources: Resources) -> None:
        self.resources = resources
        self.clock = 0
        d = len(resources.names)
        self.capacity: Ints = np.zeros((8, d), np.int64)
        self.free: Ints = np.zeros((8, d), np.int64)
        self.total: Ints = np.zeros(d, np.int64)
        self.devices: Ints = np.zeros((8, 1), np.int64)
        self.slots: Ints = np.zeros(8, np.int64)
        self.running: Ints = np.zeros(8, np.int64)
        self.usable: NDArray[np.bool_] = np.zeros(8, np.bool_)
        self.held: Ints = np.full(8, -1, np.int64)
        self.version: Ints = np.zeros(8, np.int64)
        self.running_at: Ints = np.zeros((8, 4), np.int64)
        self.levels: list[int] = []
        self._running_by_level: list[int] = []
        self.demand: Ints = np.zeros((8, d), np.int64)
        self.priority: Ints = np.zeros(8, np.int64)
        self.level: Ints = np.zeros(8, np.int64)
        self.makes = Suitability(resources.device_index)
        self.task_row: Ints = np.full(8, -1, np.int64)
        self.task_class: Ints = np.zeros(8, np.int64)
        self.task_turn: Ints = np.zeros(8, np.int64)
        self.task_since: NDArray[np.float64] = np.zeros(8)
        self.rule: FitRule | None = None
        self.affinity = Affinity()
        self._rows, self._classes = IdPool(), IdPool()
        self._asks: dict[int, _Asks] = {}
        self._holding = 0
        self._view()

    def _view(self) -> None:
        """Single numbers are read and written through these views: several times as fast as through NumPy."""
        self._free, self._devices = self.free.data, self.devices.data
        self._running, self._slots = self.running.data, self.slots.data
        self._running_at, self._version = self.running_at.data, self.version.data
        self._task_row, self._task_class, self._task_turn = (
            self.task_row.data,
            self.task_class.data,
            self.task_turn.data,
        )
        self._task_since: Any = self.task_since.data

    @property
    def rows(self) -> int:
        """Rows in use or once used: all rows are below it."""
        return self._rows.count

    # -- machines -----------------------------------------------------------------------------------------------

    def add_machine(self) -> int:
        """A row for a new machine; `describe` must follow."""
        row = self._rows.take()
        for name in ("capacity", "free", "devices", "slots", "running", "usable", "version", "running_at"):
            setattr(self, name, grown(getattr(self, name), row + 1))
        self.held = grown(self.held, row + 1, fill=-1)
        self._view()
        self.capacity[row] = self.free[row] = self.devices[row] = self.running[row] = self.running_at[row] = 0
        return row

    def describe(
        self, row: int, capacity: Ints, labels: Mapping[str, str], slots: int | None, rack: Hashable | None = None
    ) -> None:
        """Set what a machine has; what its tasks take stays taken."""
        used = self.capacity[row] - self.free[row]
        self.total += capacity - self.capacity[row]
        self.capacity[row] = capacity
        self.free[row] = capacity - used
        g = self.resources.device_index
        if g >= 0:
            count = int(capacity[g]) // MICRO
            had = int((used[g] + self.devices[row].sum()) // MICRO)
            self.devices = grown(self.devices, row + 1, count)
            self._view()
            self.devices[row, had:count] = MICRO
            self.devices[row, count:] = 0
        self.slots[row] = UNLIMITED if slots is None else slots
        self.makes.settle(row, capacity, labels, slots)
        self.touch(row)
        self._touch_all(self.affinity.settle(row, rack))

    def drop_machine(self, row: int) -> None:
        """Give the row back; nothing may run there."""
        self.total -= self.capacity[row]
        self.capacity[row] = 0
        self.makes.unsettle(row)
        self.usable[row] = False
        self.affinity.unsettle(row)
        self._unhold(row)
        self.version[row] = 0
        self._rows.give(row)

    def touch(self, row: int) -> None:
        """The row changed."""
        self.clock += 1
        self._version[row] = self.clock

    def _touch_all(self, rows: Collection[int]) -> None:
        if rows:
            self.clock += 1
            self.version[list(rows)] = self.clock

    def changed_since(self, clock: int) -> Ints:
        """Rows that changed after that value of `clock`."""
        return np.flatnonzero(self.version[: self.rows] > clock)

    def shapes(self) -> Shapes:
        """The machines' shapes now; the same object until one changes."""
        return self.makes.now(self.rows)

    # -- classes ------------------------------------------------------------------------------------------------

    def add_class(self, demand: Ints, constraints: Mapping[str, Sequence[str]], priority: int) -> int:
        """An index for a new class."""
        cls = self._classes.take()
        for name in ("demand", "priority", "level"):
            setattr(self, name, grown(getattr(self, name), cls + 1))
        self.demand[cls], self.priority[cls] = demand, priority
        if priority not in self.levels:
            self.levels.append(priority)
            self._running_by_level.append(0)
            self.running_at = grown(self.running_at, 0, len(self.levels))
            self._view()
        self.level[cls] = self.levels.index(priority)
        g = self.resources.device_index
        share = min(int(demand[g]), MICRO) if g >= 0 else 0
        amounts = tuple((d, amount) for d, amount in enumerate(demand.tolist()) if amount)
        self._asks[cls] = _Asks(amounts, share, -(-int(demand[g]) // MICRO) if share else 0, int(self.level[cls]))
        self.makes.add_class(cls, demand, constraints)
        return cls

    def drop_class(self, cls: int) -> None:
        """Give the index back."""
        del self._asks[cls]
        self.makes.drop_class(cls)
        self.affinity.drop_class(cls)
        self._classes.give(cls)

    # -- taking and giving --------------------------------------------------------------------------------------

    def device_share(self, cls: int) -> int:
        """What a task of the class takes of each device that it gets (0 without devices)."""
        return self._asks[cls].share

    def limits(self, row: int) -> bool:
        """Whether the machine has slots, so that they may run out."""
        return self._slots[row] != UNLIMITED

    def hold(self, row: int, cls: int) -> None:
        """Keep the row for a class and those of better priority; -1 for everybody again."""
        self._unhold(row)
        if cls >= 0:
            self.held[row] = cls
            self._holding += 1
        self.touch(row)

    def _unhold(self, row: int) -> None:
        self._holding -= int(self.held[row] >= 0)
        self.held[row] = -1

    def held_against(self, classes: Ints, rows: Ints) -> NDArray[np.bool_]:
        """Whether the row is kept for others, shape (classes, rows)."""
        held, cls = self.held[rows][None, :], classes[:, None]
        against: NDArray[np.bool_] = (held >= 0) & (held != cls) & (self.priority[cls] >= self.priority[held])
        return against

    def can_take(self, row: int, cls: int) -> bool:
        """Whether the machine takes new tasks, and could hold the class if it were empty."""
        return bool(self.usable[row]) and self.makes.can(cls, row)

    def welcomes(self, row: int, cls: int) -> bool:
        """Whether the machine takes new tasks, and labels and holds allow those of the class."""
        kept = self.held[row] >= 0 and self.held_against(np.array([cls]), np.array([row]))[0, 0]
        return bool(self.usable[row] and not kept) and self.makes.allows(cls, row)

    def pick(self, row: int, cls: int) -> tuple[int, ...] | None:
        """The devices that a task of the class would take there, () without any; None where it does not fit now.

        A share goes to the fullest device that has room for it, whole devices are the first free ones.  Labels and
        the state of the machine are not looked at.
        """
        if self._running[row] >= self._slots[row] or not self._suffices(row, cls):
            return None
        asks = self._asks[cls]
        share = asks.share
        if not share:
            return ()
        devices: list[int] = self.devices[row].tolist()
        if share < MICRO:
            room = [(free, i) for i, free in enumerate(devices) if free >= share]
            return (min(room)[1],) if room else None
        whole = [i for i, free in enumerate(devices) if free == MICRO]
        return tuple(whole[: asks.devices]) if len(whole) >= asks.devices else None

    def admits(self, row: int, cls: int, devices: Sequence[int]) -> bool:
        """Whether a task of the class fits there now on just these devices."""
        asks = self._asks[cls]
        return (
            self._running[row] < self._slots[row]
            and self._suffices(row, cls)
            and len(set(devices)) == len(devices) == asks.devices
            and all(0 <= i < self.devices.shape[1] and self._devices[row, i] >= asks.share for i in devices)
        )

    def _suffices(self, row: int, cls: int) -> bool:
        if not self.affinity.admits(row, cls):
            return False
        if self.rule is not None:
            return self.rule.admits(row, cls)
        free = self._free
        for d, amount in self._asks[cls].amounts:  # a loop, since this is asked for every task that starts
            if free[row, d] < amount:
                return False
        return True

    def spare(self, row: int, cls: int, most: int) -> int:
        """How many more tasks of the class, up to `most`, fit there together; 0 where they must be tried one by one."""
        asks, free = self._asks[cls], self._free
        if asks.share or self.affinity.heeds(cls):
            return 0
        count = min(self._slots[row] - self._running[row], most)
        if self.rule is not None:
            return self.rule.spare(row, cls, count) if count > 0 else 0
        for d, amount in asks.amounts:
            count = min(count, free[row, d] // amount)
        return max(count, 0)

    def take(self, row: int, cls: int, devices: Sequence[int], count: int = 1) -> None:
        """Book tasks of the class, each on these devices; with a negative count, give their room back."""
        asks, free = self._asks[cls], self._free
        for d, amount in asks.amounts:
            free[row, d] -= count * amount
        for i in devices:
            self._devices[row, i] -= count * asks.share
        self._running[row] += count
        self._running_at[row, asks.level] += count
        self._running_by_level[asks.level] += count
        self.touch(row)
        self._touch_all(self.affinity.take(row, cls, count))

    def size(self, cls: int) -> float:
        """The largest part of any resource of the whole cluster that a task of the class takes."""
        return float((self.demand[cls] / np.maximum(self.total, 1)).max())

    def assign(self, task: int, row: int, cls: int, turn: int, since: float) -> None:
        """Note where a task runs."""
        if task >= len(self.task_row):
            for name in ("task_row", "task_class", "task_turn", "task_since"):
                setattr(self, name, grown(getattr(self, name), task + 1, fill=-1))
            self._view()
        self._task_row[task], self._task_class[task], self._task_turn[task] = row, cls, turn
        self._task_since[task] = since

    def leave(self, task: int) -> None:
        """Note that a task runs no more."""
        self._task_row[task] = -1

    # -- what fits ----------------------------------------------------------------------------------------------

    def can_ever(self, classes: Ints, rows: Ints) -> NDArray[np.bool_]:
        """Whether the class could run on the machine if that were up and empty, shape (classes, rows)."""
        return self.makes.can_ever(classes, rows)

    def somewhere(self) -> NDArray[np.bool_]:
        """By class, whether a machine that takes new tasks could run one of it if it were empty."""
        return self.makes.somewhere(np.flatnonzero(self.usable[: self.rows]))

    def room(self, classes: Ints, rows: Ints) -> tuple[Ints, NDArray[np.uint32]]:
        """How many more tasks of each class each machine could take now by labels and resources, and what prevents one.

        Slots are left to the caller: they are the one dimension that the flow itself can see.

        Returns
        -------
        fits : ndarray of int64, shape (classes, rows)
        why : ndarray of uint32, shape (classes, rows)
            All of `DOWN`, `LABEL`, `SLOTS`, `HELD`, `SPREAD`, `COMPANY` and `RESOURCE << d` that stand against one more task.
        """
        free, g = self.free[rows], self.resources.device_index
        fits = np.full((len(classes), len(rows)), UNLIMITED, np.int64)
        why = np.zeros(fits.shape, np.uint32)
        if self.rule is not None:
            fits, why = self.rule.room(classes, rows)
        for d in range(free.shape[1]) if self.rule is None else [g] * (g >= 0):
            need = self.demand[classes, d]
            asking = np.flatnonzero(need)
            if not len(asking):
                continue
            need = need[asking, None]
            count = self._device_room(need, rows) if d == g else np.maximum(free[:, d] // need, 0)
            fits[asking] = np.minimum(fits[asking], count)
            why[asking] |= np.where(count, np.uint32(0), np.uint32(RESOURCE << d))
        for bit, shut in ((DOWN, ~self.usable[rows]), (LABEL, ~self.makes.suits(classes, rows))):
            if shut.any():
                why |= np.where(shut, np.uint32(bit), np.uint32(0))
                fits[np.broadcast_to(shut, fits.shape)] = 0
        if self._holding:
            held = self.held_against(classes, rows)
            why[held] |= HELD
            fits[held] = 0
        for i, cls in enumerate(classes.tolist()):
            bears = self.affinity.room(cls, rows)
            for bit, most in zip((COMPANY, SPREAD), bears or (), strict=False):
                fits[i] = np.minimum(fits[i], most)
                why[i, most == 0] |= bit
        why[:, self.running[rows] >= self.slots[rows]] |= SLOTS
        return fits, why

    def _device_room(self, need: Ints, rows: Ints) -> Ints:
        devices = self.devices[rows]
        count: Ints = (devices == MICRO).sum(axis=1) // np.maximum(need // MICRO, 1)
        shared = np.flatnonzero(need[:, 0] < MICRO)
        if len(shared):
            count[shared] = (devices // need[shared, :, None]).sum(axis=2)
        return count

    def worst_running(self) -> int | None:
        """The worst (largest) priority that runs anywhere, None if nothing does."""
        return max((p for p, n in zip(self.levels, self._running_by_level, strict=True) if n), default=None)

    def worse_running(self, classes: Ints, rows: Ints) -> Ints:
        """Running tasks of strictly worse (larger) priority than each class, shape (classes, rows)."""
        worse = np.array(self.levels, np.int64)[None, :] > self.priority[classes][:, None]
        return worse.astype(np.int64) @ self.running_at[rows][:, : len(self.levels)].T
