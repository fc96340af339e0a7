"""Dense matrices: transport against POT, assignment against SciPy and lapx.

All families are drawn from a seed: points of two clouds under several distances, and uniform costs.  POT gets floats, and answers in floats: its cost is compared with the exact one,
and a difference is a note, not a fault.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from time import thread_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

import flowsched as fs
from bench.solver.findings import Findings, Goal

__all__ = ["FAMILIES", "assignments", "costs", "transports"]

FAMILIES = ("squared, shifted", "squared, same", "Euclidean", "squared, 8-d", "uniform", "uniform, 0..99")


def costs(name: str, rng: np.random.Generator, n: int, m: int) -> NDArray[np.int64]:
    """Return the cost matrix of a family."""
    if name.startswith("uniform"):
        return rng.integers(0, 100 if "99" in name else 10**6, (n, m))
    dimensions = 8 if "8-d" in name else 2
    x, y = rng.standard_normal((n, dimensions)), rng.standard_normal((m, dimensions))
    if "shifted" in name:
        y += rng.uniform(0.5, 2)
    squared = (x**2).sum(1)[:, None] + (y**2).sum(1) - 2 * x @ y.T
    distance = np.sqrt(np.maximum(squared, 0)) if "Euclidean" in name else np.maximum(squared, 0)
    whole: NDArray[np.int64] = np.rint(distance * 1e6).astype(np.int64)
    return whole


def transports(findings: Findings, sizes: list[int], seed: int, repeats: int) -> None:
    """Add rows of balanced transport with unit supplies and with weights."""
    if not importlib.util.find_spec("ot"):
        findings.notes.append("POT is absent: the rows of dense transport are left out")
        return
    import ot

    ratios: dict[str, float] = {}
    others: list[str] = []
    for n in sizes:
        for k, name in enumerate(FAMILIES):
            rng = np.random.default_rng([seed, n, k])
            cost = costs(name, rng, n, n)
            floats = cost.astype(float)
            for weighted in (False, True):
                supply = rng.integers(1, 1000, n) if weighted else np.ones(n, np.int64)
                demand = rng.permutation(supply)
                shares = supply / supply.sum(), demand / supply.sum()
                setting = f"transport {n} x {n}, {name}, {'weights' if weighted else 'units'}"
                ours, result = _least(lambda c=cost, a=supply, b=demand: fs.transport(c, a, b), repeats)  # type: ignore[misc]
                theirs, plan = _least(lambda c=floats, s=shares: ot.emd(*s, c, numItermax=10**8), repeats)  # type: ignore[misc]
                findings.compare(setting, "one call", ours, {"POT": theirs})
                found = float((plan * floats).sum() * supply.sum())
                excess = (found - result.cost) / max(result.cost, 1)
                if abs(excess) > 1e-9:
                    others.append(f"{setting} ({excess:.1e})")
                ratios[setting] = theirs / ours
    findings.summary(f"{len(ratios)} dense transport problems", ratios, Goal(1, 2), Goal(1.5, 3))
    if others:
        findings.notes.append("POT's answer is not the optimum (relative excess of its cost): " + "; ".join(others))


def assignments(findings: Findings, sizes: list[int], seed: int, repeats: int) -> None:
    """Add rows of dense assignment, of integers and of floats."""
    ratios: dict[str, float] = {}
    for n in sizes:
        for k, name in enumerate((*FAMILIES, "Euclidean, clipped")):
            rng = np.random.default_rng([seed, n, k])
            whole = costs(name, rng, n, n)
            if "clipped" in name:
                whole = np.minimum(whole, 10**6 // int(np.sqrt(n)))
            digits = whole + rng.random((n, n))
            for kind in ("int64", "float64", "float32", "float64, all digits"):
                cost = digits if "all" in kind else whole.astype(kind)
                calls = max(300 // n, 1)
                ours, pairs = _least(lambda c=cost: fs.assignment(c), repeats, calls)  # type: ignore[misc]
                best = cost[pairs].sum(dtype=np.float64)
                seconds: dict[str, float] = {}
                for peer, solve in _assigners().items():
                    seconds[peer], columns = _least(lambda c=cost, s=solve: s(c), repeats, calls)  # type: ignore[misc]
                    theirs = cost[np.arange(n), columns].sum(dtype=np.float64)
                    if theirs < best * (1 - 1e-12 * ("all" in kind)):
                        findings.wrong.append(
                            f"assignment {n}, {name}, {kind}: {peer} finds {theirs}, flowsched {best}"
                        )
                setting = f"assignment {n} x {n}, {name}, {kind}"
                findings.compare(setting, "one call", ours, seconds)
                if seconds:
                    ratios[setting] = min(seconds.values()) / ours
    findings.summary(f"{len(ratios)} dense assignment problems", ratios, Goal(1, 1.5), Goal(1.5, 2))


def _assigners() -> dict[str, Callable[[NDArray[Any]], Any]]:
    """Return the peers by name: each returns the column of every row."""
    found: dict[str, Callable[[NDArray[Any]], Any]] = {}
    if importlib.util.find_spec("scipy"):
        from scipy.optimize import linear_sum_assignment

        found["SciPy"] = lambda cost: linear_sum_assignment(cost)[1]
    if importlib.util.find_spec("lap"):
        import lap

        found["lapx lapjv"] = lambda cost: lap.lapjv(cost, return_cost=False)[0]
        found["lapx lapjvc"] = lambda cost: lap.lapjvc(cost, return_cost=False)[1]
    return found


def _least(call: Callable[[], Any], repeats: int, calls: int = 1) -> tuple[float, Any]:
    """Return the least time of a call, and its result."""
    least, result = np.inf, None
    for _ in range(repeats):
        begun = thread_time()
        for _ in range(calls):
            result = call()
        least = min(least, (thread_time() - begun) / calls)
    return least, result
