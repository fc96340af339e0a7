"""Tasks that ask for parts of a whole fill it, and nothing more fits."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest
from effort import effort

import flowsched as fs


def placed(whole: float, parts: list[float], resource: str, gang: int | None = None) -> int:
    sched = fs.Scheduler(resources=("cpu", "gpu"))
    sched.apply(fs.MachineAdded("m", {"cpu": whole, "gpu": whole if resource == "gpu" else 0}))
    sched.apply(fs.JobSubmitted("j", [fs.Task(i, {resource: part}) for i, part in enumerate(parts)], gang=gang))
    return len(sched.schedule(0.0).placements)


@pytest.mark.parametrize("resource", ["cpu", "gpu"])
def test_k_parts_of_one_kth_fill_a_whole(resource: str) -> None:
    for k in [*range(1, 25), 36, 48, 49, 96, 97, 100, *([750, 999, 3000, 9999] if effort(0, 1) else [])]:
        assert placed(1, [1 / k] * (k + 1), resource) == k
        assert placed(1, [1 / k] * k, resource, gang=k) == k


def test_thirds_of_several_digits() -> None:
    assert placed(1, [0.333333] * 4, "gpu") == placed(1, [0.33333333333] * 4, "gpu") == 3
    assert placed(1, [0.3334] * 3, "gpu") == placed(1, [0.333334] * 3, "gpu") == 2


def test_any_parts_that_sum_to_a_whole_fill_it() -> None:
    """Against exact fractions: demands that fit exactly fit, and an excess of one micro-unit per task does not."""
    rng = random.Random(7)
    for _ in range(effort(50, 5000)):
        size = rng.randint(1, 3)
        cut = rng.randint(2, 60)
        points = sorted(rng.sample(range(1, size * cut), min(rng.randint(1, 6), size * cut - 1)))
        parts = [Fraction(b - a, cut) for a, b in zip([0, *points], [*points, size * cut], strict=True)]
        assert sum(parts) == size
        asked = [float(part) for part in parts]
        assert placed(size, asked, "cpu", gang=len(asked)) == len(asked)
        asked[0] += 1e-6 * len(asked)
        assert placed(size, asked, "cpu", gang=len(asked)) == 0
