"""Allocation of an overloaded GPU cluster: the openb trace, one pod at a time and in rounds.

Source: Weng et al., "Beware of Fragmentation" (FGD), USENIX ATC 2023, and the table of its artifact.  Its protocol: all
pods of the trace, then pods drawn from it until 130 % of the cluster's GPUs are requested, shuffled; they arrive one by
one and stay; each is placed on arrival or fails; nothing moves.  The figure is the part of all GPUs that is allocated.

Added here: *rounds* of pods that arrive together, where a pod fails if its round does not place it; *patient* rounds, where
pods that would spoil GPUs wait for a better place until the last round; and a run in which all pods are known at once.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import flowsched as fs
from bench.drawing import COLOURS, PUBLISHED, chart, write
from bench.rows import Keep, Outcome, Row, forget
from flowsched.exceptions import TraceError
from flowsched.policy import FragmentationCost, WaitCost
from flowsched.sim import scheduler
from flowsched.sim.audit import AuditError, AuditInventory
from flowsched.sim.processes import each_in_a_process
from flowsched.sim.traces.load import load_trace
from flowsched.sim.traces.openb import PODS
from flowsched.sim.workload import Workload

__all__ = ["TITLE", "plot", "run"]

TITLE = "openb at saturation: GPUs allocated when 100, 115 and 130 % of them have been asked for"

_NAME = "openb"
_SEEDS = range(42, 45)
_MARKS = (1.0, 1.15, 1.3)
_STEP = 0.2
_PATIENCE = 0.5
_FOREVER = 1e12
_MODEL_PODS, _MODEL_SCALE = 8152, 1.0
"""Of the bundled model: as many pods and machines as the trace has."""

_PUBLISHED = {
    "default": {
        "Random": (86.30, 87.10, 87.47), "DotProd": (90.62, 90.73, 90.85), "GpuClustering": (91.65, 91.76, 91.88),
        "GpuPacking": (91.78, 91.89, 92.00), "BestFit": (92.86, 92.97, 93.08), "FGD": (95.23, 95.32, 95.39),
    },
    "gpuspec33": {
        "Random": (83.87, 85.88, 86.46), "DotProd": (79.82, 89.04, 89.14), "GpuClustering": (81.09, 91.75, 92.12),
        "GpuPacking": (82.22, 92.98, 93.22), "BestFit": (80.40, 91.38, 93.09), "FGD": (87.84, 94.47, 94.55),
    },
}  # fmt: skip
"""Mean of ten seeds, one pod at a time, by variant and policy, at each of `_MARKS`."""

_FGD_RANGE = {"default": (95.27, 95.49), "gpuspec33": (94.30, 94.79)}
"""Least and most of the ten seeds under FGD at the last mark, by variant (``analysis_allo_discrete.csv`` of the artifact)."""


@dataclass(frozen=True)
class _Setting:
    """Mode of decision: number of pods at a time (0: all at once); pods that are not placed stay or fail.

    `scheduler` is a name of `flowsched.sim.SCHEDULERS` that decides instead of the min-cost flow.
    """

    name: str
    batch: int
    patient: bool = False
    scheduler: str = ""

    def policy(self, fragmentation: FragmentationCost) -> fs.Policy:
        """The policy of a run: no pod moves, and a pod that is decided alone never waits by choice."""
        return fs.Policy(
            placement=(fragmentation,),
            preemption=None,
            waiting=WaitCost(first=_FOREVER, patience=_PATIENCE if self.patient else 1.0),
            step=1.0 if self.batch == 1 else _STEP,
        )


_ONLINE = _Setting("online", 1)
_ROUNDS = _Setting("rounds of 1,000", 1000)
_OURS = {"fgd": "FGD", "random": "Random"}
"""Schedulers of this package that do the same as published policies."""

_AGAIN = tuple(_Setting(f"{name} of flowsched", 1, scheduler=name) for name in _OURS)
_SETTINGS = (
    _ONLINE,
    _Setting("rounds of 10", 10),
    _Setting("rounds of 100", 100),
    _ROUNDS,
    _Setting("patient rounds of 1,000", 1000, patient=True),
    _Setting("all known at once", 0),
    *_AGAIN,
)


@dataclass
class _Run:
    """Result of a run; percentages are of all GPUs of the cluster."""

    allocated: list[float] = field(default_factory=list)
    placed: int = 0
    arrived: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    rounds: list[float] = field(default_factory=list)
    crumbs: float = 0.0
    blocked: float = 0.0


def run(
    *, quick: bool, seed: int = 0, say: Callable[[str], None], data: Path | None = None, keep: Keep = forget
) -> Outcome:
    """Measure every available variant of the trace, in all settings, with three seeds; without it, the bundled model.

    Runs are parallel, one process for each core.  ``quick`` takes one seed, and only rounds of 1,000.  The first seed is 42 + `seed`.
    ``data`` has ``openb/openb_node_list_all_node.csv`` and ``openb/openb_pod_list_*.csv``.

    Raises
    ------
    FileNotFoundError
        If `data` has no such files; before anything is measured.
    """
    outcome = Outcome()
    keep(lambda: outcome)
    settings = (_ONLINE, _ROUNDS, *_AGAIN) if quick else _SETTINGS
    seeds = [each + seed for each in (_SEEDS[:1] if quick else _SEEDS)]
    cores = os.cpu_count() or 1
    for variant, load in _workloads(data, outcome.notes).items():
        runs: dict[_Setting, list[_Run]] = {setting: [] for setting in settings}
        jobs = [(load, setting, each) for setting in settings for each in seeds]
        for setting, found, wrong in each_in_a_process(_job, jobs, cores, lambda: False):
            runs[setting].append(found)
            outcome.wrong += wrong
            figures = ", ".join(f"{share:.2f}" for share in found.allocated)
            say(f"{variant}, {setting.name}, run {len(runs[setting])} of {len(seeds)}: {figures} %")
        _tell(outcome, variant, runs)
    outcome.notes += [
        (
            "Source: FGD in the same variant, one pod at a time, mean of ten seeds; of Random for random. Nothing moves in "
            "any setting. The schedulers fgd and random are those of `flowsched simulate --scheduler`. Notes have the range."
        ),
        (
            "Bound: 13 % of the pods ask for 81 % of a GPU; hardly any pod can use the 19 % next to one of them. "
            "Who takes every pod that fits (online, rounds) has taken most of these before the cluster is full; who may "
            "leave some out (patient, all known) fills GPUs with pods that add up."
        ),
    ]
    if quick:
        outcome.notes.append("Quick: one seed instead of three, and four settings of eight.")
    return outcome


def _workloads(data: Path | None, notes: list[str]) -> dict[str, Callable[[], Workload]]:
    """Return a loader of the machines and pods of each variant: from the trace's files, or from the bundled model."""
    if data is not None:
        folder = data / _NAME
        return {variant: partial(load_trace, folder, variant=variant) for variant in _variants(folder)}
    notes.append(
        "no --data: these are the machines and pods of the bundled model, not of the trace, and the rows of published figures "
        f"are left out. They need DIR/{_NAME}, the folder data/csv of https://github.com/hkust-adsl/kubernetes-scheduler-simulator"
    )
    return {"model": partial(Workload.model, tasks=_MODEL_PODS, scale=_MODEL_SCALE)}


