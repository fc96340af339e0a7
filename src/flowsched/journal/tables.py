"""Objects as tables of typed columns, and back: the contents of a checkpoint.

A checkpoint is a file in the format *safetensors*, which has readers in many languages::

    bytes  = length of head u64 | head (JSON) | columns, one after the other      (little endian)
    head   = {"__metadata__": {"head": checksum, "forms": forms, "sums": checksums, ...}, name: {"dtype", "shape", "data_offsets"}, ...}

There is a table for each class of objects, and an object is a row in it.  A column has one attribute of all of them, and is
called ``table.attribute``.  ``forms`` is JSON: ``{table: [rows, {attribute: form}]}``.  A form describes the values:

===========================  =======================================================================================
none                         nothing is stored
bool, int, float             a vector
optional                     floats; NaN is None
text, bytes                  ``.utf8`` or ``.bytes``: all in one; ``.length``: characters or bytes of each
whole                        whole numbers of more than 64 bits, as text
[row, table]                 row of each object in another table
array                        the only value, an array; or the arrays, stacked
arrays                       arrays of several lengths: ``.shape``, and all numbers (``.item``), one after the other
[list, form], [tuple, form]  ``.length`` of each, and the form of their items (``.item``); as well set, frozenset and deque,
                             which has ``.most``: its largest length, -1 without
[dict, form, form]           ``.length`` of each, and the forms of keys and values (``.key``, ``.value``); as well ordered, proxy
[record, name, form]         tuples of a class, like [tuple, form]
[enum, name, form]           members of an enumeration by their values (``.value``)
[one of, number, form]       ``.code``: values that occur often are stored once, in ``.of``
[any, form, ...]             values of several forms: ``.kind`` has the number of the form of each, ``.0``, ``.1``, ... the values
given                        text: objects that are not stored, by name; the reader has its own
[is, number]                 the only value
===========================  =======================================================================================

A single row, and the length of a single container, is the last part of its form, except for tables with small letters.

Rules of reading, for any bytes:

* Data only.  An object is of one of the classes of a `Schema`, or a string, number, array or container.  Nothing else
  can be named, and reading calls nothing but ``__new__``, ``__setstate__`` and the setting of attributes of these
  classes.  No attribute takes the place of a method or property.
* A column that does not agree with its checksum is damaged.  An index is checked against the length of its table.
* Memory is bounded by the size of the bytes.
"""

from __future__ import annotations

import json
import re
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property, partial
from itertools import accumulate, chain, count, islice, pairwise, repeat
from math import prod
from operator import attrgetter
from types import MappingProxyType
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from flowsched.boundary.validate import quoted
from flowsched.exceptions import InputError
from flowsched.journal._values import Rows, kinds, pick, split

Piece = bytes | memoryview
Form = Any
Column = NDArray[Any] | list[Any]

_DTYPES = {
    "BOOL": "?",
    **{f"{letter.upper()}{8 * size}": f"<{letter}{size}" for letter in "iu" for size in (1, 2, 4, 8)},
}
_DTYPES |= {"F32": "<f4", "F64": "<f8"}
DTYPES = {np.dtype(kind): name for name, kind in _DTYPES.items()}
_NUMBERS: dict[str, Any] = {"bool": np.bool_, "int": np.int64, "float": np.float64}
_LISTS: dict[str, Callable[[Any], Any]] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
_MAPS: dict[str, Callable[[Any], Any]] = {
    "dict": dict, "ordered": OrderedDict, "proxy": lambda pairs: MappingProxyType(dict(pairs)),
}  # fmt: skip
_FORMS: dict[Any, str] = {
    type(None): "none", bool: "bool", int: "int", float: "float", str: "text", bytes: "bytes", list: "list", tuple: "tuple", set: "set",
    frozenset: "frozenset", deque: "deque", dict: "dict", OrderedDict: "ordered", MappingProxyType: "proxy",
}  # fmt: skip
_LEAVES = frozenset((type(None), bool, int, float, str, bytes, np.ndarray))
_FRONT = b'{"__metadata__":{"head":"'
_SUM = 8
"""Digits of a checksum."""
_MOST_FORMS = 255
_INLINE = (bool, int, float)
_BEYOND = 1 << 63
_EMPTY = {
    kind: (form, "none", *["none"] * (form in _MAPS)) for kind, form in _FORMS.items() if form in {*_LISTS, *_MAPS}
}
_TRIED = 64
"""Strings of which many differ are not shared."""


