"""Random lives of FineGrained: as those of a scheduler, with samples, observations and questions among the calls."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from lives import Life, operations

import flowsched as fs
from flowsched.fgm import DemandEstimator, FineGrained, StageShare

NAMES = ("cpu", "mem", "gpu")


class FineLife(Life):
    """Draws samples as well."""

    def events(self, sched: FineGrained) -> list[fs.Event]:
        random, cluster = self.random, sched.cluster
        running = [t for t, record in cluster.tasks.items() if record.place]
        found: list[fs.Event] = []
        if random.random() < 0.5:
            for task in random.sample(running, min(len(running), 4)):
                usage = {name: random.randrange(30) / 10 for name in random.sample(NAMES, random.randint(1, 3))}
                found.append(fs.UsageSampled(task, usage, random.choice([None, random.random()]), time=self.now))
            for machine in list(cluster.machines)[: random.randrange(3)]:
                usage = {name: random.randrange(60) / 10 for name in random.sample(NAMES, random.randint(1, 3))}
                found.append(fs.MachineSampled(machine, usage, time=self.now))
        elif random.random() < 0.3:  # tasks that are alike, and come back
            tasks = [fs.Task(f"k{self.count}.{i}", {"cpu": 2, "mem": 1}, kind=f"k{self.count % 2}") for i in range(3)]
            found.append(fs.JobSubmitted(f"k{self.count}", tasks, time=self.now))
        self.now += random.choice([0.0, 0.5])
        return found + super().events(sched)


def settings(seed: int) -> dict:
    """Return arguments of a FineGrained; some start with data."""
    estimator = DemandEstimator(NAMES, points=6, cold=1, safety={"mem": 1.0}, tolerance=0.1)
    if seed % 2:
        estimator.observe("k1", [[1, 0.5, 0]] * 3 + [[0.5, 1, 0]] * 3, 20.0)
        estimator.update()
    if seed % 3:
        estimator.observe(("size", 3.0), [1, 1, 0], 10.0)
    return {"estimator": estimator, "contention": 0.5, "idle": (0.0, 0.05)[seed % 5 == 0], "weight": seed % 4}


def born(seed: int, journal: Path | fs.Journal | None = None, policy: fs.Policy | None = None) -> FineGrained:
    return FineGrained(fs.Scheduler(policy), **settings(seed), journal=journal)


def makers(fine: FineGrained) -> list:
    """Makers of policies."""
    return [
        lambda: replace(fine.policy, fairness=fs.Fairness(StageShare(fine), over="user", within=fs.MaxMin())),
        lambda: replace(fine.policy, fairness=fs.Fairness(StageShare(fine, fs.DRF()), mode="ladder")),
        lambda: replace(fine.policy, fairness=fs.Fairness(fs.SequenceShare(0.5), over="user"), step=0.5),
        lambda: fs.Policy.named("pack"),
    ]


def fine_operations(seed: int, fine: FineGrained, count: int) -> Iterator[str]:
    """Live by single calls; each is named once it has returned."""
    life = FineLife(seed)
    random = life.random
    for name in operations(seed, fine, count, makers(fine), life):
        yield name
        tasks = list(fine.cluster.tasks)
        match random.randrange(24):
            case 0:
                fine.estimator.observe(f"k{random.randrange(3)}", [1, 1, 0.1], random.randrange(1, 9), 0.05)
                yield "observe"
            case 1:
                fine.estimator.update(random.choice([None, 1]))
                yield "update"
            case 2:
                fine.learn(random.choice([None, 1]))
                yield "learn"
            case 3 if tasks:
                yield f"explain {fine.explain(random.choice(tasks)).code}"
            case 4 if tasks:
                yield f"fits {fine.cluster.fits(random.choice(tasks)).tolist()}"
            case 5:
                events = [*life.events(fine), fs.TaskCompleted("nobody", time=life.now), *life.events(fine)]
                try:
                    fine.apply(*events)
                except fs.FlowschedError as error:
                    yield f"refused {error}"
            case 6:
                yield f"what_if {fine.what_if(*life.events(fine), now=life.now).deltas}"


def known_of(fine: FineGrained) -> dict[str, object]:
    """All that FGM knows; equal only if it is to the last bit."""
    rule, forecast, learner = fine.engine.rule, fine.forecast, fine.learner
    rule.grow()  # whenever that happens, it says nothing
    lines, catalog, rows = forecast.timelines, forecast.catalog, fine.cluster.inventory.rows
    told = {
        "rule": (rule.now, rule._level[:rows], rule._seen[:rows], rule._refused),
        "rows": [a[:rows] for a in (forecast.foreign, forecast.compress, forecast.due, forecast.done, forecast._time)],
        "lines": [a[:rows] for a in (lines.ends, lines.available, lines.reach)],
        "members": forecast._members,
        "tasks": (forecast._turn, forecast._entry, forecast._stage, forecast._left, forecast._grace, forecast._begun),
        "catalog": (catalog._serial, catalog.entry, [_stages(stages) for stages in catalog.stock._stages]),
        "needs": {
            cls.index: (need.serial, list(need.entries.values()), _stages(need.fine), _stages(need.coarse))
            for cls, need in catalog._needs.items()
        },
        "learner": (learner.suspects, learner._divided),
        "traces": {t.id: (r.turn, r.times, r.usage, r.compression, r.progress) for t, r in learner._traces.items()},
        "watches": {row: sorted(vars(watch).items()) for row, watch in learner._watches.items()},
        "estimator": {kind: sorted(vars(known).items()) for kind, known in fine.estimator._known.items()},
        "pending": [(s.kind, s.demand, s.seconds, s.compression) for s in fine.estimator._pending],
    }
    return {name: _bits(value) for name, value in told.items()}


def _bits(value: object) -> object:
    if isinstance(value, np.ndarray):
        return value.shape, value.tobytes()
    if isinstance(value, dict):
        return [(key, _bits(one)) for key, one in value.items()]
    return [_bits(one) for one in value] if isinstance(value, list | tuple | deque) else repr(value)


def _stages(stages) -> tuple:
    return stages.seconds.tolist(), stages.demand.tolist(), stages.progress.tolist()
