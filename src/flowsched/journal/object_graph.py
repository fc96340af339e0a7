"""A graph of plain objects as columns of data, and back.

Rules of what `Graph.read` accepts, whatever the bytes are:

* Data only.  An object is of one of the classes of a `Schema`, or a string, number, array or container.  Nothing else can be
  named, and reading calls nothing but ``__new__``, ``__setstate__`` and the setting of attributes of these classes.
* No attribute takes the place of a method or property.
* A number that refers to something is compared with how many there are before it is used.
* Memory is bounded by the size of the bytes: nothing in them is compressed or repeated.

Every value has a *code*, ``index << 8 | kind``: the kind is a table, the index a place in it.  Mutable things keep their
identity.  Immutable containers come after what they hold; a table of mutable ones is made empty first, and filled last.

::

    bytes  = length of head u64 | head (JSON) | arrays, one after the other
    head   = names of classes, their attributes, strings, integers, dtype and shape of each array
"""

from __future__ import annotations

import json
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.exceptions import InputError
from flowsched.validate import quoted

__all__ = ["Graph", "Schema", "stateful"]

Codes = NDArray[np.int64]

_CONSTANT, _STR, _INT, _FLOAT, _BYTES, _ARRAY, _GIVEN, _FOREIGN, _FROZEN, _LIST, _DICT, _SET, _DEQUE, _ORDERED = range(
    14
)
_FIRST_CLASS = 16
_CONSTANTS = (None, False, True)
_FROZEN_KINDS = (tuple, frozenset, MappingProxyType)
_MUTABLE: dict[type, int] = {list: _LIST, dict: _DICT, set: _SET, deque: _DEQUE, OrderedDict: _ORDERED}
_MAKERS: dict[int, Callable[[], Any]] = {_LIST: list, _DICT: dict, _SET: set, _DEQUE: deque, _ORDERED: OrderedDict}
_MAPS = (_DICT, _ORDERED)
_DTYPES = frozenset("b1 i1 i2 i4 i8 u1 u2 u4 u8 f4 f8".split())
_MOST_CLASSES = 256 - _FIRST_CLASS


@dataclass(frozen=True, eq=False)
class Schema:
    """The classes that a graph may consist of.

    Parameters
    ----------
    classes : sequence of type
        Of unique names.  An object with ``__getstate__`` is what that returns, others are their attributes.
    """

    classes: Sequence[type]

    @cached_property
    def by_name(self) -> Mapping[str, type]:
        """The classes by name."""
        return {kind.__name__: kind for kind in self.classes}

    @cached_property
    def known(self) -> frozenset[type]:
        """All of them."""
        return frozenset(self.classes)


def stateful(kind: type) -> bool:
    """Whether the class says itself what it consists of; `dataclass` gives frozen ones with slots a method of no interest."""
    made = "__dataclass_fields__" in vars(kind)
    return not made and any("__getstate__" in vars(base) for base in kind.__mro__[:-1])


def _slots(kind: type) -> list[str]:
    return [name for base in kind.__mro__ for name in vars(base).get("__slots__", ()) if name != "__weakref__"]


