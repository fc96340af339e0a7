"""Latency of a decision (Figures 12 and 13): the random queue, cost scaling from scratch, and the incremental solver.

5,000 and 10,000 machines of 24 slots and 64 GB, 10,000 to 20,000 tasks, as in the source.  In a round 1 % of the tasks leave and as
many arrive.  The network is that of `bench solver`: every task has arcs to five machines and two racks, to the cluster and to
its job's aggregator.  The source takes tasks from the Google trace of 2011, which it does not describe further; here only the sizes
of its jobs are used, from the trace if available, else drawn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from time import thread_time

import numpy as np
from numpy.typing import NDArray

from bench.rows import Outcome, Row
from bench.sirius.model import NAME
from bench.solver.instances import LiveNetwork, Rounds, SchedFamily
from bench.solver.peers import Measured, flowsched_network
from flowsched.sim.traces.load import load_trace

__all__ = ["GoogleFamily", "job_sizes", "measure_latency", "random_draws", "random_scan"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

SLOTS, MEMORY = 24, 64.0
"""Of a machine."""

MACHINES, TASKS = (5_000, 10_000), range(10_000, 20_001, 2_500)
"""Of figures 12 and 13."""

_ONE, _LARGE = 0.75, 149
"""Part of the jobs that have one task, and mean size of the others: 38 tasks a job in all, as 25 million tasks in 0.67 million
jobs of the trace."""

_WHERE = "google2011/task_events*.csv[.gz], the trace of https://github.com/google/cluster-data"


def job_sizes(data: Path | None, notes: list[str]) -> Ints | None:
    """Return the number of tasks of each job of the trace in ``data/google2011``; None, with a note, where it is absent."""
    path = None if data is None else data / "google2011"
    if path is None or not path.is_dir():
        where = "no --data" if data is None else "no DIR/google2011"
        notes.append(
            f"{where}: job sizes of Figures 12 to 15 are drawn, not the trace's: {_ONE:.0%} of the jobs have one task, the others "
            f"{_LARGE} on average. The trace would be read from DIR/{_WHERE}"
        )
        return None
    sizes: Counter[Hashable] = Counter()
    for arrival in load_trace(path).arrivals:  # tasks of a job may come at several times
        sizes[arrival.job.id] += len(arrival.job.tasks)
    return np.array(list(sizes.values()), np.int64)


class GoogleFamily(SchedFamily):
    """Networks whose jobs are as large as those of the Google trace: of these sizes, or drawn if None."""

    def __init__(self, sizes: Ints | None, machines: int, tasks: int, seed: int) -> None:
        self._sizes = sizes
        super().__init__(machines, slots=SLOTS, tasks=tasks, seed=seed)

    def job_tasks(self) -> int:
        """Draw the number of tasks of a job."""
        if self._sizes is not None:
            return int(self.rng.choice(self._sizes))
        return 1 if self.rng.random() < _ONE else int(self.rng.geometric(1 / _LARGE))


def random_draws(free: Ints, count: int, rng: np.random.Generator) -> list[int]:
    """Place tasks of a core one by one, each on a machine that is drawn until one has a free slot."""
    room: list[int] = free.tolist()
    places: list[int] = []
    draw = iter(rng.integers(0, len(room), 2 * count + 64).tolist())
    while len(places) < count:
        at = next(draw, None)
        if at is None:
            draw = iter(rng.integers(0, len(room), 2 * count + 64).tolist())
        elif room[at] > 0:
            room[at] -= 1
            places.append(at)
    return places


def random_scan(free: Ints, memory: Floats, wanted: Floats, rng: np.random.Generator) -> list[int]:
    """Place tasks one by one, each on a random one of all machines with a slot and memory for it: a queue that filters."""
    free, memory, places = free.copy(), memory.copy(), []
    luck = rng.random(len(wanted)).tolist()
    for need, at in zip(wanted.tolist(), luck, strict=True):
        fits = np.flatnonzero((free > 0) & (memory >= need))
        row = int(fits[int(at * len(fits))])
        free[row] -= 1
        memory[row] -= need
        places.append(row)
    return places


@dataclass(frozen=True)
class _Size:
    machines: int
    tasks: int

    @property
    def figure(self) -> str:
        return f"{12 + (self.machines == MACHINES[1])}: {self.machines:,} x {SLOTS}, {self.tasks:,} tasks, 1 % change"


def _queues(size: _Size, seed: int, repeats: int) -> tuple[float, float]:
    """Return the least seconds of both random queues for the 1 % that arrive, on machines where the others run."""
    rng = np.random.default_rng([seed, size.machines, size.tasks])
    where = rng.integers(0, size.machines, size.tasks)
    free = np.maximum(SLOTS - np.bincount(where, minlength=size.machines), 0)
    memory = np.full(size.machines, MEMORY)
    wanted = rng.uniform(0.5, 2.0, size.tasks // 100)
    least = [np.inf, np.inf]
    for _ in range(repeats):
        for k in (0, 1):
            again = np.random.default_rng(seed)
            begin = thread_time()
            if k:
                random_scan(free, memory, wanted, again)
            else:
                random_draws(free, len(wanted), again)
            least[k] = min(least[k], thread_time() - begin)
    return least[0], least[1]


def _incremental(family: SchedFamily, rounds: Rounds, repeats: int) -> tuple[Floats, int]:
    """Return the seconds of each round, (changing, solving, reading), least in sum of all repeats; and the last optimum's cost."""
    runs = [warm_rounds(family, rounds) for _ in range(repeats)]
    times = np.array([run for run, _ in runs])
    least = times.sum(axis=2).argmin(axis=0)
    return times[least, np.arange(len(least))], runs[0][1]


