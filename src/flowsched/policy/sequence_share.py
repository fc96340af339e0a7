"""The deployment sequence as a share provider: proportions of the cluster over time, by amounts of resources.

Amounts are counted in *grains*.  A grain is a millionth of a unit of the first resource of the cluster, or more if the
cluster would otherwise have more than 2**36 of them.  A task counts by its dominant resource: one that takes a
tenth of the memory counts as a tenth of the cores.

1. The sequence divides the free room, and borrowers pay their debts from their parts (`flowsched.sharing.Deployment`).
2. Each claimant starts tasks as long as they fit into its present part.
3. Tasks that need more than that are spares.  They start as long as there is room, at the price of a debt.
   Where claimants compete for different resources, parts do not sum to the free room.  There the claimant that has used
   least of its part, for its quota, starts the next task, as under dominant resource fairness.
4. Room that no task can use is not booked, which rolls the sequence back.

A lender gets its units back (A) from the parts of its borrowers, (B) from unused parts of others, to which its borrowers
owe them from then on, and (C) from running tasks of its borrowers, if `Fairness.reclaim` lets these stop.

Source: Wang, Hong and Feng, "Resource deployment strategy for multi-user cluster", sections 2.1 and 2.2.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from flowsched.boundary.validate import number, quoted, whole
from flowsched.exceptions import InputError
from flowsched.policy.claims import Claims
from flowsched.sharing.deployment import Deployment
from flowsched.sharing.deployment_sequence import LARGEST
from flowsched.sharing.waterfill import fill

__all__ = ["SequenceShare"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_MOST_GRAINS = 1 << 36
"""Largest number of grains of a cluster; times `_MOST_SECONDS`, they fit into 60 bits."""

_MOST_SECONDS = 1 << 20

_MOST_OWED = float(1 << 58)
"""Sum of all debts, in grains times ticks, beyond which half of each is forgiven."""


class SequenceShare:
    """The deployment sequence: running tasks go on, and the sequence and the ledger distribute the free room.

    Shares are amounts of resources, so a task of four cores counts as four tasks of one.  Accounts record real starts, so
    room that one claimant could not use and others used is paid back in later rounds.

    Parameters
    ----------
    mu : float
        Part of the possible repayment that a borrower with tasks pays per round, see `Deployment`.
    resolution : int
        Number of steps of a quota unit: quotas count in multiples of 1 / resolution, up to 2**30 of them.
    spares : {"owed", "largest"}
        The next task if each waiting one needs more than its claimant has: the task of the claimant that would then owe
        least for its quota, or the largest task of all (the source's rule).
    seconds : int, optional
        Expected run time of a task; shares are then resources times seconds.  Accounts are corrected by the real run times
        from round to round.  By default a task counts once, at its start.

    Attributes
    ----------
    deployment : Deployment or None
        Accounts in grains (times seconds), None before the first round.
    grains : bool
        False if the accounts of an older version count tasks of mean size until the next round.
    held : mapping of user to int
        With `seconds`, grains that each user had at the time `since`.
    since : float or None
    """

    later: ClassVar[Mapping[str, Any]] = MappingProxyType({"grains": False, "held": {}, "since": None})
    later_settings: ClassVar[frozenset[str]] = frozenset({"spares", "seconds"})

    gradual: ClassVar[bool] = True

    def __init__(
        self,
        mu: float = 1.0,
        resolution: int = 1,
        spares: Literal["owed", "largest"] = "owed",
        seconds: int | None = None,
    ) -> None:
        if not 0 < number("SequenceShare: mu", mu) <= 1:
            raise InputError(f"SequenceShare: mu must be above 0 and at most 1, got {quoted(mu)}")
        if spares not in ("owed", "largest"):
            raise InputError(f"SequenceShare: spares must be 'owed' or 'largest', got {quoted(spares)}")
        self.mu = number("SequenceShare: mu", mu)
        self.resolution = whole("SequenceShare: resolution", resolution, 1, 1_000_000)
        self.spares = spares
        self.seconds = None if seconds is None else whole("SequenceShare: seconds", seconds, 1, _MOST_SECONDS)
        self.deployment: Deployment | None = None
        self.grains = True
        self.held: Mapping[Hashable, int] = {}
        self.since: float | None = None

    def __repr__(self) -> str:
        more = "" if self.spares == "owed" else f", spares={self.spares!r}"
        more += "" if self.seconds is None else f", seconds={self.seconds}"
        return f"SequenceShare(mu={self.mu}, resolution={self.resolution}{more})"

    @property
    def ticks(self) -> int:
        """Expected number of ticks of the use of a grain."""
        return self.seconds or 1

    def __call__(self, claims: Claims) -> Ints:
        """See `ShareProvider`."""
        deployment = self._joined(claims)
        if deployment is None:
            return claims.running.copy()
        twin = deployment.copy()
        at = twin.sequence.index(claims.ids)
        if not claims.capacity.size:
            free = max(0, claims.units - int(claims.running.sum()))
            wanted = np.zeros(len(twin.users), np.int64)
            wanted[at] = np.maximum(claims.tasks - claims.running, 0)  # more may run than a limit lets it claim
            return np.asarray(claims.running + twin.deal(free, wanted).units[at])
        amounts = _Amounts(claims)
        self._book_time(twin, claims, amounts)
        more = self._dealt(twin.copy(), claims, amounts, at)
        share: Ints = claims.running + more
        return share + self._taken_back(twin, claims, amounts, at, more) if claims.reclaim else share

    def remainder(self, claims: Claims) -> Ints:
        """See `ShareProvider`: task by task to the claimant that then owes least for its quota."""
        deployment = self._joined(claims)
        amounts = _Amounts(claims)
        owed, weight = np.zeros(len(claims.ids)), np.ones(len(claims.ids))
        if deployment is not None:
            twin = deployment.copy()
            at = twin.sequence.index(claims.ids)
            self._book_time(twin, claims, amounts)
            self._book_moves(twin, amounts.moved, at)
            owed = twin.ledger.net()[at] / self.ticks
            weight = _weights(twin, claims)
        pace = amounts.size / weight
        more = _deal(claims, amounts, pace, claims.tasks - claims.running, pace - owed / weight, amounts.room)
        return np.asarray(claims.running + more)

    def balance(self, claims: Claims) -> Ints:
        """Return the amount that each is owed (> 0) or owes (< 0), in tasks of mean size."""
        deployment = self._joined(claims)
        if deployment is None:
            return np.zeros(len(claims.ids), np.int64)
        net: Ints = deployment.ledger.net()[deployment.sequence.index(claims.ids)]
        if not claims.capacity.size:
            return net
        return np.rint(net / (_Amounts(claims).mean * self.ticks)).astype(np.int64)

    def committed(self, claims: Claims, started: Ints) -> None:
        """Book the tasks that started, and those that stopped for others."""
        deployment = self._joined(claims)
        if deployment is None:
            return
        at = deployment.sequence.index(claims.ids)
        if claims.capacity.size:
            amounts = _Amounts(claims)
            self._book_time(deployment, claims, amounts)
            booked = started * amounts.size if claims.booked is None else claims.booked * amounts.total
            if self.seconds is not None:
                now = np.maximum(np.rint(amounts.held - amounts.moved + booked), 0.0).astype(np.int64)
                self.held, self.since = dict(zip(claims.ids, now.tolist(), strict=True)), claims.now
        else:
            booked = started.astype(np.float64)
        self._book_moves(deployment, booked, at)
        if float(deployment.ledger.debt.sum(dtype=np.float64)) > _MOST_OWED:
            deployment.scale(0.5)

    def _book_moves(self, deployment: Deployment, moved: Floats, at: list[int]) -> None:
        """Book the grains of started tasks, and of tasks stopped for others."""
        units = np.zeros(len(deployment.users), np.int64)
        units[at] = np.rint(np.minimum(moved, _MOST_GRAINS)).astype(np.int64)
        if units.any():
            deployment.book(np.maximum(units, 0))
        if (units < 0).any():
            deployment.charge(np.minimum(units, 0) * self.ticks)

    def _dealt(self, twin: Deployment, claims: Claims, amounts: _Amounts, at: list[int]) -> Ints:
        """Return the number of tasks that each may start; the accounts given are a copy."""
        weight, size, part, room = _weights(twin, claims), amounts.size, amounts.part, amounts.room
        pace = size / weight
        deal = partial(_deal, claims, amounts, pace)
        wanted = np.maximum(claims.tasks - claims.running, 0)
        if claims.aside is not None and claims.aside.any():
            # Their unused part is lent, but not to a claimant that already owes as much as a task.
            wanted = np.where(twin.ledger.net()[at] > -size * self.ticks, wanted, 0)
        most = deal(wanted, pace, room)
        free = max(float(most @ size), float(room[(part > 0).any(axis=0)].min(initial=np.inf)) * amounts.total)
        free += max(float(amounts.moved.sum()), 0.0)
        if not np.isfinite(free):
            return most  # no claimant needs any resource
        busy = np.zeros(len(twin.users), np.bool_)
        busy[at] = wanted > 0
        _, received = twin._entitle(int(min(free, 2.0 * _MOST_GRAINS) + 0.5), busy)
        have = received[at] / self.ticks - amounts.moved
        if len(set(part[(size > 0) & (wanted > 0)].argmax(axis=1).tolist())) > 1:
            return deal(wanted, -have / weight, room)
        fit = np.divide(have + 0.5, size, out=np.full(len(size), np.inf), where=size > 0)
        first = deal(np.minimum(wanted, np.floor(np.clip(fit, 0, wanted)).astype(np.int64)), pace - have / weight, room)
        left = np.maximum(room - _sum(first, part), 0.0)
        # Debt of a claimant after one more task, for its quota.
        owes = pace * (first + 1) - (have + twin.ledger.net()[at] / self.ticks) / weight
        more = np.zeros_like(first)
        if self.spares == "largest":
            # Of equals, the claimant that is owed more for its quota comes first.
            merit = pace - owes
            for i in sorted(np.flatnonzero(first < wanted).tolist(), key=lambda i: (-size[i], -merit[i])):
                if (part[i] <= left).all():
                    more[i] = 1
                    left = left - part[i]
        more += deal(wanted - first - more, owes + more * pace, left)
        if claims.aside is not None:
            # Offered one by one, spares would take a step each, so as many as found no room are offered at once.
            others = np.flatnonzero((more == 0) & (first < wanted) & (part <= left).all(axis=1))
            more[others[np.argsort(owes[others], kind="stable")][: int(claims.aside.sum())]] = 1
        return first + more

    def _taken_back(self, twin: Deployment, claims: Claims, amounts: _Amounts, at: list[int], more: Ints) -> Ints:
        """Return the change of shares if borrowers are forced to give back the amounts that lenders need now."""
        self._book_moves(twin, amounts.moved + more * amounts.size, at)
        change, left = np.zeros_like(more), claims.running.copy()
        index = {user: i for i, user in enumerate(claims.ids)}
        short = np.where(np.isfinite(amounts.part).all(axis=1), claims.tasks - claims.running - more, 0)
        owed = twin.ledger.net()[at]
        for i in sorted(np.flatnonzero((short > 0) & (owed > 0) & (amounts.size > 0)).tolist(), key=lambda i: -owed[i]):
            need = int(np.ceil(short[i] * amounts.size[i])) * self.ticks
            forced = twin.ledger.reclaim(claims.ids[i], need, {}, force=True).forced
            freed, victims = 0.0, np.zeros_like(more)
            for user, owes in forced.items():
                j = index.get(user, -1)
                each = amounts.held[j] / max(int(claims.running[j]), 1) if j >= 0 else 0.0
                if each > 0:
                    victims[j] = min(int(owes / self.ticks / each + 1e-9), int(left[j]))
                    freed += victims[j] * each
            gain = int(freed / amounts.size[i] + 1e-9)
            if gain:
                change[i] += gain
                change -= victims
                left -= victims
        return change

    def _book_time(self, deployment: Deployment, claims: Claims, amounts: _Amounts) -> None:
        """Book the time since the last commit: add the use of held grains, and correct for ended tasks."""
        if self.seconds is None or self.since is None:
            return
        held = np.array([self.held.get(user, 0) for user in deployment.users], np.float64)
        now = np.zeros(len(held))
        now[deployment.sequence.index(claims.ids)] = amounts.held - amounts.moved
        used = held * max(claims.now - self.since, 0.0) + (now - held) * self.seconds
        limit = _MOST_OWED / max(len(held), 1)
        deployment.charge(np.rint(np.clip(used, -limit, limit)).astype(np.int64))

    def _joined(self, claims: Claims) -> Deployment | None:
        """Return the accounts with all present claimants; other claimants have no tasks, and stay."""
        weights = np.minimum(
            np.rint(claims.weight * self.resolution), LARGEST - 1
        )  # so that no event can stop all rounds
        quotas = dict(zip(claims.ids, weights.astype(np.int64).tolist(), strict=True))
        if self.deployment is None:
            if not any(quotas.values()):
                return None
            self.deployment = Deployment(quotas, mu=self.mu, ticks=self.ticks)
        elif not self.grains and claims.capacity.size:
            self.deployment.scale(_Amounts(claims).mean)
        self.grains |= claims.capacity.size > 0
        known = self.deployment.sequence.quotas
        for who, quota in quotas.items():
            if who not in known:
                self.deployment.join(who, quota)
            elif known[who] != quota:
                self.deployment.update(who, quota)
        return self.deployment


class _Amounts:
    """Amounts of claims as parts of the cluster and in grains.

    `total` and `mean` are the grains of the cluster, and of a task of mean size.  `part`, shape (n, D), is the part of
    each resource that one more task takes, infinite for a resource without capacity.  `size`, `held` and `moved`, shape
    (n,), are the grains of such a task (0 if its part is infinite), of the running tasks, and of those started in this
    round.  `room`, shape (D,), is the free part of each resource.
    """

    def __init__(self, claims: Claims) -> None:
        capacity = claims.capacity
        self.total = float(min(capacity[capacity > 0][:1].sum(), _MOST_GRAINS))
        self.mean = max(self.total / max(claims.units, 1), 1.0)
        held = claims.running[:, None] * claims.demand if claims.held is None else claims.held
        held = np.asarray(np.where(capacity > 0, held, 0.0) / np.maximum(capacity, 1e-300), np.float64)
        further = claims.demand if claims.further is None else claims.further
        there = np.broadcast_to(capacity, further.shape)
        self.part = np.divide(further, there, out=np.where(further > 0, np.inf, 0.0), where=there > 0)
        largest = self.part.max(axis=1, initial=0.0)
        self.size = np.where(np.isfinite(largest), largest, 0.0) * self.total
        self.held = held.max(axis=1, initial=0.0) * self.total
        self.moved = np.zeros(len(self.held)) if claims.moved is None else claims.moved * self.total
        bound = np.ones(len(capacity)) if claims.most is None else claims.most
        self.room = np.maximum(bound - held.sum(axis=0), 0.0) + 1e-9


def _weights(deployment: Deployment, claims: Claims) -> Floats:
    """Return the quotas of claimants, none of them 0."""
    quotas = np.array([deployment.sequence.quotas[user] for user in claims.ids], np.float64)
    return np.asarray(np.maximum(quotas, 1e-9))


def _deal(claims: Claims, amounts: _Amounts, pace: Floats, tasks: Ints, stand: Floats, room: Floats) -> Ints:
    """Distribute room by standing, at these paces; of equals, the last one is next, as in max deficit."""
    rows, go_on = slice(None, None, -1), claims.most is None
    return fill(tasks[rows], stand[rows, None], pace[rows, None], amounts.part[rows], room, go_on=go_on)[rows]


def _sum(tasks: Ints, part: Floats) -> Floats:
    return np.asarray(tasks @ np.where(tasks[:, None] > 0, part, 0.0), np.float64)
