"""Policies as text that can be compared and, if all parts are this package's own, read back.

A policy is code, so only its composition can be stored: the names of its parts and their settings.
The caller's functions are stored by name; two functions with the same name count as equal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from inspect import signature
from types import MappingProxyType
from typing import Any
from zlib import crc32

import numpy as np

from flowsched.cluster.model import Task
from flowsched.exceptions import UnknownIdError
from flowsched.policy import fairness, fragmentation, placement, priority, providers, utility
from flowsched.policy.policy import Policy

Makers = Mapping[str, Callable[..., Any]]
"""Functions that make the parts of an adapter, by name."""

_PARTS: dict[str, type] = {
    name: getattr(module, name)
    for module in (fairness, fragmentation, placement, priority, providers, utility)
    for name in module.__all__
    if isinstance(getattr(module, name), type)
}
_PARTS.update({"Policy": Policy, "Task": Task})


def describe(value: Any) -> Any:
    """Describe a policy, or a part of one, by dicts, lists, strings and numbers only.

    An object is ``{"is": name, setting: ...}``; its settings are the arguments of its class.
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
    ours = _PARTS.get(kind.__name__) is kind
    known = {name: describe(setting) for name, setting in _settings(value)}
    return {"is": kind.__name__ if ours else _name(value if _is_code(value) else kind), **known}


def _is_code(value: Any) -> bool:
    return (
        isinstance(value, type) or not (is_dataclass(value) or hasattr(value, "__dict__")) or hasattr(value, "__code__")
    )


def _settings(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the settings that an object was made with, as far as they are its attributes."""
    if _is_code(value):
        return
    if is_dataclass(value):
        # A setting that is newer than a journal is missing in the description there.
        names: Iterable[str] = [
            f.name
            for f in fields(value)
            if f.init and not (f.metadata.get("later") and getattr(value, f.name) == f.default)
        ]
    else:
        later = getattr(type(value), "later_settings", ())
        names = [
            name
            for name, parameter in signature(type(value)).parameters.items()
            if not (name in later and getattr(value, name) == parameter.default)
        ]
    for name in names:
        if hasattr(value, name):
            yield name, getattr(value, name)


def rebuild(
    description: Any, makers: Makers = MappingProxyType({}), known: Mapping[str, Any] = MappingProxyType({})
) -> Any:
    """Make the policy or part of a description.

    `makers` are functions that make parts of other packages, by name; `known` are other parts by description, see
    `parts`.  If a part is still unknown, the UnknownIdError names it.
    """
    if isinstance(description, list):
        return tuple(rebuild(v, makers, known) for v in description)
    if not isinstance(description, dict):
        return description
    settings = dict(description)
    name = settings.pop("is")
    if name in ("mapping", "set"):
        items = [rebuild(item, makers, known) for item in settings["items"]]
        return dict(items) if name == "mapping" else frozenset(items)
    make = makers.get(name) or _PARTS.get(name)
    if make is not None:
        return make(**{k: rebuild(v, makers, known) for k, v in settings.items()})
    if (words := json.dumps(description)) in known:
        return known[words]
    raise UnknownIdError(name)


def parts(value: Any) -> dict[str, Any]:
    """Return all objects in a policy, or in several, by their descriptions."""
    found: dict[str, Any] = {}
    look = [value]
    while look:
        thing = look.pop()
        if thing is None or isinstance(thing, bool | int | float | str | np.generic | np.ndarray):
            continue
        if isinstance(thing, Mapping):
            look += [*thing.keys(), *thing.values()]
        elif isinstance(thing, Sequence | set | frozenset):
            look += thing
        else:
            found[json.dumps(describe(thing))] = thing
            look += [setting for _, setting in _settings(thing)]
    return found


def difference(then: Any, now: Any, where: str = "policy") -> str | None:
    """Return the first setting in which two descriptions differ, in words."""
    if then == now:
        return None
    pairs: list[tuple[str, Any, Any]] = []
    if isinstance(then, dict) and isinstance(now, dict) and then["is"] == now["is"]:
        pairs = [(f"{where}.{k}", then.get(k, _DEFAULT), now.get(k, _DEFAULT)) for k in {**then, **now}]
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        pairs = [(f"{where}[{i}]", a, b) for i, (a, b) in enumerate(zip(then, now, strict=True))]
    for inner, a, b in pairs:
        found = difference(a, b, inner)
        if found is not None:
            return found
    return f"{where} was {_short(then)}, and is {_short(now)} here"


_DEFAULT = {"is": "as by default"}


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
