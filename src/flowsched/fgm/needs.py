"""Assumed needs of each class, and all stages that a task is in or may start with as one array of the kernel."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster import MICRO, Cluster
from flowsched.cluster.columns import grown
from flowsched.cluster.records import TaskClass
from flowsched.fgm.adjust import Level
from flowsched.fgm.stages import Stages
from flowsched.fgm.timeline import Classes

Ints = NDArray[np.int64]

LEAST = 64
"""A stock of at most this many entries is not compacted."""


@dataclass(slots=True, eq=False)
class Needs:
    """Assumed needs of the tasks of a class: stage by stage, one stage with the largest needs, one with the request.

    `serial` is unique among all needs that ever were; `entries` has the places in the stock of those of the three that
    are there.
    """

    fine: Stages
    coarse: Stages
    request: Stages
    serial: int
    entries: dict[Stages, int] = field(default_factory=dict)

    @property
    def unknown(self) -> bool:
        """True if the request is all that is known."""
        return self.fine is self.request

    def at(self, level: int) -> Stages:
        """Return the stages by which tasks are matched on a machine of this level."""
        return self.fine if level >= Level.FINE else self.coarse if level == Level.COARSE else self.request


class Source(Protocol):
    """An estimator of needs."""

    def estimate(self, cls: TaskClass) -> Stages | None:
        """Return the stages of a class, None where too little is known."""
        ...


class Stock:
    """Stages by entry."""

    def __init__(self, resources: int) -> None:
        self._resources = resources
        self._stages: list[Stages] = []
        self._classes: Classes | None = None

    def __len__(self) -> int:
        return len(self._stages)

    def add(self, stages: Stages) -> int:
        """Add stages, and return their entry."""
        self._stages.append(stages)
        self._classes = None
        return len(self._stages) - 1

    def keep(self, used: Sequence[int]) -> None:
        """Forget all but these entries, which are numbered from 0 in their order."""
        self._stages = [self._stages[entry] for entry in used]
        self._classes = None

    @property
    def classes(self) -> Classes:
        """In the kernel's form."""
        if self._classes is None:
            self._classes = Classes(self._stages, self._resources)
        return self._classes


class Catalog:
    """The needs of classes.

    `source` estimates them.  `entry` has, by index of a class, the place of its `Needs.fine` in the stock.
    """

    def __init__(self, cluster: Cluster, source: Source) -> None:
        self._cluster = cluster
        self._source = source
        self.stock = Stock(len(cluster.resources.names))
        self.entry: Ints = np.zeros(8, np.int64)
        self._needs: dict[TaskClass, Needs] = {}
        self._serial = 0
        self._full = LEAST

    def of(self, cls: TaskClass) -> Needs:
        """Return the needs of a class; the first time, estimate them."""
        need = self._needs.get(cls)
        return self.take(cls, self._source.estimate(cls)) if need is None else need

    def take(self, cls: TaskClass, stages: Stages | None, entry: int | None = None) -> Needs:
        """Set the needs of a class: these stages, with their entry if they have one; None for its request."""
        device = self._cluster.resources.device_index
        amounts = cls.demand / MICRO
        if device >= 0:
            amounts[device] = 0  # the inventory has the devices
        request = Stages([np.inf], amounts[None, :])
        fine = stages or request
        self._serial += 1
        need = self._needs[cls] = Needs(fine, request if fine is request else fine.coarse(), request, self._serial)
        if entry is not None:
            need.entries[fine] = entry
        self.entry = grown(self.entry, cls.index + 1)
        self.entry[cls.index] = self.place(need, fine)
        return need

    def knows(self, cls: TaskClass) -> bool:
        """True if `of` estimates nothing."""
        return cls in self._needs

    def place(self, need: Needs, stages: Stages) -> int:
        """Return the entry of these stages, which are some of the needs; add them if they have none."""
        entry = need.entries.get(stages)
        if entry is None:
            entry = need.entries[stages] = self.stock.add(stages)
        return entry

    def entries(self, classes: Ints) -> Ints:
        """Return the entries of the stages that tasks of these classes (by index) start with."""
        for index in dict.fromkeys(classes.tolist()):
            self.of(self._cluster.by_class[index])
        return self.entry[classes]

    def renew(
        self, kinds: Collection[Hashable], key: Callable[[Hashable | None], Hashable | None]
    ) -> tuple[list[TaskClass], dict[int, Needs]]:
        """Estimate the needs of these kinds again.

        Returns the classes concerned and, by old entry, the new needs of classes of which only the request was known.
        """
        classes = [cls for cls in self._needs if key(cls.kind) in kinds]
        known = {}
        for cls in classes:
            old = self._needs.pop(cls)
            if old.fine is old.request:
                known[old.entries[old.fine]] = self.of(cls)
        return classes, known

    def compact(self, running: Callable[[], Ints]) -> Ints | None:
        """Forget classes without tasks, and stages that no task is in or may start with.

        `running` returns the entries that tasks are in.  Returns, by old entry, the new one; None where nothing was
        moved.
        """
        self._needs = {cls: need for cls, need in self._needs.items() if cls.tasks}
        if len(self.stock) <= self._full:
            return None
        mine = [entry for need in self._needs.values() for entry in need.entries.values()]
        used = np.union1d(np.array(mine, np.int64), running())
        moved = np.full(len(self.stock), -1)
        moved[used] = np.arange(len(used))
        self.stock.keep(used.tolist())
        for cls, need in self._needs.items():
            need.entries = {stages: int(moved[entry]) for stages, entry in need.entries.items()}
            self.entry[cls.index] = need.entries[need.fine]
        self._full = max(LEAST, 2 * len(used))
        return moved
