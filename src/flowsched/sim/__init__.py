"""Simulated clusters: a workload, a scheduler, and the measurements of a run.

`Workload` (the bundled model) or `load_trace` (a recorded trace) gives the arrivals; `Simulation` runs them under a scheduler; `Metrics` holds the measurements and `write_report` draws them.  Needs ``pip install '.[sim]'``.
"""

from flowsched.sim.audit import AuditError
from flowsched.sim.comparison import MEASURES, Comparison, Outcome, Spread, compare
from flowsched.sim.engine import UNDECIDED, Progress, Schedules, Simulation
from flowsched.sim.execution import Execution, ForeignLoad
from flowsched.sim.fragmentation import Fragmentation
from flowsched.sim.gavel import max_min_throughput
from flowsched.sim.links import NetworkModel
from flowsched.sim.metrics import Metrics, Percentiles, Usage
from flowsched.sim.power import Energy, PowerModel
from flowsched.sim.report import comparison_report, report, write_comparison, write_plots, write_report
from flowsched.sim.schedulers import SCHEDULERS, scheduler
from flowsched.sim.synthetic import SYNTHETIC, synthetic
from flowsched.sim.traces.formats import TraceFormat, TraceOptions, TraceSource
from flowsched.sim.traces.load import TRACE_FORMATS, from_frame, load_trace
from flowsched.sim.traces.machines import read_machines, with_machine_events
from flowsched.sim.traces.table import write_trace
from flowsched.sim.workload import QOS_PRIORITY, Arrival, Load, Trace, Workload, estimated

__all__ = [
    "MEASURES",
    "QOS_PRIORITY",
    "SCHEDULERS",
    "SYNTHETIC",
    "TRACE_FORMATS",
    "UNDECIDED",
    "Arrival",
    "AuditError",
    "Comparison",
    "Energy",
    "Execution",
    "ForeignLoad",
    "Fragmentation",
    "Load",
    "Metrics",
    "NetworkModel",
    "Outcome",
    "Percentiles",
    "PowerModel",
    "Progress",
    "Schedules",
    "Simulation",
    "Spread",
    "Trace",
    "TraceFormat",
    "TraceOptions",
    "TraceSource",
    "Usage",
    "Workload",
    "compare",
    "comparison_report",
    "estimated",
    "from_frame",
    "load_trace",
    "max_min_throughput",
    "read_machines",
    "report",
    "scheduler",
    "synthetic",
    "with_machine_events",
    "write_comparison",
    "write_plots",
    "write_report",
    "write_trace",
]
