"""The queue manager's calls, sensed triggers, run times from history, and stream jobs that grow and shrink."""

from __future__ import annotations

import math
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from negotiators import audit, batch, make, statuses, streams

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed: pip install 'flowsched[sql]'")

from flowsched.exceptions import DuplicateIdError, InputError, UnknownIdError
from flowsched.hrm import Claim, Container, Elastic, Hybrid, Negotiator, ResourceUnit, RunTimes, Status, Store
from flowsched.hrm.schedulers import Worker


def test_a_larger_queue_and_more_places_take_effect_at_once(store: Store) -> None:
    negotiator = Negotiator(store, shares=False)
    negotiator.add_units([ResourceUnit("u", "m", vcore=4)], length=1, most=1)
    negotiator.add_scheduler("s")
    negotiator.submit("j", batch("j", 5), scheduler="s")
    claims = [Claim(f"j{i}", "u", queued=i > 0) for i in range(5)]
    negotiator.commit("s", claims[:1])
    assert len(negotiator.commit("s", claims[1:2]).accepted) == 1
    assert not negotiator.commit("s", claims[2:3]).accepted, "the queue is full"
    assert negotiator.set_units(["u"], length=3) == []
    assert len(negotiator.commit("s", claims[2:4]).accepted) == 2
    # Places are more than before, and fewer than tasks that run there: those stay.
    assert negotiator.set_units(["u"], most=3) == ["j1", "j2"]
    assert negotiator.set_units(["u"], most=1, length=0) == []
    (unit,) = negotiator.units()
    assert (unit.free[3], unit.places) == (0, 0)
    Hybrid().refresh([unit])
    assert negotiator.finish(["j0", "j1"]) == []
    assert negotiator.finish(["j2"]) == ["j3"]
    audit(store)
    with pytest.raises(UnknownIdError, match="'v'"):
        negotiator.set_units(["u", "v"], length=1)
    for bad in ({"length": -1}, {"most": 0}, {"length": 1.5}):
        with pytest.raises(InputError):
            negotiator.set_units(["u"], **bad)  # type: ignore[arg-type]


def test_tasks_of_a_deleted_unit_are_placed_elsewhere_and_stale_on_its_machine(store: Store) -> None:
    negotiator, _ = make(store, units=2, cores=2, length=1)
    negotiator.submit("a", batch("a", 5))
    worker = Worker(negotiator, "w")
    for _ in range(4):
        worker.step()
    before = {task: unit for task, (_, unit) in statuses(store).items()}
    gone = sorted(task for task, unit in before.items() if unit == "u1")
    assert negotiator.remove_units(["u1"]) == gone and gone
    assert [state.unit for state in negotiator.units()] == ["u0"]
    report = negotiator.heartbeat("m0", present=list(before))
    assert set(gone) <= set(report.stale)
    for _ in range(4):
        worker.step()
    assert {unit for _, unit in statuses(store).values()} <= {"u0", None}
    assert negotiator.units(worker.hybrid.versions) == [], "a deleted unit is told once"
    audit(store)
    # It may come back, and is used again.
    negotiator.add_units([ResourceUnit("u1", "m0", vcore=2)])
    for _ in range(3):
        worker.step()
    assert "u1" in {unit for _, unit in statuses(store).values()}
    audit(store)
    with pytest.raises(UnknownIdError):
        negotiator.remove_units(["u9"])


@pytest.mark.parametrize(("trigger", "kind"), [("once", "batch"), ("window", "stream"), ("continuous", "stream")])
def test_the_kind_of_a_job_is_sensed_from_its_trigger(trigger: str, kind: str) -> None:
    negotiator = Negotiator()
    negotiator.submit("j", [Container("c", vcore=1, kind="stream")], trigger=trigger)  # type: ignore[arg-type]
    assert [job.kind for job in negotiator.jobs()] == [kind] == [task.kind for task in negotiator.tasks("j")]
    with pytest.raises(InputError, match="trigger"):
        negotiator.submit("k", [Container("d", vcore=1)], trigger="often")  # type: ignore[arg-type]


def test_unknown_run_times_come_from_the_history_of_the_jobs_name(store: Store) -> None:
    negotiator, clock = make(store, run_times=RunTimes(default=100.0, weight=0.5))  # type: ignore[arg-type]

    def expected(job: str, name: str | None = None) -> float:
        negotiator.submit(job, [Container(f"{job}!", vcore=1)], name=name, scheduler="t")
        (task,) = negotiator.tasks(job)
        return task.duration

    assert expected("first") == 100.0
    for i, seconds in enumerate((20.0, 40.0)):
        negotiator.submit(f"sort {i}", batch(f"s{i}-", 1), scheduler="s", name="sort")
        negotiator.commit("s", [Claim(f"s{i}-0", "u0")], launch=True)
        clock.now += seconds
        assert negotiator.heartbeat("m0", finished=[f"s{i}-0"]).finished
    assert expected("sort 9", "sort") == 30.0 == expected("other"), "without history: the mean of the names"
    # A machine may tell run times; several at once count in turn, as `RunTimes` has it.
    negotiator.submit("many", batch("m", 2), scheduler="s", name="sort")
    negotiator.commit("s", [Claim("m0", "u0"), Claim("m1", "u1")], launch=True)
    negotiator.heartbeat("m0", finished={"m0": 10.0, "m1": 50.0})
    assert expected("sort 10", "sort") == pytest.approx((30.0 / 2 + 10.0 / 2) / 2 + 50.0 / 2)
    # A told duration stays.
    negotiator.submit("told", batch("x", 1, duration=7.0), name="sort")
    assert negotiator.tasks("told")[0].duration == 7.0
    audit(store)
    with pytest.raises(InputError, match="finished"):
        negotiator.heartbeat("m0", finished={"m0": -1.0})


