"""The scheduler: events in, deltas out.

>>> from flowsched.cluster.events import JobSubmitted, MachineAdded
>>> from flowsched.cluster import Task
>>> sched = Scheduler(resources=("cpu", "mem"))
>>> sched.apply(MachineAdded("m1", {"cpu": 4, "mem": 16}), JobSubmitted("web", [Task("web-0", {"cpu": 3}), Task("web-1", {"cpu": 3})]))
>>> rnd = sched.schedule(now=0.0)
>>> dict(rnd.placements)
{'web-0': 'm1'}
>>> rnd.waiting["web-1"].code.value, rnd.waiting["web-1"].detail
('OUTBID', {'4 cpu, 16 mem': {'cpu': 1}})
>>> len(sched.commit(rnd).accepted)
1
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from weakref import WeakSet

import numpy as np

from flowsched.builder import Builder
from flowsched.cluster import Cluster, Resources
from flowsched.cluster.books import SPREAD, Shapes
from flowsched.cluster.events import Event
from flowsched.cluster.records import Before, ClassRecord, JobRecord, TaskRecord
from flowsched.cluster.trial import Trial
from flowsched.commits import carry_out
from flowsched.exceptions import InputError, TimeLimitError
from flowsched.gangs import Gangs
from flowsched.network import FlowNetwork
from flowsched.policy import Policy
from flowsched.reasons import Verdict, Waiting, judge
from flowsched.reclaim import reclaim
from flowsched.rounds import (
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
from flowsched.sharereport import ShareReport
from flowsched.verify import Verify

__all__ = ["Scheduler"]


@dataclass(slots=True)
class _Clock:
    """Where the time of a round goes."""

    deadline: float
    update: float = 0.0
    solve: float = 0.0
    solves: int = 0
    gap: float = 0.0
    late: bool = False

    def run(self, network: FlowNetwork, start: float) -> bool:
        """Optimise within the time that is left; False without any flow."""
        limit = None if self.deadline == math.inf else max(self.deadline - start, 1e-6)
        self.solves += 1
        try:
            solution = network.solve(time_limit=limit)
        except TimeLimitError:
            self.late = True
            return False
        finally:
            self.solve += time.perf_counter() - start
        self.gap = float(solution.stats["gap"])
        self.late = time.perf_counter() > self.deadline
        return True


@dataclass(slots=True)
class _Outcome:
    """The parts of a round as they are collected."""

    placements: dict[Hashable, Hashable] = field(default_factory=dict)
    preemptions: dict[Hashable, Preemption] = field(default_factory=dict)
    migrations: dict[Hashable, tuple[Hashable, Hashable]] = field(default_factory=dict)
    devices: dict[Hashable, tuple[int, ...]] = field(default_factory=dict)
    turns: dict[Hashable, int] = field(default_factory=dict)
    gangs: dict[Hashable, int] = field(default_factory=dict)
    preempts: list[Delta] = field(default_factory=list)
    migrates: list[Delta] = field(default_factory=list)
    places: list[Delta] = field(default_factory=list)

    def round(self, now: float, waiting: Waiting, stats: RoundStats, shares: Mapping[Hashable, Share]) -> Round:
        """All of it as one value."""
        return Round(
            now, self.placements, self.preemptions, self.migrations, self.devices, waiting,
            (*self.preempts, *self.migrates, *self.places), stats, shares, turns=self.turns, gangs=self.gangs,
        )  # fmt: skip


class Scheduler:
    """Decides which task runs where, now.

    Parameters
    ----------
    policy : Policy
    resources : sequence of str or Resources
        What machines have and tasks take; "gpu" is counted device by device.
    seed : int
        For policies that draw lots; those here do not.

    Attributes
    ----------
    cluster : Cluster
        What is.
    network : FlowNetwork
        What the last round optimised.
    """

    def __init__(
        self, policy: Policy | None = None, resources: Resources | Sequence[str] = ("cpu", "mem", "gpu"), seed: int = 0
    ) -> None:
        self.cluster = Cluster(resources)
        self.network = FlowNetwork()
        self.builder = Builder(self.cluster, self.network, Policy() if policy is None else policy)
        self.seed = seed
        self._verdicts: dict[ClassRecord, Verdict] = {}
        self._aborted: WeakSet[Round] = WeakSet()

    @property
    def policy(self) -> Policy:
        """What the scheduler aims at; may be replaced at any time."""
        return self.builder.policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        if not isinstance(policy, Policy):
            raise InputError(f"policy: a Policy expected, got {policy!r}")
        self.builder.replace_policy(policy)

    def apply(self, *events: Event) -> None:
        """Tell what happened; see `Cluster.apply`."""
        self.cluster.apply(*events)

    def look_anew(self, classes: Collection[int]) -> None:
        """What tasks of these classes (by index) need has changed, in the eyes of ``cluster.books.rule``."""
        self.builder.places.look_anew(list(classes))

    # -- a round ------------------------------------------------------------------------------------------------

    def schedule(self, now: float, time_limit: float | None = None) -> Round:
        """Decide; nothing happens yet.

        The changes go to the network, the network is re-optimised from its last optimum, and what its flow says is
        checked machine by machine; while something does not fit together, the network learns it and is re-optimised.

        Parameters
        ----------
        now : float
            The time, in the unit of the events.
        time_limit : float, optional
            Seconds of computing; who could still start then waits, code `TIME_LIMIT`.

        Returns
        -------
        Round
        """
        if not isinstance(now, int | float) or not math.isfinite(now):
            raise InputError(f"now: a finite number expected, got {now!r}")
        if time_limit is not None and not time_limit > 0:
            raise InputError(f"time_limit: a positive number of seconds expected, got {time_limit!r}")
        before = self.builder.edits.count
        start = time.perf_counter()
        clock = _Clock(math.inf if time_limit is None else start + time_limit)
        trial = Trial(self.cluster, now)
        try:
            check = Verify(self.builder, trial)
            gangs = Gangs(self.builder, check)
            had_room = self._settle(check, clock)
            while not gangs.settled(clock.late):
                had_room |= self._settle(check, clock)
            out = self._deltas(check)
            shares = self.builder.shares.report(task.group.job for task in trial.before)
            waiting = self._waiting(had_room, clock.late, gangs.out)
        finally:
            trial.undo()
            self.builder.end_round()
        stats = RoundStats(
            nodes=self.network.num_nodes,
            arcs=self.network.num_arcs,
            changes=self.builder.edits.count - before,
            solves=clock.solves,
            seconds_update=clock.update,
            seconds_solve=clock.solve,
            seconds_read=time.perf_counter() - start - clock.update - clock.solve,
            gap=clock.gap,
        )
        return out.round(now, waiting, stats, shares or MappingProxyType({}))

    def _settle(self, check: Verify, clock: _Clock) -> set[int]:
        """Optimise and check until they agree; the classes that had room at some time (see `verify` for why it ends)."""
        builder, waiting = self.builder, self.cluster.waiting
        had_room: set[int] = set()
        offered = False
        while True:
            start = time.perf_counter()
            builder.update(self.cluster.changes(check.trial.now), check.trial.now)
            had_room.update(builder.places.with_room([cls.index for cls in waiting]))
            updated = time.perf_counter()
            clock.update += updated - start
            again = clock.run(self.network, updated) and check.admit(builder.read())
            builder.places.stop_displacing()
            # Room that was offered at a price and that nobody took is not offered twice.
            offered = not (again or offered or clock.late) and (check.make_room() | reclaim(check))
            if clock.late or not (again or offered):
                return had_room

    def _deltas(self, check: Verify) -> _Outcome:
        """What the trial changed, as values."""
        out = _Outcome()
        policy = self.builder.policy
        price = policy.preemption.price if policy.preemption else 0.0
        by_row = self.cluster.by_row
        for task, before in sorted(check.trial.before.items(), key=_turn):
            place, was = task.place, before.place
            if was is None and place is not None:
                machine = by_row[place.row].machine.id
                out.placements[task.id] = machine
                if task.group.job.job.gang is not None:
                    out.gangs[task.id] = task.group.job.serial
                out.places.append(Place(task.id, machine, place.devices))
            elif was is not None and place is None:
                machine, by = by_row[was.row].machine.id, check.by[task].id
                lost = policy.waiting.bucket(check.trial.now - was.since)
                out.preemptions[task.id] = Preemption(machine, by, price * (1 + lost))
                out.preempts.append(Preempt(task.id, machine, by))
            elif was is not None and place is not None and task.turn != before.turn:
                old, machine = by_row[was.row].machine.id, by_row[place.row].machine.id
                out.migrations[task.id] = (old, machine)
                out.migrates.append(Migrate(task.id, old, machine, place.devices, check.by[task].id))
            else:
                continue
            out.turns[task.id] = before.turn
            if place is not None:
                out.devices[task.id] = place.devices
        return out

    def _waiting(self, had_room: set[int], late: bool, short: Collection[JobRecord]) -> Waiting:
        """Who waits at the end of the trial, and why."""
        groups: list[tuple[tuple[Hashable, ...], Verdict, float | None]] = []
        known, self._verdicts = self._verdicts, {}
        outbid = [cls for cls in self.cluster.waiting if late or cls.index in had_room]
        whys = dict(zip(outbid, self.builder.places.look_again([cls.index for cls in outbid]), strict=True))
        prices = {} if late else self.builder.prices([group for cls in outbid for group in self.cluster.waiting[cls]])
        for cls, members in self.cluster.waiting.items():
            if cls not in whys:
                verdict = self._verdicts[cls] = self._verdict(cls, known.get(cls))
                groups.append((self.cluster.waiting_ids(cls), verdict, None))
                continue
            code = ReasonCode.OUTBID if cls.index in had_room and not (whys[cls] == SPREAD).any() else None
            if (whys[cls] == 0).any():
                code = ReasonCode.TIME_LIMIT if late else ReasonCode.WAIT_CHEAPER
            verdict = judge(self.cluster.books, cls, whys[cls], code)
            at_share, too_few = (
                judge(self.cluster.books, cls, whys[cls], c) for c in (ReasonCode.SHARE, ReasonCode.GANG_SHORT)
            )
            for group in members:
                held = not late and self.builder.shares.full(group.job)
                ids = tuple(task.id for task in group.waiting)
                why = too_few if group.job in short else at_share if held else verdict
                groups.append((ids, why, prices.get(group)))
        return Waiting(groups)

    def _verdict(self, cls: ClassRecord, known: Verdict | None) -> Verdict:
        """For a class that never had room; another one only if something has changed for it."""
        why, shapes = self.builder.places.why(cls.index), self.cluster.books.shapes()
        if known is not None and known.why is why and known.shapes is shapes:
            return known
        return judge(self.cluster.books, cls, why)

    # -- afterwards ---------------------------------------------------------------------------------------------

    def commit(self, round: Round, only: Collection[Hashable] | None = None) -> Commit:
        """Let a round happen, but for what the world has overtaken.

        A task that starts and those that make room for it belong together: all of them or none.

        Parameters
        ----------
        round : Round
        only : collection of task ids, optional
            Tasks that start; others are left for later.

        Returns
        -------
        Commit
            Committing the same round again gives conflicts only.
        """
        if not isinstance(round, Round):
            raise InputError(f"round: a Round expected, got {round!r}")
        if round in self._aborted:
            raise InputError("round: it was aborted")
        done = carry_out(self.cluster, round, only)
        if isinstance(round.shares, ShareReport):
            started = (delta.task for delta in done.accepted if isinstance(delta, Place))
            round.shares.book(self.cluster.task(task).group.job for task in started)
        return done

    def abort(self, round: Round) -> None:
        """Forget a round: it can no longer be committed.  Nothing of it had happened."""
        if not isinstance(round, Round):
            raise InputError(f"round: a Round expected, got {round!r}")
        self._aborted.add(round)

    def explain(self, task: Hashable, machine: Hashable | None = None) -> Reason:
        """Why a task waits as things are now, or why it is not on a certain machine.

        Parameters
        ----------
        task : hashable
        machine : hashable, optional

        Returns
        -------
        Reason
            Code `RUNNING` if it runs (there), `PENDING` if there is room: the next round decides.  `SHARE` if there is room,
            but its job or user was at its share in the last round.
        """
        record = self.cluster.task(task)
        row = None if machine is None else self.cluster.machine(machine).row
        if record.place is not None and row in (None, record.place.row):
            return Reason(ReasonCode.RUNNING)
        books, cls = self.cluster.books, record.group.cls
        shapes = books.shapes()
        if row is None:
            (why,) = self.builder.places.look_again([cls.index])
        else:
            shapes = Shapes(shapes.of_row[[row]], shapes.keys)
            why = books.room(np.array([cls.index]), np.array([row]))[1][0]
        code = None
        if (why[shapes.of_row >= 0] == 0).any():
            code = ReasonCode.SHARE if self.builder.shares.full(record.group.job) else ReasonCode.PENDING
        return judge(books, cls, why, code, shapes).reason()


def _turn(moved: tuple[TaskRecord, Before]) -> int:
    return moved[0].turn
