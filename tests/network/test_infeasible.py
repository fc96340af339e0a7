"""What an infeasible problem is told to lack: amount, nodes and arcs, against a maximum flow."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from effort import effort
from netmodel import ALGORITHMS
from ortools.graph.python import max_flow

import flowsched as fs


def short(rng):
    n, m = int(rng.integers(2, 12)), int(rng.integers(1, 30))
    tail, head = rng.integers(0, n, (2, m))
    lower = rng.integers(0, 3, m) * rng.integers(0, 2)
    capacity, cost = lower + rng.integers(0, 6, m), rng.integers(-3, 30, m)
    supply = rng.integers(-9, 10, n)
    supply[-1] -= supply.sum()
    return tail, head, capacity, cost, supply, lower


def missing(tail, head, capacity, supply, lower):
    """Return supplies less the maximum flow, with lower bounds shipped before."""
    n = len(supply)
    rest = supply.copy()
    np.subtract.at(rest, tail, lower)
    np.add.at(rest, head, lower)
    solver = max_flow.SimpleMaxFlow()
    solver.add_arcs_with_capacity(tail, head, capacity - lower)
    solver.add_arcs_with_capacity(np.full(n, n), np.arange(n), np.maximum(rest, 0))
    solver.add_arcs_with_capacity(np.arange(n), np.full(n, n + 1), np.maximum(-rest, 0))
    solver.solve(n, n + 1)
    return int(rest[rest > 0].sum()) - solver.optimal_flow()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("seed", range(effort(15, 60)))
def test_amount_nodes_and_arcs(seed, algorithm):
    tail, head, capacity, cost, supply, lower = short(np.random.default_rng(seed))
    lacks = missing(tail, head, capacity, supply, lower)

    def kept():
        net = fs.FlowNetwork()
        net.add_nodes(supply)
        net.add_arcs(tail, head, capacity, cost, lower)
        return net.solve(algorithm=algorithm)

    for solve in (kept, lambda: fs.min_cost_flow(tail, head, capacity, cost, supply, lower=lower, algorithm=algorithm)):
        try:
            solve()
        except fs.InfeasibleError as caught:
            error = caught
        else:
            assert lacks == 0
            continue
        assert error.shortfall == lacks > 0
        cut = error.cut
        out, into = cut[tail] & ~cut[head], ~cut[tail] & cut[head]
        assert error.arcs.tolist() == np.flatnonzero(out).tolist()
        assert supply[cut].sum() + lower[into].sum() - capacity[out].sum() == lacks
        assert f"{lacks} unit" in str(error)
        again = pickle.loads(pickle.dumps(error))
        assert (again.shortfall, again.arcs.tolist(), again.cut.tolist()) == (lacks, error.arcs.tolist(), cut.tolist())


@pytest.mark.parametrize(
    ("supply", "capacity", "message"),
    [
        ([4, 0, -4], [1, 1, 2], "2 units are missing: node 0 must send 4 units, and the 2 arcs out of it (0, 1) carry 2"),
        ([4, 0, -4], [4, 1, 2], "1 unit is missing: node 2 must get 4 units, and the 2 arcs into it (1, 2) carry 3"),
        ([4, -4, 0], [1, 9, 9], "3 units are missing: node 1 must get 4 units, and arc 0, the only one into it, carries 1"),
        ([-4, 0, 4], [9, 9, 9], "4 units are missing: node 0 must get 4 units, and no arc leads into it"),
    ],
)  # fmt: skip
def test_the_message_names_them(supply, capacity, message):
    with pytest.raises(fs.InfeasibleError) as caught:
        fs.min_cost_flow([0, 0, 1], [1, 2, 2], capacity, [1, 2, 3], supply)
    assert str(caught.value) == f"no flow meets the supplies, {message}"


def test_the_message_uses_names_and_shows_a_few():
    edges = [(f"s{i}", "hub", 1) for i in range(9)] + [("hub", "t", 4)] + [(f"t{i}", "t") for i in range(20)]
    net = fs.FlowNetwork.from_edges(edges, supply={**{f"s{i}": 1 for i in range(9)}, "t": -9})
    with pytest.raises(
        fs.InfeasibleError, match=r"5 units are missing: 10 nodes \(s0, hub, s1, s2, s3, ...\) must send 9 units"
    ) as caught:
        net.solve()
    assert caught.value.arcs.tolist() == [9]


def test_unequal_supplies():
    for total in (3, -3):
        with pytest.raises(fs.InfeasibleError, match=f"the supplies sum to {total}, not to 0") as caught:
            fs.min_cost_flow([0], [1], 5, 1, [total, 0])
        assert (caught.value.shortfall, len(caught.value.arcs)) == (3, 0)
        assert caught.value.cut.tolist() == [total > 0] * 2


def test_ids_of_a_network_with_holes_and_mending():
    net = fs.FlowNetwork()
    gone, a, b, c = net.add_nodes([9, 4, 0, -4])
    net.add_arcs([gone, a, b], [a, b, c], [9, 9, 1], [1, 1, 1])
    net.remove_nodes([gone])
    with pytest.raises(fs.InfeasibleError, match="node 3 must get 4 units, and arc 2") as caught:
        net.solve()
    error = caught.value
    assert (error.cut.tolist(), error.arcs.tolist()) == ([False, True, True, False], [2])
    net.set_capacity(error.arcs, net.capacity(error.arcs) + error.shortfall)
    assert net.solve().cost == 8


def test_no_time_is_left_for_the_worst_cut():
    """The kernel's own cut is told then."""
    rng = np.random.default_rng(0)
    tail, head = rng.integers(0, 50, (2, 400))
    supply = np.zeros(50, np.int64)
    supply[[0, 1]] = 10**6, -(10**6)
    net = fs.FlowNetwork()
    net.add_nodes(supply)
    net.add_arcs(tail, head, 3, 1)
    with pytest.raises((fs.InfeasibleError, fs.TimeLimitError)) as caught:
        net.solve(time_limit=1e-9)
    if isinstance(caught.value, fs.InfeasibleError):
        assert caught.value.shortfall > 0
