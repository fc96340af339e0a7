"""FGM as an adapter: the source's figures, soundness in the simulator, deadlines, learning."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from effort import effort
from fgm_worlds import NAMES, known, submit
from hypothesis import given, settings
from hypothesis import strategies as st

import flowsched as fs
from flowsched.cluster.events import UsageSampled
from flowsched.cluster.model import Machine
from flowsched.exceptions import InputError
from flowsched.fgm import DemandEstimator, FineGrained, Level, StageCost, Stages, StageShare
from flowsched.sim import Arrival, Execution, Simulation, Workload
from flowsched.sim.baselines import Greedy
from flowsched.sim.orders import drf, fifo

# One machine of 4 cores and 8 GB; A1 and A2 come first, then B1 (Figures 1 to 3 of the source):
#    A: |1.0 core|0.8 cores        |             by request:  A1 A1 A1 .  .  .  .
#    B: |2.2 cores|1.5 cores                |                 A2 A2 A2 B1 B1 B1 B1     ends at 7
A = Stages([1, 2], [[1.0, 2.0], [0.8, 2.0]])
B = Stages([1, 3], [[2.2, 2.0], [1.5, 2.0]])
TRUE = {"A1": A, "A2": A, "B1": B}


def figures() -> Workload:
    a = [fs.Task(name, {"cpu": 1.0, "mem": 2}, kind="A") for name in ("A1", "A2")]
    b = [fs.Task("B1", {"cpu": 2.2, "mem": 2}, kind="B")]
    jobs = [Arrival(0, fs.JobSubmitted("a", a), (3, 3)), Arrival(0, fs.JobSubmitted("b", b), (4,))]
    return Workload("figures", jobs, [Machine("m", {"cpu": 4, "mem": 8})], resources=NAMES)


@pytest.mark.parametrize("scheduler", [fs.Scheduler, lambda resources: Greedy(fifo, resources)])
def test_fine_grained_scheduling_ends_at_4_05(scheduler: Any) -> None:
    fine = FineGrained(scheduler(resources=NAMES), estimator=known({"A": A, "B": B}), threshold=0.1)
    metrics = Simulation(fine, figures(), execution=Execution(TRUE)).run()
    assert metrics.ends == pytest.approx([3.05, 3.05, 4.05])


def test_request_based_scheduling_ends_at_7() -> None:
    metrics = Simulation(Greedy(fifo, NAMES), figures(), execution=Execution(TRUE)).run()
    assert metrics.ends == pytest.approx([3, 3, 7])
    coarse = FineGrained(Greedy(fifo, NAMES), estimator=known({"A": A, "B": B}), highest=Level.REQUEST)
    assert Simulation(coarse, figures(), execution=Execution(TRUE)).run().ends == pytest.approx([3, 3, 7])


def test_the_figures_by_the_public_api() -> None:
    fine = FineGrained(fs.Scheduler(resources=NAMES), estimator=known({"A": A, "B": B}), threshold=0.1)
    jobs = [arrival.job for arrival in figures().arrivals]
    fine.apply(fs.MachineAdded("m", {"cpu": 4, "mem": 8}), jobs[0])
    fine.commit(fine.schedule(0.0))
    fine.apply(jobs[1])
    decided = fine.schedule(0.0)
    assert decided.placements == {"B1": "m"}
    fine.commit(decided)
    cls = fine.cluster.tasks["B1"].group.cls
    assert fine.forecast.plan(0, 0.0, cls, fine.forecast.catalog.of(cls).fine).short >= 0  # no second B
    fine.look(np.zeros(1, np.int64))
    assert fine.forecast.timelines.ends[0, :4] == pytest.approx([1.05, 3.05, 4.05, math.inf])


@pytest.mark.parametrize("highest", [Level.COARSE, Level.FINE])
def test_without_compression_b_waits(highest: Level) -> None:
    fine = FineGrained(Greedy(fifo, NAMES), estimator=known({"A": A, "B": B}), threshold=0.1, highest=highest)
    metrics = Simulation(fine, figures(), execution=Execution(TRUE, sample=0.5)).run()
    assert metrics.ends == pytest.approx([3, 3, 5])  # when the A's need no more than 0.8 cores each


# -- with exact estimates ------------------------------------------------------------------------------------------

AMOUNT = st.integers(1, 20).map(lambda tenths: tenths / 10)


@st.composite
def courses(draw: st.DrawFn) -> Stages:
    """Stages on a grid of twelfths of the duration, which 12 points tell exactly."""
    count = draw(st.integers(1, 3))
    cuts = sorted(draw(st.sets(st.integers(1, 11), min_size=count - 1, max_size=count - 1)))
    parts = np.diff([0, *cuts, 12])
    demand = draw(st.lists(st.tuples(AMOUNT, AMOUNT), min_size=count, max_size=count))
    return Stages(parts / 12 * draw(st.integers(1, 6)) * 12, demand)


@st.composite
def worlds(draw: st.DrawFn, deadlines: bool = False) -> tuple[Workload, dict[str, Stages], dict[str, Stages]]:
    kinds = {f"k{i}": draw(courses()) for i in range(draw(st.integers(1, 3)))}
    arrivals, true = [], {}
    for j in range(draw(st.integers(1, 5))):
        kind, size, when = draw(st.sampled_from(list(kinds))), draw(st.integers(1, 5)), draw(st.integers(0, 60))
        stages = kinds[kind]
        request = dict(zip(NAMES, (stages.peak + 0.3).tolist(), strict=True))
        tasks = [fs.Task(f"j{j}.{i}", request, kind=kind) for i in range(size)]
        true.update((task.id, stages) for task in tasks)
        deadline = when + stages.duration * draw(st.sampled_from([1.0, 1.02, 1.5])) if deadlines else None
        arrivals.append(Arrival(when, fs.JobSubmitted(f"j{j}", tasks, deadline=deadline), [stages.duration] * size))
    machines = [Machine(f"m{i}", {"cpu": 4, "mem": 4}) for i in range(draw(st.integers(1, 2)))]
    return Workload("drawn", arrivals, machines, resources=NAMES), kinds, true


@settings(max_examples=effort(15, 2000))
@given(worlds(), st.sampled_from([0.0, 0.5]), st.booleans())
def test_what_is_matched_never_over_commits_memory(
    world: tuple[Workload, dict[str, Stages], dict[str, Stages]], contention: float, greedy: bool
) -> None:
    """And no compression is beyond its limit, so that no task takes longer than that allows."""
    work, kinds, true = world
    scheduler = Greedy(drf, NAMES) if greedy else fs.Scheduler(resources=NAMES)
    fine = FineGrained(scheduler, estimator=known(kinds), contention=contention, threshold=0.0, min_length=0.0)
    watch = Watch(fine)
    metrics = Simulation(watch, work, execution=Execution(true, contention=contention)).run()
    assert metrics.counts["task_failures"] == 0
    assert metrics.tasks["completed"] == work.n_tasks
    order = [task.id for arrival in work.arrivals for task in arrival.job.tasks]
    for task, end in zip(order, metrics.ends, strict=True):
        slowest = true[task].duration / (0.9 * (1 - 0.1 * contention))
        assert true[task].duration - 1e-3 <= end - watch.started[task] <= slowest + 1e-3


@settings(max_examples=effort(15, 2000))
@given(worlds(deadlines=True))
def test_compression_makes_no_task_miss_a_deadline(
    world: tuple[Workload, dict[str, Stages], dict[str, Stages]],
) -> None:
    """A task that starts early enough for its deadline meets it."""
    work, kinds, true = world
    fine = FineGrained(fs.Scheduler(resources=NAMES), estimator=known(kinds), threshold=0.0, min_length=0.0)
    watch = Watch(fine)
    metrics = Simulation(watch, work, execution=Execution(true)).run()
    ends = iter(metrics.ends.tolist())
    for arrival in work.arrivals:
        for task in arrival.job.tasks:
            end, deadline = next(ends), arrival.job.deadline
            assert deadline is not None
            if watch.started[task.id] + true[task.id].duration <= deadline:
                assert end <= deadline + 1e-3


# The loop starts one task at a time, and once something is compressed, (7) lets no other task in.
SCHEDULERS = [(fs.Scheduler, 1), (fs.Scheduler, 2), (lambda resources: Greedy(fifo, resources), 1)]


def placed(
    scheduler: Any, kinds: dict[str, Stages], first: Sequence[fs.Task], then: Sequence[fs.Task], **job: Any
) -> int:
    """How many of `then` start beside `first`, on a machine of 4 cores and 8 GB."""
    fine = FineGrained(scheduler(resources=NAMES), estimator=known(kinds))
    fine.apply(fs.MachineAdded("m", {"cpu": 4, "mem": 8}), fs.JobSubmitted("first", first, **job))
    assert len(fine.commit(fine.schedule(0.0)).accepted) == len(first)
    fine.apply(fs.JobSubmitted("then", then))
    decided = fine.schedule(0.0)
    assert len(fine.commit(decided).accepted) == len(decided.placements)
    return len(decided.placements)


@pytest.mark.parametrize(("scheduler", "count"), SCHEDULERS)
def test_no_task_is_compressed_beyond_its_deadline(scheduler: Any, count: int) -> None:
    """3.8 of 4 cores are in use, 0.5 more would compress every task by 7 %."""
    kinds = {"k": Stages([12], [[1.9, 1.0]]), "n": Stages([12], [[0.5 / count, 1.0]])}
    first = [fs.Task(f"f{i}", {"cpu": 1.9, "mem": 1}, kind="k") for i in range(2)]
    then = [fs.Task(f"t{i}", {"cpu": 0.5, "mem": 1}, kind="n") for i in range(count)]
    assert placed(scheduler, kinds, first, then) == count
    assert placed(scheduler, kinds, first, then, deadline=13.0) == count
    # 0.25 more would still delay them to 12.15
    assert placed(scheduler, kinds, first, then, deadline=12.1) == 0
    assert placed(scheduler, kinds, first, then, deadline=12.5) == count - 1


@pytest.mark.parametrize(("scheduler", "count"), SCHEDULERS)
def test_who_delays_others_must_leave_room_for_all_to_come(scheduler: Any, count: int) -> None:
    """Compressed, p still has its memory when that of q comes, which wants no CPU::

    p |3.8 cores, 6 GB    |~~~         newcomers: 0.5 cores, 1 GB, which fit stage by stage
    q |0 GB               |4 GB  |
    """
    kinds = {
        "p": Stages([12], [[3.8, 6.0]]),
        "q": Stages([12, 12], [[0.0, 0.0], [0.0, 4.0]]),
        "n": Stages([12], [[0.5 / count, 1.0 / count]]),
    }
    p, q = fs.Task("p", {"cpu": 3.8, "mem": 6}, kind="p"), fs.Task("q", {"cpu": 0.1, "mem": 4}, kind="q")
    then = [fs.Task(f"t{i}", {"cpu": 0.5, "mem": 1}, kind="n") for i in range(count)]
    assert placed(scheduler, kinds, [p], then) == count
    assert placed(scheduler, kinds, [q, p], then) == 0


class Watch:
    """A scheduler that remembers when it started which task."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.started: dict[Any, float] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.scheduler, name)

    def commit(self, round: fs.Round) -> fs.Commit:
        done: fs.Commit = self.scheduler.commit(round)
        self.started.update((delta.task, round.now) for delta in done.accepted)
        return done


