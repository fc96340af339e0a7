"""Measurements of a simulation.

The engine writes to the `Recorder` while it runs; the caller gets `Metrics`.  Everything in `Metrics` follows
from the workload, the policy and the seed, except ``wall_clock`` in `Metrics.to_dict`: the time that decisions took on this
computer.
"""

from __future__ import annotations

import json
import math
from array import array
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flowsched.boundary.files import replace
from flowsched.boundary.validate import number
from flowsched.cluster.model import MICRO
from flowsched.sim.frames import frame, pairs_html

if TYPE_CHECKING:
    from flowsched.rounds.values import Reason
    from flowsched.sim.workload import Load

__all__ = ["ROUND_COLUMNS", "WALL_CLOCK", "Metrics", "Percentiles", "Recorder", "Usage"]

ROUND_COLUMNS = (
    "time", "events", "nodes", "arcs", "changes", "solves", "placed", "preempted", "migrated", "conflicts",
    "apply", "update", "solve", "read", "schedule", "commit",
)  # fmt: skip
"""One row per round; from ``apply`` on in seconds of wall-clock time.  ``schedule`` contains update, solve and read."""

WALL_CLOCK = ROUND_COLUMNS[ROUND_COLUMNS.index("apply") :]
"""Columns that differ from run to run."""


@dataclass(frozen=True, slots=True)
class Percentiles:
    """A distribution in brief; all nan where `n` is 0."""

    n: int
    mean: float
    p50: float
    p90: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Percentiles:
        """Return the distribution of an array."""
        if not len(values):
            return cls(0, *[math.nan] * 5)
        p50, p90, p99 = np.percentile(values, (50, 90, 99))
        return cls(len(values), float(values.mean()), float(p50), float(p90), float(p99), float(values.max()))


@dataclass(frozen=True, slots=True)
class Usage:
    """Allocation of a resource.

    Attributes
    ----------
    capacity : float
        At the end, in the workload's unit.
    mean : float
        Time-weighted fraction of the capacity between the first and the last arrival.
    mean_overall : float
        The same from the start to the end of the run.
    peak, final : float
        Largest and last fraction.
    peak_amount : float
        Largest amount, in the workload's unit.
    """

    capacity: float
    mean: float
    mean_overall: float
    peak: float
    final: float
    peak_amount: float


