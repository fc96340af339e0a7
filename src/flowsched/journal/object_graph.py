"""A graph of plain objects as tables of data, and back.

Rules of what becomes objects, whatever the bytes are:

* Data only.  An object is of one of the classes of a `Schema`, or a string, number, array or container.  Nothing else
  can be named, and reading calls nothing but ``__new__``, ``__setstate__`` and the setting of attributes of these
  classes.
* No attribute takes the place of a method or property.
* A number that refers to something is compared with how many there are before it is used.
* Memory is bounded by the size of the bytes: nothing in them is compressed or repeated.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from flowsched.boundary.validate import quoted
from flowsched.exceptions import InputError
from flowsched.journal.graph_tables import (
    ARRAY,
    BYTES,
    CONSTANT,
    CONSTANTS,
    DEQUE,
    DTYPES,
    FIRST_CLASS,
    FLOAT,
    FOREIGN,
    FROZEN,
    FROZEN_KINDS,
    GIVEN,
    INT,
    MAKERS,
    MAPS,
    MUTABLE,
    SET,
    STR,
    Graph,
    Schema,
    bounded,
    stateful,
    vector,
)

__all__ = ["graph_of", "objects_of"]


def graph_of(
    root: Any, schema: Schema, given: Mapping[str, Any], foreign: list[Any] | None = None,
    instead: Mapping[type, str] = MappingProxyType({}),
) -> Graph:  # fmt: skip
    """Return the graph of all that an object refers to; objects of classes in `instead` are replaced by a given one.

    Raises
    ------
    InputError
        Something cannot be written down, and there is no list of foreign objects.
    """
    graph = Graph(schema, given, foreign)
    try:
        _Taking(graph, instead).take(root)
    except RecursionError:
        raise InputError("an id is nested too deeply to be written down") from None
    return graph


def objects_of(graph: Graph) -> Any:
    """Return the root, made anew with all that it refers to; `Graph.made` then has all objects by class."""
    return _Making(graph).make()


def _slots(kind: type) -> list[str]:
    return [name for base in kind.__mro__ for name in vars(base).get("__slots__", ()) if name != "__weakref__"]


class _Taking:
    """One walk through objects, which fills the tables of a graph."""

    def __init__(self, graph: Graph, instead: Mapping[type, str]) -> None:
        self.graph = graph
        names = list(graph.given)
        self._instead = {kind: names.index(name) << 8 | GIVEN for kind, name in instead.items()}
        self._given = {id(thing): index << 8 | GIVEN for index, thing in enumerate(graph.given.values())}
        self._seen: dict[int, int] = {}
        self._alive: list[Any] = []  # or their ids could come again
        self._strings: dict[str, int] = {}
        self._integers: dict[int, int] = {}
        self._kinds: dict[type, int] = {}
        self._instances: list[list[Any]] = []
        self._containers: dict[int, list[Any]] = {kind: [] for kind in MAKERS}

    def take(self, root: Any) -> None:
        graph, code = self.graph, self._code
        graph.root = code(root)
        raw: list[list[list[Any]]] = []
        done: list[int] = []
        progress = True
        while progress:
            progress = False
            for kind, things in self._containers.items():
                rows = graph.mutable[kind]
                for thing in things[len(rows) :]:
                    progress = True
                    if kind in MAPS:
                        rows.append([code(part) for pair in thing.items() for part in pair])
                    else:
                        rows.append([code(part) for part in thing])
            for i, instances in enumerate(self._instances):
                if i == len(raw):
                    names = graph.names[i]
                    raw.append([[] for _ in range(1 if names is None else len(names) + (not names))])
                    done.append(0)
                fresh = instances[done[i] :]
                if fresh:
                    progress = True
                    done[i] += len(fresh)
                    self._take_columns(i, fresh, raw[i])
        graph.columns = [[np.concatenate([*map(np.atleast_1d, parts)]) for parts in columns] for columns in raw]
        graph.bounds = [-1 if thing.maxlen is None else thing.maxlen for thing in self._containers[DEQUE]]

    def _take_columns(self, kind: int, things: list[Any], columns: list[list[Any]]) -> None:
        names, code = self.graph.names[kind], self._code
        if names is None:
            columns[0].append(np.array([code(thing.__getstate__()) for thing in things], np.int64))
            return
        if not names:  # only their number
            columns[0].append(np.zeros(len(things), np.int64))
            return
        for thing in things:
            assert getattr(thing, "__dict__", {}).keys() <= set(names), (
                f"{type(thing).__name__}: not all have the same attributes"
            )
        for name, column in zip(names, columns, strict=True):
            column.append(np.array([code(getattr(thing, name)) for thing in things], np.int64))

    def _code(self, value: Any) -> int:
        kind = type(value)
        graph = self.graph
        if kind is str:
            index = self._strings.get(value)
            if index is None:
                if not value.isascii():
                    _carried(value)
                index = self._strings[value] = len(graph.strings)
                graph.strings.append(value)
            return index << 8 | STR
        if kind is int:
            index = self._integers.get(value)
            if index is None:
                index = self._integers[value] = len(graph.integers)
                graph.integers.append(value)
            return index << 8 | INT
        if kind is float:
            graph.floats.append(value)  # type: ignore[attr-defined]
            return len(graph.floats) - 1 << 8 | FLOAT
        if value is None or kind is bool:
            return (0 if value is None else 1 + value) << 8 | CONSTANT
        known = self._seen.get(id(value))
        if known is not None:
            return known
        known = self._given.get(id(value))
        if known is None:
            known = self._new(value, kind)
        self._seen[id(value)] = known
        self._alive.append(value)
        return known

    def _new(self, value: Any, kind: type) -> int:
        graph = self.graph
        if kind in self._instead:
            return self._instead[kind]
        if kind in graph.schema.known:
            if issubclass(kind, tuple | Enum):
                parts = value if issubclass(kind, tuple) else (value.value,)
                return self._frozen((kind, issubclass(kind, tuple)), parts)
            return self._instance(value, kind)
        if kind in MUTABLE:
            things = self._containers[MUTABLE[kind]]
            things.append(value)
            return len(things) - 1 << 8 | MUTABLE[kind]
        if kind in FROZEN_KINDS:
            return self._frozen(FROZEN_KINDS.index(kind), (dict(value),) if kind is MappingProxyType else value)
        if kind is np.ndarray and value.dtype.str[1:] in DTYPES:
            graph.arrays.append(value)
            return len(graph.arrays) - 1 << 8 | ARRAY
        if graph.foreign is not None:
            graph.foreign.append(value)
            return len(graph.foreign) - 1 << 8 | FOREIGN
        if isinstance(value, np.generic) and not isinstance(item := value.item(), np.generic):
            return self._code(item)
        if kind is bytes:
            graph.chunks.append(value)
            return len(graph.chunks) - 1 << 8 | BYTES
        raise InputError(f"only strings, numbers and tuples of them can be written down, not {quoted(value)}")

    def _frozen(self, tag: Any, parts: Iterable[Any]) -> int:
        codes = [self._code(part) for part in parts]
        self.graph.frozen.append((tag, codes))
        return len(self.graph.frozen) - 1 << 8 | FROZEN

    def _instance(self, value: Any, kind: type) -> int:
        index = self._kinds.get(kind)
        if index is None:
            index = self._kinds[kind] = len(self._instances)
            self._instances.append([])
            self.graph.classes.append(kind)
            names = None if stateful(kind) else [*dict.fromkeys((*_slots(kind), *getattr(value, "__dict__", ())))]
            self.graph.names.append(names)
        self._instances[index].append(value)
        return len(self._instances[index]) - 1 << 8 | FIRST_CLASS + index


def _carried(text: str) -> None:
    """Refuse a string that no encoding carries: two halves of a pair would come back as one character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"a string with a lone surrogate cannot be written down: {quoted(text)}") from None


