"""Networks of the user's own, from DIMACS files: every solver that is installed on the same file, cold, build included."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.rows import Row
from bench.solver import peers
from bench.solver.findings import Findings
from flowsched.cli.solvers import differences, flowsched_once, take_turns
from flowsched.exceptions import DimacsError
from flowsched.network.dimacs import read_dimacs
from flowsched.network.problem import FlowProblem

__all__ = ["measure"]


def measure(findings: Findings, paths: Sequence[Path], repeats: int) -> None:
    """Add the rows of each file: the answer, the time of flowsched and each peer; then mean and worst of the ratios.

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
        except (DimacsError, OSError) as error:
            why = (error.strerror or error) if isinstance(error, OSError) else error
            findings.failed.append(f"{path}: {why}")
            findings.say(f"{path}: {why}")
            continue
        ratio = _file(findings, str(path), problem, repeats)
        if ratio is not None:
            ratios[str(path)] = ratio
    findings.summary(f"{len(ratios)} file{'s' * (len(ratios) > 1)}", ratios)


def _file(findings: Findings, setting: str, problem: FlowProblem, repeats: int) -> float | None:
    """Add the rows of one file; return the ratio to the best peer, None without one."""
    if int(problem.supply.sum()) != 0:
        findings.notes.append(f"{setting}: the supplies do not add up to 0; peers read that otherwise and are left out")
    turns = take_turns(problem, {"flowsched": flowsched_once}, peers.cold_peers(), repeats)
    ours = turns["flowsched"]
    if ours.answer is None:
        findings.failed.append(f"{setting}: {ours.error}")
        return None
    findings.wrong += [f"{setting}: {line}" for line in differences(problem, "flowsched", turns)]
    findings.notes += [f"{setting}: {name} gives no answer: {turn.error}" for name, turn in turns.items() if turn.error]
    size = f"{len(problem.supply):,} nodes, {len(problem.tail):,} arcs"
    findings.details.append(Row("solver", setting, "answer", ours.answer, note=size))
    times = {name: min(turn.seconds) for name, turn in turns.items() if not turn.error}
    own = times.pop("flowsched")
    if not times:
        findings.figure(setting, "build included", own, "s", note="without a peer")
        return None
    findings.compare(setting, "build included", own, times)
    return min(times.values()) / own
