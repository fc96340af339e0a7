"""Price of stopping a run early."""

from __future__ import annotations

from dataclasses import dataclass, field

from flowsched.boundary.validate import number, quoted, truth
from flowsched.exceptions import InputError

__all__ = ["PreemptionCost"]


@dataclass(frozen=True)
class PreemptionCost:
    """Preemption of running tasks for waiting ones of strictly better priority.

    Parameters
    ----------
    price : float
        Price of each preemption, in units of a whole load (`OMEGA`): once for a task that has just begun to run, and once
        more for each age bucket (see `WaitCost`) that it has run through, since its work is lost.
    window : float
        Time after a preemption during which the task is not preempted again.  Preemption cannot loop by
        itself (each one improves the priorities of the running tasks), so 0, the default, is safe.  A window spares a task
        that better ones would interrupt again and again, at the expense of strict priority.
    graceful : bool
        A preempted task keeps its room until the caller reports its end (`TaskStopped`), and waits from then on.
        Tasks do not migrate then: they stop, and start elsewhere in a later round.
    """

    price: float = 1.0
    window: float = 0.0
    graceful: bool = field(default=False, metadata={"later": True})

    def __post_init__(self) -> None:
        for name in ("price", "window"):
            object.__setattr__(self, name, number(f"PreemptionCost: {name}", getattr(self, name), 0))
        object.__setattr__(self, "graceful", truth("PreemptionCost: graceful", self.graceful))
        if not 0 < self.price <= 1e4:
            raise InputError(f"PreemptionCost: price must be above 0 and at most 1e4, got {quoted(self.price)}")
