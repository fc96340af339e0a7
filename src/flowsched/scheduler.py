"""The scheduler: events in, deltas out.

>>> from flowsched.cluster.events import JobSubmitted, MachineAdded
>>> from flowsched.cluster import Task
>>> sched = Scheduler(resources=("cpu", "mem"))
>>> _ = sched.apply(MachineAdded("m1", {"cpu": 4, "mem": 16}), JobSubmitted("web", [Task("web-0", {"cpu": 3}), Task("web-1", {"cpu": 3})]))
>>> rnd = sched.schedule(now=0.0)
>>> dict(rnd.placements)
{'web-0': 'm1'}
>>> rnd.waiting["web-1"].code.value, rnd.waiting["web-1"].detail
('OUTBID', {'4 cpu, 16 mem': {'cpu': 1}})
>>> len(sched.commit(rnd).accepted)
1

An `Engine` makes and applies decisions.  `Durable` has the public calls: it guards each one, meters it, and writes it
into the journal before it returns; a round is written with its commit, or with the next call.  `Scheduler` and adapters
such as `FineGrained` are durables over engines of their own.

Rules of every public call:

* One call at a time, and no signal handler in the middle: see `flowsched._guard`.  During a solve handlers run, and may
  end the round.
* Before or after: a call that raises has made none or all of its changes.  Where neither is possible (memory ended in
  the middle of a change), the state is marked (`Cluster.midway`), the journal is behind, and later calls are refused.
* A round that raises leaves the cluster as it was.  The network that mirrors it is built again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Hashable, Sequence
from functools import partial
from types import FunctionType
from typing import Any, Generic, NoReturn, Self, TypeVar
from weakref import WeakSet

from flowsched._guard import Exclusive
from flowsched.boundary.validate import LARGEST_FLOAT, ids, instance, number, quoted, seconds, truth, whole
from flowsched.builder.builder import Builder
from flowsched.cluster import Cluster, Resources
from flowsched.cluster.events import EndedRun, Event
from flowsched.exceptions import InputError
from flowsched.journal.engine import Engine, adapter_of, header_of
from flowsched.journal.export import lines, written
from flowsched.journal.journal import Journal
from flowsched.journal.records import Checkpoint, Header
from flowsched.journal.rerun import Recovery, attach, imported, policy_of, restored
from flowsched.journal.snapshot import clone, pack
from flowsched.journal.store import serialized
from flowsched.network.flow_network import FlowNetwork
from flowsched.policy import Policy
from flowsched.policy.scale import BeyondScale
from flowsched.policy.serialize import describe, parts, rebuild
from flowsched.rounds.engine import RoundEngine
from flowsched.rounds.meter import Meter, Metrics, RoundHook
from flowsched.rounds.values import Commit, Reason, Round

__all__ = ["Durable", "JournalOrPath", "Scheduler", "replay"]

JournalOrPath = Journal | str | os.PathLike[str]

E = TypeVar("E", bound=Engine)


class Durable(Generic[E]):
    """An engine whose calls are guarded and written down.

    Parameters
    ----------
    engine : Engine
        Its own from now on.
    journal : Journal or path, optional
        See `Scheduler`.

    Attributes
    ----------
    engine : Engine
        Decides without guard and journal; for adapters.
    journal : Journal or None
    recovery : Recovery or None
        The result of reading the journal, or of `restore`.
    on_round : list of callable
        See `Scheduler`.
    """

    _kind = "Scheduler"
    """Name in the headers of files."""

    def __init__(self, engine: E, journal: JournalOrPath | None = None) -> None:
        self.engine = engine
        self.journal: Journal | None = None
        self.recovery: Recovery | None = None
        self._aborted: WeakSet[Round] | None = None  # until the first one
        self._calls = Exclusive(type(self).__name__)
        self._meter = Meter()
        self.on_round: list[RoundHook] = []
        if journal is not None:
            opened = journal if isinstance(journal, Journal) else Journal(journal)
            self.recovery = attach(self, opened)
            self.journal = opened
            adapter_of(engine).keep(opened)

    def __copy__(self) -> Self:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise InputError(f"a {type(self).__name__} cannot be pickled; use snapshot and restore")

    @property
    def cluster(self) -> Cluster:
        """Machines, jobs, tasks, users and placements."""
        return self.engine.cluster

    # -- calls that are written down ----------------------------------------------------------------------------

    @property
    def policy(self) -> Policy:
        """The policy of the next round; may be replaced at any time."""
        return self.engine.policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        _policy(policy)
        with self._calls:
            self._check_ready()
            if self.journal is None:
                self.engine.policy = policy
            else:
                self.journal.policy(policy, partial(setattr, self.engine, "policy"))

    def apply(self, *events: Event, atomic: bool = False) -> tuple[EndedRun, ...]:
        """Apply events, all or none of them if `atomic`, and return the runs that they ended; see `Cluster.apply`."""
        with self._calls:
            if self.journal is None and not atomic:
                return self.engine.apply_batch(events)
            act = partial(_apply_atomically, self.engine.cluster) if atomic else self.engine.apply_batch
            if self.journal is None:
                return act(events)
            self._check_ready()
            return self.journal.events(events, act, self.engine.cluster, atomic)

    def schedule(self, now: float, time_limit: float | None = None) -> Round:
        """Decide a round without applying it.

        The changes go to the network, the network is re-optimised from its last optimum, and the placements of its flow are
        checked machine by machine.  While some do not fit, the network is restricted accordingly and re-optimised.

        Parameters
        ----------
        now : float
            The time, in the unit of the events.
        time_limit : float, optional
            Seconds of computing; tasks that could still start then wait, code `TIME_LIMIT`.
        """
        if type(now) is not float or not -LARGEST_FLOAT <= now <= LARGEST_FLOAT:
            now = number("now", now)
        if time_limit is not None:
            time_limit = seconds("time_limit", time_limit, finite=False)  # NumPy's short floats are no clock
        while True:
            try:
                with self._calls:
                    journal, start = self.journal, time.perf_counter()
                    if journal is not None or self.engine.cluster.midway:
                        self._check_ready()
                    try:
                        if journal is None:
                            round, _ = self.engine.decide(now, time_limit)
                        else:
                            round = journal.round(now, time_limit, self.engine.decide)
                    except BaseException:
                        self._meter.failed += 1
                        raise
                    seconds_journal = 0.0 if journal is None else journal.seconds
                    self._meter.round(round, time.perf_counter() - start, seconds_journal)
                    if self.on_round:
                        self._meter.call(tuple(self.on_round), round)
                    return round
            except BeyondScale as found:
                self.policy = found.policy  # the same goals on a larger scale

    def commit(self, round: Round, only: Collection[Hashable] | None = None) -> Commit:
        """Apply a round, except deltas that events have overtaken.

        A task that starts and those that make room for it belong together: all of them or none.

        Parameters
        ----------
        only : collection of task ids, optional
            Tasks that start; others are left for later.

        Returns
        -------
        Commit
            Committing the same round again gives conflicts only.
        """
        if type(round) is not Round:
            instance("round", round, Round)
        if self._aborted is not None and round in self._aborted:
            raise InputError("round: it was aborted")
        only = None if only is None else ids("only", only)
        with self._calls:
            if self.journal is not None or self.engine.cluster.midway:
                self._check_ready()
            if self.journal is None:
                return self._carry_out(round, only)
            return self.journal.commit(round, only, self._carry_out)

    def _carry_out(self, round: Round, only: Collection[Hashable] | None) -> Commit:
        cluster = self.engine.cluster
        cluster.midway = True
        done = self.engine.carry_out(round, only)
        cluster.midway = False
        self._meter.commit(round, done)
        return done

    def abort(self, round: Round) -> None:
        """Forget a round: it can no longer be committed.  Nothing of it was applied."""
        instance("round", round, Round)
        self._abort(round)

    def _abort(self, round: Round) -> None:
        self._aborted = WeakSet() if self._aborted is None else self._aborted
        self._aborted.add(round)

    def _check_ready(self) -> None:
        """Refuse a call in the middle of a change, and one that belongs to an adapter: its journal would lack the call."""
        cluster = self.engine.cluster
        if cluster.midway:
            cluster.check_whole()
        if self.journal is not None and not self._decides_what_fits():
            raise InputError(
                "journal: a fit rule decides here: its adapter keeps the journal, and has to be told instead"
            )

    def _decides_what_fits(self) -> bool:
        adapter = self.engine.adapter
        return self.engine.cluster.inventory.rule is (None if adapter is None else adapter.rule)

    def metrics(self) -> Metrics:
        """Return counters and gauges by name: the numbers of `flowsched.metrics.METRICS`.

        They count since the object was made.  Any thread may ask at any time, also during a call.

        Returns
        -------
        dict of str to number, or to dict of str to number
            The inner one is by label.  A histogram has counts by upper bound, and the sum under "sum".  Times are in
            seconds of the wall clock.
        """
        journal = self.journal
        seconds, size = (0.0, 0) if journal is None else (journal.seconds, journal.size)
        return self._meter.metrics(self.engine.cluster, seconds, size)

    # -- copies and questions -----------------------------------------------------------------------------------

    def copy(self) -> Self:
        """Return a copy in the same state, without journal: given the same calls, both make the same rounds."""
        with self._calls:
            engine = self._cloned()
        other = type(self).__new__(type(self))
        vars(other).update(vars(self))
        Durable.__init__(other, engine)
        return other

    def _cloned(self) -> E:
        engine = self.engine
        state, other = engine.state(), engine.fresh()
        adapter = adapter_of(other)
        policy = rebuild(describe(engine.policy), adapter.makers, parts(engine.policy)) if adapter.makers else None
        other.replace_state(clone(state, policy, adapter.extras))
        return other

    def what_if(self, *events: Event, now: float) -> Round:
        """Return the round that `schedule` would make if these events happened.

        The round is made by a `copy`, so this scheduler does not change.  A copy costs about 15 microseconds for each
        task, and more than that for each class and machine; for several rounds, make one copy and use that.

        Returns
        -------
        Round
            It cannot be committed.
        """
        asked = self.copy()
        asked.apply(*events)
        round = asked.schedule(now)
        self._abort(round)
        return round

    # -- state that survives ------------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """Return the whole state with flow and potentials, for `restore`.

        Only the version that wrote it reads it (`export` is for all later ones).  A policy is in it by the names and
        settings of its parts, and by the accounts that share providers keep.
        """
        with self._calls:
            extras = adapter_of(self.engine).extras
            row = Checkpoint(extras.form, describe(self.policy), b"", []).row(header_of(self.engine), 0)
            return b"".join(pack(self.engine.state(), extras, row=row.body))

    def journal_bytes(self) -> bytes:
        """Return a journal that begins with the state, as `compact` writes it: every later version goes on from it."""
        with self._calls:
            state, header = self._checkpoint(), header_of(self.engine)
            return serialized(header.resources, [state.row(header, 0)], state.pieces)

    def export(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the state down in lines of JSON that every later version reads; see `flowsched.journal.export`.

        Parameters
        ----------
        path : path
            Compressed if it ends with ``.gz``.
        overwrite : bool
            Replace a file that is there already.

        Raises
        ------
        JournalError
            The file is there already, or cannot be written.
        """
        with self._calls:
            if not self._decides_what_fits():
                raise InputError("a fit rule decides here: its adapter knows more, and has to be asked instead")
            written(self.engine, path, truth("overwrite", overwrite))

    def compact(self, since: float | None = None) -> None:
        """Write the state into the journal: recovery begins there, and rounds not committed yet are lost.

        Another version of the package goes on from it, too, and loses only warmth.

        Parameters
        ----------
        since : float, optional
            Drop the history before the first round at this time or later; by default all of it stays for queries.
        """
        if self.journal is None:
            raise InputError(f"compact: this {type(self).__name__} has no journal")
        if since is not None:
            since = number("since", since)
        with self._calls:
            self._check_ready()
            self.journal.restart(self._checkpoint, self.policy, since)

    def _checkpoint(self) -> Checkpoint:
        """Return the state: lines that every version reads, and a warm image."""
        extras = adapter_of(self.engine).extras
        exported = b"".join(lines(self.engine))
        return Checkpoint(extras.form, describe(self.policy), exported, pack(self.engine.state(), extras))

    # -- from files ---------------------------------------------------------------------------------------------

    @classmethod
    def restore(
        cls, source: bytes | str | os.PathLike[str], policy: Policy | None = None, policies: Sequence[Policy] = ()
    ) -> Self:
        """Return the scheduler of a snapshot or a journal.  Its next round is warm, and equals that of the original.

        Parameters
        ----------
        source : bytes or path
            Result of `snapshot`, a file that contains it, or a journal, which is only read.
        policy : Policy, optional
            The original policy; needed if it has parts of the caller.
        policies : sequence of Policy
            See `Journal`.

        Returns
        -------
        Self
            Without journal; `recovery` reports on the data read.

        Raises
        ------
        JournalError
            Its class gives the kind of the fault, and its message the place.
        """
        made, found = restored(cls._kind, cls._begun, source, policy, policies)
        made.recovery = found
        return made

    @classmethod
    def import_state(
        cls, source: bytes | str | os.PathLike[str], policy: Policy | None = None, policies: Sequence[Policy] = ()
    ) -> Self:
        """Return a scheduler that continues from the result of `export`: machines, tasks, placements, ages, shares and debts.

        Only the warm start is lost.

        Parameters
        ----------
        source : path or bytes
            The file, or its contents.
        policy : Policy, optional
            Policy of the scheduler; its providers get the accounts, so they must be those that kept them.  By default the
            described policy, made again.
        policies : sequence of Policy
            Policies with the caller's own parts.

        Raises
        ------
        JournalError
            Its class gives the kind of the fault, and its message the line.
        """
        return imported(cls._kind, cls._begun, source, policy, policies)

    @classmethod
    def _begun(cls, header: Header, policy: Policy | None, policies: Sequence[Policy], path: str) -> Self:
        """Return a new scheduler with the settings of a file's header."""
        raise NotImplementedError


