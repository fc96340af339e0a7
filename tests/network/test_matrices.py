"""Sparse matrices, costs with fractions, and the OR-tools-like adapter, against SciPy and OR-tools."""

from __future__ import annotations

import math

import numpy as np
import pytest
from effort import effort
from hypothesis import given
from hypothesis import strategies as st
from ortools.graph.python import min_cost_flow as ortools_mcf
from scipy import sparse
from scipy.optimize import linear_sum_assignment, linprog
from scipy.sparse.csgraph import min_weight_full_bipartite_matching

import flowsched as fs
from flowsched.network.ortools import FlowStatus, SimpleMinCostFlow

SEEDS = range(effort(4, 12))
FORMATS = [sparse.csr_array, sparse.csc_array, sparse.coo_array, sparse.csr_matrix, sparse.lil_array, sparse.dok_array]


def random_problem(seed, n=12, m=40):
    """A problem with a flow: tail, head, capacity, cost, supply."""
    rng = np.random.default_rng(seed)
    tail, head = rng.integers(0, n, (2, m))
    capacity, cost = rng.integers(0, 9, m), rng.integers(-3, 20, m)
    flow = rng.integers(0, capacity + 1)
    supply = np.bincount(tail, flow, n) - np.bincount(head, flow, n)
    return tail, head, capacity, cost, supply.astype(np.int64)


# -- matrices over pairs of nodes --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FORMATS)
def test_adjacency_in_every_format(kind):
    capacity = kind(np.array([[0, 4, 2], [0, 0, 3], [0, 0, 0]]))
    cost = kind(np.array([[0, 1, 5], [0, 0, 1], [0, 0, 0]]))
    problem = fs.from_adjacency(capacity, cost, [4, 0, -4])
    assert list(zip(problem.tail.tolist(), problem.head.tolist(), strict=True)) == [(0, 1), (0, 2), (1, 2)]
    result = fs.min_cost_flow(**problem.arguments())
    assert result.cost == 11
    matrix = sparse.csr_array((result.flow, (problem.tail, problem.head)), (3, 3))
    assert matrix.toarray().tolist() == [[0, 3, 1], [0, 0, 3], [0, 0, 0]]


@pytest.mark.parametrize("seed", SEEDS)
def test_adjacency_is_the_problem_it_was_made_of(seed):
    tail, head, capacity, cost, supply = random_problem(seed)
    n = len(supply)
    once = np.unique(tail * n + head, return_index=True)[1]
    tail, head, capacity, cost = tail[once], head[once], capacity[once], cost[once]
    flow = np.random.default_rng(seed).integers(0, capacity + 1)
    supply = (np.bincount(tail, flow, n) - np.bincount(head, flow, n)).astype(np.int64)
    shuffled = np.random.default_rng(seed).permutation(len(tail))
    rooms, prices = (
        sparse.coo_array((values[shuffled], (tail[shuffled], head[shuffled])), (n, n)) for values in (capacity, cost)
    )
    problem = fs.from_adjacency(rooms, prices, supply)
    for found, expected in (
        (problem.tail, tail),
        (problem.head, head),
        (problem.capacity, capacity),
        (problem.cost, cost),
    ):
        assert found.tolist() == expected.tolist()  # by rows and columns, zeros included
    expected = fs.min_cost_flow(tail, head, capacity, cost, supply)
    assert fs.min_cost_flow(**problem.arguments()).cost == expected.cost


def test_elements_that_are_stored_twice_are_summed_and_left_alone():
    capacity = sparse.csr_array((np.array([1, 2]), np.array([1, 1]), np.array([0, 2, 2])), (2, 2))
    problem = fs.from_adjacency(capacity, sparse.csr_array((2, 2), dtype=np.int64), [3, -3])
    assert problem.capacity.tolist() == [3]
    assert capacity.nnz == 2


