"""Rows of the shared state as stacked queues, and back: a holder of a unit's row moves tasks by the queue's own rules.

The optimistic path needs no queue: `take` is a conditional update of each unit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa

from flowsched.cluster.model import MICRO
from flowsched.hrm.containers import Container, Paused, Running
from flowsched.hrm.queues import StackedQueue, share_cores
from flowsched.hrm.state.claims import Claim, Status, UnitState
from flowsched.hrm.state.schema import AMOUNT_NAMES, JS, RS, RT, SHARED
from flowsched.hrm.state.store import Store, among, given, packed
from flowsched.hrm.units import ResourceUnit


def container_of(row: Any) -> Container:
    """Return the container of a row of RT."""
    amounts = (row.vcore / MICRO, row.mem / MICRO, row.gmem / MICRO)
    return Container(row.task_id, row.job_id, *amounts, duration=row.time, kind=row.kind, priority=row.priority)


def state_of(row: Any, now: float) -> UnitState:
    """Return the unit of a row of RS, as of `now`."""
    # No container starts at once where others wait.
    blocked = row.waiting or row.paused
    room = (0, 0, 0, 0) if blocked else (row.free_vcore, row.free_mem, row.free_gmem, row.free_places)
    return UnitState(
        row.ru_id,
        row.machine_id,
        (row.vcore, row.mem, row.gmem, row.places),
        room,
        (row.stream_vcore, row.stream_mem, row.stream_gmem, row.stream_places),
        max(row.length - row.waiting, 0),
        max(row.wtime - now, 0.0),
        bool(row.alive),
        row.version,
        row.type == SHARED,
    )


def take(
    store: Store, db: sa.Connection, asked: Sequence[Mapping[str, Any]], now: float, max_wait: float
) -> tuple[set[str], set[str]]:
    """Take amounts and queue places of units, of each unit if it has them: compare and set.

    A request has the ``id`` of the unit; ``vcore``, ``mem``, ``gmem``, ``places``: sums of the tasks that run at once,
    granted only where none waits (all 0 for none); ``queued``: places in the queue, granted only where the predicted
    wait is below `max_wait`; ``busy``: sum of the run times in the queue; ``longest``: longest run time of those that
    run at once; ``told``: predicted wait in the queue on which they were decided, and above which none is granted.  No
    unit with shared cores grants anything: `UnitRows.grant` is for those.

    Returns the units that granted it, and those of them where some tasks wait and none runs.
    """
    rows = [
        {**row, "now": now, "latest": min(now + max_wait, 1e300), "told": min(now + row["told"], 1e300)}
        for row in asked
    ]
    done = store.change(db, _taking(store.dialect), rows, RS.c.ru_id)
    return {row.ru_id for row in done}, {row.ru_id for row in done if row.waiting and row.free_places == row.places}


@cache
def _taking(dialect: str) -> sa.Update:
    amounts = dict.fromkeys(AMOUNT_NAMES, sa.BigInteger)
    ask, joined = given(
        dialect,
        RS.c.ru_id,
        **amounts,
        queued=sa.BigInteger,
        **dict.fromkeys(("busy", "longest", "now", "latest", "told"), sa.Float),
    )
    values: dict[str, Any] = {"version": RS.c.version + 1, "waiting": RS.c.waiting + ask.c.queued}
    fits = [RS.c.waiting == 0, RS.c.paused == 0]
    for name in AMOUNT_NAMES:
        column = RS.c["free_" + name]
        fits.append(column >= ask.c[name])
        values["free_" + name] = column - ask.c[name]
    start = sa.case((RS.c.wtime > ask.c.now, RS.c.wtime), else_=ask.c.now + ask.c.longest)
    waits = sa.and_(RS.c.waiting + ask.c.queued <= RS.c.length, start < ask.c.latest, RS.c.wtime <= ask.c.told)
    # The source's simple formula: the added run time is divided by the number of containers that run.
    running = RS.c.places - RS.c.free_places + ask.c.places
    workers = sa.case((running > 0, sa.cast(running, sa.Float)), else_=1.0)
    values["wtime"] = start + ask.c.busy / workers
    return (
        sa.update(RS)
        .where(*joined, RS.c.alive == 1, RS.c.type != SHARED)
        .where(sa.or_(ask.c.places == 0, sa.and_(*fits)), sa.or_(ask.c.queued == 0, waits))
        .values(values)
        .returning(RS.c.ru_id, RS.c.waiting, RS.c.free_places, RS.c.places)
    )


class OvertakenError(Exception):
    """Undoes a transaction that another one of the same job has overtaken; it is done again."""


def count_jobs(
    store: Store, db: sa.Connection, moves: Mapping[str, Mapping[str, int]], caps: Mapping[str, tuple[int, int]]
) -> None:
    """Change the counts of jobs, by job, then by column.

    `caps` has the most tasks that jobs may hold, and the number held when that was read: see `FairShares.caps`.  Raise
    OvertakenError if a job holds more by now.
    """
    rows = [
        {"id": job, "most": caps.get(job, (0, 1 << 30))[1], **{name: by.get(name, 0) for name in _COUNTS}}
        for job, by in moves.items()
    ]
    if len(store.change(db, _counting(store.dialect), rows, JS.c.job_id)) < len(rows):
        raise OvertakenError


_COUNTS = ("open", "held", "done")


@cache
def _counting(dialect: str) -> sa.Update:
    rows, joined = given(dialect, JS.c.job_id, most=sa.Integer, **dict.fromkeys(_COUNTS, sa.Integer))
    counts = {name: JS.c[name] + rows.c[name] for name in _COUNTS}
    return sa.update(JS).where(*joined, JS.c.held <= rows.c.most).values(counts).returning(JS.c.job_id)


class UnitRows:
    """The queues of some units, and of those that share cores with them.

    This transaction holds their rows until it ends.  `queues` has the queues of the units that exist, by id, `moves`
    the changes of the jobs' counts until now, and `caps` the bounds on these counts that are checked when they are
    written, see `count_jobs`.
    """

    def __init__(self, store: Store, db: sa.Connection, units: Collection[str], now: float) -> None:
        self.store, self.db, self.now = store, db, now
        self.queues: dict[str, StackedQueue] = {}
        self.moves: dict[str, Counter[str]] = {}
        self.caps: Mapping[str, tuple[int, int]] = {}
        self._rows: dict[str, Any] = {}  # by unit: its row of RS, as read
        self._tasks: dict[str, Any] = {}  # by task on a unit, as the queues stand: its row of RT, as read
        self._came: dict[str, tuple[str, bool]] = {}  # by task that entered: its scheduler, True if it is launched
        self._gone: list[dict[str, Any]] = []  # new values of tasks that left
        self._moved: set[str] = set()  # tasks that changed their unit
        if not units:
            return
        ids = {"ids": packed(units)}
        for row in db.execute(store.lock_rows(_units_among(store.dialect)), ids):
            self._rows[row.ru_id] = row
            self.queues[row.ru_id] = _queue(row)
        share_cores([*self.queues.values()])
        tasks = db.execute(_tasks_among(store.dialect), {"ids": packed(self._rows)}).all()
        for task in sorted(tasks, key=lambda t: (t.since if t.status == Status.RUNNING else 0.0, t.seq, t.task_id)):
            self._tasks[task.task_id] = task
            _put(self.queues[task.queue_id], task)

    def alive(self, unit: str) -> bool:
        """Return True if the unit exists and its machine is alive."""
        return unit in self._rows and self._rows[unit].alive == 1

    def machine(self, unit: str) -> str:
        """Return the machine of a unit."""
        return str(self._rows[unit].machine_id)

    def task(self, id: str) -> Any:
        """Return the row of a task on one of the units as it was read, else None."""
        return self._tasks.get(id)

    def tasks(self, unit: str) -> list[str]:
        """Return the tasks on a unit."""
        return [id for id, row in self._tasks.items() if row.queue_id == unit]

    def enter(self, row: Any, scheduler: str, launch: bool = False) -> None:
        """Note an OPEN task that was put into a unit's queue, for a scheduler; launched at once, or not."""
        self._tasks[row.task_id] = row
        self._came[row.task_id] = (scheduler, launch)
        self._move(row.job_id, open=-1, held=1)

    def grant(
        self,
        claims: Mapping[str, Sequence[Claim]],
        rows: Mapping[str, Any],
        scheduler: str,
        max_wait: float,
        launch: bool,
    ) -> set[str]:
        """Grant a scheduler's claims, by unit all or none; return the units that granted them, see `take`.

        `rows` are those of RT, by task.
        """
        granted = set()
        for unit, those in sorted(claims.items()):
            run, wait = ([container_of(rows[c.task]) for c in those if c.queued == queued] for queued in (False, True))
            told = min((claim.wait for claim in those if claim.queued), default=math.inf)
            behind = self._rows[unit].wtime - self.now if unit in self._rows else math.inf
            if behind > told or not (self.alive(unit) and self.queues[unit].grants(run, wait, behind, max_wait)):
                continue
            granted.add(unit)
            for container in (*run, *wait):
                self.queues[unit].submit(container, self.now)
                self.enter(rows[str(container.id)], scheduler, launch)
        return granted

    def leave(self, id: str, status: Status) -> None:
        """Note a task that was taken out of its queue, and is DONE or OPEN again."""
        row = self._tasks.pop(id)
        self._move(row.job_id, held=-1, **{"done" if status is Status.DONE else "open": 1})
        scheduler = None if status is Status.OPEN else row.scheduler
        self._gone.append({"id": id, "status": status, "scheduler": scheduler, "since": self.now})

    def move(self, id: str) -> None:
        """Note a task that was moved between the queues and runs now, for the report to its machine."""
        self._moved.add(id)

    def save(self, alive: int | None = None) -> list[str]:
        """Write the queues back to the rows, and `alive` to the units' column of that name.

        Returns the tasks that were on the units before, were not moved, and started or went on.  Raise OvertakenError
        as `count_jobs` does.
        """
        store, db = self.store, self.db
        entered: list[dict[str, Any]] = []
        moved: list[dict[str, Any]] = []
        for queue in self.queues.values():
            for id, status, since, seq in _positions(queue):
                row = self._tasks[id]
                place = {"id": id, "status": status, "since": since, "seq": seq, "unit": queue.unit.id}
                if id in self._came:
                    scheduler, launch = self._came[id]
                    entered.append({**place, "scheduler": scheduler, "launched": int(launch)})
                elif (row.status, row.seq) != (status, seq):
                    moved.append(place)
        leaving, moving, entering = (f(store.dialect) for f in (_leaving, _moving, _entering))
        for statement, rows in ((leaving, self._gone), (moving, moved), (entering, entered)):
            store.change(db, statement, rows, RT.c.task_id)
        units = [self._unit(queue, alive) for queue in self.queues.values()]
        store.change(db, _saving(store.dialect), units, None)
        count_jobs(store, db, self.moves, self.caps)
        return [p["id"] for p in moved if p["status"] is Status.RUNNING and p["id"] not in self._moved]

    def _unit(self, queue: StackedQueue, alive: int | None) -> dict[str, Any]:
        out: dict[str, Any] = {"id": queue.unit.id, "waiting": len(queue.waiting), "paused": len(queue.paused)}
        out["alive"] = self._rows[str(queue.unit.id)].alive if alive is None else alive
        for name, free, stream in zip(AMOUNT_NAMES, queue.free, queue.stream_room, strict=True):
            out["free_" + name], out["stream_" + name] = free, stream
        last = (
            queue.waiting[-1] if queue.waiting else next((r.container for r in reversed(queue.running.values())), None)
        )
        wait = 0.0 if last is None else queue.predict(_batch(last), self.now)
        # An infinite wait is stored as a large number, because the updates add to it.
        out["wtime"] = self.now + min(wait, 1e9)
        return out

    def _move(self, job: str, **by: int) -> None:
        self.moves.setdefault(job, Counter()).update(by)


