"""Min-cost flow of one problem: arrays in, result out."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import flowsched._ns as _ns
from flowsched.network.arguments import EMPTY, checked_options, integers, lower_bounds
from flowsched.network.flow_network import FlowNetwork
from flowsched.network.results import INF, FlowResult, Int64Array

__all__ = ["min_cost_flow"]

_BULK = 600_000
"""Arcs from which a problem may be left to `repair`: the simplex looks at sqrt(arcs) of them for a pivot."""


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
        bulk = _BULK if algorithm == "auto" else INF
        result = _by_simplex(tail, head, capacity, cost, supply, lower, seconds, bulk)
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
    bulk: int,
) -> FlowResult | None:
    """Solve by the simplex without building a network; None if the simplex declines the problem, or there is no optimum.

    It declines an easy problem of at least `bulk` arcs.
    """
    start = perf_counter()
    supplies = np.atleast_1d(integers("supply", supply))
    n = len(supplies)
    tails = _ids("tail", tail, None, n)
    m = len(tails)
    heads = _ids("head", head, m, n)
    lowers = lower_bounds(0 if lower is None else lower, m)
    costs, capacities = integers("cost", cost, m), integers("capacity", capacity, m)
    if not 0 < m < 2**30 - 2 or n >= 2**30 - 2 or tails.dtype != np.int32 or heads.dtype != np.int32 or supplies.sum():
        return None
    status, flow, potential, stats = _ns.solve(
        tails, heads, capacities, costs, supplies, lowers, time_limit, EMPTY, EMPTY, bulk=bulk
    )
    if status != _ns.OK:
        return None
    stats |= dict.fromkeys(("pushes", "relabels", "augmentations"), 0)  # the simplex makes none
    stats |= {"algorithm": "network_simplex", "warm": False, "gap": 0, "seconds": perf_counter() - start}
    return FlowResult(flow, _ns.total_cost(costs, flow), potential, stats)


def _ids(name: str, values: ArrayLike, size: int | None, count: int) -> NDArray[Any]:
    """Return node ids in 32 bits, or as they are if one of them is not below `count`; each is read once."""
    if (
        type(values) is np.ndarray
        and values.dtype == np.int64
        and values.ndim == 1
        and values.flags.c_contiguous
        and size in (None, len(values))
    ):
        ids: Int64Array = values
    else:
        ids = integers(name, values, size)
    narrow = _ns.narrowed(ids, count)
    return ids if narrow is None else narrow
