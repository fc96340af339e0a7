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
        # Beyond this limit the difference of two tasks has reached the range of costs.
        costs: Ints = np.rint(np.minimum((levels[-1:] - levels) * float(self.step * omega), 2.0**40)).astype(np.int64)
        return costs
