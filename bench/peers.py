"""The same problem through other solvers: cost, and the seconds of building, solving and reading apart."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING

import networkx as nx
import numpy as np
import pylmcf
from instances import StaticNodes, task_arcs
from ortools.graph.python import min_cost_flow as ortools_mcf

from flowsched import FlowProblem, min_cost_flow

if TYPE_CHECKING:
    from instances import Change, SchedFamily, Tasks


@dataclass
class Measured:
    """Seconds by phase, and the cost that was found."""

    cost: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    notes: dict[str, object] = field(default_factory=dict)
    _since: float = field(default_factory=perf_counter)

    def phase(self, name: str) -> None:
        """Book the time since the last call under ``name``."""
        now = perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
        self._since = now


def flowsched(problem: FlowProblem, algorithm: str = "auto") -> Measured:
    """This project, from nothing (building, solving and reading are one call)."""
    measured = Measured()
    measured.cost = min_cost_flow(**problem.arguments(), algorithm=algorithm).cost
    measured.phase("solve")
    return measured


def ortools(problem: FlowProblem) -> Measured:
    """OR-tools' cost scaling, from nothing."""
    measured = Measured()
    solver = ortools_mcf.SimpleMinCostFlow()
    arcs = solver.add_arcs_with_capacity_and_unit_cost(problem.tail, problem.head, problem.capacity, problem.cost)
    solver.set_nodes_supplies(np.arange(len(problem.supply)), problem.supply)
    measured.phase("build")
    assert solver.solve() == solver.OPTIMAL
    measured.phase("solve")
    solver.flows(arcs)
    measured.cost = solver.optimal_cost()
    measured.phase("read")
    return measured


def lemon(problem: FlowProblem) -> Measured:
    """LEMON's network simplex by pylmcf, from nothing."""
    measured = Measured()
    graph = _lemon_graph(problem)
    measured.phase("build")
    graph.solve()
    measured.phase("solve")
    graph.result()
    measured.cost = graph.total_cost()
    measured.phase("read")
    return measured


def networkx(problem: FlowProblem) -> Measured:
    """NetworkX's network simplex, in Python: for small problems."""
    measured = Measured()
    graph = nx.MultiDiGraph()
    graph.add_nodes_from((node, {"demand": -supply}) for node, supply in enumerate(problem.supply.tolist()))
    columns = (problem.tail, problem.head, problem.capacity, problem.cost)
    for tail, head, capacity, cost in zip(*(column.tolist() for column in columns), strict=True):
        graph.add_edge(tail, head, capacity=capacity, weight=cost)
    measured.phase("build")
    measured.cost, _ = nx.network_simplex(graph)
    measured.phase("solve")
    measured.phase("read")  # the flow is returned with the cost
    return measured


class LemonWarm:
    """LEMON's network simplex by pylmcf, restarted from its last basis.

    Its networks cannot gain or lose arcs, so this one holds from the start every task that will ever arrive, with no
    supply until it does and after it left: the peer is told the future, and a round is a change of supplies and of the
    jobs' capacities.  The limits that make it fall back to a cold solve are lifted.
    """

    def __init__(self, family: SchedFamily, changes: list[Change]) -> None:
        """Build from a family before its rounds of change, and the changes to come."""
        self.static = StaticNodes(family)
        tasks = [family.tasks, *(change.arriving for change in changes)]
        self.jobs = 1 + max(int(batch.job.max()) for batch in tasks)
        first_job = self.static.count
        jobs = first_job + np.arange(self.jobs)
        self.first_task = first_job + self.jobs
        tail, head, capacity, cost = self.static.arcs()
        parts = [(tail, head, capacity, cost), (jobs, np.full(self.jobs, self.static.sink), 0 * jobs, 0 * jobs)]
        start = self.first_task
        for batch in tasks:
            ends = task_arcs(batch, start + np.arange(len(batch)), self.static, jobs)
            parts.append((ends[0], ends[1], np.ones_like(ends[0]), ends[2]))
            start += len(batch)
        self.node_of_row = self.first_task + np.arange(len(family.tasks))
        self.next_node = self.first_task + len(family.tasks)
        self.job_of_row = family.tasks.job.copy()
        self.supply = np.zeros(start, np.int64)
        self.supply[self.node_of_row] = 1
        self.supply[self.static.sink] = -len(family.tasks)
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        self.job_arcs = slice(len(tail), len(tail) + self.jobs)
        columns[2][self.job_arcs] = np.bincount(self.job_of_row, minlength=self.jobs)
        problem = FlowProblem(*columns, self.supply)
        self.order = np.lexsort((problem.head, problem.tail))
        self.capacity = problem.capacity
        self.graph = _lemon_graph(problem)
        self.graph.set_warm_repair("dual_greedy")  # of its strategies the only one that is fast on this family
        self.graph.set_warm_violation_limit(len(self.supply))
        self.graph.set_warm_repair_budget(1000.0)
        self.graph.solve()

    def step(self, change: Change) -> Measured:
        """Apply a round and solve again."""
        measured = Measured()
        rows, arriving = change.rows, change.arriving
        new = self.next_node + np.arange(len(rows))
        self.next_node += len(rows)
        self.supply[self.node_of_row[rows]] = 0
        self.supply[new] = 1
        self.node_of_row[rows] = new
        self.job_of_row[rows] = arriving.job
        self.capacity[self.job_arcs] = np.bincount(self.job_of_row, minlength=self.jobs)
        self.graph.set_node_supply(self.supply)
        self.graph.set_edge_capacities(self.capacity[self.order])
        measured.phase("mutate")
        self.graph.solve()
        measured.phase("solve")
        self.graph.result()
        measured.cost = self.graph.total_cost()
        measured.phase("read")
        measured.notes["warm solves"] = self.graph.warm_start_count()
        measured.notes["cold solves"] = self.graph.cold_start_count()
        return measured


def _lemon_graph(problem: FlowProblem) -> pylmcf.Graph:
    """Return pylmcf's graph, which wants its arcs sorted by their ends."""
    order = np.lexsort((problem.head, problem.tail))
    graph = pylmcf.Graph(len(problem.supply), problem.tail[order], problem.head[order])
    graph.set_node_supply(problem.supply)
    graph.set_edge_capacities(problem.capacity[order])
    graph.set_edge_costs(problem.cost[order])
    return graph
