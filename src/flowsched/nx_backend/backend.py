"""NetworkX's backend "flowsched": ``nx.min_cost_flow(G, backend="flowsched")``, and its sisters.

The entry point ``networkx.backends`` names this module; its functions have NetworkX's names, arguments, results and
exceptions.  Two things differ.  All arithmetic is exact on integers (floats without a fraction count as such), and
all results are ints.  And fractions are not computed with: where NetworkX is set up to try another backend, it is left
to do so; else the error names `scale_weights`, which makes integers of them.

NetworkX states *demands*: an inflow into a node is positive.  The rest of flowsched states supplies, of the opposite sign;
they meet here and nowhere else.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NoReturn

import networkx as nx
import numpy as np

from flowsched.exceptions import CostRangeError, InfeasibleError, UnboundedError
from flowsched.network.flow_network import FlowNetwork
from flowsched.network.results import INF, FlowResult
from flowsched.nx_backend.graph import ABSENT, DEMAND, FlowGraph

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from numpy.typing import NDArray

    Int64Array = NDArray[np.int64]
    FlowDict = dict[Any, dict[Any, Any]]

_WITH_FLOW_FUNC: Final = ("maximum_flow", "maximum_flow_value", "minimum_cut", "minimum_cut_value")


# -- NetworkX's queries before a call --------------------------------------------------------------------------------


def can_run(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool | str:
    """Return True if a call can run here, else the reason."""
    if name in _WITH_FLOW_FUNC:
        flow_func = args[4] if len(args) > 4 else kwargs.get("flow_func")
        if callable(flow_func):
            return "flow_func asks for another algorithm"
    return True


def should_run(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool | str:
    """Return True if a call that can run here is likely to be faster here, else the reason."""
    if name == "cost_of_flow":
        return "converting the graph takes longer than adding up the cost"
    return True


# -- minimum cost ----------------------------------------------------------------------------------------------------


def network_simplex(
    G: FlowGraph, demand: Hashable = "demand", capacity: Hashable = "capacity", weight: Hashable = "weight"
) -> tuple[int, FlowDict]:
    """Return the cost and the flow of `networkx.network_simplex`."""
    return _network_simplex(G, G.node_column(demand), demand, capacity, weight)


def _network_simplex(
    G: FlowGraph, demands: Sequence[Any], demand: Hashable, capacity: Hashable, weight: Hashable
) -> tuple[int, FlowDict]:
    problem = _Problem(G, capacity, weight)
    if not len(G):
        raise nx.NetworkXError("graph has no nodes")
    for node, value in zip(G, demands, strict=True):
        if infinite(value):
            raise nx.NetworkXError(f"node {node!r} has infinite demand")
    problem.refuse_infinite_weights()
    supply = problem.supplies(demands, demand)
    if sum(supply):
        raise nx.NetworkXUnfeasible("total node demand is not zero")
    problem.refuse_negative_capacities()
    try:
        result = problem.solve(supply)
    except InfeasibleError as error:
        unfeasible = nx.NetworkXUnfeasible("no flow satisfies all node demands")
        unfeasible.add_note(problem.words(error))
        raise unfeasible from error
    except UnboundedError:
        if not problem.feasible(supply):  # which comes first
            raise nx.NetworkXUnfeasible("no flow satisfies all node demands") from None
        raise nx.NetworkXUnbounded("negative cycle with infinite capacity found") from None
    return result.cost, _flow_dict(G, result.flow)


def min_cost_flow(
    G: FlowGraph, demand: Hashable = "demand", capacity: Hashable = "capacity", weight: Hashable = "weight"
) -> FlowDict:
    """Return the flow of `networkx.min_cost_flow`."""
    return network_simplex(G, demand, capacity, weight)[1]


def min_cost_flow_cost(
    G: FlowGraph, demand: Hashable = "demand", capacity: Hashable = "capacity", weight: Hashable = "weight"
) -> int:
    """Return the cost of `networkx.min_cost_flow_cost`."""
    return network_simplex(G, demand, capacity, weight)[0]


def capacity_scaling(
    G: FlowGraph,
    demand: Hashable = "demand",
    capacity: Hashable = "capacity",
    weight: Hashable = "weight",
    heap: object = None,
) -> tuple[int, FlowDict]:
    """Return the cost and the flow of `networkx.capacity_scaling`; ``heap`` makes no difference.

    Demands that sum to 0 but cannot be met are refused in a graph without edges, too, where NetworkX returns cost 0.
    """
    problem = _Problem(G, capacity, weight)
    demands = G.node_column(demand)
    if any(map(infinite, demands)):
        raise nx.NetworkXUnfeasible("Sum of the demands should be 0.")
    supply = problem.supplies(demands, demand)
    if sum(supply):
        raise nx.NetworkXUnfeasible("Sum of the demands should be 0.")
    np.maximum(problem.capacity, 0, out=problem.capacity)  # an edge of negative capacity is none here
    try:
        result = problem.solve(supply)
    except (InfeasibleError, UnboundedError):
        if problem.bounded():
            raise nx.NetworkXUnfeasible("No flow satisfying all demands.") from None
        raise nx.NetworkXUnbounded(
            "Negative cost cycle of infinite capacity found. Min cost flow may be unbounded below."
        ) from None
    return result.cost, _flow_dict(G, result.flow)


def max_flow_min_cost(
    G: FlowGraph, s: Any, t: Any, capacity: Hashable = "capacity", weight: Hashable = "weight"
) -> FlowDict:
    """Return the flow of `networkx.max_flow_min_cost`; multigraphs are accepted, too.

    As there, nodes other than `s` and `t` take the amount of their attribute "demand".
    """
    most = _MaximumFlow(G, s, t, capacity)
    if not G.is_directed():
        raise nx.NetworkXNotImplemented("not implemented for undirected type")
    demands = list(G.node_column(DEMAND))
    demands[most.source], demands[most.sink] = -most.value, most.value
    return _network_simplex(G, demands, DEMAND, capacity, weight)[1]


def cost_of_flow(G: FlowGraph, flowDict: FlowDict, weight: Hashable = "weight") -> Any:
    """Return the sum of `networkx.cost_of_flow`, for numbers of any kind."""
    total = 0
    for number, value in enumerate(G.edge_column(weight)):
        tail, head, *key = G.edge(number)
        flow = flowDict[tail][head][key[0]] if key else flowDict[tail][head]
        total += flow * (0 if value is ABSENT else value)
    return total


class _Problem:
    """A directed graph in the solver's form."""

    def __init__(self, G: FlowGraph, capacity: Hashable, weight: Hashable) -> None:
        if not G.is_directed():
            raise nx.NetworkXNotImplemented("not implemented for undirected type")
        self.graph = G
        self.capacity = capacities(G, capacity)
        self._weights = G.edge_column(weight)
        self._weight = weight

    def refuse_infinite_weights(self) -> None:
        """Raise where NetworkX does: at an edge that could carry flow, and at any self-loop."""
        loops = self.graph.tail == self.graph.head
        for number, value in enumerate(self._weights):
            if infinite(value) and (self.capacity[number] or loops[number]):
                raise nx.NetworkXError(f"edge {self.graph.edge(number)!r} has infinite weight")

    def refuse_negative_capacities(self) -> None:
        """Raise at the first edge whose capacity is negative."""
        if (self.capacity < 0).any():
            edge = self.graph.edge(int(np.argmax(self.capacity < 0)))
            raise nx.NetworkXUnfeasible(f"edge {edge!r} has negative capacity")

    def supplies(self, demands: Sequence[Any], name: Hashable) -> list[int]:
        """Return the supply of each node."""
        nodes = self.graph.nodes
        return [-value for value in integers(demands, 0, lambda i: f"node {nodes[i]!r} has {name} {demands[i]!r}")]

    def solve(self, supply: Sequence[int] | Int64Array) -> FlowResult:
        """Return an optimum, or raise the solver's own errors."""
        graph, weights = self.graph, self._weights
        cost = integers(  # the weight of an edge without capacity does not matter
            [0 if not room else value for room, value in zip(self.capacity.tolist(), weights, strict=True)],
            0,
            lambda i: f"edge {graph.edge(i)!r} has {self._weight} {weights[i]!r}",
        )
        return _solve(graph.tail, graph.head, self.capacity, cost, supply)

    def words(self, error: InfeasibleError) -> str:
        """Return a text on the missing amount and its place, in the graph's own names."""
        graph = self.graph
        nodes = [graph.nodes[i] for i in np.flatnonzero(error.cut)[:5]]
        edges = [graph.edge(i) for i in error.arcs[:5].tolist()]
        return (
            f"{error.shortfall} units are missing: they cannot leave the {int(error.cut.sum())} nodes "
            f"{nodes!r:.200}, over the {len(error.arcs)} edges {edges!r:.200}"
        )

    def feasible(self, supply: Sequence[int]) -> bool:
        """Return True if some flow meets the supplies."""
        try:
            _solve(self.graph.tail, self.graph.head, self.capacity, 0, supply)
        except InfeasibleError:
            return False
        return True

    def bounded(self) -> bool:
        """Return True if no cycle of negative cost has infinite capacity."""
        try:
            self.solve([0] * len(self.graph))
        except UnboundedError:
            return False
        return True


