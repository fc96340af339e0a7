"""Runs of several schedulers on the same workloads, side by side: means, ranges and paired differences."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from flowsched.boundary.files import replace
from flowsched.boundary.validate import mapping, quoted, whole
from flowsched.exceptions import InputError
from flowsched.sim.engine import Simulation
from flowsched.sim.links import NetworkModel
from flowsched.sim.metrics import Metrics, frame, without_nan, write_table
from flowsched.sim.power import PowerModel
from flowsched.sim.processes import each_in_a_process
from flowsched.sim.remote import each_on
from flowsched.sim.schedulers import scheduler
from flowsched.sim.summary import Table, duration, energy
from flowsched.sim.workload import Workload

MEASURES: Mapping[str, str] = {
    "wait, mean": "s",
    "wait, p99": "s",
    "turnaround, mean": "s",
    "bounded slowdown, mean": "",
    "end": "s",
    "allocated, mean": "share",
    "fragmented, mean": "share",
    "never started": "tasks",
    "preemptions": "",
    "work lost": "s",
    "input from elsewhere": "share",
    "reading, mean": "s",
    "energy": "J",
    "decision, mean": "s of this computer",
}
"""Compared measures, and their units.

Waits are those of `Metrics.wait_of_all`, or lower bounds of them (`Outcome.bounds`).  Turnaround (from arrival to end) and slowdown cover the tasks that completed.
Allocation is the mean over the run of the resource that the workload requests most of.  Fragmentation is
`Fragmentation.share`.  Energy needs a `PowerModel`.  Input from elsewhere needs `Task.data`: it is the part that is not on
the task's machine.  Reading takes time with a `NetworkModel`.
"""

COVERS: Mapping[str, str] = {
    "wait, mean": "all tasks",
    "wait, p99": "all tasks",
    "turnaround, mean": "completed tasks",
    "bounded slowdown, mean": "completed tasks",
    "reading, mean": "tasks that read input",
}
"""The tasks that a measure of tasks covers."""

_POINTS = 401
"""Points of a curve that is kept for a drawing."""


@dataclass(frozen=True)
class Outcome:
    """One run.

    Attributes
    ----------
    scheduler : str
    seed : int
    figures : mapping of str to float
        By `MEASURES`; nan where there is none.
    bounds : frozenset of str
        Figures that are lower bounds, because the run ended while tasks were waiting that never started.
    waiting : tuple of sequence of float
        Times, and the largest number of waiting tasks since the time before.
    waits : sequence of float
        Quantiles of the waits at equal steps from 0 to 1, infinite from those on that never started.
    """

    scheduler: str
    seed: int
    figures: Mapping[str, float]
    waiting: tuple[Sequence[float], Sequence[float]] = field(default=((), ()), repr=False)
    waits: Sequence[float] = field(default=(), repr=False)
    bounds: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean, least and largest of a figure over seeds; nan without any.

    Attributes
    ----------
    mean, least, most : float
    half : float
        Half the width of the 95 % confidence interval of the mean, by Student's t distribution; nan for fewer than two
        values.  The seeds are taken as independent samples of a normal distribution.
    bound : bool
        True if a value is a lower bound, so that the mean is one as well.
    """

    mean: float
    least: float
    most: float
    half: float = math.nan
    bound: bool = False

    @classmethod
    def of(cls, values: Iterable[float], bound: bool = False) -> Spread:
        """Return the spread of numbers; nan is left out."""
        found = [v for v in values if not math.isnan(v)]
        if not found:
            return cls(math.nan, math.nan, math.nan)
        half = _t95(len(found) - 1) * stdev(found) / math.sqrt(len(found)) if len(found) > 1 else math.nan
        return cls(fmean(found), min(found), max(found), half, bound)


