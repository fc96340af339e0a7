"""Use of CPU and memory by the runs of this machine: samples for a scheduler that learns, and limits while CPUs are scarce.

A *sample* of a run has the use of its processes since the last look.  One of the machine has the use of all runs together.
Other load on the machine does not count, except memory that is no longer there for the runs: the kernel shares CPUs.

A run may use more CPU than it asked for while some is idle.  While the runs together use nearly all, those that use more
are *limited*: by ``cpu.max`` of their control group, else by a lower priority (nice).  So tasks that were matched closely
get what they were matched for.  Limits are lifted once CPUs are idle.

A look takes place in a thread.  A run is reported when its age has grown by a hundredth: a journal keeps each sample, and
estimates have no more points.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path

import psutil

from flowsched.boundary import control_groups
from flowsched.cluster.events import MachineSampled, UsageSampled
from flowsched.exceptions import InputError
from flowsched.fgm.sampler import Sampler

_SCARCE, _IDLE = 0.95, 0.9
"""Runs are limited from this part of the CPUs in use on, of theirs or of the machine's, and no longer below the other one."""

_OVER = 1.05
"""Multiple of its request from which a run is limited."""

_NOTHING = 0.05
"""CPU below this part of the request is none for the task, as for one that waits for data, and a load of others."""

_NICE = 10

_MIB = 2.0**20


_POINTS = 100
"""A run is reported when its age has grown by one part of these."""

_QUIET = 5.0
"""Seconds after which the machine is reported although no run is."""


@dataclass(eq=False, slots=True)
class _Run:
    """A run that is sampled; `seen` once it was reported, `limited` while it is.

    Since its last report, `cpu` is the sum of the CPU seconds, `mem` the most memory, and `looked` the time of the last look.
    """

    task: Hashable
    pid: int
    demand: Mapping[str, float]
    group: Path | None
    began: float = 0.0
    reported: float = 0.0
    looked: float = 0.0
    seen: bool = False
    limited: bool = False
    cpu: float = 0.0
    mem: float = 0.0

    def take(self, usage: Mapping[str, float], now: float, least: float) -> dict[str, float] | None:
        """Take in a use since the last look; return that since the last report when one is due."""
        self.cpu += usage.get("cpu", 0.0) * (now - self.looked)
        self.mem, self.looked = max(self.mem, usage.get("mem", 0.0)), now
        seconds = now - self.reported
        if seconds < max(least, (now - self.began) / _POINTS):
            return None
        sums = {"cpu": self.cpu / seconds, "mem": self.mem}
        self.seen, self.reported, self.cpu, self.mem = True, now, 0.0, 0.0
        return {name: sums[name] for name in usage}


