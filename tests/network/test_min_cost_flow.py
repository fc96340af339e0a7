"""min_cost_flow and certify: small examples, the limits of the numbers, and bad input."""

from __future__ import annotations

import dataclasses

import numpy as np
import oracles
import pytest
from netmodel import ALGORITHMS

from flowsched.exceptions import CostRangeError, InfeasibleError, InputError, UnboundedError
from flowsched.network import INF, certify, min_cost_flow
from flowsched.network.problem import FlowProblem

algorithms = pytest.mark.parametrize("algorithm", ALGORITHMS)

#        (2) 1,$1        (arcs: capacity, cost)
#  0 ------------> 1
#  |  \            |
#  |   \ 2,$5      | 2,$1
#  v    \          v
#  2 ----+-------> 3     node 0 sends 3 units, node 3 takes them
#    2,$2
TAIL, HEAD = [0, 0, 0, 1, 2], [1, 2, 3, 3, 3]
CAPACITY, COST = [1, 2, 2, 2, 2], [1, 1, 5, 1, 2]
SUPPLY = [3, 0, 0, -3]


def check(tail, head, capacity, cost, supply, result, lower=0):
    arcs = len(tail)
    problem = FlowProblem(
        tail, head, np.broadcast_to(capacity, arcs), np.broadcast_to(cost, arcs), supply, np.broadcast_to(lower, arcs)
    )
    oracles.check_optimal(problem, result.flow, result.cost, result.potential)
    certify(tail, head, capacity, cost, supply, result, lower=lower)


@algorithms
def test_drawn_example(algorithm):
    result = min_cost_flow(TAIL, HEAD, CAPACITY, COST, SUPPLY, algorithm=algorithm)
    assert result.flow.tolist() == [1, 2, 0, 1, 2]
    assert result.cost == 8
    assert result.flow.dtype == result.potential.dtype == np.int64
    check(TAIL, HEAD, CAPACITY, COST, SUPPLY, result)


@algorithms
def test_scalars_stand_for_every_arc(algorithm):
    result = min_cost_flow([0, 0, 1], [1, 2, 2], 2, 1, [2, 0, -2], lower=1, algorithm=algorithm)
    assert result.flow.tolist() == [1, 1, 1]
    assert result.cost == 3
    check([0, 0, 1], [1, 2, 2], 2, 1, [2, 0, -2], result, lower=1)


@algorithms
@pytest.mark.parametrize(
    ("tail", "head", "capacity", "cost", "supply", "lower", "flow"),
    [
        pytest.param([], [], [], [], [], 0, [], id="nothing at all"),
        pytest.param([], [], [], [], [0, 0], 0, [], id="nodes without arcs"),
        pytest.param([0, 0], [1, 1], [1, 5], [3, 1], [4, -4], 0, [0, 4], id="parallel arcs"),
        pytest.param([0, 0], [1, 1], [1, 5], [3, 1], [4, -4], [1, 0], [1, 3], id="a lower bound on the dear one"),
        pytest.param([0, 0], [0, 0], [4, 4], [-1, 1], [0], 0, [4, 0], id="self-loops"),
        pytest.param([0], [0], [4], [3], [0], [2], [2], id="self-loop with a lower bound"),
        pytest.param([0, 0], [1, 1], [0, 3], [-9, 2], [3, -3], 0, [0, 3], id="zero capacity"),
        pytest.param([0], [1], [INF], [2], [7, -7], 0, [7], id="no limit"),
        pytest.param([0, 1, 2], [1, 2, 0], [3, 2, 4], [-5, 1, 1], [0, 0, 0], 0, [2, 2, 2], id="negative cycle"),
        pytest.param([0, 1], [1, 0], [INF, 6], [-5, 1], [0, 0], 0, [6, 6], id="negative cycle, one limit"),
        pytest.param([0, 1], [1, 0], [INF, INF], [-5, 5], [1, -1], 0, None, id="cycle of cost 0 without limit"),
        pytest.param([0, 1], [1, 0], [3, 3], [1, 1], [0, 0], [2, 0], [2, 2], id="a lower bound sends flow around"),
    ],
)
def test_corner_cases(tail, head, capacity, cost, supply, lower, flow, algorithm):
    result = min_cost_flow(tail, head, capacity, cost, supply, lower=lower, algorithm=algorithm)
    if flow is not None:
        assert result.flow.tolist() == flow
    check(np.array(tail, np.int64), np.array(head, np.int64), capacity, cost, supply, result, lower)


