"""Independent judges of a minimum-cost flow: other solvers, brute force, and certificates in Python integers.

Nothing here uses flowsched's solver.  `optimum` gives the one answer that flowsched must give; the ``check_*``
functions raise AssertionError with the first thing that is wrong.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import networkx as nx
import numpy as np
from ortools.graph.python import min_cost_flow as ortools_mcf

from flowsched.network import INF
from flowsched.network.problem import FlowProblem

OPTIMAL, INFEASIBLE, UNBOUNDED = "optimal", "infeasible", "unbounded"


@dataclass(frozen=True)
class Answer:
    """Result of an oracle: a status, and the cost where there is one."""

    status: str
    cost: int | None = None


def rows(problem: FlowProblem) -> list[tuple[int, int, int, int, int]]:
    """Return the arcs as Python integers: tail, head, lower, capacity, cost."""
    columns = (problem.tail, problem.head, problem.lower, problem.capacity, problem.cost)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def finite(problem: FlowProblem) -> FlowProblem:
    """Replace infinite capacities by capacities that an existing optimum never exceeds.

    Some optimum is a sum of paths from supplies to demands and of cycles through an arc of finite capacity each.
    """
    unlimited = problem.capacity >= INF
    limited = problem.capacity[~unlimited].sum() + problem.lower.sum() + np.abs(problem.supply).sum()
    return replace(problem, capacity=np.where(unlimited, limited + 1, problem.capacity))


def shifted(problem: FlowProblem) -> tuple[FlowProblem, int]:
    """Return an equal problem without lower bounds and self-loops, and the cost that was taken out of it."""
    fixed = 0
    supply = problem.supply.tolist()
    arcs = []
    for tail, head, lower, capacity, cost in rows(problem):
        if tail == head:
            fixed += cost * (capacity if cost < 0 else lower)
            continue
        fixed += cost * lower
        supply[tail] -= lower
        supply[head] += lower
        arcs.append((tail, head, capacity - lower, cost))
    tail, head, capacity, cost = np.array(arcs, np.int64).reshape(-1, 4).T
    return FlowProblem(tail, head, capacity, cost, np.array(supply, np.int64)), fixed


def negative_unlimited_cycle(problem: FlowProblem) -> bool:
    """Bellman-Ford over the arcs without limit: does a negative cycle exist?"""
    arcs = [(tail, head, cost) for tail, head, _, capacity, cost in rows(problem) if capacity >= INF]
    distance = [0] * len(problem.supply)
    for _ in range(len(distance) + 1):
        changed = False
        for tail, head, cost in arcs:
            if distance[tail] + cost < distance[head]:
                distance[head] = distance[tail] + cost
                changed = True
        if not changed:
            return False
    return True


def ortools(problem: FlowProblem) -> Answer:
    """OR-tools' cost scaling, over the problem without lower bounds, self-loops and infinite capacities."""
    if int(problem.supply.sum()) != 0:
        return Answer(INFEASIBLE)
    plain, fixed = shifted(finite(problem))
    solver = ortools_mcf.SimpleMinCostFlow()
    if len(plain.tail):
        solver.add_arcs_with_capacity_and_unit_cost(plain.tail, plain.head, plain.capacity, plain.cost)
    nodes = np.arange(len(plain.supply))
    solver.set_nodes_supplies(nodes, plain.supply)
    status = solver.solve()
    if status == solver.OPTIMAL:
        # its optimal_cost() is a 64-bit number; this sum is exact
        flows = solver.flows(np.arange(len(plain.tail))).tolist() if len(plain.tail) else []
        return Answer(OPTIMAL, fixed + sum(f * c for f, c in zip(flows, plain.cost.tolist(), strict=True)))
    assert status == solver.INFEASIBLE, f"OR-tools cannot judge this instance: {status}"
    return Answer(INFEASIBLE)


def networkx(problem: FlowProblem, method: str = "network_simplex") -> Answer:
    """NetworkX, in Python integers, by ``network_simplex`` or ``capacity_scaling``."""
    plain, fixed = shifted(finite(problem))
    if not plain.capacity.any():  # capacity_scaling overlooks supplies where no arc has room
        return Answer(INFEASIBLE) if plain.supply.any() else Answer(OPTIMAL, fixed)
    graph = nx.MultiDiGraph()
    graph.add_nodes_from((node, {"demand": -supply}) for node, supply in enumerate(plain.supply.tolist()))
    for tail, head, _, capacity, cost in rows(plain):
        graph.add_edge(tail, head, capacity=capacity, weight=cost)
    try:
        cost, _ = getattr(nx, method)(graph)
    except nx.NetworkXUnfeasible:
        return Answer(INFEASIBLE)
    return Answer(OPTIMAL, fixed + int(cost))


