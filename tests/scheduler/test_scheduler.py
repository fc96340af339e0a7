"""The scheduler through its public contract: decisions of rounds, and effects of commits."""

from __future__ import annotations

import itertools
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pytest
from worlds import step

import flowsched as fs
from flowsched.rounds.preemption import victims


def cluster(*machines: tuple[str, dict[str, float]], policy: fs.Policy | None = None, **given: Any) -> fs.Scheduler:
    sched = fs.Scheduler(policy)
    sched.apply(*(fs.MachineAdded(name, capacity, **given) for name, capacity in machines))
    return sched


def submit(
    sched: fs.Scheduler, job: Hashable, n: int, demand: dict[str, float], priority: int = 0, **task: Any
) -> list[Hashable]:
    ids = [f"{job}{i}" for i in range(n)]
    sched.apply(fs.JobSubmitted(job, [fs.Task(i, demand, **task) for i in ids], priority=priority))
    return list(ids)


# -- priority ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(itertools.permutations([1, 2, 5])))
def test_priorities_1_2_5_on_one_slot(order: Sequence[int]) -> None:
    """The example of Sirius: T1 runs, T2 and T3 wait; the next best task comes next."""
    sched = cluster(("M", {}), slots=1)
    for priority in order:
        sched.apply(fs.JobSubmitted(f"J{priority}", [fs.Task(f"T{priority}")], priority=priority))
    for running, waiting in [("T1", {"T2", "T5"}), ("T2", {"T5"}), ("T5", set())]:
        rnd = step(sched)
        assert dict(rnd.placements) == {running: "M"}
        assert set(rnd.waiting) == waiting
        assert {rnd.waiting[t].code for t in waiting} <= {fs.ReasonCode.OUTBID}
        sched.apply(fs.TaskCompleted(running))


@pytest.mark.parametrize("slots", [1, None])
def test_the_better_one_displaces_the_worse_and_that_has_a_price(slots: int | None) -> None:
    sched = cluster(("M", {"cpu": 1}), slots=slots)
    submit(sched, "worse", 1, {"cpu": 1}, priority=5)
    step(sched)
    submit(sched, "better", 1, {"cpu": 1}, priority=1)
    rnd = step(sched, 10.0)
    assert dict(rnd.placements) == {"better0": "M"}
    assert dict(rnd.preemptions) == {"worse0": fs.Preemption("M", by="better0", price=1.0)}
    assert rnd.deltas == (fs.Preempt("worse0", "M", "better0"), fs.Place("better0", "M", ()))


def test_equals_do_not_displace_each_other() -> None:
    sched = cluster(("M", {"cpu": 1}))
    submit(sched, "a", 1, {"cpu": 1})
    step(sched)
    submit(sched, "b", 1, {"cpu": 1})
    assert not step(sched, 1e9).deltas


@pytest.mark.parametrize("slots", [1, None])
@pytest.mark.parametrize("first", ["L", "R"])
def test_who_lost_least_work_goes(slots: int | None, first: str) -> None:
    """Two machines, each with a task; the one that has run for a day stays, the newcomer goes."""
    sched = cluster(("L", {"cpu": 1}), ("R", {"cpu": 1}), slots=slots)
    second = "R" if first == "L" else "L"
    sched.apply(fs.JobSubmitted("j", [fs.Task(first, {"cpu": 1}), fs.Task(second, {"cpu": 1})], priority=5))
    sched.apply(fs.TaskStarted(first, first, time=0.0), fs.TaskStarted(second, second, time=86_000.0))
    submit(sched, "better", 1, {"cpu": 1}, priority=1)
    rnd = step(sched, 86_400.0)
    assert list(rnd.preemptions) == [second]
    assert rnd.preemptions[second].price == 1.0 + fs.WaitCost().bucket(400.0)


def test_work_lost_counts_where_several_must_go() -> None:
    """A strict priority caps the cost of eviction, but the cheaper of two expensive machines is still chosen."""
    sched = cluster(*((f"m{i}", {"cpu": 4}) for i in range(4)))
    sched.apply(fs.JobSubmitted("old", [fs.Task((i, k), {"cpu": 1}) for i in range(4) for k in range(4)], priority=5))
    for i, k in itertools.product(range(4), range(4)):
        sched.apply(fs.TaskStarted((i, k), f"m{i}", time=0.0 if i != 2 else 9e4))
    submit(sched, "better", 1, {"cpu": 4}, priority=1)
    assert {task[0] for task in step(sched, 1e5).preemptions} == {2}


