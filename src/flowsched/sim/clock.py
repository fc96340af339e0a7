"""Simulated time: a queue of events, alone or in an environment of SimPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

try:
    import simpy
except ImportError as missing:  # pragma: no cover
    raise ImportError("the simulator needs SimPy: pip install 'flowsched[sim]'", name="simpy") from missing

__all__ = ["Clock", "simpy"]


class Clock:
    """Simulated time, as of the last event.

    In an environment, every event has a timeout there.  Timeouts come in the order of the events, so each lets the first
    event of the queue happen.
    """

    def __init__(self, env: simpy.Environment | None = None) -> None:
        self._env = env
        self._queue: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._count = 0
        self.now = 0.0
        self.synchronise()

    def synchronise(self) -> None:
        """Set the time to that of the environment; events of other processes may have changed it."""
        if self._env is not None:
            self.now = float(self._env.now)

    @property
    def quiet(self) -> bool:
        """True if no event is left."""
        return not self._queue

    def peek(self) -> float:
        """Return the time of the next event, also one of another process of the environment, infinity without any."""
        if self._env is not None:
            return float(self._env.peek())
        return self._queue[0][0] if self._queue else math.inf

    def step(self, last: float = math.inf) -> bool:
        """Process the next event, also one of another process; return False if that is later, or no event is left here."""
        if not self._queue or (self._queue[0][0] if self._env is None else self.peek()) > last:
            return False
        if self._env is None:
            self._happen()
        else:
            self._env.step()
            self.synchronise()
        return True

    def after(self, delay: float, value: Any, callback: Callable[[Any], None]) -> None:
        """Call ``callback(value)`` when `delay` has passed, after all that was queued before for that time."""
        self._count += 1
        heappush(self._queue, (self.now + delay, self._count, callback, value))
        if self._env is not None:
            callbacks = self._env.timeout(delay).callbacks
            assert callbacks is not None
            callbacks.append(self._happen)

    def _happen(self, _: simpy.Event | None = None) -> None:
        self.now, _number, callback, value = heappop(self._queue)
        callback(value)
