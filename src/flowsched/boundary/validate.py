"""Checks of arguments: each returns the value in Python's own types, or raises InputError.

* A number that is returned is finite as a float, or infinite where that is allowed, so later arithmetic on it cannot raise.
  A whole number of 400 digits is refused here, not where it first meets a float.
* An id that is accepted has a hash, equals itself and can be spelt out.
* `what` is the name of the argument in the message, which quotes at most some 80 characters of the value.  Making the message
  cannot fail.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Hashable, Iterable, Mapping, Set
from difflib import get_close_matches
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from flowsched.boundary._values import frozen as frozen
from flowsched.boundary._values import plain_id
from flowsched.exceptions import InputError

_LONGEST_NAME = 80
"""Characters of a name up to which it is compared with known ones."""

# Made once: every task is checked here, and making a union takes longer than testing against it.
_WHOLE, _REAL = (int, np.integer), (int, float, np.integer, np.floating)
_NEITHER = (np.timedelta64, np.longdouble)  # NumPy calls one of them whole; no float holds the other
_TEXT, _UNORDERED = (str, bytes), (str, bytes, Mapping, Set)
_INFINITE = (math.inf, -math.inf)

Floats = NDArray[np.float64]
_T = TypeVar("_T")

LARGEST_FLOAT = sys.float_info.max
"""Largest number that is accepted as a float; whole numbers beyond it are refused, too."""

LARGEST_WHOLE = 2**63 - 1
"""Largest count: arrays hold counts in 64 bits."""

LARGEST_AMOUNT = 2**62 // 1_000_000
"""Largest amount of a resource: two of them add up in 64 bits, in micro-units."""

_SEEN = 4000
"""Characters of a text that are looked at for a password."""

_WORDY = 3000
"""Bits from which a whole number is quoted by its size: Python refuses to spell out one of 4,300 digits."""
_PASSWORD = re.compile(r"(://[^\s/?#:@]*):.*@", re.DOTALL)
"""Of an address, up to the last @: one in a password may not have been escaped."""

_UNFINISHED = re.compile(r"(://[^\s/?#:@]*):(?!\d*(?:[/?#\s'\",\])]|$)|\*\*\*)[^\s'\"]*")
"""An address without @, with something after the colon that is no port: perhaps a password without a host."""

_PARAMETER = re.compile(
    r"""(?i)(\b[\w.-]*(?:pass|password|passwd|passphrase|pwd|secret|token|credentials?|api_?key)["']?\s*[=:]\s*)"""
    r"""('[^']*'|"[^"]*"|[^&\s'",}]+)"""
)
"""Of an address's query, or of a list or table of names and values."""


def quoted(value: Any, most: int = 80) -> str:
    """Return ``repr(value)`` without passwords of addresses, cut after `most` characters."""
    try:
        if isinstance(value, int) and value.bit_length() > _WORDY:
            return f"a whole number of about {value.bit_length() * 30103 // 100000:,} digits"
        if isinstance(value, str | bytes | bytearray) and len(value) > most:
            value = value[:_SEEN]  # or repr would copy all of it
            return f"{masked(_plain(value))[:most]}..."
        text = masked(_plain(value))
    except Exception:
        return f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= most else f"{text[:most]}..."


def _plain(value: Any) -> str:
    """Return the `repr`, with escapes for characters that move the cursor or cannot be encoded."""
    text = repr(value)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def whole(what: str, value: Any, least: int, most: int = LARGEST_WHOLE) -> int:
    """Return a whole number from `least` to `most`, of Python or NumPy."""
    kind = type(value)
    good = kind is int or (kind is not bool and isinstance(value, _WHOLE) and not isinstance(value, _NEITHER))
    if not good or not least <= value <= most:
        # The upper bound is named only if the value exceeds it, or if it has a meaning.
        plain = most == LARGEST_WHOLE and not (good and value > most)
        bounds = f">= {least}" if plain else f"from {least} to {most}"
        raise InputError(f"{what} must be a whole number {bounds}, got {quoted(value)}")
    return int(value)


def number(
    what: str, value: Any, least: float = -math.inf, most: float = LARGEST_FLOAT, *, finite: bool = True
) -> float:
    """Return a number from `least` to `most` that a float can hold, of Python or NumPy; no NaN, and infinite only if not `finite`."""
    kind = type(value)
    plain: float = value if kind is float or kind is int else _as_python(value)
    # The largest float is compared exactly, also with whole numbers that no float holds.
    if not plain >= least or not (-LARGEST_FLOAT <= plain <= most or (not finite and plain in _INFINITE)):
        which = ("a finite number" if finite else "a number") + ("" if least == -math.inf else f" >= {least:g}")
        bound = " that a float can hold" if most == LARGEST_FLOAT else f" and at most {most:g}"
        raise InputError(f"{what} must be {which}{bound}, got {quoted(value)}")
    return plain


def _as_python(value: Any) -> float:
    """Return a number of another kind as one of Python's; NaN for other values."""
    if isinstance(value, bool) or not isinstance(value, _REAL) or isinstance(value, _NEITHER):
        return math.nan
    return float(value) if isinstance(value, float | np.floating) else int(value)


def seconds(what: str, value: Any, *, finite: bool = True) -> float:
    """Return a positive number of seconds, infinite only if not `finite`."""
    plain = number(what, value, finite=finite)
    if not plain > 0:
        raise InputError(f"{what}: a positive number of seconds expected, got {quoted(value)}")
    return plain


def truth(what: str, value: Any) -> bool:
    """Return True or False; values that merely count as one of them are refused."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{what} must be True or False, got {quoted(value)}")
    return bool(value)


def check_id(what: str, value: Any) -> None:
    """Refuse an id that cannot be found again: without a hash, not equal to itself (NaN), or impossible to spell out."""
    if plain_id(value):
        return
    try:
        hash(value)
    except TypeError:
        raise InputError(f"{what} must be hashable, got {quoted(value)}") from None
    if value != value:
        raise InputError(f"{what} must equal itself, got {quoted(value)}")
    try:
        repr(value)  # errors and journals spell it out; Python does not spell whole numbers of 4,300 digits
    except Exception:
        raise InputError(f"{what} must be something that can be spelt out, got {quoted(value)}") from None


def whole_vector(what: str, values: Any, size: int) -> NDArray[np.int64]:
    """Return `size` whole numbers as a new array, shape (size,)."""
    array = np.asarray(values)
    if array.shape != (size,) or (size and array.dtype.kind not in "iu"):
        raise InputError(f"{what} must be {size} whole numbers, got {quoted(values)}")
    return array.astype(np.int64)


def ids(what: str, values: Any) -> tuple[Hashable, ...]:
    """Return a collection of ids in its order; text is refused, as it would be taken for its letters."""
    if isinstance(values, _TEXT) or not isinstance(values, Iterable):
        raise InputError(f"{what} must be a collection of ids, got {quoted(values)}")
    found = tuple(values)
    for value in found:
        check_id(what, value)
    return found


def text(what: str, value: Any) -> str:
    """Return a text."""
    if not isinstance(value, str):
        raise InputError(f"{what} must be text, got {quoted(value)}")
    return value


def named(what: str, value: str, form: str) -> dict[str, str]:
    """Return the values by name in a text such as ``cpu=4, mem=16``; `form` is the expected form, for messages."""
    found: dict[str, str] = {}
    for pair in value.split(","):
        name, _, given = (side.strip() for side in pair.partition("="))
        if not name or name in found:
            raise InputError(f"{what}: {form}, each name once, expected, got {quoted(pair.strip())}")
        found[name] = given
    return found


def texts(what: str, values: Any) -> list[str]:
    """Return texts in order, each once; one text alone is refused, as it would be taken for its letters."""
    return sorted({text(what, value) for value in ids(what, values)})


def instance(what: str, value: Any, kind: type[_T], *, none: bool = False) -> _T:
    """Return an object of a kind, or None where that is allowed."""
    if not (isinstance(value, kind) or (none and value is None)):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise InputError(f"{what}: {article} {kind.__name__}{' or None' * none} expected, got {quoted(value)}")
    return cast(_T, value)


def mapping(what: str, value: Any) -> Mapping[Any, Any]:
    """Return the mapping itself."""
    if not isinstance(value, Mapping):
        raise InputError(f"{what} must be a mapping, got {quoted(value)}")
    return value


def ordered(what: str, values: Any) -> tuple[Any, ...]:
    """Return the values as a tuple; text and unordered collections are refused."""
    if type(values) is tuple:
        return values
    if type(values) is list:
        return tuple(values)
    if not isinstance(values, _UNORDERED):
        try:
            return tuple(values)
        except TypeError:
            pass
    raise InputError(f"{what} must be a sequence, got {quoted(values)}")


def numbers(what: str, values: Any) -> Floats:
    """Return numbers of any shape as an array of floats."""
    try:
        given = np.asarray(values)
        if given.dtype.kind in "cmMUS":  # NumPy would make numbers of them
            raise TypeError
        with np.errstate(over="ignore"):  # longer floats become infinite; callers say where that is allowed
            return given.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError):  # a whole number may be beyond any float
        raise InputError(f"{what}: numbers that a float can hold expected, got {quoted(values)}") from None


def amounts(what: str, values: Any, most: float = LARGEST_AMOUNT) -> Floats:
    """Return finite numbers from 0 to `most`, of any shape."""
    array = numbers(what, values)
    if not ((array >= 0) & (array < np.inf) & (array <= most)).all():
        raise InputError(f"{what}: finite numbers {'>= 0' if most == np.inf else f'from 0 to {most:g}'} expected")
    return array


def part(what: str, value: Any) -> float:
    """Return a number from 0 to 1."""
    array = numbers(what, value)
    if array.ndim or not 0 <= array <= 1:
        raise InputError(f"{what}: a number from 0 to 1 expected, got {quoted(value)}")
    return float(array)


def masked(text: str) -> str:
    """Return a text with ``***`` in place of passwords in addresses; more is masked where that is in doubt."""
    if "://" in text:
        text = _UNFINISHED.sub(r"\1:***", _PASSWORD.sub(r"\1:***@", text))
    return _PARAMETER.sub(r"\1***", text)


def nearest(name: object, known: Iterable[str]) -> str:
    """Return ``; did you mean 'NAME'?`` for the known name that is most like a text, "" if none is."""
    if type(name) is not str or len(name) > _LONGEST_NAME:
        return ""
    names = {one.lower(): one for one in known}
    found = get_close_matches(name.lower(), names, 1, 0.7)
    return f"; did you mean {names[found[0]]!r}?" if found else ""
