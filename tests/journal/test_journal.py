"""The journal: what is in it, what comes back from it, and what it refuses."""

from __future__ import annotations

import dataclasses
import os
import pickle
import sqlite3
from collections import Counter
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from effort import FUZZ, effort
from hypothesis import given, settings
from hypothesis import strategies as st
from journal_rows import journal_of, records
from lives import POLICIES, SCALES, flow_of, operations, said, world_of

import flowsched as fs
from flowsched.cluster.events import from_dict, to_dict
from flowsched.journal._words import delta_words, words
from flowsched.journal.codec import as_ids, decode, deltas_of, encode, plain
from flowsched.journal.store import reading
from flowsched.policy.serialize import describe, rebuild
from flowsched.rounds.values import Migrate, Place, Preempt


def small(path: Path, **options) -> fs.Scheduler:
    sched = fs.Scheduler(resources=("cpu",), journal=path, **options)
    sched.apply(fs.MachineAdded("m", {"cpu": 2}), fs.JobSubmitted("j", [fs.Task(i, {"cpu": 1}) for i in range(4)]))
    return sched


def reopened(sched: fs.Scheduler, **options) -> fs.Scheduler:
    sched.journal.close()
    return fs.Scheduler(resources=("cpu",), journal=sched.journal.path, **options)


# -- recovery ---------------------------------------------------------------------------------------------------------


@pytest.mark.long
@settings(max_examples=effort(12, 300))
@given(seed=st.integers(0, 2**32), maker=st.sampled_from(POLICIES), count=st.integers(0, 60))
def test_a_recovered_scheduler_is_the_one_that_ended(tmp_path_factory, seed: int, maker, count: int) -> None:
    path = tmp_path_factory.mktemp("life") / "journal"
    sched = fs.Scheduler(maker(), journal=path)
    said_so = Counter(name.split()[0] for name in operations(seed, sched, count))
    sched.journal.close()
    again = fs.Scheduler(maker(), journal=path)
    assert not again.recovery.differences
    assert again.recovery.snapshot == again.recovery.warm == bool(said_so["compact"])
    assert world_of(again) == world_of(sched)
    assert flow_of(again) == flow_of(sched)
    plain = fs.Scheduler(maker())
    list(operations(seed, plain, count))
    assert flow_of(plain) == flow_of(sched), "a journal changes nothing"
    for now in (1e3, 1e4):
        rnd, without = again.schedule(now), plain.schedule(now)
        assert said(rnd) == said(without)
        again.commit(rnd)
        plain.commit(without)
    replayed = fs.replay(path)
    assert replayed.rounds == again.recovery.rounds + 2 and not replayed.differences


@pytest.mark.long
@settings(max_examples=effort(12, 300))
@given(seed=st.integers(0, 2**32), maker=st.sampled_from(SCALES), count=st.integers(20, 60))
def test_a_scale_that_grew_is_recovered(tmp_path_factory, seed: int, maker, count: int) -> None:
    path = tmp_path_factory.mktemp("life") / "journal"
    sched = fs.Scheduler(maker(), journal=path)
    list(operations(seed, sched, count, [*POLICIES, *SCALES]))
    sched.journal.close()
    again = fs.Scheduler(maker(), journal=path)
    assert not again.recovery.differences and again.policy == sched.policy
    assert (world_of(again), flow_of(again)) == (world_of(sched), flow_of(sched))
    again.builder.check_ids()
    plain = fs.Scheduler(maker())
    list(operations(seed, plain, count, [*POLICIES, *SCALES]))
    for now in (1e3, 1e4):
        assert said(again.schedule(now)) == said(plain.schedule(now))


