"""Records and chains: linked lists through records that the garbage collector does not see."""

from __future__ import annotations

import gc
import random
import weakref
from typing import Any

import numpy as np
import pytest
from effort import effort

import flowsched as fs
from flowsched.cluster import Cluster, state
from flowsched.cluster.columns import IdPool
from flowsched.cluster.model import DESCRIPTION
from flowsched.cluster.records import Chain, Group, MachineRecord, TaskRecord, alike, complete, settle, take, unsettle


def record(turn: int, group: Any = None) -> TaskRecord:
    return TaskRecord(f"t{turn}", group, turn, turn, None)


def check(chain: Chain, model: list[TaskRecord]) -> None:
    assert list(chain) == model and len(chain) == len(model) and bool(chain) == bool(model)
    assert list(reversed(chain)) == model[::-1] and all(one in chain for one in model)
    for where in (0, -1, 2):
        if -len(model) <= where < len(model):
            assert chain[where] is model[where]
        else:
            with pytest.raises(IndexError):
                chain[where]
    for where in (slice(None, 2), slice(1, 3), slice(-2, None), slice(None, None, -1)):
        assert chain[where] == model[where]


@pytest.mark.parametrize("of_job", [False, True])
def test_none_is_no_task_of_a_chain(of_job: bool) -> None:
    """Its links were memory behind None, so that None was broken from then on."""
    chain = Chain(of_job)
    for call in (chain.extend, chain.insert, chain.remove):
        with pytest.raises((TypeError, ValueError), match="None"):
            call([None])
    assert repr(None) == "None" and not chain


@pytest.mark.parametrize("seed", range(8))
def test_chains_are_lists_in_the_order_of_turns(seed: int) -> None:
    draw = random.Random(seed)
    all_of = [record(turn) for turn in range(40)]
    chains, models = (Chain(), Chain()), ([], [])  # type: tuple[Chain, Chain], tuple[list, list]
    jobs, members = Chain(True), list(all_of)
    jobs.extend(all_of)
    for _ in range(400):
        which = draw.randrange(2)
        chain, model, other = chains[which], models[which], models[1 - which]
        free = [one for one in all_of if one not in model and one not in other]
        some = sorted(draw.sample(free, min(len(free), draw.randrange(1, 5))))
        match draw.randrange(5):
            case 0 | 1 if some and model == sorted(model):
                chain.insert(some)
                model[:] = sorted([*model, *some])
            case 2 if some:
                draw.shuffle(some)
                chain.extend(some)
                model += some
            case 3:
                gone = draw.sample(model, min(len(model), draw.randrange(1, 6)))
                chain.remove(gone)
                model[:] = [one for one in model if one not in gone]
            case 4:
                chain.sort()
                model.sort()
        check(chain, model)
        check(jobs, members)


def test_a_task_stands_in_one_chain_of_a_kind() -> None:
    one, two, three = (record(turn) for turn in (1, 2, 3))
    chain, other = Chain(), Chain()
    chain.extend([one])
    for put in (chain.extend, other.extend, chain.insert, other.insert):
        with pytest.raises(ValueError, match="is in a chain already"):
            put([two, one, three])
        for holder in (chain, other):
            if two in holder:
                holder.remove([two])
        check(chain, [one])
        check(other, [])
    with pytest.raises(ValueError, match="is not in this chain"):
        other.remove([one])
    with pytest.raises(ValueError, match="a chain with tasks"):
        chain.job = True
    assert "t2" not in chain and two not in chain


def test_what_is_freed_leaves_no_pointer_behind() -> None:
    some = [record(turn) for turn in range(5)]
    chain = Chain()
    chain.extend(some)
    del some[3], some[1], some[0]  # in the middle, and at an end
    check(chain, some)
    some.clear()
    check(chain, [])
    some = [record(turn) for turn in range(3)]
    chain.extend(some)
    del chain
    again = Chain()
    again.extend(some)
    check(again, some)


def test_a_task_may_leave_while_its_chain_is_read() -> None:
    some = [record(turn) for turn in range(5)]
    chain, seen = Chain(), []
    chain.extend(some)
    for one in chain:
        chain.remove([one])
        seen.append(one)
    assert seen == some and not chain


