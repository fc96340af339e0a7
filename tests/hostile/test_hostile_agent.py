"""The node agent killed at any moment, with containers that cannot start, end too early, or leave children behind.

Nothing here writes into the machine's own control groups: plain folders stand in for them.
"""

from __future__ import annotations

import gc
import json
import os
import random
import resource
import shutil
import signal
import string
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from effort import effort
from hypothesis import given
from hypothesis import strategies as st

from flowsched.exceptions import ConcurrentUseError, InputError
from flowsched.hrm import Container, Outcome, ResourceUnit
from flowsched.hrm.agent import cgroups
from flowsched.hrm.agent.cgroups import Cgroups, group_name
from flowsched.hrm.agent.processes import Family, boot_id, end, start_time

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the agent runs on Linux only")

from flowsched.hrm.agent import Agent, Ended

UNIT = ResourceUnit("u", "m", vcore=2, mem=100)
SLEEP = ["sleep", "60"]


def run(code: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code]


def wait_until(happens: Callable[[], object], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


def pids(path: Path) -> list[int]:
    return [int(word) for word in path.read_text().split()] if path.exists() else []


# -- names of control groups ----------------------------------------------------------------------------------------

EVIL = ["..", ".", "", "/", "a/../..", "cgroup.procs", "cgroup.kill", "memory.max", "%", "%h", "%2E%2E", "a%2Fb", "a/b", "\0",
        "\ud800", "x" * 10_000, "x" * 10_001, "é" * 300, "%" * 200, group_name("x" * 10_000), "C", "c", " c", "c\n"]  # fmt: skip


def check_names(ids: Sequence[str]) -> None:
    names = [group_name(id) for id in ids]
    assert len(set(names)) == len(set(ids))
    for each in names:
        assert 0 < len(each) <= 200 and set(each) <= set(string.ascii_letters + string.digits + "%_-"), each


def test_every_id_has_a_group_name_of_its_own() -> None:
    check_names(EVIL)


@given(st.lists(st.text(st.characters() | st.sampled_from("./%hC2E"), max_size=effort(40, 300)), max_size=8))
def test_no_two_ids_have_one_group_name(ids: list[str]) -> None:
    check_names(list({*ids, *EVIL}))


def test_a_container_reaches_its_own_group_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "_remove", shutil.rmtree)  # the kernel's files vanish with their group
    root = tmp_path / "root"
    groups, unit = Cgroups(root), ResourceUnit("..", "m", vcore=1)
    files = ["cgroup.kill", "cgroup.procs", "cgroup.freeze", "cgroup.subtree_control"]
    root.mkdir()
    for file in files:
        (root / file).write_text("")
    groups.prepare(unit)
    for file in files:
        (groups.group(unit) / file).write_text("")
    for id in EVIL:
        group = groups.group(unit, id)
        assert group.resolve().parent == groups.group(unit).resolve() and groups.group(unit).resolve().parent == root
        groups.enter(unit, id, 12345)
        groups.freeze(unit, id, True)
        assert (group / "cgroup.procs").read_text() == "12345" and (group / "cgroup.freeze").read_text() == "1"
        groups.leave(unit, id)
        assert not group.exists()
        assert [(folder / file).read_text() for folder in (root, groups.group(unit)) for file in files] == [""] * 8
    with pytest.raises(InputError, match="another agent's"):
        Cgroups(root).prepare(unit)
    # What another one has left is ended when the unit is prepared again.
    groups.enter(unit, "left", 12345)
    killed = []
    monkeypatch.setattr(cgroups, "_remove", lambda group: (killed.append((group / "cgroup.kill").read_text()), shutil.rmtree(group)))  # fmt: skip
    del groups  # an agent that is dropped gives up its units, too
    gc.collect()
    Cgroups(root).prepare(unit)
    assert killed == ["1"] and not (root / "flowsched-%2E%2E" / "left").exists()


@pytest.mark.parametrize("bad", ["\0", "a\0", "\ud800", "x" * 2000])
def test_ids_are_refused_at_the_door(tmp_path: Path, bad: str) -> None:
    with Agent([UNIT], state=tmp_path) as agent:
        with pytest.raises(InputError, match="container: id"):
            agent.submit("u", Container(bad), SLEEP)
        assert agent.submit("u", Container(".."), ["true"]).outcome is Outcome.STARTED
        assert agent.wait(30) == [Ended("..", 0)]
    with pytest.raises(InputError, match="machine|units"):
        Agent([ResourceUnit("u", bad)], state=tmp_path)


# -- unit and process are released on every path --------------------------------------------------------------------


