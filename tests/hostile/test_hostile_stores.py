"""Ids that databases cannot carry, clocks that jump, stores that fail, and calls that overlap."""

from __future__ import annotations

import gc
import pickle
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st
from negotiators import audit
from servers import Server, postgres_server

sa = pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed: pip install 'flowsched[sql]'")

from flowsched.exceptions import ConcurrentUseError, InputError, StoreError, TimeLimitError
from flowsched.hrm import Claim, Container, Negotiator, ResourceUnit, Status, Store, UnitState
from flowsched.hrm.clocks import Forward, Steady, Watch
from flowsched.hrm.ids import MOST, name
from flowsched.hrm.schedulers import Worker, run_processes
from flowsched.hrm.state.locks import Leases
from flowsched.hrm.state.schema import LQ, RT

HOUR = 3600.0


class Time:
    """A clock that only a test moves."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


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


def small(store: Store, **options: object) -> Negotiator:
    negotiator = Negotiator(store, **options)  # type: ignore[arg-type]
    negotiator.add_units([ResourceUnit("u", "m", vcore=2)], length=1)
    negotiator.add_scheduler("s")
    negotiator.submit(
        "j", [Container("a", vcore=1, duration=5.0), Container("b", vcore=1, duration=5.0)], scheduler="s"
    )
    negotiator.submit("x", [Container("x", vcore=1, kind="stream")], scheduler="s")
    return negotiator


def picture(negotiator: Negotiator) -> object:
    rows = negotiator.store.look(sa.select(RT).order_by(RT.c.task_id))
    return negotiator.units(), negotiator.jobs(), [tuple(row) for row in rows]


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


@settings(max_examples=effort(25, 3000), deadline=None)
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


# -- clocks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jump", [-HOUR, HOUR])
def test_setting_a_clock_neither_expires_a_process_nor_hides_a_dead_one(store: Store, jump: float) -> None:
    day, own = Time(1e9), Time()
    negotiator = small(store, ttl=30.0, clock=day, monotonic=own)
    negotiator.add_units([ResourceUnit("u2", "dead", vcore=1)])
    negotiator.add_scheduler("gone")

    def live(seconds: float) -> list[tuple[str, ...]]:
        lost: list[tuple[str, ...]] = []
        for _ in range(int(seconds / 5)):
            own.now += 5
            day.now += 5
            negotiator.heartbeat("m")
            negotiator.beat("s")
            found = negotiator.expire()
            lost += [each for each in (found.schedulers, found.machines) if each]
        return lost

    assert live(20) == []
    day.now += jump
    assert live(20) == [("gone",), ("dead",)]
    assert live(200) == []
    day.now -= 2 * jump
    assert live(200) == []
    audit(store)


@pytest.mark.parametrize("jump", [-HOUR, HOUR])
def test_by_default_the_day_is_looked_at_once(monkeypatch: pytest.MonkeyPatch, jump: float) -> None:
    day, own = Time(1e9), Time()
    monkeypatch.setattr("flowsched.hrm.state.negotiator.time", SimpleNamespace(time=day, monotonic=own))
    negotiator = small(Store(), ttl=30.0)
    negotiator.commit("s", [Claim("a", "u"), Claim("b", "u", queued=True)], launch=True)
    before = negotiator.units()
    day.now += jump
    assert negotiator.units() == before and negotiator.expire().machines == ()
    own.now += 31
    assert negotiator.clock() == 1e9 + 31
    assert negotiator.expire().machines == ("m",)


@pytest.mark.parametrize("jump", [-HOUR, HOUR])
def test_another_process_whose_clock_is_wrong_judges_alike(store: Store, jump: float) -> None:
    own = Time()
    negotiator = small(store, ttl=30.0, clock=Time(1e9), monotonic=own)
    judge = Negotiator(store, ttl=30.0, clock=Time(1e9 + jump), monotonic=(other := Time(5.0)))
    judge.expire()
    for _ in range(20):
        own.now += 5
        other.now += 5
        negotiator.heartbeat("m")
        negotiator.beat("s")
        assert judge.expire().opened == ()
    assert judge.expire().schedulers == judge.expire().machines == ()
    # It has watched for too short a time, whatever it is told about the days.
    late = Negotiator(store, ttl=30.0, clock=Time(1e9 + 100 * HOUR), monotonic=Time(0.0))
    assert late.expire().schedulers == ()
    other.now += 31
    lost = judge.expire()
    assert (lost.schedulers, lost.machines) == (("s",), ("m",))


def test_the_lock_of_a_dead_holder_is_free_after_its_time_whatever_the_day(store: Store) -> None:
    day, own = Time(1e9), Time()
    dead = Leases(store, 30.0, Time())
    dead.draw("stream", "dead")
    day.now -= HOUR
    alive = Leases(store, 30.0, own)
    with pytest.raises(TimeLimitError, match="'stream'"), alive.hold("stream", "s", timeout=0.01):
        pass
    own.now += 31
    with alive.hold("stream", "s", timeout=5.0) as lease:
        assert lease.owner == "s"
    alive.sweep()
    assert store.look(sa.select(LQ)) == []


def test_a_clock_of_a_simulation_stands_still_where_it_is_set_back() -> None:
    clock = Time(100.0)
    passed = Forward(clock)
    seen = []
    for step in (5.0, -HOUR, 5.0, 0.0, 7.0):
        clock.now += step
        seen.append(passed())
    assert seen == [5.0, 5.0, 10.0, 10.0, 17.0]
    clock.now = float("nan")
    with pytest.raises(InputError, match="clock"):
        passed()


def test_an_outage_of_the_store_does_not_count_as_silence(store: Store) -> None:
    own = Time()
    negotiator = small(store, ttl=30.0, monotonic=own)
    negotiator.expire()
    own.now += 100
    store.outages += 1  # as `Store` counts, when it has found its connection broken
    assert negotiator.expire().machines == ()
    own.now += 29
    assert negotiator.expire().machines == ()
    own.now += 2
    assert negotiator.expire().machines == ("m",)


def test_jumps_change_nothing_in_what_is_decided() -> None:
    """The same history on clocks that are set at random, forth and back by hours, and on such as are not."""
    for seed in range(effort(3, 200)):
        ends = []
        for wild in (False, True):
            rng, jumps = random.Random(seed), random.Random(seed)
            day, own = Time(1e9), Time()
            store = Store()
            negotiator = Negotiator(store, ttl=30.0, max_wait=60.0, clock=Steady(day, own), monotonic=own)
            negotiator.add_units([ResourceUnit(f"u{i}", f"m{i}", vcore=2) for i in range(3)], length=2)
            negotiator.add_scheduler("s")
            told: list[object] = []
            for step in range(25):
                seconds = rng.uniform(0.0, 6.0)
                own.now += seconds
                day.now += seconds + (jumps.choice([0.0, HOUR, -HOUR]) if wild else 0.0)
                negotiator.submit(f"j{step}", [Container(f"t{step}", vcore=1, duration=20.0)], scheduler="s")
                unit = f"u{rng.randrange(3)}"
                told.append(negotiator.commit("s", [Claim(f"t{step}", unit, queued=rng.random() < 0.5)], launch=True))
                running = sorted(str(c.id) for _, c in negotiator.on_machine("m0"))
                machines = rng.sample(["m0", "m1", "m2"], 2)
                told += [negotiator.heartbeat(m, finished=running[: rng.randrange(2)]) for m in machines]
                told += [negotiator.expire(), [(u.unit, u.free, round(u.wait, 3), u.alive) for u in negotiator.units()]]
                negotiator.beat("s")
            audit(store)
            ends.append(told)
        assert ends[0] == ends[1], f"seed {seed}"


def shifted(clock: Time, by: float) -> Callable[[], float]:
    return lambda: clock.now + by


def test_no_two_hold_the_lock_whatever_their_clocks_show() -> None:
    """Owners with clocks of their own die, sleep and renew at random; at most one of them says that it holds the lock."""
    held = 0
    for seed in range(effort(20, 1000)):
        rng = random.Random(seed)
        store, moment = Store(), Time(0.0)
        owners = [Leases(store, 10.0, shifted(moment, rng.uniform(-1e6, 1e6))) for _ in range(3)]
        tickets = [owner.draw("stream", str(i)) for i, owner in enumerate(owners)]
        for _ in range(40):
            moment.now += rng.uniform(0.0, 4.0)
            i = rng.randrange(3)
            if rng.random() < 0.3 and not owners[i].renew(tickets[i]):
                owners[i].release(tickets[i])
                tickets[i] = owners[i].draw("stream", str(i))
            if rng.random() < 0.3:
                owners[rng.randrange(3)].sweep()
            holders = [i for i in rng.sample(range(3), 3) if owners[i].is_first(tickets[i])]
            assert len(holders) <= 1, f"seed {seed}"
            held += len(holders)
        store.close()
    assert held


def test_a_watch_forgets_names_that_are_gone() -> None:
    own = Time()
    watch = Watch(10.0, own)
    watch.note("a", 1)
    own.now += 11
    assert watch.is_silent("a", 1) and not watch.is_silent("a", 2)
    watch.keep(())
    own.now += 11
    assert not watch.is_silent("a", 2)


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


# -- overlapping calls ----------------------------------------------------------------------------------------------


def within(negotiator: Negotiator, meanwhile: Callable[[], None]) -> None:
    """Do something while a call of the negotiator is under way, in its thread."""

    def place(tasks: Sequence[Container], units: Sequence[UnitState]) -> dict[str, str]:
        meanwhile()
        return {"x": "u"}

    assert negotiator.stream("s", "x", place).accepted == (Claim("x", "u"),)
    audit(negotiator.store)


def by_thread(call: Callable[[], None]) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()


def by_handler(call: Callable[[], None]) -> None:
    before = signal.signal(signal.SIGUSR1, lambda *_: call())
    try:
        signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)


def by_finaliser(call: Callable[[], None]) -> None:
    class Last:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            call()

    Last()
    gc.collect()


def by_callback(call: Callable[[], None]) -> None:
    call()


@pytest.mark.parametrize("how", [by_thread, by_handler, by_finaliser, by_callback])
def test_a_negotiator_in_use_refuses_a_second_call(store: Store, how: Callable[[Callable[[], None]], None]) -> None:
    negotiator = small(store)
    refused = []

    def call() -> None:
        for one in (negotiator.jobs, negotiator.expire, lambda: negotiator.finish(["a"]), lambda: negotiator.beat("s")):
            try:
                one()
            except ConcurrentUseError as error:
                refused.append(str(error))

    within(negotiator, lambda: how(call))
    assert refused == ["Negotiator: used while another call on it is under way"] * 4
    assert negotiator.beat("s") == ["x"]


@pytest.mark.parametrize("how", [by_handler, by_finaliser, by_callback])
def test_a_thread_inside_a_transaction_does_not_wait_for_itself(
    store: Store, how: Callable[[Callable[[], None]], None]
) -> None:
    negotiator, other = small(store), Negotiator(store)
    refused = []

    def call() -> None:
        for one in (other.jobs, lambda: other.finish(["a"]), store.clear):
            try:
                one()
            except ConcurrentUseError as error:
                refused.append(str(error))

    def work(db: sa.Connection) -> None:
        db.execute(sa.update(RT).where(RT.c.task_id == "a").values(priority=7))
        how(call)

    store.transact(work)
    assert refused == ["Store: used while this thread is inside a transaction on it"] * 3
    assert [task.priority for task in negotiator.tasks("j")] == [7, 0]


def test_a_signal_in_the_middle_undoes_the_call_and_frees_the_negotiator(store: Store) -> None:
    class LeaveError(Exception):
        pass

    def leave(*_: object) -> None:
        raise LeaveError

    negotiator = small(store)
    before = picture(negotiator)
    old = signal.signal(signal.SIGUSR1, leave)
    try:
        with pytest.raises(LeaveError):
            negotiator.stream("s", "x", lambda tasks, units: signal.raise_signal(signal.SIGUSR1))  # type: ignore[arg-type, return-value, func-returns-value]
        with pytest.raises(LeaveError):
            store.transact(
                lambda db: (db.execute(sa.delete(RT)), signal.raise_signal(signal.SIGUSR1), db.execute(sa.select(RT)))
            )
    finally:
        signal.signal(signal.SIGUSR1, old)
    assert picture(negotiator) == before and store.look(sa.select(LQ)) == []


def test_a_worker_in_use_refuses_a_second_call_and_goes_on_after_a_failed_step() -> None:
    negotiator = small(Store())
    refused = []

    def launch(tasks: Sequence[str]) -> None:
        try:
            worker.step()
        except ConcurrentUseError as error:
            refused.append(str(error))
            if len(refused) == 1:
                raise KeyboardInterrupt from None

    worker = Worker(negotiator, "s", launch=launch)
    with pytest.raises(KeyboardInterrupt):
        worker.step()
    worker.step()
    assert set(refused) == {"Worker: used while another call on it is under way"} and worker.step() is False
    audit(negotiator.store)
