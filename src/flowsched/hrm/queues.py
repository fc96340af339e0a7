"""Two queues over the resources of one unit: stream containers start at once, batch containers wait their turn.

States of a container::

    batch   submit -> (waiting ->) running -> finish        stream   submit -> running -> finish
                         ^           | ^                             (or refused: streams never wait)
                         |           v |
                         +-evicted-- paused

A stream container that lacks cores pauses batch containers: they keep their memory and go on as soon as cores are
free.  One that lacks memory or GPU memory evicts them, because a paused process gives neither back.  Neither memory is
ever over-committed.  Source: HRM, sections 3.3 and 3.4.

GPU units with shared cores (`share_cores`) have one account of cores: the cores of a container are free on none of them.  So an
operation on one queue may start, pause or resume containers of others, see `Admission.elsewhere`.  Freed cores go to the unit
with the fewest cores at work, so that no unit's queue keeps them for itself.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import replace

from flowsched.boundary.validate import check_id, instance, number, seconds
from flowsched.boundary.validate import ids as ids_of
from flowsched.exceptions import DuplicateIdError, InputError, UnknownTaskError
from flowsched.hrm.containers import Admission, Container, Outcome, Paused, Running
from flowsched.hrm.run_times import Books, Waiter, remaining, start_time
from flowsched.hrm.units import AMOUNTS, Amounts, ResourceUnit


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
        instance("unit", unit, ResourceUnit)
        if length is not None:
            number("length", length, 0, finite=False)
        if most is not None:
            number("most", most, 1)
        self.unit = unit
        self.length = length
        self.max_wait = seconds("max_wait", max_wait, finite=False)
        self.capacity: Amounts = (*unit.capacity.tolist(), 1 << 40 if most is None else most)
        asked = self.capacity[:3] if limit is None else AMOUNTS.capacity("limit", limit).tolist()
        self.limit: Amounts = (*(min(a, b) for a, b in zip(asked, self.capacity, strict=False)), 1)
        self.free = list(self.capacity)
        self.running: dict[Hashable, Running] = {}
        self.paused: dict[Hashable, Paused] = {}
        self.waiting: list[Container] = []
        self.version = 0
        self._for_streams = list(self.capacity)  # capacity - needs of running stream containers
        self._cores = 0  # of running containers
        self._sharing = [self]  # queues with the same account of cores, this one among them; one list for all of them

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
        books, mine = self.books(now)
        mine.waiters.insert(place, me)
        return max(start_time(books, me) - now, 0.0)

    def grants(self, run: Sequence[Container], wait: Sequence[Container], behind: float, max_wait: float) -> bool:
        """Return True if batch containers may be submitted together, some to run at once, and others to wait.

        Parameters
        ----------
        behind : float
            The predicted wait of one more container.
        max_wait : float
            None waits unless that is below this, and so are the run times of those that run at once.
        """
        if not all(self.takes(container.need) for container in (*run, *wait)):
            return False
        needs = [container.need for container in run]
        if run and not _fits([sum(amounts) for amounts in zip(*needs, strict=True)], self.room):
            return False
        longest = max((container.duration for container in run), default=0.0)
        most = math.inf if self.length is None else self.length
        return not wait or (max(behind, longest) < max_wait and len(self.waiting) + len(wait) <= most)

    @property
    def shares_cores(self) -> bool:
        """True if other queues have the same account of cores."""
        return len(self._sharing) > 1

    def books(self, now: float) -> tuple[list[Books], Books]:
        """Return the books of all units that share cores with this one, for `start_time`; and this one's."""
        books = [Books(q.free, q._cores, q.ends(now), q.waiters(now)) for q in self._sharing]
        return books, books[self._sharing.index(self)]

    def start_behind(self, need: Amounts, now: float) -> float:
        """Return the predicted start of a batch container behind all others: -inf for at once, inf for never."""
        if not self.takes(need):
            return math.inf
        if _fits(need, self.room):
            return -math.inf
        me = Waiter(need, need, 0.0)
        books, mine = self.books(now)
        mine.waiters.append(me)
        return start_time(books, me)

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
        self._touch()
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
            self._add(_memory(container.need), 1)
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
        self._touch()
        if isinstance(item, Container):
            insort(self.waiting, item, key=lambda c: c.priority)
        elif isinstance(item, Paused):
            self.paused[item.container.id] = item
            self._add(_memory(item.container.need), -1)
        else:
            self._start(item.container, item.start)

    def _check(self, container: Container, now: float) -> None:
        instance("container", container, Container)
        number("now", now)

    def _submit_stream(self, container: Container, now: float) -> Admission:
        if not _fits(container.need, self._for_streams):
            return Admission(Outcome.NO_ROOM)
        evicted = self._evict(container)
        paused = self._pause(container, now)
        self._start(container, now)
        after = self._dispatch(now, paused)
        return replace(after, started=(container, *after.started), evicted=tuple(evicted))

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
                self._add(_memory(container.need), 1)
            evicted.append(container)
        # Evicted containers have waited longest, so they go before all others of their priority.
        for container in evicted:
            at = next((i for i, c in enumerate(self.waiting) if c.priority >= container.priority), len(self.waiting))
            self.waiting.insert(at, container)
        return evicted

    def _pause(self, newcomer: Container, now: float) -> list[tuple[StackedQueue, Container]]:
        """Take cores and places back, from those that started last: here, then on the units that share the cores."""
        paused: list[tuple[StackedQueue, Container]] = []
        for queue in (self, *(q for q in self._sharing if q is not self)):
            for id in list(reversed(queue.running)):
                run = queue.running[id]
                mine = (0, 3) if queue is self else (0,)
                lacking = [i for i in mine if newcomer.need[i] > self.free[i]]
                if not lacking:
                    break
                if run.container.kind == "batch" and any(run.container.need[i] for i in lacking):
                    del queue.running[id]
                    queue.paused[id] = Paused(run.container, max(now - run.start, 0.0))
                    queue._add(_processor(run.container.need), 1)
                    paused.append((queue, run.container))
        return paused

    def _dispatch(self, now: float, paused: Sequence[tuple[StackedQueue, Container]] = ()) -> Admission:
        """Start every container that fits, in order; return these, and those that were paused for them."""
        self._touch()
        turns = [_Turn(queue) for queue in self._sharing]
        while any(turn.start_next(now) for turn in sorted(turns, key=lambda turn: turn.queue._cores)):
            pass
        mine, elsewhere = Admission(Outcome.STARTED), []
        for turn in turns:
            # A container that was paused needlessly (an eviction had freed enough) has gone on by now: report the difference.
            was = [container for queue, container in paused if queue is turn.queue]
            resumed = tuple(c for c in turn.resumed if c not in was)
            still = tuple(c for c in was if c.id in turn.queue.paused)
            told = Admission(Outcome.STARTED, tuple(turn.started), resumed, still)
            if turn.queue is self:
                mine = told
            elif turn.started or resumed or still:
                elsewhere.append((turn.queue.unit.id, told))
        return replace(mine, elsewhere=tuple(elsewhere)) if elsewhere else mine

    def _start(self, container: Container, now: float) -> None:
        self._touch()
        self.running[container.id] = Running(container, now)
        self._add(container.need, -1, stream=container.kind == "stream")

    def _give(self, container: Container) -> None:
        self._add(container.need, 1, stream=container.kind == "stream")

    def _add(self, what: Sequence[int], sign: int, *, stream: bool = False) -> None:
        """Add to the free resources, or to those for streams, too; cores are added on all units that share them."""
        for queue in self._sharing:
            for i, amount in enumerate(what if queue is self else what[:1]):
                queue.free[i] += sign * amount
                if stream:
                    queue._for_streams[i] += sign * amount
        self._cores -= sign * what[0]

    def _touch(self) -> None:
        for queue in self._sharing:
            queue.version += 1


