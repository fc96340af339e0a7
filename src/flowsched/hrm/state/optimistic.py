"""The optimistic path: claims of batch tasks, each unit's granted or refused by a conditional update."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa

from flowsched.hrm.shares import fair_shares
from flowsched.hrm.state.claims import Claim, Granted, Refusal, Status
from flowsched.hrm.state.schema import JS, LK, RS, RT, SHARED, UNITS_CHANGED
from flowsched.hrm.state.store import Store, among, given, packed
from flowsched.hrm.state.unit_rows import UnitRows, count_jobs, take

__all__ = ["FairShares", "Optimistic"]

_Size = tuple[int, int, int]
"""Cores, memory and GPU memory of a container."""


class FairShares:
    """Fair shares of batch jobs: the most tasks that each may hold.

    Q of the fair share is the number of such containers that run and wait on the live units; the jobs that share it are
    those with tasks of that type, GPU or CPU.  For a job with tasks of several sizes, the size counts that most units take.
    Its tasks of the other type are free: a share must not withhold resources that no other job can use.

    Parameters
    ----------
    store : Store
    bind : bool
        False: no share binds.
    """

    def __init__(self, store: Store, bind: bool) -> None:
        self.store, self.bind = store, bind
        # Version, shapes of units, and number of containers that they take, by size: one value, for threads.
        self._units: tuple[int, Sequence[Any], dict[_Size, int]] = (-1, (), {})

    def caps(self, db: sa.Connection, tasks: Sequence[Any]) -> dict[str, tuple[int, int]]:
        """Return, for the job of each of these batch tasks, the most tasks that it may hold, and the number that it holds."""
        sizes: dict[str, set[_Size]] = {}
        for task in tasks:
            if task.kind == "batch":
                sizes.setdefault(task.job_id, set()).add((task.vcore, task.mem, task.gmem))
        if not sizes:
            return {}
        rows = db.execute(_counts(self.store.dialect), {"ids": packed(sizes)}).all()
        counts = {row.job_id: (row.open + row.held, row.held) for row in rows}
        if not self.bind:
            return counts
        self._learn(db, rows[0].version or 0)
        sharers: Sequence[Any] | None = None
        for job, those in sizes.items():
            units, gpu = max((self._units_for(size), size[2] > 0) for size in those)
            mine, other = ("gpu_wants", "cpu_wants") if gpu else ("cpu_wants", "gpu_wants")
            # No share binds where there is enough for all.
            if getattr(rows[0], mine) > units:
                sharers = db.execute(_SHARERS).all() if sharers is None else sharers
                i = [row.job_id for row in sharers].index(job)
                share = fair_shares([getattr(row, mine) for row in sharers], units)[i]
                counts[job] = (int(share) + getattr(sharers[i], other), counts[job][1])
        return counts

    def left(self, jobs: Sequence[str]) -> dict[str, int]:
        """Return the number of further tasks that each of these batch jobs may hold; jobs that are left out are not bound."""

        def work(db: sa.Connection) -> dict[str, int]:
            caps = self.caps(db, db.execute(_sizes(self.store.dialect), {"ids": packed(jobs)}).all())
            return {job: max(cap - held, 0) for job, (cap, held) in caps.items()}

        return self.store.read(work) if jobs and self.bind else {}

    def _learn(self, db: sa.Connection, version: int) -> None:
        """Read the shapes of the units again, if units have joined or gone."""
        if version != self._units[0]:
            self._units = (version, db.execute(_SHAPES).all(), {})

    def _units_for(self, size: _Size) -> int:
        """Return the number of containers of a size that run and wait on the live units."""
        _, shapes, fitting = self._units
        known = fitting.get(size)
        if known is None:
            known = 0
            for *have, places, length, type, count in shapes:
                if type == SHARED and not size[2]:
                    continue
                fits = min((a // b for a, b in zip(have, size, strict=True) if b), default=places)
                known += int(count) * (min(fits, places) + length) if fits else 0
            fitting[size] = known
        return known


_SHAPE = [RS.c[name] for name in ("vcore", "mem", "gmem", "places", "length", "type")]

_SHAPES = sa.select(*_SHAPE, sa.func.count()).where(RS.c.alive == 1).group_by(*_SHAPE)


def _wants(jobs: Any) -> tuple[sa.Label[int], sa.Label[int]]:
    """Columns of the tasks that are not done, with and without a GPU; upper bounds in a job that has both."""
    wants = jobs.c.open + jobs.c.held
    ofs = {"gpu_wants": jobs.c.gpus, "cpu_wants": jobs.c.tasks - jobs.c.gpus}
    gpu, cpu = (sa.case((wants < of, wants), else_=of).label(name) for name, of in ofs.items())
    return gpu, cpu


def _live(jobs: Any) -> sa.ColumnElement[bool]:
    return sa.and_(jobs.c.kind == "batch", jobs.c.open + jobs.c.held > 0)


_SHARERS = sa.select(JS.c.job_id, *_wants(JS)).where(_live(JS)).order_by(JS.c.start, JS.c.job_id)


@cache
def _counts(dialect: str) -> sa.Select[Any]:
    others = JS.alias()
    sums = sa.select(*(sa.func.sum(want).label(want.name) for want in _wants(others))).where(_live(others)).subquery()
    version = sa.select(LK.c.next).where(LK.c.name == UNITS_CHANGED).scalar_subquery()
    columns = (JS.c.job_id, JS.c.open, JS.c.held, sums.c.gpu_wants, sums.c.cpu_wants, version.label("version"))
    return sa.select(*columns).join_from(JS, sums, sa.true()).where(among(dialect, JS.c.job_id))


@cache
def _sizes(dialect: str) -> sa.Select[Any]:
    size = (RT.c.job_id, RT.c.kind, RT.c.vcore, RT.c.mem, RT.c.gmem)
    return sa.select(*size).where(among(dialect, RT.c.job_id), RT.c.status == Status.OPEN).distinct()


class Optimistic:
    """Claims of batch tasks within a transaction; the parameters are the negotiator's."""

    def __init__(self, store: Store, shares: FairShares, max_wait: float, clock: Callable[[], float]) -> None:
        self.store, self.shares, self.max_wait, self.clock = store, shares, max_wait, clock

    def claim(self, db: sa.Connection, scheduler: str, claims: Sequence[Claim], *, launch: bool) -> Granted:
        """Grant claims as far as units and the jobs' shares allow; see `Negotiator.commit`."""
        now = self.clock()
        found = db.execute(self.store.lock_rows(_open(self.store.dialect)), {"ids": packed({c.task for c in claims})})
        rows = {row.task_id: row for row in found}
        caps = self.shares.caps(db, list(rows.values()))
        allowed = {job: cap - held for job, (cap, held) in caps.items()}
        refused: list[tuple[Claim, Refusal]] = []
        by_unit: dict[str, list[Claim]] = {}
        seen: set[str] = set()
        for claim in claims:
            row = rows.get(claim.task)
            if row is None or row.kind != "batch" or claim.task in seen:
                refused.append((claim, Refusal.TAKEN))
            elif allowed[row.job_id] <= 0:
                refused.append((claim, Refusal.SHARE))
            else:
                seen.add(claim.task)
                allowed[row.job_id] -= 1
                by_unit.setdefault(claim.unit, []).append(claim)
        asked = [_asked(unit, those, rows) for unit, those in by_unit.items()]
        taken, idle = take(self.store, db, asked, now, self.max_wait)
        accepted = [claim for unit in sorted(taken) for claim in by_unit[unit]]
        conflicts = [claim for unit in sorted(by_unit.keys() - taken) for claim in by_unit[unit]]
        refused += [(claim, Refusal.CONFLICT) for claim in conflicts]
        self._place(db, scheduler, accepted, rows, caps, now, launch)
        self._wake(db, idle, now)
        wishes = [{"id": claim.task, "unit": claim.unit} for claim in conflicts]
        self.store.change(db, _wishing(self.store.dialect), wishes, None)
        return Granted(tuple(accepted), tuple(refused))

    def _place(
        self,
        db: sa.Connection,
        scheduler: str,
        accepted: Sequence[Claim],
        rows: Mapping[str, Any],
        caps: Mapping[str, tuple[int, int]],
        now: float,
        launch: bool,
    ) -> None:
        """Write the placed tasks; their rows and the units' are held."""
        told = {"scheduler": scheduler, "since": now, "launched": int(launch)}
        states = {False: {"status": Status.RUNNING, "seq": 0}, True: {"status": Status.WAITING, "seq": int(now * 1e6)}}
        placed = [{"id": c.task, "unit": c.unit, **states[c.queued], **told} for c in accepted]
        self.store.change(db, _placing(self.store.dialect), placed, None)
        counts = Counter(rows[c.task].job_id for c in accepted)
        count_jobs(self.store, db, {job: {"open": -n, "held": n} for job, n in counts.items()}, caps)

    def _wake(self, db: sa.Connection, idle: set[str], now: float) -> None:
        """Start tasks that were to wait on a unit that is idle: no end there would start them."""
        if idle:
            unit_rows = UnitRows(self.store, db, idle, now)
            for queue in unit_rows.queues.values():
                queue.wake(now)
            unit_rows.save()


