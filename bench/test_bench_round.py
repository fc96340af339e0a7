"""A large cluster, 1 % of its tasks exchanged, with data locality: events, round, commit and audit: ``pytest bench``.

``python -m bench round`` has the phases apart, and the growth with the size of the cluster.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench.round import LargeCluster


@pytest.mark.benchmark(group="round, 1 % exchanged")
@pytest.mark.parametrize("machines", [1_250, 12_500])
def test_round(benchmark: Callable[..., None], machines: int) -> None:
    world = LargeCluster(machines, tasks=12 * machines)
    assert world.fill().started == 12 * machines
    benchmark.pedantic(world.exchange, rounds=20, warmup_rounds=2)  # type: ignore[attr-defined]
    world.check_optimum()
    assert not world.wrong
