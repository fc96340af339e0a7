"""Random sequences of mutations: after every step the warm answer is the cold one, certified."""

from __future__ import annotations

import numpy as np
import oracles
import pytest
from effort import effort
from netmodel import ALGORITHMS, from_problem, mend, mutate
from strategies import random_problem

from flowsched.exceptions import InfeasibleError
from flowsched.network import INF, FlowNetwork, min_cost_flow

STEPS = 50
SEQUENCES = effort(2, 40)  # of each parameter set: 4 algorithms, 4 budgets, 2 shapes
BUDGETS = [  # until an excess goes to the search, and until all goes to the simplex
    pytest.param((3000, -1), id="default"),
    pytest.param((1, -1), id="search at once"),
    pytest.param((20, 200), id="search soon, simplex later"),
    pytest.param((3000, 0), id="simplex at once"),
]
SHAPES = [
    pytest.param((8, 25), id="8 nodes"),
    pytest.param((14, 40), id="14 nodes"),
]


def solve_and_check(mirror, rng, algorithm):
    """Solve warm; an infeasible network is checked to be untouched and mended until it has a flow."""
    while True:
        problem = mirror.problem()
        arcs, nodes = mirror.arc_ids(), mirror.node_ids()
        before = mirror.net.flow(arcs), mirror.net.potential(nodes)
        try:
            solution = mirror.net.solve(algorithm=algorithm)
        except InfeasibleError as error:
            assert oracles.ortools(problem).status == oracles.INFEASIBLE
            cut = mirror.cut(error)
            oracles.check_cut(problem, cut)
            mirror.check_attributes()
            np.testing.assert_array_equal(mirror.net.flow(arcs), before[0])
            np.testing.assert_array_equal(mirror.net.potential(nodes), before[1])
            mend(mirror, cut, rng)
        else:
            mirror.check_solution(solution)
            assert solution.cost == min_cost_flow(**problem.arguments()).cost
            assert solution.cost == oracles.ortools(problem).cost
            return


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("seed", range(SEQUENCES))
def test_warm_equals_cold_after_every_mutation(seed, algorithm, budget, shape):
    walk(np.random.default_rng([seed, *shape]), shape, algorithm, budget)


def walk(rng, shape, algorithm, budget):
    """Mutate a random network again and again, and check every solve."""
    mirror = from_problem(random_problem(rng, *shape, max_cost=50))
    mirror.net._set_budget(*budget)
    solve_and_check(mirror, rng, algorithm)
    kinds = set()
    for _ in range(STEPS):
        for _ in range(int(rng.integers(1, 4))):
            kinds.add(mutate(mirror, rng))
        solve_and_check(mirror, rng, algorithm)
    mirror.check_attributes()
    assert len(kinds) > 5, "the sequence exercises most kinds of mutation"


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_algorithms_may_change_between_solves(algorithm, budget):
    rng = np.random.default_rng(7)
    mirror = from_problem(random_problem(rng, 12, 40, max_cost=50))
    mirror.net._set_budget(*budget)
    for step in range(effort(STEPS, 3 * STEPS)):
        solve_and_check(mirror, rng, algorithm if step % 2 else str(rng.choice(ALGORITHMS)))
        mutate(mirror, rng)


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("seed", range(effort(1, 10)))
def test_a_larger_network_under_change(seed, algorithm, budget):
    rng = np.random.default_rng(seed)
    mirror = from_problem(random_problem(rng, 120, 700))
    mirror.net._set_budget(*budget)
    for _ in range(20):
        solve_and_check(mirror, rng, algorithm)
        for _ in range(10):
            mutate(mirror, rng)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_nothing_changed_nothing_to_report(algorithm):
    mirror = from_problem(random_problem(np.random.default_rng(1), 30, 200))
    first = mirror.net.solve(algorithm=algorithm)
    again = mirror.net.solve(algorithm=algorithm)
    assert again.cost == first.cost
    assert again.changed.tolist() == []


def test_a_small_change_is_solved_locally():
    """A counter proves that the second solve starts from the first: it must not touch most of the network."""
    problem = random_problem(np.random.default_rng(3), 400, 4000, negative=0)
    mirror = from_problem(problem)
    mirror.check_solution(mirror.net.solve())
    arc = mirror.arc_ids()[:1].tolist()
    mirror.set_arc("cost", arc, [mirror.arcs[arc[0]].cost + 1])
    solution = mirror.net.solve()
    mirror.check_solution(solution)
    assert len(solution.changed) < 100


@pytest.mark.parametrize("algorithm", ["auto", "repair"])
def test_an_unlimited_arc_that_empties_is_no_reason_to_look_at_all_arcs(algorithm):
    net = FlowNetwork()
    source, sink, *others = net.add_nodes(1002)
    dear, cheap = net.add_arcs([source] * 2, [sink] * 2, capacity=INF, cost=[5, 9])
    net.add_arcs(others[:-1], others[1:], capacity=1, cost=1)
    net.set_supply([source, sink], [3, -3])
    net.solve(algorithm=algorithm)
    assert net.flow([dear, cheap]).tolist() == [3, 0]
    net.set_cost([cheap], [1])
    answer = net.solve(algorithm=algorithm)
    assert net.flow([dear, cheap]).tolist() == [0, 3]
    assert answer.stats["walk_scans"] + answer.stats["search_scans"] < 50