def test_recovery_from_every_prefix(tmp_path: Path) -> None:
    """The write-ahead log cut at any byte, as a kill leaves it: a whole number of calls is there."""
    path, cut = tmp_path / "journal", tmp_path / "cut"
    sched = fs.Scheduler(resources=("cpu",), journal=path)
    states: dict[int, tuple] = {}

    def note() -> None:
        states[wal_of(path).stat().st_size] = world_of(sched), flow_of(sched)

    note()
    sched.apply(fs.MachineAdded("m", {"cpu": 2}), fs.JobSubmitted("j", [fs.Task(i, {"cpu": 1}) for i in range(4)]))
    note()
    rnd = sched.schedule(0.0)
    for part in ([0], [1]):
        sched.commit(rnd, only=part)
        note()
    sched.apply(fs.TaskCompleted(0), fs.TaskFailed(1))
    note()
    sched.policy = fs.Policy(fairness=fs.Fairness(fs.SequenceShare()))
    note()
    sched.commit(sched.schedule(1))
    note()
    main, log = path.read_bytes(), wal_of(path).read_bytes()
    near_an_end = {end + near for end in states for near in (-1, 0, 1)}
    for size in range(min(states), len(log) + 1):
        if FUZZ or size in near_an_end or not size % 2003:
            cut.write_bytes(main)
            wal_of(cut).write_bytes(log[:size])
            again = fs.Scheduler(resources=("cpu",), journal=cut)
            assert (world_of(again), flow_of(again)) == states[max(end for end in states if end <= size)]
            again.journal.close()


def wal_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


@pytest.mark.parametrize("where", ["database", "log"])
def test_a_flipped_bit_is_an_error_or_changes_nothing(tmp_path: Path, where: str) -> None:
    """A bit is flipped in the closed database, or in the log that a killed process left."""
    path, bad = tmp_path / "journal", tmp_path / "bad"
    sched = small(path)
    sched.commit(sched.schedule(0.0))
    state = world_of(sched), flow_of(sched)
    main, log = path.read_bytes(), wal_of(path).read_bytes()
    if where == "database":
        sched.journal.close()
        main, log = path.read_bytes(), b""
    length = len(main if where == "database" else log)
    random = np.random.default_rng(0)
    found = Counter()
    for at in random.choice(length, effort(150, 10_000), replace=length < 10_000).tolist():
        damaged = [bytearray(main), bytearray(log)]
        damaged[where == "log"][at] ^= 1 << int(random.integers(8))
        bad.write_bytes(damaged[0])
        wal_of(bad).unlink(missing_ok=True)
        if log:
            wal_of(bad).write_bytes(damaged[1])
        try:
            again = fs.Scheduler(resources=("cpu",), journal=bad)
        except fs.JournalError as error:
            assert f"{bad} at record {error.record}: " in str(error)
            assert bad.read_bytes() == damaged[0] and (not log or wal_of(bad).read_bytes() == damaged[1])
            with suppress(fs.JournalError):  # it reads no views
                assert world_of(fs.Scheduler.restore(bad)) == state[0]
            found["refused"] += 1
        else:
            assert (world_of(again), flow_of(again)) == state
            again.journal.close()
            found["the same"] += 1
    print(where, dict(found))
    assert found["refused"]


def test_the_first_round_after_a_restart_is_warm(tmp_path: Path) -> None:
    sched = fs.Scheduler(resources=("cpu",), journal=tmp_path / "journal")
    sched.apply(*(fs.MachineAdded(m, {"cpu": 8}) for m in range(100)))
    sched.apply(*(fs.JobSubmitted(j, [fs.Task((j, i), {"cpu": 1 + j % 3}) for i in range(8)]) for j in range(40)))
    cold = sched.schedule(0.0)
    sched.commit(cold)
    sched.compact()
    sched.apply(fs.TaskCompleted((0, 0)))
    copies = [sched.copy(), reopened(sched), fs.Scheduler.restore(sched.journal.path)]
    assert all(one.recovery.snapshot for one in copies[1:])
    rounds = []
    for one in (sched.copy(), *copies):
        one.apply(fs.JobSubmitted("new", [fs.Task("new", {"cpu": 1})]))
        rounds.append(one.schedule(1.0))
        assert rounds[-1].stats.changes < cold.stats.changes / 10
        assert one.network.solve().stats["warm"]
    assert all(said(rnd) == said(rounds[0]) for rnd in rounds)


