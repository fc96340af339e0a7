"""General networks under change: the simplex from its last basis, repair, and the choice between them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from effort import effort
from netmodel import Mirror, from_problem, mutate, network, solved
from strategies import random_problem

from bench.solver import general
from flowsched.network import FlowNetwork
from flowsched.network.problem import FlowProblem

SIMPLEX = "network_simplex"


def change(mirror: Mirror, rng: np.random.Generator) -> None:
    """Costs, capacities and supplies, one to many of each; what flows stays feasible more often than not."""
    arcs, nodes = list(mirror.arcs), list(mirror.supply)
    for kind in rng.permutation(["cost", "capacity", "supply"])[: int(rng.integers(1, 4))]:
        count = int(rng.choice([1, 3, max(3, len(arcs) // 8)]))
        chosen = [int(arc) for arc in rng.choice(arcs, min(count, len(arcs)), replace=False)]
        if kind == "cost":
            mirror.set_arc("cost", chosen, rng.integers(0, 51, len(chosen)).tolist())
        elif kind == "capacity":
            mirror.set_arc("capacity", chosen, [mirror.arcs[arc].lower + int(rng.integers(0, 9)) for arc in chosen])
        else:
            for _ in range(min(count, len(nodes))):
                giver, taker = (int(node) for node in rng.choice(nodes, 2, replace=False))
                amount = int(rng.integers(0, 4))
                values = [mirror.supply[giver] + amount, mirror.supply[taker] - amount]
                mirror.set_supply([giver, taker], values)


def check_alike(net: FlowNetwork, resumed: bool) -> None:
    """After the simplex the network's flow is that of the basis; its potentials are, too, unless they were centred."""
    state = net.state()
    if not state["basis_kept"]:
        return
    arcs, nodes = net.arcs(), net.nodes()
    np.testing.assert_array_equal(state["flow"][arcs], state["basis_flow"][arcs])
    potential = np.zeros(len(state["basis_potential"]), np.int64)
    potential[state["basis_name"]] = state["basis_potential"]
    if resumed:
        np.testing.assert_array_equal(state["potential"][nodes], potential[nodes])


@pytest.mark.parametrize("trust", [None, 0, 2**31 - 1])
@pytest.mark.parametrize("shape", [(8, 24), (20, 60), (60, 400)])
@pytest.mark.parametrize("seed", range(effort(1, 60)))
def test_histories(seed, shape, trust):
    """Repair and the simplex by turns, changes of every kind and size, copies through a state; `trust` forces what is looked at."""
    rng = np.random.default_rng([seed, *shape])
    mirror = from_problem(random_problem(rng, *shape, max_cost=50, negative=0))
    resumed = local = wide = 0
    for _ in range(effort(25, 40)):
        algorithm = str(rng.choice([SIMPLEX, SIMPLEX, SIMPLEX, "repair", "auto", "cost_scaling"]))
        answer = solved(mirror, algorithm, rng)
        stats = answer.stats if answer else {"algorithm": "none"}
        if stats["algorithm"] == SIMPLEX:
            check_alike(mirror.net, stats["resumed"])
            resumed += stats["resumed"]
            local += stats["local"]
            wide += stats["resumed"] and not stats["local"]
        if rng.random() < 0.15:
            mutate(mirror, rng)
        if trust is not None or rng.random() < 0.2:
            state = mirror.net.state()
            if trust is not None and state["basis_kept"]:
                state["basis_trust"] = trust
            mirror.net = FlowNetwork.from_state(state)
        change(mirror, rng)
    if shape[1] == 400:
        assert resumed
        assert trust is None or (local if trust else wide), "the look that was forced occurred"


