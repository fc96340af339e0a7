"""Backfilling: tasks start on machines that are reserved for others, if they do not delay these.

A task may *overtake* the one that a machine is kept for if it is expected to end before that one has room, or if
both have room then.  In the flow, kept machines are closed to all others.  So backfilling comes last in a round, after
flow and check agree, for the kept machines in the order of the line: by priority, then by arrival.

After that, gangs start that the flow could not start, in the same order and by the same rule.  The first is a gang
whose reserved room has become free.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from heapq import merge
from itertools import islice
from math import inf

import numpy as np
from numpy.typing import NDArray

from flowsched.builder.forecast import asked, classes_of, fits_in, together
from flowsched.builder.reservations import Window, standing
from flowsched.cluster.records import JobRecord, TaskClass, TaskRecord
from flowsched.rounds.admission import AdmissionCheck
from flowsched.rounds.gangs import Gangs

__all__ = ["overtake", "start_gangs"]

Ints = NDArray[np.int64]

_DEPTH = 1000
"""Largest number of tasks that are considered for one machine, the first in line; also the largest number of gangs."""


def overtake(check: AdmissionCheck) -> None:
    """Start tasks on kept machines, if the tasks for which these are kept are not delayed."""
    reservations, quotas = check.builder.reservations, check.quotas
    if not (check.cluster.inventory.tasks.estimated and reservations.holding):
        return  # no kept machine has a known time at which it has room
    if quotas is not None:
        quotas.look()
    started: list[TaskRecord] = []
    now = check.transaction.now
    by_row: dict[int, list[Window]] = {}
    for window in reservations.windows(now):
        by_row.setdefault(window.row, []).append(window)
    line: _Line | None = None
    for row in _roomy(check, list(by_row)):
        windows = by_row[row]
        if all(window.until == -inf for window in windows):
            continue
        line = line or _Line(check)
        limits = _Limits(windows)
        stay: set[float] = set()
        for task in islice(line.tasks(row, windows[0], limits, stay), _DEPTH):
            cls, end = task.group.cls, now + task.duration
            ahead = limits.ahead(task)
            if end > limits.latest(cls, ahead):
                stay.add(task.duration)
                continue
            # A task that was just stopped for another one waits for its turn.
            devices = check.cluster.inventory.pick(row, cls.index)
            if task in check.transaction.before or devices is None:
                continue
            share = check.cluster.inventory.device_share(cls.index)
            if not all(window.spares(end, share, devices) for window in windows[:ahead]):
                continue
            if quotas is not None and not quotas.take(task.group, 1):
                continue
            reservations.grant(task.turn)
            check.start_some([task], row)
            started.append(task)
            line.forget(cls)
            limits.book(end, asked(cls), share, devices)
        if stay:
            check.scope.wake = min(check.scope.wake, reservations.turns(row, stay, now))
    if started:
        check.keep_shares(started)


class _Limits:
    """Latest ends that the windows of one machine, by standing, allow; computed once per class."""

    def __init__(self, windows: list[Window]) -> None:
        self._windows = windows
        self._standings = [window.standing for window in windows]
        self._latest: dict[tuple[TaskClass, int], float] = {}

    def ahead(self, task: TaskRecord) -> int:
        """Return the number of windows that are ahead of the task in the line."""
        return bisect_left(self._standings, (task.group.cls.priority, task.turn))

    def latest(self, cls: TaskClass, ahead: int) -> float:
        """Return the latest expected end of a task of the class that delays none of the first windows, devices apart."""
        found = self._latest.get((cls, ahead))
        if found is None:
            demand = asked(cls)
            found = min((window.latest(demand) for window in self._windows[:ahead]), default=inf)
            self._latest[cls, ahead] = found
        return found

    def book(self, end: float, demand: Ints, share: int, picked: Sequence[int]) -> None:
        """Subtract a started task's amounts from the room of the windows."""
        for window in self._windows:
            window.book(end, demand, share, picked)
        self._latest.clear()


def _roomy(check: AdmissionCheck, rows: list[int]) -> list[int]:
    """Return those of these rows where a task of some waiting class has room."""
    classes = [cls.index for cls in check.cluster.waiting]
    if not (rows and classes):
        return []
    room = check.builder.reservations.room(classes, np.array(rows, np.int64))
    return [rows[i] for i in np.flatnonzero((room > 0).any(axis=0)).tolist()]


