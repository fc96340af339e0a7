"""`flowsched hrm`: commands on the shared state, and its processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("click")
pytest.importorskip("rich")
pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed: pip install 'flowsched[sql]'")

from commands import invoke
from hrm_processes import Cluster, cluster
from pages import ROOT
from servers import postgres_server

import flowsched
from flowsched.hrm import Node, Store, split_machine
from flowsched.hrm.config import _KEYS, _NODE, _SPLIT, read_config
from flowsched.hrm.service import connected
from flowsched.hrm.state import work

linux = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the agent runs on Linux only")

JOBS = """
[[job]]
name = "good"
command = "echo $FLOWSCHED_TASK $FLOWSCHED_INDEX $COLOUR; pwd"
count = 3
directory = "work"
environment = {COLOUR = "a b"}
[[job]]
name = "bad"
command = ["sh", "-c", "exit $((FLOWSCHED_INDEX + 2))"]
count = 2
[[job]]
name = "none"
command = ["no such program"]
trigger = "window"
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "hrm.toml"
    path.write_text("[store]\nurl = 'sqlite:///state.db'\n[agent]\nname = 'm'\n[agent.node]\ncores = 4\nmem = 1000\n")
    monkeypatch.setenv("FLOWSCHED_HRM", str(path))
    return path


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.strip()]


def test_a_configuration_is_checked_and_its_units_are_shown(config: Path) -> None:
    result = invoke("hrm", "check", config, "--name", "other")
    assert result.exit_code == 0
    assert rows(result.stdout)[1] == ["other/cpu", "4", "1000", "0", "2"]
    config.write_text("[stores]\n[agent]\nlength = 'x'\n")
    said = invoke("hrm", "check", config)
    assert said.exit_code == 2 and len(said.stderr.splitlines()) == 3
    for command in (["negotiator"], ["scheduler"], ["agent"], ["status"], ["queue", "list"]):
        assert invoke("hrm", *command).stderr.splitlines()[0] == said.stderr.splitlines()[0]
        assert invoke("hrm", *command).exit_code == 2
    assert invoke("hrm", "check", "none.toml").exit_code == 74
    assert invoke("hrm", "status", "--config", "none.toml").exit_code == 74
    assert not Path("state.db").exists()


def test_jobs_are_submitted_once(config: Path) -> None:
    Path("jobs.toml").write_text(JOBS)
    result = invoke("hrm", "submit", "jobs.toml")
    assert (result.exit_code, result.stdout) == (0, "6 tasks of 3 jobs submitted\n")
    again = invoke("hrm", "submit", "jobs.toml")
    assert again.exit_code == 2 and "job 'good' is already there" in again.stderr
    assert invoke("hrm", "submit", "jobs.toml", "--suffix", "@2").exit_code == 0
    shown = invoke("hrm", "status").stdout
    assert ["good", "batch", "3", "3", "0", "0", "0"] in rows(shown) and [
        "none@2",
        "stream",
        "1",
        "1",
        "0",
        "0",
        "0",
    ] in rows(shown)
    assert rows(invoke("hrm", "status", "bad@2").stdout)[1:] == [["bad@2.0", "open"], ["bad@2.1", "open"]]
    assert invoke("hrm", "status", "nothing").exit_code == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1: job: no [[job]] in the file"),
        ("[[job]]\nname = 'a'\ncommand = 'b'\ndemand = {cpu = 1}", "line 4, column 1: job 'a': demand: unknown resource 'cpu'; known: vcore, mem, gmem"),
        ("[[job]]\nname = 'a'\ncommand = 'b'\ntrigger = 'now'", "line 4, column 1: job 'a': trigger: one of once, window, continuous"),
        ("[[job]]\nname = 'a'\ncommand = 'b'\nretries = 3", "line 4, column 1: job 'a': retries: unknown"),
        ("[[job]]\nname = 'a'\ncommand = 'b'\nscheduler = 3", "line 4, column 1: job 'a': scheduler: must be text"),
        ("[[job]]\nname = 'a'\ncommand = 'b'\nstages = 0", "line 4, column 1: job 'a': stages: must be a whole number"),
        ("[[job]]\nname = 'a'\ncommand = 'b'\nduration = -1", "line 4, column 1: job 'a': duration: a positive number"),
        ("[[job]]\nname = 'a'\ncommand = 'b'\npriority = 4000000000", "line 4, column 1: job 'a': priority: must be a whole"),
    ],
)  # fmt: skip
def test_mistakes_in_jobs_are_named_and_nothing_is_submitted(config: Path, text: str, message: str) -> None:
    Path("jobs.toml").write_text(text)
    result = invoke("hrm", "submit", "jobs.toml")
    assert result.exit_code == 2 and f"jobs.toml, {message}" in result.stderr
    assert not Path("state.db").exists()


