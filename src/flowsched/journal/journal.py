"""The journal of a scheduler: its calls, its decisions and the events, in their order.

A journal is a database (`flowsched.journal.store`) with rows of these kinds; their bodies are JSON:

=======  ===========================================================================================================
begin    the first one: version of the package, resources, seed, policy in words, adapter in words; accounts
events   list of all events of one `Scheduler.apply`; the runs that it began (by TaskStarted) and ended
round    number, now, time limit if it ran into that, and its `records.Seal` (null: it raised an error); the reasons for
         waiting, with prices and numbers of tasks
commit   number of the round, `only`, the deltas that happened, and the number of the first run minus the number of
         preemptions: with the index of a delta it is the run that this starts; the runs that ended
policy   another policy, in words, and the number of its fairness object (null: none); accounts
adapter  a call of an adapter that is none of these, in the adapter's own words
state    a checkpoint, from which recovery begins: the header, the form of the image, the policy in words, the numbers
         of bytes of lines and of both, their CRC-32, and the checksum of the row before; the whole state is in the
         table of checkpoints twice: as lines (see `flowsched.journal.export`; none in a snapshot), and as an image
         (see `flowsched.journal.snapshot`)
service  number of a life of `flowsched serve`
=======  ===========================================================================================================

Accounts are the state of the share providers of a fairness object, the first time that it is seen; of the first row also
the state of an adapter.  They are an image.

A call is written down before it returns, except for a round.  A round is written with the next call, which is its commit
as a rule, or by `close`: a round without its commit has no effect that a restart could contradict.

Rule: memory and file advance together, or the journal is *behind*.  It counts as behind from before the first change of
a call until its rows are written, whatever exception ends the call.  A journal that stays behind takes nothing more,
and recovery gives the state before that call.  A call that cannot be written down is refused before it changes
anything.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn
from weakref import WeakKeyDictionary, ref

from flowsched.boundary.validate import instance, ordered, truth
from flowsched.cluster import Cluster
from flowsched.cluster.events import EndedRun, Event, TaskStarted
from flowsched.exceptions import CorruptJournalError, FlowschedError, InputError, JournalError
from flowsched.journal._words import delta_words, round_numbers, words
from flowsched.journal.codec import decode, encode
from flowsched.journal.records import Checkpoint, Header
from flowsched.journal.snapshot import Extras, pack_accounts
from flowsched.journal.store import Records, Row, Store
from flowsched.policy import Fairness, Policy
from flowsched.policy.serialize import describe
from flowsched.rounds.reasons import Waiting
from flowsched.rounds.values import Commit, Preempt, Round

__all__ = ["Durability", "Journal"]

Durability = Literal["process", "power", "group"]

_LONG_BYTES, _LONG_SECONDS, _LONG_PART = 64 << 20, 1.0, 20.0
"""Limits of `Journal.long`: growth in bytes; seconds of a restart; and their ratio to the time of the last checkpoint, so
that checkpoints take at most a twentieth of the time of the rounds."""


class Journal:
    """The database of a scheduler's calls; given to `Scheduler(journal=...)`, which recovers from it.

    One process at a time may have it open for this; other programs may read it with SQLite meanwhile.

    Parameters
    ----------
    path : str or path
        Created if absent.
    durability : {"process", "power", "group"}
        What calls that returned survive.  "process": the end of the process at any moment, also by ``kill -9``.  "power":
        the end of the machine as well (power, kernel), since `apply` and `commit` wait for the disk.  "group": the same,
        once `wait` has returned: callers in several threads share one wait for the disk.
    policies : sequence of Policy
        Policies that the scheduler was given while it ran, as far as they have parts of the caller's own; others are
        made again from the journal.
    standby : bool
        Wait while another process has it open, and continue it then; otherwise that is an error.

    Attributes
    ----------
    path : Path
    durability : str
    seconds : float
        Time that writing rows and waiting for the disk have taken.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "process",
        policies: Sequence[Policy] = (),
        standby: bool = False,
    ) -> None:
        if durability not in ("process", "power", "group"):
            raise InputError(f"durability: 'process', 'power' or 'group' expected, got {durability!r}")
        if not isinstance(path, str | os.PathLike):
            raise InputError(f"path: a path expected, got {path!r}")
        self.path = Path(path)
        self.durability = durability
        self._standby = truth("standby", standby)
        self.policies = ordered("policies", policies)
        for i, policy in enumerate(self.policies):
            instance(f"policies[{i}]", policy, Policy)
        self._store: Store | None = None
        self._made: WeakKeyDictionary[Round, tuple[int, str]] = WeakKeyDictionary()  # number, and deltas in words
        self._count = 0
        self._header: Header | None = None
        self._fairness: dict[int, tuple[int, ref[Fairness]]] = {}
        self._fairnesses = 0
        self._behind = False
        self._round: list[Row] = []
        self._rows: list[Row] = []
        self._after: list[Row] = []
        self._request: tuple[str, str] | None = None
        self.seconds = 0.0
        self._restart, self._took, self._kept = 0.0, 0.0, 0  # seconds; seconds and bytes of the last checkpoint

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise InputError(
            "a journal cannot be copied: it is the file's only writer (Scheduler.copy gives a copy without one)"
        )

    def __repr__(self) -> str:
        return f"<Journal {str(self.path)!r}, {self.size} bytes>"

    @property
    def size(self) -> int:
        """Length in bytes."""
        return 0 if self._store is None else self._store.size

    @property
    def records(self) -> int:
        """Number of the last row, with those that are written with the next call."""
        return (0 if self._store is None else self._store.n) + len(self._round)

    @property
    def behind(self) -> bool:
        """True while a call is under way, and for ever after one that an exception ended before it was written down."""
        return self._behind

    @property
    def closed(self) -> bool:
        """True once another scheduler may have it."""
        return self._store is None or self._store.closed

    @property
    def long(self) -> bool:
        """True if a restart would take long, so that it is time for `Scheduler.compact`."""
        return self._restart > _LONG_SECONDS + _LONG_PART * self._took or self.size > 2 * self._kept + _LONG_BYTES

    @property
    def store(self) -> Store:
        """The database, opened and locked at the first use."""
        if self._store is None:
            self._store = Store(self.path, self._standby)
        return self._store

    def open(self) -> None:
        """Open and lock the file now rather than at the first use; a standby waits for that."""
        self.store.check_open()

    def wait(self) -> None:
        """Wait until all calls that have returned are as durable as `durability` says.

        With "group", a caller acknowledges after it.  Any thread may call it, also during other calls.
        """
        if self.durability != "process":
            self.store.sync()

    def close(self) -> None:
        """Release the journal for another scheduler; this one takes no more calls."""
        if self._round and not self.closed and not self.store.failed:
            self._write(())  # it was made before a call that has left the journal behind
        self.store.close()

    # -- calls of a scheduler -----------------------------------------------------------------------------------

    def begin(self, header: Header, policy: Policy, warm_state: Any, extras: Extras) -> None:
        """Write the first row of a new journal."""
        self._header = header
        accounts = pack_accounts(policy, warm_state, extras)
        self.store.begin(header.resources, Row("begin", header.body(), image=accounts or None))
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
        request, self._request = self._request, None
        records, refusal = _encoded(events)
        ended: tuple[EndedRun, ...] = ()
        self._open()
        before, runs = cluster.events, cluster.runs
        try:
            if refusal is None:
                ended = apply_batch(events)
            elif not atomic:
                ended = apply_batch(events[: len(records)])
        finally:
            if not cluster.midway:
                happened = records[: cluster.events - before]
                if happened:
                    known = None if request is None else words([*request, before, len(happened)])
                    began = () if cluster.runs == runs else _began(events[: len(happened)], cluster, runs)
                    extra = words([*began, *_ended(ended, events[: len(happened)])]) if began or ended else None
                    self._rows.append(Row("events", f"[{','.join(happened)}]", None, extra, known))
                self._close()
        if refusal is not None:
            if isinstance(refusal, FlowschedError):
                refusal.ended, refusal.index = ended, len(records)
            try:
                raise refusal
            finally:
                del refusal  # it refers to this frame, and so to the journal
        return ended

    def request(self, key: str, digest: str) -> None:
        """Name the request that the next call of `events` carries out; both are written in one transaction."""
        self._request = key, digest

    def begin_service(self) -> int:
        """Write down that a service begins, and return its number, from 1 on."""
        life = 1 + (int(self.store.query(_LAST_LIFE)[0][0] or 0))
        self._open()
        self._close(Row("service", str(life), request="[]"))
        return life

    def requests(self, most: int) -> list[tuple[str, str, int, int]]:
        """Return the newest requests, the oldest of them first: key, digest, number of events before it, and in it."""
        found = []
        for n, text in reversed(self.store.query(_REQUESTS, most)):
            values = decode(text, str(self.path), n)
            right = isinstance(values, list) and [type(value) for value in values] == [str, str, int, int]
            if not right:
                raise CorruptJournalError("a request that means nothing", str(self.path), n)
            found.append(tuple(values))
        return found

    def record(self, said: Sequence[Any]) -> None:
        """Write down a call of an adapter, alone or in the middle of another call."""
        row = _of_adapter(said)
        if self._behind:
            self._rows.append(row)
        else:
            self._open()
            self._close(row)

    def record_after(self, said: Sequence[Any]) -> None:
        """Write down a call of an adapter in the middle of another call, behind the row of that one."""
        self._after.append(_of_adapter(said))

    def adapter_call(self, said: Sequence[Any], act: Callable[[], None]) -> None:
        """Run an action of an adapter, and write it down."""
        row = _of_adapter(said)
        self._open()
        act()
        self._close(row)

    def round(
        self, now: float, limit: float | None, decide: Callable[[float, float | None], tuple[Round, bool]]
    ) -> Round:
        """Make a round, and keep its seal for the next write; write down at once that it raised an error."""
        self._open(look=False)
        number, start = self._count + 1, time.perf_counter()
        try:
            round, late = decide(now, limit)
        except BaseException:
            self._count = number
            self._close(Row("round", words((number, now, None, None)), now + 0.0), wait=False)
            raise
        self._restart += time.perf_counter() - start
        shown = None if not late or limit is None else float(limit)
        deltas = delta_words(round.deltas)
        waiting = words(round.waiting.summary()) if isinstance(round.waiting, Waiting) else "[]"
        body = words((number, now, shown, round_numbers(round, deltas, waiting)))
        self._count, self._made[round] = number, (number, deltas)
        if self._round:
            self.store.check()
            self._write(())
        self._round = [*self._rows, Row("round", body, now + 0.0, waiting), *self._after]
        self._behind = False
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
        happened = (
            deltas if done.accepted is round.deltas or done.accepted == round.deltas else delta_words(done.accepted)
        )
        first = done.first_run - (len(done.ended) and sum(isinstance(delta, Preempt) for delta in done.accepted))
        ended = words([(*run, None) for run in done.ended]) if done.ended else None
        self._close(Row("commit", f"[{number},{chosen},{happened},{first}]", round.now + 0.0, ended))
        return done

    def policy(self, policy: Policy, set_policy: Callable[[Policy], None]) -> None:
        """Set another policy, and write it down."""
        fairness, known = policy.fairness, self._fairness.get(id(policy.fairness))
        accounts = None if known else pack_accounts(policy) or None
        number = None if fairness is None else known[0] if known else self._fairnesses
        row = Row("policy", encode([describe(policy), number]).decode("ascii"), image=accounts)
        self._open()
        try:
            set_policy(policy)
        except FlowschedError:  # it was refused
            self._close()
            raise
        if fairness is not None and number is not None:
            self._know(fairness, number)
        self._close(row)

    def go_on(
        self, records: Records, header: Header, rounds: int, fairnesses: Mapping[int, Fairness], seconds: float
    ) -> None:
        """Continue an old journal after the rows read in some seconds, with the number of its rounds and its fairness objects."""
        self.store.go_on(records, header.resources)
        self._restart = seconds
        self._header, self._count = header, rounds
        for n, body in self.store.query("SELECT n, body FROM calls WHERE kind = 'round' ORDER BY n DESC LIMIT 1"):
            values = decode(body, str(self.path), n)
            if not isinstance(values, list) or not values or type(values[0]) is not int:
                raise CorruptJournalError("a round without a number", str(self.path), n)
            self._count = values[0]  # rounds are numbered across checkpoints
        for number, fairness in fairnesses.items():
            self._know(fairness, number)

    def restart(self, state: Callable[[], Checkpoint], policy: Policy, since: float | None) -> None:
        """Begin again with a checkpoint; rounds made so far can no longer be committed."""
        assert self._header is not None
        began = time.perf_counter()
        checkpoint = state()
        self._open()
        try:
            if self._round:
                self._write(())
            row = checkpoint.row(self._header, self.store.chain)
            start = time.perf_counter()
            self.store.checkpoint(row, checkpoint.pieces, since)
            self.seconds += time.perf_counter() - start
        except JournalError:
            self._behind = False  # the old state goes on, or the store has failed
            raise
        self._made.clear()
        self._fairness.clear()
        self._fairnesses = 0
        if policy.fairness is not None:
            self._know(policy.fairness, 0)  # its accounts are in the state
        self._behind = False
        self._restart, self._took, self._kept = 0.0, time.perf_counter() - began, self.size
        self.wait()

    def _know(self, fairness: Fairness, number: int) -> None:
        key = id(fairness)
        self._fairness[key] = number, ref(fairness, lambda _: self._fairness.pop(key, None))
        self._fairnesses = max(self._fairnesses, number + 1)

    def _open(self, look: bool = True) -> None:
        """Refuse a call that could not be written down; from here on the journal is behind."""
        if self._behind:
            raise JournalError(
                "an exception ended an earlier call in the middle, so the scheduler is ahead of it; "
                "start again from the journal", str(self.path), self.store.n,
            )  # fmt: skip
        if look:
            self.store.check()
        else:  # nothing is written now
            self.store.check_open()
        if self._rows or self._after:
            self._rows, self._after = [], []
        self._behind = True

    def _close(self, *rows: Row, wait: bool = True) -> None:
        """Write the rows of a call; from here on the journal is not behind."""
        new = [*self._rows, *rows, *self._after]
        if new:
            self._write(new)
            if wait and self.durability == "power":
                self._sync()
        self._behind = False

    def _write(self, rows: Iterable[Row]) -> None:
        start = time.perf_counter()
        self.store.append([*self._round, *rows])
        self._round = []
        self.seconds += time.perf_counter() - start

    def _sync(self) -> None:
        start = time.perf_counter()
        self.store.sync()
        self.seconds += time.perf_counter() - start


