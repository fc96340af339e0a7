"""A node agent: the stacked queues of one machine with real processes.

A container is a session of processes bound to its unit's CPUs.  When one ends, the next in its unit's queue starts at once,
whatever the heartbeat; a stream container stops batch processes (SIGSTOP) or, for their memory, kills them, as
`StackedQueue` says.  Linux only: it waits on process descriptors, so it sleeps until something ends.

Every container has one owner, and ends once:

* A container has ended when its first process has.  The processes that it left behind are ended then, and only afterwards is
  the unit free.
* A process is released after it is recorded (`custody`); the record is removed after the process has ended.  A new agent ends
  the remains of an earlier one before it starts anything, so no container runs twice at the same time.
* A container that cannot be started has ended, with an error.  `step` reports every end, whatever else goes wrong.  So unit
  and process are released on every path.
* Containers that have ended by themselves leave the queues before any other change.  One that ends in between is reported as
  ended; it is neither paused for ever nor run again.
* An agent serves one call at a time, in the process that made it; a second call is refused.  Signal handlers run while it
  waits, never while it starts or ends a container.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowsched._guard import Exclusive, interruptible
from flowsched.boundary.validate import instance, ordered
from flowsched.exceptions import ConcurrentUseError, DuplicateIdError, InputError, UnknownIdError
from flowsched.hrm.agent.cgroups import Cgroups
from flowsched.hrm.agent.commands import Ended, Prepared, command_of, prepared
from flowsched.hrm.agent.custody import default_folder
from flowsched.hrm.agent.launcher import Launcher
from flowsched.hrm.containers import Admission, Container, Outcome
from flowsched.hrm.ids import name as name_of
from flowsched.hrm.queues import StackedQueue, share_cores
from flowsched.hrm.rebalancing import TransferQueue
from flowsched.hrm.run_times import RunTimes
from flowsched.hrm.units import ResourceUnit

if TYPE_CHECKING:
    from flowsched.hrm.state.negotiator import Negotiator


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
        The command line of a task that the shared state launches here, or a `Prepared` one with an environment and files.
    cgroups : Cgroups, optional
        Control groups, in addition to CPU binding and signals to process groups; see `Cgroups.find`.
    run_times : RunTimes, optional
        Expected run times of containers that are submitted here without a duration, by their job; it learns from every
        container that ends well.
    state : path, optional
        The folder where agents record their processes, for later agents.  All agents of a machine that
        work on one shared state should be given the same one, or none: the default is the user's, in the folder of
        temporary files.

    Raises
    ------
    InputError
        The units are of several machines, another agent of this machine works on this shared state, or others may write
        into `state`.
    TimeLimitError
        The remains of an earlier agent do not end.

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
        command: Callable[[str], Sequence[str] | Prepared] | None = None,
        cgroups: Cgroups | None = None,
        run_times: RunTimes | None = None,
        state: str | os.PathLike[str] | None = None,
    ) -> None:
        for unit in ordered("units", units):
            instance("units", unit, ResourceUnit)
        if len({unit.machine for unit in units}) != 1:
            raise InputError("units: all of one machine expected")
        self.machine = name_of("machine", str(units[0].machine))
        self.queues = {
            name_of("units: id", str(unit.id)): StackedQueue(unit, length=length, most=most) for unit in units
        }
        self._transfer = TransferQueue(list(self.queues.values()))
        self._held: dict[str, Prepared | Ended] = {}  # by container in the transfer queue
        self._run_times = RunTimes() if run_times is None else run_times
        self._negotiator, self._command = negotiator, command
        self._calls = Exclusive("Agent")
        self._pid = os.getpid()
        self._commands: dict[str, Prepared | Ended] = {}  # by container in a queue
        self._unit_of: dict[str, str] = {}  # container in queues[_unit_of[id]]; the same keys as _commands
        self._over: list[Ended] = []
        """Ended, but still in their queues: containers that could not be started, or had ended when they were evicted."""
        self._ended: list[Ended] = []
        """Out of their queues, not reported by `step` yet."""
        # Ended, but not reported to the shared state yet: their run times, None for failures.
        self._unreported: dict[str, float | None] = {}
        self._before: Any = None
        self._closed = False
        shared = None if negotiator is None else negotiator.store.address
        key = None if shared is None else f"{shared}\0{self.machine}"
        with self._calls, interruptible():
            self._launcher = Launcher(units, cgroups, default_folder() if state is None else Path(state), key)

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
        """Return the process of a container that runs or is paused, else None."""
        return self._launcher.pid(id)

    # -- arrivals -----------------------------------------------------------------------------------------------

    def submit(self, unit: str | None, container: Container, command: Sequence[str] | Prepared) -> Admission:
        """Submit a container to a unit: its process starts, or it waits, or the queue refuses it.

        The next `step` reports one that cannot be started.  Without a unit the machine's transfer queue chooses the one
        where the container starts first, and holds it while all queues are full: see `TransferQueue`.
        """
        with self._call():
            return self._submit(unit, container, command) if unit is not None else self._pass_on(container, command)

    def _pass_on(self, container: Container, command: Sequence[str] | Prepared) -> Admission:
        id, container, line = self._checked(container, command)
        self._collect_ended()
        self._held[id] = line
        passed = self._transfer.submit(container, time.monotonic())
        self._take_in(passed)
        if id in self._held:
            if any(held is container for held in self._transfer.held):
                return Admission(Outcome.QUEUED)
            del self._held[id]
            return Admission(Outcome.NO_ROOM if container.kind == "stream" else Outcome.OVER_LIMIT)
        return next(admission for _, one, admission in passed if one is container)

    def _take_in(self, passed: Iterable[tuple[StackedQueue, Container, Admission]]) -> None:
        """Start the containers that the transfer queue has passed on."""
        for queue, container, admission in passed:
            id, unit = str(container.id), str(queue.unit.id)
            self._commands[id], self._unit_of[id] = self._held.pop(id), unit
            self._carry_out(unit, admission)

    def _checked(self, container: Container, command: Any) -> tuple[str, Container, Any]:
        """Return the id of a new container, the container with its expected run time, and its command line."""
        instance("container", container, Container)
        id = name_of("container: id", str(container.id))
        line = command if isinstance(command, Ended) else prepared(id, command)
        if id in self._commands or id in self._held:
            raise DuplicateIdError(f"container {id!r} is already there")
        if container.duration == math.inf:
            container = replace(container, duration=self._run_times.expect(container.job))
        return id, container, line

    def _submit(self, unit: str, container: Container, command: Sequence[str] | Prepared | Ended) -> Admission:
        queue = self._queue(unit)
        id, container, line = self._checked(container, command)
        self._collect_ended()
        admission = queue.submit(container, time.monotonic())
        if admission.outcome in (Outcome.STARTED, Outcome.QUEUED):
            self._commands[id], self._unit_of[id] = line, unit
            self._carry_out(unit, admission)
        return admission

    def remove(self, id: str) -> None:
        """Remove a container at once, whatever its state."""
        with self._call():
            self._remove(id)

    def _remove(self, id: str) -> None:
        if id in self._held:
            del self._held[id]
            self._transfer.held = [c for c in self._transfer.held if str(c.id) != id]
            return
        if id not in self._unit_of:
            raise UnknownIdError(f"unknown container {id!r}")
        unit = self._unit_of[id]
        self._launcher.kill([id])
        self._over = [one for one in self._over if one.id != id]
        self._take_out(unit, [id])

    # -- queues of users ---------------------------------------------------------------------------------------

    def add_queue(self, unit: ResourceUnit, *, length: int | None = None, most: int | None = None) -> None:
        """Create the queues of one more unit of the machine."""
        with self._call():
            if not isinstance(unit, ResourceUnit) or str(unit.machine) != self.machine:
                raise InputError(f"unit: a ResourceUnit of machine {self.machine!r} expected, got {unit!r}")
            id = name_of("unit: id", str(unit.id))
            if id in self.queues:
                raise DuplicateIdError(f"unit {id!r} is already there")
            queue = StackedQueue(unit, length=length, most=most)
            self._launcher.add(unit)
            self.queues[id] = queue
            self._transfer.queues.append(queue)
            share_cores(self._transfer.queues)
            self._take_in(self._transfer.forward(time.monotonic()))

    def set_queue(self, unit: str, *, length: int | None = None, most: int | None = None) -> None:
        """Set attributes of a unit's queues, None to leave one; containers that fit by now start."""
        with self._call():
            self._carry_out(unit, self._queue(unit).change(time.monotonic(), length=length, most=most))
            self._take_in(self._transfer.forward(time.monotonic()))

    def remove_queue(self, unit: str) -> list[str]:
        """Delete a unit's queues; return its containers, which are removed at once."""
        with self._call():
            queue = self._queue(unit)
            self._transfer.queues.remove(queue)
            gone = sorted(id for id, where in self._unit_of.items() if where == unit)
            for id in gone:
                self._remove(id)
            del self.queues[unit]
            share_cores(self._transfer.queues)
            self._launcher.discard(queue.unit)
            return gone

    def _queue(self, unit: str) -> StackedQueue:
        if unit not in self.queues:
            raise UnknownIdError(f"unknown unit {unit!r}")
        return self.queues[unit]

    # -- progress -----------------------------------------------------------------------------------------------

    def step(self, timeout: float | None = 0.0) -> list[Ended]:
        """Wait for containers to end, at most `timeout` seconds (None: no limit), and start those that follow."""
        with self._call():
            if not (self._over or self._ended):
                with interruptible():
                    self._launcher.wait(timeout)
            self._collect_ended()
            done, self._ended = self._ended, []
            return done

    def wait(self, timeout: float) -> list[Ended]:
        """Step until nothing runs any more, or `timeout` seconds are over; return the containers that ended."""
        deadline, done = time.monotonic() + timeout, []
        while (len(self._launcher) or self._over or self._ended) and time.monotonic() < deadline:
            done += self.step(max(deadline - time.monotonic(), 0.0))
        return done

    def heartbeat(self, *, start: bool = True) -> None:
        """Report ended and present containers to the shared state; start those launched here, remove those given up.

        Parameters
        ----------
        start : bool
            False: start none, because the agent is about to end.

        Raises
        ------
        StoreError
            The shared state cannot be reached; the next heartbeat makes up for this one.
        """
        if self._negotiator is None or self._command is None:
            raise InputError("heartbeat: the agent has no negotiator or no command")
        with self._call():
            self._heartbeat(self._negotiator, self._command, start)

    def _heartbeat(
        self, negotiator: Negotiator, command: Callable[[str], Sequence[str] | Prepared], start: bool
    ) -> None:
        waiting = [
            str(c.id) for queue in self.queues.values() for c in queue.waiting if str(c.id) not in self._launcher
        ]
        told = dict(self._unreported)
        with interruptible():
            report = negotiator.heartbeat(self.machine, finished=told, present=self._commands, waiting=waiting)
        self._unreported = {id: seconds for id, seconds in self._unreported.items() if id not in told}
        for id in report.stale:
            if id in self._commands:
                self._remove(id)
        if report.missing and start:
            with interruptible():
                launched = negotiator.on_machine(self.machine)
                lines = {
                    str(c.id): command_of(command, str(c.id)) for _, c in launched if str(c.id) not in self._commands
                }
            for unit, container in launched:
                id = str(container.id)
                # A container that has ended here, and was not reported yet, is missing as well.
                if id in lines and id not in self._commands and id not in self._unreported and unit in self.queues:
                    self._submit(unit, container, lines[id])

    def close(self) -> None:
        """Kill all containers and forget them.

        Raises
        ------
        TimeLimitError
            A container does not end; the agent is still there, and can be closed again.
        """
        if self._closed or os.getpid() != self._pid:
            return
        with self._call():
            self._launcher.kill_all()
            self._closed = True
            self._commands.clear()
            self._unit_of.clear()
            self._over.clear()
            self._ended.clear()
            self._held.clear()
            self._transfer.held.clear()
            self._launcher.close([queue.unit for queue in self.queues.values()])

    # -- queues -------------------------------------------------------------------------------------------------

    @contextmanager
    def _call(self) -> Iterator[None]:
        if os.getpid() != self._pid:
            raise ConcurrentUseError("Agent: used in another process than the one that made it")
        with self._calls:
            if self._closed:
                raise InputError("Agent: it is closed")
            yield

    def _collect_ended(self) -> None:
        """Remove from the queues the containers that have ended or could not be started, and start those that follow."""
        self._over += [Ended(id, status) for id, status in self._launcher.collect().items()]
        while self._over:
            those, self._over = self._over, []
            self._ended += those
            for one in those:
                seconds = self._learn(one)
                if self._negotiator is not None:
                    self._unreported[one.id] = seconds
            by_unit: dict[str, list[str]] = {}
            for one in those:
                by_unit.setdefault(self._unit_of[one.id], []).append(one.id)
            for unit, ids in by_unit.items():
                self._take_out(unit, ids)

    def _learn(self, one: Ended) -> float | None:
        """Add the run time of an ended container to `run_times`, and return it; None if it failed or was not running."""
        queue = self.queues[self._unit_of[one.id]]
        container = self._container(self._unit_of[one.id], one.id)
        if one.status or container.id not in queue.running:
            return None
        seconds = max(time.monotonic() - queue.running[container.id].start, 0.0)
        self._run_times.observe(container.job, seconds)
        return seconds

    def _take_out(self, unit: str, ids: Sequence[str]) -> None:
        """Remove containers without a process from their queue, and start those that follow."""
        queue = self.queues[unit]
        keys = [self._container(unit, id).id for id in ids]
        for id in ids:
            del self._commands[id], self._unit_of[id]
        # A container that was paused after it had ended gives its memory back, and the next may go on by that.
        for key in keys:
            if key not in queue.running:
                self._carry_out(unit, queue.remove(key, time.monotonic()))
        running = [key for key in keys if key in queue.running]
        if running:
            self._carry_out(unit, queue.finish(running, time.monotonic()))
        self._take_in(self._transfer.forward(time.monotonic()))

    def _carry_out(self, unit: str, admission: Admission) -> None:
        parts = [(unit, admission), *((str(other), told) for other, told in admission.elsewhere)]
        for id, status in self._launcher.kill([str(container.id) for container in admission.evicted]).items():
            # The container had ended when it was evicted, so it must not run again.
            if status != -signal.SIGKILL:
                self._over.append(Ended(id, status))
        for container in (container for _, told in parts for container in told.paused):
            self._launcher.pause(str(container.id))
        for container in (container for _, told in parts for container in told.resumed):
            self._launcher.resume(str(container.id))
        over = {one.id for one in self._over}
        for where, told in parts:
            for container in told.started:
                if str(container.id) in self._commands and str(container.id) not in over:
                    self._start(self.queues[where].unit, str(container.id))

    def _start(self, unit: ResourceUnit, id: str) -> None:
        command = self._commands[id]
        failed = command if isinstance(command, Ended) else self._launcher.start(unit, id, command)
        if failed is not None:
            self._over.append(failed)

    def _container(self, unit: str, id: str) -> Container:
        queue = self.queues[unit]
        containers: Iterable[Container] = (
            *(run.container for run in queue.running.values()),
            *(pause.container for pause in queue.paused.values()),
            *queue.waiting,
        )
        return next(container for container in containers if str(container.id) == id)


def _leave(number: int, _: object) -> None:
    """End the program on SIGTERM by an exception, so that everything is closed."""
    raise SystemExit(128 + number)
