"""Expected fragmentation: worked examples, and the arrays against the definition spelled out GPU by GPU."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st

from flowsched import Scheduler
from flowsched.cluster import MICRO, Cluster, Task
from flowsched.cluster.events import JobSubmitted, MachineAdded, MachineUpdated, TaskCompleted, TaskStarted
from flowsched.exceptions import InputError
from flowsched.policy import Policy
from flowsched.policy.fragmentation import FragmentationCost

MODELS = ("T4", "P100")


def row(cluster: Cluster, machine: str) -> np.ndarray:
    return np.array([cluster.machine(machine).row])


def one_machine(cpu: float, gpu: int, *tasks: Task) -> Cluster:
    cluster = Cluster(("cpu", "gpu"))
    cluster.apply(MachineAdded("m", {"cpu": cpu, "gpu": gpu}, labels={"gpu_model": "T4"}))
    cluster.apply(JobSubmitted("j", tasks))
    return cluster


@pytest.mark.parametrize(
    ("kind", "waste"),
    [
        (Task("x", {"cpu": 1, "gpu": 0.5}), 0.0),  # 0.5 and 1 are of use
        (Task("x", {"cpu": 1, "gpu": 0.6}), 0.5),  # the half GPU is too small
        (Task("x", {"cpu": 1, "gpu": 1}), 0.5),
        (Task("x", {"cpu": 1, "gpu": 2}), 1.5),  # no two whole GPUs
        (Task("x", {"cpu": 9, "gpu": 0.5}), 1.5),  # no CPU, so all is lost
        (Task("x", {"cpu": 9}), 1.5),
        (Task("x", {"cpu": 2}), 0.0),
        (Task("x", {"cpu": 1, "gpu": 0.5}, {"gpu_model": ["P100"]}), 1.5),
    ],
)
def test_one_more_task_is_the_measure_of_fgd(kind: Task, waste: float) -> None:
    """One GPU of 2 is half taken: 1.5 GPUs are free, and 3 CPUs."""
    cluster = one_machine(4, 2, Task("half", {"cpu": 1, "gpu": 0.5}))
    cluster.apply(TaskStarted("half", "m"))
    assert FragmentationCost([(kind, 1.0)], repeat=0).waste(cluster, row(cluster, "m")) == pytest.approx([waste])


def test_popularity_weighs_the_kinds() -> None:
    cluster = one_machine(4, 2, Task("half", {"cpu": 1, "gpu": 0.5}))
    cluster.apply(TaskStarted("half", "m"))
    kinds = [(Task("x", {"gpu": 0.5}), 1.0), (Task("y", {"gpu": 1}), 3.0), (Task("z", {"cpu": 9}), 4.0)]
    assert FragmentationCost(kinds, repeat=0).waste(cluster, row(cluster, "m")) == pytest.approx(
        [3 / 8 * 0.5 + 4 / 8 * 1.5]
    )


def test_many_more_tasks_see_the_cpus_run_out() -> None:
    """4 GPUs but 4 CPUs: tasks of 2 CPUs and one GPU fill 2 of them.  "One more" sees nothing wrong with that."""
    cluster = one_machine(4, 4)
    kind = [(Task("x", {"cpu": 2, "gpu": 1}), 1.0)]
    wastes = [FragmentationCost(kind, repeat=r).waste(cluster, row(cluster, "m"))[0] for r in (0, 0.5, 1)]
    assert wastes == pytest.approx([0, 1, 2])


def test_the_cost_is_the_waste_that_the_placement_adds() -> None:
    """0.5 GPU of a whole one strands the other half for tasks that need a whole GPU: +0.5 -> 0.5 + 0.5 * 0.5 / 1.5."""
    cluster = one_machine(4, 1, Task("half", {"gpu": 0.5}), Task("whole", {"gpu": 1}), Task("large", {"gpu": 2}))
    cost = FragmentationCost([(Task("x", {"gpu": 1}), 1.0)], repeat=0)
    classes = np.array([cluster.task(t).group.cls.index for t in ("half", "whole", "large")])
    assert cost(cluster, classes, row(cluster, "m"))[:, 0] == pytest.approx([0.5 + 1 / 6, 0.5, 0.5])
    cluster.apply(TaskStarted("half", "m"))
    # The other half is worth nothing to that workload, so filling it is a gain: -0.5.
    assert cost(cluster, classes, row(cluster, "m"))[0] == pytest.approx([0.5 - 1 / 6])


def test_the_task_goes_where_it_spoils_least() -> None:
    cost = FragmentationCost.of([Task(i, {"gpu": 1}) for i in range(3)] + [Task("s", {"gpu": 0.4})], repeat=0)
    assert [times for _, times in cost.workload] == [3.0, 1.0]
    sched = Scheduler(Policy(placement=[cost]), resources=("cpu", "gpu"))
    sched.apply(MachineAdded("whole", {"gpu": 1}), MachineAdded("begun", {"gpu": 1}))
    sched.apply(JobSubmitted("a", [Task("first", {"gpu": 0.4})]), TaskStarted("first", "begun"))
    sched.apply(JobSubmitted("b", [Task("second", {"gpu": 0.4})]))
    assert dict(sched.schedule(0.0).placements) == {"second": "begun"}


def brute_waste(
    free: list[float], devices: list[float], model: str | None, kinds: list[tuple[Task, float]], repeat: float
) -> float:
    """The definition, in plain loops; amounts in units."""
    waste, left = 0.0, sum(devices)
    for task, part in kinds:
        cpu, mem, gpu = (task.demand.get(name, 0) for name in ("cpu", "mem", "gpu"))  # type: ignore[union-attr]
        many = 10**9
        for need, have in ((cpu, free[0]), (mem, free[1])):
            many = many if not need else min(many, int(have // need))
        ask = min(gpu, 1)
        if gpu >= 1:
            many = min(many, int(sum(d == 1 for d in devices) // gpu))
        elif gpu:
            many = min(many, sum(int(d // gpu) for d in devices))
        allowed = task.constraints.get("gpu_model")
        if many < 1 or (allowed is not None and model not in allowed):
            waste += part * left
        elif gpu:
            crumbs = sum(d for d in devices if d < ask)
            waste += part * (repeat * (left - many * gpu) + (1 - repeat) * crumbs)
    return waste / sum(part for _, part in kinds)


# Shares of an eighth are exact in floating point, so that the oracle counts as the books do.
amounts = st.builds(
    lambda cpu, mem, gpu: {"cpu": cpu, "mem": mem, "gpu": gpu},
    st.integers(0, 4), st.integers(0, 4), st.sampled_from([0, 0.125, 0.25, 0.375, 0.5, 0.75, 1, 2]),
)  # fmt: skip
specs = st.sampled_from([{}, {"gpu_model": ("T4",)}, {"gpu_model": ("P100",)}, {"gpu_model": MODELS}])
tasks = st.builds(lambda demand, spec: Task("x", demand, spec), amounts, specs)
machines = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(0, 4), st.sampled_from([*MODELS, None])), min_size=1, max_size=5)  # fmt: skip


@settings(max_examples=effort(15, 600), deadline=None)
@given(
    machines, st.lists(st.tuples(tasks, st.integers(1, 5)), min_size=1, max_size=5),
    st.lists(tasks, min_size=1, max_size=12), st.sampled_from([0.0, 0.5, 1.0]), st.randoms(use_true_random=False),
)  # fmt: skip
def test_arrays_agree_with_the_definition(machines, kinds, demands, repeat, random) -> None:  # type: ignore[no-untyped-def]
    cluster = Cluster()
    for i, (cpu, mem, gpu, model) in enumerate(machines):
        cluster.apply(
            MachineAdded(i, {"cpu": cpu, "mem": mem, "gpu": gpu}, labels={"gpu_model": model} if model else {})
        )
    cluster.apply(JobSubmitted("j", [Task(i, t.demand, t.constraints) for i, t in enumerate(demands)]))
    cost = FragmentationCost(kinds, repeat=repeat)
    rows, inventory = np.arange(len(machines)), cluster.inventory

    def wastes() -> list[float]:
        return [
            brute_waste(
                (inventory.free[r] / MICRO).tolist(),
                (inventory.rooms(r) / MICRO).tolist(),
                machines[r][3],
                kinds,
                repeat,
            )
            for r in rows
        ]

    assert cost.waste(cluster, rows) == pytest.approx(wastes())
    for task in range(len(demands)):
        before = wastes()
        cls = cluster.task(task).group.cls.index
        x = cost(cluster, np.array([cls]), rows)[0]
        at = random.choice(rows.tolist())
        devices = inventory.pick(at, cls)
        if devices is None or not inventory.welcomes(at, cls):
            assert devices is not None or x[at] == 0.5
            continue
        cluster.apply(TaskStarted(task, at, devices))
        added = wastes()[at] - before[at]
        assert x[at] == pytest.approx(0.5 + 0.5 * added / (1 + abs(added)))
        assert cost.waste(cluster, rows) == pytest.approx(wastes()), (
            "what did not change is remembered, what did is not"
        )


def test_many_machines_in_few_states_are_weighed_once_each_and_alike() -> None:
    cluster = Cluster()
    for i in range(400):
        cluster.apply(MachineAdded(i, {"cpu": 8, "mem": 8, "gpu": 1 + i % 3}))
    cluster.apply(JobSubmitted("j", [Task(("t", i), {"cpu": i % 4, "gpu": 0.25 + 0.25 * (i % 3)}) for i in range(90)]))
    for i in range(90):
        cluster.apply(TaskStarted(("t", i), 4 * i))
    cost = FragmentationCost.of([Task("x", {"cpu": 3, "gpu": 0.5}), Task("y", {"cpu": 1, "gpu": 1})])
    classes, rows = (
        np.array([cls.index for cls in {cluster.task(("t", i)).group.cls: None for i in range(90)}]),
        np.arange(400),
    )
    together = cost(cluster, classes, rows)
    alone = np.concatenate([cost(cluster, classes, rows[i : i + 1]) for i in range(400)], axis=1)
    assert together == pytest.approx(alone)
    assert len(np.unique(together[0])) > 3


def test_a_new_shape_and_a_finished_task_are_noticed() -> None:
    cluster = one_machine(4, 2, Task("a", {"gpu": 0.5}))
    cost = FragmentationCost([(Task("x", {"gpu": 1}, {"gpu_model": ["T4"]}), 1.0)], repeat=0)
    cluster.apply(TaskStarted("a", "m"))
    assert cost.waste(cluster, row(cluster, "m")) == pytest.approx([0.5])
    cluster.apply(TaskCompleted("a"))
    assert cost.waste(cluster, row(cluster, "m")) == pytest.approx([0.0])
    cluster.apply(MachineUpdated("m", labels={"gpu_model": "P100"}))
    assert cost.waste(cluster, row(cluster, "m")) == pytest.approx([2.0])


def test_without_devices_there_is_nothing_to_spoil() -> None:
    cluster = Cluster(("cpu",))
    cluster.apply(MachineAdded("m", {"cpu": 1}), JobSubmitted("j", [Task("t", {"cpu": 1})]))
    cost = FragmentationCost.of([Task("x", {"cpu": 1})])
    assert cost(cluster, np.array([0]), np.array([0])).tolist() == [[0.5]]
    assert cost.waste(cluster, np.array([0])).tolist() == [0.0]


def test_it_can_be_pickled_and_compared() -> None:
    cost = FragmentationCost.of([Task("x", {"gpu": 1}), Task("y", {"gpu": 0.5})], repeat=0.25, weight=2.0)
    cluster = one_machine(4, 2)
    cost.waste(cluster, row(cluster, "m"))
    assert pickle.loads(pickle.dumps(cost)) == cost


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: FragmentationCost([]), "workload is empty"),
        (lambda: FragmentationCost([("x", 1.0)]), r"workload\[0\].*Task"),  # type: ignore[list-item]
        (lambda: FragmentationCost([(Task("x"), 0)]), r"workload\[0\]"),
        (lambda: FragmentationCost([(Task("x"), 1)], repeat=1.5), "repeat"),
        (lambda: FragmentationCost([(Task("x"), 1)], weight=-1), "weight"),
        (lambda: FragmentationCost.of([]), "workload is empty"),
    ],
)
def test_nonsense_is_refused_by_name(make, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=words):
        make()
