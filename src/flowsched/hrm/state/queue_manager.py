"""The queue manager (HRM, section 2.1): units' queues are created, deleted, and given other attributes; stream jobs change size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import sqlalchemy as sa

from flowsched.boundary.validate import instance, ordered
from flowsched.exceptions import InputError, UnknownIdError
from flowsched.hrm.containers import Container, Trigger, sense
from flowsched.hrm.ids import name as name_of
from flowsched.hrm.rebalancing import Elastic
from flowsched.hrm.state.claims import Status
from flowsched.hrm.state.heartbeats import open_again
from flowsched.hrm.state.schema import AMOUNT_NAMES, JS, MS, RS, RT, SHARED, UNITS_CHANGED
from flowsched.hrm.state.store import Store, among, packed
from flowsched.hrm.state.unit_rows import UnitRows, container_of
from flowsched.hrm.units import ResourceUnit


def change_units(
    store: Store, db: sa.Connection, units: Sequence[str], length: int | None, places: int | None, now: float
) -> list[str]:
    """Set attributes of queues; return the tasks that start thereby.  See `Negotiator.set_units`."""
    _hold(store, db, units)
    told = {"length": length, "places": places}
    values = {name: value for name, value in told.items() if value is not None}
    if values:
        db.execute(sa.update(RS).where(among(store.dialect, RS.c.ru_id)).values(values), {"ids": packed(units)})
    unit_rows = UnitRows(store, db, units, now)
    for queue in unit_rows.queues.values():
        queue.wake(now)
    started = unit_rows.save()
    store.count_up(db, UNITS_CHANGED)
    return started


def delete_units(store: Store, db: sa.Connection, units: Sequence[str], now: float) -> list[str]:
    """Delete units; return their tasks, which are open again.  See `Negotiator.remove_units`."""
    _hold(store, db, units)
    unit_rows = UnitRows(store, db, units, now)
    opened = sorted(task for unit in units for task in unit_rows.tasks(unit))
    open_again(unit_rows, opened)
    ids = {"ids": packed(units)}
    db.execute(sa.delete(RS).where(among(store.dialect, RS.c.ru_id)), ids)
    store.count_up(db, UNITS_CHANGED)
    return opened


def resize(
    store: Store, db: sa.Connection, job: str, load: float, elastic: Elastic, now: float
) -> tuple[list[Container], list[str]]:
    """Return the containers that a stream job lacks at that load, or end those that it has too many; return these, too.

    See `Negotiator.resize`.
    """
    query = sa.select(RT).where(RT.c.job_id == job, RT.c.kind == "stream").order_by(RT.c.task_id)
    # The rows of open tasks are held; those on units are read again when the units' rows are held.
    held = {row.task_id for row in db.execute(store.lock_rows(query.where(RT.c.status == Status.OPEN)))}
    rows = db.execute(query).all()
    live = [row for row in rows if row.status != Status.DONE]
    if not live:
        raise UnknownIdError(f"unknown stream job {job!r}, or all its containers have ended")
    target = elastic.target(len(live), load)
    if target >= len(live):
        like, known = container_of(live[0]), {row.task_id for row in rows}
        free = (id for k in count(len(rows)) if (id := f"{job}+{k}") not in known)
        return [replace(like, id=next(free)) for _ in range(target - len(live))], []
    # Open ones first, then those that came last.
    excess = sorted(live, key=lambda row: (row.task_id not in held, -row.since, row.task_id))[: len(live) - target]
    waiting = [row.task_id for row in excess if row.task_id in held]
    unit_rows = UnitRows(store, db, {row.queue_id for row in excess if row.queue_id is not None}, now)
    there = [row.task_id for row in excess if unit_rows.task(row.task_id) is not None]
    for id in there:
        unit_rows.queues[unit_rows.task(id).queue_id].remove(id, now)
        unit_rows.leave(id, Status.DONE)
    over = sa.update(RT).where(among(store.dialect, RT.c.task_id)).values(status=Status.DONE, wish=None, since=now)
    db.execute(over, {"ids": packed(waiting)})
    if waiting:
        unit_rows.moves.setdefault(job, Counter()).update(open=-len(waiting), done=len(waiting))
    unit_rows.save()
    return [], sorted(waiting + there)


def _hold(store: Store, db: sa.Connection, units: Sequence[str]) -> None:
    """Hold the units' rows, in order."""
    query = sa.select(RS.c.ru_id).where(among(store.dialect, RS.c.ru_id)).order_by(RS.c.ru_id)
    found = set(db.execute(store.lock_rows(query), {"ids": packed(units)}).scalars())
    unknown = [unit for unit in units if unit not in found]
    if unknown:
        raise UnknownIdError(f"unknown unit {unknown[0]!r}")


def rows_of_units(units: Iterable[ResourceUnit], length: int, places: int, now: float) -> list[dict[str, Any]]:
    """Return the rows of RS of new units, which are empty; see `Negotiator.add_units`."""
    rows: list[dict[str, Any]] = []
    for unit in ordered("units", units):
        instance("units", unit, ResourceUnit)
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
    """Return the containers of a job, with the kind of its trigger.

    InputError unless they are of one kind, with ids that a store can carry.
    """
    containers = ordered("containers", containers)
    for i, container in enumerate(containers):
        instance(f"job {job!r}: containers[{i}]", container, Container)
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
