"""A general network whose costs and supplies change: against LEMON's network simplex restarted from its last basis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from time import thread_time

import numpy as np
from numpy.typing import NDArray

from bench.solver import general, peers
from bench.solver.findings import Findings, Goal
from flowsched.network.flow_network import FlowNetwork
from flowsched.network.one_shot import min_cost_flow
from flowsched.network.problem import FlowProblem

__all__ = ["measure"]

Ints = NDArray[np.int64]
REPAIRS = ("dual_greedy", "dual", "dual_ratio", "primal")


@dataclass(frozen=True)
class Edit:
    """A change: new costs of some arcs, new supplies of some nodes; and the whole vectors after it."""

    arcs: Ints
    costs: Ints
    nodes: Ints
    supplies: Ints
    cost: Ints
    supply: Ints


def measure(
    findings: Findings, name: str, problem: FlowProblem, seed: int, rounds: int, repeats: int, goal: Goal | None
) -> None:
    """Add rows for 1, 10 and 100 changes of costs, of supplies, and of both; the goal is that of 10 and 100."""
    witness = min_cost_flow(problem.tail, problem.head, problem.capacity, problem.cost, problem.supply).flow
    paths = general.unit_paths(problem, witness)
    kinds: list[tuple[str, int, int]] = [  # a change of supplies is one of a source and of a sink
        (f"{k} {words}", k if "cost" in words else 0, max(k, 2) if "suppl" in words else 0)
        for k in (1, 10, 100)
        for words in ("changed costs", "changed supplies", "changed costs and supplies")
    ]
    for words, costs, supplies in kinds:
        rng = np.random.default_rng(seed)
        start, edits = _draw(problem, paths, rng, costs, supplies, rounds)
        setting = f"{name}, {words}"
        ours = np.full(rounds, np.inf)
        theirs = {repair: np.full(rounds, np.inf) for repair in REPAIRS}
        for _ in range(repeats):
            _replay(findings, setting, start, edits, ours, theirs)
        best = {f"pylmcf warm, {repair}": times for repair, times in theirs.items() if np.isfinite(times).all()}
        if best:
            findings.times(setting, "round", ours, best, goal if max(costs, supplies) >= 10 else None)
        else:
            findings.times(setting, "round", ours, note="pylmcf is absent")
        p99 = min((float(np.percentile(times, 99)) for times in theirs.values() if np.isfinite(times).all()), default=0)
        note = f"the best of pylmcf's has {p99:.3g} s" if best else ""
        findings.figure(setting, "p99 round", float(np.percentile(ours, 99)), "s", note=note)


def _replay(
    findings: Findings,
    setting: str,
    start: FlowProblem,
    edits: list[Edit],
    ours: NDArray[np.float64],
    theirs: dict[str, NDArray[np.float64]],
) -> None:
    """Run each solver alone through all rounds: its data are in the caches, as in a program that uses one solver."""
    net = FlowNetwork()
    net.add_nodes(start.supply)
    arcs = net.add_arcs(start.tail, start.head, start.capacity, start.cost)
    net.solve()
    costs = []
    for number, edit in enumerate(edits):
        ids = arcs[edit.arcs]
        begin = thread_time()
        if len(ids):
            net.set_cost(ids, edit.costs)
        if len(edit.nodes):
            net.set_supply(edit.nodes, edit.supplies)
        solution = net.solve()
        net.flow(solution.changed)
        ours[number] = min(ours[number], thread_time() - begin)
        costs.append(solution.cost)
    for repair, times in theirs.items() if "pylmcf" not in peers.absent() else ():
        peer = peers.LemonWarm(start, repair)
        for number, edit in enumerate(edits):
            measured = peer.step(
                supply=edit.supply if len(edit.nodes) else None, cost=edit.cost if len(edit.arcs) else None
            )
            times[number] = min(times[number], measured.total)
            findings.check(f"{setting}, round {number}", costs[number], {f"pylmcf warm, {repair}": measured})


def _draw(
    problem: FlowProblem, paths: list[general.Way], rng: np.random.Generator, costs: int, supplies: int, rounds: int
) -> tuple[FlowProblem, list[Edit]]:
    """Draw a start and changes that keep it feasible: each path of a feasible flow carries a fraction of its former flow."""
    source, sink, amount = (np.array(column) for column in zip(*paths, strict=True))
    carried = rng.integers(amount // 2, amount + 1)
    cost = problem.cost.copy()

    def supply() -> Ints:
        sums = np.zeros(len(problem.supply), np.int64)
        np.add.at(sums, source, carried)
        np.subtract.at(sums, sink, carried)
        return sums

    def draw() -> Iterator[Edit]:
        now = supply()
        for _ in range(rounds):
            arcs = np.sort(rng.choice(len(cost), costs, replace=False))
            cost[arcs] = rng.permutation(problem.cost)[:costs]
            before = now
            chosen = rng.choice(len(amount), min(supplies // 2, len(amount)), replace=False)
            carried[chosen] = rng.integers(amount[chosen] // 2, amount[chosen] + 1)
            now = supply()
            nodes = np.flatnonzero(now != before)
            yield Edit(arcs, cost[arcs], nodes, now[nodes], cost.copy(), now)

    start = FlowProblem(problem.tail, problem.head, problem.capacity, problem.cost, supply())
    return start, list(draw())
