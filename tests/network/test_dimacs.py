"""Reading and writing DIMACS files: every kind of damage is named with its line."""

from __future__ import annotations

import dataclasses
import gzip
import io
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from networks import SAMPLE
from strategies import any_problems

from flowsched.exceptions import DimacsError, InputError
from flowsched.network import dimacs
from flowsched.network.dimacs import read_dimacs, write_dimacs
from flowsched.network.problem import FlowProblem


def assert_same(one: FlowProblem, other: FlowProblem) -> None:
    for name, values in one.arguments().items():
        np.testing.assert_array_equal(values, other.arguments()[name], err_msg=name)
        assert values.dtype == np.int64


def read(text: str | bytes) -> FlowProblem:
    return read_dimacs(io.BytesIO(text.encode() if isinstance(text, str) else text))


def test_sample():
    problem = read(SAMPLE)
    assert problem.supply.tolist() == [4, 0, 0, -4]
    assert problem.tail.tolist() == [0, 0, 1, 1, 2]
    assert problem.head.tolist() == [1, 2, 2, 3, 3]
    assert problem.lower.tolist() == [0, 0, 1, 0, 0]
    assert problem.capacity.tolist() == [4, 2, 2, 3, 5]
    assert problem.cost.tolist() == [2, 2, -1, 3, 1]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(SAMPLE.rstrip("\n"), id="no newline at the end"),
        pytest.param(SAMPLE.replace("\n", "\r\n"), id="CRLF"),
        pytest.param(SAMPLE.replace("\n", "\n\n"), id="blank lines"),
        pytest.param(SAMPLE.replace("a ", "  a\t"), id="indented, tabs"),
        pytest.param(SAMPLE.replace("n 4 -4\n", "") + "n 4 -4\n", id="a node after the arcs"),
        pytest.param(SAMPLE.replace("c a comment", "c\nccomment"), id="bare comments"),
        pytest.param(SAMPLE.replace("c a comment", "c na\u00efve"), id="comment beyond ASCII"),
        pytest.param(SAMPLE.replace("n 1 4", "n 1 +4\nn 2 0"), id="a sign, a node of supply 0"),
        pytest.param("c\n" * 3 + SAMPLE + "c end\n\n", id="comments around"),
    ],
)
def test_unusual_files_that_are_right(text):
    assert_same(read(text), read(SAMPLE))


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        pytest.param("", 1, "no problem line", id="empty file"),
        pytest.param("c only\nc comments\n", 2, "no problem line", id="comments only"),
        pytest.param("n 1 4\n" + SAMPLE, 1, "before the problem line", id="node before the problem"),
        pytest.param("a 1 2 0 4 2\n" + SAMPLE, 1, "before the problem line", id="arc before the problem"),
        pytest.param(SAMPLE + "p min 4 5\n", 11, "second problem line", id="two problem lines"),
        pytest.param(SAMPLE.replace("p min", "p max"), 2, "'max'", id="maximum flow"),
        pytest.param(SAMPLE.replace("p min 4 5", "p min 4"), 2, "p min NODES ARCS", id="no number of arcs"),
        pytest.param(SAMPLE.replace("p min 4 5", "p"), 2, "p min NODES ARCS", id="bare p"),
        pytest.param(SAMPLE.replace("p min 4 5", "p min 4 5 6"), 2, "p min NODES ARCS", id="one number too many"),
        pytest.param(SAMPLE.replace("p min 4 5", "p min -4 5"), 2, "negative number of nodes", id="negative count"),
        pytest.param(SAMPLE.replace("p min 4 5", "p min four 5"), 2, "'four' is not an integer", id="count is a word"),
        pytest.param(SAMPLE.replace("p min 4 5", f"p min {10**12} 5"), 2, "supported", id="far too many nodes"),
        pytest.param(SAMPLE.replace("p min 4 5", "p min 4 4"), 10, "more arcs than the 4", id="too many arcs"),
        pytest.param(SAMPLE.replace("p min 4 5", "p min 4 6"), 10, "after 5 of 6 arcs", id="too few arcs"),
        pytest.param(SAMPLE[: SAMPLE.index("a 3 4")], 9, "after 4 of 5 arcs", id="truncated between lines"),
        pytest.param(SAMPLE[:-5], 10, "expected a TAIL HEAD LOWER CAPACITY COST", id="truncated in a line"),
        pytest.param(SAMPLE.replace("n 1 4", "n 1"), 4, "expected n ID SUPPLY", id="node without supply"),
        pytest.param(SAMPLE.replace("n 1 4", "n 1 4 4"), 4, "expected n ID SUPPLY", id="node with too much"),
        pytest.param(SAMPLE.replace("n 1 4", "n 5 4"), 4, "node 5", id="node out of range"),
        pytest.param(SAMPLE.replace("n 1 4", "n 0 4"), 4, "node 0", id="node 0"),
        pytest.param(SAMPLE.replace("n 4 -4", "n 1 -4"), 5, "second record of node 1", id="node twice"),
        pytest.param(SAMPLE.replace("n 1 4", "n 1 4.0"), 4, "supply '4.0'", id="fractional supply"),
        pytest.param(SAMPLE.replace("a 2 4 0 3 3", "a 2 9 0 3 3"), 9, "head 9", id="head out of range"),
        pytest.param(SAMPLE.replace("a 2 4 0 3 3", "a -2 4 0 3 3"), 9, "tail -2", id="tail out of range"),
        pytest.param(SAMPLE.replace("a 2 4 0 3 3", "a 2 4 0 3"), 9, "expected a", id="arc too short"),
        pytest.param(SAMPLE.replace("a 2 4 0 3 3", "a 2 4 0 3 3 3"), 9, "expected a", id="arc too long"),
        pytest.param(SAMPLE.replace("a 2 4 0 3 3", "a 2 4 0 3 1e3"), 9, "cost '1e3'", id="cost is no integer"),
        pytest.param(SAMPLE.replace("a 2 4 0 3 3", "a 2 4 0 1_0 3"), 9, "capacity '1_0'", id="underscore"),
        pytest.param(SAMPLE.replace("a 2 4 0 3 3", "a 2 4 0 nan 3"), 9, "capacity 'nan'", id="not a number"),
        pytest.param(SAMPLE.replace("a 2 4 0 3 3", "a 2 4 0 -3 3"), 9, "capacity -3 is negative", id="capacity < 0"),
        pytest.param(SAMPLE.replace("a 2 4 0 3 3", "a 2 4 -1 3 3"), 9, "lower bound -1", id="lower < 0"),
        pytest.param(SAMPLE.replace("a 2 4 0 3 3", "a 2 4 4 3 3"), 9, "lower bound 4 above", id="lower > capacity"),
        pytest.param(SAMPLE.replace("a 2 4 0 3 3", f"a 2 4 0 3 {2**63}"), 9, "64 bits", id="cost beyond 64 bits"),
        pytest.param(SAMPLE.replace("a 2 4 0 3 3", "x 2 4 0 3 3"), 9, "unknown record 'x'", id="unknown record"),
        pytest.param(SAMPLE.replace("a 2 4 0 3 3", "arc 2 4 0 3 3"), 9, "unknown record 'arc'", id="a word for a"),
        pytest.param(SAMPLE.replace("a 2 4 0 3 3", "a2 4 0 3 3"), 9, "unknown record 'a2'", id="letter and id joined"),
        pytest.param(b"\x00\x01\xff\n", 1, "unknown record", id="binary"),
        # two errors that make up for each other in a count of the words
        pytest.param(
            SAMPLE.replace("a 2 4 0 3 3", "a 2 4 0 3").replace("a 3 4 0 5 1", "a 3 4 0 5 1 1"),
            9, "expected a", id="one word short, one too many",
        ),
    ],
)  # fmt: skip
def test_damage_is_named_with_its_line(text, line, words):
    with pytest.raises(DimacsError) as caught:
        read(text)
    assert caught.value.line == line
    assert str(caught.value).startswith(f"line {line}: ")
    assert words in str(caught.value)
    assert isinstance(caught.value, ValueError)
    twin = pickle.loads(pickle.dumps(caught.value))
    assert (str(twin), twin.line) == (str(caught.value), line)


