"""The simplex's last basis serves again after changes of costs, capacities and supplies, and only then."""

from __future__ import annotations

import pickle

import numpy as np
import oracles
import pytest
from effort import effort
from netmodel import Mirror, from_problem, solved
from strategies import random_problem

from bench.solver import general
from flowsched.exceptions import InfeasibleError, UnboundedError
from flowsched.network import INF, FlowNetwork
from flowsched.network.problem import FlowProblem

SIMPLEX = "network_simplex"


def change(mirror: Mirror, rng: np.random.Generator, most: int) -> None:
    """New costs, capacities and supplies of up to `most` arcs and nodes; nothing comes, nothing goes."""
    arcs, nodes = list(mirror.arcs), list(mirror.supply)
    count = int(rng.integers(1, most + 1))
    chosen = [int(arc) for arc in rng.choice(arcs, min(count, len(arcs)), replace=False)]
    kind = rng.choice(["cost", "capacity", "supply"])
    if kind == "cost":
        least = [0 if mirror.arcs[arc].capacity >= INF else -30 for arc in chosen]
        mirror.set_arc("cost", chosen, [int(rng.integers(low, 51)) for low in least])
    elif kind == "capacity":
        limited = [arc for arc in chosen if mirror.arcs[arc].capacity < INF]
        mirror.set_arc("capacity", limited, [mirror.arcs[arc].lower + int(rng.integers(0, 6)) for arc in limited])
    else:
        for _ in range(count):
            giver, taker = (int(node) for node in rng.choice(nodes, 2, replace=False))
            amount = int(rng.integers(0, 4))
            mirror.set_supply([giver, taker], [mirror.supply[giver] + amount, mirror.supply[taker] - amount])


