"""Synthetic workloads by name, from stated distributions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from flowsched.boundary.validate import nearest, number, quoted, whole
from flowsched.cluster.events import Event, JobSubmitted, MachineDrained, MachineRemoved
from flowsched.cluster.events import MachineAdded as Added
from flowsched.cluster.events import MachineFailed as Failed
from flowsched.cluster.model import Machine, Task
from flowsched.exceptions import InputError
from flowsched.sim.workload import Arrival, Workload

SYNTHETIC: Mapping[str, str] = MappingProxyType(
    {
        "demo": "three users on 16 machines of 8 GPUs that are too few: gangs, priorities, a burst, a rack that fails",
        "poisson": "tasks of a core; Poisson arrivals, exponential run times of mean 60 s; 100 machines of 8 cores",
        "batch": "gangs of 1 to 32 processors; Poisson arrivals, lognormal run times; 32 machines of 4 processors",
        "bursts": "tasks of a core in bursts of 20 on average; Pareto run times of shape 1.5; 100 machines of 8 cores",
        "hrm": "HRM's burst: jobs of 40 containers of 3 cores, all at once, for 5 to 25 s; 1,050 machines of 16 cores",
    }
)
"""Names of synthetic workloads, each with a description at scale 1."""

_MACHINES = {"poisson": (100, 8), "batch": (32, 4), "bursts": (100, 8), "hrm": (1050, 16)}
_TASKS = {"hrm": 7200, "demo": 700}
_MEAN = 60.0
_MU, _SIGMA = 5.8, 1.2
_PROCESSORS = (1, 2, 4, 8, 16, 32)
_SHAPE, _SHORTEST = 1.5, 20.0
_BURST = 20.0
_CONTAINERS, _CONTAINER_CORES = 40, 3

Floats = NDArray[np.float64]
_MACHINE = {"cpu": 64.0, "mem": 262144.0, "gpu": 8.0}
_IN_RACK = 4

_USERS = (
    # user, priority, GPUs of a task, tasks of a job, least and most minutes, part of all GPU time
    ("product", 0, 1.0, (1, 2), (4, 15), 0.25),
    ("research", 1, 4.0, (2, 4), (25, 80), 0.45),
    ("students", 2, 1.0, (6, 16), (8, 40), 0.30),
)
_CROWDED = (0.55, 0.65)
"""Part of the arrivals' span for the burst: all jobs of the first user in the second half arrive in it."""

_FAILS, _BACK = 0.35, 0.45
_DRAINED, _GONE, _AGAIN = 0.70, 0.78, 0.86
"""Failure and return of the second rack, and maintenance of the last machine, as parts of the arrivals' span."""