def test_records_are_none_of_the_collectors_and_go_with_their_cluster() -> None:
    class Id:
        """An id that records its deletion."""

    cluster = Cluster(("cpu",))
    ids = [Id() for _ in range(6)]
    cluster.apply(fs.MachineAdded("m", {"cpu": 3}))
    cluster.apply(fs.JobSubmitted("j", [fs.Task(id, {"cpu": 1}) for id in ids[:3]]))
    cluster.apply(fs.JobSubmitted("k", [fs.Task(id, {"cpu": 1}) for id in ids[3:]]))
    cluster.apply(fs.TaskStarted(ids[0], "m"), fs.TaskStarted(ids[5], "m"))
    records = [*cluster.tasks.values(), *cluster.machines.values()]
    assert {type(one) for one in records} == {TaskRecord, MachineRecord}
    assert not any(map(gc.is_tracked, records))
    alive = [weakref.ref(id) for id in ids]
    del cluster, records, ids
    gc.collect()
    assert not any(ref() for ref in alive)


def test_the_collector_looks_at_two_objects_of_a_job() -> None:
    sched = fs.Scheduler(resources=("cpu",))
    sched.apply(fs.MachineAdded("m", {"cpu": 900}))
    sched.apply(*(fs.JobSubmitted(j, [fs.Task((j, i), {"cpu": 1}) for i in range(3)]) for j in range(300)))
    sched.commit(sched.schedule(0.0))
    gc.collect()
    known = [one for job in sched.cluster.jobs.values() for one in (job, *job.each_group())]
    referred = {id(one): one for one in gc.get_referents(*known) if gc.is_tracked(one)}
    more = [one for key, one in referred.items() if key not in set(map(id, known))]
    assert len(known) == 600 and len(more) < 10
    for other in (fs.Scheduler.restore(sched.snapshot()), sched.copy()):
        assert all(type(job.groups) is Group for job in other.cluster.jobs.values())


def test_groups_of_a_job_are_the_same_with_and_without_a_dict() -> None:
    sched = fs.Scheduler(resources=("cpu",))
    sched.apply(fs.JobSubmitted("j", [fs.Task(0, {"cpu": 1})]))
    job = sched.cluster.jobs["j"]
    (first,) = job.each_group()
    assert job.group_of(first.key) is first and job.groups is first
    sched.apply(fs.TaskSubmitted("j", fs.Task(1, {"cpu": 2}, data={"m": 1.0})))
    second = sched.cluster.task(1).group
    assert list(job.each_group()) == [first, second]
    assert job.group_of(second.key) is second and job.group_of(second.cls) is None
    image = sched.snapshot()
    assert fs.Scheduler.restore(image).snapshot() == image
    sched.apply(fs.TaskRemoved(0))
    assert list(job.each_group()) == [second] and job.group_of(first.key) is None
    (again,) = fs.Scheduler.restore(sched.snapshot()).cluster.jobs["j"].each_group()
    assert again.data == second.data
    sched.apply(fs.TaskRemoved(1))
    assert not job.each_group() and job.group_of(second.key) is None
    image = sched.snapshot()
    empty = fs.Scheduler.restore(image)
    assert empty.cluster.jobs["j"].groups is None and empty.snapshot() == image


def test_deltas_of_tasks_that_start_are_none_of_the_collectors() -> None:
    sched = fs.Scheduler(resources=("cpu",))
    sched.apply(fs.MachineAdded("m", {"cpu": 3}), fs.JobSubmitted("j", [fs.Task(i, {"cpu": 1}) for i in range(4)]))
    rnd = sched.schedule(0.0)
    assert rnd.deltas == tuple(fs.Place(i, "m", ()) for i in range(3))
    assert not any(map(gc.is_tracked, rnd.deltas))
    assert sched.commit(rnd).accepted == rnd.deltas


def test_a_record_outlives_its_cluster() -> None:
    cluster = Cluster(("cpu",))
    cluster.apply(fs.JobSubmitted("j", [fs.Task(i, {"cpu": 1}) for i in range(3)]))
    one = cluster.task(1)
    del cluster
    gc.collect()
    assert one.group.job.job.id == "j" and list(one.group.waiting) == [one] == list(one.group.job.tasks)


def test_columns_have_a_place_for_each_task_that_runs() -> None:
    cluster = Cluster(("cpu", "gpu"))
    cluster.apply(fs.MachineAdded("m", {"cpu": 9, "gpu": 2}))
    cluster.apply(fs.JobSubmitted("j", [fs.Task(i, {"cpu": 1, "gpu": 1}) for i in range(4)]))
    cluster.apply(fs.TaskStarted(3, "m"))
    inventory, waiting = cluster.inventory, [cluster.task(i) for i in range(3)]
    known: list[Any] = [inventory, inventory.tasks]
    columns = [(one, name) for one in known for name in one._columns]
    before = [getattr(one, name).copy() for one, name in columns]
    waiting[1].index = -1
    with pytest.raises(IndexError, match="has no place"):
        settle(cluster, waiting[:2], 0, (), 1.0)
    cluster.task(3).index = 10**6
    with pytest.raises(IndexError, match="has no place"):
        unsettle(cluster, [cluster.task(3)])
    waiting[1].index, cluster.task(3).index = 1, 3
    for row, class_id, devices in ((10**6, 0, (0,)), (-1, 0, (0,)), (0, -1, (0,)), (0, 10**6, (0,)), (0, 0, (0, 2))):
        with pytest.raises(IndexError, match="no "):
            take(inventory, row, class_id, devices, 1)
    inventory.level[0] = 10**6
    with pytest.raises(IndexError, match="no level"):
        settle(cluster, waiting, 0, (), 1.0)
    inventory.level[0] = 0
    for (one, name), old in zip(columns, before, strict=True):
        assert np.array_equal(getattr(one, name), old), name
    assert [task.row for task in waiting] == [-1, -1, -1] and len(cluster.machine("m").tasks) == 1


