"""Nodes that only pass flow on are taken out before a solve: the answer is that of the whole network."""

from __future__ import annotations

import numpy as np
import oracles
import pytest
from effort import effort
from oracles import INFEASIBLE, OPTIMAL, UNBOUNDED
from strategies import random_problem

from bench.solver import general
from flowsched.exceptions import InfeasibleError, TimeLimitError, UnboundedError
from flowsched.network import INF, certify, min_cost_flow
from flowsched.network.problem import FlowProblem

CHAINED = 150  # more nodes in chains than it takes for a look at them


class Growth:
    """A problem whose arcs become chains, and lanes side by side; costs and capacities stay in all."""

    def __init__(self, problem: FlowProblem, rng: np.random.Generator, loose: float) -> None:
        self.rng, self.loose = rng, loose
        self.nodes = len(problem.supply)
        self.arcs = oracles.rows(problem)
        for _ in range(10 * CHAINED):
            if self.nodes - len(problem.supply) > CHAINED + len(problem.supply) // 8:
                break
            self.grow(int(rng.integers(len(self.arcs))))
        order = rng.permutation(self.nodes)
        tail, head, lower, capacity, cost = np.array(self.arcs, np.int64)[rng.permutation(len(self.arcs))].T.copy()
        supply = np.zeros(self.nodes, np.int64)
        supply[order[: len(problem.supply)]] = problem.supply
        self.problem = FlowProblem(order[tail], order[head], capacity, cost, supply, lower)

    def grow(self, arc: int) -> None:
        """Put some nodes into an arc, or lanes of the same cost in its place; some are `loose`: another problem."""
        tail, head, lower, capacity, cost = self.arcs[arc]
        nodes = int(self.rng.integers(1, 4))
        if self.rng.random() < 0.3 and not lower and capacity < INF:
            rooms = self.rng.multinomial(min(capacity, 10**9), [0.5, 0.3, 0.2]).tolist()
            rooms[0] += capacity - sum(rooms)
            extra = int(self.rng.random() < self.loose)
            self.arcs[arc] = (tail, head, 0, rooms[0], cost)
            self.arcs += [(tail, head, 0, room, cost + extra) for room in rooms[1:]]
            return
        ends = [tail, *range(self.nodes, self.nodes + nodes), head]
        self.nodes += nodes
        shares = self.rng.integers(-5, 6, nodes).tolist()
        costs = [*shares, cost - sum(shares)]
        rooms = [capacity if capacity == INF else capacity + int(self.rng.integers(0, 5)) for _ in costs]
        less = lower < capacity < INF and self.rng.random() < self.loose
        rooms[int(self.rng.integers(0, nodes + 1))] = capacity - int(less)
        parts = [(u, v, lower, room, part) for u, v, room, part in zip(ends[:-1], ends[1:], rooms, costs, strict=True)]
        self.arcs[arc] = parts[0]
        self.arcs += parts[1:]


@pytest.mark.parametrize("loose", [0.0, 0.02])
@pytest.mark.parametrize("seed", range(effort(6, 400)))
@pytest.mark.parametrize(
    ("nodes", "arcs", "options"),
    [
        pytest.param(8, 20, {}, id="mixed"),
        pytest.param(3, 8, {"max_flow": 2}, id="tiny"),
        pytest.param(40, 200, {"lower": 0, "max_cost": 3}, id="many ties"),
        pytest.param(30, 120, {"max_cost": 10**12, "max_flow": 10**5, "unlimited": 0.5}, id="large numbers"),
    ],
)
def test_against_ortools(nodes, arcs, options, seed, loose):
    rng = np.random.default_rng(seed)
    first = random_problem(rng, nodes, arcs, **options)
    problem = Growth(first, rng, loose).problem
    answer = oracles.optimum(problem)
    try:
        result = min_cost_flow(**problem.arguments())
    except InfeasibleError as error:
        assert answer.status == INFEASIBLE
        oracles.check_cut(problem, error.cut)
        return
    assert (answer.status, answer.cost) == (OPTIMAL, result.cost)
    oracles.check_optimal(problem, result.flow, result.cost, result.potential)
    certify(**problem.arguments(), result=result)
    if not loose:
        assert result.cost == oracles.optimum(first).cost


