"""Precedence of goals: the scales of a policy, derived from a cluster, and checked against it.

All goals are costs of one flow, so a higher goal takes precedence only as long as one step of it outweighs the sum of all
lower ones.  For one task its own costs decide (Sirius, section on priority: w_1 step > omega sum of w_i).  But to let one
task run, a flow may move others, each to a worse place, along a path that meets every machine at most once.  So the
amount to be outweighed grows with the number of machines, and `fitted` scales the steps by it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, Protocol, TypeVar

from flowsched.cluster import Cluster
from flowsched.exceptions import InputError
from flowsched.policy.fairness import Fairness
from flowsched.policy.placement import CustomCost, Locality
from flowsched.policy.priority import WaitCost
from flowsched.policy.utility import Utilities

__all__ = ["Goals", "Precedence", "check", "fitted"]


class Goals(Protocol):
    """Goals of a policy and their scales; `flowsched.policy.Policy` implements it."""

    @property
    def resolution(self) -> int: ...
    @property
    def moves(self) -> int: ...
    @property
    def waiting(self) -> WaitCost: ...
    @property
    def fairness(self) -> Fairness | None: ...
    @property
    def placement(self) -> Sequence[Any]: ...
    @property
    def locality(self) -> Locality | None: ...
    @property
    def rack_load(self) -> float: ...
    @property
    def fair_step(self) -> int: ...
    def levels(self, priorities: Sequence[int]) -> dict[int, int]: ...
    def stay(self, bucket: int) -> int: ...
    def wait(self, bucket: int) -> int: ...


_P = TypeVar("_P", bound=Goals)

_FINE = 0.01
"""Smallest relevant difference of a placement cost without its own, as a part of its range."""

_LEVELS = 100
"""Number of distinct levels of the least important placement cost."""

_LARGEST = 1 << 57
"""Upper bound of (nodes + 1) * cost, a quarter of the network's limit."""


@dataclass(frozen=True, slots=True)
class Precedence:
    """Comparison of one goal with a lower one.

    Parameters
    ----------
    goal, over : str
    step : float
        Smallest difference that the higher goal makes for one task, in units of the whole range of placement costs.
    reach : float
        Largest difference that the lower goal makes for one task, likewise.
    moves : int
        Number of tasks whose lower goal together one step of the higher goal outweighs.
    always : bool
        True if no more tasks than that can be affected in this cluster, so that the lower goal never overrides the higher.
    """

    goal: str
    over: str
    step: float
    reach: float
    moves: int
    always: bool


@dataclass(frozen=True, slots=True)
class _Goal:
    """Smallest and largest difference for one task, in the network's costs.

    `alone`: as a lower goal it is affected once for each task that gains by the higher one.  `beside` names a higher goal
    with which it is not compared.
    """

    name: str
    step: int
    reach: int
    alone: bool = False
    beside: str = ""


