"""The incremental DIMACS stream: a problem, then rounds of changes to it, each answered with an optimum.

It is the protocol in which the Firmament scheduler talks to the Flowlessly solver.  One record a line; a round ends
with ``c EOI``, the stream with ``c EOS`` or the end of the input.  The first round is a DIMACS problem::

    p   min NODES ARCS                                  nodes 1 to NODES exist
    n   NODE SUPPLY [TYPE]                              sets a node's supply; a node that does not exist is added
    a   TAIL HEAD LOWER CAPACITY COST [TYPE]            adds an arc

and every later round may hold these two and ::

    x   TAIL HEAD LOWER CAPACITY COST [TYPE [OLD_COST]] changes an arc, or adds it; OLD_COST picks one of parallel arcs
    d   SUPPLY [POTENTIAL] ARCS [TYPE]                  adds a node under the lowest free number; as many ``a`` records
                                                        follow, in which 0 is the new node
    r   NODE                                            removes a node with its arcs

A capacity of 0 stands for no arc.  A removed node that a record names comes back without supply and arcs.  Types of
arcs and potentials are hints that are not needed here.  Types of nodes (0 other, 1 task, 2 processing unit, 3 sink,
4 machine, 5 part of a machine) are needed for assignments only.

The *sink* is the node of type 3, or else the only one of negative supply.  A scheduler does not send its supply again
for every task that comes or goes: the sum of the other changes of supply in a round is subtracted from it, except in the
first round and in rounds that set the supply of the sink themselves.

Each round is answered with ::

    f   TAIL HEAD FLOW                                  for each arc with flow
    s   COST
    c   GAP COST                                        only where the time limit passed: how far above the optimum
                                                        the cost is at most
    c   ALGORITHM TIME MICROSECONDS
    c   EOI

or, where assignments are requested, with ``m TASK UNIT`` for each placed task instead of ``f`` and ``s``.

Streams are not trusted: memory grows with the records, not with the number of nodes that the problem line declares (beyond
2**16, a node takes memory when a record names it), and a line of a file has at most 2**20 bytes.

References
----------
.. [1] I. Gog, M. Schwarzkopf, A. Gleave, R. N. M. Watson, S. Hand, "Firmament: fast, centralized cluster scheduling
       at scale", OSDI 2016.
"""

from __future__ import annotations

import heapq
import time
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from flowsched.exceptions import CostRangeError, InfeasibleError, TimeLimitError, UnboundedError
from flowsched.network.dimacs import MOST_NODES, check_bounds, malformed, problem_line, quoted_token, read_numbers
from flowsched.network.flow_network import FlowNetwork

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from flowsched.network.flow_network import FlowNetwork
    from flowsched.network.results import Algorithm, FlowSolution

_TYPES: Final = 6
_LEAST: Final = -(2**63)
_MOST: Final = 2**63 - 1
_LONGEST: Final = 2**20
"""Bytes of a line."""

_ARC: Final = ("tail", "head", "lower bound", "capacity", "cost", "type")
_FIELDS: Final[dict[bytes, tuple[int, tuple[str, ...], str]]] = {
    b"n": (2, ("node", "supply", "type"), "n NODE SUPPLY [TYPE]"),
    b"a": (5, _ARC, "a TAIL HEAD LOWER CAPACITY COST [TYPE]"),
    b"x": (5, (*_ARC, "old cost"), "x TAIL HEAD LOWER CAPACITY COST [TYPE [OLD_COST]]"),
    b"d": (2, ("supply", "potential", "number of arcs", "type"), "d SUPPLY [POTENTIAL] ARCS [TYPE]"),
    b"r": (1, ("node",), "r NODE"),
}  # the fewest fields, the fields' names, the form of the record


class Writer(Protocol):
    """A text stream for the answers."""

    def write(self, text: str, /) -> object:
        """Write some text."""

    def flush(self) -> object:
        """Send the text written so far."""


