"""Fairness: a provider of shares (see `providers`), the claimants, the strictness of shares, and their limits.

In the network a claimant's share A of its N tasks becomes bounds on its waiting tasks (Sirius, equation 1): at least
N - A, and at most N - A.  The latter bound can be exceeded at a price, because placement may forbid it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from flowsched.boundary.validate import mapping, number, quoted, truth, whole
from flowsched.cluster.model import UNLIMITED, Resources
from flowsched.exceptions import InputError
from flowsched.policy.providers import Claims, MaxMin, ShareProvider
from flowsched.sharing.waterfill import water_fill

__all__ = ["RUNGS", "Fairness", "Limits", "Quotas", "checked_quotas"]

Ints = NDArray[np.int64]

_NOTHING: Mapping[Hashable, Limits] = MappingProxyType({})

RUNGS = 64
"""Number of steps of a ladder; the k-th running task of a claimant of weight w is on step (k - 1) // w, suitably scaled."""


@dataclass(frozen=True)
class Limits:
    """Bounds of one job or user, in tasks.

    Parameters
    ----------
    guarantee : int
        Number of its tasks that run before all shares, if it has them.
    maximum : int or None
    lend : bool
        True if others may use the unused room of its part.
    borrow : bool
        True if it may use the unused room of others' parts.
    """

    guarantee: int = 0
    maximum: int | None = None
    lend: bool = True
    borrow: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "guarantee", whole("Limits: guarantee", self.guarantee, 0))
        if self.maximum is not None:
            object.__setattr__(self, "maximum", whole("Limits: maximum", self.maximum, 0))
        for name in ("lend", "borrow"):
            truth(f"Limits: {name}", getattr(self, name))
        if self.maximum is not None and self.maximum < self.guarantee:
            raise InputError(f"Limits: maximum {self.maximum} is below guarantee {self.guarantee}")


@dataclass(frozen=True)
class Fairness:
    """Sharing of the cluster.

    Parameters
    ----------
    share : ShareProvider
    over : "job" or "user"
        The claimants.  Weights are users' quotas, and 1 for a job.
    within : ShareProvider, optional
        With users: division of a user's part among its jobs; by default costs decide.
    mode : "hard", "soft" or "ladder"
        "hard": no claimant starts tasks beyond its share, except in room that no claimant below its own share can use.
        Waiting below a share is expensive.  "soft": a range of shares (`slack`).  "ladder": no bounds; each further running
        task, relative to the weight, is worth less.  That finds weighted max-min within the solve, over the tasks that the
        machines can really run.
    slack : float
        "soft": shares may be missed or exceeded by this fraction, and by at least one task.
    reclaim : bool
        Running tasks of claimants above their share stop for those below theirs, at the price of any preemption, the worst
        first; by default they finish first.
    limits : mapping of job or user to Limits
    weights : mapping of job or user to float
        Weights in place of quotas.
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
            raise InputError(f"Fairness: share must be a provider such as MaxMin(), got {quoted(self.share)}")
        if self.over not in ("job", "user"):
            raise InputError(f"Fairness: over must be 'job' or 'user', got {quoted(self.over)}")
        if self.within is not None and (
            not callable(self.within) or isinstance(self.within, type) or self.over == "job"
        ):
            raise InputError(f"Fairness: within must be a provider, and over 'user', got {quoted(self.within)}")
        if self.mode not in ("hard", "soft", "ladder"):
            raise InputError(f"Fairness: mode must be 'hard', 'soft' or 'ladder', got {quoted(self.mode)}")
        object.__setattr__(self, "slack", number("Fairness: slack", self.slack, 0))
        truth("Fairness: reclaim", self.reclaim)
        for who, limits in mapping("Fairness: limits", self.limits).items():
            if not isinstance(limits, Limits):
                raise InputError(f"Fairness: limits[{who!r}] must be Limits, got {quoted(limits)}")
        for who, weight in mapping("Fairness: weights", self.weights).items():
            number(f"Fairness: weights[{who!r}]", weight, 0)

    @property
    def rungs(self) -> int:
        """Largest price of one task in units of `CostScale.fair_step`: the lowest rung of a ladder; else 2 for a guarantee."""
        if self.mode == "ladder":
            return RUNGS
        return 2 if any(limits.guarantee for limits in self.limits.values()) else 1

    def part(self, claims: Claims) -> Ints:
        """Return each claimant's own part: its share if all had unlimited tasks; beyond it, the claimant borrows."""
        most = np.minimum(self.maxima(claims.ids), claims.alone() if claims.capacity.size else claims.units)
        share = self.share(replace(claims, tasks=np.maximum(most, claims.running)))
        return np.maximum(share, np.minimum(self.minima(claims.ids), most))

    def entitle(self, claims: Claims) -> Ints:
        """Return shares within the limits.

        Returns
        -------
        ndarray of int64, shape (n,)
            At most ``claims.tasks``.
        """
        if not self.limits:
            return np.minimum(self.share(claims), claims.tasks)
        want, kept = self._apart(claims, np.minimum(claims.tasks, self.maxima(claims.ids)))
        units = max(0, claims.units - int(kept.sum()))
        claims = claims.without(kept)
        least = np.minimum(self.minima(claims.ids), want)
        share = np.minimum(self.share(replace(claims, tasks=want, units=units)), want)
        if (share < least).any():
            # Guarantees first: other claimants give back tasks beyond theirs, the largest for its weight first.
            units = max(int(share.sum()), min(units, int(least.sum())))
            share = water_fill(units, np.maximum(share, least), claims.weight, least)
        return share

    @property
    def fills(self) -> bool:
        """True if claimants at their bounds may use room that no claimant below can use; on a ladder only jobs within users have bounds."""
        bounds = self.mode != "ladder" or self.within is not None
        return bounds and hasattr(self.share, "remainder")

    def remainder(self, claims: Claims) -> Ints:
        """Return the number of tasks that each may run, within the limits, in room left by others; see `ShareProvider`.

        Returns
        -------
        ndarray of int64, shape (n,)
            At least ``claims.running``.
        """
        want = np.maximum(np.minimum(claims.tasks, self.maxima(claims.ids)), claims.running)
        want, kept = self._apart(claims, want, claims.running)
        dealt: Ints = self.share.remainder(replace(claims.without(kept), tasks=want))  # type: ignore[attr-defined]
        return np.clip(dealt, claims.running, want)

    def _apart(self, claims: Claims, want: Ints, least: Ints | int = 0) -> tuple[Ints, Ints]:
        """Return `want`, limited to the own part (or `least`) of claimants that do not borrow, and the part kept by those that do not lend."""
        limits = [self.limits.get(who, _FREE) for who in claims.ids] if self.limits else []
        if all(limit.lend and limit.borrow for limit in limits):
            return want, np.zeros_like(want)
        part = self.part(claims)
        borrow = np.array([limit.borrow for limit in limits], np.bool_)
        keep = np.array([not limit.lend for limit in limits], np.bool_)
        want = np.where(borrow, want, np.maximum(np.minimum(want, part), least))
        return want, np.where(keep, np.maximum(part - want, 0), 0)

    def minima(self, ids: tuple[Hashable, ...]) -> Ints:
        """Return the guarantees."""
        if not self.limits:
            return np.zeros(len(ids), np.int64)
        return np.array([self.limits.get(who, _FREE).guarantee for who in ids], np.int64)

    def maxima(self, ids: tuple[Hashable, ...]) -> Ints:
        """Return the largest number of tasks that each may run, whatever its share."""
        if not self.limits:
            return np.full(len(ids), UNLIMITED, np.int64)
        most = [self.limits.get(who, _FREE).maximum for who in ids]
        return np.array([UNLIMITED if count is None else count for count in most], np.int64)


