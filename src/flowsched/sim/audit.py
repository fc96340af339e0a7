"""The simulator's own inventory: the tasks on every machine and GPU.

Its only source is the deltas that a commit accepted, so it cannot repeat a mistake of the scheduler's inventory.  All
amounts are micro-units.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from flowsched.cluster.model import MICRO, Machine, Resources, Task
from flowsched.cluster.selectors import HARD, keeps_off, meets
from flowsched.exceptions import FlowschedError


class AuditError(FlowschedError, AssertionError):
    """The scheduler committed an impossible delta; the message names the machine, the resource and the time."""


@dataclass(slots=True)
class MachineState:
    """Free amounts of a machine; `tasks` maps each task there to its GPUs."""

    machine: Machine
    capacity: list[int]
    free: list[int]
    gpus: list[int]
    slots: int | None
    tasks: dict[Hashable, tuple[int, ...]]


class AuditInventory:
    """Independent inventory of every machine, GPU and slot.

    With `overcommit`, tasks may request more than the capacity of a machine; devices and slots are audited anyway.
    `used` and `capacity` are those of the machines that are up, by resource.
    """

    def __init__(self, resources: Resources, overcommit: bool = False) -> None:
        self.resources = resources
        self.overcommit = overcommit
        self.used = [0] * len(resources.names)
        self.capacity = [0] * len(resources.names)
        self._machines: dict[Hashable, MachineState] = {}
        self._demands: dict[Hashable, tuple[Task, list[int]]] = {}  # by task in the system: the task, its demand
        self._where: dict[Hashable, Hashable] = {}  # task in _machines[_where[task]].tasks, for running tasks
        self._device = resources.device_index
        self._changed: dict[Hashable, None] = {}

    def register(self, tasks: Iterable[Task]) -> None:
        """Add tasks, which may be placed from now on."""
        for task in tasks:
            self._demands[task.id] = (task, self.resources.demand_of(task).tolist())

    def forget(self, task: Hashable) -> None:
        """Remove a task that will not come back."""
        self._demands.pop(task, None)

    def where(self, task: Hashable) -> Hashable | None:
        """Return the machine that a task runs on, None if it does not run."""
        return self._where.get(task)

    def demand(self, task: Hashable) -> list[int]:
        """Return the demand of a task."""
        return self._demands[task][1]

    def add_machine(self, machine: Machine) -> None:
        """Add an empty machine."""
        capacity = self.resources.capacity(f"machine {machine.id!r}", machine.capacity).tolist()
        gpus = [MICRO] * (capacity[self._device] // MICRO if self._device >= 0 else 0)
        self._machines[machine.id] = MachineState(machine, capacity, list(capacity), gpus, machine.slots, {})
        self._changed[machine.id] = None
        for i, amount in enumerate(capacity):
            self.capacity[i] += amount

    def update_machine(self, machine: Machine) -> bool:
        """Change a machine while its tasks run on; return False, without a change, if they would not fit any more."""
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

    def _fits(self, old: MachineState, new: MachineState) -> bool:
        """Return True if the tasks fit on the changed machine; an overcommitted resource fits if it does not shrink."""
        return all(
            free >= 0 or (self.overcommit and amount >= before)
            for free, amount, before in zip(new.free, new.capacity, old.capacity, strict=True)
        )

    def remove_machine(self, machine: Hashable) -> list[Hashable]:
        """Remove a machine; return the tasks that ran there."""
        state = self._machines.pop(machine, None)
        if state is None:
            return []
        tasks = list(state.tasks)
        self._changed[machine] = None
        for i, amount in enumerate(state.capacity):
            self.capacity[i] -= amount
            self.used[i] -= amount - state.free[i]
        for task in tasks:
            del self._where[task]
        return tasks

    def machine(self, machine: Hashable) -> Machine | None:
        """Return a machine, None if it is not up."""
        state = self._machines.get(machine)
        return state.machine if state else None

    def state(self, machine: Hashable) -> MachineState | None:
        """Return the free amounts of a machine, None if it is not up; the result is read-only."""
        return self._machines.get(machine)

    def changed(self) -> list[Hashable]:
        """Return the machines that changed, came or went since the last call."""
        machines = list(self._changed)
        self._changed.clear()
        return machines

    def capacity_of(self, machine: Hashable) -> list[int]:
        """Return the capacity of a machine that is up."""
        return self._machines[machine].capacity

    def release(self, task: Hashable, now: float) -> Hashable:
        """Stop a task; return the machine where it ran, or raise AuditError if it does not run."""
        machine = self._where.pop(task, None)
        if machine is None:
            raise AuditError(f"at {now:g} s: task {task!r} was stopped, but it does not run")
        state = self._machines[machine]
        devices = state.tasks.pop(task)
        self._move(state, task, devices, -1)
        return machine

    def place(self, task: Hashable, machine: Hashable, devices: Sequence[int], now: float) -> None:
        """Start a task; `check` looks for room later.

        Raise AuditError if the task is unknown or runs already, the machine is not up or its labels do not suit the
        task, or the GPUs named differ in number from the request.
        """
        if task not in self._demands:
            raise AuditError(
                f"at {now:g} s: task {task!r} was placed on machine {machine!r}, but no such task is in the system"
            )
        if task in self._where:
            raise AuditError(
                f"at {now:g} s: task {task!r} was placed on machine {machine!r}, but it runs on {self._where[task]!r}"
            )
        state = self._machines.get(machine)
        if state is None:
            raise AuditError(f"at {now:g} s: task {task!r} was placed on machine {machine!r}, which is not up")
        wanted = self._demands[task][0]
        for label, allowed in wanted.constraints.items():
            value = state.machine.labels.get(label)
            if not meets(value, tuple(allowed)):
                raise AuditError(
                    f"at {now:g} s: machine {machine!r} has {label}={value!r}, "
                    f"but task {task!r} there allows only {', '.join(map(str, allowed)) or 'nothing'}"
                )
        for taint in state.machine.taints:
            if taint[2] in HARD and keeps_off(taint, wanted.tolerations):
                raise AuditError(f"at {now:g} s: task {task!r} does not tolerate {taint!r} of machine {machine!r}")
        self._check_devices(state, task, devices, now)
        self._put(state, task, tuple(devices))

    def check(self, machines: Iterable[Hashable], now: float) -> None:
        """Raise AuditError if a resource, GPU or slot of these machines is above its capacity."""
        for machine in machines:
            state = self._machines[machine]
            for i, free in enumerate(state.free):
                if free < 0 and not self.overcommit:
                    raise self._above(
                        now, machine, self.resources.names[i], state.capacity[i] - free, state.capacity[i]
                    )
            for gpu, free in enumerate(state.gpus):
                if free < 0:
                    raise self._above(now, machine, f"{self.resources.device} {gpu}", MICRO - free, MICRO)
            if state.slots is not None and state.slots < 0:
                limit = state.machine.slots or 0
                raise self._above(now, machine, "slots", (limit - state.slots) * MICRO, limit * MICRO)

    def _above(self, now: float, machine: Hashable, what: str, used: int, capacity: int) -> AuditError:
        return AuditError(
            f"at {now:g} s: machine {machine!r} is above capacity in {what}: {used / MICRO:g} of {capacity / MICRO:g}"
        )

    def _check_devices(self, state: MachineState, task: Hashable, devices: Sequence[int], now: float) -> None:
        if self._device < 0:
            return
        count = -(-self._demands[task][1][self._device] // MICRO)
        if len(devices) != count or len({d for d in devices if 0 <= d < len(state.gpus)}) != count:
            raise AuditError(
                f"at {now:g} s: task {task!r} needs {count} of the {len(state.gpus)} {self.resources.device} "
                f"of machine {state.machine.id!r}, but was given {tuple(devices)!r}"
            )

    def _put(self, state: MachineState, task: Hashable, devices: tuple[int, ...]) -> None:
        self._where[task] = state.machine.id
        state.tasks[task] = devices
        self._move(state, task, devices, 1)

    def _move(self, state: MachineState, task: Hashable, devices: tuple[int, ...], sign: int) -> None:
        """Take the task's demand from the machine (sign 1) or give it back (sign -1)."""
        demand = self._demands[task][1]
        self._changed[state.machine.id] = None
        for i, amount in enumerate(demand):
            state.free[i] -= sign * amount
            self.used[i] += sign * amount
        if devices:
            each = sign * min(demand[self._device], MICRO)
            for device in devices:
                state.gpus[device] -= each
        if state.slots is not None:
            state.slots -= sign
