"""Sensitivity of an optimum: for each arc the costs for which the present flow stays optimal."""

from __future__ import annotations

import numpy as np

import flowsched._sensitivity as _sensitivity
from flowsched.exceptions import InputError
from flowsched.network.problem import FlowProblem
from flowsched.network.results import INF, Int64Array

__all__ = ["cost_range"]


def cost_range(
    problem: FlowProblem,
    arcs: Int64Array,
    chosen: Int64Array,
    flow: Int64Array,
    potential: Int64Array,
    supply: Int64Array | None,
) -> tuple[Int64Array, Int64Array]:
    """Return lowest and highest cost of the chosen ones of all arcs, by id; see `FlowNetwork.cost_range`.

    Raises
    ------
    InputError
        The flow is not optimal, or does not meet the supplies, if these are given.
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
    leaves = np.column_stack([tail, head]).ravel()
    half = np.argsort(leaves, kind="stable").astype(np.int32)
    first = np.searchsorted(leaves[half], np.arange(nodes + 1)).astype(np.int32)
    places = np.searchsorted(arcs, chosen).astype(np.int32)
    return _sensitivity.ranges(first, half, heads, both, potential, places)
