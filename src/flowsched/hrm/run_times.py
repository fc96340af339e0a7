"""Expected run times of containers: from history, else a default that is corrected by every end.

More than 60 % of jobs recur (HRM, section 3.4.2), so the name of a job predicts its run time.
"""

from __future__ import annotations

import math
from collections.abc import Hashable

from flowsched.exceptions import InputError

__all__ = ["RunTimes", "remaining"]


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
        """Learn from a container of that name that ended after so many seconds."""
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
