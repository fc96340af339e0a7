"""Workloads: the bundled model against the trace it was drawn from, and what can be done to any workload."""

from __future__ import annotations

import csv
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flowsched.cluster.events import JobSubmitted, MachineAdded, MachineFailed
from flowsched.cluster.model import Machine, Task
from flowsched.exceptions import InputError
from flowsched.sim import Arrival, Simulation, Workload, scheduler
from flowsched.sim import workload as model

OPENB = Path(__file__).parents[3] / "shared" / "data" / "openb"
needs_openb = pytest.mark.skipif(not OPENB.is_dir(), reason=f"the openb trace is not at {OPENB}")


def arrival(time: float, duration: float, job: str = "j", n: int = 1, **demand: float) -> Arrival:
    tasks = tuple(Task(f"{job}-{time:g}-{i}", demand) for i in range(n))
    return Arrival(time, JobSubmitted(job, tasks), (duration,) * n)


def workload(*arrivals: Arrival, cpu: float = 4, **kwargs: Any) -> Workload:
    return Workload("small", arrivals, [Machine("m", {"cpu": cpu})], resources=("cpu",), **kwargs)


def rows(name: str) -> list[dict[str, str]]:
    with open(OPENB / name, encoding="utf-8") as file:
        return list(csv.DictReader(file))


@needs_openb
def test_the_shapes_are_those_of_the_trace() -> None:
    shapes = Counter(
        (int(r["cpu_milli"]), int(r["memory_mib"]), int(r["gpu"]), r["model"])
        for r in rows("openb_node_list_all_node.csv")
    )
    assert {row[1:]: row[0] for row in model.SHAPES} == shapes
    assert len(model.SHAPES) == 27
    assert sum(row[0] for row in model.SHAPES) == 1523


@needs_openb
def test_the_request_classes_are_those_of_the_trace() -> None:
    classes = Counter(
        tuple(int(r[c]) for c in ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli"))
        for r in rows("openb_pod_list_default.csv")
    )
    assert {row[1:]: row[0] for row in model.CLASSES} == classes
    assert len(model.CLASSES) == 151
    assert sum(row[0] for row in model.CLASSES) == 8152


@needs_openb
def test_qos_durations_and_gaps_are_those_of_the_trace() -> None:
    pods = rows("openb_pod_list_default.csv")
    kinds = np.array([model.gpu_kind(int(p["num_gpu"]), int(p["gpu_milli"])) for p in pods])
    qos = np.array([p["qos"] for p in pods])
    created = np.array([int(p["creation_time"]) for p in pods])
    ran = np.array([int(p["deletion_time"]) - int(p["scheduled_time"] or p["creation_time"]) for p in pods])
    for kind, counts in model.QOS.items():
        assert counts == Counter(qos[kinds == kind].tolist())
        expected = np.quantile(ran[kinds == kind], model.LEVELS)
        assert np.allclose(model.DURATIONS[kind], expected, atol=0.5)
    late = created[created > 0.75 * created.max()]
    assert np.allclose(model.GAPS, np.quantile(np.diff(late), model.LEVELS), atol=0.5)


def test_the_model_has_the_size_and_the_load_asked_for() -> None:
    work = Workload.model(tasks=6000, load=0.8, scale=0.25, seed=3)
    assert work.n_tasks == 6000
    assert len(work.machines) == round(1523 * 0.25)
    load = work.load()
    assert load["gpu"].capacity == sum(m.capacity["gpu"] for m in work.machines)  # type: ignore[call-overload]
    assert max(x.mean for x in load.values()) == load["gpu"].mean == pytest.approx(0.8, rel=0.15)
    resident = sum(len(a.durations) for a in work.arrivals if a.time == 0)
    assert 0 < resident < 3000
    assert work.horizon == work.arrivals[-1].time > 0


def test_the_whole_model_is_the_whole_cluster() -> None:
    machines = Workload.model(tasks=1, scale=1).machines
    assert len(machines) == 1523
    assert sum(m.capacity["gpu"] for m in machines) == 6212  # type: ignore[call-overload]
    assert len({(str(m.capacity), str(m.labels)) for m in machines}) == 27


def test_the_model_follows_its_seed() -> None:
    one, same, other = (Workload.model(tasks=300, scale=0.02, seed=seed) for seed in (1, 1, 2))
    assert one.arrivals == same.arrivals
    assert one.machines == same.machines == other.machines
    assert one.arrivals != other.arrivals


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("tasks", 0),
        ("tasks", 1.5),
        ("tasks", True),
        ("load", 0),
        ("load", math.nan),
        ("scale", -1),
        ("scale", math.inf),
    ],
)
def test_the_model_refuses_bad_arguments_by_name(argument: str, value: float) -> None:
    with pytest.raises(InputError, match=f"^{argument}(:| must)"):
        Workload.model(**{argument: value})  # type: ignore[arg-type]


