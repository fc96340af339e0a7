"""The outcome of a round as values: what its transaction has changed, and why the other tasks wait."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field

import numpy as np

from flowsched.builder.builder import Builder
from flowsched.cluster.limits import SPREAD
from flowsched.cluster.records import Before, JobRecord, TaskClass, TaskRecord
from flowsched.cluster.shapes import Shapes
from flowsched.rounds.admission import AdmissionCheck
from flowsched.rounds.reasons import Verdict, Waiting, judge
from flowsched.rounds.values import (
    Delta,
    Migrate,
    Place,
    Preempt,
    Preemption,
    Reason,
    ReasonCode,
    Round,
    RoundStats,
    Share,
)

__all__ = ["Outcome", "Verdicts", "outcome"]


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
        self, now: float, waiting: Mapping[Hashable, Reason], stats: RoundStats, shares: Mapping[Hashable, Share]
    ) -> Round:
        """Return all of it as one value."""
        return Round(
            now, self.placements, self.preemptions, self.migrations, self.devices, waiting,
            (*self.preempts, *self.migrates, *self.places), stats, shares, turns=self.turns, gangs=self.gangs,
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


class Verdicts:
    """Reasons why tasks wait; a verdict is kept as long as it holds.

    Parameters
    ----------
    builder : Builder
    """

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.cluster = builder.cluster
        self._known: dict[TaskClass, Verdict] = {}

    def waiting(self, had_room: set[int], late: bool, short: Collection[JobRecord]) -> Waiting:
        """Return the tasks that wait at the end of the transaction, and why."""
        groups: list[tuple[tuple[Hashable, ...], Verdict, float | None]] = []
        before, self._known = self._known, {}
        outbid = [cls for cls in self.cluster.waiting if late or cls.index in had_room]
        whys = dict(zip(outbid, self.builder.classes.blockers_now([cls.index for cls in outbid]), strict=True))
        prices = {} if late else self.builder.prices([group for cls in outbid for group in self.cluster.waiting[cls]])
        for cls, members in self.cluster.waiting.items():
            if cls not in whys:
                verdict = self._known[cls] = self._verdict(cls, before.get(cls))
                groups.append((self.cluster.waiting_ids(cls), verdict, None))
                continue
            code = ReasonCode.OUTBID if cls.index in had_room and not (whys[cls] == SPREAD).any() else None
            if (whys[cls] == 0).any():
                code = ReasonCode.TIME_LIMIT if late else ReasonCode.WAIT_CHEAPER
            verdict = judge(self.cluster.inventory, cls, whys[cls], code)
            at_share, too_few = (
                judge(self.cluster.inventory, cls, whys[cls], c) for c in (ReasonCode.SHARE, ReasonCode.GANG_SHORT)
            )
            for group in members:
                held = not late and self.builder.shares.full(group.job)
                ids = tuple(task.id for task in group.waiting)
                why = too_few if group.job in short else at_share if held else verdict
                groups.append((ids, why, prices.get(group)))
        return Waiting(groups)

    def _verdict(self, cls: TaskClass, known: Verdict | None) -> Verdict:
        """Return the verdict for a class that never had room: the known one, unless something has changed for it."""
        why, shapes = self.builder.classes.why(cls.index), self.cluster.inventory.shapes()
        blockers = self.cluster.inventory.blockers
        if known is not None and (known.why is why and known.shapes is shapes and known.blockers is blockers):
            return known
        return judge(self.cluster.inventory, cls, why)

    def explain(self, task: Hashable, machine: Hashable | None = None) -> Reason:
        """Explain why a task waits, see `Scheduler.explain`."""
        record = self.cluster.task(task)
        row = None if machine is None else self.cluster.machine(machine).row
        if record.place is not None and row in (None, record.place.row):
            return Reason(ReasonCode.RUNNING)
        inventory, cls = self.cluster.inventory, record.group.cls
        shapes = inventory.shapes()
        if row is None:
            (why,) = self.builder.classes.blockers_now([cls.index])
        else:
            shapes = Shapes(shapes.of_row[[row]], shapes.keys)
            why = inventory.room(np.array([cls.index]), np.array([row]))[1][0]
        code = None
        if (why[shapes.of_row >= 0] == 0).any():
            code = ReasonCode.SHARE if self.builder.shares.full(record.group.job) else ReasonCode.PENDING
            code = ReasonCode.GANG_SHORT if record.group in self.builder.left_out else code
        return judge(inventory, cls, why, code, shapes).reason()
