"""Processes of this machine: their ends, their environment, and a driver that is killed in the middle."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from killed_drivers import kill_again_and_again
from processes import alive

import flowsched as fs
from flowsched.run import (
    Command,
    Driver,
    ExitStatusError,
    LocalExecutor,
    Run,
    TaskLostError,
    Told,
    capacity_here,
    local,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and descriptors of processes")


def tasks(commands: dict[str, Any], **demand: float) -> fs.JobSubmitted:
    return fs.JobSubmitted("job", [fs.Task(id, demand or {"cpu": 1}) for id in commands])


def run(commands: dict[str, Any], cpu: float = 4, **options: Any) -> tuple[dict[str, Any], Driver]:
    """Run commands of one CPU each to their ends."""

    async def main() -> tuple[dict[str, Any], Driver]:
        executor = LocalExecutor({"cpu": cpu}, machine="here", grace=0.2)
        async with Driver(fs.Scheduler(resources=("cpu",)), executor) as driver:
            futures = driver.submit(tasks(commands), commands, **options)
            ends = await asyncio.gather(*futures.values(), return_exceptions=True)
            return dict(zip(futures, ends, strict=True)), driver

    return asyncio.run(main())


def test_ends_of_commands(tmp_path: Path) -> None:
    ends, driver = run(
        {
            "good": ["true"],
            "bad": ["sh", "-c", "exit 3"],
            "line": f"echo $((6 * 7)) > {tmp_path}/answer; exit 0",
            "killed": "kill -9 $$",
            "none": ["/no/such/program"],
            "builtin": ["exit", "0"],
            "nonsense": 17,
        }
    )
    assert ends["good"] == ends["line"] == 0
    assert (tmp_path / "answer").read_text() == "42\n"
    status = {task: error.status for task, error in ends.items() if isinstance(error, ExitStatusError)}
    assert status == {"bad": 3, "killed": 137, "none": 127, "builtin": 127}
    assert str(ends["bad"]) == "task 'bad' ended with exit status 3"
    assert isinstance(ends["nonsense"], fs.InputError)
    assert driver.stats["ended"] == 2 and driver.stats["failed"] == 5


def test_a_spawner_that_dies_is_replaced_and_its_runs_go_on() -> None:
    """Their usage is that of the command, not of the driver."""

    class Used:
        def __init__(self) -> None:
            self.of: dict[Any, Any] = {}

        def started(self, run: Run, now: float) -> None:
            pass

        def ended(self, run: Run, now: float, outcome: str, error: BaseException | None, used: Any) -> None:
            self.of[run.task] = outcome, used

    async def main() -> dict[Any, Any]:
        executor, watcher = LocalExecutor({"cpu": 4}, machine="here"), Used()
        scheduler = fs.Scheduler(resources=("cpu",))
        async with Driver(scheduler, executor, watcher=watcher) as driver:
            first = driver.submit(tasks({"a": 1}), {"a": "sleep 0.5; exit 3"})["a"]
            while not driver.running():
                await asyncio.sleep(0.01)
            process = executor._spawner._process
            assert process is not None
            process.kill()
            await asyncio.sleep(0.1)
            program = [sys.executable, "-c", "x = bytearray(100 << 20); sum(range(300_000))"]
            second = driver.submit(fs.JobSubmitted("more", [fs.Task("b", {"cpu": 1})]), {"b": program})["b"]
            assert await second == 0
            with pytest.raises(ExitStatusError, match="exit status 3"):
                await first
            assert executor._spawner._process is not process
        return watcher.of

    used = asyncio.run(main())
    assert used["a"][0] == "failed" and used["b"][0] == "done"
    assert used["a"][1]["memory"] < 30 and 100 < used["b"][1]["memory"] < 200
    assert used["b"][1]["cpu"] > 0


def test_folder_environment_and_files_of_a_command(tmp_path: Path) -> None:
    out, err = tmp_path / "out put", tmp_path / "err"
    command = Command('pwd; echo "$WHO" >&2; cat', {"WHO": "a b"}, tmp_path, out, err)
    assert run({"a": command})[0] == {"a": 0}
    assert run({"a": command})[0] == {"a": 0}
    assert out.read_text() == f"{tmp_path}\n" * 2
    assert err.read_text() == "a b\n" * 2
    ends, _ = run(
        {"a": Command(["true"], directory=tmp_path / "none"), "b": Command(["true"], output=tmp_path / "no/x")}
    )
    assert [end.status for end in ends.values()] == [126, 126]


def test_devices_are_those_that_the_scheduler_gave(tmp_path: Path) -> None:
    async def main() -> None:
        executor = LocalExecutor({"cpu": 4, "gpu": 2}, machine="here")
        async with Driver(fs.Scheduler(resources=("cpu", "gpu")), executor) as driver:
            demands = {"a": {"gpu": 1}, "b": {"gpu": 1}, "c": {"cpu": 1}}
            job = fs.JobSubmitted("j", [fs.Task(id, demand) for id, demand in demands.items()])
            line = 'echo "<$CUDA_VISIBLE_DEVICES>"; sleep 0.2'
            futures = driver.submit(job, {id: Command(line, output=tmp_path / id) for id in demands})
            await asyncio.gather(*futures.values())

    asyncio.run(main())
    assert sorted((tmp_path / id).read_text() for id in "ab") == ["<0>\n", "<1>\n"]
    assert (tmp_path / "c").read_text() == "<>\n"


def test_a_run_is_stopped_with_all_that_it_has_started(tmp_path: Path) -> None:
    """The one heeds SIGTERM, the other does not, and has children, of which one has left the session."""
    stubborn = f"trap '' TERM; sleep 1000 & echo $! >> {tmp_path}/pids; setsid sleep 1000 & echo $! >> {tmp_path}/pids; wait; wait"
    ends, driver = run({"a": ["sleep", "1000"], "b": stubborn}, time_limit=0.5)
    assert all(isinstance(end, fs.TimeLimitError) for end in ends.values())
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 2 and not any(map(alive, pids))
    assert driver.stats["failed"] == 2


def test_whoever_is_in_a_hurry_does_not_wait_for_those_that_do_not_heed(tmp_path: Path) -> None:
    """Else this test would take hours."""

    async def main() -> None:
        executor = LocalExecutor({"cpu": 1}, grace=1e5)
        async with Driver(fs.Scheduler(resources=("cpu",)), executor) as driver:
            line = f"trap '' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 1000; done"
            driver.submit(tasks({"a": line}), {"a": line})
            while not (tmp_path / "pid").exists():
                await asyncio.sleep(0.01)
            asyncio.get_running_loop().call_later(0.2, executor.hurry)

    asyncio.run(main())
    assert not alive(int((tmp_path / "pid").read_text()))


def test_a_run_has_its_grace(tmp_path: Path) -> None:
    """Between SIGTERM and SIGKILL a command may put things in order; the shell around it waits for that."""

    async def main() -> None:
        executor = LocalExecutor({"cpu": 1}, grace=60.0)
        async with Driver(fs.Scheduler(resources=("cpu",)), executor) as driver:
            line = f"trap 'sleep 0.3; touch {tmp_path}/order; exit 1' TERM; touch {tmp_path}/up; sleep 1000 & wait"
            future = driver.submit(tasks({"a": line}), {"a": line})["a"]
            while not (tmp_path / "up").exists():
                await asyncio.sleep(0.01)
            driver.cancel("a")
            await asyncio.wait([future])
            assert future.cancelled() and (tmp_path / "order").exists()

    asyncio.run(main())


def test_what_a_command_leaves_behind_is_ended(tmp_path: Path) -> None:
    ends, _ = run({"a": f"sleep 1000 & echo $! > {tmp_path}/pid"})
    assert ends == {"a": 0}
    assert not alive(int((tmp_path / "pid").read_text()))


def test_nothing_is_left_of_a_command_and_nobody_looks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Orphans that have ended leave no zombies; one that has left the session and cleared its environment is ended as well."""

    def end(families: Any) -> None:
        raise AssertionError("all processes of the machine were looked through")

    monkeypatch.setattr(local, "end", end)
    orphans = "for i in 1 2 3 4 5; do (sleep 0.05 &); done; sleep 0.3; ps -o state= --ppid $PPID --ppid $$ | grep -c Z"
    away = f"env -i setsid -f sh -c 'sleep 1000 & echo $$ $! > {tmp_path}/pids; wait'; until test -s {tmp_path}/pids; do sleep 0.01; done; exit 3"
    ends, _ = run({"quick": ["true"], "orphans": f"{orphans} > {tmp_path}/zombies; true", "away": away})
    assert ends["quick"] == ends["orphans"] == 0 and ends["away"].status == 3
    assert (tmp_path / "zombies").read_text() == "0\n"
    assert not any(alive(int(pid)) for pid in (tmp_path / "pids").read_text().split())


