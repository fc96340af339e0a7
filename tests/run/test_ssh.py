"""Commands on hosts over SSH: their ends, and drivers, connections, servers and processes that are killed."""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("asyncssh")

from killed_drivers import kill_again_and_again
from processes import alive
from sshd import Host, hosts

import flowsched as fs
from flowsched.run import Command, Driver, Ended, ExitStatusError, Run
from flowsched.run.ssh import BECOME, SSHExecutor, exchange

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="servers and processes on this machine")


@pytest.fixture(scope="module")
def pair() -> Iterator[list[Host]]:
    with hosts(2) as there:
        yield there


def executor(there: list[Host], **options: Any) -> SSHExecutor:
    keys = {"client_keys": [str(host.folder / "user_key") for host in there], "known_hosts": None, "config": None}
    settings: dict[str, Any] = {"options": keys, "poll": 0.05, "grace": 0.2} | options
    return SSHExecutor([host.name for host in there], ("cpu",), **settings)


def tasks(commands: dict[str, Any], name: str = "job") -> fs.JobSubmitted:
    return fs.JobSubmitted(name, [fs.Task(id, {"cpu": 1}) for id in commands])


def drive(there: list[Host], act: Callable[[Driver], Any], **options: Any) -> Any:
    async def main() -> Any:
        async with asyncio.timeout(100), Driver(fs.Scheduler(resources=("cpu",)), executor(there, **options)) as one:
            return await act(one)

    return asyncio.run(main())


def left(there: list[Host]) -> list[str]:
    """What is left of the drivers that had no name."""
    return [path.name for host in there for path in (host.home / ".flowsched").glob("*") if len(path.name) == 32]


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.02)


def test_ends_of_commands(tmp_path: Path, pair: list[Host]) -> None:
    out, err = tmp_path / "out put" / "a", tmp_path / "err"

    async def act(one: Driver) -> dict[str, Any]:
        commands = {
            "good": Command('pwd; echo "$WHO" >&2; cat', {"WHO": "a 'b'\n$c"}, tmp_path, out, err),
            "home": Command("pwd > where"),
            "bad": ["sh", "-c", "exit 3"],
            "killed": "kill -9 $$",
            "none": ["/no/such/program"],
            "empty": ["test", "", "=", ""],
            "nowhere": Command(["true"], directory=tmp_path / "none"),
            "unwritable": Command(["true"], output="/proc/none/x"),
            "nonsense": 17,
        }
        futures = one.submit(tasks(commands), commands)
        ends = await asyncio.gather(*futures.values(), return_exceptions=True)
        return dict(zip(futures, ends, strict=True))

    ends = drive(pair, act)
    assert ends["good"] == ends["home"] == ends["empty"] == 0
    assert out.read_text() == f"{tmp_path}\n" and err.read_text() == "a 'b'\n$c\n"
    assert any((host.home / "where").exists() for host in pair)
    status = {task: error.status for task, error in ends.items() if isinstance(error, ExitStatusError)}
    assert status == {"bad": 3, "killed": 137, "none": 127, "nowhere": 126, "unwritable": 126}
    assert isinstance(ends["nonsense"], fs.InputError)
    assert left(pair) == []


@pytest.mark.long
def test_a_run_is_stopped_with_all_that_it_has_started(tmp_path: Path, pair: list[Host]) -> None:
    """The one heeds SIGTERM, the other does not, and has children, of which one has left the session."""
    stubborn = f"trap '' TERM; sleep 1000 & echo $! >> {tmp_path}/pids; setsid sleep 1000 & echo $! >> {tmp_path}/pids; wait; wait"
    cleared = f"trap '' TERM; env -i sleep 1000 & echo $! >> {tmp_path}/pids; wait"

    async def act(one: Driver) -> None:
        commands = {"a": ["sleep", "1000"], "b": stubborn, "c": cleared}
        futures = one.submit(tasks(commands), commands)
        await until(lambda: (tmp_path / "pids").exists() and len((tmp_path / "pids").read_text().split()) == 3)
        for task in commands:
            one.cancel(task)
        await asyncio.wait(futures.values())
        assert one.stats["started"] == 3

    drive(pair, act)
    assert not any(alive(int(pid)) for pid in (tmp_path / "pids").read_text().split())
    assert left(pair) == []


