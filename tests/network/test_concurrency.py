"""Promises of the kernel to threads, to Ctrl-C, and to copies of a live network."""

from __future__ import annotations

import contextlib
import copy
import os
import pickle
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from netmodel import ALGORITHMS
from networks import network, random_arrays

import flowsched as fs

PATIENCE = 120  # seconds after which a test gives up on a thread that hangs


@pytest.fixture
def no_forced_switches():
    """Threads take turns only where one gives way: an interpreter that waits for the GIL gets it by a release alone."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_two_threads_solve_two_networks_at_once(no_forced_switches, algorithm):
    large, _ = network(*random_arrays(4000, 40_000, 1))
    small, arcs = network(*random_arrays(20, 100, 2))
    begun, ended = threading.Event(), threading.Event()
    within = []  # solves that began after the large one and were done before it

    def solve_large():
        begun.set()
        large.solve(algorithm=algorithm)
        ended.set()

    def solve_small():
        begun.wait(PATIENCE)
        while not ended.is_set():
            small.set_cost(arcs, np.roll(small.cost(arcs), 1))
            solution = small.solve(algorithm=algorithm)
            if not ended.is_set():
                within.append(solution.cost)

    threads = [threading.Thread(target=target) for target in (solve_small, solve_large)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert ended.is_set()
    assert within, "the large solve kept the interpreter to itself"
    large.certify()
    small.certify()


@pytest.mark.skipif(
    not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="relies on the GIL for its order of events"
)
def test_every_use_of_a_network_that_is_being_solved_is_refused(no_forced_switches):
    """At once, by name, and with nothing done: the answer is that of the network as it was."""
    tail, head, capacity, cost, supply = random_arrays(3000, 30_000, 3)
    net, arcs = network(tail, head, capacity, cost, supply)
    uses = [
        lambda: net.add_nodes([1, -1]), lambda: net.add_arcs([0], [1], 5, 3), lambda: net.remove_arcs(arcs[:1]), lambda: net.remove_nodes([0]),
        lambda: net.set_supply([0, 1], [5, -5]), lambda: net.set_capacity(arcs, 10**6), lambda: net.set_lower(arcs, 1), lambda: net.set_cost(arcs, 7),
        net.solve, net.certify, net.flow, net.potential, net.reduced_cost, net.nodes, net.arcs, net.supply, net.tail, net.head, net.capacity,
        net.cost, net.lower, lambda: net.num_nodes, lambda: net.num_arcs, lambda: net.nbytes, net.state, net.copy,
        lambda: pickle.dumps(net), lambda: copy.copy(net), lambda: copy.deepcopy(net),
    ]  # fmt: skip
    begun = threading.Event()
    solutions = []

    def solve():
        begun.set()
        solutions.append(net.solve(algorithm="cost_scaling"))

    thread = threading.Thread(target=solve)
    thread.start()
    begun.wait(PATIENCE)
    for use in uses:  # they get their turn when the solve has released the GIL, so while it runs
        with pytest.raises(fs.exceptions.ConcurrentUseError):
            use()
    assert repr(net) == "<FlowNetwork: in use>"
    assert not solutions, "the solve was over before all were tried"
    thread.join(PATIENCE)
    flow = net.flow(arcs)
    assert not thread.is_alive()
    assert solutions[0].cost == fs.min_cost_flow(tail, head, capacity, cost, supply).cost
    assert (net.num_nodes, net.num_arcs) == (3000, 30_000)
    assert (flow * cost).sum() == solutions[0].cost
    cost[:50] += 7
    net.set_cost(arcs[:50], cost[:50])
    assert net.solve().cost == fs.min_cost_flow(tail, head, capacity, cost, supply).cost
    net.certify()


@pytest.mark.parametrize("shared", ["with a lock of their own", "trying again"])
def test_many_threads_on_one_network(shared):
    tail, head, capacity, cost, supply = random_arrays(200, 1500, 4)
    net, arcs = network(tail, head, capacity, cost, supply)
    parts, finished = np.array_split(arcs, 4), [0] * 4
    lock, refused = threading.Lock(), []

    def use(method, *arguments):
        if shared == "with a lock of their own":
            with lock:
                return method(*arguments)
        while True:
            try:
                return method(*arguments)
            except fs.exceptions.ConcurrentUseError:
                refused.append(method)
                time.sleep(0)

    def work(number):
        rng = np.random.default_rng(number)
        for _ in range(60):
            mine = rng.choice(parts[number], 5, replace=False)
            use(net.set_cost, mine, rng.integers(0, 10_000, 5))
            [node] = use(net.add_nodes, [0])
            extra = use(net.add_arcs, [node, 0], [1, node], 5, 3)
            use(net.solve)
            assert (use(net.flow, extra) >= 0).all()
            use(net.copy)
            use(net.remove_nodes, [node])
            finished[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    assert finished == [60] * 4
    assert (net.num_nodes, net.num_arcs) == (200, 1500)
    assert net.solve().cost == fs.min_cost_flow(tail, head, capacity, net.cost(arcs), supply).cost
    net.certify()


# -- Ctrl-C ------------------------------------------------------------------------------------------------------

INTERRUPTED = """
import os, signal, sys, threading, time
from networks import network, random_arrays
import flowsched as fs

