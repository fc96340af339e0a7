"""Machines that fail together, and the new placement of their tasks."""

from __future__ import annotations

from time import thread_time

import numpy as np

from flowsched.experiments.solver import peers
from flowsched.experiments.solver.findings import Findings, median
from flowsched.experiments.solver.instances import LiveNetwork, SchedFamily
from flowsched.network.problem import FlowProblem

__all__ = ["measure"]


def measure(findings: Findings, machines: int, tasks: int, counts: list[int], seed: int, rounds: int) -> None:
    """Add rows for machines of one network that lose their slots at once; then they come back, unmeasured."""
    family = SchedFamily(machines, tasks=tasks, seed=seed)
    problem = family.problem()
    rng = np.random.default_rng(seed)
    for count in counts:
        live = LiveNetwork(family, family.tasks, family.jobs)
        live.net.solve()
        ours: list[float] = []
        setting = f"{machines:,} x {family.slots}, {tasks:,} tasks, {count} machines fail"
        for number in range(rounds):
            places = live.static.machine_arcs(rng.choice(machines, count, replace=False))
            arcs, none = live.static_arcs[places], np.zeros(len(places), np.int64)
            begin = thread_time()
            live.net.set_capacity(arcs, none)
            solution = live.net.solve()
            live.net.flow(solution.changed)
            ours.append(thread_time() - begin)
            if number < rounds - 1:
                live.net.set_capacity(arcs, problem.capacity[places])
                live.net.solve()
        capacity = problem.capacity.copy()
        capacity[places] = 0
        left = FlowProblem(problem.tail, problem.head, capacity, problem.cost, problem.supply)
        theirs = {peer: solve(left) for peer, solve in peers.cold_peers().items()}
        findings.check(setting, solution.cost, theirs)
        findings.compare(
            setting, "round of failures", median(ours), {peer: found.total for peer, found in theirs.items()}
        )
        findings.figure(setting, "worst round of failures", max(ours), "s", note=f"of {rounds}")
