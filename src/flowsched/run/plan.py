"""The tasks of jobs before, in and after the scheduler: dependencies, holds, throttles, times, and ends.

The scheduler knows *released* tasks only: those that may start.  A task is released once its dependencies are met, it is not
held, its time has come, and its job has fewer released tasks than `at_most`.

A task that cannot meet a dependency ends without a run.  It has *failed* as soon as a task has failed that it needs.  It was
*skipped* if it needs a failure that there is not, once all its other dependencies are decided.  So the outcomes of tasks
depend on those of others, and never on the order of their ends.

Without clock and event loop: the caller gives the time, and carries out what `released` and `ended` return.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from flowsched.run.after import Names
from flowsched.run.jobs import JobOfFile

DONE, FAILED, CANCELLED, SKIPPED = "done", "failed", "cancelled", "skipped"
"""Outcomes of tasks."""


class End(NamedTuple):
    """The end of a task: its outcome, and its error or the reason."""

    outcome: str
    why: str = ""

    @property
    def bad(self) -> bool:
        """True if what depends on the success of the task cannot run."""
        return self.outcome in (FAILED, CANCELLED)


class Part(NamedTuple):
    """Tasks of a job that are released together, with their priority."""

    job: JobOfFile
    tasks: list[str]
    priority: int


@dataclass(eq=False, slots=True)
class _Condition:
    """One name or pattern on which a job depends, as long as it is open: `left` of its jobs and tasks have not ended."""

    of: _Planned
    form: str
    name: str
    left: int
    bad: str = ""  # a task of it that failed
    over: bool = False  # it is met, or lost


@dataclass(eq=False, slots=True)
class _Planned:
    """A job of the plan.

    `waiting` are its tasks that are not released, `open` counts those that have not ended.
    """

    job: JobOfFile
    name: str
    waiting: dict[str, None]
    open: int
    not_before: float
    deadline: float
    conditions: int = 0  # that are open
    out: int = 0  # released, and not ended
    bad: str = ""  # a task of it that failed
    unneeded: str = ""  # the reason, if a task of which it needs the failure has ended well
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys((DONE, FAILED, CANCELLED, SKIPPED), 0))
    watched: list[_Condition] = field(default_factory=list)


class Plan:
    """All jobs of a driver.

    Parameters
    ----------
    ends : mapping of task to End
        Ends of earlier drivers.

    Attributes
    ----------
    names : Names
    ends : dict of task to End
    open : int
        Number of tasks that have not ended.
    """

    def __init__(self, ends: Mapping[str, End] | None = None) -> None:
        self.names = Names()
        self.ends: dict[str, End] = dict(ends or {})
        self.open = 0
        self._jobs: dict[str, _Planned] = {}
        self._of: dict[str, _Planned] = {}
        self._watched: dict[str, list[_Condition]] = {}  # conditions by task
        self._released: set[str] = set()
        self._held: set[str] = set()
        self._priority: dict[str, int] = {}
        self._ready: dict[str, _Planned] = {}  # jobs that may have a task to release
        self._times: list[tuple[float, str]] = []

    # -- jobs ---------------------------------------------------------------------------------------------------

    def add(self, jobs: Iterable[JobOfFile], now: float) -> list[tuple[str, End]]:
        """Add jobs, whose names and dependencies were checked; return the tasks that end for lack of a dependency.

        `now` is the time of their submission, from which spans count.
        """
        new = []
        for job in jobs:
            tasks = list(job.commands)
            planned = _Planned(
                job,
                job.name,
                dict.fromkeys(tasks),
                len(tasks),
                _at(job.not_before, now, 0.0),
                _at(job.deadline, now, inf),
            )
            self._jobs[job.name] = planned
            self.names.add(job.name, tasks)
            self._of.update(dict.fromkeys(tasks, planned))
            self.open += len(tasks)
            new.append(planned)
        for planned in new:
            for task in planned.job.commands:
                if task in self.ends:
                    self._count(planned, task, self.ends[task])
        over: list[tuple[str, End]] = []
        for planned in new:
            planned.conditions = sum(map(len, planned.job.after.values()))  # all of them, before one is met
        for planned in new:
            for form, names in planned.job.after.items():
                for name in names:
                    over += self._expect(planned, form, name)
            self._look(planned)
            for moment in (planned.not_before, planned.deadline):
                if 0.0 < moment < inf:
                    heappush(self._times, (moment, planned.name))
        return over

    def _expect(self, planned: _Planned, form: str, name: str) -> list[tuple[str, End]]:
        """Add a condition to a job; return the tasks that end, since it can never be met."""
        named = self.names.find(name)
        assert named is not None, name
        condition = _Condition(planned, form, name, 0)
        for job in (self._jobs[id] for id in named.jobs):
            condition.bad = condition.bad or job.bad
            if job.open:
                condition.left += 1
                job.watched.append(condition)
        for task in named.tasks:
            if task not in self.ends:
                condition.left += 1
                self._watched.setdefault(task, []).append(condition)
            elif self.ends[task].bad:
                condition.bad = condition.bad or task
        return self._settle(deque([condition]))

    def _settle(self, conditions: deque[_Condition]) -> list[tuple[str, End]]:
        """Look at conditions that may be met or lost by now; return the tasks that end."""
        over: list[tuple[str, End]] = []
        while conditions:
            condition = conditions.popleft()
            if condition.over:
                continue
            planned, lost = condition.of, None
            if condition.form == "ok" and condition.bad:
                lost = End(FAILED, f"not run: {condition.bad} {self._verb(condition.bad)}")
            elif condition.left:
                continue
            else:
                planned.conditions -= 1
                if condition.form == "failed" and not condition.bad:
                    planned.unneeded = planned.unneeded or f"not needed: no task of {condition.name} failed"
                if planned.unneeded and not planned.conditions:
                    lost = End(SKIPPED, planned.unneeded)
            condition.over = True
            if lost is None:
                self._look(planned)
                continue
            for task in list(planned.waiting):
                over.append((task, lost))
                conditions += self._note(task, lost)
        return over

    def _verb(self, task: str) -> str:
        end = self.ends.get(task)
        if end is not None and end.outcome == CANCELLED:
            return "was cancelled"
        return "did not run" if end is not None and end.why.startswith("not run") else "failed"

    def _note(self, task: str, end: End) -> Iterator[_Condition]:
        """Record the end of a task; yield the conditions that it may meet or end."""
        planned = self._of[task]
        self.ends[task] = end
        was_bad = planned.bad
        self._count(planned, task, end)
        for condition in self._watched.pop(task, ()):
            condition.left -= 1
            condition.bad = condition.bad or (task if end.bad else "")
            yield condition
        if planned.bad != was_bad or not planned.open:
            for condition in planned.watched:
                condition.left -= not planned.open
                condition.bad = condition.bad or planned.bad
                yield condition
            if not planned.open:
                planned.watched = []

    def _count(self, planned: _Planned, task: str, end: End) -> None:
        planned.waiting.pop(task, None)
        if task in self._released:
            self._released.discard(task)
            planned.out -= 1
            self._look(planned)
        self._held.discard(task)
        self._priority.pop(task, None)
        planned.open -= 1
        planned.counts[end.outcome] += 1
        planned.bad = planned.bad or (task if end.bad else "")
        self.open -= 1

    # -- ends ---------------------------------------------------------------------------------------------------

    def end(self, task: str, end: End) -> list[tuple[str, End]]:
        """Take note of the end of a task; return it with all that end for that, each once."""
        if task in self.ends:
            return []
        return [(task, end), *self._settle(deque(self._note(task, end)))]

    def members(self, task: str) -> list[str]:
        """Return the tasks of the gang of a task that have not ended; none if it is of no gang."""
        planned = self._of[task]
        if planned.job.submitted.gang is None:
            return []
        return [one for one in planned.job.commands if one not in self.ends]

    def overdue(self, now: float) -> list[str]:
        """Return the tasks that have not ended by their deadline, each at least once; and let others begin whose time has come."""
        late: list[str] = []
        while self._times and self._times[0][0] <= now:
            planned = self._jobs[heappop(self._times)[1]]
            if planned.deadline <= now:
                late += [task for task in planned.job.commands if task not in self.ends]
            self._look(planned)
        return late

    @property
    def due(self) -> float:
        """The next time at which `overdue` has something to do."""
        return self._times[0][0] if self._times else inf

    # -- releases -----------------------------------------------------------------------------------------------

    def _look(self, planned: _Planned) -> None:
        if planned.waiting and not planned.conditions and not planned.unneeded:
            self._ready[planned.name] = planned

    def released(self, now: float) -> list[Part]:
        """Return the tasks that may start from now on; they count as released."""
        parts: list[Part] = []
        ready, self._ready = self._ready, {}
        for planned in ready.values():
            if planned.not_before > now or planned.deadline <= now:
                continue
            most = planned.job.at_most
            room = inf if most is None else most - planned.out
            by_priority: dict[int, list[str]] = {}
            for task in planned.waiting:
                if room <= 0:
                    break
                if task not in self._held:
                    own = self._priority.get(task, planned.job.submitted.priority)
                    by_priority.setdefault(own, []).append(task)
                    room -= 1
            for own, tasks in sorted(by_priority.items()):
                for task in tasks:
                    del planned.waiting[task]
                self._released.update(tasks)
                planned.out += len(tasks)
                parts.append(Part(planned.job, tasks, own))
        return parts

    def adopt(self, task: str) -> None:
        """Take note that a task is released already."""
        planned = self._of[task]
        if task not in self._released and task not in self.ends:
            planned.waiting.pop(task, None)
            self._released.add(task)
            planned.out += 1

    def withdrawn(self, tasks: Iterable[str]) -> None:
        """Take note that released tasks were taken back from the scheduler; they wait first in their jobs."""
        back: dict[str, list[str]] = {}
        for task in tasks:
            if task in self._released:
                self._released.discard(task)
                back.setdefault(self._of[task].name, []).append(task)
        for name, some in back.items():
            planned = self._jobs[name]
            planned.out -= len(some)
            planned.waiting = dict.fromkeys([*some, *planned.waiting])
            self._look(planned)

    # -- an operator's wishes -----------------------------------------------------------------------------------

    def hold(self, tasks: Iterable[str]) -> list[str]:
        """Hold tasks; return those that are released, which the caller withdraws if they wait."""
        open = self._whole(tasks)
        self._held.update(open)
        return [task for task in open if task in self._released]

    def release(self, tasks: Iterable[str]) -> int:
        """End the hold of tasks; return the number of those that were held."""
        held = [task for task in self._whole(tasks) if task in self._held]
        self._held.difference_update(held)
        for task in held:
            self._look(self._of[task])
        return len(held)

    def prioritise(self, tasks: Iterable[str], priority: int) -> list[str]:
        """Change the priority of tasks; return those that are released, which the caller withdraws if they wait."""
        open = self._whole(tasks)
        self._priority.update(dict.fromkeys(open, priority))
        return [task for task in open if task in self._released]

    def _whole(self, tasks: Iterable[str]) -> dict[str, None]:
        """Return the tasks that have not ended, with the other members of their gangs."""
        open = dict[str, None]()
        for task in tasks:
            if task not in self.ends and task not in open:
                open.update(dict.fromkeys(self.members(task) or [task]))
        return open

    # -- questions ----------------------------------------------------------------------------------------------

    def jobs(self) -> Iterator[JobOfFile]:
        """Yield all jobs in the order of their submission."""
        for planned in self._jobs.values():
            yield planned.job

    def job(self, name: str) -> JobOfFile:
        """Return a job by its name."""
        return self._jobs[name].job

    def job_of(self, task: str) -> JobOfFile:
        """Return the job of a task."""
        return self._of[task].job

    def counts(self, job: str) -> dict[str, int]:
        """Return the numbers of tasks of a job by outcome; those that are "released" and those that are "waiting" here."""
        planned = self._jobs[job]
        return {**planned.counts, "released": planned.out, "waiting": len(planned.waiting)}

    def waiting(self, job: str) -> Iterable[str]:
        """Return the tasks of a job that are not released."""
        return self._jobs[job].waiting

    def priority(self, task: str) -> int:
        """Return the priority of a task."""
        return self._priority.get(task, self._of[task].job.submitted.priority)

    def is_released(self, task: str) -> bool:
        """Return True if the scheduler has a task."""
        return task in self._released

    def is_held(self, task: str) -> bool:
        """Return True if a task was held, and not released again."""
        return task in self._held

    def why(self, task: str, now: float) -> tuple[str, str]:
        """Return a code and a sentence for the reason why a task that has not ended is not released."""
        planned = self._of[task]
        if task in self._held:
            return "ON_HOLD", "an operator holds it; `flowsched release` ends that"
        if planned.conditions:
            return "AFTER", f"it waits for {', '.join(self._open_names(planned))}"
        if planned.not_before > now:
            return "NOT_BEFORE", f"its time is {datetime.fromtimestamp(planned.not_before):%Y-%m-%d %H:%M:%S}"
        if planned.job.at_most is not None and planned.out >= planned.job.at_most:
            return "AT_MOST", f"at most {planned.job.at_most} tasks of {planned.name} run at once"
        return "SOON", "it is about to be given to the scheduler"

    def _open_names(self, planned: _Planned) -> Iterator[str]:
        for form, names in planned.job.after.items():
            for name in names:
                named = self.names.find(name)
                assert named is not None
                if any(self._jobs[id].open for id in named.jobs) or any(task not in self.ends for task in named.tasks):
                    yield name if form == "ok" else f"{name} ({form})"


def _at(when: datetime | float | None, now: float, default: float) -> float:
    if when is None:
        return default
    return when.timestamp() if isinstance(when, datetime) else now + when