def settle(agent: Agent) -> list[Ended]:
    """All that is told until nothing runs, and then the unit is as good as new."""
    told = agent.wait(30)
    for queue in agent.queues.values():
        assert not len(queue) and queue.free == list(queue.capacity)
    assert not agent._launcher and not agent._commands
    return told


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
        real = agent._settle

        def late() -> None:
            monkeypatch.setattr(agent, "_settle", real)
            wait_until(lambda: not is_running(pid))

        monkeypatch.setattr(agent, "_settle", late)
        agent.submit("u", Container("stream", vcore=2, mem=mem, kind="stream"), ["true"])
        assert sorted(settle(agent), key=lambda one: one.id) == [Ended("batch", 5), Ended("stream", 0)]
    assert out.read_text() == "x"


def test_what_cannot_be_started_has_ended(tmp_path: Path) -> None:
    nowhere = ResourceUnit("nowhere", "m", vcore=1, cpus=(100_000,))
    plain = tmp_path / "plain"
    plain.write_text("no program")
    with Agent([UNIT, nowhere], state=tmp_path / "state") as agent:
        bad = {"missing": ["/no/such/program"], "plain": [str(plain)], "folder": [str(tmp_path)]}
        agent.submit("u", Container("before", vcore=2), ["true"])
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
    with Agent([UNIT], state=tmp_path) as agent:
        agent.submit("u", Container("a", vcore=1), ["true"])
        agent.submit("u", Container("b", vcore=1), SLEEP)
        agent.submit("u", Container("c", vcore=2), ["true"])
        gc.collect()  # or files of earlier tests might be closed meanwhile
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
    monkeypatch.setattr(cgroups, "_remove", lambda group: shutil.rmtree(group, ignore_errors=True))

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


# -- children -------------------------------------------------------------------------------------------------------

ORPHANS = {
    "same group": "os.fork() or (note(), time.sleep(60))",
    "own group": "os.fork() or (os.setpgid(0, 0), note(), time.sleep(60))",
    "own session": "os.fork() or (os.setsid(), note(), time.sleep(60))",
    "daemon": "os.fork() or (os.setsid(), os.fork() and os._exit(0), note(), time.sleep(60))",
    "stopped": "os.fork() or (os.setsid(), note(), os.kill(os.getpid(), 19), time.sleep(60))",
    "deaf": "os.fork() or ([signal.signal(s, signal.SIG_IGN) for s in (1, 2, 15)], os.setsid(), note(), time.sleep(60))",
    "many": "os.fork() or [os.fork() or (os.setsid(), note(), time.sleep(60)) for _ in range(100)]",
}


def leaving(path: Path, how: str, after: str = "") -> list[str]:
    """A program whose child stays."""
    return run(
        f"""
import os, signal, time
def note(): os.write(out, b'%d ' % os.getpid())
out = os.open({str(path)!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
{ORPHANS[how]}
while not os.path.getsize({str(path)!r}): time.sleep(0.001)
{after}"""
    )


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


@pytest.mark.parametrize("how", [*ORPHANS, "leader gone"])
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


# -- one agent of a machine -----------------------------------------------------------------------------------------


def one_core(i: int) -> ResourceUnit:
    return ResourceUnit(f"u{i}", "m", vcore=2, mem=100)


def shared(url: str, units: int = 3):  # type: ignore[no-untyped-def]
    pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed: pip install 'flowsched[sql]'")
    from flowsched.hrm import Negotiator, Store

    negotiator = Negotiator(Store(url), ttl=1000.0, shares=False)
    negotiator.add_units([one_core(i) for i in range(units)], length=4)
    negotiator.add_scheduler("s")
    return negotiator


def launch(negotiator, id: str, unit: str, **options: object) -> bool:  # type: ignore[no-untyped-def]
    from flowsched.hrm import Claim

    negotiator.submit(f"job {id}", [Container(id, vcore=2, duration=1.0, **options)], scheduler="s")  # type: ignore[arg-type]
    return bool(negotiator.commit("s", [Claim(id, unit, queued=True)], launch=True).accepted)


