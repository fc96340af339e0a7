"""Incremental against from scratch by load and change: the kernel alone, and a whole scheduler.

*Kernel.* The network of `bench solver`, 10,000 machines of 4 slots.  A round of ICS is changing the network, solving and reading.
From scratch is building, solving and reading, by cost scaling and by the fastest algorithm here; and by cs2, Goldberg's
program, where the user has it on the PATH (its licence is for evaluation only, so it is not shipped): its own time, without reading.

*Scheduler.* The same cluster and loads.  A scheduler that lives through the rounds is compared with one that is newly built for
each of them: the same machines, the same running and waiting tasks.

*Table 3 as printed* starts each re-solve at epsilon = C with potentials 0 and the last flow.  Ours keeps the potentials and
starts at epsilon 0.  Both use the same cost scaling code here.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import tempfile
from collections.abc import Hashable
from pathlib import Path
from time import thread_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.rows import Outcome, Row
from bench.sirius.latency import GoogleFamily, warm_rounds
from bench.sirius.model import NAME
from bench.solver.instances import LiveNetwork, Rounds, SchedFamily
from bench.solver.peers import flowsched_network
from flowsched.cluster.events import Event, JobSubmitted, MachineAdded, TaskCompleted, TaskStarted
from flowsched.cluster.model import Task
from flowsched.kernels.scaling import Scaling
from flowsched.network.dimacs import write_dimacs
from flowsched.network.problem import FlowProblem
from flowsched.network.results import Algorithm
from flowsched.policy import Policy
from flowsched.scheduler import Scheduler
from flowsched.sim.traces.load import load_trace

__all__ = ["cs2_solve", "measure_loads", "measure_printed", "measure_scale", "measure_trace"]

MACHINES, SLOTS = 10_000, 4
LOADS = (8, 50, 90, 97, 110)
CHANGES = (0.1, 1.0, 10.0)
"""In percent."""

Ints = NDArray[np.int64]


def cs2_solve(problem: FlowProblem, program: str) -> tuple[float, int]:
    """Return the seconds that cs2 states for a problem, and its cost; it reads DIMACS and prints ``c time: ... cost: ...``."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problem.min"
        write_dimacs(problem, path)
        with path.open("rb") as file:
            done = subprocess.run([program], stdin=file, capture_output=True, text=True, check=True, timeout=600)
    found = re.search(r"time:\s*([\d.]+)\s+cost:\s*(-?[\d.]+)", done.stdout)
    if found is None:
        raise ValueError(f"{program}: no line with time and cost in {done.stdout[:200]!r}")
    return float(found[1]), round(float(found[2]))


def measure_loads(outcome: Outcome, quick: bool, seed: int) -> None:
    """Add rows for each load and change."""
    program = shutil.which("cs2")
    if program is None:
        outcome.notes.append("no cs2 on the PATH: its rows by load are left out")
    loads, changes = ((8, 97, 110), (1.0,)) if quick else (LOADS, CHANGES)
    for load in loads:
        for change in changes:
            _kernel(outcome, load, change, 2 if quick else 4, seed, program)
            _scheduler(outcome, load, change, 2 if quick else 4, seed)


def _setting(load: int, change: float) -> str:
    return f"load of {load}%: {MACHINES:,} x {SLOTS}, {change:g} % change"


def _kernel(outcome: Outcome, load: int, change: float, count: int, seed: int, program: str | None) -> None:
    tasks = MACHINES * SLOTS * load // 100
    rounds = Rounds(
        SchedFamily(MACHINES, slots=SLOTS, tasks=tasks, seed=seed), max(1, round(tasks * change / 100)), count
    )
    times, optimum = warm_rounds(rounds.family, rounds)
    warm, problem = float(np.median(times.sum(axis=1))), rounds.family.problem()
    names: tuple[Algorithm, ...] = ("cost_scaling", "repair", "network_simplex")
    cold = {
        name: min((flowsched_network(problem, name) for _ in range(2)), key=lambda run: run.total) for name in names
    }
    setting = _setting(load, change)
    for algorithm, run in cold.items():
        if run.cost != optimum:
            outcome.wrong.append(f"{setting}: {algorithm} from scratch costs {run.cost}, incremental {optimum}")
    best = min(names, key=lambda name: cold[name].total)
    peers = {
        "cost scaling from scratch": cold["cost_scaling"].total,
        f"the fastest from scratch, {best}": cold[best].total,
    }
    if program is not None:
        peers["cs2"], cost = cs2_solve(problem, program)
        if cost != optimum:
            outcome.wrong.append(f"{setting}: cs2 costs {cost}, incremental {optimum}")
    for name, theirs in peers.items():
        outcome.rows.append(
            Row(NAME, setting, "kernel: a round", warm, theirs, theirs / warm, None, "s", f"compared: {name}")
        )


