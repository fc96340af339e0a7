"""Events and deltas as JSON, and back.

Only what reads back equal is written: strings, numbers, None, and tuples of them as ids.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

import numpy as np

from flowsched.cluster import Task
from flowsched.cluster.events import Event
from flowsched.exceptions import InputError, JournalError
from flowsched.rounds.values import Delta, Migrate, Place, Preempt

__all__ = ["as_ids", "decode", "deltas_of", "encode", "plain", "plain_delta"]

_ATOMS = frozenset((str, int, float, bool, type(None)))
_ENCODER = json.JSONEncoder(separators=(",", ":"))
_LONGEST = 10_000
"""Most bits of an integer; JSON's readers refuse more than some thousand digits."""
_FIELDS: dict[type, list[tuple[str, Any]]] = {}
_DELTAS: dict[str, Callable[..., Delta]] = {"p": Preempt, "m": Migrate, "s": Place}


def encode(value: Any) -> bytes:
    """Plain values as JSON, without any space."""
    return _ENCODER.encode(value).encode("ascii")


def decode(body: bytes, path: str, offset: int) -> Any:
    """Decode the JSON of a record."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise JournalError(f"a record that cannot be read: {error}", path, offset) from None


def plain(value: Any) -> Any:
    """Turn an event, a part of one, or an id into what JSON can hold; `events.from_dict` and `as_ids` read it.

    Raises
    ------
    InputError
        The value could not be read back.
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
            raise InputError(f"a journal can only hold names that are strings, not {dict(value)!r}")
        return {plain(name): plain(v) for name, v in value.items()}
    if isinstance(value, Event | Task):
        return _terse(value)
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
    raise InputError(f"a journal can only hold ids that are strings, numbers, None or tuples of them, not {value!r}")


def _carried(text: str) -> str:
    """Refuse a string that does not come back: JSON makes one character of a pair of surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"a journal can only hold strings without lone surrogates, not {text!r}") from None
    return text


def _terse(value: Event | Task) -> dict[str, Any]:
    """Turn an event or a task into a dict without the fields that have their defaults."""
    kind = type(value)
    known = _FIELDS.get(kind)
    if known is None:
        known = _FIELDS[kind] = [
            (f.name, f.default if f.default_factory is MISSING else f.default_factory()) for f in fields(kind)
        ]
    record: dict[str, Any] = {} if kind is Task else {"kind": kind.__name__}
    for name, default in known:
        setting = getattr(value, name)
        if setting is not default and not (_like(setting, default) and setting == default):
            record[name] = plain(setting)
    return record


def _like(setting: Any, default: Any) -> bool:
    """True if the two can be compared, and equal ones are read back alike."""
    return type(setting) is type(default) or (isinstance(setting, Mapping) and isinstance(default, Mapping))


def plain_delta(delta: Delta) -> list[Any]:
    """Turn a delta into what JSON can hold; `deltas_of` reads it."""
    if isinstance(delta, Place):
        return ["s", plain(delta.task), plain(delta.machine), delta.devices]
    if isinstance(delta, Preempt):
        return ["p", plain(delta.task), plain(delta.machine), plain(delta.by)]
    return ["m", plain(delta.task), plain(delta.old), plain(delta.machine), delta.devices, plain(delta.by)]


def deltas_of(records: Sequence[Sequence[Any]]) -> tuple[Delta, ...]:
    """Make deltas from their plain form."""
    return tuple(_DELTAS[letter](*map(as_ids, values)) for letter, *values in records)


def as_ids(value: Any) -> Any:
    """Turn the lists that JSON made of ids into tuples again."""
    return tuple(map(as_ids, value)) if isinstance(value, list) else value
