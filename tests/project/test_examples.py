"""The scripts and notebooks of `examples` run as they are, and print something."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from pages import ROOT, optional

import flowsched as fs

EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
SHORT = "newest_kernel"  # what the short run tries
PEERS = [path for path in SCRIPTS if "--peers" in path.read_text(encoding="utf-8")]


def test_there_are_scripts_and_notebooks() -> None:
    assert len(SCRIPTS) >= 8 and len(NOTEBOOKS) >= 2


def ran(folder: Path, *arguments: str) -> str:
    """Run an example in a folder, and return what it prints; skip the test if a package is missing."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | {"PYTHONPATH": str(Path(fs.__file__).parents[1])},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if "pip install" in done.stderr and "ImportError" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "script",
    [pytest.param(path, id=path.stem, marks=() if path.stem == SHORT else pytest.mark.long) for path in SCRIPTS],
)
def test_script(script: Path, tmp_path: Path) -> None:
    assert ran(tmp_path, "-W", "error", str(script)).strip(), "it says what it found"
    assert not list(tmp_path.iterdir()), "it leaves no files behind"


@pytest.mark.parametrize("script", PEERS, ids=lambda path: path.stem)
@pytest.mark.long
def test_peers_find_the_same_optima(script: Path, tmp_path: Path) -> None:
    """The script compares every cost itself."""
    assert "times" in ran(tmp_path, str(script), "--peers", "--quick")


def cells(notebook: Path) -> list[str]:
    """The code of a notebook, cell by cell."""
    found = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == "code"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.long
def test_notebook(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Jupyter: the cells are run in order, and share their names."""
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    out = io.StringIO()
    with contextlib.redirect_stdout(out), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="FigureCanvasAgg is non-interactive")
        for i, code in enumerate(cells(notebook)):
            with optional():
                exec(compile(code, f"{notebook.name}, cell {i}", "exec"), names)
    if "plt" in names:
        names["plt"].close("all")
    assert len(out.getvalue().splitlines()) >= 4


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_without_outputs(notebook: Path) -> None:
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        assert cell.get("outputs", []) == [] and cell.get("execution_count") is None
