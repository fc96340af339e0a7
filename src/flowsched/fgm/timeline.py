"""Timelines of machines: free amounts from now on, stage by stage; and tasks whose stages fit into them.

Source: M.-S. Zhou, X.-S. Dong, H. Chen and X.-J. Zhang, "Dynamically Fine-grained Scheduling
Method in Cloud Environment", Journal of Software 31(12), 2020 (FGM),
equations (1)-(7) and Algorithm 2.  The mathematics is at the top of the kernels, ``_course.pyx`` and ``_match.pyx``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flowsched.boundary.validate import amounts, number, numbers
from flowsched.cluster.columns import grown
from flowsched.cluster.model import LARGEST, MICRO
from flowsched.exceptions import InputError
from flowsched.fgm import _match
from flowsched.fgm.stages import Stages

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

UNLIMITED = _match.UNLIMITED

SLOTS = 16
"""Largest number of stages kept of a machine: the nearest ones; later ones are merged."""


def compression(wanted: ArrayLike, given: ArrayLike) -> Floats:
    """Compression rate (1) of a compressible resource: the fraction of the demand that is not met.

    Examples
    --------
    >>> round(float(compression(4.2, 4.0)), 4)
    0.0476
    """
    want, have = amounts("compression: wanted", wanted), amounts("compression: given", given)
    rate: Floats = np.divide(want - have, want, out=np.zeros(np.broadcast(want, have).shape), where=want > have)
    return rate


def max_compression(
    before: ArrayLike, newcomer: ArrayLike, *, contention: ArrayLike = 0.0, limit: ArrayLike = 0.1
) -> Floats:
    """Largest compression (7) under which a newcomer does not lower the throughput of all.

    Parameters
    ----------
    before : array_like
        Work done without the newcomer (sum of w_i, i < m), or the amount in use, for work in proportion to it.
    newcomer : array_like
        The newcomer's work w_m.
    contention : array_like
        p: cost of competing beyond sharing, 0 to 1.
    limit : array_like
        Upper bound of the result; from 0 to below 1.

    Returns
    -------
    ndarray of float64
        Between 0 and `limit`; 0 where the newcomer brings no work.

    Examples
    --------
    >>> max_compression([3.9, 2.0, 2.0], [0.1, 2.2, 0.0]).round(3)
    array([0.025, 0.1  , 0.   ])
    """
    done, more = (
        amounts(f"max_compression: {name}", work, np.inf) for name, work in (("before", before), ("newcomer", newcomer))
    )
    loss, most = amounts("max_compression: contention", contention, 1), amounts("max_compression: limit", limit, 1)
    if (most == 1).any():
        raise InputError("max_compression: limit: numbers from 0 to below 1 expected")
    total = (1.0 - loss) * (done + more)
    part = np.divide(done, total, out=np.ones(np.broadcast(done, total).shape), where=total > 0)
    bound: Floats = np.where(more > 0, np.clip(1.0 - part, 0.0, most), 0.0)
    return bound


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """Resources left on one machine from now on.

    Parameters
    ----------
    ends : array_like, shape (stages,)
        End of each stage from now, ascending; the last is infinite.
    available : array_like, shape (stages, resources)
        In the caller's units; negative where demand exceeds the capacity.  At most 127 stages.
    total : array_like, shape (resources,)
        Capacity of the machine.
    """

    ends: Floats
    available: Floats
    total: Floats

    def __init__(self, ends: ArrayLike, available: ArrayLike, total: ArrayLike) -> None:
        times = numbers("timeline: ends", ends).reshape(-1)
        left, whole = numbers("timeline: available", available), amounts("timeline: total", total)
        if not 0 < len(times) <= 127 or np.isnan(times).any() or (np.diff(times) <= 0).any() or times[-1] != np.inf:
            raise InputError("timeline: ends: 1 to 127 numbers that ascend to infinity expected")
        if left.shape != (len(times), *whole.shape) or whole.ndim != 1:
            raise InputError(f"timeline: available of shape {(len(times), *whole.shape)} expected, got {left.shape}")
        if not (np.abs(left) <= LARGEST).all():
            raise InputError("timeline: available: finite numbers expected")
        object.__setattr__(self, "ends", times)
        object.__setattr__(self, "available", left)
        object.__setattr__(self, "total", whole)


def match(task: Stages, machine: Timeline, *, limit: ArrayLike = 0.0, contention: float = 0.0) -> bool:
    """Match a task with a machine (Algorithm 2): True if each of its stages, starting now, finds the amounts it needs.

    Parameters
    ----------
    limit : array_like, shape (resources,) or scalar
        Compression allowed of each resource; 0 for incompressible ones.
    contention : float
        Cost of competing, per unit of compression.

    Examples
    --------
    >>> machine = Timeline([1, 3, np.inf], [[2.0, 4], [2.4, 4], [4, 8]], [4, 8])  # two tasks of 1 then 0.8 cores
    >>> task = Stages([1, 3], [[2.2, 2], [1.5, 2]])
    >>> match(task, machine), match(task, machine, limit=[0.1, 0])
    (False, True)
    """
    resources = len(machine.total)
    if task.demand.shape[1] != resources:
        raise InputError(f"match: the task has {task.demand.shape[1]} resources, the machine {resources}")
    number("match: contention", contention, 0)
    classes = Classes([task], resources)
    lines = Timelines(resources, slots=max(2, len(machine.ends)))
    lines.grow(1)
    used = len(machine.ends)
    lines.ends[0, :used] = machine.ends
    available = np.floor(machine.available * MICRO + 1e-3)
    total = np.floor(machine.total * MICRO + 1e-3)
    lines.reach[0, :used] = np.floor(_reach(available, total, _limits(limit, resources), contention))
    return bool(lines.fits(classes, np.zeros(1, np.int64), 0.0)[0][0, 0])


def _reach(available: Floats, total: Floats, limit: Floats, contention: float) -> Floats:
    """Return the reach X, see the mathematics of the kernel ``_course.pyx``."""
    dear = contention * total - available
    most = np.divide(available * total, dear, out=np.full(available.shape, np.inf), where=dear > 0)
    return available + np.where(available > 0, np.minimum(limit * total, most), 0.0)


def _limits(limit: ArrayLike, resources: int) -> Floats:
    limits = numbers("limit", limit)
    if limits.shape not in ((), (resources,)) or not ((limits >= 0) & (limits < 1)).all():
        raise InputError(f"limit: {resources} numbers from 0 to below 1 or one expected, got {limit!r}")
    return np.broadcast_to(limits, (resources,))


class Classes:
    """Stages of many classes as arrays of the kernel.

    `at`, `until`, `order` and `want` are as in the kernel's ``fits``; `want` in micro-units, rounded up, nothing in a
    stage of no length.  `seconds` and `progress` are the lengths of the stages, and the progress at their ends;
    `duration` is by class.
    """

    def __init__(self, stages: Sequence[Stages], resources: int) -> None:
        self.at: Ints = np.cumsum([0, *(len(s) for s in stages)])
        self.seconds: Floats = np.concatenate([np.zeros(0), *(s.seconds for s in stages)])
        self.until: Floats = np.concatenate([np.zeros(0), *(np.cumsum(s.seconds) for s in stages)])
        self.progress: Floats = np.concatenate([np.zeros(0), *(s.progress for s in stages)])
        self.duration: Floats = np.array([s.duration for s in stages])
        self.want: Ints = np.concatenate([np.zeros((0, resources), np.int64), *(micro(s.demand) for s in stages)])
        self.want[self.seconds == 0] = 0
        self.order: Ints = np.argsort(self.until, kind="stable")


def micro(amounts: Floats) -> Ints:
    """Return demands in micro-units, rounded up, but not for an error of the last digit."""
    return np.ceil(amounts * MICRO - 1e-3).astype(np.int64)


class Timelines:
    """Timelines of many machines.

    Parameters
    ----------
    resources : int
    slots : int
        Largest number of stages kept of each machine.

    Attributes
    ----------
    ends : ndarray of float64, shape (rows, slots)
        Absolute times, which ascend to infinity in each row; entries after the first infinite one are not read.
    available, reach : ndarray of int64, shape (rows, slots, resources)
        Free amount, and the largest demand of newcomers with the compression allowed; in micro-units.
    soft : ndarray of uint8, shape (resources,)
        1 for compressible resources.
    limit : ndarray of float64, shape (resources,)
        Compression allowed of each.
    contention : float
    """

    def __init__(self, resources: int, slots: int = SLOTS) -> None:
        if not 2 <= slots <= 127:
            raise InputError(f"Timelines: slots: a whole number from 2 to 127 expected, got {slots!r}")
        self.ends: Floats = np.full((0, slots), np.inf)
        self.available: Ints = np.zeros((0, slots, resources), np.int64)
        self.reach: Ints = np.zeros((0, slots, resources), np.int64)
        self.soft: NDArray[np.uint8] = np.zeros(resources, np.uint8)
        self.limit: Floats = np.zeros(resources)
        self.contention = 0.0

    def grow(self, rows: int) -> None:
        """Make room for this many rows."""
        self.ends = grown(self.ends, rows, fill=np.inf)
        self.available, self.reach = grown(self.available, rows), grown(self.reach, rows)

    def present(self, rows: Ints, now: float) -> Ints:
        """Return the present stage of each machine: the first that has not ended; the last one used never ends."""
        stage: Ints = (self.ends[rows] > now).argmax(axis=1)
        return stage

    def fits(
        self, classes: Classes, rows: Ints, now: float, *, compressed: bool = True
    ) -> tuple[Ints, NDArray[np.int8]]:
        """Count the tasks of each class that fit on each machine from now on; where none does, find the short resource.

        Without `compressed` they fit only into the available amounts.

        Returns
        -------
        count : ndarray of int64, shape (classes, rows)
        short : ndarray of int8, shape (classes, rows)
            -1 where one fits.
        """
        rows = np.ascontiguousarray(rows)  # the kernel's view
        shape = (len(rows), len(classes.at) - 1)
        count, short = np.empty(shape, np.int64), np.empty(shape, np.int8)
        reach = self.reach if compressed else self.available
        _match.fits(classes.at, classes.until, classes.order, classes.want, self.ends, reach, rows, now, count, short)
        return count.T, short.T

    def openings(
        self,
        classes: Classes,
        rows: Ints,
        now: float,
        count: Ints,
        open: NDArray[np.bool_],
        due: Floats,
        compressed: bool = True,
    ) -> None:
        """Lower `due` of each machine to the earliest start at which more tasks of a class fit than now.

        Parameters
        ----------
        rows : ndarray of int64, shape (rows,)
        count : ndarray of int64, shape (classes, rows)
            As `fits` counted.
        open : ndarray of bool, shape (classes, rows)
            Pairs that count.
        due : ndarray of float64
            By row of all machines.
        compressed : bool
            As for `fits`.
        """
        reach = self.reach if compressed else self.available
        pairs = np.ascontiguousarray(count.T), np.ascontiguousarray(open.T).view(np.uint8)
        rows = np.ascontiguousarray(rows)
        _match.openings(classes.at, classes.until, classes.want, self.ends, reach, rows, now, *pairs, due)
