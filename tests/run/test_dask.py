"""Calls on a Dask cluster of this machine: results, machines, and workers that are killed again and again."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed")

import dask
from distributed import Client, Nanny, Scheduler, SpecCluster, get_worker
from distributed.diagnostics.plugin import SchedulerPlugin
from effort import FUZZ

import flowsched as fs
from flowsched.run import Command, Driver, ExitStatusError
from flowsched.run.dask import DaskExecutor

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of distributed, and of what it leaves open where workers are killed
]


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    logger = logging.getLogger("distributed")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


def within(seconds: float, main: Callable[[Any, Client], Coroutine[Any, Any, None]], workers: int = 2) -> None:
    """Run a coroutine with a cluster whose workers have four threads and two slots."""
    spec = {
        f"n{i}": {
            "cls": Nanny,
            "options": {"nthreads": 4, "memory_limit": "1GiB", "name": f"n{i}", "resources": {"slot": 2}},
        }
        for i in range(workers)
    }
    scheduler = {"cls": Scheduler, "options": {"dashboard_address": None, "port": 0}}

    async def run() -> None:
        async with (
            asyncio.timeout(seconds),
            SpecCluster(scheduler=scheduler, workers=spec, asynchronous=True, silence_logs=logging.CRITICAL) as cluster,
            Client(cluster, asynchronous=True) as client,
        ):
            await main(cluster, client)

    # Dask would close a nanny for good some time after its worker was killed.
    with dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"}):
        asyncio.run(run())


def square(i: int) -> tuple[int, str]:
    return i * i, get_worker().address


def fail() -> None:
    raise ZeroDivisionError("by zero")


def logged(task: str, folder: str, seconds: float) -> str:
    """Leave marks of its begin and end, by process."""
    with open(f"{folder}/{os.getpid()}", "a") as file:
        file.write(f"+ {time.monotonic()}\n")
    time.sleep(seconds)
    with open(f"{folder}/{os.getpid()}", "a") as file:
        file.write(f"- {time.monotonic()}\n")
    return task


def levels(path: Path) -> int:
    """The most calls that a process had under way at a time."""
    marks = sorted((float(at), sign) for sign, at in (line.split() for line in path.read_text().splitlines()))
    level = most = 0
    for _, sign in marks:
        level += 1 if sign == "+" else -1
        most = max(most, level)
    return most


def test_results_errors_and_constraints() -> None:
    async def main(cluster: Any, client: Client) -> None:
        scheduler = fs.Scheduler(resources=("cpu", "mem", "slot"))
        async with Driver(scheduler, DaskExecutor(client, ("cpu", "mem", "slot"))) as driver:
            machines = scheduler.cluster.machines
            assert len(machines) == 2
            tasks = [fs.Task(f"a{i}", {"cpu": 1, "slot": 1}, {"name": ("n1",)}) for i in range(6)]
            futures = driver.submit(fs.JobSubmitted("a", tasks), {f"a{i}": partial(square, i) for i in range(6)})
            values = await asyncio.gather(*futures.values())
            assert [value for value, _ in values] == [0, 1, 4, 9, 16, 25]
            (where,) = {address for _, address in values}
            assert machines[where].labels["name"] == "n1"
            bad = driver.submit(fs.JobSubmitted("b", [fs.Task("b", {"cpu": 1})]), {"b": fail}, retries=2)
            with pytest.raises(ZeroDivisionError, match="by zero"):
                await bad["b"]
            assert driver.stats["failed"] == 3
            job = fs.JobSubmitted("c", [fs.Task("c", {"cpu": 1}), fs.Task("d", {"cpu": 1}), fs.Task("e", {"cpu": 1})])
            ends = driver.submit(job, {"c": Command("exit 3").call, "d": Command(["true"]).call, "e": 5})
            c, d, e = await asyncio.gather(*ends.values(), return_exceptions=True)
            assert isinstance(c, ExitStatusError) and c.status == 3
            assert d == 0
            assert isinstance(e, fs.InputError)
            await driver.drained()

    within(100, main)


@pytest.mark.long
def test_tasks_wait_at_the_worker_and_its_threads_bound_them(tmp_path: Path) -> None:
    async def main(cluster: Any, client: Client) -> None:
        for i in range(3):  # one driver after the other, over the same client
            scheduler = fs.Scheduler(resources=("cpu",))
            async with Driver(scheduler, DaskExecutor(client, ("cpu",)), ahead=0.03) as driver:
                names = [f"{i}.{k}" for k in range(60)]
                job = fs.JobSubmitted(i, [fs.Task(name, {"cpu": 1}) for name in names])
                futures = driver.submit(job, {name: partial(logged, name, str(tmp_path), 0.01) for name in names})
                await asyncio.sleep(0.02)
                assert len(driver.running()) <= 32
                assert await asyncio.gather(*futures.values()) == names

    within(100, main)
    assert max(map(levels, tmp_path.iterdir())) <= 4


@pytest.mark.long
def test_a_worker_that_leaves_and_one_that_comes() -> None:
    async def main(cluster: Any, client: Client) -> None:
        scheduler = fs.Scheduler(resources=("cpu",))
        async with Driver(scheduler, DaskExecutor(client, ("cpu",))) as driver:
            job = fs.JobSubmitted("a", [fs.Task(f"a{i}", {"cpu": 1}) for i in range(12)])
            futures = driver.submit(job, {f"a{i}": partial(time.sleep, 0.3) for i in range(12)})
            await asyncio.sleep(0.1)
            await cluster.workers["n0"].close()
            assert await asyncio.gather(*futures.values()) == [None] * 12
            while len(scheduler.cluster.machines) > 1:
                await asyncio.sleep(0.05)
            assert driver.stats["lost"] >= 1

    within(100, main)


class Books(SchedulerPlugin):
    """What Dask's scheduler itself counts: no worker has been given more than its resources."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler, self.most, self.above = scheduler, 0.0, 0

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        if finish == "processing":
            worker = self.scheduler.tasks[key].processing_on
            used = worker.used_resources["slot"]
            self.most = max(self.most, used)
            self.above += used > worker.resources["slot"] or len(worker.processing) > worker.resources["slot"]


