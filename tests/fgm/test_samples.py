"""What FGM makes of samples of machines: load that is not ours, and how far estimates can be trusted."""

from __future__ import annotations

import pytest
from fgm_worlds import NAMES, known, submit
from hypothesis import given
from hypothesis import strategies as st

import flowsched as fs
from flowsched.cluster.events import Event, MachineSampled, UsageSampled
from flowsched.fgm import Adjustment, DemandEstimator, FineGrained, Level, Stages, conformity, time_weighted_mean
from flowsched.rounds import Preempt


def test_foreign_load_is_left_alone() -> None:
    fine = FineGrained(fs.Scheduler(resources=NAMES), estimator=known({"k": Stages([10], [[1.0, 1.0]])}))
    submit(fine, 8, cpu=1.0)
    for second in range(5):
        fine.apply(MachineSampled("m", {"cpu": 3.0, "mem": 4.0}, time=float(second)))
    decided = fine.schedule(5.0)
    assert len(decided.placements) == 1
    fine.commit(decided)
    for second in range(5, 10):
        (task,) = decided.placements
        fine.apply(UsageSampled(task, {"cpu": 1.0, "mem": 1.0}, time=float(second)))
        fine.apply(MachineSampled("m", {"cpu": 1.0, "mem": 1.0}, time=float(second)))
    assert len(fine.schedule(10.0).placements) == 3


def sampled(
    used: float, adjustment: Adjustment | None = None, tasks: int = 2, policy: fs.Policy | None = None
) -> FineGrained:
    """Two tasks that should use 1 core each, on a machine that is seen to use more."""
    estimator = known({"k": Stages([10], [[1.0, 1.0]])})
    fine = FineGrained(fs.Scheduler(policy, NAMES), estimator=estimator, adjustment=adjustment)
    submit(fine, tasks, cpu=1.0)
    fine.commit(fine.schedule(0.0))
    for task in [f"t{i}" for i in range(tasks)]:
        fine.apply(UsageSampled(task, {"cpu": used / tasks, "mem": 1.0}, time=1.0))
    fine.apply(MachineSampled("m", {"cpu": used, "mem": 2.0}, time=1.0))
    return fine


@pytest.mark.parametrize(
    ("used", "level"), [(2.0, Level.COMPRESSED), (3.5, Level.COMPRESSED), (3.9, Level.STOP), (4.0, Level.STOP)]
)
def test_a_machine_in_trouble_is_matched_less_finely(used: float, level: Level) -> None:
    """While a tenth is idle, nothing is wrong; then 1.9 of 4 cores beyond the estimate are too much."""
    fine = sampled(used)
    assert fine.level("m") == level
    fine.apply(fs.JobSubmitted("more", [fs.Task("late", {"cpu": 0.1, "mem": 0.1})]))
    assert bool(fine.schedule(1.0).placements) == (level != Level.STOP)


def test_what_has_degraded_is_reclaimed() -> None:
    fine = sampled(4.0, Adjustment(degraded=1.5))
    assert not fine.schedule(2.0).preemptions
    fine.apply(MachineSampled("m", {"cpu": 4.0, "mem": 2.0}, time=16.0))
    decided = fine.schedule(16.0)
    (victim,) = decided.preemptions
    assert decided.deltas == (Preempt(victim, "m", None),)
    done = fine.commit(decided)
    assert done.accepted == decided.deltas
    assert fine.cluster.task_state(victim) == "waiting"
    again = fine.commit(decided)
    assert not again.accepted
    assert again.conflicts[victim].detail == {"task": {"moved on": 1}}


@pytest.mark.parametrize("graceful", [False, True])
def test_an_evicted_run_holds_its_room_until_it_has_stopped_where_the_policy_is_graceful(graceful: bool) -> None:
    fine = sampled(4.0, policy=fs.Policy(preemption=fs.PreemptionCost(graceful=graceful)))
    fine.apply(MachineSampled("m", {"cpu": 4.0, "mem": 2.0}, time=16.0))
    decided = fine.schedule(16.0)
    (victim,) = decided.preemptions
    run = fine.cluster.task(victim).run
    assert fine.commit(decided).ended[0].run == run
    assert list(fine.cluster.stopping) == [run] * graceful
    for second in range(6):  # the machine calms down, so tasks may start there again
        fine.apply(MachineSampled("m", {"cpu": 1.0, "mem": 1.0}, time=17.0 + second))
    assert (victim in fine.schedule(23.0).placements) != graceful
    if graceful:
        fine.apply(fs.TaskStopped(victim, run, time=24.0))
        assert not fine.cluster.stopping and victim in fine.schedule(24.0).placements


