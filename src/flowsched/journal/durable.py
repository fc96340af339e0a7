"""A scheduler's life, written down, copied and taken up again: journal, snapshots, copies, questions.

What happens to the state is said by whoever has one: the scheduler, or an adapter over it that is told everything in its
stead.  Here is what both have in common: whatever they are told is done in memory, written down, and only then answered.

Rules of every public call:

* One at a time, and no signal handler in the middle: see `_guard`.  Within a solve handlers run, and may end the round.
* Before or after: a call that raises has changed nothing, or all that it had to.  If neither can be had (out of memory in the
  middle of a change), the state is marked (`Cluster.midway`), the journal fails, and later calls are refused by name.
* A round that raises leaves the cluster as it was, and nothing of what mirrors it: the network is built anew.
"""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NoReturn, Self
from weakref import WeakSet

from flowsched._guard import Exclusive
from flowsched.cluster import Cluster
from flowsched.cluster.events import Event
from flowsched.cluster.limits import Limit
from flowsched.cluster.records import TaskClass
from flowsched.exceptions import InputError, JournalError, JournalMismatchError
from flowsched.journal.codec import as_ids, encode, plain
from flowsched.journal.export import lines, opened, read, written
from flowsched.journal.journal import Header, Journal
from flowsched.journal.record_log import MAGIC, framed, reading
from flowsched.journal.recovery import NONSENSE, Recovery, attach, policy_of, read_header, recover
from flowsched.journal.snapshot import PLAIN, Extras, State, pack, twin, unpack
from flowsched.policy import Policy
from flowsched.policy.serialize import Makers, describe
from flowsched.rounds.values import Commit, Delta, Round
from flowsched.validate import ids, number, quoted, truth
from flowsched.version import __version__

__all__ = [
    "Extras",
    "Header",
    "JournalOrPath",
    "Kept",
    "State",
    "as_ids",
    "checked",
    "plain",
    "policy_of",
    "twin",
    "unpack",
]

JournalOrPath = Journal | str | os.PathLike[str]


