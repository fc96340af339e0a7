"""Random histories of a cluster, against books kept by the test and the promises of a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from effort import effort
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from flowsched.cluster import MICRO, Task
from flowsched.cluster.events import (
    JobSubmitted,
    MachineAdded,
    MachineDrained,
    MachineFailed,
    MachineRemoved,
    MachineUpdated,
    TaskCompleted,
    TaskFailed,
    TaskRemoved,
    TaskSubmitted,
)
from flowsched.policy import LoadCost, Policy, PreemptionCost, WaitCost, WeightedPriority
from flowsched.rounds import Migrate, Place, Preempt, Round
from flowsched.scheduler import Scheduler

DEMANDS = [
    {"cpu": 1}, {"cpu": 2, "mem": 1}, {"cpu": 4}, {"cpu": 1, "gpu": 0.5}, {"gpu": 0.3}, {"cpu": 2, "gpu": 1}, {"gpu": 2}, {"cpu": 99}, {},
]  # fmt: skip
MACHINES = [
    ({"cpu": 4, "mem": 4}, {}, None),
    ({"cpu": 8, "mem": 4, "gpu": 2}, {"gpu_model": "T4"}, None),
    ({"cpu": 6, "gpu": 1}, {"gpu_model": "P100"}, 2),
    ({}, {}, 2),
]
CONSTRAINTS: list[dict[str, tuple[str, ...]]] = [{}, {}, {"gpu_model": ("T4",)}, {"gpu_model": ("T4", "P100")}]
POLICIES = [
    Policy(),
    Policy(placement=(LoadCost("pack"),)),
    Policy(preemption=None),
    Policy(waiting=WaitCost(first=2.0, buckets=3), preemption=PreemptionCost(price=3.0)),
]


@dataclass
class Book:
    """The test's record of a machine."""

    capacity: dict[str, float]
    labels: dict[str, str]
    slots: int | None
    open: bool = True
    failed: bool = False


@dataclass
class Note:
    """The test's record of a task."""

    demand: dict[str, float]
    constraints: dict[str, tuple[str, ...]]
    priority: int
    machine: str | None = None
    devices: tuple[int, ...] = ()


