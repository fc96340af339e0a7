"""The deployment sequence against its definition, carried out step by step."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st

import flowsched as fs
from flowsched.sharing import deployment_sequence as module
from flowsched.sharing.deployment_sequence import DeploymentSequence, sequence

QUOTAS = st.lists(st.integers(0, 12), min_size=1, max_size=6).filter(any)
METHODS = st.sampled_from(["max_deficit", "min_ratio"])


def by_definition(quotas: list[int], method: str) -> list[int]:
    """The source's two loops, word by word."""
    out = []
    left, used = list(quotas), [0] * len(quotas)
    for _ in range(sum(quotas)):
        if method == "max_deficit":
            deficits = {i: Fraction(left[i] - 1, quotas[i]) for i in range(len(quotas)) if left[i] > 0}
            user = max(deficits, key=lambda i: (deficits[i], i))
            left[user] -= 1
        else:
            ratios = {i: Fraction(used[i], quotas[i]) for i in range(len(quotas)) if used[i] < quotas[i]}
            user = min(ratios, key=lambda i: (ratios[i], i))
            used[user] += 1
        out.append(user)
    return out


def test_worked_example() -> None:
    assert "".join("AB"[i] for i in fs.sharing.sequence([5, 3])) == "ABAABABA"
    assert sequence([2, 1]).tolist() == [0, 1, 0]
    assert sequence([4, 2]).tolist() == [0, 1, 0, 0, 1, 0]


def test_table_1() -> None:
    turns = DeploymentSequence({"A": 5, "B": 3})
    rows = turns.draw(np.full(8, 5)).cumsum(axis=0).tolist()
    assert rows == [[3, 2], [6, 4], [9, 6], [13, 7], [16, 9], [19, 11], [22, 13], [25, 15]]
    assert turns.position == 0


@settings(max_examples=effort(15, 800), deadline=None)
@given(QUOTAS, METHODS)
def test_sequence_is_the_definition(quotas: list[int], method: str) -> None:
    assert sequence(quotas, method=method).tolist() == by_definition(quotas, method)


@settings(max_examples=effort(15, 800), deadline=None)
@given(QUOTAS)
def test_min_ratio_is_max_deficit_reversed(quotas: list[int]) -> None:
    assert sequence(quotas, method="min_ratio").tolist() == sequence(quotas)[::-1].tolist()


@settings(max_examples=effort(15, 800), deadline=None)
@given(QUOTAS, st.integers(1, 5), METHODS)
def test_a_common_divisor_repeats_the_period(quotas: list[int], times: int, method: str) -> None:
    assert (
        sequence([times * q for q in quotas], method=method).tolist()
        == times * sequence(quotas, method=method).tolist()
    )


@pytest.mark.parametrize("table", [True, False])
@settings(max_examples=effort(15, 800), deadline=None)
@given(QUOTAS, METHODS, st.integers(0, 100), st.lists(st.integers(0, 40), max_size=6))
def test_drawing_is_walking(table: bool, quotas: list[int], method: str, position: int, draws: list[int]) -> None:
    size = module._TABLE
    try:
        module._TABLE = size if table else 0
        turns = DeploymentSequence(quotas, method, position)
        walk = np.tile(sequence(quotas, method=method), 100 + sum(draws))[position % sum(quotas) :]
        counts = turns.draw(np.array(draws, np.int64))
    finally:
        module._TABLE = size
    for units, found in zip(draws, counts.tolist(), strict=True):
        assert found == np.bincount(walk[:units], minlength=len(quotas)).tolist()
        walk = walk[units:]
    assert turns.position == (position + sum(draws)) % sum(quotas)


@settings(max_examples=effort(15, 800), deadline=None)
@given(QUOTAS, st.integers(0, 60), st.integers(0, 60))
def test_roll_back_undoes_draw(quotas: list[int], first: int, units: int) -> None:
    turns = DeploymentSequence(quotas)
    turns.draw(first)
    before = turns.position
    drawn = turns.draw(units)
    assert turns.roll_back(units).tolist() == drawn.tolist()
    assert turns.position == before


