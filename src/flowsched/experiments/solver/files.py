"""Networks of the user's own, from DIMACS files: every solver that is installed on the same file, cold, build included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import thread_time

import numpy as np

from flowsched.exceptions import DimacsError, FlowschedError, InfeasibleError, UnboundedError
from flowsched.experiments.rows import Row
from flowsched.experiments.solver import peers
from flowsched.experiments.solver.findings import Findings
from flowsched.experiments.solver.general import without_lower
from flowsched.network.certificate import certify
from flowsched.network.dimacs import read_dimacs
from flowsched.network.one_shot import min_cost_flow
from flowsched.network.problem import FlowProblem

__all__ = ["measure"]

Answer = int | str
"""An optimum, "infeasible" or "unbounded"."""

_SLOW = 4.0
"""A peer that took so many times as long as the fastest solver of a file gets no second turn."""


@dataclass
class _Turns:
    """Answer and least seconds of a solver's turns; or the fault that kept it from an answer."""

    answer: Answer | None = None
    seconds: float = np.inf
    fault: str = ""


def measure(findings: Findings, paths: Sequence[Path], repeats: int) -> None:
    """Add the rows of each file: the answer, the time of flowsched beside each peer; then mean and worst of the ratios.

    The solvers take turns, and the least time of each counts.  All answers must be equal.  A file that cannot be read is a
    failed part, and the others go on.

    Parameters
    ----------
    findings : Findings
    paths : sequence of Path
        DIMACS files, plain or gzipped.
    repeats : int
        Turns of each solver.
    """
    ratios: dict[str, float] = {}
    for path in paths:
        try:
            problem = read_dimacs(path)
        except DimacsError as error:
            findings.failed.append(f"{path}: {error}")
            findings.say(f"{path}: {error}")
            continue
        except OSError as error:
            findings.failed.append(f"{path}: {error.strerror or error}")
            findings.say(f"{path}: {error.strerror or error}")
            continue
        ratio = _file(findings, str(path), problem, repeats)
        if ratio is not None:
            ratios[str(path)] = ratio
    findings.summary(f"{len(ratios)} file{'s' * (len(ratios) > 1)}", ratios)


def _file(findings: Findings, setting: str, problem: FlowProblem, repeats: int) -> float | None:
    """Add the rows of one file; return the ratio to the best peer, None without one."""
    solvers: dict[str, Callable[[], peers.Measured]] = {"flowsched": lambda: peers.flowsched_once(problem)}
    if int(problem.supply.sum()) == 0:
        plain = without_lower(problem)
        fixed = sum(a * b for a, b in zip(problem.lower.tolist(), problem.cost.tolist(), strict=True) if a)
        for name, solve in peers.cold_peers().items():
            solvers[name] = _with_lower(solve, plain, fixed)
    else:
        findings.notes.append(f"{setting}: the supplies do not add up to 0; peers read that otherwise and are left out")
    turns = {name: _Turns() for name in solvers}
    for _ in range(repeats):
        for name, solve_once in solvers.items():
            if turns[name].fault or (np.inf > turns[name].seconds > _SLOW * min(t.seconds for t in turns.values())):
                continue
            _turn(turns[name], solve_once)
    ours = turns.pop("flowsched")
    if ours.answer is None:
        findings.failed.append(f"{setting}: {ours.fault}")
        return None
    findings.wrong += _differences(setting, problem, ours.answer, turns)
    findings.notes += [f"{setting}: {name} gives no answer: {turn.fault}" for name, turn in turns.items() if turn.fault]
    size = f"{len(problem.supply):,} nodes, {len(problem.tail):,} arcs"
    findings.details.append(Row("solver", setting, "answer", ours.answer, note=size))
    times = {name: turn.seconds for name, turn in turns.items() if not turn.fault}
    if not times:
        findings.figure(setting, "build included", ours.seconds, "s", note="without a peer")
        return None
    findings.compare(setting, "build included", ours.seconds, times)
    return min(times.values()) / ours.seconds


def _with_lower(solve: peers.Solve, plain: FlowProblem, fixed: int) -> Callable[[], peers.Measured]:
    """Return a peer's solve of a problem whose lower bounds are sent in advance, which costs `fixed`."""

    def measured() -> peers.Measured:
        found = solve(plain)
        found.cost += fixed
        return found

    return measured


def _turn(turn: _Turns, solve: Callable[[], peers.Measured]) -> None:
    """Let a solver answer once more."""
    begin = thread_time()
    try:
        measured = solve()
        answer: Answer = measured.cost
        seconds = measured.total
    except (InfeasibleError, peers.Infeasible):
        answer, seconds = "infeasible", thread_time() - begin
    except UnboundedError:
        answer, seconds = "unbounded", thread_time() - begin
    except (FlowschedError, RuntimeError, ValueError, OverflowError) as error:
        turn.fault = str(error)
        return
    turn.answer, turn.seconds = answer, min(turn.seconds, seconds)


def _differences(setting: str, problem: FlowProblem, ours: Answer, turns: dict[str, _Turns]) -> list[str]:
    """Return a line for each peer with another answer; with the certificate of flowsched's optimum, if it has one."""
    others = {name: turn.answer for name, turn in turns.items() if turn.answer not in (None, ours)}
    if not others:
        return []
    judged = ""
    if isinstance(ours, int):
        columns = (problem.tail, problem.head, problem.capacity, problem.cost, problem.supply)
        try:
            certify(*columns, min_cost_flow(*columns, lower=problem.lower), lower=problem.lower)
            judged = ", which is certified"
        except AssertionError as error:
            judged = f", which has no certificate: {error}"
    return [f"{setting}: {name} finds {answer}, flowsched {ours}{judged}" for name, answer in others.items()]
