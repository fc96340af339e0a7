"""Priority (Figures 10 and 11): three loads of one-core tasks, with equal priority and with TPC-H first."""

from __future__ import annotations

import numpy as np

from bench.rows import Outcome, Row
from bench.sirius.model import NAME, RESOURCES, Kind, Load, cores, oldest_first, simulate, sirius
from bench.sirius.slots import PriorityQueue
from flowsched.policy import WaitCost
from flowsched.sim.baselines import Greedy

__all__ = ["LOADS", "measure_priority"]

_EACH = 480
"""Tasks of each load."""

LOADS = [Kind("MergeSort", (8.0, 16.0)), Kind("PageRank", (6.0, 12.0)), Kind("TPC-H", (0.3, 0.9))]


def _three_loads(first: bool, seed: int) -> Load:
    """480 one-core tasks of each, in any order within a second; with `first`, TPC-H has priority 1 and the others 2."""
    rng = np.random.default_rng(seed)
    jobs = []
    for at in np.sort(rng.uniform(0.0, 1.0, size=_EACH // 10)):
        for kind in LOADS:
            priority = 1 if not first or kind.name == "TPC-H" else 2
            jobs.append((float(at), kind, rng.uniform(*kind.seconds, size=10), priority))
    return Load(f"three loads of {_EACH}", jobs)


def measure_priority(outcome: Outcome, seed: int) -> dict[str, dict[str, float]]:
    """Add rows of run times to the outcome; return mean seconds by scheduler and setting, then by program."""
    found: dict[str, dict[str, float]] = {}
    for label, first in (("equal priority", False), ("TPC-H first", True)):
        load = _three_loads(first, seed)
        waiting = WaitCost(first=0.25, factor=1.5, buckets=16)
        runs = {
            "Sirius": simulate(load, sirius(load, waiting=waiting), cores),
            "priority queue": simulate(load, Greedy(oldest_first, RESOURCES), cores),
            "priority queue that preempts": simulate(load, PriorityQueue(), cores),
        }
        for name, run_ in runs.items():
            found[f"{name}, {label}"] = {kind.name: run_.of(kind.name, run_.spent) for kind in LOADS}
        for kind in LOADS:
            mine, theirs, preempting = (found[f"{name}, {label}"][kind.name] for name in runs)
            source = {"equal priority": "> 5 s", "TPC-H first": "< 1 s"}[label] if kind.name == "TPC-H" else None
            outcome.rows.append(Row(
                NAME, f"{10 + first}: 3 x {_EACH} tasks, {label}", f"{kind.name}: mean run time with waiting", mine, theirs, theirs / mine, source,
                "s", note=f"compared: priority queue (without preemption); {sum(kind.seconds) / 2:g} s of it are the task's length, an input",
            ))  # fmt: skip
            outcome.rows.append(Row(
                NAME, f"{10 + first}: 3 x {_EACH} tasks, {label}", f"{kind.name}: mean run time with waiting", mine, preempting,
                preempting / mine, None, "s", note="compared: priority queue that preempts (as Borg, Kubernetes)",
            ))  # fmt: skip
    equal, first_ = (found[f"Sirius, {label}"]["TPC-H"] for label in ("equal priority", "TPC-H first"))
    outcome.rows.append(Row(
        NAME, f"11: 3 x {_EACH} tasks", "TPC-H: gain by priority", first_, equal, equal / first_, "ratio 5", "s", note="compared: equal priority",
    ))  # fmt: skip
    if first_ >= equal:
        outcome.wrong.append(f"priority makes TPC-H no faster: {first_:.2f} s against {equal:.2f} s")
    return found