_FREE = Limits()


@dataclass(frozen=True)
class Quotas:
    """Limits on the resources of running tasks together, of a claimant or of the whole cluster; exact to the micro-unit.

    A quota limits starts: tasks that already run or are reported as started (`TaskStarted`) may exceed it.  If it is full, a
    better task takes the place of worse ones that it counts, provided that the policy stops tasks at all.  A stopping
    run counts until it has stopped.

    Parameters
    ----------
    amounts : mapping of user or job to (mapping of str to number)
        Limited resources by claimant, such as ``{"ann": {"gpu": 8, "cpu": 64}}``.
    over : "user" or "job"
        The claimants.
    default : mapping of str to number, optional
        Limit for each other claimant; none by default.  Jobs without a user are one claimant, None.
    cluster : mapping of str to number, optional
        Limit for all tasks, such as the licences of a program: ``{"matlab": 5}``.  Machines on which it runs have as much
        capacity of this resource, since only the tasks of the whole cluster share it.
    """

    amounts: Mapping[Hashable, Mapping[str, float]] = field(default_factory=dict)
    over: Literal["user", "job"] = "user"
    default: Mapping[str, float] | None = None
    cluster: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        amounts = mapping("Quotas: amounts", self.amounts)
        checked = {who: _amounts(f"Quotas: amounts[{who!r}]", some) for who, some in amounts.items()}
        object.__setattr__(self, "amounts", checked)
        if self.over not in ("user", "job"):
            raise InputError(f"Quotas: over must be 'user' or 'job', got {quoted(self.over)}")
        if self.default is not None:
            object.__setattr__(self, "default", _amounts("Quotas: default", self.default))
        if self.cluster is not None:
            object.__setattr__(self, "cluster", _amounts("Quotas: cluster", self.cluster))

    def limits(self, resources: Resources) -> tuple[dict[Hashable, Limit], Limit, Limit]:
        """Return the limits of claimants, the limit of each other claimant, and that of the cluster.

        Raises
        ------
        InputError
            A quota names an unknown resource.
        """
        named = {who: _limit(f"quota of {who!r}", some, resources) for who, some in self.amounts.items()}
        default = _limit("quota by default", self.default or {}, resources)
        return named, default, _limit("quota of the cluster", self.cluster or {}, resources)


Limit = tuple[tuple[int, int], ...]
"""Positions of resources, each with its limit in micro-units."""


def checked_quotas(given: Any) -> Quotas | None:
    """Return the quotas of a policy; a mapping is one of users."""
    if given is None or isinstance(given, Quotas):
        return given
    if not isinstance(given, Mapping):
        raise InputError(f"Policy: quotas must be Quotas, a mapping of users to amounts or None, got {quoted(given)}")
    return Quotas(given)


def _amounts(what: str, amounts: Any) -> dict[str, float]:
    found = mapping(what, amounts)
    for name in found:
        if not isinstance(name, str):
            raise InputError(f"{what}: names of resources expected, got {quoted(name)}")
    return {name: number(f"{what}[{name!r}]", amount, 0) for name, amount in found.items()}


def _limit(what: str, amounts: Mapping[str, float], resources: Resources) -> Limit:
    vector = resources.amounts(what, amounts).tolist()
    return tuple((resources.index[name], vector[resources.index[name]]) for name in amounts)
