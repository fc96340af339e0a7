"""The node agent killed at any moment, with containers that leave children behind."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from agents import ORPHANS, SLEEP, UNIT, is_running, launch, leaving, pids, settle, shared, wait_until
from effort import effort

from flowsched.exceptions import InputError
from flowsched.hrm import Container
from flowsched.hrm.agent.processes import Family, boot_id, end, start_time

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the agent runs on Linux only")

from flowsched.hrm.agent import Agent, Ended


@pytest.mark.parametrize("how", ORPHANS)
def test_no_child_outlives_its_container(tmp_path: Path, how: str) -> None:
    left = tmp_path / "left"
    with Agent([UNIT], state=tmp_path / "state") as agent:
        agent.submit("u", Container("a", vcore=2), leaving(left, how, "os._exit(0)"))
        assert settle(agent) == [Ended("a", 0)]
        assert pids(left) and not any(map(is_running, pids(left)))
        left.unlink()
        agent.submit("u", Container("b", vcore=2), leaving(left, how, "time.sleep(60)"))
        wait_until(lambda: pids(left))
        agent.remove("b")
        assert pids(left) and not any(map(is_running, pids(left)))
        left.unlink()
        agent.submit("u", Container("c", vcore=2), leaving(left, how, "time.sleep(60)"))
        wait_until(lambda: pids(left))
    assert pids(left) and not any(map(is_running, pids(left)))
    assert not list((tmp_path / "state").iterdir())


# -- after a kill ---------------------------------------------------------------------------------------------------

AGENT = """
import sys, time
from flowsched.hrm import Container, ResourceUnit
from flowsched.hrm.agent import Agent
with Agent([ResourceUnit("u", "m", vcore=9)], state=sys.argv[1]) as agent:
    for i, command in enumerate(eval(sys.argv[2])):
        agent.submit("u", Container(str(i), vcore=1), command)
    print("ready", flush=True)
    while True:
        agent.step(None)
"""


def doomed(state: Path, *commands: Sequence[str]) -> subprocess.Popen[str]:
    """An agent in another process, with these containers running."""
    line = [sys.executable, "-c", AGENT, str(state), repr(commands)]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def kill(process: subprocess.Popen[str], number: int) -> None:
    process.send_signal(number)
    process.wait(60)
    assert process.stdout is not None
    process.stdout.close()


@pytest.mark.parametrize(
    "how",
    [*(pytest.param(how, marks=() if how == "own session" else pytest.mark.long) for how in ORPHANS), "leader gone"],
)
def test_the_next_agent_ends_what_a_killed_one_left(tmp_path: Path, how: str) -> None:
    left = tmp_path / "left"
    process = doomed(tmp_path / "state", leaving(left, "own session" if how == "leader gone" else how, "note(); time.sleep(60)"))  # fmt: skip
    wait_until(lambda: len(pids(left)) >= 2)
    if how == "leader gone":
        process.send_signal(signal.SIGSTOP)
        os.kill(pids(left)[-1], signal.SIGKILL)
    kill(process, signal.SIGKILL)
    assert any(map(is_running, pids(left)))
    with Agent([UNIT], state=tmp_path / "state") as agent:
        assert not any(map(is_running, pids(left)))
        agent.submit("u", Container("0", vcore=2), ["true"])
        assert settle(agent) == [Ended("0", 0)]
    assert not list((tmp_path / "state").iterdir())


def test_sigterm_ends_containers_of_a_with_statement(tmp_path: Path) -> None:
    left = tmp_path / "left"
    process = doomed(tmp_path / "state", leaving(left, "daemon", "note(); time.sleep(60)"))
    wait_until(lambda: len(pids(left)) == 2)
    kill(process, signal.SIGTERM)
    assert process.returncode == 128 + signal.SIGTERM
    assert not any(map(is_running, pids(left))) and not list((tmp_path / "state").iterdir())


def test_a_handler_of_the_programs_own_stays(tmp_path: Path) -> None:
    def mine(*_: object) -> None:
        raise AssertionError

    before = signal.signal(signal.SIGTERM, mine)
    try:
        with Agent([UNIT], state=tmp_path):
            assert signal.getsignal(signal.SIGTERM) is mine
        assert signal.getsignal(signal.SIGTERM) is mine
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with Agent([UNIT], state=tmp_path):
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_container_does_nothing_before_it_is_released(tmp_path: Path) -> None:
    out = tmp_path / "out"
    code = """
import os, signal, sys
from flowsched.hrm.agent.processes import hold
held = hold(["touch", sys.argv[1]], (), os.environ)
print(held.process.pid, flush=True)
signal.pause()
"""
    keeper = subprocess.Popen([sys.executable, "-c", code, str(out)], stdout=subprocess.PIPE, text=True)
    assert keeper.stdout is not None
    pid = int(keeper.stdout.readline())
    time.sleep(0.1)
    assert is_running(pid) and not out.exists()
    kill(keeper, signal.SIGKILL)
    wait_until(lambda: not is_running(pid))
    assert not out.exists()


def record(folder: Path, **other: object) -> None:
    """The possible remains of a killed agent."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    sound = {"id": "a", "boot": boot_id(), "pid": 2**22 - 1, "start": 1, "token": "f" * 32, "group": None}
    (folder / f"{len(list(folder.iterdir()))}.json").write_text(json.dumps({**sound, **other}))


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(SLEEP, start_new_session=True)
    yield process
    process.kill()
    process.wait()


