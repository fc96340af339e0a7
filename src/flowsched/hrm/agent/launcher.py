"""The processes of an agent's containers: started on record, paused, and ended with all that they have started.

A container has ended when its first process has; the processes that it left behind are ended then.
"""

from __future__ import annotations

import errno
import os
import selectors
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from flowsched._guard import interruptible
from flowsched.exceptions import FlowschedError
from flowsched.hrm.agent.cgroups import Cgroups
from flowsched.hrm.agent.commands import NOT_STARTED, Ended, Prepared
from flowsched.hrm.agent.custody import Custody
from flowsched.hrm.agent.processes import Family, Held, end, hold, signal_group
from flowsched.hrm.units import ResourceUnit


@dataclass(slots=True)
class _Started:
    """A container's first process, its unit, and the descriptor that becomes readable when the process ends."""

    process: subprocess.Popen[bytes]
    family: Family
    unit: ResourceUnit
    fd: int


class Launcher:
    """Starts, pauses and ends the processes of containers.

    The control groups of the units are made, if there are any.  `base` and `key` are those of `Custody`.
    """

    def __init__(self, units: Sequence[ResourceUnit], cgroups: Cgroups | None, base: Path, key: str | None) -> None:
        self._cgroups = cgroups
        self._started: dict[str, _Started] = {}  # by container with a process: on record, and its fd in the selector
        self._custody = Custody(base, key)
        try:
            for unit in units:
                self.add(unit)
            self._selector = selectors.DefaultSelector()
            # Descriptors that give way, so that containers can be ended when there are none left.
            self._spares = _spares()
        except BaseException:
            self._custody.close()
            raise

    def add(self, unit: ResourceUnit) -> None:
        """Make the control group of one more unit."""
        if self._cgroups is not None:
            self._cgroups.prepare(unit)

    def discard(self, unit: ResourceUnit) -> None:
        """Remove the control group of a unit without containers."""
        if self._cgroups is not None:
            with suppress(OSError):
                self._cgroups.remove(unit)

    def __contains__(self, id: object) -> bool:
        return id in self._started

    def __len__(self) -> int:
        return len(self._started)

    def pid(self, id: str) -> int | None:
        """First process of a container, None if it has none."""
        started = self._started.get(id)
        return None if started is None else started.process.pid

    def wait(self, timeout: float | None) -> list[str]:
        """Wait at most `timeout` seconds (None: for ever) for a first process to end; return its container, and any other like it."""
        return [key.data for key, _ in self._selector.select(timeout)]

    def start(self, unit: ResourceUnit, id: str, command: Prepared) -> Ended | None:
        """Start a container; return its end if that failed."""
        environment = {**os.environ}
        if unit.gpu is not None:
            environment["CUDA_VISIBLE_DEVICES"] = str(unit.gpu)
        held: Held | None = None
        fd = -1
        try:
            held = hold(command.line, unit.cpus, environment, command.entry)
            group = None if self._cgroups is None else self._cgroups.group(unit, id)
            if self._cgroups is not None:
                self._cgroups.enter(unit, id, held.process.pid)
            fd = os.pidfd_open(held.process.pid)
            self._selector.register(fd, selectors.EVENT_READ, id)
            self._custody.add(id, held.family, group)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            if held is not None:
                held.abandon()
                self._drop(unit, id, held.family, fd)
            return Ended(id, NOT_STARTED, f"cannot be started: {error}")
        self._started[id] = _Started(held.process, held.family, unit, fd)
        # A process that has died at its gate ends like any other.
        with suppress(BrokenPipeError):
            held.release()
        return None

    def pause(self, id: str) -> None:
        """Stop the processes of a container, if it has any."""
        self._freeze(id, True)

    def resume(self, id: str) -> None:
        """Resume the processes of a container."""
        self._freeze(id, False)

    def _freeze(self, id: str, pause: bool) -> None:
        started = self._started.get(id)
        if started is not None:
            signal_group(started.process.pid, signal.SIGSTOP if pause else signal.SIGCONT)
            if self._cgroups is not None:
                with suppress(OSError):
                    self._cgroups.freeze(started.unit, id, pause)

    def kill(self, ids: Sequence[str]) -> dict[str, int]:
        """End containers with all that they have started; return the exit statuses of those that had a process."""
        those = [id for id in ids if id in self._started]
        for id in those:
            signal_group(self._started[id].process.pid, signal.SIGKILL)
        self._end([self._started[id].family for id in those])
        return {id: self._reap(id) for id in those}

    def collect(self) -> dict[str, int]:
        """End the remains of the containers whose first process has ended; return their exit statuses."""
        over = self.wait(0)
        for id in over:
            signal_group(self._started[id].process.pid, signal.SIGKILL)
        try:
            self._end([self._started[id].family for id in over], patience=1.0)
        except (FlowschedError, OSError):
            # The remains of one of them cannot be ended yet.  The others are over, and that one is looked at again.
            over = [id for id in over if self._has_ended(id)]
        return {id: self._reap(id) for id in over}

    def kill_all(self) -> None:
        """Kill every container, and wait until all recorded processes have ended."""
        for started in self._started.values():
            signal_group(started.process.pid, signal.SIGKILL)
        left = {*self._custody.families(), *(started.family for started in self._started.values())}
        with interruptible():
            self._end(list(left))

    def close(self, units: Sequence[ResourceUnit]) -> None:
        """Release everything, after `kill_all`."""
        for id in list(self._started):
            self._reap(id)
        for unit in units:
            self.discard(unit)
        self._selector.close()
        self._close_spares()
        self._custody.close()

    def _close_spares(self) -> None:
        spares, self._spares = self._spares, []
        for descriptor in spares:
            os.close(descriptor)

    def _end(self, families: Sequence[Family], patience: float = 30.0) -> None:
        try:
            end(families, patience)
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise
            self._close_spares()
            try:
                end(families, patience)
            finally:
                self._spares = _spares()

    def _has_ended(self, id: str) -> bool:
        try:
            self._end([self._started[id].family], patience=0.0)
        except (FlowschedError, OSError):
            return False
        return True

    def _reap(self, id: str) -> int:
        """Forget a container whose processes have ended; return its exit status."""
        started = self._started.pop(id)
        self._drop(started.unit, id, started.family, started.fd)
        return started.process.wait()

    def _drop(self, unit: ResourceUnit, id: str, family: Family, fd: int) -> None:
        if self._cgroups is not None:
            with suppress(OSError):
                self._cgroups.leave(unit, id)
        if fd >= 0:
            with suppress(KeyError):
                self._selector.unregister(fd)
            os.close(fd)
        with suppress(OSError):
            self._custody.remove(family)


def _spares() -> list[int]:
    """Return two descriptors, the number that is needed at once to inspect and to signal a process."""
    return [os.open(os.devnull, os.O_RDONLY) for _ in range(2)]
