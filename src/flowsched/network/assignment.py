"""Assignment: rows of a matrix matched to columns at the least cost, or at the largest gain."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import flowsched.kernels.assignment as kernel
from flowsched.exceptions import CostRangeError, FlowschedError, InfeasibleError, InputError
from flowsched.network.arguments import integers
from flowsched.network.one_shot import min_cost_flow
from flowsched.network.problem import elements, refuse_masked
from flowsched.network.transport import transport

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flowsched.network.results import Int64Array

__all__ = ["assignment"]

_MOST: Final = 2**59
"""(rows + columns + 3) * |cost| stays below it, as the kernels require."""
_MOST_FLOW: Final = 2**53
"""The same for floats that are solved as a flow, whose potentials may go beyond the costs."""


def assignment(cost: Any, *, maximize: bool = False) -> tuple[Int64Array, Int64Array]:
    """Match rows to columns at the least cost.

    Parameters
    ----------
    cost : sparse matrix or array, shape (n, m) or (k, n, m)
        Each stored element, a stored 0 too, is a pair that may be matched; all pairs of a dense array may be, except infinite ones.
        An array of three dimensions is a stack of k matrices; for integers of 64 bits and floats they are matched in one call that releases the GIL.
    maximize : bool, optional
        Match at the largest total instead; then pairs of ``-inf`` may not be matched.

    Returns
    -------
    rows, columns : ndarray of int64, shape (min(n, m),) or (k, min(n, m))
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
        An integer is so large that exact arithmetic could overflow: ``(n + m + 3) * |cost|`` reaches 2**59.

    Notes
    -----
    The matching is an exact optimum of the given numbers, without rounding: integers, and floats of any size.  So a huge number may stand for "only if there is no other way".
    For example, with costs of 1e300 among costs of about 1, the number of pairs of 1e300 is minimal, and the other pairs have the least cost.

    A dense matrix is solved by the method of Jonker and Volgenant, a sparse one as a flow.  Floats are rounded first; then their exact values decide between pairs that
    are nearly equal, see :doc:`/explanation/kernel`.

    Examples
    --------
    >>> assignment([[4, 1, 3], [2, 0, 5], [3, 2, 2]])
    (array([0, 1, 2]), array([1, 0, 2]))
    >>> assignment([[0.5, 0.25], [0.75, 0.125]], maximize=True)
    (array([0, 1]), array([1, 0]))
    >>> import numpy as np
    >>> assignment(np.array([[[4, 1], [2, 0]], [[1, 4], [2, 9]]]))[1]
    array([[1, 0],
           [1, 0]])
    """
    found = kernel.assign(cost, maximize)
    if isinstance(found, tuple):
        return found
    if found is not None:
        with suppress(CostRangeError):  # beyond the range of the simplex: the longer way is left
            pairs = _from_potentials(cost, maximize, found)
            if pairs is not None:
                return pairs
    refuse_masked("cost", cost)
    if not hasattr(cost, "tocsr"):
        cost = np.asarray(cost)
        if cost.ndim == 3 and len(cost):
            return _stacked(cost, maximize)
        if cost.dtype.kind in "iuf" and cost.dtype.itemsize < 8:
            return assignment(cost.astype(np.float64 if cost.dtype.kind == "f" else np.int64), maximize=maximize)
    n, m = cost.shape if len(cost.shape) == 2 else (0, 0)
    rows, columns, price = elements("cost", cost, (n, m), stored=False)
    dense = not hasattr(cost, "tocsr")
    if price.dtype.kind == "f":
        values, allowed = _numbers(price, rows, columns, maximize)
        rest = values if allowed.all() else values[allowed]
        bits = _bits(rest, (_MOST if dense and allowed.all() else _MOST_FLOW) // (n + m + 3))
        whole = _units(rest, bits)
    else:
        whole, rest, bits = _integers(price, rows, columns, n + m + 3, maximize), None, 0
        allowed = np.ones(len(whole), np.bool_)
    if not n or not m:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    if not dense or not allowed.all():
        if rest is not None:
            _take(rest, bits)
        return _sparse(rows[allowed], columns[allowed], whole, rest, bits, n, m)
    whole = whole.reshape(n, m)
    rest = None if rest is None else rest.reshape(n, m)
    if n <= m:
        return np.arange(n), _dense(whole, rest, bits)
    lines = _dense(np.ascontiguousarray(whole.T), None if rest is None else np.ascontiguousarray(rest.T), bits)
    order = np.argsort(lines)
    return lines[order], order


def _from_potentials(
    cost: NDArray[Any], maximize: bool, potential: NDArray[Any]
) -> tuple[Int64Array, Int64Array] | None:
    """Match by the network simplex; None for floats whose rounding may decide."""
    n, m = cost.shape
    if cost.dtype.kind != "f":
        plan = transport(-cost if maximize else cost, 1, 1, potential=potential)
        return plan.rows, plan.columns
    if n > m:
        potential = -np.roll(potential, m)
    wide = cost.T if n > m else cost
    whole, scale = kernel.rounded(wide, maximize)
    plan = transport(whole, 1, 1, potential=np.rint(potential * scale).astype(np.int64))
    columns = kernel.confirmed(wide, maximize, plan.columns, plan.potential[len(wide) :])
    if columns is None or n <= m:
        return None if columns is None else (plan.rows, columns)
    order = np.argsort(columns)
    return columns[order], order


def _stacked(cost: NDArray[Any], maximize: bool) -> tuple[Int64Array, Int64Array]:
    """Match each matrix of a stack; an error names the matrix."""
    pairs = []
    for i, matrix in enumerate(cost):
        try:
            pairs.append(assignment(matrix, maximize=maximize))
        except FlowschedError as error:
            error.args = (f"cost[{i}]: {error.args[0]}", *error.args[1:])
            raise
    rows, columns = zip(*pairs, strict=True)
    return np.stack(rows), np.stack(columns)


def _integers(price: NDArray[Any], rows: Int64Array, columns: Int64Array, count: int, maximize: bool) -> Int64Array:
    """Return integers to be minimised."""
    whole = integers("cost", price)
    if len(whole) and max(int(whole.max()), -int(whole.min())) * count >= _MOST:
        i = int(np.argmax(whole) if int(whole.max()) >= -int(whole.min()) else np.argmin(whole))
        raise CostRangeError(
            f"cost[{rows[i]}, {columns[i]}]: {whole[i]} is too large for exact arithmetic; {count} * |cost| must stay below 2**59"
        )
    return -whole if maximize else whole


def _numbers(
    price: NDArray[Any], rows: Int64Array, columns: Int64Array, maximize: bool
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return floats to be minimised, 0 where a pair may not be matched, and a mask of the pairs that may."""
    allowed: NDArray[np.bool_] = np.isfinite(price)
    if not allowed.all():
        wrong = ~allowed & (price != (-np.inf if maximize else np.inf))
        if wrong.any():
            i = int(np.argmax(wrong))
            why = "" if np.isnan(price[i]) else "; a pair that may not be matched is " + ("-inf" if maximize else "inf")
            raise InputError(f"cost[{rows[i]}, {columns[i]}]: {price[i]} is not a number to match by{why}")
        price = np.where(allowed, price, 0)
    with np.errstate(over="ignore"):
        values = price.astype(np.float64)
    if price.dtype.itemsize > 8 and (values != price).any():
        i = int(np.argmax(values != price))
        raise InputError(f"cost[{rows[i]}, {columns[i]}]: {price[i]} is not exact as a float of 64 bits")
    return np.negative(values, out=values) if maximize else values, allowed


