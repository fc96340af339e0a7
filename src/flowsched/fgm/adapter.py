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

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster import Cluster
from flowsched.cluster import events as ev
from flowsched.cluster.records import TaskClass
from flowsched.exceptions import FlowschedError, InputError
from flowsched.fgm.adjust import Adjustment, Level
from flowsched.fgm.audit import audit
from flowsched.fgm.cost import StageCost
from flowsched.fgm.estimate import DemandEstimator
from flowsched.fgm.eviction import Stops
from flowsched.fgm.export import blank, learn, told
from flowsched.fgm.forecast import Forecast
from flowsched.fgm.learning import Learner
from flowsched.fgm.observer import World
from flowsched.fgm.persistence import EXTRAS, described, makers, settings
from flowsched.fgm.rule import StageRule
from flowsched.fgm.timeline import Timelines
from flowsched.journal.durable import Header, JournalOrPath, Kept, State, policy_of, twin, unpack
from flowsched.policy import Policy
from flowsched.policy.serialize import Makers, describe, parts, rebuild
from flowsched.rounds.values import Commit, Delta, Migrate, Round
from flowsched.scheduler import Scheduler
from flowsched.validate import mapping, number, part

__all__ = ["FineGrained", "Plans"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Plans(Protocol):
    """What FGM asks of the scheduler under it."""

    cluster: Cluster

    def apply(self, *events: ev.Event) -> None:
        """Hear what happened."""

    def schedule(self, now: float, time_limit: float | None = None) -> Round:
        """Decide, by the books of the cluster."""

    def commit(self, round: Round, only: Collection[Hashable] | None = None) -> Commit:
        """Make the decision so."""

    def invalidate(self, classes: Collection[int]) -> None:
        """What these classes need has changed."""


class FineGrained(Kept):
    """The adapter.

    It is told and asked everything in the scheduler's stead, and decides as `Scheduler` does, but by stages.  On machines
    where estimates fail badly and tasks have degraded, a round stops the youngest task (`Preempt` with ``by=None``).

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
    journal : Journal or path, optional
        Where to write down what happens, as for `Scheduler`, which then has none.  If something is in it, settings must be
        those with which it was begun, and the estimator comes to know what it knew then, and has learnt since.

    Attributes
    ----------
    scheduler : Plans
    cluster : Cluster
    estimator : DemandEstimator
    futures : Futures
    journal, recovery, policy
        See `Scheduler`.

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

    _of = "FineGrained"
    _extras = EXTRAS
    _rule: StageRule

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
        journal: JournalOrPath | None = None,
    ) -> None:
        super().__init__()
        cluster = getattr(scheduler, "cluster", None)
        if not isinstance(cluster, Cluster) or cluster.tasks or cluster.inventory.rule is not None:
            raise InputError("FineGrained: scheduler: one without tasks and without another adapter expected")
        if isinstance(scheduler, Scheduler) and scheduler.journal is not None:
            raise InputError("FineGrained: scheduler: it has a journal, which has to be given to FineGrained instead")
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
        if journal is not None:
            if not isinstance(scheduler, Scheduler) or cluster.events:
                raise InputError("FineGrained: journal: over a flowsched.Scheduler to which nothing has happened only")
            if (listener := estimator.listener) is not None and not listener.closed:
                raise InputError("FineGrained: estimator: what it learns is in the journal of another FineGrained")
        adjustment = Adjustment() if adjustment is None else adjustment
        if not isinstance(adjustment, Adjustment):
            raise InputError(f"FineGrained: adjustment: an Adjustment expected, got {adjustment!r}")
        if highest not in tuple(Level):
            raise InputError(f"FineGrained: highest: a Level expected, got {highest!r}")
        self.scheduler = scheduler
        self.cluster = cluster
        self.estimator = estimator
        self.highest = Level(highest)
        self._settings: dict[str, Any] = {
            "compressible": compressible, "contention": contention, "threshold": threshold, "min_length": min_length,
            "adjustment": adjustment, "highest": self.highest, "idle": idle, "weight": weight,
        }  # fmt: skip
        learner = Learner(cluster, estimator, adjustment, threshold, min_length, self.highest)
        self._go_by(StageRule(Forecast(cluster, timelines, learner), learner, self.highest, idle))
        cluster.inventory.rule = self._rule
        if weight and isinstance(scheduler, Scheduler):
            policy = scheduler.policy
            scheduler.policy = replace(policy, placement=(*policy.placement, StageCost(self, weight)))
        if journal is not None:
            self._open(journal)

    def _go_by(self, rule: StageRule) -> None:
        self._rule, self.forecast, self.learner = rule, rule.forecast, rule.learner
        self._world, self._stops = World(rule, self.highest), Stops(rule)

    def _open(self, journal: JournalOrPath) -> None:
        super()._open(journal)
        assert self.journal is not None
        self._flow.journal = self.estimator.listener = self.journal  # so neither can be told anything in secret
        self._rule.heard = self.journal.heard

    # -- the world ----------------------------------------------------------------------------------------------

    def apply(self, *events: ev.Event) -> None:
        """Tell what happened; see `Cluster.apply`.  Samples (`UsageSampled`, `MachineSampled`) are what FGM learns from.

        Times matter: stages are predicted and durations learnt by them.  An event without one is of the next round.
        """
        super().apply(*events)

    def _apply(self, events: Sequence[ev.Event]) -> None:
        try:
            super()._apply(events)
        except BaseException:
            if self.journal is not None and not self.journal.behind:
                if (tried := self._world.tried) is not None:
                    self.journal.heard(("try", tried.task, tried.machine, tried.devices, tried.time))
                if self._world.moved is not None:
                    self.journal.heard(self._world.moved)
            raise

    def _live(self, events: Sequence[ev.Event], happen: Callable[[ev.Event], None]) -> None:
        with self._rule.busy():
            self._world.live(events, happen)

    @property
    def _happen(self) -> Callable[[ev.Event], None]:
        return self.cluster.apply if isinstance(self.scheduler, Scheduler) else self.scheduler.apply

    @property
    def now(self) -> float:
        """The time of the present round, or the last one."""
        return self._rule.now

    def first_demand(self, cls: int) -> Floats:
        """What tasks of a class, by index, need in their first stage."""
        demand: Floats = self._rule.needs(cls).fine.demand[0]
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
        with self._calls:
            self.cluster.check_whole()
            if self.journal is None:
                self._learn(most)
            else:
                self.journal.learning(("learn", most), lambda: self._learn(most))

    def _learn(self, most: int | None) -> None:
        stale = self.learner.learn(most)
        if stale:
            classes, rows = self.forecast.renew(dict.fromkeys(stale), self.estimator.key)
            for row in rows:
                self.cluster.inventory.touch(row)
            self._rule.forget_stages()
            self.scheduler.invalidate([cls.index for cls in classes])
        self.forecast.compact()

    # -- a round ------------------------------------------------------------------------------------------------

    def _decide(self, now: float, time_limit: float | None) -> tuple[Round, bool]:
        self._rule.now = now
        self._world.date(now)
        with self._rule.busy():
            if self.cluster.waiting:
                self._rule.look_at_due(now)
            if isinstance(self.scheduler, Scheduler):
                round, late = self.scheduler._decide(now, time_limit)
            else:
                round, late = self.scheduler.schedule(now, time_limit), False
        return self._stops.add_to(round), late

    def _carry_out(self, round: Round, only: Collection[Hashable] | None) -> Commit:
        ours, theirs = self._stops.parted(round.deltas)
        rest = replace(round, deltas=theirs) if ours else round
        with self._around(round.deltas, round.now):
            accepted, conflicts = self._stops.carry_out(ours, round)
            if isinstance(self.scheduler, Scheduler):
                done = self.scheduler._carry_out(rest, only)
            else:
                self.cluster.midway = False  # the other scheduler says it, as for any call of its own
                done = self.scheduler.commit(rest, only)
                self.cluster.midway = True
        if not ours:
            return done
        return Commit((*accepted, *done.accepted), {**conflicts, **done.conflicts})

    def _impose(self, deltas: Sequence[Delta], round: Round) -> bool:
        ours, theirs = self._stops.parted(deltas)
        with self._around(deltas, round.now):
            return self._stops.impose(ours, round.now) and self._flow._impose(theirs, round)

    @contextmanager
    def _around(self, deltas: Sequence[Delta], now: float) -> Iterator[None]:
        """Deltas happen meanwhile."""
        self._rule.now = max(self.now, now)
        self._rule.grow()
        machines = {m for d in deltas for m in ((d.machine, d.old) if isinstance(d, Migrate) else (d.machine,))}
        rows = sorted(self.cluster.machines[m].row for m in machines if m in self.cluster.machines)
        self.forecast.advance(rows, now)
        with self._rule.busy():
            self._rule.look(np.array(rows, np.int64), self.now)
            yield
        self.forecast.settle(rows, now)
        self._learn(None)

    # -- what is kept -------------------------------------------------------------------------------------------

    def _copy(self) -> FineGrained:
        """Over a scheduler of its own."""
        flow = self._flow
        other = FineGrained(Scheduler(resources=self.cluster.resources, seed=flow.seed), **self._settings)
        policy = rebuild(describe(self.policy), makers(other), parts(self.policy))
        other._take(twin(self._state(), policy, EXTRAS))
        return other

    @classmethod
    def _as_begun(cls, header: Header, policy: Policy | None, policies: Sequence[Policy], path: str) -> FineGrained:
        known = settings(header.adapter)
        fine = cls(Scheduler(policy, header.cluster_resources, header.seed), **known)
        if policy is None:
            fine.policy = policy_of(header.policy, policies, path, 0, fine._makers)
        return fine

    @property
    def _flow(self) -> Scheduler:
        if not isinstance(self.scheduler, Scheduler):
            raise InputError("FineGrained: only over a flowsched.Scheduler can it be kept or copied")
        return self.scheduler

    @property
    def _seed(self) -> int:
        return self._flow.seed

    def _aim(self) -> Policy:
        return self._flow.policy

    def _aim_at(self, policy: Policy) -> None:
        self._flow._aim_at(policy)

    def _fail(self, now: float) -> None:
        turn = self.cluster.turn
        with suppress(Exception):  # what it looked at before it failed is known from a round that need not fail
            self._decide(now, None)
        self.cluster.forget_tries(turn)
        self._flow._fail(now)

    def _state(self) -> State:
        return self._flow._state()

    def _load(self, image: bytes, policy: Policy) -> None:
        state = unpack(image, policy, self._extras)
        audit(state.cluster.inventory.rule, state.cluster)
        self._take(state)
        self._flow._read = True

    def _take(self, state: State) -> None:
        self._flow._take(state)
        self.cluster, rule = state.cluster, state.cluster.inventory.rule
        assert isinstance(rule, StageRule)
        self._go_by(rule)
        self._relearn(vars(rule.learner.estimator))
        rule.learner.estimator = self.estimator

    def _blank(self) -> Cluster:
        cluster = super()._blank()
        blank(self._rule, cluster)
        return cluster

    def _learnt_lines(self, classes: Mapping[int, int]) -> Iterator[dict[str, Any]]:
        return told(self._rule, classes)

    def _learn_lines(
        self, cluster: Cluster, classes: Mapping[int, TaskClass], learnt: Sequence[dict[str, Any]]
    ) -> None:
        learn(cluster, classes, learnt)

    def _description(self) -> Any:
        return described({**self._settings, "estimator": self.estimator})

    @property
    def _makers(self) -> Makers:
        return makers(self)

    @property
    def _learnt(self) -> Any:
        return self.estimator.__getstate__()

    def _relearn(self, learnt: Any) -> None:
        vars(self.estimator).update(learnt)

    def _hear(self, words: Any) -> None:
        match words:
            case ("observe", *observed):
                self.estimator.queue(*observed)
            case ("update", most):
                self.estimator.take_in(most)
            case ("learn", most):
                self._learn(most)
            case ("move", rows, now):
                self._rule.grow()
                self.forecast.advance(rows, now)
                self.forecast.settle(rows, now)
            case ("try", task, machine, devices, time):
                with suppress(FlowschedError):
                    self._live([ev.TaskStarted(task, machine, devices, time=time)], self._happen)
            case ("touch", rows, _):
                for row in rows:
                    self.cluster.inventory.touch(row)
            case ("look", rows):
                self._rule.look(np.array(rows, np.int64), self.now)
            case ("needs", cls):
                self._rule.needs(cls)
            case _:
                raise InputError(f"FineGrained does not know what {words!r} is")

    def __getattr__(self, name: str) -> Any:
        """Everything else is the scheduler's: `explain`, `abort`, `policy`, ..."""
        if name == "scheduler":
            raise AttributeError(name)
        return getattr(self.scheduler, name)