def test_the_operators_commands_work_on_the_shared_state(config: Path) -> None:
    Path("jobs.toml").write_text(JOBS)
    assert invoke("submit", "jobs.toml").stdout == "6 tasks submitted: good, bad, none\n"
    shown = [row[:3] for row in rows(invoke("ps").stdout)]
    assert (
        shown[1:]
        == [
            ["bad.0", "PD", "(open)"],
            ["bad.1", "PD", "(open)"],
            *([f"good.{i}", "PD", "(open)"] for i in range(3)),
            ["none", "PD", "(open)"],
        ]
        or len(shown) == 7
    )
    assert len(rows(invoke("ps", "good").stdout)) == 4
    assert invoke("hrm", "queue", "create", "m/extra", "--machine", "m", "--vcore", 2, "--mem", 100).exit_code == 0
    assert rows(invoke("nodes").stdout)[1] == ["m/extra", "idle", "0", "0/2", "0/100"]
    refused = invoke("hold", "good")
    assert refused.exit_code == 2 and "hold: HRM has ps, nodes and submit" in refused.stderr


def test_queues_are_created_changed_and_deleted(config: Path) -> None:
    assert invoke("hrm", "queue", "create", "m/extra", "--machine", "m", "--vcore", 2, "--mem", 100).exit_code == 0
    twice = invoke("hrm", "queue", "create", "m/extra", "--machine", "m", "--vcore", 2, "--mem", 100)
    assert twice.exit_code == 2 and "already there" in twice.stderr
    assert invoke("hrm", "queue", "set", "m/extra", "--length", 7, "--most", 3).exit_code == 0
    assert rows(invoke("hrm", "queue", "list").stdout)[1] == [
        "m/extra",
        "up",
        "0/2",
        "0/100",
        "0/0",
        "0",
        "0",
        "0",
        "7",
        "3",
    ]
    assert invoke("hrm", "queue", "set", "m/other", "--most", 3).exit_code == 2
    assert invoke("hrm", "queue", "delete", "m/extra").stdout == "0 tasks are open again\n"
    assert invoke("hrm", "queue", "delete", "m/extra").exit_code == 2


@pytest.mark.long
def test_without_sqlalchemy_the_error_says_what_to_install(config: Path) -> None:
    code = "import sys; sys.modules['sqlalchemy'] = None; from flowsched.cli import main; main()"
    for command in (["status"], ["negotiator"]):
        done = subprocess.run(
            [sys.executable, "-c", code, "hrm", *command], capture_output=True, text=True, timeout=60, check=False,
            env=os.environ | {"PYTHONPATH": str(Path(flowsched.__file__).parents[1])},
        )  # fmt: skip
        assert done.returncode == 2 and "pip install 'flowsched[sql]'" in done.stderr, done.stderr


# -- processes ------------------------------------------------------------------------------------------------------

PARTS = [("negotiator",), ("scheduler", "s1"), ("agent", "m1")]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(tmp_path) as one:
        for who in PARTS:
            one.start(*who)
        yield one


def wait(happens: Callable[[], object], seconds: float = 600.0) -> None:
    deadline = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.long
