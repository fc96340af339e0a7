"""The command ``flowsched solve``: what it prints, where, and its exit status."""

from __future__ import annotations

import gzip

import pytest
from click.testing import CliRunner
from netmodel import ALGORITHMS
from test_dimacs import SAMPLE

from flowsched.cli_solve import solve


@pytest.fixture
def run(tmp_path):
    """Run the command on a text; return its result."""

    def run(text: str, *options: str, name: str = "problem.min", **kwargs):
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return CliRunner().invoke(solve, [str(path), *options], **kwargs)

    return run


def parse(output: str) -> tuple[int, dict[tuple[int, int], int]]:
    """Return the cost and the flows of a DIMACS solution."""
    records = [line.split() for line in output.splitlines()]
    assert {record[0] for record in records} <= {"c", "s", "f"}
    [cost] = [int(record[1]) for record in records if record[0] == "s"]
    return cost, {(int(r[1]), int(r[2])): int(r[3]) for r in records if r[0] == "f"}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("name", ["problem.min", "problem.min.gz"])
def test_solution(run, name, algorithm):
    result = run(SAMPLE, "--algorithm", algorithm, "--certify", name=name)
    assert result.exit_code == 0, result.output
    assert parse(result.stdout) == (10, {(1, 2): 2, (1, 3): 2, (2, 3): 2, (3, 4): 4})
    assert "c certified" in result.stdout
    assert result.stderr == ""


def test_output_file(run, tmp_path):
    target = tmp_path / "solution"
    result = run(SAMPLE, "-o", str(target))
    assert (result.exit_code, result.output) == (0, "")
    assert parse(target.read_text())[0] == 10


def test_standard_input():
    result = CliRunner().invoke(solve, ["-"], input=SAMPLE)
    assert result.exit_code == 0
    assert parse(result.stdout)[0] == 10


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        pytest.param(SAMPLE.replace("n 4 -4", "n 4 x"), 1, ["line 5", "'x'"], id="malformed"),
        pytest.param(SAMPLE.replace("4 2\n", f"4 {2**63 - 1}\n"), 1, ["cost"], id="cost range"),
        pytest.param(SAMPLE.replace("a 1 2 0 4 2", "a 1 2 0 1 2"), 3, ["nodes 1"], id="infeasible"),
        pytest.param(SAMPLE.replace("n 4 -4", "n 4 -5"), 3, [], id="more is taken than sent"),
        pytest.param(
            f"p min 2 2\na 1 2 0 {2**62} -3\na 2 1 0 {2**62} 2\n", 4, ["arcs 1 2"], id="unbounded"
        ),
    ],
)  # fmt: skip
def test_failures_are_one_line_and_a_status(run, text, status, words):
    result = run(text)
    assert result.exit_code == status
    assert result.stdout == ""
    [line] = result.stderr.splitlines()
    assert line.startswith("flowsched solve: ")
    assert "problem.min" in line
    for word in words:
        assert word in line


@pytest.mark.parametrize(
    "arguments",
    [["absent.min"], [], ["-", "--algorithm", "fastest"], ["-", "--time-limit", "0"]],
    ids=["no such file", "no file", "unknown algorithm", "no time"],
)
def test_wrong_command_lines(arguments):
    result = CliRunner().invoke(solve, arguments, input=SAMPLE)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Usage" in result.stderr


def test_a_failed_solve_writes_no_file(run, tmp_path):
    target = tmp_path / "solution"
    assert run(SAMPLE.replace("p min", "p max"), "-o", str(target)).exit_code == 1
    assert not target.exists()
