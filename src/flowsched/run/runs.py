"""The runs that have not ended: a table by number, task and machine, and their starts, stops and times.

Its states and invariants are those of `flowsched.run.dispatch`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Hashable
from heapq import heappop, heappush
from math import inf

from flowsched.exceptions import TimeLimitError
from flowsched.run.ahead import Ahead
from flowsched.run.executor import Active, Executor, Failed, Run, Watcher

LOGGER = logging.getLogger("flowsched")

PATIENCE = 10.0
"""Seconds after which a stop without an answer is requested again."""


class Runs:
    """Starts runs when nothing has to stop for them any more and their machine has room, and stops them.

    `hear` is called with the failure of a start; `watcher` observes starts.  `by_number` has all runs, and `held` those that are held; `of` and
    `stopping` have the counted run of a task, and its stopping one.  `over` are those that have ended, to be released.
    `now` is the time of the current call.
    """

    def __init__(
        self, executor: Executor, ahead: Ahead, hear: Callable[[Failed], None], watcher: Watcher | None = None
    ) -> None:
        self._executor, self._ahead, self._hear, self._watcher = executor, ahead, hear, watcher
        self.by_number: dict[int, Active] = {}
        self.held: dict[int, Active] = {}
        self.of: dict[Hashable, Active] = {}
        self.stopping: dict[Hashable, Active] = {}
        self._gangs: dict[Hashable, dict[int, Active]] = {}  # held runs by gang
        self.on: dict[Hashable, dict[int, Active]] = {}
        self.over: list[Run] = []
        self.stats: Counter[str] = Counter()
        self.now = -inf
        self._due: list[tuple[float, int]] = []

    def add(self, active: Active) -> None:
        """Add a run."""
        run = active.run
        self.by_number[run.number] = active
        self.on.setdefault(run.machine, {})[run.number] = active
        if active.counted:
            self.of[run.task] = active
        if active.held:
            self.held[run.number] = active
            if run.gang is not None:
                self._gangs.setdefault(run.gang, {})[run.number] = active

    def forget(self, active: Active) -> None:
        """Remove a run that the executor does not know."""
        run = active.run
        del self.by_number[run.number], self.on[run.machine][run.number]
        if not self.on[run.machine]:
            del self.on[run.machine]
        self._let_go(active)
        for those in (self.of, self.stopping):
            if those.get(run.task) is active:
                del those[run.task]
        self._ahead.leave(run.machine, active.demand, active.since, self.now, active.left)

    def left(self, active: Active) -> None:
        """Give the room of a run to others before its end is reported."""
        if active.counted and active.since < inf and not active.left:
            active.left = self._ahead.left(active.run.machine, active.demand, active.since, self.now)
            if active.left:
                self.advance(active.run.machine)

    def end(self, active: Active) -> None:
        """Remove a run that has ended, and mark it for release."""
        self.forget(active)
        self.over.append(active.run)

    def displace(self, active: Active) -> None:
        """Take the machine from a run: a held one is removed, another one is stopped."""
        if active.held:
            self.forget(active)
            return
        task, active.counted = active.run.task, 0
        if self.of.get(task) is active:
            del self.of[task]
        self.stopping[task] = active
        self.stop(active)

    def advance(self, *machines: Hashable) -> None:
        """Give room on machines to the runs that come next, and start those for which nothing has to stop any more.

        A gang begins on all its machines at once.
        """
        may: dict[Hashable, bool] = {None: True}
        todo = list(dict.fromkeys(machines))
        for machine in todo:  # which grows
            there = list(self.on.get(machine, {}).values())
            if not all(active.counted for active in there):
                continue
            room = waits = True
            for active in there:
                run = active.run
                if active.held and run.gang not in may:
                    others = self._gangs[run.gang].values()
                    may[run.gang] = all(map(self._may_begin, others))
                    if may[run.gang]:
                        todo += dict.fromkeys(other.run.machine for other in others if other.run.machine not in todo)
                if active.held and not may[run.gang]:
                    room = waits = False
                if active.since == inf and run.number in self.by_number and run.task not in self.stopping:
                    runs = not (active.held or active.waits)
                    has = (room or runs) and self._ahead.take(machine, active.demand, self.now, runs)
                    room = room and has
                    if has:
                        active.since = self.now
                        self.limit(active)
                    if active.held and (has or (waits and active.waits)):
                        self._start(active)
                waits = waits and active.waits

    def advance_held(self) -> None:
        """Call `advance` for the machines of held runs."""
        self.advance(*(active.run.machine for active in self.held.values()))

    def _start(self, active: Active) -> None:
        active.held = False
        self._let_go(active)
        self.stats["started"] += 1
        if self._watcher is not None:
            self._watcher.started(active.run, self.now)
        try:
            self._executor.start(active.run)
        except Exception as error:
            self._hear(Failed(active.run.number, error))

    def _let_go(self, active: Active) -> None:
        """Remove a run from the held ones."""
        run = active.run
        if self.held.pop(run.number, None) is not None and run.gang is not None:
            del self._gangs[run.gang][run.number]
            if not self._gangs[run.gang]:
                del self._gangs[run.gang]

    def _may_begin(self, active: Active) -> bool:
        """Return True if nothing has to stop for a run."""
        run = active.run
        return run.task not in self.stopping and all(other.counted for other in self.on[run.machine].values())

    def stop(self, active: Active) -> None:
        """Stop a run; it is stopped again if that is not answered."""
        self._wait(active, PATIENCE)
        try:
            self._executor.stop(active.run)
        except Exception as error:  # its room stays taken, and it is stopped again
            LOGGER.warning("run %d of task %r cannot be stopped: %s", active.run.number, active.run.task, error)

    def limit(self, active: Active) -> None:
        """Start the time limit of a run, unless it is being stopped."""
        if active.counted and active.why is None and active.work is not None and active.work.time_limit is not None:
            self._wait(active, active.work.time_limit)

    def _wait(self, active: Active, seconds: float) -> None:
        active.until = self.now + seconds
        heappush(self._due, (active.until, active.run.number))

    def overdue(self) -> None:
        """Stop the runs whose time is over, and ask again for stops that were not answered."""
        while self.due <= self.now:
            active = self.by_number.get(heappop(self._due)[1])
            if active is None or active.until > self.now:
                continue
            if active.counted and active.why is None:
                active.why = TimeLimitError(f"task {active.run.task!r} ran longer than its time limit")
            self.stop(active)

    @property
    def due(self) -> float:
        """The next time at which a run has to be stopped."""
        return self._due[0][0] if self._due else inf
