"""HRM: batch and stream jobs on resource units (parts of CPU-GPU machines), and several schedulers over one shared state.

A machine is cut into units (`split_machine`); each has two queues over the same resources (`StackedQueue`); a container
goes where it is predicted to start first (`predict_wait`).  What is claimed and what runs is in a `Store`, and the
`Negotiator` lets batch jobs claim optimistically and stream jobs under a lock.  `Hybrid` turns units into a flow
network.  Source: "HRM: a hybrid resource scheduling framework for heterogeneous clusters oriented to Dataflow".
"""

from flowsched.hrm.history import RunTimes
from flowsched.hrm.queues import Admission, Container, Outcome, StackedQueue, queue_length
from flowsched.hrm.topology import read_machine
from flowsched.hrm.transfer import Elastic, Move, TransferQueue, rebalance
from flowsched.hrm.units import AMOUNTS, Core, Gpu, Node, ResourceUnit, split_machine
from flowsched.hrm.waiting import Prediction, WaitMatrix, predict_wait

__all__ = [
    "AMOUNTS",
    "Admission",
    "Container",
    "Core",
    "Elastic",
    "Gpu",
    "Move",
    "Node",
    "Outcome",
    "Prediction",
    "ResourceUnit",
    "RunTimes",
    "StackedQueue",
    "TransferQueue",
    "WaitMatrix",
    "predict_wait",
    "queue_length",
    "read_machine",
    "rebalance",
    "split_machine",
]
