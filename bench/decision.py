"""Cost of a decision: one task ends, one comes, in clusters of three sizes; then larger changes, and the data kept.

Every setting is a cluster in balance: as many tasks arrive as end.  Each arrival finds room, except in the full cluster,
where a waiting task takes the room.  Single events are measured after twice as many tasks have ended, one by one, as run
at a time.  Before that, hardly a job goes with its last task, and no run comes of age.  With a journal, 20 tasks end in
each round until then, so runs come of age in every twentieth one.  Times are CPU time of this thread.
`Scheduler.schedule` is divided into update, solve and read in proportion to their wall time.  `gc.freeze()` is called
before rounds are measured, as a long-lived scheduler would call it.
"""

from __future__ import annotations

import gc
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

import flowsched as fs
from bench.drawing import chart, write
from bench.rows import Keep, Outcome, Row, forget
from flowsched.sim import Simulation, Workload
from flowsched.sim.traces.load import load_trace

__all__ = ["CLOCK", "TITLE", "Balance", "plot", "run"]

CLOCK = "CPU time of the thread, divided among the parts of `schedule` by their wall time; wall time for the trace"
TITLE = "what a decision costs: one task ends, one comes"

_NAME = "decision"
_RESOURCES = ("cpu", "mem")
_CAPACITY = {"cpu": 20, "mem": 64}
_SLOTS = 16
_RACK = 40
_DEMANDS = tuple({"cpu": cpu, "mem": mem} for cpu in (0.5, 1, 1.5, 2) for mem in (1, 3))
_LARGER = tuple(
    {"cpu": cpu, "mem": mem} for cpu in (1, 1.5, 2, 2.5, *range(3, 11)) for mem in (1, 1.5, 2, 2.5, *range(3, 7))
)
_PHASES = ("apply", "update", "solve", "read", "commit")
_WARM = 30
_PAUSE = 0.01
"""Seconds from one event to the next."""


