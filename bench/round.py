"""Cost of a round in a large cluster: 12,500 machines, 150,000 tasks in 3,000 jobs, each job near its own data.

A first round places everything; then, repeatedly, 1 % of the tasks end, as many arrive, and a round decides.  The
phases are measured separately: events in, update of the network, solve, read and check, commit.  Times are CPU time of this
thread, divided among the phases of a round in proportion to their wall time, which alone means little on a busy machine.
"""

from __future__ import annotations

import gc
import random
import resource
import statistics
import sys
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

import flowsched as fs
from bench.drawing import chart, write
from bench.rows import Keep, Outcome, Row, forget
from flowsched.cluster.columns import grown

__all__ = ["CLOCK", "TITLE", "LargeCluster", "plot", "run"]

CLOCK = "CPU time of the thread, divided among the phases by their wall time"
TITLE = "what a round costs: 1 % of all tasks exchanged in a large cluster, with data locality"

_NAME = "round"
_SIZES = ((3_125, 37_500), (6_250, 75_000), (12_500, 150_000))
_PER_JOB = 50
_RACK = 40
_SLOTS = 16
_CAPACITY = {"cpu": 20, "mem": 64}
_WAITING = 20_000
_RESOURCES = ("cpu", "mem")
_DEMANDS = tuple({"cpu": cpu, "mem": mem} for cpu in (0.5, 1, 1.5, 2) for mem in (1, 3))
_PHASES = ("events", "update", "solve", "read", "commit")


@dataclass
class _Times:
    """Seconds of one exchange by phase, and its counts."""

    phases: dict[str, float]
    started: int
    changes: int
    solves: int
    paused: float

    @property
    def round(self) -> float:
        """Update, solve and read: `Scheduler.schedule`."""
        return sum(self.phases[name] for name in ("update", "solve", "read"))

    @property
    def python(self) -> float:
        """The round without the solve."""
        return self.phases["update"] + self.phases["read"]


