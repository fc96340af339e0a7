"""The sampler on real processes with known loads."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

pytest.importorskip("psutil")

from flowsched.cluster.events import MachineSampled, UsageSampled
from flowsched.exceptions import InputError
from flowsched.fgm.sampler import Sampler

HOLD = """
import sys
block = bytearray(int(sys.argv[1]) * 2**20)
block[::4096] = b"x" * len(block[::4096])
print("ready", flush=True)
sys.stdin.read()
"""

# As long asleep as it has computed, so that it computes half of the time; after each line read, it tells its CPU seconds.
BUSY = """
import os, select, sys, time
def told():
    times = os.times()
    print(times.user + times.system, flush=True)
told()
while True:
    begin = time.process_time()
    while time.process_time() - begin < 0.02:
        pass
    time.sleep(0.02)
    if select.select([sys.stdin], [], [], 0)[0]:
        if not sys.stdin.readline():
            break
        told()
"""


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[str]]]:
    running: list[subprocess.Popen[str]] = []
    yield running
    for child in running:
        child.kill()
        child.communicate()


def start(children: list[subprocess.Popen[str]], code: str, *arguments: str) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    children.append(child)
    assert child.stdout is not None
    child.stdout.readline()
    return child


def usage(sampler: Sampler) -> dict[object, dict[str, float]]:
    return {sample.task: dict(sample.usage) for sample in sampler.sample() if isinstance(sample, UsageSampled)}


def test_memory_is_what_was_allocated(children: list[subprocess.Popen[str]]) -> None:
    large, small = (start(children, HOLD, size) for size in ("200", "0"))
    sampler = Sampler({"large": large.pid, "small": small.pid})
    time.sleep(0.05)
    found = usage(sampler)
    assert found["large"]["mem"] - found["small"]["mem"] == pytest.approx(200, rel=0.05)


def test_cpu_is_what_the_process_says_itself(children: list[subprocess.Popen[str]]) -> None:
    child = start(children, BUSY)
    assert child.stdin is not None
    assert child.stdout is not None

    def ask() -> float:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write("\n")
        child.stdin.flush()
        return float(child.stdout.readline())

    begin = ask()
    began = time.monotonic()
    sampler = Sampler({"busy": child.pid})
    time.sleep(3.0)
    found = usage(sampler)["busy"]["cpu"]
    rate = (ask() - begin) / (time.monotonic() - began)
    # The kernel counts CPU time in hundredths of a second, and the two looks are not at the same moment.
    assert found == pytest.approx(rate, rel=0.05, abs=0.03)
    assert found > 0


def test_a_task_is_its_processes_and_their_children(children: list[subprocess.Popen[str]]) -> None:
    parent = start(children, f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {HOLD!r}, '100'])")
    lone = start(children, HOLD, "0")
    sampler = Sampler({"both": [parent.pid, lone.pid]}, window=2)
    time.sleep(0.05)
    assert 100 < usage(sampler)["both"]["mem"] < 200


def test_a_process_that_is_gone_is_forgotten(children: list[subprocess.Popen[str]]) -> None:
    child = start(children, HOLD, "0")
    sampler = Sampler({"gone": child.pid})
    child.kill()
    child.wait()
    time.sleep(0.01)
    assert usage(sampler) == {}
    sampler.add("gone", os.getpid())  # its name may be used again


def test_the_machine_uses_at_least_what_its_tasks_use(children: list[subprocess.Popen[str]]) -> None:
    sampler = Sampler({"me": os.getpid()}, machine="here")
    total = sum(i * i for i in range(2_000_000))
    assert total
    me, machine = sampler.sample()
    assert isinstance(me, UsageSampled)
    assert isinstance(machine, MachineSampled)
    assert machine.usage["mem"] > me.usage["mem"]
    assert machine.usage["cpu"] > 0
    assert me.time == machine.time


def test_time_is_the_callers() -> None:
    now = 0.0
    sampler = Sampler({"me": os.getpid()}, clock=lambda: now)
    now = 10.0
    (sample,) = sampler.sample()
    assert sample.time == 10.0
    assert sampler.sample() == []  # no time has passed
    now = 20.0
    sampler.add("new", os.getpid())
    assert [sample.task for sample in sampler.sample() if isinstance(sample, UsageSampled)] == ["me"]


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(InputError, match="no process"):
        Sampler({"none": 2**22 + 1})
    with pytest.raises(InputError, match="window"):
        Sampler(window=0)
    sampler = Sampler({"me": os.getpid()})
    with pytest.raises(InputError, match="already"):
        sampler.add("me", os.getpid())
