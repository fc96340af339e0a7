"""The tables of a graph of plain objects, and their bytes.

Every value has a *code*, ``index << 8 | kind``: the kind is a table, the index a place in it.  Mutable objects keep
their identity.  Immutable containers come after their items; a table of mutable ones is made empty first, and filled
last.  `flowsched.journal.object_graph` makes such tables from objects, and objects from them; it states the rules of
reading.

::

    bytes  = length of head u64 | head (JSON) | arrays, one after the other
    head   = names of classes, their attributes, strings, integers, dtype and shape of each array
"""

from __future__ import annotations

import json
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.int64]
Piece = bytes | memoryview

# The kinds of codes.
CONSTANT, STR, INT, FLOAT, BYTES, ARRAY, GIVEN, FOREIGN, FROZEN, LIST, DICT, SET, DEQUE, ORDERED, SMALL = range(15)
FIRST_CLASS = 16
"""The kind of the first class of `Graph.classes`; the next one has the next kind."""
SMALLS = range(1 << 54)
"""The table of whole numbers that are their own index."""
CONSTANTS = (None, False, True)
FROZEN_KINDS = (tuple, frozenset, MappingProxyType)
MUTABLE: dict[type, int] = {list: LIST, dict: DICT, set: SET, deque: DEQUE, OrderedDict: ORDERED}
MAKERS: dict[int, Callable[[], Any]] = {LIST: list, DICT: dict, SET: set, DEQUE: deque, ORDERED: OrderedDict}
MAPS = (DICT, ORDERED)
DTYPES = frozenset("b1 i1 i2 i4 i8 u1 u2 u4 u8 f4 f8".split())
_MOST_CLASSES = 256 - FIRST_CLASS
_NONE: Codes = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class Schema:
    """The classes of objects in a graph, of unique names.

    Objects of `stateful` classes are stored as their ``__getstate__``, others as their attributes.  `renamed` has the
    names in files of classes that have another name by now, `numbered` the numbers of classes in old files, which
    called immutable ones so.
    """

    classes: Sequence[type]
    renamed: Mapping[type, str] = field(default_factory=dict)
    numbered: Mapping[int, type] = field(default_factory=dict)

    @cached_property
    def by_name(self) -> Mapping[str, type]:
        """The classes by their names in files."""
        return {self.name_of(kind): kind for kind in self.classes}

    def name_of(self, kind: type) -> str:
        """Return the name of a class in files."""
        return self.renamed.get(kind, kind.__name__)

    @cached_property
    def known(self) -> frozenset[type]:
        """All of them."""
        return frozenset(self.classes)


def stateful(kind: type) -> bool:
    """True if the class has a ``__getstate__`` of its own; the one that `dataclass` makes does not count."""
    made = "__dataclass_fields__" in vars(kind)
    return not made and any("__getstate__" in vars(base) for base in kind.__mro__[:-1])