def test_a_run_whose_processes_are_killed_from_outside_is_lost(tmp_path: Path) -> None:
    async def main() -> None:
        async with Driver(fs.Scheduler(resources=("cpu",)), LocalExecutor({"cpu": 1}), losses=1) as driver:
            commands = {"a": f"echo >> {tmp_path}/starts; kill -9 $PPID; sleep 1000"}
            future = driver.submit(tasks(commands), commands)["a"]
            with pytest.raises((TaskLostError, ExitStatusError), match="killed"):
                await future
            assert driver.stats["lost"] == 2

    asyncio.run(main())
    assert len((tmp_path / "starts").read_text()) == 2


def test_no_more_run_at_a_time_than_there_is_room_for(tmp_path: Path) -> None:
    commands = {f"t{i}": f"echo + >> {tmp_path}/log; sleep 0.05; echo - >> {tmp_path}/log" for i in range(12)}
    ends, driver = run(commands, cpu=3)
    assert set(ends.values()) == {0}
    level = most = 0
    for mark in (tmp_path / "log").read_text().split():
        level += 1 if mark == "+" else -1
        most = max(most, level)
    assert most <= 3 and driver.stats["started"] == 12


def test_one_driver_uses_a_folder(tmp_path: Path) -> None:
    async def main() -> None:
        async with Driver(fs.Scheduler(resources=("cpu",)), LocalExecutor({"cpu": 1}, folder=tmp_path)):
            with pytest.raises(fs.InputError, match="another driver uses"):
                async with Driver(fs.Scheduler(resources=("cpu",)), LocalExecutor({"cpu": 1}, folder=tmp_path)):
                    pass
        async with Driver(fs.Scheduler(resources=("cpu",)), LocalExecutor({"cpu": 1}, folder=tmp_path)):
            pass

    asyncio.run(main())
    assert list(tmp_path.iterdir()) == []


