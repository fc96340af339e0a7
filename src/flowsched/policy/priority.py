"""Worth of a better priority.  Lower numbers are better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from flowsched.policy.placement import check_weight

__all__ = ["PriorityCost", "StrictPriority", "WeightedPriority"]

Ints = NDArray[np.int64]


class PriorityCost(Protocol):
    """Cost of waiting that a task of better priority adds.

    `strict` promises that a better priority outweighs everything else, however many worse tasks must make room.
    """

    strict: ClassVar[bool]

    def __call__(self, levels: Ints, outweigh: int, omega: int) -> Ints:
        """Cost of waiting by priority.

        Parameters
        ----------
        levels : ndarray of int64, shape (n,)
            The priorities in use, ascending (best first).
        outweigh : int
            A difference that outweighs all that age, load and preemption can add up to.
        omega : int
            What a whole dimension (load from 0 to 1) costs.

        Returns
        -------
        ndarray of int64, shape (n,)
            Descending, 0 for the last.
        """
        ...


@dataclass(frozen=True)
class StrictPriority:
    """One step of priority outweighs everything else, whatever its size."""

    strict: ClassVar[bool] = True

    def __call__(self, levels: Ints, outweigh: int, omega: int) -> Ints:
        """See `PriorityCost`."""
        return outweigh * np.arange(len(levels) - 1, -1, -1, dtype=np.int64)


@dataclass(frozen=True)
class WeightedPriority:
    """One unit of priority is worth so many times the whole range of a placement cost.

    A task displaces another only where the difference outweighs the price of preemption and what age can weigh.

    Parameters
    ----------
    step : float
    """

    strict: ClassVar[bool] = False
    step: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "step", check_weight("WeightedPriority: step", self.step))

    def __call__(self, levels: Ints, outweigh: int, omega: int) -> Ints:
        """See `PriorityCost`."""
        # Beyond the limit two tasks are as far apart as costs can tell.
        costs: Ints = np.rint(np.minimum((levels[-1:] - levels) * float(self.step * omega), 2.0**40)).astype(np.int64)
        return costs
