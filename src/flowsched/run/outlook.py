"""Tasks that can never run, found by trial on empty copies of the cluster.

A copy is a scheduler of the same policy, without shares and without tasks of its own.  So constraints, taints, slots,
devices, racks and quotas count as they do in a round, and a gang fits if a round would start it.  One copy has the machines
that take tasks now.  The other one has all machines that were ever there, and those that may come by the executor's word.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

import numpy as np

from flowsched.cluster.events import (
    Event,
    JobRemoved,
    JobSubmitted,
    MachineAdded,
    MachineDrained,
    MachineFailed,
    MachineRemoved,
    MachineUpdated,
)
from flowsched.cluster.model import MICRO, Task
from flowsched.cluster.records import Group, JobRecord
from flowsched.exceptions import FlowschedError
from flowsched.fgm import StageCost
from flowsched.run.executor import Decider, Executor, NeverRunsError, Work, given
from flowsched.run.runs import LOGGER
from flowsched.scheduler import Scheduler

_ROUNDS, _STEP = 3, 1e5
"""Rounds in which a copy decides on a task, and the seconds between them: a policy may let a task wait for a while."""

_KNOWN = 10_000
"""Verdicts that are kept."""

_NOW, _LATER, _NEVER = range(3)


class Outlook:
    """Finds the tasks that wait in vain.

    A task that no machine could ever hold is given up at once, or after `patience` seconds where the cluster is
    `elastic`: larger machines may come.  One that only machines could hold that are gone, failed or drained is given up
    after `patience`.  Without patience nothing is given up.  `due` is the next time at which a task is given up.

    The executor's method `away`, if any, returns the machines that are not there and may come, or None if it does not
    know them.  Its method `whole`, if any, returns a machine with all that it has, where others use a part of it.
    """

    def __init__(self, scheduler: Decider, executor: Executor, patience: float | None, elastic: bool) -> None:
        self._scheduler, self._executor, self._patience, self._elastic = scheduler, executor, patience, elastic
        resources = scheduler.cluster.resources
        policy = scheduler.policy
        # A share provider keeps the accounts of one scheduler, and a cost by stages looks at the machines of one.
        policy = replace(
            policy, fairness=None, placement=tuple(c for c in policy.placement if not isinstance(c, StageCost))
        )
        self._now, self._ever = (Scheduler(policy, resources) for _ in range(2))
        self._there: dict[Hashable, MachineAdded] = {}  # neither gone nor failed
        self._seen: dict[Hashable, MachineAdded] = {}
        self._verdicts: dict[Any, int] = {}
        self._since: dict[Hashable, float] = {}
        self._gangs: set[Hashable] = set()
        self._clock = 0.0  # of the copies
        self.due = inf

    def note(self, event: Event) -> None:
        """Take note of an event of a machine."""
        if self._patience is None:
            return
        if isinstance(event, MachineAdded | MachineUpdated):
            self._describe(event)
        elif isinstance(event, MachineDrained | MachineFailed | MachineRemoved):
            if not isinstance(event, MachineDrained):
                self._there.pop(event.id, None)
            self._verdicts.clear()
            _apply(self._now, event)

    def _describe(self, event: MachineAdded | MachineUpdated) -> None:
        known, parts = self._there.get(event.id), given(event)
        if known is None and isinstance(event, MachineUpdated) and event.id in self._now.cluster.machines:
            return  # it has failed, and comes back by `MachineAdded`
        if known is None and "capacity" not in parts:
            return
        machine = MachineAdded(event.id, **parts) if known is None else replace(known, **parts)
        whole = getattr(self._executor, "whole", None)
        self._there[event.id] = machine = machine if whole is None else whole(machine)
        self._see(machine)
        record = self._now.cluster.machines.get(event.id)
        if machine != known or record is None or record.drained:
            _show(self._now, machine)
            self._verdicts.clear()

    def _see(self, machine: MachineAdded) -> None:
        if self._seen.get(machine.id) != machine:
            self._seen[machine.id] = machine
            _show(self._ever, machine)
            self._verdicts.clear()

    def expect(self, work: Iterable[Work], tasks: Iterable[Task] = ()) -> None:
        """Take note of work, as it was submitted where that is known."""
        if self._patience is None:
            return
        submitted, known = {task.id: task for task in tasks}, self._scheduler.cluster.tasks
        for one in work:
            one.submitted = submitted.get(one.task)
            job = known[one.task].group.job.job
            if job.gang is not None:
                self._gangs.add(job.id)

    def hopeless(self, work: Mapping[Hashable, Work], now: float) -> list[tuple[Work, NeverRunsError]]:
        """Return the tasks that wait in vain, with the reasons."""
        cluster, self.due = self._scheduler.cluster, inf
        if self._patience is None or not cluster.waiting:
            self._since.clear()
            return []
        away: Iterable[MachineAdded] | None = getattr(self._executor, "away", tuple)()
        for machine in away or ():
            self._see(machine)
        unknown = away is None or not self._seen  # nothing is known of machines that may come
        if len(self._verdicts) > _KNOWN:
            self._verdicts.clear()
        given_up: list[tuple[Work, NeverRunsError]] = []
        waits: set[Hashable] = set()
        for key, those, gang, why in self._queues(work):
            if key not in self._verdicts:
                self._verdicts[key] = self._verdict(those(), gang)
            verdict = self._verdicts[key]
            if verdict == _NOW:
                continue
            never = verdict == _NEVER and not unknown
            patience = 0.0 if never and not self._elastic else self._patience
            name = key if gang is None else key[1]
            waits.add(name)
            since = self._since.setdefault(name, now)
            if now >= since + patience:
                said = why() if never else f"no machine that could run it has been there for {patience:g} s"
                given_up += [(work[one.id], NeverRunsError(said)) for one in those() if one.id in work]
                continue
            self.due = min(self.due, since + patience)
            if since == now and (tasks := [one for one in those() if one.id in work]):
                more = f" and {len(tasks) - 1} others" if len(tasks) > 1 else ""
                LOGGER.warning("task %r%s: no machine that could run it is there; %g s are waited for one", tasks[0].id, more, patience)  # fmt: skip
        self._since = {name: since for name, since in self._since.items() if name in waits}
        return given_up

    def _queues(
        self, work: Mapping[Hashable, Work]
    ) -> Iterator[tuple[Any, Callable[[], list[Task]], int | None, Callable[[], str]]]:
        """Yield waiting classes of tasks, and gangs of which none runs, with a key, the tasks, the gang and the reason."""
        cluster, quotas = self._scheduler.cluster, self._scheduler.policy.quotas
        for cls, groups in list(cluster.waiting.items()):
            parts = {None: groups} if quotas is None else _by_claimant(groups, quotas.over)
            for who, those in parts.items():
                if self._verdicts.get((cls, who)) == _NOW:
                    continue
                first = next(iter(next(iter(those)).waiting)).id
                yield (cls, who), partial(_tasks_of, those, work), None, partial(self._why, first)
        for id in list(self._gangs):
            job = cluster.jobs.get(id)
            if job is None:
                self._gangs.discard(id)
            elif (
                self._verdicts.get(("gang", id, len(job.tasks))) != _NOW
                and not any(record.row >= 0 for record in job.tasks)
                and len(job.tasks) >= (job.job.gang or 0)
            ):
                members = partial(_tasks_of, (job,), work)
                yield ("gang", id, len(job.tasks)), members, job.job.gang, partial(self._short, job, work)

    def _why(self, task: Hashable) -> str:
        cluster = self._scheduler.cluster
        asked = cluster.demand(np.array([cluster.tasks[task].group.cls.index]))[0]
        most = cluster.capacity(np.array(list(cluster.by_row), np.int64)).max(axis=0, initial=0.0)
        names = cluster.resources.names
        lacking = [
            f"{asked[i]:g} {names[i]}, and no machine has more than {most[i]:g}" for i in np.flatnonzero(asked > most)
        ]
        if lacking:
            return f"it never fits here: it asks for {'; '.join(lacking)}"
        detail = self._scheduler.explain(task).detail
        shapes = "; ".join(f"{shape}: {', '.join(blockers)}" for shape, blockers in detail.items())
        return f"it never fits here ({shapes})" if shapes else "it never fits here"

    def _short(self, job: JobRecord, work: Mapping[Hashable, Work]) -> str:
        most = self._placed(self._ever, [_task(record, work) for record in job.tasks], None)
        return f"its gang of {job.job.gang} never fits here: {most} at once are the most"

    def _verdict(self, tasks: Sequence[Task], gang: int | None) -> int:
        """Return the machines on which tasks fit: those that take tasks, only others, or none."""
        tried, need = (tasks[:1], 1) if gang is None else (tasks, gang)
        if not tried or self._placed(self._now, tried, gang) >= need:
            return _NOW
        return _LATER if self._placed(self._ever, tried, gang) >= need else _NEVER

    def _placed(self, copy: Scheduler, tasks: Sequence[Task], gang: int | None) -> int:
        """Return the number of some tasks of a job that a copy would start at once, if nothing else were there."""
        own = self._scheduler.cluster.tasks[tasks[0].id].group.job.job  # a quota is its user's, or its own
        job = JobSubmitted(own.id, [replace(task, duration=None) for task in tasks], user=own.user, gang=gang)
        try:
            copy.apply(job)
        except FlowschedError:  # of a task that is not known as a whole
            return len(tasks)
        try:
            for _ in range(_ROUNDS):
                self._clock += _STEP
                copy.commit(copy.schedule(self._clock))
                placed = sum(record.row >= 0 for record in copy.cluster.tasks.values())
                if placed:
                    return placed
            return 0
        finally:
            copy.apply(JobRemoved(own.id))


def _by_claimant(groups: Iterable[Group], over: str) -> dict[Hashable, list[Group]]:
    parts: dict[Hashable, list[Group]] = {}
    for group in groups:
        job = group.job.job
        parts.setdefault(job.user if over == "user" else job.id, []).append(group)
    return parts


def _tasks_of(those: Iterable[Group | JobRecord], work: Mapping[Hashable, Work]) -> list[Task]:
    """Return the waiting tasks of groups, or all of a job."""
    chains = (one.waiting if isinstance(one, Group) else one.tasks for one in those)
    return [_task(record, work) for chain in chains for record in chain]


def _task(record: Any, work: Mapping[Hashable, Work]) -> Task:
    """Return a task as it was submitted, or as the scheduler knows it."""
    one = work.get(record.id)
    if one is not None and one.submitted is not None:
        return one.submitted
    cls = record.group.cls
    return Task(record.id, (cls.demand / MICRO).tolist(), cls.constraints, tolerations=cls.tolerations)


def _show(copy: Scheduler, machine: MachineAdded) -> None:
    """Add a machine to a copy, where nothing runs; an earlier description is dropped."""
    gone = [MachineRemoved(machine.id)] if machine.id in copy.cluster.machines else []
    _apply(copy, *gone, machine)


def _apply(copy: Scheduler, *events: Event) -> None:
    try:
        copy.apply(*events)
    except FlowschedError:  # the driver's scheduler refuses it as well, and logs that
        pass
