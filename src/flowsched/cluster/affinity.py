"""Affinity: limits on the number of tasks of one kind on a machine (`Task.apart`) or in a rack (`apart_in_rack`), and
kinds that must not share a machine (`avoids`).

Limits are symmetric: the strictest limit among the tasks present applies to all, so the order in which tasks start does not
matter.  A class without a kind is a kind of its own.  As long as no class has a limit, only counts are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.limits import AFFINITY, SPREAD

__all__ = ["MANY", "Affinity", "ClassAffinity"]

Ints = NDArray[np.int64]

MANY = 1 << 40
"""Count that stands for "no limit"."""


@dataclass(slots=True)
class ClassAffinity:
    """Kind of a class with its name, its limits on a machine and in a rack, and the kinds that it avoids."""

    kind: Hashable
    name: Hashable | None
    on_machine: int
    in_rack: int
    avoids: frozenset[Hashable]

    @property
    def wishes(self) -> bool:
        return min(self.on_machine, self.in_rack) < MANY or bool(self.avoids)


class Affinity:
    """Running tasks by kind, machine and rack, and the limits that apply to more of them."""

    def __init__(self) -> None:
        self._classes: dict[int, ClassAffinity] = {}
        # By kind, then by row or by rack, then by class.
        self._on: dict[Hashable, dict[int, dict[int, int]]] = {}
        self._in: dict[Hashable, dict[Hashable, dict[int, int]]] = {}
        self._rack: dict[int, Hashable] = {}
        self._rows: dict[Hashable, dict[int, None]] = {}
        self._spread: dict[Hashable, int] = {}
        self._avoided: dict[Hashable, dict[int, None]] = {}
        self.fussy = 0
        self._top = 0

    # -- machines -----------------------------------------------------------------------------------------------

    def settle(self, row: int, name: Hashable | None) -> Collection[int]:
        """Put the machine and its tasks into the rack of that name; return the rows that this may affect."""
        rack = _rack(row, name)
        if self._rack.get(row) == rack:
            return ()
        old: Collection[int] = self.unsettle(row)
        self._rack[row] = rack
        self._top = max(self._top, row + 1)
        self._rows.setdefault(rack, {})[row] = None
        moved = [(kind, class_id, n) for kind, on in self._on.items() for class_id, n in on.get(row, {}).items()]
        for kind, class_id, n in moved:
            _count(self._in, kind, rack, class_id, n)
        return (*old, *self._rows[rack]) if moved else ()

    def unsettle(self, row: int) -> Collection[int]:
        """Take the machine out of its rack; return the other machines there."""
        rack = self._rack.pop(row, None)
        if rack is None:
            return ()
        for kind, on in self._on.items():
            for class_id, n in on.get(row, {}).items():
                _count(self._in, kind, rack, class_id, -n)
        left = self._rows[rack]
        del left[row]
        if not left:
            del self._rows[rack]
        return left

    def rack_rows(self, row: int) -> Collection[int]:
        """Return the machines in the rack of this one, in the order in which they joined it."""
        return self._rows.get(self._rack.get(row), ())

    # -- classes ------------------------------------------------------------------------------------------------

    def add_class(
        self, class_id: int, kind: Hashable | None, spread: tuple[int | None, int | None], avoids: Iterable[Hashable]
    ) -> None:
        """Add a class; `spread` has its limits of tasks of its kind on a machine and in a rack."""
        on_machine, in_rack = (most or MANY for most in spread)
        new = ClassAffinity(
            ("class", class_id) if kind is None else ("kind", kind), kind, on_machine, in_rack, frozenset(avoids)
        )
        if kind is None and not new.wishes:
            return
        self._classes[class_id] = new
        self.fussy += new.wishes
        if in_rack < MANY:
            self._spread[new.kind] = self._spread.get(new.kind, 0) + 1
        for other in new.avoids:
            self._avoided.setdefault(other, {})[class_id] = None

    def drop_class(self, class_id: int) -> None:
        """Drop a class without tasks."""
        gone = self._classes.pop(class_id, None)
        if gone is None:
            return
        self.fussy -= gone.wishes
        if gone.in_rack < MANY:
            self._spread[gone.kind] -= 1
            if not self._spread[gone.kind]:
                del self._spread[gone.kind]
        for other in gone.avoids:
            del self._avoided[other][class_id]
            if not self._avoided[other]:
                del self._avoided[other]

    def restricts(self, class_id: int) -> bool:
        """Return True if the class has limits of its own."""
        return class_id in self._classes and self._classes[class_id].wishes

    def limits_of(self, class_id: int) -> tuple[int, int]:
        """Return the class's own limits of tasks of its kind on a machine and in a rack."""
        known = self._classes.get(class_id)
        return (MANY, MANY) if known is None else (known.on_machine, known.in_rack)

    def most_beside(self, class_id: int, other: int, count: int) -> int:
        """Return the number of tasks of a class that may share a machine with `count` tasks of another class, by their limits."""
        one, two = self._classes.get(class_id), self._classes.get(other)
        if one is None or two is None or not count:
            return MANY
        if two.name in one.avoids or one.name in two.avoids:
            return 0
        return max(min(one.on_machine, two.on_machine) - count, 0) if one.kind == two.kind else MANY

    def heeds(self, class_id: int) -> bool:
        """Return True if limits may concern the class on a machine."""
        return self.fussy > 0 and class_id in self._classes

    def spreads(self, class_id: int) -> bool:
        """Return True if limits may concern the class in a rack."""
        return class_id in self._classes and self._classes[class_id].kind in self._spread

    # -- tasks --------------------------------------------------------------------------------------------------

    def take(self, row: int, class_id: int, count: int) -> Collection[int]:
        """Count `count` more running tasks of the class on the machine, or fewer if negative; return the rows that this may affect."""
        known = self._classes.get(class_id)
        if known is None:
            return ()
        rack = self._rack[row]
        _count(self._on, known.kind, row, class_id, count)
        _count(self._in, known.kind, rack, class_id, count)
        return self._rows[rack] if known.kind in self._spread else ()

    def narrow(self, classes: Ints, rows: Ints, fits: Ints, why: NDArray[np.uint32]) -> None:
        """Lower the counts of `Inventory.room`, shape (classes, rows), to the limits of affinity, and set its bits."""
        if not self.fussy:
            return
        for i, class_id in enumerate(classes.tolist()):
            for bit, most in zip((AFFINITY, SPREAD), self.room(class_id, rows) or (), strict=False):
                fits[i] = np.minimum(fits[i], most)
                why[i, most == 0] |= bit

    def room(self, class_id: int, rows: Ints) -> tuple[Ints, Ints] | None:
        """Return the number of further tasks of the class by the limits on each machine, and in its rack; None without limits."""
        if not self.heeds(class_id):
            return None
        known = self._classes[class_id]
        on = self._on.get(known.kind, {})
        shunned = [row for kind in known.avoids for row in self._on.get(("kind", kind), ())]
        for other in self._avoided.get(known.name, ()):
            shunned += [row for row, there in self._on.get(self._classes[other].kind, {}).items() if other in there]
        machine, rack = np.full(self._top, known.on_machine), np.full(self._top, known.in_rack)
        for row, there in on.items():
            machine[row] = self._left(class_id, there)
        machine[shunned] = 0
        if known.kind in self._spread:
            for name, there in self._in.get(known.kind, {}).items():
                rack[list(self._rows[name])] = self._left_in_rack(class_id, there)
        return machine[rows], rack[rows]

    def room_in_rack(self, class_id: int, name: Hashable) -> int:
        """Return the number of further tasks of the class that the rack of that name allows."""
        return self._left_in_rack(class_id, self._in.get(self._classes[class_id].kind, {}).get(("rack", name), {}))

    def admits(self, row: int, class_id: int, without: Sequence[int] = ()) -> bool:
        """Return True if one more task of the class may run there, after one task of each class in `without` has left."""
        if not self.heeds(class_id):
            return True
        known, gone = self._classes[class_id], Counter(without)

        def there(kind: Hashable) -> dict[int, int]:
            present = self._on.get(kind, {}).get(row, {})
            return {other: n - gone[other] for other, n in present.items() if n > gone[other]}

        if not self._left(class_id, there(known.kind)) or any(there(("kind", kind)) for kind in known.avoids):
            return False
        if known.kind in self._spread:
            around = self._in.get(known.kind, {}).get(self._rack[row], {})
            if not self._left_in_rack(
                class_id, {other: n - gone[other] for other, n in around.items() if n > gone[other]}
            ):
                return False
        return not any(other in there(self._classes[other].kind) for other in self._avoided.get(known.name, ()))

    def _left(self, class_id: int, there: Mapping[int, int]) -> int:
        """Return the number of further tasks next to those of the same kind on a machine, given by class; the strictest limit applies."""
        strictest = min(self._classes[one].on_machine for one in (class_id, *there))
        return max(strictest - sum(there.values()), 0)

    def _left_in_rack(self, class_id: int, there: Mapping[int, int]) -> int:
        """Return `_left` for a rack."""
        strictest = min(self._classes[one].in_rack for one in (class_id, *there))
        return max(strictest - sum(there.values()), 0)


def _rack(row: int, name: Hashable | None) -> Hashable:
    return ("machine", row) if name is None else ("rack", name)


def _count(
    counts: dict[Hashable, dict[Any, dict[int, int]]], kind: Hashable, where: Any, class_id: int, more: int
) -> None:
    """Add to a count, and remove entries that reach 0."""
    of_kind = counts.setdefault(kind, {})
    there = of_kind.setdefault(where, {})
    there[class_id] = there.get(class_id, 0) + more
    if not there[class_id]:
        del there[class_id]
        if not there:
            del of_kind[where]
            if not of_kind:
                del counts[kind]
