"""Negotiators with a few units, and an independent check of the shared state."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import sqlalchemy as sa

from flowsched.hrm import Container, ResourceUnit
from flowsched.hrm.state.negotiator import Negotiator
from flowsched.hrm.state.schema import JS, RS, RT
from flowsched.hrm.state.store import Store


class Clock:
    """A time that only a test moves."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def small(store: Store, **options: object) -> Negotiator:
    """One unit of two cores, a batch job of two tasks, and a stream job, of the scheduler s."""
    negotiator = Negotiator(store, **options)  # type: ignore[arg-type]
    negotiator.add_units([ResourceUnit("u", "m", vcore=2)], length=1)
    negotiator.add_scheduler("s")
    negotiator.submit(
        "j", [Container("a", vcore=1, duration=5.0), Container("b", vcore=1, duration=5.0)], scheduler="s"
    )
    negotiator.submit("x", [Container("x", vcore=1, kind="stream")], scheduler="s")
    return negotiator


def picture(negotiator: Negotiator) -> object:
    """All of the state that a caller can see, to be compared."""
    rows = negotiator.store.look(sa.select(RT).order_by(RT.c.task_id))
    return negotiator.units(), negotiator.jobs(), [tuple(row) for row in rows]


def make(store: Store, units: int = 4, cores: int = 2, length: int = 1, **options: float) -> tuple[Negotiator, Clock]:
    """Machines m0, m1, ... of two CPU units each, and the schedulers s and t."""
    clock = Clock()
    negotiator = Negotiator(store, ttl=10.0, clock=clock, **options)  # type: ignore[arg-type]
    negotiator.add_units([ResourceUnit(f"u{i}", f"m{i // 2}", vcore=cores) for i in range(units)], length=length)
    negotiator.add_scheduler("s")
    negotiator.add_scheduler("t")
    return negotiator, clock


def batch(job: str, count: int, duration: float = 5.0, vcore: float = 1) -> list[Container]:
    return [Container(f"{job}{i}", job, vcore=vcore, duration=duration) for i in range(count)]


def streams(job: str, count: int) -> list[Container]:
    return [Container(f"{job}{i}", job, vcore=1, kind="stream") for i in range(count)]


def audit(store: Store) -> None:
    """All invariants that `hrm.store` states."""

    def work(db: sa.Connection) -> tuple[Sequence[sa.Row], ...]:  # type: ignore[type-arg]
        return tuple(db.execute(sa.select(table)).all() for table in (RS, RT, JS))

    units, tasks, jobs = store.read(work)
    assert all((task.queue_id is not None) == (task.status in ("RUNNING", "PAUSED", "WAITING")) for task in tasks)
    by_unit, by_job = defaultdict(list), defaultdict(list)
    for task in tasks:
        by_unit[task.queue_id].append(task)
        by_job[task.job_id].append(task)
    for unit in units:
        here = by_unit[unit.ru_id]
        running = [task for task in here if task.status == "RUNNING"]
        for name in ("vcore", "mem", "gmem", "places"):
            capacity = getattr(unit, name)
            holders = running + [t for t in here if t.status == "PAUSED" and name in ("mem", "gmem")]
            if name == "vcore" and unit.type == "shared":
                # Units with shared cores have one account of them.
                together = [u.ru_id for u in units if (u.machine_id, u.type) == (unit.machine_id, "shared")]
                holders = [t for other in together for t in by_unit[other] if t.status == "RUNNING"]
            used = sum(1 if name == "places" else getattr(task, name) for task in holders)
            assert used <= capacity and getattr(unit, f"free_{name}") == capacity - used, (unit, name)
            streaming = sum(
                1 if name == "places" else getattr(t, name)
                for t in holders
                if t.kind == "stream" and t.status == "RUNNING"
            )
            assert getattr(unit, f"stream_{name}") == capacity - streaming
        counts = Counter(task.status for task in here)
        assert (unit.waiting, unit.paused) == (counts["WAITING"], counts["PAUSED"])
    for job in jobs:
        counts = Counter(task.status for task in by_job[job.job_id])
        held = counts["RUNNING"] + counts["WAITING"] + counts["PAUSED"]
        assert (job.open, job.held, job.done, job.tasks) == (counts["OPEN"], held, counts["DONE"], counts.total())


def statuses(store: Store) -> dict[str, tuple[str, str | None]]:
    query = sa.select(RT.c.task_id, RT.c.status, RT.c.queue_id)
    return {task: (status, unit) for task, status, unit in store.read(lambda db: db.execute(query).all())}
