"""Shares by amounts of resources: the deployment sequence and HRM's batch share where tasks differ in size."""

from __future__ import annotations

from collections import Counter

import pytest

import flowsched as fs


class Life:
    """A cluster in rounds, where each user's queue is filled up again, and the CPU time that each user has used."""

    def __init__(self, share: fs.ShareProvider, quotas: dict[str, float], machines: int, cores: int = 8) -> None:
        fairness = fs.Fairness(share, over="user")
        self.sched = fs.Scheduler(fs.Policy(fairness=fairness), resources=("cpu",))
        self.sched.apply(*(fs.MachineAdded(f"m{i}", {"cpu": cores}) for i in range(machines)))
        for user, quota in quotas.items():
            self.sched.apply(fs.UserAdded(user, quota=quota), fs.JobSubmitted(user, [], user=user))
        self.used: Counter[str] = Counter()
        self.size: dict[str, tuple[str, float]] = {}
        self.count = 0

    def submit(self, user: str, *sizes: float) -> None:
        for size in sizes:
            task = f"{user}{self.count}"
            self.count += 1
            self.size[task] = user, size
            self.sched.apply(fs.TaskSubmitted(user, fs.Task(task, {"cpu": size})))

    def round(self, now: float) -> fs.Round:
        rnd = self.sched.schedule(now=now)
        for delta in self.sched.commit(rnd).accepted:
            if isinstance(delta, fs.Place):
                user, size = self.size[str(delta.task)]
                self.used[user] += size
        return rnd

    def finish(self) -> list[str]:
        done = [task for task in self.sched.cluster.tasks if self.sched.cluster.placement(task) is not None]
        self.sched.apply(*(fs.TaskCompleted(task) for task in done))
        return done


@pytest.mark.parametrize("share", [fs.SequenceShare(), fs.SequenceShare(spares="largest")], ids=repr)
def test_equal_quotas_with_tasks_of_four_cores_and_of_one(share: fs.SequenceShare) -> None:
    life = Life(share, {"a": 1, "b": 1}, machines=5)
    sizes = {"a": 4.0, "b": 1.0}
    for user, size in sizes.items():
        life.submit(user, *[size] * 40)
    first = life.round(0.0)
    assert {user: first.shares[user].running for user in "ab"} == {"a": 5, "b": 20}
    assert life.used == {"a": 20, "b": 20}
    for now in range(1, 60):
        for task in life.finish():
            user, size = life.size[task]
            life.submit(user, size)
        life.round(float(now))
    assert life.used["a"] == pytest.approx(life.used["b"], rel=0.02)


def test_batch_share_is_by_cores() -> None:
    sched = fs.Scheduler(fs.Policy(fairness=fs.Fairness(fs.BatchShare())), resources=("cpu",))
    sched.apply(*(fs.MachineAdded(f"m{i}", {"cpu": 8}) for i in range(5)))
    for job, size in (("a", 4), ("b", 1)):
        sched.apply(fs.JobSubmitted(job, [fs.Task(f"{job}{i}", {"cpu": size}) for i in range(40)]))
    rnd = sched.schedule(now=0.0)
    assert {job: (share.entitled, share.running) for job, share in rnd.shares.items()} == {"a": (5, 5), "b": (20, 20)}
