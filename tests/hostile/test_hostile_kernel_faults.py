"""Every allocation and every look for signals fails once, in every call on a network: it is as before or as after, never between.

Three ways to fail.  The n-th allocation of an array, and the n-th look for signals while solving, in a build with fault points
(``FLOWSCHED_FAULTS=1``; skipped otherwise).  The n-th allocation of any Python object.  And Ctrl-C before the n-th bytecode.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter

import numpy as np
import oracles
import pytest
from effort import FUZZ, effort
from faults import fail_object
from netmodel import ALGORITHMS, from_problem, mutate
from strategies import random_problem

import flowsched as fs
from flowsched import _faults

HOOKED = _faults.fail_at(0, 0) is not None

DATA = ("nodes", "arcs", "supply", "tail", "head", "capacity", "cost", "lower", "flow", "potential")


def fresh() -> fs.FlowNetwork:
    """Never solved; lower bounds, unlimited arcs, negative costs."""
    return from_problem(random_problem(np.random.default_rng(1), 12, 40)).net


def lived() -> fs.FlowNetwork:
    """Solved many times, with free ids, a kept basis with news, and changes that wait."""
    rng = np.random.default_rng(2)
    mirror = from_problem(random_problem(rng, 25, 100, negative=0))
    for step in range(20):
        mutate(mirror, rng)
        with contextlib.suppress(fs.InfeasibleError):
            mirror.net.solve(algorithm=ALGORITHMS[step % 4])
    net = mirror.net
    net.remove_arcs(net.arcs()[::9])
    net.add_arcs(net.nodes()[:3], net.nodes()[3:6], fs.INF, 500)
    with contextlib.suppress(fs.InfeasibleError):
        net.solve(algorithm="network_simplex")
    arcs = net.arcs()[::4]
    net.set_cost(arcs, np.arange(len(arcs)) * 7 % 40)
    return net


def stuck() -> fs.FlowNetwork:
    """Solved once, then made infeasible, with bent half-arcs and a hub; a third of its supplies cannot be sent."""
    rng = np.random.default_rng(3)
    net = fs.FlowNetwork()
    givers, hub = net.add_nodes([2] * 12), net.add_nodes([-24])
    middle = net.add_nodes(6)
    arcs = net.add_arcs(np.repeat(givers, 2), rng.choice(middle, 24), fs.INF, rng.integers(1, 30, 24))
    net.add_arcs(middle, np.repeat(hub, 6), 9, 2)
    net.solve()
    net.set_cost(arcs[::3], -5)
    net.set_capacity(net.arcs()[-6:], 2)
    return net


NETWORKS = {make.__name__: make().state() for make in (fresh, lived, stuck)}


def _calls(state):
    """Every call, as a function of a network; arguments are such that arrays must grow."""
    net = fs.FlowNetwork.from_state(state)
    nodes, arcs = net.nodes(), net.arcs()
    ends = np.resize(nodes, 60)
    back, on = ends[::-1].copy(), np.roll(ends, 1)
    ones, sevens, threes = np.full(60, 1), np.full(60, -3), np.full(60, 2**40)
    some, prices = np.array([fs.INF] * 20 + [7] * 40), np.arange(60) - 5
    supplies, more = np.arange(len(nodes)) - len(nodes) // 2, np.array([5, -5, *[0] * 30])
    rooms, unlimited = np.maximum(net.lower(), 3), np.full(len(arcs), fs.INF)
    lowers, costs = np.minimum(net.capacity(), 1), np.arange(len(arcs)) * 13 % 50 - 10
    few, fewer, gone = arcs[:2].tolist(), arcs[::2].copy(), nodes[::3].copy()
    give = {
        "add_nodes": lambda net: net.add_nodes(more),
        "add_arcs": lambda net: net.add_arcs(ends, back, some, prices, ones),
        "add_arcs, unbounded": lambda net: net.add_arcs(ends, on, threes, sevens),
        "remove_nodes": lambda net: net.remove_nodes(gone),
        "remove_arcs": lambda net: net.remove_arcs(fewer),
        "set_supply": lambda net: net.set_supply(nodes, supplies),
        "set_capacity": lambda net: net.set_capacity(arcs, rooms),
        "set_capacity, unlimited": lambda net: net.set_capacity(arcs, unlimited),
        "set_lower": lambda net: net.set_lower(arcs, lowers),
        "set_cost": lambda net: net.set_cost(arcs, costs),
        "set_cost, by lists": lambda net: net.set_cost(few, [5, 6]),
        "copy": lambda net: net.copy(),
        "state": lambda net: net.state(),
        "flow": lambda net: net.flow(),
        "potential": lambda net: net.potential(),
        "nodes": lambda net: net.nodes(),
    }
    for algorithm in ALGORITHMS:
        for limit in (None, 0, 1e-4):
            give[f"solve {algorithm} {limit}"] = lambda net, a=algorithm, t=limit: net.solve(algorithm=a, time_limit=t)
    return give


CALLS = {name: _calls(state) for name, state in NETWORKS.items()}
EACH = [(name, call) for name in NETWORKS for call in CALLS[name]]


def seen(net):
    return {name: getattr(net, name)() for name in DATA}


def same(one, other):
    return all(np.array_equal(one[name], other[name]) for name in one)


def check(net, name, call, after):
    """The network is as before or as after, and solves to the right optimum."""
    if call.startswith("solve"):  # the present flow may be another one; all that can be seen is not
        now = seen(net)
        before = same(now, seen(fs.FlowNetwork.from_state(NETWORKS[name])))
        assert before or after is None or _solved_alike(now, after), "neither before nor after"
    else:
        state = net.state()
        before = same(state, NETWORKS[name])
        assert before or same(state, after.state()), "neither before nor after"
        if before and after is not None:  # and now without a fault
            CALLS[name][call](net)
            assert same(net.state(), after.state())
    solvable(net)
    return "before" if before else "after"


def _solved_alike(now, after):
    """All but flow and potentials as after: those depend on the clock, and are certified anyway."""
    then = seen(after)
    return all(np.array_equal(now[key], then[key]) for key in DATA[:-2])


def solvable(net):
    """The next answer is right: certified, and that of an independent solver."""
    problem = dense(net)
    expected = oracles.ortools(problem)
    if oracles.negative_unlimited_cycle(problem):
        expected = oracles.Answer(oracles.UNBOUNDED)
    try:
        cost = net.solve().cost
    except fs.InfeasibleError:
        # of an infeasible network with a cycle without limit either may be said
        assert expected.status != oracles.OPTIMAL
    except fs.UnboundedError:
        assert expected.status == oracles.UNBOUNDED
    else:
        net.certify()
        assert (expected.status, expected.cost) == (oracles.OPTIMAL, cost)


def dense(net):
    nodes = net.nodes()
    place = np.zeros(int(nodes[-1]) + 1, np.int64)
    place[nodes] = np.arange(len(nodes))
    return fs.FlowProblem(
        place[net.tail()], place[net.head()], net.capacity(), net.cost(), net.supply(), net.lower()
    )  # fmt: skip


def outcome(name, call):
    """The network after the call, if nothing fails on purpose; None if the call itself raises."""
    net = fs.FlowNetwork.from_state(NETWORKS[name])
    try:
        CALLS[name][call](net)
    except fs.FlowschedError:
        return None
    return net


def walk(name, call, fail, most=None, stride=1):
    """Let point 1, 1 + stride, ... fail until the call gets through without coming so far; counts of what was found."""
    found = Counter()
    after = outcome(name, call)
    n = 1
    while most is None or found.total() < most:
        net = fs.FlowNetwork.from_state(NETWORKS[name])
        failed, reached = fail(n, lambda net=net: CALLS[name][call](net))
        if not reached:
            break
        found[failed + ", " + check(net, name, call, after)] += 1
        n += stride
    return found


def told(capsys, what, found):
    with capsys.disabled():
        print(f"\n{what}: {sum(found.values())} faults: {dict(found)}")


# -- fault points ------------------------------------------------------------------------------------------------


def _at_point(kind):
    def fail(n, call):
        _faults.fail_at(n if kind == "allocation" else 0, n if kind == "signal" else 0)
        failed = "nothing raised"
        try:
            call()
        except (MemoryError, KeyboardInterrupt) as error:
            failed = type(error).__name__
        except fs.FlowschedError as error:  # infeasible, as it would have been, or late
            failed = type(error).__name__
        reached = _faults.fail_at(0, 0)[kind == "signal"] >= n
        assert not reached or failed in ("MemoryError", "KeyboardInterrupt"), failed
        return failed, reached

    return fail


@pytest.mark.skipif(not HOOKED, reason="built without fault points (FLOWSCHED_FAULTS=1)")
@pytest.mark.parametrize("kind", ["allocation", "signal"])
def test_every_fault_point(kind, capsys):
    found = Counter()
    for name, call in EACH:
        if kind == "signal" and not call.startswith("solve"):
            continue
        found += walk(name, call, _at_point(kind))
    told(capsys, f"{kind}s", found)
    assert sum(found.values()) > 50


# -- Python's own allocations ------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="looks into CPython's allocator")
@pytest.mark.parametrize("name", NETWORKS)
def test_every_allocation_of_an_object(name, capsys):
    pytest.importorskip("_testcapi", reason="this Python is built without _testcapi")
    found = Counter()
    for call in CALLS[name]:
        found += walk(name, call, fail_object, most=effort(12, 400), stride=1 if FUZZ else 9)
    told(capsys, f"objects, {name}", found)
    assert sum(found.values()) > 100


# -- Ctrl-C ------------------------------------------------------------------------------------------------------


def _bytecode(n, call):
    left = n

    def trace(frame, event, argument):
        nonlocal left
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    failed = "nothing raised"
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        failed = "KeyboardInterrupt"
    except fs.FlowschedError:
        failed = "FlowschedError"
    finally:
        sys.settrace(before)
    return failed, left <= 0


@pytest.mark.parametrize("name", NETWORKS)
def test_ctrl_c_before_every_bytecode(name, capsys):
    found = Counter()
    for call in CALLS[name]:
        found += walk(name, call, _bytecode, most=effort(15, 1000), stride=1 if FUZZ else 17)
    told(capsys, f"bytecodes, {name}", found)
    assert sum(found.values()) > 100
