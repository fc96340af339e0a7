"""State as lines of JSON: what is read again is what was written, and goes on as it would have."""

from __future__ import annotations

import copy
import gzip
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from click.testing import CliRunner
from effort import effort
from fgm_lives import FineLife, born, fine_operations, known_of
from fgm_worlds import NAMES, known, submit
from hypothesis import given, settings
from hypothesis import strategies as st
from lives import POLICIES, Life, live_alike, operations, said
from portable_files import alike, check_books, parsed, sealed, text

import flowsched as fs
from flowsched import cli
from flowsched.cluster import rebuild
from flowsched.fgm import FineGrained, Stages
from flowsched.journal.accounts import accounts, booked, keepers
from flowsched.journal.import_state import load
from flowsched.sharing import Deployment

MAKERS = [lambda _, make=make: make() for make in POLICIES]


DATA = Path(__file__).parents[1] / "data"


def lived(seed: int, maker: Callable[[], fs.Policy], steps: int) -> tuple[Life, fs.Scheduler]:
    life, sched = Life(seed), fs.Scheduler(maker())
    live_alike(life, sched, (), steps, MAKERS)
    return life, sched


def first_costs(kept, now: float) -> tuple[fs.Round, list[int]]:
    """A round, and the optimum of each solve that it made."""
    costs: list[int] = []
    batch = kept.builder.batch
    solve = batch.solve

    def listening(seconds):
        answer = solve(seconds)
        costs.append(answer[0])
        return answer

    batch.solve = listening
    try:
        round = kept.schedule(now)
    finally:
        del batch.solve
    assert costs
    return round, costs


# -- the same again -------------------------------------------------------------------------------------------------


@settings(max_examples=effort(15, 1500))
@given(seed=st.integers(0, 2**32), maker=st.sampled_from(POLICIES), before=st.integers(0, 40))
def test_what_is_read_is_what_was_written(seed: int, maker, before: int) -> None:
    _, sched = lived(seed, maker, before)
    data = text(sched)
    again = fs.Scheduler.import_state(data)
    check_books(again)
    assert text(again) == data
    assert text(sched.copy()) == data


def books(lines: list[str]) -> list[str]:
    """Return what does not depend on the course of a round's check, but on its deltas alone."""
    return [line for line in lines if json.loads(line)["is"] not in ("hold", "left out")]


def roomy(kept: fs.Scheduler) -> list[str]:
    """Return the classes with the mark that some machine had room for one more."""
    lines = (json.loads(line) for line in text(kept).splitlines())
    return sorted(json.dumps({**line, "class": 0}) for line in lines if line["is"] == "class")


@pytest.mark.long
@settings(max_examples=effort(15, 1500))
@given(seed=st.integers(0, 2**32), maker=st.sampled_from(POLICIES), before=st.integers(0, 40))
def test_every_later_round_begins_with_the_same_optimum(seed: int, maker, before: int) -> None:
    """The two may choose differently among equally good flows, so what the one does happens to the other as well."""
    life, sched = lived(seed, maker, before)
    again = fs.Scheduler.import_state(text(sched))
    for _ in range(8):
        events = life.events(sched)
        for one in (sched, again):
            one.apply(*events)
        now = life.later()
        (rnd, costs), (other, others) = first_costs(sched, now), first_costs(again, now)
        assert others[:1] == costs[:1]
        assert sched.engine.impose(rnd.deltas, rnd) and again.engine.impose(rnd.deltas, other)
        check_books(again)
        mine, theirs = alike(sched), alike(again)
        if not any(isinstance(event, fs.MachineFailed | fs.MachineRemoved) for event in events):
            assert books(theirs) == books(mine)
        # What was tried orders the tasks on a machine, and says which classes had room and what is kept for them.
        if theirs != mine or roomy(again) != roomy(sched):
            return


FINE = 10**6
"""So fine a resolution, and so odd amounts, that no two flows are equally good."""


class OddCost:
    """A cost by the demand and the machine; by load alone, all machines that have to make room cost the same."""

    weight = 1.0

    def __call__(self, cluster, classes, rows):
        demand = cluster.inventory.demand[classes, 0]
        machine = np.array([int(cluster.by_row[row].id[1:]) for row in rows.tolist()])
        return (demand[:, None] * 7_919 + machine[None, :] * 104_729) % 999_983 / 999_983


ODD = (fs.LoadCost(), OddCost())

