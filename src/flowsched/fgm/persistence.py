"""What is kept of FGM: its settings in words, and what images of its state consist of."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from flowsched.cluster import Cluster
from flowsched.fgm.adjust import Adjustment, Level
from flowsched.fgm.cost import StageCost
from flowsched.fgm.estimate import DemandEstimator, _Estimate, _Seen, _Sized
from flowsched.fgm.forecast import Forecast
from flowsched.fgm.learning import Learner
from flowsched.fgm.monitor import MachineWatch, TaskTrace
from flowsched.fgm.needs import Catalog, Needs, Stock
from flowsched.fgm.protocols import StageKnowledge
from flowsched.fgm.rule import StageRule, _Refused
from flowsched.fgm.share import StageShare
from flowsched.fgm.stages import Stages
from flowsched.fgm.timeline import Classes, Timelines
from flowsched.journal.durable import Extras
from flowsched.policy.serialize import Makers, describe, rebuild

__all__ = ["EXTRAS", "described", "makers", "settings"]


def described(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What `FineGrained` was made with, in words."""
    return {"is": "FineGrained", **{name: describe(value) for name, value in settings.items()}}


def settings(description: Mapping[str, Any]) -> dict[str, Any]:
    """What to make `FineGrained` with, from words.

    Raises
    ------
    UnknownIdError
        The estimator is of a class of the caller's own.
    """
    ours = {describe(thing)["is"]: type(thing) for thing in (Adjustment(), DemandEstimator())}
    known = {name: rebuild(value, ours) for name, value in description.items() if name != "is"}
    return {**known, "highest": Level(known["highest"])}


def makers(fine: StageKnowledge) -> Makers:
    """How to make the parts of policies that go by what `fine` knows."""
    return {f"{kind.__module__}.{kind.__qualname__}": partial(kind, fine) for kind in (StageCost, StageShare)}


def _things() -> list[Any]:
    cluster, estimator, stages = Cluster(("cpu",)), DemandEstimator(("cpu",)), Stages([1], [[1]])
    for _ in range(2):
        estimator.observe("kind", [1], 1)
    estimator.update(1)
    learner = Learner(cluster, estimator, Adjustment(), 0.2, 0.05, Level.COMPRESSED)
    rule = StageRule(Forecast(cluster, Timelines(1), learner), learner, Level.COMPRESSED, 0.0)
    return [rule, TaskTrace(0), MachineWatch(Adjustment()), Needs(stages, stages, stages, 0)]


EXTRAS = Extras(
    (
        Adjustment, Level, DemandEstimator, _Estimate, _Seen, _Sized, Forecast, Learner, MachineWatch, TaskTrace, Catalog,
        Needs, Stock, StageRule, _Refused, Stages, Classes, Timelines,
    ),
    _things,
)  # fmt: skip
"""What `StageRule` refers to."""
