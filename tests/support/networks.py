"""Networks that several tests use."""

from __future__ import annotations

import numpy as np

import flowsched as fs

SAMPLE = """\
c a comment
p min 4 5
c nodes 2 and 3 have no record: they pass on what they get
n 1 4
n 4 -4
a 1 2 0 4 2
a 1 3 0 2 2
a 2 3 1 2 -1
a 2 4 0 3 3
a 3 4 0 5 1
"""


def random_arrays(nodes, arcs, seed, most_cost=10_000):
    """A feasible problem, as arguments of `fs.min_cost_flow`: a witness flow is drawn first."""
    rng = np.random.default_rng(seed)
    tail, head = rng.integers(0, nodes, (2, arcs))
    capacity = rng.integers(1, 100, arcs)
    flow = rng.integers(0, capacity + 1)
    supply = np.bincount(tail, flow, nodes) - np.bincount(head, flow, nodes)
    return tail, head, capacity, rng.integers(0, most_cost, arcs), supply.astype(np.int64)


def network(tail, head, capacity, cost, supply):
    net = fs.FlowNetwork()
    net.add_nodes(supply)
    return net, net.add_arcs(tail, head, capacity, cost)
