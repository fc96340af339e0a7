"""Utilities of any sign and size: a round has the highest total utility, and values beyond every scale are refused by name."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

import flowsched as fs
from flowsched.policy import CustomCost, Policy, Utilities, WaitCost
from flowsched.policy.precedence import check
from flowsched.policy.serialize import describe, rebuild

ALONE = WaitCost(buckets=1)
"""Waiting is worth the same for ever."""


def cluster_of(policy: Policy, slots: list[int], kinds: list[Any], **given: Any) -> fs.Scheduler:
    """Machines 0, 1, ... with these numbers of slots, and tasks 0, 1, ... of these kinds."""
    sched = fs.Scheduler(policy, resources=("cpu",), **given)
    sched.apply(*(fs.MachineAdded(i, {"cpu": n}, labels={"at": str(i)}, slots=n) for i, n in enumerate(slots)))
    sched.apply(*(fs.JobSubmitted(i, [fs.Task(i, {"cpu": 1}, kind=kind)]) for i, kind in enumerate(kinds)))
    return sched


def total(placements: Any, values: list[list[float]], waiting: float = 0.0) -> Fraction:
    """Utility of a round, exactly: values by task and machine."""
    there = dict(placements)
    return sum((Fraction(values[t][there[t]] if t in there else waiting) for t in range(len(values))), Fraction(0))


def best(values: list[list[float]], slots: list[int], waiting: float) -> Fraction:
    """The most that tasks can have: an assignment to slots, and to as many places to wait as there are tasks."""
    columns = [m for m, n in enumerate(slots) for _ in range(n)]
    table = np.array([[row[m] for m in columns] + [waiting] * len(values) for row in values])
    return sum((Fraction(table[t, c]) for t, c in zip(*linear_sum_assignment(-table), strict=True)), Fraction(0))


def by_machine(values: list[list[float]]) -> list[tuple[Any, Any, float]]:
    return [(t, m, value) for t, row in enumerate(values) for m, value in enumerate(row)]


# -- the source's example -------------------------------------------------------------------------------------


def test_the_example_of_the_source() -> None:
    """Figure 4: T1 is worth 1 on M1, which has a GPU, and 0 on M2."""
    wish = Utilities([("image", {"gpu": ("yes",)}, 1)])
    sched = fs.Scheduler(Policy(placement=[wish]), resources=("cpu",))
    sched.apply(fs.MachineAdded("M2", {"cpu": 1}), fs.MachineAdded("M1", {"cpu": 1}, labels={"gpu": "yes"}))
    sched.apply(fs.JobSubmitted("j", [fs.Task("T1", {"cpu": 1}, kind="image")]))
    rnd = sched.schedule(0.0)
    assert dict(rnd.placements) == {"T1": "M1"}
    sched.commit(rnd)
    sched.apply(fs.JobSubmitted("k", [fs.Task("T2", {"cpu": 1}, kind="image")]))
    assert dict(sched.schedule(1.0).placements) == {"T2": "M2"}, "a place without utility is better than none"


def test_the_most_in_all_is_not_the_best_for_one() -> None:
    values = [[5.0, 4.0], [5.0, -1.0]]
    sched = cluster_of(Policy(placement=[Utilities(by_machine(values))], waiting=ALONE), [1, 1], [0, 1])
    assert dict(sched.schedule(0.0).placements) == {0: 1, 1: 0}


@pytest.mark.parametrize("values", [{"A": 3.0, "B": 2.0}, {"A": -0.2, "B": -0.9}, {"A": 0.0002, "B": 0.0001}])
def test_costs_of_any_sign_and_size_find_the_cheapest(values: dict[str, float], tmp_path: Path) -> None:
    """The audit's three cases: a plain function as the only cost, no range, no resolution."""

    def cost(cluster: Any, classes: Any, rows: Any) -> Any:
        return np.array([[values[cluster.by_row[row].machine.id] for row in rows.tolist()] for _ in classes])

    sched = fs.Scheduler(Policy(placement=(CustomCost(cost),)), resources=("cpu",), journal=tmp_path / "journal")
    sched.apply(fs.MachineAdded("A", {"cpu": 1}), fs.MachineAdded("B", {"cpu": 1}))
    sched.apply(fs.JobSubmitted("j", [fs.Task("t", {"cpu": 1})]))
    rnd = sched.schedule(0.0)
    assert dict(rnd.placements) == {"t": "B"}
    sched.commit(rnd)
    policy = sched.policy
    sched.journal.close()  # type: ignore[union-attr]
    again = fs.Scheduler(Policy(placement=(CustomCost(cost),)), resources=("cpu",), journal=tmp_path / "journal")
    assert again.policy == policy and again.cluster.placement("t") == "B" and not again.recovery.differences
    assert (again.recovery.policies, again.recovery.rounds) == (1, 2), "the round that failed, the policy, the round"


