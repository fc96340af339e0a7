"""Gavel's max-min fairness: time fractions of jobs on types of accelerators, and a scheduler that follows them.

Source: Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads", OSDI 2020, section 4.1
(the objective) and 4.3 (water filling).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flowsched.boundary.validate import mapping, number
from flowsched.cluster import Resources
from flowsched.cluster.model import GPU_MODEL, MICRO
from flowsched.cluster.records import Group, TaskClass, TaskRecord
from flowsched.exceptions import InputError
from flowsched.sim.baselines import Greedy, Plan, Room
from flowsched.sim.orders import Shares

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_SMALL = 1e-9


def max_min_throughput(
    throughput: ArrayLike, workers: ArrayLike, *, jobs: ArrayLike = 1.0, scale: ArrayLike = 1.0, weight: ArrayLike = 1.0
) -> Floats:
    """Return the fraction of time that each job spends on each type, max-min fair in effective throughput.

    The effective throughput of a job is the sum of its throughputs by type, each weighted by its fraction of time.  It is
    normalised by the effective throughput under equal shares of every type.  Bottleneck jobs are fixed at their level, and
    the other jobs are raised, until every job is a bottleneck.

    Parameters
    ----------
    throughput : array of float, shape (jobs, types)
        0 where a job cannot run; every job can run somewhere.
    workers : array of float, shape (types,)
        Accelerators of each type.
    jobs : array of float, shape (jobs,), or float
        Number of equal jobs that a row stands for.
    scale : array of float, shape (jobs,), or float
        Accelerators that a job needs at a time.
    weight : array of float, shape (jobs,), or float

    Returns
    -------
    ndarray of float64, shape (jobs, types)
        Rows sum to at most 1, columns weighted by `jobs` and `scale` to at most `workers`.

    Raises
    ------
    ImportError
        SciPy is missing.
    InputError
        A shape or sign that is wrong.

    Examples
    --------
    The example of the paper: three jobs, one V100 and one K80.

    >>> max_min_throughput([[4, 1], [3, 1], [2, 1]], [1, 1]).round(2) + 0.0
    array([[0.45, 0.  ],
           [0.45, 0.09],
           [0.09, 0.91]])
    """
    linprog = _linprog()
    rates, there = np.asarray(throughput, np.float64), np.asarray(workers, np.float64)
    if rates.ndim != 2 or there.shape != rates.shape[1:]:
        raise InputError(f"throughput: shape (jobs, {there.size}) expected, got {rates.shape}")
    n, types = rates.shape
    many, each, part = (np.broadcast_to(np.asarray(a, np.float64), (n,)) for a in (jobs, scale, weight))
    good = (rates >= 0).all() and rates.any(axis=1).all() and all((a > 0).all() for a in (many, each, part))
    if not (good and np.isfinite(rates).all() and (there > 0).all()):
        raise InputError(
            "throughput: numbers >= 0, above 0 in each row, and positive workers, jobs, scales and weights expected"
        )
    if not n:
        return np.zeros((0, types))
    equal = np.minimum(there / (many * each).sum(), 1.0)
    equal = equal / max(equal.sum(), 1.0)
    worth = rates / ((rates @ equal) * part)[:, None]
    # Variables: the fractions row by row, then the level.  Rows: at most 1 of each job's time, the workers of each type.
    time = np.zeros((n, n * types + 1))
    for i in range(n):
        time[i, i * types : (i + 1) * types] = 1.0
    use = np.zeros((types, n * types + 1))
    use[:, :-1] = np.tile(np.eye(types), n) * np.repeat(many * each, types)
    level = np.zeros((n, n * types + 1))
    for i in range(n):
        level[i, i * types : (i + 1) * types] = -worth[i]
    fixed = np.full(n, np.nan)
    objective = np.r_[np.zeros(n * types), -1.0]
    while True:
        level[:, -1] = np.isnan(fixed)
        bound = np.where(np.isnan(fixed), 0.0, -fixed * (1 - _SMALL))
        found = linprog(objective, np.vstack([time, use, level]), np.r_[np.ones(n), there, bound], method="highs")
        if not found.success:
            raise ArithmeticError(f"the linear program of Gavel has no solution: {found.message}")
        tight = np.isnan(fixed) & (found.ineqlin.marginals[n + types :] < -_SMALL)
        fixed[tight if tight.any() else np.isnan(fixed)] = found.x[-1]
        if not np.isnan(fixed).any():
            fractions: Floats = np.clip(found.x[:-1], 0.0, 1.0).reshape(n, types)
            return fractions


def _linprog() -> Any:
    try:
        from scipy.optimize import linprog
    except ImportError as missing:
        raise ImportError("the scheduler gavel needs SciPy: pip install 'flowsched[gavel]'", name="scipy") from missing
    return linprog


class Gavel(Greedy):
    """Starts tasks where their classes lack most of their allocation by `max_min_throughput`; running tasks stay.

    An accelerator type is a value of the machines' label ``gpu_model``, its workers are the devices of its machines
    (the machines, where there are no devices).  Tasks that are alike share an allocation.  It is computed again in
    every round from all tasks in the system.  The paper's time slices are left out: a task that has started runs to its
    end.  `throughput` is that of tasks of a kind (`Task.kind`) by type; 1 for a type or a kind that is not named.
    """

    def __init__(
        self,
        resources: Resources | Collection[str] = ("cpu", "mem", "gpu"),
        throughput: Mapping[Hashable, Mapping[str, float]] | None = None,
    ) -> None:
        _linprog()
        super().__init__(self._lack, resources, self._prefer)
        self._throughput = {
            kind: {name: number(f"throughput[{kind!r}][{name!r}]", rate, 0) for name, rate in rates.items()}
            for kind, rates in mapping("throughput", {} if throughput is None else throughput).items()
        }
        self._type: Ints = np.zeros(0, np.int64)
        self._lacks: dict[TaskClass, Floats] = {}

    def _place(self, plan: Plan, room: Room) -> None:
        names = [str(self.cluster.by_row[row].machine.labels.get(GPU_MODEL, "")) for row in room.rows.tolist()]
        types = sorted({*names})
        self._type = np.array([types.index(name) for name in names], np.int64)
        self._lacks = self._lacking(room, types)
        super()._place(plan, room)

    def _lacking(self, room: Room, types: list[str]) -> dict[TaskClass, Floats]:
        """Return the number of tasks of each class by its allocation on each type, less those that run there."""
        inventory, device = self.cluster.inventory, self.cluster.resources.device_index
        devices = inventory.capacity[room.rows, device] / MICRO if device >= 0 else np.zeros(len(room.rows))
        if not devices.any():
            devices = np.ones(len(room.rows))
        workers = np.bincount(self._type, devices, len(types))
        classes = [cls for cls in self.cluster.by_class.values() if cls.tasks]
        can = inventory.can_ever(np.array([cls.index for cls in classes], np.int64), room.rows)
        able = np.array([np.bincount(self._type, row, len(types)) > 0 for row in can]).reshape(len(classes), len(types))
        rates = np.array([[self._throughput.get(cls.kind, {}).get(name, 1.0) for name in types] for cls in classes])
        rates = rates.reshape(able.shape) * able * (workers > 0)
        asks = np.array([cls.demand[device] / MICRO if device >= 0 else 0.0 for cls in classes])
        rows = np.flatnonzero(rates.any(axis=1) & ((asks > 0) | (device < 0)))
        some = workers > 0
        lacks = {cls: np.zeros(len(types)) for cls in classes}
        if len(rows):
            count = np.array([classes[i].tasks for i in rows], np.float64)
            scale = np.where(asks[rows] > 0, asks[rows], 1.0)
            found = max_min_throughput(rates[rows][:, some], workers[some], jobs=count, scale=scale)
            for i, row in enumerate(rows):
                lacks[classes[row]][some] = found[i] * count[i]
        running = Counter(
            (task.group.cls, self._type[column])
            for column, row in enumerate(room.rows.tolist())
            for task in self.cluster.by_row[row].tasks
        )
        for (cls, kind), tasks in running.items():
            lacks[cls][kind] -= tasks
        return lacks

    def _lack(self, group: Group, shares: Shares) -> tuple[float, ...]:
        """Order by the largest part of the allocation that a class lacks, then by arrival of the job."""
        return -float(self._lacks[group.cls].max()) / group.cls.tasks, group.job.serial

    def _prefer(self, room: Room, cls: TaskClass, columns: Ints) -> Floats:
        """Prefer the type of which the class lacks most, then the emptiest machine."""
        lacks = self._lacks[cls][self._type[columns]]
        scores: Floats = np.where(lacks >= lacks.max(), room.load[columns], np.inf)
        return scores

    def _start_one(self, task: TaskRecord, columns: Ints, plan: Plan, room: Room) -> int | None:
        column = super()._start_one(task, columns, plan, room)
        if column is not None:
            self._lacks[task.group.cls][self._type[column]] -= 1
        return column