def check(policy: Goals, cluster: Cluster) -> list[Precedence]:
    """See `Policy.check`."""
    goals = _goals(policy, cluster)
    found = []
    for i, high in enumerate(goals):
        for low in goals[i + 1 :]:
            if low.beside != high.name:
                most = 1 if low.alone else _most_moves(cluster)
                moves = min(max(high.step - 1, 0) // max(low.reach, 1), most)
                step, reach = high.step / policy.resolution, low.reach / policy.resolution
                found.append(Precedence(high.name, low.name, step, reach, moves, moves == most))
    return found


def fitted(policy: _P, cluster: Cluster) -> _P:
    """See `Policy.fitted`."""
    moves = 1 << _most_moves(cluster).bit_length()
    while moves:
        scaled = _scaled(policy, cluster, moves)
        if scaled is not None and _largest(scaled, cluster) * _nodes(cluster) < _LARGEST:
            return scaled
        moves //= 2
    raise InputError("Policy: too many placement costs; they cannot be kept in order, each above all that follow it")


def _most_moves(cluster: Cluster) -> int:
    """Return the number of tasks that one step of a higher goal can move to worse places."""
    return max(1, min(len(cluster.machines), len(cluster.tasks)))


def _nodes(cluster: Cluster) -> int:
    """Return about twice the number of nodes of the network."""
    groups = sum(len(job.each_group()) for job in cluster.jobs.values())
    racks = len({record.rack for record in cluster.machines.values()}) + len(cluster.machines) // 64
    return 2 * (2 + len(cluster.machines) + 2 * groups + len(cluster.jobs) + len(cluster.by_class) * (1 + racks))


def _goals(policy: Goals, cluster: Cluster) -> list[_Goal]:
    """Return the goals from the highest to the lowest."""
    buckets, fairness = policy.waiting.buckets, policy.fairness
    in_use = sorted({cls.priority for cls in cluster.by_class.values() if cls.tasks})
    levels = list(policy.levels(in_use if len(in_use) > 1 else [0, 1]).values())
    goals = [_Goal("priority", min(a - b for a, b in itertools.pairwise(levels)), levels[0])]
    if fairness is not None:
        goals.append(_Goal("fairness", policy.fair_step, policy.fair_step * fairness.rungs))
    # A bound never stops a running task, and a better task takes the slot of a running one.
    goals.append(_Goal("running tasks go on", policy.stay(0), policy.stay(buckets - 1), alone=True, beside="fairness"))
    goals.append(_Goal("age", policy.wait(1) - policy.wait(0), policy.wait(buckets - 1) - policy.wait(0)))
    parts = _parts(policy)
    total = sum(weight for _, _, weight in parts)
    for name, cost, weight in parts:
        range_ = weight / total * policy.resolution
        goals.append(_Goal(name, math.floor(_least(cost, cluster) * range_), math.ceil(range_)))
    return goals


def _parts(policy: Goals) -> list[tuple[str, Any, float]]:
    """Return the placement costs, the most important first: name, cost, weight."""
    parts = [("locality", policy.locality, policy.locality.weight)] if policy.locality else []
    parts += [(_name(cost), cost, cost.weight) for cost in policy.placement]
    return parts + [("load of racks", None, policy.rack_load)] * (policy.rack_load > 0)


def _name(cost: Any) -> str:
    kind = getattr(cost, "kind", "")
    return f"{type(cost).__name__}({kind!r})" if kind else type(cost).__name__


def _least(cost: Any, cluster: Cluster) -> float:
    """Return the smallest difference between two places that matters, as a part of the cost's range."""
    least: Callable[[Cluster], float] | None = getattr(cost, "least", None)
    return _FINE if least is None else least(cluster)


def _scaled(policy: _P, cluster: Cluster, moves: int) -> _P | None:
    """Return the policy with steps that outweigh `moves`, and placement costs that outweigh all that follow; None if too fine."""
    parts = _parts(policy)
    weights: list[float] = []
    for _, cost, _ in reversed(parts):
        # One more than the moves, since costs are rounded to whole numbers.
        weights.insert(0, max(1.0, (moves + 1) * sum(weights) / _least(cost, cluster)))
    if _LEVELS * sum(weights) >= _LARGEST:
        return None
    total = sum(weights)
    locality = replace(policy.locality, weight=weights.pop(0)) if policy.locality else None
    rack_load = weights.pop() if policy.rack_load else 0.0
    placement = tuple(_weighted(cost, weight) for cost, weight in zip(policy.placement, weights, strict=True))
    needs = [cost.needs(cost.weight / total) for cost in placement if isinstance(cost, Utilities)]
    resolution = max(policy.resolution, math.ceil(_LEVELS * total), *needs)
    known: Any = policy
    scaled: _P = replace(
        known, placement=placement, locality=locality, resolution=resolution, moves=moves, rack_load=rack_load
    )
    return scaled


def _weighted(cost: Any, weight: float) -> Any:
    known: Any = cost
    return replace(known, weight=weight) if is_dataclass(cost) else CustomCost(cost, weight)


def _largest(policy: Goals, cluster: Cluster) -> int:
    """Return an upper bound of the costs in the network, in Python's unlimited integers."""
    levels = len({cls.priority for cls in cluster.by_class.values()} | {0, 1})
    rungs = policy.fairness.rungs if policy.fairness is not None else 1
    last = policy.waiting.buckets
    level = policy.stay(last) + policy.fair_step * (1 + policy.moves * rungs)
    return levels * level + policy.wait(last) + policy.stay(last) + rungs * policy.fair_step
