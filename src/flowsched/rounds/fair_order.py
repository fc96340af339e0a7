"""On a ladder of shares, whoever stands lowest is tried first; what is guaranteed, the least of a share, and the rest are a ladder of three rungs.

Machines are limited by several resources, an arc by one whole number; so for tasks of different classes a flow may propose
more than fits together, and the order in which they are tried decides who gets it.
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

__all__ = ["Way", "progressive_fill", "way_of"]

Way = deque[tuple[int, int]]
"""Machines, by row, and how many tasks each is to take; those that have been tried are gone."""


@dataclass(slots=True)
class _Item:
    """Tasks of one group that go one way."""

    group: Group
    units: int
    way: Way
    priority: int
    order: int


def way_of(proposal: ClassFlow) -> Way:
    """Where tasks of a class go that need not be near their data."""
    return deque(chain(proposal.rows, ((row, 1) for row in proposal.displacing)))


def progressive_fill(
    proposals: Sequence[ClassFlow],
    offered: Sequence[int],
    climb: LadderPosition,
    start: Callable[[Sequence[TaskRecord], Way], int],
) -> None:
    """Start tasks by priority, and of one priority those of whoever stands lowest; of equals, as the proposals are ordered.

    If a task finds no room where it was sent and its class has some elsewhere, the others have to wait for what the flow
    proposes next.

    Parameters
    ----------
    proposals : sequence of ClassFlow
    offered : sequence of int
        How many tasks of the class of each proposal the flow could have sent.
    climb : LadderPosition
    start : callable
        Starts as many of these tasks as it can, the first ones, and says how many.
    """
    queues: dict[int, deque[_Item]] = {}
    elsewhere: list[bool] = []
    for order, (p, most) in enumerate(zip(proposals, offered, strict=True)):
        way = way_of(p)
        items = [_Item(group, units, deque([(row, units)]), p.cls.priority, order) for group, row, units, _ in p.near]
        oldest = sorted(p.groups, key=lambda sent: sent[0].waiting[0].turn)
        items += [_Item(group, units, way, p.cls.priority, order) for group, units in oldest]
        elsewhere.append(sum(item.units for item in items) < most)
        for item in items:
            queues.setdefault(climb.of(item.group), deque()).append(item)
    turns = [(queue[0].priority, climb.rung(who), queue[0].order, who) for who, queue in queues.items()]
    heapify(turns)
    while turns:
        who = turns[0][-1]
        item, left = queues[who][0], climb.left(who)
        some = item.group.waiting[: item.units if left is None else min(item.units, left)]
        done = start(some, item.way)
        climb.start(who, done)
        item.units -= done
        if done < len(some) and elsewhere[item.order]:
            return
        if done < len(some) or not item.units:
            queues[who].popleft()
        if queues[who]:
            heapreplace(turns, (queues[who][0].priority, climb.rung(who), queues[who][0].order, who))
        else:
            heappop(turns)
