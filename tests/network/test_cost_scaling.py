"""``algorithm="cost_scaling"``: it answers by itself, cold and warm, with an optimum and its proof."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import oracles
import pytest
from effort import effort
from hypothesis import given, settings
from netmodel import from_problem, mutate, network, solved
from oracles import INFEASIBLE, OPTIMAL, UNBOUNDED
from strategies import any_problems, random_problem

from bench.solver import general
from bench.solver.instances import LiveNetwork, Rounds, SchedFamily
from flowsched.exceptions import CostRangeError, InfeasibleError, UnboundedError
from flowsched.kernels import scaling
from flowsched.kernels import status as statuses
from flowsched.network import INF, FlowNetwork, certify, min_cost_flow
from flowsched.network.problem import FlowProblem

SCALING = "cost_scaling"
NONE = np.zeros(0, np.int64)
LOADS = [
    (9, 4, 5),
    (9, 4, 40),
    (50, 4, 100),
    (100, 4, 390),
    (100, 4, 400),
    (100, 4, 600),
    (40, 24, 500),
    (300, 4, 1100),
]
GENERAL = general.families(quick=True)


def kernel(problem, *, stop=0, flow=NONE, potential=NONE, epsilon=0, limit=-1.0, proof=None):
    """The kernel itself: (status, answer, proof, stats)."""
    ends = (problem.tail.astype(np.int32), problem.head.astype(np.int32))
    columns = (*ends, problem.capacity, problem.cost, problem.supply, problem.lower, flow, potential)
    solver = scaling.Scaling(*map(np.ascontiguousarray, columns))
    if proof is not None:
        solver.set_budget(proof)
    return solver.solve(epsilon, stop, limit)


def by_itself(stats) -> bool:
    return stats["algorithm"] == SCALING and "pivots" not in stats


def check_whole(problem, flow, potential, epsilon) -> None:
    """The flow is within its bounds, balanced, and `epsilon`-optimal for these potentials, for no smaller epsilon."""
    assert (flow >= problem.lower).all() and (flow <= problem.capacity).all()
    balance = problem.supply.copy()
    np.subtract.at(balance, problem.tail, flow)
    np.add.at(balance, problem.head, flow)
    assert not balance.any()
    reduced = problem.cost + potential[problem.tail] - potential[problem.head]
    worst = max(
        int((-reduced[flow < problem.capacity]).max(initial=0)), int(reduced[flow > problem.lower].max(initial=0))
    )
    assert worst == epsilon


# -- who answers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("load", LOADS, ids=str)
def test_scheduling_networks_are_its_own(load):
    machines, slots, tasks = load
    problem = SchedFamily(machines, slots=slots, tasks=tasks, seed=tasks).problem()
    best = oracles.ortools(problem).cost
    once = min_cost_flow(**problem.arguments(), algorithm=SCALING)
    kept = network(problem).solve(algorithm=SCALING)
    for answer in (once, kept):
        assert by_itself(answer.stats) and answer.stats["refines"] > 0
        assert answer.cost == best
    oracles.check_optimal(problem, once.flow, once.cost, once.potential)


@pytest.mark.parametrize("name", GENERAL)
def test_general_networks_are_its_own(name):
    problem = GENERAL[name](1)
    once = min_cost_flow(**problem.arguments(), algorithm=SCALING)
    net = network(problem)
    kept = net.solve(algorithm=SCALING)
    assert by_itself(once.stats) and by_itself(kept.stats)
    assert once.cost == kept.cost == oracles.ortools(problem).cost
    certify(**problem.arguments(), result=once)
    net.certify()


@pytest.mark.parametrize(("machines", "slots", "tasks"), [(100, 4, 200), (100, 4, 390), (100, 4, 600), (40, 24, 500)])
@pytest.mark.parametrize("k", [1, 20])
def test_rounds_are_its_own_and_local(machines, slots, tasks, k):
    drawn = Rounds(SchedFamily(machines, slots=slots, tasks=tasks, seed=3), k, 12)
    live = LiveNetwork(drawn.family, drawn.first, drawn.first_jobs)
    live.net.solve(algorithm=SCALING)
    scans = []
    for number, change in enumerate(drawn.changes):
        live.apply(live.prepare(change))
        solution = live.net.solve(algorithm=SCALING)
        assert by_itself(solution.stats) and solution.stats["warm"]
        assert solution.cost == oracles.ortools(drawn.family.problem(drawn.tasks_after(number + 1))).cost
        live.net.certify()
        scans.append(solution.stats["walk_scans"] + solution.stats["search_scans"] + solution.stats["refines"] * 10**9)
    if k == 1:  # a change reaches a part of the network only
        assert np.median(scans) < len(live.net.arcs())


# -- the kernel against other solvers ---------------------------------------------------------------------------------


def judge(problem, proof):
    status, answer, potential, stats = kernel(problem, proof=proof)
    told = oracles.optimum(problem)
    if status == statuses.OK:
        assert told.status == OPTIMAL and stats["epsilon"] == 0
        oracles.check_optimal(problem, answer, told.cost, potential)
    elif status == statuses.INFEASIBLE:
        assert told.status == INFEASIBLE
        oracles.check_cut(problem, answer)
    else:
        assert status == statuses.UNBOUNDED and told.status in (UNBOUNDED, INFEASIBLE)
        oracles.check_cycle(problem, answer)


@pytest.mark.parametrize("proof", [None, 0, 1])
@given(problem=any_problems())
@settings(max_examples=effort(50, 1500))
def test_any_problem(problem, proof):
    if not problem.supply.sum():
        judge(problem, proof)


@pytest.mark.parametrize("proof", [None, 0])
@pytest.mark.parametrize("shape", [(5, 12), (12, 60), (40, 200), (60, 900)])
@pytest.mark.parametrize("seed", range(effort(2, 80)))
def test_random_networks(seed, shape, proof):
    """Lower bounds, negative costs, unlimited and parallel arcs, self-loops; with no budget the last phase is at 1 / (n + 1)."""
    problem = random_problem(np.random.default_rng([seed, *shape]), *shape)
    judge(problem, proof)


@pytest.mark.parametrize("seed", range(effort(3, 100)))
@pytest.mark.parametrize("top", [2**20, 2**33, 2**44])
def test_dear_arcs(seed, top):
    rng = np.random.default_rng([seed, top])
    problem = random_problem(rng, 12, 50)
    factor = top // max(int(np.abs(problem.cost).max()), 1)
    dear = FlowProblem(
        problem.tail, problem.head, problem.capacity, problem.cost * factor + rng.integers(-9, 10, 50) * (problem.cost > 0),
        problem.supply, problem.lower,
    )  # fmt: skip
    judge(dear, None)


def test_what_it_declines_is_answered_exactly_all_the_same():
    """The kernel has 2**57 for costs times nodes; above, the last phase of scaling answers alone, to 2**59."""
    for bits, status in ((49, statuses.OK), (55, statuses.RANGE)):
        problem = FlowProblem(
            np.array([0, 1, 0]),
            np.array([1, 2, 2]),
            np.array([5, 5, 2]),
            np.array([2**bits, -7, 3]),
            np.array([4, 0, -4]),
        )
        assert kernel(problem)[0] == status
        result = min_cost_flow(**problem.arguments(), algorithm=SCALING)
        assert by_itself(result.stats) and result.cost == 2 * (2**bits - 7) + 6
        oracles.check_optimal(problem, result.flow, result.cost, result.potential)


def test_costs_beyond_all_ranges_are_refused():
    with pytest.raises(CostRangeError):
        min_cost_flow([0, 1], [1, 0], 1, [2**62, -5], [1, -1], algorithm=SCALING)


def test_huge_capacities_are_declined_by_the_kernel_only():
    problem = FlowProblem(
        np.array([0, 0, 1]),
        np.array([1, 1, 0]),
        np.array([2**61, 2**60, 2**61]),
        np.array([-3, 2, 4]),
        np.array([2**60, -(2**60)]),
    )
    assert kernel(problem)[0] == statuses.RANGE


def test_an_unlimited_cycle_of_negative_cost_is_its_proof():
    for tail, head, cost in (([0, 1, 2], [1, 2, 0], [-5, 1, 3]), ([1], [1], [-1])):
        with pytest.raises(UnboundedError) as caught:
            min_cost_flow(tail, head, INF, cost, [0, 0, 0], algorithm=SCALING)
        assert sorted(caught.value.cycle.tolist()) == list(range(len(tail)))


def test_dead_ends_and_lonely_nodes_do_not_hold_it_up():
    """Cheap arcs lead to nodes that lead nowhere."""
    n = 200
    tail = np.concatenate([np.zeros(n, int), [0]])
    head = np.concatenate([np.arange(1, n + 1), [n + 1]])
    cost = np.concatenate([np.full(n, -1), [1000]])
    supply = np.zeros(n + 3, np.int64)
    supply[[0, n + 1]] = 7, -7
    result = min_cost_flow(tail, head, 9, cost, supply, algorithm=SCALING)
    assert result.cost == 7000 and by_itself(result.stats)
    supply[[n + 1, n + 2]] = 0, -7
    with pytest.raises(InfeasibleError) as caught:
        min_cost_flow(tail, head, 9, cost, supply, algorithm=SCALING)
    assert caught.value.cut.tolist() == [True] * (n + 2) + [False]


# -- stops, and going on ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GENERAL)
def test_a_coarse_flow_is_as_good_as_it_says_and_the_way_to_the_optimum(name):
    problem = GENERAL[name](2)
    best = kernel(problem)
    for stop in (int(problem.cost.max()) // 4, 50, 2):
        status, flow, potential, stats = kernel(problem, stop=stop)
        assert status == statuses.OK and stats["epsilon"] <= stop
        check_whole(problem, flow, potential, stats["epsilon"])
        again = kernel(problem, flow=flow, potential=potential, epsilon=max(stats["epsilon"], 1))
        assert int(problem.cost @ again[1]) == int(problem.cost @ best[1])
        assert again[3]["refines"] < best[3]["refines"]


def test_any_flow_and_potentials_will_do_to_start_from():
    rng = np.random.default_rng(5)
    for seed in range(effort(30, 300)):
        problem = random_problem(np.random.default_rng(seed), 15, 60)
        told = oracles.optimum(problem)
        if told.status != OPTIMAL:
            continue
        flow = problem.lower + rng.integers(0, 5, 60)  # above the capacity, too
        potential = rng.integers(-1000, 1000, 15)
        status, answer, proof, _ = kernel(problem, flow=flow, potential=potential, epsilon=int(rng.integers(0, 30)))
        assert status == statuses.OK
        oracles.check_optimal(problem, answer, told.cost, proof)


def test_late_it_gives_the_flow_of_the_last_whole_phase(monkeypatch):
    problem = SchedFamily(1000, tasks=6000, seed=1).problem()
    looks = left = 0

    def monotonic():
        nonlocal left
        left -= 1
        return 0.0 if left >= 0 else 1e9

    monkeypatch.setattr(scaling, "time", SimpleNamespace(monotonic=monotonic))
    best, found, status = kernel(problem), [], statuses.LATE
    while status == statuses.LATE:
        looks += 1 + looks // 4  # a build with fault points looks often
        left = looks
        status, flow, potential, stats = kernel(problem, limit=1.0)
        if flow is not None:
            check_whole(problem, flow, potential, stats["epsilon"])
            found.append(int(problem.cost @ flow))
            if status == statuses.LATE:
                rest = kernel(problem, flow=flow, potential=potential, epsilon=max(stats["epsilon"], 1))
                assert int(problem.cost @ rest[1]) == int(problem.cost @ best[1])
                assert rest[3]["refines"] <= best[3]["refines"]
    assert len(found) >= 2 and found == sorted(found, reverse=True) and found[-1] == int(problem.cost @ best[1])


# -- histories --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("budget", "patience"), [(3000, -1), (1, -1), (3000, 0), (1, 1), (0, 40)])
@pytest.mark.parametrize("seed", range(effort(2, 60)))
def test_any_history(seed, budget, patience):
    """Warm against cold: walks given up at once, local work given up at once, and neither."""
    rng = np.random.default_rng([seed, budget, patience + 1])
    mirror = from_problem(random_problem(rng, 14, 45, max_cost=50))
    mirror.net._set_budget(budget, patience)
    whole = 0
    for _ in range(40):
        mutate(mirror, rng)
        solution = solved(mirror, SCALING, rng)
        if solution is None:
            continue
        assert by_itself(solution.stats)
        whole += solution.stats["refines"] > 0 and solution.stats["warm"]
    if patience == 0:
        assert whole > 0, "local work was never given up"


def test_it_goes_on_from_the_solutions_of_the_others_and_they_from_its():
    rng = np.random.default_rng(9)
    mirror = from_problem(random_problem(rng, 25, 100, negative=0))
    for step in range(40):
        mutate(mirror, rng)
        solved(mirror, ("repair", SCALING, "network_simplex", "auto")[step % 4], rng)


def test_many_changed_costs_are_a_change_of_the_whole():
    """What is not local is scaled from the largest cost, whatever the potentials were."""
    problem = GENERAL["goto 1k/8k"](4)
    net, rng = network(problem), np.random.default_rng(1)
    net.solve(algorithm=SCALING)
    cost = rng.permutation(problem.cost)
    net.set_cost(np.arange(len(cost)), cost)
    solution = net.solve(algorithm=SCALING)
    changed = FlowProblem(problem.tail, problem.head, problem.capacity, cost, problem.supply)
    assert by_itself(solution.stats) and solution.stats["refines"] > 0
    assert solution.cost == oracles.ortools(changed).cost
    net.certify()


def test_a_network_of_nothing():
    for make in (FlowNetwork, lambda: network(FlowProblem(*[NONE] * 4, np.zeros(3, np.int64)))):
        solution = make().solve(algorithm=SCALING)
        assert by_itself(solution.stats) and solution.cost == 0 and len(solution.changed) == 0