def _variants(folder: Path) -> list[str]:
    """Return the names of the lists of pods in the folder, the published ones first."""
    found = sorted({path.name.removeprefix(PODS).split(".")[0] for path in folder.glob(f"{PODS}*.csv*")})
    if not found:
        raise FileNotFoundError(f"{folder}: no {PODS}*.csv; --data names the directory that holds openb/")
    return sorted(found, key=lambda name: (name not in _PUBLISHED, name))


def _arrivals(pods: Sequence[fs.Task], gpus: float, seed: int) -> list[fs.Task]:
    """Return all pods, then copies drawn from them until the next would exceed the last mark; shuffled."""
    draw = random.Random(seed)
    chosen, asked = list(pods), sum(_gpus(pod) for pod in pods)
    if not asked:
        raise TraceError("openb: no pod of the trace asks for a GPU")
    while (asked := asked + _gpus(pod := draw.choice(pods))) <= _MARKS[-1] * gpus + 1e-6:
        chosen.append(pod)
    draw.shuffle(chosen)
    return [fs.Task(i, pod.demand, pod.constraints) for i, pod in enumerate(chosen)]


def _gpus(what: fs.Task | fs.Machine) -> float:
    """Return the GPUs of a pod's demand, or of a machine."""
    amounts = what.demand if isinstance(what, fs.Task) else what.capacity
    assert isinstance(amounts, Mapping), "as the reader makes them"
    return float(amounts["gpu"])


