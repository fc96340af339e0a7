"""Placement costs, normalised to [0, 1], for many classes and machines at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import lcm
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

import flowsched.policy._costs as _costs
from flowsched.boundary.validate import number, ordered, quoted, truth
from flowsched.cluster import Cluster
from flowsched.cluster.selectors import keeps_off, meets
from flowsched.cluster.shapes import ShapeKey
from flowsched.exceptions import InputError
from flowsched.policy.scale import LATER

__all__ = ["CustomCost", "DeviceCost", "LoadCost", "Locality", "PlacementCost", "PreferenceCost", "TaintCost"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class PlacementCost(Protocol):
    """Cost of one dimension of a placement.

    It may have a method ``least(cluster)``: the smallest difference between two places that matters, as a part of the whole
    range; by default a hundredth.  `Policy.fitted` uses it.  It may have an attribute ``range``, the smallest and the
    largest value; by default (0, 1).  Weights compare whole ranges.

    It is called for changed machines, before a round's solve.  It must depend only on the classes and the present state of
    these machines (other changes are not noticed), and return values of its range.
    """

    @property
    def weight(self) -> float:
        """Weight relative to other costs."""
        ...

    def __call__(self, cluster: Cluster, classes: Ints, rows: Ints) -> Floats:
        """Return the cost of one more task of each class on each machine, shape (classes, rows)."""
        ...


def range_of(cost: PlacementCost) -> tuple[float, float]:
    """Return the smallest and the largest value of a cost."""
    low, high = getattr(cost, "range", None) or (0.0, 1.0)
    return low, high


_LEAST, _MOST = 1e-100, 1e100


def check_weight(what: str, weight: Any) -> float:
    """Return a weight; refuse anything but a positive number whose sums and quotients stay accurate."""
    try:
        return number(what, weight, _LEAST, _MOST)
    except InputError:
        raise InputError(
            f"{what}: a positive number expected ({_LEAST:g} to {_MOST:g}), got {quoted(weight)}"
        ) from None


def become_weight(cost: Any) -> None:
    """Check the `weight` of a frozen cost, and convert it to a Python number."""
    object.__setattr__(cost, "weight", check_weight(f"{type(cost).__name__}: weight", cost.weight))


@dataclass(frozen=True)
class _Weighted:
    """A cost with no setting but its weight."""

    weight: float = 1.0

    def __post_init__(self) -> None:
        become_weight(self)


@dataclass(frozen=True)
class LoadCost:
    """Cost that spreads load over machines, or packs it onto few.

    The load of a machine is the mean, over its resources, of the part in use after the start of the task.

    Parameters
    ----------
    kind : "spread", "pack" or "balance"
        The cost is the load, or one minus the load, or the difference between the largest and the smallest part in use of
        any resource: balance keeps a machine from running out of one resource while another is free.
    weight : float
    """

    kind: Literal["spread", "pack", "balance"] = "spread"
    weight: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in ("spread", "pack", "balance"):
            raise InputError(f"LoadCost: kind must be 'spread', 'pack' or 'balance', got {quoted(self.kind)}")
        become_weight(self)

    def __call__(self, cluster: Cluster, classes: Ints, rows: Ints) -> Floats:
        """Return the cost in [0, 1], shape (classes, rows)."""
        return _costs.costs(cluster.inventory, _costs.KINDS[self.kind], classes, rows)


@dataclass(frozen=True)
class Locality:
    """Cost of the distance between tasks and their data (`Task.data`), by machine and rack.

    There are two modes:

    * *By amount*, with `amount` given: the cost of a place is the data that crosses the core switch, from other racks, plus
      `rack` times the data that crosses only the rack's switch, from other machines of the rack (Isard et al., "Quincy",
      SOSP 2009, section 4.2).  So a task with much data gets a near place before a task with little.
    * *By part*, without `amount`: the same with parts of the task's own data, so all tasks count alike.

    A task may have more data than `amount`.  Then `Scheduler.schedule` replaces the policy by one with a larger range and
    the same price per unit: `amount`, `weight` and `Policy.resolution` grow together.

    Parameters
    ----------
    weight : float
        Weight relative to the placement costs.
    rack : float
        Cost of data in the same rack, from 0 to 1, relative to data in another rack.
    threshold : float
        Above 0 and up to 1: machines and racks with less than this part of a task's data count like any other.
    amount : float or None
        Amount of data in other racks that costs as much as the whole range of a placement cost of the same weight, in the
        unit of `Task.data`.  None for the mode by part.
    """

    weight: float = 1.0
    rack: float = 0.5
    threshold: float = 0.1
    amount: float | None = field(default=None, metadata=LATER)

    def __post_init__(self) -> None:
        become_weight(self)
        for name in ("rack", "threshold"):
            object.__setattr__(self, name, number(f"Locality: {name}", getattr(self, name), 0, 1))
        check_weight("Locality: threshold", self.threshold)
        if self.amount is not None:
            object.__setattr__(self, "amount", check_weight("Locality: amount", self.amount))

    def cost(self, here: float, in_rack: float, data: float = 1.0) -> float:
        """Return the cost of a place with these parts of the data on the machine and in its rack, itself included.

        The result is from 0 to 1; above 1 by amount, for a task with more `data` than that.
        """
        return (1.0 - in_rack + self.rack * (in_rack - here)) * (1.0 if self.amount is None else data / self.amount)


def built_in(cost: PlacementCost) -> int | None:
    """Return the number of a built-in cost in the compiled code, None for any other."""
    if type(cost) is LoadCost:
        return _costs.KINDS[cost.kind]
    return _costs.KINDS["devices"] if type(cost) is DeviceCost else None


def shapes_of(cluster: Cluster, rows: Ints) -> tuple[list[ShapeKey | None], Ints]:
    """Return the different shapes of machines, None for a row without one, and the index of each row's shape."""
    keys = cluster.inventory.shapes().keys
    shape, at = np.unique(cluster.inventory.suitability.of[rows], return_inverse=True)
    return [keys.get(s) for s in shape.tolist()], at


