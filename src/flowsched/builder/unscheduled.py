"""Arcs by which waiting tasks leave the node of a job or a user: a bound below, some room for free, and rungs of rising cost.

::

              base: lower L, unlimited, price P
    node  ------------------------------------->  head
              ease: H - L, free
              rungs: one per step of a ladder, each dearer than the one before it
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from flowsched.builder.batch import NetworkBatch
from flowsched.cluster.columns import IdPool, grown
from flowsched.cluster.model import UNLIMITED
from flowsched.network.flow_network import INF, FlowNetwork
from flowsched.policy.fairness import RUNGS

__all__ = ["UnscheduledArcs"]

Ints = NDArray[np.int64]


class UnscheduledArcs:
    """Arcs by which waiting tasks leave a node; arrays by index of the outlet."""

    def __init__(self, network: FlowNetwork, edits: NetworkBatch) -> None:
        self.network = network
        self.edits = edits
        self._indices = IdPool()
        self.tail: Ints = np.zeros(8, np.int64)
        self.head: Ints = np.zeros(8, np.int64)
        self._base: Ints = np.full(8, -1, np.int64)
        self._capacity: Ints = np.zeros(8, np.int64)
        self._price: Ints = np.zeros(8, np.int64)
        self._lower: Ints = np.zeros(8, np.int64)
        self._ease: Ints = np.full(8, -1, np.int64)
        self._room: Ints = np.zeros(8, np.int64)
        self._rung: Ints = np.full((8, 0), -1, np.int64)
        self._width: Ints = np.zeros((8, 0), np.int64)
        self._step = 0

    def add(self, tails: Sequence[int], heads: Sequence[int], arcs: Sequence[int] | None = None) -> Ints:
        """New outlets without bounds: closed, or (with their arcs) open."""
        new = np.array([self._indices.take() for _ in tails], np.int64)
        top = int(new.max(initial=-1)) + 1
        for name in ("tail", "head", "_capacity", "_price", "_lower", "_room", "_width"):
            setattr(self, name, grown(getattr(self, name), top))
        for name in ("_base", "_ease", "_rung"):
            setattr(self, name, grown(getattr(self, name), top, fill=-1))
        self.tail[new], self.head[new] = tails, heads
        if arcs is None:
            arcs = self.edits.add_arcs(self.tail[new], self.head[new], 0, 0).tolist()
            self._capacity[new] = 0
        else:
            self._capacity[new] = INF
        self._base[new] = arcs
        self._price[new] = self._lower[new] = self._room[new] = self._width[new] = 0
        self._ease[new] = self._rung[new] = -1
        return new

    def forget(self, index: int) -> None:
        """The outlet's arcs go with one of its nodes."""
        self._base[index] = self._ease[index] = self._rung[index] = -1
        self._indices.give(index)

    def hold(self, at: Ints, tasks: Ints, waiting: Ints, guaranteed: Ints, least: Ints, most: Ints, price: int) -> None:
        """Bounds: no more than `most` tasks of each may run, fewer than `least` at a price, fewer than `guaranteed` at twice that."""
        lower = np.clip(tasks - np.maximum(most, tasks - waiting), 0, waiting)
        firm, held = (np.minimum(bound, tasks - lower) for bound in (guaranteed, least))
        self.bound(at, lower, tasks - lower - held, np.where(firm > 0, 2 * price, price))
        if firm.any() or self._rung.shape[1]:
            width = np.zeros((len(at), RUNGS - 1), np.int64)
            width[:, -1] = np.where(firm > 0, held - firm, 0)
            self.ladder(at, width, price)

    def climb(
        self,
        at: Ints,
        tasks: Ints,
        waiting: Ints,
        least: Ints,
        most: Ints,
        weight: NDArray[np.float64],
        units: int,
        step: int,
    ) -> Ints:
        """Rungs by weight: the k-th running task of weight w stands on rung (k - 1) // w, and the lower the rung the dearer.

        Returns
        -------
        ndarray of int64, shape (outlets, RUNGS - 1)
            How many run where each rung but the first begins.
        """
        lower = np.clip(tasks - np.maximum(most, tasks - waiting), 0, waiting)
        pace = np.where(weight > 0, weight / weight.min(initial=np.inf, where=weight > 0), 0.0)
        # Were all to climb at once, they would end two thirds up; powers of two, so that the rungs seldom move.
        height = 1.5 * units / max(float(pace.sum()), 1.0) / RUNGS
        pace = pace * 2.0 ** max(0, math.ceil(math.log2(max(height, 1e-9))))
        edges: Ints = np.ceil(np.minimum(np.outer(pace, np.arange(RUNGS + 1)), UNLIMITED) - 1e-9).astype(np.int64)
        if least.any():  # what is guaranteed stands on the lowest rung, and nothing else does
            edges[:, 1:] = np.maximum(edges[:, :-1], least[:, None])
        upto = np.minimum(edges, (tasks - lower)[:, None])
        self.bound(at, lower, tasks - lower - upto[:, -1], RUNGS * step)
        self.ladder(at, np.diff(upto, axis=1)[:, 1:], step)
        rungs: Ints = edges[:, 1:-1].copy()
        return rungs

    def bound(self, at: Ints, lower: Ints, room: Ints, price: int | Ints) -> None:
        """Let at least `lower` leave, and `room` more before each costs `price`."""
        self._open(at, INF)
        self._send(self.network.set_cost, self._base, self._price, at, np.broadcast_to(np.int64(price), len(at)))
        self._send(self.network.set_lower, self._base, self._lower, at, lower)
        missing = at[(self._ease[at] < 0) & (room > 0)]
        if len(missing):
            self._ease[missing] = self.edits.add_arcs(self.tail[missing], self.head[missing], 0, 0)
        self._send(self.network.set_capacity, self._ease, self._room, at, room)

    def ladder(self, at: Ints, width: Ints, step: int) -> None:
        """Rungs of these capacities, shape (outlets, RUNGS - 1); the first one costs most, the last one `step`."""
        if not width.any() and not self._rung.shape[1]:
            return
        if not self._rung.shape[1]:
            self._rung = np.full((len(self.tail), RUNGS - 1), -1, np.int64)
            self._width = np.zeros((len(self.tail), RUNGS - 1), np.int64)
        cost = np.arange(RUNGS - 1, 0, -1) * step
        if step != self._step:
            self._step = step
            o, r = np.nonzero(self._rung >= 0)
            if len(o):
                self.edits.count += len(o)
                self.network.set_cost(self._rung[o, r], cost[r])
        o, r = np.nonzero((self._rung[at] < 0) & (width > 0))
        if len(o):
            self._rung[at[o], r] = self.edits.add_arcs(self.tail[at[o]], self.head[at[o]], 0, cost[r])
        o, r = np.nonzero(width != self._width[at])
        if len(o):
            self._width[at[o], r] = width[o, r]
            self.edits.count += len(o)
            self.network.set_capacity(self._rung[at[o], r], width[o, r])

    def free(self, at: Ints) -> None:
        """No bounds, no prices."""
        self._release(at)
        self._open(at, INF)

    def close(self, at: Ints) -> None:
        """Nothing leaves this way."""
        self._release(at)
        self._open(at, 0)

    def _release(self, at: Ints) -> None:
        nothing = np.zeros(len(at), np.int64)
        self._send(self.network.set_lower, self._base, self._lower, at, nothing)
        self._send(self.network.set_cost, self._base, self._price, at, nothing)
        self._send(self.network.set_capacity, self._ease, self._room, at, nothing)
        self.ladder(at, np.zeros((len(at), RUNGS - 1), np.int64), self._step)

    def _open(self, at: Ints, capacity: int) -> None:
        self._send(self.network.set_capacity, self._base, self._capacity, at, np.full(len(at), capacity, np.int64))

    def _send(self, setter: Callable[[Ints, Ints], None], arcs: Ints, known: Ints, at: Ints, values: Ints) -> None:
        other = values != known[at]
        if other.any():
            known[at[other]] = values[other]
            self.edits.count += int(other.sum())
            setter(arcs[at[other]], values[other])
