"""The sampler on real processes with known loads."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import namedtuple
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
from effort import effort

psutil = pytest.importorskip("psutil")

import flowsched as fs
from flowsched.cluster.events import MachineSampled, UsageSampled
from flowsched.exceptions import InputError
from flowsched.fgm import FineGrained, processes
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


@pytest.mark.long
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


def tree(children: list[subprocess.Popen[str]], code: str) -> subprocess.Popen[str]:
    return start(children, f"import os, subprocess, sys, time\n{code}")


def test_cpu_time_of_children_that_came_and_went_is_counted(children: list[subprocess.Popen[str]]) -> None:
    """As in ``make`` or a shell script, of whose work no look ever sees a process."""
    brief = "print(flush=True)\nwhile True: subprocess.run([sys.executable, '-S', '-c', 'sum(range(2_000_000))'])"
    parent = tree(children, brief)
    sampler = Sampler({"make": parent.pid})
    for _ in range(20):  # on a busy machine the work gets its part of a processor later
        time.sleep(1.0)
        if usage(sampler)["make"]["cpu"] > 0.2:  # its own part is some hundredths
            return
    raise AssertionError("the work of the children is not counted")


def test_what_a_child_did_is_not_counted_again_when_its_parent_has_waited_for_it(
    children: list[subprocess.Popen[str]],
) -> None:
    """Linux adds what a child used, CPU time and traffic with disks, to its parent's account when it is waited for."""
    write = "f = open(sys.argv[1], 'wb', 0); f.write(bytes(8 << 20)); os.fsync(f.fileno())"
    compute = "begin = time.process_time()\nwhile time.process_time() - begin < 0.4: pass"
    child = f"import os, sys, time\n{write}\n{compute}\nprint(flush=True); sys.stdin.read(1)"
    parent = tree(
        children,
        "import tempfile\nwith tempfile.NamedTemporaryFile(dir='.') as file:\n"
        f"    subprocess.run([sys.executable, '-c', {child!r}, file.name])\nprint(flush=True); time.sleep(99)",
    )
    # The child has done its work, and waits for a line.
    now = 0.0
    sampler = Sampler({"task": parent.pid}, clock=lambda: now)
    assert parent.stdin is not None
    assert parent.stdout is not None
    parent.stdin.write("\n")
    parent.stdin.flush()
    parent.stdout.readline()
    now = 1.0
    found = usage(sampler)["task"]
    assert found["cpu"] < 0.2
    assert found.get("disk", 0.0) < 4


def test_memory_that_processes_share_counts_once(children: list[subprocess.Popen[str]]) -> None:
    hold = "block = bytearray(100 * 2**20)\nblock[::4096] = b'x' * len(block[::4096])\n"
    fork = "pids = [os.fork() for _ in range(2)]\nif all(pids): print(flush=True)\nsys.stdin.read()"
    parent = tree(children, hold + fork)
    assert parent.stdin is not None
    sampler = Sampler({"forks": parent.pid})
    time.sleep(0.05)
    assert 100 <= usage(sampler)["forks"]["mem"] < 150


def test_a_process_whose_parent_ended_is_still_the_tasks(children: list[subprocess.Popen[str]]) -> None:
    parent = tree(
        children,
        f"child = subprocess.Popen([sys.executable, '-c', {HOLD!r}, '50'], stdin=sys.stdin, stdout=subprocess.PIPE)\n"
        "child.stdout.readline(); print(flush=True); time.sleep(0.3)",
    )
    sampler = Sampler({"daemon": parent.pid})
    parent.wait()
    assert usage(sampler)["daemon"]["mem"] > 50