@cache
def _units_among(dialect: str) -> sa.Select[Any]:
    told = RS.alias()
    machines = sa.select(told.c.machine_id).where(among(dialect, told.c.ru_id), told.c.type == SHARED)
    sharing = sa.and_(RS.c.type == SHARED, RS.c.machine_id.in_(machines))
    return sa.select(RS).where(sa.or_(among(dialect, RS.c.ru_id), sharing)).order_by(RS.c.ru_id)


@cache
def _tasks_among(dialect: str) -> sa.Select[Any]:
    return sa.select(RT).where(among(dialect, RT.c.queue_id))


_PLACE = {"status": sa.String, "since": sa.Float, "seq": sa.BigInteger}


@cache
def _moving(dialect: str) -> sa.Update:
    """Update of the place alone: a scheduler may launch a task on a unit without holding the unit's row."""
    rows, joined = given(dialect, RT.c.task_id, **_PLACE, unit=sa.String)
    return sa.update(RT).where(*joined).values({**{name: rows.c[name] for name in _PLACE}, "queue_id": rows.c.unit})


@cache
def _entering(dialect: str) -> sa.Update:
    rows, joined = given(dialect, RT.c.task_id, **_PLACE, unit=sa.String, scheduler=sa.String, launched=sa.Integer)
    place = {name: rows.c[name] for name in (*_PLACE, "scheduler", "launched")}
    return sa.update(RT).where(*joined).values({**place, "queue_id": rows.c.unit, "wish": None})


