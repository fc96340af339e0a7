"""The engine of FGM: around the engine of a scheduler, it keeps the forecast of every machine up to date.

::

    events, samples -> StageEngine --+-> learner (between rounds)           -> needs of the tasks of a class, by stages
                           |         +-> forecast (at every event)          -> free amounts of each machine, by stages
                           v
                    engine of the scheduler, by the fit rule of its cluster (`StageRule`)
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster import Cluster
from flowsched.cluster import events as ev
from flowsched.cluster.records import Group, TaskClass, TaskRecord
from flowsched.exceptions import InputError
from flowsched.fgm.cost import StageCost
from flowsched.fgm.estimate import DemandEstimator
from flowsched.fgm.export import learn, rule_lines
from flowsched.fgm.observer import Observer
from flowsched.fgm.persistence import EXTRAS, audit
from flowsched.fgm.protocols import Adoptable, FlowEngine, Plans, PlansEngine
from flowsched.fgm.rule import StageRule
from flowsched.fgm.settings import Settings
from flowsched.fgm.share import StageShare
from flowsched.journal.engine import Line
from flowsched.journal.journal import Journal
from flowsched.policy import Policy
from flowsched.policy.serialize import Makers
from flowsched.rounds.engine import State
from flowsched.rounds.values import Commit, Delta, Migrate, Preempt, Preemption, Reason, ReasonCode, Round
from flowsched.scheduler import Scheduler

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class StageEngine:
    """Decides as the engine of a scheduler does, but by stages.

    The scheduler is fresh, and its cluster's fit rule is this engine's from now on.  One that is `Adoptable` is
    adopted, and its policy gets a `StageCost` if that has a weight.  `inner` is the scheduler's engine; `rule` is the
    cluster's fit rule, another object after `replace_state`.  A `journal` will record the calls.
    """

    def __init__(
        self, scheduler: Plans, settings: Settings, estimator: DemandEstimator, journal: Journal | None = None
    ) -> None:
        self.scheduler = scheduler
        self.settings = settings
        self.estimator = estimator
        self.adapter = StageAdapter(self)
        self.journal: Journal | None = None
        adopted = isinstance(scheduler, Adoptable)
        self.inner: FlowEngine = (
            scheduler.adopt(journal) if isinstance(scheduler, Adoptable) else PlansEngine(scheduler)
        )
        self._go_by(settings.give_rule(self.cluster, estimator))
        if settings.weight and adopted:
            policy = self.policy
            self.policy = replace(policy, placement=(*policy.placement, StageCost(self, settings.weight)))

    def _go_by(self, rule: StageRule) -> None:
        self.rule, self.forecast, self.learner = rule, rule.forecast, rule.learner
        self._observer, self._evictions = Observer(rule, self.settings.highest, self.inner), Evictions(rule)

    def fresh(self) -> StageEngine:
        """Return an engine of the same settings over a new scheduler, before any event."""
        scheduler = Scheduler(resources=self.cluster.resources, seed=self.seed)
        return StageEngine(scheduler, self.settings, DemandEstimator(self.cluster.resources.names))

    @property
    def cluster(self) -> Cluster:
        """The scheduler's cluster."""
        return self.inner.cluster

    @property
    def seed(self) -> int:
        """The scheduler's seed."""
        return self.inner.seed

    @property
    def policy(self) -> Policy:
        """The scheduler's policy."""
        return self.inner.policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self.inner.policy = policy

    def state(self) -> State:
        """Return the state; the fit rule with all that FGM knows is in its cluster."""
        return self.inner.state()

    def replace_state(self, state: State, cached: bool = False) -> None:
        """Go on from another state; the estimator stays the same object, and takes over the knowledge of that state's."""
        self.inner.replace_state(state, cached)
        rule = state.cluster.inventory.rule
        assert isinstance(rule, StageRule)
        self._go_by(rule)
        self.adapter.warm_state = vars(rule.learner.estimator)
        rule.learner.estimator = self.estimator

    # -- data for costs and shares ------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Time of the present round, or of the last one."""
        return self.rule.now

    def first_demand(self, class_id: int) -> Floats:
        """Demand of tasks of a class (by index) in their first stage, shape (resources,)."""
        demand: Floats = self.rule.needs(class_id).fine.demand[0]
        return demand

    def offers(self, classes: Ints) -> Ints:
        """Largest number of tasks of each class (by index) that may be sent to each machine, shape (classes, rows)."""
        return self.inner.offers(classes)

    @property
    def left_out(self) -> Collection[Group]:
        """Groups of gangs that fell short, which are not tried again before something changes."""
        return self.inner.left_out

    # -- events -------------------------------------------------------------------------------------------------

    def apply_batch(self, events: Sequence[ev.Event]) -> tuple[ev.EndedRun, ...]:
        """Apply events in their order, and learn from samples among them; return the runs that they ended."""
        self.cluster.check_whole()
        try:
            with self.rule.busy():
                return self._observer.apply_batch(events)
        except BaseException:
            if self.journal is not None:
                for words in self._observer.side_effects():
                    self.journal.record_after(words)
            raise

    def learn(self, most: int | None) -> None:
        """Take in observations, `most` of them or all, and look again at the classes and machines that they change."""
        stale = self.learner.learn(most)
        if stale:
            classes, rows = self.forecast.renew(dict.fromkeys(stale), self.estimator.key)
            for row in rows:
                self.cluster.inventory.touch(row)
            self.rule.forget_stages()
            self.scheduler.invalidate([cls.index for cls in classes])
        self.forecast.compact()

    # -- a round ------------------------------------------------------------------------------------------------

    def decide(self, now: float, time_limit: float | None) -> tuple[Round, bool]:
        """Decide a round; return it, and True if the time limit affected it."""
        self.rule.now = now
        self._observer.date(now)
        with self.rule.deciding():
            if self.cluster.waiting:
                self.rule.look_at_due(now)
            round, late = self.inner.decide(now, time_limit)
        return self._evictions.add_to(round), late

    def fail_round(self, now: float) -> None:
        """Put the engine into its state after a round that raised an exception."""
        turn = self.cluster.turn
        with suppress(Exception):  # this round may not fail, but looks at everything that the failed one looked at
            self.decide(now, None)
        self.cluster.forget_tries(turn)
        self.inner.fail_round(now)

    def carry_out(self, round: Round, only: Collection[Hashable] | None) -> Commit:
        """Carry out a round, evictions first."""
        ours, theirs = self._evictions.parted(round.deltas)
        rest = replace(round, deltas=theirs) if ours else round
        with self._around(round.deltas, round.now):
            accepted, conflicts = self._evictions.carry_out(ours, round, self._graceful)
            done = self.inner.carry_out(rest, only)
        if not ours:
            return done
        ended = [
            ev.EndedRun(delta.task, self.cluster.task(delta.task).run, delta.machine, "Preempt") for delta in accepted
        ]
        return replace(
            done,
            accepted=(*accepted, *done.accepted),
            conflicts={**conflicts, **done.conflicts},
            ended=(*ended, *done.ended),
        )

    def impose(self, deltas: Sequence[Delta], round: Round) -> bool:
        """Carry out the deltas that a commit of this round accepted; return False if that is not possible."""
        ours, theirs = self._evictions.parted(deltas)
        with self._around(deltas, round.now):
            return self._evictions.impose(ours, round.now, self._graceful) and self.inner.impose(theirs, round)

    @property
    def _graceful(self) -> bool:
        """True if stopping runs hold their room; another scheduler than `flowsched.Scheduler` says nothing about that."""
        preemption = self.policy.preemption if isinstance(self.scheduler, Adoptable) else None
        return preemption is not None and preemption.graceful

    @contextmanager
    def _around(self, deltas: Sequence[Delta], now: float) -> Iterator[None]:
        """Advance the machines of deltas before these happen; settle them, and learn, afterwards."""
        self.rule.now = max(self.now, now)
        self.rule.grow()
        machines = {m for d in deltas for m in ((d.machine, d.old) if isinstance(d, Migrate) else (d.machine,))}
        rows = sorted(self.cluster.machines[m].row for m in machines if m in self.cluster.machines)
        self.forecast.advance(rows, now)
        with self.rule.busy():
            self.rule.look(np.array(rows, np.int64), self.now)
            yield
        self.forecast.settle(rows, now)
        self.learn(None)

    # -- recovery -----------------------------------------------------------------------------------------------

    def replay_record(self, words: Any) -> None:
        """Repeat the call of a record that is neither of events nor of a round, commit or policy.

        Records call machines and classes by their numbers.  After a state that was read from lines some have other numbers;
        a number without a machine or class is left out then.
        """
        known = self.cluster.inventory.rows
        match words:
            case ("observe", *observed):
                self.estimator.queue(*observed)
            case ("update", most):
                self.estimator.take_in(most)
            case ("learn", most):
                self.learn(most)
            case ("move", rows, now):
                self.rule.grow()
                rows = [row for row in rows if row < known]
                self.forecast.advance(rows, now)
                self.forecast.settle(rows, now)
            case ("try", task, machine, devices, time):
                with self.rule.busy():
                    self._observer.ask(ev.TaskStarted(task, machine, devices, time=time))
            case ("touch", rows, _):
                for row in rows:
                    if row < known:
                        self.cluster.inventory.touch(row)
            case ("look", rows):
                self.rule.look(np.array([row for row in rows if row < known], np.int64), self.now)
            case ("needs", class_id):
                if class_id in self.cluster.by_class:
                    self.rule.needs(class_id)
            case _:
                raise InputError(f"FineGrained does not know what {words!r} is")