@algorithms
@pytest.mark.parametrize(
    ("tail", "head", "capacity", "supply", "lower", "cut"),
    [
        pytest.param([0], [1], [2], [3, -3], [0], [True, False], id="too little capacity"),
        pytest.param([0], [1], [9], [-3, 3], [0], [False, True], id="wrong direction"),
        pytest.param([0], [1], [9], [0, 0], [1], [False, True], id="a lower bound that cannot flow back"),
        pytest.param([], [], [], [1, -1], [], [True, False], id="no arcs"),
        pytest.param([0], [1], [INF], [4, -3], [0], [True, True], id="more sent than taken"),
        pytest.param([0], [1], [INF], [3, -4], [0], [False, False], id="more taken than sent"),
    ],
)
def test_infeasible(tail, head, capacity, supply, lower, cut, algorithm):
    with pytest.raises(InfeasibleError) as caught:
        min_cost_flow(tail, head, capacity, 1, supply, lower=lower, algorithm=algorithm)
    assert caught.value.cut.tolist() == cut
    arcs = len(tail)
    oracles.check_cut(FlowProblem(tail, head, capacity, np.ones(arcs, int), supply, lower), caught.value.cut)


@algorithms
@pytest.mark.parametrize(
    ("tail", "head", "capacity", "cost"),
    [
        pytest.param([0, 1], [1, 0], [INF, INF], [-2, 1], id="two arcs"),
        pytest.param([1], [1], [INF], [-1], id="self-loop"),
        pytest.param([0, 1, 1, 2], [1, 0, 2, 0], [INF] * 4, [1, 1, 2, -4], id="the longer way round"),
        pytest.param([0, 0, 1], [1, 1, 0], [5, INF, INF], [-9, -1, 0], id="the limited parallel arc is not in it"),
    ],
)
def test_unbounded(tail, head, capacity, cost, algorithm):
    supply = [0, 0, 0]
    with pytest.raises(UnboundedError) as caught:
        min_cost_flow(tail, head, capacity, cost, supply, algorithm=algorithm)
    oracles.check_cycle(FlowProblem(tail, head, capacity, cost, supply), caught.value.cycle)


@algorithms
def test_cost_is_exact_beyond_64_bits(algorithm):
    cost, flow = 2**40, 2**40
    result = min_cost_flow([0, 1], [1, 2], flow, cost, [flow, 0, -flow], algorithm=algorithm)
    assert result.cost == 2**81
    assert type(result.cost) is int


@algorithms
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("power", [44, 54, *range(55, 64)])
def test_large_costs_are_solved_or_refused_never_wrong(power, sign, algorithm):
    """Close to the limits of int64 the answer is exact or a CostRangeError."""
    unit = sign * min(2**power, 2**63 - 1)
    problem = FlowProblem(
        np.array([0, 0, 1, 2]), np.array([1, 2, 3, 3]), np.array([2, 2, 2, 2]),
        np.array([unit, unit - sign, unit, unit - sign]), np.array([3, 0, 0, -3]),
    )  # fmt: skip
    try:
        result = min_cost_flow(**problem.arguments(), algorithm=algorithm)
    except CostRangeError:
        assert power >= 55, "costs this small leave room for exact arithmetic"
        return
    oracles.check_optimal(problem, result.flow, result.cost, result.potential)


@algorithms
def test_supplies_whose_sum_overflows_are_refused(algorithm):
    big = 2**62
    with pytest.raises((CostRangeError, InputError, InfeasibleError)):
        min_cost_flow([0, 1, 2], [3, 3, 3], INF, 1, [big, big, big, -3 * big + 2**64], algorithm=algorithm)


@algorithms
def test_capacities_beyond_inf_are_without_limit(algorithm):
    result = min_cost_flow([0], [1], [np.iinfo(np.int64).max], [1], [5, -5], algorithm=algorithm)
    assert result.flow.tolist() == [5]
    with pytest.raises(UnboundedError):
        min_cost_flow([0], [0], [np.iinfo(np.int64).max], [-1], [0], algorithm=algorithm)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint16, np.uint64, np.float64, np.float32, object])
def test_integral_values_of_any_type_are_accepted(dtype):
    arrays = [np.array(values, dtype=dtype) for values in (TAIL, HEAD, CAPACITY, COST)]
    assert min_cost_flow(*arrays, SUPPLY).cost == 8


def test_arguments_are_not_changed():
    arrays = [np.array(values) for values in (TAIL, HEAD, CAPACITY, COST, SUPPLY)]
    copies = [array.copy() for array in arrays]
    for array in arrays:
        array.setflags(write=False)
    min_cost_flow(*arrays)
    for array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_strided_arrays_are_accepted():
    table = np.array([TAIL, HEAD, CAPACITY, COST]).T.copy()
    assert min_cost_flow(*table.T, np.repeat(SUPPLY, 2)[::2]).cost == 8
    assert min_cost_flow(*table[::-1].T, SUPPLY).cost == 8


def test_results_are_the_same_every_time():
    results = [min_cost_flow(TAIL, HEAD, CAPACITY, 0, SUPPLY) for _ in range(3)]
    for result in results[1:]:
        np.testing.assert_array_equal(result.flow, results[0].flow)
        np.testing.assert_array_equal(result.potential, results[0].potential)


