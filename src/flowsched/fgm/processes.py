"""Use of resources by real processes and by the machine, read from the operating system by psutil.

Amounts, in this order everywhere (`NAMES`): CPU seconds, MiB of memory, MiB of traffic with disks, MiB of traffic with
networks; NaN where an amount cannot be read.

A task is a *tree*: some processes, all their descendants, and each process that was once seen among these, also after
its parent has ended.  The kernel adds the CPU time and the disk traffic of a child to its parent's account when the
parent waits for it.  So the use of a tree is the growth of its accounts, children included, less the amounts that were
already counted for processes that have ended since.  That includes children that were never sampled, and counts no
process twice.

No amount is below 0.  All amounts but memory are differences of counters, each clipped at 0 (`_growth`): a kernel's
counters run backwards, wrap, and vanish with the interface or process that had them, and sums of them differ by an
error of rounding on an idle machine.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Below = Mapping[int, list[psutil.Process]]

NAMES = ("cpu", "mem", "disk", "net")

_MIB = 2.0**20

_JOINED = 2.0
"""A process older than the last look by more than these seconds did not start since; start times err by a second."""


@dataclass(frozen=True, slots=True)
class _Account:
    """One process: its parent in the tree; its CPU seconds, and those of children waited for; MiB of disk of them all."""

    parent: psutil.Process | None
    own: float
    waited: float
    disk: float


class Tree:
    """The processes of one task, from its roots; `below` as from `children`."""

    def __init__(self, roots: Iterable[psutil.Process], below: Below) -> None:
        self._parents: dict[psutil.Process, psutil.Process | None] = dict.fromkeys(roots)
        self._accounts: dict[psutil.Process, _Account] = {}
        self._networks: dict[Hashable, float] = {}
        self._looked = math.inf
        self.look(below)

    def look(self, below: Below) -> Floats | None:
        """Return the use since the last look, and the memory in use; None where no process is left."""
        began = time.time()
        self._parents = found = self._find(below)
        accounts: dict[psutil.Process, _Account] = {}
        alive = []
        for process, parent in found.items():
            try:
                with process.oneshot():
                    accounts[process] = self._account(process, parent)
                    if process.status() != psutil.STATUS_ZOMBIE:
                        alive.append(process)
            except psutil.Error:
                if process in self._accounts:  # it has just ended, after its parent's account was read
                    accounts[process] = self._accounts[process]
        cpu, disk = self._growth(accounts)
        network = self._network(alive)
        self._accounts, self._looked = accounts, began
        return np.array([cpu, _memory(alive), disk, network]) if alive else None

    def _find(self, below: Below) -> dict[psutil.Process, psutil.Process | None]:
        """Find all processes of the tree, each after its parent."""
        found: dict[psutil.Process, psutil.Process | None] = {}
        for process, parent in self._parents.items():
            path = [(process, parent)] if process.is_running() else []
            while path:
                process, parent = path.pop()
                if process not in found:
                    found[process] = parent
                    path += [(child, process) for child in below.get(process.pid, ())]
        return found

    def _account(self, process: psutil.Process, parent: psutil.Process | None) -> _Account:
        times = process.cpu_times()
        try:
            traffic = process.io_counters()
            disk = (traffic.read_bytes + traffic.write_bytes) / _MIB
        except (psutil.AccessDenied, AttributeError):  # of another user, or the system does not count it
            disk = math.nan
        waited = getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
        return _Account(parent, times.user + times.system, waited, disk)

    def _growth(self, accounts: Mapping[psutil.Process, _Account]) -> tuple[float, float]:
        """Return CPU seconds and MiB of disk traffic between the former accounts and these."""
        known: dict[psutil.Process, Floats] = {}
        for process, was in self._accounts.items():
            if process not in accounts:
                heir = was.parent
                while heir is not None and heir not in accounts:
                    heir = self._accounts[heir].parent if heir in self._accounts else None
                if heir is not None:
                    known[heir] = known.get(heir, np.zeros(2)) + (was.own + was.waited, was.disk)
        cpu = disk = 0.0
        for process, now in accounts.items():
            before = self._accounts.get(process)
            if before is None:
                if process.create_time() < self._looked - _JOINED:  # it ran before it joined this tree
                    continue
                before = _Account(None, 0.0, 0.0, 0.0)
            counted = known.get(process, np.zeros(2))
            cpu += _growth(now.own, before.own) + _growth(now.waited, before.waited + float(counted[0]))
            disk += _growth(now.disk, before.disk + float(counted[1]))
        return cpu, disk

    def _network(self, processes: Iterable[psutil.Process]) -> float:
        """Return MiB through the interfaces of other network namespaces than our own; each namespace counts once."""
        spaces = {_namespace(process.pid): process.pid for process in processes}
        if None in spaces or _namespace(os.getpid()) in spaces:
            return math.nan
        before, self._networks = self._networks, {space: _traffic(pid) for space, pid in spaces.items()}
        return _total_growth(self._networks, before)


class Group:
    """A control group of version 2: CPU time and memory of all processes that it has, or ever had."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._spent = self._cpu()

    def look(self) -> Floats:
        """Return the use since the last look, and the memory in use; NaN for amounts that the group does not count."""
        before, self._spent = self._spent, self._cpu()
        return np.array([_growth(self._spent, before), self._memory(), math.nan, math.nan])

    def _cpu(self) -> float:
        return self._entry("cpu.stat", "usage_usec") / 1e6

    def _memory(self) -> float:
        """Return MiB without the files that the kernel can drop at any time."""
        try:
            held = int((self._path / "memory.current").read_text())
        except (OSError, ValueError):
            return math.nan
        dropped = self._entry("memory.stat", "inactive_file")
        return max(held - (0.0 if math.isnan(dropped) else dropped), 0.0) / _MIB

    def _entry(self, file: str, name: str) -> float:
        try:
            lines = (self._path / file).read_text().splitlines()
        except OSError:
            return math.nan
        return next((float(line.split()[1]) for line in lines if line.startswith(f"{name} ")), math.nan)


