"""The flow as proposals: tasks to start by class, and the machines for tasks near their data."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np

from flowsched.builder._arcs import sent
from flowsched.builder.builder import Builder
from flowsched.builder.locality import Near
from flowsched.builder.proposals import ClassFlow, flow_of
from flowsched.builder.queues import ClassQueue
from flowsched.builder.racks import RackArcs
from flowsched.builder.scope import RoundScope
from flowsched.cluster.records import Group, TaskClass

__all__ = ["Choose", "read"]

Choose = Callable[[dict[int, list[tuple[int, int]]]], list[int]]
"""Function from the machines and numbers of tasks that the flow sends there, by class, to the classes to propose."""


def read(
    builder: Builder, scope: RoundScope, changed: array[int] | None = None, among: Choose | None = None
) -> list[ClassFlow]:
    """Return the tasks that the flow proposes to start: by priority, then the oldest first, then the largest.

    Parameters
    ----------
    builder : Builder
        Updated, with the flow of its network.
    scope : RoundScope
    changed : array of int64, optional
        Arcs whose flow may have changed since the last call, ascending; all, by default.
    among : callable, optional
        See `Choose`; called for several classes if no task is near its data and no task makes room.
    """
    waiting = builder.cluster.waiting
    classes = builder.class_of if waiting else {}  # of the last update
    near = builder.locality.flows() if builder.locality.entries else {}
    entered = [class_id << 32 | rack for class_id, rack in _entered(near, builder.racks)] if near else ()
    rows = sent(builder.racks, builder.classes, builder.batch, classes, entered, changed)
    displacing = scope.evictions.flows() if scope.evictions.offers else {}
    if not (rows or displacing):
        return []
    found: Collection[int] = {**rows, **displacing} if displacing else rows
    if among is not None and len(rows) > 1 and not (near or displacing):
        found = among(rows)
    fair = builder.policy.fairness is not None
    if len(rows) == 1 and not (fair or near or displacing):
        ((class_id, there),) = rows.items()
        cls = classes[class_id]
        queue = _queue(builder, cls, there, fair)
        if queue is None or queue.plain:
            return [_proposal(builder, scope, cls, _any(builder, cls, queue, there, 0), there, [], [])]
    queues: dict[int, ClassQueue | None] = {}
    others: list[ClassQueue] = []
    for class_id in found:
        queue = queues[class_id] = _queue(builder, classes[class_id], rows.get(class_id, ()), fair)
        if queue is not None and (fair or not queue.plain):
            others.append(queue)
    anywhere, led = _flow_of(builder, others, near) if others else ({}, {})
    proposals = []
    for class_id, queue in queues.items():
        cls, there, made = classes[class_id], rows.get(class_id, []), displacing.get(class_id, [])
        pairs: list[tuple[Group, int, int, int]] = []
        if queue is not None and class_id in anywhere:
            groups = _oldest(builder, queue, anywhere[class_id])
            pairs, there = _lead(led.get(class_id, ()), there, builder.racks)
        else:  # the flow into its machines has left its groups
            groups = _any(builder, cls, queue, there, len(made))
        proposals.append(_proposal(builder, scope, cls, groups, there, pairs, made))
    if len(proposals) > 1:
        ranks, sizes = builder.ranks(), builder.cluster.inventory.sizes(np.array([*queues], np.int64))
        for proposal, size in zip(proposals, sizes, strict=True):
            proposal.size, proposal.rank = size, ranks[proposal.cls]
        proposals.sort(key=_line)
    return proposals


def _proposal(
    builder: Builder,
    scope: RoundScope,
    cls: TaskClass,
    groups: list[tuple[Group, int]],
    there: list[tuple[int, int]],
    near: list[tuple[Group, int, int, int]],
    displacing: list[int],
) -> ClassFlow:
    """Return the proposal of tasks of these groups, as old as the oldest of them."""
    nodes, urged, age = builder.groups.nodes, scope.urged, -1
    for entry in groups + near if near else groups:
        group = entry[0]
        node = nodes[group]
        bucket = builder.policy.waiting.buckets if urged and group in urged else node.bucket
        if bucket > age:
            age = bucket
    return flow_of(cls, groups, there, near, displacing, (cls.priority, -age))


def _any(
    builder: Builder, cls: TaskClass, queue: ClassQueue | None, there: list[tuple[int, int]], more: int
) -> list[tuple[Group, int]]:
    """Return the groups of the oldest tasks of a class, as many as the flow sends to machines, and `more`."""
    count = there[0][1] if len(there) == 1 else sum([units for _, units in there])
    count += more
    return _first(builder.cluster.waiting[cls], count) if queue is None else queue.oldest(count)


def _queue(builder: Builder, cls: TaskClass, there: Sequence[tuple[int, int]], fair: bool) -> ClassQueue | None:
    """Return the queue of a class; None without one if shares and its order do not matter: see `_first`."""
    queue: ClassQueue | None = builder.cluster.queues.get(cls)
    if queue is not None and not queue.changed:
        return queue
    groups = builder.cluster.waiting[cls]
    if not fair and (_is_alone(groups) or (queue is None and _holds(groups, there))):
        return None
    return builder.queues.of(cls)


def _is_alone(groups: Collection[Group]) -> bool:
    """Return True for a single plain group, whose tasks are in order without a queue."""
    if len(groups) > 1:
        return False
    (group,) = groups
    return group.plain()


def _holds(groups: Iterable[Group], there: Sequence[tuple[int, int]]) -> bool:
    """Return True if the groups are plain, and the flow sends all of their waiting tasks to machines."""
    left = sum([units for _, units in there])
    for group in groups:
        left -= len(group.waiting)
        if left < 0 or not group.plain():
            return False
    return not left


def _first(groups: Collection[Group], count: int) -> list[tuple[Group, int]]:
    """Return `count` tasks of a single group, or all tasks of several groups."""
    if len(groups) == 1:
        (group,) = groups
        return [(group, count)]
    return [(group, len(group.waiting)) for group in groups]


def _flow_of(
    builder: Builder, queues: Sequence[ClassQueue], near: Mapping[Group, Near]
) -> tuple[dict[int, list[tuple[Group, int]]], dict[int, list[tuple[Group, Near]]]]:
    """Return the groups that the flow sends anywhere, and those that it sends near their data, by class."""
    anywhere: dict[int, list[tuple[Group, int]]] = {queue.cls.index: [] for queue in queues}
    led: dict[int, list[tuple[Group, Near]]] = {}
    groups = [group for queue in queues for group in queue.groups]
    for group, units in zip(groups, builder.groups.flows(groups), strict=True):
        if group in near:
            led.setdefault(group.cls.index, []).append((group, near[group]))
            units = near[group].anywhere
        if units:
            anywhere[group.cls.index].append((group, units))
    return anywhere, led


def _oldest(builder: Builder, queue: ClassQueue, flow: list[tuple[Group, int]]) -> list[tuple[Group, int]]:
    """Return the oldest tasks of a class, in the number that the flow sends.

    Plain groups of one class have the same cost within an age bucket, so the flow's choice among them is arbitrary.
    Gangs are sent as in the flow, and under shares all groups are.
    """
    if builder.policy.fairness is not None:
        return flow
    moved = sum(units for group, units in flow if group.plain())
    return [entry for entry in flow if not entry[0].plain()] + queue.oldest(moved)


def _entered(near: Mapping[Group, Near], racks: RackArcs) -> list[tuple[int, int]]:
    """Return classes and racks that flow enters without passing the class's aggregator."""
    entered: list[tuple[int, int]] = []
    for group, flow in near.items():
        entered += [(group.cls.index, rack) for rack, _, _ in flow.racks]
        entered += [(group.cls.index, int(racks.of[row])) for row, _, _ in flow.rows]
    return entered


