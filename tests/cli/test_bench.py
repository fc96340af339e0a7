"""``flowsched bench``: rows as a table, JSON and plots, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from flowsched import cli, experiments
from flowsched.exceptions import InputError
from flowsched.experiments.rows import Outcome, Row, shown

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
        monkeypatch.setattr(experiments, "load", lambda name: fake(run))
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


def test_names() -> None:
    result = CliRunner().invoke(cli.application(), ["bench", "nothing"])
    assert result.exit_code == 2
    assert "solver" in result.stderr
    with pytest.raises(InputError, match="no experiment 'nothing'"):
        experiments.load("nothing")


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
