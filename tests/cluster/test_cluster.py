"""The cluster: effects of events, refused events, and room on machines."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowsched.cluster import MICRO, Cluster, Resources, Task
from flowsched.cluster.events import (
    Event,
    JobRemoved,
    JobSubmitted,
    MachineAdded,
    MachineDrained,
    MachineFailed,
    MachineRemoved,
    MachineUpdated,
    TaskCompleted,
    TaskFailed,
    TaskRemoved,
    TaskStarted,
    TaskSubmitted,
    UsageSampled,
    UserAdded,
    UserRemoved,
    UserUpdated,
)
from flowsched.cluster.limits import DOWN, LABEL, RESOURCE, SLOTS
from flowsched.cluster.model import UNLIMITED
from flowsched.cluster.records import Transaction
from flowsched.exceptions import (
    DuplicateIdError,
    FlowschedError,
    InputError,
    UnknownIdError,
    UnknownMachineError,
    UnknownTaskError,
)


def small() -> Cluster:
    """Two machines, one job of three tasks, the first of which runs."""
    cluster = Cluster()
    cluster.apply(
        MachineAdded("a", {"cpu": 8, "mem": 16, "gpu": 2}, rack="r", labels={"gpu_model": "T4"}),
        MachineAdded("b", {"cpu": 4}, slots=1),
        UserAdded("u", 2.0),
        JobSubmitted("j", [Task(f"t{i}", {"cpu": 2, "gpu": 0.5}) for i in range(3)], user="u", time=0.0),
        TaskStarted("t0", "a"),
    )
    return cluster


def state(cluster: Cluster) -> tuple[object, ...]:
    """All of a cluster that an event may change, as values."""
    inventory = cluster.inventory
    rows = [cluster.machine(m).row for m in cluster.machine_ids()]
    return (
        [(m, cluster.machine(m).machine, cluster.machine(m).failed, cluster.machine(m).drained) for m in cluster.machine_ids()],
        [(t.id, t.place, t.turn, t.since) for t in cluster.tasks.values()],
        {job: [t.id for t in record.tasks] for job, record in cluster.jobs.items()},
        dict(cluster.users),
        inventory.free[rows].tolist(), inventory.rooms_of(np.array(rows)).tolist(), inventory.running[rows].tolist(), inventory.usable[rows].tolist(),
        {cls.index: [[t.id for t in g.waiting] for g in groups] for cls, groups in cluster.waiting.items()},
    )  # fmt: skip


REFUSED = [
    (MachineAdded("a", {}), DuplicateIdError, "'a'"),
    (MachineAdded("c", {"disk": 1}), InputError, "'c'.*'disk'"),
    (MachineAdded("c", {"gpu": 1.5}), InputError, "whole number"),
    (MachineAdded("c", {"cpu": float("nan")}), InputError, "'cpu'"),
    (MachineAdded("c", {}, slots=-1), InputError, "slots"),
    (MachineUpdated("c"), UnknownMachineError, "'c'"),
    (MachineDrained("c"), UnknownMachineError, "'c'"),
    (MachineFailed("c"), UnknownMachineError, "'c'"),
    (MachineRemoved("c"), UnknownMachineError, "'c'"),
    (JobSubmitted("j", []), DuplicateIdError, "'j'"),
    (JobSubmitted("k", [Task("t1")]), DuplicateIdError, "'t1'"),
    (JobSubmitted("k", [Task("x"), Task("x")]), DuplicateIdError, "'x'"),
    (JobSubmitted("k", [Task("x", {"cpu": -1})]), InputError, "'x'.*'cpu'"),
    (JobSubmitted("k", [Task("x"), Task("y", {"gpu": 1.5})]), InputError, "'y'.*'gpu'"),
    (JobSubmitted("k", ["x"]), InputError, "Task expected"),
    (JobSubmitted("k", closed=True), InputError, "'k': a closed job needs tasks"),
    (JobSubmitted("k", [Task("x")], closed=1), InputError, "'k': closed must be True or False"),
    (JobSubmitted("k", priority=1.5), InputError, "priority"),
    (JobSubmitted("k", priority=2**50), InputError, "priority"),
    (TaskSubmitted("k", Task("x")), UnknownIdError, "'k'"),
    (TaskSubmitted("j", Task("t0")), DuplicateIdError, "'t0'"),
    (TaskStarted("x", "a"), UnknownTaskError, "'x'"),
    (TaskStarted("t1", "c"), UnknownMachineError, "'c'"),
    (TaskStarted("t0", "b"), InputError, "already runs on 'a'"),
    (TaskStarted("t1", "a", devices=(4096,)), InputError, "'t1': devices: 1 different ones"),
    (TaskStarted("t1", "a", devices=(0, 1)), InputError, "'t1': devices: 1 different ones"),
    (TaskStarted("t1", "a", devices=()), InputError, "'t1': devices: 1 different ones"),
    (TaskCompleted("t1"), InputError, "'t1' waits"),
    (TaskCompleted("x"), UnknownTaskError, "'x'"),
    (TaskFailed("t1"), InputError, "'t1' waits"),
    (TaskRemoved("x"), UnknownTaskError, "'x'"),
    (JobRemoved("k"), UnknownIdError, "'k'"),
    (UserAdded("u"), DuplicateIdError, "'u'"),
    (UserAdded("v", -1.0), InputError, "quota"),
    (UserUpdated("v", 1.0), UnknownIdError, "'v'"),
    (UserUpdated("u", float("nan")), InputError, "quota"),
    (UserRemoved("u"), InputError, "still has job 'j'"),
    (UserRemoved("v"), UnknownIdError, "'v'"),
    (UsageSampled("x", {"cpu": 1}), UnknownTaskError, "'x'"),
    (UsageSampled("t0", {"disk": 1}), InputError, "'disk'"),
    (UsageSampled("t0", {"cpu": 1}, 1.5), InputError, "progress"),
    ("TaskRemoved", InputError, "event"),
]


@pytest.mark.parametrize(("event", "error", "words"), REFUSED)
def test_a_refused_event_says_why_and_leaves_everything_as_it_was(
    event: Event, error: type[FlowschedError], words: str
) -> None:
    cluster = small()
    before = state(cluster)
    cluster.changes()
    with pytest.raises(error, match=words):
        cluster.apply(event)
    assert state(cluster) == before
    changes = cluster.changes()
    assert not (changes.groups or changes.removed or changes.machines or changes.gone)


def test_events_before_a_refused_one_stand() -> None:
    cluster = small()
    with pytest.raises(UnknownTaskError):
        cluster.apply(TaskRemoved("t1"), TaskRemoved("nobody"), TaskRemoved("t2"))
    assert set(cluster.tasks) == {"t0", "t2"}


def test_a_failed_machine_sends_its_tasks_back_to_wait_and_can_return() -> None:
    cluster = small()
    cluster.apply(MachineFailed("a", time=5.0))
    assert cluster.task_state("t0") == "waiting" and cluster.placement("t0") is None
    assert cluster.task("t0").since == 5.0
    assert not cluster.fits("t0").any()
    with pytest.raises(InputError, match="has failed"):
        cluster.apply(TaskStarted("t0", "a"))
    cluster.apply(MachineAdded("a", {"cpu": 8, "gpu": 1}))
    assert cluster.fits("t0", ["a"]).tolist() == [2]


def test_a_drained_machine_keeps_its_tasks_but_takes_no_more() -> None:
    cluster = small()
    cluster.apply(MachineDrained("a"))
    assert cluster.placement("t0") == "a"
    assert cluster.fits("t1", ["a"]).tolist() == [0]
    cluster.apply(MachineUpdated("a"))
    assert cluster.fits("t1", ["a"]).tolist() == [3]


def test_a_removed_machine_may_come_back_as_another() -> None:
    cluster = small()
    cluster.apply(MachineRemoved("a"))
    assert cluster.machine_ids() == ["b"] and cluster.task_state("t0") == "waiting"
    cluster.apply(MachineAdded("a", {"cpu": 1}))
    assert cluster.fits("t0", ["a"]).tolist() == [0]


def test_an_updated_machine_keeps_its_tasks() -> None:
    cluster = small()
    cluster.apply(MachineUpdated("a", {"cpu": 3, "mem": 1, "gpu": 3}))
    assert cluster.fits("t1", ["a"]).tolist() == [0]
    row = cluster.machine("a").row
    assert cluster.inventory.rooms(row).tolist() == [MICRO // 2, MICRO, MICRO]
    assert cluster.inventory.free[row].tolist() == [MICRO, MICRO, 5 * MICRO // 2]
    cluster.apply(MachineUpdated("a", {"cpu": 3, "mem": 1, "gpu": 1}))
    assert cluster.inventory.rooms(row).tolist() == [MICRO // 2]


def test_nothing_starts_next_to_a_task_on_a_device_that_is_gone() -> None:
    cluster = small()
    cluster.apply(TaskStarted("t1", "a", devices=(1,)), TaskCompleted("t0"), MachineUpdated("a", {"cpu": 8, "gpu": 1}))
    row = cluster.machine("a").row
    assert cluster.inventory.rooms(row).tolist() == [MICRO, -MICRO // 2]
    cluster.apply(JobSubmitted("no device", [Task("cpu", {"cpu": 1}), Task("nothing")]))
    assert [cluster.fits(task, ["a"]).tolist() for task in ("t2", "cpu", "nothing")] == [[0], [0], [0]]
    cluster.apply(TaskCompleted("t1"))
    assert cluster.fits("t2", ["a"]).tolist() == [2] and cluster.fits("cpu", ["a"]).tolist() == [8]


@pytest.mark.parametrize("reported", [{}, {"gpu": 0}, {"gpu": 2}])
def test_tasks_adopted_before_their_devices_are_reported_have_none_in_common(reported: dict[str, float]) -> None:
    cluster = Cluster(("gpu",))
    tasks = [Task("pair", {"gpu": 2}), *(Task(i, {"gpu": 1}) for i in range(5))]
    cluster.apply(MachineAdded("m", reported), JobSubmitted("j", [*tasks, Task("late", {"gpu": 1})]))
    cluster.apply(*(TaskStarted(task.id, "m") for task in tasks))
    cluster.apply(MachineUpdated("m", {"gpu": 8}))
    places = [cluster.task(task.id).place for task in tasks]
    assert sorted(device for place in places if place is not None for device in place.devices) == [*range(7)]
    assert not cluster.inventory.over[0] and cluster.fits("late", ["m"]).tolist() == [1]


def test_a_task_that_fails_waits_again_unless_it_gives_up() -> None:
    cluster = small()
    cluster.apply(TaskFailed("t0", time=7.0))
    assert cluster.task_state("t0") == "waiting" and cluster.task("t0").since == 7.0
    cluster.apply(TaskStarted("t0", "a"), TaskFailed("t0", retry=False))
    with pytest.raises(UnknownTaskError):
        cluster.task_state("t0")
    cluster.apply(TaskSubmitted("j", Task("t0", {"cpu": 1})))
    assert cluster.task_state("t0") == "waiting"


def test_starting_a_task_twice_in_one_place_is_one_start() -> None:
    cluster = small()
    before = state(cluster)
    cluster.apply(TaskStarted("t0", "a"), TaskStarted("t0", "a", devices=[0]))
    assert state(cluster) == before


def test_a_finished_job_may_come_back() -> None:
    cluster = small()
    cluster.apply(JobRemoved("j"))
    assert not cluster.tasks and not cluster.waiting
    cluster.apply(JobSubmitted("j", [Task("t0")]), TaskRemoved("t0"), JobSubmitted("j", [Task("t0")]))
    assert cluster.task_state("t0") == "waiting"
    cluster.apply(JobRemoved("j"), UserRemoved("u"))
    assert not cluster.users


def test_tasks_of_no_stated_time_wait_since_the_next_round() -> None:
    cluster = small()
    cluster.apply(TaskSubmitted("j", Task("late")))
    assert cluster.task("late").since is None
    cluster.changes(now=12.0)
    assert cluster.task("late").since == 12.0


def test_a_share_goes_to_the_fullest_device_and_whole_devices_must_be_free() -> None:
    cluster = Cluster(("gpu",))
    cluster.apply(MachineAdded("m", {"gpu": 3}))
    demands = {"a": 0.4, "b": 0.7, "c": 0.3, "d": 0.6, "e": 1}
    cluster.apply(
        JobSubmitted("j", [Task(name, {"gpu": share}) for name, share in demands.items()] + [Task("f", {"gpu": 0.1})])
    )
    expected = {"a": (0,), "b": (1,), "c": (1,), "d": (0,), "e": (2,)}
    for name, devices in expected.items():
        cluster.apply(TaskStarted(name, "m"))
        place = cluster.task(name).place
        assert place is not None and place.devices == devices
    cluster.apply(TaskStarted("f", "m"))  # it has started, though there is no room
    place = cluster.task("f").place
    assert place is not None and place.devices == (0,) and cluster.inventory.over[0]


def test_classes_and_groups_are_shared_and_forgotten() -> None:
    cluster = Cluster()
    cluster.apply(JobSubmitted("j", [Task(i, {"cpu": 1}) for i in range(3)]), JobSubmitted("k", [Task("x", [1, 0, 0])]))
    assert len(cluster.waiting) == 1
    assert [len(group.waiting) for group in next(iter(cluster.waiting.values()))] == [3, 1]
    for i in range(200):
        cluster.apply(JobSubmitted(("job", i), [Task(("task", i), {"cpu": i + 2})]), JobRemoved(("job", i)))
        cluster.changes()
    assert len(cluster.inventory.demand) <= 256 and len(cluster.changes().classes) == 0
    assert cluster.inventory._classes.count < 100


amounts = st.sampled_from([0, 0.1, 0.25, 0.3, 0.5, 1, 2])


@given(
    machines=st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 3), st.sampled_from([None, 0, 1, 5]), st.booleans(), st.booleans()),
        min_size=1,
        max_size=4,
    ),
    load=st.lists(st.tuples(st.integers(0, 3), amounts, amounts), max_size=8),
    asked=st.tuples(amounts, amounts, st.booleans()),
)
def test_fits_counts_the_tasks_that_can_start_one_by_one(machines: list, load: list, asked: tuple) -> None:
    cluster = Cluster(("cpu", "gpu"))
    for i, (cpu, gpu, slots, labelled, _) in enumerate(machines):
        cluster.apply(MachineAdded(i, {"cpu": cpu, "gpu": gpu}, labels={"zone": "x"} if labelled else {}, slots=slots))
    cluster.apply(JobSubmitted("load", [Task(("load", i), {"cpu": c, "gpu": g}) for i, (_, c, g) in enumerate(load)]))
    for i, (machine, _, _) in enumerate(load):
        try:
            cluster.apply(TaskStarted(("load", i), machine % len(machines)))
        except InputError:
            pass
    for i, machine in enumerate(machines):
        if machine[4]:
            cluster.apply(MachineDrained(i))
    cpu, gpu, picky = asked
    where = {"zone": ("x", "y")} if picky else {}
    cluster.apply(JobSubmitted("j", [Task(i, {"cpu": cpu, "gpu": gpu}, where) for i in range(50)]))
    fits = cluster.fits(0)
    group = cluster.task(0).group
    rows = np.array([cluster.machine(i).row for i in range(len(machines))])
    _, why = cluster.inventory.room(np.array([group.cls.index]), rows)
    for i, (_, _, _, labelled, drained) in enumerate(machines):
        assert bool(why[0, i] & DOWN) == drained and bool(why[0, i] & LABEL) == (picky and not labelled)
        assert (why[0, i] == 0) == (fits[i] > 0)
        if drained or (picky and not labelled):
            assert fits[i] == 0
            continue
        transaction = Transaction(cluster, 0.0)
        started = 0
        while group.waiting and (devices := cluster.inventory.pick(i, group.cls.index)) is not None:
            assert cluster.inventory.admits(i, group.cls.index, devices)
            transaction.start([group.waiting[0]], i, devices)
            started += 1
            assert (cluster.inventory.rooms(i) >= 0).all() and (cluster.inventory.free[i] >= 0).all()
        assert started == min(50, fits[i])
        transaction.rollback()
    if not (cpu or gpu):
        assert fits.max() <= UNLIMITED


def test_room_names_everything_that_is_missing() -> None:
    cluster = small()
    cluster.apply(JobSubmitted("k", [Task("x", {"cpu": 7, "mem": 17, "gpu": 2}, {"gpu_model": ("P100",)})]))
    cluster.apply(JobSubmitted("l", [Task("y", {"cpu": 4})]), TaskStarted("y", "b"))
    rows = np.array([cluster.machine(m).row for m in ("a", "b")])
    _, why = cluster.inventory.room(np.array([cluster.task("x").group.cls.index]), rows)
    assert why[0, 0] == LABEL | RESOURCE | RESOURCE << 1 | RESOURCE << 2
    assert why[0, 1] == LABEL | SLOTS | RESOURCE | RESOURCE << 1 | RESOURCE << 2


def test_a_trial_can_be_undone_whatever_it_did() -> None:
    cluster = small()
    before = state(cluster)
    transaction = Transaction(cluster, 9.0)
    t0, t1, t2 = (cluster.task(t) for t in ("t0", "t1", "t2"))
    transaction.stop(t0)
    transaction.start([t2], cluster.machine("a").row, (0,))
    transaction.start([t0], cluster.machine("a").row, (1,))
    transaction.start([t1], cluster.machine("a").row, (1,))
    transaction.stop(t2)
    assert state(cluster) != before
    transaction.rollback()
    assert state(cluster) == before


def test_changes_report_groups_machines_and_removals_once() -> None:
    cluster = small()
    changes = cluster.changes()
    group = cluster.task("t0").group
    row = cluster.machine("a").row
    assert list(changes.machines) == [row, cluster.machine("b").row]
    assert changes.groups == {group: {row: None}}
    cluster.apply(MachineUpdated("a", rack="other"), MachineRemoved("b"), JobRemoved("j"))
    changes = cluster.changes()
    assert list(changes.machines) == [row] and len(changes.gone) == 1 and changes.removed == [group]
    assert not changes.groups


def test_resources_may_be_given_as_values() -> None:
    cluster = Cluster(Resources(("cpu", "tpu"), device="tpu"))
    cluster.apply(MachineAdded("m", [4, 2]), JobSubmitted("j", [Task("t", [1, 0.5])]), TaskStarted("t", "m"))
    assert cluster.fits("t").tolist() == [3]


# -- equal demands, and tasks that are alike ----------------------------------------------------------------------------

ONES = [1, 1.0, True, np.int64(1), np.float64(1.0), np.bool_(True), np.longdouble(1), np.timedelta64(1), 1 + 0j]
"""All equal, of equal hashes; only some are amounts."""


@given(st.lists(st.integers(0, len(ONES) - 1), min_size=2, max_size=6))
def test_equal_demands_are_distinguished_by_their_types(amounts: list[int]) -> None:
    """A demand is as given, whatever came before, and an invalid one is refused."""
    for i, amount in enumerate(ONES[k] for k in amounts):
        task, cluster = Task(i, {"cpu": amount}), Cluster(("cpu",))
        (kept,) = task.demand.values()
        assert type(kept) is type(amount)
        if isinstance(amount, bool | np.bool_ | np.longdouble | np.timedelta64 | complex):
            for event in (JobSubmitted("j", [task]), MachineAdded("m", {"cpu": amount})):
                with pytest.raises(InputError, match=r"\['cpu'\]: a number expected"):
                    cluster.apply(event)
        else:
            cluster.apply(JobSubmitted("j", [task]), MachineAdded("m", {"cpu": amount}))
            assert cluster.inventory.demand[0].tolist() == cluster.inventory.capacity[0].tolist() == [MICRO]


def test_equal_demands_are_one_object_that_nothing_alters() -> None:
    given = {"cpu": 1.5, "mem": 2}
    first, second = Task(1, given), Task(2, dict(given))
    given["cpu"] = 9
    assert first.demand is second.demand and dict(first.demand) == {"cpu": 1.5, "mem": 2}
    resources = Resources(("cpu", "mem"))
    vector = resources.demand("demand", first.demand)
    assert vector is resources.demand("demand", second.demand)
    with pytest.raises(ValueError, match="read-only"):
        vector[0] = 0
    assert resources.demand("demand", {"mem": 2, "cpu": 1.5}).tolist() == vector.tolist()
    assert resources.capacity("capacity", {"cpu": 0.0000015}).tolist() == [1, 0]
    assert resources.demand("demand", {"cpu": 0.0000015}).tolist() == [2, 0], "a tiny demand is rounded up"
    with pytest.raises(InputError, match="here: unknown resource 'gpu'"):
        resources.demand("here", {"gpu": 1})
    with pytest.raises(InputError, match="there: unknown resource 'gpu'"):
        resources.demand("there", {"gpu": 1})
    with pytest.raises(InputError, match=r"a number expected, got \[1\]"):
        resources.demand("demand", Task(3, {"cpu": [1]}).demand)


KINDS_OF_TASKS = st.sampled_from([
    {}, {"demand": {"cpu": 1}}, {"demand": {"cpu": 1.0}}, {"demand": {"cpu": 2}}, {"demand": (1, 0, 0)}, {"kind": 1}, {"kind": True}, {"kind": 1.0},
    {"data": (("a", 1),)}, {"data": (("a", 1.0),)}, {"apart": 1}, {"avoids": (1,)}, {"constraints": {"x": ["y"]}}, {"prefers": {"x": ["y"]}},
])  # fmt: skip


@given(st.lists(st.tuples(KINDS_OF_TASKS, st.integers(1, 3)), max_size=5), st.sampled_from([None, 2.0]), st.booleans())
def test_tasks_that_come_together_are_as_those_that_come_one_by_one(
    runs: list[tuple[dict, int]], time: float | None, busy: bool
) -> None:
    tasks = [Task((i, k), **about) for i, (about, count) in enumerate(runs) for k in range(count)]
    clusters = []
    for together in (True, False):
        cluster = small() if busy else Cluster()
        cluster.apply(JobSubmitted("new", tasks if together else (), time=time))
        cluster.apply(*(TaskSubmitted("new", task, time=time) for task in ([] if together else tasks)))
        cluster.date(7.0)
        clusters.append(cluster)
    one, other = (
        [(t.id, t.index, t.turn, t.since, t.group.serial, t.group.cls.index) for t in c.tasks.values()]
        for c in clusters
    )
    assert one == other
    waiting = [[[t.id for t in group.waiting] for q in c.waiting.values() for group in q] for c in clusters]
    assert waiting[0] == waiting[1]
    changed = [[group.serial for group in c.changes().groups] for c in clusters]
    assert changed[0] == changed[1]
    assert all(c.jobs["new"].most == len(c.jobs["new"].tasks) == len(tasks) for c in clusters)


def test_a_closed_job_leaves_with_its_last_task() -> None:
    cluster = Cluster(("cpu",))
    cluster.apply(
        MachineAdded("m", {"cpu": 9}), JobSubmitted("j", [Task(i) for i in range(4)], "u", gang=2, closed=True)
    )
    with pytest.raises(InputError, match="'j' is closed: it takes no more tasks"):
        cluster.apply(TaskSubmitted("j", Task("x")))
    cluster.apply(TaskStarted(0, "m"), TaskStarted(1, "m"), TaskCompleted(0), TaskRemoved(2), TaskFailed(1))
    assert list(cluster.jobs) == ["j"] and set(cluster.tasks) == {1, 3}
    cluster.apply(TaskRemoved(3), TaskStarted(1, "m"), TaskFailed(1, retry=False))
    assert not cluster.jobs and not cluster.tasks
    cluster.apply(JobSubmitted("j", [Task(0), Task(1)], closed=True), TaskStarted(0, "m"))
    assert cluster.apply(JobRemoved("j")) == ((0, 4, "m", "JobRemoved"),)
    assert not cluster.jobs and cluster.inventory.free[0, 0] == 9 * MICRO
    cluster.apply(JobSubmitted("k", [Task(0)]), TaskRemoved(0))
    assert list(cluster.jobs) == ["k"], "others stay known"


@pytest.mark.parametrize("wrong", [["no hash"], "unknown", ("here", 3)])
def test_a_long_batch_of_completions_stands_up_to_the_refused_one(wrong: object) -> None:
    cluster = Cluster(resources=("cpu",))
    cluster.apply(
        MachineAdded("m", {"cpu": 100}),
        JobSubmitted("here", [Task(("here", k), {"cpu": 1}) for k in range(100)]),
        *(TaskStarted(("here", k), "m") for k in range(90)),
    )
    events: list[Event] = [TaskCompleted(("here", k)) for k in range(70)]
    events.insert(40, TaskCompleted(wrong))  # ("here", 3) has left by then
    with pytest.raises(UnknownTaskError) as refused:
        cluster.apply(*events)
    assert refused.value.index == 40 == len(refused.value.ended)
    assert sorted(task.id[1] for task in cluster.tasks.values()) == list(range(40, 100))
    assert cluster.free("m") == {"cpu": 50.0}
    cluster.apply(*(TaskCompleted(("here", k)) for k in range(40, 90)))
    assert cluster.free("m") == {"cpu": 100.0} and len(cluster.tasks) == 10


def test_equal_demands_of_tasks_are_distinguished_by_resources() -> None:
    task = Task("t", {"cpu": 1, "mem": 2})
    for names, expected in ((("cpu", "mem"), [MICRO, 2 * MICRO]), (("mem", "cpu"), [2 * MICRO, MICRO])):
        resources = Resources(names)
        for _ in range(2):
            assert resources.demand_of(task).tolist() == expected
            assert resources.demand_of(Task("other", {"mem": 2, "cpu": 1})).tolist() == expected
            assert resources.demand_of(Task("vector", (1, 2))).tolist() == [MICRO, 2 * MICRO]
    with pytest.raises(InputError, match=r"task 't': demand: unknown resource 'mem'"):
        Resources(("cpu",)).demand_of(task)
