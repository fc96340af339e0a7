"""Compiled rules over pairs against NumPy: room, costs, and the mirror after each update."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from random import Random

import numpy as np
import pairs
import pytest
from effort import effort
from lives import POLICIES, Life

import flowsched as fs
from flowsched.builder import Builder, _arcs, _running
from flowsched.builder.batch import NetworkBatch
from flowsched.builder.queues import Head
from flowsched.cluster import Cluster, _room
from flowsched.cluster.limits import DOWN
from flowsched.cluster.model import MICRO, UNLIMITED
from flowsched.cluster.records import over_capacity
from flowsched.rounds import contest

KINDS = ("spread", "pack", "balance")


def cluster_of(seed: int) -> Cluster:
    """Machines and classes of all shapes, some tasks running; written into the arrays, so odder than any history."""
    random, gen = Random(seed), np.random.default_rng(seed)
    names = random.choice([("cpu",), ("cpu", "mem"), ("cpu", "mem", "gpu"), (*"abcdefghij", "gpu")])
    cluster = Cluster(names)
    for row in range(random.randrange(1, 40)):
        devices = {"gpu": random.choice([0, 1, 4])} if "gpu" in names else {}
        capacity = {name: random.choice([0, 1, 7.3, 64]) for name in names if name != "gpu"} | devices
        labels = {"zone": random.choice("ab")}
        cluster.apply(fs.MachineAdded(row, capacity, labels=labels, slots=random.choice([None, 0, 1, 9])))
    for job in range(random.randrange(1, 12)):
        demand = {name: random.choice([0, 0.1, 1, 2.5]) for name in names if name != "gpu"}
        demand |= {"gpu": random.choice([0, 0.3, 0.5, 1, 2])} if "gpu" in names else {}
        wanted = random.choice([{}, {"zone": ("a",)}])
        cluster.apply(
            fs.JobSubmitted(job, [fs.Task((job, 0), demand, constraints=wanted)], priority=random.randrange(4))
        )
    inventory = cluster.inventory
    rows, levels = inventory.rows, len(inventory.levels)
    inventory.free[:rows] -= (inventory.capacity[:rows] * gen.choice([0, 0.3, 1, 1.2], (rows, 1))).astype(np.int64)
    inventory.devices[:] -= gen.choice([0, 700_000, MICRO, 1_300_000], inventory.devices.shape)
    inventory.usable[:rows] = gen.random(rows) < 0.8
    inventory.running_at[:rows, :levels] = gen.integers(0, 3, (rows, levels))
    inventory.running[:rows] = inventory.running_at[:rows].sum(axis=1)
    inventory.over[:rows] = [over_capacity(inventory, row) for row in range(rows)]
    return cluster


def grid(cluster: Cluster, seed: int) -> tuple[np.ndarray, np.ndarray]:
    gen = np.random.default_rng(seed)
    classes, rows = np.array(list(cluster.by_class)), np.arange(cluster.inventory.rows)
    return gen.permutation(classes)[: gen.integers(0, 12)], gen.permutation(rows)[: gen.integers(0, 40)]


@pytest.mark.parametrize("seed", range(effort(12, 60)))
def test_room(seed: int) -> None:
    cluster = cluster_of(seed)
    for ruled in (False, True):
        fits, why = _room.room(cluster.inventory, *grid(cluster, seed), ruled)
        fits_there, why_there = pairs.room(cluster.inventory, *grid(cluster, seed), ruled)
        assert fits.tolist() == fits_there.tolist()
        assert why.tolist() == why_there.tolist()
        assert (fits.dtype, why.dtype, fits.shape) == (np.int64, np.uint32, fits_there.shape)


@pytest.mark.parametrize("seed", range(effort(12, 60)))
def test_costs_to_the_last_bit(seed: int) -> None:
    cluster = cluster_of(seed)
    classes, rows = grid(cluster, seed)
    for kind in KINDS:
        assert (
            fs.LoadCost(kind)(cluster, classes, rows).tobytes()
            == pairs.load(cluster.inventory, kind, classes, rows).tobytes()
        )
    assert (
        fs.DeviceCost()(cluster, classes, rows).tobytes()
        == pairs.wasted_devices(cluster.inventory, classes, rows).tobytes()
    )


class Same(fs.LoadCost):
    """A cost that compiled code does not know: its exact type is another one."""


@pytest.mark.parametrize("seed", range(effort(6, 30)))
def test_a_policy_of_built_in_costs_prices_like_one_of_others(seed: int) -> None:
    cluster, random = cluster_of(seed), Random(seed)
    classes, rows = grid(cluster, seed)
    weights = [random.choice([0.1, 1, 3.7]) for _ in KINDS]
    locality, resolution = random.choice([None, fs.Locality(0.3)]), random.choice([1, 7, 1000, 10**9])
    policies = [
        fs.Policy((*map(cost, KINDS, weights), fs.DeviceCost(0.4)), locality=locality, resolution=resolution)
        for cost in (fs.LoadCost, Same)
    ]
    assert [policy.recipe is None for policy in policies] == [False, True]
    one, other = (policy.place(cluster, classes, rows) for policy in policies)
    assert one.tolist() == other.tolist()
    assert one.dtype == other.dtype == np.int64


def test_costs_that_are_not_all_built_in_are_asked_in_numpy() -> None:
    custom = fs.CustomCost(lambda cluster, classes, rows: np.zeros((len(classes), len(rows))))
    assert fs.Policy((fs.LoadCost(), custom)).recipe is None
    assert fs.Policy(debug=True).recipe is None
    assert fs.Policy((fs.LoadCost(),) * 17).recipe is None
    assert fs.Policy(()).recipe == ((), 1.0, 1000.0)


@pytest.mark.parametrize("seed", range(effort(6, 30)))
def test_seats(seed: int) -> None:
    cluster, random = cluster_of(seed), Random(seed)
    classes, rows = grid(cluster, seed)
    refused = {int(c): dict.fromkeys(random.sample(range(40), 9)) for c in classes[::2]}
    for displacing in (False, True):
        found = _arcs.seats(cluster.inventory, classes, rows, displacing, refused)
        assert found.tolist() == pairs.seats(cluster.inventory, classes, rows, displacing, refused).tolist()


@pytest.mark.parametrize("seed", range(effort(6, 30)))
def test_sizes_and_room_in_sum(seed: int) -> None:
    cluster = cluster_of(seed)
    inventory, (classes, _) = cluster.inventory, grid(cluster, seed)
    parts = inventory.demand[classes] / np.maximum(inventory.total, 1)
    assert inventory.sizes(classes) == parts.max(axis=1).tolist() == [inventory.size(int(c)) for c in classes]
    free = inventory.free[: inventory.rows]
    for least in (
        np.zeros_like(free[0]),
        np.median(free, axis=0).astype(np.int64),
        free.max(axis=0),
        free.max(axis=0) + 1,
    ):
        found = _room.spacious(inventory, least)
        assert found.tolist() == free[(free >= least).all(axis=1)].sum(axis=0).tolist()


def test_indices_and_lengths_are_checked() -> None:
    cluster = cluster_of(3)
    inventory, one = cluster.inventory, np.zeros(1, np.int64)
    for wrong in (-1, len(inventory.demand), len(inventory.slots)):
        with pytest.raises(IndexError):
            _room.room(inventory, one + wrong, one, False)
        with pytest.raises(IndexError):
            _room.room(inventory, one, one + max(wrong, -1) + 10**6 * (wrong > 0), False)
    with pytest.raises((ValueError, BufferError)):
        _room.room(inventory, one.astype(np.int32), one, False)
    with pytest.raises((ValueError, BufferError)):
        _room.room(inventory, np.zeros(4, np.int64)[::2], one, False)
    arcs = Builder(cluster, fs.FlowNetwork(), fs.Policy()).classes
    for classes, outbid in ((one - 1, []), (one + 10**6, []), (one, [1]), (one, [-1])):
        with pytest.raises(IndexError):
            _arcs.look(arcs, classes, outbid, 0, array("q"), 0, 100)
    assert _arcs.look(arcs, one, [], 0, array("q"), 0, inventory.rows - 1) is None


@pytest.mark.parametrize("count", [3, 200])
def test_rows_that_changed_are_found_in_the_log_or_without_it(count: int) -> None:
    cluster, random = Cluster(("cpu",)), Random(count)
    cluster.apply(*(fs.MachineAdded(i, {"cpu": 4}, rack=i % 7) for i in range(count)))
    inventory = cluster.inventory
    clocks = [0]
    for step in range(400):
        clocks.append(inventory.clock)
        for clock in (*random.sample(clocks, min(3, len(clocks))), *clocks[-9:]):
            expected = np.flatnonzero(inventory.version[: inventory.rows] > clock)
            found = inventory.changed_since(clock)
            assert found.tolist() == expected.tolist()
            assert found.dtype == np.int64
        assert len(inventory._log) <= inventory._log_most + 1
        row = random.randrange(count)
        if step % 40 == 17 and row in cluster.machines:
            cluster.apply(fs.MachineRemoved(row))
        elif step % 40 == 30:
            cluster.apply(fs.MachineAdded(("new", step), {"cpu": 2}))
        else:
            inventory.touch(row if row in cluster.by_row else next(iter(cluster.by_row)))
    with pytest.raises(IndexError):
        _room.changed(inventory, [len(inventory.version)], 0, 0)


def check_mirror(builder: Builder, refused: dict) -> None:
    """Compare what the builder and its network hold of the waiting classes with the rules, for every machine."""
    cluster, policy, arcs = builder.cluster, builder.policy, builder.classes
    inventory = cluster.inventory
    classes, rows = np.array([cls.index for cls in cluster.waiting], np.int64), np.array(list(cluster.by_row), np.int64)
    if not len(classes) or not len(rows):
        return
    at = np.ix_(classes, rows)
    fits, why = inventory.room(classes, rows)
    if not (inventory.rule or inventory.constraints or inventory.affinity.fussy or inventory.shunned.ids):
        assert why.tolist() == pairs.room(inventory, classes, rows)[1].tolist()
    seats = pairs.seats(inventory, classes, rows, policy.preemption is not None, refused)
    arc, capacity = arcs._arc[at], arcs._capacity[at]
    assert capacity.tolist() == np.minimum(fits, seats).tolist()
    assert arcs._why[at].tolist() == why.tolist()
    assert arcs._open[classes].tolist() == (why == 0).sum(axis=1).tolist()
    assert (arcs._roomy[classes] == (arcs._open[classes] > 0)).all()
    gone = np.setdiff1d(np.arange(arcs._why.shape[1]), rows)
    assert (arcs._why[np.ix_(classes, gone)] == DOWN).all()
    assert (arc[capacity > 0] >= 0).all()
    there, open_ = arc >= 0, capacity > 0
    assert builder.network.capacity(arc[there]).tolist() == capacity[there].tolist()
    assert builder.network.cost(arc[open_]).tolist() == policy.place(cluster, classes, rows)[open_].tolist()


def check_running(builder: Builder, now: float) -> None:
    """Compare the running arcs that the builder and its network hold with the tasks that run."""
    cluster, policy, running, network = builder.cluster, builder.policy, builder.running, builder.network
    groups = {task.group for task in cluster.tasks.values() if task.row >= 0}
    heap = running._end[: running._ends].tolist()
    assert all(heap[(i - 1) // 4] <= heap[i] for i in range(1, len(heap)))
    ends = set(zip(heap, running._ending.tolist(), strict=False))
    assert running.due == running._due.min()
    assert {group: set(group.on) for group in groups} == {group: {*at} for group, at in running._of.items() if at}
    for group in groups:
        for row, began in group.on.items():
            index = running._of[group][row]
            limited = cluster.inventory.slots[row] < UNLIMITED
            since = max(began) if limited else math.inf
            bucket = policy.waiting.bucket(now - since) if policy.preemption else 0
            due = policy.waiting.due(since, bucket) if policy.preemption else math.inf
            assert (running._running[index], running._since[index]) == (len(began), since)
            assert (running._bucket[index], running._due[index]) == (bucket, due)
            assert due == math.inf or (due, index) in ends
            arc = running._arc[index : index + 1]
            assert (network.tail(arc), network.head(arc)) == (
                builder.groups.nodes[group].node,
                builder.machines.node[row],
            )
            assert (network.capacity(arc), network.cost(arc)) == (len(began), -policy.scale.stay(bucket))


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Check the mirror after every update of any builder; the list counts them."""
    count, solve, schedule, decided = [0], NetworkBatch.solve, fs.Scheduler.schedule, []

    def note(sched: fs.Scheduler, now: float) -> fs.Round:
        decided[:] = sched.builder, now
        return schedule(sched, now)

    def check_first(batch: NetworkBatch, seconds: float) -> tuple:
        builder, now = decided
        check_mirror(builder, builder._evictions.refused)
        check_running(builder, now)
        count[0] += 1
        return solve(batch, seconds)

    monkeypatch.setattr(fs.Scheduler, "schedule", note)
    monkeypatch.setattr(NetworkBatch, "solve", check_first)
    yield count
    assert count[0]