def _scheduler(outcome: Outcome, load: int, change: float, count: int, seed: int) -> None:
    tasks = MACHINES * SLOTS * load // 100
    rng = random.Random(seed)
    machines = [MachineAdded(m, {"cpu": SLOTS}, f"r{m // 40}", slots=SLOTS, time=0.0) for m in range(MACHINES)]
    jobs: dict[int, tuple[list[Task], float]] = {}
    number = 0

    def arriving(wanted: int, now: float) -> list[JobSubmitted]:
        nonlocal number
        events = []
        while wanted:
            size = min(wanted, 1 if rng.random() < 0.75 else int(rng.expovariate(1 / 149)) + 1)
            job, some = len(jobs), [Task(number + i, {"cpu": 1}) for i in range(size)]
            jobs[job] = some, now
            events.append(JobSubmitted(job, some, time=now, closed=True))
            number, wanted = number + size, wanted - size
        return events

    kept = _new(machines, arriving(tasks, 0.0))
    first = kept.schedule(0.0)
    kept.commit(first)
    where: dict[Hashable, Hashable] = dict(first.placements)
    gone: set[Hashable] = set()
    alone, whole, new_alone, new_whole = [], [], [], []
    for k in range(1, count + 1):
        now = float(k)
        ends = rng.sample(list(where), min(len(where), max(1, round(tasks * change / 100))))
        gone.update(ends)
        events: list[Event] = [TaskCompleted(task, time=now) for task in ends]
        for task in ends:
            del where[task]
        events += arriving(len(ends), now)
        begin = thread_time()
        kept.apply(*events)
        applied = thread_time()
        round_ = kept.schedule(now)
        decided = thread_time()
        alone.append(decided - applied)
        whole.append(decided - begin)
        if k == count:  # from scratch once: its time differs little from round to round
            again: list[Event] = []
            for job, (some, at) in jobs.items():
                if left := [task for task in some if task.id not in gone]:
                    again.append(JobSubmitted(job, left, time=at, closed=True))
                    again += [TaskStarted(task.id, where[task.id], time=now) for task in left if task.id in where]
            begin = thread_time()
            new = _new(machines, again)
            applied = thread_time()
            other = new.schedule(now)
            decided = thread_time()
            new_alone.append(decided - applied)
            new_whole.append(decided - begin)
            if len(other.placements) != len(round_.placements):
                outcome.wrong.append(
                    f"{_setting(load, change)}: a new scheduler starts {len(other.placements)} tasks, the kept one {len(round_.placements)}"
                )
        kept.commit(round_)
        where.update(round_.placements)
    for metric, ours, theirs in (
        ("scheduler: schedule()", alone, new_alone),
        ("scheduler: apply() and schedule()", whole, new_whole),
    ):
        mine, other_ = float(np.median(ours)), float(np.median(theirs))
        outcome.rows.append(Row(
            NAME, _setting(load, change), metric, mine, other_, other_ / mine, None, "s", "compared: a newly built scheduler, same state",
        ))  # fmt: skip


def _new(machines: list[MachineAdded], events: Any) -> Scheduler:
    scheduler = Scheduler(Policy(preemption=None), resources=("cpu",))
    scheduler.apply(*machines, *events)
    return scheduler


def measure_scale(outcome: Outcome, seed: int) -> None:
    """Add rows of 100,000 machines: cost scaling from scratch, and a round of ICS (section 3.2)."""
    rounds = Rounds(GoogleFamily(None, 100_000, 200_000, seed), 2_000, 2)
    times, optimum = warm_rounds(rounds.family, rounds)
    run = flowsched_network(rounds.family.problem(), "cost_scaling")
    setting = "3.2: 100,000 x 24, 200,000 tasks, 1 % change"
    if run.cost != optimum:
        outcome.wrong.append(f"{setting}: cost scaling costs {run.cost}, incremental {optimum}")
    outcome.rows.append(
        Row(
            NAME,
            setting,
            "cost scaling from scratch",
            run.total,
            None,
            None,
            "> 90 s",
            "s",
            "CS; on another machine than the source's",
        )
    )
    warm = float(np.median(times.sum(axis=1)))
    outcome.rows.append(
        Row(
            NAME,
            setting,
            "ICS: round",
            warm,
            run.total,
            run.total / warm,
            None,
            "s",
            "compared: cost scaling from scratch (CS)",
        )
    )


