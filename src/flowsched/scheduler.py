"""The scheduler: events in, deltas out.

>>> from flowsched.cluster.events import JobSubmitted, MachineAdded
>>> from flowsched.cluster import Task
>>> sched = Scheduler(resources=("cpu", "mem"))
>>> sched.apply(MachineAdded("m1", {"cpu": 4, "mem": 16}), JobSubmitted("web", [Task("web-0", {"cpu": 3}), Task("web-1", {"cpu": 3})]))
>>> rnd = sched.schedule(now=0.0)
>>> dict(rnd.placements)
{'web-0': 'm1'}
>>> rnd.waiting["web-1"].code.value, rnd.waiting["web-1"].detail
('OUTBID', {'4 cpu, 16 mem': {'cpu': 1}})
>>> len(sched.commit(rnd).accepted)
1
"""

from __future__ import annotations

import io
import math
import os
import time
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from weakref import WeakSet

from flowsched.builder import Builder
from flowsched.cluster import Cluster, Resources
from flowsched.cluster.checks import ids, number, whole
from flowsched.cluster.events import Event
from flowsched.cluster.trial import Trial
from flowsched.commits import carry_out, happen
from flowsched.exceptions import InputError, TimeLimitError
from flowsched.gangs import Gangs
from flowsched.image import State, form, pack, twin, unpack
from flowsched.journal import Header, Journal
from flowsched.log import MAGIC, framed
from flowsched.network import FlowNetwork
from flowsched.outcome import Verdicts, outcome
from flowsched.policy import Policy
from flowsched.policy.describe import describe
from flowsched.reclaim import reclaim
from flowsched.recovery import Recovery, attach, policy_of, read_header, recover
from flowsched.rounds import (
    Commit,
    Delta,
    Place,
    Reason,
    Round,
    RoundStats,
)
from flowsched.sharereport import ShareReport
from flowsched.verify import Verify
from flowsched.version import __version__
from flowsched.wire import encode

__all__ = ["Scheduler", "replay"]


@dataclass(slots=True)
class _Clock:
    """Where the time of a round goes."""

    deadline: float
    update: float = 0.0
    solve: float = 0.0
    solves: int = 0
    gap: float = 0.0
    cost: int = 0
    late: bool = False

    def run(self, network: FlowNetwork, start: float) -> bool:
        """Optimise within the time that is left; False without any flow."""
        limit = None if self.deadline == math.inf else max(self.deadline - start, 1e-6)
        self.solves += 1
        try:
            solution = network.solve(time_limit=limit)
        except TimeLimitError:
            self.late = True
            return False
        finally:
            self.solve += time.perf_counter() - start
        self.gap, self.cost = float(solution.stats["gap"]), solution.cost
        self.late = time.perf_counter() > self.deadline
        return True


