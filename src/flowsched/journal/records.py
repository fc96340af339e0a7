"""Contents of records of a journal: the header with which it begins, and the seal of a round."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from flowsched.cluster import Resources
from flowsched.exceptions import JournalMismatchError
from flowsched.journal._words import delta_words, round_numbers
from flowsched.journal.codec import decode, encode
from flowsched.policy.serialize import difference
from flowsched.rounds.values import Round


@dataclass(frozen=True)
class Header:
    """The first record of a journal or snapshot: how the scheduler was made."""

    version: str
    resources: tuple[str, ...]
    device: str | None
    seed: int
    policy: Any
    adapter: Any = None

    def body(self) -> bytes:
        """Return the record."""
        return b"H" + encode({k: v for k, v in asdict(self).items() if k != "adapter" or v is not None})

    @classmethod
    def read(cls, body: bytes, path: str = "") -> Header:
        """Read a header from its record; raise JournalMismatchError if that is of another version, or no header."""
        known = decode(body[1:].partition(b"\n")[0], path, 0)
        named = {f.name for f in fields(cls)}
        right = body[:1] == b"H" and isinstance(known, dict) and named - {"adapter"} <= known.keys() <= named
        right = right and _is_header(known)
        if not right:
            raise JournalMismatchError("it does not begin with a header that this version reads", path, 0)
        return cls(**{**known, "resources": tuple(known["resources"])})

    def check(self, then: Header, path: str) -> None:
        """Refuse the header of a file that was begun otherwise."""
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
        return cls(*round_numbers(round, delta_words(round.deltas)))
