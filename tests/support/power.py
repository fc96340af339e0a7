"""Constraints for the tests, and their meaning without arrays."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

import flowsched as fs


@dataclass(frozen=True)
class PowerCap:
    """The tasks of a rack together draw at most `cap` watts."""

    cap: float = 400.0
    watts: Mapping[str, float] = field(default_factory=lambda: {"cpu": 100.0})
    name: ClassVar[str] = "rack power"
    wakes: ClassVar[tuple[type[fs.Event], ...]] = (fs.TaskCompleted, fs.TaskFailed, fs.TaskRemoved, fs.MachineUpdated)

    def reach(self, cluster: fs.Cluster, row: int) -> Any:
        return cluster.rack_rows(row)

    def room(self, cluster: fs.Cluster, classes: Any, rows: Any) -> Any:
        price = np.array([self.watts.get(name, 0.0) for name in cluster.resources.names])
        drawn = [(cluster.used(self.reach(cluster, row)) @ price).sum() for row in rows.tolist()]
        left = np.maximum(self.cap - np.array(drawn) + 1e-6, 0.0)
        each = np.maximum(cluster.demand(classes) @ price, 1e-9)
        return np.minimum(np.floor(left / each[:, None]), 1e9).astype(np.int64)


@dataclass(frozen=True)
class MostTasks:
    """A limit of tasks on a machine, whatever its slots."""

    most: int = 2
    name: ClassVar[str] = "crowd"
    wakes: ClassVar[tuple[type[fs.Event], ...]] = (fs.TaskCompleted,)

    def reach(self, cluster: fs.Cluster, row: int) -> Any:
        return np.array([row])

    def room(self, cluster: fs.Cluster, classes: Any, rows: Any) -> Any:
        there = [max(self.most - len(cluster.by_row[row].tasks), 0) for row in rows.tolist()]
        return np.tile(np.array(there, np.int64), (len(classes), 1))


def draws(cluster: fs.Cluster, task: Any, cap: PowerCap) -> float:
    """Watts of one task."""
    demand = dict(zip(cluster.resources.names, (task.group.cls.demand / 1e6).tolist(), strict=True))
    return sum(demand.get(name, 0.0) * price for name, price in cap.watts.items())


def power(cluster: fs.Cluster, cap: PowerCap) -> dict[Hashable, float]:
    """Watts of each rack, from the records; a machine of no rack is one."""
    drawn: dict[Hashable, float] = {}
    for name, record in cluster.machines.items():
        rack = ("machine", name) if record.machine.rack is None else record.machine.rack
        drawn[rack] = drawn.get(rack, 0.0) + sum(draws(cluster, task, cap) for task in record.tasks)
    return drawn


def forbidden(cluster: fs.Cluster, task: Any, machine: Hashable, constraints: tuple[Any, ...]) -> set[str]:
    """Names of the constraints that leave the task no room on the machine."""
    record, names = cluster.machines[machine], set()
    for one in constraints:
        if isinstance(one, PowerCap):
            rack = ("machine", machine) if record.machine.rack is None else record.machine.rack
            if power(cluster, one)[rack] + draws(cluster, task, one) > one.cap + 1e-3:
                names.add(one.name)
        elif len(record.tasks) >= one.most:
            names.add(one.name)
    return names
