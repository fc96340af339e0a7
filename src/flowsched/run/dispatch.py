"""The driver's state, without clock and event loop: it turns decisions into runs, and outcomes of runs into events.

A run that has not ended is in one of these states:

* *counted*: the scheduler has its task on its machine.
* *stopping*: the scheduler has taken the machine from it (preemption, migration), and its end is not reported yet.
* *held*: counted, and not started yet.  A run of the same task or one on the same machine is stopping, and the round may
  have given its room away; or so it is for another run of its gang; or its machine has no room yet, see
  `flowsched.run.ahead`.

Invariants, for any reports in any order:

* A task has at most one counted and one stopping run, and the former is held while there is the latter.  So no task runs
  twice at a time.
* The runs sent to the executor fit on the machine together with all runs that have not left or ended there, or the
  executor itself holds them back until they do.
* The counted runs are the scheduler's running tasks once `flush` has returned.
* A run ends once.  A report of an ended or unknown run is counted as stale, and has no effect.
* A task ends once: when its run ends, when it has failed too often, or when it is cancelled.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from math import inf
from sys import maxsize
from typing import Any

from flowsched.boundary.validate import whole
from flowsched.cluster.events import (
    Event,
    JobSubmitted,
    MachineAdded,
    MachineDrained,
    MachineFailed,
    MachineRemoved,
    MachineSampled,
    MachineUpdated,
    TaskCompleted,
    TaskFailed,
    TaskRemoved,
    TaskStarted,
    UsageSampled,
)
from flowsched.cluster.model import Task
from flowsched.exceptions import FlowschedError, InputError
from flowsched.rounds.values import Migrate, Place, Round
from flowsched.run.ahead import Ahead
from flowsched.run.executor import (
    Active,
    Decider,
    Ended,
    Executor,
    Failed,
    Left,
    Run,
    Started,
    TaskCancelledError,
    TaskLostError,
    Told,
    Watcher,
    Work,
    given,
)
from flowsched.run.outlook import Outlook
from flowsched.run.runs import LOGGER, Runs
from flowsched.run.unfit import Unfit

QUIET = 0.05
"""Least time to a round if nothing happens before it, in seconds; while runs are under way, something nearly always does."""


class Dispatcher:
    """Carries out rounds through an executor, and applies their outcomes to the scheduler, its own from now on.

    A task that was lost runs again `losses` times: a loss is no fault of a task, but a task that kills its workers
    would go on for ever.  The other options are those of `flowsched.run.Driver`.

    * `stats`: "rounds", "started", "ended", "failed", "lost", "stopped", "stale" (answers), and "refused" (descriptions
      of machines and samples).
    * `dirty`: something has happened since the last round.
    * `work`: tasks that have not ended.
    * `closed`: machines that take no tasks until `resume`, whatever their executor reports of them.
    * `refused`: descriptions of machines that the scheduler refuses, each with its error.  Each is tried again after
      every report of its machine, and when another machine has gone.
    """

    def __init__(
        self,
        scheduler: Decider,
        executor: Executor,
        losses: int = 10,
        on_end: Callable[[Hashable, Any, BaseException | None], object] | None = None,
        ahead: float | None = None,
        patience: float | None = None,
        elastic: bool = False,
        watcher: Watcher | None = None,
    ) -> None:
        self.outlook = Outlook(scheduler, executor, patience, elastic)
        self.unfit = Unfit(scheduler)
        # Runs that are matched by their needs have room beyond what they ask for, so there is none to be given ahead.
        self.ahead = Ahead(scheduler.cluster, executor, 0.0 if scheduler.cluster.inventory.rule is not None else ahead)
        self.scheduler, self.executor, self._on_end = scheduler, executor, on_end
        self.losses = whole("losses", losses, 0)
        self.runs = Runs(executor, self.ahead, self._hear_run, watcher)
        self._watcher = watcher
        self.stats = self.runs.stats
        self.dirty = False
        self.work: dict[Hashable, Work] = {}
        self.closed: set[Hashable] = set()
        self._ending = False
        self.refused: dict[Hashable, tuple[MachineAdded | MachineUpdated, FlowschedError]] = {}
        self._skipped = 0  # of the scheduler's numbers, where an executor has runs that it has lost
        self._again_at = inf
        self._events: list[Event] = []
        self._samples: list[Event] = []
        self._outcomes: list[tuple[Work, Any, BaseException | None]] = []

    # -- work ---------------------------------------------------------------------------------------------------

    def submit(self, job: JobSubmitted, work: Iterable[Work]) -> None:
        """Submit a job, which goes with its last task; an error leaves everything as it was."""
        self.flush()
        self.scheduler.apply(replace(job, closed=True))
        self.attach(work, job.tasks)

    def attach(self, work: Iterable[Work], submitted: Iterable[Task] = ()) -> None:
        """Take over tasks that the scheduler knows."""
        new = {one.task: one for one in work}
        self.work.update(new)
        self.ahead.expect(new)
        self.outlook.expect(new.values(), submitted)
        self.dirty = True

    def cancel(self, task: Hashable, now: float) -> None:
        """Cancel a task: it ends with `TaskCancelledError` once its run was stopped.  One that has ended stays as it is."""
        self.runs.now, work = now, self.work.get(task)
        if work is None:
            return
        error = TaskCancelledError(f"task {task!r} was cancelled")
        active = self.runs.of.get(task)
        if active is not None and not active.held:
            active.why = error
            self.runs.stop(active)
            return
        if active is not None:
            self.runs.forget(active)
        self._finish(work, None, error, TaskRemoved(task))
        self.dirty = True

    def withdraw(self, tasks: Iterable[Hashable], now: float) -> dict[Hashable, int | None]:
        """Take tasks that wait back from the scheduler; return them with the retries that they have left.

        Those that run, or are being stopped, stay.
        """
        self.runs.now = now
        self.flush()
        back: dict[Hashable, int | None] = {}
        for task in tasks:
            active = self.runs.of.get(task)
            if task not in self.work or task in self.runs.stopping or (active is not None and not active.held):
                continue
            if active is not None:
                self.runs.forget(active)
            attempts = self.scheduler.cluster.attempts.get(task)
            back[task] = None if attempts is None else attempts.left
            del self.work[task]
        self.scheduler.apply(*(TaskRemoved(task) for task in back))
        self.runs.advance_held()
        self.dirty = True
        return back

    def drain(self, machine: Hashable, now: float) -> None:
        """Give a machine no more tasks until `resume`; one that is not there, once it comes.

        Tasks that only it could run wait, without a limit of patience.
        """
        self.runs.now = now
        self.closed.add(machine)
        if machine in self.scheduler.cluster.machines:
            self._happened(MachineDrained(machine))
        self.dirty = True

    def resume(self, machine: Hashable, now: float) -> None:
        """End a drain; also that of a machine that could not begin runs."""
        self.closed.discard(machine)
        if machine in self.scheduler.cluster.machines:
            self.hear(MachineUpdated(machine), now)

    def running(self) -> list[Run]:
        """Return the counted runs that were sent to the executor."""
        return [active.run for active in self.runs.of.values() if not active.held]

    def under_way(self) -> list[Run]:
        """Return all runs that were sent to the executor and have not ended."""
        return [active.run for number, active in self.runs.by_number.items() if number not in self.runs.held]

    @property
    def active(self) -> int:
        """Number of runs that were sent to the executor and have not ended."""
        return len(self.runs.by_number) - len(self.runs.held)

    def stop_all(self, now: float) -> None:
        """Stop every run, for the end of the driver; their tasks wait again."""
        self.runs.now, self._again_at = now, inf
        self._ending = True
        self.losses = maxsize  # these losses are not the tasks' doing
        for active in list(self.runs.by_number.values()):
            if active.held:
                self.runs.forget(active)
                self._events.append(TaskFailed(active.run.task, lost=True))
            else:
                self.runs.stop(active)

    # -- reports ------------------------------------------------------------------------------------------------

    def hear(self, told: Told, now: float) -> None:
        """Process a report of the executor, or an event of a machine."""
        self.runs.now = now
        if isinstance(told, UsageSampled) and told.run is not None:
            active = self.runs.by_number.get(told.run)
            if active is None or not active.counted:
                self.stats["stale"] += 1
                return
            told = replace(told, run=active.counted)
        if isinstance(told, Event):
            self._hear_machine(told)
        else:
            self._hear_run(told)

    def _hear_run(self, told: Told) -> None:
        active = self.runs.by_number.get(getattr(told, "run", 0))
        if active is None or active.held:
            self.stats["stale"] += 1
            return
        if isinstance(told, Started):
            if not active.begun:
                self.runs.limit(active)
            active.begun = True
            return
        if isinstance(told, Left):
            self.runs.left(active)
            self.dirty = True
            return
        self.dirty = True
        self.runs.end(active)
        self._watched(active, told)
        if isinstance(told, Ended) or (isinstance(told, Failed) and not told.lost and not told.unfit):
            self.unfit.begun(active.run.machine)
        if isinstance(told, Ended):
            self._ended(active, told.value)
        elif active.why is not None:
            self._failed(active, active.why, lost=False)
        elif isinstance(told, Failed):
            self._fail(active, told)
        elif active.counted:
            self._failed(active, TaskLostError(f"task {active.run.task!r} was stopped by its executor"), lost=True)
        else:
            self.stats["stopped"] += 1
        again = self.runs.of.get(active.run.task)
        self.runs.advance(active.run.machine, active.run.machine if again is None else again.run.machine)

    def _watched(self, active: Active, told: Told | None) -> None:
        """Report the end of a run to the watcher; None for one whose machine is gone."""
        if self._watcher is None:
            return
        error: BaseException | None = active.why
        if isinstance(told, Ended):
            outcome, error = "done", None
        elif isinstance(active.why, TaskCancelledError):
            outcome = "cancelled"
        elif active.why is not None:
            outcome = "timeout"
        elif not active.counted:
            outcome = "preempted"
        elif told is None or (isinstance(told, Failed) and told.lost):
            outcome, error = "lost", None if told is None else told.error
        elif isinstance(told, Failed):
            outcome, error = "failed", told.error
        else:
            outcome = "stopped" if self._ending else "lost"
        self._watcher.ended(active.run, self.runs.now, outcome, error, getattr(told, "used", {}))

    def _ended(self, active: Active, value: Any) -> None:
        task = active.run.task
        self.stats["ended"] += 1
        if active.counted:
            self._finish(active.work, value, None, TaskCompleted(task, run=active.counted))
        elif self._awaits(active):  # it was done before it could be stopped, so it need not run again
            self._finish(active.work, value, None, TaskRemoved(task))

    def _fail(self, active: Active, told: Failed) -> None:
        """Record the failure of a run; if its machine could not begin it, the task is not blamed at first."""
        if not told.unfit or not active.counted or active.work is None:
            self._failed(active, told.error, told.lost or not active.counted)
            return
        spared, changes = self.unfit.failed(active.work, active.run.machine, told.error)
        active.work.losses -= spared  # this one does not count
        self._failed(active, told.error, lost=spared)
        for change in changes:
            self.outlook.note(change)
            self._happened(change)

    def _failed(self, active: Active, error: BaseException, lost: bool) -> None:
        task, work, cancelled = active.run.task, active.work, isinstance(error, TaskCancelledError)
        self.stats["lost" if lost else "failed"] += 1
        if not active.counted:
            if cancelled and self._awaits(active):
                self._finish(work, None, error, TaskRemoved(task))
            return
        if lost:
            over = False
            if work is not None and active.since < inf:  # it may have begun
                work.losses += 1
                over = work.losses > self.losses
        else:
            attempts = self.scheduler.cluster.attempts.get(task)
            over = cancelled or (work is not None if attempts is None else not attempts.left)
        if over:
            self._finish(work, None, error, TaskFailed(task, retry=False, run=active.counted, lost=lost))
        else:
            self._events.append(TaskFailed(task, run=active.counted, lost=lost))

    def _awaits(self, active: Active) -> bool:
        """Return True if the task of a run that was stopping waits for another run; one that is held for it is dropped."""
        task, again = active.run.task, self.runs.of.get(active.run.task)
        if self.work.get(task) is not active.work or (again is not None and not again.held):
            return False  # the task has ended, or is another one of that name
        if again is not None:
            self.runs.forget(again)
        return active.work is not None or task in self.scheduler.cluster.tasks

    def _hear_machine(self, event: Event) -> None:
        self.dirty = True
        self.outlook.note(event)
        machine, there = getattr(event, "id", None), self.scheduler.cluster.machines
        if isinstance(event, MachineAdded | MachineUpdated | MachineRemoved | MachineFailed):
            self.unfit.forget(machine)
        match event:
            case MachineRemoved() | MachineFailed() | MachineDrained() if machine not in there:
                if isinstance(event, MachineDrained) or self.refused.pop(machine, None) is None:
                    self.stats["stale"] += machine not in self.refused
            case MachineRemoved() | MachineFailed():
                self.refused.pop(machine, None)
                self._lose(machine)
                self.ahead.gone(machine)
                self._happened(event)
                for other, _ in list(self.refused.values()):
                    self._describe(other)
            case MachineAdded() | MachineUpdated():
                self._describe(event)
            case UsageSampled() | MachineSampled():
                self._samples.append(event if event.time is not None else replace(event, time=self.runs.now))
            case _:
                self._happened(event)
        self.runs.advance_held()

    def _describe(self, event: MachineAdded | MachineUpdated) -> None:
        """Describe a machine to the scheduler.  Where that is refused, the machine takes no tasks until it is described otherwise.

        A machine that is reported twice may have gone and come back unnoticed: its executor reports the ends of its runs.
        """
        machine, there = event.id, self.scheduler.cluster.machines
        if machine in self.refused and isinstance(event, MachineUpdated):
            event = replace(self.refused[machine][0], **given(event))
        parts = given(event)
        known = machine in there
        if known and not there[machine].failed:
            event = MachineUpdated(machine, **parts, time=event.time)
        elif not known:
            if event.capacity is None:
                self.stats["stale"] += 1
                return
            event = MachineAdded(machine, **parts, time=event.time)
        try:
            self._happened(event)
            self.refused.pop(machine, None)
        except FlowschedError as error:
            self.stats["refused"] += 1
            self.refused[machine] = event, error
            LOGGER.warning("machine %r takes no tasks, as its description is refused: %s", machine, error)
            if known and not there[machine].drained:
                self._happened(MachineDrained(machine))

    def _happened(self, event: Event) -> None:
        """Apply an event of a machine."""
        self.flush()
        self.scheduler.apply(self.ahead.bounded(event))
        self.ahead.note(event)
        if isinstance(event, MachineAdded | MachineUpdated) and event.id in self.closed:
            self._happened(MachineDrained(event.id))

    def check_machines(self) -> None:
        """Refuse to go on without any machine whose description the scheduler takes, where there are others.

        The InputError has the reasons of those that are refused.
        """
        if self.refused and self.scheduler.cluster.machines.keys() <= self.refused.keys():
            reasons = dict.fromkeys(str(error) for _, error in self.refused.values())
            raise InputError(f"driver: all machines are refused: {'; '.join([*reasons][:3])}")

    def _lose(self, machine: Hashable) -> None:
        """End all runs on a machine that is gone.  Should they go on there, their reports are stale."""
        for active in list(self.runs.on.get(machine, {}).values()):
            if active.held:
                self.runs.forget(active)
                continue
            self.runs.stop(active)
            self.runs.end(active)
            self._watched(active, None)
            if active.why is not None:
                self._failed(active, active.why, lost=False)
            elif active.counted:
                error = TaskLostError(f"task {active.run.task!r} was lost with machine {machine!r}, once too often")
                self._failed(active, error, lost=True)

    # -- rounds -------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Apply pending events to the scheduler first, then report to executor and callers, so neither learns them early."""
        samples, self._samples = self._samples, []
        while samples:  # together, since a journal writes each call
            try:
                self.scheduler.apply(*samples)
                break
            except FlowschedError as refusal:  # another sample will follow
                self.stats["refused"] += 1
                LOGGER.warning("%s: %s", type(samples[refusal.index or 0]).__name__, refusal)
                samples = samples[(refusal.index or 0) + 1 :]
        if self._events:
            events, self._events = self._events, []
            self.scheduler.apply(*events)
        outcomes, self._outcomes = self._outcomes, []
        released, self.runs.over = self.runs.over, []
        for work, value, error in outcomes:
            work.done(value, error)
        for run in released:
            self.executor.release(run)

    def round(self, now: float, time_limit: float | None = None) -> Round:
        """Decide a round, and carry it out."""
        self.runs.now = now
        self.flush()
        self.dirty = False
        self.scheduler.apply(*self.ahead.updates())
        if self.scheduler.journal is not None and self.scheduler.journal.long:
            self.scheduler.compact()
        round = self.scheduler.schedule(now, time_limit)
        permitted = getattr(self.executor, "permitted", None)
        done = self.scheduler.commit(round, None if permitted is None else permitted(round))
        self.stats["rounds"] += 1
        for ended in done.ended:
            self.runs.displace(self.runs.of[ended.task])
        for delta in done.accepted:
            if isinstance(delta, Place | Migrate):
                work, number = self.work.get(delta.task), done.runs[delta.task]
                payload = None if work is None else work.payload
                demand = self.ahead.demand(delta.task)
                if not self.ahead.fits(delta.machine, demand):
                    self._events.append(TaskFailed(delta.task, run=number, lost=True))
                    self.dirty = True
                    continue
                amounts = self.ahead.amounts(demand)
                job = self.scheduler.cluster.tasks[delta.task].group.job.job
                gang = None if job.gang is None else job.id
                run = Run(number + self._skipped, delta.task, delta.machine, delta.devices, payload, amounts, gang)
                self.runs.add(Active(run, work, number, demand, held=True, waits=self.ahead.holds(run)))
        self.runs.advance_held()
        for one, error in self.outlook.hopeless(self.work, now):
            if one.task in self.work and one.task not in self.runs.of:
                self._finish(one, None, error, TaskRemoved(one.task))
                self.dirty = True
        self.ahead.look(now, len(round.waiting))
        self.dirty = self.dirty or self.ahead.next is not None
        self._again_at = max(round.again_at, now + QUIET)
        decided = getattr(self.executor, "decided", None)
        if decided is not None:
            decided(round)
        return round

    def overdue(self, now: float) -> None:
        """Stop the runs whose time is over, and ask again for stops that were not answered."""
        self.runs.now = now
        self.runs.overdue()

    @property
    def wake(self) -> float:
        """The time at which there is something to do, although nothing happens."""
        return min(self._again_at, self.runs.due, self.outlook.due)

    # -- an earlier driver --------------------------------------------------------------------------------------

    def recover(self, told: Iterable[Told], runs: Iterable[Run], now: float) -> None:
        """Go on with a scheduler that has tasks, and an executor that has runs: each run is taken over, or stopped.

        `told` are the reports of the executor while it was opened, `runs` those of an earlier driver.
        """
        told, runs, cluster = list(told), sorted(runs, key=lambda run: run.number), self.scheduler.cluster
        self.ahead.expect(cluster.tasks)
        here = {event.id for event in told if isinstance(event, MachineAdded)}
        for machine in [m for m, record in cluster.machines.items() if m not in here and not record.failed]:
            self._happened(MachineRemoved(machine))
        for one in told:
            if isinstance(one, Event):
                self.hear(one, now)
        for run in runs:
            counted = self._adopted(run)
            active = Active(run, self.work.get(run.task), counted, self.ahead.demand(run.task) if counted else None)
            self.runs.add(active)
            if self._watcher is not None:
                self._watcher.started(run, now)
            if not active.counted:
                self.runs.displace(active)
        self.check_machines()
        self.runs.advance(*self.runs.on)
        self._skipped = max([run.number - cluster.runs for run in runs] + [0])
        lost = [task for task in cluster.tasks if task not in self.runs.of and cluster.placement(task) is not None]
        self._events += [TaskFailed(task, lost=True) for task in lost]
        for one in told:
            if not isinstance(one, Event):
                self.hear(one, now)
        self.dirty = True
        self.flush()

    def adopt(self, job: JobSubmitted, work: Work, machine: Hashable, since: float | None, now: float) -> Run:
        """Take over a task that runs already; an error leaves everything as it was."""
        self.runs.now = now
        self.flush()
        started = TaskStarted(work.task, machine, time=since)
        self.scheduler.apply(replace(job, closed=True), started, atomic=True)
        self.attach([work], job.tasks)
        record, demand = self.scheduler.cluster.tasks[work.task], self.ahead.demand(work.task)
        number = record.run + self._skipped
        run = Run(number, work.task, machine, record.devices, work.payload, self.ahead.amounts(demand))
        if self._watcher is not None:
            self._watcher.started(run, now if since is None else since)
        self.runs.add(Active(run, work, record.run, demand))
        self.runs.advance(machine)
        return run

    def _adopted(self, run: Run) -> int:
        """Return the scheduler's number of a run if it has the task there, by its journal or from now on; 0 otherwise."""
        try:
            if run.task not in self.runs.of:
                self.scheduler.apply(TaskStarted(run.task, run.machine, run.devices))
                return self.scheduler.cluster.tasks[run.task].run
        except FlowschedError:
            pass
        return 0

    def _finish(self, work: Work | None, value: Any, error: BaseException | None, event: Event) -> None:
        """End a task, and its job with its last task."""
        self._events.append(event)
        if work is not None:
            if self._on_end is not None:
                self._on_end(work.task, value, error)
            del self.work[work.task]
            self._outcomes.append((work, value, error))