def test_adjacency_of_dense_arrays():
    problem = fs.from_adjacency([[0, 2], [0, 0]], [[0, 3], [0, 0]], [1, -1])
    assert (problem.tail.tolist(), problem.head.tolist(), problem.cost.tolist()) == ([0], [1], [3])


@pytest.mark.parametrize(
    ("capacity", "cost", "message"),
    [
        (
            sparse.eye_array(3, dtype=np.int64),
            sparse.eye_array(2, dtype=np.int64),
            r"capacity: shape \(2, 2\) expected",
        ),
        (sparse.eye_array(2, dtype=np.int64), [[1, 2], [0, 1]], r"cost\[0, 1\]: there is no such arc"),
        (sparse.eye_array(2, dtype=np.int64), [[1.5, 0], [0, 1]], r"cost\[0\]: 1.5 is not an integer.*scale_costs"),
        ([1, 2], [[1, 0], [0, 1]], "capacity: a matrix of shape"),
    ],
)
def test_wrong_adjacency(capacity, cost, message):
    with pytest.raises(fs.InputError, match=message):
        fs.from_adjacency(capacity, cost, [0, 0])


# -- incidence ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_incidence_against_a_linear_program(seed):
    tail, head, capacity, cost, supply = random_problem(seed)
    kept = tail != head
    tail, head, capacity, cost = tail[kept], head[kept], capacity[kept], cost[kept]
    m, n = len(tail), len(supply)
    arcs = np.arange(m)
    incidence = sparse.coo_array((np.repeat([1.0, -1.0], m), (np.append(tail, head), np.append(arcs, arcs))), (n, m))
    problem = fs.from_incidence(incidence, capacity, cost, supply)
    result = fs.min_cost_flow(**problem.arguments())
    assert (incidence @ result.flow == supply).all()
    program = linprog(cost, A_eq=incidence.tocsc(), b_eq=supply, bounds=np.column_stack([np.zeros(m), capacity]))
    assert result.cost == round(program.fun)


@pytest.mark.parametrize("column", [[1, 1, 0], [1, 0, 0], [0, 0, 0], [2, -1, 0], [1, -1, -1], [1, -0.5, -0.5]], ids=str)
def test_columns_that_are_no_arcs(column):
    good = [1, 0, -1]
    with pytest.raises(fs.InputError, match="incidence: column 1 is no arc"):
        fs.from_incidence(sparse.csc_array(np.array([good, column]).T), 1, 1, [0, 0, 0])


# -- assignment --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(7, 7), (4, 9), (9, 4), (1, 1), (1, 5)])
@pytest.mark.parametrize("seed", range(effort(1, 4)))
def test_dense_assignment(shape, seed):
    cost = np.random.default_rng(seed).integers(-20, 20, shape)
    rows, columns = fs.assignment(cost)
    assert len(rows) == min(shape) == len(set(rows.tolist())) == len(set(columns.tolist()))
    assert cost[rows, columns].sum() == cost[linear_sum_assignment(cost)].sum()
    assert (np.diff(rows) > 0).all()


@pytest.mark.parametrize("shape", [(30, 30), (20, 35), (35, 20)])
@pytest.mark.parametrize("seed", range(effort(1, 4)))
def test_sparse_assignment(shape, seed):
    rng = np.random.default_rng(seed)
    mask = rng.random(shape) < 0.15
    mask[np.arange(min(shape)), rng.permutation(max(shape))[: min(shape)] % shape[1]] = True
    cost = sparse.csr_array(np.where(mask, rng.integers(1, 99, shape), 0))
    try:
        expected = cost[min_weight_full_bipartite_matching(cost)].sum()
    except ValueError:
        with pytest.raises(fs.InfeasibleError, match=f"not all of the {min(shape)} "):
            fs.assignment(cost)
        return
    rows, columns = fs.assignment(cost)
    assert len(rows) == min(shape)
    assert cost[rows, columns].sum() == expected


