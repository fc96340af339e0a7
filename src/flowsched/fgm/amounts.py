"""Arrays of numbers that callers hand over, checked at the door; errors name the argument."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.model import LARGEST
from flowsched.exceptions import InputError
from flowsched.quoting import quoted

__all__ = ["amounts", "numbers", "part"]

Floats = NDArray[np.float64]


def numbers(what: str, values: Any) -> Floats:
    """Numbers of any shape, as an array."""
    try:
        given = np.asarray(values)
        if given.dtype.kind in "cmMUS":  # NumPy would make numbers of them
            raise TypeError
        with np.errstate(over="ignore"):  # its longer floats become infinite, and callers say where that may be
            return given.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError):  # a whole number may be beyond any float
        raise InputError(f"{what}: numbers that a float can hold expected, got {quoted(values)}") from None


def amounts(what: str, values: Any, most: float = LARGEST) -> Floats:
    """Finite numbers from 0 to `most`, of any shape."""
    array = numbers(what, values)
    if not ((array >= 0) & (array < np.inf) & (array <= most)).all():
        raise InputError(f"{what}: finite numbers {'>= 0' if most == np.inf else f'from 0 to {most:g}'} expected")
    return array


def part(what: str, value: Any) -> float:
    """One number from 0 to 1."""
    array = numbers(what, value)
    if array.ndim or not 0 <= array <= 1:
        raise InputError(f"{what}: a number from 0 to 1 expected, got {quoted(value)}")
    return float(array)
