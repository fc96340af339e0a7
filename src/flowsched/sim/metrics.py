"""Measurements of a simulation.

The engine writes to the `Recorder` while it runs; the caller gets `Metrics`.  Everything in `Metrics` follows
from the workload, the policy and the seed, except ``wall_clock`` in `Metrics.to_dict`: the time that decisions took on this
computer.
"""

from __future__ import annotations

import csv
import html
import importlib
import io
import json
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flowsched.boundary.files import replace
from flowsched.boundary.validate import number
from flowsched.exceptions import InputError
from flowsched.sim.fragmentation import Fragmentation
from flowsched.sim.power import Energy

if TYPE_CHECKING:
    from flowsched.rounds.values import Reason
    from flowsched.sim.workload import Load

ROUND_COLUMNS = (
    "time", "events", "nodes", "arcs", "changes", "solves", "placed", "preempted", "migrated", "conflicts",
    "apply", "update", "solve", "read", "schedule", "commit",
)  # fmt: skip
"""One row per round; from ``apply`` on in seconds of wall-clock time.  ``schedule`` contains update, solve and read."""

READ_COLUMNS = ("reading", "read_machine", "read_rack", "read_elsewhere")
"""Columns of `Metrics.table` about input: seconds, then amounts."""

WALL_CLOCK = ROUND_COLUMNS[ROUND_COLUMNS.index("apply") :]
"""Columns that differ from run to run."""
_PARQUET = (".parquet", ".pq")


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
        Load that the workload requested, by resource.
    counts : mapping
        ``rounds``, ``rounds_skipped`` (the scheduler was not asked, since the last round still held; see `Round.again_at`),
        ``placements``, ``preemptions``, ``migrations``, ``conflicts`` (parts of rounds that were refused as stale),
        ``machine_failures``, ``task_failures`` (a resource was short, with an `Execution`), ``lost_seconds`` (work that was
        lost to preemptions, migrations and failures), ``data_read`` (input that tasks have read, `Task.data`, again at every
        start), ``data_on_machine`` and ``data_in_rack`` (the parts of it from the task's machine, and from others in its
        rack).
    waits : ndarray of float64
        Seconds from arrival to first start of every task that started, in order of arrival.
    unstarted : ndarray of float64
        Seconds from arrival to the end of the run of every task that has arrived and never started: a lower bound of its
        wait.
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
        History of each task that has arrived, by columns, in order of arrival: ``task``, ``job``, ``user``, ``arrival``,
        ``starts`` (number of starts), ``first_start`` and ``last_start``, ``machine`` and ``devices`` of the last start,
        ``end``, ``preempted`` (number of preemptions), ``state`` at the end of the run, ``duration`` (its run time by the
        workload), ``waited`` (before all its starts together, or until the end of the run), ``lost`` (lost work),
        ``reading`` (seconds, at all its starts), and ``read_machine``, ``read_rack``, ``read_elsewhere`` (amounts read
        from its own machine, from others in its rack, and from further away).
        Times are seconds, nan where missing; other missing values are None.
    runs : mapping of str to ndarray
        One entry per run of a task, by columns, in order of start: ``task`` (row of `table`), ``machine`` (row of `machines`),
        ``start``, ``ready`` (when it had read its input; nan if it did not), ``end`` (nan for one that goes on), ``how`` (0: it goes on, 1: completed, 2: preempted, migrated or
        without its machine, 3: failed), and the amount of each resource.
    machines : mapping of str to sequence
        Every machine that was ever there, by columns: ``machine``, ``rack``, and the first capacity by resource.
    absences : mapping of str to ndarray
        Times at which a machine was away: ``machine`` (row of `machines`), ``start``, ``end`` (nan if it is still away), and
        ``drained``, True where it only took no tasks.
    queue : mapping of str to ndarray
        Waiting tasks by reason code after some of the rounds, at most a thousand, evenly spread: ``time``, and a column
        per code.
    fragmentation : Fragmentation or None
        Free amounts that are of no use to a task drawn from the workload, over time; None without tasks or machines.
    energy : Energy or None
        Energy of the machines, by the simulation's `PowerModel`; None without one.  ``watts`` and ``watts_idle`` are in
        `series` then.
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
    runs: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    machines: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    absences: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    queue: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    fragmentation: Fragmentation | None = None
    energy: Energy | None = None

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

        A percentile is infinite where the run ended before that part of the tasks had started, as is `max` if any task has
        not.  The mean counts a task that never started with its wait until the end of the run, so it is a lower bound.
        """
        if not len(self.unstarted):
            return self.wait()
        times, share = self.started_by()
        reached = [int(np.searchsorted(share, level - 1e-12)) for level in (0.5, 0.9, 0.99)]
        p50, p90, p99 = (float(times[i]) if i < len(times) else math.inf for i in reached)
        everything = np.r_[self.waits, self.unstarted]
        return Percentiles(len(everything), float(everything.mean()), p50, p90, p99, math.inf)

    @property
    def longest_wait(self) -> float:
        """Longest wait that the run saw, in seconds: of a task that started, or until the end of one that did not."""
        return float(max(self.waits.max(initial=0.0), self.unstarted.max(initial=0.0)))

    def slowdown(self, shortest: float = 10.0) -> Percentiles:
        """Return the distribution of the bounded slowdown of the tasks that have completed.

        It is the time from arrival to end by the run time, both of at least `shortest` seconds, and at least 1 (Feitelson,
        "Metrics for Parallel Job Scheduling and Their Convergence", JSSPP 2001).
        """
        number("shortest", shortest, 1e-9)
        arrival, end, run = (np.array(self.table.get(c, ()), np.float64) for c in ("arrival", "end", "duration"))
        done = np.isfinite(end)
        return Percentiles.of(np.maximum((end - arrival)[done] / np.maximum(run[done], shortest), 1.0))

    def turnaround(self) -> Percentiles:
        """Return the distribution of the seconds from arrival to end, of the tasks that have completed."""
        arrival, end = (np.array(self.table.get(c, ()), np.float64) for c in ("arrival", "end"))
        return Percentiles.of((end - arrival)[np.isfinite(end)])

    def reading(self) -> Percentiles:
        """Return the distribution of the seconds that tasks have read their input, of those that have read any or begun to."""
        seconds, *amounts = (np.array(self.table.get(c, ()), np.float64) for c in READ_COLUMNS)
        return Percentiles.of(seconds[np.sum([seconds, *amounts], axis=0) > 0])

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
            "turnaround, mean": f"{self.turnaround().mean:,.1f} s",
            "bounded slowdown, mean": f"{slow.mean:,.2f}",
            "preemptions": f"{self.counts['preemptions']:,}",
            "work lost": f"{self.counts['lost_seconds']:,.0f} s",
            "rounds": f"{self.counts['rounds']:,}",
        }
        if self.fragmentation is not None:
            rows[f"{self.fragmentation.resource} fragmented, mean"] = f"{100 * self.fragmentation.share:.1f} %"
        if self.counts["data_read"]:
            rows["input from elsewhere"] = (
                f"{100 * (1 - self.counts['data_on_machine'] / self.counts['data_read']):.1f} %"
            )
            rows["reading, mean"] = f"{self.reading().mean:,.1f} s"
        if self.energy is not None:
            rows["energy"] = f"{self.energy.kwh:,.3g} kWh"
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
            "turnaround_seconds": asdict(self.turnaround()),
            "reading_seconds": asdict(self.reading()),
            "bounded_slowdown": asdict(self.slowdown()),
            "counts": dict(self.counts),
            "fragmentation": None if (found := self.fragmentation) is None else found.to_dict(series),
            "energy_joules": None if self.energy is None else asdict(self.energy),
            "network": {k: int(self.rounds[k].max(initial=0)) for k in ("nodes", "arcs")},
            "wall_clock": {"run_seconds": self.wall_seconds, "latency_seconds": seconds},
        }
        if series:
            out["series"] = {k: v.tolist() for k, v in self.series.items()}
            out["rounds"] = {k: v.tolist() for k, v in self.rounds.items() if k not in WALL_CLOCK}
            out["wall_clock"]["rounds"] = {k: self.rounds[k].tolist() for k in WALL_CLOCK}
        return without_nan(out)  # type: ignore[no-any-return]

    def to_json(self, path: str | Path, *, series: bool = True) -> None:
        """Write `to_dict` to a file, whole or not at all."""
        replace(path, json.dumps(self.to_dict(series=series), indent=1, allow_nan=False) + "\n")


def without_nan(value: Any) -> Any:
    """Replace nan by None and infinity by "inf", which JSON cannot carry."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if isinstance(value, Mapping):
        return {str(k): without_nan(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(v) for v in value]
    return value


def frame(table: Mapping[str, Sequence[Any]]) -> Any:
    """Return columns as a pandas DataFrame."""
    try:
        pandas = importlib.import_module("pandas")
    except ImportError:
        raise ImportError("a data frame needs pandas: pip install pandas", name="pandas") from None
    return pandas.DataFrame(dict(table))


def check_table_file(path: str | Path) -> None:
    """Raise ImportError if a file of this name cannot be written with the packages that are installed.

    Raise InputError for a name that ends almost like that of a Parquet file.
    """
    suffix = Path(path).suffix
    if suffix not in _PARQUET and suffix.lower().startswith(_PARQUET):
        raise InputError(f"{path}: .parquet, .pq or .csv expected at the end, got {suffix}")
    if suffix in _PARQUET:
        parquet_modules()


def write_table(table: Mapping[str, Sequence[Any]], path: str | Path) -> None:
    """Write columns to a file, whole or not at all: Parquet if its name ends with .parquet or .pq, or else CSV.

    Ids of tasks, jobs, users and machines are text in both.  CSV joins devices by ``|`` and has no nan.  Raise
    ImportError if Parquet needs PyArrow, which is missing, and InputError if the columns differ in length.
    """
    if len({len(column) for column in table.values()}) > 1:
        raise InputError("table: columns of one length expected")
    if Path(path).suffix in _PARQUET:
        arrow, parquet = parquet_modules()
        columns = {name: _typed(name, list(column), arrow) for name, column in table.items()}
        sink = arrow.BufferOutputStream()
        parquet.write_table(arrow.table(columns), sink)
        replace(path, sink.getvalue().to_pybytes())
        return
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table)
    for row in zip(*table.values(), strict=True):
        writer.writerow(["|".join(map(str, c)) if isinstance(c, tuple) else "" if c != c else c for c in row])
    replace(path, out.getvalue())


def parquet_modules() -> tuple[Any, Any]:
    """Return `pyarrow` and `pyarrow.parquet`; an ImportError says how to install them."""
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise ImportError("a Parquet file needs PyArrow: pip install pyarrow", name="pyarrow") from None


def _typed(name: str, column: list[Any], arrow: Any) -> Any:
    """Return a column of one type whatever the ids are; nan becomes null."""
    if name in ("task", "job", "user", "machine", "state", "scheduler"):
        return arrow.array([None if value is None else str(value) for value in column], arrow.string())
    if name == "devices":
        return arrow.array([None if value is None else list(value) for value in column], arrow.list_(arrow.int32()))
    if name in ("starts", "preempted", "seed"):
        return arrow.array(column, arrow.int64())
    return arrow.array([None if value != value else value for value in column], arrow.float64())


def pairs_html(title: str, rows: Mapping[str, str]) -> str:
    """Return a titled table of two columns."""
    body = "".join(
        f"<tr><th style='text-align:left'>{html.escape(k)}</th><td>{html.escape(v)}</td></tr>" for k, v in rows.items()
    )
    return f"<table><caption>{html.escape(title)}</caption><tbody>{body}</tbody></table>"