def test_compaction_shortens_recovery_and_keeps_the_history_that_is_wanted(tmp_path: Path) -> None:
    sched = small(tmp_path / "journal")
    for k in range(9):
        for i in range(5):
            sched.apply(fs.TaskSubmitted("j", fs.Task((k, i), {"cpu": 1})))
            sched.commit(sched.schedule(k))
            sched.apply(*(fs.TaskCompleted(t) for t, r in sched.cluster.tasks.items() if r.place))
        sched.compact(since=None if k < 6 else k)
        with closing(sqlite3.connect(sched.journal.path)) as reader:
            times = [time for (time,) in reader.execute("SELECT DISTINCT time FROM rounds")]
        assert times == list(range(k + 1) if k < 6 else [k])
        with reading(sched.journal.path, whole=True) as records:
            assert [n for n, _ in records][-1] == sched.journal.store.n
    again = reopened(sched)
    assert again.recovery.snapshot and not again.recovery.rounds
    assert world_of(again) == world_of(sched)


def test_rounds_made_before_a_compaction_cannot_be_committed(tmp_path: Path) -> None:
    sched = small(tmp_path / "journal")
    rnd = sched.schedule(0.0)
    sched.compact()
    with pytest.raises(fs.InputError, match="schedule again"):
        sched.commit(rnd)
    sched.commit(sched.schedule(0.0))
    assert world_of(reopened(sched)) == world_of(sched)


def test_a_refused_event_is_not_in_the_journal_and_those_before_it_are(tmp_path: Path) -> None:
    sched = small(tmp_path / "journal")
    with pytest.raises(fs.DuplicateIdError):
        sched.apply(fs.MachineAdded("n", {"cpu": 1}), fs.MachineAdded("m", {"cpu": 1}), fs.MachineRemoved("n"))
    with pytest.raises(fs.InputError, match="an event expected, got 'no event'"):
        sched.apply("no event")
    again = reopened(sched)
    assert again.cluster.machine_ids() == ["m", "n"]
    assert again.recovery.events == {"MachineAdded": 2, "JobSubmitted": 1}


def test_conflicts_and_parts_are_recovered(tmp_path: Path) -> None:
    sched = small(tmp_path / "journal")
    rnd = sched.schedule(0.0)
    sched.apply(fs.TaskRemoved(0))
    done = sched.commit(rnd)
    assert [delta.task for delta in done.accepted] == [1] and set(done.conflicts) == {0}
    sched.abort(later := sched.schedule(1.0))
    again = reopened(sched)
    assert again.recovery.placed == 1 and again.recovery.rounds == 2
    assert (world_of(again), flow_of(again)) == (world_of(sched), flow_of(sched))
    with pytest.raises(fs.InputError, match="did not make it"):
        again.commit(later)


def test_rounds_that_fail_are_made_again(tmp_path: Path) -> None:
    def broken(cluster, classes, rows):
        if len(cluster.machines) == 2:
            raise ZeroDivisionError
        return np.zeros((len(classes), len(rows)))

    policy = fs.Policy(placement=(fs.CustomCost(broken),))
    sched = small(tmp_path / "journal", policy=policy)
    sched.commit(sched.schedule(0.0))
    sched.apply(fs.MachineAdded("n", {"cpu": 1}))
    with pytest.raises(ZeroDivisionError):
        sched.schedule(1.0)
    sched.apply(fs.MachineAdded("o", {"cpu": 1}))
    sched.commit(sched.schedule(2.0))
    again = reopened(sched, policy=policy)
    assert again.recovery.rounds == 3 and not again.recovery.differences
    assert (world_of(again), flow_of(again)) == (world_of(sched), flow_of(sched))


