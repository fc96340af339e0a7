"""How commands begin, on every executor: with any environment, once, and with a reason in the error where they cannot."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from effort import FUZZ
from entries import (
    NAMES,
    begins_once_with_its_environment,
    environments,
    one_that_kills_its_group_has_failed,
    reasons_are_in_the_errors,
)

import flowsched as fs
from flowsched.run import Command, Driver, ExitStatusError, LocalExecutor, Run
from flowsched.run.command import script

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes, servers and daemons of this machine")

Act = Callable[..., Coroutine[Any, Any, None]]

Run_ = Callable[..., None]

COUNT = 400 if FUZZ else 8


@pytest.fixture(
    scope="module", params=["local", *(pytest.param(on, marks=pytest.mark.long) for on in ("ssh", "slurm"))]
)
def drive(request: pytest.FixtureRequest) -> Iterator[Run_]:
    """Act on a driver of one kind; Slurm and the server of SSH are real."""

    def on(make: Callable[[], Any]) -> Run_:
        def call(act: Act, *arguments: Any) -> None:
            async def main() -> None:
                async with asyncio.timeout(300), Driver(fs.Scheduler(resources=("cpu",)), make()) as one:
                    await act(one, *arguments)

            asyncio.run(main())

        return call

    if request.param == "local":
        yield on(lambda: LocalExecutor({"cpu": 4}, machine="here", grace=0.2))
    elif request.param == "ssh":
        pytest.importorskip("asyncssh")
        from sshd import hosts

        from flowsched.run.ssh import SSHExecutor

        with hosts(1) as (host,):
            yield on(lambda: SSHExecutor([host.name], ("cpu",), options=host.options, poll=0.05, grace=0.2))
    else:
        from slurm import slurm

        from flowsched.run.slurm import SlurmExecutor

        with slurm(2):
            yield on(lambda: SlurmExecutor(("cpu",), poll=0.1))


def test_a_command_begins_once_with_any_environment(drive: Run_, tmp_path: Path) -> None:
    drive(begins_once_with_its_environment, tmp_path, environments(COUNT, 1))


def test_a_task_that_kills_its_group_has_failed(drive: Run_, tmp_path: Path) -> None:
    drive(one_that_kills_its_group_has_failed, tmp_path)


def test_the_reason_is_in_the_error(drive: Run_, tmp_path: Path) -> None:
    drive(reasons_are_in_the_errors, tmp_path)


def test_no_list_of_processes_shows_an_environment(
    drive: Run_, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All arguments of all processes are looked at while tasks begin, run and end; Slurm is asked for all that it knows.

    A program that passed variables on as arguments, such as `env`, would be seen for long, where the PATH is the driver's.
    """
    (tmp_path / "env").write_text('#!/bin/sh\nsleep 0.3\nexec /usr/bin/env "$@"\n')
    (tmp_path / "env").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    secret, seen, over = f"s3cret{os.getpid()}", list[bytes](), threading.Event()

    def watch() -> None:
        while not over.is_set():
            for name in filter(str.isdigit, os.listdir("/proc")):
                try:
                    line = Path(f"/proc/{name}/cmdline").read_bytes()
                except OSError:
                    continue
                if secret.encode() in line:
                    seen.append(line)

    async def act(one: Driver) -> None:
        line = f"sleep 0.2; echo $API_KEY >> {tmp_path}/out"
        commands = {f"t{i}": Command(line, {"API_KEY": secret}) for i in range(12)}
        futures = one.submit(fs.JobSubmitted("j", [fs.Task(task, {"cpu": 1}) for task in commands]), commands)
        while not all(future.done() for future in futures.values()):
            await asyncio.sleep(0.1)
            if "SLURM_CONF" in os.environ:
                for asked in ("scontrol -d show job", "squeue -a -O ALL", "squeue -o %all"):
                    process = await asyncio.create_subprocess_shell(asked, stdout=-1, stderr=-1)
                    assert secret.encode() not in b"".join(await process.communicate())

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        drive(act)
    finally:
        over.set()
        watching.join()
    assert not seen and (tmp_path / "out").read_text() == f"{secret}\n" * 12


def test_a_script_has_no_variable_in_an_argument() -> None:
    own = {name: f"s3cret-{name}" for name in NAMES if name not in ("UID", "PPID")} | {"API_KEY": "s3cret\n'"}
    text = script(Run(1, "t", "m", payload=Command(["prog", "a b"], own)))
    last = shlex.split(text.rstrip().rpartition("\n")[2])
    assert last[0] == "exec" and last[-2:] == ["prog", "a b"] and "API_KEY" not in str(last) and "PATH" not in str(last)
    with pytest.raises(fs.InputError, match="environment"):
        script(Run(1, "t", "m", payload=Command("true", {"odd.name": "s3cret"})))