def brute_force(problem: FlowProblem) -> Answer:
    """Try every integral flow; for a handful of arcs of small capacity."""
    arcs = rows(problem)
    best = None
    for flow in itertools.product(*(range(lower, capacity + 1) for _, _, lower, capacity, _ in arcs)):
        excess = problem.supply.tolist()
        for (tail, head, *_), value in zip(arcs, flow, strict=True):
            excess[tail] -= value
            excess[head] += value
        if not any(excess):
            cost = sum(arc[4] * value for arc, value in zip(arcs, flow, strict=True))
            best = cost if best is None else min(best, cost)
    return Answer(INFEASIBLE) if best is None else Answer(OPTIMAL, best)


def optimum(problem: FlowProblem, oracle=ortools) -> Answer:
    """Return the answer of ``oracle``, which need not know of unlimited cycles.

    A problem that has an unlimited negative cycle and no feasible flow either is INFEASIBLE here.
    """
    answer = oracle(problem)
    if answer.status == OPTIMAL and negative_unlimited_cycle(problem):
        return Answer(UNBOUNDED)
    return answer


def check_flow(problem: FlowProblem, flow, cost: int) -> None:
    """Bounds, conservation and the cost of a flow."""
    flow = [int(value) for value in flow]
    arcs = rows(problem)
    assert len(flow) == len(arcs)
    excess = problem.supply.tolist()
    for arc, ((tail, head, lower, capacity, _), value) in enumerate(zip(arcs, flow, strict=True)):
        assert lower <= value <= capacity, f"arc {arc} carries {value}, bounds [{lower}, {capacity}]"
        excess[tail] -= value
        excess[head] += value
    assert not any(excess), f"node {next(i for i, e in enumerate(excess) if e)} does not conserve flow: {excess}"
    assert type(cost) is int
    assert cost == sum(arc[4] * value for arc, value in zip(arcs, flow, strict=True))


def check_optimal(problem: FlowProblem, flow, cost: int, potential) -> None:
    """The flow is feasible and its reduced costs ``c + p[tail] - p[head]`` prove it optimal."""
    check_flow(problem, flow, cost)
    price = [int(value) for value in potential]
    assert len(price) == len(problem.supply)
    for arc, ((tail, head, lower, capacity, unit), value) in enumerate(
        zip(rows(problem), (int(v) for v in flow), strict=True)
    ):
        reduced = unit + price[tail] - price[head]
        assert value == capacity or reduced >= 0, f"arc {arc} has room at reduced cost {reduced}"
        assert value == lower or reduced <= 0, f"arc {arc} carries flow at reduced cost {reduced}"


def check_cut(problem: FlowProblem, cut) -> None:
    """The nodes of ``cut`` must send more than can leave them: no flow exists.

    An empty cut claims that the supplies sum to less than zero.
    """
    cut = np.asarray(cut)
    assert cut.dtype == np.bool_
    assert cut.shape == problem.supply.shape
    if not cut.any():
        assert sum(problem.supply.tolist()) < 0, "an empty cut, and the supplies do not sum to less than zero"
        return
    must_leave = sum(problem.supply[cut].tolist())
    for tail, head, lower, capacity, _ in rows(problem):
        if cut[head] and not cut[tail]:
            must_leave += lower
        if cut[tail] and not cut[head]:
            assert capacity < INF, f"arc {tail} -> {head} leaves the cut without limit"
            must_leave -= capacity
    assert must_leave > 0, f"the cut {np.flatnonzero(cut).tolist()} can send {-must_leave} more than it must"


def check_cycle(problem: FlowProblem, cycle) -> None:
    """The arcs of ``cycle`` form one cycle of negative cost without limit."""
    arcs = rows(problem)
    cycle = [int(arc) for arc in cycle]
    assert cycle, "an empty cycle"
    for arc, following in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
        assert arcs[arc][1] == arcs[following][0], f"arc {following} does not start where arc {arc} ends"
        assert arcs[arc][3] >= INF, f"arc {arc} has capacity {arcs[arc][3]}"
    cost = sum(arcs[arc][4] for arc in cycle)
    assert cost < 0, f"the cycle costs {cost}"
