"""Ids that every store can carry, checked once, where they arrive.

An id is text of at most `MOST` bytes in UTF-8, without NUL and without lone surrogates.
So all backends take the same ids and return them unchanged: SQLite would cut a text at NUL, PostgreSQL refuses NUL and an id
that does not fit its index, and neither driver encodes a surrogate.
An id is refused before anything is done.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flowsched.boundary.validate import ids as collection
from flowsched.exceptions import InputError

MOST = 1000
"""Most bytes of an id: half of the size that fits into a row of PostgreSQL's index next to another column."""


def name(what: str, value: Any) -> str:
    """Return an id that every store can carry; `what` is how an error message calls it.

    Raise InputError if it is not text, is too long, or has a character that not every store takes.
    """
    if not isinstance(value, str):
        raise InputError(f"{what} must be text, got {_shown(value)}")
    if "\0" in value:
        raise InputError(f"{what} must not have a NUL, got {_shown(value)}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InputError(f"{what} must not have a lone surrogate, got {_shown(value)}") from None
    if size > MOST:
        raise InputError(f"{what} must have at most {MOST} bytes, got {size}: {_shown(value)}")
    # A subclass may print itself otherwise than it compares.
    return value if type(value) is str else str.__str__(value)


def names(what: str, values: Iterable[Any]) -> list[str]:
    """Return the ids in order, each once; one text alone is refused, as it would be taken for its letters."""
    return sorted({name(what, value) for value in collection(what, values)})


def _shown(value: Any) -> str:
    # ASCII, because a lone surrogate cannot be printed either.
    text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "..."
