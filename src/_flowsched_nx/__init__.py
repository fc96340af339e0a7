"""Metadata of the backend "flowsched", which NetworkX reads whenever it is imported.

A package of its own, because importing anything of flowsched imports NumPy, for which ``import networkx`` must not wait.
"""

from __future__ import annotations

from typing import Any

__all__ = ["get_info"]

_EXACT = (
    "Exact: capacities, weights and demands are integers, as ints or as floats such as 3.0, and all results are ints.\n"
    "Scale fractions first: `flowsched.nx_backend.scale_weights`."
)
_ONE_ALGORITHM = f"{_EXACT}\nRuns where `flow_func` is left out, and finds the values by its own algorithm."

_FUNCTIONS = {
    "network_simplex": _EXACT,
    "min_cost_flow": _EXACT,
    "min_cost_flow_cost": _EXACT,
    "capacity_scaling": (
        f"{_EXACT}\n`heap` makes no difference.  Demands that cannot be met are refused in a graph without edges, too."
    ),
    "max_flow_min_cost": f"{_EXACT}\nTakes MultiDiGraphs, too.  Nodes' demands count, as in NetworkX.",
    "cost_of_flow": "Takes flows of MultiDiGraphs, too.",
    "maximum_flow": _ONE_ALGORITHM,
    "maximum_flow_value": _ONE_ALGORITHM,
    "minimum_cut": _ONE_ALGORITHM,
    "minimum_cut_value": _ONE_ALGORITHM,
}


def get_info() -> dict[str, Any]:
    """Return the backend's metadata, as the entry point ``networkx.backend_info`` wants it."""
    return {
        "backend_name": "flowsched",
        "project": "flowsched",
        "package": "flowsched",
        "short_summary": "Minimum-cost and maximum flow by an exact, compiled solver.",
        "functions": {name: {"additional_docs": docs} for name, docs in _FUNCTIONS.items()},
    }
