"""Estimates of demand, stages and their division."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import flowsched as fs
from flowsched.exceptions import InputError
from flowsched.fgm import DemandEstimator, FineGrained, Stages, by_progress, divide_stages

DECAY = math.exp(-5 / 60)


def estimator(**options: Any) -> DemandEstimator:
    return DemandEstimator(("cpu", "mem"), **{"points": 4, "cold": 1} | options)


def test_smoothing_is_that_of_the_load_average() -> None:
    known = estimator()
    known.observe("a", [2, 8], seconds=4)
    known.observe("a", [4, 8], seconds=8)
    assert known.profile("a") is None  # nothing is taken in before `update`
    assert known.update() == ["a"]
    profile = known.profile("a")
    assert profile is not None
    assert profile.demand[:, 0] == pytest.approx(2 * DECAY + 4 * (1 - DECAY))
    assert profile.demand[:, 1] == pytest.approx(8)
    assert profile.seconds.sum() == pytest.approx(4 * DECAY + 8 * (1 - DECAY))
    assert profile.samples == 2


@given(st.floats(0, 0.5))
def test_compressed_samples_count_less_and_not_at_all_at_the_limit(rate: float) -> None:
    known = estimator(limit=0.1)
    known.observe("a", [2, 8], seconds=4)
    known.observe("a", [4, 8], seconds=4, compression=rate)
    known.update()
    profile = known.profile("a")
    assert profile is not None
    weight = 1 - math.exp(-max(0.0, 5 / 60 - rate * 5 / 6))
    assert profile.demand[:, 0] == pytest.approx(2 + 2 * weight)
    assert profile.samples == (2 if rate < 0.1 else 1)


def test_a_sample_half_compressed_moves_half_the_points() -> None:
    known = estimator()
    known.observe("a", [2, 8], seconds=4)
    known.observe("a", [4, 8], seconds=4, compression=[0, 0, 0.2, 0.2])
    known.update()
    profile = known.profile("a")
    assert profile is not None
    assert (profile.demand[:2, 0] > 2).all()
    assert (profile.demand[2:, 0] == 2).all()


def test_too_few_samples_give_no_profile() -> None:
    known = estimator(cold=3)
    for _ in range(2):
        known.observe("a", [1, 1], seconds=1)
    known.update()
    assert known.profile("a") is None
    known.observe("a", [1, 1], seconds=1)
    known.update()
    assert known.profile("a") is not None
    assert known.profile("b") is None
    assert known.profile(None) is None


def test_memory_is_bounded_and_the_least_used_kind_goes_first() -> None:
    known = estimator(kinds=2, pending=3)
    for kind in "abcd":
        known.observe(kind, [1, 1], seconds=1)
    assert known.update() == ["c", "d"]  # "a" did not fit into the queue, "b" not into the memory
    assert len(known) == 2
    assert known.profile("b") is None


def test_update_takes_in_no_more_than_asked() -> None:
    known = estimator()
    for kind in "abc":
        known.observe(kind, [1, 1], seconds=1)
    assert known.update(2) == ["a", "b"]
    assert known.update(2) == ["c"]


def test_safety_adds_mean_deviations_where_asked() -> None:
    known = estimator(safety={"mem": 2.0})
    for mem in (10, 12, 10, 12):
        known.observe("a", [2, mem], seconds=1)
    known.update()
    profile = known.profile("a")
    assert profile is not None
    assert (profile.demand[:, 0] == 2).all()
    assert (profile.demand[:, 1] > 12).all()
    exact = estimator(safety={"mem": 2.0})
    for _ in range(4):
        exact.observe("a", [2, 10], seconds=1)
    exact.update()
    same = exact.profile("a")
    assert same is not None
    assert (same.demand[:, 1] == 10).all()


def test_safety_is_for_doubt_and_shrinks_with_what_is_known() -> None:
    known = estimator(safety={"mem": 2.0})
    margins = []
    for n in range(60):
        known.observe("a", [2, 10 + 2 * (n % 2)], seconds=1)
        known.update()
        if n in (3, 59):
            for together in (1, 100):
                profile = known.profile("a", together)
                assert profile is not None
                margins.append(float(profile.demand[0, 1] - 11))
    few_alone, few_many, alone, many = margins
    assert few_alone > alone > many > 0
    assert few_alone > few_many > many


def test_a_size_tolerance_makes_kinds_one() -> None:
    known = estimator(tolerance=0.1)
    known.observe(("grep", 100.0), [1, 1], seconds=1)
    (kind,) = known.update()
    assert known.profile(("grep", 101.0)) is not None
    assert known.profile(("grep", 200.0)) is None
    assert known.profile(("sort", 100.0)) is None
    assert known.key(kind) == known.key(("grep", 101.0)) == kind


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1, 2]], 1, 0), r"demand: shape \(4, 2\) or \(2,\) expected, got \(1, 2\)"),
        (([1, -2], 1, 0), "demand: finite numbers"),
        (([1, 2], [1, 1], 0), "seconds: shape"),
        (([1, 2], math.inf, 0), "seconds: finite"),
        (([1, 2], 1, [0.1]), "compression: shape"),
    ],
)
def test_bad_observations_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    known = estimator()
    with pytest.raises(InputError, match=message):
        known.observe("a", *arguments)
    assert known.update() == []


@pytest.mark.parametrize(
    "options", [{"points": 0}, {"cold": True}, {"limit": 1}, {"tolerance": -1}, {"safety": {"gpu": 1}}, {"kinds": 0}]
)
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        estimator(**options)


def test_samples_in_time_become_amounts_by_progress() -> None:
    # two samples, at 1 and 3 of 4 seconds: the nearer one holds for each point
    assert by_progress([1, 3], [[1.0], [5.0]], 4, 4)[:, 0].tolist() == [1, 1, 5, 5]
    assert by_progress([2], [[7.0]], 4, 3)[:, 0].tolist() == [7, 7, 7]
    with pytest.raises(InputError):
        by_progress([], [], 4, 3)


# -- stages --------------------------------------------------------------------------------------------------------

PROFILES = arrays(np.float64, st.tuples(st.integers(1, 40), st.just(2)), elements=st.floats(0, 10, width=32))


@settings(max_examples=effort(15, 5000))
@given(PROFILES, st.floats(0, 5), st.floats(0, 1), st.floats(0.1, 100))
def test_stages_partition_the_task_and_cover_its_demand(
    demand: np.ndarray[Any, Any], threshold: float, min_length: float, seconds: float
) -> None:
    stages = divide_stages(demand, thresholds=threshold, min_length=min_length, seconds=seconds)
    points = len(demand)
    ends = np.rint(stages.progress * points).astype(int)
    assert stages.progress[-1] == 1
    assert (np.diff(ends, prepend=0) > 0).all()
    assert stages.duration == pytest.approx(seconds)
    least = max(1, round(min_length * points))
    assert (np.diff(ends, prepend=0)[:-1] >= least).all()
    for demanded, start, end in zip(stages.demand, [0, *ends[:-1]], ends, strict=True):
        assert (demanded == demand[start:end].max(axis=0)).all()


@given(PROFILES)
def test_infinite_thresholds_give_one_stage(demand: np.ndarray[Any, Any]) -> None:
    stages = divide_stages(demand, thresholds=math.inf, min_length=0)
    assert len(stages) == 1
    assert (stages.demand[0] == demand.max(axis=0)).all()
    assert (stages.coarse().demand == stages.demand).all()


def test_each_resource_has_its_threshold() -> None:
    demand = [[1, 1], [1, 3], [2, 3], [2, 3]]
    assert divide_stages(demand, thresholds=[0.5, 9]).progress.tolist() == [0.5, 1]
    assert divide_stages(demand, thresholds=[9, 0.5]).progress.tolist() == [0.25, 1]
    assert divide_stages(demand, thresholds=[0.5, 0.5], min_length=0.5).progress.tolist() == [0.5, 1]


@pytest.mark.parametrize(
    "options",
    [
        {"thresholds": -1},
        {"thresholds": [1, 2, 3]},
        {"thresholds": 1, "min_length": 2},
        {"thresholds": 1, "seconds": [1]},
    ],
)
def test_bad_divisions_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        divide_stages([[1, 2], [3, 4]], **options)


@pytest.mark.parametrize(
    "arguments",
    [([], []), ([1], [[1], [2]]), ([math.inf, 1], [[1], [2]]), ([1], [[-1]]), ([1, 1], [[1], [1]], [0.5, 0.9])],
)
def test_bad_stages_are_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(InputError):
        Stages(*arguments)


def test_the_margin_goes_up_to_the_bound_and_a_mean_beyond_it_stays() -> None:
    known = estimator(points=2, safety={"mem": 4.0})
    for mem in (800.0, 1000.0, 800.0, 1000.0):
        known.observe("k", [1.0, mem], 10.0)
    known.update()
    free, bound, below = (known.profile("k", 1, limit) for limit in (np.inf, [1.0, 1000.0], [1.0, 500.0]))
    assert free is not None and bound is not None and below is not None
    assert free.demand[0, 1] > 1000 == bound.demand[0, 1]
    assert 800 < below.demand[0, 1] < 1000, "the mean itself"


def test_a_task_that_fits_by_its_request_goes_on_to_fit() -> None:
    """The margin for safety must not take its need beyond the largest machine, where it would wait for ever."""
    known = estimator(points=2, safety={"mem": 4.0})
    for mem in (900.0, 980.0, 900.0, 980.0):
        known.observe("k", [1.0, mem], 10.0)
    known.update()
    fine = FineGrained(fs.Scheduler(resources=("cpu", "mem")), estimator=known)
    fine.apply(fs.MachineAdded("m", {"cpu": 2, "mem": 1000}))
    fine.apply(fs.JobSubmitted("j", [fs.Task("t", {"cpu": 1, "mem": 1000}, kind="k")]))
    assert fine.schedule(0.0).placements == {"t": "m"}
