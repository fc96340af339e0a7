"""The pessimistic path: all containers of a stream job at wait 0 under a lock, on fresh state, or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import sqlalchemy as sa

from flowsched.hrm.containers import Container, Outcome
from flowsched.hrm.state.claims import Claim, ExpiredError, Granted, Refusal, Status, UnitState
from flowsched.hrm.state.liveness import SchedulerHeartbeats
from flowsched.hrm.state.locks import Lease, Leases
from flowsched.hrm.state.schema import RT
from flowsched.hrm.state.store import Store, among, packed
from flowsched.hrm.state.unit_rows import UnitRows, container_of

__all__ = ["Pessimistic", "Place"]

Place = Callable[[Sequence[Container], Sequence[UnitState]], Mapping[str, str] | None]
"""Function of the open tasks and the fresh state of all units: unit by task, or None if no placement exists."""


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
