"""Ids that databases cannot carry, and stores that fail."""

from __future__ import annotations

import pickle
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st
from negotiators import audit, picture, small
from servers import Server, postgres_server

sa = pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed: pip install 'flowsched[sql]'")

from flowsched.exceptions import InputError, StoreError
from flowsched.hrm import Claim, Container, Negotiator, ResourceUnit, Status, Store
from flowsched.hrm.ids import MOST, name
from flowsched.hrm.schedulers import Worker, run_processes


@pytest.fixture(scope="module")
def backends(server: str) -> Iterator[Sequence[Store]]:
    stores = [Store("sqlite://"), Store(server)]
    yield stores
    for store in stores:
        store.close()


# -- ids ------------------------------------------------------------------------------------------------------------

BAD = ["a\0b", "\0", "\ud800", "\ud83d\ude00", "x" * (MOST + 1), "é" * (MOST // 2 + 1), 1, None, b"a", ("a",)]

DOORS: dict[str, Callable[[Negotiator, object], object]] = {
    "unit": lambda n, bad: n.add_units([ResourceUnit(bad, "m")]),  # type: ignore[arg-type]
    "machine": lambda n, bad: n.add_units([ResourceUnit("v"), ResourceUnit("w", bad)][1:]),  # type: ignore[arg-type]
    "scheduler": lambda n, bad: n.add_scheduler(bad),  # type: ignore[arg-type]
    "job": lambda n, bad: n.submit(bad, [Container("c")]),  # type: ignore[arg-type]
    "container": lambda n, bad: n.submit("k", [Container("fine"), Container(bad)]),  # type: ignore[arg-type]
    "owner": lambda n, bad: n.submit("k", [Container("c")], scheduler=bad if bad is not None else 1),  # type: ignore[arg-type]
    "claimed task": lambda n, bad: n.commit("s", [Claim("a", "u"), Claim(bad, "u")]),  # type: ignore[arg-type]
    "claimed unit": lambda n, bad: n.commit("s", [Claim("a", bad)]),  # type: ignore[arg-type]
    "committer": lambda n, bad: n.commit(bad, [Claim("a", "u")]),  # type: ignore[arg-type]
    "launched": lambda n, bad: n.launch("s", ["a", bad]),  # type: ignore[list-item]
    "finished": lambda n, bad: n.finish(["a", bad]),  # type: ignore[list-item]
    "beat": lambda n, bad: n.beat(bad),  # type: ignore[arg-type]
    "heartbeat": lambda n, bad: n.heartbeat(bad),  # type: ignore[arg-type]
    "heard": lambda n, bad: n.heartbeat("m", finished=[bad]),  # type: ignore[list-item]
    "present": lambda n, bad: n.heartbeat("m", present=[bad]),  # type: ignore[list-item]
    "waiting": lambda n, bad: n.heartbeat("m", waiting=[bad]),  # type: ignore[list-item]
    "stream": lambda n, bad: n.stream("s", bad, lambda tasks, units: None),  # type: ignore[arg-type]
    "placed": lambda n, bad: n.stream("s", "x", lambda tasks, units: {"x": bad}),  # type: ignore[dict-item]
    "adopter": lambda n, bad: n.adopt(bad),  # type: ignore[arg-type]
    "tasks of": lambda n, bad: n.tasks(bad),  # type: ignore[arg-type]
    "on": lambda n, bad: n.on_machine(bad),  # type: ignore[arg-type]
    "allowed": lambda n, bad: n.allowed([bad]),  # type: ignore[list-item]
}


@pytest.mark.parametrize("door", DOORS)
def test_ids_that_not_every_database_carries_are_refused_at_every_door(store: Store, door: str) -> None:
    negotiator = small(store)
    before = picture(negotiator)
    for bad in BAD:
        with pytest.raises(InputError, match=r"NUL|surrogate|at most \d+ bytes|text"):
            DOORS[door](negotiator, bad)
    assert picture(negotiator) == before


def test_two_ids_that_are_the_same_up_to_a_nul_do_not_meet(store: Store) -> None:
    negotiator = small(store)
    negotiator.commit("s", [Claim("a", "u")], launch=True)
    with pytest.raises(InputError, match="NUL"):
        negotiator.heartbeat("m", finished=["a\0b"])
    assert [str(container.id) for _, container in negotiator.on_machine("m")] == ["a"]


@settings(max_examples=effort(15, 3000), deadline=None)
@given(st.text(st.characters(), max_size=30) | st.sampled_from(["x" * MOST, "é" * (MOST // 2), "%", "_", "'", '"', "\\", "null", "1e9"]))  # fmt: skip
def test_what_passes_the_door_is_carried_by_every_backend(backends: Sequence[Store], id: str) -> None:
    try:
        assert name("id", id) == id
        fine = True
    except InputError:
        fine = False
    told = []
    for store in backends:
        store.clear()
        negotiator = Negotiator(store)
        try:
            negotiator.add_units([ResourceUnit(id, id, vcore=1)])
            negotiator.add_scheduler(id)
            negotiator.submit(id, [Container(id, vcore=1)], scheduler=id)
            assert negotiator.commit(id, [Claim(id, id)], launch=True).accepted == (Claim(id, id),)
            assert [(unit, c.id) for unit, c in negotiator.on_machine(id)] == [(id, id)]
            told.append(negotiator.heartbeat(id, finished=[id], present=[id]).finished == (id,))
        except InputError:
            told.append(None)
    assert told == ([True, True] if fine else [None, None])


# -- stores that fail -----------------------------------------------------------------------------------------------


def test_a_store_that_fails_says_so_by_its_own_name(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    negotiator = small(Store(f"sqlite:///{path}", patience=0.05))
    lock = sa.create_engine(f"sqlite:///{path}")
    with lock.connect() as other:
        other.exec_driver_sql("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=r"Negotiator\.submit: sqlite:///.*locked") as told:
            negotiator.submit("k", [Container("c")])
        assert isinstance(told.value.__cause__, sa.exc.OperationalError) and not told.value.unknown
        other.rollback()
        other.exec_driver_sql("DROP TABLE hrm_js")
        other.commit()
    lock.dispose()
    with pytest.raises(StoreError, match=r"Negotiator\.jobs: .*no such table"):
        negotiator.jobs()
    with pytest.raises(StoreError, match=r"Negotiator\.submit"):
        negotiator.submit("k", [Container("c")])
    assert [str(task.id) for task in negotiator.tasks("j")] == ["a", "b"]
    negotiator.store.close()
    path.write_bytes(b"no database " * 1000)
    with pytest.raises(StoreError, match="Store: .*not a database"):
        Store(f"sqlite:///{path}")
    with pytest.raises(StoreError, match="Store: .*unable to open"):
        Store(f"sqlite:///{tmp_path}/no/such/folder/state.db")
    with pytest.raises(InputError, match="url"):
        Store("sqlite:///a\0b")
    again = pickle.loads(pickle.dumps(StoreError("text", unknown=True)))
    assert (str(again), again.unknown) == ("text", True)


def test_a_server_that_is_not_there_is_told_at_once_and_without_the_password() -> None:
    pytest.importorskip("psycopg")
    begin = time.monotonic()
    with pytest.raises(StoreError, match=r"Store: postgresql://.*refused") as told:
        Store("postgresql://me:secret@127.0.0.1:1/none", patience=600.0)
    assert "secret" not in str(told.value)
    assert time.monotonic() - begin < 300  # it has not waited for its patience


def test_a_commit_whose_answer_is_lost_is_not_done_again_unless_that_is_harmless(server: str) -> None:
    store = Store(server)
    store.clear()
    negotiator = small(store)
    killer = sa.create_engine(store.engine.url)
    armed = [False]

    def kill(connection: sa.Connection) -> None:
        if armed:
            pid = connection.exec_driver_sql("select pg_backend_pid()").scalar()
            with killer.connect() as other:
                other.exec_driver_sql(f"select pg_terminate_backend({pid})")
            armed.clear()

    sa.event.listen(store.engine, "commit", kill)
    with pytest.raises(StoreError, match=r"Negotiator\.submit: .*it may have been done") as told:
        negotiator.submit("k", [Container("c")])
    assert told.value.unknown and store.outages == 1
    assert negotiator.tasks("k") == []
    negotiator.submit("k", [Container("c")])
    armed.append(True)
    negotiator.add_scheduler("t")
    assert store.outages == 2 and negotiator.beat("t") == []
    # A worker goes on: what it claimed, or did not, is in the shared state.
    worker = Worker(negotiator, "w")
    armed.append(True)
    for _ in range(10):
        worker.step()
        negotiator.adopt("w")
    audit(store)
    assert not armed and not negotiator.tasks("k")
    killer.dispose()
    store.close()


@pytest.mark.long
def test_schedulers_outlive_restarts_of_the_server() -> None:
    with postgres_server() as server:
        place_all(server, effort(2, 12), effort(12, 60))


def place_all(server: Server, restarts: int, jobs: int) -> None:
    store = Store(server.url)
    negotiator = Negotiator(store)
    negotiator.add_units([ResourceUnit(f"u{i}", f"m{i}", vcore=2) for i in range(jobs * 5)], length=1)
    for j in range(jobs):
        negotiator.submit(f"j{j:03}", [Container(f"j{j:03}-{i}", vcore=1, duration=9) for i in range(10)])
    tallies: list[object] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            tallies.extend(run_processes(server.url, 2, patience=4.0))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    rng = random.Random(3)
    for _ in range(restarts):
        # Somewhere in their start, their claims, their end.
        time.sleep(rng.uniform(0.5, 2.0))
        server.stop()
        time.sleep(rng.uniform(0.0, 0.3))
        server.start()
        negotiator.submit(f"late{rng.random()}", [Container(f"late{rng.random()}", vcore=1, duration=9)])
    thread.join(300)
    assert not errors and len(tallies) == 2 and store.outages
    audit(store)
    left = [job for job in negotiator.jobs() if job.open]
    # The last may have come when all was done.
    assert {job.job[:4] for job in left} <= {"late"}, left
    assert Worker(negotiator, "last", adopt=99).run(patience=30.0).granted == len(left)
    audit(store)
    store.close()


# -- ends -----------------------------------------------------------------------------------------------------------


def test_an_end_is_booked_wherever_the_task_is_in_its_queue(store: Store) -> None:
    negotiator = small(store)
    negotiator.add_units([ResourceUnit("v", "other", vcore=1)], length=2)
    negotiator.submit("k", [Container(f"k{i}", vcore=1, duration=5.0) for i in range(3)], scheduler="s")
    # The first is claimed and not launched, so the machine starts the second, which the shared state has waiting.
    negotiator.commit("s", [Claim("k0", "v"), Claim("k1", "v", queued=True)])
    negotiator.commit("s", [Claim("k2", "v", queued=True)])
    negotiator.launch("s", ["k1"])
    assert negotiator.heartbeat("other", present=[]).missing == ("k1",)
    assert negotiator.heartbeat("m", finished=["k1"]).finished == ()  # it is not there
    assert negotiator.heartbeat("other", finished=["k1", "k2"]).finished == ("k1",)  # the third was not launched
    audit(store)
    assert [str(task.id) for task in negotiator.tasks("k", Status.DONE)] == ["k1"]
    # A stream pauses the fourth, which had ended by then.
    negotiator.commit("s", [Claim("a", "u"), Claim("b", "u")], launch=True)
    assert negotiator.stream("s", "x", lambda tasks, units: {"x": "u"}).accepted
    assert [str(task.id) for task in negotiator.tasks("j", Status.PAUSED)] == ["b"]
    assert negotiator.heartbeat("m", finished=["b", "a"]).finished == ("a", "b")
    audit(store)
    assert {job.job: job.done for job in negotiator.jobs()} == {"k": 1, "x": 0}
