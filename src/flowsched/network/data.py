"""Data and last solution of a kept network, as they are read."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray

import flowsched._cs as _cs
from flowsched.exceptions import ConcurrentUseError, InputError
from flowsched.network.arguments import chosen
from flowsched.network.certificate import certify
from flowsched.network.cost_range import cost_range
from flowsched.network.problem import FlowProblem
from flowsched.network.results import FlowResult, Int64Array
from flowsched.network.slack import Slack

__all__ = ["NetworkData"]


class NetworkData:
    """What `FlowNetwork` lets its caller read.

    Wherever ids are given, a single id counts as a vector of one.  A vector of bool chooses among all ids, in the order of `nodes` or `arcs`.
    """

    __slots__ = ("_core", "_names", "_slack", "_target")

    _core: _cs.Network
    _names: dict[Hashable, int]
    """Ids of the nodes that have a name."""
    _slack: Slack | None
    _target: _cs.Network | Slack  # changes are made on it: it is the slack once there is one
    """From the first partial solve on."""

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

    # -- the last solution -----------------------------------------------------------------------------------

    def flow(self, arcs: ArrayLike | None = None) -> Int64Array:
        """Flow of arcs in the last solution, lower bound included; 0 before the first and for arcs added since."""
        return self._core.flow(self._arc_ids(arcs))

    def potential(self, nodes: ArrayLike | None = None) -> Int64Array:
        """Potentials of nodes in the last solution."""
        return self._core.potential(self._node_ids(nodes))

    def reduced_cost(self, arcs: ArrayLike | None = None) -> Int64Array:
        """``cost + potential[tail] - potential[head]`` of arcs, with the present costs and the last solution's potentials."""
        return self._data(arcs, _cs.REDUCED)

    # -- the present data ------------------------------------------------------------------------------------

    def nodes(self) -> Int64Array:
        """Ids of all nodes, ascending."""
        return self._core.node_ids() if self._slack is None else self._slack.ids(arcs=False)

    def arcs(self) -> Int64Array:
        """Ids of all arcs, ascending."""
        return self._core.arc_ids() if self._slack is None else self._slack.ids(arcs=True)

    def supply(self, nodes: ArrayLike | None = None) -> Int64Array:
        """Supplies of nodes (all, in the order of `nodes()`, by default)."""
        return self._core.supply(self._node_ids(nodes))

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
        return self._core.arc_data(self._arc_ids(arcs), what)

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

    # -- what follows from them ------------------------------------------------------------------------------

    def certify(self) -> None:
        """Prove that the last solution is optimal for the present data.

        Raises
        ------
        AssertionError
            At the first arc or node that contradicts it.
        """
        core = self._core  # with what partial solves have hidden in it
        arcs, nodes = core.arc_ids(), core.node_ids()
        dense = np.zeros(int(nodes[-1]) + 1 if len(nodes) else 0, np.int64)
        dense[nodes] = np.arange(len(nodes))
        tail, head, capacity, cost, lower = (
            core.arc_data(arcs, field) for field in (_cs.TAIL, _cs.HEAD, _cs.CAPACITY, _cs.COST, _cs.LOWER)
        )
        result = FlowResult(core.flow(arcs), core.cost_of_flow(), core.potential(nodes), {})
        certify(dense[tail], dense[head], capacity, cost, core.supply(nodes), result, lower=lower)

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
        residual path without the arc.  Each is a run of Dijkstra's algorithm on reduced costs that ends at its goal: O(m + n log n) for an arc at worst,
        after O(m log m) in all.  See R. K. Ahuja, T. L. Magnanti and J. B. Orlin, Network Flows (1993), section 9.11.

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
        arcs, nodes = self.arcs(), self.nodes()
        dense = np.zeros(int(nodes[-1]) + 1 if len(nodes) else 0, np.int64)
        dense[nodes] = np.arange(len(nodes))
        return FlowProblem(
            dense[self.tail(arcs)], dense[self.head(arcs)], self.capacity(arcs), self.cost(arcs), self.supply(nodes), self.lower(arcs)
        )  # fmt: skip

    def state(self) -> dict[str, int | NDArray[np.int32] | Int64Array]:
        """All of the network as data, for `from_state`: ids, flow, potentials, kept basis, and the order of everything; without names.

        Returns
        -------
        dict of str to int or ndarray
            Flat: Python integers of up to 64 bits, and vectors of int64 or int32 of the caller's own.  The names and their meaning are in
            `flowsched.network.state`; ``form`` is the number of that format.  What partial solves have hidden in the network is left out.
        """
        hidden = None if self._slack is None else self._slack.hidden()
        state = self._core.dump()
        if hidden is None or not len(hidden):
            return state
        core = _cs.Network()
        core.adopt(state)
        core.remove_nodes(hidden)
        return core.dump()
