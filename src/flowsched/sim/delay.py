"""Delay scheduling: a job whose next task could only run away from its data lets other jobs go first, for a while.

Algorithm 1 of FGM asks for it before it matches a task with a machine.  Source: Zaharia et al., "Delay Scheduling", EuroSys
2010, algorithm 2: a job's wait begins when it is first passed over, and again when it starts a task on a machine with its data.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable

import numpy as np
from numpy.typing import NDArray

from flowsched.boundary.validate import number
from flowsched.cluster.records import TaskRecord
from flowsched.cluster.state import Cluster

__all__ = ["DelayScheduling"]

Ints = NDArray[np.int64]


class DelayScheduling:
    """How long a job waits for a machine with its data (`Task.data`), and then for one in such a machine's rack.

    Parameters
    ----------
    machine : float
        Seconds for which a job takes only machines with its task's data.
    rack : float
        Seconds after that for which it also takes machines of their racks; then any.
    """

    def __init__(self, machine: float, rack: float = 0.0) -> None:
        self.machine = number("machine", machine, 0, finite=False)
        self.rack = number("rack", rack, 0, finite=False)
        self._since: dict[Hashable, float] = {}  # by job: when its wait began

    def nearest(self, cluster: Cluster, task: TaskRecord, rows: Ints, now: float) -> Ints:
        """Return which of these rows a task may take now, by position: the nearest to its data; all, if no such machine is there."""
        known = (cluster.machines.get(id) for id, amount in task.group.data if amount > 0)
        here = [record for record in known if record is not None and cluster.inventory.usable[record.row]]
        every = np.arange(len(rows))
        if not here:
            return every
        near = np.flatnonzero(np.isin(rows, [record.row for record in here]))
        if len(near):
            return near
        waited = now - self._since.setdefault(task.group.job.job.id, now)
        racks = {record.rack for record in here if record.rack is not None}
        in_rack = np.array([cluster.by_row[row].rack in racks for row in rows.tolist()], np.bool_)
        if waited >= self.machine and in_rack.any():
            return np.flatnonzero(in_rack)
        return every if waited >= _sum(self.machine, self.rack) else every[:0]

    def started(self, cluster: Cluster, tasks: Iterable[Hashable], now: float) -> None:
        """Note what a commit started: the wait of a job begins anew where a task runs on a machine with its data."""
        for id in tasks:
            task = cluster.tasks[id]
            if any(machine == cluster.by_row[task.row].id for machine, _ in task.group.data):
                self._since[task.group.job.job.id] = now
        for job in self._since.keys() - cluster.jobs.keys():
            del self._since[job]


def _sum(a: float, b: float) -> float:
    return math.inf if math.inf in (a, b) else a + b
