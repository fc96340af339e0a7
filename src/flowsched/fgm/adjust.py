"""Conformity of a machine's estimates with its use, and the level of matching that follows.

Source: M.-S. Zhou, X.-S. Dong, H. Chen and X.-J. Zhang, "Dynamically Fine-grained Scheduling
Method in Cloud Environment", Journal of Software 31(12), 2020 (FGM),
Definition 4, equation (16) and Algorithm 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flowsched.boundary.validate import amounts, number, numbers, part, whole
from flowsched.exceptions import InputError


class Level(IntEnum):
    """Levels at which tasks are matched with a machine, from the coarsest to the finest."""

    STOP = 0
    """No more tasks; if tasks have degraded, the youngest stops."""
    REQUEST = 1
    """By the requests of tasks, as long as they run."""
    COARSE = 2
    """By the largest estimated need, for the estimated duration."""
    FINE = 3
    """Stage by stage."""
    COMPRESSED = 4
    """Stage by stage, compressible resources compressed."""


def time_weighted_mean(values: ArrayLike, seconds: ArrayLike) -> NDArray[np.float64]:
    """Mean (14) of samples, each weighted by its duration: sum of r_i t_i / T.

    Parameters
    ----------
    values : array_like, shape (samples, ...)
    seconds : array_like, shape (samples,)
        Not all 0.
    """
    length, amount = (
        amounts("time_weighted_mean: seconds", seconds, math.inf),
        numbers("time_weighted_mean: values", values),
    )
    if length.ndim != 1 or not length.sum() > 0 or amount.shape[:1] != length.shape:
        raise InputError("time_weighted_mean: a length for each of the values, not all 0, expected")
    mean: NDArray[np.float64] = (length @ amount.reshape(len(length), -1)).reshape(amount.shape[1:]) / length.sum()
    return mean


def conformity(
    used: ArrayLike,
    estimated: ArrayLike,
    seconds: ArrayLike,
    *,
    idle: ArrayLike,
    total: ArrayLike,
    threshold: float = 0.1,
) -> NDArray[np.float64]:
    """Conformity (16) of a machine's resource, or of each of several: mean use beyond the mean estimate.

    Parameters
    ----------
    used, estimated : array_like, shape (samples,) or (samples, resources)
    seconds : array_like, shape (samples,)
        Duration of each sample.
    idle : array_like, scalar or shape (resources,)
        Amount that is not used.
    total : array_like, scalar or shape (resources,)
        Capacity of the machine.
    threshold : float
        Th: while more than this part of the total is idle, the conformity is 0.

    Returns
    -------
    ndarray of float64, scalar or shape (resources,)
        0 where the mean use does not exceed the mean estimate or enough is idle, else mean use - mean estimate.

    Examples
    --------
    >>> conformity([[3, 3], [4, 4]], [[3, 4], [3, 4]], [10, 10], idle=0, total=4)
    array([0.5, 0. ])
    """
    use, guess = amounts("conformity: used", used), amounts("conformity: estimated", estimated)
    if use.shape != guess.shape:
        raise InputError(f"conformity: estimated: shape {use.shape} expected, got {guess.shape}")
    over = np.asarray(time_weighted_mean(use - guess, seconds))
    free, has = numbers("conformity: idle", idle), amounts("conformity: total", total)
    if {free.shape, has.shape} - {(), over.shape}:
        raise InputError(f"conformity: idle and total: one number or shape {over.shape} expected")
    result: NDArray[np.float64] = np.where(free < part("conformity: threshold", threshold) * has, over.clip(0), 0.0)
    return result


@dataclass(frozen=True, slots=True)
class Adjustment:
    """Thresholds of the levels of a machine (Algorithm 3).

    Parameters
    ----------
    stop, coarse, fine : float
        Thresholds Th_sa > Th_cg > Th_fg on the mean of the last conformities, as parts of the machine's total.
    keep : int
        Number of conformities that are kept for each machine and resource.
    idle : float
        Th of (16).
    degraded : float
        A task has degraded when it runs this many times as long as it was predicted to; infinite for never.
    """

    stop: float = 0.15
    coarse: float = 0.10
    fine: float = 0.05
    keep: int = 5
    idle: float = 0.1
    degraded: float = 1.5

    def __post_init__(self) -> None:
        for name in ("stop", "coarse", "fine", "degraded"):
            number(f"Adjustment: {name}", getattr(self, name), 0, finite=name != "degraded")
        if not math.inf > self.stop > self.coarse > self.fine >= 0:
            raise InputError("Adjustment: stop > coarse > fine >= 0 expected")
        whole("Adjustment: keep", self.keep, 1)
        part("Adjustment: idle", self.idle)
        if self.degraded < 1:
            raise InputError(f"Adjustment: degraded: a number >= 1 expected, got {self.degraded!r}")

    def level(self, conformities: Sequence[ArrayLike]) -> Level:
        """Return the level of a machine.

        Parameters
        ----------
        conformities : sequence of array_like, shape (resources,)
            The last ones, as parts of the machine's total; the resource with the worst mean counts.
        """
        worst = float(np.asarray(conformities, np.float64).mean(axis=0).max()) if len(conformities) else 0.0
        if worst > self.stop:
            return Level.STOP
        if worst > self.coarse:
            return Level.COARSE
        return Level.FINE if worst > self.fine else Level.COMPRESSED