def test_several_indices_are_those_that_single_ones_would_be() -> None:
    one, other = IdPool(), IdPool()
    for count in (3, 0, 2):
        assert one.take_some(count) == [other.take() for _ in range(count)]
    for index in (1, 3, 0):
        one.give(index), other.give(index)
    for count in (2, 4):
        assert one.take_some(count) == [other.take() for _ in range(count)]


SHAPES: list[dict[str, Any]] = [
    {"capacity": {"cpu": 2, "gpu": 1}, "labels": {"a": "b"}},
    {"capacity": {"cpu": 2, "gpu": 1}, "labels": {"a": "b"}, "rack": "r"},
    {"capacity": {"cpu": 2, "gpu": 1}, "labels": {"a": "b"}, "rack": 7},
    {"capacity": {"cpu": 2.0, "gpu": 1}},
    {"capacity": {"cpu": True}},
    {"capacity": "2 cpus"},
    {"capacity": (2, 1), "slots": 3},
    {"capacity": {"cpu": 2, "gpu": 1}, "labels": {"a": 1}},
    {"capacity": {"cpu": 2, "gpu": 1}, "labels": {"a": "b"}, "rack": []},
    {"capacity": {"cpu": 2, "gpu": 1}, "labels": {"a": "b"}, "time": 4.0},
]


@pytest.mark.parametrize("seed", range(effort(6, 30)))
def test_machines_that_join_together_are_those_that_join_one_by_one(seed: int) -> None:
    draw = random.Random(seed)
    together, alone = Cluster(("cpu", "gpu")), Cluster(("cpu", "gpu"))
    for _ in range(6):
        events: list[fs.Event] = []
        for _ in range(draw.randrange(1, 5)):
            likely = draw.choice(SHAPES[:4])
            for _ in range(draw.randrange(1, 7)):
                shape = likely if draw.random() < 0.93 else draw.choice(SHAPES)
                events.append(fs.MachineAdded(draw.randrange(400), **shape))
            if draw.random() < 0.4:
                events.append(fs.MachineRemoved(draw.randrange(400)))
        results: list[str] = []
        for cluster, batches in ((together, [events]), (alone, [[event] for event in events])):
            try:
                for batch in batches:
                    cluster.apply(*batch)
                results.append("")
            except fs.FlowschedError as error:
                results.append(f"{type(error).__name__}: {error}")
        assert results[0] == results[1]
        assert together.events == alone.events and not together.midway
        a, b = together.inventory, alone.inventory
        for name in ("capacity", "free", "devices", "slots", "running", "usable", "version", "total"):
            assert np.array_equal(getattr(a, name)[: a.rows], getattr(b, name)[: b.rows]), name
        assert (a.clock, a.arranged, a.rows) == (b.clock, b.arranged, b.rows)
        assert a.suitability.of[: a.rows].tolist() == b.suitability.of[: b.rows].tolist()
        assert a.suitability._users == b.suitability._users and a.suitability._keys == b.suitability._keys
        assert vars(a.affinity) == vars(b.affinity)
        assert [(id, r.machine, r.row) for id, r in together.machines.items()] == [
            (id, r.machine, r.row) for id, r in alone.machines.items()
        ]
        assert {row: r.id for row, r in together.by_row.items()} == {row: r.id for row, r in alone.by_row.items()}
        assert list(together._changes.machines) == list(alone._changes.machines)
        if draw.random() < 0.5:
            together.changes(), alone.changes()


def _filled(jobs: list[int]) -> fs.Scheduler:
    """Return a scheduler with jobs of these numbers of tasks, 80 of which run."""
    sched = fs.Scheduler(resources=("cpu",))
    sched.apply(*(fs.MachineAdded(i, {"cpu": 4}) for i in range(20)))
    for job, count in enumerate(jobs):
        tasks = [fs.Task((job, k), {"cpu": 1}, retries=None if job % 3 else 1) for k in range(count)]
        sched.apply(fs.JobSubmitted(job, tasks, closed=job % 2 == 0))
    sched.commit(sched.schedule(1.0))
    return sched


