"""HRM: batch and stream jobs on resource units (parts of CPU-GPU machines), and several schedulers over one shared state.

A machine is cut into units (`split_machine`); each has two queues over the same resources (`StackedQueue`); a container
goes where it is predicted to start first (`predict_wait`).  A `Store` holds the claimed and the running tasks.  Through
the `Negotiator`, batch jobs claim optimistically, and stream jobs under a lock.  `Hybrid` turns units into a flow
network.  The parts that need SQLAlchemy (``pip install '.[sql]'``) are loaded when they are first asked
for.  Source: "HRM: a hybrid resource scheduling framework for heterogeneous clusters oriented to Dataflow".
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from flowsched.hrm.adapter import Hybrid
from flowsched.hrm.containers import Admission, Container, Outcome, sense
from flowsched.hrm.prediction import Prediction, WaitMatrix, predict_wait
from flowsched.hrm.queues import StackedQueue, queue_length, share_cores
from flowsched.hrm.rebalancing import Elastic, Move, TransferQueue, rebalance
from flowsched.hrm.run_times import RunTimes
from flowsched.hrm.shares import fair_shares
from flowsched.hrm.state.claims import Claim, ExpiredError, Granted, JobState, Lost, Refusal, Report, Status, UnitState
from flowsched.hrm.topology import read_machine
from flowsched.hrm.units import AMOUNTS, Core, Gpu, Node, ResourceUnit, split_machine

if TYPE_CHECKING:
    from flowsched.hrm.state.negotiator import Negotiator
    from flowsched.hrm.state.store import Store

__all__ = [
    "AMOUNTS",
    "Admission",
    "Claim",
    "Container",
    "Core",
    "Elastic",
    "ExpiredError",
    "Gpu",
    "Granted",
    "Hybrid",
    "JobState",
    "Lost",
    "Move",
    "Negotiator",
    "Node",
    "Outcome",
    "Prediction",
    "Refusal",
    "Report",
    "ResourceUnit",
    "RunTimes",
    "StackedQueue",
    "Status",
    "Store",
    "TransferQueue",
    "UnitState",
    "WaitMatrix",
    "fair_shares",
    "predict_wait",
    "queue_length",
    "read_machine",
    "rebalance",
    "sense",
    "share_cores",
    "split_machine",
]

_LAZY = {"Negotiator": "flowsched.hrm.state.negotiator", "Store": "flowsched.hrm.state.store"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        try:
            return getattr(import_module(_LAZY[name]), name)
        except ModuleNotFoundError as missing:
            if missing.name != "sqlalchemy":
                raise
            raise ImportError("the shared state needs SQLAlchemy: pip install 'flowsched[sql]'") from missing
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
