"""The network simplex from each of its starts: by shortest paths, by a coarse phase of push-relabel; and which it takes."""

from __future__ import annotations

import numpy as np
import oracles
import pytest
from effort import effort
from hypothesis import assume, given, settings
from oracles import INFEASIBLE, OPTIMAL, UNBOUNDED
from strategies import any_problems, random_problem

import flowsched.kernels.simplex as simplex
import flowsched.kernels.status as statuses
from bench.solver import fields, general
from bench.solver.instances import SchedFamily
from flowsched.exceptions import InfeasibleError, TimeLimitError
from flowsched.network import FlowNetwork, min_cost_flow, one_shot
from flowsched.network.arguments import EMPTY
from flowsched.network.certificate import certify
from flowsched.network.problem import FlowProblem

both = pytest.mark.parametrize("start", ["shortest_paths", "coarse"])


def solved(problem, start, time_limit=-1.0):
    """What the simplex returns from the start that is named."""
    ends = problem.tail.astype(np.int32), problem.head.astype(np.int32)
    arrays = (
        np.ascontiguousarray(column) for column in (problem.capacity, problem.cost, problem.supply, problem.lower)
    )
    return simplex.solve(*ends, *arrays, time_limit, EMPTY, EMPTY, simplex.STARTS[start])


def judge(problem, start):
    """Solve from a start and compare with the oracle; return what the simplex counted."""
    answer = oracles.optimum(problem)
    status, found, potential, stats = solved(problem, start)
    if status == statuses.OK:
        cost = simplex.total_cost(problem.cost.copy(), found)
        assert (answer.status, answer.cost) == (OPTIMAL, cost)
        oracles.check_optimal(problem, found, cost, potential)
    elif status == statuses.INFEASIBLE:
        assert answer.status == INFEASIBLE
        oracles.check_cut(problem, found)
    else:
        assert status == statuses.UNBOUNDED
        assert answer.status in (UNBOUNDED, INFEASIBLE)
        oracles.check_cycle(problem, found)
    return stats


@both
@given(problem=any_problems())
@settings(max_examples=effort(50, 900))
def test_any_against_ortools(problem, start):
    assume(len(problem.tail) and not problem.supply.sum())
    judge(problem, start)


@both
@pytest.mark.parametrize("seed", range(effort(2, 40)))
@pytest.mark.parametrize(
    ("nodes", "arcs", "options"),
    [
        pytest.param(40, 300, {}, id="mixed"),
        pytest.param(300, 1200, {"negative": 0, "unlimited": 0}, id="plain"),
        pytest.param(300, 400, {"max_flow": 1, "negative": 0}, id="sparse unit"),
        pytest.param(15, 3000, {"max_cost": 3}, id="dense, many ties"),
        pytest.param(100, 1000, {"max_cost": 10**12, "max_flow": 10**5}, id="large numbers"),
    ],
)
def test_larger_against_ortools(nodes, arcs, options, seed, start):
    problem = random_problem(np.random.default_rng(seed), nodes, arcs, **options)
    stats = judge(problem, start)
    assert stats["start"] in (start, "shortest_paths")  # unlimited arcs of negative cost leave no other
    assert (stats["sketched"] > 0) == (stats["start"] == "coarse")


@both
@pytest.mark.parametrize("seed", range(effort(2, 40)))
def test_infeasible_after_a_start(seed, start):
    """The coarse phase gives up where there is no way; the cut is found all the same."""
    problem = general.grid(8, 12, seed)
    sender, taker = 5, 70
    problem.supply[sender] += 10**6
    problem.supply[taker] -= 10**6
    assert oracles.optimum(problem).status == INFEASIBLE
    stats = judge(problem, start)
    assert stats["start"] == start


def test_source_without_ways():
    problem = FlowProblem(
        np.array([0, 1, 1]), np.array([1, 0, 2]), np.array([3, 3, 3]), np.array([1, 1, 1]), np.array([1, 0, 0, -1])
    )
    for start in ("shortest_paths", "coarse"):
        assert solved(problem, start)[0] == statuses.INFEASIBLE


