"""What callers hand over, checked at the door: whoever passes has what it says, in Python's own numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np

from flowsched.exceptions import InputError

# Made once, because every task passes here and a union takes longer to make than to look at.
_WHOLE, _REAL = (int, np.integer), (int, float, np.integer, np.floating)
_TEXT, _UNORDERED, _VALUES = (str, bytes), (str, bytes, Mapping, Set), (tuple, list, Sequence, Set)

__all__ = ["check_id", "number", "ordered", "wanted_labels", "whole"]


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


def check_id(what: str, value: Any) -> None:
    """Refuse what cannot be found again: what has no hash, or does not equal itself (NaN)."""
    try:
        hash(value)
    except TypeError:
        raise InputError(f"{what} must be hashable, got {value!r}") from None
    if value != value:
        raise InputError(f"{what} must equal itself, got {value!r}")


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
    if not isinstance(labels, Mapping):
        raise InputError(f"{what} must map labels to sequences of values, got {labels!r}")
    for label, allowed in labels.items():
        texts = isinstance(allowed, _VALUES) and not isinstance(allowed, _TEXT)
        if not isinstance(label, str) or not texts or not all(isinstance(value, str) for value in allowed):
            raise InputError(f"{what}[{label!r}] must be a sequence of label values, got {allowed!r}")
    return {label: tuple(sorted(set(labels[label]))) for label in sorted(labels)}