@pytest.mark.long
def test_a_run_has_its_grace(tmp_path: Path, pair: list[Host]) -> None:
    async def act(one: Driver) -> None:
        line = f"trap 'sleep 0.5; touch {tmp_path}/order; exit 1' TERM; touch {tmp_path}/up; sleep 1000 & wait"
        future = one.submit(tasks({"a": line}), {"a": line})["a"]
        await until((tmp_path / "up").exists)
        one.cancel("a")
        await asyncio.wait([future])
        assert future.cancelled() and (tmp_path / "order").exists()

    drive(pair, act, grace=60.0)


@pytest.mark.long
def test_what_a_command_leaves_behind_is_ended(tmp_path: Path, pair: list[Host]) -> None:
    async def act(one: Driver) -> None:
        line = f"sleep 1000 & echo $! > {tmp_path}/pid"
        assert await one.submit(tasks({"a": line}), {"a": line})["a"] == 0

    drive(pair, act)
    assert not alive(int((tmp_path / "pid").read_text()))


@pytest.mark.long
def test_what_runs_when_the_driver_closes_is_stopped(tmp_path: Path, pair: list[Host]) -> None:
    async def act(one: Driver) -> None:
        line = f"echo $$ >> {tmp_path}/pids; sleep 1000"
        one.submit(tasks(dict.fromkeys("abcd", line)), dict.fromkeys("abcd", line))
        await until(lambda: (tmp_path / "pids").exists())

    drive(pair, act)
    assert not any(alive(int(pid)) for pid in (tmp_path / "pids").read_text().split())
    assert left(pair) == []


@pytest.mark.long
def test_a_run_whose_first_process_is_killed_is_lost_and_runs_again(tmp_path: Path, pair: list[Host]) -> None:
    async def act(one: Driver) -> dict[str, int]:
        line = f"echo $$ >> {tmp_path}/starts; [ -e {tmp_path}/once ] && exit; : > {tmp_path}/once; kill -9 $PPID; sleep 1000"
        assert await one.submit(tasks({"a": line}), {"a": line})["a"] == 0
        return one.stats

    stats = drive(pair, act)
    assert stats["lost"] == 1 and stats["ended"] == 1
    starts = (tmp_path / "starts").read_text().split()
    assert len(starts) == 2 and not any(map(alive, map(int, starts)))


@pytest.mark.long
def test_connections_that_are_killed_again_and_again(tmp_path: Path, pair: list[Host]) -> None:
    """Every task is begun once and done once, and no machine goes."""
    line = f"echo $0 >> {tmp_path}/begun; sleep 0.2; echo $0 >> {tmp_path}/done"
    commands = {f"t{i}": ["sh", "-c", line, f"t{i}"] for i in range(40)}
    cuts, chance = 0, random.Random(1)

    async def act(one: Driver) -> dict[str, int]:
        nonlocal cuts
        futures = asyncio.gather(*one.submit(tasks(commands), commands).values())
        while not futures.done():
            await asyncio.sleep(chance.uniform(0.1, 0.9))
            cuts += sum(bool(host.cut()) for host in pair)
        assert await futures == [0] * len(commands)
        return one.stats

    stats = drive(pair, act)
    assert cuts > 5 and stats["ended"] == stats["started"] == len(commands)
    for name in ("begun", "done"):
        assert sorted((tmp_path / name).read_text().split()) == sorted(commands)
    assert left(pair) == []


@pytest.mark.long
def test_a_host_that_goes_and_comes_back(tmp_path: Path, pair: list[Host]) -> None:
    """Its tasks run elsewhere.  It is a machine again once what still ran there has been stopped."""
    name = pair[1].name
    line = 'trap "" TERM; echo "$SSH_CONNECTION $$" >> FILE; while [ ! -e GO ]; do sleep 0.05; done'
    line = line.replace("FILE", f"{tmp_path}/begun").replace("GO", f"{tmp_path}/go")

    def begun() -> list[tuple[int, int]]:
        lines = (tmp_path / "begun").read_text().splitlines() if (tmp_path / "begun").exists() else []
        return [(int(words.split()[3]), int(words.split()[4])) for words in lines]

    async def act(one: Driver) -> None:
        machines = one.scheduler.cluster.machines
        await until(lambda: len(machines) == 2)
        commands = dict.fromkeys("abcd", line)
        job = fs.JobSubmitted("job", [fs.Task(id, {"cpu": 0.25}, {"side": ["second"]}) for id in commands])
        one.tell(
            *(
                fs.MachineUpdated(host.name, labels={"side": side})
                for host, side in zip(pair, ("first", "second"), strict=True)
            )
        )
        futures = one.submit(job, commands)
        await until(lambda: len(begun()) == 4)
        there = begun()
        assert {port for port, _ in there} == {pair[1].port}
        pair[1].end()
        await until(lambda: name not in machines)
        assert all(alive(pid) for _, pid in there)  # cut off, they go on
        one.tell(fs.MachineUpdated(pair[0].name, labels={"side": "second"}))
        await until(lambda: len(begun()) == 8)
        assert {port for port, _ in begun()[4:]} == {pair[0].port}
        pair[1].begin()
        await until(lambda: name in machines)
        assert not any(alive(pid) for _, pid in there)
        (tmp_path / "go").touch()
        assert await asyncio.gather(*futures.values()) == [0] * 4
        assert one.stats["lost"] == 4 and one.stats["ended"] == 4

    try:
        drive(pair[:2], act, lost=0.5)
    finally:
        pair[1].end()
        pair[1].begin()
    assert left(pair) == []


