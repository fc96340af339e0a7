"""Flexibility of Sirius: the source's three experiments on 20 machines, each a network built another way.

20 machines in two racks, 24 cores each; those of rack 1 have a GPU.  *Fairness*: system normalised performance (SNP) of
batch, service and mixed load, against random placement.  *Placement*: image analysis that wants GPUs.  *Priority*: three
loads of 480 one-core tasks, with equal priority and with TPC-H first.

The source measured real machines.  Here tasks run in the simulator, by a model that is stated in the notes: what a core,
a GPU or data in the other rack is worth are assumptions; who waits, and who shares a machine with whom, is measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster import Cluster, Machine, Task
from flowsched.cluster.events import Event, JobSubmitted, MachineAdded
from flowsched.cluster.records import Group
from flowsched.experiments.rows import Outcome, Row
from flowsched.policy import Fairness, LoadCost, MaxMin, Policy, WaitCost
from flowsched.rounds.values import Commit, Place, Round, RoundStats
from flowsched.scheduler import Scheduler
from flowsched.sim import Arrival, Simulation, Workload
from flowsched.sim.baselines import Greedy, Shares
from flowsched.sim.execution import Execution

__all__ = ["TITLE", "plot", "run"]

TITLE = "flexibility: fairness, placement and priority on 20 machines (Sirius, section 4.2)"

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_NAME = "sirius"
_RESOURCES = ("cpu",)
_CORES = 24
_CONTENTION = 0.5
_OFF_RACK = 0.7
_OFF_GPU = 1 / 3
_EACH = 480


@dataclass(frozen=True)
class _Kind:
    """A program: seconds that its tasks take, and where they run at full speed."""

    name: str
    seconds: tuple[float, float]
    gpu: bool = False
    rack: str | None = None

    def speed(self, rack: str) -> float:
        """On a machine of a rack; those of rack 1 have the GPUs."""
        if self.gpu and rack != "rack1":
            return _OFF_GPU
        return _OFF_RACK if self.rack is not None and rack != self.rack else 1.0


def _machines(slots: Callable[[str], int | None]) -> list[Machine]:
    racks = [f"rack{1 + i // 10}" for i in range(20)]
    return [Machine(f"m{i:02}", {"cpu": _CORES}, rack, slots=slots(rack)) for i, rack in enumerate(racks)]


@dataclass(frozen=True)
class _Utility:
    """Placement by utility: what a machine is worth to a task, negated and scaled to costs in [0, 1]."""

    weight: float = 1.0

    def __call__(self, cluster: Cluster, classes: Ints, rows: Ints) -> Floats:
        """Cost of one more task of each class on each machine, shape (classes, rows)."""
        kinds = {cls.index: cls.kind for cls in cluster.waiting}
        racks = [cluster.by_row[row].machine.rack for row in rows.tolist()]
        cost = np.zeros((len(classes), len(rows)))
        for i, cls in enumerate(classes.tolist()):
            kind = kinds.get(cls)
            if isinstance(kind, _Kind):
                cost[i] = [1.0 - kind.speed(str(rack)) for rack in racks]
        return cost


class _Random:
    """Every task at once to a machine drawn at random; `slots` tasks per machine at most, or without looking."""

    def __init__(self, seed: int, slots: int | None = None) -> None:
        self._rng = np.random.default_rng(seed)
        self._slots = slots
        self._free: dict[Hashable, int] = {}
        self._where: dict[Hashable, Hashable] = {}
        self._waiting: dict[Hashable, None] = {}

    def apply(self, *events: Event) -> None:
        """Hear what happened."""
        for event in events:
            if isinstance(event, MachineAdded):
                self._free[event.id] = 1 << 40 if self._slots is None else self._slots
            elif isinstance(event, JobSubmitted):
                self._waiting.update(dict.fromkeys(task.id for task in event.tasks))
            elif (task := getattr(event, "task", None)) is not None:
                if isinstance(task, Task):
                    self._waiting[task.id] = None
                elif task in self._where:
                    self._free[self._where.pop(task)] += 1

    def schedule(self, now: float, time_limit: float | None = None) -> Round:
        """Draw lots."""
        begin = time.perf_counter()
        free = dict(self._free)
        places: dict[Hashable, Hashable] = {}
        for task in self._waiting:
            open_ = [machine for machine, room in free.items() if room > 0]
            if not open_:
                break
            machine = open_[int(self._rng.integers(len(open_)))]
            free[machine] -= 1
            places[task] = machine
        deltas = tuple(Place(task, machine, ()) for task, machine in places.items())
        stats = RoundStats(0, 0, 0, 0, 0.0, 0.0, time.perf_counter() - begin)
        return Round(now, places, {}, {}, {}, {}, deltas, stats)

    def commit(self, round: Round, only: Collection[Hashable] | None = None) -> Commit:
        """What was drawn happens."""
        for task, machine in round.placements.items():
            self._free[machine] -= 1
            self._where[task] = machine
            del self._waiting[task]
        return Commit(round.deltas, {})


@dataclass(frozen=True)
class _Load:
    """Jobs that arrive: when, what they run, durations of their tasks, and their priority."""

    name: str
    jobs: Sequence[tuple[float, _Kind, Floats, int]]

    def workload(self, machines: Sequence[Machine]) -> tuple[Workload, Execution]:
        """For the simulator."""
        arrivals = []
        kinds: dict[Hashable, _Kind] = {}
        for j, (at, kind, seconds, priority) in enumerate(self.jobs):
            ids = [(j, i) for i in range(len(seconds))]
            kinds.update(dict.fromkeys(ids, kind))
            tasks = [Task(task, {"cpu": 1}, kind=kind) for task in ids]
            arrivals.append(Arrival(at, JobSubmitted(j, tasks, user=kind.name, priority=priority), seconds.tolist()))
        racks = {machine.id: str(machine.rack) for machine in machines}
        execution = Execution(
            compressible=("cpu",), contention=_CONTENTION, speed=lambda task, machine: kinds[task].speed(racks[machine])
        )
        return Workload(self.name, arrivals, machines, resources=_RESOURCES, units={"cpu": "cores"}), execution


@dataclass(frozen=True)
class _Run:
    """What came of it, task by task in the order of arrival, and job by job."""

    load: _Load
    waits: Floats
    ends: Floats

    @property
    def _job(self) -> Ints:
        return np.repeat(np.arange(len(self.load.jobs)), [len(seconds) for _, _, seconds, _ in self.load.jobs])

    @property
    def spent(self) -> Floats:
        """Seconds of each task from arrival to end."""
        arrived = np.array([at for at, _, _, _ in self.load.jobs])
        spent: Floats = self.ends - arrived[self._job]
        return spent

    def of(self, name: str, values: Floats) -> float:
        """Mean over the tasks of a program."""
        mine = np.array([kind.name == name for _, kind, _, _ in self.load.jobs])
        return float(values[mine[self._job]].mean())

    def snp(self) -> float:
        """Geometric mean over jobs of ideal / actual run time (equation 11)."""
        spent, job = self.spent, self._job
        ideal = np.array([seconds.max() for _, _, seconds, _ in self.load.jobs])
        actual = np.array([spent[job == j].max() for j in range(len(ideal))])
        return float(np.exp(np.log(ideal / actual).mean()))


def _simulate(load: _Load, scheduler: Any, slots: Callable[[str], int | None]) -> _Run:
    machines = _machines(slots)
    workload, execution = load.workload(machines)
    metrics = Simulation(scheduler, workload, execution=execution).run()
    if metrics.tasks["completed"] != workload.n_tasks:
        raise AssertionError(f"{load.name}: {metrics.tasks['completed']} of {workload.n_tasks} tasks were completed")
    return _Run(load, metrics.waits, metrics.ends)


def _cores(rack: str) -> int | None:
    return _CORES


def _unbounded(rack: str) -> int | None:
    return None


# -- fairness -----------------------------------------------------------------------------------------------------------

_BATCH = [
    _Kind("MergeSort", (20.0, 40.0), rack="rack1"),
    _Kind("MergeSort", (20.0, 40.0), rack="rack2"),
    _Kind("PageRank", (30.0, 60.0), rack="rack2"),
    _Kind("TPC-H", (5.0, 10.0), rack="rack1"),
    _Kind("TPC-H", (5.0, 10.0), rack="rack2"),
    _Kind("image analysis", (20.0, 30.0), gpu=True),
]
_SERVICES = [_Kind(name, (60.0, 120.0)) for name in ("Httpd", "Mysql", "Redis")]


def _jobs(name: str, kinds: Sequence[_Kind], count: int, part: float, seed: int) -> _Load:
    """Jobs of 12 to 72 tasks, as many a second as keep `part` of all cores busy."""
    rng = np.random.default_rng([seed, len(kinds)])
    jobs, at = [], 0.0
    for _ in range(count):
        kind = kinds[int(rng.integers(len(kinds)))]
        seconds = rng.uniform(*kind.seconds, size=int(rng.integers(12, 73)))
        jobs.append((at, kind, seconds, 0))
        at += float(rng.exponential(seconds.sum() / (part * 20 * _CORES)))
    return _Load(name, jobs)


def _sirius(**given: Any) -> Scheduler:
    return Scheduler(Policy(placement=(_Utility(1.0), LoadCost("spread", 0.2)), **given), resources=_RESOURCES)


def _fairness(outcome: Outcome, quick: bool, seed: int) -> dict[str, dict[str, float]]:
    count = 40
    found: dict[str, dict[str, float]] = {}
    patient, fair = WaitCost(first=10.0, patience=0.5), Fairness(MaxMin(), mode="ladder")
    for name, kinds in (("batch", _BATCH), ("service", _SERVICES), ("mixed", _BATCH + _SERVICES)):
        for part in (0.7,) if quick else (0.5, 0.7, 0.85):
            load = _jobs(name, kinds, count, part, seed)
            snp = {
                "Sirius": _simulate(load, _sirius(waiting=patient), _cores).snp(),
                "Sirius with max-min": _simulate(load, _sirius(waiting=patient, fairness=fair), _cores).snp(),
                "random": _simulate(load, _Random(seed), _unbounded).snp(),
                "random, 24 slots": _simulate(load, _Random(seed, _CORES), _cores).snp(),
            }
            setting = f"{name} load of {part:.0%}"
            found[setting] = snp
            for other, source in (
                ("random", "ratio about 2"),
                ("random, 24 slots", None),
                ("Sirius with max-min", None),
            ):
                outcome.rows.append(Row(
                    _NAME, setting, "SNP (1 is ideal)", snp["Sirius"], snp[other], snp["Sirius"] / snp[other], source,
                    note=f"baseline: {other}",
                ))  # fmt: skip
            if snp["Sirius"] < 0.99 * snp["random"]:
                outcome.wrong.append(f"{setting}: SNP {snp['Sirius']:.3f} is below random's {snp['random']:.3f}")
    return found


# -- placement ----------------------------------------------------------------------------------------------------------


def _gpu_tasks(count: int, seed: int) -> _Load:
    kind = _Kind("image analysis", (50.0, 70.0), gpu=True)
    rng = np.random.default_rng([seed, count])
    return _Load(f"{count} GPU tasks", [(0.0, kind, rng.uniform(*kind.seconds, size=1), 0) for _ in range(count)])


def _placement(outcome: Outcome, seed: int) -> dict[str, dict[int, tuple[float, float]]]:
    """One task per machine (10 tasks, a GPU each) or two per GPU (20 tasks and more, half a GPU each)."""
    found: dict[str, dict[int, tuple[float, float]]] = {"Sirius": {}, "GPU machines only": {}, "random": {}}
    for count in (10, 20, 30, 40):
        load = _gpu_tasks(count, seed)

        def slots(rack: str, count: int = count) -> int | None:
            return 2 if rack == "rack1" and count > 10 else 1

        def one(rack: str) -> int | None:
            return 1 if rack == "rack1" else 0

        patient = WaitCost(first=60.0, patience=0.5)
        runs = {
            "Sirius": _simulate(load, _sirius(waiting=patient), slots),
            "GPU machines only": _simulate(load, Greedy(_oldest, _RESOURCES), one),
            "random": _mean([_simulate(load, _Random(seed + i, 1), _cores) for i in range(10)]),
        }
        for name, run_ in runs.items():
            found[name][count] = float(run_.spent.mean()), float(run_.waits.mean())
        for other in ("random", "GPU machines only"):
            mine, theirs = found["Sirius"][count], found[other][count]
            source = "about half of random" if (count, other) == (10, "random") else None
            if (count, other) == (20, "GPU machines only"):
                source = "better than Swarm"
            outcome.rows.append(Row(
                _NAME, f"{count} GPU tasks", "mean run time with waiting", mine[0], theirs[0], theirs[0] / mine[0], source, "s",
                note=f"baseline: {other}",
            ))  # fmt: skip
            outcome.rows.append(Row(
                _NAME, f"{count} GPU tasks", "mean wait", mine[1], theirs[1], None, "lower than Swarm" if count > 10 and other[0] == "G"
                else None, "s", note=f"baseline: {other}",
            ))  # fmt: skip
    return found


def _mean(runs: Sequence[_Run]) -> _Run:
    """Task by task over several seeds."""
    return _Run(runs[0].load, np.mean([r.waits for r in runs], axis=0), np.mean([r.ends for r in runs], axis=0))


def _oldest(group: Group, shares: Shares) -> tuple[float, ...]:
    """The best priority, then who has waited longest: how Borg's and Kubernetes' queues go."""
    return group.cls.priority, group.waiting[0].turn


# -- priority -----------------------------------------------------------------------------------------------------------

_LOADS = [_Kind("MergeSort", (8.0, 16.0)), _Kind("PageRank", (6.0, 12.0)), _Kind("TPC-H", (0.3, 0.9))]


def _three_loads(first: bool, seed: int) -> _Load:
    """480 one-core tasks of each, in any order within a second; with `first`, TPC-H has priority 1 and the others 2."""
    rng = np.random.default_rng(seed)
    jobs = []
    for at in np.sort(rng.uniform(0.0, 1.0, size=_EACH // 10)):
        for kind in _LOADS:
            priority = 1 if not first or kind.name == "TPC-H" else 2
            jobs.append((float(at), kind, rng.uniform(*kind.seconds, size=10), priority))
    return _Load(f"three loads of {_EACH}", jobs)


def _priority(outcome: Outcome, seed: int) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for label, first in (("equal priority", False), ("TPC-H first", True)):
        load = _three_loads(first, seed)
        waiting = WaitCost(first=0.25, factor=1.5, buckets=16)
        runs = {
            "Sirius": _simulate(load, _sirius(waiting=waiting), _cores),
            "priority queue": _simulate(load, Greedy(_oldest, _RESOURCES), _cores),
        }
        for name, run_ in runs.items():
            found[f"{name}, {label}"] = {kind.name: run_.of(kind.name, run_.spent) for kind in _LOADS}
        for kind in _LOADS:
            mine, theirs = (found[f"{name}, {label}"][kind.name] for name in runs)
            source = {"equal priority": "> 5 s", "TPC-H first": "< 1 s"}[label] if kind.name == "TPC-H" else None
            outcome.rows.append(Row(
                _NAME, f"3 x {_EACH} tasks, {label}", f"{kind.name}: mean run time with waiting", mine, theirs, theirs / mine, source,
                "s", note="baseline: priority queue (as Borg, Kubernetes)",
            ))  # fmt: skip
    equal, first_ = (found[f"Sirius, {label}"]["TPC-H"] for label in ("equal priority", "TPC-H first"))
    outcome.rows.append(Row(
        _NAME, f"3 x {_EACH} tasks", "TPC-H: gain by priority", first_, equal, equal / first_, "ratio 5", "s", note="baseline: equal priority",
    ))  # fmt: skip
    if first_ >= equal:
        outcome.wrong.append(f"priority makes TPC-H no faster: {first_:.2f} s against {equal:.2f} s")
    return found


@dataclass
class _Outcome(Outcome):
    """With what the plots need."""

    snp: Any = None
    gpu: Any = None
    priority: Any = None


def run(*, quick: bool, seed: int = 0, say: Callable[[str], None]) -> Outcome:
    """The three experiments."""
    outcome = _Outcome()
    say("fairness: SNP of batch, service and mixed load")
    outcome.snp = _fairness(outcome, quick, seed)
    say("placement: 10 to 40 tasks that want a GPU")
    outcome.gpu = _placement(outcome, seed)
    say("priority: three loads of 480")
    outcome.priority = _priority(outcome, seed)
    outcome.notes.append(
        f"Model of run time: more tasks than cores slow each other down (contention {_CONTENTION:g} beyond sharing), data in the "
        f"other rack costs {1 - _OFF_RACK:.0%} of the speed, image analysis without a GPU runs at {_OFF_GPU:.0%}. Random placement without slots is "
        "overloaded by its own contention at high load, so its ratio grows with the load and the time."
    )
    outcome.notes.append(
        "'Sirius' goes by costs (utility, load, waiting) and 24 slots a machine, as in the source; 'with max-min' adds a ladder over "
        "jobs, whose price outweighs utility: tasks below their share do not wait for a better place."
    )
    outcome.notes.append("The source draws these figures without stating numbers; its words are under 'source'.")
    outcome.notes.append(
        "'GPU machines only' is a hard constraint with one task per GPU, as Swarm is configured in the source."
    )
    return outcome


def plot(outcome: Outcome, folder: Path) -> list[Path]:
    """Figures 7 to 11 of the source."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    assert isinstance(outcome, _Outcome)
    files = []

    def bars(
        name: str, groups: Sequence[str], series: dict[str, Sequence[float]], label: str, title: str, log: bool = False
    ) -> None:
        figure, axis = plt.subplots(figsize=(max(6.4, 1.2 * len(groups)), 3.6), layout="constrained")
        width = 0.8 / len(series)
        for i, (who, values) in enumerate(series.items()):
            drawn = axis.bar(np.arange(len(groups)) + (i - (len(series) - 1) / 2) * width, values, width, label=who)
            axis.bar_label(drawn, fmt="%.2g" if len(groups) > 4 else "%.3g", fontsize=7)
        axis.set_xticks(np.arange(len(groups)), [group.replace(" load of ", "\n") for group in groups])
        axis.set_ylabel(label)
        if log:
            axis.set_yscale("log")
        axis.margins(y=0.15)
        axis.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2)
        axis.set_title(title)
        path = folder / f"sirius-{name}.png"
        figure.savefig(path, dpi=120)
        plt.close(figure)
        files.append(path)

    loads = list(outcome.snp)
    bars(
        "snp",
        loads,
        {who: [outcome.snp[load][who] for load in loads] for who in outcome.snp[loads[0]]},
        "SNP",
        "Fairness (fig. 7)",
    )
    counts = list(outcome.gpu["Sirius"])
    for i, (name, label) in enumerate((("gpu-runtime", "mean run time, s"), ("gpu-wait", "mean wait, s"))):
        series: dict[str, Sequence[float]] = {
            who: [values[count][i] for count in counts] for who, values in outcome.gpu.items()
        }
        bars(name, [f"{count} tasks" for count in counts], series, label, f"Placement (fig. {8 + i})")
    programs = [kind.name for kind in _LOADS]
    by_program: dict[str, Sequence[float]] = {
        who: [values[name] for name in programs] for who, values in outcome.priority.items()
    }
    bars("priority", programs, by_program, "mean run time, s", "Priority (figs. 10 and 11)", log=True)
    return files
