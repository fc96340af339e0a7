"""Maximum flow and minimum cut between two nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flowsched.boundary.validate import whole
from flowsched.exceptions import InputError, UnboundedError
from flowsched.network.arguments import capacities, common_size, integers
from flowsched.network.one_shot import min_cost_flow
from flowsched.network.results import INF, Int64Array

__all__ = ["MaxFlow", "max_flow"]


@dataclass(frozen=True)
class MaxFlow:
    """A maximum flow, and the cut that proves it.

    Attributes
    ----------
    value : int
        Units that leave the source.
    flow : ndarray of int64, shape (m,)
    cut : ndarray of bool, shape (n,)
        True on the source's side of a minimum cut: the arcs that leave this side are full, and those that enter it are empty.
    """

    value: int
    flow: Int64Array
    cut: NDArray[np.bool_]


def max_flow(tail: ArrayLike, head: ArrayLike, capacity: ArrayLike, source: int, sink: int) -> MaxFlow:
    """Send as much as possible from one node to another.

    It is a min-cost flow whose arcs cost nothing and whose supply may stay at the source, at a price.

    Parameters
    ----------
    tail, head : array of int, shape (m,), or int
        Node ids; parallel arcs and self-loops are allowed.
    capacity : array of int, shape (m,), or int
        May be `INF`, or infinite.
    source, sink : int
        Two different nodes.

    Raises
    ------
    InputError
        Names the argument and the index.
    UnboundedError
        A path of unlimited arcs leads from source to sink.

    Examples
    --------
    >>> import flowsched as fs
    >>> found = fs.max_flow([0, 0, 1, 2], [1, 2, 3, 3], [3, 2, 2, 9], source=0, sink=3)
    >>> found.value, found.flow, found.cut
    (4, array([2, 2, 2, 2]), array([ True,  True, False, False]))
    """
    size = common_size(tail, head, capacity)
    tails, heads, room = (
        integers("tail", tail, size),
        integers("head", head, size),
        capacities("capacity", capacity, size),
    )
    source, sink = whole("source", source, 0), whole("sink", sink, 0)
    if source == sink:
        raise InputError(f"sink: another node than the source expected, got {sink}")
    nodes = max(source, sink, int(tails.max(initial=-1)), int(heads.max(initial=-1))) + 1
    sides = (
        room[(one == node) & (other != node)] for one, other, node in ((tails, heads, source), (heads, tails, sink))
    )
    limited = int(room[room < INF].sum())
    most = min(limited if (side == INF).any() else int(side.sum()) for side in sides) + 1
    supply = np.zeros(nodes, np.int64)
    supply[source], supply[sink] = most, -most
    found = min_cost_flow(tails, heads, room, 0, supply, partial=True)
    value = most - int(found.unshipped[source])
    if value == most:
        arcs = _unlimited_path(tails, heads, room, source, sink)
        raise UnboundedError(f"the unlimited arcs {' '.join(map(str, arcs.tolist()))} lead from source to sink", arcs)
    # The source keeps a unit at a price, so the sink's potential is higher than its own; an arc between different potentials is full or empty.
    return MaxFlow(value, found.flow, found.potential <= found.potential[source])


def _unlimited_path(tail: Int64Array, head: Int64Array, room: Int64Array, source: int, sink: int) -> Int64Array:
    """Return the arcs of a path from source to sink whose arcs are unlimited."""
    reached: dict[int, int] = {source: -1}
    front = [source]
    unlimited = np.flatnonzero(room >= INF)
    while sink not in reached:
        here = unlimited[np.isin(tail[unlimited], front)]
        front = []
        for arc in here.tolist():
            if int(head[arc]) not in reached:
                reached[int(head[arc])] = arc
                front.append(int(head[arc]))
    path, node = [], sink
    while node != source:
        path.append(reached[node])
        node = int(tail[path[-1]])
    return np.array(path[::-1], np.int64)