@pytest.mark.parametrize("seed", range(effort(3, 14)))
def test_the_mirror_is_as_the_rules_say_all_life_long(seed: int, checked: list[int]) -> None:
    policies = [*POLICIES, fs.Policy, lambda: fs.Policy.named("pack-no-preemption")]
    sched, life = fs.Scheduler(policies[seed % len(policies)]()), Life(seed)
    for _ in range(60):
        sched.apply(*life.events(sched))
        if life.random.random() < 0.05:
            sched.policy = life.random.choice(policies)()
        if life.random.random() < 0.7:
            rnd = sched.schedule(life.later())
            sched.commit(rnd, life.only(rnd))


@pytest.mark.long
@pytest.mark.parametrize("preemption", [fs.PreemptionCost(), None])
@pytest.mark.parametrize("seed", range(effort(1, 9)))
def test_runs_come_of_age_one_by_one_and_together(
    seed: int, preemption: fs.PreemptionCost | None, checked: list[int]
) -> None:
    random, now, running, made = Random(seed), 0.0, [], 0
    policy = fs.Policy(waiting=fs.WaitCost(first=1.0, factor=1.4), preemption=preemption)
    sched = fs.Scheduler(policy, resources=("cpu",))
    sched.apply(*(fs.MachineAdded(i, {"cpu": 8}, slots=8) for i in range(30)))
    for step in range(150):
        ended = [
            running.pop(random.randrange(len(running)))
            for _ in range(min(len(running), random.choice([0, 1, 1, 2, 40])))
        ]
        new = range(made, made := made + random.choice([0, 1, 1, 2, 60]))
        sched.apply(*map(fs.TaskCompleted, ended), *(fs.JobSubmitted(i, [fs.Task(i, {"cpu": 1})]) for i in new))
        if step % 50 == 30:
            image = sched.snapshot()
            sched = fs.Scheduler.restore(image)
            assert sched.snapshot() == image
        elif step % 50 == 40:
            sched.policy = fs.Policy(
                waiting=fs.WaitCost(first=random.random() + 0.1, factor=1.3), preemption=preemption
            )
        now += random.choice([0.0, 0.01, 0.1, 1.0, 9.0])
        rnd = sched.schedule(now)
        sched.commit(rnd)
        running += rnd.placements
        assert (sched.engine.builder.running.due < math.inf) <= (preemption is not None)


