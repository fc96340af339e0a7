"""Partial flows: a priced slack takes the supply that cannot be shipped, so the maximum flow is shipped at the least cost.

The transformation.  One node S is added; an arc of capacity b leads from each node of supply b > 0 to S and costs P for each unit; an arc of capacity -b and cost 0
leads from S to each node of supply b < 0; the supply of S makes the sum 0.  With n nodes and costs of at most C in magnitude, P = n C + 1.

Why it is exact.  Let an optimum keep a unit of supply at s, and leave a unit of demand at t unmet, although more can be shipped.  Then some such s reaches some such t by a simple path
with room, whose cost is at most (n - 1) C < P.  A unit along that path, and one less from s over S to t, would be cheaper: a contradiction.  So as much as possible
is shipped.  All flows that ship the most pay the same for slack, and the optimum is the cheapest of them.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partialmethod
from time import perf_counter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import flowsched._cs as _cs
from flowsched._guard import Exclusive, interruptible
from flowsched.exceptions import CostRangeError, FlowschedError, InputError
from flowsched.network.results import Int64Array

_MOST: Final = 2**59
_NONE: Final = np.zeros(0, np.int64)


def price_of(nodes: int, dearest: int) -> int:
    """Return the cost of a unit that is not shipped, by the number of nodes and the largest |cost| of a network.

    Raise CostRangeError if it leaves the range of exact arithmetic.
    """
    price = nodes * dearest + 1
    if (nodes + 2) * price >= _MOST:
        raise CostRangeError(
            f"partial: a unit not shipped would have to cost {price}, which is too large for exact arithmetic on {nodes} nodes; "
            "nodes * nodes * |cost| must stay below 2**59"
        )
    return price


def slack_arcs(nodes: Int64Array, supply: Int64Array, slack: int) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Return tail, head and capacity of the slack's arcs: first those of nodes that send, then those of nodes that take."""
    gives, takes = nodes[supply > 0], nodes[supply < 0]
    tail = np.concatenate([gives, np.full(len(takes), slack)])
    head = np.concatenate([np.full(len(gives), slack), takes])
    return tail, head, np.concatenate([supply[supply > 0], -supply[supply < 0]])


