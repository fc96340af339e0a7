"""Hard limits of the caller: placements that are forbidden at any cost.

>>> import numpy as np
>>> from dataclasses import dataclass
>>> from flowsched.cluster import Cluster, Task
>>> from flowsched.cluster import events as ev
>>> @dataclass(frozen=True)
... class OnePerMachine:
...     name = "alone"
...     wakes = (ev.TaskCompleted, ev.TaskFailed, ev.TaskRemoved)
...     def room(self, cluster, classes, rows):
...         free = np.array([not cluster.by_row[row].tasks for row in rows.tolist()], np.int64)
...         return np.tile(free, (len(classes), 1))
...     def reach(self, cluster, row):
...         return np.array([row])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from flowsched.boundary.validate import ordered, quoted
from flowsched.cluster import Cluster
from flowsched.cluster.events import Event
from flowsched.cluster.limits import Reach
from flowsched.cluster.model import UNLIMITED
from flowsched.exceptions import InputError
from flowsched.policy.purity import Witness

__all__ = ["CheckedConstraint", "Constraint", "checked_constraints", "limits"]

Ints = NDArray[np.int64]


class Constraint(Protocol):
    """A hard limit.

    `room` may depend on the classes, and for each row on the machines that have the row in their `reach`, with their running
    tasks.  It must not depend on anything else, such as time, chance, or earlier calls.

    Both methods are called during rounds, by `Scheduler.commit`, `Scheduler.explain` and `Cluster.fits`, and never by
    `Scheduler.apply`: a reported start (`TaskStarted`) is accepted, whatever a constraint says.  During a round the cluster
    contains the starts and stops of the round so far, so that its placements are consistent.  `room` is also called while
    victims of a preemption are off their machine.  The methods must not change the cluster.

    An exception from `room` or `reach` ends a round or an explanation, and changes nothing.  A commit refuses the start
    concerned, code `CONFLICT`.
    """

    @property
    def name(self) -> str:
        """Name under which `Reason.detail` counts machines without room by this constraint."""
        ...

    @property
    def wakes(self) -> Sequence[type[Event]]:
        """Kinds of events that may make room; `Reason.unblocked_by` names them."""
        ...

    def room(self, cluster: Cluster, classes: Ints, rows: Ints) -> Ints:
        """Return the number of further tasks of each class that each machine may start, shape (classes, rows).

        Whole numbers from 0.  Each entry assumes that no task of another class starts.
        """
        ...

    def reach(self, cluster: Cluster, row: int) -> Ints:
        """Return the rows whose room a change of this row may alter, its own included."""
        ...


def checked_constraints(constraints: Any) -> tuple[Constraint, ...]:
    """Return the constraints of a policy as a tuple.

    Raises
    ------
    InputError
        An entry is no constraint, or two have the same name.
    """
    found: tuple[Constraint, ...] = ordered("Policy: constraints", constraints)
    names: set[str] = set()
    for i, constraint in enumerate(found):
        what = f"Policy: constraints[{i}]"
        if isinstance(constraint, type) or not all(
            hasattr(constraint, part) for part in ("name", "wakes", "room", "reach")
        ):
            raise InputError(f"{what} must be an object with name, wakes, room and reach, got {quoted(constraint)}")
        if not isinstance(constraint.name, str) or not constraint.name:
            raise InputError(f"{what}: name must be text, got {quoted(constraint.name)}")
        if constraint.name in names:
            raise InputError(f"{what}: another constraint is named {constraint.name!r}, too")
        names.add(constraint.name)
        for kind in ordered(f"{what} ({constraint.name!r}): wakes", constraint.wakes):
            if not (isinstance(kind, type) and issubclass(kind, Event)):
                raise InputError(f"{what} ({constraint.name!r}): wakes must be kinds of events, got {quoted(kind)}")
        for part in ("room", "reach"):
            if not callable(getattr(constraint, part)):
                raise InputError(f"{what} ({constraint.name!r}): {part} must be a method")
    return found


def limits(cluster: Cluster, constraints: Sequence[Constraint], debug: bool = False) -> list[CheckedConstraint]:
    """Return the limits for `Inventory.attach` of a policy's constraints; for `debug`, see `flowsched.policy.purity`."""
    return [CheckedConstraint(cluster, constraint, debug) for constraint in constraints]


