"""Arcs by which waiting tasks leave the node of a job or a user without being scheduled.

::

              base: lower bound L, unlimited, price P
    node  ------------------------------------------------>  head
              slack: capacity H - L, free
              rungs: one per step of a ladder, each more expensive than the one before it

All arcs from one node to one head are a *bundle*.  The heads are Firmament's unscheduled aggregators, here the nodes of
users and the sink.  Numbers are mirrored, and only changed numbers go to the network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from flowsched.builder import _shares
from flowsched.builder.batch import KeptArcs, NetworkBatch
from flowsched.cluster.columns import Columns, IdPool, column, view
from flowsched.cluster.model import UNLIMITED
from flowsched.network.results import INF
from flowsched.policy.fairness import RUNGS

__all__ = ["UnscheduledArcs"]

Ints = NDArray[np.int64]


class UnscheduledArcs(Columns, typed=_shares.UnscheduledArcsColumns):
    """Bundles of arcs by which waiting tasks leave nodes.

    Parameters
    ----------
    batch : NetworkBatch
    """

    tail: Ints = column("bundles")
    """Node that the bundle leaves."""
    head: Ints = column("bundles")
    """Node that it enters."""
    base: Ints = column("bundles", fill=-1)
    """Base arc, -1 at an unused index; there the arrays below have their initial values."""
    slack: Ints = column("bundles", fill=-1)
    """Slack arc, -1 until one is needed."""
    _capacity: Ints = column("bundles")
    """Capacity of the base arc: 0 if the bundle is closed, else `INF`."""
    _price: Ints = column("bundles")
    """Cost of the base arc."""
    _lower: Ints = column("bundles")
    """Lower bound of the base arc."""
    _room: Ints = column("bundles")
    """Capacity of the slack arc, 0 without one."""
    _rung: Ints = column("bundles", "rungs", fill=-1)
    """Rungs, the most expensive first, -1 until one is needed; no columns before the first ladder."""
    _width: Ints = column("bundles", "rungs")
    """Capacities of the rungs, 0 without one."""
    _tail_view: memoryview = view("tail")
    _head_view: memoryview = view("head")
    _base_view: memoryview = view("base")
    _capacity_view: memoryview = view("_capacity")
    _slack_view: memoryview = view("slack")
    _price_view: memoryview = view("_price")
    _lower_view: memoryview = view("_lower")
    _room_view: memoryview = view("_room")

    def __init__(self, batch: NetworkBatch) -> None:
        super().__init__(rungs=0)
        self.batch = batch
        self._indices = IdPool()
        self._step = 0

    def add(self, tails: Sequence[int], heads: Sequence[int], arcs: Sequence[int] | None = None) -> list[int]:
        """Add bundles without bounds: closed ones, or (with their base arcs) open ones; return their indices."""
        new = self._indices.take_some(len(tails))
        if self._indices.count > len(self.base):
            self.grow(bundles=self._indices.count)
        if arcs is None:
            capacity, arcs = 0, self.batch.new_arcs(list(tails), list(heads), 0, 0)
        else:
            capacity = INF
        for index, tail, head, arc in zip(new, tails, heads, arcs, strict=True):
            self._tail_view[index], self._head_view[index], self._base_view[index] = tail, head, arc
            self._capacity_view[index] = capacity
        return new

    def forget(self, index: int) -> None:
        """Forget a bundle, whose arcs the removal of one of its nodes removes."""
        self._base_view[index] = self._slack_view[index] = -1
        self._capacity_view[index] = self._price_view[index] = self._lower_view[index] = self._room_view[index] = 0
        if self._rung.shape[1]:
            self._rung[index], self._width[index] = -1, 0
        self._indices.give(index)

    # -- bounds -------------------------------------------------------------------------------------------------

    def bound_running(
        self, at: Ints, tasks: Ints, waiting: Ints, guaranteed: Ints, least: Ints, most: Ints, price: int
    ) -> None:
        """Bound running tasks behind bundles: at most `most`, below `least` at a price, below `guaranteed` at twice the price.

        Parameters
        ----------
        at : ndarray of int64, shape (n,)
            Indices of bundles.
        tasks, waiting : ndarray of int64, shape (n,)
            Tasks behind each bundle, and the waiting ones among them.
        guaranteed, least, most : ndarray of int64, shape (n,)
        price : int
            Cost of one task.
        """
        opened, priced, lowered, (roomy, room), missing = _shares.bound(
            self, at, tasks, waiting, guaranteed, least, most, price, INF
        )
        if opened[0]:
            self.batch.set_capacities(*opened)
        if priced[0]:
            self.batch.set_costs(*priced)
        if lowered[0]:
            self.batch.set_lower_bounds(*(np.array(numbers, np.int64) for numbers in lowered))
        if missing:
            self.slack[missing] = self.batch.add_arcs(self.tail[missing], self.head[missing], 0, 0)
        if roomy:
            self.batch.set_capacities([self._slack_view[bundle] for bundle in roomy], room)
        if guaranteed.any() or self._rung.shape[1]:
            upto = tasks - self._lower[at]
            firm, held = np.minimum(guaranteed, upto), np.minimum(least, upto)
            width = np.zeros((len(at), RUNGS - 1), np.int64)
            width[:, -1] = np.where(firm > 0, held - firm, 0)
            self._ladder(at, width, price)

    def build_ladders(
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
        """Give each bundle rungs by weight: the k-th running task of weight w stands on rung (k - 1) // w.

        The lower a rung, the higher the cost of a task that waits although it could stand there.

        Parameters
        ----------
        at, tasks, waiting, least, most
            See `bound_running`; tasks below `least` stand on the lowest rung.
        weight : ndarray of float64, shape (n,)
        units : int
            Number of tasks of all claimants together that may run.
        step : int
            Difference of cost between two rungs.

        Returns
        -------
        ndarray of int64, shape (n, RUNGS - 1)
            Running tasks at which each rung but the first begins.
        """
        lower = np.clip(tasks - np.maximum(most, tasks - waiting), 0, waiting)
        pace = np.where(weight > 0, weight / weight.min(initial=np.inf, where=weight > 0), 0.0)
        # If all climbed at once, they would end two thirds up; powers of two, so that the rungs seldom move.
        height = 1.5 * units / max(float(pace.sum()), 1.0) / RUNGS
        pace = pace * 2.0 ** max(0, math.ceil(math.log2(max(height, 1e-9))))
        edges: Ints = np.ceil(np.minimum(np.outer(pace, np.arange(RUNGS + 1)), UNLIMITED) - 1e-9).astype(np.int64)
        if least.any():  # the lowest rung has exactly the guaranteed tasks
            edges[:, 1:] = np.maximum(edges[:, :-1], least[:, None])
        upto = np.minimum(edges, (tasks - lower)[:, None])
        self._bound(at, lower, tasks - lower - upto[:, -1], RUNGS * step)
        self._ladder(at, np.diff(upto, axis=1)[:, 1:], step)
        rungs: Ints = edges[:, 1:-1].copy()
        return rungs

    def free(self, at: Ints) -> None:
        """Open bundles, without bounds and prices."""
        self._release(at)
        self.open(at, INF)

    def close(self, at: Ints) -> None:
        """Close bundles."""
        self._release(at)
        self.open(at, 0)

    def _bound(self, at: Ints, lower: Ints, room: Ints, price: int | Ints) -> None:
        """Set bounds: at least `lower` tasks leave, `room` more leave free, and each further one at `price`."""
        self.open(at, INF)
        self._send(self.batch.set_costs, self.base, self._price, at, np.broadcast_to(np.int64(price), len(at)))
        self._send(self.batch.set_lower_bounds, self.base, self._lower, at, lower)
        missing = at[(self.slack[at] < 0) & (room > 0)]
        if len(missing):
            self.slack[missing] = self.batch.add_arcs(self.tail[missing], self.head[missing], 0, 0)
        self._send(self.batch.set_capacities, self.slack, self._room, at, room)

    def _ladder(self, at: Ints, width: Ints, step: int) -> None:
        """Set the capacities of rungs, shape (n, RUNGS - 1); the first one costs most, the last one `step`."""
        if not width.any() and not self._rung.shape[1]:
            return
        self.grow(rungs=RUNGS - 1)
        cost = np.arange(RUNGS - 1, 0, -1) * step
        if step != self._step:
            self._step = step
            o, r = np.nonzero(self._rung >= 0)
            if len(o):
                self.batch.set_costs(self._rung[o, r], cost[r])
        o, r = np.nonzero((self._rung[at] < 0) & (width > 0))
        if len(o):
            self._rung[at[o], r] = self.batch.add_arcs(self.tail[at[o]], self.head[at[o]], 0, cost[r])
        o, r = np.nonzero(width != self._width[at])
        if len(o):
            self._width[at[o], r] = width[o, r]
            self.batch.set_capacities(self._rung[at[o], r], width[o, r])

    def _release(self, at: Ints) -> None:
        nothing = np.zeros(len(at), np.int64)
        self._send(self.batch.set_lower_bounds, self.base, self._lower, at, nothing)
        self._send(self.batch.set_costs, self.base, self._price, at, nothing)
        self._send(self.batch.set_capacities, self.slack, self._room, at, nothing)
        self._ladder(at, np.zeros((len(at), RUNGS - 1), np.int64), self._step)

    def open(self, at: Ints, capacity: int) -> None:
        """Set the capacity of the base arcs of bundles without bounds."""
        self._send(self.batch.set_capacities, self.base, self._capacity, at, np.full(len(at), capacity, np.int64))

    def _send(self, setter: Callable[[Ints, Ints], None], arcs: Ints, known: Ints, at: Ints, values: Ints) -> None:
        other = values != known[at]
        if other.any():
            known[at[other]] = values[other]
            setter(arcs[at[other]], values[other])

    # -- for tests ----------------------------------------------------------------------------------------------

    def kept_arcs(self) -> Iterator[KeptArcs]:
        """Yield the arcs kept by this part, with their ends."""
        for arcs in (self.base, self.slack, *self._rung.T):
            at = np.flatnonzero(arcs >= 0)
            yield arcs[at], self.tail[at], self.head[at]