class Kept(ABC):
    """Someone who decides which task runs where, and whose life can be kept.

    Attributes
    ----------
    cluster : Cluster
        What is.
    journal : Journal or None
    recovery : Recovery or None
        What it was recovered from.
    """

    cluster: Cluster
    _of: ClassVar[str]
    _extras: ClassVar[Extras] = PLAIN
    _rule: Limit | None = None

    def __init__(self) -> None:
        self.journal: Journal | None = None
        self.recovery: Recovery | None = None
        self._aborted: WeakSet[Round] = WeakSet()
        self._calls = Exclusive(type(self).__name__)

    def __copy__(self) -> Self:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise InputError(f"a {type(self).__name__} cannot be pickled; use snapshot and restore")

    # -- told ---------------------------------------------------------------------------------------------------

    @property
    def policy(self) -> Policy:
        """What is aimed at; may be replaced at any time."""
        return self._aim()

    @policy.setter
    def policy(self, policy: Policy) -> None:
        checked(policy)
        with self._calls:
            self._ready()
            if self.journal is None:
                self._aim_at(policy)
            else:
                self.journal.policy(policy, self._aim_at)

    def apply(self, *events: Event) -> None:
        """Tell what happened; see `Cluster.apply`."""
        with self._calls:
            self._apply(events)

    def _apply(self, events: Sequence[Event]) -> None:
        self._ready()
        if self.journal is None:
            self._live(events, self._happen)
        else:
            self.journal.events(events, self._live, self._happen, self.cluster)

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
            raise InputError(f"time_limit: a positive number of seconds expected, got {quoted(time_limit)}")
        with self._calls:
            self._ready()
            if self.journal is None:
                return self._decide(now, time_limit)[0]
            return self.journal.round(now, time_limit, self._decide)

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
        with self._calls:
            self._ready()
            if self.journal is None:
                return self._committed(round, only)
            return self.journal.commit(round, only, self._committed)

    def _committed(self, round: Round, only: Collection[Hashable] | None) -> Commit:
        self.cluster.midway = True
        done = self._carry_out(round, only)
        self.cluster.midway = False
        return done

    def abort(self, round: Round) -> None:
        """Forget a round: it can no longer be committed.  Nothing of it had happened."""
        if not isinstance(round, Round):
            raise InputError(f"round: a Round expected, got {round!r}")
        self._aborted.add(round)

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
        with self._calls:
            twin = self._copy()
        twin.apply(*events)
        round = twin.schedule(now)
        self._aborted.add(round)
        return round

    # -- state that survives ------------------------------------------------------------------------------------

    def copy(self) -> Self:
        """One in the same state, without journal: given the same, both make the same rounds from now on."""
        with self._calls:
            return self._copy()

    def snapshot(self) -> bytes:
        """The whole state with flow and potentials, for `restore`; written to a file, it may also begin a journal.

        Only the version that wrote it reads it (`export` is for all later ones).  A policy is in it by the names and settings of its parts, and by the accounts that share providers keep.
        """
        with self._calls:
            return MAGIC + framed((self._header().body(), self._state_record(portable=False)))[0]

    def journal_bytes(self) -> bytes:
        """A journal that begins with the state, as `compact` writes it: every later version goes on from it."""
        with self._calls:
            return MAGIC + framed((self._header().body(), self._state_record()))[0]

    @classmethod
    def restore(
        cls, source: bytes | str | os.PathLike[str], policy: Policy | None = None, policies: Sequence[Policy] = ()
    ) -> Self:
        """The one that a snapshot or a journal tells of.  Its next round is warm, and the one that would have come.

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
        Scheduler or adapter
            Without journal; `recovery` tells what was read.

        Raises
        ------
        JournalError
            Which of its kinds says what is wrong, and where.
        """
        if not isinstance(source, bytes | str | os.PathLike):
            raise InputError(f"source: a snapshot (bytes) or the path of a file expected, got {source!r}")
        name = "" if isinstance(source, bytes) else os.fspath(source)
        with io.BytesIO(source) if isinstance(source, bytes) else reading(source) as file:
            header = read_header(file, name)
            if header.of != cls._of:
                raise JournalMismatchError(f"it is of a {header.of}, and is read by a {cls._of} here", name, 0)
            given = () if policy is None else (checked(policy),)
            try:
                sched = cls._as_begun(header, policy, policies, name)
            except NONSENSE as error:
                if isinstance(error, JournalError):
                    raise
                raise JournalMismatchError(f"it was begun with what cannot be: {error}", name, 0) from error
            sched._header().check(header, name)
            file.seek(0)
            sched.recovery, *_ = recover(sched, file, name, (*given, *policies))
        return sched

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
            self._check_rule()
            written(self, path, truth("overwrite", overwrite))

    @classmethod
    def import_state(
        cls,
        source: bytes | str | os.PathLike[str],
        policy: Policy | None = None,
        policies: Sequence[Policy] = (),
    ) -> Self:
        """One that goes on with what `export` wrote: machines, tasks, placements, ages, shares and debts; only warmth is lost.

        Parameters
        ----------
        source : path or bytes
            The file, or what is in it.
        policy : Policy, optional
            The one to go by; its providers get the accounts, so they must be those that kept them.  By default the one that
            is described, made again.
        policies : sequence of Policy
            Where to find parts of the caller's own.

        Returns
        -------
        Scheduler or adapter

        Raises
        ------
        JournalError
            Which of its kinds says what is wrong; the message names the line.
        """
        if not isinstance(source, bytes | str | os.PathLike):
            raise InputError(f"source: the path of a file, or what is in it (bytes), expected, got {source!r}")
        given = () if policy is None else (checked(policy),)
        name = "" if isinstance(source, bytes) else os.fspath(source)
        with opened(source) as file:
            return read(lambda header: cls._as_told(header, policy, (*given, *policies), name), file, name)

    def compact(self) -> None:
        """Start the journal anew with the state in front: atomically, and without those rounds not committed yet.

        Another version of the package goes on from it, too; only warmth is lost then.
        """
        if self.journal is None:
            raise InputError(f"compact: this {type(self).__name__} has no journal")
        with self._calls:
            self._ready()
            self.journal.restart(self._state_record, self.policy)

    def _open(self, journal: JournalOrPath) -> None:
        """Go on where a journal ends; the last step of making one."""
        journal = journal if isinstance(journal, Journal) else Journal(journal)
        self.recovery = attach(self, journal, self._header())
        self.journal = journal

    def _header(self) -> Header:
        resources = self.cluster.resources
        return Header(
            __version__, resources.names, resources.device, self._seed, describe(self.policy), self._description()
        )

    def _check_rule(self) -> None:
        """Refuse to be written down without what somebody else knows."""
        if self.cluster.inventory.rule is not self._rule:
            raise InputError("a fit rule decides here: its adapter knows more, and has to be asked instead")

    def _state_record(self, portable: bool = True) -> bytes:
        """The state as lines that every version reads, if asked for, and as an image beside them, which keeps it warm."""
        told = b"".join(lines(self)) if portable else b""
        front = encode([self._extras.form, describe(self.policy), len(told)])
        return b"".join((b"S", front, b"\n", told, pack(self._state(), self._extras)))

    def _load(self, image: bytes, policy: Policy) -> None:
        """Be what the image says; for `recover`."""
        self._take(unpack(image, policy, self._extras))

    def _ready(self) -> None:
        """Refuse what would go by half a change, and what an adapter has to be told instead, or the journal would lack it."""
        self.cluster.check_whole()
        if self.journal is not None and self.cluster.inventory.rule is not self._rule:
            raise InputError(
                "journal: a fit rule decides here: its adapter keeps the journal, and has to be told instead"
            )

    # -- what is done, without writing it down ------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def _as_begun(cls, header: Header, policy: Policy | None, policies: Sequence[Policy], path: str) -> Self:
        """A new one as it was when it was begun so; see `restore`."""

    @classmethod
    def _as_told(cls, header: Header, policy: Policy | None, policies: Sequence[Policy], path: str) -> Self:
        """As `_as_begun`, if it was one of these."""
        if header.of != cls._of:
            raise JournalMismatchError(f"it is of a {header.of}, and is read by a {cls._of} here", path)
        return cls._as_begun(header, policy, policies, path)

    @property
    @abstractmethod
    def _seed(self) -> int: ...

    @abstractmethod
    def _aim(self) -> Policy:
        """What is aimed at."""

    @abstractmethod
    def _aim_at(self, policy: Policy) -> None:
        """Aim at something else."""

    @abstractmethod
    def _live(self, events: Sequence[Event], happen: Callable[[Event], None]) -> None:
        """Live through events; each happens by a call of `happen`."""

    @property
    @abstractmethod
    def _happen(self) -> Callable[[Event], None]:
        """What makes an event happen."""

    @abstractmethod
    def _decide(self, now: float, time_limit: float | None) -> tuple[Round, bool]:
        """A round, and whether time has had a part in it."""

    @abstractmethod
    def _carry_out(self, round: Round, only: Collection[Hashable] | None) -> Commit:
        """See `commit`."""

    @abstractmethod
    def _impose(self, deltas: Sequence[Delta], round: Round) -> bool:
        """Let deltas happen that did happen after this round, whatever it says; False if they cannot.  For `recover`."""

    @abstractmethod
    def _copy(self) -> Self:
        """See `copy`."""

    @abstractmethod
    def _fail(self, now: float) -> None:
        """Be as after a round that raised an error.  For `recover`."""

    @abstractmethod
    def _state(self) -> State:
        """What is to be copied."""

    @abstractmethod
    def _take(self, state: State) -> None:
        """Have this state instead."""

    def _blank(self) -> Cluster:
        """An empty cluster like this one's."""
        return Cluster(self.cluster.resources)

    # -- an adapter's own ---------------------------------------------------------------------------------------

    def _description(self) -> Any:
        """An adapter's settings, see `describe`."""
        return None

    @property
    def _makers(self) -> Makers:
        """How to make parts of policies that are an adapter's."""
        return {}

    @property
    def _learnt(self) -> Any:
        """What an adapter knows before anything happens; to be written down."""
        return None

    def _learnt_lines(self, classes: Mapping[int, int]) -> Iterator[dict[str, Any]]:
        """What an adapter has learnt, in lines of `flowsched.journal.export`; classes by index, as they are called there."""
        return iter(())

    def _learn_lines(
        self, cluster: Cluster, classes: Mapping[int, TaskClass], learnt: Sequence[dict[str, Any]]
    ) -> None:
        """Let the rule of a rebuilt cluster know what an adapter had learnt; whatever is nonsense may raise anything."""
        if learnt:
            raise InputError(f"{self._of} learns nothing")

    def _relearn(self, learnt: Any) -> None:
        """Know this, and nothing else."""
        raise NotImplementedError

    def _hear(self, words: Any) -> None:
        """What an adapter had written down by `Journal.heard` happens again."""
        raise NotImplementedError


def checked(policy: Policy) -> Policy:
    """A policy, and nothing else."""
    if not isinstance(policy, Policy):
        raise InputError(f"policy: a Policy expected, got {policy!r}")
    return policy
