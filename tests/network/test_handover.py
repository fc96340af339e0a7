"""What a warm solve may take: counted work against that of a new network's first solve, over networks and changes drawn by a seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from effort import effort
from netmodel import probing

from bench.solver import handover
from flowsched import _cs
from flowsched.exceptions import InfeasibleError
from flowsched.network import FlowNetwork


def work(stats: dict[str, Any]) -> int:
    """What a solve counted, in about ns: repair, the simplex that answered, and one that was given up."""
    repair = 3 * stats["walk_scans"] + 2 * stats["search_scans"] + 40 * stats["settled"]
    repair += 100 * stats["augmentations"] + 20 * stats["pushes"]
    return repair + stats.get("work", 0) + stats.get("given_up", 0)


@pytest.mark.parametrize("family", list(handover.FAMILIES))
@pytest.mark.parametrize("seed", range(effort(1, 20)))
def test_a_warm_solve_takes_little_more_work_than_a_cold_one(family: str, seed: int) -> None:
    """Any network, any change: at most 1.75 times, and two looks at all; the same optimum."""
    live = handover.draw(family, seed, 600)
    nodes, arcs = live.drawn.nodes, len(live.drawn.tail)
    rng = np.random.default_rng([seed, 3])
    live.net.solve()
    for _ in range(6):
        kind, share = str(rng.choice(handover.KINDS)), float(rng.choice([0.01, 0.1, 0.5, 1.0]))
        live.change(kind, share, rng)()
        warm = live.net.solve()
        cold = live.cold().solve()
        assert warm.cost == cold.cost
        assert work(warm.stats) <= 1.75 * work(cold.stats) + 100 * (nodes + arcs), (
            kind,
            share,
        )


@pytest.mark.parametrize("family", list(handover.FAMILIES))
def test_a_probe_answers_or_leaves_the_network_as_it_was(family: str) -> None:
    live = handover.draw(family, 5, 400)
    rng = np.random.default_rng(5)
    live.net.solve()
    for _ in range(effort(4, 40)):
        live.net = probing(live.net)
        live.change(str(rng.choice(handover.KINDS[:4])), float(rng.choice([0.1, 0.5])), rng)()
        cost = live.net.solve().cost
        live.net.certify()
        assert cost == live.cold().solve().cost


def test_what_a_probe_finds_infeasible_is_proved() -> None:
    """The cut is of the flow in which the probe got stuck."""
    side, found = 20, 0
    at = np.arange(side * side).reshape(side, side)
    tail = np.concatenate([at[:, :-1].ravel(), at[:-1].ravel()])
    head = np.concatenate([at[:, 1:].ravel(), at[1:].ravel()])
    tail, head = np.concatenate([tail, head]), np.concatenate([head, tail])
    for seed in range(effort(40, 400)):
        rng = np.random.default_rng(seed)
        net = FlowNetwork()
        net.add_nodes(side * side)
        net.add_arcs(tail, head, capacity=30, cost=rng.integers(1, 100, len(tail)))
        for much in (0, 20, 100):
            supply = np.zeros(side * side, np.int64)
            ends = rng.choice(side * side, 80, replace=False)
            supply[ends[:40]], supply[ends[40:]] = 1, -1
            supply[[0, -1]] += much, -much
            supply[ends[0]] += much
            supply[ends[40]] -= much
            net = probing(net)
            net.set_supply(np.arange(side * side), supply)
            try:
                net._core.solve(_cs.ALGORITHMS["auto"], -1.0)
            except InfeasibleError as error:
                found += 1
                assert supply[error.cut].sum() > 30 * (error.cut[tail] & ~error.cut[head]).sum()
    assert found > 10
