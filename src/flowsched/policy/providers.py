"""Share providers: the number of tasks that each claimant (a job, or a user) is entitled to run, from all claims.

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

from flowsched.boundary.validate import mapping, number, quoted, whole
from flowsched.cluster.model import UNLIMITED
from flowsched.exceptions import InputError
from flowsched.sharing.deployment import Deployment
from flowsched.sharing.deployment_sequence import LARGEST
from flowsched.sharing.waterfill import fill, water_fill

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


@dataclass(frozen=True, eq=False)
class Claims:
    """Claims on the cluster at the beginning of a round.

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
    held, further : ndarray of float, shape (n, D), optional
        What those that run take together, and the mean demand of one that may start next; by default as by `demand`.
    floor : ndarray of int64, shape (n,), optional
        How many of those that run each keeps in any case (see `Remaining`); by default 0.
    most : ndarray of float, shape (D,), optional
        Part of the capacity that may be in use for now: a next claimant that does not fit into it ends the dealing.  By
        default all of it may be, and a claimant that does not fit lets the others go on.
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

    def __post_init__(self) -> None:
        if len(self.weight) != len(self.tasks):
            object.__setattr__(self, "weight", np.ones(len(self.tasks)))
        if len(self.demand) != len(self.tasks):
            object.__setattr__(self, "demand", np.zeros((len(self.tasks), len(self.capacity))))

    def parts(self) -> Floats:
        """Return the part of every resource that one task takes; infinite where there is none, shape (n, D)."""
        return self._parts(self.demand)

    def course(self) -> tuple[Floats, Floats, Floats]:
        """Beyond its floor, which parts of the resources one has with k tasks more: ``parts + k * further``.

        Returns
        -------
        parts, further : ndarray of float, shape (n, D)
        bound : ndarray of float, shape (D,)
            Most that all together may have.
        """
        bound = np.ones(len(self.capacity)) if self.most is None else self.most
        if self.floor is None:
            each = self.parts()
            return np.zeros_like(each), each, bound
        held = self.running[:, None] * self.demand if self.held is None else self.held
        kept = np.divide(self.floor, self.running, out=np.zeros(len(self.tasks)), where=self.running > 0)
        further = self.demand if self.further is None else self.further
        # Of what no usable machine has, nothing is left to be dealt, even if a claimant still holds some.
        return np.where(self.capacity > 0, self._parts(kept[:, None] * held), 0.0), self._parts(further), bound

    def without(self, tasks: Ints) -> Claims:
        """Return the claims with what so many tasks of each claimant would take withheld from all, shape (n,)."""
        if not self.capacity.size or not tasks.any():
            return self
        bound = np.ones(len(self.capacity)) if self.most is None else self.most
        withheld = tasks @ np.where(tasks[:, None] > 0, self.parts(), 0.0)
        return replace(self, most=np.maximum(bound - withheld, 0.0))

    def _parts(self, amounts: Floats) -> Floats:
        capacity = np.broadcast_to(self.capacity, amounts.shape)
        part: Floats = np.divide(amounts, capacity, out=np.where(amounts > 0, np.inf, 0.0), where=capacity > 0)
        return part

    def alone(self) -> Ints:
        """Return how many tasks each could run at once if it were alone; `UNLIMITED` without a limit."""
        most = self.parts().max(axis=1, initial=0.0)
        counts: Ints = np.floor(np.minimum(1.0 / np.maximum(most, 1.0 / UNLIMITED) + 1e-6, UNLIMITED)).astype(np.int64)
        return counts

    def together(self) -> int:
        """Return how many tasks of mean size run at once, tasks beyond `alone` left aside; `UNLIMITED` without a limit."""
        tasks = np.minimum(self.tasks, np.maximum(self.alone(), self.running))
        load = float(np.max(tasks @ np.where(tasks[:, None] > 0, self.parts(), 0.0), initial=0.0))
        return min(int(int(tasks.sum()) / load + 1e-6), UNLIMITED) if load else UNLIMITED


