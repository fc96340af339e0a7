"""FGM on top of a scheduler: what fits where is decided stage by stage, from what tasks really need.

::

    events, samples -> FineGrained --+-> estimates (between rounds)      -> what tasks of a class need, by stages
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
from flowsched.cluster.books import RESOURCE
from flowsched.cluster.records import ClassRecord, TaskRecord
from flowsched.exceptions import InputError
from flowsched.fgm.adjust import Adjustment, Level
from flowsched.fgm.cost import StageCost
from flowsched.fgm.estimate import DemandEstimator, by_progress
from flowsched.fgm.futures import Futures
from flowsched.fgm.monitor import MachineWatch, TaskTrace, trace_of
from flowsched.fgm.qos import missed
from flowsched.fgm.stages import Stages, divide_stages
from flowsched.fgm.timeline import Classes, Timelines
from flowsched.rounds import Commit, Delta, Migrate, Preempt, Preemption, Reason, ReasonCode, Round
from flowsched.scheduler import Scheduler

__all__ = ["FineGrained", "Plans"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_FOREIGN = 0.02
"""A machine is looked at again when the load that is not ours changes by this part of its total."""


_DUE = 64
"""So many machines, or 1 % of them, are looked at again in a round for no other reason than that time has passed."""

_KEPT = 256
"""Sets of classes whose stages are kept in the kernel's form."""


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
        names = scheduler.cluster.resources.names
        if compressible is None:
            compressible = {name: 0.1 for name in ("cpu", "disk", "net") if name in names}
        if scheduler.cluster.tasks or scheduler.cluster.books.rule is not None:
            raise InputError("FineGrained: a scheduler without tasks and without another adapter expected")
        for what, value, top in (
            ("contention", contention, math.inf),
            ("threshold", threshold, math.inf),
            ("idle", idle, 1.0),
        ):
            if not 0 <= value <= top:
                raise InputError(f"FineGrained: {what}: a number >= 0 expected, got {value!r}")
        self.scheduler = scheduler
        self.cluster = scheduler.cluster
        self.estimator = DemandEstimator(names) if estimator is None else estimator
        if self.estimator.resources != names:
            raise InputError(f"FineGrained: estimator: resources {names!r} expected, got {self.estimator.resources!r}")
        timelines = Timelines(len(names))
        for name, limit in compressible.items():
            if name not in names or name == scheduler.cluster.resources.device or not 0 <= limit < 1:
                raise InputError(f"FineGrained: compressible[{name!r}]: a resource and a limit from 0 to 1 expected")
            timelines.soft[names.index(name)] = 1
            timelines.limit[names.index(name)] = limit
        timelines.contention = contention
        self.futures = Futures(self.cluster, timelines, self._estimate)
        self.highest = highest
        self._threshold, self._min_length, self._idle = threshold, min_length, idle
        self._adjustment = Adjustment() if adjustment is None else adjustment
        self._now = 0.0
        self._level: Ints = np.full(0, highest, np.int64)
        self._seen: Ints = np.full(0, -1, np.int64)
        self._kernel: dict[tuple[int, ...], Classes] = {}
        self._refused: dict[int, tuple[list[int], dict[int, int]]] = {}
        self._traces: dict[TaskRecord, TaskTrace] = {}
        self._watches: dict[int, MachineWatch] = {}
        self._suspects: dict[int, None] = {}
        self._divided: dict[Hashable, int] = {}
        self.cluster.books.rule = self
        if weight and isinstance(scheduler, Scheduler):
            policy = scheduler.policy
            scheduler.policy = replace(policy, placement=(*policy.placement, StageCost(self, weight)))

    # -- the world ----------------------------------------------------------------------------------------------

    def apply(self, *events: ev.Event) -> None:
        """Tell what happened; see `Cluster.apply`.  Samples (`UsageSampled`, `MachineSampled`) are what FGM learns from."""
        for event in events:
            now = self._now if event.time is None else event.time
            if isinstance(event, ev.UsageSampled):
                self.scheduler.apply(event)
                self._task_sampled(event, now)
            elif isinstance(event, ev.MachineSampled):
                self.scheduler.apply(event)
                self._machine_sampled(event, now)
            elif isinstance(event, ev.TaskCompleted | ev.TaskFailed | ev.TaskRemoved | ev.TaskStarted):
                self._task_moves(event, now)
            else:
                self.scheduler.apply(event)

    def _task_moves(
        self, event: ev.TaskCompleted | ev.TaskFailed | ev.TaskRemoved | ev.TaskStarted, now: float
    ) -> None:
        task = self.cluster.tasks.get(event.task)
        place = None if task is None else task.place
        if isinstance(event, ev.TaskStarted) and event.machine in self.cluster.machines:
            row = self.cluster.machines[event.machine].row
        else:
            row = -1 if place is None else place.row
        self.futures.advance(row, now)
        turn = -1 if task is None else task.turn
        self.scheduler.apply(event)
        if row >= 0:
            self.futures.settle(row, now)
        if task is not None and place is not None and not isinstance(event, ev.TaskStarted):
            trace = self._traces.pop(task, None)
            if trace is not None and trace.turn == turn and isinstance(event, ev.TaskCompleted):
                self._observe(task, trace, now - place.since)

    def _task_sampled(self, event: ev.UsageSampled, now: float) -> None:
        task = self.cluster.task(event.task)
        if task.place is None:
            return
        usage = self._vector(event.usage)
        squeezed = self._compression(task.place.row, now)
        trace_of(self._traces, task).add(now - task.place.since, usage, squeezed)

    def _vector(self, amounts: Mapping[str, float]) -> Floats:
        return np.array([amounts.get(name, 0.0) for name in self.cluster.resources.names], np.float64)

    def _compression(self, row: int, now: float) -> float:
        """What the tasks of a machine are compressed by, as planned."""
        if row >= len(self._seen):
            return 0.0
        lines = self.futures.timelines
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

    def _observe(self, task: TaskRecord, trace: TaskTrace, duration: float) -> None:
        cls = task.group.cls
        if cls.kind is None or not trace.times or duration <= 0:
            return
        columns = np.column_stack([trace.usage, trace.compression])
        by_point = by_progress(trace.times, columns, duration, self.estimator.points)
        self.estimator.observe(cls.kind, by_point[:, :-1], duration, by_point[:, -1])

    def _machine_sampled(self, event: ev.MachineSampled, now: float) -> None:
        record = self.cluster.machine(event.id)
        row = record.row
        self._grow()
        self._refresh(np.array([row]), now)
        total = self.cluster.books.capacity[row] / MICRO
        watch = self._watches.setdefault(row, MachineWatch(self._adjustment, total))
        lines = self.futures.timelines
        left = lines.available[row, lines.present(np.array([row]), now)[0]]
        estimated = (self.cluster.books.capacity[row] - left) / MICRO
        expected_of_ours = estimated - self.futures.foreign[row] / MICRO
        measured = [t for task in record.tasks if (t := self._traces.get(task)) is not None and t.turn == task.turn]
        if len(measured) == len(record.tasks):
            ours = np.sum([t.usage[-1] for t in measured], axis=0) if measured else np.zeros(len(total))
        else:
            ours = np.maximum(expected_of_ours, 0.0)
        foreign = np.ceil(watch.add(now, self._vector(event.usage), ours, estimated) * MICRO).astype(np.int64)
        level = min(watch.level, self.highest)
        self._suspects.pop(row, None)
        if level == Level.STOP:
            self._suspects[row] = None
        changed = np.abs(foreign - self.futures.foreign[row]) > _FOREIGN * self.cluster.books.capacity[row]
        if changed.any() or level != self._level[row]:
            self.futures.advance(row, now)
            self.futures.foreign[row] = foreign
            self._level[row] = level
            self.futures.compress[row] = level == Level.COMPRESSED
            self.cluster.books.touch(row)

    @property
    def now(self) -> float:
        """The time of the present round, or the last one."""
        return self._now

    def first_demand(self, cls: int) -> Floats:
        """What tasks of a class, by index, need in their first stage."""
        demand: Floats = self.futures.needs(self.cluster.by_class[cls]).fine.demand[0]
        return demand

    def look(self, rows: Ints) -> None:
        """Bring the timelines of machines, by row, up to date."""
        self._grow()
        self._refresh(rows, self._now)

    def level(self, machine: Hashable) -> Level:
        """How finely a machine is matched now."""
        row = self.cluster.machine(machine).row
        return Level(int(self._level[row])) if row < len(self._level) else self.highest

    # -- learning -----------------------------------------------------------------------------------------------

    def learn(self, most: int | None = None) -> None:
        """Take in what was observed; called after every commit, so that no decision waits for it."""
        stale: dict[Hashable, None] = {}
        for kind in self.estimator.update(most):
            profile = self.estimator.profile(kind)
            seen, before = (0 if profile is None else profile.samples), self._divided.get(kind, 0)
            if seen and seen - before >= min(max(before // 4, 1), 20):
                self._divided[kind] = seen
                stale[kind] = None
        if stale:
            classes, rows = self.futures.renew(stale, self.estimator.key)
            for row in rows:
                self.cluster.books.touch(row)
            self._kernel.clear()
            self.scheduler.look_anew([cls.index for cls in classes])
        if len(self._divided) > 2 * len(self.estimator) + 64:
            self._divided = {k: n for k, n in self._divided.items() if self.estimator.profile(k) is not None}
        self.futures.compact()

    def _estimate(self, cls: ClassRecord) -> Stages | None:
        profile = None if cls.kind is None or self.highest <= Level.REQUEST else self.estimator.profile(cls.kind)
        if profile is None:
            return None
        demand = profile.demand
        if self.cluster.resources.device_index >= 0:
            demand[:, self.cluster.resources.device_index] = 0
        peak = demand.max(axis=0)
        thresholds = np.where(peak > 0, self._threshold * peak, math.inf)
        stages = divide_stages(profile, thresholds=thresholds, min_length=self._min_length)
        return stages if stages.duration > 0 else None

    # -- a round ------------------------------------------------------------------------------------------------

    def schedule(self, now: float, time_limit: float | None = None) -> Round:
        """Decide; see `Scheduler.schedule`.

        On machines where estimates fail badly and tasks have degraded, the youngest task is stopped (`Preempt` with
        ``by=None``).
        """
        self._now = now
        self._grow()
        if self.cluster.waiting:
            self._look_at_due(now)
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

    def _look_at_due(self, now: float) -> None:
        """Machines that have more to offer since a stage ended there, those first that have had it for longest."""
        futures, books = self.futures, self.cluster.books
        rows = np.flatnonzero(futures.due <= now)
        most = max(_DUE, len(self.cluster.by_row) // 100)
        if len(rows) > most:
            rows = rows[np.argsort(futures.due[rows], kind="stable")[:most]]
        futures.wait_for(rows, now)
        for row in rows.tolist():
            self._refused.pop(row, None)
            if row not in self.cluster.by_row:
                continue
            current = self._seen[row] == books.version[row]
            books.touch(row)
            if futures.done[row] <= now:
                futures.advance(row, now)
            elif current:  # what was predicted still holds
                self._seen[row] = books.version[row]

    def _reclaim(self, round: Round, now: float) -> dict[int, TaskRecord]:
        """The youngest task of each machine that is in trouble, once per sample."""
        found = {}
        for row in self._suspects:
            record = self.cluster.by_row.get(row)
            if (
                record is not None
                and len(record.tasks) > 1
                and self.futures.degraded(row, now, self._adjustment.degraded)
            ):
                youngest = max(record.tasks, key=lambda task: task.turn)
                if youngest.id not in round.preemptions and youngest.id not in round.migrations:
                    found[row] = youngest
        self._suspects.clear()
        return found

    def commit(self, round: Round, only: Collection[Hashable] | None = None) -> Commit:
        """Let a round happen; see `Scheduler.commit`.  Then take in what was learnt."""
        self._now = max(self._now, round.now)
        ours = [delta for delta in round.deltas if isinstance(delta, Preempt) and delta.by is None]
        accepted, conflicts = self._stop(ours, round)
        rest = tuple(delta for delta in round.deltas if delta not in ours) if ours else round.deltas
        done = self.scheduler.commit(round if not ours else replace(round, deltas=rest), only)
        machines = {m for d in done.accepted for m in ((d.machine, d.old) if isinstance(d, Migrate) else (d.machine,))}
        for row in sorted(self.cluster.machines[machine].row for machine in machines):
            self.futures.settle(row, round.now)
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
            row = task.place.row
            self.futures.advance(row, round.now)
            self.cluster.stop(task, round.now)
            self.futures.settle(row, round.now)
            self._traces.pop(task, None)
            accepted.append(delta)
        return accepted, conflicts

    def __getattr__(self, name: str) -> Any:
        """Everything else is the scheduler's: `explain`, `abort`, `policy`, ..."""
        if name == "scheduler":
            raise AttributeError(name)
        return getattr(self.scheduler, name)

    # -- the rule of the books ----------------------------------------------------------------------------------

    def room(self, classes: Ints, rows: Ints) -> tuple[Ints, NDArray[np.uint32]]:
        """Algorithm 2 for many classes and machines; see `FitRule.room`."""
        self._grow()
        self._refresh(rows, self._now)
        count, short = np.zeros((len(classes), len(rows)), np.int64), np.zeros((len(classes), len(rows)), np.int8)
        level = self._level[rows]
        for name, levels in (
            ("fine", level >= Level.FINE),
            ("coarse", level == Level.COARSE),
            ("request", level == Level.REQUEST),
        ):
            mine = np.flatnonzero(levels)
            if len(mine) and len(classes):
                part = self.futures.timelines.fits(self._stages(classes, name), rows[mine], self._now)
                count[:, mine], short[:, mine] = part
        self._close(classes, rows, level, count, short)
        why = np.where(short >= 0, np.uint32(RESOURCE) << np.maximum(short, 0).astype(np.uint32), 0).astype(np.uint32)
        return count, why

    def _close(self, classes: Ints, rows: Ints, level: Ints, count: Ints, short: NDArray[np.int8]) -> None:
        """Machines that take nothing, and what was refused although it seemed to fit."""
        for i in np.flatnonzero(level == Level.STOP).tolist():
            count[:, i], short[:, i] = 0, 0
        if self._idle:
            for i, row in enumerate(rows.tolist()):
                watch = self._watches.get(row)
                total = self.cluster.books.capacity[row] / MICRO
                if watch is not None and (watch.idle < self._idle * total).any():
                    count[:, i], short[:, i] = 0, int((watch.idle < self._idle * total).argmax())
        if self._refused:
            of = {cls: i for i, cls in enumerate(classes.tolist())}
            for i, row in enumerate(rows.tolist()):
                for cls, resource in self._refusals(row).items():
                    if cls in of:
                        count[of[cls], i], short[of[cls], i] = 0, resource

    def _refusals(self, row: int) -> dict[int, int]:
        """What `admits` refused on a machine since its tasks last changed."""
        turns, refused = self._refused.get(row, ((), {}))
        record = self.cluster.by_row.get(row)
        if refused and (record is None or turns != [task.turn for task in record.tasks]):
            del self._refused[row]
            return {}
        return refused

    def _stages(self, classes: Ints, name: str) -> Classes:
        """The stages of some classes in the kernel's form; what was asked for is kept for a while."""
        resources = len(self.cluster.resources.names)
        needs = [self.futures.needs(self.cluster.by_class[index]) for index in classes.tolist()]
        if name != "fine":
            return Classes([getattr(need, name) for need in needs], resources)
        key = tuple(need.serial for need in needs)
        if key not in self._kernel:
            if len(self._kernel) >= _KEPT:
                self._kernel.clear()
            self._kernel[key] = Classes([need.fine for need in needs], resources)
        return self._kernel[key]

    def admits(self, row: int, cls: int, without: Sequence[TaskRecord] = ()) -> bool:
        """Whether one more task fits with all others, over time and stretched by compression; see `FitRule.admits`."""
        self._grow()
        level = self._level[row]
        record = self.cluster.by_class[cls]
        if level == Level.STOP or not (without or self._seems_to_fit(row, cls, level)):
            return False
        need = self.futures.needs(record)
        stages = need.fine if level >= Level.FINE else need.coarse if level == Level.COARSE else need.request
        plan = self.futures.plan(row, self._now, record, stages, without)
        late = plan.prediction.worst > 0 and missed(plan.prediction.finish, plan.uncompressed, plan.deadline).any()
        if plan.prediction.short < 0 and not late:
            return True
        if not without:
            turns = [task.turn for task in self.cluster.by_row[row].tasks]
            refused = self._refusals(row)
            resource = (
                plan.prediction.short if plan.prediction.short >= 0 else int(self.futures.timelines.soft.argmax())
            )
            self._refused[row] = turns, {**refused, cls: resource}
            self.cluster.books.touch(row)
            self._seen[row] = self.cluster.books.version[row]  # its tasks are the same
        return False

    def _seems_to_fit(self, row: int, cls: int, level: int) -> bool:
        """`room` for one pair."""
        one, rows = np.array([cls]), np.array([row])
        if level < Level.FINE or self._idle or row in self._refused:
            return bool(self.room(one, rows)[0][0, 0])
        self._refresh(rows, self._now)
        return bool(self.futures.timelines.fits(self._stages(one, "fine"), rows, self._now)[0][0, 0])

    def _refresh(self, rows: Ints, now: float) -> None:
        """Work out the timelines of machines that changed."""
        version = self.cluster.books.version
        for row in rows[self._seen[rows] != version[rows]].tolist():
            self._seen[row] = version[row]
            if row in self.cluster.by_row:
                self.futures.refresh(row, now)

    def _grow(self) -> None:
        rows = self.cluster.books.rows
        if rows > len(self._seen):
            self.futures.grow(rows)
            more = len(self.futures.due) - len(self._seen)
            self._level = np.concatenate([self._level, np.full(more, self.highest, np.int64)])
            self._seen = np.concatenate([self._seen, np.full(more, -1, np.int64)])
            self.futures.compress[-more:] = self.highest == Level.COMPRESSED
