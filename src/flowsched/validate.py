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

# Made once, because every task passes here and a union takes longer to make than to look at.
_WHOLE, _REAL = (int, np.integer), (int, float, np.integer, np.floating)
_NEITHER = (np.timedelta64, np.longdouble)  # NumPy calls one of them whole; no float holds the other
_TEXT, _UNORDERED, _VALUES = (str, bytes), (str, bytes, Mapping, Set), (tuple, list, Sequence, Set)
_INFINITE = (math.inf, -math.inf)

Floats = NDArray[np.float64]

LARGEST_FLOAT = sys.float_info.max
"""Whole numbers beyond it, too, are no numbers to compute with."""

LARGEST_WHOLE = 2**63 - 1
"""No count is larger: arrays hold them in 64 bits."""

LARGEST_AMOUNT = 2**62 // 1_000_000
"""No amount of any resource is larger: in micro-units, two of them add up in 64 bits."""

__all__ = [
    "LARGEST_AMOUNT",
    "LARGEST_FLOAT",
    "LARGEST_WHOLE",
    "amounts",
    "check_id",
    "ids",
    "mapping",
    "number",
    "numbers",
    "ordered",
    "part",
    "quoted",
    "text",
    "texts",
    "truth",
    "wanted_labels",
    "whole",
    "whole_vector",
]


_WORDY = 3000
"""Bits of a whole number that is given by its size instead: Python refuses to spell out one of 4,300 digits."""


def quoted(value: Any, most: int = 80) -> str:
    """Return ``repr(value)``, cut after `most` characters."""
    try:
        if isinstance(value, int) and value.bit_length() > _WORDY:
            return f"a whole number of about {value.bit_length() * 30103 // 100000:,} digits"
        if isinstance(value, str | bytes | bytearray) and len(value) > most:
            value = value[:most]  # or repr would copy all of it
            return f"{_plain(value)[:most]}..."
        text = _plain(value)
    except Exception:
        return f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= most else f"{text[:most]}..."


def _plain(value: Any) -> str:
    """`repr` without what moves the cursor or cannot be encoded."""
    text = repr(value)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


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


def amounts(what: str, values: Any, most: float = LARGEST_AMOUNT) -> Floats:
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
