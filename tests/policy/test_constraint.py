"""Constraints of the caller: they are always kept, and reasons name them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import numpy as np
import pytest
from effort import effort
from lives import POLICIES, Life, flow_of, said, world_of
from power import MostTasks, PowerCap, forbidden, power

import flowsched as fs
from flowsched.policy.serialize import describe, parts, rebuild

CAP = PowerCap()


def world(machines: int = 4, policy: fs.Policy | None = None, **given: Any) -> fs.Scheduler:
    """Machines of 8 CPUs, two in a rack."""
    sched = fs.Scheduler(policy or fs.Policy(constraints=[CAP]), resources=("cpu", "mem"), **given)
    sched.apply(*(fs.MachineAdded(f"m{i}", {"cpu": 8, "mem": 8}, rack=i // 2) for i in range(machines)))
    return sched


def submit(sched: fs.Scheduler, name: str, count: int, cpu: float = 1.0, **given: Any) -> None:
    sched.apply(fs.JobSubmitted(name, [fs.Task(f"{name}{i}", {"cpu": cpu}) for i in range(count)], **given))


def step(sched: fs.Scheduler, now: float) -> fs.Round:
    rnd = sched.schedule(now)
    assert not sched.commit(rnd).conflicts
    return rnd


# -- they hold --------------------------------------------------------------------------------------------------------


def test_what_one_round_starts_on_several_machines_of_a_rack_holds_together() -> None:
    sched = world()
    submit(sched, "t", 20)
    rnd = step(sched, 0.0)
    assert power(sched.cluster, CAP) == {0: 400.0, 1: 400.0}
    assert len(rnd.placements) == 8 and len(rnd.waiting) == 12
    submit(sched, "u", 3)
    assert not step(sched, 1.0).placements
    sched.apply(fs.TaskCompleted("t0"))
    assert len(step(sched, 2.0).placements) == 1, "a machine of the same rack has room again"


def test_an_end_on_one_machine_wakes_tasks_for_the_others_of_its_rack() -> None:
    sched = world(2)
    submit(sched, "a", 4)
    step(sched, 0.0)
    submit(sched, "b", 1, cpu=2.0)
    sched.apply(*(fs.MachineDrained(m) for m in ("m0",)))
    assert not step(sched, 1.0).placements
    ended = list(sched.cluster.machines["m0"].tasks)
    sched.apply(*(fs.TaskCompleted(task.id) for task in ended))
    assert dict(step(sched, 2.0).placements) == {"b0": "m1"}


@pytest.mark.parametrize("how", ["remove", "move", "fail", "update"])
def test_a_machine_that_leaves_a_rack_makes_room_there(how: str) -> None:
    sched = world(3)
    submit(sched, "a", 8)
    step(sched, 0.0)
    submit(sched, "b", 6)
    assert not step(sched, 1.0).placements
    event = {
        "remove": fs.MachineRemoved("m0"), "fail": fs.MachineFailed("m0"),
        "move": fs.MachineUpdated("m0", rack="far"), "update": fs.MachineUpdated("m0", rack=1),
    }[how]  # fmt: skip
    there = 100.0 * len(sched.cluster.machines["m0"].tasks)
    assert there
    sched.apply(event)
    assert step(sched, 2.0).placements
    drawn = power(sched.cluster, CAP)
    assert drawn == {"remove": {0: 400.0, 1: 400.0}, "fail": {0: 400.0, 1: 400.0}, "move": {0: 400.0, 1: 400.0, "far": 400.0},
                     "update": {0: 400.0, 1: 400.0 + there}}[how]  # fmt: skip


@dataclass(frozen=True)
class ByLabel:
    """No task where a machine of the rack says so."""

    name: ClassVar[str] = "quiet hours"
    wakes: ClassVar[tuple[type[fs.Event], ...]] = (fs.MachineUpdated,)

    def reach(self, cluster: fs.Cluster, row: int) -> Any:
        return cluster.rack_rows(row)

    def room(self, cluster: fs.Cluster, classes: Any, rows: Any) -> Any:
        quiet = [(cluster.labels(cluster.rack_rows(row), "quiet") == "yes").any() for row in rows.tolist()]
        return np.tile(np.where(quiet, 0, 5), (len(classes), 1))


def test_another_label_is_noticed_on_the_whole_rack_before_and_after() -> None:
    sched = world(4, fs.Policy(constraints=[ByLabel()]))
    sched.apply(fs.MachineUpdated("m0", labels={"quiet": "yes"}))
    submit(sched, "a", 40)
    assert set(step(sched, 0.0).placements.values()) == {"m2", "m3"}
    sched.apply(fs.MachineUpdated("m0", rack=1))
    assert set(step(sched, 1.0).placements.values()) == {"m1"}
    sched.apply(fs.MachineUpdated("m0", labels={}))
    assert set(step(sched, 2.0).placements.values()) == {"m0", "m1", "m2", "m3"}


def test_a_better_task_takes_no_more_than_its_victims_gave() -> None:
    sched = world(2)
    submit(sched, "low", 4, priority=5)
    step(sched, 0.0)
    submit(sched, "high", 1, cpu=2.0)
    rnd = step(sched, 1.0)
    assert len(rnd.preemptions) == 2 and set(rnd.placements) == {"high0"}
    assert power(sched.cluster, CAP) == {0: 400.0}
    submit(sched, "huge", 1, cpu=3.0)
    rnd = step(sched, 2.0)
    assert not rnd.placements and not rnd.preemptions, "its equal draws too much"
    assert rnd.waiting["huge0"].detail == {"8 cpu, 8 mem": {"rack power": 2}}


def test_a_gang_starts_as_a_whole_within_the_cap_or_not_at_all() -> None:
    sched = world(2)
    submit(sched, "big", 5, gang=5)
    submit(sched, "small", 3, gang=3)
    rnd = step(sched, 0.0)
    assert set(rnd.placements) == {"small0", "small1", "small2"}
    assert rnd.waiting["big0"].code is fs.ReasonCode.GANG_SHORT
    sched.policy = fs.Policy(constraints=[PowerCap(800.0)])
    assert len(step(sched, 1.0).placements) == 5


def test_a_task_that_started_elsewhere_has_started() -> None:
    sched = world(1)
    submit(sched, "a", 6)
    sched.apply(*(fs.TaskStarted(f"a{i}", "m0") for i in range(5)))
    assert power(sched.cluster, CAP) == {0: 500.0}
    assert not step(sched, 0.0).placements
    sched.apply(fs.TaskCompleted("a0"))
    assert not step(sched, 1.0).placements
    sched.apply(fs.TaskCompleted("a1"))
    assert len(step(sched, 2.0).placements) == 1


def test_a_commit_refuses_starts_without_room_any_more() -> None:
    sched = world(2)
    submit(sched, "a", 4)
    rnd = sched.schedule(0.0)
    submit(sched, "b", 2)
    sched.apply(fs.TaskStarted("b0", "m0"), fs.TaskStarted("b1", "m1"))
    done = sched.commit(rnd)
    assert len(done.accepted) == 2 and len(done.conflicts) == 2
    assert {str(dict(reason.detail)) for reason in done.conflicts.values()} == {"{'constraint': {'rack power': 1}}"}
    assert power(sched.cluster, CAP) == {0: 400.0}


def test_fits_counts_the_tasks_that_constraints_allow() -> None:
    sched = world(2)
    submit(sched, "a", 1)
    assert sched.cluster.fits("a0").tolist() == [4, 4]


POLICY_CHANGES = [PowerCap(300.0), PowerCap(600.0), MostTasks(2), MostTasks(1)]


@pytest.mark.long
def test_random_lives() -> None:
    """After every commit all constraints hold where it started something, and no reason is false."""
    assert sum(live(seed) for seed in range(effort(5, 80))) > 100, "constraints were in the way"


def live(seed: int) -> int:
    random, life = Random(seed), Life(seed)
    base = POLICIES[seed % len(POLICIES)]()
    policy = replace(base, constraints=[PowerCap(random.choice([250.0, 400.0, 900.0])), MostTasks(4)][: 1 + seed % 2])
    sched = fs.Scheduler(policy)
    started = told = 0
    for _ in range(60):
        sched.apply(*life.events(sched))
        if random.random() < 0.1:
            chosen = random.sample(POLICY_CHANGES, random.randrange(3))
            if len({one.name for one in chosen}) == len(chosen):
                sched.policy = replace(sched.policy, constraints=chosen)
        rnd = sched.schedule(life.later())
        only = life.only(rnd)
        done = sched.commit(rnd, only)
        assert only is not None or not done.conflicts
        started += len(rnd.placements)
        check_limits(sched, rnd)
        if only is None:
            told += check_reasons(sched, rnd)
    assert started
    return told


def check_limits(sched: fs.Scheduler, rnd: fs.Round) -> None:
    cluster = sched.cluster
    for one in sched.policy.constraints:
        for task, machine in rnd.placements.items():
            if cluster.task_state(task) == "waiting":
                continue
            record = cluster.machines[machine]
            if isinstance(one, PowerCap):
                rack = ("machine", machine) if record.machine.rack is None else record.machine.rack
                extra = power(cluster, one)[rack]
                free = not any(
                    dict(zip(cluster.resources.names, cluster.task(task).group.cls.demand, strict=True))[r]
                    for r in one.watts
                )
                assert free or extra <= one.cap + 1e-3
            else:
                assert len(record.tasks) <= one.most


def counted(reason: fs.Reason, names: set[str]) -> Counter[str]:
    """Machines that a reason counts under these names."""
    counts: Counter[str] = Counter()
    for blockers in reason.detail.values():
        counts.update({name: blockers[name] for name in names & blockers.keys()})
    return counts


def check_reasons(sched: fs.Scheduler, rnd: fs.Round) -> int:
    """Compare the reasons of the round and of `explain` with the records; return how often a constraint was named."""
    cluster, constraints = sched.cluster, tuple(sched.policy.constraints)
    told = 0
    for task, reason in rnd.waiting.items():
        record = cluster.task(task)
        if task in cluster.resting:
            assert reason.code is fs.ReasonCode.BACKOFF and not reason.detail
            continue
        row_room = {}
        named: Counter[str] = Counter()
        for name, machine in cluster.machines.items():
            names = forbidden(cluster, record, name, constraints)
            named.update(names)
            now = sched.explain(task, name)
            assert {n for blockers in now.detail.values() for n in blockers} & {c.name for c in constraints} == names
            row_room[name] = not now.detail
            assert not (row_room[name] and (machine.failed or machine.drained))
        for told_now in (sched.explain(task), reason)[: 1 + (reason.code is fs.ReasonCode.OUTBID)]:
            # The reason of a class that never had room in a round is as of the last update of the network.
            assert counted(told_now, set(named)) == named, (task, told_now)
        assert not counted(reason, {c.name for c in constraints}) - named, (task, reason)
        told += bool(named)
        if any(row_room.values()):
            assert reason.code.value in ("WAIT_CHEAPER", "SHARE", "GANG_SHORT"), (task, reason)
        else:
            assert reason.code is not fs.ReasonCode.WAIT_CHEAPER
        if reason.code is fs.ReasonCode.CONSTRAINT:
            assert set(reason.unblocked_by) == {
                kind.__name__ for one in constraints if counted(reason, {one.name}) for kind in one.wakes
            }
    return told


# -- what is said -----------------------------------------------------------------------------------------------------


def test_reasons_name_the_constraint_and_its_events() -> None:
    sched = world(2)
    submit(sched, "a", 4)
    step(sched, 0.0)
    submit(sched, "b", 1)
    rnd = sched.schedule(1.0)
    for reason in (rnd.waiting["b0"], sched.explain("b0")):
        assert reason.code is fs.ReasonCode.CONSTRAINT
        assert reason.detail == {"8 cpu, 8 mem": {"rack power": 2}}
        assert reason.unblocked_by == ("TaskCompleted", "TaskFailed", "TaskRemoved", "MachineUpdated")
    assert sched.explain("b0", "m0").detail == {"8 cpu, 8 mem": {"rack power": 1}}
    submit(sched, "c", 1, cpu=7.0)
    rnd = sched.schedule(2.0)
    assert rnd.waiting["c0"].detail == {"8 cpu, 8 mem": {"cpu": 1, "rack power": 2}}
    sched.policy = fs.Policy()
    assert rnd.waiting["b0"].detail == {"8 cpu, 8 mem": {"rack power": 2}}, "as of then, also when asked later"
    assert sched.explain("b0").code is fs.ReasonCode.PENDING


def test_another_policy_holds_from_the_next_round_on() -> None:
    sched = world(2)
    submit(sched, "a", 12)
    step(sched, 0.0)
    sched.policy = fs.Policy(constraints=[PowerCap(600.0), MostTasks(3)])
    assert len(step(sched, 1.0).placements) == 2
    assert sched.explain("a11").detail["8 cpu, 8 mem"].keys() == {"rack power", "crowd"}
    sched.policy = fs.Policy(constraints=[PowerCap(100.0)])
    assert not step(sched, 2.0).preemptions, "what runs goes on"
    sched.policy = fs.Policy()
    assert len(step(sched, 3.0).placements) == 6


# -- what is kept -----------------------------------------------------------------------------------------------------


def capped(policy: fs.Policy) -> fs.Policy:
    return replace(policy, constraints=[PowerCap(450.0), MostTasks(3)])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(effort(3, 40)))
def test_copies_and_restored_ones_go_on_alike(seed: int, tmp_path: Path) -> None:
    make = POLICIES[seed % len(POLICIES)]
    life, policy = Life(seed), capped(make())
    journal = tmp_path / "journal"
    sched = fs.Scheduler(policy, journal=journal)
    for i in range(50):
        sched.apply(*life.events(sched))
        if life.random.random() < 0.7:
            rnd = sched.schedule(life.later())
            for task in list(rnd.waiting)[:1]:
                sched.explain(task)  # leaves no trace
            sched.commit(rnd, life.only(rnd))
        if i == 25:
            sched.compact()
    others = [
        sched.copy(),
        fs.Scheduler.restore(sched.snapshot(), capped(make())),
        fs.Scheduler.restore(journal, capped(make())),
    ]
    assert not others[-1].recovery.differences
    for _ in range(8):
        events, now = life.events(sched), life.later()
        asked = sched.what_if(*events, now=now)
        rounds = []
        for one in (sched, *others):
            one.apply(*events)
            rnd = one.schedule(now)
            rounds.append(said(rnd))
            one.commit(rnd)
        assert rounds[1:] == rounds[:1] * len(others)
        assert said(asked)[1:9] == rounds[0][1:9]
    for one in others:
        assert world_of(one) == world_of(sched) and flow_of(one) == flow_of(sched)


def test_a_constraint_is_described_and_found_again() -> None:
    policy = fs.Policy(constraints=[PowerCap(123.0)])
    words = describe(policy)
    assert words["constraints"][0]["cap"] == 123.0
    assert "constraints" not in describe(fs.Policy()), "old journals do not know it"
    again = rebuild(words, known=parts(fs.Policy(constraints=[PowerCap(123.0)])))
    assert again.constraints == policy.constraints
    with pytest.raises(fs.UnknownIdError, match="PowerCap"):
        rebuild(words)


def test_an_export_names_the_constraint_and_the_reader_brings_it(tmp_path: Path) -> None:
    sched = world()
    submit(sched, "a", 20)
    step(sched, 0.0)
    sched.export(tmp_path / "state")
    with pytest.raises(fs.JournalError, match="PowerCap"):
        fs.Scheduler.import_state(tmp_path / "state")
    again = fs.Scheduler.import_state(tmp_path / "state", fs.Policy(constraints=[PowerCap()]))
    assert not step(again, 1.0).placements
    assert again.explain("a19").detail == {"8 cpu, 8 mem": {"rack power": 4}}


def test_a_snapshot_of_one_cap_is_not_read_with_another() -> None:
    snapshot = world().snapshot()
    with pytest.raises(fs.JournalMismatchError, match=r"constraints\[0\]\.cap was 400.0, and is 500.0 here"):
        fs.Scheduler.restore(snapshot, fs.Policy(constraints=[PowerCap(500.0)]))
    with pytest.raises(
        fs.JournalMismatchError, match=r"policy\.constraints was .*PowerCap.*, and is as by default here"
    ):
        fs.Scheduler.restore(snapshot, fs.Policy())


# -- what is refused --------------------------------------------------------------------------------------------------


class Odd:
    """A constraint with given answers."""

    name: Any = "odd"
    wakes: Any = (fs.TaskCompleted,)

    def __init__(self, room: Any = None, reach: Any = None) -> None:
        self.say, self.around = room, reach

    def room(self, cluster: fs.Cluster, classes: Any, rows: Any) -> Any:
        if self.say is None:
            return np.full((len(classes), len(rows)), 5)
        return self.say(classes, rows) if callable(self.say) else self.say

    def reach(self, cluster: fs.Cluster, row: int) -> Any:
        return np.array([row]) if self.around is None else self.around(row) if callable(self.around) else self.around


def full(value: Any) -> Any:
    return lambda classes, rows: np.full((len(classes), len(rows)), value)


def fail(*_: Any) -> Any:
    raise ZeroDivisionError("of the caller's own")


BAD_ROOM = {
    "shape": (np.zeros(3, np.int64), "shape"),
    "one number": (7, "shape"),
    "negative": (full(-1), "-1"),
    "float": (full(1.0), "float64"),
    "NaN": (full(np.nan), "float64"),
    "truth": (full(True), "bool"),
    "text": (full("x"), "values of type"),
    "nothing": (full(None), "object"),
    "ragged": (lambda classes, rows: [[1], [1, 2]], "different lengths"),
}
BAD_REACH = {
    "none": (lambda row: None, "None"), "float": (lambda row: np.array([0.0]), "rows of machines"),
    "unknown": (lambda row: np.array([99]), "99"), "negative": (lambda row: np.array([-1]), "-1"),
    "ragged": (lambda row: [[1], [1, 2]], "rows of machines"),
}  # fmt: skip


@pytest.mark.parametrize("case", [*(("room", name) for name in BAD_ROOM), *(("reach", name) for name in BAD_REACH)])
def test_what_cannot_be_is_refused_by_name_and_changes_nothing(case: tuple[str, str]) -> None:
    which, name = case
    says, words = (BAD_ROOM if which == "room" else BAD_REACH)[name]
    odd = Odd()
    sched = world(2, fs.Policy(constraints=[odd]))
    submit(sched, "a", 3)
    step(sched, 0.0)
    submit(sched, "b", 2)
    twin = sched.copy()
    before = world_of(sched)
    if which == "room":
        odd.say = says
    else:
        odd.around = says
    for ask in (lambda: sched.schedule(1.0), lambda: sched.explain("b0"), lambda: sched.what_if(now=1.0)):
        with pytest.raises(fs.InputError, match=f"constraint 'odd'.*{which} returned.*{words}"):
            ask()
    odd.say = odd.around = None
    assert [(*t[:3], *t[4:]) for t in world_of(sched)[1]] == [(*t[:3], *t[4:]) for t in before[1]]
    assert world_of(sched)[0] == before[0]
    assert said(sched.schedule(2.0))[1:7] == said(twin.schedule(2.0))[1:7]


@pytest.mark.parametrize("which", ["room", "reach"])
def test_an_exception_out_of_a_constraint_leaves_all_as_it_was(which: str, tmp_path: Path) -> None:
    odd = Odd()
    sched = world(2, fs.Policy(constraints=[odd]), journal=tmp_path / "journal")
    submit(sched, "a", 3, priority=2)
    step(sched, 0.0)
    submit(sched, "b", 20, cpu=4.0)
    calls = 0
    while True:  # at every call, the one for the victims of a preemption included
        calls += 1
        left = calls

        def later(*args: Any) -> Any:
            nonlocal left
            left -= 1
            if not left:
                fail()
            return np.array([args[0]]) if which == "reach" else full(3)(*args)

        setattr(odd, "say" if which == "room" else "around", later)
        before = world_of(sched)[:1]
        try:
            rnd = sched.schedule(float(calls))
            break
        except ZeroDivisionError:
            assert world_of(sched)[:1] == before
        sched.apply(fs.MachineUpdated("m0"))
    odd.say = odd.around = None
    assert calls > 2
    assert not sched.commit(rnd).conflicts and rnd.placements


def test_a_constraint_that_raises_at_a_commit_refuses_the_start() -> None:
    odd = Odd()
    sched = world(2, fs.Policy(constraints=[odd]))
    submit(sched, "a", 3)
    rnd = sched.schedule(0.0)
    odd.say = fail
    done = sched.commit(rnd)
    assert not done.accepted and len(done.conflicts) == 3
    assert "ZeroDivisionError" in str(next(iter(done.conflicts.values())).detail)
    odd.say = None
    assert len(step(sched, 1.0).placements) == 3


def test_one_that_contradicts_itself_does_not_hold_a_round_up() -> None:
    """It says at every other call that there is no room; and its reach is too small."""
    random = Random(1)
    sched = world(
        4, fs.Policy(constraints=[Odd(lambda classes, rows: np.full((len(classes), len(rows)), random.randrange(2)))])
    )
    submit(sched, "a", 30)
    for now in range(20):
        sched.commit(sched.schedule(float(now)))

    @dataclass(frozen=True)
    class Narrow(PowerCap):
        def reach(self, cluster: fs.Cluster, row: int) -> Any:
            return np.array([row])

        def room(self, cluster: fs.Cluster, classes: Any, rows: Any) -> Any:
            return np.array(
                [
                    [
                        max(4 - sum(len(cluster.by_row[r].tasks) for r in cluster.rack_rows(row)), 0)
                        for row in rows.tolist()
                    ]
                ]
                * len(classes)
            )

    sched = world(4, fs.Policy(constraints=[Narrow()]))
    submit(sched, "a", 30)
    for now in range(5):
        step(sched, float(now))
    assert len([t for t, r in sched.cluster.tasks.items() if r.place]) == 8


@pytest.mark.parametrize(
    ("constraints", "words"),
    [
        (5, "constraints must be a sequence"),
        ([5], r"constraints\[0\] must be an object with name"),
        ([PowerCap], r"constraints\[0\] must be an object with name"),
        ([PowerCap(), PowerCap(1.0)], r"constraints\[1\]: another constraint is named 'rack power'"),
        ([Odd(), type("A", (Odd,), {"name": ""})()], r"constraints\[1\]: name must be text"),
        ([type("A", (Odd,), {"name": 3})()], r"constraints\[0\]: name must be text"),
        ([type("A", (Odd,), {"wakes": ("TaskCompleted",)})()], "wakes must be kinds of events, got 'TaskCompleted'"),
        ([type("A", (Odd,), {"wakes": 3})()], "wakes must be a sequence"),
        ([type("A", (Odd,), {"room": 3})()], "room must be a method"),
    ],
)  # fmt: skip
def test_bad_constraints_are_refused_by_name(constraints: Any, words: str) -> None:
    with pytest.raises(fs.InputError, match=words):
        fs.Policy(constraints=constraints)


@pytest.mark.parametrize("name", ["cpu", "slots", "down", "rack", "affinity", "held for others"])
def test_a_name_that_means_something_else_already_is_refused(name: str) -> None:
    policy = fs.Policy(constraints=[type("Named", (Odd,), {"name": name})()])
    with pytest.raises(fs.InputError, match=f"constraint {name!r}: something else is counted under that name"):
        fs.Scheduler(policy, ("cpu",))
    sched = fs.Scheduler(resources=("cpu",))
    before = sched.policy
    with pytest.raises(fs.InputError, match="something else"):
        sched.policy = policy
    assert sched.policy is before


def test_too_many_constraints_are_refused() -> None:
    many = [type("Named", (Odd,), {"name": f"c{i}"})() for i in range(40)]
    with pytest.raises(fs.InputError, match="40 constraints are more than"):
        fs.Scheduler(fs.Policy(constraints=many))
    sched = world(2, fs.Policy(constraints=many[:20]))
    submit(sched, "a", 3)
    assert len(step(sched, 0.0).placements) == 3
    many[19].say = full(0)
    submit(sched, "b", 1)
    sched.policy = fs.Policy(constraints=many[:20])
    assert sched.schedule(1.0).waiting["b0"].detail == {"8 cpu, 8 mem": {"c19": 2}}


# -- what authors see ---------------------------------------------------------------------------------------------------


def test_views_are_in_the_units_of_the_caller() -> None:
    sched = world(3)
    sched.apply(fs.MachineUpdated("m1", labels={"kernel": "6.1"}), fs.MachineAdded("alone", {"cpu": 1}))
    submit(sched, "a", 1, cpu=1.5)
    sched.apply(fs.TaskStarted("a0", "m1"))
    cluster, rows = sched.cluster, np.array([0, 1, 3])
    assert cluster.labels(rows, "kernel").tolist() == [None, "6.1", None]
    assert cluster.capacity(rows).tolist() == [[8.0, 8.0], [8.0, 8.0], [1.0, 0.0]]
    assert cluster.used(rows).tolist() == [[0.0, 0.0], [1.5, 0.0], [0.0, 0.0]]
    assert cluster.demand(np.array([cluster.task("a0").group.cls.index])).tolist() == [[1.5, 0.0]]
    assert cluster.free("m1") == {"cpu": 6.5, "mem": 8.0}
    assert [cluster.rack_rows(row).tolist() for row in range(4)] == [[0, 1], [0, 1], [2], [3]]
    sched.apply(fs.MachineRemoved("m0"))
    assert cluster.rack_rows(1).tolist() == [1] and cluster.present(np.arange(4)).tolist() == [False, True, True, True]
    with pytest.raises(fs.UnknownMachineError):
        cluster.free("m0")


def test_constraints_also_limit_the_tasks_that_fgm_admits() -> None:
    """By stages more fits than the demands; the tasks draw amounts that are counted by their demands."""
    sched = fs.Scheduler(fs.Policy(constraints=[CAP]), resources=("cpu", "mem"))
    fine = fs.fgm.FineGrained(sched, estimator=fs.fgm.DemandEstimator(("cpu", "mem"), cold=1))
    fine.estimator.observe("work", [1, 1], seconds=60)
    fine.learn()
    fine.apply(*(fs.MachineAdded(f"m{i}", {"cpu": 8, "mem": 8}, rack=0) for i in range(2)))
    fine.apply(fs.JobSubmitted("j", [fs.Task(i, {"cpu": 2, "mem": 1}, kind="work") for i in range(9)]))
    rnd = fine.schedule(0.0)
    assert len(rnd.placements) == 2 and not fine.commit(rnd).conflicts
    assert fine.explain(8).detail == {"8 cpu, 8 mem": {"rack power": 2}}
    fine.policy = replace(fine.policy, constraints=())
    assert len(fine.schedule(1.0).placements) == 7
