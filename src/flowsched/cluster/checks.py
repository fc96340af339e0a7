"""What callers hand over, checked at the door: whoever passes has what it says, in Python's own numbers.

* Every number that passes is finite as a float, or infinite where that is allowed: arithmetic on it cannot overflow to an
  error later.  A whole number of 400 digits is refused here, not where it first meets a float.
* Every id that passes has a hash, equals itself and can be spelt out.
* The message names the argument and quotes at most some 80 characters of the value; making it cannot fail.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.exceptions import InputError
from flowsched.quoting import quoted

# Made once, because every task passes here and a union takes longer to make than to look at.
_WHOLE, _REAL = (int, np.integer), (int, float, np.integer, np.floating)
_NEITHER = (np.timedelta64, np.longdouble)  # NumPy calls one of them whole; no float holds the other
_TEXT, _UNORDERED, _VALUES = (str, bytes), (str, bytes, Mapping, Set), (tuple, list, Sequence, Set)
_INFINITE = (math.inf, -math.inf)

LARGEST_FLOAT = sys.float_info.max
"""Whole numbers beyond it, too, are no numbers to compute with."""

LARGEST_WHOLE = 2**63 - 1
"""No count is larger: arrays hold them in 64 bits."""

__all__ = [
    "LARGEST_FLOAT",
    "LARGEST_WHOLE",
    "check_id",
    "ids",
    "mapping",
    "number",
    "ordered",
    "text",
    "texts",
    "truth",
    "wanted_labels",
    "whole",
    "whole_vector",
]


def whole(what: str, value: Any, least: int, most: int = LARGEST_WHOLE) -> int:
    """A whole number of these bounds, NumPy's included; `what` is how an error message calls it."""
    kind = type(value)
    good = kind is int or (kind is not bool and isinstance(value, _WHOLE) and not isinstance(value, _NEITHER))
    if not good or not least <= value <= most:
        # The largest is worth a word only where it is what the value offends against, or where it has a meaning.
        plain = most == LARGEST_WHOLE and not (good and value > most)
        bounds = f">= {least}" if plain else f"from {least} to {most}"
        raise InputError(f"{what} must be a whole number {bounds}, got {quoted(value)}")
    return int(value)


def number(
    what: str, value: Any, least: float = -math.inf, most: float = LARGEST_FLOAT, *, finite: bool = True
) -> float:
    """A number of these bounds that a float can hold, NumPy's included, and no NaN; infinite only if that is allowed."""
    kind = type(value)
    plain: float = value
    good = kind is int or kind is float or (kind is not bool and isinstance(value, _REAL))
    if good and kind is not int and kind is not float:
        good = not isinstance(value, _NEITHER)
        if good:
            plain = float(value) if isinstance(value, float | np.floating) else int(value)
    # The largest float is compared exactly, also with whole numbers that no float holds.
    if not good or not plain >= least or not (-LARGEST_FLOAT <= plain <= most or (not finite and plain in _INFINITE)):
        which = ("a finite number" if finite else "a number") + ("" if least == -math.inf else f" >= {least:g}")
        bound = " that a float can hold" if most == LARGEST_FLOAT else f" and at most {most:g}"
        raise InputError(f"{what} must be {which}{bound}, got {quoted(value)}")
    return plain


def truth(what: str, value: Any) -> bool:
    """True or False, and nothing that merely counts as one of them."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{what} must be True or False, got {quoted(value)}")
    return bool(value)


def check_id(what: str, value: Any) -> None:
    """Refuse what cannot be found again: what has no hash, does not equal itself (NaN), or cannot be spelt out."""
    try:
        hash(value)
    except TypeError:
        raise InputError(f"{what} must be hashable, got {quoted(value)}") from None
    kind = type(value)
    if kind is str or (kind is int and -LARGEST_WHOLE <= value <= LARGEST_WHOLE):
        return
    if value != value:
        raise InputError(f"{what} must equal itself, got {quoted(value)}")
    try:
        repr(value)  # errors and journals spell it out; Python does not spell whole numbers of 4,300 digits
    except Exception:
        raise InputError(f"{what} must be something that can be spelt out, got {quoted(value)}") from None


def whole_vector(what: str, values: Any, size: int) -> NDArray[np.int64]:
    """So many whole numbers as an array of its own."""
    array = np.asarray(values)
    if array.shape != (size,) or (size and array.dtype.kind not in "iu"):
        raise InputError(f"{what} must be {size} whole numbers, got {quoted(values)}")
    return array.astype(np.int64)


def ids(what: str, values: Any) -> tuple[Hashable, ...]:
    """A collection of ids in its order; no text, which would be taken for its letters."""
    if isinstance(values, _TEXT) or not isinstance(values, Iterable):
        raise InputError(f"{what} must be a collection of ids, got {quoted(values)}")
    found = tuple(values)
    for value in found:
        check_id(what, value)
    return found


def text(what: str, value: Any) -> str:
    """Text."""
    if not isinstance(value, str):
        raise InputError(f"{what} must be text, got {quoted(value)}")
    return value


def texts(what: str, values: Any) -> list[str]:
    """Texts in order, each once; one text alone would be taken for its letters."""
    return sorted({text(what, value) for value in ids(what, values)})


def mapping(what: str, value: Any) -> Mapping[Any, Any]:
    """The mapping itself."""
    if not isinstance(value, Mapping):
        raise InputError(f"{what} must be a mapping, got {quoted(value)}")
    return value


def ordered(what: str, values: Any) -> tuple[Any, ...]:
    """The values as a tuple; no text, and nothing without an order of its own."""
    if type(values) is tuple:
        return values
    if not isinstance(values, _UNORDERED):
        try:
            return tuple(values)
        except TypeError:
            pass
    raise InputError(f"{what} must be a sequence, got {quoted(values)}")


def wanted_labels(what: str, labels: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Label -> allowed values, both in order."""
    for label, allowed in mapping(what, labels).items():
        several = isinstance(allowed, _VALUES) and not isinstance(allowed, _TEXT)
        if not isinstance(label, str) or not several or not all(isinstance(value, str) for value in allowed):
            raise InputError(f"{what}[{quoted(label)}] must be a sequence of label values, got {quoted(allowed)}")
    return {label: tuple(sorted(set(labels[label]))) for label in sorted(labels)}
