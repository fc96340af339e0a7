"""The outcome of a round as values: what its transaction has changed."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

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

_new, _set = object.__new__, object.__setattr__


class Outcome:
    """Parts of a round as they are collected."""

    __slots__ = (
        "devices",
        "gangs",
        "migrates",
        "migrations",
        "placements",
        "places",
        "preemptions",
        "preempts",
        "turns",
    )

    def __init__(self) -> None:
        self.placements: dict[Hashable, Hashable] = {}
        self.preemptions: dict[Hashable, Preemption] = {}
        self.migrations: dict[Hashable, tuple[Hashable, Hashable]] = {}
        self.devices: dict[Hashable, tuple[int, ...]] = {}
        self.turns: dict[Hashable, int] = {}
        self.gangs: dict[Hashable, int] = {}
        self.preempts: list[Delta] = []
        self.migrates: list[Delta] = []
        self.places: list[Delta] = []

    def round(
        self,
        now: float,
        waiting: Mapping[Hashable, Reason],
        stats: RoundStats,
        shares: Mapping[Hashable, Share],
        again_at: float,
    ) -> Round:
        """Return all of it as one value."""
        made: Round = _new(Round)  # as its ``__init__`` does, at once
        _set(made, "__dict__", {
            "now": now, "placements": self.placements, "preemptions": self.preemptions, "migrations": self.migrations,
            "devices": self.devices, "waiting": waiting, "deltas": (*self.preempts, *self.migrates, *self.places), "stats": stats,
            "shares": shares, "turns": self.turns, "gangs": self.gangs, "again_at": again_at,
        })  # fmt: skip
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
