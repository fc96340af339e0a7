"""Bugs of other schedulers and solvers: each is open in its own tracker, and a promise here.

Two of them are tested where they are built: what-if that differs from the later round (nomad#1281), in `test_snapshot`
(a question gets the later round), and minutes of recovery after a restart (volcano#5819), in `test_journal` (the first
round after a restart is warm).
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import step

import flowsched as fs

DEMANDS = [{"cpu": 1.0}, {"cpu": 2.0, "mem": 3.0}, {"cpu": 3.0}, {"cpu": 1.0, "gpu": 0.4}, {"gpu": 1.0}, {"mem": 2.5}]
EXAMPLES = settings(max_examples=effort(15, 400))
CAPACITY = {"cpu": 4, "mem": 5, "gpu": 1}


def world(machines: int, slots: int | None = None, policy: fs.Policy | None = None) -> fs.Scheduler:
    sched = fs.Scheduler(policy)
    sched.apply(*(fs.MachineAdded(f"m{i}", CAPACITY, slots=slots) for i in range(machines)))
    return sched


def submit(sched: fs.Scheduler, job: Any, demands: list[dict[str, float]], priority: int = 0) -> None:
    tasks = [fs.Task((job, i), demand) for i, demand in enumerate(demands)]
    sched.apply(fs.JobSubmitted(job, tasks, priority=priority))


def usage(sched: fs.Scheduler) -> dict[Any, np.ndarray]:
    """Usage of each machine, added up from data that the test itself may read."""
    used = {m: np.zeros(3) for m in sched.cluster.machine_ids()}
    for name in sched.cluster.tasks:
        machine = sched.cluster.placement(name)
        if machine is not None:
            used[machine] += sched.cluster.task(name).group.cls.demand / 1e6
    return used


jobs = st.lists(st.tuples(st.lists(st.sampled_from(DEMANDS), min_size=1, max_size=6), st.integers(0, 2)), max_size=6)


@EXAMPLES
@given(jobs=jobs, machines=st.integers(1, 4), slots=st.sampled_from([None, 2]))
def test_no_overcommit_when_classes_fill_one_machine_in_a_round(jobs: Any, machines: int, slots: int | None) -> None:
    """firmament#71"""
    sched = world(machines, slots)
    for i, (demands, priority) in enumerate(jobs):
        submit(sched, i, demands, priority)
    step(sched)
    for used in usage(sched).values():
        assert (used <= np.array([4, 5, 1]) + 1e-9).all()
    if slots:
        places = Counter(sched.cluster.placement(t) for t in sched.cluster.tasks)
        assert all(n <= slots for machine, n in places.items() if machine)


GANGS = st.lists(
    st.tuples(st.integers(1, 5), st.sampled_from([1, 2, 4]), st.none() | st.integers(1, 5), st.integers(0, 2)),
    max_size=5,
)


def with_gangs(machines: int, slots: int | None, rounds: Any) -> Iterator[tuple[fs.Scheduler, fs.Round]]:
    """Rounds before each of which some jobs come, as (tasks, cpu of each, gang, priority), and more until nothing changes."""
    sched = world(machines, slots)
    for now, new in enumerate(rounds):
        for i, (n, cpu, gang, priority) in enumerate(new):
            tasks = [fs.Task((now, i, k), {"cpu": cpu}) for k in range(n)]
            sched.apply(fs.JobSubmitted((now, i), tasks, gang=gang, priority=priority))
        yield sched, step(sched, float(now))
        for _ in range(9):
            rnd = step(sched, float(now))
            if not rnd.deltas:
                break
            yield sched, rnd
        else:
            pytest.fail("ten rounds, and no end of changes")


def size(sched: fs.Scheduler, job: Any) -> int:
    """Number of running tasks of a job."""
    return sum(sched.cluster.placement(task.id) is not None for task in sched.cluster.jobs[job].tasks)


