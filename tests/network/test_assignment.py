"""Assignment: dense and sparse, integers and floats, least and largest, against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linear_sum_assignment

import flowsched as fs
from flowsched import _scaling


def draw(rng, kind, shape):
    if kind == "few values":
        return rng.integers(0, 3, shape)
    if kind == "wide":
        return rng.integers(-(10**9), 10**9, shape)
    if kind == "float":
        return rng.random(shape)
    if kind == "ties":
        return np.round(rng.random(shape), 1)
    if kind == "far apart":
        return 10.0 ** rng.integers(-9, 9, shape)
    return -rng.integers(0, 100, shape).astype(np.int8)


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("kind", ["few values", "wide", "float", "ties", "far apart", "negative"])
def test_dense_against_scipy(kind, maximize):
    rng = np.random.default_rng(len(kind))
    for n in range(1, 9):
        for m in range(1, 9):
            for _ in range(8):
                cost = draw(rng, kind, (n, m))
                rows, columns = fs.assignment(cost, maximize=maximize)
                best = linear_sum_assignment(cost, maximize=maximize)
                assert (np.diff(rows) > 0).all() and len(set(columns.tolist())) == len(rows) == min(n, m)
                assert cost[rows, columns].sum() == pytest.approx(cost[best].sum(), rel=1e-12)


@pytest.mark.parametrize("shape", [(60, 60), (40, 90), (90, 40), (120, 120)])
def test_the_prices_prove_it(shape):
    """Matched pairs have the least reduced cost of their row; an unmatched column is worth nothing."""
    rng = np.random.default_rng(1)
    for top in (2, 50, 10**6):
        cost = np.ascontiguousarray(np.sort(rng.integers(0, top, sorted(shape)), axis=1)[:, ::-1])
        columns, price = _scaling.match(cost)
        reduced = cost - price
        assert (reduced[np.arange(len(cost)), columns] == reduced.min(axis=1)).all()
        if shape[0] != shape[1]:
            assert not np.delete(price, columns).any() and (price <= 0).all()


def test_the_worst_matrix_known():
    """Costs i * j make every augmentation long."""
    i = np.arange(1, 81)
    cost = np.outer(i, i)
    rows, columns = fs.assignment(cost)
    assert columns.tolist() == rows[::-1].tolist()
    rows, columns = fs.assignment(cost, maximize=True)
    assert columns.tolist() == rows.tolist()


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_pairs_that_may_not_be_matched(seed, maximize):
    rng = np.random.default_rng(seed)
    n, m = rng.integers(2, 9, 2)
    never = -np.inf if maximize else np.inf
    cost = np.where(rng.random((n, m)) < 0.4, never, rng.random((n, m)))
    try:
        best = linear_sum_assignment(cost, maximize=maximize)
    except ValueError:
        with pytest.raises(fs.InfeasibleError, match="must be left over") as caught:
            fs.assignment(cost, maximize=maximize)
        assert caught.value.shortfall >= 1
        return
    rows, columns = fs.assignment(cost, maximize=maximize)
    assert cost[rows, columns].sum() == pytest.approx(cost[best].sum(), rel=1e-12)
    i, j = np.nonzero(np.isfinite(cost))
    matrix = sparse.csr_array((cost[i, j], (i, j)), (n, m))
    rows, columns = fs.assignment(matrix, maximize=maximize)
    assert cost[rows, columns].sum() == pytest.approx(cost[best].sum(), rel=1e-12)


def test_integers_are_exact_where_floats_are_not():
    cost = np.array([[2**53 + 1, 2**53], [2**53 + 2, 2**53]])
    rows, columns = fs.assignment(cost)
    assert (rows.tolist(), columns.tolist()) == ([0, 1], [0, 1])


def test_floats_are_exact_to_the_tolerance_that_is_stated():
    cost = np.array([[1.0, 1.0 + 2**-47], [1.0 + 2**-47, 1.0 + 3 * 2**-47]])
    assert fs.assignment(cost)[1].tolist() == [1, 0]
    assert fs.assignment(np.zeros((2, 2)))[1].tolist() != [0, 0]
    assert fs.assignment([[1e300, 1e-300]])[1].tolist() == [1]


@pytest.mark.parametrize(
    ("cost", "options", "error", "words"),
    [
        ([[1.0, np.nan]], {}, fs.InputError, r"cost\[0, 1\]: nan is not a number to match by$"),
        ([[1.0], [-np.inf]], {}, fs.InputError, r"cost\[1, 0\]: -inf .* a pair that may not be matched is inf"),
        ([[np.inf]], {"maximize": True}, fs.InputError, r"cost\[0, 0\]: inf .* may not be matched is -inf"),
        ([[True]], {}, fs.InputError, "cost: integers expected, got bool"),
        ([["a"]], {}, fs.InputError, r"cost\[0\]: an integer expected, got 'a'"),
        ([[1, 2**58]], {}, fs.CostRangeError, r"cost\[0, 1\]: 288230376151711744 is too large"),
        ([[1], [-(2**63)]], {"maximize": True}, fs.CostRangeError, r"cost\[1, 0\]: -9223372036854775808 is too large"),
        ([1, 2], {}, fs.InputError, "cost: a matrix of shape"),
    ],
)  # fmt: skip
def test_wrong_costs(cost, options, error, words):
    with pytest.raises(error, match=words):
        fs.assignment(cost, **options)


def test_rows_left_over():
    with pytest.raises(fs.InfeasibleError, match="not all of the 3 rows can be matched, 1 must be left over") as caught:
        fs.assignment([[1.0, np.inf, np.inf], [2.0, np.inf, np.inf], [3.0, 1.0, 2.0]])
    assert caught.value.shortfall == 1
