"""On a ladder of shares, whoever stands lowest is tried first; what is guaranteed, the least of a share, and the rest are a ladder of three rungs.

Machines are limited by several resources, an arc by one whole number; so for tasks of different classes a flow may propose
more than fits together, and the order in which they are tried decides who gets it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heapreplace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.records import Group, JobRecord, TaskRecord
from flowsched.proposals import ClassFlow

__all__ = ["Climb", "Way", "take_turns", "way_of"]

Way = deque[tuple[int, int]]
"""Machines, by row, and how many tasks each is to take; those that have been tried are gone."""


class Climb:
    """Where claimants stand on a ladder while tasks start.

    Parameters
    ----------
    claimant : callable
        The number of who claims for a job.
    running : list of int
        Tasks that run, by claimant.
    edges : ndarray of int64, shape (claimants, rungs - 1)
        How many run where each rung but the lowest begins; ascending.
    """

    def __init__(self, claimant: Callable[[JobRecord], int], running: list[int], edges: NDArray[np.int64]) -> None:
        self._claimant = claimant
        self._running = running
        self._edges = edges
        self._asked: dict[int, list[int]] = {}  # of many claimants, few have tasks that may start

    def of(self, group: Group) -> int:
        """Who claims for the tasks of a group."""
        return self._claimant(group.job)

    def rung(self, who: int) -> int:
        """Where the next task that starts would stand."""
        return bisect_right(self._begins(who), self._running[who])

    def left(self, who: int) -> int | None:
        """How many more would stand there; None for any number."""
        rung, edges = self.rung(who), self._begins(who)
        return edges[rung] - self._running[who] if rung < len(edges) else None

    def _begins(self, who: int) -> list[int]:
        edges = self._asked.get(who)
        if edges is None:
            edges = self._asked[who] = self._edges[who].tolist()
        return edges

    def start(self, who: int, tasks: int) -> None:
        """So many more run."""
        self._running[who] += tasks

    def lowest(self, proposals: Sequence[ClassFlow]) -> list[ClassFlow]:
        """What is proposed for those who stand lowest."""
        sent = chain.from_iterable(chain((g for g, _ in p.groups), (g for g, *_ in p.near)) for p in proposals)
        rung = {who: self.rung(who) for who in {self.of(group) for group in sent}}
        low = min(rung.values())
        found = []
        for p in proposals:
            groups = [entry for entry in p.groups if rung[self.of(entry[0])] == low]
            near = [entry for entry in p.near if rung[self.of(entry[0])] == low]
            if groups or near:
                found.append(replace(p, groups=groups, near=near))
        return found


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


def take_turns(
    proposals: Sequence[ClassFlow],
    offered: Sequence[int],
    climb: Climb,
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
    climb : Climb
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
