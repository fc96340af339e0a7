"""Arrays of numbers that callers hand over, checked at the door; errors name the argument."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.model import LARGEST
from flowsched.exceptions import InputError

__all__ = ["amounts", "numbers", "part"]

Floats = NDArray[np.float64]


def numbers(what: str, values: Any) -> Floats:
    """Numbers of any shape, as an array."""
    try:
        if np.asarray(values).dtype.kind in "US":  # NumPy would read the numbers that are written there
            raise TypeError
        return np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{what}: numbers expected, got {values!r}") from None


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
        raise InputError(f"{what}: a number from 0 to 1 expected, got {value!r}")
    return float(array)
