"""Least cost as a function of one number: of the amount that is shipped, or of the capacity of an arc.

Both functions are convex and piecewise linear, with breaks at integers (R. K. Ahuja, T. L. Magnanti and J. B. Orlin, Network Flows, 1993, section 9.11 and exercises).
So the intersection of two tangents is the next point to evaluate: either the function lies on both, which is a break, or below a piece yet unknown.
Every value is a warm solve of a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import SupportsIndex

from flowsched.exceptions import InfeasibleError, InputError
from flowsched.network.flow_network import FlowNetwork

__all__ = ["cost_by_amount", "cost_by_capacity"]

_MOST = 2**59


def cost_by_amount(net: FlowNetwork, source: int, target: int, most: SupportsIndex) -> list[tuple[int, int]]:
    """Least cost as a function of the amount that is shipped from one node to another, on top of all supplies.

    Parameters
    ----------
    net : FlowNetwork
        It stays as it is.
    source, target : int
        Node ids.
    most : int
        Largest amount of interest.

    Returns
    -------
    list of (amount, cost)
        The breaks of the function, both ends included: from amount 0 to `most`, or to as much as fits.  Between two of them it is linear.

    Raises
    ------
    InfeasibleError, UnboundedError, CostRangeError
        As in `FlowNetwork.solve`: the supplies as they are cannot be shipped, for example.
    InputError
        `most` is negative or too large, or a node is not there.

    Notes
    -----
    Some three warm solves for each break.

    Examples
    --------
    >>> net = FlowNetwork.from_edges([("a", "b", 2, 1), ("a", "b", 3, 4), ("a", "b", 1, 9)])
    >>> cost_by_amount(net, 0, 1, 10)
    [(0, 0), (2, 2), (5, 14), (6, 23)]
    """
    most = _checked(most, 0)
    if source == target:
        raise InputError(f"target: another node than the source expected, got {target}")
    trial = net.copy()
    ends = [source, target]
    gives, takes = trial.supply(ends).tolist()

    def cost(amount: int) -> int:
        trial.set_supply(ends, [gives + amount, takes - amount])
        return trial.solve().cost

    cost(0)
    try:
        cost(most)
    except InfeasibleError as error:
        most -= error.shortfall
    return _breaks(cost, 0, most)


def cost_by_capacity(net: FlowNetwork, arc: int, most: SupportsIndex) -> list[tuple[int, int]]:
    """Least cost as a function of an arc's capacity.

    Parameters
    ----------
    net : FlowNetwork
        It stays as it is.
    arc : int
        Arc id.
    most : int
        Largest capacity of interest.

    Returns
    -------
    list of (capacity, cost)
        The breaks of the function, both ends included: from the least capacity for which there is a flow to `most`.  Between two of them it is linear.

    Raises
    ------
    InfeasibleError, UnboundedError, CostRangeError
        As in `FlowNetwork.solve`, with the capacity `most`.
    InputError
        `most` is below the lower bound or too large, or the arc is not there.

    Examples
    --------
    >>> net = FlowNetwork.from_edges([("a", "b", 2, 1), ("a", "b", 3, 4)], supply={"a": 4, "b": -4})
    >>> cost_by_capacity(net, 0, 9)
    [(1, 13), (4, 4), (9, 4)]
    """
    least = int(net.lower(arc)[0])
    most = _checked(most, least)
    trial = net.copy()

    def cost(capacity: int) -> int:
        trial.set_capacity(arc, capacity)
        return trial.solve().cost

    cost(most)
    try:
        cost(least)
    except InfeasibleError as error:
        least += error.shortfall  # each unit of room lets one more through, until all fits
    return _breaks(cost, least, most)


def _checked(most: SupportsIndex, least: int) -> int:
    try:
        number = most.__index__()
    except AttributeError:
        raise InputError(f"most: an integer expected, got {most!r:.80}") from None
    if not least <= number < _MOST:
        raise InputError(f"most: {least} to 2**59 - 1 expected, got {number}")
    return number


def _breaks(function: Callable[[int], int], least: int, most: int) -> list[tuple[int, int]]:
    """Return the breaks of a convex function that is linear between them, by tangents at the ends of intervals."""
    known: dict[int, int] = {}

    def value(x: int) -> int:
        if x not in known:
            known[x] = function(x)
        return known[x]

    found = {least, most}
    intervals = [(least, most)]
    while intervals:
        low, high = intervals.pop()
        if high - low < 2:
            continue
        left, right = value(low + 1) - value(low), value(high) - value(high - 1)
        if left == right:
            continue
        meet = (value(high) - value(low) + left * low - right * high) // (left - right)
        middle = min(max(meet, low + 1), high - 1)
        found.add(middle)
        intervals += [(low, middle), (middle, high)]
    points = [(x, value(x)) for x in sorted(found)]
    bent = [
        here
        for before, here, after in zip(points, points[1:], points[2:], strict=False)
        if (here[1] - before[1]) * (after[0] - here[0]) != (after[1] - here[1]) * (here[0] - before[0])
    ]
    return sorted({points[0], *bent, points[-1]})
