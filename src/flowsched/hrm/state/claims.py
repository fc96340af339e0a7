"""What schedulers and the negotiator say to each other: values only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from flowsched.exceptions import FlowschedError
from flowsched.hrm.units import Amounts

__all__ = ["Claim", "ExpiredError", "Granted", "JobState", "Lost", "Refusal", "Report", "Status", "UnitState"]


class ExpiredError(FlowschedError):
    """A scheduler that had not been heard of for too long: what it had claimed is no longer its."""


class Status(StrEnum):
    """Where a task is."""

    OPEN = "OPEN"
    RUNNING = "RUNNING"
    WAITING = "WAITING"
    """In the batch queue of a unit."""
    PAUSED = "PAUSED"
    DONE = "DONE"


class Refusal(StrEnum):
    """Why a claim was not granted."""

    TAKEN = "TAKEN"
    """The task is not open, or not known: somebody else was first."""
    CONFLICT = "CONFLICT"
    """The unit has less than it had when the scheduler looked, or is gone."""
    SHARE = "SHARE"
    """The job is at its share."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A task to a unit: to run there now, or to wait in its queue."""

    task: str
    unit: str
    queued: bool = False


@dataclass(frozen=True)
class Granted:
    """What became of claims."""

    accepted: tuple[Claim, ...]
    refused: tuple[tuple[Claim, Refusal], ...] = ()


@dataclass(frozen=True)
class Report:
    """What a machine's heartbeat brought.

    Parameters
    ----------
    finished : tuple of str
        Tasks whose end is booked; others that the machine named are not there, as far as is known.
    started : tuple of str
        Tasks of its queues that follow those that ended.
    granted : tuple of str
        Tasks that a unit had refused and now takes; their schedulers launch them.
    stale : tuple of str
        Tasks that the machine has but should not: it was given up meanwhile, or they were moved.
    missing : tuple of str
        Tasks that were launched there and that it does not have: nobody told it.
    """

    finished: tuple[str, ...]
    started: tuple[str, ...]
    granted: tuple[str, ...]
    stale: tuple[str, ...]
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lost:
    """Who was declared lost, and the tasks that are open again."""

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
        All that there is; what a container can have now; what a stream container can have if batch makes way.
    places : int
        Left in the batch queue.
    wait : float
        Predicted wait of one more in the batch queue.
    alive : bool
    version : int
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


@dataclass(frozen=True, slots=True)
class JobState:
    """A job as the shared state knows it."""

    job: str
    kind: Literal["batch", "stream"]
    scheduler: str | None
    start: float
    stages: int
    tasks: int
    open: int
    held: int
    done: int

    @property
    def tasks_per_stage(self) -> int:
        """Tasks of each stage, rounded up."""
        return math.ceil(self.tasks / self.stages)
