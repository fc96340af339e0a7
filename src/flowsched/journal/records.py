"""Contents of rows of a journal: the header with which it begins, the seal of a round, and a checkpoint."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any
from zlib import crc32

from flowsched.cluster import Resources
from flowsched.exceptions import JournalMismatchError
from flowsched.journal._words import delta_words, round_numbers, words
from flowsched.journal.codec import decode, encode
from flowsched.journal.store import Row
from flowsched.journal.tables import Piece
from flowsched.policy.serialize import difference
from flowsched.rounds.reasons import Waiting
from flowsched.rounds.values import Round


@dataclass(frozen=True)
class Header:
    """How a scheduler was made: in the first row of a journal, and in each checkpoint."""

    version: str
    resources: tuple[str, ...]
    device: str | None
    seed: int
    policy: Any
    adapter: Any = None

    def body(self) -> str:
        """Return it as JSON."""
        return encode({k: v for k, v in asdict(self).items() if k != "adapter" or v is not None}).decode("ascii")

    @classmethod
    def read(cls, body: str, path: str, record: int) -> Header:
        """Read a header; raise JournalMismatchError if that is of another version, or no header."""
        return cls.made(decode(body, path, record), path, record)

    @classmethod
    def made(cls, known: Any, path: str, record: int) -> Header:
        """Make a header from its JSON."""
        named = {f.name for f in fields(cls)}
        right = isinstance(known, dict) and named - {"adapter"} <= known.keys() <= named
        right = right and _is_header(known)
        if not right:
            raise JournalMismatchError("it does not begin with a header that this version reads", path, record)
        return cls(**{**known, "resources": tuple(known["resources"])})

    def check(self, then: Header, path: str, record: int) -> None:
        """Refuse the header of a file that was begun otherwise."""
        if self.of != then.of:
            raise JournalMismatchError(f"it is of a {then.of}, and is read by a {self.of} here", path, record)
        if then.cluster_resources != self.cluster_resources:
            raise JournalMismatchError(f"resources were {then.resources}, and are {self.resources} here", path, record)
        if then.seed != self.seed:
            raise JournalMismatchError(f"seed was {then.seed}, and is {self.seed} here", path, record)
        other = difference(then.policy, self.policy) or difference(then.adapter, self.adapter, self.of)
        if other is not None:
            raise JournalMismatchError(other, path, record)

    @property
    def of(self) -> str:
        """Name of the class that it belongs to: "Scheduler", or an adapter's."""
        return "Scheduler" if self.adapter is None else str(self.adapter["is"])

    @property
    def cluster_resources(self) -> Resources:
        """As `Cluster` takes them."""
        return Resources(self.resources, self.device)


def _is_header(known: dict[str, Any]) -> bool:
    resources, adapter = known["resources"], known.get("adapter")
    return (
        isinstance(known["version"], str)
        and isinstance(resources, list)
        and all(isinstance(name, str) for name in resources)
        and isinstance(known["device"], str | None)
        and type(known["seed"]) is int
        and (adapter is None or (isinstance(adapter, dict) and isinstance(adapter.get("is"), str)))
    )


@dataclass(frozen=True)
class Seal:
    """A round in a few numbers: two different rounds have equal seals with a probability of 1 in 4 billion.

    Counts of tasks; the checksum of all deltas with devices and prices; the cost of the last flow; the checksum of the
    reasons for waiting: codes and prices, with counts of their tasks.
    """

    preempted: int
    migrated: int
    placed: int
    waiting: int
    deltas: int
    cost: int
    reasons: int

    @classmethod
    def of(cls, round: Round) -> Seal:
        """Return the seal of a round."""
        waiting = words(round.waiting.summary()) if isinstance(round.waiting, Waiting) else "[]"
        return cls(*round_numbers(round, delta_words(round.deltas), waiting))


@dataclass(frozen=True)
class Checkpoint:
    """A whole state: as lines that every version reads (or none), and as an image in pieces.

    `form` is that of the image, `policy` the policy in words.
    """

    form: int
    policy: Any
    lines: bytes
    image: list[Piece]

    @property
    def pieces(self) -> list[Piece]:
        """Lines and image."""
        return [self.lines, *self.image]

    def row(self, header: Header, before: int) -> Row:
        """Return the row of a checkpoint; `before` is the checksum of the row before it."""
        rest = encode([self.form, self.policy, len(self.lines), crc32(self.lines), before]).decode("ascii")
        return Row("state", f"[{header.body()},{rest[1:]}")