@dataclass
class Graph:
    """Objects as tables; made by `of`, and given back by `objects`.

    Parameters
    ----------
    schema : Schema
    given : mapping of str to object
        What is not written down, by name: the reader brings its own.
    foreign : list or None
        Takes objects of other kinds, which then are shared.  None where there may be none.
    """

    schema: Schema
    given: Mapping[str, Any]
    foreign: list[Any] | None = None
    root: int = 0
    classes: list[type] = field(default_factory=list)
    names: list[list[str] | None] = field(default_factory=list)
    columns: list[list[Any]] = field(default_factory=list)
    strings: list[str] = field(default_factory=list)
    integers: list[int] = field(default_factory=list)
    floats: Sequence[float] = field(default_factory=list)
    chunks: list[bytes] = field(default_factory=list)
    arrays: list[NDArray[Any]] = field(default_factory=list)
    frozen: list[tuple[Any, list[int]]] = field(default_factory=list)
    mutable: dict[int, list[list[int]]] = field(default_factory=lambda: {kind: [] for kind in _MAKERS})
    bounds: list[int] = field(default_factory=list)
    made: dict[type, Sequence[Any]] = field(default_factory=dict)

    # -- from objects -------------------------------------------------------------------------------------------

    @classmethod
    def of(
        cls, root: Any, schema: Schema, given: Mapping[str, Any], foreign: list[Any] | None = None,
        instead: Mapping[type, str] = MappingProxyType({}),
    ) -> Graph:  # fmt: skip
        """The graph of all that an object refers to; objects of some classes are replaced by something given.

        Raises
        ------
        InputError
            Something cannot be written down, and there is no list of foreign things.
        """
        graph = cls(schema, given, foreign)
        try:
            _Taking(graph, instead).take(root)
        except RecursionError:
            raise InputError("an id is nested too deeply to be written down") from None
        return graph

    # -- to objects ---------------------------------------------------------------------------------------------

    def objects(self) -> Any:
        """The root, made anew with all that it refers to; `made` has all objects by class."""
        return _Making(self).make()

    # -- bytes --------------------------------------------------------------------------------------------------

    def write(self) -> bytes:
        """The graph as bytes; see `read`."""
        arrays: list[NDArray[Any]] = [*self.arrays, np.array(self.floats, np.float64)]

        def rows(lists: Iterable[list[int]]) -> None:
            lists = list(lists)
            arrays.append(np.fromiter(map(len, lists), np.int64, len(lists)))
            arrays.append(np.array([code for row in lists for code in row], np.int64))

        names = list(self.schema.by_name)
        rows(codes for _, codes in self.frozen)
        for lists in self.mutable.values():
            rows(lists)
        for columns in self.columns:
            arrays += [np.array(column) for column in columns]
        shapes = [[array.dtype.str[1:], *array.shape] for array in arrays]
        head = {
            "root": self.root, "classes": [kind.__name__ for kind in self.classes], "names": self.names,
            "strings": self.strings, "integers": self.integers, "chunks": [chunk.hex() for chunk in self.chunks],
            "given": list(self.given),
            "frozen": [tag if isinstance(tag, int) else [names.index(tag[0].__name__), tag[1]] for tag, _ in self.frozen],
            "bounds": self.bounds, "own": len(self.arrays), "arrays": shapes,
        }  # fmt: skip
        text = json.dumps(head, separators=(",", ":")).encode("ascii")
        blob = [
            np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes() for array in arrays
        ]
        return b"".join([len(text).to_bytes(8, "little"), text, *blob])

    @classmethod
    def read(cls, image: bytes | memoryview, schema: Schema, given: Mapping[str, Any]) -> Graph:
        """The graph that `write` wrote.

        Raises
        ------
        ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError
            The bytes are no such graph; `objects` raises those and AttributeError.
        """
        view = memoryview(image)
        size = int.from_bytes(view[:8], "little")
        if size > len(view) - 8:
            raise ValueError("the head is longer than all of it")
        head = json.loads(bytes(view[8 : 8 + size]))
        arrays = list(_arrays(view[8 + size :], head["arrays"]))
        own = _count(head["own"], len(arrays))
        graph = cls(schema, {name: given[name] for name in head["given"]}, None, head["root"])
        rest = _Rest(arrays[own:])
        graph.arrays, graph.floats = arrays[:own], _vector(next(rest), "f8").tolist()
        graph.strings, graph.integers = head["strings"], head["integers"]
        if not all(type(text) is str for text in graph.strings) or not all(type(n) is int for n in graph.integers):
            raise TypeError("a table of strings or of integers has something else")
        graph.chunks = [bytes.fromhex(chunk) for chunk in head["chunks"]]
        kinds = list(schema.by_name.values())
        tags = [
            tag if isinstance(tag, int) else (kinds[_count(tag[0], len(kinds) - 1)], tag[1]) for tag in head["frozen"]
        ]
        graph.frozen = list(zip(tags, _rows(rest), strict=True))
        for kind in graph.mutable:
            graph.mutable[kind] = _rows(rest)
        graph.bounds = head["bounds"]
        graph.classes = [schema.by_name[name] for name in head["classes"]]
        graph.names = head["names"]
        if len(graph.classes) > _MOST_CLASSES or len(set(graph.classes)) < len(graph.classes):
            raise ValueError("classes are told twice")
        for known, names in zip(graph.classes, graph.names, strict=True):
            if (names is None) != stateful(known):
                raise ValueError(f"{known.__name__} is told in another way")
            graph.columns.append([next(rest) for _ in range(1 if names is None else len(names) + (not names))])
        rest.end()
        return graph