class Histories(RuleBasedStateMachine):
    """Events in any order, rounds committed whole, in part, late or never."""

    def __init__(self) -> None:
        super().__init__()
        self.machines: dict[str, Book] = {}
        self.tasks: dict[str, Note] = {}
        self.jobs: dict[str, int] = {}
        self.now = 0.0
        self.count = 0

    @initialize(policy=st.sampled_from(POLICIES))
    def start(self, policy: Policy) -> None:
        self.sched = Scheduler(policy)

    # -- the world ----------------------------------------------------------------------------------------------

    @rule(kind=st.sampled_from(MACHINES), rack=st.sampled_from([None, "r1", "r2"]))
    def add_machine(self, kind: Any, rack: str | None) -> None:
        capacity, labels, slots = kind
        name = f"m{self.count}"
        self.count += 1
        self.machines[name] = Book(capacity, labels, slots)
        self.sched.apply(MachineAdded(name, capacity, rack, labels, slots))

    @precondition(lambda self: self.machines)
    @rule(data=st.data(), rack=st.sampled_from(["r1", "r3"]), more=st.integers(0, 2))
    def update_machine(self, data: Any, rack: str, more: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.machines)))
        book = self.machines[name]
        book.capacity = {**book.capacity, "cpu": book.capacity.get("cpu", 0) + more}
        book.open = not book.failed
        self.sched.apply(MachineUpdated(name, book.capacity, rack))

    @precondition(lambda self: self.machines)
    @rule(data=st.data(), kind=st.sampled_from([MachineDrained, MachineFailed, MachineRemoved]))
    def lose_machine(self, data: Any, kind: Any) -> None:
        name = data.draw(st.sampled_from(sorted(self.machines)))
        self.sched.apply(kind(name))
        book = self.machines[name]
        book.open = False
        if kind is not MachineDrained:
            book.failed = True
            for note in self.tasks.values():
                if note.machine == name:
                    note.machine, note.devices = None, ()
        if kind is MachineRemoved:
            del self.machines[name]

    @precondition(lambda self: any(book.failed for book in self.machines.values()))
    @rule(data=st.data())
    def bring_machine_back(self, data: Any) -> None:
        name = data.draw(st.sampled_from(sorted(m for m, book in self.machines.items() if book.failed)))
        book = self.machines[name]
        book.open, book.failed = True, False
        self.sched.apply(MachineAdded(name, book.capacity, None, book.labels, book.slots))

    @rule(
        n=st.integers(1, 6),
        demand=st.sampled_from(DEMANDS),
        where=st.sampled_from(CONSTRAINTS),
        priority=st.integers(0, 2),
    )
    def submit_job(self, n: int, demand: Any, where: Any, priority: int) -> None:
        job = f"j{self.count}"
        self.jobs[job] = priority
        self.sched.apply(JobSubmitted(job, [self._task(demand, where, priority) for _ in range(n)], priority=priority))

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), demand=st.sampled_from(DEMANDS), where=st.sampled_from(CONSTRAINTS))
    def submit_task(self, data: Any, demand: Any, where: Any) -> None:
        job = data.draw(st.sampled_from(sorted(self.jobs)))
        self.sched.apply(TaskSubmitted(job, self._task(demand, where, self.jobs[job])))

    def _task(self, demand: Any, where: Any, priority: int) -> Task:
        name = f"t{self.count}"
        self.count += 1
        self.tasks[name] = Note(demand, where, priority)
        return Task(name, demand, where)

    @precondition(lambda self: any(note.machine for note in self.tasks.values()))
    @rule(data=st.data(), kind=st.sampled_from([TaskCompleted, TaskFailed]))
    def end_task(self, data: Any, kind: Any) -> None:
        name = data.draw(st.sampled_from(sorted(t for t, note in self.tasks.items() if note.machine)))
        self.sched.apply(kind(name))
        if kind is TaskFailed:
            self.tasks[name].machine, self.tasks[name].devices = None, ()
        else:
            del self.tasks[name]

    @precondition(lambda self: self.tasks)
    @rule(data=st.data())
    def remove_task(self, data: Any) -> None:
        name = data.draw(st.sampled_from(sorted(self.tasks)))
        self.sched.apply(TaskRemoved(name))
        del self.tasks[name]

    # -- rounds -------------------------------------------------------------------------------------------------

    @rule(later=st.sampled_from([0.0, 1.0, 100.0]))
    def run_round(self, later: float) -> None:
        self.now += later
        rnd = self.sched.schedule(self.now)
        self._check_round(rnd)
        done = self.sched.commit(rnd)
        assert done.accepted == rnd.deltas and not done.conflicts
        self._book(done.accepted)

    @rule()
    def run_round_in_vain(self) -> None:
        first = self.sched.schedule(self.now)
        self.sched.abort(first)
        self._check_round(self.sched.schedule(self.now))

    @rule()
    def settle(self) -> None:
        """With nothing new, a round changes nothing, and soon not even the network."""
        for _ in range(2):
            self._book(self.sched.commit(self.sched.schedule(self.now)).accepted)
        idle = self.sched.schedule(self.now)
        assert not idle.deltas
        idle = self.sched.schedule(self.now)
        assert not idle.deltas and idle.stats.changes == 0

    @precondition(lambda self: self.tasks)
    @rule(data=st.data())
    def run_round_and_lose_something_before_the_commit(self, data: Any) -> None:
        rnd = self.sched.schedule(self.now)
        gone = data.draw(st.sampled_from(sorted(self.tasks)))
        self.remove_task_named(gone)
        if self.machines and data.draw(st.booleans()):
            self.sched.apply(MachineDrained(name := data.draw(st.sampled_from(sorted(self.machines)))))
            self.machines[name].open = False
        only = data.draw(st.sampled_from([None, set(sorted(rnd.placements)[::2])]))
        done = self.sched.commit(rnd, only=only)
        assert gone not in {delta.task for delta in done.accepted}
        assert not {delta.task for delta in done.accepted} & set(done.conflicts)
        self._book(done.accepted)
        again = self.sched.commit(rnd, only=only)
        assert not again.accepted

    def remove_task_named(self, name: str) -> None:
        self.sched.apply(TaskRemoved(name))
        del self.tasks[name]

    @rule(policy=st.sampled_from([*POLICIES, Policy(priority=WeightedPriority(100.0))]))
    def replace_policy(self, policy: Policy) -> None:
        self.sched.policy = policy

    # -- promises -----------------------------------------------------------------------------------------------

    def _check_round(self, rnd: Round) -> None:
        after = {t: note.machine for t, note in self.tasks.items()}
        kinds = [type(delta) for delta in rnd.deltas]
        assert kinds == sorted(kinds, key=[Preempt, Migrate, Place].index)
        for delta in rnd.deltas:
            after[delta.task] = None if isinstance(delta, Preempt) else delta.machine
        waiting = {t for t, machine in after.items() if machine is None}
        assert set(rnd.waiting) == waiting and len(rnd.waiting) == len(waiting)
        assert set(rnd.devices) == set(rnd.placements) | set(rnd.migrations)
        devices = {t: rnd.devices.get(t, self.tasks[t].devices) for t in after}
        for machine in self.machines:
            there = [t for t, m in after.items() if m == machine]
            assert self._holds(machine, there, devices), f"{machine} over capacity"
        for delta in rnd.deltas:
            if isinstance(delta, Place | Migrate):
                assert self._suits(delta.task, delta.machine)
            if isinstance(delta, Preempt | Migrate):
                old = self.tasks[delta.task].machine
                assert (after[delta.by] == old and delta.by in rnd.placements) or delta.by in rnd.migrations
                assert self.tasks[delta.by].priority < self.tasks[delta.task].priority
            if isinstance(delta, Preempt):
                there = [t for t, m in after.items() if m == delta.machine]
                before = {**devices, delta.task: self.tasks[delta.task].devices}
                assert not self._holds(delta.machine, [*there, delta.task], before), (
                    f"{delta.task} was preempted for nothing"
                )
        policy = self.sched.policy
        for task in waiting:
            reason = rnd.waiting[task]
            suited = [m for m in self.machines if self._suits(task, m)]
            room = [m for m in suited if self._room(m, task, [t for t, n in after.items() if n == m], devices)]
            assert not room or reason.code == "HELD", f"{task} waits ({reason}) though {room[0]} has room"
            if reason.code in ("NEVER_FITS", "FILTERED"):
                assert not any(self._suits(task, m, closed=True) and self._room(m, task, [], {}) for m in self.machines)
            if policy.preemption is None or isinstance(policy.priority, WeightedPriority):
                continue
            for machine in suited:
                stay = [
                    t for t, m in after.items() if m == machine and self.tasks[t].priority <= self.tasks[task].priority
                ]
                assert not self._room(machine, task, stay, devices), f"{task} waits though worse tasks run on {machine}"

    def _suits(self, task: str, machine: str, closed: bool = False) -> bool:
        book = self.machines[machine]
        return (book.open or closed) and all(
            book.labels.get(label) in allowed for label, allowed in self.tasks[task].constraints.items()
        )

    def _free_devices(self, machine: str, tasks: list[str], devices: dict[str, tuple[int, ...]]) -> list[int]:
        free = [MICRO] * int(self.machines[machine].capacity.get("gpu", 0))
        for t in tasks:
            for device in devices[t]:
                free[device] -= round(min(1, self.tasks[t].demand["gpu"]) * MICRO)
        return free

    def _holds(self, machine: str, tasks: list[str], devices: dict[str, tuple[int, ...]]) -> bool:
        book = self.machines[machine]
        if book.slots is not None and len(tasks) > book.slots:
            return False
        for t in tasks:
            gpu = self.tasks[t].demand.get("gpu", 0)
            assert len(set(devices[t])) == (max(gpu, 1) if gpu else 0)
        if any(free < 0 for free in self._free_devices(machine, tasks, devices)):
            return False
        return all(
            sum(self.tasks[t].demand.get(name, 0) for t in tasks) <= book.capacity.get(name, 0) + 1e-9
            for name in ("cpu", "mem", "gpu")
        )

    def _room(self, machine: str, task: str, tasks: list[str], devices: dict[str, tuple[int, ...]]) -> bool:
        gpu = self.tasks[task].demand.get("gpu", 0)
        free = sorted(enumerate(self._free_devices(machine, tasks, devices)), key=lambda item: -item[1])
        need = 0 if not gpu else 1 if gpu < 1 else int(gpu)
        mine = [i for i, room in free[:need] if room >= round(min(1, gpu) * MICRO)]
        return len(mine) == need and self._holds(machine, [*tasks, task], {**devices, task: tuple(mine)})

    def _book(self, deltas: Any) -> None:
        for delta in deltas:
            note = self.tasks[delta.task]
            note.machine, note.devices = (None, ()) if isinstance(delta, Preempt) else (delta.machine, delta.devices)

    @invariant()
    def cluster_agrees(self) -> None:
        if not hasattr(self, "sched"):
            return
        cluster = self.sched.cluster
        assert set(cluster.tasks) == set(self.tasks)
        for t, note in self.tasks.items():
            assert cluster.placement(t) == note.machine
            assert cluster.task_state(t) == ("running" if note.machine else "waiting")
        inventory = cluster.inventory
        for m, book in self.machines.items():
            row = cluster.machine(m).row
            there = [t for t, note in self.tasks.items() if note.machine == m]
            devices = {t: self.tasks[t].devices for t in there}
            assert inventory.running[row] == len(there)
            assert inventory.rooms(row).sum() == inventory.free[row, 2]
            assert inventory.rooms(row).tolist()[: int(book.capacity.get("gpu", 0))] == self._free_devices(
                m, there, devices
            )
            assert (inventory.free[row] >= 0).all() and (inventory.free[row] <= inventory.capacity[row]).all()
        assert np.all(inventory.tasks.row[[cluster.task(t).index for t, n in self.tasks.items() if n.machine]] >= 0)

    def teardown(self) -> None:
        if hasattr(self, "sched"):
            self.sched.schedule(self.now)
            self.sched.network.certify()


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=effort(15, 400),
    stateful_step_count=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
