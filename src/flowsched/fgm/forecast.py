"""Forecast of every machine: the state of each of its tasks, and the timeline that follows.

A task's *state* is its present stage and the work left in that, at the time of its machine's row.  Before anything
happens to a machine, its states are advanced along the predicted course (`Forecast.advance`); afterwards they are
recomputed for the tasks that run then (`Forecast.settle`).  Trials of a round that are undone leave states alone:
`Forecast.refresh` and `Forecast.plan` read the tasks that the cluster holds at that moment, and write timelines only.

States are arrays by task, timelines by machine, and every call is one for many machines.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flowsched.boundary.validate import numbers
from flowsched.cluster import Cluster
from flowsched.cluster.columns import grown
from flowsched.cluster.records import TaskClass, TaskRecord
from flowsched.exceptions import InputError
from flowsched.fgm._course import Course
from flowsched.fgm.needs import Catalog, Needs, Source
from flowsched.fgm.stages import Stages
from flowsched.fgm.timeline import Classes, Timelines

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
States = tuple[Ints, Ints, list[NDArray[Any]]]
"""Rows, tasks on them, and the state of each."""

SOON = 1e-6
"""Times that differ by no more are equal; the kernel's ``TINY``."""

OFF = 0.03
"""A state is corrected where it differs by more than this fraction of the duration, or by its stage."""

GRACE = 0.05
"""A task that runs beyond its prediction gets this fraction of its duration more, then twice as much, and so on."""
_SLACK = 1e-6
"""Times that differ by less are equal."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Outcome for a machine's tasks and for newcomers, if these started.

    `short` is a resource that is over-committed at some time, -1 without one.  `late` is true if one of them misses its
    deadline because of compression; `until` is the last time at which the newcomers' deadline can be met at all.
    """

    short: int
    late: bool
    until: float = np.inf

    @property
    def holds(self) -> bool:
        """True if all can go on together."""
        return self.short < 0 and not self.late


