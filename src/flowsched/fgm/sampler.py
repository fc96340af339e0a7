"""What real processes use, read from the operating system.  Needs ``pip install 'flowsched[real]'``.

CPU time, resident memory and disk traffic are told by process.  Network traffic is not: Linux counts it by network
namespace, so a process is charged with it only where it lives in a namespace of its own (a container); for the machine
as a whole it is always told.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.events import MachineSampled, UsageSampled
from flowsched.exceptions import InputError
from flowsched.fgm.adjust import time_weighted_mean

try:
    import psutil
except ImportError as missing:  # pragma: no cover
    raise ImportError("the sampler needs psutil: pip install 'flowsched[real]'", name="psutil") from missing

__all__ = ["Sampler"]

Floats = NDArray[np.float64]

_MIB = 2.0**20
_NAMES = ("cpu", "mem", "disk", "net")


@dataclass(slots=True, eq=False)
class _Task:
    """`seen`: CPU seconds, and MiB of disk and network, of each process at the last look, which was at `last`."""

    roots: tuple[int, ...]
    last: float
    seen: dict[int, Floats] = field(default_factory=dict)
    window: deque[tuple[Floats, float]] = field(default_factory=deque)


class Sampler:
    """Samples tasks, each some processes with their descendants, and the machine that they run on.

    Parameters
    ----------
    tasks : mapping of task to pid or sequence of pid, optional
    machine : hashable, optional
        Also sample the whole machine under this id.
    window : int
        A sample is the time-weighted mean (14) over the last so many looks.
    clock : callable
        The time of the events; only differences count.

    Notes
    -----
    Units: "cpu" in cores, "mem" in MiB, "disk" and "net" in MiB per second.

    Examples
    --------
    >>> import os
    >>> sampler = Sampler({"me": os.getpid()})
    >>> total = sum(i * i for i in range(200_000))
    >>> (sample,) = sampler.sample()
    >>> sample.task, sample.usage["cpu"] > 0, sample.usage["mem"] > 1
    ('me', True, True)
    """

    def __init__(
        self,
        tasks: Mapping[Hashable, int | Iterable[int]] | None = None,
        machine: Hashable | None = None,
        *,
        window: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if isinstance(window, bool) or not isinstance(window, int) or window < 1:
            raise InputError(f"Sampler: window: a whole number >= 1 expected, got {window!r}")
        self._machine = machine
        self._window = window
        self._clock = clock
        self._namespace = _namespace(os.getpid())
        self._tasks: dict[Hashable, _Task] = {}
        self._last = clock()
        self._whole: deque[tuple[Floats, float]] = deque(maxlen=window)
        self._looked, self._before = self._clock(), _machine_counters()
        for task, pids in (tasks or {}).items():
            self.add(task, pids)

    def add(self, task: Hashable, pids: int | Iterable[int]) -> None:
        """Sample a task from now on.

        Raises
        ------
        InputError
            The task is sampled already, or there is no such process.
        """
        if task in self._tasks:
            raise InputError(f"Sampler: task {task!r} is sampled already")
        roots = (pids,) if isinstance(pids, int) else tuple(pids)
        for pid in roots:
            if not psutil.pid_exists(pid):
                raise InputError(f"Sampler: task {task!r}: no process {pid}")
        entry = _Task(roots, self._clock(), window=deque(maxlen=self._window))
        self._look(entry)
        self._tasks[task] = entry

    def remove(self, task: Hashable) -> None:
        """Sample a task no more."""
        self._tasks.pop(task, None)

    def sample(self) -> list[UsageSampled | MachineSampled]:
        """What was used since the last call; a task whose processes are gone is left out, and forgotten."""
        now = self._clock()
        if now <= self._last:
            return []
        self._last = now
        samples: list[UsageSampled | MachineSampled] = []
        for task, entry in list(self._tasks.items()):
            # A busy machine lets the sampler wait, so each look has its own time.
            looked = self._clock()
            if looked <= entry.last:
                continue
            found = self._look(entry)
            if found is None:
                del self._tasks[task]
                continue
            spent, memory = found
            entry.window.append((np.array([spent[0], memory, spent[1], spent[2]]), looked - entry.last))
            entry.last = looked
            samples.append(UsageSampled(task, _mean(entry.window), time=now))
        if self._machine is not None:
            looked, counters = self._clock(), _machine_counters()
            seconds, spent = looked - self._looked, counters - self._before
            self._looked, self._before = looked, counters
            whole = psutil.virtual_memory()
            self._whole.append((np.array([spent[0], (whole.total - whole.available) / _MIB, *spent[1:]]), seconds))
            samples.append(MachineSampled(self._machine, _mean(self._whole), time=now))
        return samples

    def _look(self, entry: _Task) -> tuple[Floats, float] | None:
        """CPU seconds, disk and network MiB since the last look, and MiB of memory; None where no process is left."""
        spent, memory, seen = np.zeros(3), 0.0, {}
        for process in _tree(entry.roots):
            try:
                with process.oneshot():
                    now = self._counters(process)
                    memory += process.memory_info().rss / _MIB
            except psutil.Error:
                continue
            # A process that was not there at the last look has used all that it has since.
            spent += np.maximum(now - entry.seen.get(process.pid, np.zeros(3)), 0.0)
            seen[process.pid] = now
        entry.seen = seen
        return (spent, memory) if seen else None

    def _counters(self, process: psutil.Process) -> Floats:
        times = process.cpu_times()
        try:
            traffic = process.io_counters()
            disk = (traffic.read_bytes + traffic.write_bytes) / _MIB
        except (psutil.AccessDenied, AttributeError):
            disk = 0.0
        return np.array([times.user + times.system, disk, self._network(process.pid)])

    def _network(self, pid: int) -> float:
        """MiB through the interfaces of a process in a network namespace of its own."""
        space = _namespace(pid)
        if space is None or space == self._namespace:
            return 0.0
        try:
            with open(f"/proc/{pid}/net/dev", encoding="ascii") as lines:
                return _traffic(list(lines)[2:])
        except OSError:
            return 0.0


def _traffic(lines: Iterable[str]) -> float:
    total = 0
    for line in lines:
        name, _, counters = line.partition(":")
        if name.strip() != "lo":
            values = counters.split()
            total += int(values[0]) + int(values[8])
    return total / _MIB


def _tree(roots: Iterable[int]) -> Iterable[psutil.Process]:
    """The processes and all below them, each once."""
    found: dict[int, psutil.Process] = {}
    for pid in roots:
        try:
            process = psutil.Process(pid)
            if process.status() != psutil.STATUS_ZOMBIE:
                found.update((p.pid, p) for p in (process, *process.children(recursive=True)))
        except psutil.Error:
            continue
    return found.values()


def _machine_counters() -> Floats:
    """CPU seconds that were not idle, disk and network MiB, since the machine started."""
    times = psutil.cpu_times()
    busy = sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0)
    busy -= getattr(times, "guest_nice", 0.0)
    disk, net = psutil.disk_io_counters(), psutil.net_io_counters(pernic=True)
    moved = sum(n.bytes_sent + n.bytes_recv for name, n in net.items() if name != "lo")
    return np.array([busy, 0.0 if disk is None else (disk.read_bytes + disk.write_bytes) / _MIB, moved / _MIB])


def _namespace(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return None


def _mean(window: Iterable[tuple[Floats, float]]) -> dict[str, float]:
    """Rates of the window: what was spent per second, and the mean of what was held."""
    amounts, seconds = (np.array(column) for column in zip(*window, strict=True))
    rates = amounts / seconds[:, None]
    rates[:, 1] = amounts[:, 1]
    return dict(zip(_NAMES, time_weighted_mean(rates, seconds).tolist(), strict=True))
