"""What the driver knows of tasks and of runs: values for `flowsched.run.dispatch`."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.model import Task
from flowsched.exceptions import FlowschedError
from flowsched.run.executor import Run

__all__ = ["Active", "ExecutorError", "NeverRunsError", "TaskCancelledError", "TaskLostError", "Work"]


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

    Parameters
    ----------
    task : hashable
    payload : object
    done : callable
        Called once, with the task's result and None, or with None and its error.
    time_limit : float or None
        Of each run, in the unit of the clock.
    losses : int
        Runs that were lost.
    unfit : list of (hashable, bool)
        Runs that did not begin: the machine, and whether it began the run before that.
    submitted : Task or None
        As it was submitted, where that is kept.
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

    Parameters
    ----------
    run : Run
    work : Work or None
        None for a task of a recovered scheduler that no caller has attached.
    counted : int
        The scheduler's number of the run, while it has the task on that machine; 0 for a run that is stopping.
    demand : (resources,) array or None
        What it takes, in millionths; None if that is not known.
    held : bool
        Not started yet.
    waits : bool
        The executor holds it back until its machine has room, see `flowsched.run.executor.Holding`.
    since : float
        The time since when its machine has room for it.
    why : BaseException or None
        The error with which it is being stopped, where that was not the scheduler's decision.
    until : float
        The time at which it is stopped, or stopped again.
    begun : bool
        The executor has told of its start.
    left : bool
        Others may have its room, although its end is still to be told.
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
