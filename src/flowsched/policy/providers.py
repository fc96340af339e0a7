"""Who is entitled to run how many tasks: functions of the claims on the cluster, vectorised over claimants (jobs, or users).

>>> claims = Claims(("a", "b"), tasks=np.array([3, 4]), running=np.zeros(2, np.int64), units=4)
>>> MaxMin()(claims)
array([2, 2])
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.checks import mapping, number
from flowsched.exceptions import InputError
from flowsched.policy.deployment import Deployment
from flowsched.policy.waterfill import water_fill

__all__ = [
    "DRF",
    "BatchShare",
    "Claims",
    "MaxMin",
    "SequenceShare",
    "ShareProvider",
    "StaticQuotas",
    "WeightedMaxMin",
]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_GRAIN = 1e-12


@dataclass(frozen=True, eq=False)
class Claims:
    """Who wants what, at the beginning of a round.

    Parameters
    ----------
    ids : tuple of hashable
        The claimants, in the order in which they came.
    tasks, running : ndarray of int64, shape (n,)
        Tasks that each has (but for waiting ones that no machine could run even if it were empty), and those that run.
    units : int
        Tasks of mean size that the cluster can run at once.
    weight : ndarray of float, shape (n,)
        What each is entitled to, in proportion; 1 for each by default.
    demand : ndarray of float, shape (n, D)
        Mean demand of one of its tasks; nothing by default.
    capacity : ndarray of float, shape (D,)
        Of all usable machines; where they have limited slots, these are one more resource.
    """

    ids: tuple[Hashable, ...]
    tasks: Ints
    running: Ints
    units: int
    weight: Floats = field(default_factory=lambda: np.ones(0))
    demand: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    capacity: Floats = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        if len(self.weight) != len(self.tasks):
            object.__setattr__(self, "weight", np.ones(len(self.tasks)))
        if len(self.demand) != len(self.tasks):
            object.__setattr__(self, "demand", np.zeros((len(self.tasks), len(self.capacity))))


class ShareProvider(Protocol):
    """Says how many tasks each claimant is entitled to run.

    Called at the beginning of a round if anything has changed.  It returns whole numbers from 0 to ``claims.tasks``,
    shape (n,), and changes nothing that a second call would notice: rounds may be thrown away.  A provider that keeps
    accounts has a method ``committed(claims, started)``, called with the claims of a round of which some tasks really
    started (ndarray of int64, shape (n,)), and may have ``balance(claims)``: what each has lent (> 0) or borrowed (< 0).
    """

    def __call__(self, claims: Claims) -> Ints:
        """Entitlements."""
        ...


@dataclass(frozen=True)
class MaxMin:
    """Equal shares; what one does not need goes to the others, equally again."""

    def __call__(self, claims: Claims) -> Ints:
        """See `ShareProvider`."""
        return water_fill(claims.units, claims.tasks)


@dataclass(frozen=True)
class WeightedMaxMin:
    """Shares in proportion to weights (users: their quotas); what one does not need goes to the others likewise."""

    def __call__(self, claims: Claims) -> Ints:
        """See `ShareProvider`."""
        return water_fill(claims.units, claims.tasks, claims.weight)


@dataclass(frozen=True)
class BatchShare:
    """HRM's share of batch jobs: of Q units for K jobs, floor(min(Q / K, N_j)); then the spare ones evenly, until min(Q, sum N)."""

    def __call__(self, claims: Claims) -> Ints:
        """See `ShareProvider`."""
        share = np.minimum(claims.units // max(1, len(claims.tasks)), claims.tasks)
        while (spare := claims.units - int(share.sum())) > 0:
            hungry = np.flatnonzero(share < claims.tasks)
            if not len(hungry):
                break
            even = np.full(len(hungry), spare // len(hungry), np.int64)
            if not even[0]:
                even[:spare] = 1
            share[hungry] = np.minimum(share[hungry] + even, claims.tasks[hungry])
        return share


@dataclass(frozen=True)
class StaticQuotas:
    """Fixed numbers of tasks, whatever others do.

    Parameters
    ----------
    tasks : mapping of job or user to int
    default : int
        For those not named.
    """

    tasks: Mapping[Hashable, int]
    default: int = 0

    def __post_init__(self) -> None:
        for who, count in [*mapping("StaticQuotas: tasks", self.tasks).items(), ("default", self.default)]:
            if isinstance(count, bool) or not isinstance(count, int) or count < 0:
                raise InputError(f"StaticQuotas: {who!r} must have a whole number >= 0, got {count!r}")

    def __call__(self, claims: Claims) -> Ints:
        """See `ShareProvider`."""
        quota = np.array([self.tasks.get(who, self.default) for who in claims.ids], np.int64)
        return np.minimum(quota, claims.tasks)


@dataclass(frozen=True)
class DRF:
    """Dominant resource fairness: equal dominant shares (the largest part of any resource), in proportion to weights.

    Task by task to whoever has the smallest dominant share for its weight (of equals, the first), as long as its task
    fits into what is left of every resource.  Source: Ghodsi et al., "Dominant resource fairness", NSDI 2011, algorithm 1.
    """

    def __call__(self, claims: Claims) -> Ints:
        """See `ShareProvider`."""
        if not claims.capacity.any():
            return water_fill(claims.units, claims.tasks, claims.weight)
        demand, capacity = claims.demand, np.broadcast_to(claims.capacity, claims.demand.shape)
        part = np.divide(demand, capacity, out=np.where(demand > 0, np.inf, 0.0), where=capacity > 0)
        dominant = part.max(axis=1, initial=0.0) / np.where(claims.weight > 0, claims.weight, 1e-9)
        share = np.where(dominant > 0, 0, claims.tasks)
        open_ = (dominant > 0) & np.isfinite(dominant)
        nowhere = np.isinf(dominant)  # no machine has what these ask for: none of theirs runs
        part[nowhere] = dominant[nowhere] = 0.0
        while (open_ & (share < claims.tasks)).any():
            share = _level(share, open_, claims.tasks, dominant, part)
            left = 1.0 + 1e-9 - share @ part
            for i in sorted(
                np.flatnonzero(open_ & (share < claims.tasks)).tolist(),
                key=lambda i: (round(share[i] * dominant[i] / _GRAIN), i),
            ):
                if (part[i] > left).any():
                    break
                share[i] += 1
                left -= part[i]
            open_ &= (part <= left).all(axis=1)
        return share


def _level(share: Ints, open_: NDArray[np.bool_], tasks: Ints, dominant: Floats, part: Floats) -> Ints:
    """All tasks of a dominant share below a level, the highest one at which they fit (the k-th begins at (k - 1) * dominant).

    Levels are whole numbers of `_GRAIN`, so that shares that are equal but for rounding come at the same level.
    """
    rate = np.divide(_GRAIN, dominant, out=np.zeros_like(dominant), where=open_)

    def at(level: int) -> Ints:
        more = np.minimum(np.ceil(np.minimum((level - 0.5) * rate, tasks)).astype(np.int64), tasks)
        return np.where(open_, np.maximum(share, more), share)

    low, high = 0, int((tasks * dominant)[open_].max() / _GRAIN) + 2
    found = at(high)
    if (found @ part <= 1.0 + 1e-9).all():
        return found
    while high - low > 1:
        middle = (low + high) // 2
        if (at(middle) @ part <= 1.0 + 1e-9).all():
            low = middle
        else:
            high = middle
    return at(low)


class SequenceShare:
    """The deployment sequence: who runs goes on, and what is free is dealt by the sequence and the ledger.

    Accounts are kept of what really started, so what one user could not use and others did is paid back in later rounds.

    Parameters
    ----------
    mu : float
        Part of what it could pay back that a borrower with tasks pays per round, see `Deployment`.
    resolution : int
        Quotas count in whole multiples of 1 / resolution.

    Attributes
    ----------
    deployment : Deployment or None
        The accounts, None before the first round.
    """

    def __init__(self, mu: float = 1.0, resolution: int = 1) -> None:
        if not 0 < number("SequenceShare: mu", mu) <= 1:
            raise InputError(f"SequenceShare: mu must be above 0 and at most 1, got {mu!r}")
        if isinstance(resolution, bool) or not isinstance(resolution, int) or not 1 <= resolution <= 1_000_000:
            raise InputError(
                f"SequenceShare: resolution must be a whole number from 1 to a million, got {resolution!r}"
            )
        self.mu = mu
        self.resolution = resolution
        self.deployment: Deployment | None = None

    def __repr__(self) -> str:
        return f"SequenceShare(mu={self.mu}, resolution={self.resolution})"

    def __call__(self, claims: Claims) -> Ints:
        """See `ShareProvider`."""
        deployment = self._joined(claims)
        if deployment is None:
            return claims.running.copy()
        free = max(0, claims.units - int(claims.running.sum()))
        wanted = np.zeros(len(deployment.users), np.int64)
        at = deployment.sequence.index(claims.ids)
        wanted[at] = np.maximum(claims.tasks - claims.running, 0)  # more may run than a limit lets it claim
        share: Ints = claims.running + deployment.copy().deal(free, wanted).units[at]
        return share

    def balance(self, claims: Claims) -> Ints:
        """What each is owed (> 0) or owes (< 0)."""
        deployment = self._joined(claims)
        if deployment is None:
            return np.zeros(len(claims.ids), np.int64)
        return deployment.ledger.net()[deployment.sequence.index(claims.ids)]

    def committed(self, claims: Claims, started: Ints) -> None:
        """Book what started."""
        deployment = self._joined(claims)
        if deployment is not None and started.any():
            units = np.zeros(len(deployment.users), np.int64)
            units[deployment.sequence.index(claims.ids)] = started
            deployment.book(units)

    def _joined(self, claims: Claims) -> Deployment | None:
        """The accounts with all who claim now; those who do not have nothing to run, and stay."""
        quotas = dict(zip(claims.ids, np.rint(claims.weight * self.resolution).astype(np.int64).tolist(), strict=True))
        if self.deployment is None:
            if not any(quotas.values()):
                return None
            self.deployment = Deployment(quotas, mu=self.mu)
        known = self.deployment.sequence.quotas
        for who, quota in quotas.items():
            if who not in known:
                self.deployment.join(who, quota)
            elif known[who] != quota:
                self.deployment.update(who, quota)
        return self.deployment
