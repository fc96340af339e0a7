"""The simulator's own books: who runs where, machine by machine and GPU by GPU.

They are kept from the deltas that a commit accepted and from nothing else, so that a mistake in the scheduler's books
cannot hide in them.  All amounts are micro-units.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from flowsched.cluster.model import MICRO, Machine, Resources, Task
from flowsched.cluster.selectors import keeps_off, meets
from flowsched.exceptions import FlowschedError

__all__ = ["AuditBooks", "AuditError"]


class AuditError(FlowschedError, AssertionError):
    """The scheduler committed what cannot be; the message names the machine, the resource and the time."""


@dataclass(slots=True)
class _Machine:
    """What is left of one machine; `tasks` maps each task there to its GPUs."""

    machine: Machine
    capacity: list[int]
    free: list[int]
    gpus: list[int]
    slots: int | None
    tasks: dict[Hashable, tuple[int, ...]]


class AuditBooks:
    """Independent account of every machine, GPU and slot.

    Parameters
    ----------
    resources : Resources
    overcommit : bool
        Tasks may ask for more than a machine has; devices and slots are audited all the same.

    Attributes
    ----------
    used, capacity : list of int
        Of the machines that are up, by resource.
    """

    def __init__(self, resources: Resources, overcommit: bool = False) -> None:
        self.resources = resources
        self.overcommit = overcommit
        self.used = [0] * len(resources.names)
        self.capacity = [0] * len(resources.names)
        self._machines: dict[Hashable, _Machine] = {}
        self._demands: dict[Hashable, tuple[Task, list[int]]] = {}
        self._where: dict[Hashable, Hashable] = {}
        self._device = resources.device_index

    def register(self, tasks: Iterable[Task]) -> None:
        """Tasks that may be placed from now on."""
        for task in tasks:
            self._demands[task.id] = (task, self.resources.demand(f"task {task.id!r}", task.demand).tolist())

    def forget(self, task: Hashable) -> None:
        """A task that will not come back."""
        self._demands.pop(task, None)

    def where(self, task: Hashable) -> Hashable | None:
        """The machine that a task runs on."""
        return self._where.get(task)

    def demand(self, task: Hashable) -> list[int]:
        """What a task asks for."""
        return self._demands[task][1]

    def add_machine(self, machine: Machine) -> None:
        """A machine comes up, empty."""
        capacity = self.resources.capacity(f"machine {machine.id!r}", machine.capacity).tolist()
        gpus = [MICRO] * (capacity[self._device] // MICRO if self._device >= 0 else 0)
        self._machines[machine.id] = _Machine(machine, capacity, list(capacity), gpus, machine.slots, {})
        for i, amount in enumerate(capacity):
            self.capacity[i] += amount

    def update_machine(self, machine: Machine) -> bool:
        """Change a machine while its tasks run on; False, and no change, where they would not fit any more."""
        old = self._machines[machine.id]
        tasks = dict(old.tasks)
        self.remove_machine(machine.id)
        self.add_machine(machine)
        new = self._machines[machine.id]
        if all(device < len(new.gpus) for devices in tasks.values() for device in devices):
            for task, devices in tasks.items():
                self._put(new, task, devices)
            if self._fits(old, new) and (new.slots is None or new.slots >= 0):
                return True
        self.remove_machine(machine.id)
        self.add_machine(old.machine)
        for task, devices in tasks.items():
            self._put(self._machines[machine.id], task, devices)
        return False

    def _fits(self, old: _Machine, new: _Machine) -> bool:
        """Whether tasks go on where they are; where they may ask for too much, what does not shrink holds them."""
        return all(
            free >= 0 or (self.overcommit and amount >= before)
            for free, amount, before in zip(new.free, new.capacity, old.capacity, strict=True)
        )

    def remove_machine(self, machine: Hashable) -> list[Hashable]:
        """A machine goes down; returns the tasks that ran there, which run no more."""
        books = self._machines.pop(machine, None)
        if books is None:
            return []
        tasks = list(books.tasks)
        for i, amount in enumerate(books.capacity):
            self.capacity[i] -= amount
            self.used[i] -= amount - books.free[i]
        for task in tasks:
            del self._where[task]
        return tasks

    def machine(self, machine: Hashable) -> Machine | None:
        """A machine that is up."""
        books = self._machines.get(machine)
        return books.machine if books else None

    def release(self, task: Hashable, now: float) -> Hashable:
        """A task stops running; returns where it ran.

        Raises
        ------
        AuditError
            It does not run.
        """
        machine = self._where.pop(task, None)
        if machine is None:
            raise AuditError(f"at {now:g} s: task {task!r} was stopped, but it does not run")
        books = self._machines[machine]
        devices = books.tasks.pop(task)
        self._move(books, task, devices, -1)
        return machine

    def place(self, task: Hashable, machine: Hashable, devices: Sequence[int], now: float) -> None:
        """A task starts to run; whether there is room is asked later, by `check`.

        Raises
        ------
        AuditError
            It is unknown or runs already, the machine is not up or its labels do not suit the task, or the GPUs named
            are not what the task asks for.
        """
        if task not in self._demands:
            raise AuditError(
                f"at {now:g} s: task {task!r} was placed on machine {machine!r}, but no such task is in the system"
            )
        if task in self._where:
            raise AuditError(
                f"at {now:g} s: task {task!r} was placed on machine {machine!r}, but it runs on {self._where[task]!r}"
            )
        books = self._machines.get(machine)
        if books is None:
            raise AuditError(f"at {now:g} s: task {task!r} was placed on machine {machine!r}, which is not up")
        wanted = self._demands[task][0]
        for label, allowed in wanted.constraints.items():
            value = books.machine.labels.get(label)
            if not meets(value, tuple(allowed)):
                raise AuditError(
                    f"at {now:g} s: machine {machine!r} has {label}={value!r}, "
                    f"but task {task!r} there allows only {', '.join(map(str, allowed)) or 'nothing'}"
                )
        for taint in books.machine.taints:
            if taint[2] == "NoSchedule" and keeps_off(taint, wanted.tolerations):
                raise AuditError(f"at {now:g} s: task {task!r} does not tolerate {taint!r} of machine {machine!r}")
        self._check_devices(books, task, devices, now)
        self._put(books, task, tuple(devices))

    def check(self, machines: Iterable[Hashable], now: float) -> None:
        """No resource, GPU or slot of these machines is above its capacity.

        Raises
        ------
        AuditError
            One is.
        """
        for machine in machines:
            books = self._machines[machine]
            for i, free in enumerate(books.free):
                if free < 0 and not self.overcommit:
                    raise self._above(
                        now, machine, self.resources.names[i], books.capacity[i] - free, books.capacity[i]
                    )
            for gpu, free in enumerate(books.gpus):
                if free < 0:
                    raise self._above(now, machine, f"{self.resources.device} {gpu}", MICRO - free, MICRO)
            if books.slots is not None and books.slots < 0:
                limit = books.machine.slots or 0
                raise self._above(now, machine, "slots", (limit - books.slots) * MICRO, limit * MICRO)

    def _above(self, now: float, machine: Hashable, what: str, used: int, capacity: int) -> AuditError:
        return AuditError(
            f"at {now:g} s: machine {machine!r} is above capacity in {what}: {used / MICRO:g} of {capacity / MICRO:g}"
        )

    def _check_devices(self, books: _Machine, task: Hashable, devices: Sequence[int], now: float) -> None:
        if self._device < 0:
            return
        amount = self._demands[task][1][self._device]
        count = -(-amount // MICRO)
        if len(devices) != count or len(set(devices)) != count or any(not 0 <= d < len(books.gpus) for d in devices):
            raise AuditError(
                f"at {now:g} s: task {task!r} needs {count} of the {len(books.gpus)} {self.resources.device} "
                f"of machine {books.machine.id!r}, but was given {tuple(devices)!r}"
            )

    def _put(self, books: _Machine, task: Hashable, devices: tuple[int, ...]) -> None:
        self._where[task] = books.machine.id
        books.tasks[task] = devices
        self._move(books, task, devices, 1)

    def _move(self, books: _Machine, task: Hashable, devices: tuple[int, ...], sign: int) -> None:
        """Take the task's demand from the machine (sign 1) or give it back (sign -1)."""
        demand = self._demands[task][1]
        for i, amount in enumerate(demand):
            books.free[i] -= sign * amount
            self.used[i] += sign * amount
        if devices:
            each = sign * min(demand[self._device], MICRO)
            for device in devices:
                books.gpus[device] -= each
        if books.slots is not None:
            books.slots -= sign
