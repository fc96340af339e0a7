"""Cold solves: build, solve and read, against other solvers that start from scratch; and memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bench.rows import Row
from bench.solver import general, peers
from bench.solver.findings import Findings, Goal
from bench.solver.instances import SchedFamily
from bench.solver.peers import Measured
from flowsched.network.flow_network import FlowNetwork
from flowsched.network.problem import FlowProblem

__all__ = ["families", "memory", "reduced", "sched"]

Best = dict[str, Measured]


def sched(findings: Findings, sizes: list[tuple[int, int, int]], seed: int, repeats: int) -> None:
    """Add rows of scheduling networks; ``sizes`` are machines, slots and tasks."""
    for machines, slots, tasks in sizes:
        problem = SchedFamily(machines, slots=slots, tasks=tasks, seed=seed).problem()
        setting = f"{machines:,} x {slots}, {tasks:,} tasks, cold"
        ours, phases, others = _in_turn(findings, setting, problem, repeats)
        totals = {peer: measured.total for peer, measured in others.items()}
        findings.compare(setting, "build included", ours.total, totals, Goal(1.5, 5), str(ours.stats["algorithm"]))
        solves = {peer: measured.seconds["solve"] for peer, measured in others.items()}
        own = min(phases.seconds["solve"], ours.total)
        findings.compare(setting, "solve only", own, solves, Goal(3, 12), str(ours.stats["algorithm"]))
        _phases(findings, setting, phases, others)


def families(findings: Findings, quick: bool, seed: int, repeats: int, data: Path | None) -> None:
    """Add rows of general networks, build included: against the best of all peers."""
    ratios: dict[str, float] = {}
    makers = general.named(quick, seed, data)
    if data is not None and not any(name.startswith("flowlessly") for name in makers):
        findings.notes.append(f"no recorded networks in {data / 'flowlessly'}: the rows of flowlessly are left out")
    for name, make in makers.items():
        ours, phases, others = _in_turn(findings, f"{name}, cold", make(), repeats)
        totals = {peer: measured.total for peer, measured in others.items()}
        findings.compare(f"{name}, cold", "build included", ours.total, totals, None, str(ours.stats["algorithm"]))
        _phases(findings, f"{name}, cold", phases, others)
        if totals:
            ratios[name] = min(totals.values()) / ours.total
    findings.summary(f"{len(ratios)} general networks, cold", ratios, Goal(1.2, 1.5), Goal(2.5, 4))


def reduced(findings: Findings, machines: int, seed: int) -> None:
    """Add rows of NetworkX, which is Python, on a small network."""
    problem = SchedFamily(machines, tasks=2 * machines, seed=seed).problem()
    setting = f"{machines:,} x 4, {2 * machines:,} tasks, cold"
    try:
        theirs = peers.networkx(problem)
    except ImportError:
        findings.notes.append("NetworkX is absent: its row is left out")
        return
    ours = min((peers.flowsched_once(problem) for _ in range(3)), key=lambda measured: measured.total)
    findings.check(setting, ours.cost, {"NetworkX": theirs})
    findings.compare(setting, "build included", ours.total, {"NetworkX": theirs.total}, None, "reduced size")


def memory(findings: Findings, tasks: int, seed: int) -> None:
    """Add rows of the bytes of the kernel's arrays after a solve, per node and arc by two networks of different density."""
    sizes, used = [], []
    for prefs in (2, 14):
        problem = SchedFamily(10_000, tasks=tasks, prefs=prefs, seed=seed).problem()
        net = FlowNetwork()
        net.add_nodes(problem.supply)
        net.add_arcs(problem.tail, problem.head, problem.capacity, problem.cost)
        net.solve()
        sizes.append((len(problem.tail), len(problem.supply)))
        used.append(net.nbytes)
    per_arc, per_node = np.linalg.solve(np.array(sizes, float), np.array(used, float))
    setting = f"10,000 x 4, {tasks:,} tasks, after a solve"
    note = f"{used[0] / sizes[0][0]:.0f} B and {used[1] / sizes[1][0]:.0f} B per arc, nodes included"
    findings.figure(setting, "memory per arc", float(per_arc), "B", Goal(64, 40, most=True), note)
    findings.figure(setting, "memory per node", float(per_node), "B", Goal(128, 64, most=True))


def _in_turn(findings: Findings, setting: str, problem: FlowProblem, repeats: int) -> tuple[Measured, Measured, Best]:
    """Return the fastest turns of flowsched by one call and by phases, and of the peers; the answers are compared."""
    own: dict[str, peers.Solve] = {"one call": peers.flowsched_once, "FlowNetwork": peers.flowsched_network}
    others = peers.in_turn(problem, own, peers.cold_peers(), repeats)
    ours = others.pop("one call")
    findings.check(setting, ours.cost, others)
    return ours, others.pop("FlowNetwork"), others


def _phases(findings: Findings, setting: str, phases: Measured, others: Best) -> None:
    """Add rows of flowsched's phases on a kept network, and those of the fastest peer."""
    best = min(others, key=lambda peer: others[peer].total, default=None)
    for phase, seconds in phases.seconds.items():
        if best is None:
            findings.figure(setting, phase, seconds, "s")
        else:
            findings.details.append(
                Row(
                    "solver",
                    setting,
                    phase,
                    seconds,
                    others[best].seconds[phase],
                    unit="s",
                    note=f"FlowNetwork; {best}",
                )
            )
