"""The protocol of executors, which carry out decisions, and their reports.

Rules of every executor:

* A run is named by its number, which no other run has.  A task that starts again has a new run.
* The runs of a gang that a round has placed are started in one turn of the loop, once nothing has to stop for any of them.
* `start` and `stop` return at once; their outcomes are reported later.  Any number of answers may come late, twice or never.
* Each run that was started ends with one of `Ended`, `Failed` and `Stopped`.  Nothing of it is left on the machine by then.
* An executor that cannot go on reports `Broken`; it never falls silent.
* The end of a run is kept until `release`.  If the driver dies before, its successor gets the report.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.events import Event, JobSubmitted, MachineAdded, MachineUpdated
from flowsched.cluster.model import Task
from flowsched.exceptions import FlowschedError
from flowsched.fgm import FineGrained
from flowsched.rounds.values import Round
from flowsched.scheduler import Scheduler

Decider = Scheduler | FineGrained
"""The schedulers of a driver."""


@dataclass(frozen=True, slots=True)
class Run:
    """One execution of a task.

    Parameters
    ----------
    number : int
        No other run has it.
    task : hashable
    machine : hashable
    devices : tuple of int
    payload : object
        The object to execute.  The scheduler never sees it.  None in a run that an executor reports.
    demand : mapping of str to float
        Amounts that the scheduler has reserved for it, by resource.  Empty in a run that an executor reports.
    gang : hashable
        The job, where that is a gang (`Job.gang`), else None; also in a run that an executor reports.
    """

    number: int
    task: Hashable
    machine: Hashable
    devices: tuple[int, ...] = ()
    payload: Any = None
    demand: Mapping[str, float] = field(default_factory=dict)
    gang: Hashable = None


@dataclass(frozen=True, slots=True)
class Started:
    """The run has begun, so its time limit counts from here.  This report is optional."""

    run: int


@dataclass(frozen=True, slots=True)
class Left:
    """Nothing of the run is left on its machine, and its end will be reported.

    This report is optional.  Where results take a while to fetch, other runs may have the room meanwhile.
    """

    run: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The run is done, with a result.

    `used` is what it has used, where that is known: see `Failed`.
    """

    run: int
    value: Any = None
    used: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failed:
    """The run is over without a result.

    Parameters
    ----------
    run : int
    error : BaseException
    lost : bool
        The worker or the connection died under it, which is no fault of the task.
    unfit : bool
        The machine could not begin it, such as for lack of the folder in which it runs.
    used : mapping of str to float
        ``cpu`` in seconds, and the peak of ``memory`` in MiB, where they are known.
    """

    run: int
    error: BaseException
    lost: bool = False
    unfit: bool = False
    used: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stopped:
    """The run was stopped, and nothing of it is left; or there is no such run."""

    run: int
    used: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Broken:
    """The executor cannot go on; the driver ends with this error, and stops the runs as far as that can be done."""

    error: BaseException


Told = Started | Left | Ended | Failed | Stopped | Broken | Event
"""A report of an executor.  Its events are those of machines: they come, change, are drained, and go."""


def given(event: MachineAdded | MachineUpdated) -> dict[str, Any]:
    """Return the parts of a machine's description that an event gives; None leaves a part as it is."""
    names = ("capacity", "rack", "labels", "slots", "taints")
    return {name: told for name in names if (told := getattr(event, name)) is not None}


class Executor(Protocol):
    """Starts and stops runs on machines, and reports their outcomes.

    All methods are called in the thread of the driver's event loop, and `tell` has to be called there.
    """

    async def open(self, tell: Callable[[Told], None]) -> Iterable[Run]:
        """Begin, report the machines, and return the runs of an earlier driver that are not released.

        Runs that have ended meanwhile are among them, and their ends are reported after this.
        """

    def start(self, run: Run) -> None:
        """Start a run; an exception is a failure of the run."""

    def stop(self, run: Run) -> None:
        """Stop a run and all its processes; an ended or unknown run is reported as `Stopped`."""

    def release(self, run: Run) -> None:
        """Forget a run: the driver has taken note of its end."""

    async def close(self) -> None:
        """Release the resources of `open`.  Remaining runs go on, for the next driver."""


