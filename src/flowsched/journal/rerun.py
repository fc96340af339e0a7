"""The records of a journal as calls of a scheduler, and their recorded outcomes.

Rounds are decided again, so that the network is as it was, and the applied deltas are taken from the commits' records.
Where a round comes out otherwise (it had run into its time limit, or another version of the package made it), the record
counts: every task is where it was, and only the network's later choice among equally good flows may differ.
"""

from __future__ import annotations

import io
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, BinaryIO, Protocol, TypeVar

from flowsched.boundary.validate import instance
from flowsched.cluster.events import Event, from_dict
from flowsched.exceptions import FlowschedError, InputError, JournalError, JournalMismatchError, UnknownIdError
from flowsched.journal.codec import as_ids, decode, deltas_of
from flowsched.journal.engine import Engine, adapter_of, header_of
from flowsched.journal.export import opened
from flowsched.journal.import_state import Driven, load, read
from flowsched.journal.journal import Journal
from flowsched.journal.record_log import Reader, reading
from flowsched.journal.records import Header, Seal
from flowsched.journal.snapshot import unpack, unpack_accounts, with_own_accounts
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
    offset : int
        Offset of its record.
    what : tuple of str
        The fields of the two seals that differ; first "time limit" where the round had run into one.
    then, now : Seal
    """

    round: int
    offset: int
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
    size, torn : int
        Bytes that were read; `torn` more at the end were never acknowledged, and were left out.
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
    size: int = 0
    torn: int = 0
    seconds: float = 0.0


def policy_of(
    description: Any, given: Sequence[Policy], path: str, offset: int, makers: Makers = MappingProxyType({})
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
            + (f": {difference(description, describe(given[0]))}" if given else ""), path, offset,
        ) from None  # fmt: skip
    except NONSENSE as error:
        raise JournalMismatchError(f"a policy that cannot be: {error}", path, offset) from error
    if not isinstance(policy, Policy):
        raise JournalMismatchError("a policy expected", path, offset)
    return policy


def accounts_of(body: bytes, engine: Engine, path: str, offset: int, policy: Policy | None = None) -> Any:
    """Give a record's accounts to the providers of a policy; return the adapter's state, None without one."""
    _, _, accounts = body.partition(b"\n")
    try:
        return unpack_accounts(accounts, policy or engine.policy, adapter_of(engine).extras) if accounts else None
    except InputError as error:
        raise JournalMismatchError(f"accounts: {error}", path, offset) from error


class Rerun:
    """One recovery: makes calls of a new scheduler, record by record.

    The target is as new, made after the journal's header; `found` counts the events and rounds.  `policies` are those
    with parts of the caller's own.  `last` has, by number of a round, the offset of its last commit; `fairnesses` has
    the fairness objects by their numbers in the journal.
    """

    def __init__(self, target: Target, found: Recovery, policies: Sequence[Policy], last: dict[int, int]) -> None:
        self.target = target
        self._engine = target.engine
        self.found = found
        self.policies = policies
        self.fairnesses: dict[int, Fairness] = {}
        self._last = last
        self._open: dict[int, tuple[Round, bool]] = {}
        self._steps: dict[bytes, Callable[[int, bytes], None]] = {
            b"E": self._events, b"R": self._round, b"C": self._commit, b"P": self._policy, b"S": self._state,
            b"A": self._adapter,
        }  # fmt: skip
        self._note(target.policy)

    def step(self, offset: int, body: bytes) -> None:
        """Go on by one record."""
        step = self._steps.get(body[:1])
        if step is None:
            raise JournalMismatchError(f"a record of unknown kind {body[:1]!r}", self.found.path, offset)
        step(offset, body if body[:1] == b"S" else body[1:])  # no copy of a state, which may be large

    def _decoded(self, body: bytes, offset: int, *kinds: Any) -> Any:
        """Return the values of a record, which is a list of such kinds."""
        values = decode(body, self.found.path, offset)
        if kinds:
            right = isinstance(values, list) and len(values) == len(kinds)
            if not (
                right
                and all(isinstance(v, kind) and not isinstance(v, bool) for v, kind in zip(values, kinds, strict=True))
            ):
                raise self._mismatch("a record that means nothing", offset)
        return values

    def _mismatch(self, what: str, offset: int) -> JournalMismatchError:
        return JournalMismatchError(what, self.found.path, offset)

    def _events(self, offset: int, body: bytes) -> None:
        records = self._decoded(body, offset)
        try:
            events = [from_dict(record) for record in records]
        except NONSENSE as error:
            raise self._mismatch(f"a record that is no event: {error}", offset) from error
        try:
            self.target.apply(*events)
        except FlowschedError as error:
            raise self._mismatch(f"an event that cannot happen here: {error}", offset) from error
        for event in events:
            kind = type(event).__name__
            self.found.events[kind] = self.found.events.get(kind, 0) + 1

    def _round(self, offset: int, body: bytes) -> None:
        number, now, limit, seal = self._decoded(body, offset, int, int | float, int | float | None, list | None)
        self.found.rounds += 1
        if seal is None:
            self._engine.fail_round(now)
            return
        if len(seal) != len(fields(Seal)) or not all(type(value) is int for value in seal):
            raise self._mismatch("a round without a seal", offset)
        try:
            round = self.target.schedule(now, limit)
        except InputError as error:
            raise self._mismatch(f"a round that cannot be made: {error}", offset) from error
        then, again = Seal(*seal), Seal.of(round)
        what = tuple(f.name for f in fields(Seal) if getattr(then, f.name) != getattr(again, f.name))
        if what:
            what = ("time limit", *what) if limit is not None else what
            self.found.differences.append(Difference(number, offset, what, then, again))
        if number in self._last:
            self._open[number] = round, not what

    def _commit(self, offset: int, body: bytes) -> None:
        number, only, records = self._decoded(body, offset, int, list | None, list)
        if number not in self._open:
            raise self._mismatch("a commit of a round that was not made", offset)
        round, same = self._open[number]
        try:
            deltas = deltas_of(records)
            if same:
                happened = self.target.commit(round, as_ids(only)).accepted == deltas
            else:
                happened = self._engine.impose(deltas, round)
        except NONSENSE as error:
            raise self._mismatch(f"a commit that cannot be: {error}", offset) from error
        if not happened:
            raise self._mismatch("what was committed cannot happen here", offset)
        if self._last[number] == offset:
            del self._open[number]
        self.found.commits += 1
        kinds = Counter(letter for letter, *_ in records)
        self.found.preempted += kinds["p"]
        self.found.migrated += kinds["m"]
        self.found.placed += kinds["s"]

    def _adapter(self, offset: int, body: bytes) -> None:
        try:
            adapter_of(self._engine).replay_record(as_ids(self._decoded(body, offset)))
        except NONSENSE as error:
            raise self._mismatch(f"something that the adapter does not understand: {error}", offset) from error

    def _policy(self, offset: int, body: bytes) -> None:
        description, number = self._decoded(body.partition(b"\n")[0], offset, object, int | None)
        policy = policy_of(description, self.policies, self.found.path, offset, adapter_of(self._engine).makers)
        if number in self.fairnesses:
            if policy.fairness is not self.fairnesses[number]:
                policy = replace(policy, fairness=self.fairnesses[number])
        elif any(policy.fairness is fairness for fairness in self.fairnesses.values()):
            policy = with_own_accounts(policy)
        self._note(policy)
        accounts_of(body, self._engine, self.found.path, offset, policy)
        try:
            self.target.policy = policy
        except NONSENSE as error:
            raise self._mismatch(f"a policy that cannot be: {error}", offset) from error
        self.found.policies += 1

    def _note(self, policy: Policy) -> None:
        """Number the fairness objects as the journal did."""
        fairness = policy.fairness
        if fairness is not None and not any(fairness is known for known in self.fairnesses.values()):
            self.fairnesses[len(self.fairnesses)] = fairness

    def _state(self, offset: int, body: bytes) -> None:
        end = body.find(b"\n") + 1 or len(body)
        rest = memoryview(body)[end:]
        made, description, length = self._decoded(body[1:end], offset, int, object, int)
        if not 0 <= length <= len(rest):
            raise self._mismatch("a state that is longer than its record", offset)
        if made != adapter_of(self._engine).extras.form and not length:
            raise self._mismatch(
                f"a state in a form that only flowsched {self.found.header.version} reads, as it was then", offset
            )
        policy = policy_of(description, self.policies, self.found.path, offset, adapter_of(self._engine).makers)
        try:
            self.found.warm = made == adapter_of(self._engine).extras.form and self._warm(
                rest[length:], policy, bool(length)
            )
            if not self.found.warm:
                load(self._engine, bytes(rest[:length]).splitlines(keepends=True), policy, self.found.path, offset)
        except JournalError:
            raise
        except NONSENSE as error:
            raise self._mismatch(f"the state cannot be read: {error}", offset) from error
        self.found.snapshot = True
        self.fairnesses.clear()
        self._note(policy)

    def _warm(self, image: memoryview, policy: Policy, spare: bool) -> bool:
        """Take the image, which is a cache: False if it fails and lines can replace it."""
        try:
            adapter = adapter_of(self._engine)
            state = unpack(image, policy, adapter.extras)
            adapter.check_state(state)
            self._engine.replace_state(state, cached=True)
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
    with io.BytesIO(source) if isinstance(source, bytes) else reading(source) as file:
        header = read_header(file, path)
        if header.of != name:
            raise JournalMismatchError(f"it is of a {header.of}, and is read by a {name} here", path, 0)
        given = () if policy is None else (instance("policy", policy, Policy),)
        try:
            made = begin(header, policy, policies, path)
        except NONSENSE as error:
            if isinstance(error, JournalError):
                raise
            raise JournalMismatchError(f"it was begun with what cannot be: {error}", path, 0) from error
        header_of(made.engine).check(header, path)
        file.seek(0)
        found, *_ = recover(made, file, path, (*given, *policies))
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


def read_header(file: BinaryIO, path: str) -> Header:
    """Return the header of a journal or snapshot."""
    for _, body in Reader(file, path):
        return Header.read(body, path)
    raise JournalMismatchError("nothing is in it", path, 0)


def attach(target: Target, journal: Journal) -> Recovery | None:
    """Continue a journal with a new scheduler; return the recovery of its contents, None where it is new."""
    header = header_of(target.engine)
    try:
        with reading(journal.log.path) as file:
            reader = journal.log.reader(file)
            if not any(True for _ in reader):
                journal.log.go_on(reader)
                adapter = adapter_of(target.engine)
                journal.begin(header, target.policy, adapter.warm_state, adapter.extras)
                return None
            file.seek(0)
            path = str(journal.path)
            header.check(read_header(file, path), path)
            file.seek(0)
            found, reader, fairnesses = recover(target, file, path, journal.policies)
            journal.log.go_on(reader)
            journal.go_on(found.header, found.rounds, fairnesses)
    except BaseException:
        if not journal.closed:  # closing one that is not open would open it, and fail in place of the first error
            journal.close()
        raise
    return found


def recover(
    target: Target, file: BinaryIO, path: str, policies: Sequence[Policy] = ()
) -> tuple[Recovery, Reader, dict[int, Fairness]]:
    """Bring a new scheduler to the state that a journal ends with.

    The target is made as the journal's header says; `path` is for error messages, and `policies` are those with parts
    of the caller's own.  The reader is returned at the end of the last good record, with the fairness objects by
    number.
    """
    start = time.perf_counter()
    last = _last_commits(file, path)
    file.seek(0)
    reader = Reader(file, path)
    records = iter(reader)
    _, body = next(records)
    header = Header.read(body, path)
    known = accounts_of(body, target.engine, path, 0)
    if known is not None:
        try:
            adapter_of(target.engine).warm_state = known
        except NONSENSE as error:
            raise JournalMismatchError(f"what the adapter had learnt: {error}", path, 0) from error
    rerun = Rerun(target, Recovery(header, path), (target.policy, *policies), last)
    for offset, body in records:
        rerun.step(offset, body)
    found = rerun.found
    found.size, found.torn, found.seconds = reader.end, reader.torn, time.perf_counter() - start
    return found, reader, rerun.fairnesses


def _last_commits(file: BinaryIO, path: str) -> dict[int, int]:
    """Return by round the offset of its last commit; all checksums have been checked then, before anything is made."""
    last: dict[int, int] = {}
    for offset, body in Reader(file, path):
        if body[:1] == b"C":
            try:
                last[int(body[2 : body.index(b",")])] = offset
            except ValueError:
                raise JournalMismatchError("a commit of no round", path, offset) from None
    return last