class _Line:
    """Waiting tasks that may start alone, in the order of the line."""

    def __init__(self, check: AdmissionCheck) -> None:
        self._check = check
        self._classes = list(check.cluster.waiting)
        self._demands = np.array([cls.demand for cls in self._classes], np.int64)
        self._tasks: dict[TaskClass, tuple[list[TaskRecord], set[float], float]] = {}

    def tasks(self, row: int, window: Window, limits: _Limits, stay: set[float]) -> Iterator[TaskRecord]:
        """Yield the tasks that the machine can run, by priority and arrival, without classes of which no task ends in time.

        The durations of the tasks that are left out are added to `stay`.
        """
        inventory, now = self._check.cluster.inventory, self._check.transaction.now
        kept_for = self._check.builder.reservations.kept_for(row)
        levels: dict[int, list[list[TaskRecord]]] = {}
        for i in np.flatnonzero((self._demands <= inventory.free[row]).all(axis=1)).tolist():
            cls = self._classes[i]
            if cls.priority < window.standing[0] or cls is kept_for or not inventory.can_take(row, cls.index):
                continue
            tasks, durations, shortest = self._of(cls)
            # No later task of the class has fewer windows ahead than the first one.
            if tasks and now + shortest <= limits.latest(cls, limits.ahead(tasks[0])):
                levels.setdefault(cls.priority, []).append(tasks)
            else:
                stay |= durations
        for priority in sorted(levels):
            yield from merge(*levels[priority])

    def forget(self, cls: TaskClass) -> None:
        """Read the tasks of a class again for the next machine, since one of them has started."""
        self._tasks.pop(cls, None)

    def _of(self, cls: TaskClass) -> tuple[list[TaskRecord], set[float], float]:
        """Return the first tasks of a class, their durations, and the shortest one (infinity without tasks)."""
        found = self._tasks.get(cls)
        if found is None:
            check, full = self._check, self._check.builder.shares.full
            groups = self._check.cluster.waiting.get(cls, ())
            able = [group for group in groups if not (group.job.lacks or check.blocked(group) or full(group.job))]
            tasks = list(islice(merge(*(group.waiting[:_DEPTH] for group in able)), _DEPTH))
            durations = {task.duration for task in tasks}
            found = self._tasks[cls] = tasks, durations, min(durations, default=inf)
        return found


def start_gangs(check: AdmissionCheck, gangs: Gangs, late: bool) -> None:
    """Start gangs that the flow could not start, if they delay no task with a reservation; record those that still wait.

    Parameters
    ----------
    check : AdmissionCheck
    gangs : Gangs
        They have settled; gangs that start here are no longer left out.
    late : bool
        True if there is no time to start any.
    """
    builder = check.builder
    waiting = sorted((job for job in builder.gangs() if job.lacks), key=standing)
    if builder.policy.fairness is not None:
        for job in waiting:
            if job not in gangs.out:
                gangs.note_bounds(job)
    if waiting and not late and check.cluster.inventory.rule is None:
        room = _Room(check)
        for job in waiting[:_DEPTH]:
            if room.start(job):
                gangs.out.pop(job, None)
        waiting = [job for job in waiting if job.lacks]
    builder.note_gangs(waiting)


