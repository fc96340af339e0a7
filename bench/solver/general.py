"""Networks that are not scheduling: the families on which min-cost flow solvers are usually compared.

All are drawn from a seed and feasible by construction: a flow is drawn first, and the capacities hold it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.cli.solvers import without_lower
from flowsched.network.dimacs import read_dimacs
from flowsched.network.problem import FlowProblem

__all__ = ["Way", "families", "netgen", "recorded", "unit_paths", "warm_families"]

Ints = NDArray[np.int64]
Make = Callable[[int], FlowProblem]
Way = tuple[int, int, int]
"""Source, sink and amount of a part of a flow."""


def families(quick: bool) -> dict[str, Make]:
    """Return generators by name; each takes a seed."""
    if quick:
        return {
            "goto 1k/8k": lambda seed: goto(1_024, 8, seed),
            "grid 32x64": lambda seed: grid(32, 64, seed),
            "road 2k": lambda seed: road(32, 64, seed),
            "assignment sparse 1k": lambda seed: sparse_assignment(1_024, 8, seed),
            "assignment dense 200": lambda seed: dense_assignment(200, seed),
            "transport 60x80": lambda seed: transport(60, 80, seed),
        }
    made: dict[str, Make] = {
        "goto 4k/32k": lambda seed: goto(4_096, 8, seed),
        "goto 1k/32k": lambda seed: goto(1_024, 32, seed),
        "grid wide 256x32": lambda seed: grid(256, 32, seed),
        "grid long 16x512": lambda seed: grid(16, 512, seed),
        "grid square 128x128": lambda seed: grid(128, 128, seed),
        "road 20k": lambda seed: road(128, 160, seed),
        "road 20k, many sources": lambda seed: road(128, 160, seed, terminals=1_000),
        "assignment sparse 8k": lambda seed: sparse_assignment(8_192, 8, seed),
        "assignment sparse 2k x 32": lambda seed: sparse_assignment(2_048, 32, seed),
        "assignment dense 400": lambda seed: dense_assignment(400, seed),
        "transport 200x300": lambda seed: transport(200, 300, seed),
        "transport 2k x 2k sparse": lambda seed: transport(2_000, 2_000, seed, degree=16),
    }
    if importlib.util.find_spec("pynetgen"):
        made |= {
            "netgen 8k/64k": lambda seed: netgen(8_192, 65_536, seed),
            "netgen 1k/16k": lambda seed: netgen(1_024, 16_384, seed),
            "netgen 4k/64k": lambda seed: netgen(4_096, 65_536, seed),
        }
    return made


def warm_families(quick: bool) -> dict[str, Make]:
    """Return generators of the networks that change; each takes a seed."""
    if quick:
        return {
            "grid 32x64": lambda seed: grid(32, 64, seed),
            "transport 60x80": lambda seed: transport(60, 80, seed),
        }
    made: dict[str, Make] = {
        "goto 1k/8k": lambda seed: goto(1_024, 8, seed),
        "grid 64x64": lambda seed: grid(64, 64, seed),
        "road 5k": lambda seed: road(64, 80, seed),
        "assignment sparse 2k x 8": lambda seed: sparse_assignment(2_048, 8, seed),
        "transport 200x300": lambda seed: transport(200, 300, seed),
    }
    if importlib.util.find_spec("pynetgen"):
        made |= {
            "netgen 2k/16k": lambda seed: netgen(2_048, 16_384, seed),
            "netgen 8k/64k": lambda seed: netgen(8_192, 65_536, seed),
        }
    return made


def netgen(nodes: int, arcs: int, seed: int) -> FlowProblem:
    """NETGEN by pynetgen, with the parameters of the family NETGEN-8: costs to 10,000, capacities to 1,000."""
    import pynetgen

    ends = int(np.sqrt(nodes))
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        path = Path(folder) / "netgen.min"
        pynetgen.netgen_generate(
            seed=seed + 1, nodes=nodes, sources=ends, sinks=ends, density=arcs, mincost=1, maxcost=10_000,
            supply=1_000 * ends, hicost=30, capacitated=100, mincap=1, maxcap=1_000, rng=1, fname=str(path),
        )  # fmt: skip
        return read_dimacs(path)


def goto(nodes: int, degree: int, seed: int) -> FlowProblem:
    """A torus in the manner of GOTO: each node's arcs go to its followers at strides up to 2 sqrt(nodes), one source.

    Arcs of short strides are cheap and narrow, arcs of long ones wide and expensive, so that the flow has to wind.
    """
    rng = np.random.default_rng(seed)
    side = int(np.sqrt(nodes))
    strides = np.concatenate(
        [[1, side], rng.choice(np.delete(np.arange(2, 2 * side), side - 2), degree - 2, replace=False)]
    )
    strides.sort()
    tail = np.repeat(np.arange(nodes), degree)
    stride = np.tile(strides, nodes)
    capacity = rng.integers(1, 16_384, len(tail)) * stride // (2 * side) + 1
    cost = rng.integers(1, 4_096, len(tail)) * stride // side + 1
    witness = np.zeros(len(tail), np.int64)
    sink, supply = nodes // 2, 0
    for _ in range(4 * side):
        amount, at = int(rng.integers(1, 200)), 0
        supply += amount
        while at < sink:
            arc = at * degree + int(rng.integers(0, np.searchsorted(strides, sink - at, "right")))
            witness[arc] += amount
            at += int(stride[arc])
    supplies = np.zeros(nodes, np.int64)
    supplies[[0, sink]] = supply, -supply
    return FlowProblem(tail, (tail + stride) % nodes, np.maximum(capacity, witness), cost, supplies)


def grid(wide: int, long: int, seed: int) -> FlowProblem:
    """A grid with arcs both ways between neighbours; flow from the first column to the last."""
    rng = np.random.default_rng(seed)
    streets = _Streets(wide, long)
    for start, end in zip(rng.permutation(wide), rng.permutation(wide), strict=True):
        turn, amount = int(rng.integers(0, long)), int(rng.integers(1, 2_000))
        streets.send((start, 0), (start, turn), amount)
        streets.send((start, turn), (end, turn), amount)
        streets.send((end, turn), (end, long - 1), amount)
    arcs = len(streets.tail)
    capacity = np.maximum(rng.integers(1, 5_000, arcs), streets.flow)
    return FlowProblem(streets.tail, streets.head, capacity, rng.integers(1, 10_000, arcs), streets.supply)


def road(wide: int, long: int, seed: int, terminals: int = 20) -> FlowProblem:
    """A planar road map: a jittered grid with a fifth of its streets missing, a few avenues, costs as the crow flies."""
    rng = np.random.default_rng(seed)
    streets = _Streets(wide, long)
    ends = np.column_stack(np.divmod(rng.choice(wide * long, 2 * terminals, replace=False), long))
    for start, end in zip(ends[:terminals].tolist(), ends[terminals:].tolist(), strict=True):
        amount, corner = int(rng.integers(5, 60)), (start[0], end[1])
        streets.send((start[0], start[1]), corner, amount)
        streets.send(corner, (end[0], end[1]), amount)
    streets_both = len(streets.tail) // 2  # the second half are the first ones' returns
    both = [np.tile(rng.random(streets_both) < share, 2) for share in (0.8, 0.1)]
    place = np.column_stack(np.divmod(np.arange(wide * long), long)) * 100 + rng.integers(-40, 40, (wide * long, 2))
    cost = np.hypot(*(place[streets.tail] - place[streets.head]).T).astype(np.int64) + 1
    capacity = np.where(both[1], 400, np.tile(rng.integers(20, 60, streets_both), 2))
    keep = both[0] | (streets.flow > 0)
    capacity = np.maximum(capacity, streets.flow)
    return FlowProblem(streets.tail[keep], streets.head[keep], capacity[keep], cost[keep], streets.supply)


def sparse_assignment(size: int, degree: int, seed: int) -> FlowProblem:
    """Each of ``size`` agents has ``degree`` jobs that it can do, among them one of a hidden perfect matching."""
    rng = np.random.default_rng(seed)
    tail = np.repeat(np.arange(size), degree)
    head = rng.integers(0, size, (size, degree))
    head[:, 0] = rng.permutation(size)
    return _bipartite(tail, head.ravel(), rng.integers(1, 10_000, size * degree), 1, np.ones(size), np.ones(size))


def dense_assignment(size: int, seed: int) -> FlowProblem:
    """Each agent can do each job."""
    rng = np.random.default_rng(seed)
    tail, head = np.divmod(np.arange(size * size), size)
    return _bipartite(tail, head, rng.integers(1, 10_000, size * size), 1, np.ones(size), np.ones(size))


def transport(sources: int, sinks: int, seed: int, degree: int | None = None) -> FlowProblem:
    """From sources to sinks without limits, each pair or ``degree`` sinks a source."""
    rng = np.random.default_rng(seed)
    if degree is None:
        tail, head = np.divmod(np.arange(sources * sinks), sinks)
    else:
        tail, head = np.repeat(np.arange(sources), degree), rng.integers(0, sinks, sources * degree)
    witness = rng.integers(1, 100, len(tail)) * (rng.random(len(tail)) < 0.2)
    supply, demand = np.bincount(tail, witness, sources), np.bincount(head, witness, sinks)
    return _bipartite(tail, head, rng.integers(1, 10_000, len(tail)), int(supply.sum()), supply, demand)


def named(quick: bool, seed: int, data: Path | None) -> dict[str, Callable[[], FlowProblem]]:
    """Return how to get the networks of cold solves: the drawn ones, and those recorded ones that `data` has."""
    makers: dict[str, Callable[[], FlowProblem]] = {n: partial(make, seed) for n, make in families(quick).items()}
    known = recorded(data / "flowlessly") if data is not None else {}
    return makers | {name: partial(_same, problem) for name, problem in known.items()}


def _same(problem: FlowProblem) -> FlowProblem:
    return problem


def recorded(folder: Path) -> dict[str, FlowProblem]:
    """Return the larger scheduling networks that Firmament wrote for Flowlessly, if the folder has them."""
    names = (
        "graph_100m_16j_100t_10p",
        "graph_1000m_2j_100t_10p",
        "graph_1000m_32j_100t_10p",
        "graph_1000m_64j_100t_10p",
    )
    paths = {name: folder / f"{name}.in.gz" for name in names}
    return {f"flowlessly {n[6:-9]}": without_lower(read_dimacs(path)) for n, path in paths.items() if path.exists()}


def unit_paths(problem: FlowProblem, flow: Ints) -> list[Way]:
    """Split a flow into paths from sources to sinks; its cycles, if any, are left out."""
    left = flow.copy()
    order = np.argsort(problem.tail, kind="stable")
    first = np.searchsorted(problem.tail[order], np.arange(len(problem.supply) + 1)).tolist()
    arcs, head = order.tolist(), problem.head.tolist()
    excess = problem.supply.tolist()
    paths: list[Way] = []
    for source in np.flatnonzero(problem.supply > 0).tolist():
        while excess[source] > 0:
            walk: list[int] = []
            node, seen = source, {source: 0}
            while not (excess[node] < 0):
                while left[arcs[first[node]]] == 0:
                    first[node] += 1
                arc = arcs[first[node]]
                walk.append(arc)
                node = head[arc]
                if node in seen:  # a cycle of flow: cancel it
                    cycle = walk[seen[node] :]
                    left[cycle] -= left[cycle].min()
                    walk, node, seen = [], source, {source: 0}
                else:
                    seen[node] = len(walk)
            amount = min(int(left[walk].min()), excess[source], -excess[node])
            left[walk] -= amount
            excess[source] -= amount
            excess[node] += amount
            paths.append((source, node, amount))
    return paths


class _Streets:
    """Return the arcs of a grid, eastward, southward and then their returns, and a witness flow on them."""

    def __init__(self, wide: int, long: int) -> None:
        self.node = np.arange(wide * long).reshape(wide, long)
        ways = [(self.node[:, :-1], self.node[:, 1:]), (self.node[:-1], self.node[1:])]
        ways += [(head, tail) for tail, head in ways]
        self.tail = np.concatenate([tail.ravel() for tail, _ in ways])
        self.head = np.concatenate([head.ravel() for _, head in ways])
        self.flow = np.zeros(len(self.tail), np.int64)
        self.supply = np.zeros(wide * long, np.int64)
        cuts = np.cumsum([tail.size for tail, _ in ways])[:-1]
        self.ways = [part.reshape(tail.shape) for part, (tail, _) in zip(np.split(self.flow, cuts), ways, strict=True)]

    def send(self, start: tuple[int, int], end: tuple[int, int], amount: int) -> None:
        """Send flow along a row or a column."""
        (top, left), (bottom, right) = np.sort([start, end], axis=0)
        east, south, west, north = self.ways
        (east if start[1] <= end[1] else west)[start[0], left:right] += amount
        (south if start[0] <= end[0] else north)[top:bottom, end[1]] += amount
        self.supply[self.node[start]] += amount
        self.supply[self.node[end]] -= amount


def _bipartite(
    tail: Ints, head: Ints, cost: Ints, capacity: int, supply: NDArray[Any], demand: NDArray[Any]
) -> FlowProblem:
    supplies = np.concatenate([supply, -demand]).astype(np.int64)
    return FlowProblem(tail, head + len(supply), np.full(len(tail), capacity), cost, supplies)
