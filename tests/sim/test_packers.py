"""Baselines that pack: the published choice of FGD, machine by machine and GPU by GPU."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from flowsched.cluster.events import JobSubmitted
from flowsched.cluster.model import Machine, Task
from flowsched.sim import Arrival, Simulation, Workload, scheduler


class Node:
    """A machine in whole thousandths."""

    def __init__(self, machine: Machine) -> None:
        capacity: Any = machine.capacity
        self.id, self.model = machine.id, machine.labels["gpu_model"]
        self.cpu, self.mem = round(1000 * capacity["cpu"]), capacity["mem"]
        self.gpus = [1000] * capacity["gpu"]

    def takes(self, pod: dict[str, Any]) -> bool:
        return pod["mem"] <= self.mem and self.runs(pod)

    def runs(self, pod: dict[str, Any]) -> bool:
        """Return what the measure of fragmentation asks: memory does not count."""
        allowed = pod["models"] is None or self.model in pod["models"]
        return allowed and pod["cpu"] <= self.cpu and sum(g >= pod["share"] for g in self.gpus) >= pod["count"]

    def put(self, pod: dict[str, Any], devices: list[int], sign: int = 1) -> None:
        """Start a pod on GPUs, or end it."""
        for d in devices:
            self.gpus[d] -= sign * pod["share"]
        self.cpu -= sign * pod["cpu"]
        self.mem -= sign * pod["mem"]

    def ways(self, pod: dict[str, Any]) -> list[list[int]]:
        """Return the GPUs that a pod may take: any one with room for a share, or the first free ones."""
        room = [d for d, free in enumerate(self.gpus) if free >= pod["share"]]
        return [[d] for d in room] if 0 < pod["share"] < 1000 else [room[: pod["count"]]]

    def fragmentation(self, kinds: list[tuple[dict[str, Any], int]]) -> float:
        lost = 0.0
        for pod, times in kinds:
            of_use = pod["count"] and self.runs(pod)
            lost += times * sum(g for g in self.gpus if not of_use or g < pod["share"])
        return lost / sum(times for _, times in kinds) / 1000


def typical(pods: list[dict[str, Any]]) -> list[tuple[dict[str, Any], int]]:
    """Return the most frequent kinds, until they are 95 % of all pods, of equal ones the largest; memory makes no kind."""
    names = ("cpu", "count", "share", "models")
    kept: list[tuple[dict[str, Any], int]] = []
    counts = Counter(tuple(pod[name] for name in names) for pod in pods)
    for kind, times in sorted(
        counts.items(),
        key=lambda item: (item[1], item[0][0], item[0][2], item[0][1], "|".join(item[0][3] or ())),
        reverse=True,
    ):
        if sum(n for _, n in kept) < 0.95 * len(pods):
            kept.append((dict(zip(names, kind, strict=True)), times))
    return kept


def published(nodes: list[Node], pods: list[dict[str, Any]]) -> list[Any]:
    """Return machine and GPUs of each pod, (None, None) if it does not fit: the highest whole percent of the logistic function, the first."""
    chosen: list[Any] = []
    kinds = typical(pods)
    for pod in pods:
        best, at, on = -1, None, [0]
        for node in nodes:
            if node.takes(pod):
                before = node.fragmentation(kinds)
                for devices in node.ways(pod):
                    node.put(pod, devices)
                    score = int(100 / (1 + math.exp(node.fragmentation(kinds) - before)))
                    node.put(pod, devices, -1)
                    if score > best:
                        best, at, on = score, node, devices
        chosen.append((None, None) if at is None else (at.id, tuple(on)))
        if at is not None:
            at.put(pod, on)
    return chosen


@st.composite
def machines(draw: st.DrawFn) -> list[Machine]:
    return [
        Machine(f"m{i}", {"cpu": draw(st.integers(1, 6)), "mem": draw(st.integers(2, 9)), "gpu": draw(st.integers(0, 4))},
                labels={"gpu_model": draw(st.sampled_from("AB"))})
        for i in range(draw(st.integers(1, 6)))
    ]  # fmt: skip


kinds = st.fixed_dictionaries({
    "cpu": st.sampled_from([0, 500, 1000, 2500]), "mem": st.integers(0, 3),
    "gpu": st.sampled_from([(0, 0), (1, 300), (1, 460), (1, 810), (1, 1000), (2, 1000)]),
    "models": st.sampled_from([None, ("A",), ("A", "B")]),
})  # fmt: skip
drawn_pods = st.lists(kinds, min_size=1, max_size=6).flatmap(
    lambda some: st.lists(st.sampled_from(some), min_size=1, max_size=40)
)


@settings(deadline=None)
@given(machines(), drawn_pods)
def test_fgd_chooses_as_the_simulator_of_its_authors(nodes: list[Machine], drawn: list[dict[str, Any]]) -> None:
    pods = [{**pod, "count": pod["gpu"][0], "share": pod["gpu"][1]} for pod in drawn]
    arrivals = []
    for i, pod in enumerate(pods):
        demand = {"cpu": pod["cpu"] / 1000, "mem": pod["mem"], "gpu": pod["count"] * pod["share"] / 1000}
        wants = {} if pod["models"] is None else {"gpu_model": pod["models"]}
        arrivals.append(Arrival(float(i), JobSubmitted(i, (Task(i, demand, wants),)), (math.inf,)))
    work = Workload("drawn", arrivals, nodes)
    metrics = Simulation(scheduler("fgd", work), work).run()
    found = list(zip(metrics.table["machine"], metrics.table["devices"], strict=True))
    assert found == published([Node(m) for m in nodes], pods)


def test_fgd_does_not_expect_the_rarest_kinds() -> None:
    """The first task of one GPU spoils seven for tasks of eight, if they are more than 5 % of all."""
    for rare, machine in ((2, "m0"), (4, "m1")):
        tasks = [Task(i, {"gpu": 1 if i < 50 - rare else 8}) for i in range(50)]
        arrivals = [Arrival(float(task.id), JobSubmitted(task.id, (task,)), (math.inf,)) for task in tasks]  # type: ignore[arg-type]
        work = Workload("w", arrivals, [Machine("m0", {"gpu": 8}), Machine("m1", {"gpu": 4})], resources=("gpu",))
        assert Simulation(scheduler("fgd", work), work).run(until=0.0).table["machine"] == [machine]
