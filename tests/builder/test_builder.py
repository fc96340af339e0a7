"""The network that a cluster becomes: its shape, that it is kept up to date, and that this costs what changed."""

from __future__ import annotations

import random
from itertools import islice

import numpy as np
import pytest
from effort import effort

from flowsched.builder import Builder, class_arcs
from flowsched.builder.racks import ANONYMOUS_RACK, RackArcs
from flowsched.builder.reading import read
from flowsched.cluster import Cluster, Task
from flowsched.cluster.events import (
    Event,
    JobRemoved,
    JobSubmitted,
    MachineAdded,
    MachineDrained,
    MachineFailed,
    MachineRemoved,
    MachineUpdated,
    TaskCompleted,
    TaskFailed,
    TaskStarted,
    TaskSubmitted,
)
from flowsched.network import INF, FlowNetwork
from flowsched.policy import OMEGA, LoadCost, Policy, WaitCost
from flowsched.scheduler import Scheduler


def update(builder: Builder, now: float) -> None:
    with builder.round(now) as scope:
        builder.update(builder.cluster.changes(now), scope)


def build(*events: Event, policy: Policy | None = None, now: float = 0.0) -> Builder:
    cluster = Cluster(("cpu",))
    cluster.apply(*events)
    builder = Builder(cluster, FlowNetwork(), policy or Policy())
    update(builder, now)
    return builder


def arcs(network: FlowNetwork) -> list[tuple[int, int, int, int]]:
    """(tail, head, capacity, cost) of all arcs."""
    columns = (network.tail(), network.head(), network.capacity(), network.cost())
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_the_network_of_sirius() -> None:
    """Three priorities, one machine of one slot.

    ::

        g1 --W1--> U1 --> S        g1 -> X1 -> R1 -+
        g2 --W2--> U2 --> S        g2 -> X2 -> R2 -+--> M --1--> S
        g5 --W5--> U5 --> S        g5 -> X5 -> R5 -+
    """
    builder = build(
        MachineAdded("M", {}, slots=1), *(JobSubmitted(f"J{p}", [Task(f"T{p}")], priority=p) for p in (1, 2, 5))
    )
    network = builder.network
    assert network.num_nodes == 1 + 1 + 3 * 4
    assert network.num_arcs == 1 + 3 * 5
    assert sorted(network.supply().tolist()) == [-3] + [0] * 10 + [1, 1, 1]
    waits = sorted(cost for _, _, capacity, cost in arcs(network) if capacity == INF and cost)
    assert len(waits) == 3 and waits[0] > OMEGA
    assert np.diff(waits).min() > OMEGA
    solution = network.solve()
    assert solution.cost == waits[0] + waits[1] + OMEGA  # the better two of the three waits are the more expensive ones
    with builder.round(0.0) as scope:
        (flow,) = read(builder, scope)
    assert [group.job.job.id for group, units in flow.groups] == ["J1"] and flow.rows == [(0, 1)]


def test_tasks_alike_are_one_node_and_classes_are_shared_between_jobs() -> None:
    builder = build(
        MachineAdded("m", {"cpu": 4}),
        JobSubmitted("a", [Task(i, {"cpu": 1}) for i in range(100)]),
        JobSubmitted("b", [Task(100 + i, {"cpu": 1 + i % 2}) for i in range(100)]),
    )
    # sink, machine; a: U, g; b: U, g, g; classes of 1 and 2 cpu: X and R
    assert builder.network.num_nodes == 2 + 2 + 3 + 4
    entering = [capacity for _, head, capacity, _ in arcs(builder.network) if head == builder.machines.node[0]]
    assert sorted(entering) == [2, 4], "how many fit of each class"


def test_there_is_no_arc_to_a_machine_that_cannot_take_the_class() -> None:
    builder = build(
        MachineAdded("small", {"cpu": 1}),
        MachineAdded("large", {"cpu": 9}),
        MachineAdded("other", {"cpu": 9}, labels={"zone": "b"}),
        JobSubmitted(
            "j",
            [Task("t", {"cpu": 2}, {"zone": ("a",)}), Task("u", {"cpu": 2}, {"zone": ("b",)}), Task("v", {"cpu": 99})],
        ),
    )
    heads = [head for _, head, _, _ in arcs(builder.network)]
    assert [heads.count(node) for node in builder.machines.node[:3].tolist()] == [0, 0, 1]


