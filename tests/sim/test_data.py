"""Data of tasks: a column of traces, and what a run reads from where."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowsched.cluster.events import JobSubmitted
from flowsched.cluster.model import Machine, Task
from flowsched.exceptions import TraceError
from flowsched.policy import Locality, Policy
from flowsched.scheduler import Scheduler
from flowsched.sim import Arrival, Simulation, Workload, load_trace, scheduler, write_trace

MACHINES = [Machine(f"m{i}", {"cpu": 2}, f"r{i // 2}") for i in range(4)]


@pytest.mark.parametrize("name", ["jobs.csv", "jobs.jsonl"])
def test_data_is_a_column(name: str, tmp_path: Path) -> None:
    tasks = [Task("a", {"cpu": 1}, data={"m1": 5e9, "m3": 1.5}), Task("b", {"cpu": 1})]
    work = Workload("w", [Arrival(0, JobSubmitted("j", tasks), (1, 1))], MACHINES, resources=("cpu",))
    write_trace(work, tmp_path / name)
    again = load_trace(tmp_path / name).arrivals[0].job.tasks
    assert [dict(task.data) for task in again] == [{"m1": 5e9, "m3": 1.5}, {}]  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["-1", "x", "nan", "inf"])
def test_data_must_be_an_amount(value: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(f"arrival,duration,cpu,data.m0\n0,1,1,{value}\n")
    with pytest.raises(TraceError, match=r"line 2, column 'data\.m0'"):
        load_trace(tmp_path / "x.csv", machines="1xcpu=1")


jobs = st.lists(
    st.tuples(st.integers(0, 9), st.integers(1, 9), st.dictionaries(st.sampled_from(["m0", "m1", "m2", "m3", "gone"]), st.integers(1, 99), max_size=3)),
    min_size=1, max_size=15,
)  # fmt: skip


@settings(deadline=None)
@given(jobs, st.sampled_from(["first-fit", "random"]))
def test_what_is_read_from_where_is_that_of_the_table_of_tasks(
    drawn: list[tuple[int, int, dict[str, int]]], name: str
) -> None:
    arrivals = [
        Arrival(at, JobSubmitted(i, (Task(i, {"cpu": 1}, data=data),)), (length,))
        for i, (at, length, data) in enumerate(drawn)
    ]
    work = Workload("w", arrivals, MACHINES, resources=("cpu",))
    metrics = Simulation(scheduler(name, work), work).run()
    every = machine = rack = 0
    for task, where in zip(metrics.table["task"], metrics.table["machine"], strict=True):
        for source, amount in drawn[task][2].items():
            every += amount
            machine += amount * (source == where)
            near = {"m0": "m1", "m1": "m0", "m2": "m3", "m3": "m2"}
            rack += amount * (source == near[where])
    counts = metrics.counts
    assert (counts["data_read"], counts["data_on_machine"], counts["data_in_rack"]) == (every, machine, rack)


def test_locality_reads_less_from_elsewhere() -> None:
    arrivals = [
        Arrival(float(i), JobSubmitted(i, (Task(i, {"cpu": 1}, data={f"m{3 - i % 4}": 10.0}),)), (3.0,))
        for i in range(40)
    ]
    work = Workload("w", arrivals, MACHINES, resources=("cpu",))
    for policy, near in ((Policy(locality=Locality()), 400), (Policy.named("pack"), 100)):
        counts = Simulation(Scheduler(policy, resources=("cpu",)), work).run().counts
        assert (counts["data_read"], counts["data_on_machine"]) == (400, near)
