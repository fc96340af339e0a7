"""The classes of FGM in images of a state, and the audit of a fit rule from one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from flowsched.boundary.validate import LARGEST_AMOUNT
from flowsched.cluster import Cluster
from flowsched.cluster.records import TaskClass
from flowsched.exceptions import InputError
from flowsched.fgm.adjust import Adjustment, Level
from flowsched.fgm.estimate import MOST_POINTS, DemandEstimator, Estimate, Seen, Sized
from flowsched.fgm.forecast import Forecast
from flowsched.fgm.learning import Learner, MachineWatch, TaskTrace
from flowsched.fgm.needs import Catalog, Needs, Stock
from flowsched.fgm.rule import LATE, Refused, StageRule
from flowsched.fgm.stages import Stages
from flowsched.fgm.timeline import Classes, Timelines
from flowsched.journal.snapshot import Extras


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


def audit(rule: Any, cluster: Cluster) -> None:
    """Refuse a rule that contradicts itself or the cluster; the InputError names the contradiction."""
    _must(type(rule) is StageRule, "a StageRule expected")
    forecast, learner = rule.forecast, rule.learner
    owners = rule._cluster, forecast.cluster, forecast.catalog._cluster, learner._cluster
    _must(all(owner is cluster for owner in owners) and forecast.catalog._source is learner, "parts of several states")
    points = learner.estimator.points
    _must(type(points) is int and 1 <= points <= MOST_POINTS, "estimates at more points than there can be")
    _estimates(learner.estimator)
    _stages(rule)
    lengths = {len(a) for a in (forecast.foreign, forecast.compress, forecast.due, forecast.done, forecast._time)}
    lines = forecast.timelines
    lengths |= {len(lines.ends), len(lines.available), len(lines.reach)}
    _must(len(lengths) == 1, "machines are counted in several ways")
    resources = len(cluster.resources.names)
    slots = lines.ends.shape[1]
    _must(2 <= slots <= 127, "timelines of no length")
    _must(lines.available.shape[1:] == lines.reach.shape[1:] == (slots, resources), "timelines of other resources")
    _must(forecast.foreign.shape[1] == lines.soft.shape[0] == lines.limit.shape[0] == resources, "other resources")
    _must(len(rule._level) == len(rule._seen), "levels of other machines")
    _must(np.isin(rule._level, list(Level)).all(), "a level that does not exist")
    _must(np.array_equal(forecast.compress, rule._level == Level.COMPRESSED), "compression at another level")
    tasks = forecast._turn, forecast._entry, forecast._stage, forecast._left, forecast._grace, forecast._begun
    _must(len({len(array) for array in tasks}) == 1, "tasks are counted in several ways")
    members = np.array([task for tasks in forecast._members.values() for task in tasks], np.int64)
    _must(all(type(row) is int and 0 <= row < len(forecast.due) for row in forecast._members), "an unknown machine")
    _must(((members >= 0) & (members < len(forecast._turn))).all(), "an unknown task on a machine")
    entry, stage, at = forecast._entry[members], forecast._stage[members], forecast.catalog.stock.classes.at
    _must(((entry >= 0) & (entry < len(at) - 1)).all(), "a task in unknown stages")
    _must(((stage >= 0) & (stage <= np.diff(at)[entry])).all(), "a task in an unknown stage")
    for refused in rule._refused.values():
        short = type(refused) is Refused and [resource for _, resource in refused.short.values()]
        known = short is not False and all(type(d) is int and (0 <= d < resources or d == LATE) for d in short)
        _must(known, "a refusal for want of an unknown resource")


def _must(holds: Any, what: str) -> None:
    if not holds:
        raise InputError(f"FGM: {what}")


def _estimates(estimator: Any) -> None:
    if type(estimator) is not DemandEstimator:
        return
    resources, safety = len(estimator.resources), estimator._safety
    _must(isinstance(safety, np.ndarray) and safety.dtype == np.float64, "margins without numbers")
    _must(safety.shape == (resources,) and bool(((safety >= 0) & np.isfinite(safety)).all()), "margins out of range")
    for estimate in estimator._known.values():
        _must(type(estimate) is Estimate and type(estimate.samples) is int and estimate.samples > 0, "no estimate")
        _amounts((estimate.demand, estimate.spread), (estimate.seconds, estimate.doubt), resources)
        _must(bool((estimate.doubt <= 1).all()), "an estimate out of range")
    for seen in estimator._pending:
        _must(type(seen) is Seen, "no measurement")
        _amounts((seen.demand,), (seen.seconds, seen.compression), resources)


def _amounts(amounts: Sequence[Any], times: Sequence[Any], resources: int) -> None:
    parts, shape = (*amounts, *times), np.shape(times[0])
    _must(all(isinstance(part, np.ndarray) and part.dtype == np.float64 for part in parts), "amounts without numbers")
    _must(len(shape) == 1 and {part.shape for part in times} == {shape}, "amounts at other points")
    _must({part.shape for part in amounts} == {(*shape, resources)}, "amounts of other resources")
    _must(all(bool(np.isfinite(part).all() and (part >= 0).all()) for part in parts), "amounts out of range")
    _must(all(bool((part <= LARGEST_AMOUNT).all()) for part in amounts), "amounts out of range")


def _stages(rule: StageRule) -> None:
    catalog, resources = rule.forecast.catalog, len(rule._cluster.resources.names)
    stock = catalog.stock
    _must(stock._resources == resources, "stages of other resources")
    for stages in stock._stages:
        _whole(stages, resources)
    known, stock._classes = stock._classes, None
    if known is not None:
        made = Classes(stock._stages, resources)
        same = all(np.array_equal(value, getattr(known, name)) for name, value in vars(made).items())
        _must(same, "stages in the kernel's form are not those that are known")
        stock._classes = known
    for cls, need in catalog._needs.items():
        _must(type(cls) is TaskClass and type(need) is Needs, "needs of no class")
        for stages in (need.fine, need.coarse, need.request):
            _whole(stages, resources)
        for stages, entry in need.entries.items():
            _must(
                type(entry) is int and 0 <= entry < len(stock) and stock._stages[entry] is stages,
                "needs of unknown stages",
            )
        _must(need.fine in need.entries and cls.index < len(catalog.entry), "needs without stages")
        _must(catalog.entry[cls.index] == need.entries[need.fine], "needs of other stages")


def _whole(stages: Any, resources: int) -> None:
    _must(type(stages) is Stages, "stages expected")
    parts = stages.seconds, stages.demand, stages.progress
    _must(all(isinstance(part, np.ndarray) and part.dtype == np.float64 for part in parts), "stages without numbers")
    Stages(*parts)
    _must(
        stages.seconds.ndim == 1 and stages.demand.shape == (len(stages.seconds), resources),
        "stages of other resources",
    )
