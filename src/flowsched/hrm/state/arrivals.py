"""Units and tasks that join the shared state: checked, and written as rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from flowsched.boundary.validate import ordered
from flowsched.exceptions import InputError
from flowsched.hrm.containers import Container, Trigger, sense
from flowsched.hrm.ids import name as name_of
from flowsched.hrm.state.claims import Status
from flowsched.hrm.state.schema import AMOUNT_NAMES, JS, MS, RS, RT, SHARED, UNITS_CHANGED
from flowsched.hrm.state.store import Store
from flowsched.hrm.state.unit_rows import UnitRows
from flowsched.hrm.units import ResourceUnit

__all__ = ["checked_containers", "insert_tasks", "insert_units", "rows_of_units"]


def rows_of_units(units: Iterable[ResourceUnit], length: int, places: int, now: float) -> list[dict[str, Any]]:
    """Return the rows of RS of new units, which are empty; see `Negotiator.add_units`."""
    rows: list[dict[str, Any]] = []
    for unit in ordered("units", units):
        if not isinstance(unit, ResourceUnit):
            raise InputError(f"units: a ResourceUnit expected, got {unit!r}")
        id = name_of("units: id", unit.id)
        machine = name_of(f"unit {id!r}: machine", unit.machine)
        amounts = dict(zip(AMOUNT_NAMES, (*unit.capacity.tolist(), places), strict=True))
        every = {prefix + name: amount for prefix in ("", "free_", "stream_") for name, amount in amounts.items()}
        rows.append(
            {
                "ru_id": id, "machine_id": machine, "type": SHARED if unit.shared else unit.type, **every,
                "length": length, "waiting": 0, "paused": 0, "wtime": now, "alive": 1, "version": 1,
            }
        )  # fmt: skip
    return rows


def insert_units(store: Store, db: sa.Connection, rows: Sequence[dict[str, Any]], now: float) -> list[str]:
    """Write the rows of units, and those of machines that are new; return these machines."""
    machines = dict.fromkeys(row["machine_id"] for row in rows)
    known = set(db.execute(sa.select(MS.c.machine_id)).scalars())
    fresh = [machine for machine in machines if machine not in known]
    if fresh:
        db.execute(sa.insert(MS), [{"machine_id": machine, "beats": 0, "alive": 1} for machine in fresh])
    if rows:
        db.execute(sa.insert(RS), rows)
    # Their cores may be in use on units that were there before.
    UnitRows(store, db, [row["ru_id"] for row in rows if row["type"] == SHARED], now).save()
    store.count_up(db, UNITS_CHANGED)
    return fresh


def checked_containers(
    job: str, containers: Sequence[Container], trigger: Trigger | None = None
) -> Sequence[Container]:
    """Return the containers of a job, of the kind that its trigger tells.

    InputError unless they are of one kind, with ids that a store can carry.
    """
    containers = ordered("containers", containers)
    for i, container in enumerate(containers):
        if not isinstance(container, Container):
            raise InputError(f"job {job!r}: containers[{i}]: a Container expected, got {container!r}")
        name_of(f"job {job!r}: containers[{i}]: id", container.id)
    if trigger is not None:
        containers = [replace(container, kind=sense(trigger)) for container in containers]
    kinds = {container.kind for container in containers}
    if len(kinds) != 1:
        raise InputError(f"job {job!r}: containers of one kind expected, got {sorted(kinds)}")
    return containers


def insert_tasks(
    db: sa.Connection,
    job: str,
    containers: Sequence[Container],
    owner: str | None,
    stages: int,
    now: float,
    name: str | None = None,
    work: str | None = None,
) -> None:
    """Write the rows of open tasks, and count them in their job's row, which is made if there is none."""
    rows = [
        {
            "task_id": c.id, "job_id": job, "kind": c.kind, "priority": c.priority,
            **dict(zip(("vcore", "mem", "gmem"), c.need, strict=False)), "gpu": int(c.need[2] > 0),
            "time": c.duration, "status": Status.OPEN, "launched": 0, "since": now, "seq": 0,
        }
        for c in containers
    ]  # fmt: skip
    kind, gpus = containers[0].kind, sum(c.need[2] > 0 for c in containers)
    more = {"tasks": JS.c.tasks + len(rows), "gpus": JS.c.gpus + gpus, "open": JS.c.open + len(rows)}
    db.execute(sa.insert(RT), rows)
    if not db.execute(sa.update(JS).where(JS.c.job_id == job, JS.c.kind == kind).values(more)).rowcount:
        fresh = {"start": now, "stages": stages, "tasks": len(rows), "gpus": gpus, "open": len(rows)}
        db.execute(
            sa.insert(JS).values(job_id=job, kind=kind, scheduler=owner, name=name, work=work, held=0, done=0, **fresh)
        )
