"""Simulated clusters: a workload, a scheduler, and the measurements of a run.

`Workload` (the bundled model) or `load_trace` (openb, Google 2011) gives the arrivals; `Simulation` runs them under a
scheduler; `Metrics` holds the measurements and `write_report` draws them.  Needs ``pip install 'flowsched[sim]'``.
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
