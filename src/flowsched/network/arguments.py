"""Arguments of the solver: copied, checked and converted, or refused by name and index.

Arrays given are copied before they are looked at, and the copies are what is checked and used.
"""

from __future__ import annotations

from numbers import Real
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

import flowsched._cs as _cs
from flowsched.exceptions import CostRangeError, InputError
from flowsched.network.results import Int64Array

__all__ = ["EMPTY", "checked_options", "integers", "lower_bounds"]

EMPTY: Final[Int64Array] = np.zeros(0, np.int64)
"""A vector of no values: lower bounds that are all 0, no flow to start from."""

_INT64: Final = np.dtype(np.int64)


def integers(name: str, values: ArrayLike, size: int | None = None) -> Int64Array:
    """Return `values` as a contiguous int64 vector, always a copy; a scalar is repeated `size` times."""
    if type(values) is np.ndarray and values.dtype is _INT64 and values.ndim == 1:
        array = values.copy()
    else:
        array = _converted(name, values, size)
    if size is not None and len(array) != size:
        raise InputError(f"{name}: {size} values expected, got {len(array)}")
    return array


def _converted(name: str, values: ArrayLike, size: int | None) -> Int64Array:
    if isinstance(values, np.ma.MaskedArray):
        raise InputError(f"{name}: a masked array, whose mask would be lost; fill or compress it first")
    try:
        array = np.array(values)
    except ValueError:
        raise InputError(f"{name}: a vector of integers expected, got rows of different lengths") from None
    if array.ndim == 0 and size is not None:
        array = np.full(size, array)
    if array.ndim != 1:
        raise InputError(f"{name}: a vector expected, got an array of shape {array.shape}")
    if array.size == 0:
        return np.zeros(0, np.int64)
    if array.dtype.kind == "f":
        wrong = ~(np.isfinite(array) & (array == np.rint(array)))
        if wrong.any():
            i = int(np.argmax(wrong))
            raise InputError(
                f"{name}[{i}]: {array[i]} is not an integer; scale fractions first (flowsched.scale_costs)"
            )
        wrong = np.abs(array) >= 2.0**63
        if wrong.any():
            i = int(np.argmax(wrong))
            raise CostRangeError(f"{name}[{i}]: {array[i]} does not fit in 64 bits")
    elif array.dtype.kind == "u" and array.dtype.itemsize == 8:
        wrong = array > np.uint64(2**63 - 1)
        if wrong.any():
            i = int(np.argmax(wrong))
            raise CostRangeError(f"{name}[{i}]: {array[i]} does not fit in 64 bits")
    elif array.dtype.kind == "O":
        for i, value in enumerate(array):
            if isinstance(value, int | np.integer) and not -(2**63) <= value < 2**63:
                raise CostRangeError(f"{name}[{i}]: {value} does not fit in 64 bits")
            if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
                raise InputError(f"{name}[{i}]: an integer expected, got {value!r}")
    elif array.dtype.kind not in "iu":
        raise InputError(f"{name}: integers expected, got {array.dtype}")
    return np.ascontiguousarray(array, dtype=np.int64)


def lower_bounds(lower: ArrayLike, size: int) -> Int64Array:
    """Return the lower bounds of so many arcs; `EMPTY` if all are 0, which takes neither memory nor time."""
    if type(lower) is int and lower == 0:
        return EMPTY
    if type(lower) is np.ndarray and lower.dtype is _INT64 and lower.shape == (size,) and not lower.any():
        return EMPTY
    lowers = integers("lower", lower, size)
    return lowers if lowers.any() else EMPTY


def checked_options(algorithm: str, time_limit: float | None) -> tuple[int, float]:
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
