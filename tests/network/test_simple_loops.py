"""`SimpleMinCostFlow` one arc at a time: what OR-tools' class answers, and what is refused."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest
from effort import effort
from ortools.graph.python import min_cost_flow as ortools_mcf

import flowsched as fs

PEERS = [fs.SimpleMinCostFlow, ortools_mcf.SimpleMinCostFlow]


def both(play):
    found, expected = (play(kind()) for kind in PEERS)
    return found, expected


@pytest.mark.parametrize("seed", range(effort(10, 40)))
def test_random_sequences_of_calls(seed):
    """Adds, supplies, capacities, solves of both kinds and all readings, in any order."""

    def play(solver):
        rng = np.random.default_rng(seed)
        said = []
        solved = None
        for _ in range(90):
            what = rng.integers(0, 8)
            m, n = solver.num_arcs(), solver.num_nodes()
            if what <= 2:
                kinds = [int, np.int64, np.int32]
                numbers = [
                    kinds[rng.integers(3)](x) for x in (*rng.integers(0, 7, 2), rng.integers(0, 9), rng.integers(0, 20))
                ]
                if isinstance(solver, PEERS[1]):
                    numbers = list(map(int, numbers))
                said.append(solver.add_arc_with_capacity_and_unit_cost(*numbers))
            elif what == 3 and n:
                solver.set_node_supply(int(rng.integers(0, n)), int(rng.integers(-6, 7)))
            elif what == 4 and m:
                solver.set_arc_capacity(int(rng.integers(0, m)), int(rng.integers(0, 9)))
            elif what == 5 and m:
                a = int(rng.integers(0, m))
                said.append((solver.tail(a), solver.head(a), solver.capacity(a), solver.unit_cost(a), n, m))
            elif what == 6 and n:
                spare = sum(solver.supply(v) for v in range(n))
                solver.set_node_supply(0, solver.supply(0) - spare)
            elif what == 7:
                if n and rng.integers(4):  # balanced, and little to send: most often there is a flow
                    for v in range(1, n):
                        solver.set_node_supply(v, int(rng.integers(-1, 2)))
                    solver.set_node_supply(0, -sum(solver.supply(v) for v in range(1, n)))
                solved = solver.solve() if rng.integers(2) else solver.solve_max_flow_with_min_cost()
                said.append(solved.name)
                if solved == solver.OPTIMAL:
                    said += [solver.optimal_cost(), solver.maximum_flow()]
                    flow = [solver.flow(a) for a in range(m)]
                    assert flow == solver.flows(np.arange(m)).tolist()
                    assert sum(f * solver.unit_cost(a) for a, f in enumerate(flow)) == solver.optimal_cost()
        return said

    found, expected = both(play)
    assert found == expected


def test_every_status():
    def play(solver):
        said = []
        solver.add_arc_with_capacity_and_unit_cost(0, 1, 3, 2)
        solver.set_node_supply(0, 2)
        said.append(str(solver.solve()).removeprefix("Status."))
        solver.set_node_supply(1, -2)
        said.append(solver.solve().name)
        solver.set_node_supply(0, 5)
        solver.set_node_supply(1, -5)
        said.append(solver.solve().name)
        said.append((solver.solve_max_flow_with_min_cost().name, solver.maximum_flow(), solver.optimal_cost()))
        return said

    found, expected = both(play)
    assert found == expected == ["UNBALANCED", "OPTIMAL", "INFEASIBLE", ("OPTIMAL", 3, 6)]


def test_too_large_is_refused_at_once_and_nothing_is_added():
    solver = fs.SimpleMinCostFlow()
    solver.add_arc_with_capacity_and_unit_cost(0, 1, 5, 1)
    for arguments, words in (
        ((0, 1, 1, 2**59), r"unit_costs\[0\]: .* too large"),
        ((0, 1, 1, 10**30), r"unit_costs\[0\]: .* does not fit in 64 bits"),
        ((0, 2**33, 1, 1), "fewer than 2\\*\\*31 nodes"),
        ((0, 2**30, 1, 2**40), r"nodes \+ 1"),
    ):
        with pytest.raises(fs.CostRangeError, match=words):
            solver.add_arc_with_capacity_and_unit_cost(*arguments)
        with pytest.raises(fs.CostRangeError, match=words):
            solver.add_arcs_with_capacity_and_unit_cost(*([x] for x in arguments))
    with pytest.raises(fs.CostRangeError, match=r"supplies\[0\]"):
        solver.set_node_supply(0, 2**60)
    assert (solver.num_nodes(), solver.num_arcs(), solver.supply(0)) == (2, 1, 0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda s: s.add_arc_with_capacity_and_unit_cost(-1, 1, 1, 1), r"tails\[0\]: node numbers start at 0, got -1"),
        (lambda s: s.add_arc_with_capacity_and_unit_cost(0, -2, 1, 1), r"heads\[0\]: node numbers start at 0, got -2"),
        (lambda s: s.add_arc_with_capacity_and_unit_cost(0, 1, -1, 1), r"capacities\[0\]: -1 is negative"),
        (lambda s: s.add_arc_with_capacity_and_unit_cost(0, 1, 1, 0.5), r"unit_costs\[0\]: 0.5 is not an integer"),
        (lambda s: s.add_arc_with_capacity_and_unit_cost(0, True, 1, 1), "heads: integers expected, got bool"),
        (lambda s: s.add_arc_with_capacity_and_unit_cost("a", 1, 1, 1), r"tails\[0\]: an integer expected, got 'a'"),
        (lambda s: s.add_arc_with_capacity_and_unit_cost(None, 1, 1, 1), r"tails\[0\]: an integer expected, got None"),
        (lambda s: s.set_node_supply(-1, 1), r"nodes\[0\]: node numbers start at 0, got -1"),
        (lambda s: s.set_arc_capacity(-1, 1), r"arcs\[0\]: no arc -1"),
        (lambda s: s.set_arc_capacity(1, 1), r"arcs\[0\]: no arc 1"),
        (lambda s: s.set_arc_capacity(0, -1), r"capacity\[0\]: -1 is negative"),
        (lambda s: s.flow(-1), r"arcs\[0\]: there is no arc -1 in the solution"),
        (lambda s: s.flow(1), r"arcs\[0\]: there is no arc 1 in the solution"),
        (lambda s: s.flows([0, -1]), r"arcs\[1\]: there is no arc -1 in the solution"),
        (lambda s: s.tail(-1), r"arcs\[0\]: no arc -1"),
        (lambda s: s.supply(2), r"nodes\[0\]: no node 2"),
        (lambda s: s.supply(-1), r"nodes\[0\]: no node -1"),
        (lambda s: s.add_arcs_with_capacity_and_unit_cost([0, 1], [1, 0], [1, 1], [1, 0.5]), r"unit_costs\[1\]: 0.5"),
        (lambda s: s.add_arcs_with_capacity_and_unit_cost([0, 1], [1], 1, 1), "heads: 2 values expected, got 1"),
        (lambda s: s.set_nodes_supplies([0, 1], [1, 2, 3]), "supplies: 2 values expected, got 3"),
    ],
)
def test_bad_arguments_change_nothing(call, words):
    solver = fs.SimpleMinCostFlow()
    solver.add_arc_with_capacity_and_unit_cost(0, 1, 3, 2)
    solver.set_nodes_supplies([0, 1], [2, -2])
    assert solver.solve() is solver.OPTIMAL
    with pytest.raises(fs.InputError, match=words):
        call(solver)
    assert (solver.num_nodes(), solver.num_arcs(), solver.supply(0), solver.capacity(0)) == (2, 1, 2, 3)
    assert (solver.flow(0), solver.flow(np.int8(0)), solver.flow(0.0), solver.optimal_cost()) == (2, 2, 2, 4)
    assert solver.solve() is solver.OPTIMAL


def test_arcs_after_a_solve_have_no_flow_yet():
    solver = fs.SimpleMinCostFlow()
    solver.add_arc_with_capacity_and_unit_cost(0, 1, 3, 2)
    with pytest.raises(fs.InputError, match="no flow was found yet"):
        solver.flow(0)
    solver.solve()
    solver.add_arc_with_capacity_and_unit_cost(0, 1, 3, 1)
    assert solver.flow(0) == 0
    with pytest.raises(fs.InputError, match="no arc 1 in the solution"):
        solver.flow(1)


def test_unlimited_capacity_and_large_supplies_in_turn():
    """What is handed on in one piece must not be refused for its sum when one by one would not be."""
    solver = fs.SimpleMinCostFlow()
    solver.add_arcs_with_capacity_and_unit_cost([0, 2], [1, 3], np.inf, 1)
    big = 2**58
    solver.set_nodes_supplies([0, 1], [big, -big])
    assert solver.solve() is solver.OPTIMAL and solver.optimal_cost() == big
    solver.set_nodes_supplies([0, 1], [0, 0])
    solver.set_nodes_supplies([2, 3], [big, -big])
    assert solver.solve() is solver.OPTIMAL and solver.flows([0, 1]).tolist() == [0, big]


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_copies_are_independent(duplicate):
    solver = fs.SimpleMinCostFlow()
    solver.add_arc_with_capacity_and_unit_cost(0, 1, 3, 2)
    solver.set_nodes_supplies([0, 1], [2, -2])
    solver.solve()
    other = duplicate(solver)
    assert (other.flow(0), other.optimal_cost(), other.maximum_flow()) == (2, 4, 2)
    other.add_arc_with_capacity_and_unit_cost(0, 1, 9, 1)
    assert other.solve() is other.OPTIMAL
    assert (other.optimal_cost(), solver.optimal_cost(), solver.num_arcs()) == (2, 4, 1)
    assert solver.solve() is solver.OPTIMAL and solver.optimal_cost() == 4


def test_every_call_beside_a_solve_is_refused():
    solver = fs.SimpleMinCostFlow()
    solver.add_arc_with_capacity_and_unit_cost(0, 1, 3, 2)
    solver.solve()
    calls = [
        lambda: solver.add_arc_with_capacity_and_unit_cost(0, 1, 1, 1),
        lambda: solver.add_arcs_with_capacity_and_unit_cost([0], [1], 1, 1),
        lambda: solver.set_node_supply(0, 0),
        lambda: solver.set_nodes_supplies([0], 0),
        lambda: solver.set_arc_capacity(0, 1),
        lambda: solver.set_arc_capacities([0], 1),
        lambda: solver.flow(0),
        lambda: solver.flows([0]),
        solver.num_arcs,
        solver.num_nodes,
        solver.optimal_cost,
        solver.maximum_flow,
        lambda: solver.supply(0),
        lambda: solver.tail(0),
        solver.solve,
        solver.solve_max_flow_with_min_cost,
    ]
    refused = []

    def beside():
        for call in calls:
            with pytest.raises(fs.ConcurrentUseError):
                call()
            refused.append(call)

    with solver._in_use():
        thread = threading.Thread(target=beside)
        thread.start()
        thread.join()
    assert len(refused) == len(calls)
    assert solver.num_arcs() == 1 and solver.solve() is solver.OPTIMAL
