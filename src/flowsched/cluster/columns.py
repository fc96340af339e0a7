"""Dense indices, and arrays that grow with them."""

from __future__ import annotations

from dataclasses import dataclass
from operator import ge
from types import GetSetDescriptorType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from flowsched.cluster._room import TypedColumns
from flowsched.cluster.records import IdPool

__all__ = ["Columns", "IdPool", "column", "grown", "view"]

_START = 8
"""Length of an axis at first, unless `Columns` is given another one."""


def grown(array: NDArray[Any], *least: int, fill: float = 0) -> NDArray[Any]:
    """Return the array, or a larger copy where an axis is shorter than `least` (that axis is at least doubled)."""
    if all(map(ge, array.shape, least)):
        return array
    least += array.shape[len(least) :]
    larger = np.full(
        [have if have >= want else max(want, 2 * have) for have, want in zip(array.shape, least, strict=True)],
        fill,
        array.dtype,
    )
    larger[tuple(slice(n) for n in array.shape)] = array
    return larger


@dataclass(frozen=True, slots=True)
class _Column:
    axes: tuple[str, ...]
    dtype: DTypeLike
    fill: float


@dataclass(frozen=True, slots=True)
class _View:
    of: str


def column(*axes: str, dtype: DTypeLike = np.int64, fill: float = 0) -> Any:
    """Declare an array of a `Columns` class.

    Parameters
    ----------
    *axes : str
        Names of its axes.
    dtype : data type
    fill : number
        Value of entries that have not been set.
    """
    return _Column(axes, dtype, fill)


def view(array: str) -> Any:
    """Declare a memory view of an array: access to single entries is several times as fast as through NumPy."""
    return _View(array)


class Columns(TypedColumns):
    """Base of classes that keep arrays over the same dense indices.

    A subclass declares its arrays in its body and calls ``super().__init__``::

        class Arcs(Columns):
            arc: Ints = column("rows", fill=-1)
            \"\"\"Arc of each row, -1 without one.\"\"\"
            cost: Ints = column("classes", "rows")
            _arc: memoryview = view("arc")

    The arrays are plain attributes of the object: reading one is one look-up.  They are longer than the part in use.
    An array that has a view must not be assigned; `grow` renews both.  Copies and images of the object make their own
    views.

    Parameters
    ----------
    **lengths : int
        Lengths of axes at first, where other than 8.

    Attributes
    ----------
    typed : object
        The arrays as typed fields, for compiled modules: of the class that a subclass names by the argument `typed`.  It has a
        field for each column, of its name without underscores.  It is made again when an array is.
    """

    _columns: ClassVar[dict[str, _Column]] = {}
    _axes: ClassVar[dict[str, list[tuple[str, int]]]] = {}
    _views: ClassVar[dict[str, str]] = {}
    _fields: ClassVar[list[str]] = []
    """Fields of compiled bases other than `TypedColumns`."""
    _typed: ClassVar[type | None] = None

    def __init_subclass__(cls, typed: type | None = None) -> None:
        cls._columns = {**cls._columns, **{name: spec for name, spec in vars(cls).items() if isinstance(spec, _Column)}}
        cls._views = {**cls._views, **{name: spec.of for name, spec in vars(cls).items() if isinstance(spec, _View)}}
        compiled = [base for base in cls.__mro__ if issubclass(base, TypedColumns) and not issubclass(base, Columns)]
        named = {name: of for base in compiled[:-1] for name, of in vars(base).items()}
        cls._fields = [name for name, of in named.items() if isinstance(of, GetSetDescriptorType)]
        cls._axes = {}
        for name, spec in cls._columns.items():
            for position, axis in enumerate(spec.axes):
                cls._axes.setdefault(axis, []).append((name, position))
        for name in (*cls._columns, *cls._views):
            if name in vars(cls):
                delattr(cls, name)  # found in the object alone, as fast as any other attribute
        if typed is not None:
            fields = {name for name in vars(typed) if not name.startswith("__")}
            if fields != {name.strip("_") for name in cls._columns}:
                raise TypeError(f"{cls.__name__} and {typed.__name__} have not the same columns")
            cls._typed = typed

    def __init__(self, **lengths: int) -> None:
        for name, spec in self._columns.items():
            shape = [lengths.get(axis, _START) for axis in spec.axes]
            setattr(self, name, np.full(shape, spec.fill, spec.dtype))
        self._renew_views()

    def grow(self, **least: int) -> None:
        """Make room for at least these numbers of entries along axes; an axis that is too short is at least doubled."""
        short: dict[str, int] = {}
        for axis, want in least.items():
            name, position = self._axes[axis][0]
            have = getattr(self, name).shape[position]
            if want > have:
                short[axis] = max(want, 2 * have)
        if not short:
            return
        for name, spec in self._columns.items():
            if not short.keys().isdisjoint(spec.axes):
                array = getattr(self, name)
                shape = [short.get(axis, have) for axis, have in zip(spec.axes, array.shape, strict=True)]
                larger = np.full(shape, spec.fill, array.dtype)
                larger[tuple(slice(n) for n in array.shape)] = array
                setattr(self, name, larger)
        self._renew_views()

    def _renew_views(self) -> None:
        for name, array in self._views.items():
            setattr(self, name, getattr(self, array).data)
        self._check_arrays()
        if self._typed is not None:
            typed = self._typed()
            for name in self._columns:
                setattr(typed, name.strip("_"), getattr(self, name))
            self.typed = typed

    def _check_arrays(self) -> None:
        """Raise ValueError if the arrays differ from those declared, in an image that is damaged."""
        lengths = {axis: getattr(self, name).shape[position] for axis, ((name, position), *_) in self._axes.items()}
        for name, spec in self._columns.items():
            array = getattr(self, name)
            if array.dtype != spec.dtype or array.shape != tuple(map(lengths.get, spec.axes)) or not array.flags.carray:
                raise ValueError(f"{type(self).__name__}.{name}: an array of another kind")

    def fields(self) -> dict[str, Any]:
        """Return the fields of compiled bases by name."""
        return {name: getattr(self, name) for name in self._fields}

    def __getstate__(self) -> dict[str, Any]:
        return self.fields() | {name: value for name, value in vars(self).items() if name not in self._views}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
        self._renew_views()
