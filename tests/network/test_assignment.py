"""Assignment: dense and sparse, integers and floats, least and largest, against SciPy."""

from __future__ import annotations

import itertools
import sys
import threading
from fractions import Fraction

import numpy as np
import pytest
from effort import effort
from scipy import sparse
from scipy.optimize import linear_sum_assignment

import flowsched as fs
from flowsched.kernels import assignment as kernel


def draw(rng, kind, shape):
    if kind == "few values":
        return rng.integers(0, 3, shape)
    if kind == "wide":
        return rng.integers(-(10**9), 10**9, shape)
    if kind == "float":
        return rng.random(shape)
    if kind == "clipped":
        return np.minimum(rng.integers(0, 30, shape), 7)
    if kind == "ties":
        return np.round(rng.random(shape), 1)
    if kind == "far apart":
        return 10.0 ** rng.integers(-9, 9, shape)
    return -rng.integers(0, 100, shape).astype(np.int8)


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("kind", ["few values", "wide", "float", "clipped", "ties", "far apart", "negative"])
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
        columns, price = kernel.match(cost)
        reduced = cost - price
        assert (reduced[np.arange(len(cost)), columns] == reduced.min(axis=1)).all()
        if shape[0] != shape[1]:
            assert not np.delete(price, columns).any() and (price <= 0).all()


VIEWS = {
    "rows": lambda cost: cost,
    "columns": np.asfortranarray,
    "backwards": lambda cost: cost[::-1, ::-1],
    "every other": lambda cost: np.repeat(np.repeat(cost, 2, 0), 2, 1)[::2, ::2],
    "other byte order": lambda cost: cost.astype(cost.dtype.newbyteorder()),
    "read only": lambda cost: np.frombuffer(cost.tobytes(), cost.dtype).reshape(cost.shape),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8, np.float64, np.float32])
def test_all_layouts_against_scipy(kind, view):
    rng = np.random.default_rng(len(view))
    for shape in ((40, 40), (30, 70), (70, 30)):
        for top in (3, 200, 2**40):
            if kind == np.float64:
                cost = rng.random(shape) * top
            else:
                cost = rng.integers(0, min(top, 2**31 if kind == np.int32 else 255 if kind == np.uint8 else top), shape)
            cost = VIEWS[view](cost.astype(kind))
            for maximize in (False, True):
                before = cost.copy()
                rows, columns = fs.assignment(cost, maximize=maximize)
                best = linear_sum_assignment(cost.astype(kind), maximize=maximize)
                exactly = cost.astype(object)
                assert rows.tolist() == best[0].tolist() or len(set(rows.tolist())) == min(shape)
                assert len(set(columns.tolist())) == min(shape)
                assert sum(exactly[rows, columns]) == pytest.approx(sum(exactly[best]), rel=1e-12)
                assert (cost == before).all()


@pytest.mark.parametrize("kind", [np.int64, np.int16, np.float64])
@pytest.mark.parametrize("shape", [(5, 3, 4), (4, 5, 2), (1, 6, 6), (0, 2, 3), (3, 0, 2)])
def test_a_stack_is_matched_like_its_matrices(kind, shape):
    cost = np.random.default_rng(sum(shape)).integers(0, 9, shape).astype(kind)
    rows, columns = fs.assignment(cost, maximize=True)
    assert rows.shape == columns.shape == (shape[0], min(shape[1:]))
    for k, matrix in enumerate(cost):
        alone = fs.assignment(matrix, maximize=True)
        assert (rows[k].tolist(), columns[k].tolist()) == (alone[0].tolist(), alone[1].tolist())


def test_a_stack_with_pairs_that_may_not_be_matched():
    cost = np.array([[[1.0, 2.0], [3.0, np.inf]], [[np.inf, np.inf], [1.0, 2.0]]])
    assert fs.assignment(cost[:1])[1].tolist() == [[1, 0]]
    with pytest.raises(fs.InfeasibleError, match=r"^cost\[1\]: cost: not all of the 2 rows") as caught:
        fs.assignment(cost)
    assert caught.value.shortfall == 1


