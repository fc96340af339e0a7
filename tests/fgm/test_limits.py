"""Limits of compression by measurement, and their file."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from flowsched.exceptions import InputError
from flowsched.fgm.limits import DEFAULT, DEMANDS, MOST, Limits, derived, here, measure, place


def curve(contention: float, free: float = 0.0) -> list[tuple[float, float]]:
    """Performance that grows to full use, is lost by the contention per unit of compression, and not before `free`."""
    rate = [max(1 - 1 / demand, 0.0) for demand in DEMANDS]
    return [(d, 500 * (min(d, 1.0) - contention * max(r - free, 0.0))) for d, r in zip(DEMANDS, rate, strict=True)]


def test_nothing_lost_is_no_contention_and_the_largest_limit() -> None:
    assert derived(curve(0.0)) == (MOST, 0.0)


def test_contention_is_the_slope_of_the_loss() -> None:
    limit, contention = derived(curve(0.7))
    assert contention == pytest.approx(0.7)
    assert limit == 0.0  # the first level, 5 % beyond full use, loses 3 %


def test_the_limit_lies_where_the_performance_drops() -> None:
    limit, contention = derived(curve(2.0, free=0.1))
    assert limit == pytest.approx(1 - 1 / 1.1, abs=1e-3) and contention > 0


def test_no_performance_is_refused() -> None:
    with pytest.raises(InputError, match="no performance without compression"):
        derived([(1.2, 5.0)])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_limits_hold_for_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert place().parent == tmp_path / "flowsched"
    limits = Limits(0.15, 0.3, here(), 1e9, 0.05, [(1.0, 1.0), (1.1, 0.97)])
    file = tmp_path / "limits"
    file.write_text(limits.text())
    assert Limits.read(file) == limits
    assert not limits.stale() and not limits.doubtful
    assert (
        replace(limits, machine={**here(), "CPUs": 1000}).stale()
        == f"the machine has changed (CPUs: 1000 then, {here()['CPUs']} now)"
    )
    assert not replace(limits, machine={**here(), "memory": here()["memory"] * 1.02}).stale()
    assert replace(limits, busy=0.4).doubtful
    assert Limits().compression == DEFAULT and Limits().stale()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"compression": 2, "levels": []}', '{"levels": [], "x": 1}'])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "limits").write_text(text)
    with pytest.raises(InputError, match="limits of `flowsched measure` expected"):
        Limits.read(tmp_path / "limits")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_this_machine_is_measured() -> None:
    steps: list[str] = []
    limits = measure(seconds=0.1, repeats=1, say=steps.append)
    assert [demand for demand, _ in limits.levels] == sorted(demand for demand, _ in limits.levels)
    assert len(steps) == len(limits.levels) and max(performance for _, performance in limits.levels) == 1
    assert 0 <= limits.compression <= MOST and limits.contention >= 0 and not limits.stale()
