"""Values as JSON, and back.

Only values that read back equal are written: strings, numbers, None, and tuples of them as ids.  `plain` defines the form,
and `flowsched.journal._words` writes it, events and deltas too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from flowsched.boundary.validate import quoted
from flowsched.exceptions import InputError, JournalError
from flowsched.rounds.values import Delta, Migrate, Place, Preempt

_ATOMS = frozenset((str, int, float, bool, type(None)))
_ENCODER = json.JSONEncoder(separators=(",", ":"))
_LONGEST = 10_000
"""Most bits of an integer; JSON's readers refuse more than some thousand digits."""
_DELTAS: dict[str, Callable[..., Delta]] = {"p": Preempt, "m": Migrate, "s": Place}


def encode(value: Any) -> bytes:
    """Plain values as JSON, without any space."""
    return _ENCODER.encode(value).encode("ascii")


def decode(body: str | bytes, path: str, record: int) -> Any:
    """Decode the JSON of a row."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise JournalError(f"a call that cannot be read: {error}", path, record) from None


def plain(value: Any) -> Any:
    """Turn a part of an event, or an id, into a value for JSON; `events.from_dict` and `as_ids` read it.

    Raise InputError if the value could not be read back.
    """
    kind = type(value)
    if kind is str:
        return value if value.isascii() else _carried(value)
    if kind is int and value.bit_length() > _LONGEST:
        raise InputError(f"a journal can only hold integers of at most {_LONGEST} bits")
    if kind in _ATOMS:
        return value
    if kind is tuple or kind is list:
        return [plain(v) for v in value]
    if isinstance(value, Mapping):
        if not all(isinstance(name, str) for name in value):
            raise InputError(f"a journal can only hold names that are strings, not {quoted(dict(value))}")
        return {plain(name): plain(v) for name, v in value.items()}
    if isinstance(value, np.generic) and not isinstance(value.item(), np.generic):  # NumPy's long floats stay NumPy's
        return plain(value.item())
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, tuple):
        return [plain(v) for v in value]
    if isinstance(value, str):
        return plain(str.__str__(value))
    if isinstance(value, int | float):
        return value
    raise InputError(
        f"a journal can only hold ids that are strings, numbers, None or tuples of them, not {quoted(value)}"
    )


def _carried(text: str) -> str:
    """Refuse a string that does not come back: JSON makes one character of a pair of surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"a journal can only hold strings without lone surrogates, not {text!r}") from None
    return text


def deltas_of(records: Sequence[Sequence[Any]]) -> tuple[Delta, ...]:
    """Make deltas from their plain form."""
    return tuple(_DELTAS[letter](*map(as_ids, values)) for letter, *values in records)


def as_ids(value: Any) -> Any:
    """Turn the lists that JSON made of ids into tuples again."""
    return tuple(map(as_ids, value)) if isinstance(value, list) else value
