"""Resource units as the machines of a flow network.

Each unit r becomes machines of three layers over the same resources, and a task may enter the layers of its kind::

    batch task  ---> (run, r)        free resources, where no task waits            cost: load
           `-------> (queue, r, k)   the k-th free place of the batch queue         cost: grows with the predicted wait
                                     of a unit where a task runs
    stream task ---> (stream, r)     resources that no stream holds: batch yields   cost: the share that batch must yield

The network holds open tasks only: a task that is granted a unit leaves the network, and the unit has less room from
then on.  So several schedulers each keep a network over a copy of the shared state, refreshed by its changes.  A task
that was refused stays in and is solved again from the last optimum.

Layers are brought up to date when they can matter: queues where a task finds no room to run, streams where one is placed.

GPU units with shared cores are machines of the network of their own, each with all the cores that are free.  The grants of a
round to several of one machine may exceed these: then batch tasks stay in, and streams are solved again with less.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from random import Random
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from flowsched.boundary.validate import seconds
from flowsched.cluster import Cluster, Task
from flowsched.cluster.events import (
    Event,
    JobRemoved,
    JobSubmitted,
    MachineAdded,
    MachineUpdated,
    TaskRemoved,
    TaskSubmitted,
)
from flowsched.cluster.model import MICRO
from flowsched.exceptions import InputError
from flowsched.hrm.containers import Container, Kind, Trigger, sense
from flowsched.hrm.queues import StackedQueue
from flowsched.hrm.state.claims import Claim, Granted, Refusal, UnitState
from flowsched.hrm.units import AMOUNTS, Amounts
from flowsched.policy import Policy
from flowsched.rounds.values import Round
from flowsched.scheduler import Scheduler

_LAYER = "layer"

_SHARED = "shared "
"""Before a layer's name: of a unit whose cores are shared, for containers with GPU memory only."""

_BATCH = ("queue", "run")
_STREAM = ("stream",)

_RUN, _QUEUE, _WRONG_UNIT, _SCATTER = 0.2, 0.3, 0.2, 0.05
"""Of the cost range: at most for running at once; at least for any queue; for a CPU task on a GPU unit; for chance."""

_SLACK = 1e-3
"""Seconds by which the wait in a queue may exceed that of a claim on it, because of rounding."""


class OpenTasks(Protocol):
    """The interface of the scheduler that keeps Hybrid's network; see `flowsched.Scheduler`."""

    @property
    def cluster(self) -> Cluster: ...

    def apply(self, *events: Event) -> object: ...

    def schedule(self, now: float, time_limit: float | None = None) -> Round: ...


