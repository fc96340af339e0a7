"""Shares by amounts: no task waits for its share next to room that it could use, and users come before themselves by priority."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable
from typing import Any

import pytest
from effort import effort

import flowsched as fs

SHARES = (fs.MaxMin, fs.WeightedMaxMin, fs.DRF, fs.SequenceShare, fs.BatchShare)
NAMES = ("cpu", "mem", "gpu")


class Mix:
    """A random cluster with users whose tasks differ in size, after a random history; it is at rest at the end."""

    def __init__(self, seed: int, mode: Any, share: fs.ShareProvider, *, priorities: tuple[int, ...] = (0,)) -> None:
        self.rng = rng = random.Random(seed)
        self.preempts = rng.random() < 0.8
        self.within = fs.MaxMin() if rng.random() < 0.2 else None
        fairness = fs.Fairness(share, "user", within=self.within, mode=mode, reclaim=rng.random() < 0.5)
        policy = fs.Policy(fairness=fairness, preemption=fs.PreemptionCost() if self.preempts else None)
        self.sched = fs.Scheduler(policy, resources=NAMES)
        self.priorities = priorities
        self.gpus = rng.random() < 0.6
        self.asked: dict[int, dict[str, float]] = {}
        self.owner: dict[int, tuple[str, int]] = {}
        self.users = [f"u{i}" for i in range(rng.randint(2, 4))]
        self.sched.apply(
            *(fs.UserAdded(user, quota=rng.choice([1, 1, 2, 3])) for user in self.users),
            *(
                fs.MachineAdded(
                    i,
                    {"cpu": rng.choice([1, 4, 8]), "mem": rng.choice([8, 16]), "gpu": rng.choice([4, 8])},
                    slots=rng.choice([None, None, 5]),
                )
                for i in range(rng.randint(1, 5))
            ),
        )
        self.rounds: list[fs.Round] = []
        self.submit(6)
        for _ in range(rng.randint(0, 3)):
            self.round()
            ended = [task for task in self.sched.cluster.tasks if self.where(task) is not None and rng.random() < 0.4]
            self.sched.apply(*(fs.TaskCompleted(task) for task in ended))
            self.submit(3)
        for _ in range(6):
            if not self.round().deltas:
                break
        else:
            raise AssertionError("tasks come and go although nothing happens")

    def submit(self, most: int) -> None:
        for user in self.users:
            for _ in range(self.rng.randint(0, 2)):
                priority, tasks = self.rng.choice(self.priorities), []
                for _ in range(self.rng.randint(1, most)):
                    task = len(self.asked)
                    if self.gpus:
                        self.asked[task] = {"gpu": self.rng.choice([1, 2, 4, 8])}
                    else:
                        self.asked[task] = {"cpu": self.rng.choice([1, 2, 3]), "mem": self.rng.choice([1, 4, 8])}
                    self.owner[task] = user, priority
                    tasks.append(fs.Task(task, self.asked[task]))
                self.sched.apply(fs.JobSubmitted(("j", len(self.asked)), tasks, user=user, priority=priority))

    def where(self, task: Hashable) -> Hashable:
        return self.sched.cluster.placement(task)

    def round(self) -> fs.Round:
        rnd = self.sched.schedule(float(len(self.rounds)))
        self.rounds.append(rnd)
        assert not self.sched.commit(rnd).conflicts
        return rnd

    def could_displace(self, task: int) -> bool:
        """Return True if on some machine worse tasks of its own user make room for a task."""
        user, priority = self.owner[task]
        for machine in self.sched.cluster.machines.values():
            inventory = self.sched.cluster.inventory
            free = dict(zip(NAMES, (inventory.free[machine.row] / 1e6).tolist(), strict=True))
            seats, worse = int(inventory.slots[machine.row] - inventory.running[machine.row]), 0
            for other in machine.tasks:
                if self.owner[other.id][0] == user and self.owner[other.id][1] > priority:
                    worse += 1
                    seats += 1
                    for name, amount in self.asked[other.id].items():
                        free[name] += amount
            if worse and seats > 0 and all(free[name] >= amount for name, amount in self.asked[task].items()):
                return True
        return False


@pytest.mark.parametrize("mode", ["hard", "soft", "ladder"])
@pytest.mark.parametrize("share", SHARES)
def test_no_task_waits_next_to_room_for_it(mode: str, share: type[fs.ShareProvider]) -> None:
    for seed in range(effort(3, 400)):
        mix = Mix(seed, mode, share(), priorities=(0,) if seed % 2 else (0, 3, 5))
        fits = {task for task in mix.rounds[-1].waiting if mix.sched.cluster.fits(task).any()}
        assert not fits, seed
        mix.sched.network.certify()


@pytest.mark.parametrize("mode", ["hard", "soft"])
@pytest.mark.parametrize("share", SHARES)
def test_better_tasks_of_a_user_come_before_its_worse_ones(mode: str, share: type[fs.ShareProvider]) -> None:
    for seed in range(1000, 1000 + effort(3, 400)):
        mix = Mix(seed, mode, share(), priorities=(0, 2, 5))
        if mix.preempts and mix.within is None:
            assert not [task for task in mix.rounds[-1].waiting if mix.could_displace(task)], seed  # type: ignore[arg-type]


def test_what_others_cannot_use_does_not_keep_them_from_their_share() -> None:
    """8 GPUs: ann's second task needs all of them, so bob has the half that ann leaves; then it is ann's turn again."""
    sched = fs.Scheduler(fs.Policy(fairness=fs.Fairness(over="user", reclaim=True)), resources=("gpu",))
    sched.apply(fs.MachineAdded("m", {"gpu": 8}), fs.UserAdded("ann"), fs.UserAdded("bob"))
    sched.apply(fs.JobSubmitted("a", [fs.Task("a0", {"gpu": 4}), fs.Task("a1", {"gpu": 8})], user="ann"))
    sched.commit(sched.schedule(0.0))
    sched.apply(fs.JobSubmitted("b", [fs.Task(f"b{i}", {"gpu": 1}) for i in range(6)], user="bob"))
    rnd = sched.schedule(1.0)
    assert sorted(rnd.placements) == ["b0", "b1", "b2", "b3"]
    sched.commit(rnd)
    sched.apply(fs.JobSubmitted("more", [fs.Task(f"c{i}", {"gpu": 1}) for i in range(6)], user="ann"))
    sched.apply(fs.TaskCompleted("a0"), fs.TaskRemoved("a1"))
    for now in (2.0, 3.0):
        sched.commit(sched.schedule(now))
    assert {who: share.running for who, share in sched.schedule(4.0).shares.items()} == {"ann": 4, "bob": 4}


def test_a_remainder_goes_to_the_claimant_with_least() -> None:
    """Room that no entitlement covers goes to the lowest claimant; a fixed quota leaves it idle."""
    for share, left in ((fs.MaxMin(), 0), (fs.DRF(), 0), (fs.StaticQuotas({}, default=1), 3)):
        sched = fs.Scheduler(fs.Policy(fairness=fs.Fairness(share, "user")), resources=("gpu",))
        sched.apply(fs.MachineAdded("m", {"gpu": 8}))
        for user in ("ann", "bob", "eve"):
            sizes = [1, 1, 1, 1, 8, 8] if user != "bob" else [3, 8]
            tasks = [fs.Task((user, i), {"gpu": size}) for i, size in enumerate(sizes)]
            sched.apply(fs.JobSubmitted(user, tasks, user=user))
        rnd = sched.schedule(0.0)
        counts = Counter(task[0] for task in rnd.placements)  # type: ignore[index]
        assert 8 - sum(3 if task[0] == "bob" else 1 for task in rnd.placements) == left  # type: ignore[index]
        assert left or (counts["bob"] == 1 and abs(counts["ann"] - counts["eve"]) <= 1)


def test_those_that_stop_for_a_share_are_the_worst() -> None:
    for seed in range(effort(10, 600)):
        rng = random.Random(seed)
        sched = fs.Scheduler(fs.Policy(fairness=fs.Fairness(over="user", reclaim=True)), resources=("cpu",))
        sched.apply(*(fs.MachineAdded(i, {"cpu": rng.choice([1, 2, 4])}) for i in range(6)))
        priority: dict[Hashable, int] = {}
        for job in range(4):
            tasks = [fs.Task((job, i), {"cpu": 1}) for i in range(rng.randint(1, 5))]
            priority |= dict.fromkeys((task.id for task in tasks), level := rng.choice([0, 3, 5]))
            sched.apply(fs.JobSubmitted(job, tasks, user="old", priority=level))
            sched.commit(sched.schedule(float(job)))
        ran = {task: sched.cluster.task(task).turn for task in priority if sched.cluster.placement(task) is not None}
        sched.apply(fs.JobSubmitted("new", [fs.Task(("new", i), {"cpu": 1}) for i in range(4)], user="new"))
        rnd = sched.schedule(9.0)
        gone = sorted(((priority[task], ran[task]) for task in rnd.preemptions), reverse=True)
        assert gone == sorted(((priority[task], turn) for task, turn in ran.items()), reverse=True)[: len(gone)]


LAYOUTS = ([1, 1, 1, 1], [1] * 5, [4], [2, 2], [4, 4], [1, 3], [1, 1, 2])


@pytest.mark.parametrize("mode", ["hard", "soft", "ladder"])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("others", [0, 9])
def test_a_better_task_stops_a_worse_one_of_its_user_in_every_layout(mode: Any, layout: list[int], others: int) -> None:
    """And nothing of others, even where that is worse still."""
    sched = fs.Scheduler(fs.Policy(fairness=fs.Fairness(over="user", mode=mode, slack=0.0)), resources=("cpu",))
    sched.apply(*(fs.MachineAdded(i, {"cpu": cores}) for i, cores in enumerate(layout)))
    half = sum(layout) // 2
    for job, user, count, priority in (("a", "ann", sum(layout), others), ("old", "bob", half, 5)):
        tasks = [fs.Task((job, i), {"cpu": 1}) for i in range(count)]
        sched.apply(fs.JobSubmitted(job, tasks, user=user, priority=priority))
    sched.commit(sched.schedule(0.0))
    ran = {task for task in sched.cluster.tasks if sched.cluster.placement(task) is not None}
    mine = [task for task in ran if task[0] == "old"]  # type: ignore[index]
    better = [fs.Task(("new", i), {"cpu": 1}) for i in range(len(mine))]
    sched.apply(fs.JobSubmitted("new", better, user="bob", priority=0))
    rnd = sched.schedule(1.0)
    assert set(rnd.placements) >= {task.id for task in better}
    if mode == "hard":
        assert len(rnd.placements) == len(better)
        assert set(rnd.preemptions) == set(mine)
    sched.commit(rnd)
    assert not sched.schedule(2.0).deltas
