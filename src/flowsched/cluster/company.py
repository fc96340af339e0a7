"""Who may run beside whom: at most so many tasks of a kind on one machine, and kinds that do not share one.

Both are wishes about the set of tasks on a machine: no more of a kind than the strictest of them bears, and no two that
avoid each other.  So who came first does not matter, and who may be together may also come together in any order.  A
class of no kind is a kind of its own.  As long as nobody wishes anything, nothing but counts is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Company"]

Ints = NDArray[np.int64]

_MANY = 1 << 40


@dataclass(slots=True)
class _Class:
    """Which kind a class is of (and what that is called), how many of it it bears on a machine, and which kinds not at all."""

    kind: Hashable
    name: Hashable | None
    limit: int
    avoids: frozenset[Hashable]


class Company:
    """Counts of running tasks by kind and machine, and what they permit."""

    def __init__(self) -> None:
        self._classes: dict[int, _Class] = {}
        self._on: dict[Hashable, dict[int, dict[int, int]]] = {}
        self._avoided: dict[Hashable, dict[int, None]] = {}
        self._fussy = 0

    def add_class(self, cls: int, kind: Hashable | None, limit: int | None, avoids: Iterable[Hashable]) -> None:
        """A class comes."""
        avoids = frozenset(avoids)
        if kind is None and limit is None and not avoids:
            return
        self._classes[cls] = _Class(("class", cls) if kind is None else ("kind", kind), kind, limit or _MANY, avoids)
        self._fussy += self.restricts(cls)
        for other in avoids:
            self._avoided.setdefault(other, {})[cls] = None

    def drop_class(self, cls: int) -> None:
        """A class without tasks goes."""
        if cls in self._classes:
            self._fussy -= self.restricts(cls)
            for other in self._classes.pop(cls).avoids:
                del self._avoided[other][cls]
                if not self._avoided[other]:
                    del self._avoided[other]

    def restricts(self, cls: int) -> bool:
        """Whether the class limits or avoids anybody itself."""
        known = self._classes.get(cls)
        return known is not None and (known.limit < _MANY or bool(known.avoids))

    def heeds(self, cls: int) -> bool:
        """Whether it may matter to the class who runs beside it."""
        return self._fussy > 0 and cls in self._classes

    def take(self, row: int, cls: int, count: int) -> None:
        """So many tasks of the class start on the machine, or stop where it is negative."""
        known = self._classes.get(cls)
        if known is not None:
            on = self._on.setdefault(known.kind, {})
            there = on.setdefault(row, {})
            there[cls] = there.get(cls, 0) + count
            if not there[cls]:
                del there[cls]
                if not there:
                    del on[row]
                    if not on:
                        del self._on[known.kind]

    def room(self, cls: int, rows: Ints) -> Ints | None:
        """How many more tasks of the class each machine bears for the sake of who runs there; None for any number."""
        if not self.heeds(cls):
            return None
        known = self._classes[cls]
        on = self._on.get(known.kind, {})
        shunned = [row for kind in known.avoids for row in self._on.get(("kind", kind), ())]
        for other in self._avoided.get(known.name, ()):
            shunned += [row for row, there in self._on.get(self._classes[other].kind, {}).items() if other in there]
        bears = np.full(max(int(rows.max(initial=0)), *on, *shunned, 0) + 1, known.limit)
        for row, there in on.items():
            bears[row] = self._left(known.limit, there)
        bears[shunned] = 0
        some: Ints = bears[rows]
        return some

    def admits(self, row: int, cls: int, without: Sequence[int] = ()) -> bool:
        """Whether one more task of the class may run there, but for one task each of the classes in `without`."""
        if not self.heeds(cls):
            return True
        known = self._classes[cls]
        gone = Counter(without)

        def there(kind: Hashable) -> dict[int, int]:
            present = self._on.get(kind, {}).get(row, {})
            return {other: n - gone[other] for other, n in present.items() if n > gone[other]}

        if not self._left(known.limit, there(known.kind)) or any(there(("kind", kind)) for kind in known.avoids):
            return False
        return not any(other in there(self._classes[other].kind) for other in self._avoided.get(known.name, ()))

    def _left(self, limit: int, there: Mapping[int, int]) -> int:
        """How many of a limit may join those of the same kind, counted by class: the strictest one holds."""
        strictest = min([limit, *(self._classes[cls].limit for cls in there)])
        return max(strictest - sum(there.values()), 0)
