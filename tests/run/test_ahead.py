"""Runs that are told to a machine before it has room: as many as it ends within the lag, and never more than it holds."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Any

import numpy as np
import pytest
from executors import FakeExecutor, run_fake

import flowsched as fs
from flowsched.run import Driver
from flowsched.run.ahead import RECENT, WORTH, Room


class Timed(FakeExecutor):
    """Runs that end by themselves, and are told so after a while."""

    def __init__(
        self, seconds: dict[str, float], machines: dict[str, float], holding: bool, latency: float, fetch: float = 0.0
    ) -> None:
        super().__init__({}, holding)
        self.fetch = fetch
        self.machines = dict(machines)
        self.seconds, self.latency = seconds, latency
        self.begun: list[tuple[float, Any]] = []
        self.busy = 0.0

    def _begin(self) -> None:
        before = set(self.running)
        super()._begin()
        for number in self.running.keys() - before:
            loop, task = asyncio.get_running_loop(), self.running[number].task
            self.begun.append((loop.time(), task))
            self.busy += self.seconds[str(task)]
            loop.call_later(self.seconds[str(task)], self._over, number)

    def _over(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        if self.fetch:
            loop.call_later(self.latency, self.tell, self.leave(number))
            loop.call_later(self.latency + self.fetch, lambda: self.tell(self.end(number, "ended")))
        elif number in self.running:
            loop.call_later(self.latency, self.tell, self.end(number, "ended"))


def run(
    seconds: dict[str, float],
    machines: dict[str, float],
    *,
    holding: bool = True,
    latency: float = 0.05,
    demand: dict[Hashable, float] | None = None,
    fetch: float = 0.0,
    **options: Any,
) -> tuple[Timed, float, int]:
    """Run tasks of one core, the first with the best priority; return the executor, the time it took, and the most told."""
    most = 0

    async def main() -> tuple[Timed, float, int]:
        nonlocal most
        executor = Timed(seconds, machines, holding, latency, fetch)
        executor.demand = demand or {}
        clock = asyncio.get_running_loop().time
        scheduler = fs.Scheduler(resources=("cpu",))
        async with Driver(scheduler, executor, clock=clock, **options) as driver:
            start, futures = clock(), list[Any]()

            def look(_: object) -> None:
                nonlocal most
                most = max(most, len(driver.running()))

            driver.on_round = look
            for i, name in enumerate(seconds):
                job = fs.JobSubmitted(name, [fs.Task(name, {"cpu": executor.demand.get(name, 1)})], priority=i)
                futures += driver.submit(job, {name: None}).values()
            await asyncio.gather(*futures)
            took = clock() - start
            await driver.drained()
            await asyncio.sleep(1.0)
            assert {m: r.machine.capacity["cpu"] for m, r in scheduler.cluster.machines.items()} == machines
            return executor, took, most

    return run_fake(main)


def test_short_runs_follow_each_other_without_a_gap() -> None:
    seconds = {f"t{i}": 0.03 for i in range(60)}
    executor, took, most = run(seconds, {"m0": 2})
    plain, without, _ = run(seconds, {"m0": 2}, ahead=0)
    assert [task for _, task in executor.begun] == list(seconds) == [task for _, task in plain.begun]
    assert without > 29 * (0.03 + 0.05) and took <= 30 * 0.03 + 4 * (0.05 + 0.02)
    assert 2 < most <= 2 * (1 + 3), "ceil(lag / 0.03) times the capacity, as the lag is 0.05 and a round"


def overtaken(executor: Timed, seconds: dict[str, float]) -> list[float]:
    """Return for each pair that began out of order by how much; what begins within a millisecond begins at once."""
    place = {task: i for i, task in enumerate(seconds)}
    begun = [(time, place[task]) for time, task in executor.begun]
    pairs = [(first, then) for i, first in enumerate(begun) for then in begun[i + 1 :] if first[1] > then[1]]
    return [then[0] - first[0] for first, then in pairs if then[0] > first[0] + 1e-3]


@pytest.mark.parametrize(
    "latency", [0.002, pytest.param(0.006, marks=pytest.mark.long), pytest.param(0.012, marks=pytest.mark.long)]
)
@pytest.mark.parametrize("holding", [False, True])
def test_of_several_machines_the_first_to_be_free_gets_the_best_task(latency: float, holding: bool) -> None:
    """They follow each other with hardly a gap, and none is overtaken."""
    seconds = {f"t{i}": 0.03 for i in range(90)}
    executor, took, most = run(seconds, {"m0": 1, "m1": 1, "m2": 1}, latency=latency, holding=holding)
    assert not overtaken(executor, seconds)
    lag = 0.0 if holding else latency
    assert took < 30 * (0.03 + lag) * 1.05 and most <= 6
    uneven = {task: 0.03 + 0.003 * (i * 7 % 11 - 5) / 5 for i, task in enumerate(seconds)}
    executor, _, _ = run(uneven, {"m0": 1, "m1": 1, "m2": 1}, latency=latency, holding=holding)
    late = overtaken(executor, uneven)
    assert max(late, default=0) < 0.03 / 2 and len(late) < 0.004 * 90 * 89 / 2


def test_a_run_that_is_unexpectedly_long_keeps_one_other_waiting() -> None:
    seconds = {f"t{i}": 2.0 if i == 40 else 0.03 for i in range(120)}
    executor, took, _ = run(seconds, {"m0": 1, "m1": 1, "m2": 1}, latency=0.006)
    late = executor.begun.pop()
    assert took < 2.5 and late[0] > executor.begun[-1][0] + 0.5
    assert not overtaken(executor, seconds)


def test_tasks_of_equal_priority_are_told_to_several_machines_in_numbers() -> None:
    async def main() -> None:
        seconds = {f"t{i}": 0.005 for i in range(400)}
        executor = Timed(seconds, {"m0": 1, "m1": 1}, True, 0.03)
        async with Driver(fs.Scheduler(resources=("cpu",)), executor, clock=asyncio.get_running_loop().time) as driver:
            most = list[int]()
            driver.on_round = lambda round: most.append(len(driver.running()))
            job = fs.JobSubmitted("j", [fs.Task(name, {"cpu": 1}) for name in seconds])
            await asyncio.gather(*driver.submit(job, dict.fromkeys(seconds)).values())
            assert max(most) > 8

    run_fake(main)


def test_what_fits_on_no_machine_makes_no_rounds() -> None:
    """It waits for ever, with tasks of other priorities around it."""

    async def main() -> None:
        seconds = {f"t{i}": 0.03 for i in range(60)} | {"big": 0.03}
        executor = Timed(seconds, {"m0": 1, "m1": 1, "m2": 2}, True, 0.006)
        executor.demand = {"big": 3}
        async with Driver(fs.Scheduler(resources=("cpu",)), executor, clock=asyncio.get_running_loop().time) as driver:
            futures = dict[Any, Any]()
            for i, name in enumerate(seconds):
                task = fs.Task(name, {"cpu": executor.demand.get(name, 1)})
                futures |= driver.submit(fs.JobSubmitted(name, [task], priority=-i), {name: None})
            big = futures.pop("big")
            await asyncio.gather(*futures.values())
            rounds = driver.stats["rounds"]
            await asyncio.sleep(10.0)
            assert not big.done() and rounds < 400 and driver.stats["rounds"] < rounds + 300

    run_fake(main)


def test_the_room_of_a_run_is_given_on_before_its_result_is_there() -> None:
    seconds = {f"t{i}": 0.03 for i in range(40)}
    for ahead in (None, 0.0):
        executor, took, _ = run(seconds, {"m0": 1}, latency=0.0, fetch=0.05, ahead=ahead)
        assert [task for _, task in executor.begun] == list(seconds)
        assert took < 40 * (0.03 + (0.01 if ahead == 0 else 0.001)) + 0.2


def test_an_executor_that_holds_nothing_is_told_of_no_run_too_early() -> None:
    seconds = {f"t{i}": 0.002 for i in range(200)}
    executor, took, most = run(seconds, {"m0": 2, "m1": 1}, holding=False, latency=0.0, interval=0.05)
    assert most <= 3 and sorted(task for _, task in executor.begun) == sorted(seconds)
    assert took < 200 / 3 * 0.05 / 4, "several runs of each core follow each other between two rounds"


def test_what_the_executor_does_not_hold_back_is_told_once_it_fits_beside_all_that_was_told() -> None:
    """`FakeExecutor` holds tasks of one core, and refuses others above the capacity."""
    seconds = {f"t{i}": 0.01 * (1 + i % 3) for i in range(120)}
    demand: dict[Hashable, float] = {f"t{i}": 2 for i in range(120) if i % 5 == 3}
    executor, _, most = run(seconds, {"m0": 4, "m1": 2}, demand=demand)
    assert most > 6 and len(executor.begun) == 120


def test_long_runs_are_not_told_ahead() -> None:
    _, _, most = run({f"t{i}": 1.0 for i in range(12)}, {"m0": 2})
    assert most == 2


def test_what_ran_before_tells_nothing_of_what_waits() -> None:
    """Two long runs, behind which short ones wait: the first short one that ends counts."""
    seconds = {"long0": 5.0, "long1": 5.0} | {f"t{i}": 0.03 for i in range(40)}
    executor, took, _ = run(seconds, {"m0": 2})
    assert took <= 5.0 + 20 * 0.03 + 6 * (0.05 + 0.02)
    assert [task for _, task in executor.begun] == list(seconds)


@pytest.mark.parametrize("fuse", ["largest", "preempted"])
def test_a_task_does_not_fit_a_machine_because_of_runs_that_wait_there(fuse: str) -> None:
    async def main() -> None:
        executor = Timed({f"t{i}": 0.02 for i in range(100)} | {"big": 0.02}, {"m0": 2}, True, 0.05)
        executor.demand = {"big": 3}
        clock = asyncio.get_running_loop().time
        policy = fs.Policy(preemption=fs.PreemptionCost() if fuse == "preempted" else None)
        scheduler = fs.Scheduler(policy, resources=("cpu",))
        placed = list[Any]()
        async with Driver(scheduler, executor, clock=clock) as driver:
            driver.on_round = lambda round: placed.extend(round.placements.items())
            names = [f"t{i}" for i in range(100)]
            small = driver.submit(
                fs.JobSubmitted("small", [fs.Task(name, {"cpu": 1}) for name in names], priority=5),
                dict.fromkeys(names),
            )
            await asyncio.sleep(0.5)
            assert scheduler.cluster.machines["m0"].machine.capacity["cpu"] >= 4
            big = driver.submit(fs.JobSubmitted("big", [fs.Task("big", {"cpu": 3})], priority=0), {"big": None})
            if fuse == "preempted":
                for _ in range(40):
                    await asyncio.sleep(0.02)
                    for number in executor.asked:
                        if number in executor.running:
                            executor.tell(executor.end(number, "stopped"))
            await asyncio.gather(*small.values())
            assert not big["big"].done() and "big" not in [task for _, task in executor.begun]
            # It may make runs give way as long as the books have that much on the machine, and is taken back.
            assert placed.count(("big", "m0")) <= (4 if fuse == "preempted" else 0)
            executor.machines["m1"] = 3
            driver.tell(fs.MachineAdded("m1", {"cpu": 3}))
            await big["big"]

    run_fake(main)


def test_an_update_of_a_machine_counts_at_once_and_a_drain_lasts() -> None:
    async def main() -> None:
        executor = Timed({f"t{i}": 0.03 for i in range(300)}, {"m0": 4}, True, 0.05)
        scheduler = fs.Scheduler(resources=("cpu",))
        async with Driver(scheduler, executor, clock=asyncio.get_running_loop().time) as driver:
            names = [f"t{i}" for i in range(300)]
            futures = driver.submit(
                fs.JobSubmitted("j", [fs.Task(name, {"cpu": 1}) for name in names]), dict.fromkeys(names)
            )
            await asyncio.sleep(0.5)
            assert len(driver.running()) > 4
            executor.machines["m0"] = 1
            driver.tell(fs.MachineUpdated("m0", {"cpu": 1}))
            await asyncio.sleep(0.5)
            assert len(executor.running) == 1 and 1 < len(driver.running()) <= 5
            driver.tell(fs.MachineDrained("m0"))
            await asyncio.sleep(1.0)
            driver._dispatch.ahead._seconds = 10.0
            driver._dispatch.ahead._changed.add("m0")
            for i in range(3):
                driver.submit(fs.JobSubmitted(i, [fs.Task(i, {"cpu": 1})]), {i: None})
                executor.seconds[str(i)] = 0.01
                await asyncio.sleep(0.1)
            assert not driver.running() and scheduler.cluster.machines["m0"].drained
            executor.machines["m0"] = 8
            driver.tell(fs.MachineUpdated("m0", {"cpu": 8}))
            await asyncio.gather(*futures.values())

    run_fake(main)


def test_what_ran_while_other_tasks_waited_tells_nothing_of_those_that_wait_now() -> None:
    async def main() -> None:
        seconds = {f"long{i}": 2.0 for i in range(8)} | {f"t{i}": 0.03 for i in range(60)}
        executor = Timed(seconds, {"m0": 2}, True, 0.05)
        async with Driver(fs.Scheduler(resources=("cpu",)), executor, clock=asyncio.get_running_loop().time) as driver:
            for kind in ("long", "t"):
                names = [name for name in seconds if name.startswith(kind)]
                futures = driver.submit(
                    fs.JobSubmitted(kind, [fs.Task(name, {"cpu": 1}) for name in names]), dict.fromkeys(names)
                )
                await asyncio.sleep(0.2)
                assert (len(driver.running()) > 2) == (kind == "t")
                await asyncio.gather(*futures.values())
                await driver.drained()
                await asyncio.sleep(0.2)

    run_fake(main)


def test_need() -> None:
    room = Room(np.array([1]))
    assert room.need(1.0) == 0, "nothing is known"
    for seconds, need in ((1.0, 1), (0.0, 2), (0.0, 3), (0.0, 4), (39.0, 1), (1000.0, 0)):
        room.times.append(seconds)
        assert room.need(1.0) == need
    room.times.extend([1 / 3] * RECENT)
    assert room.need(1.0) == 3 and room.need(100.0) == RECENT and room.need(0.0) == 0
    room.times.extend([WORTH + 0.0] * RECENT)
    assert room.need(1.0) == 0 and room.need(1.01) == 1
