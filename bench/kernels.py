"""A row for every kernel: a network drawn for it, a call in which it does the work, and a check that it did; for ``pytest bench``."""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from bench.solver import general
from flowsched import INF, FlowNetwork, FlowProblem, assignment, min_cost_flow, transport
from flowsched.kernels import simplex, status

__all__ = ["CASES", "Turn"]

_EMPTY = np.zeros(0, np.int64)


class Turn(NamedTuple):
    """One measurement: the call that is timed, and a check of its result that returns the kernel's own count of its work."""

    work: Callable[[], Any]
    check: Callable[[Any], int]


def _optimum(net: FlowNetwork) -> int:
    return min_cost_flow(**net.to_problem().arguments(), algorithm="cost_scaling").cost


def _changed(problem: FlowProblem, rng: np.random.Generator, algorithm: str, budget: int | None = None) -> FlowNetwork:
    """Return a solved network in which 5 % of all costs have changed since, and the changes before it are learnt."""
    net = FlowNetwork.from_problem(problem)
    if budget is not None:
        net._set_budget(budget)
    arcs = net.arcs()
    some = max(len(arcs) // 20, 20)
    for _ in range(3):
        net.solve(algorithm=algorithm)  # type: ignore[arg-type]
        net.set_cost(rng.choice(arcs, some, replace=False), rng.integers(1, 100, some))
    return net


def _warm(
    make: Callable[[int, int], FlowProblem], algorithm: str, counter: str, budget: int | None = None
) -> Callable[[np.random.Generator, int], Turn]:
    def case(rng: np.random.Generator, size: int) -> Turn:
        net = _changed(make(size, int(rng.integers(2**31))), rng, algorithm, budget)

        def check(solution: Any) -> int:
            assert solution.cost == _optimum(net)
            return int(solution.stats[counter])

        return Turn(lambda: net.solve(algorithm=algorithm), check)  # type: ignore[arg-type]

    return case


def _cold(
    make: Callable[[int, int], FlowProblem], algorithm: str, counter: str
) -> Callable[[np.random.Generator, int], Turn]:
    def case(rng: np.random.Generator, size: int) -> Turn:
        problem = make(size, int(rng.integers(2**31)))

        def check(result: Any) -> int:
            assert result.cost == _optimum(FlowNetwork.from_problem(problem))
            return int(result.stats[counter])

        return Turn(lambda: min_cost_flow(**problem.arguments(), algorithm=algorithm), check)  # type: ignore[arg-type]

    return case


def _grid(size: int, seed: int) -> FlowProblem:
    side = max(int(size**0.5), 4)
    return general.grid(side, side, seed)


def _transport(size: int, seed: int) -> FlowProblem:
    return general.transport(max(size // 2, 4), max(size // 2, 4), seed, degree=4)


def _chains(size: int, seed: int) -> FlowProblem:
    """Return a transport network whose arcs are paths of three arcs: their nodes only pass flow on."""
    plain = _transport(max(size // 8, 8), seed)
    m, n = len(plain.tail), len(plain.supply)
    first, second = n + np.arange(m), n + m + np.arange(m)
    zeros = np.zeros(m, np.int64)
    return FlowProblem(
        np.concatenate([plain.tail, first, second]), np.concatenate([first, second, plain.head]), np.tile(plain.capacity, 3),
        np.concatenate([plain.cost, zeros, zeros]), np.concatenate([plain.supply, np.zeros(2 * m, np.int64)]),
    )  # fmt: skip


def _mutations(rng: np.random.Generator, size: int) -> Turn:
    net = FlowNetwork.from_problem(_transport(size, int(rng.integers(2**31))))
    net.solve()
    arcs = net.arcs()
    some = rng.choice(arcs, max(len(arcs) // 10, 1), replace=False)
    costs, rooms = rng.integers(1, 100, len(some)), net.capacity(some) + 1
    ends = net.tail(some), net.head(some)

    def work() -> int:
        net.set_cost(some, costs)
        net.set_capacity(some, rooms)
        net.remove_arcs(some)
        net.add_arcs(*ends, rooms, costs)
        return 4 * len(some)

    def check(count: int) -> int:
        assert net.solve().cost == _optimum(net)
        net.certify()
        return count

    return Turn(work, check)


def _started(start: str, counter: str) -> Callable[[np.random.Generator, int], Turn]:
    def case(rng: np.random.Generator, size: int) -> Turn:
        problem = _grid(size, int(rng.integers(2**31)))
        ends = problem.tail.astype(np.int32), problem.head.astype(np.int32)
        columns = (*ends, problem.capacity, problem.cost, problem.supply, _EMPTY, -1.0, _EMPTY, _EMPTY)

        def check(outcome: Any) -> int:
            ending, flow, _, stats = outcome
            assert (ending, stats["start"]) == (status.OK, start)
            assert int(flow @ problem.cost) == _optimum(FlowNetwork.from_problem(problem))
            return int(stats[counter])

        return Turn(lambda: simplex.solve(*columns, simplex.STARTS[start]), check)

    return case


def _small_changes(rng: np.random.Generator, size: int) -> Turn:
    net = FlowNetwork.from_problem(_grid(size, int(rng.integers(2**31))))
    net.solve(algorithm="network_simplex")
    arcs = rng.choice(np.flatnonzero(net.flow()), 10, replace=False)

    def work() -> int:
        local = 0
        for arc in arcs:
            net.set_cost(arc, net.cost(arc) + 5)
            local += net.solve(algorithm="network_simplex").stats.get("local", False)
        return local

    def check(local: int) -> int:
        assert net.solve().cost == _optimum(net)
        return local

    return Turn(work, check)


def _late(rng: np.random.Generator, size: int) -> Turn:
    problem = _grid(4 * size, int(rng.integers(2**31)))
    optimum = _optimum(FlowNetwork.from_problem(problem))
    begun = thread_time()
    min_cost_flow(**problem.arguments(), algorithm="network_simplex")
    limit = 0.8 * (thread_time() - begun)

    def check(result: Any) -> int:
        gap = result.stats["gap"]
        assert optimum <= result.cost <= optimum + gap
        return 1

    return Turn(lambda: min_cost_flow(**problem.arguments(), algorithm="network_simplex", time_limit=limit), check)


def _dense(rng: np.random.Generator, size: int) -> Turn:
    side = max(size // 10, 5)
    cost = rng.integers(0, 1000, (side, side))

    def check(pairs: Any) -> int:
        rows, columns = pairs
        assert cost[rows, columns].sum() == cost[linear_sum_assignment(cost)].sum()
        return len(rows)

    return Turn(lambda: assignment(cost), check)


def _shipments(rng: np.random.Generator, size: int) -> Turn:
    side = max(size // 10, 5)
    cost, supply = rng.integers(0, 1000, (side, side)), rng.integers(1, 100, side)
    ends = np.repeat(np.arange(side), side), side + np.tile(np.arange(side), side)

    def check(result: Any) -> int:
        assert result.cost == min_cost_flow(*ends, INF, cost.ravel(), np.append(supply, -supply[::-1])).cost
        return int(result.stats["pivots"])

    return Turn(lambda: transport(cost, supply, supply[::-1]), check)


def _ranges(rng: np.random.Generator, size: int) -> Turn:
    net = FlowNetwork.from_problem(_transport(size, int(rng.integers(2**31))))
    best, arcs = net.solve().cost, net.arcs()[:10]

    def check(found: Any) -> int:
        cost, flow = net.cost(arcs), net.flow(arcs)
        for bound in found:
            within = np.clip(bound[:10], -(10**6), 10**6)
            for i in range(len(arcs)):
                twin = net.copy()
                twin.set_cost(arcs[i : i + 1], within[i : i + 1])
                assert twin.solve().cost == best + int(within[i] - cost[i]) * int(flow[i])
        return 2 * len(found[0])

    return Turn(net.cost_range, check)


CASES: dict[str, tuple[str, Callable[[np.random.Generator, int], Turn]]] = {
    "residual": ("four changes of a tenth of the arcs", _mutations),
    "search": ("5 % of costs, every excess by a search", _warm(_transport, "repair", "searches", 0)),
    "repair": ("5 % of costs, by walks and searches", _warm(_transport, "repair", "augmentations")),
    "auto": ("5 % of costs", _warm(_transport, "auto", "warm_solves")),
    "scaling": ("from scratch", _cold(_transport, "cost_scaling", "refines")),
    "simplex": ("5 % of costs, from the last basis", _warm(_grid, "network_simplex", "resumed")),
    "basis": ("from scratch, many potentials a pivot", _cold(_grid, "network_simplex", "moved")),
    "first_tree": ("from scratch, by shortest paths", _started("shortest_paths", "pivots")),
    "coarse": ("from scratch, a coarse flow first", _started("coarse", "sketched")),
    "primal": ("from scratch", _cold(_transport, "network_simplex", "pivots")),
    "dual": ("ten costs, a solve after each", _small_changes),
    "completion": ("an answer within 0.8 of the time", _late),
    "reduction": ("from scratch, most nodes pass flow on", _cold(_chains, "network_simplex", "pivots")),
    "assignment": ("dense", _dense),
    "transport": ("dense, with weights", _shipments),
    "sensitivity": ("ranges of all costs", _ranges),
}  # fmt: skip
"""The timed call, and its network, by kernel."""
