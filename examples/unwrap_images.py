"""Phase unwrapping of a series of images: each is a min-cost flow of residues on the same grid, kept from image to image.

``--peers`` compares CPU times with OR-tools from scratch for every image.
"""

import sys
import time

import numpy as np

import flowsched as fs


def wrapped(phase):
    """Return the phase between -pi and pi."""
    return (phase + np.pi) % (2 * np.pi) - np.pi


class Unwrapper:
    """Unwrapping of images of one size, by a flow between squares of four pixels.

    A unit of flow through the step between two pixels adds a turn to it.  Then the steps around every square sum to 0.
    """

    def __init__(self, cost_across, cost_down):
        height, width = len(cost_across) - 1, cost_down.shape[1] - 1
        square = np.full((height + 2, width + 2), height * width)  # the last node surrounds the image
        square[1:-1, 1:-1] = np.arange(height * width).reshape(height, width)
        first = np.concatenate([square[:-1, 1:-1].ravel(), square[1:-1, 1:].ravel()])  # either side of each step
        second = np.concatenate([square[1:, 1:-1].ravel(), square[1:-1, :-1].ravel()])
        cost = np.concatenate([cost_across.ravel(), cost_down.ravel()])
        self.net = fs.FlowNetwork()
        self.nodes = self.net.add_nodes(0, count=height * width + 1)
        self.there = self.net.add_arcs(first, second, fs.INF, cost)
        self.back = self.net.add_arcs(second, first, fs.INF, cost)
        self.cost = 0

    def __call__(self, phase):
        """Return the unwrapped image."""
        across, down = wrapped(np.diff(phase, axis=1)), wrapped(np.diff(phase, axis=0))
        around = across[:-1] + down[:, 1:] - across[1:] - down[:, :-1]
        residues = np.rint(around / (2 * np.pi)).astype(int).ravel()
        self.net.set_supply(self.nodes, np.append(residues, -residues.sum()))
        self.cost = self.net.solve().cost
        turns = self.net.flow(self.there) - self.net.flow(self.back)
        across += 2 * np.pi * turns[: across.size].reshape(across.shape)
        down += 2 * np.pi * turns[across.size :].reshape(down.shape)
        column = phase[0, 0] + np.cumsum(np.append(0, down[:, 0]))
        return column[:, None] + np.cumsum(np.pad(across, ((0, 0), (1, 0))), axis=1)


def series(side, images, fresh, seed):
    """Yield the phases of a hill that rises, and of what is measured; `fresh` is the part of the noise that is new."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:side, :side] / side
    noisy = 0.2 + 0.9 * (x > 0.6)  # the right part is measured badly
    noise = rng.standard_normal((side, side))
    for i in range(images):
        true = (20 + 2 * i) * np.exp(-8 * ((x - 0.5) ** 2 + (y - 0.5) ** 2)) + noisy * noise
        yield true, wrapped(true)
        noise = np.sqrt(1 - fresh) * noise + np.sqrt(fresh) * rng.standard_normal((side, side))


def costs(side):
    """Return costs of steps: a turn is more likely where the noise is strong."""
    weight = np.where(np.arange(side) / side > 0.6, 10, 50)
    return np.tile(weight[1:], (side, 1)), np.tile(weight, (side - 1, 1))


def peers(number):
    """Compare CPU times: of an image, on the kept network, and with OR-tools from scratch."""
    try:
        from ortools.graph.python.min_cost_flow import SimpleMinCostFlow
    except ImportError as missing:
        raise ImportError("pip install ortools") from missing

    print("side, new part of the noise: ms for an image, kept, one call, OR-tools; of OR-tools / kept")
    for side, fresh in [(100, 0.01), (100, 1), (400, 0.01), (400, 1)][:number]:
        unwrap, spent = Unwrapper(*costs(side)), ([], [], [])
        for _, phase in series(side, 8, fresh, seed=1):
            begin = time.process_time()
            unwrap(phase)
            spent[0].append(time.process_time() - begin)
            problem = unwrap.net.to_problem()
            room = np.minimum(problem.capacity, np.abs(problem.supply).sum())
            begin = time.process_time()
            once = fs.min_cost_flow(problem.tail, problem.head, room, problem.cost, problem.supply)
            spent[1].append(time.process_time() - begin)
            begin = time.process_time()
            solver = SimpleMinCostFlow()
            arcs = solver.add_arcs_with_capacity_and_unit_cost(problem.tail, problem.head, room, problem.cost)
            solver.set_nodes_supplies(np.arange(len(problem.supply)), problem.supply)
            assert solver.solve() == solver.OPTIMAL
            solver.flows(arcs)
            spent[2].append(time.process_time() - begin)
            assert solver.optimal_cost() == unwrap.cost == once.cost, "the same optimum of every image"
        kept, once, other = (np.median(times[1:]) * 1e3 for times in spent)
        print(f"{side:4}, {fresh:.0%}: {kept:.1f}, {once:.1f}, {other:.1f}; {other / kept:.1f} times")


def main():
    """Unwrap five images."""
    unwrap = Unwrapper(*costs(100))
    for i, (true, phase) in enumerate(series(100, 5, fresh=0.01, seed=1)):
        image = unwrap(phase)
        turns = np.rint((image - true) / (2 * np.pi))
        wrong = (turns != np.median(turns)).mean()
        print(f"image {i}: cost {unwrap.cost}, {wrong:.1%} of the pixels differ from the hill by turns")


if __name__ == "__main__":
    if "--peers" in sys.argv:
        peers(1 if "--quick" in sys.argv else None)
    else:
        main()
