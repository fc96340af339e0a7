"""The driver's loop, in fake time: when rounds are made, what callers see, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from executors import FakeExecutor, run_fake

import flowsched as fs
from flowsched.run import Driver, Ended, LocalExecutor, Run, Stopped, TaskLostError, Told


def cluster(**machines: float) -> FakeExecutor:
    executor = FakeExecutor()
    executor.machines = dict(machines)
    return executor


def driver_of(executor: FakeExecutor, policy: fs.Policy | None = None, **options: Any) -> Driver:
    scheduler = options.pop("scheduler", None) or fs.Scheduler(policy, resources=("cpu",))
    return Driver(scheduler, executor, clock=lambda: asyncio.get_running_loop().time(), **options)


def job(name: str, count: int, **options: Any) -> fs.JobSubmitted:
    return fs.JobSubmitted(name, [fs.Task(f"{name}{i}", {"cpu": 1}) for i in range(count)], **options)


def payloads(job: fs.JobSubmitted) -> dict[Any, str]:
    return {task.id: f"do {task.id}" for task in job.tasks}


async def settle(seconds: float = 0.1) -> None:
    await asyncio.sleep(seconds)


def end(executor: FakeExecutor, number: int, how: str = "ended") -> None:
    executor.tell(executor.end(number, how))


def test_tasks_run_and_their_futures_have_the_results() -> None:
    async def main() -> None:
        executor = cluster(m0=2)
        async with driver_of(executor) as driver:
            work = job("a", 3)
            futures = driver.submit(work, payloads(work))
            await settle()
            assert [run.payload for run in executor.starts] == ["do a0", "do a1"]
            assert [run.task for run in driver.running()] == ["a0", "a1"]
            assert driver.last is not None and driver.last.waiting["a2"].code is fs.ReasonCode.NO_FIT
            end(executor, 1)
            end(executor, 2, "no such luck")
            assert await futures["a0"] == "result of a0"
            with pytest.raises(RuntimeError, match="no such luck"):
                await futures["a1"]
            await settle()
            end(executor, 3)
            await driver.drained()
            assert futures["a2"].result() == "result of a2"
            assert not executor.over and not driver.scheduler.cluster.jobs
            again = driver.submit(work, payloads(work), retries=1)  # its ids are free again
            await settle()
            end(executor, 4, "once")
            end(executor, 5)
            await settle()
            assert again["a1"].result() == "result of a1"
            assert driver.stats == {"rounds": driver.stats["rounds"], "started": 7, "ended": 3, "failed": 2}

    run_fake(main)


def test_rounds_are_made_when_something_happens_and_not_too_often() -> None:
    times: list[float] = []

    async def main() -> None:
        executor = cluster(m0=1)
        loop = asyncio.get_running_loop()
        async with driver_of(executor, interval=1.0) as driver:
            driver.on_round = lambda round: times.append(loop.time())
            await settle(50)
            assert times == [1000.0], "the first one, and none while nothing happens"
            for i in range(4):
                one = job(f"j{i}", 1)
                driver.submit(one, payloads(one))
                await settle(0.1)
            assert times[1:] == [1050.0], "at once after a silence"
            await settle(3)
            assert times[2:] == [1051.0], "all that came meanwhile together"
            assert driver.last is not None and driver.last.now == 1051.0
            await settle(10)
            ticks = times[3:]

        assert all(b - a >= 1.0 for a, b in pairwise(times))
        assert len(ticks) <= 2

    run_fake(main)


@pytest.mark.long
def test_ticks_come_when_time_changes_a_decision() -> None:
    """Nothing happens, but age lets a task be worth a preemption: the driver wakes up by itself."""

    async def main(tick: float | None) -> tuple[float, float]:
        executor = cluster(m0=1)
        policy = fs.Policy(preemption=fs.PreemptionCost(), waiting=fs.WaitCost(first=5), priority=fs.WeightedPriority())
        async with driver_of(executor, policy) as driver:
            loop = asyncio.get_running_loop()
            low, high = job("low", 1, priority=1), job("high", 1, priority=0)
            driver.submit(low, payloads(low))
            await settle(1.0)
            driver.submit(high, payloads(high))
            for _ in range(4000):
                if executor.asked:
                    break
                if tick is not None:
                    driver._dispatch.dirty = True
                    driver._news.set()
                await settle(1.0)
            return (loop.time() if executor.asked else 0.0), driver.stats["rounds"]

    woken, rounds = run_fake(lambda: main(None))
    asked, more = run_fake(lambda: main(1.0))
    assert abs(woken - asked) <= 1.0
    assert rounds <= more


def test_a_time_limit_fails_a_run_and_the_retry_may_succeed() -> None:
    async def main() -> None:
        executor = cluster(m0=1)
        async with driver_of(executor) as driver:
            work = job("a", 1)
            future = driver.submit(work, payloads(work), retries=1, time_limit=60.0)["a0"]
            await settle(59.0)
            assert not executor.asked
            await settle(2.0)
            assert executor.asked == [1]
            end(executor, 1, "stopped")
            await settle(1.0)
            end(executor, 2)
            assert await future == "result of a0"
            twice = driver.submit(work, payloads(work), time_limit=60.0)["a0"]
            await settle(61.0)
            end(executor, 3, "stopped")
            with pytest.raises(fs.TimeLimitError, match="task 'a0' ran longer"):
                await twice

    run_fake(main)


def test_a_future_that_is_cancelled_stops_its_run() -> None:
    async def main() -> None:
        executor = cluster(m0=1)
        async with driver_of(executor) as driver:
            work = job("a", 2)
            futures = driver.submit(work, payloads(work))
            await settle()
            futures["a0"].cancel()
            futures["a1"].cancel()
            await settle()
            assert executor.asked == [1] and set(driver.scheduler.cluster.tasks) == {"a0"}
            drained = asyncio.create_task(driver.drained())
            await settle()
            assert not drained.done()
            end(executor, 1, "stopped")
            await drained
            assert not driver.scheduler.cluster.tasks

    run_fake(main)


def test_machines_go_and_come() -> None:
    async def main() -> None:
        executor = cluster(m0=1)
        async with driver_of(executor, losses=1) as driver:
            work = job("a", 1)
            future = driver.submit(work, payloads(work))["a0"]
            await settle()
            executor.lose("m0")
            executor.tell(fs.MachineRemoved("m0"))
            await settle()
            assert not executor.running
            executor.tell(Ended(1, "too late"))
            executor.machines = {"m1": 1}
            executor.tell(fs.MachineAdded("m1", {"cpu": 1}))
            await settle()
            assert [run.machine for run in executor.starts] == ["m0", "m1"]
            driver.tell(fs.MachineDrained("m1"))
            await settle()
            assert driver.stats["stale"] == 2, "of the stop as well"
            driver.tell(fs.MachineFailed("m1"))
            await settle()
            with pytest.raises(TaskLostError, match="'a0' was lost with machine 'm1'"):
                await future

    run_fake(main)


def test_close_stops_all_runs_and_leaves_the_tasks_waiting() -> None:
    async def main() -> None:
        executor = cluster(m0=2)
        driver = driver_of(executor)
        async with driver:
            work = job("a", 3)
            futures = driver.submit(work, payloads(work))
            await settle()
            asyncio.get_running_loop().call_later(5.0, end, executor, 1, "stopped")
            asyncio.get_running_loop().call_later(9.0, end, executor, 2, "stopped")
        assert asyncio.get_running_loop().time() == pytest.approx(1009.1)
        assert all(future.cancelled() for future in futures.values())
        assert set(driver.scheduler.cluster.tasks) == {"a0", "a1", "a2"}
        assert all(driver.scheduler.cluster.placement(task) is None for task in ("a0", "a1", "a2"))
        with pytest.raises(fs.InputError, match="closed"):
            driver.submit(job("b", 1), {"b0": ""})
        await driver.close()

    run_fake(main)


def test_close_does_not_wait_for_ever() -> None:
    async def main() -> float:
        executor = cluster(m0=2)
        async with driver_of(executor) as driver:
            work = job("a", 1)
            driver.submit(work, payloads(work))
            await settle()
        assert len(executor.asked) >= 2, "it is asked again"
        return asyncio.get_running_loop().time()

    assert run_fake(main) == pytest.approx(1030.1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda driver: driver.submit(job("a", 1), {}), "payloads: task 'a0' has none"),
        (lambda driver: driver.submit(job("a", 1), {"a0": ""}, retries=-1), "retries"),
        (lambda driver: driver.submit(job("a", 1), {"a0": ""}, time_limit=0), "time_limit"),
        (lambda driver: driver.submit(job("a", 1, gang=-1), {"a0": ""}), "gang"),
        (lambda driver: driver.attach({}), "before the driver begins"),
    ],
)
def test_what_is_refused_has_done_nothing(call: Callable[[Driver], object], message: str) -> None:
    async def main() -> None:
        async with driver_of(cluster(m0=1)) as driver:
            with pytest.raises(fs.InputError, match=message):
                call(driver)
            await driver.drained()
            work = job("a", 1)
            assert set(driver.submit(work, payloads(work))) == {"a0"}

    run_fake(main)


def test_an_error_of_the_scheduler_is_every_callers() -> None:
    async def main() -> None:
        driver = driver_of(cluster(m0=1))
        await driver.__aenter__()
        work = job("a", 1)
        future = driver.submit(work, payloads(work))["a0"]
        driver.on_round = lambda round: 1 / 0
        with pytest.raises(ZeroDivisionError):
            await future
        with pytest.raises(ZeroDivisionError):
            await driver.drained()
        with pytest.raises(ZeroDivisionError):
            await driver.close()

    run_fake(main)


def test_a_driver_that_died_has_a_successor(tmp_path: Path) -> None:
    """The journal has what was decided, the executor what runs: the next driver goes on, and nothing starts twice."""
    path = tmp_path / "journal"

    async def first() -> FakeExecutor:
        executor = cluster(m0=2)
        driver = driver_of(executor, scheduler=fs.Scheduler(resources=("cpu",), journal=path))
        await driver.__aenter__()
        work = job("a", 6)
        driver.submit(work, payloads(work))
        await settle()
        end(executor, 1)
        await settle()
        assert driver._owner is not None
        driver._owner.cancel()  # it dies
        assert driver.scheduler.journal is not None
        driver.scheduler.journal.close()
        return executor

    async def second(executor: FakeExecutor) -> None:
        driver = driver_of(executor, scheduler=fs.Scheduler(resources=("cpu",), journal=path))
        late = executor.end(2, "ended")  # ended while there was no driver
        executor.running[2] = next(run for run in executor.starts if run.number == 2)
        futures = driver.attach({f"a{i}": f"do a{i}" for i in range(6)})
        assert set(futures) == {"a1", "a2", "a3", "a4", "a5"}, "one had ended before"
        async with driver:
            del executor.running[2]
            executor.tell(late)
            assert await futures["a1"] == "result of a1"
            for _ in range(8):
                await settle()
                for number in list(executor.running):
                    end(executor, number)
            assert [await future for future in futures.values()] == [f"result of a{i}" for i in range(1, 6)]
            await driver.drained()
        assert sorted(run.task for run in executor.starts) == [f"a{i}" for i in range(6)], "each started once"

    executor = run_fake(first)
    run_fake(lambda: second(executor))


def test_what_was_committed_and_not_started_is_started_by_the_successor(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    scheduler = fs.Scheduler(resources=("cpu",), journal=path)
    scheduler.apply(fs.MachineAdded("m0", {"cpu": 1}), job("a", 1))
    scheduler.commit(scheduler.schedule(0.0))
    assert scheduler.journal is not None
    scheduler.journal.close()

    async def main() -> None:
        executor = cluster(m0=1)
        driver = driver_of(executor, scheduler=fs.Scheduler(resources=("cpu",), journal=path))
        future = driver.attach({"a0": "do a0"})["a0"]
        async with driver:
            await settle()
            executor.tell(Stopped(99))
            assert list(executor.running) == [2], "the run that was never started had the first number"
            end(executor, 2)
            assert await future == "result of a0"

    run_fake(main)


@pytest.mark.parametrize("names", [["odd"], ["odd", "good"]])
def test_a_driver_says_which_machines_it_cannot_take(names: list[str], caplog: pytest.LogCaptureFixture) -> None:
    closed: list[str] = []

    class Odd(FakeExecutor):
        async def open(self, tell: Callable[[Told], None]) -> list[Run]:
            for name in names:
                tell(fs.MachineAdded(name, {"cpu": 1, "mem": 1} if name == "odd" else {"cpu": 1}))
            return []

        async def close(self) -> None:
            closed.append("closed")

    async def main() -> None:
        async with Driver(fs.Scheduler(resources=("cpu",)), Odd()) as driver:
            assert [*driver.refused] == ["odd"] and "'mem'" in driver.refused["odd"]
            driver.tell(fs.MachineUpdated("odd", {"cpu": 1}), fs.MachineRemoved("good"))
            await asyncio.sleep(0.02)
            assert not driver.refused
            driver.tell(fs.MachineUpdated("odd", {"disk": 1}))
            with pytest.raises(fs.InputError, match="all machines are refused: machine 'odd'.*'disk'"):
                await driver.drained()
            with pytest.raises(fs.InputError, match="'disk'"):
                driver.submit(fs.JobSubmitted("j", [fs.Task("t")]), {"t": None})

    with pytest.raises(fs.InputError, match="all machines are refused: machine 'odd'.*'(mem|disk)'"):
        run_fake(main)
    assert closed == ["closed"] and "machine 'odd' takes no tasks" in caplog.text


class Notes:
    """A watcher that keeps what it is told."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []

    def started(self, run: Run, now: float) -> None:
        self.rows.append((run.number, run.task, "started"))

    def ended(self, run: Run, now: float, outcome: str, error: BaseException | None, used: Any) -> None:
        self.rows.append((run.number, run.task, outcome, "" if error is None else str(error)))


