"""FlowNetwork call by call: ids, attributes, bad input, copies, threads and time limits."""

from __future__ import annotations

import contextlib
import pickle
import threading

import numpy as np
import oracles
import pytest
from netmodel import ALGORITHMS, Mirror, from_problem, network
from strategies import random_problem

from flowsched.exceptions import ConcurrentUseError, InfeasibleError, InputError, TimeLimitError, UnboundedError
from flowsched.network import INF, FlowNetwork


@pytest.fixture
def mirror() -> Mirror:
    """Two machines, three tasks, a sink; task 0 prefers machine 3, all may go anywhere, waiting costs 10."""
    #  tasks 0 1 2 -> machines 3 4 -> sink 5
    mirror = Mirror()
    mirror.add_nodes([1, 1, 1, 0, 0, -3])
    table = [(0, 3, 1, 1, 0), (0, 4, 1, 3, 0), (1, 3, 1, 2, 0), (1, 4, 1, 2, 0), (2, 3, 1, 2, 0), (2, 4, 1, 4, 0)]
    mirror.add_arcs(table)
    mirror.add_arcs([(3, 5, 1, 0, 0), (4, 5, 1, 0, 0), (0, 5, INF, 10, 0), (1, 5, INF, 10, 0), (2, 5, INF, 10, 0)])
    return mirror


def test_the_example_solved_and_changed(mirror):
    net = mirror.net
    first = net.solve()
    assert first.cost == 13
    mirror.check_solution(first)
    mirror.set_arc("capacity", [6], [2])
    second = net.solve()
    assert second.cost == 5
    mirror.check_solution(second)


def test_an_empty_network_costs_nothing():
    net = FlowNetwork()
    assert net.solve().cost == 0
    assert net.nodes().tolist() == net.arcs().tolist() == []
    assert net.flow().tolist() == net.potential().tolist() == []


def test_add_nodes_by_count_or_by_supply():
    net = FlowNetwork()
    nodes = net.add_nodes(3)
    assert net.supply(nodes).tolist() == [0, 0, 0]
    more = net.add_nodes([4, -4])
    assert net.supply(more).tolist() == [4, -4]
    assert net.add_nodes(0).tolist() == net.add_nodes([]).tolist() == []
    assert len(set(net.nodes().tolist())) == 5


def test_scalars_stand_for_all_arcs():
    net = FlowNetwork()
    a, b = net.add_nodes(2)
    arcs = net.add_arcs([a, a], [b, b], 3, 7, lower=1)
    assert net.capacity(arcs).tolist() == [3, 3]
    assert net.cost(arcs).tolist() == [7, 7]
    assert net.lower(arcs).tolist() == [1, 1]
    net.set_cost(arcs, 2)
    net.set_capacity(arcs, 4)
    net.set_lower(arcs, 0)
    assert [net.cost(arcs).tolist(), net.capacity(arcs).tolist(), net.lower(arcs).tolist()] == [[2, 2], [4, 4], [0, 0]]


def test_without_arguments_everything_is_read_in_the_order_of_the_ids(mirror):
    net = mirror.net
    mirror.check_solution(net.solve())
    mirror.remove_nodes([1])
    mirror.set_supply([5], [-2])
    mirror.check_solution(net.solve())
    np.testing.assert_array_equal(net.flow(), net.flow(net.arcs()))
    np.testing.assert_array_equal(net.potential(), net.potential(net.nodes()))
    np.testing.assert_array_equal(net.reduced_cost(), net.reduced_cost(net.arcs()))
    assert net.nodes().tolist() == sorted(net.nodes().tolist())
    assert net.arcs().tolist() == sorted(net.arcs().tolist())


def test_a_node_goes_with_its_arcs(mirror):
    gone = [arc for arc, data in mirror.arcs.items() if 4 in (data.tail, data.head)]
    mirror.remove_nodes([4])
    mirror.check_attributes()
    for arc in gone:
        with pytest.raises(InputError):
            mirror.net.cost([arc])


