"""Queues of classes: whatever happens, they say what one says who looks at all groups; and a change costs what changed."""

from __future__ import annotations

from array import array

import numpy as np
import pytest
from effort import effort
from lives import POLICIES, Life

import flowsched as fs
from flowsched.builder import queues
from flowsched.builder.queues import ClassQueue

SEEDS = effort(4, 200)


def batched(pairs: array[int]) -> list[tuple[int, int]]:
    return list(zip(pairs[::2], pairs[1::2], strict=True))


def check(sched: fs.Scheduler) -> None:
    """Compare every queue with the groups of its class."""
    cluster, nodes = sched.cluster, sched.builder.groups.nodes
    assert cluster.queues.keys() <= cluster.waiting.keys()
    every = sched.builder.queues.all()
    assert [queue.cls for queue in every] == list(cluster.waiting)
    for queue in every:
        groups = list(cluster.waiting[queue.cls])
        assert queue.groups == groups
        assert queue.plain == all(group.plain() for group in groups)
        tasks = queue.tasks
        assert tasks.ids == tuple(task.id for group in groups for task in group.waiting)
        assert tasks.count == len(tasks.ids)
        assert tasks.sizes == [len(group.waiting) for group in groups]
        pairs = [pair for pair, units in zip(batched(queue.arcs), tasks.units, strict=True) if units]
        assert pairs == [(nodes[group].run, nodes[group].wait) for group in groups]
        run, wait = sched.network.reduced_cost(np.ravel(pairs)).reshape(-1, 2).T
        assert sched.builder.batch.price_differences([queue.arcs], [tasks.units]).tolist() == (run - wait).tolist()
        if queue.plain:
            first = min((group for group in groups), key=lambda group: group.waiting[0])
            head, others = queue.head(), [task for group in groups if group is not first for task in group.waiting]
            assert head.group is first and (head.since, head.serial) == (first.waiting[0].since, first.job.serial)
            assert head.eldest == min(group.waiting[0].since for group in groups)
            assert all(task < other for task in first.waiting[: head.ahead] for other in others)
        oldest = sorted(task for g in groups if g.plain() and nodes[g].waiting for task in g.waiting)
        for count in {0, 1, 2, len(oldest) // 2, len(oldest)}:
            if count <= len(oldest):
                want: dict[object, int] = {}
                for task in oldest[:count]:
                    want[task.group] = want.get(task.group, 0) + 1
                assert dict(queue.oldest(count)) == want


@pytest.mark.parametrize("block", [1, 3, 128])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_an_updated_queue_equals_a_new_one(monkeypatch: pytest.MonkeyPatch, seed: int, block: int) -> None:
    monkeypatch.setattr(queues, "_BLOCK", block)
    life, sched = Life(seed), fs.Scheduler(POLICIES[seed % len(POLICIES)]())
    for _ in range(40):
        sched.apply(*life.events(sched))
        rnd = sched.schedule(life.later())
        check(sched)
        if life.random.random() < 0.8:
            sched.commit(rnd, life.only(rnd))


def crowd(jobs: int) -> fs.Scheduler:
    """A full machine, and jobs of one task that wait for it."""
    sched = fs.Scheduler(resources=("cpu",))
    sched.apply(fs.MachineAdded("m", {"cpu": 4}))
    sched.apply(*(fs.JobSubmitted(i, [fs.Task(i, {"cpu": 1})]) for i in range(jobs)))
    sched.commit(sched.schedule(0.0))
    sched.schedule(0.5)
    return sched


def test_a_round_looks_at_the_groups_that_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    sched = crowd(1000)
    (queue,) = sched.builder.queues.all()
    before, seen = queue.tasks, []
    monkeypatch.setattr(queues, "ids_of", lambda groups, real=queues.ids_of: (seen.extend(groups), real(groups))[1])
    sched.apply(fs.TaskCompleted(0), fs.JobSubmitted("new", [fs.Task("new", {"cpu": 1})]))
    assert list(sched.commit(sched.schedule(1.0)).accepted)
    sched.schedule(2.0)
    assert 0 < len(seen) < 20
    (after,) = sched.builder.queues.all()
    assert after is queue and after.tasks is not before
    assert len({*map(id, before.blocks)} & {*map(id, after.tasks.blocks)}) >= len(before.blocks) - 2
    assert before.ids == tuple(range(4, 1000)) and after.tasks.ids == (*range(5, 1000), "new")


def test_slots_that_were_left_are_given_up() -> None:
    sched = crowd(1000)
    (queue,) = sched.builder.queues.all()
    for i in range(990):
        sched.apply(fs.TaskCompleted(i))
        sched.commit(sched.schedule(float(i + 1)))
    check(sched)
    assert len(queue.groups) == 6 and len(queue._slots) <= 2 * 6 + queues._BLOCK
    assert len(queue._sizes) == len(queue._turns) == len(queue._slots)


def test_an_empty_queue_is_forgotten() -> None:
    sched = crowd(5)
    assert len(sched.cluster.queues) == 1
    sched.apply(fs.TaskCompleted(0))
    sched.commit(sched.schedule(1.0))
    assert not sched.cluster.queues and not sched.cluster.waiting


def test_what_a_round_took_down_stays() -> None:
    sched = crowd(300)
    rnd = sched.schedule(1.0)
    sched.apply(*(fs.TaskCompleted(i) for i in range(4)))
    sched.commit(sched.schedule(2.0))
    sched.schedule(3.0)
    assert list(rnd.waiting) == list(range(4, 300)) and {reason.code for reason in rnd.waiting.values()} == {
        fs.ReasonCode.NO_FIT
    }


def test_codes_are_those_of_the_reasons() -> None:
    for seed in range(SEEDS):
        life, sched = Life(seed), fs.Scheduler(POLICIES[seed % len(POLICIES)]())
        for _ in range(25):
            sched.apply(*life.events(sched))
            rnd = sched.schedule(life.later(), 1e-9 if life.random.random() < 0.2 else None)
            codes = dict(rnd.waiting.codes())
            counted = dict.fromkeys(codes, 0)
            for reason in rnd.waiting.values():
                counted[reason.code.value] = counted.get(reason.code.value, 0) + 1
            assert codes == counted
            sched.commit(rnd, life.only(rnd))


def test_turns_order_the_oldest_whatever_the_slots() -> None:
    sched = crowd(20)
    (queue,) = sched.builder.queues.all()
    assert isinstance(queue, ClassQueue)
    turns = [queue._turns[slot] for slot in queue._slot_of.values()]
    assert turns == sorted(turns)
    assert [group.job.job.id for group, _ in queue.oldest(3)] == [4, 5, 6]
