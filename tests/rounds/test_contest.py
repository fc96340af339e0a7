"""One machine with room and many classes that want it: only those that can start are tried, and the same tasks start."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from effort import effort

import flowsched as fs
from flowsched.rounds import contest

POLICIES = {
    "default": fs.Policy(preemption=None),
    "pack": fs.Policy(placement=[fs.LoadCost("pack")], preemption=None),
    "ages": fs.Policy(waiting=fs.WaitCost(first=1.0, buckets=5, reserve=None), preemption=None),
    "reserve": fs.Policy(waiting=fs.WaitCost(first=1.0, buckets=5, reserve=2), preemption=None),
    "preemption": fs.Policy(),
}


def life(seed: int, policy: fs.Policy, rounds: int = 40) -> tuple[list[object], fs.Scheduler]:
    """Return what each round of a full cluster starts, and why the others wait."""
    rng = random.Random(seed)
    slots, levels, batch = rng.choice([None, 5]), rng.choice([1, 1, 2]), rng.choice([1, 1, 5])
    sched = fs.Scheduler(policy, resources=("cpu", "mem", "gpu"))
    machines = rng.randint(2, 12)
    sched.apply(
        *(fs.MachineAdded(i, {"cpu": 8, "mem": 16, "gpu": int(i % 3 == 0)}, slots=slots) for i in range(machines))
    )
    results: list[object] = []
    running: list[object] = []
    names = iter(range(10**6))

    def job(tasks: int) -> fs.JobSubmitted:
        name = next(names)
        demand = {"cpu": rng.choice([1, 1.5, 2, 3, 4, 6, 8]), "mem": rng.choice([1, 2, 3, 5, 8])}
        if rng.random() < 0.1:
            demand["gpu"] = 0.5
        some = [fs.Task((name, k), demand, apart=2 if rng.random() < 0.02 else None) for k in range(tasks)]
        return fs.JobSubmitted(name, some, priority=rng.randrange(levels))

    sched.apply(*(job(rng.randint(1, 5)) for _ in range(12 * machines)))
    now = 0.0
    for step in range(rounds):
        now += rng.choice([0.0, 0.1, 1.0, 3.0])
        if rng.random() < 0.05:
            now -= 0.5
        rnd = sched.schedule(now)
        results.append(
            (rnd.deltas, {task: reason.code for task, reason in rnd.waiting.items()} if step % 7 == 0 else 0)
        )
        assert not sched.commit(rnd).conflicts
        running = [task for task, record in sched.cluster.tasks.items() if record.place]
        sched.apply(*(fs.TaskCompleted(task) for task in rng.sample(running, min(batch, len(running)))))
        sched.apply(*(job(1) for _ in range(batch)))
        waiting = [task for task, record in sched.cluster.tasks.items() if not record.place]
        if rng.random() < 0.3:  # the head of a class may be among them
            sched.apply(*(fs.TaskRemoved(task) for task in waiting[: rng.randint(1, 4)]))
    return results, sched


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(policy, id=name, marks=() if name in ("default", "preemption") else pytest.mark.long)
        for name, policy in POLICIES.items()
    ],
)
def test_the_same_tasks_start_as_where_all_classes_are_tried(
    policy: fs.Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    contests: Counter[str] = Counter()

    def counted(*args: object) -> contest.Contest | None:
        found = plain(*args)  # type: ignore[arg-type]
        contests["all" if found is None else "one" if len(found.kept) == 1 else "several"] += 1
        return found

    plain = contest.contest
    for seed in range(effort(5, 20)):
        with monkeypatch.context() as patch:
            patch.setattr("flowsched.rounds.admission.contest", counted)
            narrowed, _ = life(seed, policy)
        with monkeypatch.context() as patch:
            patch.setattr(contest, "_MANY", 10**9)
            assert narrowed == life(seed, policy)[0]
    assert contests["one"] > 10 and contests["several"] > 2, contests


def test_few_classes_are_proposed_for_a_machine_with_room_for_one_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """A class that has no room next to the first task in line costs the round no proposal."""
    proposed: list[int] = []

    def counted(*args: object) -> contest.Contest | None:
        found = plain(*args)  # type: ignore[arg-type]
        proposed.append(99 if found is None else len(found.kept))
        return found

    plain = contest.contest

    sched = fs.Scheduler(fs.Policy(preemption=None), resources=("cpu", "mem"))
    sched.apply(*(fs.MachineAdded(i, {"cpu": 8, "mem": 16}) for i in range(20)))
    demands = [{"cpu": cpu, "mem": mem} for cpu in (5, 6, 7, 8) for mem in (5, 6, 7, 8)]
    sched.apply(*(fs.JobSubmitted(i, [fs.Task((i, k), demands[i % 16]) for k in range(3)]) for i in range(64)))
    sched.commit(sched.schedule(0.0))
    monkeypatch.setattr("flowsched.rounds.admission.contest", counted)
    for step in range(10):
        ended = next(task for task, record in sched.cluster.tasks.items() if record.place)
        sched.apply(fs.TaskCompleted(ended))
        assert sched.commit(sched.schedule(float(step))).accepted
    assert max(proposed) == 1