# -- properties -----------------------------------------------------------------------------------------------

amounts = st.builds(lambda digits, power: digits * 10.0**power, st.integers(-99, 99), st.integers(-4, 3))


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[list[float]], list[int], float]:
    slots = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    unit = 10.0 ** draw(st.integers(-30, 30))
    row = st.lists(amounts.map(lambda value: value * unit), min_size=len(slots), max_size=len(slots))
    return draw(st.lists(row, min_size=1, max_size=6)), slots, draw(amounts) * unit


@settings(deadline=None)
@given(worlds())
def test_a_round_has_the_most_utility(world: tuple[list[list[float]], list[int], float]) -> None:
    values, slots, waiting = world
    utilities = Utilities(by_machine(values), waiting)
    policy = Policy(placement=[utilities], waiting=ALONE, resolution=max(utilities.needs(1.0), 1000))
    placements = cluster_of(policy, slots, list(range(len(values)))).schedule(0.0).placements
    level = (Fraction(utilities.high) - Fraction(utilities.low)) / policy.resolution
    lost = best(values, slots, waiting) - total(placements, values, waiting)
    assert abs(lost) <= 2 * len(values) * level


@settings(deadline=None)
@given(st.data())
def test_whole_utilities_are_exact(data: st.DataObject) -> None:
    slots = data.draw(st.lists(st.integers(1, 2), min_size=1, max_size=4))
    row = st.lists(st.integers(-9, 9), min_size=len(slots), max_size=len(slots))
    values = data.draw(st.lists(row, min_size=1, max_size=6))
    waiting = data.draw(st.integers(-9, 9))
    policy = Policy(placement=[Utilities(by_machine(values), waiting)], waiting=ALONE)  # type: ignore[arg-type]
    placements = cluster_of(policy, slots, list(range(len(values)))).schedule(0.0).placements
    assert total(placements, values, waiting) == best(values, slots, waiting)  # type: ignore[arg-type]
    assert all(values[task][machine] >= waiting for task, machine in placements.items())


@settings(deadline=None)
@given(st.data())
def test_a_cost_of_ones_own_has_the_least_sum(data: st.DataObject) -> None:
    """Any range, found from the answers or stated: as many tasks run as can, at the least cost."""
    slots = data.draw(st.lists(st.integers(1, 2), min_size=1, max_size=3))
    unit = 10.0 ** data.draw(st.integers(-2, 12))
    row = st.lists(st.integers(-40, 40).map(lambda n: n * unit), min_size=len(slots), max_size=len(slots))
    values = data.draw(st.lists(row, min_size=1, max_size=5))

    def cost(cluster: Any, classes: Any, rows: Any) -> Any:
        kinds = [cluster.by_class[cls].kind for cls in classes.tolist()]
        return np.array([[values[kind][cluster.by_row[row].machine.id] for row in rows.tolist()] for kind in kinds])

    stated = (min(map(min, values)), max(map(max, values)) + unit) if data.draw(st.booleans()) else None
    policy = Policy(placement=[CustomCost(cost, range=stated)], moves=8, resolution=10_000)
    sched = cluster_of(policy, slots, list(range(len(values))))
    placements = sched.schedule(0.0).placements
    assert len(placements) == min(sum(slots), len(values))
    columns = [m for m, n in enumerate(slots) for _ in range(n)]
    table = np.array([[row[m] for m in columns] for row in values])
    least = table[linear_sum_assignment(table)].sum()
    found = sum(values[task][machine] for task, machine in placements.items())
    assert found == pytest.approx(least, abs=1e-9 * unit)


# -- waiting, ages, other costs -----------------------------------------------------------------------------


