"""Run times that depend on the GPU model of the machine: as input, in a simulation, and for Gavel."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import flowsched as fs
from flowsched.exceptions import InputError, TraceError
from flowsched.sim import Arrival, Execution, Simulation, Workload, load_trace, scheduler, write_trace

SAMPLES = Path(__file__).parents[1] / "data" / "traces"
ROWS = "task,arrival,duration,duration.K80,duration.V100,gpu,kind\na,0,40,100,10,1,r\nb,5,40,,20,1,\n"
MACHINES = [fs.Machine(f"m{model}", {"gpu": 1}, labels={"gpu_model": model}) for model in ("K80", "V100", "T4")]


def one(model: str, **options: object) -> fs.sim.Metrics:
    """One task on one machine of a model."""
    machines = [machine for machine in MACHINES if machine.id == f"m{model}"]
    arrivals = [Arrival(0, fs.JobSubmitted("a", [fs.Task("a", {"gpu": 1})]), (40,))]
    work = Workload("w", arrivals, machines, resources=("gpu",), run_times={"a": {"K80": 100.0, "V100": 10.0}})
    return Simulation(fs.Scheduler(resources=("gpu",)), work, **options).run()  # type: ignore[arg-type]


@pytest.mark.parametrize(("model", "end"), [("K80", 100), ("V100", 10), ("T4", 40)])
def test_a_task_runs_as_long_as_its_model_says(model: str, end: float) -> None:
    assert one(model).table["end"] == [end]
    halved = Execution(speed=lambda task, machine: 0.5)
    assert one(model, execution=halved).table["end"] == pytest.approx([2 * end])


# K80: |-- 50 of 100 s --X, half is done; down until 60; another 50 s     with "restart": 100 s from 60 on
@pytest.mark.parametrize(("preempted", "end"), [("resume", 110), ("restart", 160)])
def test_progress_is_kept_at_the_pace_of_the_machine(preempted: str, end: float) -> None:
    events = [fs.MachineFailed("mK80", time=50), fs.MachineAdded("mK80", {}, time=60)]
    found = one("K80", machine_events=events, preempted=preempted)
    assert found.table["end"] == pytest.approx([end])
    found = one("K80", machine_events=events, preempted=preempted, execution=Execution())
    assert found.table["end"] == pytest.approx([end])


def test_columns_are_read_and_written(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(ROWS)
    work = load_trace(tmp_path / "x.csv", machines=MACHINES)
    assert work.run_times == {"a": {"K80": 100, "V100": 10}, "b": {"V100": 20}}
    for name in ("y.csv", "y.jsonl"):
        write_trace(work, tmp_path / name)
        again = load_trace(tmp_path / name)
        assert (again.run_times, again.arrivals) == (work.run_times, work.arrivals)
    assert work.head(1).n_tasks == 1 and work.hold().run_times == {}


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("100,10", "0,10", "line 2, column 'duration.K80': a number > 0 expected"),
        (
            "100,10",
            "soon,10",
            "line 2, column 'duration.K80': a number of seconds, or a time span such as 90s, 15m or 1:30:00, expected, got 'soon'",
        ),
        ("40,100", "inf,100", "line 2, column 'duration': a finite number"),
        ("40,100", "0,100", "line 2, column 'duration': a number > 0 expected where run times depend"),
    ],
)
def test_a_bad_run_time_is_named(old: str, new: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(ROWS.replace(old, new, 1))
    with pytest.raises(TraceError) as error:
        load_trace(tmp_path / "x.csv")
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("duration", "seconds"), [(math.inf, 1.0), (0.0, 1.0), (1.0, 0.0), (1.0, math.nan), (1.0, -1.0)]
)
def test_bad_run_times_are_refused(duration: float, seconds: float) -> None:
    arrivals = [Arrival(0, fs.JobSubmitted("a", [fs.Task("a", {"cpu": 1})]), (duration,))]
    with pytest.raises(InputError, match="run_times"):
        Workload("w", arrivals, [], run_times={"a": {"V100": seconds}})


def test_gavel_gives_each_kind_the_model_that_suits_it() -> None:
    """Ten tasks run ten times as fast on a V100, ten run as fast on a K80: max-min fairness separates them."""
    pytest.importorskip("scipy")
    tasks = [fs.Task(f"{kind}{i}", {"gpu": 1}, kind=kind) for i in range(10) for kind in ("fast", "same")]
    arrivals = [Arrival(0, fs.JobSubmitted(task.id, [task]), (100.0,)) for task in tasks]
    times = {task.id: {"V100": 10.0 if task.kind == "fast" else 100.0} for task in tasks}
    work = Workload("w", arrivals, MACHINES[:2], resources=("gpu",), run_times=times)
    ends = {}
    for name in ("gavel", "first-fit"):
        run = Simulation(scheduler(name, work), work)
        ends[name] = run.run().facts["end"]
        if name == "gavel":
            table = run.task_table()
            on = {(t[:4], m) for t, m in zip(table["task"], table["machine"], strict=True)}
            assert ("fast", "mK80") not in on
    assert ends["gavel"] < ends["first-fit"]


def test_a_trace_of_gavel_has_run_times_of_each_model() -> None:
    path = SAMPLES / "gavel" / "seven.trace"
    work, on_v100 = load_trace(path), load_trace(path, variant="v100")
    assert [a.durations for a in work.arrivals] == [a.durations for a in on_v100.arrivals] and not on_v100.run_times
    first = work.arrivals[0]
    assert work.run_times[first.job.tasks[0].id] == {"v100": first.durations[0], "k80": first.durations[0] * 4}
    assert first.job.tasks[0].kind == "ResNet-18 (batch size 16)"
    labelled = load_trace(path, machines="1xgpu=8,label.gpu_model=k80")
    end = Simulation(scheduler("first-fit", labelled), labelled).run(until=1e9).table["end"]
    assert end[0] == first.time + 4 * first.durations[0]
