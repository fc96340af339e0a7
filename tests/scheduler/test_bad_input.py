"""Errors of calls name the argument, and change nothing; NumPy's numbers are numbers."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import flowsched as fs
from flowsched.cluster.events import MachineSampled
from flowsched.fgm import FineGrained

NAN = float("nan")


def lived() -> fs.Scheduler:
    """A scheduler of every kind of thing: racks, GPUs, users, running and waiting tasks, a failed machine."""
    sched = fs.Scheduler(fs.Policy(fairness=fs.Fairness(over="user"), locality=fs.Locality()))
    sched.apply(
        fs.MachineAdded("m", {"cpu": 4, "mem": 8, "gpu": 2}, rack="r", labels={"gpu_model": "T4"}, slots=9),
        fs.MachineAdded("n", {"cpu": 4}),
        fs.MachineAdded("down", {"cpu": 1}),
        fs.UserAdded("u", 2.0),
        fs.JobSubmitted("j", [fs.Task("run", {"cpu": 1, "gpu": 0.5}), fs.Task("wait", {"cpu": 4, "mem": 8})], user="u"),
        fs.TaskStarted("run", "m"),
        fs.MachineFailed("down", time=1.0),
    )
    sched.commit(sched.schedule(1.0))
    assert sched.cluster.task_state("run") == "running" and sched.cluster.task_state("wait") == "waiting"
    return sched


UNHASHABLE: list[object] = [[], {"a": 1}, {1}]
NO_AMOUNTS: list[object] = [
    None,
    3,
    "abc",
    b"abc",
    {1},
    {"cpu": "1"},
    {"cpu": None},
    {"cpu": True},
    {"cpu": [1]},
    {"cpu": 1j},
]
NO_AMOUNTS += [{"cpu": NAN}, {"cpu": -1}, {"cpu": 10**30}, {"cpu": np.int64(2**62)}, {1: 1}, (1,), [1, 2, "3"]]
NO_COUNT: list[object] = ["1", 1.5, NAN, True, [1], -(2**70), 1j]
NO_TIME: list[object] = ["soon", NAN, float("inf"), True, [1], 1j]

WRONG = [
    *((fs.MachineAdded(id, {}), "machine: id") for id in [*UNHASHABLE, NAN]),
    *((fs.MachineAdded("x", {}, rack=rack), "'x': rack") for rack in [*UNHASHABLE, NAN]),
    *((fs.MachineAdded("x", amounts), "'x': capacity") for amounts in NO_AMOUNTS),
    *((fs.MachineAdded("x", {}, slots=slots), "'x': slots") for slots in [*NO_COUNT, -1, 2**40 + 1]),
    *((fs.MachineAdded("x", {}, labels=labels), "'x': labels") for labels in [None, 3, "ab", [("a", "b")], {1: "a"}, {"a": 1}]),
    *((fs.MachineUpdated("n", amounts), "'n': capacity") for amounts in NO_AMOUNTS[1:]),
    *((fs.MachineUpdated("n", rack=rack), "'n': rack") for rack in UNHASHABLE),
    *((fs.MachineUpdated("n", slots=slots), "'n': slots") for slots in [*NO_COUNT, -1, 2**70]),
    *((fs.MachineUpdated("n", labels=labels), "'n': labels") for labels in [3, {"a": []}]),
    *((fs.JobSubmitted(id, [fs.Task("x")]), "job: id") for id in UNHASHABLE),
    *((fs.JobSubmitted("x", [fs.Task("x")], user=user), "'x': user") for user in UNHASHABLE),
    *((fs.JobSubmitted("x", [fs.Task("x")], priority=p), "'x': priority") for p in [*NO_COUNT, None, 2**41]),
    *((fs.JobSubmitted("x", [fs.Task("x")], gang=gang), "'x': gang") for gang in [*NO_COUNT, 0]),
    *((fs.JobSubmitted("x", [fs.Task("x")], deadline=d), "'x': deadline") for d in ["soon", NAN, [1]]),
    *((fs.JobSubmitted("x", tasks), "'x': tasks") for tasks in [None, 3, "ab", {"a": 1}, [None], [fs.Task("x"), "y"]]),
    *((fs.TaskSubmitted("j", task), r"tasks\[0\]") for task in [None, "x", ["x"]]),
    *((fs.TaskSubmitted("j", fs.Task("x", amounts)), "'x': demand") for amounts in ({"cpu": NAN}, [1], {"disk": 1})),
    *((fs.TaskStarted("wait", "n", devices), "'wait'.* devices") for devices in [3, "0", [-1], [0.5], [None], {0}]),
    *((fs.TaskFailed("run", retry), "'run': retry") for retry in (None, 0, "no")),
    *((fs.UserAdded(id), "user: id") for id in UNHASHABLE),
    *((event("u", quota), "'u': quota") for event in (fs.UserAdded, fs.UserUpdated) for quota in ["1", None, NAN, -1, 1j]),
    *((fs.UsageSampled("run", amounts), "'run': usage") for amounts in NO_AMOUNTS),
    *((fs.UsageSampled("run", {}, progress=p), "'run': progress") for p in ("half", -1, 1.5, NAN, True, [1])),
    *((MachineSampled("m", amounts), "'m': usage") for amounts in NO_AMOUNTS),
    *((fs.JobSubmitted("x", [fs.Task("x")], time=time), "JobSubmitted: time") for time in NO_TIME),
    *((fs.MachineFailed("m", time=time), "MachineFailed: time") for time in NO_TIME),
    *((fs.TaskCompleted("run", time=time), "TaskCompleted: time") for time in NO_TIME),
]  # fmt: skip

UNKNOWN = [
    event
    for id in UNHASHABLE
    for event in (
        fs.MachineUpdated(id), fs.MachineDrained(id), fs.MachineFailed(id), fs.MachineRemoved(id), MachineSampled(id, {}),
        fs.TaskSubmitted(id, fs.Task("x")), fs.TaskStarted(id, "m"), fs.TaskStarted("wait", id), fs.TaskCompleted(id),
        fs.TaskFailed(id), fs.TaskRemoved(id), fs.JobRemoved(id), fs.UserUpdated(id, 1), fs.UserRemoved(id),
        fs.UsageSampled(id, {}),
    )
]  # fmt: skip


@pytest.mark.parametrize(("event", "words"), [*WRONG, *((event, "unknown") for event in UNKNOWN)], ids=repr)
def test_what_is_wrong_is_named_and_nothing_has_happened(event: fs.Event, words: str) -> None:
    sched = lived()
    before = sched.snapshot()
    with pytest.raises(fs.UnknownIdError if words == "unknown" else fs.InputError, match=words):
        sched.apply(event)
    assert sched.snapshot() == before


def test_the_scheduler_goes_on_after_all_of_that() -> None:
    sched, other = lived(), lived()
    for event, _ in WRONG:
        with pytest.raises(fs.InputError):
            sched.apply(event)
    for one in (sched, other):
        one.apply(fs.TaskCompleted("run"), fs.MachineAdded("down", {"cpu": 9, "mem": 9}))
        one.commit(one.schedule(2.0))
    assert sched.snapshot() == other.snapshot() and sched.cluster.placement("wait") is not None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        *(({"id": id}, "task: id") for id in UNHASHABLE),
        *(({"demand": demand}, "'x': demand") for demand in (None, 3, "abc", {1})),
        *(({"kind": kind}, "'x': kind") for kind in UNHASHABLE),
        *(({"avoids": kinds}, "'x': avoids") for kinds in ("ab", 3, None, [[1]], {"a": 1}, {"a"})),
        *(({"data": data}, "'x': data") for data in (3, "ab", None, ["m"], [("m",)], [(["m"], 1)], {"m": "1"}, {"m": NAN})),
        *(({"data": {"m": amount}}, r"data\['m'\]") for amount in (-1, float("inf"), True, None)),
        *(({"constraints": labels}, "'x': constraints") for labels in (None, 3, "ab", {"a": "b"}, {"a": 3}, {"a": [3]}, {1: ["a"]})),
        *(({"prefers": labels}, "'x': prefers") for labels in (None, [("a", ["b"])], {"a": b"b"})),
        *(({"apart": most}, "'x': apart") for most in (0, 1.5, True, "1")),
        *(({"apart_in_rack": most}, "'x': apart_in_rack") for most in (0, -1, [1])),
    ],
)  # fmt: skip
def test_the_error_of_a_task_names_the_fault(arguments: dict, words: str) -> None:
    with pytest.raises(fs.InputError, match=words):
        fs.Task(**{"id": "x", **arguments})


def test_questions_about_invalid_ids_are_answered_like_those_about_unknown_ones() -> None:
    sched = lived()
    with pytest.raises(fs.UnknownTaskError, match=r"\['x'\]"):
        sched.explain(["x"])
    with pytest.raises(fs.UnknownMachineError, match=r"\['x'\]"):
        sched.explain("run", ["x"])
    for look in (sched.cluster.placement, sched.cluster.task_state, sched.cluster.fits):
        with pytest.raises(fs.UnknownTaskError):
            look({})


def test_numbers_of_numpy_are_numbers() -> None:
    sched = fs.Scheduler(resources=("mem", "gpu"))
    sched.apply(
        fs.MachineAdded(np.int64(0), {"mem": np.int32(262_144), "gpu": np.int8(4)}, slots=np.int64(3), time=np.int64(0)),
        fs.UserAdded("u", np.float32(2)),
        fs.JobSubmitted(
            np.int64(7),
            [fs.Task(i, {"mem": np.uint16(65_000), "gpu": np.float32(0.5)}, apart=np.int64(2), data={0: np.float64(1)}) for i in np.arange(4)],
            user="u", priority=np.int64(3), gang=np.uint8(1), deadline=np.float32(9), time=np.float64(0.5),
        ),
    )  # fmt: skip
    inventory = sched.cluster.inventory
    assert inventory.capacity[0].tolist() == [262_144 * 10**6, 4 * 10**6]
    assert inventory.demand[sched.cluster.task(0).group.cls.index].tolist() == [65_000 * 10**6, 500_000]
    rnd = sched.schedule(np.int64(1))
    assert len(rnd.placements) == 2  # apart
    sched.commit(rnd)
    again = fs.Scheduler.restore(sched.snapshot())
    assert again.cluster.placement(0) == 0 and again.snapshot() == fs.Scheduler.restore(again.snapshot()).snapshot()
    for now in (np.float32(2.5), np.float64(3)):
        assert not sched.schedule(now).deltas


def test_exact_numbers_of_other_kinds_are_numbers() -> None:
    resources = fs.Resources(("cpu",))
    assert resources.demand("d", {"cpu": Decimal("0.1")}).tolist() == [100_000]
    # Both are rounded down, so that three thirds fill a machine.
    assert resources.demand("d", {"cpu": Fraction(1, 3)}).tolist() == [333_333]
    assert resources.capacity("c", {"cpu": Fraction(1, 3)}).tolist() == [333_333]


def test_tasks_may_come_from_a_generator() -> None:
    sched = lived()
    sched.apply(fs.JobSubmitted("many", (fs.Task(("many", i), (c for c in (1, 0, 0))) for i in range(3))))
    assert [task for task in sched.cluster.tasks if task[0] == "many"] == [("many", i) for i in range(3)]


def ledger() -> fs.sharing.Ledger:
    ledger = fs.sharing.Ledger("abc")
    ledger.borrow("a", "b", 4)
    return ledger


def deployment() -> fs.sharing.Deployment:
    deployment = fs.sharing.Deployment({"a": 5, "b": 3})
    deployment.deal(5, {"a": 1, "b": 9})
    return deployment


SHARING = [
    *((ledger, lambda book, gain=gain: book.balance(gain), "gain") for gain in (None, [1, -1], [1.0, -1.0, 0.0], [1, 0, 0], "ab")),
    *((ledger, lambda book, bad=bad: book.settle(bad, np.ones(3, np.int64)), "received") for bad in (None, [1], [0.5, 1, 1])),
    *((ledger, lambda book, bad=bad: book.reclaim("b", 1, bad), "idle") for bad in (None, 3, [1], {"a": 1.5}, {"a": -1})),
    *((ledger, lambda book, bad=bad: book.leave("c", bad), "quotas") for bad in (None, [1], {"a": 0.5})),
    *((ledger, lambda book, user=user: book.join(user), "user") for user in ([], {}, "a")),
    *((deployment, lambda d, bad=bad: d.deal(5, bad), "wanted") for bad in (None, 3, "ab", [1], [1, 2.5], [1, -1], {"a": 2.5}, {"a": [1]})),
    *((deployment, lambda d, bad=bad: d.deal_sizes(5, bad), "queues") for bad in (None, 3, {"a": [2.5]}, {"a": [0]}, {"a": 3}, {"a": "1"})),
    *((deployment, lambda d, bad=bad: d.deal(bad, [1, 1]), "free") for bad in (None, -1, 1.5, True, 2**61)),
    *((deployment, lambda d, bad=bad: d.book(bad), "units") for bad in (None, [1], [1, -1], [0.5, 1])),
    *((deployment, lambda d, user=user: d.finished(user, 1, 1), "unknown user|users must be hashable") for user in ("z", [], None)),
    *((deployment, lambda d, user=user: d.update(user, 1), "unknown user|users must be hashable") for user in ("z", [], {})),
    *((deployment, lambda d, user=user: d.leave(user), "unknown user|users must be hashable") for user in ("z", [], {})),
    (deployment, lambda d: d.join([], 1), "user must be hashable"),
    (deployment, lambda d: d.join("z", 1.5), "quota"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "call", "words"), SHARING)
def test_a_refused_heartbeat_leaves_sequence_and_ledger_as_they_were(make: Any, call: Any, words: str) -> None:
    one, other = make(), make()
    with pytest.raises((fs.InputError, fs.UnknownIdError, fs.DuplicateIdError), match=words):
        call(one)
    if isinstance(one, fs.sharing.Deployment):
        assert one.deal(7, [9, 9]).units.tolist() == other.deal(7, [9, 9]).units.tolist()
        one, other = one.ledger, other.ledger
    assert (one.users, one.debts()) == (other.users, other.debts())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        *((lambda bad=bad: fs.sharing.sequence(bad), "quotas") for bad in (None, 5, "ab", {"a": 1}, [1.5], [-1], [True])),
        *((lambda bad=bad: fs.sharing.Deployment(bad), "quotas") for bad in (None, [5, 3], {"a": "1"})),
        *((lambda bad=bad: fs.sharing.Deployment({"a": 1}, mu=bad), "mu") for bad in ("1", None, 0, NAN)),
        *((lambda bad=bad: fs.Resources(bad), "resources") for bad in (None, "cpu", 3, {"cpu"}, [1], ["a", "a"])),
        *((lambda bad=bad: fs.Scheduler(resources=bad), "resources") for bad in (None, "cpu")),
        *((lambda bad=bad: fs.Scheduler(bad), "policy") for bad in ("pack", ("cpu",), 3, fs.Policy)),
        *((lambda bad=bad: fs.Scheduler(seed=bad), "seed") for bad in (None, -1, 1.5, "1")),
        *((lambda bad=bad: fs.Scheduler.restore(bad), "source") for bad in (None, 3, bytearray(b"x"))),
        *((lambda bad=bad: fs.Journal(bad), "path") for bad in (None, 3, b"x")),
        *((lambda bad=bad: fs.Journal("x", policies=bad), "policies") for bad in (None, "x", ["pack"])),
        *((lambda bad=bad: fs.Policy().fitted(bad), "cluster") for bad in (None, lived())),
        *((lambda bad=bad: fs.StaticQuotas(bad), "tasks") for bad in (None, 3, [1])),
        *((lambda bad=bad: fs.Fairness(limits=bad), "limits") for bad in (None, [fs.Limits()])),
        *((lambda bad=bad: fs.Fairness(weights=bad), "weights") for bad in (None, [1])),
        *((lambda bad=bad: fs.Fairness(reclaim=bad), "reclaim") for bad in (None, "no", 1)),
        *((lambda bad=bad: fs.Limits(guarantee=bad), "guarantee") for bad in (None, -1, 1.5)),
        *((lambda bad=bad: fs.Limits(lend=bad), "lend") for bad in (None, "no")),
        *((lambda bad=bad: fs.SequenceShare(bad), "mu") for bad in ("1", None, 2)),
        *((lambda bad=bad: fs.FragmentationCost(bad), "workload") for bad in (None, 3, [], [fs.Task("x")], [(1, 2)])),
        *((lambda bad=bad: fs.FragmentationCost.of(bad), "tasks") for bad in (None, [1], fs.Task("x"))),
        *((lambda bad=bad: fs.read_dimacs(bad), "path_or_file") for bad in (None, 1.5, [])),
        *((lambda bad=bad: fs.write_dimacs(bad, "x"), "problem") for bad in (None, {})),
    ],
)  # fmt: skip
def test_what_is_made_of_nonsense_is_refused_by_name(call: Any, words: str) -> None:
    with pytest.raises(fs.InputError, match=words):
        call()


@pytest.mark.parametrize("only", ["run", 3, [["wait"]], b"x"])
def test_a_commit_of_some_takes_ids_and_no_text(only: Any) -> None:
    sched = lived()
    sched.apply(fs.TaskCompleted("run"))
    rnd = sched.schedule(2.0)
    before = sched.snapshot()
    with pytest.raises(fs.InputError, match="only"):
        sched.commit(rnd, only=only)
    assert sched.snapshot() == before and len(sched.commit(rnd, only={"wait"}).accepted) == 1


def test_what_is_measured_may_be_any_part_of_several_devices() -> None:
    sched = lived()
    sched.apply(fs.UsageSampled("run", {"gpu": 1.37}), MachineSampled("m", {"cpu": 2.5, "gpu": 1.37}))
    assert sched.cluster.resources.usage("u", {"gpu": 1.37}).tolist() == [0, 0, 1_370_000]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda s: fs.Scheduler("pack"), r"policy: a Policy expected, got 'pack'; Policy\.named\('pack'\) returns one"),
        (lambda s: setattr(s, "policy", "pack"), r"Policy\.named\('pack'\)"),
        (lambda s: s.apply([fs.MachineAdded("m", {"cpu": 1})]), r"apply takes events as arguments: apply\(\*events\)"),
        (lambda s: s.apply(fs.MachineAdded("m", {"cpus": 1})), "the resources are cpu, mem, gpu; did you mean 'cpu'?"),
        (lambda s: s.apply(fs.MachineAdded("m", {}, labels={"gen": 3})), r"labels\['gen'\]: names and values of labels are text, got 3"),
        (lambda s: fs.Policy.named("pck"), "did you mean 'pack'?"),
    ],
)  # fmt: skip
def test_an_error_shows_the_correct_form(call: Any, words: str) -> None:
    with pytest.raises(fs.InputError, match=words):
        call(fs.Scheduler())


def test_errors_of_python_name_the_call_alone() -> None:
    for sched in (fs.Scheduler(), FineGrained(fs.Scheduler())):
        with pytest.raises(TypeError, match=r"^schedule\(\) missing 1 required positional argument: 'now'"):
            sched.schedule()  # type: ignore[call-arg]