def test_a_worse_task_that_can_move_moves_and_one_that_can_wait_waits() -> None:
    sched = cluster(("small", {"cpu": 1}), ("large", {"cpu": 4}))
    submit(sched, "worse", 2, {"cpu": 1}, priority=5)
    sched.apply(fs.TaskStarted("worse0", "large", time=0.0), fs.TaskStarted("worse1", "large", time=0.0))
    submit(sched, "better", 1, {"cpu": 4}, priority=1)
    rnd = step(sched)
    assert len(rnd.migrations) == len(rnd.preemptions) == 1
    assert set(rnd.migrations.values()) == {("large", "small")}
    assert {delta.by for delta in rnd.deltas if not isinstance(delta, fs.Place)} == {"better0"}


def test_victims_are_as_few_as_make_room() -> None:
    """Worst first and last started first; a victim that turns out not to be needed is spared."""
    sched = cluster(("M", {"cpu": 8}))
    sched.apply(
        fs.JobSubmitted("j", [fs.Task("large", {"cpu": 5}), *(fs.Task(i, {"cpu": 1}) for i in range(3))], priority=5)
    )
    sched.apply(*(fs.TaskStarted(task, "M") for task in ("large", 0, 1, 2)))
    submit(sched, "better", 1, {"cpu": 5}, priority=1)
    cls = sched.cluster.task("better0").group.cls
    with sched.builder.round(0.0) as scope:
        assert [task.id for task in victims(sched.cluster, scope, cls, 0) or ()] == ["large"]
    assert list(step(sched).preemptions) == ["large"]


def test_no_task_moves_while_there_is_room_elsewhere() -> None:
    """A free place, however bad, is cheaper than the best place that another task would have to leave."""
    sched = cluster(("full", {"cpu": 2}), ("other", {"cpu": 2, "gpu": 8}), policy=fs.Policy.named("pack"))
    submit(sched, "worse", 2, {"cpu": 1}, priority=5)
    sched.apply(fs.TaskStarted("worse0", "full"), fs.TaskStarted("worse1", "full"))
    submit(sched, "better", 1, {"cpu": 2}, priority=1)
    assert step(sched).deltas == (fs.Place("better0", "other", ()),)


@pytest.mark.parametrize("slots", [None, 2])
def test_preemption_does_not_loop(slots: int | None) -> None:
    sched = cluster(*((f"m{i}", {"cpu": 2}) for i in range(3)), slots=slots)
    for priority in (5, 2, 9, 1, 2):
        submit(sched, ("j", priority, len(sched.cluster.jobs)), 3, {"cpu": 1 + priority % 2}, priority=priority)
        step(sched)
    deltas = [step(sched, now).deltas for now in (0.0, 1.0, 100.0, 1e4, 1e6, 1e8)]
    assert not any(deltas)


def test_a_task_preempted_lately_is_spared_within_the_window() -> None:
    sched = cluster(("M", {"cpu": 1}), policy=fs.Policy(preemption=fs.PreemptionCost(window=100.0)))
    submit(sched, "worse", 1, {"cpu": 1}, priority=5)
    step(sched, 0.0)
    for now, preempted in [(10.0, True), (50.0, False), (109.0, False), (111.0, True)]:
        (better,) = submit(sched, ("better", now), 1, {"cpu": 1}, priority=1)
        assert bool(step(sched, now).preemptions) == preempted
        sched.apply(fs.TaskCompleted(better) if preempted else fs.TaskRemoved(better))
        step(sched, now)


# -- capacity ---------------------------------------------------------------------------------------------------------


