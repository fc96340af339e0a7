"""`FlowNetwork`: a min-cost flow network that is kept alive and re-optimised after changes.

Three rules hold for every call here and for `min_cost_flow`.  Input arrays are copied first; only the copies are checked and used.
A call that raises an exception has no visible effect, whatever the cause: bad input, memory, Ctrl-C.  A network that is in use refuses a
second call at once with ConcurrentUseError, and never blocks.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from time import perf_counter
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

import flowsched._cs as _cs
from flowsched._guard import Exclusive
from flowsched.boundary.validate import frozen
from flowsched.exceptions import ConcurrentUseError, InfeasibleError, InputError
from flowsched.network.arguments import EMPTY, capacities, checked_options, chosen, common_size, integers, lower_bounds
from flowsched.network.certificate import certify, cost_range, explained
from flowsched.network.problem import FlowProblem, read_edges, supplies_of
from flowsched.network.results import Algorithm, FlowResult, FlowSolution, Int64Array
from flowsched.network.slack import Slack
from flowsched.network.state import checked

__all__ = ["FlowNetwork"]

Change = tuple[ArrayLike, ArrayLike]
"""Ids, and values for them."""


class FlowNetwork:
    """A min-cost flow network that is kept alive, mutated in place and re-optimised from its last optimum.

    Node and arc ids are dense integers from 0 and stay as they are under every mutation; the id of a removed node or arc is
    given to the next one added.  The time of a mutation is proportional to its size; that of `solve` depends on the part of
    the network that the changes reach, not on its size.
    Every method that takes ids takes arrays of them: batch the calls.  A single id counts as an array of one; an array of bool chooses among all
    ids, in the order of `nodes` or `arcs`.  Values are arrays as long as the ids, or one value for all.  A method that raises, for bad input or anything else, has changed nothing.

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

    __slots__ = ("_core", "_names", "_slack", "_target")

    _core: _cs.Network
    _names: dict[Hashable, int]
    """Ids of the nodes that have a name."""
    _slack: Slack | None
    """From the first partial solve on."""
    _target: _cs.Network | Slack
    """Takes the changes: the slack once there is one."""

    def __init__(self) -> None:
        self._core = self._target = _cs.Network()
        self._names = {}
        self._slack = None

    # -- mutations -------------------------------------------------------------------------------------------

    def add_nodes(
        self, supply: ArrayLike = 0, *, count: int | None = None, names: Iterable[Hashable] | None = None
    ) -> Int64Array:
        """Add nodes.

        Parameters
        ----------
        supply : array of int, shape (k,), or int
            Supply of each (> 0 sends, < 0 receives); a single number k adds k nodes of supply 0, but with `count` it is the supply of each.
        count : int, optional
            Number of nodes.
        names : iterable of hashable, optional
            A name for each, that no other node has; see `names`.

        Returns
        -------
        ndarray of int64, shape (k,)
            Their ids.

        Raises
        ------
        InputError
            Not integers, a negative count, or a name that is taken.
        CostRangeError
            The supplies are too large.
        """
        if count is None and isinstance(supply, int | np.integer) and not isinstance(supply, bool):
            count, supply = int(supply), 0
        if count is None:
            amounts = integers("supply", supply)
        elif 0 <= count < 2**31:
            amounts = (
                np.zeros(count, np.int64) if type(supply) is int and supply == 0 else integers("supply", supply, count)
            )
        else:
            raise InputError(f"supply: a count of nodes from 0 to 2**31 - 1 or an array expected, got {count}")
        if names is None:
            return self._target.add_nodes(amounts)
        labels = self._new_names(list(names), len(amounts))
        with Exclusive("this network"):  # no signal between the nodes and their names
            ids = self.add_nodes(amounts)
            self._names.update(zip(labels, ids.tolist(), strict=True))
        return ids

    def _new_names(self, names: list[Hashable], count: int) -> list[Hashable]:
        if len(names) != count:
            raise InputError(f"names: {count} values expected, got {len(names)}")
        taken = set(self._names)
        for i, name in enumerate(names):
            try:
                if name in taken:
                    raise InputError(f"names[{i}]: another node is called {name!r:.80}")
                taken.add(name)
            except TypeError:
                raise InputError(f"names[{i}]: a hashable expected, got {name!r:.80}") from None
        return names

    def add_arcs(
        self, tail: ArrayLike, head: ArrayLike, capacity: ArrayLike, cost: ArrayLike, lower: ArrayLike = 0
    ) -> Int64Array:
        """Add arcs.

        Parameters
        ----------
        tail, head : array of int, shape (k,), or int
            Node ids; parallel arcs and self-loops are allowed.
        capacity, cost, lower : array of int, shape (k,), or int
            0 <= lower <= capacity; capacity may be `INF`, or infinite.

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
        k = common_size(tail, head, capacity, cost, lower)
        tails = integers("tail", tail, k)
        lowers = lower_bounds(lower, k)
        heads = integers("head", head, k)
        rooms = capacities("capacity", capacity, k)
        costs = integers("cost", cost, k)
        return self._target.add_arcs(tails, heads, rooms, costs, lowers)

    def set_supply(self, nodes: ArrayLike, supply: ArrayLike) -> None:
        """Set the supplies of nodes (arrays of one length, or one supply for all)."""
        ids = chosen("nodes", nodes, self.nodes)
        values = integers("supply", supply, len(ids))
        self._target.set_supply(ids, values)

    def set_capacity(self, arcs: ArrayLike, capacity: ArrayLike) -> None:
        """Set the capacities of arcs; not below their lower bounds."""
        ids = chosen("arcs", arcs, self.arcs)
        values = capacities("capacity", capacity, len(ids))
        self._target.set_capacity(ids, values)

    def set_lower(self, arcs: ArrayLike, lower: ArrayLike) -> None:
        """Set the lower bounds of arcs; not above their capacities."""
        ids = chosen("arcs", arcs, self.arcs)
        values = integers("lower", lower, len(ids))
        self._target.set_lower(ids, values)

    def set_cost(self, arcs: ArrayLike, cost: ArrayLike) -> None:
        """Set the costs of arcs."""
        ids = chosen("arcs", arcs, self.arcs)
        values = integers("cost", cost, len(ids))
        self._target.set_cost(ids, values)

    def remove_arcs(self, arcs: ArrayLike) -> None:
        """Remove arcs; their ids become free."""
        ids = chosen("arcs", arcs, self.arcs)
        self._target.remove_arcs(ids)

    def remove_nodes(self, nodes: ArrayLike) -> None:
        """Remove nodes, each with its arcs; the ids become free."""
        ids = chosen("nodes", nodes, self.nodes)
        if not self._names:
            self._target.remove_nodes(ids)
            return
        gone = set(ids.tolist())
        with Exclusive("this network"):
            self._target.remove_nodes(ids)
            for name in [name for name, node in self._names.items() if node in gone]:
                del self._names[name]

    # -- solving ---------------------------------------------------------------------------------------------

    def solve(
        self, *, algorithm: Algorithm = "auto", time_limit: float | None = None, partial: bool = False
    ) -> FlowSolution:
        """Optimise, from the last optimum where there is one.

        Parameters
        ----------
        algorithm : {"auto", "repair", "cost_scaling", "network_simplex"}
            ``repair`` routes the excesses that changes have made, locally, at epsilon = 0; ``cost_scaling`` is the textbook's
            successive approximation, warm-started at the epsilon that the changes have broken; ``network_simplex`` goes on from its
            last basis after changes of costs, capacities and supplies, else it starts from the last flow and potentials.  ``auto`` repairs, and turns
            to the simplex if that takes too long, or would by the recent cost of both.  All find the same optimal cost.
        time_limit : float, optional
            Seconds.  A part of them is reserved to make the flow so far feasible, which is then returned; ``stats["gap"]`` is an upper bound of the
            difference between its cost and the optimum.  The next `solve` goes on from there, also after changes of costs, capacities and supplies.
        partial : bool, optional
            Ship as much as fits, at the least cost among the flows that ship the most.  Supplies need not sum to 0, and `FlowSolution.unshipped` has the
            amounts that stay.  A hidden node and hidden arcs take them, so ids that are given later may skip some numbers.  The next partial solve
            costs time in proportion to the changes since; a switch between the two kinds of solve costs time in proportion to all supplies.

        Raises
        ------
        InfeasibleError
            With the missing amount, a cut and its arcs.  The network is as before: correct it and solve again.  With `partial`, only lower bounds
            can be the cause.
        UnboundedError
            With a cycle (arc ids).
        TimeLimitError
            The time limit passed before a feasible flow was found, or before it was known that the cost has a minimum.  The last
            solution is as before; the next `solve` goes on nevertheless.
        CostRangeError
            Exact arithmetic could overflow; also if the flow of an unlimited arc would have to reach 2**62, which requires other capacities of such sizes.
            With `partial`, ``nodes * nodes * |cost|`` reaches 2**59.
        """
        start = perf_counter()
        kernel, seconds = checked_options(algorithm, time_limit)
        try:
            if partial:
                if self._slack is None:
                    self._slack = self._target = Slack(self._core)
                return FlowSolution(*self._slack.solve(kernel, seconds))
            if self._slack is not None:
                self._slack.remove()
            cost, changed, stats = self._core.solve(kernel, seconds)
        except InfeasibleError as error:
            raise self._explained(error, start, time_limit) from None
        return frozen(FlowSolution, {"cost": cost, "changed": changed, "stats": stats, "unshipped": EMPTY})

    def _explained(self, error: InfeasibleError, start: float, time_limit: float | None) -> InfeasibleError:
        core = self._core
        nodes, arcs = core.node_ids(), core.arc_ids()
        columns = (
            core.arc_data(arcs, _cs.TAIL), core.arc_data(arcs, _cs.HEAD), core.arc_data(arcs, _cs.CAPACITY), core.arc_data(arcs, _cs.LOWER)
        )  # fmt: skip
        left = -1.0 if time_limit is None else max(time_limit - (perf_counter() - start), 0.0)
        labels: dict[int, Hashable] = {node: name for name, node in self._names.items()}
        if self._slack is None or self._slack.node < 0:
            return explained(error, nodes, core.supplies(nodes), arcs, columns, labels, left)
        labels[self._slack.node] = "the unshipped"
        error = explained(error, nodes, core.supplies(nodes), arcs, columns, labels, left)
        error.cut[self._slack.node] = False
        message = error.args[0].replace("the supplies", "the lower bounds")
        return InfeasibleError(message, error.cut, error.shortfall, self._slack.without(error.arcs))

    # -- other forms -----------------------------------------------------------------------------------------

    @classmethod
    def from_edges(
        cls,
        edges: Any,
        *,
        supply: Mapping[Hashable, Any] | None = None,
        source: str = "source",
        target: str = "target",
        capacity: str = "capacity",
        cost: str = "cost",
        lower: str = "lower",
    ) -> Self:
        """Make a network of edges whose nodes have names.

        Parameters
        ----------
        edges : iterable or table
            Rows are tuples (source, target), and up to three numbers more: capacity, cost, lower bound; or mappings with such keys; or
            (source, target, mapping), as NetworkX lists edges.  A table has columns: a DataFrame, or a mapping of names to columns.
            Names are hashable.  An edge without a capacity is unlimited, one without a cost costs 0.  Parallel edges stay apart.
        supply : mapping, optional
            Supplies by name; 0 for the others.
        source, target, capacity, cost, lower : str, optional
            Keys and columns to read.

        Returns
        -------
        FlowNetwork
            Arc i is edge i, so ``net.flow()`` is in the order of the edges.  `names` maps names to node ids, in the order in which they first occur.

        Raises
        ------
        InputError
            Names the edge, or the column and the index.

        Examples
        --------
        >>> net = FlowNetwork.from_edges([("mill", "shop", 4, 1), ("mill", "port", 2, 5), ("shop", "port", 3, 1)], supply={"mill": 4, "port": -4})
        >>> net.solve().cost, net.flow()
        (11, array([3, 1, 3]))
        >>> dict(net.names)
        {'mill': 0, 'shop': 1, 'port': 2}
        """
        found, columns = read_edges(edges, (source, target, capacity, cost, lower))
        network = cls()
        network.add_nodes(supplies_of(found, supply), names=found.names)
        network.add_arcs(*columns)
        return network

    @classmethod
    def from_problem(cls, problem: FlowProblem) -> Self:
        """Make a network of a problem; its nodes and arcs keep their numbers."""
        network = cls()
        network.add_nodes(problem.supply)
        network.add_arcs(problem.tail, problem.head, problem.capacity, problem.cost, problem.lower)
        return network

    # -- copies ----------------------------------------------------------------------------------------------

    def copy(
        self,
        *,
        supply: Change | None = None,
        capacity: Change | None = None,
        lower: Change | None = None,
        cost: Change | None = None,
    ) -> Self:
        """An independent copy with flow, potentials and names: its next solve is warm.

        Parameters
        ----------
        supply, capacity, lower, cost : (ids, values), optional
            Changes made in the copy, to evaluate them there: ``net.copy(cost=(arc, 9)).solve().cost``.
        """
        other = type(self).__new__(type(self))
        other.__setstate__(self.__getstate__())
        for what, change in (("supply", supply), ("capacity", capacity), ("lower", lower), ("cost", cost)):
            if change is not None:
                if not isinstance(change, tuple | list) or len(change) != 2:
                    raise InputError(f"{what}: a pair (ids, values) expected, got {change!r:.80}")
                getattr(other, f"set_{what}")(*change)
        return other

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Make a network from a result of `state`; all its later solves are those of the original, bit for bit.

        Parameters
        ----------
        state : mapping of str to int or ndarray
            The vectors are copied; they may be read-only and from any memory.

        Raises
        ------
        InputError
            Not the state of a network: the message names the defect.  Every word is checked before it is used: kinds and lengths, ids, free
            ids, adjacency, bounds, balances, that the potentials fit the flow, and the same for the kept basis.
        """
        network = cls.__new__(cls)
        network.__setstate__(state)
        return network

    def __getstate__(self) -> Any:
        return {"network": self.state(), "names": dict(self._names)} if self._names else self.state()

    def __setstate__(self, state: Any) -> None:
        names: dict[Hashable, int] = {}
        if isinstance(state, dict) and state.keys() == {"network", "names"}:
            state, names = state["network"], dict(state["names"])
        core = _cs.Network()
        core.adopt(checked(state))
        self._core = self._target = core
        self._names, self._slack = names, None

    def _set_budget(self, budget: int, patience: int = -1) -> None:
        """Set, for tests, the scanned half-arcs after which an excess goes to the search, and all to the simplex (-1: the usual)."""
        self._core.set_budget(budget, patience)

    def __repr__(self) -> str:
        try:
            nodes, arcs = self._sizes()
        except ConcurrentUseError:
            return "<FlowNetwork: in use>"
        return f"<FlowNetwork: {nodes} nodes, {arcs} arcs>"

    def _sizes(self) -> tuple[int, int]:
        return self._core.sizes() if self._slack is None else self._slack.sizes()

    def _arc_ids(self, arcs: ArrayLike | None) -> Int64Array | None:
        """Return ids for the kernel, which takes None for all."""
        if arcs is None:
            return None if self._slack is None else self.arcs()
        ids = chosen("arcs", arcs, self.arcs)
        return ids if self._slack is None else self._slack.refuse("arcs", ids)

    def _node_ids(self, nodes: ArrayLike | None) -> Int64Array | None:
        if nodes is None:
            return None if self._slack is None else self.nodes()
        ids = chosen("nodes", nodes, self.nodes)
        return ids if self._slack is None else self._slack.refuse("nodes", ids)

    # -- names -----------------------------------------------------------------------------------------------

    @property
    def names(self) -> Mapping[Hashable, int]:
        """Ids of the nodes that have a name, by name; see `FlowNetwork.from_edges`."""
        return MappingProxyType(self._names)

    def node_id(self, name: Hashable) -> int:
        """Return the id of a named node.

        Raises
        ------
        InputError
            No node has this name.
        """
        try:
            return self._names[name]
        except (KeyError, TypeError):
            raise InputError(f"name: no node is called {name!r:.80}") from None

    def named_flows(self) -> dict[tuple[Hashable, Hashable], int]:
        """Return the flow from node to node in the last solution, by names; parallel arcs together.

        Pairs without flow are left out.  A node without a name has its id.

        Examples
        --------
        >>> net = FlowNetwork.from_edges([("mill", "shop", 4, 1), ("shop", "port", 3, 1)], supply={"mill": 2, "port": -2})
        >>> _ = net.solve()
        >>> net.named_flows()
        {('mill', 'shop'): 2, ('shop', 'port'): 2}
        """
        names: dict[int, Hashable] = {node: name for name, node in self._names.items()}
        flow, arcs = self.flow(), self.arcs()
        some = np.flatnonzero(flow)
        ends = self.tail(arcs[some]).tolist(), self.head(arcs[some]).tolist()
        found: dict[tuple[Hashable, Hashable], int] = {}
        for tail, head, units in zip(*ends, flow[some].tolist(), strict=True):
            pair = names.get(tail, tail), names.get(head, head)
            found[pair] = found.get(pair, 0) + units
        return found

    # -- the last solution -----------------------------------------------------------------------------------

    def flow(self, arcs: ArrayLike | None = None) -> Int64Array:
        """Flow of arcs in the last solution, lower bound included; 0 before the first and for arcs added since."""
        return self._core.flows(self._arc_ids(arcs))

    def potential(self, nodes: ArrayLike | None = None) -> Int64Array:
        """Potentials of nodes in the last solution."""
        return self._core.potentials(self._node_ids(nodes))

    def reduced_cost(self, arcs: ArrayLike | None = None) -> Int64Array:
        """``cost + potential[tail] - potential[head]`` of arcs, with the present costs and the last solution's potentials."""
        return self._core.arc_data(self._arc_ids(arcs), _cs.REDUCED)

    # -- the present data ------------------------------------------------------------------------------------

    def nodes(self) -> Int64Array:
        """Ids of all nodes, ascending."""
        return self._core.node_ids() if self._slack is None else self._slack.ids(arcs=False)

    def arcs(self) -> Int64Array:
        """Ids of all arcs, ascending."""
        return self._core.arc_ids() if self._slack is None else self._slack.ids(arcs=True)

    def supply(self, nodes: ArrayLike | None = None) -> Int64Array:
        """Supplies of nodes (all, in the order of `nodes()`, by default)."""
        return self._core.supplies(self._node_ids(nodes))

    def tail(self, arcs: ArrayLike | None = None) -> Int64Array:
        """Tails of arcs (all, in the order of `arcs()`, by default; so for all that follow)."""
        return self._core.arc_data(self._arc_ids(arcs), _cs.TAIL)

    def head(self, arcs: ArrayLike | None = None) -> Int64Array:
        """Heads of arcs."""
        return self._core.arc_data(self._arc_ids(arcs), _cs.HEAD)

    def capacity(self, arcs: ArrayLike | None = None) -> Int64Array:
        """Capacities of arcs."""
        return self._core.arc_data(self._arc_ids(arcs), _cs.CAPACITY)

    def cost(self, arcs: ArrayLike | None = None) -> Int64Array:
        """Costs of arcs."""
        return self._core.arc_data(self._arc_ids(arcs), _cs.COST)

    def lower(self, arcs: ArrayLike | None = None) -> Int64Array:
        """Lower bounds of arcs."""
        return self._core.arc_data(self._arc_ids(arcs), _cs.LOWER)

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self._sizes()[0]

    @property
    def num_arcs(self) -> int:
        """Number of arcs."""
        return self._sizes()[1]

    @property
    def nbytes(self) -> int:
        """Memory of the kernel's arrays."""
        return self._core.nbytes()

    # -- derived values --------------------------------------------------------------------------------------

    def certify(self) -> None:
        """Prove that the last solution is optimal for the present data.

        Raises
        ------
        AssertionError
            At the first arc or node that contradicts it.
        """
        core = self._core  # with the hidden node and arcs of partial solves
        arcs, nodes = core.arc_ids(), core.node_ids()
        result = FlowResult(core.flows(arcs), core.cost_of_flow(), core.potentials(nodes), {})
        certify(**_problem(core, nodes, arcs).arguments(), result=result)

    def cost_range(self, arcs: ArrayLike | None = None) -> tuple[Int64Array, Int64Array]:
        """Range of an arc's cost in which the present flow stays optimal, as long as nothing else changes.

        Parameters
        ----------
        arcs : array of int, optional
            All by default.

        Returns
        -------
        lowest, highest : ndarray of int64, shape (k,)
            Both are part of the range; ``-INF`` and `INF` where it has no end.  Within it the total cost changes by the flow for each unit.

        Raises
        ------
        InputError
            The last flow is not an optimum of the present data: `solve` first.

        Notes
        -----
        An arc with room needs ``cost >= -d(head, tail)``, one with flow above its lower bound ``cost <= d(tail, head)``, where d is the length of a shortest
        residual path without the arc.  So the range is that of the flow, which is wider than that of a basis where the optimum is degenerate.
        All arcs are answered together, in the time of a few solves on most networks; the page on the kernel has the method.
        See R. K. Ahuja, T. L. Magnanti and J. B. Orlin, Network Flows (1993), section 9.11.

        Examples
        --------
        >>> import flowsched as fs
        >>> net = fs.FlowNetwork.from_edges([("a", "c", 2, 4), ("a", "b", 2, 1), ("b", "c", 2, 2)], supply={"a": 2, "c": -2})
        >>> net.solve().cost
        6
        >>> lowest, highest = net.cost_range()
        >>> int(lowest[0]), int(highest[1])
        (3, 2)
        """
        ids = self.arcs() if arcs is None else chosen("arcs", arcs, self.arcs)
        self.tail(ids)  # refuses ids that are not there
        supply = self.supply() if self._slack is None else None
        return cost_range(self.to_problem(), self.arcs(), ids, self.flow(), self.potential(), supply)

    def to_problem(self) -> FlowProblem:
        """Return nodes, arcs and supplies as a problem, numbered in the order of `nodes` and `arcs`."""
        return _problem(self._core, self.nodes(), self.arcs())

    def state(self) -> dict[str, int | NDArray[np.int32] | Int64Array]:
        """All of the network as data, for `from_state`: ids, flow, potentials, kept basis, and the order of everything; without names.

        Returns
        -------
        dict of str to int or ndarray
            Flat: Python integers of up to 64 bits, and vectors of int64 or int32 of the caller's own.  The names and their meaning are in
            `flowsched.network.state`; ``form`` is the number of that format.  The hidden node and arcs of partial solves are left out.
        """
        hidden = None if self._slack is None else self._slack.hidden()
        state = self._core.dump()
        if hidden is None or not len(hidden):
            return state
        core = _cs.Network()
        core.adopt(state)
        core.remove_nodes(hidden)
        return core.dump()


def _problem(core: _cs.Network, nodes: Int64Array, arcs: Int64Array) -> FlowProblem:
    dense = np.zeros(int(nodes[-1]) + 1 if len(nodes) else 0, np.int64)
    dense[nodes] = np.arange(len(nodes))
    tail, head, capacity, cost, lower = (
        core.arc_data(arcs, what) for what in (_cs.TAIL, _cs.HEAD, _cs.CAPACITY, _cs.COST, _cs.LOWER)
    )
    return FlowProblem(dense[tail], dense[head], capacity, cost, core.supplies(nodes), lower)
