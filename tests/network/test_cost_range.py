"""Ranges of costs in which a flow stays optimal, against solving anew at and beside their ends."""

from __future__ import annotations

import numpy as np
import pytest
from effort import effort

import flowsched as fs

UNREACHED = 2**60


def draw(seed):
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(2, 9)), int(rng.integers(1, 25))
    tail, head = rng.integers(0, n, (2, m))
    lower = rng.integers(0, 3, m) * rng.integers(0, 2, m)
    capacity, cost = lower + rng.integers(0, 5, m), rng.integers(-9, 20, m)
    flow = rng.integers(lower, capacity + 1)
    capacity = np.where(rng.random(m) < 0.1, fs.INF, capacity)
    cost = np.where(capacity >= fs.INF, np.abs(cost), cost)
    supply = np.bincount(tail, flow, n) - np.bincount(head, flow, n)
    return tail, head, capacity, cost, supply.astype(np.int64), lower


def still_optimal(net, arc, cost):
    """The flow costs no more than the optimum at this cost of the arc."""
    paid = net.solve().cost + (cost - int(net.cost(arc)[0])) * int(net.flow(arc)[0])
    try:
        return net.copy(cost=(arc, cost)).solve().cost == paid
    except fs.UnboundedError:
        return False


@pytest.mark.parametrize("seed", range(effort(15, 60)))
def test_both_ends_by_brute_force(seed):
    tail, head, capacity, cost, supply, lower = draw(seed)
    net = fs.FlowNetwork()
    net.add_nodes(supply)
    arcs = net.add_arcs(tail, head, capacity, cost, lower)
    if seed % 2 and len(arcs) > 3:  # ids with a hole
        net.remove_arcs(1)
    try:
        net.solve()
    except fs.InfeasibleError:
        assert seed % 2
        return
    lowest, highest = net.cost_range()
    present = net.cost()
    assert ((lowest <= present) & (present <= highest)).all()
    for i, arc in enumerate(net.arcs()):
        one = net.cost_range(arc)
        assert (one[0].tolist(), one[1].tolist()) == ([lowest[i]], [highest[i]])
        if lowest[i] > -fs.INF:
            assert still_optimal(net, arc, int(lowest[i]))
            assert not still_optimal(net, arc, int(lowest[i]) - 1)
        else:
            assert still_optimal(net, arc, -10_000)
        if highest[i] < fs.INF:
            assert still_optimal(net, arc, int(highest[i]))
            assert not still_optimal(net, arc, int(highest[i]) + 1)
        else:
            assert still_optimal(net, arc, 10_000)


def shortest(n, tail, head, length):
    """Lengths of shortest paths between all nodes, by Floyd and Warshall."""
    dist = np.full((n, n), UNREACHED)
    np.minimum.at(dist, (tail, head), length)
    np.fill_diagonal(dist, 0)
    for k in range(n):
        dist = np.minimum(dist, np.minimum(dist[:, k, None] + dist[k], UNREACHED))
    return dist


def drawn_hub(rng):
    """A few nodes with most arcs; the flow leaves some trees of free arcs, large and small."""
    n, m = int(rng.integers(30, 60)), int(rng.integers(150, 500))
    ends = rng.integers(0, n, (2, m))
    centre = rng.random((2, m)) < rng.choice([0, 0.1, 0.4])
    tail, head = np.where(centre, rng.integers(0, 3, (2, m)), ends)
    capacity, cost = rng.choice([1, 2, 5, 30], m), rng.integers(0, rng.choice([3, 40, 1000]), m)
    flow = rng.integers(0, capacity + 1) * (rng.random(m) < rng.choice([0.02, 0.2, 0.6]))
    return tail, head, capacity, cost, np.bincount(tail, flow, n) - np.bincount(head, flow, n)


