"""What the project's own files say of each other, and in how many words."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from statistics import mean

import pytest
from pages import PAGES, ROOT, sentences

MOST_LINES = {"README.md": 150, "DESIGN.md": 80}


def test_ci_runs_the_readmes_test_command() -> None:
    commands = re.findall(r"```console\n(.*?)\n```", (ROOT / "README.md").read_text(), re.DOTALL)
    (tests,) = [command for command in commands if "pytest" in command]
    assert tests in [line.strip() for line in (ROOT / ".ci" / "run").read_text().splitlines()]


def test_all_steps_are_known_to_contributors_to_nox_and_to_hosted_ci() -> None:
    listed = subprocess.run([ROOT / ".ci" / "run", "--list"], capture_output=True, text=True, check=True).stdout.split()
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("The steps are:")[2].partition("\n## ")[0]
    names = " ".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE))
    assert sorted(re.findall(r"\w+", names)) == listed
    (nox,) = re.findall(r"^STEPS = \((.*)\)", (ROOT / "noxfile.py").read_text(), re.MULTILINE)
    (hosted,) = re.findall(r"step: \[(.*)\]", (ROOT / ".github" / "workflows" / "ci.yml").read_text())
    prepare = {"postgresql", "executors", "tests", "tools"}
    assert set(re.findall(r"\w+", nox)) == set(listed) - prepare
    assert set(re.findall(r"\w+", hosted)) == set(listed) - prepare


@pytest.mark.parametrize("name", MOST_LINES)
def test_the_first_pages_are_short(name: str) -> None:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MOST_LINES[name]


WRITTEN = [
    *(ROOT / name for name in ("README.md", "DESIGN.md", "CONTRIBUTING.md", "SECURITY.md")),
    *(path for path in PAGES if "tables" not in path.parts),  # those are made from rows of measurements
]


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_lines_and_sentences_are_short(path: Path) -> None:
    """Rows of tables may be wider outside the two files that are read first."""
    text = path.read_text(encoding="utf-8")
    wide = path.name not in MOST_LINES
    for i, line in enumerate(text.splitlines(), 1):
        assert len(line) <= 120 or (wide and line.startswith("|")), f"{path.name}:{i}: {len(line)}"
    lengths = [len(sentence.split()) for sentence in sentences(text)]
    if len(lengths) >= 5:
        assert mean(lengths) <= 20, f"{path.name}: {mean(lengths):.1f} words a sentence"


def test_long_sentences_are_seen() -> None:
    assert [
        len(sentence.split()) for sentence in sentences("# Head\n\nOne two three. Four `a b` [five](six.md)\nseven!")
    ] == [3, 4]
    assert sentences("| a | table |\n\n```python\nsome code\n```\n\n* a point") == ["a point"]


def test_the_citation_file_has_the_version_of_the_package() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
