"""Soft constraints, balance, and costs of one's own."""

from __future__ import annotations

import numpy as np
import pytest

from flowsched import InputError, Scheduler
from flowsched.cluster import Cluster, Task
from flowsched.cluster.events import JobSubmitted, MachineAdded, MachineUpdated, TaskStarted
from flowsched.policy import CustomCost, LoadCost, Policy, PreferenceCost

LABELS = ({"disk": "ssd", "zone": "a"}, {"disk": "ssd", "zone": "b"}, {"zone": "a"}, {})


def labelled() -> Cluster:
    cluster = Cluster(("cpu",))
    cluster.apply(*(MachineAdded(i, {"cpu": 4}, labels=labels) for i, labels in enumerate(LABELS)))
    return cluster


def test_a_preference_costs_the_part_that_is_unmet() -> None:
    cluster = labelled()
    wishes = ({}, {"disk": ["ssd"]}, {"disk": ["ssd"], "zone": ["a"]}, {"zone": ["b", "c"]})
    cluster.apply(JobSubmitted("j", [Task(i, {"cpu": 1}, prefers=wish) for i, wish in enumerate(wishes)]))
    classes = np.array([cluster.task(i).group.cls.index for i in range(4)])
    assert len(set(classes.tolist())) == 4, "who prefers something else is of another class"
    cost = PreferenceCost()(cluster, classes, np.arange(4))
    assert cost.tolist() == [[0, 0, 0, 0], [0, 0, 1, 1], [0, 0.5, 0.5, 1], [1, 0, 1, 1]]
    assert PreferenceCost()(cluster, classes, np.array([3, 0])).tolist() == [[0, 0], [1, 0], [1, 0], [1, 1]]


def test_it_runs_where_it_prefers_while_there_is_room_and_elsewhere_then() -> None:
    sched = Scheduler(Policy(placement=[PreferenceCost()]), resources=("cpu",))
    sched.apply(*(MachineAdded(i, {"cpu": 4}, labels=labels) for i, labels in enumerate(LABELS)))
    sched.apply(JobSubmitted("j", [Task(i, {"cpu": 4}, prefers={"disk": ["ssd"]}) for i in range(3)]))
    rnd = sched.schedule(0.0)
    assert len(rnd.placements) == 3
    assert {0, 1} < set(rnd.placements.values())
    sched.apply(MachineUpdated(3, labels={"disk": "ssd"}), MachineUpdated(0, labels={"disk": "tape"}))
    assert {1, 3} < set(sched.schedule(1.0).placements.values()), "labels that change are noticed"


def test_balance_is_the_gap_between_the_resources_in_use() -> None:
    cluster = Cluster(("cpu", "mem", "gpu"))
    cluster.apply(MachineAdded("a", {"cpu": 4, "mem": 8}), MachineAdded("b", {"cpu": 4, "mem": 8, "gpu": 1}))
    cluster.apply(MachineAdded("slots", {}, slots=2))
    cluster.apply(JobSubmitted("j", [Task("half", {"cpu": 2}), Task("cpu", {"cpu": 1}), Task("mem", {"mem": 4})]))
    cluster.apply(TaskStarted("half", "a"))
    classes = np.array([cluster.task(t).group.cls.index for t in ("cpu", "mem")])
    rows = np.array([cluster.machine(m).row for m in ("a", "b", "slots")])
    assert LoadCost("balance")(cluster, classes, rows).tolist() == [[0.75, 0.25, 0], [0, 0.5, 0]]


def test_balance_puts_tasks_with_much_memory_next_to_tasks_with_many_cpus() -> None:
    sched = Scheduler(Policy(placement=[LoadCost("balance")]), resources=("cpu", "mem"))
    sched.apply(*(MachineAdded(m, {"cpu": 4, "mem": 4}) for m in "ab"))
    sched.apply(JobSubmitted("c", [Task("c", {"cpu": 3})]), JobSubmitted("m", [Task("m", {"mem": 3})]))
    sched.apply(TaskStarted("c", "b"))
    assert dict(sched.schedule(0.0).placements) == {"m": "b"}


def test_a_function_is_a_cost() -> None:
    """By name of the machine."""

    def taste(cluster: Cluster, classes: np.ndarray, rows: np.ndarray) -> np.ndarray:
        ugly = np.array([cluster.by_row[row].machine.id != "pretty" for row in rows.tolist()], float)
        return np.tile(ugly, (len(classes), 1))

    sched = Scheduler(Policy(placement=[LoadCost(), CustomCost(taste, weight=3.0)]), resources=("cpu",))
    sched.apply(*(MachineAdded(m, {"cpu": 4}) for m in ("plain", "pretty", "grey")))
    sched.apply(JobSubmitted("j", [Task(i, {"cpu": 1}) for i in range(3)]))
    assert set(sched.schedule(0.0).placements.values()) == {"pretty"}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Task("t", prefers={"disk": "ssd"}), r"task 't': prefers\['disk'\]"),
        (lambda: PreferenceCost(weight=0), "weight"),
        (lambda: CustomCost("cheap"), "callable"),
        (lambda: CustomCost(len, weight=-1), "weight"),
        (lambda: LoadCost("even"), "balance"),
    ],
)
def test_nonsense_is_refused_by_name(make, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=words):
        make()


def test_a_cost_of_the_wrong_shape_is_named() -> None:
    cluster = labelled()
    cluster.apply(JobSubmitted("j", [Task("t", {"cpu": 1})]))
    policy = Policy(placement=[LoadCost(), CustomCost(lambda cluster, classes, rows: np.zeros(len(rows)))])
    with pytest.raises(InputError, match=r"placement\[1\].*shape \(4,\), expected \(1, 4\)"):
        policy.place(cluster, np.array([0]), np.arange(4))