def test_two_classes_do_not_fill_the_same_machine_twice_in_a_round() -> None:
    sched = cluster(("M", {"cpu": 4, "mem": 8}))
    submit(sched, "a", 4, {"cpu": 1, "mem": 4})
    submit(sched, "b", 4, {"cpu": 2, "mem": 1})
    rnd = step(sched)
    started = [sched.cluster.task(t).group.cls.demand for t in rnd.placements]
    assert (sum(started) <= np.array([4, 8, 0]) * 1_000_000).all() and len(started) >= 2
    free = sched.cluster.inventory.free[0]
    assert not any((sched.cluster.task(t).group.cls.demand <= free).all() for t in rnd.waiting)


def test_gpus_are_counted_one_by_one() -> None:
    sched = cluster(("M", {"gpu": 2}))
    submit(sched, "share", 4, {"gpu": 0.6})
    rnd = step(sched)
    assert len(rnd.placements) == 2, "0.8 of a GPU are free, but on no single one is there 0.6"
    assert sorted(rnd.devices.values()) == [(0,), (1,)]
    assert rnd.waiting["share3"].code == fs.ReasonCode.OUTBID
    submit(sched, "whole", 1, {"gpu": 1})
    assert step(sched).waiting["whole0"].code == fs.ReasonCode.NO_FIT
    sched.apply(*(fs.TaskRemoved(t) for t in rnd.waiting), fs.TaskCompleted("share0"))
    rnd = step(sched)
    assert dict(rnd.devices) == {"whole0": (0,)}


def test_shares_of_gpus_fill_the_fuller_gpu_first() -> None:
    sched = cluster(("M", {"gpu": 2}))
    submit(sched, "a", 1, {"gpu": 0.5})
    submit(sched, "b", 1, {"gpu": 0.3})
    submit(sched, "c", 1, {"gpu": 1})
    rnd = step(sched)
    assert not rnd.waiting
    assert rnd.devices["a0"] == rnd.devices["b0"] != rnd.devices["c0"]


def test_whole_gpus_are_entirely_free_ones_of_an_allowed_model() -> None:
    sched = fs.Scheduler()
    for name, model in [("t4", "T4"), ("p100", "P100"), ("v100", "V100")]:
        sched.apply(fs.MachineAdded(name, {"gpu": 4}, labels={"gpu_model": model}))
    (share,) = submit(sched, "share", 1, {"gpu": 0.1}, constraints={"gpu_model": ("P100",)})
    step(sched)
    submit(sched, "four", 3, {"gpu": 4}, constraints={"gpu_model": ("T4", "P100")})
    rnd = step(sched)
    assert dict(rnd.placements) == {"four0": "t4"} and rnd.devices["four0"] == (0, 1, 2, 3)
    sched.apply(fs.TaskCompleted(share))
    rnd = step(sched)
    assert dict(rnd.placements) == {"four1": "p100"}
    reason = rnd.waiting["four2"]
    assert reason.detail["4 gpu V100"] == {"constraint gpu_model": 1}


def test_a_machine_of_slots_takes_as_many_as_it_has() -> None:
    sched = cluster(("M", {"cpu": 9}), slots=2)
    submit(sched, "a", 3, {"cpu": 1})
    rnd = step(sched)
    assert len(rnd.placements) == 2
    assert sched.explain("a2").code == fs.ReasonCode.NO_SLOT


# -- the same result whatever the spelling ---------------------------------------------------------------------------

_STORY = """
    import random
    import flowsched as fs

    def story(name, seed):
        rng = random.Random(seed)
        sched = fs.Scheduler()
        out = []
        count = 0
        sched.apply(*(fs.MachineAdded(name(f"m{i}"), {"cpu": rng.randrange(2, 9), "gpu": rng.randrange(3)}, name(f"r{i % 3}"))
                      for i in range(12)))
        for now in range(12):
            demand = {"cpu": rng.randrange(1, 4), "gpu": rng.choice([0, 0, 0.5, 1])}
            tasks = [fs.Task(name(f"t{count + i}"), demand) for i in range(rng.randrange(1, 9))]
            count += len(tasks)
            sched.apply(fs.JobSubmitted(name(f"j{now}"), tasks, user=name(f"u{now % 2}"), priority=rng.randrange(3)))
            running = [t for t in sched.cluster.tasks if sched.cluster.placement(t)]
            for t in rng.sample(running, min(2, len(running))):
                sched.apply(fs.TaskCompleted(t))
            rnd = sched.schedule(float(now))
            sched.commit(rnd)
            out.append((rnd.deltas, [(t, r.code.value) for t, r in rnd.waiting.items()]))
        return out
"""


