"""Records of machines, jobs, groups and tasks, by identity; their numbers are in `inventory`.

A record is never reused for another thing, so holding one is a safe way to ask "is it still there".
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster._records import Before, Chain, MachineRecord, Placement, TaskRecord
from flowsched.cluster.model import Job
from flowsched.cluster.selectors import Requirement, Wanted

__all__ = ["Before", "Chain", "Group", "JobRecord", "MachineRecord", "Placement", "TaskClass", "TaskRecord"]


@dataclass(slots=True, eq=False)
class TaskClass:
    """Tasks of one demand, one set of constraints, one priority and one kind, of whatever job."""

    index: int
    key: tuple[Any, ...]
    demand: NDArray[np.int64]
    constraints: Mapping[str, Wanted]
    priority: int
    kind: Hashable | None = None
    prefers: Mapping[str, Wanted] = field(default_factory=dict)
    tolerations: Sequence[Requirement] = ()
    tasks: int = 0

    @property
    def rank(self) -> tuple[Any, ...]:
        """Sorts classes in an order that does not depend on which came first (kinds apart, which may not compare)."""
        demand, constraints, priority = self.key[:3]
        if not constraints:
            return demand, constraints, priority
        # Values of labels do not compare with requirements.
        told = tuple((label, bool(wanted) and type(wanted[0]) is tuple, wanted) for label, wanted in constraints)
        return demand, told, priority


GroupKey = TaskClass | tuple[TaskClass, frozenset[tuple[Hashable, float]]]
"""Tells the groups of one job apart: by class and, where tasks have data, by these."""


@dataclass(slots=True, eq=False)
class Group:
    """Tasks of one job and one class with the same data: alike in every respect, so one node of the network.

    `waiting` is in the order in which they began to wait; `on` says since when those that run do, by machine row.
    """

    job: JobRecord
    cls: TaskClass
    serial: int
    data: tuple[tuple[Hashable, float], ...] = ()
    waiting: Chain = field(default_factory=Chain)
    on: dict[int, tuple[float, ...]] = field(default_factory=dict)
    tasks: int = 0

    @property
    def key(self) -> GroupKey:
        """Its key in `JobRecord.groups`."""
        return (self.cls, frozenset(self.data)) if self.data else self.cls


@dataclass(slots=True, eq=False)
class JobRecord:
    """One job and its tasks; `most` is how many it has had at a time."""

    job: Job
    serial: int
    tasks: Chain = field(default_factory=partial(Chain, True))
    groups: dict[GroupKey, Group] = field(default_factory=dict)
    most: int = 0

    @property
    def gang_size(self) -> int:
        """Least number of its tasks that run together: fewer than its gang once tasks of a complete one have ended."""
        gang = self.job.gang or 0
        return gang if self.most < gang else min(gang, len(self.tasks))
