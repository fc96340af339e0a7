"""Real processes on this machine: plain requests, FGM, and Slurm with the same requests; and the same in the simulator.

The tasks of a workload are alike and come at once.  They share a part of this machine, `CPU` cores and `MEMORY` MiB.  A
task's demand is its peak, as users request it.  Each system runs each workload in turn, so that other load on the machine
meets all of them.

=================  ===============================================================  ====================================
workload           task                                                             expectation
=================  ===============================================================  ====================================
idle, then busy    waits for 4 s, then uses its demand of CPU for 2 s               stages overlap
CPU-bound          uses its demand of CPU for 3 s                                   nothing to gain: requests are needs
memory grows       takes memory evenly up to its demand, for 4 s                    stages overlap, less
=================  ===============================================================  ====================================

A system that learns begins cold, or with the estimates of its run before.  Slurm is a cluster of one node on this machine,
whose CPUs are twentieths of a core here; its daemons are those that the tests start.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from bench.drawing import bars, chart, write
from bench.rows import Keep, Outcome, Row, forget
from flowsched.boundary import control_groups
from flowsched.cluster.events import JobSubmitted
from flowsched.cluster.model import Machine, Task
from flowsched.fgm import DemandEstimator, FineGrained, Stages
from flowsched.policy import Policy
from flowsched.run import Command, Driver, LocalExecutor
from flowsched.run.learn import COLD, SAMPLE
from flowsched.scheduler import Scheduler
from flowsched.sim.engine import Simulation
from flowsched.sim.execution import Execution
from flowsched.sim.workload import Arrival, Workload

__all__ = ["TITLE", "plot", "run"]

TITLE = "Real processes: plain requests, FGM and Slurm on this machine"

CLOCK = "seconds of the wall clock"

NAMES = ("cpu", "mem")

CPU, MEMORY = 1.0, 660
"""The part of this machine that is used: cores, and MiB."""

_SHARE = 0.05
"""Cores of one of Slurm's CPUs."""

REQUESTS, COLD_FGM, WARM_FGM, SLURM = "requests", "FGM, cold", "FGM, warm", "Slurm"

_LATEST = 180.0


@dataclass(frozen=True)
class Case:
    """One workload: `count` tasks that run `command`, a text for the shell; `stages` are their nominal needs."""

    name: str
    count: int
    command: str
    demand: dict[str, float]
    stages: Stages


def cases(quick: bool) -> list[Case]:
    """Return the workloads."""
    program = f"{sys.executable} -I -S {Path(__file__).with_name('task.py')}"
    few = 2 if quick else 5
    return [
        Case(
            "idle, then busy", 5 * few, f"sleep 4; {program} busy 2 0.2", {"cpu": 0.2, "mem": 30},
            Stages([4, 2], [[0.0, 1.0], [0.2, 9.0]]),
        ),
        Case("CPU-bound", 4 * few, f"{program} busy 3 0.2", {"cpu": 0.2, "mem": 30}, Stages([3], [[0.2, 9.0]])),
        Case(
            "memory grows", 6 * max(few - 1, 2), f"{program} grow 4 100", {"cpu": 0.05, "mem": 110},
            Stages([0.4] * 10, [[0.01, 9.0 + 10 * (i + 1)] for i in range(10)]),
        ),
    ]  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """One run: seconds from the submission to the last end, to the mean end; and the mean run time of a task."""

    makespan: float
    completion: float
    running: float


def run(*, quick: bool, seed: int = 0, say: Callable[[str], None], keep: Keep = forget, runs: int = 3) -> Outcome:
    """Run the workloads `runs` times under each system (once with `quick`); nothing is drawn, so `seed` has no effect."""
    outcome = Outcome()
    found: dict[tuple[str, str], list[Measured]] = {}
    loads: list[float] = []
    those = cases(quick)
    keep(lambda: _rows(outcome, those, found, loads))
    with ExitStack() as stack:
        cgroup = stack.enter_context(_control_group())
        slurm = stack.enter_context(_slurm(outcome))
        for turn in range(1 if quick else runs):
            for case in those:
                warm = _estimator()
                for system in (REQUESTS, COLD_FGM, WARM_FGM, *[SLURM] * slurm):
                    loads.append(os.getloadavg()[0])
                    with tempfile.TemporaryDirectory(prefix="flowsched-real-") as folder:
                        if system == SLURM:
                            began = _by_slurm(case, Path(folder))
                        else:
                            fresh = warm if system != REQUESTS else None
                            began = asyncio.run(_by_driver(case, Path(folder), fresh, cgroup))
                        measured = _read(case, Path(folder), began)
                    if measured is None:
                        outcome.wrong.append(f"{case.name}: {system}: not all tasks are done")
                        continue
                    found.setdefault((case.name, system), []).append(measured)
                    say(f"{turn + 1}: {case.name}: {system}: {measured.makespan:.1f} s")
    return _rows(outcome, those, found, loads)


