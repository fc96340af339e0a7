"""Any calls in any order: removals before a late first solve, hidden slack nodes, refused calls, every algorithm (`netlives`)."""

from __future__ import annotations

import numpy as np
import pytest
from effort import effort
from netlives import Life, counted_clock
from netmodel import ALGORITHMS

import flowsched as fs

BLOCKS = 10


@pytest.mark.parametrize("block", range(BLOCKS))
def test_lives_of_networks(block):
    lives = effort(20, 20_000)
    with counted_clock() as clock:
        for number in range(block * lives, (block + 1) * lives):
            try:
                Life(number, clock).run()
            except Exception as error:
                raise AssertionError(
                    f"life {number}: python tests/support/netlives.py {number} {number + 1}"
                ) from error


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("number", range(effort(10, 40)))
def test_removed_nodes_before_a_late_first_solve(number, algorithm):
    """The gap of a late answer was read from the adjacency of removed nodes, and so was what `restore_optimality` then changed."""
    rng = np.random.default_rng(number)
    n = int(rng.integers(20, 80))
    net = fs.FlowNetwork()
    net.add_nodes(n)
    net.add_arcs(*rng.integers(0, n, (2, 4 * n)), rng.integers(1, 10, 4 * n), rng.integers(0, 10, 4 * n))
    net.remove_nodes(rng.choice(n, n // 2, replace=False))
    ends = rng.choice(net.nodes(), 2, replace=False)
    net.set_supply(ends, [3, -3])
    net.add_arcs(ends[:1], ends[1:], 100, 50)
    best = net.copy().solve().cost
    try:
        late = net.solve(algorithm=algorithm, time_limit=0)
    except fs.TimeLimitError:
        assert algorithm != "repair"
    else:
        assert late.cost - late.stats["gap"] <= best <= late.cost == int((net.flow() * net.cost()).sum())
    assert net.solve().cost == best == int((net.flow() * net.cost()).sum())
    net.certify()


def test_a_removal_cannot_be_refused_after_it_was_made():
    """The slack's node had to get a supply out of range, so the call raised, but the node was gone."""
    net = fs.FlowNetwork()
    net.add_nodes([1, 0, -(2**58 + 1)])
    net.solve(partial=True)
    extra = net.add_nodes([0, 0])
    net.set_supply([0], [2**58 + 1])
    net.remove_nodes(extra[:1])
    assert net.nodes().tolist() == [0, 1, 2, extra[1]]
    assert net.solve(partial=True).unshipped[:3].tolist() == [2**58 + 1, 0, -(2**58 + 1)]


def test_a_price_follows_the_costs_that_are_there():
    """A cost that was refused, or that is gone, does not make partial solves impossible."""
    net = fs.FlowNetwork()
    net.add_nodes([*[0] * 98, 2, -1])
    arcs = net.add_arcs([98, 98], [99, 99], 9, [1, 2])
    net.solve(partial=True)
    with pytest.raises(fs.InputError):
        net.set_cost([arcs[0], 77], [2**50, 1])
    assert net.solve(partial=True).cost == 1
    net.set_cost(arcs[:1], [2**50])
    with pytest.raises(fs.CostRangeError, match="partial"):
        net.solve(partial=True)
    net.set_cost(arcs[:1], [3])
    assert net.solve(partial=True).cost == 2


@pytest.mark.parametrize("kind", ["supply", "lower"])
def test_what_is_replaced_does_not_count(kind):
    net = fs.FlowNetwork()
    net.add_nodes([2**59 - 1, 0])
    arcs = net.add_arcs([0, 0], [0, 0], fs.INF, 0, [0, 2**58])
    if kind == "supply":
        net.set_supply([0, 1], [2**58, -(2**58)])
        net.set_supply([0, 1], [0, 0])
    net.set_supply([0], [0])
    net.set_lower(arcs, [2**59, 2**58])
    net.set_lower(arcs, [2**58, 2**59])
    with pytest.raises(fs.CostRangeError):
        net.set_supply([0], [2**58])


@pytest.mark.parametrize("seed", range(effort(60, 20_000)))
def test_no_flow_is_no_flow_whatever_it_costs(seed):
    """Whether a flow exists does not depend on costs: up to the largest, an error says the same as if all were 0."""
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(2, 7)), int(rng.integers(1, 10))
    top = int(rng.choice([(2**59 - 1) // (n + 1), 2**50, 2**53]))
    tail, head = rng.integers(0, n, (2, m))
    capacity, cost = rng.choice([fs.INF, fs.INF, 1, 2, 2**31, 2**40], m), rng.choice([0, 1, top, -top, top // 2], m)
    supply = rng.choice([0, 0, 1, -1, 3, 2**40], n)
    supply[-1] -= supply.sum()
    try:
        fs.min_cost_flow(tail, head, capacity, 0, supply)
        flows = True
    except fs.InfeasibleError:
        flows = False
    try:
        fs.min_cost_flow(tail, head, capacity, cost, supply, algorithm=ALGORITHMS[seed % 4])
        assert flows
    except fs.InfeasibleError:
        assert not flows
    except fs.UnboundedError as error:
        assert cost[error.cycle].sum() < 0
