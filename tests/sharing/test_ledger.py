"""Debts move without chains or cycles, and everybody's net position changes by the loan alone."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import flowsched as fs
from flowsched.sharing.deployment import Deployment
from flowsched.sharing.ledger import Ledger
from flowsched.sharing.waterfill import water_fill


def no_chains(ledger: Ledger) -> bool:
    """No user both owes and is owed, and no debt is negative."""
    return bool((ledger.debt >= 0).all() and not ((ledger.debt.sum(axis=0) > 0) & (ledger.debt.sum(axis=1) > 0)).any())


@pytest.mark.parametrize(
    ("r3", "debts"),
    [
        (2, {("k", "m"): 4 + 2, ("n", "m"): 5 - 2}),
        (5, {("k", "m"): 4 + 5}),
        (7, {("k", "m"): 4 + 5, ("k", "n"): 7 - 5}),
    ],
)
def test_the_three_printed_cases(r3: int, debts: dict[tuple[str, str], int]) -> None:
    """m has lent r1 = 4 to k and r2 = 5 to n; now k borrows r3 from n."""
    ledger = Ledger("kmn")
    ledger.borrow("k", "m", 4)
    ledger.borrow("n", "m", 5)
    net = ledger.net()
    ledger.borrow("k", "n", r3)
    assert ledger.debts() == debts
    assert (ledger.net() - net).tolist() == [-r3, 0, r3]


LOANS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 9)).filter(lambda x: x[0] != x[1]), max_size=30
)


@settings(max_examples=effort(15, 1000), deadline=None)
@given(LOANS)
def test_loans_add_up_without_chains(loans: list[tuple[int, int, int]]) -> None:
    ledger = Ledger(range(5))
    net = np.zeros(5, np.int64)
    for borrower, lender, units in loans:
        ledger.borrow(borrower, lender, units)
        net[borrower] -= units
        net[lender] += units
        assert ledger.net().tolist() == net.tolist()
        assert no_chains(ledger)


def test_reclaim_from_the_borrower_from_others_and_by_force() -> None:
    ledger = Ledger("nmk")
    ledger.borrow("m", "n", 9)
    a = ledger.reclaim("n", 9, {"m": 4})  # (A) its borrower has 4 idle
    assert (a.returned, a.moved, a.forced, a.waits) == ({"m": 4}, {}, {}, 5)
    b = ledger.reclaim("n", 5, {"k": 3})  # (B) k has 3 idle: m owes them to k now
    assert (b.returned, b.moved, b.waits) == ({}, {"k": 3}, 2)
    assert ledger.debts() == {("m", "n"): 2, ("m", "k"): 3}
    c = ledger.reclaim("n", 2, {})  # (C) no user has idle units: it waits ...
    assert (c.forced, c.waits) == ({}, 2)
    forced = ledger.reclaim("n", 2, {}, force=True)  # ... unless forced
    assert (forced.forced, forced.waits) == ({"m": 2}, 0)
    assert ledger.debts() == {("m", "k"): 3}


def test_reclaim_takes_a_fraction_of_the_idle_units() -> None:
    ledger = Ledger("nmk")
    ledger.borrow("m", "n", 9)
    got = ledger.reclaim("n", 9, {"m": 4, "k": 6}, fraction=0.5)
    assert (got.returned, got.moved, got.waits) == ({"m": 2}, {"k": 3}, 4)


def _by_the_source(r: int, idle: tuple[int, int], mu: float) -> tuple[int, int, int]:
    """Section 2.1 (2), A and B, for a loan r of m from n: units that m returns, units owed to k instead, and the rest."""
    f = idle[0]
    returned = int(r * mu) if r <= f else int(f * mu)  # (A)
    r -= returned
    f = idle[1]
    moved = int(r * mu) if r <= f else int(f * mu)  # (B)
    return returned, moved, r - moved


@settings(max_examples=effort(15, 5000), deadline=None)
@given(
    st.integers(0, 12),
    st.tuples(st.integers(0, 12), st.integers(0, 12)),
    st.sampled_from([1 / 8, 0.25, 0.3, 0.5, 0.7, 0.9, 1.0]),
)
def test_a_damped_return_is_that_of_the_source(r: int, idle: tuple[int, int], mu: float) -> None:
    ledger = Ledger("nmk")
    ledger.borrow("m", "n", r)
    got = ledger.reclaim("n", r, {"m": idle[0], "k": idle[1]}, fraction=mu)
    returned, moved, rest = (got.returned.get("m", 0), got.moved.get("k", 0), got.waits)
    assert (returned, moved, rest) == _by_the_source(r, idle, mu)
    assert ledger.debts() == {pair: owed for pair, owed in {("m", "n"): rest, ("m", "k"): moved}.items() if owed}


def test_a_borrower_that_owes_more_lends_nothing_beyond_its_damped_return() -> None:
    """i and m owe n 10 each; m has 20 idle, of which it gives half of its debt, and nothing for that of i."""
    ledger = Ledger("nimk")
    ledger.borrow("i", "n", 10)
    ledger.borrow("m", "n", 10)
    got = ledger.reclaim("n", 20, {"m": 20}, fraction=0.5)
    assert (got.returned, got.moved, got.waits) == ({"m": 5}, {}, 15)


@settings(max_examples=effort(15, 1000), deadline=None)
@given(
    LOANS,
    st.lists(st.integers(0, 9), min_size=5, max_size=5),
    st.integers(0, 30),
    st.sampled_from([0.3, 0.5, 1.0]),
    st.booleans(),
)
def test_reclaim_conserves(
    loans: list[tuple[int, int, int]], idle: list[int], units: int, fraction: float, force: bool
) -> None:
    ledger = Ledger(range(5))
    for loan in loans:
        ledger.borrow(*loan)
    net = ledger.net()
    got = ledger.reclaim(0, units, dict(enumerate(idle)), fraction=fraction, force=force)
    back = sum(got.returned.values()) + sum(got.moved.values()) + sum(got.forced.values())
    assert back + got.waits == min(units, max(0, int(net[0])))
    change = np.zeros(5, np.int64)
    change[0] -= back
    for gave in (got.returned, got.moved, got.forced):
        for user, n in gave.items():
            change[user] += n
    assert (ledger.net() - net).tolist() == change.tolist()
    assert all(got.returned.get(u, 0) + got.moved.get(u, 0) <= int(idle[u] * fraction) for u in range(1, 5))
    assert no_chains(ledger)


def test_leaving_spreads_claims_in_proportion() -> None:
    ledger = Ledger("dcab")
    ledger.borrow("c", "d", 10)
    with pytest.raises(fs.InputError, match="'c' still owes 10"):
        ledger.leave("c", {"d": 1, "a": 1, "b": 1})
    ledger.leave("d", {"c": 2, "a": 4, "b": 1})  # 10 * 4/7 = 5, 10 * 1/7 = 1; the rest is cancelled
    assert ledger.users == ("c", "a", "b")
    assert ledger.debts() == {("c", "a"): 5, ("c", "b"): 1}


@settings(max_examples=effort(15, 1000), deadline=None)
@given(LOANS, st.integers(0, 4))
def test_leaving_keeps_the_ledger_sound(loans: list[tuple[int, int, int]], who: int) -> None:
    ledger = Ledger(range(5))
    for loan in loans:
        ledger.borrow(*loan)
    if ledger.debt[who].any():
        return
    total = int(ledger.net()[who])
    before = ledger.net()
    ledger.leave(who, {i: i + 1 for i in range(5) if i != who})
    change = ledger.net() - np.delete(before, who)
    assert change.sum() == total
    assert no_chains(ledger)


# -- the heartbeats ---------------------------------------------------------------------------------------------


def test_table_2() -> None:
    sharing = Deployment({"A": 50, "B": 30})
    queues = {"A": [12, 15, 8, 6, 11, 10, 14, 9], "B": [8, 6, 10, 11, 5, 7, 6, 5]}
    expected = [
        # free, entitled, after debts, A runs, B runs, spare, left, l, A is owed, cumulative
        (30, [19, 11], [19, 11], [12], [8, 6], [False, True], 4, 2, 4, [12, 14]),
        (35, [22, 13], [26, 9], [15, 8], [10], [False, True], 2, 3, 2, [35, 24]),
        (32, [20, 12], [22, 10], [6, 11], [11], [False, True], 4, 7, 2, [52, 35]),
        (31, [20, 11], [22, 9], [10, 14], [5], [True, False], 2, 4, -3, [76, 40]),
        (20, [12, 8], [9, 11], [9], [7], [False, False], 4, 4, -2, [85, 47]),
    ]
    total = np.zeros(2, np.int64)
    for free, entitled, received, a, b, spare, left, position, owed, cumulative in expected:
        beat = sharing.deal_sizes(free, queues)
        started = [queues[user][:n] for user, n in zip(beat.users, beat.tasks.tolist(), strict=True)]
        queues = {user: queues[user][n:] for user, n in zip(beat.users, beat.tasks.tolist(), strict=True)}
        total += beat.units
        assert beat.entitled.tolist() == entitled
        assert beat.received.tolist() == received
        assert started == [a, b]
        assert beat.spare.tolist() == spare
        assert (beat.left, sharing.sequence.position % 8, int(sharing.ledger.net()[0])) == (left, position, owed)
        assert total.tolist() == cumulative


@settings(max_examples=effort(15, 800), deadline=None)
@given(
    st.lists(st.integers(1, 8), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 20), st.lists(st.integers(0, 9), min_size=5, max_size=5)), max_size=15),
    st.sampled_from([0.25, 0.6, 1.0]),
    st.sampled_from([1, 7]),
)
def test_heartbeats_conserve(quotas: list[int], beats: list[tuple[int, list[int]]], mu: float, ticks: int) -> None:
    sharing = Deployment(dict(enumerate(quotas)), mu=mu, ticks=ticks)
    for free, wanted in beats:
        want = np.array(wanted[: len(quotas)], np.int64)
        beat = sharing.deal(free, want)
        assert beat.units.sum() + beat.left == free
        assert beat.units.sum() == min(free, want.sum())  # units idle only if no user wants them
        assert (beat.units <= want).all()
        assert beat.received.sum() == free * ticks
        assert sharing.ledger.net().sum() == 0
        assert no_chains(sharing.ledger)


@settings(max_examples=effort(15, 600), deadline=None)
@given(
    st.lists(st.integers(1, 6), min_size=2, max_size=4),
    st.lists(st.integers(0, 12), min_size=30, max_size=30),
    st.integers(0, 3),
)
def test_who_was_idle_catches_up(quotas: list[int], free: list[int], idle: int) -> None:
    """Once the lender has tasks again, all consumption ends where the proportions want it."""
    sharing = Deployment(dict(enumerate(quotas)))
    used = np.zeros(len(quotas), np.int64)
    busy = np.full(len(quotas), 10**6)
    lending = busy.copy()
    lending[idle % len(quotas)] = 0
    for i, units in enumerate(free):
        used += sharing.deal(units, lending if i < 5 else busy).units
    owed = sharing.ledger.net()
    exact = [Fraction(sum(free) * q, sum(quotas)) for q in quotas]
    assert all(abs(int(u) + int(o) - want) < len(quotas) + 1 for u, o, want in zip(used, owed, exact, strict=True))


def test_a_damped_borrower_is_not_starved() -> None:
    quotas = {"A": 1, "B": 1}
    for mu in (1.0, 0.5, 0.25):
        sharing = Deployment(quotas, mu=mu)
        for _ in range(20):
            sharing.deal(10, {"A": 0, "B": 100})
        assert sharing.ledger.debts() == {("B", "A"): 100}
        units = sum(int(sharing.deal(2, {"A": 100, "B": 100}).units[1]) for _ in range(10))
        assert abs(units - 10 * (1 - mu)) < 1  # of the 10 it is entitled to; fractions are carried over
        # With nothing to run it pays all it can.
        assert sharing.deal(2, {"A": 100, "B": 0}).units.tolist() == [2, 0]


def test_units_times_time() -> None:
    """A's tasks take three times as long as B's: by time, A gets a third as many."""
    sharing = Deployment({"A": 1, "B": 1}, ticks=20)
    units = np.zeros(2, np.int64)
    for _ in range(200):
        beat = sharing.deal(10, {"A": 100, "B": 100})
        units += beat.units
        sharing.finished("A", int(beat.units[0]), 30)
        sharing.finished("B", int(beat.units[1]), 10)
        assert no_chains(sharing.ledger)
    assert abs(units[0] * 30 / (units[1] * 10) - 1) < 0.02
    plain = Deployment({"A": 1, "B": 1})
    counted = sum(plain.deal(10, {"A": 100, "B": 100}).units for _ in range(200))
    assert counted.tolist() == [1000, 1000]


def test_a_user_in_debt_leaves_when_it_has_paid() -> None:
    sharing = Deployment({"A": 1, "B": 1, "C": 2})
    sharing.deal(8, {"A": 0, "B": 4, "C": 4})
    assert sharing.ledger.debts() == {("B", "A"): 2}
    sharing.leave("B")
    assert sharing.users == ("A", "B", "C")
    beat = sharing.deal(4, {"A": 9, "B": 9, "C": 9})
    assert beat.units.tolist() == [2, 0, 2]
    sharing.deal(4, {"A": 9, "C": 9})
    assert sharing.users == ("A", "C")
    assert sharing.deal(12, {"A": 90, "C": 90}).units.sum() == 12
    with pytest.raises(fs.InputError, match="the last one"):
        sharing.leave("A")
        sharing.leave("C")


class Comings(RuleBasedStateMachine):
    """Users come, go, run and lend in any order; the books stay sound."""

    @initialize()
    def start(self) -> None:
        self.sharing = Deployment({0: 3, 1: 2})
        self.names = itertools.count(2)

    @rule(quota=st.integers(1, 9))
    def join(self, quota: int) -> None:
        if len(self.sharing.users) < 6:
            self.sharing.join(next(self.names), quota)

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        user = data.draw(st.sampled_from(self.sharing.users))
        try:
            self.sharing.leave(user)
        except fs.InputError as error:
            assert "the last one" in str(error)

    @rule(free=st.integers(0, 30), data=st.data())
    def sizes(self, free: int, data: st.DataObject) -> None:
        queues = {user: data.draw(st.lists(st.integers(1, 9), max_size=4)) for user in self.sharing.users}
        beat = self.sharing.deal_sizes(free, queues)
        started = sum(sum(queues[user][:n]) for user, n in zip(beat.users, beat.tasks.tolist(), strict=True))
        assert started == beat.units.sum() == free - beat.left

    @rule(free=st.integers(0, 30), data=st.data())
    def units(self, free: int, data: st.DataObject) -> None:
        n = len(self.sharing.users)
        self.sharing.deal(free, data.draw(st.lists(st.integers(0, 20), min_size=n, max_size=n)))

    @invariant()
    def sound(self) -> None:
        if hasattr(self, "sharing"):
            assert self.sharing.ledger.users == self.sharing.users
            assert self.sharing.ledger.net().sum() == 0
            assert no_chains(self.sharing.ledger)


Comings.TestCase.settings = settings(max_examples=effort(12, 240), stateful_step_count=20, deadline=None)
TestComings = Comings.TestCase


# -- water filling ----------------------------------------------------------------------------------------------


CLAIMS = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4), st.integers(0, 4)), min_size=1, max_size=4)


@settings(max_examples=effort(15, 1000), deadline=None)
@given(CLAIMS, st.integers(0, 14))
def test_water_fill_gives_to_who_has_least(claims: list[tuple[int, int, int]], units: int) -> None:
    ceiling, weight, least = (np.array(column) for column in zip(*claims, strict=True))
    found = water_fill(units, ceiling, weight, least)
    least = np.minimum(least, ceiling)
    share, limit = (least.tolist(), ceiling.tolist()) if least.sum() <= units else ([0] * len(claims), least.tolist())
    for _ in range(min(units, int(ceiling.sum())) - sum(share)):
        hungry = [i for i in range(len(claims)) if share[i] < limit[i]]
        share[min(hungry, key=lambda i: (Fraction(share[i], int(weight[i])), i))] += 1
    assert found.tolist() == share


@settings(max_examples=effort(15, 1000), deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.integers(0, 14))
def test_water_fill_is_leximin(ceiling: list[int], units: int) -> None:
    every = (one for one in itertools.product(*(range(c + 1) for c in ceiling)) if sum(one) == min(units, sum(ceiling)))
    assert sorted(water_fill(units, np.array(ceiling)).tolist()) == max(sorted(one) for one in every)


def test_without_weight_a_claimant_gets_the_rest() -> None:
    assert water_fill(5, np.array([3, 9]), [1.0, 0.0]).tolist() == [3, 2]
    assert water_fill(2, np.array([3, 9]), [1.0, 0.0]).tolist() == [2, 0]
    assert water_fill(10**12, np.array([10**12, 10**12]), [1.0, 3.0]).tolist() == [25 * 10**10, 75 * 10**10]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Ledger("ab").borrow("a", "a", 1), "cannot borrow from itself"),
        (lambda: Ledger("ab").borrow("a", "c", 1), "unknown user 'c'"),
        (lambda: Ledger("ab").borrow("a", "b", -1), "units must be a whole number"),
        (lambda: Ledger("ab").repay("a", "b", 1), "owes 'b' 0, not 1"),
        (lambda: Ledger("aa"), "'a' already exists"),
        (lambda: Ledger("ab").reclaim("a", 1, {}, fraction=0.0), "fraction: a number above 0"),
        (lambda: Deployment({"A": 1}, mu=0.0), "mu: a number above 0"),
        (lambda: Deployment({"A": 1}, ticks=0), "ticks must be a whole number"),
        (lambda: Deployment({"A": 1}).deal(3, {"B": 1}), "unknown user 'B'"),
        (lambda: Deployment({"A": 1}).deal(3, {"A": -1}), r"wanted\['A'\]"),
        (lambda: Deployment({"A": 1}).deal(3, [1, 2]), "wanted must be 1 whole numbers"),
        (lambda: Deployment({"A": 1}).deal_sizes(3, {"A": [1, 0]}), r"queues\['A'\]\[1\]"),
        (lambda: Deployment({"A": 1}).leave("A"), "the last one"),
    ],
)
def test_bad_input_is_named(call: object, message: str) -> None:
    with pytest.raises(fs.FlowschedError, match=message):
        call()  # type: ignore[operator]