class Forecast:
    """States and timelines of the machines of a cluster.

    By row of the machine, `foreign` is the load of others, shape (rows, resources), in micro-units, and `compress` is 1
    where compression is allowed.  `due` is the next time at which the machine is worth another look although nothing
    happens there: more tasks of a waiting class fit then (`StageRule.narrow`), a refusal ends, or a timeline with
    merged stages is to be computed again; infinite for never.  `done` is the end of the timeline's validity: then a
    task there should be done, or half of a timeline with merged stages is past.

    `undated` has the runs, by turn, that began (None) or ended at no stated time since the last round; those that
    ended, with the time when they began.
    """

    def __init__(self, cluster: Cluster, timelines: Timelines, source: Source) -> None:
        self.cluster = cluster
        self.timelines = timelines
        self.catalog = Catalog(cluster, source)
        # By row: ``_time[row]`` is the time of the states of ``_members[row]``, which are indices of tasks.
        self.foreign: Ints = np.zeros((0, len(cluster.resources.names)), np.int64)
        self.compress: NDArray[np.uint8] = np.ones(0, np.uint8)
        self.due: Floats = np.full(0, np.inf)
        self.done: Floats = np.full(0, np.inf)
        self.undated: dict[TaskRecord, tuple[int, float | None]] = {}
        self._time: Floats = np.full(0, -np.inf)
        self._members: dict[int, list[int]] = {}
        # By index of a task: its state is ``(_stage, _left)`` of the stock's entry ``_entry``, in the run ``_turn``.
        self._turn: Ints = np.full(0, -1)
        self._entry: Ints = np.zeros(0, np.int64)
        self._stage: Ints = np.zeros(0, np.int64)
        self._left: Floats = np.zeros(0)
        self._grace: Floats = np.zeros(0)
        self._begun: Floats = np.zeros(0)
        self._begin_course()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_course", "_known")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin_course()

    def _begin_course(self) -> None:
        """Make a kernel over these arrays."""
        lines = self.timelines
        self._course = Course(lines.limit, lines.soft, lines.contention)
        self._known: Classes | None = None
        self._tell_rows()
        self._tell_tasks()

    def _tell_rows(self) -> None:
        lines = self.timelines
        self._course.rows(
            self._time, self.due, self.done, self.foreign, self.compress, lines.ends, lines.available, lines.reach
        )

    def _tell_tasks(self) -> None:
        size = len(self._turn)
        self._course.tasks(
            self._turn, self._entry, self._stage, self._left, self._grace, np.zeros(size, np.int64), np.zeros(size)
        )

    def grow(self, rows: int) -> None:
        """Make room for this many rows."""
        if rows > len(self.due):
            self.foreign, self.compress = grown(self.foreign, rows), grown(self.compress, rows, fill=1)
            self.due, self.done = grown(self.due, rows, fill=np.inf), grown(self.done, rows, fill=np.inf)
            self._time = grown(self._time, rows, fill=-np.inf)
            self.timelines.grow(len(self.due))
            self._tell_rows()

    def grow_tasks(self) -> None:
        """Make room for all tasks of the cluster."""
        tasks = len(self.cluster.by_index)
        if tasks > len(self._turn):
            self._turn = grown(self._turn, tasks, fill=-1)
            size = len(self._turn)
            self._entry, self._stage = grown(self._entry, size), grown(self._stage, size)
            self._left, self._grace = grown(self._left, size), grown(self._grace, size)
            self._begun = grown(self._begun, size)
            self._tell_tasks()

    def _kernel(self) -> Course:
        """Return the kernel, with room for all tasks and with all stages of the stock."""
        self.grow_tasks()
        classes = self.catalog.stock.classes
        if classes is not self._known:
            self._course.stock(classes.at, classes.seconds, classes.want)
            self._known = classes
        return self._course

    # -- moving on ----------------------------------------------------------------------------------------------

    def advance(self, rows: Sequence[int], now: float) -> None:
        """Advance the states of some machines, by row, to a time."""
        at, members = _laid([self._members.get(row, ()) for row in rows])
        self._kernel().advance(np.array(rows, np.int64), at, members, self.cluster.inventory.capacity, now)

    def states(self, rows: Sequence[int]) -> States:
        """Return the states of the tasks of some machines, for `restore`."""
        which, tasks = np.array(rows, np.int64), _laid([self._members.get(row, ()) for row in rows])[1]
        return which, tasks, [self._time[which], self._stage[tasks], self._left[tasks], self._grace[tasks]]

    def restore(self, states: States) -> None:
        """Set these states again."""
        which, tasks, (time, stage, left, grace) = states
        self._time[which], self._stage[tasks], self._left[tasks], self._grace[tasks] = time, stage, left, grace

    def began(self, task: TaskRecord) -> float:
        """Return the time when the present run of a task began."""
        assert task.place is not None
        known = task.index < len(self._turn) and self._turn[task.index] == task.turn
        return float(self._begun[task.index]) if known else task.place.since

    def begin_anew(self, tasks: Iterable[TaskRecord], now: float) -> None:
        """Restart the stages of running tasks: they begin now."""
        rows = {task.place.row: None for task in tasks if task.place is not None}
        self.advance(list(rows), now)
        self._begin(np.array([task.index for task in tasks], np.int64), now)
        for row in rows:
            self.cluster.inventory.touch(row)

    def correct(self, row: int, task: TaskRecord, progress: float, now: float) -> bool:
        """Correct the state of a task by its own progress; False if it was about right, or cannot be corrected."""
        i, classes = task.index, self.catalog.stock.classes
        if i >= len(self._turn) or self._turn[i] != task.turn or task.index not in self._members.get(row, ()):
            return False
        self.advance([row], now)
        stages = slice(classes.at[self._entry[i]], classes.at[self._entry[i] + 1])
        seconds, ends = classes.seconds[stages], classes.progress[stages]
        stage = min(int(ends.searchsorted(progress, "right")), len(ends) - 1)
        if seconds[stage] == np.inf:  # its duration is not known
            return False
        begin = ends[stage - 1] if stage else 0.0
        left = seconds[stage] * (ends[stage] - progress) / max(ends[stage] - begin, 1e-12)
        if stage == self._stage[i] and abs(left - self._left[i]) <= OFF * seconds.sum():
            return False
        self._stage[i], self._left[i] = stage, left
        return True

    def settle(self, rows: Sequence[int], now: float) -> None:
        """Take over the tasks that run on some machines, advanced to now: new ones begin."""
        self._kernel()
        by_row = self.cluster.by_row
        for row in rows:
            record = by_row.get(row)
            if record is None or not record.tasks:
                self._members.pop(row, None)
            else:
                self._members[row] = [task.index for task in record.tasks]
        members = _laid([self._members.get(row, ()) for row in rows])[1]
        fresh = members[self._turn[members] != self.cluster.inventory.tasks.turn[members]]
        if len(fresh):
            self._begin(fresh, now)

    def _begin(self, tasks: Ints, now: float) -> None:
        """Begin the first stage of tasks now."""
        inventory = self.cluster.inventory
        entry = self.catalog.entries(inventory.tasks.class_id[tasks])
        self._kernel()
        classes = self.catalog.stock.classes
        self._turn[tasks], self._entry[tasks], self._stage[tasks] = inventory.tasks.turn[tasks], entry, 0
        self._left[tasks] = classes.seconds[classes.at[entry]]
        self._grace[tasks] = _grace(classes.duration[entry])
        self._begun[tasks] = now

    # -- looking ahead ------------------------------------------------------------------------------------------

    def refresh(self, rows: Ints, now: float, without: Collection[TaskRecord] = ()) -> None:
        """Compute timelines of machines with the present tasks of the cluster, except those in `without`."""
        which = rows.tolist()
        at, members = _laid([self._members.get(row, ()) for row in which])
        at_now, present = _laid([self._present(row, without) for row in which])
        turn, entry = self._now(present)
        capacity = self.cluster.inventory.capacity
        self._kernel().forecast(rows, at, members, at_now, present, turn, entry, capacity, now)

    def _present(self, row: int, without: Collection[TaskRecord] = ()) -> list[int]:
        tasks = self.cluster.by_row[row].tasks
        return [task.index for task in tasks if task not in without] if without else [task.index for task in tasks]

    def _now(self, tasks: Ints) -> tuple[Ints, Ints]:
        """Return the present turns of tasks, and the entries of those that begin now: their states are of another turn."""
        self._kernel()
        inventory = self.cluster.inventory
        turn, entry = inventory.tasks.turn[tasks], np.zeros(len(tasks), np.int64)
        fresh = np.flatnonzero(self._turn[tasks] != turn)
        if len(fresh):
            entry[fresh] = self.catalog.entries(inventory.tasks.class_id[tasks[fresh]])
        return turn, entry

    def next_end(self, row: int, now: float) -> float:
        """Return the end of the present stage of a machine; now if its timeline is out of date."""
        if self.done[row] <= now:
            return now
        ends = self.timelines.ends[row]
        return float(ends[(ends > now + SOON).argmax()])

    def plan(
        self,
        row: int,
        now: float,
        newcomer: TaskClass,
        stages: Stages,
        count: int = 1,
        without: Collection[TaskRecord] = (),
    ) -> Plan:
        """Plan a machine's tasks, except those in `without`, together with `count` newcomers that need `stages`.

        The newcomers' deadline is the earliest one of their class that can be met at all.
        """
        present = np.array(self._present(row, without), np.int64)
        turn, entry = self._now(present)
        entry = np.append(entry, [self.catalog.place(self.catalog.of(newcomer), stages)] * count)
        members = np.array(self._members.get(row, ()), np.int64)
        finish, uncompressed = np.empty(len(entry)), np.empty(len(entry))
        short, worst = self._kernel().plan(
            row, members, present, turn, entry, self.cluster.inventory.capacity, now, finish, uncompressed
        )
        if short >= 0 or worst == 0:
            return Plan(short, False)
        earliest = self._earliest(newcomer, now + stages.duration)
        deadline = np.array(self._deadlines(present) + [earliest] * count)
        return Plan(short, bool(missed(finish, uncompressed, deadline).any()), earliest - stages.duration)

    def _deadlines(self, tasks: Ints) -> list[float]:
        records = (self.cluster.by_index[index] for index in tasks.tolist())
        return [_deadline(record.group.job.job.deadline) for record in records if record is not None]

    def _earliest(self, cls: TaskClass, least: float) -> float:
        deadlines = (_deadline(group.job.job.deadline) for group in self.cluster.waiting.get(cls, ()))
        return min((deadline for deadline in deadlines if deadline >= least), default=np.inf)

    # -- corrections --------------------------------------------------------------------------------------------

    def degraded(self, row: int, now: float, factor: float) -> bool:
        """True if a task there has run `factor` times as long as it was predicted to."""
        tasks = np.array(self._members.get(row, ()), np.int64)
        duration = self.catalog.stock.classes.duration
        return bool((now - self._begun[tasks] > factor * duration[self._entry[tasks]]).any())

    def renew(
        self, kinds: Collection[Hashable], key: Callable[[Hashable | None], Hashable | None]
    ) -> tuple[list[TaskClass], list[int]]:
        """Estimate the needs of these kinds again; return the classes concerned, and the rows that it changes.

        Running tasks keep their predictions, unless only their request was known.
        """
        classes, known = self.catalog.renew(kinds, key)
        rows = []
        better = {entry: need for entry, need in known.items() if need.fine is not need.request}
        for row, members in self._members.items() if better else ():
            mine = [task for task in members if int(self._entry[task]) in better]
            for task in mine:
                self._place(task, better[int(self._entry[task])], float(self._time[row]))
            if mine:
                rows.append(row)
        return classes, rows

    def _place(self, task: int, need: Needs, time: float) -> None:
        """Set the state of a task by its age, now that its stages are known."""
        fine = need.fine
        passed = np.cumsum(fine.seconds) - (time - self._begun[task])
        stage = int(np.searchsorted(passed, SOON))
        self._entry[task], self._grace[task] = self.catalog.place(need, fine), _grace(np.array(fine.duration))
        self._stage[task] = min(stage, len(fine) - 1)
        self._left[task] = passed[stage] if stage < len(fine) else self._grace[task]

    def compact(self) -> None:
        """Forget stages that no task is in or may start with."""
        moved = self.catalog.compact(lambda: np.unique(self._entry[self._running()]))
        if moved is not None:
            running = self._running()
            self._entry[running] = moved[self._entry[running]]

    def _running(self) -> Ints:
        return np.fromiter(chain.from_iterable(self._members.values()), np.int64)