@pytest.mark.parametrize("seed", range(effort(10, 200)))
def test_infeasible_and_unbounded(seed):
    """What is told is told of the whole network."""
    rng = np.random.default_rng(seed)
    problem = Growth(random_problem(rng, 10, 40), rng, 0.0).problem
    node = int(np.flatnonzero(problem.supply)[0])
    problem.supply[node] += 10**6
    problem.supply[int(np.flatnonzero(problem.supply)[-1])] -= 10**6
    if oracles.optimum(problem).status == INFEASIBLE:
        with pytest.raises(InfeasibleError) as caught:
            min_cost_flow(**problem.arguments())
        oracles.check_cut(problem, caught.value.cut)
    problem = Growth(random_problem(rng, 10, 40, lower=0, unlimited=0), rng, 0.0).problem
    problem.cost[:], problem.capacity[:] = -1, INF
    if oracles.optimum(problem).status == UNBOUNDED:
        with pytest.raises(UnboundedError) as caught:
            min_cost_flow(**problem.arguments())
        oracles.check_cycle(problem, caught.value.cycle)


def test_cycle_of_such_nodes():
    """One of them stays, with an arc to itself."""
    ring = np.arange(200)
    for costs, flow in ((1, 0), (-1, 3)):
        problem = FlowProblem(ring, np.roll(ring, -1), np.full(200, 3), np.full(200, costs), np.zeros(200, np.int64))
        result = min_cost_flow(**problem.arguments())
        assert (result.flow == flow).all()
        certify(**problem.arguments(), result=result)


def machines(count: int, seed: int, whole: bool = True) -> FlowProblem:
    """Tasks, and machines of two sockets of two cores of two threads, or of one arc to the sink."""
    rng = np.random.default_rng(seed)
    arcs = []
    sink, node, first = 0, count + 1, 1
    for machine in range(first, node):
        if not whole:
            arcs.append((machine, sink, 8, 0))
            continue
        arcs += [(machine, socket, 4, 0) for socket in (node, node + 1)]
        arcs += [(node + core % 2, core, 2, 0) for core in range(node + 2, node + 6)]
        for thread in range(node + 6, node + 14):
            arcs += [(node + 2 + thread % 4, thread, 1, 0), (thread, sink, 1, 0)]
        node += 14
    tasks = np.arange(node, node + 7 * count)
    for task in tasks.tolist():
        wishes = rng.choice(count, 4, replace=False) + first
        arcs += [(task, machine, 1, int(rng.integers(1, 50))) for machine in wishes.tolist()]
        arcs.append((task, sink, 1, 60))
    tail, head, capacity, cost = np.array(arcs, np.int64).T.copy()
    supply = np.zeros(node + len(tasks), np.int64)
    supply[tasks], supply[sink] = 1, -len(tasks)
    return FlowProblem(tail, head, capacity, cost, supply)


def test_a_machine_of_cores_is_one_arc():
    problem, flat = machines(100, 0), machines(100, 0, whole=False)
    assert len(problem.supply) == len(flat.supply) + 1400
    result, same = min_cost_flow(**problem.arguments()), min_cost_flow(**flat.arguments())
    oracles.check_optimal(problem, result.flow, result.cost, result.potential)
    assert result.cost == same.cost
    assert result.stats["moved"] < 1.5 * same.stats["moved"]


def test_out_of_time():
    """A flow that a limit leaves is one of the whole network, and its gap bounds what it costs too much."""
    problem = machines(2000, 1)
    best = min_cost_flow(**problem.arguments())
    known = 0
    for part in (0.3, 0.6, 0.8, 0.9):
        try:
            result = min_cost_flow(**problem.arguments(), time_limit=part * best.stats["seconds"])
        except TimeLimitError:
            continue
        oracles.check_flow(problem, result.flow, result.cost)
        assert result.cost <= best.cost + result.stats["gap"]
        known += 1
    assert known


def test_fewer_potentials_move():
    """Not all nodes of a road with many bends are on the way of a pivot."""
    rng = np.random.default_rng(0)
    streets = general.road(12, 12, 0)
    bends = Growth(streets, rng, 0.0).problem
    moved = [min_cost_flow(**problem.arguments()).stats["moved"] for problem in (bends, streets)]
    assert moved[0] < 2 * moved[1]
