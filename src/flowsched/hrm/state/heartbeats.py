"""Heartbeats of machines, ends of tasks, and their consequences.

A task that was launched on a machine has ended when the machine says so, whatever its state in the shared queues of the unit.
The machine may have started it before tasks that are claimed but not launched, and it may have ended before a stream paused it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import sqlalchemy as sa

from flowsched.exceptions import UnknownMachineError
from flowsched.hrm.clocks import Clock
from flowsched.hrm.containers import Container
from flowsched.hrm.rebalancing import rebalance
from flowsched.hrm.state.claims import Report, Status
from flowsched.hrm.state.history import History
from flowsched.hrm.state.liveness import HeartbeatCounters, SchedulerHeartbeats
from flowsched.hrm.state.optimistic import FairShares
from flowsched.hrm.state.schema import JS, MS, RS, RT, UNITS_CHANGED
from flowsched.hrm.state.store import Store, among, packed
from flowsched.hrm.state.unit_rows import OvertakenError, UnitRows, container_of


@dataclass(frozen=True, slots=True)
class _Changes:
    """Changes by one heartbeat: ended tasks, tasks started in their place, granted wishes; and the machine's counter."""

    finished: tuple[str, ...]
    started: tuple[str, ...]
    granted: tuple[str, ...]
    count: float = 0


class MachineHeartbeats:
    """Heartbeats of machines; the parameters are the negotiator's."""

    def __init__(
        self,
        store: Store,
        schedulers: SchedulerHeartbeats,
        shares: FairShares,
        ttl: float,
        patience: float,
        clock: Clock,
        monotonic: Clock,
        history: History,
    ) -> None:
        self.store, self.schedulers, self.shares, self.clock = store, schedulers, shares, clock
        self.history = history
        self.patience = patience
        self.beats = HeartbeatCounters(store, MS.c.machine_id, ttl, monotonic)

    def finish(self, tasks: Sequence[str]) -> list[str]:
        """Record the end of tasks; see `Negotiator.finish`."""

        def work(db: sa.Connection) -> list[str]:
            unit_rows = self._unit_rows(db, tasks, ())
            ran: dict[str, list[float]] = {}
            _end(unit_rows, tasks, {}, ran)
            started = unit_rows.save()
            self.history.observe(db, ran)
            return started

        return self.store.transact(work)

    def heartbeat(
        self,
        machine: str,
        finished: Sequence[str],
        present: set[str] | None,
        waiting: Sequence[str],
        seconds: Mapping[str, float | None],
    ) -> Report:
        """Answer a machine's heartbeat; see `Negotiator.heartbeat`."""
        heard = self.store.look(_HEARD, machine=machine)
        if not heard:
            raise UnknownMachineError(f"unknown machine {machine!r}")
        me = heard[0]
        late = waiting if self.patience < math.inf else ()
        changes = _Changes((), (), ())
        if finished or late or not me.alive or self.beats.is_due(machine):
            begin = self.beats.monotonic()
            grant = bool(me.wishes) and (bool(finished) or not me.alive)
            try:
                changes = self.store.transact(lambda db: self._beat(db, machine, finished, late, grant, seconds))
            except OvertakenError:
                # The rest of the heartbeat stands; wishes stay until their tasks are placed.
                changes = self.store.transact(lambda db: self._beat(db, machine, finished, late, False, seconds))
            self.beats.note(machine, changes.count, begin)
        stale: list[str] = []
        missing: list[str] = []
        if present is not None:
            known = {row.task_id: row.launched for row in self.store.look(_ON_MACHINE, machine=machine)}
            stale = sorted(present - known.keys())
            missing = sorted(task for task, launched in known.items() if launched and task not in present)
        return Report(changes.finished, changes.started, changes.granted, tuple(stale), tuple(missing))

    def _beat(
        self,
        db: sa.Connection,
        machine: str,
        finished: Sequence[str],
        waiting: Sequence[str],
        grant: bool,
        seconds: Mapping[str, float | None],
    ) -> _Changes:
        me = MS.c.machine_id == machine
        beat = sa.update(MS).values(beats=MS.c.beats + 1).returning(MS.c.beats)
        count = db.execute(beat.where(me, MS.c.alive == 1)).scalar()
        back = count is None
        units: Sequence[str] = ()
        if back:
            count = db.execute(beat.where(me).values(alive=1)).scalar()
            units = db.execute(sa.select(RS.c.ru_id).where(RS.c.machine_id == machine)).scalars().all()
            self.store.count_up(db, UNITS_CHANGED)
        wishes = self._wishes(db, machine) if grant else []
        idle = self._idle(db, machine, len(waiting)) if waiting else ()
        others = {*units, *idle, *(wish.wish for wish in wishes)}
        unit_rows = self._unit_rows(db, (*finished, *waiting) if idle else finished, others)
        ran: dict[str, list[float]] = {}
        ended = _end(unit_rows, finished, seconds, ran)
        ended += _end_others(unit_rows, finished, machine)
        granted = self._grant(db, unit_rows, wishes, back)
        self._rebalance(unit_rows, idle, waiting)
        started = unit_rows.save(alive=1 if back else None)
        self.history.observe(db, ran)
        return _Changes(tuple(ended), tuple(started), tuple(granted), count or 0)

    def _idle(self, db: sa.Connection, machine: str, most: int) -> Sequence[str]:
        """Return units of other machines without waiting tasks and with room, the most room first."""
        return db.execute(_IDLE, {"machine": machine, "most": most}).scalars().all()

    def _rebalance(self, unit_rows: UnitRows, idle: Sequence[str], waiting: Sequence[str]) -> None:
        """Move tasks that wait on the machine, as of its heartbeat, and would wait too long, to idle units."""
        there = [unit_rows.queues[unit] for unit in idle if unit_rows.alive(unit)]
        here = [queue for unit, queue in unit_rows.queues.items() if unit not in idle]
        if not there:
            return
        told = set(waiting)

        def may(container: Container) -> bool:
            # A scheduler that has not launched the task would send it to its old unit.
            row = unit_rows.task(str(container.id))
            return container.id in told and row is not None and bool(row.launched)

        for move in rebalance(here, unit_rows.now, self.patience, onto=there, may=may):
            unit_rows.move(str(move.container))

    def _unit_rows(self, db: sa.Connection, tasks: Sequence[str], units: Sequence[str] | set[str]) -> UnitRows:
        """Hold the rows of the units that these tasks are on, and of `units`."""
        on = db.execute(_units_of(self.store.dialect), {"ids": packed(tasks)}).scalars() if tasks else ()
        return UnitRows(self.store, db, {*units, *on}, self.clock())

    def _wishes(self, db: sa.Connection, machine: str) -> list[Any]:
        """Return the open tasks that a unit of the machine refused, of live schedulers; their rows are held."""
        query = _WISHES.add_columns(JS.c.scheduler.label("owner")).join(JS, JS.c.job_id == RT.c.job_id)
        owners = {row.owner for row in db.execute(query, {"machine": machine}) if row.owner is not None}
        held = self.schedulers.hold_those_alive(db, owners)
        if not held:
            return []
        # From here on these schedulers cannot be declared lost, so tasks granted to them will be launched.
        if self.store.dialect == "postgresql":
            query = query.with_for_update(of=RT, skip_locked=True)
        return [row for row in db.execute(query, {"machine": machine}) if row.owner in held]

    def _grant(self, db: sa.Connection, unit_rows: UnitRows, wishes: Sequence[Any], back: bool) -> list[str]:
        """Start tasks on the units that had refused them, as far as room and the jobs' shares allow; return them."""
        unit_rows.caps = self.shares.caps(db, wishes)
        left = {job: cap - held for job, (cap, held) in unit_rows.caps.items()}
        for job in left.keys() & unit_rows.moves.keys():
            left[job] -= unit_rows.moves[job]["held"]
        granted: list[str] = []
        for row in wishes:
            queue, container = unit_rows.queues[row.wish], container_of(row)
            if queue.has_room(container) and left[row.job_id] > 0 and (back or unit_rows.alive(row.wish)):
                queue.submit(container, unit_rows.now)
                unit_rows.enter(row, row.owner)
                left[row.job_id] -= 1
                granted.append(row.task_id)
        return sorted(granted)