def _job(job: tuple[Callable[[], Workload], _Setting, int]) -> tuple[_Setting, _Run, list[str]]:
    """Measure one run in a process of its own; return its setting, the run and its errors."""
    load, setting, seed = job
    wrong: list[str] = []
    return setting, _measure(load(), setting, seed, wrong), wrong


def _measure(trace: Workload, setting: _Setting, seed: int, wrong: list[str]) -> _Run:
    """Run the pods through the scheduler, with every placement checked by an independent inventory."""
    pods = [task for arrival in trace.arrivals for task in arrival.job.tasks]
    gpus = sum(_gpus(machine) for machine in trace.machines)
    tasks = _arrivals(pods, gpus, seed)
    by_id: dict[Hashable, fs.Task] = {task.id: task for task in tasks}
    inventory = AuditInventory(fs.Resources(("cpu", "mem", "gpu")))
    for machine in trace.machines:
        inventory.add_machine(machine)
    out, asked, given = _Run(arrived=len(tasks)), 0.0, 0.0
    begin, cpu = time.perf_counter(), time.process_time()
    policy = setting.policy(FragmentationCost.of(pods))
    sched: Any = scheduler(setting.scheduler, trace, seed=seed) if setting.scheduler else fs.Scheduler(policy)
    sched.apply(*(fs.MachineAdded(m.id, m.capacity, labels=m.labels) for m in trace.machines))
    for now, batch in _batches(tasks, setting.batch or len(tasks)):
        last = batch[-1] is tasks[-1]
        start = time.perf_counter()
        sched.apply(*(fs.JobSubmitted(task.id, (task,)) for task in batch))
        if last and setting.patient:
            sched.policy = replace(policy, waiting=WaitCost(first=_FOREVER))
        rnd = sched.schedule(now)
        sched.commit(rnd)
        if not setting.patient:
            sched.apply(*(fs.JobRemoved(task) for task in rnd.waiting))
        out.rounds.append(time.perf_counter() - start)
        _audit(inventory, batch, rnd, wrong)
        given += sum(_gpus(by_id[task]) for task in rnd.placements)
        out.placed += len(rnd.placements)
        asked += sum(_gpus(task) for task in batch)
        while len(out.allocated) < len(_MARKS) and (last or asked >= _MARKS[len(out.allocated)] * gpus):
            out.allocated.append(100 * given / gpus)
    out.seconds, out.cpu = time.perf_counter() - begin, time.process_time() - cpu
    free = sched.cluster.inventory.rooms_of(np.arange(sched.cluster.inventory.rows)) / 1e6
    out.crumbs = 100 * float(free[free < 1].sum()) / gpus
    out.blocked = 100 * float((free == 1).sum()) / gpus
    if abs(out.allocated[-1] + out.crumbs + out.blocked - 100) > 1e-6:
        wrong.append(f"{trace.name}, {setting.name}, seed {seed}: allocated and free GPUs do not add up to all")
    return out


def _batches(tasks: Sequence[fs.Task], size: int) -> Iterator[tuple[float, Sequence[fs.Task]]]:
    return ((float(start), tasks[start : start + size]) for start in range(0, len(tasks), size))


