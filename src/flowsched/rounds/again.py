"""Time at which a round should be made again although no event has happened since.

A round depends on the cluster, on the network that mirrors it, and on comparisons of `now` with times: ends of age
buckets, of back-offs, of reservations, of the protection of stopped tasks, times at which a run beyond its estimate
changes a reservation, and the time at which a fit rule leaves more room.  All these times are known.  The next decision
is the same until the first of them, if a round in between leaves cluster and network unchanged.  This is so if:

* No task was moved, not even tried.
* No reservation was made or given up: reservations depend on the room at the update before them.
* Under shares, which are granted step by step, the round changed nothing in the network.
"""

from __future__ import annotations

from math import inf

from flowsched.builder.builder import Builder
from flowsched.builder.reservations import Terms
from flowsched.builder.scope import RoundScope

__all__ = ["again_at"]


def again_at(
    builder: Builder,
    scope: RoundScope,
    cut: bool,
    waiting: int,
    terms: Terms,
    altered: bool,
) -> float:
    """Return `Round.again_at`, after the round was taken back.

    Parameters
    ----------
    builder : Builder
    scope : RoundScope
    cut : bool
        True if the time limit affected the round.
    waiting : int
        Number of waiting tasks after the commit of the round, resting ones included.
    terms : list
        `Reservations.terms` before the round.
    altered : bool
        True if the round changed the network.
    """
    cluster, now = builder.cluster, scope.now
    if cut:
        return now
    if waiting == len(cluster.resting):
        return cluster.back_at if waiting else inf
    moved = cluster.touched or builder.reservations.terms() != terms
    if moved or (altered and builder.policy.fairness is not None):
        return now
    rule = cluster.inventory.rule
    return max(now, min(builder.due(now), scope.wake, cluster.back_at, inf if rule is None else rule.due()))
