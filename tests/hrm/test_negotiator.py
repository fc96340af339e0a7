"""The protocol on the shared state: in this process, in an SQLite file, on a PostgreSQL server."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed: pip install 'flowsched[sql]'")

import sqlalchemy as sa
from negotiators import Clock, audit, batch, make, statuses, streams

from flowsched.exceptions import DuplicateIdError, InputError, UnknownIdError, UnknownMachineError
from flowsched.hrm import Container, ResourceUnit
from flowsched.hrm.state.claims import Claim, ExpiredError, Refusal, Status, UnitState
from flowsched.hrm.state.negotiator import Negotiator
from flowsched.hrm.state.schema import JS, LQ, RT
from flowsched.hrm.state.store import Store

MICRO = 1_000_000


def test_what_fits_is_granted_and_only_the_rest_is_refused(store: Store) -> None:
    negotiator, _ = make(store)
    negotiator.submit("a", batch("a", 8), scheduler="s")
    claims = [Claim("a0", "u0"), Claim("a1", "u0"), Claim("a2", "u0", queued=True), Claim("a3", "u1"), Claim("a4", "u1"),
              Claim("a5", "u1"), Claim("a6", "nowhere"), Claim("a0", "u2"), Claim("zz", "u2")]  # fmt: skip
    granted = negotiator.commit("s", claims)
    assert granted.accepted == tuple(claims[:3])
    assert [(c.task, why) for c, why in granted.refused] == [
        ("a0", Refusal.TAKEN), ("zz", Refusal.TAKEN), ("a6", Refusal.CONFLICT),
        ("a3", Refusal.CONFLICT), ("a4", Refusal.CONFLICT), ("a5", Refusal.CONFLICT),
    ]  # fmt: skip
    audit(store)
    # The loser of a race for the same tasks, and for a full unit and queue.
    assert negotiator.commit("t", claims[:3]).accepted == ()
    assert negotiator.commit("t", [Claim("a7", "u0", queued=True)]).refused[0][1] is Refusal.CONFLICT
    assert negotiator.commit("t", [Claim("a7", "u0")]).refused[0][1] is Refusal.CONFLICT
    audit(store)


def test_no_task_overtakes_those_that_wait_on_a_unit(store: Store) -> None:
    negotiator, _ = make(store)
    negotiator.submit("a", [*batch("a", 2), *batch("big", 1, vcore=2)], scheduler="s")
    negotiator.commit("s", [Claim("a0", "u0"), Claim("big0", "u0", queued=True)])
    granted = negotiator.commit("s", [Claim("a1", "u0")])  # it would fit beside a0
    assert granted.refused == ((Claim("a1", "u0"), Refusal.CONFLICT),)
    audit(store)


def test_no_task_waits_on_an_idle_unit(store: Store) -> None:
    negotiator, _ = make(store, length=3)
    negotiator.submit("a", batch("a", 4), scheduler="s")
    queued = [Claim(f"a{i}", "u0", queued=True) for i in range(3)]
    assert negotiator.commit("s", queued).accepted == tuple(queued)
    assert [statuses(store)[f"a{i}"][0] for i in range(3)] == ["RUNNING", "RUNNING", "WAITING"]
    audit(store)
    assert negotiator.finish(["a0"]) == ["a2"]
    audit(store)


def test_only_units_that_changed_are_told(store: Store) -> None:
    negotiator, clock = make(store)
    known = {unit.unit: unit.version for unit in negotiator.units()}
    assert negotiator.units(known) == []
    negotiator.submit("a", batch("a", 3), scheduler="s")
    negotiator.commit("s", [Claim("a0", "u2"), Claim("a1", "u2"), Claim("a2", "u2", queued=True)])
    (unit,) = negotiator.units(known)
    assert (unit.unit, unit.free, unit.places, unit.stream_room[0]) == ("u2", (0, 0, 0, 0), 0, 2 * MICRO)
    assert unit.wait == 5.0 + 5.0 / 2
    clock.now += 4
    assert negotiator.units(known)[0].wait == 3.5
    known["u2"] = unit.version
    assert negotiator.units(known) == []
    negotiator.finish(["a0"])  # what the machines tell counts, too
    assert [(unit.unit, unit.places) for unit in negotiator.units(known)] == [("u2", 1)]


def test_the_next_in_the_queue_follows_at_once(store: Store) -> None:
    negotiator, clock = make(store)
    negotiator.submit("a", batch("a", 4), scheduler="s")
    negotiator.commit("s", [Claim("a0", "u0"), Claim("a1", "u0"), Claim("a2", "u0", queued=True)])
    clock.now += 5
    report = negotiator.heartbeat("m0", finished=["a0", "a3", "none"], present=["a0", "a1", "ghost"])
    assert (report.finished, report.started, report.granted, report.stale) == (("a0",), ("a2",), (), ("a0", "ghost"))
    assert statuses(store)["a2"] == ("RUNNING", "u0") and statuses(store)["a0"] == ("DONE", None)
    assert negotiator.finish(["a0"]) == []
    assert [(job.open, job.held, job.done) for job in negotiator.jobs("s")] == [(1, 2, 1)]
    audit(store)


def test_a_refused_claim_is_granted_at_the_heartbeat_that_makes_room(store: Store) -> None:
    negotiator, _ = make(store, length=0)
    negotiator.submit("a", batch("a", 3), scheduler="s")
    negotiator.submit("b", batch("b", 1), scheduler="t")
    negotiator.commit("s", [Claim("a0", "u0"), Claim("a1", "u0")])
    negotiator.commit("t", [Claim("b0", "u0")])
    assert negotiator.beat("t") == []
    assert negotiator.heartbeat("m0", finished=["a0"]).granted == ("b0",)
    assert negotiator.beat("t") == ["b0"]
    assert negotiator.launch("t", ["b0", "a1"]) == ["b0"]
    assert negotiator.beat("t") == []
    audit(store)


def test_wishes_are_granted_to_schedulers_that_are_there(store: Store) -> None:
    negotiator, clock = make(store, length=0)
    negotiator.submit("a", batch("a", 2), scheduler="s")
    negotiator.submit("b", batch("b", 1), scheduler="t")
    negotiator.commit("s", [Claim("a0", "u0"), Claim("a1", "u0")], launch=True)
    negotiator.commit("t", [Claim("b0", "u0")])
    clock.now += 9
    negotiator.beat("s")
    negotiator.heartbeat("m0")
    clock.now += 2
    # Lost, but still with its job: the state while it is being declared lost.
    assert negotiator.expire().schedulers == ("t",)
    store.transact(lambda db: db.execute(sa.update(JS).where(JS.c.job_id == "b").values(scheduler="t")))
    assert negotiator.heartbeat("m0", finished=["a0"]).granted == ()
    negotiator.add_scheduler("t")
    assert negotiator.heartbeat("m0", finished=["a1"]).granted == ("b0",)
    assert negotiator.beat("t") == ["b0"]
    audit(store)


def test_tasks_can_be_launched_with_their_claims(store: Store) -> None:
    negotiator, _ = make(store)
    negotiator.submit("a", batch("a", 3), scheduler="s")
    negotiator.commit("s", [Claim("a0", "u0"), Claim("a1", "u0"), Claim("a2", "u0", queued=True)], launch=True)
    assert negotiator.beat("s") == [] == negotiator.launch("s", ["a0", "a2"])
    assert negotiator.heartbeat("m0", present=[]).missing == ("a0", "a1", "a2")
    audit(store)


def test_a_task_that_waits_too_long_moves_to_an_idle_unit_at_the_heartbeat(store: Store) -> None:
    negotiator, clock = make(store, cores=1, length=2, patience=3.0)
    negotiator.submit("a", batch("a", 5), scheduler="s")
    negotiator.submit("b", batch("b", 1), scheduler="s")
    claims = [Claim("a0", "u0"), Claim("a1", "u0", queued=True), Claim("a2", "u0", queued=True), Claim("a3", "u1")]
    negotiator.commit("s", [*claims, Claim("a4", "u3")], launch=True)
    negotiator.commit("s", [Claim("b0", "u1", queued=True)])  # not launched: it stays
    clock.now += 1
    assert negotiator.heartbeat("m0", present=["a0", "a1", "a2", "a3"]).stale == ()  # no waiting tasks were reported
    negotiator.heartbeat("m0", waiting=["b0"])
    assert statuses(store)["b0"] == ("WAITING", "u1")
    report = negotiator.heartbeat("m0", present=["a0", "a1", "a2", "a3"], waiting=["a1", "a2", "b0"])
    # One unit is idle; a2 would wait longest.
    assert (report.stale, report.started) == (("a2",), ())
    assert statuses(store)["a2"] == ("RUNNING", "u2") and statuses(store)["a1"] == ("WAITING", "u0")
    assert statuses(store)["b0"] == ("WAITING", "u1")
    assert negotiator.heartbeat("m1", present=["a4"]).missing == ("a2",)
    audit(store)
    clock.now += 4
    assert negotiator.heartbeat("m1", finished=["a2", "a4"]).finished == ("a2", "a4")
    report = negotiator.heartbeat("m0", finished=["a0"], present=["a1", "a3"], waiting=["a1"])
    assert (report.finished, report.started, report.stale) == (("a0",), ("a1",), ())
    audit(store)
    with pytest.raises(InputError, match="patience"):
        Negotiator(store, patience=-1.0)


def test_one_that_followed_may_have_ended_by_the_same_heartbeat(store: Store) -> None:
    negotiator, _ = make(store, cores=1, length=2)
    negotiator.submit("a", batch("a", 3), scheduler="s")
    claims = [Claim("a0", "u0"), Claim("a1", "u0", queued=True), Claim("a2", "u0", queued=True)]
    assert len(negotiator.commit("s", claims, launch=True).accepted) == 3
    report = negotiator.heartbeat("m0", finished=["a1", "a0"])
    assert (sorted(report.finished), report.started) == (["a0", "a1"], ("a2",))
    audit(store)


def test_a_paused_task_keeps_its_memory_in_the_rows(store: Store) -> None:
    negotiator, _ = make(store, units=1)
    negotiator.add_units([ResourceUnit("u", "m", vcore=2, mem=100)], length=1)
    negotiator.submit("a", [Container("a", vcore=2, mem=60, duration=5.0)], scheduler="s")
    negotiator.commit("s", [Claim("a", "u")], launch=True)
    for name, cores, mem, becomes in (("x", 2, 30, "PAUSED"), ("y", 0, 20, "WAITING")):
        negotiator.submit(name, [Container(name, vcore=cores, mem=mem, kind="stream")], scheduler="t")
        assert negotiator.stream("t", name, lambda tasks, _: {str(task.id): "u" for task in tasks}).accepted
        assert statuses(store)["a"] == (becomes, "u")
        audit(store)


def test_streams_get_everything_or_nothing_and_pause_batch(store: Store) -> None:
    negotiator, clock = make(store, units=2)
    negotiator.submit("a", batch("a", 5, duration=10.0), scheduler="s")
    negotiator.commit("s", [Claim("a0", "u0"), Claim("a1", "u0"), Claim("a2", "u0", queued=True), Claim("a3", "u1")])
    clock.now += 4
    negotiator.submit("x", streams("x", 3), scheduler="t")
    before = statuses(store)

    def too_many(tasks: Sequence[Container], units: Sequence[UnitState]) -> dict[str, str]:
        assert [unit.stream_room[0] for unit in units] == [2 * MICRO, 2 * MICRO]
        return {str(task.id): "u0" for task in tasks}

    assert negotiator.stream("t", "x", too_many).accepted == ()
    assert negotiator.stream("t", "x", lambda tasks, units: None).accepted == ()
    assert statuses(store) == before
    where = {"x0": "u0", "x1": "u1", "x2": "u1"}
    assert len(negotiator.stream("t", "x", lambda tasks, units: where).accepted) == 3
    now = statuses(store)
    assert (now["a1"][0], now["a3"][0], now["x0"]) == ("PAUSED", "PAUSED", ("RUNNING", "u0"))
    audit(store)
    clock.now += 1
    assert negotiator.finish(["x0", "x1"]) == ["a1", "a3"]
    audit(store)
    # It had run 4 of its 10 seconds.
    assert negotiator.tasks("a", Status.RUNNING)[1].id == "a1"
    since = sa.select(RT.c.since).where(RT.c.task_id == "a1")
    assert store.read(lambda db: db.execute(since).scalar()) == clock.now - 4


def test_a_stream_job_grows_and_shrinks(store: Store) -> None:
    negotiator, _ = make(store, units=2)
    negotiator.submit("x", streams("x", 2), scheduler="s")
    assert negotiator.stream("s", "x", lambda tasks, units: {"x0": "u0", "x1": "u0"}).accepted
    negotiator.submit("x", [Container("more", "x", vcore=1, kind="stream")])
    grown = negotiator.stream("s", "x", lambda tasks, units: {str(task.id): "u1" for task in tasks})
    assert [claim.task for claim in grown.accepted] == ["more"]
    negotiator.finish(["x1"])
    (job,) = negotiator.jobs()
    assert (job.tasks, job.open, job.held, job.done) == (3, 0, 2, 1)
    audit(store)


def test_a_stream_evicts_for_gpu_memory_and_the_victim_waits(store: Store) -> None:
    clock = Clock()
    negotiator = Negotiator(store, clock=clock)
    negotiator.add_units([ResourceUnit("g", "m", gmem=8, gpu=0)], length=1, most=3)
    negotiator.add_scheduler("s")
    negotiator.submit("a", [Container(f"a{i}", gmem=4, duration=9) for i in range(3)], scheduler="s")
    negotiator.commit("s", [Claim("a0", "g"), Claim("a1", "g"), Claim("a2", "g", queued=True)])
    negotiator.submit("x", [Container("x", gmem=6, kind="stream")], scheduler="s")
    assert negotiator.stream("s", "x", lambda tasks, units: {"x": "g"}).accepted
    assert [statuses(store)[f"a{i}"][0] for i in range(3)] == ["WAITING"] * 3  # beyond the length: nothing is lost
    audit(store)
    assert negotiator.finish(["x"]) == ["a0", "a1"]
    audit(store)


def test_a_lost_scheduler_gives_back_what_it_had_not_launched(store: Store) -> None:
    negotiator, clock = make(store)
    negotiator.submit("a", batch("a", 4), scheduler="s")
    negotiator.commit("s", [Claim("a0", "u0"), Claim("a1", "u0"), Claim("a2", "u0", queued=True)])
    negotiator.launch("s", ["a0"])
    clock.now += 8
    negotiator.leases.draw("stream", "s")  # good for 10 s, but not without its owner
    negotiator.heartbeat("m0")
    negotiator.heartbeat("m1")
    negotiator.beat("t")
    assert negotiator.expire().schedulers == ()
    clock.now += 3
    lost = negotiator.expire()
    assert (lost.schedulers, lost.machines, lost.opened) == (("s",), (), ("a1", "a2"))
    assert statuses(store)["a0"] == ("RUNNING", "u0")
    assert store.read(lambda db: db.execute(sa.select(LQ)).all()) == []
    audit(store)
    for call in (
        lambda: negotiator.beat("s"),
        lambda: negotiator.commit("s", []),
        lambda: negotiator.launch("s", ["a1"]),
    ):
        with pytest.raises(ExpiredError, match="'s'"):
            call()
    assert negotiator.adopt("t") == ["a"] and negotiator.adopt("t") == []
    negotiator.add_scheduler("s")
    assert negotiator.beat("s") == []


def test_a_lost_machine_opens_its_tasks_and_comes_back_empty(store: Store) -> None:
    negotiator, clock = make(store)
    negotiator.submit("a", batch("a", 4), scheduler="s")
    negotiator.commit("s", [Claim("a0", "u0"), Claim("a1", "u1"), Claim("a2", "u2"), Claim("a3", "u1", queued=True)])
    negotiator.launch("s", ["a0", "a1", "a2", "a3"])
    clock.now += 11
    negotiator.heartbeat("m1")
    negotiator.beat("s")
    negotiator.beat("t")
    assert negotiator.expire().opened == ("a0", "a1", "a3")
    audit(store)
    assert negotiator.commit("s", [Claim("a0", "u0")]).refused[0][1] is Refusal.CONFLICT
    assert [unit.alive for unit in negotiator.units()] == [False, False, True, True]
    report = negotiator.heartbeat("m0", present=["a1"])
    assert (report.stale, report.granted) == (("a1",), ("a0",))
    assert all(unit.alive for unit in negotiator.units())
    audit(store)


def test_no_queue_beyond_the_longest_wait(store: Store) -> None:
    negotiator, clock = make(store, length=9, max_wait=7.0)
    negotiator.submit("a", batch("a", 6), scheduler="s")
    negotiator.commit("s", [Claim("a0", "u0"), Claim("a1", "u0")])
    assert negotiator.commit("s", [Claim("a2", "u0", queued=True)]).accepted  # predicted wait 5
    assert not negotiator.commit("s", [Claim("a3", "u0", queued=True)]).accepted  # 7.5 by now
    clock.now += 1
    assert negotiator.commit("s", [Claim("a3", "u0", queued=True)]).accepted


def test_mistakes_are_named(store: Store) -> None:
    negotiator, _ = make(store)
    negotiator.submit("a", batch("a", 1))
    with pytest.raises(DuplicateIdError, match="'a'"):
        negotiator.submit("a", batch("a", 1))
    with pytest.raises(DuplicateIdError, match="kind"):
        negotiator.submit("a", streams("x", 1))
    with pytest.raises(DuplicateIdError, match="unit"):
        negotiator.add_units([ResourceUnit("u0", "m0")])
    with pytest.raises(InputError, match="one kind"):
        negotiator.submit("c", batch("c", 1) + streams("d", 1))
    with pytest.raises(UnknownIdError, match="'nobody'"):
        negotiator.commit("nobody", [])
    with pytest.raises(UnknownMachineError, match="'m9'"):
        negotiator.heartbeat("m9")
    with pytest.raises(InputError, match="ttl"):
        Negotiator(store, ttl=0)
    audit(store)


def test_threads_on_one_store_do_not_claim_twice(store: Store) -> None:
    negotiator, _ = make(store, units=20, cores=1, length=0, shares=False)
    negotiator.submit("a", batch("a", 40), scheduler="s")
    granted: list[Claim] = []

    def work(name: str, first: int) -> None:
        mine = Negotiator(store, ttl=10.0, shares=False)
        for i in range(40):
            granted.extend(mine.commit(name, [Claim(f"a{(first + i) % 40}", f"u{(first + i) % 20}")]).accepted)

    threads = [threading.Thread(target=work, args=(name, 13 * i)) for i, name in enumerate("stst")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({c.task for c in granted}) == len({c.unit for c in granted}) == len(granted) == 20
    audit(store)


def test_urls() -> None:
    for url in ("mysql://x/y", "nonsense"):
        with pytest.raises(InputError, match="url|sqlite"):
            Store(url)
    with pytest.raises(InputError, match="another"):
        pickle.dumps(Store())


def test_a_store_travels_by_its_url(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/state.db", patience=3.0)
    make(store)
    copy = pickle.loads(pickle.dumps(store))
    assert len(Negotiator(copy).units()) == 4 and copy.patience == 3.0


def test_a_claim_on_a_queue_that_has_grown_is_refused(store: Store) -> None:
    negotiator, clock = make(store, units=2, cores=1, length=4)
    negotiator.submit("a", batch("a", 6, duration=10.0), scheduler="s")
    assert len(negotiator.commit("s", [Claim("a0", "u0"), Claim("a1", "u1")]).accepted) == 2
    wait = negotiator.units()[0].wait
    assert wait == pytest.approx(10.0)
    clock.now += 4.0
    # Both were decided on the same copy: the second one would start after the first, 10 s later than it expects.
    assert len(negotiator.commit("s", [Claim("a2", "u0", queued=True, wait=wait)]).accepted) == 1
    granted = negotiator.commit("t", [Claim("a3", "u0", queued=True, wait=wait), Claim("a4", "u1", True, wait)])
    assert [claim.task for claim in granted.accepted] == ["a4"]
    assert [(claim.task, why) for claim, why in granted.refused] == [("a3", Refusal.CONFLICT)]
    # With the wait as it is now, or any wait, it is granted, also where a container is late.
    clock.now += 30.0
    wait = negotiator.units()[0].wait
    assert len(negotiator.commit("t", [Claim("a3", "u0", queued=True, wait=wait)]).accepted) == 1
    assert len(negotiator.commit("s", [Claim("a5", "u0", queued=True)]).accepted) == 1
    audit(store)
