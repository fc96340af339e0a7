"""Records of machines, jobs, groups and tasks, by identity; their numbers are in `inventory`.

A record is never reused, so a reference to it identifies the same job or task forever.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
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
    """Tasks of any job with the same demand, constraints, priority and kind."""

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
        """Sort key that does not depend on the order of arrival (without kinds, which may not be comparable)."""
        demand, constraints, priority = self.key[:3]
        if not constraints:
            return demand, constraints, priority
        # Label values cannot be compared with requirements.
        typed = tuple((label, bool(wanted) and type(wanted[0]) is tuple, wanted) for label, wanted in constraints)
        return demand, typed, priority


GroupKey = TaskClass | tuple[TaskClass, frozenset[tuple[Hashable, float]]]
"""Key of a group in its job: its class and, for tasks with data, the data."""


@dataclass(slots=True, eq=False)
class Group:
    """Tasks of one job and one class with the same data: equal in every respect, so one node of the network.

    `waiting` is in order of the start of waiting; `on` has the start times of the running tasks, by machine row.
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
        """Key among the groups of its job."""
        return (self.cls, frozenset(self.data)) if self.data else self.cls


@dataclass(slots=True, eq=False)
class JobRecord:
    """One job and its tasks; `most` is the largest number of tasks that it has had at a time.

    `groups` is its only group, or all groups by key: most jobs have one, and a dict for each would be a third of the objects
    that the garbage collector visits.  See `each_group`, `group_of`, `add_group` and `drop_group`.
    """

    job: Job
    serial: int
    tasks: Chain = field(default_factory=partial(Chain, True))
    groups: Group | dict[GroupKey, Group] | None = None
    most: int = 0

    @staticmethod
    def __columns__(jobs: list[JobRecord]) -> dict[str, list[dict[GroupKey, Group]]]:
        """Return the groups of jobs by key, for images; all other attributes are stored unchanged."""
        return {"groups": [{group.key: group for group in job.each_group()} for job in jobs]}

    def fold(self) -> None:
        """Replace a dict of less than two groups, as images have it."""
        groups = self.groups
        if isinstance(groups, dict) and len(groups) < 2 and all(group.key == key for key, group in groups.items()):
            self.groups = next(iter(groups.values()), None)

    def each_group(self) -> Collection[Group]:
        """Return its groups in order of arrival."""
        groups = self.groups
        if groups is None:
            return ()
        return groups.values() if isinstance(groups, dict) else (groups,)

    def group_of(self, key: GroupKey) -> Group | None:
        """Return the group of this key."""
        groups = self.groups
        if isinstance(groups, dict):
            return groups.get(key)
        return groups if groups is not None and groups.key == key else None

    def add_group(self, group: Group) -> None:
        """Add a group with a new key."""
        groups = self.groups
        if groups is None:
            self.groups = group
        elif isinstance(groups, dict):
            groups[group.key] = group
        else:
            self.groups = {groups.key: groups, group.key: group}

    def drop_group(self, group: Group) -> None:
        """Forget one of the groups."""
        if isinstance(self.groups, dict):
            del self.groups[group.key]
        else:
            self.groups = None

    @property
    def gang_size(self) -> int:
        """Smallest number of its tasks that run together: less than its gang once tasks of a complete gang have ended."""
        gang = self.job.gang or 0
        return gang if self.most < gang else min(gang, len(self.tasks))

    @property
    def running(self) -> int:
        """Number of its running tasks."""
        return sum(group.tasks - len(group.waiting) for group in self.each_group())

    @property
    def lacks(self) -> int:
        """Number of waiting tasks that must start together; 0 if each may start alone."""
        gang = self.gang_size
        if gang <= 1:
            return 0
        lacks = gang - self.running
        return lacks if lacks > 1 else 0
