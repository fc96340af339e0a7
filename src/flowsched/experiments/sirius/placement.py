"""Placement: image analysis that wants GPUs, against random placement and a hard constraint."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flowsched.experiments.rows import Outcome, Row
from flowsched.experiments.sirius.model import (
    NAME,
    RESOURCES,
    Kind,
    Load,
    RandomPlacement,
    Run,
    cores,
    oldest_first,
    simulate,
    sirius,
)
from flowsched.policy import WaitCost
from flowsched.sim.baselines import Greedy

__all__ = ["measure_placement"]


def _gpu_tasks(count: int, seed: int) -> Load:
    kind = Kind("image analysis", (50.0, 70.0), gpu=True)
    rng = np.random.default_rng([seed, count])
    return Load(f"{count} GPU tasks", [(0.0, kind, rng.uniform(*kind.seconds, size=1), 0) for _ in range(count)])


def measure_placement(outcome: Outcome, seed: int) -> dict[str, dict[int, tuple[float, float]]]:
    """Add rows of run times and waits to the outcome; return both means, in seconds, by scheduler and number of tasks.

    One task per machine (10 tasks, a GPU each) or two per GPU (20 tasks and more, half a GPU each).
    """
    found: dict[str, dict[int, tuple[float, float]]] = {"Sirius": {}, "GPU machines only": {}, "random": {}}
    for count in (10, 20, 30, 40):
        load = _gpu_tasks(count, seed)

        def slots(rack: str, count: int = count) -> int | None:
            return 2 if rack == "rack1" and count > 10 else 1

        def one(rack: str) -> int | None:
            return 1 if rack == "rack1" else 0

        patient = WaitCost(first=60.0, patience=0.5)
        runs = {
            "Sirius": simulate(load, sirius(waiting=patient), slots),
            "GPU machines only": simulate(load, Greedy(oldest_first, RESOURCES), one),
            "random": _mean([simulate(load, RandomPlacement(seed + i, 1), cores) for i in range(10)]),
        }
        for name, run_ in runs.items():
            found[name][count] = float(run_.spent.mean()), float(run_.waits.mean())
        for other in ("random", "GPU machines only"):
            mine, theirs = found["Sirius"][count], found[other][count]
            source = "about half of random" if (count, other) == (10, "random") else None
            if (count, other) == (20, "GPU machines only"):
                source = "better than Swarm"
            outcome.rows.append(Row(
                NAME, f"{count} GPU tasks", "mean run time with waiting", mine[0], theirs[0], theirs[0] / mine[0], source, "s",
                note=f"baseline: {other}",
            ))  # fmt: skip
            outcome.rows.append(Row(
                NAME, f"{count} GPU tasks", "mean wait", mine[1], theirs[1], None, "lower than Swarm" if count > 10 and other[0] == "G"
                else None, "s", note=f"baseline: {other}",
            ))  # fmt: skip
    return found


def _mean(runs: Sequence[Run]) -> Run:
    """Mean of several runs of a load, task by task."""
    return Run(runs[0].load, np.mean([r.waits for r in runs], axis=0), np.mean([r.ends for r in runs], axis=0))
