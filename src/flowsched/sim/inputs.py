"""Input of the tasks of a simulation: its location, and the time of reading over a network's links."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence

from flowsched.cluster.model import Machine
from flowsched.sim.clock import Clock
from flowsched.sim.links import Links, NetworkModel, Transfer, same_rack

_SAME = 4e-6
"""Seconds within which ends of transfers count as simultaneous."""

WHERE = ("machine", "rack", "elsewhere")
"""Locations of input: the task's own machine, another one in its rack, others or outside."""

_MACHINE, _RACK, _ELSEWHERE = range(3)
_NOTHING = (0.0, 0.0, 0.0)


class Inputs:
    """Transfers of input: the data that tasks read, its location, and the time that reading takes.

    Without a model nothing takes time.  `machine` returns a machine by its id, None for one that is not there; `ready`
    is called with a task that has all its input.  `time` is when a transfer last began, ended or changed its rate.
    """

    def __init__(
        self,
        model: NetworkModel | None,
        clock: Clock,
        machine: Callable[[Hashable], Machine | None],
        ready: Callable[[Hashable], None],
    ) -> None:
        self._links = Links(NetworkModel() if model is None else model)
        self._clock, self._machine, self._ready = clock, machine, ready
        self._read: dict[Hashable, list[float]] = {}  # by task: what it has read, by kind
        self._going: dict[Hashable, list[Transfer]] = {}  # by task that still reads
        self.time = 0.0
        self._plan = 0  # counts the plans made, so that a stale one is recognised
        self._due = False

    def begin(self, task: Hashable, data: Sequence[tuple[Hashable, float]], machine: Hashable) -> bool:
        """Start to read the input of a task on a machine; return True if that takes time, False if all of it is there."""
        to = self._machine(machine)
        assert to is not None, "a task starts on a machine that is there"
        read = self._read.setdefault(task, list(_NOTHING))
        for holder, amount in data:
            source = self._machine(holder)
            kind = _MACHINE if holder == machine else _RACK if same_rack(source, to) else _ELSEWHERE
            path = [] if kind == _MACHINE else self._links.model.path(source, to)
            if path and amount:
                transfer = Transfer(task, holder, to, kind, amount, amount)
                self._links.add(transfer, path)
                self._going.setdefault(task, []).append(transfer)
            else:
                read[kind] += amount
        if task in self._going:
            self._change()
        return task in self._going

    def stop(self, task: Hashable) -> None:
        """Stop a task that may still read; the amounts read so far count."""
        if task in self._going:
            self._advance()
            for transfer in self._going.pop(task):
                self._read[task][transfer.kind] += transfer.amount - transfer.left
                self._links.remove(transfer)
            self._change()

    def gone(self, machine: Hashable) -> None:
        """From now on, read the data of a machine that has gone from outside."""
        lost = [transfer for transfer in self._links.transfers if transfer.holder == machine]
        if lost:
            self._advance()
            for transfer in lost:
                self._read[transfer.task][transfer.kind] += transfer.amount - transfer.left
                transfer.amount, transfer.kind = transfer.left, _ELSEWHERE
                self._links.remove(transfer)
                self._links.add(transfer, self._links.model.path(None, transfer.to))
            self._change()

    def _change(self) -> None:
        """Compute the rates again, after all events of this instant."""
        if not self._due:
            self._due = True
            self._clock.after(0.0, None, self._replan)

    def _advance(self) -> None:
        """Advance the transfers up to now."""
        passed, self.time = self._clock.now - self.time, self._clock.now
        if passed:
            for transfer in self._links.transfers:
                transfer.left = max(transfer.left - transfer.rate * passed, 0.0)

    def _replan(self, _: None) -> None:
        """Compute the rates, and plan the next end of a transfer."""
        self._due = False
        self._advance()
        self._links.share()
        step = math.inf
        for transfer in self._links.transfers:
            if transfer.rate == math.inf:  # its holder has gone, and no link to the outside is ever short
                transfer.left = transfer.rate = step = 0.0
            else:
                step = min(step, transfer.left / transfer.rate)
        self._plan += 1
        if step < math.inf:
            self._clock.after(step, self._plan, self._end)

    def _end(self, plan: int) -> None:
        """End the transfers that are due, and start the work of tasks that have all their input."""
        if plan != self._plan:
            return
        self._advance()
        close = max(_SAME, 4 * math.ulp(self.time))
        whole = []
        for transfer in [t for t in self._links.transfers if t.left <= close * t.rate]:
            self._read[transfer.task][transfer.kind] += transfer.amount
            self._links.remove(transfer)
            rest = self._going[transfer.task]
            rest.remove(transfer)
            if not rest:
                del self._going[transfer.task]
                whole.append(transfer.task)
        self._change()
        for task in whole:
            self._ready(task)

    def read(self, task: Hashable, now: float) -> Sequence[float]:
        """Return the amounts that a task has read on its machine, in its rack and from elsewhere, at all its starts."""
        if task not in self._going:
            return self._read.get(task, _NOTHING)
        read = list(self._read[task])
        for transfer in self._going[task]:
            left = max(transfer.left - transfer.rate * max(now - self.time, 0.0), 0.0)
            read[transfer.kind] += transfer.amount - left
        return read