@dataclass
class Graph:
    """Objects as tables; see `flowsched.journal.object_graph`.

    * `given`: objects that are not written down, by name: the reader brings its own.
    * `foreign`: takes objects of other kinds, which then are shared; None where there may be none.
    * `root`: code of the object from which all others are reached.
    * `classes`, `names`, `columns`: by class, the class; its attributes, None for a class that is `stateful`; and for
      each attribute an array of the codes of all objects of this class.
    * `strings`, `integers`, `floats`, `chunks`, `arrays`: the values of these kinds; chunks are bytes.
    * `frozen`: immutable containers, which one each is; `lengths`, `parts`: the number of parts of each, and the codes
      of the parts of all, one after the other.
    * `mutable`: the same by kind of mutable containers; `bounds`: the largest length of each deque, -1 without one.
    * `made`: the objects by class, once they have been made.
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
    frozen: list[Any] = field(default_factory=list)
    lengths: Codes = field(default_factory=lambda: _NONE)
    parts: Codes = field(default_factory=lambda: _NONE)
    mutable: dict[int, tuple[Codes, Codes]] = field(default_factory=lambda: dict.fromkeys(MAKERS, (_NONE, _NONE)))
    bounds: list[int] = field(default_factory=list)
    made: dict[type, Sequence[Any]] = field(default_factory=dict)

    def write(self) -> bytes:
        """Return the graph as bytes; see `read`."""
        return b"".join(self.pieces())

    def pieces(self) -> list[Piece]:
        """Return `write` in pieces, which are to be joined before anything changes: most are views of arrays."""
        arrays: list[NDArray[Any]] = [*self.arrays, np.array(self.floats, np.float64), self.lengths, self.parts]
        called = {
            tag: _json(tag if isinstance(tag, int) else [self.schema.name_of(tag[0]), tag[1]])
            for tag in set(self.frozen)
        }
        arrays += chain.from_iterable(self.mutable.values())
        arrays += chain.from_iterable(self.columns)
        shapes = [[array.dtype.str[1:], *array.shape] for array in arrays]
        head = {
            "root": self.root, "classes": [self.schema.name_of(kind) for kind in self.classes], "names": self.names,
            "strings": self.strings, "integers": self.integers, "chunks": [chunk.hex() for chunk in self.chunks],
            "given": list(self.given),
        }  # fmt: skip
        tags = ",".join(map(called.__getitem__, self.frozen))  # the encoder would take three times as long
        rest = {"bounds": self.bounds, "own": len(self.arrays), "arrays": shapes}
        text = f'{_json(head)[:-1]},"frozen":[{tags}],{_json(rest)[1:]}'.encode("ascii")
        return [len(text).to_bytes(8, "little"), text, *map(_bytes_of, arrays)]

    @classmethod
    def read(cls, image: bytes | memoryview, schema: Schema, given: Mapping[str, Any]) -> Graph:
        """Read a graph that `write` wrote.

        Where the bytes are no such graph, raise ValueError, TypeError, KeyError, IndexError, OverflowError or
        RecursionError; making its objects raises those and AttributeError.
        """
        view = memoryview(image)
        size = int.from_bytes(view[:8], "little")
        if size > len(view) - 8:
            raise ValueError("the head is longer than all of it")
        head = json.loads(bytes(view[8 : 8 + size]))
        arrays = list(_arrays(view[8 + size :], head["arrays"]))
        own = bounded(head["own"], len(arrays))
        graph = cls(schema, {name: given[name] for name in head["given"]}, None, head["root"])
        rest = _Rest(arrays[own:])
        graph.arrays, graph.floats = arrays[:own], vector(next(rest), "f8").tolist()
        graph.strings, graph.integers = head["strings"], head["integers"]
        if not all(type(text) is str for text in graph.strings) or not all(type(n) is int for n in graph.integers):
            raise TypeError("a table of strings or of integers has something else")
        graph.chunks = [bytes.fromhex(chunk) for chunk in head["chunks"]]
        called: dict[Any, type] = {**schema.by_name, **schema.numbered}
        graph.frozen = [tag if isinstance(tag, int) else (called[tag[0]], tag[1]) for tag in head["frozen"]]
        graph.lengths, graph.parts = _lengths_and_codes(rest)
        if len(graph.lengths) != len(graph.frozen):
            raise ValueError("the lengths of a table are not those of its entries")
        for kind in graph.mutable:
            graph.mutable[kind] = _lengths_and_codes(rest)
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


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _bytes_of(array: NDArray[Any]) -> memoryview:
    plain = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
    return plain.reshape(-1).view(np.uint8).data


def bounded(value: Any, most: int) -> int:
    """Return a number that a file names; refuse one out of its range."""
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"a number from 0 to {most} expected")
    return value


def vector(array: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Return a table of a file; refuse one of another type."""
    if array.ndim != 1 or array.dtype.str[1:] != dtype:
        raise TypeError("a table has another type")
    return array


def _arrays(view: memoryview, shapes: Any) -> Iterator[NDArray[Any]]:
    at = 0
    for dtype, *shape in shapes:
        if dtype not in DTYPES or len(shape) > 8:
            raise ValueError("an array has a type that does not belong there")
        count = 1
        for length in shape:
            count *= bounded(length, len(view))
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


def _lengths_and_codes(arrays: _Rest) -> tuple[Codes, Codes]:
    lengths, codes = vector(next(arrays), "i8"), vector(next(arrays), "i8")
    if (len(lengths) and (lengths.min() < 0 or lengths.max() > len(codes))) or lengths.sum() != len(codes):
        raise ValueError("the lengths of a table do not add up")
    return lengths, codes


def slices(lengths: Codes, values: list[Any]) -> Iterator[list[Any]]:
    """Yield pieces of these lengths, one after the other."""
    end = 0
    for length in lengths.tolist():
        start, end = end, end + length
        yield values[start:end]
