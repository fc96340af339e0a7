"""Time of a warm solve in cold solves of the same network: families drawn by a seed, changes of every kind and size.

A network is feasible by construction and stays so: its supplies are sums of *ways*, each with an amount, and every
arc has room for all of them.  A change draws again the amounts of some of the ways, the spare room, or the costs; or it
removes arcs or nodes and adds them again under new ids.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import thread_time

import numpy as np
from numpy.typing import NDArray

from bench.solver.findings import Findings
from flowsched.network.flow_network import FlowNetwork

__all__ = ["FAMILIES", "KINDS", "Drawn", "Live", "draw", "measure", "rows"]

Ints = NDArray[np.int64]
Pairs = tuple[Ints, Ints]
KINDS = ("supplies", "costs", "capacities", "costs and supplies", "arcs", "nodes")


@dataclass
class Drawn:
    """A network, the ways that its supplies are made of, and the draws of its numbers."""

    tail: Ints
    head: Ints
    cost: Ints
    spare: Ints
    """Capacity above the sum of the ways' amounts."""
    ways: list[list[int]]
    ends: Ints
    """Source and sink by way."""
    amount: Ints
    carried: Ints
    nodes: int
    costs: Callable[[np.random.Generator, int], Ints]
    spares: Callable[[np.random.Generator, int], Ints]

    def __post_init__(self) -> None:
        """Add up the largest amounts of the ways."""
        self.need = np.zeros(len(self.tail), np.int64)
        for way, amount in zip(self.ways, self.amount.tolist(), strict=True):
            self.need[way] += amount

    @property
    def capacity(self) -> Ints:
        """Room for all ways, and the spare room."""
        return self.need + self.spare

    @property
    def supply(self) -> Ints:
        """Supplies of the nodes, by the amounts that the ways carry now."""
        sums = np.zeros(self.nodes, np.int64)
        np.add.at(sums, self.ends[:, 0], self.carried)
        np.subtract.at(sums, self.ends[:, 1], self.carried)
        return sums


class Live:
    """A kept network under changes."""

    def __init__(self, drawn: Drawn) -> None:
        self.drawn = drawn
        self.net = FlowNetwork()
        self.node = self.net.add_nodes(drawn.supply)
        self.arc = self.net.add_arcs(self.node[drawn.tail], self.node[drawn.head], drawn.capacity, drawn.cost)
        self.supply = drawn.supply

    def change(self, kind: str, share: float, rng: np.random.Generator) -> Callable[[], None]:
        """Draw a change of a share of all; return a function that applies it to the network."""
        drawn, net = self.drawn, self.net
        todo: list[Callable[[], None]] = []
        if "supplies" in kind:
            ways = _some(rng, len(drawn.amount), share)
            drawn.carried[ways] = rng.integers(0, drawn.amount[ways] + 1)
            new = drawn.supply
            nodes = np.flatnonzero(new != self.supply)
            self.supply = new
            ids, supplies = self.node[nodes], new[nodes]
            todo.append(lambda: net.set_supply(ids, supplies))
        if "costs" in kind:
            arcs = _some(rng, len(drawn.cost), share)
            drawn.cost[arcs] = drawn.costs(rng, len(arcs))
            priced, costs = self.arc[arcs], drawn.cost[arcs]
            todo.append(lambda: net.set_cost(priced, costs))
        if kind == "capacities":
            arcs = _some(rng, len(drawn.spare), share)
            drawn.spare[arcs] = drawn.spares(rng, len(arcs))
            widened, room = self.arc[arcs], drawn.capacity[arcs]
            todo.append(lambda: net.set_capacity(widened, room))
        if kind == "arcs":
            arcs = _some(rng, len(drawn.cost), share)
            drawn.cost[arcs] = drawn.costs(rng, len(arcs))
            todo.append(lambda: self._renew(arcs))
        if kind == "nodes":
            nodes = _some(rng, drawn.nodes, share)
            gone = np.zeros(drawn.nodes, bool)
            gone[nodes] = True
            lost = np.flatnonzero(gone[drawn.tail] | gone[drawn.head])
            todo.append(lambda: self._renew_nodes(nodes, lost))

        def apply() -> None:
            for one in todo:
                one()

        return apply

    def _renew(self, arcs: Ints) -> None:
        self.net.remove_arcs(self.arc[arcs])
        self._add(arcs)

    def _renew_nodes(self, nodes: Ints, arcs: Ints) -> None:
        self.net.remove_nodes(self.node[nodes])
        self.node[nodes] = self.net.add_nodes(self.supply[nodes])
        self._add(arcs)

    def _add(self, arcs: Ints) -> None:
        drawn = self.drawn
        tail, head = self.node[drawn.tail[arcs]], self.node[drawn.head[arcs]]
        self.arc[arcs] = self.net.add_arcs(tail, head, drawn.capacity[arcs], drawn.cost[arcs])

    def cold(self) -> FlowNetwork:
        """Return a new network of the same data."""
        drawn = self.drawn
        net = FlowNetwork()
        net.add_nodes(drawn.supply)
        net.add_arcs(drawn.tail, drawn.head, drawn.capacity, drawn.cost)
        return net


