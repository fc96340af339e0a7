"""Who is entitled to run how many tasks: fair-share providers, and what the scheduler makes of their answer.

A provider is a function of the claims on the cluster, vectorised over claimants (jobs, or users):

>>> claims = Claims(("a", "b"), tasks=np.array([3, 4]), running=np.zeros(2, np.int64), units=4)
>>> MaxMin()(claims)
array([2, 2])

`Fairness` puts one into a `Policy`.  In the network a claimant's share A of its N tasks becomes bounds on how many wait
(Sirius, equation 1): N - A at least, N - A at most; the latter gives way at a price, because placement may forbid it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from flowsched.exceptions import InputError
from flowsched.policy.deployment import Deployment
from flowsched.policy.waterfill import water_fill

__all__ = [
    "DRF",
    "RUNGS",
    "BatchShare",
    "Claims",
    "Fairness",
    "Limits",
    "MaxMin",
    "SequenceShare",
    "ShareProvider",
    "StaticQuotas",
    "WeightedMaxMin",
]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_NOTHING: Mapping[Hashable, Limits] = MappingProxyType({})
_GRAIN = 1e-12
_ENDLESS = 1 << 40

RUNGS = 64
"""Steps of a ladder; the k-th running task of a claimant of weight w is on step (k - 1) // w, in a suitable scale."""


@dataclass(frozen=True, eq=False)
class Claims:
    """Who wants what, at the beginning of a round.

    Parameters
    ----------
    ids : tuple of hashable
        The claimants, in the order in which they came.
    tasks, running : ndarray of int64, shape (n,)
        Tasks that each has, and those of them that run.
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
        for who, count in [*self.tasks.items(), ("default", self.default)]:
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
        if not 0 < mu <= 1:
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
        wanted[at] = claims.tasks - claims.running
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


@dataclass(frozen=True)
class Limits:
    """Bounds of one job or user, in tasks.

    Parameters
    ----------
    guarantee : int
        At least so many, if it has them; these come before everybody's shares.
    maximum : int or None
    lend : bool
        Whether others may use what it leaves of its part.
    borrow : bool
        Whether it may use what others leave of theirs.
    """

    guarantee: int = 0
    maximum: int | None = None
    lend: bool = True
    borrow: bool = True

    def __post_init__(self) -> None:
        for name, value in (("guarantee", self.guarantee), ("maximum", self.maximum)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                raise InputError(f"Limits: {name} must be a whole number >= 0, got {value!r}")
        if self.maximum is not None and self.maximum < self.guarantee:
            raise InputError(f"Limits: maximum {self.maximum} is below guarantee {self.guarantee}")


@dataclass(frozen=True)
class Fairness:
    """How the cluster is shared.

    Parameters
    ----------
    share : ShareProvider
    over : "job" or "user"
        Who shares.  Weights are users' quotas, and 1 for a job.
    within : ShareProvider, optional
        Over users: how the jobs of one user share its part; by default costs decide.
    mode : "hard", "soft" or "ladder"
        "hard": nobody starts tasks beyond its share, and waiting below it is dear.  "soft": a range of shares
        (`slack`).  "ladder": no bounds; each further running task for one's weight is worth less, which finds weighted
        max-min within the solve, over what the machines really can run.
    slack : float
        "soft": shares may be missed or exceeded by this fraction, and by one task at least.
    reclaim : bool
        Running tasks of those beyond their share stop for those below theirs, at the price of any preemption; by default
        they finish first.
    limits : mapping of job or user to Limits
    weights : mapping of job or user to float
        Instead of quotas.
    """

    share: ShareProvider = field(default_factory=MaxMin)
    over: Literal["job", "user"] = "job"
    within: ShareProvider | None = None
    mode: Literal["hard", "soft", "ladder"] = "hard"
    slack: float = 0.1
    reclaim: bool = False
    limits: Mapping[Hashable, Limits] = field(default_factory=lambda: _NOTHING)
    weights: Mapping[Hashable, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not callable(self.share) or isinstance(self.share, type):
            raise InputError(f"Fairness: share must be a provider such as MaxMin(), got {self.share!r}")
        if self.over not in ("job", "user"):
            raise InputError(f"Fairness: over must be 'job' or 'user', got {self.over!r}")
        if self.within is not None and (
            not callable(self.within) or isinstance(self.within, type) or self.over == "job"
        ):
            raise InputError(f"Fairness: within must be a provider, and over 'user', got {self.within!r}")
        if self.mode not in ("hard", "soft", "ladder"):
            raise InputError(f"Fairness: mode must be 'hard', 'soft' or 'ladder', got {self.mode!r}")
        if isinstance(self.slack, bool) or not isinstance(self.slack, int | float) or not 0 <= self.slack < math.inf:
            raise InputError(f"Fairness: slack must be a number >= 0, got {self.slack!r}")
        for who, limits in self.limits.items():
            if not isinstance(limits, Limits):
                raise InputError(f"Fairness: limits[{who!r}] must be Limits, got {limits!r}")
        for who, weight in self.weights.items():
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < math.inf:
                raise InputError(f"Fairness: weights[{who!r}] must be a number >= 0, got {weight!r}")

    def part(self, claims: Claims) -> Ints:
        """Everybody's own part: the share that each would have if all had tasks without end; beyond it, one borrows."""
        most = np.minimum(self.maxima(claims.ids), claims.units)
        share = self.share(replace(claims, tasks=np.maximum(most, claims.running)))
        return np.maximum(share, np.minimum(self.minima(claims.ids), most))

    def entitle(self, claims: Claims) -> Ints:
        """Shares within the limits.

        Returns
        -------
        ndarray of int64, shape (n,)
            At most ``claims.tasks``.
        """
        if not self.limits:
            return np.minimum(self.share(claims), claims.tasks)
        limits = [self.limits.get(who, _FREE) for who in claims.ids]
        want = np.minimum(claims.tasks, self.maxima(claims.ids))
        units = claims.units
        if not all(limit.lend and limit.borrow for limit in limits):
            part = self.part(claims)
            borrow = np.array([limit.borrow for limit in limits], np.bool_)
            keep = np.array([not limit.lend for limit in limits], np.bool_)
            want = np.where(borrow, want, np.minimum(want, part))
            units = max(0, units - int(np.maximum(part - want, 0)[keep].sum()))
        least = np.minimum(self.minima(claims.ids), want)
        share = np.minimum(self.share(replace(claims, tasks=want, units=units)), want)
        if (share < least).any():
            # Guarantees first: the others give back what they have beyond theirs, who has most for its weight first.
            units = max(int(share.sum()), min(units, int(least.sum())))
            share = water_fill(units, np.maximum(share, least), claims.weight, least)
        return share

    def minima(self, ids: tuple[Hashable, ...]) -> Ints:
        """Guarantees."""
        if not self.limits:
            return np.zeros(len(ids), np.int64)
        return np.array([self.limits.get(who, _FREE).guarantee for who in ids], np.int64)

    def maxima(self, ids: tuple[Hashable, ...]) -> Ints:
        """Most tasks that each may run, whatever its share."""
        if not self.limits:
            return np.full(len(ids), _ENDLESS, np.int64)
        most = [self.limits.get(who, _FREE).maximum for who in ids]
        return np.array([_ENDLESS if count is None else count for count in most], np.int64)


_FREE = Limits()