UNIQUE = [
    lambda: fs.Policy(resolution=FINE, placement=ODD),
    lambda: fs.Policy(resolution=FINE, placement=ODD, preemption=fs.PreemptionCost(2.0, 5.0)),
    lambda: fs.Policy(resolution=FINE, placement=ODD, fairness=fs.Fairness(fs.SequenceShare(0.5), over="user")),
    lambda: fs.Policy(resolution=FINE, preemption=None, waiting=fs.WaitCost(first=2.0, buckets=5, reserve=1)),
]


class OddLife:
    """Machines and tasks of which no two are equal."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.count = 0

    def step(self, *scheds: fs.Scheduler) -> list[fs.Round]:
        random, cluster, time = self.random, scheds[0].cluster, self.now
        for _ in range(random.randrange(3)):
            self.count += 1
            name = self.count
            running = sorted(task for task, record in cluster.tasks.items() if record.place)
            machines = sorted(machine for machine, record in cluster.machines.items() if not record.failed)
            draw = random.random()
            event: fs.Event | None = None
            if draw < 0.25:
                event = fs.MachineAdded(f"m{name}", {"cpu": random.uniform(2, 8)}, random.choice("ab"), time=time)
            elif draw < 0.7:
                tasks = [
                    fs.Task(f"t{name}.{i}", {"cpu": random.uniform(0.3, 3)}, duration=random.choice([None, random.uniform(5, 100)]))
                    for i in range(random.randint(1, 4))
                ]  # fmt: skip
                user, gang = random.choice(["ann", "bob"]), random.choice([None, None, None, 2])
                event = fs.JobSubmitted(f"j{name}", tasks, user, random.randrange(3), gang, time=time)
            elif draw < 0.85 and running:
                event = random.choice([fs.TaskCompleted, fs.TaskFailed])(random.choice(running), time=time)
            elif draw < 0.9 and len(machines) > 1:
                event = random.choice([fs.MachineFailed, fs.MachineDrained])(random.choice(machines), time=time)
            for sched in scheds if event else ():
                sched.apply(event)
        self.now += random.choice([1.0, 3.0, 40.0])
        return [sched.schedule(self.now) for sched in scheds]


@pytest.mark.parametrize("seed", range(effort(4, 300)))
@pytest.mark.parametrize("maker", UNIQUE)
def test_where_no_two_flows_are_equally_good_all_later_rounds_are_the_same(seed: int, maker) -> None:
    life, sched = OddLife(seed), fs.Scheduler(maker(), ("cpu",))
    for _ in range(seed % 30):
        (rnd,) = life.step(sched)
        sched.commit(rnd)
    again = fs.Scheduler.import_state(text(sched), maker())
    for _ in range(10):
        rnd, other = life.step(sched, again)
        assert set(other.deltas) == set(rnd.deltas)
        assert {task: reason.code for task, reason in other.waiting.items()} == {
            task: reason.code for task, reason in rnd.waiting.items()
        }
        assert {who: other.shares[who] for who in other.shares} == {who: rnd.shares[who] for who in rnd.shares}
        sched.commit(rnd)
        again.commit(other)


# -- states that do not come about by themselves --------------------------------------------------------------------


def two(policy: fs.Policy | None = None, *, cpu: float = 4.0) -> fs.Scheduler:
    sched = fs.Scheduler(policy, ("cpu", "gpu"))
    sched.apply(fs.MachineAdded("a", {"cpu": cpu, "gpu": 2}), fs.MachineAdded("b", {"cpu": cpu, "gpu": 2}))
    return sched


def again_of(sched: fs.Scheduler) -> fs.Scheduler:
    data = text(sched)
    again = fs.Scheduler.import_state(data)
    check_books(again)
    assert text(again) == data
    return again


def test_devices_stay_as_they_are_shared() -> None:
    sched = two()
    sched.apply(
        fs.JobSubmitted("j", [fs.Task(("t", i), {"gpu": share}) for i, share in enumerate([0.3, 0.5, 1, 0.7])]),
        fs.TaskStarted(("t", 0), "a", [1], time=1.0), fs.TaskStarted(("t", 3), "a", [1], time=2.5),
        fs.TaskStarted(("t", 2), "b", [0]),
    )  # fmt: skip
    again = again_of(sched)
    assert [again.cluster.tasks["t", i].place for i in range(4)] == [
        sched.cluster.tasks["t", i].place for i in range(4)
    ]
    assert again.cluster.fits(("t", 1), ["a"]).tolist() == [2]  # on the other device


def test_machines_that_drain_or_failed_or_no_longer_suit() -> None:
    sched = two()
    tasks = [fs.Task(f"t{i}", {"cpu": 1}, constraints={"zone": ("x",)}) for i in range(4)]
    sched.apply(
        fs.MachineUpdated("a", labels={"zone": "x"}), fs.MachineUpdated("b", labels={"zone": "x"}), fs.MachineAdded("c", {"cpu": 1}),
        fs.JobSubmitted("j", tasks, time=0.0), *(fs.TaskStarted(f"t{i}", "ab"[i % 2], time=1.0) for i in range(3)),
        fs.MachineUpdated("a", labels={"zone": "y"}), fs.MachineDrained("b"), fs.MachineFailed("c"),
    )  # fmt: skip
    again = again_of(sched)
    assert again.cluster.placement("t0") == again.cluster.placement("t2") == "a"
    assert again.schedule(2.0).waiting["t3"].code == sched.schedule(2.0).waiting["t3"].code == fs.ReasonCode.NO_FIT
    again.apply(fs.MachineUpdated("b"))
    assert dict(again.schedule(3.0).placements) == {"t3": "b"}


def test_racks_that_no_longer_keep_tasks_apart() -> None:
    sched = two()
    sched.apply(
        fs.JobSubmitted("j", [fs.Task(i, {"cpu": 1}, apart_in_rack=1) for i in range(3)]),
        fs.TaskStarted(0, "a"), fs.TaskStarted(1, "b"), fs.MachineUpdated("a", rack="r"), fs.MachineUpdated("b", rack="r"),
    )  # fmt: skip
    assert dict(again_of(sched).schedule(0.0).placements) == {}


def test_a_half_started_gang_jobs_without_tasks_and_users_without_jobs() -> None:
    sched = two()
    sched.apply(
        fs.UserAdded("idle", 3.0), fs.JobSubmitted("empty", user="gone", gang=4, deadline=9.0), fs.UserRemoved("gone"),
        fs.JobSubmitted("g", [fs.Task(i, {"cpu": 3}) for i in range(3)], gang=3), fs.TaskStarted(0, "a"),
        fs.JobSubmitted("over", [fs.Task("x")]), fs.TaskRemoved("x"),
    )  # fmt: skip
    again = again_of(sched)
    assert again.cluster.jobs["empty"].job == sched.cluster.jobs["empty"].job and "gone" not in again.cluster.users
    assert again.cluster.jobs["over"].most == 1 and again.cluster.users["idle"].quota == 3.0
    assert {reason.code for reason in again.schedule(0.0).waiting.values()} == {fs.ReasonCode.GANG_SHORT}
    again.apply(fs.JobSubmitted("over", [fs.Task("y")]))


def test_ages_count_on() -> None:
    sched = two(fs.Policy(waiting=fs.WaitCost(first=10.0)), cpu=1.0)
    sched.apply(
        fs.JobSubmitted("old", [fs.Task("o", {"cpu": 1})], time=0.0), fs.MachineFailed("a"), fs.MachineFailed("b")
    )
    sched.commit(sched.schedule(1.0))
    sched.apply(fs.JobSubmitted("new", [fs.Task("n", {"cpu": 1})], time=90.0), fs.MachineAdded("a", {"cpu": 1}))
    assert dict(again_of(sched).schedule(100.0).placements) == {"o": "a"}


def test_who_was_preempted_is_spared() -> None:
    sched = two(fs.Policy(preemption=fs.PreemptionCost(window=100.0)), cpu=1.0)
    sched.apply(fs.MachineRemoved("b"), fs.JobSubmitted("low", [fs.Task("l", {"cpu": 1})], priority=9))
    sched.commit(sched.schedule(0.0))
    sched.apply(fs.JobSubmitted("high", [fs.Task("h", {"cpu": 1})]))
    sched.commit(sched.schedule(1.0))
    sched.apply(fs.TaskCompleted("h"))
    sched.commit(sched.schedule(2.0))
    sched.apply(fs.JobSubmitted("more", [fs.Task("m", {"cpu": 1})]))
    again = again_of(sched)
    assert not again.schedule(3.0).preemptions
    assert list(again.schedule(300.0).preemptions) == ["l"]


def test_a_machine_stays_kept_for_one_that_has_waited_long() -> None:
    sched = two(fs.Policy(waiting=fs.WaitCost(first=1.0, reserve=1)))
    sched.apply(
        fs.MachineRemoved("b"), fs.JobSubmitted("s", [fs.Task(f"s{i}", {"cpu": 1}) for i in range(2)], time=0.0)
    )
    sched.commit(sched.schedule(0.0))
    sched.apply(fs.JobSubmitted("big", [fs.Task("big", {"cpu": 4})], time=0.0))
    sched.commit(sched.schedule(5.0))
    sched.apply(fs.JobSubmitted("late", [fs.Task("late", {"cpu": 1})], time=5.0))
    again = again_of(sched)
    assert any(line["is"] == "hold" for line in parsed(text(sched)))
    assert again.explain("late").code == sched.explain("late").code == fs.ReasonCode.HELD
    assert dict(again.schedule(6.0).placements) == dict(sched.schedule(6.0).placements) == {}


def test_a_gang_keeps_its_machines_in_a_large_cluster() -> None:
    """A new mirror has columns for few machines."""
    sched = fs.Scheduler(fs.Policy(preemption=None), ("cpu",))
    sched.apply(*(fs.MachineAdded(i, {"cpu": 4}) for i in range(40)))
    sched.apply(*(fs.JobSubmitted(i, [fs.Task(i, {"cpu": 4}, duration=100.0 - i)]) for i in range(40)))
    sched.commit(sched.schedule(0.0))
    sched.apply(fs.JobSubmitted("g", [fs.Task(("g", i), {"cpu": 4}) for i in range(2)], gang=2))
    sched.commit(sched.schedule(1.0))
    ((_, rows, until),) = sched.builder.reservations.terms()
    assert max(rows) > 30
    ((_, again, end),) = again_of(sched).builder.reservations.terms()
    assert (again, end) == (rows, until)


def test_a_gang_that_fell_short_is_not_tried_again_before_there_are_news() -> None:
    sched = two()
    sched.apply(fs.JobSubmitted("g", [fs.Task(i, {"cpu": 4}) for i in range(3)], gang=3))
    sched.commit(sched.schedule(0.0))
    again = again_of(sched)
    assert again.explain(0).code == sched.explain(0).code == fs.ReasonCode.GANG_SHORT
    again.apply(fs.MachineAdded("c", {"cpu": 4}))
    assert len(again.schedule(1.0).placements) == 3


def test_what_was_lent_is_paid_back() -> None:
    sched = two(fs.Policy(fairness=fs.Fairness(fs.SequenceShare(), over="user")))
    sched.apply(fs.UserAdded("ann", 1.0), fs.UserAdded("bob", 1.0))
    sched.apply(fs.JobSubmitted("b", [fs.Task(f"b{i}", {"cpu": 1}) for i in range(20)], "bob"))
    sched.apply(fs.JobSubmitted("a", [fs.Task("a", {"cpu": 1})], "ann"))
    sched.commit(sched.schedule(0.0))
    shares = sched.schedule(1.0).shares
    again = again_of(sched)
    assert again.policy.fairness.share is not sched.policy.fairness.share
    assert {who: again.schedule(1.0).shares[who] for who in shares} == {who: shares[who] for who in shares}
    assert any(shares[who].lent for who in shares)


def test_ids_of_every_kind_that_json_can_carry() -> None:
    sched = fs.Scheduler()
    ids = [0, "0", 1.5, None, (), ("a", (1, None)), "\ud800", "1" * 5000, 10**298, True, "\n", "é" * 3, -(2**70), ""]
    for i, one in enumerate(ids):
        sched.apply(
            fs.MachineAdded(one, {"cpu": i}, rack=one), fs.JobSubmitted(one, [fs.Task(one, kind=one, avoids=ids)], one)
        )
    again = again_of(sched)
    assert list(again.cluster.tasks) == ids and [type(task) for task in again.cluster.tasks] == [
        type(one) for one in ids
    ]
    nested: tuple = ()
    for _ in range(32):
        nested = (nested,)
    for unwritten in (frozenset("x"), nested, 10**299):
        odd = fs.Scheduler()
        odd.apply(fs.JobSubmitted("j"), fs.MachineAdded(unwritten, {"cpu": 1}))
        with pytest.raises(fs.InputError, match="can only hold"):
            text(odd)


# -- policies and their accounts ------------------------------------------------------------------------------------


class Tallied:
    """A provider of the caller's own that keeps accounts."""

    def __init__(self, step: int = 1) -> None:
        self.step = step
        self.started: dict = {}
        self.last = None
        self.sizes, self.seen = np.zeros((2, 2)), {("a", 1)}

    def __call__(self, claims):
        return fs.MaxMin()(claims)

    def committed(self, claims, started) -> None:
        for who, count in zip(claims.ids, started.tolist(), strict=True):
            self.started[who] = self.started.get(who, 0) + count
        self.last = started


