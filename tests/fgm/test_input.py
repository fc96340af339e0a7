"""What FGM is handed wrongly it refuses, by name, and leaves everything as it was."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from fgm_worlds import NAMES

import flowsched as fs
from flowsched.exceptions import InputError
from flowsched.fgm import (
    Adjustment,
    DemandEstimator,
    FineGrained,
    Stages,
    Timeline,
    by_progress,
    compression,
    conformity,
    divide_stages,
    match,
    max_compression,
    theoretical_duration,
    time_weighted_mean,
)

NAN, INF = math.nan, math.inf
HUGE = 2.0**62  # micro-units of it are no int64


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("contention", INF), ("contention", "x"), ("contention", -1), ("threshold", NAN), ("threshold", "x"),
        ("min_length", 5), ("min_length", NAN), ("min_length", -1), ("weight", -1), ("weight", NAN), ("weight", "x"),
        ("highest", 99), ("highest", "FINE"), ("highest", None), ("adjustment", 3), ("estimator", 3),
        ("estimator", DemandEstimator(("cpu",))), ("idle", 2), ("idle", "x"), ("compressible", 3),
        ("compressible", ["cpu"]), ("compressible", {"cpu": "x"}), ("compressible", {"cpu": NAN}),
        ("compressible", {"cpu": 1.0}), ("compressible", {"gpu": 0.1}), ("compressible", {"disk": 0.1}),
    ],
)  # fmt: skip
def test_options_of_the_adapter(option: str, value: Any) -> None:
    scheduler = fs.Scheduler(resources=(*NAMES, "gpu"))
    policy = scheduler.policy
    with pytest.raises(InputError, match=f"FineGrained: {option}"):
        FineGrained(scheduler, **{option: value})
    assert scheduler.policy is policy
    FineGrained(scheduler)  # which would be refused where another adapter had been left


def test_a_scheduler_is_needed() -> None:
    for wrong in (None, fs.Cluster(NAMES)):
        with pytest.raises(InputError, match="scheduler"):
            FineGrained(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("resources", "cpu"), ("resources", ()), ("resources", ("a", "a")), ("points", 0), ("points", 1.5),
        ("limit", "x"), ("limit", NAN), ("limit", 0), ("limit", 1), ("cold", "x"), ("safety", 3), ("safety", {"mem": "x"}),
        ("safety", {"disk": 1}), ("tolerance", "x"), ("tolerance", NAN), ("kinds", 0), ("pending", 0),
    ],
)  # fmt: skip
def test_options_of_the_estimator(option: str, value: Any) -> None:
    with pytest.raises(InputError, match=option):
        DemandEstimator(**{"resources": NAMES, option: value})


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (([1], [1, 1], 4), "kind"), (("k", [1, 1, 1], 4), "demand"), (("k", [NAN, 1], 4), "demand"),
        (("k", [HUGE, 1], 4), "demand"), (("k", "x", 4), "demand"), (("k", [], 4), "demand"),
        (("k", [1, 1], -1), "seconds"), (("k", [1, 1], INF), "seconds"), (("k", [1, 1], [1, 2]), "seconds"),
        (("k", [1, 1], 4, NAN), "compression"), (("k", [1, 1], 4, 2), "compression"),
    ],
)  # fmt: skip
def test_observations(wrong: tuple[Any, ...], named: str) -> None:
    known = DemandEstimator(NAMES, points=4, cold=1)
    known.observe("k", [1, 1], 4)
    with pytest.raises(InputError, match=f"observe: {named}"):
        known.observe(*wrong)
    assert known.update() == ["k"]
    profile = known.profile("k")
    assert profile is not None
    assert profile.samples == 1


ONE, MACHINE = Stages([1], [[1.0]]), Timeline([INF], [[1.0]], [1.0])


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: DemandEstimator(NAMES).update(-1), "most"),
        (lambda: DemandEstimator(NAMES).profile([]), "kind"),  # type: ignore[arg-type]
        (lambda: DemandEstimator(NAMES).profile("k", 0), "together"),
        (lambda: DemandEstimator(NAMES).profile("k", [1, 2, 3]), "together"),
        (lambda: by_progress([], [], 1, 3), "samples"),
        (lambda: by_progress([0], [1], 1, 3), "samples"),
        (lambda: by_progress([1, 0], [[1], [1]], 1, 3), "times"),
        (lambda: by_progress([NAN], [[1]], 1, 3), "times"),
        (lambda: by_progress([0], [[1]], NAN, 3), "duration"),
        (lambda: by_progress([0], [[1]], 1, 0), "points"),
        (lambda: divide_stages([[NAN]], thresholds=1), "demand"),
        (lambda: divide_stages([1.0], thresholds=1), "demand"),
        (lambda: divide_stages([[1.0]], thresholds=NAN), "thresholds"),
        (lambda: divide_stages([[1.0]], thresholds=[1, 2]), "thresholds"),
        (lambda: divide_stages([[1.0]], thresholds=1, min_length=2), "min_length"),
        (lambda: divide_stages([[1.0]], thresholds=1, min_length="x"), "min_length"),  # type: ignore[arg-type]
        (lambda: divide_stages([[1.0]], thresholds=1, seconds=NAN), "seconds"),
        (lambda: divide_stages([[1.0]], thresholds=1, seconds=[1, 2]), "seconds"),
        (lambda: Stages([1], [[HUGE]]), "demand"),
        (lambda: Stages([1, 1], [[1], [1]], [NAN, 1]), "progress"),
        (lambda: Stages("x", [[1]]), "seconds"),
        (lambda: Timeline([INF], [[HUGE]], [1]), "available"),
        (lambda: Timeline([INF], [[1]], [HUGE]), "total"),
        (lambda: Timeline([*range(1, 128), INF], [[1]] * 128, [1]), "ends"),
        (lambda: match(ONE, MACHINE, limit="x"), "limit"),
        (lambda: match(ONE, MACHINE, limit=1), "limit"),
        (lambda: match(ONE, MACHINE, contention=NAN), "contention"),
        (lambda: match(Stages([1], [[1, 1]]), MACHINE), "resources"),
        (lambda: compression(NAN, 1), "wanted"),
        (lambda: compression(1, -1), "given"),
        (lambda: max_compression(-1, 1), "before"),
        (lambda: max_compression(1, "x"), "newcomer"),
        (lambda: max_compression(1, 1, limit=1), "limit"),
        (lambda: max_compression(1, 1, contention=2), "contention"),
        (lambda: time_weighted_mean([1, 2], [1]), "length"),
        (lambda: time_weighted_mean([1], [0]), "length"),
        (lambda: time_weighted_mean([1], [NAN]), "seconds"),
        (lambda: conformity([NAN], [1], [1], idle=0, total=1), "used"),
        (lambda: conformity([1, 2], [1], [1], idle=0, total=1), "estimated"),
        (lambda: conformity([1], [1], [1], idle=0, total=-1), "total"),
        (lambda: conformity([1], [1], [1], idle=0, total=1, threshold=NAN), "threshold"),
        (lambda: theoretical_duration([1], [1]), "rate"),
        (lambda: theoretical_duration(["x"], [0]), "seconds"),
        (lambda: Adjustment(keep=0), "keep"),
        (lambda: Adjustment(idle=NAN), "idle"),
        (lambda: Adjustment(degraded=0.5), "degraded"),
        (lambda: Adjustment(stop="x"), "stop"),  # type: ignore[arg-type]
        (lambda: Adjustment(stop=0.1, coarse=0.2), "coarse"),
    ],
)
def test_arguments(call: Callable[[], object], named: str) -> None:
    with pytest.raises(InputError, match=named):
        call()


def test_limits_may_differ_by_resource() -> None:
    assert max_compression(1, 1, limit=[0.1, 0.3]).tolist() == [0.1, 0.3]


def test_a_stage_without_length_asks_for_nothing() -> None:
    """As no stage of a machine overlaps it."""
    machine = Timeline([1, INF], [[2.0], [1.0]], [4.0])
    assert match(Stages([1, 0, 1], [[2.0], [4.0], [1.0]]), machine)
    assert match(Stages([0, 1, 0], [[3.0], [2.0], [4.0]]), machine)
    assert not match(Stages([0, 1, 1], [[3.0], [2.0], [2.0]]), machine)


def test_as_large_as_an_amount_may_be() -> None:
    most = float(2**62 // 10**6)
    machine = Timeline([INF], [[most]], [most])
    assert match(Stages([1], [[most]]), machine)
    assert not match(Stages([1], [[most]]), Timeline([INF], [[most / 2]], [most]))


def test_a_task_may_take_all_of_a_machine_whose_memory_is_counted_in_bytes() -> None:
    fine = FineGrained(fs.Scheduler(resources=NAMES))
    everything = {"cpu": 4, "mem": 64 * 2**30}
    fine.apply(fs.MachineAdded("m", everything), fs.JobSubmitted("j", [fs.Task("t", everything)]))
    assert fine.schedule(0.0).placements == {"t": "m"}
