"""Snakemake's choice of the jobs that start, by flowsched: one machine with Snakemake's resources, kept from call to call."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from snakemake_interface_scheduler_plugins.base import SchedulerBase
from snakemake_interface_scheduler_plugins.settings import SchedulerSettingsBase

import flowsched as fs

UNLIMITED = 10**12
"""Snakemake gives a resource without a limit a number above."""

BEST = 2**40
"""The best priority of flowsched; --prioritize gives a better one."""


@dataclass
class SchedulerSettings(SchedulerSettingsBase):
    """Options of the command line: ``--scheduler-flowsched-...``."""

    reserve_after: int = field(
        default=0,
        metadata={"help": "Seconds after which resources are kept free for a ready job that finds no room; 0: never."},
    )


class Scheduler(SchedulerBase):
    """Keeps the ready and the running jobs in an `fs.Scheduler`, and reports the changes since the last call."""

    clock: Callable[[], float] = staticmethod(time.monotonic)

    def __post_init__(self) -> None:
        self.names: tuple[str, ...] = ()

    def begin(self, names: tuple[str, ...]) -> None:
        after = self.settings.reserve_after if self.settings else 0
        waiting = fs.WaitCost(first=after, reserve=1) if after > 0 else fs.WaitCost(reserve=None)
        policy = fs.Policy(preemption=None, placement=(), waiting=waiting)
        self.names, self.capacity, self.most = names, {}, dict.fromkeys(names, 0)
        self.waiting, self.running = {}, {}  # by id: the job, and its demand in the scheduler's accounts
        self.sched = fs.Scheduler(policy, resources=fs.Resources(names, device=None))
        self.sched.apply(fs.MachineAdded("here", {}))

    def select_jobs(self, selectable_jobs, remaining_jobs, available_resources, input_sizes):
        """Return the jobs that start now; see `SchedulerBase`."""
        free = {name: max(n, 0) for name, n in available_resources.items() if isinstance(n, int) and n < UNLIMITED}
        if not free:
            return list(selectable_jobs)
        if tuple(free) != self.names:
            self.begin(tuple(free))
        self.most = {name: max(n, self.most[name]) for name, n in free.items()}
        ready = {id(job): job for job in selectable_jobs}
        over = [i for i, (job, _) in self.running.items() if i in ready or all(map(self.dag.finished, members(job)))]
        over += [i for i in self.waiting if i not in ready]
        for i in over:
            self.running.pop(i, None)
            self.waiting.pop(i, None)
        new = [i for i in ready if i not in self.waiting]
        new.sort(key=lambda i: sizes(ready[i], input_sizes), reverse=True)
        self.waiting.update((i, (ready[i], self.demand(ready[i]))) for i in new)
        self.sched.apply(*map(fs.JobRemoved, over))
        # Free and running by these accounts: a job that failed for good stays in them, and takes nothing.
        capacity = {name: n + sum(demand[name] for _, demand in self.running.values()) for name, n in free.items()}
        if capacity != self.capacity:
            self.sched.apply(fs.MachineUpdated("here", capacity))
            self.capacity = capacity
        self.sched.apply(*(submitted(i, *self.waiting[i]) for i in new))
        chosen = self.sched.commit(self.sched.schedule(self.clock())).accepted
        for start in chosen:
            self.running[start.task] = self.waiting.pop(start.task)
        return [self.running[start.task][0] for start in chosen]

    def demand(self, job) -> dict[str, int]:
        """Return the demand of a job, rounded so that many jobs are alike; at most the largest amount so far."""
        asks = {name: job.scheduler_resources.get(name, 0) for name in self.names}
        return {name: max(n, min(rounded(n), self.most[name])) for name, n in asks.items()}


def submitted(i: int, job, demand: dict[str, int]) -> fs.JobSubmitted:
    """Return a ready job as an event; a larger number is the better priority in Snakemake."""
    return fs.JobSubmitted(i, [fs.Task(i, demand)], priority=max(-int(job.priority), -BEST))


def rounded(n: int) -> int:
    """Return the next number of five binary digits: up to 32 the same, beyond at most a sixteenth more."""
    digits = max(n.bit_length() - 5, 0)
    return -(-n >> digits) << digits


def members(job) -> Iterable:
    """Return the jobs of a group, or the job."""
    jobs = getattr(job, "jobs", (job,))
    return jobs() if callable(jobs) else jobs


def sizes(job, input_sizes) -> tuple[int, int]:
    """Order equal jobs as Snakemake's greedy scheduler does: temporary files that can go first, then large inputs."""
    known = [(f.is_flagged("temp"), input_sizes.get(f) or 0) for f in job.input]
    return sum(size for temporary, size in known if temporary), sum(size for _, size in known)
