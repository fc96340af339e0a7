"""Expected run times of containers: from history, else a default that is corrected by every end.

More than 60 % of jobs recur (HRM, section 3.4.2), so the name of a job predicts its run time.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from flowsched.exceptions import InputError
from flowsched.hrm.units import Amounts


class RunTimes:
    """Expected run times by name of the job.

    Parameters
    ----------
    default : float
        Seconds, for names without history; each end moves it towards the mean of all run times.
    weight : float
        Weight of the newest run time in the moving mean of a name, above 0 and at most 1.
    """

    def __init__(self, default: float = 60.0, weight: float = 0.3) -> None:
        if not 0 < default < math.inf:
            raise InputError(f"default: a number of seconds > 0 expected, got {default!r}")
        if not 0 < weight <= 1:
            raise InputError(f"weight: a number above 0 and at most 1 expected, got {weight!r}")
        self.default = default
        self.weight = weight
        self._mean: dict[Hashable, float] = {}  # by name: moving mean of its run times

    def observe(self, name: Hashable, seconds: float) -> None:
        """Update the mean of a name with the run time of a container that ended."""
        if not 0 <= seconds < math.inf:
            raise InputError(f"seconds: a number >= 0 expected, got {seconds!r}")
        old = self._mean.get(name)
        self._mean[name] = seconds if old is None else old + self.weight * (seconds - old)
        # One run time weighs less on the default than on its own name: names differ.
        self.default += 0.1 * self.weight * (seconds - self.default)

    def expect(self, name: Hashable) -> float:
        """Return the expected run time of the next container of that name, in seconds."""
        return self._mean.get(name, self.default)

    def remaining(self, name: Hashable, elapsed: float) -> float:
        """Return the expected seconds that are left after `elapsed`, see `remaining`."""
        return remaining(self.expect(name), elapsed)


def remaining(expected: float, elapsed: float) -> float:
    """Return the expected seconds that are left after `elapsed`: a late container is expected to take a power of two times as long."""
    if expected == math.inf:
        return math.inf
    expected = max(expected, 1e-9)
    return expected * 2.0 ** max(0, math.ceil(math.log2(max(elapsed, 1e-9) / expected))) - elapsed


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
    """Return the start of one of the waiting containers, infinite if it never starts.

    `units` is one unit, or all units that share its cores: these are free on each of them or on none.
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