def test_a_pid_that_another_process_has_now_is_not_the_task(
    children: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    child = start(children, HOLD, "0")
    sampler = Sampler({"old": child.pid})
    monkeypatch.setattr(psutil.Process, "is_running", lambda process: process.pid != child.pid)
    time.sleep(0.01)
    assert usage(sampler) == {}


def test_what_may_not_be_read_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not told as nothing, which would be learnt."""

    def denied(process: psutil.Process) -> None:
        raise psutil.AccessDenied(process.pid)

    monkeypatch.setattr(psutil.Process, "io_counters", denied)
    sampler = Sampler({"me": os.getpid()})
    time.sleep(0.01)
    assert set(usage(sampler)["me"]) == {"cpu", "mem"}


def test_the_traffic_of_a_network_namespace_counts_once(
    children: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All processes of a container see the same counters."""
    first, second = start(children, HOLD, "0"), start(children, HOLD, "0")
    moved = 10.0
    monkeypatch.setattr(processes, "_namespace", lambda pid: "its own" if pid in (first.pid, second.pid) else "ours")
    monkeypatch.setattr(processes, "_traffic", lambda pid: moved)
    now = 0.0
    sampler = Sampler({"container": [first.pid, second.pid], "me": os.getpid()}, clock=lambda: now)
    moved, now = 16.0, 2.0
    found = usage(sampler)
    assert found["container"]["net"] == pytest.approx(3)
    assert "net" not in found["me"]


def test_samples_are_in_the_clusters_units() -> None:
    """Only what the cluster counts is told, or it would refuse the samples."""
    fine = FineGrained(fs.Scheduler(resources=("cpu", "mem")))
    fine.apply(
        fs.MachineAdded("here", {"cpu": 4, "mem": 8}), fs.JobSubmitted("j", [fs.Task("me", {"cpu": 1, "mem": 1})])
    )
    fine.commit(fine.schedule(0.0))
    now = 0.0
    plain = Sampler({"me": os.getpid()}, clock=lambda: now)
    sampler = Sampler({"me": os.getpid()}, "here", units={"cpu": 1, "mem": 1024}, clock=lambda: now)
    now = 1.0
    mem = usage(plain)["me"]["mem"]
    samples = sampler.sample()
    fine.apply(*samples)
    assert [set(sample.usage) for sample in samples] == [{"cpu", "mem"}] * 2
    assert samples[0].usage["mem"] == pytest.approx(mem / 1024, rel=0.1)


def test_bad_arguments_are_refused() -> None:
    for wrong in (2**22 + 1, 10**400, 10**5000, -1, True, "12", 1.5, [], [os.getpid(), 2**22 + 1]):
        with pytest.raises(InputError, match="task 'none'"):
            Sampler({"none": wrong})  # type: ignore[dict-item]
    for window in (0, 10**400, 1.5, True):
        with pytest.raises(InputError, match="window"):
            Sampler(window=window)
    for units in ({"memory": 1}, {"mem": 0}, {"mem": float("nan")}, {"mem": 10**400}, {"mem": "1"}):
        with pytest.raises(InputError, match=next(iter(units))):
            Sampler(units=units)
    sampler = Sampler({"me": os.getpid()})
    with pytest.raises(InputError, match="already"):
        sampler.add("me", os.getpid())


class Counters:
    """Psutil on a machine whose counters are set back, wrap, and come and go with their interfaces."""

    def __init__(self, random: np.random.Generator) -> None:
        self.random = random
        self.now = 0.0
        self.names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")

    def clock(self) -> float:
        self.now += float(self.random.choice([0.0, 0.1, 0.5]))
        return self.now

    def level(self) -> float:
        """Mostly more than before, by nothing or little, from large numbers, whose sums err."""
        return float(self.random.choice([1e6, 2.0**32, 12345.67]) + self.random.choice([0.0, 1e-12, 0.01, 7.0, -3.0]))

    def cpu_times(self) -> object:
        return namedtuple("times", self.names)(*(self.level() for _ in self.names))

    def virtual_memory(self) -> object:
        return SimpleNamespace(total=2.0**30, available=float(self.random.choice([2.0**29, 2.0**31])))

    def disk_io_counters(self) -> object:
        if self.random.random() < 0.2:
            return None
        return SimpleNamespace(read_bytes=self.level(), write_bytes=self.level())

    def net_io_counters(self, pernic: bool) -> object:
        assert pernic
        there = [name for name in ("lo", "eth0", "veth1", "veth2") if self.random.random() < 0.7]
        return {name: SimpleNamespace(bytes_sent=self.level(), bytes_recv=self.level()) for name in there}


@pytest.mark.parametrize("seed", range(effort(3, 400)))
def test_samples_of_a_machine_are_never_negative_whatever_its_counters_do(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counters = Counters(np.random.default_rng(seed))
    for name in ("cpu_times", "virtual_memory", "disk_io_counters", "net_io_counters"):
        monkeypatch.setattr(psutil, name, getattr(counters, name))
    fine = FineGrained(fs.Scheduler(resources=("cpu", "mem", "disk", "net")))
    fine.apply(fs.MachineAdded("node", {"cpu": 64, "mem": 1e6}))
    sampler = Sampler({}, "node", window=3, clock=counters.clock)
    told = 0
    for _ in range(20):
        for sample in sampler.sample():
            told += 1
            assert {"cpu", "mem", "net"} <= set(sample.usage)
            assert all(0 <= value < float("inf") for value in sample.usage.values())
            fine.apply(sample)
    assert told > 2


def test_an_idle_machine_uses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of /proc/stat's numbers differ where the numbers do not: 0.1 + 0.2 + 0.3, and in another order."""
    idle = iter(np.random.default_rng(0).uniform(0, 1e5, 1000).round(2).tolist())
    kinds = namedtuple("kinds", "user nice system idle iowait")
    monkeypatch.setattr(psutil, "cpu_times", lambda: kinds(0.1, 0.7, 0.3, next(idle), 4321.09))
    now = 0.0
    sampler = Sampler({}, "node", clock=lambda: now)
    for _ in range(50):
        now += 1
        (sample,) = sampler.sample()
        assert sample.usage["cpu"] == 0.0


@pytest.mark.parametrize("seed", range(effort(3, 100)))
def test_samples_of_a_task_are_never_negative_whatever_its_counters_do(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(seed)

    def account(tree: processes.Tree, process: psutil.Process, parent: psutil.Process | None) -> processes._Account:
        if random.random() < 0.1:
            raise psutil.NoSuchProcess(process.pid)
        own, waited, disk = random.choice(
            [0.0, 1e-12, 0.1 + 0.2, 5.0, 2.0**32, float("nan")], 3, p=[0.2] * 4 + [0.1] * 2
        )
        return processes._Account(parent, *(0.0 if v != v else v for v in (own, waited)), disk)

    monkeypatch.setattr(processes.Tree, "_account", account)
    monkeypatch.setattr(processes, "_namespace", lambda pid: "its own" if pid == os.getpid() and moved else "ours")
    monkeypatch.setattr(processes, "_traffic", lambda pid: float(random.choice([0.0, 5.0, float("nan")])))
    moved, now = False, 0.0
    sampler = Sampler({"me": os.getpid()}, clock=lambda: now)
    for _ in range(30):
        now += 1
        moved = not moved
        for sample in sampler.sample():
            assert all(0 <= value < float("inf") for value in sample.usage.values())