def _audit(inventory: AuditInventory, batch: Sequence[fs.Task], rnd: fs.Round, wrong: list[str]) -> None:
    """Audit a round: capacity, each GPU, and the GPU models that pods allow."""
    inventory.register(batch)
    try:
        for task_id, machine in rnd.placements.items():
            inventory.place(task_id, machine, rnd.devices[task_id], rnd.now)
        inventory.check(set(rnd.placements.values()), rnd.now)
    except AuditError as error:
        wrong.append(str(error))


def _mean(values: Iterator[float]) -> float:
    return statistics.fmean(values)


def _tell(outcome: Outcome, variant: str, runs: dict[_Setting, list[_Run]]) -> None:
    """Add rows of one variant: flowsched compared with FGD, then the other published policies."""
    published = _PUBLISHED.get(variant, {})
    for setting, each in runs.items():
        row = partial(Row, _NAME, f"{variant}, {setting.name}")
        for i, mark in enumerate(_MARKS):
            if setting.batch == 0 and mark != _MARKS[-1]:
                continue
            figures = [r.allocated[i] for r in each]
            spread = (
                f"{min(figures):.2f} to {max(figures):.2f}, {len(figures)} seeds" if len(figures) > 1 else "one seed"
            )
            same = published[_OURS.get(setting.scheduler, "FGD")][i] if published else None
            mean = round(statistics.fmean(figures), 2)
            outcome.rows.append(row(f"GPUs allocated at {mark:.0%}", mean, source_value=same, unit="%", note=spread))
        rounds = np.concatenate([r.rounds for r in each])
        outcome.rows += [
            row("left next to shares of a GPU", round(_mean(r.crumbs for r in each), 2), unit="%"),
            row("left as whole GPUs", round(_mean(r.blocked for r in each), 2), unit="%"),
            row("pods placed", round(_mean(100 * r.placed / r.arrived for r in each), 1), unit="%"),
            row("one run", _mean(r.seconds for r in each), unit="s", note=f"{each[0].arrived:,} pods"),
            row("one run, CPU time", _mean(r.cpu for r in each), unit="s"),
            row("one round, median", float(np.median(rounds)), unit="s"),
            row("one round, mean", float(rounds.mean()), unit="s"),
            row("one round, p99", float(np.percentile(rounds, 99)), unit="s"),
        ]
    metric = f"GPUs allocated at {_MARKS[-1]:.0%}"
    ours = next(r.value for r in outcome.rows if r.setting == f"{variant}, {_ONLINE.name}" and r.metric == metric)
    for policy, theirs in published.items():
        row = partial(Row, _NAME, f"{variant}, {policy} as published", metric)
        spread = " to ".join(f"{share:.2f}" for share in _FGD_RANGE[variant]) if policy == "FGD" else ""
        note = "value: ours, online" + (f"; published: {spread}, ten seeds" if spread else "")
        outcome.rows.append(row(ours, source_value=theirs[-1], unit="%", note=note))


def plot(outcome: Outcome, folder: Path) -> list[Path]:
    """Plot the GPUs allocated at the last mark: flowsched's settings and the published policies, one panel per variant."""
    metric = f"GPUs allocated at {_MARKS[-1]:.0%}"
    bars: dict[str, list[tuple[str, float, str]]] = {}
    for row in outcome.rows:
        if row.metric == metric:
            variant, _, name = row.setting.partition(", ")
            published = name.endswith("as published")
            value, colour = (row.source_value, PUBLISHED) if published else (row.value, COLOURS[0])
            assert isinstance(value, float | int)
            bars.setdefault(variant, []).append((name, value, colour))
    figure, panels = chart("GPUs allocated at saturation (red: published)", 3.6, len(bars))
    for axes, (variant, rows) in zip(panels, bars.items(), strict=True):
        rows.sort(key=lambda bar: bar[1])
        drawn = axes.barh([name for name, _, _ in rows], [v for _, v, _ in rows], color=[c for _, _, c in rows])
        axes.bar_label(drawn, fmt="%.2f", padding=2, fontsize=8)
        axes.set_xlim(min(v for _, v, _ in rows) - 2, 103)
        axes.set(xlabel="GPUs allocated, %", title=variant)
        axes.tick_params("y", labelsize=8)
    return [write(figure, folder, "openb")]
