"""A graph of plain objects as tables of data, and back.

Rules of reading, for any bytes:

* Data only.  An object is of one of the classes of a `Schema`, or a string, number, array or container.  Nothing else
  can be named, and reading calls nothing but ``__new__``, ``__setstate__`` and the setting of attributes of these
  classes.
* No attribute takes the place of a method or property.
* An index is checked against the length of its table before it is used.
* Memory is bounded by the size of the bytes: nothing in them is compressed or repeated.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from flowsched.exceptions import InputError
from flowsched.journal._fill import fill, immutables, values
from flowsched.journal._walk import Walk
from flowsched.journal.graph_tables import (
    ARRAY,
    BYTES,
    CONSTANT,
    CONSTANTS,
    DEQUE,
    FIRST_CLASS,
    FLOAT,
    FOREIGN,
    FROZEN_KINDS,
    GIVEN,
    INT,
    MAKERS,
    MAPS,
    SET,
    STR,
    Graph,
    Schema,
    bounded,
    slices,
    vector,
)


def graph_of(
    root: Any, schema: Schema, given: Mapping[str, Any], foreign: list[Any] | None = None,
    instead: Mapping[type, str] = MappingProxyType({}),
) -> Graph:  # fmt: skip
    """Return the graph of all that an object refers to; objects of classes in `instead` are replaced by a given one.

    Raise InputError if something cannot be written down, and there is no list of foreign objects.
    """
    graph = Graph(schema, given, foreign)
    try:
        Walk(graph, instead).take(root)
    except RecursionError:
        raise InputError("an id is nested too deeply to be written down") from None
    return graph


def objects_of(graph: Graph) -> Any:
    """Rebuild the root with all objects that it refers to; `Graph.made` then has all objects by class."""
    return _Making(graph).make()


class _Making:
    """The objects of one graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.tables: list[list[Any]] = [[] for _ in range(FIRST_CLASS + len(graph.classes))]
        for kind, of_kind in (
            (CONSTANT, CONSTANTS), (STR, graph.strings), (INT, graph.integers), (FLOAT, graph.floats),
            (BYTES, graph.chunks), (ARRAY, (array.copy() for array in graph.arrays)), (GIVEN, graph.given.values()),
            (FOREIGN, graph.foreign or ()),
        ):  # fmt: skip
            self.tables[kind] += of_kind

    def make(self) -> Any:
        graph, tables = self.graph, self.tables
        bounds = graph.bounds
        for kind, rows in graph.mutable.items():
            tables[kind] = [MAKERS[kind]() for _ in range(len(rows[0]))]
        if len(bounds) != len(tables[DEQUE]):
            raise ValueError("lengths of deques expected")
        tables[DEQUE] = [deque(maxlen=None if most == -1 else bounded(most, 2**62)) for most in bounds]
        for i, (cls, columns) in enumerate(zip(graph.classes, graph.columns, strict=True)):
            if issubclass(cls, tuple | Enum):
                raise TypeError(f"{cls.__name__} is no class of objects with attributes")
            lengths = {len(vector(column, "i8")) for column in columns}
            if len(lengths) != 1:
                raise ValueError(f"columns of {cls.__name__} differ in length")
            new: Callable[[type], Any] = cls.__new__
            graph.made[cls] = tables[FIRST_CLASS + i] = [new(cls) for _ in range(lengths.pop())]
        immutables(tables, graph.frozen, graph.lengths.tobytes(), graph.parts.tobytes(), _immutable)
        states: list[tuple[Any, Any]] = []
        for i, (names, columns) in enumerate(zip(graph.names, graph.columns, strict=True)):
            things = tables[FIRST_CLASS + i]
            if names is None:
                states += zip(things, values(tables, columns[0].tobytes()), strict=True)
                continue
            for name, column in zip(names, columns, strict=False):
                _check_name(graph.classes[i], name)
                fill(tables, things, name, column.tobytes())
        for kind, (counts, codes) in graph.mutable.items():
            for thing, parts in zip(tables[kind], slices(counts, values(tables, codes.tobytes())), strict=True):
                if kind in MAPS:
                    thing.update(zip(parts[::2], parts[1::2], strict=True))
                elif kind == SET:
                    thing.update(parts)
                else:
                    thing.extend(parts)
        for thing, state in states:
            _set_state(thing, state)
        (root,) = values(tables, np.array([bounded(graph.root, 2**63 - 1)], np.int64).tobytes())
        return root


def _immutable(tag: Any, parts: list[Any]) -> Any:
    if isinstance(tag, int):
        kind = FROZEN_KINDS[bounded(tag, len(FROZEN_KINDS) - 1)]
        if kind is MappingProxyType:
            (mapping,) = parts
            return MappingProxyType(mapping)
        return kind(parts)
    kind, plural = tag
    if plural is not issubclass(kind, tuple) or not issubclass(kind, tuple | Enum):
        raise TypeError(f"{kind.__name__} is no such thing")
    fields = getattr(kind, "_fields", None)
    if fields is not None and len(fields) != len(parts):
        raise TypeError(f"{kind.__name__} has {len(fields)} parts")
    return tuple.__new__(kind, parts) if plural else kind(*parts)


def _check_name(kind: type, name: Any) -> None:
    """Refuse an attribute that would hide a member of the class."""
    if type(name) is not str or name.startswith("__"):
        raise TypeError("the name of an attribute expected")
    there = getattr(kind, name, None)
    if callable(there) or isinstance(there, property | cached_property):
        raise TypeError(f"{kind.__name__}.{name} is no attribute that is kept")


def _set_state(thing: Any, state: Any) -> None:
    kind = type(thing)
    setter = getattr(kind, "__setstate__", None)
    if setter is not None:
        setter(thing, state)
        return
    for name in state:
        _check_name(kind, name)
    vars(thing).update(state)