def tallied(step: int = 1) -> fs.Policy:
    return fs.Policy(fairness=fs.Fairness(Tallied(step)))


def test_accounts_of_a_providers_own() -> None:
    sched = two(tallied())
    sched.apply(fs.JobSubmitted("j", [fs.Task(i, {"cpu": 1}) for i in range(3)]))
    sched.commit(sched.schedule(0.0))
    data = text(sched)
    with pytest.raises(fs.JournalMismatchError, match=r"line 1: .*part of the caller's own, .*Tallied"):
        fs.Scheduler.import_state(data)
    with pytest.raises(fs.JournalMismatchError, match=r"fairness\.share must be the .*Tallied"):
        fs.Scheduler.import_state(data, tallied(2))
    with pytest.raises(fs.JournalMismatchError, match=r"fairness\.share must be the .*Tallied"):
        fs.Scheduler.import_state(data, fs.Policy())
    again = fs.Scheduler.import_state(data, tallied())
    assert again.policy.fairness.share.started == {"j": 3} and again.policy.fairness.share.seen == {("a", 1)}
    assert again.policy.fairness.share.last.tolist() == [3] and text(again) == data
    given = replace(tallied(), step=0.5, preemption=None)  # all but what keeps accounts may be another one
    assert fs.Scheduler.import_state(data, given).policy is given and given.fairness.share.started == {"j": 3}
    assert fs.Scheduler.import_state(data, policies=[tallied()]).policy.fairness.share.started == {"j": 3}


