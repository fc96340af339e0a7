"""`FlowNetwork`: a min-cost flow network that is kept alive and re-optimised after changes.

Three rules hold for every call here and for `min_cost_flow`.  Arrays given are copied before they are looked at, and the copies are what is checked and used.
A call that raises has changed nothing that can be seen, whatever it raises and wherever: bad input, memory, Ctrl-C.  A network that is in use refuses a
second call at once with ConcurrentUseError, and never lets it wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

import flowsched._cs as _cs
from flowsched.exceptions import ConcurrentUseError, InputError
from flowsched.network.arguments import checked_options, integers, lower_bounds
from flowsched.network.certificate import certify
from flowsched.network.results import FlowResult, FlowSolution, Int64Array
from flowsched.network.state import checked

__all__ = ["FlowNetwork"]


class FlowNetwork:
    """A min-cost flow network that is kept alive, mutated in place and re-optimised from its last optimum.

    Node and arc ids are dense integers from 0 and stay as they are under every mutation; the id of something removed is
    given to the next thing added.  A mutation costs what it touches; `solve` costs what the changes reach, not what exists.
    Every method that takes ids takes arrays of them: batch the calls.  A method that raises, for bad input or anything else, has changed nothing.

    One call at a time: `solve` releases the GIL, and while it (or any other method) is under way, every other use of the network raises
    `ConcurrentUseError` at once: from another thread, a signal handler, a finaliser, a callback.  Threads that share a network hold a lock of their own.

    Examples
    --------
    >>> import flowsched as fs
    >>> net = fs.FlowNetwork()
    >>> a, b, sink = net.add_nodes([1, 1, -2])
    >>> arcs = net.add_arcs([a, a, b, b], [sink, b, sink, sink], [1, 1, 1, 1], [5, 1, 2, 4])
    >>> net.solve().cost
    7
    >>> net.set_cost(arcs[:1], [9])
    >>> solution = net.solve()
    >>> solution.cost, solution.changed
    (7, array([0, 1, 3]))
    """

    __slots__ = ("_core",)

    def __init__(self) -> None:
        self._core = _cs.Network()

    def __repr__(self) -> str:
        try:
            nodes, arcs = self._core.sizes()
        except ConcurrentUseError:
            return "<FlowNetwork: in use>"
        return f"<FlowNetwork: {nodes} nodes, {arcs} arcs>"

    # -- mutations -------------------------------------------------------------------------------------------

    def add_nodes(self, supply: ArrayLike) -> Int64Array:
        """Add nodes.

        Parameters
        ----------
        supply : array of int, shape (k,), or int
            Supply of each (> 0 sends, < 0 receives); a single number k adds k nodes of supply 0.

        Returns
        -------
        ndarray of int64, shape (k,)
            Their ids.

        Raises
        ------
        InputError
            Not integers, or a negative count.
        CostRangeError
            The supplies are too large.
        """
        if isinstance(supply, int | np.integer) and not isinstance(supply, bool):
            if not 0 <= supply < 2**31:
                raise InputError(f"supply: a count of nodes from 0 to 2**31 - 1 or an array expected, got {supply}")
            return self._core.add_nodes(np.zeros(int(supply), np.int64))
        return self._core.add_nodes(integers("supply", supply))

    def add_arcs(
        self, tail: ArrayLike, head: ArrayLike, capacity: ArrayLike, cost: ArrayLike, lower: ArrayLike = 0
    ) -> Int64Array:
        """Add arcs.

        Parameters
        ----------
        tail, head : array of int, shape (k,)
            Node ids; parallel arcs and self-loops are allowed.
        capacity, cost, lower : array of int, shape (k,), or int
            0 <= lower <= capacity; capacity may be `INF`.

        Returns
        -------
        ndarray of int64, shape (k,)
            Their ids.

        Raises
        ------
        InputError
            Wrong shape, unknown or removed node, not integers, bounds out of order; names the argument and the index.
        CostRangeError
            ``(nodes + 1) * |cost|`` reaches 2**59: exact arithmetic could overflow.
        """
        tails = integers("tail", tail)
        k = len(tails)
        lowers = lower_bounds(lower, k)
        heads = integers("head", head, k)
        capacities = integers("capacity", capacity, k)
        costs = integers("cost", cost, k)
        return self._core.add_arcs(tails, heads, capacities, costs, lowers)

    def set_supply(self, nodes: ArrayLike, supply: ArrayLike) -> None:
        """Set the supplies of nodes (arrays of one length, or one supply for all)."""
        ids = integers("nodes", nodes)
        self._core.set_supply(ids, integers("supply", supply, len(ids)))

    def set_capacity(self, arcs: ArrayLike, capacity: ArrayLike) -> None:
        """Set the capacities of arcs; not below their lower bounds."""
        ids = integers("arcs", arcs)
        self._core.set_capacity(ids, integers("capacity", capacity, len(ids)))

    def set_lower(self, arcs: ArrayLike, lower: ArrayLike) -> None:
        """Set the lower bounds of arcs; not above their capacities."""
        ids = integers("arcs", arcs)
        self._core.set_lower(ids, integers("lower", lower, len(ids)))

    def set_cost(self, arcs: ArrayLike, cost: ArrayLike) -> None:
        """Set the costs of arcs."""
        ids = integers("arcs", arcs)
        self._core.set_cost(ids, integers("cost", cost, len(ids)))

    def remove_arcs(self, arcs: ArrayLike) -> None:
        """Remove arcs; their ids become free."""
        self._core.remove_arcs(integers("arcs", arcs))

    def remove_nodes(self, nodes: ArrayLike) -> None:
        """Remove nodes, each with its arcs; the ids become free."""
        self._core.remove_nodes(integers("nodes", nodes))

    # -- solving ---------------------------------------------------------------------------------------------

    def solve(self, *, algorithm: str = "auto", time_limit: float | None = None) -> FlowSolution:
        """Optimise, from the last optimum where there is one.

        Parameters
        ----------
        algorithm : {"auto", "repair", "cost_scaling", "network_simplex"}
            ``repair`` routes the excesses that changes have made, locally, at epsilon = 0; ``cost_scaling`` is the textbook's
            successive approximation, warm-started at the epsilon that the changes have broken; ``network_simplex`` goes on from its
            last basis after changes of costs, capacities and supplies, else it starts from the last flow and potentials.  ``auto`` repairs, and turns
            to the simplex if that takes too long, or would by the recent cost of both.  All find the same optimal cost.
        time_limit : float, optional
            Seconds.  A part of them is left for making the flow so far feasible, which is then returned; ``stats["gap"]`` is an upper bound of what
            its cost exceeds the optimum by.  The next `solve` goes on from there, also after changes of costs, capacities and supplies.

        Returns
        -------
        FlowSolution

        Raises
        ------
        InfeasibleError
            With a cut (bool by node id).  The network is as before: mend it and solve again.
        UnboundedError
            With a cycle (arc ids).
        TimeLimitError
            The time limit passed before a feasible flow was found, or before it was known that the cost has a minimum.  The last
            solution is as before; the next `solve` goes on nevertheless.
        CostRangeError
            Exact arithmetic could overflow; also if the flow of an unlimited arc would have to reach 2**62, which takes other capacities of such sizes.
        """
        kernel, seconds = checked_options(algorithm, time_limit)
        cost, changed, stats = self._core.solve(kernel, seconds)
        return FlowSolution(cost, changed, stats)

    def certify(self) -> None:
        """Prove that the last solution is optimal for the present data.

        Raises
        ------
        AssertionError
            At the first arc or node that contradicts it.
        """
        arcs, nodes = self.arcs(), self.nodes()
        dense = np.zeros(int(nodes[-1]) + 1 if len(nodes) else 0, np.int64)
        dense[nodes] = np.arange(len(nodes))
        result = FlowResult(self.flow(arcs), self._core.cost_of_flow(), self.potential(nodes), {})
        certify(
            dense[self.tail(arcs)], dense[self.head(arcs)], self.capacity(arcs), self.cost(arcs), self.supply(nodes), result,
            lower=self.lower(arcs),
        )  # fmt: skip

    # -- the last solution -----------------------------------------------------------------------------------

    def flow(self, arcs: ArrayLike | None = None) -> Int64Array:
        """Flow of arcs in the last solution, lower bound included; 0 before the first and for arcs added since."""
        return self._core.flow(None if arcs is None else integers("arcs", arcs))

    def potential(self, nodes: ArrayLike | None = None) -> Int64Array:
        """Potentials of nodes in the last solution."""
        return self._core.potential(None if nodes is None else integers("nodes", nodes))

    def reduced_cost(self, arcs: ArrayLike | None = None) -> Int64Array:
        """``cost + potential[tail] - potential[head]`` of arcs, with the present costs and the last solution's potentials."""
        ids = self.arcs() if arcs is None else integers("arcs", arcs)
        return self.cost(ids) + self.potential(self.tail(ids)) - self.potential(self.head(ids))

    # -- the present data ------------------------------------------------------------------------------------

    def nodes(self) -> Int64Array:
        """Ids of all nodes, ascending."""
        return self._core.node_ids()

    def arcs(self) -> Int64Array:
        """Ids of all arcs, ascending."""
        return self._core.arc_ids()

    def supply(self, nodes: ArrayLike | None = None) -> Int64Array:
        """Supplies of nodes (all, in the order of `nodes()`, by default)."""
        return self._core.supply(None if nodes is None else integers("nodes", nodes))

    def tail(self, arcs: ArrayLike | None = None) -> Int64Array:
        """Tails of arcs (all, in the order of `arcs()`, by default; so for all that follow)."""
        return self._data(arcs, _cs.TAIL)

    def head(self, arcs: ArrayLike | None = None) -> Int64Array:
        """Heads of arcs."""
        return self._data(arcs, _cs.HEAD)

    def capacity(self, arcs: ArrayLike | None = None) -> Int64Array:
        """Capacities of arcs."""
        return self._data(arcs, _cs.CAPACITY)

    def cost(self, arcs: ArrayLike | None = None) -> Int64Array:
        """Costs of arcs."""
        return self._data(arcs, _cs.COST)

    def lower(self, arcs: ArrayLike | None = None) -> Int64Array:
        """Lower bounds of arcs."""
        return self._data(arcs, _cs.LOWER)

    def _data(self, arcs: ArrayLike | None, what: int) -> Int64Array:
        return self._core.arc_data(None if arcs is None else integers("arcs", arcs), what)

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self._core.sizes()[0]

    @property
    def num_arcs(self) -> int:
        """Number of arcs."""
        return self._core.sizes()[1]

    @property
    def nbytes(self) -> int:
        """Memory of the kernel's arrays."""
        return self._core.nbytes()

    # -- copies ----------------------------------------------------------------------------------------------

    def copy(self) -> FlowNetwork:
        """An independent copy with flow and potentials: its next solve is warm."""
        return FlowNetwork.from_state(self.state())

    def state(self) -> dict[str, int | NDArray[np.int32] | Int64Array]:
        """All of the network as data, for `from_state`: ids, flow, potentials, kept basis, and the order of everything.

        Returns
        -------
        dict of str to int or ndarray
            Flat: Python integers of up to 64 bits, and vectors of int64 or int32 of the caller's own.  The names and their meaning are in
            `flowsched.network.state`; ``form`` is the number of that format.
        """
        return self._core.dump()

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Make a network of what `state` returned; all its later solves are those of the original, bit for bit.

        Parameters
        ----------
        state : mapping of str to int or ndarray
            The vectors are copied; they may be read-only and from any memory.

        Raises
        ------
        InputError
            Not the state of a network: names what is wrong with it.  Every word is checked before it is used: kinds and lengths, ids, free
            ids, adjacency, bounds, balances, that the potentials fit the flow, and the same for the kept basis.
        """
        own = checked(state)
        network = cls.__new__(cls)
        core = _cs.Network()
        core.adopt(own)
        network._core = core
        return network

    def __getstate__(self) -> dict[str, Any]:
        return self.state()

    def __setstate__(self, state: Any) -> None:
        core = _cs.Network()
        core.adopt(checked(state))
        self._core = core

    def _set_budget(self, budget: int, patience: int = -1) -> None:
        """Set, for tests, the scanned half-arcs after which an excess goes to the search, and all to the simplex (-1: the usual)."""
        self._core.set_budget(budget, patience)
