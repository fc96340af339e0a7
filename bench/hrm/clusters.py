"""Many machines: one scheduler against six, rates of arrival, conflicts, lengths of queues."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import product
from typing import Literal

import numpy as np

from bench.hrm.hybrid import BatchJob, HybridMetrics, HybridSimulation
from bench.rows import Row
from flowsched.hrm import Container, Hybrid, ResourceUnit, StackedQueue, UnitState

__all__ = ["bursts", "lengths", "rates", "streams"]

_NAME = "hrm"
_CONTAINERS, _CORES = 40, 3
"""Of a job; the source states the first.  With 3 cores each its 180 jobs, but not its 120, exceed the capacity."""

_LENGTH = 5
"""Places in a queue: as many as containers run on a unit, so that one may follow each of them."""

RunTimes = Literal["fixed", "random"]


def _units(count: int) -> list[ResourceUnit]:
    return [ResourceUnit(f"u{i}", f"m{i}", vcore=16) for i in range(count)]


def _job(id: str, time: float, durations: list[float], cores: float = _CORES) -> BatchJob:
    return BatchJob(
        id, time, tuple(Container(f"{id}-{i}", id, vcore=cores, duration=d) for i, d in enumerate(durations))
    )


def _durations(kind: RunTimes, rng: np.random.Generator, count: int) -> list[float]:
    return [15.0] * count if kind == "fixed" else rng.uniform(5.0, 25.0, count).tolist()


def bursts(quick: bool, seed: int) -> list[Row]:
    """Figure 6: 60, 120 and 180 jobs at once, where every decision takes the time that it needs here; mean of some runs.

    The largest burst also runs on a fifth of the machines, where decisions take almost no time.
    """
    kinds: tuple[RunTimes, ...] = ("random",) if quick else ("fixed", "random")
    # Jobs, size in parts of the source's, runs.  Quick is half the jobs on half the machines, once.
    sizes = [(60, 2, 1), (180, 2, 1)] if quick else [(60, 1, 3), (120, 1, 3), (180, 1, 3), (180, 5, 5)]
    return [row for kind in kinds for count, part, runs in sizes for row in _burst(kind, count, part, runs, seed)]


def _burst(kind: RunTimes, count: int, part: int, runs: int, seed: int) -> list[Row]:
    # By schedulers and places in a queue.
    results: dict[tuple[int, int], list[HybridMetrics]] = {(1, 0): [], (6, _LENGTH): [], (1, _LENGTH): []}
    for k in range(runs):
        rng = np.random.default_rng([seed, k])
        jobs = [_job(f"j{i}", 0.0, _durations(kind, rng, _CONTAINERS)) for i in range(count // part)]
        for schedulers, length in results:
            simulation = HybridSimulation(
                _units(1050 // part), jobs, schedulers=schedulers, length=length, claim_cost=0.0, measured=True,
                in_turn=schedulers > 1,
            )  # fmt: skip
            results[schedulers, length].append(simulation.run())
    # By number of jobs: the source's figures for six schedulers and for one.
    source = {60: {"completion, mean": (25.0, 25.0)}, 180: {"delay until running, worst": (2.5, 14.0)}}
    published = source.get(count, {}) if part < 5 else {}
    where = f"{count // part} jobs x 40 on {1050 // part} machines, {kind} run times"
    rows: list[Row] = []
    for metric, of, measure in (
        ("delay until assigned, mean", "delay", np.mean),
        ("delay until running, mean", "start", np.mean),
        ("delay until running, worst", "start", np.max),
        ("completion, mean", "completion", np.mean),
    ):
        found = [[float(measure(getattr(result, of))) for result in some] for some in results.values()]
        one, six, queued = (float(np.mean(values)) for values in found)
        spread = [f"; {runs} runs: six {_range(found[1])}, one {_range(values)}" * (runs > 1) for values in found]
        row = _pair(where, metric, six, one, *published.get(metric, (None, None)))
        rows.append(replace(row, note=row.note + spread[0]))
        if of == "start":
            note = "baseline: one scheduler with the same queues" + spread[2]
            rows.append(Row(_NAME, where, metric, six, queued, queued / six if six else None, unit="s", note=note))
    ratio = float(np.mean([result.conflict_ratio for result in results[6, _LENGTH]]))
    rows.append(_figure(where, "conflict ratio of six", 100 * ratio, None, "%"))
    return rows


def streams(quick: bool, seed: int) -> list[Row]:
    """Figure 6's stream jobs: 60 at once, each of which six schedulers place as a whole, one job at a time under the lock.

    A decision reads the state as it is then, and takes the CPU time that it needs here.  The baseline is the first run of
    the same jobs as batch under one scheduler.
    """
    count, machines = (12, 210) if quick else (60, 1050)
    jobs = [
        _job(f"j{i}", 0.0, _durations("random", np.random.default_rng([seed, i]), _CONTAINERS)) for i in range(count)
    ]
    queues = {str(unit.id): StackedQueue(unit) for unit in _units(machines)}
    schedulers = [(Hybrid(seed=i), dict.fromkeys(queues, -1)) for i in range(6)]
    for hybrid, seen in schedulers:
        # Each has its copy and its network before the first job comes, as in the bursts.
        hybrid.place_stream([replace(jobs[0].containers[0], kind="stream")], _updates(queues, seen), 0.0)
    now, delays = 0.0, []
    for i, job in enumerate(jobs):
        hybrid, seen = schedulers[i % len(schedulers)]
        containers = {str(c.id): replace(c, kind="stream") for c in job.containers}
        begin = time.thread_time()
        placed = hybrid.place_stream([*containers.values()], _updates(queues, seen), now)
        now += time.thread_time() - begin
        if placed is None:
            raise AssertionError(f"stream job {job.id!r} was refused, though there is room")
        for container, unit in placed.items():
            queues[unit].submit(containers[container], now)
        delays.append(now)
    one = HybridSimulation(_units(machines), jobs, claim_cost=0.0, measured=True).run()
    where = f"{count} stream jobs x 40 on {machines} machines"
    note = "baseline: the jobs as batch under one scheduler, no queues"
    six, central = float(np.mean(delays)), float(one.delay.mean())
    return [Row(_NAME, where, "delay until all run, mean", six, central, central / six, "longer", "s", note)]


def _updates(queues: dict[str, StackedQueue], seen: dict[str, int]) -> list[UnitState]:
    """Return the states of the units that have changed since the last call."""
    new = [unit for unit, queue in queues.items() if seen[unit] != queue.version]
    seen.update((unit, queues[unit].version) for unit in new)
    return [Hybrid.state_of(queues[unit], 0.0) for unit in new]


def _range(values: list[float]) -> str:
    return f"{min(values):.3g} to {max(values):.3g} s"


def rates(quick: bool, seed: int) -> list[Row]:
    """Figures 7 and 8: jobs that arrive up to ten times as often, where a decision takes 5 ms for each container.

    These 5 ms are an input, and so are the 200 ms of a job's decision; the result is a job's wait beyond them.  Conflicts
    depend on the choice among equally good units.  By the source's Algorithm 1 every scheduler takes the first unit that
    has room; here each scheduler has its own preferences, unless all are set to have the same.
    """
    rows: list[Row] = []
    count, machines = (40, 300) if quick else (150, 1050)
    first: dict[int, float] = {}
    for times in (1, 2, 5, 10):
        rng = np.random.default_rng(seed)
        arrivals = np.cumsum(rng.exponential(1.0 / (0.45 * times), count)).tolist()
        jobs = [_job(f"j{i}", at, _durations("random", rng, _CONTAINERS), cores=1) for i, at in enumerate(arrivals)]
        results = [
            HybridSimulation(_units(machines), jobs, schedulers=n, length=length, claim_cost=5e-3).run()
            for n, length in ((1, 0), (6, 2))
        ]
        alike = HybridSimulation(_units(machines), jobs, schedulers=6, length=2, claim_cost=5e-3, same_taste=True).run()
        where = f"{count} jobs x 40, {0.45 * times:g} jobs/s, {machines} machines"
        own = 5e-3 * _CONTAINERS
        one, six = (round(float(result.delay.mean()) - own, 6) for result in results)
        rows.append(_pair(where, "delay beyond the job's own decision, mean", six, one))
        for n, result in zip((1, 6), results, strict=True):
            delay = float(result.delay.mean())
            if first.setdefault(n, delay) != delay:
                published = "> 2" if (n, times) == (1, 10) else None
                note = "5 ms of decision for each container are an input; waits come out"
                metric = f"delay against the lowest rate, {n} schedulers"
                rows.append(Row(_NAME, where, metric, delay / first[n], source_value=published, note=note))
            rows.append(_figure(where, f"busyness, {n} schedulers", 100 * result.busyness, None, "%"))
        most = 45.0 if times == 10 else None
        rows.append(_figure(where, _ALIKE, 100 * alike.conflict_ratio, most, "%", "at most"))
        rows.append(_figure(where, _SCATTERED, 100 * results[1].conflict_ratio, None, "%"))
    return rows


_ALIKE = "conflict ratio, six that take the first"
_SCATTERED = "conflict ratio, six that scatter"


def lengths(quick: bool, seed: int) -> list[Row]:
    """Figure 11: queues of length 1, 2 and 3 under eight kinds of batch jobs on 8 machines, heartbeat 3 s.

    Then a job that is alone with 48 containers, for 32 at once: mean of four seeds.
    """
    rows: list[Row] = []
    kinds = 4 if quick else 8
    # From many short containers to few long ones, with a growing spread of run times.
    for k in range(kinds):
        seconds, spread = 1.0 + 0.75 * k * 8 / kinds, 0.1 + 0.1 * k * 8 / kinds
        finished = {}
        for length in (0, 1, 2, 3):
            rng = np.random.default_rng([seed, k])
            jobs = [
                _job(f"j{i}", 0.5 * i, (seconds * rng.uniform(1 - spread, 1 + spread, 60)).tolist(), cores=4)
                for i in range(6)
            ]
            result = HybridSimulation(_units(8), jobs, schedulers=2, length=length, expected=seconds).run()
            finished[length] = float(result.completion.mean())
        rows += _by_length(f"containers of {seconds:.2g} s +- {100 * spread:.0f} %", finished)
    for seconds, spread in ((2.0, 0.3), (5.0, 0.5), (10.0, 0.5)):
        finished = dict.fromkeys(range(4), 0.0)
        for length, k in product(range(4), range(4)):
            rng = np.random.default_rng([seed, k, 48])
            alone = _job("j", 0.3, (seconds * rng.uniform(1 - spread, 1 + spread, 48)).tolist(), cores=4)
            result = HybridSimulation(_units(8), [alone], length=length, expected=seconds).run()
            finished[length] += float(result.completion.mean()) / 4
        rows += _by_length(f"48 containers of {seconds:.2g} s +- {100 * spread:.0f} % alone", finished)
    return rows


def _by_length(what: str, finished: dict[int, float]) -> list[Row]:
    """Add rows of the times of jobs with queues of these lengths."""
    rows: list[Row] = []
    for length in (1, 2, 3):
        where = f"{what}, queue length {length}"
        change = 100 * (finished[length] / finished[1] - 1)
        published = -15.0 if length == 2 else None
        if length > 1:
            rows.append(Row(_NAME, where, "completion against length 1", change, source_value=published, unit="%"))
        ratio = finished[0] / finished[length]
        note = "baseline: no queue"
        rows.append(Row(_NAME, where, "completion", finished[length], finished[0], ratio, unit="s", note=note))
    return rows


def _pair(
    where: str, metric: str, six: float, one: float, published: float | None = None, published_one: float | None = None
) -> Row:
    """Add rows of six schedulers, with one as the baseline."""
    note = "baseline: one scheduler, no queues" + (f"; the source's takes {published_one:g} s" if published_one else "")
    return Row(_NAME, where, metric, six, one, one / six if six else None, published, "s", note)


def _figure(where: str, metric: str, value: float, published: float | None, unit: str, note: str = "") -> Row:
    return Row(
        _NAME,
        where,
        metric,
        value,
        source_value=published,
        unit=unit,
        note=f"the source: {note} this" if published and note else "",
    )
