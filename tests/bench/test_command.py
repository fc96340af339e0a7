"""``python -m bench``: rows as a table, JSON and plots, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from bench import load
from bench.rows import Keep, Outcome, Row, shown
from flowsched import cli
from flowsched.exceptions import InputError

KEYS = {"experiment", "setting", "metric", "value", "baseline", "ratio", "source_value", "unit"}

Bench = Callable[..., Result]


def fake(run: Callable[..., Outcome]) -> SimpleNamespace:
    def plot(outcome: Outcome, folder: Path) -> list[Path]:
        path = folder / "fake.svg"
        path.write_text(f"<svg>{len(outcome.rows)}</svg>")
        return [path]

    return SimpleNamespace(TITLE="A fake experiment", run=run, plot=plot)


def rows(**options: Any) -> Outcome:
    options["say"]("half way")
    return Outcome(
        rows=[
            Row("fake", "10 machines", "round", np.float64(1.5e-6), 3e-3, 2000.0, 2e-6, "s", "peer: none"),
            Row("fake", "10 machines", "optimum", 2**70, unit=""),
            Row("fake", f"seed {options['seed']}", "quick" if options["quick"] else "full", None, ratio=float("nan")),
        ],
        notes=["a note"],
    )


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    def invoke(run: Callable[..., Outcome], *args: object) -> Result:
        monkeypatch.setattr("bench.load", lambda name: fake(run))
        result = CliRunner().invoke(cli.application(), ["bench", "solver", *map(str, args)])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    return invoke


def test_rows_as_table_json_and_plots(bench: Bench, tmp_path: Path) -> None:
    plots = tmp_path / "new" / "plots"
    result = bench(rows, "--json", tmp_path / "rows.json", "--plots", plots, "--seed", 3, "--quick")
    assert result.exit_code == 0
    for text in ("A fake experiment", "1.50 us", "3 ms", "2,000", "2 us", "peer: none", "seed 3", "quick", "a note"):
        assert text in result.stdout
    assert "half way" in result.stderr
    told = json.loads((tmp_path / "rows.json").read_text())
    assert [set(row) >= KEYS for row in told["rows"]] == [True] * 3
    assert told["rows"][0]["value"] == 1.5e-6
    assert told["rows"][1]["value"] == 2**70
    assert told["rows"][2]["ratio"] is None
    assert (told["seed"], told["quick"], told["wrong"], told["notes"]) == (3, True, [], ["a note"])
    assert (plots / "fake.svg").read_text() == "<svg>3</svg>"


def test_the_seed_is_drawn_printed_and_recorded(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter([17, 4])
    monkeypatch.setattr("secrets.randbelow", lambda most: next(drawn))
    for seed, options in ((17, ()), (4, ()), (3, ("--seed", 3))):
        result = bench(rows, "--json", tmp_path / "rows.json", *options)
        assert f"Seed: {seed}\n" in result.stdout
        told = json.loads((tmp_path / "rows.json").read_text())
        assert (told["seed"], told["rows"][2]["setting"]) == (seed, f"seed {seed}")


def test_wrong_is_exit_status_1_after_all_is_written(bench: Bench, tmp_path: Path) -> None:
    result = bench(lambda **_: Outcome(wrong=["12 is not 11"]), "--json", tmp_path / "rows.json")
    assert result.exit_code == 1
    assert "WRONG: 12 is not 11" in result.stderr
    assert json.loads((tmp_path / "rows.json").read_text())["wrong"] == ["12 is not 11"]


def test_recorded_inputs_go_to_experiments_that_ask(bench: Bench, tmp_path: Path) -> None:
    def run(*, quick: bool, seed: int, say: Callable[[str], None], data: Path) -> Outcome:
        if not (data / "trace.csv").exists():
            raise FileNotFoundError(f"{data / 'trace.csv'}: no such file; see --data")
        return Outcome()

    assert bench(lambda **options: Outcome(wrong=[] if "data" not in options else ["x"])).exit_code == 0
    missing = bench(run, "--data", tmp_path)
    assert missing.exit_code == 2
    assert "trace.csv: no such file; see --data" in missing.stderr
    (tmp_path / "trace.csv").touch()
    assert bench(run, "--data", tmp_path).exit_code == 0


def test_ends(bench: Bench, tmp_path: Path) -> None:
    def interrupted(**_: Any) -> Outcome:
        raise KeyboardInterrupt

    def lacks(**_: Any) -> Outcome:
        raise ModuleNotFoundError("No module named 'ortools'", name="ortools.graph")

    def bad(**_: Any) -> Outcome:
        raise InputError("seed: too large")

    assert bench(interrupted).exit_code == 130
    result = bench(lacks)
    assert (result.exit_code, "ortools is missing" in result.stderr) == (2, True)
    result = bench(bad)
    assert (result.exit_code, "seed: too large" in result.stderr) == (2, True)
    result = bench(rows, "--json", tmp_path / "nowhere" / "rows.json")
    assert (result.exit_code, "no such directory" in result.stderr) == (2, True)
    assert "half way" not in bench(rows, "--quiet").stderr


@pytest.mark.parametrize(
    ("error", "status"), [(KeyboardInterrupt(), 130), (InputError("part: broken"), 2), (MemoryError(), 74)]
)
def test_the_rows_so_far_are_kept_when_a_measurement_breaks_off(
    bench: Bench, tmp_path: Path, error: BaseException, status: int
) -> None:
    def breaks(*, quick: bool, seed: int, say: Callable[[str], None], keep: Keep) -> Outcome:
        outcome = Outcome()
        keep(lambda: outcome)
        outcome.rows.append(Row("fake", "first part", "round", 1.0, unit="s"))
        raise error

    result = bench(
        breaks, "--json", tmp_path / "rows.json", "--pytest-benchmark", tmp_path / "p.json", "--plots", tmp_path
    )
    assert result.exit_code == status
    assert "first part" in result.stdout and "Broken off" in result.stdout
    told = json.loads((tmp_path / "rows.json").read_text())
    assert (told["complete"], [row["setting"] for row in told["rows"]]) == (False, ["first part"])
    assert len(json.loads((tmp_path / "p.json").read_text())["benchmarks"]) == 1
    assert not (tmp_path / "fake.svg").exists(), "plots are of whole measurements"


def test_without_any_row_nothing_is_written(bench: Bench, tmp_path: Path) -> None:
    def breaks(*, quick: bool, seed: int, say: Callable[[str], None], keep: Keep) -> Outcome:
        keep(Outcome)
        raise KeyboardInterrupt

    result = bench(breaks, "--json", tmp_path / "rows.json")
    assert (result.exit_code, result.stdout, (tmp_path / "rows.json").exists()) == (130, "", False)


def test_a_failed_part_is_exit_status_2_and_a_wrong_result_goes_before(bench: Bench) -> None:
    result = bench(lambda **_: Outcome(failed=["x.min: line 3: no"]))
    assert (result.exit_code, "FAILED: x.min: line 3: no" in result.stderr) == (2, True)
    assert bench(lambda **_: Outcome(wrong=["1 is not 2"], failed=["x"])).exit_code == 1


def test_the_environment_is_in_the_table_and_the_file(bench: Bench, tmp_path: Path) -> None:
    result = bench(rows, "--json", tmp_path / "rows.json")
    told = json.loads((tmp_path / "rows.json").read_text())["environment"]
    for text in ("Clock: ", "Kernel: ", told["kernel"]["flags"], told["cpu"], told["date"], f"NumPy {told['numpy']}"):
        assert text in result.stdout


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    def write(name: str, seconds: float, ratio: float, **more: object) -> None:
        found = Outcome([Row("e", "a", "time", seconds, 4.0, ratio, unit="s"), Row("e", name, "own", 1)])
        (tmp_path / name).write_text(json.dumps(found.as_dict() | more))

    monkeypatch.chdir(tmp_path)
    write("a.json", 2.0, 2.0, environment={"cpu": "one", "date": "x"})
    write("b.json", 2.3, 1.9, environment={"cpu": "other", "date": "y"})
    return lambda *args: CliRunner().invoke(cli.application(), ["bench", "compare", "a.json", "b.json", *args])


def test_compare(two: Callable[..., Result]) -> None:
    result = two()
    assert result.exit_code == 0
    for text in ("2 s", "2.30 s", "+15.0 %", "Only in a.json: a.json, own", "Only in b.json: b.json, own"):
        assert text in result.stdout
    assert "cpu: one in A, other in B" in result.stdout and "date" not in result.stdout


def test_compare_has_a_threshold(two: Callable[..., Result]) -> None:
    for options, status in (
        (("--worse-than", "10"), 1),
        (("--worse-than", "20"), 0),
        (("--worse-than", "10", "--by", "ratio"), 0),
        (("--worse-than", "4", "--by", "ratio"), 1),
    ):
        result = two(*options)
        assert result.exit_code == status
        assert f"{status} of 1 rows are worse by more than {options[1]} %" in result.stderr


def test_compare_names_a_file_without_rows(two: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text('{"rows":\n [}')
    result = two()
    assert (result.exit_code, "b.json: line 2: " in result.stderr) == (2, True)


def test_names() -> None:
    result = CliRunner().invoke(cli.application(), ["bench", "nothing"])
    assert result.exit_code == 2
    assert "solver" in result.stderr
    with pytest.raises(InputError, match="no experiment 'nothing'"):
        load("nothing")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "s", ""),
        ("absent", "s", "absent"),
        (float("nan"), "", "-"),
        (0.0, "s", "0 s"),
        (1.234e-6, "s", "1.23 us"),
        (0.99949, "s", "999 ms"),
        (0.9996, "s", "1.00 s"),
        (12.34, "s", "12.3 s"),
        (40, "B", "40 B"),
        (123456.7, "", "123,457"),
        (-0.004, "", "-0.004"),
    ],
)
def test_figures(value: float | None, unit: str, text: str) -> None:
    assert shown(value, unit) == text
