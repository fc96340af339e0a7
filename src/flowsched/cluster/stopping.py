"""Stopping runs, which hold their room until they have stopped.

A worker takes time to stop a task.  With `PreemptionCost.graceful` the task rests meanwhile: it does not start elsewhere
before its run has ended.  In the network its room is free, so no further task is stopped for lack of it.  But the round
withholds starts in that room (`flowsched.rounds.withholding`), and a commit refuses them.

Rule: a task rests without an end, ``resting[id] == inf``, exactly as long as its last run is in `stopping`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from math import inf
from typing import NamedTuple

import numpy as np

from flowsched.boundary.validate import whole
from flowsched.cluster import events as ev
from flowsched.cluster.inventory import Inventory
from flowsched.cluster.membership import Membership
from flowsched.cluster.model import MICRO
from flowsched.cluster.records import Placement, TaskRecord
from flowsched.exceptions import InputError

__all__ = ["Stop", "Stopping"]


class Stop(NamedTuple):
    """A stopping run.

    Parameters
    ----------
    task : hashable
    row : int
        Row of its machine.
    demand : tuple of int
        Amount of each resource that it holds, in micro-units.
    devices : tuple of int
    share : int
        Part that it holds of each of these devices.
    owner : tuple of hashable
        Job and user, since its task may be gone before it has stopped; empty in older files.
    """

    task: Hashable
    row: int
    demand: tuple[int, ...]
    devices: tuple[int, ...]
    share: int
    owner: tuple[Hashable, ...] = ()


class Stopping(Membership):
    """Part of a cluster that records stopping runs.

    Attributes
    ----------
    stopping : dict of int to Stop
        By run.
    stale_events : int
    """

    def __init__(self, inventory: Inventory) -> None:
        super().__init__(inventory)
        self.stopping: dict[int, Stop] = {}
        self.stale_events = 0

    def stop_of(self, task: TaskRecord, place: Placement) -> Stop:
        """Return the room that a run of the task holds while it stops."""
        cls = task.group.cls
        share = self.inventory.device_share(cls.index)
        job = task.group.job.job
        return Stop(task.id, place.row, tuple(cls.demand.tolist()), place.devices, share, (job.id, job.user))

    def hold(self, task: TaskRecord, place: Placement) -> None:
        """Hold the room of a task that was stopped there until `TaskStopped`."""
        self.stopping[task.run] = self.stop_of(task, place)
        self._rest(task, task.group.cls, inf)

    def stops_on(self, row: int) -> list[Stop]:
        """Return the stopping runs on a machine."""
        return [stop for stop in self.stopping.values() if stop.row == row]

    def overlaps(self, row: int, stops: Iterable[Stop]) -> bool:
        """Return True if tasks that run on the machine use room that these runs still hold."""
        inventory, g = self.inventory, self.inventory.resources.device_index
        held = [0] * len(inventory.resources.names)
        devices: dict[int, int] = {}
        slots = 0
        for stop in stops:
            slots += 1
            held = [a + b for a, b in zip(held, stop.demand, strict=True)]
            for device in stop.devices:
                devices[device] = devices.get(device, 0) + stop.share
        free = inventory.free[row].tolist()
        if slots > int(inventory.slots[row] - inventory.running[row]):
            return True
        # Under a fit rule tasks may ask for more than the capacity.
        known = range(len(held)) if inventory.rule is None else [g] if g >= 0 else []
        if any(held[d] > free[d] for d in known if held[d]):
            return True
        rooms = inventory.rooms(row)
        return any(share > (int(rooms[device]) if device < len(rooms) else 0) for device, share in devices.items())

    def free(self, machine: Hashable) -> dict[str, float]:
        """Return the free amount of each resource of a machine, without the room of stopping runs."""
        free = super().free(machine)
        for stop in self.stops_on(self.machine(machine).row):
            free = {name: free[name] - amount / MICRO for name, amount in zip(free, stop.demand, strict=True)}
        return free

    def is_stale(self, event: ev.Event) -> bool:
        """Return True for an event about another run than its task's present one; it will change nothing."""
        stopped = (
            self._stopping_run(event) if isinstance(event, ev.TaskStopped | ev.TaskCompleted | ev.TaskFailed) else None
        )
        return stopped is None and super().is_stale(event)

    def _stale(
        self, event: ev.TaskStarted | ev.TaskCompleted | ev.TaskFailed | ev.TaskStopped | ev.UsageSampled
    ) -> bool:
        """Check if an event is stale, and count it."""
        if event.run is None:
            return False
        whole(f"{type(event).__name__}: run", event.run, 0)
        stale = self.is_stale(event)
        self.stale_events += stale
        return stale

    def _stopping_run(self, event: ev.TaskStopped | ev.TaskCompleted | ev.TaskFailed) -> int | None:
        """Return the number of the stopping run that an event ends, None without one."""
        if not self.stopping:
            return None
        try:
            record, run = self.tasks.get(event.task), event.run
        except TypeError:  # unhashable, so it is no task
            return None
        if run is None and record is not None and record.row >= 0:
            return None  # the event is about the present run
        runs = [number for number, stop in self.stopping.items() if stop.task == event.task]
        if run is None:
            return runs[-1] if runs else None
        return int(run) if isinstance(run, int | np.integer) and int(run) in runs else None

    def _task_stopped(self, event: ev.TaskStopped) -> None:
        """Apply the end of a stopping run; its task waits again if it still exists."""
        if self._stale(event):
            return
        run = self._stopping_run(event)
        if run is None:
            self.task(event.task)
            raise InputError(f"task {event.task!r}: it has no stopping run")
        self._let_go([run], event.time)

    def _let_go(self, runs: list[int], time: float | None) -> None:
        """Forget stopping runs; their tasks wait again."""
        back = []
        for run in runs:
            task = self.tasks.get(self.stopping.pop(run).task)
            if task is not None and task.run == run and task.id in self.resting:
                back.append(task)
        self._come_back(back, time)
