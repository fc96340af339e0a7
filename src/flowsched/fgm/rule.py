"""The fit rule of FGM: Algorithm 2 for many pairs of class and machine, and all tasks of a machine together for one.

Source: M.-S. Zhou, X.-S. Dong, H. Chen and X.-J. Zhang, "Dynamically Fine-grained Scheduling
Method in Cloud Environment", Journal of Software 31(12), 2020 (FGM),
Algorithms 1 and 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster import MICRO
from flowsched.cluster.limits import DEADLINE, RESOURCE
from flowsched.cluster.records import TaskRecord
from flowsched.fgm.adjust import Level
from flowsched.fgm.forecast import SOON, Forecast, Plan
from flowsched.fgm.learning import Learner
from flowsched.fgm.needs import Needs
from flowsched.fgm.timeline import Classes

Ints = NDArray[np.int64]

# Plain numbers, since they are compared for every pair.
_STOP, _REQUEST, _COARSE, _FINE, _COMPRESSED = (
    int(level) for level in (Level.STOP, Level.REQUEST, Level.COARSE, Level.FINE, Level.COMPRESSED)
)

LATE = -2
"""Code in place of a short resource: a deadline would be missed."""

_KEPT = 256
"""Largest number of sets of classes whose stages are kept in the kernel's form."""


@dataclass(slots=True)
class Refused:
    """Refusals of `StageRule.admits` on a machine.

    They hold only with the tasks of these `turns`, and until a stage ends there, or a deadline can no longer be met.
    `short` has, by class (index), the serial of the needs that were refused, and a resource that was short, or `LATE`.
    """

    turns: list[int]
    until: float = np.inf
    short: dict[int, tuple[int, int]] = field(default_factory=dict)


