"""Solvers side by side on the same network: flowsched, and the others that are installed; for ``flowsched solve --compare``.

Timed are the calls of a solver, on arrays that lie ready in the form that it wants, by the clock of the thread.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import thread_time
from typing import Any

import numpy as np

from flowsched.exceptions import FlowschedError, InfeasibleError, UnboundedError
from flowsched.network.certificate import certify
from flowsched.network.one_shot import min_cost_flow
from flowsched.network.problem import FlowProblem
from flowsched.network.results import Algorithm

ALGORITHMS: tuple[Algorithm, ...] = ("auto", "repair", "cost_scaling", "network_simplex")

Solve = Callable[[FlowProblem], "Measured"]
Answer = int | str
"""An optimum, "infeasible" or "unbounded"."""

PACKAGES = {"OR-tools": "ortools", "pylmcf": "pylmcf"}
"""The package of each other solver."""

_SLOW, _SHORT = 4.0, 0.1
"""Ratio to the fastest solver, and seconds: a solver that exceeds both gets one turn."""


class Infeasible(RuntimeError):
    """A peer's answer that no flow meets the supplies."""


@dataclass
class Measured:
    """Seconds by phase, and the cost that was found."""

    cost: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    stats: Any = None
    _since: float = field(default_factory=thread_time)

    @property
    def total(self) -> float:
        """Seconds of all phases."""
        return sum(self.seconds.values())

    def phase(self, name: str) -> None:
        """Add the time since the last call to phase ``name``."""
        now = thread_time()
        self.seconds[name] = now - self._since
        self._since = now


@dataclass
class Turns:
    """Answer and seconds of a solver's turns; or the error that ended them."""

    answer: Answer | None = None
    seconds: list[float] = field(default_factory=list)
    error: Exception | None = None


def installed() -> dict[str, Solve]:
    """Return the other solvers that are installed; each starts from scratch."""
    solvers: dict[str, Solve] = {"OR-tools": ortools, "pylmcf": pylmcf_cold}
    return {name: solve for name, solve in solvers.items() if importlib.util.find_spec(PACKAGES[name])}


def flowsched_once(problem: FlowProblem, algorithm: Algorithm = "auto", time_limit: float | None = None) -> Measured:
    """Solve by flowsched, in one call for all phases."""
    columns = (problem.tail, problem.head, problem.capacity, problem.cost, problem.supply)
    measured = Measured()
    result = min_cost_flow(*columns, lower=problem.lower, algorithm=algorithm, time_limit=time_limit)
    measured.phase("solve")
    measured.cost, measured.stats = result.cost, result.stats
    return measured


def ortools(problem: FlowProblem) -> Measured:
    """Solve by OR-tools' cost scaling, from scratch."""
    from ortools.graph.python import min_cost_flow as mcf

    nodes = np.arange(len(problem.supply))
    measured = Measured()
    solver = mcf.SimpleMinCostFlow()
    arcs = solver.add_arcs_with_capacity_and_unit_cost(problem.tail, problem.head, problem.capacity, problem.cost)
    solver.set_nodes_supplies(nodes, problem.supply)
    measured.phase("build")
    status = solver.solve()
    measured.phase("solve")
    if status in (solver.INFEASIBLE, solver.UNBALANCED):
        raise Infeasible("OR-tools finds no flow that meets the supplies")
    if status != solver.OPTIMAL:
        raise RuntimeError(f"OR-tools found no optimum: {status}")
    solver.flows(arcs)
    measured.phase("read")
    measured.cost = int(solver.optimal_cost())
    return measured


def pylmcf_cold(problem: FlowProblem) -> Measured:
    """Solve by LEMON's network simplex as pylmcf carries it, from scratch."""
    ordered = by_ends(problem)
    measured = Measured()
    graph = pylmcf_graph(ordered)
    measured.phase("build")
    try:
        graph.solve()
    except RuntimeError as error:
        if "INFEASIBLE" in str(error):
            raise Infeasible("pylmcf finds no flow that meets the supplies") from error
        raise
    measured.phase("solve")
    graph.result()
    measured.phase("read")
    measured.cost = int(graph.total_cost())
    return measured


