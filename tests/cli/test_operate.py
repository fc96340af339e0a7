"""The operator's commands on a running driver, and kills of drivers and callers between requests and answers."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from commands import calm, ended, invoke, started
from graphs import expected, meant, random_graph, tasks_of, text_of

import flowsched as fs
from flowsched.run.control import DriverClient, NoDriverError, RefusedError
from flowsched.serve import Client

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and descriptors of processes")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(fs.__file__).parents[1]))
    return tmp_path


@contextmanager
def running(*arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """A driver; it is stopped at the end."""
    process = started("run", *arguments)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(0.1)
            process.send_signal(signal.SIGINT)
        ended(process)


def said(kind: str, *arguments: object, state: Path) -> Any:
    result = invoke(kind, *arguments, "--state", state, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def wait_for(state: Path, what: Any, seconds: float = 30.0) -> list[dict[str, Any]]:
    """Wait until the rows of ``ps --all`` are as wanted."""
    client, end = DriverClient(state), time.monotonic() + seconds
    rows: list[dict[str, Any]] = []
    while time.monotonic() < end:
        try:
            rows = client.ask("ps", {"all": True})["tasks"]
            if what({row["task"]: row for row in rows}):
                return rows
        except NoDriverError:
            pass
        time.sleep(0.02)
    raise AssertionError(rows)


JOBS = """
[machine]
cpu = 2
[[job]]
name = "first"
command = "echo begun; until test -e go; do sleep 0.02; done; echo over"
[[job]]
name = "array"
command = "echo $FLOWSCHED_INDEX >> order"
array = "3-5"
after = ["first"]
at_most = 1
[[job]]
name = "later"
command = "true"
not_before = "1h"
"""


def test_a_day_of_an_operator(here: Path) -> None:
    """All commands, in a folder whose path is longer than that of a socket may be."""
    state = here / ("long" * 20) / ("longer" * 20)
    Path("jobs.toml").write_text(JOBS)
    with running("jobs.toml", "--state", state) as driver:
        rows = wait_for(state, lambda rows: rows.get("first", {}).get("state") == "R")
        assert {row["task"]: row.get("why") for row in rows} == {
            "first": None, "array.3": "AFTER", "array.4": "AFTER", "array.5": "AFTER", "later": "NOT_BEFORE",
        }  # fmt: skip
        about = (state / "control").stat()
        assert stat.S_ISSOCK(about.st_mode) and stat.S_IMODE(about.st_mode) == 0o600
        result = invoke("ps", "--state", state)
        assert [line.split()[:3] for line in result.stdout.splitlines()][:2] == [
            ["TASK", "USER", "ST"], ["first", rows[0]["user"], "R"],
        ]  # fmt: skip
        assert "it waits for first" in invoke("why", "array.3", "--state", state).stdout
        assert said("hold", "array.4", state=state) == {"tasks": 1, "running": 0}
        assert said("priority", 3, "array", state=state) == {"tasks": 3, "running": 0}
        assert said("drain", "loc*", state=state) == {"machines": ["local"], "running": 1}
        (node,) = said("nodes", state=state)["nodes"]
        assert (node["state"], node["why"], node["used"]["cpu"]) == ("drained", "an operator", 1)
        argument = invoke(
            "submit", "--state", state, "--name", "more", "--after", "array.3", "--", "sh", "-c", "echo 'a \"b\"'"
        )
        assert argument.stdout == "1 task submitted: more\n"
        result = invoke("submit", "--state", state, "--name", "more", "--", "true")
        assert result.exit_code == 2 and "'more' is the name of another job or task" in result.stderr
        result = invoke("cancel", "frist", "--state", state)
        assert result.exit_code == 2 and "no job or task is named 'frist'; did you mean 'first'?" in result.stderr
        Path("go").touch()
        wait_for(state, lambda rows: rows["first"]["state"] == "CD")
        assert invoke("log", "-f", "first", "--state", state).stdout == "begun\nover\n"
        assert invoke("log", "-n", 1, "first", "--state", state).stdout == "over\n"
        assert said("why", "array.3", state=state)["machines"] == {"2 cpu": {"down": 1}}, "the drain holds"
        assert said("resume", "local", state=state) == {"machines": ["local"]}
        wait_for(state, lambda rows: rows["array.5"]["state"] == rows["more"]["state"] == "CD")
        assert said("ps", "array", state=state)["tasks"][0]["why"] == "ON_HOLD"
        assert Path("order").read_text().split() == ["3", "5"]
        assert said("cancel", "later", state=state) == {"tasks": 1, "running": 0}
        assert said("release", "*", state=state) == {"tasks": 1}
        assert said("eta", "first", state=state)["state"] == "CD"
        code, _, err = ended(driver)
        calm(err)
        assert code == 1 and "later cancelled: an operator cancelled it" in err
    assert Path("order").read_text().split() == ["3", "5", "4"]
    rows = said("acct", state=state)["rows"]
    assert [(row["task"], row["outcome"], row["status"], row["machine"]) for row in rows] == [
        (task, "done", 0, "local") for task in ("first", "array.3", "array.5", "more", "array.4")
    ] or sorted(row["task"] for row in rows) == ["array.3", "array.4", "array.5", "first", "more"]
    assert all(row["cpu"] > 0 and row["end"] >= row["start"] for row in rows)
    (sums,) = said("acct", "--by", "machine", state=state)["rows"]
    assert (sums["attempts"], sums["tasks"], sums["done"], sums["failed"], sums["running"]) == (5, 5, 5, 0, 0)
    assert not (state / "control").exists()
    result = invoke("ps", "--state", state)
    assert result.exit_code == 1 and "no driver is running; `flowsched run FILE --state" in result.stderr


def test_which_target(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "which target? One expected: --state DIR" in invoke("ps").stderr
    assert "one target expected" in invoke("ps", "--state", "s", "--url", "http://127.0.0.1:1").stderr
    monkeypatch.setenv("FLOWSCHED_STATE", "s")
    result = invoke("hold", "x")
    assert result.exit_code == 1 and "s: no such folder of a state" in result.stderr
    assert "token is needed" in invoke("ps", "--url", "http://127.0.0.1:1").stderr
    assert "no state of `flowsched run`" in invoke("acct").stderr
    assert "--stay: jobs come through the socket" in invoke("run", "x.toml", "--stay").stderr


def test_shells_complete_commands(here: Path) -> None:
    words = {"_FLOWSCHED_COMPLETE": "bash_complete", "COMP_WORDS": "flowsched dr", "COMP_CWORD": "1"}
    code, out, _ = ended(started(env={**os.environ, **words}))
    assert (code, out.split()) == (0, ["plain,drain"])


def test_a_request_is_refused_or_done_once(here: Path) -> None:
    """Also one that is not of these commands; a socket that a kill has left is replaced."""
    state = here / "s"
    with running("--state", state, "--stay") as driver:
        wait_for(state, lambda rows: True)
        driver.kill()
        ended(driver)
    assert (state / "control").exists()
    with pytest.raises(NoDriverError, match="no driver is running"):
        DriverClient(state).ask("ps", {})
    with running("--state", state, "--stay"):
        wait_for(state, lambda rows: True)
        client = DriverClient(state)
        body = {"file": str(here / "y"), "content": "[[job]]\nname = 'a'\ncommand = 'sleep 1000'\n"}
        assert client.ask("submit", body, "one") == {"jobs": ["a"], "tasks": 1}
        assert client.ask("submit", body, "one") == {"jobs": ["a"], "tasks": 1, "repeated": True}
        for kind, wrong, id, message in (
            ("submit", body, "two", "job 'a': name: 'a' is the name of another job or task"),
            ("submit", {**body, "content": "x"}, "one", "id: 'one' is that of another request"),
            ("submit", {**body, "content": "[[job]]\nname = 'b'\ncommand = 'c'\nafter = ['d']"}, "two", "line 4, column 1: job 'b': after"),
            ("submit", {**body, "content": "[machine]\ncpu = 1\n[[job]]\nname = 'b'\ncommand = 'c'"}, "two", "the driver has its machine already"),
            ("submit", {}, "two", "file must be text"),
            ("hold", {"tasks": "a"}, "two", "tasks must be a collection"),
            ("priority", {"tasks": ["a"]}, "two", "priority must be a whole number"),
            ("drain", {"machines": ["moon"]}, "two", "no machine is named 'moon'"),
            ("retry", {"tasks": ["a"]}, "two", "unknown request 'retry'"),
            ("cancel", {"tasks": ["a"]}, "x" * 201, "id: 1 to 200 characters"),
        ):  # fmt: skip
            with pytest.raises(RefusedError) as refused:
                client.ask(kind, wrong, id)
            assert message in str(refused.value), kind
        assert [row["task"] for row in client.ask("ps", {})["tasks"]] == ["a"]
    db = sqlite3.connect(state / "records.db")
    assert db.execute("select id from requests").fetchall() == [("one",)]
    db.close()


def test_wishes_outlive_a_kill(here: Path) -> None:
    """Holds, drains, priorities and cancellations are those of the next driver, too."""
    state = here / "s"
    Path("jobs.toml").write_text(
        "[machine]\ncpu = 1\n[[job]]\nname = 'a'\ncommand = 'until test -e go; do sleep 0.02; done; echo a >> order'\n"
        "[[job]]\nname = 'b'\ncommand = 'echo $FLOWSCHED_TASK >> order'\ncount = 4\n"
    )
    with running("jobs.toml", "--state", state) as driver:
        wait_for(state, lambda rows: rows["a"]["state"] == "R")
        client = DriverClient(state)
        client.ask("hold", {"tasks": ["b.0"]})
        client.ask("priority", {"tasks": ["b.3"], "priority": -5})
        client.ask("cancel", {"tasks": ["b.2"]})
        client.ask("drain", {"machines": ["local"]})
        driver.kill()
        driver.wait()
        Path("go").touch()
    with running("jobs.toml", "--state", state) as driver:
        wait_for(state, lambda rows: rows["a"]["state"] == "CD" and rows["b.2"]["state"] == "CA")
        (node,) = client.ask("nodes", {})["nodes"]
        assert node["state"] == "drained"
        states = {row["task"]: (row["state"], row["why"]) for row in client.ask("ps", {})["tasks"]}
        assert states == {"b.0": ("PD", "ON_HOLD"), "b.1": ("PD", "NO_FIT"), "b.3": ("PD", "NO_FIT")}
        client.ask("resume", {"machines": ["local"]})
        wait_for(state, lambda rows: rows["b.1"]["state"] == "CD")
        client.ask("release", {"tasks": ["b"]})
        assert ended(driver)[0] == 1
    assert Path("order").read_text().split() == ["a", "b.3", "b.1", "b.0"]


def test_machines_are_drained_by_the_calendar(here: Path) -> None:
    """Also by the next driver; a window that has passed meanwhile is over, and `resume` removes one that is to come."""
    state = here / "s"

    def node() -> tuple[str, str, int]:
        (row,) = DriverClient(state).ask("nodes", {})["nodes"]
        return row["state"], row["why"], len(row["drains"])

    def until(wanted: tuple[str, str, int]) -> None:
        end = time.monotonic() + 20.0
        while node() != wanted:
            assert time.monotonic() < end, node()
            time.sleep(0.02)

    with running("--state", state, "--stay") as driver:
        wait_for(state, lambda rows: True)
        for bad in (["--until", "0s"], ["--at", "2h", "--until", "1h"], ["--at", "soon"]):
            assert invoke("drain", "local", *bad, "--state", state).exit_code == 2
        said("drain", "local", "--at", "1h", "--until", "2h", state=state)
        assert node() == ("up", "", 1)
        assert "drained from 20" in invoke("nodes", "--state", state).stdout
        assert said("resume", "local", state=state)["machines"] == ["local"]
        assert node() == ("up", "", 0)
        shown = invoke("drain", "local", "--at", "1s", "--until", "2s", "--state", state).stdout
        assert shown.startswith("1 machine drained from 20") and " until 20" in shown
        until(("drained", "an operator", 1))
        until(("up", "", 0))
        said("drain", "local", "--until", "1s", state=state)
        said("drain", "local", "--at", "1h", state=state)
        assert node() == ("drained", "an operator", 2)
        driver.kill()
        driver.wait()
    time.sleep(1.0)
    with running("--state", state, "--stay") as driver:
        wait_for(state, lambda rows: True)
        assert node() == ("up", "", 1)
        assert invoke("submit", "--state", state, "--name", "a", "--", "true").exit_code == 0
        wait_for(state, lambda rows: "a" in rows and rows["a"]["state"] == "CD")


def test_the_commands_work_on_a_service(here: Path) -> None:
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    os.environ["FLOWSCHED_TOKEN"] = token = "0123456789abcdef"
    service = started("serve", "--port", "0", preexec_fn=None)
    try:
        assert service.stdout is not None
        url = service.stdout.readline().decode().split()[-1]
        with Client(url, token) as client:
            client.tell(*(fs.MachineAdded(f"m{i}", {"cpu": 2}) for i in range(2)))
            Path("jobs.toml").write_text("[[job]]\nname = 'a'\ncommand = 'x'\ncount = 5\nuser = 'ann'\n")

            def shown(*words: object) -> Any:
                result = invoke(*words, "--url", url, "--json")
                assert result.exit_code == 0, result.output
                return json.loads(result.stdout)

            assert shown("submit", "jobs.toml", "--request-id", "x") == {"jobs": ["a"], "tasks": 5}
            assert shown("submit", "jobs.toml", "--request-id", "x")["repeated"]
            while len(client.state()["tasks"]) != 5 or sum("machine" in task for task in client.state()["tasks"]) != 4:
                time.sleep(0.02)
            tasks = shown("ps")["tasks"]
            assert [task["state"] for task in tasks] == ["R"] * 4 + ["PD"]
            assert shown("why", tasks[-1]["task"])["why"] == "NO_FIT"
            assert "no calendar" in invoke("drain", "m*", "--at", "1h", "--url", url).stderr
            assert shown("drain", "m*")["machines"] == ["m0", "m1"]
            assert shown("cancel", tasks[0]["task"], tasks[1]["task"]) == {"tasks": 2, "running": 2}
            assert [(row["state"], row["why"]) for row in shown("nodes")["nodes"]] == [("drained", "")] * 2
            assert shown("resume", "m1") == {"machines": ["m1"]}
            refused = invoke("hold", "a", "--url", url)
            assert refused.exit_code == 2 and "hold: flowsched serve decides only" in refused.stderr
    finally:
        del os.environ["FLOWSCHED_TOKEN"]
        service.kill()
        ended(service)


@pytest.mark.long
@pytest.mark.parametrize("kills", [int(os.environ.get("FLOWSCHED_KILLS", "8"))])
def test_kills_between_request_and_answer(here: Path, kills: int) -> None:
    """Each job was submitted once and runs once, each cancelled one never ends well, whichever side was killed."""
    state, chance = here / "s", random.Random(5)
    driver = started("run", "--state", state, "--stay")
    later = list[int]()
    for i in range(kills):
        body = {"file": str(here / "x"), "content": f"[[job]]\nname = 't{i}'\ncommand = 'echo t{i} >> marks'\n[[job]]\nname = 'c{i}'\ncommand = 'sleep 1000; echo c{i} >> marks'\nafter = ['t{i}']\n"}  # fmt: skip
        wait_for(state, lambda rows: True)
        answers: dict[str, Any] = {}

        def ask(kind: str, body: dict[str, Any], id: str, answers: dict[str, Any] = answers) -> None:
            answers[kind] = DriverClient(state, patience=60.0).ask(kind, body, id)

        def both(i: int = i, body: dict[str, Any] = body) -> None:
            ask("submit", body, f"s{i}")
            ask("cancel", {"tasks": [f"c{i}"]}, f"k{i}")

        caller = threading.Thread(target=both)
        caller.start()
        time.sleep(chance.random() * 0.03)
        driver.kill()
        ended(driver)
        driver = started("run", "--state", state, "--stay")
        caller.join(60.0)
        assert answers.keys() == {"submit", "cancel"}
        later += [bool(answer.get("repeated")) for answer in answers.values()]
        wait_for(state, lambda rows: True)
        command = [sys.executable, "-c", "from _flowsched_cli import main; main()", "submit", "--state", str(state)]
        command += ["--request-id", f"p{i}", "--name", f"p{i}", "--", "sh", "-c", f"echo p{i} >> marks"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(chance.uniform(0.2, 1.2))
        process.kill()
        process.wait()
        assert subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0
    ends = ("CD", "CA")
    rows = wait_for(state, lambda rows: all(row["state"] in ends for row in rows.values()) and len(rows) == 3 * kills)
    driver.send_signal(signal.SIGINT)
    assert ended(driver)[0] == 130
    states = {row["task"]: row["state"] for row in rows}
    assert all(states[f"t{i}"] == states[f"p{i}"] == "CD" and states[f"c{i}"] == "CA" for i in range(kills))
    marks = Counter((here / "marks").read_text().split())
    assert marks == Counter([f"t{i}" for i in range(kills)] + [f"p{i}" for i in range(kills)])
    db = sqlite3.connect(state / "records.db")
    assert db.execute("select count(*), count(distinct id) from requests").fetchone() == (3 * kills, 3 * kills)
    assert db.execute("select count(*) from attempts where end is null").fetchone() == (0,)
    db.close()
    print(f"{sum(later)} of {len(later)} answers were repeated ones")


@pytest.mark.long
@pytest.mark.parametrize("kills", [int(os.environ.get("FLOWSCHED_KILLS", "6"))])
def test_a_graph_runs_in_order_through_kills_of_the_driver(here: Path, kills: int) -> None:
    chance = random.Random(11)
    graph = random_graph(chance, 60)
    while len(graph) < 50:
        graph = random_graph(chance, 60)
    tasks = [task for name in graph for task in tasks_of(graph, name)]
    fails = {task for task in tasks if chance.random() < 0.15}
    oracle, runs = expected(graph, fails)
    command = f"echo begin $FLOWSCHED_TASK >> log; sleep 0.{max(kills // 6, 1)}; echo end $FLOWSCHED_TASK >> log; case $FLOWSCHED_TASK in {'|'.join(fails)}) exit 1;; esac"
    Path("jobs.toml").write_text("[machine]\ncpu = 4\n" + text_of(graph, command))
    left = kills
    while True:
        driver = started("run", "jobs.toml", "--state", "s")
        if not left:
            break
        time.sleep(chance.uniform(0.5, 2.0))
        if driver.poll() is not None:
            break
        driver.kill()
        ended(driver)
        left -= 1
    code, _, err = ended(driver)
    calm(err.replace("\n", " ")[:4000])
    assert code == 1
    db = sqlite3.connect("s/records.db")
    assert dict(db.execute("select task, outcome from ends")) == oracle
    db.close()
    lines = [line.split() for line in Path("log").read_text().splitlines()]
    assert Counter(task for what, task in lines if what == "begin") == Counter(runs), "each once"
    assert Counter(task for what, task in lines if what == "end") == Counter(runs)
    over = set[str]()
    for what, task in lines:
        if what == "end":
            over.add(task)
            continue
        job = task.rpartition(".")[0] if task not in graph else task
        for names in graph[job][1].values():
            for pattern in names:
                assert meant(graph, pattern) & runs <= over, f"{task} before {pattern}"
    print(f"{kills - left} kills, {len(tasks)} tasks, {len(runs)} of them run")
