"""Numbers at the edge of 64 bits: an optimum is right, by exact certificate, or CostRangeError says that there is none to be had."""

from __future__ import annotations

from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
from effort import effort
from netmodel import ALGORITHMS

import flowsched as fs
from flowsched import nx_backend
from flowsched.network.ortools import SimpleMinCostFlow

LARGE = 2**60


def five_under_one(algorithm="auto", parallel=5):
    """Arcs of 2**60 one way, an unlimited arc that earns 1 the other way."""
    arcs = [0] * parallel + [1], [1] * parallel + [0], [LARGE] * parallel + [fs.INF], [0] * parallel + [-1]
    return fs.min_cost_flow(*arcs, [0, 0], algorithm=algorithm)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_flow_of_an_unlimited_arc_up_to_what_fits(algorithm):
    assert five_under_one(algorithm, 3).cost == -3 * LARGE
    for parallel in (5, 7, 20):
        with pytest.raises(fs.CostRangeError, match="capacity"):
            five_under_one(algorithm, parallel)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_warm_network_that_comes_out_of_range_and_back(algorithm):
    """The refused solve has changed nothing, and all is well as soon as the numbers are."""
    net = fs.FlowNetwork()
    net.add_nodes(2)
    arcs = net.add_arcs([0] * 5 + [1], [1] * 5 + [0], [5] * 5 + [fs.INF], [0] * 5 + [-1])
    assert net.solve(algorithm=algorithm).cost == -25
    before = net.flow().tolist()
    net.set_capacity(arcs[:5], LARGE)
    for again in ALGORITHMS:
        with pytest.raises(fs.CostRangeError, match="capacity"):
            net.solve(algorithm=again)
        assert net.flow().tolist() == before
    twin = fs.FlowNetwork.from_state(net.state())
    for alive in (net, twin):
        alive.set_capacity(arcs[:2], 7)
        assert alive.solve(algorithm=algorithm).cost == -3 * LARGE - 14
        alive.certify()


def test_a_cut_through_a_full_unlimited_arc_proves_nothing():
    """Supplies of 2**58 through an unlimited arc are no trouble, even if it was filled before."""
    net = fs.FlowNetwork()
    net.add_nodes([0, 0])
    arcs = net.add_arcs([0] * 5 + [1], [1] * 5 + [0], [LARGE] * 5 + [fs.INF], [0] * 5 + [-1])
    with pytest.raises(fs.CostRangeError):
        net.solve()
    net.set_cost(arcs[-1:], [1])
    net.set_supply([1, 0], [2**58, -(2**58)])
    assert net.solve().cost == 2**58
    net.certify()


def test_the_other_doors():
    flow = SimpleMinCostFlow()
    flow.add_arcs_with_capacity_and_unit_cost([0] * 5 + [1], [1] * 5 + [0], [LARGE] * 5 + [fs.INF], [0] * 5 + [-1])
    assert flow.solve() == flow.BAD_COST_RANGE
    with pytest.raises(fs.exceptions.InputError):
        flow.optimal_cost()
    flow.set_arc_capacities([0, 1, 2, 3, 4], [2**50] * 5)
    assert flow.solve() == flow.OPTIMAL
    assert flow.optimal_cost() == -5 * 2**50

    graph = nx.MultiDiGraph()
    for _ in range(5):
        graph.add_edge(0, 1, capacity=LARGE, weight=0)
    graph.add_edge(1, 0, weight=-1)
    ours = nx_backend.convert_from_nx(
        graph, edge_attrs={"capacity": None, "weight": None}, node_attrs={"demand": None}
    )  # fmt: skip
    with pytest.raises((nx.NetworkXError, NotImplementedError), match="exact 64-bit"):
        nx_backend.min_cost_flow_cost(ours)


def test_refused_arcs_of_the_simple_class_leave_no_nodes():
    flow = SimpleMinCostFlow()
    flow.add_arc_with_capacity_and_unit_cost(0, 1, 5, 1)
    for bad in ({"unit_costs": [2**60]}, {"capacities": [-1]}, {"unit_costs": [10**30]}):
        given = {"tails": [9], "heads": [4], "capacities": [1], "unit_costs": [1]} | bad
        with pytest.raises((fs.CostRangeError, fs.exceptions.InputError)):
            flow.add_arcs_with_capacity_and_unit_cost(**given)
        with pytest.raises(fs.CostRangeError):
            flow.set_nodes_supplies([7], [2**62])
        assert (flow.num_nodes(), flow.num_arcs()) == (2, 1)
    flow.add_arc_with_capacity_and_unit_cost(2, 3, 5, 1)
    flow.set_nodes_supplies([2, 3], [4, -4])
    assert (flow.solve(), flow.optimal_cost(), flow.num_nodes()) == (flow.OPTIMAL, 4, 4)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_supplies_that_cannot_be_sent_beside_a_capacity_of_almost_everything(algorithm):
    """The simplex took what was missing for what was too much: a flow that does not balance, as the optimum."""
    tail, head, cost = [4, 3, 3, 0, 0, 3, 4], [2, 3, 0, 4, 4, 1, 3], [-3, 3, -3, 5, 2, 5, -2]
    capacity = [2**59, 2**45, 2**45, 5, 2**62 - 1, 2**60, 5]
    with pytest.raises(fs.InfeasibleError):
        fs.min_cost_flow(tail, head, capacity, cost, [-(2**57), 0, 0, 0, 2**57], algorithm=algorithm)