def warm_rounds(family: SchedFamily, rounds: Rounds) -> tuple[Floats, int]:
    """Return the seconds of each round on a network that is kept, (changing, solving, reading), and the last optimum's cost."""
    live = LiveNetwork(family, rounds.first, rounds.first_jobs)
    cost, times = live.net.solve().cost, []
    for change in rounds.changes:
        prepared = live.prepare(change)
        begin = thread_time()
        live.apply(prepared)
        changed = thread_time()
        solution = live.net.solve()
        solved = thread_time()
        live.net.flow(solution.changed)
        times.append((changed - begin, solved - changed, thread_time() - solved))
        cost = solution.cost
    return np.array(times), cost


def measure_latency(outcome: Outcome, quick: bool, seed: int, sizes: Ints | None) -> dict[str, dict[str, list[float]]]:
    """Add rows to the outcome; return seconds by figure and solver, from the least number of tasks to the largest."""
    found: dict[str, dict[str, list[float]]] = {}
    repeats, rounds_ = (2, 5) if quick else (5, 20)
    for machines in MACHINES:
        lines = found.setdefault(f"{machines:,} machines", {})
        for tasks in dict.fromkeys((TASKS[0], TASKS[-1])) if quick else TASKS:
            size = _Size(machines, tasks)
            family = GoogleFamily(sizes, machines, tasks, seed)
            rounds = Rounds(family, tasks // 100, rounds_)
            times, cost = _incremental(family, rounds, repeats)
            whole = times.sum(axis=1)
            warm, mean = float(np.median(whole)), float(whole.mean())
            problem = family.problem()
            cold: dict[str, Measured] = {}
            for name in ("cost_scaling", "repair", "network_simplex"):
                runs = [flowsched_network(problem, name) for _ in range(repeats)]
                cold[name] = min(runs, key=lambda run: run.total)
                if cold[name].cost != cost:
                    outcome.wrong.append(
                        f"{size.figure}: {name} from scratch costs {cold[name].cost}, incremental {cost}"
                    )
                if (ran := cold[name].stats["algorithm"]) != name:
                    outcome.wrong.append(f"{size.figure}: {ran} answered in place of {name}")
            draws, scan = _queues(size, seed, repeats)
            race = min(("repair", "cost_scaling"), key=lambda name: cold[name].total)
            published = "ratio up to 10"
            rows: list[tuple[str, float, float, str | None, str]] = [
                ("round", warm, cold["cost_scaling"].total, published, "cost scaling from scratch (CS)"),
                ("round, mean", mean, cold["cost_scaling"].total, None, "cost scaling from scratch (CS)"),
                ("solve alone, mean", float(times[:, 1].mean()), cold["cost_scaling"].seconds["solve"], None, "cost scaling alone"),
                ("solve alone", float(np.median(times[:, 1])), cold["cost_scaling"].seconds["solve"], None, "cost scaling alone"),
                ("round", warm, cold[race].total, None, f"Firmament's race from scratch, won by {race}"),
                ("round", warm, cold["network_simplex"].total, None, "network simplex from scratch"),
                ("round", warm, scan, "ICS less at 10,000" if machines == MACHINES[1] else None, "random queue that looks at all machines"),
                ("round", warm, draws, None, "random queue that draws until it finds room"),
            ]  # fmt: skip
            for metric, mine, theirs, source, note in rows:
                outcome.rows.append(
                    Row(
                        NAME,
                        size.figure,
                        f"ICS: {metric}",
                        mine,
                        theirs,
                        theirs / mine,
                        source,
                        "s",
                        note=f"compared: {note}",
                    )
                )
            for name, value in (
                ("ICS", warm), ("cost scaling from scratch", cold["cost_scaling"].total),
                ("random queue, scan", scan), ("random queue, draws", draws),
            ):  # fmt: skip
                lines.setdefault(name, []).append(value)
    for figure, (title, lines) in enumerate(found.items(), 12):
        growth = {name: values[-1] / values[0] for name, values in lines.items()}
        outcome.rows.append(Row(
            NAME, f"{figure}: {title}, {TASKS[0]:,} to {TASKS[-1]:,} tasks", "growth of ICS", growth["ICS"], growth["random queue, scan"], None,
            "ICS grows least", note=f"compared: random queue, scan; CS {growth['cost scaling from scratch']:.2f}", better="less",
        ))  # fmt: skip
    return found
