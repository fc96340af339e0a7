"""A second driver or service over a state: refused, or a standby that takes over from one that ends or is killed."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
from commands import calm, ended, invoke, started
from services import Served, command, ending

import flowsched as fs
from flowsched.run.control import DriverClient, NoDriverError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="kills processes")

_T = TypeVar("_T", str, bytes)

KILLS = int(os.environ.get("FLOWSCHED_KILLS", "6"))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(fs.__file__).parents[1]))
    return tmp_path


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@contextmanager
def killed_at_the_end(process: subprocess.Popen[_T]) -> Iterator[subprocess.Popen[_T]]:
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        if process.stdout is not None and not process.stdout.closed:
            process.communicate()


def said_by(process: subprocess.Popen[bytes]) -> str:
    """The next line of a command's errors."""
    assert process.stderr is not None
    return process.stderr.readline().decode()


def tasks_of(state: Path) -> list[dict[str, object]]:
    """Rows of ``ps`` once a driver answers."""
    end = time.monotonic() + 30.0
    while True:
        try:
            tasks: list[dict[str, object]] = DriverClient(state).ask("ps", {"all": True})["tasks"]
            return tasks
        except NoDriverError:
            assert time.monotonic() < end
            time.sleep(0.005)


def test_a_second_driver_is_refused_before_it_changes_anything(here: Path) -> None:
    Path("jobs.toml").write_text(
        "[machine]\ncpu = 2\n[[job]]\nname = 'bad'\ncommand = 'exit 1'\n"
        "[[job]]\nname = 'long'\ncommand = 'until test -e go; do sleep 0.02; done'\n"
    )
    with killed_at_the_end(started("run", "jobs.toml", "--state", "s")) as driver:
        while {row["task"]: row["state"] for row in tasks_of(here / "s")} != {"bad": "F", "long": "R"}:
            time.sleep(0.02)
        for more in ([], ["--retry-failed"]):
            refused = invoke("run", "jobs.toml", "--state", "s", *more)
            assert refused.exit_code == 2 and "in use by another scheduler" in refused.stderr
        db = sqlite3.connect("s/records.db")
        assert db.execute("select kind from requests").fetchall() == [("submit",)]
        assert db.execute("select task, outcome from ends").fetchall() == [("bad", "failed")]
        db.close()
        Path("go").touch()
        assert ended(driver)[0] == 1


def test_a_standby_waits_and_ends_by_a_signal(here: Path) -> None:
    assert "--state" in invoke("run", "x.toml", "--standby").stderr
    assert "--journal" in invoke("serve", "--standby").stderr
    Path("jobs.toml").write_text("[[job]]\nname = 'long'\ncommand = 'until test -e go; do sleep 0.02; done'\n")
    with killed_at_the_end(started("run", "jobs.toml", "--state", "s")) as driver:
        tasks_of(here / "s")
        for number in (signal.SIGINT, signal.SIGTERM):
            with killed_at_the_end(started("run", "jobs.toml", "--state", "s", "--standby")) as standby:
                assert said_by(standby) == f"Standby of {here / 's'}\n"
                standby.send_signal(number)
                code, _, err = ended(standby)
                assert code in (128 + number, -number)
                calm(err)
        Path("go").touch()
        with killed_at_the_end(started("run", "jobs.toml", "--state", "s", "--standby")) as standby:
            assert ended(driver)[0] == 0
            assert ended(standby)[0] == 0, "all has ended"


@pytest.mark.long
def test_a_standby_takes_over_from_a_killed_driver(here: Path, stack: ExitStack) -> None:
    """Each task runs once; prints the times from a kill to the first answer of the next driver."""
    chance, state, tasks = random.Random(3), here / "s", 60 * KILLS
    Path("jobs.toml").write_text(
        "[machine]\ncpu = 8\n[[job]]\nname = 't'\n"
        f"command = 'echo $FLOWSCHED_TASK >> begun; sleep 0.4; echo $FLOWSCHED_TASK >> done'\ncount = {tasks}\n"
    )
    driver = stack.enter_context(killed_at_the_end(started("run", "jobs.toml", "--state", "s")))
    seconds = []
    for _ in range(KILLS):
        tasks_of(state)
        standby = stack.enter_context(killed_at_the_end(started("run", "jobs.toml", "--state", "s", "--standby")))
        assert said_by(standby) == f"Standby of {state}\n"
        time.sleep(chance.uniform(0.0, 0.6))
        assert driver.poll() is None
        driver.kill()
        start = time.monotonic()
        tasks_of(state)
        seconds.append(time.monotonic() - start)
        driver.communicate()
        driver = standby
    code, _, err = ended(driver)
    calm(err)
    assert code == 0
    names = Counter(f"t.{i}" for i in range(tasks))
    assert Counter(Path("begun").read_text().split()) == Counter(Path("done").read_text().split()) == names
    print(
        f"{KILLS} kills; until the next driver answers: median {np.median(seconds):.2f} s, longest {max(seconds):.2f} s"
    )


@pytest.mark.long
def test_a_standby_takes_over_from_a_killed_service(here: Path, stack: ExitStack) -> None:
    """At the same address; each acknowledged event is there."""
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    own = ["--journal", "j", "--port"]
    seconds, service, port = [], command(*own, "0"), 0
    for i in range(KILLS):
        port = port or service.port
        with service.client() as client:
            client.tell(fs.MachineAdded(f"m{i}", {"cpu": 1}))
            environment = {**os.environ, "FLOWSCHED_TOKEN": "a-token-of-the-tests"}
            standby = stack.enter_context(killed_at_the_end(subprocess.Popen(
                [sys.executable, "-m", "flowsched", "serve", *own, str(port), "--standby"],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
            )))  # fmt: skip
            assert standby.stderr is not None and standby.stdout is not None
            assert standby.stderr.readline() == "Standby of j\n"
            time.sleep(0.1)
            service.process.kill()
            start = time.monotonic()
            assert standby.stdout.readline().startswith("Serving at")
            seconds.append(time.monotonic() - start)
        service.ended()
        service = Served.of(standby, service.url)
    with ending(service):
        assert len(service.client().state()["machines"]) == KILLS
    print(
        f"{KILLS} kills; until the next service answers: median {np.median(seconds):.2f} s, longest {max(seconds):.2f} s"
    )