def test_the_first_end_counts_after_a_run_that_takes_the_place_of_another(checked: list[int]) -> None:
    sched = fs.Scheduler(resources=("cpu",))
    sched.apply(fs.MachineAdded("m", {"cpu": 2}, slots=2))
    sched.apply(fs.JobSubmitted("j", [fs.Task(k, {"cpu": 1}) for k in range(3)]))
    sched.commit(sched.schedule(0.0))
    sched.apply(fs.TaskCompleted(0))
    sched.commit(sched.schedule(3.0))
    sched.schedule(4.0)
    running = sched.engine.builder.running
    assert running.due == 63.0 and fs.Scheduler.restore(sched.snapshot()).engine.builder.running.due == 63.0


def test_running_arcs_of_other_objects_are_refused() -> None:
    sched = fs.Scheduler()
    sched.apply(fs.MachineAdded("m", {"cpu": 4}), fs.JobSubmitted("j", [fs.Task("t", {"cpu": 1})]))
    sched.commit(sched.schedule(0.0))
    builder = sched.engine.builder
    builder.update(sched.cluster.changes(), builder.round(1.0))
    ((group, at),) = builder.running._of.items()
    (row,) = at
    for wrong in (object(), "g", group.job):
        with pytest.raises((AttributeError, TypeError)):
            _running.find_running(builder.running, {wrong: {row: None}})
    for where in (-1, 10**6, 2**80):
        group.on[where] = (0.0,)
        with pytest.raises((IndexError, OverflowError)):
            _running.find_running(builder.running, {group: {where: None}})
        del group.on[where]
    group.on[row] = [0.0]
    with pytest.raises(TypeError):
        _running.find_running(builder.running, {group: {row: None}})
    with pytest.raises(IndexError):
        _running.begin_running(builder.running, [10**6], sched.policy, 1.0)
    with pytest.raises(IndexError):
        _running.age_running(builder.running, [10**6], sched.policy, 1.0)
    builder.running._since[0] = 0.0
    _running.begin_running(builder.running, [0], sched.policy, 1.0)
    builder.running._ending[0] = -1
    with pytest.raises(IndexError):
        _running.age_running(builder.running, [], sched.policy, 1e6)
    for wrong in (-1, 10**6):
        builder.running._ends = wrong
        with pytest.raises(IndexError):
            _running.age_running(builder.running, [], sched.policy, 1.0)
    builder.running._ends = len(builder.running._end)
    with pytest.raises(IndexError, match="no room"):
        _running.begin_running(builder.running, [0], sched.policy, 1.0)