def _bits(values: NDArray[np.float64], most: int) -> int:
    """Return the largest number of bits for which all values, in units of 2**-bits, stay below `most`."""
    largest = float(max(values.max(initial=0), -values.min(initial=0)))
    return int(np.frexp(most)[1]) - 1 - int(np.frexp(largest)[1]) if largest else 0


def _units(values: NDArray[np.float64], bits: int) -> Int64Array:
    """Return values in whole units of 2**-bits."""
    whole: Int64Array = np.rint(np.ldexp(values, bits)).astype(np.int64)
    return whole


def _take(values: NDArray[np.float64], bits: int) -> Int64Array:
    """Take the whole units of 2**-bits out of values, and return them.  Nothing is rounded: half a unit at most is left."""
    whole = _units(values, bits)
    values -= np.ldexp(whole.astype(np.float64), -bits)
    return whole


def _finer(most: int, bound: int) -> int:
    """Return the number of bits by which numbers of at most `bound` may grow and stay below `most`."""
    return max(most // (bound + 1), 2).bit_length() - 1


def _dense(cost: Int64Array, values: NDArray[np.float64] | None, bits: int) -> Int64Array:
    """Return the column of each row of a matrix that has no fewer columns than rows.

    `cost` is overwritten.  Where it was rounded, it is `values` in units of 2**-bits; then the matching is made exact as follows.  By the optimum u, v of the rounded costs c,
    c - u - v is not negative, and 0 where rows are matched; v is not positive, and 0 where columns are not (if there are more columns than rows).  Rounding has moved the cost of any
    n pairs by n / 2 at most.  So no better matching has a pair of more than n, nor leaves a column of v < -n alone.  Costs are cut off there and are small; the rounding
    errors are added in finer units.
    """
    n, m = cost.shape
    lines, most = np.arange(n), n + m + 3
    while True:
        found, price = kernel.match(cost)
        if values is None:
            return found.astype(np.int64)
        cost -= price
        cost -= cost[lines, found][:, None]
        near = np.flatnonzero(cost <= n)
        rest = values.ravel()[near]
        _take(rest, bits)
        if len(near) == n or not rest.any():
            return found.astype(np.int64)
        free = np.maximum(price, -n - 1) if n < m else np.zeros(m, np.int64)
        if 4 * len(near) < cost.size:
            finer = _finer(_MOST_FLOW // most, n + 2)
            i, j = np.divmod(near, m)
            slack = (cost[i, j] + free[j] << finer) + _take(rest, bits + finer)
            return _sparse(i, j, slack, rest, bits + finer, n, m)[1]
        finer = _finer(_MOST // most, n + 2)
        _take(values, bits)
        bits += finer
        np.minimum(cost, n + 1, out=cost)
        cost += free
        cost <<= finer
        cost += _units(values, bits)


def _sparse(
    rows: Int64Array,
    columns: Int64Array,
    price: Int64Array,
    rest: NDArray[np.float64] | None,
    bits: int,
    n: int,
    m: int,
) -> tuple[Int64Array, Int64Array]:
    """Return the matched pairs, of those that may be matched, whose costs are `price` units of 2**-bits and the `rest`, half a unit at most; as `_dense`."""
    pairs = len(rows)
    tail, head = rows, n + columns
    supply = np.concatenate([np.ones(n, np.int64), np.full(m, -1)])
    if n != m:  # the last node is the partner of the surplus rows or columns
        lone = np.arange(n) if n > m else n + np.arange(m)
        ends = np.full(len(lone), n + m)
        tail, head = np.append(tail, lone if n > m else ends), np.append(head, ends if n > m else lone)
        supply = np.append(supply, m - n)
    costs = np.append(price, np.zeros(len(tail) - pairs, np.int64))
    try:
        result = min_cost_flow(tail, head, 1, costs, supply)
    except InfeasibleError as error:
        what = "rows" if n <= m else "columns"
        raise InfeasibleError(
            f"cost: not all of the {min(n, m)} {what} can be matched, {error.shortfall} must be left over",
            error.cut, error.shortfall, error.arcs[error.arcs < pairs],
        ) from None  # fmt: skip
    arcs, taken, left = np.arange(len(tail)), result.flow == 1, np.zeros(len(tail))
    if rest is not None:
        left[:pairs] = rest
    while left.any():
        costs += result.potential[tail] - result.potential[head]
        side = tail if n > m else head  # each has one arc that is taken, its cheapest
        least = np.zeros(n + m + 1, np.int64)
        least[side[taken]] = costs[taken]
        costs -= least[side]
        near = costs <= min(n, m)
        arcs, tail, head, costs, left, taken = arcs[near], tail[near], head[near], costs[near], left[near], taken[near]
        if taken.all():
            break
        finer = _finer(_MOST_FLOW // (n + m + 3), min(n, m) + 2)
        bits += finer
        costs = (costs << finer) + _take(left, bits)
        result = min_cost_flow(tail, head, 1, costs, supply)
        taken = result.flow == 1
    matched = arcs[taken & (arcs < pairs)]
    return rows[matched], columns[matched]
