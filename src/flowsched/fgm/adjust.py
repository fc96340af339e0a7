"""How far a machine's estimates can be trusted, and how finely it is matched therefore.

Source: FGM, Definition 4, equation (16) and Algorithm 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flowsched.exceptions import InputError

__all__ = ["Adjustment", "Level", "conformity", "time_weighted_mean"]


class Level(IntEnum):
    """How finely tasks are matched with a machine, in ascending order."""

    STOP = 0
    """Nothing new; if tasks have degraded, some stop."""
    REQUEST = 1
    """What the tasks ask for, as long as they run."""
    COARSE = 2
    """The largest estimated need, for the estimated duration."""
    FINE = 3
    """Stage by stage."""
    COMPRESSED = 4
    """Stage by stage, compressible resources compressed."""


def time_weighted_mean(values: ArrayLike, seconds: ArrayLike) -> NDArray[np.float64]:
    """Mean (14) of samples that hold for so long: sum of r_i t_i / T.

    Parameters
    ----------
    values : array_like, shape (samples, ...)
    seconds : array_like, shape (samples,)
        Not all 0.
    """
    length = np.asarray(seconds, np.float64)
    if length.ndim != 1 or not (length >= 0).all() or not length.sum() > 0:
        raise InputError("time_weighted_mean: lengths >= 0, not all 0, expected")
    mean: NDArray[np.float64] = np.tensordot(length, np.asarray(values, np.float64), axes=1) / length.sum()
    return mean


def conformity(
    used: ArrayLike,
    estimated: ArrayLike,
    seconds: ArrayLike,
    *,
    idle: float,
    total: float,
    threshold: float = 0.1,
) -> float:
    """Conformity (16) of one resource of one machine: how much more is used than was estimated.

    Parameters
    ----------
    used, estimated, seconds : array_like, shape (samples,)
        Amounts, and how long each held.
    idle : float
        Amount that nobody uses.
    total : float
        What the machine has.
    threshold : float
        Th: while more than this part of the total is idle, nothing is wrong.

    Returns
    -------
    float
        0 where the mean use does not exceed the mean estimate or enough is idle, else mean use - mean estimate.

    Examples
    --------
    >>> conformity([3, 4], [3, 3], [10, 10], idle=0, total=4), conformity([3, 4], [4, 4], [10, 10], idle=0, total=4)
    (0.5, 0.0)
    """
    over = float(time_weighted_mean(np.subtract(used, estimated), seconds))
    return over if over > 0 and idle < threshold * total else 0.0


@dataclass(frozen=True, slots=True)
class Adjustment:
    """When a machine is matched how finely (Algorithm 3).

    Parameters
    ----------
    stop, coarse, fine : float
        Thresholds Th_sa > Th_cg > Th_fg on the mean of the last conformities, as parts of the machine's total.
    keep : int
        Conformities that are kept by machine and resource.
    idle : float
        Th of (16).
    degraded : float
        A task has degraded when it runs so many times as long as it was predicted to.
    """

    stop: float = 0.15
    coarse: float = 0.10
    fine: float = 0.05
    keep: int = 5
    idle: float = 0.1
    degraded: float = 1.5

    def __post_init__(self) -> None:
        if not math.inf > self.stop > self.coarse > self.fine >= 0:
            raise InputError("Adjustment: stop > coarse > fine >= 0 expected")
        if isinstance(self.keep, bool) or not isinstance(self.keep, int) or self.keep < 1:
            raise InputError(f"Adjustment: keep: a whole number >= 1 expected, got {self.keep!r}")
        if not 0 <= self.idle <= 1 or not self.degraded >= 1:
            raise InputError("Adjustment: idle from 0 to 1 and degraded >= 1 expected")

    def level(self, conformities: Sequence[ArrayLike]) -> Level:
        """The level of a machine.

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
