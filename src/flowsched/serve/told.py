"""Keys of past requests: a repeated request happens once, also after the service was killed.

A client without a response repeats its request under the same key.  Key, digest and events of a request are one row of
the journal, written in one transaction: a request has happened if and only if its row is there.

The journal also has the number of the service's life, which grows by one each time that the service begins.
"""

from __future__ import annotations

import secrets
from typing import NamedTuple

from flowsched.journal.journal import Journal

KEPT = 100_000


class ToldRequest(NamedTuple):
    """A request that has happened, with the numbers of events before it and in it."""

    digest: str
    before: int
    size: int


class ToldRequests:
    """Past requests by key.

    Parameters
    ----------
    journal : Journal or None
        The scheduler's journal; None keeps them in memory alone.
    kept : int
        Number of newest keys that are kept.

    Attributes
    ----------
    life : int
        Number of services that the journal has had, this one included; random without a journal.
    """

    def __init__(self, journal: Journal | None, *, kept: int = KEPT) -> None:
        self._kept, self._journal = kept, journal
        self._known = dict[str, ToldRequest]()
        self.life = 1 + secrets.randbelow(2**20)
        if journal is not None:
            self.life = journal.begin_service()
            for key, digest, before, size in journal.requests(kept):
                self._known[key] = ToldRequest(digest, before, size)

    def find(self, key: str) -> ToldRequest | None:
        """Return the request of a key, None for one that has not happened."""
        return self._known.get(key)

    def begin(self, key: str, digest: str) -> None:
        """Name the request that the scheduler's next call of `apply` carries out."""
        if self._journal is not None:
            self._journal.request(key, digest)

    def note(self, key: str, digest: str, before: int, size: int) -> None:
        """Keep a request that has happened."""
        self._known[key] = ToldRequest(digest, before, size)
        if len(self._known) > self._kept:
            del self._known[next(iter(self._known))]
