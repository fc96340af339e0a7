"""Run times of recurring jobs in the shared state: updated by every end, used for containers without an expected one.

`RunTimes` is the arithmetic; the moving means are rows, so all schedulers and machines share them.  There is no row that every
end changes: a name without history is expected to take the mean of the names, so ends of different jobs do not wait for each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from flowsched.hrm.containers import Container
from flowsched.hrm.run_times import RunTimes
from flowsched.hrm.state.schema import HT, JS
from flowsched.hrm.state.store import Store, among, packed


class History:
    """Moving means by name.

    The default of `run_times` is for a store without any history, its weight for all.
    """

    def __init__(self, store: Store, run_times: RunTimes) -> None:
        self.store, self.run_times = store, run_times

    def expect(self, db: sa.Connection, name: str, containers: Sequence[Container]) -> Sequence[Container]:
        """Return the containers of a job of that name, those without a duration with the expected one."""
        if all(container.duration < math.inf for container in containers):
            return containers
        known = db.execute(sa.select(HT.c.seconds).where(HT.c.name == name)).scalar()
        mean = db.execute(sa.select(sa.func.avg(HT.c.seconds))).scalar() if known is None else None
        times = RunTimes(float(mean) if mean else self.run_times.default, self.run_times.weight)
        seconds = times.expect(name) if known is None else float(known)
        return [c if c.duration < math.inf else replace(c, duration=seconds) for c in containers]

    def observe(self, db: sa.Connection, ended: Mapping[str, Sequence[float]]) -> None:
        """Update the moving means with run times by job; the jobs' rows are held."""
        told = {job: seconds for job, seconds in ended.items() if seconds}
        if not told:
            return
        names = sa.select(JS.c.job_id, JS.c.name).where(among(self.store.dialect, JS.c.job_id))
        by_name: dict[str, list[float]] = {}
        for job, name in db.execute(names.order_by(JS.c.job_id), {"ids": packed(told)}).all():
            by_name.setdefault(job if name is None else name, []).extend(told[job])
        insert = (sqlite if self.store.dialect == "sqlite" else postgresql).insert(HT)
        for name in sorted(by_name):
            times = RunTimes(weight=self.run_times.weight)
            for seconds in by_name[name]:
                times.observe(name, seconds)
            # A mean m becomes keep * m + the new ones' part; `times` began with the first of them in place of m.
            keep = (1 - times.weight) ** len(by_name[name])
            moved = times.expect(name) + keep * (HT.c.seconds - by_name[name][0])
            fresh = insert.values(name=name, seconds=times.expect(name))
            db.execute(fresh.on_conflict_do_update(index_elements=[HT.c.name], set_={"seconds": moved}))