def test_ids_survive_the_removal_of_others(mirror):
    mirror.remove_nodes([0])
    mirror.set_supply([5], [-2])
    mirror.remove_arcs([4])
    mirror.check_attributes()
    mirror.check_solution(mirror.net.solve())


def test_removing_and_adding_again_many_times():
    """Room of removed nodes and arcs is used again: ids do not grow without bound."""
    mirror = from_problem(random_problem(np.random.default_rng(0), 10, 40, negative=0))
    mirror.net.solve()
    hub = min(mirror.supply)
    for _ in range(300):
        new = mirror.add_nodes([1])
        mirror.set_supply([hub], [mirror.supply[hub] - 1])
        mirror.add_arcs([(new[0], hub, 1, 5, 0)])
        mirror.net.solve()
        mirror.set_supply([hub], [mirror.supply[hub] + 1])
        mirror.remove_nodes(new)
    assert max(mirror.add_nodes([0])) < 100
    mirror.check_attributes()


def test_infeasible_then_mended(mirror):
    net = mirror.net
    mirror.check_solution(net.solve())
    mirror.set_arc("capacity", [6, 7, 8, 9, 10], [0, 0, 0, 0, 0])
    flow, potential = net.flow(), net.potential()
    for _ in range(2):
        with pytest.raises(InfeasibleError) as caught:
            net.solve()
        np.testing.assert_array_equal(net.flow(), flow)
        np.testing.assert_array_equal(net.potential(), potential)
        cut = mirror.cut(caught.value)
        oracles.check_cut(mirror.problem(), cut)
        assert cut[:3].any() and not cut[5], "some task is shut in, away from the sink"
        mirror.check_attributes()
    mirror.set_arc("capacity", [6, 7, 8, 9, 10], [1, 1, INF, INF, INF])
    solution = net.solve()
    mirror.check_solution(solution)
    assert solution.cost == 13


def test_unbounded_then_mended(mirror):
    net = mirror.net
    mirror.check_solution(net.solve())
    loop = mirror.add_arcs([(5, 0, INF, -11, 0)])
    with pytest.raises(UnboundedError) as caught:
        net.solve()
    assert sorted(caught.value.cycle.tolist()) == [8, loop[0]]
    mirror.set_arc("cost", loop, [-9])
    mirror.check_solution(net.solve())


def test_unbalanced_supplies_are_infeasible_until_balanced(mirror):
    mirror.set_supply([5], [-2])
    with pytest.raises(InfeasibleError) as caught:
        mirror.net.solve()
    assert caught.value.cut.all()
    mirror.set_supply([5], [-4])
    with pytest.raises(InfeasibleError) as caught:
        mirror.net.solve()
    assert not caught.value.cut.any()
    mirror.set_supply([5], [-3])
    mirror.check_solution(mirror.net.solve())


# ---------------------------------------------------------------------------------------------- bad input


