"""Partial solves and `SimpleMinCostFlow` that are ended anywhere: a signal wherever the interpreter looks for some, every allocation, every look for signals."""

from __future__ import annotations

import dis
import signal
import sys
from functools import partial

import numpy as np
import pytest
from effort import FUZZ
from faults import fail_object
from ortools.graph.python import min_cost_flow as ortools_mcf

import flowsched as fs
from flowsched import _faults

HOOKED = _faults.fail_at(0, 0) is not None


def columns():
    rng = np.random.default_rng(5)
    return [*rng.integers(0, 12, (2, 50)), rng.integers(0, 6, 50), rng.integers(0, 20, 50), rng.integers(-6, 7, 12)]


def partial_answer(net):
    """Amount and cost by OR-tools, of what the network shows of itself."""
    problem = net.to_problem()
    solver = ortools_mcf.SimpleMinCostFlow()
    solver.add_arcs_with_capacity_and_unit_cost(problem.tail, problem.head, problem.capacity, problem.cost)
    solver.set_nodes_supplies(np.arange(len(problem.supply)), problem.supply)
    assert solver.solve_max_flow_with_min_cost() == solver.OPTIMAL
    return solver.maximum_flow(), solver.optimal_cost()


def fresh():
    tail, head, capacity, cost, supply = columns()
    net = fs.FlowNetwork()
    net.add_nodes(supply)
    net.add_arcs(tail, head, capacity, cost)
    return net


def lived():
    net = fresh()
    net.solve(partial=True)
    net.set_supply([1, 2, 3], [9, -9, 4])
    net.set_cost([5, 6], [30, 1])
    return net


CALLS = {
    "first": (fresh, lambda net: net.solve(partial=True)),
    "second": (lived, lambda net: net.solve(partial=True)),
    "without": (lived, lambda net: net.solve()),
    "supply": (lived, lambda net: net.set_supply([4, 5], [3, -3])),
    "cost": (lived, lambda net: net.set_cost([0, 1], [90, 90])),
    "nodes": (lived, lambda net: net.add_nodes([2, -2])),
    "arcs": (lived, lambda net: net.add_arcs([0, 1], [2, 3], 4, 55)),
    "remove": (lived, lambda net: net.remove_nodes([2, 7])),
    "copy": (lived, lambda net: net.copy()),
    "state": (lived, lambda net: net.state()),
}


def shown(net):
    return [
        getattr(net, name)().tolist() for name in ("nodes", "arcs", "supply", "tail", "head", "capacity", "cost")
    ] + [
        net.num_nodes,
        net.num_arcs,
    ]


def _stop(number, frame):
    raise KeyboardInterrupt