class Usage:
    """The runs of one machine.

    Parameters
    ----------
    machine : hashable
    capacity : mapping of str to float
        The part of the machine that runs may use.
    seconds : float
        Between two looks.
    clock : callable
    """

    def __init__(
        self,
        machine: Hashable,
        capacity: Mapping[str, float],
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._machine, self._capacity = machine, capacity
        units = {name: 1.0 for name in ("cpu", "mem") if name in capacity}
        self._clock, self._least = clock, seconds / 2
        self._sampler = Sampler(units=units, least=seconds / 2)
        self._runs: dict[int, _Run] = {}
        self._scarce, self._spent = False, _spent()
        self._reported = -inf

    def add(
        self, number: int, task: Hashable, pid: int, demand: Mapping[str, float], group: Path | None, new: bool
    ) -> None:
        """Sample a run from now on; a `new` one has no processes but its first."""
        with suppress(InputError):  # it has ended already
            self._sampler.add(number, pid, group=group, below={} if new else None)
            now = self._clock()
            self._runs[number] = _Run(task, pid, demand, group, now, now, now, seen=not new)

    def remove(self, number: int, seconds: float, used: Mapping[str, float]) -> UsageSampled | None:
        """Forget a run; return a sample of all of it, by its sums, if it was too short for a look."""
        self._sampler.remove(number)
        run = self._runs.pop(number, None)
        if run is None or run.seen or seconds <= 0:
            return None
        sums = {"mem": used.get("memory"), "cpu": None if "cpu" not in used else used["cpu"] / seconds}
        usage = {name: amount for name, amount in sums.items() if amount is not None and name in self._capacity}
        return UsageSampled(run.task, _needed(usage, run.demand.get("cpu") or inf), run=number) if usage else None

    def look(self) -> list[UsageSampled | MachineSampled]:
        """Return samples of runs and of the machine, as far as they are due, and set or lift limits."""
        runs, samples, now = dict(self._runs), list[UsageSampled | MachineSampled](), self._clock()
        whole = dict.fromkeys((name for name in ("cpu", "mem") if name in self._capacity), 0.0)
        spent: dict[int, float] = {}
        for sample in self._sampler.sample():
            number = sample.task if isinstance(sample, UsageSampled) else None
            if not isinstance(number, int) or number not in runs:
                continue
            run = runs[number]
            spent[number] = sample.usage.get("cpu", 0.0)
            asked = run.demand.get("cpu") or inf
            for name, amount in sample.usage.items():
                whole[name] += min(amount, asked) if name == "cpu" else amount
            usage = run.take(sample.usage, now, self._least)
            if usage is not None:
                samples.append(UsageSampled(run.task, _needed(usage, asked), run=number))
        if spent:  # a machine without runs is free: at least one task may always start
            self._limit(runs, spent)
            if samples or now - self._reported >= _QUIET:
                self._reported = now
                if "mem" in whole:
                    left = psutil.virtual_memory().available / _MIB
                    whole["mem"] += max(self._capacity["mem"] - whole["mem"] - left, 0.0)
                samples.append(MachineSampled(self._machine, whole))
        return samples

    def _limit(self, runs: Mapping[int, _Run], spent: Mapping[int, float]) -> None:
        cpus, part = self._capacity.get("cpu", 0.0), _IDLE if self._scarce else _SCARCE
        before, self._spent = self._spent, _spent()
        total = self._spent[1] - before[1]
        busy = (self._spent[0] - before[0]) / total if total > 0 else 0.0
        self._scarce = bool(cpus) and (sum(spent.values()) >= part * cpus or busy >= part)
        for number, cpu in spent.items():
            run = runs[number]
            asked = run.demand.get("cpu", 0.0)
            limited = self._scarce and (run.limited or (asked > 0 and cpu > _OVER * asked))
            if limited != run.limited:
                run.limited = limited
                _limit(run, asked if limited else 0.0)


def _spent() -> tuple[float, float]:
    """Return the CPU seconds of the machine that were in use, and all."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)  # which are in the others
    return total - idle, total


def _needed(usage: Mapping[str, float], asked: float) -> dict[str, float]:
    """Return a use as a need: CPU beyond the request is there for others when they need it, and a trifle is none."""
    cpu = min(usage.get("cpu", 0.0), asked)
    return {**usage, "cpu": 0.0 if asked < inf and cpu < _NOTHING * asked else cpu} if "cpu" in usage else {**usage}


def _limit(run: _Run, cpu: float) -> None:
    """Limit a run to a number of cores, 0 for no limit.  It may have ended, and a system may refuse."""
    with suppress(OSError):
        if run.group is not None and "cpu" in control_groups.controllers(run.group.parent):
            control_groups.limit(run.group, {"cpu.max": control_groups.cpu_max(cpu)})
            return
    nice = _NICE if cpu else 0
    # A run is a session, which has a niceness of its own where the kernel groups by session; anybody may set that to 0 again.
    with suppress(OSError):
        Path(f"/proc/{run.pid}/autogroup").write_text(str(nice))
    if not _MAY_LIFT:
        return
    with suppress(OSError):
        for child in Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split():
            os.setpriority(os.PRIO_PGRP, int(child), nice)  # the command leads a process group


_MAY_LIFT = os.geteuid() == 0 or resource.getrlimit(resource.RLIMIT_NICE)[0] >= 20
"""This process may take a niceness back."""
