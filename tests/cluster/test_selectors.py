"""Requirements on labels, and taints: what they mean, that they survive everything, and that bad ones are refused by name."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from effort import effort

import flowsched as fs
from flowsched.cluster.events import from_dict, to_dict
from flowsched.cluster.selectors import meets, wanted_labels

VALUES = [None, "", "a", "b", "5", "6.5", "-3", "x5", "nan", "inf", "1e3", "9007199254740993"]

MEANING = {
    "In": (fs.In("a", "b"), {"a", "b"}),
    "In, as values": (("b", "a"), {"a", "b"}),
    "NotIn": (fs.NotIn("a", "5"), {None, "", "b", "6.5", "-3", "x5", "nan", "inf", "1e3", "9007199254740993"}),
    "Exists": (fs.Exists(), set(VALUES) - {None}),
    "DoesNotExist": (fs.DoesNotExist(), {None}),
    "Gt": (fs.Gt(5), {"6.5", "1e3", "9007199254740993"}),
    "Gt, exactly": (fs.Gt(9007199254740992), {"9007199254740993"}),
    "Lt": (fs.Lt(6.5), {"5", "-3"}),
    "both": (fs.Gt(-4) + fs.Lt(6), {"5", "-3"}),
    "three": (fs.Exists() + fs.NotIn("a") + fs.Lt(6), {"5", "-3"}),
    "nothing": ((), set()),
}


@pytest.mark.parametrize("name", MEANING)
def test_what_a_requirement_means(name: str) -> None:
    wanted, met = MEANING[name]
    canonical = wanted_labels("test", {"label": wanted})["label"]
    assert {value for value in VALUES if meets(value, canonical)} == met


def test_equal_wishes_are_one_class() -> None:
    same = [
        [("a", "b"), ["b", "a", "b"], fs.In("b", "a"), {"a", "b"}, (("In", "a", "b"),), [["In", "b", "a"]]],
        [fs.NotIn("a", "b"), fs.NotIn("b", "a", "b"), [["NotIn", "b", "a"]], fs.NotIn("a", "b") + fs.NotIn("b", "a")],
        [fs.Gt(1) + fs.Lt(2), fs.Lt(2) + fs.Gt(1), [["Lt", 2], ["Gt", 1.0]]],
    ]
    sched = fs.Scheduler(resources=("cpu",))
    for i, wishes in enumerate(same):
        for j, wanted in enumerate(wishes):
            sched.apply(fs.JobSubmitted((i, j), [fs.Task((i, j), {"cpu": 1}, {"label": wanted})]))
    assert len(sched.cluster.by_class) == len(same)
    assert len({cls.rank for cls in sched.cluster.by_class.values()}) == len(same)
    sorted(sched.cluster.by_class.values(), key=lambda cls: cls.rank)


LABELS = [{}, {"zone": "a"}, {"zone": "b", "kernel": "6"}, {"kernel": "5"}]
WANTED: list[dict[str, Any]] = [
    {}, {"zone": ("a",)}, {"zone": fs.NotIn("a")}, {"zone": fs.Exists()}, {"zone": fs.DoesNotExist()},
    {"kernel": fs.Gt(5)}, {"kernel": fs.Lt(6)}, {"zone": fs.NotIn("a"), "kernel": fs.Gt(5) + fs.Lt(7)},
]  # fmt: skip


def test_tasks_start_where_their_requirements_are_met_and_reasons_name_the_label() -> None:
    for wanted in WANTED:
        sched = fs.Scheduler(resources=("cpu",))
        sched.apply(*(fs.MachineAdded(f"m{i}", {"cpu": 1}, labels=labels) for i, labels in enumerate(LABELS)))
        sched.apply(fs.JobSubmitted("j", [fs.Task(i, {"cpu": 1}, wanted) for i in range(5)]))
        rnd = sched.schedule(0.0)
        fits = {
            f"m{i}" for i, labels in enumerate(LABELS)
            if all(meets(labels.get(label), wish) for label, wish in wanted_labels("", wanted).items())
        }  # fmt: skip
        assert set(rnd.placements.values()) == fits
        for i in range(len(LABELS)):
            expected = {
                f"constraint {label}"
                for label, wish in wanted_labels("", wanted).items()
                if not meets(LABELS[i].get(label), wish)
            }
            said = {name for names in sched.explain(4, f"m{i}").detail.values() for name in names}
            assert said - {"cpu"} == expected


def test_preferences_take_requirements() -> None:
    sched = fs.Scheduler(fs.Policy(placement=[fs.PreferenceCost()]), resources=("cpu",))
    sched.apply(*(fs.MachineAdded(f"m{i}", {"cpu": 1}, labels=labels) for i, labels in enumerate(LABELS)))
    sched.apply(fs.JobSubmitted("j", [fs.Task(0, {"cpu": 1}, prefers={"kernel": fs.Gt(5)})]))
    assert dict(sched.schedule(0.0).placements) == {0: "m2"}


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("a", "sequence of label values or requirements, got 'a'"),
        (5, "sequence of label values or requirements, got 5"),
        ({"a": 1}, "sequence of label values or requirements"),
        (("a", 5), "sequence of label values or requirements, got 'a' in it"),
        ((5,), "sequence of label values or requirements, got 5 in it"),
        (("a", ("NotIn", "b")), "sequence of label values or requirements, got 'a' in it"),
        ([["Above", 5]], "an operator of In, NotIn, Exists, DoesNotExist, Gt, Lt expected, got 'Above'"),
        ([[5]], "an operator of"),
        ([[]], "sequence of label values or requirements, got"),
        (fs.Gt("5"), "Gt must be a finite number"),  # type: ignore[arg-type]
        (fs.Lt(float("nan")), "Lt must be a finite number"),
        (fs.Gt(True) + (("Gt",),), "Gt"),
        ([["Gt", 1, 2]], "Gt takes one number"),
        (fs.NotIn(), "NotIn takes values, got none"),
        (fs.NotIn(5), "NotIn takes label values, got 5"),  # type: ignore[arg-type]
        ([["Exists", "a"]], "Exists takes no values"),
    ],
)  # fmt: skip
def test_bad_requirements_are_refused_by_name(wanted: Any, words: str) -> None:
    for field in ("constraints", "prefers"):
        with pytest.raises(fs.InputError, match=rf"task 't': {field}\['zone'\].*{words}"):
            fs.Task("t", {}, **{field: {"zone": wanted}})


# -- taints -----------------------------------------------------------------------------------------------------------


def world(policy: fs.Policy | None = None) -> fs.Scheduler:
    sched = fs.Scheduler(policy, resources=("cpu",))
    sched.apply(
        fs.MachineAdded("plain", {"cpu": 2}),
        fs.MachineAdded("ml", {"cpu": 2}, taints=[fs.Taint("dedicated", "ml")]),
        fs.MachineAdded("spot", {"cpu": 2}, taints=[fs.Taint("spot", effect="PreferNoSchedule"), fs.Taint("old")]),
    )
    return sched


TOLERATED = [
    ((), {"plain"}),
    ([fs.Toleration("dedicated", "ml")], {"plain", "ml"}),
    ([fs.Toleration("dedicated")], {"plain", "ml"}),
    ([fs.Toleration("dedicated", "other")], {"plain"}),
    ([fs.Toleration("dedicated", "ml", "PreferNoSchedule")], {"plain"}),
    ([fs.Toleration("old", "")], {"plain", "spot"}),
    ([fs.Toleration()], {"plain", "ml", "spot"}),
    ([fs.Toleration(effect="NoSchedule")], {"plain", "ml", "spot"}),
]  # fmt: skip


@pytest.mark.parametrize(("tolerations", "machines"), TOLERATED)
def test_taints_keep_off_tasks_without_toleration(tolerations: Any, machines: set[str]) -> None:
    sched = world()
    sched.apply(fs.JobSubmitted("j", [fs.Task(i, {"cpu": 1}, tolerations=tolerations) for i in range(7)]))
    rnd = sched.schedule(0.0)
    assert set(rnd.placements.values()) == machines and len(rnd.placements) == 2 * len(machines)
    keys = {"ml": "dedicated", "spot": "old"}
    for machine, key in keys.items():
        names = {name for names in sched.explain(6, machine).detail.values() for name in names}
        assert (f"taint {key}" in names) == (machine not in machines)


@pytest.mark.parametrize(
    ("tolerations", "starts"),
    [
        ((), False),
        ([fs.Toleration("a", effect="NoSchedule")], False),
        ([fs.Toleration("a", effect="NoExecute")], True),
        ([fs.Toleration("a")], True),
    ],
)
def test_a_taint_of_the_effect_no_execute_keeps_off_as_no_schedule_does(tolerations: Any, starts: bool) -> None:
    sched = fs.Scheduler(resources=("cpu",))
    sched.apply(fs.MachineAdded("m", {"cpu": 1}, taints=[fs.Taint("a", effect="NoExecute")]))
    sched.apply(fs.JobSubmitted("j", [fs.Task("t", {"cpu": 1}, tolerations=tolerations)]))
    assert bool(sched.schedule(0.0).placements) == starts


def test_a_taint_may_come_and_go_and_running_tasks_go_on() -> None:
    sched = world()
    sched.apply(fs.JobSubmitted("j", [fs.Task(i, {"cpu": 1}) for i in range(3)]))
    sched.commit(sched.schedule(0.0))
    sched.apply(fs.MachineUpdated("plain", taints=[fs.Taint("full")]))
    rnd = sched.schedule(1.0)
    assert not rnd.placements and not rnd.preemptions
    (reason,) = rnd.waiting.values()
    assert reason.code is fs.ReasonCode.FILTERED and "MachineUpdated" in reason.unblocked_by
    assert {name for names in reason.detail.values() for name in names} == {
        "taint full",
        "taint dedicated",
        "taint old",
        "cpu",
    }
    sched.apply(fs.MachineUpdated("ml", slots=9))
    assert sched.cluster.machines["ml"].machine.taints == (("dedicated", "ml", "NoSchedule"),)
    sched.apply(fs.MachineUpdated("ml", taints=()))
    assert set(sched.schedule(2.0).placements.values()) == {"ml"}


def test_soft_taints_cost() -> None:
    sched = fs.Scheduler(fs.Policy(placement=[fs.TaintCost()]), resources=("cpu",))
    soft = [fs.Taint(key, effect="PreferNoSchedule") for key in "abc"]
    sched.apply(*(fs.MachineAdded(i, {"cpu": 1}, taints=soft[: 3 - i]) for i in range(4)))
    for i, expected in enumerate([3, 2, 1, 0]):
        sched.apply(fs.JobSubmitted(i, [fs.Task(i, {"cpu": 1})]))
        rnd = sched.schedule(float(i))
        sched.commit(rnd)
        assert dict(rnd.placements) == {i: expected}
    sched.apply(fs.TaskCompleted(0), fs.TaskCompleted(3))
    sched.apply(fs.JobSubmitted("t", [fs.Task("t", {"cpu": 1}, tolerations=[fs.Toleration()])]))
    costs = sched.policy.place(
        sched.cluster,
        *(np.array(at) for at in ([sched.cluster.task("t").group.cls.index], [0, 1, 2, 3])),
    )
    assert costs.tolist() == [[0, 0, 0, 0]]


@pytest.mark.parametrize(
    ("taints", "words"),
    [
        ("a", "taints must be a sequence"),
        (["a"], r"taints\[0\]: key, value and effect expected"),
        ([("a", "b")], r"taints\[0\]: key, value and effect expected"),
        ([fs.Taint("")], r"taints\[0\]: key and value must be text"),
        ([fs.Taint("a", 5)], r"taints\[0\]: key and value must be text"),  # type: ignore[arg-type]
        ([fs.Taint("a", effect="Never")], r"taints\[0\]: an effect of NoSchedule, PreferNoSchedule, NoExecute expected, got 'Never'"),
        ([fs.Taint("a"), fs.Taint("a", "b")], r"taints\[1\]: another taint has the key 'a'"),
    ],
)  # fmt: skip
def test_bad_taints_are_refused_by_name(taints: Any, words: str) -> None:
    sched = fs.Scheduler(resources=("cpu",))
    with pytest.raises(fs.InputError, match=f"machine 'm': {words}"):
        sched.apply(fs.MachineAdded("m", {"cpu": 1}, taints=taints))
    sched.apply(fs.MachineAdded("m", {"cpu": 1}))
    with pytest.raises(fs.InputError, match=f"machine 'm': {words}"):
        sched.apply(fs.MachineUpdated("m", taints=taints))
    assert sched.cluster.machines["m"].machine.taints == ()


@pytest.mark.parametrize(
    ("tolerations", "words"),
    [
        (5, " must be a sequence"), ([5], "key, value and effect expected"),
        ([fs.Toleration(value="a")], "a value without a key"), ([fs.Toleration(5)], "must be text or None"),  # type: ignore[arg-type]
        ([fs.Toleration("a", effect="Never")], "an effect of NoSchedule, PreferNoSchedule, NoExecute or None expected"),
    ],
)  # fmt: skip
def test_bad_tolerations_are_refused_by_name(tolerations: Any, words: str) -> None:
    with pytest.raises(fs.InputError, match=rf"task 't': tolerations.*{words}"):
        fs.Task("t", {}, tolerations=tolerations)


# -- what survives ----------------------------------------------------------------------------------------------------


def life(seed: int, sched: fs.Scheduler) -> None:
    """Machines with labels and taints, tasks that want and tolerate some, and rounds."""
    random = Random(seed)
    taints = [(), [fs.Taint("a")], [fs.Taint("b", "v", "PreferNoSchedule"), fs.Taint("a", "w")]]
    tolerations: list[Any] = [
        (),
        [fs.Toleration("a")],
        [fs.Toleration("b", "v"), fs.Toleration("a", "w", "NoSchedule")],
    ]
    for i in range(12):
        match random.randrange(4):
            case 0:
                sched.apply(
                    fs.MachineAdded(("m", i), {"cpu": 3}, labels=random.choice(LABELS), taints=random.choice(taints))
                )
            case 1 if sched.cluster.machines:
                sched.apply(
                    fs.MachineUpdated(random.choice(list(sched.cluster.machines)), taints=random.choice(taints))
                )
            case _:
                wishes = {"constraints": random.choice(WANTED), "prefers": random.choice(WANTED)}
                tasks = [
                    fs.Task((i, k), {"cpu": 1}, tolerations=random.choice(tolerations), **wishes) for k in range(3)
                ]
                sched.apply(fs.JobSubmitted(("j", i), tasks, priority=random.randrange(2)))
        sched.commit(sched.schedule(float(i)))


@pytest.mark.parametrize("seed", range(effort(3, 10)))
def test_they_survive_journals_snapshots_exports_and_copies(seed: int, tmp_path: Path) -> None:
    path, policy = tmp_path / "journal", fs.Policy(placement=[fs.TaintCost(), fs.PreferenceCost(), fs.LoadCost()])
    sched = fs.Scheduler(policy, resources=("cpu",), journal=path)
    life(seed, sched)
    sched.export(tmp_path / "state")
    others = [
        fs.Scheduler.restore(path), fs.Scheduler.restore(sched.snapshot()), fs.Scheduler.import_state(tmp_path / "state"), sched.copy(),
    ]  # fmt: skip
    for other in others:
        assert [r.machine for r in other.cluster.machines.values()] == [
            r.machine for r in sched.cluster.machines.values()
        ]
        keys = [{cls.key for cls in one.cluster.by_class.values() if cls.tasks} for one in (sched, other)]
        assert keys[0] == keys[1]
        for task in list(sched.cluster.tasks)[:5]:
            assert other.cluster.task(task).group.cls.key == sched.cluster.task(task).group.cls.key
    for one in (sched, *others):
        one.apply(fs.MachineAdded("new", {"cpu": 50}, labels={"zone": "b", "kernel": "6"}))
        assert set(one.schedule(99.0).placements) == set(sched.schedule(99.0).placements)


def test_events_come_back_from_json() -> None:
    wanted = {"zone": fs.NotIn("a") + fs.Exists(), "kernel": fs.Gt(5.5), "gpu_model": ("T4",)}
    task = fs.Task(
        "t", {"cpu": 1}, wanted, prefers={"kernel": fs.Lt(7)}, tolerations=[fs.Toleration("a"), fs.Toleration()]
    )
    events = [
        fs.JobSubmitted("j", (task,)), fs.TaskSubmitted("j", task), fs.MachineAdded("m", {"cpu": 1}, taints=(fs.Taint("a", "b"),)),
        fs.MachineUpdated("m", taints=()), fs.MachineUpdated("m"),
    ]  # fmt: skip
    for event in events:
        assert from_dict(json.loads(json.dumps(to_dict(event)))) == event
    assert from_dict({"kind": "MachineAdded", "id": "m", "capacity": {"cpu": 1}}).taints == ()


def test_a_workload_of_tasks_that_tolerate_counts_machines_with_taints() -> None:
    kinds = [
        fs.Task(0, {"gpu": 1}),
        fs.Task(1, {"gpu": 1}, tolerations=[fs.Toleration("a")]),
        fs.Task(2, {"gpu": 1}, {"zone": fs.Exists()}),
    ]
    cost = fs.FragmentationCost.of(kinds)
    assert len(cost.workload) == 3
    cluster = fs.Cluster(("cpu", "gpu"))
    cluster.apply(fs.MachineAdded(0, {"gpu": 1}), fs.MachineAdded(1, {"gpu": 1}, taints=[fs.Taint("a")]))
    waste = cost.waste(cluster, np.arange(2))
    assert waste.tolist() == pytest.approx([1 / 3, 2 / 3])
    assert pickle.loads(pickle.dumps(cost)).workload == cost.workload
