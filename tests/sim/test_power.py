"""Energy, against a plain recomputation from the table of tasks and the runs."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from power import PowerCap

from flowsched.cluster.events import Event, JobSubmitted, MachineAdded, MachineFailed, MachineUpdated
from flowsched.cluster.model import Machine, Task
from flowsched.exceptions import InputError
from flowsched.policy import Policy
from flowsched.scheduler import Scheduler
from flowsched.sim import Arrival, PowerModel, Simulation, Workload, compare, comparison_report, scheduler
from flowsched.sim.plots import draw
from flowsched.sim.summary import energy, tables

MODEL = PowerModel(50.0, {"cpu": (1.0, 4.0), "gpu": (30.0, 300.0), "gpu.T4": (10.0, 70.0)})
GPU = {"T4": (10.0, 70.0), "V100": (30.0, 300.0)}


def by_hand(machine: Machine, cpu: float, gpu: float, which: int) -> float:
    """Return idle (0) or peak (1) watts of so much of a machine."""
    return cpu * (1.0, 4.0)[which] + gpu * GPU[machine.labels["gpu_model"]][which]


@st.composite
def worlds(draw: st.DrawFn) -> Workload:
    machines = [
        Machine(f"m{i}", {"cpu": draw(st.integers(1, 6)), "gpu": draw(st.integers(0, 3))},
                labels={"gpu_model": draw(st.sampled_from(["T4", "V100"]))})
        for i in range(draw(st.integers(1, 4)))
    ]  # fmt: skip
    arrivals = []
    for i in range(draw(st.integers(1, 12))):
        demand = {"cpu": draw(st.integers(0, 3)), "gpu": draw(st.sampled_from([0, 0.25, 0.5, 1, 2]))}
        length = draw(st.sampled_from([1.5, 4.0, 9.0, math.inf]))
        job = JobSubmitted(f"j{i}", (Task(f"t{i}", demand),))
        arrivals.append(Arrival(draw(st.integers(0, 10)), job, (length,)))
    return Workload("drawn", arrivals, machines, resources=("cpu", "gpu"))


@settings(deadline=None)
@given(worlds())
def test_energy_is_that_of_the_table_of_tasks(work: Workload) -> None:
    metrics = Simulation(scheduler("first-fit", work), work, power=MODEL).run(until=30.0)
    machines = {m.id: m for m in work.machines}
    tasks = {task.id: task for arrival in work.arrivals for task in arrival.job.tasks}
    end = metrics.facts["end"]
    idle = sum(end * (50.0 + by_hand(m, *amounts(m.capacity), 0)) for m in machines.values())
    used = 0.0
    table = metrics.table
    for name, machine, start, until in zip(*(table[c] for c in ("task", "machine", "last_start", "end")), strict=True):
        if machine is not None:
            of = amounts(tasks[name].demand)
            watts = by_hand(machines[machine], *of, 1) - by_hand(machines[machine], *of, 0)
            used += watts * ((end if math.isnan(until) else until) - start)
    assert metrics.energy is not None
    assert metrics.energy.idle == pytest.approx(idle)
    assert metrics.energy.total == pytest.approx(idle + used)
    assert metrics.energy.lost == 0
    assert metrics.energy.mean * end == pytest.approx(metrics.energy.total)
    assert metrics.energy.peak == metrics.series["watts"].max()


def amounts(of: Any) -> tuple[float, float]:
    return float(of["cpu"]), float(of["gpu"])


@settings(deadline=None)
@given(worlds(), st.lists(st.tuples(st.integers(0, 3), st.floats(0.5, 12), st.floats(0.5, 5)), max_size=4),
       st.sampled_from(["restart", "resume"]))  # fmt: skip
def test_energy_with_failures_is_that_of_the_runs(
    work: Workload, failures: list[tuple[int, float, float]], preempted: Any
) -> None:
    events: list[Event] = []
    back = 0.0
    for which, after, down in failures:
        machine = work.machines[which % len(work.machines)]
        at, back = back + after, back + after + down
        events += [MachineFailed(machine.id, time=at), MachineAdded(machine.id, machine.capacity, None, machine.labels, time=back)]  # fmt: skip
    simulation = Simulation(scheduler("first-fit", work), work, power=MODEL, machine_events=events, preempted=preempted)
    metrics = simulation.run(until=40.0)
    end, runs, gone = metrics.facts["end"], metrics.runs, metrics.absences
    machines = {m.id: m for m in work.machines}
    names = metrics.machines["machine"]
    up = dict.fromkeys(machines, end)
    for machine, start, until in zip(gone["machine"], gone["start"], gone["end"], strict=True):
        up[names[machine]] -= (end if math.isnan(until) else until) - start
    idle = sum(up[m.id] * (50.0 + by_hand(m, *amounts(m.capacity), 0)) for m in machines.values())
    used = lost = 0.0
    for machine, start, until, how, cpu, gpu in zip(
        *(runs[c] for c in ("machine", "start", "end", "how", "cpu", "gpu")), strict=True
    ):
        at = machines[names[machine]]
        joules = (by_hand(at, cpu, gpu, 1) - by_hand(at, cpu, gpu, 0)) * ((end if math.isnan(until) else until) - start)
        used += joules
        lost += joules if how > 1 and preempted == "restart" else 0.0
    energy = metrics.energy
    assert energy is not None
    assert (energy.idle, energy.total, energy.lost) == pytest.approx((idle, idle + used, lost))


def test_a_machine_that_changes_draws_by_what_it_has() -> None:
    """2 cores of 1 W for 10 s, then 4 for 10 s."""
    task = Task("a", {"cpu": 1})
    work = Workload(
        "grows", [Arrival(0.0, JobSubmitted("a", (task,)), (20.0,))], [Machine("m", {"cpu": 2})],
        [MachineUpdated("m", {"cpu": 4}, time=10.0)], resources=("cpu",),
    )  # fmt: skip
    metrics = Simulation(Scheduler(resources=("cpu",)), work, power=PowerModel(0.0, {"cpu": (1.0, 4.0)})).run()
    assert metrics.energy is not None
    assert (metrics.energy.idle, metrics.energy.total, metrics.energy.peak) == (60, 120, 7)
    assert metrics.series["watts_idle"].tolist()[-1] == 4
    assert metrics.energy.kwh == pytest.approx(120 / 3.6e6)


def test_without_a_model_there_is_no_energy() -> None:
    work = Workload.model(tasks=20, scale=0.02)
    metrics = Simulation(Scheduler(), work).run()
    assert metrics.energy is None
    assert metrics.to_dict()["energy_joules"] is None
    assert not any("watts" in name for name in metrics.series)


def test_a_model_is_read_as_it_is_written() -> None:
    model = PowerModel.parse("machine=50, cpu=1:4, gpu=30:300, gpu.T4=10:70")
    assert model == MODEL == PowerModel.parse(str(model)) == pickle.loads(pickle.dumps(model))
    assert str(model) == "machine=50,cpu=1:4,gpu=30:300,gpu.T4=10:70"
    exact = PowerModel(1234567.125 / 7, {"cpu": (1 / 3, 2 / 3)})
    assert PowerModel.parse(str(exact)) == exact


@pytest.mark.parametrize(
    "text", ["", "cpu", "cpu=4", "cpu=4:1", "cpu=-1:4", "cpu=1:2:3", "cpu=a:b", "machine=1:2", "cpu=1:2,cpu=1:3", "machine=1,machine=2", "cpu=nan:1", "=1:2"]
)  # fmt: skip
def test_wrong_models_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"[Pp]ower"):
        PowerModel.parse(text)


def test_a_model_of_unknown_resources_is_refused() -> None:
    work = Workload.model(tasks=5, scale=0.02)
    with pytest.raises(InputError, match="unknown resource 'tpu'"):
        Simulation(Scheduler(), work, power=PowerModel.parse("tpu=1:2"))
    with pytest.raises(InputError, match="a PowerModel or None expected"):
        Simulation(Scheduler(), work, power="cpu=1:2")  # type: ignore[arg-type]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 400), st.integers(1, 9)), min_size=1, max_size=15))
def test_power_of_a_machine_is_a_resource_like_any_other(tasks: list[tuple[int, int, int]]) -> None:
    """Machines of 400 and 250 W: at no time do their tasks together draw more."""
    arrivals = [
        Arrival(at, JobSubmitted(i, (Task(i, {"cpu": 1, "power": watts}),)), (length,))
        for i, (at, watts, length) in enumerate(tasks)
    ]
    limits = {"m0": 400.0, "m1": 250.0}
    machines = [Machine(name, {"cpu": 64, "power": watts}) for name, watts in limits.items()]
    work = Workload("capped", arrivals, machines, resources=("cpu", "power"), units={"power": "W"})
    metrics = Simulation(Scheduler(resources=work.resources), work).run()
    assert metrics.tasks["completed"] == len(tasks)
    runs, names = metrics.runs, metrics.machines["machine"]
    for row, name in enumerate(names):
        for at in runs["start"]:
            on = (runs["machine"] == row) & (runs["start"] <= at) & ~(runs["end"] <= at)
            assert runs["power"][on].sum() <= limits[name]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 3), st.integers(1, 9)), min_size=1, max_size=15))
def test_power_of_a_rack_is_a_constraint(tasks: list[tuple[int, int, int]]) -> None:
    """100 W a core and 400 W a rack, with room for more on its two machines."""
    arrivals = [
        Arrival(at, JobSubmitted(i, (Task(i, {"cpu": cpu}),)), (length,)) for i, (at, cpu, length) in enumerate(tasks)
    ]
    machines = [Machine(f"m{i}", {"cpu": 8}, f"r{i // 2}") for i in range(4)]
    work = Workload("capped", arrivals, machines, resources=("cpu",))
    policy = Policy(constraints=[PowerCap(400.0, {"cpu": 100.0})])
    metrics = Simulation(Scheduler(policy, resources=("cpu",)), work).run()
    assert metrics.tasks["completed"] == len(tasks)
    runs = metrics.runs
    rack = np.array(metrics.machines["rack"])[runs["machine"]]
    for name in ("r0", "r1"):
        for at in runs["start"]:
            on = (rack == name) & (runs["start"] <= at) & ~(runs["end"] <= at)
            assert 100 * runs["cpu"][on].sum() <= 400


def test_tables_and_plots_tell_energy_and_fragmentation() -> None:
    work = Workload.model(tasks=60, scale=0.01)
    metrics = Simulation(Scheduler(), work, power=PowerModel.parse("machine=50,gpu=30:300")).run()
    titles = [table.title for table in tables(metrics)]
    assert titles[2:4] == ["Fragmentation (means over the run)", "Energy, by machine=50,gpu=30:300"]
    assert {"Fragmentation", "Power"} <= {plot.title for plot in draw(metrics)}
    bare = Simulation(Scheduler(), work).run()
    assert "Power" not in {plot.title for plot in draw(bare)}
    assert "energy" in metrics._repr_html_()


def test_a_comparison_has_energy_and_fragmentation(tmp_path: Path) -> None:
    work = Workload.model(tasks=60, scale=0.01)
    found = compare(work, ["fgd", "first-fit"], options={"power": PowerModel.parse("gpu=30:300")})
    for run in found.outcomes:
        metrics = Simulation(scheduler(run.scheduler, work), work, power=PowerModel.parse("gpu=30:300")).run()
        assert metrics.energy is not None
        assert metrics.fragmentation is not None
        assert run.figures["energy"] == metrics.energy.total
        assert run.figures["fragmented, mean"] == metrics.fragmentation.share
        assert math.isnan(run.figures["input from elsewhere"])
    assert "kWh" in found.tables()[0].rows[0][list(found.tables()[0].columns).index("energy")]
    assert "input from elsewhere" not in found.tables()[0].columns
    found.to_json(tmp_path / "c.json")
    assert json.loads((tmp_path / "c.json").read_text())["facts"]["power"] == "machine=0,gpu=30:300"
    assert "Energy" in comparison_report(found)


def test_energies_in_words() -> None:
    words = [energy(joules) for joules in (0.0, 12.0, 3.6e3, 3.6e6, 7.2e9, math.nan)]
    assert words == ["0 J", "12 J", "0.001 kWh", "1 kWh", "2 MWh", "-"]
