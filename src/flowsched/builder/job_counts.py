"""Tasks of every job as claimants count them: waiting tasks, infeasible tasks, and their demands.

A waiting task that no machine could run even if it were empty is *infeasible*, and so are those of a gang that has
been left out.  They claim nothing: counted like the others they would make the mean task larger than it is and take a
part of the cluster that they cannot use, for as long as they wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.columns import Columns, column
from flowsched.cluster.model import UNLIMITED
from flowsched.cluster.records import Group, JobRecord, TaskClass
from flowsched.cluster.state import Cluster
from flowsched.policy.providers import Claims

__all__ = ["JobCounts", "jobs_with"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class JobCounts(Columns):
    """Counts of tasks by index of the job, as of the last `recount` of each.

    Parameters
    ----------
    cluster : Cluster

    Attributes
    ----------
    waived : dict of Group to int
        Largest number of waiting tasks of the group that claim, whatever their class.
    """

    tasks: Ints = column("jobs")
    """All tasks."""
    waiting: Ints = column("jobs")
    """Tasks that wait."""
    infeasible: Ints = column("jobs")
    """Waiting tasks that are infeasible."""
    demand: Floats = column("jobs", "resources", dtype=np.float64)
    """Sum of the demands of all tasks but the infeasible ones, in micro-units."""
    held: Floats = column("jobs", "resources", dtype=np.float64)
    """Sum of the demands of the running tasks, in micro-units."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(resources=len(cluster.resources.names))
        self.cluster = cluster
        self.waived: dict[Group, int] = {}
        self._hope: dict[TaskClass, bool] = {}

    def running(self, jobs: Ints) -> Ints:
        """Return the running tasks of jobs."""
        return self.tasks[jobs] - self.waiting[jobs]

    def look(self, roomy: Collection[int] | None = None) -> list[TaskClass]:
        """Determine the classes that some machine can run; return those whose answer has changed since the last call.

        Parameters
        ----------
        roomy : collection of int, optional
            Classes, by index, that may be feasible at all.
        """
        inventory = self.cluster.inventory
        # A fit rule may admit tasks that ask for more than the capacity.
        hope = inventory.somewhere() if inventory.rule is None else np.ones(len(inventory.demand), np.bool_)
        if roomy is not None:
            among = np.zeros(len(hope), np.bool_)
            among[list(roomy)] = True
            hope = hope & among
        before = self._hope
        self._hope = {cls: bool(hope[index]) for index, cls in self.cluster.by_class.items()}
        return [cls for cls, has in self._hope.items() if before.get(cls, has) != has]

    def recount(self, jobs: Iterable[tuple[JobRecord, int]]) -> None:
        """Bring the counts of jobs (with their indices) up to date."""
        at, tasks, waiting, infeasible, classes = [], [], [], [], []
        for job, index in jobs:
            for group in job.each_group():
                at.append(index)
                tasks.append(group.tasks)
                waiting.append(len(group.waiting))
                claiming = (self.waived.get(group, UNLIMITED) or 0) if self._hope.get(group.cls, True) else 0
                infeasible.append(max(len(group.waiting) - claiming, 0))
                classes.append(group.cls.index)
        where, count, without = np.array(at, np.int64), np.array(tasks, np.int64), np.array(infeasible, np.int64)
        self.tasks[where] = self.waiting[where] = self.infeasible[where] = 0
        self.demand[where] = self.held[where] = 0.0
        idle = np.array(waiting, np.int64)
        np.add.at(self.tasks, where, count)
        np.add.at(self.waiting, where, idle)
        np.add.at(self.infeasible, where, without)
        of_one = self.cluster.inventory.demand[np.array(classes, np.int64)].astype(np.float64)
        np.add.at(self.demand, where, (count - without)[:, None] * of_one)
        np.add.at(self.held, where, (count - idle)[:, None] * of_one)

    def claims(
        self,
        ids: tuple[Hashable, ...],
        weight: Sequence[float],
        total: Callable[[NDArray[Any]], NDArray[Any]],
        aside: Collection[Hashable],
    ) -> Claims:
        """Return the claims of claimants.

        Parameters
        ----------
        ids : tuple of hashable
        weight : sequence of float
        total : function
            Sums numbers of jobs by claimant.
        aside : collection of hashable
            Claimants that claim no more than their running tasks.
        """
        tasks, running = total(self.tasks - self.infeasible), total(self.tasks - self.waiting)
        demand, held = total(self.demand), total(self.held)
        capacity, slots = self.capacity()
        if slots < UNLIMITED:
            demand, held = np.column_stack([demand, tasks]), np.column_stack([held, running])
            capacity = np.append(capacity, float(slots))
        mean = demand / np.maximum(tasks, 1)[:, None]
        wait = (tasks - running)[:, None]
        further = np.where(wait > 0, np.maximum(demand - held, 0.0) / np.maximum(wait, 1), mean)
        out = np.array([claimant in aside for claimant in ids], np.bool_) if aside else None
        if out is not None:
            tasks = np.where(out, running, tasks)
        claims = Claims(ids, tasks, running, 0, np.array(weight), mean, capacity, held, further, aside=out)
        return replace(claims, units=claims.together())

    def narrowed(self, claims: Claims, share: Ints, total: Callable[[NDArray[Any]], NDArray[Any]]) -> Claims:
        """Return the same claims, with the tasks that these shares of the jobs let start as the next ones."""
        running = self.tasks - self.waiting
        could = self.tasks - self.infeasible - running
        some = np.clip(share[: len(running)] - running, 0, could)
        each = (self.demand - self.held) / np.maximum(could, 1)[:, None]
        count, amounts = total(some), total(some[:, None] * each)
        assert claims.further is not None
        further = claims.further.copy()
        at = np.flatnonzero(count)
        further[at, : amounts.shape[1]] = amounts[at] / count[at, None]
        return replace(claims, further=further)

    def capacity(self) -> tuple[Floats, int]:
        """Return the capacity and the slots of all usable machines."""
        inventory = self.cluster.inventory
        usable = inventory.usable[: inventory.rows]
        capacity = usable.astype(np.float64) @ inventory.capacity[: inventory.rows].astype(np.float64)
        return capacity, min(int(np.minimum(inventory.slots[: inventory.rows][usable], UNLIMITED).sum()), UNLIMITED)


def jobs_with(classes: Iterable[TaskClass], jobs: Mapping[JobRecord, int]) -> list[JobRecord]:
    """Return the jobs that have tasks of one of the classes."""
    wanted = set(classes)
    return [job for job in jobs if any(group.cls in wanted for group in job.each_group())] if wanted else []
