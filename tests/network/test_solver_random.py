"""Random instances, judged by other solvers and by certificates."""

from __future__ import annotations

import numpy as np
import oracles
import pytest
from effort import effort
from hypothesis import given, settings
from netmodel import ALGORITHMS
from oracles import INFEASIBLE, OPTIMAL, UNBOUNDED
from strategies import any_problems, feasible_problems, random_problem, tiny_problems

from flowsched.exceptions import InfeasibleError, UnboundedError
from flowsched.network import certify, min_cost_flow

algorithms = pytest.mark.parametrize("algorithm", ALGORITHMS)


def judge(problem, answer, algorithm):
    """Solve a problem, compare with the oracle's answer and check the certificate, whatever the outcome is."""
    try:
        result = min_cost_flow(**problem.arguments(), algorithm=algorithm)
    except InfeasibleError as error:
        assert answer.status == INFEASIBLE
        oracles.check_cut(problem, error.cut)
    except UnboundedError as error:
        # an oracle that finds no flow has not looked for cycles
        assert answer.status in (UNBOUNDED, INFEASIBLE)
        oracles.check_cycle(problem, error.cycle)
    else:
        assert (answer.status, answer.cost) == (OPTIMAL, result.cost)
        oracles.check_optimal(problem, result.flow, result.cost, result.potential)
        certify(**problem.arguments(), result=result)


@algorithms
@given(problem=feasible_problems())
@settings(max_examples=effort(50, 700))
def test_feasible_against_ortools(problem, algorithm):
    judge(problem, oracles.optimum(problem), algorithm)


@algorithms
@given(problem=any_problems())
@settings(max_examples=effort(50, 700))
def test_any_against_ortools(problem, algorithm):
    judge(problem, oracles.optimum(problem), algorithm)


@algorithms
@given(problem=feasible_problems())
@settings(max_examples=effort(15, 350))
def test_feasible_against_networkx_simplex(problem, algorithm):
    judge(problem, oracles.optimum(problem, oracles.networkx), algorithm)


@algorithms
@given(problem=any_problems())
@settings(max_examples=effort(15, 350))
def test_any_against_networkx_simplex(problem, algorithm):
    judge(problem, oracles.optimum(problem, oracles.networkx), algorithm)


@algorithms
@given(problem=feasible_problems(max_nodes=5, max_arcs=10))
@settings(max_examples=effort(15, 150))
def test_feasible_against_networkx_capacity_scaling(problem, algorithm):
    judge(problem, oracles.optimum(problem, lambda p: oracles.networkx(p, "capacity_scaling")), algorithm)


@algorithms
@given(problem=tiny_problems())
@settings(max_examples=effort(15, 150))
def test_tiny_against_brute_force(problem, algorithm):
    judge(problem, oracles.brute_force(problem), algorithm)


@given(problem=tiny_problems())
@settings(max_examples=effort(15, 150))
def test_oracles_agree(problem):
    answer = oracles.brute_force(problem)
    assert oracles.ortools(problem) == answer
    assert oracles.networkx(problem) == answer
    assert oracles.networkx(problem, "capacity_scaling") == answer


@algorithms
@pytest.mark.parametrize("seed", range(effort(1, 20)))
@pytest.mark.parametrize(
    ("nodes", "arcs", "options"),
    [
        pytest.param(40, 300, {}, id="mixed"),
        pytest.param(200, 2000, {"negative": 0, "lower": 0}, id="plain"),
        pytest.param(300, 400, {"max_flow": 1}, id="sparse unit"),
        pytest.param(15, 3000, {"max_cost": 3}, id="dense, many ties"),
        pytest.param(100, 1000, {"max_cost": 10**12, "max_flow": 10**5}, id="large numbers"),
    ],
)
def test_larger_against_ortools(nodes, arcs, options, seed, algorithm):
    problem = random_problem(np.random.default_rng(seed), nodes, arcs, **options)
    judge(problem, oracles.optimum(problem), algorithm)


@algorithms
@pytest.mark.parametrize("seed", range(effort(2, 6)))
def test_larger_infeasible(seed, algorithm):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, 60, 300, unlimited=0)
    sender, taker = rng.choice(60, 2, replace=False)
    problem.supply[sender] += 10**4
    problem.supply[taker] -= 10**4
    judge(problem, oracles.optimum(problem), algorithm)


@algorithms
@pytest.mark.parametrize("seed", range(effort(2, 6)))
def test_larger_unbounded(seed, algorithm):
    problem = random_problem(np.random.default_rng(seed), 60, 600, unlimited=0.5)
    problem.cost[problem.cost > 80] *= -1
    judge(problem, oracles.optimum(problem), algorithm)
