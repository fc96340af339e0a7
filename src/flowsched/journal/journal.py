"""The journal of a scheduler: its calls, its decisions and the events, in their order.

A journal is a log (`flowsched.journal.record_log`) of these records (a letter, then JSON unless said otherwise):

====  ======================================================================================================
H     the first one: version of the package, resources, seed, policy in words, adapter in words; accounts (see below)
E     events, all those of one `Scheduler.apply`
R     a round: number, now, time limit if it ran into that, and its `records.Seal` (null: it raised an error)
C     a commit: number of the round, `only`, and the deltas that happened
P     another policy, in words, and the number of its fairness object (null: none); accounts
A     a call of an adapter that is none of these, in the adapter's own words
S     in front of the others, after H: form of the image, policy in words, number of bytes of lines; after a line feed
      the whole state twice: as these lines (see `flowsched.journal.export`; none in a snapshot), and as an image
      (see `flowsched.journal.snapshot`)
====  ======================================================================================================

Accounts are the state of the share providers of a fairness object, the first time that it is seen; in H also the state of
an adapter.  They stand after a line feed, as an image.

A call is written down before it returns.

Rule: memory and file advance together, or the journal is *behind*.  It counts as behind from before the first change of
a call until its record is written, whatever exception ends the call.  A journal that stays behind takes nothing more,
and recovery gives the state before that call.  A call that cannot be written down is refused before it changes
anything.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn
from weakref import WeakKeyDictionary, ref

from flowsched.boundary.validate import instance, ordered
from flowsched.cluster import Cluster
from flowsched.cluster.events import EndedRun, Event
from flowsched.exceptions import FlowschedError, InputError, JournalError
from flowsched.journal._words import delta_words, round_numbers, words
from flowsched.journal.codec import encode
from flowsched.journal.record_log import Body, Log
from flowsched.journal.records import Header
from flowsched.journal.snapshot import Extras, pack_accounts
from flowsched.policy import Fairness, Policy
from flowsched.policy.serialize import describe
from flowsched.rounds.values import Commit, Round

__all__ = ["Fsync", "Journal"]

Fsync = Literal["commit", "always", "never"]


class Journal:
    """The file of a scheduler's calls; given to `Scheduler(journal=...)`, which recovers from it.

    One process at a time may have it open.

    Parameters
    ----------
    path : str or path
        Created if absent.
    fsync : {"commit", "always", "never"}
        Every call that returned survives the end of the process.  It survives the end of the machine (power, kernel)
        once the disk was waited for.  "commit" waits before `commit` returns, for that commit and everything before it;
        "always" before `apply` returns as well; "never" leaves it to the operating system.
    policies : sequence of Policy
        Policies that the scheduler was given while it ran, as far as they have parts of the caller's own; others are
        made again from the journal.

    Attributes
    ----------
    path : Path
    seconds : float
        Time that writing records and waiting for the disk have taken.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, fsync: Fsync = "commit", policies: Sequence[Policy] = ()
    ) -> None:
        if fsync not in ("commit", "always", "never"):
            raise InputError(f"fsync: 'commit', 'always' or 'never' expected, got {fsync!r}")
        if not isinstance(path, str | os.PathLike):
            raise InputError(f"path: a path expected, got {path!r}")
        self.path = Path(path)
        self.fsync = fsync
        self.policies = ordered("policies", policies)
        for i, policy in enumerate(self.policies):
            instance(f"policies[{i}]", policy, Policy)
        self._log: Log | None = None
        self._made: WeakKeyDictionary[Round, tuple[int, str]] = WeakKeyDictionary()  # number, and deltas in words
        self._count = 0
        self._header: Header | None = None
        self._fairness: dict[int, tuple[int, ref[Fairness]]] = {}
        self._fairnesses = 0
        self._behind = False
        self._after: list[bytes] = []
        self.seconds = 0.0

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise InputError(
            "a journal cannot be copied: it is the file's only writer (Scheduler.copy gives a copy without one)"
        )

    def __repr__(self) -> str:
        return f"<Journal {str(self.path)!r}, {self.size} bytes>"

    @property
    def size(self) -> int:
        """Length in bytes."""
        return 0 if self._log is None else self._log.size

    @property
    def behind(self) -> bool:
        """True while a call is under way, and for ever after one that an exception ended before it was written down."""
        return self._behind

    @property
    def closed(self) -> bool:
        """True once another scheduler may have it."""
        return self._log is None or self._log.closed

    @property
    def log(self) -> Log:
        """The file, opened and locked at the first use."""
        if self._log is None:
            self._log = Log(self.path)
        return self._log

    def close(self) -> None:
        """Release the journal for another scheduler; this one takes no more calls."""
        self.log.close()

    # -- calls of a scheduler -----------------------------------------------------------------------------------

    def begin(self, header: Header, policy: Policy, warm_state: Any, extras: Extras) -> None:
        """Write the first record of a new journal."""
        self._header = header
        self._append(self.fsync != "never", header.body() + _written(pack_accounts(policy, warm_state, extras)))
        if policy.fairness is not None:
            self._know(policy.fairness, 0)

    def events(
        self,
        events: Sequence[Event],
        apply_batch: Callable[[Sequence[Event]], tuple[EndedRun, ...]],
        cluster: Cluster,
        atomic: bool = False,
    ) -> tuple[EndedRun, ...]:
        """Apply events by one call of `apply_batch`, write down the applied ones, and return the runs that they ended.

        `Cluster.events` counts them, also where the call ended with an exception.  From the first event on that no journal
        can hold, none is applied; of an atomic call with such an event, none at all.
        """
        records, refusal = _encoded(events)
        ended: tuple[EndedRun, ...] = ()
        self._open()
        before = cluster.events
        try:
            if refusal is None:
                ended = apply_batch(events)
            elif not atomic:
                ended = apply_batch(events[: len(records)])
        finally:
            if not cluster.midway:
                happened = records[: cluster.events - before]
                record = f"E[{','.join(happened)}]".encode("ascii") if happened else b""
                self._close(self.fsync == "always", record)
        if refusal is not None:
            if isinstance(refusal, FlowschedError):
                refusal.ended, refusal.index = ended, len(records)
            try:
                raise refusal
            finally:
                del refusal  # it refers to this frame, and so to the journal
        return ended

    def record(self, said: Sequence[Any]) -> None:
        """Write down a call of an adapter, alone or in the middle of another call."""
        record = _of_adapter(said)
        if self._behind:
            self._append(self.fsync == "always", record)
        else:
            self._open()
            self._close(self.fsync == "always", record)

    def record_after(self, said: Sequence[Any]) -> None:
        """Write down a call of an adapter in the middle of another call, behind the record of that one."""
        self._after.append(_of_adapter(said))

    def adapter_call(self, said: Sequence[Any], act: Callable[[], None]) -> None:
        """Run an action of an adapter, and write it down."""
        record = _of_adapter(said)
        self._open()
        act()
        self._close(self.fsync == "always", record)

    def round(
        self, now: float, limit: float | None, decide: Callable[[float, float | None], tuple[Round, bool]]
    ) -> Round:
        """Make a round, and write down its seal, or that it raised an error."""
        self._open()
        number = self._count + 1
        try:
            round, late = decide(now, limit)
        except BaseException:
            self._count = number
            self._close(False, b"R" + encode([number, now, None, None]))
            raise
        shown = None if not late or limit is None else float(limit)
        deltas = delta_words(round.deltas)
        record = f"R{words((number, now, shown, round_numbers(round, deltas)))}".encode("ascii")
        self._count, self._made[round] = number, (number, deltas)
        self._close(False, record)
        return round

    def commit(
        self,
        round: Round,
        only: Collection[Hashable] | None,
        carry_out: Callable[[Round, Collection[Hashable] | None], Commit],
    ) -> Commit:
        """Apply the deltas of a round that are still possible, and write them down."""
        chosen = words(None if only is None else list(only))
        made = self._made.get(round)
        if made is None:
            raise InputError(
                "round: this scheduler did not make it, or its journal was started anew since; schedule again"
            )
        self._open()
        done = carry_out(round, only)
        number, deltas = made
        happened = deltas if done.accepted == round.deltas else delta_words(done.accepted)
        self._close(self.fsync != "never", f"C[{number},{chosen},{happened}]".encode("ascii"))
        return done

    def policy(self, policy: Policy, set_policy: Callable[[Policy], None]) -> None:
        """Set another policy, and write it down."""
        fairness, known = policy.fairness, self._fairness.get(id(policy.fairness))
        accounts = b"" if known else _written(pack_accounts(policy))
        number = None if fairness is None else known[0] if known else self._fairnesses
        record = b"P" + encode([describe(policy), number]) + accounts
        self._open()
        try:
            set_policy(policy)
        except FlowschedError:  # it was refused
            self._behind = False
            raise
        if fairness is not None and number is not None:
            self._know(fairness, number)
        self._close(self.fsync == "always", record)

    def go_on(self, header: Header, rounds: int, fairnesses: Mapping[int, Fairness]) -> None:
        """Continue an old journal, with the number of its rounds and its fairness objects."""
        self._header, self._count = header, rounds
        for number, fairness in fairnesses.items():
            self._know(fairness, number)

    def restart(self, state: Callable[[], Body], policy: Policy) -> None:
        """Replace the journal by one that begins with a state; rounds made so far can no longer be committed."""
        assert self._header is not None
        record = state()
        self._open()
        try:
            self.log.restart(self._header.body(), record)
        except JournalError:
            self._behind = False  # the old file goes on, or its log has failed
            raise
        self._made.clear()
        self._fairness.clear()
        self._count = self._fairnesses = 0
        if policy.fairness is not None:
            self._know(policy.fairness, 0)  # its accounts are in the state
        self._behind = False

    def _know(self, fairness: Fairness, number: int) -> None:
        key = id(fairness)
        self._fairness[key] = number, ref(fairness, lambda _: self._fairness.pop(key, None))
        self._fairnesses = max(self._fairnesses, number + 1)

    def _open(self) -> None:
        """Refuse a call that could not be written down; from here on the journal is behind."""
        if self._behind:
            raise JournalError(
                "an exception ended an earlier call in the middle, so the scheduler is ahead of it; "
                "start again from the journal", str(self.path), self.size,
            )  # fmt: skip
        self.log.check()
        self._after.clear()
        self._behind = True

    def _close(self, sync: bool, record: bytes) -> None:
        """Write the record of a call; from here on the journal is not behind."""
        if self._after:
            self._append(sync, *([record] if record else []), *self._after)
        elif record:
            self._append(sync, record)
        self._behind = False

    def _append(self, sync: bool, *bodies: bytes) -> None:
        start = time.perf_counter()
        self.log.append(*bodies, sync=sync)
        self.seconds += time.perf_counter() - start


def _encoded(events: Sequence[Event]) -> tuple[list[str], Exception | None]:
    """Encode events up to the first one that a journal cannot hold; the error is the reason why it cannot."""
    records: list[str] = []
    try:
        for event in events:
            records.append(words(event))  # noqa: PERF401, since those before the first refused one count
    except Exception as refusal:
        return records, refusal
    return records, None


def _of_adapter(said: Sequence[Any]) -> bytes:
    return f"A{words(said)}".encode("ascii")


def _written(accounts: bytes) -> bytes:
    """Return accounts as they stand at the end of a record."""
    return b"\n" + accounts if accounts else b""
