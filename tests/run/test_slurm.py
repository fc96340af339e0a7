"""Jobs of a Slurm cluster on this machine: their ends, nodes that fail and come back, and drivers that are killed."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from killed_drivers import dying, kill_again_and_again
from processes import alive
from slurm import Slurm, slurm

import flowsched as fs
from flowsched.run import Command, Driver, ExecutorError, ExitStatusError
from flowsched.run import slurm as backend
from flowsched.run.records import Records
from flowsched.run.slurm import SlurmError, SlurmExecutor

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Slurm's daemons on this machine")


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[Slurm]:
    with slurm() as there:
        yield there


def ask(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def said(path: Path) -> bool:
    """Return True once a line was written to a file; it is there before."""
    return path.exists() and path.read_text().endswith("\n")


def tasks(commands: dict[str, Any], demand: dict[str, float] | None = None) -> fs.JobSubmitted:
    return fs.JobSubmitted("job", [fs.Task(id, demand or {"cpu": 1}) for id in commands])


async def until(one: Driver, node: str, there: bool) -> None:
    while (node in one.scheduler.cluster.machines) != there:
        await asyncio.sleep(0.02)


def driver(**options: Any) -> Driver:
    options.setdefault("executor", SlurmExecutor(("cpu", "mem"), poll=0.1))
    return Driver(fs.Scheduler(resources=("cpu", "mem")), **options)


@pytest.mark.long
def test_ends_of_jobs(tmp_path: Path) -> None:
    out = tmp_path / "a folder" / "out"

    async def main() -> dict[str, Any]:
        async with driver() as one:
            commands = {
                "good": Command(
                    'pwd; echo "$WHO $SLURMD_NODENAME $SLURM_JOB_CPUS_PER_NODE"', {"WHO": "a b"}, tmp_path, out
                ),
                "bad": ["sh", "-c", "exit 3"],
                "killed": "kill -9 $$",
                "none": ["/no/such/program"],
                "nowhere": Command(["true"], directory=tmp_path / "none"),
                "nonsense": 17,
            }
            futures = one.submit(tasks(commands, {"cpu": 2}), commands)
            ends = await asyncio.gather(*futures.values(), return_exceptions=True)
            assert one.stats["ended"] == 1 and one.stats["failed"] == 5
            return dict(zip(futures, ends, strict=True))

    ends = asyncio.run(main())
    assert ends["good"] == 0
    folder, said = out.read_text().splitlines()
    assert folder == str(tmp_path) and said in {f"a b n{i} 2" for i in (1, 2, 3)}
    status = {task: error.status for task, error in ends.items() if isinstance(error, ExitStatusError)}
    assert status == {"bad": 3, "killed": 137, "none": 127, "nowhere": 126}
    assert isinstance(ends["nonsense"], fs.InputError)


def test_a_request_that_slurm_refuses_is_a_failure() -> None:
    async def main() -> None:
        async with driver() as one:
            one.tell(fs.MachineAdded("nowhere", {"cpu": 1000, "mem": 4000}))
            (future,) = one.submit(tasks({"a": "true"}, {"cpu": 500}), {"a": "true"}).values()
            with pytest.raises(SlurmError, match="sbatch"):
                await future

    asyncio.run(main())


@pytest.mark.long
def test_a_job_is_stopped_with_all_that_it_has_started(tmp_path: Path) -> None:
    async def main() -> None:
        async with driver() as one:
            line = f"trap '' TERM; sleep 1000 & echo $! > {tmp_path}/pid; wait; wait"
            futures = one.submit(tasks({"a": line, "b": "sleep 1000"}), {"a": line, "b": "sleep 1000"}, time_limit=1.0)
            ends = await asyncio.gather(*futures.values(), return_exceptions=True)
            assert all(isinstance(end, fs.TimeLimitError) for end in ends)

    asyncio.run(main())
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


@pytest.mark.long
def test_what_runs_when_the_driver_closes_is_cancelled() -> None:
    async def main() -> None:
        async with driver() as one:
            one.submit(tasks(dict.fromkeys("abcdef", "sleep 1000")), dict.fromkeys("abcdef", "sleep 1000"))
            await asyncio.sleep(0.3)

    asyncio.run(main())
    assert ask("squeue", "-h") == ""


@pytest.mark.long
def test_five_hundred_jobs_and_a_node_that_fails(tmp_path: Path) -> None:
    """Each task ends once in the caller's eyes; after its failure, nothing begins on the node until it is back.

    What begins is asked of Slurm: the first line of a job that it has started just before may be written late.
    """
    count, ends = 500, Counter[Any]()
    line = f'echo "$0 $SLURMD_NODENAME" >> {tmp_path}/begun; sleep $1; echo $0 >> {tmp_path}/done'
    commands = {f"t{i}": ["sh", "-c", line, f"t{i}", "0.1" if i % 5 else "1"] for i in range(count)}

    def begun(node: str) -> list[str]:
        return [
            words.split()[0] for words in (tmp_path / "begun").read_text().splitlines() if words.endswith(f" {node}")
        ]

    def started(node: str) -> list[str]:
        """Return the tasks of the jobs that Slurm has started on a node, whatever has become of them."""
        return sorted(
            line.strip("'\n") for line in ask("squeue", "-h", "-t", "all", "-w", node, "-o", "%k").splitlines()
        )

    async def main() -> int:
        async with driver(on_end=lambda task, value, error: ends.update([(task, value)])) as one:
            futures = one.submit(tasks(commands), commands)
            while not (tmp_path / "done").exists() or len((tmp_path / "done").read_text().split()) < 100:
                await asyncio.sleep(0.02)
            while not ask("squeue", "-h", "-w", "n2", "-t", "RUNNING"):
                await asyncio.sleep(0.02)
            ask("scontrol", "update", "nodename=n2", "state=down", "reason=test")
            await until(one, "n2", False)
            before = started("n2")
            assert before and ask("squeue", "-h", "-w", "n2") == ""
            await asyncio.sleep(2.0)
            assert started("n2") == before and {*begun("n2")} <= {*before}
            ask("scontrol", "update", "nodename=n2", "state=resume")
            await until(one, "n2", True)
            await asyncio.gather(*futures.values())
            assert "failed" not in one.stats and one.stats["ended"] == count
            assert len(started("n2")) > len(before)
            return one.stats.get("lost", 0)

    lost = asyncio.run(main())
    assert ends == {(task, 0): 1 for task in commands}
    done = Counter((tmp_path / "done").read_text().split())
    assert done.keys() == commands.keys()
    again = {task for task, times in Counter(begun("n1") + begun("n2") + begun("n3")).items() if times > 1}
    assert {task for task, times in done.items() if times > 1} <= again and len(again) <= lost
    assert ask("squeue", "-h") == ""


@pytest.mark.long
def test_a_run_on_a_drained_node_goes_on_and_no_other_begins_there(tmp_path: Path) -> None:
    async def main() -> None:
        async with driver() as one:
            line = f"echo $SLURMD_NODENAME >> {tmp_path}/nodes; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"
            first = one.submit(tasks({"a": line}), {"a": line})["a"]
            while not said(tmp_path / "nodes"):
                await asyncio.sleep(0.02)
            node = (tmp_path / "nodes").read_text().strip()
            ask("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
            while not one.scheduler.cluster.machines[node].drained:
                await asyncio.sleep(0.02)
            more = {f"b{i}": f"echo $SLURMD_NODENAME >> {tmp_path}/others" for i in range(20)}
            job = fs.JobSubmitted("more", [fs.Task(id, {"cpu": 4}) for id in more])
            await asyncio.gather(*one.submit(job, more).values())
            assert node in one.scheduler.cluster.machines and not first.done()
            (tmp_path / "go").touch()
            assert await first == 0
            await until(one, node, False)
            assert node not in (tmp_path / "others").read_text().split()
            ask("scontrol", "update", f"nodename={node}", "state=resume")
            await until(one, node, True)
            assert "lost" not in one.stats

    asyncio.run(main())


@pytest.mark.long
def test_the_controller_goes_and_comes_back(tmp_path: Path, cluster: Slurm) -> None:
    async def main() -> None:
        async with driver() as one:
            commands = {f"t{i}": ["sh", "-c", f"sleep 0.1; echo $0 >> {tmp_path}/done", f"t{i}"] for i in range(60)}
            futures = one.submit(tasks(commands), commands)
            while not (tmp_path / "done").exists():
                await asyncio.sleep(0.02)
            await asyncio.to_thread(cluster.restart)
            assert await asyncio.gather(*futures.values()) == [0] * 60
            assert "lost" not in one.stats

    asyncio.run(main())
    assert Counter((tmp_path / "done").read_text().split()) == {f"t{i}": 1 for i in range(60)}


@pytest.mark.long
def test_a_submission_that_was_cut_off_leaves_a_held_job_which_is_cancelled(tmp_path: Path) -> None:
    async def main() -> None:
        async with driver(executor=SlurmExecutor(("cpu",), poll=0.1, folder=tmp_path)):
            words = "sbatch --hold --parsable -o /dev/null --job-name".split()
            id = ask(*words, (tmp_path / "name").read_text(), "--wrap", "true").strip()
            while id in ask("squeue", "-h", "-o", "%i").split():
                await asyncio.sleep(0.05)
            with pytest.raises(fs.InputError, match="another driver"):
                await SlurmExecutor(folder=tmp_path).open(lambda told: None)

    asyncio.run(main())
    assert [path.name for path in tmp_path.iterdir()] == ["name"]


@pytest.mark.parametrize("state", ["noresp", "drain", "fail"])
@pytest.mark.long
def test_a_run_on_a_node_that_takes_no_jobs_now_is_found_by_the_next_driver(tmp_path: Path, state: str) -> None:
    """The job runs on, so it is neither stopped nor begun a second time."""
    line = f"echo $SLURMD_NODENAME >> {tmp_path}/begun; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"

    def driver() -> Driver:
        sched = fs.Scheduler(resources=("cpu",), journal=tmp_path / "journal")
        return Driver(sched, SlurmExecutor(("cpu",), poll=0.1, folder=tmp_path / "runs"))

    async def first() -> str:
        async with dying(driver()) as one:
            one.submit(tasks({"a": line}), {"a": line})
            while not said(tmp_path / "begun"):
                await asyncio.sleep(0.02)
        return (tmp_path / "begun").read_text().strip()

    async def second(node: str) -> None:
        one = driver()
        future = one.attach({"a": line})["a"]
        async with one:
            assert [run.machine for run in one.running()] == [node]
            # A node of which Slurm has heard nothing may answer at any time.
            assert one.scheduler.cluster.machines[node].drained or state == "noresp"
            await asyncio.sleep(0.5)
            (tmp_path / "go").touch()
            assert await future == 0
            assert not {"lost", "started"} & one.stats.keys()
            for back in ("drain", "resume"):  # after which the controller asks the node at once
                ask("scontrol", "update", f"nodename={node}", f"state={back}", "reason=test")
            while one.scheduler.cluster.machines.get(node) is None or one.scheduler.cluster.machines[node].drained:
                await asyncio.sleep(0.02)

    node = asyncio.run(first())
    ask("scontrol", "update", f"nodename={node}", f"state={state}", "reason=test")
    try:
        asyncio.run(second(node))
    finally:
        (tmp_path / "go").touch()
    assert (tmp_path / "begun").read_text().split() == [node]


@pytest.mark.long
def test_a_request_that_is_cut_off_leaves_nothing_open() -> None:
    """Its process has ended and its pipes are closed before the event loop is: warnings are errors here."""

    async def main(seconds: float) -> None:
        request = asyncio.create_task(backend._call(["sleep", "5"]))
        await asyncio.sleep(seconds)
        request.cancel()
        with suppress(asyncio.CancelledError):
            await request

    for i in range(10):
        asyncio.run(main(0.002 * i))
    gc.collect()


@pytest.mark.parametrize("slow", ["", "sbatch", "scontrol"])
@pytest.mark.long
def test_a_driver_that_is_killed_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: str) -> None:
    """Also between a request and its answer, and where a request goes out after the death of its driver."""
    if slow:
        (tmp_path / "bin").mkdir()
        wrapper = tmp_path / "bin" / slow
        wrapper.write_text(f'#!/bin/sh\nsleep 0.2\n{shutil.which(slow)} "$@"\nstatus=$?\nsleep 0.2\nexit $status\n')
        wrapper.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    imports = "from flowsched.run.slurm import SlurmExecutor"
    kill_again_and_again(tmp_path, imports, "SlurmExecutor(('cpu',), poll=0.1, folder=f'{folder}/runs')", 40, step=0.15)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["name"]
    assert ask("squeue", "-h") == ""


@pytest.mark.long
def test_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text('[[job]]\nname = "a"\ncount = 4\ncommand = "pwd; echo $FLOWSCHED_INDEX"\n')
    environment = os.environ | {"PYTHONPATH": str(Path(fs.__file__).parents[1])}
    command = [sys.executable, "-m", "flowsched", "run", "jobs.toml", "--on", "slurm"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [(tmp_path / f"jobs.out/a.{i}.log").read_text() for i in range(4)] == [
        f"{tmp_path}\n{i}\n" for i in range(4)
    ]
    assert ask("squeue", "-h") == ""


@pytest.mark.long
def test_accounts_agree_with_the_records_of_slurm(tmp_path: Path, cluster: Slurm) -> None:
    """Node, outcome, exit status, start and end of each attempt; a driver is killed in between."""
    (tmp_path / "jobs.toml").write_text(
        '[[job]]\nname = "good"\ncount = 20\ncommand = "sleep 0.$FLOWSCHED_INDEX"\n'
        '[[job]]\nname = "bad"\ncount = 5\nretries = 1\ncommand = "exit $((FLOWSCHED_INDEX + 1))"\n'
        '[[job]]\nname = "late"\ntime_limit = 1\ncommand = "sleep 100"\n'
    )
    before = lines(cluster.folder / "completed")
    environment = os.environ | {"PYTHONPATH": str(Path(fs.__file__).parents[1])}
    command = [sys.executable, "-m", "flowsched", "run", "jobs.toml", "--on", "slurm", "--state", "s"]
    cut = subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while len(lines(cluster.folder / "completed")) < len(before) + 10:
        time.sleep(0.1)
    cut.kill()
    cut.wait()
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    nothing_left()
    records = Records(tmp_path / "s")
    attempts = records.account("attempt")
    records.close()
    ours = sorted((row["machine"], row["outcome"], row["status"]) for row in attempts)
    found = [dict(re.findall(r"(\w+)=(\S*)", line)) for line in lines(cluster.folder / "completed")[len(before) :]]
    theirs = sorted((row["NodeList"], *_outcome(row)) for row in found)
    assert ours == theirs and len(ours) == 20 + 10 + 1
    for row in attempts:  # Slurm counts in seconds, and the driver hears of an end at one of its looks
        own = [one for one in found if one["NodeList"] == row["machine"]]
        starts = [one for one in own if abs(_seconds(one["StartTime"]) - row["start"]) < 3.0]
        assert any(-1.0 <= row["end"] - _seconds(one["EndTime"]) < 15.0 for one in starts), f"{row} {own}"


def _outcome(row: dict[str, str]) -> tuple[str, int | None]:
    """Outcome and exit status of a job, as accounts have them."""
    status = int(row["ExitCode"].partition(":")[0])
    if row["JobState"] == "COMPLETED":
        return "done", 0
    return ("failed", status) if row["JobState"] == "FAILED" else ("timeout", None)


def _seconds(said: str) -> float:
    return datetime.fromisoformat(said).timestamp()


# -- gangs -----------------------------------------------------------------------------------------------------


def gang(count: int, line: str, **options: Any) -> tuple[fs.JobSubmitted, dict[str, Any]]:
    commands = {f"g{i}": Command(line, {"ME": f"g{i}"}) for i in range(count)}
    demand = options.pop("demand", {"cpu": 1})
    return fs.JobSubmitted("gang", [fs.Task(id, demand) for id in commands], gang=count, **options), commands


def nothing_left() -> None:
    """Fail unless all jobs have ended; the script of a gang ends just after its report."""
    for _ in range(100):
        if not ask("squeue", "-h"):
            return
        time.sleep(0.1)
    pytest.fail(ask("squeue", "-h"))


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


async def until_lines(path: Path, count: int) -> None:
    while len(lines(path)) < count:
        await asyncio.sleep(0.05)


@pytest.mark.long
def test_a_gang_is_one_job_that_begins_as_a_whole(tmp_path: Path) -> None:
    """Jobs of others leave room for a part of it: no member begins before there is room for all."""
    other = ask(*"sbatch --parsable -o /dev/null -w n1 -n 1 -c 6 --mem=10 --wrap".split(), "sleep 4").strip()

    async def main() -> list[Any]:
        async with driver() as one:
            while "RUNNING" not in ask("squeue", "-h", "-j", other, "-o", "%T"):
                await asyncio.sleep(0.05)
            line = f"echo $ME $SLURM_JOB_ID $SLURMD_NODENAME >> {tmp_path}/begun; sleep 1"
            job, commands = gang(20, line)
            futures = one.submit(job, commands)
            while not ask("squeue", "-h", "-t", "PENDING", "-o", "%i").strip():
                await asyncio.sleep(0.02)
            while "RUNNING" in ask("squeue", "-h", "-j", other, "-o", "%T"):
                assert not lines(tmp_path / "begun")
                await asyncio.sleep(0.1)
            return await asyncio.gather(*futures.values())

    assert asyncio.run(main()) == [0] * 20
    members, ids, nodes = zip(*map(str.split, lines(tmp_path / "begun")), strict=True)
    assert sorted(members) == sorted(f"g{i}" for i in range(20)) and len(set(ids)) == 1 and len(set(nodes)) == 3


@pytest.mark.long
def test_one_member_fails_and_runs_again_while_the_others_go_on(tmp_path: Path) -> None:
    line = f"echo $ME >> {tmp_path}/begun; if [ $ME = g1 ] && mkdir {tmp_path}/once; then exit 7; fi; "
    line += f"while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; [ $ME != g2 ] || exit 9"

    async def main() -> None:
        async with driver() as one:
            job, commands = gang(4, line)
            futures = one.submit(job, commands, retries=1)
            await until_lines(tmp_path / "begun", 5)
            assert not any(future.done() for future in futures.values())
            (tmp_path / "go").touch()
            ends = await asyncio.gather(*futures.values(), return_exceptions=True)
            assert [end if end == 0 else end.status for end in ends] == [0, 0, 9, 0]
            assert "lost" not in one.stats

    asyncio.run(main())
    assert Counter(lines(tmp_path / "begun")) == {"g0": 1, "g1": 2, "g2": 2, "g3": 1}


@pytest.mark.long
def test_a_member_is_stopped_alone_and_a_time_limit_stops_all(tmp_path: Path) -> None:
    line = f"echo $$ >> {tmp_path}/pids; sleep 1000 & echo $! >> {tmp_path}/pids; echo $ME >> {tmp_path}/begun; wait"

    async def main() -> None:
        async with driver() as one:
            job, commands = gang(3, line)
            futures = one.submit(job, commands)
            await until_lines(tmp_path / "begun", 3)
            while not all(held.begun for held in one.executor.held.values()):  # type: ignore[attr-defined]
                await asyncio.sleep(0.02)
            futures["g1"].cancel()
            while len(one.running()) == 3 or "g1" in one.scheduler.cluster.tasks:
                await asyncio.sleep(0.02)
            assert not futures["g0"].done() and not futures["g2"].done()
            for name in ("g0", "g2"):
                futures[name].cancel()
            await one.drained()
            ends = await asyncio.gather(*one.submit(job, commands, time_limit=2).values(), return_exceptions=True)
            assert [type(end) for end in ends] == [fs.TimeLimitError] * 3
            await one.drained()

    asyncio.run(main())
    pids = [int(pid) for pid in lines(tmp_path / "pids")]
    assert len(pids) >= 6 and not any(map(alive, pids))
    nothing_left()


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.long
def test_a_gang_is_found_by_the_next_driver(tmp_path: Path, cut: bool) -> None:
    """Where the driver was killed before all members were on record, nothing has begun, and all begin once later."""
    line = f"echo $ME >> {tmp_path}/begun; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; [ $ME != g1 ] || exit 3"
    job, commands = gang(3, line)

    def driver() -> Driver:
        sched = fs.Scheduler(resources=("cpu", "mem"), journal=tmp_path / "journal")
        return Driver(sched, SlurmExecutor(("cpu", "mem"), poll=0.1, folder=tmp_path / "runs"))

    async def first() -> None:
        one = driver()
        async with dying(one):
            if cut:
                folder = one.executor._folder  # type: ignore[attr-defined]
                write, one.executor._soon = folder.write, lambda *_: None  # type: ignore[attr-defined]
                folder.write = lambda run, **more: write(run, **more) if more["member"] < 2 else None
            one.submit(job, commands)
            if cut:
                while len(list((tmp_path / "runs").glob("*.json"))) < 2:
                    await asyncio.sleep(0.02)
            else:
                await until_lines(tmp_path / "begun", 3)

    async def second() -> None:
        one = driver()
        futures = one.attach(commands)
        async with one:
            await until_lines(tmp_path / "begun", 3)
            (tmp_path / "go").touch()
            ends = await asyncio.gather(*futures.values(), return_exceptions=True)
            assert [end if end == 0 else end.status for end in ends] == [0, 3, 0]
            assert one.stats.get("lost", 0) == (2 if cut else 0)

    asyncio.run(first())
    assert len(lines(tmp_path / "begun")) == (0 if cut else 3)
    asyncio.run(second())
    assert Counter(lines(tmp_path / "begun")) == {"g0": 1, "g1": 1, "g2": 1}
    nothing_left()


@pytest.mark.long
def test_tasks_that_name_no_memory_run_side_by_side_and_are_counted(tmp_path: Path) -> None:
    """Slurm would give the first of them all memory of its node."""
    line = f"echo $0 >> {tmp_path}/begun; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"
    commands = {f"t{i}": ["sh", "-c", line, f"t{i}"] for i in range(30)}

    async def main() -> None:
        async with driver() as one:
            futures = one.submit(tasks(commands), commands)
            await until_lines(tmp_path / "begun", 24)
            assert len(one.running()) == 24  # 8 CPUs on each of 3 nodes
            (tmp_path / "go").touch()
            assert await asyncio.gather(*futures.values()) == [0] * 30
            # Half a CPU is a whole one, and all memory of a node leaves none for tasks that name none.
            halves = tasks(dict.fromkeys("abc", "true"), {"cpu": 0.5, "mem": 0.5})
            counted = one.executor.counted(halves)  # type: ignore[attr-defined]
            assert [task.demand for task in counted.tasks] == [{"cpu": 1, "mem": 1}] * 3

    asyncio.run(main())


# -- answers that are not understood ---------------------------------------------------------------------------


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Commands of Slurm that write files: sbatch notes a job, squeue and sinfo write those of their names."""
    where = folder / "bin"
    where.mkdir()
    for name, body in {
        "sbatch": f"cat >/dev/null; echo x >> {folder}/jobs; grep -c x {folder}/jobs",
        "squeue": f"cat {folder}/squeue",
        "sinfo": f"cat {folder}/sinfo",
        "scontrol": "exit 0",
        "scancel": f'echo "$@" >> {folder}/cancelled',
    }.items():
        (where / name).write_text(f"#!/bin/sh\n{body}\n")
        (where / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{where}:{os.environ['PATH']}")
    (folder / "sinfo").write_text("n1|4|4000|gpu:2(S:0-1)|idle\n")
    (folder / "squeue").write_text("")
    return folder


ODD = [
    "",
    " ",
    "|",
    "|||||",
    "1|RUNNING",
    "1|RUNNING|x|None|c|",
    "x|RUNNING|0|None|c|",
    "1||0|None|c|",
    "slurm_load: nothing",
]


@pytest.mark.parametrize("bad", ODD)
@pytest.mark.long
def test_an_odd_line_is_asked_again_and_one_that_stays_ends_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: str
) -> None:
    """A job that is not in an answer is not lost at once: that answer may be cut off."""
    there = stand_in(tmp_path, monkeypatch)

    async def main(stays: bool) -> Any:
        executor = SlurmExecutor(("cpu", "mem"), poll=0.02)
        async with asyncio.timeout(60), driver(executor=executor) as one:
            future = one.submit(tasks({"a": "true"}), {"a": "true"})["a"]
            while not executor.held or not all(job.id for job in executor.held.values()):
                await asyncio.sleep(0.01)
            (there / "squeue").write_text("1|RUNNING|0|None|a|\n")
            while not all(job.begun for job in executor.held.values()):
                await asyncio.sleep(0.01)
            for name, good in (("squeue", "1|RUNNING|0|None|a|\n"), ("sinfo", "n1|4|4000|gpu:2|idle\n")):
                (there / name).write_text(f"{good}{bad}\n")
                await asyncio.sleep(0.1)
                (there / name).write_text(good if not stays else f"{good}{bad}\n")
            if not stays:
                (there / "squeue").write_text("1|COMPLETED|0|None|a|\n")
            return await future

    assert asyncio.run(main(False)) == 0
    for name in ("jobs", "cancelled", "squeue"):
        (there / name).write_text("")
    (there / "sinfo").write_text("n1|4|4000|gpu:2|idle\n")
    with pytest.raises(ExecutorError, match="SlurmExecutor cannot go on: (squeue|sinfo) answers with a line"):
        asyncio.run(main(True))
    assert "1" in (there / "cancelled").read_text().split()


