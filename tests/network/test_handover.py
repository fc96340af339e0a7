"""What a warm solve may take: counted work against that of a new network's first solve, over networks and changes drawn by a seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from effort import effort

from flowsched.experiments.solver import handover


def work(stats: dict[str, Any], nodes: int, arcs: int) -> int:
    """What a solve counted, in about ns: repair, the simplex that answered, and one that was given up."""
    repair = 3 * stats["walk_scans"] + 2 * stats["search_scans"] + 40 * stats["settled"]
    repair += 100 * stats["augmentations"] + 20 * stats["pushes"]
    return repair + stats.get("work", 0) + stats.get("given_up", 0)


@pytest.mark.parametrize("family", list(handover.FAMILIES))
@pytest.mark.parametrize("seed", range(effort(2, 20)))
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
        cold = live.cold()[0].solve()
        assert warm.cost == cold.cost
        assert work(warm.stats, nodes, arcs) <= 1.75 * work(cold.stats, nodes, arcs) + 100 * (nodes + arcs), (
            kind,
            share,
        )
