"""Values that the engine exchanges with schedulers and callers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

from flowsched.cluster.events import Event
from flowsched.rounds.values import Commit, Round

__all__ = ["UNDECIDED", "Decision", "Progress", "Schedules"]

UNDECIDED: Final = "UNDECIDED"
"""Reason code of the tasks that have waited through no round yet when the run ends."""


class Schedules(Protocol):
    """A scheduler that the engine can drive; `flowsched.Scheduler` is one."""

    def apply(self, *events: Event) -> Any:
        """Take events."""

    def schedule(self, now: float, time_limit: float | None = None) -> Round:
        """Decide on a round."""

    def commit(self, round: Round, /) -> Commit:
        """Put a round into effect, but for its stale parts."""


@dataclass(frozen=True, slots=True)
class Progress:
    """State of a simulation after a round; `time` in simulated seconds."""

    time: float
    rounds: int
    tasks: int
    completed: int
    running: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Decision:
    """A round that is not committed yet: simulated time, number of events before it, and seconds of apply and schedule."""

    round: Round
    time: float
    events: int
    apply: float
    schedule: float