@pytest.mark.long
def test_a_job_that_one_answer_leaves_out_does_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = stand_in(tmp_path, monkeypatch)

    async def main() -> None:
        executor = SlurmExecutor(("cpu", "mem"), poll=0.02)
        looks: list[str] = []

        async def jobs(name: str) -> Any:
            looks.append("")
            state = "COMPLETED" if len(looks) > 30 else "RUNNING"
            return {} if len(looks) % 3 else {"1": backend.JobState(state, 0, "None", "")}

        monkeypatch.setattr(backend, "_ask_jobs", jobs)
        async with asyncio.timeout(60), driver(executor=executor) as one:
            assert await one.submit(tasks({"a": "true"}), {"a": "true"})["a"] == 0
            assert one.stats["started"] == 1 and "lost" not in one.stats

    asyncio.run(main())
    assert (there / "jobs").read_text() == "x\n"


def test_generic_resources_of_nodes() -> None:
    """Against a reader of Slurm's grammar that goes from character to character."""

    def slow(text: str) -> int:
        parts, depth = [""], 0
        for sign in text:
            depth += {"(": 1, ")": -1}.get(sign, 0)
            if sign == "," and not depth:
                parts.append("")
            elif not depth and sign != ")":
                parts[-1] += sign
        total = 0
        for part in parts:
            name, *words = part.split(":")
            if name == "gpu":
                number = words[-1] if words else "1"
                factor = {"K": 2**10, "M": 2**20, "G": 2**30}.get(number[-1:], 1)
                digits = number.rstrip("KMG")
                total += int(digits) * factor if digits.isdigit() else 1
        return total

    random_ = random.Random(1)
    names = ["gpu", "my-gpu", "gpu_mem", "shard", "mps", "craynetwork", "xgpu", "gpus"]
    types = ["", ":tesla", ":a100_1g.5gb", ":nvidia_h100_80gb_hbm3", ":no_consume", ":gpu", ":3g.20gb"]
    numbers = ["", ":0", ":1", ":8", ":16", ":2K"]
    flags = ["", "(S:0-3)", "(S:0,2)", "(S:0,gpu:7)", "(CNT:4)", "(IDX:0-3,5)"]
    for _ in range(3000):
        draw = lambda: "".join(map(random_.choice, (names, types, numbers, flags)))  # noqa: E731
        text = ",".join(draw() for _ in range(random_.randint(1, 4)))
        assert backend._gpus(text) == slow(text), text
    assert backend._gpus("(null)") == backend._gpus("") == 0
    for text in ("gpu:2(S:0", ",gpu:1", "gpu:1,,gpu:1", "(S:0)"):
        with pytest.raises(SlurmError, match="not understood"):
            backend._gpus(text)
