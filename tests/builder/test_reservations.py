"""Reservations are the builder's: a round that makes them leaves the cluster as it was."""

from __future__ import annotations

import numpy as np

import flowsched as fs


def starving(policy: fs.Policy) -> fs.Scheduler:
    """Two machines full of small tasks, and a large one that has waited for long."""
    sched = fs.Scheduler(policy, resources=("cpu",))
    sched.apply(*(fs.MachineAdded(f"m{i}", {"cpu": 4}) for i in range(2)))
    sched.apply(fs.JobSubmitted("small", [fs.Task(i, {"cpu": 1}) for i in range(6)]))
    sched.apply(
        *(fs.TaskStarted(i, f"m{i % 2}") for i in range(6)),
        fs.JobSubmitted("large", [fs.Task("x", {"cpu": 4})], time=0.0),
    )
    return sched


def test_a_round_that_keeps_a_machine_writes_nothing_into_the_inventory() -> None:
    sched = starving(fs.Policy(waiting=fs.WaitCost(first=1.0, reserve=1)))
    sched.schedule(0.0)
    inventory = sched.cluster.inventory
    before = {name: array.copy() for name, array in vars(inventory).items() if isinstance(array, np.ndarray)}
    sched.schedule(50.0)
    assert (sched.builder.reservations.held >= 0).sum() == 1
    for name, array in before.items():
        if name != "version":  # counts changes of `room`
            assert np.array_equal(getattr(inventory, name), array), name
    sched.apply(fs.JobSubmitted("late", [fs.Task("y", {"cpu": 1}), fs.Task("z", {"cpu": 1})]))
    reasons = sched.schedule(51.0)
    assert len(reasons.placements) == 1
    (code,) = {reason.code for task, reason in reasons.waiting.items() if task != "x"}
    assert code in (fs.ReasonCode.HELD, fs.ReasonCode.OUTBID)


def test_a_machine_that_is_gone_is_kept_no_more() -> None:
    sched = starving(fs.Policy(waiting=fs.WaitCost(first=1.0, reserve=1)))
    sched.schedule(0.0)
    sched.schedule(50.0)
    held = sched.builder.reservations.held
    (row,) = np.flatnonzero(held >= 0).tolist()
    sched.apply(fs.MachineRemoved(f"m{row}"), fs.MachineAdded("new", {"cpu": 1}))
    sched.schedule(51.0)
    assert sched.builder.reservations.held[row] < 0 or sched.cluster.by_row[row].machine.id != "new"