@dataclass
class Balance:
    """A scheduler with its cluster, in which as many tasks come as end.

    Parameters
    ----------
    machines, tasks : int
        In racks of 40, and in jobs of 20; each machine has 20 CPUs, 64 units of memory and 16 slots.
    demands : sequence of mapping
        Requests to draw from: all tasks of a job have the same one.
    capacity : mapping
    slots : int, optional
        Of a machine; without a limit if None.
    policy : Policy, optional
    journal : Path, optional
    seed : int
    """

    machines: int
    tasks: int
    demands: tuple[dict[str, float], ...] = _DEMANDS
    capacity: dict[str, float] = field(default_factory=lambda: dict(_CAPACITY))
    slots: int | None = _SLOTS
    policy: fs.Policy = field(default_factory=fs.Policy)
    journal: Path | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.wrong: list[str] = []
        self.seconds: dict[str, float] = {}
        self._jobs, self._now = 0, 0.0
        self.sched = fs.Scheduler(self.policy, resources=_RESOURCES, journal=self.journal)
        added = [fs.MachineAdded(i, self.capacity, rack=i // _RACK, slots=self.slots) for i in range(self.machines)]
        start = time.thread_time()
        self.sched.apply(*added)
        self.seconds["machines"] = time.thread_time() - start
        self.first = self._decide([self._job(20) for _ in range(self.tasks // 20)])
        self.running: list[Hashable] = list(self._started)

    def _job(self, tasks: int) -> fs.JobSubmitted:
        self._jobs += 1
        demand = self.random.choice(self.demands)
        return fs.JobSubmitted(self._jobs, [fs.Task((self._jobs, k), demand) for k in range(tasks)])

    def exchange(self, changes: int) -> dict[str, float]:
        """End `changes` tasks, submit as many jobs of one task, and decide; return the seconds of each phase."""
        gone = [self.running.pop(self.random.randrange(len(self.running))) for _ in range(changes)]
        self._now += _PAUSE * changes
        phases = self._decide([*(fs.TaskCompleted(task) for task in gone), *(self._job(1) for _ in range(changes))])
        self.running += self._started
        return phases

    def turn_over(self, changes: int = 1) -> None:
        """End twice as many tasks as run at a time, `changes` in each round."""
        for _ in range(0, 2 * self.tasks, changes):
            self.exchange(changes)

    def _decide(self, events: list[fs.Event]) -> dict[str, float]:
        begin = time.thread_time()
        self.sched.apply(*events)
        applied = time.thread_time()
        rnd = self.sched.schedule(self._now)
        decided = time.thread_time()
        done = self.sched.commit(rnd)
        committed = time.thread_time()
        self._started = list(rnd.placements)
        self.waiting = len(rnd.waiting)
        if done.conflicts:
            self.wrong.append(f"round {self._now:g}: {len(done.conflicts)} conflicts at the commit")
        stats = rnd.stats
        wall = {"update": stats.seconds_update, "solve": stats.seconds_solve, "read": stats.seconds_read}
        scale = (decided - applied) / sum(wall.values())
        return {
            "apply": applied - begin, **{name: scale * seconds for name, seconds in wall.items()},
            "commit": committed - decided,
        }  # fmt: skip


def run(
    *, quick: bool, seed: int = 0, say: Callable[[str], None], data: Path | None = None, keep: Keep = forget
) -> Outcome:
    """Measure single events, batches, a full cluster, a first round, memory and a snapshot, and the openb trace.

    ``quick`` takes a tenth of the size, and fewer rounds.  ``data`` has ``openb/``; without it, the bundled model of the trace
    takes its place.
    """
    outcome = Outcome()
    keep(lambda: outcome)
    part, rounds = (10, 60) if quick else (1, 400)
    if quick:
        outcome.notes.append("Quick: a tenth of the size, and 60 rounds instead of 400.  Goals are of the full size.")
    _memory(
        outcome, 12_500 // part, seed, say
    )  # first: until then, the process holds no freed memory that the system does not get back
    _events(outcome, part, rounds, seed, say)
    _full(outcome, part, rounds, seed, say)
    _at_once(outcome, part, seed, say)
    _trace(outcome, data, part, seed, say)
    outcome.notes.append(
        "CPU time of the thread. A decision is `apply`, `schedule` and `commit`; making the events is not counted."
    )
    return outcome


def _events(outcome: Outcome, part: int, rounds: int, seed: int, say: Callable[[str], None]) -> None:
    """Measure one event, more of them at once, and a journal."""
    medians = []
    sizes = [size // part for size in (1_000, 10_000, 100_000)]
    for machines in sizes:
        world = Balance(machines, 2 * machines, seed=seed)
        world.turn_over()
        where = f"{machines:,} machines, {2 * machines:,} tasks"
        for changes in (1, 10, 100) if machines == sizes[1] else (1,):
            goal = "goal: 60 us" if changes == 1 and machines == sizes[1] else ""
            found = _measure(outcome, world, where, changes, rounds if changes < 100 else rounds // 4, goal)
            if changes == 1:
                medians.append(found)
            say(f"{where}: {_described(changes)}: {found * 1e6:.0f} us")
        outcome.wrong += world.wrong
    outcome.rows.append(
        Row(_NAME, f"from {sizes[0]:,} to {sizes[-1]:,} machines", "a decision after one event, growth", medians[-1] / medians[0],
            note="goal: 2", better="less")
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        world = Balance(sizes[1], 2 * sizes[1], journal=Path(folder, "journal"), seed=seed)
        world.turn_over(20)  # a round waits for the disk
        where = f"{sizes[1]:,} machines, {2 * sizes[1]:,} tasks, with a journal"
        found = _measure(outcome, world, where, 1, rounds, "goal: 110 us")
        say(f"{where}: {found * 1e6:.0f} us")
        assert world.sched.journal is not None
        world.sched.journal.close()
        outcome.wrong += world.wrong


def _described(changes: int) -> str:
    return "one task ends, one comes" if changes == 1 else f"{changes} tasks end, {changes} come"


def _measure(outcome: Outcome, world: Balance, where: str, changes: int, rounds: int, goal: str) -> float:
    """Add the rows of a decision after a number of changes; return its median."""
    gc.collect()
    gc.freeze()
    for _ in range(_WARM):
        world.exchange(changes)
    each = [world.exchange(changes) for _ in range(rounds)]
    gc.unfreeze()
    whole = np.array([sum(phases.values()) for phases in each])
    row = partial(Row, _NAME, where, unit="s")
    what = _described(changes)
    outcome.rows += [
        row(f"{what}: a decision, median", float(np.median(whole)), note=goal),
        row(f"{what}: a decision, mean", float(whole.mean())),
        row(f"{what}: a decision, p99", float(np.percentile(whole, 99))),
        *(row(f"{what}: {name}", statistics.median(phases[name] for phases in each)) for name in _PHASES),
        *(row(f"{what}: {name}, mean", statistics.fmean(phases[name] for phases in each)) for name in _PHASES),
    ]
    return float(np.median(whole))


def _full(outcome: Outcome, part: int, rounds: int, seed: int, say: Callable[[str], None]) -> None:
    """Measure one event where many tasks wait for room."""
    machines = 2_000 // part
    world = Balance(
        machines, 17 * machines, _LARGER, {"cpu": 32, "mem": 128}, None, fs.Policy(preemption=None), seed=seed
    )  # fmt: skip
    waiting = world.waiting
    where = f"full: {machines:,} machines, {waiting:,} tasks wait"
    found = _measure(outcome, world, where, 1, rounds, "goal: 500 us")
    say(f"{where}: {found * 1e6:.0f} us")
    outcome.wrong += world.wrong
    if not waiting:
        outcome.wrong.append(f"{where}: the cluster is not full")


def _at_once(outcome: Outcome, part: int, seed: int, say: Callable[[str], None]) -> None:
    """Measure machines that are added and tasks that are placed at once."""
    machines, tasks = 10_000 // part, 100_000 // part
    gc.collect()
    world = Balance(machines, tasks, seed=seed)
    where = f"{machines:,} machines, {tasks:,} tasks at once"
    row = partial(Row, _NAME, where, unit="s")
    whole = sum(world.first.values())
    outcome.rows += [
        row("machines added", world.seconds["machines"], note="goal: 0.05 s"),
        row("apply, schedule and commit", whole, note="goal: 0.5 s"),
        *(row(f"first round: {name}", world.first[name]) for name in _PHASES),
    ]
    if len(world.running) != tasks:
        outcome.wrong.append(f"{where}: {len(world.running)} started")
    say(f"{where}: {whole:.2f} s")
    outcome.wrong += world.wrong


def _memory(outcome: Outcome, machines: int, seed: int, say: Callable[[str], None]) -> None:
    """Measure the memory of running tasks, the work of the garbage collector, and a snapshot."""
    tasks = 12 * machines
    gc.collect()
    objects, memory = len(gc.get_objects()), _resident()
    world = Balance(machines, tasks, seed=seed)
    world.exchange(1)
    sched, running = world.sched, world.running
    world.running = []
    gc.collect()
    where = f"{machines:,} machines, {tasks:,} tasks run"
    start = time.thread_time()
    gc.collect()
    collected = time.thread_time() - start
    row = partial(Row, _NAME, where)
    outcome.rows += [
        row("objects that the collector looks at", len(gc.get_objects()) - objects, note="goal: 20,000", better="less"),
        row("a full collection", collected, unit="s"),
    ]
    if memory is not None and (now := _resident()) is not None:
        outcome.rows.append(row("memory", now - memory, unit="MiB", note="goal: half of 329 MiB"))
    say(f"{where}: {len(gc.get_objects()) - objects:,} objects")
    for task in running[tasks // 3 :]:
        sched.apply(fs.TaskCompleted(task))
    sched.commit(sched.schedule(world._now + 1))
    left = tasks - (tasks - tasks // 3)
    start = time.thread_time()
    image = sched.snapshot()
    taken = time.thread_time() - start
    where = f"{machines:,} machines, {left:,} tasks run"
    outcome.rows += [
        Row(_NAME, where, "snapshot", taken, unit="s", note="goal: 0.1 s"),
        Row(_NAME, where, "snapshot", len(image), unit="B"),
    ]
    if fs.Scheduler.restore(image).snapshot() != image:
        outcome.wrong.append(f"{where}: a restored scheduler has another snapshot")
    outcome.wrong += world.wrong


def _resident() -> float | None:
    """Return the memory of the process that is in use, in MiB; None where the system does not say."""
    if not sys.platform.startswith("linux"):
        return None
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 / 2**20


def _trace(outcome: Outcome, data: Path | None, part: int, seed: int, say: Callable[[str], None]) -> None:
    """Run the openb trace, a round for each event, with and without a time between rounds."""
    if data is not None and (data / "openb").is_dir():
        work, name = load_trace(data / "openb"), "openb"
        work = work.head(work.n_tasks // part)
    else:
        work, name = Workload.model(tasks=8000 // part, scale=1 / math.sqrt(part), seed=seed), "model of openb"
        outcome.notes.append(
            "no --data: the rows of the openb trace are those of the bundled model. "
            "They need DIR/openb, the folder data/csv of https://github.com/hkust-adsl/kubernetes-scheduler-simulator"
        )
    for trace, how in ((work, "a round per event"), (work.hold(), "no task ends")):
        gc.collect()
        metrics = Simulation(fs.Scheduler(fs.Policy(preemption=None), resources=trace.resources), trace).run()
        seconds = metrics.rounds["schedule"]
        whole = math.fsum(seconds)
        row = partial(Row, _NAME, f"{name}, {how}", unit="s", note="wall clock, schedule alone")
        outcome.rows += [
            row("rounds", len(seconds), unit="", note=""),
            row("decision, median", float(np.median(seconds))),
            row("decision, mean", float(np.mean(seconds))),
            row("decision, p99", float(np.percentile(seconds, 99))),
            row(
                "all decisions",
                whole,
                note="goal: 3 s; wall clock, schedule alone" if name == "openb" else "wall clock, schedule alone",
            ),
        ]
        say(f"{name}, {how}: {len(seconds):,} decisions in {whole:.2f} s")


def plot(outcome: Outcome, folder: Path) -> list[Path]:
    """Plot the parts of a decision after one event."""
    what = _described(1)
    rows = {(row.setting, row.metric): row.value for row in outcome.rows}
    settings = [setting for setting, metric in rows if metric == f"{what}: a decision, median"]
    figure, (axes,) = chart("A decision after one event")
    left = np.zeros(len(settings))
    for phase in _PHASES:
        widths = np.array([1e6 * float(rows[setting, f"{what}: {phase}"] or 0) for setting in settings])
        axes.barh([setting.replace(", ", "\n", 1) for setting in settings], widths, left=left, label=phase)
        left += widths
    axes.invert_yaxis()
    axes.tick_params("y", labelsize=8)
    axes.set_xlabel("us, CPU time")
    figure.legend(loc="outside lower center", ncols=3)
    return [write(figure, folder, "decision")]
