"""Nodes of groups and jobs: supplies, entries, and the costs of waiting.

::

          wait
    g ----------> U_job          cost: by priority, and by the waiting time of the group's oldest task
     `--> X_c, or E_g            capacity: tasks of g that wait and may start, also by quotas

A group supplies its tasks, waiting and running.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import chain
from math import inf

import numpy as np
from numpy.typing import NDArray

from flowsched.builder.batch import KeptArcs, NetworkBatch
from flowsched.builder.quotas import QuotaAccounts
from flowsched.cluster.records import Group, JobRecord, TaskClass
from flowsched.cluster.state import Cluster
from flowsched.policy import Policy
from flowsched.policy._costs import bucket_and_due

__all__ = ["GroupNode", "GroupNodes"]


class GroupNode:
    """Mirror of a group's part of the network.

    Attributes
    ----------
    node : int
    wait, run : int
        Arcs to the job's node and to the class's aggregator (or to the group's entry, see `locality`).
    supply : int
        Supply of the node.
    waiting : int
        Capacity of `run`.
    bucket : int
        Age bucket of the oldest waiting task, -1 before the first update.
    cost : int
        Cost of `wait`.
    due : float
        End of that bucket.
    """

    __slots__ = ("bucket", "cost", "due", "node", "run", "supply", "wait", "waiting")

    def __init__(self, node: int, wait: int, run: int) -> None:
        self.node, self.wait, self.run = node, wait, run
        self.supply, self.waiting, self.bucket, self.cost, self.due = 0, 0, -1, 0, inf


class GroupNodes:
    """Groups and jobs in a network.

    Parameters
    ----------
    cluster : Cluster
    batch : NetworkBatch

    Attributes
    ----------
    supply : int
        Sum of the supplies of all groups.
    nodes : dict of Group to GroupNode
    job_nodes : dict of JobRecord to int
        Nodes of exactly the jobs of these groups.
    patient : dict of Group
        Groups whose oldest waiting task has reached the age bucket `WaitCost.reserve`.
    """

    __slots__ = (
        "_due",
        "_groups_of",
        "_level_cost",
        "_levels",
        "_serials",
        "batch",
        "cluster",
        "job_nodes",
        "nodes",
        "patient",
        "supply",
    )

    def __init__(self, cluster: Cluster, batch: NetworkBatch) -> None:
        self.cluster = cluster
        self.batch = batch
        self.supply = 0
        self.patient: dict[Group, None] = {}
        self.nodes: dict[Group, GroupNode] = {}
        self.job_nodes: dict[JobRecord, int] = {}
        self._groups_of: dict[JobRecord, int] = {}
        """Number of groups of each job."""
        self._levels: dict[int, int] = {}
        """Number of groups by priority; never 0."""
        self._level_cost: dict[int, int] = {}
        """Cost of waiting by priority, without the part by age; has at least the priorities in `_levels`."""
        self._serials: dict[int, Group] = {}
        """Groups by serial."""
        self._due: list[tuple[float, int]] = []
        """Heap of ends of age buckets with serials of groups; an entry is valid while it equals the `due` of the group's node."""

    # -- groups and jobs come and go ----------------------------------------------------------------------------

    def add(self, groups: list[Group], nodes: list[int], arcs: list[int], first: int) -> bool:
        """Add new groups, of jobs in `job_nodes`; return True if a priority has no cost yet: `relevel` must follow.

        Parameters
        ----------
        groups : list of Group
        nodes : list of int
            Their nodes, and perhaps others after them.
        arcs : list of int
            From position `first` on: the arcs to the jobs' nodes, and then those to aggregators or entries.
        first : int
        """
        levels, costs, counts, new = self._levels, self._level_cost, self._groups_of, False
        for i, group in enumerate(groups):
            self.nodes[group] = GroupNode(nodes[i], arcs[first + i], arcs[first + len(groups) + i])
            self._serials[group.serial] = group
            counts[group.job] = counts.get(group.job, 0) + 1
            priority = group.cls.priority
            levels[priority] = levels.get(priority, 0) + 1
            new |= priority not in costs
        return new

    def forget(self, group: Group) -> tuple[int, int | None]:
        """Forget a group; return its node and, if the job goes with it, that of the job, for removal."""
        node = self.nodes.pop(group)
        del self._serials[group.serial]
        self.patient.pop(group, None)
        self.supply -= node.supply
        priority = group.cls.priority
        self._levels[priority] -= 1
        if not self._levels[priority]:
            del self._levels[priority]
        self._groups_of[group.job] -= 1
        if self._groups_of[group.job]:
            return node.node, None
        del self._groups_of[group.job]
        return node.node, self.job_nodes.pop(group.job)

    # -- costs of waiting ---------------------------------------------------------------------------------------

    @property
    def levels(self) -> list[int]:
        """Priorities that have a cost: all that are in use, and some former ones."""
        return sorted(self._level_cost)

    def set_levels(self, levels: Sequence[int], policy: Policy) -> None:
        """Set costs for these priorities."""
        self._level_cost = policy.levels(levels)

    def relevel(self, policy: Policy, urged: Collection[Group]) -> None:
        """Set the costs of the priorities in use after a new one has come; costs of strict priorities depend on each other."""
        self._level_cost = policy.levels(list(self._levels))
        for group, node in self.nodes.items():
            if node.bucket >= 0:
                self._set_cost(group, node, policy, urged)

    def replace_policy(self, policy: Policy) -> None:
        """Set all costs in the next update; raises where the policy's numbers are too large."""
        self._level_cost = policy.levels(list(self._levels))

    def forget_costs(self) -> None:
        """Check the age of every group in the next update."""
        for group, node in self.nodes.items():
            node.bucket = -1
            self._set_due(node, -inf, group)

    def bucket(self, group: Group, policy: Policy, urged: Collection[Group]) -> int:
        """Return the age bucket that a group counts as: beyond the last one if it is urged."""
        return policy.waiting.buckets if group in urged else self.nodes[group].bucket

    def bearable_cost(self, cls: TaskClass, policy: Policy) -> int:
        """Return the cost at which a task of the class still runs rather than waits, at any ages of the tasks concerned."""
        return self._level_cost[cls.priority] + policy.wait(0) - policy.wait(policy.waiting.buckets)

    def wait_costs(self, policy: Policy) -> NDArray[np.int64]:
        """Return the cost of waiting for a task that has just begun to wait, by class."""
        priority = self.cluster.inventory.priority
        cost = np.full(len(priority), policy.wait(0), np.int64)
        for level, extra in self._level_cost.items():
            cost[priority == level] += extra
        return cost

    # -- world -> arcs ------------------------------------------------------------------------------------------

    @property
    def due(self) -> float:
        """Time at which the next age bucket ends."""
        return self._due[0][0] if self._due else inf

    def wake_at(self, due: float, group: Group) -> None:
        """Lower `due` to at most this time."""
        heappush(self._due, (due, group.serial))

    def update(
        self,
        touched: Iterable[Group],
        now: float,
        policy: Policy,
        withheld: Collection[Group],
        urged: Collection[Group],
        quotas: QuotaAccounts | None = None,
    ) -> None:
        """Bring groups up to date, and those whose oldest waiting task has left its age bucket."""
        nodes, batch, due = self.nodes, self.batch, self._due
        for group in chain(touched, self._aged(now)) if due and due[0][0] <= now else touched:
            node, tasks, waiting = nodes[group], group.tasks, len(group.waiting)
            if tasks != node.supply:
                self.supply += tasks - node.supply
                node.supply = tasks
                batch.set_supply(node.node, tasks)
            if waiting:
                self._set_age(group, node, now, policy, urged)
                if group in withheld:
                    waiting = 0
                elif quotas is not None:
                    waiting = min(waiting, quotas.most(group))
            elif node.bucket:
                self._set_age(group, node, now, policy, urged)
            else:
                node.due = inf
            if waiting != node.waiting:
                node.waiting = waiting
                batch.set_capacity(node.run, waiting)

    def _aged(self, now: float) -> Iterator[Group]:
        while self._due and self._due[0][0] <= now:
            due, serial = heappop(self._due)
            group = self._serials.get(serial)
            if group is not None and self.nodes[group].due == due:
                yield group

    def _set_due(self, node: GroupNode, due: float, group: Group) -> None:
        node.due = due
        if due < inf:
            heappush(self._due, (due, group.serial))

    def _set_age(self, group: Group, node: GroupNode, now: float, policy: Policy, urged: Collection[Group]) -> None:
        """Set the cost of waiting by the waiting time of the oldest task."""
        bucket, due, waiting = 0, inf, policy.waiting
        first = group.waiting.head()
        if first is not None:
            since = first.since
            bucket, due = bucket_and_due(waiting.ends, now if since is None else since, now)
        if bucket != node.bucket:
            node.bucket = bucket
            self._set_cost(group, node, policy, urged)
            if group in self.patient:
                del self.patient[group]
            reserve = waiting.reserve
            # Room does not help a task that waits for better company, so nothing is kept free for it.
            if (
                reserve is not None
                and bucket >= reserve
                and not self.cluster.inventory.affinity.restricts(group.cls.index)
            ):
                self.patient[group] = None
        if due != node.due:
            node.due = due
            if due < inf:
                heappush(self._due, (due, group.serial))

    def _set_cost(self, group: Group, node: GroupNode, policy: Policy, urged: Collection[Group]) -> None:
        bucket = policy.waiting.buckets if group in urged else node.bucket
        cost = self._level_cost[group.cls.priority] + policy.scale.waits[bucket]
        if cost != node.cost:
            node.cost = cost
            self.batch.set_cost(node.wait, cost)

    # -- within a round -----------------------------------------------------------------------------------------

    def close(self, group: Group) -> None:
        """Keep the tasks of the group from starting; a new group comes closed."""
        node = self.nodes.get(group)
        if node is not None:
            node.waiting = 0
            self.batch.set_capacity(node.run, 0)

    def open(self, group: Group, quotas: QuotaAccounts | None = None) -> None:
        """Allow all waiting tasks of the group to start; with quotas, the next update limits their number."""
        node = self.nodes.get(group)
        if node is not None:
            node.waiting = len(group.waiting)
            if quotas is not None:
                quotas.restate(group)
            self.batch.set_capacity(node.run, node.waiting)

    def reprice(self, group: Group, policy: Policy, urged: Collection[Group]) -> None:
        """Set the cost of waiting again, after the group's urgency has changed."""
        node = self.nodes.get(group)
        if node is not None:
            self._set_cost(group, node, policy, urged)

    # -- flow ---------------------------------------------------------------------------------------------------

    def flows(self, groups: Sequence[Group]) -> list[int]:
        """Return the tasks that the flow lets start, group by group."""
        flow: list[int] = self.batch.flow(np.array([self.nodes[group].run for group in groups], np.int64)).tolist()
        return flow

    def kept_arcs(self, entry: Callable[[Group], int]) -> Iterator[KeptArcs]:
        """Yield the arcs kept by this part, with their ends.

        Parameters
        ----------
        entry : callable
            Returns the node by which a group's tasks start.
        """
        nodes = np.array([node.node for node in self.nodes.values()], np.int64)
        jobs = np.array([self.job_nodes[group.job] for group in self.nodes], np.int64)
        yield np.array([node.wait for node in self.nodes.values()], np.int64), nodes, jobs
        heads = np.array([entry(group) for group in self.nodes], np.int64)
        yield np.array([node.run for node in self.nodes.values()], np.int64), nodes, heads
