"""``flowsched trace``, and ``flowsched simulate`` of any trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from flowsched import cli
from flowsched.sim import TRACE_FORMATS, load_trace

SAMPLES = Path(__file__).parents[1] / "data" / "traces"


def run(*args: object) -> Result:
    result = CliRunner().invoke(cli.application(), [*map(str, args)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_info_says_what_is_in_a_trace() -> None:
    result = run("trace", "info", SAMPLES / "jobs.swf")
    assert result.exit_code == 0
    rows = {line.split("  ")[0].strip(): line for line in result.stdout.splitlines() if line.strip()}
    assert "jobs.swf: SWF (Parallel Workloads Archive)" in result.stdout
    assert "Note: 1 jobs have no run time; they are left out." in result.stdout
    assert rows["tasks"].split()[1] == "20"
    assert rows["gangs"].split("gangs")[1].strip() == "4; the largest has 10 tasks"
    assert "30.5 s" in rows["run time"]
    assert "2 machines  3 processors" in result.stdout


def test_info_of_a_trace_without_machines() -> None:
    result = run("trace", "info", SAMPLES / "azure_2023.csv")
    assert "none in the trace; give --machines" in result.stdout
    result = run("trace", "info", SAMPLES / "azure_2023.csv", "--machines", "3xrequest=8", "--limit", 1)
    assert "3 machines" in result.stdout
    assert "model of openb: the bundled model" in run("trace", "info", "model", "--limit", 10).stdout


def test_convert_and_simulate_print_the_same(tmp_path: Path) -> None:
    out = tmp_path / "jobs.csv"
    result = run("trace", "convert", SAMPLES / "jobs.swf", out)
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"{out}: 20 tasks, 4 machines" in result.stderr
    figures = []
    for trace in (SAMPLES / "jobs.swf", out):
        assert run("simulate", trace, "--json", tmp_path / "m.json", "--quiet").exit_code == 0
        made = json.loads((tmp_path / "m.json").read_text())
        del made["wall_clock"], made["facts"]["source"]
        made["facts"].pop("unix_start", None)
        figures.append(made)
    assert figures[0] == figures[1]


def test_formats_lists_them_all() -> None:
    found = {line.split()[0] for line in run("trace", "formats").stdout.splitlines() if line}
    assert set(TRACE_FORMATS) <= found


@pytest.mark.parametrize("command", ["info", "convert"])
def test_a_malformed_trace_is_one_line(command: str, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("task,arrival,duration,cpu\na,0,soon,1\n")
    result = run("trace", command, path, *([tmp_path / "y.csv"] if command == "convert" else []))
    assert result.exit_code == 2
    assert (
        result.stderr
        == f"Error: {path}, line 2, column 'duration': a number of seconds, or a time span such as 90s, 15m or 1:30:00, expected, got 'soon'\n"
    )
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["info", "nowhere"], "Error: nowhere: no such file or directory"),
        (["info", "{t}/jobs.swf", "--format", "x"], "Error: format: unknown name 'x'; known: openb"),
        (["info", "{t}/jobs.swf", "--machines", "2xgpu=1"], "Error: machine 'm0': unknown resource 'gpu'"),
        (["convert", "{t}/jobs.swf", "{t}/jobs.swf"], "OUT and FILE are the same file"),
        (["convert", "{t}/jobs.swf", "x.txt"], "Error: x.txt: the name must end with .csv"),
        (["convert", "{t}/jobs.swf", "/no/such/x.csv"], "no such directory"),
    ],
)
def test_bad_input_of_trace(args: list[str], says: str) -> None:
    result = run("trace", *(arg.format(t=SAMPLES) for arg in args))
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["{t}/jobs.swf", "--trace", "{t}/jobs.swf"], "FILE and --trace are the same"),
        (["--machines", "2xcpu=4"], "--machines concerns a trace, and none is given"),
        (["{t}/azure_2023.csv"], "the trace has no machines; give them, such as --machines 32xrequest=4"),
        (["{t}/jobs.swf", "--json", "{t}/jobs.swf"], "same file"),
    ],
)
def test_bad_input_of_simulate(args: list[str], says: str) -> None:
    result = run("simulate", *(arg.format(t=SAMPLES) for arg in args))
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr


@pytest.mark.parametrize(
    "args",
    [
        ["jobs.swf"], ["jobs.swf", "--variant", "pool"], ["jobs.csv"], ["jobs.jsonl"], ["google2019"], ["philly"], ["pai"],
        ["gavel/nine.trace", "--machines", "1xgpu=4"], ["azure_2024.csv", "--machines", "1xrequest=1"],
        ["openb", "--variant", "multigpu50", "--until", "1h"],
    ],
)  # fmt: skip
def test_simulate_takes_every_format(args: list[str]) -> None:
    result = run("simulate", SAMPLES / args[0], *args[1:])
    assert result.exit_code == 0
    trace = load_trace(
        SAMPLES / args[0],
        variant=args[args.index("--variant") + 1] if "--variant" in args else None,
        machines=args[args.index("--machines") + 1] if "--machines" in args else None,
    )
    assert f"{len(trace.machines):,} machines, {trace.n_tasks:,} tasks" in result.stdout


def test_waits_tell_of_tasks_that_never_started(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("arrival,duration,cpu\n0,inf,4\n0,1,4\n3600,1,8\n")
    result = run("simulate", path, "--machines", "1xcpu=4", "--until", "2h")
    rows = {line.split("  ")[0]: line.split("  ", 1)[1].split() for line in result.stdout.splitlines() if "  " in line}
    assert rows["1 tasks that started"] == ["0", "s"] * 5
    assert rows["2 that never started, until the end"][:2] == ["30", "min"]
    assert rows["all 3 (Kaplan-Meier)"] == [*[">", "60", "min"] * 4, ">=", "20", "min"]
