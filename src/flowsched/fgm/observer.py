"""What happens to tasks and machines, and what samples say, as FGM takes it in."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster import MICRO
from flowsched.cluster import events as ev
from flowsched.cluster.records import TaskRecord
from flowsched.fgm.adjust import Level
from flowsched.fgm.rule import StageRule

__all__ = ["World"]

Floats = NDArray[np.float64]
_Thing = TypeVar("_Thing")

_FOREIGN = 0.02
"""A machine is looked at again when the load that is not ours changes by this part of its total."""

_Ends = ev.TaskCompleted | ev.TaskFailed | ev.TaskRemoved
_OfMachines = ev.MachineUpdated | ev.MachineFailed | ev.MachineRemoved


class World:
    """Takes events in, and lets the learner and the futures of a rule know.

    Parameters
    ----------
    rule : StageRule
    highest : Level
        See `FineGrained`.

    Attributes
    ----------
    moved : (str, list of int, float) or None
        Machines that were moved on, and to which time, or touched only, for events of which one failed.
    tried : TaskStarted or None
        One that was refused: the rule was asked, and remembers what it said.
    """

    def __init__(self, rule: StageRule, highest: Level) -> None:
        self.moved: tuple[str, list[int], float] | None = None
        self.tried: ev.TaskStarted | None = None
        self._rule, self._highest = rule, highest
        self._futures, self._learner = rule.forecast, rule.learner
        self._cluster = self._futures.cluster

    def live(self, events: Sequence[ev.Event], happen: Callable[[ev.Event], None]) -> None:
        """Live through events; each happens by a call of `happen`."""
        self.moved = self.tried = None
        start = 0
        while start < len(events):
            event, now = events[start], self._time(events[start])
            stop = start + 1
            if isinstance(event, ev.UsageSampled):
                happen(event)
                self._task_sampled(event, now)
            elif isinstance(event, ev.MachineSampled):
                happen(event)
                self._machine_sampled(event, now)
            else:
                # What happens at one time is one step for the machines concerned.
                while stop < len(events) and self._time(events[stop]) == now and not _is_sample(events[stop]):
                    stop += 1
                self._step(events[start:stop], now, happen)
            start = stop

    def date(self, now: float) -> None:
        """What has happened at no stated time since the last round happened now."""
        begun = []
        for task, (turn, began) in self._futures.undated.items():
            if began is not None:
                self._learner.ended(task, turn, now - began)
            elif task.place is not None and task.turn == turn:
                begun.append(task)
        self._futures.undated.clear()
        if begun:
            self._futures.begin_anew(begun, now)

    def _time(self, event: ev.Event) -> float:
        """When an event happens, as far as is known; whatever is no time, or no event, is left to others to refuse."""
        time = getattr(event, "time", None)
        return time if isinstance(time, int | float) and math.isfinite(time) else self._rule.now

    def _step(self, events: Sequence[ev.Event], now: float, happen: Callable[[ev.Event], None]) -> None:
        """Live through events of one time."""
        self._rule.grow()
        found = dict.fromkeys(row for event in events for row in self._rows(event))
        rows = [row for row in found if row in self._cluster.by_row]
        before, states = self._rule.now, self._futures.states(rows)
        self._rule.now = max(before, now)
        self._futures.advance(rows, now)
        done = 0
        try:
            for event in events:
                self._tell(event, now, happen)
                done += 1
        except BaseException:
            failed = events[done]
            if isinstance(failed, ev.TaskStarted) and rows and _found(self._cluster.tasks, failed.task) is not None:
                self.tried = failed
            self.moved = "move" if done else "touch", rows, now  # machines of events that did not happen, too
            raise
        finally:
            if done:
                # Also machines that came with the tasks that they run.
                came = [event for event in events[:done] if isinstance(event, ev.TaskStarted | _OfMachines)]
                new = sorted({row for event in came for row in self._rows(event)}.difference(rows))
                self._futures.advance(new, now)
                self._futures.settle([*rows, *new], now)
            else:
                self._rule.now = before
                self._futures.restore(states)
                for row in rows:
                    self._cluster.inventory.touch(row)
            if done and self.tried is not None:
                for row in self._rows(self.tried):
                    self._cluster.inventory.touch(row)

    def _rows(self, event: ev.Event) -> list[int]:
        """Machines whose tasks or capacity an event may change."""
        cluster = self._cluster
        tasks: Collection[TaskRecord] = ()
        if isinstance(event, ev.TaskStarted | _OfMachines):
            machine = _found(cluster.machines, event.machine if isinstance(event, ev.TaskStarted) else event.id)
            return [] if machine is None else [machine.row]
        if isinstance(event, ev.JobRemoved) and (job := _found(cluster.jobs, event.job)) is not None:
            tasks = job.tasks
        elif isinstance(event, _Ends) and (task := _found(cluster.tasks, event.task)) is not None:
            tasks = (task,)
        return [task.place.row for task in tasks if task.place is not None]

    def _tell(self, event: ev.Event, now: float, happen: Callable[[ev.Event], None]) -> None:
        """Pass an event on, and note whose run is over."""
        over: list[tuple[TaskRecord, int, float | None]] = []
        if isinstance(event, _Ends) and (task := _found(self._cluster.tasks, event.task)) is not None:
            completed = isinstance(event, ev.TaskCompleted) and task.place is not None
            over.append((task, task.turn, self._futures.began(task) if completed else None))
        elif isinstance(event, ev.JobRemoved) and (job := _found(self._cluster.jobs, event.job)) is not None:
            over += [(task, task.turn, None) for task in job.tasks]
        changed = self._rows(event) if isinstance(event, _OfMachines) else ()
        gone = () if isinstance(event, ev.MachineUpdated) else changed
        happen(event)
        for row in changed:
            self._rule.reconsider(row)
        if event.time is None and isinstance(event, ev.TaskStarted):
            task = self._cluster.tasks[event.task]
            self._futures.undated[task] = task.turn, None
        for task, turn, began in over:
            if began is not None and event.time is None:
                self._futures.undated[task] = turn, began
            else:
                self._learner.ended(task, turn, None if began is None else now - began)
        self._rule.grow()
        for row in gone:
            self._learner.forget(row)
            self._futures.foreign[row] = 0
            self._rule.set_level(row, self._highest)

    def _task_sampled(self, event: ev.UsageSampled, now: float) -> None:
        task = self._cluster.task(event.task)
        if task.place is not None:
            row, progress = task.place.row, event.progress
            age, squeezed = now - self._futures.began(task), self._compression(row, now)
            self._learner.sampled(task, age, self._vector(event.usage), squeezed, progress)
            if progress is not None and self._futures.correct(row, task, progress, now):
                self._rule.reconsider(row)
                self._cluster.inventory.touch(row)

    def _vector(self, amounts: Mapping[str, float]) -> Floats:
        """Amounts by resource, NaN for what is not told."""
        return np.array([amounts.get(name, math.nan) for name in self._cluster.resources.names], np.float64)

    def _compression(self, row: int, now: float) -> float:
        """What the tasks of a machine are compressed by, as planned."""
        lines = self._futures.timelines
        if row >= len(lines.ends):
            return 0.0
        slot = int((lines.ends[row] > now).argmax())
        worst = 0.0
        for left, total, soft in zip(
            lines.available[row, slot].tolist(),
            self._cluster.inventory.capacity[row].tolist(),
            lines.soft.tolist(),
            strict=True,
        ):
            if soft and left < 0:
                worst = max(worst, -left / (total - left))
        return worst

    def _machine_sampled(self, event: ev.MachineSampled, now: float) -> None:
        record = self._cluster.machine(event.id)
        if record.failed:
            return
        row = record.row
        rows = np.array([row])
        self._rule.look(rows, now)
        capacity, lines = self._cluster.inventory.capacity[row], self._futures.timelines
        left = lines.available[row, lines.present(rows, now)[0]]
        used, before = self._vector(event.usage), self._futures.foreign[row]
        others, level = self._learner.machine_sampled(
            row, now, capacity / MICRO, used, (capacity - left) / MICRO, before / MICRO
        )
        level = min(level, self._highest)
        foreign = np.ceil(others * MICRO).astype(np.int64)
        if (np.abs(foreign - before) > _FOREIGN * capacity).any() or level != self._rule.level(row):
            self._futures.advance([row], now)
            self._futures.foreign[row] = foreign
            self._rule.set_level(row, level)
            self._cluster.inventory.touch(row)


def _found(things: Mapping[Hashable, _Thing], id: Hashable) -> _Thing | None:
    """One of these, None for what is not there; the cluster says what is wrong with it."""
    try:
        return things.get(id)
    except TypeError:  # no hash
        return None


def _is_sample(event: ev.Event) -> bool:
    return isinstance(event, ev.UsageSampled | ev.MachineSampled)
