"""Fragmentation: free amounts that are of no use to a task drawn from the workload.

The measure is that of Weng et al., "Beware of Fragmentation", USENIX ATC 2023, section 3, as their simulator has it
(there a task fits by CPUs and GPUs alone).  On a machine it is::

    F = sum over kinds m of tasks of p_m * F(m)                 p_m: part of the workload's tasks that are of kind m

    F(m) = all free GPUs                                        if a task of kind m does not fit there, or needs no GPU
         = the free part of GPUs that have less than m needs of one    otherwise

A task fits if all resources, slots, labels and taints permit it to start.  Without GPUs in the cluster, or in all requests,
the resource with the largest requested fraction is measured the same way; then a task that fits loses nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.events import MachineAdded
from flowsched.cluster.model import MICRO, Machine, Resources
from flowsched.cluster.shapes import ShapeKey, unsuited
from flowsched.policy.fragmentation import FragmentationCost
from flowsched.sim.audit import AuditInventory
from flowsched.sim.workload import Workload

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_KINDS = 256
"""Largest number of task kinds that machines are weighed with; of more, a sample of this size is taken at equal steps."""

_State = tuple[tuple[int, ...], tuple[int, ...], bool, int]
"""Free amounts of a machine, free amount of each GPU, True if no slot is left, and the number of the weights."""

_BLOCK = 1024
"""Number of machines that are weighed at once."""


@dataclass(frozen=True)
class Fragmentation:
    """Fragmentation over time, after some of the rounds: at most a thousand, evenly spread.

    Attributes
    ----------
    resource : str
        The measured resource: GPUs, or else the scarcest.
    time, lost, free, capacity : ndarray of float64
        Each value holds from `time` until the next: the free amount that a task drawn from the workload cannot use, the
        free amount, and the capacity of machines that are up, in the unit of the resource.
    end : float
        End of the run.
    """

    resource: str
    time: Floats
    lost: Floats
    free: Floats
    capacity: Floats
    end: float

    @property
    def share(self) -> float:
        """Fragmented part of the capacity, as a mean over time; nan without samples."""
        return self._mean(self.capacity)

    @property
    def rate(self) -> float:
        """Fragmented part of the free amount, as a mean over time (the fragmentation rate); nan where nothing is free."""
        return self._mean(self.free)

    def to_dict(self, series: bool = True) -> dict[str, Any]:
        """Return everything as values for JSON; without `series` the means alone."""
        means = {"resource": self.resource, "share": self.share, "rate": self.rate}
        columns = ("time", "lost", "free", "capacity") if series else ()
        return means | {name: getattr(self, name).tolist() for name in columns}

    def _mean(self, of: Floats) -> float:
        held = np.diff(self.time, append=max([self.end, *self.time[-1:]]))
        whole = float(held @ of)
        return float(held @ self.lost) / whole if whole > 0 else float("nan")


def meter(inventory: AuditInventory, workload: Workload) -> FragmentationMeter | None:
    """Return a meter for a workload; None if it has no tasks, or no machines with a resource that they request."""
    if not any(len(arrival.durations) for arrival in workload.arrivals):
        return None
    found = FragmentationMeter(inventory, workload)
    return found if found.measures else None


class FragmentationMeter:
    """The fragmentation of an inventory for the tasks of a workload.

    `measure` writes down the machines that have changed; `lost` weighs those states that are asked for.
    """

    def __init__(self, inventory: AuditInventory, workload: Workload) -> None:
        self._inventory = inventory
        self._kinds = _Kinds(inventory.resources, workload)
        self._machines: dict[Hashable, int] = {}
        self._states: dict[_State, int] = {}
        # Changes in their order: the number of the machine, and that of its state, -1 where it is gone.
        self._machine, self._state = array("q"), array("q")

    @property
    def measures(self) -> bool:
        """True if the tasks request a resource that the machines have."""
        return self._kinds.resource >= 0

    @property
    def resource(self) -> str:
        """Name of the resource that is measured."""
        return self._inventory.resources.names[self._kinds.resource]

    def measure(self) -> tuple[int, float, float]:
        """Return a mark of the state for `lost`, the free amount, and the capacity of the resource."""
        inventory = self._inventory
        changed: dict[_State | None, list[int]] = {}
        for name in inventory.changed():
            key = None
            if (state := inventory.state(name)) is not None:
                full = state.slots is not None and state.slots <= 0
                key = (tuple(state.free), tuple(state.gpus), full, self._kinds.row(state.machine))
            changed.setdefault(key, []).append(self._machines.setdefault(name, len(self._machines)))
        for key, machines in changed.items():
            number = -1 if key is None else self._states.setdefault(key, len(self._states))
            self._machine.extend(machines)
            self._state.extend([number] * len(machines))
        i = self._kinds.resource
        capacity = inventory.capacity[i]
        return len(self._state), max(capacity - inventory.used[i], 0) / MICRO, capacity / MICRO

    def lost(self, marks: Sequence[int]) -> list[float]:
        """Return the fragmented amounts at these marks, which ascend."""
        now: dict[int, int] = {}
        held: list[list[int]] = []
        for start, end in pairwise((0, *marks)):
            for machine, state in zip(self._machine[start:end], self._state[start:end], strict=True):
                if state < 0:
                    now.pop(machine, None)
                else:
                    now[machine] = state
            held.append(list(now.values()))
        states = list(self._states)
        asked = sorted({state for some in held for state in some})
        lost = dict(zip(asked, self._kinds.lost([states[i] for i in asked]), strict=True))
        return [sum([lost[state] for state in some]) for some in held]


class _Kinds:
    """The workload's tasks in arrays, one row per kind."""

    def __init__(self, resources: Resources, workload: Workload) -> None:
        kinds = FragmentationCost.of([t for a in workload.arrivals for t in a.job.tasks]).workload
        demand = np.array([resources.demand("task", task.demand) for task, _ in kinds])
        times = np.array([times for _, times in kinds])
        self.resource = self._measured(resources, workload, demand, times)
        self.device = self.resource == resources.device_index
        if len(kinds) > _KINDS:
            order = np.lexsort((*demand.T, demand[:, self.resource]))
            steps = (np.arange(_KINDS) + 0.5) / _KINDS * times.sum()
            chosen = order[np.searchsorted(np.cumsum(times[order]), steps)]
            kinds, demand, times = [kinds[i] for i in chosen], demand[chosen], np.ones(_KINDS)
        self.part: Floats = times / times.sum()
        self.demand: Ints = demand
        self.asks: Ints = demand[:, self.resource]
        self.shares, self.share_of = np.unique(np.minimum(self.asks, MICRO), return_inverse=True)
        self._wants = [(task.constraints, tuple(task.tolerations)) for task, _ in kinds]
        self._rows: dict[tuple[object, ...], int] = {}
        self._weights: list[Floats] = []

    @staticmethod
    def _measured(resources: Resources, workload: Workload, demand: Ints, times: Floats) -> int:
        added = [event for event in workload.machine_events if isinstance(event, MachineAdded)]
        there = np.zeros(len(resources.names), np.int64)
        for capacity in [m.capacity for m in workload.machines] + [event.capacity for event in added]:
            there += resources.capacity("machine", capacity)
        asked = np.where(there > 0, (demand * times[:, None]).sum(axis=0), 0.0)
        gpu = resources.device_index
        if not asked.any():
            return -1
        return gpu if gpu >= 0 and asked[gpu] > 0 else int(np.argmax(asked / np.maximum(there, 1)))

    def row(self, machine: Machine) -> int:
        """Return the number of the weights for a machine: they depend on its labels and taints."""
        key = (tuple(machine.labels.items()), tuple(machine.taints))
        if (row := self._rows.get(key)) is None:
            shape: ShapeKey = ((), key[0], None, key[1])
            suits = [not any(unsuited(shape, *wants)) for wants in self._wants]
            row = self._rows[key] = len(self._weights)
            self._weights.append(np.where(suits, self.part, 0.0))
        return row

    def lost(self, states: list[_State]) -> list[float]:
        """Return the fragmented amount on machines in these states."""
        found: list[float] = []
        for start in range(0, len(states), _BLOCK):
            found += self._block(states[start : start + _BLOCK]).tolist()
        return found

    def _block(self, states: list[_State]) -> Floats:
        frees, gpus, full, rows = zip(*states, strict=True)
        free = np.maximum(frees, 0)
        fits = ~np.array(full)[:, None] & (self.asks > 0)
        for i, demand in enumerate(self.demand.T):
            fits &= free[:, i, None] >= demand
        left, unused = free[:, self.resource, None], np.int64(0)
        if self.device:
            devices = np.zeros((len(states), max(map(len, gpus))), np.int64)
            for row, some in zip(devices, gpus, strict=True):
                row[: len(some)] = np.maximum(some, 0)
            left = devices.sum(axis=1)[:, None]
            enough = devices[:, :, None] >= np.maximum(self.shares, 1)
            fits &= enough.sum(axis=1)[:, self.share_of] * MICRO >= self.asks
            unused = np.where(enough, 0, devices[:, :, None]).sum(axis=1)[:, self.share_of]
        weights = np.array([self._weights[row] for row in rows])
        return ((np.where(fits, unused, left) - left) * weights).sum(axis=1) / MICRO + left[:, 0] / MICRO  # type: ignore[no-any-return]
