"""Runs sent to a machine before it has room for them, so that it does not idle between an end and the next start.

Between the end of a run and the begin of the next one lie the executor's answer, a round, and the executor's start: the
*lag*, which is measured.  A machine whose runs take ``r`` seconds on average idles for ``lag / (lag + r)`` of its time.
While tasks wait for room, it gets in the scheduler's books ``1 + k`` times its capacity, ``k = ceil(lag / r)``: as many
more runs as it ends within the lag.  Machines with long runs get no more.  So a better task that comes later is
overtaken for about a lag, and never by long runs, unless these come unexpectedly.

Where tasks of several priorities wait for several machines, a run that is bound to a machine would be overtaken by worse
ones elsewhere.  Then a machine gets one run ahead of its room, after a round has filled the real free room.  The best
waiting one goes to the machine that is expected to end a run first, the next one to the next, and so on for the ends that
are expected within the lag.  A run is overtaken only where the one before it takes longer than expected.

Invariants:

* Runs *have room* in the order of their numbers, and those that have it fit into the real capacity together.
* The books hold the real capacity, or a larger one where runs are sent ahead.  The larger one covers all placed runs.  A
  machine that shrank below the demand of its runs that have room has its real capacity in the books.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Hashable, Iterable, Iterator
from dataclasses import replace
from math import ceil, inf

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.events import Event, MachineAdded, MachineUpdated
from flowsched.cluster.model import MICRO
from flowsched.cluster.state import Cluster
from flowsched.exceptions import FlowschedError
from flowsched.run.executor import Executor, Run

Amounts = NDArray[np.int64]

WORTH = 10
"""Runs of more lags than this wait for the next round: the machine idles for less than a tenth of its time."""

ORDERED = 4
"""If more runs than this end within the lag, runs are sent in bulk, and a worse one may overtake a better one by a lag."""

RECENT = 8
"""Number of a machine's last runs whose mean time is its estimate; also the limit of the factor on its capacity."""


class Room:
    """The real capacity of a machine and its use, in millionths.

    `capacity` is as the executor reported it, `taken` is used by runs that have room and have not ended, and `left` is
    the part of `taken` that other runs may already have: the ends of these runs are not reported yet.  `times` are the
    seconds for which the last runs had room, `since` the times since when those have it that have not ended.  `more` is
    the multiple of the capacity that the books add to the real one where the order of runs does not matter.
    """

    def __init__(self, capacity: Amounts) -> None:
        self.capacity, self.taken, self.left = capacity, np.zeros_like(capacity), np.zeros_like(capacity)
        self.times: deque[float] = deque(maxlen=RECENT)
        self.since: list[float] = []
        self.more = 0

    def need(self, lag: float) -> int:
        """Return the multiple of its capacity that the machine uses up within a lag; 0 if that is not worth it."""
        count, total = len(self.times), sum(self.times)
        if total >= WORTH * lag * count:
            return 0
        return min(ceil(lag * count / max(total, lag)), count)


def _is_over(room: Room, capacity: Amounts) -> bool:
    """Return True if the runs that have room take more than this capacity: the machine has become smaller."""
    return bool((room.taken - room.left > capacity).any())