class Watcher(Protocol):
    """An observer of all runs, such as a table of attempts."""

    def started(self, run: Run, now: float) -> None:
        """Take note of a run that is about to start, or was found running."""

    def ended(self, run: Run, now: float, outcome: str, error: BaseException | None, used: Mapping[str, float]) -> None:
        """Take note of the end of a run: its `OUTCOMES`, its error if it has one, and its usage."""


OUTCOMES = ("done", "failed", "timeout", "cancelled", "preempted", "lost", "stopped")
"""Outcomes of runs.  A preempted one was stopped for others, a lost one ended with its machine, a stopped one with the driver."""


class Counting(Executor, Protocol):
    """An executor whose system counts other amounts than those that tasks name."""

    def counted(self, job: JobSubmitted) -> JobSubmitted:
        """Return a job with the demands of its tasks as the system counts them; the driver submits that."""


class Away(Executor, Protocol):
    """An executor that knows of machines that are not there now."""

    def away(self) -> Iterable[MachineAdded] | None:
        """Return the machines that may come, or come back; None if they are not known, as before their first answer."""


class Partial(Executor, Protocol):
    """An executor whose machines are used by others, too."""

    def whole(self, machine: MachineAdded) -> MachineAdded:
        """Return a machine with all that it would have if the others used nothing."""


class Holding(Executor, Protocol):
    """An executor that accepts runs before their machine has room for them, which saves the time in between.

    Attributes
    ----------
    latency : float
        Approximate seconds from the end of a run to its report, and from `start` to the begin of the run.
    """

    latency: float

    def holds(self, run: Run) -> bool:
        """Return True if the run would wait at its machine until the runs that were started before have left room.

        So it is for a machine all of whose runs are held so.
        """


class Deciding(Executor, Protocol):
    """An executor whose system has rules of its own on the decisions."""

    def permitted(self, round: Round) -> Collection[Hashable] | None:
        """Return the tasks that a round may start, with those that make room for them; None for all."""

    def decided(self, round: Round) -> None:
        """Take note of a round that was carried out, as far as it was permitted."""


class TaskCancelledError(FlowschedError):
    """A task was cancelled before it ended."""


class ExecutorError(FlowschedError):
    """The executor cannot go on; its cause is the error that ended it."""


class NeverRunsError(FlowschedError):
    """No machine has, or will have, room for a task."""


class TaskLostError(FlowschedError):
    """Workers or machines died under a task more often than is repeated."""


@dataclass(eq=False, slots=True)
class Work:
    """A task that has not ended.

    `done` is called once, with the task's result and None, or with None and its error.  `time_limit` is that of each
    run, in the unit of the clock.  `losses` counts the runs that were lost; `unfit` has those that did not begin: the
    machine, and whether it began the run before that.  `submitted` is the task as it was submitted, where that is kept.
    """

    task: Hashable
    payload: Any
    done: Callable[[Any, BaseException | None], None]
    time_limit: float | None = None
    losses: int = 0
    unfit: list[tuple[Hashable, bool]] = field(default_factory=list)
    submitted: Task | None = None


@dataclass(eq=False, slots=True)
class Active:
    """A run that has not ended.

    * `work`: None for a task of a recovered scheduler that no caller has attached.
    * `counted`: the scheduler's number of the run, while it has the task on that machine; 0 for a run that is stopping.
    * `demand`: in millionths, by resource; None if that is not known.
    * `held`: not started yet.
    * `waits`: the executor holds it back until its machine has room, see `flowsched.run.executor.Holding`.
    * `since`: the time since when its machine has room for it.
    * `why`: the error with which it is being stopped, where that was not the scheduler's decision.
    * `until`: the time at which it is stopped, or stopped again.
    * `begun`: the executor has reported its start.
    * `left`: others may have its room, although its end is not reported yet.
    """

    run: Run
    work: Work | None
    counted: int
    demand: NDArray[np.int64] | None
    held: bool = False
    waits: bool = False
    since: float = inf
    why: BaseException | None = None
    until: float = inf
    begun: bool = False
    left: bool = False