BAD_CALLS = [
    pytest.param(lambda n: n.add_nodes(-1), ["-1"], id="negative count"),
    pytest.param(lambda n: n.add_nodes([1, 0.5]), ["supply[1]", "0.5"], id="fraction"),
    pytest.param(lambda n: n.add_nodes([1, float("nan")]), ["supply[1]", "nan"], id="NaN"),
    pytest.param(lambda n: n.add_nodes([[1]]), ["supply"], id="supply dimensions"),
    pytest.param(lambda n: n.add_arcs([0, 6], [1, 1], 1, 1), ["tail[1]", "6"], id="tail unknown"),
    pytest.param(lambda n: n.add_arcs([0, 1], [1, -1], 1, 1), ["head[1]", "-1"], id="head negative"),
    pytest.param(lambda n: n.add_arcs([0, 1], [1], 1, 1), ["head"], id="lengths differ"),
    pytest.param(lambda n: n.add_arcs([0, 1], [1, 2], [1], 1), ["capacity"], id="capacity length"),
    pytest.param(lambda n: n.add_arcs([0, 1], [1, 2], [1, -2], 1), ["capacity[1]", "-2"], id="negative capacity"),
    pytest.param(lambda n: n.add_arcs([0, 1], [1, 2], 1, [1, 1.5]), ["cost[1]", "1.5"], id="cost fraction"),
    pytest.param(lambda n: n.add_arcs([0, 1], [1, 2], 2, 1, lower=[0, 3]), ["lower[1]", "3"], id="lower above"),
    pytest.param(lambda n: n.set_supply([0, 9], [1, 1]), ["nodes[1]", "9"], id="supply of unknown node"),
    pytest.param(lambda n: n.set_supply([0, 1], [1]), ["supply"], id="supply length"),
    pytest.param(lambda n: n.set_capacity([0, 99], [1, 1]), ["arcs[1]", "99"], id="capacity of unknown arc"),
    pytest.param(lambda n: n.set_capacity([0, 1], [5, -1]), ["capacity[1]", "-1"], id="set negative capacity"),
    pytest.param(lambda n: n.set_capacity([2, 11], [5, 0]), ["capacity[1]", "0"], id="capacity below lower"),
    pytest.param(lambda n: n.set_lower([0, 1], [0, 2]), ["lower[1]", "2"], id="set lower above capacity"),
    pytest.param(lambda n: n.set_cost([0, 1], [5, float("nan")]), ["cost[1]", "nan"], id="set cost NaN"),
    pytest.param(lambda n: n.set_cost([0, -1], [5, 5]), ["arcs[1]", "-1"], id="cost of negative id"),
    pytest.param(lambda n: n.set_cost([0, 0.5], [5, 5]), ["arcs[1]", "0.5"], id="fractional id"),
    pytest.param(lambda n: n.set_cost([0, 12], [5, 5]), ["arcs[1]", "12"], id="cost of removed arc"),
    pytest.param(lambda n: n.set_supply([0, 6], [5, 5]), ["nodes[1]", "6"], id="supply of removed node"),
    pytest.param(lambda n: n.add_arcs([0, 6], [1, 1], 1, 1), ["tail[1]", "6"], id="arc from removed node"),
    pytest.param(lambda n: n.remove_arcs([0, 12]), ["arcs[1]", "12"], id="remove removed arc"),
    pytest.param(lambda n: n.remove_nodes([0, 6]), ["nodes[1]", "6"], id="remove removed node"),
    pytest.param(lambda n: n.remove_arcs([3, 0, 3]), ["arcs[2]", "3"], id="remove arc twice"),
    pytest.param(lambda n: n.remove_nodes([3, 0, 3]), ["nodes[2]", "3"], id="remove node twice"),
    pytest.param(lambda n: n.flow([0, 99]), ["arcs[1]", "99"], id="read unknown arc"),
    pytest.param(lambda n: n.potential([0, 99]), ["nodes[1]", "99"], id="read unknown node"),
    pytest.param(lambda n: n.reduced_cost([12]), ["arcs[0]", "12"], id="read removed arc"),
    pytest.param(lambda n: n.solve(algorithm="fastest"), ["algorithm", "fastest"], id="algorithm"),
    pytest.param(lambda n: n.solve(time_limit=-1), ["time_limit", "-1"], id="time limit"),
    pytest.param(lambda n: n.solve(time_limit="1"), ["time_limit", "'1'"], id="time limit in letters"),
    pytest.param(lambda n: n.solve(algorithm=["auto"]), ["algorithm", "auto"], id="a list of algorithms"),
    pytest.param(lambda n: n.add_nodes(2**70), ["supply", str(2**70)], id="too many nodes"),
]