@EXAMPLES
@given(machines=st.integers(1, 4), slots=st.sampled_from([None, 2]), rounds=st.lists(GANGS, max_size=4))
def test_no_gang_is_half_started(machines: int, slots: int | None, rounds: Any) -> None:
    """volcano#5805"""
    for sched, _ in with_gangs(machines, slots, rounds):
        for job in sched.cluster.jobs.values():
            assert size(sched, job.job.id) == 0 or size(sched, job.job.id) >= (job.job.gang or 0), "half a gang"


@EXAMPLES
@given(machines=st.integers(1, 4), slots=st.sampled_from([None, 2]), rounds=st.lists(GANGS, max_size=4))
def test_no_task_is_evicted_for_a_gang_that_does_not_start(machines: int, slots: int | None, rounds: Any) -> None:
    """volcano#3291: a task that evicted another one runs, and its gang with it."""
    for sched, rnd in with_gangs(machines, slots, rounds):
        for gone in rnd.preemptions.values():
            assert gone.by in rnd.placements or gone.by in rnd.migrations
            job = sched.cluster.task(gone.by).group.job.job
            assert size(sched, job.id) >= (job.gang or 1)


@EXAMPLES
@given(
    slots=st.integers(1, 5),
    guarantee=st.integers(0, 5),
    own=st.integers(0, 6),
    borrowed=st.integers(0, 8),
    mode=st.sampled_from(["hard", "soft", "ladder"]),
    age=st.sampled_from([0.0, 1e6]),
)
def test_below_its_guarantee_no_queue_is_outbid_by_a_borrower(
    slots: int, guarantee: int, own: int, borrowed: int, mode: Any, age: float
) -> None:
    """kueue#6577: however many tasks the borrower has, and however old they are."""
    guarantee = min(guarantee, slots)
    limits = {"own": fs.Limits(guarantee=guarantee)}
    sched = fs.Scheduler(fs.Policy(fairness=fs.Fairness(over="user", mode=mode, limits=limits)), resources=("cpu",))
    sched.apply(*(fs.MachineAdded(i, {"cpu": 1}, slots=1) for i in range(slots)))
    for user, count, since in (("other", borrowed, 0.0), ("own", own, age)):
        tasks = [fs.Task((user, i), {"cpu": 1}) for i in range(count)]
        sched.apply(fs.JobSubmitted(user, tasks, user=user, time=since))
    step(sched, age)
    running = Counter(task[0] for task in sched.cluster.tasks if sched.cluster.placement(task) is not None)
    assert running["own"] >= min(guarantee, own)
    assert running.total() == min(slots, own + borrowed), "what the one leaves the other has"


@EXAMPLES
@given(worse=st.lists(st.sampled_from(DEMANDS), min_size=1, max_size=12), better=st.sampled_from(DEMANDS))
def test_no_more_victims_than_needed(worse: list[dict[str, float]], better: dict[str, float]) -> None:
    """volcano#2627: none of the preempted tasks could have stayed next to the tasks that then run there."""
    sched = world(2)
    submit(sched, "worse", worse, 5)
    step(sched)
    submit(sched, "better", [better], 1)
    rnd = step(sched, 1.0)
    used = usage(sched)
    for task, gone in rnd.preemptions.items():
        demand = sched.cluster.task(task).group.cls.demand / 1e6
        assert (used[gone.machine] + demand > np.array([4, 5, 1]) + 1e-9).any(), f"{task} went for nothing"
    assert not (rnd.preemptions and ("better", 0) in rnd.waiting), "victims, and nothing starts"
    assert {gone.by for gone in rnd.preemptions.values()} <= {("better", 0)}


@EXAMPLES
@given(jobs=jobs, slots=st.sampled_from([None, 2]))
def test_no_preemption_loop_with_nothing_changed(jobs: Any, slots: int | None) -> None:
    """kueue#3779, volcano#377"""
    sched = world(2, slots)
    for i, (demands, priority) in enumerate(jobs):
        submit(sched, i, demands, priority)
        step(sched)
    for now in (0.0, 1.0, 61.0, 1e3, 1e5):
        assert not step(sched, now).deltas


