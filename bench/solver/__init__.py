"""The solver against other solvers on the same networks in the same run: ``python -m bench solver``.

A round is timed from the first mutation to the last changed flow read, Python's calls included; of a peer, all calls that
the same change takes.  Times are medians over the rounds, each the least of its repetitions; cold solves are the least of
theirs.  Solvers take turns.  The clock is the CPU time of the thread (all solve in one): on an idle machine that is the wall
time, and on a busy one it does not charge the longer solves with the work of others.  Every optimum is compared.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from bench.rows import Keep, Outcome, forget
from bench.solver import (
    anytime,
    changes,
    cold,
    dense,
    fields,
    files,
    general,
    handover,
    lemon,
    peers,
    plots,
    scaling,
    warm,
    warm_general,
)
from bench.solver.findings import Findings, Goal, Say

__all__ = ["CLOCK", "TITLE", "plot", "run", "run_files", "versions"]

CLOCK = "CPU time of the thread"
TITLE = "Min-cost flow: rounds of change and cold solves against other solvers"


def run(*, quick: bool, seed: int = 0, say: Say, data: Path | None = None, keep: Keep = forget) -> Outcome:
    """Measure all rows.

    ``quick`` takes fewer rows on smaller networks, about a minute.  ``data`` has ``flowlessly``, the folder ``test_graphs`` of
    https://github.com/ICGog/Flowlessly; without it, its rows are left out.
    """
    findings = Findings(say)
    keep(findings.outcome)
    findings.notes += [f"{peer} is absent ({why}): rows are without it" for peer, why in peers.absent().items()]
    if quick:
        warm.measure(findings, warm.cases(quick=True), seed, repeats=1)
        warm.growth(findings, [1_000, 10_000], seed, rounds=30, repeats=2, check=False)
        warm.spread(findings, 2_000, seed, rounds=100, repeats=2)
        scaling.cold(findings, [(1_000, 4, 3_900)], seed, 1, quick, data)
        scaling.incremental(findings, [(1_000, 24, 2_000)], seed, rounds=3)
        warm.failures(findings, 1_000, 3_900, [10], seed, rounds=10)
        cold.sched(findings, [(10_000, 4, 20_000)], seed, repeats=1)
        for name, make in general.warm_families(quick=True).items():
            warm_general.measure(findings, name, make(seed), seed, rounds=10, repeats=1, goal=None)
    else:
        warm.measure(findings, warm.cases(quick=False), seed, repeats=1)
        warm.growth(findings, [1_000, 3_000, 10_000, 30_000, 100_000], seed, rounds=150, repeats=3, check=True)
        warm.spread(findings, 10_000, seed, rounds=500, repeats=3)
        warm.failures(findings, 10_000, 39_000, [10, 100], seed, rounds=20)
        sizes = [(10_000, 4, tasks) for tasks in (20_000, 39_000, 40_000, 60_000, 80_000)] + [(12_500, 12, 145_000)]
        cold.sched(findings, sizes, seed, repeats=3)
        cold.sched(findings, [(100_000, 4, 390_000)], seed, repeats=2)
        scaling.cold(findings, sizes, seed, 2, quick, data)
        ics = [
            (10_000, 4, 10_000),
            (10_000, 4, 20_000),
            (10_000, 4, 39_000),
            (10_000, 24, 10_000),
            (10_000, 24, 20_000),
        ]
        scaling.incremental(findings, [*ics, (5_000, 24, 10_000), (5_000, 24, 20_000)], seed, rounds=9)
        for name, make in general.warm_families(quick=False).items():
            warm_general.measure(findings, name, make(seed), seed, rounds=20, repeats=2, goal=Goal(1.2, 2))
        if not importlib.util.find_spec("pynetgen"):
            findings.notes.append("pynetgen is absent: the rows of netgen are left out")
    cold.families(findings, quick, seed, 3, data)
    fields.measure(findings, quick, seed, repeats=2)
    dense.transports(findings, [100] if quick else [300, 1_500, 3_000], seed, repeats=1 if quick else 2)
    dense.assignments(findings, [30] if quick else [30, 300, 1_500], seed, repeats=2)
    anytime.measure(findings, quick, seed)
    handover.measure(findings, seed, 500 if quick else 4_000, (0.1,) if quick else (0.01, 0.1, 1.0), 1 if quick else 3)
    if data is not None:
        changes.measure(findings, data / "flowlessly")
    else:
        findings.notes.append(
            "no --data: the rows of recorded networks are left out. "
            "They need DIR/flowlessly, the folder test_graphs of https://github.com/ICGog/Flowlessly"
        )
    cold.reduced(findings, 100 if quick else 500, seed)
    cold.memory(findings, 20_000, seed)
    return findings.outcome()


def run_files(paths: Sequence[Path], *, repeats: int, say: Say, keep: Keep = forget) -> Outcome:
    """Measure the networks of these DIMACS files; see `files.measure`."""
    findings = Findings(say)
    keep(findings.outcome)
    findings.notes += [f"{peer} is absent ({why}): rows are without it" for peer, why in peers.absent().items()]
    files.measure(findings, paths, repeats)
    return findings.outcome()


def versions() -> dict[str, str]:
    """Return the versions of peers that are not Python packages."""
    return {} if lemon.absent() else {"LEMON": lemon.version()}


def plot(outcome: Outcome, folder: Path) -> list[Path]:
    """Plot round time against k and against the size of the cluster; cold solves against the peers."""
    return plots.draw(outcome, folder)