def _ends(draw: random.Random, cluster: Cluster, ids: list[tuple[int, int]]) -> list[fs.Event]:
    """Return completions, most of them of tasks that run, and a few other events."""
    events: list[fs.Event] = []
    for task in draw.sample(ids, min(len(ids), draw.choice([9, 31, 32, 33, 50]))):
        time, likely = draw.choice([None, None, 2.0, 3]), draw.random()
        if likely < 0.05:
            events.append(fs.TaskFailed(task, time=time))
        elif cluster.tasks[task].row >= 0 or likely < 0.06:
            events.append(fs.TaskCompleted(task, time=time, run=cluster.tasks[task].run if likely < 0.1 else None))
    wrong = draw.choice(ids)
    for bad in ([], [], [], [[]], ["unknown"], [wrong], [wrong, wrong])[draw.randrange(7)]:
        time = draw.choice([None, None, None, float("nan"), "late"]) if bad == wrong else None
        events.insert(draw.randrange(len(events) + 1), fs.TaskCompleted(bad, time=time))
    return events


@pytest.mark.parametrize("seed", range(effort(12, 60)))
def test_tasks_that_are_done_together_are_those_that_are_done_one_by_one(seed: int) -> None:
    draw = random.Random(seed)
    jobs = [draw.randrange(1, 9) for _ in range(40)]
    schedulers = _filled(jobs), _filled(jobs)
    together, alone = (sched.cluster for sched in schedulers)
    for turn in range(5):
        events = _ends(draw, together, list(together.tasks))
        results: list[list[object]] = []
        for sched, batches in zip(schedulers, ([events], [[event] for event in events]), strict=True):
            results.append([])
            try:
                for batch in batches:
                    results[-1] += sched.apply(*batch)
            except fs.FlowschedError as error:
                results[-1] += (*error.ended, f"{type(error).__name__}: {error}")
        assert results[0] == results[1] and all(type(one) in (fs.EndedRun, str) for one in results[0])
        assert together.events == alone.events and not together.midway
        assert together.inventory._log == alone.inventory._log
        assert together._indices._free == alone._indices._free
        for name in ("groups", "removed"):
            one, other = ([group.serial for group in getattr(c._changes, name)] for c in (together, alone))
            assert one == other
        if draw.random() < 0.7:
            rounds = [sched.schedule(5.0 + turn) for sched in schedulers]
            assert rounds[0].placements == rounds[1].placements
            for sched, rnd in zip(schedulers, rounds, strict=True):
                sched.commit(rnd)
        assert schedulers[0].snapshot() == schedulers[1].snapshot()


def test_a_run_of_completions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sched, runs = _filled([1] * 80), []
    cluster = sched.cluster
    ran = [cluster.tasks[job, 0].run for job in range(70)]
    monkeypatch.setattr(
        state, "complete", lambda world, tasks, kind: runs.append(len(tasks)) or complete(world, tasks, kind)
    )
    cluster.apply(*(fs.TaskCompleted((job, 0), run=ran[job] if job % 2 else None) for job in range(70)))
    assert runs == [32, 32, 6] and len(cluster.tasks) == 10


def test_a_run_of_machines_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, runs = Cluster(("cpu",)), []
    add = cluster.inventory.add_machines
    monkeypatch.setattr(cluster.inventory, "add_machines", lambda *what: runs.append(len(what[2])) or add(*what))
    cluster.apply(*(fs.MachineAdded(i, {"cpu": 2}) for i in range(9)), fs.MachineAdded("x", {"cpu": 3}))
    assert runs == [9] and len(cluster.machines) == 10


def test_tasks_with_data_on_the_same_machines_come_together() -> None:
    holder = "a machine, which is one object"
    tasks = [fs.Task(i, {"cpu": 1}, data=[(holder, 1.0)]) for i in range(3)]
    tasks += [fs.Task(3, {"cpu": 1}, data=[(holder, 1)]), fs.Task(4, {"cpu": 1}, data=[(holder, True + 0)])]
    tasks += [fs.Task(5, {"cpu": 1}, data=[(True, 1)]), fs.Task(6, {"cpu": 1}, data=[(1, 1)]), fs.Task(7, {"cpu": 1})]
    assert tasks[0].data is not tasks[1].data
    assert alike(tuple(tasks), DESCRIPTION) == [3, 5, 6, 7, 8]  # True == 1, but another object
    assert alike(tuple(tasks), ("demand",)) == [8]
