"""A network used while it is in use, arrays that change under a call, solves that end badly, signals at any moment."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import oracles
import pytest
from effort import effort
from netmodel import ALGORITHMS
from strategies import random_problem

import flowsched as fs
from flowsched.network import one_shot as module

PATIENCE = 60


def small() -> fs.FlowNetwork:
    net = fs.FlowNetwork()
    net.add_nodes([3, 0, -3])
    net.add_arcs([0, 1, 0], [1, 2, 2], [5, 5, 1], [1, 1, 9])
    net.solve()
    return net


def busy_with(net, how):
    """Calls in which Python code may run: arrays and result objects are made."""
    for _ in range(effort(30, 500)):
        nodes = net.add_nodes(40)
        arcs = net.add_arcs(np.repeat(nodes, 3), np.resize(nodes, 120), 4, how % 7)
        net.solve(algorithm=ALGORITHMS[how % 4])
        net.state()
        net.remove_arcs(arcs[::2])
        net.remove_nodes(nodes)


# -- re-entrance -------------------------------------------------------------------------------------------------


def test_a_garbage_collector_callback_is_refused_and_nothing_was_done():
    """The collector runs inside of kernel calls; what it calls back gets its error there, and an answer outside."""
    net = small()
    before = net.state()
    told = []

    def look(phase, _):
        try:
            net.set_cost([0], 7)
            net.set_cost([0], 1)
        except fs.exceptions.ConcurrentUseError:
            told.append(phase)

    threshold = gc.get_threshold()
    gc.callbacks.append(look)
    gc.set_threshold(1)
    try:
        with contextlib.suppress(fs.exceptions.ConcurrentUseError):
            for how in range(2):
                busy_with(net, how)
                junk = [[] for _ in range(50)]
    finally:
        gc.callbacks.remove(look)
        gc.set_threshold(*threshold)
    assert told, "never in the midst of a call"
    assert len(junk) == 50
    net.solve()
    net.certify()
    assert net.cost([0]).tolist() == [1]
    assert (net.num_nodes, net.num_arcs) == (3, 3)
    assert len(before["supply"]) == 3


def test_a_finaliser_that_uses_the_network():
    """An object dies inside of a call (its last reference was a value in a list of arguments)."""
    net, told = small(), []

    class Value:
        def __init__(self, number):
            self.number = number

        def __index__(self):
            return self.number

        def __del__(self):
            try:
                told.append(net.num_arcs)
            except fs.exceptions.ConcurrentUseError:
                told.append("refused")

    kept = Value(1)
    weakref.finalize(kept, net.solve)
    net.set_cost([0], [5])
    del kept
    gc.collect()
    assert told == [3]
    net.solve()
    net.certify()


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timer here")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_signal_handler_is_refused_at_once(algorithm):
    """It never waits, inside of whatever it comes; outside it works."""
    problem = random_problem(np.random.default_rng(3), 400, 4000)
    net, other, calm = fs.FlowNetwork(), small(), []

    def handler(*_):
        other.set_cost([0], len(calm) % 9)  # another network is free
        other.solve()
        try:
            calm.append(net.num_nodes)
        except fs.exceptions.ConcurrentUseError:
            calm.append("refused")

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        net.add_nodes(problem.supply)
        net.add_arcs(problem.tail, problem.head, problem.capacity, problem.cost, problem.lower)
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            net.set_cost(net.arcs()[:500], 5)
            net.solve(algorithm=algorithm)
            net.set_cost(net.arcs()[:500], 9)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    net.set_cost(np.arange(500), problem.cost[:500])
    expected = oracles.ortools(problem)
    assert net.solve(algorithm=algorithm).cost == expected.cost
    net.certify()
    assert len(calm) > 10
    other.certify()


def test_a_handler_inside_of_solve_and_its_error():
    """An exception of the handler ends the solve; the network is as before."""
    rng = np.random.default_rng(4)
    problem = random_problem(rng, 2000, 20_000, max_cost=10**6, negative=0)
    net = fs.FlowNetwork()
    net.add_nodes(problem.supply)
    arcs = net.add_arcs(problem.tail, problem.head, problem.capacity, problem.cost, problem.lower)
    raised, added = [], []

    def handler(*_):
        try:
            added.append(net.add_nodes(1))  # outside of calls it may
        except fs.exceptions.ConcurrentUseError as error:
            raised.append(error)
            raise

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.003, 0.003)
    end = time.monotonic() + PATIENCE
    try:
        with pytest.raises(fs.exceptions.ConcurrentUseError, match="in use"):
            while time.monotonic() < end:
                net.set_cost(arcs, rng.permutation(problem.cost))
                net.solve(algorithm="cost_scaling")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert raised
    assert net.num_nodes == 2000 + len(added)
    net.solve()
    net.certify()


# -- the caller's arrays -----------------------------------------------------------------------------------------


class Spy:
    """Stands for a kernel: notes the arrays that it is given, and passes them on."""

    def __init__(self, core, given):
        self._real, self._given = core, given

    def __getattr__(self, name):
        method = getattr(self._real, name)

        def call(*arguments):
            self._given.extend(argument for argument in arguments if isinstance(argument, np.ndarray))
            return method(*arguments)

        return call


def test_the_kernel_never_sees_an_array_of_the_caller(monkeypatch):
    """Whatever the type and layout: the checked values are the used ones, even if another thread writes into the original meanwhile."""
    given = []
    net = small()
    net._core = net._target = Spy(net._core, given)
    mine = []

    def own(values, kind=np.int64):
        mine.append(np.array(values, kind))
        return mine[-1]

    def view(values):
        mine.append(np.repeat(np.array(values, np.int64), 2))
        return mine[-1][::2]

    for make in (
        own,
        view,
        lambda v: own(v, np.int32),
        lambda v: own(v, np.float64),
        lambda v: own(v).view(np.matrix).A1,
    ):
        nodes = net.add_nodes(make([1, -1]))
        arcs = net.add_arcs(make([0, 1]), make([1, 2]), make([5, 5]), make([1, 2]), make([1, 0]))
        for call in (net.set_capacity, net.set_cost, net.set_lower):
            call(make(arcs), make([3, 3]))
        net.set_supply(make(nodes), make([2, -2]))
        for call in (net.flow, net.cost, net.tail, net.head, net.capacity, net.lower, net.reduced_cost):
            call(make(arcs))
        for call in (net.supply, net.potential):
            call(make(nodes))
        net.remove_arcs(make(arcs))
        net.remove_nodes(make(nodes))
    real = module.simplex.solve
    monkeypatch.setattr(
        module.simplex,
        "solve",
        lambda *a, **k: given.extend(x for x in a if isinstance(x, np.ndarray)) or real(*a, **k),
    )
    fs.min_cost_flow(
        own([0, 0, 1]), own([1, 2, 2]), own([4, 2, 3]), own([1, 5, 1]), own([4, 0, -4]), lower=own([0, 0, 1])
    )
    assert len(given) > 100
    assert len(mine) > 100
    assert not any(np.shares_memory(a, b) for a in given for b in mine)


def test_arrays_that_another_thread_fills_anew_meanwhile():
    """It crashed: ids that had been checked were others when they were used."""
    rng = np.random.default_rng(1)
    n, m = 300, 4000
    head, tail, cost = rng.integers(0, n, m), rng.integers(0, n, m), rng.integers(0, 99, m)
    shared, ended = head.copy(), threading.Event()

    def fill():
        while not ended.is_set():
            shared[:] = 2**31 - 5
            shared[:] = head

    thread = threading.Thread(target=fill)
    thread.start()
    seen = {"optimal": 0, "refused": 0}
    try:
        for _ in range(effort(20, 3000)):
            net = fs.FlowNetwork()
            net.add_nodes(n)
            for call in (
                lambda net=net: net.add_arcs(tail, shared, 5, cost),
                lambda: fs.min_cost_flow(tail, shared, 5, cost, np.zeros(n, int)),
            ):
                try:
                    call()
                    seen["optimal"] += 1
                except fs.exceptions.InputError:
                    seen["refused"] += 1
            net.solve()
            net.certify()
    finally:
        ended.set()
        thread.join(PATIENCE)
    print(f"arrays filled anew meanwhile: {seen}")  # how many of each is up to the threads
    assert sum(seen.values()) == 2 * effort(20, 3000)


# -- solves that end badly -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_late_and_infeasible_leaves_a_network_that_solves_rightly(algorithm, capsys):
    """Out of time, and nothing feasible: what the attempt has pushed without regard to cost must not stay."""
    late = 0
    for seed in range(effort(20, 3000)):
        rng = np.random.default_rng(seed)
        problem = random_problem(rng, 5 + seed % 40, 20 + 4 * (seed % 40))
        supply = problem.supply.copy()
        giver, taker = rng.choice(len(supply), 2, replace=False)
        net = fs.FlowNetwork()
        net.add_nodes(supply)
        net.add_arcs(problem.tail, problem.head, problem.capacity, problem.cost, problem.lower)
        if seed % 3:
            net.solve(algorithm=algorithm)
        net.set_supply([giver, taker], supply[[giver, taker]] + [10**6, -(10**6)])
        before = net.flow().tolist(), net.potential().tolist()
        for limit in (0, 1e-9, 1e-4):
            try:
                net.solve(algorithm=algorithm, time_limit=limit)
            except fs.InfeasibleError as error:
                late += 1
                assert error.cut[giver] or not error.cut.any()
            except fs.TimeLimitError:
                late += 1
            else:  # there are ways without limit
                before = net.flow().tolist(), net.potential().tolist()
            assert (net.flow().tolist(), net.potential().tolist()) == before
            fs.FlowNetwork.from_state(net.state())  # which checks invariant (I)
        net.set_supply([giver, taker], supply[[giver, taker]])
        assert net.solve(algorithm=ALGORITHMS[seed % 4]).cost == oracles.ortools(problem).cost
        net.certify()
    with capsys.disabled():
        print(f"\n{algorithm}: {late} solves late and infeasible")
    assert late > 20


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timer here")
def test_ctrl_c_at_random_moments(capsys):
    """Nothing is half done, and later calls work: sizes, data and optimum are those before or after."""
    rng = np.random.default_rng(7)
    counts = {"interrupted": 0, "through": 0}
    n = 20_000
    zeros, ids = np.zeros(n, np.int64), rng.integers(0, 100, n)
    armed = []

    def handler(*_):
        if armed:
            armed.clear()
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, handler)
    try:
        for case in range(effort(15, 2000)):
            net = fs.FlowNetwork()
            nodes = net.add_nodes([5, *[0] * 98, -5])
            net.add_arcs(nodes[:-1], nodes[1:], 10, 3)
            assert net.solve().cost == 99 * 5 * 3
            calls = [
                lambda net=net: net.add_nodes(zeros), lambda net=net: net.add_arcs(ids, np.roll(ids, 7), 10, 3),
                lambda net=net, case=case: net.solve(algorithm=ALGORITHMS[case % 4]), lambda net=net: net.state(), lambda net=net: net.copy(),
                lambda net=net: net.remove_nodes(net.nodes()[100:]), lambda net=net: net.set_cost(net.arcs(), 3),
            ]  # fmt: skip
            sizes = {(100 + a, 99 + b) for a in (0, n) for b in (0, n)}
            armed.append(True)
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 5e-3))
                for i in rng.permutation(len(calls)):
                    calls[i]()
                armed.clear()  # from here on it raises no more
                counts["through"] += 1
            except KeyboardInterrupt:
                counts["interrupted"] += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert (net.num_nodes, net.num_arcs) in sizes
            assert (len(net.nodes()), len(net.arcs())) == (net.num_nodes, net.num_arcs)
            more = net.add_nodes(3000)
            net.add_arcs(more[:-1], more[1:], 1, 1)
            net.add_arcs([0], [99], 5, 1)
            assert net.solve().cost == 5
            fs.FlowNetwork.from_state(net.state())
    finally:
        signal.signal(signal.SIGALRM, before)
    with capsys.disabled():
        print(f"\nCtrl-C: {counts}")
    assert counts["interrupted"] > 5


OUT_OF_MEMORY = """
import resource, sys
import numpy as np, flowsched as fs
net = fs.FlowNetwork()
nodes = net.add_nodes([5] + [0] * 98 + [-5])
net.add_arcs(nodes[:-1], nodes[1:], 10, 3)
assert net.solve().cost == 99 * 15
big, ends = np.zeros(300_000, np.int64), np.random.default_rng(0).integers(0, 100, 400_000)
other = ends[::-1].copy()
room = int(open("/proc/self/statm").read().split()[0]) * 4096
refused = 0
for head in range(4, 60, 4):
    resource.setrlimit(resource.RLIMIT_AS, (room + head * 2**20, resource.RLIM_INFINITY))
    for call in (lambda: net.add_nodes(big), lambda: net.add_arcs(ends, other, 10, 3, 1), net.copy):
        before = net.num_nodes, net.num_arcs
        try:
            call()
        except MemoryError:
            refused += 1
            assert (net.num_nodes, net.num_arcs) == before
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert (len(net.nodes()), len(net.arcs())) == (net.num_nodes, net.num_arcs)
more = net.add_nodes(50_000)
net.add_arcs(more[:-1], more[1:], 1, 1)
net.remove_arcs(net.arcs()[99:])
assert net.solve().cost == 99 * 15
net.certify()
print(refused)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits the memory of a process, as Linux does")
@pytest.mark.long
def test_memory_that_runs_out():
    """With less and less room: MemoryError, and a network that goes on."""
    done = subprocess.run(
        [sys.executable, "-c", OUT_OF_MEMORY], check=False, capture_output=True, text=True, timeout=PATIENCE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-1500:]
    assert int(done.stdout) > 5