@dataclass
class LargeCluster:
    """A scheduler with its cluster, in which tasks are exchanged round by round.

    Parameters
    ----------
    machines, tasks : int
        In racks of 40, and in jobs of 50; each machine has 16 slots, 20 CPUs and 64 units of memory.
    seed : int
    """

    machines: int
    tasks: int
    seed: int = 0
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.sched = fs.Scheduler(fs.Policy(locality=fs.Locality()), resources=_RESOURCES)
        self.running: list[tuple[int, int]] = []
        self.near = [0, 0, 0]
        self._jobs = 0
        self._now = 0.0
        self._data: dict[int, tuple[int, ...]] = {}
        self._pauses = _Pauses()
        self._audit = _Audit(self.machines)
        self.sched.apply(*(fs.MachineAdded(i, _CAPACITY, rack=i // _RACK, slots=_SLOTS) for i in range(self.machines)))

    def fill(self) -> _Times:
        """Submit all jobs, and place them in a round."""
        return self._exchange([], self.tasks // _PER_JOB)

    def exchange(self, part: float = 0.01) -> _Times:
        """End this fraction of the tasks, submit as many in new jobs, and decide in a round."""
        jobs = _jobs(part * self.tasks)
        gone = [self.running.pop(self.random.randrange(len(self.running))) for _ in range(jobs * _PER_JOB)]
        return self._exchange(gone, jobs)

    def _job(self) -> fs.JobSubmitted:
        """Return a job of equal tasks, with three replicas of their data: two in one rack, one in another."""
        self._jobs += 1
        first, other = self.random.randrange(self.machines), self.random.randrange(self.machines)
        neighbour = min(first // _RACK * _RACK + self.random.randrange(_RACK), self.machines - 1)
        demand, holders = self.random.choice(_DEMANDS), tuple(dict.fromkeys((first, neighbour, other)))
        tasks = [
            fs.Task((self._jobs, k), demand, data=[(machine, 1.0) for machine in holders]) for k in range(_PER_JOB)
        ]
        self._data[self._jobs] = holders
        self._audit.add_job(demand)
        return fs.JobSubmitted(self._jobs, tasks)

    def _exchange(self, gone: list[tuple[int, int]], jobs: int) -> _Times:
        events = [fs.TaskCompleted(task) for task in gone] + [self._job() for _ in range(jobs)]
        self._now += 1.0
        start = time.thread_time()
        self.sched.apply(*events)
        applied, paused = time.thread_time(), self._pauses.seconds
        gc.callbacks.append(self._pauses)
        rnd = self.sched.schedule(self._now)
        gc.callbacks.remove(self._pauses)
        decided, paused = time.thread_time(), self._pauses.seconds - paused
        done = self.sched.commit(rnd)
        committed = time.thread_time()
        if done.conflicts:
            self.wrong.append(f"round {self._now:g}: {len(done.conflicts)} conflicts at the commit")
        self._account(gone, rnd)
        stats = rnd.stats
        wall = {"update": stats.seconds_update, "solve": stats.seconds_solve, "read": stats.seconds_read}
        scale = (decided - applied) / sum(wall.values())
        phases = {
            "events": applied - start,
            **{name: scale * s for name, s in wall.items()},
            "commit": committed - decided,
        }
        return _Times(phases, len(rnd.placements), stats.changes, stats.solves, paused)

    def _account(self, gone: list[tuple[int, int]], rnd: fs.Round) -> None:
        fault = self._audit.move(gone, rnd.placements)
        if fault:
            self.wrong.append(f"round {self._now:g}: {fault}")
        for task, machine in rnd.placements.items():
            assert isinstance(task, tuple) and isinstance(machine, int)
            held = self._data[task[0]]
            racks = {holder // _RACK for holder in held}
            self.near[0 if machine in held else 1 if machine // _RACK in racks else 2] += 1
            self.running.append(task)

    def explain(self, count: int = 200) -> list[float]:
        """Submit many tasks that find no room, and decide; return the CPU seconds to explain each of some."""
        large = {"cpu": 0.99 * _CAPACITY["cpu"], "mem": 1}
        for job in range(_WAITING // _PER_JOB):
            self.sched.apply(fs.JobSubmitted(("large", job), [fs.Task((-1 - job, k), large) for k in range(_PER_JOB)]))
        self._now += 1.0
        waiting = self.sched.schedule(self._now).waiting
        seconds = []
        for task in self.random.sample(
            [(-1 - job, k) for job in range(_WAITING // _PER_JOB) for k in range(_PER_JOB)], count
        ):
            start = time.thread_time()
            reason = self.sched.explain(task)
            seconds.append(time.thread_time() - start)
            if task in waiting and not reason.detail:
                self.wrong.append(f"{task}: it waits, and no reason is given")
        return seconds

    def check_optimum(self) -> None:
        """Check the kept network's optimum by a cold solve with another algorithm."""
        net = self.sched.network.copy()
        kept = net.solve().cost
        nodes, arcs = net.nodes(), net.arcs()
        index = np.zeros(int(nodes.max()) + 1, np.int64)
        index[nodes] = np.arange(len(nodes))
        cold = fs.min_cost_flow(
            index[net.tail(arcs)], index[net.head(arcs)], net.capacity(arcs), net.cost(arcs), net.supply(nodes),
            lower=net.lower(arcs), algorithm="cost_scaling",
        )  # fmt: skip
        if cold.cost != kept:
            self.wrong.append(f"{self.machines} machines: the kept network costs {kept}, a cold solve {cold.cost}")


def _jobs(tasks: float) -> int:
    return max(1, round(tasks / _PER_JOB))


class _Audit:
    """Tasks and their machines, apart from the scheduler's inventory; in arrays, so that the audit costs little."""

    def __init__(self, machines: int) -> None:
        resources = fs.Resources(_RESOURCES)
        room = np.append(resources.capacity("machine", _CAPACITY), _SLOTS)
        self.free = np.tile(room, (machines, 1))
        self.where = np.zeros((0, _PER_JOB), np.int64)
        self._demands = [np.append(resources.demand("task", demand), 1) for demand in _DEMANDS]
        self._asks = np.zeros((0, len(room)), np.int64)
        self._jobs = 0

    def add_job(self, demand: Mapping[str, float]) -> None:
        """Add the next job, with waiting tasks of this demand."""
        self._jobs += 1
        self.where = grown(self.where, self._jobs, fill=-1)
        self._asks = grown(self._asks, self._jobs)
        self._asks[self._jobs - 1] = self._demands[_DEMANDS.index(demand)]

    def move(self, gone: list[tuple[int, int]], placements: Mapping[Hashable, Hashable]) -> str:
        """Record tasks that end and start; return the faults found."""
        for tasks, sign in ((gone, 1), (list(placements), -1)):
            job, k = np.array(tasks, np.int64).reshape(-1, 2).T
            job -= 1
            if sign > 0:
                rows = self.where[job, k]
                self.where[job, k] = -1
            else:
                rows = np.array(list(placements.values()), np.int64)
                if (self.where[job, k] >= 0).any():
                    return "a task was started that runs"
                self.where[job, k] = rows
            if (rows < 0).any():
                return "a task ended that does not run"
            np.add.at(self.free, rows, sign * self._asks[job])
        return "a machine is above capacity" if (self.free < 0).any() else ""


class _Pauses:
    """Seconds that Python's garbage collector has stopped this thread."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._begin = 0.0

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        now = time.thread_time()
        if phase == "start":
            self._begin = now
        else:
            self.seconds += now - self._begin


def run(*, quick: bool, seed: int = 0, say: Callable[[str], None], keep: Keep = forget) -> Outcome:
    """Measure clusters of three sizes, 1 % of the tasks of the largest exchanged in each round.

    ``quick`` takes an eighth of the size, and fewer rounds.
    """
    outcome = Outcome()
    keep(lambda: outcome)
    sizes = [(m // 8, t // 8) for m, t in _SIZES] if quick else list(_SIZES)
    exchanged = 0.01 * sizes[-1][1]
    costs = []
    for machines, tasks in sizes:
        world = LargeCluster(machines, tasks, seed)
        where = f"{machines:,} machines, {tasks:,} tasks"
        first = world.fill()
        say(f"{where}: {first.started:,} placed in {first.round:.2f} s")
        rounds = [world.exchange(exchanged / tasks) for _ in range(10 if quick else 40)]
        changed = 2 * _jobs(exchanged) * _PER_JOB
        costs.append(_tell(outcome, world, where, first, rounds, changed))
        say(f"{where}: a round of {changed:,} changes in {statistics.median(r.round for r in rounds) * 1e3:.1f} ms")
        world.check_optimum()
        if (machines, tasks) == sizes[-1]:
            seconds = np.array(world.explain())
            what = f"explain one of {_WAITING:,} waiting tasks"
            outcome.rows.append(
                Row(_NAME, where, f"{what}, median", float(np.median(seconds)), unit="s", note="goal: 1 ms")
            )
            outcome.rows.append(Row(_NAME, where, f"{what}, mean", float(seconds.mean()), unit="s"))
            outcome.rows.append(Row(_NAME, where, f"{what}, p99", float(np.percentile(seconds, 99)), unit="s"))
        outcome.wrong += world.wrong
    growth = costs[-1] / costs[0]
    row = Row(_NAME, f"from {sizes[0][0]:,} to {sizes[-1][0]:,} machines", "Python per changed task, growth", growth)
    outcome.rows.append(row)
    outcome.notes.append(
        f"Each round, {_jobs(exchanged) * _PER_JOB:,} tasks end and as many come, whatever the size of the cluster. CPU time of the thread."
    )
    if quick:
        outcome.notes.append("Quick: an eighth of the size and ten rounds instead of forty.")
    return outcome


def _tell(
    outcome: Outcome, world: LargeCluster, where: str, first: _Times, rounds: list[_Times], changed: int
) -> float:
    row = partial(Row, _NAME, where)
    whole = np.array([r.round for r in rounds])
    paused = np.array([r.paused for r in rounds])
    python = statistics.median(r.python for r in rounds) / changed
    outcome.rows += [
        row("nodes", world.sched.network.num_nodes),
        row("arcs", world.sched.network.num_arcs),
        row("memory of the process", _memory(), unit="MiB"),
        row("first round", first.round, unit="s", note=f"{first.started:,} tasks placed"),
        *(row(f"first round: {name}", first.phases[name], unit="s") for name in ("update", "solve", "read")),
        row(f"round of {changed:,} changes, median", float(np.median(whole)), unit="s"),
        row(f"round of {changed:,} changes, mean", float(whole.mean()), unit="s"),
        row(f"round of {changed:,} changes, p99", float(np.percentile(whole, 99)), unit="s"),
        row("the same without garbage collection", float(np.percentile(whole - paused, 99)), unit="s"),
        row("garbage collection in a round, longest", float(paused.max()), unit="s"),
        *(row(f"median: {name}", statistics.median(r.phases[name] for r in rounds), unit="s") for name in _PHASES),
        *(row(f"mean: {name}", statistics.fmean(r.phases[name] for r in rounds), unit="s") for name in _PHASES),
        row("solves in a round, median", statistics.median(r.solves for r in rounds)),
        row("Python (update, read) per changed task", python, unit="s", note="goal: 20 us"),
    ]
    placed = sum(world.near)
    for name, count in zip(("on a machine with their data", "in a rack with it", "elsewhere"), world.near, strict=True):
        outcome.rows.append(row(f"tasks placed {name}", 100 * count / placed, unit="%"))
    return python


def _memory() -> float:
    """Return the peak memory of the process so far, in MiB."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (2**20 if sys.platform == "darwin" else 2**10)


def plot(outcome: Outcome, folder: Path) -> list[Path]:
    """Plot the median time of each phase by size of the cluster."""
    settings = list(dict.fromkeys(row.setting for row in outcome.rows if row.metric == "nodes"))
    figure, (axes,) = chart("A round, by phase")
    bottom = np.zeros(len(settings))
    for phase in _PHASES:
        values = {row.setting: row.value for row in outcome.rows if row.metric == f"median: {phase}"}
        heights = np.array([float(values[setting] or 0) * 1e3 for setting in settings])
        axes.bar([setting.replace(", ", "\n") for setting in settings], heights, bottom=bottom, label=phase, width=0.5)
        bottom += heights
    axes.set_ylabel("ms, CPU time")
    figure.legend(loc="outside lower center", ncols=3)
    return [write(figure, folder, "round")]
