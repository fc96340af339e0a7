"""A controller that grows and shrinks the cluster: by the value of one more machine of each kind, against a threshold rule.

The deployment sequence's publication concludes that such a controller is needed, and states no rule.  Here the value of one more
machine is the drop in the cost of the scheduler's optimum if the machine were there: the potentials of the flow are its
derivative, for the first unit of room.  Waiting grows more expensive with age, so that the value grows until a machine is worth its price.

*By value.* Every minute, the kind with the largest value for its price is rented while that is above a limit, the machines that
boot counted as there.  *By threshold.* A machine of a kind is rented while the use of its main resource, or the demand that
waits for it, is above a limit.  Both give a machine back that has been idle for ten minutes.

Chosen beforehand: tasks of the bundled model of openb, at most two hours long, arrive in 12 hours at a rate that swings between a
tenth and nearly twice of its mean; a CPU machine costs 1 an hour, one with 8 GPUs costs 8; both boot in two minutes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.drawing import chart, write
from bench.rows import Outcome, Row
from flowsched.cluster.events import Event, JobSubmitted, MachineAdded, MachineRemoved, TaskCompleted
from flowsched.cluster.model import MICRO, Task
from flowsched.policy import LoadCost, Policy, WaitCost
from flowsched.scheduler import Scheduler
from flowsched.sim.workload import Workload

__all__ = ["add_rows", "at_price", "draw", "measure", "simulate", "values"]

_STEP, _CHECK, _BOOT, _IDLE, _HOURS = 15.0, 60.0, 120.0, 600.0, 12.0
_RESOURCES = ("cpu", "mem", "gpu")
_MOST = 8
"""Machines rented at one check."""


@dataclass(frozen=True)
class Kind:
    """A kind of machine: its capacity, and its price an hour; `main` is the resource for which it is rented."""

    capacity: Mapping[str, float]
    price: float
    main: str


KINDS = {
    "cpu": Kind({"cpu": 96, "mem": 393_216.0, "gpu": 0}, 1.0, "cpu"),
    "gpu": Kind({"cpu": 96, "mem": 393_216.0, "gpu": 8}, 8.0, "gpu"),
}


@dataclass
class Rented:
    """The machines: kind of each, those that boot with the time when they are up, and the price until now."""

    kind: dict[Hashable, str] = field(default_factory=dict)
    boots: dict[Hashable, float] = field(default_factory=dict)
    since: dict[Hashable, float] = field(default_factory=dict)
    count: int = 0
    price: float = 0.0

    def rent(self, name: str, now: float) -> None:
        """Rent a machine; it is up after its boot."""
        machine = f"{name}{self.count}"
        self.count += 1
        self.kind[machine], self.boots[machine], self.since[machine] = name, now + _BOOT, now

    def give_back(self, machine: Hashable, now: float) -> None:
        """Give a machine back."""
        self.price += KINDS[self.kind.pop(machine)].price * (now - self.since.pop(machine)) / 3600.0


Rule = Callable[[Scheduler, Rented, float], list[str]]
"""Names the kinds of the machines to rent now."""


def values(scheduler: Scheduler, now: float) -> dict[str, float]:
    """Return the value of one more machine of each kind: the drop in the cost of the optimum."""
    base = scheduler.what_if(now=now).stats.cost
    return {
        name: float(base - scheduler.what_if(MachineAdded(("more", name), kind.capacity, time=now), now=now).stats.cost)
        for name, kind in KINDS.items()
    }


def by_value(limit: float) -> Rule:
    """Return the rule by value: rent while a kind's value for its price is above `limit`."""

    def rule(scheduler: Scheduler, rented: Rented, now: float) -> list[str]:
        if not scheduler.cluster.waiting:
            return []
        trial = scheduler.copy()
        wanted: list[str] = []
        trial.apply(*(MachineAdded(m, KINDS[rented.kind[m]].capacity, time=now) for m in rented.boots))
        while len(wanted) < _MOST:
            worth = {name: value / KINDS[name].price for name, value in values(trial, now).items()}
            best = max(worth, key=worth.__getitem__)
            if worth[best] <= limit:
                break
            wanted.append(best)
            trial.apply(MachineAdded(("wanted", len(wanted)), KINDS[best].capacity, time=now))
        return wanted

    return rule


def by_threshold(limit: float) -> Rule:
    """Return the threshold rule: rent while use and waiting demand of a kind's main resource are above `limit` of the capacity."""

    def rule(scheduler: Scheduler, rented: Rented, now: float) -> list[str]:
        wanted: list[str] = []
        demands = [
            dict(zip(_RESOURCES, task.group.cls.demand, strict=True)) for task in scheduler.cluster.tasks.values()
        ]
        for name, kind in KINDS.items():
            asked = sum(one[kind.main] for one in demands if (one["gpu"] > 0) == (name == "gpu")) / MICRO
            capacity = sum(kind.capacity[kind.main] for one in rented.kind.values() if one == name)
            while asked > limit * capacity and wanted.count(name) < _MOST:
                wanted.append(name)
                capacity += kind.capacity[kind.main]
        return wanted

    return rule


def arrivals(seed: int, count: int = 600) -> list[tuple[float, Task, float]]:
    """Return time, task and duration of the tasks."""
    work = Workload.model(tasks=count, scale=0.02, seed=seed)
    drawn = [
        (task, float(seconds)) for a in work.arrivals for task, seconds in zip(a.job.tasks, a.durations, strict=True)
    ]
    at = np.linspace(0.0, 1.0, 10_000)
    rate = np.cumsum(1.0 + 0.9 * np.sin(2 * np.pi * 3 * at - np.pi / 2))
    times = np.interp((np.arange(len(drawn)) + 0.5) / len(drawn), rate / rate[-1], at) * _HOURS * 3600.0
    fits = {name: max(kind.capacity[name] for kind in KINDS.values()) for name in _RESOURCES}
    found = []
    for time, (task, seconds) in zip(times.tolist(), drawn, strict=True):
        demand = (
            dict(task.demand) if isinstance(task.demand, Mapping) else dict(zip(_RESOURCES, task.demand, strict=True))
        )
        smaller = {name: min(demand.get(name, 0.0), fits[name]) for name in _RESOURCES}
        found.append((time, Task(task.id, smaller), min(seconds, 7200.0)))
    return found


