"""Evictions: where estimates of a machine's tasks fail badly, its youngest task is stopped."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import compress

from flowsched.cluster.records import TaskRecord
from flowsched.fgm.rule import StageRule
from flowsched.rounds.values import Delta, Preempt, Preemption, Reason, ReasonCode, Round

__all__ = ["Evictions"]


class Evictions:
    """Adds evictions to rounds, and carries them out.

    Parameters
    ----------
    rule : StageRule
    """

    def __init__(self, rule: StageRule) -> None:
        self._forecast, self._learner = rule.forecast, rule.learner
        self._cluster = self._forecast.cluster

    def add_to(self, round: Round) -> Round:
        """Return the round with an eviction on each machine that is in trouble."""
        reclaimed = self._reclaim(round)
        if not reclaimed:
            return round
        places = {task.id: self._cluster.by_row[row].id for row, task in reclaimed.items()}
        return replace(
            round,
            preemptions={**round.preemptions, **{t: Preemption(m, None, 0.0) for t, m in places.items()}},
            deltas=(*(Preempt(t, m, None) for t, m in places.items()), *round.deltas),
            turns={**round.turns, **{task.id: task.turn for task in reclaimed.values()}},
            again_at=round.now,
        )

    def _reclaim(self, round: Round) -> dict[int, TaskRecord]:
        """Find the youngest task of each machine in trouble, by row; once per sample."""
        found = {}
        for row in self._learner.suspects:
            record = self._cluster.by_row.get(row)
            if (
                record is not None
                and len(record.tasks) > 1
                and self._forecast.degraded(row, round.now, self._learner.adjustment.degraded)
            ):
                youngest = max(record.tasks, key=lambda task: task.turn)
                if youngest.id not in round.preemptions and youngest.id not in round.migrations:
                    found[row] = youngest
        self._learner.suspects.clear()
        return found

    def carry_out(self, deltas: Sequence[Delta], round: Round) -> tuple[list[Delta], dict[Hashable, Reason]]:
        """Stop tasks, but for those that have moved on since this round; return the deltas, and reasons for the others."""
        accepted: list[Delta] = []
        conflicts: dict[Hashable, Reason] = {}
        for delta in deltas:
            task = self._cluster.tasks.get(delta.task)
            if task is None or task.turn != round.turns[delta.task] or task.place is None:
                conflicts[delta.task] = Reason(ReasonCode.CONFLICT, {"task": {"moved on": 1}})
            else:
                self._stop(task, round.now)
                accepted.append(delta)
        return accepted, conflicts

    def impose(self, deltas: Sequence[Delta], now: float) -> bool:
        """Stop tasks whatever a round says; False if one does not run."""
        for delta in deltas:
            task = self._cluster.tasks.get(delta.task)
            if task is None or task.place is None:
                return False
            self._stop(task, now)
        return True

    def _stop(self, task: TaskRecord, now: float) -> None:
        turn = task.turn
        self._cluster.stop(task, now)
        self._learner.ended(task, turn, None)

    @staticmethod
    def parted(deltas: Sequence[Delta]) -> tuple[tuple[Delta, ...], tuple[Delta, ...]]:
        """Divide deltas into evictions, and those that the scheduler itself has decided."""
        ours = [isinstance(delta, Preempt) and delta.by is None for delta in deltas]
        return tuple(compress(deltas, ours)), tuple(compress(deltas, (not mine for mine in ours)))
