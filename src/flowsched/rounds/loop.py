"""Loop of a round: update the network, optimise it, check its flow, and repeat until flow and check agree.

::

    changes -> builder.update -> batch.solve ---> reading.read -> check.admit
                    ^                                                 |
                    `---- an arc is closed or opened, a task starts <-'

The loop of `_settle` ends.  Every pass that another one follows makes progress of one of four kinds:

1. A task starts.  There are finitely many starts.  A start without eviction leaves fewer tasks waiting.  A start with
   evictions makes the list of running tasks, best priorities first, strictly better.  A start for another claimant's
   share (`reclaim`) lowers the number of tasks that claimants lack of their shares.
2. An arc is closed because the flow overrated it: its machine filled up, no task there may be evicted, or its claimant
   exceeds its share.  Its capacity falls to the true one or, for the rest of the round, to none.  There are
   finitely many arcs, and none opens again without (1).  With quotas, the arc of a group lets no more tasks start than
   its own rest allows.  So at least one of the tasks that a claimant's groups propose together is tried: it starts, or
   its machine refuses.  The rest of a quota grows only when a task stops, which is a part of (1), or is withheld for the
   rest of the round.
3. Arcs for making room are opened, at machines that have not refused in this round.  After a pass that did not use
   them, none are offered.
4. A claimant is set aside for the rest of the round, where shares are granted in steps.  There are finitely many
   claimants, and another step is granted without (4) only after (1) or (2).  In the steps at the end, which distribute
   the remaining room, only (1) counts, and no task stops for another one.

The loop over gangs around it ends as well: see `flowsched.rounds.gangs`.

`again_at` is the time at which a round should be made again although no event has happened since.

A round depends on the cluster, on the network that mirrors it, and on comparisons of `now` with times: ends of age
buckets, of back-offs, of reservations, of the protection of stopped tasks, times at which a run beyond its estimate
changes a reservation, and the time at which a fit rule leaves more room.  All these times are known.  The next decision
is the same until the first of them, if a round in between leaves cluster and network unchanged.  This is so if:

* No task was moved, not even tried.
* No reservation was made or given up: reservations depend on the room at the update before them.
* Under shares, which are granted step by step, the round changed nothing in the network.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Collection, Hashable, Mapping
from functools import partial
from math import inf
from types import MappingProxyType

from flowsched._guard import interruptible
from flowsched.boundary._values import frozen
from flowsched.boundary.collector import MANY, uncollected
from flowsched.builder._arcs import with_room
from flowsched.builder.batch import NetworkBatch
from flowsched.builder.builder import Builder
from flowsched.builder.reading import read
from flowsched.builder.reservations import Terms
from flowsched.builder.scope import RoundScope
from flowsched.cluster.records import Starts, Transaction, moved
from flowsched.cluster.state import Cluster
from flowsched.exceptions import TimeLimitError
from flowsched.rounds.admission import AdmissionCheck
from flowsched.rounds.backfill import overtake, start_gangs
from flowsched.rounds.gangs import Gangs
from flowsched.rounds.outcome import Stops, stops_of
from flowsched.rounds.reclaim import exchange, make_way
from flowsched.rounds.share_report import ShareReport
from flowsched.rounds.values import Round, RoundStats, Share
from flowsched.rounds.verdicts import NOBODY, Verdicts
from flowsched.rounds.withholding import withhold

__all__ = ["again_at", "make_round"]

_NOTHING: Collection[Hashable] = ()
_NO_SHARES: Mapping[Hashable, Share] = MappingProxyType({})


class _Clock:
    """Seconds that a round spent, by activity, and its deadline on the clock of `time.perf_counter`."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.update = self.solve = self.gap = 0.0
        self.solves = self.cost = 0
        self.late = False
        self.changed: array[int] | None = None

    def run(self, batch: NetworkBatch, start: float) -> bool:
        """Optimise within the remaining time; return False without any flow."""
        limited = self.deadline != inf
        self.solves += 1
        try:
            with interruptible():
                self.cost, self.changed, gap = batch.solve(max(self.deadline - start, 1e-6) if limited else -1.0)
        except TimeLimitError:
            self.late = True
            return False
        finally:
            self.solve += time.perf_counter() - start
        self.gap = float(gap)
        self.late = limited and time.perf_counter() > self.deadline
        return True


def make_round(builder: Builder, verdicts: Verdicts, now: float, time_limit: float | None) -> tuple[Round, bool]:
    """Decide a round; afterwards the cluster is as before.

    After an exception the builder and its network must be built again.  `Cluster.midway` is then True if the exception came
    in the middle of a move, so that the cluster is lost as well.

    Parameters
    ----------
    builder : Builder
    verdicts : Verdicts
        Belongs to the same builder.
    now : float
    time_limit : float or None
        Limit of computing time in seconds.

    Returns
    -------
    round : Round
    timed : bool
        True if the time limit affected the round, so that the same events may give another one.
    """
    if len(builder.cluster.touched) < MANY:
        return _make(builder, verdicts, now, time_limit)
    with uncollected():
        return _make(builder, verdicts, now, time_limit)


