"""Schedulers by name, to compare on one workload."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Hashable, Mapping
from statistics import fmean
from types import MappingProxyType
from typing import Any

from flowsched.boundary.validate import instance, nearest, quoted, whole
from flowsched.cluster.model import Task
from flowsched.exceptions import InputError
from flowsched.policy import Policy
from flowsched.scheduler import Scheduler
from flowsched.sim.baselines import Greedy, LeastFragmentation, Tetris, at_random, first
from flowsched.sim.engine import Schedules
from flowsched.sim.gavel import Gavel
from flowsched.sim.lines import Queue
from flowsched.sim.orders import capacity, drf, fair, fifo, sjf
from flowsched.sim.workload import Workload

SCHEDULERS: Mapping[str, str] = MappingProxyType(
    {
        "flowsched": "min-cost flow with the default policy; flowsched:NAME for a ready-made policy",
        "fifo": "in order of arrival; the first that finds no room keeps all later ones from starting",
        "easy": "FIFO with EASY backfilling: none delays the first in line, by the estimated run times",
        "easy-held": "AccaSim's EASY: the first in line starts at its reserved time, not before; others where they fit",
        "conservative": "FIFO with conservative backfilling: none delays any of the first 100 in line",
        "first-fit": "in order of arrival, each on the first machine with room",
        "sjf": "shortest estimated run time first",
        "capacity": "Capacity of YARN: each user a queue, the one with the smallest part of the memory first",
        "fair": "Fair of YARN: the user, then the job, with the smallest part of the memory first",
        "drf": "dominant resource fairness: the user, then the job, with the smallest dominant share first",
        "gavel": "Gavel's max-min fairness of throughput by GPU model, without its time slices; needs SciPy",
        "tetris": "Tetris: the task best aligned with what a machine has left",
        "fgd": "in order of arrival, where the least of the GPUs is spoiled for the workload (FGD)",
        "random": "in random order, on a random machine with room, a share on a random GPU of it",
    }
)
"""Names of schedulers, each with a description."""


def scheduler(name: str, workload: Workload, *, seed: int = 0) -> Schedules:
    """Make a scheduler for a workload.

    Parameters
    ----------
    name : str
        One of `SCHEDULERS`; ``flowsched:NAME`` for a policy of `Policy.names`; or ``MODULE:NAME``, a function of the workload
        and the seed that returns a scheduler, in a module that can be imported from here.
    workload : Workload
        Source of the resources, and of the expected tasks for FGD.
    seed : int
        Seed of schedulers that draw at random.

    Raises
    ------
    InputError
        The name is unknown, or the object made is not a scheduler.

    Examples
    --------
    >>> work = Workload.model(tasks=200, scale=0.02)
    >>> scheduler("easy", work).backfill
    'easy'
    """
    instance("workload", workload, Workload)
    whole("seed", seed, 0, 2**128 - 1)
    if name in _MAKERS:
        return _MAKERS[name](workload, seed)
    module, colon, attribute = name.partition(":") if isinstance(name, str) else ("", "", "")
    if not colon:
        raise InputError(
            f"scheduler: unknown name {quoted(name)}; known: {', '.join(SCHEDULERS)}, flowsched:POLICY, MODULE:NAME{nearest(name, SCHEDULERS)}"
        )
    if module == "flowsched":
        return Scheduler(Policy.named(attribute), resources=workload.resources, seed=seed)
    made = _imported(module, attribute)(workload, seed)
    if not all(callable(getattr(made, method, None)) for method in ("apply", "schedule", "commit")):
        raise InputError(f"scheduler: {quoted(name)} made no scheduler but {quoted(made)}")
    return made  # type: ignore[no-any-return]


def _imported(module: str, attribute: str) -> Callable[[Workload, int], Any]:
    """Return the function of a module, which may be in the present directory."""
    sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"scheduler: {quoted(f'{module}:{attribute}')}: {error}") from None
    finally:
        sys.path.remove(os.getcwd())
    if not callable(found):
        raise InputError(f"scheduler: {quoted(f'{module}:{attribute}')} is no function but {quoted(found)}")
    return found  # type: ignore[no-any-return]


def _random(work: Workload, seed: int) -> Greedy:
    order, choice, pick = at_random(seed)
    return Greedy(order, work.resources, choice, pick=pick)


def _fgd(work: Workload, seed: int) -> Greedy:
    tasks: list[Task] = [task for arrival in work.arrivals for task in arrival.job.tasks]
    if not tasks:
        return Greedy(fifo, work.resources, first)
    choice = LeastFragmentation(tasks, work.resources)
    return Greedy(fifo, work.resources, choice, pick=choice.pick)


def _gavel(work: Workload, seed: int) -> Gavel:
    """Make Gavel with the throughput of each kind of task by GPU model: its mean over tasks, 1 by the duration."""
    found: dict[Hashable, dict[str, list[float]]] = {}
    for arrival in work.arrivals if work.run_times else ():
        for task, duration in zip(arrival.job.tasks, arrival.durations, strict=True):
            for model, seconds in work.run_times.get(task.id, {}).items():
                found.setdefault(task.kind, {}).setdefault(model, []).append(duration / seconds)
    rates = {kind: {model: fmean(speeds) for model, speeds in by.items()} for kind, by in found.items()}
    return Gavel(work.resources, rates)


_MAKERS: dict[str, Callable[[Workload, int], Schedules]] = {
    "flowsched": lambda work, seed: Scheduler(resources=work.resources, seed=seed),
    "fifo": lambda work, seed: Queue(False, work.resources),
    "easy": lambda work, seed: Queue("easy", work.resources),
    "easy-held": lambda work, seed: Queue("easy-held", work.resources),
    "conservative": lambda work, seed: Queue("conservative", work.resources),
    "first-fit": lambda work, seed: Greedy(fifo, work.resources, first),
    "sjf": lambda work, seed: Greedy(sjf, work.resources),
    "capacity": lambda work, seed: Greedy(capacity({}, {}), work.resources),
    "fair": lambda work, seed: Greedy(fair, work.resources),
    "drf": lambda work, seed: Greedy(drf, work.resources),
    "gavel": _gavel,
    "tetris": lambda work, seed: Tetris(work.resources),
    "fgd": _fgd,
    "random": _random,
}