@pytest.mark.long
def test_a_host_that_is_not_there_yet(pair: list[Host]) -> None:
    async def act(one: Driver) -> None:
        assert list(one.scheduler.cluster.machines) == [pair[0].name]
        pair[1].begin()
        await until(lambda: len(one.scheduler.cluster.machines) == 2)

    pair[1].end()
    with pytest.raises(fs.InputError, match=f"hosts: none can be connected: {pair[1].name}: .*Connect call"):
        drive(pair[1:], act)
    drive(pair, act)


@pytest.mark.long
def test_the_driver_that_comes_last_is_obeyed(tmp_path: Path, pair: list[Host]) -> None:
    async def main() -> None:
        one = Driver(fs.Scheduler(resources=("cpu",)), executor(pair[:1], name="fence"))
        line = f"echo >> {tmp_path}/begun; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"
        async with asyncio.timeout(60), one:
            future = one.submit(tasks({"a": line}), {"a": line})["a"]
            await until(lambda: (tmp_path / "begun").exists())
            told: list[Any] = []
            other = executor(pair[:1], name="fence")
            runs = list(await other.open(told.append))
            assert [run.task for run in runs] == ["a"]
            await until(lambda: not one.scheduler.cluster.machines)
            (tmp_path / "go").touch()
            await until(lambda: len(told) == 2)
            assert told[1].value == 0
            other.release(runs[0])
            await other.close()
            assert not future.done()

    asyncio.run(main())
    assert (tmp_path / "begun").read_text() == "\n"
    assert {path.name for path in (pair[0].home / ".flowsched/fence").iterdir()} == {"lock", "owner"}


@pytest.mark.long
def test_a_driver_that_is_killed_again_and_again(tmp_path: Path, pair: list[Host]) -> None:
    keys = [str(host.folder / "user_key") for host in pair]
    options = {"client_keys": keys, "known_hosts": None, "config": None}
    code = f"SSHExecutor({[host.name for host in pair]}, ('cpu',), name='killed', poll=0.05, options={options})"
    kill_again_and_again(tmp_path, "from flowsched.run.ssh import SSHExecutor", code, 30, step=0.2)
    for host in pair:
        assert {path.name for path in (host.home / ".flowsched/killed").iterdir()} <= {"lock", "owner"}


def test_names_of_hosts() -> None:
    good = {
        "h": {"host": "h"},
        "u@h.example": {"host": "h.example", "username": "u"},
        "u@10.0.0.1:2222": {"host": "10.0.0.1", "username": "u", "port": 2222},
        "[::1]:22": {"host": "::1", "port": 22},
    }
    for text, target in good.items():
        assert SSHExecutor([text])._hosts[text].target == target
    for text in ("", "a b", "u@", ":22", "h:port", "h:1:2"):
        with pytest.raises(fs.InputError, match="hosts"):
            SSHExecutor([text])


