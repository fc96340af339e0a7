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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from flowsched.exceptions import TimeLimitError
from flowsched.hrm.clocks import Clock, Watch
from flowsched.hrm.containers import Container, Outcome
from flowsched.hrm.state.claims import Claim, ExpiredError, Granted, Refusal, Status, UnitState
from flowsched.hrm.state.heartbeats import SchedulerHeartbeats
from flowsched.hrm.state.schema import LQ, RT
from flowsched.hrm.state.store import Store, among, packed
from flowsched.hrm.state.unit_rows import UnitRows, container_of

Place = Callable[[Sequence[Container], Sequence[UnitState]], Mapping[str, str] | None]
"""Function of the open tasks and the fresh state of all units: unit by task, or None if no placement exists."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A drawn ticket of a lock."""

    name: str
    ticket: int
    owner: str


class Leases:
    """Locks by name, each held by its smallest live ticket.

    A ticket expires after `ttl` seconds without a renewal, by this process's own time.
    """

    def __init__(self, store: Store, ttl: float, monotonic: Clock) -> None:
        self.store, self.ttl, self.monotonic = store, ttl, monotonic
        self._watch = Watch(ttl, monotonic)
        self._outages = store.outages
        self._renewed: dict[Lease, float] = {}  # by ticket of this process: the begin of its last renewal

    @contextmanager
    def hold(self, name: str, owner: str, timeout: float = 60.0) -> Iterator[Lease]:
        """Wait for the lock and hold it; raise TimeLimitError if `timeout` seconds did not suffice."""
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


class _RefusedError(Exception):
    """Undoes the transaction of a stream job that cannot have all its claims."""


class Pessimistic:
    """Claims of stream jobs; the parameters are the negotiator's."""

    def __init__(self, store: Store, schedulers: SchedulerHeartbeats, leases: Leases) -> None:
        self.store, self.schedulers, self.leases = store, schedulers, leases

    def claim(
        self, scheduler: str, tasks: Sequence[Container], where: Mapping[str, str] | None, lease: Lease
    ) -> Granted:
        """Grant all claims that were made under the lock, or none; see `Negotiator.stream`."""
        claims = [Claim(str(c.id), where[str(c.id)]) for c in tasks] if where else []
        if len(claims) < len(tasks):
            return Granted((), tuple((Claim(str(c.id), ""), Refusal.CONFLICT) for c in tasks))
        try:
            return self.store.transact(lambda db: self._commit(db, scheduler, claims, lease))
        except _RefusedError:
            return Granted((), tuple((claim, Refusal.CONFLICT) for claim in claims))

    def _commit(self, db: sa.Connection, scheduler: str, claims: Sequence[Claim], lease: Lease) -> Granted:
        self.schedulers.hold(db, scheduler)
        if not self.leases.holds(db, lease):
            raise ExpiredError(f"scheduler {scheduler!r}: its lock has expired")
        query = sa.select(RT).where(among(self.store.dialect, RT.c.task_id), RT.c.status == Status.OPEN)
        found = db.execute(self.store.lock_rows(query.order_by(RT.c.task_id)), {"ids": packed(c.task for c in claims)})
        rows = {row.task_id: row for row in found}
        unit_rows = UnitRows(self.store, db, {claim.unit for claim in claims}, self.schedulers.clock())
        for claim in claims:
            row = rows.get(claim.task)
            if row is None or row.kind != "stream" or not unit_rows.alive(claim.unit):
                raise _RefusedError
            unit_rows.enter(row, scheduler)
            if unit_rows.queues[claim.unit].submit(container_of(row), unit_rows.now).outcome is not Outcome.STARTED:
                raise _RefusedError
        unit_rows.save()
        return Granted(tuple(claims))