@pytest.mark.parametrize("seed", range(effort(12, 60)))
def test_who_gets_a_contested_machine(seed: int) -> None:
    gen = np.random.default_rng(seed)
    answered = 0
    for case in range(20):
        cluster = cluster_of(100 * seed + case)
        inventory = cluster.inventory
        classes = gen.permutation(np.array(list(cluster.by_class)))
        n, group = len(classes), next(iter(cluster.jobs[0].each_group()))
        since = gen.integers(0, 4, n) / 2
        heads = [
            Head(group, *numbers)
            for numbers in zip(
                since, since - gen.choice([0.0, 0.0, 3.0], n), gen.integers(0, 4, n), gen.integers(1, 4, n), strict=True
            )
        ]
        units, cursor = gen.integers(1, 3, n), np.full(len(inventory.demand), inventory.clock)
        row, ends = int(gen.integers(inventory.rows)), [0.4, 1.0]
        asked = inventory, cursor, heads, classes, units, ends, row, 2.0
        found = contest.chosen(*asked)
        assert found == pairs.contest(*asked)
        answered += found is not None
        cursor[classes] -= 1
        assert contest.chosen(*asked) is None
        for wrong in (-1, len(inventory.demand)):
            with pytest.raises(IndexError):
                contest.chosen(inventory, cursor, heads, classes + wrong * 100, units, ends, row, 2.0)
            with pytest.raises(IndexError):
                contest.chosen(inventory, cursor, heads, classes, units, ends, wrong * 10**6, 2.0)
        with pytest.raises(ValueError, match="lengths"):
            contest.chosen(inventory, cursor, heads[1:], classes, units, ends, row, 2.0)
    assert answered, "no case with a result to compare"
