"""The node agent with real processes."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from flowsched.exceptions import DuplicateIdError, InputError, UnknownIdError
from flowsched.hrm import Claim, Container, Negotiator, Outcome, ResourceUnit, Store
from flowsched.hrm.agent import Agent, Ended
from flowsched.hrm.agent.cgroups import Cgroups

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the agent runs on Linux only")

CPU = min(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0

UNIT = ResourceUnit("u", "m", vcore=2, mem=100, cpus=(CPU,))


def write(path: Path, text: str = "done", after: float = 0.0) -> list[str]:
    """A process that writes a file after so many seconds, and the CPUs that it may use with it."""
    code = (
        f"import os,time; time.sleep({after}); open({str(path)!r}, 'w').write({text!r} + str(os.sched_getaffinity(0)))"
    )
    return [sys.executable, "-c", code]


SLEEP = ["sleep", "60"]


def state(pid: int) -> str:
    """The letter of the process's state: S sleeps, T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


def wait_for_state(pid: int, wanted: str) -> None:
    deadline = time.monotonic() + 10
    while state(pid) not in wanted:
        assert time.monotonic() < deadline, f"process is {state(pid)}, not {wanted}"
        time.sleep(0.01)


def wait_until(happens: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_processes_are_bound_and_the_next_follows(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    with Agent([UNIT]) as agent:
        assert agent.submit("u", Container("a", vcore=2), write(tmp_path / "a")).outcome is Outcome.STARTED
        assert agent.submit("u", Container("b", vcore=1), write(tmp_path / "b")).outcome is Outcome.QUEUED
        assert agent.pid("a") is not None and agent.pid("b") is None
        assert agent.wait(30) == [Ended("a", 0), Ended("b", 0)]
    assert (tmp_path / "a").read_text() == (tmp_path / "b").read_text() == f"done{{{CPU}}}"
    assert os.sched_getaffinity(0) == before


def test_a_stream_stops_batch_and_lets_it_go_on() -> None:
    with Agent([UNIT]) as agent:
        agent.submit("u", Container("old", vcore=1), SLEEP)
        agent.submit("u", Container("young", vcore=1), SLEEP)
        young = agent.pid("young")
        assert young is not None
        agent.submit("u", Container("s", vcore=1, kind="stream"), ["sleep", "0.3"])
        wait_for_state(young, "T")
        old = agent.pid("old")
        assert old is not None
        wait_for_state(old, "S")
        assert agent.step(timeout=30) == [Ended("s", 0)]
        wait_for_state(young, "SR")
    with pytest.raises(ProcessLookupError):
        os.kill(young, 0)


def test_a_stream_that_needs_memory_kills_and_the_victim_starts_again() -> None:
    with Agent([UNIT]) as agent:
        agent.submit("u", Container("a", mem=80), SLEEP)
        first = agent.pid("a")
        agent.submit("u", Container("s", mem=50, kind="stream"), ["sleep", "0.2"])
        assert agent.pid("a") is None
        assert agent.step(timeout=30) == [Ended("s", 0)]  # the victim's end is not told: it has not ended
        again = agent.pid("a")
        assert again is not None and again != first


def test_failures_are_told_and_containers_can_be_removed() -> None:
    with Agent([UNIT]) as agent:
        agent.submit("u", Container("bad", vcore=2), ["false"])
        agent.submit("u", Container("next", vcore=2), SLEEP)
        agent.submit("u", Container("last", vcore=2), SLEEP)
        assert agent.step(timeout=30) == [Ended("bad", 1)]
        agent.remove("last")
        pid = agent.pid("next")
        assert pid is not None
        os.kill(pid, signal.SIGTERM)
        assert agent.step(timeout=30) == [Ended("next", -signal.SIGTERM)]
        with pytest.raises(UnknownIdError, match="'last'"):
            agent.remove("last")
        with pytest.raises(UnknownIdError, match="'v'"):
            agent.submit("v", Container("x"), SLEEP)
        agent.submit("u", Container("x"), SLEEP)
        with pytest.raises(DuplicateIdError, match="'x'"):
            agent.submit("u", Container("x"), SLEEP)
        with pytest.raises(InputError, match="heartbeat"):
            agent.heartbeat()


def test_control_groups_get_cpus_and_memory_where_they_may(tmp_path: Path) -> None:
    groups = Cgroups(tmp_path)
    for controllers, made in (("cpu cpuset memory", ["cpuset.cpus", "memory.max"]), ("hugetlb", [])):
        (tmp_path / "cgroup.subtree_control").write_text(controllers)
        groups.prepare(UNIT)
        assert sorted(path.name for path in groups.group(UNIT).iterdir()) == made
        for path in groups.group(UNIT).iterdir():
            path.unlink()
    (tmp_path / "cgroup.subtree_control").write_text("cpuset memory")
    groups.prepare(UNIT)
    assert (groups.group(UNIT) / "cpuset.cpus").read_text() == str(CPU)
    assert (groups.group(UNIT) / "memory.max").read_text() == str(100 * 2**20)


def test_control_groups_of_the_kernel_hold_what_leaves_its_process_group(tmp_path: Path) -> None:
    groups = Cgroups.find()
    if groups is None:
        pytest.skip("no control groups of version 2 that this process may use")
    unit = ResourceUnit(f"test-{os.getpid()}/u", "m", vcore=1)
    # A daemon: its own session, its parent gone.
    daemon = (
        f"import os, time; os.setsid(); open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    )
    start = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {daemon!r}]); time.sleep(60)"
    with Agent([unit], cgroups=groups) as agent:
        agent.submit(str(unit.id), Container("a/b", vcore=1), [sys.executable, "-c", start])
        group = groups.group(unit, "a/b")
        assert Path(f"/proc/{agent.pid('a/b')}/cgroup").read_text().splitlines()[-1].endswith("a%2Fb")
        wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
        pid = int((tmp_path / "pid").read_text())
        assert str(pid) in (group / "cgroup.procs").read_text().split()
        agent.submit(str(unit.id), Container("s", vcore=1, kind="stream"), ["sleep", "0.2"])
        wait_until(lambda: "frozen 1" in (group / "cgroup.events").read_text())
        agent.wait(timeout=0.5)
        wait_until(lambda: "frozen 0" in (group / "cgroup.events").read_text())
        agent.remove("a/b")
        wait_until(lambda: not Path(f"/proc/{pid}").exists() or state(pid) == "Z")
        assert not group.exists()
    assert not groups.group(unit).exists()


def test_the_shared_state_and_the_machine_agree(tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed: pip install 'flowsched[sql]'")
    negotiator = Negotiator(Store())
    negotiator.add_units([UNIT], length=1)
    negotiator.add_scheduler("s")
    negotiator.submit("j", [Container(f"j{i}", vcore=1, duration=1.0) for i in range(3)], scheduler="s")
    claims = [Claim("j0", "u"), Claim("j1", "u"), Claim("j2", "u", queued=True)]
    assert negotiator.commit("s", claims).accepted == tuple(claims)

    def command(id: str) -> Sequence[str]:
        return write(tmp_path / id)

    with Agent([UNIT], negotiator=negotiator, command=command) as agent:
        agent.heartbeat()
        assert agent.pid("j0") is None  # claimed, but not launched
        negotiator.launch("s", ["j0", "j1", "j2"])
        agent.heartbeat()
        assert sorted(ended.id for ended in agent.wait(60)) == ["j0", "j1", "j2"]
        agent.heartbeat()
        # The third had followed before the shared state knew of it; its end is booked all the same.
        assert negotiator.jobs() == [] and negotiator.units()[0].free[0] == UNIT.capacity[0]
    assert all((tmp_path / f"j{i}").exists() for i in range(3))


def test_a_waiting_container_moves_to_the_idle_machine(tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed: pip install 'flowsched[sql]'")
    negotiator = Negotiator(Store(), patience=0.0)
    units = [ResourceUnit(name, f"m-{name}", vcore=1) for name in ("busy", "idle")]
    negotiator.add_units(units, length=1)
    negotiator.add_scheduler("s")
    negotiator.submit("job", [Container(f"t{i}", vcore=1, duration=60.0) for i in range(2)], scheduler="s")
    negotiator.commit("s", [Claim("t0", "busy"), Claim("t1", "busy", queued=True)], launch=True)

    def command(id: str) -> Sequence[str]:
        return SLEEP if id == "t0" else write(tmp_path / "t1")

    busy, idle = (Agent([unit], length=1, negotiator=negotiator, command=command) for unit in units)
    with busy, idle:
        busy.heartbeat()  # t0 starts and t1 waits
        assert busy.pid("t0") is not None and [c.id for c in busy.queues["busy"].waiting] == ["t1"]
        idle.heartbeat()
        assert idle.pid("t1") is None
        busy.heartbeat()  # it reports waiting containers
        assert not busy.queues["busy"].waiting
        idle.heartbeat()
        assert idle.wait(30) == [Ended("t1", 0)]
        idle.heartbeat()
        assert [(job.held, job.done) for job in negotiator.jobs()] == [(1, 1)]
