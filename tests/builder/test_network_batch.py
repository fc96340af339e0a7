"""The way into the network: numbers that wait, counts, and ids that never outlive their arcs."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from effort import effort
from lives import POLICIES, Life, operations

import flowsched as fs
from flowsched import _faults
from flowsched.builder.batch import NetworkBatch
from flowsched.cluster import state


def line(batch: NetworkBatch) -> np.ndarray:
    """Three nodes in a line; their two arcs."""
    nodes = batch.add_nodes(3)
    return batch.add_arcs(nodes[:2], nodes[1:], 1, 0)


def test_single_numbers_wait_and_count_once_each() -> None:
    network = fs.FlowNetwork()
    batch = NetworkBatch(network)
    arcs = line(batch)
    assert batch.count == 5
    batch.set_capacity(int(arcs[0]), 7)
    batch.set_capacity(int(arcs[0]), 8)
    batch.set_cost(int(arcs[1]), 9)
    assert network.capacity().tolist() == [1, 1]
    assert network.cost().tolist() == [0, 0]
    batch.flush()
    assert network.capacity().tolist() == [8, 1]
    assert network.cost().tolist() == [0, 9]
    assert batch.count == 5 + 2, "the number that was sent, not the one before it"
    batch.flush()
    assert batch.count == 5 + 2


def test_an_array_of_numbers_comes_after_those_that_wait() -> None:
    network = fs.FlowNetwork()
    batch = NetworkBatch(network)
    arcs = line(batch)
    batch.set_capacity(int(arcs[0]), 7)
    batch.set_capacities(arcs[:1], np.array([6]))
    batch.flush()
    assert network.capacity().tolist() == [6, 1]


class Recorder:
    """A network that records the calls it gets."""

    def __init__(self) -> None:
        self._target, self.calls = self, []

    def __getattr__(self, name: str) -> object:
        return lambda ids, values: self.calls.append((name, ids.tolist(), values.tolist()))


def test_numbers_that_wait_go_in_the_order_of_their_ids() -> None:
    recorder = Recorder()
    batch = NetworkBatch(recorder)
    for arc, cost in ((5, 1), (2, 7), (3, -(2**62)), (5, 4)):
        batch.set_cost(arc, cost)
    batch.set_supply(9, 1)
    batch.set_costs(np.array([9, 1]), np.array([10, 2]))
    batch.set_capacities([4, 0], [8, 8])
    batch.flush()
    assert recorder.calls == [
        ("set_cost", [2, 3, 5, 9, 1], [7, -(2**62), 4, 10, 2]),
        ("set_capacity", [4, 0], [8, 8]),
        ("set_supply", [9], [1]),
    ]
    assert batch.count == 8
    batch.set_cost(1, 2**63)
    for _ in range(2):  # it still waits
        with pytest.raises(OverflowError):
            batch.flush()
    with pytest.raises(ValueError, match="lengths"):
        batch.set_capacities([1, 2], [3])


@pytest.mark.parametrize("slack", [False, True])
@pytest.mark.parametrize("seed", range(effort(3, 12)))
def test_changes_by_lists_are_those_by_arrays(seed: int, slack: bool) -> None:
    """Ids, flows and potentials are the same, also where partial solves keep a slack in the network."""
    random = Random(seed)
    one, other = fs.FlowNetwork(), fs.FlowNetwork()
    batch = NetworkBatch(one)
    arcs: list[int] = []
    count = 0
    for _ in range(40):
        nodes = one.nodes().tolist()
        way = random.choice(["nodes", "arcs", "arcs", "capacity", "cost", "supply", "solve"])
        k = random.choice([0, 1, 3, 40])
        if way == "nodes":
            assert batch.new_nodes(k) == other.add_nodes([0] * k).tolist()
        elif way == "arcs" and nodes:
            tail, head = (random.choices(nodes, k=k) for _ in range(2))
            capacity, cost = random.choice([3, [random.randrange(9) for _ in tail]]), random.randrange(-5, 9)
            made = batch.new_arcs(tail, head, capacity, cost)
            assert made == other.add_arcs(tail, head, capacity, cost).tolist()
            arcs += made
        elif way in ("capacity", "cost", "supply") and arcs:
            ids = sorted(random.sample(nodes if way == "supply" else arcs, min(k, len(nodes), len(arcs))))
            values = [random.randrange(9) for _ in ids]
            if way == "supply":
                values = [random.choice([-1, 1]) if slack else 0 for _ in ids]
            for id, value in random.sample(list(zip(ids, values, strict=True)), len(ids)):
                getattr(batch, f"set_{way}")(id, value)
            batch.flush()
            getattr(other, f"set_{way}")(np.array(ids, np.int64), np.array(values, np.int64))
        elif way == "solve":
            answers = [network.solve(partial=slack) for network in (one, other)]
            assert answers[0].cost == answers[1].cost
            assert answers[0].changed.tolist() == answers[1].changed.tolist()
            count += 1
        assert one.nodes().tolist() == other.nodes().tolist()
        assert one.arcs().tolist() == other.arcs().tolist()
    assert count
    assert one.flow().tolist() == other.flow().tolist()
    assert one.capacity().tolist() == other.capacity().tolist()


@pytest.mark.skipif(_faults.fail_at(0, 0) is None, reason="built without fault points (FLOWSCHED_FAULTS=1)")
def test_a_change_that_runs_out_of_memory_has_changed_nothing() -> None:
    """Each allocation fails once; done again, the change is that of another batch, which was spared."""
    batches = [NetworkBatch(fs.FlowNetwork()) for _ in range(2)]
    found = 0

    def each(change: Callable[[NetworkBatch], object]) -> list[int]:
        nonlocal found
        failing, spared = batches
        for n in range(1, 99):
            _faults.fail_at(n, 0)
            try:
                made = change(failing)
                break
            except MemoryError:
                found += 1
            finally:
                _faults.fail_at(0, 0)
        assert change(spared) == made
        for name in ("nodes", "arcs", "capacity", "cost"):
            assert getattr(failing._network, name)().tolist() == getattr(spared._network, name)().tolist()
        return made if isinstance(made, list) else []

    nodes = each(lambda batch: batch.new_nodes(30))
    arcs = each(lambda batch: batch.new_arcs(nodes[:-1], nodes[1:], [3] * 29, 1))
    for batch in batches:
        batch.set_capacity(arcs[0], 7)
    each(lambda batch: batch.set_capacities(4 * arcs, 4 * list(range(29))))
    each(lambda batch: batch.set_costs(np.array(arcs), np.arange(29)))
    assert batches[0].count == batches[1].count == 30 + 29 + 1 + 4 * 29 + 29
    assert found > 5


@pytest.mark.parametrize("slack", [False, True])
def test_a_solve_is_that_of_the_network(slack: bool) -> None:
    one, other = fs.FlowNetwork(), fs.FlowNetwork()
    for network in (one, other):
        batch = NetworkBatch(network)
        line(batch)
        network.set_supply([0, 2], [2, -2])
        if slack:
            assert network.solve(partial=True).unshipped.tolist()[:3] == [1, 0, -1]
    errors = []
    for solve in (one.solve, lambda: NetworkBatch(other).solve(-1.0)):
        with pytest.raises(fs.InfeasibleError, match="arc") as caught:
            solve()
        errors.append(
            (str(caught.value), caught.value.cut.tolist(), caught.value.shortfall, caught.value.arcs.tolist())
        )
    assert errors[0] == errors[1]
    for network in (one, other):
        network.set_capacity([0, 1], 2)
        network.set_cost([0, 1], [3, 4])
    expected, (cost, changed, gap) = one.solve(), NetworkBatch(other).solve(-1.0)
    assert (cost, changed.tolist(), gap) == (expected.cost, expected.changed.tolist(), expected.stats["gap"])


def test_what_waits_is_part_of_an_image() -> None:
    network = fs.FlowNetwork()
    batch = NetworkBatch(network)
    arcs = line(batch).tolist()
    batch.set_cost(arcs[1], 5)
    other = NetworkBatch.__new__(NetworkBatch)
    other.__setstate__(batch.__getstate__())
    other.flush()
    assert network.cost().tolist() == [0, 5]


def test_no_number_waits_for_an_id_that_is_assigned_again() -> None:
    """The id of the arc that goes is that of the arc that comes."""
    network = fs.FlowNetwork()
    batch = NetworkBatch(network)
    arcs = line(batch)
    batch.set_cost(int(arcs[0]), 9)
    batch.remove_arcs(arcs[:1])
    again = batch.add_arcs(network.nodes()[:1], network.nodes()[2:], 1, 0)
    assert again.tolist() == arcs[:1].tolist(), "else this shows nothing"
    batch.flush()
    assert network.cost().tolist() == [0, 0]


@pytest.mark.parametrize("seed", range(2 * len(POLICIES)))
def test_every_arc_has_one_owner_that_knows_its_ends(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "IDLE_CLASSES", seed % 3)
    sched = fs.Scheduler(POLICIES[seed % len(POLICIES)]())
    checks = 0
    for done in operations(seed, sched, 120, life=Life(seed)):
        if done == "schedule":
            sched.builder.check_ids()
            checks += 1
    assert checks > 10


def small() -> fs.Scheduler:
    sched = fs.Scheduler(fs.Policy(fairness=fs.Fairness(fs.MaxMin())))
    sched.apply(fs.MachineAdded("m", {"cpu": 2}), fs.JobSubmitted("j", [fs.Task(i, {"cpu": 1}) for i in range(3)]))
    sched.commit(sched.schedule(0.0))
    sched.schedule(1.0)
    sched.builder.check_ids()
    return sched


def test_the_check_sees_an_id_that_outlived_its_arc() -> None:
    sched = small()
    sched.builder.batch.remove_arcs(sched.network.arcs()[-1:])
    with pytest.raises(AssertionError, match="outlives"):
        sched.builder.check_ids()


def test_the_check_sees_an_id_that_addresses_another_arc() -> None:
    sched = small()
    network, batch = sched.network, sched.builder.batch
    last = network.arcs()[-1:]
    tail, head = network.tail(last), network.head(last)
    batch.remove_arcs(last)
    assert batch.add_arcs(head, tail, 1, 0).tolist() == last.tolist(), "else this shows nothing"
    with pytest.raises(AssertionError, match="another tail"):
        sched.builder.check_ids()


def test_the_check_sees_an_arc_without_an_owner() -> None:
    sched = small()
    sched.builder.batch.add_arcs(sched.network.nodes()[:1], sched.network.nodes()[1:2], 1, 0)
    with pytest.raises(AssertionError, match="no owner"):
        sched.builder.check_ids()
