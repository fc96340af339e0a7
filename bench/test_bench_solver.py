"""Cold and incremental solve on a scheduling network of 10,000 machines, and other solvers on the same: ``pytest bench``.

Every benchmark checks that its cost is the one that the others found.  NetworkX, which is Python, gets a network of 100
machines; for comparison, this project solves it, too.  The clock is that of the thread: all solve in one.  All rows with
goals are in ``python -m bench solver``.
"""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time

import pytest

from bench.solver import lemon, peers
from bench.solver.instances import LiveNetwork, Prepared, Rounds, SchedFamily
from flowsched import FlowProblem, FlowResult, FlowSolution, min_cost_flow

LOADS = {"half": 20_000, "97%": 39_000}
ROUNDS = 40
WARMUP = 3  # rounds


@pytest.fixture(scope="module", params=LOADS)
def family(request: pytest.FixtureRequest) -> SchedFamily:
    return SchedFamily(10_000, tasks=LOADS[request.param], seed=1)


@pytest.fixture(scope="module")
def problem(family: SchedFamily) -> FlowProblem:
    return family.problem()


@pytest.fixture(scope="module")
def optimum(problem: FlowProblem) -> int:
    return peers.flowsched_network(problem, "repair").cost


def bench_cold(benchmark: Callable[..., peers.Measured], solve: peers.Solve, problem: FlowProblem) -> peers.Measured:
    return benchmark.pedantic(solve, args=(problem,), rounds=3, warmup_rounds=1)


@pytest.mark.benchmark(timer=thread_time, group="cold")
@pytest.mark.parametrize("name", ["flowsched", "OR-tools", "pylmcf", "LEMON simplex", "LEMON scaling"])
def test_cold(benchmark: Callable[..., peers.Measured], name: str, problem: FlowProblem, optimum: int) -> None:
    solvers = {"flowsched": peers.flowsched_once} | peers.cold_peers()
    if name not in solvers:
        pytest.skip(f"absent: {lemon.absent() if 'LEMON' in name else name}")
    assert bench_cold(benchmark, solvers[name], problem).cost == optimum


@pytest.mark.benchmark(timer=thread_time, group="cold, 100 machines")
@pytest.mark.parametrize("solve", [peers.flowsched_once, peers.networkx])
def test_cold_reduced(benchmark: Callable[..., peers.Measured], solve: peers.Solve) -> None:
    problem = SchedFamily(100, tasks=200, seed=1).problem()
    assert bench_cold(benchmark, solve, problem).cost == peers.flowsched_network(problem, "cost_scaling").cost


@pytest.fixture(scope="module")
def costs() -> dict[tuple[int, int], list[int]]:
    """Costs round by round that the first solver found, for the others to be compared with."""
    return {}


@pytest.mark.benchmark(timer=thread_time, group="incremental")
@pytest.mark.parametrize("k", [1, 10, 100])
@pytest.mark.parametrize("solver", ["flowsched", "pylmcf warm"])
@pytest.mark.parametrize("tasks", LOADS.values(), ids=LOADS.keys())
def test_incremental(
    benchmark: Callable[..., int], solver: str, tasks: int, k: int, costs: dict[tuple[int, int], list[int]]
) -> None:
    """The round as a whole: mutate, solve and read the changes; the arrays of the change are laid out before."""
    count = WARMUP + (ROUNDS if solver == "flowsched" else 6)
    rounds = Rounds(SchedFamily(10_000, tasks=tasks, seed=1), k, WARMUP + ROUNDS)
    found: list[int] = []
    if solver == "flowsched":
        live = LiveNetwork(rounds.family, rounds.first, rounds.first_jobs)
        live.net.solve()
        changes = iter(rounds.changes)

        def prepare() -> tuple[tuple[Prepared], dict[str, object]]:
            return (live.prepare(next(changes)),), {}

        def step(prepared: Prepared) -> None:
            live.apply(prepared)
            solution = live.net.solve()
            live.net.flow(solution.changed)
            found.append(solution.cost)

        benchmark.pedantic(step, setup=prepare, rounds=ROUNDS, warmup_rounds=WARMUP)
    else:
        pytest.importorskip("pylmcf")
        peer = peers.SchedWarm(rounds, count)
        benchmark.pedantic(lambda: found.append(peer.step().cost), rounds=count - WARMUP, warmup_rounds=WARMUP)
    assert len(found) == count
    first = costs.setdefault((tasks, k), found)
    assert found == first[: len(found)]


@pytest.mark.benchmark(timer=thread_time, group="algorithms, 1 % change")
@pytest.mark.parametrize("algorithm", ["repair", "network_simplex", "cost_scaling"])
def test_algorithms(benchmark: Callable[..., int], algorithm: str) -> None:
    """The local repair that `auto` takes, the simplex from its last basis, and push-relabel, which is always from scratch: warm, ``cost_scaling`` is `repair`."""
    rounds = Rounds(SchedFamily(10_000, tasks=20_000, seed=1), 200, 6)
    live = LiveNetwork(rounds.family, rounds.first, rounds.first_jobs)
    live.net.solve(algorithm="repair" if algorithm == "cost_scaling" else algorithm)
    changes = iter(rounds.changes)
    problem = rounds.family.problem(rounds.tasks_after(6))

    def mutate() -> None:
        live.apply(live.prepare(next(changes)))

    def solve() -> FlowSolution | FlowResult:
        if algorithm == "cost_scaling":
            return min_cost_flow(**problem.arguments(), algorithm="cost_scaling")
        return live.net.solve(algorithm=algorithm)

    solution = benchmark.pedantic(solve, setup=mutate, rounds=6)
    assert solution.cost == peers.flowsched_once(problem).cost
    stats = solution.stats
    ways = {
        "repair": stats.get("augmentations", 0),
        "network_simplex": stats.get("pivots", 0),
        "cost_scaling": stats.get("refines", 0),
    }
    assert [way for way, count in ways.items() if count] == [algorithm]