class Slack:
    """The slack within a kept network: hidden from the caller, and brought up to date with the supplies that changed.

    Every use, except the solve itself, is a section that signals and other threads cannot enter.  ``whole`` is False while the slack is not in the network, or may not
    fit it because a call ended in the middle.  Then it is removed, and made again for the next partial solve.
    """

    __slots__ = (
        "_arcs",
        "_core",
        "_dearest",
        "_guard",
        "_known",
        "_others",
        "_owner",
        "_price",
        "_stale",
        "_total",
        "_unshipped",
        "_whole",
        "node",
    )

    def __init__(self, core: _cs.Network) -> None:
        self._core = core
        self._guard = Exclusive("this network")
        self._clear()

    def _clear(self) -> None:
        self.node = -1
        self._others: Int64Array | None = None  # all nodes but S, while the id of S is unknown
        self._dearest = self._price = 0  # no |cost| of an arc is above the first
        self._total = 0  # sum of the supplies in `_known`
        self._known = _NONE  # by node: the supply that its arcs stand for
        self._arcs = np.full((0, 2), -1)  # by node: its arc to S and its arc from S; -1 where there is none
        self._owner = _NONE  # by arc: the node whose slack it is, or -1
        self._unshipped = _NONE  # by node, in the last solution
        self._stale: set[int] = set()  # nodes whose supply may differ from `_known`
        self._whole = False

    # -- calls of the owner; the changes have the names of the kernel's ------------------------------------------------

    def _apply(self, change: str, *given: Int64Array) -> Any:
        """Make a change of the network by the kernel's method of this name; return its result."""
        with self._guard:
            call = getattr(self._core, change)
            if not self._whole:
                self._remove()
                return call(*given)
            self._refuse_hidden(change, given)
            self._whole = False
            try:
                made = call(*given)
            except CostRangeError:  # maybe because of the price, or of the supply of S
                self._remove()
                return call(*given)
            except FlowschedError:
                self._whole = True
                raise
            # The errors are NumPy's; the change is made, so this must not fail: without it the slack is made again.
            with suppress(MemoryError, ValueError):
                self._note(change, given, made)
                self._whole = True
            return made

    add_nodes = partialmethod(_apply, "add_nodes")
    add_arcs = partialmethod(_apply, "add_arcs")
    set_supply = partialmethod(_apply, "set_supply")
    set_capacity = partialmethod(_apply, "set_capacity")
    set_lower = partialmethod(_apply, "set_lower")
    set_cost = partialmethod(_apply, "set_cost")
    remove_arcs = partialmethod(_apply, "remove_arcs")
    remove_nodes = partialmethod(_apply, "remove_nodes")

    def solve(self, algorithm: int, time_limit: float) -> tuple[int, Int64Array, dict[str, Any], Int64Array]:
        """Ship the most at the least cost; return cost, changed arcs, stats, and the unshipped amounts by node."""
        with self._guard:
            start = perf_counter()
            self._update()
            self._whole = False
            try:
                with interruptible():
                    spent = perf_counter() - start
                    limit = max(time_limit - spent, 0.0) if time_limit >= 0 else time_limit
                    cost, changed, stats = self._core.solve(algorithm, limit)
            except FlowschedError:
                self._whole = True
                raise
            answer = self._read(cost, changed)
            self._whole = True
            stats["seconds"] += spent
            return *answer[:2], stats, answer[2]

    def remove(self) -> None:
        """Take the slack out of the network."""
        with self._guard:
            self._remove()

    def ids(self, *, arcs: bool) -> Int64Array:
        """Return the ids of nodes, or of arcs, that are the caller's."""
        with self._guard:
            if not self._whole:
                self._remove()
            if arcs:
                found = self._core.arc_ids()
                return found[~self._hides(found)]
            found = self._core.node_ids()
            own: Int64Array = found[found != self.node]
            return own

    def without(self, arcs: Int64Array) -> Int64Array:
        """Return those arcs that are the caller's."""
        with self._guard:
            return arcs[~self._hides(arcs)]

    def refuse(self, name: str, ids: Int64Array) -> Int64Array:
        """Return ids of ``nodes`` or ``arcs``; InputError if one of them is not the caller's."""
        with self._guard:
            self._refuse(name, ids)
            return ids

    def hidden(self) -> Int64Array:
        """Return the slack's node, if it is in the network."""
        with self._guard:
            if not self._whole:
                self._remove()
            return np.array([self.node] if self.node >= 0 else [], np.int64)

    def sizes(self) -> tuple[int, int]:
        """Return the numbers of nodes and arcs that are the caller's."""
        with self._guard:
            if not self._whole:
                self._remove()
            nodes, arcs = self._core.sizes()
            return nodes - (self.node >= 0), arcs - int((self._arcs >= 0).sum())

    # -- within a section ----------------------------------------------------------------------------------------

    def _hides(self, arcs: Int64Array) -> NDArray[np.bool_]:
        """Mark the arcs that are the slack's; ids that were never given are not."""
        inside = (arcs >= 0) & (arcs < len(self._owner))
        hidden = inside.copy()
        hidden[inside] = self._owner[arcs[inside]] >= 0
        return hidden

    def _refuse_hidden(self, change: str, given: tuple[Int64Array, ...]) -> None:
        if change == "add_arcs":
            self._refuse("tail", given[0])
            self._refuse("head", given[1])
        elif change != "add_nodes":
            self._refuse("nodes" if change in ("set_supply", "remove_nodes") else "arcs", given[0])

    def _refuse(self, name: str, ids: Int64Array) -> None:
        hidden = self._hides(ids) if name == "arcs" else ids == self.node
        if hidden.any():
            i = int(np.argmax(hidden))
            raise InputError(f"{name}[{i}]: no {'arc' if name == 'arcs' else 'node'} {ids[i]}")

    def _remove(self) -> None:
        self._whole = False
        gone = np.array([self.node] if self.node >= 0 else [], np.int64)
        if self._others is not None:  # the call that added S may have ended before it returned the id
            gone = np.setdiff1d(self._core.node_ids(), self._others)
        if len(gone):
            with suppress(InputError):  # it went in an earlier call, which ended before it could say so
                self._core.remove_nodes(gone)
        self._clear()

    def _update(self) -> None:
        """Make the slack fit the supplies, the number of nodes and the costs."""
        core = self._core
        if not self._whole:
            self._remove()
            nodes = core.node_ids()
            self._dearest = self._largest_cost()
            price_of(len(nodes), self._dearest)
            self._reach(nodes)
            self._stale = set(nodes.tolist())
            self._others = nodes
            self.node = int(core.add_nodes(np.zeros(1, np.int64))[0])
            self._others = None
            self._reach(np.array([self.node]))
        count = core.sizes()[0] - 1
        changed = np.fromiter(self._stale, np.int64, len(self._stale))
        self._whole = False
        if count * self._dearest >= self._price:
            self._dearest = self._largest_cost()  # that of an arc which is still there
            price = price_of(count, self._dearest)
            with suppress(CostRangeError):  # not again soon
                price = price_of(count, 2 * self._dearest + 1)
            gives = self._arcs[:, 0][self._arcs[:, 0] >= 0]
            core.set_cost(gives, np.full(len(gives), price))
            self._price = price
        if len(changed):
            changed.sort()
            self._set(changed, core.supplies(changed))
        core.set_supply(np.array([self.node]), np.array([-self._total]))
        self._stale.clear()
        self._whole = True

    def _largest_cost(self) -> int:
        arcs = self._core.arc_ids()
        return int(np.abs(self._core.arc_data(arcs[~self._hides(arcs)], _cs.COST)).max(initial=0))

    def _reach(self, nodes: Int64Array) -> None:
        """Make the vectors by node long enough for these."""
        missing = int(nodes.max(initial=-1)) + 1 - len(self._known)
        if missing > 0:
            self._known = np.append(self._known, np.zeros(missing, np.int64))
            self._unshipped = np.append(self._unshipped, np.zeros(missing, np.int64))
            self._arcs = np.append(self._arcs, np.full((missing, 2), -1), axis=0)

    def _set(self, nodes: Int64Array, supply: Int64Array) -> None:
        """Give the slack's arcs of these nodes the capacities that follow from their supplies."""
        core = self._core
        for way in range(2):
            room = np.maximum(supply if way == 0 else -supply, 0)
            arcs = self._arcs[nodes, way]
            core.set_capacity(arcs[arcs >= 0], room[arcs >= 0])
            new = (arcs < 0) & (room > 0)
            if new.any():
                ends, hub = nodes[new], np.full(int(new.sum()), self.node)
                cost = np.full(len(ends), self._price if way == 0 else 0)
                tail, head = (ends, hub) if way == 0 else (hub, ends)
                made = core.add_arcs(tail, head, room[new], cost, _NONE)
                self._arcs[ends, way] = made
                missing = int(made.max()) + 1 - len(self._owner)
                if missing > 0:
                    self._owner = np.append(self._owner, np.full(missing + len(self._owner) // 2, -1))
                self._owner[made] = ends
        self._total += int((supply - self._known[nodes]).sum())
        self._known[nodes] = supply

    def _note(self, change: str, given: tuple[Int64Array, ...], made: Any) -> None:
        """Record a change that was made; `_update` sends its consequences."""
        if change in ("set_cost", "add_arcs") and len(given[0]):
            costs = given[1 if change == "set_cost" else 3]
            self._dearest = max(self._dearest, int(costs.max()), -int(costs.min()))
        elif change == "add_nodes":
            self._reach(made)
            self._stale.update(made.tolist())
        elif change == "set_supply":
            self._stale.update(given[0].tolist())
        elif change == "remove_nodes":
            self._forget(given[0])

    def _forget(self, nodes: Int64Array) -> None:
        """Record that nodes were removed, and their arcs with them."""
        arcs = self._arcs[nodes].ravel()
        self._owner[arcs[arcs >= 0]] = -1
        self._arcs[nodes] = -1
        self._total -= int(self._known[nodes].sum())
        self._known[nodes] = self._unshipped[nodes] = 0
        self._stale.difference_update(nodes.tolist())

    def _read(self, cost: int, changed: Int64Array) -> tuple[int, Int64Array, Int64Array]:
        """Return cost and changed arcs of a solution without the slack's part, and the unshipped amounts by node."""
        hidden = self._hides(changed)
        owners = np.unique(self._owner[changed[hidden]])
        if len(owners):
            self._unshipped[owners] = 0
            for way, sign in ((0, 1), (1, -1)):
                arcs = self._arcs[owners, way]
                self._unshipped[owners[arcs >= 0]] += sign * self._core.flows(arcs[arcs >= 0])
        kept = sum(self._unshipped[self._unshipped > 0].tolist())
        count = len(self._unshipped) - (self.node == len(self._unshipped) - 1)
        return cost - self._price * kept, changed[~hidden], self._unshipped[:count].copy()