def by_ends(problem: FlowProblem) -> FlowProblem:
    """Return the arcs sorted by their ends, as pylmcf wants them."""
    order = np.lexsort((problem.head, problem.tail))
    return FlowProblem(
        problem.tail[order], problem.head[order], problem.capacity[order], problem.cost[order], problem.supply
    )


def pylmcf_graph(ordered: FlowProblem) -> Any:
    """Return pylmcf's network of a problem whose arcs are sorted."""
    import pylmcf

    graph = pylmcf.Graph(len(ordered.supply), ordered.tail, ordered.head)
    graph.set_node_supply(ordered.supply)
    graph.set_edge_capacities(ordered.capacity)
    graph.set_edge_costs(ordered.cost)
    return graph


def without_lower(problem: FlowProblem) -> FlowProblem:
    """Return the same problem without lower bounds: they are sent in advance (at no cost)."""
    if not problem.lower.any():
        return problem
    supply = problem.supply.copy()
    np.subtract.at(supply, problem.tail, problem.lower)
    np.add.at(supply, problem.head, problem.lower)
    return FlowProblem(problem.tail, problem.head, problem.capacity - problem.lower, problem.cost, supply)


def take_turns(
    problem: FlowProblem, ours: Mapping[str, Solve], peers: Mapping[str, Solve], repeats: int
) -> dict[str, Turns]:
    """Run solvers on a problem in turns; peers get it without lower bounds, whose cost is added to theirs.

    Peers have no turn where the supplies do not add up to 0: their semantics differ there.
    """
    plain = without_lower(problem)
    fixed = sum(a * b for a, b in zip(problem.lower.tolist(), problem.cost.tolist(), strict=True) if a)
    rivals = peers if int(problem.supply.sum()) == 0 else {}
    turns = {name: Turns() for name in (*ours, *rivals)}
    for _ in range(repeats):
        for name, turn in turns.items():
            best = min((min(other.seconds) for other in turns.values() if other.seconds), default=np.inf)
            if turn.error or (turn.seconds and min(turn.seconds) > max(_SLOW * best, _SHORT)):
                continue
            if name in ours:
                _turn(turn, ours[name], problem, 0)
            else:
                _turn(turn, rivals[name], plain, fixed)
    return turns


def _turn(turn: Turns, solve: Solve, problem: FlowProblem, fixed: int) -> None:
    """Run a solver once more, and record its answer and time."""
    begin = thread_time()
    try:
        measured = solve(problem)
        answer: Answer = measured.cost + fixed
        seconds = measured.total
    except (InfeasibleError, Infeasible):
        answer, seconds = "infeasible", thread_time() - begin
    except UnboundedError:
        answer, seconds = "unbounded", thread_time() - begin
    except (FlowschedError, RuntimeError, ValueError, OverflowError) as error:
        turn.error = error
        return
    turn.answer = answer
    turn.seconds.append(seconds)


def differences(problem: FlowProblem, name: str, turns: Mapping[str, Turns]) -> list[str]:
    """Return a line for each solver with another answer than that of `name`; with its certificate, if it has one."""
    ours = turns[name].answer
    others = {other: turn.answer for other, turn in turns.items() if turn.answer not in (None, ours)}
    judged = ""
    if others and isinstance(ours, int):
        columns = (problem.tail, problem.head, problem.capacity, problem.cost, problem.supply)
        try:
            certify(*columns, min_cost_flow(*columns, lower=problem.lower), lower=problem.lower)
            judged = ", which is certified"
        except AssertionError as error:
            judged = f", which has no certificate: {error}"
    return [f"{other} finds {answer}, {name} {ours}{judged}" for other, answer in others.items()]
