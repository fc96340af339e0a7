"""The time at which a round is worth making again although nothing has happened since.

A round depends on the cluster, on the network that mirrors it, and on comparisons of `now` with times: ends of age
buckets, of back-offs, of reservations, of the time in which a stopped task is spared, what a run beyond its estimate
makes of a reservation, and the time at which a fit rule leaves more room.  Each of these times is known, so the next decision is the same until the first of them, given
that a round in between leaves cluster and network as they are.  Three things say that it does:

* No task was moved, not even tried.
* No reservation was made or given up: reservations go by the room that the update before them saw.
* Under shares, which are granted step by step, the round altered nothing in the network.
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
        True if the time limit had a part in the round.
    waiting : int
        Number of tasks that wait once the round is committed, those that rest included.
    terms : list
        `Reservations.terms` before the round.
    altered : bool
        True if the round altered the network.
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
