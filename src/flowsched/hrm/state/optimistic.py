"""The optimistic path: claims of batch tasks, each unit's granted or refused by a conditional update."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa

from flowsched.hrm.shares import fair_shares
from flowsched.hrm.state.claims import Claim, Granted, Refusal, Status
from flowsched.hrm.state.schema import JS, LK, RS, RT, SC, SHARED, UNITS_CHANGED
from flowsched.hrm.state.store import Store, among, given, packed
from flowsched.hrm.state.unit_rows import UnitRows, count_jobs, take

_Size = tuple[int, int, int]
"""Cores, memory and GPU memory of a container."""


class FairShares:
    """Fair shares of batch jobs: the most tasks that each may hold.

    Q of the fair share is the number of such containers that run and wait on the live units; the jobs that share it are
    those with tasks of that type, GPU or CPU. For a job with tasks of several sizes, the size counts that most units
    take.  Its tasks of the other type are free: a share must not withhold resources that no other job can use.  Without
    `bind` no share binds; for `in_turn` see `Negotiator`.
    """

    def __init__(self, store: Store, bind: bool, in_turn: bool = False) -> None:
        self.store, self.bind, self.in_turn = store, bind, in_turn
        # Version, shapes of units, and number of containers that they take, by size: one value, for threads.
        self._units: tuple[int, Sequence[Any], dict[_Size, int]] = (-1, (), {})
        self.sharing: frozenset[str] = frozenset()  # units with shared cores, as of the last `caps`

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
        self._learn(db, rows[0].version or 0)
        if not self.bind:
            return counts
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
            sizes = db.execute(_sizes(self.store.dialect), {"ids": packed(jobs)}).all()
            left = {job: max(cap - held, 0) for job, (cap, held) in self.caps(db, sizes).items()} if self.bind else {}
            if self.in_turn and sizes:
                for job, most in self._turn(db, sizes).items():
                    left[job] = min(most, left.get(job, most))
            return left

        return self.store.read(work) if jobs and (self.bind or self.in_turn) else {}

    def _turn(self, db: sa.Connection, sizes: Sequence[Any]) -> dict[str, int]:
        """Return by job the number of tasks that may run at once after older jobs' tasks, or may queue if no place is free."""
        free = [tuple(row) for row in db.execute(_FREE)]
        least = [min(getattr(size, name) for size in sizes) for name in ("vcore", "mem", "gmem")]
        places = sum(n * min(room, *(a // b for a, b in zip(have, least, strict=True) if b)) for *have, room, n in free)
        schedulers = db.execute(sa.select(sa.func.count()).where(SC.c.alive == 1)).scalar_one()
        mine, before, older, out = {size.job_id for size in sizes}, 0, 0, {}
        wanted: dict[str, tuple[int, list[_Size]]] = {}
        for row in db.execute(_OPEN):
            wanted.setdefault(row.job_id, (row.open, []))[1].append((row.vcore, row.mem, row.gmem))
        for job, (count, those) in wanted.items():
            if job in mine:
                out[job] = max(places - before, 0) if places else count * (2 * older < schedulers)
            # Places that no task of an older job can use are not withheld for it.
            fits = any(all(a <= b for a, b in zip(size, have, strict=False)) for size in those for have in free)
            before, older = before + count * fits, older + 1
        return out

    def _learn(self, db: sa.Connection, version: int) -> None:
        """Read the shapes of the units again, if units have joined or gone."""
        if version != self._units[0]:
            self.sharing = frozenset(db.execute(sa.select(RS.c.ru_id).where(RS.c.type == SHARED)).scalars())
            self._units = (version, db.execute(_SHAPES).all(), {})

    def _units_for(self, size: _Size) -> int:
        """Return the number of containers of a size that run and wait on the live units."""
        _, shapes, fitting = self._units
        known = fitting.get(size)
        if known is None:
            known = 0
            together: dict[
                str, tuple[int, int]
            ] = {}  # by machine: cores that its units share, containers that run on them
            for *have, places, length, machine, count in shapes:
                if machine and not size[2]:
                    continue
                fits = min((a // b for a, b in zip(have, size, strict=True) if b), default=places)
                run = int(count) * min(fits, places)
                known += int(count) * length if fits else 0
                if machine:
                    cores, others = together.get(machine, (0, 0))
                    together[machine] = (max(cores, have[0]), others + run)
                else:
                    known += run
            known += sum(min(run, cores // size[0] if size[0] else run) for cores, run in together.values())
            fitting[size] = known
        return known


_SHAPE = [
    *(RS.c[name] for name in ("vcore", "mem", "gmem", "places", "length")),
    sa.case((RS.c.type == SHARED, RS.c.machine_id), else_=""),
]

_SHAPES = sa.select(*_SHAPE, sa.func.count()).where(RS.c.alive == 1).group_by(*_SHAPE)
"""Shapes of the live units: amounts, places, length, the machine where cores are shared, else ""; and their number."""


_FREE_SHAPE = [RS.c["free_" + name] for name in ("vcore", "mem", "gmem", "places")]

_FREE = (
    sa.select(*_FREE_SHAPE, sa.func.count())
    .where(RS.c.alive == 1, RS.c.waiting == 0, RS.c.paused == 0, RS.c.free_places > 0)
    .group_by(*_FREE_SHAPE)
)

_OPEN = (
    sa.select(JS.c.job_id, JS.c.start, JS.c.open, RT.c.vcore, RT.c.mem, RT.c.gmem)
    .join(RT, RT.c.job_id == JS.c.job_id)
    .where(JS.c.kind == "batch", JS.c.open > 0, RT.c.status == Status.OPEN)
    .distinct()
    .order_by(JS.c.start, JS.c.job_id)
)
"""Sizes of open tasks, by job; older jobs first."""


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
        if self.shares.sharing.isdisjoint(by_unit):
            taken, idle = take(self.store, db, [_asked(*one, rows) for one in by_unit.items()], now, self.max_wait)
        else:
            unit_rows = UnitRows(self.store, db, by_unit, now)
            unit_rows.caps = caps
            taken, idle = unit_rows.grant(by_unit, rows, scheduler, self.max_wait, launch), set()
            unit_rows.save()
        accepted = [claim for unit in sorted(taken) for claim in by_unit[unit]]
        conflicts = [claim for unit in sorted(by_unit.keys() - taken) for claim in by_unit[unit]]
        refused += [(claim, Refusal.CONFLICT) for claim in conflicts]
        if self.shares.sharing.isdisjoint(by_unit):
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
    places = {"places": len(runs), "queued": len(queued)}
    told = min((min(c.wait, 1e300) for c in claims if c.queued), default=0.0)
    return {"id": unit, **need, **places, "busy": busy, "longest": longest, "told": told}


@cache
def _open(dialect: str) -> sa.Select[Any]:
    told = (RT.c.task_id, RT.c.job_id, RT.c.kind, RT.c.priority, RT.c.vcore, RT.c.mem, RT.c.gmem, RT.c.time)
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