@EXAMPLES
@given(demands=st.lists(st.sampled_from(DEMANDS), min_size=1, max_size=20), seed=st.integers(0, 99))
def test_order_of_tasks_and_spelling_of_ids_do_not_matter(demands: list[dict[str, float]], seed: int) -> None:
    """batsim#27"""
    outcomes = []
    order = list(range(len(demands)))
    random.Random(seed).shuffle(order)
    for spell, indices in [(str, range(len(demands))), (lambda i: ("x", -i), order)]:
        sched = world(3)
        sched.apply(fs.JobSubmitted("j", [fs.Task(spell(i), demands[i]) for i in indices]))
        rnd = step(sched)
        kind = {spell(i): repr(demands[i]) for i in indices}
        outcomes.append(Counter((kind[task], machine) for task, machine in rnd.placements.items()))
    assert outcomes[0] == outcomes[1]


@EXAMPLES
@given(seed=st.integers(0, 10_000))
def test_warm_reoptimisation_is_right(seed: int) -> None:
    """Min-Cost-Flow-Class#2: after random events, the network kept alive has the optimum of a cold solve of it."""
    rng = random.Random(seed)
    sched = world(3)
    for now in range(6):
        submit(sched, now, rng.choices(DEMANDS, k=rng.randrange(1, 5)), rng.randrange(3))
        running = [t for t in sched.cluster.tasks if sched.cluster.placement(t)]
        sched.apply(*(fs.TaskCompleted(t) for t in running if rng.random() < 0.4))
        step(sched, float(now))
        sched.schedule(float(now))
        net = sched.network
        net.certify()
        nodes = {node: i for i, node in enumerate(net.nodes().tolist())}
        ends = [[nodes[v] for v in end.tolist()] for end in (net.tail(), net.head())]
        cold = fs.min_cost_flow(*ends, net.capacity(), net.cost(), net.supply())
        assert cold.cost == net.solve().cost


@EXAMPLES
@given(jobs=jobs, seed=st.integers(0, 99))
def test_what_ended_during_the_solve_does_not_happen(jobs: Any, seed: int) -> None:
    rng = random.Random(seed)
    sched = world(2)
    for i, (demands, priority) in enumerate(jobs):
        submit(sched, i, demands, priority)
        rnd = sched.schedule(float(i))
        gone = {t for t in sched.cluster.tasks if rng.random() < 0.3}
        sched.apply(*(fs.TaskRemoved(t) for t in gone))
        done = sched.commit(rnd)
        assert not gone & {delta.task for delta in done.accepted}
        assert {d.task for d in rnd.deltas} == {d.task for d in done.accepted} | set(done.conflicts)
        assert not gone & set(sched.schedule(float(i)).waiting)


@EXAMPLES
@given(jobs=jobs)
def test_every_waiting_task_has_a_reason_with_counts(jobs: Any) -> None:
    """armada#4185, nomad#15975"""
    sched = world(2)
    submit(sched, "huge", [{"cpu": 99.0}])
    for i, (demands, priority) in enumerate(jobs):
        submit(sched, i, demands, priority)
    rnd = step(sched)
    waiting = {t for t in sched.cluster.tasks if not sched.cluster.placement(t)}
    assert set(rnd.waiting) == waiting and ("huge", 0) in waiting
    for task, reason in rnd.waiting.items():
        assert isinstance(reason.code, fs.ReasonCode) and reason.unblocked_by
        (why,) = reason.detail.values()
        assert sum(why.values()) >= 2 >= max(why.values()), "both machines are accounted for"
        assert sched.explain(task).detail == reason.detail


@pytest.mark.parametrize("end", [fs.TaskCompleted, fs.TaskFailed, fs.TaskRemoved])
def test_the_same_id_comes_back_after_a_failure(end: Any) -> None:
    """poseidon#171"""
    sched = world(1)
    submit(sched, "j", [{"cpu": 4.0}])
    for now in range(5):
        assert dict(step(sched, float(now)).placements) == {("j", 0): "m0"}
        sched.apply(end(("j", 0)))
        if end is not fs.TaskFailed:
            sched.apply(fs.TaskSubmitted("j", fs.Task(("j", 0), {"cpu": 4.0})))
        assert sched.cluster.task_state(("j", 0)) == "waiting"