@dataclass(frozen=True)
class PreferenceCost(_Weighted):
    """Part of a task's soft constraints (`Task.prefers`) that the labels of a machine do not meet."""

    def __call__(self, cluster: Cluster, classes: Ints, rows: Ints) -> Floats:
        """Return the cost in [0, 1], shape (classes, rows); 0 for a task without preferences."""
        cost = np.zeros((len(classes), len(rows)))
        shapes, at = shapes_of(cluster, rows)
        labels = [dict(key[1]) if key else {} for key in shapes]
        for i, cls in enumerate(classes.tolist()):
            prefers = cluster.by_class[cls].prefers
            if prefers:
                unmet = [sum(not meets(have.get(k), wanted) for k, wanted in prefers.items()) for have in labels]
                cost[i] = np.array(unmet)[at] / len(prefers)
        return cost

    def least(self, cluster: Cluster) -> float:
        """Return the smallest difference between two places: one preference among the many of a task."""
        return 1 / lcm(*(len(cls.prefers) for cls in cluster.by_class.values() if cls.prefers))


@dataclass(frozen=True)
class TaintCost(_Weighted):
    """Taints of the effect PreferNoSchedule that a task does not tolerate: ``n / (1 + n)`` for n of them."""

    def __call__(self, cluster: Cluster, classes: Ints, rows: Ints) -> Floats:
        """Return the cost in [0, 1), shape (classes, rows)."""
        cost = np.zeros((len(classes), len(rows)))
        shapes, at = shapes_of(cluster, rows)
        soft = [[taint for taint in key[3] if taint[2] == "PreferNoSchedule"] if key else [] for key in shapes]
        if not any(soft):
            return cost
        for i, cls in enumerate(classes.tolist()):
            tolerations = cluster.by_class[cls].tolerations
            count = np.array([sum(keeps_off(taint, tolerations) for taint in taints) for taints in soft], np.float64)
            cost[i] = (count / (1.0 + count))[at]
        return cost


@dataclass(frozen=True)
class CustomCost:
    """A placement cost from a plain function.

    Parameters
    ----------
    function : callable
        Called with the cluster, the indices of classes, and the rows of machines; returns costs of shape
        (classes, rows).  See `PlacementCost` for its contract.
    weight : float
    range : (float, float) or None
        Smallest and largest cost, of either sign: ``(-7.0, 5.0)``.  None, the default: from 0 to 1.
    grows : bool
        True if the range is the one known so far, and grows.  A cost without a range grows if it is the policy's only cost.
        If its answers need more than [0, 1], or more than `Policy.resolution` levels, `Scheduler.schedule` replaces the
        policy by one of the same goals with a range of powers of two, or a million levels.  With other costs no range grows.
    """

    function: Callable[[Cluster, Ints, Ints], Floats]
    weight: float = 1.0
    range: tuple[float, float] | None = field(default=None, metadata=LATER)
    grows: bool = field(default=False, metadata=LATER)

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InputError(f"CustomCost: function must be callable, got {quoted(self.function)}")
        truth("CustomCost: grows", self.grows)
        if self.range is not None:
            ends = ordered("CustomCost: range", self.range)
            if len(ends) != 2:
                raise InputError(f"CustomCost: range must be (least, largest), got {quoted(self.range)}")
            low, high = (number(f"CustomCost: range[{i}]", end, -_MOST, _MOST) for i, end in enumerate(ends))
            if not high - low >= _LEAST:
                raise InputError(
                    f"CustomCost: range must go from the least to the largest cost, got {quoted(self.range)}"
                )
            object.__setattr__(self, "range", (low, high))
        become_weight(self)

    def wider(self, least: float, largest: float) -> CustomCost | None:
        """Return the same cost with a range that holds these values; None if its range does not grow."""
        if not (self.range is None or self.grows) or not -_MOST <= least <= largest <= _MOST:
            return None
        low, high = range_of(self)
        low = low if least >= low else -(2.0 ** math.ceil(math.log2(-least)))
        high = high if largest <= high else 2.0 ** math.ceil(math.log2(largest))
        return replace(self, range=(low, high), grows=True)

    def __call__(self, cluster: Cluster, classes: Ints, rows: Ints) -> Floats:
        """Return the costs of the function."""
        return self.function(cluster, classes, rows)


@dataclass(frozen=True)
class DeviceCost(_Weighted):
    """Cost that keeps machines with devices (GPUs) for the tasks that need them: 1 for a task that needs none, else 0."""

    def __call__(self, cluster: Cluster, classes: Ints, rows: Ints) -> Floats:
        """Return the cost 0 or 1, shape (classes, rows)."""
        return _costs.costs(cluster.inventory, _costs.KINDS["devices"], classes, rows)

    def least(self, cluster: Cluster) -> float:
        """Return the smallest difference between two places: the whole range."""
        return 1.0
