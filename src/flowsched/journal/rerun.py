"""The rows of a journal as calls of a scheduler, and their recorded outcomes.

Rounds are decided again, so that the network is as it was, and the applied deltas are taken from the commits' records.
Where a round comes out otherwise (it had run into its time limit, or another version of the package made it), the record
counts: every task is where it was, and only the network's later choice among equally good flows may differ.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Protocol, TypeVar
from zlib import crc32

from flowsched.boundary.validate import instance
from flowsched.cluster.events import Event, from_dict
from flowsched.exceptions import (
    CorruptJournalError,
    FlowschedError,
    InputError,
    JournalError,
    JournalMismatchError,
    UnknownIdError,
)
from flowsched.journal.codec import as_ids, decode, deltas_of
from flowsched.journal.engine import Engine, adapter_of, header_of
from flowsched.journal.export import opened
from flowsched.journal.import_state import Driven, load, read
from flowsched.journal.journal import Journal
from flowsched.journal.records import Header, Seal
from flowsched.journal.snapshot import unpack, unpack_accounts, with_own_accounts
from flowsched.journal.store import Records, Row, Snapshot, reading
from flowsched.journal.tables import Damaged, Tables
from flowsched.policy import Fairness, Policy
from flowsched.policy.serialize import Makers, describe, difference, parts, rebuild
from flowsched.rounds.values import Commit, Round

__all__ = ["Difference", "Recovery", "Target", "attach", "imported", "policy_of", "read_header", "restored"]

NONSENSE = (AttributeError, ArithmeticError, FlowschedError, LookupError, RecursionError, TypeError, ValueError)
"""Errors that come of data that agrees with its checksum and still makes no sense."""
_T = TypeVar("_T", bound="Target")

Begin = Callable[[Header, Policy | None, Sequence[Policy], str], _T]
"""Makes a new scheduler from a header, the policy given or None, other policies, and the name of the file."""


class Target(Driven, Protocol):
    """A scheduler, or an adapter over one, that is new; it has no journal meanwhile."""

    @property
    def policy(self) -> Policy:
        """The policy of the next round."""
        ...

    @policy.setter
    def policy(self, policy: Policy) -> None: ...

    def apply(self, *events: Event) -> object: ...

    def schedule(self, now: float, time_limit: float | None = None) -> Round: ...

    def commit(self, round: Round, only: Collection[Hashable] | None = None) -> Commit: ...


@dataclass(frozen=True)
class Difference:
    """A repeated round that differs from the recorded one.

    Parameters
    ----------
    round : int
        Its number in the journal.
    record : int
        Number of its record.
    what : tuple of str
        The fields of the two seals that differ; first "time limit" where the round had run into one.
    then, now : Seal
    """

    round: int
    record: int
    what: tuple[str, ...]
    then: Seal
    now: Seal


@dataclass
class Recovery:
    """The contents of a journal.

    Parameters
    ----------
    header : Header
    path : str
    events : dict of str to int
        Number by kind.
    rounds, commits, policies : int
        Numbers; rounds that raised an error are among them.
    preempted, migrated, placed : int
        Numbers of such deltas.
    snapshot, warm : bool
        The journal begins with a state; and the network with its flow was read from it, too.
    differences : list of Difference
    records : int
        Calls that were read.
    seconds : float
        Duration of the recovery.
    """

    header: Header
    path: str
    events: dict[str, int] = field(default_factory=dict)
    rounds: int = 0
    commits: int = 0
    policies: int = 0
    preempted: int = 0
    migrated: int = 0
    placed: int = 0
    snapshot: bool = False
    warm: bool = False
    differences: list[Difference] = field(default_factory=list)
    records: int = 0
    seconds: float = 0.0


def policy_of(
    description: Any, given: Sequence[Policy], path: str, record: int, makers: Makers = MappingProxyType({})
) -> Policy:
    """Return the policy that was described: one of those given, or made again with parts of those given."""
    for policy in given:
        if describe(policy) == description:
            return policy
    try:
        policy = rebuild(description, makers, parts(given))
    except UnknownIdError as error:
        raise JournalMismatchError(
            f"the policy has a part of the caller's own, {error}, and none of the policies given has it"
            + (f": {difference(description, describe(given[0]))}" if given else ""), path, record,
        ) from None  # fmt: skip
    except NONSENSE as error:
        raise JournalMismatchError(f"a policy that cannot be: {error}", path, record) from error
    if not isinstance(policy, Policy):
        raise JournalMismatchError("a policy expected", path, record)
    return policy


def accounts_of(image: bytes | None, engine: Engine, path: str, record: int, policy: Policy | None = None) -> Any:
    """Give a row's accounts to the providers of a policy; return the adapter's state, None without one."""
    try:
        return unpack_accounts(image, policy or engine.policy, adapter_of(engine).extras) if image else None
    except InputError as error:
        raise JournalMismatchError(f"accounts: {error}", path, record) from error


class Rerun:
    """One recovery: makes calls of a new scheduler, row by row.

    The target is as new, made after the journal's header; `found` counts the events and rounds.  `policies` are those
    with parts of the caller's own.  `last` has, by number of a round, the number of the row of its last commit;
    `fairnesses` has the fairness objects by their numbers in the journal.
    """

    def __init__(
        self,
        target: Target,
        found: Recovery,
        policies: Sequence[Policy],
        last: dict[int, int],
        state: Callable[[], bytes | memoryview],
    ) -> None:
        self.target = target
        self._engine = target.engine
        self.found = found
        self.policies = policies
        self.fairnesses: dict[int, Fairness] = {}
        self._last = last
        self._checkpoint = state
        self._open: dict[int, tuple[Round, bool]] = {}
        self._steps: dict[str, Callable[[int, Row], None]] = {
            "begin": self._begin, "events": self._events, "round": self._round, "commit": self._commit,
            "policy": self._policy, "state": self._state, "adapter": self._adapter, "service": lambda *_: None,
        }  # fmt: skip
        self._note(target.policy)

    def step(self, record: int, row: Row) -> None:
        """Go on by one row."""
        step = self._steps.get(row.kind)
        if step is None:
            raise JournalMismatchError(f"a call of unknown kind {row.kind!r}", self.found.path, record)
        step(record, row)
        self.found.records += 1

    def _decoded(self, row: Row, record: int, *kinds: Any) -> Any:
        """Return the values of a row, which is a list of such kinds."""
        values = decode(row.body, self.found.path, record)
        if kinds:
            right = isinstance(values, list) and len(values) == len(kinds)
            if not (
                right
                and all(isinstance(v, kind) and not isinstance(v, bool) for v, kind in zip(values, kinds, strict=True))
            ):
                raise self._mismatch("a record that means nothing", record)
        return values

    def _begin(self, record: int, row: Row) -> None:
        known = accounts_of(row.image, self._engine, self.found.path, record)
        if known is not None:
            try:
                adapter_of(self._engine).warm_state = known
            except NONSENSE as error:
                raise self._mismatch(f"what the adapter had learnt: {error}", record) from error

    def _mismatch(self, what: str, record: int) -> JournalMismatchError:
        return JournalMismatchError(what, self.found.path, record)

    def _events(self, record: int, row: Row) -> None:
        values = self._decoded(row, record)
        try:
            events = [from_dict(value) for value in values]
        except NONSENSE as error:
            raise self._mismatch(f"a record that is no event: {error}", record) from error
        try:
            self.target.apply(*events)
        except FlowschedError as error:
            raise self._mismatch(f"an event that cannot happen here: {error}", record) from error
        for event in events:
            kind = type(event).__name__
            self.found.events[kind] = self.found.events.get(kind, 0) + 1

    def _round(self, record: int, row: Row) -> None:
        number, now, limit, seal = self._decoded(row, record, int, int | float, int | float | None, list | None)
        self.found.rounds += 1
        if seal is None:
            self._engine.fail_round(now)
            return
        if len(seal) != len(fields(Seal)) or not all(type(value) is int for value in seal):
            raise self._mismatch("a round without a seal", record)
        try:
            round = self.target.schedule(now, limit)
        except InputError as error:
            raise self._mismatch(f"a round that cannot be made: {error}", record) from error
        then, again = Seal(*seal), Seal.of(round)
        what = tuple(f.name for f in fields(Seal) if getattr(then, f.name) != getattr(again, f.name))
        if what:
            what = ("time limit", *what) if limit is not None else what
            self.found.differences.append(Difference(number, record, what, then, again))
        if number in self._last:
            self._open[number] = round, not what

    def _commit(self, record: int, row: Row) -> None:
        number, only, told, _ = self._decoded(row, record, int, list | None, list, int | None)
        if number not in self._open:
            raise self._mismatch("a commit of a round that was not made", record)
        round, same = self._open[number]
        try:
            deltas = deltas_of(told)
            if same:
                happened = self.target.commit(round, as_ids(only)).accepted == deltas
            else:
                happened = self._engine.impose(deltas, round)
        except NONSENSE as error:
            raise self._mismatch(f"a commit that cannot be: {error}", record) from error
        if not happened:
            raise self._mismatch("what was committed cannot happen here", record)
        if self._last[number] == record:
            del self._open[number]
        self.found.commits += 1
        kinds = Counter(letter for letter, *_ in told)
        self.found.preempted += kinds["p"]
        self.found.migrated += kinds["m"]
        self.found.placed += kinds["s"]

    def _adapter(self, record: int, row: Row) -> None:
        try:
            adapter_of(self._engine).replay_record(as_ids(self._decoded(row, record)))
        except NONSENSE as error:
            raise self._mismatch(f"something that the adapter does not understand: {error}", record) from error

    def _policy(self, record: int, row: Row) -> None:
        description, number = self._decoded(row, record, object, int | None)
        policy = policy_of(description, self.policies, self.found.path, record, adapter_of(self._engine).makers)
        if number in self.fairnesses:
            if policy.fairness is not self.fairnesses[number]:
                policy = replace(policy, fairness=self.fairnesses[number])
        elif any(policy.fairness is fairness for fairness in self.fairnesses.values()):
            policy = with_own_accounts(policy)
        self._note(policy)
        accounts_of(row.image, self._engine, self.found.path, record, policy)
        try:
            self.target.policy = policy
        except NONSENSE as error:
            raise self._mismatch(f"a policy that cannot be: {error}", record) from error
        self.found.policies += 1

    def _note(self, policy: Policy) -> None:
        """Number the fairness objects as the journal did."""
        fairness = policy.fairness
        if fairness is not None and not any(fairness is known for known in self.fairnesses.values()):
            self.fairnesses[len(self.fairnesses)] = fairness

    def _state(self, record: int, row: Row) -> None:
        _, made, description, length, chain, _ = self._decoded(row, record, dict, int, object, int, int, int)
        state = memoryview(self._checkpoint())
        if not 0 <= length <= len(state) or crc32(state[:length]) != chain:
            raise CorruptJournalError("the checkpoint does not agree with its checksum", self.found.path, record)
        if made != adapter_of(self._engine).extras.form and not length:
            raise self._mismatch(
                f"a state in a form that only flowsched {self.found.header.version} reads, as it was then", record
            )
        policy = policy_of(description, self.policies, self.found.path, record, adapter_of(self._engine).makers)
        try:
            self.found.warm = self._warm(state[length:], made, policy, bool(length))
            if not self.found.warm:
                load(self._engine, bytes(state[:length]).splitlines(keepends=True), policy, self.found.path, record)
        except Damaged as error:
            raise CorruptJournalError(f"the checkpoint is damaged: {error}", self.found.path, record) from None
        except JournalError:
            raise
        except NONSENSE as error:
            raise self._mismatch(f"the state cannot be read: {error}", record) from error
        self.found.snapshot = True
        self.fairnesses.clear()
        self._note(policy)

    def _warm(self, image: memoryview, form: int, policy: Policy, spare: bool) -> bool:
        """Take the image, which is a cache: False if it has another form, or fails and lines can replace it."""
        try:
            tables = Tables.read(image) if image else Tables()
            adapter = adapter_of(self._engine)
            if form != adapter.extras.form:
                return False
            state = unpack(tables, policy, adapter.extras)
            adapter.check_state(state)
            self._engine.replace_state(state, cached=True)
        except Damaged:
            raise
        except NONSENSE:
            if not spare:
                raise
            return False
        return True


def restored(
    name: str,
    begin: Begin[_T],
    source: bytes | str | os.PathLike[str],
    policy: Policy | None,
    policies: Sequence[Policy],
) -> tuple[_T, Recovery]:
    """Make a scheduler, or an adapter of this name, from a snapshot or a journal; see `Scheduler.restore`."""
    if not isinstance(source, bytes | str | os.PathLike):
        raise InputError(f"source: a snapshot (bytes) or the path of a file expected, got {source!r}")
    path = "" if isinstance(source, bytes) else os.fspath(source)
    with reading(source) as records:
        header = read_header(records, path)
        if header.of != name:
            raise JournalMismatchError(f"it is of a {header.of}, and is read by a {name} here", path, records.n)
        given = () if policy is None else (instance("policy", policy, Policy),)
        try:
            made = begin(header, policy, policies, path)
        except NONSENSE as error:
            if isinstance(error, JournalError):
                raise
            raise JournalMismatchError(f"it was begun with what cannot be: {error}", path, records.n) from error
        header_of(made.engine).check(header, path, records.n)
        found, _ = recover(made, records, path, (*given, *policies))
    return made, found


def imported(
    name: str,
    begin: Begin[_T],
    source: bytes | str | os.PathLike[str],
    policy: Policy | None,
    policies: Sequence[Policy],
) -> _T:
    """Make a scheduler, or an adapter of this name, from an export; see `Scheduler.import_state`."""
    if not isinstance(source, bytes | str | os.PathLike):
        raise InputError(f"source: the path of a file, or what is in it (bytes), expected, got {source!r}")
    given = () if policy is None else (instance("policy", policy, Policy),)
    path = "" if isinstance(source, bytes) else os.fspath(source)

    def made(header: Header) -> _T:
        if header.of != name:
            raise JournalMismatchError(f"it is of a {header.of}, and is read by a {name} here", path)
        return begin(header, policy, (*given, *policies), path)

    with opened(source) as file:
        return read(made, file, path)


def read_header(records: Records | Snapshot, path: str) -> Header:
    """Return the header of a journal or snapshot."""
    for record, row in records:
        if row.kind == "begin":
            return Header.read(row.body, path, record)
        known = decode(row.body, path, record)
        if row.kind == "state" and isinstance(known, list) and known:
            return Header.made(known[0], path, record)
        break
    raise JournalMismatchError("nothing is in it" if not records.n else "it has no beginning", path, records.n)


def attach(target: Target, journal: Journal) -> Recovery | None:
    """Continue a journal with a new scheduler; return the recovery of its contents, None where it is new."""
    header = header_of(target.engine)
    try:
        if journal.store.new:
            adapter = adapter_of(target.engine)
            journal.begin(header, target.policy, adapter.warm_state, adapter.extras)
            return None
        path, records = str(journal.path), journal.store.records()
        header.check(read_header(records, path), path, records.n)
        found, fairnesses = recover(target, records, path, journal.policies)
        journal.go_on(records, found.header, found.rounds, fairnesses, found.seconds)
    except BaseException:
        if not journal.closed:  # closing one that is not open would open it, and fail in place of the first error
            journal.close()
        raise
    return found


def recover(
    target: Target, records: Records | Snapshot, path: str, policies: Sequence[Policy] = ()
) -> tuple[Recovery, dict[int, Fairness]]:
    """Bring a new scheduler to the state that a journal ends with; return the fairness objects by number, too.

    The target is made as the journal's header says; `path` is for error messages, and `policies` are those with parts
    of the caller's own.
    """
    start = time.perf_counter()
    last = _last_commits(records, path)
    header = read_header(records, path)
    rerun = Rerun(target, Recovery(header, path), (target.policy, *policies), last, records.checkpoint)
    for record, row in records:
        rerun.step(record, row)
    found = rerun.found
    found.seconds = time.perf_counter() - start
    return found, rerun.fairnesses


def _last_commits(records: Records | Snapshot, path: str) -> dict[int, int]:
    """Return by round the row of its last commit; all checksums have been checked then, before anything is made."""
    last: dict[int, int] = {}
    for record, row in records:
        if row.kind == "commit":
            try:
                last[int(row.body[1 : row.body.index(",")])] = record
            except ValueError:
                raise JournalMismatchError("a commit of no round", path, record) from None
    return last
