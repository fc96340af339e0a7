"""Baselines: whose turn it is."""

from __future__ import annotations

from collections.abc import Sequence

import flowsched as fs
from flowsched.sim.baselines import Greedy, capacity, drf, fair, fifo

NAMES = ("cpu", "mem")


def order_of(scheduler: Greedy, sizes: Sequence[tuple[str, float, float, int]]) -> list[str]:
    """The users in the order in which their tasks start, on a machine with room for all of them at first."""
    scheduler.apply(fs.MachineAdded("m", {"cpu": 8, "mem": 8}))
    for j, (user, cpu, mem, count) in enumerate(sizes):
        tasks = [fs.Task(f"{user}{j}.{i}", {"cpu": cpu, "mem": mem}) for i in range(count)]
        scheduler.apply(fs.JobSubmitted(j, tasks, user=user))
    decided = scheduler.schedule(0.0)
    assert len(scheduler.commit(decided).accepted) == len(decided.placements)
    return [str(delta.task)[0] for delta in decided.deltas]


def test_orders() -> None:
    work = [("a", 2, 1, 3), ("b", 1, 1, 3)]
    assert order_of(Greedy(fifo, NAMES), work) == list("aaabb")
    assert order_of(Greedy(capacity({}, {"a": 3, "b": 1}), NAMES), work) == list("abaab")
    assert order_of(Greedy(fair, NAMES), work) == list("ababa")
    assert order_of(Greedy(drf, NAMES), work) == list("abbab")