def _rows(
    outcome: Outcome, those: list[Case], found: dict[tuple[str, str], list[Measured]], loads: list[float]
) -> Outcome:
    done = Outcome([], list(outcome.wrong), list(outcome.notes), list(outcome.failed))
    for (name, system), several in sorted(
        found.items(), key=lambda item: [case.name for case in those].index(item[0][0])
    ):
        plain = found.get((name, REQUESTS), several)
        for metric in ("makespan", "completion"):
            values, base = ([getattr(one, metric) for one in those] for those in (several, plain))
            what = "mean completion" if metric == "completion" else metric
            value, than = median(values), median(base)
            note = f"{min(values):.1f} to {max(values):.1f} s in {len(values)} runs"
            if system == REQUESTS:
                done.rows.append(Row("real", name, f"{system}: {what}", value, unit="s", note=note))
            else:
                done.rows.append(Row("real", name, f"{system}: {what}", value, than, than / value, unit="s", note=note))
    for case in those:
        done.rows += _simulated(case, found)
    if loads:
        done.notes.append(
            f"Load average before the runs: {median(loads):.1f} in the median, {min(loads):.1f} to {max(loads):.1f}, "
            f"on {os.cpu_count()} CPUs."
        )
    done.notes.append(
        f"Medians and ranges.  The baseline is the run by plain requests.  Cold: the first {COLD} tasks of a run are matched by "
        "their requests.  Slurm and flowsched start the same shell line."
    )
    return done


# -- flowsched ------------------------------------------------------------------------------------------------------


def _estimator() -> DemandEstimator:
    return DemandEstimator(NAMES, cold=COLD, safety={"mem": 2.0})


def _scheduler(estimator: DemandEstimator | None) -> Scheduler | FineGrained:
    plain = Scheduler(Policy.named("pack"), NAMES)
    return plain if estimator is None else FineGrained(plain, estimator=estimator, weight=0.0)


def _line(case: Case, folder: Path) -> str:
    """Return the shell line of each task, which leaves files of its begin and end."""
    index = "i=${SLURM_ARRAY_TASK_ID:-$FLOWSCHED_INDEX}"
    return f"{index}; : > {folder}/begin.$i; {case.command}; : > {folder}/end.$i"


async def _by_driver(case: Case, folder: Path, estimator: DemandEstimator | None, cgroup: Path | None) -> float:
    scheduler = _scheduler(estimator)
    executor = LocalExecutor(
        {"cpu": CPU, "mem": MEMORY}, machine="here", cgroup=cgroup if estimator is not None else None,
        sample=SAMPLE if estimator is not None else None,
    )  # fmt: skip
    async with Driver(scheduler, executor) as driver:
        began = time.time()
        line, ids = _line(case, folder), range(case.count)
        commands = {i: Command(line, {"FLOWSCHED_INDEX": str(i)}) for i in ids}
        job = JobSubmitted("job", [Task(i, case.demand, kind=case.name) for i in ids])
        await asyncio.wait_for(asyncio.gather(*driver.submit(job, commands).values()), _LATEST)
    return began


@contextmanager
def _control_group() -> Iterator[Path | None]:
    """Yield a control group for the runs, whose clock is finer than that of processes; None where there is none."""
    root = control_groups.find()
    group = None if root is None else root / f"flowsched-bench-{os.getpid()}"
    logger = logging.getLogger("flowsched")
    level = logger.level
    try:
        if group is not None:
            group.mkdir()
            logger.setLevel(logging.ERROR)  # the group may have no controllers, and limits nothing then
    except OSError:
        group = None
    try:
        yield group
    finally:
        logger.setLevel(level)
        if group is not None:
            with suppress(OSError):
                group.rmdir()


# -- Slurm ----------------------------------------------------------------------------------------------------------