def test_racks_gather_machines() -> None:
    machines = [MachineAdded(i, {"cpu": 1}, rack=f"r{i % 3}" if i < 9 else None) for i in range(9 + ANONYMOUS_RACK + 1)]
    builder = build(*machines, JobSubmitted("j", [Task("t", {"cpu": 1})]))
    assert builder.network.num_nodes == 1 + len(machines) + 3 + (3 + 2)
    builder.cluster.apply(MachineUpdated(0, rack="new"), *(MachineRemoved(i) for i in (1, 4, 7)))
    update(builder, 1.0)
    assert builder.network.num_nodes == 1 + len(machines) - 3 + 3 + (2 + 1 + 2)
    builder.network.solve()
    builder.network.certify()


def test_time_alone_touches_only_groups_whose_bucket_ends() -> None:
    policy = Policy(waiting=WaitCost(first=10.0))
    jobs = [JobSubmitted(i, [Task(i, {"cpu": 1})], time=float(i % 5)) for i in range(50)]
    builder = build(*jobs, policy=policy, now=4.0)

    def changes(now: float) -> int:
        before = builder.batch.count
        update(builder, now)
        return builder.batch.count - before

    assert changes(9.0) == 0
    assert changes(10.5) == 10
    assert changes(10.9) == 0
    assert changes(14.0) == 40
    assert changes(19.9) == 0
    assert changes(1e9) == 50
    assert changes(1e12) == 0


def test_a_class_without_waiting_tasks_costs_nothing_until_it_has_some() -> None:
    builder = build(*(MachineAdded(i, {"cpu": 8}) for i in range(20)), JobSubmitted("a", [Task("a", {"cpu": 1})]))
    cluster = builder.cluster
    cluster.apply(JobSubmitted("b", [Task(("b", i), {"cpu": 2}) for i in range(10)]), TaskStarted("a", 0))
    update(builder, 1.0)
    cluster.apply(*(TaskStarted(("b", i), i) for i in range(10)))
    before = builder.batch.count
    update(builder, 2.0)
    assert builder.batch.count - before == 1 + 10  # entry to the aggregator, stay arcs; no load of any machine
    cluster.apply(TaskSubmitted("a", Task("a2", {"cpu": 1})))
    before = builder.batch.count
    update(builder, 3.0)
    # supplies of group and sink, entry; then the machines that changed: cost, and room
    assert builder.batch.count - before == 3 + 2 * 10