def test_a_recycled_pid_is_not_signalled(tmp_path: Path, bystander: subprocess.Popen[bytes]) -> None:
    pid, start = bystander.pid, start_time(bystander.pid)
    assert start is not None
    dead = tmp_path / "dead"
    record(dead, pid=pid, start=start - 1)
    record(dead, pid=pid, start=start + 1)
    record(dead, pid=pid, start=start, boot="another")
    record(dead, pid=os.getpid(), start=start_time(os.getpid()))  # the agent itself
    for text in ("", "{", "[]", "null", '{"pid": 1}', json.dumps({"pid": pid}), "\0" * 100):
        (dead / f"torn{abs(hash(text))}.json").write_text(text)
    record(dead, pid=pid, start=str(start))
    record(dead, pid=pid, start=start, token="")
    with Agent([UNIT], state=tmp_path) as agent:
        agent.submit("u", Container("a"), ["true"])
        assert settle(agent) == [Ended("a", 0)]
    assert bystander.poll() is None and not dead.exists()
    # The very same process, though, would be.
    record(dead, pid=pid, start=start)
    Agent([UNIT], state=tmp_path).close()
    assert bystander.wait(10) == -signal.SIGKILL


def test_a_session_whose_number_has_a_new_owner_is_not_touched(bystander: subprocess.Popen[bytes]) -> None:
    start = start_time(bystander.pid)
    assert start is not None
    end([Family(bystander.pid, start - 1, "e" * 32)])
    assert bystander.poll() is None


