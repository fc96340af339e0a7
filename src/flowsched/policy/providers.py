"""Who is entitled to run how many tasks: functions of the claims on the cluster, vectorised over claimants (jobs, or users).

>>> claims = Claims(("a", "b"), tasks=np.array([3, 4]), running=np.zeros(2, np.int64), units=4)
>>> MaxMin()(claims)
array([2, 2])
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.checks import mapping, number
from flowsched.cluster.model import UNLIMITED
from flowsched.exceptions import InputError
from flowsched.policy.deployment import Deployment
from flowsched.policy.sequence import LARGEST
from flowsched.policy.waterfill import water_fill

__all__ = [
    "DRF",
    "BatchShare",
    "Claims",
    "MaxMin",
    "Remaining",
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
        Tasks of mean size that the cluster can run at once, see `together`.
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

    def parts(self) -> Floats:
        """Which part of every resource one of its tasks takes; infinite where there is none, shape (n, D)."""
        capacity = np.broadcast_to(self.capacity, self.demand.shape)
        part: Floats = np.divide(self.demand, capacity, out=np.where(self.demand > 0, np.inf, 0.0), where=capacity > 0)
        return part

    def alone(self) -> Ints:
        """How many tasks each could run at once if nobody else did; `UNLIMITED` without a limit."""
        most = self.parts().max(axis=1, initial=0.0)
        counts: Ints = np.floor(np.minimum(1.0 / np.maximum(most, 1.0 / UNLIMITED) + 1e-6, UNLIMITED)).astype(np.int64)
        return counts

    def together(self) -> int:
        """How many tasks of mean size run at once, tasks beyond `alone` left aside; `UNLIMITED` without a limit."""
        tasks = np.minimum(self.tasks, np.maximum(self.alone(), self.running))
        load = float(np.max(tasks @ np.where(tasks[:, None] > 0, self.parts(), 0.0), initial=0.0))
        return min(int(int(tasks.sum()) / load + 1e-6), UNLIMITED) if load else UNLIMITED


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
    """Equal numbers of tasks; what one does not need, or cannot use for want of another resource, goes to the others."""

    def __call__(self, claims: Claims) -> Ints:
        """See `ShareProvider`."""
        return _evenly(claims, np.ones(len(claims.tasks)))


@dataclass(frozen=True)
class WeightedMaxMin:
    """As `MaxMin`, in proportion to weights (users: their quotas)."""

    def __call__(self, claims: Claims) -> Ints:
        """See `ShareProvider`."""
        return _evenly(claims, claims.weight)


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
        if not claims.capacity.size:
            return water_fill(claims.units, claims.tasks, claims.weight)
        part = claims.parts()
        return _filled(claims.tasks, part.max(axis=1, initial=0.0) / _positive(claims.weight), part)


def _evenly(claims: Claims, weight: Floats) -> Ints:
    """Equal numbers of tasks for their weight; where some resource is used up, those who do not need it go on."""
    share = water_fill(claims.units, claims.tasks, weight)
    if not claims.capacity.size:
        return share
    part = claims.parts()
    left = 1.0 + 1e-9 - share @ np.where(share[:, None] > 0, part, 0.0)
    if (left >= 0).all() and (part[share < claims.tasks] > left).any(axis=1).all():
        return share  # it is all the same who needs what
    return _filled(claims.tasks, 1.0 / _positive(weight), part)


def _positive(weight: Floats) -> Floats:
    """Weights within what quotients bear: nobody without any, and all scaled down where one is huge."""
    largest = float(weight.max(initial=0.0))
    return np.maximum(weight * (1e9 / largest) if largest > 1e9 else weight, 1e-9)


def _filled(tasks: Ints, pace: Floats, part: Floats) -> Ints:
    """Task by task to whoever stands lowest, as long as its task fits; k tasks stand at k times one's pace.

    Who lacks a resource stops there, the others go on.
    """
    pace, part = pace.copy(), part.copy()
    asks = part.max(axis=1, initial=0.0)
    share = np.where(asks > 0, 0, tasks)
    nowhere = np.isinf(asks)  # no machine has what these ask for: none of theirs runs
    open_ = (asks > 0) & ~nowhere
    part[nowhere] = pace[nowhere] = 0.0
    while (open_ & (share < tasks)).any():
        share = _level(share, open_, tasks, pace, part)
        hungry = np.flatnonzero(open_ & (share < tasks))
        hungry = hungry[np.argsort(np.rint(share[hungry] * pace[hungry] / _GRAIN), kind="stable")]
        left = 1.0 + 1e-9 - share @ part
        upto = np.cumsum(part[hungry], axis=0)
        fit = np.append((upto <= left).all(axis=1), False)
        first = int(np.argmin(fit))  # does not fit any more
        share[hungry[:first]] += 1
        left -= upto[first - 1] if first else 0.0
        open_ &= (part <= left).all(axis=1)
    return share


def _level(share: Ints, open_: NDArray[np.bool_], tasks: Ints, pace: Floats, part: Floats) -> Ints:
    """All tasks that begin below a level, the highest one at which they fit (the k-th begins at (k - 1) * pace).

    Levels are whole numbers of `_GRAIN`, so that shares that are equal but for rounding come at the same level.
    """
    rate = np.divide(_GRAIN, pace, out=np.zeros_like(pace), where=open_)

    def at(level: int) -> Ints:
        more = np.minimum(np.ceil(np.minimum((level - 0.5) * rate, tasks)).astype(np.int64), tasks)
        return np.where(open_, np.maximum(share, more), share)

    low, high = 0, int((tasks * pace)[open_].max() / _GRAIN) + 2
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


@dataclass(frozen=True)
class Remaining:
    """Another provider's shares, where who runs more than its share keeps that and the others share what it leaves.

    Shares alone are more than there is then, so that of those who are behind not the last one would start next, but
    whoever costs least.

    Parameters
    ----------
    share : ShareProvider

    Examples
    --------
    >>> claims = Claims(("a", "b", "c"), tasks=np.array([9, 9, 9]), running=np.array([6, 2, 0]), units=9)
    >>> MaxMin()(claims), Remaining(MaxMin())(claims)
    (array([3, 3, 3]), array([6, 2, 1]))
    """

    share: ShareProvider

    def __call__(self, claims: Claims) -> Ints:
        """See `ShareProvider`."""
        running, ahead = claims.running, np.zeros(len(claims.tasks), np.bool_)
        while True:
            kept = running * ahead
            rest = replace(
                claims,
                tasks=np.where(ahead, 0, claims.tasks),
                units=max(claims.units - int(kept.sum()), 0),
                capacity=np.maximum(claims.capacity - kept @ claims.demand, 0.0),
            )
            share = np.where(ahead, running, self.share(rest))
            if not (running > share).any():
                return share
            ahead |= running > share


class SequenceShare:
    """The deployment sequence: who runs goes on, and what is free is dealt by the sequence and the ledger.

    Accounts are kept of what really started, so what one user could not use and others did is paid back in later rounds.

    Parameters
    ----------
    mu : float
        Part of what it could pay back that a borrower with tasks pays per round, see `Deployment`.
    resolution : int
        Quotas count in whole multiples of 1 / resolution, up to 2**30 of them.

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
        weights = np.minimum(np.rint(claims.weight * self.resolution), LARGEST - 1)  # no event may stop all rounds
        quotas = dict(zip(claims.ids, weights.astype(np.int64).tolist(), strict=True))
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