def test_a_round_that_comes_out_otherwise_is_told_and_the_record_holds(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    costs = [0.0, 1.0]

    def fickle(cluster, classes, rows):
        return np.tile(np.array(costs)[rows], (len(classes), 1))

    policy = fs.Policy(placement=(fs.CustomCost(fickle),))
    sched = fs.Scheduler(policy, ("cpu",), journal=path)
    sched.apply(
        fs.MachineAdded("a", {"cpu": 1}), fs.MachineAdded("b", {"cpu": 1}), fs.JobSubmitted("j", [fs.Task("t")])
    )
    rnd = sched.schedule(0.0)
    sched.commit(rnd)
    sched.schedule(1.0)
    costs.reverse()
    found = fs.replay(path, policy)
    (difference,) = found.differences
    assert difference.round == 1 and difference.what == ("deltas",)
    assert difference.then.placed == difference.now.placed == 1
    again = reopened(sched, policy=policy)
    assert again.cluster.placement("t") == "a"
    assert world_of(again)[1][0][1] == world_of(sched)[1][0][1]


def test_a_round_cut_short_by_its_time_limit_is_recovered(tmp_path: Path) -> None:
    sched = fs.Scheduler(resources=("cpu",), journal=tmp_path / "journal")
    sched.apply(*(fs.MachineAdded(m, {"cpu": 4}) for m in range(50)))
    sched.apply(fs.JobSubmitted("j", [fs.Task(i, {"cpu": 1}) for i in range(300)]))
    sched.commit(sched.schedule(0.0, time_limit=1e-6))
    sched.commit(sched.schedule(1.0, time_limit=1e3))
    sched.commit(sched.schedule(2.0))
    again = reopened(sched)
    assert again.recovery.rounds == 3
    assert [again.cluster.placement(i) for i in range(300)] == [sched.cluster.placement(i) for i in range(300)]


# -- what a journal is asked to be ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"resources": ("cpu", "mem")}, r"resources were \('cpu',\), and are \('cpu', 'mem'\) here"),
        ({"seed": 1}, "seed was 0, and is 1 here"),
        (
            {"policy": fs.Policy(waiting=fs.WaitCost(first=30.0))},
            r"policy\.waiting\.first was 60\.0, and is 30\.0 here",
        ),
        ({"policy": fs.Policy(preemption=None)}, "policy.preemption was PreemptionCost, and is null here"),
        ({"policy": fs.Policy(placement=())}, r"policy\.placement was \[.*\], and is \[\] here"),
    ],
)
def test_another_policy_or_cluster_is_refused(tmp_path: Path, options: dict, message: str) -> None:
    sched = small(tmp_path / "journal")
    sched.journal.close()
    with pytest.raises(fs.JournalMismatchError, match=f"{sched.journal.path} at record 1: {message}"):
        fs.Scheduler(**{"resources": ("cpu",), "journal": sched.journal.path, **options})
    assert world_of(reopened(sched)) == world_of(sched)


def test_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(b"flowsched lag 3\nwhatever comes")
    with pytest.raises(
        fs.JournalMismatchError, match=r"journal at record 0: not a journal or snapshot, or one in another"
    ):
        fs.Scheduler(journal=path)
    assert path.read_bytes() == b"flowsched lag 3\nwhatever comes"
    sched = fs.Scheduler()
    sched.schedule(0.0)
    bodies = records(sched.snapshot())
    other = bodies[1].replace(b"S[", b"S[1", 1)
    with pytest.raises(fs.JournalMismatchError, match="snapshot at record 1: a state in a form that only flowsched"):
        fs.Scheduler.restore(journal_of([bodies[0], other]))
    old = b"flowsched snapshot 3\n" + bytes(12) + b'[{"version":"0.0.9","resources":["cpu"]}'
    for source in (old, tmp_path / "old"):
        (tmp_path / "old").write_bytes(old)
        with pytest.raises(fs.JournalMismatchError, match=r"a snapshot that only flowsched 0\.0\.9 reads"):
            fs.Scheduler.restore(source)
    with pytest.raises(fs.JournalMismatchError, match="snapshot at record 0: nothing is in it"):
        fs.Scheduler.restore(b"")


def near(cluster, classes, rows):
    return np.zeros((len(classes), len(rows)))


def far(cluster, classes, rows):
    return np.ones((len(classes), len(rows)))


