"""The optimistic path: claims of batch tasks, each unit's granted or refused by one conditional update."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from flowsched.hrm.claims import Claim, Granted, Refusal, Status
from flowsched.hrm.ledger import Books, take
from flowsched.hrm.shares import fair_shares
from flowsched.hrm.store import JS, RS, RT, Store

__all__ = ["Optimistic", "OvertakenError"]


class OvertakenError(Exception):
    """Undoes a commit that another one of the same job overtook: it is to be done again."""


class Optimistic:
    """Claims within a transaction; the parameters are the negotiator's."""

    def __init__(self, store: Store, max_wait: float, shares: bool, clock: Callable[[], float]) -> None:
        self.store, self.max_wait, self.shares, self.clock = store, max_wait, shares, clock

    def claim(self, db: sa.Connection, scheduler: str, claims: Sequence[Claim]) -> Granted:
        """Grant what the units have and the jobs' shares allow; see `Negotiator.commit`."""
        now = self.clock()
        query = sa.select(RT).where(RT.c.task_id.in_(sorted({c.task for c in claims})), RT.c.status == Status.OPEN)
        rows = {row.task_id: row for row in db.execute(self.store.lock_rows(query.order_by(RT.c.task_id)))}
        refused: list[tuple[Claim, Refusal]] = []
        by_unit: dict[str, list[Claim]] = {}
        caps = self._allowed(db, list(rows.values()))
        allowed = {job: cap - held for job, (cap, held) in caps.items()}
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
        accepted: list[Claim] = []
        for unit in sorted(by_unit):
            if self._take(db, unit, by_unit[unit], rows, now):
                accepted += by_unit[unit]
            else:
                refused += [(claim, Refusal.CONFLICT) for claim in by_unit[unit]]
        self._place(db, scheduler, accepted, rows, caps, now)
        self._wake(db, {claim.unit for claim in accepted if claim.queued}, now)
        wishes = [{"id": c.task, "unit": c.unit} for c, why in refused if why is Refusal.CONFLICT]
        if wishes:
            wish = sa.update(RT).where(RT.c.task_id == sa.bindparam("id")).values(wish=sa.bindparam("unit"))
            db.execute(wish, wishes)
        return Granted(tuple(accepted), tuple(refused))

    def _take(self, db: sa.Connection, unit: str, claims: Sequence[Claim], rows: Mapping[str, Any], now: float) -> bool:
        runs = [rows[c.task] for c in claims if not c.queued]
        queued = [rows[c.task] for c in claims if c.queued]
        need = (sum(r.vcore for r in runs), sum(r.mem for r in runs), sum(r.gmem for r in runs), len(runs))
        busy, longest = (min(f(r.time for r in part) if part else 0.0, 1e9) for f, part in ((sum, queued), (max, runs)))
        return take(db, unit, need, len(queued), busy, longest, now, self.max_wait)

    def _place(
        self,
        db: sa.Connection,
        scheduler: str,
        accepted: Sequence[Claim],
        rows: Mapping[str, Any],
        caps: Mapping[str, tuple[int, int]],
        now: float,
    ) -> None:
        """The tasks whose room was taken are there."""
        if not accepted:
            return
        place = (
            sa.update(RT)
            .where(RT.c.task_id == sa.bindparam("id"))
            .values(
                status=sa.bindparam("to"), queue_id=sa.bindparam("unit"), scheduler=scheduler, launched=0,
                since=now, seq=sa.bindparam("rank"), wish=None,
            )
        )  # fmt: skip
        ranks = {False: 0, True: int(now * 1e6)}
        states = {False: Status.RUNNING, True: Status.WAITING}
        moved = [{"id": c.task, "unit": c.unit, "to": states[c.queued], "rank": ranks[c.queued]} for c in accepted]
        db.execute(place, sorted(moved, key=lambda m: str(m["id"])))
        for job, n in sorted(Counter(rows[c.task].job_id for c in accepted).items()):
            # Held as when the share was computed, or another commit of this job came between.
            where = [JS.c.job_id == job, JS.c.held <= caps[job][1]]
            if not db.execute(sa.update(JS).where(*where).values(open=JS.c.open - n, held=JS.c.held + n)).rowcount:
                raise OvertakenError

    def _wake(self, db: sa.Connection, units: set[str], now: float) -> None:
        """Who was to wait on a unit that has become idle starts: nothing will end there that could make it."""
        idle = sa.select(RS.c.ru_id).where(RS.c.ru_id.in_(sorted(units)), RS.c.free_places == RS.c.places)
        found = set(db.execute(idle).scalars()) if units else set()
        if found:
            books = Books(self.store, db, found, now)
            for queue in books.queues.values():
                queue.wake(now)
            books.save()

    def _allowed(self, db: sa.Connection, rows: Sequence[Any]) -> dict[str, tuple[int, int]]:
        """Most tasks that each of these tasks' jobs may hold, and how many it holds."""
        wanted = {row.job_id: row for row in rows if row.kind == "batch"}
        if not wanted:
            return {}
        live = sa.select(JS.c.job_id, JS.c.open, JS.c.held).where(JS.c.kind == "batch", JS.c.open + JS.c.held > 0)
        jobs = db.execute(live.order_by(JS.c.start, JS.c.job_id)).all()
        counts = {job: (n_open + held, held) for job, n_open, held in jobs}
        if not self.shares:
            return {job: counts[job] for job in wanted}
        names = list(counts)
        total = [n for n, _ in counts.values()]
        out = {}
        for job, row in wanted.items():
            units = self._units_for(db, (row.vcore, row.mem, row.gmem))
            # Nobody wants for anything where there is enough for all.
            share = counts[job][0] if sum(total) <= units else int(fair_shares(total, units)[names.index(job)])
            out[job] = (share, counts[job][1])
        return out

    def _units_for(self, db: sa.Connection, need: tuple[int, int, int]) -> int:
        """How many such containers run and wait on the units that are alive: Q of the fair share."""
        columns = [RS.c[name] for name in ("vcore", "mem", "gmem", "places", "length")]
        kinds = sa.select(*columns, sa.func.count()).where(RS.c.alive == 1).group_by(*columns)
        q = 0
        for *have, places, length, count in db.execute(kinds):
            fits = min((a // b for a, b in zip(have, need, strict=True) if b), default=places)
            q += count * (min(fits, places) + length) if fits else 0
        return int(q)

    def grant_wishes(self, db: sa.Connection, machine: str) -> list[str]:
        """Tasks that a unit of the machine once refused start there if they can by now."""
        now = self.clock()
        room = {
            unit: free
            for unit, *free in db.execute(
                sa.select(RS.c.ru_id, RS.c.free_vcore, RS.c.free_mem, RS.c.free_gmem, RS.c.free_places).where(
                    RS.c.machine_id == machine, RS.c.alive == 1, RS.c.waiting == 0, RS.c.paused == 0
                )
            )
        }
        wishes = (
            sa.select(RT)
            .where(RT.c.wish.in_(sorted(room)), RT.c.status == Status.OPEN)
            .order_by(RT.c.wish, RT.c.priority, RT.c.since, RT.c.task_id)
        )
        rows = db.execute(self.store.lock_rows(wishes, skip=True)).all() if room else []
        jobs = db.execute(sa.select(JS.c.job_id, JS.c.scheduler)) if rows else ()
        owners = {job.job_id: job.scheduler for job in jobs}
        caps = self._allowed(db, rows)
        allowed = {job: cap - held for job, (cap, held) in caps.items()}
        granted: dict[str, list[Claim]] = {}
        by_id = {row.task_id: row for row in rows}
        for row in rows:
            claim, owner = Claim(row.task_id, row.wish), owners[row.job_id]
            fits = all(a <= b for a, b in zip((row.vcore, row.mem, row.gmem, 1), room[row.wish], strict=True))
            if owner is None or allowed[row.job_id] <= 0 or not fits:
                continue
            if self._take(db, claim.unit, [claim], by_id, now):
                room[row.wish] = [b - a for a, b in zip((row.vcore, row.mem, row.gmem, 1), room[row.wish], strict=True)]
                allowed[row.job_id] -= 1
                granted.setdefault(owner, []).append(claim)
        for owner in sorted(granted):
            self._place(db, owner, granted[owner], by_id, caps, now)
        return sorted(claim.task for claims in granted.values() for claim in claims)