class StageAdapter:
    """The `Adapter` of FGM; see `flowsched.journal.engine`."""

    name = "FineGrained"
    extras = EXTRAS

    def __init__(self, engine: StageEngine) -> None:
        self._engine = engine

    @property
    def rule(self) -> StageRule:
        """The fit rule that FGM gave to its cluster."""
        return self._engine.rule

    @property
    def description(self) -> Mapping[str, Any]:
        """Name and settings in words, the estimator's with them."""
        return self._engine.settings.words(self._engine.estimator)

    @property
    def makers(self) -> Makers:
        """Makers of costs and shares by stages."""
        engine = self._engine
        return {f"{kind.__module__}.{kind.__qualname__}": partial(kind, engine) for kind in (StageCost, StageShare)}

    @property
    def warm_state(self) -> Any:
        """The knowledge of the estimator."""
        return self._engine.estimator.__getstate__()

    @warm_state.setter
    def warm_state(self, state: Any) -> None:
        vars(self._engine.estimator).update(state)

    def keep(self, journal: Journal) -> None:
        """Record in a journal the calls of the estimator, and the effects of queries."""
        self._engine.journal = self._engine.estimator.recorder = journal
        self._engine.rule.record = journal.record

    def replay_record(self, words: Any) -> None:
        """Repeat the call of a record."""
        self._engine.replay_record(words)

    def check_state(self, state: State) -> None:
        """Refuse a fit rule that contradicts itself or its cluster."""
        audit(state.cluster.inventory.rule, state.cluster)

    def blank_cluster(self) -> Cluster:
        """Return an empty cluster with an empty fit rule of the same settings."""
        cluster = Cluster(self._engine.cluster.resources)
        self._engine.settings.give_rule(cluster, self._engine.estimator.blank())
        return cluster

    def lines(self, classes: Mapping[int, int]) -> Iterator[Line]:
        """Yield the learnt data as lines; see `flowsched.fgm.export`."""
        return rule_lines(self._engine.rule, classes)

    def read_lines(self, cluster: Cluster, classes: Mapping[int, TaskClass], lines: Sequence[Line]) -> None:
        """Give the fit rule of a rebuilt cluster the knowledge of lines."""
        learn(cluster, classes, lines)


