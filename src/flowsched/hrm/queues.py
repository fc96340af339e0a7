"""Two queues over the resources of one unit: stream containers start at once, batch containers wait their turn.

States of a container::

    batch   submit -> (waiting ->) running -> finish        stream   submit -> running -> finish
                         ^           | ^                             (or refused: streams never wait)
                         |           v |
                         +-evicted-- paused

A stream container that lacks cores pauses batch containers: they keep their memory and go on as soon as cores are
free.  One that lacks memory or GPU memory evicts them, because a paused process gives neither back.  Neither memory is
ever over-committed.  Source: HRM, sections 3.3 and 3.4.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Hashable, Sequence

from flowsched.boundary.validate import check_id, number
from flowsched.boundary.validate import ids as ids_of
from flowsched.exceptions import DuplicateIdError, InputError, UnknownTaskError
from flowsched.hrm.containers import Admission, Container, Outcome, Paused, Running
from flowsched.hrm.run_times import remaining
from flowsched.hrm.starts import Waiter, start_time
from flowsched.hrm.units import AMOUNTS, Amounts, ResourceUnit

__all__ = ["StackedQueue", "queue_length"]


def queue_length(running: int, rate: float, heartbeat: float) -> int:
    """Return the length of a queue that keeps all of `running` places busy until the next heartbeat: b >= r (mu tau - 1).

    Parameters
    ----------
    running : int
        Containers at once, r.
    rate : float
        Containers that one place finishes per second, mu: one over the run time.
    heartbeat : float
        Seconds between heartbeats, tau.
    """
    number("running", running, 0)
    if not (number("rate", rate) > 0 and number("heartbeat", heartbeat) > 0):
        raise InputError(f"queue_length: rate > 0 and heartbeat > 0 expected, got {rate}, {heartbeat}")
    return max(0, math.ceil(running * (rate * heartbeat - 1) - 1e-9))


class StackedQueue:
    """The stream queue and the batch queue of one resource unit.

    Parameters
    ----------
    unit : ResourceUnit
    length : int or None
        Most batch containers that wait; None for no limit.  Evicted ones wait beyond it.
    most : int or None
        Most containers that run at once; None for no limit but the resources.
    max_wait : float
        A batch container is refused if its predicted wait is not below this.
    limit : sequence of number, optional
        Most that one container may ask for (cores, memory, GPU memory); by default all that the unit has.

    Attributes
    ----------
    running : dict of id to Running
    paused : dict of id to Paused
        In the order in which they started or were paused.
    waiting : list of Container
        In the order in which they may start.
    free : list of int
        Micro-units and places; paused containers hold their memory.
    version : int
        Grows with every change.
    """

    def __init__(
        self,
        unit: ResourceUnit,
        *,
        length: int | None = None,
        most: int | None = None,
        max_wait: float = math.inf,
        limit: Sequence[float] | None = None,
    ) -> None:
        if not isinstance(unit, ResourceUnit):
            raise InputError(f"unit: a ResourceUnit expected, got {unit!r}")
        if length is not None:
            number("length", length, 0, finite=False)
        if most is not None:
            number("most", most, 1)
        if not number("max_wait", max_wait, finite=False) > 0:
            raise InputError(f"max_wait: a number > 0 expected, got {max_wait!r}")
        self.unit = unit
        self.length = length
        self.max_wait = max_wait
        self.capacity: Amounts = (*unit.capacity.tolist(), 1 << 40 if most is None else most)
        asked = self.capacity[:3] if limit is None else AMOUNTS.capacity("limit", limit).tolist()
        self.limit: Amounts = (*(min(a, b) for a, b in zip(asked, self.capacity, strict=False)), 1)
        self.free = list(self.capacity)
        self.running: dict[Hashable, Running] = {}
        self.paused: dict[Hashable, Paused] = {}
        self.waiting: list[Container] = []
        self.version = 0
        self._for_streams = list(self.capacity)  # capacity - needs of running stream containers

    # -- state --------------------------------------------------------------------------------------------------

    def __contains__(self, id: Hashable) -> bool:
        return id in self.running or id in self.paused or any(c.id == id for c in self.waiting)

    def __len__(self) -> int:
        return len(self.running) + len(self.paused) + len(self.waiting)

    @property
    def room(self) -> Amounts:
        """Amounts that a batch container may take at once: none while others wait."""
        return (0, 0, 0, 0) if self.waiting or self.paused else _four(self.free)

    @property
    def stream_room(self) -> Amounts:
        """Amounts that a stream container may take: all that no other stream holds."""
        return _four(self._for_streams)

    def takes(self, need: Amounts) -> bool:
        """Return True if the queue ever takes a container of that need."""
        return _fits(need, self.limit) and (need[2] > 0 or not self.unit.shared)

    def has_room(self, container: Container) -> bool:
        """Return True if a batch container would start at once."""
        return self.takes(container.need) and _fits(container.need, self.room)

    def predict(self, container: Container, now: float) -> float:
        """Predict the wait of a container that is submitted now, if no other arrives: Algorithm 1.

        Infinite if it can never run.  For a stream container 0 or infinite.
        """
        self._check(container, now)
        if not self.takes(container.need):
            return math.inf
        if container.kind == "stream":
            return 0.0 if _fits(container.need, self._for_streams) else math.inf
        if _fits(container.need, self.room):
            return 0.0
        me = Waiter(container.need, container.need, container.duration)
        place = len(self.paused) + sum(c.priority <= container.priority for c in self.waiting)
        waiters = self.waiters(now)
        waiters.insert(place, me)
        return max(start_time(self.free, self.ends(now), waiters, me) - now, 0.0)

    def ends(self, now: float) -> list[tuple[float, Amounts]]:
        """Return the expected end of each running container and the amounts that it gives back.

        One that is late is expected to go on for a while, see `run_times.remaining`.
        """
        return [
            (r.end if r.end >= now else now + remaining(r.container.duration, now - r.start), r.container.need)
            for r in self.running.values()
        ]

    def waiters(self, now: float) -> list[Waiter]:
        """Return the containers that start next, in order: paused ones before waiting ones."""
        paused = [Waiter(_processor(p.container.need), p.container.need, p.remaining) for p in self.paused.values()]
        return paused + [Waiter(c.need, c.need, c.duration) for c in self.waiting]

    # -- changes ------------------------------------------------------------------------------------------------

    def submit(self, container: Container, now: float) -> Admission:
        """Submit a container: it starts, waits or is refused, and a refusal changes nothing.

        Raises
        ------
        DuplicateIdError
            The container is here already.
        """
        self._check(container, now)
        if container.id in self:
            raise DuplicateIdError(f"unit {self.unit.id!r}: container {container.id!r} is already there")
        if not self.takes(container.need):
            return Admission(Outcome.OVER_LIMIT)
        if container.kind == "stream":
            return self._submit_stream(container, now)
        if _fits(container.need, self.room):
            self._start(container, now)
            return Admission(Outcome.STARTED, started=(container,))
        if self.length is not None and len(self.waiting) >= self.length:
            return Admission(Outcome.QUEUE_FULL)
        if self.max_wait < math.inf and not self.predict(container, now) < self.max_wait:
            return Admission(Outcome.TOO_LATE)
        self.version += 1
        insort(self.waiting, container, key=lambda c: c.priority)
        return Admission(Outcome.QUEUED)

    def finish(self, ids: Hashable | list[Hashable], now: float) -> Admission:
        """Remove running containers that ended or died; start those that can take their place.

        Parameters
        ----------
        ids : id or list of ids
            Of containers that end at the same time.

        Raises
        ------
        UnknownTaskError
            A container does not run here; nothing was changed.
        """
        done: list[Hashable] = ids if isinstance(ids, list) else [ids]
        for id in ids_of("ids", done):
            if id not in self.running:
                raise UnknownTaskError(f"unit {self.unit.id!r}: container {id!r} does not run")
        for id in done:
            self._give(self.running.pop(id).container)
        return self._dispatch(now)

    def wake(self, now: float) -> Admission:
        """Start every container that fits, though none ended: for queues that were filled by other means than `submit`."""
        return self._dispatch(now)

    def remove(self, id: Hashable, now: float) -> Admission:
        """Remove a container, whatever its state.

        Raises
        ------
        UnknownTaskError
            The container is not here.
        """
        check_id("id", id)
        if id in self.running:
            return self.finish([id], now)
        if id in self.paused:
            container = self.paused.pop(id).container
            self._add(self.free, _memory(container.need), 1)
            return self._dispatch(now)
        for i, container in enumerate(self.waiting):
            if container.id == id:
                del self.waiting[i]
                return self._dispatch(now)
        raise UnknownTaskError(f"unit {self.unit.id!r}: container {id!r} is not there")

    def change(self, now: float, *, length: int | None = None, most: int | None = None) -> Admission:
        """Set attributes of the queue, None to leave one; start every container that fits by now.

        Nothing that runs or waits beyond a smaller number is taken back.
        """
        number("now", now)
        if length is not None:
            self.length = int(number("length", length, 0))
        if most is not None:
            more = int(number("most", most, 1)) - self.capacity[3]
            self.capacity = (*self.capacity[:3], self.capacity[3] + more)
            for places in (self.free, self._for_streams):
                places[3] += more
        return self._dispatch(now)

    def restore(self, item: Running | Paused | Container) -> None:
        """Put a container back in its former state, unchecked.

        Running containers, paused ones, and waiting ones of equal priority are each given in their order.
        """
        self.version += 1
        if isinstance(item, Container):
            insort(self.waiting, item, key=lambda c: c.priority)
        elif isinstance(item, Paused):
            self.paused[item.container.id] = item
            self._add(self.free, _memory(item.container.need), -1)
        else:
            self._start(item.container, item.start)

    def _check(self, container: Container, now: float) -> None:
        if not isinstance(container, Container):
            raise InputError(f"container: a Container expected, got {container!r}")
        number("now", now)

    def _submit_stream(self, container: Container, now: float) -> Admission:
        if not _fits(container.need, self._for_streams):
            return Admission(Outcome.NO_ROOM)
        evicted = self._evict(container)
        paused = self._pause(container, now)
        self._start(container, now)
        after = self._dispatch(now)
        # A container that was paused needlessly (an eviction had freed enough) has gone on by now: report the difference.
        still = [c for c in paused if c.id in self.paused]
        resumed = [c for c in after.resumed if c not in paused]
        return Admission(Outcome.STARTED, (container, *after.started), tuple(resumed), tuple(still), tuple(evicted))

    def _evict(self, newcomer: Container) -> list[Container]:
        """Take memory and GPU memory back, from paused containers first, then from those that started last."""
        evicted: list[Container] = []
        batch = [r.container for r in self.running.values() if r.container.kind == "batch"]
        paused = [r.container for r in self.paused.values()]
        for container in (*reversed(paused), *reversed(batch)):
            lacking = [i for i in (1, 2) if newcomer.need[i] > self.free[i]]
            if not lacking:
                break
            if not any(container.need[i] for i in lacking):
                continue
            if container.id in self.running:
                del self.running[container.id]
                self._give(container)
            else:
                del self.paused[container.id]
                self._add(self.free, _memory(container.need), 1)
            evicted.append(container)
        # Evicted containers have waited longest, so they go before all others of their priority.
        for container in evicted:
            at = next((i for i, c in enumerate(self.waiting) if c.priority >= container.priority), len(self.waiting))
            self.waiting.insert(at, container)
        return evicted

    def _pause(self, newcomer: Container, now: float) -> list[Container]:
        """Take cores and places back, from those that started last."""
        paused: list[Container] = []
        for id in list(reversed(self.running)):
            run = self.running[id]
            lacking = [i for i in (0, 3) if newcomer.need[i] > self.free[i]]
            if not lacking:
                break
            if run.container.kind == "batch" and any(run.container.need[i] for i in lacking):
                del self.running[id]
                self.paused[id] = Paused(run.container, max(now - run.start, 0.0))
                self._add(self.free, _processor(run.container.need), 1)
                paused.append(run.container)
        return paused

    def _dispatch(self, now: float) -> Admission:
        """Start every container that fits, in order."""
        self.version += 1
        resumed, started = [], []
        for id, pause in list(self.paused.items()):
            container = pause.container
            if _fits(_processor(container.need), self.free):
                del self.paused[id]
                self.running[id] = Running(container, now - pause.elapsed)
                self._add(self.free, _processor(container.need), -1)
                resumed.append(container)
        for container in list(self.waiting):
            if _fits(container.need, self.free):
                self.waiting.remove(container)
                self._start(container, now)
                started.append(container)
        return Admission(Outcome.STARTED, tuple(started), tuple(resumed))

    def _start(self, container: Container, now: float) -> None:
        self.version += 1
        self.running[container.id] = Running(container, now)
        self._add(self.free, container.need, -1)
        if container.kind == "stream":
            self._add(self._for_streams, container.need, -1)

    def _give(self, container: Container) -> None:
        self._add(self.free, container.need, 1)
        if container.kind == "stream":
            self._add(self._for_streams, container.need, 1)

    @staticmethod
    def _add(amounts: list[int], what: Sequence[int], sign: int) -> None:
        for i, amount in enumerate(what):
            amounts[i] += sign * amount


def _fits(need: Sequence[int], free: Sequence[int]) -> bool:
    return all(a <= b for a, b in zip(need, free, strict=True))


def _four(amounts: Sequence[int]) -> Amounts:
    vcore, mem, gmem, places = amounts
    return (vcore, mem, gmem, places)


def _processor(need: Amounts) -> Amounts:
    """Return the part of a need that a pause gives back: cores and the place."""
    return (need[0], 0, 0, need[3])


def _memory(need: Amounts) -> Amounts:
    """Return the part of a need that a paused container holds: memory and GPU memory."""
    return (0, need[1], need[2], 0)
