"""The same problem through this project and through other solvers: cost, and the seconds of each phase.

The calls of a solver are timed by the clock of the thread, on arrays that are ready in its own form.
"""

from __future__ import annotations

import numpy as np

from bench.solver import lemon
from bench.solver.instances import Ints, Rounds, StaticNodes, task_arcs
from flowsched.cli.solvers import (
    PACKAGES,
    Infeasible,
    Measured,
    Solve,
    by_ends,
    flowsched_once,
    installed,
    pylmcf_graph,
)
from flowsched.network.flow_network import FlowNetwork
from flowsched.network.problem import FlowProblem
from flowsched.network.results import Algorithm

__all__ = [
    "Infeasible",
    "LemonWarm",
    "Measured",
    "SchedWarm",
    "Solve",
    "absent",
    "cold_peers",
    "flowsched_network",
    "flowsched_once",
    "in_turn",
    "networkx",
]


def absent() -> dict[str, str]:
    """Return the peers that are not available here, with the reason."""
    missing = {name: f"no package {package}" for name, package in PACKAGES.items() if name not in installed()}
    why = lemon.absent()
    if why:
        missing["LEMON"] = why
    return missing


def cold_peers() -> dict[str, Solve]:
    """Return other solvers that start from scratch, as far as they are available."""
    solvers = installed()
    if lemon.absent() is None:
        solvers["LEMON simplex"] = lambda problem: _lemon(problem, "network simplex")
        solvers["LEMON scaling"] = lambda problem: _lemon(problem, "cost scaling")
    return solvers


def in_turn(
    problem: FlowProblem, ours: dict[str, Solve], rivals: dict[str, Solve], repeats: int
) -> dict[str, Measured]:
    """Return the fastest of some turns of each solver; rivals that take twice as long as the fastest one get one turn."""
    found: dict[str, Measured] = {}
    for _ in range(repeats):
        best = min((found[name].total for name in rivals if name in found), default=np.inf)
        for name, solve in (ours | rivals).items():
            if name in ours or name not in found or found[name].total <= 2 * best:
                again = solve(problem)
                found[name] = min(again, found.get(name, again), key=lambda measured: measured.total)
    return found


def flowsched_network(problem: FlowProblem, algorithm: Algorithm = "auto") -> Measured:
    """Solve by flowsched, phase by phase: bulk build, first solve, flows read."""
    measured = Measured()
    net = FlowNetwork()
    net.add_nodes(problem.supply)
    arcs = net.add_arcs(problem.tail, problem.head, problem.capacity, problem.cost, problem.lower)
    measured.phase("build")
    solution = net.solve(algorithm=algorithm)
    measured.phase("solve")
    net.flow(arcs)
    measured.phase("read")
    measured.cost, measured.stats = solution.cost, solution.stats
    return measured


def networkx(problem: FlowProblem) -> Measured:
    """Solve by NetworkX's network simplex, which is Python: for small problems."""
    import networkx as nx

    columns = (problem.tail, problem.head, problem.capacity, problem.cost)
    arcs = list(zip(*(column.tolist() for column in columns), strict=True))
    measured = Measured()
    graph = nx.MultiDiGraph()
    graph.add_nodes_from((node, {"demand": -supply}) for node, supply in enumerate(problem.supply.tolist()))
    graph.add_edges_from((tail, head, {"capacity": capacity, "weight": cost}) for tail, head, capacity, cost in arcs)
    measured.phase("build")
    measured.cost, _ = nx.network_simplex(graph)
    measured.phase("solve")  # the flow is returned with the cost
    return measured


