"""Predicted start of a container (HRM, Algorithm 1): for one unit with a heap, for thousands at once in arrays.

Both simulate the future of a unit.  At each time at which running containers end, they give back their resources, and every
waiting container that fits starts, in order.  The container in question waits behind the others, and no other arrives, so its
start is that of the real queue (`StackedQueue` follows the same rules).  The source recurses; here it is a loop, O(n log n) for
n containers plus the scans of the short list of waiting ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flowsched.boundary.validate import number, ordered
from flowsched.exceptions import InputError
from flowsched.hrm.containers import Container
from flowsched.hrm.queues import StackedQueue
from flowsched.hrm.units import Amounts

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Prediction:
    """The unit on which a container would start first.

    Parameters
    ----------
    wait : float
        Seconds, infinite if it never fits.
    index : int or None
        Of the unit; the first of equals, None if it never fits.
    waits : ndarray of float64, shape (units,)
        Wait by unit; if jobs are uniform, infinite for all but the shortest queues.
    """

    wait: float
    index: int | None
    waits: Floats


class WaitMatrix:
    """The queue-wait matrix: predicted starts of classes of containers (columns) on units (rows), kept up to date.

    A start is kept as a point of time, so the passing of time changes nothing: a row is recomputed only when its unit
    changed, or when a container there runs longer than expected.

    Parameters
    ----------
    queues : sequence of StackedQueue

    Attributes
    ----------
    recomputed : int
        Rows computed so far.
    """

    def __init__(self, queues: Sequence[StackedQueue]) -> None:
        n = len(queues)
        self.queues = queues
        self.recomputed = 0
        self.needs: list[Amounts] = []
        self._columns: dict[Amounts, int] = {}  # needs[_columns[need]] == need
        self._starts: Floats = np.zeros((n, 0))  # by unit and column: predicted start, -inf: at once, inf: never
        self._seen = np.full(n, -1, np.int64)  # by unit: version of the queue that its row was computed from
        self._next_end: Floats = np.full(n, np.inf)  # by unit: first expected end; the row is valid until then
        self._takes: NDArray[np.bool_] = np.zeros((n, 0), np.bool_)  # by unit and column: `StackedQueue.takes`
        self._waiting: Ints = np.zeros(n, np.int64)  # by unit: containers that wait or are paused

    def column(self, container: Container) -> int:
        """Return the column of containers with the same need, which is added if new."""
        column = self._columns.get(container.need)
        if column is None:
            column = self._columns[container.need] = len(self.needs)
            self.needs.append(container.need)
            self._starts = np.full((len(self.queues), len(self.needs)), np.inf)
            takes = np.array([[queue.takes(container.need)] for queue in self.queues], np.bool_)
            self._takes = np.concatenate((self._takes, takes.reshape(-1, 1)), axis=1)
            self._seen[:] = -1
        return column

    def waits(self, container: Container, now: float) -> Floats:
        """Return the predicted wait of a batch container on every unit, shape (units,)."""
        column = self.column(container)
        self.update(now)
        waits: Floats = np.maximum(self._starts[:, column] - now, 0.0)
        return waits

    def waiting(self, now: float) -> Ints:
        """Return the number of waiting containers on every unit, shape (units,)."""
        self.update(now)
        return self._waiting

    def can_hold(self, container: Container) -> NDArray[np.bool_]:
        """Return True for the units that can ever take such a container, shape (units,)."""
        column = self.column(container)
        return self._takes[:, column].copy()

    def update(self, now: float) -> None:
        """Recompute the rows whose unit changed, or has a container that is late."""
        versions = np.fromiter((queue.version for queue in self.queues), np.int64, len(self.queues))
        rows = np.flatnonzero((versions != self._seen) | (self._next_end < now))
        if len(rows):
            alone = np.array([row for row in rows.tolist() if not self.queues[row].shares_cores], np.int64)
            if len(alone):
                self._starts[alone] = self._simulate([self.queues[row] for row in alone.tolist()], alone, now)
            if len(alone) < len(rows):
                self._together([row for row in rows.tolist() if self.queues[row].shares_cores], now)
            self._seen[rows] = versions[rows]
            self.recomputed += len(rows)

    def _together(self, rows: Sequence[int], now: float) -> None:
        """Compute the rows of units that share cores with others, one by one."""
        for row in rows:
            queue = self.queues[row]
            self._starts[row] = [queue.start_behind(need, now) for need in self.needs]
            ends = [end for books in queue.books(now)[0] for end, _ in books.ends]
            self._next_end[row] = min(ends, default=np.inf)
            self._waiting[row] = len(queue.waiting) + len(queue.paused)

    def _simulate(self, queues: Sequence[StackedQueue], rows: Ints, now: float) -> Floats:
        """Return the starts of all columns on these units, shape (len(queues), columns): `start_time` for all at once."""
        n, columns = len(queues), len(self.needs)
        running = [queue.ends(now) for queue in queues]
        waiting = [queue.waiters(now) for queue in queues]
        r, w = max(map(len, running), default=0), max(map(len, waiting), default=0)
        ends: Floats = np.full((n, r + w), np.inf)
        give: Ints = np.zeros((n, r + w, 4), np.int64)
        take: Ints = np.full((n, w, 4), 1 << 62, np.int64)  # empty place: never fits
        duration: Floats = np.zeros((n, w))
        for i, (run, wait) in enumerate(zip(running, waiting, strict=True)):
            if run:
                ends[i, : len(run)] = [end for end, _ in run]
                give[i, : len(run)] = [amounts for _, amounts in run]
            if wait:
                take[i, : len(wait)] = [waiter.take for waiter in wait]
                give[i, r : r + len(wait)] = [waiter.give for waiter in wait]
                duration[i, : len(wait)] = [waiter.duration for waiter in wait]
        free: Ints = np.array([queue.free for queue in queues], np.int64).reshape(n, 4)
        self._next_end[rows] = ends.min(axis=1, initial=np.inf)
        self._waiting[rows] = [len(wait) for wait in waiting]
        needs: Ints = np.array(self.needs, np.int64).reshape(columns, 4)
        starts: Floats = np.full((n, columns), np.inf)
        never = ~self._takes[rows]
        at_once = np.all(needs[None, :, :] <= free[:, None, :], axis=2)
        at_once[[bool(wait) for wait in waiting]] = False
        starts[at_once] = -np.inf
        alive = np.arange(n)
        while len(alive):
            alive = alive[(~(never[alive] | (starts[alive] < np.inf))).any(axis=1)]
            time = ends[alive].min(axis=1, initial=np.inf)
            alive, time = alive[time < np.inf], time[time < np.inf]
            ended = ends[alive] == time[:, None]
            free[alive] += (give[alive] * ended[:, :, None]).sum(axis=1)
            ends[alive] = np.where(ended, np.inf, ends[alive])
            for j in range(w):
                begins = np.all(take[alive, j] <= free[alive], axis=1)
                starting = alive[begins]
                free[starting] -= take[starting, j]
                take[starting, j] = 1 << 62
                ends[starting, r + j] = time[begins] + duration[starting, j]
            fits = (needs[None, :, :] <= free[alive][:, None, :]).all(axis=2) & (starts[alive] == np.inf)
            starts[alive] = np.where(fits, time[:, None], starts[alive])
        starts[never] = np.inf
        return starts


def predict_wait(
    container: Container, units: Sequence[StackedQueue] | WaitMatrix, *, now: float = 0.0, uniform: bool = False
) -> Prediction:
    """Predict the unit on which a container would start first, and its wait: Algorithm 1.

    Parameters
    ----------
    container : Container
        A batch container that waits behind all others, or a stream container (wait 0, or infinite).
    units : sequence of StackedQueue, or WaitMatrix
        A matrix keeps its results for the next call.
    uniform : bool
        All containers run equally long: without room anywhere the shortest queue wins (of equals, the one that moves
        first), without simulation.
    """
    number("now", now)
    if not hasattr(container, "need"):
        raise InputError(f"container: a Container expected, got {container!r}")
    if not isinstance(units, WaitMatrix):
        for i, queue in enumerate(ordered("units", units)):
            if not hasattr(queue, "limit"):
                raise InputError(f"units[{i}]: a StackedQueue expected, got {queue!r}")
    if container.kind == "stream":
        queues = units.queues if isinstance(units, WaitMatrix) else units
        return _least(np.array([queue.predict(container, now) for queue in queues], np.float64))
    matrix = units if isinstance(units, WaitMatrix) else WaitMatrix(units)
    return _shortest(container, matrix, now) if uniform else _least(matrix.waits(container, now))


def _least(waits: Floats) -> Prediction:
    index = int(np.argmin(waits)) if len(waits) else None
    if index is None or waits[index] == np.inf:
        return Prediction(math.inf, None, waits)
    return Prediction(float(waits[index]), index, waits)


def _shortest(container: Container, matrix: WaitMatrix, now: float) -> Prediction:
    """Choose the unit with room, else the shortest queue; the wait ends with the completion that makes room."""
    lengths = np.array([len(queue.waiting) + len(queue.paused) for queue in matrix.queues], np.int64)
    waits: Floats = np.full(len(lengths), np.inf)
    possible = np.flatnonzero(matrix.can_hold(container))
    if not len(possible):
        return Prediction(math.inf, None, waits)
    for i in possible[lengths[possible] == lengths[possible].min()].tolist():
        queue = matrix.queues[i]
        if all(a <= b for a, b in zip(container.need, queue.room, strict=True)):
            waits[i] = 0.0
        else:
            every = queue.ends(now) or [end for books in queue.books(now)[0] for end in books.ends]
            ends = sorted(end for end, _ in every)
            turns, turn = divmod(int(lengths[i]), len(ends)) if ends else (0, 0)
            waits[i] = ends[turn] - now + turns * container.duration if ends else math.inf
    return _least(waits)
