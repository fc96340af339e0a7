"""Time that no setting of a clock disturbs.

A process judges itself by its own monotonic clock.
It judges another by that one's counter of heartbeats: who is silent is who has not counted on for so long *while this
process watched*, by its own monotonic clock.  So no two clocks are ever compared to find out who is there, and a clock that
is set, of whatever machine, kills nobody and keeps nobody alive.
Points in time that are written down (when a task began to run, when a queue is expected to be free) are of a clock that is
read once, when the process begins, and counts on by the monotonic one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable

from flowsched.validate import number

__all__ = ["Clock", "Forward", "Steady", "Watch"]

Clock = Callable[[], float]
"""The time in seconds."""


class Steady:
    """The time of day as it was when this was made, and the seconds since."""

    def __init__(self, day: Clock = time.time, monotonic: Clock = time.monotonic) -> None:
        self._monotonic = monotonic
        self._ahead = day() - monotonic()

    def __call__(self) -> float:
        return self._ahead + self._monotonic()


class Forward:
    """Seconds that another clock has advanced; where it is set back, they stand still until it moves on.

    For the clock of a simulation, whose every step forward is time that has passed.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = number("clock", clock())
        self._passed = 0.0

    def __call__(self) -> float:
        now = number("clock", self._clock())
        self._passed += max(now - self._last, 0.0)
        self._last = now
        return self._passed


class Watch:
    """Counters of others, and for how long each has stood still.

    Parameters
    ----------
    ttl : float
        Seconds.
    monotonic : callable
        This process's own clock.
    """

    def __init__(self, ttl: float, monotonic: Clock) -> None:
        self.ttl, self.monotonic = ttl, monotonic
        self._seen: dict[Hashable, tuple[float, float]] = {}

    def note(self, who: Hashable, count: float) -> None:
        """The counter was read or written now."""
        known = self._seen.get(who)
        if known is None or known[0] != count:
            self._seen[who] = count, self.monotonic()

    def is_silent(self, who: Hashable, count: float) -> bool:
        """Whether the counter, read now, has stood there for longer than the ttl."""
        self.note(who, count)
        return self.monotonic() - self._seen[who][1] > self.ttl

    def keep(self, those: Iterable[Hashable]) -> None:
        """Forget all others."""
        left = set(those)
        self._seen = {who: known for who, known in self._seen.items() if who in left}

    def restart(self) -> None:
        """Count from now: nobody could be heard meanwhile."""
        now = self.monotonic()
        self._seen = {who: (count, now) for who, (count, _) in self._seen.items()}
