"""A node agent: the stacked queues of one machine with real processes.

A container is a session of processes bound to its unit's CPUs.  When one ends, the next in its unit's queue starts at once,
whatever the heartbeat; a stream container stops batch processes (SIGSTOP) or, for their memory, kills them, as
`StackedQueue` says.  Linux only: it waits on process descriptors, so it sleeps until something ends.

Containers belong to somebody:

* A container has ended when its first process has, and what that left behind is ended then: the unit is free afterwards only.
* A process is released when it is recorded (`custody`), and its record goes when it is gone.  An agent that begins ends what
  an earlier one has left before it starts anything, so no container runs twice at the same time.
* What cannot be started has ended, with an error; what ends is told by `step`, whatever else goes wrong.  So unit and
  process are released on every path.
* Containers that have ended by themselves are taken out before anything else is done with the queues; one that ends in
  between is told as ended, and is neither paused for ever nor run again.
* An agent serves one call at a time, in the process that made it; a second call is refused.  Signal handlers run while it
  waits, never while it starts or ends something.
"""

from __future__ import annotations

import errno
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowsched._guard import Exclusive, interruptible
from flowsched.exceptions import ConcurrentUseError, DuplicateIdError, FlowschedError, InputError, UnknownIdError
from flowsched.hrm.cgroups import Cgroups
from flowsched.hrm.containers import Admission, Container, Outcome
from flowsched.hrm.custody import Custody, default_folder
from flowsched.hrm.ids import name as name_of
from flowsched.hrm.processes import Family, Held, end, hold, signal_group
from flowsched.hrm.queues import StackedQueue
from flowsched.hrm.units import ResourceUnit
from flowsched.validate import ordered

if TYPE_CHECKING:
    from flowsched.hrm.state.negotiator import Negotiator

__all__ = ["Agent", "Ended"]

_NOT_STARTED = 127
"""The status of what could not be started, as a shell has it."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A container ended, with its process's exit status (negative: the signal that killed it).

    Parameters
    ----------
    id : str
    status : int
        127 if there is no such program, 126 if it cannot be run or bound to the unit's CPUs, as a shell has it.
    error : str
        Why it could not be started, where this process could not.
    """

    id: str
    status: int
    error: str = ""


@dataclass(slots=True)
class _Started:
    """A container's first process, and the descriptor that tells its end."""

    process: subprocess.Popen[bytes]
    family: Family
    fd: int


