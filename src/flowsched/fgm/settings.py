"""The settings of FineGrained: checked, in words, and as the fit rule that they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from flowsched.boundary.validate import instance, mapping, number, part
from flowsched.cluster import Cluster, Resources
from flowsched.exceptions import InputError
from flowsched.fgm.adjust import Adjustment, Level
from flowsched.fgm.estimate import DemandEstimator
from flowsched.fgm.forecast import Forecast
from flowsched.fgm.learning import Learner
from flowsched.fgm.rule import StageRule
from flowsched.fgm.timeline import Timelines
from flowsched.policy.serialize import describe, rebuild

_SQUEEZED = ("cpu", "disk", "net")
"""Resources that may be compressed by default, to 0.1."""


@dataclass(frozen=True)
class Settings:
    """The parameters of `FineGrained`, except scheduler, estimator and journal; for their meaning see there."""

    compressible: Mapping[str, float]
    contention: float
    threshold: float
    min_length: float
    adjustment: Adjustment
    highest: Level
    idle: float
    weight: float

    @classmethod
    def checked(
        cls,
        resources: Resources,
        compressible: Mapping[str, float] | None,
        contention: float,
        threshold: float,
        min_length: float,
        adjustment: Adjustment | None,
        highest: Level,
        idle: float,
        weight: float,
    ) -> Settings:
        """Return settings for a cluster of these resources, or raise InputError."""
        number("FineGrained: contention", contention, 0)
        if compressible is None:
            compressible = {name: 0.1 for name in _SQUEEZED if name in resources.names}
        for name, limit in mapping("FineGrained: compressible", compressible).items():
            what = f"FineGrained: compressible[{name!r}]"
            if name not in resources.names or name == resources.device:
                raise InputError(f"{what}: a resource that is not counted by devices expected")
            if number(what, limit, 0) >= 1:
                raise InputError(f"{what}: a limit from 0 to below 1 expected, got {limit!r}")
        number("FineGrained: threshold", threshold, 0, finite=False)
        number("FineGrained: weight", weight, 0)
        for what, value in (("min_length", min_length), ("idle", idle)):
            part(f"FineGrained: {what}", value)
        adjustment = Adjustment() if adjustment is None else adjustment
        instance("FineGrained: adjustment", adjustment, Adjustment)
        if highest not in tuple(Level):
            raise InputError(f"FineGrained: highest: a Level expected, got {highest!r}")
        return cls(compressible, contention, threshold, min_length, adjustment, Level(highest), idle, weight)

    def give_rule(self, cluster: Cluster, estimator: DemandEstimator) -> StageRule:
        """Give a cluster a fit rule with the knowledge of the estimator, and return the rule."""
        names = cluster.resources.names
        timelines = Timelines(len(names))
        timelines.contention = number("FineGrained: contention", self.contention, 0)
        for name, limit in self.compressible.items():
            timelines.soft[names.index(name)] = 1
            timelines.limit[names.index(name)] = limit
        learner = Learner(cluster, estimator, self.adjustment, self.threshold, self.min_length, self.highest)
        rule = StageRule(Forecast(cluster, timelines, learner), learner, self.highest, self.idle)
        cluster.inventory.rule = rule
        return rule

    def words(self, estimator: DemandEstimator) -> dict[str, Any]:
        """Describe the settings and the estimator's; `arguments` reads it."""
        known = {field.name: describe(getattr(self, field.name)) for field in fields(self)}
        return {"is": "FineGrained", **known, "estimator": describe(estimator)}


def arguments(words: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `FineGrained` that were described.

    Raise UnknownIdError if the estimator is of a class of the caller's own.
    """
    ours = {describe(thing)["is"]: type(thing) for thing in (Adjustment(), DemandEstimator())}
    known = {name: rebuild(value, ours) for name, value in words.items() if name != "is"}
    return {**known, "highest": Level(known["highest"])}