def _t95(degrees: int) -> float:
    """Return the 97.5 % point of Student's t distribution, to 0.2 %.

    Exact for one and two degrees of freedom; Cornish and Fisher's expansion in their inverse for more.
    """
    if degrees < 3:
        return (12.706204736432095, 4.302652729911275)[degrees - 1]
    z = 1.959963984540054
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return math.fsum(term / degrees**power for power, term in enumerate(terms))


@dataclass(frozen=True)
class Comparison:
    """The runs that were done, in the order of seeds and schedulers.

    Attributes
    ----------
    schedulers : tuple of str
        Differences are to the first.
    seeds : tuple of int
    outcomes : tuple of Outcome
        Fewer than schedulers times seeds if it was interrupted.
    facts : mapping
        Workload, options of the simulations.
    lost : str
        Reason of missing runs: their processes ended by themselves at every try; "" if none did.
    """

    schedulers: tuple[str, ...]
    seeds: tuple[int, ...]
    outcomes: tuple[Outcome, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    lost: str = ""

    @property
    def whole(self) -> bool:
        """True if no run is missing."""
        return len(self.outcomes) == len(self.schedulers) * len(self.seeds)

    def values(self, scheduler: str, measure: str) -> dict[int, float]:
        """Return the figures of a scheduler by seed."""
        return {run.seed: run.figures[measure] for run in self.outcomes if run.scheduler == scheduler}

    def spread(self, scheduler: str, measure: str) -> Spread:
        """Return mean, least and largest figure of a scheduler."""
        return Spread.of(self.values(scheduler, measure).values(), self._bounded(scheduler, measure))

    def _bounded(self, scheduler: str, measure: str) -> bool:
        return any(run.scheduler == scheduler and measure in run.bounds for run in self.outcomes)

    def difference(self, scheduler: str, measure: str) -> Spread:
        """Return the spread of the differences to the first scheduler, seed by seed; nan if a figure is only a bound.

        Both have the same arrivals then, so the differences are free of their random variation.
        """
        if self._bounded(self.schedulers[0], measure) or self._bounded(scheduler, measure):
            return Spread.of(())
        base, mine = self.values(self.schedulers[0], measure), self.values(scheduler, measure)
        both = [(mine[seed], base[seed]) for seed in mine if seed in base]
        return Spread.of(0.0 if math.isclose(a, b, rel_tol=1e-12) else a - b for a, b in both)  # not the noise of sums

    def tables(self) -> list[Table]:
        """Return the means of all measures; with several seeds, also a table for each measure with ranges and differences."""
        short = [m for m in MEASURES if any(run.figures[m] and not math.isnan(run.figures[m]) for run in self.outcomes)]
        rows = [(name, *(shown_mean(self.spread(name, m), m) for m in short)) for name in self.schedulers]
        title = "Comparison" + (f", means of {len(self.seeds)} seeds" if len(self.seeds) > 1 else "")
        found = [Table(title, ("", *map(heading, short)), rows)]
        interval = "\N{PLUS-MINUS SIGN}95 %"
        columns = (
            "",
            "mean",
            interval,
            "least",
            "most",
            f"minus {self.schedulers[0]}: mean",
            interval,
            "least",
            "most",
        )
        for measure in short if len(self.seeds) > 1 else ():
            rows = []
            for name in self.schedulers:
                one, other = self.spread(name, measure), self.difference(name, measure)
                plain = [shown_mean(one, measure), *(shown(v, measure) for v in (one.half, one.least, one.most))]
                least, most = (shown(v, measure, signed=True) for v in (other.least, other.most))
                signed = [shown(other.mean, measure, signed=True), shown(other.half, measure), least, most]
                rows.append((name, *plain, *(signed if name != self.schedulers[0] else [""] * 4)))
            found.append(Table(heading(measure)[0].upper() + heading(measure)[1:], columns, rows))
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return everything as values that JSON can carry: nan is None, infinity "inf"."""
        out = {
            "facts": dict(self.facts),
            "schedulers": list(self.schedulers),
            "seeds": list(self.seeds),
            "whole": self.whole,
            "units": dict(MEASURES),
            "covers": dict(COVERS),
            "runs": [
                {"scheduler": run.scheduler, "seed": run.seed, "figures": dict(run.figures), "lower_bounds": sorted(run.bounds)}
                for run in self.outcomes
            ],
            "summary": {
                name: {
                    measure: {
                        kind: asdict(spread)
                        for kind, spread in (
                            ("value", self.spread(name, measure)), ("difference", self.difference(name, measure))
                        )
                    }
                    for measure in MEASURES
                }
                for name in self.schedulers
            },
        }  # fmt: skip
        return without_nan(out)  # type: ignore[no-any-return]

    def to_json(self, path: str | Path) -> None:
        """Write `to_dict` to a file, whole or not at all."""
        replace(path, json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n")

    def to_csv(self, path: str | Path) -> None:
        """Write a row per run to a file, whole or not at all."""
        write_table(self._columns(), path)

    def to_frame(self) -> Any:
        """Return a row per run as a pandas DataFrame; an ImportError if pandas is missing."""
        return frame(self._columns())

    def _columns(self) -> dict[str, list[Any]]:
        runs = self.outcomes
        about: dict[str, list[Any]] = {"scheduler": [run.scheduler for run in runs], "seed": [run.seed for run in runs]}
        return about | {measure: [run.figures[measure] for run in runs] for measure in MEASURES}


class OutcomeFile:
    """Runs in a file of JSON lines: the first has the comparison, each other one a run that is done.

    An unfinished last line, of a process that was killed, is removed.

    Parameters
    ----------
    path : path
    about : mapping
        Values that JSON can carry.

    Attributes
    ----------
    outcomes : list of Outcome
        Those that the file had.

    Raises
    ------
    InputError
        The file is of another comparison, or a line has a fault.
    """

    def __init__(self, path: str | Path, about: Mapping[str, Any]) -> None:
        self.outcomes: list[Outcome] = []
        head = json.dumps({"comparison": about}, sort_keys=True, default=str).encode() + b"\n"
        self._file = open(path, "ab+")  # noqa: SIM115, closed by `close`
        try:
            if not stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):  # it may be endless
                raise InputError(f"{path}: not a regular file")
            self._file.seek(0)
            lines = self._file.readlines()
            if lines and not lines[-1].endswith(b"\n"):
                self._file.truncate(sum(map(len, lines[:-1])))
                lines.pop()
            if lines and lines[0] != head:
                raise InputError(f"{path}, line 1: of another comparison: {quoted(lines[0].decode(errors='replace'))}")
            if not lines:
                self._write(head)
            for number, line in enumerate(lines[1:], 2):
                try:
                    self.outcomes.append(_outcome_of(json.loads(line)))
                except (ValueError, TypeError, LookupError, AttributeError):
                    raise InputError(f"{path}, line {number}: no run of a comparison") from None
        except BaseException:
            self._file.close()
            raise

    def append(self, outcome: Outcome) -> None:
        """Add a run; a process that is killed later has recorded it."""
        fields = without_nan({**asdict(outcome), "bounds": sorted(outcome.bounds)})
        self._write(json.dumps(fields, allow_nan=False).encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, line: bytes) -> None:
        self._file.write(line)
        self._file.flush()


def _outcome_of(fields: Mapping[str, Any]) -> Outcome:
    """Return a run that was written with `without_nan`."""
    figures = {name: math.nan if value is None else float(value) for name, value in fields["figures"].items()}
    if figures.keys() != MEASURES.keys():
        raise KeyError(*(figures.keys() ^ MEASURES.keys()))
    time, waiting = (list(map(float, column)) for column in fields["waiting"])
    waits, bounds = list(map(float, fields["waits"])), frozenset(map(str, fields["bounds"]))
    return Outcome(str(fields["scheduler"]), int(fields["seed"]), figures, (time, waiting), waits, bounds)


def compare(
    workload: Workload | Callable[[int], Workload],
    schedulers: Sequence[str],
    seeds: int | Sequence[int] = 1,
    *,
    processes: int = 0,
    until: float | None = None,
    options: Mapping[str, Any] | None = None,
    said: Callable[[Outcome, int, int], None] | None = None,
    stopped: Callable[[], bool] = bool,
    on: str | None = None,
    record: str | Path | None = None,
    about: Mapping[str, Any] | None = None,
) -> Comparison:
    """Run schedulers on the same arrivals, seed by seed.

    Parameters
    ----------
    workload : Workload or callable
        A function gets the seed and returns the workload of that seed: the same for every scheduler.
    schedulers : sequence of str
        See `scheduler`.  The first is the one that the others are compared with.
    seeds : int or sequence of int
        Number of seeds, from 0 on, or the seeds themselves.
    processes : int
        Number of worker processes; 0 runs everything in this one.  With workers, the workload must be a function that
        pickle can name, and a script needs ``if __name__ == "__main__":``.
    until : float or None
        See `Simulation.run`.
    options : mapping, optional
        Keyword arguments of every `Simulation`.
    said : callable, optional
        Called with each outcome, the number of outcomes so far, and the number expected in all.
    stopped : callable, optional
        Called several times a second (in this process, after every run); True ends the comparison with the completed runs.
    on : str, optional
        A cluster whose workers do the runs, in place of `processes`: "dask://HOST:PORT", "ray" or "ray://HOST:PORT".
    record : path, optional
        File to which each run is appended when it is done, as a line of JSON.  If it is there, its runs are not repeated.
    about : mapping, optional
        What a record is of, besides `until` and `options`: values that JSON can carry.

    Returns
    -------
    Comparison
        A run whose process was killed is repeated, twice at most; then it is missing, and `Comparison.lost` says so.

    Raises
    ------
    InputError
        An argument out of range, or `record` is the file of another comparison.
    AuditError
        A scheduler broke a promise.
    ChildProcessError
        No run was done, because all processes ended by themselves.
    """
    names = tuple(schedulers)
    if isinstance(schedulers, str) or not names or len(set(names)) < len(names):
        raise InputError(f"schedulers: a sequence of different names expected, got {quoted(schedulers)}")
    chosen = tuple(range(whole("seeds", seeds, 1, 10**6))) if isinstance(seeds, int) else tuple(seeds)
    if not chosen or len(set(chosen)) < len(chosen):
        raise InputError(f"seeds: different seeds expected, got {quoted(seeds)}")
    whole("processes", processes, 0, 4096)
    if isinstance(workload, Workload) and (processes or on is not None):
        raise InputError("workload: with processes, a function that returns it expected, got a Workload")
    extra = mapping("options", {} if options is None else options)
    facts = {
        name: str(value) if isinstance(value, PowerModel | NetworkModel) else value for name, value in extra.items()
    }
    facts = {"until": until, **facts}
    place = {(seed, name): i for i, (seed, name) in enumerate((seed, name) for seed in chosen for name in names)}
    records = None if record is None else OutcomeFile(record, {**facts, **(about or {})})
    known = {} if records is None else {(run.seed, run.scheduler): run for run in records.outcomes}
    outcomes = [known[key] for key in place if key in known]
    jobs = [(workload, name, seed, until, extra) for seed, name in place if (seed, name) not in known]
    lost = ""
    try:
        for outcome in _each(jobs, processes, on, stopped):
            outcomes.append(outcome)
            if records is not None:
                records.append(outcome)
            if said is not None:
                said(outcome, len(outcomes), len(place))
    except ChildProcessError as error:
        if not outcomes:
            raise
        lost = str(error)
    finally:
        if records is not None:
            records.close()
    outcomes.sort(key=lambda run: place[run.seed, run.scheduler])
    return Comparison(names, chosen, tuple(outcomes), facts, lost)


_Job = tuple[Workload | Callable[[int], Workload], str, int, float | None, Mapping[str, Any]]


def _each(jobs: Sequence[_Job], processes: int, on: str | None, stopped: Callable[[], bool]) -> Iterator[Outcome]:
    if on is not None:
        return each_on(on, _run, jobs, stopped)
    if processes and jobs:
        return each_in_a_process(_run, jobs, processes, stopped)
    return (_run(job) for job in takewhile(lambda _: not stopped(), jobs))


def _run(job: _Job) -> Outcome:
    workload, name, seed, until, options = job
    work = workload if isinstance(workload, Workload) else workload(seed)
    return _outcome(name, seed, Simulation(scheduler(name, work, seed=seed), work, seed=seed, **options).run(until))


def _outcome(name: str, seed: int, metrics: Metrics) -> Outcome:
    wait = metrics.wait_of_all()
    read = metrics.counts["data_read"]
    fragmented, used = metrics.fragmentation, metrics.energy
    scarce = max(metrics.offered, key=lambda resource: metrics.offered[resource].mean, default=None)
    figures = (
        wait.mean, min(wait.p99, metrics.longest_wait), metrics.turnaround().mean, metrics.slowdown().mean, float(metrics.facts["end"]),
        math.nan if scarce is None else metrics.usage[scarce].mean_overall,
        math.nan if fragmented is None else fragmented.share, float(len(metrics.unstarted)),
        float(metrics.counts["preemptions"]), float(metrics.counts["lost_seconds"]),
        1 - metrics.counts["data_on_machine"] / read if read else math.nan, metrics.reading().mean,
        math.nan if used is None else used.total, metrics.latency().mean,
    )  # fmt: skip
    waits = np.sort(np.r_[metrics.waits, np.full(len(metrics.unstarted), math.inf)])
    at = np.linspace(0, len(waits) - 1, _POINTS).round().astype(int) if len(waits) else np.zeros(0, int)
    unknown = {"wait, mean"} if len(metrics.unstarted) else set()
    if math.isinf(wait.p99):
        unknown.add("wait, p99")
    return Outcome(
        name, seed, dict(zip(MEASURES, figures, strict=True)), _thinned(metrics), waits[at].tolist(), frozenset(unknown)
    )


def _thinned(metrics: Metrics) -> tuple[list[float], list[float]]:
    """Return the number of waiting tasks over time: the largest in each of equal steps."""
    time, waiting = metrics.series["time"], metrics.series["waiting"]
    if not len(time) or time[-1] <= time[0]:
        return [], []
    grid = np.linspace(time[0], time[-1], _POINTS)
    first = np.searchsorted(time, grid[:-1], "right") - 1
    return grid[1:].tolist(), np.maximum.reduceat(waiting, first).astype(float).tolist()


def heading(measure: str) -> str:
    """Return the heading of a measure in tables and plots, with the tasks that it covers."""
    return f"{measure} ({COVERS[measure]})" if measure in COVERS else measure


def shown_mean(spread: Spread, measure: str) -> str:
    """Return a mean as tables print it; ``>`` marks a lower bound."""
    return ("> " if spread.bound else "") + shown(spread.mean, measure)


def shown(value: float, measure: str, signed: bool = False) -> str:
    """Return a figure as tables print it."""
    unit = MEASURES[measure]
    sign = ("+" if value > 0 else "-" if value < 0 else "") if signed else ""
    size = abs(value) if signed else value
    if math.isnan(value):
        return "-"
    if unit == "share":
        return f"{sign}{100 * size:.1f} %"
    if unit == "J":
        return sign + energy(size)
    if unit.startswith("s"):
        return sign + duration(size)
    return f"{sign}{size:,.0f}" if float(size).is_integer() or size >= 1000 else f"{sign}{size:,.3g}"