def test_waiting_is_better_than_a_place_that_is_worth_less() -> None:
    wishes = Utilities([("x", {"at": ("0",)}, -1e-3), ("x", {"at": ("1",)}, -4)])
    sched = cluster_of(Policy(placement=[wishes], resolution=10_000), [1, 1], ["x", "y"])
    rnd = sched.schedule(0.0)
    assert set(rnd.placements) == {1} and set(rnd.waiting) == {0}
    assert set(sched.schedule(61.0).placements) == {0, 1}, "the first age bucket has ended"
    sched.policy = replace(sched.policy, waiting=ALONE)
    assert set(sched.schedule(1e6).placements) == {1}, "it never ends"
    sched.policy = replace(sched.policy, placement=[replace(wishes, waiting=-2)])
    rnd = sched.schedule(1e6)
    assert dict(rnd.placements)[0] == 0


def test_utilities_add_up() -> None:
    both = Utilities([(None, {"at": ("1", "2")}, 1.5), ("x", 1, -1.0), ("x", 1, 0.25), ("y", {}, 7), ("z", 0, 2)])
    sched = cluster_of(Policy(placement=[both]), [9, 9, 9], ["x", "y", "z", "w"])
    classes = np.array([sched.cluster.task(i).group.cls.index for i in range(4)])
    cost = both(sched.cluster, classes, np.array([2, 0, 1]))
    assert (-cost).tolist() == [[1.5, 0, 0.75], [8.5, 7, 8.5], [1.5, 2, 1.5], [1.5, 0, 1.5]]
    assert (both.low, both.high) == (-0.75, 8.5)
    assert both.range == (-8.5, 0.75)


def test_the_range_is_no_larger_than_it_need_be() -> None:
    """A machine has one value of a label: 3 and 5 are never added, 5 and 4 are; so are other labels."""
    either = [
        ("x", {"at": ("a",)}, 3.0),
        ("x", {"at": ("b", "c")}, 5.0),
        ("x", {"at": ("c",)}, -4),
        ("x", {"at": ("c",)}, 8),
    ]
    assert (Utilities(either).low, Utilities(either).high) == (0.0, 9.0)
    more = [*either, ("x", {"disk": ("ssd",)}, -1.0), ("x", "m", 2.0), ("x", "n", -7.0), ("y", "m", 99.0)]
    assert (Utilities(more[:-1]).low, Utilities(more[:-1]).high) == (-8.0, 11.0)
    assert Utilities(more).high == 99.0
    assert Utilities([("x", {"at": fs.NotIn("a")}, 1.0), ("x", {"at": ("b",)}, 1.0)]).high == 2.0
    assert Utilities([("x", {}, -1.0)]).range == (0.0, 1.0)


def test_next_to_load_the_whole_ranges_are_weighed() -> None:
    for weight, machine in ((9.0, 0), (0.1, 1)):
        policy = Policy(placement=[Utilities([("x", 0, -100), ("x", 1, -300)], -300, weight), fs.LoadCost()])
        sched = cluster_of(policy, [4, 4], ["x"])
        sched.apply(fs.JobSubmitted("w", [fs.Task("w", {"cpu": 2})]), fs.TaskStarted("w", 0))
        assert dict(sched.schedule(0.0).placements) == {0: machine}
        (row,) = [row for row in check(policy, sched.cluster) if (row.goal, row.over[:8]) == ("Utilities", "LoadCost")]
        assert row.moves == (2 if weight > 1 else 0)


def test_waiting_counts_like_a_place_where_other_costs_are_highest() -> None:
    policy = Policy(placement=[Utilities([("x", 0, -1)])], rack_load=1.0)
    sched = cluster_of(policy, [4], ["y", "x"])
    sched.apply(fs.JobSubmitted("w", [fs.Task("w", {"cpu": 2})]), fs.TaskStarted("w", 0))
    rnd = sched.schedule(0.0)
    assert set(rnd.placements) == {0}, "a loaded rack costs half of the largest cost"
    assert set(rnd.waiting) == {1}


def test_fitted_utilities_override_load() -> None:
    policy = Policy(placement=[Utilities([("x", 0, 1e-3), ("x", 1, 1)]), fs.LoadCost()], resolution=10_000)
    sched = cluster_of(policy, [4, 4], ["x"] * 3)
    fitted = policy.fitted(sched.cluster)
    assert all(row.always for row in fitted.check(sched.cluster))
    sched.policy = fitted
    assert set(sched.schedule(0.0).placements.values()) == {1}


# -- what is refused ----------------------------------------------------------------------------------------


