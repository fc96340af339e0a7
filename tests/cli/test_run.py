"""`flowsched run`: files of jobs, their errors, and their ends."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from commands import calm, ended, invoke, started
from journal_rows import records, released
from processes import alive

import flowsched
import flowsched as fs
from flowsched.run.records import Records

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and descriptors of processes")

GOOD = """
[machine]
cpu = 2
[[job]]
name = "a"
command = "echo $FLOWSCHED_TASK $FLOWSCHED_INDEX $X; echo odd >&2"
count = 3
environment = {X = "y z"}
[[job]]
name = "b"
command = ["sh", "-c", "pwd"]
directory = "sub"
demand = {cpu = 2}
"""


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(flowsched.__file__).parents[1]))  # of the programs that tests start
    (tmp_path / "sub").mkdir()
    return tmp_path / "jobs.toml"


def rows(out: str) -> dict[str, list[str]]:
    return {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.strip()}


def wait(path: Path, lines: int = 1) -> list[str]:
    for _ in range(1000):
        if path.exists() and len(found := path.read_text().splitlines()) >= lines:
            return found
        time.sleep(0.01)
    raise AssertionError(f"{path}: no {lines} lines")


def test_jobs_run_and_their_output_is_kept(jobs: Path) -> None:
    jobs.write_text(GOOD)
    result = invoke("run", jobs)
    assert result.exit_code == 0, result.output
    assert rows(result.stdout) == {
        "job": ["tasks", "done", "failed", "running", "waiting", "why"],
        "a": ["3", "3", "0", "0", "0"],
        "b": ["1", "1", "0", "0", "0"],
    }
    assert Path("jobs.out/a.2.log").read_text() == "a.2 2 y z\nodd\n"
    assert Path("jobs.out/b.log").read_text() == f"{jobs.parent}/sub\n"
    assert invoke("run", jobs, "--quiet", "--output", "x/y").stdout == ""
    assert Path("x/y/a.0.log").exists()


def test_a_task_that_fails_for_good_is_status_1(jobs: Path) -> None:
    jobs.write_text(
        """
        [machine]
        cpu = 4
        [[job]]
        name = "good"
        command = "true"
        [[job]]
        name = "twice"
        command = "test -e mark || { touch mark; exit 3; }"
        retries = 1
        [[job]]
        name = "bad"
        command = ["/no/such"]
        [[job]]
        name = "slow"
        command = "sleep 1000"
        time_limit = "300ms"
        [[job]]
        name = "huge"
        command = "true"
        demand = {cpu = 5, mem = "2G"}
        [[job]]
        name = "nowhere"
        command = "true"
        constraints = {zone = ["moon"]}
        [[job]]
        name = "gang"
        command = "sleep $((1000 * FLOWSCHED_INDEX)); exit 1"
        count = 2
        gang = 2
        demand = {cpu = 0.5}
        """
    )
    result = invoke("run", jobs)
    assert result.exit_code == 1
    found = rows(result.stdout)
    assert {job: row[:3] for job, row in found.items()} == {
        "job": ["tasks", "done", "failed"],
        "good": ["1", "1", "0"],
        "twice": ["1", "1", "0"],
        "bad": ["1", "0", "1"],
        "slow": ["1", "0", "1"],
        "huge": ["1", "0", "1"],
        "nowhere": ["1", "0", "1"],
        "gang": ["2", "0", "2"],
    }
    said = result.stderr
    assert "bad failed: task 'bad' ended with exit status 127" in said
    assert "slow failed: task 'slow' ran longer than its time limit" in said
    assert "huge failed: it never fits here: it asks for 5 cpu, and no machine has more than 4; 2048 mem" in " ".join(
        said.split()
    )
    assert "nowhere failed: it never fits here" in said
    assert "gang.1 failed: another task of its gang failed" in said


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1: job: no [[job]] in the file"),
        ("x = [", "(at end of document)"),
        ("[[job]]\nname = 'a'\ncommand = b\n", "(at line 3, column 11)"),
        ("machine = 3\n[[job]]\nname = 'a'\ncommand = 'b'\n", "line 1, column 1: machine: must be a mapping"),
        ("[machine]\ncpu = -1\n[[job]]\nname='a'\ncommand='b'\n", "line 1, column 1: machine: cpu: finite numbers"),
        (
            "[machine]\nfpga = 1\n[[job]]\nname = 'a'\ncommand = 'b'\n",
            "line 1, column 1: machine: unknown resource 'fpga'; known: cpu, mem, gpu",
        ),
        (
            "colour = 'red'\n[[job]]\nname = 'a'\ncommand = 'b'\n",
            "line 1, column 1: colour: unknown; known: job, machine",
        ),
        ("[job]\nname = 'a'\n", "line 1, column 1: job: tables [[job]] expected"),
        ("[[job]]\ncommand = 'a'\n", "line 1, column 1: job 1: name: is missing"),
        ("[[job]]\nname = 'a'\n", "line 1, column 1: job 'a': command: is missing"),
        ("[[job]]\nname = 'a/b'\ncommand = 'a'", "line 2, column 1: job 'a/b': name: letters, digits"),
        ("[[job]]\nname = 'a'\ncommand = []", "line 3, column 1: job 'a': command: a line for the shell, or a list"),
        (
            "[[job]]\nname = 'a'\ncommand = 'x'\n[[job]]\nname = 'b'\ncommand='y'\ncount = 0",
            "line 7, column 1: job 'b': count: must be",
        ),
        (
            "[[job]]\nname = 'a'\ncommand = 'x'\ncounts = 2",
            "line 4, column 1: job 'a': counts: unknown; known: after, array, at_most, command, constraints",
        ),
        (
            "[[job]]\nname = 'a'\ncommand = 'x'\ndemand = {cpus = 2}",
            "line 4, column 1: job 'a': demand: unknown resource 'cpus'",
        ),
        (
            "[[job]]\nname = 'a'\ncommand = 'x'\ndemand = {cpu = 'two'}",
            "line 4, column 1: job 'a': demand: cpu: numbers",
        ),
        (
            "[[job]]\nname = 'a'\ncommand = 'x'\ntime_limit = 0",
            "line 4, column 1: job 'a': time_limit: a positive number of seconds",
        ),
        (
            "[[job]]\nname = 'a'\ncommand = 'x'\ntime_limit = 'soon'",
            "line 4, column 1: job 'a': time_limit: a number of seconds, or a time span such as 90s, 15m or 1:30:00, expected",
        ),
        (
            "[[job]]\nname = 'a'\ncommand = 'x'\ndemand = {mem = '2 apples'}",
            "line 4, column 1: job 'a': demand: mem: a number of MiB, or an amount such as 2G, expected, got '2 apples'",
        ),
        (
            "[[job]]\nname = 'a'\ncommand = 'x'\npriority = 1.5",
            "line 4, column 1: job 'a': priority: must be a whole number",
        ),
        (
            "[[job]]\nname = 'a'\ncommand = 'x'\ngang = 2",
            "line 4, column 1: job 'a': gang: must be a whole number from 1 to 1, got 2",
        ),
        (
            "[[job]]\nname = 'a'\ncommand = 'x'\nretries = true",
            "line 4, column 1: job 'a': retries: must be a whole number",
        ),
        (
            "[[job]]\nname = 'a'\ncommand = 'x'\nenvironment = {A = 1}",
            "line 4, column 1: job 'a': environment: texts by name",
        ),
        ("[[job]]\nname = 'a'\ncommand = 'x'\n\n[[job]]\ncommand = 'x'\nname = 'a'", "'a' is the name of another job"),
    ],
)
def test_mistakes_are_one_line(jobs: Path, text: str, message: str) -> None:
    jobs.write_text(text)
    result = invoke("run", jobs)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"Error: {jobs}") and message in line, line
    assert not Path("jobs.out").exists()


def test_all_mistakes_are_named_at_once_in_the_order_of_the_file(jobs: Path) -> None:
    jobs.write_text(
        "[[job]]\nretries = -1\nname = 'a'\n\n[[job]]\nname = 3\ncommand = 'x'\n  colour = 1\n[machine]\ncpu = '2'"
    )
    said = invoke("run", jobs).stderr.removeprefix("Error: ").splitlines()
    places = ["line 1, column 1", "line 2, column 1", "line 6, column 1", "line 8, column 3", "line 9, column 1"]
    assert [line.removeprefix(f"{jobs}, ").partition(":")[0] for line in said] == places


def test_other_mistakes(jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert invoke("run", "none.toml").exit_code == 74
    jobs.write_text(GOOD)
    wrong = (
        "moon",
        "moon://here:1",
        "dask://",
        "dask",
        "local://here",
        "ssh:",
        "ssh",
        "kubernetes",
        "slurm:here",
        "dask:here",
    )
    for place in wrong:
        assert "--on: one of local, dask://HOST:PORT, ray" in invoke("run", jobs, "--on", place).stderr
    what = "hosts: HOST, USER@HOST" if find_spec("asyncssh") else "pip install 'flowsched[ssh]'"
    assert what in invoke("run", jobs, "--on", "ssh:a,,b").stderr
    monkeypatch.setattr("flowsched.cli.run.find_spec", lambda name: None)
    for extra, place in (("dask", "dask://here:1"), ("ssh", "ssh:here"), ("kubernetes", "kubernetes:busybox")):
        assert f"pip install 'flowsched[{extra}]'" in invoke("run", jobs, "--on", place).stderr
    assert invoke("run", jobs, "--policy", "best").exit_code == 2
    result = invoke("run", jobs, "--cgroup", ".")
    assert result.exit_code == 2 and "cgroup: a control group of version 2 expected" in result.stderr
    assert "--cgroup: of this machine" in invoke("run", jobs, "--on", "slurm", "--cgroup", ".").stderr
    assert invoke("run", jobs, "--state", "s", "--quiet").exit_code == 0
    jobs.write_text(GOOD + "\n")
    result = invoke("run", jobs, "--state", "s")
    assert result.exit_code == 2 and "this is the state of another file" in result.stderr


LONG = """
[machine]
cpu = 2
[[job]]
name = "long"
command = "trap : TERM; echo $$ >> pids; while :; do sleep 1000; done"
count = 3
"""


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.long)]
)
def test_a_signal_stops_all_processes_and_is_told(jobs: Path, number: int, status: int) -> None:
    jobs.write_text(LONG)
    process = started("run", jobs)
    pids = [int(pid) for pid in wait(jobs.parent / "pids", 2)]
    process.send_signal(number)
    time.sleep(0.3)
    process.send_signal(number)  # do not wait for those that do not heed SIGTERM
    code, out, err = ended(process)
    assert code == status
    calm(err)
    assert "Interrupted: 2 running tasks were stopped." in err
    assert rows(out)["long"][:4] == ["3", "0", "0", "0"]
    assert not any(map(alive, pids))


STATE = """
[machine]
cpu = 3
[[job]]
name = "t"
command = "echo $FLOWSCHED_TASK >> begun; sleep 0.3; echo $FLOWSCHED_TASK >> done; exit $((FLOWSCHED_INDEX == 4))"
count = 18
[[job]]
name = "last"
command = "true"
priority = 1
"""


@pytest.mark.long
def test_after_a_kill_the_same_command_goes_on(jobs: Path) -> None:
    jobs.write_text(STATE)
    for lines in (2, 8, 14):
        process = started("run", jobs, "--state", "s")
        wait(jobs.parent / "done", lines)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    code, out, err = ended(started("run", jobs, "--state", "s"))
    assert code == 1, err
    calm(err)
    assert {job: row[:3] for job, row in rows(out).items() if job != "job"} == {
        "t": ["18", "17", "1"],
        "last": ["1", "1", "0"],
    }
    names = sorted(f"t.{i}" for i in range(18))
    assert sorted(Path("begun").read_text().split()) == names
    assert sorted(Path("done").read_text().split()) == names
    records = Records("s")
    assert records.ends().keys() == {*names, "last"}
    attempts = records.account("attempt")
    assert {row["task"]: row["outcome"] for row in attempts} == {
        **dict.fromkeys(names, "done"),
        "last": "done",
        "t.4": "failed",
    }
    assert len(attempts) == 19 and all(row["end"] - row["start"] >= 0.3 for row in attempts if row["task"] != "last")
    records.close()
    assert not list(Path("s/runs").iterdir())
    assert ended(started("run", jobs, "--state", "s"))[0] == 1, "all has ended"
    assert len(Path("begun").read_text().split()) == 18


@pytest.mark.long
def test_ctrl_c_keeps_the_state(jobs: Path) -> None:
    jobs.write_text(STATE)
    process = started("run", jobs, "--state", "s")
    wait(jobs.parent / "done", 5)
    process.send_signal(signal.SIGINT)
    assert ended(process)[0] == 130
    code, out, _ = ended(started("run", jobs, "--state", "s"))
    assert code == 1 and rows(out)["t"][:3] == ["18", "17", "1"]
    done = Path("done").read_text().split()
    assert len(set(done)) == 18
    assert len(done) <= 18 + 3, "what was stopped just before its end runs again: at most one task a core"


CLUSTER = """
import sys
from distributed import LocalCluster

with LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None, silence_logs=50) as cluster:
    print(cluster.scheduler_address, flush=True)
    sys.stdin.read()
"""


@pytest.mark.long
def test_on_a_dask_cluster(jobs: Path) -> None:
    pytest.importorskip("distributed")
    jobs.write_text(GOOD.replace('directory = "sub"', "").replace("pwd", "exit 7"))
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        CLUSTER.replace("processes=False", 'processes=False, protocol="tcp"'),
    ]
    streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **streams) as cluster:
        try:
            assert cluster.stdout is not None
            address = cluster.stdout.readline().strip().replace("tcp://", "dask://")
            code, out, err = ended(started("run", jobs, "--on", address, preexec_fn=None))
        finally:
            cluster.kill()
    assert code == 1, err
    assert rows(out)["a"][:3] == ["3", "3", "0"] and rows(out)["b"][:3] == ["1", "0", "1"]
    assert "b failed: exit status 7" in err
    assert Path("jobs.out/a.2.log").read_text() == "a.2 2 y z\nodd\n"


def test_tasks_that_failed_run_again_when_that_is_asked(jobs: Path) -> None:
    """Those that ended well do not, but for the others of a gang."""
    jobs.write_text(
        '[[job]]\nname = "t"\ncount = 3\ncommand = "echo $FLOWSCHED_TASK >> begun; test $FLOWSCHED_INDEX = 1 || test -e ok"\n'
        '[[job]]\nname = "g"\ncount = 2\ngang = 2\ncommand = "echo $FLOWSCHED_TASK >> begun; test $FLOWSCHED_INDEX = 1 && exec sleep 0.5; until test $(grep -c g.1 begun) -ge $(grep -c g.0 begun); do sleep 0.01; done; test -e ok"\n'
        "[machine]\ncpu = 4\n"
    )
    assert invoke("run", jobs, "--retry-failed").exit_code == 2
    assert invoke("run", jobs, "--state", "s", "--retry-failed").exit_code == 1
    for _ in range(2):
        assert invoke("run", jobs, "--state", "s").exit_code == 1
    first = sorted(Path("begun").read_text().split())
    assert first == ["g.0", "g.1", "t.0", "t.1", "t.2"]
    assert invoke("run", jobs, "--state", "s", "--retry-failed").exit_code == 1
    again = Path("begun").read_text().split()[5:]
    assert sorted(again) == ["g.0", "g.1", "t.0", "t.2"]
    Path("ok").touch()
    result = invoke("run", jobs, "--state", "s", "--retry-failed")
    assert result.exit_code == 0
    assert [row[:3] for row in rows(result.stdout).values()][1:] == [["3", "3", "0"], ["2", "2", "0"]]
    assert len(Path("begun").read_text().split()) == 13
    assert invoke("run", jobs, "--state", "s", "--retry-failed").exit_code == 0
    assert len(Path("begun").read_text().split()) == 13


def test_what_can_never_run_fails_and_the_rest_runs(jobs: Path) -> None:
    jobs.write_text(
        '[machine]\ncpu = 4\n[[job]]\nname = "g"\ncommand = "true"\ncount = 6\ngang = 6\n'
        '[[job]]\nname = "h"\ncommand = "true"\ndemand = {cpu = 5}\n[[job]]\nname = "ok"\ncommand = "true"\ncount = 9\n'
    )
    result = invoke("run", jobs)
    assert result.exit_code == 1
    assert [row[:3] for row in rows(result.stdout).values()][1:] == [["6", "0", "6"], ["1", "0", "1"], ["9", "9", "0"]]
    assert result.stderr.count("its gang of 6 never fits here: 4 at once are the most") == 6
    assert (
        "h failed: it never fits here: it asks for" in result.stderr
        and "cpu, and no machine has more than 4" in result.stderr
    )


def test_a_state_of_an_earlier_release_is_refused_and_can_be_imported(jobs: Path) -> None:
    """Its jobs would run again."""
    jobs.write_text(GOOD)
    assert invoke("run", jobs, "--state", "s", "--quiet").exit_code == 0
    Path("s/state.db").rename("kept.db")
    Path("s/journal").write_bytes(released(records("kept.db")))
    result = invoke("run", jobs, "--state", "s")
    assert result.exit_code == 2 and "first `flowsched journal import " in result.stderr
    assert invoke("journal", "import", "s/journal", "s/state.db").exit_code == 0
    assert invoke("run", jobs, "--state", "s").exit_code == 0
    assert fs.replay("s/state.db").placed == fs.replay("kept.db").placed > 0, "nothing ran again"


LEARN = """
[machine]
cpu = 1
mem = 500
[[job]]
name = "nap"
command = "sleep 0.7; [ $FLOWSCHED_INDEX -lt 3 ] || until test -e go; do sleep 0.1; done; echo $FLOWSCHED_TASK >> done"
count = 9
demand = {cpu = 1, mem = 50}
[[job]]
name = "other"
command = "true"
kind = "nothing"
"""


def test_learned_needs_are_shown_and_kept(jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a kill the state knows what was learnt, and goes on to learn."""
    pytest.importorskip("psutil")
    monkeypatch.setenv("XDG_STATE_HOME", str(jobs.parent))
    jobs.write_text(LEARN)
    process = started("run", jobs, "--state", "s", "--learn")
    wait(jobs.parent / "done", 3)
    for _ in range(200):
        (row,) = [line for line in invoke("ps", "--state", "s").stdout.splitlines() if line.startswith("nap.8")]
        if "cpu 0" in row and "(3 runs)" in row and " 0:01 " in row:  # each was sampled
            break
        time.sleep(0.02)
    else:
        process.kill()
        process.communicate()
        pytest.fail(row)
    process.kill()
    process.wait()  # its tasks go on, and have its streams
    for stream in (process.stdout, process.stderr):
        assert stream is not None
        stream.close()
    assert "it began with --learn" in invoke("run", jobs, "--state", "s").stderr
    process = started("run", jobs, "--state", "s", "--learn")
    while invoke("ps", "--state", "s").exit_code:  # until it has taken the runs over
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    Path("go").touch()
    code, out, err = ended(process)
    assert code == 0, err
    calm(err)
    assert sorted(Path("done").read_text().split()) == [f"nap.{i}" for i in range(9)]
    assert "The limit of compression is 10%" not in err  # the state has its own
    table = rows(out)
    known = re.search(r"cpu 0.*\((\d) runs\)", " ".join(table["nap"]))
    assert known is not None and int(known[1]) > 3, "those that ran on count, too"
    assert "demand (1 of 3 runs)" in " ".join(table["other"])


def test_mistakes_with_learn(jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs.write_text(GOOD)
    assert "--learn: tasks are measured on this machine" in invoke("run", jobs, "--learn", "--on", "slurm").stderr
    assert "--learn: nothing runs with --dry-run" in invoke("run", jobs, "--learn", "--dry-run").stderr
    assert invoke("run", jobs, "--state", "s", "--quiet").exit_code == 0
    result = invoke("run", jobs, "--state", "s", "--learn")
    assert result.exit_code == 2 and "began without it" in result.stderr
    monkeypatch.setattr("flowsched.run.learn.find_spec", lambda name: None)
    assert "--learn: it needs psutil: pip install 'flowsched[real]'" in invoke("run", jobs, "--learn").stderr
