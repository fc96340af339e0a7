"""The command ``flowsched solve``: what it prints, where, and its exit status."""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner
from netmodel import ALGORITHMS
from networks import SAMPLE

from flowsched.cli.solve import solve
from flowsched.cli.solvers import Measured
from flowsched.exceptions import CostRangeError, TimeLimitError
from flowsched.network.dimacs_stream import IncrementalSession


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
        pytest.param(SAMPLE.replace("a 1 2 0 4 2", "a 1 2 0 1 2"), 3, ["node 1 must send 1 unit more than arcs 1 2 can carry"], id="infeasible"),
        pytest.param("p min 2 1\nn 1 5\nn 2 -5\na 1 2 0 4 1\n", 3, ["node 1 must send 1 unit more than arc 1 can carry"], id="too little capacity"),
        pytest.param("p min 2 0\nn 1 5\nn 2 -5\n", 3, ["node 1 must send 5 units, and no arc leads out"], id="no arc"),
        pytest.param(SAMPLE.replace("n 4 -4", "n 4 -5"), 3, ["sum to -1"], id="more is taken than sent"),
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
    [["absent.min"], [], ["-", "--algorithm", "fastest"], ["-", "--time-limit", "0"], ["-", "--assignments"]],
    ids=["no such file", "no file", "unknown algorithm", "no time", "assignments of a file"],
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


# -- the incremental stream: what is not said in test_dimacs_stream.py ---------------------------------------------

STREAM = SAMPLE + "c EOI\n"
CHANGE = "x 1 2 0 4 {}\nc EOI\n"


def test_stream(run):
    result = CliRunner().invoke(solve, ["--incremental", "--certify"], input=STREAM + CHANGE.format(9))
    assert result.exit_code == 0, result.output
    first, second = result.stdout.split("c EOI\n")[:-1]
    assert parse(first) == (10, {(1, 2): 2, (1, 3): 2, (2, 3): 2, (3, 4): 4})
    assert parse(second)[0] > 10
    for answer in (first, second):
        assert "c certified" in answer
        assert answer.splitlines()[-1].startswith("c ALGORITHM TIME ")
    assert run(STREAM, "--incremental").stdout.startswith("f 1 2 2\n")  # a stream may be recorded in a file


def test_stream_of_assignments():
    text = "p min 3 2\nn 1 1 1\nn 2 0 2\nn 3 -1 3\na 1 2 0 1 4\na 2 3 0 1 0\nc EOI\n"
    result = CliRunner().invoke(solve, ["--incremental", "--assignments"], input=text)
    assert [line for line in result.stdout.splitlines() if line[0] != "c"] == ["m 1 2"]


@pytest.mark.parametrize(
    ("records", "status", "words"),
    [
        ("x 1 2 0 4\n", 1, ["line 12", "expected x TAIL"]),
        (f"x 1 2 0 4 {2**62}\nc EOI\n", 1, ["round 2"]),
        ("r 1\nx 4 3 0 0 0\nn 2 5\nn 4 0\nc EOI\n", 3, ["round 2", "sum to 5"]),
        ("x 1 2 0 1 1\nx 1 3 0 1 1\nc EOI\n", 3, ["round 2", "nodes 1 must send"]),
        (f"a 2 1 0 {2**62} 0\nx 1 2 0 {2**62} -1\nc EOI\n", 4, ["round 2", "the cycle"]),
    ],
    ids=["malformed", "cost range", "unbalanced", "infeasible", "unbounded"],
)
def test_stream_that_fails_has_answered_the_rounds_before(records, status, words):
    result = CliRunner().invoke(solve, ["--incremental"], input=STREAM + records)
    assert result.exit_code == status, result.output
    assert result.stdout.count("c EOI") == 1
    [line] = result.stderr.splitlines()
    assert line.startswith("flowsched solve: <stdin>: ")
    for word in words:
        assert word in line


@pytest.fixture
def process():
    """The command as a process that has answered the first round."""
    program = "from flowsched.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", program, "solve", "--incremental"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        process.stdin.write(STREAM)
        process.stdin.flush()
        answer = list(iter(process.stdout.readline, "c EOI\n"))  # comes although the stream goes on
        assert "s 10\n" in answer
        yield process
        process.kill()
        with contextlib.suppress(BrokenPipeError):  # it flushes text that has no reader
            process.stdin.close()


def test_reader_of_the_stream_goes_away(process):
    process.stdout.close()
    with contextlib.suppress(BrokenPipeError):
        for cost in range(100_000):
            process.stdin.write(CHANGE.format(cost % 7))
            process.stdin.flush()
    assert process.wait(timeout=60) == 141
    assert process.stderr.read() == ""


@pytest.mark.skipif(os.name != "posix", reason="SIGINT is not sent to one process elsewhere")
def test_interrupt_ends_the_stream_without_a_traceback(process):
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert process.stderr.read() == "Interrupted.\n"


