"""Failures and maintenance as input: tables of machine events, and the errors that name file, line and column."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowsched.cluster.events import JobSubmitted, MachineAdded, MachineFailed, MachineUpdated
from flowsched.cluster.model import Machine, Task
from flowsched.exceptions import InputError, TraceError
from flowsched.scheduler import Scheduler
from flowsched.sim import Arrival, Metrics, Simulation, Workload, load_trace, with_machine_events

SAMPLE = Path(__file__).parents[3] / "shared" / "data" / "google2011_sample" / "machine-events-sample-1.csv"
TWO = (Machine("m0", {"cpu": 2}, "r0", slots=3), Machine("m1", {"cpu": 2}))


def job(name: str, time: float, duration: float, cpu: float = 2) -> Arrival:
    return Arrival(time, JobSubmitted(name, (Task(name, {"cpu": cpu}),)), (duration,))


def work(*arrivals: Arrival, machines: tuple[Machine, ...] = TWO) -> Workload:
    return Workload("w", arrivals or (job("a", 0, 1),), machines, resources=("cpu",))


def run(workload: Workload, **options: object) -> Metrics:
    return Simulation(Scheduler(resources=workload.resources), workload, **options).run()  # type: ignore[arg-type]


def read(tmp_path: Path, text: str, workload: Workload, name: str = "events.csv") -> Workload:
    (tmp_path / name).write_text(text)
    return with_machine_events(workload, tmp_path / name)


# m0: |--- a ---X   down   |--- a, again ---|      a runs 10 s from 0; m0 is down from 4 to 6
def test_a_machine_that_fails_comes_back_as_it_was(tmp_path: Path) -> None:
    events = read(tmp_path, "time,machine,event,until\n4,m0,fail,6\n", work(job("a", 0, 10), machines=TWO[:1]))
    assert events.machine_events == (MachineFailed("m0", time=4), MachineAdded("m0", {"cpu": 2}, "r0", slots=3, time=6))
    metrics = run(events)
    assert (
        metrics.facts["end"] == 16 and metrics.counts["machine_failures"] == 1 and metrics.counts["lost_seconds"] == 4
    )


def test_maintenance_lets_tasks_end_and_starts_none(tmp_path: Path) -> None:
    rows = "time,machine,event,until\n1,m0,drain,\n5,m0,remove,8\n"
    tasks = (job("a", 0, 4), job("b", 2, 1))
    metrics = run(read(tmp_path, rows, work(*tasks, machines=TWO[:1])))
    assert metrics.table["end"] == [4, 9] and metrics.counts["lost_seconds"] == 0


def test_a_drained_machine_takes_tasks_again_at_the_end_of_its_window(tmp_path: Path) -> None:
    tasks = (job("a", 0, 9, cpu=1), job("b", 2, 1, cpu=1))
    metrics = run(read(tmp_path, "machine,event,time,until\nm0,drain,1,7\n", work(*tasks, machines=TWO[:1])))
    assert metrics.table["first_start"] == [0, 7] and metrics.counts["lost_seconds"] == 0


def test_json_lines_in_any_order_beside_events_of_the_trace(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("task,arrival,duration,cpu\na,0,9,1\n")
    (tmp_path / "t.machines.csv").write_text("machine,cpu,time,event\nm0,4,,\nm0,,3,fail\n")
    rows = '{"machine": "m0", "time": 6, "event": "update", "capacity": {"cpu": 1}}\n{"machine": "m0", "time": 5}\n'
    both = read(tmp_path, rows + '{"machine": "new", "cpu": 8}\n', load_trace(tmp_path / "t.csv"), "e.jsonl")
    assert [m.id for m in both.machines] == ["m0", "new"]
    assert both.machine_events == (
        MachineFailed("m0", time=3), MachineAdded("m0", {"cpu": 4.0}, time=5), MachineUpdated("m0", {"cpu": 1.0}, time=6),
    )  # fmt: skip


@pytest.mark.skipif(not SAMPLE.is_file(), reason="the Google sample is not in ../shared/data")
def test_googles_table_of_2011() -> None:
    tasks = (Arrival(0, JobSubmitted("a", (Task("a", {"cpu": 0.5, "mem": 0.1}),)), (5,)),)
    events = with_machine_events(Workload("w", tasks, (), resources=("cpu", "mem")), SAMPLE)
    assert events.machines and all(machine.capacity["cpu"] <= 1 for machine in events.machines)  # type: ignore[call-overload]
    assert run(events).tasks["completed"] == 1


def test_googles_table_of_2019(tmp_path: Path) -> None:
    rows = "time,machine_id,type,capacity.cpus,capacity.memory\n0,7,ADD,0.5,0.5\n3000000,7,REMOVE,,\n4000000,7,ADD,,\n"
    tasks = (Arrival(0, JobSubmitted("a", (Task("a", {"cpu": 0.5, "mem": 0.1}),)), (5,)),)
    metrics = run(read(tmp_path, rows, Workload("w", tasks, (), resources=("cpu", "mem"))))
    assert metrics.facts["end"] == 9 and metrics.counts["machine_failures"] == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the file is empty"),
        ("time,event\n1,fail\n", "line 1: no column 'machine'"),
        ("time,machine,event\nsoon,m0,fail\n", "line 2, column 'time': a number expected, got 'soon'"),
        ("time,machine,event\n-1,m0,fail\n", "line 2, column 'time': a finite number >= 0"),
        ("time,machine,event\n1,m0,explode\n", "line 2, column 'event': add, update, drain, fail, remove expected, got 'explode'"),
        ("time,machine,event\n,m0,fail\n", "line 2, column 'time': a time expected"),
        ("time,machine,event\n1,,fail\n", "line 2, column 'machine': it is missing"),
        ("time,machine,event\n1,m9,fail\n", "line 2, column 'machine': machine 'm9' is not there at 1 s"),
        ("time,machine,event\n5,m0,fail\n1,m0,fail\n", "line 2, column 'machine': machine 'm0' is not there at 5 s"),
        ("time,machine,event,cpu\n1,m0,add,4\n", "line 2, column 'machine': machine 'm0' is there already at 1 s"),
        ("machine,cpu\nm0,4\n", "line 2, column 'machine': machine 'm0' occurs twice"),
        ("time,machine,event,gpu\n1,m0,update,1\n", "line 2, column 'gpu': the workload's resources are cpu"),
        ("time,machine,event,cpus\n1,m0,update,1\n", "line 1, column 'cpus': unknown"),
        ("time,machine,event,until\n5,m0,fail,5\n", "line 2, column 'until': a later time"),
        ("time,machine,event,until\n5,m0,update,9\n", "line 2, column 'until': a later time"),
        ("time,machine,event,until\n5,m0,fail,9\n6,m0,drain,7\n", "line 3, column 'machine': machine 'm0' is not there at 6 s"),
        ('{"machine": "m0", "time": 1, "event": "fail"}\n{"machine": "m0",\n', "line 2, column 18: not JSON"),
        ('{"time": 1, "event": "fail"}\n', "line 1, column 'machine': it is missing"),
        ("0,10,0,x,0.5,0.5\n", "line 1, column 'memory': machines have mem, but the workload's resources are cpu"),
        ("0,10,9,x,0.5,0.5\n", "line 1, column 'event': 0 (ADD), 1 (REMOVE) or 2 (UPDATE) expected, got 9"),
    ],
)  # fmt: skip
def test_a_fault_is_named_before_the_first_round(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(TraceError) as error:
        read(tmp_path, text, work())
    assert str(error.value).startswith(str(tmp_path / "events.csv")) and says in str(error.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0,10,0,x,0.5,0.5\n0,m0,0,x,0.5,0.5\n", "line 2, column 'machine': machine 'm0' is there already at 0 s"),
        ("9000000,m1,0,x,0.5,0.5\n", "line 1, column 'machine': machine 'm1' is there already at 9 s"),
        ("8000000,10,0,x,0.5,0.5\n3000000,10,2,x,0.5,0.5\n", "line 2, column 'machine': machine '10' is removed or updated"),
        ("0,10,0,x,half,0.5\n", "line 1, column 'cpu': a number expected, got 'half'"),
        ("soon,10,0,x,0.5,0.5\n", "line 1: no column 'machine'"),
        ("0,10\n", "line 1: no column 'event'"),
        ("time,machine_id,type,capacity.cpus,capacity.memory\n0,1,ADD,1,1\n0,m0,ADD,1,1\n", "line 3, column 'machine_id': machine 'm0' is there"),
        ("time,machine_id,type,capacity.cpus,capacity.memory\n7,m1,ADD,1,1\n", "line 2, column 'machine_id': machine 'm1' is there already"),
        ("time,machine_id,type,capacity.cpus,capacity.memory\n0,1,ADD,x,1\n", "line 2, column 'capacity.cpus': a number expected"),
        ("time,machine_id,type\n0,1,GROW\n", "line 2, column 'type': 0 to 3, or one of"),
        ('{"time": 0, "machine_id": "1", "type": "ADD"}\n{"time": 0, "machine_id": "2"}\n', "line 2, column 'type': it is missing"),
        ('{"time": 0, "machine_id": "m0", "type": "ADD"}\n', "line 1, column 'machine_id': machine 'm0' is there"),
    ],
)  # fmt: skip
def test_a_fault_of_googles_tables_is_named(tmp_path: Path, text: str, says: str) -> None:
    tasks = (Arrival(0, JobSubmitted("a", (Task("a", {"cpu": 0.5, "mem": 0.1}),)), (5,)),)
    there = [Machine(name, {"cpu": 1, "mem": 1}) for name in ("m0", "m1")]
    with pytest.raises(TraceError) as error:
        read(tmp_path, text, Workload("w", tasks, there, resources=("cpu", "mem")))
    assert str(error.value).startswith(f"{tmp_path / 'events.csv'}, line ") and says in str(error.value)


def test_a_machine_that_leaves_and_comes_at_the_start_is_there(tmp_path: Path) -> None:
    tasks = (Arrival(0, JobSubmitted("a", (Task("a", {"cpu": 0.5, "mem": 0.1}),)), (5,)),)
    rows = "0,10,0,x,1,1\n0,10,1,x,,\n0,10,0,x,0.5,0.5\n"
    assert run(read(tmp_path, rows, Workload("w", tasks, (), resources=("cpu", "mem")))).tasks["completed"] == 1


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file"):
        with_machine_events(work(), tmp_path / "none.csv")


def test_events_given_to_a_simulation_replace_those_of_the_workload() -> None:
    tasks = work(job("a", 0, 10), machines=TWO[:1])
    metrics = run(tasks, machine_events=[MachineAdded("m0", {}, time=7), MachineFailed("m0", time=3)])
    assert metrics.facts["end"] == 17
    assert run(
        Workload("w", tasks.arrivals, TWO[:1], [MachineFailed("m0", time=3)], ("cpu",)), machine_events=()
    ).tasks["completed"]


@pytest.mark.parametrize(
    ("events", "says"),
    [
        ([MachineFailed("m9", time=1)], "machine_events[0]: machine 'm9' is not there at 1 s"),
        ([MachineFailed("m0", time=1), MachineUpdated("m0", time=2)], "machine_events[1]: machine 'm0' is not there at 2 s"),
        ([MachineAdded("m0", {"cpu": 1}, time=1)], "machine_events[0]: machine 'm0' is there already at 1 s"),
    ],
)  # fmt: skip
def test_events_of_machines_that_are_not_there_are_refused(events: list[MachineFailed], says: str) -> None:
    with pytest.raises(InputError) as error:
        Simulation(Scheduler(resources=("cpu",)), work(), machine_events=events)
    assert says in str(error.value)
