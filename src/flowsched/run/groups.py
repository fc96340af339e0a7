"""Control groups of runs, in a group that the driver is given, such as one that systemd delegates.

A driver has a group there, by the name of its folder, and in it each run has one by its number.  A run's group is made
before its record, and removed after its end.  So a successor finds those of the records, and ends the others.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection
from contextlib import suppress
from math import ceil
from pathlib import Path

from flowsched.boundary import control_groups
from flowsched.exceptions import InputError
from flowsched.run.executor import Run
from flowsched.run.runs import LOGGER

__all__ = ["Groups"]

_CONTROLLERS = {"memory": "mem", "cpu": "cpu"}

_PERIOD = 100_000
"""Microseconds in which a run has its share of the CPUs; the kernel's default."""

_LEAST = 1_000
"""The smallest share that the kernel takes, in microseconds."""


class Groups:
    """Makes groups of runs.

    Parameters
    ----------
    root : path
        An existing group in which this process may make subgroups.
    folder : path
        Of the driver's records.
    known : collection of Path
        The groups of the runs that are on record.

    Raises
    ------
    InputError
        No groups can be made there.
    """

    def __init__(self, root: str | os.PathLike[str], folder: Path, known: Collection[Path]) -> None:
        mine = Path(root).absolute() / f"flowsched-run-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]}"
        try:
            if not (mine.parent / "cgroup.controllers").exists():
                raise InputError(f"cgroup: a control group of version 2 expected, got {mine.parent}")
            control_groups.make(mine)
            if not (mine / "cgroup.kill").exists():
                raise InputError(f"cgroup: {mine.parent} has no cgroup.kill: Linux 5.14 or later is needed")
            for left in mine.iterdir():
                if left.is_dir() and left not in known:
                    control_groups.end(left)
            control_groups.provide(mine.parent, _CONTROLLERS)
            there = control_groups.provide(mine, _CONTROLLERS)
        except OSError as error:
            raise InputError(f"cgroup: no groups can be made in {mine.parent}: {error}") from None
        for controller in _CONTROLLERS.keys() - there:
            LOGGER.warning("%s has no controller %s: runs are not limited in it", mine, controller)
        self._mine = mine

    def of(self, run: Run) -> Path:
        """Return the group of a run."""
        return self._mine / str(run.number)

    def enter(self, run: Run, pid: int) -> None:
        """Put the first process of a run into a group of its own, with what the scheduler has reserved as limits."""
        group, cpu = self.of(run), run.demand.get("cpu", 0)
        control_groups.make(group)
        limits = {
            "memory.max": str(ceil(run.demand.get("mem", 0) * 2**20) or ""),
            "cpu.max": f"{max(ceil(cpu * _PERIOD), _LEAST)} {_PERIOD}" if cpu else "",
        }
        control_groups.limit(group, limits)
        control_groups.enter(group, pid)

    def close(self) -> None:
        """Remove the driver's group, unless runs are left in it."""
        with suppress(OSError):
            self._mine.rmdir()