def test_a_provider_that_another_goes_by_keeps_its_accounts() -> None:
    policy = fs.Policy(fairness=fs.Fairness(fs.Remaining(fs.SequenceShare()), over="user"))
    sched = two(policy)
    sched.apply(fs.JobSubmitted("j", [fs.Task(i, {"cpu": 1}) for i in range(20)], "ann"))
    sched.commit(sched.schedule(0.0))
    assert list(keepers(policy)) == ["share.share"]
    again_of(sched)


@given(
    quotas=st.dictionaries(st.one_of(st.text(), st.integers(), st.none()), st.integers(1, 50), min_size=1, max_size=6),
    heartbeats=st.lists(st.tuples(st.integers(0, 40), st.lists(st.integers(0, 20), min_size=6, max_size=6)), max_size=8),
    mu=st.sampled_from([1.0, 0.3]), method=st.sampled_from(["max_deficit", "min_ratio"]), ticks=st.integers(1, 3),
)  # fmt: skip
def test_a_deployment_goes_on(quotas, heartbeats, mu: float, method, ticks: int) -> None:
    deployment = Deployment(quotas, mu=mu, method=method, ticks=ticks)
    for free, wanted in heartbeats:
        deployment.deal(free, dict(zip(quotas, wanted, strict=False)))
    provider = Tallied()
    provider.started = {"of": deployment}
    policy, other = (fs.Policy(fairness=fs.Fairness(one)) for one in (provider, Tallied()))
    told = json.loads(json.dumps([list(account) for account in accounts(policy)]))
    booked(other, {where: (described, account) for where, described, account in told})()
    again = other.fairness.share.started["of"]
    assert again.ledger.debts() == deployment.ledger.debts() and again.sequence.position == deployment.sequence.position
    for free, wanted in [(7, [3] * 6), *heartbeats]:
        wants = dict(zip(quotas, wanted, strict=False))
        assert again.deal(free, wants).units.tolist() == deployment.deal(free, wants).units.tolist()


