"""Time limits: delay of an answer, its distance from the optimum, and the time that the next solve saves.

Limits are parts of the full time of a solve, in wall time: on a busy machine, the work of others may delay an answer.
"""

from __future__ import annotations

from time import perf_counter

import numpy as np

from bench.solver.findings import Findings, Goal
from bench.solver.instances import SchedFamily
from flowsched.exceptions import TimeLimitError
from flowsched.network.flow_network import FlowNetwork
from flowsched.network.problem import FlowProblem

__all__ = ["measure", "networks"]

PARTS = (0.1, 0.3, 0.6, 0.9)


def networks(quick: bool, seed: int) -> dict[str, FlowProblem]:
    """Return the networks by name: streets, two at random, and a cluster that is exactly full."""
    if quick:
        return {
            "grid 100x100": _grid(100, seed),
            "random 10k/100k": _scattered(10_000, 100_000, 10, 100, 40, seed),
            "full cluster 2k x 4": SchedFamily(2_000, slots=4, tasks=8_000, seed=seed).problem(),
        }
    return {
        "grid 250x250": _grid(250, seed),
        "random 60k/600k": _scattered(60_000, 600_000, 10, 100, 40, seed),
        "random 200k/1.5M": _scattered(200_000, 1_500_000, 20, 200, 50, seed),
        "full cluster 10k x 4": SchedFamily(10_000, slots=4, tasks=40_000, seed=seed).problem(),
    }


def measure(findings: Findings, quick: bool, seed: int) -> None:
    """Add rows of limits at parts of the full time, and of four solves of which three are stopped."""
    for name, problem in networks(quick, seed).items():
        net = FlowNetwork()
        net.add_nodes(problem.supply)
        net.add_arcs(problem.tail, problem.head, problem.capacity, problem.cost, problem.lower)
        optimum, full = 0, np.inf
        for _ in range(2):
            own = net.copy()
            start = perf_counter()
            optimum = own.solve().cost
            full = min(full, perf_counter() - start)
        for part in PARTS:
            _stopped(findings, f"{name}, limit {part:.0%} of {full:.2f} s", net.copy(), part, full, optimum)
        _resumed(findings, f"{name}, three limits of {4 / 7:.0%} and none", net.copy(), full, optimum)


def _stopped(findings: Findings, setting: str, net: FlowNetwork, part: float, full: float, optimum: int) -> None:
    limit = part * full
    start = perf_counter()
    try:
        solution = net.solve(time_limit=limit)
    except TimeLimitError:
        solution = None
    late = (perf_counter() - start - limit) / max(0.1 * limit, 0.02)
    findings.figure(setting, "late, in units of max(10 %, 20 ms)", max(late, 0.0), "", Goal(1, 0.5, most=True))
    if solution is None:
        findings.notes.append(f"{setting}: no feasible flow was found in that time")
        return
    excess = 100 * (solution.cost / optimum - 1)
    goal = Goal(5, 1, most=True) if part == PARTS[-1] else None
    findings.figure(setting, "cost above the optimum", excess, "%", goal, str(solution.stats["algorithm"]))
    gap = int(solution.stats["gap"])
    if not optimum <= solution.cost <= optimum + gap:
        findings.wrong.append(f"{setting}: cost {solution.cost}, gap {gap}, optimum {optimum}")


def _resumed(findings: Findings, setting: str, net: FlowNetwork, full: float, optimum: int) -> None:
    start = perf_counter()
    for _ in range(3):
        try:
            net.solve(time_limit=4 / 7 * full)
        except TimeLimitError:
            continue
    cost = net.solve().cost
    findings.figure(setting, "of one solve", (perf_counter() - start) / full, "", Goal(1.2, 1.05, most=True))
    if cost != optimum:
        findings.wrong.append(f"{setting}: cost {cost}, optimum {optimum}")


def _grid(side: int, seed: int) -> FlowProblem:
    """Streets with sources and sinks at an eighth of the corners each."""
    rng = np.random.default_rng(seed)
    ids = np.arange(side * side).reshape(side, side)
    tail = np.concatenate([ids[:, :-1].ravel(), ids[:, 1:].ravel(), ids[:-1].ravel(), ids[1:].ravel()])
    head = np.concatenate([ids[:, 1:].ravel(), ids[:, :-1].ravel(), ids[1:].ravel(), ids[:-1].ravel()])
    supply = np.zeros(side * side, np.int64)
    order, some = rng.permutation(side * side), side * side // 8
    supply[order[:some]], supply[order[some : 2 * some]] = 10, -10
    return FlowProblem(tail, head, rng.integers(20, 200, len(tail)), rng.integers(1, 1_000, len(tail)), supply)


def _scattered(nodes: int, arcs: int, share: int, room: int, amount: int, seed: int) -> FlowProblem:
    """Arcs at random, and a wide ring; one node in `share` sends `amount`, and one receives it."""
    rng = np.random.default_rng(seed)
    tail, head = rng.integers(0, nodes, (2, arcs))
    capacity, cost = rng.integers(1, room, arcs), rng.integers(1, 10_000, arcs)
    tail[:nodes], head[:nodes], capacity[:nodes] = np.arange(nodes), np.roll(np.arange(nodes), -1), 10**6
    supply = np.zeros(nodes, np.int64)
    order, some = rng.permutation(nodes), nodes // share
    supply[order[:some]], supply[order[some : 2 * some]] = amount, -amount
    return FlowProblem(tail, head, capacity, cost, supply)
