"""Records of a running simulation: samples of the state, rows of rounds, reasons of waiting tasks."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.model import MICRO
from flowsched.rounds.reasons import Waiting
from flowsched.rounds.values import Reason
from flowsched.sim.fragmentation import Fragmentation, FragmentationMeter
from flowsched.sim.metrics import ROUND_COLUMNS, WALL_CLOCK, Usage
from flowsched.sim.power import Energy

_KEPT = 1000
"""Rounds of which the waiting tasks are kept by reason."""


class Recorder:
    """Samples of the state, and rows of rounds, as they come; `skipped` counts the rounds without a row."""

    def __init__(self, resources: Sequence[str], fragmentation: FragmentationMeter | None, power: bool) -> None:
        self.resources = tuple(resources)
        self._fragmentation = fragmentation
        self._power = ("watts", "watts_idle") if power else ()
        self._time = array("d")
        # Running and waiting tasks, then used and present amounts by resource, and milliwatts: `_width` numbers for each time.
        self._states = array("q")
        self._width = 2 + 2 * len(self.resources) + len(self._power)
        self._rounds = array("d")  # row by row
        self._queue: list[tuple[float, Mapping[str, int], tuple[int, float, float]]] = []
        self._stride = 1
        self.skipped = 0

    @property
    def n_rounds(self) -> int:
        """Number of rounds so far."""
        return len(self._rounds) // len(ROUND_COLUMNS)

    def sample(
        self,
        time: float,
        running: int,
        waiting: int,
        used: Sequence[int],
        capacity: Sequence[int],
        milliwatts: Sequence[int] = (),
    ) -> None:
        """Record the state from `time` on; of several samples at one time the last counts."""
        state = (running, waiting, *used, *capacity, *milliwatts)
        if self._time and self._time[-1] == time:
            self._states[-self._width :] = array("q", state)
        else:
            self._states.extend(state)
            self._time.append(time)

    def round(self, row: tuple[float, ...]) -> None:
        """Record a round, in the order of `ROUND_COLUMNS`."""
        self._rounds.extend(row)

    def queue(self, time: float, waiting: Mapping[Hashable, Reason]) -> None:
        """Record waiting tasks by reason code, and fragmentation, after every k-th round; k doubles so that a thousand are kept."""
        if (self.n_rounds + self.skipped - 1) % self._stride:
            return
        fragmented = (0, 0.0, 0.0) if self._fragmentation is None else self._fragmentation.measure()
        self._queue.append((time, _by_reason(waiting), fragmented))
        if len(self._queue) > _KEPT:
            del self._queue[1::2]
            self._stride *= 2

    def queues(self) -> Mapping[str, NDArray[Any]]:
        """Return `Metrics.queue`."""
        names = dict.fromkeys(code for _, codes, _ in self._queue for code in codes)
        counts = {name: np.array([codes.get(name, 0) for _, codes, _ in self._queue], np.int64) for name in names}
        return MappingProxyType({"time": np.array([time for time, _, _ in self._queue], np.float64), **counts})

    def fragmentation(self, end: float) -> Fragmentation | None:
        """Return `Metrics.fragmentation`."""
        if self._fragmentation is None:
            return None
        rows = np.array([(time, *fragmented) for time, _, fragmented in self._queue], np.float64).reshape(-1, 4)
        rows[:, 1] = self._fragmentation.lost([mark for _, _, (mark, _, _) in self._queue])
        time, lost, free, capacity = rows.T
        return Fragmentation(self._fragmentation.resource, time, lost, free, capacity, end)

    def energy(self, end: float, lost: float) -> Energy | None:
        """Return `Metrics.energy`; `lost` is the energy of lost work in joules."""
        if not self._power:
            return None
        series = self.series()
        held = np.diff(np.r_[series["time"], max(end, *series["time"][-1:])])
        total, idle = (float(held @ series[name]) for name in self._power)
        mean = total / float(held.sum()) if held.any() else 0.0
        return Energy(total, idle, lost, mean, float(series["watts"].max(initial=0.0)))

    def series(self) -> Mapping[str, NDArray[Any]]:
        """Return `Metrics.series`; amounts in the workload's unit."""
        n = len(self._time)  # the last state has no time yet where a run was interrupted in it
        states = np.array(self._states[: n * self._width]).reshape(n, self._width)
        out: dict[str, NDArray[Any]] = {
            "time": np.array(self._time),
            "running": states[:, 0].copy(),
            "waiting": states[:, 1].copy(),
        }
        for i, name in enumerate(self.resources, 2):
            out[f"used_{name}"] = states[:, i] / MICRO
            out[f"capacity_{name}"] = states[:, i + len(self.resources)] / MICRO
        for i, name in enumerate(self._power, 2 + 2 * len(self.resources)):
            out[name] = states[:, i] / 1000
        return MappingProxyType(out)

    def rounds(self) -> Mapping[str, NDArray[Any]]:
        """Return `Metrics.rounds`."""
        floats = {"time", *WALL_CLOCK}
        columns = np.array(self._rounds).reshape(self.n_rounds, len(ROUND_COLUMNS)).T
        return MappingProxyType(
            {
                name: column.copy() if name in floats else column.astype(np.int64)
                for name, column in zip(ROUND_COLUMNS, columns, strict=True)
            }
        )

    def usage(self, first: float, last: float, end: float) -> Mapping[str, Usage]:
        """Return `Metrics.usage`, for arrivals from `first` to `last` and a run until `end`."""
        series = self.series()
        time = series["time"]
        return MappingProxyType(
            {
                name: _usage(time, series[f"used_{name}"], series[f"capacity_{name}"], first, last, end)
                for name in self.resources
            }
        )


def reason_counts(codes: Sequence[str]) -> Mapping[str, int]:
    """Count the reason codes, most frequent first."""
    return MappingProxyType(dict(sorted(Counter(codes).items(), key=lambda item: (-item[1], item[0]))))


def _usage(
    time: NDArray[Any], used: NDArray[Any], capacity: NDArray[Any], first: float, last: float, end: float
) -> Usage:
    if not len(time):
        return Usage(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    share = np.divide(used, capacity, out=np.zeros(len(used)), where=capacity > 0)
    until = np.r_[time[1:], max(end, time[-1])]

    def mean(start: float, stop: float) -> float:
        held = np.clip(np.minimum(until, stop) - np.maximum(time, start), 0.0, None)
        available = float(held @ capacity)
        return float(held @ used) / available if available > 0 else float(share[-1])

    return Usage(
        capacity=float(capacity[-1]),
        mean=mean(first, min(last, end)),
        mean_overall=mean(0.0, end),
        peak=float(share.max()),
        final=float(share[-1]),
        peak_amount=float(used.max()),
    )


def _by_reason(waiting: Mapping[Hashable, Reason]) -> Mapping[str, int]:
    """Count waiting tasks by reason code."""
    if isinstance(waiting, Waiting):
        return waiting.codes()
    return Counter(reason.code.value for reason in waiting.values())