# -- learning ------------------------------------------------------------------------------------------------------


def test_what_tasks_use_is_learnt_when_they_end_and_used_from_the_next_round_on() -> None:
    fine = FineGrained(fs.Scheduler(resources=NAMES), estimator=DemandEstimator(NAMES, cold=1))
    submit(fine, 8)
    first = fine.schedule(0.0)
    assert len(first.placements) == 2  # by request
    fine.commit(first)
    for task in first.placements:
        for second in (1, 3, 5, 7, 9):
            fine.apply(UsageSampled(task, {"cpu": 0.5, "mem": 1.0}, time=float(second)))
    fine.apply(*(fs.TaskCompleted(task, time=10.0) for task in first.placements))
    assert fine.estimator.profile("k") is None  # nothing was taken in yet
    fine.commit(fine.schedule(10.0))
    profile = fine.estimator.profile("k")
    assert profile is not None
    assert profile.seconds.sum() == pytest.approx(10)
    assert profile.demand.max(axis=0).tolist() == pytest.approx([0.5, 1.0])
    assert len(fine.schedule(10.0).placements) == 4  # all that wait, beside two that turn out to need little


def test_what_is_learnt_goes_by_the_progress_that_tasks_tell() -> None:
    """A task that does half of its work in the first two of ten seconds, and needs much for it."""
    fine = FineGrained(fs.Scheduler(resources=NAMES), estimator=DemandEstimator(NAMES, points=10, cold=1))
    submit(fine, 1)
    fine.commit(fine.schedule(0.0))
    for second, progress in ((1, 0.25), (2, 0.5), (6, 0.75), (9, 0.9)):
        cpu = 2.0 if second <= 2 else 0.5
        fine.apply(UsageSampled("t0", {"cpu": cpu, "mem": 1.0}, progress, time=float(second)))
    fine.apply(fs.TaskCompleted("t0", time=10.0))
    fine.learn()
    profile = fine.estimator.profile("k")
    assert profile is not None
    assert profile.demand[:, 0].tolist() == pytest.approx([2] * 6 + [0.5] * 4)
    assert profile.seconds[:5].sum() == pytest.approx(2)
    assert profile.seconds.sum() == pytest.approx(10)


