"""Cost of waiting by priority (lower numbers are better) and by age, and the price of stopping a run early."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from flowsched.boundary.validate import number, quoted, truth, whole
from flowsched.exceptions import InputError
from flowsched.policy.placement import check_weight

__all__ = ["PreemptionCost", "PriorityCost", "StrictPriority", "WaitCost", "WeightedPriority", "reached"]

Ints = NDArray[np.int64]


class PriorityCost(Protocol):
    """Cost of waiting that a task of better priority adds.

    `strict` promises that a better priority outweighs everything else, even if many worse tasks must make room.
    """

    strict: ClassVar[bool]

    def __call__(self, levels: Ints, outweigh: int, omega: int) -> Ints:
        """Return the cost of waiting by priority.

        Parameters
        ----------
        levels : ndarray of int64, shape (n,)
            Priorities in use, ascending (best first).
        outweigh : int
            Difference that outweighs the sum of all age, load and preemption.
        omega : int
            Cost of a whole dimension (load from 0 to 1).

        Returns
        -------
        ndarray of int64, shape (n,)
            Descending, 0 for the last.
        """
        ...


@dataclass(frozen=True)
class StrictPriority:
    """Priority of which one step, of any size, outweighs everything else."""

    strict: ClassVar[bool] = True

    def __call__(self, levels: Ints, outweigh: int, omega: int) -> Ints:
        """See `PriorityCost`."""
        return outweigh * np.arange(len(levels) - 1, -1, -1, dtype=np.int64)


@dataclass(frozen=True)
class WeightedPriority:
    """Value of one unit of priority as a multiple of the whole range of a placement cost.

    A task displaces another only if the difference outweighs the price of preemption and the weight of age.
    """

    strict: ClassVar[bool] = False
    step: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "step", check_weight("WeightedPriority: step", self.step))

    def __call__(self, levels: Ints, outweigh: int, omega: int) -> Ints:
        """See `PriorityCost`."""
        # Beyond this limit the difference of two tasks has reached the range of costs.
        costs: Ints = np.rint(np.minimum((levels[-1:] - levels) * float(self.step * omega), 2.0**40)).astype(np.int64)
        return costs


@dataclass(frozen=True)
class WaitCost:
    """Geometric age buckets: [0, first), [first, first * factor), [first * factor, first * factor^2), ...

    Within one priority, a task of an older bucket goes before one of a younger bucket at any load.

    Parameters
    ----------
    first : float
        End of the first bucket, in the time unit of the events.
    factor : float
        Ratio of the ends of two successive buckets.
    buckets : int
        Number of buckets; the last one never ends.
    reserve : int or None
        From this bucket on, a machine is kept free for a task that fits on no machine, or several for a gang (see
        `flowsched.builder.reservations`), so that smaller tasks cannot starve it; None for never.
    patience : float
        In the first bucket a task waits rather than takes a place that costs more than this part of the whole range of
        placement costs; 1, the default, accepts any place.
    """

    first: float = 60.0
    factor: float = 2.0
    buckets: int = 16
    patience: float = 1.0
    reserve: int | None = 6

    def __post_init__(self) -> None:
        for name in ("first", "factor"):
            object.__setattr__(self, name, check_weight(f"WaitCost: {name}", getattr(self, name)))
        if self.factor <= 1:
            raise InputError(f"WaitCost: factor must be above 1, got {quoted(self.factor)}")
        object.__setattr__(self, "buckets", whole("WaitCost: buckets", self.buckets, 1, 1000))
        object.__setattr__(self, "patience", number("WaitCost: patience", self.patience, 0, 1))
        if self.reserve is not None:
            object.__setattr__(self, "reserve", whole("WaitCost: reserve", self.reserve, 1))

    def end(self, bucket: int) -> float:
        """Return the age at which a task leaves the bucket; infinite for the last one."""
        return self.ends[bucket] if bucket < self.buckets - 1 else math.inf

    @cached_property
    def ends(self) -> list[float]:
        """Ends of all buckets but the last one, ascending."""
        return [_grown(self.first, self.factor, bucket) for bucket in range(self.buckets - 1)]

    def due(self, since: float, bucket: int) -> float:
        """Return the time at which a task that waits since then leaves the bucket: by then its age is at least the end."""
        return reached(since, self.end(bucket))

    def bucket(self, age: float) -> int:
        """Return the bucket of an age."""
        return bisect_right(self.ends, age)

    def buckets_of(self, ages: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the buckets of many ages."""
        return np.searchsorted(self.ends, ages, side="right").astype(np.int64)


def reached(start: float, span: float) -> float:
    """Return a time t from which on ``t - start >= span``: the sum, or the next number if the sum was rounded down."""
    time = start + span
    return time if time - start >= span else math.nextafter(time, math.inf)


def _grown(first: float, factor: float, times: int) -> float:
    try:
        return float(first * factor**times)
    except OverflowError:
        return math.inf


@dataclass(frozen=True)
class PreemptionCost:
    """Preemption of running tasks for waiting ones of strictly better priority.

    Parameters
    ----------
    price : float
        Price of each preemption, in units of a whole load (`OMEGA`): once for a task that has just begun to run, and once
        more for each age bucket (see `WaitCost`) that it has run through, since its work is lost.
    window : float
        Time after a preemption during which the task is not preempted again.  Preemption cannot loop by
        itself (each one improves the priorities of the running tasks), so 0, the default, is safe.  A window spares a task
        that better ones would interrupt again and again, at the expense of strict priority.
    graceful : bool
        A preempted task keeps its room until the caller reports its end (`TaskStopped`), and waits from then on.
        Tasks do not migrate then: they stop, and start elsewhere in a later round.
    """

    price: float = 1.0
    window: float = 0.0
    graceful: bool = field(default=False, metadata={"later": True})

    def __post_init__(self) -> None:
        for name in ("price", "window"):
            object.__setattr__(self, name, number(f"PreemptionCost: {name}", getattr(self, name), 0))
        object.__setattr__(self, "graceful", truth("PreemptionCost: graceful", self.graceful))
        if not 0 < self.price <= 1e4:
            raise InputError(f"PreemptionCost: price must be above 0 and at most 1e4, got {quoted(self.price)}")