def _lead(
    near: Iterable[tuple[Group, Near]], rows: list[tuple[int, int]], racks: RackArcs
) -> tuple[list[tuple[Group, int, int, int]], list[tuple[int, int]]]:
    """Divide the tasks of a class on machines into tasks near their data and the others.

    Parameters
    ----------
    near : iterable of (Group, Near)
    rows : list of (int, int)
        Machines, and tasks of the class there.
    racks : RackArcs

    Returns
    -------
    pairs : list of (Group, int, int, int)
        As `ClassFlow.near`.
    rows : list of (int, int)
        As `ClassFlow.rows`.
    """
    left = dict(rows)
    pairs: list[tuple[Group, int, int, int]] = []
    for group, flow in near:
        for row, cost, units in flow.rows:
            left[row] -= units
            pairs.append((group, row, units, cost))
    in_rack: dict[int, list[int]] = {}
    for row, units in left.items():
        if units:
            in_rack.setdefault(int(racks.of[row]), []).append(row)
    for group, flow in near:
        for rack, cost, units in flow.racks:
            while units:
                row = in_rack[rack][-1]
                some = min(units, left[row])
                pairs.append((group, row, some, cost))
                units -= some
                left[row] -= some
                if not left[row]:
                    in_rack[rack].pop()
    return pairs, [(row, units) for row, units in left.items() if units]


def _line(proposal: ClassFlow) -> tuple[tuple[int, int], float, int]:
    return proposal.standing, -proposal.size, proposal.rank