@both
@pytest.mark.parametrize(
    ("arcs", "supply"),
    [
        pytest.param([(0, 3, 3, -3816), (3, 2, 3, -689708)], [-2, -1, 0, 3], id="to an end"),
        pytest.param([(0, 1, 5, -10), (1, 2, 5, -9), (2, 1, 5, 8), (2, 3, 2, -7)], [4, 0, -9, 5], id="round a cycle"),
    ],
)
def test_dead_ends_at_negative_costs_end_the_phase(arcs, supply, start):
    """A node that nothing leaves is never entered again, however cheap the arc into it is."""
    tail, head, capacity, cost = np.array(arcs).T.copy()
    problem = FlowProblem(tail, head, capacity, cost, np.array(supply))
    assert judge(problem, start)["sketched"] < 1000


@both
@pytest.mark.parametrize("seed", range(effort(10, 4000)))
def test_infeasible_at_negative_costs(seed, start):
    """The phase ends where a price falls without end: by its bound on scans, within one node's excess too."""
    rng = np.random.default_rng(seed)
    nodes, arcs = int(rng.integers(3, 12)), int(rng.integers(2, 30))
    tail, head = rng.integers(0, nodes, (2, arcs))
    cost = -rng.integers(0, 10 ** int(rng.integers(1, 13)), arcs)
    supply = rng.integers(-5, 6, nodes)
    supply[0] -= supply.sum()
    problem = FlowProblem(tail, head, rng.integers(1, 9, arcs), cost, supply)
    assert judge(problem, start)["sketched"] < 300 * arcs + 1000


def test_dead_ends_are_left():
    """Cheap arcs lead into nodes that nothing leaves."""
    rng = np.random.default_rng(0)
    problem = general.grid(10, 10, 0)
    n = len(problem.supply)
    tail = np.concatenate([problem.tail, np.arange(n)])
    head = np.concatenate([problem.head, n + rng.integers(0, 20, n)])
    grown = FlowProblem(
        tail,
        head,
        np.concatenate([problem.capacity, np.full(n, 1000)]),
        np.concatenate([problem.cost, np.zeros(n, np.int64)]),
        np.concatenate([problem.supply, np.zeros(20, np.int64)]),
    )
    judge(grown, "coarse")


FAMILIES = {
    "grid": lambda seed: general.grid(48, 48, seed),
    "goto": lambda seed: general.goto(1024, 8, seed),
    "road": lambda seed: general.road(24, 32, seed),
    "assignment": lambda seed: general.sparse_assignment(400, 6, seed),
    "dense assignment": lambda seed: general.dense_assignment(40, seed),
    "transport": lambda seed: general.transport(60, 80, seed),
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(effort(1, 10)))
def test_families_from_each_start(family, seed):
    problem = FAMILIES[family](seed)
    chosen = judge(problem, "any")
    forced = {start: judge(problem, start) for start in ("shortest_paths", "coarse")}
    congested = family in ("grid", "goto")
    assert chosen["start"] == ("coarse" if congested else "shortest_paths")
    assert chosen["pivots"] == forced[chosen["start"]]["pivots"]
    if congested:  # the phase is to leave little to do
        assert 2 * forced["coarse"]["pivots"] < forced["shortest_paths"]["pivots"]


def test_the_phase_is_short():
    """One phase looks at each arc some dozens of times, not hundreds of times."""
    problem = general.grid(48, 48, 1)
    assert judge(problem, "coarse")["sketched"] < 120 * len(problem.tail)


@pytest.mark.parametrize("tasks", [400, 760, 1200])
def test_large_easy_problems_go_to_repair(tasks, monkeypatch):
    """Where nearly all tasks find room on their shortest paths; not where the cluster is oversubscribed."""
    problem = SchedFamily(200, tasks=tasks, seed=1).problem()
    columns = (problem.tail, problem.head, problem.capacity, problem.cost, problem.supply)
    plain = min_cost_flow(*columns)
    monkeypatch.setattr(one_shot, "BULK", 1)
    large = min_cost_flow(*columns)
    assert plain.cost == large.cost == oracles.optimum(problem).cost
    assert plain.stats["algorithm"] == "network_simplex"
    assert large.stats["algorithm"] == ("network_simplex" if tasks == 1200 else "repair")
    assert min_cost_flow(*columns, algorithm="network_simplex").stats["algorithm"] == "network_simplex"