def test_a_folder_where_others_may_write_is_not_believed(tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    file = tmp_path / "file"
    file.write_text("")
    for folder in (open_to_all, link):
        with pytest.raises(InputError, match="state"):
            Agent([UNIT], state=folder)
    with pytest.raises(FileExistsError):
        Agent([UNIT], state=file)


# -- kill -9 at random moments --------------------------------------------------------------------------------------

PROGRAM = """
import fcntl, os, random, sys, time
folder, id = sys.argv[1:]
ledger = os.open(folder + "/ledger", os.O_WRONLY | os.O_APPEND)
def say(what): os.write(ledger, f"{what} {id} {os.getpid()}\\n".encode())
# Children have it, too: so it is free when all of the container has ended.
lock = os.open(f"{folder}/locks/{id}", os.O_CREAT | os.O_RDWR, 0o600)
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    say("TWICE")
    os._exit(3)
say("start")
rng = random.Random()
for _ in range(rng.randrange(3)):
    if not os.fork():
        if rng.random() < 0.7:
            os.setsid()
        if rng.random() < 0.5 and os.fork():
            os._exit(0)
        time.sleep(60)
        os._exit(0)
time.sleep(rng.expovariate(5.0))
say("end")
os._exit(0)
"""

NURSERY = """
import os, sys, traceback
from flowsched.hrm import Negotiator, ResourceUnit, Store
from flowsched.hrm.agent import Agent

def left(folder):
    mark, count = f"HOSTILE={folder}".encode(), 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            here = mark in open(f"/proc/{pid}/environ", "rb").read().split(b"\\0")
            # One at its gate has done nothing, and will do nothing.
            count += here and b"os.read(gate" not in open(f"/proc/{pid}/cmdline", "rb").read()
        except OSError:
            pass
    return count

def live(folder):
    os.environ["HOSTILE"] = folder
    note = os.open(f"{folder}/ledger", os.O_WRONLY | os.O_APPEND)
    units = [ResourceUnit(f"u{i}", "m", vcore=2, mem=100) for i in range(3)]
    command = lambda id: [sys.executable, "-I", "-S", f"{folder}/program.py", folder, id]
    negotiator = Negotiator(Store(f"sqlite:///{folder}/state.db"), ttl=1000.0)
    with Agent(units, negotiator=negotiator, command=command, state=f"{folder}/state") as agent:
        os.write(note, f"begun {left(folder)} {os.getpid()}\\n".encode())
        while True:
            agent.heartbeat()
            for ended in agent.step(0.02):
                os.write(note, f"told {ended.id} {ended.status}\\n".encode())

for line in sys.stdin:
    child = os.fork()
    if not child:
        status = 1
        try:
            live(line.strip())
        except SystemExit as leave:
            status = leave.code
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(status)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Records:
    """The records of containers and agents."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "ledger"
        self.path.write_text("")

    def lines(self) -> list[list[str]]:
        return [line.split() for line in self.path.read_text().splitlines()]

    def begun(self, pid: int) -> bool:
        return any(line[0] == "begun" and line[2] == str(pid) for line in self.lines())


def left_behind(folder: Path) -> list[int]:
    """Processes of containers of this test that still run."""
    mark, found = f"HOSTILE={folder}".encode(), []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if mark in environment and is_running(pid):
            found.append(pid)
    return found


@pytest.mark.long
def test_no_container_runs_twice_or_is_left_behind_when_agents_are_killed(tmp_path: Path) -> None:
    kills = effort(6, 80)
    negotiator = shared(f"sqlite:///{tmp_path}/state.db")
    from negotiators import audit

    (tmp_path / "locks").mkdir()
    (tmp_path / "program.py").write_text(PROGRAM)
    records = Records(tmp_path)
    rng = random.Random(11)
    names = iter(range(1_000_000))
    nursery = subprocess.Popen(
        [sys.executable, "-c", NURSERY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert nursery.stdin is not None and nursery.stdout is not None

    def feed(count: int) -> None:
        for _ in range(count):
            unit = f"u{rng.randrange(3)}"
            if rng.random() < 0.3:
                # It makes batch pause, or (for its memory) evicts it.
                id, mem = f"s{next(names)}", rng.choice([0, 80])
                negotiator.submit(f"job {id}", [Container(id, vcore=rng.choice([1, 2]), mem=mem, kind="stream")])
                granted = negotiator.stream("s", f"job {id}", lambda tasks, units, unit=unit: {str(tasks[0].id): unit})  # type: ignore[misc]
                if not granted.accepted:
                    negotiator.stream("s", f"job {id}", lambda tasks, units: None)
                else:
                    negotiator.launch("s", [id])
            else:
                launch(negotiator, f"b{next(names)}", unit, mem=rng.choice([0, 50]))

    def birth() -> int:
        assert nursery.stdin is not None and nursery.stdout is not None
        nursery.stdin.write(f"{tmp_path}\n")
        alive.append(int(nursery.stdout.readline()))
        return alive[-1]

    def death(pid: int, number: int) -> int:
        assert nursery.stdout is not None
        os.kill(pid, number)
        status = int(nursery.stdout.readline())
        alive.remove(pid)
        return status

    alive: list[int] = []
    counts: Counter[str] = Counter()
    try:
        for _ in range(kills):
            pid = birth()
            feed(rng.randrange(4))
            if whole := rng.random() < 0.8:
                wait_until(lambda pid=pid: records.begun(pid), 60)  # type: ignore[misc]
            if rng.random() < 0.5:
                feed(2)
            time.sleep(rng.uniform(0.0, 0.5 if whole else 0.1))
            number = signal.SIGTERM if rng.random() < 0.2 and records.begun(pid) else signal.SIGKILL
            counts[number.name] += 1
            status = death(pid, number)
            assert status == (128 + number if number == signal.SIGTERM else -number)
            if number == signal.SIGTERM:
                assert left_behind(tmp_path) == []
            else:
                counts["left"] += len(left_behind(tmp_path))
        pid = birth()
        for i in range(3):
            launch(negotiator, f"last{i}", f"u{i}")

        def is_done() -> bool:
            # What was refused may have been granted by a heartbeat.
            negotiator.launch("s", negotiator.beat("s"))
            placed = {job.job for job in negotiator.jobs() if job.held}
            for job in negotiator.jobs():
                # What was refused is tried again.
                if job.open and job.job not in placed:
                    id = job.job.removeprefix("job ")
                    if job.kind == "stream":
                        where = {id: f"u{rng.randrange(3)}"}
                        if negotiator.stream("s", job.job, lambda tasks, units, where=where: where).accepted:  # type: ignore[misc]
                            negotiator.launch("s", [id])
                    else:
                        retry(negotiator, id, f"u{rng.randrange(3)}")
            return not negotiator.jobs()

        wait_until(is_done, 120)
        assert death(pid, signal.SIGTERM) == 128 + signal.SIGTERM
        assert left_behind(tmp_path) == []
    finally:
        for pid in alive:
            death(pid, signal.SIGKILL)
        nursery.stdin.close()
        nursery.wait(60)
        nursery.stdout.close()
    lines = records.lines()
    counts.update(line[0] for line in lines)
    print(f"\n{dict(counts)}")
    assert counts["TWICE"] == 0
    assert [line for line in lines if line[0] == "begun" and line[1] != "0"] == []
    ended = {line[1] for line in lines if line[0] == "end"}
    assert {line[1] for line in lines if line[0] == "told" and line[2] == "0"} <= ended
    assert {f"last{i}" for i in range(3)} <= ended
    everybody = negotiator.store.look(__import__("sqlalchemy").text("select task_id, status from hrm_rt"))
    assert {row[0] for row in everybody} == ended and {row[1] for row in everybody} == {"DONE"}
    assert all(unit.free == unit.capacity for unit in negotiator.units())
    audit(negotiator.store)
    assert not list((tmp_path / "state").iterdir())


def retry(negotiator, id: str, unit: str) -> None:  # type: ignore[no-untyped-def]
    from flowsched.hrm import Claim

    negotiator.commit("s", [Claim(id, unit, queued=True)], launch=True)