def test_a_watcher_sees_each_run_begin_and_end_once() -> None:
    async def main() -> list[tuple[Any, ...]]:
        executor, notes = cluster(m0=2, m1=1), Notes()
        async with driver_of(executor, watcher=notes) as driver:
            work = job("a", 3)
            driver.submit(work, payloads(work), retries=1, time_limit=60.0)
            await settle()
            assert len(driver.under_way()) == 3
            (gone,) = [run.task for run in driver.running() if run.machine == "m1"]
            executor.lose("m1")
            executor.tell(fs.MachineRemoved("m1"))
            first, second = (run for run in driver.running() if run.machine == "m0")
            await settle(30.0)
            end(executor, first.number, "no luck")
            await settle(31.0)
            assert executor.asked == [second.number]
            end(executor, second.number, "stopped")
            await settle()
            driver.cancel(first.task)
            await settle()
            (again,) = (number for number in executor.asked if number != second.number)
            end(executor, again, "stopped")
            await settle()
            for run in driver.running():
                if run.task == gone:
                    end(executor, run.number)
            await settle()
            loop = asyncio.get_running_loop()
            loop.call_later(1.0, lambda: [end(executor, run.number, "stopped") for run in driver.under_way()])
        return notes.rows

    rows = run_fake(main)
    assert [row[:3] for row in rows if row[2] == "started"] == [
        (i, row[1], "started") for i, row in enumerate((row for row in rows if row[2] == "started"), 1)
    ]
    ends = [row[2:] for row in rows if row[2] != "started"]
    assert len(ends) == sum(row[2] == "started" for row in rows)
    assert ("lost", "") in ends and ("failed", "no luck") in ends and ("done", "") in ends
    assert any(outcome == "timeout" and "ran longer" in why for outcome, why in ends)
    assert any(outcome == "cancelled" for outcome, _ in ends) and ends[-1][0] in ("stopped", "timeout")