def test_the_spelling_of_ids_does_not_change_the_result() -> None:
    space: dict[str, Any] = {}
    exec(textwrap.dedent(_STORY), space)
    backwards, deltas = {}, set()

    def odd(name: str) -> Hashable:
        return backwards.setdefault(name, (9999 - len(backwards), name[::-1]))

    for seed in range(2, 5):
        backwards.clear()
        plain = repr(space["story"](str, seed))
        other = repr(space["story"](odd, seed))
        for name, spelling in sorted(backwards.items(), key=lambda item: -len(item[0])):
            other = other.replace(repr(spelling), repr(name))
        assert other == plain
        deltas.update(kind for kind in ("Place(", "Preempt(", "Migrate(") if kind in plain)
    assert deltas == {"Place(", "Preempt(", "Migrate("}, "the story has all kinds"


@pytest.mark.long
def test_hash_seeds_do_not_change_the_result() -> None:
    code = textwrap.dedent(_STORY) + "\nprint(story(str, 1))"
    outs = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True, timeout=60, check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }  # fmt: skip
    assert len(outs) == 1 and "Place" in outs.pop()


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_tasks_does_not_change_how_many_of_each_kind_run(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tasks = [fs.Task(i, {"cpu": float(rng.integers(1, 4)), "gpu": float(rng.integers(0, 2))}) for i in range(40)]
    started = []
    for order in (range(40), reversed(range(40)), rng.permutation(40).tolist()):
        sched = cluster(*((f"m{i}", {"cpu": 6, "gpu": i % 3}) for i in range(9)))
        sched.apply(fs.JobSubmitted("j", [tasks[i] for i in order]))
        rnd = step(sched)
        started.append(Counter(tuple(sorted(tasks[t].demand.items())) for t in rnd.placements))
    assert started[0] == started[1] == started[2]


# -- waiting ----------------------------------------------------------------------------------------------------------


def test_an_idle_round_changes_nothing_not_even_the_network() -> None:
    sched = cluster(*((f"m{i}", {"cpu": 4}) for i in range(5)))
    submit(sched, "a", 30, {"cpu": 1})
    submit(sched, "b", 3, {"cpu": 99}, priority=3)
    step(sched)
    step(sched)
    for now in (0.0, 1.0, 2.0):
        rnd = step(sched, now)
        assert not rnd.deltas and rnd.stats.changes == 0 and len(rnd.waiting) == 13


def test_new_capacity_wakes_waiting_tasks() -> None:
    sched = fs.Scheduler()
    submit(sched, "a", 4, {"cpu": 2, "gpu": 1}, constraints={"gpu_model": ("T4",)})
    assert {r.code for r in step(sched).waiting.values()} == {fs.ReasonCode.NEVER_FITS}
    sched.apply(fs.MachineAdded("m", {"cpu": 2, "gpu": 1}, labels={"gpu_model": "P100"}))
    assert {r.code for r in step(sched).waiting.values()} == {fs.ReasonCode.FILTERED}
    sched.apply(fs.MachineUpdated("m", labels={"gpu_model": "T4"}))
    assert len(step(sched).placements) == 1
    sched.apply(fs.MachineUpdated("m", capacity={"cpu": 4, "gpu": 2}))
    assert len(step(sched).placements) == 1
    sched.apply(fs.MachineAdded("n", {"cpu": 9, "gpu": 1}, labels={"gpu_model": "T4"}))
    assert list(step(sched).placements.values()) == ["n"]
    sched.apply(fs.MachineDrained("n"))
    sched.apply(fs.TaskCompleted("a2"))
    assert not step(sched).placements
    sched.apply(fs.MachineUpdated("n"))
    assert dict(step(sched).placements) == {"a3": "n"}


def test_a_failed_machine_s_tasks_run_elsewhere_and_again_on_it_once_it_is_back() -> None:
    sched = cluster(("a", {"cpu": 2}), ("b", {"cpu": 1}))
    submit(sched, "t", 3, {"cpu": 1})
    step(sched)
    sched.apply(fs.MachineFailed("a"))
    assert len(step(sched).waiting) == 2
    sched.apply(fs.MachineAdded("a", {"cpu": 2}))
    rnd = step(sched)
    assert not rnd.waiting and set(rnd.placements.values()) == {"a"}


@pytest.mark.parametrize("event", [fs.TaskCompleted, fs.TaskRemoved, lambda t: fs.TaskFailed(t, retry=False)])
def test_the_same_id_may_come_back(event: Any) -> None:
    sched = cluster(("m", {"cpu": 4}))
    submit(sched, "a", 1, {"cpu": 1})
    old = step(sched)
    sched.apply(event("a0"))
    sched.apply(fs.TaskSubmitted("a", fs.Task("a0", {"cpu": 4})))
    assert not sched.commit(old).accepted, "a round about the old one says nothing about the new one"
    rnd = step(sched)
    assert dict(rnd.placements) == {"a0": "m"}
    assert sched.cluster.inventory.free[0, 0] == 0


def test_the_older_goes_first_within_a_priority() -> None:
    sched = cluster(("m", {"cpu": 1}))
    for i in range(6):
        sched.apply(fs.JobSubmitted(f"j{i}", [fs.Task(f"t{i}", {"cpu": 1})], time=300.0 * i))
    order = []
    for i in range(6):
        (task,) = step(sched, 1800.0 + i).placements
        order.append(task)
        sched.apply(fs.TaskCompleted(task))
    assert order == [f"t{i}" for i in range(6)]


# -- what happens between schedule and commit ------------------------------------------------------------------------


def test_nothing_happens_before_the_commit() -> None:
    sched = cluster(("m", {"cpu": 4}))
    submit(sched, "a", 3, {"cpu": 1})
    first, second = sched.schedule(0.0), sched.schedule(0.0)
    assert first.deltas == second.deltas and sched.cluster.task_state("a0") == "waiting"
    assert sched.commit(second).accepted == second.deltas
    again = sched.commit(first)
    assert not again.accepted and {r.code for r in again.conflicts.values()} == {fs.ReasonCode.CONFLICT}


def test_what_ends_during_the_solve_is_refused_by_the_commit() -> None:
    sched = cluster(("m", {"cpu": 2}))
    submit(sched, "worse", 2, {"cpu": 1}, priority=5)
    step(sched)
    submit(sched, "better", 2, {"cpu": 1}, priority=1)
    rnd = sched.schedule(1.0)
    sched.apply(fs.TaskCompleted("worse0"), fs.TaskRemoved("better1"))
    done = sched.commit(rnd)
    assert not {"worse0", "better1"} & {delta.task for delta in done.accepted}
    assert {"worse0", "better1"} & set(done.conflicts)
    step(sched, 2.0)
    assert sched.cluster.task_state("better0") == "running"


def test_a_conflict_takes_all_that_belongs_together_and_nothing_else() -> None:
    sched = cluster(("a", {"cpu": 2}), ("b", {"cpu": 9}))
    submit(sched, "worse", 2, {"cpu": 1}, priority=5)
    for task in ("worse0", "worse1"):
        sched.apply(fs.TaskStarted(task, "a"))
    submit(sched, "two", 1, {"cpu": 2}, priority=1, constraints={})
    sched.apply(fs.JobSubmitted("big", [fs.Task("big", {"cpu": 9})], priority=1))
    rnd = sched.schedule(0.0)
    assert set(rnd.placements) == {"two0", "big"} and len(rnd.preemptions) == 2
    sched.apply(fs.TaskRemoved("two0"))
    done = sched.commit(rnd)
    assert done.accepted == (fs.Place("big", "b", ()),)
    assert sched.cluster.placement("worse0") == sched.cluster.placement("worse1") == "a"


def test_a_machine_lost_or_filled_meanwhile_is_a_conflict() -> None:
    sched = cluster(("m", {"cpu": 1}))
    submit(sched, "a", 1, {"cpu": 1})
    rnd = sched.schedule(0.0)
    sched.apply(fs.MachineFailed("m"))
    assert sched.commit(rnd).conflicts["a0"].detail == {"machine": {"gone": 1}}
    sched.apply(fs.MachineAdded("m", {"cpu": 1}))
    rnd = sched.schedule(0.0)
    submit(sched, "b", 1, {"cpu": 1})
    sched.apply(fs.TaskStarted("b0", "m"))
    assert sched.commit(rnd).conflicts["a0"].detail == {"machine": {"no room": 1}}


def test_commit_only() -> None:
    sched = cluster(("m", {"cpu": 2}), ("n", {"cpu": 2}))
    submit(sched, "worse", 2, {"cpu": 2}, priority=5)
    step(sched)
    submit(sched, "better", 2, {"cpu": 2}, priority=1)
    rnd = sched.schedule(1.0)
    assert len(rnd.placements) == len(rnd.preemptions) == 2
    done = sched.commit(rnd, only=["better1"])
    (preempt, place) = done.accepted
    assert isinstance(preempt, fs.Preempt) and preempt.by == place.task == "better1" and not done.conflicts
    assert sched.cluster.task_state("better0") == "waiting"
    assert sched.commit(rnd, only=["better0"]).accepted, "the rest of the round still holds"
    assert not sched.commit(rnd, only=[]).accepted


def test_an_aborted_round_cannot_be_committed() -> None:
    sched = cluster(("m", {"cpu": 2}))
    submit(sched, "a", 2, {"cpu": 1})
    rnd = sched.schedule(0.0)
    sched.abort(rnd)
    with pytest.raises(fs.InputError, match="aborted"):
        sched.commit(rnd)
    assert step(sched).deltas == rnd.deltas


def test_a_time_limit_that_is_over_at_once_leaves_everybody_waiting_with_a_reason() -> None:
    sched = cluster(*((f"m{i}", {"cpu": 4}) for i in range(50)))
    submit(sched, "a", 100, {"cpu": 1})
    rnd = sched.schedule(0.0, time_limit=1e-9)
    assert set(rnd.placements) | set(rnd.waiting) == {f"a{i}" for i in range(100)}
    assert {r.code for r in rnd.waiting.values()} <= {fs.ReasonCode.TIME_LIMIT}
    assert rnd.waiting or rnd.stats.gap == 0
    sched.abort(rnd)
    assert len(step(sched).placements) == 100


# -- replacing the policy, explaining, bad input ---------------------------------------------------------------------


class Utility:
    """Sirius's <task, resources, utility>: GPU machines are worth 1 to every task."""

    weight = 1.0

    def __call__(self, cluster: fs.Cluster, classes: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return np.broadcast_to(cluster.inventory.capacity[rows, 2] == 0, (len(classes), len(rows))).astype(np.float64)


@pytest.mark.parametrize("names", [("M1", "M2"), ("M2", "M1")])
def test_utility_decides_where_and_can_be_replaced_while_running(names: tuple[str, str]) -> None:
    """T1 has utility 1 on the GPU machine M1 and 0 on M2: it runs on M1."""
    sched = fs.Scheduler(fs.Policy(placement=[Utility()]))
    sched.apply(*(fs.MachineAdded(m, {"cpu": 9, "gpu": float(m == "M1")}) for m in names))
    submit(sched, "T", 1, {"cpu": 1})
    assert dict(step(sched).placements) == {"T0": "M1"}
    sched.policy = fs.Policy(placement=[fs.DeviceCost()])
    submit(sched, "S", 1, {"cpu": 1})
    assert dict(step(sched).placements) == {"S0": "M2"}


def test_explain() -> None:
    sched = cluster(("a", {"cpu": 2}), ("b", {"cpu": 1}))
    submit(sched, "t", 2, {"cpu": 2})
    assert sched.explain("t0").code == fs.ReasonCode.PENDING
    step(sched)
    assert sched.explain("t0").code == sched.explain("t0", "a").code == fs.ReasonCode.RUNNING
    assert sched.explain("t1").code == fs.ReasonCode.NO_FIT
    assert sched.explain("t1").detail == {"2 cpu": {"cpu": 1}, "1 cpu": {"cpu": 1}}
    assert sched.explain("t1", "b").code == fs.ReasonCode.NEVER_FITS
    assert sched.explain("t1", "b").detail == {"1 cpu": {"cpu": 1}}
    assert "TaskCompleted" in sched.explain("t1").unblocked_by


def test_a_time_limit_in_a_short_float_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many seconds as a machine runs, plus such a limit, would be infinite as a float of 16 bits, and coarse as one of 32."""
    monkeypatch.setattr("flowsched.rounds.loop.time.perf_counter", lambda: 1e8)
    for limit in (np.float16(1.0), np.float32(1e-3)):
        sched = cluster(("m", {"cpu": 1}))
        submit(sched, "a", 1, {"cpu": 1})
        assert sched.schedule(0.0, time_limit=limit).placements == {"a0": "m"}


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda s: s.apply("machine"), fs.InputError, "event"),
        (lambda s: s.apply(fs.MachineAdded("m", {"cpu": 1})), fs.DuplicateIdError, "'m'"),
        (lambda s: s.apply(fs.MachineAdded("n", {"cpu": -1})), fs.InputError, r"'n': capacity\['cpu'\]"),
        (lambda s: s.apply(fs.MachineAdded("n", {"cpu": float("nan")})), fs.InputError, r"capacity\['cpu'\].*nan"),
        (lambda s: s.apply(fs.MachineAdded("n", {"gpu": 0.5})), fs.InputError, r"capacity\['gpu'\].*whole"),
        (lambda s: s.apply(fs.MachineAdded("n", {"disk": 1})), fs.InputError, "unknown resource 'disk'"),
        (lambda s: s.apply(fs.MachineAdded("n", {"cpu": 1}, slots=-1)), fs.InputError, "slots"),
        (lambda s: s.apply(fs.JobSubmitted("j", [fs.Task("a0", {"cpu": 1})])), fs.DuplicateIdError, "'a0'"),
        (lambda s: s.apply(fs.JobSubmitted("a", [])), fs.DuplicateIdError, "'a'"),
        (lambda s: s.apply(fs.JobSubmitted("j", [fs.Task("x"), fs.Task("x")])), fs.DuplicateIdError, "'x'"),
        (lambda s: s.apply(fs.JobSubmitted("j", [fs.Task("x", {"gpu": 1.5})])), fs.InputError, r"'x': demand\['gpu'\]"),
        (lambda s: s.apply(fs.JobSubmitted("j", ["x"])), fs.InputError, "Task"),
        (lambda s: s.apply(fs.JobSubmitted("j", [], priority=1.5)), fs.InputError, "priority"),
        (lambda s: s.apply(fs.TaskSubmitted("nope", fs.Task("x"))), fs.UnknownIdError, "'nope'"),
        (lambda s: s.apply(fs.TaskCompleted("nope")), fs.UnknownTaskError, "'nope'"),
        (lambda s: s.apply(fs.TaskCompleted("a1")), fs.InputError, "'a1' waits"),
        (lambda s: s.apply(fs.TaskStarted("a1", "m", devices=[0])), fs.InputError, "'a1': devices: 0 different"),
        (lambda s: s.apply(fs.MachineFailed("nope")), fs.UnknownMachineError, "'nope'"),
        (lambda s: s.apply(fs.MachineUpdated("m", capacity={"cpu": -1})), fs.InputError, "'cpu'"),
        (lambda s: s.schedule(float("nan")), fs.InputError, "now"),
        (lambda s: s.schedule("soon"), fs.InputError, "now"),
        (lambda s: s.schedule(0.0, time_limit=0), fs.InputError, "time_limit"),
        (lambda s: s.commit("round"), fs.InputError, "round"),
        (lambda s: s.abort(None), fs.InputError, "round"),
        (lambda s: s.explain("nope"), fs.UnknownTaskError, "'nope'"),
        (lambda s: s.explain("a0", "nope"), fs.UnknownMachineError, "'nope'"),
    ],
)
def test_bad_input_is_named_and_changes_nothing(call: Any, error: type[Exception], words: str) -> None:
    sched = cluster(("m", {"cpu": 1}))
    submit(sched, "a", 2, {"cpu": 1})
    step(sched)
    step(sched)
    with pytest.raises(error, match=words):
        call(sched)
    idle = step(sched)
    assert not idle.deltas and idle.stats.changes == 0
    assert list(sched.cluster.tasks) == ["a0", "a1"] and list(sched.cluster.jobs) == ["a"]
    assert sched.cluster.machine_ids() == ["m"]