def test_there_is_one_agent_of_a_machine_of_a_shared_state(tmp_path: Path) -> None:
    negotiator = shared(f"sqlite:///{tmp_path}/state.db")
    units = [one_core(0)]
    first = Agent(units, negotiator=negotiator, command=lambda id: SLEEP, state=tmp_path / "state")
    with pytest.raises(InputError, match="another agent"):
        Agent(units, negotiator=negotiator, state=tmp_path / "state")
    other = ResourceUnit("v", "another machine")
    Agent([other], negotiator=negotiator, state=tmp_path / "state").close()
    launch(negotiator, "a", "u0")
    first.heartbeat()
    # A process that is forked neither holds the lock nor ends what is its parent's.
    child = os.fork()
    if not child:
        with_exit = 1
        try:
            first.close()
            first.step()
        except ConcurrentUseError:
            with_exit = 0
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.write(1, b"")
        if with_exit:
            os._exit(1)
        time.sleep(60)
        os._exit(2)
    try:
        time.sleep(0.2)
        assert is_running(child)
        pid = first.pid("a")
        assert pid is not None and is_running(pid)
        first.close()
        assert not is_running(pid)
        Agent(units, negotiator=negotiator, state=tmp_path / "state").close()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    with pytest.raises(InputError, match="closed"):
        first.step()
    first.close()


def test_agents_that_begin_and_close_at_the_same_time_do_not_meet(tmp_path: Path) -> None:
    negotiator_of = [shared(f"sqlite:///{tmp_path}/state{i}.db", units=1) for i in range(4)]
    wrong: list[BaseException] = []

    def live(i: int) -> None:
        try:
            for _ in range(effort(3, 50)):
                shares = {"negotiator": negotiator_of[i]} if i < 4 else {}
                with Agent([one_core(0)], state=tmp_path / "state", **shares) as agent:
                    agent.submit("u0", Container("a"), ["sleep", "0.01"])
                    assert agent.wait(60) == [Ended("a", 0)]
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=live, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and not list((tmp_path / "state").iterdir())


# -- overlapping calls ----------------------------------------------------------------------------------------------


def test_a_second_call_is_refused(tmp_path: Path) -> None:
    refused: list[str] = []
    with Agent([UNIT], state=tmp_path) as agent:

        def call() -> None:
            for one in (
                lambda: agent.submit("u", Container("x"), SLEEP), agent.step, lambda: agent.remove("a"), agent.close,
            ):  # fmt: skip
                try:
                    one()
                except ConcurrentUseError as error:
                    refused.append(str(error))

        before = signal.signal(signal.SIGUSR1, lambda *_: call())
        try:
            agent.submit("u", Container("a"), ["sleep", "0.5"])
            threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
            other = threading.Timer(0.2, call)
            other.start()
            assert agent.step(30) == [Ended("a", 0)]
            other.join()
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert refused == ["Agent: used while another call on it is under way"] * 8
        assert settle(agent) == []


def test_signals_at_random_moments_leave_nothing(tmp_path: Path) -> None:
    """A handler that raises, somewhere in submit, step, remove and close."""

    class LeaveError(Exception):
        pass

    def leave(*_: object) -> None:
        raise LeaveError

    before = signal.signal(signal.SIGALRM, leave)
    hits = 0
    try:
        for seed in range(effort(40, 1000)):
            rng = random.Random(seed)
            mark = tmp_path / f"mark{seed}"
            command = leaving(mark, "own session", "time.sleep(60)")
            agent = Agent([UNIT], state=tmp_path / "state")
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.0005, 0.08))
            try:
                for i in range(4):
                    agent.submit("u", Container(i, vcore=1), command)
                agent.submit("u", Container("s", vcore=2, kind="stream"), ["true"])
                agent.step(0.02)
                agent.remove("0")
            except LeaveError:
                hits += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                for _ in range(2):
                    try:
                        agent.close()
                        break
                    except LeaveError:
                        pass
            assert not any(map(is_running, pids(mark))), f"seed {seed}"
            assert not list((tmp_path / "state").iterdir())
    finally:
        signal.signal(signal.SIGALRM, before)
    assert hits


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
import os, sys
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
        finally:
            os._exit(status)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Ledger:
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


def test_no_container_runs_twice_or_is_left_behind_when_agents_are_killed(tmp_path: Path) -> None:
    kills = effort(6, 80)
    negotiator = shared(f"sqlite:///{tmp_path}/state.db")
    from negotiators import audit

    (tmp_path / "locks").mkdir()
    (tmp_path / "program.py").write_text(PROGRAM)
    ledger = Ledger(tmp_path)
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
                wait_until(lambda pid=pid: ledger.begun(pid), 60)  # type: ignore[misc]
            if rng.random() < 0.5:
                feed(2)
            time.sleep(rng.uniform(0.0, 0.5 if whole else 0.1))
            number = signal.SIGTERM if rng.random() < 0.2 and ledger.begun(pid) else signal.SIGKILL
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
    lines = ledger.lines()
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