class LemonWarm:
    """LEMON's network simplex by pylmcf, restarted from its last basis when supplies, capacities or costs change.

    Its defaults mostly fall back to a cold solve; here the limits that cause this are removed.

    Parameters
    ----------
    problem : FlowProblem
        The first one, solved here.
    repair : str
        pylmcf's strategy: "dual", "dual_greedy", "dual_ratio", "primal" or "repair_only".
    """

    def __init__(self, problem: FlowProblem, repair: str = "dual_greedy") -> None:
        self.order = np.lexsort((problem.head, problem.tail))
        self.graph = pylmcf_graph(by_ends(problem))
        self.graph.set_warm_repair(repair)
        self.graph.set_warm_violation_limit(len(problem.supply))
        self.graph.set_warm_repair_budget(1000.0)
        self.graph.solve()

    def step(self, supply: Ints | None = None, capacity: Ints | None = None, cost: Ints | None = None) -> Measured:
        """Change whole vectors (in the order of the problem) and solve again."""
        sorted_capacity = None if capacity is None else capacity[self.order]
        sorted_cost = None if cost is None else cost[self.order]
        measured = Measured()
        if supply is not None:
            self.graph.set_node_supply(supply)
        if sorted_capacity is not None:
            self.graph.set_edge_capacities(sorted_capacity)
        if sorted_cost is not None:
            self.graph.set_edge_costs(sorted_cost)
        measured.phase("mutate")
        self.graph.solve()
        measured.phase("solve")
        self.graph.result()
        measured.phase("read")
        measured.cost = int(self.graph.total_cost())
        return measured


class SchedWarm:
    """`LemonWarm` on a family of scheduling networks.

    The arc set of pylmcf's networks is fixed, so this one holds from the start every task that will ever arrive, without
    supply before its arrival and after its end.  The peer knows the future, and a round is a change of supplies and of the
    jobs' capacities.
    """

    def __init__(self, rounds: Rounds, count: int, repair: str = "dual_greedy") -> None:
        """Build for the first ``count`` rounds."""
        family, first, changes = rounds.family, rounds.first, rounds.changes[:count]
        static = StaticNodes(family)
        batches = [first, *(change.arriving for change in changes)]
        self.jobs = 1 + max(int(batch.job.max()) for batch in batches)
        jobs = static.count + np.arange(self.jobs)
        tail, head, capacity, cost = static.arcs()
        self.job_arcs = slice(len(tail), len(tail) + self.jobs)
        self.job_of_row = first.job.copy()
        job_capacity = np.bincount(first.job, minlength=self.jobs)
        parts = [(tail, head, capacity, cost), (jobs, np.full(self.jobs, static.sink), job_capacity, 0 * jobs)]
        start = static.count + self.jobs
        self.node_of_row = start + np.arange(len(first))
        self.next_node = start + len(first)
        for batch in batches:
            ends = task_arcs(batch, start + np.arange(len(batch)), static, jobs)
            parts.append((ends[0], ends[1], np.ones_like(ends[0]), ends[2]))
            start += len(batch)
        self.supply = np.zeros(start, np.int64)
        self.supply[self.node_of_row] = 1
        self.supply[static.sink] = -len(first)
        tail, head, self.capacity, cost = (np.concatenate(column) for column in zip(*parts, strict=True))
        self.peer = LemonWarm(FlowProblem(tail, head, self.capacity, cost, self.supply), repair)
        self.changes = iter(changes)

    def step(self) -> Measured:
        """Apply the next round and solve again."""
        change = next(self.changes)
        rows = change.rows
        new = self.next_node + np.arange(len(rows))
        self.next_node += len(rows)
        self.supply[self.node_of_row[rows]] = 0
        self.supply[new] = 1
        self.node_of_row[rows] = new
        self.job_of_row[rows] = change.arriving.job
        self.capacity[self.job_arcs] = np.bincount(self.job_of_row, minlength=self.jobs)
        return self.peer.step(self.supply, self.capacity)


def _lemon(problem: FlowProblem, method: str) -> Measured:
    measured = Measured()
    measured.cost, seconds = lemon.solve(problem, method)
    measured.seconds = dict(zip(("build", "solve", "read"), seconds, strict=True))
    return measured
