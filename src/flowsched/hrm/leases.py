"""The lock of the pessimistic path: first come first served, and it expires when its holder is gone.

Who wants it draws a ticket; the smallest ticket that has not expired holds it.  Tickets are drawn under the lock of the
ticket machine's row, so that a smaller one never appears later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from flowsched.exceptions import TimeLimitError
from flowsched.hrm.store import Store
from flowsched.hrm.tables import LQ

__all__ = ["Lease", "Leases"]


@dataclass(frozen=True, slots=True)
class Lease:
    """A drawn ticket."""

    name: str
    ticket: int
    owner: str


class Leases:
    """Locks by name.

    Parameters
    ----------
    store : Store
    ttl : float
        Seconds after which a ticket expires whose owner does not renew it.
    clock : callable
        The time; of all that share the store it should agree to a small part of `ttl`.
    """

    def __init__(self, store: Store, ttl: float, clock: Callable[[], float]) -> None:
        self.store, self.ttl, self.clock = store, ttl, clock

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
            deadline, renew = time.monotonic() + timeout, self.clock() + self.ttl / 3
            while not self.is_first(lease):
                if time.monotonic() > deadline:
                    raise TimeLimitError(f"lock {name!r}: not free within {timeout:g} s")
                if self.clock() > renew:
                    if not self.renew(lease):
                        # It came too late: others have gone before by now, so this one is at the end again.
                        self.release(lease)
                        lease = self.draw(name, owner)
                    renew = self.clock() + self.ttl / 3
                time.sleep(0.002)
            yield lease
        finally:
            self.release(lease)

    def draw(self, name: str, owner: str) -> Lease:
        """Draw a ticket."""

        def work(db: sa.Connection) -> Lease:
            ticket = self.store.count_up(db, name)
            until = self.clock() + self.ttl
            db.execute(sa.insert(LQ).values(name=name, ticket=ticket, owner=owner, until=until))
            return Lease(name, ticket, owner)

        return self.store.transact(work)

    def renew(self, lease: Lease) -> bool:
        """The owner is still there; whether it was heard in time."""
        now = self.clock()
        mine = sa.and_(LQ.c.name == lease.name, LQ.c.ticket == lease.ticket, LQ.c.until > now)
        renewal = sa.update(LQ).where(mine).values(until=now + self.ttl)
        return bool(self.store.transact(lambda db: db.execute(renewal).rowcount))

    def release(self, lease: Lease) -> None:
        """Give the ticket back."""
        mine = sa.and_(LQ.c.name == lease.name, LQ.c.ticket == lease.ticket)
        self.store.transact(lambda db: db.execute(sa.delete(LQ).where(mine)))

    def sweep(self) -> None:
        """Throw expired tickets away; they count for nothing already."""
        self.store.transact(lambda db: db.execute(sa.delete(LQ).where(LQ.c.until <= self.clock())))

    def is_first(self, lease: Lease) -> bool:
        """Whether this ticket is the one that holds the lock now."""
        return bool(self.store.look(self._first(lease))[0][0] == lease.ticket)

    def holds(self, db: sa.Connection, lease: Lease) -> bool:
        """The same within a transaction."""
        return bool(db.execute(self._first(lease)).scalar() == lease.ticket)

    def _first(self, lease: Lease) -> sa.Select[Any]:
        return sa.select(sa.func.min(LQ.c.ticket)).where(LQ.c.name == lease.name, LQ.c.until > self.clock())
