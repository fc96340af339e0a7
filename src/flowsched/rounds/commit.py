"""Commit: deltas that belong together happen together; deltas that events have overtaken do not happen.

Rule: the runs that a commit begins are numbered in the order of its accepted deltas, after all of them have happened.  So
the numbers follow from events and deltas alone.  The search for the round, and the order in which units were tried, have
no influence, and a recovery that imposes the deltas of a record gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from itertools import pairwise

from flowsched.boundary._values import frozen
from flowsched.boundary.validate import quoted
from flowsched.builder.quotas import QuotaAccounts
from flowsched.cluster import Cluster
from flowsched.cluster.events import EndedRun
from flowsched.cluster.inventory import Inventory
from flowsched.cluster.records import Starts, TaskRecord, Transaction, begin_runs, concerned, start_again, starts
from flowsched.rounds.values import KINDS, Commit, Delta, Migrate, Place, Reason, ReasonCode, Round

__all__ = ["begun", "carry_out", "happen"]


def carry_out(
    cluster: Cluster,
    round: Round,
    only: Collection[Hashable] | None = None,
    graceful: bool = False,
    quotas: QuotaAccounts | None = None,
) -> Commit:
    """Commit a round, except for the parts that events have overtaken; see `Scheduler.commit`.

    Parameters
    ----------
    cluster : Cluster
    round : Round
    only : collection of hashable, optional
    graceful : bool
        True if stopping runs hold their room, see `PreemptionCost.graceful`.
    quotas : QuotaAccounts, optional
        Starts stay within them.
    """
    known = _as_found(cluster, round) if only is None and quotas is None else None
    if known is not None:
        first = cluster.runs + 1
        cluster.runs = start_again(cluster, known.tasks, known.machines, known.devices, cluster.runs, round.now)
        return frozen(Commit, {"conflicts": {}, "first_run": first, "ended": (), "_round": round})
    return _carry_out_checked(cluster, round, only, graceful, quotas)


def _carry_out_checked(
    cluster: Cluster, round: Round, only: Collection[Hashable] | None, graceful: bool, quotas: QuotaAccounts | None
) -> Commit:
    """Apply deltas unit by unit, each if it is still possible."""
    if quotas is not None:
        quotas.look()
    # Starts of single tasks are units in this order; nearly always all of them can happen.
    single = only is None and not (round.gangs or round.preemptions or round.migrations)
    if single and (not round.deltas or happen(cluster, round.deltas, round.now, round.turns, quotas=quotas) is None):
        return Commit(round.deltas, {}, *begun(cluster, round.deltas))
    units = _units(round, None if only is None else set(only))
    accepted: set[Hashable] = set()
    conflicts: dict[Hashable, Reason] = {}
    together = [delta for unit in units for delta in unit]
    if together and happen(cluster, together, round.now, round.turns, graceful, quotas) is None:
        accepted.update(delta.task for delta in together)
        units = []
    progress = True
    while units and progress:  # a unit that needs the room of another comes after it
        tried = [(unit, happen(cluster, unit, round.now, round.turns, graceful, quotas)) for unit in units]
        refused = [(unit, why) for unit, why in tried if why is not None]
        conflicts = {delta.task: why for unit, why in refused for delta in unit}
        progress = len(refused) < len(units)
        accepted.update(delta.task for unit in units for delta in unit if delta.task not in conflicts)
        units = [unit for unit, _ in refused]
    deltas = tuple(delta for delta in round.deltas if delta.task in accepted)
    return Commit(deltas, conflicts, *begun(cluster, deltas))


def _as_found(cluster: Cluster, round: Round) -> Starts | None:
    """Return the starts if all are single and nothing has happened since the round's transaction."""
    known = round._starts
    if known is None or known.gangs or known.moment != cluster.moment():
        return None
    inventory = cluster.inventory
    if inventory.rule is not None or inventory.constraints or inventory.held() is not None or cluster.stopping:
        return None  # their answers may have changed
    if inventory.affinity.fussy:
        return None  # affinity: tasks start one by one
    if known.tasks:
        first, index = known.tasks[0], cluster.by_index
        if first.index >= len(index) or index[first.index] is not first:
            return None  # the task belongs to a copy of the cluster
    return known


def begun(cluster: Cluster, deltas: Sequence[Delta]) -> tuple[int, tuple[EndedRun, ...]]:
    """Number the runs that deltas have begun; return the first number, and the runs that deltas have ended."""
    first = cluster.runs + 1
    cluster.runs, over = begin_runs(cluster.tasks, deltas, cluster.runs, KINDS)
    if not over:
        return first, ()
    stops = [delta for delta in deltas if not isinstance(delta, Place)]
    places = [delta.old if isinstance(delta, Migrate) else delta.machine for delta in stops]
    ended = zip(stops, over, places, strict=True)
    return first, tuple(EndedRun(delta.task, run, at, type(delta).__name__) for delta, run, at in ended)


