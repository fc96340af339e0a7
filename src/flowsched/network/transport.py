"""Transport: amounts shipped from rows to columns of a dense cost matrix, at the least cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from time import perf_counter
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

import flowsched.kernels.transport as kernel
from flowsched.exceptions import ConcurrentUseError, CostRangeError, InfeasibleError, InputError
from flowsched.network.arguments import EMPTY, integers
from flowsched.network.problem import refuse_masked
from flowsched.network.results import Int64Array

__all__ = ["TransportResult", "transport"]

_MOST: Final = 2**58
"""(rows + columns + 3) * |cost|, and the price, stay below it."""
_MOST_FLOAT: Final = 2**50
"""Floats stay below it in units of the kernel."""
_MOST_SUPPLY: Final = 2**60
_CHUNK: Final = 2**14
"""Elements of a float matrix that are checked at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class TransportResult:
    """Optimal shipments from rows to columns.

    Attributes
    ----------
    rows, columns, amounts : ndarray of int64
        The pairs that ship something, by rows and then by columns: at most n + m - 1.
    cost : int or float
        Cost of the amounts, without the price of the rest.  Exact for integers; for floats, the exact cost rounded once.
    potential : ndarray of int64 or float64, shape (n + m,)
        Of the rows, then of the columns: ``cost[i, j] + potential[i] - potential[n + j]`` is >= 0, and 0 where something is shipped.
        Rows that keep supply have the least potential of all rows, and columns that lack demand the greatest of all columns: ``-price`` and 0 with a price, 0 without.
    unshipped : ndarray of int64, shape (n + m,)
        Supply that a row keeps (> 0), or demand that a column lacks (< 0).
    shape : tuple of int
        (n, m).
    stats : mapping
        ``seconds`` and the kernel's counters: ``pivots``, of which ``degenerate`` shipped nothing, ``priced`` pairs, and potentials ``moved``.
    """

    rows: Int64Array
    columns: Int64Array
    amounts: Int64Array
    cost: int | float
    potential: NDArray[Any]
    unshipped: Int64Array
    shape: tuple[int, int]
    stats: Mapping[str, Any]

    def to_array(self) -> Int64Array:
        """Return the amounts of all pairs, of shape (n, m).

        Examples
        --------
        >>> transport([[1, 4], [2, 3]], [3, 2], [2, 3]).to_array()
        array([[2, 1],
               [0, 2]])
        """
        amounts = np.zeros(self.shape, np.int64)
        amounts[self.rows, self.columns] = self.amounts
        return amounts