@pytest.mark.parametrize("solved", [False, True], ids=["unsolved", "solved"])
@pytest.mark.parametrize(("call", "words"), BAD_CALLS)
def test_bad_input_names_argument_and_index_and_changes_nothing(mirror, call, words, solved):
    [with_lower] = mirror.add_arcs([(3, 5, 4, 9, 1)])
    assert with_lower == 11
    [extra] = mirror.add_nodes([0])
    mirror.add_arcs([(extra, 5, 1, 1, 0)])
    mirror.remove_nodes([extra])
    if solved:
        mirror.check_solution(mirror.net.solve())
    before = pickle.dumps(mirror.net)
    with pytest.raises(InputError) as caught:
        call(mirror.net)
    for word in words:
        assert word in str(caught.value)
    mirror.check_attributes()
    assert pickle.dumps(mirror.net) == before
    mirror.check_solution(mirror.net.solve())


# ------------------------------------------------------------------------------------- copies and pickles


@pytest.mark.parametrize("duplicate", [FlowNetwork.copy, lambda net: pickle.loads(pickle.dumps(net))])
def test_a_copy_is_independent_and_warm(duplicate):
    mirror = from_problem(random_problem(np.random.default_rng(5), 60, 400))
    mirror.check_solution(mirror.net.solve())
    flow = mirror.net.flow()
    twin = duplicate(mirror.net)
    np.testing.assert_array_equal(twin.flow(), flow)
    np.testing.assert_array_equal(twin.potential(), mirror.net.potential())
    assert twin.solve().changed.tolist() == [], "a warm solve of an unchanged copy changes nothing"
    arcs = twin.arcs()
    twin.set_cost(arcs, twin.cost(arcs) + 1)
    twin.solve()
    mirror.check_attributes()
    np.testing.assert_array_equal(mirror.net.flow(), flow)


@pytest.mark.parametrize("duplicate", [FlowNetwork.copy, lambda net: pickle.loads(pickle.dumps(net))])
def test_a_copy_with_pending_changes_solves_alike(duplicate):
    mirror = from_problem(random_problem(np.random.default_rng(6), 60, 400))
    mirror.check_solution(mirror.net.solve())
    arcs = mirror.arc_ids()[:20].tolist()
    mirror.set_arc("cost", arcs, [-5] * 20)
    mirror.remove_arcs(mirror.arc_ids()[100:110].tolist())
    twin = duplicate(mirror.net)
    here, there = _outcome(mirror.net), _outcome(twin)
    assert here[0] == there[0]
    for ours, theirs in zip(here[1:], there[1:], strict=True):
        np.testing.assert_array_equal(ours, theirs)


def _outcome(net):
    try:
        return net.solve().cost, net.flow(), net.potential()
    except InfeasibleError as error:
        return "infeasible", error.cut


# --------------------------------------------------------------------- threads and time limits


def _large_network(seed: int) -> FlowNetwork:
    return network(random_problem(np.random.default_rng(seed), 600, 6000, max_cost=10**4, max_flow=50))


def test_a_second_thread_cannot_change_a_network_inside_of_solve():
    """Concurrent calls on one network are refused: the model takes over only those that were not."""
    mirror = from_problem(random_problem(np.random.default_rng(2), 2000, 20000))
    arc = mirror.arc_ids()[:1].tolist()
    thread = threading.Thread(target=mirror.net.solve)
    thread.start()
    for cost in range(100):
        with contextlib.suppress(ConcurrentUseError):
            mirror.set_arc("cost", arc, [cost])
    thread.join()
    mirror.net.solve()
    mirror.check_attributes()
    oracles.check_optimal(
        mirror.problem(), mirror.net.flow(), mirror.net.solve().cost, mirror.net.potential()
    )  # fmt: skip


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_time_limit_that_passes_at_once(algorithm):
    """No time at all: a feasible flow and how far it may be from the optimum, or a named error; then it can be solved."""
    net = _large_network(9)
    try:
        solution = net.solve(algorithm=algorithm, time_limit=1e-9)
    except TimeLimitError:
        pass
    else:
        assert 0 <= solution.cost - _large_network(9).solve().cost <= solution.stats["gap"]
    assert net.solve(algorithm=algorithm).cost == _large_network(9).solve().cost
