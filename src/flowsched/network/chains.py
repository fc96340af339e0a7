"""Nodes that only pass flow on are taken out before a solve: those without supply that have one arc in and one arc out.

Such a node joins its arcs *in series*: the arc that came in stays, with the sum of both costs and the smaller capacity.
Where that makes an arc beside another one of the same ends and cost, the two are joined *in parallel*, and their ends
may have one arc in and one out by now.  So a machine with its cores and threads shrinks to an arc, instead of many
potentials that a pivot would move.

The joins are undone in reverse.  In series both arcs carry what the joined one does; its reduced cost goes to the
narrower one, which is full if the joined one is, and the other one gets 0.  In parallel one arc is filled before the
other.  So an optimum stays one, and the gap of any flow stays as it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import flowsched._ns as _ns
from flowsched.network.arguments import EMPTY
from flowsched.network.results import INF, Int64Array

__all__ = ["solve_joined"]


def solve_joined(simplex: _ns.Simplex, lower: Int64Array, time_limit: float, bulk: int) -> tuple[int, Any, Any, Any]:
    """Solve what `_ns.solve` has left to its caller (JOINED), and return what it returns; only flows and potentials."""
    joined, slots, rooms, supplies, flow, potential = simplex.joined()
    nodes, arcs = supplies != INF, np.flatnonzero(joined == -1)
    number, left = np.cumsum(nodes, dtype=np.int32) - 1, slots[arcs]
    ends, costs = (number[left["tail"]], number[left["head"]]), left["cost"].copy()
    status, found, proof, stats = _ns.solve(
        *ends, rooms[arcs], costs, supplies[nodes], EMPTY, time_limit, EMPTY, EMPTY, _ns.STARTS["any"], bulk
    )
    if proof is None:
        return status, None, None, stats
    flow[:] = 0
    flow[arcs] = found
    potential = potential[: len(nodes)]
    potential[nodes] = proof
    simplex.parted()
    if len(lower):
        flow += lower
    return status, flow, potential, stats