GOOD = {"tail": TAIL, "head": HEAD, "capacity": CAPACITY, "cost": COST, "supply": SUPPLY, "lower": [0] * 5}


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        pytest.param("head", [1, 2], ["head"], id="length"),
        pytest.param("tail", [TAIL], ["tail"], id="two dimensions"),
        pytest.param("capacity", [1, 2], ["capacity"], id="capacity length"),
        pytest.param("cost", [[1]], ["cost"], id="cost dimensions"),
        pytest.param("lower", [1] * 6, ["lower"], id="lower length"),
        pytest.param("supply", 3, ["supply"], id="supply is no array"),
        pytest.param("tail", [0, 0, 7, 1, 2], ["tail[2]", "7"], id="tail out of range"),
        pytest.param("head", [1, 2, 3, 3, -1], ["head[4]", "-1"], id="head negative"),
        pytest.param("head", [1, 2, 3, 4, 3], ["head[3]", "4"], id="head one too large"),
        pytest.param("cost", [1, 1, float("nan"), 1, 1], ["cost[2]", "nan"], id="NaN"),
        pytest.param("cost", [1, 1, 2, float("inf"), 1], ["cost[3]", "inf"], id="float infinity"),
        pytest.param("capacity", [1, 2.5, 2, 2, 2], ["capacity[1]", "2.5"], id="fraction"),
        pytest.param("supply", [3, 0.25, 0, -3.25], ["supply[1]", "0.25"], id="fraction of supply"),
        pytest.param("capacity", [1, 2, 2, -1, 2], ["capacity[3]", "-1"], id="negative capacity"),
        pytest.param("lower", [0, 3, 0, 0, 0], ["lower[1]", "3"], id="lower above capacity"),
        pytest.param("cost", ["1", "x", "1", "1", "1"], ["cost"], id="text"),
        pytest.param("cost", [1, None, 1, 1, 1], ["cost[1]"], id="None"),
        pytest.param("cost", [1j] * 5, ["cost"], id="complex"),
        pytest.param("algorithm", "fastest", ["algorithm", "fastest"], id="algorithm"),
        pytest.param("time_limit", -1.0, ["time_limit", "-1"], id="time limit"),
        pytest.param("time_limit", float("nan"), ["time_limit", "nan"], id="time limit NaN"),
    ],
)
def test_bad_input_names_the_argument_and_the_index(name, value, words):
    with pytest.raises(InputError) as caught:
        min_cost_flow(**(GOOD | {name: value}))
    for word in words:
        assert word in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        pytest.param("cost", [1, 1e19, 1, 1, 1], "cost[1]", id="float"),
        pytest.param("capacity", [1, 1, 1, 2**70, 1], "capacity[3]", id="Python integer"),
        pytest.param("supply", np.array([3, 0, 2**63, 0], np.uint64), "supply[2]", id="unsigned"),
        pytest.param("cost", [1, 1, -(2**63), 1, 1], "cost[2]", id="the least 64-bit number"),
    ],
)
def test_numbers_beyond_the_range_name_the_argument_and_the_index(name, value, word):
    with pytest.raises(CostRangeError) as caught:
        min_cost_flow(**(GOOD | {name: value}))
    assert word in str(caught.value)
    assert isinstance(caught.value, OverflowError)


def test_options_are_keyword_only():
    with pytest.raises(TypeError):
        min_cost_flow(TAIL, HEAD, CAPACITY, COST, SUPPLY, 0)


def test_result_is_frozen():
    result = min_cost_flow(TAIL, HEAD, CAPACITY, COST, SUPPLY)
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.cost = 0
    assert result.stats["algorithm"] in ALGORITHMS
    assert result.stats["seconds"] >= 0
    assert {"pushes", "relabels", "augmentations"} <= set(result.stats)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param("flow", [1, 2, 0, 1, 1], id="not conserved"),
        pytest.param("flow", [2, 1, 0, 2, 1], id="above capacity"),
        pytest.param("flow", [1, 3, -1, 1, 3], id="below lower bound"),
        pytest.param("flow", [1, 1, 1, 1, 1], id="not optimal"),
        pytest.param("potential", [0, 0, 0, 0], id="potentials prove nothing"),
        pytest.param("cost", 9, id="wrong cost"),
    ],
)
def test_certify_catches(field, value):
    result = min_cost_flow(TAIL, HEAD, CAPACITY, COST, SUPPLY)
    wrong = dataclasses.replace(result, **{field: value if field == "cost" else np.array(value, np.int64)})
    with pytest.raises(AssertionError):
        certify(TAIL, HEAD, CAPACITY, COST, SUPPLY, wrong)


def test_certify_does_not_overflow():
    """Reduced costs beyond 64 bits are judged exactly."""
    result = min_cost_flow([0], [1], [1], [1], [1, -1])
    wrong = dataclasses.replace(result, potential=np.array([2**63 - 1, -(2**63)]))
    with pytest.raises(AssertionError):
        certify([0], [1], [INF], [1], [1, -1], wrong)
