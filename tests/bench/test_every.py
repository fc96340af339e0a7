"""``python -m bench all``: measurements in processes of their own, kept where they are whole, and one page of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bench import NAMES, command, load
from bench.rows import Outcome, Row
from bench.site import site
from flowsched import cli

ROWS = [
    Row("x", "few", "gain", 12.0, None, None, 10.0, "%"),
    Row("x", "some", "gain", 5.0, None, None, 20.0, "%"),
    Row("x", "many", "gain", -3.0, None, None, 30.0, "%", "only two machines"),
    Row("x", "all", "best", "ours, theirs", None, None, "ours, theirs"),
    Row("x", "few", "time <s>", 0.5, 1.0, 2.0, None, "s"),
]


def stored(name: str, **more: Any) -> dict[str, Any]:
    facts = {"experiment": name, "title": f"Measurement {name}", "quick": True, "seed": 0, "complete": True}
    return facts | Outcome(rows=ROWS, notes=["the cluster is smaller"]).as_dict() | more


def invoke(*args: object) -> Result:
    return CliRunner().invoke(cli.application(), ["bench", "all", *map(str, args)])


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the measurements that were begun: `sirius` fails, `fgm` breaks off."""
    begun: list[str] = []

    def run(line: list[str]) -> int:
        name = line[line.index("bench") + 1]
        begun.append(name)
        if name == "sirius":
            return 1
        rows = Path(line[line.index("--json") + 1])
        rows.write_text(json.dumps(stored(name, complete=name != "fgm")))
        return 130 if name == "fgm" else 0

    monkeypatch.setattr(command, "_in_process", run)
    return begun


def test_every_measurement_that_reads_recorded_inputs_gets_their_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[list[str]] = []

    def run(line: list[str]) -> int:
        lines.append(line)
        return 1

    monkeypatch.setattr(command, "_in_process", run)
    invoke("--site", tmp_path / "site", "--quick", "--data", tmp_path)
    given = {line[line.index("bench") + 1] for line in lines if "--data" in line}
    takes = {name for name in NAMES if "data" in signature(load(name).run).parameters}
    assert given == takes
    assert all(line[line.index("--data") + 1] == str(tmp_path) for line in lines if "--data" in line)


def test_one_that_fails_leaves_the_others_and_a_stopped_run_goes_on(tmp_path: Path, measured: list[str]) -> None:
    first = invoke("--site", tmp_path, "--quick")
    assert first.exit_code == 130 and measured == ["solver", "sirius", "fgm"]
    assert "Not whole: sirius (exit status 1)" in first.stderr
    page = (tmp_path / "index.html").read_text()
    assert "Measurement solver" in page and "Broken off" in page and "HRM (Tang" not in page
    assert "Seed: 0\n" in invoke("--site", tmp_path, "--quick", "--only", "solver").stderr, "that of DIR"
    measured.clear()
    second = invoke("--site", tmp_path, "--quick", "--only", "solver,hrm")
    assert second.exit_code == 0 and measured == ["hrm"] and "1/2  solver: kept" in second.stderr
    assert "FGM (Zhou" in (tmp_path / "index.html").read_text()
    for more in (["--again"], ["--seed", 3], []):
        measured.clear()
        invoke("--site", tmp_path, "--only", "solver", *more)
        assert measured == ["solver"], "again, another seed, not quick"


def test_an_unknown_name_is_refused(tmp_path: Path) -> None:
    refused = invoke("--site", tmp_path / "new", "--only", "solver,x")
    assert refused.exit_code == 2 and "--only: no measurement 'x'; there are solver" in refused.stderr
    assert not (tmp_path / "new").exists()


def test_the_page_marks_statements_only_failures_first(tmp_path: Path) -> None:
    plot = tmp_path / "sequence-1.svg"
    plot.write_text("<svg/>")
    rows = [
        Row("sequence", "10:8:6:5, tasks", "largest deviation from the quota, at the end", 12.0, 3.0, None, None, "%"),
        Row("sequence", "quotas 5:3", "sequence", "ABA", source_value="ABA"),
        Row("sequence", "two", "time <s>", 0.5, 1.0, 2.0, 20.0, "s", "only two machines"),
    ]
    facts = stored("sequence", wrong=["a <bad> sum"]) | Outcome(rows=rows, notes=["the cluster is smaller"]).as_dict()
    page = site([(facts | {"wrong": ["a <bad> sum"]}, [plot, tmp_path / "p.txt"]), (stored("x"), [])])
    for text in (
        "only two machines", "the cluster is smaller", "1 further rows", "2 rows with a published figure", "time &lt;s&gt;",
        "WRONG: a &lt;bad&gt; sum", "data:image/svg+xml;base64,", "20 s", "python -m bench sequence", '<a href="#sequence-1">Figure 1</a>',
    ):  # fmt: skip
        assert text in page, text
    assert page.count('class="no">fails') == 2 and page.count('class="yes">holds') == 1
    assert page.rindex("fails") < page.index("holds</span>") < page.index("not in this run</td>")
    assert page.index("The deployment sequence") < page.index("Measurement x") and "http" not in page


@pytest.mark.long
def test_ctrl_c_ends_the_measurement_and_keeps_its_rows(tmp_path: Path) -> None:
    """The process of the measurement gets the signal from this one alone."""
    command = [sys.executable, "-m", "flowsched", "bench", "all", "--quick", "--only", "openb,solver", "--site", "s"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    if not children.exists():
        process.kill()
        process.communicate()
        pytest.skip("no list of child processes here")
    while not children.read_text().split() and time.monotonic() < deadline:
        time.sleep(0.05)
    child = int(children.read_text().split()[0])
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    _, words = process.communicate(timeout=120)
    assert process.returncode == 130, words
    assert "solver" not in words and (tmp_path / "s" / "index.html").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
