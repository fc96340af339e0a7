"""Queries of the shared state that change nothing; ids are checked by the caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from flowsched.hrm.containers import Container
from flowsched.hrm.state.claims import JobState, Status, UnitState
from flowsched.hrm.state.schema import JS, RS, RT
from flowsched.hrm.state.store import Store, among, packed
from flowsched.hrm.state.unit_rows import container_of, state_of

__all__ = ["jobs", "on_machine", "tasks", "units"]


_GONE = -1
"""Version of a unit that was deleted."""


def units(store: Store, now: float, known: Mapping[str, int] | None = None) -> list[UnitState]:
    """Return the units whose version is not the `known` one, or all; by id; then those that were deleted, as lost ones."""
    if known is None:
        return [state_of(row, now) for row in store.look(_UNITS)]
    versions = {row.ru_id: row.version for row in store.look(_VERSIONS)}
    changed = [unit for unit, version in versions.items() if known.get(unit) != version]
    gone = [_gone(unit) for unit in sorted(known.keys() - versions.keys()) if known[unit] != _GONE]
    if not changed:
        return gone
    query = _UNITS.where(among(store.dialect, RS.c.ru_id))
    return [state_of(row, now) for row in store.look(query, ids=packed(changed))] + gone


def _gone(unit: str) -> UnitState:
    """Return the state of a unit that was deleted."""
    nothing = (0, 0, 0, 0)
    return UnitState(unit, "", nothing, nothing, nothing, 0, alive=False, version=_GONE)


def jobs(store: Store, scheduler: str | None) -> list[JobState]:
    """Return the jobs with tasks that are not done, of one scheduler or all; oldest first."""
    query = sa.select(JS).where(JS.c.open + JS.c.held > 0).order_by(JS.c.start, JS.c.job_id)
    if scheduler is not None:
        query = query.where(JS.c.scheduler == scheduler)
    return [
        JobState(r.job_id, r.kind, r.scheduler, r.start, r.stages, r.tasks, r.open, r.held, r.done)
        for r in store.look(query)
    ]


def tasks(store: Store, job: str, statuses: Sequence[Status]) -> list[Container]:
    """Return the tasks of a job in these states, by id."""
    where = [RT.c.job_id == job, RT.c.status.in_(statuses)]
    return [container_of(row) for row in store.look(sa.select(RT).where(*where).order_by(RT.c.task_id))]


def on_machine(store: Store, machine: str) -> list[tuple[str, Container]]:
    """Return unit and container of all tasks that were launched on a machine; running ones first."""
    launched = sa.select(RT).join(RS, RS.c.ru_id == RT.c.queue_id).where(RS.c.machine_id == machine, RT.c.launched == 1)
    rows = sorted(store.look(launched), key=lambda r: (r.status == Status.WAITING, r.seq, r.task_id))
    return [(row.queue_id, container_of(row)) for row in rows]


_UNITS = sa.select(RS).order_by(RS.c.ru_id)

_VERSIONS = sa.select(RS.c.ru_id, RS.c.version)
