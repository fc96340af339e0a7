"""Samples of the usage of real processes, read from the operating system.  Needs ``pip install 'flowsched[real]'``.

CPU time and resident memory can be read of every process.  Disk traffic can be read of the caller's own processes, and
by root of all.  Linux counts network traffic by network namespace, so a task is charged with it only where its
processes have one of their own (a container), which no other task may share.  Samples leave out amounts that cannot be
read.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from operator import index
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flowsched.boundary.validate import number, quoted, whole
from flowsched.cluster.events import MachineSampled, UsageSampled
from flowsched.exceptions import InputError
from flowsched.fgm.adjust import time_weighted_mean

try:
    import psutil

    from flowsched.fgm import processes
except ImportError as missing:  # pragma: no cover
    raise ImportError("the sampler needs psutil: pip install 'flowsched[real]'", name="psutil") from missing

Floats = NDArray[np.float64]


@dataclass(slots=True, eq=False)
class _Task:
    """`window`: use between two looks, and the seconds between them; `last`: the time of the last look."""

    tree: processes.Tree
    group: processes.Group | None
    last: float
    window: deque[tuple[Floats, float]]


class Sampler:
    """Samples tasks, each some processes with their descendants, and the machine that they run on.

    Parameters
    ----------
    tasks : mapping of task to pid or sequence of pid, optional
    machine : hashable, optional
        Also sample the whole machine under this id.
    window : int
        A sample is the time-weighted mean (14) over this many last looks.
    units : mapping of str to float, optional
        The resources of the cluster, and its unit of each, as a multiple of the unit below:
        ``{"cpu": 1, "mem": 1024}`` for cores and GiB alone.  By default all four.
    clock : callable
        Returns the time of the events and of the scheduler's rounds.
    least : float
        A task is looked at when this time has passed since the last look, or since `add`: the system counts in
        hundredths of a second.

    Notes
    -----
    Units: "cpu" in cores, "mem" in MiB, "disk" and "net" in MiB per second.

    Examples
    --------
    >>> import os
    >>> sampler = Sampler({"me": os.getpid()})
    >>> total = sum(i * i for i in range(3_000_000))  # the system counts in hundredths of a second
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
        units: Mapping[str, float] | None = None,
        clock: Callable[[], float] = time.monotonic,
        least: float = 0.0,
    ) -> None:
        window = whole("Sampler: window", window, 1, 1 << 20)
        self._units = dict.fromkeys(processes.NAMES, 1.0) if units is None else dict(units)
        for name, unit in self._units.items():
            known = name in processes.NAMES and number(f"Sampler: units[{name!r}]", unit) > 0
            if not known:
                raise InputError(
                    f"Sampler: units[{quoted(name)}]: one of {', '.join(processes.NAMES)} and a number > 0 expected, "
                    f"got {quoted(unit)}"
                )
        self._machine = machine
        self._window = window
        self._clock = clock
        self._least = number("Sampler: least", least, 0)
        self._tasks: dict[Hashable, _Task] = {}
        self._last = self._looked = clock()
        self._whole: deque[tuple[Floats, float]] = deque(maxlen=window)
        self._all = processes.Machine()
        for task, pids in (tasks or {}).items():
            self.add(task, pids)

    def add(
        self,
        task: Hashable,
        pids: int | Iterable[int],
        *,
        group: str | os.PathLike[str] | None = None,
        below: processes.Below | None = None,
    ) -> None:
        """Sample a task from now on.

        Parameters
        ----------
        task : hashable
        pids : int or iterable of int
        group : path, optional
            Its control group of version 2.  What this counts goes before what the processes count: also processes that
            ended unseen, or left their parents.
        below : mapping, optional
            The children of every process; empty for processes that have none yet, which saves a walk over all.

        Raises
        ------
        InputError
            The task is sampled already, or there is no such process.
        """
        if task in self._tasks:
            raise InputError(f"Sampler: task {task!r} is sampled already")
        tree = processes.Tree(_roots(task, pids), processes.children() if below is None else below)
        counted = None if group is None else processes.Group(Path(group))
        self._tasks[task] = _Task(tree, counted, self._clock(), deque(maxlen=self._window))

    def remove(self, task: Hashable) -> None:
        """Stop the sampling of a task."""
        self._tasks.pop(task, None)

    def sample(self) -> list[UsageSampled | MachineSampled]:
        """Return samples of the use since the last call; a task whose processes are gone is forgotten."""
        now = self._clock()
        if now <= self._last:
            return []
        self._last = now
        samples: list[UsageSampled | MachineSampled] = []
        below = processes.children() if self._tasks else {}
        for task, entry in list(self._tasks.items()):
            # On a busy machine looks take long, so each one has its own time.
            looked = self._clock()
            if looked <= entry.last or looked - entry.last < self._least:
                continue
            used = entry.tree.look(below)
            if used is None:
                self._tasks.pop(task, None)
                continue
            if entry.group is not None:
                counted = entry.group.look()
                used = np.where(np.isnan(counted), used, counted)
            entry.window.append((used, looked - entry.last))
            entry.last = looked
            samples.append(UsageSampled(task, self._mean(entry.window), time=now))
        if self._machine is not None:
            looked = self._clock()
            if looked > self._looked:
                self._whole.append((self._all.look(), looked - self._looked))
                self._looked = looked
                samples.append(MachineSampled(self._machine, self._mean(self._whole), time=now))
        return samples

    def _mean(self, window: Iterable[tuple[Floats, float]]) -> dict[str, float]:
        """Return the rates of a window, as far as they could be read: amounts spent a second, or the mean amount held."""
        amounts, seconds = (np.array(column) for column in zip(*window, strict=True))
        rates = amounts / seconds[:, None]
        rates[:, _HELD] = amounts[:, _HELD]
        mean = dict(zip(processes.NAMES, time_weighted_mean(rates, seconds).tolist(), strict=True))
        return {name: mean[name] / unit for name, unit in self._units.items() if not math.isnan(mean[name])}


_HELD = processes.NAMES.index("mem")
"""Index of the amount that is held, not spent."""


def _roots(task: Hashable, pids: int | Iterable[int]) -> list[psutil.Process]:
    """Return the processes that have these pids now; once a process ends, its pid may be another's."""
    if isinstance(pids, str | bytes):
        raise InputError(f"Sampler: task {task!r}: a pid or several expected, got {quoted(pids)}")
    roots = []
    for pid in pids if isinstance(pids, Iterable) else (pids,):
        try:
            if isinstance(pid, bool):
                raise TypeError
            roots.append(psutil.Process(index(pid)))
        except (TypeError, ValueError, OverflowError, psutil.Error) as error:
            raise InputError(f"Sampler: task {task!r}: no process {quoted(pid)}") from error
    if not roots:
        raise InputError(f"Sampler: task {task!r}: a pid or several expected, got none")
    return roots