def test_other_threads_run_while_a_stack_is_matched():
    i = np.arange(1, 401)
    stack = np.tile(np.outer(i, i), (4, 1, 1))
    begun, ended, within = threading.Event(), threading.Event(), []

    def match_small():
        begun.wait()
        while not ended.is_set():
            fs.assignment([[2, 1], [1, 2]])
            if not ended.is_set():
                within.append(True)

    other = threading.Thread(target=match_small)
    other.start()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        begun.set()
        fs.assignment(stack)
    finally:
        ended.set()
        sys.setswitchinterval(interval)
        other.join()
    assert within


def test_the_worst_matrix_known():
    """Costs i * j make every augmentation long."""
    i = np.arange(1, 81)
    cost = np.outer(i, i)
    rows, columns = fs.assignment(cost)
    assert columns.tolist() == rows[::-1].tolist()
    rows, columns = fs.assignment(cost, maximize=True)
    assert columns.tolist() == rows.tolist()


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("seed", range(effort(4, 20)))
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


def exact(cost, maximize):
    """The least (largest) total, as a fraction, by trying all matchings of a small matrix; None without one."""
    if cost.shape[0] > cost.shape[1]:
        cost = cost.T
    table = [[None if np.isinf(value) else Fraction(value) for value in row] for row in cost.tolist()]
    totals = (
        sum(values)
        for columns in itertools.permutations(range(cost.shape[1]), len(table))
        if None not in (values := [row[j] for row, j in zip(table, columns, strict=True)])
    )
    return (max if maximize else min)(totals, default=None)


FLOATS = {
    "even": lambda rng, shape: rng.random(shape),
    "stand-ins": lambda rng, shape: np.where(rng.random(shape) < 0.5, 10.0 ** rng.integers(15, 300), rng.random(shape)),
    "two stand-ins": lambda rng, shape: rng.choice([1e17, 1e32, 1e300, -1e20, 0.1, 0.2, 0.3, 1 / 3], shape),
    "all sizes": lambda rng, shape: rng.random(shape) * 10.0 ** rng.integers(-300, 300, shape),
    "last bits": lambda rng, shape: 1 + rng.integers(0, 3, shape) * 2.0**-52,
    "both ends": lambda rng, shape: rng.choice([5e-324, 1e-310, 1.0, 1e308, -1e308], shape),
    "a few units apart": lambda rng, shape: (
        1e6 * rng.integers(0, 3, shape) + rng.random(shape) * 2.0 ** -rng.integers(20, 32)
    ),
    "singles": lambda rng, shape: rng.random(shape).astype(np.float32),
}


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("kind", FLOATS)
def test_floats_are_matched_exactly(kind, maximize):
    """Dense, with pairs that may not be matched, and sparse: what no rounding to integers of 64 bits could tell apart."""
    rng = np.random.default_rng(len(kind))
    for _ in range(effort(20, 3000)):
        n, m = rng.integers(1, 6, 2)
        cost = FLOATS[kind](rng, (n, m))
        if rng.random() < 0.4:
            cost[rng.random((n, m)) < 0.3] = -np.inf if maximize else np.inf
        i, j = np.nonzero(np.isfinite(cost))
        best = exact(cost, maximize)
        for given in (cost, sparse.csr_array((cost[i, j], (i, j)), (n, m))):
            try:
                rows, columns = fs.assignment(given, maximize=maximize)
            except fs.InfeasibleError:
                assert best is None
            else:
                assert len(rows) == min(n, m)
                assert sum(map(Fraction, cost[rows, columns].tolist())) == best


def distances(rng, shape, span):
    """Distances of points of a grid: many pairs of sums that are equal, or equal but for the last bits."""
    x, y = rng.integers(0, span, (shape[0], 1, 2)), rng.integers(0, span, (1, shape[1], 2))
    return np.hypot(*np.moveaxis(x - y, 2, 0))


NEARLY_EQUAL = {
    "equal": lambda rng, shape: np.full(shape, 1 / 3),
    "uniform": lambda rng, shape: rng.random(shape),
    "grid": lambda rng, shape: distances(rng, shape, 12),
    "clipped": lambda rng, shape: np.minimum(distances(rng, shape, 50), 5.3),
    "thirds": lambda rng, shape: rng.integers(0, 40, shape) / 3,
    "one point to another": lambda rng, shape: np.where(np.eye(*shape), 9, np.abs(np.subtract.outer(*map(rng.permutation, shape)) / 7.0)),
    "stand-ins": lambda rng, shape: np.where(rng.random(shape) < 0.5, 1e5, rng.random(shape)),
}  # fmt: skip


