"""Results of a scheduling round, as values."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import cached_property
from itertools import count
from math import inf
from types import MappingProxyType
from typing import Any, ClassVar

from flowsched.cluster.events import EndedRun
from flowsched.cluster.records import Starts, places

__all__ = [
    "Commit",
    "Delta",
    "Migrate",
    "Place",
    "Preempt",
    "Preemption",
    "Reason",
    "ReasonCode",
    "Round",
    "RoundStats",
    "Share",
]


class ReasonCode(StrEnum):
    """Code of the reason why a task waits (or why it is not on a given machine)."""

    NEVER_FITS = "NEVER_FITS"
    """No machine is large enough, even empty."""
    FILTERED = "FILTERED"
    """Machines are large enough, but the task's constraints or their taints exclude them."""
    NO_SLOT = "NO_SLOT"
    """Machines have the resources, but all their slots are taken."""
    NO_FIT = "NO_FIT"
    """Machines are large enough, but not next to their running tasks; a machine over capacity has no room."""
    SPREAD = "SPREAD"
    """Machines have room, but too many tasks of its kind already run in their racks."""
    DEADLINE = "DEADLINE"
    """Machines have room, but a deadline would be missed there: its own, or that of a task that it would slow down."""
    FAILED_THERE = "FAILED_THERE"
    """Machines have room, but it failed there, and another machine can hold it; see `Task.retries`."""
    CONSTRAINT = "CONSTRAINT"
    """Machines have room, but constraints of the policy forbid them; the reason's detail names them."""
    OUTBID = "OUTBID"
    """There was room before the round, or preemption made it in the round; other tasks got it in this round."""
    WAIT_CHEAPER = "WAIT_CHEAPER"
    """There is room, but waiting costs less."""
    SHARE = "SHARE"
    """Its job or user is at its share."""
    QUOTA = "QUOTA"
    """The rest of a quota of its user or job is too small; the reason's detail names the resources.  See `Quotas`."""
    GANG_SHORT = "GANG_SHORT"
    """Too few tasks of its gang can start."""
    HELD = "HELD"
    """Machines have room, but are kept for tasks that have waited longer."""
    BACKOFF = "BACKOFF"
    """It failed, and rests until the time in `Cluster.resting`; see `Task.backoff`."""
    STOPPING = "STOPPING"
    """A stopping run has not stopped yet: its own, or one that holds its room; see `PreemptionCost.graceful`."""
    TIME_LIMIT = "TIME_LIMIT"
    """The time limit passed before the round was done."""
    CONFLICT = "CONFLICT"
    """The cluster changed between the round and its commit."""
    PENDING = "PENDING"
    """It fits; the next round decides."""
    RUNNING = "RUNNING"
    """It runs and does not wait."""


@dataclass(frozen=True)
class Reason:
    """Reason why a task waits.

    Parameters
    ----------
    code : ReasonCode
    detail : mapping of str to mapping of str to int
        Shape of machine -> blocker -> number of machines of that shape.  A machine counts once under each blocker:
        "down" (failed or drained), a resource, "slots", "constraint" and a label, "taint" and its key, "affinity",
        "rack" (see `Task.apart`, `Task.avoids`), "held for others", "deadline", "failed there", and the names of the policy's constraints.
        With the code `QUOTA`: "quota" -> each resource of which the rest is too small -> 1.
    price : float or None
        Cost of the best machine minus that of waiting, in units of a whole load, if the optimum determines it.
    unblocked_by : tuple of str
        Kinds of events that may let it run.
    """

    code: ReasonCode
    detail: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    price: float | None = None
    unblocked_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Preemption:
    """A running task that has to stop.

    Parameters
    ----------
    machine : hashable
        Machine of its run.
    by : hashable
        Task that it makes room for.
    price : float
        In units of a whole load.
    """

    machine: Hashable
    by: Hashable
    price: float


@dataclass(frozen=True, slots=True)
class Preempt:
    """Delta: the task stops and waits."""

    task: Hashable
    machine: Hashable
    by: Hashable


@dataclass(frozen=True, slots=True)
class Migrate:
    """Delta: the task stops on one machine, to make room for `by`, and starts on another."""

    task: Hashable
    old: Hashable
    machine: Hashable
    devices: tuple[int, ...]
    by: Hashable


@dataclass(frozen=True, slots=True)
class Place:
    """Delta: the task starts."""

    task: Hashable
    machine: Hashable
    devices: tuple[int, ...]


Delta = Preempt | Migrate | Place

KINDS = Place, Preempt
"""Kinds of deltas, for `flowsched.cluster.records`."""


@dataclass(frozen=True, slots=True)
class Share:
    """Share of a job or a user, in tasks.

    Parameters
    ----------
    entitled : int
        Tasks that the fairness policy lets it run, including those that it starts in room left by others; at most all of
        its tasks.
    running : int
        Running tasks after the commit of the round.
    shortfall : int
        Tasks by which `running` is below `entitled`, due to placement, slots or tasks that still run elsewhere.
    lent, borrowed : int
        Tasks of others in its own part, and its own tasks in the parts of others.
    """

    entitled: int
    running: int
    shortfall: int
    lent: int
    borrowed: int


