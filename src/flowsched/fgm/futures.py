"""What becomes of every machine: its tasks, each somewhere in its stages, and the timeline that follows.

A machine's *state* is what is known of its tasks at a time: in which stage each is, and how much of it is left.  It is
moved on along the predicted course (`Futures.advance`) before anything happens to the machine, and taken stock of
(`Futures.settle`) afterwards, so that whatever a round tries out and takes back leaves it alone: `Futures.plan` works on
a copy with the tasks that the cluster holds at that moment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster import MICRO, Cluster
from flowsched.cluster.records import ClassRecord, TaskRecord
from flowsched.fgm.stages import Stages
from flowsched.fgm.timeline import Classes, Prediction, Running, Timelines

__all__ = ["Futures", "Needs", "Plan", "Stock"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

GRACE = 0.05
"""A task that runs beyond its prediction is expected to take this part of its duration more, then twice as much ..."""


@dataclass(slots=True, eq=False)
class Needs:
    """What tasks of a class are taken to need.

    Attributes
    ----------
    fine, coarse, request : Stages
        By stages; the most of all stages; what they ask for.
    at : int
        Where `fine` is in the stock.
    serial : int
        No other needs ever have it.
    """

    fine: Stages
    coarse: Stages
    request: Stages
    at: int
    serial: int


class Stock:
    """All stages that some task is in or may start with, as one kernel array."""

    def __init__(self, resources: int, stages: Sequence[Stages] = ()) -> None:
        self._resources = resources
        self._stages = list(stages)
        self._classes: Classes | None = None

    def __len__(self) -> int:
        return len(self._stages)

    def add(self, stages: Stages) -> int:
        """Where these are from now on."""
        self._stages.append(stages)
        self._classes = None
        return len(self._stages) - 1

    def keep(self, used: Collection[int]) -> dict[int, int]:
        """Forget all others; where those kept were and are."""
        moved = {old: new for new, old in enumerate(sorted(used))}
        self._stages = [self._stages[old] for old in moved]
        self._classes = None
        return moved

    def and_(self, stages: Stages) -> Classes:
        """All of these and some more, in the kernel's form."""
        return Classes([*self._stages, stages], self._resources)

    @property
    def classes(self) -> Classes:
        """In the kernel's form."""
        if self._classes is None:
            self._classes = Classes(self._stages, self._resources)
        return self._classes


