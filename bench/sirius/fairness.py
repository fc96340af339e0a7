"""Fairness (Figure 7): system normalised performance (SNP) of batch, service and mixed load.

Chosen beforehand.  Every scheduler has 24 slots a machine, as the source sets K to the number of cores; a round is a second; no
running task is stopped.  A task of a batch job reads 128 MB, a block of HDFS, from the machine where an earlier job left it,
drawn at random.  Services read nothing.  Jobs have 12 to 72 tasks.  Their arrival rate is 70 % of the capacity of the cores,
or 120 % until the last arrival, so that a queue builds up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bench.rows import Outcome, Row
from bench.sirius.links import LINK, Reading, ReadingJob, read_all
from bench.sirius.model import CORES, NAME, Kind
from bench.sirius.quincy import CORE, RACK, Firmament
from bench.sirius.slots import RandomPlacement
from flowsched.policy import Fairness, Locality, MaxMin, Policy, WaitCost
from flowsched.scheduler import Scheduler

__all__ = ["BATCH", "BLOCK", "SERVICES", "jobs_of_load", "measure_fairness", "schedulers"]

BLOCK = 128e6
"""Bytes that a batch task reads."""

BATCH = [Kind("MergeSort", (20.0, 40.0)), Kind("PageRank", (30.0, 60.0)), Kind("TPC-H", (5.0, 10.0))]
SERVICES = [Kind(name, (60.0, 120.0)) for name in ("Httpd", "Mysql", "Redis")]

_LOADS = (("batch", BATCH), ("service", SERVICES), ("mixed", BATCH + SERVICES))


def jobs_of_load(kinds: Sequence[Kind], count: int, part: float, seed: int, block: float = BLOCK) -> list[ReadingJob]:
    """Draw jobs of 12 to 72 tasks, as many a second as keep `part` of all cores busy."""
    rng = np.random.default_rng([seed, len(kinds)])
    jobs, at = [], 0.0
    for _ in range(count):
        kind = kinds[int(rng.integers(len(kinds)))]
        seconds = rng.uniform(*kind.seconds, size=int(rng.integers(12, 73)))
        source = rng.integers(0, 20, len(seconds))
        jobs.append(ReadingJob(at, seconds, source, 0.0 if kind in SERVICES else block))
        at += float(rng.exponential(seconds.sum() / (part * 20 * CORES)))
    return jobs


def schedulers(seed: int, block: float = BLOCK) -> dict[str, Callable[[], Any]]:
    """Return makers by name; Sirius and Firmament price bytes alike, and in both a task waits for its data for a while."""
    # As in Firmament's network, a task goes to the rack of its data after half the seconds of a transfer, anywhere after all.
    costs: dict[str, Any] = {
        "placement": (),
        "locality": Locality(rack=RACK / CORE, amount=max(block, 1.0)),
        "waiting": WaitCost(first=max(block / LINK, 1e-3), patience=RACK / CORE, reserve=None),
        "preemption": None,
    }
    fair = Fairness(MaxMin())
    return {
        "Sirius": lambda: Scheduler(Policy(fairness=fair, **costs), resources=("cpu",)),
        "Firmament": lambda: Firmament(LINK),
        "Sirius without bounds": lambda: Scheduler(Policy(**costs), resources=("cpu",)),
        "random queue": lambda: RandomPlacement(seed),
    }


def measure_fairness(outcome: Outcome, quick: bool, seed: int) -> dict[str, dict[str, float]]:
    """Add rows of SNP to the outcome; return SNP by setting, then by scheduler."""
    found: dict[str, dict[str, float]] = {}
    settings = [(name, kinds, part, BLOCK) for name, kinds in _LOADS for part in (0.7, 1.2)]
    if not quick:
        settings += [("batch", BATCH, 0.7, block) for block in (BLOCK / 4, 4 * BLOCK)]
    for name, kinds, part, block in settings:
        jobs = jobs_of_load(kinds, 15 if quick else 40, part, seed, block)
        runs: dict[str, Reading] = {}
        for scheduler, make in schedulers(seed, block).items():
            runs[scheduler] = read_all(jobs, make(), CORES)
        setting = f"{name} load of {part:.0%}" + ("" if block == BLOCK else f", {block / 1e6:g} MB a task")
        snp = found[setting] = {scheduler: run.snp() for scheduler, run in runs.items()}
        for other, source in (("random queue", 2.0), ("Firmament", 1.0), ("Sirius without bounds", None)):
            ratio = snp["Sirius"] / snp[other]
            published = None if source is None else f"ratio about {source:g}"
            outcome.rows.append(
                Row(
                    NAME, f"7: {setting}", "SNP", snp["Sirius"], snp[other], ratio, published, note=f"compared: {other}"
                )
            )
        if any(job.bytes for job in jobs):
            across = {scheduler: 100 * run.across for scheduler, run in runs.items()}
            outcome.rows.append(Row(
                NAME, f"7: {setting}", "input read from the other rack", across["Sirius"], across["random queue"], None, None, "%",
                note=f"compared: random queue; Firmament {across['Firmament']:.1f} %", better="less",
            ))  # fmt: skip
    return found