def test_parts_of_the_callers_own_are_known_by_name(tmp_path: Path) -> None:
    policy, other = fs.Policy(placement=(fs.CustomCost(near),)), fs.Policy(placement=(fs.CustomCost(far),))
    sched = small(tmp_path / "journal", policy=policy)
    sched.commit(sched.schedule(0.0))
    with pytest.raises(
        fs.JournalMismatchError,
        match=r"placement\[0\]\.function was \S*test_journal\.near, and is \S*test_journal\.far here",
    ):
        reopened(sched, policy=other)
    with pytest.raises(fs.JournalMismatchError, match=r"part of the caller's own, \S*test_journal\.near"):
        fs.replay(sched.journal.path)
    sched = reopened(sched, policy=policy)
    sched.policy = other
    sched.policy = fs.Policy.named("pack")
    with pytest.raises(fs.JournalMismatchError, match=r"at record \d+: the policy has a part .*\S*test_journal\.far"):
        reopened(sched, policy=policy)
    again = fs.Scheduler(policy, ("cpu",), journal=fs.Journal(sched.journal.path, policies=[other]))
    assert again.recovery.policies == 2
    assert describe(again.policy) == describe(fs.Policy.named("pack"))
    again.policy = other
    snapshot = again.snapshot()
    assert fs.Scheduler.restore(snapshot, other).policy is other
    with pytest.raises(fs.JournalMismatchError, match=r"test_journal\.far, and is \S*test_journal\.near here"):
        fs.Scheduler.restore(snapshot, policy)
    again.compact()
    again.journal.close()
    last = fs.Scheduler(policy, ("cpu",), journal=fs.Journal(sched.journal.path, policies=[other]))
    assert last.policy is other


@pytest.mark.parametrize("make", POLICIES)
def test_policies_are_read_back(make) -> None:
    words = describe(make())
    assert decode(encode(words), "", 0) == words
    assert describe(rebuild(words)) == words


def test_a_fit_rule_and_a_journal_exclude_each_other(tmp_path: Path) -> None:
    sched = small(tmp_path / "journal")
    sched.cluster.inventory.rule = object()
    with pytest.raises(fs.InputError, match="a fit rule"):
        sched.schedule(0.0)
    with pytest.raises(fs.InputError, match="a fit rule"):
        sched.copy()


# -- records ----------------------------------------------------------------------------------------------------------

IDS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5), lambda ids: st.lists(ids, max_size=3).map(tuple),
    max_leaves=4,
)  # fmt: skip
AMOUNT = st.integers(0, 9) | st.floats(0, 9)
AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "mem"]), AMOUNT) | st.tuples(AMOUNT, AMOUNT)
LABELS = st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2)
ALLOWED = st.dictionaries(st.text(max_size=3), st.lists(st.text(max_size=3), max_size=2), max_size=2)
TASKS = st.builds(
    fs.Task, IDS, AMOUNTS, ALLOWED, IDS, st.lists(st.tuples(IDS, AMOUNT), max_size=2).map(tuple), ALLOWED,
    st.none() | st.integers(1, 3), st.lists(IDS, max_size=2),
)  # fmt: skip
RUNS = st.none() | st.integers(0, 2**40)
TIMES = st.none() | st.floats(-9, 9) | st.integers(-9, 9)
EVENTS = st.one_of(
    st.builds(fs.MachineAdded, IDS, AMOUNTS, IDS, LABELS, st.none() | st.integers(0, 3), time=TIMES),
    st.builds(fs.MachineUpdated, IDS, st.none() | AMOUNTS, IDS, st.none() | LABELS, st.none() | st.integers(0, 3), time=TIMES),
    st.builds(fs.JobSubmitted, IDS, st.lists(TASKS, max_size=2).map(tuple), IDS, st.integers(-3, 3), st.none() | st.integers(1, 3), TIMES),
    st.builds(fs.TaskSubmitted, IDS, TASKS), st.builds(fs.TaskStarted, IDS, IDS, st.none() | st.lists(st.integers(0, 3)).map(tuple)),
    st.builds(fs.TaskFailed, IDS, st.booleans(), RUNS, st.booleans(), time=TIMES), st.builds(fs.TaskCompleted, IDS, RUNS), st.builds(fs.UserAdded, IDS, AMOUNT), st.builds(fs.UsageSampled, IDS, AMOUNTS, st.none() | st.floats(0, 1)),
)  # fmt: skip


@given(event=EVENTS)
def test_events_come_back_as_they_were(event: fs.Event) -> None:
    record = words(event).encode("ascii")
    again = from_dict(decode(record, "", 0))
    assert again == event and to_dict(again) == to_dict(event)
    assert record == encode(spelt(event)), "the form of all journals so far"


