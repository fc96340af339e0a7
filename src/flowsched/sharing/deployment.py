"""Sharing over time: the deployment sequence keeps entitlements, the ledger keeps loans.

On every heartbeat some units are free.  The sequence divides them, borrowers pay their debts from their part, and each
user runs tasks in the rest.  Others may use the unused part of a user, and owe it; units without any use roll the
sequence back.

Source: Wang, Hong and Feng, "Resource deployment strategy for multi-user cluster", sections 2.1 and 2.2.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from flowsched.boundary.validate import mapping, number, quoted, whole, whole_vector
from flowsched.exceptions import InputError
from flowsched.sharing.deployment_sequence import DeploymentSequence, Method, check_units
from flowsched.sharing.ledger import Ledger
from flowsched.sharing.waterfill import water_fill

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Heartbeat:
    """Use of the free units of one heartbeat; arrays of shape (n,) in the order of `users`.

    Parameters
    ----------
    users : tuple
    entitled : ndarray of int64
        Entitlements by the sequence.
    received : ndarray of int64
        Entitlements after debts, in units times ticks.
    units : ndarray of int64
        Units that each user runs.
    tasks : ndarray of int64
        Tasks that each user starts, from the head of its queue.
    spare : ndarray of bool
        True if the last of these is a spare, which needed more than the user had.
    left : int
        Units without a use.
    """

    users: tuple[Hashable, ...]
    entitled: Ints
    received: Ints
    units: Ints
    tasks: Ints
    spare: NDArray[np.bool_]
    left: int


class Deployment:
    """Proportional sharing among users, with lending.

    Parameters
    ----------
    quotas : mapping of user to int
    mu : float
        Part of the possible repayment that a borrower with tasks pays per heartbeat (0 < mu <= 1); fractions of units are
        carried over.  A borrower without tasks pays all it can.
    method : {"max_deficit", "min_ratio"}
    spares : {"largest", "owed"}
        The spare task that gets left-over grains first: the largest that fits (the source's rule; of equals, that of the
        user that is owed more for its quota), or always that of the user that is owed more.  The second rule keeps the
        proportions if heartbeats bring few grains and most tasks start as spares.
    ticks : int
        1: users share units.  More: they share units times ticks of time, and this is the expected number of ticks of a
        unit's use; `finished` corrects it afterwards.

    Attributes
    ----------
    sequence : DeploymentSequence
    ledger : Ledger
        In units times ticks.

    Examples
    --------
    >>> sharing = Deployment({"A": 5, "B": 3})
    >>> sharing.deal(5, {"A": 1, "B": 9}).units.tolist()  # A lends 2 of its 3
    [1, 4]
    >>> sharing.ledger.debts()
    {('B', 'A'): 2}
    >>> sharing.deal(5, {"A": 9, "B": 9}).units.tolist()
    [5, 0]
    """

    def __init__(
        self,
        quotas: Mapping[Hashable, int],
        *,
        mu: float = 1.0,
        method: Method = "max_deficit",
        spares: Literal["largest", "owed"] = "largest",
        ticks: int = 1,
    ) -> None:
        if spares not in ("largest", "owed"):
            raise InputError(f"spares: 'largest' or 'owed' expected, got {quoted(spares)}")
        if not 0 < number("mu", mu) <= 1:
            raise InputError(f"mu: a number above 0 and at most 1 expected, got {quoted(mu)}")
        self.mu = mu
        self.spares = spares
        self.ticks = whole("ticks", ticks, 1, 1 << 30)
        self.sequence = DeploymentSequence(mapping("quotas", quotas), method)
        self.ledger = Ledger(self.sequence.users)
        self._weights = np.array(list(quotas.values()), np.float64)
        self._carried = np.zeros(len(self._weights))
        self._leaving: dict[Hashable, None] = {}

    @property
    def users(self) -> tuple[Hashable, ...]:
        """Users, in the order of all arrays."""
        return self.sequence.users

    def join(self, user: Hashable, quota: int) -> None:
        """Add a user."""
        self.sequence.join(user, quota)
        self.ledger.join(user)
        self._weights = np.append(self._weights, float(quota))
        self._carried = np.append(self._carried, 0.0)

    def update(self, user: Hashable, quota: int) -> None:
        """Change a user's quota."""
        self.sequence.update(user, quota)
        self._weights[self.sequence.index([user])] = quota

    def copy(self) -> Deployment:
        """Return an independent copy, for a trial heartbeat."""
        twin = copy.copy(self)
        twin.sequence = copy.copy(self.sequence)
        twin.ledger = copy.copy(self.ledger)
        twin.ledger.debt = self.ledger.debt.copy()
        twin._weights, twin._carried = self._weights.copy(), self._carried.copy()
        twin._leaving = dict(self._leaving)
        return twin

    def leave(self, user: Hashable) -> None:
        """Remove a user: at once if it owes nothing, else as soon as its receipts have paid its debts."""
        self.sequence.index([user])
        if len(self.users) - len(self._leaving) == 1 and user not in self._leaving:
            raise InputError(f"user {user!r} is the last one")
        self._leaving[user] = None
        self._part()

    def _part(self) -> None:
        """Remove leaving users that owe nothing."""
        for user in list(self._leaving):
            i = self.sequence.index([user])[0]
            if not self.ledger.debt[i].any():
                heirs = {other: q for other, q in self.sequence.quotas.items() if other != user}
                self.sequence.leave(user)
                self.ledger.leave(user, heirs)
                self._weights, self._carried = np.delete(self._weights, i), np.delete(self._carried, i)
                del self._leaving[user]

    def deal(self, free: int, wanted: Mapping[Hashable, int] | Sequence[int] | Ints) -> Heartbeat:
        """Distribute the equal units of a heartbeat.

        Parameters
        ----------
        free : int
            Free units.
        wanted : mapping of user to int, or array of int, shape (n,)
            Units that each user can use now.

        Returns
        -------
        Heartbeat
            A unit is a task.
        """
        check_units("free", free)
        want = self._wanted(wanted)
        entitled, received = self._entitle(free, want > 0)
        units = np.minimum(received // self.ticks, want)
        rest = free - int(units.sum())
        if rest:
            # Fractions of a unit first, to the users that are owed most; then unused units, in proportion.
            merit = self._merit(received - units * self.ticks)
            part = np.where(units < want, received % self.ticks, 0)
            first = np.argsort(-merit, kind="stable")[: int(part.sum()) // self.ticks]
            units[first[part[first] > 0]] += 1
            rest = free - int(units.sum())
            units += water_fill(rest, want - units, self._weights)
        left = self._book(free, received, units)
        return Heartbeat(self._settled(), entitled, received, units, units, np.zeros(len(units), np.bool_), left)

    def deal_sizes(self, free: int, queues: Mapping[Hashable, Sequence[int] | Ints]) -> Heartbeat:
        """Distribute the grains of a heartbeat to tasks of given sizes.

        Each user starts tasks from the head of its queue while they fit into its part, and offers the next one as a
        spare; left-over grains go to the spares, the largest that fits first, at the price of a debt.

        Parameters
        ----------
        free : int
            Free grains.
        queues : mapping of user to sequence of int
            Sizes of the tasks of each user in grains, in its own order.
        """
        check_units("free", free)
        sizes = [np.zeros(0, np.int64)] * len(self.users)
        for user, i in zip(queues, self.sequence.index(mapping("queues", queues)), strict=True):
            sizes[i] = _sizes(f"queues[{user!r}]", queues[user])
            if user in self._leaving:
                sizes[i] = sizes[i][:0]
        entitled, received = self._entitle(free, np.array([len(queue) > 0 for queue in sizes], np.bool_))
        upto = [np.cumsum(queue) for queue in sizes]
        have = (received // self.ticks).tolist()
        tasks = np.array(
            [np.searchsorted(sums, grains, "right") for sums, grains in zip(upto, have, strict=True)], np.int64
        )
        units = np.array([sums[n - 1] if n else 0 for sums, n in zip(upto, tasks, strict=True)], np.int64)
        rest = free - int(units.sum())
        spare = np.zeros(len(sizes), np.bool_)
        waiting = [
            (i, int(queue[n])) for i, (queue, n) in enumerate(zip(sizes, tasks.tolist(), strict=True)) if n < len(queue)
        ]
        merit = self._merit(received - units * self.ticks)
        if self.spares == "owed":
            waiting.sort(key=lambda one: -merit[one[0]])
        else:
            waiting.sort(key=lambda one: (-one[1], -merit[one[0]]))
        for i, size in waiting:
            if size <= rest:
                rest -= size
                units[i] += size
                spare[i] = True
        tasks += spare
        left = self._book(free, received, units)
        return Heartbeat(self._settled(), entitled, received, units, tasks, spare, left)

    def book(self, units: Ints) -> None:
        """Book the units that users have started: the sequence moves on, and debts are paid or made.

        Parameters
        ----------
        units : ndarray of int64, shape (n,)
        """
        units = whole_vector("units", units, len(self.users))
        if (units < 0).any():
            raise InputError(f"units[{int(np.argmax(units < 0))}] must not be negative, got {int(units.min())}")
        used = int(units.sum())
        _, received = self._entitle(used, np.ones(len(units), np.bool_))
        self._book(used, received, units)
        self._part()

    def finished(self, user: Hashable, units: int, ticks: int) -> None:
        """Book the difference between the real and the expected ticks of a user's units.

        The user bears its own part of it; the others are owed the rest, or owe it.
        """
        check_units("units", units)
        check_units("ticks", ticks)
        used = np.zeros(len(self.users), np.int64)
        used[self.sequence.index([user])] = int(units) * (int(ticks) - self.ticks)
        self.charge(used)

    def charge(self, used: Ints) -> None:
        """Book use beyond that of `book` (> 0), or less (< 0); the position in the sequence stays.

        Parameters
        ----------
        used : ndarray of int64, shape (n,)
            In units times ticks.  All users together owe or are owed it, in proportion to their quotas.
        """
        used = whole_vector("used", used, len(self.users))
        total = int(used.sum())
        part = water_fill(abs(total), np.full(len(used), abs(total), np.int64), self._weights)
        self.ledger.balance(used - part if total > 0 else used + part)

    def scale(self, factor: float) -> None:
        """Multiply all debts, for a change of the unit."""
        self.ledger.scale(factor)
        self._carried = self._carried * factor

    def _wanted(self, wanted: Mapping[Hashable, int] | Sequence[int] | Ints) -> Ints:
        if isinstance(wanted, Mapping):
            want = np.zeros(len(self.users), np.int64)
            want[self.sequence.index(wanted)] = [
                whole(f"wanted[{user!r}]", n, 0, 1 << 60) for user, n in wanted.items()
            ]
        else:
            want = whole_vector("wanted", wanted, len(self.users))
            if (want < 0).any():
                i = int(np.argmax(want < 0))
                raise InputError(f"wanted[{self.users[i]!r}] must be a whole number >= 0, got {want[i]}")
        want[self.sequence.index(self._leaving)] = 0
        return want

    def _entitle(self, free: int, busy: NDArray[np.bool_]) -> tuple[Ints, Ints]:
        """Return entitlements by the sequence, and after debts (in units times ticks)."""
        entitled = self.sequence.draw(free)
        part = entitled * self.ticks
        debts = self.ledger.debt.sum(axis=1)
        could = np.minimum(part, debts)
        if self.mu < 1:
            self._carried = np.where(debts > 0, self._carried + self.mu * could, 0.0)
            could = np.where(busy, np.minimum(could, np.floor(self._carried)).astype(np.int64), could)
            self._carried = np.maximum(self._carried - could, 0.0)
        return entitled, self.ledger.settle(part, could)

    def _merit(self, unused: Ints) -> NDArray[np.float64]:
        """Return the amount that each user is owed, with its unused units, for its quota."""
        merit: NDArray[np.float64] = (self.ledger.net() + unused) / np.maximum(self._weights, 1e-9)
        return merit

    def _book(self, free: int, received: Ints, units: Ints) -> int:
        """Roll back unused units, and book each user's use beyond or below its part."""
        left = free - int(units.sum())
        part = received - self.sequence.roll_back(left) * self.ticks if left else received
        self.ledger.balance(units * self.ticks - part)
        return left

    def _settled(self) -> tuple[Hashable, ...]:
        users = self.users
        self._part()
        return users


def _sizes(what: str, queue: Sequence[int] | Ints) -> Ints:
    """Return sizes of tasks, in their order."""
    sizes = whole_vector(what, queue, len(queue) if isinstance(queue, Sequence | np.ndarray) else 0)
    if (sizes <= 0).any():
        at = int(np.argmax(sizes <= 0))
        raise InputError(f"{what}[{at}]: a size above 0 expected, got {sizes[at]}")
    return sizes