@pytest.mark.parametrize(("progress", "starts"), [(None, False), (0.5, False), (0.9, True)])
def test_who_is_further_than_predicted_makes_room_sooner(progress: float | None, starts: bool) -> None:
    fine = FineGrained(fs.Scheduler(resources=NAMES), estimator=known({"k": Stages([8, 2], [[3.0, 1.0], [1.0, 1.0]])}))
    submit(fine, 2, cpu=3.0)
    fine.commit(fine.schedule(0.0))
    (first,) = (task for task in ("t0", "t1") if fine.cluster.placement(task))
    fine.apply(UsageSampled(first, {"cpu": 1.0, "mem": 1.0}, progress, time=5.0))
    assert bool(fine.schedule(5.0).placements) == starts


def test_room_that_time_has_taken_away_is_not_offered_for_ever() -> None:
    """Nothing has happened since the last round but that a stage that needs much has come closer."""
    kinds = {"rises": Stages([10, 10], [[1.0, 1.0], [4.0, 1.0]]), "short": Stages([5], [[3.0, 1.0]])}
    fine = FineGrained(fs.Scheduler(resources=NAMES), estimator=known(kinds, points=20), compressible={})
    submit(fine, 1, kind="rises")
    fine.commit(fine.schedule(0.0))
    tasks = [fs.Task(f"s{i}", {"cpu": 3, "mem": 1}, kind="short") for i in range(2)]
    fine.apply(fs.JobSubmitted("gang", tasks, gang=2))
    for now in (1.0, 2.0):  # there is room for one of them, so the gang is left out until something changes
        assert not fine.schedule(now).placements
    fine.apply(fs.UserAdded("somebody"))
    assert not fine.schedule(7.0).placements


