"""Schedulers as processes on one shared state, with real servers, while some of them are killed.

Eight processes claim (four by default); some die by ``kill -9`` at random and others take their place.  The test plays the machines: what
was launched runs for a moment, is finished by a heartbeat, and must have been launched by one process only.  The
default size is small; ``FLOWSCHED_FUZZ=1`` runs 10,000 tasks on 1,050 units.  See the figures with ``pytest -s``.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TextIO

import pytest
from negotiators import audit
from servers import postgres

sa = pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed: pip install 'flowsched[sql]'")

from flowsched.hrm import (
    Claim,
    Container,
    ExpiredError,
    Granted,
    Negotiator,
    Refusal,
    ResourceUnit,
    Status,
    Store,
    UnitState,
)
from flowsched.hrm.state.schema import LQ, RT

FULL = bool(os.environ.get("FLOWSCHED_FUZZ"))
PROCESSES, KILLED = (8, 2) if FULL else (4, 1)  # a fifth of all that are started
UNITS, JOBS, TASKS, STREAMS = (1050, 250, 40, 12) if FULL else (40, 8, 40, 3)
TTL = 20.0 if FULL else 3.0


def scheduler(url: str, name: str, log: str, seed: int) -> None:
    """One process: refresh the copy, place the jobs that are mine, claim, launch; until nothing is left."""
    rng = random.Random(seed)
    negotiator = Negotiator(Store(url), ttl=TTL)
    negotiator.add_scheduler(name)
    view: dict[str, UnitState] = {}
    with Path(log).open("a", buffering=1) as out:
        while True:
            try:
                if not step(negotiator, name, view, rng, out):
                    return
                time.sleep(0.02)
            except ExpiredError:
                negotiator.add_scheduler(name)


def step(negotiator: Negotiator, name: str, view: dict[str, UnitState], rng: random.Random, out: TextIO) -> bool:
    waiting_for_launch = negotiator.beat(name)
    negotiator.adopt(name, most=3)
    mine = negotiator.jobs(name)
    view.update((unit.unit, unit) for unit in negotiator.units({u: s.version for u, s in view.items()}))
    launch = list(waiting_for_launch)
    for job in mine:
        if not job.open:
            continue
        if job.kind == "stream":
            granted = negotiator.stream(name, job.job, place_stream)
        else:
            tasks = negotiator.tasks(job.job)
            free = {u: s.free[0] // 1_000_000 for u, s in view.items() if s.alive}
            units = sorted(free)
            claims = []
            for task in tasks:
                choice = max(rng.sample(units, 4), key=lambda u: free[u])
                if free[choice] > -view[choice].places:
                    claims.append(Claim(str(task.id), choice, queued=free[choice] <= 0))
                free[choice] -= 1
            at_once = rng.random() < 0.5
            granted = negotiator.commit(name, claims, launch=at_once) if claims else Granted(())
            if at_once:
                for claim in granted.accepted:
                    print("launched", claim.task, file=out)
                print("asked", len(granted.accepted), count_conflicts(granted), file=out)
                continue
        launch += [claim.task for claim in granted.accepted]
        print("asked", len(granted.accepted), count_conflicts(granted), file=out)
    for id in negotiator.launch(name, launch):
        print("launched", id, file=out)
    return bool(mine) or bool(negotiator.jobs())


def count_conflicts(granted: Granted) -> int:
    return sum(why is Refusal.CONFLICT for _, why in granted.refused)


def place_stream(tasks: Sequence[Container], units: Sequence[UnitState]) -> dict[str, str] | None:
    time.sleep(0.02)  # long enough to be killed under the lock now and then
    room = {s.unit: s.stream_room[0] // 1_000_000 for s in units if s.alive}
    where = {}
    for task in tasks:
        unit = max(room, key=lambda u: room[u])
        if not room[unit]:
            return None
        room[unit] -= 1
        where[str(task.id)] = unit
    return where


def machine_of(unit: str) -> str:
    return f"m{int(unit[1:]) // 10}"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/state.db"
    else:
        with postgres() as server:
            yield server


@pytest.mark.long
def test_nothing_is_claimed_twice_lost_or_above_capacity(url: str, tmp_path: Path) -> None:
    rng = random.Random(7)
    store = Store(url)
    negotiator = Negotiator(store, ttl=TTL, machine_ttl=1000.0, patience=0.0)
    machines = [f"m{i}" for i in range(UNITS // 10)]
    of_machine = {m: Negotiator(store, ttl=TTL, machine_ttl=1000.0, patience=0.0) for m in machines}
    negotiator.add_units([ResourceUnit(f"u{i}", f"m{i // 10}", vcore=4) for i in range(UNITS)], length=2)
    for j in range(JOBS):
        tasks = [Container(f"j{j:03}-{i:02}", vcore=1, duration=1.0) for i in range(TASKS)]
        negotiator.submit(f"j{j:03}", tasks)
    for j in range(STREAMS):
        negotiator.submit(f"s{j}", [Container(f"s{j}-{i}", vcore=1, kind="stream") for i in range(20)])
    everything = JOBS * TASKS + STREAMS * 20
    context = multiprocessing.get_context("spawn")
    started: list[multiprocessing.process.BaseProcess] = []

    def start() -> None:
        i = len(started)
        process = context.Process(target=scheduler, args=(url, f"s{i}", str(tmp_path / f"log{i}"), i), daemon=True)
        process.start()
        started.append(process)

    begin, looks = time.monotonic(), 0
    progress = 0, begin
    for _ in range(PROCESSES):
        start()
    finished: list[str] = []
    kills = sorted(rng.uniform(0.1, 0.6) * everything for _ in range(KILLED))
    there = sa.select(RT.c.task_id, RT.c.queue_id, RT.c.status).where(RT.c.queue_id.is_not(None), RT.c.launched == 1)
    # Machines do not wait for each other.
    pool = ThreadPoolExecutor(4)
    while len(finished) < everything:
        if len(finished) > progress[0]:
            progress = len(finished), time.monotonic()
        assert time.monotonic() - progress[1] < 120, f"stuck: {len(finished)} of {everything} finished"
        assert all(process.exitcode in (None, 0, -signal.SIGKILL) for process in started), "a scheduler died by itself"
        at_work = [p for i, p in enumerate(started) if p.is_alive() and (tmp_path / f"log{i}").exists()]
        if kills and at_work and len(finished) >= kills[0]:
            kills.pop(0)
            victim = rng.choice(at_work)
            assert victim.pid is not None
            os.kill(victim.pid, signal.SIGKILL)
            start()
        running: dict[str, list[str]] = {}
        waiting: dict[str, list[str]] = {}
        for task, unit, status in store.look(there):
            {Status.RUNNING: running, Status.WAITING: waiting}.get(status, {}).setdefault(machine_of(unit), []).append(
                task
            )
        machines = machines[20:] + machines[:20]
        heard = sorted({*running, *machines[:20]})
        # Now and then a machine reports waiting tasks: they move to idle units while others claim these.
        tells = [waiting.get(machine, ()) if rng.random() < 0.2 else () for machine in heard]

        def beat(machine: str, ended: Sequence[str], waits: Sequence[str]) -> Sequence[str]:
            return of_machine[machine].heartbeat(machine, finished=ended, waiting=waits).finished

        for ended in pool.map(beat, heard, [running.get(machine, ()) for machine in heard], tells):
            finished += ended
        negotiator.expire()
        looks += 1
        if looks % 10 == 0:
            audit(store)
    seconds = time.monotonic() - begin
    pool.shutdown()
    for process in started:
        process.join(60)
        assert process.exitcode in (0, -signal.SIGKILL)
    assert sum(process.exitcode == -signal.SIGKILL for process in started) == KILLED

    # Nothing lost, nothing run twice, nothing claimed twice.
    assert len(finished) == len(set(finished)) == everything
    lines = [line.split() for i in range(len(started)) for line in (tmp_path / f"log{i}").read_text().splitlines()]
    launched = [line[1] for line in lines if line[0] == "launched" and len(line) == 2]
    assert len(launched) == len(set(launched))
    # No lock is left: the tickets of killed schedulers expire, and there are no others.
    deadline = time.monotonic() + 3 * TTL
    while store.read(lambda db: db.execute(sa.select(LQ)).all()):
        assert time.monotonic() < deadline
        negotiator.expire()
        time.sleep(0.1)
    audit(store)
    if store.dialect == "postgresql":
        others = sa.text("select count(*) from pg_locks where pid <> pg_backend_pid() and locktype = 'transactionid'")
        assert store.read(lambda db: db.execute(others).scalar()) == 0
    asked = [(int(line[1]), int(line[2])) for line in lines if line[0] == "asked" and len(line) == 3]
    granted, refused = (sum(column) for column in zip(*asked, strict=True))
    print(
        f"\n{store.dialect}: {everything} tasks, {UNITS} units, {PROCESSES} processes, {KILLED} killed: "
        f"{granted / seconds:.0f} claims/s granted, {(granted + refused) / seconds:.0f} asked, "
        f"conflict ratio {refused / (granted + refused):.1%}, {seconds:.1f} s"
    )
    store.close()
