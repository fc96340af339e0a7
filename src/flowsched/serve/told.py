"""Keys of past requests: a repeated request happens once, also after the service was killed.

A client without a response repeats its request under the same key.  The journal has the number of past events, and the
events of a request are one record of it.  So a file next to the journal is enough.  For each request with a key it has,
before the events happen: the key, a digest of the request, the number of events before it, and its number of events.

Rule: a request has happened if and only if it is in the file, no later record voids it, and the cluster has counted
its last event.  A record voids every earlier one whose last event would come after its own beginning: such a request was
refused, or its record in the journal was torn.

The file also has the number of the service's life, which grows by one each time that the file is opened.
"""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import NamedTuple

from flowsched.exceptions import JournalMismatchError
from flowsched.journal.record_log import Log, reading

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
    path : path or None
        None keeps them in memory alone, for a scheduler without a journal.
    events : int
        Number of events that the recovered cluster has counted.
    kept : int
        Number of newest keys that are kept.

    Attributes
    ----------
    life : int
        Number of times that the file was opened, this one included; random without a file.
    """

    def __init__(self, path: str | os.PathLike[str] | None, events: int = 0, *, kept: int = KEPT) -> None:
        self._kept, self._known = kept, dict[str, ToldRequest]()
        self._log: Log | None = None
        self._records = 0
        self.life = 1 + secrets.randbelow(2**20)
        if path is not None:
            self._log = Log(Path(path))
            try:
                self._read(events)
            except BaseException:
                self._log.close()
                raise

    def _read(self, events: int) -> None:
        assert self._log is not None
        self.life = 1
        with reading(self._log.path) as file:
            reader = self._log.reader(file)
            for offset, body in reader:
                try:
                    key, digest, before, size = json.loads(body)
                except ValueError:
                    raise JournalMismatchError("no file of requests", str(self._log.path), offset) from None
                if key is None:
                    self.life = before + 1
                else:
                    self._void(before)
                    if size:
                        self._known[key] = ToldRequest(digest, before, size)
            self._log.go_on(reader)
        self._void(events)
        self._rewrite()

    def _void(self, before: int) -> None:
        """Forget the requests whose last event would come after `before` events; they are the last ones."""
        while self._known and sum(next(reversed(self._known.values()))[1:]) > before:
            self._known.popitem()

    def _rewrite(self) -> None:
        """Write a new file with the kept requests."""
        if self._log is not None:
            while len(self._known) > self._kept:
                del self._known[next(iter(self._known))]
            records = [_record(key, *request) for key, request in self._known.items()]
            self._log.restart(_record(None, "", self.life, 0), *records)
            self._records = len(records)

    def find(self, key: str) -> ToldRequest | None:
        """Return the request of a key, None for one that has not happened."""
        return self._known.get(key)

    def note(self, key: str, digest: str, before: int, size: int) -> None:
        """Record a request, before its events happen."""
        if self._records >= 2 * self._kept:
            self._rewrite()
        if self._log is not None:
            self._log.check()
            self._log.append(_record(key, digest, before, size))
        self._records += 1
        self._known[key] = ToldRequest(digest, before, size)
        if self._log is None and len(self._known) > self._kept:
            del self._known[next(iter(self._known))]

    def refuse(self, key: str, events: int) -> None:
        """Forget a recorded request that has not happened."""
        self._known.pop(key, None)
        if self._log is not None:
            self._log.append(_record("", "", events, 0))
            self._records += 1

    def sync(self) -> None:
        """Wait until the file is on disk."""
        if self._log is not None:
            self._log.sync()

    def close(self) -> None:
        """Release the file for another service."""
        if self._log is not None:
            self._log.close()


def _record(key: str | None, digest: str, before: int, size: int) -> bytes:
    return json.dumps([key, digest, before, size], separators=(",", ":")).encode()