# -- what is not told --------------------------------------------------------------------------------------------------


def test_what_is_never_measured_is_taken_to_be_what_is_asked_for() -> None:
    """Not to be nothing, or memory that no sample tells of would be given away."""
    fine = FineGrained(fs.Scheduler(resources=NAMES), estimator=DemandEstimator(NAMES, cold=1))
    submit(fine, 8, cpu=1.0, mem=8.0)
    first = fine.schedule(0.0)
    fine.commit(first)
    assert len(first.placements) == 2
    for task in first.placements:
        fine.apply(UsageSampled(task, {"cpu": 0.5}, time=1.0), fs.TaskCompleted(task, time=10.0))
    fine.learn()
    profile = fine.estimator.profile("k")
    assert profile is not None
    assert profile.demand[0].tolist() == pytest.approx([0.5, 8.0])
    assert len(fine.schedule(10.0).placements) == 2


@pytest.mark.parametrize("machine", [{"cpu": 1.0}, {"cpu": 1.0, "mem": 4.0}])
@pytest.mark.parametrize("task", [{"cpu": 1.0}, {"cpu": 1.0, "mem": 4.0}])
def test_of_what_is_not_measured_others_use_nothing(machine: dict[str, float], task: dict[str, float]) -> None:
    fine = FineGrained(fs.Scheduler(resources=NAMES), estimator=known({"k": Stages([10], [[1.0, 4.0]])}))
    submit(fine, 5, cpu=1.0, mem=4.0)
    fine.apply(fs.TaskStarted("t0", "m", time=0.0))
    fine.apply(UsageSampled("t0", task, time=1.0), fs.MachineSampled("m", machine, time=1.0))
    assert fine.level("m") == Level.COMPRESSED
    assert len(fine.schedule(1.0).placements) == 3


# -- machines that go and come ---------------------------------------------------------------------------------------


def in_trouble() -> FineGrained:
    """A machine that others use, until nothing is idle and nothing may start there."""
    fine = FineGrained(fs.Scheduler(resources=NAMES), estimator=known({"k": Stages([10], [[1.0, 1.0]])}), idle=0.05)
    submit(fine, 4, cpu=1.0, mem=1.0)
    for second in range(5):
        fine.apply(MachineSampled("m", {"cpu": 4.0, "mem": 8.0}, time=float(second)))
    assert fine.level("m") == Level.STOP
    assert not fine.schedule(5.0).placements
    return fine


@pytest.mark.parametrize("gone", [fs.MachineFailed("m", time=6.0), fs.MachineRemoved("m", time=6.0)])
@pytest.mark.parametrize("name", ["m", "another"])
def test_what_was_measured_of_a_machine_goes_with_it(gone: Event, name: str) -> None:
    """Nothing of it holds for the machine that comes back, or for another one that takes its row."""
    fine = in_trouble()
    fine.apply(gone)
    fine.schedule(6.0)
    fine.apply(fs.MachineAdded(name, {"cpu": 4, "mem": 8}, time=7.0))
    assert fine.level(name) == Level.COMPRESSED
    assert len(fine.schedule(7.0).placements) == 4


def test_a_machine_of_which_too_little_is_idle_evicts_nobody() -> None:
    fine = FineGrained(fs.Scheduler(resources=NAMES), idle=0.05)
    submit(fine, 2, cpu=2.0, kind=None)
    fine.commit(fine.schedule(0.0))
    fine.apply(MachineSampled("m", {"cpu": 4.0, "mem": 4.0}, time=1.0))
    fine.apply(fs.JobSubmitted("better", [fs.Task("b", {"cpu": 2, "mem": 1})], priority=-1))
    decided = fine.schedule(1.0)
    assert not decided.preemptions
    assert not decided.placements


def test_what_is_idle_is_of_what_the_machine_has_now() -> None:
    fine = FineGrained(fs.Scheduler(resources=NAMES), idle=0.05)
    fine.apply(fs.MachineAdded("m", {"cpu": 2, "mem": 2}))
    fine.apply(fs.JobSubmitted("j", [fs.Task("t", {"cpu": 1, "mem": 1})]))
    fine.apply(MachineSampled("m", {"cpu": 2.0, "mem": 2.0}, time=1.0))
    assert not fine.schedule(1.0).placements
    fine.apply(fs.MachineUpdated("m", {"cpu": 8, "mem": 8}, time=2.0))
    for second in range(3, 8):
        fine.apply(MachineSampled("m", {"cpu": 2.0, "mem": 2.0}, time=float(second)))
    assert fine.schedule(8.0).placements == {"t": "m"}


