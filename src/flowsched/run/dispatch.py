"""Decisions become runs, and what becomes of runs becomes events: the driver's state, without clock and event loop.

A run that has not ended is in one of these states:

* *counted*: the scheduler has its task on its machine.
* *stopping*: the scheduler has taken the machine from it (preemption, migration), and the executor has not told of its end.
* *held*: counted, and not started yet.  A run of the same task or one on the same machine is stopping, and the round may
  have given its room away.

Invariants, whatever is told and in which order:

* A task has at most one counted and one stopping run, and the former is held while there is the latter.  So no task runs
  twice at a time.
* What the executor has been told to start fits on the machine beside all that has not ended there.
* The counted runs are the scheduler's running tasks once `flush` has returned.
* A run ends once.  What is told of a run that has ended or never was is counted as stale, and does nothing.
* A task ends once: when its run ends, when it has failed too often, or when it is cancelled.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from heapq import heappop, heappush
from itertools import count
from math import inf
from sys import maxsize
from typing import Any

from flowsched.boundary.validate import whole
from flowsched.cluster.events import (
    Event,
    JobRemoved,
    JobSubmitted,
    MachineAdded,
    MachineFailed,
    MachineRemoved,
    MachineUpdated,
    TaskCompleted,
    TaskFailed,
    TaskRemoved,
    TaskStarted,
)
from flowsched.cluster.model import MICRO
from flowsched.exceptions import FlowschedError, TimeLimitError
from flowsched.rounds.values import Migrate, Place, Preempt, Round
from flowsched.run.executor import Ended, Executor, Failed, Run, Started, Told
from flowsched.run.work import Active, TaskCancelledError, TaskLostError, Work
from flowsched.scheduler import Scheduler

__all__ = ["Dispatcher"]

LOGGER = logging.getLogger("flowsched")

PATIENCE = 10.0
"""A stop that was not answered for so long is asked for again."""


class Dispatcher:
    """Carries out rounds through an executor, and tells the scheduler what becomes of them.

    Parameters
    ----------
    scheduler : Scheduler
        The dispatcher's own from now on.
    executor : Executor
    losses : int
        So many losses of a task are followed by another run.  A loss says nothing against a task, but a task that kills
        its workers would go on for ever.
    on_end : callable, optional
        See `flowsched.run.Driver`.

    Attributes
    ----------
    stats : Counter
        "rounds", "started", "ended", "failed", "lost", "stopped", "stale" (answers), and "refused" (events of machines).
    dirty : bool
        Something has happened since the last round.
    work : dict of task to Work
        Tasks that have not ended.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        losses: int = 10,
        on_end: Callable[[Hashable, Any, BaseException | None], object] | None = None,
    ) -> None:
        self.scheduler, self.executor, self._on_end = scheduler, executor, on_end
        self.losses = whole("losses", losses, 0)
        self.stats: Counter[str] = Counter()
        self.dirty = False
        self.work: dict[Hashable, Work] = {}
        self._left: Counter[Hashable] = Counter()  # tasks of a job that have not ended
        self._runs: dict[int, Active] = {}
        self._of: dict[Hashable, Active] = {}  # the counted run of a task
        self._stopping: dict[Hashable, Active] = {}  # the stopping run of a task
        self._on: dict[Hashable, dict[int, Active]] = {}
        self._held: dict[int, Active] = {}
        self._due: list[tuple[float, int]] = []
        self._numbers = count(1)
        self._again_at = inf
        self._now = -inf
        self._events: list[Event] = []
        self._over: list[Run] = []
        self._outcomes: list[tuple[Work, Any, BaseException | None]] = []

    # -- work ---------------------------------------------------------------------------------------------------

    def submit(self, job: JobSubmitted, work: Iterable[Work]) -> None:
        """Submit a job; an error leaves everything as it was."""
        self.flush()
        self.scheduler.apply(job)
        self.attach(work)

    def attach(self, work: Iterable[Work]) -> None:
        """Take over tasks that the scheduler knows."""
        for one in work:
            self.work[one.task] = one
            self._left[one.job] += 1
        self.dirty = True

    def cancel(self, task: Hashable, now: float) -> None:
        """Cancel a task: it ends with `TaskCancelledError` once its run was stopped.  One that has ended stays as it is."""
        self._now, work = now, self.work.get(task)
        if work is None:
            return
        error = TaskCancelledError(f"task {task!r} was cancelled")
        active = self._of.get(task)
        if active is not None and not active.held:
            work.retries = -1
            active.why = error
            self._stop(active)
            return
        if active is not None:
            self._forget(active)
        self._finish(work, None, error, TaskRemoved(task))
        self.dirty = True

    def running(self) -> list[Run]:
        """Return the counted runs that the executor was told to start."""
        return [active.run for active in self._of.values() if not active.held]

    @property
    def active(self) -> int:
        """Number of runs that the executor was told to start and that have not ended."""
        return len(self._runs) - len(self._held)

    def stop_all(self, now: float) -> None:
        """Stop every run, for the end of the driver; their tasks wait again."""
        self._now = now
        self.losses = maxsize  # these losses are not the tasks' doing
        for active in list(self._runs.values()):
            if active.held:
                self._forget(active)
                self._events.append(TaskFailed(active.run.task))
            else:
                self._stop(active)

    # -- what is told -------------------------------------------------------------------------------------------

    def hear(self, told: Told, now: float) -> None:
        """Take note of what an executor tells, or of an event of a machine."""
        self._now = now
        if isinstance(told, Event):
            self._hear_machine(told)
        else:
            self._hear_run(told)

    def _hear_run(self, told: Told) -> None:
        active = self._runs.get(getattr(told, "run", 0))
        if active is None or active.held:
            self.stats["stale"] += 1
            return
        if isinstance(told, Started):
            if not active.begun and active.counted and active.why is None:
                self._limit(active)
            active.begun = True
            return
        self.dirty = True
        self._end(active)
        if isinstance(told, Ended):
            self._ended(active, told.value)
        elif active.why is not None:
            self._failed(active, active.why, lost=False)
        elif isinstance(told, Failed):
            self._failed(active, told.error, told.lost or not active.counted)
        elif active.counted:
            self._failed(active, TaskLostError(f"task {active.run.task!r} was stopped by its executor"), lost=True)
        else:
            self.stats["stopped"] += 1
        self._start_held()

    def _ended(self, active: Active, value: Any) -> None:
        task = active.run.task
        self.stats["ended"] += 1
        if active.counted:
            self._finish(active.work, value, None, TaskCompleted(task))
        elif self._awaits(active):  # it was done before it could be stopped, so it need not run again
            self._finish(active.work, value, None, TaskRemoved(task))

    def _failed(self, active: Active, error: BaseException, lost: bool) -> None:
        task, work = active.run.task, active.work
        self.stats["lost" if lost else "failed"] += 1
        over = False
        if work is not None and (active.counted or not lost):
            work.losses += lost
            work.failures += not lost
            over = work.failures > work.retries or work.losses > self.losses
        if active.counted:
            if over:
                self._finish(work, None, error, TaskFailed(task, retry=False))
            else:
                self._events.append(TaskFailed(task))
        elif over and self._awaits(active):
            self._finish(work, None, error, TaskRemoved(task))

    def _awaits(self, active: Active) -> bool:
        """Return True if the task of a run that was stopping waits for another run; one that is held for it is dropped."""
        task, again = active.run.task, self._of.get(active.run.task)
        if self.work.get(task) is not active.work or (again is not None and not again.held):
            return False  # the task has ended, or is another one of that name
        if again is not None:
            self._forget(again)
        return active.work is not None or task in self.scheduler.cluster.tasks

    def _hear_machine(self, event: Event) -> None:
        self.dirty = True
        machine, there = getattr(event, "id", None), self.scheduler.cluster.machines
        if isinstance(event, MachineRemoved | MachineFailed):
            if machine not in there:
                self.stats["stale"] += 1
                return
            self._lose(machine)
        elif isinstance(event, MachineAdded) and machine in there and not there[machine].failed:
            # It was told twice, or the machine went and came back unnoticed.
            same = MachineUpdated(event.id, event.capacity, event.rack, event.labels, event.slots, event.taints)
            if self._happened(same):
                return
            self._lose(machine)
            self._happened(MachineRemoved(machine))
        self._happened(event)
        self._start_held()

    def _happened(self, event: Event) -> bool:
        """Let an event of a machine happen; one that is refused is logged and counted."""
        self.flush()
        try:
            self.scheduler.apply(event)
        except FlowschedError as error:
            self.stats["refused"] += 1
            LOGGER.warning("%s: %s", type(event).__name__, error)
            return False
        return True

    def _lose(self, machine: Hashable) -> None:
        """End all runs on a machine that is gone.  Should they go on there, what they tell is stale."""
        for active in list(self._on.get(machine, {}).values()):
            if active.held:
                self._forget(active)
                self._events.append(TaskFailed(active.run.task))
                continue
            self._stop(active)
            self._end(active)
            if active.why is not None:
                self._failed(active, active.why, lost=False)
            elif active.counted:
                error = TaskLostError(f"task {active.run.task!r} was lost with machine {machine!r}, once too often")
                self._failed(active, error, lost=True)

    # -- rounds -------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Tell the scheduler what has happened; after that the executor and the callers, so that neither is told too early."""
        if self._events:
            events, self._events = self._events, []
            self.scheduler.apply(*events)
        outcomes, self._outcomes = self._outcomes, []
        jobs = self.scheduler.cluster.jobs
        over = dict.fromkeys(work.job for work, _, _ in outcomes if not self._left[work.job])
        closed = [JobRemoved(job) for job in over if job in jobs and not jobs[job].tasks]
        if closed:
            self.scheduler.apply(*closed)
        for job in over:
            del self._left[job]
        released, self._over = self._over, []
        for work, value, error in outcomes:
            work.done(value, error)
        for run in released:
            self.executor.release(run)

    def round(self, now: float, time_limit: float | None = None) -> Round:
        """Decide, and carry out what was decided."""
        self._now = now
        self.flush()
        self.dirty = False
        round = self.scheduler.schedule(now, time_limit)
        done = self.scheduler.commit(round)
        self.stats["rounds"] += 1
        for delta in done.accepted:
            if isinstance(delta, Preempt | Migrate):
                self._displace(self._of[delta.task])
        for delta in done.accepted:
            if isinstance(delta, Place | Migrate):
                work = self.work.get(delta.task)
                payload = None if work is None else work.payload
                demand = self._demand(delta.task)
                run = Run(next(self._numbers), delta.task, delta.machine, delta.devices, payload, demand)
                self._add(Active(run, work, held=True))
        self._start_held()
        # A scheduler that does not tell is asked again after a second.
        self._again_at = now + 1.0 if round.again_at == -inf else round.again_at
        return round

    def _demand(self, task: Hashable) -> dict[str, float]:
        cluster = self.scheduler.cluster
        amounts = (cluster.tasks[task].group.cls.demand / MICRO).tolist()
        return dict(zip(cluster.resources.names, amounts, strict=True))

    def overdue(self, now: float) -> None:
        """Stop the runs whose time is over, and ask again for stops that were not answered."""
        self._now = now
        while self._due and self._due[0][0] <= now:
            active = self._runs.get(heappop(self._due)[1])
            if active is None or active.until > now:
                continue
            if active.counted and active.why is None:
                active.why = TimeLimitError(f"task {active.run.task!r} ran longer than its time limit")
            self._stop(active)

    @property
    def wake(self) -> float:
        """The time at which there is something to do, although nothing happens."""
        return min(self._again_at, self._due[0][0] if self._due else inf)

    # -- an earlier driver --------------------------------------------------------------------------------------

    def recover(self, told: Iterable[Told], runs: Iterable[Run], now: float) -> None:
        """Go on with a scheduler that has tasks, and an executor that has runs: each run is taken over, or stopped.

        Parameters
        ----------
        told : iterable
            What the executor told while it was opened.
        runs : iterable of Run
            Those of before.
        now : float
        """
        told, cluster = list(told), self.scheduler.cluster
        here = {event.id for event in told if isinstance(event, MachineAdded)}
        for machine in [m for m, record in cluster.machines.items() if m not in here and not record.failed]:
            self._happened(MachineRemoved(machine))
        for one in told:
            if isinstance(one, Event):
                self.hear(one, now)
        for run in sorted(runs, key=lambda run: run.number):
            self._numbers = count(run.number + 1)
            active = Active(run, self.work.get(run.task), counted=run.task not in self._of and self._is_there(run))
            self._add(active)
            if active.counted:
                self._limit(active)
            else:
                self._displace(active)
        lost = [task for task in cluster.tasks if task not in self._of and cluster.placement(task) is not None]
        self._events += map(TaskFailed, lost)
        for one in told:
            if not isinstance(one, Event):
                self.hear(one, now)
        self.dirty = True
        self.flush()

    def _is_there(self, run: Run) -> bool:
        """Return True if the scheduler has the task where it runs: by its journal, or from now on."""
        try:
            self.scheduler.apply(TaskStarted(run.task, run.machine, run.devices))
        except FlowschedError:
            return False
        return True

    # -- runs ---------------------------------------------------------------------------------------------------

    def _add(self, active: Active) -> None:
        run = active.run
        self._runs[run.number] = active
        self._on.setdefault(run.machine, {})[run.number] = active
        if active.counted:
            self._of[run.task] = active
        if active.held:
            self._held[run.number] = active

    def _forget(self, active: Active) -> None:
        run = active.run
        del self._runs[run.number], self._on[run.machine][run.number]
        if not self._on[run.machine]:
            del self._on[run.machine]
        self._held.pop(run.number, None)
        for those in (self._of, self._stopping):
            if those.get(run.task) is active:
                del those[run.task]

    def _end(self, active: Active) -> None:
        self._forget(active)
        self._over.append(active.run)

    def _displace(self, active: Active) -> None:
        """Take the machine from a run: one that is held goes, another stops."""
        if active.held:
            self._forget(active)
            return
        task, active.counted = active.run.task, False
        if self._of.get(task) is active:
            del self._of[task]
        self._stopping[task] = active
        self._stop(active)

    def _start_held(self) -> None:
        """Start the runs for which nothing has to stop any more."""
        for active in list(self._held.values()):
            run = active.run
            if run.number not in self._held or run.task in self._stopping:
                continue
            if any(not other.counted for other in self._on[run.machine].values()):
                continue
            active.held = False
            del self._held[run.number]
            self.stats["started"] += 1
            self._limit(active)
            try:
                self.executor.start(run)
            except Exception as error:
                self._hear_run(Failed(run.number, error))

    def _stop(self, active: Active) -> None:
        self._wait(active, PATIENCE)
        try:
            self.executor.stop(active.run)
        except Exception as error:  # its room stays taken, and it is stopped again
            LOGGER.warning("run %d of task %r cannot be stopped: %s", active.run.number, active.run.task, error)

    def _limit(self, active: Active) -> None:
        if active.work is not None and active.work.time_limit is not None:
            self._wait(active, active.work.time_limit)

    def _wait(self, active: Active, seconds: float) -> None:
        active.until = self._now + seconds
        heappush(self._due, (active.until, active.run.number))

    def _finish(self, work: Work | None, value: Any, error: BaseException | None, event: Event) -> None:
        """Let a task end, and its job with the last one."""
        self._events.append(event)
        if work is not None:
            if self._on_end is not None:
                self._on_end(work.task, value, error)
            del self.work[work.task]
            self._left[work.job] -= 1
            self._outcomes.append((work, value, error))