def transport(
    cost: ArrayLike,
    supply: ArrayLike,
    demand: ArrayLike,
    *,
    price: float | None = None,
    potential: ArrayLike | None = None,
) -> TransportResult:
    """Ship supplies of rows to demands of columns at the least cost.

    Parameters
    ----------
    cost : array of int or float, shape (n, m)
        Cost per unit from row i to column j; may be negative.  A pair of ``inf`` may not be used.
    supply : array of int, shape (n,), or int
        What each row sends, >= 0.
    demand : array of int, shape (m,), or int
        What each column receives, >= 0.  If the sums differ, the smaller one is shipped in full, and the remainder of the larger one costs nothing.
    price : int or float, optional
        Price of a unit of supply that is not shipped.  Then a unit is shipped only where this costs no more than the price.
    potential : array of int or float, shape (n + m,), optional
        Where to start: the potentials of a similar problem.  Only those of the columns matter, up to a constant.  They affect the time, not the optimum.

    Returns
    -------
    TransportResult

    Raises
    ------
    InputError
        Names the argument and the index.  A float is refused that is not a multiple of the smallest unit of exact arithmetic on this matrix.
    InfeasibleError
        Pairs of ``inf`` prevent that the smaller sum is shipped in full.  ``cut`` marks the rows, the columns, and a last node (the partner of the rest, if the sums differ)
        of a set that cannot ship its supply; ``shortfall`` units are missing.
    CostRangeError
        ``(n + m + 3) * |cost|`` or the price reaches 2**58, or supplies or demands sum to 2**60.
    ConcurrentUseError
        Another thread changed the matrix during the call.

    Notes
    -----
    A network simplex works on the matrix itself.  A matrix of int32, int64, float32 or float64 with contiguous rows or columns is read in place; so memory beyond
    it grows with n + m, and no thread may change it meanwhile.  The call releases the GIL.

    The optimum is exact.  Floats are multiples of a power of 2; where the smallest and the largest cost are too far apart for exact arithmetic in 50 bits or fewer, round them first,
    for example by ``np.rint(cost * 2**20)``.

    Examples
    --------
    >>> import flowsched as fs
    >>> found = fs.transport([[1, 4], [2, 3]], supply=[3, 2], demand=[2, 3])
    >>> found.cost, found.rows, found.columns, found.amounts
    (12, array([0, 0, 1]), array([0, 1, 1]), array([2, 1, 2]))
    >>> fs.transport([[1, 4], [2, 3]], [3, 2], [2, 3], price=3).unshipped
    array([ 1,  0,  0, -1])
    """
    start = perf_counter()
    matrix, turned = _matrix(cost)
    n, m = matrix.shape
    supplies, demands = _amounts("supply", supply, n), _amounts("demand", demand, m)
    surplus = int(supplies.sum()) - int(demands.sum())
    asked = None if price is None else _price(price)
    if matrix.dtype.kind == "f":
        bits, most, forbidden = _range_of_floats(matrix, asked or Fraction(0))
    else:
        bits, most, forbidden = 0, _range_of_integers(matrix), False
        if asked is not None and asked.denominator > 1:
            raise InputError(f"price: an integer expected, as the costs are, got {price!r}")
    fee = None if asked is None else int(asked * Fraction(2) ** bits)
    if fee is not None and abs(fee) >= _MOST:
        raise CostRangeError(f"price: {price!r} is too large for exact arithmetic; it must stay below 2**{58 - bits}")
    offer = None if potential is None else _columns_of(potential, n, m, bits, turned)
    if not matrix.size:
        proof = np.concatenate([np.full(n, -(fee or 0)), np.zeros(m, np.int64)])
        return _result(matrix, bits, (EMPTY, EMPTY, EMPTY, 0), proof, np.append(supplies, -demands), {}, start)
    lines, ends, excess = (
        (matrix.T, (demands, supplies), -surplus) if turned else (matrix, (supplies, demands), surplus)
    )
    if offer is None:
        offer = _units(lines.min(axis=0), bits)
    keeping = lacking = True
    if fee is None:
        keeping, lacking = forbidden or excess > 0, forbidden or excess < 0
        fee = 2 * (n + m + 3) * (most + 1) if lacking else 0
    solver = kernel.Transport(lines, math.ldexp(1.0, bits), *ends, offer, fee, keeping, lacking)
    if not solver.solve():
        raise ConcurrentUseError("cost: the matrix changed during the call")
    rows, columns, amounts, total = solver.shipped()
    potentials, unshipped = solver.potentials(), solver.rests()
    if turned:
        rows, columns, potentials, unshipped = columns, rows, -np.roll(potentials, n), np.roll(unshipped, n)
    unshipped[n:] *= -1
    if forbidden and asked is None:
        _require_all(potentials < (fee // 2 if turned else -(fee // 2)), unshipped, surplus, n)
    # The kernel's root has the potential 0, and its rows keep supply at the price.
    if turned and (asked is not None or surplus < 0):
        potentials -= fee
    elif not turned and asked is None and surplus > 0:
        potentials += fee
    return _result(matrix, bits, (rows, columns, amounts, total), potentials, unshipped, solver.counters(), start)


def _result(
    matrix: NDArray[Any],
    bits: int,
    shipped: tuple[NDArray[Any], NDArray[Any], Int64Array, int],
    potential: Int64Array,
    unshipped: Int64Array,
    counters: Mapping[str, int],
    start: float,
) -> TransportResult:
    """Return a result in the order of rows, and in the units of the costs."""
    rows, columns, amounts, total = shipped
    order = np.lexsort((columns, rows))
    floats = matrix.dtype.kind == "f"
    return TransportResult(
        rows[order].astype(np.int64),
        columns[order].astype(np.int64),
        amounts[order],
        math.ldexp(total, -bits) if floats else total,
        np.ldexp(potential.astype(np.float64), -bits) if floats else potential,
        unshipped,
        (matrix.shape[0], matrix.shape[1]),
        {**counters, "seconds": perf_counter() - start},
    )


def _matrix(cost: Any) -> tuple[NDArray[Any], bool]:
    """Return the costs as a matrix that the kernel reads, and True if its columns are contiguous, not its rows; a copy only where that is needed."""
    refuse_masked("cost", cost)
    if hasattr(cost, "tocsr"):
        raise InputError("cost: a dense matrix expected, got a sparse one; min_cost_flow takes single arcs")
    try:
        matrix = np.asarray(cost)
    except ValueError:
        raise InputError("cost: a matrix expected, got rows of different lengths") from None
    if matrix.ndim != 2:
        raise InputError(f"cost: a matrix expected, got an array of shape {matrix.shape}")
    kind, size = matrix.dtype.kind, matrix.dtype.itemsize
    if kind == "O" or (kind == "u" and size == 8):
        matrix = _checked(matrix)
    elif kind in "iub":
        matrix = matrix.astype(np.int32 if size < 4 or (kind == "i" and size == 4) else np.int64, copy=False)
    elif kind == "f":
        narrow = matrix.astype(np.float32 if size <= 4 else np.float64, copy=False)
        if size > 8 and (narrow != matrix).any():
            i, j = np.argwhere(narrow != matrix)[0]
            raise InputError(f"cost[{i}, {j}]: {matrix[i, j]} is not exact as a float of 64 bits")
        matrix = narrow
    else:
        raise InputError(f"cost: numbers expected, got {matrix.dtype}")
    n, m = matrix.shape
    if n + m >= 2**30:
        raise InputError(f"cost: fewer than 2**30 rows and columns expected, got {n + m}")
    down, across = matrix.strides
    if not matrix.flags.aligned or not matrix.size:
        matrix = np.ascontiguousarray(matrix)
    elif not matrix.flags.c_contiguous and (across != matrix.itemsize or m == 1):
        if matrix.flags.f_contiguous or (down == matrix.itemsize and n > 1):
            return matrix, True
        matrix = np.ascontiguousarray(matrix)
    return matrix, False


def _checked(matrix: NDArray[Any]) -> NDArray[np.int64]:
    """Return objects or large unsigned integers as integers of 64 bits."""
    for (i, j), value in np.ndenumerate(matrix):
        if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
            raise InputError(f"cost[{i}, {j}]: an integer expected, got {value!r:.80}")
        if not -(2**63) <= value < 2**63:
            raise CostRangeError(f"cost[{i}, {j}]: {value} does not fit in 64 bits")
    return matrix.astype(np.int64)


def _amounts(name: str, values: ArrayLike, size: int) -> Int64Array:
    """Return supplies or demands."""
    amounts = integers(name, values, size)
    if len(amounts) and amounts.min() < 0:
        i = int(np.argmin(amounts))
        raise InputError(f"{name}[{i}]: >= 0 expected, got {amounts[i]}")
    if float(amounts.sum(dtype=np.float64)) > _MOST_SUPPLY / 2:
        raise CostRangeError(f"{name}: the sum must stay below 2**59")
    return amounts


def _range_of_integers(matrix: NDArray[Any]) -> int:
    """Return the largest |cost|."""
    count = sum(matrix.shape) + 3
    most = max(int(matrix.max(initial=0)), -int(matrix.min(initial=0)))
    if most * count >= _MOST:
        i, j = np.unravel_index(int(np.argmax(matrix) if matrix.max() == most else np.argmin(matrix)), matrix.shape)
        raise CostRangeError(
            f"cost[{i}, {j}]: {matrix[i, j]} is too large for exact arithmetic; {count} * |cost| must stay below 2**58"
        )
    return most


def _range_of_floats(matrix: NDArray[Any], price: Fraction) -> tuple[int, int, bool]:
    """Return the bits b for which all costs and the price are integers in units of 2**-b, as few as possible, the largest cost, and True if some pairs are infinite."""
    largest, forbidden = 0.0, False
    step = max(_CHUNK // max(matrix.shape[1], 1), 1)
    for i in range(0, matrix.shape[0], step):
        part = matrix[i : i + step]
        high, low = float(part.max(initial=0)), float(part.min(initial=0))
        if not (math.isfinite(high) and low > -math.inf):
            wrong = np.isnan(part) | (part == -np.inf)
            if wrong.any():
                row, column = np.argwhere(wrong)[0]
                raise InputError(
                    f"cost[{i + row}, {column}]: {part[row, column]} is not a cost; a pair that may not be used is inf"
                )
            forbidden, high = True, float(np.where(np.isfinite(part), part, 0).max(initial=0))
        largest = max(largest, high, -low)
    limit = min(_MOST_FLOAT, _MOST // (sum(matrix.shape) + 3))
    bits = min(limit.bit_length() - 1 - math.frexp(largest)[1], 1000) if largest else 50
    scale, seen = math.ldexp(1.0, bits), int(price * Fraction(2) ** bits)
    if seen != price * Fraction(2) ** bits:
        raise InputError(
            f"price: {float(price)} has digits below 2**{-bits}, too many next to costs of {largest:.6g} for exact arithmetic; round it first"
        )
    for i in range(0, matrix.shape[0], step):
        part = matrix[i : i + step].astype(np.float64)
        part *= scale
        if forbidden:
            part[np.isinf(part)] = 0
        whole = np.rint(part)
        if (whole != part).any():
            row, column = np.argwhere(whole != part)[0]
            raise InputError(
                f"cost[{i + row}, {column}]: {matrix[i + row, column]} has digits below 2**{-bits}, too many next to costs of {largest:.6g} "
                f"for exact arithmetic; round the costs first, for example by np.rint(cost * 2.0**{bits - 10}), "
                "and let inf stand for a pair that may not be used"
            )
        seen |= int(np.bitwise_or.reduce(whole.astype(np.int64), axis=None, initial=0))
    spare = (seen & -seen).bit_length() - 1 if seen else bits
    return bits - spare, int(math.ldexp(largest, bits - spare)), forbidden


def _units(values: NDArray[Any], bits: int) -> Int64Array:
    """Return numbers in units of 2**-bits, rounded; infinite ones as 0."""
    if values.dtype.kind != "f":
        return values.astype(np.int64)
    whole = np.rint(np.ldexp(values.astype(np.float64), bits))
    return np.where(np.isfinite(whole), whole, 0).astype(np.int64)


def _price(price: float) -> Fraction:
    """Return the price, exactly."""
    if not isinstance(price, Real) or isinstance(price, bool) or not math.isfinite(price):
        raise InputError(f"price: a finite number expected, got {price!r:.80}")
    return Fraction(price)


def _columns_of(potential: ArrayLike, n: int, m: int, bits: int, turned: bool) -> Int64Array:
    """Return the potentials from which the kernel starts, in units of 2**-bits, the least as 0."""
    values = np.asarray(potential)
    if values.shape != (n + m,):
        raise InputError(
            f"potential: {n + m} values expected, for rows and columns, got an array of shape {values.shape}"
        )
    if values.dtype.kind not in "iuf":
        raise InputError(f"potential: numbers expected, got {values.dtype}")
    if values.dtype.kind == "f":
        if not np.isfinite(values).all():
            i = int(np.argmin(np.isfinite(values)))
            raise InputError(f"potential[{i}]: {values[i]} is not a number to start from")
        values = np.rint(np.ldexp(values.astype(np.float64), bits))
    part = -values[:n] if turned else values[n:]
    if not len(part):
        return EMPTY
    if float(part.max()) - float(part.min()) >= (most := _MOST_FLOAT if values.dtype.kind == "f" else _MOST // 2):
        raise CostRangeError(f"potential: the values of one side differ by 2**{most.bit_length() - 1} units or more")
    offer: Int64Array = (part - part.min()).astype(np.int64)
    return offer


def _require_all(cut: NDArray[np.bool_], unshipped: Int64Array, surplus: int, n: int) -> None:
    """Raise an error if something is left on both sides; the rows of the cut may use its columns only."""
    missing = min(int(unshipped[:n].sum()), -int(unshipped[n:].sum()))
    if not missing:
        return
    rows, columns = int(cut[:n].sum()), int(cut[n:].sum())
    if surplus:
        cut = np.append(cut, surplus > 0)
    raise InfeasibleError(
        f"cost: not all can be shipped, {missing} units are missing: {rows} rows may only use {columns} columns, whose demand is too small", cut, missing
    )  # fmt: skip
