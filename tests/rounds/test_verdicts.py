"""Reasons for waiting are taken down when a round is made: whenever they are looked at, they say the same."""

from __future__ import annotations

import copy
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from effort import effort
from fgm_lives import FineLife, born, makers
from hypothesis import event, given, settings
from hypothesis import strategies as st
from lives import POLICIES, Life

import flowsched as fs
from flowsched.builder import _arcs
from flowsched.cluster.inventory import Inventory
from flowsched.rounds import verdicts

Reasons = list[tuple[Any, fs.Reason]]


def lived(sched: Any, life: Life, policies: list, steps: int) -> list[fs.Round]:
    """Live, and return the rounds."""
    rounds = []
    for _ in range(steps):
        sched.apply(*life.events(sched))
        sched.apply(*life.events(sched))
        if life.random.random() < 0.05:
            sched.policy = life.random.choice(policies)()
        if life.random.random() < 0.7:
            rounds.append(sched.schedule(life.later()))
            sched.commit(rounds[-1], life.only(rounds[-1]))
    return rounds


def reasons_of(rnd: fs.Round) -> Reasons:
    return list(rnd.waiting.items())


def looked_at(monkeypatch: pytest.MonkeyPatch, sched: Any) -> list[Reasons]:
    """Read all reasons as soon as a round is made, and keep them."""
    found: list[Reasons] = []
    schedule = sched.schedule

    def spy(now: float, *rest: Any) -> fs.Round:
        rnd: fs.Round = schedule(now, *rest)
        found.append(reasons_of(rnd))
        return rnd

    monkeypatch.setattr(sched, "schedule", spy, raising=False)
    return found