def test_nobody_is_evicted_where_the_bound_on_compression_would_still_refuse() -> None:
    """With competing, a compression by 5 % takes more than the last 1 % of the cores gives, although it is below the limit."""
    estimator = known({"g": Stages([60], [[3.96, 1.0]]), "b": Stages([60], [[0.03, 1.0]])})
    fine = FineGrained(fs.Scheduler(resources=NAMES), contention=0.5, estimator=estimator)
    fine.apply(fs.MachineAdded("m", {"cpu": 4, "mem": 8}))
    fine.apply(fs.JobSubmitted("good", [fs.Task("g", {"cpu": 2, "mem": 1}, kind="g")], priority=0))
    fine.apply(fs.JobSubmitted("bad", [fs.Task("b", {"cpu": 2, "mem": 1}, kind="b")], priority=9))
    fine.commit(fine.schedule(0.0))
    assert fine.cluster.placement("b") == "m"
    fine.apply(fs.JobSubmitted("better", [fs.Task("n", {"cpu": 0.25, "mem": 1})], priority=1))
    decided = fine.schedule(1.0)
    assert not decided.preemptions
    assert not decided.placements


@pytest.mark.parametrize("scheduler", [fs.Scheduler, lambda resources: Greedy(fifo, resources)])
@pytest.mark.parametrize(("kind", "count"), [("k", 2), ("never seen", 1), (None, 1)])
def test_a_request_is_not_compressed(scheduler: Any, kind: str | None, count: int) -> None:
    """Algorithm 1, line 8: 4.2 of 4 cores are within the limit for what is predictable, not for what only asks for it."""
    fine = FineGrained(scheduler(resources=NAMES), estimator=known({"k": Stages([10], [[2.1, 1.0]])}))
    fine.apply(fs.MachineAdded("m", {"cpu": 4, "mem": 8}))
    fine.apply(fs.JobSubmitted("j", [fs.Task(i, {"cpu": 2.1, "mem": 1}, kind=kind) for i in range(2)]))
    assert len(fine.commit(fine.schedule(0.0)).accepted) == count
    assert len(fine.commit(fine.schedule(1.0)).accepted) == 0
    # what is predictable may still compress what is not
    fine.apply(fs.JobSubmitted("then", [fs.Task("n", {"cpu": 2.1, "mem": 1}, kind="k")]))
    assert len(fine.commit(fine.schedule(2.0)).accepted) == 2 - count


