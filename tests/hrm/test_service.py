"""What HRM's processes need of the shared state: commands of jobs, exit statuses, and parts that leave."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

sa = pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed: pip install 'flowsched[sql]'")

from agents import UNIT
from negotiators import audit, small, statuses

from flowsched.exceptions import StoreError
from flowsched.hrm import Claim, Container, ExpiredError, Negotiator, ResourceUnit, Store
from flowsched.hrm.agent import Agent
from flowsched.hrm.agent.processes import Entry
from flowsched.hrm.config import read_config
from flowsched.hrm.schedulers import Worker
from flowsched.hrm.service import run_agent
from flowsched.hrm.state.work import Commands, jobs, tasks, units, work


def test_a_machine_that_leaves_gives_its_tasks_back_and_may_return(store: Store) -> None:
    negotiator = small(store)
    assert negotiator.commit("s", [Claim("a", "u"), Claim("b", "u")], launch=True).accepted
    assert negotiator.leave(machine="m") == ["a", "b"]
    assert {status for status, _ in statuses(store).values()} == {"OPEN"}
    assert [unit.alive for unit in negotiator.units()] == [False]
    assert negotiator.leave(machine="m") == negotiator.leave(machine="unknown") == negotiator.leave() == []
    assert negotiator.heartbeat("m", present=["a"]).stale == ("a",)
    assert [unit.alive for unit in negotiator.units()] == [True]
    audit(store)


def test_a_scheduler_that_leaves_gives_up_its_jobs_and_claims(store: Store) -> None:
    negotiator = small(store)
    assert negotiator.commit("s", [Claim("a", "u")], launch=True).accepted  # belongs to the machine
    assert negotiator.commit("s", [Claim("b", "u")]).accepted
    assert negotiator.leave(scheduler="s") == ["b"]
    assert [job.scheduler for job in negotiator.jobs()] == [None, None]
    with pytest.raises(ExpiredError):
        negotiator.beat("s")
    audit(store)


def test_schedulers_take_jobs_of_the_kinds_that_they_serve(store: Store) -> None:
    negotiator = small(store)
    negotiator.leave(scheduler="s")
    for name, kind, job in (("b", "batch", "j"), ("x", "stream", "x")):
        worker = Worker(negotiator, name, kinds=[kind])
        worker.step()
        assert [told.job for told in negotiator.jobs(name)] == [job]
    negotiator.submit("later", [Container("later", vcore=1, kind="stream")])
    assert negotiator.adopt("b", kinds=["batch"]) == []
    assert negotiator.adopt("b") == ["later"]


def test_commands_are_read_where_tasks_start(store: Store, tmp_path: Path) -> None:
    negotiator = small(store)
    commands = Commands(store, "m", tmp_path)
    with pytest.raises(LookupError, match="without a command"):
        commands("a")
    told = work(["echo", "$0"], {"A": "1", "FLOWSCHED_TASK": "mine"}, "sub")
    negotiator.submit("k", [Container(f"k.{i}", vcore=1) for i in range(2)], work=told)
    negotiator.submit("k", [Container("k.odd", vcore=1)], work=work("other", {}))  # more tasks of a known job
    one, odd, log = commands("k.1"), commands("k.odd"), str(tmp_path / "k.1.log")
    assert list(one.line) == list(odd.line) == ["echo", "$0"]
    own = {"A": "1", "FLOWSCHED_TASK": "k.1", "FLOWSCHED_INDEX": "1"}
    assert one.entry == Entry(own, str(Path("sub").absolute()), log, log)
    assert odd.entry.environment["FLOWSCHED_INDEX"] == "0"
    negotiator.submit("../x", [Container("../x", vcore=1)], work=work("true", {}))
    assert commands("../x").entry.output == str(tmp_path / "..%2Fx.log")
    assert json.loads(told)["directory"] == "sub"


def test_exit_statuses_are_of_the_last_run(store: Store, tmp_path: Path) -> None:
    negotiator = small(store)
    negotiator.submit("k", [Container("k", vcore=1)], scheduler="s", work=work("true", {}))
    here, elsewhere = Commands(store, "m", tmp_path), Commands(store, "other", tmp_path)

    def recorded() -> int | None:
        return tasks(store, "k")[0].exit_status  # type: ignore[no-any-return]

    here.record({"k": 3})
    assert recorded() is None  # it is on no unit of the machine
    assert negotiator.commit("s", [Claim("k", "u")], launch=True).accepted
    elsewhere.record({"k": 3})
    assert recorded() is None
    here.record({"k": -9})
    assert recorded() == -9 and [job.failed for job in jobs(store) if job.job_id == "k"] == [0]  # it may run again
    here("k")
    assert recorded() is None
    here.record({"k": 3})
    negotiator.heartbeat("m", finished=["k"])
    assert [(job.job_id, job.failed) for job in jobs(store)] == [("j", 0), ("x", 0), ("k", 1)]


def test_an_agent_about_to_end_reports_and_starts_nothing(tmp_path: Path) -> None:
    agent = pytest.importorskip("flowsched.hrm.agent")
    store = Store(f"sqlite:///{tmp_path}/state.db")
    negotiator = Negotiator(store)
    negotiator.add_units([UNIT], length=2)
    negotiator.add_scheduler("s")
    negotiator.submit("j", [Container(id, vcore=2) for id in "ab"], scheduler="s")
    assert negotiator.commit("s", [Claim("a", "u"), Claim("b", "u", queued=True)], launch=True).accepted
    with agent.Agent([UNIT], negotiator=negotiator, command=lambda id: ["true"], state=tmp_path / "state") as one:
        one.heartbeat(start=False)
        assert one.pid("a") is None
        one.heartbeat()
        assert one.step(30.0)
        one.heartbeat(start=False)
    assert statuses(store)["a"][0] == "DONE"


def test_a_store_that_is_away_is_no_end_of_a_task(tmp_path: Path) -> None:
    agent = pytest.importorskip("flowsched.hrm.agent")
    store = Store(f"sqlite:///{tmp_path}/state.db")
    negotiator = Negotiator(store)
    negotiator.add_units([UNIT])
    negotiator.add_scheduler("s")
    negotiator.submit("j", [Container("a", vcore=2)], scheduler="s")
    assert negotiator.commit("s", [Claim("a", "u")], launch=True).accepted
    away = [True]

    def command(id: str) -> list[str]:
        if away:
            away.clear()
            raise StoreError("the store is away")
        return ["true"]

    with agent.Agent([UNIT], negotiator=negotiator, command=command, state=tmp_path / "state") as one:
        with pytest.raises(StoreError):
            one.heartbeat()
        one.heartbeat()
        assert [(ended.id, ended.status) for ended in one.wait(30.0)] == [("a", 0)]


def test_an_agent_says_that_it_is_at_work_once_its_units_are_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Units that are alike come in one transaction; those that are there keep their queues."""
    config = tmp_path / "hrm.toml"
    node = "[agent]\nname = 'm'\nstate = 'state'\n[agent.node]\ncores = 4\nmem = 8\n[agent.split]\ncpu_units = 2\n"
    config.write_text(f"[store]\nurl = 'sqlite:///{tmp_path}/state.db'\n{node}[agent.queue.cpu1]\nlength = 7\n")
    calls: list[list[str]] = []
    add = Negotiator.add_units

    def noted(self: Negotiator, units: Sequence[ResourceUnit], **options: Any) -> None:
        calls.append([str(unit.id) for unit in units])
        assert "at work" not in caplog.text
        add(self, units, **options)

    def at_work(*_: object) -> None:
        if "at work" in caplog.text:
            raise SystemExit(0)

    monkeypatch.setattr(Negotiator, "add_units", noted)
    monkeypatch.setattr(Agent, "step", at_work)
    with caplog.at_level("INFO", "flowsched.hrm"):
        for expected in ([["m/cpu0"], ["m/cpu1"]], []):
            calls.clear()
            with pytest.raises(SystemExit):
                run_agent(read_config(config, units=True))
            assert calls == expected
            caplog.clear()
    store = Store(f"sqlite:///{tmp_path}/state.db")
    assert [(row.ru_id, row.length) for row in units(store)] == [("m/cpu0", 2), ("m/cpu1", 7)]
    store.close()


def test_a_store_of_an_older_build_gets_the_new_columns(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/state.db")
    small(store)
    for table, column in (("hrm_js", "work"), ("hrm_rt", "exit_status")):
        store.transact(lambda db, t=table, c=column: db.exec_driver_sql(f"ALTER TABLE {t} DROP COLUMN {c}"))  # type: ignore[misc]
    store.close()
    store = Store(f"sqlite:///{tmp_path}/state.db")
    assert [row.work for row in jobs(store)] == [None, None]
    assert [row.exit_status for row in tasks(store, "j")] == [None, None]