class _Making:
    """The objects of one graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.tables: dict[int, Sequence[Any]] = {
            CONSTANT: CONSTANTS, STR: graph.strings, INT: graph.integers, FLOAT: graph.floats, BYTES: graph.chunks,
            ARRAY: [array.copy() for array in graph.arrays], GIVEN: list(graph.given.values()),
            FOREIGN: graph.foreign or (),
        }  # fmt: skip

    def make(self) -> Any:
        graph, tables = self.graph, self.tables
        bounds = graph.bounds
        for kind, rows in graph.mutable.items():
            tables[kind] = [MAKERS[kind]() for _ in rows]
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
        frozen: list[Any] = []
        tables[FROZEN] = frozen
        for tag, codes in graph.frozen:
            frozen.append(_immutable(tag, self._values(codes)))
        states: list[tuple[Any, Any]] = []
        for i, (names, columns) in enumerate(zip(graph.names, graph.columns, strict=True)):
            things = tables[FIRST_CLASS + i]
            if names is None:
                states += zip(things, self._values(columns[0].tolist()), strict=True)
                continue
            for name, column in zip(names, columns, strict=False):
                _check_name(graph.classes[i], name)
                put = object.__setattr__
                for thing, value in zip(things, self._values(column.tolist()), strict=True):
                    put(thing, name, value)
        for kind, rows in graph.mutable.items():
            for thing, codes in zip(tables[kind], rows, strict=True):
                values = self._values(codes)
                if kind in MAPS:
                    thing.update(zip(values[::2], values[1::2], strict=True))
                elif kind == SET:
                    thing.update(values)
                else:
                    thing.extend(values)
        for thing, state in states:
            _set_state(thing, state)
        (root,) = self._values([graph.root])
        return root

    def _values(self, codes: list[int]) -> list[Any]:
        if codes and min(codes) < 0:
            raise IndexError("a negative reference")
        tables = self.tables
        return [tables[code & 255][code >> 8] for code in codes]


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
    """Refuse an attribute that would hide what the class does."""
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