def spelt(thing: fs.Event | fs.Task) -> dict:
    """The fields that have not their defaults, by the definition."""
    told = {"kind": type(thing).__name__} if isinstance(thing, fs.Event) else {}
    for field in dataclasses.fields(thing):
        value = getattr(thing, field.name)
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        empty = isinstance(value, Mapping) and isinstance(default, Mapping) and not value
        if not empty and not (type(value) is type(default) and value == default):
            tasks = value if field.name == "tasks" else ()
            told[field.name] = [spelt(task) for task in tasks] or (
                spelt(value) if isinstance(value, fs.Task) else plain(value)
            )
    return told


NUMPY = st.sampled_from(
    [np.int64(7), np.float64(0.5), np.float32(0.5), np.uint8(3), np.bool_(True), np.array([1, 2]), np.str_("n\u00fc")]
)
SMALL = (
    IDS
    | NUMPY
    | st.sampled_from(
        [fs.ReasonCode.HELD, 2**63, -(2**64), 2**10_001, "\ud800", "\U0001f600", b"bytes", frozenset(), float("inf")]
    )
)
VALUES = st.recursive(
    SMALL, lambda deeper: st.lists(deeper, max_size=3) | st.lists(deeper, max_size=3).map(tuple) | st.dictionaries(st.text(max_size=2) | st.integers(), deeper, max_size=2)
    | st.dictionaries(st.text(max_size=2), deeper, max_size=2).map(MappingProxyType), max_leaves=6,
)  # fmt: skip


def test_equal_demands_are_written_as_they_were_given() -> None:
    """The text of one demand is not that of another one that is equal to it."""
    demands = [
        {"cpu": 1},
        {"cpu": 1.0},
        {"cpu": 1},
        {"cpu": np.int64(1)},
        {"cpu": 1.0, "mem": 2},
        {"mem": 2, "cpu": 1.0},
        [1, 2],
        {},
    ]
    tasks = [fs.Task(i, demand) for i, demand in enumerate(demands)]
    for order in (tasks, tasks[::-1], [one for one in tasks for _ in range(2)]):
        event = fs.JobSubmitted("j", order)
        assert words(event).encode() == encode(spelt(event))


@given(value=VALUES)
def test_words_are_the_text_of_plain_values(value) -> None:
    """What is refused is refused alike."""
    try:
        expected = encode(plain(value)).decode()
    except fs.InputError as refusal:
        with pytest.raises(fs.InputError) as again:
            words(value)
        assert str(again.value) == str(refusal)
    else:
        assert words(value) == expected


@pytest.mark.parametrize("deep", [90, 101, 500, 100_000])
def test_words_of_nested_ids(deep: int) -> None:
    """However deep, the stack holds."""
    value: tuple | list = ()
    for _ in range(deep):
        value = (value,)
    if deep < 1000:
        assert words(value) == "[" * (deep + 1) + "]" * (deep + 1)
    else:
        with pytest.raises(RecursionError):
            words(value)
    while value:  # piece by piece: freeing it at once would take the stack, too
        (value,) = value


@given(task=IDS, machine=IDS, by=IDS, old=IDS, devices=st.lists(st.integers(0, 9)).map(tuple))
def test_deltas_come_back_as_they_were(task, machine, by, old, devices) -> None:
    deltas = (Preempt(task, machine, by), Migrate(task, old, machine, devices, by), Place(task, machine, devices))
    assert deltas_of(decode(delta_words(deltas).encode(), "", 0)) == deltas
    spelt = [["p", task, machine, by], ["m", task, old, machine, devices, by], ["s", task, machine, devices]]
    assert delta_words(deltas).encode() == encode(plain(spelt)), "the form of all journals so far"


class OwnTask(fs.Task):
    """A task of a caller's own class, which has nothing more to say."""


def test_tasks_of_own_classes_come_back_as_tasks(tmp_path: Path) -> None:
    sched = small(tmp_path / "journal")
    sched.apply(fs.JobSubmitted("own", [OwnTask("o", {"cpu": 1}), fs.Task("p", {"cpu": 1})]))
    kinds = {cls.kind for cls in sched.cluster.by_class.values()}
    assert {cls.kind for cls in reopened(sched).cluster.by_class.values()} == kinds == {None}


