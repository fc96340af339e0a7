"""The time at which a round is worth making again although nothing has happened since.

A round depends on the cluster, on the network that mirrors it, and on comparisons of `now` with times: ends of age
buckets, of back-offs, of reservations, of the time in which a stopped task is spared, and what a run beyond its estimate
makes of a reservation.  Each of these times is known, so the next decision is the same until the first of them, given
that a round in between leaves cluster and network as they are.  Three things say that it does:

* No task was moved, not even tried.
* No reservation was made or given up: reservations go by the room that the update before them saw.
* Under shares, which are granted step by step, the round altered nothing in the network.
"""

from __future__ import annotations

from math import inf

from flowsched.builder.builder import Builder
from flowsched.builder.scope import RoundScope

__all__ = ["Stillness"]


class Stillness:
    """Says when to decide again; made before a round.

    Parameters
    ----------
    builder : Builder

    Attributes
    ----------
    changes : int
        `NetworkBatch.count` before the round.
    """

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self.changes, self._terms = builder.batch.count, builder.reservations.terms()

    def again_at(self, scope: RoundScope, cut: bool, waiting: int) -> float:
        """Return `Round.again_at`, after the round was taken back.

        Parameters
        ----------
        scope : RoundScope
        cut : bool
            True if the time limit had a part in the round.
        waiting : int
            Number of tasks that wait once the round is committed, those that rest included.
        """
        builder, now = self._builder, scope.now
        if cut or builder.cluster.inventory.rule is not None:  # a fit rule may go by the time
            return now
        if waiting == len(builder.cluster.resting):
            return builder.cluster.back_at if waiting else inf
        moved = builder.cluster.touched or builder.reservations.terms() != self._terms
        if moved or (builder.policy.fairness is not None and builder.batch.count != self.changes):
            return now
        return max(now, min(builder.due(now), scope.wake, builder.cluster.back_at))
