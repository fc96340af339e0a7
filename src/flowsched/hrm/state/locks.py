"""The lock of the pessimistic path: a lease, first come first served, that expires when its owner is gone.

A scheduler that wants the lock draws a ticket; the smallest ticket holds it.  Tickets are drawn under the lock of the ticket
machine's row, so a smaller one never appears later.
An owner increments its ticket's counter while it waits.  It gives the ticket up itself if its last renewal began longer ago
than the ttl, by its own clock.  Another process deletes the ticket after it has watched the same count for longer than the ttl,
by its own clock, and only if the count is still the same.  The owner's time began before the count was written, so it is over
before another process can have seen it end, whatever their clocks show.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from flowsched.exceptions import TimeLimitError
from flowsched.hrm.clocks import Clock, Watch
from flowsched.hrm.state.schema import LQ
from flowsched.hrm.state.store import Store

__all__ = ["Lease", "Leases"]


@dataclass(frozen=True, slots=True)
class Lease:
    """A drawn ticket of a lock."""

    name: str
    ticket: int
    owner: str


class Leases:
    """Locks by name, each held by its smallest live ticket.

    Parameters
    ----------
    store : Store
    ttl : float
        Seconds without a renewal after which a ticket expires.
    monotonic : callable
        This process's own time.
    """

    def __init__(self, store: Store, ttl: float, monotonic: Clock) -> None:
        self.store, self.ttl, self.monotonic = store, ttl, monotonic
        self._watch = Watch(ttl, monotonic)
        self._outages = store.outages
        self._renewed: dict[Lease, float] = {}  # by ticket of this process: the begin of its last renewal

    @contextmanager
    def hold(self, name: str, owner: str, timeout: float = 60.0) -> Iterator[Lease]:
        """Wait for the lock and hold it.

        Raises
        ------
        TimeLimitError
            `timeout` seconds did not suffice.
        """
        lease = self.draw(name, owner)
        try:
            deadline, renew = time.monotonic() + timeout, self.monotonic() + self.ttl / 3
            sweep = 0.0
            while not self.is_first(lease):
                if time.monotonic() > deadline:
                    raise TimeLimitError(f"lock {name!r}: not free within {timeout:g} s")
                if self.monotonic() > renew:
                    if not self.renew(lease):
                        # The renewal came too late: others have gone before by now, so a new ticket is drawn.
                        self.release(lease)
                        lease = self.draw(name, owner)
                    renew = self.monotonic() + self.ttl / 3
                if self.monotonic() >= sweep:
                    self.sweep()
                    sweep = self.monotonic() + self.ttl / 8
                time.sleep(0.002)
            yield lease
        finally:
            self.release(lease)

    def draw(self, name: str, owner: str) -> Lease:
        """Draw a ticket."""
        now = self.monotonic()

        def work(db: sa.Connection) -> Lease:
            ticket = self.store.count_up(db, name)
            db.execute(sa.insert(LQ).values(name=name, ticket=ticket, owner=owner, beats=0))
            return Lease(name, ticket, owner)

        lease = self.store.transact(work)
        self._renewed[lease] = now
        self._watch.note(lease, 0)
        return lease

    def renew(self, lease: Lease) -> bool:
        """Renew a ticket; return True if that was in time."""
        now = self.monotonic()
        if not self._in_time(lease):
            return False
        renewal = sa.update(LQ).where(*_mine(lease)).values(beats=LQ.c.beats + 1)
        if not self.store.transact(lambda db: db.execute(renewal).rowcount, twice=True):
            return False
        if lease in self._renewed:
            self._renewed[lease] = now
        return True

    def release(self, lease: Lease) -> None:
        """Give the ticket back."""
        self._renewed.pop(lease, None)
        self.store.transact(lambda db: db.execute(sa.delete(LQ).where(*_mine(lease))), twice=True)

    def sweep(self) -> None:
        """Delete tickets that stood still for too long while this process watched."""
        if self.store.outages != self._outages:
            # No ticket could be renewed while the store was away.
            self._outages = self.store.outages
            self._watch.restart()
        rows = self.store.look(sa.select(LQ))
        tickets = {Lease(row.name, row.ticket, row.owner): row.beats for row in rows}
        self._watch.keep(tickets)
        for lease, beats in tickets.items():
            if self._is_lost(lease, beats):
                gone = sa.delete(LQ).where(*_mine(lease), LQ.c.beats == beats)
                self.store.transact(lambda db, gone=gone: db.execute(gone), twice=True)  # type: ignore[misc]

    def is_first(self, lease: Lease) -> bool:
        """Return True if this ticket holds the lock now."""
        return self._comes_first(lease, self.store.look(_up_to(lease)))

    def holds(self, db: sa.Connection, lease: Lease) -> bool:
        """Return True if this ticket holds the lock, within a transaction."""
        return self._comes_first(lease, db.execute(_up_to(lease)).all())

    def _comes_first(self, lease: Lease, rows: Sequence[Any]) -> bool:
        """Return True if the ticket is among the rows and in time, and all before it are lost."""
        there = False
        for row in rows:
            other = Lease(row.name, row.ticket, row.owner)
            if other == lease:
                there = self._in_time(lease)
            elif not self._is_lost(other, row.beats):
                return False
        return there

    def _is_lost(self, lease: Lease, beats: float) -> bool:
        return self._watch.is_silent(lease, beats) or not self._in_time(lease)

    def _in_time(self, lease: Lease) -> bool:
        """Return True unless this process's last renewal is too long ago; True for tickets of other processes."""
        renewed = self._renewed.get(lease)
        return renewed is None or self.monotonic() - renewed < self.ttl


def _mine(lease: Lease) -> tuple[Any, ...]:
    return LQ.c.name == lease.name, LQ.c.ticket == lease.ticket


def _up_to(lease: Lease) -> sa.Select[Any]:
    return sa.select(LQ).where(LQ.c.name == lease.name, LQ.c.ticket <= lease.ticket)