def synthetic(
    name: str, *, tasks: int | None = None, load: float | None = None, scale: float = 1.0, seed: int = 0
) -> Workload:
    """Make a synthetic workload of one resource, ``cpu``; ``"demo"`` has ``mem`` and ``gpu``, too.

    Parameters
    ----------
    name : str
        One of `SYNTHETIC`:

        ``"demo"``
            The default of `flowsched simulate`.  Three users share racks of four machines with 8 GPUs each.  Jobs arrive
            uniformly, for times that are uniform: of ``product`` (priority 0), one or two tasks of a GPU for 4 to 15 minutes; of
            ``research`` (1), gangs of 2 to 4 tasks of four GPUs for 25 to 80 minutes; of ``students`` (2), 6 to 16 tasks of a
            GPU for 8 to 40 minutes.  The second half of ``product`` comes in a burst.  The second rack fails, and comes back.
            The last machine is drained, removed, and comes back.
        ``"poisson"``
            An M/M/c queue: tasks of one core arrive as a Poisson process and run for exponential times of mean 60 s.
        ``"batch"``
            Jobs arrive as a Poisson process.  A job has 1, 2, 4, 8, 16 or 32 tasks of one processor, equally likely, that
            start together.  Its run time is lognormal, ``exp(N(5.8, 1.2))`` s, and its estimate uniform from one to three
            times that.
        ``"bursts"``
            Bursts arrive as a Poisson process.  The number of their tasks, of one core each, is geometric with mean 20; run
            times are Pareto of shape 1.5 and at least 20 s, so their mean is 60 s and their variance infinite.
        ``"hrm"``
            The burst of HRM: jobs of 40 containers of 3 cores all arrive at time 0 and run for 5 to 25 s, uniformly.
    tasks : int, optional
        Upper bound of the number of tasks, reached up to one job; 3,000, 7,200 for ``"hrm"`` and about 700 for ``"demo"`` are
        the defaults.
    load : float, optional
        Expected demand as a fraction of the machines; it sets how fast tasks arrive.  0.9 is the default, 1.05 of ``"demo"``;
        ``"hrm"`` has none.
    scale : float
        Size of the cluster.
    seed : int
        Same seed, same workload.

    Raises
    ------
    InputError
        An unknown name, an argument out of range.

    Examples
    --------
    >>> synthetic("poisson", tasks=500, seed=1)
    <Workload 'poisson': 500 tasks, 100 machines>
    """
    if name not in SYNTHETIC:
        raise InputError(f"name: unknown name {quoted(name)}; known: {', '.join(SYNTHETIC)}{nearest(name, SYNTHETIC)}")
    if name == "hrm" and load is not None:
        raise InputError("load: hrm has none, since all its jobs arrive at once; tasks sets how many there are")
    tasks = whole("tasks", _TASKS.get(name, 3000) if tasks is None else tasks, 1)
    whole("seed", seed, 0, 2**128 - 1)
    number("scale", scale, 1e-4, 1e4)
    rate = number("load", (1.05 if name == "demo" else 0.9) if load is None else load, 1e-6, 1e6)
    if name == "demo":
        facts = {"tasks": tasks, "scale": scale, "seed": seed, "load": rate}
        return replace(_demo(tasks, rate, scale, np.random.default_rng(seed)), facts=facts)
    count, cores = _MACHINES[name]
    machines = [Machine(f"m{i}", {"cpu": cores}) for i in range(max(round(count * scale), 1))]
    rng = np.random.default_rng(seed)
    arrivals = _MAKERS[name](tasks, rate * len(machines) * cores, rng)
    facts = {"tasks": tasks, "scale": scale, "seed": seed} | ({} if name == "hrm" else {"load": rate})
    return Workload(name, arrivals, machines, resources=("cpu",), units={"cpu": "cores"}, facts=facts)


def _times(rng: np.random.Generator, count: int, gap: float) -> list[float]:
    """Return the times of a Poisson process, in whole microseconds, so that no platform's last digit decides an order."""
    return [round(t, 6) for t in np.cumsum(rng.exponential(gap, count)).tolist()]


def _rounded(values: Floats) -> list[float]:
    return [round(v, 6) for v in values.tolist()]


def _poisson(tasks: int, cores: float, rng: np.random.Generator) -> list[Arrival]:
    times = _times(rng, tasks, _MEAN / cores)
    return [
        _job(f"j{i}", t, [d])
        for i, (t, d) in enumerate(zip(times, _rounded(rng.exponential(_MEAN, tasks)), strict=True))
    ]


def _batch(tasks: int, cores: float, rng: np.random.Generator) -> list[Arrival]:
    sizes = rng.choice(_PROCESSORS, tasks).tolist()
    runs = _rounded(rng.lognormal(_MU, _SIGMA, tasks))
    estimates = _rounded(rng.uniform(1.0, 3.0, tasks))
    work = float(np.mean(_PROCESSORS)) * float(np.exp(_MU + _SIGMA**2 / 2))
    times = _times(rng, tasks, work / cores)
    arrivals: list[Arrival] = []
    left = tasks
    for i, (size, run) in enumerate(zip(sizes, runs, strict=True)):
        left -= size
        if left < 0 and arrivals:
            break
        arrivals.append(_job(f"j{i}", times[i], [run] * size, gang=size > 1, estimate=run * estimates[i]))
    return arrivals


