"""The controller of the cluster's size: values of machines, both rules, prices by hand."""

from __future__ import annotations

import numpy as np
import pytest

from bench import controller
from bench.controller import Point, Rented, at_price, by_threshold, by_value, simulate, values
from bench.rows import Outcome
from flowsched import JobSubmitted, MachineAdded, Policy, Scheduler, Task, WaitCost

GPU, CPU = {"cpu": 1, "mem": 1, "gpu": 1}, {"cpu": 1, "mem": 1, "gpu": 0}


def waiting(*demands: dict[str, float]) -> Scheduler:
    scheduler = Scheduler(Policy(waiting=WaitCost(first=60.0, reserve=None)), resources=("cpu", "mem", "gpu"))
    scheduler.apply(JobSubmitted("j", [Task(i, demand) for i, demand in enumerate(demands)], time=0.0))
    return scheduler


def test_a_machine_is_worth_the_waits_that_it_ends() -> None:
    """One with GPUs takes both tasks, one without only one of them; the longer they have waited, the more it is worth."""
    scheduler = waiting(GPU, CPU)
    young, old = values(scheduler, 1.0), values(scheduler, 3600.0)
    assert 0 < young["cpu"] < young["gpu"] and young["gpu"] < old["gpu"]
    scheduler.apply(MachineAdded("m", {"cpu": 8, "mem": 8, "gpu": 8}, time=3600.0))
    scheduler.commit(scheduler.schedule(3600.0))
    assert max(values(scheduler, 3601.0).values()) <= 0


def test_rules_rent_the_kind_that_tasks_wait_for() -> None:
    for rule in (by_value(10.0), by_threshold(1.0)):
        assert set(rule(waiting(GPU), Rented(), 600.0)) == {"gpu"}
        assert set(rule(waiting(CPU), Rented(), 600.0)) == {"cpu"}
        assert rule(waiting(), Rented(), 600.0) == []
    booting = Rented()
    booting.rent("gpu", 590.0)
    assert by_value(10.0)(waiting(GPU), booting, 600.0) == [], "it boots"


@pytest.mark.parametrize(
    ("rule", "begin"), [(by_value(10.0), 60.0), (by_threshold(1.0), 0.0)], ids=["value", "threshold"]
)
def test_the_price_of_one_task(rule: controller.Rule, begin: float) -> None:
    """A young task is worth no machine by value yet; rented, up after 120 s, and the task runs for 60 s."""
    price, waits = simulate([(0.0, Task("a", CPU), 60.0)], rule)
    assert waits.tolist() == [begin + 120.0]
    assert price == pytest.approx(195 / 3600, abs=1e-9), "the run ends with the task"


def test_waits_at_equal_prices_are_interpolated() -> None:
    points = [Point("threshold", 1.0, 100.0, 1.0, 0.0), Point("threshold", 2.0, 50.0, 100.0, 0.0),
              Point("value", 1.0, 75.0, 5.0, 0.0), Point("value", 2.0, 10.0, 5.0, 0.0)]  # fmt: skip
    (found,) = at_price(points)
    assert found[0] is points[2] and found[1] == pytest.approx(10.0)
    outcome = Outcome()
    controller.add_rows(outcome, points, "sequence")
    assert outcome.rows[-1].ratio == pytest.approx(2.0)


def test_arrivals_swing_and_fit() -> None:
    tasks = controller.arrivals(0, 120)
    times = np.array([time for time, _, _ in tasks])
    counts = np.histogram(times, 12, (0.0, 12 * 3600.0))[0]
    assert len(tasks) >= 100 and (np.diff(times) >= 0).all() and counts.max() > 3 * counts.min()
    assert all(seconds <= 7200 and task.demand["gpu"] <= 8 for _, task, seconds in tasks)
