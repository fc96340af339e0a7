"""The rows of the kernels: each answers right, by its own work, and no kernel is without a row."""

from __future__ import annotations

import pkgutil

import numpy as np
import pytest

import flowsched.kernels
from bench.kernels import CASES


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kernel", CASES)
def test_the_kernel_does_the_work(kernel: str, seed: int) -> None:
    turn = CASES[kernel][1](np.random.default_rng(seed), 300)
    assert turn.check(turn.work()) > 0


def test_every_kernel_has_a_row() -> None:
    assert {module.name for module in pkgutil.iter_modules(flowsched.kernels.__path__)} - {"status"} <= set(CASES)
