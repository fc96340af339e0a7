"""Numbers of NetworkX graphs as integers, or the reason why they cannot be converted."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NoReturn

import networkx as nx
import numpy as np

from flowsched.network.results import INF
from flowsched.nx_backend.graph import ABSENT, FlowGraph

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from numpy.typing import NDArray


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
    G : NetworkX graph
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
    """Return values as ints; ``what`` words the objection to one of them."""
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
    """Leave the call to another backend, if NetworkX is going to try one; else it is the caller's to mend."""
    config = nx.config
    if config.fallback_to_nx or any("flowsched" in names for names in dict(config.backend_priority).values()):
        raise NotImplementedError(why)
    raise nx.NetworkXError(
        f"{why} (where an edge was changed in place since an earlier call: G.__networkx_cache__.clear())"
    )
