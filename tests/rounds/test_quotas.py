"""Quotas in resources: exact whatever the sizes of tasks, and nothing waits for a quota that it fits in."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from effort import effort
from fgm_lives import FineLife, born
from lives import flow_of, world_of
from portable_files import text
from quota_lives import MAKERS, MICRO, Model, QuotaLife, limited, limited_operations, quotas, shared

import flowsched as fs
from flowsched.cluster.records import Transaction
from flowsched.policy.serialize import describe, rebuild
from flowsched.rounds.admission import AdmissionCheck


def world(policy: fs.Policy, *jobs: fs.Event, machines: int = 1, **capacity: float) -> fs.Scheduler:
    sched = fs.Scheduler(policy)
    sched.apply(
        *(fs.MachineAdded(f"m{i}", capacity or {"cpu": 64, "mem": 64, "gpu": 8}) for i in range(machines)), *jobs
    )
    return sched


def job(id: str, user: str | None, count: int, priority: int = 0, gang: int | None = None, **demand: float) -> fs.Event:
    tasks = [fs.Task(f"{id}{i}", demand) for i in range(count)]
    return fs.JobSubmitted(id, tasks, user, priority, gang)


def step(sched: fs.Scheduler, now: float = 0.0) -> fs.Round:
    rnd = sched.schedule(now)
    assert not sched.commit(rnd).conflicts
    return rnd


def codes(rnd: fs.Round) -> dict:
    return {task: rnd.waiting[task].code.value for task in rnd.waiting}


# -- examples ---------------------------------------------------------------------------------------------------------


def test_a_user_has_no_more_than_its_quota_and_others_have_the_rest() -> None:
    sched = world(fs.Policy(quotas={"ann": {"gpu": 2, "cpu": 4}}), job("a", "ann", 9, gpu=1), job("b", "bob", 9, gpu=1))
    rnd = step(sched)
    assert sorted(rnd.placements) == ["a0", "a1", *(f"b{i}" for i in range(6))]
    why = rnd.waiting["a2"]
    assert why.code is fs.ReasonCode.QUOTA and why.detail == {"quota": {"gpu": 1}}
    assert "TaskCompleted" in why.unblocked_by and "MachineAdded" not in why.unblocked_by
    assert codes(rnd)["b6"] == "OUTBID"
    assert sched.explain("a2") == sched.explain("a2", "m0") == why
    assert not step(sched, 1.0).deltas
    sched.apply(fs.TaskCompleted("a0"))
    assert list(step(sched, 2.0).placements) == ["a2"]


def test_mixed_sizes_and_several_jobs_fill_a_quota_exactly() -> None:
    policy = fs.Policy(quotas={"ann": {"cpu": 1.1}})
    sched = world(policy, job("a", "ann", 3, cpu=0.3), job("b", "ann", 3, cpu=0.1), job("c", "ann", 2, cpu=0.7, mem=1))
    rnd = step(sched)
    amount = sum({"a": 3, "b": 1, "c": 7}[t[0]] for t in rnd.placements)
    assert 0 < amount <= 11
    assert all({"a": 3, "b": 1, "c": 7}[t[0]] > 11 - amount for t in rnd.waiting)
    assert set(codes(rnd).values()) == {"QUOTA"}


def test_the_better_priority_gets_the_quota() -> None:
    sched = world(fs.Policy(quotas={"ann": {"gpu": 2}}), job("z", "ann", 4, 5, gpu=0.5), job("a", "ann", 2, 0, gpu=1))
    assert sorted(step(sched).placements) == ["a0", "a1"]


FAIR = [
    None,
    fs.Fairness(over="user"),
    fs.Fairness(over="user", mode="soft"),
    fs.Fairness(over="user", mode="ladder"),
    fs.Fairness(over="job"),
    fs.Fairness(over="user", within=fs.MaxMin()),
]


@pytest.mark.parametrize("fair", FAIR)
@pytest.mark.parametrize("sizes", [[8], [1] * 8])
def test_where_its_quota_is_full_a_better_task_takes_the_place_of_its_users_worst(
    sizes: list[int], fair: fs.Fairness | None
) -> None:
    """Of equals that which started last goes; nothing of others does, and nothing where no task is stopped."""
    sched = fs.Scheduler(fs.Policy(fairness=fair, quotas={"ann": {"gpu": 3}}))
    sched.apply(*(fs.MachineAdded(i, {"gpu": n}) for i, n in enumerate(sizes)))
    for i, (user, priority) in enumerate([("ann", 4), ("ann", 5), ("ann", 5), ("bob", 9)]):
        sched.apply(job(f"r{i}-", user, 1, priority, gpu=1))
        assert len(step(sched, float(i)).placements) == 1
    sched.apply(job("a", "ann", 1, 0, gpu=1))
    policy, sched.policy = sched.policy, replace(sched.policy, preemption=None)
    rnd = step(sched, 8.0)
    assert not rnd.deltas and codes(rnd) == {"a0": "QUOTA"}
    sched.policy = policy
    rnd = step(sched, 9.0)
    assert list(rnd.preemptions) == ["r2-0"] and list(rnd.placements) == ["a0"]
    assert codes(rnd) == {"r2-0": "QUOTA"} and not step(sched, 10.0).deltas


def test_as_many_stop_as_free_the_amount_and_none_in_vain() -> None:
    sched = world(fs.Policy(quotas={"ann": {"cpu": 6, "gpu": 4}}), job("x", "ann", 1, 9, cpu=0, gpu=0.5), machines=2)
    step(sched)
    sched.apply(job("y", "ann", 3, 5, cpu=2))
    step(sched, 1.0)
    sched.apply(job("a", "ann", 1, 0, cpu=3))
    rnd = step(sched, 2.0)
    assert sorted(rnd.preemptions) == ["y1", "y2"] and list(rnd.placements) == ["a0"]
    assert not step(sched, 3.0).deltas


@pytest.mark.parametrize("size", [2, 3, 4])
def test_worse_tasks_go_for_a_gang_that_its_quota_holds_whole(size: int) -> None:
    sched = world(fs.Policy(quotas={"ann": {"gpu": 3}}), job("z", "ann", 3, 5, gpu=1), machines=2)
    step(sched)
    sched.apply(job("g", "ann", size, 0, size, gpu=1))
    rnd = step(sched, 1.0)
    starts = size if size <= 3 else 0
    assert len(rnd.placements) == len(rnd.preemptions) == starts and not step(sched, 2.0).deltas


def test_what_runs_that_stop_had_is_kept_for_the_better_task() -> None:
    """None of them comes back into a part of it, to be stopped again."""
    policy = fs.Policy(quotas={"ann": {"cpu": 3}}, preemption=fs.PreemptionCost(graceful=True))
    sched = world(policy, job("z", "ann", 3, 5, cpu=1))
    step(sched)
    sched.apply(job("a", "ann", 1, 0, cpu=3))
    assert len(step(sched, 1.0).preemptions) == 3
    for i in range(3):
        assert not step(sched, 2.0 + i).deltas
        sched.apply(fs.TaskStopped(f"z{i}"))
    assert list(step(sched, 5.0).placements) == ["a0"] and not step(sched, 6.0).deltas


def test_a_gang_that_finds_no_room_stops_nothing_for_its_quota() -> None:
    sched = world(
        fs.Policy(quotas={"ann": {"gpu": 3}}), job("z", "ann", 3, 5, gpu=1), job("b", "bob", 4, 0, gpu=1), gpu=8
    )
    step(sched)
    sched.apply(job("g", "ann", 3, 1, 3, gpu=1))
    assert len(step(sched, 1.0).preemptions) == 3
    sched.apply(job("h", "ann", 2, 0, 2, gpu=1, mem=40))
    assert not step(sched, 2.0).deltas


def test_a_claimant_of_a_quota_leaves_its_machine_to_another_user() -> None:
    """A victim gives its own quota back, so another task of its user starts elsewhere in the same round."""
    sched = fs.Scheduler(fs.Policy(quotas={"ann": {"cpu": 2}}))
    sched.apply(
        fs.MachineAdded("m", {"cpu": 2, "gpu": 1}), job("z", "ann", 1, 5, cpu=2), fs.MachineAdded("n", {"cpu": 1})
    )
    step(sched)
    sched.apply(job("b", "bob", 1, 0, cpu=2, gpu=1), job("y", "ann", 1, 5, cpu=1))
    rnd = step(sched, 1.0)
    assert dict(rnd.placements) == {"b0": "m", "y0": "n"} and list(rnd.preemptions) == ["z0"]


def test_a_victim_moves_within_its_own_quota() -> None:
    sched = fs.Scheduler(fs.Policy(quotas={"ann": {"cpu": 2}}))
    sched.apply(fs.MachineAdded("m", {"cpu": 2, "gpu": 1}), job("z", "ann", 1, 5, cpu=2))
    step(sched)
    sched.apply(fs.MachineAdded("n", {"cpu": 2}), job("b", "bob", 1, 0, cpu=1, gpu=1))
    rnd = step(sched, 1.0)
    assert dict(rnd.migrations) == {"z0": ("m", "n")} and dict(rnd.placements) == {"b0": "m"}


def test_a_run_that_stops_holds_its_quota() -> None:
    policy = fs.Policy(quotas={"ann": {"cpu": 2}}, preemption=fs.PreemptionCost(graceful=True))
    sched = fs.Scheduler(policy)
    sched.apply(
        fs.MachineAdded("m", {"cpu": 2, "gpu": 1}), job("z", "ann", 1, 5, cpu=2), fs.MachineAdded("n", {"cpu": 1})
    )
    step(sched)
    sched.apply(job("b", "bob", 1, 0, cpu=2, gpu=1), job("y", "ann", 1, 5, cpu=1))
    rnd = step(sched, 1.0)
    assert list(rnd.preemptions) == ["z0"] and not rnd.placements
    assert codes(rnd)["y0"] == "STOPPING"
    rnd = step(sched, 2.0)
    assert not rnd.placements and codes(rnd) == {"b0": "STOPPING", "z0": "STOPPING", "y0": "QUOTA"}
    sched.apply(fs.TaskStopped("z0"))
    assert dict(step(sched, 3.0).placements) == {"b0": "m", "y0": "n"}


@pytest.mark.parametrize("gone", ["task", "job"])
@pytest.mark.parametrize("over", ["user", "job"])
@pytest.mark.parametrize("moved", [False, True])
def test_a_run_that_stops_holds_its_quota_when_its_task_is_gone(
    tmp_path: Path, gone: str, over: str, moved: bool
) -> None:
    """Its machine still works for it; also after an export."""
    quotas = fs.Quotas({"ann" if over == "user" else "z": {"cpu": 2}}, over=over)
    sched = fs.Scheduler(fs.Policy(quotas=quotas, preemption=fs.PreemptionCost(graceful=True)))
    sched.apply(fs.MachineAdded("m", {"cpu": 2}), job("z", "ann", 2, 5, cpu=1), fs.MachineAdded("n", {"cpu": 2}))
    sched.apply(fs.MachineDrained("n"))
    step(sched)
    sched.apply(job("b", "bob", 1, 0, cpu=2))
    assert len(step(sched, 1.0).preemptions) == 2
    sched.apply(fs.TaskRemoved("z0"), fs.TaskRemoved("z1")) if gone == "task" else sched.apply(fs.JobRemoved("z"))
    sched.apply(fs.MachineUpdated("n", {"cpu": 2}))
    name = "y" if over == "user" else "z"
    if gone == "job" or over == "user":
        sched.apply(job(name, "ann", 1, 5, cpu=1))
    else:
        sched.apply(fs.TaskSubmitted("z", fs.Task("z9", {"cpu": 1})))
    if moved:
        sched.export(tmp_path / "state")
        sched = fs.Scheduler.import_state(tmp_path / "state")
    rnd = step(sched, 2.0)
    assert not rnd.placements and "QUOTA" in codes(rnd).values()
    for run, stop in list(sched.cluster.stopping.items()):
        sched.apply(fs.TaskStopped(stop.task, run=run))
    assert len(step(sched, 3.0).placements) == 2


def test_a_reported_start_may_exceed_a_quota() -> None:
    sched = world(fs.Policy(quotas={"ann": {"cpu": 2}}), job("a", "ann", 5, cpu=1))
    sched.apply(*(fs.TaskStarted(f"a{i}", "m0") for i in range(3)))
    for now, left in ((0.0, []), (1.0, []), (2.0, ["a3"])):
        assert list(step(sched, now).placements) == left
        sched.apply(fs.TaskCompleted(f"a{int(now)}"))


def test_a_commit_that_a_reported_start_has_overtaken_keeps_the_quota() -> None:
    sched = world(fs.Policy(quotas={"ann": {"cpu": 3}}), job("a", "ann", 3, cpu=1), job("c", "ann", 1, cpu=1, mem=1))
    rnd = sched.schedule(0.0)
    assert len(rnd.placements) == 3
    late = next(task for task in ("a2", "c0") if task not in rnd.placements)
    sched.apply(fs.TaskStarted(late, "m0"))
    done = sched.commit(rnd)
    assert len(done.accepted) == 2
    assert [why.detail for why in done.conflicts.values()] == [{"quota": {"cpu": 1}}]


def test_a_stale_network_still_keeps_quotas_at_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    sched = world(fs.Policy(quotas={"ann": {"cpu": 2}}), job("a", "ann", 3, cpu=1))
    rnd = sched.schedule(0.0)
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr("flowsched.rounds.loop.frozen", lambda *_: 1 / 0)
        sched.schedule(1.0)
    sched.apply(fs.TaskStarted("a2", "m0"))
    assert len(sched.commit(rnd).accepted) == 1
    assert not sched.schedule(2.0).deltas


@pytest.mark.parametrize("gang", [2, 4])
def test_gangs_within_a_quota_and_beyond(gang: int) -> None:
    sched = world(fs.Policy(quotas={"ann": {"gpu": 3}}), job("g", "ann", 4, 0, gang, gpu=1))
    rnd = step(sched)
    assert len(rnd.placements) == (3 if gang == 2 else 0)
    assert set(codes(rnd).values()) == {"QUOTA"}
    assert {sched.explain(task).code.value for task in rnd.waiting} == {"QUOTA"}
    if gang == 4:
        sched.policy = fs.Policy(quotas={"ann": {"gpu": 4}})
        assert len(step(sched, 1.0).placements) == 4


def test_a_gang_of_two_kinds_that_fit_one_by_one_only() -> None:
    tasks = [fs.Task(f"g{i}", {"gpu": 1, "cpu": i % 2}) for i in range(4)]
    sched = world(
        fs.Policy(quotas={"ann": {"gpu": 3}}), fs.JobSubmitted("g", tasks, "ann", gang=4), job("s", "ann", 2, 1, gpu=1)
    )
    rnd = step(sched)
    assert sorted(rnd.placements) == ["s0", "s1"]
    assert {codes(rnd)[f"g{i}"] for i in range(4)} == {"QUOTA"}


def test_quotas_over_jobs_and_by_default() -> None:
    sched = world(
        fs.Policy(quotas=fs.Quotas({"b": {"cpu": 2}}, over="job", default={"cpu": 1})),
        *(job(j, None, 3, cpu=1) for j in "abc"),
    )
    assert sorted(step(sched).placements) == ["a0", "b0", "b1", "c0"]
    sched = world(
        fs.Policy(quotas=fs.Quotas({"bob": {}}, default={"cpu": 1})),
        *(job(j, u, 2, cpu=1) for j, u in [("a", None), ("b", None), ("c", "bob")]),
    )
    assert sorted(step(sched).placements) == ["a0", "c0", "c1"]


def test_shares_do_not_wait_for_tasks_that_a_quota_forbids() -> None:
    fair = fs.Fairness(over="user")
    jobs = job("a", "ann", 9, gpu=1), job("b", "bob", 9, gpu=1)
    for policy in (
        fs.Policy(quotas={"ann": {"gpu": 1}}, fairness=fair),
        fs.Policy(quotas={"ann": {"gpu": 1}}, fairness=fs.Fairness(fs.SequenceShare(), over="user")),
    ):
        rnd = step(world(policy, *jobs))
        assert sum(t[0] == "a" for t in rnd.placements) == 1 and sum(t[0] == "b" for t in rnd.placements) == 7


def test_machines_are_not_kept_for_tasks_that_a_quota_blocks() -> None:
    policy = fs.Policy(
        quotas={"ann": {"cpu": 2}}, waiting=fs.WaitCost(first=1.0, buckets=4, reserve=1), preemption=None
    )
    sched = world(policy, job("b", "bob", 1, cpu=2), job("r", "ann", 1, cpu=2), machines=2, cpu=4)
    step(sched)
    sched.apply(job("a", "ann", 1, cpu=4), job("c", "bob", 4, cpu=1))
    rnd = step(sched, 100.0)
    assert len(rnd.placements) == 4 and codes(rnd) == {"a0": "QUOTA"}


@pytest.mark.parametrize("limit", [None, {"ann": {"cpu": 1}}])
def test_backfilling_keeps_quotas(limit: dict | None) -> None:
    sched = world(fs.Policy(quotas=limit), cpu=4)
    tasks = [
        fs.Task(id, {"cpu": cpu}, duration=due)
        for id, cpu, due in [("b", 2, 50), ("w", 4, 50), ("x", 1, 5), ("y", 1, 5)]
    ]
    sched.apply(fs.JobSubmitted("b", tasks[:1], "bob"))
    step(sched)
    sched.apply(fs.JobSubmitted("w", tasks[1:2], "bob"))
    step(sched, 1.0)
    sched.apply(fs.JobSubmitted("a", tasks[2:], "ann"))
    assert sorted(step(sched, 2.0).placements) == (["x"] if limit else ["x", "y"])


@pytest.mark.parametrize("limit", [None, {"ann": {"cpu": 2}}])
def test_reclaim_keeps_quotas(limit: dict | None) -> None:
    """The share counts tasks that only a full machine could run; others of the user get its places, and ask for more."""
    fair = fs.Fairness(fs.StaticQuotas({"ann": 2, "bob": 1, "cal": 1}), over="user", reclaim=True)
    sched = world(fs.Policy(quotas=limit), job("b", "bob", 8, 1, cpu=1), cpu=8)
    step(sched)
    sched.policy = fs.Policy(quotas=limit, fairness=fair)
    here = {"x": ("y",)}
    near = [fs.Task(f"a{i}", {"cpu": 1}, constraints=here) for i in range(2)]
    sched.apply(
        fs.MachineAdded("n", {"cpu": 1}, labels={"x": "y"}),
        fs.JobSubmitted("c", [fs.Task("c", {"cpu": 1}, constraints=here)], "cal"),
    )
    step(sched, 1.0)
    sched.apply(fs.JobSubmitted("a", near, "ann"), job("z", "ann", 2, 1, cpu=2))
    placed = step(sched, 2.0).placements
    assert sorted(placed) == (["z0"] if limit else ["z0", "z1"])


def test_a_victim_does_not_come_back_beyond_its_quota() -> None:
    """The task that it left for does not start after all, and another one of its user runs by then."""
    sched = world(fs.Policy(quotas={"ann": {"cpu": 2}}), job("z", "ann", 1, 5, cpu=2), machines=2)
    step(sched)
    sched.apply(job("b", "bob", 1, 0, cpu=1), job("y", "ann", 1, 5, cpu=1))
    cluster, builder = sched.cluster, sched.engine.builder
    victim, other = cluster.tasks["z0"], cluster.tasks["y0"]
    transaction = Transaction(cluster, 1.0)
    for beside, back in ((True, False), (False, True)):
        with builder.round(1.0) as scope:
            check = AdmissionCheck(builder, scope, transaction)
            check.evict(victim, cluster.tasks["b0"])
            if beside:
                transaction.start([other], 1, ())
            check.restore_unneeded()
            assert (victim.row >= 0) == back
            transaction.rollback()


def test_licences_are_shared_by_the_whole_cluster() -> None:
    """On three machines, with five licences and one user who may have two of them."""
    sched = fs.Scheduler(
        fs.Policy(quotas=fs.Quotas({"ann": {"licence": 2}}, cluster={"licence": 5})), resources=("cpu", "licence")
    )
    sched.apply(*(fs.MachineAdded(f"m{i}", {"cpu": 8, "licence": 5}) for i in range(3)))
    sched.apply(
        job("a", "ann", 4, cpu=1, licence=1), job("b", "bob", 3, 1, cpu=1, licence=2), job("c", "bob", 9, 2, cpu=1)
    )
    rnd = step(sched)
    assert {t for t in rnd.placements if t[0] in "ab"} == {"a0", "a1", "b0"} and sum(
        t[0] == "c" for t in rnd.placements
    ) == 9
    assert codes(rnd) == dict.fromkeys(("a2", "a3", "b1", "b2"), "QUOTA")
    assert dict(rnd.waiting["b1"].detail) == {"quota": ["licence"]} or "licence" in str(rnd.waiting["b1"])
    sched.apply(job("z", "cyd", 1, -1, cpu=1, licence=4))  # better than all: the worst make way, as many as it needs
    rnd = step(sched, 1.0)
    assert "z0" in rnd.placements and sorted(rnd.preemptions) in (["a0", "b0"], ["a1", "b0"])
    sched.apply(fs.TaskCompleted("z0"))
    assert {t[0] for t in step(sched, 2.0).placements} == {"a", "b"}


def test_wrong_quotas_are_refused() -> None:
    for wrong in ({"ann": 8}, {"ann": {"gpu": -1}}, {"ann": {3: 1}}, 8, {"ann": {"gpu": float("nan")}}):
        with pytest.raises(fs.InputError, match="quotas|Quotas"):
            fs.Policy(quotas=wrong)
    for wrong in ({"licence": -1}, {3: 1}, 5):
        with pytest.raises(fs.InputError, match="Quotas: cluster"):
            fs.Quotas(cluster=wrong)
    with pytest.raises(fs.InputError, match="quota of the cluster: unknown resource 'tpu'"):
        fs.Scheduler(fs.Policy(quotas=fs.Quotas(cluster={"tpu": 1})))
    with pytest.raises(fs.InputError, match="over must be"):
        fs.Quotas({}, over="rack")
    with pytest.raises(fs.InputError, match="quota of 'ann': unknown resource 'tpu'"):
        fs.Scheduler(fs.Policy(quotas={"ann": {"tpu": 1}}))
    sched = world(fs.Policy(), job("a", "ann", 3, cpu=1))
    before = sched.policy
    with pytest.raises(fs.InputError, match="quota by default: unknown resource"):
        sched.policy = fs.Policy(quotas=fs.Quotas({}, default={"tpu": 1}))
    assert sched.policy is before and len(step(sched).placements) == 3


def test_descriptions_without_quotas_are_as_before_and_with_them_are_read_back() -> None:
    assert "quotas" not in describe(fs.Policy())
    policy = fs.Policy(quotas=fs.Quotas({"ann": {"gpu": 8}}, "job", {"cpu": 0.5}))
    assert rebuild(describe(policy)).quotas == policy.quotas
    policy = fs.Policy(quotas=fs.Quotas(cluster={"gpu": 3}))
    assert rebuild(describe(policy)).quotas == policy.quotas


def test_a_replaced_policy_counts_running_tasks() -> None:
    sched = world(fs.Policy(), job("a", "ann", 3, cpu=1))
    step(sched)
    sched.apply(job("c", "ann", 3, cpu=1))
    sched.policy = fs.Policy(quotas={"ann": {"cpu": 4}})
    assert len(step(sched, 1.0).placements) == 1
    sched.policy = fs.Policy(quotas={"ann": {"cpu": 2}})
    sched.apply(fs.TaskCompleted("a0"), fs.TaskCompleted("a1"))
    assert not step(sched, 2.0).deltas
    sched.policy = fs.Policy()
    assert len(step(sched, 3.0).placements) == 2


# -- random lives -----------------------------------------------------------------------------------------------------


def live(seed: int, sched: fs.Scheduler, life: QuotaLife, steps: int) -> int:
    """Run a scheduler against a model; return the number of tasks that were seen to wait for a quota."""
    model, seen = Model(), 0
    random = Random(seed)
    for _ in range(steps):
        events = life.events(sched)
        model.apply(events, sched.apply(*events))
        if random.random() < 0.04:
            sched.policy = random.choice(MAKERS)()
        if random.random() > 0.7:
            continue
        rnd = sched.schedule(life.later())
        limit, preemption = sched.policy.quotas, sched.policy.preemption
        graceful = preemption is not None and preemption.graceful
        if limit is not None and not (rnd.preemptions or rnd.migrations):
            seen += check_reasons(sched, model, rnd)
        if random.random() < 0.1:
            late = life.events(sched)
            model.apply(late, sched.apply(*late))
        before = model.usage("user"), model.usage("job")
        model.commit(sched.commit(rnd, life.only(rnd)).accepted, graceful)
        if limit is not None:
            had = before[limit.over == "job"]
            for (who, name), amount in model.usage(limit.over).items():
                most = model.limit(limit, who).get(name)
                assert most is None or amount <= max(most, had.get((who, name), 0)), (who, name, amount, most)
    return seen


def awaited(sched: fs.Scheduler, model: Model, task: Hashable, usage: dict) -> set[str]:
    """Resources that a better task of the same claimant needs, and that stopping runs still hold of its quota."""
    limit, tasks = sched.policy.quotas, sched.cluster.tasks
    who, names = (None if limit.cluster else model.owner(task, limit.over)), set()
    for better, record in tasks.items():
        waits = record.row < 0 and record.group.cls.priority < tasks[task].group.cls.priority
        if (
            waits
            and better in model.tasks
            and who in (None, model.owner(better, limit.over))
            and model.lacks(limit, better, usage)
        ):
            names |= {name for name, amount in model.tasks[better][2].items() if amount}
    return names if any(who in (None, model.owner(other, limit.over)) for other in model.stopping) else set()


def check_reasons(sched: fs.Scheduler, model: Model, rnd: fs.Round) -> int:
    """Compare the reasons of a round with the quotas as the model knows them."""
    limit = sched.policy.quotas
    usage = model.usage(limit.over)
    for task in rnd.placements:
        model.add(usage, task, limit.over)
    seen = 0
    for task, why in rnd.waiting.items():
        lacks = model.lacks(limit, task, usage)
        if why.code is fs.ReasonCode.QUOTA:
            seen += 1
            if sched.cluster.tasks[task].group.job.job.gang is None:
                more = set(why.detail["quota"]) - lacks
                assert lacks <= set(why.detail["quota"]) and more <= awaited(sched, model, task, usage), (task, why)
        elif lacks:
            assert why.code.value in ("NEVER_FITS", "FILTERED", "STOPPING", "BACKOFF"), (task, why, lacks)
        if sched.explain(task).code is fs.ReasonCode.QUOTA:
            assert lacks or awaited(sched, model, task, usage) or why.code in ("QUOTA", "STOPPING")
    return seen


@pytest.mark.parametrize("seed", range(effort(2, 16 * 40)))
def test_amounts_stay_within_quotas(seed: int) -> None:
    seen = live(seed, fs.Scheduler(limited(seed)), QuotaLife(seed), 100)
    assert seen or seed % 7


class FineQuotaLife(QuotaLife, FineLife):
    """With samples."""


@pytest.mark.long
@pytest.mark.parametrize("seed", range(effort(2, 6 * 40)))
def test_amounts_by_request_stay_within_quotas_under_fgm(seed: int) -> None:
    live(seed, born(seed, policy=limited(seed)), FineQuotaLife(seed), 80)


@pytest.mark.parametrize("seed", range(effort(10, 30 * 40)))
def test_like_tasks_fill_machines_and_quotas(seed: int) -> None:
    """With one class and no preemption, no task waits that a quota and a machine could hold."""
    random = Random(seed)
    size = random.choice([{"gpu": 0.5}, {"gpu": 1, "cpu": 1.5}, {"cpu": 0.7}, {"gpu": 2}])
    limits = shared(quotas(random), Random(seed + 1))
    sched = fs.Scheduler(fs.Policy(quotas=limits, preemption=None, step=random.choice([1.0, 0.4])))
    model = Model()
    for i in range(25):
        events: list[fs.Event] = []
        if random.random() < 0.4:
            events.append(fs.MachineAdded(f"m{i}", {"cpu": random.randrange(5), "gpu": random.randrange(4)}))
        tasks = [fs.Task((i, k), size) for k in range(random.randrange(5))]
        if tasks:
            events.append(fs.JobSubmitted(f"j{i}", tasks, random.choice(["ann", "bob", None])))
        if model.running and random.random() < 0.5:
            events.append(fs.TaskCompleted(random.choice(list(model.running))))
        model.apply(events, sched.apply(*events))
        rnd = step(sched, float(i))
        model.commit(rnd.deltas, False)
        usage = model.usage(sched.policy.quotas.over)
        for task in rnd.waiting:
            assert model.lacks(sched.policy.quotas, task, usage) or not sched.cluster.fits(task).any(), (
                task,
                rnd.waiting[task],
            )
        assert not sched.schedule(float(i)).deltas


@pytest.mark.parametrize("seed", range(effort(10, 60 * 40)))
def test_no_task_waits_for_quota_of_worse_tasks_of_its_user(seed: int) -> None:
    """On a machine with enough room including possible victims; the victims are worse, and all stop at once."""
    random = Random(seed)
    limits = {user: {"cpu": random.choice([3, 4, 6]), "gpu": random.choice([2, 3])} for user in ("ann", "bob")}
    wide = random.random() < 0.5
    sched = fs.Scheduler(fs.Policy(quotas=fs.Quotas(limits), fairness=random.choice(FAIR[:4]) if wide else None))
    sched.apply(*(fs.MachineAdded(f"m{i}", {"cpu": 12, "gpu": 8} if wide else {"cpu": 4, "gpu": 2}) for i in range(5)))
    model, alive, rank = Model(), {}, {}
    for i in range(14):
        events: list[fs.Event] = []
        for n in range(random.randrange(3)):
            size = {"cpu": random.choice([0.5, 1, 2, 3]), "gpu": random.choice([0, 0, 0.5, 1, 2])}
            count, priority = random.randint(1, 3), random.randrange(4)
            gang = count if wide and random.random() < 0.2 and count > 1 else None
            tasks = [fs.Task((i, n, k), size) for k in range(count)]
            events.append(fs.JobSubmitted((i, n), tasks, random.choice(["ann", "bob", None]), priority, gang))
            rank.update((task.id, priority) for task in tasks)
            alive.update((task.id, gang is None) for task in tasks)
        if model.running and random.random() < 0.3:
            events.append(fs.TaskCompleted(random.choice(sorted(model.running))))
            alive.pop(events[-1].task)
        model.apply(events, sched.apply(*events))
        ran = dict(model.running)
        rnd = step(sched, float(i))
        model.commit(rnd.deltas, False)
        for task, stopped in rnd.preemptions.items():
            assert rank[task] > rank[stopped.by] and stopped.by in model.running, (task, stopped)
            assert wide <= (model.owner(task, "user") == model.owner(stopped.by, "user")) or not ran
        for user, most in limits.items():
            assert all(model.usage("user").get((user, name), 0) <= n * MICRO for name, n in most.items())
        for task in rnd.waiting:
            user, demand = model.owner(task, "user"), model.tasks[task][2]
            if not alive[task] or user not in limits or not sched.cluster.fits(task).any():
                continue
            usage = model.usage("user")
            for other in model.running:
                if model.owner(other, "user") == user and rank[other] > rank[task]:
                    for name, amount in model.tasks[other][2].items():
                        usage[user, name] -= amount
            assert model.lacks(sched.policy.quotas, task, usage), (task, demand, rnd.waiting[task])
        again = sched.schedule(float(i))  # a gang may still get what is left of a quota where others took part of it
        assert not again.preemptions and not any(alive[task] for task in again.placements), again.deltas


@pytest.mark.parametrize("seed", range(effort(2, 8 * 40)))
def test_a_journal_and_an_export_go_on_alike(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    sched = fs.Scheduler(limited(seed), journal=path)
    for _ in limited_operations(seed, sched, 90):
        pass
    sched.journal.close()
    again = fs.Scheduler.restore(path, limited(seed), [maker() for maker in MAKERS])
    assert not again.recovery.differences
    assert (world_of(again), flow_of(again), describe(again.policy)) == (
        world_of(sched),
        flow_of(sched),
        describe(sched.policy),
    )
    lines = fs.Scheduler.import_state(text(again), again.policy)
    reasons = [[one.explain(task) for task in one.cluster.tasks] for one in (lines, again)]
    waits = [[why if why.code is fs.ReasonCode.QUOTA else None for why in some] for some in reasons]
    assert waits[0] == waits[1]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(effort(2, 6 * 40)))
def test_a_what_if_agrees_with_the_round_that_follows(seed: int) -> None:
    sched, life = fs.Scheduler(limited(seed)), QuotaLife(seed)
    for _ in range(60):
        events = life.events(sched)
        asked = sched.what_if(*events, now=life.now)
        sched.apply(*events)
        rnd = sched.schedule(life.now)
        assert rnd.deltas == asked.deltas
        assert {t: w.code for t, w in rnd.waiting.items()} == {t: w.code for t, w in asked.waiting.items()}
        sched.commit(rnd)
        life.later()