def _some(rng: np.random.Generator, count: int, share: float) -> Ints:
    return np.sort(rng.choice(count, min(max(round(count * share), 1), count), replace=False))


# -- networks ---------------------------------------------------------------------------------------------------------


def _paths(tail: Ints, head: Ints, nodes: int, ends: Ints, rng: np.random.Generator) -> list[list[int]]:
    """Arcs of a way from each source to its sink, shortest by random lengths; none where no way leads there."""
    order = np.argsort(tail, kind="stable")
    first = np.searchsorted(tail[order], np.arange(nodes + 1)).tolist()
    arcs, into = order.tolist(), head.tolist()
    length = rng.integers(1, 1000, len(tail)).tolist()
    start, found = tail.tolist(), {}
    for source in np.unique(ends[:, 0]).tolist():
        far, by, heap = {source: 0}, {}, [(0, source)]
        wanted = set(ends[ends[:, 0] == source, 1].tolist())
        while heap and wanted:
            d, v = heapq.heappop(heap)
            if d > far[v]:
                continue
            wanted.discard(v)
            for a in arcs[first[v] : first[v + 1]]:
                w = into[a]
                if d + length[a] < far.get(w, 1 << 60):
                    far[w], by[w] = d + length[a], a
                    heapq.heappush(heap, (d + length[a], w))
        found[source] = by
    ways = []
    for source, sink in ends.tolist():
        way, at = [], sink
        while at != source and sink in found[source]:
            way.append(found[source][at])
            at = start[way[-1]]
        ways.append(way)
    return ways


def _uniform(low: int, high: int) -> Callable[[np.random.Generator, int], Ints]:
    return lambda rng, count: rng.integers(low, high + 1, count)