def test_arrivals_are_sorted_by_time_and_keep_their_order_at_one_time() -> None:
    work = workload(arrival(5, 1, "c"), arrival(0, 1, "b"), arrival(0, 1, "a"))
    assert [a.job.id for a in work.arrivals] == ["b", "a", "c"]


def test_load_counts_what_every_task_would_take_on_arrival() -> None:
    # cpu 0-10: 2, 4-6: +1, 6-10: +1 (one leaves as the other comes), of 4; arrivals between 0 and 6.
    work = workload(arrival(0, 10, "a", cpu=2), arrival(4, 2, "b", cpu=1), arrival(6, 4, "c", cpu=1))
    load = work.load()["cpu"]
    assert load.capacity == 4
    assert load.peak == pytest.approx(3 / 4)
    assert load.mean == pytest.approx((6 * 2 + 2 * 1) / 6 / 4)


def test_load_of_nothing_is_nothing() -> None:
    assert workload().load()["cpu"].peak == 0
    assert workload(arrival(3, 5, cpu=4)).load()["cpu"].mean == 0  # a single moment has no span to average over


def test_load_counts_machines_that_join_later_once() -> None:
    events = [
        MachineAdded("n", {"cpu": 2}, time=1.0),
        MachineFailed("n", time=2.0),
        MachineAdded("n", {"cpu": 2}, time=3.0),
    ]
    assert workload(arrival(0, 1, cpu=1), machine_events=events).load()["cpu"].capacity == 6


def test_compress_divides_the_gaps_and_keeps_the_durations() -> None:
    work = workload(arrival(10, 7, "a"), arrival(30, 8, "b"), horizon=30.0).compress(4)
    assert [a.time for a in work.arrivals] == [10, 15]
    assert [a.durations for a in work.arrivals] == [(7,), (8,)]
    assert work.horizon == 15
    assert work.compress(2).facts["compress"] == 8


@pytest.mark.parametrize("factor", [0, -2, math.nan, math.inf])
def test_compress_refuses_a_bad_factor(factor: float) -> None:
    with pytest.raises(InputError, match="compress"):
        workload(arrival(0, 1)).compress(factor)


def test_hold_makes_every_task_endless() -> None:
    assert workload(arrival(0, 1, n=2)).hold().arrivals[0].durations == (math.inf, math.inf)


def test_head_cuts_inside_an_arrival() -> None:
    work = workload(arrival(0, 1, "a", n=2), arrival(1, 1, "b", n=3), arrival(2, 1, "c"), horizon=2.0).head(4)
    assert [len(a.durations) for a in work.arrivals] == [2, 2]
    assert work.n_tasks == 4
    with pytest.raises(InputError, match="limit"):
        work.head(-1)


def test_a_simulation_of_the_head_lasts_until_its_tasks_end() -> None:
    arrivals = [arrival(i, 30, f"j{i}") for i in range(6)]
    cut, alone = workload(*arrivals).head(4), workload(*arrivals[:4])
    found, wanted = (Simulation(scheduler("fifo", work), work).run() for work in (cut, alone))
    assert found.tasks["completed"] == 4
    assert found.table == wanted.table


def test_a_task_arrives_once() -> None:
    with pytest.raises(InputError, match="'j-0-0' arrives twice"):
        workload(arrival(0, 1), arrival(0, 2))


@pytest.mark.parametrize(("time", "durations"), [(-1, (1,)), (math.nan, (1,)), (0, ()), (0, (-1,)), (0, (math.nan,))])
def test_an_arrival_is_checked(time: float, durations: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match="'j'|'t'"):
        Arrival(time, JobSubmitted("j", (Task("t"),)), durations)


def test_machine_events_need_a_time() -> None:
    with pytest.raises(InputError, match=r"machine_events\[1\]"):
        workload(machine_events=[MachineFailed("m", time=1.0), MachineFailed("m")])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Workload("w", None, []), "arrivals"),
        (lambda: Workload("w", ["job"], []), r"arrivals\[0\]"),
        (lambda: Workload("w", [], [None]), r"machines\[0\]"),
        (lambda: Workload("w", [], [], ["event"]), r"machine_events\[0\]"),
        (lambda: Arrival(0.0, "job", []), "JobSubmitted"),
        (lambda: Arrival("now", JobSubmitted("j"), []), "'j': time"),
        (lambda: Arrival(0.0, JobSubmitted("j"), None), "'j': durations"),
        (lambda: Arrival(0.0, JobSubmitted("j", [Task("t")]), ["1"]), "'t': the duration"),
    ],
)
def test_what_is_no_workload_is_refused_by_name(make: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        make()
