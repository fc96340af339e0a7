"""Least cost by amount and by capacity, against a solve at every point."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from effort import effort

import flowsched as fs


def draw(seed):
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(2, 8)), int(rng.integers(3, 25))
    tail, head = rng.integers(0, n, (2, m))
    capacity, cost = rng.integers(0, 9, m), rng.integers(-5, 20, m)
    flow = rng.integers(0, capacity + 1)
    net = fs.FlowNetwork()
    net.add_nodes(np.bincount(tail, flow, n).astype(np.int64) - np.bincount(head, flow, n).astype(np.int64))
    net.add_arcs(tail, head, capacity, cost)
    return net, rng


def interpolated(points, x):
    for (a, low), (b, high) in pairwise(points):
        if a <= x <= b:
            assert (high - low) * (x - a) % (b - a) == 0
            return low + (high - low) * (x - a) // (b - a)
    assert [x] == [a for a, _ in points]
    return points[0][1]


def by_brute_force(points, most, ask):
    for x in range(most + 1):
        try:
            cost = ask(x).solve().cost
        except fs.InfeasibleError:
            assert not points[0][0] <= x <= points[-1][0]
        else:
            assert cost == interpolated(points, x)
    slopes = [(d - c) / (b - a) for (a, c), (b, d) in pairwise(points)]
    assert (np.diff(slopes) > 0).all()  # convex, and no break too many


@pytest.mark.parametrize("seed", range(effort(10, 40)))
def test_by_amount(seed):
    net, rng = draw(seed)
    s, t = (int(x) for x in rng.choice(net.num_nodes, 2, replace=False))
    points = fs.cost_by_amount(net, s, t, 30)
    gives, takes = net.supply([s, t]).tolist()
    by_brute_force(points, 30, lambda x: net.copy(supply=([s, t], [gives + x, takes - x])))
    assert points[0] == (0, net.solve().cost)


@pytest.mark.parametrize("seed", range(effort(10, 40)))
def test_by_capacity(seed):
    net, rng = draw(seed)
    arc = int(rng.integers(0, net.num_arcs))
    before = net.capacity().tolist()
    points = fs.cost_by_capacity(net, arc, int(net.capacity(arc)[0]) + 15)
    by_brute_force(points, points[-1][0], lambda x: net.copy(capacity=(arc, x)))
    assert net.capacity().tolist() == before


def test_wrong_questions():
    net = fs.FlowNetwork.from_edges([("a", "b", 2, 1, 1)])
    for call, words in (
        (lambda: fs.cost_by_amount(net, 0, 0, 3), "target: another node"),
        (lambda: fs.cost_by_amount(net, 0, 5, 3), r"nodes\[1\]: no node 5"),
        (lambda: fs.cost_by_amount(net, 0, 1, -1), "most: 0 to"),
        (lambda: fs.cost_by_amount(net, 0, 1, 1.5), "most: an integer expected, got 1.5"),
        (lambda: fs.cost_by_capacity(net, 0, 0), "most: 1 to"),
        (lambda: fs.cost_by_capacity(net, 3, 1), r"arcs\[0\]: no arc 3"),
    ):
        with pytest.raises(fs.InputError, match=words):
            call()
    with pytest.raises(fs.InfeasibleError, match="missing"):
        fs.cost_by_amount(net, 0, 1, 9)  # the lower bound has nothing to carry yet
    net.set_supply([0, 1], [1, -1])
    assert fs.cost_by_amount(net, 0, 1, 9) == [(0, 1), (1, 2)]
    assert fs.cost_by_amount(net, 0, 1, 0) == [(0, 1)]