arrays = random_arrays(int(sys.argv[2]), int(sys.argv[3]), 5, 2**40)
net, arcs = network(*arrays)
main = threading.main_thread().ident

def interrupt():
    while sys._current_frames()[main].f_code is not fs.FlowNetwork.solve.__code__:
        time.sleep(0.001)
    time.sleep(0.02)  # from its first line into the kernel
    assert not solved
    os.kill(os.getpid(), signal.SIGINT)

solved = []
threading.Thread(target=interrupt, daemon=True).start()
try:
    solved.append(net.solve(algorithm=sys.argv[1]))
except KeyboardInterrupt:
    print("interrupted")
net.set_cost(arcs[:3], [1, 2, 3])
cost = net.solve().cost
net.certify()
arrays[3][:3] = 1, 2, 3
assert cost == fs.min_cost_flow(*arrays).cost
print("solved")
"""


@pytest.mark.skipif(os.name != "posix", reason="signals are sent to a process of one's own here")
@pytest.mark.parametrize(
    "algorithm", [pytest.param(name, marks=() if name == "auto" else pytest.mark.long) for name in ALGORITHMS]
)
def test_interrupt_ends_a_solve_and_leaves_the_network_usable(algorithm):
    size = (
        ("30000", "250000") if algorithm in ("auto", "network_simplex") else ("12000", "100000")
    )  # half a second at least
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, algorithm, *size],
        check=False, capture_output=True, text=True, timeout=PATIENCE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["interrupted", "solved"]


# -- copies ------------------------------------------------------------------------------------------------------

COPIES = {"copy": fs.FlowNetwork.copy, "copy.copy": copy.copy, "copy.deepcopy": copy.deepcopy}
COPIES |= {
    f"pickle {p}": lambda net, p=p: pickle.loads(pickle.dumps(net, p)) for p in range(2, pickle.HIGHEST_PROTOCOL + 1)
}


@pytest.mark.parametrize("make", COPIES.values(), ids=COPIES)
def test_copies_are_warm_and_independent(make):
    net, arcs = network(*random_arrays(500, 4000, 6))
    cold = net.solve().stats
    net.remove_arcs(arcs[10:20])  # ids with gaps
    twin = make(net)
    assert twin.arcs().tolist() == net.arcs().tolist()
    assert twin.flow().tolist() == net.flow().tolist()
    assert twin.potential().tolist() == net.potential().tolist()
    again, found = net.solve(), twin.solve()
    assert found.cost == again.cost
    assert found.changed.tolist() == again.changed.tolist()
    assert found.stats["warm"]
    assert not cold["warm"]
    twin.set_cost(arcs[:5], [9] * 5)
    twin.solve()
    twin.certify()
    net.certify()
    assert net.cost(arcs[:5]).tolist() != [9] * 5
    assert net.solve().changed.size == 0


def test_a_copy_of_a_network_that_is_being_solved_is_of_before_or_after():
    net, _ = network(*random_arrays(3000, 30_000, 7))
    thread = threading.Thread(target=net.solve)
    thread.start()
    twins = []
    while thread.is_alive() or not twins:
        with contextlib.suppress(fs.exceptions.ConcurrentUseError):
            twins += [net.copy(), pickle.loads(pickle.dumps(net))]
    cost = net.solve().cost
    for twin in twins[:2] + twins[-2:]:
        assert twin.solve().cost == cost
        twin.certify()


FORKED = """
import os, sys, threading, time, signal
from networks import network, random_arrays
import flowsched as fs

net, arcs = network(*random_arrays(4000, 40_000, 8))
thread = threading.Thread(target=net.solve, kwargs={"algorithm": "cost_scaling"})
thread.start()
while repr(net) != "<FlowNetwork: in use>":
    time.sleep(0)
child = os.fork()
if not child:
    signal.alarm(60)
    try:
        net.set_cost(arcs, 1)
    except fs.exceptions.ConcurrentUseError:
        other, _ = network(*random_arrays(40, 300, 9))
        other.solve()
        os._exit(7)
    os._exit(8)
_, status = os.waitpid(child, 0)
thread.join()
net.certify()
print(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_forked_while_another_thread_solves_does_not_wait_for_it():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED],
        check=False, capture_output=True, text=True, timeout=PATIENCE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["7"]
