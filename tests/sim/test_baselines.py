"""Baselines: whose turn it is."""

from __future__ import annotations

from collections.abc import Sequence

import flowsched as fs
from flowsched.sim.baselines import Greedy, capacity, drf, fair, fifo, sjf
from flowsched.sim.lines import Queue

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


def waits_of(scheduler: Greedy) -> list[float]:
    """A machine of 4 cores: 3 are in use for 10 s, then come tasks of 4 and 1 cores, and one of 1 that takes longer."""
    jobs = [(3, 10.0), (4, 5.0), (1, 7.0), (1, 30.0)]
    arrivals = [
        fs.sim.Arrival(float(i), fs.JobSubmitted(i, [fs.Task(i, (cpu, 0), duration=seconds)]), (seconds,))
        for i, (cpu, seconds) in enumerate(jobs)
    ]
    work = fs.sim.Workload("small", arrivals, [fs.Machine("m", {"cpu": 4, "mem": 8})], resources=NAMES)
    return fs.sim.Simulation(scheduler, work).run().waits.tolist()


def test_the_first_in_line_blocks_the_others_but_for_those_that_do_not_delay_it() -> None:
    assert waits_of(Queue(False, NAMES)) == [0, 9, 13, 12]
    assert waits_of(Queue(True, NAMES)) == [0, 9, 0, 12], "it ends at 9, in time for 10"
    assert waits_of(Greedy(fifo, NAMES)) == [0, 38, 0, 6]
    assert waits_of(Greedy(sjf, NAMES)) == [0, 38, 0, 6]
