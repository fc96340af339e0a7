"""Each kernel alone: ``pytest bench -k kernel``."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from time import thread_time
from typing import Any

import numpy as np
import pytest

from bench.kernels import CASES, Turn

SEED = secrets.randbelow(100_000)


@pytest.mark.benchmark(timer=thread_time, group="kernels")
@pytest.mark.parametrize("size", [1_000, 10_000])
@pytest.mark.parametrize("kernel", CASES)
def test_kernel(benchmark: Callable[..., Any], kernel: str, size: int) -> None:
    what, case = CASES[kernel]
    turns: list[tuple[Turn, Any]] = []

    def prepare() -> tuple[tuple[Turn], dict[str, object]]:
        return (case(np.random.default_rng([SEED, len(turns)]), size),), {}

    def work(turn: Turn) -> None:
        turns.append((turn, turn.work()))

    benchmark.pedantic(work, setup=prepare, rounds=5)
    benchmark.extra_info |= {"what": what, "seed": SEED, "work": [turn.check(result) for turn, result in turns]}  # type: ignore[attr-defined]