@dataclass(slots=True, eq=False)
class _State:
    """Tasks of a machine at a time; arrays by task.  `stage` counts from the first of the task."""

    time: float
    turns: list[int]
    at: Ints
    stage: Ints
    left: Floats
    grace: Floats
    begun: Floats
    deadline: Floats

    def copy(self) -> _State:
        return _State(
            self.time,
            self.turns,
            self.at,
            self.stage.copy(),
            self.left.copy(),
            self.grace.copy(),
            self.begun,
            self.deadline,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A machine's tasks from now on, one more of a class perhaps among them."""

    prediction: Prediction
    uncompressed: Floats
    deadline: Floats


class Futures:
    """States and timelines of the machines of a cluster.

    Parameters
    ----------
    cluster : Cluster
    timelines : Timelines
    estimate : callable
        Class -> its estimated stages, None where too little is known.

    Attributes
    ----------
    stock : Stock
    foreign : ndarray of int64, shape (rows, resources)
        Load that is not ours, by machine row.
    compress : ndarray of bool, shape (rows,)
        Where compression is allowed.
    due : ndarray of float64, shape (rows,)
        When a machine's timeline next has more to offer than it had.
    done : ndarray of float64, shape (rows,)
        When a task there should be done; if it is not, its timeline must be worked out anew.
    """

    def __init__(
        self, cluster: Cluster, timelines: Timelines, estimate: Callable[[ClassRecord], Stages | None]
    ) -> None:
        self.cluster = cluster
        self.timelines = timelines
        self._estimate = estimate
        self.stock = Stock(len(cluster.resources.names))
        self._needs: dict[ClassRecord, Needs] = {}
        self._serial = 0
        self.foreign: Ints = np.zeros((0, len(cluster.resources.names)), np.int64)
        self.compress: NDArray[np.bool_] = np.ones(0, np.bool_)
        self.due: Floats = np.full(0, np.inf)
        self.done: Floats = np.full(0, np.inf)
        self._states: dict[int, _State] = {}

    def grow(self, rows: int) -> None:
        """Have at least so many rows."""
        more = max(rows, 2 * len(self.due)) - len(self.due)
        if rows > len(self.due):
            self.foreign = np.concatenate([self.foreign, np.zeros((more, self.foreign.shape[1]), np.int64)])
            self.compress = np.concatenate([self.compress, np.ones(more, np.bool_)])
            self.due = np.concatenate([self.due, np.full(more, np.inf)])
            self.done = np.concatenate([self.done, np.full(more, np.inf)])
            self.timelines.grow(len(self.due))

    def needs(self, cls: ClassRecord) -> Needs:
        """What tasks of the class are taken to need."""
        need = self._needs.get(cls)
        if need is None:
            amounts = cls.demand / MICRO
            if self.cluster.resources.device_index >= 0:
                amounts[self.cluster.resources.device_index] = 0  # devices are left to the books
            request = Stages([np.inf], amounts[None, :])
            fine = self._estimate(cls) or request
            self._serial += 1
            coarse = request if fine is request else fine.coarse()
            need = self._needs[cls] = Needs(fine, coarse, request, self.stock.add(fine), self._serial)
        return need

    def renew(
        self, kinds: Collection[Hashable], key: Callable[[Hashable | None], Hashable | None]
    ) -> tuple[list[ClassRecord], list[int]]:
        """Estimate anew what these kinds need; the classes concerned, and the machines where that changes something.

        What runs goes on as it was predicted to, unless nothing but its request was known.
        """
        classes = [cls for cls in self._needs if key(cls.kind) in kinds]
        known = {}
        for cls in classes:
            old = self._needs.pop(cls)
            if old.fine is old.request:
                known[old.at] = self.needs(cls)
        rows = [row for row, state in self._states.items() if not known.keys().isdisjoint(state.at.tolist())]
        for row in rows:
            self._place(self._states[row], known)
        return classes, rows

    def _place(self, state: _State, known: Mapping[int, Needs]) -> None:
        """Tasks of which more is known now are where their age says."""
        for i, at in enumerate(state.at.tolist()):
            need = known.get(at)
            if need is not None and need.fine is not need.request:
                passed = np.cumsum(need.fine.seconds) - (state.time - state.begun[i])
                stage = int(np.searchsorted(passed, 1e-6))
                state.at[i], state.grace[i] = need.at, max(GRACE * need.fine.duration, 1e-3)
                state.stage[i] = min(stage, len(need.fine) - 1)
                state.left[i] = passed[stage] if stage < len(need.fine) else state.grace[i]

    def advance(self, row: int, now: float) -> None:
        """Move a machine's state on."""
        state = self._states.get(row)
        if state is not None and now > state.time:
            self._advance(state, row, now)

    def settle(self, row: int, now: float) -> None:
        """Take stock of the tasks that run on a machine: those that are new begin now."""
        record = self.cluster.by_row.get(row)
        if record is None or not record.tasks:
            self._states.pop(row, None)
        else:
            self._states[row] = self._state(row, record.tasks, now)

    def _state(self, row: int, tasks: Iterable[TaskRecord], now: float) -> _State:
        """Its state at a time, with just these tasks; a copy."""
        old = self._states.get(row)
        members = list(tasks)
        turns = [task.turn for task in members]
        if old is not None:
            old = old.copy()
            if now > old.time:
                self._advance(old, row, now)
            if old.turns == turns:
                return old
        known = {turn: i for i, turn in enumerate(old.turns)} if old is not None else {}
        picks = [known.get(turn, -1) for turn in turns]
        fresh = [i for i, pick in enumerate(picks) if pick < 0]
        begin = self._begin([members[i] for i in fresh], now if old is None else max(now, old.time))
        if old is None or len(fresh) == len(members):
            begin.turns = turns
            return begin
        index = np.array(picks)
        for name in ("at", "stage", "left", "grace", "begun", "deadline"):
            column = getattr(old, name)[index]
            column[fresh] = getattr(begin, name)
            setattr(old, name, column)
        old.turns = turns
        return old

    def _begin(self, tasks: list[TaskRecord], now: float) -> _State:
        """Tasks that start now."""
        at = np.array([self.needs(task.group.cls).at for task in tasks], np.int64)
        classes = self.stock.classes
        left = classes.seconds[classes.at[at]]
        deadline = np.array([_deadline(task.group.job.job.deadline) for task in tasks])
        grace = np.maximum(GRACE * classes.duration[at], 1e-3)
        return _State(now, [], at, np.zeros(len(at), np.int64), left, grace, np.full(len(at), now), deadline)

    def _advance(self, state: _State, row: int, now: float) -> None:
        running = self._running(state)
        self.timelines.predict(self.stock.classes, running, self._total(row), self.foreign[row], state.time, until=now)
        state.stage = running.stage - self.stock.classes.at[state.at]
        state.left, state.time = running.left, now
        self._extend(state, running)

    def _extend(self, state: _State, running: Running) -> None:
        """Who should be done but is not goes on in its last stage for a while."""
        late = np.flatnonzero(running.stage >= running.last)
        if len(late):
            state.stage[late] -= 1
            state.left[late] = state.grace[late]
            state.grace[late] *= 2

    def _running(self, state: _State) -> Running:
        at = self.stock.classes.at
        first = at[state.at]
        return Running(first + state.stage, at[state.at + 1], state.left.copy())

    def _total(self, row: int) -> Ints:
        total: Ints = self.cluster.books.capacity[row]
        return total

    # -- looking ahead ------------------------------------------------------------------------------------------

    def refresh(self, row: int, now: float) -> None:
        """Work a machine's timeline out anew, with the tasks that the cluster holds now."""
        state = self._state(row, self.cluster.by_row[row].tasks, now)
        lines = self.timelines
        prediction = lines.predict(
            self.stock.classes, self._running(state), self._total(row), self.foreign[row], now,
            row=row, compress=bool(self.compress[row]),
        )  # fmt: skip
        self.done[row] = prediction.finish.min(initial=np.inf)
        self.due[row] = prediction.rise

    def wait_for(self, rows: Ints, now: float) -> None:
        """Note when machines will next have more to offer than they have."""
        lines = self.timelines
        ends, reach = lines.ends[rows, :-1], lines.reach[rows]
        more = (reach[:, 1:] > reach[:, :-1]).any(axis=2) & (ends > now + 1e-6)
        self.due[rows] = np.where(more, ends, np.inf).min(axis=1)

    def plan(
        self, row: int, now: float, newcomer: ClassRecord, stages: Stages, without: Collection[TaskRecord]
    ) -> Plan:
        """What would become of a machine's tasks, and of one more that needs `stages`, without some of them.

        The newcomer is the last of the tasks; its deadline is the earliest one of its class that can be met at all.
        """
        state = self._state(row, [t for t in self.cluster.by_row[row].tasks if t not in without], now)
        running = self._running(state)
        need = self.needs(newcomer)
        if stages is need.fine:
            classes, first = self.stock.classes, int(self.stock.classes.at[need.at])
        else:
            classes, first = self._with(stages)
        running = Running(
            np.append(running.stage, first), np.append(running.last, first + len(stages)),
            np.append(running.left, stages.seconds[0]),
        )  # fmt: skip
        uncompressed = now + running.left + classes.after[running.stage]
        prediction = self.timelines.predict(
            classes, running, self._total(row), self.foreign[row], now, compress=bool(self.compress[row])
        )
        return Plan(
            prediction, uncompressed, np.append(state.deadline, self._earliest(newcomer, now + stages.duration))
        )

    def _with(self, stages: Stages) -> tuple[Classes, int]:
        """The stock and some more stages."""
        more = self.stock.and_(stages)
        return more, int(more.at[-2])

    def _earliest(self, cls: ClassRecord, least: float) -> float:
        deadlines = (_deadline(group.job.job.deadline) for group in self.cluster.waiting.get(cls, ()))
        return min((deadline for deadline in deadlines if deadline >= least), default=np.inf)

    # -- looking back -------------------------------------------------------------------------------------------

    def degraded(self, row: int, now: float, factor: float) -> bool:
        """Whether a task there has run so many times as long as it was predicted to."""
        state = self._states.get(row)
        if state is None:
            return False
        return bool((now - state.begun > factor * self.stock.classes.duration[state.at]).any())

    def compact(self) -> None:
        """Forget classes without tasks, and stages that nobody is in or may start with."""
        self._needs = {cls: need for cls, need in self._needs.items() if cls.tasks}
        used = {need.at for need in self._needs.values()}.union(*(state.at.tolist() for state in self._states.values()))
        if len(self.stock) > 64 and len(self.stock) > 2 * len(used):
            moved = self.stock.keep(used)
            for need in self._needs.values():
                need.at = moved[need.at]
            for state in self._states.values():
                state.at = np.array([moved[at] for at in state.at.tolist()], np.int64)


def _deadline(deadline: float | None) -> float:
    return np.inf if deadline is None else deadline
