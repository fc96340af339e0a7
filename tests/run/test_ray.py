"""Calls on a Ray cluster of this machine: results, stops, and a node that dies."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")

os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}

import ray
from ray.cluster_utils import Cluster

import flowsched as fs
from flowsched.run import Command, Driver, Run
from flowsched.run.ray import RayExecutor

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of Ray, and of what it leaves open
]

STORE = 80 * 2**20


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head without cores; Ray counts a node as dead after two seconds without an answer."""
    checks = {"initial_delay_ms": 1000, "period_ms": 500, "timeout_ms": 1000, "failure_threshold": 4}
    system = {f"health_check_{name}": value for name, value in checks.items()}
    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": STORE, "_system_config": system}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    ray.init(address=cluster.address, logging_level=logging.ERROR, log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture
def nodes(cluster: Cluster) -> Iterator[list[Any]]:
    nodes = [cluster.add_node(num_cpus=2, object_store_memory=STORE, resources={"slot": 1 + i}) for i in range(3)]
    yield nodes
    for node in nodes:
        if node in cluster.worker_nodes:
            cluster.remove_node(node)


class Noted(RayExecutor):
    """Notes where runs start, and when."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, poll=0.2, **options)
        self.starts: list[tuple[float, Run]] = []

    def start(self, run: Run) -> None:
        self.starts.append((time.monotonic(), run))
        super().start(run)


def where(seconds: float = 0.0) -> str:
    time.sleep(seconds)
    return str(ray.get_runtime_context().get_node_id())


def fail() -> None:
    raise ZeroDivisionError("by zero")


def die(path: str) -> str:
    """Kill the worker the first time."""
    if not os.path.exists(path):
        open(path, "x").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return where()


def job(name: str, count: int, demand: dict[str, float] | None = None, **options: Any) -> fs.JobSubmitted:
    return fs.JobSubmitted(
        name, [fs.Task(f"{name}{i}", {"cpu": 1} if demand is None else demand) for i in range(count)], **options
    )


@pytest.mark.long
def test_results_errors_stops_and_a_worker_that_dies(nodes: list[Any], tmp_path: Any) -> None:
    async def main() -> None:
        scheduler = fs.Scheduler(fs.Policy(preemption=fs.PreemptionCost()), resources=("cpu", "mem", "slot"))
        async with Driver(scheduler, Noted(resources=("cpu", "mem", "slot"))) as driver:
            while sum(machine.capacity["cpu"] > 0 for machine in machines(scheduler)) < 3:
                await asyncio.sleep(0.1)
            ids = [node.node_id for node in nodes]
            slots = job("slots", 6, {"cpu": 0.5, "slot": 1})
            futures = driver.submit(slots, dict.fromkeys([task.id for task in slots.tasks], partial(where, 1.0)))
            assert Counter(await asyncio.gather(*futures.values())) == {ids[0]: 1, ids[1]: 2, ids[2]: 3}
            bad = driver.submit(job("bad", 2), {"bad0": fail, "bad1": 5}, retries=1)
            with pytest.raises(ZeroDivisionError, match="by zero"):
                await bad["bad0"]
            with pytest.raises(fs.InputError, match="a callable or a Command expected"):
                await bad["bad1"]
            assert driver.stats["failed"] == 4
            crash = driver.submit(job("crash", 1), {"crash0": partial(die, str(tmp_path / "died"))})
            assert await crash["crash0"] in ids
            assert driver.stats["lost"] == 1
            assert not any(machine.drained for machine in machines(scheduler))
            low = job("low", 6, priority=5)
            slow = driver.submit(low, dict.fromkeys([task.id for task in low.tasks], partial(where, 3.0)))
            while len(driver.running()) < 6:
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.5)
            gang = job("gang", 2, {"cpu": 2}, priority=0, gang=2)
            assert len(set(await asyncio.gather(*driver.submit(gang, {"gang0": where, "gang1": where}).values()))) == 2
            assert driver.stats["stopped"] == 4
            slow["low0"].cancel()
            assert len(await asyncio.gather(*slow.values(), return_exceptions=True)) == 6
            await driver.drained()

    asyncio.run(main())


def machines(scheduler: fs.Scheduler) -> list[Any]:
    return list(scheduler.cluster.machines.values())


@pytest.mark.long
def test_a_node_that_dies_gets_no_task_again(cluster: Cluster, nodes: list[Any]) -> None:
    async def main() -> None:
        scheduler = fs.Scheduler(resources=("cpu",))
        executor = Noted(resources=("cpu",))
        ends: list[Any] = []
        async with Driver(scheduler, executor, on_end=lambda *end: ends.append(end)) as driver:
            work = job("a", 30)
            futures = driver.submit(work, dict.fromkeys([task.id for task in work.tasks], partial(where, 1.0)))
            while len(driver.running()) < 6:
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.7)
            dead = nodes[1].node_id
            assert sum(run.machine == dead for run in driver.running()) == 2
            killed = time.monotonic()
            await asyncio.to_thread(cluster.remove_node, nodes[1], False)
            done = await asyncio.gather(*futures.values())
            assert len(done) == 30 and not scheduler.cluster.tasks
            assert sorted(task for task, _, _ in ends) == sorted(futures)
            assert all(error is None for _, _, error in ends)
            assert not [run for at, run in executor.starts if run.machine == dead and at > killed]
            while dead in scheduler.cluster.machines:
                await asyncio.sleep(0.1)
            print(Counter(done), driver.stats)

    asyncio.run(main())


def meet(folder: str, me: int, count: int, dies: bool = False) -> tuple[str, str]:
    """Wait for the others of a gang, which are under way on their nodes; return the actor and its node."""
    with open(f"{folder}/{me}", "a") as file:
        file.write("began\n")
    while len(os.listdir(folder)) < count:
        time.sleep(0.01)
    if dies and len(open(f"{folder}/{me}").readlines()) == 1:  # noqa: SIM115
        os.kill(os.getpid(), signal.SIGKILL)
    context = ray.get_runtime_context()
    return str(context.get_actor_id()), str(context.get_node_id())


@pytest.mark.long
def test_a_gang_is_actors_that_begin_together(cluster: Cluster, nodes: list[Any], tmp_path: Any) -> None:
    """On the nodes decided; one that has died has been lost, also with its node."""
    up: list[set[Any]] = []

    class Watched(Noted):
        async def _start_gang(self, gang: Any) -> None:
            up.append({call.run.number for call in self._gangs[gang]})
            await super()._start_gang(gang)

    async def main() -> None:
        scheduler = fs.Scheduler(fs.Policy(preemption=fs.PreemptionCost()), resources=("cpu",))
        executor = Watched(resources=("cpu",))
        async with Driver(scheduler, executor) as driver:
            while sum(machine.capacity["cpu"] > 0 for machine in machines(scheduler)) < 3:
                await asyncio.sleep(0.1)
            low = driver.submit(job("low", 1, priority=5), {"low0": partial(where, 60.0)})
            while not driver.running():
                await asyncio.sleep(0.05)
            await asyncio.sleep(1.0)
            for name, dies in (("gang", False), ("dead", True)):
                os.mkdir(tmp_path / name)
                gang = job(name, 3, {"cpu": 2}, priority=0, gang=3)
                calls = {f"{name}{i}": partial(meet, str(tmp_path / name), i, 3, dies and i == 1) for i in range(3)}
                ends = await asyncio.gather(*driver.submit(gang, calls).values())
                decided = {run.task: run.machine for _, run in executor.starts}
                assert [node for _, node in ends] == [decided[task] for task in calls]
                assert len({actor for actor, _ in ends}) == 3 and "None" not in {actor for actor, _ in ends}
                assert driver.stats.get("lost", 0) == int(dies)
            assert [len(each) for each in up] == [3, 3, 1]
            low["low0"].cancel()
            pair = driver.submit(
                job("pair", 2, {"cpu": 2}, gang=2), dict.fromkeys(("pair0", "pair1"), partial(where, 4.0))
            )
            while len([run for run in driver.running() if run.gang == "pair"]) < 2:
                await asyncio.sleep(0.05)
            await asyncio.sleep(1.0)
            dead = next(run.machine for run in driver.running() if run.task == "pair0")
            (node,) = (node for node in nodes if node.node_id == dead)
            await asyncio.to_thread(cluster.remove_node, node, False)
            assert dead not in await asyncio.gather(*pair.values())
            assert driver.stats["lost"] == 2
            await driver.drained()

    asyncio.run(main())


@pytest.mark.long
def test_a_command_is_killed_with_its_processes_before_its_end_is_told(nodes: list[Any], tmp_path: Path) -> None:
    """Also as a member of a gang, and when the driver closes."""

    def alive(task: str) -> list[str]:
        pids, there = tmp_path / task, []
        for pid in pids.read_text().split() if pids.exists() else ():
            with suppress(OSError):
                if Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX":
                    there.append(pid)
        return there

    def lasting(task: str) -> Command:
        path = tmp_path / task
        return Command(f"trap '' TERM; echo $$ >> {path}; sleep 1000 & echo $! >> {path}; wait; wait")

    async def until(count: int, *tasks: str) -> None:
        while any(len(alive(task)) != count for task in tasks):
            await asyncio.sleep(0.05)

    async def main() -> None:
        left: dict[Any, int] = {}
        note = lambda task, value, error: left.update({task: len(alive(task))})  # noqa: E731
        async with Driver(fs.Scheduler(resources=("cpu",)), Noted(resources=("cpu",)), on_end=note) as driver:
            single = driver.submit(job("single", 1), {"single0": lasting("single0").call})
            gang = driver.submit(job("g", 2, gang=2), {task: lasting(task) for task in ("g0", "g1")})
            await until(2, "single0", "g0", "g1")
            single["single0"].cancel()
            gang["g0"].cancel()
            while len(left) < 2:
                await asyncio.sleep(0.02)
            assert left == {"single0": 0, "g0": 0} and len(alive("g1")) == 2
        assert not alive("g1")

    asyncio.run(main())