@cache
def _leaving(dialect: str) -> sa.Update:
    rows, joined = given(dialect, RT.c.task_id, status=sa.String, scheduler=sa.String, since=sa.Float)
    told = {name: rows.c[name] for name in ("status", "scheduler", "since")}
    return sa.update(RT).where(*joined).values({**told, "queue_id": None, "launched": 0, "wish": None})


@cache
def _saving(dialect: str) -> sa.Update:
    amounts = dict.fromkeys((kind + name for kind in ("free_", "stream_") for name in AMOUNT_NAMES), sa.BigInteger)
    counts = dict.fromkeys(("waiting", "paused", "alive"), sa.Integer)
    rows, joined = given(dialect, RS.c.ru_id, **amounts, **counts, wtime=sa.Float)
    told = {name: rows.c[name] for name in (*amounts, *counts, "wtime")}
    return sa.update(RS).where(*joined).values({**told, "version": RS.c.version + 1})


def _queue(row: Any) -> StackedQueue:
    gpu, shared = None if row.type == "cpu" else 0, row.type == SHARED
    amounts = (row.vcore / MICRO, row.mem / MICRO, row.gmem / MICRO)
    unit = ResourceUnit(row.ru_id, row.machine_id, *amounts, gpu, shared=shared)
    return StackedQueue(unit, most=int(row.places), length=int(row.length))


def _put(queue: StackedQueue, row: Any) -> None:
    """Put a task into the queue, in the state of its row; waiting tasks are given in their order."""
    container = container_of(row)
    if row.status == Status.WAITING:
        queue.restore(container)
    elif row.status == Status.PAUSED:
        queue.restore(Paused(container, row.since))
    else:
        queue.restore(Running(container, row.since))


def _positions(queue: StackedQueue) -> Iterable[tuple[str, Status, float, int]]:
    """Yield id, status, time of the status, and rank of every task in the queue."""
    for id, run in queue.running.items():
        yield str(id), Status.RUNNING, run.start, 0
    for seq, (id, pause) in enumerate(queue.paused.items()):
        yield str(id), Status.PAUSED, pause.elapsed, seq
    for seq, container in enumerate(queue.waiting):
        yield str(container.id), Status.WAITING, 0.0, seq


def _batch(container: Container) -> Container:
    """Return a batch container with the same need."""
    return Container(None, None, container.vcore, container.mem, container.gmem, container.duration)