def test_tasks_without_a_kind_are_matched_by_request() -> None:
    fine = FineGrained(fs.Scheduler(resources=NAMES), estimator=known({"k": Stages([10], [[0.1, 0.1]])}))
    submit(fine, 8, kind=None)
    assert len(fine.schedule(0.0).placements) == 2


def test_a_task_beyond_its_prediction_keeps_its_place() -> None:
    fine = FineGrained(Greedy(fifo, NAMES), estimator=known({"k": Stages([10], [[2.0, 1.0]])}))
    submit(fine, 3)
    fine.commit(fine.schedule(0.0))
    assert not fine.schedule(11.0).placements
    fine.apply(fs.TaskCompleted("t0", time=12.0))
    assert set(fine.schedule(12.0).placements) == {"t2"}


def test_a_stage_that_ends_makes_room() -> None:
    stages = Stages([6, 6], [[3.0, 1.0], [0.5, 1.0]])
    fine = FineGrained(fs.Scheduler(resources=NAMES), estimator=known({"k": stages}))
    submit(fine, 2, cpu=3.0)
    first = fine.schedule(0.0)
    assert len(first.placements) == 1
    fine.commit(first)
    assert not fine.schedule(5.0).placements
    assert len(fine.schedule(6.0).placements) == 1


def ends(fine: FineGrained, now: float) -> list[float]:
    """When the stages of the only machine end, from now on."""
    fine.commit(fine.schedule(now))
    fine.look(np.zeros(1, np.int64))
    times: list[float] = fine.forecast.timelines.ends[0].tolist()
    return times[: times.index(math.inf)]


