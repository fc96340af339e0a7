"""Partial solves: the most that fits, at the least cost among those, against OR-tools; warm, and hidden from the caller."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from effort import effort
from netmodel import ALGORITHMS
from ortools.graph.python import min_cost_flow as ortools_mcf

import flowsched as fs


def draw(rng):
    """A problem that may be short of room, and whose supplies need not sum to 0."""
    n, m = int(rng.integers(2, 12)), int(rng.integers(1, 40))
    tail, head = rng.integers(0, n, (2, m))
    capacity, cost = rng.integers(0, 9, m), rng.integers(0, 30, m)
    supply = rng.integers(-9, 10, n) * rng.integers(0, 2, n)
    return [tail, head, capacity, cost, supply]


def expected(tail, head, capacity, cost, supply):
    """Return amount and cost of OR-tools."""
    solver = ortools_mcf.SimpleMinCostFlow()
    solver.add_arcs_with_capacity_and_unit_cost(tail, head, capacity, cost)
    solver.set_nodes_supplies(np.arange(len(supply)), supply)
    assert solver.solve_max_flow_with_min_cost() == solver.OPTIMAL
    return solver.maximum_flow(), solver.optimal_cost()


def shipped(supply, unshipped):
    """Return the amount; what is not shipped must be a part of each supply."""
    sent = supply - unshipped[: len(supply)]
    assert not unshipped[len(supply) :].any()
    assert (np.sign(sent) * np.sign(supply) >= 0).all() and (np.abs(sent) <= np.abs(supply)).all()
    return int(sent[sent > 0].sum())


@pytest.mark.parametrize("block", range(effort(3, 10)))
def test_a_thousand_networks_ship_what_ortools_ships(block):
    for seed in range(100 * block, 100 * block + 100):
        problem = draw(np.random.default_rng(seed))
        result = fs.min_cost_flow(*problem, partial=True)
        supply = problem[-1]
        assert (shipped(supply, result.unshipped), result.cost) == expected(*problem), seed
        fs.certify(*problem[:-1], supply - result.unshipped, result)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("seed", range(effort(6, 25)))
def test_a_kept_network_under_changes(seed, algorithm):
    rng = np.random.default_rng(seed)
    tail, head, capacity, cost, supply = draw(rng)
    net = fs.FlowNetwork()
    nodes = net.add_nodes(supply)
    arcs = net.add_arcs(tail, head, capacity, cost)
    if seed % 3 == 0:
        net._set_budget(1)
    for turn in range(12):
        solution = net.solve(partial=True, algorithm=algorithm)
        problem = net.to_problem()
        data = problem.tail, problem.head, problem.capacity, problem.cost, problem.supply
        unshipped = np.zeros(int(nodes.max()) + 1, np.int64)
        unshipped[: len(solution.unshipped)] = solution.unshipped[: len(unshipped)]
        assert (shipped(problem.supply, unshipped[net.nodes()]), solution.cost) == expected(*data)
        assert solution.cost == int(problem.cost @ net.flow())
        assert (solution.stats["warm"]) == (turn > 0)
        net.certify()
        assert net.num_nodes == len(net.nodes()) == len(nodes) and net.num_arcs == len(net.arcs()) == len(arcs)
        assert sorted(net.nodes()) == sorted(nodes) and sorted(net.arcs()) == sorted(arcs)
        assert set(solution.changed.tolist()) <= set(arcs.tolist())
        what = rng.integers(0, 8)
        some = rng.choice(arcs, min(3, len(arcs)), replace=False)
        one = rng.choice(nodes)
        if what == 0:
            net.set_cost(some, rng.integers(0, 300, len(some)))
        elif what == 1:
            net.set_capacity(some, rng.integers(0, 12, len(some)))
        elif what == 2:
            net.set_supply(one, int(rng.integers(-20, 20)))
        elif what == 3:
            nodes = np.append(nodes, net.add_nodes(rng.integers(-5, 5, 2)))
            arcs = np.append(arcs, net.add_arcs(rng.choice(nodes, 5), rng.choice(nodes, 5), 4, rng.integers(0, 20, 5)))
        elif what == 4 and len(nodes) > 2:
            gone = np.isin(net.tail(arcs), one) | np.isin(net.head(arcs), one)
            arcs, nodes = arcs[~gone], nodes[nodes != one]
            net.remove_nodes(one)
            arcs = np.append(arcs, net.add_arcs(rng.choice(nodes, 3), rng.choice(nodes, 3), 4, rng.integers(0, 20, 3)))
        elif what == 5 and len(arcs) > 3:
            net.remove_arcs(some)
            arcs = np.setdiff1d(arcs, some)
        elif what == 6:
            net = rng.choice([fs.FlowNetwork.copy, copy.copy, copy.deepcopy, lambda n: pickle.loads(pickle.dumps(n))])(
                net
            )
        elif what == 7:
            try:
                net.solve()
            except fs.InfeasibleError as error:
                assert error.shortfall > 0


def test_supplies_that_are_more_than_the_demands():
    net = fs.FlowNetwork()
    a, b, c = net.add_nodes([5, 0, -3])
    net.add_arcs([a, a, b], [b, c, c], [9, 2, 9], [1, 3, 1])
    solution = net.solve(partial=True)
    assert (solution.cost, solution.unshipped.tolist()) == (6, [2, 0, 0])
    net.set_supply(c, -9)
    solution = net.solve(partial=True)
    assert (solution.cost, solution.unshipped.tolist()) == (10, [0, 0, -4])
    assert fs.FlowNetwork().solve(partial=True).cost == 0


def test_a_warm_solve_looks_at_what_changed():
    """Half-arcs scanned after one supply changed, in a network of 2,000 tasks."""
    rng = np.random.default_rng(3)
    net = fs.FlowNetwork()
    (sink,) = net.add_nodes([-1500])
    machines = net.add_nodes(300)
    tasks = net.add_nodes(np.ones(2000, np.int64))
    net.add_arcs(machines, sink, 5, 0)
    net.add_arcs(np.repeat(tasks, 6), rng.choice(machines, 12000), 1, rng.integers(1, 100, 12000))
    first = net.solve(partial=True)
    assert shipped(net.supply(), first.unshipped) == 1500
    scans = []
    for task in tasks[:20]:
        net.set_supply(task, 0)
        stats = net.solve(partial=True).stats
        scans.append(stats["walk_scans"] + stats["search_scans"])
    assert all(scan < net.num_arcs for scan in scans)
    assert np.median(scans) < net.num_arcs / 8


def test_lower_bounds_hold_and_may_be_impossible():
    for solve in (
        lambda *a, **k: fs.min_cost_flow(*a, partial=True, **k),
        lambda t, h, c, k, s, lower: build(t, h, c, k, s, lower).solve(partial=True),
    ):
        assert solve([0, 1], [1, 0], 5, [3, 4], [2, -9], lower=[3, 0]).cost == 13
        with pytest.raises(fs.InfeasibleError, match="missing") as caught:
            solve([0, 1], [1, 2], [5, 1], 1, [4, 0, -4], lower=[3, 0])
        assert caught.value.shortfall == 2
        assert caught.value.arcs.tolist() == [1]
        assert caught.value.cut[1] and not caught.value.cut[2]


def build(tail, head, capacity, cost, supply, lower=0):
    net = fs.FlowNetwork()
    net.add_nodes(supply)
    net.add_arcs(tail, head, capacity, cost, lower)
    return net


def test_a_price_out_of_range_is_refused_and_nothing_has_changed():
    net = build([0], [1], 5, 2**57, [1, -1])
    assert net.solve().cost == 2**57
    net.set_supply([0, 1], [9, -9])
    with pytest.raises(fs.CostRangeError, match="partial: a unit not shipped would have to cost"):
        net.solve(partial=True)
    with pytest.raises(fs.CostRangeError, match="partial"):
        fs.min_cost_flow([0], [1], 5, 2**57, [1, -1], partial=True)
    assert (net.num_nodes, net.num_arcs, net.flow().tolist()) == (2, 1, [1])
    net.set_cost([0], [7])
    assert net.solve(partial=True).cost == 35


def test_a_network_that_grows_beyond_what_the_price_allows():
    """The hidden price must not refuse what the network itself may hold."""
    net = build([0], [1], 5, 2**50, [9, -9])
    assert net.solve(partial=True).cost == 5 * 2**50
    net.add_nodes(200)
    assert net.num_nodes == 202
    with pytest.raises(fs.CostRangeError, match="partial"):
        net.solve(partial=True)
    net.remove_nodes(net.nodes()[2:])
    assert net.solve(partial=True).cost == 5 * 2**50


@pytest.mark.parametrize("change", ["cost", "arcs", "nodes"])
def test_the_price_follows_what_is_dear(change):
    """Every unit is shipped that can be, whatever it costs and however far it has to go."""
    net = build([0], [1], 5, 1, [3, -3])
    assert net.solve(partial=True).cost == 3
    if change == "cost":
        net.set_cost(0, 10**6)
        assert net.solve(partial=True).cost == 3 * 10**6
    elif change == "arcs":
        net.set_capacity(0, 0)
        net.add_arcs(0, 1, 5, 10**6)
        assert net.solve(partial=True).cost == 3 * 10**6
    else:
        net.set_capacity(0, 0)
        way = np.concatenate([[0], net.add_nodes(count=50), [1]])
        net.add_arcs(way[:-1], way[1:], 5, 1)
        assert net.solve(partial=True).cost == 3 * 51
    net.certify()


def test_hidden_ids_are_nobodys():
    net = build([0], [1], 5, 1, [9, -9])
    net.solve(partial=True)
    hidden = net._slack.node
    with pytest.raises(fs.InputError, match=rf"nodes\[0\]: no node {hidden}"):
        net.set_supply([hidden], [1])
    with pytest.raises(fs.InputError, match=rf"head\[1\]: no node {hidden}"):
        net.add_arcs([0, 0], [1, hidden], 1, 1)
    with pytest.raises(fs.InputError, match=r"arcs\[1\]: no arc 1"):
        net.set_cost([0, 1], [4, 4])
    for read in (net.supply, net.potential):
        with pytest.raises(fs.InputError, match=rf"nodes\[1\]: no node {hidden}"):
            read([0, hidden])
    for read in (net.flow, net.cost, net.capacity, net.tail, net.head, net.reduced_cost):
        with pytest.raises(fs.InputError, match=r"arcs\[1\]: no arc 1"):
            read([0, 1])
    assert net.cost().tolist() == [1]
    assert net.solve(partial=True).cost == 5


def test_unbounded_partial():
    with pytest.raises(fs.UnboundedError):
        fs.min_cost_flow([0, 1], [1, 0], np.inf, -1, [1, -1], partial=True)


def test_bad_ends_are_not_taken_for_the_slack():
    with pytest.raises(fs.InputError, match=r"head\[0\]: no node 2"):
        fs.min_cost_flow([0], [2], 1, 1, [1, -1], partial=True)
