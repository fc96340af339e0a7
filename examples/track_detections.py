"""Tracking of objects: a min-cost flow over the last frames links detections, and is kept from frame to frame.

It is compared with a tracker that matches each frame with the one before.  ``--peers`` compares CPU times: the window with
OR-tools from scratch, the matching with SciPy and lapx.
"""

import itertools
import sys
import time
from collections import deque
from dataclasses import dataclass, field

import numpy as np

import flowsched as fs

REACH = 60  # the longest link
BEGIN, DETECTION, MISSED = 60, -100, 20  # costs: a begin or an end of a track, a detection, a frame without one


@dataclass
class Frame:
    """Detections of one frame: nodes and arcs, links to later frames, and tracks as far as they are known."""

    place: np.ndarray
    into: np.ndarray
    out: np.ndarray
    begin: np.ndarray
    seen: np.ndarray
    track: np.ndarray
    links: list = field(default_factory=list)


def distances(past, place):
    """Return the distance from each detection of one frame to each of the next."""
    return np.hypot(*(past[:, None] - place).transpose(2, 0, 1))


def reach(past, place):
    """Return the pairs of detections that may be linked, and their distances in pixels."""
    distance = distances(past, place)
    tail, head = np.nonzero(distance < REACH)
    return tail, head, np.rint(distance[tail, head]).astype(int)


class Window:
    """Tracks as a circulation: hub -> in -> out -> in of a later frame -> ... -> out -> hub."""

    def __init__(self, frames, algorithm="network_simplex"):
        self.net, self.frames, self.algorithm = fs.FlowNetwork(), frames, algorithm
        self.hub = self.net.add_nodes(0, count=1)[0]
        self.kept, self.tracks = deque(), 0

    def near(self, place):
        """Return the links from each of the last three frames to a new one."""
        return [(past, *reach(past.place, place)) for past in list(self.kept)[:-4:-1]]

    def add(self, place, near):
        """Add a frame and solve."""
        net, count = self.net, len(place)
        into, out = net.add_nodes(count), net.add_nodes(count)
        begin, seen = net.add_arcs(self.hub, into, 1, BEGIN), net.add_arcs(into, out, 1, DETECTION)
        net.add_arcs(out, self.hub, 1, BEGIN)
        frame = Frame(place, into, out, begin, seen, np.full(count, -1))
        for gap, (past, tail, head, distance) in enumerate(near):
            arcs = net.add_arcs(past.out[tail], into[head], 1, distance + gap * MISSED)
            past.links.append((arcs, tail, frame, head))
        self.kept.append(frame)
        return net.solve(algorithm=self.algorithm)

    def leave(self):
        """Drop the first frame, and return the track of each of its detections; -1 is a false one."""
        net, frame = self.net, self.kept.popleft()
        new = (net.flow(frame.seen) == 1) & (frame.track < 0)
        frame.track[new] = self.tracks + np.arange(new.sum())
        self.tracks += new.sum()
        for arcs, tail, later, head in frame.links:
            flows = net.flow(arcs) == 1
            later.track[head[flows]] = frame.track[tail[flows]]
            net.set_cost(later.begin[head[flows]], 0)  # the track goes on from here
        net.remove_nodes(np.concatenate([frame.into, frame.out]))
        return frame.track

    def follow(self, frames):
        """Return the tracks of all frames."""
        found = []
        for place in frames:
            self.add(place, self.near(place))
            if len(self.kept) > self.frames:
                found.append(self.leave())
        return found + [self.leave() for _ in range(len(self.kept))]


def match(frames):
    """Return the tracks of all frames, each matched with the tracks' last places; three frames without one end a track."""
    tracks, last, age, found = 0, np.empty((0, 2)), np.empty(0, int), []
    names = np.empty(0, int)
    for place in frames:
        distance = np.rint(distances(last, place))
        row, column = fs.assignment(np.minimum(distance, REACH))
        near = distance[row, column] < REACH
        name = np.full(len(place), -1)
        name[column[near]] = names[row[near]]
        new = name < 0
        name[new] = tracks + np.arange(new.sum())
        tracks += new.sum()
        lost = np.setdiff1d(np.arange(len(last)), row[near])
        lost = lost[age[lost] < 2]
        last, names = np.concatenate([place, last[lost]]), np.concatenate([name, names[lost]])
        age = np.concatenate([np.zeros(len(place), int), age[lost] + 1])
        found.append(name)
    return found


