"""What callers hand over, checked at the door: whoever passes has what it says, in Python's own numbers."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.exceptions import InputError

# Made once, because every task passes here and a union takes longer to make than to look at.
_WHOLE, _REAL = (int, np.integer), (int, float, np.integer, np.floating)
_TEXT, _UNORDERED, _VALUES = (str, bytes), (str, bytes, Mapping, Set), (tuple, list, Sequence, Set)

__all__ = [
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


def whole(what: str, value: Any, least: int, most: int | None = None) -> int:
    """A whole number of these bounds, NumPy's included; `what` is how an error message calls it."""
    kind = type(value)
    good = kind is int or (kind is not bool and isinstance(value, _WHOLE))
    if not good or value < least or (most is not None and value > most):
        bounds = f">= {least}" if most is None else f"from {least} to {most}"
        raise InputError(f"{what} must be a whole number {bounds}, got {value!r}")
    return int(value)


def number(what: str, value: Any, least: float = -math.inf, *, finite: bool = True) -> float:
    """A number not below `least`, NumPy's included, and no NaN; infinite only if that is allowed."""
    kind = type(value)
    good = kind is int or kind is float or (kind is not bool and isinstance(value, _REAL))
    if not good or not value >= least or (finite and not -math.inf < value < math.inf):
        which = ("a finite number" if finite else "a number") + ("" if least == -math.inf else f" >= {least:g}")
        raise InputError(f"{what} must be {which}, got {value!r}")
    plain: float = value.item() if isinstance(value, np.generic) else value
    return plain


def truth(what: str, value: Any) -> bool:
    """True or False, and nothing that merely counts as one of them."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{what} must be True or False, got {value!r}")
    return bool(value)


def check_id(what: str, value: Any) -> None:
    """Refuse what cannot be found again: what has no hash, or does not equal itself (NaN)."""
    try:
        hash(value)
    except TypeError:
        raise InputError(f"{what} must be hashable, got {value!r}") from None
    if value != value:
        raise InputError(f"{what} must equal itself, got {value!r}")


def whole_vector(what: str, values: Any, size: int) -> NDArray[np.int64]:
    """So many whole numbers as an array of its own."""
    array = np.asarray(values)
    if array.shape != (size,) or (size and array.dtype.kind not in "iu"):
        raise InputError(f"{what} must be {size} whole numbers, got {values!r}")
    return array.astype(np.int64)


def ids(what: str, values: Any) -> tuple[Hashable, ...]:
    """A collection of ids in its order; no text, which would be taken for its letters."""
    if isinstance(values, _TEXT) or not isinstance(values, Iterable):
        raise InputError(f"{what} must be a collection of ids, got {values!r}")
    found = tuple(values)
    for value in found:
        check_id(what, value)
    return found


def text(what: str, value: Any) -> str:
    """Text."""
    if not isinstance(value, str):
        raise InputError(f"{what} must be text, got {value!r}")
    return value


def texts(what: str, values: Any) -> list[str]:
    """Texts in order, each once; one text alone would be taken for its letters."""
    return sorted({text(what, value) for value in ids(what, values)})


def mapping(what: str, value: Any) -> Mapping[Any, Any]:
    """The mapping itself."""
    if not isinstance(value, Mapping):
        raise InputError(f"{what} must be a mapping, got {value!r}")
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
    raise InputError(f"{what} must be a sequence, got {values!r}")


def wanted_labels(what: str, labels: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Label -> allowed values, both in order."""
    for label, allowed in mapping(what, labels).items():
        several = isinstance(allowed, _VALUES) and not isinstance(allowed, _TEXT)
        if not isinstance(label, str) or not several or not all(isinstance(value, str) for value in allowed):
            raise InputError(f"{what}[{label!r}] must be a sequence of label values, got {allowed!r}")
    return {label: tuple(sorted(set(labels[label]))) for label in sorted(labels)}