@pytest.mark.parametrize("seed", range(effort(3, 30)))
def test_a_state_goes_on_like_the_original(seed):
    """What is named and what is compared in whole gives the same flow, adjacency and choices, bit for bit."""
    rng = np.random.default_rng(seed)
    mirror = from_problem(random_problem(rng, 40, 300, max_cost=9, negative=0))
    copies = 0
    for _ in range(20):
        if solved(mirror, "auto" if rng.random() < 0.7 else SIMPLEX, rng) is None:
            continue
        twin = FlowNetwork.from_state(mirror.net.state())
        arcs = [int(arc) for arc in rng.choice(list(mirror.arcs), 20, replace=False)]
        costs = rng.integers(0, 10, len(arcs))
        twin.set_cost(arcs, costs)
        mirror.set_arc("cost", arcs, costs.tolist())
        one, other = (net.solve(algorithm=SIMPLEX) for net in (mirror.net, twin))
        mirror.check_solution(one)
        assert one.changed.tolist() == other.changed.tolist()
        mine, its = mirror.net.state(), twin.state()
        assert all(np.array_equal(mine[name], its[name]) for name in mine)
        copies += one.stats.get("resumed", False)
        change(mirror, rng)
    assert copies


def lattice(side: int, rng: np.random.Generator) -> FlowProblem:
    """A square of nodes with arcs both ways between neighbours, wide enough for any flow."""
    at = np.arange(side * side).reshape(side, side)
    pairs = [(at[:, :-1], at[:, 1:]), (at[:-1], at[1:])]
    one = np.concatenate([first.ravel() for first, _ in pairs])
    two = np.concatenate([second.ravel() for _, second in pairs])
    tail, head = np.append(one, two), np.append(two, one)
    supply = np.zeros(side * side, np.int64)
    ends = rng.permutation(side * side)[:20]
    supply[ends[:10]], supply[ends[10:]] = 5, -5
    return FlowProblem(tail, head, np.full(len(tail), 8), rng.integers(20, 90, len(tail)), supply)


def test_a_small_change_is_looked_at_locally():
    """Most single changes cost a look at few arcs; what is compared with the network is what the basis has altered."""
    rng = np.random.default_rng(7)
    problem = lattice(40, rng)
    net = network(problem)
    net.solve(algorithm=SIMPLEX)
    supply, arcs = problem.supply.copy(), len(problem.tail)
    local = 0
    for seen in range(60):
        source, sink = rng.choice(np.flatnonzero(supply > 1)), rng.choice(np.flatnonzero(supply < -1))
        step = int(rng.choice([-1, 1]))
        supply[[source, sink]] += step, -step
        net.set_supply([source, sink], supply[[source, sink]])
        solution = net.solve(algorithm=SIMPLEX)
        net.certify()
        assert solution.cost == network(_with(problem, supply)).solve().cost
        if solution.stats.get("resumed") and seen:
            assert len(solution.changed) <= net._core.arcs_compared() < arcs // 4
            if solution.stats["local"]:
                local += 1
                assert solution.stats["priced"] < arcs
    assert local >= 30


def _with(problem: FlowProblem, supply: np.ndarray) -> FlowProblem:
    return FlowProblem(problem.tail, problem.head, problem.capacity, problem.cost, supply.copy())


def test_a_basis_is_made_where_it_would_have_paid():
    """Repair is taken while its cost in excess of the simplex's is below the price of a basis, then the simplex; what it took is remembered.

    The price is lower where there is the basis of the first solve.
    """
    rng = np.random.default_rng(3)
    problem = random_problem(rng, 300, 3000, max_cost=10_000, negative=0)
    net = network(problem)
    assert net.solve().stats["start"] == "shortest_paths"
    paid = net.state()["regret"]
    assert 0 < paid < 30 * 3000
    ways, regret, took = [], [], []
    for _ in range(60):
        arcs = rng.choice(3000, 6, replace=False)
        net.set_cost(arcs, rng.integers(0, 10_000, 6))
        stats = net.solve().stats
        ways.append(stats["algorithm"])
        regret.append(net.state()["regret"])
        took.append(_took(stats))
        net.certify()
    first = ways.index(SIMPLEX)
    assert first > 0
    likely = 2 * 3000 + 8 * 300  # of the simplex: two looks at the arcs, one at the nodes
    assert regret[first - 1] == paid + sum(max(each - likely, 0) for each in took[:first])
    assert all(now >= before for before, now in pairwise(regret[:first]))
    assert ways[first:].count(SIMPLEX) > (60 - first) // 2
    assert net.state()["regret"] == 0