# -- this machine ---------------------------------------------------------------------------------------------------


def run(folder: Path, commands: dict[str, Any], **options: Any) -> tuple[dict[str, Any], Driver]:
    async def main() -> tuple[dict[str, Any], Driver]:
        executor = LocalExecutor({"cpu": 4}, machine="here", grace=0.2, folder=folder)
        async with Driver(fs.Scheduler(resources=("cpu",)), executor) as one:
            job = fs.JobSubmitted("job", [fs.Task(task, {"cpu": 1}) for task in commands])
            futures = one.submit(job, commands, **options)
            ends = await asyncio.gather(*futures.values(), return_exceptions=True)
            return dict(zip(futures, ends, strict=True)), one

    return asyncio.run(main())


def test_names_that_are_none_for_a_shell(tmp_path: Path) -> None:
    odd = {
        "odd.name": "1",
        "BASH_FUNC_x%%": "() { :; }",
        "ä": "ö",
        "FLOWSCHED_SET_0": "A=B",
        "FLOWSCHED_CONTAINER": "mine",
    }
    ends, _ = run(tmp_path / "runs", {"a": Command(["/usr/bin/env", "-0"], odd, output=tmp_path / "out")})
    found = dict(line.partition("=")[::2] for line in (tmp_path / "out").read_text().split("\0") if line)
    assert ends == {"a": 0} and {name: found[name] for name in list(odd)[:3]} == dict(list(odd.items())[:3])
    assert len(found["FLOWSCHED_CONTAINER"]) == 32  # by it the executor finds the processes of a run


def test_a_status_that_cannot_be_written_is_that_of_the_shell(tmp_path: Path) -> None:
    line = f"ln -sf /dev/null {tmp_path}/runs/*.status; echo x >> {tmp_path}/ran; exit 5"
    ends, one = run(tmp_path / "runs", {"a": line})
    assert isinstance(ends["a"], ExitStatusError) and ends["a"].status == 5
    assert (tmp_path / "ran").read_text() == "x\n" and not one.stats.get("lost")


def test_the_shell_around_a_task_says_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Neither what dash says of a killed child, nor why a command cannot begin: that is in the error, and in the task's own file."""
    log = tmp_path / "log"
    commands = {
        "killed": "kill -9 $$",
        "group": "kill -9 0",
        "term": "kill $$",
        "late": ["sleep", "1000"],
        "none": Command(["/no/such"], output=log, errors=log),
        "nowhere": Command(["true"], directory=tmp_path / "none"),
    }
    ends, _ = run(tmp_path / "runs", commands, time_limit=1.0)
    status = {task: error.status for task, error in ends.items() if isinstance(error, ExitStatusError)}
    assert status == {"killed": 137, "group": 137, "term": 143, "none": 127, "nowhere": 126}
    assert capfd.readouterr() == ("", "")
    assert log.read_text() == "flowsched: command not found: /no/such\n"


def test_a_script_without_a_first_line_is_one_of_the_shell(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("echo $1-$0\n")
    (tmp_path / "plain").chmod(0o755)
    out = tmp_path / "out"
    ends, _ = run(tmp_path / "runs", {"a": Command(["plain", "x"], {"PATH": f"/none:{tmp_path}"}, output=out)})
    assert ends == {"a": 0} and out.read_text() == f"x-{tmp_path}/plain\n"


# -- workers of Dask and Ray ----------------------------------------------------------------------------------------


def test_calls_of_commands(tmp_path: Path) -> None:
    """Threads stand for workers: a command that kills its group does not reach the process that called it."""

    async def main(act: Act) -> None:
        async with Driver(fs.Scheduler(resources=("cpu",)), Threads()) as one:
            await act(one, tmp_path, lambda command: command.call)

    for act in (one_that_kills_its_group_has_failed, reasons_are_in_the_errors):
        asyncio.run(main(act))


class Threads:
    """An executor of calls in threads."""

    async def open(self, tell: Callable[[Any], None]) -> tuple[Run, ...]:
        self.tell, self.loop = tell, asyncio.get_running_loop()
        tell(fs.MachineAdded("here", {"cpu": 4}))
        return ()

    def start(self, run: Run) -> None:
        from flowsched.run import Ended, Failed

        def work() -> None:
            try:
                told: Any = Ended(run.number, run.payload())
            except Exception as error:
                told = Failed(run.number, error)
            self.loop.call_soon_threadsafe(self.tell, told)

        threading.Thread(target=work).start()

    def stop(self, run: Run) -> None:
        pass

    def release(self, run: Run) -> None:
        pass

    async def close(self) -> None:
        pass