def _end(
    unit_rows: UnitRows, tasks: Sequence[str], seconds: Mapping[str, float | None], ran: dict[str, list[float]]
) -> list[str]:
    """End those of the tasks that run; return them.

    Run times are added to `ran` by job: as the machine tells them, else from the start that the shared state knows.
    """
    ended: list[str] = []
    left = [id for id in tasks if unit_rows.task(id) is not None]
    # A task that followed another one may have ended, too, before the heartbeat.
    while now := [id for id in left if id in unit_rows.queues[unit_rows.task(id).queue_id].running]:
        for id in now:
            unit_rows.queues[unit_rows.task(id).queue_id].finish(id, unit_rows.now)
        for id in now:
            row = unit_rows.task(id)
            known = unit_rows.now - row.since if row.status == Status.RUNNING else None
            took = seconds.get(id, known)
            if took is not None:
                ran.setdefault(row.job_id, []).append(max(took, 0.0))
            unit_rows.leave(id, Status.DONE)
        left = [id for id in left if id not in now]
        ended += now
    return ended


def _end_others(unit_rows: UnitRows, tasks: Sequence[str], machine: str) -> list[str]:
    """End those of the tasks that were launched on the machine but do not run in the shared state; return them."""
    ended = [
        id
        for id in tasks
        if (row := unit_rows.task(id)) and row.launched and unit_rows.machine(row.queue_id) == machine
    ]
    for id in ended:
        unit_rows.queues[unit_rows.task(id).queue_id].remove(id, unit_rows.now)
        unit_rows.leave(id, Status.DONE)
    return ended


_WISHES = (
    sa.select(RT)
    .join(RS, RS.c.ru_id == RT.c.wish)
    .where(RS.c.machine_id == sa.bindparam("machine"), RT.c.status == Status.OPEN)
    .order_by(RT.c.wish, RT.c.priority, RT.c.since, RT.c.task_id)
)

_HEARD = sa.select(MS.c.alive, _WISHES.exists().label("wishes")).where(MS.c.machine_id == sa.bindparam("machine"))

_ON_MACHINE = (
    sa.select(RT.c.task_id, RT.c.launched)
    .join(RS, RS.c.ru_id == RT.c.queue_id)
    .where(RS.c.machine_id == sa.bindparam("machine"))
)


_IDLE = (
    sa.select(RS.c.ru_id)
    .where(RS.c.machine_id != sa.bindparam("machine"), RS.c.alive == 1, RS.c.waiting == 0, RS.c.paused == 0)
    .where(RS.c.free_places > 0, RS.c.free_vcore + RS.c.free_gmem > 0)
    .order_by((RS.c.free_vcore + RS.c.free_gmem).desc(), RS.c.ru_id)
    .limit(sa.bindparam("most"))
)


@cache
def _units_of(dialect: str) -> sa.Select[Any]:
    return sa.select(RT.c.queue_id).where(among(dialect, RT.c.task_id), RT.c.queue_id.is_not(None)).distinct()
