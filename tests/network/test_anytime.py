"""Time limits: a solve may stop at any look at the clock; what it gives is feasible and bounded, and the next one goes on from there.

The clock is a counter here: each look at it is a second later than the one before, so that a limit of k seconds ends a solve at its k-th look.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import numpy as np
import oracles
import pytest
from effort import effort
from netmodel import ALGORITHMS
from strategies import random_problem

import flowsched as fs
from bench.solver.instances import SchedFamily
from flowsched import _faults
from flowsched.network import FlowNetwork
from flowsched.network.problem import FlowProblem

SIMPLEX = "network_simplex"


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> Iterator[itertools.count[int]]:
    """A clock that goes on by a second with each look."""
    ticks = itertools.count(1_000)
    monkeypatch.setattr(time, "monotonic", lambda: float(next(ticks)))
    before = _faults.look_every(2_000)
    yield ticks
    _faults.look_every(before)


def network(problem: FlowProblem) -> FlowNetwork:
    net = FlowNetwork()
    net.add_nodes(problem.supply)
    net.add_arcs(problem.tail, problem.head, problem.capacity, problem.cost, problem.lower)
    return net


def grid(side: int, seed: int) -> FlowProblem:
    """Sources and sinks at random on a square of streets."""
    rng = np.random.default_rng(seed)
    ids = np.arange(side * side).reshape(side, side)
    ends = [(ids[:, :-1], ids[:, 1:]), (ids[:-1], ids[1:])]
    tail = np.concatenate([x.ravel() for a, b in ends for x in (a, b)])
    head = np.concatenate([x.ravel() for a, b in ends for x in (b, a)])
    supply = np.zeros(side * side, np.int64)
    order = rng.permutation(side * side)
    some = side * side // 8
    supply[order[:some]], supply[order[some : 2 * some]] = 10, -10
    return FlowProblem(tail, head, rng.integers(20, 200, len(tail)), rng.integers(1, 1000, len(tail)), supply)


def scattered(nodes: int, arcs: int, seed: int) -> FlowProblem:
    """Arcs at random, and a ring that makes it feasible."""
    rng = np.random.default_rng(seed)
    tail, head = rng.integers(0, nodes, (2, arcs))
    capacity, cost = rng.integers(1, 100, arcs), rng.integers(1, 10_000, arcs)
    tail[:nodes], head[:nodes], capacity[:nodes] = np.arange(nodes), np.roll(np.arange(nodes), -1), 10**6
    supply = np.zeros(nodes, np.int64)
    order = rng.permutation(nodes)
    some = nodes // 10
    supply[order[:some]], supply[order[some : 2 * some]] = 40, -40
    return FlowProblem(tail, head, capacity, cost, supply)


def sched(machines: int, tasks: int, seed: int = 1) -> FlowProblem:
    return SchedFamily(machines, slots=4, tasks=tasks, seed=seed).problem()


FAMILIES = {
    "grid": lambda seed: grid(20, seed),
    "scattered": lambda seed: scattered(500, 4_000, seed),
    "full cluster": lambda seed: sched(150, 600, seed),
    "overfull cluster": lambda seed: sched(150, 700, seed),
}
NETWORKS = {name: family(seed) for (name, family), seed in zip(FAMILIES.items(), (0, 1, 1, 1), strict=True)}
OPTIMA = {name: network(problem).solve().cost for name, problem in NETWORKS.items()}


def check(problem: FlowProblem, flow: np.ndarray, cost: int, gap: int, optimum: int) -> None:
    """A feasible flow of that cost, which the gap relates to the optimum."""
    assert (flow >= problem.lower).all()
    assert (flow <= problem.capacity).all()
    excess = problem.supply.copy()
    np.subtract.at(excess, problem.tail, flow)
    np.add.at(excess, problem.head, flow)
    assert not excess.any()
    assert sum(map(int, flow.astype(object) * problem.cost)) == cost
    assert optimum <= cost <= optimum + gap


def stops(problem: FlowProblem, algorithm: str, optimum: int, limits: list[int]) -> tuple[int, int]:
    """Stop at each of these looks; return the numbers of late answers, and of times without any."""
    late = without = 0
    for limit in limits:
        net = network(problem)
        try:
            solution = net.solve(algorithm=algorithm, time_limit=limit)
        except fs.TimeLimitError:
            without += 1
            assert not net.flow().any()
        else:
            check(problem, net.flow(), solution.cost, solution.stats["gap"], optimum)
            late += solution.stats["gap"] > 0
        copy = net.copy()  # which checks all
        assert net.solve().cost == optimum
        net.certify()
        assert copy.solve().cost == optimum
        copy.certify()
    return late, without


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_solve_may_stop_at_any_look_at_the_clock(name: str, algorithm: str, ticking: itertools.count[int]) -> None:
    late, without = stops(NETWORKS[name], algorithm, OPTIMA[name], [0, 1, 2, 3, 5, 8, 13, 21, 34, 55])
    assert late + without > 3


@pytest.mark.parametrize("seed", range(effort(2, 60)))
def test_small_networks_of_all_kinds(seed: int, ticking: itertools.count[int]) -> None:
    """Lower bounds, negative costs, arcs without limit, infeasible and unbounded ones."""
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, 5 + 3 * seed % 40, 20 + 12 * seed % 160)
    answer = oracles.ortools(problem)
    for algorithm in ALGORITHMS:
        for limit in (0, 1, 2, 4):
            net = network(problem)
            try:
                solution = net.solve(algorithm=algorithm, time_limit=limit)
            except fs.TimeLimitError:
                pass
            except fs.InfeasibleError:
                assert answer.status != oracles.OPTIMAL
            except fs.UnboundedError:
                assert oracles.negative_unlimited_cycle(problem)
            else:
                assert answer.status == oracles.OPTIMAL
                check(problem, net.flow(), solution.cost, solution.stats["gap"], answer.cost)
            if answer.status == oracles.OPTIMAL:
                assert net.solve(algorithm=algorithm).cost == answer.cost
                net.certify()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_next_solve_goes_on(family: str, ticking: itertools.count[int]) -> None:
    """In pivots: stopped several times, and then to the end, takes little more than at once; also from a copy.

    One network takes up to a quarter more or less than another one of its family, hence the mean.
    """
    taken = [_stopped_twice(FAMILIES[family](seed), ticking) for seed in range(effort(6, 24))]
    assert np.mean(taken) <= 1.3


def _stopped_twice(problem: FlowProblem, ticking: itertools.count[int]) -> float:
    """Return the pivots of solves that are stopped and one that is not, in units of those of one solve."""
    start = next(ticking)
    once = network(problem).solve(algorithm=SIMPLEX, time_limit=10**6)
    looks = next(ticking) - start
    net, pivots, stopped = network(problem), 0, 0
    for part in (0.5, 0.5):
        try:
            solution = net.solve(algorithm=SIMPLEX, time_limit=part * looks)
        except fs.TimeLimitError:  # its pivots are not told
            stopped += 1
            continue
        pivots += solution.stats.get("pivots", 0)
        stopped += solution.stats["gap"] > 0
        net = net.copy()
    solution = net.solve(algorithm=SIMPLEX)
    assert solution.cost == once.cost
    net.certify()
    assert stopped
    return (pivots + solution.stats.get("pivots", 0)) / once.stats["pivots"]


@pytest.mark.parametrize("seed", range(effort(2, 60)))
def test_changes_after_a_stop(seed: int, ticking: itertools.count[int]) -> None:
    """Costs, capacities and supplies change between solves that are stopped; arcs come, too, and the optimum is found."""
    rng = np.random.default_rng(seed)
    problem = scattered(200, 1_500, seed)
    net = network(problem)
    resumed = 0
    for step in range(12):
        try:
            solution = net.solve(algorithm=["auto", SIMPLEX][step % 2], time_limit=int(rng.integers(1, 60)))
        except fs.TimeLimitError:
            pass
        else:
            resumed += solution.stats.get("resumed", False)
            now = FlowProblem(net.tail(), net.head(), net.capacity(), net.cost(), net.supply(), net.lower())
            optimum = network(now).solve().cost
            check(now, net.flow(), solution.cost, solution.stats["gap"], optimum)
        fs.FlowNetwork.from_state(net.state())
        some = rng.choice(1_500, 20, replace=False)
        net.set_cost(some, rng.integers(0, 10_000, 20))
        net.set_capacity(some[some >= 200], rng.integers(0, 100, len(some[some >= 200])))
        giver, taker = rng.choice(200, 2, replace=False)
        net.set_supply([giver, taker], net.supply([giver, taker]) + [7, -7])
        if step % 5 == 4:
            net.add_arcs([giver], [taker], [9], [50])
    cost = net.solve().cost
    net.certify()
    now = FlowProblem(net.tail(), net.head(), net.capacity(), net.cost(), net.supply(), net.lower())
    assert cost == oracles.ortools(now).cost
    assert resumed


def test_one_problem_under_a_limit(ticking: itertools.count[int]) -> None:
    problem = scattered(2_000, 16_000, 3)
    optimum = network(problem).solve().cost
    start = next(ticking)
    fs.min_cost_flow(**problem.arguments(), time_limit=10**6)
    looks = next(ticking) - start
    late = 0
    for part in (0, 0.1, 0.3, 0.5, 0.7, 0.9, 2):
        try:
            result = fs.min_cost_flow(**problem.arguments(), time_limit=part * looks)
        except fs.TimeLimitError:
            continue
        check(problem, result.flow, result.cost, result.stats["gap"], optimum)
        late += result.stats["gap"] > 0
    assert late


@pytest.mark.parametrize("name", NETWORKS)
def test_an_answer_gets_better_with_the_limit(name: str, ticking: itertools.count[int]) -> None:
    """The first feasible flow may cost anything; at nine tenths of the looks it is close."""
    problem = NETWORKS[name]
    _faults.look_every(500)  # some dozens of looks
    start = next(ticking)
    network(problem).solve(algorithm=SIMPLEX, time_limit=10**6)
    looks = next(ticking) - start
    solution = network(problem).solve(algorithm=SIMPLEX, time_limit=0.9 * looks)
    assert solution.cost <= 1.1 * OPTIMA[name]


@pytest.mark.long
@pytest.mark.parametrize("name", ["full cluster", "overfull cluster"])
def test_what_a_stopped_simplex_has_is_kept_while_repair_answers(name: str, ticking: itertools.count[int]) -> None:
    """In time for repair's answer the simplex stops, and goes on next time; without time to begin, it comes first next time."""
    _faults.look_every(8_000, 200)
    kinds = set()
    for limit in range(40, 400, 4):
        net = network(NETWORKS[name])
        try:
            solution = net.solve(time_limit=limit)
        except fs.TimeLimitError:
            continue
        check(NETWORKS[name], net.flow(), solution.cost, solution.stats["gap"], OPTIMA[name])
        answered = solution.stats["algorithm"]
        copy = net.copy()
        solution = net.solve()
        assert solution.cost == copy.solve().cost == OPTIMA[name]
        net.certify()
        copy.certify()
        if answered == "repair" and solution.stats.get("resumed"):
            kinds.add("goes on")
        elif solution.stats["algorithm"] == SIMPLEX and not solution.stats["walk_scans"]:
            kinds.add("comes first")
    assert kinds == {"goes on", "comes first"}


def test_a_slow_start_does_not_make_the_rest_seem_slow(
    ticking: itertools.count[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is touched for the first time before the first look, so until then a scanned half-arc takes many times what it takes from then on."""
    problem = scattered(2_000, 16_000, 1)
    begun = next(ticking)

    def clock() -> float:
        now = next(ticking)
        return float(now + 300 * (now > begun + 1))

    monkeypatch.setattr(time, "monotonic", clock)
    solution = network(problem).solve(time_limit=5_000)
    assert solution.stats["algorithm"] == SIMPLEX
    assert solution.cost <= 1.05 * network(problem).solve().cost
