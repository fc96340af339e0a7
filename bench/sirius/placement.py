"""Placement (Figures 8 and 9): image analysis that prefers GPUs, compared with a random queue and a hard constraint, with the same slots.

Chosen beforehand.  K = 1, one task a machine, as the source sets it; 10 of the 20 machines have a GPU.  A task runs for 50 to
70 s on a GPU.  Without one it takes `SLOWER` times as long: an input, so there are several.  A second of waiting costs as much as
a second of running, as in Firmament's network: a task waits for a GPU for the time that it would lose without one, then takes any machine.
"""

from __future__ import annotations

import numpy as np

from bench.rows import Outcome, Row
from bench.sirius.model import (
    NAME,
    RESOURCES,
    Kind,
    Load,
    oldest_first,
    simulate,
    sirius,
)
from bench.sirius.slots import RandomPlacement
from flowsched.policy import WaitCost
from flowsched.sim.baselines import Greedy

__all__ = ["SLOWER", "measure_placement"]

SLOWER = (1.5, 3.0, 6.0)
"""Times as long without a GPU."""

Found = dict[str, dict[int, tuple[float, float, float]]]


def _gpu_tasks(count: int, slower: float, seed: int) -> Load:
    kind = Kind("image analysis", (50.0, 70.0), off_gpu=1 / slower)
    rng = np.random.default_rng([seed, count])
    return Load(f"{count} GPU tasks", [(0.0, kind, rng.uniform(*kind.seconds, size=1), 0) for _ in range(count)])


def _measured(count: int, slower: float, seed: int) -> dict[str, tuple[float, float, float]]:
    """Return, by scheduler, the part of the tasks on GPUs, and the means of wait and of run time with waiting."""
    load = _gpu_tasks(count, slower, seed)
    # Any place without a GPU costs more than the patience of the first age bucket, any with one costs less.
    patient = WaitCost(first=60.0 * (slower - 1), patience=0.25)
    runs = {
        "Sirius": [simulate(load, sirius(load, waiting=patient), lambda rack: 1)],
        "GPU machines only": [simulate(load, Greedy(oldest_first, RESOURCES), lambda rack: int(rack == "rack1"))],
        "random queue": [simulate(load, RandomPlacement(seed + i), lambda rack: 1) for i in range(10)],
    }
    return {
        name: (
            float(np.mean([run.full_speed() for run in some])),
            float(np.mean([run.waits.mean() for run in some])),
            float(np.mean([run.spent.mean() for run in some])),
        )
        for name, some in runs.items()
    }


def measure_placement(outcome: Outcome, seed: int) -> Found:
    """Add rows to the outcome; return the measurements of a program that is three times slower without a GPU."""
    found: Found = {"Sirius": {}, "GPU machines only": {}, "random queue": {}}
    for count in (10, 20, 30, 40):
        for slower in SLOWER:
            by_name = _measured(count, slower, seed)
            mine = by_name["Sirius"]
            setting = f"8: {count} GPU tasks, {slower:g} times slower without"
            for other, source in (("GPU machines only", {10: "equal", 20: "Sirius less"}), ("random queue", {})):
                if count == 10 and other == "random queue":
                    continue  # (1 + slower) / 2 for any scheduler that places by GPUs: the input
                outcome.rows.append(Row(
                    NAME, setting, "mean run time with waiting", mine[2], by_name[other][2], by_name[other][2] / mine[2],
                    source.get(count), "s", note=f"compared: {other}",
                ))  # fmt: skip
            if slower == 3.0:
                for name, values in by_name.items():
                    found[name][count] = values
        setting, mine = f"9: {count} GPU tasks", found["Sirius"][count]
        for other in ("random queue", "GPU machines only"):
            theirs, note = found[other][count], f"compared: {other}; 3 times slower without"
            outcome.rows.append(Row(
                NAME, setting, "tasks that ran on a GPU", 100 * mine[0], 100 * theirs[0], unit="%", note=note, better="more",
            ))  # fmt: skip
            published = "Sirius less" if other == "GPU machines only" else None
            outcome.rows.append(Row(NAME, setting, "mean wait", mine[1], theirs[1], None, published, "s", note=note))
    return found