class Damaged(ValueError):
    """Bytes of a file are not those that were written."""


@dataclass(frozen=True, eq=False)
class Schema:
    """The classes of objects in a checkpoint, by the names of their tables."""

    classes: Mapping[str, type]

    @cached_property
    def names(self) -> Mapping[type, str]:
        """The names of the tables by class."""
        return {kind: name for name, kind in self.classes.items()}

    @cached_property
    def objects(self) -> frozenset[type]:
        """Classes of objects with attributes."""
        return frozenset(kind for kind in self.names if not issubclass(kind, tuple | Enum))


def stateful(kind: type) -> bool:
    """True if the class has a ``__getstate__`` of its own; the one that `dataclass` makes does not count."""
    made = "__dataclass_fields__" in vars(kind)
    return not made and any("__getstate__" in vars(base) for base in kind.__mro__[:-1])


def slots(kind: type) -> frozenset[str]:
    """Return the names of the slots of a class."""
    every = (name for base in kind.__mro__ for name in vars(base).get("__slots__", ()))
    return frozenset(every) - {"__weakref__"}


@dataclass
class Tables:
    """Columns by name, with the forms of tables.

    Text is a list of strings where it was not read from a file, and so are objects that only `clone` can take along.
    """

    forms: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, Column] = field(default_factory=dict)
    about: dict[str, str] = field(default_factory=dict)
    room: int = sys.maxsize

    def pieces(self) -> list[Piece]:
        """Return the bytes of a file in pieces, which are to be joined before anything changes."""
        head, pieces, sums, at = {}, [], [], 0
        for name, array in chain.from_iterable(_stored(name, column) for name, column in self.columns.items()):
            piece = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
            head[name] = {"dtype": DTYPES[array.dtype], "shape": array.shape, "data_offsets": (at, at + len(piece))}
            at += len(piece)
            sums.append(f"{crc32(piece):08x}")
            pieces.append(piece)
        about = {"head": "", "forms": _json(self.forms), "sums": "".join(sums), **self.about}
        rest = _json({"__metadata__": about, **head})[len(_FRONT) :].encode("ascii")
        rest += b" " * (-(len(_FRONT) + _SUM + len(rest)) % 8)
        return [(len(_FRONT) + _SUM + len(rest)).to_bytes(8, "little"), _FRONT, b"%08x" % crc32(rest), rest, *pieces]

    @classmethod
    def read(cls, image: bytes | memoryview) -> Tables:
        """Read the bytes that `pieces` returned.

        Raises
        ------
        Damaged
            Names the column.  Nonsense with the right checksums is another ValueError, or LookupError or TypeError.
        """
        about, head, data = _head_of(image)
        forms, sums = json.loads(about.pop("forms")), about.pop("sums")
        columns: dict[str, Column] = {}
        end = 0
        for i, (name, said) in enumerate(head.items()):
            kind, shape, (start, stop) = np.dtype(_DTYPES[said["dtype"]]), said["shape"], said["data_offsets"]
            size = kind.itemsize
            for length in shape:
                size *= bounded(length, sys.maxsize)
            if len(shape) > 8 or (start, stop) != (end, end + size):
                raise ValueError(f"column {name} is elsewhere")
            if stop > len(data):
                raise Damaged(f"it was cut off in column {name}")
            piece, end = data[start:stop], stop
            if f"{crc32(piece):08x}" != sums[i * _SUM : (i + 1) * _SUM]:
                raise Damaged(f"column {name} does not agree with its checksum")
            array = np.frombuffer(piece, np.uint8 if said["dtype"] == "BOOL" else kind).reshape(shape)
            columns[name] = array != 0 if said["dtype"] == "BOOL" else array.astype(kind.newbyteorder("="), copy=False)
        if end != len(data):
            raise Damaged("there is more than the columns")
        return cls(forms, columns, about, len(image))


def about_of(image: bytes | memoryview) -> dict[str, str]:
    """Return the metadata of a file; raise Damaged if they are damaged."""
    return _head_of(image)[0]


def is_file(front: bytes | memoryview) -> bool:
    """Return True for the first bytes of such a file."""
    return bytes(front[8 : 8 + len(_FRONT)]) == _FRONT


