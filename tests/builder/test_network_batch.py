"""The way into the network: numbers that wait, counts, and ids that never outlive their arcs."""

from __future__ import annotations

import numpy as np
import pytest
from lives import POLICIES, Life, operations

import flowsched as fs
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


def test_no_number_waits_for_an_id_that_is_dealt_anew() -> None:
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
    with pytest.raises(AssertionError, match="outlived"):
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