@pytest.mark.parametrize("ahead", [0, None])
@pytest.mark.long
def test_workers_are_killed_at_random(tmp_path: Path, ahead: float | None) -> None:
    """Every task ends exactly once in its caller's eyes, and no worker is above capacity.

    Nor is one in the books of Dask's scheduler, which count a task that waits at a worker: so where none waits there.
    """
    count, kills = (5000, 200) if FUZZ else (300, 8)
    random_ = random.Random(1)

    async def kill(cluster: Any, ends: list[Any]) -> None:
        """Kill workers at moments that are spread over the tasks."""
        for done in range(1, kills + 1):
            while len(ends) < done * count // (kills + 1):
                await asyncio.sleep(0.02)
            await asyncio.sleep(random_.uniform(0.0, 0.1))
            killed = False
            while not killed:
                nanny = random_.choice(list(cluster.workers.values()))
                process = nanny.process and nanny.process.process
                there = nanny.worker_address in cluster.scheduler.workers  # a nanny gives up if its worker never began
                if there and process is not None and process.pid:
                    with suppress(ProcessLookupError):
                        os.kill(process.pid, signal.SIGKILL)
                        killed = True
                await asyncio.sleep(0.02)

    async def main(cluster: Any, client: Client) -> None:
        books = Books(cluster.scheduler)
        cluster.scheduler.add_plugin(books)
        ends: list[Any] = []
        scheduler = fs.Scheduler(resources=("cpu", "slot"))
        executor = DaskExecutor(client, ("cpu", "slot"))
        on_end = lambda *end: ends.append(end)  # noqa: E731
        async with Driver(scheduler, executor, losses=1000, on_end=on_end, ahead=ahead) as driver:
            killer = asyncio.create_task(kill(cluster, ends))
            futures: dict[Any, asyncio.Future[Any]] = {}
            for j in range(count // 10):
                names = [f"{j}.{i}" for i in range(10)]
                job = fs.JobSubmitted(j, [fs.Task(name, {"slot": 1}) for name in names])
                seconds = 0.01 * (1 + j % 5)
                futures |= driver.submit(job, {name: partial(logged, name, str(tmp_path), seconds) for name in names})
            values = await asyncio.gather(*futures.values())
            assert values == list(futures)
            await killer
            await driver.drained()
            assert sorted(task for task, _, _ in ends) == sorted(futures)
            assert all(error is None for _, _, error in ends)
            assert driver.stats["ended"] == count
            assert driver.stats["started"] == count + driver.stats.get("lost", 0) + driver.stats.get("stopped", 0)
            assert not scheduler.cluster.tasks
            assert ahead is None or (books.most == 2 and not books.above)
        print(driver.stats)

    within(1500 if FUZZ else 200, main, workers=3)
    assert max(map(levels, tmp_path.iterdir())) <= 2


def alive(path: Path) -> list[str]:
    """The processes of a file that are there, and are no zombies."""
    pids = []
    for pid in path.read_text().split() if path.exists() else ():
        with suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX":
                pids.append(pid)
    return pids


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.02)


def lasting(folder: Path) -> Command:
    """A command that notes its processes, one of which leaves its session and none of which heeds SIGTERM."""
    line = f"trap '' TERM; echo $$ >> {folder}/shells; sleep 1000 & echo $! >> {folder}/pids; "
    line += f"setsid sleep 1000 & echo $! >> {folder}/pids; echo $$ >> {folder}/pids; wait; wait; wait"
    return Command(line)


