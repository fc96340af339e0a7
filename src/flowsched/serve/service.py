"""The service: one owner of a scheduler, to which many clients report events.

The owner is a separate thread, which makes all calls on the scheduler, one after the other.  A task of the event loop
gives it work: first the requests that have arrived, then a round, at least a minimum interval after the last
one, or at the time that the last round named.

A request is answered when its events have happened and are as durable as the journal says; it does not wait for the
round.  With the durability "group" another thread waits for the disk, while the owner decides; requests share the waits.  `Service.rounds`
has the decisions of rounds.

An exception that leaves the scheduler ahead of its journal ends the service: `Service.failed` is set, and a restart
continues from the journal.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from math import inf
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from flowsched.boundary.validate import number
from flowsched.cluster.events import EndedRun, Event, JobSubmitted, TaskSubmitted
from flowsched.cluster.model import Tasks
from flowsched.exceptions import DuplicateIdError, FlowschedError, JournalError, TornStateError, UnknownIdError
from flowsched.rounds.values import Round
from flowsched.scheduler import Scheduler
from flowsched.serve import wire
from flowsched.serve.access import OPERATOR, Access
from flowsched.serve.told import ToldRequests
from flowsched.serve.wire import RequestError, Row

_LOGGER = logging.getLogger("flowsched.serve")

_LIFE = 10**9
"""Number of round numbers in each life of the service (see `ToldRequests.life`)."""

_SLOWEST = 1.0
"""Longest pause in seconds between rounds that only time requests, and that decide nothing."""

_AHEAD = JournalError, TornStateError, MemoryError
"""Exceptions after which the scheduler may be ahead of its journal."""

_T = TypeVar("_T")


class _Request(NamedTuple):
    events: Sequence[Event]
    key: str | None
    digest: str
    answer: asyncio.Future[Row]
    come: float
    access: Access


class Service:
    """A scheduler and its clients.

    An asynchronous context manager.  All methods are called in the thread of its event loop.

    Parameters
    ----------
    scheduler : Scheduler
        The service owns it from now on.
    told : ToldRequests, optional
        Stored in the scheduler's journal; by default in memory alone.
    interval : float
        Minimum time between the beginnings of two rounds, in seconds.
    round_limit : float, optional
        Limit of computing time for one round, in seconds.
    kept : int
        Number of bytes of past rounds that are kept for `rounds`.
    history : float, optional
        Seconds for which a compaction keeps the history in the journal; by default all of it.

    Attributes
    ----------
    scheduler : Scheduler
    rounds : NewestRounds
    last : Round or None
        Last round.
    made : int
        Number of the newest round; in the owner's thread, which may be ahead of `rounds`.
    past : deque of dict
        Figures of the last seconds: rounds, requests, events, and the longest response and round in seconds.
    failed : BaseException or None
        The exception that ended the service.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        told: ToldRequests | None = None,
        *,
        interval: float = 0.02,
        round_limit: float | None = None,
        kept: int = 32 << 20,
        history: float | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.last: Round | None = None
        self.failed: BaseException | None = None
        self.past: deque[Row] = deque(maxlen=300)
        self._requests = ToldRequests(None) if told is None else told
        self._interval, self._round_limit = number("interval", interval, 0), round_limit
        self._history = history
        self.made = self._requests.life * _LIFE
        self.rounds = NewestRounds(self.made, kept)
        offset = time.time() - time.monotonic()
        self._clock: Callable[[], float] = lambda: offset + time.monotonic()
        self._inbox: list[_Request] = []
        self._under_way: dict[str, _Request] = {}
        self._ended: list[EndedRun] = []
        self._new: list[Hashable] = []
        self._dirty, self._wake = True, -inf
        self._pause = self._interval
        self._lost: JournalError | None = None
        self._asked: dict[int, _Request] = {}
        """Requests without an answer, by identity."""
        self._changed = asyncio.Event()
        self._worker = ThreadPoolExecutor(1, "flowsched-serve")
        self._syncer = ThreadPoolExecutor(1, "flowsched-sync")
        self._copies = asyncio.Semaphore(1)
        self._owner: asyncio.Task[None] | None = None
        self._closing = False

    # -- requests -----------------------------------------------------------------------------------------------

    @property
    def open(self) -> bool:
        """True while requests are accepted."""
        return not self._closing and self.failed is None

    async def tell(
        self, events: Sequence[Event], key: str | None = None, digest: str = "", access: Access = OPERATOR
    ) -> Row:
        """Apply the events of a request, all or none.

        Parameters
        ----------
        key : str, optional
            Repeated requests with the same key happen once.
        digest : str
            Digest of the request, to detect another one with the same key.
        access : Access
            Access of the request's token.

        Returns
        -------
        dict
            The response, see the reference of the service.

        Raises
        ------
        RequestError
            The request was refused; none of it has happened.
        """
        self._check_open()
        if key is not None:
            key = access.scoped(key)
            same = self._under_way.get(key)
            if same is not None:
                _check_same(digest, same.digest)
                return {**await asyncio.shield(same.answer), "repeated": True}
            known = self._requests.find(key)
            if known is not None:
                _check_same(digest, known.digest)
                return {"events": known.size, "repeated": True}
        request = _Request(events, key, digest, asyncio.get_running_loop().create_future(), time.perf_counter(), access)
        if key is not None:
            self._under_way[key] = request
        self._asked[id(request)] = request
        self._inbox.append(request)
        self._changed.set()
        return await asyncio.shield(request.answer)

    async def ask(self, question: Callable[[], _T]) -> _T:
        """Call a function in the owner's thread, between two calls on the scheduler, and return its result."""
        self._check_open()
        return await asyncio.get_running_loop().run_in_executor(self._worker, question)

    async def what_if(self, events: Sequence[Event], access: Access = OPERATOR) -> Row:
        """Return the round that would follow these events, as far as the access allows; see `Scheduler.what_if`."""
        async with self._copies:
            copy = await self.ask(self.scheduler.copy)
            return await asyncio.to_thread(self._supposed, copy, events, access)

    def _supposed(self, copy: Scheduler, events: Sequence[Event], access: Access) -> Row:
        events = access.allowed(copy.cluster, events)
        try:
            copy.apply(*events)
        except FlowschedError as error:
            raise _refused(error) from None
        round = copy.schedule(self._clock(), self._round_limit)
        cluster = copy.cluster

        def seen(task: Hashable) -> bool:
            return not access.restricted or access.sees(cluster.tasks[task].group.job.job.user)

        deltas = wire.deltas((delta for delta in round.deltas if seen(delta.task)), {})
        for row in (*deltas["migrated"], *deltas["preempted"]):
            if not seen(row["by"]):
                row["by"] = None
        waiting = wire.reasons(round.waiting, filter(seen, round.waiting))
        return {"now": round.now, **deltas, "waiting": waiting, "again_at": round.again_at}

    def _check_open(self) -> None:
        if self.failed is not None:
            raise RequestError(f"the service has failed: {self.failed}", 503)
        if self._closing:
            raise RequestError("the service is stopping", 503)

    # -- life ---------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self.scheduler.journal is not None:
            self.scheduler.journal.wait()  # an earlier life may have been killed before this
        self._owner = asyncio.create_task(self._own())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def stop(self) -> None:
        """Accept no more requests; accepted ones are answered, and the current round is finished."""
        self._closing = True
        self._changed.set()

    async def close(self) -> None:
        """Stop, wait for the end, and release the files for another service."""
        self.stop()
        if self._owner is not None:
            await self.wait()
        await asyncio.to_thread(self._worker.shutdown)
        await asyncio.to_thread(self._syncer.shutdown)
        if self.scheduler.journal is not None:
            self.scheduler.journal.close()

    async def wait(self) -> None:
        """Wait until the owner's thread has ended."""
        assert self._owner is not None
        await asyncio.wait([self._owner])

    async def _own(self) -> None:
        loop, earliest = asyncio.get_running_loop(), -inf
        try:
            while True:
                self._changed.clear()
                if self._lost is not None:
                    raise self._lost
                batch, self._inbox = self._inbox, []
                if batch:
                    await loop.run_in_executor(self._worker, self._happen, batch, loop)
                now = self._clock()
                if (self._dirty or self._wake <= now) and now >= earliest and not self._closing:
                    earliest = now + self._interval
                    made = await loop.run_in_executor(self._worker, self._round, now)
                    self._once_durable(loop, self._publish, *made)
                if self._closing and not self._inbox:
                    await loop.run_in_executor(self._syncer, _nothing)
                    if self._lost is not None:
                        raise self._lost
                    return
                if not self._inbox:
                    await self._sleep(max(-inf if self._dirty else self._wake, earliest))
        except BaseException as error:
            self.failed = error
            _LOGGER.critical("the service has failed", exc_info=error)
        finally:
            self.rounds.close()
            gone = RequestError("the service has ended; this may or may not have happened", 503)
            for request in self._asked.values():
                if not request.answer.done():
                    request.answer.set_exception(gone)
                    request.answer.exception()

    async def _sleep(self, wake: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(None if wake == inf else max(wake - self._clock(), 0.0)):
                await self._changed.wait()

    def _publish(self, report: bytes | None, seconds: float) -> None:
        second = self._second()
        second["rounds"] += 1
        second["round"] = max(second["round"], seconds)
        if report is not None:
            self.rounds.add(report)

    # -- in the owner's thread ----------------------------------------------------------------------------------

    def _happen(self, batch: list[_Request], loop: asyncio.AbstractEventLoop) -> None:
        """Apply the requests of a batch; answer them once they are as durable as the journal says."""
        answers: list[tuple[_Request, Row | RequestError]] = []
        for request in batch:
            try:
                answers.append((request, self._happen_one(request)))
            except RequestError as error:
                answers.append((request, error))
        self._once_durable(loop, self._answer, answers)

    def _once_durable(self, loop: asyncio.AbstractEventLoop, then: Callable[..., None], *about: Any) -> None:
        """Call a function in the event loop once all that has happened is as durable as the journal says, in this order."""
        journal = self.scheduler.journal
        if journal is None or journal.durability != "group":
            loop.call_soon_threadsafe(then, *about)
            return

        def waited() -> None:
            try:
                journal.wait()
            except JournalError as error:
                loop.call_soon_threadsafe(self._fail, error)
            else:
                loop.call_soon_threadsafe(then, *about)

        self._syncer.submit(waited)

    def _fail(self, error: JournalError) -> None:
        """End the service for the disk: the scheduler is ahead of it."""
        if self._owner is not None:
            self._lost = error
            self._changed.set()

    def _happen_one(self, request: _Request) -> Row:
        scheduler, cluster = self.scheduler, self.scheduler.cluster
        events = request.access.allowed(cluster, request.events)
        before = cluster.events
        if request.key is not None and events:
            self._requests.begin(request.key, request.digest)
        try:
            ended = scheduler.apply(*events, atomic=True) if events else ()
        except FlowschedError as error:
            if isinstance(error, _AHEAD):
                raise
            raise _refused(error) from None
        if request.key is not None and events:
            self._requests.note(request.key, request.digest, before, len(events))
        self._note(events, ended)
        return {"events": len(events), "after": self.made, "ended": [run._asdict() for run in ended]}

    def _note(self, events: Sequence[Event], ended: Sequence[EndedRun]) -> None:
        self._dirty = True
        self._ended += ended
        self._new += (run.task for run in ended)
        for event in events:
            if isinstance(event, JobSubmitted):
                self._new += event.tasks.ids if isinstance(event.tasks, Tasks) else (task.id for task in event.tasks)
            elif isinstance(event, TaskSubmitted):
                self._new.append(event.task.id)

    def _answer(self, answers: Sequence[tuple[_Request, Row | RequestError]]) -> None:
        """Answer requests, in the thread of the event loop."""
        now = time.perf_counter()
        second = self._second()
        for request, answer in answers:
            if self._asked.pop(id(request), None) is None or request.answer.done():
                continue  # the service has failed
            if request.key is not None:
                self._under_way.pop(request.key, None)
            second["requests"] += 1
            second["events"] += len(request.events)
            second["latency"] = max(second["latency"], now - request.come)
            if isinstance(answer, RequestError):
                request.answer.set_exception(answer)
                request.answer.exception()
            else:
                request.answer.set_result(answer)

    def _second(self) -> Row:
        """Return the figures of the current second."""
        second = int(time.time())
        if not self.past or self.past[-1]["time"] != second:
            self.past.append({"time": second, "rounds": 0, "requests": 0, "events": 0, "latency": 0.0, "round": 0.0})
        return self.past[-1]

    def _round(self, now: float) -> tuple[bytes | None, float]:
        """Decide and commit a round; return its report, None if it is empty, and its seconds."""
        scheduler, start = self.scheduler, time.perf_counter()
        try:
            if scheduler.journal is not None and scheduler.journal.long:
                scheduler.compact(None if self._history is None else now - self._history)
            round = scheduler.schedule(now, self._round_limit)
        except _AHEAD:
            raise
        except Exception:  # the cluster is unchanged
            _LOGGER.exception("a round raised an exception; it is made again in a second")
            self._dirty, self._wake = False, now + _SLOWEST
            return None, time.perf_counter() - start
        done = scheduler.commit(round)
        self._pause = self._interval if self._dirty or done.accepted else min(2 * self._pause + 0.001, _SLOWEST)
        self.last, self._wake, self._dirty = round, max(round.again_at, now + self._pause), False
        ended, self._ended = [*self._ended, *done.ended], []
        new, self._new = [*self._new, *(run.task for run in done.ended)], []
        report = None
        if done.accepted or ended or new:
            self.made += 1
            report = wire.spelt(
                {"round": self.made, "now": now, "events": scheduler.cluster.events, **wire.deltas(done.accepted, done.runs),
                 "ended": [run._asdict() for run in ended], "waiting": len(round.waiting),
                 "reasons": wire.reasons(round.waiting, dict.fromkeys(new)), "again_at": round.again_at}
            )  # fmt: skip
        return report, time.perf_counter() - start


def _nothing() -> None:
    """Take a turn in a queue."""


def _refused(error: FlowschedError) -> RequestError:
    """Return the response to a request with a refused event."""
    status = 404 if isinstance(error, UnknownIdError) else 409 if isinstance(error, DuplicateIdError) else 422
    return RequestError(f"events[{error.index}]: {error}", status, index=error.index)


def _check_same(digest: str, known: str) -> None:
    if digest != known:
        raise RequestError("Idempotency-Key: it was already used for another request", 422)


class NewestRounds:
    """Rounds in the order of their consecutive numbers; the oldest beyond `kept` bytes are dropped.

    `newest` is the number of the last round, at the beginning that before the first one; `closed` means that no more
    follow.
    """

    def __init__(self, newest: int, kept: int) -> None:
        self.newest, self.closed = newest, False
        self._kept, self._bytes = kept, 0
        self._texts: deque[bytes] = deque()
        self._more = asyncio.Event()

    def add(self, text: bytes) -> None:
        """Add the next round."""
        self.newest += 1
        self._texts.append(text)
        self._bytes += len(text)
        while self._bytes > self._kept and len(self._texts) > 1:
            self._bytes -= len(self._texts.popleft())
        more, self._more = self._more, asyncio.Event()
        more.set()

    def close(self) -> None:
        """Wake up all waiting requests."""
        self.closed = True
        self._more.set()

    def after(self, number: int, most: int = 1000) -> list[bytes]:
        """Return the rounds after a number, the oldest first.

        Raise RequestError with status 410 if some of them are no longer kept, or belong to another life of the service.
        """
        first = self.newest - len(self._texts)
        if not first <= number <= self.newest:
            raise RequestError(
                f"after: the rounds after {number} are not kept; read /v1/state, and go on from its round", 410,
                round=self.newest,
            )  # fmt: skip
        return [self._texts[i] for i in range(number - first, min(number - first + most, len(self._texts)))]

    async def more(self, number: int, timeout: float) -> None:
        """Wait for rounds after a number, up to `timeout` seconds, or for the end of the service."""
        more = self._more
        if self.newest <= number and not self.closed:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await more.wait()