@pytest.mark.parametrize("shape", [(80, 80), (25, 25), (60, 90), (90, 60)])
@pytest.mark.parametrize("kind", NEARLY_EQUAL)
def test_rounded_floats_are_matched_exactly(kind, shape):
    """The kernel answers by itself, and finds the cost that the general way finds for a list."""
    rng = np.random.default_rng([len(kind), *shape])
    for maximize in (False, True):
        for order in "CF":
            for _ in range(effort(2, 50)):
                cost = np.asarray(NEARLY_EQUAL[kind](rng, shape), order=order)
                rows, columns = kernel.assign(cost, maximize)
                assert len(set(rows.tolist())) == len(set(columns.tolist())) == min(shape)
                best = fs.assignment(cost.tolist(), maximize=maximize)
                assert sum(map(Fraction, cost[rows, columns].tolist())) == sum(map(Fraction, cost[best].tolist()))


@pytest.mark.parametrize("shape", [(60, 60), (30, 70)])
@pytest.mark.parametrize("big", [1e6, 1e15, 1e17, 1e20, 1e32, 1e300])
def test_a_huge_number_is_avoided_and_disturbs_nothing(big, shape):
    rng = np.random.default_rng(229)
    cost = rng.uniform(1, 2000, shape).round(3)
    cost[np.arange(shape[0]), np.arange(shape[0])] = np.inf
    best = cost[linear_sum_assignment(cost)].sum()
    rows, columns = fs.assignment(np.where(np.isinf(cost), big, cost))
    assert cost[rows, columns].sum() == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize(
    ("cost", "options", "error", "words"),
    [
        ([[1.0, np.nan]], {}, fs.InputError, r"cost\[0, 1\]: nan is not a number to match by$"),
        ([[1.0], [-np.inf]], {}, fs.InputError, r"cost\[1, 0\]: -inf .* a pair that may not be matched is inf"),
        ([[np.inf]], {"maximize": True}, fs.InputError, r"cost\[0, 0\]: inf .* may not be matched is -inf"),
        ([[np.longdouble(1) + np.finfo(np.longdouble).eps, 1]], {}, fs.InputError, r"cost\[0, 0\]: 1.0.* is not exact as a float of 64 bits"),
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


@pytest.mark.parametrize(("shape", "maximize"), [((300, 300), False), ((280, 420), True), ((420, 280), False)])
def test_long_searches_are_left_to_the_simplex(shape, maximize):
    """Between clouds of points that are far apart nearly all columns have to be searched for each row."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((shape[0], 2)), rng.standard_normal((shape[1], 2)) + 3
    cost = np.rint(((x[:, None] - y) ** 2).sum(-1) * 1e6).astype(np.int64)
    if maximize:
        cost = -cost
    assert isinstance(kernel.assign(cost, maximize), np.ndarray)
    rows, columns = fs.assignment(cost, maximize=maximize)
    assert (np.diff(rows) > 0).all() and len(set(columns.tolist())) == len(rows) == min(shape)
    assert cost[rows, columns].sum() == cost[linear_sum_assignment(cost, maximize=maximize)].sum()
    floats = np.sqrt(np.abs(cost)) * np.sign(cost)
    assert kernel.assign(floats, maximize).dtype == np.float64
    rows, columns = fs.assignment(floats, maximize=maximize)
    best = fs.assignment(floats.tolist(), maximize=maximize)
    assert sum(map(Fraction, floats[rows, columns].tolist())) == sum(map(Fraction, floats[best].tolist()))
    rows, columns = fs.assignment(cost, maximize=maximize)
    huge = cost * (
        2**58 // int(abs(cost).max()) // (sum(shape) + 3) + 1
    )  # beyond the range of the simplex, not of assignment
    assert (fs.assignment(huge, maximize=maximize)[1] == columns).all()
