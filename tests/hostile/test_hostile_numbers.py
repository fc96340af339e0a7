"""Absurd numbers in every place that takes one: refused by name with nothing changed, or every later round works.

The places are found by walking the dataclass fields of events, tasks and policies, so that a field that is added later is
tried as well.
"""

from __future__ import annotations

import enum
import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from effort import FUZZ

import flowsched as fs
from flowsched.boundary.validate import check_id, number, quoted, whole
from flowsched.cluster.events import _KINDS


class Three(enum.IntEnum):
    """A whole number with a name."""

    THREE = 3


class Sly(float):
    """A float that says something else."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


class Floatable:
    """Values that float() takes, but that are no numbers."""

    def __float__(self) -> float:
        return 1.0


BEYOND = [
    10**309,
    -(10**309),
    10**400,
    -(10**400),
    10**5000,
    -(10**5000),
    np.longdouble("1e4000"),
    -np.longdouble("1e4000"),
]
"""Finite numbers that no float holds."""

ODD = [
    2**31, 2**53 + 1, 2**62, 2**63 - 1, 2**63, -(2**63), 2**64, 2**200, 1e308, -1e308, 1.7976931348623157e308, 5e-324, -0.0, 1e-300,
    math.inf, -math.inf, math.nan, Fraction(1, 3), Decimal(1), Decimal("1e400"), Decimal("NaN"), True, False, 1j,
    np.longdouble(1), np.float16(1), np.float32(3e38), np.float64(np.nan), np.float64(np.inf), np.int8(1), np.uint8(255),
    np.uint64(2**64 - 1), np.int64(-(2**63)), np.bool_(True), np.complex64(1), np.timedelta64(1, "s"), np.timedelta64("NaT"),
    np.datetime64(0, "s"), np.str_("1"), np.array(1.0), np.array([1.0]), "1", b"1", [1], (1,), {"a": 1}, {1},
    Three.THREE, Sly(1.0), Floatable(), object(), int, len, ..., range(3),
]  # fmt: skip

VALUES = BEYOND + ODD
one_at_a_time = pytest.mark.parametrize(
    "absurd",
    [
        pytest.param(
            value, id=f"{i}: {quoted(value, 20)}".partition(" at 0x")[0], marks=pytest.mark.long if i % 6 else ()
        )
        for i, value in enumerate(VALUES)
    ],
)


def some(turn: int) -> list[Any]:
    """All of them under FLOWSCHED_FUZZ=1; else one that no float holds, and others by turns."""
    return VALUES if FUZZ else [BEYOND[turn % len(BEYOND)], *ODD[turn % 29 :: 29]]


RESOURCES = ("cpu", "mem", "gpu")


def lived(policy: fs.Policy | None = None, journal: Path | None = None) -> fs.Scheduler:
    """A scheduler of every kind of thing; one task runs, another waits for ever."""
    sched = fs.Scheduler(
        policy or fs.Policy(fairness=fs.Fairness(over="user"), locality=fs.Locality()), journal=journal
    )
    sched.apply(
        fs.MachineAdded("m", {"cpu": 4, "mem": 8, "gpu": 2}, rack="r", slots=9, time=0.0),
        fs.MachineAdded("n", {"cpu": 4}, time=0.0),
        fs.MachineAdded("down", {"cpu": 1}, time=0.0),
        fs.UserAdded("u", 2.0),
        fs.UserAdded("idle", 1.0),
        fs.JobSubmitted("j", [fs.Task("run", {"cpu": 1, "gpu": 0.5}), fs.Task("wait", {"cpu": 4, "mem": 9})], user="u", time=0.0),
        fs.JobSubmitted("empty", [fs.Task("only", {"cpu": 1})], user="u", time=0.0),
        fs.TaskRemoved("only"),
        fs.TaskStarted("run", "m", time=0.0),
        fs.MachineFailed("down", time=1.0),
    )  # fmt: skip
    sched.commit(sched.schedule(1.0))
    sched.apply(fs.JobSubmitted("k", [fs.Task("fresh", {"cpu": 1})], time=1.0))
    return sched


EXAMPLES: dict[str, fs.Event] = {
    "MachineAdded": fs.MachineAdded("new", {"cpu": 1}, labels={"a": "b"}, slots=3),
    "MachineUpdated": fs.MachineUpdated("n", {"cpu": 5}, labels={"a": "b"}, slots=3),
    "MachineDrained": fs.MachineDrained("n"),
    "MachineFailed": fs.MachineFailed("m"),
    "MachineRemoved": fs.MachineRemoved("m"),
    "JobSubmitted": fs.JobSubmitted("new", [fs.Task("t", {"cpu": 1})], priority=1, gang=1, deadline=5.0, user="u"),
    "TaskSubmitted": fs.TaskSubmitted("j", fs.Task("t", {"cpu": 1})),
    "TaskStarted": fs.TaskStarted("fresh", "n", ()),
    "TaskCompleted": fs.TaskCompleted("run"),
    "TaskFailed": fs.TaskFailed("run"),
    "TaskStopped": fs.TaskStopped("run", run=99),
    "TaskRemoved": fs.TaskRemoved("wait"),
    "JobRemoved": fs.JobRemoved("empty"),
    "UserAdded": fs.UserAdded("new", 1.0),
    "UserUpdated": fs.UserUpdated("u", 1.0),
    "UserRemoved": fs.UserRemoved("idle"),
    "UsageSampled": fs.UsageSampled("run", {"cpu": 0.5}, progress=0.5),
    "MachineSampled": fs.MachineSampled("m", {"cpu": 0.5}),
}

TASK = fs.Task(
    "t",
    {"cpu": 1},
    {"a": ["b"]},
    data={"m": 1.0},
    prefers={"a": ["b"]},
    apart=1,
    avoids=("k",),
    kind="k",
    apart_in_rack=1,
    retries=1,
    backoff=2.0,
)


def filled(value: Any, absurd: Any) -> Iterator[Any]:
    """Values of a field with an absurd value in their place: as they are, and within."""
    yield absurd
    if isinstance(value, dict) or hasattr(value, "keys"):
        yield from ({key: absurd} for key in value)
        yield dict.fromkeys(RESOURCES, absurd)
    elif isinstance(value, tuple | list):
        yield [absurd]
        yield [("m", absurd)]


def places(kind: str) -> Iterator[tuple[str, Any]]:
    """All fields of an event, and how to fill them."""
    example = EXAMPLES[kind]
    for field in fields(example):
        yield field.name, getattr(example, field.name)


def one_by_one() -> list[tuple[str, str]]:
    return [(kind, name) for kind in _KINDS for name, _ in places(kind)]


def state(sched: fs.Scheduler) -> Any:
    """The state as values."""
    cluster = sched.cluster
    return (
        [(m.machine, m.failed, m.drained) for m in cluster.machines.values()],
        [(j.job, [(t.id, t.place, t.since, repr(t.group.data)) for t in j.tasks]) for j in cluster.jobs.values()],
        cluster.users,
        cluster.inventory.free.tolist(),
        cluster.inventory.running.tolist(),
        cluster.events,
    )


def goes_on(sched: fs.Scheduler) -> None:
    """All that a scheduler can do, it still does."""
    for now in (1.0, 2.0, 1e6):
        sched.commit(sched.schedule(now))
    sched.apply(
        fs.MachineAdded("late", {"cpu": 64, "mem": 64}), fs.JobSubmitted("late", [fs.Task("later", {"cpu": 1})])
    )
    sched.commit(sched.schedule(1e6 + 1))
    assert sched.cluster.placement("later") is not None
    assert sched.explain("later") is not None
    sched.network.certify()
    try:
        image = sched.snapshot()
    except fs.InputError:  # ids of a kind that only memory holds
        return
    twin = fs.Scheduler.restore(image, sched.policy)
    assert state(twin) == state(sched)
    assert dict(twin.schedule(1e6 + 2).placements) == dict(sched.schedule(1e6 + 2).placements)


def test_every_event_has_an_example() -> None:
    assert EXAMPLES.keys() == _KINDS.keys()
    for event in EXAMPLES.values():
        sched = lived()
        sched.apply(event)
        goes_on(sched)


@pytest.mark.parametrize(
    ("kind", "name"),
    [pytest.param(*place, marks=pytest.mark.long if i % 3 else ()) for i, place in enumerate(one_by_one())],
)
def test_an_absurd_value_in_an_event_is_refused_by_name_or_changes_nothing_later(kind: str, name: str) -> None:
    example = EXAMPLES[kind]
    for absurd in some(one_by_one().index((kind, name))):
        for value in filled(getattr(example, name), absurd):
            sched = lived()
            before = sched.snapshot()
            try:
                sched.apply(replace(example, **{name: value}))
            except fs.FlowschedError as error:
                assert sched.snapshot() == before, (name, quoted(absurd))
                if name == "time":
                    assert isinstance(error, fs.InputError) and "time" in str(error)
            else:
                assert name != "time" or not any(absurd is value for value in BEYOND)
            goes_on(sched)


@pytest.mark.parametrize("name", [field.name for field in fields(fs.Task)])
def test_an_absurd_value_in_a_task_is_refused_by_name_or_changes_nothing_later(name: str) -> None:
    for absurd in some(len(name)):
        for value in filled(getattr(TASK, name), absurd):
            sched = lived()
            before = sched.snapshot()
            try:
                sched.apply(fs.TaskSubmitted("j", replace(TASK, **{name: value})))
            except fs.InputError as error:
                assert sched.snapshot() == before, (name, str(error))
            goes_on(sched)


@one_at_a_time
def test_arguments_of_a_round(absurd: Any) -> None:
    for arguments in ((absurd,), (1.0, absurd)):
        sched = lived()
        before = sched.snapshot()
        try:
            sched.commit(sched.schedule(*arguments))
        except fs.InputError as error:
            assert sched.snapshot() == before
            assert ("time_limit" if len(arguments) > 1 else "now") in str(error)
            assert len(str(error)) < 400
        goes_on(sched)


POLICIES: list[Any] = [
    fs.Policy(), fs.WaitCost(), fs.PreemptionCost(), fs.Fairness(weights={"u": 1.0}), fs.Locality(), fs.LoadCost(),
    fs.WeightedPriority(), fs.DeviceCost(), fs.PreferenceCost(), fs.StaticQuotas({"u": 1}), fs.Limits(1, 2),
    fs.FragmentationCost(((fs.Task("x", {"gpu": 0.5}), 1.0),)), fs.BatchShare(),
]  # fmt: skip


def policy_with(part: Any) -> fs.Policy:
    """A policy that has this part."""
    if isinstance(part, fs.Policy):
        return part
    if isinstance(part, fs.WaitCost):
        return fs.Policy(waiting=part)
    if isinstance(part, fs.PreemptionCost):
        return fs.Policy(preemption=part)
    if isinstance(part, fs.Fairness):
        return fs.Policy(fairness=part)
    if isinstance(part, fs.Locality):
        return fs.Policy(locality=part)
    if isinstance(part, fs.WeightedPriority):
        return fs.Policy(priority=part)
    if isinstance(part, fs.Limits):
        return fs.Policy(fairness=fs.Fairness(over="user", limits={"u": part}))
    if isinstance(part, fs.StaticQuotas | fs.BatchShare):
        return fs.Policy(fairness=fs.Fairness(part, over="user"))
    return fs.Policy(placement=(part,))


@pytest.mark.parametrize("part", POLICIES, ids=lambda part: type(part).__name__)
def test_an_absurd_value_in_a_policy_is_refused_by_name_or_rounds_work_or_say_so(part: Any) -> None:
    assert is_dataclass(part)
    for field in fields(part):
        if not field.init:
            continue
        old = getattr(part, field.name)
        for absurd in some(len(field.name)):
            for value in [absurd, *([dict.fromkeys(old, absurd)] if hasattr(old, "keys") else [])]:
                try:
                    policy = policy_with(replace(part, **{field.name: value}))
                except fs.InputError:
                    continue
                except TypeError:
                    # A callable where a part of a policy is expected may be one.
                    assert callable(absurd)
                    continue
                if callable(value) and not is_dataclass(value):
                    continue  # a policy is code; what its parts return is their own
                sched = lived()
                kept = sched.policy
                try:
                    sched.policy = policy
                    sched.commit(sched.schedule(2.0))
                    sched.commit(sched.schedule(2000.0))
                except (fs.InputError, fs.CostRangeError) as error:
                    assert str(error)
                sched.policy = kept
                goes_on(sched)


def test_other_numbers_of_policies() -> None:
    for absurd in VALUES:
        for make in (
            lambda: fs.SequenceShare(mu=absurd), lambda: fs.SequenceShare(resolution=absurd),  # noqa: B023
            lambda: fs.Scheduler(seed=absurd), lambda: fs.User("u", absurd), lambda: fs.Job("j", deadline=absurd),  # noqa: B023
            lambda: fs.Machine("m", slots=absurd), lambda: fs.Machine("m", {"cpu": absurd}),  # noqa: B023
        ):  # fmt: skip
            try:
                make()
            except fs.InputError as error:
                assert str(error)


@one_at_a_time
def test_a_journal_has_what_was_accepted_and_nothing_else(absurd: Any, tmp_path: Path) -> None:
    sched = lived(journal=tmp_path / "j")
    events: list[fs.Event] = [
        fs.TaskStarted("fresh", "m", time=absurd),
        fs.MachineFailed("m", time=absurd),
        fs.UserUpdated("u", absurd),
        fs.JobSubmitted("new", [fs.Task("t", {"cpu": absurd})], deadline=absurd),
        fs.MachineAdded("big", {"cpu": absurd}, slots=absurd),
        fs.UsageSampled("run", {"cpu": absurd}, progress=absurd),
    ]
    for event in events:
        try:
            sched.apply(event)
        except (fs.InputError, fs.JournalError):
            pass
    sched.commit(sched.schedule(3.0))
    sched.journal.close()
    again = fs.Scheduler(sched.policy, journal=tmp_path / "j")
    assert state(again) == state(sched) and not again.recovery.differences
    again.journal.close()


def test_number_gives_what_a_float_can_hold_and_refuses_the_rest_by_name() -> None:
    for absurd in VALUES:
        for finite, least in itertools.product((True, False), (-math.inf, 0)):
            try:
                got = number("what: name", absurd, least, finite=finite)
            except fs.InputError as error:
                assert str(error).startswith("what: name must be") and len(str(error)) < 200
            else:
                assert isinstance(got, int | float) and not isinstance(got, bool | np.generic)
                assert float(got) >= least and (math.isfinite(got) or not finite)
        try:
            assert type(whole("what: name", absurd, 0)) is int
        except fs.InputError as error:
            assert str(error).startswith("what: name must be") and len(str(error)) < 200
    for value in BEYOND:
        for finite in (True, False):
            with pytest.raises(fs.InputError, match="x must be"):
                number("x", value, finite=finite)
    assert number("x", np.float32(1)) == 1 and number("x", math.inf, finite=False) == math.inf


def test_an_id_that_cannot_be_written_down_is_none() -> None:
    for wrong in (10**5000, (1, (10**5000,)), -(10**5000)):
        with pytest.raises(fs.InputError, match="task: id"):
            check_id("task: id", wrong)
        sched = lived()
        with pytest.raises(fs.UnknownIdError):
            sched.apply(fs.TaskCompleted(wrong))
        with pytest.raises(fs.UnknownIdError):
            sched.explain(wrong)
        goes_on(sched)
    check_id("task: id", 10**100)


def test_a_simulation_takes_its_numbers_or_names_them() -> None:
    from flowsched.sim import Arrival, Execution, ForeignLoad, Simulation, Workload
    from flowsched.sim.execution import Stages

    work = Workload.model(tasks=12, scale=0.01)
    job = fs.JobSubmitted("j", [fs.Task("t", {"cpu": 1})])
    for absurd in VALUES:
        for make in (
            lambda: Simulation(fs.Scheduler(), work, interval=absurd).run(10.0),  # noqa: B023
            lambda: Simulation(fs.Scheduler(), work, charge_solver=absurd).run(10.0),  # noqa: B023
            lambda: Simulation(fs.Scheduler(), work, time_limit=absurd).run(10.0),  # noqa: B023
            lambda: Simulation(fs.Scheduler(), work).run(absurd),  # noqa: B023
            lambda: Simulation(fs.Scheduler(), work.compress(absurd)).run(10.0),  # noqa: B023
            lambda: work.head(absurd),  # noqa: B023
            lambda: Simulation(fs.Scheduler(), Workload("w", [Arrival(absurd, job, [1.0])], work.machines)).run(),  # noqa: B023
            lambda: Simulation(fs.Scheduler(), Workload("w", [Arrival(0.0, job, [absurd])], work.machines)).run(),  # noqa: B023
            lambda: Workload.model(tasks=12, scale=0.01, load=absurd),  # noqa: B023
            lambda: Workload.model(tasks=12, scale=0.01, seed=absurd),  # noqa: B023
            *(
                lambda name=name: Simulation(
                    fs.Scheduler(), work, execution=Execution(**{name: absurd})  # noqa: B023
                ).run(10.0)
                for name in ("contention", "noise", "restart", "sample", "seed")
            ),
            lambda: Execution(foreign=[ForeignLoad(absurd, "m", {"cpu": 1})]),  # noqa: B023
            lambda: Stages([absurd], [[1.0]]),  # noqa: B023
        ):  # fmt: skip
            if callable(absurd):
                continue  # charge_solver may be a function of the caller's
            try:
                make()
            except fs.InputError as error:
                assert str(error)


def test_a_quoted_value_is_short_on_one_line_and_never_an_error() -> None:
    for value in [*VALUES, "x" * 10**6, b"x" * 10**6, "a\nb\x1b[31m\u202e\ud800", ["x" * 10**6], Path("x" * 1000)]:
        text = quoted(value)
        assert len(text) <= 84 and text.isprintable() and text.encode()
    assert quoted("abc") == "'abc'" and quoted(12) == "12" and quoted(2.5) == "2.5"
    assert json.loads(json.dumps(quoted("x" * 100))).endswith("...")