def _count(value: Any, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"a number from 0 to {most} expected")
    return value


def _vector(array: NDArray[Any], dtype: str) -> NDArray[Any]:
    if array.ndim != 1 or array.dtype.str[1:] != dtype:
        raise TypeError("a table has another type")
    return array


def _arrays(view: memoryview, shapes: Any) -> Iterator[NDArray[Any]]:
    at = 0
    for dtype, *shape in shapes:
        if dtype not in _DTYPES or len(shape) > 8:
            raise ValueError("an array has a type that does not belong there")
        count = 1
        for length in shape:
            count *= _count(length, len(view))
        kind = np.dtype("?" if dtype == "b1" else "<" + dtype)
        if count * kind.itemsize > len(view) - at:
            raise ValueError("an array is longer than what is left")
        array = np.frombuffer(view, kind, count, at).reshape(shape)
        yield (array.view(np.uint8) != 0).reshape(shape) if dtype == "b1" else array.astype(kind.newbyteorder("="))
        at += count * kind.itemsize
    if at != len(view):
        raise ValueError("there is more than the arrays")


class _Rest:
    """Arrays one by one."""

    def __init__(self, arrays: list[NDArray[Any]]) -> None:
        self._arrays = arrays[::-1]

    def __next__(self) -> NDArray[Any]:
        if not self._arrays:
            raise ValueError("there are fewer arrays than are told")
        return self._arrays.pop()

    def end(self) -> None:
        """Refuse more."""
        if self._arrays:
            raise ValueError("there are more arrays than are told")


def _rows(arrays: _Rest) -> list[list[int]]:
    lengths, codes = _vector(next(arrays), "i8"), _vector(next(arrays), "i8").tolist()
    if (len(lengths) and (lengths.min() < 0 or lengths.max() > len(codes))) or lengths.sum() != len(codes):
        raise ValueError("the lengths of a table do not add up")
    ends = np.cumsum(lengths).tolist()
    return [codes[start:end] for start, end in zip([0, *ends], ends, strict=False)]


