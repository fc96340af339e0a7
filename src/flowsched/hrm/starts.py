"""Predicted start of a container in one queue, by a heap of ends."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

from flowsched.hrm.units import Amounts

__all__ = ["Waiter", "start_time"]


@dataclass(frozen=True, slots=True, eq=False)
class Waiter:
    """A waiting container: amounts taken at its start, amounts given back at its end (more, if it is paused), and run time."""

    take: Amounts
    give: Amounts
    duration: float


def start_time(
    free: Sequence[int], ends: Sequence[tuple[float, Amounts]], waiters: Sequence[Waiter], me: Waiter
) -> float:
    """Return the start of a waiting container, infinite if it never starts.

    Parameters
    ----------
    free : sequence of int
    ends : sequence of (time, amounts)
        Running containers.
    waiters : sequence of Waiter
        In the order in which they may start.
    me : Waiter
        The container in question, one of `waiters`.
    """
    heap = [(end, i, give) for i, (end, give) in enumerate(ends)]
    heapq.heapify(heap)
    free, waiting = list(free), list(waiters)
    while heap and heap[0][0] < math.inf:
        now = heap[0][0]
        while heap and heap[0][0] == now:
            for i, amount in enumerate(heapq.heappop(heap)[2]):
                free[i] += amount
        left = []
        for waiter in waiting:
            if any(a > b for a, b in zip(waiter.take, free, strict=True)):
                left.append(waiter)
                continue
            if waiter is me:
                return now
            for i, amount in enumerate(waiter.take):
                free[i] -= amount
            heapq.heappush(heap, (now + waiter.duration, len(ends) + len(heap), waiter.give))
        waiting = left
    return math.inf