def test_what_a_provider_keeps_must_be_plain() -> None:
    policy = tallied()
    policy.fairness.share.started["f"] = print
    with pytest.raises(fs.InputError, match="account can only hold"):
        text(fs.Scheduler(policy))
    policy.fairness.share.started["f"] = policy.fairness.share.started
    with pytest.raises(fs.InputError, match="refers to itself"):
        text(fs.Scheduler(policy))


# -- the format -----------------------------------------------------------------------------------------------------


def small() -> fs.Scheduler:
    sched = two()
    sched.apply(fs.JobSubmitted("j", [fs.Task(f"t{i}", {"cpu": 3}) for i in range(3)], "ann", time=0.0))
    sched.commit(sched.schedule(1.0))
    return sched


def test_a_file_of_format_1_0_reads_for_ever() -> None:
    """As it was written when the format was new; never to be altered."""
    data = (DATA / "state-1.0.jsonl").read_bytes()
    sched = fs.Scheduler.import_state(data)
    check_books(sched)
    cluster = sched.cluster
    assert (sched.seed, sched.cluster.events, cluster.machine_ids()) == (3, 12, ["a", "b", "c", "d"])
    assert {task: cluster.placement(task) for task in ("t0", "t1", "t2", ("k", 0))} == {
        "t0": "a",
        "t1": "a",
        "t2": "b",
        ("k", 0): None,
    }
    assert (
        cluster.task("t0").place.devices == (1,)
        and cluster.task("t0").place.since == 0.25
        and cluster.task(("g", 1)).since == 0.5
    )
    assert cluster.machines["c"].drained and cluster.machines["c"].machine.slots == 3 and cluster.machines["d"].failed
    assert (
        cluster.jobs["k"].job == fs.cluster.Job("k", "bob", 1, None, 99.5)
        and cluster.task(("k", 0)).group.cls.kind == "work"
    )
    assert sched.builder.reservations.held.tolist()[:2] == [-1, 2]
    assert [group.serial for group in sched.builder.left_out] == [7]
    assert dict(sched.policy.fairness.share.deployment.ledger.debts()) == {("bob", "ann"): 1}
    sched.commit(sched.schedule(100.0))