@pytest.mark.parametrize("seed", range(effort(12, 400)))
def test_all_arcs_at_once_by_all_pairs(seed):
    tail, head, capacity, cost, supply = drawn_hub(np.random.default_rng(seed))
    n, m = len(supply), len(tail)
    net = fs.FlowNetwork.from_problem(fs.FlowProblem(tail, head, capacity, cost, supply.astype(np.int64)))
    net.solve()
    flow, reduced = net.flow(), net.reduced_cost()
    forward, backward = flow < capacity, flow > 0
    arc = np.concatenate([np.flatnonzero(forward), np.flatnonzero(backward)])
    start = np.concatenate([tail[forward], head[backward]])
    end = np.concatenate([head[forward], tail[backward]])
    length = np.concatenate([reduced[forward], -reduced[backward]])
    near = shortest(n, start, end, length)
    lowest, highest = np.full(m, -fs.INF), np.full(m, fs.INF)
    for i in range(m):
        dist = near
        if forward[i] and backward[i]:
            rest = arc != i
            dist = shortest(n, start[rest], end[rest], length[rest])
        back, on = dist[head[i], tail[i]], dist[tail[i], head[i]]
        if forward[i] and back < UNREACHED:
            lowest[i] = cost[i] - reduced[i] - back
        if backward[i] and on < UNREACHED:
            highest[i] = cost[i] - reduced[i] + on
    found = net.cost_range()
    assert (found[0].tolist(), found[1].tolist()) == (lowest.tolist(), highest.tolist())
    some = np.random.default_rng(seed).choice(m, 5)
    assert [x.tolist() for x in net.cost_range(some)] == [lowest[some].tolist(), highest[some].tolist()]


def test_a_self_loop_and_parallel_arcs():
    net = fs.FlowNetwork.from_edges([("a", "b", 2, 1), ("a", "b", 2, 4), ("a", "a", 3, 5)], supply={"a": 3, "b": -3})
    net.solve()
    lowest, highest = net.cost_range()
    assert net.flow().tolist() == [2, 1, 0]
    assert (lowest.tolist(), highest.tolist()) == ([-fs.INF, 1, 0], [4, fs.INF, fs.INF])


def test_a_flow_that_is_not_the_optimum_is_refused():
    net = fs.FlowNetwork.from_edges([("a", "b", 2, 1), ("a", "b", 2, 4)], supply={"a": 2, "b": -2})
    with pytest.raises(fs.InputError, match=r"present supplies; solve\(\) first"):
        net.cost_range()
    net.solve()
    net.set_cost(0, 9)
    with pytest.raises(fs.InputError, match=r"arcs: the flow of arc \d is not optimal .* solve\(\) first"):
        net.cost_range(1)
    net.solve()
    net.set_supply([0, 1], [3, -3])
    with pytest.raises(fs.InputError, match="supplies"):
        net.cost_range()
    net.solve()
    with pytest.raises(fs.InputError, match=r"arcs\[1\]: no arc 7"):
        net.cost_range([0, 7])
    assert net.cost_range([])[0].tolist() == []


def test_of_a_partial_solution():
    """As if the supplies were those that are shipped."""
    net = fs.FlowNetwork.from_edges([("a", "b", 2, 1), ("a", "c", 2, 4), ("c", "b", 9, 1)], supply={"a": 3, "b": -9})
    assert net.solve(partial=True).cost == 2 + 5
    lowest, highest = net.cost_range()
    assert (lowest.tolist(), highest.tolist()) == ([-fs.INF, 0, -3], [5, fs.INF, fs.INF])


def test_copies_answer_what_if():
    net = fs.FlowNetwork.from_edges([("a", "b", 2, 1), ("a", "b", 2, 4)], supply={"a": 2, "b": -2})
    assert net.solve().cost == 2
    assert net.copy(cost=(0, 9)).solve().cost == 8
    assert net.copy(capacity=([0], [1]), supply=([0, 1], [1, -1])).solve().cost == 1
    assert net.copy(lower=(1, 1)).solve().cost == 5
    with pytest.raises(fs.InputError, match=r"cost: a pair \(ids, values\) expected, got 5"):
        net.copy(cost=5)
    assert net.solve().cost == 2
