"""Min-cost flow of one problem: arrays in, result out."""

from __future__ import annotations

from time import perf_counter
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

import flowsched.kernels.reduction as reduction
import flowsched.kernels.scaling as scaling
import flowsched.kernels.simplex as simplex
import flowsched.kernels.status as statuses
from flowsched.exceptions import InfeasibleError, InputError, TimeLimitError
from flowsched.network.arguments import (
    EMPTY,
    capacities,
    checked_options,
    common_size,
    integers,
    lower_bounds,
    supply_vector,
)
from flowsched.network.flow_network import FlowNetwork
from flowsched.network.results import INF, Algorithm, FlowResult, Int64Array
from flowsched.network.slack import price_of, slack_arcs

__all__ = ["min_cost_flow"]

BULK: Final = 600_000
"""Arcs from which a problem may be left to `repair`: the simplex looks at sqrt(arcs) of them for a pivot."""

MOST_LATE: Final = 10_000
"""Number of arcs of a network that is built and gets a feasible flow in some milliseconds after the time limit."""


def min_cost_flow(
    tail: ArrayLike,
    head: ArrayLike,
    capacity: ArrayLike,
    cost: ArrayLike,
    supply: ArrayLike,
    *,
    lower: ArrayLike | None = None,
    algorithm: Algorithm = "auto",
    time_limit: float | None = None,
    partial: bool = False,
) -> FlowResult:
    """Solve one min-cost flow problem.

    Parameters
    ----------
    tail, head : array of int, shape (m,), or int
        Node ids 0..n-1; parallel arcs and self-loops are allowed.
    capacity, cost : array of int, shape (m,), or int
        Capacity may be `INF`, or infinite; costs may be negative.
    supply : array of int, shape (n,)
        > 0 sends, < 0 receives; sums to 0.
    lower : array of int, shape (m,), or int, optional
        Lower bounds of the flow, 0 by default.
    algorithm, time_limit, partial
        As in `FlowNetwork.solve`.

    Raises
    ------
    InputError
        Names the argument and the index.
    InfeasibleError, UnboundedError, TimeLimitError, CostRangeError
        As in `FlowNetwork.solve`; here the ids in ``cut``, ``arcs`` and ``cycle`` are those of the arrays given.

    Examples
    --------
    >>> import flowsched as fs
    >>> result = fs.min_cost_flow([0, 0, 1], [1, 2, 2], [4, 2, 3], [1, 5, 1], [4, 0, -4])
    >>> result.cost, result.flow
    (11, array([3, 1, 3]))
    """
    start = perf_counter()
    _, seconds = checked_options(algorithm, time_limit)
    if partial:
        return _partial(tail, head, capacity, cost, supply, lower, algorithm, time_limit)
    if algorithm != "repair":
        result = _whole(tail, head, capacity, cost, supply, lower, algorithm, seconds)
        if result:
            return result
    if time_limit is not None:
        time_limit = max(seconds - (perf_counter() - start), 0.0)
    network = FlowNetwork()
    network.add_nodes(supply_vector(supply))
    arcs = network.add_arcs(tail, head, capacity, cost, 0 if lower is None else lower)
    solution = network.solve(algorithm=algorithm, time_limit=time_limit)
    return FlowResult(network.flow(arcs), solution.cost, network.potential(), solution.stats)


def _partial(
    tail: ArrayLike,
    head: ArrayLike,
    capacity: ArrayLike,
    cost: ArrayLike,
    supply: ArrayLike,
    lower: ArrayLike | None,
    algorithm: Algorithm,
    time_limit: float | None,
) -> FlowResult:
    """Ship as much as fits: solve with a priced slack, which is taken out of the result again."""
    supplies = supply_vector(supply)
    n, m = len(supplies), common_size(tail, head, capacity, cost, 0 if lower is None else lower)
    tails, heads, costs = integers("tail", tail, m), integers("head", head, m), integers("cost", cost, m)
    for name, ids in (("tail", tails), ("head", heads)):
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < n:
            i = int(np.argmax((ids < 0) | (ids >= n)))
            raise InputError(f"{name}[{i}]: no node {ids[i]}; ids are 0..{n - 1}")
    price = price_of(n, max(int(costs.max(initial=0)), -int(costs.min(initial=0))))
    more_tails, more_heads, more_rooms = slack_arcs(np.arange(n), supplies, n)
    gives = int((supplies > 0).sum())
    slack = np.zeros(len(more_tails), np.int64)
    slack[:gives] = price
    try:
        result = min_cost_flow(
            np.append(tails, more_tails), np.append(heads, more_heads), np.append(capacities("capacity", capacity, m), more_rooms),
            np.append(costs, slack), np.append(supplies, -int(supplies.sum())),
            lower=None if lower is None else np.append(integers("lower", lower, m), np.zeros_like(slack)),
            algorithm=algorithm, time_limit=time_limit,
        )  # fmt: skip
    except InfeasibleError as error:
        message = error.args[0].replace("the supplies", "the lower bounds")
        raise InfeasibleError(message, error.cut[:n], error.shortfall, error.arcs[error.arcs < m]) from None
    unshipped = np.zeros(n, np.int64)
    unshipped[more_tails[:gives]] = result.flow[m : m + gives]
    unshipped[more_heads[gives:]] = -result.flow[m + gives :]
    kept = price * sum(result.flow[m : m + gives].tolist())
    return FlowResult(result.flow[:m], result.cost - kept, result.potential[:n], result.stats, unshipped)