def happen(
    cluster: Cluster,
    unit: Sequence[Delta],
    now: float,
    turns: Mapping[Hashable, int] | None = None,
    graceful: bool = False,
    quotas: QuotaAccounts | None = None,
) -> Reason | None:
    """Apply deltas, all or none; return the reason if none.

    Parameters
    ----------
    cluster : Cluster
    unit : sequence of Delta
    now : float
    turns : mapping of task to int, optional
        Turns of the tasks at the time of the decision: if one has changed since, nothing happens.  None if the deltas have
        happened once, so that only impossible ones are refused.
    graceful : bool
    quotas : QuotaAccounts, optional
        See `carry_out`; they are up to date.
    """
    transaction = Transaction(cluster, now)
    records = concerned(cluster.tasks, unit, turns, KINDS)
    if isinstance(records, str):
        return _conflict("task", records)
    stopped = [record for record in records if record.row >= 0]
    for record in stopped:
        transaction.stop(record)
    starting, deltas, ends = starts(records, KINDS)
    for first, end in pairwise((0, *ends)):
        refusal = _start(cluster, transaction, starting[first:end], deltas[first], turns is None)
        if refusal is not None:
            transaction.rollback()
            return refusal
    groups = []
    if quotas is not None:
        lacking = quotas.exceeded(transaction.before, graceful)
        if lacking is not None:
            transaction.rollback()
            return _conflict("quota", lacking)
        groups = [record.group for record in transaction.before]  # a task that holds its room gets another one
    for record in stopped:
        record.preempted = now
        place = transaction.before[record].place
        if graceful and record.row < 0 and place is not None:
            cluster.hold(record, place)
    if quotas is not None:
        quotas.look(dict.fromkeys(groups))
    return None


def _start(
    cluster: Cluster, transaction: Transaction, records: list[TaskRecord], delta: Place | Migrate, forced: bool
) -> Reason | None:
    """Start tasks of one group on one machine and the same devices; return the reason if one of them cannot start."""
    inventory = cluster.inventory
    machine, cls = cluster.machines.get(delta.machine), records[0].group.cls.index
    if machine is None or machine.failed:
        return _conflict("machine", "gone")
    # A machine that welcomes any turn welcomes each turn.
    if not (
        forced
        or inventory.welcomes(machine.row, cls)
        or all(inventory.welcomes(machine.row, cls, record.turn) for record in records)
    ):
        return _conflict("machine", "no room")
    if inventory.constraints and not forced:
        refusal = _forbidden(inventory, machine.row, cls, len(records))
        if refusal is not None:
            return refusal
    if not delta.devices and inventory.spare_room(machine.row, cls, len(records)) >= len(records):
        transaction.start(records, machine.row, ())
    else:
        for record in records:
            if not inventory.has_room(machine.row, cls, delta.devices):
                return _conflict("machine", "no room")
            transaction.start([record], machine.row, delta.devices)
    stops = cluster.stops_on(machine.row) if cluster.stopping and not forced else ()
    if stops and cluster.overlaps(machine.row, stops):
        return _conflict("machine", "a run stops")
    return None


def _forbidden(inventory: Inventory, row: int, class_id: int, count: int) -> Reason | None:
    """Return the reason if a constraint of the policy forbids `count` tasks; an exception from one is a refusal, too."""
    for limit in inventory.constraints:
        try:
            if limit.spare(row, class_id, count) < count:
                return _conflict("constraint", limit.name)
        except MemoryError:  # not caused by the constraint
            raise
        except Exception as error:
            return _conflict("constraint", f"{limit.name}: {quoted(error)}")
    return None


def _units(round: Round, only: set[Hashable] | None) -> list[list[Delta]]:
    """Return the deltas that belong together: a starting task or gang, its victims, their victims, and so on.

    The victims of a task that starts in a later round are a separate unit.
    """
    followers: dict[Hashable, list[Delta]] = {}
    starting: dict[Hashable, list[Delta]] = {}
    for delta in round.deltas:
        if isinstance(delta, Place):
            gang = round.gangs.get(delta.task)
            starting.setdefault(delta.task if gang is None else ("gang", gang), []).append(delta)
        else:
            followers.setdefault(delta.by, []).append(delta)
    there = {delta.task for delta in round.deltas}
    units = [unit for unit in starting.values() if only is None or all(root.task in only for root in unit)]
    units += [list(unit) for by, unit in followers.items() if by not in there and (only is None or by in only)]
    for unit in units:
        for delta in unit:
            unit += followers.get(delta.task, ())
    return units


def _conflict(what: str, why: str) -> Reason:
    return Reason(ReasonCode.CONFLICT, {what: {why: 1}})
