"""The audit: a scheduler that breaks a promise is caught, whichever promise it is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowsched.cluster.events import JobSubmitted
from flowsched.cluster.inventory import Inventory
from flowsched.cluster.model import Machine, Resources, Task
from flowsched.policy import Policy
from flowsched.rounds import Commit, Place, Round, RoundStats
from flowsched.scheduler import Scheduler
from flowsched.sim import Arrival, AuditError, Simulation, Workload
from flowsched.sim.audit import AuditInventory

RESOURCES = Resources(("cpu", "mem", "gpu"))
MACHINE = Machine("m", {"cpu": 8, "mem": 16, "gpu": 2}, labels={"gpu_model": "T4"}, slots=3)


def books(*tasks: Task, machine: Machine = MACHINE) -> AuditInventory:
    made = AuditInventory(RESOURCES)
    made.add_machine(machine)
    made.register(tasks)
    return made


def placed(*tasks: tuple[Task, tuple[int, ...]]) -> AuditInventory:
    made = books(*(task for task, _ in tasks))
    for task, devices in tasks:
        made.place(task.id, "m", devices, 7.0)
    return made


def test_a_full_machine_is_no_complaint() -> None:
    made = placed(
        (Task("a", {"cpu": 8, "gpu": 1}), (1,)),
        (Task("b", {"mem": 16, "gpu": 0.4}), (0,)),
        (Task("c", {"gpu": 0.6}), (0,)),
    )
    made.check(["m"], 7.0)
    assert made.used == made.capacity


@pytest.mark.parametrize(
    ("tasks", "says"),
    [
        ([({"cpu": 5}, ()), ({"cpu": 3.5}, ())], "at 7 s: machine 'm' is above capacity in cpu: 8.5 of 8"),
        ([({"mem": 17}, ())], "above capacity in mem: 17 of 16"),
        ([({"gpu": 0.7}, (0,)), ({"gpu": 0.4}, (0,))], "above capacity in gpu 0: 1.1 of 1"),
        ([({"gpu": 1}, (1,)), ({"gpu": 0.1}, (1,))], "above capacity in gpu 1: 1.1 of 1"),
        ([({"gpu": 2}, (0, 1)), ({"gpu": 1}, (0,))], "above capacity in gpu: 3 of 2"),
        ([({}, ())] * 4, "above capacity in slots: 4 of 3"),
    ],
)
def test_above_capacity(tasks: list[tuple[dict[str, float], tuple[int, ...]]], says: str) -> None:
    made = placed(*((Task(i, demand), devices) for i, (demand, devices) in enumerate(tasks)))
    with pytest.raises(AuditError, match=says):
        made.check(["m"], 7.0)


@pytest.mark.parametrize(
    ("demand", "devices"),
    [
        ({"gpu": 1}, ()),
        ({"gpu": 1}, (2,)),
        ({"gpu": 1}, (-1,)),
        ({"gpu": 2}, (0, 0)),
        ({"gpu": 0.5}, (0, 1)),
        ({}, (0,)),
    ],
)
def test_the_gpus_named_must_be_what_the_task_asks_for(demand: dict[str, float], devices: tuple[int, ...]) -> None:
    with pytest.raises(AuditError, match=r"at 3 s: task 'a' needs \d of the 2 gpu of machine 'm', but was given"):
        books(Task("a", demand)).place("a", "m", devices, 3.0)


def test_labels_are_audited() -> None:
    made = books(Task("a", {}, {"gpu_model": ("P100", "V100")}))
    with pytest.raises(AuditError, match="machine 'm' has gpu_model='T4', but task 'a' there allows only P100, V100"):
        made.place("a", "m", (), 3.0)


def test_the_machines_of_tasks_are_audited() -> None:
    made = placed((Task("a"), ()))
    with pytest.raises(AuditError, match="'a' was placed on machine 'm', but it runs on 'm'"):
        made.place("a", "m", (), 3.0)
    with pytest.raises(AuditError, match="'b' was placed on machine 'm', but no such task"):
        made.place("b", "m", (), 3.0)
    made.release("a", 3.0)
    with pytest.raises(AuditError, match="'a' was stopped, but it does not run"):
        made.release("a", 3.0)
    made.remove_machine("m")
    with pytest.raises(AuditError, match="'a' was placed on machine 'm', which is not up"):
        made.place("a", "m", (), 3.0)


def test_a_machine_that_goes_takes_its_tasks_and_its_capacity() -> None:
    made = placed((Task("a", {"cpu": 1}), ()), (Task("b", {"gpu": 2}), (0, 1)))
    assert made.remove_machine("m") == ["a", "b"]
    assert made.used == made.capacity == [0, 0, 0]
    assert made.where("a") is None
    assert made.remove_machine("m") == []


@pytest.mark.parametrize(
    "smaller",
    [{"cpu": 1, "mem": 16, "gpu": 2}, {"cpu": 8, "mem": 16, "gpu": 1}],
)
def test_an_update_below_what_runs_there_changes_nothing(smaller: dict[str, float]) -> None:
    made = placed((Task("a", {"cpu": 2, "gpu": 1}), (1,)))
    before = made.used, made.capacity
    assert not made.update_machine(Machine("m", smaller))
    assert (made.used, made.capacity) == before
    assert made.where("a") == "m"
    assert made.update_machine(Machine("m", {"cpu": 2, "gpu": 2}))
    assert made.capacity == [2_000_000, 0, 2_000_000]
    made.check(["m"], 0.0)


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from([0.0, 0.3, 1.0, 2.0])), max_size=40))
def test_giving_back_restores_exactly(steps: list[tuple[int, float]]) -> None:
    tasks = [Task((i, g), {"cpu": 0.1 * i, "mem": i / 3, "gpu": g}) for i in range(6) for g in (0.0, 0.3, 1.0, 2.0)]
    made = books(*tasks, machine=Machine("m", {"cpu": 99, "mem": 99, "gpu": 2}))
    for step in steps:
        if made.where(step):
            made.release(step, 0.0)
        else:
            made.place(step, "m", tuple(range(-int(-step[1] // 1))), 0.0)
    for task in tasks:
        if made.where(task.id):
            made.release(task.id, 0.0)
    assert made.used == [0, 0, 0]
    made.check(["m"], 0.0)


class Liar:
    """Says that everything that arrived runs on the first machine, on its first GPU."""

    def __init__(self) -> None:
        self.tasks: list[Any] = []

    def apply(self, *events: Any) -> None:
        self.tasks += [task for event in events for task in getattr(event, "tasks", ())]

    def schedule(self, now: float, time_limit: float | None = None) -> Round:
        return Round(now, {}, {}, {}, {}, {}, (), RoundStats(0, 0, 0, 0, 0.0, 0.0, 0.0))

    def commit(self, round: Round) -> Commit:
        return Commit(tuple(Place(task.id, "m", (0,)) for task in self.tasks), {})


def test_the_simulation_is_audited_at_every_commit() -> None:
    work = Workload("w", [arrival(4.5, "a"), arrival(4.5, "b")], [MACHINE])
    with pytest.raises(AuditError, match="at 4.5 s: machine 'm' is above capacity in gpu 0: 1.2 of 1"):
        Simulation(Liar(), work).run()


def arrival(time: float, name: str) -> Arrival:
    return Arrival(time, JobSubmitted(name, (Task(name, {"gpu": 0.6}),)), (1.0,))


@pytest.mark.parametrize(("resource", "says"), [(0, "in cpu"), (2, "in gpu 0")])
def test_mistakes_in_the_scheduler_s_own_inventory_are_found(
    resource: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its books believe that every machine has twice as much; the audit has books of its own."""
    describe = Inventory.describe

    def boast(self: Inventory, row: int, *args: Any) -> None:
        describe(self, row, *args)
        self.free[row, resource] *= 2
        if resource == 2:
            self.devices[row] *= 2

    monkeypatch.setattr(Inventory, "describe", boast)
    demand = {"cpu": 8} if resource == 0 else {"gpu": 0.6}
    tasks = tuple(Task(i, demand) for i in range(8))
    work = Workload("w", [Arrival(0.0, JobSubmitted("j", tasks), (1.0,) * len(tasks))], [MACHINE])
    with pytest.raises(AuditError, match=f"machine 'm' is above capacity {says}"):
        Simulation(Scheduler(Policy(preemption=None)), work).run()


class Silent(Liar):
    """Never starts anything, and never says why."""

    def commit(self, round: Round) -> Commit:
        return Commit((), {})


def test_whoever_waits_has_a_reason() -> None:
    work = Workload("w", [arrival(4.5, "a")], [MACHINE])
    with pytest.raises(AuditError, match="task 'a' waits, but the last round gives no reason"):
        Simulation(Silent(), work).run()
