"""Units, containers and shared states for tests of the node agent, and looks at processes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from flowsched.hrm import Container, ResourceUnit
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


def settle(agent: Agent) -> list[Ended]:
    """Return all reports until nothing runs and the unit is as good as new."""
    told = agent.wait(30)
    for queue in agent.queues.values():
        assert not len(queue) and queue.free == list(queue.capacity)
    assert not agent._launcher and not agent._commands
    return told


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