def scene(objects, frames, seed):
    """Return detections of moving objects, and their objects: some are missed, others false (-1)."""
    rng = np.random.default_rng(seed)
    side = 100 * np.sqrt(objects)
    start, speed = rng.uniform(0, side, (objects, 2)), rng.normal(0, 8, (objects, 2))
    places, truths = [], []
    for t in range(frames):
        seen = np.flatnonzero(rng.random(objects) < 0.85)
        false = rng.uniform(0, side, (rng.poisson(0.1 * objects), 2))
        noise = rng.normal(0, 4, (len(seen), 2))
        places.append(np.concatenate([(start + t * speed)[seen] + noise, false]))
        truths.append(np.concatenate([seen, np.full(len(false), -1)]))
    return places, truths


def switches(tracks, truths):
    """Return how often the track of an object changes, and the number of tracks."""
    known, changed = {}, 0
    for track, truth in zip(tracks, truths, strict=True):
        for name, one in zip(track.tolist(), truth.tolist(), strict=True):
            if one >= 0 and name >= 0:
                changed += known.get(one, name) != name
                known[one] = name
    return changed, len(set(np.concatenate(tracks).tolist()) - {-1})


def peers(number):
    """Compare CPU times: a step of the window with OR-tools' from scratch, a frame's matching with SciPy's and lapx's."""
    try:
        import lap
        from ortools.graph.python.min_cost_flow import SimpleMinCostFlow
        from scipy.optimize import linear_sum_assignment
    except ImportError as missing:
        raise ImportError("pip install ortools scipy lapx") from missing

    print(
        "objects, frames in the window: nodes, arcs; ms for a frame, with auto, of OR-tools from scratch; times as long"
    )
    for objects, size in [(40, 10), (200, 10), (200, 30), (1_000, 10)][:number]:
        windows, spent = (Window(size), Window(size, "auto")), ([], [], [])
        for place in scene(objects, size + 20, seed=1)[0]:
            totals = []
            for window, times in zip(windows, spent, strict=False):
                near = window.near(place)
                begin = time.process_time()
                totals.append(window.add(place, near).cost)
                times.append(time.process_time() - begin)
                problem = window.net.to_problem()
                begin = time.process_time()
                if len(window.kept) > size:
                    window.leave()
                times[-1] += time.process_time() - begin
            begin = time.process_time()
            solver = SimpleMinCostFlow()  # to collect the arcs of the window is not measured
            arcs = solver.add_arcs_with_capacity_and_unit_cost(
                problem.tail, problem.head, problem.capacity, problem.cost
            )
            assert solver.solve() == solver.OPTIMAL
            solver.flows(arcs)
            spent[2].append(time.process_time() - begin)
            assert totals[1] == solver.optimal_cost(), "the same optimum of the same window"
        ours, auto, other = (np.median(times[size + 1 :]) * 1e3 for times in spent)
        shape = f"{len(problem.supply):6}, {len(problem.tail):6}"
        print(f"{objects:5}, {size}: {shape}; {ours:.2f}, {auto:.2f}, {other:.2f}; {other / ours:.1f} times")

    print("detections: us for a matching, of SciPy, of lapx; the faster one's / ours")
    for objects, digits in [(30, 0), (100, 0), (300, 0), (30, 15), (300, 15)][:number]:
        frames = scene(objects, 21, seed=1)[0]
        matrices = [np.round(np.minimum(distances(*pair), REACH), digits) for pair in itertools.pairwise(frames)]
        solvers = {
            "ours": lambda cost: fs.assignment(cost),
            "scipy": lambda cost: linear_sum_assignment(cost),
            "lapx": lambda cost: lap.lapjvx(cost, extend_cost=True, return_cost=False),
        }
        spent = dict.fromkeys(solvers, float("inf"))
        for _ in range(5):
            for name, solve in solvers.items():
                begin = time.process_time()
                for cost in matrices:
                    solve(cost)
                spent[name] = min(spent[name], (time.process_time() - begin) / len(matrices) * 1e6)
        for cost in matrices:
            ours, *others = (cost[solve(cost)].sum() for solve in solvers.values())
            assert np.allclose(others, ours, rtol=0, atol=1e-6), "the same optimum"
        ours, scipy, lapx = spent.values()
        kind = "floats" if digits else "whole pixels"
        print(f"{objects:5}, {kind}: {ours:.1f}, {scipy:.1f}, {lapx:.1f}; {min(scipy, lapx) / ours:.2f} times")


def main():
    """Track 40 objects through 60 frames."""
    places, truths = scene(40, 60, seed=1)
    for name, tracks in (("frame to frame", match(places)), ("window of 8 frames", Window(8).follow(places))):
        changed, count = switches(tracks, truths)
        print(f"{name}: {count} tracks of 40 objects, {changed} switches")


if __name__ == "__main__":
    if "--peers" in sys.argv:
        peers(1 if "--quick" in sys.argv else None)
    else:
        main()
