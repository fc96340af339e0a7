"""Resource cost (Figures 14 and 15): CPU time and memory of a whole scheduler and of random queues, by size of the cluster.

Each runs in a process of its own, on one core and with at most 4 GB, as in the source.  Both are given the same events: machines
of 24 slots, two tasks a machine, then rounds in which 1 % of the tasks end and as many arrive.  The CPU time is that of events,
decision and commit.  The memory is the process's peak; it includes Python and NumPy, whose part is in the note of the row.

One random queue only counts slots.  The other has the scheduler's own model of the cluster: each task goes to
a random one of the machines whose cores and memory suffice.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from bench.rows import Outcome, Row
from bench.sirius.model import NAME

__all__ = ["FILTER", "SLOTS_ONLY", "child", "measure_overhead"]

_MOST = 4 << 30
"""Bytes of address space."""

_MIB = 1 << 20

SLOTS_ONLY, FILTER = "random queue of slots", "random queue of all resources"

_STATUS = Path("/proc/self/status")

Cost = tuple[float, float, float]
"""Median CPU seconds of a round, peak bytes, mean CPU seconds."""


def _peak() -> float:
    """Return the peak of the resident memory in bytes; `getrusage` would include memory of the time before the program."""
    lines = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines())
    return 1024.0 * int(lines["VmHWM"].split()[0])


def child(kind: str, machines: int, rounds: int, seed: int, sizes: list[int] | None) -> None:
    """Run as a process: print CPU seconds of a round, and peak bytes; of a scheduler, or of none ("")."""
    import resource

    from bench.sirius.slots import RandomPlacement
    from flowsched.cluster.events import JobSubmitted, MachineAdded, TaskCompleted
    from flowsched.cluster.model import Task
    from flowsched.scheduler import Scheduler
    from flowsched.sim.baselines import Greedy, at_random

    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    resource.setrlimit(resource.RLIMIT_AS, (_MOST, _MOST))
    if not kind:
        print(json.dumps([0.0, _peak(), 0.0]))
        return
    rng = np.random.default_rng(seed)
    resources = ("cpu", "mem")
    scheduler: Any = RandomPlacement(seed) if kind == SLOTS_ONLY else Scheduler(resources=resources)
    if kind == FILTER:
        order, choice, _ = at_random(seed)
        scheduler = Greedy(order, resources, choice)
    scheduler.apply(
        *(MachineAdded(m, {"cpu": 24, "mem": 64}, f"r{m // 40}", slots=24, time=0.0) for m in range(machines))
    )
    running: list[int] = []
    task = job = 0
    spent = []
    for k in range(rounds + 1):
        count = machines // 50 if k else 2 * machines
        ends = rng.permutation(len(running))[: count if k else 0].tolist()
        events: list[object] = [TaskCompleted(running[i], time=float(k)) for i in ends]
        gone = set(ends)
        running = [one for i, one in enumerate(running) if i not in gone]
        while count:
            size = min(
                count, int(rng.choice(sizes)) if sizes else 1 if rng.random() < 0.75 else int(rng.geometric(1 / 149))
            )
            demand = {"cpu": 1, "mem": float(rng.choice([0.5, 1.0, 2.0]))}
            events.append(JobSubmitted(job, [Task(task + i, demand) for i in range(size)], time=float(k), closed=True))
            task, job, count = task + size, job + 1, count - size
        begin = process_time()
        scheduler.apply(*events)
        round_ = scheduler.schedule(float(k))
        scheduler.commit(round_)
        spent.append(process_time() - begin)
        running += round_.placements
    print(json.dumps([float(np.median(spent[1:])), _peak(), float(np.mean(spent[1:]))]))


def _measured(kind: str, machines: int, rounds: int, seed: int, sizes: list[int] | None) -> Cost:
    call = f"from {__name__} import child; child({kind!r}, {machines}, {rounds}, {seed}, {sizes})"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", call], env=environment, check=True, capture_output=True, text=True)
    seconds, peak, mean = json.loads(done.stdout)
    return seconds, peak, mean


def measure_overhead(outcome: Outcome, quick: bool, seed: int, sizes: list[int] | None) -> dict[str, dict[int, Cost]]:
    """Add rows to the outcome; return CPU seconds and bytes by scheduler and number of machines."""
    found: dict[str, dict[int, Cost]] = {"Sirius": {}, SLOTS_ONLY: {}, FILTER: {}}
    if not _STATUS.exists():
        outcome.notes.append("Figures 14 and 15 are left out: memory is read from /proc, which is Linux's")
        return {}
    empty = _measured("", 0, 0, seed, None)[1] / _MIB
    for machines in (1_000, 5_000) if quick else (1_000, 2_500, 5_000, 7_500, 10_000):
        for kind, by_size in found.items():
            by_size[machines] = _measured(kind, machines, 10 if quick else 30, seed, sizes)
        cpu, peak, mean = found["Sirius"][machines]
        setting = f"{machines:,} machines, {2 * machines:,} tasks, 1 % change"
        for other in (SLOTS_ONLY, FILTER):
            theirs, their_peak, their_mean = found[other][machines]
            outcome.rows.append(Row(
                NAME, f"14: {setting}", "CPU time of a round", cpu, theirs, theirs / cpu, "ratio about 0.67", "s", f"compared: {other}",
            ))  # fmt: skip
            outcome.rows.append(Row(
                NAME, f"14: {setting}", "CPU time of a round, mean", mean, their_mean, their_mean / mean, None, "s", f"compared: {other}",
            ))  # fmt: skip
            outcome.rows.append(Row(
                NAME, f"15: {setting}", "peak memory", peak / _MIB, their_peak / _MIB, their_peak / peak, "ratio about 0.5", "MiB",
                f"compared: {other}; {empty:.0f} MiB are the program's without a cluster",
            ))  # fmt: skip
    return found
