"""Outcome of a round as values: the changes of its transaction."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flowsched.boundary.validate import frozen
from flowsched.cluster.records import TaskRecord, moved
from flowsched.cluster.state import Moment
from flowsched.rounds.admission import AdmissionCheck
from flowsched.rounds.values import (
    Delta,
    Migrate,
    Preempt,
    Preemption,
    Reason,
    Round,
    RoundStats,
    Share,
    Starts,
)

__all__ = ["Stops", "outcome", "round_of"]


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


def outcome(check: AdmissionCheck) -> tuple[Starts, Stops | None]:
    """Collect the starts, and the stops and moves if there are any, of the transaction."""
    starts = Starts()
    others = moved(check.transaction.before, check.cluster.by_row, starts)
    return starts, _stops(check, others) if others else None


def _stops(check: AdmissionCheck, tasks: Sequence[TaskRecord]) -> Stops:
    """Collect the stops and moves."""
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


def round_of(
    starts: Starts,
    stops: Stops | None,
    now: float,
    waiting: Mapping[Hashable, Reason],
    stats: RoundStats,
    shares: Mapping[Hashable, Share],
    again_at: float,
    moment: Moment,
) -> Round:
    """Return the whole outcome as one value."""
    starts.moment = moment
    attributes: dict[str, Any] = {
        "now": now, "placements": starts.placements, "preemptions": {}, "migrations": {}, "waiting": waiting,
        "stats": stats, "shares": shares, "gangs": starts.gangs, "again_at": again_at,
    }  # fmt: skip
    if stops is None:
        attributes["_starts"] = starts
    else:
        attributes["preemptions"], attributes["migrations"] = stops.preemptions, stops.migrations
        attributes["deltas"] = (*stops.preempts, *stops.migrates, *starts.deltas())
        attributes["devices"] = {**starts.devices_of(), **stops.devices}
        attributes["turns"] = {**starts.turns_of(), **stops.turns}
    return frozen(Round, attributes)