_LAST_LIFE = "SELECT max(CAST(body AS INTEGER)) FROM calls WHERE request IS NOT NULL AND kind = 'service'"
_REQUESTS = "SELECT n, request FROM calls WHERE request IS NOT NULL AND kind = 'events' ORDER BY n DESC LIMIT ?"


def _encoded(events: Sequence[Event]) -> tuple[list[str], Exception | None]:
    """Encode events up to the first one that a journal cannot hold; the error is the reason why it cannot."""
    records: list[str] = []
    try:
        for event in events:
            records.append(words(event))  # noqa: PERF401, since those before the first refused one count
    except Exception as refusal:
        return records, refusal
    return records, None


_Known = tuple[Hashable, int, Hashable, str, float | None]
"""A run in the effects of events: task, number, machine, kind of the event, and its time."""


def _began(events: Sequence[Event], cluster: Cluster, before: int) -> list[_Known]:
    """Return the runs that reports of starts have begun, as far as they still go on."""
    reports = (event for event in events if type(event) is TaskStarted)
    known = ((event, cluster.tasks.get(event.task)) for event in reports)
    return [
        (event.task, task.run, event.machine, "TaskStarted", event.time)
        for event, task in known
        if task is not None and task.run > before
    ]


def _ended(ended: Sequence[EndedRun], events: Sequence[Event]) -> list[_Known]:
    """Return the runs that events have ended: those of an event come one after the other, in the order of the events."""
    found, rest = list[_Known](), iter(events)
    event = next(rest, None)
    for run in ended:
        while event is not None and not _ends(event, run):
            event = next(rest, None)
        found.append((*run, None if event is None else event.time))
    return found


def _ends(event: Event, run: EndedRun) -> bool:
    """Return True if the event may have ended the run."""
    if type(event).__name__ != run.why:
        return False
    task = getattr(event, "task", run.task)
    machine = getattr(event, "id", run.machine) if run.why.startswith("Machine") else run.machine
    return bool(task == run.task and machine == run.machine)


def _of_adapter(said: Sequence[Any]) -> Row:
    return Row("adapter", words(said))