class IncrementalSession:
    """Answer an incremental DIMACS stream.

    Parameters
    ----------
    reader : iterable of bytes or str
        The lines of the stream, such as ``sys.stdin.buffer``.
    writer : text stream
        Destination of the answers; flushed after each.
    assignments : bool, optional
        Answer with ``m TASK UNIT`` records instead of the flow and its cost.
    algorithm : str, optional
        As in `FlowNetwork.solve`.
    time_limit : float, optional
        Seconds for each round.
    certified : bool, optional
        Prove each optimum before it is answered, and state that in a comment.

    Attributes
    ----------
    rounds : int
        Number of rounds answered.
    network : FlowNetwork
        The problem after the last of them.

    Examples
    --------
    >>> import io, sys
    >>> stream = ["p min 2 1", "n 1 4", "n 2 -4", "a 1 2 0 5 3", "c EOI", "x 1 2 0 5 7", "c EOI"]
    >>> answers = io.StringIO()
    >>> IncrementalSession(stream, answers).run()
    2
    >>> [line for line in answers.getvalue().splitlines() if line[0] in "fs"]
    ['f 1 2 4', 's 12', 'f 1 2 4', 's 28']
    """

    def __init__(
        self,
        reader: Iterable[bytes] | Iterable[str],
        writer: Writer,
        *,
        assignments: bool = False,
        algorithm: Algorithm = "auto",
        time_limit: float | None = None,
        certified: bool = False,
    ) -> None:
        self.rounds = 0
        self._reader = reader
        self._writer = writer
        self._assignments = assignments
        self._algorithm = algorithm
        self._time_limit = time_limit
        self._certified = certified
        self._problem = LiveProblem()
        self._line = 0
        self._records = 0  # of this round
        self._declared: int | None = None  # arcs of the problem line, until they were counted
        self._arcs = 0
        self._started = False
        self._newcomer = 0  # the node that a d record added, while its arcs are due
        self._due = 0

    @property
    def network(self) -> FlowNetwork:
        """The problem as it is now."""
        return self._problem.network

    def run(self) -> int:
        """Answer every round until the stream ends.

        Returns
        -------
        int
            Number of rounds answered.

        Raises
        ------
        DimacsError
            A malformed record; the message and the attribute ``line`` give its line.  The session is over: the meaning of
            a broken stream cannot be guessed.
        InfeasibleError
            No flow meets the supplies of the round; ``cut`` is by the stream's numbers of nodes, from 1 at index 0.
        UnboundedError, CostRangeError, TimeLimitError
            As in `FlowNetwork.solve`; the message names the round.
        """
        for raw in self._lines():
            self._line += 1
            fields = (raw.encode() if isinstance(raw, str) else raw).split()
            if not fields:
                continue
            if fields[0].startswith(b"c"):
                if fields == [b"c", b"EOI"]:
                    self._end_round()
                elif fields == [b"c", b"EOS"]:
                    return self.rounds
                continue
            self._records += 1
            try:
                self._take(fields)
            except CostRangeError as error:
                raise CostRangeError(f"line {self._line}: {error}") from None
        if self._records:  # the last round may be closed by the end of the input
            self._end_round()
        return self.rounds

    def _lines(self) -> Iterator[bytes] | Iterator[str]:
        """Yield the lines as they come; of a file at most the longest line is read at once."""
        read = getattr(self._reader, "readline", None)
        if read is None:
            yield from self._reader
            return
        while line := read(_LONGEST + 1):
            if len(line) > _LONGEST:
                raise malformed(self._line + 1, f"the line is longer than {_LONGEST} bytes")
            yield line

    def _take(self, fields: list[bytes]) -> None:
        kind = fields[0]
        if kind == b"p":
            if self._started:
                raise malformed(self._line, "a second problem line")
            nodes, self._declared = problem_line(self._line, fields)
            self._problem.start(nodes)
            self._started = True
            return
        if kind not in _FIELDS:
            raise malformed(self._line, f"unknown record {quoted_token(kind)}, expected c, p, n, a, x, d or r")
        if not self._started:
            raise malformed(self._line, f"{quoted_token(kind)} record before the problem line")
        if self._due and kind != b"a":
            raise malformed(
                self._line, f"{quoted_token(kind)} record where {self._due} more arcs of a new node are due"
            )
        values = self._values(fields)
        if kind == b"n":
            self._take_node(values)
        elif kind == b"a":
            self._take_arc(values)
        elif kind == b"x":
            self._take_change(values)
        elif kind == b"d":
            self._take_newcomer(values)
        elif self._problem.known(values[0]):
            self._problem.remove_node(values[0])
        else:
            raise malformed(self._line, f"node {values[0]} does not exist")

    def _values(self, fields: list[bytes]) -> Sequence[int]:
        """Return the numbers of a record."""
        fewest, names, form = _FIELDS[fields[0]]
        count = len(fields) - 1
        if not fewest <= count <= len(names):
            raise malformed(self._line, f"expected {form}, got {count} fields after {quoted_token(fields[0])}")
        try:
            values = [int(field) for field in fields[1:]]
        except ValueError:
            values = []
        if not values or min(values) < _LEAST or max(values) > _MOST or b"_" in b"".join(fields):
            return read_numbers(self._line, fields, names[:count])  # which says what is wrong
        return values

    def _take_node(self, values: Sequence[int]) -> None:
        number, supply, *kind = values
        if not 1 <= number <= MOST_NODES:
            raise malformed(self._line, f"node {number} is not one of the numbers 1 to {MOST_NODES}")
        self._problem.set_node(number, supply, self._type(kind))

    def _take_newcomer(self, values: Sequence[int]) -> None:
        supply, *rest = values
        kind = self._type(rest[2:])
        self._due = rest[0] if len(rest) == 1 else rest[1]
        if self._due < 0:
            raise malformed(self._line, f"a negative number of arcs: {self._due}")
        self._newcomer = self._problem.new_number()
        self._problem.set_node(self._newcomer, supply, kind)

    def _take_arc(self, values: Sequence[int]) -> None:
        tail, head, lower, capacity, cost, *_ = values
        if self._due:
            if (tail == 0) == (head == 0):
                raise malformed(self._line, f"arc {tail} {head} of a new node: one end, and only one, must be 0")
            self._due -= 1
            tail, head = tail or self._newcomer, head or self._newcomer
        else:
            self._arcs += 1
        if self._declared is not None and self._arcs > self._declared:
            raise malformed(self._line, f"more arcs than the {self._declared} of the problem line")
        check_bounds(self._line, lower, capacity)
        self._problem.add_arc(self._node("tail", tail), self._node("head", head), lower, capacity, cost)

    def _take_change(self, values: Sequence[int]) -> None:
        tail, head, lower, capacity, cost, *rest = values
        check_bounds(self._line, lower, capacity)
        arcs = self._problem.arcs_between(self._node("tail", tail), self._node("head", head))
        if len(arcs) > 1:
            if len(rest) < 2:
                raise malformed(self._line, f"{len(arcs)} parallel arcs {tail} {head}: OLD_COST must tell which")
            arcs = [arc for arc in arcs if self._problem.cost_of(arc) == rest[1]]
            if not arcs:
                raise malformed(self._line, f"none of the parallel arcs {tail} {head} costs {rest[1]}")
        if arcs:
            self._problem.change_arc(arcs[0], lower, capacity, cost)
        else:
            self._problem.add_arc(tail, head, lower, capacity, cost)

    def _node(self, name: str, number: int) -> int:
        """Return the number of a node; one that was removed comes back."""
        if not self._problem.known(number):
            if not 1 <= number <= self._problem.highest:
                raise malformed(self._line, f"{name} {number} is not one of the nodes 1 to {self._problem.highest}")
            self._problem.set_node(number, 0, None)
        return number

    def _type(self, given: Sequence[int]) -> int | None:
        if not given:
            return None
        if not 0 <= given[0] < _TYPES:
            raise malformed(self._line, f"type {given[0]} of a node is not one of 0 to {_TYPES - 1}")
        return given[0]

    def _end_round(self) -> None:
        """Solve and answer."""
        self._check_complete()
        self.rounds += 1
        try:
            self._problem.balance()
            self._problem.flush()
            began = time.perf_counter()
            solution = self.network.solve(algorithm=self._algorithm, time_limit=self._time_limit)
            seconds = time.perf_counter() - began
        except InfeasibleError as error:
            raise self._infeasible(error) from None
        except UnboundedError as error:
            tails = " -> ".join(str(self._problem.ends[arc][0]) for arc in error.cycle.tolist())
            what = f"round {self.rounds}: the cycle {tails} of unlimited capacity has negative cost"
            raise UnboundedError(what, error.cycle) from None
        except (CostRangeError, TimeLimitError) as error:
            raise type(error)(f"round {self.rounds}: {error}") from None
        self._problem.take_flow(solution.changed)
        self._answer(solution, seconds)
        self._problem.begin_round()
        self._records = 0

    def _check_complete(self) -> None:
        if not self._started:
            raise malformed(self._line, "no problem line (p min NODES ARCS)")
        if self._due:
            raise malformed(self._line, f"the round ends where {self._due} more arcs of a new node are due")
        if self._declared is not None and self._arcs < self._declared:
            raise malformed(self._line, f"the round ends after {self._arcs} of {self._declared} arcs")
        if self._assignments and not self._problem.typed:
            raise malformed(self._line, "assignments need the nodes' types (n NODE SUPPLY TYPE)")
        self._declared = None

    def _answer(self, solution: FlowSolution, seconds: float) -> None:
        if self._assignments:
            lines = [f"m {task} {unit}" for task, unit in self._problem.assignments()]
        else:
            lines = [f"f {tail} {head} {flow}" for tail, head, flow in self._problem.carrying.values()]
            lines.append(f"s {solution.cost}")
        if solution.stats["gap"]:
            lines.append(f"c GAP {solution.stats['gap']}")
        elif self._certified:
            self.network.certify()
            lines.append("c certified: bounds, conservation and reduced costs hold")
        lines.append(f"c ALGORITHM TIME {round(seconds * 1e6)}")
        lines.append("c EOI\n")
        self._writer.write("\n".join(lines))
        self._writer.flush()

    def _infeasible(self, error: InfeasibleError) -> InfeasibleError:
        """Return the error in the stream's numbers."""
        total = sum(node.supply for node in self._problem.nodes.values())
        numbers = self._problem.numbers(error.cut)
        cut = np.zeros(max(self._problem.nodes, default=0), np.bool_)
        cut[np.array(numbers, dtype=np.int64) - 1] = True
        if total:
            what = f"the supplies sum to {total}, not to 0"
        else:
            some = " ".join(map(str, numbers[:8])) + (f" ... of {len(numbers)}" if len(numbers) > 8 else "")
            what = f"no flow meets the supplies: nodes {some} must send {error.shortfall} more than their arcs carry"
        return InfeasibleError(f"round {self.rounds}: {what}", cut, error.shortfall, error.arcs)


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

    Additions and changes of arcs wait until a record depends on them, so that they reach the network in batches.

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
        self._drift = 0  # sum of this round's changes of supplies, without the sink's
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
                    step = steps[-1]  # each step uses up a unit of flow, so that a cycle ends
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