def test_what_is_here() -> None:
    here = capacity_here()
    assert here["cpu"] == len(os.sched_getaffinity(0)) and here["mem"] > 100


def test_records_of_an_earlier_boot_are_of_processes_that_are_gone(tmp_path: Path) -> None:
    family = {"pid": os.getpid(), "start": 1, "token": "0" * 32}
    for number in (3, 4):
        event = {"kind": "TaskStarted", "task": ["t", number], "machine": "here", "devices": [], "time": None}
        record = {"run": number, "event": event, "boot": "another", "family": family}
        (tmp_path / f"{number}.json").write_text(json.dumps(record))
    (tmp_path / "4.status").write_text("0\n")

    async def main() -> tuple[list[Run], list[Told]]:
        executor, told = LocalExecutor({"cpu": 1}, machine="here", folder=tmp_path), list[Told]()
        runs = list(await executor.open(told.append))
        await asyncio.sleep(0.1)
        for one in runs:
            executor.release(one)
        await executor.close()
        return runs, told[1:]

    runs, told = asyncio.run(main())
    assert [(one.number, one.task) for one in runs] == [(3, ("t", 3)), (4, ("t", 4))]
    assert [type(one).__name__ for one in told] == ["Failed", "Ended"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_a_driver_that_is_killed_again_and_again(tmp_path: Path) -> None:
    """kill -9 at any moment: every task is begun once and done once, whichever driver sees its end."""
    imports = "from flowsched.run import LocalExecutor"
    code = "LocalExecutor({'cpu': 3}, machine='here', folder=f'{folder}/runs')"
    kill_again_and_again(tmp_path, imports, code, 30, step=0.13)
    assert list((tmp_path / "runs").iterdir()) == []
