"""HRM's processes killed at random moments: every task ends exactly once, and no unit is above its capacity."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from effort import effort
from hrm_processes import Cluster, cluster

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed: pip install 'flowsched[sql]'")
pytest.importorskip("click")
pytest.importorskip("rich")
pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the agent runs on Linux only")

from negotiators import audit

from flowsched.hrm import Store
from flowsched.hrm.state import work

PARTS = [("negotiator",), ("scheduler", "s1"), ("scheduler", "s2"), ("agent", "m1"), ("agent", "m2")]

PROGRAM = """
import fcntl, os, random, sys, time
id = os.environ["FLOWSCHED_TASK"]
ledger = os.open("ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
lock = os.open(f"locks/{id}", os.O_CREAT | os.O_RDWR, 0o600)
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    os.write(ledger, f"TWICE {id}\\n".encode())
    os._exit(3)
os.write(ledger, f"start {id}\\n".encode())
if random.random() < 0.8 and not os.fork():
    time.sleep(600)  # a child that its container leaves behind
time.sleep(random.choice([0.05, 0.05, 8.0]))  # some go on while their agent is started again
os.write(ledger, f"end {id}\\n".encode())
os._exit(0)
"""

JOBS = """
[[job]]
name = "batch-{k}"
command = ["{python}", "-I", "-S", "program.py"]
count = {tasks}
demand = {{vcore = 1, mem = 10}}
[[job]]
name = "stream-{k}"
trigger = "window"
command = ["{python}", "-I", "-S", "program.py"]
count = 2
demand = {{vcore = 1, mem = {mem}}}
"""


@pytest.mark.long
def test_nothing_is_lost_or_run_twice_when_processes_are_killed(tmp_path: Path) -> None:
    kills, tasks, files = effort(8, 150), effort(8, 120), 4
    rng = random.Random(5)
    (tmp_path / "locks").mkdir()
    (tmp_path / "program.py").write_text(PROGRAM)
    counts: Counter[str] = Counter()
    order = rng.sample([0, 1, 2, 3, 4, 3, 4], 7)
    with cluster(tmp_path) as one:
        for who in PARTS:
            one.start(*who)
        store = Store(f"sqlite:///{tmp_path}/state.db")
        for turn in range(kills):
            if turn % -(-kills // files) == 0:  # rounded up, so that there are so many
                submit(one, turn, tasks, mem=rng.choice([10, 400]))
            if rng.random() < 0.7:
                one.await_work(*PARTS)
            time.sleep(rng.uniform(0.0, 1.5))
            who = PARTS[order[turn % len(order)]]
            in_order = turn % 4 == 3 and one.is_at_work(*who)
            number = rng.choice([signal.SIGTERM, signal.SIGINT]) if in_order else signal.SIGKILL
            counts[f"{who[0]} {number.name}"] += 1
            status = one.end(*who, number=number)
            assert status == (0 if in_order else -signal.SIGKILL), one.log(*who).read_text()
            if in_order and who[0] == "agent":
                assert one.left(*who) == []
            one.start(*who)
            check(one, store)
        deadline = time.monotonic() + 600
        while any(row.open + row.held for row in work.jobs(store)):
            assert time.monotonic() < deadline, one.call("status").stdout
            check(one, store)
            time.sleep(0.1)
        one.await_work(*PARTS)
        assert [one.end(*who) for who in PARTS] == [0] * len(PARTS)
        assert one.left() == [] and not list((tmp_path / "state").iterdir())
        jobs, units = work.jobs(store), work.units(store)
        rows = [row for job in jobs for row in work.tasks(store, job.job_id)]
        store.close()
    assert len(jobs) == 2 * files and all((job.done, job.open, job.held) == (job.tasks, 0, 0) for job in jobs)
    assert {(row.status, row.exit_status) for row in rows} == {("DONE", None)}
    assert all(unit.free_vcore == unit.vcore and not unit.waiting for unit in units)
    lines = [line.split() for line in (tmp_path / "ledger").read_text().splitlines()]
    assert not [line for line in lines if line[0] == "TWICE"]
    assert {line[1] for line in lines if line[0] == "end"} == {row.task_id for row in rows}
    assert len(rows) == files * (tasks + 2)
    counts["runs"] = sum(line[0] == "start" for line in lines)
    counts["tasks"] = len(rows)
    print(f"\n{dict(counts)}")


def submit(one: Cluster, k: int, tasks: int, mem: int) -> None:
    path = one.folder / f"jobs-{k}.toml"
    path.write_text(JOBS.format(k=k, tasks=tasks, mem=mem, python=sys.executable))
    done = one.call("submit", path)
    assert done.exit_code == 0, done.stderr


def check(one: Cluster, store: Store) -> None:
    """The books are right, and no machine of four cores has more than four containers of one core that are not paused."""
    audit(store)
    for who in PARTS[3:]:
        at_once = [pid for pid in one.containers(*who) if state(pid) not in "TZX"]
        assert len(at_once) <= 4, at_once


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except OSError:
        return "X"


@pytest.mark.long
def test_tasks_of_a_machine_that_does_not_come_back_run_elsewhere(tmp_path: Path) -> None:
    with cluster(tmp_path, ttl=1.5, machine_ttl=1.5) as one:
        for who in (("negotiator",), ("scheduler", "s1"), ("agent", "m1")):
            one.start(*who)
        (tmp_path / "jobs.toml").write_text(
            "[[job]]\nname = 'a'\ncommand = 'echo $$ >> pids; [ -e go ] || exec sleep 600'\ncount = 3\n"
        )
        assert one.call("submit", tmp_path / "jobs.toml").exit_code == 0
        deadline = time.monotonic() + 600
        while len(one.containers("agent", "m1")) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        one.end("agent", "m1", number=signal.SIGKILL)
        (tmp_path / "go").touch()
        one.start("agent", "m2")
        store = Store(f"sqlite:///{tmp_path}/state.db")
        while work.jobs(store)[0].done < 3:
            assert time.monotonic() < deadline, one.call("status").stdout
            time.sleep(0.05)
        assert "machine m1 is lost" in one.log("negotiator").read_text()
        one.start("agent", "m1")  # ends what the killed one left, and takes part again
        one.await_work(("agent", "m1"))
        assert one.left("agent", "m1") == []
        while not all(unit.alive for unit in work.units(store)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        store.close()