def test_a_file_of_fgm_of_format_1_0_reads_for_ever() -> None:
    fine = FineGrained.import_state((DATA / "state-fgm-1.0.jsonl").read_bytes())
    check_books(fine)
    assert fine.estimator.profile("k").samples == 1 and fine.estimator.profile(("s", 4.1)).samples == 1
    assert len(fine.estimator._pending) == 1 and fine.now == 12.0
    assert {task for task in fine.cluster.tasks if fine.cluster.placement(task)} == {"t0", "t1"}
    fine.apply(fs.TaskCompleted("t0", time=30.0))
    fine.commit(fine.schedule(31.0))
    assert fine.estimator.profile("k").samples == 3


def test_later_minor_versions_are_read_and_major_ones_are_not() -> None:
    lines = parsed(text(small()))
    for line in lines:
        line["of a later version"] = {"is": ["whatever"]}
    assert fs.Scheduler.import_state(sealed(lines)).cluster.placement("t0")
    strange = {"is": "something new", "x": 1}
    with pytest.raises(fs.JournalMismatchError, match="line 3: nothing is a 'something new'"):
        fs.Scheduler.import_state(sealed([*lines[:2], strange, *lines[2:]]))
    lines[0]["format"] = [1, 7]
    assert fs.Scheduler.import_state(sealed([*lines[:2], strange, *lines[2:]])).cluster.placement("t0")
    lines[0]["format"] = [2, 0]
    with pytest.raises(fs.JournalMismatchError, match="line 1: a state of format 2.0; format 1 is read here"):
        fs.Scheduler.import_state(sealed(lines))


def test_a_file_may_be_written_by_hand() -> None:
    lines = [
        {"is": "flowsched", "format": [1, 0], "resources": ["cpu"], "policy": {"is": "Policy"}, "turn": 3, "serial": 2},
        {"is": "machine", "id": "m", "capacity": {"cpu": 2}, "row": 7}, {"is": "class", "class": 4, "demand": [1_000_000], "priority": 0},
        {"is": "job", "id": "j", "serial": 1}, {"is": "group", "group": 2, "job": "j", "class": 4},
        *({"is": "task", "id": i, "group": 2, "turn": i + 1} for i in range(3)), {"is": "runs", "machine": "m", "tasks": [[1, 5.0]]},
        {"is": "end", "lines": 9},
    ]  # fmt: skip
    sched = fs.Scheduler.import_state(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    check_books(sched)
    assert dict(sched.schedule(6.0).placements) == {0: "m"}


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("flowsched", {"resources": "cpu"}, "line 1: resources: names expected"),
        ("flowsched", {"turn": 0}, "task 't0': turn: a number of its own"),
        ("machine", {"capacity": {"cpu": -1}}, r"machine 'a': capacity\['cpu'\]: a finite number"),
        ("machine", {"id": "b"}, "line 4: machine 'b' is there twice"),
        ("machine", {"failed": True}, "machine 'a' has failed: nothing runs there"),
        ("machine", {"capacity": {"gpu": 1e9}}, "a whole number of devices, at most 4096, expected"),
        ("machine", {"row": 1}, "two machines of one row"),
        ("class", {"demand": [1]}, "class 0: demand: 2 amounts expected"),
        ("class", {"demand": [0, 1_500_000]}, "a share of one device or whole devices"),
        ("class", {"demand": [0, 1_000_000]}, "task 't0': 1 devices expected"),
        ("class", {"priority": 1}, "another priority than class 0"),
        ("job", {"serial": 99}, "serial must be a whole number from 1 to 2"),
        ("group", {"job": "k"}, "unknown job 'k'"),
        ("group", {"group": 1}, "group: serial 1 is there twice"),
        ("task", {"turn": 1 << 80}, "task 't0': turn: a number of its own"),
        ("task", {"since": "x"}, "since must be a finite number"),
        ("task", {"since": 10**400}, "no JSON: a whole number of 401 digits"),
        ("runs", {"tasks": [["t0", 0.0], ["t0", 0.0]]}, "task 't0' runs twice"),
        ("runs", {"tasks": [["t0", 0.0, [0]]]}, "0 devices expected"),
        ("runs", {"machine": "b"}, "machine 'b' is there twice"),
    ],
)
def test_what_cannot_be_is_refused_by_line(kind: str, change: dict, message: str) -> None:
    lines = parsed(text(small()))
    next(line for line in lines if line["is"] == kind).update(change)
    with pytest.raises(fs.JournalError, match=message) as caught:
        fs.Scheduler.import_state(sealed(lines))
    assert "line " in str(caught.value)


