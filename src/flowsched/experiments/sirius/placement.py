"""Placement: image analysis that wants GPUs, beside a random queue and a hard constraint, all with the same slots."""

from __future__ import annotations

import numpy as np

from flowsched.experiments.rows import Outcome, Row
from flowsched.experiments.sirius.model import (
    NAME,
    RESOURCES,
    Kind,
    Load,
    RandomPlacement,
    Run,
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
    """Add rows to the outcome; return the part of the tasks on GPUs, and their mean wait in seconds, by scheduler and number.

    One task per machine (10 tasks, a GPU each) or two per GPU (20 tasks and more, half a GPU each).  How long a task runs
    without a GPU is an assumption of `model`, so run times would say nothing of a scheduler.
    """
    found: dict[str, dict[int, tuple[float, float]]] = {"Sirius": {}, "GPU machines only": {}, "random queue": {}}
    for count in (10, 20, 30, 40):
        load = _gpu_tasks(count, seed)

        def slots(rack: str, count: int = count) -> int | None:
            return 2 if rack == "rack1" and count > 10 else 1

        def only_gpus(rack: str, count: int = count) -> int | None:
            return 0 if rack != "rack1" else 2 if count > 10 else 1

        patient = WaitCost(first=60.0, patience=0.5)
        runs = {
            "Sirius": [simulate(load, sirius(load, waiting=patient), slots)],
            "GPU machines only": [simulate(load, Greedy(oldest_first, RESOURCES), only_gpus)],
            "random queue": [simulate(load, RandomPlacement(seed + i), slots) for i in range(10)],
        }
        for name, some in runs.items():
            on_gpu, wait = (np.mean([of(run) for run in some]) for of in (Run.full_speed, lambda run: run.waits.mean()))
            found[name][count] = float(on_gpu), float(wait)
        for other in ("random queue", "GPU machines only"):
            mine, theirs = found["Sirius"][count], found[other][count]
            setting, note = f"{count} GPU tasks", f"baseline: {other}"
            outcome.rows.append(Row(
                NAME, setting, "tasks that ran on a GPU", 100 * mine[0], 100 * theirs[0], unit="%", note=note, better="more",
            ))  # fmt: skip
            outcome.rows.append(Row(NAME, setting, "mean wait", mine[1], theirs[1], unit="s", note=note))
        if found["Sirius"][count][0] < found["random queue"][count][0]:
            outcome.wrong.append(f"{count} GPU tasks: fewer of them on GPUs than by chance")
    return found
