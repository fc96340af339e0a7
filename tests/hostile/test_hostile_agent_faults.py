"""The node agent with containers that cannot start or end too early: unit and process are released on every path."""

from __future__ import annotations

import gc
import os
import resource
import shutil
import signal
import time
from pathlib import Path

import pytest
from agents import SLEEP, UNIT, is_running, launch, one_core, run, settle, shared, wait_until

from flowsched.boundary import control_groups
from flowsched.exceptions import InputError
from flowsched.hrm import Container, Outcome, ResourceUnit
from flowsched.hrm.agent.cgroups import Cgroups

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the agent runs on Linux only")

from flowsched.hrm.agent import Agent, Ended


def test_one_that_has_ended_is_not_paused(tmp_path: Path) -> None:
    with Agent([UNIT], state=tmp_path) as agent:
        agent.submit("u", Container("batch", vcore=2), ["true"])
        pid = agent.pid("batch")
        assert pid is not None
        wait_until(lambda: not is_running(pid))
        assert agent.submit("u", Container("stream", vcore=2, kind="stream"), ["true"]).paused == ()
        assert {one.id for one in settle(agent)} == {"batch", "stream"}


@pytest.mark.parametrize("mem", [0, 80])
def test_one_that_ends_while_it_is_stopped_is_told_and_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mem: int
) -> None:
    """It ends after the agent has looked, and before it is paused, or (for its memory) evicted."""
    out = tmp_path / "out"
    with Agent([UNIT], state=tmp_path / "state") as agent:
        code = f"open({str(out)!r}, 'a').write('x'); raise SystemExit(5)"
        agent.submit("u", Container("batch", vcore=2, mem=mem), run(code))
        pid = agent.pid("batch")
        assert pid is not None
        real = agent._collect_ended

        def late() -> None:
            monkeypatch.setattr(agent, "_collect_ended", real)
            wait_until(lambda: not is_running(pid))

        monkeypatch.setattr(agent, "_collect_ended", late)
        agent.submit("u", Container("stream", vcore=2, mem=mem, kind="stream"), ["true"])
        assert sorted(settle(agent), key=lambda one: one.id) == [Ended("batch", 5), Ended("stream", 0)]
    assert out.read_text() == "x"


def test_what_cannot_be_started_has_ended(tmp_path: Path) -> None:
    nowhere = ResourceUnit("nowhere", "m", vcore=1, cpus=(100_000,))
    plain = tmp_path / "plain"
    plain.write_text("no program")
    with Agent([UNIT, nowhere], state=tmp_path / "state") as agent:
        bad = {"missing": ["/no/such/program"], "plain": [str(plain)], "folder": [str(tmp_path)]}
        agent.submit("u", Container("before", vcore=2), ["sleep", "1"])  # the others come while it runs
        for id, command in bad.items():
            assert agent.submit("u", Container(id, vcore=2), command).outcome is Outcome.QUEUED
        agent.submit("u", Container("after", vcore=2), ["true"])
        agent.submit("nowhere", Container("cpu", vcore=1), ["true"])
        told = {one.id: one.status for one in settle(agent)}
        assert told == {
            "before": 0, "missing": 127, "plain": 126, "folder": 126, "after": 0, "cpu": 126,
        }  # fmt: skip
        for command in ([], [""], "true", ["a\0b"], [1], None, ["\ud83d"]):
            with pytest.raises(InputError, match="command"):
                agent.submit("u", Container("x"), command)  # type: ignore[arg-type]
        assert settle(agent) == []