def test_long_periods_are_never_written_out() -> None:
    quotas = [999_999_937, 500_000_003, 7, 1]  # a period of 1,499,999,948
    turns = DeploymentSequence(quotas)
    assert turns.period == sum(quotas)
    counts = turns.draw(10**15)
    exact = [Fraction(10**15 * q, sum(quotas)) for q in quotas]
    assert counts.sum() == 10**15
    assert all(abs(int(found) - want) <= 2 for found, want in zip(counts, exact, strict=True))
    rest = turns.total - turns.position
    assert (turns.draw(rest) + counts).tolist() == [(10**15 // sum(quotas) + 1) * q for q in quotas]
    with pytest.raises(fs.InputError, match="not written out"):
        sequence(quotas)


@settings(max_examples=effort(15, 800), deadline=None)
@given(QUOTAS, st.integers(0, 80), st.integers(1, 9))
def test_join_keeps_the_others_in_proportion(quotas: list[int], used: int, quota: int) -> None:
    turns = DeploymentSequence(quotas)
    turns.draw(used)
    part = Fraction(turns.position, turns.total)
    before = turns.position
    turns.join("new", quota)
    gained = turns.position - before if turns.position or not before else turns.total - before
    assert abs(gained - part * quota) <= Fraction(1, 2)
    # To the end of the turn and one more: every user gets its quota and the rest of the turn.
    rest = turns.draw(turns.total - turns.position)
    assert turns.draw(turns.total).tolist() == [*quotas, quota]
    assert rest.sum() + before + gained == sum(quotas) + quota


@settings(max_examples=effort(15, 800), deadline=None)
@given(QUOTAS, st.integers(0, 80), st.integers(1, 9))
def test_leave_reverses_join(quotas: list[int], used: int, quota: int) -> None:
    turns = DeploymentSequence(quotas)
    turns.draw(used)
    before = turns.position
    turns.join("new", quota)
    turns.leave("new")
    # Rounding of the newcomer's part may move the position by the worth of one of its units to the others.
    assert min(abs(turns.position - before), turns.total - abs(turns.position - before)) <= 1
    assert turns.draw(turns.total).tolist() == quotas


def test_join_by_the_source_formula() -> None:
    turns = DeploymentSequence({"A": 5, "B": 3}, position=3)
    turns.join("C", 4)  # floor(3 / 8 * 4 + 0.5) = 2
    assert (turns.position, turns.total, turns.users) == (5, 12, ("A", "B", "C"))
    turns.leave("A")  # floor(5 / 12 * 5 + 0.5) = 2
    assert (turns.position, turns.total, turns.users) == (3, 7, ("B", "C"))


@settings(max_examples=effort(6, 120), deadline=None)
@given(st.permutations(["x", "y", "z"]))
def test_names_do_not_matter(names: list[str]) -> None:
    turns = DeploymentSequence(dict(zip(names, [5, 3, 3], strict=True)))
    assert [turns.draw(3).tolist() for _ in range(5)] == DeploymentSequence([5, 3, 3]).draw([3] * 5).tolist()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sequence([0, 0]), "at least one must be above 0"),
        (lambda: sequence([]), "at least one must be above 0"),
        (lambda: sequence([3, -1]), r"quotas\[1\]"),
        (lambda: sequence([3, 1.5]), r"quotas\[1\]"),
        (lambda: sequence([True]), r"quotas\[0\]"),
        (lambda: sequence([1], method="best"), "method: one of max_deficit, min_ratio"),
        (lambda: sequence([1 << 40, 1]), r"quotas\[0\]: 1099511627776 after division"),
        (lambda: DeploymentSequence([1]).draw(-1), "units: a whole number >= 0"),
        (lambda: DeploymentSequence([1]).draw(0.5), "units: a whole number >= 0"),
        (lambda: DeploymentSequence({"A": 1}).join("A", 2), "'A' already exists"),
        (lambda: DeploymentSequence({"A": 1}).leave("B"), "unknown user 'B'"),
        (lambda: DeploymentSequence({"A": 1, "B": 0}).leave("A"), "the last one"),
    ],
)
def test_bad_input_is_named(call: object, message: str) -> None:
    with pytest.raises(fs.FlowschedError, match=message):
        call()  # type: ignore[operator]