class _Turn:
    """A queue during a dispatch: its containers left to examine, and those that have started."""

    def __init__(self, queue: StackedQueue) -> None:
        self.queue = queue
        self.left: deque[Paused | Container] = deque([*queue.paused.values(), *queue.waiting])
        self.resumed: list[Container] = []
        self.started: list[Container] = []

    def start_next(self, now: float) -> bool:
        """Start the next container that fits; return False if there is none."""
        queue = self.queue
        while self.left:
            item = self.left.popleft()
            if isinstance(item, Paused):
                if _fits(_processor(item.container.need), queue.free):
                    del queue.paused[item.container.id]
                    queue.running[item.container.id] = Running(item.container, now - item.elapsed)
                    queue._add(_processor(item.container.need), -1)
                    self.resumed.append(item.container)
                    return True
            elif _fits(item.need, queue.free):
                queue.waiting.remove(item)
                queue._start(item, now)
                self.started.append(item)
                return True
        return False


def share_cores(queues: Sequence[StackedQueue]) -> None:
    """Give the queues of each machine's GPU units with shared cores one account of cores: split (a).

    Afterwards a container starts only if its cores, and those that run on all these units, are no more than its unit has.
    Queues that shared cores with others before, and are not among these, must be empty.
    """
    by_machine: dict[Hashable, list[StackedQueue]] = {}
    for queue in queues:
        if queue.unit.shared:
            by_machine.setdefault(str(queue.unit.machine), []).append(queue)
    for together in by_machine.values():
        streams = sum(r.container.need[0] for q in together for r in q.running.values() if r.container.kind == "stream")
        cores = sum(queue._cores for queue in together)
        for queue in together:
            queue._sharing = together
            queue.free[0] = queue.capacity[0] - cores
            queue._for_streams[0] = queue.capacity[0] - streams
            queue.version += 1


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
