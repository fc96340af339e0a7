"""Arguments of the solver: copied, checked and converted, or refused by name and index.

Input arrays are copied first; only the copies are checked and used.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

import flowsched._cs as _cs
import flowsched.network._columns as _columns
from flowsched.exceptions import CostRangeError, InputError
from flowsched.network.results import INF, Algorithm, Int64Array

EMPTY: Final[Int64Array] = np.zeros(0, np.int64)
"""A vector of no values: lower bounds that are all 0, no flow to start from."""

_INT64: Final = np.dtype(np.int64)
_SCALARS: Final = (int, float, np.generic)
_NAMED: Final = "; FlowNetwork.from_edges takes names of nodes, and FlowNetwork.node_id returns the id of one"


def integers(name: str, values: ArrayLike, size: int | None = None, *, unlimited: bool = False) -> Int64Array:
    """Return `values` as a contiguous int64 vector, always a copy.

    A scalar is repeated `size` times (once by default).  With `unlimited`, an infinite value is `INF`.
    """
    given: Any = values
    kind: Any = type(values)
    array: Int64Array | None = None
    if kind is np.ndarray and given.dtype is _INT64 and given.ndim == 1:
        array = given.copy()
    elif kind is list or kind is tuple:
        array = _columns.vector(given)
    elif kind is int and (size is None or size == 1):
        array = _columns.vector((given,))
    if array is None:
        array = _converted(name, values, size, unlimited)
    if size is not None and len(array) != size:
        raise InputError(f"{name}: {size} values expected, got {len(array)}")
    return array


def supply_vector(supply: ArrayLike) -> Int64Array:
    """Return the supplies of all nodes; a scalar is refused, since it does not give the number of nodes."""
    if isinstance(supply, _SCALARS) or np.shape(supply) == ():
        raise InputError(f"supply: a vector expected, one value for each node, got {supply!r:.80}")
    return integers("supply", supply)


def capacities(name: str, values: ArrayLike, size: int | None = None) -> Int64Array:
    """Return `values` as `integers` does; infinity is `INF`."""
    return integers(name, values, size, unlimited=True)


def common_size(*arguments: ArrayLike) -> int:
    """Return the length of the first argument that is a vector; 1 if all are scalars."""
    for values in arguments:
        if isinstance(values, list | tuple):
            return len(values)
        if not isinstance(values, _SCALARS) and (shape := np.shape(values)):
            return int(shape[0])
    return 1


def chosen(name: str, values: ArrayLike, everything: Callable[[], Int64Array]) -> Int64Array:
    """Return ids, given as such or as a mask: one bool for each of `everything`."""
    given: Any = values
    kind: Any = type(values)
    if kind is np.ndarray:
        masked = given.dtype is not _INT64 and given.dtype == np.bool_ and given.ndim == 1
    elif kind is list or kind is tuple:
        masked = bool(given) and isinstance(given[0], bool | np.bool_)
    else:
        masked = getattr(given, "dtype", None) == np.bool_
    if not masked:
        return integers(name, values)
    mask = np.asarray(values)
    if mask.dtype != np.bool_ or mask.ndim != 1:
        raise InputError(f"{name}: ids or a mask expected, got both")
    ids = everything()
    if len(mask) != len(ids):
        raise InputError(f"{name}: a mask of {len(ids)} values expected, one for each of {name}(), got {len(mask)}")
    marked: Int64Array = ids[mask]
    return marked


def _converted(name: str, values: ArrayLike, size: int | None, unlimited: bool) -> Int64Array:
    if isinstance(values, np.ma.MaskedArray):
        raise InputError(f"{name}: a masked array, whose mask would be lost; fill or compress it first")
    try:
        array = np.array(values)
    except ValueError:
        raise InputError(f"{name}: a vector of integers expected, got rows of different lengths") from None
    if array.ndim == 0:
        array = np.full(1 if size is None else size, array)
    if array.ndim != 1:
        raise InputError(f"{name}: a vector expected, got an array of shape {array.shape}")
    if array.size == 0:
        return np.zeros(0, np.int64)
    if array.dtype.kind == "f":
        return _of_floats(name, array, unlimited)
    if array.dtype.kind == "u" and array.dtype.itemsize == 8:
        wrong = array > np.uint64(2**63 - 1)
        if wrong.any():
            i = int(np.argmax(wrong))
            raise CostRangeError(f"{name}[{i}]: {array[i]} does not fit in 64 bits")
    elif array.dtype.kind == "O":
        for i, value in enumerate(array):
            if isinstance(value, int | np.integer) and not -(2**63) <= value < 2**63:
                raise CostRangeError(f"{name}[{i}]: {value} does not fit in 64 bits")
            if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
                hint = _NAMED if isinstance(value, str) and name in ("tail", "head", "nodes") else ""
                raise InputError(f"{name}[{i}]: an integer expected, got {value!r}{hint}")
    elif array.dtype.kind in "US":
        hint = _NAMED if name in ("tail", "head", "nodes") else ""
        raise InputError(f"{name}[0]: an integer expected, got {array.tolist()[0]!r}{hint}")
    elif array.dtype.kind not in "iu":
        raise InputError(f"{name}: integers expected, got {array.dtype}")
    return np.ascontiguousarray(array, dtype=np.int64)


def _of_floats(name: str, array: NDArray[np.floating[Any]], unlimited: bool) -> Int64Array:
    """Return floats without fractions as integers; infinity as `INF`, where that is allowed."""
    endless = array == np.inf if unlimited else np.zeros(len(array), np.bool_)
    wrong = ~endless & ~(np.isfinite(array) & (array == np.rint(array)))
    if wrong.any():
        i = int(np.argmax(wrong))
        why = "; scale fractions first (flowsched.scale_costs)" if np.isfinite(array[i]) else ""
        if array[i] == np.inf:
            why = "; a capacity may be infinite, nothing else"
        raise InputError(f"{name}[{i}]: {array[i]} is not an integer{why}")
    wrong = ~endless & (np.abs(array) >= 2.0**63)
    if wrong.any():
        i = int(np.argmax(wrong))
        raise CostRangeError(f"{name}[{i}]: {array[i]} does not fit in 64 bits")
    whole = np.where(endless, 0, array).astype(np.int64)
    whole[endless] = INF
    return whole


def lower_bounds(lower: ArrayLike, size: int) -> Int64Array:
    """Return the lower bounds of `size` arcs; `EMPTY` if all are 0, which takes neither memory nor time."""
    if type(lower) is int and lower == 0:
        return EMPTY
    if type(lower) is np.ndarray and lower.dtype is _INT64 and lower.shape == (size,) and not lower.any():
        return EMPTY
    lowers = integers("lower", lower, size)
    return lowers if lowers.any() else EMPTY


def checked_options(algorithm: Algorithm, time_limit: float | None) -> tuple[int, float]:
    """Return the kernel's number of an algorithm, and the time limit in seconds; negative for none."""
    if not isinstance(algorithm, str) or algorithm not in _cs.ALGORITHMS:
        raise InputError(f"algorithm: one of {', '.join(_cs.ALGORITHMS)} expected, got {algorithm!r}")
    if time_limit is None:
        return _cs.ALGORITHMS[algorithm], -1.0
    if not isinstance(time_limit, Real) or isinstance(time_limit, bool) or not time_limit >= 0:
        raise InputError(f"time_limit: seconds >= 0 expected, got {time_limit!r:.80}")
    try:
        return _cs.ALGORITHMS[algorithm], float(time_limit)
    except OverflowError:
        raise InputError("time_limit: seconds expected, got a number that no float holds") from None