def _head_of(image: bytes | memoryview) -> tuple[dict[str, str], dict[str, Any], memoryview]:
    view = memoryview(image)
    size, begin = int.from_bytes(view[:8], "little"), 8 + len(_FRONT)
    if size > len(view) - 8 or not is_file(view[:begin]):
        raise Damaged("its head was cut off, or is damaged")
    if view[begin : begin + _SUM] != b"%08x" % crc32(view[begin + _SUM : 8 + size]):
        raise Damaged("its head does not agree with its checksum")
    head = json.loads(bytes(view[8 : 8 + size]))
    about: dict[str, str] = head.pop("__metadata__")
    del about["head"]
    return about, head, view[8 + size :]


def _stored(name: str, column: Column) -> Iterator[tuple[str, NDArray[Any]]]:
    if isinstance(column, list):
        try:
            text = "".join(column).encode()
        except UnicodeEncodeError:
            bad = next(one for one in column if re.search("[\ud800-\udfff]", one))
            raise InputError(f"a string with a lone surrogate cannot be written down: {quoted(bad)}") from None
        yield f"{name}.utf8", np.frombuffer(text, np.uint8)
        yield f"{name}.length", _lengths(column)
    else:
        yield name, column


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def bounded(value: Any, most: int) -> int:
    """Return a number that a file names; refuse one out of its range."""
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"a number from 0 to {most} expected")
    return value


# -- objects to columns ---------------------------------------------------------------------------------------------


def tables_of(
    root: Any, schema: Schema, given: Mapping[str, Any], foreign: bool = False, instead: Mapping[type, str] = MappingProxyType({}),
) -> Tables:  # fmt: skip
    """Return the tables of all that an object refers to; objects of classes in `instead` are replaced by a given one.

    Raise InputError if something cannot be written down, unless `foreign` objects may be shared.
    """
    try:
        return _Writing(schema, given, foreign, instead).tables(root)
    except RecursionError:
        raise InputError("an id is nested too deeply to be written down") from None


