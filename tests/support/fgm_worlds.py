"""Small clusters and exact estimates for the tests of FGM."""

from __future__ import annotations

import numpy as np

import flowsched as fs
from flowsched.fgm import DemandEstimator, FineGrained, Stages

NAMES = ("cpu", "mem")


def known(kinds: dict[str, Stages], points: int = 12) -> DemandEstimator:
    """An estimator that has seen each kind exactly."""
    estimator = DemandEstimator(NAMES, points=points, cold=1)
    for kind, stages in kinds.items():
        ends = np.rint(np.cumsum(stages.seconds) / stages.duration * points).astype(int)
        estimator.observe(kind, stages.demand[np.searchsorted(ends, np.arange(points), side="right")], stages.duration)
    estimator.update()
    return estimator


def submit(fine: FineGrained, count: int, cpu: float = 2.0, mem: float = 2.0, kind: str | None = "k") -> None:
    tasks = [fs.Task(f"t{i}", {"cpu": cpu, "mem": mem}, kind=kind) for i in range(count)]
    fine.apply(fs.MachineAdded("m", {"cpu": 4, "mem": 16}), fs.JobSubmitted("j", tasks))