def simulate(tasks: list[tuple[float, Task, float]], rule: Rule) -> tuple[float, NDArray[np.float64]]:
    """Return the price of all machines and the wait of each task."""
    policy = Policy(placement=(LoadCost("pack"),), waiting=WaitCost(first=60.0, reserve=None), preemption=None)
    scheduler, rented = Scheduler(policy, resources=_RESOURCES), Rented()
    ending: list[tuple[float, str, Hashable]] = []
    where: dict[Hashable, Hashable] = {}
    idle: dict[Hashable, float] = {}
    busy: dict[Hashable, int] = {}
    arrived = {task.id: (time, seconds) for time, task, seconds in tasks}
    waits: dict[Hashable, float] = {}
    done, now = 0, 0.0
    while len(waits) < len(tasks) or ending:
        events: list[Event] = []
        while ending and ending[0][0] <= now:
            task = heapq.heappop(ending)[2]
            busy[where[task]] -= 1
            events.append(TaskCompleted(task, time=now))
        while done < len(tasks) and tasks[done][0] <= now:
            events.append(JobSubmitted(("job", done), [tasks[done][1]], time=now, closed=True))
            done += 1
        for machine in [machine for machine, up in rented.boots.items() if up <= now]:
            del rented.boots[machine]
            busy[machine], idle[machine] = 0, now
            events.append(MachineAdded(machine, KINDS[rented.kind[machine]].capacity, time=now))
        for machine, count in list(busy.items()):
            if count:
                idle.pop(machine, None)
            elif now - idle.setdefault(machine, now) >= _IDLE:
                del busy[machine], idle[machine]
                rented.give_back(machine, now)
                events.append(MachineRemoved(machine, time=now))
        scheduler.apply(*events)
        round_ = scheduler.schedule(now)
        scheduler.commit(round_)
        for task, machine in round_.placements.items():
            time, seconds = arrived[task]
            waits[task], where[task] = now - time, machine
            busy[machine] += 1
            heapq.heappush(ending, (now + seconds, str(task), task))
        if now % _CHECK == 0:
            for name in rule(scheduler, rented, now):
                rented.rent(name, now)
        now += _STEP
    for machine in list(rented.kind):
        rented.give_back(machine, now)
    return rented.price, np.array([waits[task.id] for _, task, _ in tasks])


@dataclass(frozen=True)
class Point:
    """Price and mean wait of a rule with a limit, means over seeds."""

    rule: str
    limit: float
    price: float
    wait: float
    late: float


_LIMITS = {"value": (10.0, 100.0, 500.0, 1500.0), "threshold": (0.5, 0.8, 1.0, 1.15, 1.3)}


def measure(quick: bool, seed: int) -> list[Point]:
    """Return a point for each rule and limit."""
    loads = [arrivals(seed + i, 120 if quick else 250) for i in range(1 if quick else 3)]
    points = []
    for name, make in (("value", by_value), ("threshold", by_threshold)):
        for limit in _LIMITS[name][:: 2 if quick else 1]:
            runs = [simulate(load, make(limit)) for load in loads]
            waits = [wait for _, wait in runs]
            points.append(Point(
                name, limit, float(np.mean([price for price, _ in runs])), float(np.mean([wait.mean() for wait in waits])),
                float(np.mean([np.quantile(wait, 0.99) for wait in waits])),
            ))  # fmt: skip
    return points


def at_price(points: list[Point]) -> list[tuple[Point, float]]:
    """Return the points by value, each with the wait that the threshold rule has at its price, by interpolation of logarithms."""
    other = sorted((point.price, point.wait) for point in points if point.rule == "threshold")
    prices, waits = np.array(other).T
    return [
        (point, float(np.exp(np.interp(point.price, prices, np.log(waits)))))
        for point in points
        if point.rule == "value" and prices[0] <= point.price <= prices[-1]
    ]


def add_rows(outcome: Outcome, points: list[Point], experiment: str) -> None:
    """Add the rows of both rules, and waits at equal prices."""
    for point in points:
        setting = f"a controller by {point.rule}, limit {point.limit:g}"
        outcome.rows.append(Row(experiment, setting, "price of the machines", point.price, better="less"))
        outcome.rows.append(
            Row(experiment, setting, "mean wait", point.wait, unit="s", note=f"99th percentile {point.late:.0f} s")
        )
    for point, wait in at_price(points):
        outcome.rows.append(Row(
            experiment, f"a controller, at a price of {point.price:.0f}", "mean wait", point.wait, wait, wait / point.wait, unit="s",
            note="by value; compared: by threshold at the same price, interpolated",
        ))  # fmt: skip


def draw(points: list[Point], folder: Path) -> Path:
    """Plot price and mean wait of both rules: lower and further left is better."""
    figure, (axes,) = chart("A controller of the cluster's size")
    for name, style in (("value", "o-"), ("threshold", "s--")):
        some = sorted((point.price, point.wait) for point in points if point.rule == name)
        axes.plot(*zip(*some, strict=True), style, label=f"by {name}")
    axes.set(xlabel="price of the machines", ylabel="mean wait, s", yscale="log")
    figure.legend(loc="outside lower center", ncols=2)
    return write(figure, folder, "sequence-controller")
