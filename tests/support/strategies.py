"""Hypothesis strategies for flow problems, and larger random problems from a seed."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from flowsched.network import INF
from flowsched.network.problem import FlowProblem

SCALES = (1, 3, 100, 10**6, 10**12)


@st.composite
def feasible_problems(draw, max_nodes: int = 7, max_arcs: int = 18, unlimited: bool = True) -> FlowProblem:
    """Problems that have a flow: it is drawn first, the bounds around it and the supplies from it.

    They may still have no minimum, through an unlimited negative cycle.
    """
    nodes = draw(st.integers(1, max_nodes))
    scale, cost_scale = draw(st.sampled_from((1, 3, 10**6))), draw(st.sampled_from(SCALES))
    end = st.integers(0, nodes - 1)
    amount = st.one_of(st.just(0), st.integers(0, 3 * scale))
    arc = st.tuples(end, end, amount, amount, st.integers(0, 3 * scale), st.integers(-cost_scale, 2 * cost_scale))
    arcs = draw(st.lists(arc, max_size=max_arcs))
    endless = draw(st.sets(st.integers(0, max_arcs), max_size=4)) if unlimited else set()
    supply = np.zeros(nodes, np.int64)
    table = []
    for index, (tail, head, lower, more, slack, cost) in enumerate(arcs):
        supply[tail] += lower + more
        supply[head] -= lower + more
        capacity = INF if index in endless else lower + more + slack
        table.append((tail, head, capacity, cost, lower))
    tail, head, capacity, cost, lower = np.array(table, np.int64).reshape(-1, 5).T
    return FlowProblem(tail, head, capacity, cost, supply, lower)


@st.composite
def any_problems(draw, max_nodes: int = 7, max_arcs: int = 18) -> FlowProblem:
    """Problems of every kind: most have no flow, some not even balanced supplies."""
    nodes = draw(st.integers(1, max_nodes))
    scale, cost_scale = draw(st.sampled_from((1, 3, 10**6))), draw(st.sampled_from(SCALES))
    end = st.integers(0, nodes - 1)
    capacity = st.one_of(st.integers(0, 4 * scale), st.just(INF))
    lower = st.one_of(st.just(0), st.just(0), st.integers(0, scale))
    arc = st.tuples(end, end, capacity, lower, st.integers(-cost_scale, 3 * cost_scale))
    arcs = draw(st.lists(arc, max_size=max_arcs))
    supply = draw(st.lists(st.integers(-2 * scale, 2 * scale), min_size=nodes, max_size=nodes))
    if draw(st.integers(0, 9)) > 0:
        supply[-1] = -sum(supply[:-1])
    table = [(tail, head, max(capacity, lower), cost, lower) for tail, head, capacity, lower, cost in arcs]
    tail, head, capacity, cost, lower = np.array(table, np.int64).reshape(-1, 5).T
    return FlowProblem(tail, head, capacity, cost, np.array(supply, np.int64), lower)


def tiny_problems() -> st.SearchStrategy[FlowProblem]:
    """Problems that brute force can judge."""

    def build(nodes, arcs, supply):
        table = [(t % nodes, h % nodes, low + room, cost, low) for t, h, low, room, cost in arcs]
        tail, head, capacity, cost, lower = np.array(table, np.int64).reshape(-1, 5).T
        values = np.array(supply[: nodes - 1], np.int64)
        return FlowProblem(tail, head, capacity, cost, np.append(values, -values.sum()), lower)

    arc = st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 1), st.integers(0, 2), st.integers(-4, 6))
    return st.builds(
        build, st.integers(2, 4), st.lists(arc, max_size=6), st.lists(st.integers(-2, 2), min_size=3, max_size=3)
    )


def random_problem(
    rng: np.random.Generator,
    nodes: int,
    arcs: int,
    *,
    max_cost: int = 100,
    max_flow: int = 5,
    negative: float = 0.2,
    lower: float = 0.2,
    unlimited: float = 0.1,
) -> FlowProblem:
    """Return a feasible and bounded problem of any size, around a witness flow.

    ``negative``, ``lower`` and ``unlimited`` are the shares of arcs with a negative cost, a lower bound and no limit
    (these never cost less than 0, so that a minimum exists).
    """
    tail, head = rng.integers(0, nodes, (2, arcs))
    flow = rng.integers(0, max_flow + 1, arcs) * (rng.random(arcs) < 0.5)
    low = np.where(rng.random(arcs) < lower, flow - rng.integers(0, flow + 1), 0)
    cost = rng.integers(0, max_cost + 1, arcs) * np.where(rng.random(arcs) < negative, -1, 1)
    capacity = flow + rng.integers(0, max_flow + 1, arcs)
    capacity = np.where((rng.random(arcs) < unlimited) & (cost >= 0), INF, capacity)
    supply = np.bincount(tail, flow, nodes) - np.bincount(head, flow, nodes)
    return FlowProblem(tail, head, capacity, cost, supply.astype(np.int64), low)
