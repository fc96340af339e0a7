"""Estimated run times for a workload: exact, or too long by a random factor, as those of users are."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from flowsched.boundary.validate import number, quoted, whole
from flowsched.cluster.model import Task
from flowsched.exceptions import InputError
from flowsched.sim.workload import Workload

__all__ = ["estimated"]


def estimated(workload: Workload, most: float = 1.0, *, seed: int = 0) -> Workload:
    """Return a workload with estimates of run times, in place of those that it has.

    Parameters
    ----------
    workload : Workload
    most : float
        The estimates of a job are its run times by a factor, uniform from 1 to `most`; 1 tells the run times as they are.  This
        is the "f-model" (Mu'alem and Feitelson, IEEE TPDS 12(6), 2001).
    seed : int
        Same seed, same factors.

    Raises
    ------
    InputError
        An argument out of range.

    Examples
    --------
    >>> work = estimated(Workload.model(tasks=100, scale=0.02), 3.0)
    >>> work.facts["estimates"]
    3.0
    """
    if not isinstance(workload, Workload):
        raise InputError(f"workload: a Workload expected, got {quoted(workload)}")
    number("most", most, 1, 1e6)
    whole("seed", seed, 0, 2**128 - 1)
    factors = np.random.default_rng(seed).uniform(1.0, most, len(workload.arrivals)).tolist()
    arrivals = []
    for arrival, factor in zip(workload.arrivals, factors, strict=True):
        tasks = tuple(
            _with(task, duration, factor if most > 1 else 1.0)
            for task, duration in zip(arrival.job.tasks, arrival.durations, strict=True)
        )
        arrivals.append(replace(arrival, job=replace(arrival.job, tasks=tasks)))
    return replace(workload, arrivals=arrivals, facts={**workload.facts, "estimates": most})


def _with(task: Task, duration: float, factor: float) -> Task:
    """Return a task with an estimate; none for one that never ends."""
    return replace(task, duration=duration * factor if math.isfinite(duration) else None)
