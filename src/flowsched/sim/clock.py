"""Simulated time, by SimPy: an environment of its own, or the caller's."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

try:
    import simpy
except ImportError as missing:  # pragma: no cover
    raise ImportError("the simulator needs SimPy: pip install 'flowsched[sim]'", name="simpy") from missing

__all__ = ["Clock", "simpy"]


class Clock:
    """Simulated time, of an environment in which other processes may run."""

    def __init__(self, env: simpy.Environment | None = None) -> None:
        self.env = simpy.Environment() if env is None else env
        self._due = 0

    @property
    def now(self) -> float:
        """The present time."""
        return float(self.env.now)

    @property
    def quiet(self) -> bool:
        """True if no event that was scheduled here is left."""
        return not self._due

    def peek(self) -> float:
        """Return the time of the next event of the environment, infinity without any."""
        return float(self.env.peek())

    def step(self) -> None:
        """Process the next event of the environment."""
        self.env.step()

    def timeout(self, delay: float) -> simpy.Event:
        """Return an event for a process to wait for."""
        return self.env.timeout(delay)

    def after(self, delay: float, value: Any, callback: Callable[[Any], None]) -> None:
        """Call ``callback(value)`` when `delay` has passed, after all that was queued before for that time."""
        self._watch(self.env.timeout(delay, value), callback)

    def process(self, generator: Generator[simpy.Event, Any, None]) -> None:
        """Begin a process."""
        self._watch(self.env.process(generator), lambda _: None)

    def _watch(self, event: simpy.Event, callback: Callable[[Any], None]) -> None:
        def happened(event: simpy.Event) -> None:
            self._due -= 1
            callback(event.value)

        self._due += 1
        assert event.callbacks is not None
        event.callbacks.append(happened)