@pytest.mark.parametrize(
    "change",
    [
        fs.MachineAdded("new", {"cpu": 9}),
        fs.MachineUpdated("m0", capacity={"cpu": 8, "mem": 5, "gpu": 1}),
        fs.TaskCompleted(("j", 0)),
        fs.TaskFailed(("j", 0), retry=False),
        fs.TaskRemoved(("j", 0)),
        fs.JobRemoved("k"),
    ],
)
def test_new_capacity_wakes_waiting_tasks(change: fs.Event) -> None:
    """nomad#18645, poseidon#182: even after rounds in which nothing happened."""
    sched = world(1)
    submit(sched, "j", [{"cpu": 2.0}])
    submit(sched, "k", [{"cpu": 2.0}])
    submit(sched, "w", [{"cpu": 2.0}])
    for now in range(4):
        step(sched, now * 1e4)
    sched.apply(change)
    assert ("w", 0) in step(sched, 5e4).placements


@EXAMPLES
@given(jobs=jobs, slots=st.sampled_from([None, 2]), change=st.integers(0, 4), which=st.integers(0, 99))
def test_after_any_change_no_task_waits_that_fits(jobs: Any, slots: int | None, change: int, which: int) -> None:
    """nomad#18645, poseidon#182"""
    sched = world(2, slots, fs.Policy(preemption=None, waiting=fs.WaitCost(reserve=None)))
    for i, (demands, priority) in enumerate(jobs):
        submit(sched, i, demands, priority)
    submit(sched, "last", [{"cpu": 2.0}])
    for now in range(3):
        step(sched, now * 1e4)
    tasks = [task for task in sched.cluster.tasks if sched.cluster.placement(task)]
    task = tasks[which % len(tasks)]
    sched.apply(
        [
            fs.MachineAdded("new", CAPACITY, slots=slots),
            fs.MachineUpdated("m0", capacity={"cpu": 8, "mem": 9, "gpu": 2}, slots=slots and slots + 2),
            fs.TaskCompleted(task),
            fs.TaskFailed(task),
            fs.JobRemoved(task[0]),
        ][change]
    )
    rnd = step(sched, 5e4)
    for waiting in rnd.waiting:
        assert not sched.cluster.fits(waiting).any()


