"""Runs that are told to a machine before it has room for them, so that it does not idle between an end and the next start.

Between the end of a run and the begin of the next one lie the executor's answer, a round, and the executor's start: the
*lag*, which is measured.  A machine whose runs take ``r`` seconds on average idles for ``lag / (lag + r)`` of its time.
While tasks wait for room, it gets in the scheduler's books ``1 + k`` times its capacity, ``k = ceil(lag / r)``: as many
more runs as it ends within the lag.  Machines with long runs get no more.  So a better task that comes later is
overtaken for about a lag, and never by long runs, unless these come unexpectedly.

Invariants:

* Runs *have room* in the order of their numbers, and those that have it fit into the real capacity together.
* The books hold the real capacity, more than that only where `Ahead.rooms` says so, and never less than what is placed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace
from math import ceil, inf

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.events import Event, MachineAdded, MachineUpdated
from flowsched.cluster.model import MICRO
from flowsched.cluster.state import Cluster
from flowsched.exceptions import FlowschedError
from flowsched.run.executor import Executor, Run

__all__ = ["Ahead", "Room"]

Amounts = NDArray[np.int64]

WORTH = 10
"""Runs of more lags than this wait for the next round: the machine idles for less than a tenth of its time."""

RECENT = 8
"""Runs of a machine whose mean time is its estimate.  It gets at most so many times its capacity as there are of them."""


class Room:
    """What a machine really has.

    Parameters
    ----------
    capacity : (resources,) array
        In millionths, as the executor told it.

    Attributes
    ----------
    taken : (resources,) array
        By runs that have room and have not ended.
    times : deque of float
        Seconds for which the last runs had room.
    more : int
        Times the capacity that the books have beside it.
    """

    def __init__(self, capacity: Amounts) -> None:
        self.capacity, self.taken = capacity, np.zeros_like(capacity)
        self.times: deque[float] = deque(maxlen=RECENT)
        self.more = 0

    def need(self, lag: float) -> int:
        """Return how many times its capacity the machine uses up within a lag; 0 if that is not worth it."""
        count, total = len(self.times), sum(self.times)
        if total >= WORTH * lag * count:
            return 0
        return min(ceil(lag * count / max(total, lag)), count)


class Ahead:
    """Capacities beyond the real ones.

    Parameters
    ----------
    cluster : Cluster
    executor : Executor
        See `flowsched.run.executor.Holding`.
    seconds : float, optional
        The lag, instead of the one that is measured; 0 for none.

    Attributes
    ----------
    lag : float
        Seconds between what an executor tells and what it is told thereupon.
    """

    def __init__(self, cluster: Cluster, executor: Executor, seconds: float | None = None) -> None:
        self._cluster, self._executor, self._seconds = cluster, executor, seconds
        self.lag = 0.0
        self._rooms: dict[Hashable, Room] = {}
        self._beyond: set[Hashable] = set()  # machines whose books may have more than the capacity
        self._largest = np.zeros(len(cluster.resources.names), np.int64)
        self._since = inf  # tasks have waited for room since then
        self._changed: set[Hashable] = set()  # machines that may need another capacity in the books

    # -- machines -----------------------------------------------------------------------------------------------

    def bounded(self, event: Event) -> Event:
        """Return what the books are told in place of an event: no less capacity than is placed beyond the real one."""
        if not isinstance(event, MachineUpdated) or event.capacity is None:
            return event
        if event.id not in self._beyond or event.id not in self._cluster.machines:
            return event
        try:
            capacity = self._vector(event)
        except FlowschedError:
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
        """Return what a task takes, in millionths."""
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

    def take(self, machine: Hashable, demand: Amounts | None) -> bool:
        """Give room to a run; False if there is none yet."""
        room = self._rooms.get(machine)
        if room is not None and demand is not None:
            taken = room.taken + demand
            if machine in self._beyond and (taken > room.capacity).any():
                return False
            room.taken = taken
        return True

    def leave(self, machine: Hashable, demand: Amounts | None, since: float, now: float) -> None:
        """Forget a run that had room since a certain time; `inf` if it had none."""
        room = self._rooms.get(machine)
        if room is None or demand is None:
            return
        if since < inf:
            room.taken = room.taken - demand
        if self._since <= since < inf:  # those that ran before tell nothing of the tasks that wait
            room.times.append(max(now - since, 0.0))
            self._changed.add(machine)
        elif machine in self._beyond:
            self._changed.add(machine)

    # -- rounds -------------------------------------------------------------------------------------------------

    def look(self, now: float, waiting: int) -> None:
        """Take note of how many tasks wait after a round."""
        if not self._cluster.tasks:
            self._largest = np.zeros_like(self._largest)
        if waiting <= len(self._cluster.resting):
            self._since = inf
            self._changed |= self._beyond
        elif self._since == inf:
            self._since = now
            for room in self._rooms.values():
                room.times.clear()

    def updates(self) -> Iterator[MachineUpdated]:
        """Yield what the books are to be told before the next round."""
        lag = self.lag + getattr(self._executor, "latency", 0.0) if self._seconds is None else self._seconds
        machines, self._changed = self._changed, set()
        for machine in machines:
            record, room = self._cluster.machines.get(machine), self._rooms.get(machine)
            if record is None or room is None:
                self._beyond.discard(machine)
                continue
            if record.failed or record.drained:  # an update would end that
                continue
            need = room.need(lag) if self._since < inf and (self._largest <= room.capacity).all() else 0
            if not room.more / 2 < need <= room.more:
                room.more = need
            capacity = room.capacity * (1 + room.more)
            device = self._cluster.resources.device_index
            if device >= 0:
                capacity[device] = room.capacity[device]
            capacity = np.maximum(capacity, self._placed(machine))
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
