"""The problem that an incremental DIMACS stream describes, on a network that is kept alive."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

import numpy as np

from flowsched.network.flow_network import FlowNetwork

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from numpy.typing import NDArray

__all__ = ["SINK", "TASK", "UNIT", "LiveProblem"]

TASK: Final = 1
UNIT: Final = 2
SINK: Final = 3

_AT_ONCE: Final = 2**16
_BLOCK: Final = 16


class Node:
    """A node of the stream: its number in the network, its data, its arcs by the node at the other end."""

    __slots__ = ("index", "into", "out", "supply", "type")

    def __init__(self, index: int, supply: int = 0, type: int = 0) -> None:
        self.index = index
        self.supply = supply
        self.type = type
        self.out: dict[int, list[int]] = {}  # head -> arcs of the network, oldest first
        self.into: dict[int, None] = {}  # tails of arcs that end here


class LiveProblem:
    """The problem as the records left it: the stream's numbers of nodes on a `FlowNetwork` of its own.

    Additions and changes of arcs wait until a record needs them done, so that they reach the network in batches.

    The nodes of the problem line beyond the first `_AT_ONCE` are *latent*: they exist, and are added to the network, a block
    at a time, when a record names one.
    """

    def __init__(self) -> None:
        self.network = FlowNetwork()
        self.nodes: dict[int, Node] = {}
        self.ends: dict[int, tuple[int, int]] = {}  # arc -> tail, head
        self.carrying: dict[int, tuple[int, int, int]] = {}  # arc with flow -> tail, head, flow
        self.highest = 0  # number that a node has or had
        self.typed = False  # True once a node came with a type
        self.sink: int | None = None
        self._balanced = False  # True while no record of this round sets the sink's supply
        self._drift = 0  # what this round's supplies, the sink's apart, have changed in sum
        self._free: list[int] = []  # heap of removed numbers below _next; some may be taken again
        self._freed: set[int] = set()  # the same: a number that comes and goes is there once
        self._next = 1  # all numbers below are taken, or were
        self._latent = range(0)  # numbers of the problem line; those in no dictionary, and not in _freed, are latent
        self._added: list[tuple[int, int, int, int, int]] = []
        self._changed: dict[int, tuple[int, int, int]] = {}  # arc -> lower, capacity, cost
        self._supplies: dict[int, int] = {}  # node of the network -> supply

    # -- records ---------------------------------------------------------------------------------------------

    def start(self, nodes: int) -> None:
        """Create the nodes 1 to ``nodes``."""
        self._add_nodes(range(1, min(nodes, _AT_ONCE) + 1))
        self._latent = range(_AT_ONCE + 1, nodes + 1)
        self.highest = nodes
        self._next = nodes + 1

    def known(self, number: int) -> bool:
        """Return True if there is a node of this number; add it if it is latent."""
        if number in self.nodes:
            return True
        if number not in self._latent or number in self._freed:
            return False
        first = number - (number - self._latent.start) % _BLOCK
        block = range(first, min(first + _BLOCK, self._latent.stop))
        self._add_nodes([n for n in block if n not in self.nodes and n not in self._freed])
        return True

    def _add_nodes(self, numbers: Collection[int]) -> None:
        indices = self.network.add_nodes(len(numbers)).tolist()
        self.nodes.update((number, Node(index)) for number, index in zip(numbers, indices, strict=True))

    def new_number(self) -> int:
        """Return the lowest number that no node has."""
        while self._free and self._free[0] in self.nodes:
            self._freed.discard(heapq.heappop(self._free))
        while self._next in self.nodes:
            self._next += 1
        return self._free[0] if self._free else self._next

    def set_node(self, number: int, supply: int, type: int | None) -> None:
        """Set a node's supply and type, or add it."""
        node = self.nodes[number] if self.known(number) else None
        before = 0 if node is None else node.supply
        if node is None:
            node = self.nodes[number] = Node(int(self.network.add_nodes([supply])[0]), supply)
            self.highest = max(self.highest, number)
        else:
            node.supply = self._supplies[node.index] = supply
        if type is not None:
            self.typed = True
            node.type = type
            if type == SINK:
                self.sink = number
        if number == self.sink:
            self._balanced = False
        else:
            self._drift += supply - before

    def remove_node(self, number: int) -> None:
        """Remove a node with its arcs."""
        self.flush()
        node = self.nodes.pop(number)
        for head, arcs in node.out.items():
            self._forget(arcs)
            if head != number:
                del self.nodes[head].into[number]
        for tail in node.into:
            if tail != number:
                self._forget(self.nodes[tail].out.pop(number))
        self.network.remove_nodes([node.index])
        if number < self._next and number not in self._freed:
            self._freed.add(number)
            heapq.heappush(self._free, number)
        if number == self.sink:
            self.sink, self._balanced = None, False
        else:
            self._drift -= node.supply

    def add_arc(self, tail: int, head: int, lower: int, capacity: int, cost: int) -> None:
        """Add an arc; one of capacity 0 is none."""
        if capacity:
            self._added.append((tail, head, lower, capacity, cost))

    def arcs_between(self, tail: int, head: int) -> list[int]:
        """Return the arcs from tail to head, oldest first."""
        if self._added:
            self._add_arcs()
        return self.nodes[tail].out.get(head, [])

    def cost_of(self, arc: int) -> int:
        """Return an arc's cost, as the records so far have it."""
        waiting = self._changed.get(arc)
        return int(self.network.cost([arc])[0]) if waiting is None else waiting[2]

    def change_arc(self, arc: int, lower: int, capacity: int, cost: int) -> None:
        """Change an arc; one of capacity 0 is removed."""
        if capacity:
            self._changed[arc] = lower, capacity, cost
            return
        tail, head = self.ends[arc]
        self._changed.pop(arc, None)
        self.network.remove_arcs([arc])
        arcs = self.nodes[tail].out[head]
        arcs.remove(arc)
        self._forget([arc])
        if not arcs:
            del self.nodes[tail].out[head]
            del self.nodes[head].into[tail]

    # -- rounds ----------------------------------------------------------------------------------------------

    def begin_round(self) -> None:
        """Look for the sink, which balances the changes of the round's other supplies."""
        if self.sink is None:
            takers = [number for number, node in self.nodes.items() if node.supply < 0]
            self.sink = takers[0] if len(takers) == 1 else None
        self._balanced = True
        self._drift = 0

    def balance(self) -> None:
        """Balance the changes of the round's other supplies at the sink, unless the round set its supply."""
        if self._balanced and self._drift and self.sink is not None:
            sink = self.nodes[self.sink]
            sink.supply = self._supplies[sink.index] = sink.supply - self._drift

    def flush(self) -> None:
        """Apply all waiting additions and changes to the network."""
        if self._added:
            self._add_arcs()
        if self._changed:
            arcs = np.array(list(self._changed))
            lower, capacity, cost = np.array(list(self._changed.values()), dtype=np.int64).T.copy()
            self._changed.clear()
            if self.network.lower(arcs).any():  # else a new capacity might lie below an old lower bound
                self.network.set_lower(arcs, np.zeros_like(lower))
            self.network.set_capacity(arcs, capacity)
            self.network.set_cost(arcs, cost)
            if lower.any():
                self.network.set_lower(arcs, lower)
        if self._supplies:
            self.network.set_supply(list(self._supplies), list(self._supplies.values()))
            self._supplies.clear()

    def take_flow(self, changed: NDArray[np.int64]) -> None:
        """Read the flow of the arcs where the last solve changed it."""
        for arc, flow in zip(changed.tolist(), self.network.flow(changed).tolist(), strict=True):
            if flow:
                self.carrying[arc] = (*self.ends[arc], flow)
            else:
                self.carrying.pop(arc, None)

    def numbers(self, which: NDArray[np.bool_]) -> list[int]:
        """Return the stream's numbers of the nodes marked in `which`, a bool by the network's ids."""
        return [number for number, node in self.nodes.items() if which[node.index]]

    def assignments(self) -> Iterator[tuple[int, int]]:
        """Yield each task that flows to a processing unit, with that unit."""
        out: dict[int, list[list[int]]] = {}
        for tail, head, flow in self.carrying.values():
            out.setdefault(tail, []).append([head, flow])
        for task, node in self.nodes.items():
            if node.type != TASK:
                continue
            while out.get(task):
                at = task
                while (at == task or self.nodes[at].type != UNIT) and (steps := out.get(at)):
                    step = steps[-1]  # each step uses up a unit of flow, so that circling ends
                    step[1] -= 1
                    if not step[1]:
                        steps.pop()
                    at = step[0]
                if self.nodes[at].type == UNIT:
                    yield task, at

    def _add_arcs(self) -> None:
        tails, heads, lower, capacity, cost = (list(column) for column in zip(*self._added, strict=True))
        self._added.clear()
        starts = [self.nodes[tail].index for tail in tails]
        ends = [self.nodes[head].index for head in heads]
        ids = self.network.add_arcs(starts, ends, capacity, cost, lower)
        for arc, tail, head in zip(ids.tolist(), tails, heads, strict=True):
            self.ends[arc] = tail, head
            self.nodes[tail].out.setdefault(head, []).append(arc)
            self.nodes[head].into[tail] = None

    def _forget(self, arcs: Iterable[int]) -> None:
        for arc in arcs:
            del self.ends[arc]
            self.carrying.pop(arc, None)
