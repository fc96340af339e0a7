"""Machines join, change and go: the part of a cluster that handles their events."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster import events as ev
from flowsched.cluster.inventory import Inventory
from flowsched.cluster.model import Machine
from flowsched.cluster.records import MachineRecord
from flowsched.cluster.stopping import Stopping
from flowsched.exceptions import DuplicateIdError

__all__ = ["MachineEvents"]


class MachineEvents(Stopping):
    """Part of a cluster that handles events of machines.

    A handler checks its whole event before it changes anything, and returns the runs that the event has ended.
    """

    def __init__(self, inventory: Inventory) -> None:
        super().__init__(inventory)
        self.resources = inventory.resources

    def _machine_added(self, event: ev.MachineAdded) -> None:
        machine = Machine(event.id, event.capacity, event.rack, event.labels, event.slots, event.taints)
        record = self.machines.get(event.id)
        if record is not None and not record.failed:
            raise DuplicateIdError(f"machine {event.id!r} already exists")
        capacity = self.resources.capacity(f"machine {event.id!r}: capacity", machine.capacity)
        self.inventory.check_devices(f"machine {event.id!r}", capacity, -1 if record is None else record.row)
        if record is None:
            record = self.machines[event.id] = MachineRecord(machine, self.inventory.add_machine())
            self.by_row[record.row] = record
        self._describe(record, machine, capacity, new=True)

    def _machines_added(
        self, machine: Machine, capacity: NDArray[np.int64], racks: Mapping[Hashable, Hashable]
    ) -> None:
        """Add machines that differ from the given one only in ids and racks."""
        rows = self.inventory.add_machines(capacity, machine, list(racks.values()))
        for row, (id, rack) in zip(rows, racks.items(), strict=True):
            record = self.machines[id] = self.by_row[row] = MachineRecord(machine, row)
            record.id, record.rack = id, rack
        self._changes.machines.update(dict.fromkeys(rows))
        self._review()

    def _machine_updated(self, event: ev.MachineUpdated) -> None:
        record = self.machine(event.id)
        changed = ("capacity", "rack", "labels", "slots", "taints")
        given = {k: v for k in changed if (v := getattr(event, k)) is not None}
        machine = replace(record.machine, **given)
        capacity = self.resources.capacity(f"machine {event.id!r}: capacity", machine.capacity)
        self.inventory.check_devices(f"machine {event.id!r}", capacity, record.row)
        failed = record.failed
        self._describe(record, machine, capacity, new=machine.rack != record.rack)
        if failed:
            record.failed = True
            self._unusable(record)

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
        self._let_go([run for run, stop in self.stopping.items() if stop.row == record.row], event.time)
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
        self.inventory.suitability.unsettle(record.row)  # at once: gangs that needed the machine have no hope now
        self.inventory.arranged = self.inventory.clock
        self._review()
        return over

    def _machine_sampled(self, event: ev.MachineSampled) -> None:
        self.machine(event.id)
        self.resources.usage(f"machine {event.id!r}: usage", event.usage)