def first_solve(problem):
    """What the first solve of a kept network counted, and its scans for each arc."""
    net = FlowNetwork()
    net.add_nodes(problem.supply)
    net.add_arcs(problem.tail, problem.head, problem.capacity, problem.cost, problem.lower)
    stats = net.solve().stats
    return stats, (stats["walk_scans"] + stats["search_scans"]) / (len(problem.tail) + 1000)


def test_a_first_solve_that_falls_behind_is_handed_over():
    """Repair may scan each arc once on a congested network, and five times where only a part of the tasks finds a place."""
    overfull = SchedFamily(500, slots=4, tasks=3_000, seed=1).problem()
    for problem, most in ((general.grid(48, 48, 1), 1.5), (overfull, 5.5)):
        stats, scans = first_solve(problem)
        assert stats["algorithm"] == "network_simplex"
        assert scans < most


def test_a_first_solve_that_keeps_pace_is_repair():
    """Three of four are settled after three scans of each arc: it goes on to the end."""
    stats, scans = first_solve(SchedFamily(1_000, slots=4, tasks=3_900, seed=1).problem())
    assert stats["algorithm"] == "repair"
    assert scans > 3


def test_stats_tell_the_start():
    problem = general.grid(24, 24, 2)
    columns = (problem.tail, problem.head, problem.capacity, problem.cost, problem.supply)
    stats = min_cost_flow(*columns).stats
    assert (stats["algorithm"], stats["start"]) == ("network_simplex", "coarse")
    net = FlowNetwork()
    net.add_nodes(problem.supply)
    arcs = net.add_arcs(*columns[:-1])
    assert net.solve(algorithm="network_simplex").stats["start"] == "coarse"
    net.set_cost(arcs[:5], problem.cost[:5] + 1)
    assert net.solve(algorithm="network_simplex").stats["start"] == "basis"


def test_time_limit_in_the_phase():
    problem = general.grid(64, 64, 0)
    assert solved(problem, "coarse", 0.0)[0] == statuses.LATE
    columns = (problem.tail, problem.head, problem.capacity, problem.cost, problem.supply)
    try:
        result = min_cost_flow(*columns, time_limit=0.0)
    except TimeLimitError:
        return
    assert result.stats["gap"] >= 0


