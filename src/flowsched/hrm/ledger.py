"""Rows of the shared state as stacked queues, and back: whoever holds a unit's row moves tasks by the queue's own rules.

The optimistic path needs no queue: `take` is one conditional update, which the database does or does not do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Any

import sqlalchemy as sa

from flowsched.cluster.model import MICRO
from flowsched.hrm.claims import Status, UnitState
from flowsched.hrm.queues import Container, Paused, Running, StackedQueue
from flowsched.hrm.store import JS, RS, RT, Store
from flowsched.hrm.units import ResourceUnit
from flowsched.hrm.waiting import Amounts

__all__ = ["Books", "container_of", "count_jobs", "state_of", "take"]

_NAMES = ("vcore", "mem", "gmem", "places")

_ON_UNIT = (Status.RUNNING, Status.WAITING, Status.PAUSED)


def container_of(row: Any) -> Container:
    """The container that a row of RT tells of."""
    amounts = (row.vcore / MICRO, row.mem / MICRO, row.gmem / MICRO)
    return Container(row.task_id, row.job_id, *amounts, duration=row.time, kind=row.kind, priority=row.priority)


def state_of(row: Any, now: float) -> UnitState:
    """The unit that a row of RS tells of."""
    # Where somebody waits nobody starts at once.
    room = (0, 0, 0, 0) if row.waiting or row.paused else _amounts(row, "free_")
    return UnitState(
        row.ru_id,
        row.machine_id,
        _amounts(row, ""),
        room,
        _amounts(row, "stream_"),
        max(row.length - row.waiting, 0),
        max(row.wtime - now, 0.0),
        bool(row.alive),
        row.version,
    )


def _amounts(row: Any, prefix: str) -> Amounts:
    vcore, mem, gmem, places = (row._mapping[prefix + name] for name in _NAMES)
    return (vcore, mem, gmem, places)


def take(
    db: sa.Connection, unit: str, runs: Amounts, queued: int, busy: float, longest: float, now: float, max_wait: float
) -> bool:
    """Take room and queue places of a unit, if it has them: compare and set.

    Parameters
    ----------
    runs : tuple of int
        Amounts for those that run at once, which they do only where nobody waits; all 0 for none.
    queued : int
        Places in the queue, only where the predicted wait is below `max_wait`.
    busy : float
        Seconds that those in the queue will run.
    longest : float
        Seconds that those that run at once will run.
    """
    given: dict[str, Any] = {"unit": unit, "now": now, "longest": longest}
    if runs[3]:
        given |= {"by_" + name: amount for name, amount in zip(_NAMES, runs, strict=True)}
    if queued:
        given |= {"queued": queued, "busy": busy, "latest": min(now + max_wait, 1e300)}
    return db.execute(_taking(runs[3] > 0, queued > 0), given).rowcount == 1


@cache
def _taking(runs: bool, queued: bool) -> sa.Update:
    """The conditional update of `take`."""
    values: dict[str, Any] = {"version": RS.c.version + 1}
    where = [RS.c.ru_id == sa.bindparam("unit"), RS.c.alive == 1]
    if runs:
        where += [RS.c.waiting == 0, RS.c.paused == 0]
        for name in _NAMES:
            column, amount = RS.c["free_" + name], sa.bindparam("by_" + name, type_=sa.BigInteger)
            where.append(column >= amount)
            values["free_" + name] = column - amount
    now, longest = (sa.bindparam(name, type_=sa.Float) for name in ("now", "longest"))
    start: Any = sa.case((RS.c.wtime > now, RS.c.wtime), else_=now + longest)
    if queued:
        places = sa.bindparam("queued", type_=sa.BigInteger)
        where += [RS.c.waiting + places <= RS.c.length, RS.c.wtime < sa.bindparam("latest", type_=sa.Float)]
        values["waiting"] = RS.c.waiting + places
        # The source's simple formula: what they add is shared by the places that work it off.
        running = RS.c.places - RS.c.free_places + (sa.bindparam("by_places", type_=sa.BigInteger) if runs else 0)
        workers = sa.case((running > 0, running), else_=1)
        start = start + sa.bindparam("busy", type_=sa.Float) / workers
    return sa.update(RS).where(*where).values(wtime=start, **values)


def count_jobs(db: sa.Connection, moves: Mapping[str, Mapping[str, int]]) -> None:
    """Change the counts of jobs: by job, then by column."""
    for job in sorted(moves):
        change = {name: JS.c[name] + by for name, by in moves[job].items() if by}
        if change:
            db.execute(sa.update(JS).where(JS.c.job_id == job).values(change))


class Books:
    """The queues of some units, whose rows this transaction holds until it ends.

    Parameters
    ----------
    store : Store
    db : Connection
    units : collection of str
    now : float

    Attributes
    ----------
    queues : dict of str to StackedQueue
        Of those that are there, by id.
    moves : dict of str to Counter
        Changes of the jobs' counts so far.
    """

    def __init__(self, store: Store, db: sa.Connection, units: Collection[str], now: float) -> None:
        self.db, self.now = db, now
        self.queues: dict[str, StackedQueue] = {}
        self.moves: dict[str, Counter[str]] = {}
        self._rows: dict[str, Any] = {}
        self._tasks: dict[str, Any] = {}
        self._came: dict[str, str] = {}
        if not units:
            return
        found = db.execute(store.lock_rows(sa.select(RS).where(RS.c.ru_id.in_(sorted(units))).order_by(RS.c.ru_id)))
        for row in found:
            self._rows[row.ru_id] = row
            self.queues[row.ru_id] = _queue(row)
        tasks = db.execute(sa.select(RT).where(RT.c.queue_id.in_(sorted(units)))).all()
        for task in sorted(tasks, key=lambda t: (t.since if t.status == Status.RUNNING else 0.0, t.seq, t.task_id)):
            self._tasks[task.task_id] = task
            _put(self.queues[task.queue_id], task)

    def alive(self, unit: str) -> bool:
        """Whether the unit is there and its machine is heard of."""
        return unit in self._rows and self._rows[unit].alive == 1

    def task(self, id: str) -> Any:
        """The row of a task that is on one of the units, as it was read."""
        return self._tasks.get(id)

    def tasks(self, unit: str) -> list[str]:
        """Who is on a unit."""
        return [id for id, row in self._tasks.items() if row.queue_id == unit]

    def enter(self, row: Any, unit: str) -> None:
        """An OPEN task was put into the unit's queue."""
        self._tasks[row.task_id] = row
        self._came[row.task_id] = unit
        self._move(row.job_id, open=-1, held=1)

    def leave(self, id: str, status: Status) -> None:
        """A task was taken out of its queue: it is DONE, or OPEN again."""
        row = self._tasks.pop(id)
        self._move(row.job_id, held=-1, **{"done" if status is Status.DONE else "open": 1})
        gone = {"status": status, "queue_id": None, "launched": 0, "since": self.now, "wish": None}
        if status is Status.OPEN:
            gone["scheduler"] = None
        self.db.execute(sa.update(RT).where(RT.c.task_id == id).values(gone))

    def save(self, scheduler: str | None = None, alive: int | None = None) -> list[str]:
        """Write what became of the queues.

        Parameters
        ----------
        scheduler : str, optional
            Who put the tasks there that entered.
        alive : int, optional
            What the units become.

        Returns
        -------
        list of str
            Tasks that were here and started or went on.
        """
        began: list[str] = []
        entered: list[dict[str, Any]] = []
        moved: list[dict[str, Any]] = []
        for queue in self.queues.values():
            for id, status, since, seq in _positions(queue):
                row = self._tasks[id]
                place = {"id": id, "new_status": status, "new_since": since, "new_seq": seq}
                if id in self._came:
                    entered.append({**place, "new_queue": queue.unit.id, "new_scheduler": scheduler})
                elif (row.status, row.seq) != (status, seq):
                    moved.append(place)
                    if status is Status.RUNNING:
                        began.append(id)
        for statement, rows in ((_ENTER, entered), (_MOVE, moved)):
            if rows:
                self.db.execute(statement, sorted(rows, key=lambda row: str(row["id"])))
        units = [self._unit(queue, alive) for queue in self.queues.values()]
        if units:
            self.db.execute(_SAVE_UNIT, units)
        count_jobs(self.db, self.moves)
        return began

    def _unit(self, queue: StackedQueue, alive: int | None) -> dict[str, Any]:
        out: dict[str, Any] = {"id": queue.unit.id, "new_waiting": len(queue.waiting), "new_paused": len(queue.paused)}
        out["new_alive"] = self._rows[str(queue.unit.id)].alive if alive is None else alive
        for name, free, stream in zip(_NAMES, queue.free, queue.stream_room, strict=True):
            out["new_free_" + name], out["new_stream_" + name] = free, stream
        last = (
            queue.waiting[-1] if queue.waiting else next((r.container for r in reversed(queue.running.values())), None)
        )
        wait = 0.0 if last is None else queue.predict(_batch(last), self.now)
        # Never, as far as anybody knows: far away, but a number that can be added to.
        out["new_wtime"] = self.now + min(wait, 1e9)
        return out

    def _move(self, job: str, **by: int) -> None:
        self.moves.setdefault(job, Counter()).update(by)


