"""Heartbeats of schedulers and machines, ends of tasks, and their consequences.

A task that was launched on a machine has ended when the machine says so, whatever its state in the shared queues of the unit.
The machine may have started it before tasks that are claimed but not launched, and it may have ended before a stream paused it.

Liveness of schedulers and machines by heartbeats, and release of the tasks of lost ones.

A heartbeat adds one to its sender's counter; no time is written, and no two clocks are compared, see `clocks`.
It is written only if the last one that this process wrote is older than an eighth of the ttl, by its own clock; so most
heartbeats only read.
A process declares a sender lost after its counter has stood still for the ttl, while this process watched and the store was
there, and only if the counter is still the same then.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import sqlalchemy as sa

from flowsched.exceptions import UnknownIdError, UnknownMachineError
from flowsched.hrm.clocks import Clock, Watch
from flowsched.hrm.containers import Container
from flowsched.hrm.ids import name as name_of
from flowsched.hrm.rebalancing import rebalance
from flowsched.hrm.state.claims import ExpiredError, Report, Status
from flowsched.hrm.state.history import History
from flowsched.hrm.state.optimistic import FairShares
from flowsched.hrm.state.schema import JS, LQ, MS, RS, RT, SC, UNITS_CHANGED
from flowsched.hrm.state.store import Store, among, packed
from flowsched.hrm.state.unit_rows import OvertakenError, UnitRows, container_of


class HeartbeatCounters:
    """Counters of heartbeats in one table: some written by this process, all watched, by this process's own time.

    `key` is the key of SC or MS.
    """

    def __init__(self, store: Store, key: sa.Column[str], ttl: float, monotonic: Clock) -> None:
        self.store, self.key, self.ttl, self.monotonic = store, key, ttl, monotonic
        self._watch = Watch(ttl, monotonic)
        self._outages = store.outages
        self._written: dict[str, float] = {}  # by sender: the begin of the last heartbeat that this process wrote

    def is_due(self, name: str) -> bool:
        """Return True if a heartbeat should be written."""
        written = self._written.get(name)
        return written is None or self.monotonic() - written > self.ttl / 8

    def note(self, name: str, count: float, begin: float) -> None:
        """Note a heartbeat that was written, in a transaction that began at `begin`."""
        self._written[name] = begin
        self._watch.note(name, count)

    def silent(self) -> dict[str, float]:
        """Return the senders that count as alive but have been silent for too long, with their counters."""
        rows = self.key.table.c
        found = self.store.look(sa.select(self.key, rows.beats).where(rows.alive == 1).order_by(self.key))
        if self.store.outages != self._outages:
            # No heartbeat could arrive while the store was away.
            self._outages = self.store.outages
            self._watch.restart()
        counts = {row[0]: row.beats for row in found}
        self._watch.keep(counts)
        return {name: count for name, count in counts.items() if self._watch.is_silent(name, count)}


class SchedulerHeartbeats:
    """Heartbeats of schedulers; the parameters are the negotiator's."""

    def __init__(self, store: Store, ttl: float, clock: Clock, monotonic: Clock) -> None:
        self.store, self.ttl, self.clock = store, ttl, clock
        self.beats = HeartbeatCounters(store, SC.c.scheduler, ttl, monotonic)

    def join(self, name: str) -> None:
        """Add a scheduler, or bring it back."""
        begin = self.beats.monotonic()

        def work(db: sa.Connection) -> float:
            back = sa.update(SC).where(SC.c.scheduler == name).values(beats=SC.c.beats + 1, alive=1)
            count = db.execute(back.returning(SC.c.beats)).scalar()
            if count is None:
                db.execute(sa.insert(SC).values(scheduler=name, beats=0, alive=1))
            return count or 0

        self.beats.note(name, self.store.transact(work, twice=True), begin)

    def hear(self, name: str) -> list[str]:
        """Take a heartbeat; return the tasks that were granted to the scheduler and that it has not launched.

        Raise UnknownIdError or ExpiredError if it never was, or no longer is, one of the schedulers.
        """
        rows = self.store.look(_BEAT, name=name_of("scheduler", name))
        self._check(name, rows[0].alive if rows else None)
        if self.beats.is_due(name):
            self.renew(name)
        return sorted(row.task_id for row in rows if row.task_id is not None)

    def renew(self, name: str) -> None:
        """Write a heartbeat."""
        begin = self.beats.monotonic()
        beat = sa.update(SC).where(SC.c.scheduler == name, SC.c.alive == 1).values(beats=SC.c.beats + 1)
        count = self.store.transact(lambda db: db.execute(beat.returning(SC.c.beats)).scalar(), twice=True)
        if count is None:
            self._check(name, 0)
        else:
            self.beats.note(name, count, begin)

    def hold(self, db: sa.Connection, name: str) -> bool:
        """Hold the scheduler's row, so that it cannot be declared lost in this transaction; return True if it should `renew`."""
        alive = db.execute(self.store.lock_rows(_SCHEDULER, shared=True), {"name": name_of("scheduler", name)}).scalar()
        self._check(name, alive)
        return self.beats.is_due(name)

    def hold_those_alive(self, db: sa.Connection, names: set[str]) -> set[str]:
        """Hold the rows of those of the schedulers that are alive; return their names."""
        query = self.store.lock_rows(_those_alive(self.store.dialect), shared=True)
        return set(db.execute(query, {"ids": packed(names)}).scalars()) if names else set()

    def _check(self, name: str, alive: int | None) -> None:
        if alive is None:
            raise UnknownIdError(f"unknown scheduler {name!r}")
        if not alive:
            raise ExpiredError(f"scheduler {name!r}: not heard of for {self.ttl:g} s; add it again")