def test_waiting_tasks_can_be_withdrawn_and_submitted_again() -> None:
    async def main() -> None:
        executor = cluster(m0=1)
        async with driver_of(executor) as driver:
            work = job("a", 3)
            futures = driver.submit(work, payloads(work), retries=2)
            await settle()
            end(executor, 1, "once")
            await settle()
            (runs,) = driver.running()
            assert driver.withdraw(["a0", "a1", "a2", "none"]) == {
                task: 1 if task == "a0" else 2 for task in ("a0", "a1", "a2") if task != runs.task
            }
            assert all(futures[task].cancelled() for task in futures if task != runs.task)
            end(executor, runs.number)
            await driver.drained()
            await settle()
            assert not driver.scheduler.cluster.jobs and not driver.running()
            again = driver.submit(job("a", 1, priority=-1), {"a0": "x"})
            await settle()
            end(executor, executor.starts[-1].number)
            await settle()
            assert again["a0"].result() == "result of a0"

    run_fake(main)


def test_a_drain_holds_whatever_the_executor_reports() -> None:
    """Also without a limit of patience for the tasks that wait for it, and for a machine that comes later."""

    async def main() -> None:
        executor = cluster(m0=1)
        async with driver_of(executor, patience=10.0) as driver:
            driver.drain("m0")
            driver.drain("m1")
            work = job("a", 2)
            futures = driver.submit(work, payloads(work))
            executor.tell(fs.MachineUpdated("m0", {"cpu": 2}))
            executor.tell(fs.MachineAdded("m1", {"cpu": 4}))
            executor.machines |= {"m0": 2, "m1": 4}
            await settle(100.0)
            assert not executor.starts and not any(future.done() for future in futures.values())
            assert set(driver.closed) == {"m0", "m1"}
            driver.resume("m1")
            await settle()
            assert [run.machine for run in executor.starts] == ["m1", "m1"]
            for run in driver.running():
                end(executor, run.number)
            await driver.drained()

    run_fake(main)


def test_a_journal_that_grows_is_compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart makes few rounds again, however many there were; the work is the same."""
    monkeypatch.setattr("flowsched.journal.journal._LONG_SECONDS", 0.0)
    monkeypatch.setattr("flowsched.journal.journal._LONG_PART", 0.0)
    path = tmp_path / "state.db"

    async def main(first: int) -> None:
        scheduler = fs.Scheduler(resources=("cpu",), journal=path)
        if first:
            assert scheduler.recovery is not None and scheduler.recovery.rounds <= 1
        async with Driver(scheduler, LocalExecutor({"cpu": 1})) as driver:
            for i in range(first, first + 5):
                job = fs.JobSubmitted(f"j{i}", [fs.Task(f"t{i}", {"cpu": 1})])
                (done,) = driver.submit(job, {f"t{i}": ["true"]}).values()
                assert await done == 0
        scheduler.journal.close()

    for first in (0, 5):
        asyncio.run(main(first))
    with contextlib.closing(sqlite3.connect(path)) as db:
        counts = dict(db.execute("select kind, count(*) from calls group by kind").fetchall())
    assert counts["state"] > 5 and counts["commit"] >= 10
