"""A large cluster with few tasks: an event is repaired, however cheap it may seem to place all tasks again."""

from __future__ import annotations

from array import array

import pytest

import flowsched as fs
from flowsched.builder.batch import NetworkBatch
from flowsched.sim import Simulation, Workload


def test_an_event_of_a_nearly_empty_cluster_is_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    augmented: list[int] = []

    def counted(batch: NetworkBatch, seconds: float) -> tuple[int, array[int], float]:
        found = batch._network.solve()
        augmented.append(found.stats["augmentations"])
        return found.cost, array("q", found.changed.tolist()), found.stats["gap"]

    monkeypatch.setattr(NetworkBatch, "solve", counted)
    work = Workload.model(tasks=200, scale=1, load=0.02)
    metrics = Simulation(fs.Scheduler(fs.Policy(preemption=None), resources=work.resources), work).run()
    assert (
        metrics.series["running"].mean() > 20
    )  # which a solve from scratch places again, at the price of a reset of 100,000 arcs
    assert sum(count > 4 for count in augmented) < len(augmented) / 10
