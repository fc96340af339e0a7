"""What the driver knows of tasks and of runs: values for `flowsched.run.dispatch`."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from math import inf
from typing import Any

from flowsched.exceptions import FlowschedError
from flowsched.run.executor import Run

__all__ = ["Active", "TaskCancelledError", "TaskLostError", "Work"]


class TaskCancelledError(FlowschedError):
    """A task was cancelled before it ended."""


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
    retries : int
        So many failures are followed by another run.
    time_limit : float or None
        Of each run, in the unit of the clock.
    failures, losses : int
        Runs that failed, and runs that were lost.
    """

    task: Hashable
    payload: Any
    done: Callable[[Any, BaseException | None], None]
    retries: int = 0
    time_limit: float | None = None
    failures: int = 0
    losses: int = 0


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
    held : bool
        Not started yet.
    why : BaseException or None
        The error with which it is being stopped, where that was not the scheduler's decision.
    until : float
        The time at which it is stopped, or stopped again.
    begun : bool
        The executor has told of its start.
    """

    run: Run
    work: Work | None
    counted: int
    held: bool = False
    why: BaseException | None = None
    until: float = inf
    begun: bool = False