@pytest.mark.long
def test_the_command_line(tmp_path: Path, pair: list[Host]) -> None:
    """The settings of the user's own client hold: names of hosts, keys, and known hosts."""
    (tmp_path / ".ssh").mkdir()
    text = "".join(
        f"Host node{i}\nHostName 127.0.0.1\nPort {host.port}\nUser {getpass.getuser()}\nIdentityFile {host.folder}/user_key\n"
        for i, host in enumerate(pair)
    )
    (tmp_path / ".ssh/config").write_text(text)
    keys = [(host.folder / "host_key.pub").read_text().split()[:2] for host in pair]
    known = "".join(f"[127.0.0.1]:{host.port} {' '.join(key)}\n" for host, key in zip(pair, keys, strict=True))
    (tmp_path / ".ssh/known_hosts").write_text(known)
    (tmp_path / "jobs.toml").write_text('[[job]]\nname = "a"\ncount = 4\ncommand = "pwd; echo $FLOWSCHED_INDEX"\n')
    environment = os.environ | {"HOME": str(tmp_path), "PYTHONPATH": str(Path(fs.__file__).parents[1])}
    command = [sys.executable, "-m", "flowsched", "run", "jobs.toml", "--state", "state", "--on"]
    options: dict[str, Any] = {"env": environment, "cwd": tmp_path, "capture_output": True, "text": True}
    done = subprocess.run([*command, "ssh:node0,node1"], check=False, **options)
    assert done.returncode == 0, done.stderr
    assert [(tmp_path / f"jobs.out/a.{i}.log").read_text() for i in range(4)] == [
        f"{tmp_path}\n{i}\n" for i in range(4)
    ]
    (tmp_path / ".ssh/known_hosts").write_text("")
    shutil.rmtree(tmp_path / "state")
    done = subprocess.run([*command[:-3], "--on", "ssh:node0"], check=False, **options)
    assert done.returncode == 2 and "node0: Host key is not trusted" in done.stderr


# -- the script alone ---------------------------------------------------------------------------------------------


def sent(folder: Path, me: str, turn: int, *acts: list[str], cut: int | None = None) -> list[str]:
    text = exchange(str(folder), me, turn, acts)[:cut]
    return subprocess.run(
        ["/bin/sh", "-s"], input=text, capture_output=True, text=True, check=False
    ).stdout.splitlines()


A, B = "a" * 32, "b" * 32


def test_a_script_that_is_cut_off_does_nothing(tmp_path: Path) -> None:
    acts = [["start", f"{A}-1", json.dumps({}), f"touch {tmp_path}/mark"], ["states"]]
    whole = len(exchange(str(tmp_path / "x"), A, 1, acts))
    for cut in [*range(0, 400, 7), *range(whole - 300, whole - 2)]:
        assert sent(tmp_path / "x", A, 1, *acts, cut=cut) == []
    assert not (tmp_path / "x").exists()
    assert sent(tmp_path / "x", A, 1, *acts) == [f"{A}-1 there", "this done"]
    for _ in range(500):
        if (tmp_path / "mark").exists():
            return
        time.sleep(0.02)
    pytest.fail("it never began")


def test_an_exchange_that_is_repeated_or_late_does_nothing_more(tmp_path: Path) -> None:
    start = ["start", f"{A}-1", json.dumps({"run": 1}), f"echo $$ >> {tmp_path}/begun"]
    folder = tmp_path / "x"
    for turn in (1, 2, 3):
        assert sent(folder, A, turn, start, ["states"])[-1] == "this done"
    for _ in range(200):
        if sent(folder, A, turn := turn + 1, ["states"]) == [f"{A}-1 over 0", "this done"]:
            break
        time.sleep(0.02)
    sent(folder, A, turn + 1, ["drop", f"{A}-1"])
    assert sent(folder, A, turn, start, ["states"]) == []
    assert sent(folder, A, turn + 1, start, ["states"]) == []
    assert sent(folder, B, 1, ["states"]) == ["this done"]
    assert sent(folder, A, turn + 2, start, ["states"]) == ["this refused"]
    time.sleep(0.2)
    assert len((tmp_path / "begun").read_text().split()) == 1
    assert {path.name for path in folder.iterdir()} == {"lock", "owner"}


@pytest.mark.long
def test_one_process_becomes_a_run_however_many_try(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "script").write_text(f"echo >> {tmp_path}/begun; sleep 0.2\n")
    tries = [subprocess.Popen(["/bin/sh", "-c", BECOME, str(run)], stderr=subprocess.DEVNULL) for _ in range(20)]
    assert sorted(one.wait() > 0 for one in tries) == [False] + [True] * 19
    assert (tmp_path / "begun").read_text() == "\n" and (run / "status").read_text() == "0\n"


