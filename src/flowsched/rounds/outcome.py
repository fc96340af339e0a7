"""Stops and migrations of a round as values."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from flowsched.cluster.records import Starts, TaskRecord
from flowsched.rounds.admission import AdmissionCheck
from flowsched.rounds.values import Delta, Migrate, Preempt, Preemption, deltas_of, devices_of, turns_of

__all__ = ["Stops", "stops_of"]


@dataclass(slots=True)
class Stops:
    """Collected stops and migrations of a round.

    Attributes
    ----------
    preemptions, migrations
        See `Round`.
    preempts, migrates : list of Delta
    turns : dict of task to int
        Turns before the round.
    devices : dict of task to tuple of int
        Devices of the migrating tasks.
    """

    preemptions: dict[Hashable, Preemption] = field(default_factory=dict)
    migrations: dict[Hashable, tuple[Hashable, Hashable]] = field(default_factory=dict)
    preempts: list[Delta] = field(default_factory=list)
    migrates: list[Delta] = field(default_factory=list)
    turns: dict[Hashable, int] = field(default_factory=dict)
    devices: dict[Hashable, tuple[int, ...]] = field(default_factory=dict)

    def attributes(self, starts: Starts) -> dict[str, Any]:
        """Return the attributes of a `Round` with these stops and starts."""
        return {
            "preemptions": self.preemptions, "migrations": self.migrations,
            "deltas": (*self.preempts, *self.migrates, *deltas_of(starts)),
            "devices": {**devices_of(starts), **self.devices}, "turns": {**turns_of(starts), **self.turns},
        }  # fmt: skip


def stops_of(check: AdmissionCheck, tasks: Sequence[TaskRecord]) -> Stops:
    """Collect the stops and moves of tasks in the transaction."""
    policy, by_row, before = check.builder.policy, check.cluster.by_row, check.transaction.before
    price = policy.preemption.price if policy.preemption else 0.0
    found = Stops()
    for task in tasks:
        was = before[task].place
        assert was is not None, "it ran before"
        old, cause = by_row[was.row].id, check.evicted_for[task].id
        found.turns[task.id] = before[task].turn
        if task.row < 0:
            lost = policy.waiting.bucket(check.transaction.now - was.since)
            found.preemptions[task.id] = Preemption(old, cause, price * (1 + lost))
            found.preempts.append(Preempt(task.id, old, cause))
        else:
            machine = by_row[task.row].id
            found.migrations[task.id], found.devices[task.id] = (old, machine), task.devices
            found.migrates.append(Migrate(task.id, old, machine, task.devices, cause))
    return found