def test_devices_on_many_machines_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    told = text(small())
    monkeypatch.setattr(rebuild, "MOST_IN_ALL", 1)
    with pytest.raises(fs.JournalError, match="more than 1 devices on all machines"):
        fs.Scheduler.import_state(told)


def test_load_replaces_a_state_as_a_whole_or_not_at_all() -> None:
    sched, target = small(), two(fs.Policy(fairness=fs.Fairness(fs.SequenceShare())))
    before = text(target)
    lines = text(sched).splitlines(keepends=True)
    with pytest.raises(
        fs.CorruptJournalError, match="the journal at record 77: line 12: the file ends before its last line"
    ):
        load(target.engine, lines[:11], path="the journal", record=77)
    assert text(target) == before
    with pytest.raises(fs.JournalMismatchError, match="a state of a Scheduler with resources cpu, gpu and seed 0"):
        load(fs.Scheduler(seed=1).engine, lines)
    load(target.engine, lines)
    assert text(target) == text(sched)
    given = fs.Policy.named("pack")
    load(target.engine, lines, given)
    assert target.policy is given


# -- FineGrained ----------------------------------------------------------------------------------------------------


def looked(fine: FineGrained) -> FineGrained:
    """After everything was looked at again: what is found out again is no part of a state."""
    fine.policy = fine.policy
    fine.engine.rule._refused.clear()
    for row in fine.cluster.by_row:
        fine.cluster.inventory.touch(row)
    return fine


@settings(max_examples=effort(8, 300))
@given(seed=st.integers(0, 2**32), count=st.integers(0, 70))
def test_what_fgm_has_learnt_is_told(seed: int, count: int) -> None:
    fine = born(seed)
    list(fine_operations(seed, fine, count))
    data = text(fine)
    again = FineGrained.import_state(data)
    check_books(again)
    assert text(again) == data
    mine, theirs = known_of(fine), known_of(again)
    assert theirs["estimator"] == mine["estimator"] and theirs["pending"] == mine["pending"]
    tasks = {task.id: task for task in fine.cluster.tasks.values() if task.place}
    traces = [trace for trace in mine["traces"] if trace[0] in tasks and trace[1][0] == repr(tasks[trace[0]].turn)]
    assert sorted(theirs["traces"], key=str) == sorted(traces, key=str)
    now = 1e4
    (_, costs), (_, others) = first_costs(looked(fine), now), first_costs(looked(again), now)
    assert others[:1] == costs[:1]


def test_tasks_go_on_in_their_stages_and_beyond_what_a_machine_has() -> None:
    stages = {"k": Stages([10, 30], [[3.0, 1.0], [0.5, 1.0]])}
    fine = FineGrained(fs.Scheduler(resources=NAMES), estimator=known(stages))
    submit(fine, 6, cpu=4.0)
    for now in (0.0, 12.0, 13.0):
        fine.commit(fine.schedule(now))
    running = [task for task, record in fine.cluster.tasks.items() if record.place]
    assert len(running) > 1 and fine.cluster.inventory.free[0, 0] < 0
    again = FineGrained.import_state(text(fine))
    check_books(again)
    with pytest.raises(fs.JournalMismatchError, match="of a FineGrained, and is read by a Scheduler"):
        fs.Scheduler.import_state(text(fine))
    with pytest.raises(fs.InputError, match="a fit rule decides here"):
        fine.scheduler.export("never")
    for now in (14.0, 25.0, 40.0, 60.0, 200.0):
        rnd, other = fine.schedule(now), again.schedule(now)
        assert said(rnd)[:-1] == said(other)[:-1]
        fine.commit(rnd)
        again.commit(other)


# -- files and commands ---------------------------------------------------------------------------------------------


