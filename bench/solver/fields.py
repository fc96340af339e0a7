"""Networks as other fields pose them: trackers, balanced clusters, fleets of vehicles, phase unwrapping.

All numbers of a family, its sizes too, are drawn from a seed, and every network is feasible by construction.  Rows compare a cold solve by `auto` with the peers, and
with the best of our algorithms by name: the *regret* is the time of the choice over that of the best choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.solver import peers
from bench.solver.findings import Findings, Goal
from flowsched.network.problem import FlowProblem
from flowsched.network.results import Algorithm

__all__ = ["clusters", "families", "fleet", "measure", "tracking", "unwrapping"]

Ints = NDArray[np.int64]
Make = Callable[[int], FlowProblem]
_NAMED: tuple[Algorithm, ...] = ("repair", "cost_scaling", "network_simplex")


def families(quick: bool) -> dict[str, Make]:
    """Return generators by name; each takes a seed."""
    size = 20_000 if quick else 150_000
    made: dict[str, Make] = {}
    for name, make in (("tracking", tracking), ("clusters", clusters), ("fleet", fleet), ("unwrapping", unwrapping)):
        for i in range(1 if quick else 4):
            made[f"{name} {i + 1}"] = partial(_drawn, make, size, 100 * len(made))
    return made


def measure(findings: Findings, quick: bool, seed: int, repeats: int) -> None:
    """Add rows of every family: against peers, and the regret of `auto` for one call and for a network that is kept."""
    ratios: dict[str, float] = {}
    regrets: dict[str, float] = {}
    for name, make in families(quick).items():
        problem = make(seed)
        setting = f"{name}: {len(problem.supply):,} nodes, {len(problem.tail):,} arcs, cold"
        own: dict[str, peers.Solve] = {"one call": peers.flowsched_once, "kept": peers.flowsched_network}
        for algorithm in _NAMED:
            own[f"one call, {algorithm}"] = partial(peers.flowsched_once, algorithm=algorithm)
            own[f"kept, {algorithm}"] = partial(peers.flowsched_network, algorithm=algorithm)
        rivals = peers.cold_peers()
        if problem.cost.min() < 0:
            rivals.pop("pylmcf", None)  # it takes no negative costs
        found = peers.in_turn(problem, own, rivals, repeats)
        seconds = {way: measured.total for way, measured in found.items()}
        findings.check(setting, found["one call"].cost, found)
        others = {peer: seconds[peer] for peer in seconds if peer not in own}
        findings.compare(
            setting, "build included", seconds["one call"], others, None, str(found["one call"].stats["algorithm"])
        )
        if others:
            ratios[name] = min(others.values()) / seconds["one call"]
        for form in ("one call", "kept"):
            ways = {algorithm: seconds[f"{form}, {algorithm}"] for algorithm in _NAMED}
            best = min(ways, key=ways.__getitem__)
            regrets[f"{name}, {form}"] = seconds[form] / min(seconds[form], ways[best])
            note = f"best: {best}; " + ", ".join(f"{way} {1000 * spent:.1f} ms" for way, spent in ways.items())
            findings.figure(setting, f"regret, {form}", regrets[f"{name}, {form}"], note=note, better="less")
    findings.summary(f"{len(ratios)} networks of other fields, cold", ratios, Goal(1, 1.2), Goal(1.8, 2.5))
    worst = max(regrets, key=regrets.__getitem__)
    findings.figure("other fields", "worst regret of auto", regrets[worst], "", Goal(1.5, 1.2, most=True), worst)
    mean = float(np.exp(np.mean(np.log(list(regrets.values())))))
    findings.figure("other fields", "mean regret of auto", mean, "", Goal(1.15, 1.05, most=True))


def _drawn(make: Callable[[np.random.Generator, int], FlowProblem], size: int, part: int, seed: int) -> FlowProblem:
    """Draw a network of about `size` arcs, from half to twice as many."""
    rng = np.random.default_rng([seed, part])
    return make(rng, int(size * 2 ** rng.uniform(-1, 1)))


def tracking(rng: np.random.Generator, size: int) -> FlowProblem:
    """Detections of objects that move in a plane, with links to the next frames: a detection pays, a track costs.

    Each object of a known number is detected in most frames; some detections are false.  As in multi-object tracking by min-cost flow.
    """
    reach, links = int(rng.integers(1, 4)), int(rng.integers(3, 9))
    per_frame = int(rng.integers(10, 80))
    frames = max(size // (per_frame * (reach * links + 3)), 2 * reach + 2)
    start = rng.uniform(0, 1000, (per_frame, 2))
    speed = rng.normal(0, 10, (per_frame, 2))
    place = start + speed * np.arange(frames)[:, None, None] + rng.normal(0, 3, (frames, per_frame, 2))
    false = rng.random((frames, per_frame)) < 0.2
    place[false] = rng.uniform(0, 1000, (int(false.sum()), 2))
    count = frames * per_frame
    node = np.arange(count)
    pays = -(rng.integers(20, 120, count) * np.where(false.ravel(), 0.3, 1)).astype(np.int64)
    source, sink, tracks = 2 * count, 2 * count + 1, int(1.5 * per_frame)
    ends = rng.integers(50, 150, 2)
    parts: list[tuple[NDArray[Any], ...]] = [
        (2 * node, 2 * node + 1, np.ones(count), pays),
        (np.full(count, source), 2 * node, np.ones(count), np.full(count, ends[0])),
        (2 * node + 1, np.full(count, sink), np.ones(count), np.full(count, ends[1])),
        (np.array([source]), np.array([sink]), np.array([tracks]), np.array([0])),
    ]
    for gap in range(1, reach + 1):
        distance = np.sqrt(((place[:-gap, :, None] - place[gap:, None]) ** 2).sum(-1))
        near = np.argsort(distance, axis=2)[:, :, :links]
        cost = np.rint(np.take_along_axis(distance, near, 2)).astype(np.int64) + 10 * (gap - 1)
        tail = np.repeat(node[: count - gap * per_frame], near.shape[2])
        head = (near + per_frame * (np.arange(frames - gap)[:, None, None] + gap)).ravel()
        parts.append((2 * tail + 1, 2 * head, np.ones(len(tail)), cost.ravel()))
    supply = np.zeros(2 * count + 2, np.int64)
    supply[source], supply[sink] = tracks, -tracks
    return _problem(parts, supply)


def clusters(rng: np.random.Generator, size: int) -> FlowProblem:
    """Points to be divided among centres of bounded size, as one iteration of balanced k-means."""
    k = int(2 ** rng.uniform(3, 7))
    count, dimensions = max(size // k, 2 * k), int(rng.integers(2, 9))
    centres = rng.standard_normal((k, dimensions)) * rng.uniform(0.5, 3)
    points = centres[(k * rng.random(count) ** rng.uniform(1, 3)).astype(int)] + rng.standard_normal(
        (count, dimensions)
    )
    cost = np.rint(((points[:, None] - centres) ** 2).sum(-1) * 1000).astype(np.int64)
    room = int(np.ceil(rng.uniform(1.02, 1.5) * count / k))
    tail, head = np.divmod(np.arange(count * k), k)
    parts = [
        (tail, count + head, np.ones(count * k), cost.ravel()),
        (count + np.arange(k), np.full(k, count + k), np.full(k, room), np.zeros(k)),
    ]
    return _problem(parts, np.concatenate([np.ones(count), np.zeros(k), [-count]]).astype(np.int64))


def fleet(rng: np.random.Generator, size: int) -> FlowProblem:
    """Trips at places and times, to be driven by vehicles of some depots; a trip pays, empty rides and vehicles cost."""
    links, depots = int(rng.integers(10, 40)), int(rng.integers(1, 6))
    count = max(size // (links + 2 * depots + 1), 20)
    begin = np.sort(rng.uniform(0, 1440, count))
    origin, target = rng.uniform(0, 60, (2, count, 2))
    end = begin + np.abs(origin - target).sum(1) + rng.uniform(5, 30, count)
    home = rng.uniform(0, 60, (depots, 2))
    node, vehicles = np.arange(count), max(count // 20, 1)
    depot = 2 * count + np.arange(depots)
    out = np.rint(np.abs(home[:, None] - origin).sum(-1)).astype(np.int64) + 200
    back = np.rint(np.abs(home[:, None] - target).sum(-1)).astype(np.int64)
    first = np.searchsorted(begin, end)
    window = first[:, None] + rng.integers(0, max(count // 10, links), (count, links))
    tail, later = np.repeat(node, links), window.ravel()
    known = later < count
    tail, later = tail[known], later[known]
    ride = np.abs(target[tail] - origin[later]).sum(1)
    meets = end[tail] + ride <= begin[later]
    tail, later = tail[meets], later[meets]
    cost = np.rint(ride[meets] + 0.1 * (begin[later] - end[tail])).astype(np.int64)
    last = 2 * count + depots + np.arange(depots)  # where vehicles return to
    parts = [
        (2 * node, 2 * node + 1, np.ones(count), -rng.integers(50, 400, count)),
        (2 * tail + 1, 2 * later, np.ones(len(tail)), cost),
        (np.repeat(depot, count), np.tile(2 * node, depots), np.ones(count * depots), out.ravel()),
        (np.tile(2 * node + 1, depots), np.repeat(last, count), np.ones(count * depots), back.ravel()),
        (depot, last, np.full(depots, vehicles), np.zeros(depots)),
    ]
    supply = np.zeros(2 * count + 2 * depots, np.int64)
    supply[depot], supply[last] = vehicles, -vehicles
    return _problem(parts, supply)


def unwrapping(rng: np.random.Generator, size: int) -> FlowProblem:
    """A planar grid with residues of a noisy phase as supplies, and a node around it."""
    side = max(int((size / 4) ** 0.5), 5)
    y, x = np.mgrid[: side + 1, : side + 1] / side
    phase = rng.uniform(10, 60) * np.exp(-8 * ((x - 0.5) ** 2 + (y - 0.5) ** 2))
    phase += rng.uniform(0.3, 1.6) * rng.standard_normal(phase.shape)
    down, across = (_wrapped(np.diff(phase, axis=axis)) for axis in (0, 1))
    residues = np.rint((across[:-1] + down[:, 1:] - across[1:] - down[:, :-1]) / (2 * np.pi)).astype(np.int64)
    cell, around = np.arange(side * side).reshape(side, side), side * side
    rim = np.unique(np.concatenate([cell[0], cell[-1], cell[:, 0], cell[:, -1]]))
    tail = np.concatenate([cell[:, :-1].ravel(), cell[:-1].ravel(), rim])
    head = np.concatenate([cell[:, 1:].ravel(), cell[1:].ravel(), np.full(len(rim), around)])
    cost = rng.integers(1, int(rng.choice([2, 10, 100])), len(tail)) if rng.random() < 0.8 else np.ones(len(tail))
    supply = np.append(residues.ravel(), -residues.sum())
    room = np.full(len(tail), max(int(np.abs(supply).sum()), 1))
    return _problem([(tail, head, room, cost), (head, tail, room, cost)], supply)


def _wrapped(difference: NDArray[np.float64]) -> NDArray[np.float64]:
    return (difference + np.pi) % (2 * np.pi) - np.pi


def _problem(parts: Sequence[tuple[NDArray[Any], ...]], supply: Ints) -> FlowProblem:
    tail, head, capacity, cost = (np.concatenate(columns).astype(np.int64) for columns in zip(*parts, strict=True))
    return FlowProblem(tail, head, capacity, cost, supply)
