"""Views of a cluster: by id, and in arrays by class and row for authors of costs and constraints.

Amounts are in the caller's units.  Arrays are copies; changes of them have no effect.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from flowsched.boundary.validate import quoted
from flowsched.cluster.events import EndedRun, Event, TaskCompleted
from flowsched.cluster.limits import SLOTS
from flowsched.cluster.model import MICRO
from flowsched.cluster.records import MachineRecord, TaskRecord, World
from flowsched.exceptions import UnknownIdError, UnknownMachineError, UnknownTaskError

__all__ = ["Views", "found"]

_Thing = TypeVar("_Thing")

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Views(World):
    """Part of a cluster that answers queries.

    Attributes
    ----------
    inventory, by_row, waiting
        See `World`.
    machines : dict of machine id to MachineRecord
        In the order in which they joined, including failed ones.
    tasks : dict of task id to TaskRecord
    """

    # -- by id --------------------------------------------------------------------------------------------------

    def machine_ids(self) -> list[Hashable]:
        """Return the machines in the order in which they joined, including failed ones."""
        return list(self.machines)

    def task_state(self, task: Hashable) -> str:
        """Return ``"waiting"`` or ``"running"``; raise `UnknownTaskError` for a task that left or never came."""
        return "running" if self.task(task).row >= 0 else "waiting"

    def placement(self, task: Hashable) -> Hashable | None:
        """Return the machine where the task runs, None while it waits."""
        row = self.task(task).row
        return self.by_row[row].id if row >= 0 else None

    def task(self, task: Hashable) -> TaskRecord:
        """Return the record of a task."""
        return found(self.tasks, task, UnknownTaskError, "task")

    def machine(self, machine: Hashable) -> MachineRecord:
        """Return the record of a machine."""
        return found(self.machines, machine, UnknownMachineError, "machine")

    def fits(self, task: Hashable, machines: Sequence[Hashable] | None = None) -> NDArray[np.int64]:
        """Return the number of further tasks like this one on each machine by all limits; all machines by default."""
        records = self.machines.values() if machines is None else [self.machine(m) for m in machines]
        rows = np.array([m.row for m in records], np.int64)
        fits, why = self.inventory.room(np.array([self.task(task).group.cls.index]), rows)
        fits[why & SLOTS > 0] = 0
        seats = np.maximum(self.inventory.slots[rows] - self.inventory.running[rows], 0)
        counts: NDArray[np.int64] = np.minimum(fits[0], seats)
        return counts

    def free(self, machine: Hashable) -> dict[str, float]:
        """Return the free amount of each resource of a machine, negative where its tasks take more than the capacity."""
        free = self.inventory.free[self.machine(machine).row] / MICRO
        return dict(zip(self.inventory.resources.names, free.tolist(), strict=True))

    def runs_of(self, tasks: Iterable[TaskRecord], event: Event) -> list[EndedRun]:
        """Return the runs of the running ones among these tasks, which an event is about to end."""
        why, machines = type(event).__name__, self.by_row
        return [EndedRun(task.id, task.run, machines[task.row].id, why) for task in tasks if task.row >= 0]

    def is_stale(self, event: Event) -> bool:
        """Return True for an event about another run than its task's present one; it will change nothing."""
        run = getattr(event, "run", None)
        if run is None:
            return False
        try:
            record = self.tasks.get(cast(TaskCompleted, event).task)
        except TypeError:  # unhashable: the event is refused, not stale
            return False
        return record is None or record.row < 0 or not isinstance(run, int | np.integer) or record.run != int(run)

    # -- in arrays ----------------------------------------------------------------------------------------------

    def labels(self, rows: Ints, key: str) -> NDArray[np.object_]:
        """Return the values of a label, shape (rows,); None for a machine without it."""
        values = np.empty(len(rows), np.object_)
        values[:] = [self.by_row[row].labels.get(key) for row in rows.tolist()]
        return values

    def capacity(self, rows: Ints) -> Floats:
        """Return the capacity of machines, shape (rows, resources)."""
        capacity: Floats = self.inventory.capacity[rows] / MICRO
        return capacity

    def used(self, rows: Ints) -> Floats:
        """Return the demand of all tasks that run on each machine, shape (rows, resources)."""
        inventory = self.inventory
        used: Floats = (inventory.capacity[rows] - inventory.free[rows]) / MICRO
        return used

    def demand(self, classes: Ints) -> Floats:
        """Return the demand of one task of each class, shape (classes, resources)."""
        demand: Floats = self.inventory.demand[classes] / MICRO
        return demand

    def rack_rows(self, row: int) -> Ints:
        """Return the rows of the machines in the rack of this one, itself included; a machine without a rack is a rack of its own."""
        return np.array([other for other in self.inventory.affinity.rack_rows(row) if other in self.by_row], np.int64)

    def present(self, rows: Ints) -> NDArray[np.bool_]:
        """Return True for the rows with a machine, failed ones included; shape (rows,)."""
        there: NDArray[np.bool_] = self.inventory.suitability.of[rows] >= 0
        return there & ~np.isin(rows, self._changes.gone) if self._changes.gone else there


def found(things: Mapping[Hashable, _Thing], id: Hashable, error: type[UnknownIdError], kind: str) -> _Thing:
    """Return the record of an id; raise `error` without one."""
    try:
        thing = things.get(id)
    except TypeError:  # unhashable, so it is no id
        thing = None
    if thing is None:
        raise error(f"unknown {kind} {quoted(id)}")
    return thing
