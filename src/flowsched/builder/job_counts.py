"""Tasks of every job as claimants count them: waiting tasks, infeasible tasks, and their demands.

A waiting task that no machine could run even if it were empty is *infeasible*, and so are those of a gang that has
been left out.  They claim nothing: counted like the others they would make the mean task larger than it is and take a
part of the cluster that they cannot use, for as long as they wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.builder import _shares
from flowsched.builder.claimants import Claimants
from flowsched.cluster.columns import Columns, column
from flowsched.cluster.model import UNLIMITED
from flowsched.cluster.records import Group, JobRecord, TaskClass
from flowsched.cluster.state import Cluster
from flowsched.policy import _claims
from flowsched.policy.providers import Claims

__all__ = ["JobCounts"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class JobCounts(Columns, typed=_shares.JobCountsColumns):
    """Counts of tasks by index of the job, as of the last `recount` of each.

    Parameters
    ----------
    cluster : Cluster

    Attributes
    ----------
    waived : dict of Group to int
        Largest number of waiting tasks of the group that claim, whatever their class.
    feasible : dict of TaskClass to bool
        Classes that some machine can run, as of the last `look`.
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
        self.feasible: dict[TaskClass, bool] = {}
        self._machines: tuple[Any, ...] | None = None
        """State of the machines at the last `look` without restriction, None after one with it."""
        self._capacity: Floats = np.zeros(0)
        """Result of `capacity`."""
        self._capacity_of: tuple[Any, ...] | None = None
        """State of the machines at that time."""

    def running(self, jobs: Ints) -> Ints:
        """Return the running tasks of jobs."""
        return self.tasks[jobs] - self.waiting[jobs]

    def look(self, roomy: Collection[int] | None = None) -> list[JobRecord]:
        """Determine the classes that some machine can run; return the jobs with waiting tasks of those that have changed.

        Parameters
        ----------
        roomy : collection of int, optional
            Classes, by index, that may be feasible at all.
        """
        inventory, classes = self.cluster.inventory, self.cluster.by_class
        machines = (*self._state(), inventory.rule is None) if roomy is None else None
        same = machines is not None and machines == self._machines and len(classes) == len(self.feasible)
        if same and all(map(self.feasible.__contains__, classes.values())):
            return []
        self._machines = machines
        # A fit rule may admit tasks that ask for more than the capacity.
        hope = inventory.somewhere() if inventory.rule is None else np.ones(len(inventory.demand), np.bool_)
        if roomy is not None:
            among = np.zeros(len(hope), np.bool_)
            among[list(roomy)] = True
            hope = hope & among
        before = self.feasible
        self.feasible = {cls: bool(hope[index]) for index, cls in classes.items()}
        changed = (cls for cls, has in self.feasible.items() if before.get(cls, has) != has)
        return [group.job for cls in changed for group in self.cluster.waiting.get(cls, ())]

    def recount(self, jobs: Iterable[JobRecord], index: dict[JobRecord, int]) -> bool:
        """Bring the counts of jobs up to date, except for those without an index; return True if there were any."""
        return _shares.recount(self, jobs, index)

    def claims(
        self, claimants: Claimants, weight: Sequence[float], aside: Collection[Hashable], now: float, reclaim: bool
    ) -> Claims:
        """Return the claims of claimants.

        Parameters
        ----------
        claimants : Claimants
        weight : sequence of float
        aside : collection of hashable
            Claimants that claim no more than their running tasks.
        now, reclaim
            See `Claims`.
        """
        ids, capacity = claimants.ids(), self.capacity()
        tasks, running, mean, held, further = _shares.claims(self, claimants.jobs, claimants.of, len(ids), capacity)
        out = np.array([claimant in aside for claimant in ids], np.bool_) if aside else None
        if out is not None:
            tasks = np.where(out, running, tasks)
        units = _claims.together(tasks, running, _claims.parts(mean, capacity))
        return Claims(
            ids, tasks, running, units, np.array(weight), mean, capacity.copy(), held, further,
            now=now, reclaim=reclaim, aside=out,
        )  # fmt: skip

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

    def capacity(self) -> Floats:
        """Return the capacity of all usable machines, and then their slots if these are limited; not to be altered."""
        machines = self._state()
        if machines != self._capacity_of:
            inventory = self.cluster.inventory
            usable = inventory.usable[: inventory.rows]
            capacity = usable.astype(np.float64) @ inventory.capacity[: inventory.rows].astype(np.float64)
            slots = int(np.minimum(inventory.slots[: inventory.rows][usable], UNLIMITED).sum())
            self._capacity = np.append(capacity, float(slots)) if slots < UNLIMITED else capacity
            self._capacity_of = machines
        return self._capacity

    def _state(self) -> tuple[int, bytes]:
        """Return a mark of the state of the machines, their tasks apart; it differs after each change."""
        inventory = self.cluster.inventory
        return inventory.arranged, inventory.usable[: inventory.rows].tobytes()
