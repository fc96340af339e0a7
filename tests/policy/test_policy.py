"""Costs: normalised, strict where they say so, and refused with a clear word where they make no sense."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowsched as fs
from flowsched.cluster import Cluster, Task
from flowsched.cluster.events import JobSubmitted, MachineAdded, TaskStarted
from flowsched.exceptions import InputError
from flowsched.policy import (
    OMEGA,
    DeviceCost,
    LoadCost,
    Policy,
    PreemptionCost,
    StrictPriority,
    WaitCost,
    WeightedPriority,
)


@given(
    first=st.floats(0.5, 1e4),
    factor=st.floats(1.01, 10),
    buckets=st.integers(1, 40),
    age=st.one_of(st.floats(-10, 1e9), st.integers(0, 30)),
)
def test_a_bucket_holds_the_ages_between_its_ends(first: float, factor: float, buckets: int, age: float) -> None:
    waiting = WaitCost(first, factor, buckets)
    bucket = waiting.bucket(age)
    assert 0 <= bucket < buckets
    assert age < waiting.end(bucket)
    assert bucket == 0 or age >= waiting.end(bucket - 1)
    assert waiting.buckets_of(np.array([age, age])).tolist() == [bucket, bucket]
    assert waiting.end(buckets - 1) == math.inf


def test_default_buckets_double_from_a_minute() -> None:
    waiting = WaitCost()
    assert [waiting.bucket(age) for age in (-5, 0, 59.9, 60, 119, 120, 1e12)] == [0, 0, 0, 1, 1, 2, 15]


@given(
    priorities=st.lists(st.integers(-(2**40), 2**40), min_size=2, max_size=8, unique=True),
    price=st.floats(0.001, 1000),
    buckets=st.integers(1, 64),
)
def test_strict_costs_are_lexicographic(priorities: list[int], price: float, buckets: int) -> None:
    policy = Policy(preemption=PreemptionCost(price), waiting=WaitCost(buckets=buckets))
    levels = policy.levels(priorities)
    oldest, youngest = policy.wait(buckets - 1), policy.wait(0)
    assert youngest > OMEGA, "running anywhere beats waiting"
    assert all(policy.wait(b + 1) - policy.wait(b) > OMEGA for b in range(buckets - 1)), "age beats load"
    assert policy.stay(0) > OMEGA + oldest - youngest, "age and load do not displace"
    assert all(policy.stay(b + 1) >= policy.stay(b) for b in range(buckets)), (
        "the longer it has run, the higher the price"
    )
    ordered = sorted(priorities)
    assert levels[ordered[-1]] == 0
    for better, worse in itertools.pairwise(ordered):
        gain = levels[better] + youngest - OMEGA
        assert gain > levels[worse] + oldest + policy.stay(buckets - 1), (
            "the youngest, worst placed task displaces the oldest of worse priority"
        )


def test_weighted_costs_count_the_distance() -> None:
    levels = Policy(priority=WeightedPriority(2.5)).levels([1, 2, 5])
    assert levels == {1: 10 * OMEGA, 2: round(7.5 * OMEGA), 5: 0}
    far = Policy(priority=WeightedPriority(1e9)).levels([0, 2**40])
    assert 0 < far[0] <= 2**40
    assert Policy().levels([]) == {}


def loaded() -> tuple[Cluster, np.ndarray, np.ndarray]:
    cluster = Cluster(("cpu", "gpu"))
    cluster.apply(
        MachineAdded("empty", {"cpu": 4}), MachineAdded("half", {"cpu": 4}), MachineAdded("gpu", {"cpu": 4, "gpu": 1})
    )
    cluster.apply(MachineAdded("slots", {}, slots=4))
    cluster.apply(JobSubmitted("j", [Task("a", {"cpu": 2}), Task("b", {"cpu": 1}), Task("c", {"gpu": 0.5})]))
    cluster.apply(TaskStarted("a", "half"))
    classes = np.array([cluster.task(t).group.cls.index for t in ("b", "c")])
    return cluster, classes, np.array([cluster.machine(m).row for m in cluster.machine_ids()])


def test_load_is_the_mean_part_in_use_once_the_task_runs() -> None:
    cluster, classes, rows = loaded()
    load = LoadCost("spread")(cluster, classes, rows)
    assert load.tolist() == [[0.25, 0.75, 0.125, 0.25], [0.0, 0.5, 0.25, 0.25]]
    assert (LoadCost("pack")(cluster, classes, rows) == 1 - load).all()
    assert DeviceCost()(cluster, classes, rows).tolist() == [[0, 0, 1, 0], [0, 0, 0, 0]]


def test_costs_are_a_weighted_mean_in_whole_numbers() -> None:
    cluster, classes, rows = loaded()
    policy = Policy(placement=[LoadCost("spread", weight=3.0), DeviceCost(weight=1.0)])
    cost = policy.place(cluster, classes, rows)
    assert cost.dtype == np.int64
    assert cost[0].tolist() == [188, 562, 344, 188]
    assert not Policy(placement=()).place(cluster, classes, rows).any()


def test_a_cost_that_is_not_a_number_is_named() -> None:
    class Broken:
        weight = 1.0

        def __call__(self, cluster: Cluster, classes: np.ndarray, rows: np.ndarray) -> np.ndarray:
            return np.full((len(classes), len(rows)), np.nan)

    cluster, classes, rows = loaded()
    with pytest.raises(InputError, match=r"placement\[1\].*Broken"):
        Policy(placement=[LoadCost(), Broken()]).place(cluster, classes, rows)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: LoadCost("best"), "kind"),
        (lambda: LoadCost("pack", weight=0), "weight"),
        (lambda: DeviceCost(weight=float("nan")), "weight"),
        (lambda: WeightedPriority(-1), "step"),
        (lambda: WaitCost(first=0), "first"),
        (lambda: WaitCost(factor=1.0), "factor"),
        (lambda: WaitCost(buckets=0), "buckets"),
        (lambda: WaitCost(buckets=2.5), "buckets"),
        (lambda: PreemptionCost(price=0), "price"),
        (lambda: PreemptionCost(window=-1), "window"),
        (lambda: WaitCost(patience=1.5), "patience"),
        (lambda: Policy(step=0), "step"),
        (lambda: Policy(placement="spread"), "placement"),
        (lambda: Policy(placement=[LoadCost(), len]), r"placement\[1\]"),
        (lambda: Policy(priority=StrictPriority), "priority"),
        (lambda: Policy(waiting=60.0), "waiting"),
        (lambda: Policy(preemption=True), "preemption"),
        (lambda: Policy.named("packed"), "packed.*spread, pack"),
    ],
)
def test_nonsense_is_refused_by_name(make: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make()  # type: ignore[operator]


def test_named_policies_exist() -> None:
    assert {"spread", "pack"} <= set(Policy.names())
    for name in Policy.names():
        assert isinstance(Policy.named(name), Policy)
    assert Policy.named("spread") == Policy()


def test_a_policy_of_too_large_numbers_is_refused_and_the_old_one_stays() -> None:
    sched = fs.Scheduler(resources=("cpu",))
    sched.apply(fs.MachineAdded("m", {"cpu": 4}), fs.JobSubmitted("j", [fs.Task(i, {"cpu": 1}) for i in range(6)]))
    sched.commit(sched.schedule(0.0))
    old, huge = sched.policy, fs.Policy(moves=10**6, resolution=10**6)
    with pytest.raises(fs.CostRangeError, match="moves"):
        sched.policy = huge
    assert sched.policy is old and not sched.schedule(1.0).deltas
    begun = fs.Scheduler(huge, resources=("cpu",))
    begun.apply(fs.MachineAdded("m", {"cpu": 4}), fs.JobSubmitted("j", [fs.Task(i, {"cpu": 1}) for i in range(6)]))
    with pytest.raises(fs.CostRangeError, match="resolution"):
        begun.schedule(0.0)
    begun.policy = old
    assert len(begun.schedule(0.0).placements) == 4
    begun.network.certify()


NUMPYS = {
    "resolution": lambda: (fs.Policy(resolution=np.int64(1000)), fs.Policy(resolution=1000)),
    "moves": lambda: (fs.Policy(moves=np.int32(2)), fs.Policy(moves=2)),
    "step": lambda: (fs.Policy(step=np.float32(0.5)), fs.Policy(step=0.5)),
    "reserve": lambda: (fs.WaitCost(reserve=np.int64(3)), fs.WaitCost(reserve=3)),
    "buckets": lambda: (fs.WaitCost(buckets=np.int32(8)), fs.WaitCost(buckets=8)),
    "first": lambda: (fs.WaitCost(first=np.float32(2.0), patience=np.float64(0.5)), fs.WaitCost(first=2.0, patience=0.5)),
    "quotas": lambda: (fs.StaticQuotas({"a": np.int64(3)}, np.int8(1)), fs.StaticQuotas({"a": 3}, 1)),
    "sequence": lambda: (fs.SequenceShare(np.float64(0.5), np.int16(3)), fs.SequenceShare(0.5, 3)),
    "preemption": lambda: (fs.PreemptionCost(np.float64(2.0), np.int64(5)), fs.PreemptionCost(2.0, 5)),
    "load": lambda: (fs.LoadCost(weight=np.float32(2.0)), fs.LoadCost(weight=2.0)),
    "locality": lambda: (fs.Locality(np.int64(2), np.float64(0.25), np.float32(0.5)), fs.Locality(2, 0.25, 0.5)),
    "priority": lambda: (fs.WeightedPriority(np.int64(5)), fs.WeightedPriority(5)),
    "fairness": lambda: (fs.Fairness(slack=np.float64(0.5)), fs.Fairness(slack=0.5)),
    "limits": lambda: (fs.Limits(np.int64(1), np.int64(2)), fs.Limits(1, 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", NUMPYS)
def test_numbers_of_numpy_are_numbers(name: str) -> None:
    theirs, plain = NUMPYS[name]()
    assert fs.policy.serialize.describe(theirs) == fs.policy.serialize.describe(plain)
    for setting in vars(theirs).values():
        assert not isinstance(setting, np.generic)


@pytest.mark.parametrize("bad", [True, np.bool_(True), "3", None, np.timedelta64(3), 2.5, np.float64("nan"), 0])
def test_what_is_no_whole_number_is_none_for_policies_either(bad: Any) -> None:
    for make in (
        lambda: fs.Policy(resolution=bad), lambda: fs.Policy(moves=bad), lambda: fs.WaitCost(buckets=bad),
        lambda: fs.SequenceShare(resolution=bad), lambda: fs.StaticQuotas({"a": bad if bad != 0 else -1}),
    ):  # fmt: skip
        with pytest.raises(fs.InputError, match="must be a whole number"):
            make()


def test_the_scale_is_as_its_table_says() -> None:
    policy = fs.Policy(moves=3, resolution=100, waiting=fs.WaitCost(buckets=4), preemption=fs.PreemptionCost(2.0))
    scale = policy.scale
    assert policy.scale is scale
    assert scale.unit == 301 and [scale.wait(b) for b in range(4)] == [301, 602, 903, 1204]
    assert scale.fair_step == 3 * 6 * 301
    assert (
        [scale.stay(b) for b in range(3)] == [5418 + 200, 5418 + 400, 5418 + 600] == scale.stays(np.arange(3)).tolist()
    )
    assert policy.levels([0, 1]) == {0: scale.stay(3) + scale.fair_step, 1: 0}
    # Each row of the table outweighs all rows above it together, for three tasks that are moved.
    assert scale.unit > 3 * 100 and scale.fair_step > 3 * (scale.wait(3) + 100)
    assert scale.level(None) > scale.stay(3) and scale.level(1) == scale.level(None) + 3 * scale.fair_step


def test_policies_can_be_pickled_and_copied_in_debug_mode_too() -> None:
    policy = fs.Policy(debug=True)
    sched = fs.Scheduler(policy)
    sched.apply(fs.MachineAdded("m", {"cpu": 1}), fs.JobSubmitted("j", [fs.Task("t", {"cpu": 1})]))
    sched.schedule(0.0)
    for again in (pickle.loads(pickle.dumps(policy)), copy.deepcopy(policy)):
        assert again == policy and again.scale == policy.scale
