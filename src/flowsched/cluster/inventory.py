"""Arrays of the cluster: capacity and free room of every machine, and the number of tasks that fit into it.

Rows are machines, columns resources (int64 micro-units).  Two kinds of dense index meet here, each assigned from a
free list so that equal histories give equal indices: *rows* (machines) and *classes* (tasks of the same demand,
constraints and priority).  `shapes` has the machines that can ever run a class, `affinity` the tasks that may share a
machine, and `limits` the order in which all limits apply.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import flowsched.cluster._room as _room
from flowsched.cluster.affinity import Affinity
from flowsched.cluster.change_log import ChangeLog
from flowsched.cluster.columns import IdPool, column, view
from flowsched.cluster.devices import Asks, pick_devices
from flowsched.cluster.limits import Blockers, CustomLimit, Reach, Reserved
from flowsched.cluster.model import MICRO, MOST_DEVICES, UNLIMITED, Machine, Resources
from flowsched.cluster.records import over_capacity, spare_room, take
from flowsched.cluster.running import RunningTasks
from flowsched.cluster.selectors import Requirement, Wanted
from flowsched.cluster.shapes import Shapes, Suitability
from flowsched.cluster.shunned import Shunned
from flowsched.exceptions import InputError

__all__ = ["MOST_IN_ALL", "Inventory"]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Masks = NDArray[np.uint32]

MOST_IN_ALL = 1 << 24
"""Largest number of devices of all machines together, so that a small event or file cannot request any amount of memory."""

_CELLS = 64
"""Smallest number of device positions."""


class Inventory(ChangeLog, typed=_room.InventoryColumns):
    """Capacity, free room and running tasks of all machines; demands of all classes.

    Attributes
    ----------
    total : ndarray of int64, shape (D,)
        Capacity of all machines together.
    clock, arranged, version
        See `ChangeLog`.
    suitability : Suitability
        Classes that each machine can ever run.
    affinity : Affinity
    shunned : Shunned
    tasks : RunningTasks
    rule : Rule or None
        Decides if resources suffice; None for the rule that demands must not exceed the capacity.
    blockers : Blockers
        The bits of `room`.
    constraints : tuple of CustomLimit
        Constraints of the policy.
    """

    capacity: Ints = column("rows", "resources")
    free: Ints = column("rows", "resources")
    """Negative where tasks take more than the capacity.  The device column is the sum of `rooms`."""
    devices: Ints = column("cells")
    """Free part of each device, machine by machine; see `rooms`."""
    first_device: Ints = column("rows")
    """Position in `devices` of the first device of each machine."""
    num_devices: Ints = column("rows")
    """Number of positions of each machine: its devices, and former ones that tasks still have."""
    slots: Ints = column("rows")
    """Limit of running tasks, `UNLIMITED` without one."""
    running: Ints = column("rows")
    """Number of running tasks."""
    usable: Bools = column("rows", dtype=np.bool_)
    """True if the machine takes new tasks: neither failed nor drained."""
    over: Masks = column("rows", dtype=np.uint32)
    """Bits of the resources that a machine's tasks exceed (see `over_capacity`); no task starts there until it is 0."""
    running_at: Ints = column("rows", "levels")
    """Running tasks by priority; column l is priority ``levels[l]``."""
    demand: Ints = column("classes", "resources")
    priority: Ints = column("classes")
    level: Ints = column("classes")
    """Position of the priority in `levels`."""

    _free: memoryview = view("free")
    _devices: memoryview = view("devices")
    _first: memoryview = view("first_device")
    _count: memoryview = view("num_devices")
    _running: memoryview = view("running")
    _over: memoryview = view("over")
    slots_view: memoryview = view("slots")
    _running_at: memoryview = view("running_at")

    def __init__(self, resources: Resources) -> None:
        self.resources = resources
        super().__init__(resources=len(resources.names), levels=4)
        self._cells = self._cells_in_use = 0
        """Number of positions of `devices` that belong or belonged to a machine, and number of those in use."""
        self.total: Ints = np.zeros(len(resources.names), np.int64)
        self.levels: list[int] = []
        self._running_by_level = []
        self.suitability = Suitability(resources.device_index)
        self.rule = None
        self.affinity = Affinity()
        self.shunned = Shunned()
        self._classes = IdPool()
        self._asks: dict[int, Asks] = {}
        self.tasks = RunningTasks()
        self._detach()

    # -- external limits ----------------------------------------------------------------------------------------

    def _detach(self) -> None:
        self.blockers = Blockers(self.resources.names)
        self._reserved, self.constraints = None, ()
        self._reach = None

    def attach(self, reserved: Reserved, custom: Sequence[CustomLimit]) -> None:
        """Set the external limits; a copy or an image of the inventory has none.

        Raises
        ------
        InputError
            Two of them have the same name, or there are too many; nothing has changed.
        """
        names, wakes = tuple(limit.name for limit in custom), tuple(limit.wakes for limit in custom)
        self.blockers = Blockers(self.resources.names, names, wakes)
        for i, limit in enumerate(custom):
            limit.deal(self.blockers.first_constraint << i)
        self._reserved, self.constraints = reserved, tuple(custom)
        self._reach = Reach(self.constraints) if custom else None

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        for name in ("blockers", "_reserved", "constraints"):
            del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if self.rule is not None and not hasattr(type(self.rule), "narrow"):
            raise TypeError(f"Inventory.rule: a limit expected, got {type(self.rule).__name__}")
        self._detach()

    # -- machines -----------------------------------------------------------------------------------------------

    def add_machine(self) -> int:
        """Return a row for a new machine without capacity, which takes no tasks until `describe` sets its properties."""
        row = self._rows.take()
        if row >= len(self.running):
            self.grow(rows=row + 1)
        self.capacity[row] = self.free[row] = self.running[row] = self.running_at[row] = self.over[row] = 0
        return row

    def add_machines(self, capacity: Ints, machine: Machine, racks: Sequence[Hashable | None]) -> list[int]:
        """Return the rows of new usable machines like this one, in these racks."""
        rows = self._rows.take_some(len(racks))
        count = self.resources.num_devices(capacity)
        self.grow(rows=max(rows) + 1)
        self.capacity[rows] = self.free[rows] = capacity
        self.running[rows] = self.running_at[rows] = self.over[rows] = 0
        first = self._give_cells(rows, count)
        self.devices[first : self._cells] = MICRO
        self.slots[rows] = UNLIMITED if machine.slots is None else machine.slots
        self.usable[rows] = True
        self.total += len(rows) * capacity
        self.suitability.settle(rows, capacity, machine)
        for row, rack in zip(rows, racks, strict=True):
            self.touch(row)
            self.affinity.settle(row, rack)  # no task runs there yet
        self.arranged = self.clock
        return rows

    def describe(self, row: int, capacity: Ints, machine: Machine) -> None:
        """Set the capacity of a machine; its tasks keep their amounts, even beyond that capacity."""
        used = self.capacity[row] - self.free[row]
        if (count := self.resources.num_devices(capacity)) != self.resources.num_devices(self.capacity[row]):
            self._set_taken(row, np.trim_zeros(self._taken(row), "b"), count)
        self.total += capacity - self.capacity[row]
        self.capacity[row] = capacity
        self.free[row] = capacity - used
        self.slots[row] = UNLIMITED if machine.slots is None else machine.slots
        self.suitability.settle([row], capacity, machine)
        self.over[row] = over_capacity(self, row)
        self.touch(row)
        self.arranged = self.clock
        self._touch_all(self.affinity.settle(row, machine.rack))

    def drop_machine(self, row: int) -> None:
        """Give the row back; no task may run there."""
        self.total -= self.capacity[row]
        self.capacity[row] = 0
        self._give_cells([row], 0)
        self.suitability.unsettle(row)
        self.usable[row] = False
        self.affinity.unsettle(row)
        self.version[row] = 0
        self._rows.give(row)

    def takes_devices(self, capacity: Ints, machines: int = 1) -> bool:
        """Return False if the devices of `machines` more machines exceed the limit of a cluster."""
        more = machines * self.resources.num_devices(capacity)
        return not more or self.resources.num_devices(self.total) + more <= MOST_IN_ALL

    def check_devices(self, what: str, capacity: Ints, row: int = -1) -> None:
        """Refuse more devices than a cluster may have, before a machine joins or its capacity changes."""
        if not self.takes_devices(capacity if row < 0 else capacity - self.capacity[row]):
            raise InputError(f"{what}: the devices of all machines would be more than {MOST_IN_ALL}")

    def rooms(self, row: int) -> Ints:
        """Return the free part of each device of a machine, a view of `devices`; negative where tasks take more than the device."""
        first = self._first[row]
        return self.devices[first : first + self._count[row]]

    def rooms_in_line(self, rows: Ints) -> Ints:
        """Return `rooms` of several machines, concatenated."""
        count = self.num_devices[rows]
        ends = np.cumsum(count)
        at = np.repeat(self.first_device[rows] - ends + count, count) + np.arange(count.sum())
        found: Ints = self.devices[at]
        return found

    def rooms_of(self, rows: Ints) -> Ints:
        """Return `rooms` of several machines, shape (rows, largest number of devices, at least 1), padded with 0."""
        count = self.num_devices[rows]
        there = np.arange(count.max(initial=1)) < count[:, None]
        found = np.zeros(there.shape, np.int64)
        found[there] = self.rooms_in_line(rows)
        return found

    def _taken(self, row: int) -> Ints:
        """Return the amount that tasks take of each device of a machine."""
        taken = -self.rooms(row)
        taken[: self.resources.num_devices(self.capacity[row])] += MICRO
        return taken

    def _set_taken(self, row: int, taken: Ints, count: int) -> None:
        """Set the amounts that tasks take of each device of a machine with `count` devices; `taken` may be longer."""
        self._give_cells([row], max(count, len(taken)))
        rooms = self.rooms(row)
        rooms[:count] = MICRO
        rooms[count:] = 0
        rooms[: len(taken)] -= taken

    def _give_cells(self, rows: Sequence[int], count: int) -> int:
        """Assign `count` positions of `devices` to each of these machines instead of its own; return the first position.

        Their contents are undefined.  Memory is at most four times that of the positions in use.
        """
        need, old = len(rows) * count, int(self.num_devices[rows].sum())
        if not (need or old):
            return self._cells
        self.num_devices[rows] = 0
        in_use = self._cells_in_use = self._cells_in_use - old + need
        if self._cells + need > len(self.devices) or len(self.devices) > max(4 * in_use, _CELLS):
            kept = np.flatnonzero(self.num_devices)
            cells = np.zeros(max(2 * in_use, _CELLS), np.int64)
            cells[: in_use - need] = self.rooms_in_line(kept)
            self.first_device[kept] = np.cumsum(self.num_devices[kept]) - self.num_devices[kept]
            self.devices, self._cells = cells, in_use - need
            self._renew_views()
        first = self._cells
        self.first_device[rows] = first + count * np.arange(len(rows))
        self.num_devices[rows] = count
        self._cells += need
        return first

    def shapes(self) -> Shapes:
        """Return the shapes of the machines; the same object until one changes."""
        return self.suitability.now(self.rows)

    # -- classes ------------------------------------------------------------------------------------------------

    def add_class(
        self,
        demand: Ints,
        constraints: Mapping[str, Wanted],
        priority: int,
        tolerations: Sequence[Requirement] = (),
    ) -> int:
        """Return an index for a new class."""
        class_id = self._classes.take()
        self.grow(classes=class_id + 1)
        self.demand[class_id], self.priority[class_id] = demand, priority
        if priority not in self.levels:
            self.levels.append(priority)
            self._running_by_level.append(0)
            self.grow(levels=len(self.levels))
        self.level[class_id] = self.levels.index(priority)
        g = self.resources.device_index
        share = min(int(demand[g]), MICRO) if g >= 0 else 0
        amounts = tuple((d, amount) for d, amount in enumerate(demand.tolist()) if amount)
        self._asks[class_id] = Asks(
            amounts, share, -(-int(demand[g]) // MICRO) if share else 0, int(self.level[class_id])
        )
        self.suitability.add_class(class_id, demand, constraints, tolerations)
        return class_id

    def drop_class(self, class_id: int) -> None:
        """Give the index back."""
        del self._asks[class_id]
        self.suitability.drop_class(class_id)
        self.affinity.drop_class(class_id)
        self.shunned.drop_class(class_id)
        self._classes.give(class_id)

    # -- taking and giving --------------------------------------------------------------------------------------

    def device_share(self, class_id: int) -> int:
        """Return the share that a task of the class takes of each of its devices, 0 without devices."""
        return self._asks[class_id].share

    def limits(self, row: int) -> bool:
        """Return True if the machine has limited slots."""
        return self.slots_view[row] != UNLIMITED

    def held_against(self, classes: Ints, rows: Ints) -> Bools:
        """Return True where the row is reserved for others, shape (classes, rows)."""
        if self._reserved is None:
            return np.zeros((len(classes), len(rows)), np.bool_)
        return self._reserved.against(classes, rows)

    def can_take(self, row: int, class_id: int) -> bool:
        """Return True if the machine takes new tasks, and can hold the class when empty."""
        return (
            bool(self.usable[row]) and self.suitability.can(class_id, row) and not self.shunned.forbids(row, class_id)
        )

    def welcomes(self, row: int, class_id: int, turn: int = -1) -> bool:
        """Return True if the machine takes new tasks, and labels and reservations admit the task of this class and turn."""
        if not (self.usable[row] and self.suitability.allows(class_id, row)):
            return False
        if self.shunned.ids and self.shunned.forbids(row, class_id):
            return False
        reserved = self._reserved
        return reserved is None or not reserved.forbids(row, class_id) or reserved.grants(turn)

    def pick(self, row: int, class_id: int) -> tuple[int, ...] | None:
        """Return the devices that a task of the class would take there, () without any; None if it may not start now.

        Labels and the state of the machine are ignored.
        """
        devices = self.devices_for(row, class_id)
        if devices is not None and self.constraints and not self.permits(row, class_id):
            for limit in self.constraints:
                if not limit.admits(row, class_id):
                    limit.refused(row, class_id)
            self.touch(row)
            return None
        return devices

    def devices_for(self, row: int, class_id: int) -> tuple[int, ...] | None:
        """Return `pick` without the constraints of the policy."""
        if self._over[row] or self._running[row] >= self.slots_view[row] or not self._suffices(row, class_id):
            return None
        asks = self._asks[class_id]
        return pick_devices(self.rooms(row).tolist(), asks.share, asks.devices) if asks.share else ()

    def devices_beyond(self, row: int, class_id: int) -> tuple[int, ...]:
        """Return the devices for a task of the class that runs there without room.

        Those with most free room are first.  A task of whole devices gets positions beyond the machine's own before it
        shares one: the machine may have more devices than it has reported until now.
        """
        asks, rooms = self._asks[class_id], self.rooms(row).tolist()
        own = self.resources.num_devices(self.capacity[row])
        rooms += [0] * min(asks.devices, MOST_DEVICES - len(rooms))

        def order(i: int) -> tuple[bool, bool, int]:
            unknown = i >= own and rooms[i] == 0
            return rooms[i] < asks.share, asks.share == MICRO and not unknown, -rooms[i]

        return tuple(sorted(sorted(range(len(rooms)), key=order)[: asks.devices]))

    def used(self, row: int) -> list[int]:
        """Return the amount of each resource that the tasks of a machine take."""
        used: list[int] = (self.capacity[row] - self.free[row]).tolist()
        return used

    def num_asked(self, class_id: int) -> int:
        """Return the number of devices that a task of the class takes, in part or whole."""
        return self._asks[class_id].devices

    def reach_device(self, row: int, devices: Sequence[int]) -> None:
        """Add positions for devices that the machine does not have and its tasks use."""
        if devices and max(devices) >= self._count[row]:
            taken = np.zeros(max(devices) + 1, np.int64)
            taken[: self._count[row]] = self._taken(row)
            self._set_taken(row, taken, self.resources.num_devices(self.capacity[row]))

    def admits(self, row: int, class_id: int, devices: Sequence[int]) -> bool:
        """Return True if a task of the class may start there now on exactly these devices."""
        return self.has_room(row, class_id, devices) and (not self.constraints or self.permits(row, class_id))

    def has_room(self, row: int, class_id: int, devices: Sequence[int]) -> bool:
        """Return `admits` without the constraints of the policy."""
        asks = self._asks[class_id]
        first, count = self._first[row], self._count[row]
        return (
            not self._over[row]
            and self._running[row] < self.slots_view[row]
            and self._suffices(row, class_id)
            and len(set(devices)) == len(devices) == asks.devices
            and all(0 <= i < count and self._devices[first + i] >= asks.share for i in devices)
        )

    def permits(self, row: int, class_id: int) -> bool:
        """Return True if all constraints of the policy admit one more task of the class there."""
        return all(limit.admits(row, class_id) for limit in self.constraints)

    def _suffices(self, row: int, class_id: int) -> bool:
        if not self.affinity.admits(row, class_id):
            return False
        if self.rule is not None:
            return self.rule.admits(row, class_id)
        free = self._free
        for d, amount in self._asks[class_id].amounts:  # a plain loop is fastest; this runs for every start
            if free[row, d] < amount:
                return False
        return True

    def spare(self, row: int, class_id: int, most: int) -> int:
        """Return the number of further tasks, up to `most`, that may start there together; 0 if each must be tried alone."""
        count = self.spare_room(row, class_id, most)
        for limit in self.constraints:
            count = limit.spare(row, class_id, count) if count else 0
        return count

    def spare_room(self, row: int, class_id: int, most: int) -> int:
        """Return `spare` without the constraints of the policy."""
        if self.affinity.heeds(class_id):
            return 0
        count = spare_room(self, row, class_id, most)
        return count if self.rule is None or not count else self.rule.spare(row, class_id, count)

    def take(self, row: int, class_id: int, devices: Sequence[int], count: int = 1) -> None:
        """Take the room of `count` tasks of the class, each on these devices; give it back if negative."""
        take(self, row, class_id, devices, count)

    def size(self, class_id: int) -> float:
        """Return the largest part of any resource of the whole cluster that a task of the class takes."""
        return float((self.demand[class_id] / np.maximum(self.total, 1)).max())

    def sizes(self, classes: Ints) -> list[float]:
        """Return `size` of each of the classes."""
        return _room.sizes(self, classes)

    # -- room ---------------------------------------------------------------------------------------------------

    def can_ever(self, classes: Ints, rows: Ints) -> NDArray[np.bool_]:
        """Return True where the class can run on the machine when it is up and empty, shape (classes, rows)."""
        could = self.suitability.can_ever(classes, rows)
        return could & ~self.shunned.against(classes, rows) if self.shunned.in_use else could

    def review(self, rows: Mapping[Hashable, int]) -> None:
        """Set the machines that classes shun where they have a choice.

        Parameters
        ----------
        rows : mapping of machine id to int
        """
        for class_id in self.shunned.ids:
            known = self.shunned.known(class_id, rows)
            others = np.setdiff1d(np.flatnonzero(self.usable[: self.rows]), known)
            choice = self.suitability.can_ever(np.array([class_id]), others).any()
            for row in self.shunned.shun(class_id, known if choice else known[:0]).tolist():
                self.touch(row)

    def somewhere(self) -> NDArray[np.bool_]:
        """Return True for each class that some usable machine can run when empty."""
        return self.suitability.somewhere(np.flatnonzero(self.usable[: self.rows]))

    def room(self, classes: Ints, rows: Ints) -> tuple[Ints, NDArray[np.uint32]]:
        """Return the number of further tasks of each class on each machine by all limits, and the blockers of one more.

        Slots are left to the caller, since the flow itself counts them.

        Returns
        -------
        fits : ndarray of int64, shape (classes, rows)
        why : ndarray of uint32, shape (classes, rows)
            All bits of `blockers` for one more task.
        """
        fits, why = _room.room(self, classes, rows, self.rule is not None)
        if self.rule is not None:
            self.rule.narrow(classes, rows, fits, why)
        self.affinity.narrow(classes, rows, fits, why)
        if self.shunned.in_use:
            self.shunned.narrow(classes, rows, fits, why)
        for limit in self.constraints:
            limit.narrow(classes, rows, fits, why)
        return fits, why

    def worst_running(self) -> int | None:
        """Return the worst (largest) priority of all running tasks, None without any."""
        return max((p for p, n in zip(self.levels, self._running_by_level, strict=True) if n), default=None)
