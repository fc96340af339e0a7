"""Proofs in exact arithmetic: of an optimum, of the costs for which it stays one, and that no flow meets the supplies.

Infeasibility.  Lower bounds are shipped first, which moves the supplies.  Then a maximum flow is sought: every cost is
0, and a slack takes the remaining supply at a cost of 1.  Consider the nodes whose distance from the slack, by the
potentials of that optimum, exceeds its cost.  The arcs that leave this set are full, and the arcs that enter it carry
their lower bounds.  All supply that is not shipped starts within it.  So it is a minimum cut, and proves the missing
amount.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

import flowsched.kernels.sensitivity as sensitivity
import flowsched.kernels.simplex as simplex
import flowsched.kernels.status as statuses
from flowsched.exceptions import InfeasibleError, InputError
from flowsched.network.arguments import integers
from flowsched.network.problem import FlowProblem
from flowsched.network.results import INF, FlowResult, Int64Array
from flowsched.network.slack import slack_arcs

__all__ = ["certify", "cost_range", "explained"]


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


def cost_range(
    problem: FlowProblem,
    arcs: Int64Array,
    chosen: Int64Array,
    flow: Int64Array,
    potential: Int64Array,
    supply: Int64Array | None,
) -> tuple[Int64Array, Int64Array]:
    """Return lowest and highest cost of the chosen ones of all arcs, by id; see `FlowNetwork.cost_range`.

    Raise InputError if the flow is not optimal, or does not meet the supplies, if these are given.
    """
    tail, head, capacity = problem.tail, problem.head, problem.capacity
    nodes = len(potential)
    reduced = problem.cost + potential[tail] - potential[head]
    forward = (flow < capacity) | (capacity >= INF)
    backward = flow > problem.lower
    wrong = (
        (forward & (reduced < 0)) | (backward & (reduced > 0)) | (~forward & (flow > capacity)) | (flow < problem.lower)
    )
    if wrong.any():
        raise InputError(
            f"arcs: the flow of arc {arcs[np.argmax(wrong)]} is not optimal for the present data; solve() first"
        )
    if supply is not None:
        sent = np.zeros(nodes, np.int64)
        np.add.at(sent, tail, flow)
        np.subtract.at(sent, head, flow)
        if (sent != supply).any():
            raise InputError("arcs: the flow does not meet the present supplies; solve() first")
    both = np.column_stack([np.where(forward, reduced, -1), np.where(backward, -reduced, -1)]).ravel()
    heads = np.column_stack([head, tail]).ravel().astype(np.int32)
    places = np.searchsorted(arcs, chosen).astype(np.int32)
    return sensitivity.ranges(nodes, heads, both, potential, places)


_NONE: Final = np.zeros(0, np.int64)
_MOST: Final = 2**30


def explained(
    error: InfeasibleError,
    nodes: Int64Array,
    supply: Int64Array,
    arcs: Int64Array,
    columns: tuple[Int64Array, Int64Array, Int64Array, Int64Array],
    names: Mapping[int, Hashable],
    time_limit: float,
) -> InfeasibleError:
    """Return an error with the missing amount and the arcs that bound it.

    The error has a valid cut by node id, which is kept where no better one is found within the time limit (in seconds;
    negative for none).  The columns are tail, head (node ids), capacity and lower bound of the arcs.  `names` has the
    names of nodes in the message, by id; other nodes appear by id.
    """
    count = int(nodes.max(initial=-1)) + 1
    total = sum(supply.tolist())
    if total:
        return InfeasibleError(f"the supplies sum to {total}, not to 0", error.cut[:count], abs(total))
    dense = np.zeros(count, np.int64)
    dense[nodes] = np.arange(len(nodes))
    tail, head, capacity, lower = columns
    tail, head = dense[tail], dense[head]
    inside = _minimum_cut(tail, head, capacity, lower, supply, time_limit)
    amounts = None if inside is None else _shortfall(inside, tail, head, capacity, lower, supply)
    if inside is None or amounts is None or amounts[0] <= 0:
        inside = error.cut[nodes]
        amounts = _shortfall(inside, tail, head, capacity, lower, supply)
    leaving = arcs[inside[tail] & ~inside[head]]
    cut = np.zeros(count, np.bool_)
    cut[nodes[inside]] = True
    return InfeasibleError(_words(nodes, inside, leaving, names, amounts), cut, amounts[0], leaving)


def _some(ids: Int64Array, names: Mapping[int, Hashable], most: int = 5) -> str:
    """Return the first few ids, or their names, as text."""
    shown = ", ".join(str(names.get(i, i)) for i in ids[:most].tolist())
    return shown if len(ids) <= most else f"{shown}, ..."


def _words(
    nodes: Int64Array,
    inside: NDArray[np.bool_],
    leaving: Int64Array,
    names: Mapping[int, Hashable],
    amounts: tuple[int, int, int],
) -> str:
    """Return the message: of the cut's nodes, or of the others if these are fewer."""
    short, need, room = amounts
    sends = 2 * int(inside.sum()) <= len(nodes)
    which = nodes[inside] if sends else nodes[~inside]
    whom = f"node {_some(which, names)}" if len(which) == 1 else f"{len(which)} nodes ({_some(which, names)})"
    them = "it" if len(which) == 1 else "them"
    what = f"{whom} must {'send' if sends else 'get'} {need} units"
    way = f"{'out of' if sends else 'into'} {them}"
    if len(leaving) == 0:
        bound = f"no arc leads {way}"
    elif len(leaving) == 1:
        bound = f"arc {leaving[0]}, the only one {way}, carries {room}"
    else:
        bound = f"the {len(leaving)} arcs {way} ({_some(leaving, {})}) carry {room}"
    return (
        f"no flow meets the supplies, {short} {'unit is' if short == 1 else 'units are'} missing: {what}, and {bound}"
    )


def _shortfall(
    inside: NDArray[np.bool_],
    tail: Int64Array,
    head: Int64Array,
    capacity: Int64Array,
    lower: Int64Array,
    supply: Int64Array,
) -> tuple[int, int, int]:
    """Return the shortfall of a set of nodes, the amount that it has to send, and the capacity of the arcs that leave it."""
    out, into = inside[tail] & ~inside[head], ~inside[tail] & inside[head]
    need = sum(supply[inside].tolist()) + sum(lower[into].tolist())
    room = sum(capacity[out].tolist())
    return need - room, need, room


def _minimum_cut(
    tail: Int64Array, head: Int64Array, capacity: Int64Array, lower: Int64Array, supply: Int64Array, time_limit: float
) -> NDArray[np.bool_] | None:
    """Return the nodes of a minimum cut; None if there was no time, or the numbers are too large."""
    n = len(supply)
    rest = supply.copy()
    np.subtract.at(rest, tail, lower)
    np.add.at(rest, head, lower)
    tails, heads, rooms = slack_arcs(np.arange(n), rest, n)
    m = len(tail) + len(tails)
    if m >= _MOST or n + 1 >= _MOST:
        return None
    cost = np.zeros(m, np.int64)
    cost[len(tail) : len(tail) + int((rest > 0).sum())] = 1
    status, _, potential, _ = simplex.solve(
        np.append(tail, tails).astype(np.int32), np.append(head, heads).astype(np.int32),
        np.append(np.where(capacity >= INF, INF, capacity - lower), rooms), cost, np.append(rest, 0), _NONE, time_limit, _NONE, _NONE,
    )  # fmt: skip
    if status != statuses.OK:
        return None
    inside: NDArray[np.bool_] = potential[:n] < potential[n]
    return inside
