"""Max-min fairness in whole units, and in tasks that take parts of several resources."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flowsched.sharing import _fill

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_HALVINGS = 64
"""Number of bisection steps after which the two ends of the level are adjacent doubles."""


def water_fill(units: int, ceiling: Ints, weight: ArrayLike = 1.0, floor: ArrayLike = 0) -> Ints:
    """Distribute units, each to the claimant with least for its weight (of equals, the first) that still wants one.

    No ``share / weight`` can grow except at the expense of one that is no larger before its last unit; with equal
    weights, no other division makes the sorted vector of shares larger (leximin).

    Parameters
    ----------
    ceiling : ndarray of int64, shape (n,)
        Largest share of each claimant.
    weight : array of float, shape (n,), or float
        A claimant of weight 0 gets units that no other can use.
    floor : array of int, shape (n,), or int
        Share of each in any case, up to its ceiling; units that are too few for all floors are distributed among them.

    Returns
    -------
    ndarray of int64, shape (n,)
        Sums to ``min(units, sum(ceiling))``.

    Examples
    --------
    >>> water_fill(10, np.array([2, 9, 9]), [1, 1, 2])
    array([2, 3, 5])
    """
    ceiling = np.asarray(ceiling, np.int64)
    units = int(units)
    if units >= int(ceiling.sum()):
        return ceiling.copy()
    weight = np.broadcast_to(np.asarray(weight, np.float64), ceiling.shape)
    least = np.minimum(np.broadcast_to(np.asarray(floor, np.int64), ceiling.shape), ceiling)
    if units < int(least.sum()):
        least, ceiling = np.zeros_like(ceiling), least
    heavy = weight > 0
    share = least.copy()
    if heavy.any():
        rest = units - int(least[~heavy].sum())
        share[heavy] = _filled(min(rest, int(ceiling[heavy].sum())), least[heavy], ceiling[heavy], weight[heavy])
    if int(share.sum()) < units:
        rest = units - int(share[heavy].sum())
        share[~heavy] = _filled(rest, least[~heavy], ceiling[~heavy], np.ones(int((~heavy).sum())))
    return share


def _filled(units: int, least: Ints, ceiling: Ints, weight: NDArray[np.float64]) -> Ints:
    """Bisect the level until it is exact, then distribute the rest between its two ends."""

    def at(level: float) -> Ints:
        # The k-th unit of i comes at level (k - 1) / weight: units below the level are distributed.
        return np.clip(np.ceil(np.minimum(level * weight, ceiling)).astype(np.int64), least, ceiling)

    if len(weight) and weight.min() == weight.max():
        weight = np.ones(len(weight))
        low, high = 0, int(ceiling.max()) + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if int(np.clip(middle, least, ceiling).sum()) <= units else (low, middle)
        share = np.clip(low, least, ceiling)
        return _dealt(units, share, ceiling, weight, high)
    bottom, top = 0.0, float((ceiling / weight).max(initial=0.0)) + 1.0
    share = least
    for _ in range(_HALVINGS):
        if int(share.sum()) == units:
            break
        level = (bottom + top) / 2
        found = at(level)
        if int(found.sum()) > units:
            top = level
        else:
            bottom, share = level, found
    return _dealt(units, share, ceiling, weight, top)


def _dealt(units: int, share: Ints, ceiling: Ints, weight: NDArray[np.float64], top: float) -> Ints:
    """Distribute units that do not make a whole level to the first of the claimants with least."""
    share = share.copy()
    while missing := units - int(share.sum()):
        hungry = np.flatnonzero(share < ceiling)
        first = hungry[np.argsort(share[hungry] / weight[hungry], kind="stable")[:missing]]
        share[first[share[first] / weight[first] <= top]] += 1
    return share


def fill(tasks: Ints, stand: Floats, pace: Floats, part: Floats, room: Floats, *, go_on: bool = True) -> Ints:
    """Distribute tasks, each to the claimant that stands lowest (of equals, the first) and wants one, while it fits.

    `tasks`, shape (n,), are those that each wants; with k tasks a claimant stands at the largest of ``stand + k *
    pace``, both of shape (n, S).  `part`, shape (n, D), is the part of each resource that a task takes, infinite for a
    resource without capacity, and `room`, shape (D,), the available part of each.  A claimant that lacks a resource is
    skipped, or ends the distribution unless `go_on`; one without demand gets all its tasks.
    """
    return _fill.fill(np.asarray(tasks, np.int64), stand, pace, part, room, go_on=go_on)