def _asked(unit: str, claims: Sequence[Claim], rows: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sums that a unit's claims take together, see `take`."""
    runs = [rows[c.task] for c in claims if not c.queued]
    queued = [rows[c.task] for c in claims if c.queued]
    need = {name: sum(getattr(row, name) for row in runs) for name in ("vcore", "mem", "gmem")}
    busy = min(sum(row.time for row in queued), 1e9)
    longest = min(max((row.time for row in runs), default=0.0), 1e9)
    cpu = sum(not row.gmem for row in (*runs, *queued))
    places = {"places": len(runs), "queued": len(queued), "cpu": cpu}
    told = min((min(c.wait, 1e300) for c in claims if c.queued), default=0.0)
    return {"id": unit, **need, **places, "busy": busy, "longest": longest, "told": told}


@cache
def _open(dialect: str) -> sa.Select[Any]:
    told = (RT.c.task_id, RT.c.job_id, RT.c.kind, RT.c.vcore, RT.c.mem, RT.c.gmem, RT.c.time)
    return sa.select(*told).where(among(dialect, RT.c.task_id), RT.c.status == Status.OPEN).order_by(RT.c.task_id)


@cache
def _placing(dialect: str) -> sa.Update:
    columns = {
        "status": sa.String,
        "scheduler": sa.String,
        "since": sa.Float,
        "seq": sa.BigInteger,
        "launched": sa.Integer,
    }
    rows, joined = given(dialect, RT.c.task_id, **columns, unit=sa.String)
    place = {name: rows.c[name] for name in columns}
    return sa.update(RT).where(*joined).values({**place, "queue_id": rows.c.unit, "wish": None})


@cache
def _wishing(dialect: str) -> sa.Update:
    rows, joined = given(dialect, RT.c.task_id, unit=sa.String)
    return sa.update(RT).where(*joined).values(wish=rows.c.unit)