def test_stored_zeros_are_pairs():
    cost = sparse.csr_array((np.array([0, 5, 0, 3]), np.array([0, 1, 0, 1]), np.array([0, 2, 4])), (2, 2))
    rows, columns = fs.assignment(cost)
    assert (rows.tolist(), columns.tolist()) == ([0, 1], [0, 1])


def test_impossible_assignment():
    with pytest.raises(fs.InfeasibleError, match="not all of the 2 rows can be matched") as caught:
        fs.assignment(sparse.csr_array([[1, 0, 0], [1, 0, 0]]))
    assert caught.value.cut[:2].all()


@pytest.mark.parametrize("cost", [[1, 2], np.zeros((2, 2, 2, 2)), [[np.nan]]], ids=["vector", "stack of stacks", "nan"])
def test_wrong_assignments(cost):
    with pytest.raises(fs.InputError, match="cost"):
        fs.assignment(cost)


def test_empty_assignment():
    rows, columns = fs.assignment(np.zeros((0, 3), np.int64))
    assert len(rows) == len(columns) == 0


# -- fractions ---------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(-(10**9), 10**9), max_size=8), st.integers(0, 6))
def test_decimals_are_kept(numbers, decimals):
    given = [float(f"{number}e-{decimals}") for number in numbers]
    scaled, factor = fs.scale_costs(given)
    assert scaled.dtype == np.int64
    assert factor <= 10**decimals
    assert [number * factor for number in numbers] == [int(value) * 10**decimals for value in scaled]


def test_scaled_costs_solve_the_problem_that_was_meant():
    cost = [0.1, 0.25, 0.3]
    with pytest.raises(fs.InputError, match=r"cost\[0\]: 0.1 is not an integer; .*flowsched.scale_costs"):
        fs.min_cost_flow([0, 0, 1], [1, 2, 2], 9, cost, [3, 0, -3])
    scaled, factor = fs.scale_costs(cost)
    assert (scaled.tolist(), factor) == ([10, 25, 30], 100)
    assert fs.min_cost_flow([0, 0, 1], [1, 2, 2], 9, scaled, [3, 0, -3]).cost / factor == 0.75


@pytest.mark.parametrize(
    ("cost", "decimals", "error", "message"),
    [
        ([0.5, 2 / 3], None, fs.InputError, r"cost\[1\]: 0.6666666666666666 has more than 15 decimals"),
        ([2.0, 1e-17], None, fs.InputError, r"cost\[1\]: 1e-17 has more than 15 decimals; round by decimals="),
        ([1.0, math.nan], None, fs.InputError, r"cost\[1\]: nan is not finite"),
        ([1.0, -math.inf], 2, fs.InputError, r"cost\[1\]: -inf is not finite"),
        ([0.5, 1e17], 3, fs.CostRangeError, r"cost\[1\]: 1e\+17 times 1000 does not fit"),
        ([0.5], 16, fs.InputError, "decimals: 0 to 15 expected, got 16"),
        ([[0.5]], None, fs.InputError, r"cost: a vector expected, got an array of shape \(1, 1\)"),
        (["x"], None, fs.InputError, "cost: a vector of numbers expected"),
    ],
)
def test_costs_that_cannot_be_scaled(cost, decimals, error, message):
    with pytest.raises(error, match=message):
        fs.scale_costs(cost, decimals)


# -- the shape of OR-tools ---------------------------------------------------------------------------------------

PEERS = [SimpleMinCostFlow, ortools_mcf.SimpleMinCostFlow]


def both(play):
    """Play the same calls to both; return what each said."""
    found, expected = (play(kind()) for kind in PEERS)
    return found, expected


def test_adapter_has_every_method_and_status_of_its_model():
    public = {name for name in dir(PEERS[1]) if not name.startswith("_")}
    assert public <= set(dir(PEERS[0]))
    assert {s.name: s.value for s in FlowStatus} == {n: s.value for n, s in PEERS[1].Status.__members__.items()}


