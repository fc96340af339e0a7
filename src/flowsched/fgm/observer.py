"""Events and samples, as FGM observes them."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster import MICRO
from flowsched.cluster import events as ev
from flowsched.cluster.records import TaskRecord
from flowsched.exceptions import FlowschedError
from flowsched.fgm.adjust import Level
from flowsched.fgm.forecast import States
from flowsched.fgm.protocols import FlowEngine
from flowsched.fgm.rule import StageRule

Floats = NDArray[np.float64]
_Thing = TypeVar("_Thing")

_FOREIGN = 0.02
"""A machine is looked at again when its foreign load changes by more than this part of its total."""

_Ends = ev.TaskCompleted | ev.TaskFailed | ev.TaskRemoved
_OfMachines = ev.MachineUpdated | ev.MachineFailed | ev.MachineRemoved


class Observer:
    """Passes events on to the engine under FGM, and reports their effects to learner and forecast of a fit rule."""

    def __init__(self, rule: StageRule, highest: Level, inner: FlowEngine) -> None:
        self._ended: list[ev.EndedRun] = []
        self._moved: tuple[str, list[int], float] | None = None
        self._rule, self._highest, self._inner = rule, highest, inner
        self._forecast, self._learner = rule.forecast, rule.learner
        self._cluster = self._forecast.cluster

    def side_effects(self) -> Iterator[Sequence[Any]]:
        """Yield the side effects of a batch in which an event was refused, as words of a record.

        The machines of such a batch were advanced to a time, or only touched.
        """
        if self._moved is not None:
            yield self._moved

    def apply_batch(self, events: Sequence[ev.Event]) -> tuple[ev.EndedRun, ...]:
        """Apply events in their order; return the runs that they ended."""
        self._moved = None
        self._ended, before = [], self._cluster.events
        try:
            self._apply(events)
        except FlowschedError as error:
            error.ended, error.index = tuple(self._ended), self._cluster.events - before
            raise
        return tuple(self._ended)

    def _pass_on(self, event: ev.Event) -> None:
        """Apply one event."""
        self._ended += self._inner.apply_batch((event,))

    def _apply(self, events: Sequence[ev.Event]) -> None:
        start = 0
        while start < len(events):
            event, now = events[start], self._time(events[start])
            stop = start + 1
            if isinstance(event, ev.UsageSampled):
                stale = self._cluster.is_stale(event)
                self._pass_on(event)
                if not stale:
                    self._task_sampled(event, now)
            elif isinstance(event, ev.MachineSampled):
                self._pass_on(event)
                self._machine_sampled(event, now)
            elif self._cluster.is_stale(event):
                self._pass_on(event)
            else:
                # All events of one time are one step for the machines concerned.
                while stop < len(events) and self._time(events[stop]) == now and not _is_sample(events[stop]):
                    stop += 1
                self._step(events[start:stop], now)
            start = stop

    def date(self, now: float) -> None:
        """Date runs that began or ended at no stated time since the last round: they did so now."""
        begun = []
        for task, (turn, began) in self._forecast.undated.items():
            if began is not None:
                self._learner.ended(task, turn, now - began)
            elif task.place is not None and task.turn == turn:
                begun.append(task)
        self._forecast.undated.clear()
        if begun:
            self._forecast.begin_anew(begun, now)

    def _time(self, event: ev.Event) -> float:
        """Return the time of an event, the present time if unknown; the cluster refuses a bad time, or a non-event."""
        time = getattr(event, "time", None)
        return time if isinstance(time, int | float) and math.isfinite(time) else self._rule.now

    def _step(self, events: Sequence[ev.Event], now: float) -> None:
        """Apply events of one time."""
        self._rule.grow()
        found = dict.fromkeys(row for event in events for row in self._rows(event))
        rows = [row for row in found if row in self._cluster.by_row]
        before, states = self._rule.now, self._forecast.states(rows)
        self._rule.now = max(before, now)
        self._forecast.advance(rows, now)
        done = 0
        try:
            for event in events:
                self._tell(event, now)
                done += 1
        except BaseException:
            self._moved = "move" if done else "touch", rows, now  # machines of events that did not happen, too
            raise
        finally:
            if done:
                # Also machines that came with the tasks that they run.
                came = [event for event in events[:done] if isinstance(event, ev.TaskStarted | _OfMachines)]
                new = sorted({row for event in came for row in self._rows(event)}.difference(rows))
                self._forecast.advance(new, now)
                self._forecast.settle([*rows, *new], now)
            else:
                self._go_back(before, rows, states)

    def _go_back(self, before: float, rows: Sequence[int], states: States) -> None:
        """Undo the advance of machines to another time."""
        self._rule.now = before
        self._forecast.restore(states)
        for row in rows:
            self._cluster.inventory.touch(row)

    def ask(self, start: ev.TaskStarted) -> None:
        """Ask the fit rule about a start that an earlier build refused; the rule remembers its answer."""
        task, rows, inventory = _found(self._cluster.tasks, start.task), self._rows(start), self._cluster.inventory
        if task is None or task.row >= 0 or not rows:
            return
        self._rule.grow()
        before, states = self._rule.now, self._forecast.states(rows)
        self._rule.now = now = max(before, self._time(start))
        self._forecast.advance(rows, now)
        if start.devices is None:
            inventory.devices_for(rows[0], task.group.cls.index)
        else:
            inventory.has_room(rows[0], task.group.cls.index, start.devices)
        self._go_back(before, rows, states)

    def _rows(self, event: ev.Event) -> list[int]:
        """Rows of machines whose tasks or capacity an event may change."""
        cluster = self._cluster
        tasks: Collection[TaskRecord] = ()
        if cluster.is_stale(event):
            return []
        if isinstance(event, ev.TaskStarted | _OfMachines):
            machine = _found(cluster.machines, event.machine if isinstance(event, ev.TaskStarted) else event.id)
            return [] if machine is None else [machine.row]
        if isinstance(event, ev.JobRemoved) and (job := _found(cluster.jobs, event.job)) is not None:
            tasks = job.tasks
        elif isinstance(event, _Ends) and (task := _found(cluster.tasks, event.task)) is not None:
            tasks = (task,)
        return [task.place.row for task in tasks if task.place is not None]

    def _tell(self, event: ev.Event, now: float) -> None:
        """Pass an event on, and record the runs that it ends."""
        if self._cluster.is_stale(event):
            self._pass_on(event)
            return
        over: list[tuple[TaskRecord, int, float | None]] = []
        if isinstance(event, _Ends) and (task := _found(self._cluster.tasks, event.task)) is not None:
            completed = isinstance(event, ev.TaskCompleted) and task.place is not None
            over.append((task, task.turn, self._forecast.began(task) if completed else None))
        elif isinstance(event, ev.JobRemoved) and (job := _found(self._cluster.jobs, event.job)) is not None:
            over += [(task, task.turn, None) for task in job.tasks]
        changed = self._rows(event) if isinstance(event, _OfMachines) else ()
        gone = () if isinstance(event, ev.MachineUpdated) else changed
        self._pass_on(event)
        for row in changed:
            self._rule.reconsider(row)
        if event.time is None and isinstance(event, ev.TaskStarted):
            task = self._cluster.tasks[event.task]
            self._forecast.undated[task] = task.turn, None
        for task, turn, began in over:
            if began is not None and event.time is None:
                self._forecast.undated[task] = turn, began
            else:
                self._learner.ended(task, turn, None if began is None else now - began)
        self._rule.grow()
        for row in gone:
            self._learner.forget(row)
            self._forecast.foreign[row] = 0
            self._rule.set_level(row, self._highest)

    def _task_sampled(self, event: ev.UsageSampled, now: float) -> None:
        task = self._cluster.task(event.task)
        if task.place is not None:
            row, progress = task.place.row, event.progress
            age, squeezed = now - self._forecast.began(task), self._compression(row, now)
            self._learner.sampled(task, age, self._vector(event.usage), squeezed, progress)
            if progress is not None and self._forecast.correct(row, task, progress, now):
                self._rule.reconsider(row)
                self._cluster.inventory.touch(row)

    def _vector(self, amounts: Mapping[str, float]) -> Floats:
        """Amounts by resource, NaN where none is given; shape (resources,)."""
        return np.array([amounts.get(name, math.nan) for name in self._cluster.resources.names], np.float64)

    def _compression(self, row: int, now: float) -> float:
        """Planned compression of the tasks of a machine."""
        lines = self._forecast.timelines
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
        capacity, lines = self._cluster.inventory.capacity[row], self._forecast.timelines
        left, busy = lines.available[row, lines.present(rows, now)[0]], self._rule.too_busy(row)
        used, before = self._vector(event.usage), self._forecast.foreign[row]
        others, level = self._learner.machine_sampled(
            row, now, capacity / MICRO, used, (capacity - left) / MICRO, before / MICRO
        )
        level = min(level, self._highest)
        foreign = np.ceil(others * MICRO).astype(np.int64)
        if (np.abs(foreign - before) > _FOREIGN * capacity).any() or level != self._rule.level(row):
            self._forecast.advance([row], now)
            self._forecast.foreign[row] = foreign
            self._rule.set_level(row, level)
            self._cluster.inventory.touch(row)
        elif self._rule.too_busy(row) != busy:
            self._cluster.inventory.touch(row)


def _found(things: Mapping[Hashable, _Thing], id: Hashable) -> _Thing | None:
    """Return an object by its id, None for an unknown id: the error is raised by the cluster."""
    try:
        return things.get(id)
    except TypeError:  # no hash
        return None


def _is_sample(event: ev.Event) -> bool:
    return isinstance(event, ev.UsageSampled | ev.MachineSampled)
