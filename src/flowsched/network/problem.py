"""`FlowProblem`: a minimum-cost flow problem as arrays."""

from __future__ import annotations

import importlib
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from flowsched.exceptions import CostRangeError, InputError
from flowsched.network.arguments import common_size, integers, supply_vector
from flowsched.network.results import INF

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["FlowProblem"]


class FlowArguments(TypedDict):
    """The arrays of a problem by name."""

    tail: NDArray[np.int64]
    head: NDArray[np.int64]
    capacity: NDArray[np.int64]
    cost: NDArray[np.int64]
    supply: NDArray[np.int64]
    lower: NDArray[np.int64]


@dataclass(frozen=True, eq=False, init=False)
class FlowProblem:
    """A minimum-cost flow problem as arrays; nodes and arcs are numbered from 0.

    Parameters
    ----------
    tail, head : array_like of int, shape (m,)
        The nodes that each arc leaves and enters.
    capacity, cost : array_like of int, shape (m,), or int
        Largest flow of each arc, `INF` or infinite for unlimited, and its cost per unit.
    supply : array_like of int, shape (n,)
        Supply of each node: it sends (positive) or takes (negative).
    lower : array_like of int, shape (m,), or int, optional
        Least flow of each arc; 0 by default.

    Raises
    ------
    InputError
        If the arrays of the arcs differ in length, or one of them is not a vector of integers.

    Examples
    --------
    >>> problem = FlowProblem(tail=[0], head=[1], capacity=[5], cost=[2], supply=[3, -3])
    >>> problem.lower
    array([0])
    """

    tail: NDArray[np.int64]
    head: NDArray[np.int64]
    capacity: NDArray[np.int64]
    cost: NDArray[np.int64]
    supply: NDArray[np.int64]
    lower: NDArray[np.int64]

    def __init__(
        self,
        tail: ArrayLike,
        head: ArrayLike,
        capacity: ArrayLike,
        cost: ArrayLike,
        supply: ArrayLike,
        lower: ArrayLike | None = None,
    ) -> None:
        given = {"tail": tail, "head": head, "capacity": capacity, "cost": cost, "lower": 0 if lower is None else lower}
        arcs = common_size(*given.values())
        for name, column in [*given.items(), ("supply", supply)]:
            values = _vector(name, column, arcs)
            if name != "supply" and len(values) != arcs:
                raise InputError(f"{name}: {len(values)} values for {arcs} arcs")
            object.__setattr__(self, name, values)

    def arguments(self) -> FlowArguments:
        """Return the arrays by name, as ``min_cost_flow(**problem.arguments())`` takes them."""
        return {
            "tail": self.tail,
            "head": self.head,
            "capacity": self.capacity,
            "cost": self.cost,
            "supply": self.supply,
            "lower": self.lower,
        }

    # -- NetworkX; its package is asked for nowhere else in this part, and only where a graph is made ------------

    @classmethod
    def from_networkx(
        cls, G: Any, *, demand: str = "demand", capacity: str = "capacity", weight: str = "weight", lower: str = "lower"
    ) -> FlowProblem:
        """Read a directed graph of NetworkX, parallel edges too.

        Parameters
        ----------
        G : networkx.DiGraph or networkx.MultiDiGraph
        demand, capacity, weight, lower : str, optional
            Names of the attributes; without them a node has supply 0, and an edge is unlimited, costs 0 and has the lower bound 0.

        Returns
        -------
        FlowProblem
            Nodes are numbered in the order of ``list(G)``, arcs in that of ``list(G.edges)``.  A demand becomes a supply of the other sign.

        Raises
        ------
        InputError
            An undirected graph, or a value that is no integer; names the attribute and the number of the node or edge.
        """
        if not getattr(G, "is_directed", lambda: False)():
            raise InputError(f"G: a directed graph expected, got {G!r:.80}")
        index = {node: number for number, node in enumerate(G)}
        edges = list(G.edges(data=True))
        return cls(
            tail=np.array([index[u] for u, _, _ in edges], np.int64),
            head=np.array([index[v] for _, v, _ in edges], np.int64),
            capacity=integers(capacity, [data.get(capacity, INF) for _, _, data in edges], unlimited=True),
            cost=integers(weight, [data.get(weight, 0) for _, _, data in edges]),
            supply=-integers(demand, [data.get(demand, 0) for _, data in G.nodes(data=True)]),
            lower=integers(lower, [data.get(lower, 0) for _, _, data in edges]),
        )

    def to_networkx(self, names: Iterable[Hashable] | None = None, *, lower: str | None = None) -> Any:
        """Return the problem as a ``networkx.MultiDiGraph``, with the attributes demand, capacity and weight.

        Parameters
        ----------
        names : iterable of hashable, optional
            What the nodes are called; their numbers by default.
        lower : str, optional
            Attribute for the lower bounds.  NetworkX knows none, so it is an error if there are some and this is not given.

        Returns
        -------
        networkx.MultiDiGraph
            The key of an edge is the number of its arc.  An unlimited arc has no capacity there.

        Raises
        ------
        InputError
            Lower bounds that NetworkX would not see, or names that are not as many as the nodes, or not different.
        ModuleNotFoundError
            NetworkX is not installed.
        """
        if lower is None and self.lower.any():
            i = int(np.argmax(self.lower != 0))
            raise InputError(
                f"lower[{i}]: {self.lower[i]}, but NetworkX has no lower bounds; name an attribute for them (lower=...)"
            )
        n = len(self.supply)
        called = list(range(n)) if names is None else list(names)
        if len(called) != n or len(set(called)) != n:
            raise InputError(f"names: {n} different ones expected, got {len(set(called))}")
        graph = importlib.import_module("networkx").MultiDiGraph()
        graph.add_nodes_from(
            (name, {"demand": -value}) for name, value in zip(called, self.supply.tolist(), strict=True)
        )
        rows = zip(
            *(self.arguments()[key].tolist() for key in ("tail", "head", "capacity", "cost", "lower")), strict=True
        )
        for number, (u, v, capacity, cost, least) in enumerate(rows):
            data = {"weight": cost} if capacity >= INF else {"weight": cost, "capacity": capacity}
            if lower is not None:
                data[lower] = least
            graph.add_edge(called[u], called[v], key=number, **data)
        return graph


def _vector(name: str, given: ArrayLike, arcs: int) -> NDArray[np.int64]:
    """Return an argument as a vector of int64, the one given if it is one; InputError if that cannot be."""
    if isinstance(given, np.ndarray) and given.dtype == np.int64 and given.ndim == 1:
        return given
    try:
        if name == "supply":
            return supply_vector(given)
        return integers(name, given, arcs if np.isscalar(given) else None, unlimited=name == "capacity")
    except CostRangeError as error:
        raise InputError(str(error)) from None
