"""Values that schedulers, machines and the negotiator exchange."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from flowsched.exceptions import FlowschedError
from flowsched.hrm.units import Amounts


class ExpiredError(FlowschedError):
    """A scheduler has sent no heartbeat for too long, and has lost its claims."""


class Status(StrEnum):
    """State of a task."""

    OPEN = "OPEN"
    RUNNING = "RUNNING"
    WAITING = "WAITING"
    """In the batch queue of a unit."""
    PAUSED = "PAUSED"
    DONE = "DONE"


class Refusal(StrEnum):
    """Reason of a refused claim."""

    TAKEN = "TAKEN"
    """The task is not open, or not known: another scheduler was first."""
    CONFLICT = "CONFLICT"
    """The unit has less than it had when the scheduler looked, or is gone."""
    SHARE = "SHARE"
    """The job is at its share."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A task to a unit: to run there now, or to wait in its queue.

    Parameters
    ----------
    task, unit : str
    queued : bool
    wait : float
        The predicted wait in the queue on which a queued claim was decided.  It is refused if the wait is longer by now:
        another scheduler was faster, and another queue may be shorter.
    """

    task: str
    unit: str
    queued: bool = False
    wait: float = math.inf


@dataclass(frozen=True)
class Granted:
    """Result of claims: the accepted ones, and the refused ones with the reason."""

    accepted: tuple[Claim, ...]
    refused: tuple[tuple[Claim, Refusal], ...] = ()


@dataclass(frozen=True)
class Report:
    """Answer to a machine's heartbeat.

    Parameters
    ----------
    finished : tuple of str
        Tasks whose end is recorded; others that the machine named are not known to be there.
    started : tuple of str
        Tasks of its queues that start in place of those that ended.
    granted : tuple of str
        Tasks that a unit had refused and now takes; their schedulers launch them.
    stale : tuple of str
        Tasks that the machine has but must give up: it was declared lost meanwhile, or they were moved.
    missing : tuple of str
        Tasks that were launched there and that the machine does not have: their scheduler has not notified it.
    """

    finished: tuple[str, ...]
    started: tuple[str, ...]
    granted: tuple[str, ...]
    stale: tuple[str, ...]
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lost:
    """Schedulers and machines that were declared lost, and the tasks that are open again."""

    schedulers: tuple[str, ...]
    machines: tuple[str, ...]
    opened: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UnitState:
    """A unit as a scheduler sees it; amounts are micro-units and places.

    Parameters
    ----------
    unit, machine : str
    capacity, free, stream_room : tuple of int
        All amounts of the unit; those free for a container now; those free for a stream container if batch ones give way.
    places : int
        Free places in the batch queue.
    wait : float
        Predicted wait of one more container in the batch queue.
    alive : bool
    version : int
    shared : bool
        See `ResourceUnit`.
    """

    unit: str
    machine: str
    capacity: Amounts
    free: Amounts
    stream_room: Amounts
    places: int
    wait: float = 0.0
    alive: bool = True
    version: int = 0
    shared: bool = False


@dataclass(frozen=True, slots=True)
class JobState:
    """A job in the shared state; `tasks`, `open`, `held` and `done` are counts of tasks."""

    job: str
    kind: Literal["batch", "stream"]
    scheduler: str | None
    start: float
    stages: int
    tasks: int
    open: int
    held: int
    done: int