def _laid(lists: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    """Concatenate lists: ``lists[i]`` is at ``at[i]`` to ``at[i + 1]`` of the second array."""
    at = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(members) for members in lists], out=at[1:])
    every: Iterable[int] = chain.from_iterable(lists)
    return at, np.array(list(every), np.int64)


def _grace(duration: Floats) -> Floats:
    """Return the seconds that are first added to tasks that run beyond their durations."""
    return np.maximum(GRACE * duration, 1e-3)


def _deadline(deadline: float | None) -> float:
    return np.inf if deadline is None else deadline


def theoretical_duration(seconds: ArrayLike, compression: ArrayLike) -> float:
    """Duration (15) of a task whose stages are compressed: sum of D_i / (1 - r_ci).

    Parameters
    ----------
    seconds : array_like, shape (stages,)
        Uncompressed.
    compression : array_like, shape (stages,) or (stages, resources)
        Rate from 0 to below 1; of several resources the largest counts.

    Examples
    --------
    >>> round(theoretical_duration([1, 3], [[0.2 / 4.2, 0], [0, 0]]), 6)
    4.05
    """
    length = numbers("theoretical_duration: seconds", seconds)
    rate = numbers("theoretical_duration: compression", compression)
    rate = rate.max(axis=1) if rate.ndim == 2 else rate
    if length.shape != rate.shape or not ((rate >= 0) & (rate < 1)).all() or not (length >= 0).all():
        raise InputError("theoretical_duration: a length >= 0 and a rate from 0 to below 1 for each stage expected")
    return float((length / (1.0 - rate)).sum())


def missed(
    finish: NDArray[np.float64], uncompressed: NDArray[np.float64], deadline: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Find the tasks that would miss their deadline because of compression.

    Parameters
    ----------
    finish, uncompressed : ndarray of float64, shape (tasks,)
        Time when each task will be done as planned, and without any compression from now on.
    deadline : ndarray of float64, shape (tasks,)
        Infinite for none.

    Returns
    -------
    ndarray of bool, shape (tasks,)
        Never true for a task that compression does not delay, however late it is.
    """
    late: NDArray[np.bool_] = (finish > deadline + _SLACK) & (finish > uncompressed + _SLACK)
    return late