def _whole(
    tail: ArrayLike,
    head: ArrayLike,
    capacity: ArrayLike,
    cost: ArrayLike,
    supply: ArrayLike,
    lower: ArrayLike | None,
    algorithm: Algorithm,
    time_limit: float,
) -> FlowResult | None:
    """Solve by a kernel for whole networks without building one; None if it declines the problem, or has no answer.

    For ``auto`` the simplex declines an easy problem of at least `BULK` arcs.
    """
    start = perf_counter()
    supplies = supply_vector(supply)
    n, m = len(supplies), common_size(tail, head, capacity, cost, 0 if lower is None else lower)
    tails, heads = _ids("tail", tail, m, n), _ids("head", head, m, n)
    lowers = lower_bounds(0 if lower is None else lower, m)
    costs, rooms = integers("cost", cost, m), capacities("capacity", capacity, m)
    if not 0 < m < 2**30 - 2 or n >= 2**30 - 2 or tails.dtype != np.int32 or heads.dtype != np.int32 or supplies.sum():
        return None
    columns = (tails, heads, rooms, costs, supplies, lowers, time_limit, EMPTY, EMPTY)
    if algorithm == "cost_scaling":
        if rooms.min() < 0 or (len(lowers) and (lowers.min() < 0 or (lowers > rooms).any())):
            return None
        status, flow, potential, stats = scaling.Scaling(*columns[:6], EMPTY, EMPTY).solve(0, 0, time_limit)
    else:
        bulk = BULK if algorithm == "auto" else INF
        status, flow, potential, stats = simplex.solve(*columns, simplex.STARTS["joined"], bulk)
        if status == statuses.JOINED:
            left = time_limit if time_limit < 0 else max(time_limit - (perf_counter() - start), 0.0)
            status, flow, potential, stats = _solve_reduced(reduction.Reduction(*columns[:6]), lowers, left, bulk)
        algorithm = "network_simplex"
    late = status == statuses.LATE
    if late and stats["gap"] is None:
        flow = None
    if late and flow is None and m > MOST_LATE:
        raise TimeLimitError("the time limit passed before any feasible flow was known")
    if flow is None or not (late or status == statuses.OK):
        return None
    stats = dict.fromkeys(("pushes", "relabels", "augmentations"), 0) | stats  # the simplex makes none
    stats |= {"algorithm": algorithm, "warm": False, "seconds": perf_counter() - start}
    return FlowResult(flow, simplex.total_cost(costs, flow), potential, stats)


def _ids(name: str, values: ArrayLike, size: int, count: int) -> NDArray[Any]:
    """Return node ids in 32 bits, or as they are if one of them is not below `count`; each is read once."""
    if (
        type(values) is np.ndarray
        and values.dtype == np.int64
        and values.ndim == 1
        and values.flags.c_contiguous
        and len(values) == size
    ):
        ids: Int64Array = values
    else:
        ids = integers(name, values, size)
    narrow = simplex.narrowed(ids, count)
    return ids if narrow is None else narrow


def _solve_reduced(
    whole: reduction.Reduction, lower: Int64Array, time_limit: float, bulk: int
) -> tuple[int, Any, Any, dict[str, Any]]:
    """Solve a problem that `simplex.solve` has left to its caller (JOINED), with the same result; only flows and potentials."""
    entry, slots, rooms, supplies, flow, potential = whole.reduced()
    nodes, arcs = supplies != INF, np.flatnonzero(entry == -1)
    number, left = np.cumsum(nodes, dtype=np.int32) - 1, slots[arcs]
    ends, costs = (number[left["tail"]], number[left["head"]]), left["cost"].copy()
    status, found, proof, stats = simplex.solve(
        *ends, rooms[arcs], costs, supplies[nodes], EMPTY, time_limit, EMPTY, EMPTY, simplex.STARTS["any"], bulk
    )
    if proof is None:
        return status, None, None, stats
    flow[arcs] = found
    potential[nodes] = proof
    whole.restored()
    if len(lower):
        flow += lower
    return status, flow, potential, stats
