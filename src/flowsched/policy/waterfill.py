"""Max-min fairness in whole units."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["water_fill"]

Ints = NDArray[np.int64]

_HALVINGS = 64
"""After so many the two ends of the level are next to each other."""


def water_fill(units: int, ceiling: Ints, weight: ArrayLike = 1.0, floor: ArrayLike = 0) -> Ints:
    """Deal units out, each to whoever has least for its weight (of equals, the first) and still wants one.

    Nobody's ``share / weight`` could grow but at the expense of one that is no larger before its last unit; with equal
    weights, no other division makes the sorted vector of shares larger (leximin).

    Parameters
    ----------
    units : int
    ceiling : ndarray of int64, shape (n,)
        What each can use.
    weight : array of float, shape (n,), or float
        Who has weight 0 gets what nobody else can use.
    floor : array of int, shape (n,), or int
        What each has in any case, up to its ceiling; where the units are too few for that, they are dealt out among the floors.

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
    """Halve the level until it is exact, then deal out what is left between its two ends."""

    def at(level: float) -> Ints:
        # The k-th unit of i comes at level (k - 1) / weight: those below the level are dealt out.
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
    """Units that a whole level is too much for, to the first of those who have least."""
    share = share.copy()
    while missing := units - int(share.sum()):
        hungry = np.flatnonzero(share < ceiling)
        first = hungry[np.argsort(share[hungry] / weight[hungry], kind="stable")[:missing]]
        share[first[share[first] / weight[first] <= top]] += 1
    return share
