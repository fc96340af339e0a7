"""Scale of a policy's costs: whole numbers, each large enough to outweigh the lower goals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.exceptions import InputError

Ints = NDArray[np.int64]

LATER: Mapping[str, bool] = {"later": True}
"""Mark of settings that came with a later version: descriptions leave them out if they have their defaults."""


class BeyondScale(InputError):
    """Error of a policy whose scale is too small for a cost; its `policy` has the same goals with a large enough scale.

    It does not reach users: the scheduler takes the other policy.
    """

    policy: Any


def beyond_scale(message: str, policy: Any) -> InputError:
    """Return the error of a cost that the scale does not hold; a plain one if no policy with these goals would."""
    if policy is None:
        return InputError(message)
    error = BeyondScale(message)
    error.policy = policy
    return error


def is_coarse(part: NDArray[Any], resolution: int, tolerance: float) -> bool:
    """Return True if two different costs of a class have the same level; parts of its range, (classes, rows)."""
    ascending = np.sort(part, axis=1)
    steps = np.diff(ascending, axis=1) > tolerance
    return bool((steps & (np.diff(np.rint(ascending * resolution), axis=1) == 0)).any())


@dataclass(frozen=True, slots=True)
class CostScale:
    """Costs of an optimal flow's arcs, from the lowest goal to the highest.

    With R = `resolution`, m = `moves`, B = `buckets`, and P = `price`, the price of one preemption:

    ================================================  ===================================================
    a placement                                       0 to R
    unit U                                            m R + 1
    waiting in age bucket b                           U (1 + b), and less in the first one with `patience`
    ending a run that has come to age bucket b        m (B + 2) U + (1 + b) P
    missing a share by one task, a step of a ladder   m (B + 2) U
    one step of strict priority                       the two rows above together, with b = B - 1
    ================================================  ===================================================

    Each row outweighs all rows above it, for up to m tasks that are moved.  With `Fairness` a step of strict priority also
    outweighs the price of all shares that m tasks can miss.

    Parameters
    ----------
    resolution, moves : int
        See `Policy`.
    buckets : int
        Age buckets, see `WaitCost`.
    price : int
        Price of one preemption, in the resolution's units; 0 without preemption.
    patience : float
        See `WaitCost`.

    Attributes
    ----------
    unit : int
        Upper bound of the placement costs of `moves` tasks.
    fair_step : int
        Price of one task that waits below its share, and of a step of a ladder.
    """

    resolution: int
    moves: int
    buckets: int
    price: int
    patience: float
    unit: int = field(init=False)
    fair_step: int = field(init=False)
    waits: list[int] = field(init=False, repr=False, compare=False)
    """`wait` of each age bucket, and of the one beyond the last."""
    discounts: list[int] = field(init=False, repr=False, compare=False)
    """`stay` of each age bucket."""

    def __post_init__(self) -> None:
        unit = self.resolution * self.moves + 1
        object.__setattr__(self, "unit", unit)
        object.__setattr__(self, "fair_step", self.moves * unit * (self.buckets + 2))
        object.__setattr__(self, "waits", [self.wait(bucket) for bucket in range(self.buckets + 1)])
        object.__setattr__(self, "discounts", [self.stay(bucket) for bucket in range(self.buckets)])

    def wait(self, bucket: int) -> int:
        """Return the cost of waiting in an age bucket, without priority."""
        if bucket or self.patience == 1:
            return self.unit * (1 + bucket)
        return round(self.patience * self.resolution) + 1

    def stay(self, bucket: int) -> int:
        """Return the discount of a run in an age bucket: the cost of ending it minus that of the task's waiting."""
        return self.fair_step + (1 + bucket) * self.price

    def stays(self, buckets: Ints) -> Ints:
        """Return `stay` for many runs."""
        discounts: Ints = self.fair_step + self.price + buckets * self.price
        return discounts

    def level(self, rungs: int | None) -> int:
        """Return one step of strict priority, given `Fairness.rungs`, or None without fairness."""
        step = self.stay(self.buckets - 1) + self.fair_step
        return step if rungs is None else step + self.moves * self.fair_step * rungs
