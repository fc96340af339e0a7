"""Translation of cluster and policy into changes of the flow network; `flowsched.builder.reading` reads its flow.

The network (g a group of like tasks of one job, c its class, r a rack, M a machine)::

                 wait                0
           g -----------> U_job ---------------------------.
          / \\                                               v
         |   `--0--> X_c --load--> R_c,r --load--> M --0--> S
         |                                         ^
         `----------- -stay -----------------------'

A group supplies its tasks, waiting and running.  Running tasks may stay in place at a discount.  Waiting tasks may
enter their class's aggregator (capacity: the waiting tasks).  From there each rack leads to the machines with
room for the class (capacity: the tasks that fit by resources now, and by slots if worse tasks leave).  M -> S is the
machine's slots, so that within the flow a better task pushes a worse one off its running arc.  The flow cannot
combine other resources: `flowsched.rounds.admission` checks its proposals.

Each part of the network has a file: `groups`, `racks`, `class_arcs`, `machines`, `running`, `locality`, `shares`, and
`evictions` within a round.  Every number is mirrored, and only changed numbers go to the network, so the cost of
an update depends on the size of the change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from functools import partial
from itertools import chain, filterfalse
from math import inf
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.builder.batch import KeptArcs, NetworkBatch
from flowsched.builder.class_arcs import ClassArcs
from flowsched.builder.evictions import EvictionArcs
from flowsched.builder.groups import GroupNodes
from flowsched.builder.locality import LocalityArcs
from flowsched.builder.machines import MachineArcs
from flowsched.builder.queues import Queues
from flowsched.builder.quotas import QuotaAccounts
from flowsched.builder.racks import RackArcs
from flowsched.builder.reservations import Reservations
from flowsched.builder.running import RunningArcs
from flowsched.builder.scope import RoundScope
from flowsched.builder.shares import Shares
from flowsched.cluster.records import Changes, Group, JobRecord, TaskClass
from flowsched.cluster.state import Cluster
from flowsched.network.flow_network import FlowNetwork
from flowsched.network.results import INF
from flowsched.policy import Policy
from flowsched.policy.constraint import limits

__all__ = ["Builder"]

_REMADE = (
    "queues",
    "latest",
    "class_of",
    "quotas",
    "waiting",
    "_ranked",
    "_ranked_of",
    "_rank_of",
    "_evictions",
)
"""Attributes that `Builder.attach` makes."""


class Builder:
    """A network that mirrors a cluster under a policy.

    Parameters
    ----------
    cluster : Cluster
    network : FlowNetwork
        Empty; the builder's own from now on.
    policy : Policy

    Attributes
    ----------
    batch : NetworkBatch
        Access to the network, with a count of the changes made.
    machines, racks, classes, running, locality, groups, shares
        The parts of the network.
    reservations : Reservations
    queues : Queues
    class_of : dict of int to TaskClass
        Classes with waiting tasks by index, as of the last call of `ranks`.
    quotas : QuotaAccounts or None
    gang_groups : dict of Group
        Groups of gangs that have a node.
    left_out : dict of Group
        Groups left out of rounds until the cluster changes.
    latest : float
        Latest time of any round so far: groups may have an age bucket as of that time.
    waiting : list of int
        Classes with waiting tasks at the last update, by rank.
    """

    __slots__ = (
        "_evictions",
        "_known",
        "_policies",
        "_rank_of",
        "_ranked",
        "_ranked_of",
        "_rows",
        "_sent",
        "batch",
        "class_of",
        "classes",
        "cluster",
        "gang_groups",
        "groups",
        "latest",
        "left_out",
        "locality",
        "machines",
        "network",
        "policy",
        "queues",
        "quotas",
        "racks",
        "reservations",
        "running",
        "shares",
        "waiting",
    )

    def __init__(self, cluster: Cluster, network: FlowNetwork, policy: Policy) -> None:
        self.cluster = cluster
        self.network = network
        self.policy = policy
        self.batch = NetworkBatch(network)
        self.machines = MachineArcs(cluster, self.batch)
        self.racks = RackArcs(cluster, self.batch)
        self.classes = ClassArcs(cluster, self.batch, self.machines, self.racks)
        self.reservations = Reservations(cluster, self.classes)
        self.locality = LocalityArcs(cluster, self.batch, self.racks, self.classes)
        self.groups = GroupNodes(cluster, self.batch)
        self.running = RunningArcs(cluster, self.batch, self.machines, self.groups)
        self.shares = Shares(cluster, self.batch, self.machines.sink)
        self.left_out: dict[Group, None] = {}
        self.gang_groups: dict[Group, None] = {}
        self._sent = self._rows = 0
        self._policies = 0
        self._known: tuple[int, int, int, int] | None = None
        self.attach(policy)

    def attach(self, policy: Policy) -> None:
        """Register the reservations and a policy's constraints as limits that the cluster asks (`Inventory.room`).

        An image or a copy of the cluster has no such limits until this is called.

        Raises
        ------
        InputError
            Names of constraints or of limited resources cannot hold in this cluster; nothing has changed.
        """
        quotas = None if policy.quotas is None else QuotaAccounts(self.cluster, policy.quotas)
        self.cluster.inventory.attach(self.reservations, limits(self.cluster, policy.constraints, policy.debug))
        self.quotas = quotas
        self.queues = Queues(self.cluster, self.groups)
        self.latest = -inf
        self._evictions = EvictionArcs(self.batch, self.classes)
        self._ranked: dict[TaskClass, int] = {}
        """Last result of `ranks`."""
        self._ranked_of: list[TaskClass] = []
        """Classes with waiting tasks at the time when `_ranked`, `class_of` and `waiting` were made."""
        self.class_of: dict[int, TaskClass] = {}
        self._rank_of: dict[TaskClass, tuple[Any, ...]] = {}
        self.waiting: list[int] = []

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__ if name not in _REMADE}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state.keys() != {name for name in self.__slots__ if name not in _REMADE}:
            raise TypeError("a builder of other parts")
        for name, value in state.items():
            setattr(self, name, value)

    # -- rounds -------------------------------------------------------------------------------------------------

    def round(self, now: float) -> RoundScope:
        """Return the scope of a round, to be entered; on every way out it restores everything that the round has changed."""
        left = self.left_out
        changed = bool(left) and (self._known != self._state() or self._time_tells(now))
        return RoundScope(
            now, self.policy, self.groups, self.shares, self._evictions, left, changed, self._note_state, self.quotas
        )

    def _note_state(self) -> None:
        self._known = self._state()

    def _state(self) -> tuple[int, int, int, int]:
        """Return a state mark; it differs after each change of `Cluster.moment` and of the policy."""
        return *self.cluster.moment(), self._policies

    def _time_tells(self, now: float) -> bool:
        """Return True if time alone may have changed something that a decision depends on."""
        preemption = self.policy.preemption
        return (
            self.groups.due <= now
            or self.running.time_tells(now)
            or self.reservations.time_tells(now)
            or (preemption is not None and preemption.window > 0)
        )

    def due(self, now: float) -> float:
        """Return the first time after now at which a task or run leaves its age bucket, or a reservation ends."""
        return min(self.groups.due, self.running.due, self.reservations.due(now))

    def remember(self) -> tuple[list[Group], float]:
        """Return the groups left out until the cluster changes, and the time at which they are let in without a change."""
        if not self.left_out or self._known != self._state():
            return [], inf
        return list(self.left_out), min(self.groups.due, self.running.due)

    def resume(self, left_out: Sequence[Group], due: float, levels: Sequence[int], roomy: Sequence[TaskClass]) -> None:
        """Take over the results of `remember`, `levels` and `roomy` of another builder, right before a round."""
        self.groups.set_levels(levels, self.policy)
        self.classes.had_room([cls.index for cls in roomy])
        for group in left_out:
            self.shares.waive(group)
            self.left_out[group] = None
        if left_out and due < inf:
            self.groups.wake_at(due, left_out[0])
        self._known = self._state()

    def has_gangs(self) -> bool:
        """Return True if there are gangs, or some have just come."""
        if self.gang_groups:
            return True
        for group in self.cluster.touched:
            if group.job.job.gang is not None:
                return True
        return False

    def gangs(self) -> list[JobRecord]:
        """Return the jobs of gangs with waiting tasks, in order of arrival."""
        touched = self.cluster.touched
        groups = chain(self.gang_groups, touched) if self.gang_groups else touched
        jobs = {group.job: None for group in groups if group.job.job.gang is not None and group.waiting}
        return sorted(jobs, key=attrgetter("serial")) if jobs else []

    @property
    def levels(self) -> list[int]:
        """Priorities that have a cost: all that are in use, and some former ones."""
        return self.groups.levels

    def roomy(self) -> list[int]:
        """Return the classes (by index) that had room without victims at the last update; see `ClassArcs.roomy`."""
        return self.classes.roomy()

    # -- world -> arcs ------------------------------------------------------------------------------------------

    def update(self, changes: Changes, scope: RoundScope) -> None:
        """Bring the network up to date with the changes of the cluster and with the time."""
        touched, removed, now, policy, quotas = changes.groups, changes.removed, scope.now, self.policy, self.quotas
        if now > self.latest:
            self.latest = now
        if quotas is not None:
            quotas.look(chain(removed, touched))
        if removed or changes.gone or changes.classes:
            self._forget(changes)
        inventory = self.cluster.inventory
        pool = inventory._rows  # with the rows of machines that came and went since the last update
        if pool.count > self._rows:
            self._rows = pool.count
            self.machines.grow(rows=pool.count)
            self.classes.grow(rows=pool.count)
        if changes.machines:
            self.locality.machines_change((), changes.machines)
            self._add_machines(list(changes.machines))
        new = [group for group in touched if group not in self.groups.nodes]
        if new:
            if len(new) > 1:  # so that the order in which tasks were named does not show in the network
                new.sort(key=_rank)
            self._add_groups(new, scope)
        stirred = touched if quotas is None else chain(touched, quotas.restated())
        self.groups.update(stirred, now, policy, scope.withheld, scope.urged, quotas)
        if self.groups.supply != self._sent:
            self._sent = self.groups.supply
            self.batch.set_supply(self.machines.sink, -self._sent)
        self.running.update(touched, policy, now)
        first, scope.first = scope.first, False
        if first:  # later in a round, a machine that would be kept may have been promised to a task
            self._reserve(scope)
        if policy.step < 1 or inventory.arranged > self.machines.seen:  # else slots are unchanged
            self.machines.update(policy.step < 1)
        if self.locality.stale:
            self.locality.update(policy)
        self.ranks()
        if first and inventory.clock > self.classes.next_sweep:
            near = [group.cls.index for group in self.locality.entries]
            self.batch.remove_nodes(self.classes.sweep([*self.waiting, *near]))
        if self.waiting:
            self.classes.refresh(self.waiting, policy, scope.evictions.refused)
        if policy.rack_load or self.racks.weighed:
            self.racks.weigh(policy)
        self.batch.flush()
        if policy.fairness is None and self.shares.fairness is None:
            return
        if quotas is not None and policy.fairness is not None and scope.round_shares.stale:
            scope.limit_claims(quotas)
        self.shares.update(
            [group.job for group in chain(touched, removed)], policy, self.classes.with_room, scope.round_shares
        )

    def _reserve(self, scope: RoundScope) -> None:
        """Keep machines for groups that have waited for long, except for those that more room does not help."""
        patient, withheld, quotas = self.groups.patient, scope.withheld, self.quotas
        backfill = self.policy.backfill
        estimated = backfill is not None and self.cluster.inventory.tasks.estimated
        if not (patient or estimated or self.gang_groups) and self.reservations.idle(scope.now):
            return
        if quotas is not None:
            blocked = quotas.blocked()
            withheld = {**withheld, **blocked}
            patient = dict.fromkeys(filterfalse(blocked.__contains__, patient))
        if self.gang_groups:
            gangs = self.gangs()
            runs = self.shares.runs(self.policy.fairness) if gangs else Counter[Hashable]()
            may_reserve = partial(self._may_reserve, runs)
            self.reservations.update(patient, scope.now, backfill, withheld, gangs, may_reserve)
        else:
            self.reservations.update(patient, scope.now, backfill, withheld)

    def _may_reserve(self, runs: Counter[Hashable], job: JobRecord) -> bool:
        """Return False for a gang that its quota or share keeps waiting, or for which the flow has not tried evictions yet."""
        if self.quotas is not None and any(self.quotas.short(group) for group in job.each_group() if group.waiting):
            return False
        if self.policy.fairness is not None and not self.entitles(job, runs):
            return False
        worst = self.cluster.inventory.worst_running() if self.policy.preemption is not None else None
        return worst is None or worst <= job.job.priority or job in self.reservations.short

    def entitles(self, job: JobRecord, runs: Counter[Hashable]) -> bool:
        """Return True if its share allows a gang to start, by its claimant's bounds at the time when the gang last claimed.

        Parameters
        ----------
        job : JobRecord
        runs : Counter
            See `Shares.runs`.
        """
        bounds, fairness = self.reservations.entitled.get(job), self.policy.fairness
        if bounds is None or fairness is None:
            return False
        most, within = bounds
        running = runs[job.job.user] if fairness.over == "user" else job.running
        return running + job.lacks <= most and job.running + job.lacks <= within

    def note_gangs(self, waiting: Sequence[JobRecord]) -> None:
        """Record the gangs that wait at the end of a round."""
        reservations = self.reservations
        reservations.short = dict.fromkeys(waiting)
        if reservations.vain:
            reservations.vain = {job: until for job, until in reservations.vain.items() if job in reservations.short}
        if reservations.entitled:
            reservations.entitled = {
                job: most for job, most in reservations.entitled.items() if job in reservations.short
            }

    def replace_policy(self, policy: Policy) -> None:
        """Adopt another policy; the next update sets every cost again."""
        self.attach(policy)
        try:
            self.groups.replace_policy(policy)  # raises where its numbers are too large
        except BaseException:
            self.attach(self.policy)
            raise
        self.policy = policy
        self._policies += 1
        self.machines.forget_costs()
        self.classes.forget_costs()
        self.locality.forget_costs()
        self.running.forget_costs()
        self.groups.forget_costs()

    def invalidate(self, classes: Sequence[int]) -> None:
        """Check every machine again for these classes (by index) in the next update, since fits have changed."""
        self.classes.invalidate(classes)

    def _forget(self, changes: Changes) -> None:
        """Forget groups, machines and classes that are gone."""
        nodes: list[int] = []
        for group in changes.removed:
            if group in self.groups.nodes:
                nodes += self._forget_group(group)
        if nodes:
            self.batch.remove_nodes(nodes)
        if changes.gone:
            gone = set(changes.gone)
            for group, rows in changes.groups.items():
                here = gone.intersection(rows)
                self.running.forget_machines(group, here)
                for row in here:
                    del rows[row]
            self.reservations.forget_machines(changes.gone)
            self.locality.machines_change(changes.gone, ())
            self._forget_machines([row for row in changes.gone if self.machines.knows(row)])
        if not changes.classes:
            return
        nodes = []
        for class_id in changes.classes:
            if self.racks.aggregator(class_id) is not None:
                nodes += self.racks.forget_class(class_id)
                nodes += self.classes.forget_class(class_id)
        self.batch.remove_nodes(nodes)

    def _forget_group(self, group: Group) -> list[int]:
        self.gang_groups.pop(group, None)
        self.running.forget(group)
        node, job_node = self.groups.forget(group)
        nodes = [node, *self.locality.forget(group)] if group.data else [node]
        return nodes if job_node is None else [*nodes, job_node, *self.shares.forget(group.job)]

    def _forget_machines(self, rows: Sequence[int]) -> None:
        if not rows:
            return
        nodes = self.machines.forget(rows)
        for row in rows:
            nodes += self.racks.leave(row)
        nodes += self.classes.forget_machines(rows)
        self.batch.remove_nodes(nodes)

    def _add_machines(self, rows: Sequence[int]) -> None:
        """Add new machines, and connect machines that moved to another rack through the new rack."""
        new = []
        for row in rows:
            if self.machines.knows(row):
                gates = self.classes.leave_rack(row)
                self.batch.remove_nodes([*gates, *self.racks.leave(row)])
            else:
                new.append(row)
        self.racks.join(rows, [self.cluster.by_row[row].rack for row in rows])
        self.machines.add(np.array(new, np.int64))

    def _add_groups(self, groups: list[Group], scope: RoundScope) -> None:
        job_nodes, aggregators = self.groups.job_nodes, self.racks.aggregators
        jobs: list[JobRecord] = []
        classes: list[int] = []
        with_data = []
        for group in groups:
            job, class_id = group.job, group.cls.index
            if job not in job_nodes:
                job_nodes[job] = -1
                jobs.append(job)
            if class_id not in aggregators:
                aggregators[class_id] = -1
                classes.append(class_id)
            if group.data:
                with_data.append(group)
            if job.job.gang is not None:
                self.gang_groups[group] = None
        g, j = len(groups), len(jobs)
        nodes = self.batch.new_nodes(g + j + len(classes))
        for i in range(j):
            job_nodes[jobs[i]] = nodes[g + i]
        if classes:
            self.racks.add_classes(classes, nodes[g + j :])
            self.classes.grow(classes=max(classes) + 1)
        if with_data:
            self.locality.add(with_data)
        tails, heads, room = nodes[g : g + j], [self.machines.sink] * j, [INF] * j
        for i in range(g):
            group = groups[i]
            tails.append(nodes[i])
            heads.append(job_nodes[group.job])
            room.append(INF)
        for i in range(g):
            group = groups[i]
            tails.append(nodes[i])
            heads.append(self._entry(group) if group.data else aggregators[group.cls.index])
            room.append(0)
        arcs = self.batch.new_arcs(tails, heads, room, 0)
        for i in range(j):
            self.shares.apart[jobs[i]] = nodes[g + i], arcs[i]
        if self.groups.add(groups, nodes, arcs, j):
            self.groups.relevel(self.policy, scope.urged)

    def _entry(self, group: Group) -> int:
        """Return the node by which a group's tasks start: its own entry, or its class's aggregator."""
        if group.data:
            entry = self.locality.entry(group)
            assert entry is not None
            return entry
        return self.racks.aggregator_of(group.cls.index)

    # -- flow -> proposals --------------------------------------------------------------------------------------

    def ranks(self) -> dict[TaskClass, int]:
        """Return the classes with waiting tasks in order of rank, each with a number; equal ranks have equal numbers.

        `class_of` and `waiting` are set to match.
        """
        waiting = list(self.cluster.waiting)
        if waiting != self._ranked_of:
            self._ranked_of = waiting
            if len(waiting) > 1:
                self._ranked = self._numbered(waiting)
            else:
                self._ranked = {waiting[0]: 0} if waiting else {}
            self.class_of, self.waiting = {}, []
            for cls in self._ranked:
                self.class_of[cls.index] = cls
                self.waiting.append(cls.index)
        return self._ranked

    def _numbered(self, classes: Sequence[TaskClass]) -> dict[TaskClass, int]:
        """Return classes in order of rank, each with a number."""
        known = self._rank_of
        self._rank_of = {cls: known.get(cls) or cls.rank for cls in classes}
        numbers: dict[TaskClass, int] = {}
        number, last = 0, None
        for cls, rank in sorted(self._rank_of.items(), key=itemgetter(1)):
            number += rank is not last and rank != last
            numbers[cls], last = number, rank
        return numbers

    def offers(self, classes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the largest number of tasks of each class that the flow may send to each machine without victims, (classes, rows)."""
        return self.classes.offers(classes)

    # -- for tests ----------------------------------------------------------------------------------------------

    def check_ids(self) -> None:
        """Compare the arcs that the parts keep with those of the network; call it between rounds.

        Raises
        ------
        AssertionError
            See `NetworkBatch.check`.
        """
        kept: list[KeptArcs] = [*self.groups.kept_arcs(self._entry)]
        for part in (self.machines, self.racks, self.classes, self.running, self.locality, self.shares):
            kept += part.kept_arcs()
        self.batch.check(kept, self.classes.num_gates)


def _rank(group: Group) -> tuple[Any, ...]:
    return group.job.serial, group.cls.rank, group.serial