def test_a_resolution_that_cannot_hold_is_named() -> None:
    near = Utilities([("x", 0, 1.0), ("x", 1, 1.0001)])
    with pytest.raises(fs.InputError, match=r"placement\[0\] \(Utilities.*resolution of at least 20003, got 1000"):
        Policy(placement=[near])
    with pytest.raises(fs.InputError, match=r"resolution of at least 40005, got 20003"):
        Policy(placement=[near, fs.LoadCost()], resolution=20_003)
    sched = cluster_of(Policy(placement=[near], resolution=20_003), [1, 1], ["x"])
    assert dict(sched.schedule(0.0).placements) == {0: 1}
    assert Utilities([("x", 0, 0.1), ("x", 0, 0.2), ("x", 1, 0.3)]).needs(1.0) == 3, "rounding is no difference"


def test_a_cost_beyond_its_range_is_named() -> None:
    answers = [np.full((1, 1), 12.0)]
    cost = CustomCost(lambda *_: answers[0], range=(-7, 5))
    sched = cluster_of(Policy(placement=[cost]), [1], ["x"])
    with pytest.raises(fs.InputError, match=r"placement\[0\].*returned 12; costs are numbers from -7 to 5"):
        sched.schedule(0.0)
    answers[0] = np.full((1, 1), -7.0)
    assert len(sched.schedule(0.0).placements) == 1


@pytest.mark.parametrize("value", [math.nan, math.inf, -1e200])
def test_no_range_grows_for_a_value_that_is_no_cost(value: float) -> None:
    sched = cluster_of(Policy(placement=[CustomCost(lambda *_: np.full((1, 1), value))]), [1], ["x"])
    with pytest.raises(fs.InputError, match="costs are numbers from 0 to 1, and CustomCost"):
        sched.schedule(0.0)


def test_a_range_grows_by_powers_of_two_and_is_in_the_policy() -> None:
    answers = [np.full((1, 1), 0.5)]
    sched = cluster_of(Policy(placement=[CustomCost(lambda *_: answers[0])]), [2], ["x"])
    before = sched.policy
    sched.schedule(0.0)
    assert sched.policy is before
    for value, range_ in ((3.0, (0.0, 4.0)), (-0.3, (-0.5, 4.0)), (-0.5, (-0.5, 4.0)), (-17.0, (-32.0, 4.0))):
        answers[0] = np.full((1, 1), value)
        sched.policy = replace(sched.policy)  # asks again
        sched.schedule(0.0)
        (cost,) = sched.policy.placement
        assert isinstance(cost, CustomCost) and cost.range == range_ and cost.grows
    assert sched.policy.resolution == 1000


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Utilities("abc"), "constraints"),
        (lambda: Utilities([("x", 1)]), r"constraints\[0\] must be \(kind, resources, utility\)"),
        (lambda: Utilities([("x", "m", 1.0), ([], "m", 1.0)]), r"constraints\[1\]: kind"),
        (lambda: Utilities([("x", [], 1.0)]), r"constraints\[0\]: resources"),
        (lambda: Utilities([("x", {"gpu": "yes"}, 1.0)]), r"constraints\[0\]: resources\['gpu'\]"),
        (lambda: Utilities([("x", "m", math.nan)]), "utility"),
        (lambda: Utilities([("x", "m", 1e200)]), "utility"),
        (lambda: Utilities([], waiting=math.inf), "waiting"),
        (lambda: Utilities([], weight=0), "weight"),
        (lambda: CustomCost(len, range=(1.0, 1.0)), "range"),
        (lambda: CustomCost(len, range=(1.0,)), "range"),
        (lambda: CustomCost(len, range=(0.0, math.inf)), "range"),
        (lambda: CustomCost(len, grows=1), "grows"),
    ],
)
def test_nonsense_is_refused_by_name(make: Any, words: str) -> None:
    with pytest.raises(fs.InputError, match=words):
        make()


def test_utilities_survive_description() -> None:
    policy = Policy(placement=[Utilities([("x", {"gpu": ("a",)}, 1), (("t", 1), "m", -2.5)], 0.5, 2.0)])
    again = rebuild(json.loads(json.dumps(describe(policy))))
    assert again == policy and describe(again) == describe(policy)
    assert set(describe(CustomCost(len))) == {"is", "function", "weight"}, "as in journals of older versions"
