"""A node agent: the stacked queues of one machine with real processes.

A container is a process group bound to its unit's CPUs.  When one ends, the next in its unit's queue starts at once,
whatever the heartbeat; a stream container stops batch processes (SIGSTOP) or, for their memory, kills them, as
`StackedQueue` says.  Linux only: it waits on process descriptors, so it sleeps until something ends.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flowsched.exceptions import DuplicateIdError, InputError, UnknownIdError
from flowsched.hrm.cgroups import Cgroups
from flowsched.hrm.containers import Admission, Container, Outcome
from flowsched.hrm.queues import StackedQueue
from flowsched.hrm.units import ResourceUnit

if TYPE_CHECKING:
    from flowsched.hrm.negotiator import Negotiator

__all__ = ["Agent", "Ended"]


@dataclass(frozen=True, slots=True)
class Ended:
    """A container's process ended, with its exit status (negative: the signal that killed it)."""

    id: str
    status: int


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

    Examples
    --------
    >>> import sys
    >>> agent = Agent([ResourceUnit("u", vcore=1)])
    >>> agent.submit("u", Container("hello", vcore=1), [sys.executable, "-c", "pass"]).outcome.value
    'STARTED'
    >>> agent.wait(timeout=30.0)
    [Ended(id='hello', status=0)]
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
    ) -> None:
        if len({unit.machine for unit in units}) != 1:
            raise InputError("units: all of one machine expected")
        self.machine = str(units[0].machine)
        self.queues = {str(unit.id): StackedQueue(unit, length=length, most=most) for unit in units}
        self._negotiator, self._command, self._cgroups = negotiator, command, cgroups
        self._commands: dict[str, Sequence[str]] = {}
        self._unit_of: dict[str, str] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._selector = selectors.DefaultSelector()
        self._unreported: list[str] = []
        for unit in units:
            if cgroups is not None:
                cgroups.prepare(unit)

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def pid(self, id: str) -> int | None:
        """The process of a container that runs or is paused."""
        process = self._processes.get(id)
        return None if process is None else process.pid

    # -- what comes ---------------------------------------------------------------------------------------------

    def submit(self, unit: str, container: Container, command: Sequence[str]) -> Admission:
        """A container for a unit: its process starts, or waits its turn, or the queue refuses it."""
        if unit not in self.queues:
            raise UnknownIdError(f"unknown unit {unit!r}")
        id = str(container.id)
        if id in self._commands:
            raise DuplicateIdError(f"container {id!r} is already there")
        admission = self.queues[unit].submit(container, time.monotonic())
        if admission.outcome in (Outcome.STARTED, Outcome.QUEUED):
            self._commands[id], self._unit_of[id] = tuple(command), unit
            self._carry_out(unit, admission)
        return admission

    def remove(self, id: str) -> None:
        """A container leaves at once, whatever it does."""
        if id not in self._unit_of:
            raise UnknownIdError(f"unknown container {id!r}")
        unit = self._unit_of[id]
        self._kill(id)
        admission = self.queues[unit].remove(self._container(unit, id).id, time.monotonic())
        self._forget(id)
        self._carry_out(unit, admission)

    # -- what happens -------------------------------------------------------------------------------------------

    def step(self, timeout: float | None = 0.0) -> list[Ended]:
        """Wait for processes to end, at most so long (None: until one does), and start those that follow.

        Returns
        -------
        list of Ended
        """
        ended: dict[str, list[Ended]] = {}
        for key, _ in self._selector.select(timeout):
            id = key.data
            ended.setdefault(self._unit_of[id], []).append(Ended(id, self._reap(id)))
        for unit, those in ended.items():
            ids = [self._container(unit, one.id).id for one in those]
            for one in those:
                self._forget(one.id)
            self._carry_out(unit, self.queues[unit].finish(ids, time.monotonic()))
        done = [one for those in ended.values() for one in those]
        self._unreported += [one.id for one in done]
        return done

    def wait(self, timeout: float) -> list[Ended]:
        """Step until nothing runs any more, or for so many seconds; who ended."""
        deadline, done = time.monotonic() + timeout, []
        while self._processes and time.monotonic() < deadline:
            done += self.step(max(deadline - time.monotonic(), 0.0))
        return done

    def heartbeat(self) -> None:
        """Tell the shared state who ended and who is here; do what it has launched here, and stop what it gave up."""
        if self._negotiator is None or self._command is None:
            raise InputError("heartbeat: the agent has no negotiator or no command")
        waiting = [
            str(c.id) for queue in self.queues.values() for c in queue.waiting if str(c.id) not in self._processes
        ]
        report = self._negotiator.heartbeat(
            self.machine, finished=self._unreported, present=self._commands, waiting=waiting
        )
        self._unreported.clear()
        for id in report.stale:
            if id in self._commands:
                self.remove(id)
        if report.missing:
            for unit, container in self._negotiator.on_machine(self.machine):
                id = str(container.id)
                if id not in self._commands:
                    self.submit(unit, container, self._command(id))

    def close(self) -> None:
        """Kill everything and forget it."""
        for id in list(self._processes):
            self._kill(id)
        for queue in self.queues.values():
            if self._cgroups is not None:
                self._cgroups.remove(queue.unit)
        self._commands.clear()
        self._unit_of.clear()
        self._selector.close()

    # -- processes ----------------------------------------------------------------------------------------------

    def _carry_out(self, unit: str, admission: Admission) -> None:
        for container in admission.evicted:
            self._kill(str(container.id))
        for containers, pause in ((admission.paused, True), (admission.resumed, False)):
            for container in containers:
                id = str(container.id)
                os.killpg(self._processes[id].pid, signal.SIGSTOP if pause else signal.SIGCONT)
                if self._cgroups is not None:
                    self._cgroups.freeze(self.queues[unit].unit, id, pause)
        for container in admission.started:
            self._start(self.queues[unit].unit, str(container.id))

    def _start(self, unit: ResourceUnit, id: str) -> None:
        environment = {**os.environ}
        if unit.gpu is not None:
            environment["CUDA_VISIBLE_DEVICES"] = str(unit.gpu)
        # A child is bound from its first instruction because it inherits what this process is bound to.
        with _bound_to(unit.cpus):
            process = subprocess.Popen(self._commands[id], start_new_session=True, env=environment)
        if self._cgroups is not None:
            self._cgroups.enter(unit, id, process.pid)
        self._processes[id] = process
        self._selector.register(os.pidfd_open(process.pid), selectors.EVENT_READ, id)

    def _kill(self, id: str) -> None:
        process = self._processes.get(id)
        if process is not None:
            os.killpg(process.pid, signal.SIGKILL)
            self._reap(id)

    def _reap(self, id: str) -> int:
        process = self._processes.pop(id)
        if self._cgroups is not None:
            self._cgroups.leave(self.queues[self._unit_of[id]].unit, id)
        key = next(key for key in self._selector.get_map().values() if key.data == id)
        self._selector.unregister(key.fd)
        os.close(key.fd)
        return process.wait()

    def _forget(self, id: str) -> None:
        del self._commands[id], self._unit_of[id]

    def _container(self, unit: str, id: str) -> Container:
        queue = self.queues[unit]
        everybody: Iterable[Container] = (
            *(run.container for run in queue.running.values()),
            *(pause.container for pause in queue.paused.values()),
            *queue.waiting,
        )
        return next(container for container in everybody if str(container.id) == id)


@contextmanager
def _bound_to(cpus: Sequence[int]) -> Iterator[None]:
    if not cpus:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
