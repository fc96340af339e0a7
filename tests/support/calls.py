"""Schedulers for tests of calls that are interrupted, overlap or fail, and their state."""

from __future__ import annotations

import signal
from pathlib import Path

from lives import world_of

import flowsched as fs


class Stop(BaseException):
    """Raised by a handler."""


def small(journal: Path | None = None, policy: fs.Policy | None = None) -> fs.Scheduler:
    """A scheduler with tasks that run, wait and would be preempted."""
    sched = fs.Scheduler(policy or fs.Policy(), resources=("cpu", "gpu"), journal=journal)
    sched.apply(fs.MachineAdded("m1", {"cpu": 4, "gpu": 1}), fs.MachineAdded("m2", {"cpu": 2}, rack="r", slots=2))
    sched.apply(fs.JobSubmitted("old", [fs.Task(f"o{i}", {"cpu": 1}) for i in range(3)], user="u", priority=1))
    sched.commit(sched.schedule(1.0))
    sched.apply(fs.JobSubmitted("new", [fs.Task(f"n{i}", {"cpu": 2, "gpu": i % 2 / 2}) for i in range(2)], user="v"))
    return sched


def crowd(journal: Path | None = None) -> fs.Scheduler:
    """A scheduler before its first round, of which the kernels have something to do."""
    sched = fs.Scheduler(resources=("cpu", "gpu"), journal=journal)
    sched.apply(
        *(fs.MachineAdded(i, {"cpu": 4 + i % 3}, slots=4) for i in range(60)),
        *(
            fs.JobSubmitted(f"j{j}", [fs.Task((j, i), {"cpu": 1 + j % 3}) for i in range(5)], f"u{j % 7}", j % 4)
            for j in range(60)
        ),
    )
    return sched


def state_of(sched: fs.Scheduler) -> tuple:
    """The state with the policy; tasks that no round has dated yet count as dated by the next one."""
    machines, tasks, *rest = world_of(sched)
    dated = [(t, place, turn, 3.0 if since is None else since, *others) for t, place, turn, since, *others in tasks]
    return machines, dated, *rest, fs.policy.serialize.describe(sched.policy)


def send() -> None:
    signal.raise_signal(signal.SIGUSR1)