def test_what_was_compressed_stays_so_whoever_leaves() -> None:
    fine = FineGrained(fs.Scheduler(resources=NAMES), estimator=known({"A": A, "B": B}), threshold=0.1)
    fine.apply(fs.MachineAdded("m", {"cpu": 4, "mem": 8}), *(arrival.job for arrival in figures().arrivals))
    assert ends(fine, 0.0) == pytest.approx([1.05, 3.05, 4.05])
    fine.apply(fs.TaskRemoved("A1", time=1.0))
    assert ends(fine, 1.0) == pytest.approx([1 + 1 / 21, 3 + 1 / 21, 4 + 1 / 21])


def test_a_task_that_starts_again_begins_anew() -> None:
    fine = FineGrained(fs.Scheduler(resources=NAMES), estimator=known({"k": Stages([12], [[1.0, 1.0]])}))
    submit(fine, 1)
    assert ends(fine, 0.0) == pytest.approx([12])
    fine.apply(fs.TaskFailed("t0", time=6.0))
    assert ends(fine, 6.0) == pytest.approx([18])
    fine.apply(fs.MachineUpdated("m", {"cpu": 5, "mem": 16}, time=10.0))
    assert ends(fine, 10.0) == pytest.approx([18])


def test_rounds_that_are_thrown_away_leave_no_trace() -> None:
    fine = FineGrained(fs.Scheduler(resources=NAMES), estimator=known({"k": Stages([6, 6], [[3.0, 1.0], [0.5, 1.0]])}))
    submit(fine, 2, cpu=3.0)
    fine.commit(fine.schedule(0.0))
    for now in (0.1, 3.3, 6.1, 7.7):  # rounding would tell where a state was moved on
        fine.abort(fine.schedule(now))
    fine.commit(fine.schedule(8.0))
    again = FineGrained(fs.Scheduler(resources=NAMES), estimator=known({"k": Stages([6, 6], [[3.0, 1.0], [0.5, 1.0]])}))
    submit(again, 2, cpu=3.0)
    again.commit(again.schedule(0.0))
    again.commit(again.schedule(8.0))
    for one in (fine, again):
        one.look(np.zeros(1, np.int64))
    assert (fine.forecast.timelines.ends == again.forecast.timelines.ends).all()
    assert (fine.forecast.timelines.available == again.forecast.timelines.available).all()


def test_the_flow_shares_what_fits_and_not_what_is_asked_for() -> None:
    scheduler = fs.Scheduler(fs.Policy(preemption=None), NAMES)
    estimator = known({"k": Stages([10], [[0.5, 0.5]])})
    fine = FineGrained(scheduler, estimator=estimator)
    fairness = fs.Fairness(StageShare(fine), over="user")
    scheduler.policy = replace(scheduler.policy, fairness=fairness)
    fine.apply(fs.MachineAdded("m", {"cpu": 4, "mem": 8}))
    for user in "ab":
        tasks = [fs.Task(f"{user}{i}", {"cpu": 2, "mem": 2}, kind="k") for i in range(20)]
        fine.apply(fs.JobSubmitted(f"job of {user}", tasks, user=user))
    now, running = 0.0, 0
    for now in range(4):  # shares grow as it turns out how little tasks need
        decided = fine.schedule(float(now))
        fine.commit(decided)
        running += len(decided.placements)
    counts = [sum(fine.cluster.task_state(f"{user}{i}") == "running" for i in range(20)) for user in "ab"]
    assert running == sum(counts) == 8
    assert max(counts) - min(counts) <= 1


def test_a_share_is_enough_for_one_task_of_what_fits() -> None:
    """In the mixture of what waits, one machine has room for less than one task of either user."""
    scheduler = fs.Scheduler(fs.Policy(preemption=None), ("cpu", "mem", "disk"))
    fine = FineGrained(scheduler)
    scheduler.policy = replace(scheduler.policy, fairness=fs.Fairness(StageShare(fine), over="user"))
    fine.apply(fs.MachineAdded("m", {"cpu": 4, "mem": 4, "disk": 4}))
    for user, cpu, disk in (("a", 1.0, 3.0), ("b", 3.0, 1.0)):
        tasks = [fs.Task(f"{user}{i}", {"cpu": cpu, "mem": 3, "disk": disk}) for i in range(4)]
        fine.apply(fs.JobSubmitted(user, tasks, user=user))
    assert len(fine.schedule(0.0).placements) == 1


