"""Schedulers that know slots only: a random queue, a queue by priority, and their common part with Firmament's network."""

from __future__ import annotations

import time
from collections.abc import Collection, Hashable, Mapping

import numpy as np

from flowsched.cluster import Task
from flowsched.cluster.events import Event, JobSubmitted, MachineAdded, TaskCompleted
from flowsched.rounds.values import Commit, Delta, Place, Preempt, Preemption, Round, RoundStats

__all__ = ["PriorityQueue", "RandomPlacement", "Slots"]


class Slots:
    """Free slots of machines, and tasks in the order in which they came; running tasks are never stopped.

    Attributes
    ----------
    rack : dict of machine id to rack
    free : dict of machine id to int
    waiting : dict of task id to (Task, job id, time of arrival)
    where : dict of task id to machine id
    """

    def __init__(self) -> None:
        self.rack: dict[Hashable, Hashable] = {}
        self.free: dict[Hashable, int] = {}
        self.waiting: dict[Hashable, tuple[Task, Hashable, float]] = {}
        self.where: dict[Hashable, Hashable] = {}

    def apply(self, *events: Event) -> None:
        """Take events: machines that come, jobs, and tasks that end."""
        for event in events:
            if isinstance(event, MachineAdded):
                self.rack[event.id] = event.rack
                self.free[event.id] = 1 << 40 if event.slots is None else event.slots
            elif isinstance(event, JobSubmitted):
                self.waiting.update((task.id, (task, event.id, event.time or 0.0)) for task in event.tasks)
            elif isinstance(event, TaskCompleted):
                self.free[self.where.pop(event.task)] += 1

    def decide(self, now: float) -> Mapping[Hashable, Hashable]:
        """Return the machine of each task that starts."""
        raise NotImplementedError

    def schedule(self, now: float, time_limit: float | None = None) -> Round:
        """Decide; nothing starts before the commit."""
        begin = time.perf_counter()
        places = self.decide(now)
        deltas = tuple(Place(task, machine, ()) for task, machine in places.items())
        stats = RoundStats(0, 0, 0, 0, 0.0, 0.0, time.perf_counter() - begin)
        return Round(now, dict(places), {}, {}, {}, {}, deltas, stats)

    def commit(self, round: Round, only: Collection[Hashable] | None = None) -> Commit:
        """Start the tasks of a round."""
        for task, machine in round.placements.items():
            self.free[machine] -= 1
            self.where[task] = machine
            del self.waiting[task]
        return Commit(round.deltas, {})


class RandomPlacement(Slots):
    """A queue, first come, first served: each task goes to a random machine that has a free slot.

    The cost of a draw does not depend on the number of machines: those with a free slot are in a list without gaps.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._rng = np.random.default_rng(seed)

    def decide(self, now: float) -> Mapping[Hashable, Hashable]:
        """Draw a machine for each waiting task."""
        free = {machine: room for machine, room in self.free.items() if room > 0}
        open_ = list(free)
        places: dict[Hashable, Hashable] = {}
        for task, luck in zip(self.waiting, self._rng.random(len(self.waiting)).tolist(), strict=True):
            if not open_:
                break
            at = int(luck * len(open_))
            places[task] = machine = open_[at]
            free[machine] -= 1
            if not free[machine]:
                open_[at] = open_[-1]
                open_.pop()
        return places


class PriorityQueue(Slots):
    """A queue by priority, then by time of arrival, as Borg's and Kubernetes': it stops tasks of worse priority for better ones.

    A task goes to the machine with the most free slots.  Where none is free, it takes the place of a running task of the
    worst priority, of those the one that started last, which waits again with its time of arrival.
    """

    def __init__(self) -> None:
        super().__init__()
        self._priority: dict[Hashable, int] = {}
        self._running: dict[Hashable, tuple[int, float, tuple[Task, Hashable, float]]] = {}

    def apply(self, *events: Event) -> None:
        """Take events, with the priorities of jobs."""
        super().apply(*events)
        for event in events:
            if isinstance(event, JobSubmitted):
                self._priority[event.id] = event.priority
            elif isinstance(event, TaskCompleted):
                del self._running[event.task]

    def schedule(self, now: float, time_limit: float | None = None) -> Round:
        """Decide."""
        free = {machine: room for machine, room in self.free.items() if room > 0}
        victims = sorted((of[0], of[1], task) for task, of in self._running.items())
        deltas: list[Delta] = []
        placements: dict[Hashable, Hashable] = {}
        stopped: dict[Hashable, Preemption] = {}
        for task, (_, job, _) in sorted(
            self.waiting.items(), key=lambda item: (self._priority[item[1][1]], item[1][2], item[0])
        ):
            if free:
                machine = max(free, key=free.__getitem__)
                free[machine] -= 1
                if not free[machine]:
                    del free[machine]
            elif victims and victims[-1][0] > self._priority[job]:
                victim = victims.pop()[2]
                machine = self.where[victim]
                stopped[victim] = Preemption(machine, task, 0.0)
                deltas.insert(len(stopped) - 1, Preempt(victim, machine, task))
            else:
                break
            placements[task] = machine
            deltas.append(Place(task, machine, ()))
        stats = RoundStats(0, 0, 0, 0, 0.0, 0.0, 0.0)
        return Round(now, placements, stopped, {}, {}, {}, tuple(deltas), stats)

    def commit(self, round: Round, only: Collection[Hashable] | None = None) -> Commit:
        """Stop and start the tasks of a round."""
        for task in round.preemptions:
            self.free[self.where.pop(task)] += 1
            self.waiting[task] = self._running.pop(task)[2]
        for task in round.placements:
            item = self.waiting[task]
            self._running[task] = self._priority[item[1]], round.now, item
        return super().commit(round, only)
