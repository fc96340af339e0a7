"""Every goal can be switched while the scheduler runs: it holds from the next round on, and the network stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import pytest
from power import MostTasks

import flowsched as fs

NO_COST = fs.Policy(placement=(), preemption=None)
FAIR = fs.Fairness(fs.MaxMin())


@dataclass
class Case:
    """Events before the first round and before the second; what the second shows under either policy."""

    old: fs.Policy
    new: fs.Policy
    first: list[fs.Event]
    second: list[fs.Event]
    shows: Callable[[fs.Round], Any]
    under_old: Any
    under_new: Any


def machines(count: int = 2, **given: Any) -> list[fs.Event]:
    return [fs.MachineAdded(f"m{i}", {"cpu": 8}, rack=f"r{i}", labels={"disk": f"d{i}"}, **given) for i in range(count)]


def job(name: str, count: int = 1, priority: int = 0, time: float | None = None, **given: Any) -> fs.JobSubmitted:
    tasks = [fs.Task(f"{name}{i}", {"cpu": 1}, **given) for i in range(count)]
    return fs.JobSubmitted(name, tasks, user=name, priority=priority, time=time)


def where(task: str) -> Callable[[fs.Round], Any]:
    return lambda rnd: rnd.placements.get(task)


def started(rnd: fs.Round) -> dict[str, int]:
    return dict(Counter(str(task)[0] for task in rnd.placements))


def fair(fairness: fs.Fairness | None) -> fs.Policy:
    return replace(NO_COST, fairness=fairness)


BUSY = [job("w", 1), fs.TaskStarted("w0", "m0")]
"""The first machine has a task: to spread is to take the second, to pack the first."""

LARGE = fs.JobSubmitted("l", [fs.Task("l0", {"cpu": 8})])
"""It waits for a whole machine."""

TWO_CLAIMANTS = [fs.UserAdded("a", 3.0), fs.UserAdded("b", 1.0), job("a", 8), job("b", 8)]

CASES = {
    "fairness on": Case(fair(None), fair(FAIR), [job("b", 8, priority=-1), job("a", 8)], machines(1, slots=4), started, {"b": 4}, {"a": 2, "b": 2}),
    "fairness off": Case(fair(FAIR), fair(None), [job("b", 8, priority=-1), job("a", 8)], machines(1, slots=4), started, {"a": 2, "b": 2}, {"b": 4}),
    "fairness provider": Case(
        fair(FAIR), fair(fs.Fairness(fs.WeightedMaxMin(), weights={"a": 3.0})),
        TWO_CLAIMANTS, machines(1, slots=4), started, {"a": 2, "b": 2}, {"a": 3, "b": 1},
    ),
    "quotas": Case(
        NO_COST, replace(NO_COST, quotas={"a": {"cpu": 3}}), [job("b", 1), job("a", 8)], machines(1, slots=6), started, {"a": 5, "b": 1}, {"a": 3, "b": 1},
    ),
    "fairness over users": Case(
        fair(FAIR), fair(fs.Fairness(fs.WeightedMaxMin(), over="user")),
        TWO_CLAIMANTS, machines(1, slots=4), started, {"a": 2, "b": 2}, {"a": 3, "b": 1},
    ),
    "hard bounds to a ladder": Case(
        fair(fs.Fairness(limits={"a": fs.Limits(maximum=1)})), fair(fs.Fairness(mode="ladder")),
        TWO_CLAIMANTS, machines(1, slots=4), started, {"a": 1, "b": 3}, {"a": 2, "b": 2},
    ),
    "load": Case(
        fs.Policy(), fs.Policy(placement=[fs.LoadCost("pack")]), [*machines(), *BUSY], [job("x")], where("x0"), "m1", "m0"
    ),
    "devices": Case(
        fs.Policy(placement=[fs.CustomCost(lambda c, k, r: (r[None, :] != 0) * (k[:, None] >= 0) * 1.0)]), fs.Policy(placement=[fs.DeviceCost()]),
        [fs.MachineAdded("m0", {"cpu": 8, "gpu": 1}), fs.MachineAdded("m1", {"cpu": 8})], [job("x")], where("x0"), "m0", "m1",
    ),
    "preferences": Case(
        fs.Policy(), fs.Policy(placement=[fs.PreferenceCost()]), [*machines(), *BUSY],
        [job("x", prefers={"disk": ("d0",)})], where("x0"), "m1", "m0",
    ),
    "locality": Case(
        fs.Policy(), fs.Policy(locality=fs.Locality(weight=9.0)), [*machines(), *BUSY], [job("x", data={"m0": 1.0})], where("x0"), "m1", "m0",
    ),
    "locality off": Case(
        fs.Policy(locality=fs.Locality(weight=9.0)), fs.Policy(), [*machines(), *BUSY], [job("x", data={"m0": 1.0})], where("x0"), "m0", "m1",
    ),
    "load of racks": Case(
        fs.Policy(), fs.Policy(rack_load=9.0),
        [*machines(), fs.MachineAdded("m2", {"cpu": 8}, rack="r0"), LARGE, fs.TaskStarted("l0", "m0"), job("v"), fs.TaskStarted("v0", "m1")],
        [job("x")], where("x0"), "m2", "m1",
    ),
    "strict to weighted priority": Case(
        fs.Policy(), fs.Policy(priority=fs.WeightedPriority(0.1)),
        [*machines(1, slots=1), *BUSY], [job("x", priority=-5)], lambda rnd: set(rnd.preemptions), {"w0"}, set(),
    ),
    "weighted to strict priority": Case(
        fs.Policy(priority=fs.WeightedPriority(0.1)), fs.Policy(),
        [*machines(1, slots=1), *BUSY], [job("x", priority=-5)], lambda rnd: set(rnd.preemptions), set(), {"w0"},
    ),
    "preemption": Case(
        NO_COST, fs.Policy(), [*machines(1, slots=1), *BUSY], [job("x", priority=-5)], lambda rnd: set(rnd.preemptions), set(), {"w0"}
    ),
    "preemption off": Case(
        fs.Policy(), NO_COST, [*machines(1, slots=1), *BUSY], [job("x", priority=-5)], lambda rnd: set(rnd.preemptions), {"w0"}, set()
    ),
    "age": Case(
        fs.Policy(placement=[fs.PreferenceCost()], waiting=fs.WaitCost(first=1e9)), fs.Policy(placement=[fs.PreferenceCost()], waiting=fs.WaitCost(first=1.0)),
        [job("o", prefers={"disk": ("none",)}, time=0.0)], [*machines(1, slots=1), job("y", time=99.0)], started, {"y": 1}, {"o": 1},
    ),
    "constraints": Case(
        fs.Policy(), fs.Policy(constraints=[MostTasks(1)]), [*machines(), *BUSY, job("v"), fs.TaskStarted("v0", "m1")],
        [job("x")], started, {"x": 1}, {},
    ),
    "constraints off": Case(
        fs.Policy(constraints=[MostTasks(1)]), fs.Policy(), [*machines(), *BUSY, job("v"), fs.TaskStarted("v0", "m1")],
        [job("x")], started, {}, {"x": 1},
    ),
    "backfill": Case(
        fs.Policy(backfill=None), fs.Policy(), [*machines(1), job("w", duration=900.0), fs.TaskStarted("w0", "m0"), LARGE],
        [job("x")], started, {"x": 1}, {},
    ),
    "backfill off": Case(
        fs.Policy(), fs.Policy(backfill=None), [*machines(1), job("w", duration=900.0), fs.TaskStarted("w0", "m0"), LARGE],
        [job("x")], started, {}, {"x": 1},
    ),
    "patience": Case(
        fs.Policy(placement=[fs.PreferenceCost()]), fs.Policy(placement=[fs.PreferenceCost()], waiting=fs.WaitCost(first=1e9, patience=0.5)),
        machines(1), [job("x", prefers={"disk": ("d9",)})], where("x0"), "m0", None,
    ),
}  # fmt: skip


def begin(case: Case) -> fs.Scheduler:
    sched = fs.Scheduler(case.old, resources=("cpu", "gpu"))
    sched.apply(*case.first)
    sched.commit(sched.schedule(0.0))
    return sched


@pytest.mark.parametrize("name", CASES)
def test_a_switch_holds_from_the_next_round_on_and_the_network_stays(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    as_before, switched = begin(case), begin(case)
    nodes, arcs = set(switched.network.nodes().tolist()), set(switched.network.arcs().tolist())
    gone: list[int] = []
    remove = fs.FlowNetwork.remove_nodes

    def spy(network: fs.FlowNetwork, nodes: Any) -> None:
        gone.extend(nodes)
        remove(network, nodes)

    monkeypatch.setattr(fs.FlowNetwork, "remove_nodes", spy)
    switched.policy = case.new
    alone = switched.schedule(0.5)
    assert not gone and nodes <= set(switched.network.nodes().tolist()), "no node goes"
    lost = arcs - set(switched.network.arcs().tolist())
    assert len(lost) <= (3 if "locality" in name else 0), "arcs to where data is, at most"
    assert alone.stats.changes <= 2 * (alone.stats.nodes + alone.stats.arcs), (
        "what is there changes, each number once or twice"
    )
    assert switched.schedule(0.75).stats.changes <= 8, "and once only"
    for sched in (as_before, switched):
        sched.apply(*case.second)
    assert case.shows(as_before.schedule(100.0)) == case.under_old
    assert case.shows(switched.schedule(100.0)) == case.under_new


def test_every_goal_of_a_policy_is_switched_here() -> None:
    switched = {
        name for case in CASES.values() for name in vars(case.old) if getattr(case.old, name) != getattr(case.new, name)
    }
    assert switched >= {f.name for f in fields(fs.Policy) if f.init} - {"step", "resolution", "moves", "debug"}


def test_only_a_policy_is_a_policy() -> None:
    sched = fs.Scheduler()
    with pytest.raises(fs.InputError, match="policy"):
        sched.policy = "pack"  # type: ignore[assignment]
    assert sched.policy == fs.Policy()


@pytest.mark.parametrize("limits", [fs.Limits(maximum=1), fs.Limits(borrow=False), fs.Limits(lend=False, maximum=0)])
def test_a_limit_below_the_running_tasks_stops_none_and_no_round(limits: fs.Limits) -> None:
    sched = fs.Scheduler(resources=("cpu",))
    sched.apply(fs.MachineAdded("m", {"cpu": 8}), job("a", 6), job("b", 6))
    sched.commit(sched.schedule(0.0))
    for share in (
        fs.MaxMin(),
        fs.WeightedMaxMin(),
        fs.DRF(),
        fs.BatchShare(),
        fs.SequenceShare(),
        fs.StaticQuotas({"a": 2}, 9),
    ):
        sched.policy = fs.Policy(fairness=fs.Fairness(share, "user", limits={"a": limits, "b": limits}))
        rnd = sched.schedule(1.0)
        assert not rnd.deltas and sum(share.running for share in rnd.shares.values()) == 8


def test_jobs_that_came_without_shares_claim_theirs_under_the_next_policy() -> None:
    """Their arcs always have an owner, and they get the same as with shares from the beginning."""
    equal = fs.Policy(fairness=fs.Fairness(fs.MaxMin()))
    scheds = [fs.Scheduler(policy, resources=("cpu",)) for policy in (fs.Policy(), equal)]
    for sched in scheds:
        sched.apply(fs.MachineAdded("m", {"cpu": 4}))
        sched.apply(*(fs.JobSubmitted(j, [fs.Task((j, i), {"cpu": 1}) for i in range(4)]) for j in ("a", "b", "c")))
        sched.schedule(0.0)
        sched.builder.check_ids()
        sched.apply(fs.JobRemoved("a"))
        sched.schedule(1.0)
        sched.builder.check_ids()
        sched.policy = equal
        rnd = sched.schedule(2.0)
        sched.builder.check_ids()
        assert {job: rnd.shares[job].entitled for job in rnd.shares} == {"b": 2, "c": 2}
        assert sorted(task[0] for task in rnd.placements) == ["b", "b", "c", "c"]
        sched.policy = fs.Policy()
        sched.apply(fs.JobSubmitted("d", [fs.Task("d", {"cpu": 1})]), fs.JobRemoved("b"))
        assert not sched.schedule(3.0).shares
        sched.builder.check_ids()