_SCHEDULER = sa.select(SC.c.alive).where(SC.c.scheduler == sa.bindparam("name"))

_NOT_LAUNCHED = sa.and_(RT.c.scheduler == SC.c.scheduler, RT.c.launched == 0, RT.c.queue_id.is_not(None))

_BEAT = (
    sa.select(SC.c.alive, RT.c.task_id)
    .join_from(SC, RT, _NOT_LAUNCHED, isouter=True)
    .where(SC.c.scheduler == sa.bindparam("name"))
)


@cache
def _those_alive(dialect: str) -> sa.Select[Any]:
    return sa.select(SC.c.scheduler).where(among(dialect, SC.c.scheduler), SC.c.alive == 1).order_by(SC.c.scheduler)


def lost_scheduler(store: Store, db: sa.Connection, *, name: str, count: float, now: float) -> list[str]:
    """Open the tasks that a scheduler claimed and did not launch; return them.

    Nothing happens if its counter has moved on from `count`.
    """
    if not db.execute(
        sa.update(SC).where(SC.c.scheduler == name, SC.c.alive == 1, SC.c.beats == count).values(alive=0)
    ).rowcount:
        return []
    half = [RT.c.scheduler == name, RT.c.launched == 0, RT.c.queue_id.is_not(None)]
    units = set(db.execute(sa.select(RT.c.queue_id).where(*half)).scalars())
    unit_rows = UnitRows(store, db, units, now)
    # Read again: the rows are held only now.
    opened = list(db.execute(sa.select(RT.c.task_id).where(*half).order_by(RT.c.task_id)).scalars())
    open_again(unit_rows, opened)
    db.execute(sa.update(JS).where(JS.c.scheduler == name).values(scheduler=None))
    db.execute(sa.delete(LQ).where(LQ.c.owner == name))
    return opened


def lost_machine(store: Store, db: sa.Connection, *, name: str, count: float, now: float) -> list[str]:
    """Open all tasks of a machine, and close its units until it is back; return the tasks.

    Nothing happens if its counter has moved on from `count`.
    """
    if not db.execute(
        sa.update(MS).where(MS.c.machine_id == name, MS.c.alive == 1, MS.c.beats == count).values(alive=0)
    ).rowcount:
        return []
    units = list(db.execute(sa.select(RS.c.ru_id).where(RS.c.machine_id == name)).scalars())
    unit_rows = UnitRows(store, db, units, now)
    opened = sorted(task for unit in units for task in unit_rows.tasks(unit))
    open_again(unit_rows, opened, alive=0)
    store.count_up(db, UNITS_CHANGED)
    return opened


def open_again(unit_rows: UnitRows, tasks: list[str], alive: int | None = None) -> None:
    """Take tasks out of their queues: they are open again."""
    for id in tasks:
        unit_rows.queues[unit_rows.task(id).queue_id].remove(id, unit_rows.now)
    for id in tasks:
        unit_rows.leave(id, Status.OPEN)
    unit_rows.save(alive=alive)


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
        idle = db.execute(_IDLE, {"machine": machine, "most": len(waiting)}).scalars().all() if waiting else ()
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

    Run times are added to `ran` by job: as the machine reports them, else from the start in the shared state.
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
"""Units of other machines without waiting tasks and with room, the most room first."""


@cache
def _units_of(dialect: str) -> sa.Select[Any]:
    return sa.select(RT.c.queue_id).where(among(dialect, RT.c.task_id), RT.c.queue_id.is_not(None)).distinct()