def test_ids_of_other_kinds_are_refused_before_anything_happens(tmp_path: Path) -> None:
    sched = small(tmp_path / "journal")
    before = world_of(sched)
    for event in (
        fs.MachineAdded(frozenset("ab"), {"cpu": 1}),
        fs.JobSubmitted("k", [fs.Task(b"bytes")]),
        fs.MachineAdded("x", {"cpu": 1}, labels={1: "one"}),
    ):
        with pytest.raises(fs.InputError, match="a journal can only hold"):
            sched.apply(event)
    assert world_of(sched) == before
    sched.apply(fs.MachineAdded(np.int64(7), {"cpu": np.float64(1.5)}), fs.MachineAdded(8, np.array([2])))
    assert reopened(sched).cluster.machine_ids() == ["m", 7, 8]
    assert as_ids([1, ["a", [None]]]) == (1, ("a", (None,)))


def test_an_image_brings_nothing_but_state(tmp_path: Path) -> None:
    """Neither code nor classes of others are read from a snapshot, whatever its checksums say."""
    bodies = records(fs.Scheduler().snapshot())
    front, _, _ = bodies[1].partition(b"\n")
    for evil in (os.system, fs.hrm.Store, fs.network.certify, eval):
        image = journal_of([bodies[0], front + b"\n" + pickle.dumps(evil)])
        with pytest.raises(fs.CorruptJournalError, match="the checkpoint is damaged"):
            fs.Scheduler.restore(image)


def test_durability_is_as_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(os, "fdatasync", calls.append, raising=False)
    counts = {}
    for level in ("process", "group", "power"):
        sched = fs.Scheduler(resources=("cpu",), journal=fs.Journal(tmp_path / level, durability=level))
        calls.clear()
        sched.apply(fs.MachineAdded("m", {"cpu": 1}), fs.JobSubmitted("j", [fs.Task("t")]))
        applied = len(calls)
        sched.commit(sched.schedule(0.0))
        committed = len(calls)
        for _ in range(2):
            sched.journal.wait()
        counts[level] = applied, committed, len(calls)
    assert counts == {"process": (0, 0, 0), "group": (0, 0, 1), "power": (1, 2, 2)}
    with pytest.raises(fs.InputError, match="durability: 'process', 'power' or 'group' expected, got 'often'"):
        fs.Journal("x", durability="often")


def test_what_cannot_be_written_down_does_not_happen(tmp_path: Path) -> None:
    sched = small(tmp_path / "journal")
    rnd = sched.schedule(0.0)
    with pytest.raises(fs.InputError, match="a journal can only hold ids"):
        sched.commit(rnd, only={0, frozenset()})
    assert sched.cluster.placement(0) is None
    share = fs.SequenceShare()
    share.witness = object()
    before = sched.policy
    with pytest.raises(fs.InputError, match="can be written down"):
        sched.policy = fs.Policy(fairness=fs.Fairness(share))
    assert sched.policy is before
    sched.policy = fs.Policy(fairness=fs.Fairness(fs.SequenceShare()))
    sched.policy = before
    sched.commit(rnd, only={0})
    again = reopened(sched)
    assert (world_of(again), flow_of(again)) == (world_of(sched), flow_of(sched))


def test_a_scheduler_that_lost_its_journal_decides_nothing(tmp_path: Path) -> None:
    sched = small(tmp_path / "journal")
    sched.commit(sched.schedule(0.0))
    sched.journal.close()
    with pytest.raises(fs.JournalError, match="is closed"):
        sched.apply(fs.TaskCompleted(0))
    with pytest.raises(fs.InputError, match="has no journal"):
        fs.Scheduler().compact()
    assert replace(fs.replay(tmp_path / "journal"), seconds=0).placed == 2


def test_an_interrupt_as_a_journal_is_opened_is_what_comes_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing what was not open opened it a second time, and that error came out."""
    opened: list[Path] = []

    def interrupted(path: Path, standby: bool) -> None:
        opened.append(path)
        raise KeyboardInterrupt if len(opened) == 1 else fs.InputError("in use by another scheduler")

    monkeypatch.setattr("flowsched.journal.journal.Store", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fs.Scheduler(journal=tmp_path / "journal")
    assert len(opened) == 1