def test_truncated_gzip():
    body = SAMPLE.replace("p min 4 5", "p min 4 50005") + "a 1 2 0 4 2\n" * 50000
    whole = gzip.compress(body.encode())
    assert len(read(whole).tail) == 50005
    with pytest.raises(DimacsError, match="compressed data are damaged") as caught:
        read(whole[: len(whole) // 2])
    assert caught.value.line >= 1
    with pytest.raises(DimacsError, match="line 1: the compressed data are damaged"):
        read(b"\x1f\x8bnothing")


@given(problem=any_problems(), zipped=st.booleans())
def test_round_trip(problem, zipped, tmp_path_factory):
    path = tmp_path_factory.mktemp("dimacs") / ("problem.min.gz" if zipped else "problem.min")
    write_dimacs(problem, path)
    assert_same(read_dimacs(path), problem)
    assert (path.read_bytes()[:2] == b"\x1f\x8b") == zipped


@given(problem=any_problems())
def test_both_parsers_agree(problem):
    stream = io.BytesIO()
    write_dimacs(problem, stream)
    lines = stream.getvalue().split(b"\n")
    bulk = dimacs._parse_bulk(lines)
    assert bulk is not None, "a file as written here is never unusual"
    assert_same(bulk, dimacs._parse_lines(lines))


@given(
    data=st.data(),
    words=st.lists(
        st.sampled_from(["0", "1", "-1", "2", "x", "a", "n", "", "9" * 20, "1_0", "c"]), min_size=1, max_size=3
    ),
)
def test_bulk_parser_accepts_nothing_that_the_other_refuses(data, words):
    """Damage one line of a good file: the bulk parser gives up or finds what the line parser finds."""
    lines = SAMPLE.encode().split(b"\n")
    index = data.draw(st.integers(0, len(lines) - 1))
    fields = lines[index].split()
    at = data.draw(st.integers(0, len(fields)))
    upto = data.draw(st.integers(at, len(fields)))
    lines[index] = b" ".join([*fields[:at], *(word.encode() for word in words), *fields[upto:]])
    bulk = dimacs._parse_bulk(lines)
    if bulk is not None:
        assert_same(bulk, dimacs._parse_lines(lines))


def test_text_and_binary_files(tmp_path):
    problem = read(SAMPLE)
    text, binary = io.StringIO(), io.BytesIO()
    write_dimacs(problem, text)
    write_dimacs(problem, binary)
    assert text.getvalue().encode() == binary.getvalue()
    assert_same(read_dimacs(io.StringIO(text.getvalue())), problem)
    path = tmp_path / "named.txt"
    path.write_bytes(gzip.compress(binary.getvalue()))
    assert_same(read_dimacs(str(path)), problem)
    with path.open("rb") as file:
        assert_same(read_dimacs(file), problem)


def test_equal_problems_make_equal_files(tmp_path):
    for name in ("one.min.gz", "other.min.gz"):
        write_dimacs(read(SAMPLE), tmp_path / name)
    assert (tmp_path / "one.min.gz").read_bytes() == (tmp_path / "other.min.gz").read_bytes()


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_dimacs(tmp_path / "absent.min")


def test_no_nodes_and_no_arcs():
    problem = read("p min 0 0\n")
    assert all(len(values) == 0 for values in problem.arguments().values())
    assert read("p min 3 0\n").supply.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({"tail": [0, 0, 1, 1]}, "4 arcs", id="length"),
        pytest.param({"cost": [1.5, 2, 3, 4, 5]}, "cost[0]: 1.5 is not an integer", id="fraction"),
        pytest.param({"supply": [[4, -4]]}, "supply: a vector expected, got an array of shape (1, 2)", id="dimensions"),
        pytest.param({"capacity": np.array([1, 2, 2**63, 4, 5], np.uint64)}, "capacity[2]", id="beyond 64 bits"),
    ],
)
def test_problem_refuses_what_is_no_problem(change, words):
    with pytest.raises(InputError) as caught:
        dataclasses.replace(read(SAMPLE), **change)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({"tail": [0, 0, 4, 1, 2]}, "tail[2] = 4", id="tail"),
        pytest.param({"head": [1, 2, 2, -1, 3]}, "head[3] = -1", id="head"),
        pytest.param({"capacity": [4, 2, 2, 3, -5]}, "capacity[4]", id="capacity"),
        pytest.param({"lower": [0, 0, -1, 0, 0]}, "lower[2]", id="lower"),
        pytest.param({"lower": [5, 0, 0, 0, 0]}, "lower[0]", id="lower above capacity"),
    ],
)
def test_what_could_not_be_read_back_is_not_written(change, words, tmp_path):
    problem = dataclasses.replace(read(SAMPLE), **change)
    with pytest.raises(InputError) as caught:
        write_dimacs(problem, tmp_path / "problem.min")
    assert words in str(caught.value)
    assert not (tmp_path / "problem.min").exists()