def test_thresholds_at_infinity_are_coarse_matching() -> None:
    """Also where something is not used at all."""
    kinds = {"k": Stages([6, 6], [[3.0, 0.0], [0.5, 0.0]])}
    fine = FineGrained(fs.Scheduler(resources=NAMES), estimator=known(kinds), threshold=math.inf)
    submit(fine, 2, cpu=3.0)
    fine.commit(fine.schedule(0.0))
    assert not fine.schedule(6.0).placements


def test_what_a_machine_does_not_have_is_not_left_over() -> None:
    costs = []
    for names in (NAMES, (*NAMES, "net")):
        fine = FineGrained(fs.Scheduler(resources=names))
        fine.apply(fs.MachineAdded("m", {"cpu": 4, "mem": 8}))
        fine.apply(fs.JobSubmitted("j", [fs.Task("t", {"cpu": 2, "mem": 1})]))
        fine.look(np.zeros(1, np.int64))
        costs.append(StageCost(fine)(fine.cluster, np.zeros(1, np.int64), np.zeros(1, np.int64)).item())
    assert costs[0] == costs[1] == pytest.approx((7 / 8 - 1 / 2) / 2)


@pytest.mark.parametrize("limit", [1e-310, 1e-290])
def test_a_limit_of_compression_of_nearly_nothing(limit: float) -> None:
    fine = FineGrained(fs.Scheduler(resources=NAMES), compressible={"cpu": limit, "mem": limit})
    fine.apply(fs.MachineAdded("m", {"cpu": 4}), fs.JobSubmitted("j", [fs.Task(i, {"cpu": 3}) for i in range(3)]))
    assert len(fine.commit(fine.schedule(0.0)).accepted) == 1


def test_what_was_refused_beside_the_same_tasks_evicts_nobody() -> None:
    """Refusals are remembered while the same tasks run, although with time less of them is compressed::

    a |3.8 cores |1 core ...     n: 0.5 cores, in vain until something changes; there are two slots
           v |0.1 cores ...
    """
    kinds = {
        "a": Stages([10, 90], [[3.8, 1.0], [1.0, 1.0]]),
        "v": Stages([100], [[0.1, 1.0]]),
        "n": Stages([100], [[0.5, 1.0]]),
    }
    fine = FineGrained(fs.Scheduler(resources=NAMES), estimator=known(kinds, points=100), min_length=0.0)
    tasks = {kind: fs.Task(kind, {"cpu": 0.1, "mem": 1}, kind=kind) for kind in kinds}
    fine.apply(fs.MachineAdded("m", {"cpu": 4, "mem": 8}, slots=2))
    fine.apply(fs.JobSubmitted("a", [tasks["a"]], deadline=100.5))
    fine.commit(fine.schedule(0.0))
    fine.apply(fs.JobSubmitted("n", [tasks["n"]]))
    assert not fine.schedule(0.0).placements
    fine.apply(fs.JobSubmitted("v", [tasks["v"]], priority=1))
    decided = fine.schedule(1.0)
    assert decided.placements == {"v": "m"}
    fine.commit(decided)
    assert fine.schedule(5.0).preemptions.keys() <= {"v"}


# -- options -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"compressible": {"gpu": 0.1}},
        {"compressible": {"cpu": 1.0}},
        {"contention": -1},
        {"idle": 2},
        {"estimator": DemandEstimator(("cpu",))},
    ],
)
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        FineGrained(fs.Scheduler(resources=NAMES), **options)


def test_one_adapter_for_each_scheduler() -> None:
    scheduler = fs.Scheduler(resources=NAMES)
    FineGrained(scheduler)
    with pytest.raises(InputError):
        FineGrained(scheduler)
