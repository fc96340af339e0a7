"""Ledger of debts between users, without interest, chains or cycles.

A user that cannot use its units lends them.  At any time a user owes others, or is owed by others, or neither.  If a
loan would make a user both, the debt moves so that every net position changes by the loan alone.  The
ledger is a matrix ``debt[t, s]`` (t owes s); a user with an entry in its row has none in its column.

Source: Wang, Hong and Feng, "Resource deployment strategy for multi-user cluster", section 2.1 (2).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flowsched.boundary.validate import check_id, mapping, number, ordered, quoted, whole_vector
from flowsched.exceptions import DuplicateIdError, InputError, UnknownIdError
from flowsched.sharing.deployment_sequence import check_units

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Reclaimed:
    """Repayment to a lender.

    Parameters
    ----------
    returned : mapping of user to int
        Idle units of its own borrowers.
    moved : mapping of user to int
        Idle units of others, to which its borrowers now owe them.
    forced : mapping of user to int
        Units that borrowers use and have to give up now.
    waits : int
        Units still owed, which come with the next heartbeats.
    """

    returned: Mapping[Hashable, int]
    moved: Mapping[Hashable, int]
    forced: Mapping[Hashable, int]
    waits: int


class Ledger:
    """Debts between users, in whole units (grains, or grains times ticks of time).

    Parameters
    ----------
    users : iterable of hashable
        In any order; it decides which user comes first among equals.

    Attributes
    ----------
    users : tuple
    debt : ndarray of int64, shape (n, n)
        ``debt[t, s]``: units that user t owes user s; not to be altered.

    Examples
    --------
    >>> ledger = Ledger("kmn")
    >>> ledger.borrow("k", "m", 2)
    >>> ledger.borrow("n", "m", 5)
    >>> ledger.borrow("k", "n", 3)  # n owes m: it cannot lend, so its debt moves
    >>> ledger.debts()
    {('k', 'm'): 5, ('n', 'm'): 2}
    """

    def __init__(self, users: Iterable[Hashable] = ()) -> None:
        self.users: tuple[Hashable, ...] = ()
        self.debt: Ints = np.zeros((0, 0), np.int64)
        for user in users if isinstance(users, str) else ordered("users", users):
            self.join(user)

    def __repr__(self) -> str:
        return f"<Ledger {self.debts()}>"

    def join(self, user: Hashable) -> None:
        """Add a user without debts."""
        check_id("user", user)
        if user in self.users:
            raise DuplicateIdError(f"user {user!r} already exists")
        self.users = (*self.users, user)
        self.debt = np.pad(self.debt, (0, 1))

    def leave(self, user: Hashable, quotas: Mapping[Hashable, int]) -> None:
        """Remove a user without debts; its claims pass to the others in proportion to their quotas.

        Parts are rounded down; the remainder, and the borrower's own part, are cancelled.

        Parameters
        ----------
        quotas : mapping of user to int
            Quotas of the others; 0 for a user without an entry.

        Raises
        ------
        InputError
            The user still owes something.
        """
        gone = self._index(user)
        if self.debt[gone].any():
            raise InputError(f"user {user!r} still owes {int(self.debt[gone].sum())} units")
        for name, quota in mapping("quotas", quotas).items():
            check_units(f"quotas[{name!r}]", quota)
        claims = self.debt[:, gone].tolist()
        weights = [0 if i == gone else int(quotas.get(name, 0)) for i, name in enumerate(self.users)]
        self.debt[:, gone] = 0
        for borrower, claim in enumerate(claims):
            for heir, weight in enumerate(weights):
                part = claim * weight // max(1, sum(weights))
                if part and heir != borrower:
                    self._lend(borrower, heir, part)
        self.users = self.users[:gone] + self.users[gone + 1 :]
        self.debt = np.delete(np.delete(self.debt, gone, 0), gone, 1)

    def borrow(self, borrower: Hashable, lender: Hashable, units: int) -> None:
        """Record a loan of units; debts move so that no user both owes and is owed."""
        check_units("units", units)
        k, n = self._index(borrower), self._index(lender)
        if k == n:
            raise InputError(f"user {borrower!r} cannot borrow from itself")
        self._lend(k, n, int(units))

    def repay(self, borrower: Hashable, lender: Hashable, units: int) -> None:
        """Record a repayment of units."""
        check_units("units", units)
        at = self._index(borrower), self._index(lender)
        if units > self.debt[at]:
            raise InputError(f"units: {borrower!r} owes {lender!r} {int(self.debt[at])}, not {units}")
        self.debt[at] -= units

    def owed(self, borrower: Hashable, lender: Hashable) -> int:
        """Return the units that one user owes another."""
        return int(self.debt[self._index(borrower), self._index(lender)])

    def debts(self) -> dict[tuple[Hashable, Hashable], int]:
        """Return all debts: (borrower, lender) -> units."""
        pairs = zip(*np.nonzero(self.debt), strict=True)
        return {(self.users[t], self.users[s]): int(self.debt[t, s]) for t, s in pairs}

    def net(self) -> Ints:
        """Return the units that each user is owed (> 0) or owes (< 0), shape (n,); they sum to 0."""
        balance: Ints = self.debt.sum(axis=0) - self.debt.sum(axis=1)
        return balance

    def settle(self, received: Ints, limit: Ints) -> Ints:
        """Pay debts from the borrowers' receipts, first lenders first.

        Parameters
        ----------
        received : ndarray of int64, shape (n,)
            Present entitlement of each user.
        limit : ndarray of int64, shape (n,)
            Largest payment of each user.

        Returns
        -------
        ndarray of int64, shape (n,)
            Rest of each user after all payments.
        """
        received, limit = (whole_vector(*one, len(self.users)) for one in (("received", received), ("limit", limit)))
        if not self.debt.any():
            return received
        paid = _first(self.debt, np.minimum(limit, received)[:, None])
        self.debt = self.debt - paid
        after: Ints = received + paid.sum(axis=0) - paid.sum(axis=1)
        return after

    def balance(self, gain: Ints) -> None:
        """Book use beyond a user's part (> 0) or units left to others (< 0), shape (n,); the sum must be 0."""
        gain = whole_vector("gain", gain, len(self.users))
        if gain.sum():
            raise InputError(f"gain must sum to 0, got {gain.tolist()}")
        more, less = np.maximum(gain, 0), np.maximum(-gain, 0)
        loans = _matched(more, less)
        for k, n in zip(*np.nonzero(loans), strict=True):
            self._lend(int(k), int(n), int(loans[k, n]))

    def scale(self, factor: float) -> None:
        """Multiply all debts, for a change of the unit; fractions of a unit are rounded."""
        self.debt = np.rint(self.debt * factor).astype(np.int64)

    def reclaim(
        self, lender: Hashable, units: int, idle: Mapping[Hashable, int], *, fraction: float = 1.0, force: bool = False
    ) -> Reclaimed:
        """Get units for a lender now: from its borrowers' idle ones, from those of others, or by force.

        Parameters
        ----------
        lender : hashable
        units : int
            Number of units that it needs; it gets at most those that it is owed.
        idle : mapping of user to int
            Unused units of each user.
        fraction : float
            Damping mu (0 < mu <= 1).  Of a debt r, a user with f idle units gives r mu at once while r <= f, else f mu,
            rounded down.  With 1 it gives all it can, as a borrower without tasks should.
        force : bool
            True to take the rest from units that borrowers use; otherwise it waits for the next heartbeat.
        """
        check_units("units", units)
        if not 0 < number("fraction", fraction) <= 1:
            raise InputError(f"fraction: a number above 0 and at most 1 expected, got {quoted(fraction)}")
        n = self._index(lender)
        spare = np.zeros(len(self.users), np.int64)
        for name, count in mapping("idle", idle).items():
            check_units(f"idle[{name!r}]", count)
            spare[self._index(name)] = count
        spare[n] = 0
        want = min(int(units), int(self.debt[:, n].sum()))
        returned = _first(_damped(np.minimum(spare, self.debt[:, n]), fraction), want)  # (A)
        self.debt[:, n] -= returned
        # (B) Idle units of a user that owes nothing here pay the debts of others.
        spare = np.where(self.debt[:, n] > 0, 0, spare - returned)
        moved = np.zeros(len(self.users), np.int64)
        left, debt = want - int(returned.sum()), int(self.debt[:, n].sum())
        for k in np.flatnonzero(spare).tolist():
            moved[k] = min(left, _part(min(debt, int(spare[k])), fraction))
            left, debt = left - int(moved[k]), debt - int(moved[k])
        for k in np.flatnonzero(moved).tolist():
            self._lend(n, k, int(moved[k]))
        rest = want - int(returned.sum() + moved.sum())
        forced = _first(self.debt[:, n], rest if force else 0)
        self.debt[:, n] -= forced
        return Reclaimed(self._named(returned), self._named(moved), self._named(forced), rest - int(forced.sum()))

    def _named(self, units: Ints) -> dict[Hashable, int]:
        return {self.users[i]: int(units[i]) for i in np.flatnonzero(units).tolist()}

    def _index(self, user: Hashable) -> int:
        try:
            return self.users.index(user)
        except ValueError:
            raise UnknownIdError(f"unknown user {user!r}") from None

    def _lend(self, k: int, n: int, units: int) -> None:
        """Record that k borrows from n."""
        debt = self.debt
        back = min(units, int(debt[n, k]))
        debt[n, k] -= back
        units -= back
        # Debtors of k and creditors of n: these settle with each other first, then they take the place of k or n.
        both = min(units, int(debt[:, k].sum()), int(debt[n].sum()))
        if both:
            debtors, creditors = _first(debt[:, k], both), _first(debt[n], both)
            debt[:, k] -= debtors
            debt[n] -= creditors
            debt += _matched(debtors, creditors)
            units -= both
        debtors = _first(debt[:, k], units)
        debt[:, k] -= debtors
        debt[:, n] += debtors
        units -= int(debtors.sum())
        creditors = _first(debt[n], units)
        debt[n] -= creditors
        debt[k] += creditors
        debt[k, n] += units - int(creditors.sum())


def _damped(units: Ints, fraction: float) -> Ints:
    """Return amounts times a fraction, rounded down."""
    return np.array([_part(count, fraction) for count in units.tolist()], np.int64)


def _part(units: int, fraction: float) -> int:
    return units if fraction == 1 else min(units, int(units * fraction))


def _first(amounts: Ints, units: int | Ints) -> Ints:
    """Return the first `units` of amounts along the last axis."""
    upto = np.minimum(np.cumsum(amounts, axis=-1), units)
    taken: Ints = np.diff(upto, axis=-1, prepend=0)
    return taken


def _matched(left: Ints, right: Ints) -> Ints:
    """Return a matrix with these row and column sums: laid out on one line, overlapping parts belong together."""
    a, b = np.cumsum(left), np.cumsum(right)
    upper = np.minimum(a[:, None], b[None, :])
    lower = np.maximum((a - left)[:, None], (b - right)[None, :])
    overlap: Ints = np.maximum(upper - lower, 0)
    return overlap