@both
def test_no_range_is_left(start):
    """Costs up to the largest that are solved: potentials of the phase stay within bounds."""
    problem = general.grid(6, 8, 3)
    n = len(problem.supply)
    scale = (2**55 // (n + 1) - 1) // int(problem.cost.max())
    big = FlowProblem(problem.tail, problem.head, problem.capacity, problem.cost * scale, problem.supply)
    status, flow, _, stats = solved(big, start)
    assert (status, stats["start"]) == (statuses.OK, start)
    assert simplex.total_cost(big.cost, flow) == scale * oracles.optimum(problem).cost


def test_bounds_out_of_order_are_declined():
    problem = FlowProblem(np.array([0]), np.array([1]), np.array([1]), np.array([1]), np.array([1, -1]))
    for capacity, lower in ((-1, 0), (1, 2), (1, -1)):
        wrong = FlowProblem(
            problem.tail, problem.head, np.array([capacity]), problem.cost, problem.supply, np.array([lower])
        )
        assert solved(wrong, "any")[0] == statuses.RANGE


@pytest.mark.parametrize("last", [False, True])
def test_the_order_of_arcs_does_not_decide_on_the_range(last):
    """Capacities of 2**61 in all are no lower bounds: those alone must stay below 2**60."""
    tail, head = np.zeros(9, np.int64), np.ones(9, np.int64)
    capacity, cost, lower = np.full(9, 2**58), np.arange(1, 10), np.zeros(9, np.int64)
    lower[-1 if last else 0] = 1
    status, flow, _, _ = solved(FlowProblem(tail, head, capacity, cost, np.array([5, -5]), lower), "shortest_paths")
    assert status == statuses.OK
    assert simplex.total_cost(cost, flow) == (9 + 4 if last else 5)


@given(problem=any_problems())
@settings(max_examples=effort(50, 300))
def test_ids_are_narrowed(problem):
    n = len(problem.supply)
    assert simplex.narrowed(problem.tail.copy(), n).tolist() == problem.tail.tolist()
    for wrong in (-1, n, 2**32, -(2**31)):
        ids = problem.tail.copy()
        if len(ids):
            ids[-1] = wrong
            assert simplex.narrowed(ids, n) is None


def test_sources_that_crowd_around_a_few_nodes_keep_their_capacities():
    """A pivot moves all sources below a cluster: without the bounds of 1, half as many potentials again were moved."""
    rng = np.random.default_rng(4)
    points, clusters = 3_000, 4
    distance = ((rng.standard_normal((points, 1, 3)) - rng.standard_normal((clusters, 3))) ** 2).sum(-1)
    tail = np.concatenate([np.repeat(np.arange(points), clusters), points + np.arange(clusters)])
    head = np.concatenate([points + np.tile(np.arange(clusters), points), np.full(clusters, points + clusters)])
    capacity = np.concatenate([np.ones(points * clusters, np.int64), np.full(clusters, points // clusters)])
    cost = np.concatenate([np.rint(1000 * distance).ravel().astype(np.int64), np.zeros(clusters, np.int64)])
    supply = np.concatenate([np.ones(points, np.int64), np.zeros(clusters, np.int64), [-points]])
    problem = FlowProblem(tail, head, capacity, cost, supply)
    kept = FlowNetwork.from_problem(problem).solve(algorithm="network_simplex")
    once = min_cost_flow(**problem.arguments(), algorithm="network_simplex")
    assert once.cost == kept.cost
    assert once.stats["moved"] <= kept.stats["moved"]


def test_infeasible_by_the_front_door():
    problem = general.grid(8, 12, 0)
    problem.supply[[5, 70]] += 10**6, -(10**6)
    with pytest.raises(InfeasibleError) as caught:
        min_cost_flow(problem.tail, problem.head, problem.capacity, problem.cost, problem.supply)
    oracles.check_cut(problem, caught.value.cut)


def circulation(seed, nodes, arcs, share):
    """Random arcs without supplies; a share of the costs is negative."""
    rng = np.random.default_rng(seed)
    tail, head = rng.integers(0, nodes, (2, arcs))
    cost = rng.integers(1, 100, arcs) * np.where(rng.random(arcs) < share, -1, 1)
    return FlowProblem(tail, head, rng.integers(1, 100, arcs), cost, np.zeros(nodes, np.int64))


def test_gains_start_from_a_coarse_flow():
    """A tree of shortest paths to deficits says nothing of a circulation: the simplex needs several times the pivots from there."""
    problem = circulation(1, 500, 4_000, 0.5)
    columns = (problem.tail, problem.head, problem.capacity, problem.cost, problem.supply)
    found = min_cost_flow(*columns)
    assert found.stats["start"] == "coarse"
    _, flow, _, stats = solved(problem, "shortest_paths")
    assert stats["pivots"] > 4 * found.stats["pivots"] and int(flow @ problem.cost) == found.cost
    certify(*columns, found)


def test_tracks_are_repaired():
    """One call leaves a network to repair in which detections that pay draw few tracks; by name the simplex solves it."""
    problem = fields.tracking(np.random.default_rng(3), 30_000)
    columns = (problem.tail, problem.head, problem.capacity, problem.cost, problem.supply)
    found, other = min_cost_flow(*columns), min_cost_flow(*columns, algorithm="network_simplex")
    assert found.stats["walk_scans"] > 0 and other.stats["pivots"] > 0
    assert found.cost == other.cost
    certify(*columns, found)
