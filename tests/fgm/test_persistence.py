"""What FGM knows survives: journals, snapshots, copies and questions of FineGrained."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from effort import FUZZ, effort
from fgm_lives import FineLife, born, fine_operations, known_of
from fgm_worlds import NAMES, known, submit
from hypothesis import given, settings
from hypothesis import strategies as st
from journal_rows import journal_of, records
from lives import POLICIES, flow_of, live_alike, said, world_of

import flowsched as fs
from flowsched import cli
from flowsched.fgm import Adjustment, DemandEstimator, FineGrained, Level, Stages, StageShare
from flowsched.journal.released import converted
from flowsched.rounds import Preempt
from flowsched.sim.baselines import Greedy
from flowsched.sim.orders import fifo

ONE = {"k": Stages([10], [[1.0, 1.0]])}


def state_of(fine: FineGrained) -> tuple:
    return world_of(fine), flow_of(fine), known_of(fine)


@settings(max_examples=effort(4, 300))
@given(seed=st.integers(0, 2**32), count=st.integers(0, 80))
def test_a_recovered_one_is_the_one_that_ended(tmp_path_factory, seed: int, count: int) -> None:
    path = tmp_path_factory.mktemp("life") / "journal"
    fine = born(seed, path)
    said_so = Counter(name.split()[0] for name in fine_operations(seed, fine, count))
    fine.journal.close()
    again = born(seed, path)
    assert not again.recovery.differences
    assert again.recovery.snapshot == again.recovery.warm == bool(said_so["compact"])
    assert state_of(again) == state_of(fine)
    plain = born(seed)
    list(fine_operations(seed, plain, count))
    assert state_of(plain) == state_of(fine), "a journal changes nothing"
    for now in (1e3, 1e4):
        rnd, without = again.schedule(now), plain.schedule(now)
        assert said(rnd) == said(without)
        again.commit(rnd)
        plain.commit(without)
    assert known_of(again) == known_of(plain)
    replayed = FineGrained.restore(path).recovery
    assert replayed.rounds == again.recovery.rounds + 2 and not replayed.differences


MAKERS = [
    *(lambda _, make=make: make() for make in POLICIES),
    lambda fine: replace(fine.policy, fairness=fs.Fairness(StageShare(fine), over="user", within=fs.MaxMin())),
    lambda fine: replace(fine.policy, fairness=fs.Fairness(StageShare(fine, fs.DRF()), mode="ladder")),
]


@settings(max_examples=effort(6, 200))
@given(seed=st.integers(0, 2**32), before=st.integers(0, 30))
def test_a_restored_one_and_a_copy_make_the_same_rounds(seed: int, before: int) -> None:
    life, fine = FineLife(seed), born(seed)
    live_alike(life, fine, (), before, MAKERS)
    snapshot = fine.snapshot()
    others = FineGrained.restore(snapshot), fine.copy()
    for one in others:
        assert state_of(one) == state_of(fine)
    live_alike(life, fine, others, 15, MAKERS)
    for one in others:
        assert state_of(one) == state_of(fine)


@settings(max_examples=effort(6, 200))
@given(seed=st.integers(0, 2**32), before=st.integers(0, 30))
def test_a_question_gets_the_later_round_and_leaves_no_trace(seed: int, before: int) -> None:
    life, fine = FineLife(seed), born(seed)
    live_alike(life, fine, (), before, MAKERS)
    state = state_of(fine)
    events, now = life.events(fine), life.later()
    answer = fine.what_if(*events, now=now)
    assert state_of(fine) == state
    fine.apply(*events)
    assert said(answer) == said(fine.schedule(now))
    with pytest.raises(fs.InputError, match="aborted"):
        fine.commit(answer)


def test_recovery_from_every_prefix(tmp_path: Path) -> None:
    seed, path, cut = 29, tmp_path / "journal", tmp_path / "cut"
    fine = born(seed, path)
    log = path.with_name("journal-wal")
    states = {log.stat().st_size: state_of(fine)}
    for name in fine_operations(seed, fine, 25):
        assert name != "compact"
        if fine.journal.records == fine.journal.store.n:  # else a round waits for its commit
            states[log.stat().st_size] = state_of(fine)
    main, data = path.read_bytes(), log.read_bytes()
    ends = sorted({end + near for end in states for near in (-1, 0, 1) if end + near <= len(data)})
    for size in range(len(data) + 1) if FUZZ else ends[::3]:
        cut.write_bytes(main)
        cut.with_name("cut-wal").write_bytes(data[:size])
        again = born(seed, cut)
        if size in states:
            assert state_of(again) == states[size]
        again.journal.close()


# -- what it is begun with ------------------------------------------------------------------------------------------


def small(path: Path | fs.Journal, **options) -> FineGrained:
    fine = FineGrained(fs.Scheduler(resources=NAMES), estimator=known(ONE), journal=path, **options)
    if fine.recovery is None:
        submit(fine, 6, cpu=2.0)
        fine.commit(fine.schedule(0.0))
    return fine


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"contention": 0.5}, "FineGrained.contention was 0.0, and is 0.5 here"),
        ({"threshold": 0.1}, "FineGrained.threshold was 0.2, and is 0.1 here"),
        ({"min_length": 0.1}, "FineGrained.min_length was 0.05, and is 0.1 here"),
        ({"idle": 0.1}, "FineGrained.idle was 0.0, and is 0.1 here"),
        ({"highest": Level.FINE}, "FineGrained.highest was 4, and is 3 here"),
        ({"compressible": {"cpu": 0.2}}, r"FineGrained.compressible.items\[0\]\[1\] was 0.1, and is 0.2 here"),
        ({"adjustment": Adjustment(keep=3)}, "FineGrained.adjustment.keep was 5, and is 3 here"),
        ({"weight": 2.0}, r"policy.placement\[\d\].weight was 1.0, and is 2.0 here"),
        ({"estimator": DemandEstimator(NAMES, points=12)}, "FineGrained.estimator.cold was 1, and is 3 here"),
        (
            {"estimator": DemandEstimator(NAMES, points=12, cold=1, safety={"mem": 1})},
            "FineGrained.estimator.safety.items was",
        ),
    ],
)
def test_other_settings_are_refused(tmp_path: Path, options: dict, message: str) -> None:
    fine = small(tmp_path / "journal")
    fine.journal.close()
    path = fine.journal.path
    with pytest.raises(fs.JournalMismatchError, match=f"{path} at record 1: {message}"):
        FineGrained(fs.Scheduler(resources=NAMES), **{"estimator": known(ONE), "journal": path, **options})
    assert state_of(small(path)) == state_of(fine)


def test_who_has_no_adapter_reads_no_journal_of_one_and_the_other_way_round(tmp_path: Path) -> None:
    fine = small(tmp_path / "fine")
    fine.journal.close()
    sched = fs.Scheduler(resources=NAMES, journal=tmp_path / "plain")
    sched.journal.close()
    for read in (
        lambda: fs.Scheduler(resources=NAMES, journal=tmp_path / "fine"),
        lambda: fs.replay(tmp_path / "fine"),
        lambda: fs.Scheduler.restore(fine.snapshot()),
    ):
        with pytest.raises(fs.JournalMismatchError, match="it is of a FineGrained, and is read by a Scheduler here"):
            read()
    for read in (
        lambda: FineGrained(fs.Scheduler(resources=NAMES), journal=tmp_path / "plain"),
        lambda: FineGrained.restore(sched.snapshot()),
    ):
        with pytest.raises(fs.JournalMismatchError, match="it is of a Scheduler, and is read by a FineGrained here"):
            read()


def test_everything_is_told_to_the_adapter_once_it_has_a_journal(tmp_path: Path) -> None:
    fine = small(tmp_path / "journal")
    sched, size = fine.scheduler, fine.journal.records
    for tell in (
        lambda: sched.apply(fs.MachineAdded("n", {"cpu": 1})),
        lambda: sched.schedule(1.0),
        lambda: sched.commit(fine.schedule(1.0)),
        lambda: setattr(sched, "policy", fs.Policy()),
        sched.compact,
    ):
        with pytest.raises(fs.InputError, match="its adapter keeps the journal, and has to be told instead"):
            tell()
    for ask in (sched.snapshot, sched.copy, lambda: sched.what_if(now=1.0)):
        with pytest.raises(fs.InputError, match="ask its adapter"):
            ask()
    assert size < fine.journal.records  # the round that was to be committed
    fine.journal.close()
    assert state_of(small(fine.journal.path)) == state_of(fine)


def test_what_cannot_have_a_journal_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    greedy = FineGrained(Greedy(fifo, NAMES))
    for call in (greedy.copy, greedy.snapshot):
        with pytest.raises(fs.InputError, match=r"only over a flowsched\.Scheduler"):
            call()
    lived = fs.Scheduler(resources=NAMES)
    lived.apply(fs.MachineAdded("m", {"cpu": 1}))
    for sched in (lived, Greedy(fifo, NAMES)):
        with pytest.raises(fs.InputError, match=r"journal: over a flowsched\.Scheduler to which nothing has happened"):
            FineGrained(sched, journal=path)
    with pytest.raises(fs.InputError, match="it has a journal, which has to be given to FineGrained instead"):
        FineGrained(fs.Scheduler(resources=NAMES, journal=tmp_path / "other"))
    assert not path.exists()
    fine = small(path)
    with pytest.raises(fs.InputError, match="estimator: what it learns is in the journal of another"):
        FineGrained(fs.Scheduler(resources=NAMES), estimator=fine.estimator, journal=tmp_path / "third")


# -- what it knows --------------------------------------------------------------------------------------------------


def test_the_estimator_knows_what_it_knew_and_has_learnt_since(tmp_path: Path) -> None:
    """Whatever was known to the one that is given."""
    fine = small(tmp_path / "journal")
    fine.estimator.observe(("new", 1), [0.5, 0.5], 5.0)
    fine.estimator.observe(("new", 2), [[0.5, 0.5]] * 12, [1.0] * 12, [0.0] * 12)
    fine.estimator.update(1)
    fine.apply(fs.UsageSampled("t0", {"cpu": 0.25, "mem": 0.5}, time=2.0), fs.TaskCompleted("t0", time=4.0))
    fine.learn()
    fine.estimator.observe("later", [1, 1], 1.0)
    with pytest.raises(fs.InputError, match="a journal can only hold ids"):
        fine.estimator.observe(frozenset("k"), [1, 1], 1.0)
    fine.journal.close()
    with pytest.raises(fs.JournalError, match="is closed"):
        fine.estimator.observe("lost", [1, 1], 1.0)
    estimator = DemandEstimator(NAMES, points=12, cold=1)
    estimator.observe("else", [9, 9], 9.0)
    estimator.update()
    again = FineGrained(fs.Scheduler(resources=NAMES), estimator=estimator, journal=fine.journal.path)
    assert again.estimator is estimator and estimator.profile("else") is None
    assert state_of(again) == state_of(fine)
    again.compact()
    estimator.observe("last", [1, 1], 1.0)  # the estimator still teaches the one that uses it
    again.journal.close()
    last = small(again.journal.path)
    assert last.recovery.snapshot and state_of(last) == state_of(again)
    last.learn()
    assert last.estimator.profile("last") is not None


def test_questions_that_make_it_look_are_recovered(tmp_path: Path) -> None:
    """A question makes timelines be computed sooner than the next round would have."""
    fine = small(tmp_path / "journal")
    fine.apply(
        fs.TaskCompleted("t0", time=3.0), fs.JobSubmitted("l", [fs.Task("l0", {"cpu": 1}, kind="new")], time=3.0)
    )
    size = fine.journal.records
    assert fine.explain("t5").code == fs.ReasonCode.PENDING
    assert fine.journal.records > size
    assert fine.cluster.fits("l0").tolist() == [0] or fine.journal.records > size
    size = fine.journal.records
    fine.explain("t5")
    assert fine.journal.records == size, "once it has looked, it has seen"
    fine.journal.close()
    again = small(fine.journal.path)
    assert state_of(again) == state_of(fine)
    assert said(again.schedule(5.0)) == said(fine.copy().schedule(5.0))


def near(cluster, classes, rows):
    return np.zeros((len(classes), len(rows)))


def test_policies_may_have_parts_of_the_adapter_and_of_the_caller(tmp_path: Path) -> None:
    policy, path = fs.Policy(placement=(fs.CustomCost(near),)), tmp_path / "journal"
    fine = FineGrained(fs.Scheduler(policy, NAMES), estimator=known(ONE), journal=path)
    fine.policy = replace(fine.policy, fairness=fs.Fairness(StageShare(fine, fs.DRF()), over="user"))
    submit(fine, 6, cpu=2.0)
    fine.commit(fine.schedule(0.0))
    fine.journal.close()
    again = FineGrained(fs.Scheduler(policy, NAMES), estimator=known(ONE), journal=path)
    assert state_of(again) == state_of(fine)
    assert again.policy.placement[0].function is near
    assert again.policy.placement[1]._fine is again.engine and again.policy.fairness.share._fine is again.engine
    copied = again.copy()
    assert copied.policy.placement[1]._fine is copied.engine and copied.policy.fairness.share._fine is copied.engine
    assert state_of(FineGrained.restore(path, policy)) == state_of(FineGrained.restore(path, policies=[policy]))
    with pytest.raises(fs.JournalMismatchError, match=r"part of the caller's own, \S*test_persistence\.near"):
        FineGrained.restore(path)
    other = FineGrained(fs.Scheduler(policy, NAMES), estimator=known(ONE), journal=tmp_path / "other")
    other.policy = replace(other.policy, fairness=fs.Fairness(StageShare(other, fs.MaxMin())))
    assert other.snapshot() != again.snapshot()


def in_trouble(path: Path, policy: fs.Policy) -> FineGrained:
    """A machine where more is used than was expected, until the youngest has to go."""
    fine = FineGrained(
        fs.Scheduler(policy, NAMES), estimator=known(ONE), adjustment=Adjustment(degraded=1.5), journal=path
    )
    if fine.recovery is None:
        submit(fine, 2, cpu=1.0)
        fine.commit(fine.schedule(0.0))
        for task in ("t0", "t1"):
            fine.apply(fs.UsageSampled(task, {"cpu": 2.0, "mem": 1.0}, time=1.0))
        fine.apply(fs.MachineSampled("m", {"cpu": 4.0, "mem": 2.0}, time=16.0))
    return fine


def test_what_was_stopped_for_its_machines_sake_is_recovered(tmp_path: Path) -> None:
    """Also where the round comes out otherwise than it did."""
    costs = [0.25]

    def fickle(cluster, classes, rows):
        return np.full((len(classes), len(rows)), costs[0])

    policy = fs.Policy(placement=(fs.CustomCost(fickle),))
    fine = in_trouble(tmp_path / "journal", policy)
    fine.apply(fs.MachineAdded("n", {"cpu": 2, "mem": 8}), fs.JobSubmitted("l", [fs.Task("l0", {"cpu": 1, "mem": 1})]))
    rnd = fine.schedule(16.0)
    (victim,) = rnd.preemptions
    assert Preempt(victim, "m", None) in rnd.deltas and rnd.placements
    run = fine.cluster.task(victim).run
    done = fine.commit(rnd)
    assert done.accepted == rnd.deltas
    assert done.ended == ((victim, run, "m", "Preempt"),) and done.runs.keys() == rnd.placements.keys()
    fine.journal.close()
    again = in_trouble(tmp_path / "journal", policy)
    assert state_of(again) == state_of(fine) and again.recovery.preempted == 1
    again.journal.close()
    costs[0] = 0.75
    other = in_trouble(tmp_path / "journal", policy)
    assert {difference.what for difference in other.recovery.differences} == {("cost",)}
    assert (world_of(other), known_of(other)) == (world_of(fine), known_of(fine))


def test_an_aborted_round_stops_nobody(tmp_path: Path) -> None:
    fine = in_trouble(tmp_path / "journal", fs.Policy())
    rnd = fine.schedule(16.0)
    assert rnd.preemptions
    fine.abort(rnd)
    with pytest.raises(fs.InputError, match="aborted"):
        fine.commit(rnd)


def test_rounds_cut_short_are_told_as_such(tmp_path: Path) -> None:
    fine = FineGrained(fs.Scheduler(resources=NAMES), estimator=known(ONE), journal=tmp_path / "journal")
    fine.apply(*(fs.MachineAdded(m, {"cpu": 4, "mem": 16}) for m in range(40)))
    fine.apply(fs.JobSubmitted("j", [fs.Task(i, {"cpu": 1, "mem": 1}, kind="k") for i in range(200)]))
    fine.commit(fine.schedule(0.0, time_limit=1e-6))
    fine.commit(fine.schedule(1.0))
    fine.journal.close()
    again = FineGrained.restore(fine.journal.path)
    assert all("time limit" in difference.what for difference in again.recovery.differences)
    assert [again.cluster.placement(i) for i in range(200)] == [fine.cluster.placement(i) for i in range(200)]


def test_an_image_brings_nothing_but_state() -> None:
    bodies = records(born(0).snapshot())
    front, _, _ = bodies[1].partition(b"\n")
    for evil in (FineGrained, fs.hrm.Store, fs.fgm.divide_stages, StageShare, print):
        image = journal_of([bodies[0], front + b"\n" + pickle.dumps(evil)])
        with pytest.raises(fs.CorruptJournalError, match="the checkpoint is damaged"):
            FineGrained.restore(image)
    other = bodies[1].replace(b"S[", b"S[1", 1)
    with pytest.raises(fs.JournalMismatchError, match="a state in a form that only flowsched"):
        FineGrained.restore(journal_of([bodies[0], other]))


def test_the_command_replays_it(tmp_path: Path) -> None:
    fine = small(tmp_path / "journal")
    fine.journal.close()
    done = CliRunner().invoke(cli.application(), ["replay", str(fine.journal.path)])
    assert done.exit_code == 0, done.output
    assert "FineGrained" in done.output


def test_what_a_refused_event_leaves_is_recovered(tmp_path: Path) -> None:
    fine = small(tmp_path / "journal")
    fine.apply(fs.MachineAdded("n", {"cpu": 4, "mem": 16}, time=1.0))
    for events in (
        [fs.TaskStarted("nobody", "m", time=3.0)],
        [fs.TaskCompleted("t0", time=4.0), fs.TaskStarted("nobody", "n", time=4.0)],
        [fs.TaskFailed("t1", time=5.0), fs.TaskStarted("nobody", "m", time=6.0)],
    ):
        with pytest.raises(fs.UnknownTaskError):
            fine.apply(*events)
    fine.journal.close()
    again = small(fine.journal.path)
    assert state_of(again) == state_of(fine)
    assert again.cluster.inventory.clock == fine.cluster.inventory.clock
    assert (again.cluster.inventory.version == fine.cluster.inventory.version).all()


def test_a_journal_of_the_first_builds_is_read() -> None:
    """Its records call classes of estimates by names and numbers that they no longer have."""
    again = FineGrained.restore(converted(Path(__file__).parents[1] / "data" / "fgm-0.1.journal"))
    found = again.recovery
    assert (found.rounds, found.commits, found.policies, found.placed) == (2, 2, 1, 3)
    assert {task: again.cluster.placement(task) for task in again.cluster.tasks} == {
        1: "m1",
        2: "m1",
        3: None,
        "big": None,
    }
    profile = again.estimator.profile(("sort", 3.0))
    assert profile.samples == 2 and profile.seconds.round(3).tolist() == [4.76, 5.32]
    assert again.estimator.profile("scan").demand[:, 0].tolist() == [2, 1]


def test_numbers_of_machines_and_classes_that_are_gone_are_left_out() -> None:
    """As after a state that was read from lines, where some have other numbers."""
    fine = FineGrained(fs.Scheduler(resources=NAMES), estimator=known(ONE))
    fine.apply(fs.MachineAdded("m", {"cpu": 1, "mem": 1}))
    for words in (("look", (0, 7)), ("touch", (0, 7), 1.0), ("move", (0, 7), 1.0), ("needs", 7)):
        fine.engine.replay_record(words)
    with pytest.raises(fs.InputError, match="does not know what"):
        fine.engine.replay_record(("other",))