def _make(builder: Builder, verdicts: Verdicts, now: float, time_limit: float | None) -> tuple[Round, bool]:
    start = time.perf_counter()
    cluster, policy = builder.cluster, builder.policy
    cluster.date(now)  # first, so that it is kept whatever the result of the round is
    clock = _Clock(inf if time_limit is None else start + time_limit)
    transaction, turn = Transaction(cluster, now), cluster.turn
    reservations, bounds = builder.reservations, builder.shares
    changes = builder.batch.count
    terms = reservations.terms() if reservations._holds or reservations._rooms else []
    cluster.midway = True
    try:
        with builder.round(now) as scope:
            try:
                check = AdmissionCheck(builder, scope, transaction)
                gangs = Gangs(check) if builder.left_out or builder.has_gangs() else None
                had_room = _settle(check, clock)
                while gangs is not None and not gangs.settled(clock.late):
                    if not transaction.before:  # it was taken back, so no task got the room that it had made
                        had_room.clear()
                    had_room |= _settle(check, clock)
                if gangs is not None:
                    start_gangs(check, gangs, clock.late)
                stops, withheld = None, _NOTHING
                if check.starts is not None:
                    starts = check.starts
                else:
                    check.restore_unneeded()
                    graceful = policy.preemption is not None and policy.preemption.graceful
                    if graceful or cluster.stopping:
                        withheld = withhold(check, graceful)
                    starts, others = moved(transaction.before, cluster.by_row)
                    if others:
                        stops = stops_of(check, others)
                shares = None
                if bounds.fairness is not None or bounds.limit:
                    report = bounds.report([task.group.job for task in transaction.before])
                    shares = None if report is None else ShareReport(*report)
                out = () if gangs is None else gangs.out
                waiting = NOBODY
                if check.starts is None and (cluster.waiting or cluster.resting or withheld):
                    taken = partial(_taken, cluster, starts, stops)
                    waiting = verdicts.waiting(had_room, clock.late, out, withheld, taken)
            finally:
                transaction.rollback()
    except BaseException:
        undone = not (transaction.moving or transaction.before)
        if undone:
            cluster.forget_tries(turn)
        cluster.midway = not undone
        raise
    cluster.midway = False
    cut = clock.late or clock.gap > 0
    changes = builder.batch.count - changes
    again = again_at(builder, scope, cut, 0 if waiting is NOBODY else len(waiting), terms, changes > 0)
    nodes, arcs = builder.batch.sizes()
    read = time.perf_counter() - start - clock.update - clock.solve
    stats = frozen(RoundStats, {
        "nodes": nodes, "arcs": arcs, "changes": changes, "solves": clock.solves, "gap": clock.gap, "cost": clock.cost,
        "seconds_update": clock.update, "seconds_solve": clock.solve, "seconds_read": read,
    })  # fmt: skip
    attributes = {
        "now": now, "placements": starts.placements, "preemptions": {}, "migrations": {}, "waiting": waiting,
        "stats": stats, "shares": shares or _NO_SHARES, "gangs": starts.gangs, "again_at": again,
    }  # fmt: skip
    if stops is None:
        starts.moment = cluster.moment()
        attributes["_starts"] = starts
    else:
        attributes.update(stops.attributes(starts))
    return frozen(Round, attributes), cut


def _taken(cluster: Cluster, starts: Starts, stops: Stops | None) -> list[int]:
    """Return the rows where tasks have started, also by migration."""
    machines = dict.fromkeys(starts.machines)
    if stops is not None:
        machines.update(dict.fromkeys(to for _, to in stops.migrations.values()))
    return [cluster.machines[machine].row for machine in machines]


def _settle(check: AdmissionCheck, clock: _Clock) -> set[int]:
    """Optimise and check until they agree; return the classes (by index) that had room at some time."""
    builder, scope, cluster = check.builder, check.scope, check.cluster
    had_room: set[int] = set()
    offered = proposed = False
    scope.settle()
    while True:
        start = time.perf_counter()
        builder.update(cluster.changes(), scope)  # `make_round` has set the time
        if builder.waiting:
            had_room |= set(with_room(builder.classes, builder.waiting))
        updated = time.perf_counter()
        clock.update += updated - start
        again = False
        if clock.run(builder.batch, updated):
            proposals = read(builder, scope, clock.changed, check.among)
            proposed |= bool(proposals)
            if not (clock.late or scope.evictions.offers) and check.places_all(proposals):
                return had_room
            again = check.admit(proposals)
        if scope.evictions.offers:
            scope.evictions.withdraw()
        if not (again or clock.late or cluster.waiting or builder.policy.fairness is not None):
            return had_room  # no task is left to start
        again = again or (not clock.late and exchange(check))
        # Room that was offered at a price and not taken is not offered twice.
        offered = not (again or offered or clock.late) and make_way(check)
        if not (again or offered or clock.late):
            again, proposed = scope.grant_more(proposed), False
        if clock.late or not (again or offered):
            if not clock.late:
                overtake(check)
            return had_room


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
