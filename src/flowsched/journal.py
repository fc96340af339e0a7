"""The journal of a scheduler: what it was told, what it decided and what happened, in the order of happening.

A journal is a `log` of these records (a letter, then JSON unless said otherwise):

====  ======================================================================================================
H     the first one: version of the package, resources, seed, policy in words, adapter in words; accounts (see below)
E     events, all those of one `Scheduler.apply`
R     a round: number, now, time limit if it ran into that, and what `Seal` says of it (null: it raised an error)
C     a commit: number of the round, `only`, and the deltas that happened
P     another policy, in words, and the number of its fairness object (null: none); accounts
A     what an adapter was told that is none of these, in its own words
S     in front of the others, after H: form of the state, policy in words; after a line feed the whole state (see `image`)
====  ======================================================================================================

Accounts are what the providers of a fairness object keep, the first time that it is seen, and in H what an adapter had
learnt: after a line feed, see `image`.

What happened is written down before the caller is told: a call that has returned has its record.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary, ref
from zlib import crc32

from flowsched.cluster import Resources
from flowsched.cluster.checks import ordered
from flowsched.cluster.events import Event
from flowsched.exceptions import InputError, JournalMismatchError
from flowsched.image import pack_accounts
from flowsched.log import Log
from flowsched.policy import Fairness, Policy
from flowsched.policy.describe import describe, difference
from flowsched.reasons import Waiting
from flowsched.rounds import Commit, Round
from flowsched.wire import encode, plain, plain_delta

__all__ = ["Fsync", "Header", "Journal", "Seal"]

Fsync = Literal["commit", "always", "never"]


@dataclass(frozen=True)
class Header:
    """What a journal or snapshot begins with."""

    version: str
    resources: tuple[str, ...]
    device: str | None
    seed: int
    policy: Any
    adapter: Any = None

    def body(self) -> bytes:
        """The record."""
        return b"H" + encode({k: v for k, v in asdict(self).items() if k != "adapter" or v is not None})

    @classmethod
    def read(cls, body: bytes) -> Header:
        """From its record."""
        known = json.loads(body[1:].partition(b"\n")[0])
        return cls(**{**known, "resources": tuple(known["resources"])})

    def check(self, then: Header, path: str) -> None:
        """Refuse a file that was begun otherwise."""
        if self.of != then.of:
            raise JournalMismatchError(f"it is of a {then.of}, and is read by a {self.of} here", path, 0)
        if then.cluster_resources != self.cluster_resources:
            raise JournalMismatchError(f"resources were {then.resources}, and are {self.resources} here", path, 0)
        if then.seed != self.seed:
            raise JournalMismatchError(f"seed was {then.seed}, and is {self.seed} here", path, 0)
        other = difference(then.policy, self.policy) or difference(then.adapter, self.adapter, self.of)
        if other is not None:
            raise JournalMismatchError(other, path, 0)

    @property
    def of(self) -> str:
        """The name of who was told everything."""
        return "Scheduler" if self.adapter is None else str(self.adapter["is"])

    @property
    def cluster_resources(self) -> Resources:
        """As `Cluster` takes them."""
        return Resources(self.resources, self.device)


@dataclass(frozen=True)
class Seal:
    """A round in a few numbers: two rounds of equal seals are the same but by chance (1 in 4 billion).

    Parameters
    ----------
    preempted, migrated, placed, waiting : int
        How many.
    deltas : int
        Checksum of all deltas with devices and prices.
    cost : int
        Of the flow.
    reasons : int
        Checksum of the reasons for waiting: codes and prices, with how many tasks they hold for.
    """

    preempted: int
    migrated: int
    placed: int
    waiting: int
    deltas: int
    cost: int
    reasons: int

    def numbers(self) -> tuple[int, ...]:
        """All of it, in this order."""
        return self.preempted, self.migrated, self.placed, self.waiting, self.deltas, self.cost, self.reasons

    @classmethod
    def of(cls, round: Round) -> Seal:
        """The seal of a round."""
        prices = [preemption.price for preemption in round.preemptions.values()]
        reasons = round.waiting.summary() if isinstance(round.waiting, Waiting) else []
        return cls(
            len(round.preemptions), len(round.migrations), len(round.placements), len(round.waiting),
            crc32(encode([[plain_delta(delta) for delta in round.deltas], prices])), round.stats.cost,
            crc32(encode(reasons)),
        )  # fmt: skip


class Journal:
    """Where a scheduler writes down what happens; given to `Scheduler(journal=...)`, which recovers from what is in it.

    One process at a time may have it open.

    Parameters
    ----------
    path : str or path
        Created if absent.
    fsync : {"commit", "always", "never"}
        What has been told to the caller survives the end of the process at any moment, whatever is chosen here.  The end
        of the machine (power, kernel) it survives if the disk has been waited for: "commit" does that before `commit`
        returns, for that commit and everything before it; "always" before `apply` returns as well; "never" leaves it
        to the operating system.
    policies : sequence of Policy
        Those that the scheduler was given while it ran, as far as they have parts of the caller's own; others are
        made again from the journal.

    Attributes
    ----------
    path : Path
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
            if not isinstance(policy, Policy):
                raise InputError(f"policies[{i}]: a Policy expected, got {policy!r}")
        self._log: Log | None = None
        self._numbers: WeakKeyDictionary[Round, int] = WeakKeyDictionary()
        self._count = 0
        self._header: Header | None = None
        self._fairness: dict[int, tuple[int, ref[Fairness]]] = {}
        self._fairnesses = 0

    def __repr__(self) -> str:
        return f"<Journal {str(self.path)!r}, {self.size} bytes>"

    @property
    def size(self) -> int:
        """Bytes so far."""
        return 0 if self._log is None else self._log.size

    @property
    def closed(self) -> bool:
        """Whether another scheduler may have it."""
        return self._log is None or self._log.closed

    @property
    def log(self) -> Log:
        """The file, opened and locked at the first use."""
        if self._log is None:
            self._log = Log(self.path)
        return self._log

    def close(self) -> None:
        """Let another scheduler have it; this one can decide nothing more."""
        self.log.close()

    # -- what a scheduler tells ---------------------------------------------------------------------------------

    def begin(self, header: Header, policy: Policy, learnt: Any) -> None:
        """The first records of a new journal."""
        self._header = header
        self._append(self.fsync != "never", header.body() + self._accounts(policy, learnt))

    def events(
        self,
        events: Sequence[Event],
        live: Callable[[Sequence[Event], Callable[[Event], None]], None],
        happen: Callable[[Event], None],
    ) -> None:
        """Let somebody live through events, each by a call of `happen`, and write down those that happened."""
        happened: list[Any] = []

        def written(event: Event) -> None:
            record = plain(event)
            happen(event)
            happened.append(record)

        try:
            live(events, written)
        finally:
            if happened:
                self._append(self.fsync == "always", b"E" + encode(happened))

    def heard(self, words: Sequence[Any]) -> None:
        """An adapter is told something else."""
        self._append(self.fsync == "always", b"A" + encode(plain(words)))

    def round(self, now: float, limit: float | None, round: Round | None) -> None:
        """A round was made, or failed (None)."""
        self._count += 1
        if round is not None:
            self._numbers[round] = self._count
        seal = None if round is None else Seal.of(round).numbers()
        self._append(False, b"R" + encode([self._count, now, None if limit is None else float(limit), seal]))

    def check(self, round: Round, only: Collection[Hashable] | None) -> None:
        """Refuse what could not be written down once it has happened."""
        plain(only if only is None else list(only))
        if round not in self._numbers:
            raise InputError(
                "round: this scheduler did not make it, or its journal was started anew since; schedule again"
            )

    def commit(self, round: Round, only: Collection[Hashable] | None, done: Commit) -> None:
        """A round happened, as far as it did."""
        deltas = [plain_delta(delta) for delta in done.accepted]
        record = [self._numbers[round], None if only is None else plain(list(only)), deltas]
        self._append(self.fsync != "never", b"C" + encode(record))

    def words(self, policy: Policy) -> bytes:
        """What `policy` is to write down."""
        accounts = self._accounts(policy)
        number = None if policy.fairness is None else self._fairness[id(policy.fairness)][0]
        return b"P" + encode([describe(policy), number]) + accounts

    def policy(self, words: bytes) -> None:
        """Another policy holds."""
        self._append(self.fsync == "always", words)

    def go_on(self, header: Header, rounds: int, fairnesses: Mapping[int, Fairness]) -> None:
        """An old journal is continued, so many rounds and these fairness objects being in it."""
        self._header, self._count = header, rounds
        for number, fairness in fairnesses.items():
            self._know(fairness, number)

    def restart(self, state: bytes, policy: Policy) -> None:
        """Begin anew with a state; rounds made so far can no longer be committed."""
        assert self._header is not None
        self.log.restart(self._header.body(), state)
        self._numbers.clear()
        self._fairness.clear()
        self._count = self._fairnesses = 0
        self._accounts(policy)  # are in the state

    def _accounts(self, policy: Policy, learnt: Any = None) -> bytes:
        """What is to be written of a policy's accounts, and of what an adapter had learnt."""
        fairness = policy.fairness
        if learnt is None and (fairness is None or id(fairness) in self._fairness):
            return b""
        accounts = pack_accounts(policy, learnt)
        if fairness is not None:
            self._know(fairness, self._fairnesses)
        return b"\n" + accounts if accounts else b""

    def _know(self, fairness: Fairness, number: int) -> None:
        key = id(fairness)
        self._fairness[key] = number, ref(fairness, lambda _: self._fairness.pop(key, None))
        self._fairnesses = max(self._fairnesses, number + 1)

    def _append(self, sync: bool, body: bytes) -> None:
        self.log.append(body)
        if sync:
            self.log.sync()
