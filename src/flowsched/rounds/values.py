"""Results of a scheduling round: values only."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import cached_property
from itertools import count
from math import inf
from types import MappingProxyType
from typing import Any, ClassVar

from flowsched.boundary.validate import frozen
from flowsched.cluster._records import places
from flowsched.cluster.events import EndedRun
from flowsched.cluster.records import TaskRecord
from flowsched.cluster.state import Moment

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
    """Code of the reason why a task waits (or, asked about one machine, why it is not there)."""

    NEVER_FITS = "NEVER_FITS"
    """No machine is large enough, even empty."""
    FILTERED = "FILTERED"
    """Machines are large enough, but the task's constraints or their taints exclude them."""
    NO_SLOT = "NO_SLOT"
    """Machines have the resources, but all their slots are taken."""
    NO_FIT = "NO_FIT"
    """Machines are large enough, but not now beside what runs there; one over its capacity has no room for anything."""
    SPREAD = "SPREAD"
    """Machines have room, but too many tasks of its kind run in their racks already."""
    DEADLINE = "DEADLINE"
    """Machines have room, but there a deadline would be missed: its own, or that of a task that it would slow down."""
    FAILED_THERE = "FAILED_THERE"
    """Machines have room, but it failed there, and another machine could hold it; see `Task.retries`."""
    CONSTRAINT = "CONSTRAINT"
    """Machines have room, but constraints of the policy forbid them; the reason's detail names them."""
    OUTBID = "OUTBID"
    """There was room before the round, or it was made in the round by preemption; other tasks got it in this round."""
    WAIT_CHEAPER = "WAIT_CHEAPER"
    """There is room, but waiting costs less."""
    SHARE = "SHARE"
    """Its job or user is at its share."""
    QUOTA = "QUOTA"
    """Too little is left of a quota of its user or job; the reason's detail names the resources.  See `Quotas`."""
    GANG_SHORT = "GANG_SHORT"
    """Too few of its gang could start."""
    HELD = "HELD"
    """Machines have room, but are kept for tasks that have waited longer."""
    BACKOFF = "BACKOFF"
    """It failed, and rests until `Cluster.resting` says; see `Task.backoff`."""
    STOPPING = "STOPPING"
    """A run that was told to stop has not stopped: its own, or one that holds its room; see `PreemptionCost.graceful`."""
    TIME_LIMIT = "TIME_LIMIT"
    """The time limit passed before the round was done."""
    CONFLICT = "CONFLICT"
    """The cluster changed between the round and its commit."""
    PENDING = "PENDING"
    """It fits; the next round decides."""
    RUNNING = "RUNNING"
    """It does not wait, it runs."""


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
        With the code `QUOTA`: "quota" -> each resource of which too little is left -> 1.
    price : float or None
        Cost of the best machine beyond that of waiting, in units of a whole load, where the optimum tells.
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
        Where it ran.
    by : hashable
        The task that it makes room for.
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
    """Delta: the task stops on one machine, making room for `by`, and starts on another."""

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
"""For `flowsched.cluster._records`."""


class Starts:
    """Tasks that start in a round, as they are collected.

    Attributes
    ----------
    tasks : list of TaskRecord
    machines : list of machine id
    devices : list of tuple of int
    turns : list of int
        Their turns before the round.
    placements : dict of task to machine
    gangs : dict of task to int
        See `Round`.
    moment : Moment
        Of the cluster at the end of the round.
    """

    __slots__ = "devices", "gangs", "machines", "moment", "placements", "tasks", "turns"

    moment: Moment

    def __init__(self) -> None:
        self.tasks: list[TaskRecord] = []
        self.machines: list[Hashable] = []
        self.devices: list[tuple[int, ...]] = []
        self.turns: list[int] = []
        self.placements: dict[Hashable, Hashable] = {}
        self.gangs: dict[Hashable, int] = {}

    def deltas(self) -> tuple[Place, ...]:
        """Return `Round.deltas` of these tasks."""
        return tuple(places(self.tasks, self.machines, self.devices, Place))

    def devices_of(self) -> dict[Hashable, tuple[int, ...]]:
        """Return `Round.devices` of these tasks."""
        return {task.id: devices for task, devices in zip(self.tasks, self.devices, strict=True)}

    def turns_of(self) -> dict[Hashable, int]:
        """Return `Round.turns` of these tasks."""
        return {task.id: turn for task, turn in zip(self.tasks, self.turns, strict=True)}