class Ahead:
    """Capacities beyond the real ones; see `flowsched.run.executor.Holding`.

    `lag` is the time in seconds between a report of the executor and the driver's reaction to it; it is measured unless
    it is given, 0 for none.  `next` is a machine that gets a run ahead of its room in the next round, which is to be
    made at once.
    """

    def __init__(self, cluster: Cluster, executor: Executor, seconds: float | None = None) -> None:
        self._cluster, self._executor, self._seconds = cluster, executor, seconds
        self.lag = 0.0
        self.next: Hashable = None
        self._rooms: dict[Hashable, Room] = {}
        self._beyond: set[Hashable] = set()  # machines whose books may have more than the capacity
        self._largest = np.zeros(len(cluster.resources.names), np.int64)
        self._since = inf  # tasks have waited for room since then
        self._changed: set[Hashable] = set()  # machines that may need another capacity in the books
        self._times: deque[float] = deque(maxlen=RECENT)  # of all machines
        self._mixed = False  # the order of the runs of several machines matters

    # -- machines -----------------------------------------------------------------------------------------------

    def bounded(self, event: Event) -> Event:
        """Return the event for the books: its capacity covers all placed runs, unless those that have room exceed it."""
        if not isinstance(event, MachineUpdated) or event.capacity is None:
            return event
        if event.id not in self._beyond or event.id not in self._cluster.machines:
            return event
        try:
            capacity = self._vector(event)
        except FlowschedError:
            return event
        if _is_over(self._rooms[event.id], capacity):
            return event
        return replace(event, capacity=self.amounts(np.maximum(capacity, self._placed(event.id))))

    def note(self, event: Event) -> None:
        """Take note of an event that has happened."""
        if isinstance(event, MachineAdded | MachineUpdated) and event.capacity is not None:
            capacity, room = self._vector(event), self._rooms.get(event.id)
            if room is None:
                self._rooms[event.id] = Room(capacity)
            else:
                room.capacity = capacity

    def gone(self, machine: Hashable) -> None:
        """Forget a machine that has no run."""
        self._rooms.pop(machine, None)

    def expect(self, tasks: Iterable[Hashable]) -> None:
        """Take note of tasks: a machine that is too small for one gets no more, lest it seems to fit there."""
        known = self._cluster.tasks
        for cls in {known[task].group.cls for task in tasks}:
            if (cls.demand > self._largest).any():
                self._largest = np.maximum(self._largest, cls.demand)
                self._changed |= self._beyond

    # -- runs ---------------------------------------------------------------------------------------------------

    def demand(self, task: Hashable) -> Amounts:
        """Return the demand of a task, in millionths."""
        return self._cluster.tasks[task].group.cls.demand

    def amounts(self, vector: Amounts) -> dict[str, float]:
        """Return a vector of millionths by name."""
        return dict(zip(self._cluster.resources.names, (vector / MICRO).tolist(), strict=True))

    def holds(self, run: Run) -> bool:
        """Return True if the executor holds a run back until its machine has room."""
        holds = getattr(self._executor, "holds", None)
        return holds is not None and holds(run)

    def fits(self, machine: Hashable, demand: Amounts) -> bool:
        """Return False for a task that fits a machine in the books alone, such as one that has others make way."""
        room = self._rooms.get(machine)
        return room is None or machine not in self._beyond or bool((demand <= room.capacity).all())

    def take(self, machine: Hashable, demand: Amounts | None, now: float, runs: bool = False) -> bool:
        """Give room to a run; False if there is none yet, unless it runs already."""
        room = self._rooms.get(machine)
        if room is not None and demand is not None:
            taken, limited = room.taken + demand, machine in self._beyond or self._cluster.inventory.rule is None
            if limited and not runs and (taken - room.left > room.capacity).any():
                return False
            room.taken = taken
            room.since.append(now)
        return True

    def left(self, machine: Hashable, demand: Amounts | None, since: float, now: float) -> bool:
        """Give the room of a run to others before its end is reported; return False if it has devices, so keeps it."""
        room, device = self._rooms.get(machine), self._cluster.resources.device_index
        if room is None or demand is None or (device >= 0 and demand[device]):
            return False
        room.left = room.left + demand
        self._beyond.add(machine)
        self._count(machine, room, since, now)
        return True

    def leave(self, machine: Hashable, demand: Amounts | None, since: float, now: float, left: bool = False) -> None:
        """Forget a run that had room since a certain time; `inf` if it had none."""
        room = self._rooms.get(machine)
        if room is None or demand is None:
            return
        if since < inf:
            room.taken = room.taken - demand
        if left:
            room.left = room.left - demand
            self._changed.add(machine)
        else:
            self._count(machine, room, since, now)

    def _count(self, machine: Hashable, room: Room, since: float, now: float) -> None:
        """Take note of the time for which a run had its room."""
        if since < inf:
            room.since.remove(since)
        if self._since <= since < inf:  # earlier runs say nothing about the waiting tasks
            room.times.append(max(now - since, 0.0))
            self._times.append(room.times[-1])
            self._changed.add(machine)
        elif machine in self._beyond:
            self._changed.add(machine)

    # -- rounds -------------------------------------------------------------------------------------------------

    def look(self, now: float, waiting: int) -> None:
        """Take note of the number of tasks that wait after a round."""
        if not self._cluster.tasks:
            self._largest = np.zeros_like(self._largest)
        self._choose(now, waiting)
        if waiting <= len(self._cluster.resting):
            self._since = inf
            self._changed |= self._beyond
        elif self._since == inf:
            self._since = now
            self._times.clear()
            for room in self._rooms.values():
                room.times.clear()

    def _choose(self, now: float, waiting: int) -> None:
        """Set `next` if the order of the tasks that wait has to be kept, and `mixed` accordingly."""
        given, self.next, before, self._mixed = self.next, None, self._mixed, False
        rooms, times = self._rooms, self._times
        differ = len({cls.priority for cls in self._cluster.waiting}) > 1
        if waiting and len(rooms) > 1 and (differ or before) and ORDERED * sum(times) >= self._lag() * len(times):
            ahead = {m for m in self._beyond if m in rooms and (self._placed(m) > rooms[m].taken).any()}
            self._mixed = differ or bool(ahead)
            if self._mixed and (given is None or given in ahead):
                self.next = self._soonest(now, ahead)
        if self._mixed or before:
            self._changed |= self._beyond
        if self.next is not None:
            self._changed.add(self.next)

    def _soonest(self, now: float, ahead: Container[Hashable]) -> Hashable:
        """Return the machine without runs ahead that is expected to end a run first; None if that is later."""
        lag, runs = self._lag(), sum(len(room.since) for room in self._rooms.values())
        soon = lag + sum(self._times) / max(len(self._times) * runs, 1)  # the next look is at the next end
        first, best = now + (soon if ahead else WORTH * lag), None
        for machine, room in self._rooms.items():
            times = room.times or self._times
            record = self._cluster.machines.get(machine)
            if machine in ahead or not room.since or not times or not self._holds_all(room):
                continue
            if record is None or record.failed or record.drained:
                continue
            mean = sum(times) / len(times)
            end = room.since[0] + mean
            # A run that lasts longer than two others is of another kind.
            if end < first and now < end + mean + lag:
                first, best = end, machine
        return best

    def _holds_all(self, room: Room) -> bool:
        """Return False for a machine that is too small for a task, which would seem to fit there if it got more."""
        return bool((self._largest <= room.capacity).all())

    def _lag(self) -> float:
        return self.lag + getattr(self._executor, "latency", 0.0) if self._seconds is None else self._seconds

    def updates(self) -> Iterator[MachineUpdated]:
        """Yield the capacity updates to apply to the books before the next round."""
        lag = self._lag()
        machines, self._changed = self._changed, set()
        for machine in machines:
            record, room = self._cluster.machines.get(machine), self._rooms.get(machine)
            if record is None or room is None:
                self._beyond.discard(machine)
                continue
            if record.failed or record.drained:  # an update would end that
                continue
            need = room.need(lag) if self._since < inf and self._holds_all(room) else 0
            if not room.more / 2 < need <= room.more:
                room.more = need
            more = room.capacity * room.more
            if self._mixed:
                more = self._largest * (machine == self.next)
            capacity = room.capacity + room.left + more
            device = self._cluster.resources.device_index
            if device >= 0:
                capacity[device] = room.capacity[device]
            capacity = room.capacity if _is_over(room, room.capacity) else np.maximum(capacity, self._placed(machine))
            if (capacity > room.capacity).any():
                self._beyond.add(machine)
            else:
                self._beyond.discard(machine)
            if (capacity != self._cluster.inventory.capacity[record.row]).any():
                yield MachineUpdated(machine, self.amounts(capacity))

    def _placed(self, machine: Hashable) -> Amounts:
        row, inventory = self._cluster.machines[machine].row, self._cluster.inventory
        placed: Amounts = inventory.capacity[row] - inventory.free[row]
        return placed

    def _vector(self, event: MachineAdded | MachineUpdated) -> Amounts:
        assert event.capacity is not None
        return self._cluster.resources.capacity(f"machine {event.id!r}: capacity", event.capacity)