def _through(
    rng: np.random.Generator,
    pairs: Pairs,
    nodes: int,
    ends: Ints,
    amount: Ints,
    costs: Callable[[np.random.Generator, int], Ints],
    spares: Callable[[np.random.Generator, int], Ints],
) -> Drawn:
    tail, head = (np.asarray(side, np.int64) for side in pairs)
    ends = ends[ends[:, 0] != ends[:, 1]]
    ways = _paths(tail, head, nodes, ends, rng)
    ends, ways = ends[[bool(way) for way in ways]], [way for way in ways if way]
    amount = amount[: len(ends)]
    carried = rng.integers((amount + 1) // 2, amount + 1)
    count = len(tail)
    return Drawn(tail, head, costs(rng, count), spares(rng, count), ways, ends, amount, carried, nodes, costs, spares)


def _pairs_of(rng: np.random.Generator, nodes: int, sources: int, count: int) -> Ints:
    few = rng.choice(nodes, 2 * sources, replace=False)
    return np.column_stack([rng.choice(few[:sources], count), rng.choice(few[sources:], count)])


def _both(tail: Ints, head: Ints) -> Pairs:
    return np.concatenate([tail, head]), np.concatenate([head, tail])


def _lattice(wide: int, long: int) -> tuple[Ints, Ints]:
    at = np.arange(wide * long).reshape(wide, long)
    return np.concatenate([at[:, :-1].ravel(), at[:-1].ravel()]), np.concatenate([at[:, 1:].ravel(), at[1:].ravel()])


def netgen_like(rng: np.random.Generator, size: int) -> Drawn:
    """A random network with a ring, few sources and sinks, a third of the arcs narrow."""
    ring = rng.permutation(size)
    more = rng.integers(0, size, (2, 7 * size))
    more = more[:, more[0] != more[1]]
    tail, head = np.concatenate([ring, more[0]]), np.concatenate([np.roll(ring, -1), more[1]])
    ends = _pairs_of(rng, size, max(size // 40, 2), 2 * size // 10)
    spares = _uniform(0, int(rng.integers(20, 1500)))
    return _through(rng, (tail, head), size, ends, rng.integers(1, 200, len(ends)), _uniform(1, 10_000), spares)


def grid(rng: np.random.Generator, size: int) -> Drawn:
    """A square grid, arcs both ways, terminals anywhere."""
    side = int(np.sqrt(size))
    ends = _pairs_of(rng, side * side, max(side // 2, 2), 3 * side)
    spares = _uniform(0, int(rng.integers(10, 800)))
    return _through(
        rng, _both(*_lattice(side, side)), side * side, ends, rng.integers(1, 60, len(ends)), _uniform(1, 1000), spares
    )


def gridgen(rng: np.random.Generator, size: int) -> Drawn:
    """A grid with as many random arcs again."""
    side = int(np.sqrt(size))
    tail, head = _both(*_lattice(side, side))
    more = rng.integers(0, side * side, (2, len(tail)))
    more = more[:, more[0] != more[1]]
    ends = _pairs_of(rng, side * side, max(side, 2), 4 * side)
    pairs = np.concatenate([tail, more[0]]), np.concatenate([head, more[1]])
    spares = _uniform(0, int(rng.integers(10, 300)))
    return _through(rng, pairs, side * side, ends, rng.integers(1, 60, len(ends)), _uniform(1, 10_000), spares)


def goto(rng: np.random.Generator, size: int) -> Drawn:
    """A torus whose cheap arcs are short and narrow, one source."""
    side = int(np.sqrt(size))
    strides = np.sort(np.concatenate([[1, side], rng.integers(2, 2 * side, 6)]))
    tail, stride = np.repeat(np.arange(size), 8), np.tile(strides, size)
    ends = np.tile([[0, size // 2]], (4 * side, 1))
    drawn = _through(
        rng,
        (tail, (tail + stride) % size),
        size,
        ends,
        rng.integers(1, 200, len(ends)),
        _uniform(1, 4096),
        _uniform(1, 4096),
    )
    drawn.cost = drawn.cost * stride // side + 1
    drawn.spare = drawn.spare * stride // (2 * side)
    return drawn


def transport_sparse(rng: np.random.Generator, size: int) -> Drawn:
    """Sources and sinks of supplies in the hundreds, each source with eight sinks."""
    half = size // 2
    tail = np.repeat(np.arange(half), 8)
    head = half + rng.integers(0, half, len(tail))
    chosen = rng.choice(len(tail), 2 * half, replace=False)
    ends = np.column_stack([tail[chosen], head[chosen]])
    spares = _uniform(0, int(rng.integers(5, 400)))
    return _through(rng, (tail, head), size, ends, rng.integers(1, 200, len(ends)), _uniform(1, 1000), spares)


def transport_dense(rng: np.random.Generator, size: int) -> Drawn:
    """Every source to every sink."""
    left = max(int(np.sqrt(2 * size)), 4)
    right = left * 4 // 3
    tail, head = (side.ravel() for side in np.divmod(np.arange(left * right), right))
    head = head + left
    chosen = rng.choice(len(tail), 3 * left, replace=False)
    ends = np.column_stack([tail[chosen], head[chosen]])
    nodes = left + right
    return _through(
        rng, (tail, head), nodes, ends, rng.integers(1, 200, len(ends)), _uniform(1, 1000), _uniform(0, 300)
    )


def assignment(rng: np.random.Generator, size: int) -> Drawn:
    """Eight partners each, of which one is sure."""
    half = size // 2
    tail = np.repeat(np.arange(half), 8)
    head = half + rng.integers(0, half, len(tail))
    head[::8] = half + rng.permutation(half)
    ends = np.column_stack([tail[::8], head[::8]])
    return _through(rng, (tail, head), size, ends, np.ones(half, np.int64), _uniform(1, 10_000), _uniform(1, 1))


def planar(rng: np.random.Generator, size: int) -> Drawn:
    """A triangulated plane as phase unwrapping has it: residues of +1 and -1 anywhere, all arcs both ways and wide."""
    side = int(np.sqrt(size))
    tail, head = _lattice(side, side)
    at = np.arange(side * side).reshape(side, side)
    slash = rng.random((side - 1, side - 1)) < 0.5
    tail = np.concatenate([tail, np.where(slash, at[:-1, :-1], at[:-1, 1:]).ravel()])
    head = np.concatenate([head, np.where(slash, at[1:, 1:], at[1:, :-1]).ravel()])
    count = max(int(side * side * rng.uniform(0.005, 0.15)), 4)
    source = rng.integers(0, side * side, count)
    step = rng.integers(-6, 7, (2, count))
    row, column = np.divmod(source, side)
    sink = np.clip(row + step[0], 0, side - 1) * side + np.clip(column + step[1], 0, side - 1)
    ends = np.column_stack([source, sink])
    ends = ends[source != sink]
    top = int(rng.choice([100, 3000]))
    return _through(
        rng, _both(tail, head), side * side, ends, np.ones(len(ends), np.int64), _uniform(1, top), _uniform(1, 9)
    )


def long_thin(rng: np.random.Generator, size: int) -> Drawn:
    """A strip of 8 by n / 8 nodes, flow along it."""
    long = size // 8
    at = np.arange(8 * long).reshape(8, long)
    ends = np.column_stack([rng.choice(at[:, : long // 8].ravel(), 60), rng.choice(at[:, -(long // 8) :].ravel(), 60)])
    return _through(
        rng, _both(*_lattice(8, long)), 8 * long, ends, rng.integers(1, 60, 60), _uniform(1, 10_000), _uniform(0, 500)
    )


def lot_sizing(rng: np.random.Generator, size: int) -> Drawn:
    """Items by period: production from one source, storage from period to period, demands everywhere."""
    items = int(rng.integers(4, 20))
    periods = max(size // items, 4)
    at = 1 + np.arange(items * periods).reshape(items, periods)
    made = np.repeat(at.ravel(), 4)
    tail = np.concatenate([np.zeros(len(made), np.int64), at[:, :-1].ravel(), at[:, 1:].ravel()])
    head = np.concatenate([made, at[:, 1:].ravel(), at[:, :-1].ravel()])
    ends = np.column_stack([np.zeros(at.size, np.int64), at.ravel()])
    costs, spares = _uniform(1, 500), _uniform(0, 60)
    return _through(rng, (tail, head), 1 + at.size, ends, rng.integers(1, 50, at.size), costs, spares)


def shortest_paths(rng: np.random.Generator, size: int) -> Drawn:
    """One source, a unit to nearly every node, wide arcs."""
    more = rng.integers(0, size, (2, 5 * size))
    tail = np.concatenate([rng.integers(0, np.arange(1, size)), more[0]])
    head = np.concatenate([np.arange(1, size), more[1]])
    keep = tail != head
    ends = np.column_stack([np.zeros(size - 1, np.int64), np.arange(1, size)])
    ends = ends[rng.random(len(ends)) < 0.8]
    return _through(
        rng, (tail[keep], head[keep]), size, ends, np.ones(len(ends), np.int64), _uniform(1, 10_000), _uniform(0, 2000)
    )


def circulation(rng: np.random.Generator, size: int) -> Drawn:
    """Costs of both signs, hardly any supplies."""
    more = rng.integers(0, size, (2, 8 * size))
    more = more[:, more[0] != more[1]]
    ends = _pairs_of(rng, size, 4, 8)
    return _through(rng, (more[0], more[1]), size, ends, rng.integers(1, 50, 8), _uniform(-300, 1000), _uniform(1, 100))


def scheduling(rng: np.random.Generator, size: int, load: float) -> Drawn:
    """Tasks, their machines, racks, one way to wait, and a sink; `load` tasks for each slot."""
    slots = 4
    machines = max(size // 7, 8)
    tasks = int(machines * slots * load)
    racks = machines // 20 + 1
    task = np.arange(tasks)
    machine, rack = tasks + np.arange(machines), tasks + machines + np.arange(racks)
    hub, wait = tasks + machines + racks, tasks + machines + racks + 1
    sink = wait + 1
    liked = rng.integers(0, machines, (tasks, 5))
    near = rng.integers(0, racks, (tasks, 2))
    of_rack = np.arange(machines) % racks
    room, free = np.full(machines, slots), np.full(racks, tasks)
    parts = [
        (np.repeat(task, 5), machine[liked.ravel()], np.ones(5 * tasks, np.int64), rng.integers(1, 60, 5 * tasks)),
        (np.repeat(task, 2), rack[near.ravel()], np.ones(2 * tasks, np.int64), rng.integers(50, 90, 2 * tasks)),
        (task, np.full(tasks, hub), np.ones(tasks, np.int64), rng.integers(100, 120, tasks)),
        (task, np.full(tasks, wait), np.ones(tasks, np.int64), rng.integers(150, 400, tasks)),
        (np.full(racks, hub), rack, free, np.zeros(racks, np.int64)),
        (rack[of_rack], machine, room, np.zeros(machines, np.int64)),
        (machine, np.full(machines, sink), room, np.zeros(machines, np.int64)),
        (np.array([wait]), np.array([sink]), np.array([tasks]), np.array([0])),
    ]
    tail, head, room, cost = (np.concatenate(column) for column in zip(*parts, strict=True))
    waiting, last = np.flatnonzero(head == wait), len(tail) - 1
    room[waiting] = room[last] = 0  # the ways need all of it
    ways = [[a, last] for a in waiting.tolist()]
    ends = np.column_stack([task, np.full(tasks, sink)])
    carried = (rng.random(tasks) < 0.9).astype(np.int64)

    def spares(rng: np.random.Generator, count: int) -> Ints:  # of arcs as they come: nearly all are a task's
        return rng.integers(0, 2, count)

    return Drawn(
        tail, head, cost, room, ways, ends, np.ones(tasks, np.int64), carried, sink + 1, _uniform(1, 120), spares
    )  # fmt: skip


def scheduling_spare(rng: np.random.Generator, size: int) -> Drawn:
    """Scheduling, half to nearly all slots taken."""
    return scheduling(rng, size, float(rng.uniform(0.5, 1.0)))


def scheduling_full(rng: np.random.Generator, size: int) -> Drawn:
    """Scheduling, as many tasks as slots or more."""
    return scheduling(rng, size, float(rng.uniform(1.05, 1.6)))


FAMILIES: dict[str, Callable[[np.random.Generator, int], Drawn]] = {
    "random": netgen_like,
    "grid": grid,
    "gridgen": gridgen,
    "goto": goto,
    "transport, sparse": transport_sparse,
    "transport, dense": transport_dense,
    "assignment": assignment,
    "planar": planar,
    "long and thin": long_thin,
    "lot sizing": lot_sizing,
    "shortest paths": shortest_paths,
    "circulation": circulation,
    "scheduling": scheduling_spare,
    "scheduling, full": scheduling_full,
}


def draw(family: str, seed: int, size: int) -> Live:
    """Draw a network of about `size` nodes."""
    return Live(FAMILIES[family](np.random.default_rng([seed, list(FAMILIES).index(family)]), size))


# -- measuring ----------------------------------------------------------------------------------------------------------


def rows(
    family: str, seed: int, size: int, kind: str, share: float, rounds: int, repeats: int
) -> Iterator[tuple[float, float, str]]:
    """Yield, by round, seconds of change and solve, those of a cold solve, and by which algorithms."""
    warm, cold = np.full((2, repeats, rounds), np.inf)
    ways = [""] * rounds
    for repeat in range(repeats):
        live = draw(family, seed, size)
        rng = np.random.default_rng([seed, 7])
        live.net.solve()
        for turn in range(rounds):
            change = live.change(kind, share, rng)
            begin = thread_time()
            change()
            solution = live.net.solve()
            warm[repeat, turn] = thread_time() - begin
            new = live.cold()
            begin = thread_time()
            other = new.solve()
            cold[repeat, turn] = thread_time() - begin
            if other.cost != solution.cost:
                raise AssertionError(
                    f"{family}, seed {seed}, {kind}, {share:g}: {solution.cost} warm, {other.cost} cold"
                )
            ways[turn] = f"{solution.stats['algorithm']}, cold {other.stats['algorithm']}"
    yield from zip(warm.min(0).tolist(), cold.min(0).tolist(), ways, strict=True)


def measure(findings: Findings, seed: int, size: int, shares: tuple[float, ...], repeats: int) -> None:
    """Add a row for each family: the time of a warm solve in cold solves; and the worst of all."""
    worst: dict[str, float] = {}
    for family in FAMILIES:
        ratios, slowest = [], ("", 0.0)
        for kind in KINDS:
            for share in shares:
                for warm, cold, way in rows(family, seed, size, kind, share, 3, repeats):
                    ratios.append(warm / cold)
                    slowest = max(slowest, (f"{kind}, {share:.0%}: {way}", warm / cold), key=lambda one: one[1])
        setting = f"changed {family}"
        findings.figure(setting, "warm over cold, mean", float(np.mean(ratios)))
        findings.figure(setting, "warm over cold, median", float(np.median(ratios)))
        findings.figure(setting, "warm over cold, p99", float(np.percentile(ratios, 99)))
        findings.figure(setting, "warm over cold, worst", slowest[1], note=slowest[0], better="less")
        worst[family] = slowest[1]
    family = max(worst, key=worst.__getitem__)
    findings.figure("changed networks", "warm over cold, worst", worst[family], note=family, better="less")
