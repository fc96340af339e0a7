"""Dense transport, against the solver of networks, SciPy and POT; every optimum is proved from the potentials."""

from __future__ import annotations

import signal
import sys
import threading
import tracemalloc
from math import inf

import numpy as np
import pytest
from effort import effort
from scipy.optimize import linear_sum_assignment

import flowsched as fs


def prove(cost, supply, demand, result, price=None):
    """Amounts meet the supplies and demands, and the potentials show that no cheaper amounts do."""
    n, m = cost.shape
    amounts, rest, potential = result.to_array(), result.unshipped, result.potential
    assert (amounts.sum(axis=1) + rest[:n] == supply).all() and (amounts.sum(axis=0) - rest[n:] == demand).all()
    assert (result.amounts > 0).all() and (rest[:n] >= 0).all() and (rest[n:] <= 0).all()
    assert len(result.rows) <= max(n + m - 1, 0)
    kind = float if cost.dtype.kind == "f" else object
    allowed, row, column = np.isfinite(cost), potential[:n].astype(kind), potential[n:].astype(kind)
    reduced = np.where(allowed, cost, 0).astype(kind) + row[:, None] - column
    assert (reduced[allowed] >= 0).all() and (reduced[amounts > 0] == 0).all() and allowed[amounts > 0].all()
    if price is not None:
        assert (row >= -price).all() and (row[rest[:n] > 0] == -price).all()
        assert (column <= 0).all() and (column[rest[n:] < 0] == 0).all()
    else:
        assert rest[:n].any() + rest[n:].any() == (supply.sum() != demand.sum())
        if supply.sum() > demand.sum():
            assert (row >= 0).all() and not row[rest[:n] > 0].any()
        elif supply.sum() < demand.sum():
            assert (column <= 0).all() and not column[rest[n:] < 0].any()


def by_arcs(cost, supply, demand, price):
    """Return the optimum of the same problem as a network, with the price of the rest; None if it is infeasible."""
    n, m = cost.shape
    i, j = np.nonzero(np.isfinite(cost))
    left, right, rest = np.arange(n), n + np.arange(m), n + m
    gives = price is not None or supply.sum() > demand.sum()
    takes = price is not None or supply.sum() < demand.sum()
    tail = [*i, *(left if gives else []), *([rest] * m if takes else [])]
    head = [*(n + j), *([rest] * n if gives else []), *(right if takes else [])]
    costs = [*map(int, cost[i, j]), *([price or 0] * n if gives else []), *([0] * m if takes else [])]
    try:
        return fs.min_cost_flow(tail, head, fs.INF, costs, [*supply, *-demand, demand.sum() - supply.sum()]).cost
    except fs.InfeasibleError:
        return None


