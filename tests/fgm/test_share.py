"""FGM's flow deals out what really fits: users' dominant shares are as equal as in a loop that asks before every task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from effort import effort
from fgm_worlds import NAMES, known
from hypothesis import given, settings
from hypothesis import strategies as st

import flowsched as fs
from flowsched.fgm import FineGrained, Stages, StageShare
from flowsched.fgm.share import SAMPLE
from flowsched.sim.orders import Shares

KINDS = {
    "wide": (4.0, 1.0, Stages([6, 6], [[1.0, 0.5], [4.0, 1.0]])),
    "flat": (2.0, 1.0, Stages([12], [[2.0, 1.0]])),
    "slim": (1.0, 1.0, Stages([8, 4], [[0.5, 1.0], [1.0, 0.5]])),
    "full": (1.0, 4.0, Stages([6, 6], [[1.0, 4.0], [1.0, 2.0]])),
}
"""What is asked for (CPU, memory), and what is needed."""


def cluster(machines: int, mem: float, within: fs.ShareProvider | None = None) -> FineGrained:
    scheduler = fs.Scheduler(fs.Policy(preemption=None), NAMES)
    fine = FineGrained(scheduler, estimator=known({kind: stages for kind, (_, _, stages) in KINDS.items()}))
    fairness = fs.Fairness(StageShare(fine), over="user", within=within)
    scheduler.policy = replace(scheduler.policy, fairness=fairness)
    fine.apply(*(fs.MachineAdded(i, {"cpu": 12, "mem": mem}) for i in range(machines)))
    return fine


def submit(fine: FineGrained, user: str, kind: str, count: int) -> None:
    cpu, mem, _ = KINDS[kind]
    name = f"{user}{len(fine.cluster.jobs)}"
    tasks = [fs.Task(f"{name}.{i}", {"cpu": cpu, "mem": mem}, kind=kind) for i in range(count)]
    fine.apply(fs.JobSubmitted(name, tasks, user=user))


def shares(fine: FineGrained, users: Sequence[str]) -> np.ndarray:
    """Users' dominant shares of what the machines have."""
    total = fine.cluster.inventory.total
    parts = np.zeros((len(users), len(NAMES)))
    for job in fine.cluster.jobs.values():
        for group in job.each_group():
            parts[users.index(str(job.job.user))] += (group.tasks - len(group.waiting)) * group.cls.demand / total
    return parts.max(axis=1)


def task(fine: FineGrained, kind: str) -> float:
    """The dominant share of one task."""
    cpu, mem, _ = KINDS[kind]
    return float((np.array([cpu, mem]) * 1e6 / fine.cluster.inventory.total).max())


def test_a_user_who_starts_large_tasks_before_many_small_ones_gets_no_more() -> None:
    """What it asks for in the mean is little; what starts of it is not."""
    fine = cluster(6, mem=64, within=fs.MaxMin())
    for kind, count in (("wide", 10), ("slim", 400)):
        submit(fine, "a", kind, count)
    submit(fine, "b", "flat", 100)
    submit(fine, "c", "wide", 100)
    fine.commit(fine.schedule(0.0))
    found = shares(fine, "abc")
    assert found.sum() > 0.9
    assert np.ptp(found) <= task(fine, "wide") + 1e-9


def test_a_share_is_a_part_of_what_there_is_not_of_what_is_in_use() -> None:
    """A user that asks for much of an idle resource gets no less of a scarce one."""
    fine = cluster(4, mem=96)
    submit(fine, "a", "flat", 100)
    submit(fine, "b", "full", 100)
    fine.commit(fine.schedule(0.0))
    found = shares(fine, "ab")
    assert np.ptp(found) <= task(fine, "flat") + 1e-9


def test_shares_hold_where_every_machine_has_room_at_the_same_time() -> None:
    """Every machine has room for two more tasks when the first stages end."""
    fine = cluster(200, mem=16)
    for user in "ab":
        submit(fine, user, "full", 1000)
    for now in (0.0, 1.0, 6.0):
        decided = fine.schedule(now)
        fine.commit(decided)
    assert len(decided.placements) == 400
    assert np.ptp(shares(fine, "ab")) <= task(fine, "full") + 1e-9


def test_a_user_that_cannot_use_its_share_stands_aside() -> None:
    """The user with the least may run none of its tasks; the others get all there is."""
    fine = cluster(2, mem=64, within=fs.StaticQuotas({"a0": 0}, default=100))
    submit(fine, "a", "flat", 50)
    submit(fine, "b", "flat", 50)
    submit(fine, "c", "flat", 50)
    assert len(fine.schedule(0.0).placements) == 12


@pytest.mark.parametrize("over", ["job", "user"])
def test_nothing_is_left_that_somebody_could_use(over: str) -> None:
    fine = cluster(3, mem=32)
    policy = fine.policy
    assert policy.fairness is not None
    fine.scheduler.policy = replace(policy, fairness=replace(policy.fairness, over=over))
    for user, kind, count in (("a", "wide", 3), ("b", "slim", 200), ("c", "full", 4), ("a", "flat", 5)):
        submit(fine, user, kind, count)
    fine.commit(fine.schedule(0.0))
    classes = np.array([cls.index for cls in fine.cluster.waiting])
    assert len(classes)
    assert not fine.cluster.inventory.room(classes, np.arange(3))[0].any()


@settings(max_examples=effort(10, 300), deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_dominant_shares_differ_by_no_more_than_a_task(seed: int) -> None:
    """All users have tasks of every kind waiting, so none is ahead because nothing else fits."""
    rng = np.random.default_rng(seed)
    fine = cluster(int(rng.integers(2, 6)), mem=float(rng.choice([16, 32, 64])), within=fs.MaxMin())
    users = "abcd"[: int(rng.integers(2, 5))]
    for user in users:
        for kind in rng.permutation(list(KINDS)):
            submit(fine, user, str(kind), int(rng.integers(30, 200)))
    fine.commit(fine.schedule(0.0))
    assert np.ptp(shares(fine, users)) <= 2 * max(task(fine, kind) for kind in KINDS) + 1e-9


def test_of_many_machines_some_tell_what_fits() -> None:
    """There are more machines than are asked (`SAMPLE`)."""
    fine = cluster(2 * SAMPLE + 50, 16.0)
    submit(fine, "c", "flat", 6 * SAMPLE)
    fine.commit(fine.schedule(0.0))
    for user, kind in (("a", "full"), ("b", "flat")):
        submit(fine, user, kind, 300)
    rnd = fine.schedule(1.0)
    assert len(rnd.placements) == 600
    submit(fine, "a", "wide", 9 * SAMPLE)
    submit(fine, "b", "flat", 20 * SAMPLE)
    fine.commit(fine.schedule(2.0))
    shares = Shares(fine.cluster)
    assert abs(shares.of_user("a").max() - shares.of_user("b").max()) < 0.03
