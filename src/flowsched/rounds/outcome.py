"""The outcome of a round as values: what its transaction has changed."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from flowsched.cluster._records import moved
from flowsched.rounds.admission import AdmissionCheck
from flowsched.rounds.values import (
    KINDS,
    Delta,
    Migrate,
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
        made: Round = object.__new__(Round)  # as its ``__init__`` does, at once
        made.__dict__.update(
            now=now, placements=self.placements, preemptions=self.preemptions, migrations=self.migrations, devices=self.devices,
            waiting=waiting, deltas=(*self.preempts, *self.migrates, *self.places), stats=stats, shares=shares, turns=self.turns,
            gangs=self.gangs, again_at=again_at,
        )  # fmt: skip
        return made


def outcome(check: AdmissionCheck) -> Outcome:
    """Collect the tasks that start, stop and move if the transaction becomes real."""
    out = Outcome()
    policy, by_row = check.builder.policy, check.cluster.by_row
    price = policy.preemption.price if policy.preemption else 0.0
    for task in moved(check.transaction.before, by_row, KINDS, out):
        was = check.transaction.before[task].place
        assert was is not None, "it ran before, or it would have started"
        old, cause = by_row[was.row].id, check.evicted_for[task].id
        if task.row < 0:
            lost = policy.waiting.bucket(check.transaction.now - was.since)
            out.preemptions[task.id] = Preemption(old, cause, price * (1 + lost))
            out.preempts.append(Preempt(task.id, old, cause))
        else:
            machine = by_row[task.row].id
            out.migrations[task.id] = (old, machine)
            out.migrates.append(Migrate(task.id, old, machine, task.devices, cause))
    return out