@dataclass(frozen=True, slots=True)
class Share:
    """Share of a job or a user, in tasks.

    Parameters
    ----------
    entitled : int
        Tasks that the fairness policy lets it run, with those that it starts in room that others leave; at most all that it
        has.
    running : int
        Tasks that run once the round is committed.
    shortfall : int
        Tasks that `running` is below `entitled`: placement, slots or tasks that still run elsewhere stood in the way.
    lent, borrowed : int
        Tasks of others on its own part, and its own on the parts of others.
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
        Re-optimisations: one, and one more each time that the check refused something or a task had to make room.
    seconds_update, seconds_solve, seconds_read : float
        Altering the network; optimising it; reading, checking and explaining its flow.
    gap : float
        Bound on how far the last flow's cost is from the optimum, 0 where it is the optimum.
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
    """A proposal: nothing of it has happened until it is committed.

    Parameters
    ----------
    now : float
    placements : mapping of task to machine
        Tasks that start.
    preemptions : mapping of task to Preemption
        Running tasks that must wait.
    migrations : mapping of task to (old machine, new machine)
        Running tasks that make room and start elsewhere.
    devices : mapping of task to tuple of int
        Devices of the tasks placed and migrated.
    waiting : mapping of task to Reason
        All tasks that wait once the round is committed.
    deltas : tuple of Preempt, Migrate and Place, in this order
    shares : mapping of job or user to Share
        Empty without a fairness policy.
    stats : RoundStats
    again_at : float
        No decision changes before this time, if all of the round is committed and no event happens: then a task or run
        grows older, a reservation ends, a stopped task may be stopped again, or, under `flowsched.fgm.FineGrained`, a stage
        ends that leaves more room.  It may come earlier than needed.  `now`
        where the next round may differ at once; `inf` where time changes nothing; `-inf` from a scheduler that does not
        tell.
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
    """State of the tasks concerned when the round was made: a task with another `turn` by now has moved on."""
    gangs: Mapping[Hashable, int] = field(default_factory=dict, repr=False)
    """Tasks of gangs that start, each with a number of its gang: those of one number start together or not at all."""
    again_at: float = -inf
    _starts: ClassVar[Starts | None] = None
    """Of a round in which tasks start, and no others move: what `deltas`, `devices` and `turns` are made of."""


def _made_later(cls: type, name: str, make: Callable[[Any], Any]) -> None:
    """Let objects that come without this attribute make it when it is first looked at."""
    later = cached_property(make)
    later.__set_name__(cls, name)
    setattr(cls, name, later)


_made_later(Round, "deltas", lambda round: round._starts.deltas())
_made_later(Round, "devices", lambda round: round._starts.devices_of())
_made_later(Round, "turns", lambda round: round._starts.turns_of())


@dataclass(frozen=True)
class Commit:
    """Result of committing a round.

    Parameters
    ----------
    accepted : tuple of Delta
        Deltas that have happened, in the order in which they happened.
    conflicts : mapping of task to Reason
        Tasks with a delta that was refused because the cluster had changed, code `CONFLICT`.
    first_run : int
        Number of the first run that begins; those of the other starts and migrations follow in the order of `accepted`.  0
        from a scheduler that numbers none.
    ended : tuple of EndedRun
        Runs of the tasks that stop or migrate.
    """

    accepted: tuple[Delta, ...]
    conflicts: Mapping[Hashable, Reason]
    first_run: int = 0
    ended: tuple[EndedRun, ...] = ()
    _round: ClassVar[Round | None] = None
    """Of `whole`: what `accepted` is made of."""

    @classmethod
    def whole(cls, round: Round, first_run: int) -> Commit:
        """Return that of a round in which tasks start, and no others move, and of which nothing was refused."""
        return frozen(cls, {"conflicts": {}, "first_run": first_run, "ended": (), "_round": round})

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def is_all_of(self, round: Round) -> bool:
        """Return True if all of the round has happened."""
        return self._round is round or self.accepted is round.deltas

    @cached_property
    def runs(self) -> Mapping[Hashable, int]:
        """The run of each task that starts or migrates: a number that no other run of the scheduler's life has."""
        if not self.first_run:
            return {}
        starts = (delta.task for delta in self.accepted if not isinstance(delta, Preempt))
        return dict(zip(starts, count(self.first_run)))


_made_later(Commit, "accepted", lambda commit: commit._round.deltas)  # of `Commit.whole`
