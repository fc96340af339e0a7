"""Machines that become smaller than their tasks, against plain accounts: reports are kept, and nothing starts beyond them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from effort import effort
from lives import said, world_of
from portable_files import check_books, text

import flowsched as fs
from flowsched.cluster.inventory import MOST_IN_ALL
from flowsched.exceptions import FlowschedError

NAMES = ("cpu", "mem", "gpu")
DEMANDS = [
    {"cpu": 1}, {"cpu": 2, "mem": 1}, {"mem": 2}, {"cpu": 1, "gpu": 0.5}, {"gpu": 0.25}, {"gpu": 1}, {"cpu": 3, "gpu": 2}, {},
]  # fmt: skip
POLICIES: list[Callable[[], fs.Policy]] = [
    fs.Policy,
    lambda: fs.Policy(preemption=fs.PreemptionCost()),
    lambda: fs.Policy(preemption=fs.PreemptionCost(graceful=True)),
    lambda: fs.Policy(waiting=fs.WaitCost(first=2.0, buckets=4, reserve=1), preemption=fs.PreemptionCost(3.0, 5.0)),
    lambda: fs.Policy(backfill="conservative", waiting=fs.WaitCost(first=2.0, buckets=4, reserve=1)),
    lambda: fs.Policy(fairness=fs.Fairness(over="user", within=fs.MaxMin(), reclaim=True), preemption=fs.PreemptionCost()),
    lambda: fs.Policy(fairness=fs.Fairness(fs.DRF(), mode="ladder")),
    lambda: fs.Policy(placement=(fs.FragmentationCost.of([fs.Task(0, {"gpu": 1}), fs.Task(1, {"cpu": 3})]),)),
    lambda: fs.Policy.named("pack"),
]  # fmt: skip


class Books:
    """Reported machines and tasks, in plain numbers."""

    def __init__(self, seed: int) -> None:
        self.random, self.now, self.count = Random(seed), 0.0, 0
        self.capacity: dict[str, dict[str, int]] = {}
        self.slots: dict[str, int | None] = {}
        self.demand: dict[str, dict[str, float]] = {}
        self.at: dict[str, tuple[str, tuple[int, ...]]] = {}

    def events(self, sched: fs.Scheduler) -> list[fs.Event]:
        """Return a random event; reports on machines and runs are possible ones."""
        random, machines = self.random, [*self.capacity]
        self.count += 1
        running, waiting = [*self.at], [task for task in self.demand if task not in self.at]
        waiting = [task for task in waiting if task not in sched.cluster.resting]
        match random.choice("nnuuuuuujjjjcccsssdf"):
            case "n" if len(machines) < 5:
                name = f"m{self.count}"
                return [fs.MachineAdded(name, self._kind(name), slots=self.slots[name])]
            case "u" if machines:
                name = random.choice(machines)
                capacity = self._kind(name)
                slots = self.slots[name] = self.slots[name] if random.random() < 0.7 else random.randrange(4)
                return [
                    fs.MachineUpdated(
                        name, capacity, random.choice([None, "r"]), random.choice([None, {"a": "b"}]), slots
                    )
                ]
            case "j":
                tasks = [
                    fs.Task(f"t{self.count}.{i}", random.choice(DEMANDS), duration=random.choice([None, 5.0]))
                    for i in range(random.randint(1, 5))
                ]
                self.demand |= {task.id: dict(task.demand) for task in tasks}
                gang = random.choice([None, None, None, min(2, len(tasks))])
                return [
                    fs.JobSubmitted(f"j{self.count}", tasks, random.choice(["ann", "bob"]), random.randrange(3), gang)
                ]
            case "c" if running:
                over = random.sample(running, min(len(running), random.randint(1, 2)))
                kind = random.choice([fs.TaskCompleted, fs.TaskFailed, fs.TaskRemoved])
                for task in over:
                    del self.at[task]
                    if kind is not fs.TaskFailed:
                        del self.demand[task]
                return [kind(task) for task in over]
            case "s" if waiting and machines:  # a run that another scheduler or an earlier driver has begun
                task, name = random.choice(waiting), random.choice(machines)
                count = max(1, int(self.demand[task].get("gpu", 0))) if self.demand[task].get("gpu") else 0
                devices = random.choice([None, tuple(random.sample(range(6), count))])
                return [fs.TaskStarted(task, name, devices)]
            case "d" if machines and random.random() < 0.5:
                return [fs.MachineDrained(random.choice(machines))]
            case "f" if len(machines) > 1:
                name = random.choice(machines)
                del self.capacity[name], self.slots[name]
                self.at = {task: at for task, at in self.at.items() if at[0] != name}
                return [fs.MachineRemoved(name)]
        return [fs.TaskStopped(stop.task, run) for run, stop in sched.cluster.stopping.items() if random.random() < 0.5]

    def _kind(self, name: str) -> dict[str, int]:
        random = self.random
        self.slots.setdefault(name, random.choice([None, None, 3]))
        self.capacity[name] = {
            "cpu": random.choice([0, 1, 2, 4, 8]),
            "mem": random.choice([0, 1, 4]),
            "gpu": random.choice([0, 1, 2, 4]),
        }
        return {resource: amount for resource, amount in self.capacity[name].items() if amount}

    def read(self, cluster: Any) -> None:
        """Take over where tasks run."""
        self.at = {id: (cluster.placement(id), task.devices) for id, task in cluster.tasks.items() if task.place}
        self.demand = {id: self.demand[id] for id in cluster.tasks}

    def left(self, name: str) -> tuple[dict[str, float], Counter[int], int | None]:
        """Free part of each resource of a machine, of each present or former device, and of its slots."""
        left: dict[str, float] = dict(self.capacity[name])
        devices: Counter[int] = Counter(dict.fromkeys(range(self.capacity[name]["gpu"]), 1))
        here = [task for task, (machine, _) in self.at.items() if machine == name]
        for task in here:
            for resource, amount in self.demand[task].items():
                left[resource] -= amount
            for device in self.at[task][1]:
                devices[device] -= min(self.demand[task]["gpu"], 1)
        slots = self.slots[name]
        return left, devices, None if slots is None else slots - len(here)

    def is_over(self, name: str) -> bool:
        left, devices, slots = self.left(name)
        return min([*left.values(), *devices.values(), *([] if slots is None else [slots])]) < 0


def lived(seed: int, steps: int, folder: Path | None = None) -> Counter[str]:
    """Run a random history; no start exceeds the reported capacity, and tasks that end leave their room."""
    books, random, met = Books(seed), Random(seed), Counter[str]()
    make = random.choice(POLICIES)
    sched = fs.Scheduler(make(), resources=NAMES, journal=None if folder is None else folder / "journal")
    for _ in range(steps):
        cluster = sched.cluster
        sched.apply(*books.events(sched))
        books.read(cluster)
        check_books(sched)
        for name in books.capacity:
            left, _, slots = books.left(name)
            if not cluster.stopping:
                assert cluster.free(name) == pytest.approx(left)
            if books.is_over(name):
                met["over"] += 1
                waiting = [task for task in books.demand if task not in books.at]
                assert all(cluster.fits(task, [name]).tolist() == [0] for task in waiting[:3])
                met["idle slot"] += slots is None or slots > 0
        if random.random() < 0.1:
            others = [
                sched.copy(),
                fs.Scheduler.restore(sched.snapshot(), make()),
                fs.Scheduler.import_state(text(sched)),
            ]
            for other in others:
                check_books(other)
                assert text(other) == text(sched)
            assert world_of(others[0]) == world_of(others[1]) == world_of(sched)
            assert said(others[0].schedule(books.now)) == said(others[1].schedule(books.now))
        if random.random() < 0.5:
            books.now += random.choice([0.0, 1.0, 30.0])
            if random.random() < 0.1:
                sched.what_if(*(fs.MachineUpdated(name, {"cpu": 1}) for name in books.capacity), now=books.now)
            rnd = sched.schedule(books.now)
            only = random.choice([None, None, [*rnd.placements][::2]])
            done = sched.commit(rnd, only)
            begun = {delta.machine for delta in done.accepted if not isinstance(delta, fs.Preempt)}
            books.read(cluster)
            check_books(sched)
            for name in begun:
                assert not books.is_over(name), (seed, name, books.left(name))
            graceful = sched.policy.preemption is not None and sched.policy.preemption.graceful
            for victim, why in rnd.preemptions.items():
                assert graceful or why.by in rnd.placements or why.by in rnd.migrations, (seed, victim)
            met["starts"] += len(begun)
            met["preempted"] += len(rnd.preemptions)
    if folder is not None:
        assert sched.journal is not None
        kept = sched.copy()
        sched.journal.close()
        sched = fs.Scheduler.restore(folder / "journal", make())
        assert world_of(sched) == world_of(kept)
        check_books(sched)
    for task in [*books.at]:
        sched.apply(fs.TaskCompleted(task))
    sched.apply(*(fs.TaskStopped(stop.task, run) for run, stop in [*sched.cluster.stopping.items()]))
    for name, capacity in books.capacity.items():
        assert sched.cluster.free(name) == capacity
    return met


@pytest.mark.parametrize("seed", range(effort(8, 3000)))
def test_nothing_starts_beyond_the_reported_capacity(seed: int, tmp_path: Path) -> None:
    met = lived(seed, 50, tmp_path if seed % 6 == 0 else None)
    assert met["starts"]


def test_the_histories_cover_their_cases() -> None:
    met = sum((lived(seed, 60) for seed in range(6)), Counter[str]())
    assert met["over"] > 100 and met["idle slot"] > 50 and met["preempted"] > 5, met


def machine_of_six(policy: fs.Policy | None = None) -> fs.Scheduler:
    """Six tasks of one core run on a machine that has become one of four cores, and two more wait."""
    sched = fs.Scheduler(policy, resources=("cpu", "mem"))
    sched.apply(
        fs.MachineAdded("m", {"cpu": 8, "mem": 8}),
        fs.JobSubmitted("j", [fs.Task(i, {"cpu": 1}) for i in range(6)], priority=5),
    )
    sched.commit(sched.schedule(0.0))
    sched.apply(fs.MachineUpdated("m", {"cpu": 4, "mem": 8}))
    return sched


def test_a_better_task_makes_others_leave_until_all_fits() -> None:
    sched = machine_of_six(fs.Policy(preemption=fs.PreemptionCost()))
    sched.apply(
        fs.JobSubmitted("mem", [fs.Task("mem", {"mem": 1})], priority=9),
        fs.JobSubmitted("best", [fs.Task("best", {"cpu": 2})]),
    )
    rnd = sched.schedule(1.0)
    assert rnd.placements["best"] == "m" and len(rnd.preemptions) == 4
    sched.commit(rnd)
    assert sched.cluster.free("m")["cpu"] == 0


def test_what_asks_for_nothing_that_lacks_waits_as_well() -> None:
    sched = machine_of_six()
    sched.apply(fs.JobSubmitted("mem", [fs.Task("mem", {"mem": 1})], priority=9))
    rnd = sched.schedule(1.0)
    assert rnd.waiting["mem"].code == fs.ReasonCode.NO_FIT
    assert rnd.waiting["mem"].detail == {"4 cpu, 8 mem": {"cpu": 1}}
    assert sched.what_if(fs.TaskCompleted(0), fs.TaskCompleted(1), now=1.0).placements == {"mem": "m"}
    assert sched.cluster.free("m") == {"cpu": -2, "mem": 8}


def test_a_machine_beyond_its_slots_keeps_its_runs_in_the_flow() -> None:
    """Otherwise the flow would send them elsewhere, in the way of tasks that wait."""
    sched = fs.Scheduler(resources=("cpu",))
    sched.apply(
        fs.MachineAdded("m", {"cpu": 8}, slots=6), fs.JobSubmitted("j", [fs.Task(i, {"cpu": 1}) for i in range(7)])
    )
    sched.commit(sched.schedule(0.0))
    sched.apply(fs.MachineUpdated("m", slots=2), fs.MachineAdded("n", {"cpu": 8}, slots=2))
    sched.apply(fs.JobSubmitted("worse", [fs.Task("worse", {"cpu": 1})], priority=9))
    assert dict(sched.schedule(1.0).placements) == {6: "n", "worse": "n"}
    sched.network.certify()


def test_devices_take_the_memory_of_the_reported_number() -> None:
    sched = fs.Scheduler(resources=("cpu", "gpu"))
    sched.apply(*(fs.MachineAdded(i, {"cpu": 8, "gpu": 8}) for i in range(500)))
    before = len(sched.snapshot())
    sched.apply(fs.MachineAdded("x", {"cpu": 8, "gpu": 4096}))
    assert len(sched.snapshot()) - before < 200_000
    assert fs.Scheduler.import_state(text(sched)).cluster.machines["x"].capacity == {"cpu": 8, "gpu": 4096}
    for i in range(20):
        sched.apply(fs.MachineRemoved("x"))
        sched.schedule(float(i))
        sched.apply(fs.MachineAdded("x", {"cpu": 8, "gpu": 4096}))
    assert sched.cluster.inventory.devices.nbytes < 1 << 20
    sched.apply(fs.MachineRemoved("x"))
    sched.schedule(99.0)
    assert len(sched.snapshot()) < 2.1 * before and sched.cluster.inventory.devices.nbytes < 200_000


def test_what_an_import_would_refuse_cannot_come_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 40
    for module in ("inventory", "rebuild"):
        monkeypatch.setattr(f"flowsched.cluster.{module}.MOST_IN_ALL", most)
    random, refused = Random(1), 0
    sched = fs.Scheduler(resources=("cpu", "gpu"))
    for step in range(150):
        count, name = random.randrange(16), random.randrange(8)
        machines = [fs.MachineAdded((step, i), {"gpu": count}) for i in range(random.randrange(3))]
        known = name in sched.cluster.machines
        events = [
            *machines,
            fs.MachineUpdated(name, {"gpu": count}) if known else fs.MachineAdded(name, {"gpu": count}),
        ]
        events += [
            fs.MachineRemoved(one) for one in random.sample([*sched.cluster.machines], len(sched.cluster.machines) // 3)
        ]
        before = text(sched)
        try:
            sched.apply(*events, atomic=True)
        except FlowschedError as error:
            refused += 1
            assert "more than 40" in str(error) and text(sched) == before
        sched.schedule(0.0)
        fs.Scheduler.import_state(text(sched))
    assert 10 < refused < 140 and most < MOST_IN_ALL
