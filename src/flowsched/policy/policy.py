"""Policies: costs of places, of waiting and of preemption, as functions of the cluster.  No networks here.

All costs are whole numbers, and lower ones win.  The table in `CostScale` defines the precedence of goals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

import flowsched.policy._costs as _costs
from flowsched.boundary.validate import nearest, number, quoted, truth, whole
from flowsched.cluster import Cluster
from flowsched.exceptions import CostRangeError, InputError
from flowsched.policy.constraint import Constraint, Witness, checked_constraints
from flowsched.policy.fairness import Fairness, Quotas, checked_quotas
from flowsched.policy.placement import CustomCost, DeviceCost, LoadCost, Locality, PlacementCost, built_in, range_of
from flowsched.policy.precedence import Precedence, check, fitted
from flowsched.policy.priority import PreemptionCost, PriorityCost, StrictPriority, WaitCost, WeightedPriority
from flowsched.policy.providers import DRF
from flowsched.policy.scale import LATER, CostScale, beyond_scale, is_coarse
from flowsched.policy.utility import Utilities

Ints = NDArray[np.int64]

__all__ = ["OMEGA", "Policy", "PreemptionCost"]

OMEGA = 1000
"""Default cost of the whole range of one dimension: the resolution of loads."""

_ROUNDING = 1e-9
"""Rounding error by which a cost may lie outside [0, 1], or differ after a sum in another order."""

_MOST = 1 << 59
"""Upper bound of all costs of a policy together."""

_FINE = 1_000_000
"""Resolution of a policy whose only cost needs more levels than the default."""


@dataclass(frozen=True)
class Policy:
    """Goals of a scheduler.

    Parameters
    ----------
    placement : sequence of PlacementCost
        Their weighted mean is the cost of a placement; empty for "anywhere".
    priority : PriorityCost
    waiting : WaitCost
    preemption : PreemptionCost or None
        None: running tasks go on.
    fairness : Fairness or None
        Shares of jobs or users; None: costs alone decide.  A step of strict priority outweighs the price of missing a share,
        and that outweighs age and load; only the bounds of a hard share are kept even against priority.
    step : float
        Part of the flow's proposals that is accepted at a time, in (0, 1]: the cheapest first and one task per machine;
        then costs are brought up to date and the flow is optimised again.  1, the default, accepts all proposals.  Smaller
        steps are for packing large batches by placement costs that change with every task on a machine.
    locality : Locality or None
        Cost of the distance to a task's data, by its weight relative to `placement`.
    resolution : int
        Cost of the whole range of placements, that is, the number of distinct levels.
    moves : int
        Number of tasks whose lower goals together one step of a higher goal outweighs; see `fitted`.
    constraints : sequence of Constraint
        Hard limits of the caller, in addition to those of machines and tasks.
    backfill : "easy", "conservative" or None
        Tasks for which machines are reserved by run-time estimates (`Task.duration`): the first task or gang in line without
        room; the first task of each kind, and each gang; or none.  Others start on such a machine only if they leave it in
        time.  Without estimates, `WaitCost.reserve` alone protects a large task.
    debug : bool
        Call all placement costs and constraints several times, and refuse those that break their contract by name; see
        `flowsched.policy.constraint`.  Rounds take several times as long.
    rack_load : float
        Weight of the load of a rack, the mean of its machines' loads, relative to the other costs of a place (the source's
        cost on the arc X -> R); 0, the default, for none.  Tasks that go to a rack near their data do not count it.  With it,
        each pass of a round visits all machines.
    quotas : Quotas, mapping of user to (mapping of str to number), or None
        Hard limits on the amounts of running tasks of a user or job, such as ``{"ann": {"gpu": 8, "cpu": 64}}``.
    """

    placement: Sequence[PlacementCost] = field(default_factory=lambda: (LoadCost("spread"),))
    priority: PriorityCost = field(default_factory=StrictPriority)
    waiting: WaitCost = field(default_factory=WaitCost)
    preemption: PreemptionCost | None = field(default_factory=PreemptionCost)
    step: float = 1.0
    fairness: Fairness | None = None
    locality: Locality | None = None
    resolution: int = OMEGA
    moves: int = 1
    constraints: Sequence[Constraint] = field(default=(), metadata=LATER)
    backfill: Literal["easy", "conservative"] | None = field(default="easy", metadata=LATER)
    debug: bool = field(default=False, metadata=LATER)
    rack_load: float = field(default=0.0, metadata=LATER)
    quotas: Quotas | None = field(default=None, metadata=LATER)

    def __post_init__(self) -> None:
        if isinstance(self.placement, str) or not isinstance(self.placement, Sequence):
            raise InputError(f"Policy: placement must be a sequence of costs, got {quoted(self.placement)}")
        for i, cost in enumerate(self.placement):
            if not callable(cost) or not hasattr(cost, "weight"):
                raise InputError(f"Policy: placement[{i}] must be a callable with a weight, got {quoted(cost)}")
        object.__setattr__(self, "placement", tuple(self.placement))
        if not callable(self.priority) or isinstance(self.priority, type):
            raise InputError(
                f"Policy: priority must be a PriorityCost such as StrictPriority(), got {quoted(self.priority)}"
            )
        if not isinstance(self.waiting, WaitCost):
            raise InputError(f"Policy: waiting must be a WaitCost, got {quoted(self.waiting)}")
        for name, kind in (("preemption", PreemptionCost), ("fairness", Fairness), ("locality", Locality)):
            if (part := getattr(self, name)) is not None and not isinstance(part, kind):
                raise InputError(f"Policy: {name} must be a {kind.__name__} or None, got {quoted(part)}")
        for name in ("resolution", "moves"):
            object.__setattr__(self, name, whole(f"Policy: {name}", getattr(self, name), 1, _MOST - 1))
        truth("Policy: debug", self.debug)
        object.__setattr__(self, "rack_load", number("Policy: rack_load", self.rack_load, 0, 1e100))
        if self.backfill not in ("easy", "conservative", None):
            raise InputError(f"Policy: backfill must be 'easy', 'conservative' or None, got {quoted(self.backfill)}")
        object.__setattr__(self, "constraints", checked_constraints(self.constraints))
        object.__setattr__(self, "quotas", checked_quotas(self.quotas))
        object.__setattr__(self, "step", number("Policy: step", self.step, 0, 1))
        if not self.step:
            raise InputError("Policy: step must be above 0")
        for i, cost in enumerate(self.placement):
            if isinstance(cost, Utilities) and (levels := cost.needs(cost.weight / self._weight)) > self.resolution:
                raise InputError(
                    f"{self._name(i)}: its utilities need a resolution of at least {levels}, got {self.resolution}"
                )

    @staticmethod
    def named(name: str) -> Policy:
        """Return a ready-made policy.

        Parameters
        ----------
        name : str
            One of `Policy.names`.

        Raises
        ------
        InputError
            The name is unknown; the message lists the known ones.
        """
        if name not in Policy.names():
            raise InputError(f"policy: unknown name {name!r}; known: {', '.join(_NAMED)}{nearest(name, _NAMED)}")
        return _NAMED[name]()

    @staticmethod
    def names() -> list[str]:
        """Return the names of the ready-made policies."""
        return list(_NAMED)

    def fitted(self, cluster: Cluster) -> Policy:
        """Return the same goals with scales derived from a cluster, so that no lower goal overrides a higher one.

        From the highest: priority, fairness, continuation of running tasks (except against priority), age, locality, and the
        placement costs in their order, whatever their weights.  `moves` becomes the number of tasks that can be affected at
        all, or as many as the network's integers allow; see `check`.

        Parameters
        ----------
        cluster : Cluster
            Has its machines, and typical tasks.

        Raises
        ------
        InputError
            The placement costs are too many to be kept in order.
        """
        return fitted(self, _cluster(cluster))

    def check(self, cluster: Cluster) -> list[Precedence]:
        """Compare every goal with each lower one that could override it.

        Returns
        -------
        list of Precedence
            With ``always`` false if enough tasks together, or for ``moves == 0`` a single one, may override the higher
            goal.
        """
        return check(self, _cluster(cluster))

    def place(self, cluster: Cluster, classes: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the cost of a placement, 0 to `resolution`, shape (classes, rows)."""
        if self.recipe is not None:
            return _costs.prices(cluster.inventory, self.recipe, classes, rows)
        total = np.zeros((len(classes), len(rows)))
        for i, cost in enumerate(self.placement):
            part = self._asked(i, cluster, classes, rows)
            if self.debug:
                self._compare(i, part, cluster, classes, rows)
            total += cost.weight * part
        if self._weight:
            total *= self.resolution / self._weight
        return np.clip(np.rint(total), 0, self.resolution).astype(np.int64)

    @cached_property
    def recipe(self) -> tuple[tuple[tuple[int, float], ...], float, float] | None:
        """Parameters of `place` for compiled code; None if a cost is not built in, or for `debug`.

        The kind and the weight of each cost, the factor of their sum, and the largest result.
        """
        kinds = [built_in(cost) for cost in self.placement]
        if self.debug or len(kinds) > _costs.MOST_COSTS:
            return None
        terms, weight = [], self._weight
        for kind, cost in zip(kinds, self.placement, strict=True):
            if kind is None:
                return None
            terms.append((kind, cost.weight))
        return tuple(terms), self.resolution / weight if weight else 1.0, float(self.resolution)

    def _asked(self, i: int, cluster: Cluster, classes: Ints, rows: Ints) -> NDArray[Any]:
        """Call one placement cost, and check its answer; parts of its range, shape (classes, rows)."""
        part: NDArray[Any] = np.asarray(self.placement[i](cluster, classes, rows))
        shape = (len(classes), len(rows))
        if part.shape != shape:
            raise InputError(f"{self._name(i)} returned shape {part.shape}, expected {shape}: (classes, rows)")
        if part.dtype.kind not in "fiub":
            raise InputError(f"{self._name(i)} returned values of type {part.dtype}, expected numbers")
        low, high = range_of(self.placement[i])
        margin = _ROUNDING * (high - low)
        if part.size and not (part.min() >= low - margin and part.max() <= high + margin):
            wrong = part[~((part >= low - margin) & (part <= high + margin))][0]
            raise beyond_scale(
                f"{self._name(i)} returned {wrong:g}; costs are numbers from {low:g} to {high:g}, "
                "and CustomCost(f, range=(low, high)) states other bounds",
                self._wider(float(part.min()), float(part.max())),
            )
        if (low, high) != (0.0, 1.0):
            part = (part - low) / (high - low)
        if (
            self.resolution < _FINE
            and self._wider(low, high) is not None
            and is_coarse(part, self.resolution, _ROUNDING)
        ):
            finer = replace(self, resolution=_FINE)
            raise beyond_scale(f"{self._name(i)} needs more than {self.resolution} levels", finer)
        return part

    def _wider(self, least: float, largest: float) -> Policy | None:
        """Return the same goals with a scale that holds such costs, if the policy consists of one cost that grows."""
        if len(self.placement) != 1 or self.locality or self.rack_load or not isinstance(self.placement[0], CustomCost):
            return None
        cost = self.placement[0].wider(least, largest)
        return None if cost is None else replace(self, placement=(cost,))

    @cached_property
    def _witnesses(self) -> WeakKeyDictionary[Cluster, list[Witness]]:
        """Recorded answers of each placement cost, by cluster."""
        return WeakKeyDictionary()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_witnesses", "recipe", "_weight")}

    def _name(self, i: int) -> str:
        return f"Policy: placement[{i}] ({quoted(self.placement[i], 200)})"

    def _compare(self, i: int, part: NDArray[Any], cluster: Cluster, classes: Ints, rows: Ints) -> None:
        """Compare an answer of a placement cost with its other answers."""
        witnesses = self._witnesses.get(cluster)
        if witnesses is None:
            witnesses = [Witness(self._name(j), cluster, _ROUNDING) for j in range(len(self.placement))]
            self._witnesses[cluster] = witnesses

        def ask(classes: Ints, rows: Ints) -> NDArray[Any]:
            return self._asked(i, cluster, classes, rows)

        witnesses[i].check(ask, part, classes, rows, cluster.inventory.version)

    @cached_property
    def _weight(self) -> float:
        """Sum of the weights of all costs of a place."""
        local = self.locality.weight if self.locality else 0.0
        return sum((cost.weight for cost in self.placement), local) + self.rack_load

    def distance(self, here: float, in_rack: float, data: float = 1.0) -> int:
        """Return the cost of remote data, for a task with these parts of its data on its machine and in that machine's rack.

        The sum with `place` is 0 to `resolution`.

        Parameters
        ----------
        data : float
            All data of the task.
        """
        if self.locality is None:
            return 0
        if self.locality.amount is not None and data > self.locality.amount:
            raise beyond_scale(f"Policy: a task has more data, {data:g}, than the scale holds", self._holding(data))
        weight = self.locality.weight + sum(cost.weight for cost in self.placement) + self.rack_load
        # Rounded down, since the rest may have been rounded up.
        return int(self.locality.cost(here, in_rack, data) * self.locality.weight * self.resolution / weight)

    def crowding(self, load: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the cost of racks of these loads, from 0 to 1; the sum with `place` is 0 to `resolution`."""
        if not self.rack_load:
            return np.zeros(len(load), np.int64)
        return np.floor(load * (self.rack_load * self.resolution / self._weight)).astype(np.int64)

    def _holding(self, data: float) -> Policy:
        """Return the same costs of all places, on a scale that holds a task of that much data."""
        locality = self.locality
        assert locality is not None and locality.amount is not None
        times = 2.0 ** math.ceil(math.log2(min(data / locality.amount, 2.0**99)))
        resolution = math.ceil(self.resolution * (1.0 + (times - 1.0) * locality.weight / self._weight))
        if resolution >= _MOST:
            raise CostRangeError(
                f"Policy: a task's data of {data:g} is too much for exact arithmetic: a larger amount than "
                f"{locality.amount:g} or a smaller resolution ({self.resolution}) needed"
            )
        wider = replace(locality, weight=locality.weight * times, amount=locality.amount * times)
        return replace(self, locality=wider, resolution=resolution)

    @cached_property
    def scale(self) -> CostScale:
        """Scale of all costs."""
        price = self.preemption.price if self.preemption else 0.0
        return CostScale(
            self.resolution, self.moves, self.waiting.buckets, round(price * self.resolution), self._patience
        )

    @property
    def _patience(self) -> float:
        """Part of the whole range above which a place is worth less than waiting in the first age bucket."""
        if not any(isinstance(cost, Utilities) for cost in self.placement):
            return self.waiting.patience
        total = (self.locality.weight if self.locality else 0.0) + self.rack_load
        for cost in self.placement:
            total += cost.weight * (cost.waits if isinstance(cost, Utilities) else 1.0)
        # Rounded exactly as in `place`, so a place that is worth as much as waiting costs one less.
        return min(self.waiting.patience, round(total * (self.resolution / self._weight)) / self.resolution)

    def wait(self, bucket: int) -> int:
        """Return the cost of waiting in an age bucket, without priority."""
        return self.scale.wait(bucket)

    @property
    def fair_step(self) -> int:
        """Price of one task that waits below its share, and of a step of a ladder."""
        return self.scale.fair_step

    def stay(self, bucket: int) -> int:
        """Return the discount of a running task in its place, by the age bucket of its run."""
        return self.scale.stay(bucket)

    def stays(self, buckets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return `stay` for many runs."""
        return self.scale.stays(buckets)

    def levels(self, priorities: Sequence[int]) -> dict[int, int]:
        """Return the part of the cost of waiting for each of the priorities in use."""
        levels = np.array(sorted(priorities), np.int64)
        outweigh = self.scale.level(None if self.fairness is None else self.fairness.rungs)
        if outweigh * (1 + len(levels)) >= _MOST:
            raise CostRangeError(
                f"Policy: {len(levels)} priorities a step of {outweigh} apart are too much for exact arithmetic: smaller moves "
                f"({self.moves}) or resolution ({self.resolution}) needed"
            )
        return dict(
            zip(levels.tolist(), self.priority(levels, outweigh, self.resolution * self.moves).tolist(), strict=True)
        )


def _cluster(cluster: Cluster) -> Cluster:
    if not isinstance(cluster, Cluster):
        raise InputError(f"cluster: a Cluster expected (`Scheduler.cluster`), got {quoted(cluster)}")
    return cluster


_NAMED: dict[str, Callable[[], Policy]] = {
    "spread": Policy,
    "pack": lambda: Policy(placement=(LoadCost("pack"), DeviceCost())),
    "spread-no-preemption": lambda: Policy(preemption=None),
    "pack-no-preemption": lambda: Policy(placement=(LoadCost("pack"), DeviceCost()), preemption=None),
    "weighted": lambda: Policy(priority=WeightedPriority(step=50.0)),
    "local": lambda: Policy(locality=Locality()),
    "shares": lambda: Policy(fairness=Fairness(DRF(), over="user", reclaim=True)),
}
