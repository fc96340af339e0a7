"""Simulated time, by SimPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

try:
    import simpy
except ImportError as missing:  # pragma: no cover
    raise ImportError("the simulator needs SimPy: pip install 'flowsched[sim]'", name="simpy") from missing

__all__ = ["Clock"]


class Clock(simpy.Environment):
    """Simulated time."""

    def after(self, delay: float, value: Any, callback: Callable[[Any], None]) -> None:
        """Call ``callback(value)`` when `delay` has passed, after all that was queued before for that time."""
        callbacks = self.timeout(delay, value).callbacks
        assert callbacks is not None
        callbacks.append(lambda event: callback(event.value))

    @property
    def quiet(self) -> bool:
        """True if no event is left."""
        return math.isinf(self.peek())
