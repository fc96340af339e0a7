"""Protocols of the engine that a durable scheduler drives, and of an adapter's part of its files.

An `Engine` makes and applies decisions, in memory only.  `Durable` guards its calls and writes them down.
`flowsched.rounds.engine.RoundEngine` is one.  `flowsched.fgm.engine.StageEngine` is one around it, and has an
`Adapter`.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, Self

from flowsched.cluster import Cluster
from flowsched.cluster.events import EndedRun, Event
from flowsched.cluster.limits import Limit
from flowsched.cluster.records import TaskClass
from flowsched.exceptions import InputError
from flowsched.journal.journal import Journal
from flowsched.journal.records import Header
from flowsched.journal.snapshot import PLAIN, Extras
from flowsched.policy import Policy
from flowsched.policy.serialize import Makers, describe
from flowsched.rounds.engine import State
from flowsched.rounds.values import Commit, Delta, Round
from flowsched.version import __version__

Line = dict[str, Any]
"""A line of an export, see `flowsched.journal.export`."""


class Engine(Protocol):
    """Decides which task runs where, and applies the decisions.

    Every call is made by one caller at a time.  A call that raises `FlowschedError` has changed nothing.  The exception
    is `apply_batch`, which keeps the events before the refused one.
    """

    @property
    def cluster(self) -> Cluster:
        """Machines, jobs, tasks, users and placements; another object after `replace_state`."""
        ...

    @property
    def seed(self) -> int: ...

    @property
    def adapter(self) -> Adapter | None:
        """The part of an adapter in files; None without an adapter."""
        ...

    @property
    def policy(self) -> Policy:
        """The policy of the next round."""
        ...

    @policy.setter
    def policy(self, policy: Policy) -> None: ...

    def apply_batch(self, events: Sequence[Event]) -> tuple[EndedRun, ...]:
        """Apply events in order; return the runs that they ended.

        `Cluster.events` counts the applied ones, whatever exception ends the call.
        """
        ...

    def decide(self, now: float, time_limit: float | None) -> tuple[Round, bool]:
        """Decide a round without applying it; return it, and True if the time limit had a part in it."""
        ...

    def fail_round(self, now: float) -> None:
        """Take the state that a round at this time left when it raised an exception; for recovery."""
        ...

    def carry_out(self, round: Round, only: Collection[Hashable] | None) -> Commit:
        """Apply a round except for conflicts, or only the starts of some tasks."""
        ...

    def impose(self, deltas: Sequence[Delta], round: Round) -> bool:
        """Apply the deltas of a recorded commit of this round; return False if they cannot be.  For recovery."""
        ...

    def state(self) -> State:
        """Return the state, which is the engine's own and not a copy."""
        ...

    def replace_state(self, state: State, cached: bool = False) -> None:
        """Continue from another state; a `cached` mirror came from a file, and is dropped where it does not work."""
        ...

    def fresh(self) -> Self:
        """Return a new engine with the same settings, and without events."""
        ...


class Adapter(Protocol):
    """The part of an adapter in journals, snapshots and exports."""

    @property
    def name(self) -> str:
        """The name of the class that restores it; ``adapter["is"]`` of a header."""
        ...

    @property
    def rule(self) -> Limit | None:
        """The fit rule that the adapter gave to its cluster."""
        ...

    @property
    def description(self) -> Mapping[str, Any] | None:
        """Its name and settings in words; see `flowsched.policy.serialize.describe`."""
        ...

    @property
    def extras(self) -> Extras:
        """Classes of objects in its images, in addition to those of a scheduler."""
        ...

    @property
    def makers(self) -> Makers:
        """Makers of the parts of policies that are its own."""
        ...

    @property
    def warm_state(self) -> Any:
        """Knowledge from before the first event, None without any.  The setter forgets everything else."""
        ...

    @warm_state.setter
    def warm_state(self, state: Any) -> None: ...

    def keep(self, journal: Journal) -> None:
        """Write calls to a journal from now on that are neither events nor a round, commit or policy."""
        ...

    def replay_record(self, words: Any) -> None:
        """Repeat the call of such a record."""
        ...

    def check_state(self, state: State) -> None:
        """Refuse a state from an image whose parts of the adapter contradict each other."""
        ...

    def blank_cluster(self) -> Cluster:
        """Return an empty cluster with a fit rule like the adapter's own."""
        ...

    def lines(self, classes: Mapping[int, int]) -> Iterator[Line]:
        """Yield its knowledge as lines of an export; `classes` has the numbers of classes there by their indices."""
        ...

    def read_lines(self, cluster: Cluster, classes: Mapping[int, TaskClass], lines: Sequence[Line]) -> None:
        """Give the fit rule of a rebuilt cluster the knowledge of lines; `classes` by the numbers there.

        Raises
        ------
        InputError
            A line is impossible; other errors where it is nonsense altogether.
        """
        ...


class _NoAdapter:
    """The part of a plain scheduler: nothing."""

    name = "Scheduler"
    rule = description = None
    extras = PLAIN
    makers: Makers = MappingProxyType({})

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def warm_state(self) -> Any:
        return None

    @warm_state.setter
    def warm_state(self, state: Any) -> None:
        raise InputError("a Scheduler knows nothing before anything happens")

    def keep(self, journal: Journal) -> None:
        pass

    def replay_record(self, words: Any) -> None:
        raise InputError(f"a Scheduler does not know what {words!r} is")

    def check_state(self, state: State) -> None:
        pass

    def blank_cluster(self) -> Cluster:
        return Cluster(self._engine.cluster.resources)

    def lines(self, classes: Mapping[int, int]) -> Iterator[Line]:
        return iter(())

    def read_lines(self, cluster: Cluster, classes: Mapping[int, TaskClass], lines: Sequence[Line]) -> None:
        if lines:
            raise InputError("a Scheduler learns nothing")


def adapter_of(engine: Engine) -> Adapter:
    """Return the engine's adapter, or one that adds nothing."""
    return _NoAdapter(engine) if engine.adapter is None else engine.adapter


def header_of(engine: Engine) -> Header:
    """Return the header of the engine's files, as of now."""
    resources = engine.cluster.resources
    words = adapter_of(engine).description
    return Header(__version__, resources.names, resources.device, engine.seed, describe(engine.policy), words)