# -- maximum flow ----------------------------------------------------------------------------------------------------


def maximum_flow(
    flowG: FlowGraph, _s: Any, _t: Any, capacity: Hashable = "capacity", flow_func: object = None, **kwargs: Any
) -> tuple[int, FlowDict]:
    """Return the value and the flow of `networkx.maximum_flow`."""
    most = _maximum_flow(flowG, _s, _t, capacity, flow_func, kwargs)
    if flowG.is_directed():
        return most.value, _flow_dict(flowG, most.flow)
    there, back = np.split(most.flow, 2)
    both = np.minimum(there, back)
    flow: FlowDict = {node: {} for node in flowG}
    for number, (u, v) in enumerate(zip((there - both).tolist(), (back - both).tolist(), strict=True)):
        tail, head = flowG.edge(number)
        flow[tail][head] = u
        if tail != head:
            flow[head][tail] = v
    return most.value, flow


def maximum_flow_value(
    flowG: FlowGraph, _s: Any, _t: Any, capacity: Hashable = "capacity", flow_func: object = None, **kwargs: Any
) -> int:
    """Return the value of `networkx.maximum_flow_value`."""
    return _maximum_flow(flowG, _s, _t, capacity, flow_func, kwargs).value


def minimum_cut(
    flowG: FlowGraph, _s: Any, _t: Any, capacity: Hashable = "capacity", flow_func: object = None, **kwargs: Any
) -> tuple[int, tuple[set[Any], set[Any]]]:
    """Return the value and the partition of `networkx.minimum_cut`: the nodes that can still reach the sink, and the rest."""
    most = _maximum_flow(flowG, _s, _t, capacity, flow_func, kwargs)
    reaching = most.reaching_sink()
    near = {node for node, reaches in zip(flowG, reaching, strict=True) if reaches}
    return most.value, (set(flowG) - near, near)


