"""The simulation: small worlds whose history can be told by hand, and large ones whose sums must be right."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from flowsched.cluster.events import (
    Event,
    JobSubmitted,
    MachineAdded,
    MachineDrained,
    MachineFailed,
    MachineUpdated,
    TaskCompleted,
)
from flowsched.cluster.model import Machine, Task
from flowsched.exceptions import InputError
from flowsched.policy import Policy
from flowsched.rounds.values import Round
from flowsched.scheduler import Scheduler
from flowsched.sim import UNDECIDED, Arrival, Metrics, Progress, Simulation, Workload, load_trace

OPENB = Path(__file__).parents[3] / "shared" / "data" / "openb"


def task(name: str, time: float, duration: float, cpu: float = 1, priority: int = 0, job: str | None = None) -> Arrival:
    return Arrival(time, JobSubmitted(job or name, (Task(name, {"cpu": cpu}),), priority=priority), (duration,))


def world(arrivals: Sequence[Arrival], machines: Sequence[float] = (2,), events: Sequence[Event] = ()) -> Workload:
    made = [Machine(f"m{i}", {"cpu": cpu}) for i, cpu in enumerate(machines)]
    return Workload("small", arrivals, made, events, resources=("cpu",))


def simulation(work: Workload, policy: str = "spread", **options: Any) -> Simulation:
    return Simulation(Scheduler(Policy.named(policy), resources=work.resources), work, **options)


def run(work: Workload, until: float | None = None, policy: str = "spread", **options: Any) -> Metrics:
    metrics = simulation(work, policy, **options).run(until)
    account = metrics.account()
    assert sum(account.values()) == sum(metrics.tasks.values()) == work.n_tasks
    return metrics


def same(metrics: Metrics) -> dict[str, Any]:
    """All that must not differ from run to run."""
    return {k: v for k, v in metrics.to_dict().items() if k != "wall_clock"}


# Two tasks on one machine of two cores:   a: |==========|          one core, 0 to 10
#                                          b:  .........|=====|     two cores, arrives at 1, runs 10 to 15
TWO = (task("a", 0, 10, cpu=1), task("b", 1, 5, cpu=2))


def test_a_history_told_by_hand() -> None:
    metrics = run(world(TWO))
    assert metrics.tasks == {"completed": 2, "running": 0, "waiting": 0, "never_fits": 0, "not_arrived": 0}
    assert metrics.placed == 2
    assert metrics.waits.tolist() == [0, 9]
    assert metrics.facts["end"] == 15
    assert metrics.facts["nothing_left"]
    assert metrics.series["time"].tolist() == [0, 1, 10, 15]
    assert metrics.series["running"].tolist() == [1, 1, 1, 0]
    assert metrics.series["waiting"].tolist() == [0, 1, 0, 0]
    assert metrics.series["used_cpu"].tolist() == [1, 1, 2, 0]
    use = metrics.usage["cpu"]
    assert (use.capacity, use.peak, use.peak_amount, use.final) == (2, 1, 2, 0)
    assert use.mean == pytest.approx(1 / 2)  # from 0 to 1
    assert use.mean_overall == pytest.approx((10 * 1 + 5 * 2) / (15 * 2))
    assert metrics.offered["cpu"].peak == pytest.approx(3 / 2)
    assert metrics.rounds["time"].tolist() == [0, 1, 10, 15]
    assert metrics.counts == {
        "rounds": 4, "rounds_skipped": 0, "placements": 2, "preemptions": 0, "migrations": 0, "conflicts": 0, "machine_failures": 0,
        "task_failures": 0, "lost_seconds": 0, "data_read": 0, "data_on_machine": 0, "data_in_rack": 0,
    }  # fmt: skip


def test_what_happens_at_one_instant_is_one_round() -> None:
    arrivals = [task(f"t{i}", 5.0, 2.5) for i in range(4)] + [task(f"u{i}", 7.5, 1.0) for i in range(2)]
    metrics = run(world(arrivals, machines=(4, 4)))
    assert metrics.rounds["time"].tolist() == [0, 5, 7.5, 8.5]
    assert metrics.rounds["events"].tolist() == [2, 4, 6, 2]


class Forgetful(Scheduler):
    """It does not say until when its rounds hold."""

    def schedule(self, now: float, time_limit: float | None = None) -> Round:
        round = super().schedule(now, time_limit)
        object.__setattr__(round, "again_at", -math.inf)
        return round


@pytest.mark.parametrize("policy", Policy.names())
@pytest.mark.parametrize("on_events", [False, True])
def test_a_round_is_skipped_only_if_it_would_decide_the_same(policy: str, on_events: bool) -> None:
    random = Random(policy)
    arrivals = [
        task(f"t{i}", random.uniform(0, 300), random.uniform(20, 90), random.randint(1, 3), random.randint(0, 2))
        for i in range(30)
    ]
    events = [MachineFailed("m0", time=120.0), MachineAdded("m0", {"cpu": 3}, time=200.0)]
    work = world(arrivals, (3, 4), events)
    results = []
    for kind in (Scheduler, Forgetful):
        metrics = Simulation(kind(Policy.named(policy), work.resources), work, interval=0.5, on_events=on_events).run()
        found = same(metrics)
        counts = found["counts"].pop("rounds"), found["counts"].pop("rounds_skipped")
        del found["rounds"], found["network"]
        results.append((counts, found, repr(metrics.table), repr(metrics.queue), metrics.reasons))
    (made, skipped), (every, none) = results[0][0], results[1][0]
    assert made + skipped == every and skipped > 20 and none == 0
    assert results[0][1:] == results[1][1:]


def test_no_round_is_skipped_where_decisions_take_time() -> None:
    arrivals = [task("a", 0, 100), task("b", 0, 100, cpu=2)]
    counts = [run(world(arrivals), interval=1.0, charge_solver=charge).counts for charge in (0.0, 0.25)]
    assert [bool(found["rounds_skipped"]) for found in counts] == [True, False]


def test_a_task_of_no_duration_completes() -> None:
    assert run(world([task("a", 3, 0)])).tasks["completed"] == 1


def test_until_cuts_the_run() -> None:
    metrics = run(world(TWO), until=12)
    assert metrics.account() == {"completed": 1, "running": 1, "not_arrived": 0}
    assert metrics.facts["end"] == 12
    assert not metrics.facts["nothing_left"]
    assert run(world(TWO), until=0.5).account() == {"completed": 0, "running": 1, "not_arrived": 1}


def test_the_horizon_is_the_end_unless_until_says_otherwise() -> None:
    work = Workload("w", TWO, [Machine("m", {"cpu": 2})], resources=("cpu",), horizon=10.0)
    assert run(work).account() == {"completed": 1, "running": 1, "not_arrived": 0}
    assert run(work, until=99).tasks["completed"] == 2


def test_rounds_at_an_interval() -> None:
    metrics = run(
        world([task("a", 3, 4), task("b", 10, 5), task("c", 10.5, 5)], machines=(9,)), interval=10, on_events=False
    )
    assert metrics.waits.tolist() == [7, 0, 9.5]
    assert metrics.rounds["time"].tolist() == [0, 10, 20, 30]


def test_rounds_at_an_interval_and_on_events() -> None:
    metrics = run(world([task("a", 3, 4)]), interval=10)
    assert metrics.waits.tolist() == [0]
    assert metrics.rounds["time"].tolist() == [0, 3, 7]


def test_a_round_that_is_moved_forward_is_not_held_twice() -> None:
    # The tick at 10 is planned at 0, because "next" waits; "a" comes before it, and plans it again.  Nothing can change at 10.
    metrics = run(world([task("big", 0, 12, cpu=2), task("next", 0, 3, cpu=2), task("a", 3, 1)]), interval=10)
    assert metrics.rounds["time"].tolist() == [0, 3, 12, 15, 16] and metrics.counts["rounds_skipped"] == 1


def test_no_rounds_while_there_is_nothing_to_decide() -> None:
    metrics = run(world([task("a", 3, 4), task("b", 1e6 + 3, 4)]), interval=10, on_events=False)
    assert metrics.counts["rounds"] == 5


def test_a_task_that_never_fits_ends_neither_the_run_nor_the_account() -> None:
    for options in ({}, {"interval": 10, "on_events": False}, {"interval": 10}):
        metrics = run(world([task("big", 0, 5, cpu=3), task("a", 1, 4), task("b", 1e5, 4)]), **options)
        assert metrics.account() == {"completed": 2, "running": 0, "not_arrived": 0, "waiting:NEVER_FITS": 1}
        assert metrics.tasks["never_fits"] == 1
        assert metrics.tasks["waiting"] == 0
        assert metrics.reasons["big"].code == "NEVER_FITS"
        assert metrics.counts["rounds"] < 60
        assert metrics.facts["end"] < 2e5


def test_tasks_that_no_round_has_seen_are_undecided() -> None:
    metrics = run(world([task("a", 0, 9), task("b", 3, 4)]), until=5, interval=10, on_events=False)
    assert metrics.account() == {"completed": 0, "running": 1, "not_arrived": 0, f"waiting:{UNDECIDED}": 1}


def test_a_charged_decision_takes_effect_later() -> None:
    metrics = run(world([task("a", 10, 4)]), charge_solver=2.5)
    assert metrics.waits.tolist() == [2.5]
    assert metrics.rounds["time"].tolist() == [0, 10, 16.5]
    metrics = run(world([task("a", 10, 4)]), charge_solver=lambda stats: 0.5 * stats.solves)
    assert metrics.waits.tolist() == [0.5 * metrics.rounds["solves"][1]]


def test_the_time_on_this_computer_can_be_charged() -> None:
    metrics = run(world([task("a", 10, 4)]), charge_solver=True)
    assert 0 < metrics.waits[0] < 5
    assert metrics.waits[0] == pytest.approx(sum(metrics.rounds[k][1] for k in ("apply", "schedule")))


def test_what_is_stale_when_a_decision_takes_effect_is_refused() -> None:
    #   10: a arrives; the decision for m0 takes until 15; 12: m0 fails, m1 joins
    #   15: the decision is refused, another made; 20: a starts
    events = [MachineFailed("m0", time=12.0), MachineAdded("m1", {"cpu": 2}, time=12.0)]
    metrics = run(world([task("a", 10, 4)], events=events), charge_solver=5.0)
    assert metrics.counts["conflicts"] == 1
    assert metrics.waits.tolist() == [10]
    assert metrics.tasks["completed"] == 1
    cut = run(world([task("a", 10, 4)], events=events), charge_solver=5.0, until=17)
    assert cut.waiting == {"CONFLICT": 1}


def test_news_during_a_decision_waits_for_the_next_one() -> None:
    metrics = run(world([task("a", 10, 4), task("b", 11, 4)]), charge_solver=5.0)
    assert metrics.waits.tolist() == [5, 9]
    assert metrics.rounds["time"].tolist() == [0, 10, 15, 20, 25]


#   low:  |====| . . . . .|==========|     10 s; high comes at 4 and runs for 5
@pytest.mark.parametrize(("preempted", "end", "lost"), [("restart", 19, 4), ("resume", 15, 0)])
def test_a_preempted_task_restarts_or_resumes(preempted: str, end: float, lost: float) -> None:
    work = world([task("low", 0, 10, cpu=2, priority=5), task("high", 4, 5, cpu=2)])
    metrics = run(work, preempted=preempted)
    assert metrics.counts["preemptions"] == 1
    assert metrics.facts["end"] == end
    assert metrics.counts["lost_seconds"] == lost
    assert metrics.waits.tolist() == [0, 0]


@pytest.mark.parametrize(("preempted", "end"), [("restart", 17), ("resume", 13)])
def test_tasks_of_a_failed_machine_run_again(preempted: str, end: float) -> None:
    events = [MachineFailed("m0", time=4.0), MachineAdded("m0", {"cpu": 2}, time=7.0)]
    metrics = run(world([task("a", 0, 10)], events=events), preempted=preempted)
    assert metrics.facts["end"] == end
    assert metrics.counts["machine_failures"] == 1
    assert metrics.series["capacity_cpu"].tolist() == [2, 0, 2, 2]
    assert metrics.usage["cpu"].mean_overall == pytest.approx((end - 3) / 2 / (end - 3))


def test_a_drained_machine_takes_nothing_new() -> None:
    metrics = run(world(TWO, machines=(2, 2), events=[MachineDrained("m1", time=0.5), MachineDrained("m0", time=0.5)]))
    assert metrics.account() == {"completed": 1, "running": 0, "not_arrived": 0} | {
        f"waiting:{code}": n for code, n in metrics.waiting.items()
    }
    assert sum(metrics.waiting.values()) == 1


def test_a_machine_that_shrinks_below_its_tasks_restarts() -> None:
    events = [MachineUpdated("m0", {"cpu": 3}, time=2.0), MachineUpdated("m0", {"cpu": 1}, time=4.0)]
    metrics = run(world([task("a", 0, 10, cpu=1), task("b", 0, 10, cpu=1)], events=events))
    assert metrics.series["capacity_cpu"].tolist()[:3] == [2, 3, 1]
    assert metrics.counts["machine_failures"] == 1
    assert metrics.facts["end"] == 24  # one after the other, from 4 on


def test_later_tasks_of_a_known_job() -> None:
    work = world(
        [task("a", 0, 1, job="j"), task("b", 0, 9, job="j"), task("c", 5, 1, job="j"), task("d", 50, 1, job="j")]
    )
    assert run(work).tasks["completed"] == 4


def test_jobs_that_are_over_leave_the_scheduler() -> None:
    whole = Arrival(0, JobSubmitted("whole", (Task("a", {"cpu": 1}), Task("b", {"cpu": 1}))), (1, 2))
    parts = [task("c", 0, 1, job="parts"), task("d", 5, 1, job="parts")]
    run = simulation(world([whole, *parts, task("e", 3, 9)], machines=[4]))
    assert run.run(until=10).tasks["completed"] == 4
    assert [*run.scheduler.cluster.jobs] == ["parts", "e"]  # tasks of the first arrived twice


def test_a_job_that_is_over_keeps_its_tasks_until_their_failed_machine_is_replaced() -> None:
    events = [MachineFailed("m0", time=1), MachineAdded("m1", {"cpu": 2}, time=3)]
    metrics = run(world([task("a", 0, 4, job="j")], events=events))
    assert (metrics.tasks["completed"], metrics.facts["end"]) == (1, 7)


def test_other_machines_than_the_workloads() -> None:
    work = world(TWO)
    metrics = Simulation(Scheduler(resources=("cpu",)), work, [Machine("x", {"cpu": 3})]).run()
    assert metrics.waits.tolist() == [0, 0]


def test_an_interrupted_run_can_be_accounted_for() -> None:
    made = simulation(world([task(f"t{i}", i, 3) for i in range(20)]))

    def interrupt(progress: Progress) -> None:
        if progress.rounds == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made.run(progress=interrupt)
    metrics = made.metrics()
    assert sum(metrics.account().values()) == 20
    assert metrics.tasks["not_arrived"] > 0
    assert metrics.counts["rounds"] == 8


def test_progress_is_told_after_every_round() -> None:
    seen: list[Progress] = []
    metrics = simulation(world(TWO)).run(progress=seen.append)
    assert [p.rounds for p in seen] == [1, 2, 3, 4]
    assert len(seen) == metrics.counts["rounds"]
    assert seen[1] == Progress(time=1, rounds=2, tasks=2, completed=0, running=1, waiting=1)


def test_a_simulation_runs_once() -> None:
    made = simulation(world(TWO))
    made.run()
    with pytest.raises(InputError, match="run: a simulation runs once"):
        made.run()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"interval": 0}, "interval"),
        ({"interval": math.nan}, "interval"),
        ({"on_events": False}, "on_events"),
        ({"preempted": "forget"}, "preempted"),
        ({"charge_solver": -1.0}, "charge_solver"),
        ({"charge_solver": "yes"}, "charge_solver"),
        ({"interval": "1s"}, "interval"),
        ({"execution": "slow"}, "execution"),
        ({"facts": "none"}, "facts"),
        ({"machines": ["m"]}, r"machines\[0\]"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=rf"^{says}(:| must)"):
        simulation(world(TWO), **options)


@pytest.mark.parametrize("until", [-1, math.nan])
def test_a_bad_end_is_named(until: float) -> None:
    with pytest.raises(InputError, match="^until must"):
        simulation(world(TWO)).run(until)


def test_only_machine_events_among_the_machine_events() -> None:
    with pytest.raises(InputError, match="machine_events"):
        run(world(TWO, events=[TaskCompleted("a", time=1.0)]))


@pytest.mark.parametrize("options", [{}, {"interval": 7.0, "on_events": False}, {"charge_solver": 0.75}])
def test_the_same_seed_gives_the_same_simulation(options: dict[str, Any]) -> None:
    one, two, other = (
        run(Workload.model(tasks=150, scale=0.03, load=1.2, seed=seed), policy="pack", **options) for seed in (5, 5, 6)
    )
    assert same(one) == same(two)
    assert same(one) != same(other)


@pytest.mark.long
@pytest.mark.parametrize("policy", Policy.names())
def test_an_overloaded_model_is_accounted_for_under_every_policy(policy: str) -> None:
    metrics = run(Workload.model(tasks=300, scale=0.03, load=1.5, seed=1), policy=policy)
    assert metrics.tasks["waiting"] > 0
    assert metrics.usage["gpu"].peak > 0.8
    assert UNDECIDED not in metrics.waiting
    assert len(metrics.reasons) == sum(metrics.waiting.values())
    assert max(use.peak for use in metrics.usage.values()) <= 1


@pytest.mark.skipif(not OPENB.is_dir(), reason=f"the openb trace is not at {OPENB}")
@pytest.mark.parametrize("variant", ["default", "gpuspec33"])
@pytest.mark.long
def test_openb_pods_that_never_end_are_all_accounted_for(variant: str) -> None:
    work = load_trace(OPENB, variant=variant).compress(1e7).hold()
    metrics = run(work, policy="pack-no-preemption", interval=0.25, on_events=False)
    assert metrics.tasks["completed"] == 0
    assert metrics.placed == metrics.tasks["running"] > 6500
    assert metrics.usage["gpu"].final > 0.75