@pytest.mark.parametrize("size", [40, 400])
def test_one_arrival_changes_the_same_few_numbers_at_any_size(size: int) -> None:
    sched = Scheduler(resources=("cpu",))
    sched.apply(*(MachineAdded(i, {"cpu": 8}) for i in range(size)))
    sched.apply(*(JobSubmitted(i, [Task((i, k), {"cpu": 1}) for k in range(4)]) for i in range(size // 2)))
    sched.commit(sched.schedule(0.0))
    sched.apply(TaskSubmitted(3, Task("one", {"cpu": 1})))
    sched.commit(sched.schedule(1.0))
    sched.apply(TaskCompleted((7, 2)), TaskSubmitted(3, Task("two", {"cpu": 1})))
    assert sched.schedule(2.0).stats.changes <= 12


def twin(cluster: Cluster) -> Cluster:
    """Another cluster in the same state, with another past."""
    other = Cluster(cluster.resources)
    for record in cluster.machines.values():
        m = record.machine
        other.apply(MachineAdded(m.id, m.capacity, m.rack, m.labels, m.slots))
    for job in cluster.jobs.values():
        other.apply(JobSubmitted(job.job.id, priority=job.job.priority))
    names = cluster.resources.names
    for task in sorted(cluster.tasks.values()):
        demand = dict(zip(names, (task.group.cls.demand / 1e6).tolist(), strict=True))
        other.apply(
            TaskSubmitted(task.group.job.job.id, Task(task.id, demand, task.group.cls.constraints), time=task.since)
        )
        if task.place:
            other.apply(TaskStarted(task.id, cluster.placement(task.id), task.place.devices, time=task.place.since))
    for record in cluster.machines.values():
        if record.failed:
            other.apply(MachineFailed(record.machine.id))
        elif record.drained:
            other.apply(MachineDrained(record.machine.id))
    return other


@pytest.mark.parametrize("swept", [False, True])
@pytest.mark.parametrize("seed", range(effort(3, 12)))
def test_an_updated_network_has_the_same_optimum_as_a_new_one(
    seed: int, swept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    released: list[int] = []
    if swept:  # whenever an update leaves some classes alone, and however few arcs they have
        sweep_always(monkeypatch, released)
    rng = random.Random(seed)
    sched = Scheduler(Policy(placement=(LoadCost(rng.choice(["spread", "pack"])),), waiting=WaitCost(first=3.0)))
    # A priority that falls out of use keeps its place among the levels, so all stay in use here.
    levels = [JobSubmitted(f"level {p}", [Task(f"level {p}", {"cpu": 99})], priority=p, time=0.0) for p in range(3)]
    sched.apply(*levels)
    machines, count = 0, 0
    for now in range(25):
        for _ in range(rng.randrange(4)):
            cluster, kind = sched.cluster, rng.randrange(9)
            running = [t.id for t in cluster.tasks.values() if t.place]
            up = [m for m in cluster.machine_ids() if not cluster.machine(m).failed]
            if kind < 2 or not up:
                capacity = {"cpu": rng.randrange(2, 9), "gpu": rng.randrange(3)}
                sched.apply(
                    MachineAdded(machines, capacity, rng.choice([None, "r", "s"]), slots=rng.choice([None, 1, 3]))
                )
                machines += 1
            elif kind < 5:
                demand = {"cpu": rng.randrange(1, 4), "gpu": rng.choice([0, 0, 0.5, 1])}
                tasks = [Task(count + i, demand) for i in range(rng.randrange(1, 6))]
                sched.apply(JobSubmitted(("j", count), tasks, priority=rng.randrange(3), time=now))
                count += len(tasks)
            elif kind == 5 and running:
                sched.apply(rng.choice([TaskCompleted, TaskFailed])(rng.choice(running), time=now))
            elif kind == 6:
                sched.apply(rng.choice([MachineDrained, MachineFailed, MachineRemoved])(rng.choice(up)))
            elif kind == 7:
                sched.apply(MachineUpdated(rng.choice(up), rack=rng.choice(["r", "t"]), slots=rng.choice([None, 20])))
            elif len(cluster.jobs) > len(levels):
                sched.apply(JobRemoved(rng.choice(list(cluster.jobs)[len(levels) :])))
        rnd = sched.schedule(now)
        sched.builder.check_ids()
        sched.commit(rnd)
        now_ = now + 0.5
        update(sched.builder, now_)
        kept = sched.network.solve()
        sched.network.certify()
        other = twin(sched.cluster)
        anew = Builder(other, FlowNetwork(), sched.policy)
        update(anew, now_)
        assert kept.cost == anew.network.solve().cost
        assert sched.network.supply().sum() == 0
    assert bool(released) == swept


def sweep_always(monkeypatch: pytest.MonkeyPatch, released: list[int]) -> None:
    """Remove arcs of idle classes in every round with changes; note the classes whose arcs were removed."""
    monkeypatch.setattr(class_arcs, "_IDLE", 0)
    monkeypatch.setattr(class_arcs, "_FEW", 1)
    monkeypatch.setattr(class_arcs, "_RATIO", 0.0)
    release = RackArcs.release

    def noted(racks: RackArcs, class_id: int) -> list[int]:
        if class_id in racks.aggregators:
            released.append(class_id)
        return release(racks, class_id)

    monkeypatch.setattr(RackArcs, "release", noted)


def test_arcs_of_classes_that_wait_no_more_are_removed_once_they_outnumber_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(class_arcs, "_FEW", 1)
    sched = Scheduler(Policy(preemption=None), resources=("cpu",))
    sched.apply(*(MachineAdded(i, {"cpu": 99}, rack=i // 10) for i in range(50)))
    counts, names = [], iter(range(10**6))
    for priority in range(12):
        for now in range(3):  # the network keeps the arcs of the classes of the last rounds
            jobs = [
                JobSubmitted(i, [Task((i, k), {"cpu": 1 + i % 3}) for k in range(60)], priority=priority)
                for i in islice(names, 3)
            ]
            sched.apply(*jobs)
            rnd = sched.schedule(3.0 * priority + now)
            sched.builder.check_ids()
            assert len(rnd.placements) == 180
            counts.append(rnd.stats.arcs)
            sched.commit(rnd)
            sched.apply(*(TaskCompleted(task) for task in list(rnd.placements)[:-3]))  # every class stays in use
    assert counts[2] > 150 and max(counts) < 4 * counts[2]
    sched.apply(JobSubmitted("again", [Task("again", {"cpu": 1})]))  # of a class whose arcs have gone
    rnd = sched.schedule(100.0)
    assert list(rnd.placements) == ["again"] and rnd.stats.arcs > counts[0]
    sched.builder.check_ids()
