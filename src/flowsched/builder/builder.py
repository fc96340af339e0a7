"""Cluster + Policy -> changes of the flow network.  The only file (with `places`) that knows both.

The network (g a group of like tasks of one job, c its class, r a rack, M a machine)::

                 wait                0
           g -----------> U_job ------------------------.
          / \\                                            v
         |   `--0--> X_c --0--> R_c,r --load--> M --0--> S
         |                                      ^
         `----------- -stay --------------------'

A group supplies its tasks, waiting and running.  Those that run may stay where they do, at a discount; those that wait
may enter their class's aggregator (capacity: how many wait), from where each rack leads to the machines with room for
the class (capacity: how many fit by resources now, and by slots if worse tasks leave).  M -> S is the machine's slots,
so that within the flow a better task pushes a worse one off its stay arc.  Other resources the flow cannot see
together: `verify` checks what it proposes.

Every number is mirrored, and only those that differ go to the network, so an update costs what changed.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.builder.batch import NetworkBatch
from flowsched.builder.locality import LocalityArcs, Near
from flowsched.builder.machines import MachineArcs
from flowsched.builder.proposals import ClassFlow, lead, racks_of
from flowsched.builder.reservations import Reservations
from flowsched.builder.running import RunningArcs
from flowsched.builder.shares import Shares
from flowsched.cluster.records import Group, JobRecord, TaskClass
from flowsched.cluster.state import Cluster
from flowsched.cluster.transitions import Changes
from flowsched.network.flow_network import INF, FlowNetwork
from flowsched.policy import Policy
from flowsched.policy.constraint import limits

__all__ = ["Builder"]

_NEVER = float("inf")


@dataclass(slots=True)
class _GroupNode:
    """What the network knows of a group.

    `wait` and `run` are arcs to U and X (or to the group's entry, see `nearness`).
    """

    node: int
    wait: int
    run: int
    supply: int = 0
    waiting: int = 0
    bucket: int = -1
    cost: int = 0
    due: float = _NEVER


@dataclass(slots=True)
class _JobNode:
    node: int
    groups: int = 0


class Builder:
    """Keeps a network like a cluster under a policy.

    Parameters
    ----------
    cluster : Cluster
    network : FlowNetwork
        Empty; the builder's own from now on.
    policy : Policy

    Attributes
    ----------
    edits : Edits
        Way into the network, with a count of the changes made.
    places : Places
        The machines' side of the network.
    shares : Shares
        Bounds on how many tasks of a job or user wait.
    left_out : dict of Group
        Those withheld beyond the round, until there are news.
    """

    def __init__(self, cluster: Cluster, network: FlowNetwork, policy: Policy) -> None:
        self.cluster = cluster
        self.network = network
        self.policy = policy
        self.edits = NetworkBatch(network)
        self.places = MachineArcs(cluster, self.edits)
        self.holds = Reservations(cluster, self.places)
        self.near = LocalityArcs(cluster, self.edits, self.places)
        self.stays = RunningArcs(cluster, self.edits, self.places)
        self.shares = Shares(cluster, network, self.edits, self.places.sink)
        self._supply = self._sent = 0
        self._groups: dict[Group, _GroupNode] = {}
        self._jobs: dict[JobRecord, _JobNode] = {}
        self._levels: dict[int, int] = {}
        self._level_cost: dict[int, int] = {}
        self._due: list[tuple[float, int, Group]] = []
        self._patient: dict[Group, None] = {}
        self._withheld: dict[Group, None] = {}
        self.left_out: dict[Group, None] = {}
        self._known: tuple[int, int, int] | None = None
        self._opening = True
        self._policies = 0
        self._urged: dict[Group, None] = {}
        self.attach()

    def attach(self) -> None:
        """Let the cluster ask the reservations and the policy's constraints (`Inventory.room`); a copy has to do it anew."""
        self.cluster.inventory.attach(self.holds, limits(self.cluster, self.policy.constraints))

    # -- world -> arcs ------------------------------------------------------------------------------------------

    def update(self, changes: Changes, now: float) -> None:
        """Bring the network up to date with what changed in the cluster, and with the time."""
        touched = changes.groups
        self._forget(changes)
        self.near.machines_change((), changes.machines)
        self.places.add_machines(list(changes.machines))
        # Sorted, so that the order in which tasks were named does not show in the network.
        self._add_groups(sorted((group for group in touched if group not in self._groups), key=_rank))
        for group in chain(touched, self._aged(now)):
            self._number(group, now)
        if self._supply != self._sent:
            self._sent = self._supply
            self.edits.supply[self.places.sink] = -self._supply
        self.stays.update(touched, self.policy, now)
        if self._opening:  # later in a round, somebody may have been promised a place on a machine that would be kept
            self.holds.update(self._patient, now)
            self._opening = False
        self.places.update_slots(self.policy.step < 1)
        self.near.update(self.policy)
        self.places.refresh([cls.index for cls in sorted(self.cluster.waiting, key=attrgetter("rank"))], self.policy)
        self.edits.flush()
        jobs = (group.job for group in chain(touched, changes.removed))
        self.shares.update(jobs, self.policy, self.places.with_room)

    def replace_policy(self, policy: Policy) -> None:
        """Go by another policy: every cost is looked at again in the next update."""
        level_cost = policy.levels(list(self._levels))  # raises where its numbers are too large
        self.cluster.inventory.attach(self.holds, limits(self.cluster, policy.constraints))  # or where names are
        self._level_cost = level_cost
        self.policy = policy
        self._policies += 1
        self.places.forget_costs()
        self.near.forget_costs()
        self.stays.forget_costs()
        for group, node in self._groups.items():
            node.bucket = -1
            self._set_due(node, -_NEVER, group)

    def invalidate(self, classes: Sequence[int]) -> None:
        """Look at every machine again for these classes (by index) in the next update: what fits has changed."""
        self.places.invalidate(classes)

    def offers(self, classes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Most tasks of each class (by index) that the flow may send to each machine, without victims; (classes, rows)."""
        return self.places.offers(classes)

    @property
    def levels(self) -> list[int]:
        """The priorities that costs allow for: those in use, and some that were."""
        return sorted(self._level_cost)

    def remember(self) -> tuple[list[Group], float]:
        """Groups that are left out until there are news, and when time alone is to bring some."""
        if not self.left_out or self._known != self._state():
            return [], _NEVER
        return list(self.left_out), min(self._due[0][0] if self._due else _NEVER, self.stays.due)

    def resume(self, left_out: Sequence[Group], due: float, levels: Sequence[int], roomy: Sequence[TaskClass]) -> None:
        """Go on from what `remember`, `levels` and `MachineArcs.with_room` told of another one; the last step before a round."""
        self._level_cost = self.policy.levels(levels)
        self.places.had_room([cls.index for cls in roomy])
        for group in left_out:
            self.leave_out(group, until_news=True)
        if left_out and due < _NEVER:
            heapq.heappush(self._due, (due, 0, left_out[0]))
        self._known = self._state()

    def begin_round(self, now: float) -> None:
        """Let in those that were left out, if there are news."""
        if self.left_out and (self._known != self._state() or self._time_tells(now)):
            for group in self.left_out:
                self.release(group)
            self.left_out.clear()

    def _state(self) -> tuple[int, int, int]:
        return self.cluster.events, self.cluster.inventory.clock, self._policies

    def _time_tells(self, now: float) -> bool:
        """Whether time alone may have brought something that a decision depends on."""
        preemption = self.policy.preemption
        return (
            (bool(self._due) and self._due[0][0] <= now)
            or self.stays.time_tells(now)
            or self.holds.time_tells(now)
            or (preemption is not None and preemption.window > 0)
        )

    def leave_out(self, group: Group, until_news: bool) -> None:
        """As `withhold`, or until there are news; and what its tasks would have had is for others."""
        self.withhold(group)
        self.shares.waive(group)
        if until_news:
            self.left_out[group] = None

    def withhold(self, group: Group) -> None:
        """No more tasks of the group start in this round."""
        self._withheld[group] = None
        node = self._groups.get(group)
        if node is not None:  # else it is new, and comes without a way in
            node.waiting = self.edits.capacity[node.run] = 0

    def withheld(self, group: Group) -> bool:
        """Whether none of its tasks may start now."""
        return group in self._withheld

    def release(self, group: Group) -> None:
        """Its tasks may start again."""
        del self._withheld[group]
        self.shares.claim(group)
        node = self._groups.get(group)
        if node is not None:
            node.waiting = self.edits.capacity[node.run] = len(group.waiting)

    def urge(self, group: Group) -> None:
        """In this round, the group counts as older than any other of its priority."""
        self._urged[group] = None
        self._set_cost(group, self._groups[group])

    def end_round(self) -> None:
        """Forget what held for one round only."""
        for group in [group for group in self._withheld if group not in self.left_out]:
            self.release(group)
        urged, self._urged = self._urged, {}
        for group in urged:
            if group in self._groups:
                self._set_cost(group, self._groups[group])
        self.places.end_round()
        self.shares.end_round()
        self._known = self._state()
        self._opening = True

    def _forget(self, changes: Changes) -> None:
        """Groups, machines and classes that are gone."""
        nodes: list[int] = []
        for group in changes.removed:
            node = self._groups.pop(group, None)
            if node is not None:
                nodes += self._forget_group(group, node)
        self.edits.remove_nodes(nodes)
        if changes.gone:
            gone = set(changes.gone)
            for group, rows in changes.groups.items():
                here = gone.intersection(rows)
                self.stays.forget_machines(group, here)
                for row in here:
                    del rows[row]
            self.holds.forget_machines(changes.gone)
            self.near.machines_change(changes.gone, ())
            self.places.forget_machines(changes.gone)
        self.places.forget_classes(changes.classes)

    def _forget_group(self, group: Group, node: _GroupNode) -> list[int]:
        self._patient.pop(group, None)
        self.stays.forget(group)
        self._supply -= node.supply
        priority = group.cls.priority
        self._levels[priority] -= 1
        if not self._levels[priority]:
            del self._levels[priority]
        job = self._jobs[group.job]
        job.groups -= 1
        nodes = [node.node, *self.near.forget(group)]
        if job.groups:
            return nodes
        del self._jobs[group.job]
        return [*nodes, job.node, *self.shares.forget(group.job)]

    def _add_groups(self, groups: Sequence[Group]) -> None:
        if not groups:
            return
        jobs = list(dict.fromkeys(g.job for g in groups if g.job not in self._jobs))
        classes = list(dict.fromkeys(g.cls.index for g in groups if self.places.aggregator(g.cls.index) is None))
        g, j = len(groups), len(jobs)
        nodes = self.edits.add_nodes(g + j + len(classes)).tolist()
        self._jobs.update((job, _JobNode(node)) for job, node in zip(jobs, nodes[g:], strict=False))
        self.places.add_classes(classes, nodes[g + j :])
        unscheduled = [self._jobs[group.job].node for group in groups]
        heads_of_run = [self.places.aggregator(group.cls.index) for group in groups]
        with_data = [i for i, group in enumerate(groups) if group.data]
        if with_data:
            entries = self.near.add([groups[i] for i in with_data])
            for i, entry in zip(with_data, entries, strict=True):
                heads_of_run[i] = entry
        tails = np.array(nodes[g : g + j] + nodes[:g] + nodes[:g], np.int64)
        heads = np.array([self.places.sink] * j + unscheduled + heads_of_run, np.int64)
        capacity = np.array([INF] * (j + g) + [0] * g, np.int64)
        arcs = self.edits.add_arcs(tails, heads, capacity, 0).tolist()
        self.shares.add(jobs, nodes[g : g + j], arcs[:j])
        self.stays.add(groups, nodes[:g])
        for i, group in enumerate(groups):
            self._groups[group] = _GroupNode(nodes[i], arcs[j + i], arcs[j + g + i])
            self._jobs[group.job].groups += 1
            self._levels[group.cls.priority] = self._levels.get(group.cls.priority, 0) + 1
        if not self._levels.keys() <= self._level_cost.keys():
            self._relevel()

    def _relevel(self) -> None:
        """A priority is new, and the costs of strict ones depend on which are in use."""
        self._level_cost = self.policy.levels(list(self._levels))
        for group, node in self._groups.items():
            if node.bucket >= 0:
                self._set_cost(group, node)

    def _aged(self, now: float) -> Iterator[Group]:
        """Groups whose oldest waiting task left its age bucket."""
        while self._due and self._due[0][0] <= now:
            due, _, group = heapq.heappop(self._due)
            node = self._groups.get(group)
            if node is not None and node.due == due:
                yield group

    def _number(self, group: Group, now: float) -> None:
        """The numbers of one group: supply, entry, and cost of waiting."""
        node, edits = self._groups[group], self.edits
        if group.tasks != node.supply:
            self._supply += group.tasks - node.supply
            node.supply = edits.supply[node.node] = group.tasks
        waiting = 0 if group in self._withheld else len(group.waiting)
        if waiting != node.waiting:
            node.waiting = edits.capacity[node.run] = waiting
        self._set_age(group, node, now)

    def _set_due(self, node: _GroupNode, due: float, group: Group) -> None:
        node.due = due
        if due < _NEVER:
            heapq.heappush(self._due, (due, group.serial, group))

    def _set_age(self, group: Group, node: _GroupNode, now: float) -> None:
        """How long its oldest task has waited, and what waiting costs by that."""
        bucket, due = 0, _NEVER
        if group.waiting:
            waiting, since = self.policy.waiting, group.waiting[0].since
            since = now if since is None else since
            bucket = waiting.bucket(now - since)
            due = since + waiting.end(bucket)
        if bucket != node.bucket:
            node.bucket = bucket
            self._set_cost(group, node)
            self._patient.pop(group, None)
            reserve = self.policy.waiting.reserve
            # Room does not help a task that waits for better company, so nothing is kept free for it.
            if (
                reserve is not None
                and bucket >= reserve
                and not self.cluster.inventory.affinity.restricts(group.cls.index)
            ):
                self._patient[group] = None
        if due != node.due:
            self._set_due(node, due, group)

    def _set_cost(self, group: Group, node: _GroupNode) -> None:
        cost = self._level_cost[group.cls.priority] + self.policy.wait(self._bucket(group))
        if cost != node.cost:
            node.cost = self.edits.cost[node.wait] = cost

    # -- flow -> proposals --------------------------------------------------------------------------------------

    def read(self) -> list[ClassFlow]:
        """What the flow proposes to start: the best priority first, then who has waited longest, then the largest."""
        classes = {cls.index: cls for cls in self.cluster.waiting}
        near = self.near.flows(group for members in self.cluster.waiting.values() for group in members)
        entered = [(group.cls.index, rack) for group, sent in near.items() for rack in racks_of(sent, self.places)]
        found = self.places.flows(list(classes), entered)
        if not found:
            return []
        groups = [group for index in found for group in self.cluster.waiting[classes[index]]]
        flow = self.network.flow(np.array([self._groups[group].run for group in groups], np.int64)).tolist()
        sent: dict[int, list[tuple[Group, int]]] = {index: [] for index in found}
        led: dict[int, list[tuple[Group, Near]]] = {}
        for group, units in zip(groups, flow, strict=True):
            if group in near:
                led.setdefault(group.cls.index, []).append((group, near[group]))
                units = near[group].anywhere
            if units:
                sent[group.cls.index].append((group, units))
        proposals = []
        for index, (rows, displacing) in found.items():
            pairs, rest = lead(led.get(index, ()), rows, self.places)
            proposals.append(ClassFlow(classes[index], sent[index], rest, pairs, displacing))
        proposals.sort(key=self._standing)
        return proposals

    def rank(self, proposal: ClassFlow) -> tuple[int, int]:
        """Priority, then age: of two proposals for one place, the one of lower rank goes first whatever it costs."""
        groups = chain((group for group, _ in proposal.groups), (group for group, *_ in proposal.near))
        return proposal.cls.priority, -max(self._bucket(group) for group in groups)

    def _bucket(self, group: Group) -> int:
        return self.policy.waiting.buckets if group in self._urged else self._groups[group].bucket

    def _standing(self, proposal: ClassFlow) -> tuple[Any, ...]:
        cls = proposal.cls
        return *self.rank(proposal), -self.cluster.inventory.size(cls.index), cls.rank

    def bearable_cost(self, cls: TaskClass) -> int:
        """What a task of the class would pay rather than wait, whatever the ages of all concerned."""
        return self._level_cost[cls.priority] + self.policy.wait(0) - self.policy.wait(self.policy.waiting.buckets)

    def wait_costs(self) -> NDArray[np.int64]:
        """What waiting costs a task that has just begun to, by class."""
        priority = self.cluster.inventory.priority
        cost = np.full(len(priority), self.policy.wait(0), np.int64)
        for level, extra in self._level_cost.items():
            cost[priority == level] += extra
        return cost

    def prices(self, groups: Sequence[Group]) -> dict[Group, float]:
        """How much dearer it is to run than to wait at the optimum's prices, for one more task of each group, in loads."""
        if not groups:
            return {}
        nodes = [self._groups[group] for group in groups]
        arcs = np.array([arc for node in nodes for arc in (node.run, node.wait)], np.int64)
        reduced = self.network.reduced_cost(arcs)
        return dict(zip(groups, ((reduced[::2] - reduced[1::2]) / self.policy.resolution).tolist(), strict=True))


def _rank(group: Group) -> tuple[Any, ...]:
    return group.job.serial, group.cls.rank, group.serial
