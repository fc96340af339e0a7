"""Fragmentation over time, against a plain recomputation from the table of tasks."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowsched.cluster.events import JobSubmitted, MachineAdded, MachineFailed
from flowsched.cluster.model import Machine, Task
from flowsched.scheduler import Scheduler
from flowsched.sim import Arrival, Metrics, Simulation, Workload, fragmentation, scheduler

Kind = tuple[str, Fraction, Fraction, tuple[str, ...]]


def expected(metrics: Metrics, work: Workload, at: float) -> Fraction:
    """Return the expected free GPUs that a task drawn from the workload cannot use, task by task and GPU by GPU."""
    tasks = {task.id: task for arrival in work.arrivals for task in arrival.job.tasks}
    gpus = {m.id: [Fraction(1)] * int(amount(m.capacity, "gpu")) for m in work.machines}
    cpus = {m.id: amount(m.capacity, "cpu") for m in work.machines}
    table = metrics.table
    for name, machine, devices, start, end in zip(
        *(table[c] for c in ("task", "machine", "devices", "last_start", "end")), strict=True
    ):
        if start <= at and not end <= at:
            cpus[machine] -= amount(tasks[name].demand, "cpu")
            for device in devices:
                gpus[machine][device] -= min(amount(tasks[name].demand, "gpu"), Fraction(1))
    lost = Fraction(0)
    for machine in work.machines:
        for task in tasks.values():
            cpu, gpu = amount(task.demand, "cpu"), amount(task.demand, "gpu")
            each = [free for free in gpus[machine.id] if free >= min(gpu, 1)]
            allowed = task.constraints.get("model")
            fits = allowed is None or machine.labels["model"] in allowed
            fits = fits and cpu <= cpus[machine.id] and len(each) >= math.ceil(gpu) and gpu > 0
            lost += sum(gpus[machine.id]) - (sum(each) if fits else 0)
    return lost / len(tasks)


def amount(of: Any, name: str) -> Fraction:
    return Fraction(str(of.get(name, 0)))


@st.composite
def worlds(draw: st.DrawFn) -> Workload:
    machines = [
        Machine(f"m{i}", {"cpu": draw(st.integers(1, 6)), "gpu": draw(st.integers(0, 3))}, labels={"model": draw(st.sampled_from("AB"))})
        for i in range(draw(st.integers(1, 4)))
    ]  # fmt: skip
    arrivals = []
    for i in range(draw(st.integers(1, 12))):
        wants = draw(st.sampled_from([{}, {"model": ("A",)}, {"model": ("A", "B")}]))
        demand = {"cpu": draw(st.integers(0, 3)), "gpu": draw(st.sampled_from([0, 0.3, 0.5, 0.8, 1, 2]))}
        task = Task(f"t{i}", demand, wants)
        length = draw(st.sampled_from([1.5, 4.0, 9.0, math.inf]))
        arrivals.append(Arrival(draw(st.integers(0, 10)), JobSubmitted(f"j{i}", (task,)), (length,)))
    return Workload("drawn", arrivals, machines, resources=("cpu", "gpu"))


@settings(deadline=None)
@given(worlds(), st.sampled_from(["first-fit", "fgd", "random"]))
def test_fragmentation_is_that_of_the_table_of_tasks(work: Workload, name: str) -> None:
    metrics = Simulation(scheduler(name, work), work).run()
    found = metrics.fragmentation
    if not any(m.capacity["gpu"] for m in work.machines) or not any(  # type: ignore[call-overload]
        task.demand["gpu"]
        for arrival in work.arrivals
        for task in arrival.job.tasks  # type: ignore[call-overload]
    ):
        assert found is None or found.resource == "cpu"
        return
    assert found is not None
    assert found.resource == "gpu"
    last = np.r_[np.diff(found.time) > 0, True]  # of several rounds at one time
    for at, lost in zip(found.time[last], found.lost[last], strict=True):
        assert lost == pytest.approx(float(expected(metrics, work, at)), abs=1e-9)
    assert (found.lost <= found.free + 1e-9).all()
    assert (found.free <= found.capacity).all()


def test_fragmentation_by_hand() -> None:
    """Half a GPU beside a task of half: of use to halves, of none to the whole one; the CPU task can use none."""
    tasks = [Task("half", {"gpu": 0.5}), Task("whole", {"gpu": 1}), Task("cpu", {"cpu": 1}), Task("late", {"gpu": 0.5})]
    arrivals = [Arrival(float(i), JobSubmitted(t.id, (t,)), (10.0,)) for i, t in enumerate(tasks)]
    work = Workload("by hand", arrivals, [Machine("m", {"cpu": 2, "gpu": 1})], resources=("cpu", "gpu"))
    found = Simulation(Scheduler(resources=("cpu", "gpu")), work).run(until=5.0).fragmentation
    assert found is not None
    assert found.time.tolist() == [0, 1, 2, 3]
    assert found.lost.tolist() == [0.25, 0.25, 0.25, 0]
    assert found.free.tolist() == [0.5, 0.5, 0.5, 0]
    assert (found.share, found.rate) == (pytest.approx(0.75 / 5), pytest.approx(0.5))


def test_without_gpus_the_scarcest_resource_is_measured() -> None:
    """4 GiB are asked of 10, 2 cores of 8: memory; 6 are free, and of no use to the task of 7."""
    tasks = [Task("a", {"cpu": 2, "mem": 4}), Task("b", {"mem": 7})]
    arrivals = [Arrival(float(i), JobSubmitted(t.id, (t,)), (10.0,)) for i, t in enumerate(tasks)]
    work = Workload("plain", arrivals, [Machine("m", {"cpu": 8, "mem": 10})], resources=("cpu", "mem"))
    found = Simulation(Scheduler(resources=("cpu", "mem")), work).run(until=8.0).fragmentation
    assert found is not None
    assert (found.resource, found.time.tolist(), found.lost.tolist()) == ("mem", [0, 1], [3, 3])


def test_machines_that_are_down_and_full_slots() -> None:
    """A failed machine has nothing free; on one without a slot everything is lost."""
    task = Task("a", {"gpu": 1})
    machines = [Machine("m", {"gpu": 2}, slots=1), Machine("n", {"gpu": 4})]
    events = [MachineFailed("n", time=1.0), MachineAdded("n", {"gpu": 4}, time=2.0)]
    work = Workload("w", [Arrival(0.0, JobSubmitted("a", (task,)), (9.0,))], machines, events, resources=("gpu",))
    found = Simulation(scheduler("first-fit", work), work).run().fragmentation
    assert found is not None
    assert found.time.tolist() == [0, 1, 2, 9]
    assert found.lost.tolist() == [1, 1, 1, 0]
    assert found.free.tolist() == [5, 1, 5, 6]
    assert found.capacity.tolist() == [6, 2, 6, 6]


def test_many_kinds_are_drawn_at_equal_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 1,000 kinds that ask for 0.001 to 1 GPU, 0.5 free GPUs are lost to half, whatever number is drawn."""
    tasks = [Task(i, {"gpu": i / 1000}) for i in range(1, 1001)]
    busy = Task("busy", {"gpu": 0.5})
    arrivals = [
        Arrival(0.0, JobSubmitted("busy", (busy,)), (9.0,)), Arrival(50.0, JobSubmitted("many", tasks), (1.0,) * 1000),
    ]  # fmt: skip
    work = Workload("kinds", arrivals, [Machine("m", {"gpu": 1})], resources=("gpu",))
    for most in (10, 50, 1000):
        monkeypatch.setattr(fragmentation, "_KINDS", most)
        found = Simulation(scheduler("fifo", work), work).run(until=5.0).fragmentation
        assert found is not None
        assert found.lost == pytest.approx([0.25], abs=0.5 / most)


def test_nothing_to_measure() -> None:
    empty = Workload("empty", [], [Machine("m", {"cpu": 1})], resources=("cpu",))
    metrics = Simulation(Scheduler(resources=("cpu",)), empty).run()
    assert metrics.fragmentation is None
    assert metrics.to_dict()["fragmentation"] is None
    early = Simulation(Scheduler(), Workload.model(tasks=5, scale=0.02)).run(until=0.0)
    assert early.fragmentation is not None
    assert math.isnan(early.fragmentation.share)
