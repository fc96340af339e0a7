"""Random lives under quotas, and a model of them that sees events, the runs that these ended, and commits alone."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from random import Random

from lives import POLICIES, Life, operations

import flowsched as fs

MICRO = 1_000_000
NAMES = ("cpu", "mem", "gpu")
CLUSTER = "the cluster"
"""Claimant of all tasks."""


class QuotaLife(Life):
    """Tells of starts elsewhere, and of runs that have stopped, as well."""

    def events(self, sched: fs.Scheduler) -> list[fs.Event]:
        random, cluster = self.random, sched.cluster
        found = []
        if random.random() < 0.1:
            waiting = [t for t, record in cluster.tasks.items() if record.row < 0 and t not in cluster.resting]
            for task in random.sample(waiting, min(1, len(waiting))):
                there = [id for id, fit in zip(cluster.machines, cluster.fits(task), strict=True) if fit]
                if there:
                    found.append(fs.TaskStarted(task, random.choice(there), time=self.now))
        if random.random() < 0.3:
            for run, stop in list(cluster.stopping.items())[:2]:
                found.append(fs.TaskStopped(stop.task, run=run, time=self.now))
        return found or super().events(sched)


def quotas(random: Random) -> fs.Quotas:
    """Quotas that are often full."""

    def some() -> dict[str, float]:
        amounts = {"cpu": random.choice([0, 3, 5.5, 12]), "gpu": random.choice([0.5, 1, 1.3, 3]), "mem": 2}
        return {name: amounts[name] for name in random.sample(NAMES, random.randint(0, 2))}

    default = random.choice([None, some()])
    if random.random() < 0.3:
        return fs.Quotas({f"j{i}": some() for i in range(9)}, over="job", default=default)
    return fs.Quotas({"ann": some(), "bob": some()}, default=default)


def shared(given: fs.Quotas, random: Random) -> fs.Quotas:
    """The same quotas, often with one of the cluster."""
    if random.random() < 0.5:
        return given
    return replace(given, cluster={"cpu": random.choice([5, 14]), "gpu": random.choice([1.5, 5])})


def limited(seed: int) -> fs.Policy:
    """A policy with quotas."""
    random = Random(seed)
    policy = replace(POLICIES[seed % len(POLICIES)](), quotas=shared(quotas(random), Random(seed + 1)))
    how = random.randrange(4)
    if how < 2:
        policy = replace(policy, preemption=(None, fs.PreemptionCost(graceful=True))[how])
    return policy


MAKERS = [lambda seed=seed: limited(seed) for seed in range(40)] + POLICIES[:2]


def limited_operations(seed: int, sched: fs.Scheduler, count: int) -> Iterator[str]:
    """As `operations`, with quotas."""
    return operations(seed, sched, count, MAKERS, QuotaLife(seed))


class Model:
    """Amounts of the runs of each claimant, in micro-units."""

    def __init__(self) -> None:
        self.tasks: dict[Hashable, tuple[Hashable, Hashable, dict[str, int]]] = {}
        """User, job and demand."""
        self.users: dict[Hashable, Hashable] = {}
        self.running: dict[Hashable, Hashable] = {}
        """Tasks, with their machines."""
        self.stopping: dict[Hashable, Hashable] = {}

    def apply(self, events: Iterable[fs.Event], ended: Iterable[fs.EndedRun]) -> None:
        """Apply events and ended runs, in any order that keeps starts after ends."""
        for run in ended:
            self.running.pop(run.task, None)
        for event in events:
            match event:
                case fs.JobSubmitted():
                    self.users[event.id] = event.user
                    for task in event.tasks:
                        self._add(task, event.id)
                case fs.TaskSubmitted():
                    self._add(event.task, event.job)
                case fs.TaskStarted():
                    self.running[event.task] = event.machine
                case fs.TaskStopped():
                    self.stopping.pop(event.task, None)
                case fs.TaskCompleted() | fs.TaskFailed() if event.task not in self.running:
                    self.stopping.pop(event.task, None)
                case fs.MachineFailed() | fs.MachineRemoved():
                    self.stopping = {t: m for t, m in self.stopping.items() if m != event.id}

    def commit(self, deltas: Iterable[fs.Place | fs.Preempt | fs.Migrate], graceful: bool) -> None:
        """Apply the accepted deltas of a commit."""
        for delta in deltas:
            if isinstance(delta, fs.Preempt):
                machine = self.running.pop(delta.task)
                if graceful:
                    self.stopping[delta.task] = machine
            else:
                self.running[delta.task] = delta.machine

    def _add(self, task: fs.Task, job: Hashable) -> None:
        demand = {name: round(amount * MICRO) for name, amount in dict(task.demand).items()}
        self.tasks[task.id] = self.users[job], job, demand

    def owner(self, task: Hashable, over: str) -> Hashable:
        return self.tasks[task][0 if over == "user" else 1]

    def usage(self, over: str) -> dict[tuple[Hashable, str], int]:
        """Amount of each resource by claimant, the cluster among them."""
        total: dict[tuple[Hashable, str], int] = {}
        for task in (*self.running, *self.stopping):
            self.add(total, task, over)
        return total

    def add(self, total: dict[tuple[Hashable, str], int], task: Hashable, over: str, sign: int = 1) -> None:
        """Add the demand of a task to the amounts of its claimants."""
        for who in (self.owner(task, over), CLUSTER):
            for name, amount in self.tasks[task][2].items():
                total[who, name] = total.get((who, name), 0) + sign * amount

    def limit(self, quotas: fs.Quotas, who: Hashable) -> Mapping[str, int]:
        amounts = quotas.cluster or {} if who == CLUSTER else quotas.amounts.get(who, quotas.default or {})
        return {name: round(amount * MICRO) for name, amount in amounts.items()}

    def lacks(self, quotas: fs.Quotas, task: Hashable, usage: Mapping[tuple[Hashable, str], int]) -> set[str]:
        """Resources of which the quota leaves too little for a task."""
        demand = self.tasks[task][2]
        return {
            name
            for who in (self.owner(task, quotas.over), CLUSTER)
            for name, most in self.limit(quotas, who).items()
            if demand.get(name, 0) and usage.get((who, name), 0) + demand[name] > most
        }