def _bursts(tasks: int, cores: float, rng: np.random.Generator) -> list[Arrival]:
    sizes = rng.geometric(1 / _BURST, tasks)
    times = _times(rng, tasks, _BURST * _MEAN / cores)
    runs = _rounded(_SHORTEST * (1.0 + rng.pareto(_SHAPE, tasks)))
    starts = np.r_[0, np.cumsum(sizes)]
    return [_job(f"j{i}", times[i], runs[a:b]) for i, (a, b) in enumerate(pairwise(starts)) if a < tasks]


def _hrm(tasks: int, cores: float, rng: np.random.Generator) -> list[Arrival]:
    runs = _rounded(rng.uniform(5.0, 25.0, tasks))
    return [
        _job(f"j{i}", 0.0, runs[first : first + _CONTAINERS], cores=_CONTAINER_CORES)
        for i, first in enumerate(range(0, tasks, _CONTAINERS))
    ]


_MAKERS = {"poisson": _poisson, "batch": _batch, "bursts": _bursts, "hrm": _hrm}


def _job(
    id: str, time: float, runs: list[float], gang: bool = False, estimate: float | None = None, cores: int = 1
) -> Arrival:
    tasks = tuple(Task(f"{id}-{i}", {"cpu": cores}, duration=estimate) for i in range(len(runs)))
    return Arrival(time, JobSubmitted(id, tasks, gang=len(tasks) if gang else None), tuple(runs))


def _demo(tasks: int, load: float, scale: float, rng: np.random.Generator) -> Workload:
    """Make the workload; see `synthetic`."""
    count = max(round(16 * scale), 1)
    machines = [Machine(f"m{i:02d}", _MACHINE, f"rack {i // _IN_RACK}") for i in range(count)]
    seconds = [60 * (low + high) / 2 for _, _, _, _, (low, high), _ in _USERS]
    sizes = [(low + high) / 2 for _, _, _, (low, high), _, _ in _USERS]
    # GPU seconds of a job of each user, and the jobs of each in the proportion that gives its part of them.
    work = [gpus * s * n for (_, _, gpus, *_), s, n in zip(_USERS, seconds, sizes, strict=True)]
    jobs = [user[-1] / w for user, w in zip(_USERS, work, strict=True)]
    one = tasks / sum(j * n for j, n in zip(jobs, sizes, strict=True))
    span = one / (load * count * _MACHINE["gpu"])
    arrivals: list[Arrival] = []
    for (user, priority, gpus, size, minutes, _), each in zip(_USERS, jobs, strict=True):
        n = max(round(one * each), 1)
        at = np.sort(rng.random(n))
        if priority == 0:
            late = at > 0.5
            at[late] = _CROWDED[0] + (at[late] - 0.5) * 2 * (_CROWDED[1] - _CROWDED[0])
        for i, when in enumerate(np.sort(at).tolist()):
            members = int(rng.integers(size[0], size[1] + 1))
            runs = np.round(60 * rng.uniform(*minutes, members), 3).tolist()
            demand = {"cpu": 6.0 * gpus, "mem": 16384.0 * gpus, "gpu": gpus}
            gang = members if gpus > 1 else None
            made = tuple(Task(f"{user}-{i}-{k}", demand) for k in range(members))
            job = JobSubmitted(f"{user}-{i}", made, user, priority, gang)
            arrivals.append(Arrival(round(when * span, 3), job, tuple([max(runs)] * members if gang else runs)))
    arrivals.sort(key=lambda arrival: arrival.time)
    total = np.cumsum([len(arrival.durations) for arrival in arrivals])
    arrivals = arrivals[: max(int(np.searchsorted(total, tasks, side="right")), 1)]
    second = machines[_IN_RACK : 2 * _IN_RACK] or machines[:1]
    events: list[Event] = [Failed(m.id, time=round(_FAILS * span, 3)) for m in second]
    events += [Added(m.id, m.capacity, m.rack, time=round(_BACK * span, 3)) for m in second]
    last = machines[-1]
    events += [
        MachineDrained(last.id, time=round(_DRAINED * span, 3)),
        MachineRemoved(last.id, time=round(_GONE * span, 3)),
        Added(last.id, last.capacity, last.rack, time=round(_AGAIN * span, 3)),
    ]
    return Workload("demo", arrivals, machines, events)