class _Room:
    """Free room of all machines for tasks that start together."""

    def __init__(self, check: AdmissionCheck) -> None:
        self.check = check
        self.cluster = check.cluster
        self._rows = np.flatnonzero(self.cluster.inventory.usable[: self.cluster.inventory.rows])
        self._windows = check.builder.reservations.windows(check.transaction.now)
        self._fits: dict[int, Ints] = {}
        self._runs = check.builder.shares.runs(check.builder.policy.fairness)
        if check.quotas is not None:
            check.quotas.look()

    def start(self, job: JobRecord) -> bool:
        """Start the tasks that a gang lacks, all of them or none; return True if they started."""
        check, builder = self.check, self.check.builder
        groups = [group for group in job.each_group() if group.waiting]
        if len(groups) == 1 and self._of(groups[0].cls.index).sum() < job.lacks:
            return False
        tasks = together(job)
        if not tasks or any(task in check.transaction.before for task in tasks):
            return False
        if check.transaction.now < builder.reservations.vain.get(job, -inf):
            return False
        if check.quotas is not None and any(check.quotas.short(group) for group in groups):
            return False
        if builder.policy.fairness is not None and not builder.entitles(job, self._runs):
            return False
        wanted = classes_of(tasks)
        windows = [window for window in self._windows if window.standing < standing(job)]
        end = check.transaction.now + max(task.duration for task in tasks)
        if any(self._most(cls, windows, end).sum() < len(some) for cls, some in wanted):
            return False
        begun: list[TaskRecord] = []
        if all(self._start(some, windows, end, begun) for _, some in wanted):
            if check.quotas is not None:
                for task in tasks:
                    check.quotas.take(task.group, 1)
            self._runs[job.job.user] += len(tasks)
            if builder.reservations.keeps(job):
                self._windows = builder.reservations.windows(check.transaction.now)
            return True
        for task in reversed(begun):
            self._book(task, end, -1)
            row = task.row
            check.transaction.restore(task)
            self._look([row])
        builder.reservations.give_up(job, check.transaction.now)
        return False

    def _start(self, tasks: Sequence[TaskRecord], windows: list[Window], end: float, begun: list[TaskRecord]) -> bool:
        """Start tasks of one class on the cheapest machines; return True if all have started."""
        inventory, cls = self.cluster.inventory, tasks[0].group.cls
        most = self._most(cls, windows, end)
        at = np.flatnonzero(most)
        cost = self.check.builder.policy.place(self.cluster, np.array([cls.index]), self._rows[at])[0]
        left, touched = list(tasks), []
        for i in at[np.argsort(cost, kind="stable")].tolist():
            row = int(self._rows[i])
            for _ in range(int(most[i])):
                devices = inventory.pick(row, cls.index) if left else None
                if devices is None or not self._spares(row, windows, end, cls.index, devices):
                    break
                task = left.pop(0)
                self.check.builder.reservations.grant(task.turn)
                self.check.transaction.start([task], row, devices)
                begun.append(task)
                self._book(task, end, 1)
                touched.append(row)
            if not left:
                break
        self._look(touched)
        return not left

    def _spares(self, row: int, windows: list[Window], end: float, class_id: int, devices: Sequence[int]) -> bool:
        share = self.cluster.inventory.device_share(class_id)
        return all(window.spares(end, share, devices) for window in windows if window.row == row)

    def _book(self, task: TaskRecord, end: float, sign: int) -> None:
        """Subtract a task's amounts from the room of the windows, or (sign -1) add them."""
        cls = task.group.cls
        share = self.cluster.inventory.device_share(cls.index)
        for window in self._windows:
            if window.row == task.row:
                window.book(end, asked(cls), share, task.devices, sign)

    def _most(self, cls: TaskClass, windows: list[Window], end: float) -> Ints:
        """Return the number of tasks of a class that may start on each machine."""
        fits = self._of(cls.index)
        binding = [window for window in windows if end > window.until]
        if binding:
            fits = fits.copy()
            at = np.searchsorted(self._rows, [window.row for window in binding])
            beside = fits_in(asked(cls), np.array([window.beside for window in binding]))
            np.minimum.at(fits, at, beside)
        return fits

    def _of(self, class_id: int) -> Ints:
        """Return the number of tasks of a class that each machine has room for."""
        if class_id not in self._fits:
            self._fits[class_id] = self.check.builder.reservations.room([class_id], self._rows)[0]
        return self._fits[class_id]

    def _look(self, rows: Collection[int]) -> None:
        """Update the room of machines where tasks have started or stopped."""
        if not rows:
            return
        inventory = self.cluster.inventory
        if inventory.affinity.fussy or inventory.constraints:
            self._fits.clear()
            return
        some = np.unique(np.array(list(rows), np.int64))
        at = np.searchsorted(self._rows, some)
        classes = list(self._fits)
        room = self.check.builder.reservations.room(classes, some)
        for class_id, fits in zip(classes, room, strict=True):
            self._fits[class_id][at] = fits