@pytest.mark.parametrize("seed", SEEDS)
def test_adapter_answers_as_its_model(seed):
    tail, head, capacity, cost, supply = random_problem(seed)
    cost = np.abs(cost)

    def play(solver):
        arcs = solver.add_arcs_with_capacity_and_unit_cost(tail, head, capacity, cost)
        solver.set_nodes_supplies(np.arange(len(supply)), supply)
        said = [arcs.tolist(), solver.num_nodes(), solver.num_arcs(), solver.solve().name]
        said += [solver.optimal_cost(), solver.maximum_flow()]
        flow = solver.flows(arcs)
        assert (flow * cost).sum() == solver.optimal_cost()
        assert [solver.flow(int(arc)) for arc in arcs] == flow.tolist()
        new = solver.add_arc_with_capacity_and_unit_cost(0, len(supply) - 1, 50, 1)
        solver.set_node_supply(0, solver.supply(0) + 5)
        said += [new, solver.solve().name]
        solver.set_node_supply(len(supply) - 1, solver.supply(len(supply) - 1) - 5)
        said += [solver.solve().name, solver.optimal_cost(), solver.maximum_flow()]
        solver.set_arc_capacity(new, 2)
        solver.set_arc_capacities(arcs[:3], capacity[:3] + 4)
        status = solver.solve()
        said += [status.name, solver.optimal_cost() if status == solver.OPTIMAL else None]
        said += [(solver.tail(a), solver.head(a), solver.capacity(a), solver.unit_cost(a)) for a in range(len(arcs))]
        said += [solver.solve_max_flow_with_min_cost().name, solver.optimal_cost(), solver.maximum_flow()]
        return said

    found, expected = both(play)
    assert found == expected


def test_most_that_can_be_sent():
    def play(solver):
        solver.add_arcs_with_capacity_and_unit_cost(
            np.array([0, 0]), np.array([1, 1]), np.array([2, 3]), np.array([7, 4])
        )
        solver.set_nodes_supplies(np.array([0, 1]), np.array([4, -9]))
        said = [solver.solve().name, solver.solve_max_flow_with_min_cost().name]
        return said + [solver.maximum_flow(), solver.optimal_cost(), solver.flows(np.array([0, 1])).tolist()]

    found, expected = both(play)
    assert found == expected == ["UNBALANCED", "OPTIMAL", 4, 19, [1, 3]]


def test_second_solve_is_warm():
    solver = SimpleMinCostFlow()
    arcs = solver.add_arcs_with_capacity_and_unit_cost([0, 0, 1], [1, 2, 2], [4, 2, 3], [1, 5, 1])
    solver.set_nodes_supplies([0, 2], [4, -4])
    assert solver.solve() is FlowStatus.OPTIMAL
    solver.set_arc_capacity(2, 1)
    assert solver.solve() is FlowStatus.INFEASIBLE
    solver.set_arc_capacities(arcs, [4, 9, 1])
    assert solver.solve() is FlowStatus.OPTIMAL
    assert solver.flows(arcs).tolist() == [1, 3, 1]
    assert solver._network.solve().stats["warm"]


def test_adapter_refuses_what_its_model_would_misread():
    solver = SimpleMinCostFlow()
    with pytest.raises(fs.InputError, match="no flow was found yet"):
        solver.optimal_cost()
    with pytest.raises(fs.InputError, match=r"heads\[1\]: node numbers start at 0, got -1"):
        solver.add_arcs_with_capacity_and_unit_cost([0, 5], [1, -1], 1, 1)
    with pytest.raises(fs.InputError, match=r"capacities\[0\]: -1 is negative"):
        solver.add_arc_with_capacity_and_unit_cost(0, 1, -1, 1)
    assert (solver.num_nodes(), solver.num_arcs()) == (0, 0)
    solver.add_arc_with_capacity_and_unit_cost(0, 1, 1, 1)
    assert solver.solve() is FlowStatus.OPTIMAL
    with pytest.raises(fs.InputError, match=r"arcs\[1\]: there is no arc 9"):
        solver.flows([0, 9])
