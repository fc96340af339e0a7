"""``flowsched bench``: the benchmarks of a source checkout, and what it says elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import flowsched
from flowsched import cli


@pytest.mark.long
def test_in_a_checkout_it_is_the_module_of_the_same_name(tmp_path: Path) -> None:
    """From any directory: paths are of the caller's."""
    line = [sys.executable, "-m", "flowsched", "bench", "nothing", "--json", "x"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2 and "no measurement 'nothing'; there are solver" in done.stderr
    Path(tmp_path, "a.json").write_text(json.dumps({"rows": []}))
    line[4:] = ["compare", "a.json", "a.json", "--worse-than", "1"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "0 of 0 rows are worse by more than 1 %\n")


def test_elsewhere_it_says_where_benchmarks_are_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flowsched, "__file__", str(tmp_path / "lib" / "flowsched" / "__init__.py"))
    result = CliRunner().invoke(cli.application(), ["bench", "solver", "--quick"])
    assert result.exit_code == 2 and len(result.stderr.splitlines()) == 1
    assert "source checkout, as `python -m bench NAME`" in result.stderr