_MOVE = (
    sa.update(RT)
    .where(RT.c.task_id == sa.bindparam("id"))
    .values(status=sa.bindparam("new_status"), since=sa.bindparam("new_since"), seq=sa.bindparam("new_seq"))
)
"""Nothing else: a scheduler may launch a task that is on a unit without holding the unit's row."""

_ENTER = _MOVE.values(
    queue_id=sa.bindparam("new_queue"), scheduler=sa.bindparam("new_scheduler"), launched=0, wish=None
)

_SAVE_UNIT = (
    sa.update(RS)
    .where(RS.c.ru_id == sa.bindparam("id"))
    .values(
        version=RS.c.version + 1,
        waiting=sa.bindparam("new_waiting"),
        paused=sa.bindparam("new_paused"),
        alive=sa.bindparam("new_alive"),
        wtime=sa.bindparam("new_wtime"),
        **{f"{kind}_{name}": sa.bindparam(f"new_{kind}_{name}") for kind in ("free", "stream") for name in _NAMES},
    )
)


def _queue(row: Any) -> StackedQueue:
    gpu = 0 if row.type == "gpu" else None
    unit = ResourceUnit(row.ru_id, row.machine_id, row.vcore / MICRO, row.mem / MICRO, row.gmem / MICRO, gpu)
    return StackedQueue(unit, most=int(row.places))


def _put(queue: StackedQueue, row: Any) -> None:
    """A task into the state of the queue that the row tells; those that wait come in their order."""
    container = container_of(row)
    if row.status == Status.WAITING:
        queue.restore(container)
    elif row.status == Status.PAUSED:
        queue.restore(Paused(container, row.since))
    else:
        queue.restore(Running(container, row.since))


def _positions(queue: StackedQueue) -> Iterable[tuple[str, Status, float, int]]:
    """Task, status, since when, and its rank, of everybody there."""
    for id, run in queue.running.items():
        yield str(id), Status.RUNNING, run.start, 0
    for seq, (id, pause) in enumerate(queue.paused.items()):
        yield str(id), Status.PAUSED, pause.elapsed, seq
    for seq, container in enumerate(queue.waiting):
        yield str(container.id), Status.WAITING, 0.0, seq


def _batch(container: Container) -> Container:
    """One more like it that may wait."""
    return Container(None, None, container.vcore, container.mem, container.gmem, container.duration)