class _Writing:
    def __init__(self, schema: Schema, given: Mapping[str, Any], foreign: bool, instead: Mapping[type, str]) -> None:
        self._schema, self._foreign, self._instead = schema, foreign, instead
        self._given = {id(thing): name for name, thing in given.items() if thing is not None}
        self._kinds = {type(thing) for thing in given.values() if thing is not None}.union(instead)
        self._rows: dict[type, Rows] = {}
        self._parts: dict[type, dict[str, list[Any]]] = {}
        self._columns: dict[str, Column] = {}
        self._single = 1

    def tables(self, root: Any) -> Tables:
        self._meet([root])
        done: dict[type, int] = {}
        while sum(done.values()) < sum(len(rows.things) for rows in self._rows.values()):
            for kind, rows in list(self._rows.items()):
                if fresh := rows.things[done.get(kind, 0) :]:
                    done[kind] = len(rows.things)
                    self._collect(kind, fresh)
        forms: dict[str, Any] = {"": [1, {"root": self._column(".root", [root])}]}
        for kind, parts in self._parts.items():
            table = self._schema.names[kind]
            self._single = -1 if table.islower() else 1  # so that other programs find each column
            forms[table] = [
                done[kind],
                {name: self._column(f"{table}.{name}", _joined(chunks)) for name, chunks in parts.items()},
            ]
        return Tables(forms, self._columns)

    def _meet(self, values: list[Any]) -> None:
        """Find the objects among values, and within their containers."""
        several = kinds(values) if len(values) > 1 else [*map(type, values)]
        for kind in several:
            if kind in _LEAVES or kind in self._kinds:
                continue
            some = values if len(several) == 1 else [value for value in values if type(value) is kind]
            if kind in self._schema.objects:
                self._rows.setdefault(kind, Rows()).of(some)
            elif kind in _FORMS or (kind in self._schema.names and issubclass(kind, tuple)):
                unique, _ = _unique(some)
                self._meet([*chain.from_iterable(unique)])
                if _FORMS.get(kind) in _MAPS:
                    self._meet([*chain.from_iterable(value.values() for value in unique)])

    def _collect(self, kind: type, things: list[Any]) -> None:
        """Take the attributes of objects."""
        parts = self._parts.setdefault(kind, {})
        for name, values in _attributes(kind, things).items():
            parts.setdefault(name, []).append(values)
            if not isinstance(values, np.ndarray):
                self._meet(values)

    def _column(self, path: str, values: Any) -> Form:
        """Write values of any kinds; return their form."""
        if isinstance(values, np.ndarray):
            self._columns[path] = values
            if values.dtype.kind != "f":
                return "bool" if values.dtype == bool else "int"
            return "optional" if np.isnan(values).any() else "float"
        if len(values) == self._single:
            value = values[0]
            kind = type(value)
            if kind in _INLINE and -_BEYOND < value < _BEYOND:
                return ["is", value]
            if kind in _EMPTY and not value:
                return [*_EMPTY[kind], 0]
        several = kinds(values)
        if len(several) == 1:
            return self._alike(path, several[0], values)
        if not several:
            return "none"
        if len(several) > _MOST_FORMS:
            raise InputError("ids of too many kinds cannot be written down")
        which, parts = split(values, several)
        self._columns[f"{path}.kind"] = which
        return ["any", *(self._alike(f"{path}.{i}", kind, parts[i]) for i, kind in enumerate(several))]

    def _alike(self, path: str, kind: type, values: list[Any]) -> Form:
        """Write values of one type."""
        columns = self._columns
        if (
            len(values) > 1
            and (kind is np.ndarray or kind is MappingProxyType or issubclass(kind, str | tuple | frozenset))
            and not (kind is str and len(set(values[:_TRIED])) * 2 > min(_TRIED, len(values)))
        ):
            unique, places = _unique(values)
            if 2 * len(unique) <= len(values):
                columns[f"{path}.code"] = places
                return ["one of", len(unique), self._column(f"{path}.of", unique)]
        if kind is np.ndarray:
            return self._arrays(path, values)
        if kind in self._kinds:
            columns[path] = [self._given.get(id(value)) or self._instead[kind] for value in values]
            return "given"
        form = _FORMS.get(kind)
        if form is None:
            return self._other(path, kind, values)
        if form in _NUMBERS:
            try:
                columns[path] = np.array(values, _NUMBERS[form])
            except OverflowError:
                columns[path] = [f"{value:x}" for value in values]
                form = "whole"
        elif form == "text":
            columns[path] = values
        elif form != "none":
            if form == "bytes":
                columns[f"{path}.length"] = _lengths(values)
                columns[f"{path}.bytes"] = np.frombuffer(b"".join(values), np.uint8)
                return form
            if form == "deque":
                columns[f"{path}.most"] = np.array(
                    [-1 if one.maxlen is None else one.maxlen for one in values], np.int64
                )
            if form in _MAPS:
                inner = self._column(f"{path}.value", [*chain.from_iterable(one.values() for one in values)])
                keys = self._column(f"{path}.key", [*chain.from_iterable(values)])
                return [form, keys, inner, *self._lengths(path, values)]
            return [form, self._column(f"{path}.item", [*chain.from_iterable(values)]), *self._lengths(path, values)]
        return form

    def _other(self, path: str, kind: type, values: list[Any]) -> Form:
        """Write objects of a table, tuples with names, and members of enumerations."""
        name = self._schema.names.get(kind)
        if name is None:
            return self._unknown(path, values)
        if issubclass(kind, Enum):
            return ["enum", name, self._column(f"{path}.value", [one.value for one in values])]
        if issubclass(kind, tuple):
            items = self._column(f"{path}.item", [*chain.from_iterable(values)])
            return ["record", name, items, *self._lengths(path, values)]
        if len(values) == self._single:
            return ["row", name, int(self._rows[kind].of(values)[0])]
        self._columns[path] = self._rows[kind].of(values)
        return ["row", name]

    def _lengths(self, path: str, values: list[Any]) -> list[int]:
        """Write the lengths of containers; return that of a single one, which is a part of its form."""
        if len(values) == self._single:
            return [len(values[0])]
        self._columns[f"{path}.length"] = _lengths(values)
        return []

    def _arrays(self, path: str, arrays: list[NDArray[Any]]) -> Form:
        alike: dict[Any, list[NDArray[Any]]] = {}
        for array in arrays:
            alike.setdefault((array.dtype, array.ndim), []).append(array)
        if len(alike) > 1:
            which = {kind: i for i, kind in enumerate(alike)}
            self._columns[f"{path}.kind"] = np.array([which[array.dtype, array.ndim] for array in arrays], np.uint8)
            return ["any", *(self._arrays(f"{path}.{i}", some) for i, some in enumerate(alike.values()))]
        if arrays[0].dtype not in DTYPES:
            return self._unknown(path, arrays)
        if len({array.shape for array in arrays}) == 1:
            self._columns[path] = arrays[0] if len(arrays) == 1 else np.stack(arrays)
            return "array"
        self._columns[f"{path}.shape"] = np.array([array.shape for array in arrays], np.int64)
        self._columns[f"{path}.item"] = np.concatenate([array.ravel() for array in arrays])
        return "arrays"

    def _unknown(self, path: str, values: list[Any]) -> Form:
        if self._foreign:
            self._columns[path] = values
            return "foreign"
        if all(isinstance(value, np.generic) and not isinstance(value.item(), np.generic) for value in values):
            return self._column(path, [value.item() for value in values])
        raise InputError(f"only strings, numbers and tuples of them can be written down, not {quoted(values[0])}")


