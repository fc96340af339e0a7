"""Containers on resource units, their states, and the results of queue operations: values only."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from flowsched.boundary.validate import check_id, number, whole
from flowsched.exceptions import InputError
from flowsched.hrm.units import AMOUNTS, Amounts

Kind = Literal["batch", "stream"]

Trigger = Literal["once", "window", "continuous"]


def sense(trigger: str) -> Kind:
    """Return the kind of a job by its trigger: "once" is batch, "window" and "continuous" are stream."""
    kinds: dict[str, Kind] = {"once": "batch", "window": "stream", "continuous": "stream"}
    if trigger not in kinds:
        raise InputError(f"trigger: one of {', '.join(kinds)} expected, got {trigger!r}")
    return kinds[trigger]


@dataclass(frozen=True)
class Container:
    """A piece of work that runs on one resource unit.

    Parameters
    ----------
    id : hashable
    job : hashable
    vcore, mem, gmem : number
        Cores, memory and GPU memory (MiB); a container that takes GPU memory runs on a unit with a GPU only.
    duration : float
        Expected run time in seconds.
    kind : {"batch", "stream"}
    priority : int
        Lower is better; only among the batch containers that wait.

    Raises
    ------
    InputError
        An amount or the duration is not a number >= 0, or the kind is another.
    """

    id: Hashable
    job: Hashable = None
    vcore: float = 0
    mem: float = 0
    gmem: float = 0
    duration: float = math.inf
    kind: Kind = "batch"
    priority: int = 0
    need: Amounts = field(init=False, repr=False, compare=False)
    """Micro-units in the order of `AMOUNTS`, and the one place that it takes."""

    def __post_init__(self) -> None:
        if self.kind not in ("batch", "stream"):
            raise InputError(f"container {self.id!r}: kind: 'batch' or 'stream' expected, got {self.kind!r}")
        check_id("container: id", self.id)
        number(f"container {self.id!r}: duration", self.duration, 0, finite=False)
        whole(f"container {self.id!r}: priority", self.priority, -(2**31), 2**31 - 1)
        demand = AMOUNTS.demand(f"container {self.id!r}", (self.vcore, self.mem, self.gmem))
        object.__setattr__(self, "need", (*demand.tolist(), 1))


class Outcome(StrEnum):
    """Result of submitting a container."""

    STARTED = "STARTED"
    QUEUED = "QUEUED"
    OVER_LIMIT = "OVER_LIMIT"
    """The container asks for more than the queue gives any, or for a shared core without GPU memory."""
    QUEUE_FULL = "QUEUE_FULL"
    TOO_LATE = "TOO_LATE"
    """The predicted wait reaches the queue's limit."""
    NO_ROOM = "NO_ROOM"
    """Other stream containers hold the amounts that this stream container needs."""


@dataclass(frozen=True)
class Admission:
    """Result of a queue operation, for the node to carry out in the order evicted, paused, resumed, started.

    `elsewhere` has the same for other units that share cores with this one, by unit: see `share_cores`.
    """

    outcome: Outcome
    started: tuple[Container, ...] = ()
    resumed: tuple[Container, ...] = ()
    paused: tuple[Container, ...] = ()
    evicted: tuple[Container, ...] = ()
    elsewhere: tuple[tuple[Hashable, Admission], ...] = ()


@dataclass(frozen=True, slots=True)
class Running:
    """A container that runs since `start`; a pause moves `start` later by its length."""

    container: Container
    start: float

    @property
    def end(self) -> float:
        """Expected end."""
        return self.start + self.container.duration


@dataclass(frozen=True, slots=True)
class Paused:
    """A paused container that had run for `elapsed` seconds."""

    container: Container
    elapsed: float

    @property
    def remaining(self) -> float:
        """Expected seconds of run time that are left."""
        return max(self.container.duration - self.elapsed, 0.0)