def test_files_are_whole_and_never_overwritten_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sched, path = small(), tmp_path / "state.jsonl"
    sched.export(path)
    assert path.read_bytes() == text(sched)
    sched.apply(fs.MachineRemoved("a"))
    with pytest.raises(fs.JournalError, match=r"state\.jsonl: is there already"):
        sched.export(path)
    sched.export(path, overwrite=True)
    assert path.read_bytes() == text(sched) and text(fs.Scheduler.import_state(path)) == text(sched)
    packed = tmp_path / "state.jsonl.gz"
    sched.export(packed)
    assert gzip.decompress(packed.read_bytes()) == text(sched) == text(fs.Scheduler.import_state(str(packed)))
    packed.write_bytes(packed.read_bytes()[:-30])
    with pytest.raises(fs.CorruptJournalError, match="line"):
        fs.Scheduler.import_state(packed)
    with pytest.raises(fs.JournalError, match="cannot be written: No such file"):
        sched.export(tmp_path / "no" / "where")
    sched.apply(fs.MachineAdded(frozenset("x"), {"cpu": 1}))
    with pytest.raises(fs.InputError):
        sched.export(tmp_path / "half")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(fs.JournalError, match="No space left"):
        small().export(tmp_path / "full")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["state.jsonl", "state.jsonl.gz"]


def run(*arguments: object):
    return CliRunner().invoke(cli.application(), ["journal", *map(str, arguments)])


def test_a_journal_goes_through_a_file_into_another(tmp_path: Path) -> None:
    old, state, new = tmp_path / "old", tmp_path / "state.jsonl.gz", tmp_path / "new"
    sched = fs.Scheduler(POLICIES[4](), journal=old)
    list(operations(5, sched, 60))
    sched.journal.close()
    old.chmod(0o444)
    before = old.read_bytes()
    assert run("export", old, "-o", state).output == ""
    assert run("import", state, new).output == ""
    assert old.read_bytes() == before
    policy = copy.deepcopy(sched.policy)  # the operations may have set another one
    again = fs.Scheduler(copy.deepcopy(policy), journal=new)
    assert text(again) == text(sched)
    again.commit(again.schedule(1e4))
    done = run("export", new)
    assert done.exit_code == 0 and done.stdout_bytes == text(again)
    again.journal.close()
    assert text(fs.Scheduler(policy, journal=new)) == text(again)
    for arguments in (("export", old, "-o", state), ("import", state, new)):
        done = run(*arguments)
        assert done.exit_code == 3 and done.output.endswith("is there already\n") and done.output.count("\n") == 1
    assert run("export", old, "-o", state, "--force").exit_code == 0


def test_fgm_goes_through_a_file_as_well(tmp_path: Path) -> None:
    fine = born(3, tmp_path / "old")
    life = FineLife(3)
    live_alike(life, fine, (), 25, MAKERS[:1])
    fine.journal.close()
    assert run("export", tmp_path / "old", "-o", tmp_path / "state").exit_code == 0
    assert run("import", tmp_path / "state", tmp_path / "new").exit_code == 0
    assert text(FineGrained.restore(tmp_path / "new")) == text(fine)


def test_commands_say_in_one_line_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_bytes(text(two(tallied())))
    done = run("import", path, tmp_path / "new")
    assert done.exit_code == 3 and "Tallied" in done.output and done.output.count("\n") == 1
    assert run("import", path, tmp_path / "new", "--policy", f"{__name__}:tallied").exit_code == 0
    done = run("export", tmp_path / "new", "--policy", f"{__name__}:tallied")
    assert done.exit_code == 0 and done.stdout_bytes == path.read_bytes()
    for arguments in (("export", path), ("import", tmp_path / "new", tmp_path / "other")):
        done = run(*arguments)
        assert done.exit_code == 3 and done.output.count("\n") == 1
    assert run("import", tmp_path / "nothing", path).exit_code == 2
    for arguments in (("--help",), ("export", "--help"), ("import", "--help")):
        assert "Usage" in run(*arguments).output


def test_estimates_and_what_they_reserve_are_told() -> None:
    sched = two()
    sched.apply(fs.MachineRemoved("b"), fs.JobSubmitted("s", [fs.Task("s", {"cpu": 3}, duration=8.0)]))
    sched.commit(sched.schedule(0.0))
    sched.apply(fs.JobSubmitted("big", [fs.Task("big", {"cpu": 4}, duration=1.0)]))
    sched.commit(sched.schedule(1.0))
    sched.apply(
        fs.JobSubmitted("late", [fs.Task("long", {"cpu": 1}, duration=9.0), fs.Task("short", {"cpu": 1}, duration=2.0)])
    )
    again = again_of(sched)
    assert [line.get("duration") for line in parsed(text(sched)) if line["is"] == "task"] == [8.0, 1.0, 9.0, 2.0]
    for one in (sched, again):
        rnd = one.schedule(2.0)
        assert dict(rnd.placements) == {"short": "a"}
        assert not one.commit(rnd).conflicts