class Evictions:
    """Adds evictions to rounds, and carries them out."""

    def __init__(self, rule: StageRule) -> None:
        self._forecast, self._learner = rule.forecast, rule.learner
        self._cluster = self._forecast.cluster

    def add_to(self, round: Round) -> Round:
        """Return the round with an eviction on each machine with degraded tasks."""
        reclaimed = self._reclaim(round)
        if not reclaimed:
            return round
        places = {task.id: self._cluster.by_row[row].id for row, task in reclaimed.items()}
        return replace(
            round,
            preemptions={**round.preemptions, **{t: Preemption(m, None, 0.0) for t, m in places.items()}},
            deltas=(*(Preempt(t, m, None) for t, m in places.items()), *round.deltas),
            turns={**round.turns, **{task.id: task.turn for task in reclaimed.values()}},
            again_at=round.now,
        )

    def _reclaim(self, round: Round) -> dict[int, TaskRecord]:
        """Find the youngest task of each machine with degraded tasks, by row; once per sample."""
        found = {}
        for row in self._learner.suspects:
            record = self._cluster.by_row.get(row)
            if (
                record is not None
                and len(record.tasks) > 1
                and self._forecast.degraded(row, round.now, self._learner.adjustment.degraded)
            ):
                youngest = max(record.tasks, key=lambda task: task.turn)
                if youngest.id not in round.preemptions and youngest.id not in round.migrations:
                    found[row] = youngest
        self._learner.suspects.clear()
        return found

    def carry_out(
        self, deltas: Sequence[Delta], round: Round, graceful: bool
    ) -> tuple[list[Delta], dict[Hashable, Reason]]:
        """Stop tasks, except those whose state has changed since this round; return the deltas, and reasons of the rest.

        With `graceful` their runs hold their room until they have stopped, see `PreemptionCost.graceful`.
        """
        accepted: list[Delta] = []
        conflicts: dict[Hashable, Reason] = {}
        for delta in deltas:
            task = self._cluster.tasks.get(delta.task)
            if task is None or task.turn != round.turns[delta.task] or task.place is None:
                conflicts[delta.task] = Reason(ReasonCode.CONFLICT, {"task": {"moved on": 1}})
            else:
                self._stop(task, round.now, graceful)
                accepted.append(delta)
        return accepted, conflicts

    def impose(self, deltas: Sequence[Delta], now: float, graceful: bool) -> bool:
        """Stop tasks without the check against a round; return False if one does not run."""
        for delta in deltas:
            task = self._cluster.tasks.get(delta.task)
            if task is None or task.place is None:
                return False
            self._stop(task, now, graceful)
        return True

    def _stop(self, task: TaskRecord, now: float, graceful: bool) -> None:
        turn, place = task.turn, task.place
        self._cluster.stop(task, now)
        if graceful and place is not None:
            self._cluster.hold(task, place)
        self._learner.ended(task, turn, None)

    @staticmethod
    def parted(deltas: Sequence[Delta]) -> tuple[tuple[Delta, ...], tuple[Delta, ...]]:
        """Divide deltas into evictions, and those that the scheduler itself has decided."""
        ours = [isinstance(delta, Preempt) and delta.by is None for delta in deltas]
        return tuple(compress(deltas, ours)), tuple(compress(deltas, (not mine for mine in ours)))
