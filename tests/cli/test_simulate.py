"""``flowsched simulate``: what it prints and writes, and how it ends."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import flowsched
from flowsched import cli
from flowsched.cli import simulate as cli_simulate
from flowsched.sim import AuditError

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,32000,262144,0,\nn1,64000,1000,2,P100\n"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    "p0,12000,10,1,1000,,LS,Running,0,100,10\n"
    "p1,6000,10,1,460,T4,BE,Running,5,50,5\n"
    "p2,500,10,0,0,,Burstable,Pending,20,25,\n"
    "p3,500,10,8,1000,,Guaranteed,Running,30,31,30\n"
)
MODEL = ("model", "--scale", "0.02", "--limit", "80")

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    def invoke(*args: object) -> Result:
        result = CliRunner().invoke(cli.application(), ["simulate", *map(str, args)])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    return invoke


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    (tmp_path / "openb_node_list_all_node.csv").write_text(NODES)
    (tmp_path / "openb_pod_list_default.csv").write_text(PODS)
    (tmp_path / "openb_pod_list_two.csv").write_text("".join(PODS.splitlines(keepends=True)[:3]))
    return tmp_path


def test_the_bundled_model(run: Run) -> None:
    result = run(*MODEL)
    assert result.exit_code == 0
    for text in (
        "Simulation of model of openb",
        "30 machines, 80 tasks, policy spread",
        "placed",
        "asked for",
        "p99",
        "solve time",
    ):
        assert text in result.stdout
    assert "100%" in result.stderr
    assert " 50%" in result.stderr


def test_without_a_trace_it_shows_what_a_scheduler_does(run: Run, tmp_path: Path) -> None:
    result = run("--limit", 120, "--scale", "0.5", "--json", tmp_path / "m.json")
    assert "Three users share 8 machines with 8 GPUs each." in " ".join(result.stdout.split())
    assert max(map(len, result.stdout.splitlines())) <= 80
    rows = {line.split()[0]: line.split() for line in result.stdout.splitlines() if line}
    assert {"product", "research", "students"} <= {*rows} and len(rows["product"]) == len(rows["research"])
    assert "rack 1 goes down, m04 to m07" in result.stdout and "rack 1 is back" in result.stdout
    for other in (
        ("--until", "60"),
        ("--interval", "60s"),
        ("--hold",),
        ("--limit", 1),
    ):  # its sentences would be false
        assert "Simulation of demo" in run("--limit", 60, "--scale", "0.5", *other).stdout
    full = run("--limit", 120, "--scale", "0.5", "--verbose").stdout
    assert "Simulation of demo\n8 machines, " in full and "policy shares" in full and "\nresearch " in full
    metrics = json.loads((tmp_path / "m.json").read_text())
    assert metrics["counts"]["machine_failures"] == 4 and metrics["counts"]["preemptions"] > 0
    assert metrics["tasks"]["completed"] == metrics["facts"]["tasks"]


def test_which_goal_overrides_which_is_a_table(run: Run) -> None:
    result = run("model", "--goals", "--scale", "0.05", "--limit", "200", "--policy", "pack")
    assert result.exit_code == 0
    cells = {cell.strip() for line in result.stdout.splitlines() for cell in line.split("  ")}
    assert {
        "priority",
        "age",
        "LoadCost('pack')",
        "DeviceCost",
        "always",
        "no",
        "for up to 3 tasks moved for one",
    } <= cells


def test_a_trace_with_its_reasons(run: Run, trace: Path) -> None:
    result = run("--trace", trace)
    assert result.exit_code == 0
    assert "1 pods were never scheduled in the original cluster" in result.stdout
    rows = {line.split("  ")[0]: line for line in result.stdout.splitlines() if line}
    assert rows["completed"].split()[1] == "2"
    assert rows["never fits"].split()[2] == "2"
    assert "FILTERED" in result.stdout
    assert "NEVER_FITS" in result.stdout


def test_options_reach_the_simulation(run: Run, trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    result = run(
        *(
            "--trace",
            trace,
            "--variant",
            "two",
            "--policy",
            "pack",
            "--interval",
            "2m",
            "--compress",
            "2",
            "--until",
            "1h",
        ),
        *(
            "--seed",
            "7",
            "--preempted",
            "resume",
            "--limit",
            "1",
            "--hold",
            "--charge-solver",
            "--json",
            out,
            "--quiet",
        ),
    )
    assert (result.exit_code, result.output) == (0, "")
    facts = json.loads(out.read_text())["facts"]
    expected = {
        "workload": "openb (two)", "tasks": 1, "policy": "pack", "interval": 120, "on_events": False, "compress": 2,
        "end": 0, "seed": 7, "preempted": "resume", "hold": True, "charge_solver": True,
    }  # fmt: skip
    assert {k: round(facts[k]) if k == "end" else facts[k] for k in expected} == expected


def test_the_same_seed_writes_the_same_figures(run: Run, tmp_path: Path) -> None:
    figures: list[dict[str, Any]] = []
    for seed in (3, 3, 4):
        assert run(*MODEL, "--seed", seed, "--json", tmp_path / "m.json", "--quiet").exit_code == 0
        figures.append(json.loads((tmp_path / "m.json").read_text()))
        del figures[-1]["wall_clock"]
    assert figures[0] == figures[1] != figures[2]


def test_a_row_per_task(run: Run, tmp_path: Path) -> None:
    """One machine: a runs, b preempts it, a runs again elsewhere in time; c is larger than the machine."""
    (tmp_path / "x.csv").write_text(
        "task,job,arrival,duration,cpu,gpu,priority\na,j,0,100,4,0,5\nb,,10,20,4,2,0\nc,,15,1,9,0,5\n"
    )
    out = tmp_path / "tasks.csv"
    assert run(tmp_path / "x.csv", "--machines", "1xcpu=4,gpu=2", "--tasks", out, "--quiet").exit_code == 0
    with open(out, newline="") as file:
        a, b, c = csv.DictReader(file)
    assert a == {
        "task": "a", "job": "j", "arrival": "0.0", "starts": "2", "first_start": "0.0", "last_start": "30.0",
        "machine": "m0", "devices": "", "end": "130.0", "preempted": "1", "state": "completed",
        "user": "", "duration": "100.0", "waited": "20.0", "lost": "10.0",
        "reading": "0.0", "read_machine": "0.0", "read_rack": "0.0", "read_elsewhere": "0.0",
    }  # fmt: skip
    assert (b["first_start"], b["machine"], b["devices"], b["end"], b["preempted"]) == (
        "10.0",
        "m0",
        "0|1",
        "30.0",
        "0",
    )
    assert (c["starts"], c["first_start"], c["machine"], c["end"], c["state"]) == ("0", "", "", "", "waiting")


def test_a_row_per_task_as_parquet(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "x.csv").write_text(
        "task,arrival,duration,cpu,gpu,priority,user\na,0,100,4,1,5,ann\nb,10,20,4,2,0,\nc,15,1,9,0,5,\n"
    )
    arguments = tmp_path / "x.csv", "--machines", "1xcpu=4,gpu=2", "--tasks", tmp_path / "t.parquet", "--quiet"
    assert run(*arguments).exit_code == 0
    table = parquet.read_table(tmp_path / "t.parquet").to_pydict()
    assert table["task"] == ["a", "b", "c"] and table["end"] == [130.0, 30.0, None]
    assert table["user"] == ["ann", None, None]
    assert table["devices"] == [[0], [0, 1], None] and table["waited"] == [20.0, 0.0, 115.0]
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    refused = run(*arguments)
    assert refused.exit_code == 2 and "--tasks: a Parquet file needs PyArrow: pip install pyarrow" in refused.stderr


def test_another_scheduler(run: Run, tmp_path: Path) -> None:
    result = run("batch", "--limit", 60, "--scheduler", "easy")
    assert result.exit_code == 0
    assert "scheduler easy" in result.stdout and "policy" not in result.stdout
    told = [
        run("poisson", "--limit", 400, "--load", 3, "--scale", 0.05, "--scheduler", "sjf", *more).stdout
        for more in ((), ("--estimates", 1))
    ]
    waits = [next(line for line in out.splitlines() if "that started" in line) for out in told]
    assert waits[0] != waits[1], "without estimates, SJF is first fit"
    for arguments, words in (
        (("--scheduler", "esy"), "unknown name 'esy'; known: flowsched, fifo, easy"),
        (("--scheduler", "easy", "--journal", tmp_path / "j"), "--journal is of flowsched's own scheduler"),
        (("--scheduler", "no_such_module:x"), "No module named"),
    ):
        refused = run("batch", "--limit", 60, *arguments)
        assert refused.exit_code == 2 and words in refused.stderr


@pytest.mark.long
def test_network(run: Run, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("task,arrival,duration,cpu,data.m1\na,0,5,3,100\nb,0,5,3,100\n")
    arguments = tmp_path / "x.csv", "--machines", "2xcpu=4", "--scheduler", "first-fit"
    result = run(*arguments, "--network", "machine=10", "--tasks", tmp_path / "t.csv")
    assert "links of machine=10" in result.stdout and "Input of tasks" in result.stdout
    with open(tmp_path / "t.csv", newline="") as file:
        a, b = csv.DictReader(file)
    assert (a["machine"], a["reading"], a["read_elsewhere"], a["end"]) == ("m0", "10.0", "100.0", "15.0")
    assert (b["machine"], b["reading"], b["read_machine"], b["end"]) == ("m1", "0.0", "100.0", "5.0")
    found = run(*arguments[:3], "--network", "machine=10", "--compare", "first-fit,flowsched:local")
    assert "reading" in found.stdout and found.exit_code == 0
    for wrong in ("10", "machine=0", "disk=10"):
        refused = run(*arguments, "--network", wrong)
        assert refused.exit_code == 2 and "etwork" in refused.stderr


def test_power(run: Run, tmp_path: Path) -> None:
    result = run(*MODEL, "--power", "machine=50,gpu=30:300", "--json", tmp_path / "m.json")
    assert "Energy, by machine=50,gpu=30:300" in result.stdout
    assert json.loads((tmp_path / "m.json").read_text())["energy_joules"]["total"] > 0
    for wrong, says in (("gpu=9", "NAME=IDLE:PEAK"), ("tpu=1:2", "unknown resource 'tpu'")):
        refused = run(*MODEL, "--power", wrong)
        assert refused.exit_code == 2
        assert says in refused.stderr


@pytest.mark.long
def test_schedulers_side_by_side(run: Run, tmp_path: Path) -> None:
    out = ("--json", tmp_path / "c.json", "--csv", tmp_path / "c.csv", "--report", tmp_path / "c.html")
    result = run("batch", "--limit", 60, "--compare", "fifo, easy", "--seeds", 2, "--seed", 5, *out)
    assert result.exit_code == 0, result.stderr
    assert "Comparison, means of 2 seeds" in result.stdout and "minus fifo: mean" in result.stdout
    assert "4/4" in result.stderr
    told = json.loads((tmp_path / "c.json").read_text())
    assert [(r["scheduler"], r["seed"]) for r in told["runs"]] == [("fifo", 5), ("easy", 5), ("fifo", 6), ("easy", 6)]
    assert len((tmp_path / "c.csv").read_text().splitlines()) == 5
    assert "Comparison on batch" in (tmp_path / "c.html").read_text()


def test_what_a_comparison_refuses(run: Run, tmp_path: Path) -> None:
    for arguments, words in (
        (("--compare", "fifo,nothing"), "unknown name 'nothing'"),
        (("--compare", "fifo", "--tasks", tmp_path / "t"), "--tasks is of one run"),
        (("--compare", "fifo", "--scheduler", "easy"), "--scheduler is of one run"),
        (("--seeds", "2"), "--seeds, --csv, --on and --record are for --compare"),
        (("--record", "runs.jsonl"), "--seeds, --csv, --on and --record are for --compare"),
        (("--skip-bad",), "--skip-bad concerns a trace"),
        (("--tasks", tmp_path / "t.parquett"), ".parquet, .pq or .csv expected at the end, got .parquett"),
        (("--compare", "fifo", "--csv", tmp_path / "x", "--json", tmp_path / "x"), "the same file"),
    ):
        refused = run("batch", "--limit", 60, *arguments)
        assert refused.exit_code == 2 and words in refused.stderr, refused.stderr
    trace = tmp_path / "x.csv"
    trace.write_text("task,arrival,duration,cpu\na,0,5,1\n")
    assert (
        "recorded arrivals are the same"
        in run(trace, "--machines", "1xcpu=1", "--compare", "fifo", "--seeds", 2).stdout
    )


@pytest.mark.long
def test_ctrl_c_gives_the_runs_that_were_done(tmp_path: Path) -> None:
    """The second scheduler never ends; its process goes with the command."""
    (tmp_path / "endless.py").write_text(
        "import pathlib, os, time\n"
        "def make(workload, seed):\n"
        "    if __import__('multiprocessing').parent_process() is None:\n"
        "        import flowsched as fs\n"
        "        return fs.Scheduler(resources=workload.resources)\n"
        "    pathlib.Path('pid').write_text(str(os.getpid()))\n"
        "    while True:\n"
        "        time.sleep(1)\n"
    )
    command = [
        sys.executable, "-m", "flowsched", "simulate", "poisson", "--limit", "20", "--compare", "fifo,endless:make",
        "--json", "c.json",
    ]  # fmt: skip
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    assert process.stderr is not None
    line = process.stderr.readline()
    assert line.startswith("1/2  fifo")
    while not (tmp_path / "pid").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, words = process.communicate(timeout=60)
    assert (
        process.returncode == 130 and "Interrupted: 1 of 2 runs are done." in words and "Comparison on poisson" in out
    )
    assert len(json.loads((tmp_path / "c.json").read_text())["runs"]) == 1
    child = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_the_report_is_written(run: Run, tmp_path: Path) -> None:
    result = run(*MODEL, "--load", "1.2", "--report", tmp_path / "r.html")
    assert result.exit_code == 0
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    assert f"Report: {tmp_path / 'r.html'}" in result.stderr


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--trace", "nowhere"], "Error: nowhere: no such file or directory"),
        (["--trace", "{trace}", "--variant", "x"], "no variant 'x'; there are: default, two"),
        (["--trace", "{trace}", "--scale", "2"], "--scale is for the bundled model"),
        (["--variant", "x"], "--variant concerns a trace, and none is given"),
        (["--policy", "x"], "Error: policy: unknown name 'x'; known: spread, "),
        (["--compress", "0"], "Error: compress: a finite factor > 0 expected"),
        (["--interval", "0"], "Error: interval: "),
        (["--interval", "5x"], "'5x' is not a time span such as"),
        (["--until", "-1"], "'-1' is not a time span such as"),
        (["--load", "nan"], "Error: load must be"),
        (["--limit", "0"], "--limit"),
        (["--report", "/no/such/place/r.html"], "no such directory: /no/such/place"),
        (["--report", "{trace}"], "is a directory"),
    ],
)
def test_bad_input_ends_with_status_2_and_a_line(run: Run, trace: Path, args: list[str], says: str) -> None:
    result = run(*(arg.format(trace=trace) for arg in args))
    assert result.exit_code == 2
    assert says in result.stderr
    assert "Traceback" not in result.output
    assert result.stdout == ""


def test_a_missing_package_of_a_scheduler_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    refused = run("poisson", "--limit", 20, "--scheduler", "gavel")
    told = "Error: the scheduler gavel needs SciPy: pip install 'flowsched[gavel]'\n"
    assert (refused.exit_code, refused.stderr) == (2, told)


def test_machines_fail_by_a_table(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "outages.csv"
    path.write_text("time,machine,event,until\n20,m0,fail,40\n30,m1,drain,60\n")
    args = ("poisson", "--limit", 60, "--scale", "0.02", "--machine-events", path)
    assert re.search(r"machine failures +1\b", run(*args).stdout)
    path.write_text("time,machine,event\n20,m7,fail\n")
    assert run(*args).stderr == f"Error: {path}, line 2, column 'machine': machine 'm7' is not there at 20 s\n"


def test_a_mistake_in_the_trace_is_one_line(run: Run, trace: Path) -> None:
    path = trace / "openb_pod_list_default.csv"
    path.write_text(PODS.replace("6000", "lots"))
    result = run("--trace", trace)
    assert result.exit_code == 2
    assert result.stderr == f"Error: {path}, line 3, column 'cpu_milli': a whole number expected, got 'lots'\n"


def test_an_audit_ends_with_status_1(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise AuditError("at 3 s: machine 'm' is above capacity in cpu: 3 of 2")

    monkeypatch.setattr(cli_simulate.sim.Simulation, "run", broken)
    result = run(*MODEL)
    assert result.exit_code == 1
    assert "Error: at 3 s: machine 'm' is above capacity in cpu: 3 of 2" in result.stderr


def test_an_interrupt_ends_with_what_is_known(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupt(watcher: object, progress: Any) -> None:
        if progress.rounds == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(cli_simulate._Watcher, "__call__", interrupt)
    result = run(*MODEL, "--json", tmp_path / "m.json")
    assert result.exit_code == 130
    assert "what follows is partial" in result.stderr
    assert "not arrived by the end" in result.stdout
    account = json.loads((tmp_path / "m.json").read_text())["account"]
    assert sum(account.values()) == 80
    assert account["not_arrived"] > 0


def test_help_and_version() -> None:
    runner = CliRunner()
    top = runner.invoke(cli.application(), ["--help"])
    assert top.exit_code == 0
    assert {"simulate", "solve"} <= set(top.stdout.split())
    text = runner.invoke(cli.application(), ["simulate", "-h"]).stdout
    assert "Examples:" in text
    assert "Exit status:" in text
    assert runner.invoke(cli.application(), ["--version"]).stdout == f"flowsched, version {flowsched.__version__}\n"


def test_python_m_flowsched() -> None:
    done = subprocess.run([sys.executable, "-m", "flowsched", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"flowsched, version {flowsched.__version__}\n"


@pytest.mark.parametrize(
    "missing", ["click", *(pytest.param(name, marks=pytest.mark.long) for name in ("rich", "simpy"))]
)
def test_a_missing_extra_is_named(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from flowsched import cli; cli.main()"
    done = subprocess.run([sys.executable, "-c", code, "-h"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'flowsched[cli]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.long
def test_names_of_schedulers_are_not_cut(run: Run) -> None:
    names = ["flowsched:spread", "flowsched:spread-no-preemption"]
    result = run("poisson", "--limit", "20", "--scale", "0.02", "--compare", ",".join(names))
    assert [line.split()[0] for line in result.stdout.splitlines() if line.startswith("flowsched")] == names


@pytest.mark.parametrize(
    "columns", ["arrival=Submit Time,duration=Run Time", 'arrival="Submit Time",duration="Run Time"']
)
def test_columns_may_keep_the_quotes_that_the_shell_has_left(run: Run, columns: str, tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("Submit Time,Run Time,cpu\n0,60,1\n")
    done = run(path, "--columns", columns, "--machines", "1xcpu=4", "--quiet")
    assert done.exit_code == 0, done.stderr
