"""The part of FGM in journals, snapshots and exports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from flowsched.cluster import Cluster
from flowsched.cluster.records import TaskClass
from flowsched.fgm.adjust import Adjustment, Level
from flowsched.fgm.audit import audit
from flowsched.fgm.cost import StageCost
from flowsched.fgm.estimate import DemandEstimator, Estimate, Seen, Sized
from flowsched.fgm.export import learn, told
from flowsched.fgm.forecast import Forecast
from flowsched.fgm.learning import Learner
from flowsched.fgm.monitor import MachineWatch, TaskTrace
from flowsched.fgm.needs import Catalog, Needs, Stock
from flowsched.fgm.protocols import StageKnowledge
from flowsched.fgm.rule import Refused, StageRule
from flowsched.fgm.settings import Settings
from flowsched.fgm.share import StageShare
from flowsched.fgm.stages import Stages
from flowsched.fgm.timeline import Classes, Timelines
from flowsched.journal.engine import Line
from flowsched.journal.journal import Journal
from flowsched.journal.snapshot import Extras
from flowsched.policy.serialize import Makers
from flowsched.rounds.engine import State

__all__ = ["EXTRAS", "StageAdapter"]


def _samples() -> list[Any]:
    cluster, estimator, stages = Cluster(("cpu",)), DemandEstimator(("cpu",)), Stages([1], [[1]])
    for _ in range(2):
        estimator.observe("kind", [1], 1)
    estimator.update(1)
    learner = Learner(cluster, estimator, Adjustment(), 0.2, 0.05, Level.COMPRESSED)
    rule = StageRule(Forecast(cluster, Timelines(1), learner), learner, Level.COMPRESSED, 0.0)
    return [rule, TaskTrace(0), MachineWatch(Adjustment()), Needs(stages, stages, stages, 0)]


EXTRAS = Extras(
    (
        Adjustment, Level, DemandEstimator, Estimate, Seen, Sized, Forecast, Learner, MachineWatch, TaskTrace, Catalog,
        Needs, Stock, StageRule, Refused, Stages, Classes, Timelines,
    ),
    _samples, {Estimate: "_Estimate", Seen: "_Seen", Sized: "_Sized"}, {46: Sized},
)  # fmt: skip
"""The classes that `StageRule` refers to."""


class _Kept(StageKnowledge, Protocol):
    """The part of `flowsched.fgm.engine.StageEngine` that is kept in files."""

    estimator: DemandEstimator
    journal: Journal | None

    @property
    def rule(self) -> StageRule: ...

    @property
    def settings(self) -> Settings: ...

    def replay_record(self, words: Any) -> None: ...


class StageAdapter:
    """The `Adapter` of FGM; see `flowsched.journal.engine`.

    Parameters
    ----------
    engine : StageEngine
    """

    name = "FineGrained"
    extras = EXTRAS

    def __init__(self, engine: _Kept) -> None:
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
        """Write to a journal the calls of the estimator, and the effects of questions."""
        self._engine.journal = self._engine.estimator.recorder = journal
        self._engine.rule.record = journal.record

    def replay_record(self, words: Any) -> None:
        """Make the call of a record again."""
        self._engine.replay_record(words)

    def check_state(self, state: State) -> None:
        """Refuse a fit rule that contradicts itself or its cluster."""
        audit(state.cluster.inventory.rule, state.cluster)

    def blank_cluster(self) -> Cluster:
        """Return an empty cluster with a fit rule of the same settings, which knows nothing."""
        cluster = Cluster(self._engine.cluster.resources)
        self._engine.settings.give_rule(cluster, self._engine.estimator.blank())
        return cluster

    def lines(self, classes: Mapping[int, int]) -> Iterator[Line]:
        """Yield what was learnt; see `flowsched.fgm.export`."""
        return told(self._engine.rule, classes)

    def read_lines(self, cluster: Cluster, classes: Mapping[int, TaskClass], lines: Sequence[Line]) -> None:
        """Give the fit rule of a rebuilt cluster the knowledge of lines."""
        learn(cluster, classes, lines)
