"""Hard limits: the list of everything that may block one more task on a machine.

`Inventory.room` applies the limits of a cluster one after the other.  Each lowers the counts that the limits before it
left, and sets its bit where none is left.  The order is::

    resources      the sum of demands, or the `Limit` that an adapter sets in its place (`Inventory.rule`)
    state, labels  of the machine
    reservations   of the builder, if there is one
    affinity
    failures       machines on which tasks of the class failed
    constraints    of the policy
    slots          noted only: the flow itself counts them

Bits are assigned from one list: the bits of a machine, one for each resource, one for each constraint, those of affinity
and failures, and one for deadlines, for an adapter that estimates run times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from flowsched.exceptions import InputError

__all__ = [
    "AFFINITY",
    "BUILT_IN",
    "DEADLINE",
    "DOWN",
    "FAILED",
    "HELD",
    "LABEL",
    "RESOURCE",
    "SLOTS",
    "SPREAD",
    "Blockers",
    "CustomLimit",
    "Limit",
    "Reach",
    "Reserved",
    "Rule",
]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Masks = NDArray[np.uint32]

_BITS = 32
_FIRST = ("down", "constraint", "slots", "held for others")
_LAST = ("failed there", "deadline", "rack", "affinity")

BUILT_IN = (*_FIRST, *_LAST)
"""Names of the limits that every cluster has."""

DOWN, LABEL, SLOTS, HELD = (1 << bit for bit in range(len(_FIRST)))
"""Bits of a machine: it takes no tasks; its labels or taints; its slots; it is reserved."""

RESOURCE = 1 << len(_FIRST)
"""Bit of the first resource; `RESOURCE << d` is the bit of resource d."""

FAILED, DEADLINE, SPREAD, AFFINITY = (1 << bit for bit in range(_BITS - len(_LAST), _BITS))
"""Bits of: a failure of the class's tasks there; a missed deadline; too many tasks of one kind in the rack; too many on
the machine, or a task there that must be avoided."""


@dataclass(frozen=True)
class Blockers:
    """Bits of a cluster and their meanings.

    Parameters
    ----------
    resources : tuple of str
    constraints : tuple of str
        Names of the policy's constraints.
    wakes : tuple of tuple of str
        By constraint, the kinds of events that may make room.
    """

    resources: tuple[str, ...]
    constraints: tuple[str, ...] = ()
    wakes: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        taken = {*BUILT_IN, *self.resources}
        for name in self.constraints:
            if name in taken:
                raise InputError(
                    f"constraint {name!r}: something else is counted under that name; another name expected"
                )
            taken.add(name)
        if len(BUILT_IN) + len(self.resources) + len(self.constraints) > _BITS:
            most = _BITS - len(BUILT_IN)
            raise InputError(
                f"constraints: {len(self.resources)} resources and {len(self.constraints)} constraints are more than {most}"
            )

    @property
    def first_constraint(self) -> int:
        """Bit of the first constraint."""
        return RESOURCE << len(self.resources)

    @cached_property
    def own(self) -> int:
        """Bits of all constraints."""
        return self.first_constraint * ((1 << len(self.constraints)) - 1)

    @cached_property
    def said(self) -> tuple[tuple[int, str], ...]:
        """Bits and their names in the order in which a reason lists them; labels and taints apart."""
        resources = [(RESOURCE << d, name) for d, name in enumerate(self.resources)]
        others = [
            (SLOTS, "slots"),
            (AFFINITY, "affinity"),
            (SPREAD, "rack"),
            (HELD, "held for others"),
            (DEADLINE, "deadline"),
            (FAILED, "failed there"),
        ]
        own = [(self.first_constraint << i, name) for i, name in enumerate(self.constraints)]
        return ((DOWN, "down"), *resources, *others, *own)

    def wakes_of(self, mask: int) -> tuple[str, ...]:
        """Return the kinds of events that may make room in the constraints of a mask."""
        bit = self.first_constraint
        named = [kind for i, kinds in enumerate(self.wakes) if mask & bit << i for kind in kinds]
        return tuple(dict.fromkeys(named))


class Limit(Protocol):
    """Decision on resources in place of the sum of demands; devices stay with the inventory.

    All methods are called between changes of the cluster only, and must agree.  If `narrow` leaves room, `admits` may still
    refuse.  It must then call `Inventory.touch` for the row, and `narrow` must leave no room until something has changed.
    """

    def narrow(self, classes: Ints, rows: Ints, fits: Ints, why: Masks) -> None:
        """Lower the counts of `Inventory.room` to those of this limit, and set its bits where none is left."""
        ...

    def admits(self, row: int, class_id: int, without: Sequence[Any] = ()) -> bool:
        """Return True if one more task fits next to the running ones, without the task records in `without`."""
        ...

    def spare(self, row: int, class_id: int, most: int) -> int:
        """Return the number of tasks, up to `most`, that fit there together and that `admits` would admit; or 0."""
        ...


class Rule(Limit, Protocol):
    """Limit set by an adapter, with room that may grow as time passes."""

    def due(self) -> float:
        """Return the next time at which `narrow` may leave more room without an event; infinite for never."""
        ...


class CustomLimit(Limit, Protocol):
    """Limit of the policy, in addition to those of the inventory."""

    @property
    def name(self) -> str:
        """Name in reasons."""
        ...

    @property
    def wakes(self) -> tuple[str, ...]:
        """Kinds of events that may make room."""
        ...

    def deal(self, bit: int) -> None:
        """Set the bit that this limit uses from now on."""
        ...

    def reach(self, row: int) -> Ints:
        """Return the rows whose room a change of this row may alter."""
        ...

    def refused(self, row: int, class_id: int) -> None:
        """Record a refusal: leave no room for the class until something in reach has changed."""
        ...


class Reserved(Protocol):
    """Machines that are kept for classes."""

    @property
    def holding(self) -> int:
        """Number of reserved machines."""
        ...

    @property
    def held(self) -> Ints:
        """Class for which each row is kept, -1 without one; -2 - class if it is kept for a gang and the class has other tasks.

        Rows beyond the end are kept for none.
        """
        ...

    def against(self, classes: Ints, rows: Ints) -> Bools:
        """Return True where the row is kept from the class, shape (classes, rows)."""
        ...

    def forbids(self, row: int, class_id: int) -> bool:
        """Return `against` for one class and one row."""
        ...

    def grants(self, turn: int) -> bool:
        """Return True if the last round has let the task of this turn start nevertheless."""
        ...


class Reach:
    """Rows whose room changed because another row in reach of a constraint changed.

    Attributes
    ----------
    version : ndarray of int64, shape (rows,)
        Last `Inventory.version` of a row that reaches this one; 0 without one.
    """

    def __init__(self, limits: Sequence[CustomLimit]) -> None:
        self._limits = limits
        self._clock = 0
        self.version: Ints = np.zeros(0, np.int64)

    def update(self, versions: Ints, clock: int, arranged: int) -> Ints:
        """Bring `version` up to date, and return it; this calls `reach` of all constraints for each changed row.

        Parameters
        ----------
        versions : ndarray of int64, shape (rows,)
            `Inventory.version` of all rows.
        clock, arranged : int
            See `Inventory`.
        """
        if self._clock == clock and len(self.version) == len(versions):
            return self.version
        reached = np.zeros(len(versions), np.int64)
        reached[: len(self.version)] = self.version
        if arranged > self._clock:  # the rows in reach may have changed
            reached[:] = arranged
        for row in np.flatnonzero(versions > self._clock).tolist():
            for limit in self._limits:
                rows = limit.reach(row)
                reached[rows] = np.maximum(reached[rows], versions[row])
        self.version, self._clock = reached, clock
        return reached