def measure_printed(outcome: Outcome, quick: bool, seed: int) -> None:
    """Add rows of Table 3 as printed against cost scaling from scratch and against ours."""
    for load in (50, 97) if quick else (8, 50, 97):
        tasks = MACHINES * SLOTS * load // 100
        rounds = Rounds(SchedFamily(MACHINES, slots=SLOTS, tasks=tasks, seed=seed), tasks // 100, 1)
        before, after = rounds.family.problem(rounds.first), rounds.family.problem(rounds.tasks_after(1))
        none = np.zeros(0, np.int64)
        _, flow, _, potential = _scaled(before, none, none)
        last = _without(before, flow, rounds)
        runs = {
            "from scratch": _scaled(after, none, none),
            "as printed": _scaled(after, last, np.zeros(len(after.supply), np.int64)),
            "with the last potentials, epsilon = C": _scaled(after, last, potential),
        }
        setting = f"table 3: load of {load}%, {MACHINES:,} x {SLOTS}, 1 % change"
        if len({cost for _, _, cost, _ in runs.values()}) > 1:
            outcome.wrong.append(f"{setting}: different optima")
        live = LiveNetwork(rounds.family, rounds.first, rounds.first_jobs)
        live.net.solve()
        live.apply(live.prepare(rounds.changes[0]))
        begin = thread_time()
        if live.net.solve().cost != runs["as printed"][2]:
            outcome.wrong.append(f"{setting}: ours differs")
        seconds = {name: run[0] for name, run in runs.items()} | {
            "ours: potentials kept, epsilon 0": thread_time() - begin
        }
        scratch = seconds.pop("from scratch")
        for name, mine in seconds.items():
            outcome.rows.append(
                Row(
                    NAME,
                    setting,
                    f"solve alone, {name}",
                    mine,
                    scratch,
                    scratch / mine,
                    None,
                    "s",
                    "compared: cost scaling from scratch",
                )
            )


def _scaled(problem: FlowProblem, flow: Ints, potential: Ints) -> tuple[float, Ints, int, Ints]:
    """Return seconds, flow, cost and potentials by cost scaling from a flow and potentials, or from scratch if empty."""
    best: tuple[float, Ints, int, Ints] | None = None
    for _ in range(2):
        begin = thread_time()
        core = Scaling(
            problem.tail.astype(np.int32), problem.head.astype(np.int32), problem.capacity, problem.cost, problem.supply,
            np.zeros(0, np.int64), flow.copy(), potential.copy(),
        )  # fmt: skip
        _, answer, proof, _ = core.solve(0, 0, -1.0)
        spent = thread_time() - begin
        if best is None or spent < best[0]:
            best = spent, answer, int((answer * problem.cost).sum()), proof
    assert best is not None
    return best


def _without(problem: FlowProblem, flow: Ints, rounds: Rounds) -> Ints:
    """Return a flow without the units of the tasks that leave: each is taken off a path to the sink."""
    left = flow.copy()
    degree, count = rounds.family.prefs + 4, len(rounds.first)
    base = len(problem.tail) - degree * count
    fixed = base - rounds.first_jobs
    out: dict[int, list[int]] = {}
    for full in np.flatnonzero(left[:base] > 0).tolist():
        out.setdefault(int(problem.tail[full]), []).append(full)
    for row in rounds.changes[0].rows.tolist():
        own = range(base + degree * row, base + degree * (row + 1))
        arc = next((one for one in own if left[one]), None)
        while arc is not None:
            left[arc] -= 1
            arcs = out.get(int(problem.head[arc]), [])
            while arcs and not left[arcs[-1]]:
                arcs.pop()
            arc = arcs[-1] if arcs else None
    after = rounds.family.problem(rounds.tasks_after(1))
    moved = np.zeros(len(after.tail), np.int64)  # jobs may be more now: the static part and the tasks keep their places
    moved[:fixed] = left[:fixed]
    shift = len(after.tail) - len(problem.tail)
    moved[fixed : fixed + rounds.first_jobs] = left[fixed:base]
    moved[base + shift :] = left[base:]
    return np.minimum(moved, after.capacity)


def measure_trace(outcome: Outcome, data: Path | None) -> None:
    """Add the part of the running tasks that starts or ends in a second, on the traces that are there (section 3.2)."""
    for name in ("google2011", "openb"):
        path = None if data is None else data / name
        if path is None or not path.is_dir():
            if name == "google2011":
                outcome.notes.append("no google2011 in --data: the rate of change on the Google trace is not measured")
            continue
        trace = load_trace(path)
        start = np.repeat([a.time for a in trace.arrivals], [len(a.durations) for a in trace.arrivals])
        end = start + np.concatenate([np.asarray(a.durations, float) for a in trace.arrivals])
        known = np.isfinite(end)
        start, end = np.sort(start[known]), np.sort(end[known])
        at = np.linspace(np.quantile(start, 0.1), np.quantile(start, 0.9), 2_000)
        runs = np.searchsorted(start, at, "right") - np.searchsorted(end, at, "right")
        both = np.sort(np.concatenate([start, end]))
        moves = (np.searchsorted(both, at + 30.0) - np.searchsorted(both, at - 30.0)) / 60.0
        part = 100 * moves[runs > 0] / runs[runs > 0]
        outcome.rows.append(Row(
            NAME, f"3.2: {name}", "tasks that change in a second", float(np.median(part)), None, None, None, "%",
            f"starts and ends, of the running tasks, median of 2,000 minutes; {np.quantile(part, 0.99):.2g} % at the 99th percentile; tasks start when they arrive",
        ))  # fmt: skip
