"""Stored measurements: what is read back, how rows are matched and judged, and pytest-benchmark's form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import flowsched
from bench import solver, stored
from bench.environment import environment, lines
from bench.rows import Outcome, Row
from flowsched.exceptions import InputError

ROWS = [
    Row("e", "a", "time", 2.0, 4.0, 2.0, unit="s", note="best peer: x"),
    Row("e", "a", "time", 2.0, 8.0, 4.0, unit="s", note="y"),
    Row("e", "a", "gain", 10.0, better="more"),
    Row("e", "a", "count", 7),
    Row("e", "b", "answer", "infeasible"),
]


def write(path: Path, rows: list[Row], **facts: Any) -> Path:
    path.write_text(json.dumps({"experiment": "e"} | facts | Outcome(rows).as_dict()))
    return path


def compared(tmp_path: Path, rows: list[Row]) -> dict[str, stored.Pair]:
    one = stored.read(write(tmp_path / "a.json", ROWS))
    other = stored.read(write(tmp_path / "b.json", rows))
    return {pair.before.metric: pair for pair in stored.pairs(one, other)}


def test_rows_are_matched_and_judged_in_their_direction(tmp_path: Path) -> None:
    after = [
        Row("e", "a", "gain", 8.0, better="more"),
        Row("e", "a", "time", 3.0, 3.0, 1.0, unit="s"),
        Row("e", "a", "count", 14),
        Row("e", "a", "new", 1.0),
        Row("other", "b", "answer", "infeasible"),
    ]
    found = compared(tmp_path, after)
    assert list(found) == ["time", "gain", "count"], "in the order of the first; the same experiment"
    assert found["time"].change() == found["time"].loss() == pytest.approx(50)
    assert found["time"].before.note == "best peer: x", "the best peer's row stands for all"
    assert found["time"].change("ratio") == pytest.approx(-50)
    assert found["time"].loss("ratio") == pytest.approx(50), "a ratio is better the larger"
    assert found["gain"].loss() == pytest.approx(20)
    assert found["gain"].loss("ratio") is None
    assert (found["count"].change(), found["count"].loss()) == (100, None), "nothing tells what is better"


def test_an_answer_that_changes_its_kind_has_no_change(tmp_path: Path) -> None:
    (pair,) = compared(tmp_path, [Row("e", "b", "answer", 5)]).values()
    assert pair.change() is pair.loss() is None


def test_pytest_benchmarks_form_and_back(tmp_path: Path) -> None:
    facts = {"experiment": "e", "environment": environment(solver)}
    told = stored.as_pytest_benchmark(facts, ROWS)
    assert [(b["fullname"], b["stats"]["median"]) for b in told["benchmarks"]] == [("e::a: time", 2.0)]
    (tmp_path / "p.json").write_text(json.dumps(told))
    back = stored.read(tmp_path / "p.json")
    assert list(back.rows.values()) == [ROWS[0]]
    assert back.environment == facts["environment"]


def test_pytest_benchmark_reads_our_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = pytest.importorskip("pytest_benchmark.cli")
    told = stored.as_pytest_benchmark({"environment": environment(solver)}, ROWS)
    (tmp_path / "0001_ours.json").write_text(json.dumps(told))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["pytest-benchmark", "compare", "0001_ours.json", "--csv", "table"])
    tool.main()
    assert "a: time" in (tmp_path / "table.csv").read_text()


def test_a_benchmark_of_another_tool_is_a_row_of_its_median(tmp_path: Path) -> None:
    benchmark = {"fullname": "bench/test_x.py::test_x", "stats": {"median": 0.25, "mean": 0.5}, "extra_info": {"k": 1}}
    found = {"benchmarks": [benchmark], "machine_info": {"cpu": {"brand_raw": "A CPU"}}, "commit_info": {"id": "abc"}}
    (tmp_path / "p.json").write_text(json.dumps(found))
    read = stored.read(tmp_path / "p.json")
    row, other = read.rows.values()
    assert (row.setting, row.metric, row.value, row.direction) == ("bench/test_x.py::test_x", "median", 0.25, "less")
    assert (other.metric, other.value) == ("mean", 0.5)
    assert (read.environment["cpu"], read.environment["commit"]) == ("A CPU", "abc")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "line 1"),
        ('{"rows": [\n{"a": }]}', "line 2"),
        ("[1]", "no rows"),
        ("3", "no rows"),
        ('{"x": 1}', "no rows"),
        ('{"rows": [{"setting": "a"}]}', "no rows"),
        ('{"rows": [{"experiment": "e", "setting": "a", "metric": "m", "value": []}]}', "no rows"),
        ('{"rows": [{"experiment": "e", "setting": 1, "metric": "m", "value": 1}]}', "no rows"),
        ('{"benchmarks": [{}]}', "no rows"),
        ("\udcff", "not a text"),
    ],
)
def test_a_file_without_rows_is_named(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match=says) as error:
        stored.read(path)
    assert str(path) in str(error.value)


def test_the_environment_is_plain_and_complete() -> None:
    found = environment(solver)
    assert json.loads(json.dumps(found)) == found
    assert found["flowsched"] == flowsched.__version__
    assert found["clock"] == "CPU time of the thread"
    assert found["cores"] >= 1
    assert set(found["kernel"]) == {"compiler", "flags", "cython", "c_api", "faults"}
    text = "\n".join(lines(found))
    for part in (found["cpu"], found["date"], found["kernel"]["flags"], found["python"], found["numpy"]):
        assert part in text
    assert "none" in "\n".join(lines(found | {"peers": {}, "commit": None}))


def test_differences_of_environments_go_into_groups_and_leave_the_date_out() -> None:
    one = {"date": "x", "cpu": "a", "peers": {"p": "1", "q": "1"}}
    other = {"date": "y", "cpu": "b", "peers": {"p": "2", "q": "1"}, "load": 1}
    found = list(stored.differences(one, other))
    assert found == [("cpu", "a", "b"), ("peers: p", "1", "2"), ("load", None, 1)]
