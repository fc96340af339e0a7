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

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from flowsched.boundary.validate import ordered, quoted
from flowsched.cluster import Cluster
from flowsched.cluster.events import Event
from flowsched.cluster.limits import Reach
from flowsched.cluster.model import UNLIMITED
from flowsched.cluster.records import TaskClass
from flowsched.exceptions import InputError

__all__ = ["Constraint", "Witness", "checked_constraints", "limits"]

Ints = NDArray[np.int64]
Answer = NDArray[Any]
Ask = Callable[[Ints, Ints], Answer]


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
    """Return the constraints of a policy as a tuple; raise InputError if one is none, or two have the same name."""
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
    """Return the limits for `Inventory.attach` of a policy's constraints; for `debug`, see `flowsched.policy.constraint`."""
    return [CheckedConstraint(cluster, constraint, debug) for constraint in constraints]


class CheckedConstraint:
    """A constraint of the caller on one cluster, with checked answers; `debug` compares each with repeated ones."""

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


class Witness:
    """Record of the answers of one part about one cluster; refuses those that contradict each other: `Policy.debug`.

    A cost may depend on the classes and the machines of its call, a constraint also on machines that have these in
    their reach.  Changes of anything else are not noticed, so an answer that depends on them becomes out of date.  In
    debug mode every answer is compared with the answers to the same question

    * repeated;
    * with classes and machines in another order;
    * with a part of the machines, and with one class at a time;
    * from before, for machines that have not changed since.

    The part must not change its argument arrays, nor the cluster.  Debug mode takes several times as long as the
    answers, and memory for each of them.  `what` is the name of the part in error messages; answers that differ by no
    more than `tolerance` count as equal.
    """

    def __init__(self, what: str, cluster: Cluster, tolerance: float = 0.0) -> None:
        self._what = what
        self._cluster = cluster
        self._tolerance = tolerance
        self._said: dict[TaskClass, dict[int, tuple[int, Any]]] = {}

    def question(self, ask: Ask, classes: Ints, rows: Ints) -> Answer:
        """Return the answer; raise if the part has changed something."""
        inventory = self._cluster.inventory
        mine, before = (classes.copy(), rows.copy()), (inventory.clock, self._cluster.events)
        answer = ask(*mine)
        if not (np.array_equal(mine[0], classes) and np.array_equal(mine[1], rows)):
            raise InputError(f"{self._what} alters the arrays that it is given")
        if before != (inventory.clock, self._cluster.events):
            raise InputError(f"{self._what} alters the cluster")
        return answer

    def check(self, ask: Ask, answer: Answer, classes: Ints, rows: Ints, versions: Ints) -> None:
        """Compare an answer, shape (classes, rows), with other answers.

        `ask` calls the part; `versions`, shape (rows of the cluster,), differ where the answer may differ.  Where two
        answers differ, the InputError names the part, a class by the demand of its tasks, and a machine.
        """
        self._compare(self.question(ask, classes, rows), answer, classes, rows, "asked again")
        random = np.random.default_rng(len(rows))
        c, r = random.permutation(len(classes)), random.permutation(len(rows))
        shuffled = self.question(ask, classes[c], rows[r])
        self._compare(shuffled, answer[np.ix_(c, r)], classes[c], rows[r], "asked in another order")
        for half in (r[: len(r) // 2], r[len(r) // 2 :]):
            if 0 < len(half) < len(rows):
                part = self.question(ask, classes, rows[half])
                self._compare(part, answer[:, half], classes, rows[half], "asked without other machines")
        for i in range(len(classes)) if len(classes) > 1 else ():
            one = self.question(ask, classes[i : i + 1], rows)
            self._compare(one, answer[i : i + 1], classes[i : i + 1], rows, "asked without other classes")
        for i, class_id in enumerate(classes.tolist()):
            said = self._said.setdefault(self._cluster.by_class[class_id], {})
            self._compare_with_before(ask, classes[i : i + 1], said, versions)
            said.update((row, (int(versions[row]), value)) for row, value in zip(rows.tolist(), answer[i], strict=True))

    def _compare_with_before(self, ask: Ask, one: Ints, said: dict[int, tuple[int, Any]], versions: Ints) -> None:
        """Repeat the call for machines that have not changed since."""
        same = [row for row, (version, _) in said.items() if versions[row] == version and row in self._cluster.by_row]
        if same:
            rows = np.array(same, np.int64)
            before = np.array([[said[row][1] for row in same]])
            self._compare(
                self.question(ask, one, rows), before, one, rows, "asked when nothing in its reach had changed"
            )

    def _compare(self, now: Answer, before: Answer, classes: Ints, rows: Ints, how: str) -> None:
        differ = np.abs(now - before) > self._tolerance
        if differ.any():
            c, r = (int(at[0]) for at in np.nonzero(differ))
            demand = dict(
                zip(self._cluster.resources.names, self._cluster.demand(classes[c : c + 1])[0].tolist(), strict=True)
            )
            machine = self._cluster.by_row[int(rows[r])].id
            raise InputError(
                f"{self._what} contradicts itself: {before[c, r]:g} for tasks of {demand} on machine {machine!r}, "
                f"and {now[c, r]:g} {how}; see flowsched.policy.constraint"
            )
