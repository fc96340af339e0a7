"""Assignment: rows of a matrix matched to columns at the least cost, or at the largest gain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

import flowsched._scaling as _scaling
from flowsched.exceptions import CostRangeError, InfeasibleError, InputError
from flowsched.network.arguments import integers
from flowsched.network.matrices import elements, refuse_masked
from flowsched.network.one_shot import min_cost_flow

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flowsched.network.results import Int64Array

__all__ = ["assignment"]

_MOST: Final = 2**59
"""(rows + columns + 3) * |cost| stays below it, as the kernels ask."""
_MOST_FLOW: Final = 2**53
"""The same for floats that are solved as a flow, whose potentials may go beyond the costs."""


def assignment(cost: Any, *, maximize: bool = False) -> tuple[Int64Array, Int64Array]:
    """Match rows to columns at the least cost.

    Parameters
    ----------
    cost : sparse matrix or array, shape (n, m)
        Each stored element, a stored 0 too, is a pair that may be matched; all pairs of a dense array may be, but infinite ones.
    maximize : bool, optional
        Match at the largest total instead; then pairs of ``-inf`` may not be matched.

    Returns
    -------
    rows, columns : ndarray of int64, shape (min(n, m),)
        The matched pairs, by rows: all rows, or all columns where these are fewer.  As for `scipy.optimize.linear_sum_assignment` and
        `scipy.sparse.csgraph.min_weight_full_bipartite_matching`, but stored zeros count.

    Raises
    ------
    InfeasibleError
        Not all rows (columns) can be matched; ``cut`` marks rows, then columns, and maybe a last node, the partner of
        all that stay unmatched.  ``arcs`` counts the pairs that may be matched, by rows.
    InputError
        Not a matrix of numbers, or a NaN; names the element.
    CostRangeError
        An integer is so large that exact arithmetic could overflow.

    Notes
    -----
    On integers the arithmetic is exact.  Floats are multiplied by the largest power of two, ``2**k``, for which ``(n + m + 3) * |cost|`` stays below 2**59 (2**53 if some pairs may not be matched), and rounded:
    the total is at most ``min(n, m) * 2**-k`` from the optimum, and it is the optimum if nothing was rounded (multiples of 2**-47 below 1, in a matrix of
    1,000 rows and columns, for example).

    A dense matrix is solved by the method of Jonker and Volgenant, a sparse one as a flow.

    Examples
    --------
    >>> assignment([[4, 1, 3], [2, 0, 5], [3, 2, 2]])
    (array([0, 1, 2]), array([1, 0, 2]))
    >>> assignment([[0.5, 0.25], [0.75, 0.125]], maximize=True)
    (array([0, 1]), array([1, 0]))
    """
    refuse_masked("cost", cost)
    if not hasattr(cost, "tocsr"):
        cost = np.asarray(cost)
    n, m = cost.shape if len(cost.shape) == 2 else (0, 0)
    rows, columns, price = elements("cost", cost, (n, m), stored=False)
    dense = not hasattr(cost, "tocsr")
    price, allowed = _whole(price, rows, columns, n + m + 3, dense, maximize)
    if not n or not m:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    if not allowed.all():
        rows, columns, price = rows[allowed], columns[allowed], price[allowed]
    elif dense:
        return _dense(price.reshape(n, m))
    return _sparse(rows, columns, price, n, m)


def _whole(
    price: NDArray[Any], rows: Int64Array, columns: Int64Array, count: int, dense: bool, maximize: bool
) -> tuple[Int64Array, NDArray[np.bool_]]:
    """Return costs as integers to be minimised, and which pairs may be matched."""
    sign = -1 if maximize else 1
    if price.dtype.kind != "f":
        whole = integers("cost", price)
        if len(whole) and max(int(whole.max()), -int(whole.min())) * count >= _MOST:
            i = int(np.argmax(whole) if int(whole.max()) >= -int(whole.min()) else np.argmin(whole))
            raise CostRangeError(
                f"cost[{rows[i]}, {columns[i]}]: {whole[i]} is too large for exact arithmetic; {count} * |cost| must stay below 2**59"
            )
        return sign * whole, np.ones(len(whole), np.bool_)
    allowed = price != sign * np.inf
    if not np.isfinite(price[allowed]).all():
        i = int(np.argmax(allowed & ~np.isfinite(price)))
        why = "" if np.isnan(price[i]) else "; a pair that may not be matched is " + ("-inf" if maximize else "inf")
        raise InputError(f"cost[{rows[i]}, {columns[i]}]: {price[i]} is not a number to match by{why}")
    values = np.where(allowed, price, 0).astype(np.float64)
    largest = float(np.abs(values).max(initial=0))
    most = _MOST if dense and allowed.all() else _MOST_FLOW
    bits = int(np.frexp(most / count)[1]) - 1 - int(np.frexp(largest)[1]) if largest else 0
    return sign * np.rint(np.ldexp(values, bits)).astype(np.int64), allowed


def _dense(cost: Int64Array) -> tuple[Int64Array, Int64Array]:
    n, m = cost.shape
    if n <= m:
        return np.arange(n), _scaling.match(np.ascontiguousarray(cost))[0].astype(np.int64)
    rows = _scaling.match(np.ascontiguousarray(cost.T))[0].astype(np.int64)
    columns = np.argsort(rows)
    return rows[columns], columns


def _sparse(rows: Int64Array, columns: Int64Array, price: Int64Array, n: int, m: int) -> tuple[Int64Array, Int64Array]:
    pairs = len(rows)
    tail, head = rows, n + columns
    supply = np.concatenate([np.ones(n, np.int64), np.full(m, -1)])
    if n != m:  # the last node is the partner of the rows, or columns, that are too many
        rest = np.arange(n) if n > m else n + np.arange(m)
        ends = np.full(len(rest), n + m)
        tail, head = np.append(tail, rest if n > m else ends), np.append(head, ends if n > m else rest)
        supply = np.append(supply, m - n)
    costs = np.append(price, np.zeros(len(tail) - pairs, np.int64))
    try:
        flow = min_cost_flow(tail, head, 1, costs, supply).flow[:pairs]
    except InfeasibleError as error:
        what = "rows" if n <= m else "columns"
        raise InfeasibleError(
            f"cost: not all of the {min(n, m)} {what} can be matched, {error.shortfall} must be left over",
            error.cut, error.shortfall, error.arcs[error.arcs < pairs],
        ) from None  # fmt: skip
    return rows[flow == 1], columns[flow == 1]