@pytest.mark.long
def test_memory_of_a_stream_does_not_grow():
    lines = ["p min 40 38", "n 40 0 3"]
    lines += [f"a {unit} 40 0 2 0" for unit in range(2, 40)]

    def rounds():
        yield from lines
        yield "c EOI"
        for number in range(4000):
            task = 41 + number % 30 if number % 3 else 2000 + number  # old numbers come back, and new ones go on
            if number >= 20:
                yield f"r {alive.pop(0)}"
            while task in alive:
                task += 1000
            alive.append(task)
            yield f"n {task} 1 1"
            for unit in range(2, 40, 3):
                yield f"a {task} {unit} 0 1 {(number * unit) % 17} 0"
            yield f"x {task} 2 0 1 {number % 5}"
            yield "c EOI"
            if number in (1000, 3999):
                sizes.append((session.network.nbytes, _weight(session)))

    alive: list[int] = []
    sizes: list[tuple[int, int]] = []
    session = IncrementalSession(rounds(), _Nowhere())
    assert session.run() == 4001
    assert sizes[1][0] <= sizes[0][0]
    assert sizes[1][1] <= 1.1 * sizes[0][1]


class _Nowhere:
    def write(self, text: str) -> None:
        pass

    def flush(self) -> None:
        pass


def _weight(session: IncrementalSession) -> int:
    """Count the objects that the session holds on to."""
    seen: set[int] = set()
    todo: list[object] = [session._problem]
    while todo:
        thing = todo.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, dict):
            todo += [*thing.keys(), *thing.values()]
        elif isinstance(thing, list | tuple | set):
            todo += list(thing)
        elif hasattr(thing, "__dict__"):
            todo += vars(thing).values()
        elif hasattr(thing, "__slots__"):
            todo += [getattr(thing, name) for name in thing.__slots__]
    return len(seen)


def test_compare_times_every_algorithm_and_checks_that_the_answers_are_equal(tmp_path, monkeypatch):
    own, bad, wide = (tmp_path / name for name in ("own.min", "bad.min", "wide.min"))
    own.write_text(SAMPLE)
    bad.write_text("p min 1\n")
    wide.write_text("p min 2 1\nn 1 3\nn 2 -3\na 1 2 0 2 1\n")
    monkeypatch.setattr("flowsched.cli.solve.installed", dict)
    result = CliRunner().invoke(solve, ["--compare", str(own), str(wide)])
    assert result.exit_code == 0, result.output
    assert f"{own}: 4 nodes, 5 arcs, answer 10\n" in result.stdout
    assert f"{wide}: 2 nodes, 1 arcs, answer infeasible\n" in result.stdout
    for algorithm in ALGORITHMS:
        assert re.search(rf"flowsched, {algorithm} +\d +\d+\.\d+ +\d+\.\d+\n", result.stdout), algorithm
    assert "median, ms" in result.stdout and "mean, ms" in result.stdout
    result = CliRunner().invoke(solve, ["--compare", str(bad), str(own), "-o", str(tmp_path / "out")])
    assert (result.exit_code, result.output) == (2, "")
    table = (tmp_path / "out").read_text()
    assert table.startswith(f"{bad}: line 1: expected p min")
    assert f"{own}: 4 nodes" in table, "the files after a malformed one are compared"
    monkeypatch.setattr("flowsched.cli.solve.installed", lambda: {"liar": lambda problem: Measured(cost=9)})
    result = CliRunner().invoke(solve, ["--compare", str(own)])
    assert result.exit_code == 1
    assert re.search("  WRONG: liar finds [0-9]+, flowsched, auto 10, which is certified\n", result.stdout)
    result = CliRunner().invoke(solve, ["--compare", str(bad), str(own)])
    assert result.exit_code == 1, "a different answer is worse than a malformed file"


@pytest.mark.parametrize(
    ("error", "status"), [(CostRangeError("too large"), 2), (TimeLimitError("too late"), 5)], ids=["range", "time"]
)
def test_compare_without_an_answer_is_no_success(run, monkeypatch, error, status):
    """As in zstd #3480 and dl-benchmark #282: a benchmark that failed must not end with 0."""

    def fails(problem, **options):
        raise error

    monkeypatch.setattr("flowsched.cli.solve.installed", dict)
    monkeypatch.setattr("flowsched.cli.solve.flowsched_once", fails)
    result = run(SAMPLE, "--compare")
    assert result.exit_code == status
    assert "4 nodes, 5 arcs, no answer\n" in result.stdout
    assert result.stdout.count(str(error)) == len(ALGORITHMS)


@pytest.mark.parametrize("arguments", [["--certify"], ["--incremental"], ["--algorithm", "repair"], None])
def test_compare_takes_what_it_needs(tmp_path, arguments):
    (tmp_path / "own.min").write_text(SAMPLE)
    own = str(tmp_path / "own.min")
    result = CliRunner().invoke(solve, [own, own] if arguments is None else ["--compare", own, *arguments])
    assert (result.exit_code, "--compare" in result.stderr) == (2, True)
