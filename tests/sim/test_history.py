"""Runs of tasks, absences of machines and waiting tasks by reason, as metrics keep them and reports draw them."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from matplotlib.figure import Figure

from flowsched.cluster.events import JobSubmitted, MachineAdded, MachineDrained, MachineFailed, MachineUpdated
from flowsched.cluster.model import Machine, Task
from flowsched.policy import Policy
from flowsched.scheduler import Scheduler
from flowsched.sim import Arrival, Metrics, Simulation, Workload, plots, report, scheduler, synthetic
from flowsched.sim.users import Shares, amount_seconds, incidents, scarce, shares


def job(name: str, time: float, duration: float, cpu: float, user: str | None = None, priority: int = 0) -> Arrival:
    return Arrival(time, JobSubmitted(name, (Task(name, {"cpu": cpu}),), user, priority), (duration,))


def run(work: Workload, policy: Policy | None = None, until: float | None = None) -> Metrics:
    return Simulation(Scheduler(policy or Policy(), resources=work.resources), work).run(until)


#  m0, 2 cores:  |--- a ---x (down) |---- a ----|        a: 0 to 4, fails with m0, again 6 to 16
#  m1, 1 core:   |--- b ---|                             b: 0 to 5; m1 is drained from 7 on
@pytest.fixture
def metrics() -> Metrics:
    machines = [Machine("m0", {"cpu": 2}, "r0"), Machine("m1", {"cpu": 1})]
    events = [MachineFailed("m0", time=4), MachineAdded("m0", {}, time=6), MachineDrained("m1", time=7)]
    arrivals = [job("a", 0, 10, 2, "ann"), job("b", 0, 5, 1, "bob")]
    return run(Workload("w", arrivals, machines, events, resources=("cpu",)))


def test_every_run_is_kept(metrics: Metrics) -> None:
    rows = list(
        zip(*(metrics.runs[name].tolist() for name in ("task", "machine", "start", "end", "how", "cpu")), strict=True)
    )
    assert sorted(rows) == [(0, 0, 0.0, 4.0, 2, 2.0), (0, 0, 6.0, 16.0, 1, 2.0), (1, 1, 0.0, 5.0, 1, 1.0)]
    assert metrics.table["user"] == ["ann", "bob"]
    assert dict(metrics.machines) == {"machine": ["m0", "m1"], "rack": ["r0", None], "cpu": [2.0, 1.0]}
    gone = {name: column.tolist() for name, column in metrics.absences.items()}
    assert gone["machine"] == [0, 1] and gone["start"] == [4, 7] and gone["drained"] == [False, True]
    assert gone["end"][0] == 6 and math.isnan(gone["end"][1])


def test_a_run_that_goes_on_has_no_end() -> None:
    work = Workload(
        "w", [job("a", 1, 10, 1)], [Machine("m", {"cpu": 1})], [MachineUpdated("m", slots=3, time=2)], ("cpu",)
    )
    metrics = Simulation(Scheduler(resources=("cpu",)), work).run(until=5)
    assert math.isnan(metrics.runs["end"][0]) and metrics.runs["how"].tolist() == [0]
    assert not len(metrics.absences["machine"])


def test_waiting_tasks_by_reason_add_up() -> None:
    work = synthetic("poisson", tasks=300, scale=0.02, load=1.5)
    metrics = run(work)
    total = sum(metrics.queue[name] for name in metrics.queue if name != "time")
    at = np.searchsorted(metrics.series["time"], metrics.queue["time"], side="right") - 1
    assert len(metrics.queue["time"]) == metrics.counts["rounds"] and total.max() > 0
    last = np.r_[metrics.queue["time"][1:] != metrics.queue["time"][:-1], True]
    assert (total == metrics.series["waiting"][at])[last].all()


def test_of_many_rounds_a_thousand_reasons_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flowsched.sim.recorder._KEPT", 20)
    metrics = run(synthetic("poisson", tasks=200, scale=0.02))
    kept, times = metrics.queue["time"], metrics.rounds["time"]
    assert 10 <= len(kept) <= 20 and len(times) > 200
    stride = next(2**k for k in range(12) if len(times[:: 2**k]) <= 20)
    assert kept.tolist() == times[::stride].tolist()


@pytest.mark.parametrize("name", ["demo", "bursts"])
def test_amounts_by_machine_are_those_of_the_series(name: str) -> None:
    work = synthetic(name, tasks=150, scale=0.5 if name == "demo" else 0.05, seed=2)
    metrics = run(work)
    end = metrics.facts["end"]
    edges = np.linspace(0, end, 50)
    resource, runs = scarce(metrics), metrics.runs
    n = len(metrics.machines["machine"])
    until = np.nan_to_num(runs["end"], nan=end)
    found = amount_seconds(runs["start"], until, runs[resource], runs["machine"], n, edges)
    time, used = metrics.series["time"], metrics.series[f"used_{resource}"]
    area = np.interp(edges, np.r_[time, end], np.r_[0.0, np.cumsum(np.diff(np.r_[time, end]) * used)])
    assert found.sum(axis=0) == pytest.approx(np.diff(area))
    assert (found >= -1e-6).all()


def test_shares_of_users_are_max_min_fair() -> None:
    metrics = run(synthetic("demo", tasks=300, scale=0.5, seed=1), Policy.named("shares"))
    found = shares(metrics)
    assert found.asked is not None and found.entitled is not None
    assert found.received.sum(axis=0) == pytest.approx(_mean_used(metrics, found))
    assert (found.received <= found.asked + 1e-6).all()  # a task that runs has arrived
    assert (found.entitled <= found.asked + 1e-6).all()
    assert found.entitled.sum(axis=0) == pytest.approx(np.minimum(found.asked.sum(axis=0), found.capacity), abs=1e-4)
    for asked, entitled in zip(found.asked.T, found.entitled.T, strict=True):
        short = entitled < asked - 1e-4
        assert (
            not short.any() or entitled[short].min() >= entitled.max() - 1e-4
        )  # less than it asks for: no other has more
    assert (found.capacity[(found.edges[1:] > 0.0) & (found.edges[1:] < 1.0)] == 64).all()
    unstarted = run(synthetic("demo", tasks=300, scale=0.2, seed=1), Policy(preemption=None), until=9000.0)
    assert len(unstarted.unstarted) and shares(unstarted).entitled is None


def _mean_used(metrics: Metrics, found: Shares) -> np.ndarray:
    end, time, used = metrics.facts["end"], metrics.series["time"], metrics.series[f"used_{found.resource}"]
    area = np.interp(found.edges, np.r_[time, end], np.r_[0.0, np.cumsum(np.diff(np.r_[time, end]) * used)])
    return np.diff(area) / np.diff(found.edges)


def test_incidents_name_the_machines_and_the_users_that_lost_tasks() -> None:
    metrics = run(synthetic("demo", seed=0), Policy.named("shares"))
    lines = [text for _, text in incidents(metrics)]
    assert lines[0].startswith("rack 1 goes down, m04 to m07; ")
    lost = sum(int(n) for n in re.findall(r"(\d+) of \w+", " ".join(lines)))
    away = {
        (machine, start) for machine, start in zip(metrics.absences["machine"], metrics.absences["start"], strict=True)
    }
    runs = zip(metrics.runs["machine"], metrics.runs["end"], metrics.runs["how"], strict=True)
    assert lost == sum(how == 2 and (machine, end) in away for machine, end, how in runs) > 10


def test_no_two_runs_share_a_lane() -> None:
    metrics = run(synthetic("demo", tasks=120, scale=0.5))
    until = metrics.runs["end"]
    lane, lanes = plots._lanes(metrics, until)
    for machine in range(len(lanes)):
        for k in range(lanes[machine]):
            mine = (metrics.runs["machine"] == machine) & (lane == k)
            assert (metrics.runs["start"][mine][1:] >= until[mine][:-1]).all()
    assert lane.max() < lanes.max()


def test_the_report_draws_them(metrics: Metrics) -> None:
    pytest.importorskip("matplotlib")
    page = report(metrics)
    for title in ("Shares", "Waiting tasks", "Machines", "Runs"):
        assert f"<b>{title}</b>" in page
    none = run(Workload("w", (), (), resources=("cpu",)))
    assert "<b>Machines</b>" not in report(none)


def test_the_demonstration_is_the_same_for_the_same_seed() -> None:
    one, two = (synthetic("demo", tasks=200, seed=3) for _ in range(2))
    assert one.arrivals == two.arrivals and one.machine_events == two.machine_events
    metrics = Simulation(scheduler("flowsched:shares", one), one).run()
    assert metrics.counts["machine_failures"] == 4 and metrics.tasks["completed"] == one.n_tasks


def test_shares_and_allocation_have_one_denominator(metrics: Metrics) -> None:
    """From 4 to 5 only m1 is up, and b has all of it."""
    axes = Figure().add_subplot()
    plots._shares(axes, metrics)
    tops = [band.get_paths()[0].vertices for band in axes.collections]
    at = [float(max(y for x, y in top if 4.2 < x < 4.8)) for top in tops]
    assert at == pytest.approx([0, 100], abs=1) or at == pytest.approx([100, 100], abs=1)


def test_machines_have_one_order_in_both_plots(metrics: Metrics) -> None:
    for draw in (plots._heat_map, plots._gantt):
        axes = Figure().add_subplot()
        draw(axes, metrics)
        bottom, top = axes.get_ylim()
        assert top == 0 < bottom