def interrupted(n, call):
    """Run a call with a signal at the n-th place where the interpreter looks for some; return True if that was reached."""
    left, last = n, {}

    def trace(frame, event, argument):
        nonlocal left
        if "hypothesis" in frame.f_code.co_filename:  # its callback of the garbage collector
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            if last.get(frame, "RESUME").startswith(("RESUME", "CALL", "JUMP_BACKWARD")):
                left -= 1
                if left == 0:
                    signal.raise_signal(signal.SIGUSR1)
            last[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
        return trace

    handler, before = signal.signal(signal.SIGUSR1, _stop), sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except (KeyboardInterrupt, fs.FlowschedError):
        pass
    finally:
        sys.settrace(before)
        signal.signal(signal.SIGUSR1, handler)
    return left <= 0


def out_of_memory(n, call):
    return fail_object(n, call)[1]


@pytest.mark.parametrize("end", [interrupted, out_of_memory])
@pytest.mark.parametrize("name", CALLS)
def test_a_partial_network_is_as_before_or_as_after(name, end):
    if end is out_of_memory:
        pytest.importorskip("_testcapi", reason="this Python is built without _testcapi")
    make, call = CALLS[name]
    before, after = make(), make()
    try:
        call(after)
    except fs.InfeasibleError:
        pass
    allowed = [shown(before), shown(after)]
    n, ended = 1, 0
    while True:
        net = make()
        if not end(n, partial(call, net)):
            break
        ended += 1
        assert shown(net) in allowed, f"{name}, {n}"
        solution = net.solve(partial=True)
        kept = solution.unshipped[solution.unshipped > 0].sum()
        supply = net.supply()
        assert (int(supply[supply > 0].sum() - kept), solution.cost) == partial_answer(net), f"{name}, {n}"
        net.certify()
        n += 1 if FUZZ else 9
    assert ended > 3


def built():
    tail, head, capacity, cost, supply = columns()
    solver = fs.SimpleMinCostFlow()
    solver.add_arcs_with_capacity_and_unit_cost(tail, head, capacity, cost)
    solver.set_nodes_supplies(np.arange(12), supply)
    solver.solve_max_flow_with_min_cost()
    solver.add_arc_with_capacity_and_unit_cost(0, 13, 5, 2)
    solver.set_arc_capacities([1, 2], 9)
    return solver


SIMPLE = {
    "solve": lambda s: s.solve(),
    "most": lambda s: s.solve_max_flow_with_min_cost(),
    "arcs": lambda s: s.add_arcs_with_capacity_and_unit_cost([1] * 30, [14] * 30, 4, 1),
    "arc": lambda s: s.add_arc_with_capacity_and_unit_cost(1, 14, 4, 1),
    "supplies": lambda s: s.set_nodes_supplies([0, 20], [3, -3]),
    "capacities": lambda s: s.set_arc_capacities([3, 4], [0, 0]),
}


def told(solver):
    m, n = solver.num_arcs(), solver.num_nodes()
    return [(solver.tail(a), solver.head(a), solver.capacity(a), solver.unit_cost(a)) for a in range(m)], [
        solver.supply(v) for v in range(n)
    ]


def answers(solver):
    status = solver.solve_max_flow_with_min_cost()
    found = status, solver.maximum_flow(), solver.optimal_cost()
    balanced = sum(solver.supply(v) for v in range(solver.num_nodes())) == 0
    assert (solver.solve() == solver.UNBALANCED) == (not balanced)
    return found


@pytest.mark.parametrize("end", [interrupted, out_of_memory])
@pytest.mark.parametrize("name", SIMPLE)
def test_a_simple_problem_is_as_before_or_as_after(name, end):
    if end is out_of_memory:
        pytest.importorskip("_testcapi", reason="this Python is built without _testcapi")
    call = SIMPLE[name]
    before, after = built(), built()
    call(after)
    allowed = [told(before), told(after)]
    right = [answers(before), answers(after)]
    n = 1
    while True:
        solver = built()
        if not end(n, partial(call, solver)):
            break
        now = told(solver)
        assert now in allowed, f"{name}, {n}"
        assert answers(solver) == right[allowed.index(now)]
        n += 1 if FUZZ else 2


@pytest.mark.skipif(not HOOKED, reason="built without fault points (FLOWSCHED_FAULTS=1)")
@pytest.mark.parametrize("kind", ["allocation", "signal"])
@pytest.mark.parametrize("module", ["columns", "assignment", "transport"])
def test_every_fault_point(module, kind):
    cost = np.random.default_rng(0).integers(0, 50, (30, 30))
    net = fs.FlowNetwork.from_edges([("a", "b", 2, 1), ("a", "b", 2, 4), ("b", "c", 9, 1)], supply={"a": 3, "c": -3})
    net.solve()
    calls = {
        "columns": [built, lambda: answers(built()), lambda: net.set_cost([0, 1], [1, 4]), net.cost_range],
        "assignment": [lambda: fs.assignment(cost)],
        "transport": [lambda: fs.transport(cost, 3, 3)],
    }[module]
    fail_at, found = _faults.fail_at, 0
    for call in calls:
        n = 1
        while True:
            fail_at(*((n, 0) if kind == "allocation" else (0, n)))
            try:
                call()
            except (MemoryError, KeyboardInterrupt):
                found += 1
            if fail_at(0, 0)[kind == "signal"] < n:
                break
            n += 1
    assert net.solve().cost == 9
    assert found > 0 or (module, kind) == ("columns", "signal")
