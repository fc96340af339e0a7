"""Counts and times of a scheduler's calls, and one line per round in the log "flowsched".

A call adds a few numbers here.  Results that take longer, such as tasks by the reason for their wait, are worked out on
request.

Rule: reading changes nothing that a round depends on, and needs no guard.  So any thread may read at any time, also
during a call.  A number is then the one before or after that call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

import numpy as np

from flowsched.cluster import Cluster
from flowsched.rounds.reasons import Waiting
from flowsched.rounds.values import Commit, Migrate, Place, Preempt, Reason, ReasonCode, Round, RoundStats

__all__ = ["METRICS", "Meter", "Metric", "Metrics", "RoundHook"]

Metrics = dict[str, float | dict[str, float]]
"""Numbers by name; numbers by label where a metric has one."""

RoundHook = Callable[[Round], object]
"""Function that is called with every round of `schedule`, before `schedule` returns."""

LOGGER = logging.getLogger("flowsched")
LOGGER.addHandler(logging.NullHandler())

_LINE = (
    "round now=%s seconds=%.6f update=%.6f solve=%.6f read=%.6f journal=%.6f placed=%d preempted=%d migrated=%d "
    "waiting=%d nodes=%d arcs=%d changes=%d solves=%d gap=%g"
)

_BOUNDS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
_LABELS = (*(f"{bound:g}" for bound in _BOUNDS), "+Inf")
_REASONS = tuple(code.value for code in ReasonCode if code is not ReasonCode.RUNNING)


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of a scheduler.

    Parameters
    ----------
    name : str
        Key in the result of `Scheduler.metrics`.  A counter ends with ``_total``; the name of a time or size has its unit.
    kind : {"counter", "gauge", "histogram"}
    help : str
        Meaning, in a sentence.
    label : str
        Name of the label of several numbers; empty for a single number.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    label: str = ""


METRICS = (
    Metric("rounds_total", "counter", "Rounds decided."),
    Metric("rounds_failed_total", "counter", "Rounds that raised an exception."),
    Metric("events_total", "counter", "Events that have happened to the cluster, those before a recovery included."),
    Metric("events_stale_total", "counter", "Events among them about a former run, which changed nothing."),
    Metric("placements_total", "counter", "Tasks started by commits."),
    Metric("preemptions_total", "counter", "Tasks stopped by commits."),
    Metric("migrations_total", "counter", "Tasks moved by commits."),
    Metric("conflicts_total", "counter", "Tasks whose start, stop or move a commit refused."),
    Metric("solves_total", "counter", "Optimisations of the network."),
    Metric("network_changes_total", "counter", "Nodes and arcs added, removed or altered."),
    Metric("hook_errors_total", "counter", "Exceptions that hooks of on_round raised."),
    Metric("phase_seconds_total", "counter", "Seconds spent, by phase.", "phase"),
    Metric("phase_last_seconds", "gauge", "Seconds of the last round; journal: since the round before.", "phase"),
    Metric("round_seconds", "histogram", "Seconds that a round took.", "le"),
    Metric("round_last_seconds", "gauge", "Seconds that the last round took."),
    Metric("round_gap", "gauge", "Bound on how far the last round is from the optimum, 0 at the optimum."),
    Metric("machines", "gauge", "Machines, those that failed or are drained included."),
    Metric("machines_up", "gauge", "Machines that take tasks."),
    Metric("tasks_running", "gauge", "Tasks that run."),
    Metric("tasks_waiting", "gauge", "Tasks that wait."),
    Metric("waiting_by_reason", "gauge", "Tasks that wait after the last round, by the code of their reason.", "reason"),
    Metric("network_nodes", "gauge", "Nodes of the network at the last round."),
    Metric("network_arcs", "gauge", "Arcs of the network at the last round."),
    Metric("journal_bytes", "gauge", "Length of the journal, 0 without one."),
)  # fmt: skip
"""All metrics of a scheduler, in the order of `Scheduler.metrics`."""


class Meter:
    """Counts of one scheduler since its creation.

    Attributes
    ----------
    journal_seconds : float
        Seconds that records of the journal took up to the last round.
    failed, hook_errors : int
    """

    def __init__(self) -> None:
        self.failed = self.hook_errors = 0
        self.journal_seconds = 0.0
        self._placed = self._preempted = self._migrated = self._refused = 0
        self._solves = self._changes = 0
        self._update = self._solve = self._read = self._seconds = 0.0
        self._stats = RoundStats(0, 0, 0, 0, 0.0, 0.0, 0.0)
        self._last = 0.0, 0.0
        """Seconds of the last round, and of the journal since the round before."""
        self._slower = [0] * len(_LABELS)
        """Number of rounds by the first bound that they do not exceed."""
        self._waiting: Mapping[Hashable, Reason] = {}

    def round(self, round: Round, seconds: float, journal_seconds: float) -> None:
        """Count a round, and log it.

        Parameters
        ----------
        round : Round
        seconds : float
            Time that it took.
        journal_seconds : float
            Time that records of the journal have taken so far.
        """
        stats = self._stats = round.stats
        update, solve, read = stats.seconds_update, stats.seconds_solve, stats.seconds_read
        solves, changes = stats.solves, stats.changes
        self._last = seconds, journal_seconds - self.journal_seconds
        self.journal_seconds = journal_seconds
        self._update += update
        self._solve += solve
        self._read += read
        self._seconds += seconds
        slower = 0
        for bound in _BOUNDS:
            if seconds <= bound:
                break
            slower += 1
        self._slower[slower] += 1
        self._solves += solves
        self._changes += changes
        self._waiting = round.waiting
        if LOGGER.isEnabledFor(logging.DEBUG):
            last = stats.seconds_update, stats.seconds_solve, stats.seconds_read, self._last[1]
            moves = len(round.placements), len(round.preemptions), len(round.migrations), len(round.waiting)
            sizes = stats.nodes, stats.arcs, stats.changes, stats.solves, stats.gap
            with suppress(Exception):  # an error in a handler of the caller
                LOGGER.debug(_LINE, round.now, seconds, *last, *moves, *sizes)

    def commit(self, round: Round, done: Commit) -> None:
        """Count a commit."""
        if done._round is round:  # all of a round of starts
            self._placed += len(round.placements)
            return
        kinds = [type(delta) for delta in done.accepted]
        self._placed += kinds.count(Place)
        self._preempted += kinds.count(Preempt)
        self._migrated += kinds.count(Migrate)
        self._refused += len(done.conflicts)

    def call(self, hooks: Iterable[RoundHook], round: Round) -> None:
        """Call hooks with a round; their exceptions are counted and logged, and have no other effect."""
        for hook in hooks:
            try:
                hook(round)
            except Exception:
                self.hook_errors += 1
                with suppress(Exception):
                    LOGGER.exception("on_round: %r raised an exception", hook)

    def metrics(self, cluster: Cluster, journal_seconds: float, journal_bytes: int) -> Metrics:
        """Return the numbers of all `METRICS`, in their order."""
        counts = list(accumulate(self._slower))
        running, tasks = int(cluster.inventory.running.sum()), len(cluster.tasks)
        stats, (seconds, journal) = self._stats, self._last
        return {
            "rounds_total": counts[-1],
            "rounds_failed_total": self.failed,
            "events_total": cluster.events,
            "events_stale_total": cluster.stale_events,
            "placements_total": self._placed,
            "preemptions_total": self._preempted,
            "migrations_total": self._migrated,
            "conflicts_total": self._refused,
            "solves_total": self._solves,
            "network_changes_total": self._changes,
            "hook_errors_total": self.hook_errors,
            "phase_seconds_total": _phases(self._update, self._solve, self._read, journal_seconds),
            "phase_last_seconds": _phases(stats.seconds_update, stats.seconds_solve, stats.seconds_read, journal),
            "round_seconds": {**dict(zip(_LABELS, counts, strict=True)), "sum": self._seconds},
            "round_last_seconds": seconds,
            "round_gap": stats.gap,
            "machines": len(cluster.machines),
            "machines_up": int(np.count_nonzero(cluster.inventory.usable)),
            "tasks_running": running,
            "tasks_waiting": max(tasks - running, 0),
            "waiting_by_reason": _by_reason(self._waiting),
            "network_nodes": stats.nodes,
            "network_arcs": stats.arcs,
            "journal_bytes": journal_bytes,
        }


def _phases(update: float, solve: float, read: float, journal: float) -> dict[str, float]:
    return {"update": update, "solve": solve, "read": read, "journal": journal}


def _by_reason(waiting: Mapping[Hashable, Reason]) -> dict[str, float]:
    """Count waiting tasks by the code of their reason, every code included."""
    counts: dict[str, float] = dict.fromkeys(_REASONS, 0)
    if isinstance(waiting, Waiting):
        counts |= waiting.codes()
    else:
        for reason in waiting.values():
            counts[reason.code.value] += 1
    return counts