for _call in vars(Durable).values():
    if isinstance(_call, FunctionType):
        _call.__qualname__ = _call.__name__  # errors of Python name the call, and not a class that users do not see


def _apply_atomically(cluster: Cluster, events: Sequence[Event]) -> tuple[EndedRun, ...]:
    return cluster.apply(*events, atomic=True)


class Scheduler(Durable[RoundEngine]):
    """Cluster scheduler that decides rounds by min-cost flow.

    Parameters
    ----------
    policy : Policy
    resources : sequence of str or Resources
        Resources of machines and tasks; "gpu" is counted device by device.
    seed : int
        For random policies; those of this package are deterministic.
    journal : Journal or path, optional
        Journal of calls and decisions.  If it has contents, the scheduler continues from there; policy, resources
        and seed must be those of its beginning (`JournalMismatchError` names the one that differs).

    Attributes
    ----------
    cluster : Cluster
        Machines, jobs, tasks and users, and the runs of tasks on machines.
    network : FlowNetwork
        Network of the last round's optimisation.
    builder : Builder
        Mirrors the cluster in the network.
    seed : int
    engine : RoundEngine
        Decides without guard and journal; for adapters, see `adopt`.
    journal : Journal or None
    recovery : Recovery or None
        Report on the data read from the journal, or by `restore`.
    on_round : list of callable
        Hooks: each is called with every round, before `schedule` returns it.  It must not call the scheduler, but may
        read `metrics`.  An exception that it raises is logged and counted.  Copies have no hooks.
    """

    def __init__(
        self,
        policy: Policy | None = None,
        resources: Resources | Sequence[str] = ("cpu", "mem", "gpu"),
        seed: int = 0,
        *,
        journal: JournalOrPath | None = None,
    ) -> None:
        policy = _policy(Policy() if policy is None else policy)
        super().__init__(RoundEngine(policy, resources, whole("seed", seed, 0, 2**128 - 1)), journal)

    @property
    def network(self) -> FlowNetwork:
        """Network of the last round's optimisation."""
        return self.engine.network

    @property
    def builder(self) -> Builder:
        """Builder, which mirrors the cluster in the network."""
        return self.engine.builder

    @property
    def seed(self) -> int:
        """Seed of the scheduler."""
        return self.engine.seed

    def explain(self, task: Hashable, machine: Hashable | None = None) -> Reason:
        """Explain why a task waits at present, or why it is not on a given machine.

        Parameters
        ----------
        task : hashable
        machine : hashable, optional

        Returns
        -------
        Reason
            Code `RUNNING` if it runs (there), `PENDING` if there is room: the next round decides.  `SHARE` if there is
            room, but its job or user was at its share in the last round; likewise `GANG_SHORT`.
            `QUOTA` if the rest of its user's or job's quota is too small for it now.
        """
        with self._calls:
            return self.engine.explain(task, machine)

    # -- adapters -----------------------------------------------------------------------------------------------

    def adopt(self, journal: Journal | None = None) -> RoundEngine:
        """Hand the engine over to an adapter, which decides on room and gets all calls instead.

        Parameters
        ----------
        journal : Journal, optional
            Journal of the adapter.  With one, this scheduler refuses every later call, since the journal would lack it.

        Raises
        ------
        InputError
            The scheduler has tasks, a journal, or an adapter already.
        """
        if self.cluster.tasks or self.cluster.inventory.rule is not None:
            raise InputError("scheduler: one without tasks and without another adapter expected")
        if self.journal is not None:
            raise InputError("scheduler: it has a journal, which has to be given to the adapter instead")
        self.journal = journal
        return self.engine

    def invalidate(self, classes: Collection[int]) -> None:
        """Check every machine again for these classes (by index), since the answers of a fit rule have changed."""
        self.engine.invalidate(classes)

    @classmethod
    def _begun(cls, header: Header, policy: Policy | None, policies: Sequence[Policy], path: str) -> Self:
        first = policy or policy_of(header.policy, policies, path, 0)
        return cls(first, header.cluster_resources, header.seed)


def replay(path: str | os.PathLike[str], policy: Policy | None = None, policies: Sequence[Policy] = ()) -> Recovery:
    """Make all rounds of a journal again, and report those that differ.

    Parameters
    ----------
    path : str or path
        Path of the file, which is only read.
    policy, policies
        See `Scheduler.restore`, which also returns the scheduler.
    """
    recovery = Scheduler.restore(path, policy, policies).recovery
    assert recovery is not None
    return recovery


def _policy(policy: Any) -> Policy:
    """Return a policy; the error for a name shows how to get the policy of that name."""
    if isinstance(policy, str):
        raise InputError(f"policy: a Policy expected, got {quoted(policy)}; Policy.named({quoted(policy)}) returns one")
    return instance("policy", policy, Policy)