@dataclass(frozen=True)
class Metrics:
    """The result of a simulation.

    Attributes
    ----------
    facts : mapping
        Facts of the run: workload, machines, policy, interval, seed, end, ...
    tasks : mapping of str to int
        Tasks by state at the end: ``completed``, ``running``, ``waiting``, ``never_fits`` (they wait, but no machine
        is large enough, or their constraints exclude all that are: NEVER_FITS and FILTERED), ``not_arrived``.
    placed : int
        Tasks that started at least once.
    waiting : mapping of str to int
        The waiting tasks (those that never fit included) by reason code.
    reasons : mapping of task to Reason
        Reason of each waiting task, by the last round.
    usage : mapping of str to Usage
        By resource.
    offered : mapping of str to Load
        Load that the workload asked for, by resource.
    counts : mapping
        ``rounds``, ``preemptions``, ``migrations``, ``conflicts`` (parts of rounds that were refused as stale),
        ``machine_failures``, ``task_failures`` (for want of a resource, with an `Execution`), ``lost_seconds`` (work that
        preemptions, migrations and failures threw away).
    waits : ndarray of float64
        Seconds from arrival to first start of every task that started, in order of arrival.
    unstarted : ndarray of float64
        Seconds from arrival to the end of the run of every task that has arrived and never started: at least so long
        each of them waits.
    ends : ndarray of float64
        End of every task that arrived, in order of arrival; nan for one that has not ended.
    series : mapping of str to ndarray
        The state over time (``time``, ``running``, ``waiting``, ``used_<resource>``, ``capacity_<resource>``): each
        value holds until the next time.
    rounds : mapping of str to ndarray
        One entry per round in each of `ROUND_COLUMNS`.
    wall_seconds : float
        Wall-clock time of the simulation.
    table : mapping of str to sequence
        What became of each task that has arrived, by columns, in order of arrival: ``task``, ``job``, ``arrival``,
        ``starts`` (how often it started), ``first_start`` and ``last_start``, ``machine`` and ``devices`` of the last start,
        ``end``, ``preempted`` (how often), ``state`` at the end of the run, ``duration`` (its run time by the workload),
        ``waited`` (before all its starts together, or until the end of the run) and ``lost`` (work that was thrown away).
        Times are seconds, nan where there is none; what else there is none of is None.
    """

    facts: Mapping[str, Any]
    tasks: Mapping[str, int]
    placed: int
    waiting: Mapping[str, int]
    reasons: Mapping[Hashable, Reason]
    usage: Mapping[str, Usage]
    offered: Mapping[str, Load]
    counts: Mapping[str, float]
    waits: NDArray[np.float64]
    ends: NDArray[np.float64]
    series: Mapping[str, NDArray[Any]]
    rounds: Mapping[str, NDArray[Any]]
    wall_seconds: float
    unstarted: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    table: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def __repr__(self) -> str:
        counts = ", ".join(f"{n} {what.replace('_', ' ')}" for what, n in self.tasks.items() if n)
        rounds = f"{self.counts['rounds']:g} rounds"
        return f"<Metrics of {self.facts['workload']}: {self.facts['machines']} machines; tasks: {counts or 'none'}; {rounds}>"

    def account(self) -> dict[str, int]:
        """Return counts with every task in exactly one; they sum to ``facts["tasks"]``.

        Waiting tasks are given by reason code (``waiting:NO_FIT`` ...).
        """
        rest = {k: self.tasks[k] for k in ("completed", "running", "not_arrived")}
        return rest | {f"waiting:{code}": n for code, n in self.waiting.items()}

    def wait(self) -> Percentiles:
        """Return the distribution of the seconds from arrival to first start, of the tasks that started."""
        return Percentiles.of(self.waits)

    def started_by(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return waiting times, and for each the fraction of all tasks that have started after it.

        It is the estimate of Kaplan and Meier, "Nonparametric Estimation from Incomplete Observations", Journal of the American
        Statistical Association 53(282), 1958: a task that never started is one that the end of the run has censored.
        """
        times, starts = np.unique(self.waits, return_counts=True)
        observed = np.sort(np.r_[self.waits, self.unstarted])
        at_risk = len(observed) - np.searchsorted(observed, times)
        return times, np.asarray(1.0 - np.cumprod(1.0 - starts / at_risk), np.float64)

    def wait_of_all(self) -> Percentiles:
        """Return the distribution of the waiting time of all tasks that have arrived, by `started_by`.

        A percentile is infinite where the run ended before so many had started, as is `max` if any has not.  The mean counts a
        task that never started with the time that the run has seen, so it is a lower bound.
        """
        if not len(self.unstarted):
            return self.wait()
        times, share = self.started_by()
        reached = [int(np.searchsorted(share, level - 1e-12)) for level in (0.5, 0.9, 0.99)]
        p50, p90, p99 = (float(times[i]) if i < len(times) else math.inf for i in reached)
        everything = np.r_[self.waits, self.unstarted]
        return Percentiles(len(everything), float(everything.mean()), p50, p90, p99, math.inf)

    def slowdown(self, shortest: float = 10.0) -> Percentiles:
        """Return the distribution of the bounded slowdown of the tasks that have completed.

        It is the time from arrival to end by the run time, both of at least `shortest` seconds, and at least 1 (Feitelson,
        "Metrics for Parallel Job Scheduling and Their Convergence", JSSPP 2001).
        """
        number("shortest", shortest, 1e-9)
        arrival, end, run = (np.array(self.table.get(c, ()), np.float64) for c in ("arrival", "end", "duration"))
        done = np.isfinite(end)
        return Percentiles.of(np.maximum((end - arrival)[done] / np.maximum(run[done], shortest), 1.0))

    def wait_again(self) -> Percentiles:
        """Return the distribution of the seconds waited after the first start, of the tasks that were stopped and waited again."""
        first, arrival, waited = (
            np.array(self.table.get(c, ()), np.float64) for c in ("first_start", "arrival", "waited")
        )
        starts = np.array(self.table.get("starts", ()), np.int64)
        waits = np.array([state == "waiting" for state in self.table.get("state", ())], bool)
        stopped = (starts > 1) | ((starts == 1) & waits)
        return Percentiles.of((waited - (first - arrival))[stopped])

    def to_frame(self) -> Any:
        """Return `table` as a pandas DataFrame.

        Raises
        ------
        ImportError
            pandas is missing.
        """
        return frame(self.table)

    def _repr_html_(self) -> str:
        wait, slow = self.wait_of_all(), self.slowdown()
        rows = {
            **{f"tasks {state.replace('_', ' ')}": f"{n:,}" for state, n in self.tasks.items() if n},
            **{f"{name} allocated, mean": f"{100 * use.mean:.1f} %" for name, use in self.usage.items()},
            "wait, mean and p99": f"{wait.mean:,.1f} s, {wait.p99:,.1f} s",
            "bounded slowdown, mean": f"{slow.mean:,.2f}",
            "preemptions": f"{self.counts['preemptions']:,}",
            "work lost": f"{self.counts['lost_seconds']:,.0f} s",
            "rounds": f"{self.counts['rounds']:,}",
        }
        return pairs_html(f"Simulation of {self.facts['workload']}", rows)

    def latency(self, phase: str = "schedule") -> Percentiles:
        """Return the distribution of the wall-clock seconds of a round; `phase` is one of `WALL_CLOCK`."""
        return Percentiles.of(self.rounds[phase])

    def to_dict(self, *, series: bool = True) -> dict[str, Any]:
        """Return all measurements as values that JSON can carry; only ``wall_clock`` depends on the computer.

        Parameters
        ----------
        series : bool
            True: include the time series and the table of rounds.
        """
        seconds = {phase: asdict(self.latency(phase)) for phase in WALL_CLOCK}
        out: dict[str, Any] = {
            "facts": dict(self.facts),
            "tasks": {**self.tasks, "placed": self.placed},
            "account": self.account(),
            "usage": {name: asdict(u) for name, u in self.usage.items()},
            "offered": {name: asdict(u) for name, u in self.offered.items()},
            "wait_seconds": asdict(self.wait()),
            "wait_seconds_of_all": asdict(self.wait_of_all()),
            "unstarted_seconds": asdict(Percentiles.of(self.unstarted)),
            "wait_seconds_again": asdict(self.wait_again()),
            "bounded_slowdown": asdict(self.slowdown()),
            "counts": dict(self.counts),
            "network": {k: int(self.rounds[k].max(initial=0)) for k in ("nodes", "arcs")},
            "wall_clock": {"run_seconds": self.wall_seconds, "latency_seconds": seconds},
        }
        if series:
            out["series"] = {k: v.tolist() for k, v in self.series.items()}
            out["rounds"] = {k: v.tolist() for k, v in self.rounds.items() if k not in WALL_CLOCK}
            out["wall_clock"]["rounds"] = {k: self.rounds[k].tolist() for k in WALL_CLOCK}
        return _without_nan(out)  # type: ignore[no-any-return]

    def to_json(self, path: str | Path, *, series: bool = True) -> None:
        """Write `to_dict` to a file, whole or not at all."""
        replace(path, json.dumps(self.to_dict(series=series), indent=1, allow_nan=False) + "\n")


class Recorder:
    """Samples of the state, and rows of rounds, as they come."""

    def __init__(self, resources: Sequence[str]) -> None:
        self.resources = tuple(resources)
        self._time = array("d")
        # Running and waiting tasks, then used and present amounts by resource: `_width` numbers for each time.
        self._states = array("q")
        self._width = 2 + 2 * len(self.resources)
        self._rounds = [array("d") for _ in ROUND_COLUMNS]

    @property
    def n_rounds(self) -> int:
        """Number of rounds so far."""
        return min(map(len, self._rounds))

    def sample(self, time: float, running: int, waiting: int, used: Sequence[int], capacity: Sequence[int]) -> None:
        """Record the state from `time` on; of several samples at one time the last counts."""
        state = array("q", (running, waiting, *used, *capacity))
        if self._time and self._time[-1] == time:
            self._states[-self._width :] = state
        else:
            self._states += state
            self._time.append(time)

    def round(self, *row: float) -> None:
        """Record a round, in the order of `ROUND_COLUMNS`."""
        for column, value in zip(self._rounds, row, strict=True):
            column.append(value)

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
        return MappingProxyType(out)

    def rounds(self) -> Mapping[str, NDArray[Any]]:
        """Return `Metrics.rounds`."""
        floats, n = {"time", *WALL_CLOCK}, self.n_rounds
        return MappingProxyType(
            {
                name: np.array(column[:n]) if name in floats else np.array(column[:n]).astype(np.int64)
                for name, column in zip(ROUND_COLUMNS, self._rounds, strict=True)
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


def _without_nan(value: Any) -> Any:
    """Replace nan by None and infinity by "inf", which JSON cannot carry."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if isinstance(value, Mapping):
        return {str(k): _without_nan(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(v) for v in value]
    return value
