"""History of a simulation in columns: the runs of tasks, and the presence of machines."""

from __future__ import annotations

import math
from array import array
from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.model import MICRO

COMPLETED, STOPPED, FAILED = 1, 2, 3
"""Ends of runs: the task completed; was preempted, migrated or lost its machine; failed.  0 is a run that goes on."""

DOWN, DRAINED = 0, 1


class Runs:
    """Runs of tasks and times at which machines were down or drained, as they come."""

    def __init__(self, resources: Sequence[str]) -> None:
        self._resources = tuple(resources)
        self._task, self._machine, self._how = array("q"), array("q"), bytearray()
        self._start, self._ready, self._end = array("d"), array("d"), array("d")
        self._row: dict[Hashable, int] = {}
        self._racks: list[Hashable] = []
        self._capacity: list[Sequence[int]] = []
        self._absences: list[list[float]] = []  # machine, from, to, kind; of each machine the last one may be open
        self._away: dict[int, int] = {}  # row of a machine -> its open absence

    def begin(self, task: int, machine: Hashable, now: float) -> int:
        """Begin the run of a task, given by its row; return the run's number."""
        self._task.append(task)
        self._machine.append(self._row[machine])
        self._start.append(now)
        self._ready.append(math.nan)
        self._end.append(math.nan)
        self._how.append(0)
        return len(self._how) - 1

    def ready(self, run: int, now: float) -> None:
        """Record that a run has read its input."""
        self._ready[run] = now

    def end(self, run: int, now: float, how: int) -> None:
        """End a run as one of `COMPLETED`, `STOPPED`, `FAILED`."""
        self._end[run] = now
        self._how[run] = how

    def there(self, machine: Hashable, rack: Hashable, capacity: Sequence[int], now: float) -> None:
        """Record that a machine is there and takes tasks; its rack and capacity count when it first comes."""
        row = self._row.setdefault(machine, len(self._row))
        if row == len(self._capacity):
            self._racks.append(rack)
            self._capacity.append(tuple(capacity))
            if now > 0:
                self._absences.append([row, 0.0, now, DOWN])
        self._close(row, now)

    def away(self, machine: Hashable, now: float, drained: bool = False) -> None:
        """Record that a machine is down, or takes no tasks."""
        row = self._row[machine]
        self._close(row, now)
        self._away[row] = len(self._absences)
        self._absences.append([row, now, math.nan, DRAINED if drained else DOWN])

    def _close(self, row: int, now: float) -> None:
        if (absence := self._away.pop(row, None)) is not None:
            self._absences[absence][2] = now

    def columns(self, demands: NDArray[np.int64]) -> Mapping[str, NDArray[Any]]:
        """Return `Metrics.runs`, given the demands of the tasks."""
        n = len(self._how)  # the last run is not whole where the simulation was interrupted in it
        columns: dict[str, NDArray[Any]] = {
            "task": np.array(self._task[:n]),
            "machine": np.array(self._machine[:n]),
            "start": np.array(self._start[:n]),
            "ready": np.array(self._ready[:n]),
            "end": np.array(self._end[:n]),
            "how": np.frombuffer(bytes(self._how), np.uint8),
        }
        for name, column in zip(self._resources, demands[columns["task"]].T, strict=True):
            columns[name] = column / MICRO
        return MappingProxyType(columns)

    def machines(self) -> Mapping[str, Sequence[Any]]:
        """Return `Metrics.machines`."""
        n = len(self._capacity)
        capacity = np.array(self._capacity, np.float64).reshape(n, len(self._resources)) / MICRO
        columns: dict[str, Sequence[Any]] = {"machine": list(self._row)[:n], "rack": self._racks[:n]}
        return MappingProxyType(columns | {name: capacity[:, i].tolist() for i, name in enumerate(self._resources)})

    def absences(self) -> Mapping[str, NDArray[Any]]:
        """Return `Metrics.absences`."""
        rows = np.array(self._absences, np.float64).reshape(len(self._absences), 4)
        machine, start, end, kind = rows.T
        return MappingProxyType(
            {"machine": machine.astype(np.int64), "start": start, "end": end, "drained": kind == DRAINED}
        )
