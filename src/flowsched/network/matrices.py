"""Flow problems from other arrays: matrices of SciPy's sparse kinds, and costs with fractions.

Matrices are read through their own methods, so that SciPy is not needed here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from flowsched.exceptions import CostRangeError, InputError
from flowsched.network.arguments import capacities, integers
from flowsched.network.problem import FlowProblem

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from flowsched.network.results import Int64Array

__all__ = ["elements", "from_adjacency", "from_incidence", "refuse_masked", "scale_costs"]

_MOST_DECIMALS: Final = 15  # a float knows no more


def from_adjacency(capacity: Any, cost: Any, supply: ArrayLike) -> FlowProblem:
    """Read a flow problem from matrices over pairs of nodes.

    Parameters
    ----------
    capacity : sparse matrix or array, shape (n, n)
        Each stored element (i, j), a stored 0 too, is an arc from node i to node j.
    cost : sparse matrix or array, shape (n, n)
        Cost of one unit on each arc; 0 where nothing is stored.
    supply : array of int, shape (n,)
        > 0 sends, < 0 receives.

    Returns
    -------
    FlowProblem
        With the arcs by rows, then by columns, so that ``csr_array((result.flow, (problem.tail, problem.head)), shape)`` is the
        flow as a matrix.

    Raises
    ------
    InputError
        Not such matrices, values with a fraction (see `scale_costs`), or a cost without an arc.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> capacity = csr_array([[0, 4, 2], [0, 0, 3], [0, 0, 0]])
    >>> cost = csr_array([[0, 1, 5], [0, 0, 1], [0, 0, 0]])
    >>> problem = from_adjacency(capacity, cost, [4, 0, -4])
    >>> from flowsched import min_cost_flow
    >>> min_cost_flow(**problem.arguments()).cost
    11
    """
    supplies = integers("supply", supply)
    n = len(supplies)
    tail, head, room = elements("capacity", capacity, (n, n))
    rows, columns, price = elements("cost", cost, (n, n))
    arcs, priced = tail * n + head, rows * n + columns
    place = np.searchsorted(arcs, priced)
    found = place < len(arcs)
    found[found] = arcs[place[found]] == priced[found]
    if not found.all():
        i = int(np.argmin(found))
        raise InputError(f"cost[{rows[i]}, {columns[i]}]: there is no such arc (capacity stores nothing there)")
    costs = np.zeros(len(arcs), np.int64)
    costs[place] = integers("cost", price)
    return FlowProblem(tail, head, capacities("capacity", room), costs, supplies)


def from_incidence(incidence: Any, capacity: ArrayLike, cost: ArrayLike, supply: ArrayLike) -> FlowProblem:
    """Read a flow problem from the matrix of its conservation constraints ``incidence @ flow == supply``.

    Parameters
    ----------
    incidence : sparse matrix or array, shape (n, m)
        Each column has a 1 in the row of the arc's tail and a -1 in that of its head.
    capacity, cost : array of int, shape (m,), or int
    supply : array of int, shape (n,)
        > 0 sends, < 0 receives.

    Returns
    -------
    FlowProblem
        With the arcs in the order of the columns.

    Raises
    ------
    InputError
        A column is no arc, or values are no integers (see `scale_costs`).

    Examples
    --------
    >>> from scipy.sparse import csc_array
    >>> incidence = csc_array([[1, 1, 0], [-1, 0, 1], [0, -1, -1]])
    >>> from flowsched import min_cost_flow
    >>> problem = from_incidence(incidence, [4, 2, 3], [1, 5, 1], [4, 0, -4])
    >>> min_cost_flow(**problem.arguments()).flow
    array([3, 1, 3])
    """
    supplies = integers("supply", supply)
    shape: tuple[int, ...] = getattr(incidence, "shape", ())
    m = shape[1] if len(shape) == 2 else 0
    rows, columns, signs = elements("incidence", incidence, (len(supplies), m))
    kept = signs != 0
    rows, columns, signs = rows[kept], columns[kept], signs[kept]
    out, into = signs == 1, signs == -1
    wrong = np.bincount(columns[~(out | into)], minlength=m) > 0
    wrong |= np.bincount(columns[out], minlength=m) != 1
    wrong |= np.bincount(columns[into], minlength=m) != 1
    if wrong.any():
        raise InputError(f"incidence: column {int(np.argmax(wrong))} is no arc: one 1 and one -1 expected")
    tail, head = np.zeros(m, np.int64), np.zeros(m, np.int64)
    tail[columns[out]] = rows[out]
    head[columns[into]] = rows[into]
    return FlowProblem(tail, head, capacities("capacity", capacity, m), integers("cost", cost, m), supplies)


def scale_costs(cost: ArrayLike, decimals: int | None = None) -> tuple[Int64Array, int]:
    """Scale costs with fractions to integers, as the exact solver needs them.

    Parameters
    ----------
    cost : array of float, shape (m,)
    decimals : int, optional
        Round to so many decimals, 0 to 15.  By default, as many are kept as the costs were written with.

    Returns
    -------
    scaled : ndarray of int64, shape (m,)
    factor : int
        A power of ten: a result's cost divided by it is the cost in the units of ``cost``.  Rounding has moved each cost by
        ``0.5 / factor`` at most, and the optimum by that for each unit of flow on an arc.

    Raises
    ------
    InputError
        A cost is not finite, or was not written with 15 decimals or fewer: say to how many it may be rounded.
    CostRangeError
        A scaled cost does not fit in 64 bits: round to fewer decimals.

    Examples
    --------
    >>> scale_costs([0.29, 1.5, -2])
    (array([  29,  150, -200]), 100)
    >>> scale_costs([1 / 3, 2 / 3], decimals=3)
    (array([333, 667]), 1000)
    """
    refuse_masked("cost", cost)
    try:
        given = np.asarray(cost, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"cost: a vector of numbers expected: {error}") from None
    if given.ndim != 1:
        raise InputError(f"cost: a vector expected, got an array of shape {given.shape}")
    if not np.isfinite(given).all():
        i = int(np.argmin(np.isfinite(given)))
        raise InputError(f"cost[{i}]: {given[i]} is not finite")
    if decimals is not None and not 0 <= decimals <= _MOST_DECIMALS:
        raise InputError(f"decimals: 0 to {_MOST_DECIMALS} expected, got {decimals}")
    factor = 1
    for places in range(_MOST_DECIMALS + 1) if decimals is None else [decimals]:
        factor = 10**places
        scaled = np.rint(given * factor)
        if decimals is not None or np.array_equal(scaled / factor, given):
            break
    else:
        i = int(np.argmax(scaled / factor != given))
        raise InputError(f"cost[{i}]: {given[i]} has more than {_MOST_DECIMALS} decimals; round by decimals=...")
    if (np.abs(scaled) >= 2.0**63).any():
        i = int(np.argmax(np.abs(scaled)))
        raise CostRangeError(f"cost[{i}]: {given[i]} times {factor} does not fit in 64 bits; round by decimals=...")
    return scaled.astype(np.int64), factor


def elements(
    name: str, matrix: Any, shape: tuple[int, int], *, stored: bool = True
) -> tuple[Int64Array, Int64Array, NDArray[Any]]:
    """Return rows, columns and values of a matrix, by rows; of a dense one all, or those that are not 0 (``stored``)."""
    if hasattr(matrix, "tocsr"):
        if tuple(matrix.shape) != shape:
            raise InputError(f"{name}: shape {shape} expected, got {tuple(matrix.shape)}")
        rows = matrix.tocsr()
        if not rows.has_canonical_format:
            rows = rows.copy()
            rows.sum_duplicates()  # as SciPy reads an element that is stored twice
        lines = np.repeat(np.arange(shape[0]), np.diff(rows.indptr))
        return lines.astype(np.int64), rows.indices.astype(np.int64), rows.data
    refuse_masked(name, matrix)
    dense = np.asarray(matrix)
    if dense.shape != shape or dense.ndim != 2:
        raise InputError(f"{name}: a matrix of shape {shape} expected, got an array of shape {dense.shape}")
    if stored:
        at = np.nonzero(dense)
        return at[0].astype(np.int64), at[1].astype(np.int64), dense[at]
    at = np.divmod(np.arange(dense.size), max(shape[1], 1))
    return at[0].astype(np.int64), at[1].astype(np.int64), dense.ravel()


def refuse_masked(name: str, values: Any) -> None:
    """Refuse an array whose mask would be lost."""
    if isinstance(values, np.ma.MaskedArray):
        raise InputError(f"{name}: a masked array, whose mask would be lost; fill or compress it first")