@settings(max_examples=20)
@given(st.lists(st.lists(st.floats(0, 1e4), min_size=1, max_size=4), min_size=1, max_size=4))
def test_the_stored_history_is_that_of_run_times(beats: list[list[float]]) -> None:
    negotiator, times = Negotiator(shares=False, run_times=RunTimes(weight=0.3)), RunTimes(weight=0.3)
    negotiator.add_units([ResourceUnit("u", "m", vcore=9)])
    negotiator.add_scheduler("s")
    for k, beat in enumerate(beats):
        tasks = {f"{k}-{i:02}": seconds for i, seconds in enumerate(beat)}
        negotiator.submit(f"j{k}", [Container(id, vcore=1, duration=1.0) for id in tasks], scheduler="s", name="n")
        negotiator.commit("s", [Claim(id, "u") for id in tasks], launch=True)
        negotiator.heartbeat("m", finished=tasks)
        for seconds in beat:
            times.observe("n", seconds)
    negotiator.submit("new", [Container("new", vcore=1)], name="n")
    assert negotiator.tasks("new")[0].duration == pytest.approx(times.expect("n"), abs=1e-6)


def test_a_stream_job_grows_and_shrinks_by_its_load(store: Store) -> None:
    negotiator, _ = make(store, units=2, cores=3, length=0)
    elastic = Elastic(least=1, most=5)
    negotiator.submit("x", streams("x", 2), scheduler="s")
    worker = Worker(negotiator, "s")
    worker.step()
    assert negotiator.resize("x", 0.7, elastic) == ([], [])
    opened, ended = negotiator.resize("x", 1.4, elastic)
    assert (opened, ended) == (["x+2", "x+3"], [])
    worker.step()
    assert [job.held for job in negotiator.jobs()] == [4]
    # It grows to the most, of which one is open still; then it shrinks, the open one first.
    assert negotiator.resize("x", 9.0, elastic)[0] == ["x+4"]
    opened, ended = negotiator.resize("x", 0.28, elastic)
    assert not opened and len(ended) == 3 and "x+4" in ended
    (job,) = negotiator.jobs()
    assert (job.open, job.held, job.done) == (0, 2, 3)
    left = [task for task, (status, _) in statuses(store).items() if status != Status.DONE]
    assert set(negotiator.heartbeat("m0", present=[*left, *ended]).stale) == set(ended)
    audit(store)
    negotiator.submit("other", [Container("x+5", vcore=1)])
    with pytest.raises(DuplicateIdError, match="'x'"):
        negotiator.resize("x", 9.0, elastic)
    with pytest.raises(UnknownIdError, match="'y'"):
        negotiator.resize("y", 1.0, elastic)
    with pytest.raises(InputError, match="elastic"):
        negotiator.resize("x", 1.0, None)  # type: ignore[arg-type]


def test_a_worker_resizes_its_stream_jobs(store: Store) -> None:
    negotiator, _ = make(store, units=2, cores=3, length=0)
    negotiator.submit("x", streams("x", 2), scheduler="s")
    load = {"x": 2.1}
    worker = Worker(negotiator, "s", elastic=Elastic(most=6), load=load.get)
    worker.step()  # two containers are placed
    worker.step()  # at this load it wants six
    assert [job.held for job in negotiator.jobs()] == [6]
    load["x"] = 0.1
    worker.step()
    assert [(job.held, job.open) for job in negotiator.jobs()] == [(1, 0)]
    load.clear()
    worker.step()
    assert [(job.held, job.open) for job in negotiator.jobs()] == [(1, 0)], "a load that is not known changes nothing"
    audit(store)


def test_a_store_of_an_older_build_is_read_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    first = Negotiator(Store(f"sqlite:///{path}"))
    first.add_units([ResourceUnit("u", "m", vcore=2)])
    first.add_scheduler("s")
    first.submit("old", batch("o", 2), scheduler="s")
    first.store.close()
    with sqlite3.connect(path) as db:  # as it was before names and history
        db.execute("ALTER TABLE hrm_js DROP COLUMN name")
        db.execute("DROP TABLE hrm_ht")
    negotiator = Negotiator(Store(f"sqlite:///{path}"))
    assert [(job.job, job.open) for job in negotiator.jobs()] == [("old", 2)]
    negotiator.commit("s", [Claim("o0", "u")], launch=True)
    negotiator.heartbeat("m", finished={"o0": 4.0})
    negotiator.submit("old", [Container("o9", vcore=1)])
    assert [task.duration for task in negotiator.tasks("old") if task.id == "o9"] == [4.0]
    assert math.isfinite(negotiator.tasks("old")[0].duration)
    negotiator.store.close()


def test_a_unit_that_is_there_is_not_added_again(store: Store) -> None:
    negotiator, _ = make(store, units=1)
    with pytest.raises(DuplicateIdError):
        negotiator.add_units([ResourceUnit("u0", "m0", vcore=1)])
