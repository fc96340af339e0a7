"""The deployment sequence: the user of each next unit, so that proportions are kept at every position.

Each user i owns a proportion, an integer quota R_i.  *Min ratio* gives the next unit to the user with the smallest
r_i / R_i, where r_i is its number of units so far (of equals, the first).  So the k-th unit of user i has the key
(k - 1) / R_i, and the sequence is all keys in order.  *Max deficit* takes the user with the largest (r_i - 1) / R_i,
where r_i is its number of remaining units (of equals, the last); its keys run through the same values downwards, so it
is min ratio reversed.  After sum R_i units both begin again, and quotas with a common divisor m run through m equal
periods, so one period is enough: the numbers of units by user among the first p follow by arithmetic, at any p.

Source: Wang, Hong and Feng, "Resource deployment strategy for multi-user cluster", sections 2.1 and 2.2.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from flowsched.boundary.validate import check_id, ids, ordered, quoted, whole
from flowsched.exceptions import DuplicateIdError, InputError, UnknownIdError

Ints = NDArray[np.int64]
Method = Literal["max_deficit", "min_ratio"]

_METHODS = ("max_deficit", "min_ratio")
_LONGEST = 1 << 26
"""Largest number of entries of a sequence that is written out."""
_TABLE = 1 << 18
"""Largest number of entries of a table of counts for one period."""
LARGEST = 1 << 30
"""Upper bound of quotas after division by their common divisor, exclusive: a key times 2**32 fits in 64 bits."""


def sequence(quotas: Sequence[int] | Ints, method: Method = "max_deficit") -> Ints:
    """Return the deployment sequence, written out.

    Parameters
    ----------
    quotas : sequence of int, shape (n,)
        Units of each user; 0 for a user that never has a turn.
    method : {"max_deficit", "min_ratio"}

    Returns
    -------
    ndarray of int64, shape (sum of quotas,)
        Indices of users.

    Raises
    ------
    InputError
        A quota is no whole number >= 0, all are 0, or the sequence would have more than 2**26 entries
        (`DeploymentSequence` draws from one of any length).

    Examples
    --------
    >>> "".join("AB"[i] for i in sequence([5, 3]))
    'ABAABABA'
    """
    checked, times = _reduced(quotas, method)
    if int(checked.sum()) * times > _LONGEST:
        raise InputError(
            f"quotas: a sequence of {int(checked.sum()) * times} entries is not written out, only up to {_LONGEST}"
        )
    return np.tile(_period(checked, method), times)


def _reduced(quotas: Sequence[int] | Ints, method: str) -> tuple[Ints, int]:
    """Return the quotas divided by their common divisor, and the divisor."""
    if method not in _METHODS:
        raise InputError(f"method: one of {', '.join(_METHODS)} expected, got {quoted(method)}")
    quotas = ordered("quotas", quotas)
    for i, quota in enumerate(quotas):
        check_units(f"quotas[{i}]", quota)
    common = math.gcd(*(int(quota) for quota in quotas))
    if not common:
        raise InputError("quotas: at least one must be above 0")
    reduced = [int(quota) // common for quota in quotas]
    if max(reduced) >= LARGEST:
        raise InputError(
            f"quotas[{reduced.index(max(reduced))}]: {max(reduced)} after division by {common} is not below {LARGEST}"
        )
    return np.array(reduced, np.int64), common


def check_units(what: str, units: object) -> None:
    """Refuse anything but a whole number >= 0 that fits in 60 bits."""
    whole(what, units, 0, (1 << 60) - 1)


def _period(quotas: Ints, method: Method) -> Ints:
    user = np.repeat(np.arange(len(quotas)), quotas)
    nth = np.arange(len(user)) - np.repeat(np.cumsum(quotas) - quotas, quotas)
    # Equal fractions round alike, and others differ by at least 1 / (R_i * R_j) > 2**-51, more than the error of a double,
    # because the two largest quotas sum to at most `_LONGEST` (products below 2**50).
    order = np.lexsort((user, nth / quotas[user]))
    return user[order] if method == "min_ratio" else user[order[::-1]]


class PeriodCounts:
    """Numbers of entries by user among the first p entries, for any p >= 0."""

    def __init__(self, quotas: Ints, method: Method) -> None:
        self.quotas = quotas
        self.length = int(quotas.sum())
        self._reverse = method == "max_deficit"
        self._table: Ints | None = None
        if (self.length + 1) * len(quotas) <= _TABLE:
            self._table = np.zeros((self.length + 1, len(quotas)), np.int64)
            self._table[np.arange(1, self.length + 1), _period(quotas, method)] = 1
            np.cumsum(self._table, axis=0, out=self._table)

    def within(self, position: Ints) -> Ints:
        """Return the counts at positions 0 to `length`, shape (..., n)."""
        if self._table is not None:
            counts: Ints = self._table[position]
            return counts
        if self._reverse:
            return self.quotas - self._by_threshold(self.length - position)
        return self._by_threshold(position)

    def _by_threshold(self, position: Ints) -> Ints:
        """Return the counts of min ratio by bisection of the key at a position; ties are then settled in order."""
        position = np.asarray(position, np.int64)[..., None]
        low, high = np.zeros_like(position), np.full_like(position, 1 << 32)
        while (high - low).max(initial=0) > 1:
            middle = (low + high) >> 1
            below = self._below(middle).sum(axis=-1, keepdims=True) <= position
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        counts = self._below(low)
        # Keys of one user are further apart than 2**-32, so at most one of each is left between low and high.
        for at in np.ndindex(counts.shape[:-1]):
            missing = int(position[at][0] - counts[at].sum())
            if missing:
                key = {
                    i: Fraction(int(counts[at][i]), int(self.quotas[i]))
                    for i in np.flatnonzero(counts[at] < self.quotas).tolist()
                }
                counts[at][sorted(key, key=lambda i: (key[i], i))[:missing]] += 1
        return counts

    def _below(self, threshold: Ints) -> Ints:
        """Return the number of keys k / R_i below threshold / 2**32, by user."""
        return (threshold * self.quotas + (1 << 32) - 1) >> 32


class DeploymentSequence:
    """An endless deployment sequence and the position up to which it is used.

    The sequence is not written out: the cost of drawing does not depend on the number of units.

    Parameters
    ----------
    quotas : mapping of user to int, or sequence of int
        A sequence's users are 0, 1, 2, ...
    method : {"max_deficit", "min_ratio"}
    position : int
        Number of units used before.

    Attributes
    ----------
    users : tuple
        In order of joining, which decides between equals.
    position : int
        Number of units used in this period of the sequence (modulo `total`).

    Examples
    --------
    >>> turns = DeploymentSequence({"A": 5, "B": 3})
    >>> [turns.draw(5).tolist() for _ in range(3)]
    [[3, 2], [3, 2], [3, 2]]
    >>> turns.draw(5).tolist()
    [4, 1]
    """

    def __init__(
        self, quotas: Mapping[Hashable, int] | Sequence[int], method: Method = "max_deficit", position: int = 0
    ) -> None:
        named: dict[Hashable, int] = {}
        named.update(quotas if isinstance(quotas, Mapping) else enumerate(ordered("quotas", quotas)))
        check_units("position", position)
        self.method = method
        self._set(named)
        self.position = position % self.total

    def _set(self, quotas: Mapping[Hashable, int]) -> None:
        reduced, _ = _reduced(list(quotas.values()), self.method)
        self._counts = PeriodCounts(reduced, self.method)
        self._quotas = {user: int(quota) for user, quota in quotas.items()}
        self.users: tuple[Hashable, ...] = tuple(quotas)
        self.total = sum(self._quotas.values())

    def __repr__(self) -> str:
        return f"<DeploymentSequence {self._quotas}, {self.position} of {self.total} used>"

    @property
    def quotas(self) -> Mapping[Hashable, int]:
        """Quota by user."""
        return dict(self._quotas)

    @property
    def period(self) -> int:
        """Number of units after which the sequence repeats."""
        return self._counts.length

    def peek(self, units: int | Sequence[int] | Ints) -> Ints:
        """Return the next units by user, without using them; see `draw`."""
        wanted = np.asarray(units)
        if wanted.dtype.kind not in "iu" or wanted.ndim > 1 or (wanted < 0).any():
            raise InputError(f"units: a whole number >= 0 or a vector of them expected, got {quoted(units)}")
        ends = self.position % self.period + np.cumsum(np.concatenate([[0], wanted.ravel().astype(np.int64)]))
        whole, rest = np.divmod(ends, self.period)
        upto = whole[:, None] * self._counts.quotas + self._counts.within(rest)
        counts = np.diff(upto, axis=0)
        return counts[0] if wanted.ndim == 0 else counts

    def draw(self, units: int | Sequence[int] | Ints) -> Ints:
        """Use the next units of the sequence.

        Parameters
        ----------
        units : int, or array of int, shape (k,)
            Number of units; several numbers are drawn one after the other.

        Returns
        -------
        ndarray of int64, shape (n,) or (k, n)
            Number of units of each user, in the order of `users`.
        """
        counts = self.peek(units)
        self.position = (self.position + int(counts.sum())) % self.total
        return counts

    def roll_back(self, units: int) -> Ints:
        """Take back the last units drawn.

        Returns
        -------
        ndarray of int64, shape (n,)
            Number of returned units of each user.
        """
        check_units("units", units)
        self.position = (self.position - units) % self.total
        return self.peek(units)

    def join(self, user: Hashable, quota: int) -> None:
        """Add a user, as if it had used the same part of its quota in this period as all others."""
        check_id("user", user)
        if user in self._quotas:
            raise DuplicateIdError(f"user {user!r} already exists")
        check_units(f"user {user!r}: quota", quota)
        used = self._part(quota)
        self._set({**self._quotas, user: quota})
        self.position = (self.position + used) % self.total

    def leave(self, user: Hashable) -> None:
        """Remove a user, with the part of its quota that was used in this period."""
        used = self._part(self._quota(user))
        left = {other: quota for other, quota in self._quotas.items() if other != user}
        if not any(left.values()):
            raise InputError(f"user {user!r} is the last one with a quota")
        self._set(left)
        self.position = max(0, self.position - used) % self.total

    def update(self, user: Hashable, quota: int) -> None:
        """Change a user's quota; the same part of the period as before counts as used."""
        self._quota(user)
        check_units(f"user {user!r}: quota", quota)
        position, total = self.position, self.total
        self._set({**self._quotas, user: quota})
        self.position = position * self.total // total

    def _quota(self, user: Hashable) -> int:
        self.index([user])
        return self._quotas[user]

    def _part(self, quota: int) -> int:
        """Return floor(used / total * quota + 1/2), exactly."""
        return (2 * self.position * quota + self.total) // (2 * self.total)

    def index(self, users: Iterable[Hashable]) -> list[int]:
        """Return the positions of users in `users`."""
        where = {user: i for i, user in enumerate(self.users)}
        try:
            return [where[user] for user in ids("users", users)]
        except KeyError as error:
            raise UnknownIdError(f"unknown user {error.args[0]!r}") from None
