"""The driver: an asyncio task that owns a scheduler, and carries its decisions out.

One task of the event loop makes all rounds, so the scheduler is never called twice at a time.  A round is made when
something has happened, or at the time that the last round named, and never sooner than a least interval after it: one
round covers all reports of that interval.  Nothing waits for a clock while the cluster is quiet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from math import inf
from types import TracebackType
from typing import Any, Self

from flowsched.boundary.validate import mapping, number, seconds, whole
from flowsched.cluster.events import Event, JobSubmitted
from flowsched.exceptions import FlowschedError, InputError
from flowsched.hrm.clocks import Steady
from flowsched.rounds.values import Round
from flowsched.run.dispatch import Dispatcher
from flowsched.run.executor import (
    Broken,
    Decider,
    Executor,
    ExecutorError,
    Run,
    TaskCancelledError,
    Told,
    Watcher,
    Work,
)

CLOSING = 30.0
"""Seconds in which the runs have to end when the driver closes."""

BROKEN = 5.0
"""Seconds in which they have to end where the executor has failed."""


class Driver:
    """Runs tasks where a scheduler says.

    An asynchronous context manager: it begins with the machines and runs that the executor has, and stops all runs at its
    end.  All calls are made in the thread of its event loop.

    Parameters
    ----------
    scheduler : Scheduler or FineGrained
        The driver's own from now on.  `FineGrained` learns what tasks need where the executor samples that, as
        `LocalExecutor` does with ``sample=``.  With a journal, a driver that is killed is followed by another one over the same
        journal: see `attach`.
    executor : Executor
    interval : float
        Least time between two rounds, in seconds.
    losses : int
        Number of times that a task whose worker or machine died runs again, in addition to its retries.
    round_limit : float, optional
        Seconds of computing for one round.
    on_end : callable, optional
        Called with each task that ends, its result and its error, before the scheduler's journal has the end.  So no end is
        left out when a driver is killed, but its successor may report one again.
    ahead : float, optional
        Seconds of work that may wait at a machine for the runs before it while tasks wait for room, so that short runs
        follow each other without a round in between; the scheduler's books give machines as much more capacity.  A better
        task that comes meanwhile starts later by as much.  0 for none.  By default the measured time between an end and
        the next start.
    patience : float, optional
        Seconds for which a task waits while no machine is there that could run it, since all of them are gone or drained;
        then it fails with `NeverRunsError`.  One that no machine could ever run fails at once.  By default all wait.
    elastic : bool
        Larger machines may come: a task that none could ever run waits for `patience`, too.
    clock : callable, optional
        The time of the scheduler, in seconds; it must go on over the lives of a journal.  By default the time of day when
        the driver was made, and steady from then on.
    watcher : Watcher, optional
        Observes all runs, those of an earlier driver included.

    Attributes
    ----------
    scheduler : Scheduler or FineGrained
    last : Round or None
        The last round; `waiting` has the reasons of the tasks that wait.
    on_round : callable or None
        Called with each round, after it was carried out.

    Examples
    --------
    >>> import asyncio
    >>> import flowsched as fs
    >>> from flowsched.run import Driver, LocalExecutor
    >>> async def main():
    ...     async with Driver(fs.Scheduler(resources=("cpu",)), LocalExecutor({"cpu": 2})) as driver:
    ...         job = fs.JobSubmitted("hello", [fs.Task(f"hello-{i}", {"cpu": 1}) for i in range(3)])
    ...         done = driver.submit(job, {task.id: ["true"] for task in job.tasks})
    ...         return await asyncio.gather(*done.values())
    >>> asyncio.run(main())
    [0, 0, 0]
    """

    def __init__(
        self,
        scheduler: Decider,
        executor: Executor,
        *,
        interval: float = 0.01,
        losses: int = 10,
        round_limit: float | None = None,
        on_end: Callable[[Hashable, Any, BaseException | None], object] | None = None,
        ahead: float | None = None,
        patience: float | None = None,
        elastic: bool = False,
        clock: Callable[[], float] | None = None,
        watcher: Watcher | None = None,
    ) -> None:
        self.scheduler, self.executor = scheduler, executor
        self.last: Round | None = None
        self.on_round: Callable[[Round], object] | None = None
        self._interval = number("interval", interval, 0)
        self._round_limit, self._clock = round_limit, Steady() if clock is None else clock
        ahead = None if ahead is None else number("ahead", ahead, 0)
        patience = None if patience is None else number("patience", patience, 0)
        self._dispatch = Dispatcher(scheduler, executor, losses, on_end, ahead, patience, elastic, watcher)
        self._inbox: list[Told] = []
        self._news = asyncio.Event()
        self._futures: dict[Hashable, asyncio.Future[Any]] = {}
        self._owner: asyncio.Task[None] | None = None
        self._closing = False
        self._idle = asyncio.Event()
        self._idle.set()

    # -- tasks --------------------------------------------------------------------------------------------------

    def submit(
        self, job: JobSubmitted, payloads: Mapping[Any, Any], *, retries: int = 0, time_limit: float | None = None
    ) -> dict[Hashable, asyncio.Future[Any]]:
        """Submit a job; return the futures of its tasks.

        Parameters
        ----------
        job : JobSubmitted
            It is closed: it goes with its last task, so that its id may be used again.
        payloads : mapping of task to object
            The objects to execute: commands for `LocalExecutor`, calls for `DaskExecutor`.
        retries : int
            `Task.retries` of the tasks that have none of their own.
        time_limit : float, optional
            Seconds after which a run is stopped, and has failed with `TimeLimitError`.

        Returns
        -------
        dict of task to Future
            Its result is the one that the executor reported, its exception the error of the last run.  Cancelling it
            cancels the task.

        Raises
        ------
        FlowschedError
            The scheduler refuses the job, or a task has no payload.  Nothing was submitted.
        """
        work = self._work([task.id for task in job.tasks], payloads, time_limit)
        if whole("retries", retries, 0):
            own = [replace(task, retries=retries) if task.retries is None else task for task in job.tasks]
            job = replace(job, tasks=own)
        self._check_open()
        counted = getattr(self.executor, "counted", None)
        self._dispatch.submit(job if counted is None else counted(job), work)
        return self._promised(work)

    def attach(
        self, payloads: Mapping[Any, Any], *, time_limit: float | None = None
    ) -> dict[Hashable, asyncio.Future[Any]]:
        """Give the payloads of tasks that a recovered scheduler knows, before the driver begins.

        Parameters
        ----------
        payloads : mapping of task to object
            Tasks that the scheduler does not know have ended; they are left out.
        time_limit : float, optional
            See `submit`.
        """
        if self._owner is not None:
            raise InputError("attach: tasks are attached before the driver begins")
        known = self.scheduler.cluster.tasks
        tasks = [task for task in mapping("payloads", payloads) if task in known]
        work = self._work(tasks, payloads, time_limit)
        self._dispatch.attach(work)
        return self._promised(work)

    def adopt(
        self, job: JobSubmitted, payload: Any, machine: Hashable, since: float | None = None
    ) -> tuple[Run, asyncio.Future[Any]]:
        """Take over a task that the executor has found running; return its run and its future.

        Parameters
        ----------
        job : JobSubmitted
            Of this task only.
        payload : object
        machine : hashable
        since : float, optional
            The time of its start.

        Raises
        ------
        FlowschedError
            The scheduler refuses the job, or does not know the machine.  Nothing was taken over.
        """
        self._check_open()
        inbox, self._inbox = self._inbox, []
        for told in inbox:  # the machine's description may be among them
            if isinstance(told, Broken):
                self._hear(told)
            else:
                self._dispatch.hear(told, self._clock())
        work = self._work([task.id for task in job.tasks], {task.id: payload for task in job.tasks}, None)
        run = self._dispatch.adopt(job, work[0], machine, since, self._clock())
        return run, self._promised(work)[run.task]

    def _work(self, tasks: list[Hashable], payloads: Mapping[Any, Any], limit: float | None) -> list[Work]:
        if limit is not None:
            limit = seconds("time_limit", limit)
        for task in tasks:
            if task not in mapping("payloads", payloads):
                raise InputError(f"payloads: task {task!r} has none")
        return [Work(task, payloads[task], partial(self._settle, task), limit) for task in tasks]

    def _settle(self, task: Hashable, value: Any, error: BaseException | None) -> None:
        future = self._futures.pop(task)
        if not self._futures:
            self._idle.set()
        if future.done():
            return
        if error is None:
            future.set_result(value)
        elif isinstance(error, TaskCancelledError):
            future.cancel()
        else:
            future.set_exception(error)
            future.exception()  # marks the error as retrieved: a caller may ignore a future, as the statistics have the task's end

    def _promised(self, work: list[Work]) -> dict[Hashable, asyncio.Future[Any]]:
        loop, futures = asyncio.get_running_loop(), dict[Hashable, asyncio.Future[Any]]()
        for one in work:
            future = futures[one.task] = self._futures[one.task] = loop.create_future()
            future.add_done_callback(partial(self._cancelled, one.task))
            self._idle.clear()
        self._news.set()
        return futures

    def _cancelled(self, task: Hashable, future: asyncio.Future[Any]) -> None:
        if future.cancelled() and self._futures.get(task) is future:
            self.cancel(task)

    def cancel(self, task: Hashable) -> None:
        """Cancel a task, as the cancellation of its future does."""
        self._dispatch.cancel(task, self._clock())
        self._news.set()

    def withdraw(self, tasks: Iterable[Hashable]) -> dict[Hashable, int | None]:
        """Take tasks back, as if they had not been submitted; their futures are cancelled.

        Parameters
        ----------
        tasks : iterable of hashable
            Tasks that run, are being stopped or have ended stay as they are.

        Returns
        -------
        dict of task to int or None
            The tasks that were taken back, and the number of retries that each has left.
        """
        self._check_open()
        back = self._dispatch.withdraw(tasks, self._clock())
        for task in back:
            future = self._futures.pop(task, None)
            if future is not None:
                future.cancel()
        if not self._futures:
            self._idle.set()
        self._news.set()
        return back

    def drain(self, machine: Hashable) -> None:
        """Give a machine no more tasks until `resume`; its running tasks go on.

        A drain holds whatever the executor reports of the machine, and for one that is not there yet.  A task that only
        such a machine could run waits, whatever `patience` is.
        """
        self._dispatch.drain(machine, self._clock())
        self._news.set()

    def resume(self, machine: Hashable) -> None:
        """End a drain, also that of a machine that could not begin runs."""
        self._dispatch.resume(machine, self._clock())
        self._news.set()

    @property
    def closed(self) -> Collection[Hashable]:
        """Machines that `drain` has closed."""
        return self._dispatch.closed

    @property
    def unfit(self) -> Mapping[Hashable, str]:
        """Machines that were drained since they could not begin several runs in a row, with the last reason."""
        return self._dispatch.unfit.drained

    @property
    def now(self) -> float:
        """The time of the driver's clock."""
        return self._clock()

    def tell(self, *events: Event) -> None:
        """Report events of machines that do not come from the executor: `MachineDrained`, `MachineFailed` ..."""
        for event in events:
            self._hear(event)

    def running(self) -> list[Run]:
        """Return the runs that were sent to the executor, except those that are stopping."""
        return self._dispatch.running()

    def under_way(self) -> list[Run]:
        """Return all runs that were sent to the executor and have not ended, stopping ones included."""
        return self._dispatch.under_way()

    def knows(self, task: Hashable) -> bool:
        """Return True if a task was submitted and has not ended, or if a run of it is being stopped."""
        return task in self._dispatch.work or task in self._dispatch.runs.stopping

    @property
    def has_begun(self) -> bool:
        """True once the executor is open, and the runs of an earlier driver were taken over."""
        return self._owner is not None

    @property
    def closing(self) -> bool:
        """True once `close` was called: the runs are being stopped."""
        return self._closing

    @property
    def stats(self) -> dict[str, int]:
        """Counts: rounds, and runs that were started, have ended, failed, were lost or stopped; answers that were stale."""
        return dict(self._dispatch.stats)

    @property
    def refused(self) -> dict[Hashable, str]:
        """Machines that take no tasks since the scheduler refuses their descriptions, each with the reason.

        Such a machine is tried again after each report of it.  Where no other machine is left, the driver fails.
        """
        return {machine: str(error) for machine, (_, error) in self._dispatch.refused.items()}

    async def drained(self) -> None:
        """Wait until no task is left, cancelled ones that are still being stopped included."""
        self._check_open()
        assert self._owner is not None
        idle = asyncio.create_task(self._idle.wait())
        try:
            await asyncio.wait([idle, self._owner], return_when=asyncio.FIRST_COMPLETED)
        finally:
            idle.cancel()
        self._check_open()

    async def ended(self) -> None:
        """Wait until the driver has failed, and raise its error."""
        assert self._owner is not None
        await asyncio.wait([self._owner])
        self._owner.result()

    # -- life ---------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        told: list[Told] = []
        hear = told.append
        runs = await self.executor.open(lambda one: hear(one))
        try:
            if broken := [one for one in told if isinstance(one, Broken)]:
                raise self._error_of(broken[0])
            self._dispatch.recover(told, runs, self._clock())
        except BaseException:
            await self.executor.close()
            raise
        hear = self._hear
        self._owner = asyncio.create_task(self._own())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop all runs, wait for their ends, and release the executor.  Futures that are left are cancelled."""
        if self._owner is None or self._closing:
            return
        self._closing = True
        try:
            if not self._owner.done():
                self._dispatch.stop_all(self._clock())
                self._news.set()
                await asyncio.wait([self._owner], timeout=CLOSING)
                self._owner.cancel()
            elif not self._owner.cancelled() and isinstance(self._owner.exception(), ExecutorError):
                self._dispatch.stop_all(self._clock())
                rest = asyncio.create_task(self._loop())
                await asyncio.wait([rest], timeout=BROKEN)
                rest.cancel()
                await asyncio.gather(rest, return_exceptions=True)
            await asyncio.wait([self._owner])
        finally:
            futures, self._futures = self._futures, {}
            for future in futures.values():
                future.cancel()
            await self.executor.close()
        if not self._owner.cancelled():
            self._owner.result()

    def _check_open(self) -> None:
        if self._owner is None or self._closing:
            raise InputError("driver: it has not begun, or is closed; use 'async with'")
        if self._owner.done():
            self._owner.result()

    def _hear(self, told: Told) -> None:
        self._inbox.append(told)
        self._news.set()

    async def _own(self) -> None:
        try:
            await self._loop()
        except Exception as error:
            for future in list(self._futures.values()):
                if not future.done():
                    future.set_exception(error)
            raise

    def _error_of(self, broken: Broken) -> ExecutorError:
        error, name = broken.error, type(self.executor).__name__
        text = str(error) if isinstance(error, FlowschedError) else f"{type(error).__name__}: {error}"
        failed = ExecutorError(f"{name} cannot go on: {text}")
        failed.__cause__ = error
        return failed

    async def _loop(self) -> None:
        dispatch, earliest = self._dispatch, -inf
        while True:
            self._news.clear()
            now = self._clock()
            inbox, self._inbox = self._inbox, []
            for told in inbox:
                if not isinstance(told, Broken):
                    dispatch.hear(told, now)
                elif not self._closing:
                    raise self._error_of(told)
            dispatch.check_machines()
            dispatch.overdue(now)
            dispatch.flush()
            if self._closing and not dispatch.active:
                return
            due = now >= earliest or dispatch.ahead.next is not None
            if not self._closing and (dispatch.dirty or dispatch.wake <= now) and due:
                self.last = dispatch.round(now, self._round_limit)
                after = self._clock()
                earliest = after + max(self._interval, after - now)  # at most half of the time is for rounds
                dispatch.ahead.lag += (earliest - now - dispatch.ahead.lag) / 8
                if self.on_round is not None:
                    self.on_round(self.last)
            if self._inbox or (dispatch.ahead.next is not None and not self._closing):
                await asyncio.sleep(0)
                continue
            wake = earliest if dispatch.dirty and not self._closing else max(dispatch.wake, earliest)
            await self._sleep(wake)

    async def _sleep(self, wake: float) -> None:
        """Sleep until the next report, or until a time of the clock."""
        if wake == inf:
            await self._news.wait()
            return
        try:
            # A timer may fire by the clock's resolution too early; without a least time the loop would spin until then.
            async with asyncio.timeout(max(wake - self._clock(), 1e-6)):
                await self._news.wait()
        except TimeoutError:
            pass
