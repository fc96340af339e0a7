"""No lower goal overrides a higher one: derived scales against a lexicographic optimum by brute force."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pytest
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st

import flowsched as fs
from flowsched.policy import PreferenceCost

WAITING = fs.WaitCost(first=10.0, buckets=4)
EXAMPLES = settings(max_examples=effort(15, 400), deadline=None)
Jobs = list[tuple[int, int, float, tuple[str, ...]]]

jobs_of_any_kind = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.integers(0, 2),
        st.sampled_from([0.0, 75.0, 100.0]),
        st.sampled_from([(), ("a",), ("a", "b"), ("b", "c")]),
    ),
    min_size=1,
    max_size=3,
).filter(lambda jobs: sum(count for count, *_ in jobs) <= 5)


def world(machines: list[tuple[int, frozenset[str]]], jobs: Jobs, policy: fs.Policy) -> fs.Scheduler:
    """Machines with these slots and labels; jobs with these numbers of tasks, priorities, times and preferences."""
    sched = fs.Scheduler(policy, resources=("cpu",))
    for i, (slots, labels) in enumerate(machines):
        sched.apply(fs.MachineAdded(i, {}, labels=dict.fromkeys(labels, "yes"), slots=slots))
    for j, (count, priority, time, wishes) in enumerate(jobs):
        tasks = [fs.Task((j, k), prefers=dict.fromkeys(wishes, ("yes",))) for k in range(count)]
        sched.apply(fs.JobSubmitted(j, tasks, priority=priority, time=time))
    return sched


def merit(
    machines: list[tuple[int, frozenset[str]]], jobs: Jobs, entitled: dict[int, int], where: dict[Any, int]
) -> tuple[Any, ...] | None:
    """Losses of each goal, the highest first: waiting tasks by priority, missed shares, ages, unmet preferences, load."""
    on = Counter(where.values())
    runs = Counter(j for j, _ in where)
    if any(on[m] > slots for m, (slots, _) in enumerate(machines)) or any(runs[j] > n for j, n in entitled.items()):
        return None
    waits = {j: count - runs[j] for j, (count, *_) in enumerate(jobs)}
    by_priority = tuple(sum(waits[j] for j, job in enumerate(jobs) if job[1] == p) for p in range(3))
    missed = sum(n - runs[j] for j, n in entitled.items())
    age = sum(waits[j] * (1 + WAITING.bucket(100.0 - job[2])) for j, job in enumerate(jobs))
    wishes = sum(
        sum(wish not in machines[m][1] for wish in jobs[j][3]) / len(jobs[j][3])
        for (j, _), m in where.items()
        if jobs[j][3]
    )
    load = sum(1 / max(machines[m][0], 1) for m in where.values())
    return (*by_priority, missed, age, round(wishes, 6), load)


@EXAMPLES
@given(
    machines=st.lists(
        st.tuples(st.integers(1, 3), st.frozensets(st.sampled_from(["a", "b", "c"]))), min_size=1, max_size=3
    ),
    jobs=jobs_of_any_kind,
    fair=st.booleans(),
)
def test_what_a_fitted_policy_decides_is_the_lexicographic_optimum(
    machines: list[tuple[int, frozenset[str]]], jobs: Jobs, fair: bool
) -> None:
    """Each task on each machine or nowhere, everything tried."""
    policy = fs.Policy(
        placement=(PreferenceCost(), fs.LoadCost("spread")),
        waiting=WAITING,
        fairness=fs.Fairness(fs.MaxMin()) if fair else None,
    )
    sched = world(machines, jobs, policy)
    sched.policy = policy.fitted(sched.cluster)
    assert all(row.always for row in sched.policy.check(sched.cluster))
    rnd = sched.schedule(100.0)
    entitled = {job: share.entitled for job, share in rnd.shares.items()}
    tasks = [(j, k) for j, (count, *_) in enumerate(jobs) for k in range(count)]
    best = min(
        found
        for choice in product(range(-1, len(machines)), repeat=len(tasks))
        if (
            found := merit(machines, jobs, entitled, {task: m for task, m in zip(tasks, choice, strict=True) if m >= 0})
        )
    )
    ours = merit(machines, jobs, entitled, dict(rnd.placements))
    assert ours is not None
    assert ours[:-1] == best[:-1]
    assert ours[-1] <= best[-1] + 0.02 * len(tasks), "load, to the resolution that it is left with"


def relay(length: int, policy: fs.Policy, priority: int) -> fs.Scheduler:
    """Each machine but the last has a task that would rather be there than on the next one; two more want in at the ends.

    ::

        first -> M0 <- t0 -> M1 <- t1 -> M2 ... M(n-1) <- last        one slot each; t(i) costs 1 more on M(i+1)
    """
    sched = fs.Scheduler(policy, resources=("cpu",))
    sched.apply(*(fs.MachineAdded(i, {}, labels={"at": str(i)}, slots=1) for i in range(length)))
    tasks = [fs.Task(i, constraints={"at": (str(i), str(i + 1))}) for i in range(length - 1)]
    sched.apply(
        fs.JobSubmitted("between", tasks, priority=priority),
        fs.JobSubmitted("first", [fs.Task("first", constraints={"at": ("0",)})], priority=priority),
        fs.JobSubmitted("last", [fs.Task("last", constraints={"at": (str(length - 1),)})], priority=5),
    )
    return sched


def away(cluster: Any, classes: Any, rows: Any) -> Any:
    """1 on all but the first of the machines that a task may run on."""
    home = [min(map(int, cluster.by_class[cls].constraints["at"])) for cls in classes.tolist()]
    names = [cluster.by_row[row].machine.id for row in rows.tolist()]
    return (np.array(names)[None, :] != np.array(home)[:, None]).astype(float)


@pytest.mark.parametrize("length", [40, 80])
def test_many_small_losses_override_a_priority_unless_the_scales_are_fitted(length: int) -> None:
    policy = fs.Policy(placement=(fs.CustomCost(away),))
    sched = relay(length, policy, priority=1)
    held = {(row.goal, row.over): row for row in policy.check(sched.cluster)}["priority", "CustomCost"]
    assert held.moves == min(52, length) and held.always == (length < 52)
    assert ("first" in sched.schedule(0.0).placements) == held.always, "by the table"
    fitted = policy.fitted(sched.cluster)
    assert all(row.always for row in fitted.check(sched.cluster))
    sched.policy = fitted
    assert set(sched.schedule(1.0).waiting) == {"last"}


def test_a_fitted_policy_keeps_its_goals() -> None:
    policy = fs.Policy(
        placement=(fs.LoadCost("pack"), fs.CustomCost(away), PreferenceCost()),
        locality=fs.Locality(rack=0.25),
        fairness=fs.Fairness(fs.DRF()),
        preemption=None,
        step=0.5,
    )
    cluster = world([(2, frozenset())] * 3, [(2, 0, 0.0, ("a", "b")), (1, 1, 0.0, ("a", "b", "c"))], policy).cluster
    fitted = policy.fitted(cluster)
    assert (fitted.fairness, fitted.preemption, fitted.step) == (policy.fairness, None, 0.5)
    assert fitted.locality is not None and fitted.locality.rack == 0.25
    weights = [fitted.locality.weight, *(cost.weight for cost in fitted.placement)]
    assert all(0.01 * high > 4 * sum(weights[i + 1 :]) for i, high in enumerate(weights[:-1]))
    assert fitted.moves == 4 and all(row.always for row in fitted.check(cluster))


def test_goals_that_are_too_fine_are_refused_and_large_clusters_get_the_largest_moves() -> None:
    cluster = fs.Scheduler(resources=("cpu",)).cluster
    cluster.apply(*(fs.MachineAdded(i, {"cpu": 1}) for i in range(3_000)))
    cluster.apply(fs.JobSubmitted("j", [fs.Task(i, {"cpu": 1}) for i in range(4_000)]))
    rows = fs.Policy().fitted(cluster).check(cluster)
    assert any(1_000 <= row.moves < 3_000 for row in rows) or all(row.always for row in rows)
    with pytest.raises(fs.InputError, match="cannot be kept in order"):
        fs.Policy(placement=[fs.CustomCost(away)] * 9).fitted(cluster)


def test_a_weight_that_is_too_small_for_its_goal_is_reported() -> None:
    policy = fs.Policy(priority=fs.WeightedPriority(0.5), placement=(PreferenceCost(), fs.LoadCost()))
    cluster = world([(1, frozenset())] * 2, [(2, 0, 0.0, ("a", "b"))], policy).cluster
    rows = {(row.goal, row.over): row for row in policy.check(cluster)}
    assert rows["priority", "age"].moves == 0 and not rows["priority", "age"].always
    assert rows["PreferenceCost", "LoadCost('spread')"].moves == 0
    assert rows["age", "PreferenceCost"].step == pytest.approx(1.001)