def _huge(rng):
    """A small network whose capacities, costs and supplies may be anything that is allowed."""
    n, m = int(rng.integers(2, 6)), int(rng.integers(2, 12))
    kinds = [fs.INF, 2**62 - 1, 2**61, 2**60, 2**60 - 1, 2**59, 2**45, 5, 0]
    capacity = rng.choice(kinds, m, p=[0.25, 0.1, 0.1, 0.15, 0.1, 0.1, 0.05, 0.1, 0.05])
    cost = rng.integers(-3, 6, m)
    supply = np.zeros(n, np.int64)
    for _ in range(2):
        giver, taker = rng.integers(0, n, 2)
        amount = int(rng.choice([0, 1, 2**30, 2**57]))
        supply[giver] += amount
        supply[taker] -= amount
    tail, head = rng.integers(0, n, (2, m))
    if rng.random() < 0.2:  # the whole lot together earns more than fits
        k = int(rng.integers(3, 8))
        tail, head = np.append(tail, [*[0] * k, 1]), np.append(head, [*[1] * k, 0])
        capacity = np.append(capacity, [*rng.choice([2**60, 2**61 - 1], k), fs.INF])
        cost = np.append(cost, [*rng.integers(0, 3, k), -4])
    return tail, head, capacity, cost, supply


def _answer(solve, certify):
    try:
        result = solve()
    except (fs.CostRangeError, fs.InfeasibleError, fs.UnboundedError) as error:
        return type(error).__name__
    certify(result)
    return result.cost


def test_random_numbers_of_all_sizes(capsys):
    """All algorithms, cold and warm, agree wherever they answer, and each answer is certified in exact arithmetic."""
    answers = {}
    for seed in range(effort(120, 20_000)):
        rng = np.random.default_rng(seed)
        problem, found = _huge(rng), set()
        for algorithm in ALGORITHMS:
            found.add(
                _answer(
                    lambda p=problem, a=algorithm: fs.min_cost_flow(*p, algorithm=a),
                    lambda result, p=problem: fs.certify(*p, result),
                )
            )
        tail, head, capacity, cost, supply = problem
        net = fs.FlowNetwork()
        net.add_nodes(supply)
        arcs = net.add_arcs(tail, head, rng.permutation(capacity), rng.permutation(cost))
        for step in range(3):
            _answer(
                lambda s=seed + step, net=net: net.solve(algorithm=ALGORITHMS[s % 4]),
                lambda _, net=net: net.certify(),
            )
            net.set_capacity(arcs[:step], 7)
        net.set_capacity(arcs, capacity)
        net.set_cost(arcs, cost)
        for algorithm in rng.permutation(ALGORITHMS):
            found.add(
                _answer(
                    lambda net=net, a=str(algorithm): net.copy().solve(algorithm=a) and net.solve(algorithm=a),
                    lambda _, net=net: net.certify(),
                )
            )
        found.discard("CostRangeError")
        if found & {"UnboundedError"}:
            found -= {"InfeasibleError"}  # of a network that is both, either may be said
        assert len(found) <= 1, f"seed {seed}: {found}"
        kind = found.pop() if found else "CostRangeError"
        answers[kind if isinstance(kind, str) else "optimum"] = (
            answers.get(kind if isinstance(kind, str) else "optimum", 0) + 1
        )
    with capsys.disabled():
        print(f"\nnumbers of all sizes: {answers}")
    assert answers["optimum"] > 20
    assert answers["CostRangeError"] > 3


@pytest.mark.parametrize(
    "limit", [10**400, Fraction(10**400), -1, float("nan"), "1", True, 1j, None], ids=lambda x: repr(x)[:20]
)
def test_time_limits(limit):
    net = fs.FlowNetwork()
    net.add_nodes([1, -1])
    net.add_arcs([0], [1], 1, 1)
    if limit is None:
        assert net.solve(time_limit=limit).cost == 1
        return
    with pytest.raises(fs.exceptions.InputError, match="time_limit"):
        net.solve(time_limit=limit)
    with pytest.raises(fs.exceptions.InputError, match="time_limit"):
        fs.min_cost_flow([0], [1], 1, 1, [1, -1], time_limit=limit)


MASKED = np.ma.masked_array([0, 1], mask=[False, True])


@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("supply", lambda net: net.add_nodes(MASKED)),
        ("tail", lambda net: net.add_arcs(MASKED, [0, 1], 1, 1)),
        ("head", lambda net: net.add_arcs([0, 1], MASKED, 1, 1)),
        ("capacity", lambda net: net.add_arcs([0, 1], [0, 1], MASKED, 1)),
        ("cost", lambda net: net.add_arcs([0, 1], [0, 1], 1, np.ma.masked_array([1.0, 2.0]))),
        ("lower", lambda net: net.add_arcs([0, 1], [0, 1], 1, 1, MASKED)),
        ("nodes", lambda net: net.set_supply(MASKED, 1)),
        ("arcs", lambda net: net.flow(MASKED)),
        ("tail", lambda _: fs.min_cost_flow(MASKED, [0, 1], 1, 1, [0, 0])),
        ("cost", lambda _: fs.scale_costs(np.ma.masked_array([0.5, 1]))),
        ("cost", lambda _: fs.assignment(np.ma.masked_array([[1, 2], [3, 4]], mask=[[1, 0], [0, 0]]))),
        ("capacity", lambda _: fs.from_adjacency(np.ma.masked_array([[0, 1], [0, 0]]), np.zeros((2, 2)), [1, -1])),
    ],
)  # fmt: skip
def test_masked_arrays_are_refused(name, use):
    """A mask says that a number does not count; they were taken as if it did."""
    net = fs.FlowNetwork()
    net.add_nodes(2)
    with pytest.raises(fs.exceptions.InputError, match=f"{name}: a masked array"):
        use(net)
    assert (net.num_nodes, net.num_arcs) == (2, 0)
