"""The outcome of a round as values: what its transaction has changed."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from flowsched.cluster.records import Before, TaskRecord
from flowsched.rounds.admission import AdmissionCheck
from flowsched.rounds.values import (
    Delta,
    Migrate,
    Place,
    Preempt,
    Preemption,
    Reason,
    Round,
    RoundStats,
    Share,
)

__all__ = ["Outcome", "outcome"]


@dataclass(slots=True)
class Outcome:
    """Parts of a round as they are collected."""

    placements: dict[Hashable, Hashable] = field(default_factory=dict)
    preemptions: dict[Hashable, Preemption] = field(default_factory=dict)
    migrations: dict[Hashable, tuple[Hashable, Hashable]] = field(default_factory=dict)
    devices: dict[Hashable, tuple[int, ...]] = field(default_factory=dict)
    turns: dict[Hashable, int] = field(default_factory=dict)
    gangs: dict[Hashable, int] = field(default_factory=dict)
    preempts: list[Delta] = field(default_factory=list)
    migrates: list[Delta] = field(default_factory=list)
    places: list[Delta] = field(default_factory=list)

    def round(
        self,
        now: float,
        waiting: Mapping[Hashable, Reason],
        stats: RoundStats,
        shares: Mapping[Hashable, Share],
        again_at: float,
    ) -> Round:
        """Return all of it as one value."""
        return Round(
            now, self.placements, self.preemptions, self.migrations, self.devices, waiting,
            (*self.preempts, *self.migrates, *self.places), stats, shares, turns=self.turns, gangs=self.gangs, again_at=again_at,
        )  # fmt: skip


def outcome(check: AdmissionCheck) -> Outcome:
    """Collect the tasks that start, stop and move if the transaction becomes real."""
    out = Outcome()
    policy, by_row = check.builder.policy, check.cluster.by_row
    price = policy.preemption.price if policy.preemption else 0.0
    for task, before in sorted(check.transaction.before.items(), key=_turn):
        runs, was = task.row >= 0, before.place
        if was is None and runs:
            machine = by_row[task.row].id
            out.placements[task.id] = machine
            if task.group.job.job.gang is not None:
                out.gangs[task.id] = task.group.job.serial
            out.places.append(Place(task.id, machine, task.devices))
        elif was is not None and not runs:
            machine, cause = by_row[was.row].id, check.evicted_for[task].id
            lost = policy.waiting.bucket(check.transaction.now - was.since)
            out.preemptions[task.id] = Preemption(machine, cause, price * (1 + lost))
            out.preempts.append(Preempt(task.id, machine, cause))
        elif was is not None and task.turn != before.turn:
            old, machine = by_row[was.row].id, by_row[task.row].id
            out.migrations[task.id] = (old, machine)
            out.migrates.append(Migrate(task.id, old, machine, task.devices, check.evicted_for[task].id))
        else:
            continue
        out.turns[task.id] = before.turn
        if runs:
            out.devices[task.id] = task.devices
    return out


def _turn(moved: tuple[TaskRecord, Before]) -> int:
    return moved[0].turn