class Scheduler:
    """Decides which task runs where, now.

    Parameters
    ----------
    policy : Policy
    resources : sequence of str or Resources
        What machines have and tasks take; "gpu" is counted device by device.
    seed : int
        For policies that draw lots; those here do not.
    journal : Journal or path, optional
        Where to write down what happens.  If something is in it, the scheduler goes on from there; policy, resources and
        seed must be those with which it was begun (`JournalMismatchError` says what is not).

    Attributes
    ----------
    cluster : Cluster
        What is.
    network : FlowNetwork
        What the last round optimised.
    journal : Journal or None
    recovery : Recovery or None
        What it was recovered from.
    """

    def __init__(
        self,
        policy: Policy | None = None,
        resources: Resources | Sequence[str] = ("cpu", "mem", "gpu"),
        seed: int = 0,
        *,
        journal: Journal | str | os.PathLike[str] | None = None,
    ) -> None:
        self.cluster = Cluster(resources)
        self.network = FlowNetwork()
        self.builder = Builder(self.cluster, self.network, _checked(Policy() if policy is None else policy))
        self.seed = whole("seed", seed, 0)
        self._verdicts = Verdicts(self.builder)
        self._aborted: WeakSet[Round] = WeakSet()
        self.journal: Journal | None = None
        self.recovery: Recovery | None = None
        if journal is not None:
            journal = journal if isinstance(journal, Journal) else Journal(journal)
            self.recovery = attach(self, journal, self._header())
            self.journal = journal

    @property
    def policy(self) -> Policy:
        """What the scheduler aims at; may be replaced at any time."""
        return self.builder.policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        _checked(policy)
        words = b"" if self.journal is None else self.journal.words(policy)
        self.builder.replace_policy(policy)
        if self.journal is not None:
            self.journal.policy(words)

    def apply(self, *events: Event) -> None:
        """Tell what happened; see `Cluster.apply`."""
        if self.journal is None:
            self.cluster.apply(*events)
        else:
            self.journal.events(events, self.cluster.apply)

    def look_anew(self, classes: Collection[int]) -> None:
        """What tasks of these classes (by index) need has changed, in the eyes of ``cluster.books.rule``."""
        self.builder.places.look_anew(list(classes))

    # -- a round ------------------------------------------------------------------------------------------------

    def schedule(self, now: float, time_limit: float | None = None) -> Round:
        """Decide; nothing happens yet.

        The changes go to the network, the network is re-optimised from its last optimum, and what its flow says is
        checked machine by machine; while something does not fit together, the network learns it and is re-optimised.

        Parameters
        ----------
        now : float
            The time, in the unit of the events.
        time_limit : float, optional
            Seconds of computing; who could still start then waits, code `TIME_LIMIT`.

        Returns
        -------
        Round
        """
        now = number("now", now)
        if time_limit is not None and not number("time_limit", time_limit, finite=False) > 0:
            raise InputError(f"time_limit: a positive number of seconds expected, got {time_limit!r}")
        if self.journal is None:
            return self._decide(now, time_limit)[0]
        if self.cluster.books.rule is not None:
            raise InputError("journal: it cannot hold what a fit rule knows, so a scheduler with one has none")
        round, late = None, False
        try:
            round, late = self._decide(now, time_limit)
        finally:
            self.journal.round(now, time_limit if late else None, round)
        return round

    def _decide(self, now: float, time_limit: float | None) -> tuple[Round, bool]:
        """A round, and whether time has had a part in it."""
        before = self.builder.edits.count
        start = time.perf_counter()
        clock = _Clock(math.inf if time_limit is None else start + time_limit)
        trial = Trial(self.cluster, now)
        self.builder.begin_round(now)
        try:
            check = Verify(self.builder, trial)
            gangs = Gangs(self.builder, check)
            had_room = self._settle(check, clock)
            while not gangs.settled(clock.late):
                had_room |= self._settle(check, clock)
            check.spare()
            out = outcome(check)
            shares = self.builder.shares.report(task.group.job for task in trial.before)
            waiting = self._verdicts.waiting(had_room, clock.late, gangs.out)
        finally:
            trial.undo()
            self.builder.end_round()
        stats = RoundStats(
            nodes=self.network.num_nodes,
            arcs=self.network.num_arcs,
            changes=self.builder.edits.count - before,
            solves=clock.solves,
            seconds_update=clock.update,
            seconds_solve=clock.solve,
            seconds_read=time.perf_counter() - start - clock.update - clock.solve,
            gap=clock.gap,
            cost=clock.cost,
        )
        return out.round(now, waiting, stats, shares or MappingProxyType({})), clock.late or clock.gap > 0

    def _settle(self, check: Verify, clock: _Clock) -> set[int]:
        """Optimise and check until they agree; the classes that had room at some time (see `verify` for why it ends)."""
        builder, waiting = self.builder, self.cluster.waiting
        had_room: set[int] = set()
        offered = proposed = False
        while True:
            start = time.perf_counter()
            builder.update(self.cluster.changes(check.trial.now), check.trial.now)
            had_room.update(builder.places.with_room([cls.index for cls in waiting]))
            updated = time.perf_counter()
            clock.update += updated - start
            again = False
            if clock.run(self.network, updated):
                proposals = builder.read()
                proposed |= bool(proposals)
                again = check.admit(proposals)
            builder.places.stop_displacing()
            # Room that was offered at a price and that nobody took is not offered twice.
            offered = not (again or offered or clock.late) and (check.make_room() | reclaim(check))
            if not (again or offered or clock.late):
                again, proposed = builder.shares.deal_on(proposed), False
            if clock.late or not (again or offered):
                return had_room

    # -- afterwards ---------------------------------------------------------------------------------------------

    def commit(self, round: Round, only: Collection[Hashable] | None = None) -> Commit:
        """Let a round happen, but for what the world has overtaken.

        A task that starts and those that make room for it belong together: all of them or none.

        Parameters
        ----------
        round : Round
        only : collection of task ids, optional
            Tasks that start; others are left for later.

        Returns
        -------
        Commit
            Committing the same round again gives conflicts only.
        """
        if not isinstance(round, Round):
            raise InputError(f"round: a Round expected, got {round!r}")
        if round in self._aborted:
            raise InputError("round: it was aborted")
        only = None if only is None else ids("only", only)
        if self.journal is not None:
            self.journal.check(round, only)
        done = carry_out(self.cluster, round, only)
        self._book(round, done.accepted)
        if self.journal is not None:
            self.journal.commit(round, only, done)
        return done

    def _book(self, round: Round, deltas: Sequence[Delta]) -> None:
        """Tell who keeps accounts of shares."""
        if isinstance(round.shares, ShareReport):
            started = (delta.task for delta in deltas if isinstance(delta, Place))
            round.shares.book(self.cluster.task(task).group.job for task in started)

    def abort(self, round: Round) -> None:
        """Forget a round: it can no longer be committed.  Nothing of it had happened."""
        if not isinstance(round, Round):
            raise InputError(f"round: a Round expected, got {round!r}")
        self._aborted.add(round)

    # -- questions ----------------------------------------------------------------------------------------------

    def what_if(self, *events: Event, now: float) -> Round:
        """The round that `schedule` would make if these events happened.

        Nothing of it happens, and nothing of it is left: it is made by a `copy`, whose cost grows with the cluster (about
        15 microseconds for each task and more than that for each class and machine; ask several questions of one copy).

        Parameters
        ----------
        *events : Event
        now : float

        Returns
        -------
        Round
            It cannot be committed.
        """
        twin = self.copy()
        twin.apply(*events)
        round = twin.schedule(now)
        self._aborted.add(round)
        return round

    def explain(self, task: Hashable, machine: Hashable | None = None) -> Reason:
        """Why a task waits as things are now, or why it is not on a certain machine.

        Parameters
        ----------
        task : hashable
        machine : hashable, optional

        Returns
        -------
        Reason
            Code `RUNNING` if it runs (there), `PENDING` if there is room: the next round decides.  `SHARE` if there is room,
            but its job or user was at its share in the last round; likewise `GANG_SHORT`.
        """
        return self._verdicts.explain(task, machine)

    # -- state that survives ------------------------------------------------------------------------------------

    def copy(self) -> Scheduler:
        """A scheduler in the same state, without journal: given the same, both make the same rounds from now on."""
        other = Scheduler(self.policy, self.cluster.resources, self.seed)
        other._take(twin(self._state()))
        return other

    def snapshot(self) -> bytes:
        """The whole state with flow and potentials, for `restore`; written to a file, it may also begin a journal.

        A policy is in it by the names and settings of its parts, and by the accounts that share providers keep.
        """
        return MAGIC + framed((self._header().body(), self._state_record()))[0]

    @classmethod
    def restore(
        cls, source: bytes | str | os.PathLike[str], policy: Policy | None = None, policies: Sequence[Policy] = ()
    ) -> Scheduler:
        """The scheduler that a snapshot or a journal tells of.  Its next round is warm, and the one that would have come.

        Parameters
        ----------
        source : bytes or path
            What `snapshot` returned; or a file with that in it, or a journal, of which nothing is altered.
        policy : Policy, optional
            The one with which it was begun; needed if it has parts of the caller's own.
        policies : sequence of Policy
            See `Journal`.

        Returns
        -------
        Scheduler
            Without journal; `recovery` tells what was read.

        Raises
        ------
        JournalError
            Which of its kinds says what is wrong, and where.
        """
        if not isinstance(source, bytes | str | os.PathLike):
            raise InputError(f"source: a snapshot (bytes) or the path of a file expected, got {source!r}")
        name = "" if isinstance(source, bytes) else os.fspath(source)
        with io.BytesIO(source) if isinstance(source, bytes) else open(source, "rb") as file:
            header = read_header(file, name)
            given = () if policy is None else (_checked(policy),)
            first = policy or policy_of(header.policy, policies, name, 0)
            sched = cls(first, header.cluster_resources, header.seed)
            sched._header().check(header, name)
            file.seek(0)
            sched.recovery, *_ = recover(sched, file, name, (*given, *policies))
        return sched

    def compact(self) -> None:
        """Start the journal anew with a snapshot in front: atomically, and without those rounds not committed yet."""
        if self.journal is None:
            raise InputError("compact: this scheduler has no journal")
        self.journal.restart(self._state_record(), self.policy)

    def _header(self) -> Header:
        resources = self.cluster.resources
        return Header(__version__, resources.names, resources.device, self.seed, describe(self.policy))

    def _state(self) -> State:
        return State(self.cluster, self.network, self.builder)

    def _state_record(self) -> bytes:
        return b"S" + encode([form(), describe(self.policy)]) + b"\n" + pack(self._state())

    def _take(self, state: State) -> None:
        self.cluster, self.network, self.builder = state.cluster, state.network, state.builder
        self._verdicts = Verdicts(self.builder)

    def _load(self, image: bytes, policy: Policy) -> None:
        """Be what the image says; for `recover`."""
        self._take(unpack(image, policy))

    def _impose(self, deltas: Sequence[Delta], round: Round) -> bool:
        """Let deltas happen that did happen after this round, whatever it says; False if they cannot.  For `recover`."""
        if happen(self.cluster, deltas, round.now) is not None:
            return False
        self._book(round, deltas)
        return True


def _checked(policy: Policy) -> Policy:
    if not isinstance(policy, Policy):
        raise InputError(f"policy: a Policy expected, got {policy!r}")
    return policy


def replay(path: str | os.PathLike[str], policy: Policy | None = None, policies: Sequence[Policy] = ()) -> Recovery:
    """Make all rounds of a journal again, and say which come out otherwise.

    Parameters
    ----------
    path : str or path
        Nothing of it is altered.
    policy, policies
        See `Scheduler.restore`, which gives the scheduler as well.

    Returns
    -------
    Recovery
    """
    recovery = Scheduler.restore(path, policy, policies).recovery
    assert recovery is not None
    return recovery
