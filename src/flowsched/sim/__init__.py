"""Simulated clusters: a workload, a scheduler, and what came of it.

`Workload` (the bundled model) or `load_trace` (openb, Google 2011) say what arrives when; `Simulation` runs it under
a scheduler; `Metrics` holds what was measured and `write_report` draws it.  Needs ``pip install 'flowsched[sim]'``.
"""

from flowsched.sim.audit import AuditError
from flowsched.sim.engine import Simulation
from flowsched.sim.execution import Execution, ForeignLoad
from flowsched.sim.metrics import Metrics, Percentiles, Usage
from flowsched.sim.report import report, write_report
from flowsched.sim.traces.load import load_trace
from flowsched.sim.values import UNDECIDED, Progress, Schedules
from flowsched.sim.workload import QOS_PRIORITY, Arrival, Load, Trace, Workload

__all__ = [
    "QOS_PRIORITY",
    "UNDECIDED",
    "Arrival",
    "AuditError",
    "Execution",
    "ForeignLoad",
    "Load",
    "Metrics",
    "Percentiles",
    "Progress",
    "Schedules",
    "Simulation",
    "Trace",
    "Usage",
    "Workload",
    "load_trace",
    "report",
    "write_report",
]
