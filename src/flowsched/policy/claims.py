"""Claims on the cluster, from which share providers work out the number of tasks that each claimant may run."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.model import UNLIMITED
from flowsched.policy import _claims

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Claims:
    """Claims on the cluster at the beginning of a round.

    Parameters
    ----------
    ids : tuple of hashable
        Claimants in order of arrival.
    tasks, running : ndarray of int64, shape (n,)
        Tasks of each claimant, and its running tasks; waiting tasks that no machine can run even when empty do not count.
    units : int
        Tasks of mean size that the cluster can run at once, see `together`.
    weight : ndarray of float, shape (n,)
        Proportions of the entitlements; 1 for each by default.
    demand : ndarray of float, shape (n, D)
        Mean demand of a task of each claimant; 0 by default.
    capacity : ndarray of float, shape (D,)
        Capacity of all usable machines; limited slots are one more resource.
    held, further : ndarray of float, shape (n, D), optional
        Amounts of the running tasks together, and the mean demand of a task that may start next; by default from `demand`.
    floor : ndarray of int64, shape (n,), optional
        Number of running tasks that each keeps in any case (see `Remaining`); 0 by default.
    most : ndarray of float, shape (D,), optional
        Part of the capacity that may be in use now: the first claimant that does not fit into it ends the distribution.  By
        default the whole capacity may be in use, and a claimant that does not fit is skipped.
    now : float
        Time of the round.
    reclaim : bool
        True if running tasks may stop for those of claimants below their share, see `Fairness`.
    aside : ndarray of bool, shape (n,), optional
        Claimants with waiting tasks that claim none in the rest of this round, since no machine has taken any.
    moved : ndarray of float, shape (n,), optional
        Amounts of tasks started in this round before shares are worked out again, minus those stopped, as parts of the
        cluster.
    booked : ndarray of float, shape (n,), optional
        At a commit: the largest part of any resource that each task takes, summed over the started tasks minus the stopped
        ones.
    """

    ids: tuple[Hashable, ...]
    tasks: Ints
    running: Ints
    units: int
    weight: Floats = field(default_factory=lambda: np.ones(0))
    demand: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    capacity: Floats = field(default_factory=lambda: np.zeros(0))
    held: Floats | None = None
    further: Floats | None = None
    floor: Ints | None = None
    most: Floats | None = None
    now: float = 0.0
    reclaim: bool = False
    aside: NDArray[np.bool_] | None = None
    moved: Floats | None = None
    booked: Floats | None = None

    def __post_init__(self) -> None:
        if len(self.weight) != len(self.tasks):
            object.__setattr__(self, "weight", np.ones(len(self.tasks)))
        if len(self.demand) != len(self.tasks):
            object.__setattr__(self, "demand", np.zeros((len(self.tasks), len(self.capacity))))

    def parts(self) -> Floats:
        """Return the part of every resource that one task takes; infinite for a resource without capacity, shape (n, D)."""
        return self._parts(self.demand)

    def course(self) -> tuple[Floats, Floats, Floats]:
        """Return the parts of the resources that each has beyond its floor with k more tasks: ``parts + k * further``.

        Returns
        -------
        parts, further : ndarray of float, shape (n, D)
        bound : ndarray of float, shape (D,)
            Largest amount of all together.
        """
        bound = np.ones(len(self.capacity)) if self.most is None else self.most
        if self.floor is None:
            each = self.parts()
            return np.zeros_like(each), each, bound
        held = self.running[:, None] * self.demand if self.held is None else self.held
        kept = np.divide(self.floor, self.running, out=np.zeros(len(self.tasks)), where=self.running > 0)
        further = self.demand if self.further is None else self.further
        # A resource without usable capacity is not distributed, even if a claimant still holds some.
        return np.where(self.capacity > 0, self._parts(kept[:, None] * held), 0.0), self._parts(further), bound

    def without(self, tasks: Ints) -> Claims:
        """Return the claims after the amounts of these tasks of each claimant, shape (n,), were withheld from all."""
        if not self.capacity.size or not tasks.any():
            return self
        bound = np.ones(len(self.capacity)) if self.most is None else self.most
        withheld = tasks @ np.where(tasks[:, None] > 0, self.parts(), 0.0)
        return replace(self, most=np.maximum(bound - withheld, 0.0))

    def _parts(self, amounts: Floats) -> Floats:
        return _claims.parts(np.asarray(amounts, np.float64), np.asarray(self.capacity, np.float64))

    def since(self, first: Claims) -> Floats | None:
        """Return the increase of amounts since earlier claims, by the largest part of any resource; None without any."""
        if self is first or self.held is None or first.held is None:
            return None
        more = np.where(self.capacity > 0, self.held - first.held, 0.0) / np.maximum(self.capacity, 1e-300)
        at = np.abs(more).argmax(axis=1) if more.shape[1] else np.zeros(len(more), np.int64)
        largest: Floats = more[np.arange(len(more)), at] if more.shape[1] else np.zeros(len(more))
        return largest if largest.any() else None

    def part_of(self, demand: Ints) -> float:
        """Return the largest part of any resource that a task of this demand takes, shape (resources,); slots do not count."""
        asked = np.append(demand, np.ones(len(self.capacity) - len(demand)))
        return float(
            np.divide(asked, self.capacity, out=np.zeros(len(asked)), where=self.capacity > 0).max(initial=0.0)
        )

    def alone(self) -> Ints:
        """Return the number of tasks that each could run at once alone; `UNLIMITED` without a limit."""
        most = self.parts().max(axis=1, initial=0.0)
        counts: Ints = np.floor(np.minimum(1.0 / np.maximum(most, 1.0 / UNLIMITED) + 1e-6, UNLIMITED)).astype(np.int64)
        return counts

    def together(self) -> int:
        """Return the number of tasks of mean size that run at once, without tasks beyond `alone`; `UNLIMITED` without a limit."""
        return _claims.together(self.tasks, self.running, self.parts())