def test_without_descriptors_what_runs_ends_and_what_comes_has_failed(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    gc.collect()  # files of earlier tests, closed later, would leave free numbers below those of the agent
    with Agent([UNIT], state=tmp_path) as agent:
        agent.submit("u", Container("a", vcore=1), ["true"])
        agent.submit("u", Container("b", vcore=1), SLEEP)
        agent.submit("u", Container("c", vcore=2), ["true"])
        lowest = os.open(os.devnull, os.O_RDONLY)
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
        try:
            with pytest.raises(OSError, match="Too many open files"):
                os.open(os.devnull, os.O_RDONLY)
            assert agent.step(30) == [Ended("a", 0)]
            agent.remove("b")
            (told,) = agent.step(30)
            assert (told.id, told.status) == ("c", 127) and "Too many open files" in told.error
            agent.submit("u", Container("d", vcore=2), ["true"])
            assert [one.id for one in agent.step(30)] == ["d"]
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        agent.submit("u", Container("e", vcore=2), ["true"])
        assert settle(agent) == [Ended("e", 0)]


@pytest.mark.parametrize("fault", ["hold", "pidfd", "record", "enter"])
def test_a_fault_while_starting_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    out = tmp_path / "out"
    groups = Cgroups(tmp_path)
    (tmp_path / "cgroup.subtree_control").write_text("")
    monkeypatch.setattr(control_groups, "remove", lambda group: shutil.rmtree(group, ignore_errors=True))

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with Agent([UNIT], state=tmp_path / "state", cgroups=groups) as agent:
        with monkeypatch.context() as patch:
            if fault == "hold":
                patch.setattr("flowsched.hrm.agent.launcher.hold", fail)
            elif fault == "pidfd":
                patch.setattr(agent._launcher._selector, "register", fail)
            elif fault == "record":
                patch.setattr(agent._launcher._custody, "add", fail)
            else:
                patch.setattr(groups, "enter", fail)
            agent.submit("u", Container("a", vcore=2), run(f"open({str(out)!r}, 'w')"))
        (told,) = settle(agent)
        assert (told.id, told.status) == ("a", 127) and "No space left" in told.error
        assert not list((tmp_path / "state").rglob("*.json"))
        agent.submit("u", Container("a", vcore=2), ["true"])
        assert settle(agent) == [Ended("a", 0)]
    assert not out.exists()


def test_programs_get_what_they_expect(tmp_path: Path) -> None:
    """Arguments and environment as they are, no descriptor of the agent's, and SIGPIPE at its default."""
    out, status, key = tmp_path / "out", tmp_path / "status", "odd.name"
    code = f"""
import os, sys
text = repr([sys.argv[1:], os.environ.get({key!r}), sorted(os.listdir('/proc/self/fd'))])
open({str(out)!r}, 'w').write(text)
"""
    os.environ[key] = "kept"
    try:
        with Agent([UNIT], state=tmp_path / "state") as agent:
            agent.submit("u", Container("a"), [*run(code), "-x", "", "a b", "é"])
            agent.submit("u", Container("b"), ["cp", "/proc/self/status", str(status)])
            assert {one.status for one in settle(agent)} == {0}
    finally:
        del os.environ[key]
    assert eval(out.read_text()) == [["-x", "", "a b", "é"], "kept", ["0", "1", "2", "3"]]
    ignored = next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("SigIgn"))
    assert int(ignored, 16) & (1 << (signal.SIGPIPE - 1)) == 0


@pytest.mark.parametrize("cause", ["raises", "is none"])
def test_a_task_without_a_command_keeps_no_other_from_running(tmp_path: Path, cause: str) -> None:
    negotiator = shared(f"sqlite:///{tmp_path}/state.db")
    for id in ("good", "bad", "last"):
        launch(negotiator, id, "u0")

    def command(id: str) -> list[str]:
        if id == "bad" and cause == "raises":
            raise KeyError(id)
        return [] if id == "bad" else ["true"]

    told = []
    with Agent([one_core(0)], negotiator=negotiator, command=command, state=tmp_path / "state") as agent:
        deadline = time.monotonic() + 60
        while negotiator.jobs():
            assert time.monotonic() < deadline
            agent.heartbeat()
            told += agent.step(0.05)
    assert sorted((one.id, one.status) for one in told) == [("bad", 127), ("good", 0), ("last", 0)]


def test_what_a_failed_heartbeat_was_to_tell_is_told_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flowsched.exceptions import StoreError

    negotiator = shared(f"sqlite:///{tmp_path}/state.db")
    launch(negotiator, "a", "u0")
    with Agent([one_core(0)], negotiator=negotiator, command=lambda id: ["true"], state=tmp_path / "state") as agent:
        agent.heartbeat()
        assert agent.wait(30) == [Ended("a", 0)]
        with monkeypatch.context() as patch:
            patch.setattr(negotiator.store, "patience", 0.05)
            holder = __import__("sqlite3").connect(tmp_path / "state.db", isolation_level=None)
            holder.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match="heartbeat"):
                agent.heartbeat()
            holder.rollback()
            holder.close()
        assert [job.held for job in negotiator.jobs()] == [1]
        agent.heartbeat()
        assert negotiator.jobs() == [] and agent.wait(1) == []
