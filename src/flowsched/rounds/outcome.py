"""The outcome of a round as values: what its transaction has changed."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from flowsched.cluster._records import moved
from flowsched.cluster.records import TaskRecord
from flowsched.rounds.admission import AdmissionCheck
from flowsched.rounds.values import (
    Delta,
    Migrate,
    Moment,
    Preempt,
    Preemption,
    Reason,
    Round,
    RoundStats,
    Share,
    Starts,
)

__all__ = ["Outcome", "outcome"]

_new, _set = object.__new__, object.__setattr__


class Outcome:
    """Parts of a round as they are collected.

    Attributes
    ----------
    tasks : list of TaskRecord
    machines : list of hashable
    devices : list of tuple of int
    turns : list of int
        Tasks that start, where they do, and their turns before the round.
    others : dict of task to int
        Turns before the round of the tasks that stop or migrate.
    moved : dict of task to tuple of int
        Devices of those that migrate.
    """

    # As they are where no task stops.
    others: Mapping[Hashable, int] = MappingProxyType({})
    moved: Mapping[Hashable, tuple[int, ...]] = MappingProxyType({})
    preempts: Sequence[Delta] = ()
    migrates: Sequence[Delta] = ()

    def __init__(self) -> None:
        self.placements: dict[Hashable, Hashable] = {}
        self.preemptions: dict[Hashable, Preemption] = {}
        self.migrations: dict[Hashable, tuple[Hashable, Hashable]] = {}
        self.tasks: list[TaskRecord] = []
        self.machines: list[Hashable] = []
        self.devices: list[tuple[int, ...]] = []
        self.turns: list[int] = []
        self.gangs: dict[Hashable, int] = {}

    def round(
        self,
        now: float,
        waiting: Mapping[Hashable, Reason],
        stats: RoundStats,
        shares: Mapping[Hashable, Share],
        again_at: float,
        moment: Moment,
    ) -> Round:
        """Return all of it as one value."""
        made: Round = _new(Round)  # as its ``__init__`` does, at once
        starts = Starts(self.tasks, self.machines, self.devices, self.turns, moment)
        told: dict[str, Any] = {
            "now": now, "placements": self.placements, "preemptions": self.preemptions, "migrations": self.migrations,
            "waiting": waiting, "stats": stats, "shares": shares, "gangs": self.gangs, "again_at": again_at,
        }  # fmt: skip
        if self.others:
            told["deltas"] = (*self.preempts, *self.migrates, *starts.deltas())
            told["devices"] = {**starts.devices_of(), **self.moved}
            told["turns"] = {**starts.turns_of(), **self.others}
        else:
            told["_starts"] = starts
        _set(made, "__dict__", told)
        return made


def outcome(check: AdmissionCheck) -> Outcome:
    """Collect the tasks that start, stop and move if the transaction becomes real."""
    out = Outcome()
    others = moved(check.transaction.before, check.cluster.by_row, out)
    if others:
        _stop(out, check, others)
    return out


def _stop(out: Outcome, check: AdmissionCheck, tasks: Sequence[TaskRecord]) -> None:
    """Collect the tasks that stop and move."""
    policy, by_row, before = check.builder.policy, check.cluster.by_row, check.transaction.before
    price = policy.preemption.price if policy.preemption else 0.0
    turns: dict[Hashable, int] = {}
    devices: dict[Hashable, tuple[int, ...]] = {}
    preempts: list[Delta] = []
    migrates: list[Delta] = []
    for task in tasks:
        was = before[task].place
        assert was is not None, "it ran before, or it would have started"
        old, cause = by_row[was.row].id, check.evicted_for[task].id
        turns[task.id] = before[task].turn
        if task.row < 0:
            lost = policy.waiting.bucket(check.transaction.now - was.since)
            out.preemptions[task.id] = Preemption(old, cause, price * (1 + lost))
            preempts.append(Preempt(task.id, old, cause))
        else:
            machine = by_row[task.row].id
            out.migrations[task.id], devices[task.id] = (old, machine), task.devices
            migrates.append(Migrate(task.id, old, machine, task.devices, cause))
    out.others, out.moved, out.preempts, out.migrates = turns, devices, preempts, migrates
