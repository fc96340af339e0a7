"""Order in which proposals are tried under shares: progressive filling, the claimant on the lowest rung first.

The guarantee, the least of a share, and the rest are a ladder of three rungs.

Several resources limit a machine, but a single number limits an arc.  So for tasks of different classes a flow may
propose more than fits together, and the order in which they are tried decides which start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from itertools import chain

from flowsched.builder.ladder import LadderPosition
from flowsched.builder.proposals import ClassFlow
from flowsched.cluster.records import Group, TaskRecord

__all__ = ["Route", "progressive_fill", "route_of"]


class Route(deque[tuple[int, int]]):
    """Machines, by row, to which tasks of a class are sent, in order, each with its number of tasks.

    Tried machines are removed from the left.
    """


@dataclass(slots=True)
class _Item:
    """Tasks of one group that share a route."""

    group: Group
    units: int
    route: Route
    priority: int
    order: int


def route_of(proposal: ClassFlow) -> Route:
    """Return the route of tasks of a class that need not be near data."""
    return Route(chain(proposal.rows, ((row, 1) for row in proposal.displacing)))


def progressive_fill(
    proposals: Sequence[ClassFlow],
    offered: Sequence[int],
    positions: LadderPosition,
    start: Callable[[Sequence[TaskRecord], Route], int],
) -> None:
    """Start tasks by priority, then those of the lowest claimant first, then in the order of the proposals.

    If a task finds no room on its route and its class has some elsewhere, the others wait for the next proposal of the
    flow.

    Parameters
    ----------
    proposals : sequence of ClassFlow
    offered : sequence of int
        Largest number of tasks of the class of each proposal that the flow could have sent.
    positions : LadderPosition
        Counts the tasks that start.
    start : callable
        Starts the given tasks along a route in their order, as many as fit, and returns their number.
    """
    queues: dict[int, deque[_Item]] = {}
    elsewhere: list[bool] = []
    for order, (p, most) in enumerate(zip(proposals, offered, strict=True)):
        route = route_of(p)
        items = [_Item(group, units, Route([(row, units)]), p.cls.priority, order) for group, row, units, _ in p.near]
        oldest = sorted(p.groups, key=lambda sent: sent[0].waiting[0].turn)
        items += [_Item(group, units, route, p.cls.priority, order) for group, units in oldest]
        elsewhere.append(sum(item.units for item in items) < most)
        for item in items:
            queues.setdefault(positions.of(item.group), deque()).append(item)
    heap = [
        (queue[0].priority, positions.rung(claimant), queue[0].order, claimant) for claimant, queue in queues.items()
    ]
    heapify(heap)
    while heap:
        claimant = heap[0][-1]
        queue = queues[claimant]
        item, left = queue[0], positions.left(claimant)
        some = item.group.waiting[: item.units if left is None else min(item.units, left)]
        done = start(some, item.route)
        positions.start(claimant, done)
        item.units -= done
        if done < len(some) and elsewhere[item.order]:
            return
        if done < len(some) or not item.units:
            queue.popleft()
        if queue:
            heapreplace(heap, (queue[0].priority, positions.rung(claimant), queue[0].order, claimant))
        else:
            heappop(heap)