@pytest.mark.parametrize(
    ("events", "now"),
    [
        ([], 1.0),  # its deadline can no longer be met, with or without compression
        ([MachineSampled("m", {"cpu": 0.0, "mem": 0.0}, time=0.05 + second / 100) for second in range(6)], 0.1),
        ([fs.MachineUpdated("m", {"cpu": 8, "mem": 16})], 0.05),
        ([fs.MachineRemoved("m"), fs.MachineAdded("n", {"cpu": 4, "mem": 16})], 0.05),
    ],
)
def test_what_was_refused_for_its_deadline_is_tried_again_when_something_changes(
    events: list[Event], now: float
) -> None:
    """Even where no task runs, so that nothing ends."""
    fine = FineGrained(fs.Scheduler(resources=NAMES), estimator=known({"k": Stages([10], [[3.0, 1.0]])}))
    fine.apply(fs.MachineAdded("m", {"cpu": 4, "mem": 16}), MachineSampled("m", {"cpu": 1.1, "mem": 0.0}, time=0.0))
    fine.apply(fs.JobSubmitted("j", [fs.Task("t", {"cpu": 3, "mem": 1}, kind="k")], deadline=10.11))
    for _ in range(2):
        reason = fine.schedule(0.0).waiting["t"]
        assert reason.code == fs.ReasonCode.DEADLINE
        assert reason.detail == {"4 cpu, 16 mem": {"deadline": 1}}
    assert fine.explain("t").code == fine.explain("t", "m").code == fs.ReasonCode.DEADLINE
    fine.apply(*events)
    assert "t" in fine.schedule(now).placements


def test_a_task_may_be_sampled_later_than_it_ended() -> None:
    """As clocks of different machines have it."""
    fine = FineGrained(fs.Scheduler(resources=NAMES), estimator=known({"k": Stages([10], [[1.0, 1.0]])}))
    submit(fine, 1, cpu=1.0)
    fine.commit(fine.schedule(0.0))
    for time, progress in ((1.0, 0.5), (9.0, 0.9)):
        fine.apply(UsageSampled("t0", {"cpu": 1.0, "mem": 1.0}, progress, time=time))
    fine.apply(fs.TaskCompleted("t0", time=8.0))
    fine.learn()
    profile = fine.estimator.profile("k")
    assert profile is not None and profile.samples == 2 and (profile.seconds >= 0).all()


def test_a_mean_over_a_window_weighs_samples_by_their_length() -> None:
    """Equation (14), for a tuple of resources, as (9) to (12) have them: element by element."""
    mean = time_weighted_mean([[1.0, 8.0], [4.0, 2.0]], [10.0, 20.0])
    assert mean.tolist() == [(1 * 10 + 4 * 20) / 30, (8 * 10 + 2 * 20) / 30]


@given(
    samples=st.lists(
        st.tuples(st.floats(0, 40), st.floats(0, 40), st.floats(0.1, 10)), min_size=1, max_size=6
    ),
    idle=st.floats(0, 32),
)  # fmt: skip
def test_conformity_is_the_use_beyond_the_estimate_where_little_is_idle(
    samples: list[tuple[float, float, float]], idle: float
) -> None:
    used, guess, seconds = zip(*samples, strict=True)
    found = float(conformity(used, guess, seconds, idle=idle, total=32.0, threshold=0.1))
    beyond = sum((u - g) * t for u, g, t in samples) / sum(seconds)
    assert found == pytest.approx(max(beyond, 0.0) if idle < 3.2 else 0.0, abs=1e-9)
    assert min(used) - 1e-9 <= float(time_weighted_mean(used, seconds)) <= max(used) + 1e-9


@given(history=st.lists(st.floats(0, 0.3), max_size=5), more=st.floats(0, 0.3))
def test_a_machine_that_conforms_less_is_matched_no_finer(history: list[float], more: float) -> None:
    adjustment = Adjustment()
    level = adjustment.level([[one] for one in history])
    assert adjustment.level([[one + more] for one in history]) <= level
    assert adjustment.level([]) is Level.COMPRESSED