class _Taking:
    """One walk through objects."""

    def __init__(self, graph: Graph, instead: Mapping[type, str]) -> None:
        self.graph = graph
        names = list(graph.given)
        self._instead = {kind: names.index(name) << 8 | _GIVEN for kind, name in instead.items()}
        self._given = {id(thing): index << 8 | _GIVEN for index, thing in enumerate(graph.given.values())}
        self._seen: dict[int, int] = {}
        self._alive: list[Any] = []  # or an id could come again
        self._strings: dict[str, int] = {}
        self._integers: dict[int, int] = {}
        self._kinds: dict[type, int] = {}
        self._instances: list[list[Any]] = []
        self._containers: dict[int, list[Any]] = {kind: [] for kind in _MAKERS}

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
                    if kind in _MAPS:
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
        graph.bounds = [-1 if thing.maxlen is None else thing.maxlen for thing in self._containers[_DEQUE]]

    def _take_columns(self, kind: int, things: list[Any], columns: list[list[Any]]) -> None:
        names, code = self.graph.names[kind], self._code
        if names is None:
            columns[0].append(np.array([code(thing.__getstate__()) for thing in things], np.int64))
            return
        if not names:  # only how many there are
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
            return index << 8 | _STR
        if kind is int:
            index = self._integers.get(value)
            if index is None:
                index = self._integers[value] = len(graph.integers)
                graph.integers.append(value)
            return index << 8 | _INT
        if kind is float:
            graph.floats.append(value)  # type: ignore[attr-defined]
            return len(graph.floats) - 1 << 8 | _FLOAT
        if value is None or kind is bool:
            return (0 if value is None else 1 + value) << 8 | _CONSTANT
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
        if kind in _MUTABLE:
            things = self._containers[_MUTABLE[kind]]
            things.append(value)
            return len(things) - 1 << 8 | _MUTABLE[kind]
        if kind in _FROZEN_KINDS:
            return self._frozen(_FROZEN_KINDS.index(kind), (dict(value),) if kind is MappingProxyType else value)
        if kind is np.ndarray and value.dtype.str[1:] in _DTYPES:
            graph.arrays.append(value)
            return len(graph.arrays) - 1 << 8 | _ARRAY
        if graph.foreign is not None:
            graph.foreign.append(value)
            return len(graph.foreign) - 1 << 8 | _FOREIGN
        if isinstance(value, np.generic) and not isinstance(item := value.item(), np.generic):
            return self._code(item)
        if kind is bytes:
            graph.chunks.append(value)
            return len(graph.chunks) - 1 << 8 | _BYTES
        raise InputError(f"only strings, numbers and tuples of them can be written down, not {quoted(value)}")

    def _frozen(self, tag: Any, parts: Iterable[Any]) -> int:
        codes = [self._code(part) for part in parts]
        self.graph.frozen.append((tag, codes))
        return len(self.graph.frozen) - 1 << 8 | _FROZEN

    def _instance(self, value: Any, kind: type) -> int:
        index = self._kinds.get(kind)
        if index is None:
            index = self._kinds[kind] = len(self._instances)
            self._instances.append([])
            self.graph.classes.append(kind)
            names = None if stateful(kind) else [*dict.fromkeys((*_slots(kind), *getattr(value, "__dict__", ())))]
            self.graph.names.append(names)
        self._instances[index].append(value)
        return len(self._instances[index]) - 1 << 8 | _FIRST_CLASS + index


def _carried(text: str) -> None:
    """Refuse what no encoding carries: two halves of a pair would come back as one character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"a string with a lone surrogate cannot be written down: {quoted(text)}") from None


class _Making:
    """Objects from one graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.tables: dict[int, Sequence[Any]] = {
            _CONSTANT: _CONSTANTS, _STR: graph.strings, _INT: graph.integers, _FLOAT: graph.floats, _BYTES: graph.chunks,
            _ARRAY: [array.copy() for array in graph.arrays], _GIVEN: list(graph.given.values()),
            _FOREIGN: graph.foreign or (),
        }  # fmt: skip

    def make(self) -> Any:
        graph, tables = self.graph, self.tables
        bounds = graph.bounds
        for kind, rows in graph.mutable.items():
            tables[kind] = [_MAKERS[kind]() for _ in rows]
        if len(bounds) != len(tables[_DEQUE]):
            raise ValueError("lengths of deques expected")
        tables[_DEQUE] = [deque(maxlen=None if most == -1 else _count(most, 2**62)) for most in bounds]
        for i, (cls, columns) in enumerate(zip(graph.classes, graph.columns, strict=True)):
            if issubclass(cls, tuple | Enum):
                raise TypeError(f"{cls.__name__} is no class of objects with attributes")
            lengths = {len(_vector(column, "i8")) for column in columns}
            if len(lengths) != 1:
                raise ValueError(f"columns of {cls.__name__} differ in length")
            new: Callable[[type], Any] = cls.__new__
            graph.made[cls] = tables[_FIRST_CLASS + i] = [new(cls) for _ in range(lengths.pop())]
        frozen: list[Any] = []
        tables[_FROZEN] = frozen
        for tag, codes in graph.frozen:
            frozen.append(_immutable(tag, self._values(codes)))
        states: list[tuple[Any, Any]] = []
        for i, (names, columns) in enumerate(zip(graph.names, graph.columns, strict=True)):
            things = tables[_FIRST_CLASS + i]
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
                if kind in _MAPS:
                    thing.update(zip(values[::2], values[1::2], strict=True))
                elif kind == _SET:
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
        kind = _FROZEN_KINDS[_count(tag, len(_FROZEN_KINDS) - 1)]
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