@contextmanager
def _slurm(outcome: Outcome) -> Iterator[bool]:
    """Begin a cluster of one node; yield False, and note it, where that is not possible."""
    path = Path(__file__).parents[2] / "tests" / "support" / "slurm.py"
    try:
        spec = importlib.util.spec_from_file_location("_flowsched_bench_slurm", path)
        assert spec is not None and spec.loader is not None
        module: Any = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # which its data classes look up
        spec.loader.exec_module(module)
    except (ImportError, OSError) as error:
        outcome.notes.append(f"Without Slurm: its daemons are those of the tests: {error}")
        yield False
        return
    with ExitStack() as stack:
        try:
            stack.enter_context(module.slurm(1, round(CPU / _SHARE), MEMORY))
        except BaseException as error:  # pytest's
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            outcome.notes.append(f"Without Slurm: {error}")
            yield False
            return
        yield True


def _by_slurm(case: Case, folder: Path) -> float:
    began = time.time()
    cpus, last = round(case.demand["cpu"] / _SHARE), case.count - 1
    words = ["sbatch", "--parsable", f"--array=0-{last}", f"-c{cpus}", f"--mem={case.demand['mem']:.0f}M"]
    words += ["--output=/dev/null", f"--wrap={_line(case, folder)}"]
    job = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    while len(list(folder.glob("end.*"))) < case.count and time.time() < began + _LATEST:
        time.sleep(0.2)
    while subprocess.run(["squeue", "-h", "-j", job], capture_output=True, text=True, check=False).stdout.strip():
        if time.time() > began + _LATEST:
            subprocess.run(["scancel", job], check=False)
        time.sleep(0.2)
    return began


def _read(case: Case, folder: Path, began: float) -> Measured | None:
    """Return the result of a run by the files that its tasks have left; None if a task has left none."""
    times = []
    for i in range(case.count):
        begin, end = folder / f"begin.{i}", folder / f"end.{i}"
        if not (begin.exists() and end.exists()):
            return None
        times.append((begin.stat().st_mtime, end.stat().st_mtime))
    ends = [end - began for _, end in times]
    return Measured(max(ends), mean(ends), mean(end - begin for begin, end in times))


# -- the same in the simulator -----------------------------------------------------------------------------------------


def _simulated(case: Case, found: dict[tuple[str, str], list[Measured]]) -> Iterator[Row]:
    """Yield makespans of the simulator, in which the last stage takes the rest of the run time that was measured."""
    for system in (REQUESTS, COLD_FGM, WARM_FGM):
        real = found.get((case.name, system))
        if not real:
            continue
        seconds = case.stages.seconds.copy()
        seconds[-1] += max(median(one.running for one in real) - case.stages.duration, 0.0)
        stages = Stages(seconds, case.stages.demand)
        estimator = None if system == REQUESTS else _estimator()
        makespan = _simulate(case, stages, estimator)
        if system == WARM_FGM:
            makespan = _simulate(case, stages, estimator)
        value = median(one.makespan for one in real)
        yield Row(
            "real", case.name, f"{system}: makespan in the simulator", makespan, value, unit="s",
            note=f"baseline: real, {100 * (value / makespan - 1):+.0f} %",
        )  # fmt: skip


def _simulate(case: Case, stages: Stages, estimator: DemandEstimator | None) -> float:
    job = JobSubmitted("job", [Task(i, case.demand, kind=case.name) for i in range(case.count)])
    workload = Workload(
        case.name, [Arrival(0.0, job, [stages.duration] * case.count)], [Machine("here", {"cpu": CPU, "mem": MEMORY})],
        resources=NAMES,
    )  # fmt: skip
    execution = Execution(
        dict.fromkeys(range(case.count), stages), ("cpu",), sample=None if estimator is None else SAMPLE
    )
    metrics = Simulation(_scheduler(estimator), workload, interval=SAMPLE, execution=execution).run()
    return float(max(metrics.ends))


# -- plots -------------------------------------------------------------------------------------------------------------


def plot(outcome: Outcome, folder: Path) -> list[Path]:
    """Plot the makespans."""
    makespans: dict[str, dict[str, float]] = {}
    for row in outcome.rows:
        system, _, metric = row.metric.partition(": ")
        if metric == "makespan" and isinstance(row.value, int | float):
            makespans.setdefault(system, {})[row.setting] = float(row.value)
    settings = list(dict.fromkeys(setting for those in makespans.values() for setting in those))
    series = {system: [those.get(setting, 0.0) for setting in settings] for system, those in makespans.items()}
    figure, (axes,) = chart("Makespan of real processes, median")
    bars(axes, settings, series)
    axes.set_ylabel("s")
    folder.mkdir(parents=True, exist_ok=True)
    return [write(figure, folder, "real")]
