"""Fairness: system normalised performance (SNP) of batch, service and mixed load, beside a random queue."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flowsched.experiments.rows import Outcome, Row
from flowsched.experiments.sirius.model import (
    CORES,
    NAME,
    Kind,
    Load,
    RandomPlacement,
    cores,
    simulate,
    sirius,
)
from flowsched.policy import Fairness, MaxMin, WaitCost

__all__ = ["BATCH", "SERVICES", "jobs_of_load", "measure_fairness"]

BATCH = [
    Kind("MergeSort", (20.0, 40.0), rack="rack1"),
    Kind("MergeSort", (20.0, 40.0), rack="rack2"),
    Kind("PageRank", (30.0, 60.0), rack="rack2"),
    Kind("TPC-H", (5.0, 10.0), rack="rack1"),
    Kind("TPC-H", (5.0, 10.0), rack="rack2"),
    Kind("image analysis", (20.0, 30.0), gpu=True),
]
SERVICES = [Kind(name, (60.0, 120.0)) for name in ("Httpd", "Mysql", "Redis")]


def jobs_of_load(name: str, kinds: Sequence[Kind], count: int, part: float, seed: int) -> Load:
    """Jobs of 12 to 72 tasks, as many a second as keep `part` of all cores busy."""
    rng = np.random.default_rng([seed, len(kinds)])
    jobs, at = [], 0.0
    for _ in range(count):
        kind = kinds[int(rng.integers(len(kinds)))]
        seconds = rng.uniform(*kind.seconds, size=int(rng.integers(12, 73)))
        jobs.append((at, kind, seconds, 0))
        at += float(rng.exponential(seconds.sum() / (part * 20 * CORES)))
    return Load(name, jobs)


def measure_fairness(outcome: Outcome, quick: bool, seed: int) -> dict[str, dict[str, float]]:
    """Add rows of SNP to the outcome; return SNP by setting, then by scheduler."""
    count = 40
    found: dict[str, dict[str, float]] = {}
    patient, fair = WaitCost(first=10.0, patience=0.5), Fairness(MaxMin(), mode="ladder")
    for name, kinds in (("batch", BATCH), ("service", SERVICES), ("mixed", BATCH + SERVICES)):
        for part in (0.7,) if quick else (0.5, 0.7, 0.85):
            load = jobs_of_load(name, kinds, count, part, seed)
            snp = {
                "Sirius": simulate(load, sirius(load, waiting=patient), cores).snp(),
                "Sirius with max-min": simulate(load, sirius(load, waiting=patient, fairness=fair), cores).snp(),
                "random queue": simulate(load, RandomPlacement(seed), cores).snp(),
            }
            setting = f"{name} load of {part:.0%}"
            found[setting] = snp
            for other, source in (("random queue", "ratio about 2"), ("Sirius with max-min", None)):
                outcome.rows.append(Row(
                    NAME, setting, "SNP (1 is ideal)", snp["Sirius"], snp[other], snp["Sirius"] / snp[other], source,
                    note=f"baseline: {other}",
                ))  # fmt: skip
            if snp["Sirius"] < 0.99 * snp["random queue"]:
                outcome.wrong.append(
                    f"{setting}: SNP {snp['Sirius']:.3f} is below the random queue's {snp['random queue']:.3f}"
                )
    return found