@pytest.mark.long
def test_a_command_is_stopped_with_all_its_processes_before_it_runs_again(
    tmp_path: Path,
) -> None:
    """At its time limit, when it is cancelled, and when the driver closes: no process of it is left when that is told."""

    async def main(cluster: Any, client: Client) -> None:
        ends: list[tuple[Any, int]] = []
        scheduler = fs.Scheduler(resources=("cpu",))
        note = lambda task, value, error: ends.append((task, len(alive(tmp_path / task / "pids"))))  # noqa: E731
        async with Driver(scheduler, DaskExecutor(client, ("cpu",)), on_end=note) as driver:
            for task in ("limited", "cancelled", "left"):
                (tmp_path / task).mkdir()
            job = lambda task: fs.JobSubmitted(task, [fs.Task(task, {"cpu": 1})])  # noqa: E731
            limited = driver.submit(
                job("limited"), {"limited": lasting(tmp_path / "limited").call}, retries=1, time_limit=5
            )
            cancelled = driver.submit(job("cancelled"), {"cancelled": lasting(tmp_path / "cancelled")})
            driver.submit(job("left"), {"left": lasting(tmp_path / "left")})
            await until(lambda: len(alive(tmp_path / "cancelled" / "pids")) == 3)
            cancelled["cancelled"].cancel()
            await until(lambda: len(alive(tmp_path / "limited" / "shells")) == 1)
            while not limited["limited"].done():
                assert len(alive(tmp_path / "limited" / "shells")) <= 1
                await asyncio.sleep(0.02)
            await until(lambda: len(ends) == 2)
            assert sorted(ends) == [("cancelled", 0), ("limited", 0)]
            await until(lambda: len(alive(tmp_path / "left" / "pids")) == 3)
        assert not alive(tmp_path / "left" / "pids")

    within(100, main)


@pytest.mark.long
def test_a_command_ends_with_its_worker_and_with_the_client_of_its_driver(tmp_path: Path) -> None:
    """Kills with kill -9: nothing could be told to stop."""
    line = f"echo $$ >> {tmp_path}/pids; sleep 1000 & echo $! >> {tmp_path}/pids; wait"

    async def main(cluster: Any, client: Client) -> None:
        scheduler = fs.Scheduler(resources=("cpu",))
        async with Driver(scheduler, DaskExecutor(client, ("cpu",))) as driver:
            driver.submit(fs.JobSubmitted("a", [fs.Task("a", {"cpu": 1})]), {"a": Command(line)})
            await until(lambda: len(alive(tmp_path / "pids")) == 2)
            first = alive(tmp_path / "pids")
            (run,) = driver.running()
            os.kill((await client.run(os.getpid))[run.machine], signal.SIGKILL)
            await until(lambda: not set(first) & set(alive(tmp_path / "pids")))
            await until(lambda: len(alive(tmp_path / "pids")) == 2)
            driver._owner.cancel()  # dies without a word
        (tmp_path / "pids").unlink()
        code = f"""
import asyncio, flowsched as fs
from flowsched.run import Command, Driver
from flowsched.run.dask import DaskExecutor
async def main():
    async with Driver(fs.Scheduler(resources=("cpu",)), DaskExecutor({client.scheduler.address!r}, ("cpu",))) as driver:
        await driver.submit(fs.JobSubmitted("a", [fs.Task("a", {{"cpu": 1}})]), {{"a": Command({line!r})}})["a"]
asyncio.run(main())
"""
        environment = os.environ | {"PYTHONPATH": str(Path(fs.__file__).parents[1])}
        other = await asyncio.create_subprocess_exec(sys.executable, "-c", code, env=environment)
        await until(lambda: len(alive(tmp_path / "pids")) == 2)
        other.kill()
        await other.wait()
        await until(lambda: not alive(tmp_path / "pids"))

    within(100, main)


@pytest.mark.long
def test_a_call_that_is_stopped_goes_on_and_one_that_has_not_begun_never_begins(tmp_path: Path) -> None:
    async def main(cluster: Any, client: Client) -> None:
        scheduler = fs.Scheduler(resources=("cpu",))
        async with Driver(scheduler, DaskExecutor(client, ("cpu",)), ahead=0.5) as driver:
            names = [f"t{i}" for i in range(40)]
            commands = {name: Command(f"echo {name} >> {tmp_path}/begun; sleep 0.2") for name in names}
            futures = driver.submit(fs.JobSubmitted("a", [fs.Task(name, {"cpu": 1}) for name in names]), commands)
            await until(lambda: (tmp_path / "begun").exists())
            for name in names:
                futures[name].cancel()
            await driver.drained()
            begun = (tmp_path / "begun").read_text()
            await asyncio.sleep(1.0)
            assert (tmp_path / "begun").read_text() == begun and len(begun.split()) < 40

    within(100, main)
