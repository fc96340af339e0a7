"""Placement constraints with a utility: ``<task, resources, utility>`` (Sirius, section 3.1.2, equations 3 to 6).

The source gives the arc from a task to resources the cost ``-utility``, so a flow of least cost has the highest total utility.
A network's costs are whole numbers, so `Policy.resolution` levels represent the range of the utilities::

    cost(u) = rint(R (high - u) / (high - low))                 low <= u <= high, R levels

Nothing is clipped: the range is that of the constraints, so it holds every sum of their utilities.  Each task's
utility is rounded to half a level, and one level lets running win over waiting if both are worth the same.  So the
utility of a round is within ``2 n (high - low) / R`` of the maximum over n tasks.

That bound applies to limits that a flow counts: the tasks on a machine (`Machine.slots`, in the source the cores).  Where
only resources limit machines, a flow may propose more than fits together, and the admission check takes the tasks in order.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.boundary.validate import check_id, number, ordered, quoted
from flowsched.cluster import Cluster
from flowsched.cluster.selectors import Wanted, meets, wanted_labels
from flowsched.exceptions import InputError
from flowsched.policy.placement import become_weight, shapes_of

__all__ = ["Utilities"]

_MOST = 1e100

_NOISE = 1e-15
"""Part of the range of utilities up to which a difference is a rounding error."""

_Labels = Mapping[str, Wanted]


@dataclass(frozen=True)
class Utilities:
    """Placement constraints ``(kind, resources, utility)``: a round's placements have the highest total utility.

    The utilities of all constraints on a task and a machine add up.  Without a constraint, a place has the utility 0.

    Parameters
    ----------
    constraints : sequence of (kind, resources, utility)
        `Task.kind` of the tasks, or None for all tasks; the id of a machine, or labels of machines as in
        `Task.constraints`; and a finite number of either sign.
    waiting : float
        Utility of a task that waits: in its first age bucket it takes no place that is worth less (see `WaitCost`).
        Later, running goes before waiting.  ``WaitCost(buckets=1)`` has one bucket that never ends.
    weight : float
        Weight of the whole range relative to other costs.  Waiting counts like a place where these are at their highest.

    Raises
    ------
    InputError
        A constraint is no such triple.  From `Policy`: two utilities are too close for its resolution.

    Examples
    --------
    >>> gpus = Utilities([("render", {"gpu": ("yes",)}, 1.0), ("render", "m7", -2.5)])
    >>> gpus.low, gpus.high
    (-2.5, 1.0)
    """

    constraints: Sequence[tuple[Hashable, Hashable | Mapping[str, Any], float]]
    waiting: float = 0.0
    weight: float = 1.0

    def __post_init__(self) -> None:
        triples = []
        for i, triple in enumerate(ordered("Utilities: constraints", self.constraints)):
            what = f"Utilities: constraints[{i}]"
            if not isinstance(triple, tuple | list) or len(triple) != 3:
                raise InputError(f"{what} must be (kind, resources, utility), got {quoted(triple)}")
            kind, resources, utility = triple
            check_id(f"{what}: kind", kind)
            if isinstance(resources, Mapping):
                resources = wanted_labels(f"{what}: resources", resources)
            else:
                check_id(f"{what}: resources", resources)
            triples.append((kind, resources, number(f"{what}: utility", utility, -_MOST, _MOST)))
        object.__setattr__(self, "constraints", tuple(triples))
        object.__setattr__(self, "waiting", number("Utilities: waiting", self.waiting, -_MOST, _MOST))
        become_weight(self)

    def __call__(self, cluster: Cluster, classes: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the negated utility of a place, shape (classes, rows)."""
        cost = np.zeros((len(classes), len(rows)))
        records = [cluster.by_row.get(row) for row in rows.tolist()]
        machines = [None if record is None else record.id for record in records]
        shapes, at = shapes_of(cluster, rows)
        labels = [dict(key[1]) if key else {} for key in shapes]
        for i, cls in enumerate(classes.tolist()):
            there, wanted = self._of(cluster.by_class[cls].kind)
            if there:
                cost[i] -= [there.get(machine, 0.0) for machine in machines]
            for wishes, utility in wanted:
                met = [all(meets(have.get(k), wish) for k, wish in wishes.items()) for have in labels]
                cost[i] -= np.where(met, utility, 0.0)[at]
        return cost

    def _of(self, kind: Hashable) -> tuple[dict[Hashable, float], list[tuple[_Labels, float]]]:
        """Return the constraints on a kind: utilities by machine, and by labels."""
        return self._kinds.get(kind, self._kinds[None])

    @cached_property
    def _kinds(self) -> dict[Hashable, tuple[dict[Hashable, float], list[tuple[_Labels, float]]]]:
        """Constraints by kind; None stands for all kinds that no constraint names."""
        kinds = dict.fromkeys([None, *(kind for kind, _, _ in self.constraints)])
        return {kind: self._said(kind) for kind in kinds}

    def _said(self, kind: Hashable) -> tuple[dict[Hashable, float], list[tuple[_Labels, float]]]:
        there: dict[Hashable, list[float]] = {}
        wanted: list[tuple[_Labels, float]] = []
        for of, resources, utility in self.constraints:
            if of is None or of == kind:
                if isinstance(resources, Mapping):
                    wanted.append((resources, utility))
                else:
                    there.setdefault(resources, []).append(utility)
        return {machine: math.fsum(utilities) for machine, utilities in there.items()}, wanted

    @cached_property
    def low(self) -> float:
        """Smallest utility of a place."""
        return min(self._sum(there, wanted, min) for there, wanted in self._kinds.values())

    @cached_property
    def high(self) -> float:
        """Largest utility of a place, or of waiting; above `low`."""
        high = max(self._sum(there, wanted, max) for there, wanted in self._kinds.values())
        high = max(high, self.waiting)
        return high if high > self.low else self.low + 1.0

    def _sum(self, there: Mapping[Hashable, float], wanted: Sequence[tuple[_Labels, float]], best: Any) -> float:
        """Return the best sum, or an upper bound of it if constraints name several labels or operators.

        A machine has one value of a label, so the constraints on one label add up if they share a value.
        """
        parts = [best([0.0, *there.values()])]
        shared: dict[str, dict[str, list[float]]] = {}
        for wishes, utility in wanted:
            label, values = next(iter(wishes.items()), ("", ()))
            if len(wishes) == 1 and all(isinstance(value, str) for value in values):
                for value in values:
                    shared.setdefault(label, {}).setdefault(value, []).append(utility)
            else:
                parts.append(best(0.0, utility))
        parts += [best([0.0, *map(math.fsum, values.values())]) for values in shared.values()]
        return math.fsum(parts)

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest cost; see `PlacementCost`."""
        return -self.high, -self.low

    @cached_property
    def waits(self) -> float:
        """Cost of waiting, as a part of the range."""
        return min(max((self.high - self.waiting) / (self.high - self.low), 0.0), 1.0)

    @cached_property
    def _finest(self) -> float:
        """Smallest difference of two constraints' utilities for one kind, of 0 and of waiting, as a part of the range."""
        finest = 1.0
        for there, wanted in self._kinds.values():
            values = np.unique([0.0, self.waiting, *there.values(), *(utility for _, utility in wanted)])
            steps = np.diff(values) / (self.high - self.low)
            finest = min(finest, *steps[steps > _NOISE].tolist(), 1.0)
        return finest

    def needs(self, share: float) -> int:
        """Return the smallest sufficient resolution of a policy where this has that share of the weight: two levels per difference."""
        return math.floor(2.0 / (self._finest * share)) + 1

    def least(self, cluster: Cluster) -> float:
        """Return the smallest difference between two places, see `Policy.fitted`."""
        return self._finest
