"""Min-cost flow of one problem: arrays in, result out."""

from __future__ import annotations

from time import perf_counter
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

import flowsched._ns as _ns
from flowsched.exceptions import TimeLimitError
from flowsched.network.arguments import EMPTY, checked_options, integers, lower_bounds
from flowsched.network.flow_network import FlowNetwork
from flowsched.network.results import INF, FlowResult, Int64Array

__all__ = ["min_cost_flow"]

MOST_LATE: Final = 10_000
"""So many arcs make a network that is built and gets a feasible flow in some milliseconds, when time is up."""


def min_cost_flow(
    tail: ArrayLike,
    head: ArrayLike,
    capacity: ArrayLike,
    cost: ArrayLike,
    supply: ArrayLike,
    *,
    lower: ArrayLike | None = None,
    algorithm: str = "auto",
    time_limit: float | None = None,
) -> FlowResult:
    """Solve one min-cost flow problem.

    Parameters
    ----------
    tail, head : array of int, shape (m,)
        Node ids 0..n-1; parallel arcs and self-loops are allowed.
    capacity, cost : array of int, shape (m,), or int
        Capacity may be `INF`; costs may be negative.
    supply : array of int, shape (n,)
        > 0 sends, < 0 receives; sums to 0.
    lower : array of int, shape (m,), or int, optional
        Lower bounds of the flow, 0 by default.
    algorithm, time_limit
        As in `FlowNetwork.solve`.

    Returns
    -------
    FlowResult

    Raises
    ------
    InputError
        Names the argument and the index.
    InfeasibleError, UnboundedError, TimeLimitError, CostRangeError
        As in `FlowNetwork.solve`; here the ids in ``cut`` and ``cycle`` are those of the arrays given.

    Examples
    --------
    >>> import flowsched as fs
    >>> result = fs.min_cost_flow([0, 0, 1], [1, 2, 2], [4, 2, 3], [1, 5, 1], [4, 0, -4])
    >>> result.cost, result.flow
    (11, array([3, 1, 3]))
    """
    start = perf_counter()
    _, seconds = checked_options(algorithm, time_limit)
    if algorithm in ("auto", "network_simplex"):
        result = _by_simplex(tail, head, capacity, cost, supply, lower, seconds)
        if result:
            return result
    if time_limit is not None:
        time_limit = max(seconds - (perf_counter() - start), 0.0)
    network = FlowNetwork()
    network.add_nodes(np.atleast_1d(integers("supply", supply)))
    arcs = network.add_arcs(tail, head, capacity, cost, 0 if lower is None else lower)
    solution = network.solve(algorithm=algorithm, time_limit=time_limit)
    return FlowResult(network.flow(arcs), solution.cost, network.potential(), solution.stats)


def _by_simplex(
    tail: ArrayLike,
    head: ArrayLike,
    capacity: ArrayLike,
    cost: ArrayLike,
    supply: ArrayLike,
    lower: ArrayLike | None,
    time_limit: float,
) -> FlowResult | None:
    """Solve by the simplex without building a network; None if the simplex declines the problem, or has no answer."""
    start = perf_counter()
    supplies = np.atleast_1d(integers("supply", supply))
    n = len(supplies)
    tails = integers("tail", tail)
    m = len(tails)
    fits = 0 < m < 2**30 - 2 and n < 2**30 - 2 and _among(tails, n)
    tails32 = tails.astype(np.int32)
    del tails  # its memory serves again
    heads = integers("head", head, m)
    fits = fits and _among(heads, n)
    heads32 = heads.astype(np.int32)
    del heads
    lowers = lower_bounds(0 if lower is None else lower, m)
    costs, capacities = integers("cost", cost, m), integers("capacity", capacity, m)
    if not fits or supplies.sum() or capacities.min() < 0:
        return None
    if len(lowers) and (lowers.min() < 0 or (lowers > capacities).any()):
        return None
    np.minimum(capacities, INF, out=capacities)
    status, flow, potential, stats = _ns.solve(
        tails32, heads32, capacities, costs, supplies, lowers, time_limit, EMPTY, EMPTY
    )
    if status == _ns.LATE and flow is None and m > MOST_LATE:
        raise TimeLimitError("the time limit passed before any feasible flow was known")
    if flow is None or status not in (_ns.OK, _ns.LATE):
        return None
    stats |= dict.fromkeys(("pushes", "relabels", "augmentations"), 0)  # the simplex makes none
    stats |= {"algorithm": "network_simplex", "warm": False, "seconds": perf_counter() - start}
    return FlowResult(flow, _exact_cost(costs, flow), potential, stats)


def _among(ids: Int64Array, count: int) -> bool:
    return len(ids) == 0 or (int(ids.min()) >= 0 and int(ids.max()) < count)


def _exact_cost(cost: Int64Array, flow: Int64Array) -> int:
    """The sum of their products, of any size."""
    if float(np.abs(cost.astype(float)) @ flow.astype(float)) < 2.0**62:
        return int(cost @ flow)
    return int((cost.astype(object) * flow).sum())