class _LayerCost:
    """A `PlacementCost` by row: of the layer's machine there, and of a CPU task on a GPU unit."""

    weight = 1.0

    def __init__(self) -> None:
        self.base: dict[int, float] = {}  # by row: the cost for every task
        self.gpu: dict[int, bool] = {}  # by row: True for a machine of a GPU unit

    def __call__(self, cluster: Cluster, classes: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Cost in [0, 1], shape (classes, rows)."""
        listed = rows.tolist()
        base = np.fromiter((self.base.get(row, 0.0) for row in listed), np.float64, len(listed))
        gpu = np.fromiter((self.gpu.get(row, False) for row in listed), np.bool_, len(listed))
        needless = (cluster.inventory.demand[classes, AMOUNTS.index["gmem"]] == 0)[:, None] & gpu[None, :]
        return np.asarray(np.minimum(base[None, :] + _WRONG_UNIT * needless, 1.0), np.float64)


class Hybrid:
    """Batch and stream jobs on resource units, by a flow network.

    Parameters
    ----------
    horizon : float
        Predicted wait in seconds that costs half of the highest cost of a wait.
    max_wait : float
        No place is taken in a queue whose predicted wait is not below this.
    seed : int
        Schedulers with different seeds prefer different ones of equally good units, so that they collide less.

    Attributes
    ----------
    scheduler : Scheduler
        Keeps the network; its tasks are the open ones.
    last : Round or None
        The last round, with the reasons of the waiting tasks.

    Examples
    --------
    >>> from flowsched.hrm import Container, Hybrid, ResourceUnit, StackedQueue
    >>> queue = StackedQueue(ResourceUnit("u", vcore=2), length=1)
    >>> hybrid = Hybrid()
    >>> hybrid.refresh([hybrid.state_of(queue, now=0.0)])
    >>> hybrid.submit("job", [Container(f"task-{i}", vcore=1, duration=9.0) for i in range(4)])
    >>> [(claim.task, claim.queued) for claim in hybrid.claims(now=0.0)]
    [('task-0', False), ('task-1', False)]
    """

    def __init__(self, *, horizon: float = 60.0, max_wait: float = math.inf, seed: int = 0) -> None:
        self.horizon = seconds("horizon", horizon)
        self.max_wait = seconds("max_wait", max_wait, finite=False)
        self.seed = seed
        self.last: Round | None = None
        self._costs = _LayerCost()
        self.scheduler: OpenTasks = Scheduler(Policy(placement=(self._costs,), preemption=None), AMOUNTS, seed)
        self._states: dict[str, UnitState] = {}
        # By unit: predicted start of its queue's next container, as of the last refresh.
        self._starts: dict[str, float] = {}
        self._opens: dict[str, float] = {}
        self._places: dict[str, int] = {}
        # By unit whose layer is not up to date: the amounts for streams, and the predicted wait in its queue.
        self._stale_streams: dict[str, Amounts] = {}
        self._stale_queues: dict[str, float] = {}
        self._layers: dict[Hashable, tuple[str, str]] = {}
        self._luck: dict[str, float] = {}
        self._random = Random(seed)
        self._jobs: dict[Hashable, Hashable] = {}
        self._containers: dict[Hashable, Container] = {}  # by open task

    # -- units --------------------------------------------------------------------------------------------------

    @staticmethod
    def state_of(queue: StackedQueue, now: float) -> UnitState:
        """Return a `StackedQueue` of this process as the state that `refresh` takes."""
        last = queue.waiting[-1] if queue.waiting else None
        wait = 0.0 if last is None else queue.predict(last, now)
        if last is None and queue.running:
            wait = min(end for end, _ in queue.ends(now)) - now
        length = 0 if queue.length is None else queue.length
        return UnitState(
            str(queue.unit.id), str(queue.unit.machine), queue.capacity, queue.room, queue.stream_room,
            max(length - len(queue.waiting), 0), wait, version=queue.version, shared=queue.unit.shared,
        )  # fmt: skip

    @property
    def versions(self) -> dict[str, int]:
        """The version of every unit's state here, for `Negotiator.units`."""
        return {unit: state.version for unit, state in self._states.items()}

    def refresh(self, states: Iterable[UnitState], now: float = 0.0) -> None:
        """Take over states of units that changed or are new; `now` is when they were read."""
        for state in states:
            old = self._states.get(state.unit)
            self._states[state.unit] = state
            self._starts[state.unit] = now + state.wait
            room, stream = (state.free, state.stream_room) if state.alive else ((0, 0, 0, 0),) * 2
            load = 1 - _least_part(room, state.capacity)
            if old is None:
                self._luck[state.unit] = self._random.random()
            cost = (_RUN - _SCATTER) * load + _SCATTER * self._luck[state.unit]
            self._layer(("run", state.unit), old is None, room, cost, state.capacity[2] > 0)
            self._stale_streams[state.unit] = stream
            self._opens.pop(state.unit, None)
            if state.wait >= self.max_wait and state.alive and state.places:
                # Waits grow shorter without any event.
                self._opens[state.unit] = now + state.wait - self.max_wait
            self._stale_queues[state.unit] = state.wait

    def _refresh_streams(self) -> None:
        for unit, stream in self._stale_streams.items():
            state = self._states[unit]
            displaced = 1 - _least_part(tuple(map(min, state.free if state.alive else (0, 0, 0, 0), stream)), stream)
            cost = (1 - _WRONG_UNIT - _SCATTER) * displaced + _SCATTER * self._luck[unit]
            self._layer(("stream", unit), ("stream", unit) not in self._layers, stream, cost, state.capacity[2] > 0)
        self._stale_streams.clear()

    def _queue(self, state: UnitState, wait: float) -> None:
        """Update the free places of a unit's queue for a predicted wait in seconds."""
        gpu = state.capacity[2] > 0
        # Where no task runs, the wait depends on the tasks that this round starts: that is for the next one.
        idle = state.free[3] == state.capacity[3]
        places = state.places if state.alive and wait < self.max_wait and not idle else 0
        known = self._places.setdefault(state.unit, 0)
        for k in range(max(places, known)):
            # Places behind the first wait longer: as long again for each place, for lack of a better estimate.
            longer = (k + 1) * max(wait, 1e-3 * self.horizon)
            cost = _QUEUE + (1 - _QUEUE - _WRONG_UNIT) * (1 - self.horizon / (longer + self.horizon))
            amounts = (*state.capacity[:3], int(k < places))
            self._layer(("queue", state.unit, k), k >= known, amounts, cost, gpu)
        self._places[state.unit] = max(places, known)

    def _layer(
        self, id: tuple[str, str] | tuple[str, str, int], new: bool, amounts: Sequence[int], cost: float, gpu: bool
    ) -> None:
        capacity = [amount / MICRO for amount in amounts[:3]]
        slots = min(max(amounts[3], 0), 1 << 30)  # more may run than there are places, if these became fewer
        if new:
            self._layers[id] = id[:2]
            layer = _SHARED * self._states[id[1]].shared + id[0]
            self.scheduler.apply(MachineAdded(id, capacity, labels={_LAYER: layer}, slots=slots))
            self._costs.gpu[self.scheduler.cluster.machine(id).row] = gpu
        record = self.scheduler.cluster.machine(id)
        same = record.slots == slots and tuple(record.capacity) == tuple(capacity)
        if not new and not (same and abs(self._costs.base[record.row] - cost) < 1e-3):
            self.scheduler.apply(MachineUpdated(id, capacity, slots=slots))
        self._costs.base[record.row] = cost

    # -- jobs ---------------------------------------------------------------------------------------------------

    def submit(
        self,
        job: Hashable,
        containers: Sequence[Container],
        *,
        kind: Kind | None = None,
        trigger: Trigger | None = None,
    ) -> None:
        """Open batch tasks of a new job or of a known one.

        Parameters
        ----------
        kind : {"batch", "stream"}, optional
            Told; by default sensed from `trigger`, or the containers' own.
        trigger : {"once", "window", "continuous"}, optional
            See `sense`.

        Raises
        ------
        InputError
            It is a stream job: those are placed at once or refused, see `place_stream`.
        """
        told = kind or (sense(trigger) if trigger else None)
        if any((told or container.kind) == "stream" for container in containers):
            raise InputError(f"job {job!r}: a stream job does not wait in the network; see place_stream")
        if job in self.scheduler.cluster.jobs:
            self.scheduler.apply(*(TaskSubmitted(job, _task(container, _BATCH)) for container in containers))
        else:
            priority = containers[0].priority if containers else 0
            self.scheduler.apply(JobSubmitted(job, [_task(c, _BATCH) for c in containers], priority=priority))
        self._jobs.update((container.id, job) for container in containers)
        self._containers.update((container.id, container) for container in containers)

    def withdraw(self, tasks: Iterable[Hashable]) -> None:
        """Take tasks out of the network."""
        for task in tasks:
            if self._jobs.pop(task, None) is not None:
                del self._containers[task]
                self.scheduler.apply(TaskRemoved(task))

    @property
    def next_opening(self) -> float:
        """Time when the wait in some queue becomes short enough, if nothing else happens; infinite if in none."""
        return min(self._opens.values(), default=math.inf)

    @property
    def open(self) -> Mapping[Hashable, Hashable]:
        """Job by open task."""
        return self._jobs

    def claims(self, now: float, allowed: Mapping[Any, int] | None = None) -> list[Claim]:
        """Decide where open batch tasks should go.

        Parameters
        ----------
        allowed : mapping of job to int, optional
            Most tasks of each job; jobs that are not named are not limited.

        Returns
        -------
        list of Claim
            For `Negotiator.commit`; pass its outcome to `settle`.
        """
        for unit in [unit for unit, time in self._opens.items() if time < now]:  # their waits are short enough by now
            del self._opens[unit]
            self._stale_queues[unit] = math.nextafter(self.max_wait, 0.0)
        self.last = self._places_found(now)
        left: dict[Hashable, int] = dict(allowed or {})
        used: dict[str, int] = {}  # by machine: cores of its units with shared cores
        longest: dict[str, float] = {}  # by unit: longest run time of the tasks that start there
        out = []
        placed = [(task, *self._layers[machine]) for task, machine in self.last.placements.items()]
        for task, layer, unit in sorted(placed, key=lambda one: one[1] == "queue"):
            job, container = self._jobs[task], self._containers[task]
            if left.get(job, 1) <= 0:
                continue
            if layer == "queue" and longest.get(unit, 0.0) >= self.max_wait:
                continue  # it would wait behind tasks that start now
            if layer != "queue":
                if not self._leaves_cores(used, unit, container.need[0]):
                    continue
                longest[unit] = max(longest.get(unit, 0.0), container.duration)
            if job in left:
                left[job] -= 1
            wait = max(self._starts[unit] - now, 0.0) + _SLACK if layer == "queue" else math.inf
            out.append(Claim(str(task), unit, layer == "queue", wait))
        return out

    def _places_found(self, now: float) -> Round:
        """Decide; again with the queues as they are now, if a task finds no room to run."""
        found = self.scheduler.schedule(now)
        if self._stale_queues:
            if len(found.placements) == len(self._jobs):
                where = (self._layers[machine] for machine in found.placements.values())
                if not any(layer == "queue" and unit in self._stale_queues for layer, unit in where):
                    return found
            for unit, wait in self._stale_queues.items():
                self._queue(self._states[unit], wait)
            self._stale_queues.clear()
            found = self.scheduler.schedule(now)
        return found

    def _leaves_cores(self, used: dict[str, int], unit: str, cores: int) -> bool:
        """Count the cores of a claim; return False, and count nothing, if the units that share them have too few."""
        state = self._states[unit]
        if state.shared and cores:
            if used.get(state.machine, 0) + cores > state.free[0]:
                return False
            used[state.machine] = used.get(state.machine, 0) + cores
        return True

    def _overdrawn(self, placed: Mapping[Hashable, Hashable], tasks: Mapping[Hashable, Container]) -> str | None:
        """Return a unit that gets more of the shared cores than the ones before it leave, and give it only those."""
        used: dict[str, dict[str, int]] = {}
        for id, container in tasks.items():
            unit = self._layers[placed[id]][1]
            if self._states[unit].shared:
                by_unit = used.setdefault(self._states[unit].machine, {})
                by_unit[unit] = by_unit.get(unit, 0) + container.need[0]
        for by_unit in used.values():
            before = 0
            for unit, cores in by_unit.items():
                room = self._states[unit].stream_room
                if before + cores > room[0]:
                    self._stream_layer(unit, (max(room[0] - before, 0), *room[1:]))
                    return unit
                before += cores
        return None

    def _stream_layer(self, unit: str, room: Sequence[int]) -> None:
        row = self.scheduler.cluster.machine(("stream", unit)).row
        self._layer(("stream", unit), False, room, self._costs.base[row], self._states[unit].capacity[2] > 0)

    def settle(self, granted: Granted) -> None:
        """Take tasks out of the network whose claims were accepted, or that another scheduler took."""
        self.withdraw(claim.task for claim in granted.accepted)
        self.withdraw(claim.task for claim, why in granted.refused if why is Refusal.TAKEN)

    def place_stream(
        self, containers: Sequence[Container], states: Iterable[UnitState], now: float
    ) -> dict[str, str] | None:
        """Find units for all containers of a stream job at wait 0, or None; for `Negotiator.stream`."""
        self.refresh(states, now)
        self._refresh_streams()
        job = ("stream", object())
        tasks: dict[Hashable, Container] = {(container.id, "stream"): container for container in containers}
        self.scheduler.apply(JobSubmitted(job, [_task(c, _STREAM, id) for id, c in tasks.items()], priority=-(1 << 20)))
        cut: set[str] = set()
        try:
            placed = self.scheduler.schedule(now).placements
            while all(id in placed for id in tasks) and (unit := self._overdrawn(placed, tasks)) is not None:
                cut.add(unit)
                placed = self.scheduler.schedule(now).placements
        finally:
            self.scheduler.apply(JobRemoved(job))
            for unit in cut:
                self._stream_layer(unit, self._states[unit].stream_room)
        if any(id not in placed for id in tasks):
            return None
        return {str(container.id): self._layers[placed[id]][1] for id, container in tasks.items()}


def _task(container: Container, layers: tuple[str, ...], id: Hashable = None) -> Task:
    demand = [amount / MICRO for amount in container.need[:3]]
    if container.need[2]:
        layers += tuple(_SHARED + layer for layer in layers)
    return Task(container.id if id is None else id, demand, {_LAYER: layers})


def _least_part(room: Sequence[int], capacity: Sequence[int]) -> float:
    """Return the smallest fraction that is left of any resource."""
    return min((a / b for a, b in zip(room, capacity, strict=True) if b), default=0.0)