def test_no_basis_is_made_while_nodes_come_and_go():
    rng = np.random.default_rng(4)
    problem = random_problem(rng, 300, 3000, max_cost=10_000, negative=0)
    net = network(problem)
    net.solve()
    for _ in range(30):
        new = net.add_nodes([0])
        net.add_arcs([0, int(new[0])], [int(new[0]), 1], [3, 3], [10_000, 10_000])
        arcs = rng.choice(3000, 2, replace=False)
        net.set_cost(arcs, rng.integers(0, 10_000, 2))
        assert net.solve().stats["algorithm"] == "repair"
        net.remove_nodes(new)
        assert net.state()["regret"] == 0


def test_the_way_that_seems_worse_is_tried_again():
    """After 8, 16, 32 ... solves; a record that is wrong is so put right."""
    rng = np.random.default_rng(5)
    problem = random_problem(rng, 300, 3000, max_cost=10_000, negative=0)
    net = network(problem)
    net.solve(algorithm=SIMPLEX)
    net.set_cost([0], [5])
    net.solve(algorithm=SIMPLEX)
    state = net.state()
    record = state["record"].reshape(-1, 2)
    record[:, 0], record[:, 1] = 1, 10**12  # repair costs nothing, the simplex half an hour
    net = FlowNetwork.from_state(state | {"record": record.ravel(), "since": 0, "until": 8})
    ways = []
    for _ in range(80):
        arcs = rng.choice(3000, 60, replace=False)
        net.set_cost(arcs, rng.integers(0, 10_000, 60))
        ways.append(net.solve().stats["algorithm"])
        net.certify()
    assert SIMPLEX in ways[:12], "tried"
    assert ways[40:].count(SIMPLEX) > 20, "and preferred"


def _took(stats: dict) -> int:
    """All that a solve counted, in the kernel's weights: about ns."""
    repaired = 3 * stats["walk_scans"] + 2 * stats["search_scans"] + 40 * stats["settled"]
    return repaired + stats.get("priced", 0) + 2 * stats.get("moved", 0) + 500 * stats.get("pivots", 0)


@pytest.mark.parametrize("seed", range(1, effort(3, 12)))
@pytest.mark.parametrize(
    "make",
    [
        lambda seed: general.sparse_assignment(512, 8, seed),
        lambda seed: general.grid(24, 24, seed),
        lambda seed: general.transport(40, 50, seed),
    ],
    ids=["assignment", "grid", "transport"],
)
def test_auto_takes_about_as_long_as_the_better_way(make, seed):
    """Repair that was given up is not tried again at once, nor given up where the simplex takes longer than what is left."""
    problem = make(seed)
    rng = np.random.default_rng(seed)
    edits = [(rng.choice(len(problem.tail), 60, replace=False), rng.permutation(problem.cost)[:60]) for _ in range(60)]
    took, costs, given_up = {}, {}, 0
    for way in ("auto", "repair", SIMPLEX):
        net = network(problem)
        net.solve()
        took[way], costs[way] = 0, []
        for arcs, prices in edits:
            net.set_cost(arcs, prices)
            solution = net.solve(algorithm=way)
            took[way] += _took(solution.stats)
            costs[way].append(solution.cost)
            given_up += way == "auto" and solution.stats["algorithm"] == SIMPLEX and solution.stats["walk_scans"] > 0
    assert costs["auto"] == costs["repair"] == costs[SIMPLEX]
    assert took["auto"] < 2.1 * min(took["repair"], took[SIMPLEX])
    assert given_up < 10