class ShareProvider(Protocol):
    """Says how many tasks each claimant is entitled to run.

    Called at the beginning of a round if anything has changed.  It returns whole numbers from 0 to ``claims.tasks``,
    shape (n,), and changes nothing that a second call would notice: rounds may be thrown away.  A provider that keeps
    accounts has a method ``committed(claims, started)``, called with the claims of a round of which some tasks really
    started (ndarray of int64, shape (n,)), and may have ``balance(claims)``: what each has lent (> 0) or borrowed (< 0).

    One that deals out little by little has a true attribute ``gradual``.  It is asked again in the same round, with what
    has started, until nobody can start any more; in its claims only those wait for whom some machine has room now.
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
        tasks = mapping("StaticQuotas: tasks", self.tasks)
        quotas = {who: whole(f"StaticQuotas: {quoted(who)}", count, 0) for who, count in tasks.items()}
        object.__setattr__(self, "tasks", quotas)
        object.__setattr__(self, "default", whole("StaticQuotas: default", self.default, 0))

    def __call__(self, claims: Claims) -> Ints:
        """See `ShareProvider`."""
        quota = np.array([self.tasks.get(who, self.default) for who in claims.ids], np.int64)
        return np.minimum(quota, claims.tasks)


@dataclass(frozen=True)
class DRF:
    """Dominant resource fairness: equal dominant shares (the largest part of any resource), in proportion to weights.

    Task by task to the claimant with the smallest dominant share for its weight (of equals, the first), as long as its task
    fits into what is left of every resource.  Source: Ghodsi et al., "Dominant resource fairness", NSDI 2011, algorithm 1.
    """

    def __call__(self, claims: Claims) -> Ints:
        """See `ShareProvider`."""
        if not claims.capacity.size:
            return _in_units(claims, claims.weight)
        parts, further, _ = claims.course()
        weight = _positive(claims.weight)[:, None]
        return _filled(claims, parts / weight, further / weight)


def _evenly(claims: Claims, weight: Floats) -> Ints:
    """Equal numbers of tasks for their weight; where some resource is used up, claimants that do not need it go on."""
    share = _in_units(claims, weight)
    if not claims.capacity.size:
        return share
    parts, further, bound = claims.course()
    floor = _floor(claims)
    more = share - floor
    left = bound + 1e-9 - parts.sum(axis=0) - more @ np.where(more[:, None] > 0, further, 0.0)
    if (left >= 0).all() and (further[share < claims.tasks] > left).any(axis=1).all():
        return share  # no resource is short
    weight = _positive(weight)[:, None]
    return _filled(claims, floor[:, None] / weight, 1.0 / weight)


def _in_units(claims: Claims, weight: Floats) -> Ints:
    """By numbers of tasks alone."""
    floor = _floor(claims)
    return water_fill(max(claims.units, int(floor.sum())), np.maximum(claims.tasks, floor), weight, floor)


def _floor(claims: Claims) -> Ints:
    return np.zeros(len(claims.tasks), np.int64) if claims.floor is None else claims.floor


def _positive(weight: Floats) -> Floats:
    """Return weights that quotients bear: all above 0, and all scaled down where one is huge."""
    largest = float(weight.max(initial=0.0))
    return np.maximum(weight * (1e9 / largest) if largest > 1e9 else weight, 1e-9)


def _filled(claims: Claims, stand: Floats, pace: Floats) -> Ints:
    """Deal task by task to the claimant that stands lowest; with k tasks beyond its floor it stands at the largest of stand + k * pace."""
    parts, part, bound = claims.course()
    floor = _floor(claims)
    room = np.maximum(bound - parts.sum(axis=0), 0.0) + 1e-9
    more = fill(np.maximum(claims.tasks - floor, 0), stand, pace, part, room, go_on=claims.most is None)
    return floor + more


@dataclass(frozen=True)
class Remaining:
    """Shares of another provider, where a claimant that runs more keeps that and the others share what it leaves.

    Shares alone are more than there is then, so that of the claimants behind theirs not the last one would start next, but
    the cheapest.

    Parameters
    ----------
    share : ShareProvider
        `MaxMin`, `WeightedMaxMin`, `DRF`, or another that heeds ``claims.floor``.

    Examples
    --------
    >>> claims = Claims(("a", "b", "c"), tasks=np.array([9, 9, 9]), running=np.array([6, 2, 0]), units=9)
    >>> MaxMin()(claims), Remaining(MaxMin())(claims)
    (array([3, 3, 3]), array([6, 2, 1]))
    """

    share: ShareProvider

    def __call__(self, claims: Claims) -> Ints:
        """See `ShareProvider`."""
        return np.maximum(self.share(replace(claims, floor=claims.running)), claims.running)


class SequenceShare:
    """The deployment sequence: what runs goes on, and what is free is dealt by the sequence and the ledger.

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
            raise InputError(f"SequenceShare: mu must be above 0 and at most 1, got {quoted(mu)}")
        self.mu = number("SequenceShare: mu", mu)
        self.resolution = whole("SequenceShare: resolution", resolution, 1, 1_000_000)
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
        """Return what each is owed (> 0) or owes (< 0)."""
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
        """Return the accounts with all present claimants; others have nothing to run, and stay."""
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