class Agent:
    """Runs containers on the units of one machine.

    Parameters
    ----------
    units : sequence of ResourceUnit
    length, most : int, optional
        Of every queue, see `StackedQueue`.
    negotiator : Negotiator, optional
        The shared state, for `heartbeat`.
    command : callable, optional
        The command line of a task that the shared state launches here.
    cgroups : Cgroups, optional
        Beside binding to CPUs and signals to process groups; see `Cgroups.find`.
    state : path, optional
        The folder where agents record what they have started, for those that come after them.  All agents of a machine that
        work on one shared state should be given the same one, or none: the default is the user's, in the folder of
        temporary files.

    Raises
    ------
    InputError
        The units are of several machines, another agent of this machine works on this shared state, or others may write
        into `state`.
    TimeLimitError
        What an earlier agent has left does not end.

    Notes
    -----
    Used in a ``with`` statement of the main thread, an agent also ends its containers on SIGTERM, if the program has no
    handler of its own: SystemExit is raised.  Where an agent is killed, its containers run until the next one begins.

    Examples
    --------
    >>> import sys
    >>> with Agent([ResourceUnit("u", vcore=1)]) as agent:
    ...     print(agent.submit("u", Container("hello", vcore=1), [sys.executable, "-c", "pass"]).outcome.value)
    ...     print(agent.wait(timeout=30.0))
    STARTED
    [Ended(id='hello', status=0, error='')]
    """

    def __init__(
        self,
        units: Sequence[ResourceUnit],
        *,
        length: int | None = None,
        most: int | None = None,
        negotiator: Negotiator | None = None,
        command: Callable[[str], Sequence[str]] | None = None,
        cgroups: Cgroups | None = None,
        state: str | os.PathLike[str] | None = None,
    ) -> None:
        for unit in ordered("units", units):
            if not isinstance(unit, ResourceUnit):
                raise InputError(f"units: a ResourceUnit expected, got {unit!r}")
        if len({unit.machine for unit in units}) != 1:
            raise InputError("units: all of one machine expected")
        self.machine = name_of("machine", str(units[0].machine))
        self.queues = {
            name_of("units: id", str(unit.id)): StackedQueue(unit, length=length, most=most) for unit in units
        }
        self._negotiator, self._command, self._cgroups = negotiator, command, cgroups
        self._calls = Exclusive("Agent")
        self._pid = os.getpid()
        self._commands: dict[str, Sequence[str] | Ended] = {}
        self._unit_of: dict[str, str] = {}
        self._processes: dict[str, _Started] = {}
        self._over: list[Ended] = []
        """Ended, but still in their queues: what could not be started, or had ended when it was evicted."""
        self._ended: list[Ended] = []
        """Out of their queues, not told by `step` yet."""
        self._unreported: list[str] = []
        self._before: Any = None
        self._closed = False
        shared = None if negotiator is None else negotiator.store.address
        key = None if shared is None else f"{shared}\0{self.machine}"
        with self._calls, interruptible():
            self._custody = Custody(default_folder() if state is None else Path(state), key)
            try:
                for unit in units:
                    if cgroups is not None:
                        cgroups.prepare(unit)
                self._selector = selectors.DefaultSelector()
                # A descriptor to give way, so that containers can be ended when there are none left.
                self._spare = os.open(os.devnull, os.O_RDONLY)
            except BaseException:
                self._custody.close()
                raise

    def __enter__(self) -> Agent:
        own = threading.current_thread() is threading.main_thread()
        if own and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            self._before = signal.signal(signal.SIGTERM, _leave)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.close()
        finally:
            if self._before is not None and signal.getsignal(signal.SIGTERM) is _leave:
                signal.signal(signal.SIGTERM, self._before)
            self._before = None

    def pid(self, id: str) -> int | None:
        """The process of a container that runs or is paused."""
        started = self._processes.get(id)
        return None if started is None else started.process.pid

    # -- what comes ---------------------------------------------------------------------------------------------

    def submit(self, unit: str, container: Container, command: Sequence[str]) -> Admission:
        """A container for a unit: its process starts, or waits its turn, or the queue refuses it.

        One that cannot be started is told by the next `step`.
        """
        with self._call():
            return self._submit(unit, container, command)

    def _submit(self, unit: str, container: Container, command: Sequence[str] | Ended) -> Admission:
        if unit not in self.queues:
            raise UnknownIdError(f"unknown unit {unit!r}")
        if not isinstance(container, Container):
            raise InputError(f"container: a Container expected, got {container!r}")
        id = name_of("container: id", str(container.id))
        if not isinstance(command, Ended):
            command = _checked(id, command)
        if id in self._commands:
            raise DuplicateIdError(f"container {id!r} is already there")
        self._settle()
        admission = self.queues[unit].submit(container, time.monotonic())
        if admission.outcome in (Outcome.STARTED, Outcome.QUEUED):
            self._commands[id], self._unit_of[id] = command, unit
            self._carry_out(unit, admission)
        return admission

    def remove(self, id: str) -> None:
        """A container leaves at once, whatever it does."""
        with self._call():
            self._remove(id)

    def _remove(self, id: str) -> None:
        if id not in self._unit_of:
            raise UnknownIdError(f"unknown container {id!r}")
        unit = self._unit_of[id]
        self._kill([id])
        self._over = [one for one in self._over if one.id != id]
        self._take_out(unit, [id])

    # -- what happens -------------------------------------------------------------------------------------------

    def step(self, timeout: float | None = 0.0) -> list[Ended]:
        """Wait for containers to end, at most so long (None: until one does), and start those that follow.

        Returns
        -------
        list of Ended
        """
        with self._call():
            return self._step(timeout)

    def _step(self, timeout: float | None) -> list[Ended]:
        if not (self._over or self._ended):
            with interruptible():
                self._selector.select(timeout)
        self._settle()
        done, self._ended = self._ended, []
        return done

    def wait(self, timeout: float) -> list[Ended]:
        """Step until nothing runs any more, or for so many seconds; who ended."""
        deadline, done = time.monotonic() + timeout, []
        while (self._processes or self._over or self._ended) and time.monotonic() < deadline:
            done += self.step(max(deadline - time.monotonic(), 0.0))
        return done

    def heartbeat(self) -> None:
        """Tell the shared state who ended and who is here; do what it has launched here, and stop what it gave up.

        Raises
        ------
        StoreError
            The shared state is not to be had; what was to be told is told by the next heartbeat.
        """
        if self._negotiator is None or self._command is None:
            raise InputError("heartbeat: the agent has no negotiator or no command")
        with self._call():
            self._heartbeat(self._negotiator, self._command)

    def _heartbeat(self, negotiator: Negotiator, command: Callable[[str], Sequence[str]]) -> None:
        waiting = [
            str(c.id) for queue in self.queues.values() for c in queue.waiting if str(c.id) not in self._processes
        ]
        told = list(self._unreported)
        with interruptible():
            report = negotiator.heartbeat(self.machine, finished=told, present=self._commands, waiting=waiting)
        self._unreported = [id for id in self._unreported if id not in told]
        for id in report.stale:
            if id in self._commands:
                self._remove(id)
        if report.missing:
            with interruptible():
                launched = negotiator.on_machine(self.machine)
                lines = {str(c.id): _ask(command, str(c.id)) for _, c in launched if str(c.id) not in self._commands}
            for unit, container in launched:
                id = str(container.id)
                # What has ended here, and was not told yet, is missing as well.
                if id in lines and id not in self._commands and id not in self._unreported and unit in self.queues:
                    self._submit(unit, container, lines[id])

    def close(self) -> None:
        """Kill everything and forget it.

        Raises
        ------
        TimeLimitError
            A container does not end; the agent is still there, and can be closed again.
        """
        if self._closed or os.getpid() != self._pid:
            return
        with self._call():
            for started in self._processes.values():
                signal_group(started.process.pid, signal.SIGKILL)
            left = {*self._custody.families(), *(started.family for started in self._processes.values())}
            with interruptible():
                self._end(list(left))
            self._closed = True
            for id in list(self._processes):
                self._reap(id)
            for queue in self.queues.values():
                if self._cgroups is not None:
                    with suppress(OSError):
                        self._cgroups.remove(queue.unit)
            self._commands.clear()
            self._unit_of.clear()
            self._over.clear()
            self._ended.clear()
            self._selector.close()
            os.close(self._spare)
            self._custody.close()

    # -- processes ----------------------------------------------------------------------------------------------

    @contextmanager
    def _call(self) -> Iterator[None]:
        if os.getpid() != self._pid:
            raise ConcurrentUseError("Agent: used in another process than the one that made it")
        with self._calls:
            if self._closed:
                raise InputError("Agent: it is closed")
            yield

    def _settle(self) -> None:
        """Take out of the queues what has ended by itself, or could not be started, and start those that follow."""
        over = [key.data for key, _ in self._selector.select(0)]
        for id in over:
            signal_group(self._processes[id].process.pid, signal.SIGKILL)
        try:
            self._end([self._processes[id].family for id in over], patience=1.0)
        except (FlowschedError, OSError):
            # What one of them left behind cannot be ended yet.  The others are over, and that one is looked at again.
            over = [id for id in over if self._has_ended(id)]
        self._over += [Ended(id, self._reap(id)) for id in over]
        while self._over:
            those, self._over = self._over, []
            self._ended += those
            if self._negotiator is not None:
                self._unreported += [one.id for one in those]
            by_unit: dict[str, list[str]] = {}
            for one in those:
                by_unit.setdefault(self._unit_of[one.id], []).append(one.id)
            for unit, ids in by_unit.items():
                self._take_out(unit, ids)

    def _take_out(self, unit: str, ids: Sequence[str]) -> None:
        """Containers without a process leave their queue, and others follow."""
        queue = self.queues[unit]
        keys = [self._container(unit, id).id for id in ids]
        for id in ids:
            del self._commands[id], self._unit_of[id]
        # One that was paused after it had ended gives its memory back, and the next may go on by that.
        for key in keys:
            if key not in queue.running:
                self._carry_out(unit, queue.remove(key, time.monotonic()))
        running = [key for key in keys if key in queue.running]
        if running:
            self._carry_out(unit, queue.finish(running, time.monotonic()))

    def _carry_out(self, unit: str, admission: Admission) -> None:
        for id, status in self._kill([str(container.id) for container in admission.evicted]).items():
            # It had ended when it was evicted, so it must not run again.
            if status != -signal.SIGKILL:
                self._over.append(Ended(id, status))
        for containers, pause in ((admission.paused, True), (admission.resumed, False)):
            for container in containers:
                self._pause(self.queues[unit].unit, str(container.id), pause)
        over = {one.id for one in self._over}
        for container in admission.started:
            if str(container.id) in self._commands and str(container.id) not in over:
                self._start(self.queues[unit].unit, str(container.id))

    def _pause(self, unit: ResourceUnit, id: str, pause: bool) -> None:
        started = self._processes.get(id)
        if started is not None:
            signal_group(started.process.pid, signal.SIGSTOP if pause else signal.SIGCONT)
            if self._cgroups is not None:
                with suppress(OSError):
                    self._cgroups.freeze(unit, id, pause)

    def _start(self, unit: ResourceUnit, id: str) -> None:
        command = self._commands[id]
        if isinstance(command, Ended):
            self._over.append(command)
            return
        environment = {**os.environ}
        if unit.gpu is not None:
            environment["CUDA_VISIBLE_DEVICES"] = str(unit.gpu)
        held: Held | None = None
        fd = -1
        try:
            held = hold(command, unit.cpus, environment)
            group = None if self._cgroups is None else self._cgroups.group(unit, id)
            if self._cgroups is not None:
                self._cgroups.enter(unit, id, held.process.pid)
            fd = os.pidfd_open(held.process.pid)
            self._selector.register(fd, selectors.EVENT_READ, id)
            self._custody.add(id, held.family, group)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self._over.append(Ended(id, _NOT_STARTED, f"cannot be started: {error}"))
            if held is not None:
                held.abandon()
                self._drop(unit, id, held.family, fd)
            return
        self._processes[id] = _Started(held.process, held.family, fd)
        # It has died at its gate: its end is told like any other.
        with suppress(BrokenPipeError):
            held.release()

    def _kill(self, ids: Sequence[str]) -> dict[str, int]:
        """End containers with all that they have started; the exit statuses of those that had a process."""
        those = [id for id in ids if id in self._processes]
        for id in those:
            signal_group(self._processes[id].process.pid, signal.SIGKILL)
        self._end([self._processes[id].family for id in those])
        return {id: self._reap(id) for id in those}

    def _end(self, families: Sequence[Family], patience: float = 30.0) -> None:
        try:
            end(families, patience)
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise
            os.close(self._spare)
            try:
                end(families, patience)
            finally:
                self._spare = os.open(os.devnull, os.O_RDONLY)

    def _has_ended(self, id: str) -> bool:
        try:
            self._end([self._processes[id].family], patience=0.0)
        except (FlowschedError, OSError):
            return False
        return True

    def _reap(self, id: str) -> int:
        """The exit status of a container whose processes have ended; it is known no more."""
        started = self._processes.pop(id)
        self._drop(self.queues[self._unit_of[id]].unit, id, started.family, started.fd)
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

    def _container(self, unit: str, id: str) -> Container:
        queue = self.queues[unit]
        everybody: Iterable[Container] = (
            *(run.container for run in queue.running.values()),
            *(pause.container for pause in queue.paused.values()),
            *queue.waiting,
        )
        return next(container for container in everybody if str(container.id) == id)


def _leave(number: int, _: object) -> None:
    """The handler of SIGTERM: the end of the program, by way of all that has to be closed."""
    raise SystemExit(128 + number)


def _ask(command: Callable[[str], Sequence[str]], id: str) -> Sequence[str] | Ended:
    """The command of a container, or its end where there is none: one bad task must not keep all others from starting."""
    try:
        return _checked(id, command(id))
    except Exception as error:
        return Ended(id, _NOT_STARTED, f"has no command: {error!r}")


def _checked(id: str, command: Any) -> tuple[str, ...]:
    line = ordered("command", command)
    if not line or not line[0]:
        raise InputError(f"container {id!r}: command: a program expected, got {command!r}")
    for i, part in enumerate(line):
        try:
            good = b"\0" not in os.fsencode(part)
        except (TypeError, UnicodeError):
            good = False
        if not good:
            raise InputError(f"container {id!r}: command[{i}]: text without a NUL expected, got {part!r}")
    return tuple(os.fsdecode(part) for part in line)
