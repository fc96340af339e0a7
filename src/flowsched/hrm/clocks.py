"""Clocks that are not disturbed when the system's clock is set.

A process judges its own silence by its monotonic clock.
It judges another process by that one's counter of heartbeats: the other is silent if the counter has stood still for the whole
limit *while this process watched*, by its own monotonic clock.  So clocks of two processes are never compared, and setting a
clock of any machine neither expires a process nor keeps one alive.
Times that are stored (the start of a task, the expected end of a queue) are of a clock that is read once, when the process
begins, and counts on by the monotonic one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable

from flowsched.boundary.validate import number

Clock = Callable[[], float]
"""The time in seconds."""


class Steady:
    """The time of day when this was made, plus the monotonic seconds since."""

    def __init__(self, day: Clock = time.time, monotonic: Clock = time.monotonic) -> None:
        self._monotonic = monotonic
        self._ahead = day() - monotonic()

    def __call__(self) -> float:
        return self._ahead + self._monotonic()


class Forward:
    """Seconds that another clock has advanced; where it is set back, they stand still until it moves on.

    For the clock of a simulation: every step forward is time that has passed.
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
    """Counters of other processes, and the time for which each has stood still, by this process's own clock."""

    def __init__(self, ttl: float, monotonic: Clock) -> None:
        self.ttl, self.monotonic = ttl, monotonic
        self._seen: dict[Hashable, tuple[float, float]] = {}  # by name: the count, and the time since which it stands

    def note(self, name: Hashable, count: float) -> None:
        """Note a counter that was read or written now."""
        known = self._seen.get(name)
        if known is None or known[0] != count:
            self._seen[name] = count, self.monotonic()

    def is_silent(self, name: Hashable, count: float) -> bool:
        """Return True if the counter, read now, has stood still for longer than the ttl."""
        self.note(name, count)
        return self.monotonic() - self._seen[name][1] > self.ttl

    def keep(self, those: Iterable[Hashable]) -> None:
        """Forget all counters but these."""
        left = set(those)
        self._seen = {name: known for name, known in self._seen.items() if name in left}

    def restart(self) -> None:
        """Count all silences from now, after a time without heartbeats from anywhere."""
        now = self.monotonic()
        self._seen = {name: (count, now) for name, (count, _) in self._seen.items()}
