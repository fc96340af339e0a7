"""Share providers: functions from all claims to the number of tasks that each claimant (job or user) is entitled to run.

>>> claims = Claims(("a", "b"), tasks=np.array([3, 4]), running=np.zeros(2, np.int64), units=4)
>>> MaxMin()(claims)
array([2, 2])
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from flowsched.boundary.validate import mapping, quoted, whole
from flowsched.cluster.model import UNLIMITED
from flowsched.policy.claims import Claims
from flowsched.policy.sequence_share import SequenceShare
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


class ShareProvider(Protocol):
    """Entitlements of claimants, in numbers of running tasks.

    It is called at the beginning of a round if anything has changed.  It returns whole numbers from 0 to ``claims.tasks``,
    shape (n,), and has no side effect that a second call would notice: rounds may be dropped.  A provider that keeps
    accounts has a method ``committed(claims, started)``, called with the claims of a round of which some tasks really
    started (ndarray of int64, shape (n,)).  It may have ``balance(claims)``: the amount that each has lent (> 0) or borrowed
    (< 0).  In these claims ``booked`` has the amounts.  Apart from its settings, the object keeps nothing but an account.
    Class attributes may supply values that an account of an older version lacks: ``later``, a mapping to these values, and
    ``later_settings``, names of settings that descriptions leave out if they have their defaults.

    A provider that distributes in steps has a true attribute ``gradual``.  It is called again in the same round, after the
    starts of each step, until no task can start any more.  In its claims only tasks wait for which some machine has room now.
    If it keeps accounts as well, all waiting tasks are in its claims, except those of claimants that are ``aside``.

    A provider that leaves nothing idle on purpose has a method ``remainder(claims)``.  It is called when no task can start
    within these entitlements any more although tasks of others would find room.  It returns the number of tasks that each
    may run then, at least its running ones.  In these claims only tasks wait for which some machine has room.
    """

    def __call__(self, claims: Claims) -> Ints:
        """Return the entitlements."""
        ...


@dataclass(frozen=True)
class MaxMin:
    """Equal numbers of tasks; a part that one does not need, or cannot use for lack of another resource, goes to the others."""

    def __call__(self, claims: Claims) -> Ints:
        """See `ShareProvider`."""
        return _evenly(claims, np.ones(len(claims.tasks)))

    def remainder(self, claims: Claims) -> Ints:
        """See `ShareProvider`."""
        return _remaining(self, claims)


@dataclass(frozen=True)
class WeightedMaxMin:
    """As `MaxMin`, in proportion to weights (users: their quotas)."""

    def __call__(self, claims: Claims) -> Ints:
        """See `ShareProvider`."""
        return _evenly(claims, claims.weight)

    def remainder(self, claims: Claims) -> Ints:
        """See `ShareProvider`."""
        return _remaining(self, claims)


@dataclass(frozen=True)
class BatchShare:
    """HRM's share of batch jobs: of Q units for K jobs, floor(min(Q / K, N_j)); then the spare ones evenly, until min(Q, sum N).

    Where tasks need resources, Q / K is the K-th part of each resource, and the spare part goes task by task to the job with
    the smallest dominant share.
    """

    def __call__(self, claims: Claims) -> Ints:
        """See `ShareProvider`."""
        if claims.capacity.size:
            return self._of_resources(claims)
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

    def remainder(self, claims: Claims) -> Ints:
        """See `ShareProvider`."""
        return DRF().remainder(replace(claims, weight=np.ones(len(claims.tasks))))

    def _of_resources(self, claims: Claims) -> Ints:
        parts = claims.parts()
        bound = np.ones(len(claims.capacity)) if claims.most is None else claims.most
        fit = np.divide(bound, parts, out=np.full(parts.shape, float(UNLIMITED)), where=parts > 0).min(axis=1)
        share = np.minimum(np.floor(fit / max(1, len(parts)) + 1e-9).astype(np.int64), claims.tasks)
        dealt = np.where(share[:, None] > 0, share[:, None] * parts, 0.0)
        room = np.maximum(bound - dealt.sum(axis=0), 0.0) + 1e-9
        more = fill(claims.tasks - share, dealt, parts, parts, room, go_on=claims.most is None)
        return np.asarray(share + more)


@dataclass(frozen=True)
class StaticQuotas:
    """Fixed numbers of tasks, independent of other claimants.

    Parameters
    ----------
    tasks : mapping of job or user to int
    default : int
        Number for all other claimants.
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

    Task by task to the claimant with the smallest dominant share for its weight (of equals, the first), while its task
    fits into the rest of every resource.  Source: Ghodsi et al., "Dominant resource fairness", NSDI 2011, algorithm 1.
    """

    def __call__(self, claims: Claims) -> Ints:
        """See `ShareProvider`."""
        if not claims.capacity.size:
            return _in_units(claims, claims.weight)
        course = claims.course()
        weight = _positive(claims.weight)[:, None]
        return _filled(claims, course, course[0] / weight, course[1] / weight)

    def remainder(self, claims: Claims) -> Ints:
        """See `ShareProvider`."""
        return _remaining(self, claims)


def _remaining(share: ShareProvider, claims: Claims) -> Ints:
    """Keep the running tasks of each claimant, and distribute the remaining room."""
    return np.maximum(share(replace(claims, floor=claims.running)), claims.running)


def _evenly(claims: Claims, weight: Floats) -> Ints:
    """Return equal numbers of tasks for the weights; if a resource is used up, claimants that do not need it go on."""
    share = _in_units(claims, weight)
    if not claims.capacity.size:
        return share
    parts, further, bound = course = claims.course()
    floor = _floor(claims)
    more = share - floor
    left = bound + 1e-9 - parts.sum(axis=0) - more @ np.where(more[:, None] > 0, further, 0.0)
    if (left >= 0).all() and (further[share < claims.tasks] > left).any(axis=1).all():
        return share  # no resource is short
    weight = _positive(weight)[:, None]
    return _filled(claims, course, floor[:, None] / weight, 1.0 / weight)


def _in_units(claims: Claims, weight: Floats) -> Ints:
    """Return shares by numbers of tasks alone."""
    floor = _floor(claims)
    return water_fill(max(claims.units, int(floor.sum())), np.maximum(claims.tasks, floor), weight, floor)


def _floor(claims: Claims) -> Ints:
    return np.zeros(len(claims.tasks), np.int64) if claims.floor is None else claims.floor


def _positive(weight: Floats) -> Floats:
    """Return weights that are safe in quotients: all above 0, and all scaled down if one is huge."""
    largest = float(weight.max(initial=0.0))
    return np.maximum(weight * (1e9 / largest) if largest > 1e9 else weight, 1e-9)


def _filled(claims: Claims, course: tuple[Floats, Floats, Floats], stand: Floats, pace: Floats) -> Ints:
    """Distribute task by task to the claimant that stands lowest; with k tasks beyond its floor it stands at the largest of stand + k * pace."""
    parts, part, bound = course
    floor = _floor(claims)
    room = np.maximum(bound - parts.sum(axis=0), 0.0) + 1e-9
    more = fill(np.maximum(claims.tasks - floor, 0), stand, pace, part, room, go_on=claims.most is None)
    return floor + more


@dataclass(frozen=True)
class Remaining:
    """Shares of another provider, where claimants with more running tasks keep them and the others share the rest.

    Shares alone would exceed the room then, so that among the claimants below theirs the cheapest would start next, not the
    lowest.

    Parameters
    ----------
    share : ShareProvider
        `MaxMin`, `WeightedMaxMin`, `DRF`, or another provider that uses ``claims.floor``.

    Examples
    --------
    >>> claims = Claims(("a", "b", "c"), tasks=np.array([9, 9, 9]), running=np.array([6, 2, 0]), units=9)
    >>> MaxMin()(claims), Remaining(MaxMin())(claims)
    (array([3, 3, 3]), array([6, 2, 1]))
    """

    share: ShareProvider

    def __call__(self, claims: Claims) -> Ints:
        """See `ShareProvider`."""
        return _remaining(self.share, claims)

    def remainder(self, claims: Claims) -> Ints:
        """See `ShareProvider`."""
        return self(claims)