def children() -> Below:
    """Return the children of every process, by its pid: one walk over all processes, for many trees."""
    below: dict[int, list[psutil.Process]] = {}
    for pid in psutil.pids():
        try:
            process = psutil.Process(pid)
            below.setdefault(process.ppid(), []).append(process)
        except psutil.Error:
            continue
    return below


class Machine:
    """The whole machine by the kernel's counters, also within a container."""

    def __init__(self) -> None:
        self._counters = _counters()

    def look(self) -> Floats:
        """Return the use since the last look (the first one: since this was made), and the memory not available."""
        before, self._counters = self._counters, _counters()
        memory = psutil.virtual_memory()
        spent = {name: _total_growth(now, before[name]) for name, now in self._counters.items()}
        return np.array([spent["cpu"], max(memory.total - memory.available, 0) / _MIB, spent["disk"], spent["net"]])


def _counters() -> dict[str, dict[Hashable, float]]:
    """CPU seconds that were not idle, by kind; MiB of traffic with disks, and with networks by interface."""
    times = psutil.cpu_times()
    idle = ("idle", "iowait", "guest", "guest_nice")  # guests are in "user" already
    try:
        disk = psutil.disk_io_counters()
    except (OSError, NotImplementedError):
        disk = None
    net = psutil.net_io_counters(pernic=True)
    return {
        "cpu": {name: float(getattr(times, name)) for name in times._fields if name not in idle},
        "disk": {"all": math.nan if disk is None else (disk.read_bytes + disk.write_bytes) / _MIB},
        "net": {name: (n.bytes_sent + n.bytes_recv) / _MIB for name, n in net.items() if name != "lo"},
    }


def _growth(now: float, before: float) -> float:
    """Return the growth of a counter: 0 for one that was set back, NaN for one that cannot be read."""
    return 0.0 if now < before else now - before


def _total_growth(now: Mapping[Hashable, float], before: Mapping[Hashable, float]) -> float:
    """Return the growth of several counters; a new one counts from 0."""
    return sum((_growth(value, before.get(name, 0.0)) for name, value in now.items()), 0.0)


def _memory(processes: list[psutil.Process]) -> float:
    """Return MiB in use; memory that processes share counts once where that may be read."""
    total = 0.0
    for process in processes:
        try:
            total += process.memory_info().rss if len(processes) == 1 else _shared(process)
        except psutil.Error:
            continue
    return total / _MIB


def _shared(process: psutil.Process) -> float:
    """Return the bytes of a process, with its part of shared ones."""
    try:
        return float(process.memory_full_info().pss)
    except (psutil.AccessDenied, AttributeError):
        return float(process.memory_info().rss)


def _namespace(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return None


def _traffic(pid: int) -> float:
    """Return MiB in and out of the network namespace of a process, NaN where that may not be read."""
    total = 0
    try:
        with open(f"/proc/{pid}/net/dev", encoding="ascii") as lines:
            for line in list(lines)[2:]:
                name, _, counters = line.partition(":")
                if name.strip() != "lo":
                    values = counters.split()
                    total += int(values[0]) + int(values[8])
    except OSError:
        return math.nan
    return total / _MIB
