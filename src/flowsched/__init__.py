"""flowsched: cluster scheduling as incremental min-cost max-flow.

Events go in, and a flow network is updated and re-optimised only where they changed it.  The changes of
the flow come out as placements, preemptions, migrations and reasons for waiting::

    events -> Cluster (state) -> Builder (changed arcs) -> FlowNetwork.solve -> Round (decisions)

>>> import flowsched as fs
>>> sched = fs.Scheduler(resources=("cpu", "gpu"))
>>> _ = sched.apply(fs.MachineAdded("m1", {"cpu": 8, "gpu": 2}), fs.MachineAdded("m2", {"cpu": 8}))
>>> _ = sched.apply(fs.JobSubmitted("train", [fs.Task("t0", {"cpu": 4, "gpu": 2}), fs.Task("t1", {"cpu": 4, "gpu": 0.5})]))
>>> rnd = sched.schedule(now=0.0)
>>> dict(rnd.placements), rnd.waiting["t1"].code.value
({'t0': 'm1'}, 'OUTBID')
>>> sched.commit(rnd).conflicts
{}

Three layers, each usable without the next: `min_cost_flow` and `FlowNetwork` solve flow problems; `Scheduler`
decides for a cluster that reports events; `flowsched.sim` runs a scheduler on recorded or modelled workloads
(``pip install '.[sim]'``).  Everything up to the scheduler needs NumPy alone.
"""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

from flowsched.cluster.events import (
    EndedRun,
    Event,
    JobRemoved,
    JobSubmitted,
    MachineAdded,
    MachineDrained,
    MachineFailed,
    MachineRemoved,
    MachineSampled,
    MachineUpdated,
    TaskCompleted,
    TaskFailed,
    TaskRemoved,
    TaskStarted,
    TaskStopped,
    TaskSubmitted,
    UsageSampled,
    UserAdded,
    UserRemoved,
    UserUpdated,
)
from flowsched.cluster.model import Job, Machine, Resources, Task, Tasks, User
from flowsched.cluster.selectors import DoesNotExist, Exists, Gt, In, Lt, NotIn, Taint, Toleration
from flowsched.cluster.state import Cluster
from flowsched.exceptions import (
    ConcurrentUseError,
    CorruptJournalError,
    CostRangeError,
    DimacsError,
    DuplicateIdError,
    FlowschedError,
    InfeasibleError,
    InputError,
    JournalError,
    JournalMismatchError,
    StoreError,
    TimeLimitError,
    TornStateError,
    TraceError,
    UnboundedError,
    UnknownIdError,
    UnknownMachineError,
    UnknownTaskError,
)
from flowsched.journal.journal import Journal
from flowsched.journal.rerun import Recovery
from flowsched.network.assignment import assignment
from flowsched.network.certificate import certify
from flowsched.network.curves import cost_by_amount, cost_by_capacity
from flowsched.network.dimacs import read_dimacs, write_dimacs
from flowsched.network.flow_network import FlowNetwork
from flowsched.network.max_flow import MaxFlow, max_flow
from flowsched.network.one_shot import min_cost_flow
from flowsched.network.ortools import SimpleMinCostFlow
from flowsched.network.problem import FlowProblem, from_adjacency, from_incidence, scale_costs
from flowsched.network.results import INF, FlowResult, FlowSolution
from flowsched.network.transport import TransportResult, transport
from flowsched.policy import (
    DRF,
    BatchShare,
    Constraint,
    CustomCost,
    DeviceCost,
    Fairness,
    FragmentationCost,
    Limits,
    LoadCost,
    Locality,
    MaxMin,
    PlacementCost,
    Policy,
    Precedence,
    PreemptionCost,
    PreferenceCost,
    PriorityCost,
    Quotas,
    Remaining,
    SequenceShare,
    ShareProvider,
    StaticQuotas,
    StrictPriority,
    TaintCost,
    Utilities,
    WaitCost,
    WeightedMaxMin,
    WeightedPriority,
)
from flowsched.rounds.values import (
    Commit,
    Delta,
    Migrate,
    Place,
    Preempt,
    Preemption,
    Reason,
    ReasonCode,
    Round,
    RoundStats,
    Share,
)
from flowsched.scheduler import Scheduler, replay
from flowsched.version import __version__ as __version__

__all__ = [
    "DRF",
    "INF",
    "BatchShare",
    "Cluster",
    "Commit",
    "ConcurrentUseError",
    "Constraint",
    "CorruptJournalError",
    "CostRangeError",
    "CustomCost",
    "Delta",
    "DeviceCost",
    "DimacsError",
    "DoesNotExist",
    "DuplicateIdError",
    "EndedRun",
    "Event",
    "Exists",
    "Fairness",
    "FlowNetwork",
    "FlowProblem",
    "FlowResult",
    "FlowSolution",
    "FlowschedError",
    "FragmentationCost",
    "Gt",
    "In",
    "InfeasibleError",
    "InputError",
    "Job",
    "JobRemoved",
    "JobSubmitted",
    "Journal",
    "JournalError",
    "JournalMismatchError",
    "Limits",
    "LoadCost",
    "Locality",
    "Lt",
    "Machine",
    "MachineAdded",
    "MachineDrained",
    "MachineFailed",
    "MachineRemoved",
    "MachineSampled",
    "MachineUpdated",
    "MaxFlow",
    "MaxMin",
    "Migrate",
    "NotIn",
    "Place",
    "PlacementCost",
    "Policy",
    "Precedence",
    "Preempt",
    "Preemption",
    "PreemptionCost",
    "PreferenceCost",
    "PriorityCost",
    "Quotas",
    "Reason",
    "ReasonCode",
    "Recovery",
    "Remaining",
    "Resources",
    "Round",
    "RoundStats",
    "Scheduler",
    "SequenceShare",
    "Share",
    "ShareProvider",
    "SimpleMinCostFlow",
    "StaticQuotas",
    "StoreError",
    "StrictPriority",
    "Taint",
    "TaintCost",
    "Task",
    "TaskCompleted",
    "TaskFailed",
    "TaskRemoved",
    "TaskStarted",
    "TaskStopped",
    "TaskSubmitted",
    "Tasks",
    "TimeLimitError",
    "Toleration",
    "TornStateError",
    "TraceError",
    "TransportResult",
    "UnboundedError",
    "UnknownIdError",
    "UnknownMachineError",
    "UnknownTaskError",
    "UsageSampled",
    "User",
    "UserAdded",
    "UserRemoved",
    "UserUpdated",
    "Utilities",
    "WaitCost",
    "WeightedMaxMin",
    "WeightedPriority",
    "assignment",
    "certify",
    "cost_by_amount",
    "cost_by_capacity",
    "from_adjacency",
    "from_incidence",
    "max_flow",
    "min_cost_flow",
    "read_dimacs",
    "replay",
    "scale_costs",
    "transport",
    "write_dimacs",
]

_LAZY = ("fgm", "hrm", "metrics", "run", "sharing", "sim")
"""Modules loaded at their first use, because they need more than NumPy or are seldom needed."""


def __getattr__(name: str) -> ModuleType:
    if name in _LAZY and importlib.util.find_spec(f"{__name__}.{name}"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *(name for name in _LAZY if importlib.util.find_spec(f"{__name__}.{name}"))})