@linux
def test_jobs_run_and_their_ends_are_shown(started: Cluster, tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text(JOBS)
    (tmp_path / "work").mkdir()
    done = started.run("submit", "jobs.toml", "--wait")
    assert done.returncode == 1, done.stderr
    by_job = {row[0]: row[1:] for row in rows(done.stdout)}
    assert by_job["good"] == ["batch", "s1", "3", "0", "0", "3", "0"]
    assert by_job["bad"] == ["batch", "s1", "2", "0", "0", "2", "2"]
    assert by_job["none"] == ["stream", "s1", "1", "0", "0", "1", "1"]
    assert rows(started.call("status", "bad").stdout)[1:] == [["bad.0", "done", "2"], ["bad.1", "done", "3"]]
    assert rows(started.call("status", "none").stdout)[1:] == [["none", "done", "127"]]
    logs = {path.name: path.read_text() for path in (tmp_path / "output").iterdir()}
    assert logs["good.1.log"] == f"good.1 1 a b\n{tmp_path}/work\n" and "no such program" in logs["none.log"]
    assert "WARNING task bad.1 ended, exit status 3" in started.log("agent", "m1").read_text()
    for who, number in zip(PARTS, (signal.SIGINT, signal.SIGTERM, signal.SIGINT), strict=True):
        assert started.end(*who, number=number) == 0
        assert "Traceback" not in started.log(*who).read_text()


@linux
@pytest.mark.long
def test_a_stopped_agent_gives_its_tasks_back_and_another_runs_them(started: Cluster, tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text("[[job]]\nname = 'a'\ncommand = '[ -e go ] || exec sleep 600'\ncount = 4\n")
    assert started.call("submit", tmp_path / "jobs.toml").exit_code == 0
    wait(lambda: len(started.containers("agent", "m1")) == 4)
    assert started.end("agent", "m1") == 0
    assert started.containers() == []
    store = Store(f"sqlite:///{tmp_path}/state.db")
    assert [unit.alive for unit in work.units(store)] == [0, 0]
    job = work.jobs(store)[0]
    assert (job.open, job.held, job.done) == (4, 0, 0)
    (tmp_path / "go").touch()
    started.start("agent", "m2")
    wait(lambda: work.jobs(store)[0].done == 4)
    # A scheduler that ends in order leaves its jobs to the others at once.
    assert started.end("scheduler", "s1") == 0
    assert work.jobs(store)[0].scheduler is None
    store.close()


@linux
@pytest.mark.long
def test_one_agent_serves_a_machine(started: Cluster) -> None:
    started.await_work(("agent", "m1"))
    second = started.run("agent", "--name", "m1")
    assert second.returncode == 1 and "another agent of this machine is at work" in second.stderr


@linux
@pytest.mark.long
def test_the_agent_follows_changes_of_its_queues(started: Cluster, tmp_path: Path) -> None:
    started.await_work(*PARTS)
    store, log = Store(f"sqlite:///{tmp_path}/state.db"), started.log("agent", "m1")
    (tmp_path / "jobs.toml").write_text("[[job]]\nname = 'a'\ncommand = 'exec sleep 600'\ncount = 9\n")
    with connected(read_config(started.config)) as negotiator:
        negotiator.set_units(["m1/cpu0"], length=3, most=1)
        negotiator.remove_units(["m1/cpu1"])
        wait(lambda: "queue m1/cpu1 is deleted" in log.read_text())
        wait(lambda: "queue m1/cpu0: at most 1 containers" in log.read_text())
        assert started.call("submit", tmp_path / "jobs.toml").exit_code == 0
        wait(lambda: [unit.waiting for unit in work.units(store)] == [3])
        wait(lambda: len(started.containers("agent", "m1")) == 1)
        assert started.call("queue", "create", "m1/more", "--machine", "m1", "--vcore", 2, "--mem", 100).exit_code == 0
        wait(lambda: len(started.containers("agent", "m1")) == 3)
        negotiator.set_units(["m1/cpu0"], most=2)
        wait(lambda: len(started.containers("agent", "m1")) == 4)
        negotiator.remove_units(["m1/more"])
        wait(lambda: len(started.containers("agent", "m1")) == 2)
        # A successor has the queues as the shared state has them; what was deleted comes back with its configuration.
        started.end("agent", "m1", number=signal.SIGKILL)
        negotiator.add_units([split_machine(Node.uniform("m1", 1, 10))[0]], length=1)
        started.start("agent", "m1")
        wait(lambda: [unit.places for unit in work.units(store)][1:] == [2, 1 << 40])
        wait(lambda: "queue m1/cpu is created" in log.read_text())
    store.close()


@linux
@pytest.mark.long
def test_processes_wait_while_the_server_is_away(tmp_path: Path) -> None:
    with postgres_server() as server, cluster(tmp_path, server.url) as one:
        for who in (*PARTS, ("scheduler", "s2"), ("agent", "m2")):
            one.start(*who)
        (tmp_path / "jobs.toml").write_text("[[job]]\nname = 'a'\ncommand = 'sleep 0.2; echo $$'\ncount = 40\n")
        assert one.call("submit", tmp_path / "jobs.toml").exit_code == 0
        one.await_work(*one.running)
        server.stop()
        time.sleep(1.0)
        server.start()
        store = Store(server.url)
        wait(lambda: work.jobs(store)[0].done == 40)
        assert work.jobs(store)[0].failed == 0
        store.close()
        assert [one.end(*who) for who in list(one.running)] == [0] * 5
        assert {path.name for path in (tmp_path / "output").iterdir()} == {f"a.{i}.log" for i in range(40)}


def test_the_guide_shows_the_examples() -> None:
    page = (ROOT / "docs/howto/hrm_processes.md").read_text()
    for name in ("hrm.toml", "jobs.toml"):
        assert f'"""\\\n{(ROOT / "examples/hrm" / name).read_text()}"""' in page


def test_the_reference_has_every_key() -> None:
    page = (ROOT / "docs/reference/hrm_config.md").read_text()
    for keys in (*_KEYS.values(), _NODE, _SPLIT):
        for key in keys:
            assert f"`{key}`" in page or f"[agent.{key}" in page, key
