"""Predicted start of a container, by a heap of ends; on units that share cores, of all of them together."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

from flowsched.hrm.units import Amounts

__all__ = ["Books", "Waiter", "start_time"]


@dataclass(frozen=True, slots=True, eq=False)
class Waiter:
    """A waiting container: amounts taken at its start, amounts given back at its end (more, if it is paused), and run time."""

    take: Amounts
    give: Amounts
    duration: float


@dataclass(frozen=True, slots=True, eq=False)
class Books:
    """One unit at a moment: free amounts, cores that run there, ends of running containers, waiting ones in order."""

    free: Sequence[int]
    cores: int
    ends: Sequence[tuple[float, Amounts]]
    waiters: list[Waiter]


def start_time(units: Sequence[Books], me: Waiter) -> float:
    """Return the start of a waiting container, infinite if it never starts.

    Parameters
    ----------
    units : sequence of Books
        A unit, or all units that share its cores: these are free on each of them or on none.
    me : Waiter
        The container in question, one of the waiting ones.
    """
    ends = [(end, u, give) for u, unit in enumerate(units) for end, give in unit.ends]
    heap = [(end, i, u, give) for i, (end, u, give) in enumerate(ends)]
    heapq.heapify(heap)
    free, cores = [list(unit.free) for unit in units], [unit.cores for unit in units]
    waiting = [list(unit.waiters) for unit in units]
    serial = len(heap)

    def add(u: int, amounts: Amounts, sign: int) -> None:
        for i, amount in enumerate(amounts):
            free[u][i] += sign * amount
        for other in free:
            if other is not free[u]:
                other[0] += sign * amounts[0]
        cores[u] -= sign * amounts[0]

    def first(at: list[int]) -> int | None:
        """Return the unit with the fewest cores at work where a container fits, which stands at ``at``."""
        for u in sorted(range(len(units)), key=cores.__getitem__):
            queue = waiting[u]
            while at[u] < len(queue) and any(a > b for a, b in zip(queue[at[u]].take, free[u], strict=True)):
                at[u] += 1
            if at[u] < len(queue):
                return u
        return None

    while heap and heap[0][0] < math.inf:
        now = heap[0][0]
        while heap and heap[0][0] == now:
            _, _, u, give = heapq.heappop(heap)
            add(u, give, 1)
        at = [0] * len(units)
        while (found := first(at)) is not None:
            waiter = waiting[found].pop(at[found])
            if waiter is me:
                return now
            add(found, waiter.take, -1)
            serial += 1
            heapq.heappush(heap, (now + waiter.duration, serial, found, waiter.give))
    return math.inf