def minimum_cut_value(
    flowG: FlowGraph, _s: Any, _t: Any, capacity: Hashable = "capacity", flow_func: object = None, **kwargs: Any
) -> int:
    """Return the value of `networkx.minimum_cut_value`."""
    return maximum_flow_value(flowG, _s, _t, capacity, flow_func, **kwargs)


def _maximum_flow(
    G: FlowGraph, s: Any, t: Any, capacity: Hashable, flow_func: object, options: Mapping[str, Any]
) -> _MaximumFlow:
    """Check the call as NetworkX does, and answer it."""
    if flow_func is not None and not callable(flow_func):
        raise nx.NetworkXError("flow_func has to be callable.")
    if flow_func is None and options:
        raise nx.NetworkXError("You have to explicitly set a flow_func if you need to pass parameters via kwargs.")
    if callable(flow_func):
        raise NotImplementedError("flow_func asks for another algorithm")
    if G.is_multigraph():
        raise nx.NetworkXError("MultiGraph and MultiDiGraph not supported (yet).")
    return _MaximumFlow(G, s, t, capacity)


class _MaximumFlow:
    """A maximum flow, as a circulation through an extra arc from sink to source that earns 1 for each unit.

    An edge of an undirected graph is two arcs, the second half of them backwards.
    """

    def __init__(self, G: FlowGraph, s: Any, t: Any, capacity: Hashable) -> None:
        for node in (s, t):
            if node not in G:
                raise nx.NetworkXError(f"node {node!s} not in graph")
        if s == t:
            raise nx.NetworkXError("source and sink are the same node")
        self.source, self.sink = G.index[s], G.index[t]
        self._tail, self._head = G.tail, G.head
        self._room = np.maximum(capacities(G, capacity), 0)  # an edge of negative capacity is none here
        if not G.is_directed():
            self._tail, self._head = np.append(G.tail, G.head), np.append(G.head, G.tail)
            self._room = np.append(self._room, self._room)
        self._nodes = len(G)
        if self._reaches(self._room >= INF)[self.source]:
            raise nx.NetworkXUnbounded("Infinite capacity path, flow unbounded above.")
        most = min(
            self._sum(self._tail == self.source), self._sum(self._head == self.sink), self._sum(self._room < INF)
        )
        result = _solve(
            np.append(self._tail, self.sink),
            np.append(self._head, self.source),
            np.append(self._room, min(most, INF)),
            np.append(np.zeros(len(self._tail), np.int64), -1),
            np.zeros(self._nodes, np.int64),
        )
        self.value = -result.cost
        self.flow = result.flow[:-1]

    def reaching_sink(self) -> NDArray[np.bool_]:
        """Mark the nodes from which the sink can be reached where the flow leaves room."""
        return self._reaches(self.flow < self._room, self.flow > 0)

    def _sum(self, arcs: NDArray[np.bool_]) -> int:
        """Return the capacity of some arcs, of any size; `INF` for infinite ones."""
        rooms = self._room[arcs & (self._tail != self._head)]
        return INF if (rooms >= INF).any() else sum(rooms.tolist())

    def _reaches(self, forward: NDArray[np.bool_], backward: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
        """Mark the nodes from which the sink can be reached over some arcs, and over others against their direction."""
        starts, ends = self._tail[forward], self._head[forward]
        if backward is not None:
            starts, ends = np.append(starts, self._head[backward]), np.append(ends, self._tail[backward])
        order = np.argsort(ends, kind="stable")
        into = starts[order].tolist()
        first = np.searchsorted(ends[order], np.arange(self._nodes + 1)).tolist()
        reached = np.zeros(self._nodes, np.bool_)
        reached[self.sink] = True
        queue = deque([self.sink])
        while queue:
            node = queue.popleft()
            for before in into[first[node] : first[node + 1]]:
                if not reached[before]:
                    reached[before] = True
                    queue.append(before)
        return reached


def _flow_dict(G: FlowGraph, flow: Int64Array) -> FlowDict:
    """Return flow by node, neighbour and, in a multigraph, key; in the order of the graph."""
    found: FlowDict = {node: {} for node in G}
    nodes = G.nodes
    ends = zip(G.tail.tolist(), G.head.tolist(), flow.tolist(), strict=True)
    if G.keys is None:
        for tail, head, units in ends:
            found[nodes[tail]][nodes[head]] = units
    else:
        for (tail, head, units), key in zip(ends, G.keys, strict=True):
            found[nodes[tail]].setdefault(nodes[head], {})[key] = units
    return found


def _solve(
    tail: Int64Array, head: Int64Array, capacity: Int64Array, cost: Any, supply: Sequence[int] | Int64Array
) -> FlowResult:
    """Solve through a network: of equally cheap flows repair finds those along shortest paths, as NetworkX's own functions do."""
    try:
        net = FlowNetwork()
        net.add_nodes(supply)
        arcs = net.add_arcs(tail, head, capacity, cost)
        solution = net.solve()
        return FlowResult(net.flow(arcs), solution.cost, net.potential(), solution.stats)
    except CostRangeError as error:
        decline(f"the numbers are too large for exact 64-bit arithmetic: {error}")


def scale_weights(
    G: nx.Graph,
    factor: float,
    *,
    flow_factor: float = 1,
    demand: Hashable = "demand",
    capacity: Hashable = "capacity",
    weight: Hashable = "weight",
    rounding: bool = False,
) -> nx.Graph:
    """Return a copy of a graph whose weights, capacities and demands are integers.

    Parameters
    ----------
    factor : float
        Multiplies every weight.
    flow_factor : float, optional
        Multiplies every capacity and demand.
    demand, capacity, weight : hashable, optional
        Names of the attributes.
    rounding : bool, optional
        Round to the nearest integer.  Else products must be integers, except for the error of floating point.

    Returns
    -------
    NetworkX graph
        Its flows are ``flow_factor`` times, its costs ``factor * flow_factor`` times those of ``G``.

    Raises
    ------
    networkx.NetworkXError
        If a product is no integer; it names the node or the edge.

    Examples
    --------
    >>> G = nx.DiGraph()
    >>> G.add_node("a", demand=-3)
    >>> G.add_node("b", demand=3)
    >>> G.add_edge("a", "b", weight=0.29)
    >>> nx.min_cost_flow_cost(scale_weights(G, 100)) / 100
    0.87
    """
    scaled = G.copy()

    def scale(what: str, data: dict[Hashable, Any], name: Hashable, by: float) -> None:
        value = data.get(name, 0)
        if name in data and not infinite(value):
            product = value * by
            nearest = round(product)
            if not rounding and abs(product - nearest) > 1e-9 * max(1, abs(nearest)):
                raise nx.NetworkXError(f"{what} has {name} {value!r}: {by} times that is no integer")
            data[name] = nearest

    for node, data in scaled.nodes(data=True):
        scale(f"node {node!r}", data, demand, flow_factor)
    edges = scaled.edges(keys=True, data=True) if scaled.is_multigraph() else scaled.edges(data=True)
    for *edge, data in edges:
        scale(f"edge {tuple(edge)!r}", data, capacity, flow_factor)
        scale(f"edge {tuple(edge)!r}", data, weight, factor)
    return scaled


def infinite(value: Any) -> bool:
    """Return True if a value is a float infinity."""
    return isinstance(value, float | np.floating) and math.isinf(value)


def integers(values: Sequence[Any], absent: int, what: Callable[[int], str]) -> list[int]:
    """Return values as ints; `what` gives the text of the error for one of them."""
    if set(map(type, values)) <= {int}:
        return list(values)
    integers = []
    for i, value in enumerate(values):
        try:
            integer = absent if value is ABSENT else int(value)
        except (TypeError, ValueError, OverflowError):
            decline(f"{what(i)}, which is not a finite number")
        if value is not ABSENT and integer != value:
            decline(
                f"{what(i)}: flowsched is exact on integers and takes no fractions; scale them to integers first "
                "(flowsched.nx_backend.scale_weights)"
            )
        integers.append(integer)
    return integers


def capacities(G: FlowGraph, name: Hashable) -> NDArray[np.int64]:
    """Return the capacities of edges: `INF` for infinite ones, which are those without the attribute, too."""
    given = G.edge_column(name)
    rooms = integers(
        [-1 if value == -math.inf else ABSENT if value == math.inf else value for value in given],
        INF,
        lambda i: f"edge {G.edge(i)!r} has {name} {given[i]!r}",
    )
    for i, (value, room) in enumerate(zip(given, rooms, strict=True)):
        if room >= INF and value is not ABSENT and value != math.inf:
            decline(f"edge {G.edge(i)!r} has {name} {value!r}: finite capacities must stay below 2**62")
    return np.array(np.maximum(rooms, -1) if rooms else [], dtype=np.int64)


def decline(why: str) -> NoReturn:
    """Leave the call to another backend, if NetworkX is going to try one; else raise `NetworkXError`."""
    config = nx.config
    if config.fallback_to_nx or any("flowsched" in names for names in dict(config.backend_priority).values()):
        raise NotImplementedError(why)
    raise nx.NetworkXError(
        f"{why} (where an edge was changed in place since an earlier call: G.__networkx_cache__.clear())"
    )