def test_claims_of_an_earlier_boot_and_of_another_process_are_of_runs_that_are_gone(tmp_path: Path) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    started = re.split(r"\) ", Path(f"/proc/{os.getpid()}/stat").read_text())[-1].split()[19]
    claims = {1: f"{os.getpid()} {started} another", 2: f"{os.getpid()} 1 {boot}", 3: f"{2**22} 1 {boot}", 4: "0 0 0"}
    for number, claim in claims.items():
        (tmp_path / f"{A}-{number}").mkdir()
        (tmp_path / f"{A}-{number}" / "record").write_text("{}\n")
        (tmp_path / f"{A}-{number}" / "claim").write_text(claim + "\n")
    (tmp_path / f"{A}-4" / "status").write_text("7\n")
    ends = [["end", f"{A}-{number}"] for number in claims]
    answer = sent(tmp_path, A, 1, *ends, ["states"])
    assert answer == [f"{A}-1 over none", f"{A}-2 over none", f"{A}-3 over none", f"{A}-4 over 7", "this done"]


@pytest.mark.long
def test_a_run_that_is_stopped_before_it_begins_never_begins(tmp_path: Path) -> None:
    start = ["start", f"{A}-1", json.dumps({"run": 1}), f"touch {tmp_path}/mark"]
    answer = sent(tmp_path / "x", A, 1, start, ["stop", f"{A}-1"], ["states"])
    assert answer == [f"{A}-1 over none", "this done"]
    assert not (tmp_path / "mark").exists()


class Answers:
    """A connection that answers what it is given."""

    def __init__(self) -> None:
        self.stdout = ""

    async def run(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(stdout=self.stdout, stderr="", exit_status=0)


@given(st.integers(0, 2**32), st.integers(1, 2))
@settings(deadline=None, max_examples=effort(15, 2000))
def test_an_answer_that_is_garbled_ends_no_run(seed: int, times: int) -> None:
    """Cut off, blank, or with lines that are others: it raises, or what runs there goes on until a whole answer says so."""
    draw = random.Random(seed)

    async def main() -> None:
        told: list[Any] = []
        one = SSHExecutor(["h"], ("cpu", "mem"))
        one.tell, one._loop = told.append, asyncio.get_running_loop()
        host, connection = one._hosts["h"], Answers()
        connection.stdout = "this has 4 4096 0\nthis done\n"
        await one._exchange(host, connection)  # type: ignore[arg-type]
        run = Run(1, "t", "h", payload="true")
        one.start(run)
        name = f"{one._me}-1"
        whole = ["welcome", f"{name} there", "this done"]
        connection.stdout = "\n".join(whole)
        await one._exchange(host, connection)  # type: ignore[arg-type]
        del told[:]
        for _ in range(times):
            lines = list(whole)
            match draw.randrange(4):
                case 0:
                    text = "\n".join(lines)
                    connection.stdout = text[: draw.randrange(len(text))]
                case 1:
                    connection.stdout = "\n" * draw.randrange(3)
                case 2:
                    lines[1] = draw.choice(
                        ["", f"x{name} there", f"{name}", f"{name}: there", f"{name[1:]} over 0", "\0"]
                    )
                    connection.stdout = "\n".join(lines)
                case _:
                    lines.insert(
                        draw.randrange(3), draw.choice(["this has", f"{'f' * 32}-9 record {{}}", "this has x y z"])
                    )
                    connection.stdout = "\n".join(lines)
            with suppress(ConnectionError, ValueError):
                await one._exchange(host, connection)  # type: ignore[arg-type]
            assert not told
        connection.stdout = f"{name} over 0\nthis done"
        await one._exchange(host, connection)  # type: ignore[arg-type]
        assert told == [Ended(1, 0)]

    asyncio.run(main())


@pytest.mark.long
def test_a_host_that_answers_nonsense_is_gone_and_the_other_one_works(tmp_path: Path, pair: list[Host]) -> None:
    """Whatever is raised at one host: the driver goes on."""

    async def act(one: Driver) -> None:
        executor: Any = one.executor
        there = one.scheduler.cluster.machines
        await until(lambda: len(there) == 2)
        bad = next(iter(executor._hosts))
        exchange = executor._exchange

        async def odd(host: Any, connection: Any) -> None:
            if host.name == bad:
                raise KeyError("nonsense")
            await exchange(host, connection)

        executor._exchange = odd
        commands = {f"t{i}": ["true"] for i in range(10)}
        ends = await asyncio.gather(*one.submit(tasks(commands), commands).values())
        assert ends == [0] * 10
        await until(lambda: bad not in there)
        executor._exchange = exchange
        await until(lambda: bad in there)

    drive(pair, act, lost=1.0)
