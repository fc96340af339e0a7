"""Rounds: proposals, admission, reasons and commits."""

from flowsched.rounds.values import (
    Commit,
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

__all__ = [
    "Commit",
    "Delta",
    "Migrate",
    "Place",
    "Preempt",
    "Preemption",
    "Reason",
    "ReasonCode",
    "Round",
    "RoundStats",
    "Share",
]
