"""The knowledge of FGM as lines of `flowsched.journal.export`, and back.

Every line is ``{"is": "learnt", "what": ..., ...}``; a `kind` is that of the task, with ``step`` true where its size is
replaced by a step (see `DemandEstimator`).  Arrays are lists, with null for values that were not measured.

======== ==============================================================================================================
what     members
======== ==============================================================================================================
time     ``now``: time of the last round
kind     the estimate of a kind, the one updated least recently first: ``kind``, ``step`` [false], ``demand``,
         ``seconds``, ``spread``, ``doubt``, ``samples``; ``divided`` [0]: the samples when stages were divided last
pending  an observation that is not taken in yet: ``kind``, ``step`` [false], ``demand``, ``seconds``, ``compression``
stages   needs of tasks, stage by stage: ``stages``: a number of its own, ``seconds``, ``demand``, ``progress``
needs    the assumed needs of a class: ``class``, ``stages``: null is its request
machine  ``machine``, ``level``, ``foreign``: load of others, in micro-units, ``at`` [null]: the time of its tasks'
         states; ``watch`` [null]: its last samples; ``suspect`` [false]: its level fell to STOP since the last round
task     a running task: ``task``, ``stages``, ``stage``: the present one, ``left``: seconds of work left in it,
         ``grace``: seconds that are added if it is not done then, ``begun``; ``undated`` [false]: it began at no stated
         time, which will be the next round's; ``samples`` [null]: of its run
======== ==============================================================================================================

Only this module and `flowsched.fgm.persistence` access the internals of the others here.  Two things are left out.
Refusals of machines are computed again.  Runs that ended at no stated time since the last round are not learnt from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.boundary.validate import amounts, check_id, number, numbers, truth, whole
from flowsched.cluster import Cluster
from flowsched.cluster.records import TaskClass
from flowsched.exceptions import DuplicateIdError, InputError, UnknownIdError
from flowsched.fgm.adjust import Level
from flowsched.fgm.estimate import Estimate, Seen, Sized
from flowsched.fgm.learning import MOST, MachineWatch, TaskTrace
from flowsched.fgm.rule import StageRule
from flowsched.fgm.stages import Stages
from flowsched.journal.codec import as_ids, plain

_Line = dict[str, Any]
Floats = NDArray[np.float64]

_AMOUNT = 1 << 62


# -- export ---------------------------------------------------------------------------------------------------------


def rule_lines(rule: StageRule, classes: Mapping[int, int]) -> Iterator[_Line]:
    """Yield the lines of a rule; `classes` has the numbers of classes in them by their indices."""
    rule.grow()
    forecast, learner = rule.forecast, rule.learner
    estimator, cluster, catalog = learner.estimator, forecast.cluster, forecast.catalog
    yield {"what": "time", "now": rule.now}
    for kind, known in estimator._known.items():
        line = {"what": "kind", **_kind(kind), "samples": known.samples, "divided": learner._divided.get(kind, 0)}
        yield line | _lists(demand=known.demand, seconds=known.seconds, spread=known.spread, doubt=known.doubt)
    for seen in estimator._pending:
        arrays = _lists(demand=seen.demand, seconds=seen.seconds, compression=seen.compression)
        yield {"what": "pending", **_kind(seen.kind), **arrays}
    used = _entries(rule, classes)
    for entry in used:
        stages = catalog.stock._stages[entry]
        arrays = _lists(seconds=stages.seconds, demand=stages.demand, progress=stages.progress)
        yield {"what": "stages", "stages": used[entry], **arrays}
    for cls, need in catalog._needs.items():
        if cls.index in classes:
            fine = None if need.fine is need.request else used[need.entries[need.fine]]
            yield {"what": "needs", "class": classes[cls.index], "stages": fine}
    for record in cluster.machines.values():
        row = record.row
        line = {"what": "machine", "machine": plain(record.id), "level": int(rule.level(row))}
        line["foreign"] = forecast.foreign[row].tolist()
        if (at := float(forecast._time[row])) > -math.inf:
            line["at"] = at
        if (watch := learner._watches.get(row)) is not None:
            line["watch"] = _watch(watch)
        if row in learner.suspects:
            line["suspect"] = True
        yield line
        for task in record.tasks:
            if (state := _state(rule, row, task, used)) is not None:
                yield state


def _kind(kind: Hashable) -> _Line:
    return {"kind": plain(kind), "step": True} if isinstance(kind, Sized) else {"kind": plain(kind)}


def _lists(**arrays: Floats) -> _Line:
    return {name: array.tolist() for name, array in arrays.items()}


def _entries(rule: StageRule, classes: Mapping[int, int]) -> dict[int, int]:
    """Number the entries of the stock that are needed."""
    forecast = rule.forecast
    used = [need.entries[need.fine] for cls, need in forecast.catalog._needs.items()
            if cls.index in classes and need.fine is not need.request]  # fmt: skip
    running = [task for members in forecast._members.values() for task in members]
    used += forecast._entry[running].tolist() if running else []
    return {entry: number for number, entry in enumerate(sorted(set(used)))}


def _state(rule: StageRule, row: int, task: Any, used: Mapping[int, int]) -> _Line | None:
    """Return the line of a running task, None if nothing is known of it."""
    forecast, i = rule.forecast, task.index
    if i >= len(forecast._turn) or forecast._turn[i] != task.turn or i not in forecast._members.get(row, ()):
        return None
    line: _Line = {
        "what": "task", "task": plain(task.id), "stages": used[int(forecast._entry[i])],
        "stage": int(forecast._stage[i]),
        "left": float(forecast._left[i]), "grace": float(forecast._grace[i]), "begun": float(forecast._begun[i]),
    }  # fmt: skip
    if forecast.undated.get(task) == (task.turn, None):
        line["undated"] = True
    trace = rule.learner._traces.get(task)
    if trace is not None and trace.turn == task.turn:
        usage = [[None if math.isnan(u) else u for u in one.tolist()] for one in trace.usage]
        line["samples"] = [list(one) for one in zip(trace.times, usage, trace.compression, trace.progress, strict=True)]
    return line


def _watch(watch: MachineWatch) -> _Line:
    return {
        "level": int(watch.level), "last": watch._last, **_lists(used=watch.used, foreign=watch.foreign),
        "conformities": [one.tolist() for one in watch._conformities],
        "samples": [[one.tolist(), seconds] for one, seconds in watch._samples],
    }  # fmt: skip


# -- import ---------------------------------------------------------------------------------------------------------


def learn(cluster: Cluster, classes: Mapping[int, TaskClass], lines: Sequence[_Line]) -> None:
    """Give the rule of a rebuilt cluster the knowledge of lines; `classes` by the numbers in them.

    Raise InputError if a line has impossible values, and other errors where it is not a valid line at all.
    """
    rule = cluster.inventory.rule
    assert isinstance(rule, StageRule)
    rule.grow()
    reading = _Reading(rule, classes)
    for line in lines:
        step = reading.steps.get(line["what"])
        if step is None:
            continue  # of a later minor version
        step(line)
    rows = sorted(cluster.by_row)
    rule.forecast.settle(rows, rule.now)
    rule.forecast.compact()


class _Reading:
    """The knowledge so far, line by line."""

    def __init__(self, rule: StageRule, classes: Mapping[int, TaskClass]) -> None:
        self.rule, self.forecast, self.learner = rule, rule.forecast, rule.learner
        self.cluster, self.estimator = rule.forecast.cluster, rule.learner.estimator
        self._classes = classes
        self._stages: dict[int, tuple[Stages, int]] = {}
        self._states: set[Any] = set()
        self._width = len(self.cluster.resources.names)
        self.forecast.grow_tasks()
        self.steps: dict[str, Callable[[_Line], None]] = {
            "time": self._time, "kind": self._kind, "pending": self._pending, "stages": self._stage,
            "needs": self._needs,
            "machine": self._machine, "task": self._task,
        }  # fmt: skip

    def _time(self, line: _Line) -> None:
        self.rule.now = _finite("now", line["now"])

    def _name(self, line: _Line) -> Hashable:
        kind = as_ids(line["kind"])
        check_id("kind", kind)
        return Sized(kind) if truth("step", line.get("step", False)) else kind

    def _array(self, line: _Line, name: str, *shape: int, most: float = math.inf) -> Floats:
        array = amounts(f"{line['what']}: {name}", line[name], most)
        if array.shape != shape:
            raise InputError(f"{line['what']}: {name}: shape {shape} expected, got {array.shape}")
        return array

    def _kind(self, line: _Line) -> None:
        kind, points = self._name(line), self.estimator.points
        if kind in self.estimator._known or len(self.estimator) >= self.estimator.kinds:
            raise DuplicateIdError(f"kind {kind!r} is there twice, or there are too many")
        demand, seconds = self._array(line, "demand", points, self._width), self._array(line, "seconds", points)
        known = Estimate(Seen(kind, demand, seconds, np.zeros(points)))
        known.spread, known.doubt = self._array(line, "spread", points, self._width), self._array(line, "doubt", points)
        known.samples = whole("kind: samples", line["samples"], 1, _AMOUNT)
        self.estimator._known[kind] = known
        if divided := whole("kind: divided", line.get("divided", 0), 0, _AMOUNT):
            self.learner._divided[kind] = divided

    def _pending(self, line: _Line) -> None:
        kind = self._name(line)
        self.estimator.queue(kind, *(line[name] for name in ("demand", "seconds", "compression")))

    def _stage(self, line: _Line) -> None:
        name = whole("stages", line["stages"], 0)
        stages = Stages(line["seconds"], line["demand"], line["progress"])
        if name in self._stages or stages.demand.shape[1] != self._width or len(stages) > 1 << 20:
            raise InputError(f"stages {name}: there twice, or not of {self._width} resources")
        self._stages[name] = stages, self.forecast.catalog.stock.add(stages)

    def _needs(self, line: _Line) -> None:
        cls, catalog = _found(self._classes, line["class"], "class"), self.forecast.catalog
        if catalog.knows(cls):
            raise DuplicateIdError(f"needs of class {line['class']!r} are there twice")
        if line["stages"] is None:
            catalog.take(cls, None)
        else:
            catalog.take(cls, *_found(self._stages, line["stages"], "stages"))

    def _machine(self, line: _Line) -> None:
        row = self.cluster.machine(as_ids(line["machine"])).row
        self.rule.set_level(row, Level(whole("level", line["level"], 0, int(self.rule._highest))))
        foreign = [whole("foreign", amount, 0, _AMOUNT) for amount in line["foreign"]]
        if len(foreign) != self._width:
            raise InputError(f"foreign: {self._width} amounts expected, got {len(foreign)}")
        self.forecast.foreign[row] = foreign
        if line.get("at") is not None:
            self.forecast._time[row] = _finite("at", line["at"])
        if line.get("watch") is not None:
            self.learner._watches[row] = self._watch(line["watch"])
        if truth("suspect", line.get("suspect", False)):
            self.learner.suspects[row] = None

    def _watch(self, line: _Line) -> MachineWatch:
        line = {"what": "watch", **line}
        watch = MachineWatch(self.learner.adjustment)
        watch.level = Level(whole("watch: level", line["level"], 0, int(Level.COMPRESSED)))
        watch.used, watch.foreign = (self._array(line, name, self._width) for name in ("used", "foreign"))
        watch._last = None if line["last"] is None else _finite("watch: last", line["last"])
        for one in line["conformities"]:
            watch._conformities.append(self._array({"what": "watch", "conformities": one}, "conformities", self._width))
        for one, seconds in line["samples"]:
            sample = self._array({"what": "watch", "samples": one}, "samples", 2, self._width)
            watch._samples.append((sample, number("watch: seconds", seconds, 0)))
        if len(watch._conformities) != len(watch._samples) or bool(watch._samples) != (watch._last is not None):
            raise InputError("watch: as many conformities as samples expected, and the time of the last")
        if watch._samples and not sum(seconds for _, seconds in watch._samples) > 0:
            raise InputError("watch: samples of no time at all")
        return watch

    def _task(self, line: _Line) -> None:
        task, forecast = self.cluster.task(as_ids(line["task"])), self.forecast
        what = f"task {task.id!r}"
        if task.place is None or task in self._states:
            raise InputError(f"{what} does not run, or is there twice")
        self._states.add(task)
        stages, entry = _found(self._stages, line["stages"], "stages")
        stage = whole(f"{what}: stage", line["stage"], 0, len(stages) - 1)
        left = number(f"{what}: left", line["left"], 0, finite=bool(np.isfinite(stages.seconds[stage])))
        i, row = task.index, task.place.row
        forecast._turn[i], forecast._entry[i], forecast._stage[i], forecast._left[i] = task.turn, entry, stage, left
        forecast._grace[i] = max(number(f"{what}: grace", line["grace"], 0, finite=False), 1e-3)
        forecast._begun[i] = _finite(f"{what}: begun", line["begun"])
        forecast._members.setdefault(row, []).append(i)
        if truth(f"{what}: undated", line.get("undated", False)):
            forecast.undated[task] = task.turn, None
        if line.get("samples") is not None:
            trace = self.learner._traces[task] = TaskTrace(task.turn)
            for age, usage, compression, progress in line["samples"][-MOST:]:
                used = numbers(f"{what}: usage", [math.nan if one is None else one for one in usage])
                if used.shape != (self._width,) or (used < 0).any() or np.isinf(used).any():
                    raise InputError(f"{what}: usage: {self._width} numbers >= 0 expected, got {usage!r}")
                squeezed = min(number(f"{what}: compression", compression, 0), 1.0)
                fraction = None if progress is None else number(f"{what}: progress", progress, 0)
                trace.add(_finite(f"{what}: age", age), used, squeezed, fraction)


def _finite(what: str, value: Any) -> float:
    found = number(what, value)
    if abs(found) > 1 << 1000:
        raise InputError(f"{what}: too large")
    return float(found)


def _found(things: Mapping[int, Any], name: Any, kind: str) -> Any:
    if type(name) is not int or name not in things:
        raise UnknownIdError(f"unknown {kind} {name!r}")
    return things[name]