@dataclass(frozen=True)
class RoundStats:
    """Sizes and times of one round.

    Parameters
    ----------
    nodes, arcs : int
        Size of the network.
    changes : int
        Nodes and arcs added, removed or altered in it.
    solves : int
        Re-optimisations: one, and one more for each time that the check refused something or a task had to make room.
    seconds_update, seconds_solve, seconds_read : float
        Time to change the network, to optimise it, and to read, check and explain its flow.
    gap : float
        Bound on the distance of the last flow's cost from the optimum, 0 at the optimum.
    cost : int
        Cost of the last flow, exactly.
    """

    nodes: int
    arcs: int
    changes: int
    solves: int
    seconds_update: float
    seconds_solve: float
    seconds_read: float
    gap: float = 0.0
    cost: int = 0


@dataclass(frozen=True, eq=False)
class Round:
    """A proposal; it has no effect before its commit.

    Parameters
    ----------
    now : float
    placements : mapping of task to machine
        Tasks that start.
    preemptions : mapping of task to Preemption
        Running tasks that must stop and wait.
    migrations : mapping of task to (old machine, new machine)
        Running tasks that make room and start elsewhere.
    devices : mapping of task to tuple of int
        Devices of the tasks placed and migrated.
    waiting : mapping of task to Reason
        All waiting tasks after the commit of the round.
    deltas : tuple of Preempt, Migrate and Place, in this order
    shares : mapping of job or user to Share
        Empty without a fairness policy.
    stats : RoundStats
    again_at : float
        Time until which no decision changes if all of the round is committed and no event happens.  At this time a task or
        run grows older, a reservation ends, a stopped task may be stopped again, or, under `flowsched.fgm.FineGrained`, a
        stage ends that leaves more room.  It may be earlier than necessary.  `now`: the next round may differ at once;
        `inf`: time changes nothing; `-inf`: the scheduler does not determine it.
    """

    now: float
    placements: Mapping[Hashable, Hashable]
    preemptions: Mapping[Hashable, Preemption]
    migrations: Mapping[Hashable, tuple[Hashable, Hashable]]
    devices: Mapping[Hashable, tuple[int, ...]]
    waiting: Mapping[Hashable, Reason]
    deltas: tuple[Delta, ...]
    stats: RoundStats
    shares: Mapping[Hashable, Share] = field(default_factory=lambda: MappingProxyType({}))
    turns: Mapping[Hashable, int] = field(default_factory=dict, repr=False)
    """State of the tasks concerned at the time of the round: a task whose `turn` differs later has moved on."""
    gangs: Mapping[Hashable, int] = field(default_factory=dict, repr=False)
    """Tasks of starting gangs, each with a number of its gang: tasks of one number start together or not at all."""
    again_at: float = -inf
    _starts: ClassVar[Starts | None] = None
    """Starts of a round without other moves: the source of `deltas`, `devices` and `turns`."""


def _made_later(cls: type, name: str, make: Callable[[Any], Any]) -> None:
    """Make an attribute on its first use, for objects that come without it."""
    later = cached_property(make)
    later.__set_name__(cls, name)
    setattr(cls, name, later)


def devices_of(starts: Starts) -> dict[Hashable, tuple[int, ...]]:
    """Return `Round.devices` of starts."""
    return {task.id: devices for task, devices in zip(starts.tasks, starts.devices, strict=True)}


def turns_of(starts: Starts) -> dict[Hashable, int]:
    """Return `Round.turns` of starts."""
    return {task.id: turn for task, turn in zip(starts.tasks, starts.turns, strict=True)}


def deltas_of(starts: Starts) -> tuple[Place, ...]:
    """Return `Round.deltas` of starts."""
    return tuple(places(starts.tasks, starts.machines, starts.devices, Place))


_made_later(Round, "deltas", lambda round: deltas_of(round._starts))
_made_later(Round, "devices", lambda round: devices_of(round._starts))
_made_later(Round, "turns", lambda round: turns_of(round._starts))


@dataclass(frozen=True)
class Commit:
    """Result of committing a round.

    Parameters
    ----------
    accepted : tuple of Delta
        Deltas that have happened, in order.
    conflicts : mapping of task to Reason
        Tasks with a delta that was refused because the cluster had changed, code `CONFLICT`.
    first_run : int
        Number of the first run that begins; the runs of the other starts and migrations follow in the order of `accepted`.
        0 from a scheduler that does not number runs.
    ended : tuple of EndedRun
        Runs of the tasks that stop or migrate.
    """

    accepted: tuple[Delta, ...]
    conflicts: Mapping[Hashable, Reason]
    first_run: int = 0
    ended: tuple[EndedRun, ...] = ()
    _round: ClassVar[Round | None] = None
    """Source of `accepted`, where all of a round of starts has happened."""

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def runs(self) -> Mapping[Hashable, int]:
        """Run of each task that starts or migrates: a number that is unique in the scheduler's life."""
        if not self.first_run:
            return {}
        starts = (delta.task for delta in self.accepted if not isinstance(delta, Preempt))
        return dict(zip(starts, count(self.first_run)))


_made_later(Commit, "accepted", lambda commit: commit._round.deltas)
