"""Input of the tasks of a simulation: where it is read from, and how long that takes over a network's links."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from flowsched.cluster.model import Machine
from flowsched.sim.clock import Clock
from flowsched.sim.links import Link, NetworkModel, fair_rates, same_rack

__all__ = ["WHERE", "Inputs"]

_SAME = 4e-6
"""Seconds within which ends of transfers count as simultaneous."""

WHERE = ("machine", "rack", "elsewhere")
"""Where input is read from: the task's own machine, another one in its rack, others or outside."""

_MACHINE, _RACK, _ELSEWHERE = range(3)
_NOTHING = (0.0, 0.0, 0.0)


@dataclass(slots=True, eq=False)
class _Transfer:
    """A part of a task's input on its way; `left` of its `amount` at the time to which all transfers have advanced."""

    holder: Hashable
    to: Machine
    kind: int
    path: list[Link]
    amount: float
    left: float
    rate: float = 0.0


class Inputs:
    """What tasks read, from where, and for how long.

    Parameters
    ----------
    model : NetworkModel or None
        None: nothing takes time.
    clock : Clock
    machine : callable
        Returns a machine by its id, None for one that is not there.
    ready : callable
        Called with a task that has all its input.

    Attributes
    ----------
    time : float
        When a transfer last began, ended or changed its rate.
    """

    def __init__(
        self,
        model: NetworkModel | None,
        clock: Clock,
        machine: Callable[[Hashable], Machine | None],
        ready: Callable[[Hashable], None],
    ) -> None:
        self._model = NetworkModel() if model is None else model
        self._clock, self._machine, self._ready = clock, machine, ready
        self._read: dict[Hashable, list[float]] = {}  # by task: what it has read, by kind
        self._going: dict[Hashable, list[_Transfer]] = {}  # by task that still reads
        self.time = 0.0
        self._plan = 0  # counts the plans made, so that a stale one is recognised
        self._due = False

    def begin(self, task: Hashable, data: Sequence[tuple[Hashable, float]], machine: Hashable) -> bool:
        """Let a task read its input on a machine; return True if that takes time, False if it has all of it."""
        to = self._machine(machine)
        assert to is not None, "a task starts on a machine that is there"
        read = self._read.setdefault(task, list(_NOTHING))
        transfers = []
        for holder, amount in data:
            source = self._machine(holder)
            kind = _MACHINE if holder == machine else _RACK if same_rack(source, to) else _ELSEWHERE
            path = [] if kind == _MACHINE else self._model.path(source, to)
            if path and amount:
                transfers.append(_Transfer(holder, to, kind, path, amount, amount))
            else:
                read[kind] += amount
        if transfers:
            self._going[task] = transfers
            self._change()
        return bool(transfers)

    def stop(self, task: Hashable) -> None:
        """Stop a task that may still read; what it has read counts."""
        if task in self._going:
            self._advance()
            for transfer in self._going.pop(task):
                self._read[task][transfer.kind] += transfer.amount - transfer.left
            self._change()

    def gone(self, machine: Hashable) -> None:
        """Read what lies on a machine that has gone from outside, from now on."""
        if not any(transfer.holder == machine for transfers in self._going.values() for transfer in transfers):
            return
        self._advance()
        for task, transfers in self._going.items():
            for transfer in transfers:
                if transfer.holder == machine:
                    self._read[task][transfer.kind] += transfer.amount - transfer.left
                    transfer.amount, transfer.kind = transfer.left, _ELSEWHERE
                    transfer.path = self._model.path(None, transfer.to)
        self._change()

    def _change(self) -> None:
        """Compute the rates anew after all that happens at this instant."""
        if not self._due:
            self._due = True
            self._clock.after(0.0, None, self._replan)

    def _advance(self) -> None:
        """Advance the transfers up to now."""
        passed, self.time = self._clock.now - self.time, self._clock.now
        if not passed:
            return
        for transfers in self._going.values():
            for transfer in transfers:
                transfer.left = max(transfer.left - transfer.rate * passed, 0.0)

    def _replan(self, _: None) -> None:
        """Compute the rates, and plan the next end of a transfer."""
        self._due = False
        self._advance()
        going = [transfer for transfers in self._going.values() for transfer in transfers]
        step = math.inf
        for transfer, rate in zip(going, fair_rates([t.path for t in going], self._model.bandwidth), strict=True):
            step = min(step, transfer.left / rate)
            if rate == math.inf:  # its holder has gone, and no link to the outside is ever short
                transfer.left = rate = 0.0
            transfer.rate = rate
        self._plan += 1
        if going:
            self._clock.after(step, self._plan, self._end)

    def _end(self, plan: int) -> None:
        """End the transfers that are due, and let the tasks work that have all their input."""
        if plan != self._plan:
            return
        self._advance()
        close = max(_SAME, 4 * math.ulp(self.time))
        whole = []
        for task, transfers in self._going.items():
            for transfer in transfers:
                if transfer.left <= close * transfer.rate:
                    self._read[task][transfer.kind] += transfer.amount
            transfers[:] = [t for t in transfers if t.left > close * t.rate]
            if not transfers:
                whole.append(task)
        for task in whole:
            del self._going[task]
        self._change()
        for task in whole:
            self._ready(task)

    def read(self, task: Hashable, now: float) -> Sequence[float]:
        """Return what a task has read on its machine, in its rack and from elsewhere, at all its starts."""
        if task not in self._going:
            return self._read.get(task, _NOTHING)
        read = list(self._read[task])
        for transfer in self._going[task]:
            left = max(transfer.left - transfer.rate * max(now - self.time, 0.0), 0.0)
            read[transfer.kind] += transfer.amount - left
        return read