def _attributes(kind: type, things: list[Any]) -> dict[str, Any]:
    """Return the attributes of objects of a class that a checkpoint keeps, each for all of them."""
    if stateful(kind):
        states = [thing.__getstate__() for thing in things]
        return {name: [state[name] for state in states] for name in states[0]}
    bulk = getattr(kind, "__columns__", None)
    found = {} if bulk is None else bulk(things)
    names = sorted(slots(kind).union(getattr(things[0], "__dict__", ())))
    assert not hasattr(things[0], "__dict__") or all(vars(thing).keys() <= set(names) for thing in things), kind
    return {name: found[name] if name in found else [*map(attrgetter(name), things)] for name in names}


def _unique(values: list[Any]) -> tuple[list[Any], NDArray[np.int64]]:
    """Return different values, and the place of each value among them; strings that are equal are not different."""
    if type(values[0]) is str:
        known = dict(zip(dict.fromkeys(values), count()))
        return [*known], np.fromiter(map(known.__getitem__, values), np.int64, len(values))
    rows = Rows()
    places = rows.of(values)
    return rows.things, places


def _lengths(values: list[Any]) -> NDArray[np.int64]:
    return np.fromiter(map(len, values), np.int64, len(values))


def _joined(chunks: list[Any]) -> Any:
    """Return the values of an attribute that were taken one after the other."""
    if len(chunks) == 1:
        return chunks[0]
    return np.concatenate(chunks) if isinstance(chunks[0], np.ndarray) else [*chain.from_iterable(chunks)]


# -- columns to objects ---------------------------------------------------------------------------------------------