class CheckedConstraint:
    """A constraint of the caller on one cluster, with checked answers.

    Parameters
    ----------
    cluster : Cluster
    constraint : Constraint
    debug : bool
        Compare every answer with repeated ones.
    """

    def __init__(self, cluster: Cluster, constraint: Constraint, debug: bool = False) -> None:
        self.name = constraint.name
        self.wakes = tuple(kind.__name__ for kind in constraint.wakes)
        self._cluster = cluster
        self._constraint = constraint
        self._bit = np.uint32(0)
        self._refused: dict[tuple[int, int], int] = {}
        self._what = f"constraint {self.name!r} ({quoted(constraint)})"
        self._witness = Witness(f"{self._what}: room", cluster) if debug else None
        self._reach = Reach([self])

    def deal(self, bit: int) -> None:
        """Set the bit that this limit uses from now on."""
        self._bit = np.uint32(bit)

    def room(self, classes: Ints, rows: Ints) -> Ints:
        """Return the constraint's answer, checked; shape (classes, rows)."""
        if self._witness is None:
            return self._ask(classes, rows)
        counts: Ints = self._witness.question(self._ask, classes, rows)
        inventory = self._cluster.inventory
        versions = inventory.version[: inventory.rows]
        versions = np.maximum(versions, self._reach.update(versions, inventory.clock, inventory.arranged))
        self._witness.check(self._ask, counts, classes, rows, versions)
        return counts

    def _ask(self, classes: Ints, rows: Ints) -> Ints:
        answer = self._constraint.room(self._cluster, classes, rows)
        try:
            found = np.asarray(answer)
        except ValueError:
            raise self._refusal("rows of different lengths") from None
        shape = (len(classes), len(rows))
        if found.shape != shape:
            raise self._refusal(f"shape {found.shape}; {shape} expected: (classes, rows)")
        if found.dtype.kind not in "iu":
            raise self._refusal(f"values of type {found.dtype}; whole numbers expected")
        if found.size and found.min() < 0:
            raise self._refusal(f"{found.min()}; numbers >= 0 expected")
        counts: Ints = np.minimum(found, UNLIMITED).astype(np.int64)
        return counts

    def _refusal(self, returned: str) -> InputError:
        return InputError(f"{self._what}: room returned {returned}")

    def narrow(self, classes: Ints, rows: Ints, fits: Ints, why: NDArray[np.uint32]) -> None:
        """See `flowsched.cluster.limits.Limit`."""
        there = self._cluster.present(rows)
        counts = np.zeros(fits.shape, np.int64)
        if len(classes) and there.any():
            counts[:, there] = self.room(classes, rows[there])
        if self._refused:
            self._close(classes, rows, counts)
        np.minimum(fits, counts, out=fits)
        why |= np.where(counts, np.uint32(0), self._bit)

    def _close(self, classes: Ints, rows: Ints, counts: Ints) -> None:
        """Leave no room where a task was refused and nothing has changed since."""
        for (row, class_id), clock in list(self._refused.items()):
            if self._cluster.inventory.newer(np.array([row]), clock)[0]:
                del self._refused[row, class_id]
            else:
                counts[np.ix_(classes == class_id, rows == row)] = 0

    def admits(self, row: int, class_id: int, without: Sequence[Any] = ()) -> bool:
        """Return True if one more task of the class may start there now."""
        return bool(self.room(np.array([class_id]), np.array([row]))[0, 0])

    def spare(self, row: int, class_id: int, most: int) -> int:
        """Return the number of tasks of the class, up to `most`, that may start there now."""
        return min(int(self.room(np.array([class_id]), np.array([row]))[0, 0]), most)

    def refused(self, row: int, class_id: int) -> None:
        """Leave no room for the class until something in reach has changed.

        A constraint that keeps its contract does so itself.  For one that does not, this ends the round.
        """
        self._refused[row, class_id] = self._cluster.inventory.clock + 1

    def reach(self, row: int) -> Ints:
        """Return the constraint's reach, checked."""
        if row not in self._cluster.by_row:
            return np.zeros(0, np.int64)
        answer = self._constraint.reach(self._cluster, row)
        try:
            found: NDArray[Any] = np.asarray(answer)
        except ValueError:
            found = np.zeros((0, 0))
        count = self._cluster.inventory.rows
        whole = found.ndim == 1 and (not found.size or found.dtype.kind in "iu")
        if not whole or (found.size and not (found.min() >= 0 and found.max() < count)):
            raise InputError(f"{self._what}: reach returned {quoted(answer)}; rows of machines expected")
        return found.astype(np.int64)
