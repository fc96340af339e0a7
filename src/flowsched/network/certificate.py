"""Proof of optimality, in exact arithmetic and without the solver."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flowsched.network.arguments import integers
from flowsched.network.results import INF, FlowResult

__all__ = ["certify"]


def certify(
    tail: ArrayLike,
    head: ArrayLike,
    capacity: ArrayLike,
    cost: ArrayLike,
    supply: ArrayLike,
    result: FlowResult,
    lower: ArrayLike | None = None,
) -> None:
    """Prove that a result is optimal: bounds, conservation, complementary slackness and the cost, in exact arithmetic.

    Parameters
    ----------
    tail, head, capacity, cost, supply, lower
        The problem, as for `min_cost_flow`.
    result : FlowResult

    Raises
    ------
    AssertionError
        At the first violated arc or node.
    """
    tails = integers("tail", tail)
    m = len(tails)
    heads = integers("head", head, m)
    capacities = integers("capacity", capacity, m)
    costs = integers("cost", cost, m).astype(object)
    supplies = integers("supply", supply)
    lowers = integers("lower", 0 if lower is None else lower, m)
    flow, p = result.flow, result.potential.astype(object)

    def require(holds: NDArray[np.bool_], what: str) -> None:
        if not holds.all():
            raise AssertionError(what.format(int(np.argmin(holds))))

    require(lowers <= flow, "arc {}: flow below its lower bound")
    require((flow <= capacities) | (capacities >= INF), "arc {}: flow above its capacity")
    balance = supplies.astype(object)
    np.subtract.at(balance, tails, flow.astype(object))
    np.add.at(balance, heads, flow.astype(object))
    require((balance == 0).astype(bool), "node {}: what arrives and is supplied is not what leaves")
    reduced = costs + p[tails] - p[heads]
    require(
        (reduced >= 0).astype(bool) | ((flow >= capacities) & (capacities < INF)),
        "arc {}: residual, with a negative reduced cost",
    )
    require((reduced <= 0).astype(bool) | (flow <= lowers), "arc {}: has flow, with a positive reduced cost")
    if int((costs * flow).sum()) != result.cost:
        raise AssertionError(f"the cost is {int((costs * flow).sum())}, not {result.cost}")