@settings(max_examples=effort(15, 600), deadline=None)
@given(seed=st.integers(0, 2**32), maker=st.sampled_from(POLICIES), most=st.sampled_from([0, 1, 64]))
def test_reasons_looked_at_late_are_those_of_their_round(seed: int, maker: Any, most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        first, second = fs.Scheduler(maker()), fs.Scheduler(maker())
        at_once = looked_at(patch, first)
        patch.setattr(verdicts, "_PATCH", -1)  # nothing is kept
        lived(first, Life(seed), POLICIES, 12)
        patch.setattr(verdicts, "_PATCH", most)
        late = [reasons_of(rnd) for rnd in lived(second, Life(seed), POLICIES, 12)]
    assert late == at_once


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_reasons_under_a_fit_rule_looked_at_late(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = born(seed), born(seed)
    at_once = looked_at(monkeypatch, first)
    with monkeypatch.context() as patch:
        patch.setattr(verdicts, "_PATCH", -1)  # nothing is kept
        lived(first, FineLife(seed), makers(first), 40)
    assert [reasons_of(rnd) for rnd in lived(second, FineLife(seed), makers(second), 40)] == at_once


@pytest.mark.parametrize("policy", [fs.Policy(preemption=None), fs.Policy()])
def test_reasons_are_given_although_everything_has_gone_since(
    policy: fs.Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    sched, rounds = full(policy), []
    for i in range(90):
        sched.apply(fs.TaskCompleted(next(t for t, r in sched.cluster.tasks.items() if r.place)))
        rounds.append(sched.schedule(float(i)))
        sched.commit(rounds[-1])
    copies = [copy.copy(rnd) for rnd in rounds[5:8]] + [
        replace(rnd, waiting=copy.copy(rnd.waiting)) for rnd in rounds[5:8]
    ]
    sched.apply(*map(fs.JobRemoved, list(sched.cluster.jobs)), *map(fs.MachineRemoved, sched.cluster.machine_ids()))
    sched.schedule(100.0)
    sched.apply(*(fs.MachineAdded(("new", i), {"cpu": 2}) for i in range(150)))
    sched.apply(fs.JobSubmitted("new", [fs.Task(("new", i), {"cpu": 3}) for i in range(3)]))
    sched.schedule(101.0)
    monkeypatch.setattr(Inventory, "room", lambda *_: pytest.fail("the cluster was looked at"))
    for name in ("flow", "reduced_cost", "potential", "arcs", "solve"):
        monkeypatch.setattr(fs.FlowNetwork, name, lambda *_, **__: pytest.fail("the network was looked at"))
    for rnd in rounds:
        assert len(list(rnd.waiting)) == len(rnd.waiting)
        codes = {reason.code for reason in rnd.waiting.values()}
        assert codes <= {fs.ReasonCode.OUTBID, fs.ReasonCode.NO_FIT}
        assert all(sum(reason.detail["4 cpu"].values()) == 100 for reason in rnd.waiting.values())
        assert all((reason.price is None) == (reason.code is fs.ReasonCode.NO_FIT) for reason in rnd.waiting.values())
    assert [reasons_of(rnd) for rnd in copies] == [reasons_of(rnd) for rnd in rounds[5:8]] * 2


def full(policy: fs.Policy) -> fs.Scheduler:
    """A hundred full machines, and jobs of three classes that wait."""
    sched = fs.Scheduler(policy, resources=("cpu",))
    sched.apply(*(fs.MachineAdded(i, {"cpu": 4}, rack=i // 10) for i in range(100)))
    sched.apply(fs.JobSubmitted("first", [fs.Task(("first", i), {"cpu": 2}) for i in range(200)]))
    sched.commit(sched.schedule(-1.0))
    for j in range(30):
        tasks = [fs.Task((j, i), {"cpu": (1, 2, 3)[j % 3]}) for i in range(5)]
        sched.apply(fs.JobSubmitted(j, tasks))
    sched.commit(sched.schedule(0.0))
    return sched


def test_a_round_names_no_task_of_a_class_for_which_nothing_has_changed() -> None:
    sched = full(fs.Policy(preemption=None))
    before = {cls: sched.cluster.waiting_ids(cls) for cls in sched.cluster.waiting}
    known = {queue.cls: queue.tasks for queue in sched.builder.queues.all()}
    sched.apply(fs.TaskCompleted(("first", 0)))
    rnd = sched.schedule(1.0)
    (started,) = {sched.cluster.tasks[task].group.cls for task in rnd.placements}
    assert len(known) == 3
    for queue in sched.builder.queues.all():
        cls = queue.cls
        assert (queue.tasks is known[cls]) == (cls is not started)
        assert (sched.cluster.waiting_ids(cls) is before[cls]) == (cls is not started)


@settings(max_examples=effort(15, 600), deadline=None)
@given(seed=st.integers(0, 2**32), maker=st.sampled_from(POLICIES))
def test_racks_whose_arcs_changed_are_all_that_flow_enters(seed: int, maker: Any) -> None:
    sched, looks = fs.Scheduler(maker()), [0]

    def look(rnd: fs.Round) -> None:
        racks, used = sched.builder.racks, sched.builder.racks._used
        _arcs.sent(racks, sched.builder.classes, sched.builder.batch, (), (), None)
        assert used is not None and used == racks._used
        looks[0] += len(used) > 0

    sched.on_round.append(look)
    lived(sched, Life(seed), POLICIES, 12)
    assert sched.metrics()["hook_errors_total"] == 0
    event(f"rounds with flow through racks: {min(looks[0], 1)}")


def outbid_in_vain(sched: fs.Scheduler, rnd: fs.Round) -> list[Any]:
    """Return the tasks that are said to be outbid although no machine had room for them on which a task has started."""
    cluster, inventory = sched.cluster, sched.cluster.inventory
    went = {task: cluster.placement(task) for task in (*rnd.preemptions, *rnd.migrations)}
    began = {*rnd.placements.values(), *(to for _, to in rnd.migrations.values())}

    def got(task: Any, machine: Any) -> bool:
        cls, row = cluster.task(task).group.cls, cluster.machine(machine).row
        gone = [cluster.task(one).group.cls.demand for one, at in went.items() if at == machine]
        free = inventory.free[row] + sum(gone, np.zeros_like(cls.demand))
        seats = inventory.slots[row] - inventory.running[row] + len(gone)
        ever = inventory.can_ever(np.array([cls.index]), np.array([row]))[0, 0]
        return bool(ever and seats > 0 and (free >= cls.demand).all())

    said = [task for task, why in rnd.waiting.items() if why.code == fs.ReasonCode.OUTBID]
    return [task for task in said if not any(got(task, machine) for machine in began)]


@pytest.mark.parametrize("seed", [21, 78, 119, *range(1000, 1000 + effort(3, 2000))])
def test_who_is_outbid_had_room_where_another_task_has_started(seed: int) -> None:
    more = [
        lambda: fs.Policy(preemption=fs.PreemptionCost()),
        lambda: fs.Policy(preemption=fs.PreemptionCost(graceful=True)),
        fs.Policy,
    ]
    life, outbid = Life(seed), 0
    sched = fs.Scheduler(Random(seed).choice(POLICIES + more * 3)(), resources=("cpu", "mem", "gpu"))
    for _ in range(40):
        sched.apply(*life.events(sched))
        if life.random.random() < 0.6:
            rnd = sched.schedule(life.later())
            assert not outbid_in_vain(sched, rnd)
            outbid += sum(why.code == fs.ReasonCode.OUTBID for why in rnd.waiting.values())
            sched.commit(rnd)
    assert outbid or seed >= 1000