class Objects:
    """The objects of tables.

    Where tables are not those of `tables_of`, `make` raises AttributeError, ArithmeticError, LookupError, RecursionError, TypeError
    or ValueError.

    Attributes
    ----------
    made : dict of type to list
        The objects by class, once they have been made.
    """

    def __init__(self, tables: Tables, schema: Schema, given: Mapping[str, Any]) -> None:
        self._schema, self._given, self._room = schema, given, tables.room
        self._columns, self._forms = dict(tables.columns), tables.forms
        self.made: dict[type, list[Any]] = {}
        self._readers: dict[str, Callable[..., list[Any]]] = {
            "none": lambda path, n: [None] * bounded(n, self._room), "text": self._text, "row": self._row, "one of": self._one_of,
            "any": self._any, "array": self._array, "arrays": self._arrays, "bytes": self._bytes, "record": self._record,
            "whole": lambda path, n: [int(digits, 16) for digits in self._text(path, n)], "foreign": self._text,
            "given": lambda path, n: [*map(self._given.__getitem__, self._text(path, n))],
            "enum": lambda path, n, name, form: [*map(self._kind(name, Enum), self._column(f"{path}.value", form, n))],
            **{form: partial(self._list, make) for form, make in _LISTS.items()}, "deque": self._deque,
            **{form: partial(self._map, make) for form, make in _MAPS.items()},
            **{form: partial(self._numbers, kind) for form, kind in _NUMBERS.items()},
            "is": self._is, "optional": lambda path, n: [None if x != x else x for x in self._numbers(np.float64, path, n)],
        }  # fmt: skip

    def make(self) -> Any:
        """Return the root with all objects that it refers to."""
        tables = {self._kind(name): (name, *table) for name, table in self._forms.items() if name}
        for kind, (name, rows, forms) in tables.items():
            if not stateful(kind) and not slots(kind) <= forms.keys():
                raise TypeError(f"{name} lack an attribute")
            self.made[kind] = made(kind, bounded(rows, self._room))
        states: list[tuple[type, list[str], Iterator[Any]]] = []
        # Keys of maps and sets may be objects, whose hash needs their attributes.
        for late in (False, True):
            for kind, (name, rows, forms) in tables.items():
                bulk = getattr(kind, "__fill__", None)
                if bulk is not None and not late:
                    read = {part: self._fast if part in kind.__numbers__ else self._column for part in forms}  # type: ignore[attr-defined]
                    bulk(
                        self.made[kind],
                        {part: read[part](f"{name}.{part}", form, rows) for part, form in forms.items()},
                    )
                for part, form in forms.items() if bulk is None and not stateful(kind) else ():
                    if late is _is_hashed(form):
                        check_name(kind, part)
                        values = self._column(f"{name}.{part}", form, rows)
                        deque(map(object.__setattr__, self.made[kind], repeat(part), values), 0)
        for kind, (name, rows, forms) in tables.items():
            if stateful(kind):
                columns = [self._column(f"{name}.{part}", form, rows) for part, form in forms.items()]
                states.append((kind, list(forms), zip(*columns, strict=True)))
        ((_, parts),) = [self._forms[""]]
        (root,) = self._column(".root", parts["root"], 1)
        if self._columns:
            raise ValueError(f"column {next(iter(self._columns))} belongs to no table")
        for kind, names, rows in states:
            for thing, values in zip(self.made[kind], rows, strict=True):
                set_state(thing, dict(zip(names, values, strict=True)))
        return root

    def _kind(self, name: str, base: type | None = None) -> type:
        """Return the class of a name, which is one of objects unless it has this base."""
        kind = self._schema.classes[name]
        if not (kind in self._schema.objects if base is None else issubclass(kind, base)):
            raise TypeError(f"{kind.__name__} is no such thing")
        return kind

    def _column(self, path: str, form: Form, n: int) -> list[Any]:
        """Return the values of a column."""
        kind, *more = [form] if isinstance(form, str) else form
        found = self._readers[kind](path, n, *more)
        if len(found) != n:
            raise ValueError(f"column {path} has another length")
        return found

    def _fast(self, path: str, form: Form, n: int) -> Any:
        """Return the values of a column, which is an array where they are numbers; then NaN is None."""
        kind = np.float64 if form == "optional" else _NUMBERS.get(form) if isinstance(form, str) else None
        return self._column(path, form, n) if kind is None else self._vector(path, kind, n)

    def _vector(self, path: str, kind: Any, n: int | None = None, ndim: int = 1) -> NDArray[Any]:
        array = self._columns.pop(path)
        right = isinstance(array, np.ndarray) and kind in (None, array.dtype) and array.ndim == ndim
        if not right or (n is not None and len(array) != n):
            raise TypeError(f"column {path} is of another kind or length")
        return array  # type: ignore[return-value]

    def _numbers(self, kind: Any, path: str, n: int) -> list[Any]:
        found: list[Any] = self._vector(path, kind, n).tolist()
        return found

    def _lengths(self, path: str, n: int, *single: int) -> tuple[list[int], int]:
        if single:
            return [bounded(length, self._room) for length in single], single[0]
        lengths = self._vector(f"{path}.length", np.int64, n)
        if lengths.min(initial=0) < 0 or lengths.max(initial=0) > self._room:
            raise ValueError(f"column {path} has impossible lengths")
        return lengths.tolist(), int(lengths.sum())

    def _text(self, path: str, n: int) -> list[Any]:
        known = self._columns.get(path)
        if isinstance(known, list):  # never written
            return self._columns.pop(path)  # type: ignore[return-value]
        text = str(self._vector(f"{path}.utf8", np.uint8).data, "utf-8")
        return self._cut(text, path, n)

    def _bytes(self, path: str, n: int) -> list[Any]:
        return self._cut(self._vector(f"{path}.bytes", np.uint8).tobytes(), path, n)

    def _cut(self, whole: Any, path: str, n: int) -> list[Any]:
        lengths, total = self._lengths(path, n)
        if total != len(whole):
            raise ValueError(f"column {path} has other lengths")
        return [whole[start:end] for start, end in pairwise(accumulate(lengths, initial=0))]

    def _row(self, path: str, n: int, name: str, *single: int) -> list[Any]:
        table = self.made[self._kind(name)]
        if single:
            return [table[bounded(row, len(table) - 1)] for row in single]
        return pick(table, self._vector(path, np.int64, n))

    def _is(self, path: str, n: int, value: Any) -> list[Any]:
        if type(value) not in _INLINE:
            raise TypeError(f"{path} is no number")
        return [value]

    def _one_of(self, path: str, n: int, size: int, form: Form) -> list[Any]:
        table = self._column(f"{path}.of", form, bounded(size, self._room))
        return pick(table, self._vector(f"{path}.code", np.int64, n))

    def _any(self, path: str, n: int, *forms: Form) -> list[Any]:
        which = self._vector(f"{path}.kind", np.uint8, n)
        counts = np.bincount(which, minlength=len(forms)).tolist()
        parts = [
            iter(self._column(f"{path}.{i}", form, size))
            for i, (form, size) in enumerate(zip(forms, counts, strict=True))
        ]
        return [*map(next, map(parts.__getitem__, which.tolist()))]

    def _array(self, path: str, n: int) -> list[Any]:
        array = self._columns.pop(path)
        if not isinstance(array, np.ndarray) or (n != 1 and array.shape[:1] != (n,)):
            raise TypeError(f"column {path} is of another kind or length")
        array = array.copy()
        return [array] if n == 1 else [array[i, ...] for i in range(n)]

    def _arrays(self, path: str, n: int) -> list[Any]:
        shapes, flat = self._vector(f"{path}.shape", np.int64, n, 2), self._vector(f"{path}.item", None)
        found, at = [], 0
        for shape in shapes.tolist():
            size = prod(bounded(length, self._room) for length in shape)
            found.append(flat[at : at + size].reshape(shape).copy())
            at += size
        if at != len(flat):
            raise ValueError(f"column {path} has other lengths")
        return found

    def _list(self, make: Callable[[Any], Any], path: str, n: int, form: Form, *single: int) -> list[Any]:
        lengths, total = self._lengths(path, n, *single)
        items = iter(self._column(f"{path}.item", form, total))
        return [make(islice(items, length)) for length in lengths]

    def _deque(self, path: str, n: int, form: Form, *single: int) -> list[Any]:
        bounds = self._vector(f"{path}.most", np.int64, n).tolist()
        return [
            deque(items, None if most == -1 else most)
            for items, most in zip(self._list(list, path, n, form, *single), bounds, strict=True)
        ]

    def _map(self, make: Callable[[Any], Any], path: str, n: int, key: Form, value: Form, *single: int) -> list[Any]:
        lengths, total = self._lengths(path, n, *single)
        pairs = zip(self._column(f"{path}.key", key, total), self._column(f"{path}.value", value, total), strict=True)
        return [make(islice(pairs, length)) for length in lengths]

    def _record(self, path: str, n: int, name: str, form: Form, *single: int) -> list[Any]:
        kind = self._kind(name, tuple)
        width = len(getattr(kind, "_fields", ()))
        found = self._list(partial(tuple.__new__, kind), path, n, form, *single)
        if width and any(len(record) != width for record in found):
            raise TypeError(f"a {name} has {width} parts")
        return found


def made(kind: type, number: int) -> list[Any]:
    """Return new objects of a class, without attributes."""
    new: Any = kind.__new__
    return [*map(new, repeat(kind, number))]


def _is_hashed(form: Form) -> bool:
    """Return True if values of a form have keys or members that are hashed."""
    return not isinstance(form, str) and (
        form[0] in _HASHED or any(_is_hashed(part) for part in form[1:] if isinstance(part, list))
    )


_HASHED = {*_MAPS, "set", "frozenset"}


def check_name(kind: type, name: str) -> None:
    """Refuse an attribute that would hide a member of the class."""
    there = getattr(kind, name, None)
    if name.startswith("__") or callable(there) or isinstance(there, property | cached_property):
        raise TypeError(f"{kind.__name__}.{name} is no attribute that is kept")


def set_state(thing: Any, state: dict[str, Any]) -> None:
    """Give an object of a `stateful` class its state."""
    kind = type(thing)
    setter = getattr(kind, "__setstate__", None)
    if setter is not None:
        setter(thing, state)
        return
    for name in state:
        check_name(kind, name)
    vars(thing).update(state)
