"""Shapes of machines (capacity, labels, slots and taints), and the classes that each shape can ever run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster._room import SuitabilityColumns
from flowsched.cluster.columns import Columns, IdPool, column
from flowsched.cluster.model import MICRO, UNLIMITED, Machine
from flowsched.cluster.selectors import HARD, Requirement, Wanted, keeps_off, meets

__all__ = ["ShapeKey", "Shapes", "Suitability", "unsuited"]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

ShapeKey = tuple[tuple[int, ...], tuple[tuple[str, str], ...], int | None, tuple[Requirement, ...]]
"""Capacity, labels, slots and taints."""

_Wants = tuple[list[int], Mapping[str, Wanted], Sequence[Requirement]]
"""Demand, constraints and tolerations of a class."""


def unsuited(shape: ShapeKey, constraints: Mapping[str, Wanted], tolerations: Sequence[Requirement]) -> Iterator[str]:
    """Yield the reasons why a shape is unsuitable for a class: labels that its constraints exclude, and taints, by key."""
    _, labels, _, taints = shape
    have = dict(labels)
    for label, wanted in constraints.items():
        if not meets(have.get(label), wanted):
            yield f"constraint {label}"
    for taint in taints:
        if taint[2] in HARD and keeps_off(taint, tolerations):
            yield f"taint {taint[0]}"


@dataclass(frozen=True, slots=True)
class Shapes:
    """Shapes of all machines at one time.

    Attributes
    ----------
    of_row : ndarray of int64, shape (rows,)
        Shape by row, -1 for a row without a machine.
    keys : mapping of int to ShapeKey
        By shape.
    """

    of_row: Ints
    keys: Mapping[int, ShapeKey]


class _Index:
    """Shapes by the values of their labels, so that a class is compared with values and not with each shape.

    Attributes
    ----------
    alive, roomy : ndarray of bool, shape (shapes,)
        True for the shapes that machines have, and for those of them with slots.
    capacity : ndarray of int64, shape (shapes, resources)
    by : dict of str to (dict of str to list of int)
        Shapes by label and value.
    tainted : dict of int to list
        Taints that keep tasks off, by shape.
    """

    def __init__(self, keys: Mapping[int, ShapeKey], room: int, resources: int) -> None:
        self.alive, self.roomy = np.zeros((2, room), np.bool_)
        self.capacity = np.zeros((room, resources), np.int64)
        self.by: dict[str, dict[str, list[int]]] = {}
        self.tainted: dict[int, list[Requirement]] = {}
        for shape, key in keys.items():
            self.add(shape, key)

    def add(self, shape: int, key: ShapeKey) -> None:
        capacity, labels, slots, taints = key
        self.alive[shape], self.roomy[shape], self.capacity[shape] = True, slots != 0, capacity
        for label, value in labels:
            self.by.setdefault(label, {}).setdefault(value, []).append(shape)
        if hard := [taint for taint in taints if taint[2] in HARD]:
            self.tainted[shape] = hard

    def holds(self, demand: Ints) -> Bools:
        """Return True for the shapes that are large enough."""
        enough: Bools = self.alive & self.roomy & (self.capacity >= demand).all(axis=1)
        return enough

    def suits(self, constraints: Mapping[str, Wanted], tolerations: Sequence[Requirement]) -> Bools:
        """Return True for the shapes that labels and taints admit; as `unsuited`."""
        found = self.alive.copy()
        for label, wanted in constraints.items():
            values = self.by.get(label, {})
            if not wanted or type(wanted[0]) is str:
                self._keep(found, [shape for value in wanted for shape in values.get(value, ())])
                continue
            for requirement in wanted:
                if requirement[0] == "NotIn":
                    found[[shape for value in requirement[1:] for shape in values.get(value, ())]] = False
                    continue
                met = {value: meets(value, (requirement,)) for value in values}
                if meets(None, (requirement,)):  # also where the label is missing
                    found[[shape for value, shapes in values.items() if not met[value] for shape in shapes]] = False
                else:
                    self._keep(found, [shape for value, shapes in values.items() if met[value] for shape in shapes])
        for shape, taints in self.tainted.items():
            if any(keeps_off(taint, tolerations) for taint in taints):
                found[shape] = False
        return found

    @staticmethod
    def _keep(found: Bools, shapes: list[int]) -> None:
        kept = found[shapes]
        found[:] = False
        found[shapes] = kept


class _Wishes:
    """Classes by the values of labels that they want, so that a new shape is compared with its own values, not with each class.

    Attributes
    ----------
    classes : ndarray of int64, shape (n,)
    demand : ndarray of int64, shape (n, resources)
    labels : ndarray of int64, shape (n,)
        Number of labels that each class wants a value of.
    by : dict of str to (dict of str to list of int)
        Positions by label and wanted value.
    odd : list of (int, mapping)
        Positions of classes with other requirements of labels, and their constraints.
    tolerating : dict of tuple to list of int
        Positions by tolerations.
    """

    def __init__(self, wants: Mapping[int, _Wants]) -> None:
        self.classes = np.array(list(wants), np.int64)
        self.demand = np.array([demand for demand, _, _ in wants.values()], np.int64)
        self.labels = np.zeros(len(wants), np.int64)
        self.by: dict[str, dict[str, list[int]]] = {}
        self.odd: list[tuple[int, Mapping[str, Wanted]]] = []
        self.tolerating: dict[tuple[Requirement, ...], list[int]] = {}
        for i, (_, constraints, tolerations) in enumerate(wants.values()):
            self.tolerating.setdefault(tuple(tolerations), []).append(i)
            if any(wanted and type(wanted[0]) is not str for wanted in constraints.values()):
                self.odd.append((i, constraints))
                continue
            self.labels[i] = len(constraints)
            for label, wanted in constraints.items():
                values = self.by.setdefault(label, {})
                for value in dict.fromkeys(wanted):
                    values.setdefault(value, []).append(i)

    def holds(self, shape: ShapeKey) -> Bools:
        """Return True for the classes for which the shape is large enough."""
        capacity, _, slots, _ = shape
        fits: Bools = np.all(self.demand <= np.array(capacity, np.int64), axis=1)
        return np.zeros_like(fits) if slots == 0 else fits

    def suits(self, shape: ShapeKey) -> Bools:
        """Return True for the classes that labels and taints admit; as `unsuited`."""
        _, labels, _, taints = shape
        met = np.zeros_like(self.labels)
        for label, value in labels:
            met[self.by.get(label, {}).get(value, [])] += 1
        found: Bools = met == self.labels
        for i, constraints in self.odd:
            found[i] = not any(unsuited((shape[0], labels, None, ()), constraints, ()))
        if hard := [taint for taint in taints if taint[2] in HARD]:
            for tolerations, some in self.tolerating.items():
                if any(keeps_off(taint, tolerations) for taint in hard):
                    found[some] = False
        return found


_CACHES = ("_snapshot", "_ever", "_most", "_index", "_wishes")
"""Attributes of `Suitability` that are worked out from the others."""


class Suitability(Columns, typed=SuitabilityColumns):
    """Shapes of machines, each compared once with every class.

    Parameters
    ----------
    device : int
        Position of the resource that consists of devices, -1 without one.
    """

    of: Ints = column("rows", fill=-1)
    """Shape of each machine, -1 for a row without one."""
    _suits: Bools = column("classes", "shapes", dtype=np.bool_)
    """True where labels and taints admit the class."""
    _holds: Bools = column("classes", "shapes", dtype=np.bool_)
    """True where the shape is large enough for the class."""

    def __init__(self, device: int) -> None:
        self.device = device
        super().__init__()
        self._wants: dict[int, _Wants] = {}
        self._shapes: dict[ShapeKey, int] = {}
        self._keys: dict[int, ShapeKey] = {}
        self._users: dict[int, int] = {}
        self._indices = IdPool()
        self._snapshot: Shapes | None = None
        self._ever: dict[int, NDArray[np.uint8]] = {}
        self._most: dict[int, int] = {}
        self._index: _Index | None = None
        self._wishes: _Wishes | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return all attributes except caches; an image that contained them would not be checked."""
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name not in _CACHES}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._snapshot, self._ever, self._most, self._index, self._wishes = None, {}, {}, None, None

    # -- machines -----------------------------------------------------------------------------------------------

    def settle(self, rows: list[int], capacity: Ints, machine: Machine) -> None:
        """Set the shape of machines that are like the given one."""
        self.grow(rows=max(rows) + 1)
        for row in rows:
            self.unsettle(row)
        key = (tuple(capacity.tolist()), tuple(machine.labels.items()), machine.slots, tuple(machine.taints))
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = self._indices.take()
            self._keys[shape], self._users[shape] = key, 0
            self._ever.clear()
            self._index = None
            self.grow(shapes=shape + 1)
            if self._wants:
                if self._wishes is None:
                    self._wishes = _Wishes(self._wants)
                self._suits[self._wishes.classes, shape] = self._wishes.suits(key)
                self._holds[self._wishes.classes, shape] = self._wishes.holds(key)
        self._users[shape] += len(rows)
        self._most.clear()
        self.of[rows] = shape

    def unsettle(self, row: int) -> None:
        """Forget the shape of a machine."""
        self._snapshot = None
        shape = int(self.of[row])
        self.of[row] = -1
        if shape >= 0:
            self._users[shape] -= 1
            self._most.clear()
            if not self._users[shape]:
                del self._shapes[self._keys.pop(shape)], self._users[shape]
                self._index = None
                self._indices.give(shape)

    def now(self, rows: int) -> Shapes:
        """Return the shapes of that many rows; the same object until one changes."""
        if self._snapshot is None:
            self._snapshot = Shapes(self.of[:rows].copy(), dict(self._keys))
        return self._snapshot

    # -- classes ------------------------------------------------------------------------------------------------

    def add_class(
        self, class_id: int, demand: Ints, constraints: Mapping[str, Wanted], tolerations: Sequence[Requirement]
    ) -> None:
        """Add a class."""
        self.grow(classes=class_id + 1)
        self._wants[class_id] = demand.tolist(), constraints, tolerations
        self._wishes = None
        if self._index is None:
            self._index = _Index(self._keys, self._suits.shape[1], len(demand))
        self._suits[class_id] = self._index.suits(constraints, tolerations)
        self._holds[class_id] = self._index.holds(demand)

    def drop_class(self, class_id: int) -> None:
        """Drop a class."""
        del self._wants[class_id]
        self._wishes = None
        self._ever.pop(class_id, None)
        self._most.pop(class_id, None)

    # -- both ---------------------------------------------------------------------------------------------------

    def can_ever(self, classes: Ints, rows: Ints) -> Bools:
        """Return True where labels and taints admit the class and the machine is large enough, shape (classes, rows)."""
        grid = np.ix_(classes, self.of[rows])
        both: Bools = self._suits[grid] & self._holds[grid]
        return both

    def somewhere(self, rows: Ints) -> Bools:
        """Return True for each class that labels admit on one of these machines that is large enough."""
        shapes = np.flatnonzero(np.bincount(self.of[rows]))
        possible: Bools = np.any(self._suits[:, shapes] & self._holds[:, shapes], axis=1)
        return possible

    def allows(self, class_id: int, row: int) -> bool:
        """Return True if labels and taints admit the class."""
        return bool(self._suits[class_id, self.of[row]])

    def can(self, class_id: int, row: int) -> bool:
        """Return True if labels and taints admit the class and the machine is large enough."""
        return bool(self._suits[class_id, self.of[row]] and self._holds[class_id, self.of[row]])

    def most(self, class_id: int) -> int:
        """Return the number of tasks of the class that all machines together can run when up and empty."""
        if class_id not in self._most:
            demand = self._wants[class_id][0]
            fit = (
                self._users[shape] * self._fill(demand, key)
                for shape, key in self._keys.items()
                if self._suits[class_id, shape]
            )
            self._most[class_id] = sum(fit)
        return self._most[class_id]

    def _fill(self, demand: Sequence[int], shape: ShapeKey) -> int:
        capacity, _, slots, _ = shape
        counts = [UNLIMITED if slots is None else slots]
        for d, (need, amount) in enumerate(zip(demand, capacity, strict=True)):
            if need:
                shared = d == self.device and need < MICRO
                counts.append(MICRO // need * (amount // MICRO) if shared else amount // need)
        return min(counts)

    def ever(self, class_id: int) -> NDArray[np.uint8]:
        """Return, by shape, 2 if it holds the class and meets its constraints, 1 if it only holds it; not to be altered."""
        if class_id not in self._ever:
            self._ever[class_id] = self._holds[class_id].astype(np.uint8) * (1 + self._suits[class_id])
        return self._ever[class_id]
