"""Graphs of NetworkX as columns, the input of its backend "flowsched"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import networkx as nx
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

ABSENT: Final = object()
"""Stands in a column for an attribute that the node or edge does not have."""


DEMAND: Final = "demand"
"""NetworkX's name for the demand of a node, unless the caller gives another."""


class FlowGraph:
    """A snapshot of a NetworkX graph: nodes and edges are numbered from 0, and each attribute is a column over them.

    NetworkX keeps snapshots with the graph.  Its methods (`add_edge`, ...) drop them; a change of the dictionaries
    within (``G[u][v]["weight"] = 3``) does not, and later calls are answered from the old snapshot, of which NetworkX
    warns once.  ``G.__networkx_cache__.clear()`` drops them, and ``nx.config.cache_converted_graphs = False`` keeps
    none.

    `nodes` are in the order of the NetworkX graph, and `index` has the number of each.  An edge of an undirected graph
    is in `tail` and `head` once; `keys` has the key of each edge of a multigraph.
    """

    __networkx_backend__ = "flowsched"

    def __init__(self, source: nx.Graph, node_attrs: Sequence[Hashable] | None, edge_attrs: Sequence[Hashable] | None):
        self._directed = bool(source.is_directed())
        self.graph: dict[str, Any] = {}
        self.nodes: list[Any] = list(source)
        self.index: dict[Any, int] = {node: number for number, node in enumerate(self.nodes)}
        self.keys: list[Any] | None = None
        if source.is_multigraph():
            edges = list(source.edges(keys=True, data=True))
            self.keys = [edge[2] for edge in edges]
        else:
            edges = list(source.edges(data=True))
        self.tail = self._numbers(edge[0] for edge in edges)
        self.head = self._numbers(edge[1] for edge in edges)
        self._node_data = _columns([source.nodes[node] for node in self.nodes], node_attrs)
        self._edge_data = _columns([edge[-1] for edge in edges], edge_attrs)

    def _numbers(self, nodes: Iterator[Any]) -> NDArray[np.int64]:
        return np.fromiter((self.index[node] for node in nodes), np.int64)

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.nodes)

    def __contains__(self, node: object) -> bool:
        try:
            return node in self.index
        except TypeError:  # unhashable, which NetworkX takes for absent
            return False

    def __repr__(self) -> str:
        return f"<FlowGraph: {len(self.nodes)} nodes, {len(self.tail)} edges>"

    def is_directed(self) -> bool:
        """Return True if edges have a direction."""
        return self._directed

    def is_multigraph(self) -> bool:
        """Return True if edges have keys."""
        return self.keys is not None

    def node_column(self, name: Hashable) -> list[Any]:
        """Return an attribute of every node, `ABSENT` where there is none."""
        return self._node_data.get(name) or [ABSENT] * len(self.nodes)

    def edge_column(self, name: Hashable) -> list[Any]:
        """Return an attribute of every edge, `ABSENT` where there is none."""
        return self._edge_data.get(name) or [ABSENT] * len(self.tail)

    def edge(self, number: int) -> tuple[Any, ...]:
        """Return an edge as NetworkX names it: its ends, and its key in a multigraph."""
        ends = self.nodes[self.tail[number]], self.nodes[self.head[number]]
        return ends if self.keys is None else (*ends, self.keys[number])

    def to_networkx(self) -> nx.Graph:
        """Return the snapshot as a graph of NetworkX."""
        kinds = (nx.Graph, nx.MultiGraph), (nx.DiGraph, nx.MultiDiGraph)
        graph = kinds[self._directed][self.keys is not None]()
        graph.graph.update(self.graph)
        graph.add_nodes_from((node, _row(self._node_data, number)) for number, node in enumerate(self.nodes))
        graph.add_edges_from((*self.edge(number), _row(self._edge_data, number)) for number in range(len(self.tail)))
        return graph


def convert_from_nx(
    graph: nx.Graph,
    *,
    edge_attrs: Mapping[Hashable, Any] | None = None,
    node_attrs: Mapping[Hashable, Any] | None = None,
    preserve_edge_attrs: bool = False,
    preserve_node_attrs: bool = False,
    preserve_graph_attrs: bool = False,
    name: str | None = None,
    graph_name: str | None = None,
) -> FlowGraph:
    """Take a snapshot of a graph, as NetworkX's dispatcher asks for it.

    `edge_attrs` and `node_attrs` are the names of the attributes that are wanted; nodes' "demand" is taken as well, for
    `max_flow_min_cost` counts it although it does not ask for it, and NetworkX may hand it a snapshot that was made for
    another function.  The defaults are not filled in: they depend on the attribute's part in an algorithm, and one
    attribute can have two.  With ``preserve_...`` all attributes are taken instead.  The names of the algorithm and its
    argument make no difference.
    """
    flow_graph = FlowGraph(
        graph,
        None if preserve_node_attrs else [*{DEMAND: None, **dict.fromkeys(node_attrs or ())}],
        None if preserve_edge_attrs else list(edge_attrs or ()),
    )
    if preserve_graph_attrs:
        flow_graph.graph.update(graph.graph)
    return flow_graph


def convert_to_nx(obj: Any, *, name: str | None = None) -> Any:
    """Turn a snapshot back into a graph of NetworkX; leave other results as they are."""
    return obj.to_networkx() if isinstance(obj, FlowGraph) else obj


def _columns(rows: Sequence[Mapping[Hashable, Any]], names: Sequence[Hashable] | None) -> dict[Hashable, list[Any]]:
    """Return the attributes of these names (all, if None) as columns."""
    if names is None:
        names = list(dict.fromkeys(name for row in rows for name in row))
    return {name: [row.get(name, ABSENT) for row in rows] for name in names}


def _row(columns: Mapping[Hashable, Sequence[Any]], number: int) -> dict[Hashable, Any]:
    return {name: column[number] for name, column in columns.items() if column[number] is not ABSENT}
