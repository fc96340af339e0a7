"""``flowsched run --learn``: a scheduler that learns, and its knowledge of the jobs of a file.

The estimates are in the scheduler's journal, in the folder of the state, so a driver that is killed has a successor that
knows them.  The limits with which a state began are in the file ``learn.json`` there: a journal goes on by its settings.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from flowsched.boundary import private
from flowsched.boundary.files import replace
from flowsched.exceptions import InputError
from flowsched.fgm import DemandEstimator, FineGrained
from flowsched.fgm.limits import Limits
from flowsched.policy import Policy
from flowsched.run.executor import Decider
from flowsched.run.jobs import RESOURCES, JobOfFile
from flowsched.scheduler import JournalOrPath, Scheduler

SAMPLE = 0.5
"""Seconds between two samples of a run."""

COLD = 3
"""Number of runs of a kind before its estimate counts."""

_SAFETY = 2.0
"""Mean deviations that are added to the memory of a task."""

_NAME = "learn.json"


def scheduler_of(policy: Policy, limits: Limits, journal: JournalOrPath | None) -> FineGrained:
    """Return a scheduler for one machine that matches tasks by their needs; its costs are the policy's own."""
    estimator = DemandEstimator(RESOURCES, cold=COLD, safety={"mem": _SAFETY})
    return FineGrained(
        Scheduler(policy, RESOURCES), compressible={"cpu": limits.compression}, contention=limits.contention,
        estimator=estimator, weight=0.0, journal=journal,
    )  # fmt: skip


def limits_in(state: Path, limits: Limits, begins: bool) -> Limits:
    """Return the limits with which a state began to learn; a state that `begins` does so with these.

    Raise InputError for a state that began without.
    """
    path = state / _NAME
    if path.exists():
        return Limits.read(path)
    if not begins:
        raise InputError(f"--learn: {state} began without it; leave it out, or begin another state")
    replace(path, limits.text(), private.MODE)
    return limits


def learns(state: Path) -> bool:
    """Return True for a state that began with ``--learn``."""
    return (state / _NAME).exists()


def learnt(scheduler: Decider, job: JobOfFile) -> dict[str, Any] | None:
    """Return the knowledge of the tasks of a job; None where nothing learns.

    Returns
    -------
    dict or None
        ``runs``: number of runs that the estimate is based on; ``of``: number before which it does not count; ``stages``:
        one dict for each, with ``seconds`` and the amount of each resource; none before it counts.
    """
    if not isinstance(scheduler, FineGrained):
        return None
    estimator, resources = scheduler.estimator, scheduler.cluster.resources
    request = resources.demand_of(job.submitted.tasks[0])
    stages = scheduler.learner.stages(job.kind, request)
    rows = []
    for seconds, demand in () if stages is None else zip(stages.seconds.tolist(), stages.demand.tolist(), strict=True):
        amounts = {
            name: amount for name, amount in zip(resources.names, demand, strict=True) if name != resources.device
        }
        rows.append({"seconds": seconds, **amounts})
    return {"runs": estimator.seen(job.kind), "of": estimator.cold, "stages": rows}


def said(known: dict[str, Any] | None) -> str:
    """Return this knowledge as a few words, such as ``cpu 0.05-1, mem 31M, 12s in 2 stages (12 runs)``."""
    if known is None:
        return ""
    runs, stages = known["runs"], known["stages"]
    if not stages:
        return f"demand ({runs} of {known['of']} runs)"
    cpu, mem = ([stage[name] for stage in stages] for name in ("cpu", "mem"))
    seconds = sum(stage["seconds"] for stage in stages)
    within = f" in {len(stages)} stages" if len(stages) > 1 else ""
    return f"cpu {_range(cpu)}, mem {_range(mem)}M, {seconds:.3g}s{within} ({runs} runs)"


def _range(amounts: list[float]) -> str:
    words = [f"{amount:.2g}" if amount < 10 else f"{amount:.0f}" for amount in (min(amounts), max(amounts))]
    return words[0] if words[0] == words[1] else "-".join(words)


def cannot_measure() -> str:
    """Return why the use of tasks cannot be measured here; "" if it can."""
    if not sys.platform.startswith("linux"):
        return f"the use of tasks is measured on Linux only, not on {sys.platform}"
    if find_spec("psutil") is None:
        return "it needs psutil: pip install 'flowsched[real]'"
    return ""


__all__ = ["COLD", "SAMPLE", "cannot_measure", "learns", "learnt", "limits_in", "said", "scheduler_of"]
