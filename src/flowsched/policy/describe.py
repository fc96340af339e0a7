"""Policies in words that can be compared and, where they consist of this package's parts only, read back.

A policy is code, so nothing more of it can be kept than what it consists of: the names of its parts and their settings.
A function of the caller's is its name; two of one name count as the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from inspect import signature
from typing import Any
from zlib import crc32

import numpy as np

from flowsched.cluster.model import Task
from flowsched.exceptions import UnknownIdError
from flowsched.policy import Policy, fairness, fragmentation, placement, priority, providers, waiting
from flowsched.policy import PreemptionCost as _PreemptionCost

__all__ = ["describe", "difference", "rebuild"]

_PARTS: dict[str, type] = {
    name: getattr(module, name)
    for module in (fairness, fragmentation, placement, priority, providers, waiting)
    for name in module.__all__
    if isinstance(getattr(module, name), type)
}
_PARTS.update({"Policy": Policy, "PreemptionCost": _PreemptionCost, "Task": Task})


def describe(value: Any) -> Any:
    """What a policy, or a part of one, consists of: dicts, lists, strings and numbers only.

    An object is ``{"is": name, setting: ...}``, its settings being what its class is called with.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return {"is": f"array of {value.dtype}", "shape": list(value.shape), "crc": crc32(value.tobytes())}
    if isinstance(value, Mapping):
        return {"is": "mapping", "items": _sorted([describe(k), describe(v)] for k, v in value.items())}
    if isinstance(value, set | frozenset):
        return {"is": "set", "items": _sorted(describe(v) for v in value)}
    if isinstance(value, Sequence):
        return [describe(v) for v in value]
    if isinstance(value, partial):
        return {"is": "partial", "of": describe(value.func), "with": describe([value.args, value.keywords])}
    kind: type = type(value)
    if isinstance(value, type) or not (is_dataclass(value) or hasattr(value, "__dict__")) or hasattr(value, "__code__"):
        return {"is": _name(value)}
    settings = [f.name for f in fields(value) if f.init] if is_dataclass(value) else list(signature(kind).parameters)
    known = {name: describe(getattr(value, name)) for name in settings if hasattr(value, name)}
    ours = _PARTS.get(kind.__name__) is kind
    return {"is": kind.__name__ if ours else _name(kind), **known}


def rebuild(description: Any) -> Any:
    """What was described.

    Raises
    ------
    UnknownIdError
        It is not, or not only, of this package's parts; the message names the one that is not.
    """
    if isinstance(description, list):
        return tuple(rebuild(v) for v in description)
    if not isinstance(description, dict):
        return description
    settings = dict(description)
    name = settings.pop("is")
    if name in ("mapping", "set"):
        items = [rebuild(item) for item in settings["items"]]
        return dict(items) if name == "mapping" else frozenset(items)
    if name not in _PARTS:
        raise UnknownIdError(name)
    return _PARTS[name](**{k: rebuild(v) for k, v in settings.items()})


def difference(then: Any, now: Any, where: str = "policy") -> str | None:
    """The first setting in which two descriptions differ, in words."""
    if then == now:
        return None
    pairs: list[tuple[str, Any, Any]] = []
    if isinstance(then, dict) and isinstance(now, dict) and then.keys() == now.keys() and then["is"] == now["is"]:
        pairs = [(f"{where}.{k}", then[k], now[k]) for k in then]
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        pairs = [(f"{where}[{i}]", a, b) for i, (a, b) in enumerate(zip(then, now, strict=True))]
    for inner, a, b in pairs:
        found = difference(a, b, inner)
        if found is not None:
            return found
    return f"{where} was {_short(then)}, and is {_short(now)} here"


def _short(description: Any) -> str:
    if isinstance(description, dict):
        return str(description["is"])
    text = json.dumps(description)
    return text if len(text) < 60 else text[:57] + "..."


def _sorted(items: Any) -> list[Any]:
    return sorted(items, key=lambda item: json.dumps(item, sort_keys=True, default=str))


def _name(thing: Any) -> str:
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{named.__module__}.{named.__qualname__}"
