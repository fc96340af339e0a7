"""Histories of gangs and single tasks with exact estimates, and an own reckoning of when a gang at the head of the line starts."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from dataclasses import dataclass, field
from math import inf
from typing import Any

import flowsched as fs

MICRO = 1_000_000


@dataclass
class Unit:
    """Tasks that start together: a gang, or a single task."""

    name: str
    priority: int
    arrival: int
    demands: list[dict[str, float]]
    durations: list[float]
    apart: int | None = None
    began: float | None = None

    @property
    def standing(self) -> tuple[int, int]:
        return self.priority, self.arrival


@dataclass
class World:
    """Machines, and their running tasks with the expected ends."""

    capacity: dict[str, dict[str, float]]
    slots: dict[str, int | None]
    running: dict[Any, tuple[str, float, dict[str, float], tuple[int, ...], str]] = field(default_factory=dict)

    def shadow(self, unit: Unit, now: float) -> float:
        """Return when the tasks of a unit fit for the first time if no other starts: EASY's reservation for the first in line."""
        times = sorted({end for _, end, *_ in self.running.values() if end > now})
        return next((time for time in [now, *times] if self._fit(unit, time)), inf)

    def _fit(self, unit: Unit, time: float) -> bool:
        """Return whether the tasks, which are all alike, fit once those have ended that end by then."""
        demand, room = unit.demands[0], 0
        for machine, capacity in self.capacity.items():
            here = [run for run in self.running.values() if run[0] == machine and run[1] > time]
            most = len(unit.demands) if unit.apart is None else unit.apart - sum(run[4] == unit.name for run in here)
            if (slots := self.slots[machine]) is not None:
                most = min(most, slots - len(here))
            for name, amount in demand.items():
                if amount and name != "gpu":
                    used = sum(round(run[2].get(name, 0) * MICRO) for run in here)
                    most = min(most, (round(capacity.get(name, 0) * MICRO) - used) // round(amount * MICRO))
            if demand.get("gpu"):
                taken = Counter(device for run in here for device in run[3])
                shared = {device for run in here if 0 < run[2].get("gpu", 0) < 1 for device in run[3]}
                whole = sum(device not in taken for device in range(int(capacity.get("gpu", 0))))
                share = demand["gpu"]
                if share >= 1:
                    most = min(most, whole // int(share))
                else:
                    parts = int(1 / share)
                    most = min(most, whole * parts + sum(max(parts - taken[device], 0) for device in shared))
            room += max(most, 0)
        return room >= len(unit.demands)


@dataclass
class Life:
    """One history.

    Attributes
    ----------
    late : list
        Gangs that started later than their bound, or not at all: name, bound and start.
    half : list
        Rounds after which a part of a gang ran.
    """

    late: list[tuple[str, float, float | None]] = field(default_factory=list)
    half: list[tuple[str, float]] = field(default_factory=list)
    gangs: int = 0
    waited: float = 0.0


def live(seed: int, events: int = 60, gangs: int = 4) -> Life:
    """Run a history drawn by the seed.

    The bound of a gang: let t be the last time at which a unit ahead of it in the line, by priority and then arrival, waits
    or starts.  The gang starts no later than `World.shadow` at t.
    """
    rng = random.Random(seed)
    devices = rng.random() < 0.3
    resources = ("cpu", "mem", "gpu") if devices else rng.choice([("cpu",), ("cpu", "mem")])
    machines = rng.randint(2, 7)
    sizes = rng.choice([[8], [4, 8], [2, 8, 16]])
    world = World({}, {})
    policy = fs.Policy(preemption=None, backfill=rng.choice(["easy", "conservative"]))
    sched = fs.Scheduler(policy, resources=resources)
    for i in range(machines):
        name, size = f"m{i}", rng.choice(sizes)
        capacity: dict[str, float] = {"cpu": size}
        if "mem" in resources:
            capacity["mem"] = rng.choice([size, 2 * size])
        if devices:
            capacity["gpu"] = rng.choice([2, 4])
        world.capacity[name], world.slots[name] = capacity, rng.choice([None, None, None, 3])
        sched.apply(fs.MachineAdded(name, capacity, slots=world.slots[name]))
    cores = sum(capacity["cpu"] for capacity in world.capacity.values())
    load, levels = rng.uniform(0.6, 1.6), rng.choice([1, 1, 3])
    lengths = rng.choice([[20.0, 40.0, 60.0], [5.0, 100.0], [7.0, 11.0, 13.0, 90.0]])
    same = rng.random() < 0.4  # gangs and single tasks are of one class, as the jobs of SWF are
    units: list[Unit] = []
    arrivals: list[tuple[float, Unit]] = []
    time, gang_at = 0.0, sorted(rng.sample(range(5, events - 5), gangs))
    for i in range(events):
        time += rng.expovariate(load * cores / (3 * 40))
        demand: dict[str, float] = {"cpu": 1 if same else rng.choice([1, 2, 3])}
        if "mem" in resources and not same:
            demand["mem"] = rng.choice([0, 1, 2])
        if devices and rng.random() < 0.5:
            demand["gpu"] = rng.choice([0.5, 1, 1, 2])
        count, apart = 1, None
        if i in gang_at:
            count = rng.randint(2, 2 * machines if same else machines)
            demand["cpu"] = 1 if same else rng.choice([1, 2, min(sizes)])
            apart = rng.choice([None, None, 1]) if not same else None
        elif same and rng.random() < 0.5:
            count = rng.randint(2, 3)
        unit = Unit(
            f"u{i}", rng.randrange(levels), i, [demand] * count, [rng.choice(lengths) for _ in range(count)], apart
        )
        arrivals.append((time, unit))
    return _played(sched, world, arrivals, units)


def _played(sched: fs.Scheduler, world: World, arrivals: list[tuple[float, Unit]], units: list[Unit]) -> Life:
    life, ends = Life(), list[tuple[float, Any]]()
    bounds: dict[str, float] = {}
    empty = World(world.capacity, world.slots)
    now, at = 0.0, 0
    while at < len(arrivals) or ends:
        now = min(arrivals[at][0] if at < len(arrivals) else inf, ends[0][0] if ends else inf)
        while ends and ends[0][0] <= now:
            task = heapq.heappop(ends)[1]
            del world.running[task]
            sched.apply(fs.TaskCompleted(task))
        while at < len(arrivals) and arrivals[at][0] <= now:
            unit = arrivals[at][1]
            at += 1
            if empty.shadow(unit, 0.0) == inf:
                continue
            units.append(unit)
            count = len(unit.demands)
            tasks = [
                fs.Task((unit.name, i), unit.demands[i], duration=unit.durations[i], apart=unit.apart)
                for i in range(count)
            ]
            gang = count if count > 1 else None
            sched.apply(fs.JobSubmitted(unit.name, tasks, priority=unit.priority, gang=gang))
        waited = [unit for unit in units if unit.began is None]
        rnd = sched.schedule(now)
        assert not sched.commit(rnd).conflicts
        known = {unit.name: unit for unit in units}
        for (name, i), machine in rnd.placements.items():
            unit = known[name]
            unit.began = now
            end = now + unit.durations[i]
            world.running[name, i] = machine, end, unit.demands[i], rnd.devices.get((name, i), ()), name
            heapq.heappush(ends, (end, (name, i)))
        for unit in waited:
            started = sum(task[0] == unit.name for task in rnd.placements)
            if 0 < started < len(unit.demands):
                life.half.append((unit.name, now))
            if len(unit.demands) == 1:
                continue
            ahead = any(other.standing < unit.standing for other in waited)
            if unit.began is None:
                if ahead or unit.name not in bounds:
                    bounds[unit.name] = world.shadow(unit, now)
            elif not ahead and unit.name in bounds and now > bounds[unit.name] + 1e-6:
                life.late.append((unit.name, bounds[unit.name], now))
            if unit.began is not None:
                life.gangs += 1
                life.waited = max(life.waited, now - arrivals[unit.arrival][0])
        if at == len(arrivals) and not ends:
            break
    life.late += [(unit.name, bounds.get(unit.name, inf), None) for unit in units if unit.began is None]
    return life