def draw(rng):
    """Draw costs of any type and layout, supplies, demands and a price."""
    n, m = rng.integers(1, rng.choice([2, 6, 25], 2) + 1)
    top = int(rng.choice([1, 3, 100, 10**6, (2**58 - 1) // (n + m + 3)]))
    cost = rng.integers(-top if rng.random() < 0.4 else 0, top + 1, (n, m))
    kind = rng.choice(["i8", "i4", "f8", "f4", "inf"])
    if kind != "i8":
        cost = np.clip(cost, -(2**24), 2**24).astype("f8" if kind == "inf" else kind)
    if kind == "inf":
        cost[rng.random((n, m)) < rng.choice([0.1, 0.6])] = inf
    if rng.random() < 0.3:
        cost = np.asfortranarray(cost)
    most = int(rng.choice([1, 2, 10, 10**6, 2**50]))
    supply, demand = rng.integers(0, most + 1, n), rng.integers(0, most + 1, m)
    if rng.random() < 0.6:
        surplus = supply.sum() - demand.sum()
        demand[rng.integers(m)] += max(surplus, 0)
        supply[rng.integers(n)] += max(-surplus, 0)
    price = int(rng.integers(-(2**24) // 8, 2**24)) if rng.random() < 0.3 else None
    potential = rng.integers(-(2**30), 2**30, n + m) if rng.random() < 0.3 else None
    return cost, supply, demand, price, potential


@pytest.mark.parametrize("seed", range(effort(300, 20_000)))
def test_against_the_network(seed):
    cost, supply, demand, price, potential = draw(np.random.default_rng(seed))
    n, m = cost.shape
    optimum = by_arcs(cost, supply, demand, price)
    if optimum is None:
        with pytest.raises(fs.InfeasibleError) as caught:
            fs.transport(cost, supply, demand, potential=potential)
        cut = caught.value.cut
        rows, columns = cut[:n], cut[n : n + m]
        assert not np.isfinite(cost[np.ix_(rows, ~columns)]).any()
        kept = max(int(supply.sum() - demand.sum()), 0)
        assert supply[rows].sum() - demand[columns].sum() - kept == caught.value.shortfall > 0
        return
    result = fs.transport(cost, supply, demand, price=price, potential=potential)
    prove(cost, supply, demand, result, price)
    paid = (price or 0) * int(result.unshipped[:n].sum())
    assert result.cost + paid == pytest.approx(optimum, rel=1e-15 if cost.dtype.kind == "f" else 0, abs=0)
    again = fs.transport(cost, supply, demand, price=price, potential=result.potential)
    prove(cost, supply, demand, again, price)


@pytest.mark.parametrize("shape", [(40, 40), (20, 60), (60, 20)])
def test_units_are_an_assignment(shape):
    rng = np.random.default_rng(0)
    for top in (3, 10**6):
        cost = rng.integers(0, top, shape)
        result = fs.transport(cost, 1, 1)
        assert result.cost == cost[linear_sum_assignment(cost)].sum()
        assert len(result.rows) == min(shape) and (result.amounts == 1).all()


def test_against_pot():
    ot = pytest.importorskip("ot")
    rng = np.random.default_rng(0)
    for n, m in ((30, 30), (12, 50), (50, 12)):
        x, y = rng.standard_normal((n, 2)), rng.standard_normal((m, 2)) + 1
        cost = np.rint(((x[:, None] - y) ** 2).sum(-1) * 1e4)
        supply = rng.integers(1, 100, n)
        demand = rng.multinomial(supply.sum(), np.full(m, 1 / m))
        result = fs.transport(cost, supply, demand)
        assert ot.emd2(supply / supply.sum(), demand / demand.sum(), cost) * supply.sum() == pytest.approx(result.cost)


@pytest.mark.parametrize(
    ("cost", "supply", "demand", "amounts", "total"),
    [
        ([[7]], [3], [3], [[3]], 21),
        ([[-7]], [3], [1], [[1]], -7),
        ([[1, 2, 3]], [6], [1, 2, 3], [[1, 2, 3]], 14),
        ([[1], [2], [3]], [1, 2, 3], [5], [[1], [2], [2]], 11),
        ([[5, 5], [5, 5]], [0, 0], [0, 0], [[0, 0], [0, 0]], 0),
        ([[5, 1], [1, 5]], [0, 4], [4, 0], [[0, 0], [4, 0]], 4),
        (np.zeros((0, 3)), [], [1, 2, 3], np.zeros((0, 3)), 0),
        (np.zeros((2, 0), int), [1, 2], [], np.zeros((2, 0)), 0),
        ([[0.5, inf], [inf, 0.25]], [1, 1], [1, 1], [[1, 0], [0, 1]], 0.75),
    ],
)
def test_small(cost, supply, demand, amounts, total):
    result = fs.transport(cost, supply, demand)
    assert result.to_array().tolist() == np.asarray(amounts).tolist() and result.cost == total
    prove(np.asarray(cost), np.asarray(supply, int), np.asarray(demand, int), result)


def test_equal_costs():
    """Every basis is optimal, and no pivot is needed."""
    result = fs.transport(np.full((60, 40), 3), 2, 3)
    assert (result.cost, result.stats["pivots"]) == (360, 0)


def test_largest_numbers():
    """Costs at the limit, and a sum of costs beyond 64 bits."""
    top = (2**58 - 1) // 7
    cost, amount = np.array([[top, -top], [-top, top]]), 2**57
    result = fs.transport(cost, [amount, amount], [amount, amount])
    assert result.cost == -2 * top * amount
    prove(cost, np.array([amount] * 2), np.array([amount] * 2), result)
    tiny = fs.transport([[2.0**-990, 2.0**-992]], 4, [1, 1])
    assert tiny.cost == 2.0**-990 + 2.0**-992


@pytest.mark.parametrize("kind", ["i8", "i4", "f8", "f4"])
def test_matrices_are_read_in_place(kind):
    """Rows or columns that are contiguous are read where they are, others are copied once."""
    rng = np.random.default_rng(0)
    whole = rng.integers(0, 1000, (400, 600)).astype(kind)
    whole.flags.writeable = False
    optimum = fs.transport(np.array(whole[::2, ::-3], dtype=int), 2, 2).cost
    for view, copies in (
        (whole, False), (whole.T, False), (whole[::-2], False), (whole[:, 100:500], False), (whole.T[:, ::-1], False), (whole[::2, ::-3], True),
    ):  # fmt: skip
        tracemalloc.start()
        fs.transport(view, 2, 2)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < (copies and view.nbytes) + 0.2 * whole.nbytes + 5e5
    assert fs.transport(whole[::2, ::-3], 2, 2).cost == optimum


def test_memory():
    cost = np.random.default_rng(0).integers(0, 10**6, (1200, 1200))
    supply = np.random.default_rng(1).integers(1, 100, 1200)
    tracemalloc.start()
    fs.transport(cost, supply, supply)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.2 * cost.nbytes


def test_start_from_potentials():
    """The potentials of an optimum lead to it without a pivot, those of a similar problem in fewer than without any."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 200, 2))
    cost = np.rint(((x[:, None] - y - 1) ** 2).sum(-1) * 1e6).astype(np.int64)
    supply = rng.integers(1, 10**6, 200)
    demand = rng.permutation(supply)
    first = fs.transport(cost, supply, demand)
    again = fs.transport(cost, supply, demand, potential=first.potential)
    assert again.stats["pivots"] <= 5 < first.stats["pivots"] and again.cost == first.cost
    near = cost + rng.integers(0, 1000, cost.shape)
    cold, warm = fs.transport(near, supply, demand), fs.transport(near, supply, demand, potential=first.potential)
    assert warm.cost == cold.cost and 2 * warm.stats["pivots"] < cold.stats["pivots"]
    other = fs.transport(cost.T / 2.0**10, demand, supply, potential=-np.roll(first.potential, 200) / 2.0**10)
    assert other.stats["pivots"] <= 5 and other.cost == first.cost / 2.0**10


def test_price():
    """A unit is shipped where that costs less than the price."""
    cost = np.array([[1, 9], [9, 4]])
    result = fs.transport(cost, [2, 2], [2, 2], price=3)
    assert result.to_array().tolist() == [[2, 0], [0, 0]] and result.unshipped.tolist() == [0, 2, 0, -2]
    assert fs.transport(cost / 4, [2, 2], [2, 2], price=1.125).cost == 2.5
    assert fs.transport(cost, [2, 2], [2, 2], price=-1).cost == 0


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (([1, 2], 1, 1), fs.InputError, r"^cost: a matrix expected, got an array of shape \(2,\)"),
        (([[1], [2, 3]], 1, 1), fs.InputError, "^cost: a matrix expected, got rows of different lengths"),
        (([["a"]], 1, 1), fs.InputError, "^cost: numbers expected, got <U1"),
        ((np.ma.masked_equal([[1, 2]], 2), 1, 1), fs.InputError, "^cost: a masked array"),
        (([[1, None]], 1, 1), fs.InputError, r"^cost\[0, 1\]: an integer expected, got None"),
        (([[1, 10**30]], 1, 1), fs.CostRangeError, r"^cost\[0, 1\]: 10{30} does not fit in 64 bits"),
        (([[1, -(2**56)]], 1, 1), fs.CostRangeError, r"^cost\[0, 1\]: -72057594037927936 is too large .* 6 \* \|cost\|"),
        (([[0.5, float("nan")]], 1, 1), fs.InputError, r"^cost\[0, 1\]: nan is not a cost"),
        (([[0.5], [-inf]], 1, 1), fs.InputError, r"^cost\[1, 0\]: -inf is not a cost"),
        (([[1e9, 1 / 3]], 1, 1), fs.InputError, r"^cost\[0, 1\]: 0\.333\d* has digits below 2\*\*-20"),
        (([[1, 2]], [1, 2], 1), fs.InputError, "^supply: 1 values expected, got 2"),
        (([[1, 2]], [3], [1, -2]), fs.InputError, r"^demand\[1\]: >= 0 expected, got -2"),
        (([[1, 2]], [0.5], [1, 2]), fs.InputError, r"^supply\[0\]: 0\.5 is not an integer"),
        (([[1, 2]], [1], [2**59, 2**59]), fs.CostRangeError, r"^demand: the sum must stay below 2\*\*59"),
        (([[1, inf]], [1], [0, 1]), fs.InfeasibleError, "^cost: not all can be shipped, 1 units are missing"),
    ],
)  # fmt: skip
def test_wrong_arguments(arguments, error, words):
    with pytest.raises(error, match=words):
        fs.transport(*arguments)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"price": 0.5}, fs.InputError, "^price: an integer expected, as the costs are, got 0.5"),
        ({"price": inf}, fs.InputError, "^price: a finite number expected, got inf"),
        ({"price": "3"}, fs.InputError, "^price: a finite number expected, got '3'"),
        ({"price": 2**58}, fs.CostRangeError, "^price: .* is too large"),
        ({"potential": [1, 2]}, fs.InputError, "^potential: 3 values expected, for rows and columns"),
        ({"potential": [0, inf, 1]}, fs.InputError, r"^potential\[1\]: inf is not a number to start from"),
        ({"potential": [0, 0, 2**60]}, fs.CostRangeError, "^potential: the values of one side differ by"),
    ],
)
def test_wrong_options(options, error, words):
    with pytest.raises(error, match=words):
        fs.transport([[1, 2]], [3], [1, 2], **options)
    with pytest.raises(fs.InputError, match="^price: 1e-09 has digits below"):
        fs.transport([[1.0, 2.5]], [3], [1, 2], price=1e-9)


def hard(n):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, n, 2))
    return np.rint(((x[:, None] - y - 1) ** 2).sum(-1) * 1e6).astype(np.int64), rng.integers(1, 1000, n)


def test_other_threads_run_during_a_solve():
    cost, supply = hard(400)
    begun, ended, within = threading.Event(), threading.Event(), []

    def solve_small():
        begun.wait()
        while not ended.is_set():
            fs.transport([[2, 1], [1, 2]], 1, 1)
            if not ended.is_set():
                within.append(True)

    other = threading.Thread(target=solve_small)
    other.start()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        begun.set()
        fs.transport(cost, supply, supply)
    finally:
        ended.set()
        sys.setswitchinterval(interval)
        other.join()
    assert within


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timers")
def test_a_signal_ends_a_solve():
    cost, supply = hard(1500)

    def stop(*_):
        raise InterruptedError

    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(InterruptedError):
            for _ in range(100):
                fs.transport(cost, supply, np.roll(supply, 1))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_matrix_that_changes_during_a_solve():
    """The result is right for one of the two matrices, or an error; nothing hangs or reads beyond the matrix."""
    cost, supply = hard(300)
    for _ in range(20):
        matrix = cost.copy()
        other = threading.Thread(target=lambda matrix=matrix: matrix.__setitem__(slice(None, None, 2), 1))
        other.start()
        try:
            result = fs.transport(matrix, supply, np.roll(supply, 1))
        except fs.ConcurrentUseError as error:
            assert "the matrix changed" in str(error)
        else:
            assert result.to_array().sum() == supply.sum()
        other.join()
