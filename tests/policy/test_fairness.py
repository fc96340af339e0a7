"""Fair-share providers against independent oracles: greedy loops, brute force and linear programs."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import flowsched as fs
from flowsched.policy.fairness import Fairness, Limits
from flowsched.policy.providers import (
    DRF,
    BatchShare,
    Claims,
    MaxMin,
    Remaining,
    SequenceShare,
    ShareProvider,
    StaticQuotas,
    WeightedMaxMin,
)

Bounds = list[tuple[float, float | None]]


def claims(tasks: list[int], units: int, weight: list[float] | None = None, running: list[int] | None = None) -> Claims:
    n = len(tasks)
    return Claims(
        tuple(range(n)),
        np.array(tasks, np.int64),
        np.array(running or [0] * n, np.int64),
        units,
        np.array(weight or [1.0] * n),
    )


TASKS = st.lists(st.integers(0, 9), min_size=1, max_size=5)


def test_the_example_of_sirius() -> None:
    assert MaxMin()(claims([3, 4], 4)).tolist() == [2, 2]
    assert MaxMin()(claims([1, 9, 9], 9)).tolist() == [1, 4, 4]


@settings(max_examples=effort(15, 1200))
@given(TASKS, st.integers(0, 40))
def test_max_min_and_batch_share_are_leximin(tasks: list[int], units: int) -> None:
    total = min(units, sum(tasks))
    best = max(
        sorted(one)
        for one in itertools.product(*(range(t + 1) for t in tasks[:4]))
        if sum(one) == min(units, sum(tasks[:4]))
    )
    assert sorted(MaxMin()(claims(tasks[:4], units)).tolist()) == best
    batch = BatchShare()(claims(tasks, units))
    assert batch.sum() == total
    assert (batch <= tasks).all()
    assert sorted(batch.tolist()) == sorted(MaxMin()(claims(tasks, units)).tolist())
    assert all(batch >= np.minimum(units // len(tasks), tasks))  # A_j = floor(min(Q / K, N_j)) at least


@settings(max_examples=effort(15, 800))
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 5)), min_size=1, max_size=5), st.integers(0, 60))
def test_weighted_max_min_is_within_a_task_of_the_linear_program(users: list[tuple[int, int]], units: int) -> None:
    """Fix the smallest a / w as large as possible, then the next one, and so on: a chain of linear programs."""
    tasks, weight = (list(column) for column in zip(*users, strict=True))
    n, fixed = len(users), dict[int, float]()
    while len(fixed) < n:
        open_ = [i for i in range(n) if i not in fixed]
        bounds: Bounds = [(fixed[i], fixed[i]) if i in fixed else (0, tasks[i]) for i in range(n)] + [(0, None)]

        def solve(objective: list[float], open_: list[int], bounds: Bounds, extra: float | None = None) -> float:
            rows = [[1.0] * n + [0.0]]
            right = [float(units)]
            for i in open_:
                rows.append([-1.0 if j == i else 0.0 for j in range(n)] + [float(weight[i])])
                right.append(0.0)
            last = (extra, extra) if extra is not None else (0, None)
            return float(-linprog(objective, rows, right, bounds=[*bounds[:-1], last]).fun)

        level = solve([0.0] * n + [-1.0], open_, bounds)
        stuck = [
            i
            for i in open_
            if solve([-1.0 if j == i else 0.0 for j in range(n)] + [0.0], open_, bounds, level)
            <= level * weight[i] + 1e-7
        ]
        assert stuck
        fixed.update({i: min(tasks[i], level * weight[i]) for i in stuck})
    found = WeightedMaxMin()(claims(tasks, units, [float(w) for w in weight]))
    assert found.sum() == min(units, sum(tasks))
    # The distribution of whole tasks to the claimant with least is off by less than one each, except at a shared rounded level.
    assert all(abs(found[i] - fixed[i]) < 1 + max(weight) for i in range(n))
    for i, j in itertools.permutations(range(n), 2):
        if found[i] < tasks[i]:
            assert Fraction(int(found[j]) - 1, weight[j]) <= Fraction(int(found[i]), weight[i])


def greedy_drf(c: Claims) -> list[int]:
    """Algorithm 1 of the paper, one task at a time, in exact arithmetic."""
    n = len(c.tasks)
    part = [
        [Fraction(float(d)) / Fraction(float(cap)) for d, cap in zip(c.demand[i], c.capacity, strict=True)]
        for i in range(n)
    ]
    share, left, open_ = [0] * n, [Fraction(1)] * len(c.capacity), set(range(n))
    while open_:
        i = min(open_, key=lambda i: (share[i] * max(part[i]) / Fraction(float(c.weight[i])), i))
        if share[i] == c.tasks[i] or any(p > free for p, free in zip(part[i], left, strict=True)):
            open_.discard(i)
            continue
        share[i] += 1
        left = [free - p for free, p in zip(left, part[i], strict=True)]
    return share


@settings(max_examples=effort(15, 1600))
@given(
    st.lists(
        st.tuples(st.integers(0, 12), st.tuples(st.integers(0, 5), st.integers(1, 5)), st.integers(1, 3)),
        min_size=1,
        max_size=5,
    ),
    st.tuples(st.sampled_from([16, 32, 64]), st.sampled_from([16, 32, 64])),
)
def test_drf_is_the_papers_algorithm(users: list[tuple[int, tuple[int, int], int]], capacity: tuple[int, int]) -> None:
    tasks, demand, weight = zip(*users, strict=True)
    c = replace(
        claims(list(tasks), 10**6, [float(w) for w in weight]),
        demand=np.array(demand, np.float64),
        capacity=np.array(capacity, np.float64),
    )
    found = DRF()(c)
    assert (found @ c.demand <= c.capacity).all()
    assert found.tolist() == greedy_drf(c)


def test_drf_of_the_paper() -> None:
    """9 CPUs, 18 GB; A's tasks take <1, 4>, B's <3, 1>: 3 tasks of A, 2 of B."""
    c = replace(claims([100, 100], 10**6), demand=np.array([[1.0, 4.0], [3.0, 1.0]]), capacity=np.array([9.0, 18.0]))
    assert DRF()(c).tolist() == [3, 2]
    assert DRF()(claims([9, 9], 6, [2.0, 1.0])).tolist() == [4, 2]  # slots alone: weighted max-min
    starved = replace(c, capacity=np.array([9.0, 0.0]))
    assert DRF()(starved).tolist() == [0, 0]
    one_of_three = replace(
        claims([9, 9, 9], 6), demand=np.array([[1.0, 4.0], [2.0, 0.0], [1.0, 1.0]]), capacity=np.array([9.0, 0.0])
    )
    assert DRF()(one_of_three).tolist() == [0, 4, 0]
    assert DRF()(replace(one_of_three, tasks=np.array([0, 9, 9]))).tolist() == [0, 4, 0]


def test_static_quotas() -> None:
    assert StaticQuotas({0: 3, 2: 5}, default=1)(claims([9, 9, 4], 2)).tolist() == [3, 1, 4]
    with pytest.raises(fs.InputError, match="StaticQuotas: 0 must be a whole number >= 0, got -1"):
        StaticQuotas({0: -1})


@pytest.mark.parametrize("provider", [MaxMin(), WeightedMaxMin(), BatchShare(), DRF()])
@given(TASKS, st.integers(0, 50))
@settings(max_examples=effort(15, 600))
def test_no_claimant_gets_more_than_it_has_or_less_than_need_be(
    provider: ShareProvider, tasks: list[int], units: int
) -> None:
    share = provider(claims(tasks, units))
    assert share.dtype == np.int64
    assert (share >= 0).all()
    assert (share <= tasks).all()
    assert share.sum() == min(units, sum(tasks))


def test_the_sequence_pays_back_over_rounds() -> None:
    provider = SequenceShare()
    quiet = claims([0, 99], 8, [5.0, 3.0])
    assert provider(quiet).tolist() == [0, 8]
    assert provider(quiet).tolist() == [0, 8], "asking changes nothing"
    provider.committed(quiet, np.array([0, 8]))
    assert provider.balance(quiet).tolist() == [5, -5]
    busy = claims([99, 99], 8, [5.0, 3.0])
    assert provider(busy).tolist() == [8, 0]
    provider.committed(busy, np.array([8, 0]))
    assert provider.balance(busy).tolist() == [2, -2]
    grown = claims([99, 99, 99], 16, [5.0, 3.0, 8.0], running=[0, 8, 0])
    assert provider(grown).sum() == 16
    assert provider(grown)[1] >= 8, "what runs goes on"


@settings(max_examples=effort(15, 1200))
@given(
    st.lists(
        st.tuples(st.integers(0, 12), st.integers(0, 5), st.integers(0, 6), st.booleans(), st.booleans()),
        min_size=1,
        max_size=5,
    ),
    st.integers(0, 40),
)
def test_limits_hold(users: list[tuple[int, int, int, bool, bool]], units: int) -> None:
    tasks = [user[0] for user in users]
    limits = {i: Limits(g, g + more, lend, borrow) for i, (_, g, more, lend, borrow) in enumerate(users)}
    fair = Fairness(WeightedMaxMin(), limits=limits)
    share, part = fair.entitle(claims(tasks, units)), fair.part(claims(tasks, units))
    least = [min(tasks[i], limits[i].guarantee) for i in range(len(users))]
    assert all(share[i] <= min(tasks[i], limits[i].maximum or 0) for i in range(len(users)))
    assert all(share[i] <= part[i] for i in range(len(users)) if not limits[i].borrow)
    if sum(least) <= units and all(limit.lend for limit in limits.values()):
        assert all(share[i] >= (least[i] if limits[i].borrow else min(least[i], part[i])) for i in range(len(users)))
    assert share.sum() <= max(units, 0) or not units


def test_a_guarantee_comes_before_shares() -> None:
    fair = Fairness(MaxMin(), limits={0: Limits(guarantee=6)})
    assert fair.entitle(claims([9, 9, 9], 9)).tolist() == [6, 2, 1]
    assert fair.part(claims([9, 9, 9], 9)).tolist() == [6, 3, 3]
    kept = Fairness(MaxMin(), limits={0: Limits(lend=False)})
    assert kept.entitle(claims([0, 9, 9], 9)).tolist() == [0, 3, 3]
    alone = Fairness(MaxMin(), limits={1: Limits(borrow=False)})
    assert alone.entitle(claims([0, 9, 9], 9)).tolist() == [0, 3, 6]


@pytest.mark.parametrize("provider", [MaxMin(), WeightedMaxMin(), DRF(), Remaining(DRF()), BatchShare()], ids=repr)
def test_what_is_not_lent_stays_free_whether_shares_are_dealt_in_tasks_or_in_resources(provider: ShareProvider) -> None:
    fair = Fairness(provider, over="user", limits={"ann": Limits(lend=False)})
    sched = fs.Scheduler(fs.Policy(fairness=fair), resources=("cpu", "mem"))
    sched.apply(fs.MachineAdded("m", {"cpu": 8, "mem": 99}), *(fs.UserAdded(user) for user in ("ann", "bob", "eve")))
    for user, count in (("ann", 1), ("bob", 9), ("eve", 9)):
        tasks = [fs.Task(f"{user}{i}", {"cpu": 1, "mem": 1}) for i in range(count)]
        sched.apply(fs.JobSubmitted(user, tasks, user=user))
    rnd = sched.schedule(0.0)
    assert rnd.shares["ann"].running == 1 and rnd.shares["ann"].lent == 0
    assert sum(share.running for share in rnd.shares.values()) == 6, "the rest of ann's three stays free"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Fairness(MaxMin), "share must be a provider"),  # type: ignore[arg-type]
        (lambda: Fairness(over="rack"), "over must be"),  # type: ignore[arg-type]
        (lambda: Fairness(within=MaxMin()), "within must be a provider, and over 'user'"),
        (lambda: Fairness(mode="firm"), "mode must be"),  # type: ignore[arg-type]
        (lambda: Fairness(slack=-1.0), "slack must be"),
        (lambda: Fairness(limits={"a": 3}), r"limits\['a'\]"),  # type: ignore[dict-item]
        (lambda: Fairness(weights={"a": -3}), r"weights\['a'\]"),
        (lambda: Limits(guarantee=-1), "guarantee must be"),
        (lambda: Limits(guarantee=3, maximum=2), "maximum 2 is below guarantee 3"),
        (lambda: SequenceShare(mu=0), "mu must be"),
        (lambda: SequenceShare(resolution=0), "resolution must be"),
    ],
)
def test_bad_settings_are_named(make: object, message: str) -> None:
    with pytest.raises(fs.InputError, match=message):
        make()  # type: ignore[operator]


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=effort(15, 2000), deadline=None)
def test_even_shares_of_several_resources_are_dealt_task_by_task(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(1, 6)), int(rng.integers(1, 4))
    demand = rng.integers(0, 4, (n, d)).astype(float)
    capacity = rng.integers(0, 30, d).astype(float)
    tasks, weight = rng.integers(0, 12, n), rng.integers(1, 5, n).astype(float)
    made = Claims(tuple(range(n)), tasks, np.zeros(n, np.int64), 0, weight, demand, capacity)
    made = replace(made, units=made.together())
    for provider, one in ((MaxMin(), np.ones(n)), (WeightedMaxMin(), weight)):
        share, left = np.zeros(n, np.int64), capacity.copy()
        endless = (demand == 0).all(axis=1)
        share[endless] = tasks[endless]
        hungry = {i for i in range(n) if share[i] < tasks[i]}
        while hungry:
            i = min(hungry, key=lambda i: (Fraction(int(share[i]), int(one[i])), i))
            if (demand[i] > left).any():
                hungry.discard(i)
                continue
            share[i] += 1
            left -= demand[i]
            if share[i] == tasks[i]:
                hungry.discard(i)
        assert provider(made).tolist() == share.tolist()


def test_a_claimant_of_a_scarce_resource_does_not_keep_the_rest_idle() -> None:
    for share in (MaxMin(), WeightedMaxMin(), DRF(), BatchShare(), SequenceShare()):
        sched = fs.Scheduler(fs.Policy(fairness=Fairness(share, "user")), resources=("cpu", "gpu"))
        sched.apply(*(fs.MachineAdded(i, {"cpu": 10, "gpu": 1 if i < 2 else 0}) for i in range(10)))
        sched.apply(fs.JobSubmitted("a", [fs.Task(("a", i), {"cpu": 1, "gpu": 1}) for i in range(8)], user="a"))
        sched.apply(fs.JobSubmitted("b", [fs.Task(("b", i), {"cpu": 1}) for i in range(200)], user="b"))
        rnd = sched.schedule(0.0)
        assert rnd.shares["a"].running == 2 and rnd.shares["b"].running >= 92


CLAIMANTS = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 9)).map(lambda pair: (max(pair), min(pair))), min_size=1
)


@given(CLAIMANTS, st.integers(0, 60))
def test_the_remaining_is_shared_by_who_is_behind(claimants: list[tuple[int, int]], units: int) -> None:
    tasks, running = (np.array(column, np.int64) for column in zip(*claimants, strict=True))
    share = Remaining(MaxMin())(Claims(tuple(range(len(tasks))), tasks, running, units))
    assert (running <= share).all() and (share <= tasks).all()
    assert share.sum() <= max(units, running.sum())
    assert share.sum() >= min(units, tasks.sum())
    for i in np.flatnonzero(share > running):
        assert (share[i] <= share[share < tasks] + 1).all(), "no claimant gets more while one that wants more has less"


def test_the_remaining_by_resources() -> None:
    demand = np.array([[1.0, 2.0], [2.0, 1.0], [1.0, 1.0]])
    claims = Claims(
        ("a", "b", "c"), np.array([20, 20, 20]), np.array([5, 0, 2]), 0, np.ones(3), demand, np.array([20.0, 20.0])
    )
    assert DRF()(claims).tolist() == [4, 4, 8], (
        "with these, a runs too much, and the others may start more than is left"
    )
    share = Remaining(DRF())(claims)
    assert share[0] == 5
    assert (share @ demand <= 20).all()


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=effort(15, 2000), deadline=None)
def test_the_rest_is_distributed_task_by_task_from_the_amounts_really_held(seed: int) -> None:
    """Running tasks may ask for more, or less, than waiting ones; amounts are whole numbers, so that ties are exact."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(1, 6)), int(rng.integers(1, 4))
    further = rng.integers(0, 4, (n, d)).astype(float)
    running = rng.integers(0, 4, n)
    # A claimant that holds only its tasks' demands stands higher with each: only the order decides between equals.
    held = np.where((running[:, None] > 0) & (further > 0), rng.integers(0, 9, (n, d)), 0).astype(float)
    capacity = rng.choice([16.0, 32.0, 64.0], d)
    tasks, weight = running + rng.integers(0, 12, n), 2.0 ** rng.integers(0, 3, n)
    portion = bool(rng.integers(2))
    most = rng.integers(8, 40, d) / 32 if portion else np.ones(d)
    made = Claims(
        tuple(range(n)), tasks, running, int(rng.integers(0, 40)), weight, further, capacity, held, further,
        most=most if portion else None,
    )  # fmt: skip
    left = np.maximum(most * capacity - held.sum(axis=0), 0)
    share, more = tasks.copy(), np.zeros(n, np.int64)
    hungry = {i for i in range(n) if further[i].any() and tasks[i] > running[i]}
    while hungry:
        i = min(hungry, key=lambda i: (((held[i] + more[i] * further[i]) / capacity).max() / weight[i], i))
        if (further[i] > left).any():
            hungry = set() if portion else hungry - {i}
            continue
        more[i] += 1
        left -= further[i]
        if running[i] + more[i] == tasks[i]:
            hungry.discard(i)
    asks = further.any(axis=1)
    share[asks] = (running + more)[asks]
    assert Remaining(DRF())(made).tolist() == share.tolist()


def test_without_any_rest_no_claimant_is_entitled_to_more() -> None:
    two, one = np.array([3, 3]), np.array([[1.0], [1.0]])
    made = Claims(("a", "b"), two, np.array([3, 0]), 3, np.ones(2), one, np.array([3.0]))
    for provider in (MaxMin(), WeightedMaxMin(), DRF()):
        gone = replace(made, capacity=np.zeros(1))
        assert provider(gone).tolist() == [0, 0] and Fairness(provider).part(gone).tolist() == [0, 0]
        assert Remaining(provider)(gone).tolist() == [3, 0]
        assert provider(replace(made, demand=np.zeros((2, 0)), capacity=np.zeros(0))).tolist() == [2, 1]
