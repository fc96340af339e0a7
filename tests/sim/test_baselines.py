"""Baselines: whose turn it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from effort import effort

import flowsched as fs
from flowsched.sim.baselines import Greedy, Plan, Room, together
from flowsched.sim.lines import Queue
from flowsched.sim.orders import Order, Shares, capacity, drf, fair, fifo, sjf

NAMES = ("cpu", "mem")


def order_of(scheduler: Greedy, sizes: Sequence[tuple[str, float, float, int]]) -> list[str]:
    """The users in the order in which their tasks start, on a machine with room for all of them at first."""
    scheduler.apply(fs.MachineAdded("m", {"cpu": 8, "mem": 8}))
    for j, (user, cpu, mem, count) in enumerate(sizes):
        tasks = [fs.Task(f"{user}{j}.{i}", {"cpu": cpu, "mem": mem}) for i in range(count)]
        scheduler.apply(fs.JobSubmitted(j, tasks, user=user))
    decided = scheduler.schedule(0.0)
    assert len(scheduler.commit(decided).accepted) == len(decided.placements)
    return [str(delta.task)[0] for delta in decided.deltas]


def test_orders() -> None:
    work = [("a", 2, 1, 3), ("b", 1, 1, 3)]
    assert order_of(Greedy(fifo, NAMES), work) == list("aaabb")
    assert order_of(Greedy(capacity({}, {"a": 3, "b": 1}), NAMES), work) == list("abaab")
    assert order_of(Greedy(fair, NAMES), work) == list("ababa")
    assert order_of(Greedy(drf, NAMES), work) == list("abbab")


def waits_of(scheduler: Greedy) -> list[float]:
    """A machine of 4 cores: 3 are in use for 10 s, then come tasks of 4 and 1 cores, and one of 1 that takes longer."""
    jobs = [(3, 10.0), (4, 5.0), (1, 7.0), (1, 30.0)]
    arrivals = [
        fs.sim.Arrival(float(i), fs.JobSubmitted(i, [fs.Task(i, (cpu, 0), duration=seconds)]), (seconds,))
        for i, (cpu, seconds) in enumerate(jobs)
    ]
    work = fs.sim.Workload("small", arrivals, [fs.Machine("m", {"cpu": 4, "mem": 8})], resources=NAMES)
    return fs.sim.Simulation(scheduler, work).run().waits.tolist()


def test_the_first_in_line_blocks_the_others_but_for_those_that_do_not_delay_it() -> None:
    assert waits_of(Queue(False, NAMES)) == [0, 9, 13, 12]
    assert waits_of(Queue(True, NAMES)) == [0, 9, 0, 12], "it ends at 9, in time for 10"
    assert waits_of(Greedy(fifo, NAMES)) == [0, 38, 0, 6]
    assert waits_of(Greedy(sjf, NAMES)) == [0, 38, 0, 6]


class Naive(Greedy):
    """Looks at every group before each start."""

    def _place(self, plan: Plan, room: Room) -> None:
        shares, given_up = Shares(self.cluster), set[int]()
        while True:
            groups = [
                group
                for cls, members in self.cluster.waiting.items()
                for group in members
                if group.waiting and room.of(cls).any() and group.job.serial not in given_up
            ]
            if not groups:
                return
            group = min(groups, key=lambda group: self.order(group, shares))
            tasks = together(group)
            if tasks is not None and self._start(tasks, plan, room):
                for task in tasks:
                    shares.add(task.group)
            else:
                given_up.add(group.job.serial)


def crowd(seed: int) -> fs.sim.Workload:
    """Jobs of six users, of two kinds of tasks, some of them gangs, on three machines that are too small for all."""
    rng = np.random.default_rng(seed)
    arrivals, time = [], 0.0
    for i in range(60):
        time += float(rng.exponential(2.0))
        size, user = int(rng.integers(1, 6)), f"u{rng.integers(6)}"
        demands = [(2.0, 1.0) if rng.random() < 0.5 else (1.0, 3.0) for _ in range(size)]
        tasks = tuple(fs.Task(f"{i}-{k}", d) for k, d in enumerate(demands))
        job = fs.JobSubmitted(i, tasks, user=user, gang=size if rng.random() < 0.3 else None)
        arrivals.append(fs.sim.Arrival(time, job, tuple(float(rng.integers(5, 30)) for _ in tasks)))
    machines = [fs.Machine(f"m{i}", {"cpu": 8, "mem": 9 + i}) for i in range(3)]
    return fs.sim.Workload("crowd", arrivals, machines, resources=NAMES)


@pytest.mark.long
@pytest.mark.parametrize("order", [fifo, fair, drf, capacity({"u0": "a", "u1": "a", "u2": "b"}, {"a": 2.0})])
def test_turns_are_those_of_looking_at_every_group(order: Order) -> None:
    for seed in range(effort(2, 60)):
        work = crowd(seed)
        found, naive = (fs.sim.Simulation(kind(order, NAMES), work).run() for kind in (Greedy, Naive))
        assert found.waits.max() > 20, "they wait"
        assert repr(found.table) == repr(naive.table)


#  The example of section 4.1 of Ghodsi et al., "Dominant Resource Fairness", NSDI 2011: 9 CPUs and 18 GB;
#  tasks of A need <1 CPU, 4 GB>, those of B <3 CPUs, 1 GB>.  A gets three tasks, B two: both have 2/3.
def test_the_example_of_the_paper_on_dominant_resource_fairness() -> None:
    scheduler = Greedy(drf, NAMES)
    scheduler.apply(fs.MachineAdded("m", {"cpu": 9, "mem": 18}))
    for user, cpu, mem in (("A", 1, 4), ("B", 3, 1)):
        tasks = [fs.Task(f"{user}{i}", {"cpu": cpu, "mem": mem}) for i in range(9)]
        scheduler.apply(fs.JobSubmitted(user, tasks, user=user))
    decided = scheduler.schedule(0.0)
    started = [str(delta.task)[0] for delta in decided.deltas]
    assert (started.count("A"), started.count("B")) == (3, 2)
    # Table 1 of the paper begins with B; of equals the first is next here: shares are A 2/9, B 1/3, A 4/9, B 2/3, A 2/3.
    assert started == list("ABABA")


#  Steady shares of YARN's Fair Scheduler: each of n active users has 1/n of the memory, unless it asks for less; what
#  one leaves is the others'.  16 GB, users that ask for 2, 20 and 20 tasks of 1 GB: 2, 7 and 7.
def test_fair_shares_of_memory_are_equal_but_for_small_demands() -> None:
    scheduler = Greedy(fair, NAMES)
    scheduler.apply(fs.MachineAdded("m", {"cpu": 64, "mem": 16}))
    for user, count, cpu in (("small", 2, 1), ("a", 20, 3), ("b", 20, 1)):
        tasks = [fs.Task(f"{user}{i}", {"cpu": cpu, "mem": 1}) for i in range(count)]
        scheduler.apply(fs.JobSubmitted(user, tasks, user=user))
    users = Counter(str(task).rstrip("0123456789") for task in scheduler.schedule(0.0).placements)
    assert users == {"small": 2, "a": 7, "b": 7}


@pytest.mark.parametrize("make", [lambda: Greedy(fifo, NAMES), lambda: Queue("easy", NAMES)])
def test_a_task_that_rests_is_none_that_runs(make: Callable[[], Greedy | Queue]) -> None:
    """Two tasks of a gang rest for longer than the third: it does not start alone."""
    scheduler = make()
    tasks = [fs.Task(i, {"cpu": 1}, retries=1, backoff=rest) for i, rest in enumerate((90, 90, 10))]
    scheduler.apply(*(fs.MachineAdded(m, {"cpu": 4}) for m in "mn"), fs.JobSubmitted("j", tasks, gang=2))
    assert len(scheduler.commit(scheduler.schedule(0.0)).accepted) == 3
    scheduler.apply(*(fs.TaskFailed(i, time=1.0) for i in range(3)))
    assert not scheduler.schedule(50.0).placements
    assert set(scheduler.schedule(200.0).placements) == {0, 1, 2}
