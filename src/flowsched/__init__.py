"""flowsched: which task runs where, as incremental min-cost max-flow.

Events go in, a flow network is kept up to date with them and re-optimised where they changed it, and what
changed in the flow comes out as placements, preemptions, migrations and reasons to wait::

    events -> Cluster (what is) -> builder (arcs that changed) -> FlowNetwork.solve -> Round (what to do)

The solver alone is `min_cost_flow` (one problem) and `FlowNetwork` (a network that lives and changes).
"""

from flowsched.exceptions import (
    CostRangeError,
    DimacsError,
    DuplicateIdError,
    FlowschedError,
    InfeasibleError,
    InputError,
    TimeLimitError,
    TraceError,
    UnboundedError,
    UnknownIdError,
    UnknownMachineError,
    UnknownTaskError,
)
from flowsched.network import INF, FlowNetwork, FlowResult, FlowSolution, certify, min_cost_flow

__version__ = "0.1.0"

__all__ = [
    "INF",
    "CostRangeError",
    "DimacsError",
    "DuplicateIdError",
    "FlowNetwork",
    "FlowResult",
    "FlowSolution",
    "FlowschedError",
    "InfeasibleError",
    "InputError",
    "TimeLimitError",
    "TraceError",
    "UnboundedError",
    "UnknownIdError",
    "UnknownMachineError",
    "UnknownTaskError",
    "certify",
    "min_cost_flow",
]
