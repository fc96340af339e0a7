"""FGM on top of a scheduler: what fits where is decided stage by stage, from what tasks really need.

::

    events, samples -> FineGrained --+-> learner (between rounds)        -> what tasks of a class need, by stages
                                     +-> futures (when something happens) -> what each machine has left, by stages
                                     |
    scheduler <- books.rule: `room` (Algorithm 2: which arcs exist, for how many) and `admits` (everybody together,
                 stretched by compression, deadlines included), asked again before anything is committed

The scheduler may be the flow's (`flowsched.Scheduler`) or any that decides by the books of its cluster.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster import MICRO, Cluster
from flowsched.cluster import events as ev
from flowsched.cluster.checks import mapping, number
from flowsched.cluster.records import ClassRecord, TaskRecord
from flowsched.exceptions import InputError
from flowsched.fgm.adjust import Adjustment, Level
from flowsched.fgm.amounts import part
from flowsched.fgm.cost import StageCost
from flowsched.fgm.estimate import DemandEstimator
from flowsched.fgm.futures import Futures
from flowsched.fgm.learning import Learner
from flowsched.fgm.rule import StageRule
from flowsched.fgm.stages import Stages
from flowsched.fgm.timeline import Timelines
from flowsched.rounds import Commit, Delta, Migrate, Preempt, Preemption, Reason, ReasonCode, Round
from flowsched.scheduler import Scheduler

__all__ = ["FineGrained", "Plans"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_FOREIGN = 0.02
"""A machine is looked at again when the load that is not ours changes by this part of its total."""

_Ends = ev.TaskCompleted | ev.TaskFailed | ev.TaskRemoved
_OfMachines = ev.MachineUpdated | ev.MachineFailed | ev.MachineRemoved


class Plans(Protocol):
    """What FGM asks of the scheduler under it."""

    cluster: Cluster

    def apply(self, *events: ev.Event) -> None:
        """Hear what happened."""

    def schedule(self, now: float, time_limit: float | None = None) -> Round:
        """Decide, by the books of the cluster."""

    def commit(self, round: Round, only: Collection[Hashable] | None = None) -> Commit:
        """Make the decision so."""

    def look_anew(self, classes: Collection[int]) -> None:
        """What these classes need has changed."""


class FineGrained:
    """The adapter.

    Parameters
    ----------
    scheduler : Scheduler or Plans
        Fresh; what fits in its cluster is decided here from now on.
    compressible : mapping of str to float, optional
        Resources that may be compressed, and their largest compression; by default 0.1 for "cpu", "disk" and "net",
        as far as the cluster has them.  The others must suffice.
    contention : float
        What competing costs beyond sharing, per unit of compression.
    estimator : DemandEstimator, optional
        Learns what tasks of a kind need.
    threshold : float
        A stage ends where a resource varies by this part of its largest demand.
    min_length : float
        Least length of a stage, as a part of the task.
    adjustment : Adjustment, optional
        How finely a machine is matched when estimates fail there.
    highest : Level
        Never finer than this on any machine; ``Level.REQUEST`` is what schedulers do without FGM.
    idle : float
        A machine of which a smaller part is idle (by its samples) takes nothing; Th of Algorithm 1, line 1.
    weight : float
        Weight of `StageCost` among the placement costs of a flow scheduler's policy; 0 to leave that as it is.

    Attributes
    ----------
    scheduler : Plans
    cluster : Cluster
    estimator : DemandEstimator
    futures : Futures

    Examples
    --------
    >>> import flowsched as fs
    >>> fine = FineGrained(fs.Scheduler(resources=("cpu", "mem")), estimator=DemandEstimator(("cpu", "mem"), cold=1))
    >>> fine.estimator.observe("wordcount", [2, 1], seconds=60)
    >>> fine.learn()
    >>> fine.apply(
    ...     fs.MachineAdded("m1", {"cpu": 4, "mem": 8}),
    ...     fs.JobSubmitted("j", [fs.Task(f"t{i}", {"cpu": 4, "mem": 4}, kind="wordcount") for i in range(3)]),
    ... )
    >>> sorted(fine.schedule(0.0).placements)  # what they need, not what they ask for
    ['t0', 't1']
    """

    def __init__(
        self,
        scheduler: Plans,
        *,
        compressible: Mapping[str, float] | None = None,
        contention: float = 0.0,
        estimator: DemandEstimator | None = None,
        threshold: float = 0.2,
        min_length: float = 0.05,
        adjustment: Adjustment | None = None,
        highest: Level = Level.COMPRESSED,
        idle: float = 0.0,
        weight: float = 1.0,
    ) -> None:
        cluster = getattr(scheduler, "cluster", None)
        if not isinstance(cluster, Cluster) or cluster.tasks or cluster.books.rule is not None:
            raise InputError("FineGrained: scheduler: one without tasks and without another adapter expected")
        names = cluster.resources.names
        timelines = Timelines(len(names))
        timelines.contention = number("FineGrained: contention", contention, 0)
        if compressible is None:
            compressible = {name: 0.1 for name in ("cpu", "disk", "net") if name in names}
        for name, limit in mapping("FineGrained: compressible", compressible).items():
            what = f"FineGrained: compressible[{name!r}]"
            if name not in names or name == cluster.resources.device:
                raise InputError(f"{what}: a resource that is not counted by devices expected")
            if number(what, limit, 0) >= 1:
                raise InputError(f"{what}: a limit from 0 to below 1 expected, got {limit!r}")
            timelines.soft[names.index(name)] = 1
            timelines.limit[names.index(name)] = limit
        number("FineGrained: threshold", threshold, 0, finite=False)
        number("FineGrained: weight", weight, 0)
        for what, value in (("min_length", min_length), ("idle", idle)):
            part(f"FineGrained: {what}", value)
        estimator = DemandEstimator(names) if estimator is None else estimator
        if not isinstance(estimator, DemandEstimator) or estimator.resources != names:
            raise InputError(f"FineGrained: estimator: one of resources {names!r} expected")
        adjustment = Adjustment() if adjustment is None else adjustment
        if not isinstance(adjustment, Adjustment):
            raise InputError(f"FineGrained: adjustment: an Adjustment expected, got {adjustment!r}")
        if highest not in tuple(Level):
            raise InputError(f"FineGrained: highest: a Level expected, got {highest!r}")
        self.scheduler = scheduler
        self.cluster = cluster
        self.estimator = estimator
        self.highest = Level(highest)
        self.learner = Learner(self.cluster, self.estimator, adjustment, threshold, min_length)
        self.futures = Futures(self.cluster, timelines, self._estimate)
        self._rule = self.cluster.books.rule = StageRule(self.futures, self.learner, self.highest, idle)
        if weight and isinstance(scheduler, Scheduler):
            policy = scheduler.policy
            scheduler.policy = replace(policy, placement=(*policy.placement, StageCost(self, weight)))

    # -- the world ----------------------------------------------------------------------------------------------

    def apply(self, *events: ev.Event) -> None:
        """Tell what happened; see `Cluster.apply`.  Samples (`UsageSampled`, `MachineSampled`) are what FGM learns from."""
        start = 0
        while start < len(events):
            event, now = events[start], self._time(events[start])
            stop = start + 1
            if isinstance(event, ev.UsageSampled):
                self.scheduler.apply(event)
                self._task_sampled(event, now)
            elif isinstance(event, ev.MachineSampled):
                self.scheduler.apply(event)
                self._machine_sampled(event, now)
            else:
                # What happens at one time is one step for the machines concerned.
                while stop < len(events) and self._time(events[stop]) == now and not _is_sample(events[stop]):
                    stop += 1
                self._happen(events[start:stop], now)
            start = stop

    def _time(self, event: ev.Event) -> float:
        return self.now if event.time is None else event.time

    def _happen(self, events: Sequence[ev.Event], now: float) -> None:
        """Let events of one time happen."""
        self._rule.grow()
        rows: dict[int, None] = {}
        for event in events:
            rows.update(dict.fromkeys(self._rows(event)))
        before = [row for row in rows if row in self.cluster.by_row]
        self.futures.advance(before, now)
        try:
            for event in events:
                self._tell(event, now)
        finally:
            self.futures.settle(before, now)

    def _rows(self, event: ev.Event) -> list[int]:
        """Machines whose tasks or capacity an event may change."""
        cluster = self.cluster
        tasks: Collection[TaskRecord] = ()
        if isinstance(event, ev.TaskStarted):
            machine = cluster.machines.get(event.machine)
            return [] if machine is None else [machine.row]
        if isinstance(event, _OfMachines):
            machine = cluster.machines.get(event.id)
            return [] if machine is None else [machine.row]
        if isinstance(event, ev.JobRemoved) and event.job in cluster.jobs:
            tasks = cluster.jobs[event.job].tasks
        elif isinstance(event, _Ends) and event.task in cluster.tasks:
            tasks = (cluster.tasks[event.task],)
        return [task.place.row for task in tasks if task.place is not None]

    def _tell(self, event: ev.Event, now: float) -> None:
        """Pass an event on, and note whose run is over."""
        over: list[tuple[TaskRecord, int, float | None]] = []
        if isinstance(event, _Ends) and (task := self.cluster.tasks.get(event.task)) is not None:
            completed = isinstance(event, ev.TaskCompleted) and task.place is not None
            over.append((task, task.turn, now - task.place.since if completed and task.place else None))
        elif isinstance(event, ev.JobRemoved) and event.job in self.cluster.jobs:
            over += [(task, task.turn, None) for task in self.cluster.jobs[event.job].tasks]
        gone = self._rows(event) if isinstance(event, ev.MachineFailed | ev.MachineRemoved) else ()
        self.scheduler.apply(event)
        for task, turn, duration in over:
            self.learner.ended(task, turn, duration)
        for row in gone:
            self.learner.forget(row)
            self.futures.foreign[row] = 0
            self._rule.set_level(row, self.highest)

    def _task_sampled(self, event: ev.UsageSampled, now: float) -> None:
        task = self.cluster.task(event.task)
        if task.place is not None:
            row, progress = task.place.row, event.progress
            squeezed = self._compression(row, now)
            self.learner.sampled(task, now - task.place.since, self._vector(event.usage), squeezed, progress)
            if progress is not None and self.futures.correct(row, task, progress, now):
                self.cluster.books.touch(row)

    def _vector(self, amounts: Mapping[str, float]) -> Floats:
        """Amounts by resource, NaN for what is not told."""
        return np.array([amounts.get(name, math.nan) for name in self.cluster.resources.names], np.float64)

    def _compression(self, row: int, now: float) -> float:
        """What the tasks of a machine are compressed by, as planned."""
        lines = self.futures.timelines
        if row >= len(lines.ends):
            return 0.0
        slot = min(int(lines.ends[row].searchsorted(now, "right")), lines.ends.shape[1] - 1)
        worst = 0.0
        for left, total, soft in zip(
            lines.available[row, slot].tolist(),
            self.cluster.books.capacity[row].tolist(),
            lines.soft.tolist(),
            strict=True,
        ):
            if soft and left < 0:
                worst = max(worst, -left / (total - left))
        return worst

    def _machine_sampled(self, event: ev.MachineSampled, now: float) -> None:
        row = self.cluster.machine(event.id).row
        rows = np.array([row])
        self._rule.look(rows, now)
        capacity, lines = self.cluster.books.capacity[row], self.futures.timelines
        left = lines.available[row, lines.present(rows, now)[0]]
        used, before = self._vector(event.usage), self.futures.foreign[row]
        others, level = self.learner.machine_sampled(
            row, now, capacity / MICRO, used, (capacity - left) / MICRO, before / MICRO
        )
        level = min(level, self.highest)
        foreign = np.ceil(others * MICRO).astype(np.int64)
        if (np.abs(foreign - before) > _FOREIGN * capacity).any() or level != self._rule.level(row):
            self.futures.advance([row], now)
            self.futures.foreign[row] = foreign
            self._rule.set_level(row, level)
            self.cluster.books.touch(row)

    @property
    def now(self) -> float:
        """The time of the present round, or the last one."""
        return self._rule.now

    def first_demand(self, cls: int) -> Floats:
        """What tasks of a class, by index, need in their first stage."""
        demand: Floats = self.futures.catalog.of(self.cluster.by_class[cls]).fine.demand[0]
        return demand

    def look(self, rows: Ints) -> None:
        """Bring the timelines of machines, by row, up to date."""
        self._rule.look(rows, self.now)

    def level(self, machine: Hashable) -> Level:
        """How finely a machine is matched now."""
        return self._rule.level(self.cluster.machine(machine).row)

    # -- learning -----------------------------------------------------------------------------------------------

    def learn(self, most: int | None = None) -> None:
        """Take in what was observed; called after every commit, so that no decision waits for it."""
        stale = self.learner.learn(most)
        if stale:
            classes, rows = self.futures.renew(dict.fromkeys(stale), self.estimator.key)
            for row in rows:
                self.cluster.books.touch(row)
            self._rule.forget_stages()
            self.scheduler.look_anew([cls.index for cls in classes])
        self.futures.compact()

    def _estimate(self, cls: ClassRecord) -> Stages | None:
        return None if self.highest <= Level.REQUEST else self.learner.estimate(cls)

    # -- a round ------------------------------------------------------------------------------------------------

    def schedule(self, now: float, time_limit: float | None = None) -> Round:
        """Decide; see `Scheduler.schedule`.

        On machines where estimates fail badly and tasks have degraded, the youngest task is stopped (`Preempt` with
        ``by=None``).
        """
        self._rule.now = now
        if self.cluster.waiting:
            self._rule.look_at_due(now)
        round = self.scheduler.schedule(now, time_limit)
        reclaimed = self._reclaim(round, now)
        if not reclaimed:
            return round
        places = {task.id: self.cluster.by_row[row].machine.id for row, task in reclaimed.items()}
        return replace(
            round,
            preemptions={**round.preemptions, **{t: Preemption(m, None, 0.0) for t, m in places.items()}},
            deltas=(*(Preempt(t, m, None) for t, m in places.items()), *round.deltas),
            turns={**round.turns, **{task.id: task.turn for task in reclaimed.values()}},
        )

    def _reclaim(self, round: Round, now: float) -> dict[int, TaskRecord]:
        """The youngest task of each machine that is in trouble, once per sample."""
        found = {}
        for row in self.learner.suspects:
            record = self.cluster.by_row.get(row)
            if (
                record is not None
                and len(record.tasks) > 1
                and self.futures.degraded(row, now, self.learner.adjustment.degraded)
            ):
                youngest = max(record.tasks, key=lambda task: task.turn)
                if youngest.id not in round.preemptions and youngest.id not in round.migrations:
                    found[row] = youngest
        self.learner.suspects.clear()
        return found

    def commit(self, round: Round, only: Collection[Hashable] | None = None) -> Commit:
        """Let a round happen; see `Scheduler.commit`.  Then take in what was learnt."""
        self._rule.now = max(self.now, round.now)
        self._rule.grow()
        machines = {m for d in round.deltas for m in ((d.machine, d.old) if isinstance(d, Migrate) else (d.machine,))}
        rows = sorted(self.cluster.machines[m].row for m in machines if m in self.cluster.machines)
        self.futures.advance(rows, round.now)
        self._rule.look(np.array(rows, np.int64), self.now)
        ours = [delta for delta in round.deltas if isinstance(delta, Preempt) and delta.by is None]
        accepted, conflicts = self._stop(ours, round)
        rest = tuple(delta for delta in round.deltas if delta not in ours) if ours else round.deltas
        done = self.scheduler.commit(round if not ours else replace(round, deltas=rest), only)
        self.futures.settle(rows, round.now)
        self.learn()
        if not ours:
            return done
        return Commit((*accepted, *done.accepted), {**conflicts, **done.conflicts})

    def _stop(self, deltas: Sequence[Preempt], round: Round) -> tuple[list[Delta], dict[Hashable, Reason]]:
        accepted: list[Delta] = []
        conflicts: dict[Hashable, Reason] = {}
        for delta in deltas:
            task = self.cluster.tasks.get(delta.task)
            if task is None or task.turn != round.turns[delta.task] or task.place is None:
                conflicts[delta.task] = Reason(ReasonCode.CONFLICT, {"task": {"moved on": 1}})
                continue
            turn = task.turn
            self.cluster.stop(task, round.now)
            self.learner.ended(task, turn, None)
            accepted.append(delta)
        return accepted, conflicts

    def __getattr__(self, name: str) -> Any:
        """Everything else is the scheduler's: `explain`, `abort`, `policy`, ..."""
        if name == "scheduler":
            raise AttributeError(name)
        return getattr(self.scheduler, name)


def _is_sample(event: ev.Event) -> bool:
    return isinstance(event, ev.UsageSampled | ev.MachineSampled)