class StageRule:
    """A `Limit` by stages, in place of the sum of the requests.

    `highest` is the finest level on any machine.  A machine of which a smaller fraction than `idle` is idle (by its
    samples) takes no more tasks; Th of Algorithm 1, line 1.  `now` is the time of the present round, or of the last
    one.  `record` records the queries that made it look at machines or classes: later answers depend on these looks.
    """

    def __init__(self, forecast: Forecast, learner: Learner, highest: Level, idle: float) -> None:
        self.now = 0.0
        self.record: Callable[[Sequence[Any]], None] | None = None
        self._deciding = False
        self.forecast = forecast
        self.learner = learner
        self._cluster = forecast.cluster
        self._highest = int(highest)
        self._idle = idle
        self._level: Ints = np.full(0, self._highest, np.int64)
        self._seen: Ints = np.full(0, -1, np.int64)
        self._kernel: dict[tuple[int, ...], Classes] = {}
        self._refused: dict[int, Refused] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "record": None, "_kernel": {}}

    # -- machines -----------------------------------------------------------------------------------------------

    def grow(self) -> None:
        """Make room for all machines of the cluster."""
        rows = self._cluster.inventory.rows
        if rows > len(self._seen):
            self.forecast.grow(rows)
            more = len(self.forecast.due) - len(self._seen)
            self._level = np.concatenate([self._level, np.full(more, self._highest, np.int64)])
            self._seen = np.concatenate([self._seen, np.full(more, -1, np.int64)])
            self.forecast.compress[-more:] = self._highest == _COMPRESSED

    def reconsider(self, row: int) -> None:
        """Forget the refusals of a machine."""
        self._refused.pop(row, None)

    def level(self, row: int) -> Level:
        """Return the level at which a machine is matched."""
        return Level(int(self._level[row]) if row < len(self._level) else self._highest)

    def set_level(self, row: int, level: Level) -> None:
        """Set the level at which a machine is matched."""
        self._level[row] = level
        self.reconsider(row)
        self.forecast.compress[row] = level == Level.COMPRESSED

    def look(self, rows: Ints, now: float) -> None:
        """Bring the timelines of machines up to date."""
        self.grow()
        version, by_row = self._cluster.inventory.version, self._cluster.by_row
        stale = rows[self._seen[rows] != version[rows]]
        if len(stale):
            if self.record is not None:
                self.record(("look", stale))
            self._seen[stale] = version[stale]
            there = stale if len(stale) == 1 else np.array([row for row in stale.tolist() if row in by_row], np.int64)
            if len(there) and int(there[0]) in by_row:
                self.forecast.refresh(there, now)
                for row in there.tolist() if self._refused else ():
                    self._wait(row)

    def look_at_due(self, now: float) -> None:
        """Look again at machines where more tasks may start because time has passed; see `Forecast.due`."""
        self.grow()
        forecast, inventory = self.forecast, self._cluster.inventory
        rows = np.flatnonzero(forecast.due <= now + SOON)
        forecast.due[rows] = np.inf  # `narrow` finds the next time for the classes that wait
        late: list[int] = []
        for row in rows.tolist():
            self._refused.pop(row, None)
            if row not in self._cluster.by_row:
                continue
            current = self._seen[row] == inventory.version[row]
            inventory.touch(row)
            if forecast.done[row] <= now + SOON:
                late.append(row)
            elif current:  # the prediction still holds
                self._seen[row] = inventory.version[row]
        forecast.advance(late, now)

    def due(self) -> float:
        """See `Rule.due`."""
        return float(self.forecast.due.min(initial=np.inf))

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Suspend recording: the queries come from a call that is itself recorded."""
        record, self.record = self.record, None
        try:
            yield
        finally:
            self.record = record

    @contextmanager
    def deciding(self) -> Iterator[None]:
        """Be busy with a round, and find the times at which its machines need another look."""
        with self.busy():
            self._deciding = True
            try:
                yield
            finally:
                self._deciding = False

    def needs(self, class_id: int) -> Needs:
        """Return the assumed needs of a class, by index."""
        record, catalog = self._cluster.by_class[class_id], self.forecast.catalog
        if self.record is not None and not catalog.knows(record):
            self.record(("needs", class_id))
        return catalog.of(record)

    def forget_stages(self) -> None:
        """Drop the kernel's form of stages: needs of classes have changed."""
        self._kernel.clear()

    # -- the limit of the inventory -----------------------------------------------------------------------------

    def narrow(self, classes: Ints, rows: Ints, fits: Ints, why: NDArray[np.uint32]) -> None:
        """See `Limit.narrow`; in a round, also find the times at which more fit on machines that other limits leave open."""
        count, blockers = self.room(classes, rows, fits if self._deciding else None)
        np.minimum(fits, count, out=fits)
        why |= blockers

    def room(self, classes: Ints, rows: Ints, others: Ints | None = None) -> tuple[Ints, NDArray[np.uint32]]:
        """Count by Algorithm 2 the tasks of each class that fit on machines, devices apart, and find the short resources.

        With the limits `others`, shape (classes, rows), a round looks at the machines again when more fit.
        """
        self.look(rows, self.now)
        level = self._level[rows]
        if len(classes) and len(rows) and level.min() >= _FINE:
            count, short = self._fits(classes, _FINE, rows, others)
        else:
            count, short = np.zeros((len(classes), len(rows)), np.int64), np.zeros((len(classes), len(rows)), np.int8)
            finest = np.minimum(level, _FINE)
            for step in (_FINE, _COARSE, _REQUEST) if len(classes) else ():
                mine = np.flatnonzero(finest == step)
                if len(mine):
                    limits = None if others is None else others[:, mine]
                    count[:, mine], short[:, mine] = self._fits(classes, step, rows[mine], limits)
        self._close(classes, rows, count, short)
        why = np.where(short >= 0, np.uint32(RESOURCE) << np.maximum(short, 0).astype(np.uint32), 0).astype(np.uint32)
        if self._refused:
            why[short == LATE] = DEADLINE
        return count, why

    def _fits(self, classes: Ints, level: int, rows: Ints, others: Ints | None = None) -> tuple[Ints, NDArray[np.int8]]:
        """Match classes with machines of one level; unknown tasks by their request, uncompressed (Algorithm 1, line 8)."""
        lines, due, now = self.forecast.timelines, self.forecast.due, self.now
        stages = self._stages(classes, level)
        count, short = lines.fits(stages, rows, now)
        unknown = [i for i, index in enumerate(classes.tolist()) if self.needs(index).unknown]
        if unknown:
            requests = self._stages(classes[unknown], level)
            count[unknown], short[unknown] = lines.fits(requests, rows, now, compressed=False)
        if others is not None:
            more = others > count
            if unknown:
                lines.openings(requests, rows, now, count[unknown], more[unknown], due, compressed=False)
                more[unknown] = False
            lines.openings(stages, rows, now, count, more, due)
        return count, short

    def _close(self, classes: Ints, rows: Ints, count: Ints, short: NDArray[np.int8]) -> None:
        """Set to 0 the counts of machines that are too busy, and of pairs that seemed to fit and were refused."""
        for i, row in enumerate(rows.tolist()) if self._idle else ():
            if (resource := self.too_busy(row)) is not None:
                count[:, i], short[:, i] = 0, resource
        if self._refused:
            of = {class_id: i for i, class_id in enumerate(classes.tolist())}
            for i, row in enumerate(rows.tolist()):
                refused = self._refusals(row)
                for class_id, (serial, resource) in refused.short.items() if refused else ():
                    if class_id in of and self.needs(class_id).serial == serial:
                        count[of[class_id], i], short[of[class_id], i] = 0, resource

    def too_busy(self, row: int) -> int | None:
        """Return a resource of which too little is idle on a machine, or None."""
        idle = self.learner.idle(row) if self._idle else None
        if idle is None:
            return None
        lacks = idle < self._idle * self._cluster.inventory.capacity[row] / MICRO
        return int(lacks.argmax()) if lacks.any() else None

    def _refusals(self, row: int, without: Sequence[TaskRecord] = ()) -> Refused | None:
        """Return the refusals of a machine if the same tasks run there, except those in `without`."""
        refused = self._refused.get(row)
        return refused if refused is not None and refused.turns == self._turns(row, without) else None

    def _turns(self, row: int, without: Sequence[TaskRecord] = ()) -> list[int]:
        record = self._cluster.by_row.get(row)
        return [] if record is None else [task.turn for task in record.tasks if task not in without]

    def _wait(self, row: int) -> None:
        """Look at a machine again when a refusal no longer holds."""
        if row in self._refused:
            self.forecast.due[row] = min(self.forecast.due[row], self._refused[row].until)

    def _stages(self, classes: Ints, level: int) -> Classes:
        """Return the stages of some classes in the kernel's form; the last ones are kept."""
        needs = [self.needs(index) for index in classes.tolist()]
        resources = len(self._cluster.resources.names)
        if level < _FINE:
            return Classes([need.at(level) for need in needs], resources)
        key = tuple([need.serial for need in needs])
        if key not in self._kernel:
            if len(self._kernel) >= _KEPT:
                self._kernel.clear()
            self._kernel[key] = Classes([need.fine for need in needs], resources)
        return self._kernel[key]

    def admits(self, row: int, class_id: int, without: Sequence[TaskRecord] = ()) -> bool:
        """True if one more task fits with all others, over time and stretched by compression; see `Limit.admits`."""
        self.grow()
        level = int(self._level[row])
        if level == _STOP:
            return False
        if not self._seem_to_fit(row, class_id, level, without):
            self._ask_again(row)  # time alone may have taken room away
            return False
        plan = self._plan(row, class_id, level, without=without)
        if plan.holds:
            return True
        if not without:
            resource = plan.short if plan.short >= 0 else LATE
            refused = self._refused[row] = self._refusals(row) or Refused(self._turns(row))
            refused.short[class_id] = self.needs(class_id).serial, resource
            # Later the others are in other stages; a deadline that can no longer be met does not block other tasks.
            refused.until = min(refused.until, self.forecast.next_end(row, self.now), plan.until)
            self._wait(row)
            self._ask_again(row)
        return False

    def _ask_again(self, row: int) -> None:
        """Mark a machine as changed: earlier answers of `room` no longer hold there."""
        self._cluster.inventory.touch(row)
        self._seen[row] = self._cluster.inventory.version[row]  # its tasks are the same

    def spare(self, row: int, class_id: int, most: int) -> int:
        """Return the number of tasks that fit together; see `Limit.spare`."""
        self.grow()
        level = int(self._level[row])
        count = 0 if level == _STOP else min(self._seem_to_fit(row, class_id, level), most)
        while count and not self._plan(row, class_id, level, count).holds:
            count //= 2
        return count

    def _plan(self, row: int, class_id: int, level: int, count: int = 1, without: Sequence[TaskRecord] = ()) -> Plan:
        record = self._cluster.by_class[class_id]
        stages = self.needs(class_id).at(level)
        return self.forecast.plan(row, self.now, record, stages, count, without)

    def _seem_to_fit(self, row: int, class_id: int, level: int, without: Sequence[TaskRecord] = ()) -> int:
        """Return `room` for one pair, or its value without some tasks."""
        one, rows = np.array([class_id]), np.array([row])
        if not without:
            if level < _FINE or self._idle or row in self._refused:
                return int(self.room(one, rows)[0][0, 0])
            self.look(rows, self.now)
            return int(self._fits(one, min(level, _FINE), rows)[0][0, 0])
        # The query as it will be once they are gone: no task is stopped for one that would then be refused.
        refused = self._refusals(row, without)
        known = refused is not None and refused.short.get(class_id, (-1, 0))[0] == self.needs(class_id).serial
        if known or self.too_busy(row) is not None:
            return 0
        self.look(rows, self.now)
        due = self.forecast.due[row]
        self.forecast.refresh(rows, self.now, without)
        count = int(self._fits(one, min(level, _FINE), rows)[0][0, 0])
        self.forecast.refresh(rows, self.now)
        self.forecast.due[row] = due
        return count