@EXAMPLES
@given(actions=st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc")), max_size=25))
def test_ids_that_come_and_go_name_their_present_owners(actions: list[tuple[int, str]]) -> None:
    """poseidon#171: two machines, each for one task; the model knows which tasks run."""
    sched = world(2)
    sched.apply(fs.JobSubmitted("j"))
    known: dict[str, bool] = {}
    for now, (kind, name) in enumerate(actions):
        if name not in known:
            sched.apply(fs.TaskSubmitted("j", fs.Task(name, {"cpu": 4.0})))
            known[name] = False
        elif kind == 0 and known[name]:
            sched.apply(fs.TaskFailed(name))
            known[name] = False
        elif kind in (1, 2) and (known[name] or kind == 2):
            sched.apply(fs.TaskCompleted(name) if kind == 1 else fs.TaskRemoved(name))
            del known[name]
        else:
            rnd = step(sched, float(now))
            known.update(dict.fromkeys(rnd.placements, True))
            assert sum(known.values()) == min(2, len(known)) and len(rnd.waiting) == max(0, len(known) - 2)
        assert {name: sched.cluster.task_state(name) == "running" for name in sched.cluster.tasks} == known


@EXAMPLES
@given(seed=st.integers(0, 10_000), machines=st.integers(1, 3))
def test_no_feasible_task_starves(seed: int, machines: int) -> None:
    """KAI-Scheduler#1970: smaller tasks come without end, each ends within five rounds, and one needs a whole machine."""
    rng = random.Random(seed)
    sched = world(machines, policy=fs.Policy(waiting=fs.WaitCost(first=1.0, reserve=2)))
    ends: dict[Any, int] = {}
    for now in range(60):
        submit(sched, now, [{"cpu": float(rng.randint(1, 3))} for _ in range(rng.randint(1, 3) * machines)])
        if now == 3:
            submit(sched, "large", [{"cpu": 4.0}])
        sched.apply(*(fs.TaskCompleted(task) for task, end in ends.items() if end == now))
        rnd = step(sched, float(now))
        ends.update((task, now + rng.randint(1, 5)) for task in rnd.placements)
        if ("large", 0) in rnd.placements:
            return
    pytest.fail("the large task has waited for 57 rounds")


@pytest.mark.parametrize("reserve", [None, 3])
@pytest.mark.parametrize("slots", [None, 4])
def test_a_large_task_does_not_starve_among_small_ones(reserve: int | None, slots: int | None) -> None:
    """KAI-Scheduler#1970: small tasks keep every machine three quarters full; only a machine kept free helps."""
    sched = world(3, slots, fs.Policy(waiting=fs.WaitCost(first=1.0, reserve=reserve)))
    submit(sched, "large", [{"cpu": 4.0}])
    submit(sched, "small", [{"cpu": 1.0}] * 12, 0)
    sched.apply(*(fs.TaskStarted(("small", i), f"m{i % 3}") for i in range(12)))
    started, kept = [], False
    for now in range(1, 60):
        submit(sched, now, [{"cpu": 1.0}])
        oldest = min((t for t in sched.cluster.tasks.values() if t.place), key=lambda t: t.turn)
        if oldest.id != ("large", 0):
            sched.apply(fs.TaskCompleted(oldest.id))
        rnd = step(sched, float(now))
        kept |= fs.ReasonCode.HELD in {reason.code for reason in rnd.waiting.values()}
        started += [now] * (("large", 0) in rnd.placements)
    assert kept == (reserve is not None)
    assert started == [] if reserve is None else 4 < started[0] < 59, "bucket 3 begins at an age of 4"


def test_a_machine_kept_in_vain_is_given_back() -> None:
    sched = world(2, policy=fs.Policy(waiting=fs.WaitCost(first=1.0, reserve=2)))
    submit(sched, "small", [{"cpu": 1.0}] * 6)
    sched.apply(*(fs.TaskStarted(("small", i), f"m{i % 2}") for i in range(6)))
    submit(sched, "large", [{"cpu": 4.0}])
    holds, kept = sched.builder.reservations, []
    for now in range(40):
        assert not step(sched, float(now)).placements
        kept.append(tuple((holds.held[:2] >= 0).tolist()))
    assert set(kept[:2]) == {(False, False)}
    assert {(True, False), (False, True)} <= set(kept), "each is tried"
    submit(sched, "urgent", [{"cpu": 1.0}] * 2, -1)
    assert len(step(sched, 40.0).placements) == 2, "better ones may use the kept machine"
    sched.apply(fs.JobRemoved("large"))
    step(sched, 41.0)
    assert (holds.held < 0).all()


def test_the_solver_does_not_hang() -> None:
    """or-tools#296: a limit is kept, and Python's other threads go on while the kernel works."""
    rng = np.random.default_rng(0)
    n, m = 2_000, 200_000
    tail, head = rng.integers(0, n, m), rng.integers(0, n, m)
    supply = np.zeros(n, np.int64)
    supply[:500], supply[-500:] = 1_000, -1_000
    ring = np.arange(n)
    net = fs.FlowNetwork()
    net.add_nodes(supply)
    net.add_arcs(tail, head, rng.integers(1, 2_000, m), rng.integers(-5, 1_000_000, m))
    net.add_arcs(ring, np.roll(ring, -1), 10**6, 2_000_000)
    with suppress(fs.TimeLimitError):  # a busy machine has no feasible flow in time
        assert net.solve(time_limit=1e-4).stats["gap"] > 0, "the limit did not stop it"
    ticks, over = 0, threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not over.is_set():
            ticks += 1
            time.sleep(0.001)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # a thread runs only where another one gives way
    thread = threading.Thread(target=tick)
    thread.start()
    try:
        before = ticks
        solution = net.solve()
        during = ticks - before
    finally:
        sys.setswitchinterval(interval)
        over.set()
        thread.join()
    net.certify()
    assert solution.stats["gap"] == 0
    assert during > 1, "the kernel keeps the interpreter to itself"