@pytest.mark.parametrize("algorithm", [SIMPLEX, "auto"])
@pytest.mark.parametrize("shape", [(6, 20), (14, 40), (60, 400)])
@pytest.mark.parametrize("seed", range(effort(2, 60)))
def test_a_kept_basis_finds_the_optimum(seed, shape, algorithm):
    rng = np.random.default_rng([seed, *shape])
    mirror = from_problem(random_problem(rng, *shape, max_cost=50))
    mirror.net._set_budget(3000, 0)  # the simplex at once
    resumed = by_simplex = 0
    for _ in range(25):
        solution = solved(mirror, algorithm, rng)
        if solution is None:
            continue
        by_simplex += solution.stats["algorithm"] == SIMPLEX
        resumed += solution.stats.get("resumed", False)
        change(mirror, rng, max(2, shape[1] // 20))
    assert resumed or by_simplex < 2, "the basis serves again"


@pytest.mark.parametrize("seed", range(effort(1, 30)))
def test_a_basis_whose_nodes_were_numbered_anew(seed):
    """Nodes of a large network are renumbered while the simplex runs; cuts, potentials and new supplies still mean the caller's."""
    rng = np.random.default_rng(seed)
    n = 2500
    problem = random_problem(rng, n, 3 * n)
    ring = np.arange(n)
    mirror = from_problem(
        FlowProblem(
            np.append(problem.tail, ring),
            np.append(problem.head, (ring + 1) % n),
            np.append(problem.capacity, np.full(n, 10**6)),
            np.append(problem.cost, rng.integers(200, 300, n)),
            problem.supply,
            np.append(problem.lower, np.zeros(n, np.int64)),
        )
    )
    arcs = list(mirror.arcs)
    for round_ in range(6):
        solution = mirror.net.solve(algorithm=SIMPLEX)
        mirror.check_solution(solution)
        assert solution.cost == oracles.ortools(mirror.problem()).cost
        assert solution.stats["resumed"] == (round_ > 0)
        mirror.net.certify()
        mirror.set_arc("cost", arcs[round_::100], rng.integers(0, 300, len(arcs[round_::100])).tolist())
        givers, takers = rng.permutation(n)[:40].reshape(2, 20).tolist()
        mirror.set_supply(
            givers + takers, [mirror.supply[v] + 9 for v in givers] + [mirror.supply[v] - 9 for v in takers]
        )
    mirror.set_arc("capacity", arcs[3 * n :], [0] * n)
    problem = mirror.problem()
    with pytest.raises(InfeasibleError) as error:
        mirror.net.solve(algorithm=SIMPLEX)
    oracles.check_cut(problem, mirror.cut(error.value))


def test_a_basis_whose_nodes_were_numbered_anew_for_what_moved():
    """A pivot of a grid moves so many potentials that nodes are renumbered long before as many pivots as nodes."""
    problem = general.grid(128, 260, 0)
    net = FlowNetwork()
    net.add_nodes(problem.supply)
    arcs = net.add_arcs(problem.tail, problem.head, problem.capacity, problem.cost)
    stats = net.solve(algorithm=SIMPLEX).stats
    net.certify()
    assert stats["moved"] > 40 * len(arcs)
    assert stats["pivots"] < len(problem.supply)
    net.set_cost(arcs[::1000], 7)
    stats = net.solve(algorithm=SIMPLEX).stats
    net.certify()
    assert stats["resumed"]


def diamond() -> tuple[FlowNetwork, np.ndarray]:
    """Two ways of two arcs from node 0 to node 3."""
    net = FlowNetwork()
    net.add_nodes([4, 0, 0, -4])
    return net, net.add_arcs([0, 1, 0, 2], [1, 3, 2, 3], [5, 5, 5, 5], [1, 1, 2, 2])


def test_what_the_basis_survives_and_what_not():
    net, arcs = diamond()

    def resumed() -> bool:
        solution = net.solve(algorithm=SIMPLEX)
        net.certify()
        return solution.stats.get("resumed", False)

    assert not resumed(), "there is none yet"
    net.set_cost(arcs[:1], [9])
    assert resumed()
    assert net.flow(arcs).tolist() == [0, 0, 4, 4]
    net.set_capacity(arcs[2:3], [3])
    assert resumed()
    assert net.flow(arcs).tolist() == [1, 1, 3, 3]
    net.set_supply([0, 3], [6, -6])
    assert resumed()
    assert net.flow(arcs).tolist() == [3, 3, 3, 3]
    more = net.add_arcs([0], [3], [9], [0])
    assert not resumed(), "an arc came"
    net.set_cost(more, [20])
    assert resumed()
    net.remove_arcs(more)
    assert not resumed(), "an arc went"
    net.set_cost(arcs[:1], [1])
    net.set_lower(arcs[2:3], [1])
    assert not resumed(), "lower bounds are in its supplies"
    assert net.flow(arcs).tolist() == [5, 5, 1, 1]
    net.set_cost(arcs[:1], [9])
    assert resumed()
    assert net.flow(arcs).tolist() == [3, 3, 3, 3]


def test_supplies_that_outgrow_the_first_ones_need_a_new_basis():
    net = FlowNetwork()
    net.add_nodes([1, -1])
    arcs = net.add_arcs([0, 0], [1, 1], [2, INF], [1, 5])
    for supply in (1, 2, 3, 100, 10**6, 10**12, 10**15, 1):
        net.set_supply([0, 1], [supply, -supply])
        net.set_cost(arcs, [1, 5 + supply % 7])
        solution = net.solve(algorithm=SIMPLEX)
        assert solution.cost == min(supply, 2) + max(supply - 2, 0) * (5 + supply % 7)
        net.certify()


def test_an_unlimited_arc_whose_cost_turns_negative():
    net, arcs = diamond()
    net.set_capacity(arcs[:1], INF)
    back = net.add_arcs([1], [0], INF, [3])
    net.solve(algorithm=SIMPLEX)
    net.set_cost(back, [-3])
    with pytest.raises(UnboundedError) as error:
        net.solve(algorithm=SIMPLEX)
    assert sorted(error.value.cycle.tolist()) == [arcs[0], back[0]]
    net.set_cost(back, [-1])
    assert net.solve(algorithm=SIMPLEX).cost == 8


def test_infeasible_in_between():
    net, arcs = diamond()
    first = net.solve(algorithm=SIMPLEX).cost
    net.set_capacity(arcs, 1)
    with pytest.raises(InfeasibleError) as error:
        net.solve(algorithm=SIMPLEX)
    assert error.value.cut[0]
    assert not error.value.cut[3]
    net.set_capacity(arcs, 5)
    assert net.solve(algorithm=SIMPLEX).cost == first


def test_auto_keeps_the_basis_of_a_network_whose_repair_is_long():
    """All rounds that are too long for repair start from the basis, the first one from that of the first solve."""
    rng = np.random.default_rng(5)
    mirror = from_problem(random_problem(rng, 300, 3000, negative=0))
    mirror.net._set_budget(3000, 0)
    mirror.check_solution(mirror.net.solve())
    resumed = []
    for _ in range(3):
        arcs = [int(arc) for arc in rng.choice(list(mirror.arcs), 300, replace=False)]
        mirror.set_arc("cost", arcs, rng.integers(0, 100, len(arcs)).tolist())
        solution = mirror.net.solve()
        mirror.check_solution(solution)
        resumed.append(solution.stats["resumed"])
    assert resumed == [True, True, True]
    assert mirror.net.nbytes > from_problem(mirror.problem()).net.nbytes, "the basis is counted"


def test_the_basis_of_a_first_solve_serves_where_sources_were_taken_for_unlimited():
    """What a pure source sends through a full arc was given room without end, so the tree is no longer strongly feasible when that is taken back."""
    rng = np.random.default_rng(8)
    problem = general.sparse_assignment(60, 6, 1)
    mirror = from_problem(problem)
    mirror.net._set_budget(3000, 0)
    assert not mirror.check_solution(mirror.net.solve()) and mirror.net.solve().stats["algorithm"] == "repair"
    for _ in range(5):
        arcs = [int(arc) for arc in rng.choice(list(mirror.arcs), 20, replace=False)]
        mirror.set_arc("cost", arcs, rng.integers(0, 100, len(arcs)).tolist())
        solution = mirror.net.solve()
        mirror.check_solution(solution)
        assert solution.cost == oracles.ortools(mirror.problem()).cost
        mirror.net.certify()
    assert solution.stats["resumed"]


@pytest.mark.parametrize("congested", [True, False])
def test_auto_takes_the_basis_of_a_first_solve_at_once_where_the_network_is_congested(congested):
    problem = general.grid(32, 64, 0) if congested else general.road(16, 32, 0)
    net = FlowNetwork()
    net.add_nodes(problem.supply)
    arcs = net.add_arcs(problem.tail, problem.head, problem.capacity, problem.cost)
    first = net.solve(algorithm="auto").stats
    assert first["algorithm"] == SIMPLEX
    assert (first["start"] == "coarse") == congested
    used = np.flatnonzero(net.flow(arcs))[:5]
    net.set_cost(arcs[used], problem.cost[used] * 2)
    stats = net.copy().solve().stats
    assert stats == net.solve().stats | {"seconds": stats["seconds"]}
    assert (stats["algorithm"] == SIMPLEX) == congested
    net.certify()


@pytest.mark.parametrize("seed", range(effort(2, 40)))
def test_a_copy_goes_on_from_the_same_basis(seed):
    """Copies and pickles solve as the network itself does: the same ways, the same flow among equal ones, the same counts."""
    rng = np.random.default_rng(seed)
    mirror = from_problem(random_problem(rng, 40, 200, max_cost=5, negative=0))
    mirror.net._set_budget(3000, 0)
    mirror.net.solve()
    resumed = 0
    for _ in range(12):
        arcs = [int(arc) for arc in rng.choice(list(mirror.arcs), 8, replace=False)]
        costs, others = rng.integers(0, 6, (2, len(arcs))).tolist()
        mirror.set_arc("cost", arcs, costs)
        copies = [mirror.net, mirror.net.copy(), pickle.loads(pickle.dumps(mirror.net))]
        before = mirror.net.nbytes
        assert all(abs(net.nbytes - before) < before / 2 for net in copies)
        found = []
        for net in copies:
            net.set_cost(arcs, others)
            solution = net.solve()
            stats = {name: value for name, value in solution.stats.items() if name != "seconds"}
            found.append(
                (solution.cost, solution.changed.tolist(), net.flow().tolist(), net.potential().tolist(), stats)
            )
        assert found[0] == found[1] == found[2]
        resumed += found[0][-1].get("resumed", False)
        for arc, cost in zip(arcs, others, strict=True):
            mirror.arcs[arc].cost = cost
    assert resumed
